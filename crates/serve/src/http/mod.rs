//! What is answered over HTTP, and to whom.
//!
//! - [`guard`]: whose requests are answered at all
//! - [`routes`]: what can be asked for
//! - [`about`]: what is told about runs, stores and workloads
//! - [`body`]: bodies, read strictly
//! - [`problem`]: what is wrong with a request
//! - [`openapi`]: the description of all this, made from the code
//! - [`metrics`]: what is counted

mod about;
mod body;
mod guard;
mod metrics;
mod openapi;
mod problem;
mod routes;

pub(crate) use body::whole;
pub(crate) use guard::Guard;
pub use guard::Token;
pub(crate) use metrics::Metrics;
pub(crate) use problem::Problem;
pub(crate) use routes::{Which, router};
