//! The workload's parameters.

use acidtest_model::IdleOption;
use serde::{Deserialize, Serialize};

use super::{Ack, Consume, Delivery, QueueKind, message::HEADER};
use crate::{
    Parameter,
    workload::{idle, in_range},
};

/// Which clients take part in the measured part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Producers only; what they leave is consumed by the audit.
    Publish,
    /// Consumers only: they drain the backlog.
    Consume,
    /// Producers and consumers at the same time.
    #[default]
    Both,
}

/// The messages, the clients and the delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Which clients take part in the measured part.
    pub phase: Phase,
    /// Length of a message in bytes, at least [`HEADER`].
    pub message_bytes: u32,
    /// Clients that publish.
    pub producers: u32,
    /// Clients that consume.
    pub consumers: u32,
    /// When a published message counts as published.
    pub ack: Ack,
    /// When a consumed message is gone.
    pub consume: Consume,
    /// Messages in a transaction; also how many messages a consumer acknowledges at once.
    pub batch: u32,
    /// Publishes that a producer may have unanswered at a time.
    pub in_flight: u32,
    /// Messages that a consumer may hold unacknowledged. `None`: [`PREFETCH`], or the batch where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u32>,
    /// Messages that are in the queue before any client starts. `None`: [`BACKLOG`] where only consumers take part,
    /// else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
    /// Whether messages are to survive the end of the server's process.
    pub persistent: bool,
    pub queue: QueueKind,
    /// Copies of the queue, on different servers.
    pub replicas: u32,
    /// Whether the store is to drop a message whose id it has seen.
    pub deduplicate: bool,
}

/// Default for the messages that a consumer may hold unacknowledged.
pub const PREFETCH: u32 = 100;

/// Default for the messages that are loaded for consumers.
pub const BACKLOG: u64 = 50_000;

impl Default for Parameters {
    fn default() -> Self {
        Self {
            phase: Phase::Both,
            message_bytes: 128,
            producers: 4,
            consumers: 4,
            ack: Ack::Confirm,
            consume: Consume::Ack,
            batch: 1,
            in_flight: 1,
            prefetch: None,
            backlog: None,
            persistent: true,
            queue: QueueKind::Default,
            replicas: 1,
            deduplicate: false,
        }
    }
}

impl Parameters {
    /// Messages that are loaded before the clients start, with the default filled in.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        self.backlog.unwrap_or(if self.phase == Phase::Consume { BACKLOG } else { 0 })
    }

    /// Messages that a consumer may hold unacknowledged, with the default filled in.
    #[must_use]
    pub fn prefetch(&self) -> u32 {
        self.prefetch.unwrap_or(PREFETCH.max(self.batch))
    }

    /// The delivery that they ask of a store. Settings of clients that do not take part in the phase have their
    /// defaults.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        let publishes = self.phase != Phase::Consume;
        let consumes = self.phase != Phase::Publish;
        Delivery {
            ack: if publishes { self.ack } else { Ack::default() },
            consume: if consumes { self.consume } else { Consume::default() },
            persistent: self.persistent,
            queue: self.queue,
            replicas: self.replicas,
            deduplicate: self.deduplicate,
            batch: self.batch,
            in_flight: self.in_flight,
            prefetch: self.prefetch(),
            producers: if publishes { self.producers } else { 0 },
            consumers: if consumes { self.consumers } else { 0 },
        }
    }

    /// Checks that the parameters describe a possible workload.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let consumes = self.phase != Phase::Publish;
        let least = u32::try_from(HEADER).unwrap_or(u32::MAX);
        in_range(&[
            (
                (least..=1 << 28).contains(&self.message_bytes),
                "message_bytes",
                "between 24 (an id, a time and a checksum) and 268,435,456",
            ),
            ((1..=10_000).contains(&self.producers), "producers", "between 1 and 10,000"),
            ((1..=10_000).contains(&self.consumers), "consumers", "between 1 and 10,000"),
            ((1..=10_000).contains(&self.batch), "batch", "between 1 and 10,000"),
            ((1..=10_000).contains(&self.in_flight), "in_flight", "between 1 and 10,000"),
            ((1..=10_000).contains(&self.prefetch()), "prefetch", "between 1 and 10,000"),
            (
                u64::from(self.delivery().unanswered()) * u64::from(self.message_bytes) <= 1 << 30,
                "message_bytes",
                "at most 1 GiB for all messages that a producer keeps, in a batch or in flight",
            ),
            (
                !consumes || self.consume == Consume::Auto || self.batch <= self.prefetch(),
                "batch",
                "at most prefetch: a consumer that may not hold a whole batch never acknowledges one",
            ),
            (
                (1..=100_000_000).contains(&self.backlog()) || self.phase != Phase::Consume,
                "backlog",
                "between 1 and 100,000,000 with phase consume",
            ),
            (self.backlog() <= 100_000_000, "backlog", "at most 100,000,000"),
            ((1..=9).contains(&self.replicas), "replicas", "between 1 and 9"),
        ])
    }

    /// The parameters that have no effect, given the values of the others.
    pub(super) fn idle(&self) -> Vec<IdleOption> {
        let publishes = self.phase != Phase::Consume;
        let consumes = self.phase != Phase::Publish;
        let (nobody_publishes, nobody_consumes) =
            ("nobody publishes in phase consume", "nobody consumes in phase publish");
        let together =
            (publishes && self.ack == Ack::Transaction) || (consumes && self.consume != Consume::Auto);
        idle(&[
            ("producers", publishes, nobody_publishes),
            ("ack", publishes, nobody_publishes),
            ("in_flight", publishes, nobody_publishes),
            ("deduplicate", publishes, nobody_publishes),
            ("in_flight", self.ack != Ack::Transaction, "a transaction has its batch in flight"),
            ("consumers", consumes, nobody_consumes),
            ("consume", consumes, nobody_consumes),
            ("prefetch", consumes, nobody_consumes),
            (
                "max_retries",
                consumes,
                "a conflicting publish is not retried: others may be in flight after it",
            ),
            (
                "duty",
                !publishes || self.ack != Ack::None,
                "unconfirmed messages are written as fast as the connection takes them: a share of that time means nothing",
            ),
            ("batch", together, "there is nothing to publish in a transaction and nothing to acknowledge"),
        ])
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        vec![
            Parameter::new(
                "phase",
                "both",
                "who works in the measured part: publish (producers only), consume (consumers drain the backlog), both",
            ).of(["publish", "consume", "both"]),
            Parameter::new(
                "message_bytes",
                defaults.message_bytes,
                "bytes of a message, 24 of them its id, time and checksum",
            ),
            Parameter::new("producers", defaults.producers, "clients that publish"),
            Parameter::new("consumers", defaults.consumers, "clients that consume"),
            Parameter::new(
                "ack",
                defaults.ack.name(),
                "when a message counts as published: none (sent), confirm (answered), transaction (committed)",
            ).of(Ack::ALL.map(Ack::name)),
            Parameter::new(
                "consume",
                defaults.consume.name(),
                "when a message counts as consumed: auto (delivered), ack (acknowledged), transaction (committed)",
            ).of(Consume::ALL.map(Consume::name)),
            Parameter::new(
                "batch",
                defaults.batch,
                "messages per transaction; messages that a consumer acknowledges at once",
            ),
            Parameter::new("in_flight", defaults.in_flight, "publishes that a producer may have unanswered"),
            Parameter::new(
                "prefetch",
                format!("{PREFETCH}, or batch if that is more"),
                "messages that a consumer may hold unacknowledged",
            ),
            Parameter::new(
                "backlog",
                format!("{BACKLOG} with phase consume, else 0"),
                "messages in the queue before the clients start",
            ),
            Parameter::new(
                "persistent",
                defaults.persistent,
                "whether messages must outlive the server's process (RabbitMQ: persistent in a durable queue; NATS: a \
                 stream in files)",
            ).of(crate::TRUTHS),
            Parameter::new("queue", "default", "how RabbitMQ keeps the queue: default (classic), classic, quorum").of(["default", "classic", "quorum"]),
            Parameter::new("replicas", defaults.replicas, "copies of the queue on different servers (NATS)"),
            Parameter::new(
                "deduplicate",
                defaults.deduplicate,
                "whether the store drops a message whose id it already has (NATS)",
            ).of(crate::TRUTHS),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Values, read, written};

    #[test]
    fn every_parameter_is_described_and_its_default_reads_back() {
        let described = Parameters::described();
        let whole = Parameters { backlog: Some(7), prefetch: Some(7), ..Parameters::default() };
        let values = written(&whole);
        assert_eq!(described.len(), values.len());
        for Parameter { name, default, .. } in described {
            let Some(value) = values.get(name) else { panic!("{name} is no parameter") };
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert!(
                ["backlog", "prefetch"].contains(&name) || default == shown,
                "{name}: {default} is described, {shown} is"
            );
        }
        assert_eq!(read::<Parameters>(&Values::new()), Ok(Parameters::default()));
    }

    #[test]
    fn what_cannot_be_says_so() {
        let wrong = |parameters: Parameters| parameters.check().unwrap_err();
        let defaults = Parameters::default;
        assert!(wrong(Parameters { message_bytes: 23, ..defaults() }).contains("message_bytes"));
        let ahead = Parameters { batch: 101, prefetch: Some(100), ..defaults() };
        assert!(wrong(ahead.clone()).contains("batch"));
        assert_eq!(Parameters { phase: Phase::Publish, ..ahead.clone() }.check(), Ok(()));
        assert_eq!(Parameters { prefetch: None, ..ahead }.delivery().prefetch, 101);
        let none = Parameters { backlog: Some(0), phase: Phase::Consume, ..defaults() };
        assert!(wrong(none).contains("backlog"));
        let large = Parameters { message_bytes: 1 << 28, ..defaults() };
        assert_eq!(large.check(), Ok(()));
        assert!(wrong(Parameters { in_flight: 5, ..large.clone() }).contains("at most 1 GiB"));
        let batches = Parameters { batch: 5, ack: Ack::Transaction, ..large };
        assert!(wrong(batches).contains("at most 1 GiB"));
        assert_eq!(Parameters { phase: Phase::Consume, ..defaults() }.backlog(), BACKLOG);
        assert_eq!(defaults().backlog(), 0);
    }
}
