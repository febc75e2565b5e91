//! How much waits in a queue.

use std::time::Duration;

/// How much waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    /// Entries that were acknowledged and are not yet stored.
    pub(crate) entries: u64,
    /// Of a queue in a broker: messages that wait there, which hold one or several entries. Entries are then only those in
    /// the hands of this process.
    pub(crate) messages: Option<u64>,
    /// Whether the broker could not be asked when it was last to be: it may have other messages by now.
    pub(crate) is_stale: bool,
    /// Bytes that the queue takes, of memory or disk, unless a broker does not say it.
    pub(crate) bytes: Option<u64>,
    /// The most bytes that it may take; 0 where this process does not decide.
    pub(crate) most_bytes: u64,
    /// The age of the oldest entry that is not yet stored, where one waits; with a broker, of those in hand.
    pub(crate) oldest: Option<Duration>,
}
