//! What is answered over HTTP, and to whom.
//!
//! - [`guard`]: whose requests are answered at all
//! - [`routes`]: what can be asked for
//! - [`body`]: bodies, read strictly
//! - [`problem`]: what is wrong with a request
//! - [`openapi`]: the description of all this, made from the code
//! - [`metrics`]: what is counted

mod body;
mod guard;
mod metrics;
mod openapi;
mod problem;
mod routes;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub(crate) use guard::Guard;
pub use guard::Token;
pub(crate) use routes::router;

use crate::{Program, runs::Runs};
use metrics::Metrics;

/// What every answer may need.
#[derive(Clone)]
pub(crate) struct App {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) runs: Arc<Runs>,
    program: Arc<dyn Program>,
    guard: Guard,
    metrics: Arc<Metrics>,
    stores: routes::Looked,
    /// Results that are read or drawn at once: each may need some hundred megabytes.
    heavy: Arc<Semaphore>,
    /// Plans that are checked at once.
    checks: Arc<Semaphore>,
}

/// Results that may be read or drawn at once, and plans that may be checked.
const HEAVY: usize = 2;

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl App {
    pub(crate) fn new(runs: Arc<Runs>, program: Arc<dyn Program>, guard: Guard) -> Self {
        let (metrics, stores, heavy) =
            (Arc::default(), routes::Looked::default(), Arc::new(Semaphore::new(HEAVY)));
        let checks = Arc::new(Semaphore::new(HEAVY));
        Self { inner: Arc::new(Inner { runs, program, guard, metrics, stores, heavy, checks }) }
    }
}
