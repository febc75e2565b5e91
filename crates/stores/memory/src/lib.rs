//! The memory adapter
