//! Business workloads: generator, port, ledger and audit of each; knows no store
