//! The redis adapter
