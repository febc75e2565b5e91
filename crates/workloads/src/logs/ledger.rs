//! The record that clients keep: one byte for each entry.

use std::{
    sync::atomic::{
        AtomicU8, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Id, StoredEntry};
use crate::{
    Boundary,
    pieces::Pieces,
    trial::{TrialLedger, WrittenLedger, read_ledger, written_ledger},
};

/// How far the sending of an entry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SendState {
    /// Not sent by anybody.
    Never = 0,
    /// Sent and not answered.
    Sent = 1,
    /// Acknowledged.
    Ok = 2,
    /// Proved to have had no effect: refused, or there was no connection.
    Without = 3,
}

/// The lowest two bits, which hold the [`SendState`].
const SENT: u8 = 0b11;
/// It was found in the store.
const STORED: u8 = 0b100;

/// How the sending of entries ended, and how many did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Ending {
    Acknowledged,
    /// Refused by the gateway, whose queue was full.
    Refused,
    /// Given up: sent and not answered in time, or answered in a way that leaves it open.
    GivenUp,
    /// Not sent, because there was no connection, or answered with an error.
    Failed,
}

/// The ledger of one trial, shared by its clients: a byte for each entry, and a few counts.
///
/// Where several processes drive the clients, each has a ledger of its own for all clients, and they are brought together
/// at the end.
#[derive(Debug)]
pub struct Ledger {
    clients: u64,
    /// What the ids of all entries begin with.
    prefix: String,
    /// Whether what is refused is proved not to have been taken.
    refusals_prove: bool,
    origin: Instant,
    entries: Pieces<AtomicU8>,
    /// The number behind the highest that any client has given to an entry.
    end: AtomicU64,
    endings: [AtomicU64; 4],
    /// Clients that are there, and the most that have been there at once.
    here: AtomicU64,
    most: AtomicU64,
    /// When the first entry was sent and the last was acknowledged, in nanoseconds since the origin.
    first: AtomicU64,
    last: AtomicU64,
    /// What was found in the store.
    stored: AtomicU64,
    twice: AtomicU64,
    torn: AtomicU64,
    foreign: AtomicU64,
}

/// What a ledger holds, for the process that judges the trial.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// The bytes of all entries, in base64.
    entries: String,
    endings: [u64; 4],
    most: u64,
    first: u64,
    last: u64,
}

/// What the ledger says of its entries, once the store was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Sent, or refused, or not sent for want of a connection.
    pub(super) offered: u64,
    pub(super) acknowledged: u64,
    pub(super) refused: u64,
    pub(super) given_up: u64,
    pub(super) failed: u64,
    /// Acknowledged and not stored.
    pub(super) lost: u64,
    /// Stored although it was refused or never sent.
    pub(super) phantom: u64,
    /// Entries of the trial that are stored at least once.
    pub(super) saved: u64,
    /// Rows beyond the first of an entry.
    pub(super) duplicated: u64,
    pub(super) torn: u64,
    pub(super) foreign: u64,
    pub(super) most_clients: u64,
}

impl Ledger {
    /// An empty ledger for this many clients; times count from `origin`.
    #[must_use]
    pub fn new(clients: u32, origin: Instant) -> Self {
        Self {
            clients: u64::from(clients.max(1)),
            prefix: String::new(),
            refusals_prove: true,
            origin,
            entries: Pieces::new(),
            end: AtomicU64::new(0),
            endings: Default::default(),
            here: AtomicU64::new(0),
            most: AtomicU64::new(0),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            twice: AtomicU64::new(0),
            torn: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
        }
    }

    /// The same for entries whose ids begin so.
    #[must_use]
    pub fn with_prefix(self, prefix: String) -> Self {
        Self { prefix, ..self }
    }

    /// The same for a queue that may have taken what it refuses: `RabbitMQ` says so of a message, too, of which it does not
    /// know what became.
    #[must_use]
    pub fn with_doubtful_refusals(self) -> Self {
        Self { refusals_prove: false, ..self }
    }

    /// What the ids of all entries begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Entries of all clients have numbers, so that those that are sent first have the lowest.
    fn number(&self, id: Id) -> Option<u64> {
        let client = u64::from(id.client);
        id.sequence.checked_mul(self.clients)?.checked_add(client).filter(|_| client < self.clients)
    }

    fn passed(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes that a client has come.
    pub(super) fn come(&self) {
        let here = self.here.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(here, SeqCst);
    }

    /// Notes that it has left.
    pub(super) fn leave(&self) {
        self.here.fetch_sub(1, SeqCst);
    }

    /// Notes that entries are about to be sent.
    pub(super) fn sending(&self, ids: impl Iterator<Item = Id>) {
        self.first.fetch_min(self.passed(), Relaxed);
        for number in ids.filter_map(|id| self.number(id)) {
            self.end.fetch_max(number + 1, Relaxed);
            if let Some(byte) = self.entries.at(number) {
                byte.fetch_or(SendState::Sent as u8, Relaxed);
            }
        }
    }

    /// Notes how the sending of entries has ended.
    pub(super) fn ended(&self, ids: impl Iterator<Item = Id>, how: Ending) {
        let to = match how {
            Ending::Acknowledged => SendState::Ok,
            Ending::GivenUp => SendState::Sent,
            Ending::Refused if !self.refusals_prove => SendState::Sent,
            Ending::Refused | Ending::Failed => SendState::Without,
        };
        let mut count = 0;
        for number in ids.filter_map(|id| self.number(id)) {
            count += 1;
            if let Some(byte) = self.entries.made(number) {
                // from sent, the lowest bit, to the other two
                byte.fetch_xor(SendState::Sent as u8 ^ to as u8, Relaxed);
            }
        }
        self.endings[how as usize].fetch_add(count, Relaxed);
        if how == Ending::Acknowledged {
            self.last.fetch_max(self.passed(), Relaxed);
        }
    }

    /// How many entries were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.endings[Ending::Acknowledged as usize].load(Relaxed)
    }

    /// How long before this moment the first entry was sent, and the last one acknowledged; none if there was none.
    pub(super) fn since(&self, moment: Instant) -> Option<(Duration, Duration)> {
        let (first, last) = (self.first.load(Relaxed), self.last.load(Relaxed));
        let passed = moment.saturating_duration_since(self.origin);
        let before = |noted: u64| passed.saturating_sub(Duration::from_nanos(noted));
        (first <= last).then(|| (before(first), before(last)))
    }

    /// Forgets what was found in the store, which is to be read anew.
    pub(super) fn forget_found(&self) {
        for number in 0..self.end.load(Relaxed) {
            if let Some(byte) = self.entries.made(number) {
                byte.fetch_and(!STORED, Relaxed);
            }
        }
        for count in [&self.stored, &self.twice, &self.torn, &self.foreign] {
            count.store(0, Relaxed);
        }
    }

    /// Notes an entry that was found in the store.
    pub(super) fn found(&self, entry: &StoredEntry<'_>) {
        let number = entry.id(&self.prefix).and_then(|id| self.number(id));
        let byte = number.and_then(|number| self.entries.made(number));
        let Some(byte) = byte.filter(|byte| byte.load(Relaxed) & SENT != SendState::Never as u8) else {
            self.foreign.fetch_add(1, Relaxed);
            return;
        };
        let before = byte.fetch_or(STORED, Relaxed);
        let count = if before & STORED == 0 { &self.stored } else { &self.twice };
        count.fetch_add(1, Relaxed);
        if !entry.is_whole() {
            self.torn.fetch_add(1, Relaxed);
        }
    }

    /// What was sent and what was found.
    pub(super) fn totals(&self) -> Totals {
        let [acknowledged, refused, given_up, failed] =
            std::array::from_fn(|ending| self.endings[ending].load(Relaxed));
        let mut totals = Totals {
            acknowledged,
            refused,
            given_up,
            failed,
            saved: self.stored.load(Relaxed),
            duplicated: self.twice.load(Relaxed),
            torn: self.torn.load(Relaxed),
            foreign: self.foreign.load(Relaxed),
            most_clients: self.most.load(SeqCst),
            ..Totals::default()
        };
        for number in 0..self.end.load(Relaxed) {
            let byte = self.entries.made(number).map_or(0, |byte| byte.load(Relaxed));
            let (state, is_stored) = (byte & SENT, byte & STORED > 0);
            totals.offered += u64::from(state != SendState::Never as u8);
            totals.lost += u64::from(state == SendState::Ok as u8 && !is_stored);
            totals.phantom += u64::from(state == SendState::Without as u8 && is_stored);
        }
        totals
    }
}

impl TrialLedger for Ledger {
    fn written(&self) -> Result<WrittenLedger, String> {
        let byte = |number| self.entries.made(number).map_or(0, |byte: &AtomicU8| byte.load(Relaxed));
        let bytes: Vec<u8> = (0..self.end.load(Relaxed)).map(byte).collect();
        written_ledger(&Written {
            entries: STANDARD.encode(bytes),
            endings: std::array::from_fn(|ending| self.endings[ending].load(Relaxed)),
            most: self.most.load(SeqCst),
            first: self.first.load(Relaxed),
            last: self.last.load(Relaxed),
        })
    }

    fn merge(&self, written: &RawValue, _: bool) -> Result<(), String> {
        let other: Written = read_ledger(written)?;
        let bytes = STANDARD.decode(&other.entries).map_err(|error| error.to_string())?;
        for (number, byte) in (0..).zip(&bytes).filter(|(_, byte)| **byte != 0) {
            if let Some(mine) = self.entries.at(number) {
                mine.fetch_or(*byte, Relaxed);
            }
        }
        self.end.fetch_max(bytes.len() as u64, Relaxed);
        for (mine, theirs) in self.endings.iter().zip(other.endings) {
            mine.fetch_add(theirs, Relaxed);
        }
        self.most.fetch_add(other.most, SeqCst);
        self.first.fetch_min(other.first, Relaxed);
        self.last.fetch_max(other.last, Relaxed);
        Ok(())
    }

    /// Whatever is lost is durability's: nothing has to be told apart by the server's epochs.
    fn note_boundary(&self, _: Boundary) {}
}
