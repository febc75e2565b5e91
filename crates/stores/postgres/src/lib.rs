//! The postgres adapter
