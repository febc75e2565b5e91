//! The commands, one file each.

pub(crate) mod lab;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod show;
pub(crate) mod stores;
pub(crate) mod workloads;
