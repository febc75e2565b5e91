//! The commands, one file each.

pub(crate) mod anomalies;
pub(crate) mod compare;
#[cfg(feature = "gateway")]
pub(crate) mod gateway;
pub(crate) mod host;
pub(crate) mod lab;
pub(crate) mod manual;
pub(crate) mod report;
pub(crate) mod run;
#[cfg(feature = "serve")]
pub(crate) mod runner;
pub(crate) mod selftest;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod stores;
pub(crate) mod worker;
pub(crate) mod workloads;
