//! The workload's parameters.

use std::time::Duration;

use acidtest_model::{Address, IdleOption, Span};
use serde::{Deserialize, Serialize};

use super::Sink;
use crate::{
    Parameter,
    workload::{idle, in_range},
};

/// How entries come into the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Each request authenticates in a database, and each entry is stored in a transaction of its own.
    Direct,
    /// Users are remembered; entries go into a queue, and collectors store many in a transaction.
    #[default]
    Queued,
}

impl Architecture {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Queued => "queued",
        }
    }
}

/// Where acknowledged entries wait to be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogQueue {
    /// In files: acknowledged when they are synced.
    #[default]
    Disk,
    /// In the gateway's memory.
    Memory,
    /// In a quorum queue of `RabbitMQ`: acknowledged when the broker has confirmed it.
    RabbitMq,
    /// In a stream of NATS, in files: acknowledged when `JetStream` has answered.
    Nats,
}

impl LogQueue {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::RabbitMq => "rabbitmq",
            Self::Nats => "nats",
        }
    }

    /// The store in which it is, if that is a broker.
    #[must_use]
    pub fn broker(self) -> Option<&'static str> {
        matches!(self, Self::RabbitMq | Self::Nats).then(|| self.name())
    }
}

/// The clients, their entries, and the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// How entries come into the database.
    pub architecture: Architecture,
    /// Where acknowledged entries wait.
    pub queue: LogQueue,
    /// Entries of each client.
    pub entries: u32,
    pub entries_per_request: u32,
    /// Length of an entry's message in bytes.
    pub entry_bytes: u32,
    /// The time over which clients come.
    pub ramp: Span,
    /// Whether all clients are connected from the beginning to the end, and share the rate of the ramp.
    pub hold_open: bool,
    /// How long a client waits for the answer to a request.
    pub give_up: Span,
    /// Whether a client tries again what was refused, until it gives up.
    pub retry: bool,
    /// Collectors, which store side by side. `None`: as many as the gateway has by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collectors: Option<u32>,
    /// The most entries of a collector's transaction.
    pub batch: u32,
    /// The most connections to the database.
    pub sink_connections: u32,
    /// A gateway that runs already. `None`: each trial has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The table of such a gateway. `None`: the one that gateways have by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

/// The table of a gateway that was given none.
const TABLE: &str = "acidtest_logs";

impl Default for Parameters {
    fn default() -> Self {
        Self {
            architecture: Architecture::default(),
            queue: LogQueue::default(),
            entries: 100,
            entries_per_request: 1,
            entry_bytes: 120,
            ramp: Span(Duration::from_secs(10)),
            hold_open: false,
            give_up: Span(Duration::from_secs(5)),
            retry: false,
            collectors: None,
            batch: 1000,
            sink_connections: 50,
            gateway: None,
            table: None,
        }
    }
}

/// The words of a command line.
#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn add(&mut self, option: &str, value: &dyn ToString) {
        self.0.extend([option.to_owned(), value.to_string()]);
    }

    fn store_in(&mut self, sink: &Sink) {
        self.add("--sink", &sink.address);
        self.add("--table", &sink.table);
    }

    fn collect(&mut self, parameters: &Parameters) {
        self.add("--batch", &parameters.batch);
        if let Some(collectors) = parameters.collectors {
            self.add("--collectors", &collectors);
        }
    }
}

/// Why what was settled at its start has no effect on a gateway that runs already.
const RUNNING_GATEWAY: &str = "a running gateway has the settings that it was started with (--gateway)";

/// Whether this is the name of a table, with or without that of its schema.
fn is_table(name: &str) -> bool {
    let is_plain = |part: &str| {
        let first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        part.bytes().next().is_some_and(first)
            && part.len() <= 60
            && part.bytes().all(|byte| first(byte) || byte.is_ascii_digit())
    };
    name.split('.').all(is_plain) && name.split('.').count() <= 2
}

/// The longest ramp.
const LONGEST: Duration = Duration::from_hours(24);

impl Parameters {
    /// Requests of each client.
    #[must_use]
    pub fn requests(&self) -> u64 {
        u64::from(self.entries / self.entries_per_request.max(1))
    }

    /// The store in whose server acknowledged entries wait, if it is a broker.
    pub(super) fn broker(&self) -> Option<&'static str> {
        self.queue.broker().filter(|_| self.architecture == Architecture::Queued)
    }

    /// The address of a gateway that runs already, if there is one.
    pub(super) fn running_gateway(&self) -> Option<Address> {
        let address = Address::parse(self.gateway.as_ref()?).ok()?;
        let has_login = address.user.is_some() || address.password.is_some();
        (address.scheme == "http" && address.path.is_empty() && !has_login).then_some(address)
    }

    /// The table of a gateway that runs already, if there is one.
    pub(super) fn others_table(&self) -> Option<&str> {
        self.gateway.as_ref().map(|_| self.table.as_deref().unwrap_or(TABLE))
    }

    /// The arguments of a gateway that stores in this sink, or leaves what it takes in the broker, if there is one.
    #[must_use]
    pub fn gateway(&self, sink: &Sink, broker: Option<&Address>) -> Vec<String> {
        let mut words = Words::default();
        words.add("--architecture", &self.architecture.name());
        // clients that stay connected may send seldom
        words.add("--idle-timeout", &"25h");
        match (self.architecture, broker) {
            (Architecture::Direct, _) => {
                words.store_in(sink);
                // the study's server looked its users up where it stored the entries
                if let Some(schema) = &sink.users {
                    words.add("--users", &sink.address);
                    words.add("--users-schema", schema);
                }
                words.add("--sink-connections", &self.sink_connections);
            }
            (Architecture::Queued, None) => {
                words.store_in(sink);
                words.add("--queue", &self.queue.name());
                words.collect(self);
            }
            (Architecture::Queued, Some(broker)) => {
                words.add("--queue", broker);
                words.add("--collectors", &0);
            }
        }
        words.0
    }

    /// The arguments of a collector that stores in this sink what is in the broker.
    #[must_use]
    pub fn collector(&self, sink: &Sink, broker: &Address) -> Vec<String> {
        let mut words = Words::default();
        words.add("--queue", broker);
        words.store_in(sink);
        words.collect(self);
        words.0
    }

    /// Checks that the parameters describe a possible workload.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let Self { entries, entries_per_request: together, .. } = self;
        in_range(&[
            ((1..=1_000_000).contains(entries), "entries", "between 1 and 1,000,000"),
            ((1..=10_000).contains(together), "entries_per_request", "between 1 and 10,000"),
            (
                together > &0 && entries.is_multiple_of(*together),
                "entries",
                "a multiple of entries_per_request: every request has as many",
            ),
            ((40..=60_000).contains(&self.entry_bytes), "entry_bytes", "between 40 and 60,000"),
            (
                // what is around a message, at most, and the gateway's own limit of a body
                u64::from(*together).saturating_mul(u64::from(self.entry_bytes) + 180) <= 2 << 20,
                "entries_per_request",
                "so that a request has at most 2 MiB: fewer, or a smaller entry_bytes",
            ),
            (!self.ramp.0.is_zero() && self.ramp.0 <= LONGEST, "ramp", "above 0, and at most a day"),
            (!self.give_up.0.is_zero() && self.give_up.0 <= LONGEST, "give_up", "above 0, and at most a day"),
            (
                self.collectors.is_none_or(|collectors| (1..=100).contains(&collectors)),
                "collectors",
                "between 1 and 100",
            ),
            ((1..=10_000).contains(&self.batch), "batch", "between 1 and 10,000"),
            ((1..=1000).contains(&self.sink_connections), "sink_connections", "between 1 and 1,000"),
            (
                self.gateway.is_none() || self.running_gateway().is_some(),
                "gateway",
                "the address of a gateway, http://HOST:PORT or https://HOST:PORT, without a path or a user",
            ),
            (
                self.table.as_deref().is_none_or(is_table),
                "table",
                "TABLE or SCHEMA.TABLE, of lower-case letters, digits and _",
            ),
        ])
    }

    /// How acknowledged entries get into the database, in words.
    pub(super) fn way(&self) -> &'static str {
        if self.gateway.is_some() {
            return "a gateway that runs already";
        }
        match (self.architecture, self.queue) {
            (Architecture::Direct, _) => "direct",
            (Architecture::Queued, LogQueue::Disk) => "queue on disk",
            (Architecture::Queued, LogQueue::Memory) => "queue in memory",
            (Architecture::Queued, LogQueue::RabbitMq) => "queue in RabbitMQ",
            (Architecture::Queued, LogQueue::Nats) => "queue in NATS",
        }
    }

    /// What of a plan has no effect, given the values of these parameters.
    pub(super) fn idle(&self) -> Vec<IdleOption> {
        let (is_running, is_queued) = (self.gateway.is_some(), self.architecture == Architecture::Queued);
        let no_queue =
            if is_running { RUNNING_GATEWAY } else { "with architecture direct there is no queue" };
        let no_connections = if is_running {
            RUNNING_GATEWAY
        } else {
            "with architecture queued each collector has one (--collectors)"
        };
        let has_queue = is_queued && !is_running;
        let lasts = "the measured part lasts from the arrival of the first client until the last has left (--ramp, \
                     --entries)";
        idle(&[
            ("architecture", !is_running, RUNNING_GATEWAY),
            ("queue", has_queue, no_queue),
            ("collectors", has_queue, no_queue),
            ("batch", has_queue, no_queue),
            ("sink_connections", !is_queued && !is_running, no_connections),
            ("table", is_running, "a gateway that the run starts has its own table (--gateway)"),
            ("max_retries", false, "no entry conflicts with another"),
            ("timeout", false, "--give-up says how long a client waits for an answer"),
            ("duty", false, "--clients, --entries and --ramp set how much is sent in which time"),
            ("duration", false, lasts),
            ("ops", false, lasts),
            ("warmup", false, "clients come and go: the first are the warm-up of the others"),
            ("rates", false, "--clients, --entries and --ramp set how much is sent in which time"),
            ("arrivals", false, "clients arrive evenly spaced (--ramp)"),
        ])
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        vec![
            Parameter::new(
                "architecture",
                defaults.architecture.name(),
                "how entries get into the database: direct (each in a transaction of its own), queued (collectors store \
                 many together)",
            ).of(["direct", "queued"]),
            Parameter::new(
                "queue",
                defaults.queue.name(),
                "where acknowledged entries wait: disk (synced), memory (lost with the gateway), rabbitmq (synced by a quorum \
                 queue), nats (written to a stream, synced later)",
            ).of(["disk", "memory", "rabbitmq", "nats"]),
            Parameter::new("entries", defaults.entries, "entries that each client sends"),
            Parameter::new("entries_per_request", defaults.entries_per_request, "entries that a client sends in one \
                                                                                 request"),
            Parameter::new("entry_bytes", defaults.entry_bytes, "bytes of an entry's message, 10 of them its checksum"),
            Parameter::new("ramp", defaults.ramp, "time over which clients arrive (10s, 5m)"),
            Parameter::new(
                "hold_open",
                defaults.hold_open,
                "whether all clients stay connected from start to end, and send evenly spaced over the ramp",
            ).of(crate::TRUTHS),
            Parameter::new(
                "give_up",
                defaults.give_up,
                "time after which a client gives up a request and sends the next one",
            ),
            Parameter::new(
                "retry",
                defaults.retry,
                "whether a client retries what a full queue refused, until it gives up",
            ).of(crate::TRUTHS),
            Parameter::new("collectors", "2, or 1 for SQLite", "number of collectors"),
            Parameter::new("batch", defaults.batch, "most entries of a collector's transaction"),
            Parameter::new(
                "sink_connections",
                defaults.sink_connections,
                "most connections to the database with architecture direct",
            ),
            Parameter::new(
                "gateway",
                "one started for each trial",
                "address of a running gateway that stores in what --store names, http://HOST:PORT or https://HOST:PORT; a \
                 user's token comes from ACIDTEST_TOKEN",
            ),
            Parameter::new("table", TABLE, "the table of that gateway, TABLE or SCHEMA.TABLE"),
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
        let whole = Parameters {
            collectors: Some(7),
            gateway: Some("http://logs.example:1731".to_owned()),
            table: Some("ours.logs".to_owned()),
            ..Parameters::default()
        };
        let values = written(&whole);
        assert_eq!(described.len(), values.len());
        for Parameter { name, default, .. } in described {
            let Some(value) = values.get(name) else { panic!("{name} is no parameter") };
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_chosen = ["collectors", "gateway", "table"].contains(&name);
            assert!(is_chosen || default == shown, "{name}: {default} is described, {shown} is");
        }
        assert_eq!(read::<Parameters>(&Values::new()), Ok(Parameters::default()));
    }

    #[test]
    fn what_cannot_be_says_so() {
        let wrong = |parameters: Parameters| parameters.check().unwrap_err();
        let defaults = Parameters::default;
        assert_eq!(defaults().check(), Ok(()));
        assert!(wrong(Parameters { entries_per_request: 3, ..defaults() }).contains("a multiple"));
        assert!(wrong(Parameters { entries_per_request: 0, ..defaults() }).contains("entries_per_request"));
        assert!(wrong(Parameters { ramp: Span(Duration::ZERO), ..defaults() }).contains("ramp"));
        let large = Parameters { entries: 1000, entries_per_request: 1000, entry_bytes: 2000, ..defaults() };
        assert!(wrong(large).contains("at most 2 MiB"));
        let huge = Parameters { entries_per_request: u32::MAX, entry_bytes: u32::MAX, ..defaults() };
        assert!(wrong(huge).contains("between"));
        for url in [
            "https://a:1/logs",
            "a:1",
            "http://a:1/logs",
            "http://me@a:1",
            "http://:word@a:1",
            "postgres://a",
        ] {
            let gateway = Some(url.to_owned());
            assert!(wrong(Parameters { gateway, ..defaults() }).contains("http://HOST:PORT"), "{url}");
        }
        for name in ["", "a.b.c", "a b", "\"a\"", "1a", "a."] {
            let table = Some(name.to_owned());
            assert!(wrong(Parameters { table, ..defaults() }).contains("SCHEMA.TABLE"), "{name}");
        }
    }

    #[test]
    fn a_gateway_gets_what_its_architecture_has() {
        let sink = Sink { address: Address::file("sqlite", "/x/y"), table: "logs_1".to_owned(), users: None };
        let words = |parameters: Parameters| parameters.gateway(&sink, None).join(" ");
        let queued = Parameters { queue: LogQueue::Memory, collectors: Some(3), ..Parameters::default() };
        assert_eq!(
            words(queued),
            "--architecture queued --idle-timeout 25h --sink sqlite:/x/y --table logs_1 --queue memory --batch 1000 --collectors 3"
        );
        let direct = Parameters { architecture: Architecture::Direct, ..Parameters::default() };
        assert_eq!(
            words(direct),
            "--architecture direct --idle-timeout 25h --sink sqlite:/x/y --table logs_1 --sink-connections 50"
        );
        let sink = Sink { users: Some("acidtest".to_owned()), ..sink };
        let with_users = Parameters { architecture: Architecture::Direct, ..Parameters::default() };
        let said = with_users.gateway(&sink, None).join(" ");
        assert!(said.contains("--users sqlite:/x/y --users-schema acidtest --sink-connections 50"), "{said}");
        let in_nats = Parameters { queue: LogQueue::Nats, collectors: Some(3), ..Parameters::default() };
        let nats = Address::loopback("nats", None, 4222, "");
        assert_eq!(
            in_nats.gateway(&sink, Some(&nats)).join(" "),
            "--architecture queued --idle-timeout 25h --queue nats://127.0.0.1:4222 --collectors 0"
        );
        assert_eq!(
            in_nats.collector(&sink, &nats).join(" "),
            "--queue nats://127.0.0.1:4222 --sink sqlite:/x/y --table logs_1 --batch 1000 --collectors 3"
        );
    }
}
