//! `acidtest serve`, as those use it who ask it over HTTP: with curl, from a page, or out of malice.

mod browser;
mod form;
mod hostile;
mod interface;
mod pages;
mod runs;
mod safety;
mod server;
mod tls;
mod trigger;
