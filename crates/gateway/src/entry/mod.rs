//! A log entry: what it holds, and what is demanded of it.

mod id;
mod read;
mod record;

use std::{borrow::Cow, fmt, time::Duration};

pub(crate) use self::{
    id::Made,
    read::{Body, Form, Refusal, Unreadable, read},
    record::{decode, encode, received, stretches_within},
};

/// The most bytes of an id.
pub(crate) const ID: usize = 64;
/// The most bytes of an application's name.
pub(crate) const APPLICATION: usize = 128;
/// The most bytes of a message.
pub(crate) const MESSAGE: usize = 64 << 10;
/// The most bytes of the attributes, as JSON.
pub(crate) const ATTRIBUTES: usize = 16 << 10;
/// The most attributes.
pub(crate) const KEYS: usize = 64;
/// The most entries of one request.
pub(crate) const ENTRIES: usize = 10_000;

/// How grave an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Fatal,
}

impl Level {
    pub(crate) const ALL: [Self; 6] =
        [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Fatal];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fatal => "fatal",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// An entry that was found good. What it borrows is the request's body, or a record of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Unique among its user's entries: letters, digits and `._:-`.
    pub(crate) id: Cow<'a, str>,
    /// When it happened, as its client says: microseconds since 1970.
    pub(crate) timestamp: i64,
    pub(crate) level: Level,
    pub(crate) application: Cow<'a, str>,
    pub(crate) message: Cow<'a, str>,
    /// A JSON object of strings, numbers, booleans and nulls, as its client wrote it.
    pub(crate) attributes: Option<&'a str>,
}

/// A moment as microseconds since 1970, shown as RFC 3339 in UTC.
pub(crate) struct Moment(pub(crate) i64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment}"),
            Err(_) => write!(f, "{} µs", self.0),
        }
    }
}

/// The moment now, by this machine's clock: microseconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// How long ago this was, in microseconds since 1970; nothing where it is in the future by this machine's clock.
pub(crate) fn age(moment: i64) -> Duration {
    Duration::from_micros(u64::try_from(now().saturating_sub(moment)).unwrap_or(0))
}
