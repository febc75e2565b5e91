//! HTTP: what is answered, and what is told of connections.

mod answer;
mod body;
mod page;
mod routes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use acidtest_web::{Beyond, Event, Handler};
use hyper::{Request, Response, body::Incoming};
use tokio::sync::{Semaphore, watch};

use self::{answer::Content, body::Bodies};
use crate::{
    Ids, Partial,
    collector::Collectors,
    direct::Direct,
    limit::Seconds,
    metrics::{Metrics, Stage},
    queue::Queue,
    recent::Recent,
    sparingly::Sparingly,
    users::Authenticator,
};

/// The most pages that watch at once.
const WATCHERS: usize = 16;

/// What a connection beyond the limit is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 63\r\n\r\n\
    {\"title\":\"the gateway has too many connections\",\"status\":503}\r\n";
/// How long requests may take to end at a shutdown.
const ENDING: Duration = Duration::from_secs(5);
/// Bytes of the longest head of a request.
const HEAD: usize = 16 << 10;

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
    /// And of connections that had to leave.
    leaving: Sparingly,
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

impl From<Limits> for acidtest_web::Limits {
    fn from(Limits { connections, head_time, idle_time, .. }: Limits) -> Self {
        Self {
            connections,
            beyond: Beyond::Refuse(TOO_MANY),
            head: HEAD,
            head_time,
            idle_time,
            deaf_time: idle_time,
            ending_time: ENDING,
        }
    }
}

impl Handler for Service {
    type Body = Content;

    async fn answer(self: &Arc<Self>, peer: SocketAddr, request: Request<Incoming>) -> Response<Content> {
        routes::answer(self, peer, request).await
    }

    fn note(&self, event: Event<'_>) {
        match event {
            Event::Accepted => drop(self.metrics.connections.inc()),
            Event::Served(after) => self.metrics.stage(Stage::Accept, after),
            Event::Closed => drop(self.metrics.connections.dec()),
            Event::GivenUp => {
                if let Some(untold) = self.leaving.tell() {
                    tracing::warn!(
                        most = self.limits.connections,
                        untold_connections = untold,
                        "all connections are taken: the one that was idle for longest is closed for a new one"
                    );
                }
            }
            Event::NotAccepted(error) => tracing::warn!(%error, "a connection cannot be accepted"),
            // pages are told of the present second, and of no more
            Event::Ending => self.watchers.close(),
        }
    }
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
        let [refusals, bad_tokens, leaving] = [(); 3].map(|()| Sparingly::default());
        Self {
            authenticator,
            metrics,
            keeper,
            seconds,
            bodies,
            watchers,
            refusals,
            bad_tokens,
            leaving,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_too_many_is_as_long_as_it_says() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{} bytes", body.len());
    }
}
