//! HTTP as acidtest's own services serve it, the gateway and `acidtest serve`: what both do alike.
//!
//! - [`serve`]: accepts connections, within [`Limits`], and has a [`Handler`] answer their requests
//! - [`read`]: a request's body, within its limits of bytes and time
//! - [`Problem`]: what is wrong with a request
//!
//! Invariants: it knows no path and no user. Whatever a client does, or does not do, has a bound of time. Nothing is logged
//! here: a handler is told what becomes of connections.

mod activity;
mod body;
mod connection;
mod places;
mod problem;
mod server;

pub use self::{
    body::{Unread, read},
    problem::Problem,
    server::{Beyond, Event, Handler, Limits, Listener, serve},
};
