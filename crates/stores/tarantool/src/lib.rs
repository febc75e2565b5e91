//! The tarantool adapter
