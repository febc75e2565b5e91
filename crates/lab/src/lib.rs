//! Starts, stops and clears away private servers from installed binaries
