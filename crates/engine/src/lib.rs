//! Drives clients on a schedule and records what happened; knows no store and no workload
