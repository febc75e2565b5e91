//! Metrics for Prometheus, in the `OpenMetrics` text format.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::runs::State;

/// What is counted of requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Answers by the first digit of their status, from 1.
    answers: [AtomicU64; 5],
    refused: AtomicU64,
    streams: AtomicU64,
}

/// A reader of events that is counted as long as it lives.
#[derive(Debug)]
pub(crate) struct Stream(std::sync::Arc<Metrics>);

impl Metrics {
    pub(crate) fn answered(&self, status: u16) {
        if let Some(count) =
            usize::from(status / 100).checked_sub(1).and_then(|class| self.answers.get(class))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reader of events, unless there are as many as there may be.
    pub(crate) fn stream(self: &std::sync::Arc<Self>, most: u64) -> Option<Stream> {
        let stream = Stream(std::sync::Arc::clone(self));
        (self.streams.fetch_add(1, Ordering::Relaxed) < most).then_some(stream)
    }

    /// The text, given the state of every run.
    pub(crate) fn text(&self, states: &[State]) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("acidtest_serve");
        let runs = Family::<[(&str, &str); 1], Gauge>::default();
        for state in State::ALL {
            let count = states.iter().filter(|other| **other == state).count();
            runs.get_or_create(&[("state", state.name())]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        registry.register("runs", "Runs by their state", runs);
        let answers = Family::<[(&str, &str); 1], Counter>::default();
        for (count, status) in self.answers.iter().zip(["1xx", "2xx", "3xx", "4xx", "5xx"]) {
            answers.get_or_create(&[("status", status)]).inc_by(count.load(Ordering::Relaxed));
        }
        registry.register("answers", "Answers to requests, by their status", answers);
        let refused: Counter = Counter::default();
        refused.inc_by(self.refused.load(Ordering::Relaxed));
        let said = "Requests that were refused for their host, their origin or their token";
        registry.register("refused", said, refused);
        let streams: Gauge = Gauge::default();
        streams.set(i64::try_from(self.streams.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
        registry.register("event_streams", "Readers of events", streams);
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
