//! HTTP: connections with their limits, and what is answered.

mod answer;
mod body;
mod connection;
mod page;
mod routes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, watch};

use self::body::Bodies;
pub(crate) use self::connection::{Listener, accept};
use crate::{
    Ids, Partial, collector::Collectors, direct::Direct, limit::Seconds, metrics::Metrics, queue::Queue,
    recent::Recent, sparingly::Sparingly, users::Authenticator,
};

/// The most pages that watch at once.
const WATCHERS: usize = 16;

/// What a request needs.
#[derive(Debug)]
pub(crate) struct Service {
    /// Who may send; none for a collector, to which nobody sends.
    pub(crate) authenticator: Option<Authenticator>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keeper: Keeper,
    pub(crate) seconds: watch::Receiver<Arc<Seconds>>,
    /// Bytes of bodies that are being read.
    bodies: Bodies,
    watchers: Arc<Semaphore>,
    /// What is told in the log of requests with entries that were refused.
    refusals: Sparingly,
    /// And of those with a token that is not good.
    bad_tokens: Sparingly,
    pub(crate) limits: Limits,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What its addresses begin with: `http` or `https`.
    pub(crate) scheme: &'static str,
    /// What it runs with, in words for its page.
    pub(crate) about: Vec<(&'static str, String)>,
}

/// Who keeps the entries of a request.
#[derive(Debug)]
pub(crate) enum Keeper {
    Direct(Direct),
    /// Collectors are there, too, unless they are elsewhere.
    Queued {
        queue: Arc<Queue>,
        recent: Recent,
        collectors: Option<Arc<Collectors>>,
    },
}

/// What a connection and a request may take, and what is taken of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) body: usize,
    pub(crate) head_time: Duration,
    pub(crate) body_time: Duration,
    pub(crate) idle_time: Duration,
    pub(crate) partial: Partial,
    pub(crate) ids: Ids,
}

impl Service {
    pub(crate) fn new(
        authenticator: Option<Authenticator>,
        metrics: Arc<Metrics>,
        keeper: Keeper,
        seconds: watch::Receiver<Arc<Seconds>>,
        limits: Limits,
        (scheme, address): (&'static str, SocketAddr),
        about: Vec<(&'static str, String)>,
    ) -> Self {
        let (bodies, watchers) = (Bodies::default(), Arc::new(Semaphore::new(WATCHERS)));
        let (refusals, bad_tokens) = (Sparingly::default(), Sparingly::default());
        Self {
            authenticator,
            metrics,
            keeper,
            seconds,
            bodies,
            watchers,
            refusals,
            bad_tokens,
            limits,
            address,
            scheme,
            about,
        }
    }

    /// Why entries are not taken at present, if they are not; of a collector, why none are stored.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.keeper.trouble().or_else(|| match (&self.authenticator, &self.keeper) {
            (Some(authenticator), _) => authenticator.trouble(),
            (None, Keeper::Queued { collectors: Some(collectors), .. }) => {
                collectors.trouble().filter(|trouble| trouble.is_all).map(|trouble| trouble.why)
            }
            (None, _) => None,
        })
    }
}
