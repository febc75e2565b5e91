//! `acidtest serve`, as those use it who ask it over HTTP: with curl, from a page, or out of malice.

#![allow(clippy::unwrap_used)] // a test's set-up may panic

mod browser;
#[path = "../common/certificate.rs"]
mod certificate;
#[path = "../common/mod.rs"]
mod common;
mod form;
mod hostile;
#[path = "../common/http.rs"]
mod http;
mod interface;
mod pages;
mod runs;
mod safety;
mod server;
mod tls;
mod trigger;
