//! The arguments of `acidtest gateway` and `acidtest collector`.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use acidtest_model::Span;
use clap::{Args, Subcommand, ValueEnum};

use crate::certificate_arguments::ListenCertificate;

const EXAMPLES: &str = "\
Examples:
  acidtest gateway user add ann
      add a user; the token is printed once
  acidtest gateway
      take entries at 127.0.0.1:1731, in a queue on disk, and store them in SQLite
  curl http://127.0.0.1:1731/logs -H \"Authorization: Bearer $TOKEN\" --json '{\"level\":\"info\",
      \"timestamp\":\"2026-11-23T10:15:00Z\",\"application\":\"shop\",\"message\":\"started\"}'
      send an entry; http://127.0.0.1:1731/ shows what becomes of it
  ACIDTEST_PASSWORD=... acidtest gateway --sink postgres://ann@db.example/logs --collectors 4
      store in PostgreSQL, by four collectors
  acidtest gateway --queue amqp://ann:...@mq.example --collectors 0
      leave entries in RabbitMQ, for collectors on other machines
  acidtest gateway --listen 192.0.2.7:1731 --tls-cert server.pem --tls-key server.key
      take entries from other machines, at https://192.0.2.7:1731/logs";

const COLLECTOR_EXAMPLES: &str = "\
Examples:
  acidtest collector --queue amqp://ann:...@mq.example --sink postgres://bob:...@db.example/logs
      store in PostgreSQL what gateways have put into RabbitMQ
  acidtest collector --queue nats --sink sqlite:logs.sqlite --listen 127.0.0.1:1732
      store in SQLite, from a NATS on this machine; http://127.0.0.1:1732/ shows the progress";

const SINK: &str = "The database of entries: sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE \
                    (MariaDB, too); the password comes from ACIDTEST_PASSWORD [default: logs.sqlite in --data; none with a \
                    broker]";

const COLLECTOR_SINK: &str = "The database of entries: sqlite:FILE, postgres://USER@HOST/DATABASE or \
                              mysql://USER@HOST/DATABASE (MariaDB, too); the password comes from ACIDTEST_PASSWORD, as for \
                              the broker";

const QUEUE: &str = "\
Where acknowledged entries wait: disk; memory, which loses them with the gateway; rabbitmq or nats on this machine; or a \
broker's address, amqp://USER@HOST:5672/VHOST or nats://USER@HOST:4222 [default: disk]";

const BROKER: &str = "\
The broker: rabbitmq or nats on this machine, amqp://USER@HOST:5672/VHOST or nats://USER@HOST:4222";

const QUEUE_NAME_HELP: &str =
    "The name of the queue or stream in a broker, created if missing [default: acidtest_logs]";

const TABLE_HELP: &str = "The table of entries, created if missing; entries that cannot be stored go into a second one, \
                          with _refused at the end of its name [default: acidtest_logs]";

/// Take log entries over HTTP, keep what is acknowledged, and store it in a database.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Gateway {
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Add, list and revoke the users who may send entries
    User(User),
}

#[derive(Debug, Args)]
pub(crate) struct User {
    #[command(subcommand)]
    pub(crate) command: UserCommand,
    #[command(flatten)]
    pub(crate) database: UsersDatabase,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, and print a token: it is shown once, and only its hash is kept
    Add {
        /// Letters, digits and ._-
        name: String,
        /// May also see the page and the metrics of a gateway that does not listen on loopback
        #[arg(long)]
        operator: bool,
        /// How long the token is good for (12h, 30d) [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<Duration>,
        /// Write the token into this file, which only you can read, instead of printing it
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// List the users
    List,
    /// Revoke a user's token; gateways learn of it within a second, and at the latest when --remember is over
    Revoke {
        /// Whose token
        name: String,
    },
}

/// Where users are.
#[derive(Clone, Debug, Args)]
pub(crate) struct UsersDatabase {
    /// The folder for what has no address: users, entries, the queue
    #[arg(long, global = true, value_name = "FOLDER", default_value = "acidtest-gateway")]
    pub(crate) data: PathBuf,
    /// The database of users, SQLite or PostgreSQL: an address as for `--sink` [default: users.sqlite in --data]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) users: Option<String>,
    /// The PostgreSQL schema of the tables of users [default: the first of the search path]
    #[arg(long, global = true, value_name = "SCHEMA", requires = "users")]
    pub(crate) users_schema: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architecture {
    /// Each request authenticates in the database, and each entry is stored in a transaction of its own
    Direct,
    /// Users are remembered; entries go into a queue, and collectors store many in a transaction
    Queued,
}

/// What is taken of a request if some of its entries are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Partial {
    /// The others: the answer is 2xx, and names those that were refused
    Accept,
    /// Nothing: the answer is 4xx
    Reject,
}

/// How the ids of entries without one are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ids {
    /// At random: what is sent again is stored again
    Random,
    /// From what an entry says: what is sent again is stored once
    Content,
}

/// Where acknowledged entries wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Disk,
    Memory,
    Broker(Broker),
}

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broker(pub(crate) String);

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disk" => Ok(Self::Disk),
            "memory" => Ok(Self::Memory),
            _ => text.parse().map(Self::Broker).map_err(|_: String| {
                "write disk, memory, rabbitmq, nats, amqp://USER@HOST:5672/VHOST or nats://USER@HOST:4222"
                    .to_owned()
            }),
        }
    }
}

/// Whether it is the address of a broker, with TLS or without; what is wrong with one that is is said later.
fn is_of_broker(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| ["amqp", "amqps", "nats", "tls"].contains(&scheme))
}

impl FromStr for Broker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "rabbitmq" => Ok(Self("amqp://127.0.0.1".to_owned())),
            "nats" => Ok(Self("nats://127.0.0.1".to_owned())),
            _ if is_of_broker(text) => Ok(Self(text.to_owned())),
            _ => Err("write rabbitmq, nats, amqp://USER@HOST:5672/VHOST or nats://USER@HOST:4222".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) database: UsersDatabase,
    /// Where to listen; beyond loopback the page and the metrics need an operator's token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1731")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) certificate: ListenCertificate,
    /// How entries get into the database
    #[arg(long, value_enum, default_value = "queued")]
    pub(crate) architecture: Architecture,
    #[arg(long, value_name = "ADDRESS", help = SINK)]
    pub(crate) sink: Option<String>,
    #[arg(long, help = TABLE_HELP)]
    pub(crate) table: Option<String>,
    /// How ids are made for entries without one, unless the request has an Idempotency-Key
    #[arg(long, value_enum, default_value = "random")]
    pub(crate) ids: Ids,
    /// How the gateway's own log is written, on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log: LogFormat,

    #[command(flatten)]
    pub(crate) queued: Queued,
    #[command(flatten)]
    pub(crate) direct: Direct,

    /// Threads that serve requests [default: one per core]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The most connections at once; for a further one an idle one is closed, or it is answered 503 [default: 20000, or as
    /// many as files can be open]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// The most bytes of a request's body
    #[arg(long, value_name = "BYTES", default_value = "2MiB", value_parser = body, help_heading = "Limits")]
    pub(crate) max_body: u64,
    /// How long the head of a request may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = limit, help_heading = "Limits")]
    pub(crate) head_timeout: Span,
    /// How long the body of a request may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = limit, help_heading = "Limits")]
    pub(crate) body_timeout: Span,
    /// How long a connection may be without a request
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = limit, help_heading = "Limits")]
    pub(crate) idle_timeout: Span,
}

/// What only the queued architecture has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Architecture queued")]
pub(crate) struct Queued {
    #[arg(long, value_name = "QUEUE", help = QUEUE)]
    pub(crate) queue: Option<Queue>,
    #[arg(long, value_name = "NAME", help = QUEUE_NAME_HELP)]
    pub(crate) queue_name: Option<String>,
    /// The most that the queue takes on disk, in memory or in the broker; if it is full, requests get 429 [default: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) queue_size: Option<u64>,
    /// Number of collectors; with a broker, 0 leaves storing to `acidtest collector` [default: 2; 1 for SQLite]
    #[arg(long, value_name = "N")]
    pub(crate) collectors: Option<usize>,
    #[command(flatten)]
    pub(crate) batches: Batches,
    /// How long a user is remembered after being looked up; 0s looks up each time [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) remember: Option<Span>,
    /// How long a shutdown may take to store what waits [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub(crate) drain: Option<Span>,
    /// What is taken of a request if some of its entries are refused [default: accept]
    #[arg(long, value_enum)]
    pub(crate) partial: Option<Partial>,
}

impl Queued {
    /// An option of these that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--queue", self.queue.is_some()),
            ("--queue-name", self.queue_name.is_some()),
            ("--queue-size", self.queue_size.is_some()),
            ("--collectors", self.collectors.is_some()),
            ("--batch", self.batches.batch.is_some()),
            ("--linger", self.batches.linger.is_some()),
            ("--remember", self.remember.is_some()),
            ("--drain", self.drain.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// What collectors store together.
#[derive(Debug, Args)]
pub(crate) struct Batches {
    /// The most entries of a transaction [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<NonZeroUsize>,
    /// How long an entry may wait for others to share its transaction [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub(crate) linger: Option<Span>,
}

/// Take the log entries that gateways put into a broker, and store them in a database.
///
/// Any number may run, on any machine. An entry is stored once, even if collectors, the broker or the database are killed.
#[derive(Debug, Args)]
#[command(after_help = COLLECTOR_EXAMPLES)]
pub(crate) struct Collector {
    #[arg(long, value_name = "BROKER", help = BROKER)]
    pub(crate) queue: Broker,
    /// The name of the queue or stream that gateways use
    #[arg(long, value_name = "NAME", default_value = QUEUE_NAME)]
    pub(crate) queue_name: String,
    #[arg(long, value_name = "ADDRESS", help = COLLECTOR_SINK)]
    pub(crate) sink: String,
    #[arg(long, help = TABLE_HELP, hide_default_value = true, default_value = TABLE)]
    pub(crate) table: String,
    /// Number of collectors [default: 2; 1 for SQLite]
    #[arg(long, value_name = "N")]
    pub(crate) collectors: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) batches: Batches,
    /// How long a shutdown may take to store what was taken from the queue
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait)]
    pub(crate) drain: Span,
    /// Where to show the page, /metrics, /healthz and /readyz, on loopback [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// How the collector's own log is written, on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log: LogFormat,
}

/// The names of the queue in a broker and of the table, where no others are given.
pub(crate) const QUEUE_NAME: &str = "acidtest_logs";
pub(crate) const TABLE: &str = "acidtest_logs";

/// What only the direct architecture has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Architecture direct")]
pub(crate) struct Direct {
    /// The most connections to the database of entries [default: 50]
    #[arg(long, value_name = "N")]
    pub(crate) sink_connections: Option<NonZeroUsize>,
}

/// A number of bytes: `1000`, `64KiB`, `2MiB`, `1GiB`.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a size: write 64MiB or 1GiB");
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// A request is kept as one record of the queue, so it has a bound.
fn body(text: &str) -> Result<u64, String> {
    const MOST: u64 = 8 << 20;
    size(text).and_then(|bytes| {
        if bytes <= MOST { Ok(bytes) } else { Err("the size must be at most 8MiB".to_owned()) }
    })
}

/// How long something may take.
fn limit(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0.is_zero() { Err("the time must be above 0: write 500ms or 10s".to_owned()) } else { Ok(span) }
}

/// How long something may be waited for.
fn wait(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 > Duration::from_hours(24) { Err("the time must be at most 24h".to_owned()) } else { Ok(span) }
}

/// For how long something is kept.
fn lifetime(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    if time.is_zero() { Err("it must be above 0".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_word_or_an_address() {
        let queue = |text: &str| text.parse::<Queue>();
        assert_eq!((queue("disk"), queue("memory")), (Ok(Queue::Disk), Ok(Queue::Memory)));
        assert_eq!(queue("nats"), Ok(Queue::Broker(Broker("nats://127.0.0.1".to_owned()))));
        assert_eq!(queue("amqp://a@b/c"), Ok(Queue::Broker(Broker("amqp://a@b/c".to_owned()))));
        assert!(queue("kafka").is_err() && queue("redis://a").is_err());
        assert!("disk".parse::<Broker>().is_err());
    }

    #[test]
    fn sizes_and_lifetimes_are_read() {
        assert_eq!((size("1000"), size("64MiB"), size("1 GiB")), (Ok(1000), Ok(64 << 20), Ok(1 << 30)));
        for bad in ["", "MiB", "1MB", "-1", "0", "99999999999TiB", "1.5GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(body("9MiB").is_err());
        assert_eq!(lifetime("30d"), Ok(Duration::from_hours(720)));
        assert_eq!(lifetime("12h"), Ok(Duration::from_hours(12)));
        assert!(wait("24h").is_ok() && wait("0s").is_ok() && wait("25h").is_err());
        assert!(lifetime("0s").is_err() && lifetime("soon").is_err() && lifetime("d").is_err());
    }
}
