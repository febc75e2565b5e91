//! The arguments of `acidtest gateway`.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use acidtest_report::Span;
use clap::{Args, Subcommand, ValueEnum};

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
      store in PostgreSQL, by four collectors";

const SINK: &str = "\
The database of entries: sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE (MariaDB, too); a \
password from ACIDTEST_PASSWORD [default: logs.sqlite in --data]";

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
    /// Add, list and revoke those who may send entries
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
    /// The folder for what is not given an address: users, entries, the queue
    #[arg(long, global = true, value_name = "FOLDER", default_value = "acidtest-gateway")]
    pub(crate) data: PathBuf,
    /// The database of users, SQLite or PostgreSQL: an address as for `--sink` [default: users.sqlite in --data]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) users: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architecture {
    /// Each request authenticates in the database, and each entry is stored in a transaction of its own
    Direct,
    /// Users are remembered; entries go into a queue, and collectors store many in a transaction
    Queued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Queue {
    /// Acknowledged when synced: survives a killed gateway, and a loss of power as far as the disk's sync does
    Disk,
    /// Acknowledged when taken: what waits is lost with the gateway
    Memory,
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
    /// How entries come into the database
    #[arg(long, value_enum, default_value = "queued")]
    pub(crate) architecture: Architecture,
    #[arg(long, value_name = "ADDRESS", help = SINK)]
    pub(crate) sink: Option<String>,
    /// The table of entries, made if it is not there; what cannot be stored goes into another, with _refused behind its
    /// name
    #[arg(long, default_value = "acidtest_logs")]
    pub(crate) table: String,
    /// How the gateway's own log is written, on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log: LogFormat,

    #[command(flatten)]
    pub(crate) queued: Queued,
    #[command(flatten)]
    pub(crate) direct: Direct,

    /// Threads that serve requests [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The most connections at once; one more is answered 503
    #[arg(long, value_name = "N", default_value = "20000", help_heading = "Limits")]
    pub(crate) max_connections: NonZeroUsize,
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
    /// Where acknowledged entries wait [default: disk]
    #[arg(long, value_enum)]
    pub(crate) queue: Option<Queue>,
    /// The most that the queue takes, of disk or memory; a full one answers 429 [default: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) queue_size: Option<u64>,
    /// How many store side by side [default: 2; 1 for SQLite]
    #[arg(long, value_name = "N")]
    pub(crate) collectors: Option<NonZeroUsize>,
    /// The most entries of a transaction [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<NonZeroUsize>,
    /// How long entries may wait for others of their transaction [default: 100ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<Span>,
    /// How long a user is remembered after being looked up; 0s looks up each time [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) remember: Option<Span>,
    /// How long a shutdown may take to store what waits [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) drain: Option<Span>,
}

impl Queued {
    /// An option of these that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--queue", self.queue.is_some()),
            ("--queue-size", self.queue_size.is_some()),
            ("--collectors", self.collectors.is_some()),
            ("--batch", self.batch.is_some()),
            ("--linger", self.linger.is_some()),
            ("--remember", self.remember.is_some()),
            ("--drain", self.drain.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

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
    let wrong = || format!("\"{text}\" is no size: write 64MiB or 1GiB");
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
    size(text)
        .and_then(|bytes| if bytes <= MOST { Ok(bytes) } else { Err("at most 8MiB are taken".to_owned()) })
}

/// How long something may take.
fn limit(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0.is_zero() {
        Err("in no time nothing could be done: write 500ms or 10s".to_owned())
    } else {
        Ok(span)
    }
}

/// A length of time that may be in days.
fn lifetime(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let time = match days {
        Some(days) => Duration::from_secs(u64::from(days) * 86_400),
        None => {
            text.parse::<Span>().map_err(|_| format!("\"{text}\" is no length of time: write 12h or 30d"))?.0
        }
    };
    if time.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lifetimes_are_read() {
        assert_eq!((size("1000"), size("64MiB"), size("1 GiB")), (Ok(1000), Ok(64 << 20), Ok(1 << 30)));
        for bad in ["", "MiB", "1MB", "-1", "0", "99999999999TiB", "1.5GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(body("9MiB").is_err());
        assert_eq!(lifetime("30d"), Ok(Duration::from_hours(720)));
        assert_eq!(lifetime("12h"), Ok(Duration::from_hours(12)));
        assert!(lifetime("0s").is_err() && lifetime("soon").is_err() && lifetime("d").is_err());
    }
}
