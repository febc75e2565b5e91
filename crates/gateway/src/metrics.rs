//! What the gateway counts, for Prometheus and for its page.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::depth::Depth;

/// A stage on the way of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From a connection's being accepted to its being served.
    Accept,
    /// Finding out who sends: in memory, or in the database of users.
    Authenticate,
    /// Reading and checking a body, and writing its entries as a record.
    Validate,
    /// Waiting: for the committer of the queue or the publisher to a broker, or, in the direct architecture, for a
    /// connection to the sink.
    Queue,
    /// Writing and syncing a group of records; with a broker, until it has confirmed them.
    Sync,
    /// Reading a batch back.
    Collect,
    /// Storing a batch; in the direct architecture, an entry.
    Commit,
}

impl Stage {
    pub(crate) const ALL: [Self; 7] = [
        Self::Accept,
        Self::Authenticate,
        Self::Validate,
        Self::Queue,
        Self::Sync,
        Self::Collect,
        Self::Commit,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Authenticate => "authenticate",
            Self::Validate => "validate",
            Self::Queue => "queue",
            Self::Sync => "sync",
            Self::Collect => "collect",
            Self::Commit => "commit",
        }
    }
}

/// What became of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It came in a request that was read.
    Received,
    /// Its client was told that it is kept.
    Acknowledged,
    /// It was not taken, because something is wrong with it.
    Invalid,
    /// It was not taken, because its id is known with other content.
    Conflicting,
    /// It is in the database.
    Stored,
    /// It was in the database before.
    Repeated,
    /// It was acknowledged, cannot be stored, and is kept with the refused entries.
    Refused,
}

const FATES: [(Fate, &str, &str); 7] = [
    (Fate::Received, "received", "Entries in requests that were read"),
    (Fate::Acknowledged, "acknowledged", "Entries that were acknowledged"),
    (Fate::Invalid, "invalid", "Entries that were not taken because of a field"),
    (
        Fate::Conflicting,
        "conflicting",
        "Entries that were not taken because their ids are known with other content",
    ),
    (Fate::Stored, "stored", "Entries that are in the database, and were not before"),
    (Fate::Repeated, "repeated", "Entries that were in the database already: suppressed"),
    (Fate::Refused, "refused", "Entries that were acknowledged and are kept in the table of refused entries"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStage {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStatus {
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SetUp {
    architecture: &'static str,
    queue: &'static str,
    /// Another one after each start.
    instance: String,
}

/// How often a stage was passed, and how long that took in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    pub(crate) count: u64,
    pub(crate) took: Duration,
}

#[derive(Debug)]
struct Meter {
    seconds: Histogram,
    count: AtomicU64,
    nanos: AtomicU64,
}

/// All counts since the gateway was started.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    entries: [Counter; FATES.len()],
    stages: [Meter; Stage::ALL.len()],
    requests: Family<OfStatus, Counter>,
    setup: Family<SetUp, Gauge>,
    sync_entries: Meter,
    batch_entries: Meter,
    pub(crate) connections: Gauge,
    depth: [Gauge; 4],
    oldest: Gauge<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("acidtest_gateway");
        let entries = FATES.map(|(_, name, help)| {
            let counter = Counter::default();
            registry.register(format!("entries_{name}"), help, counter.clone());
            counter
        });
        let durations =
            [1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 30.0];
        let family: Family<OfStage, Histogram, _> =
            Family::new_with_constructor(move || Histogram::new(durations));
        registry.register_with_unit("stage", "The time that a stage took", Unit::Seconds, family.clone());
        let stages = Stage::ALL
            .map(|stage| Meter::new(family.get_or_create(&OfStage { stage: stage.name() }).clone()));
        let sizes = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0];
        let [sync_entries, batch_entries] = [
            ("sync_entries", "Entries that were synced together"),
            ("batch_entries", "Entries that were stored in one transaction"),
        ]
        .map(|(name, help)| {
            let histogram = Histogram::new(sizes);
            registry.register(name, help, histogram.clone());
            Meter::new(histogram)
        });
        let requests = Family::default();
        registry.register("requests", "Requests by the status of their answers", requests.clone());
        let setup = Family::default();
        let help =
            "1: how entries come into the database, where they wait, and which start of which gateway it is";
        registry.register("info", help, setup.clone());
        let connections = Gauge::default();
        registry.register("connections", "Connections that are open", connections.clone());
        let depth = [
            (
                "queue_entries",
                "Entries that were acknowledged and are not yet stored; with a broker, those in hand here",
            ),
            ("queue_bytes", "Bytes that the queue takes; -1 if a broker does not say it"),
            ("queue_limit_bytes", "Bytes that the queue may take at most"),
            (
                "queue_messages",
                "Messages of entries that wait in a broker; -1 if the queue is in none, or the broker cannot be asked",
            ),
        ]
        .map(|(name, help)| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        });
        let oldest = Gauge::default();
        registry.register_with_unit(
            "queue_oldest",
            "The age of the oldest entry that is not yet stored; with a broker of those in hand here, -1 if all wait there",
            Unit::Seconds,
            oldest.clone(),
        );
        Self {
            registry,
            entries,
            stages,
            requests,
            setup,
            sync_entries,
            batch_entries,
            connections,
            depth,
            oldest,
        }
    }

    pub(crate) fn set_up_as(&self, architecture: &'static str, queue: &'static str) {
        let instance = format!("{:016x}", rand::random::<u64>());
        self.setup.get_or_create(&SetUp { architecture, queue, instance }).set(1);
    }

    pub(crate) fn count(&self, fate: Fate, entries: u64) {
        self.entries[fate as usize].inc_by(entries);
    }

    pub(crate) fn counted(&self, fate: Fate) -> u64 {
        self.entries[fate as usize].get()
    }

    pub(crate) fn request(&self, status: u16) {
        self.requests.get_or_create(&OfStatus { status }).inc();
    }

    pub(crate) fn stage(&self, stage: Stage, took: Duration) {
        self.stages[stage as usize].note(took.as_secs_f64(), took);
    }

    pub(crate) fn passed(&self, stage: Stage) -> Passed {
        self.stages[stage as usize].passed()
    }

    /// So many entries were synced together.
    pub(crate) fn synced(&self, entries: u64) {
        self.sync_entries.note(entries as f64, Duration::from_nanos(entries));
    }

    /// So many entries were stored in one transaction.
    pub(crate) fn batch(&self, entries: u64) {
        self.batch_entries.note(entries as f64, Duration::from_nanos(entries));
    }

    /// Groups that were synced and batches that were stored: how many, and how many entries.
    pub(crate) fn groups(&self) -> [(u64, u64); 2] {
        [&self.sync_entries, &self.batch_entries]
            .map(|meter| (meter.count.load(Relaxed), meter.nanos.load(Relaxed)))
    }

    /// All of it, in the text format of Prometheus.
    pub(crate) fn text(&self, depth: Depth) -> String {
        let Depth { entries, messages, is_stale, bytes, most_bytes, oldest } = depth;
        let told = messages.filter(|_| !is_stale);
        for (gauge, value) in self.depth.iter().zip([Some(entries), bytes, Some(most_bytes), told]) {
            gauge.set(value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX)));
        }
        let nobody_knows = oldest.is_none() && messages.is_some_and(|messages| messages > 0);
        self.oldest.set(if nobody_knows { -1.0 } else { oldest.unwrap_or_default().as_secs_f64() });
        let mut text = String::new();
        // writing into a string cannot fail
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Meter {
    fn new(seconds: Histogram) -> Self {
        Self { seconds, count: AtomicU64::new(0), nanos: AtomicU64::new(0) }
    }

    fn note(&self, value: f64, sum: Duration) {
        self.seconds.observe(value);
        self.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn passed(&self) -> Passed {
        Passed { count: self.count.load(Relaxed), took: Duration::from_nanos(self.nanos.load(Relaxed)) }
    }
}
