//! Samples processes and the machine while a trial runs
