//! The record that producers and consumers keep: one byte for each message.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use acidtest_engine::Part;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{
    AckAnswer,
    message::{Id, LOADED},
};
use crate::{
    MessageCounts,
    epochs::{self, Boundary, Damage, Epoch, Epochs, Seen},
    moments::Moments,
    pieces::Pieces,
};

/// How far a publish has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PublishState {
    /// Not sent by anybody.
    Never = 0,
    /// Sent and not answered.
    Sent = 1,
    /// Acknowledged; with `ack none`: written to the connection.
    Ok = 2,
    /// Proved to have had no effect.
    Failed = 3,
}

/// The lowest two bits, which hold the [`PublishState`].
const PUBLISHED: u8 = 0b11;
/// It was delivered at least once.
const DELIVERED: u8 = 0b100;
/// How far a consumer's acknowledgement of it has come: nothing, or one of the next three, the higher the further.
const ACKNOWLEDGED: u8 = 0b1_1000;
/// An acknowledgement may have reached the store or not.
const DOUBTFUL: u8 = 0b0_1000;
/// The store has read an acknowledgement, or it was delivered without any.
const CONSUMED: u8 = 0b1_0000;
/// The store has answered an acknowledgement.
const SETTLED: u8 = 0b1_1000;
/// It was delivered with the store's flag that it had not been delivered before.
const FRESH: u8 = 0b10_0000;
/// It was counted as duplicated on delivery, and must not be counted again when that delivery is acknowledged.
const COUNTED: u8 = 0b100_0000;

/// It was delivered in a later epoch of the server than the first.
const LATER: u8 = 0b1000_0000;

/// How many times a queue may hand out each message on average. Messages held by a lost consumer come again; a
/// store that never forgets a message would never be empty.
const AGAIN: u64 = 10;
/// How many deliveries more a queue may make, for the sake of trials with few messages.
const MORE: u64 = 10_000;

/// How many messages others may have published that are not known of yet.
const LATELY: u64 = 1_000_000;

/// The byte of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u8);

impl Entry {
    pub(crate) fn published(self) -> PublishState {
        match self.0 & PUBLISHED {
            0 => PublishState::Never,
            1 => PublishState::Sent,
            2 => PublishState::Ok,
            _ => PublishState::Failed,
        }
    }

    pub(crate) fn was_delivered(self) -> bool {
        self.has(DELIVERED)
    }

    /// Whether its publishing was acknowledged, and the store cannot have an acknowledgement of any consumer: lost, once the
    /// queue is empty. A message that a lost consumer held is the store's, which must hand it out again.
    pub(crate) fn is_lost(self) -> bool {
        self.published() == PublishState::Ok && self.acknowledged() == 0
    }

    /// Whether its publishing was acknowledged, and all that is known of its consuming is that the store may have an
    /// acknowledgement: then it need not hand it out again, else it must.
    pub(crate) fn is_doubtful(self) -> bool {
        self.published() == PublishState::Ok && self.acknowledged() == DOUBTFUL
    }

    /// Whether its publishing was acknowledged, and the store has an acknowledgement of a consumer, or needs none.
    pub(crate) fn is_consumed(self) -> bool {
        self.published() == PublishState::Ok && self.acknowledged() >= CONSUMED
    }

    fn acknowledged(self) -> u8 {
        self.0 & ACKNOWLEDGED
    }

    /// With an acknowledgement that has come so far, at least.
    fn acknowledged_as(self, at_least: u8) -> u8 {
        (self.0 & !ACKNOWLEDGED) | self.acknowledged().max(at_least)
    }

    /// Whether it was lost though it had been delivered: a consumer held it.
    pub(crate) fn was_lost_in_hand(self) -> bool {
        self.is_lost() && self.was_delivered()
    }

    /// Whether it was lost in a later epoch of the server than the first: it was delivered in one.
    fn was_lost_later(self) -> bool {
        self.is_lost() && self.has(LATER)
    }

    fn is_settled(self) -> bool {
        self.acknowledged() == SETTLED
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit > 0
    }
}

/// Changes an entry; returns its old value.
fn change(byte: &AtomicU8, to: impl Fn(Entry) -> u8) -> Entry {
    let changed = byte.fetch_update(Relaxed, Relaxed, |entry| Some(to(Entry(entry))));
    Entry(changed.unwrap_or_else(|entry| entry))
}

/// The ledger of one trial, shared by its clients: one byte for each message, and an entry for each connection of a
/// producer. Nothing else in it grows.
///
/// Where several processes drive the clients, each has a ledger of its own, and what its consumers are handed by
/// producers of other processes is only held against what these sent once the ledgers are brought together. Order is
/// judged within a process, and only where the store has a flag for what was delivered before: nobody there knows
/// which connections the others' producers have opened, nor which of the others' consumers were lost or done.
#[derive(Debug)]
pub struct Ledger {
    /// The clients that it is of.
    part: Part,
    epochs: Epochs,
    moments: Moments,
    /// The first number that no producer had given to a message when the server's present epoch began.
    first_of_epoch: AtomicU64,
    producers: u64,
    loaded: Vec<AtomicU8>,
    sent: Pieces<AtomicU8>,
    /// The first message of each connection of a producer.
    connections: Mutex<BTreeSet<Id>>,
    /// Those that there were when the server was ended for the first time: none of them outlived it.
    before_crash: OnceLock<BTreeSet<Id>>,
    connected: AtomicU64,
    /// Whether a consumer was lost: the messages that it held then come later than those published after them.
    consumer_lost: AtomicBool,
    /// Whether a consumer has begun to finish: the same is then true of the messages that it held.
    consumer_done: AtomicBool,
    /// How many numbers of messages, from 0, may have been handed out by producers of other processes.
    reached: AtomicU64,
    /// How far clients of other processes have come.
    elsewhere: [AtomicU64; 2],
    /// How many messages are being acknowledged, without anybody knowing yet whether the store has read it.
    acknowledging: AtomicU64,
    counts: Counts,
}

/// What a ledger holds, for the process that judges the trial.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    /// The bytes of the backlog and of the messages that were sent, in base64.
    loaded: String,
    sent: String,
    /// The first message of each connection of a producer: producer and sequence.
    connections: Vec<(u32, u64)>,
    consumer_lost: bool,
    counts: [u64; 9],
    damage: [epochs::Counts; 3],
}

#[derive(Debug, Default)]
struct Counts {
    /// The highest number of messages that any single producer has drawn.
    rounds: AtomicU64,
    published: AtomicU64,
    unknown: AtomicU64,
    failed: AtomicU64,
    delivered: AtomicU64,
    /// Messages of which the store may have an acknowledgement.
    consumed: AtomicU64,
    redelivered: AtomicU64,
    torn: AtomicU64,
    foreign: AtomicU64,
    duplicated: Damage,
    reordered: Damage,
    reordered_unflagged: Damage,
}

impl Counts {
    /// All of them, the number of rounds first.
    fn all(&self) -> [&AtomicU64; 9] {
        let Self { rounds, published, unknown, failed, delivered, consumed, .. } = self;
        let Self { redelivered, torn, foreign, .. } = self;
        [rounds, published, unknown, failed, delivered, consumed, redelivered, torn, foreign]
    }

    fn damage(&self) -> [&Damage; 3] {
        [&self.duplicated, &self.reordered, &self.reordered_unflagged]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Acknowledged publishes, of the backlog and of producers.
    pub(crate) published: u64,
    /// Publishes that were never answered.
    pub(crate) unknown: u64,
    /// Publishes that are proved to have had no effect.
    pub(crate) failed: u64,
    /// Messages that were delivered at least once.
    pub(crate) delivered: u64,
    /// Further deliveries of messages, as are allowed after a consumer was lost.
    pub(crate) redelivered: u64,
    /// Further deliveries that are not allowed: the acknowledgements of both were answered, or both came with the
    /// flag that the message had not been delivered before.
    pub(crate) duplicated: u64,
    /// Messages whose checksum or length is wrong.
    pub(crate) torn: u64,
    /// Messages that no producer of the trial sent.
    pub(crate) foreign: u64,
    /// Deliveries after a message that the same producer published later, which no lost consumer explains.
    pub(crate) reordered: u64,
}

impl Ledger {
    /// An empty ledger for this many producers, and a backlog of this many messages.
    #[must_use]
    pub fn new(producers: u32, backlog: u64) -> Self {
        Self::of(Part::WHOLE, producers, backlog)
    }

    /// The same for the clients of one process.
    pub(crate) fn of(part: Part, producers: u32, backlog: u64) -> Self {
        Self {
            part,
            epochs: Epochs::default(),
            moments: Moments::default(),
            first_of_epoch: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            elsewhere: Default::default(),
            acknowledging: AtomicU64::new(0),
            producers: u64::from(producers.max(1)),
            loaded: (0..backlog).map(|_| AtomicU8::new(0)).collect(),
            sent: Pieces::new(),
            connections: Mutex::default(),
            before_crash: OnceLock::new(),
            connected: AtomicU64::new(0),
            consumer_lost: AtomicBool::new(false),
            consumer_done: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    /// Notes what happens to the server.
    pub(crate) fn note_boundary(&self, boundary: Boundary) {
        self.moments.note_boundary(Instant::now(), boundary, self.counts.rounds.load(SeqCst));
        if boundary == Boundary::During {
            self.before_crash.get_or_init(|| self.connections().0);
        }
        if boundary == Boundary::After {
            self.first_of_epoch.store(self.counts.rounds.load(SeqCst), SeqCst);
        }
        self.epochs.note(boundary);
    }

    /// Notes how many messages any single producer has sent by now.
    pub(crate) fn note_moment(&self) {
        self.moments.note(Instant::now(), self.counts.rounds.load(SeqCst));
    }

    /// How long before the next crash the oldest of the lost messages was sent, at most; none if that is not known, as of
    /// the backlog and of what outlived that crash.
    pub(crate) fn oldest_lost(&self) -> Option<Duration> {
        let is_lost = |byte: &AtomicU8| Entry(byte.load(Relaxed)).is_lost();
        if self.loaded.iter().any(is_lost) || self.entries().any(Entry::was_lost_later) {
            return None;
        }
        let is_lost = |round: &u64| {
            let mut of_round =
                (0..self.producers).filter_map(|each| self.sent.made(round * self.producers + each));
            of_round.any(|byte| Entry(byte.load(Relaxed)).is_lost())
        };
        self.moments.oldest((0..self.counts.rounds.load(Relaxed)).filter(is_lost))
    }

    /// When a delivery of this message is seen now. All that is known of a message has happened in the epoch of the server that there
    /// is now if it was sent in it.
    fn seen(&self, id: Id) -> Seen {
        let epoch = self.epochs.now();
        let is_own = id.producer != LOADED && self.part.has(id.producer as usize);
        let was_sent_since = is_own && id.sequence >= self.first_of_epoch.load(SeqCst);
        Seen::of(epoch, epoch, epoch == Epoch::FIRST || was_sent_since)
    }

    /// Messages of the backlog, which are loaded before the trial.
    pub(crate) fn backlog(&self) -> u64 {
        self.loaded.len() as u64
    }

    /// Records that a producer is about to open a connection, on which this message will be the first.
    pub(crate) fn connecting(&self, first: Id) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.insert(first);
        self.connected.store(connections.len() as u64, SeqCst);
    }

    /// How many connections producers have opened that anything may have been sent on.
    pub(crate) fn count_connections(&self) -> u64 {
        self.connected.load(SeqCst)
    }

    /// The first message of each of these connections, and their number.
    pub(crate) fn connections(&self) -> (BTreeSet<Id>, u64) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = connections.len() as u64;
        (connections, count)
    }

    /// Records that the message is about to be sent.
    pub(crate) fn sending(&self, id: Id) {
        if id.producer != LOADED {
            self.counts.rounds.fetch_max(id.sequence + 1, SeqCst);
        }
        if let Some(byte) = self.made(id) {
            byte.fetch_or(PublishState::Sent as u8, Relaxed);
        }
    }

    /// Records how a publish ended.
    pub(crate) fn published(&self, id: Id, how: PublishState) {
        let (count, change) = match how {
            PublishState::Ok => (&self.counts.published, PUBLISHED),
            PublishState::Failed => (&self.counts.failed, PublishState::Ok as u8),
            PublishState::Sent | PublishState::Never => (&self.counts.unknown, 0),
        };
        count.fetch_add(1, Relaxed);
        if let Some(byte) = self.made(id) {
            // from sent, the lowest bit, to the other two
            byte.fetch_xor(change, Relaxed);
        }
    }

    /// Records a delivery. `flagged` is the store's flag that the message may have been delivered before; `None`
    /// where a store has no such flag. Returns whether this is the first delivery of a message of the trial: by the
    /// flag, because deliveries may be recorded late, or without a flag by the ledger.
    pub(crate) fn delivered(&self, id: Id, flagged: Option<bool>) -> bool {
        let Some(byte) = self.known(id) else {
            self.foreign();
            return false;
        };
        let fresh = flagged == Some(false);
        let epoch = self.epochs.now();
        let later = if epoch > Epoch::FIRST && epoch.lasts(epoch) { LATER } else { 0 };
        let before = change(byte, |Entry(entry)| {
            let delivered = entry | later | DELIVERED;
            match (fresh, Entry(entry).has(FRESH)) {
                (true, true) => delivered | COUNTED,
                (true, false) => delivered | FRESH,
                (false, _) => delivered,
            }
        });
        let first = !before.was_delivered();
        if first {
            self.counts.delivered.fetch_add(1, Relaxed);
        } else if fresh && before.has(FRESH) {
            self.counts.duplicated.add(self.seen(id));
        } else {
            self.counts.redelivered.fetch_add(1, Relaxed);
        }
        flagged.map_or(first, |again| !again && !before.has(FRESH))
    }

    /// Records how far a consumer's acknowledgement of messages has come that it was handed; [`AckAnswer::Read`] where it was
    /// handed them without any. Once the store has it, it need not hand them out again. Where it has answered, it must not do
    /// so, nor answer another acknowledgement of them. A delivery by itself proves nothing, because it may be recorded late.
    pub(crate) fn acknowledged(&self, handed: impl IntoIterator<Item = Id>, how: AckAnswer) {
        for id in handed {
            match how {
                AckAnswer::Answered => self.settled(id),
                AckAnswer::Read => self.consumed(id, CONSUMED),
                AckAnswer::Sent => self.consumed(id, DOUBTFUL),
            }
        }
    }

    /// Records that so many messages are being acknowledged.
    pub(crate) fn acknowledging(&self, messages: usize) {
        self.acknowledging.fetch_add(messages as u64, Relaxed);
    }

    /// Records that of so many of them it is known now how far that has come.
    pub(crate) fn acknowledging_ended(&self, messages: usize) {
        self.acknowledging.fetch_sub(messages as u64, Relaxed);
    }

    /// Counts a message of which the store may have an acknowledgement, unless it was so `before`.
    fn count_consumed(&self, before: Entry) {
        if before.acknowledged() == 0 {
            self.counts.consumed.fetch_add(1, Relaxed);
        }
    }

    fn consumed(&self, id: Id, how: u8) {
        if let Some(byte) = self.known(id) {
            self.count_consumed(change(byte, |entry| entry.acknowledged_as(how)));
        }
    }

    fn settled(&self, id: Id) {
        let Some(byte) = self.known(id) else { return };
        let before = change(byte, |entry| {
            if entry.is_settled() { entry.0 & !COUNTED } else { entry.acknowledged_as(SETTLED) }
        });
        self.count_consumed(before);
        if before.is_settled() && !before.has(COUNTED) {
            self.counts.duplicated.add(self.seen(id));
        }
    }

    pub(crate) fn torn(&self) {
        self.counts.torn.fetch_add(1, Relaxed);
    }

    /// Counts a message that no producer of the trial sent.
    fn foreign(&self) {
        self.counts.foreign.fetch_add(1, Relaxed);
    }

    /// Records that this message came after one that its producer had sent later. `flagged` is the store's flag that
    /// it may have been delivered before; the caller passes only messages that come for the first time. Without a
    /// flag the message may be one that a lost consumer held, for as long as the store takes to notice the loss:
    /// the order is then proved wrong only if no consumer was lost.
    pub(crate) fn reordered(&self, id: Id, flagged: Option<bool>) {
        let counts = &self.counts;
        if !self.part.is_whole() && flagged.is_none() {
            return;
        }
        if flagged.is_some() {
            counts.reordered.add(self.seen(id));
        } else if !self.consumer_done.load(Relaxed) {
            counts.reordered_unflagged.add(self.seen(id));
        }
    }

    /// Records that a consumer's connection was lost, or that its operation failed.
    pub(crate) fn consumer_lost(&self) {
        self.consumer_lost.store(true, Relaxed);
    }

    /// Records that a consumer asks for no more messages: those that it was handed and has not taken go to others,
    /// late.
    pub(crate) fn consumer_done(&self) {
        self.consumer_done.store(true, Relaxed);
    }

    /// Whether it is known here when a message is late: its producer is a client of this process.
    pub(crate) fn knows_order_of(&self, id: Id) -> bool {
        id.producer == LOADED || self.part.has(id.producer as usize)
    }

    /// Messages whose publishing was acknowledged, and of which the store cannot have an acknowledgement of any consumer: those
    /// that it must keep. Of what clients of other processes hold nothing is known here: it is not counted.
    pub(crate) fn outstanding(&self) -> u64 {
        let Counts { published, consumed, .. } = &self.counts;
        let elsewhere = self.elsewhere();
        (published.load(Relaxed) + elsewhere.published)
            .saturating_sub(consumed.load(Relaxed) + self.acknowledging.load(Relaxed) + elsewhere.delivered)
    }

    /// Messages that were published and not yet delivered.
    pub(crate) fn depth(&self) -> u64 {
        let (MessageCounts { published, delivered }, elsewhere) = (self.message_counts(), self.elsewhere());
        (published + elsewhere.published).saturating_sub(delivered + elsewhere.delivered)
    }

    /// How far this process's clients have come.
    pub(crate) fn message_counts(&self) -> MessageCounts {
        let Totals { published, delivered, .. } = self.totals();
        MessageCounts { published, delivered }
    }

    fn elsewhere(&self) -> MessageCounts {
        let [published, delivered] = &self.elsewhere;
        MessageCounts { published: published.load(Relaxed), delivered: delivered.load(Relaxed) }
    }

    /// Notes how far the clients of all other processes have come.
    pub(crate) fn note_elsewhere(&self, counts: MessageCounts) {
        let [published, delivered] = &self.elsewhere;
        published.store(counts.published, Relaxed);
        delivered.store(counts.delivered, Relaxed);
    }

    /// Messages that were delivered at least once, as far as every process knows. One that is delivered again in
    /// another process counts twice.
    pub(crate) fn delivered_anywhere(&self) -> u64 {
        self.message_counts().delivered + self.elsewhere().delivered
    }

    /// How many deliveries, to the trial's consumers or to the audit's, a queue may make before it counts as one
    /// that never forgets a message.
    pub(crate) fn most_deliveries(&self) -> u64 {
        let drawn = self.counts.rounds.load(Relaxed).saturating_mul(self.producers);
        // what others publish is known here a moment later
        let elsewhere = self.elsewhere().published.saturating_mul(2);
        let drawn = if self.part.is_whole() { drawn } else { drawn + elsewhere + LATELY };
        self.backlog().saturating_add(drawn).saturating_mul(AGAIN).saturating_add(MORE)
    }

    /// Whether the trial's consumers were handed more than that.
    pub(crate) fn is_endless(&self) -> bool {
        let Counts { delivered, redelivered, duplicated, .. } = &self.counts;
        let handed_out = delivered.load(Relaxed) + redelivered.load(Relaxed) + duplicated.all();
        handed_out > self.most_deliveries()
    }

    /// What it holds. To be called once every client is done.
    pub(crate) fn written(&self) -> Written {
        let bytes = |entries: &mut dyn Iterator<Item = &AtomicU8>| {
            STANDARD.encode(entries.map(|byte| byte.load(Relaxed)).collect::<Vec<u8>>())
        };
        let nothing = AtomicU8::new(0);
        let sent = (0..self.reached()).map(|number| self.sent.made(number).unwrap_or(&nothing));
        Written {
            loaded: bytes(&mut self.loaded.iter()),
            sent: bytes(&mut { sent }),
            connections: self.connections().0.into_iter().map(|id| (id.producer, id.sequence)).collect(),
            consumer_lost: self.consumer_lost.load(Relaxed),
            counts: self.counts.all().map(|count| count.load(Relaxed)),
            damage: self.counts.damage().map(Damage::counts),
        }
    }

    /// Adds what the ledger of another process holds; `knows_boundaries` is whether it was told of each crash in time.
    pub(crate) fn merge(&self, written: &Written, knows_boundaries: bool) -> Result<(), String> {
        let bytes = |text: &str| STANDARD.decode(text).map_err(|error| error.to_string());
        let (loaded, sent) = (bytes(&written.loaded)?, bytes(&written.sent)?);
        if loaded.len() != self.loaded.len() {
            return Err("it is of another backlog".to_owned());
        }
        for (mine, theirs) in self.counts.all().into_iter().zip(written.counts).skip(1) {
            mine.fetch_add(theirs, Relaxed);
        }
        self.counts.rounds.fetch_max(written.counts[0], Relaxed);
        for (mine, theirs) in self.counts.damage().into_iter().zip(written.damage) {
            mine.merge(theirs, knows_boundaries);
        }
        self.reached.fetch_max(sent.len() as u64, Relaxed);
        for (mine, theirs) in self.loaded.iter().zip(loaded) {
            self.merge_entry(mine, Entry(theirs));
        }
        for (number, theirs) in (0..).zip(sent).filter(|(_, theirs)| *theirs > 0) {
            let mine = self.sent.at(number).ok_or_else(|| format!("there is no message {number}"))?;
            self.merge_entry(mine, Entry(theirs));
        }
        let first = |&(producer, sequence): &(u32, u64)| Id { producer, sequence };
        written.connections.iter().map(first).for_each(|id| self.connecting(id));
        if written.consumer_lost {
            self.consumer_lost();
        }
        Ok(())
    }

    /// Adds what another process knows of a message. It was delivered again if both know of a delivery; that is not
    /// allowed if both had the flag that it was the first, or if the acknowledgements of both were answered.
    fn merge_entry(&self, mine: &AtomicU8, theirs: Entry) {
        let before = change(mine, |Entry(mine)| {
            Entry(mine | (theirs.0 & !ACKNOWLEDGED)).acknowledged_as(theirs.acknowledged())
        });
        if !(before.was_delivered() && theirs.was_delivered()) {
            return;
        }
        let both = |is: fn(Entry) -> bool| is(before) && is(theirs);
        self.counts.delivered.fetch_sub(1, Relaxed);
        self.counts.consumed.fetch_sub(u64::from(both(|entry| entry.acknowledged() > 0)), Relaxed);
        if both(|entry| entry.has(FRESH)) || both(Entry::is_settled) {
            // nobody knows in which epochs of the server
            self.counts.duplicated.add(Seen::Across);
        } else {
            self.counts.redelivered.fetch_add(1, Relaxed);
        }
    }

    /// How many numbers of messages, from 0, may have anything to tell.
    fn reached(&self) -> u64 {
        (self.counts.rounds.load(Relaxed) * self.producers).max(self.reached.load(Relaxed))
    }

    pub(crate) fn totals(&self) -> Totals {
        let count = |of: &AtomicU64| of.load(Relaxed);
        let counts = &self.counts;
        Totals {
            published: count(&counts.published),
            unknown: count(&counts.unknown),
            failed: count(&counts.failed),
            delivered: count(&counts.delivered),
            redelivered: count(&counts.redelivered),
            duplicated: counts.duplicated.all(),
            torn: count(&counts.torn),
            foreign: count(&counts.foreign),
            reordered: counts.reordered.all() + self.reordered_unflagged(Damage::all),
        }
    }

    /// How many of the duplicated and the reordered deliveries were seen within one epoch of the server.
    pub(crate) fn within_epoch(&self) -> [u64; 2] {
        let Counts { duplicated, reordered, .. } = &self.counts;
        let reordered = reordered.within_epoch() + self.reordered_unflagged(Damage::within_epoch);
        [duplicated.within_epoch(), reordered]
    }

    /// How many of them were seen when a boundary was under way.
    pub(crate) fn between(&self) -> [u64; 2] {
        let Counts { duplicated, reordered, .. } = &self.counts;
        [duplicated.between(), reordered.between() + self.reordered_unflagged(Damage::between)]
    }

    /// What came late without a flag, if that proves anything.
    fn reordered_unflagged(&self, count: fn(&Damage) -> u64) -> u64 {
        if self.consumer_lost.load(Relaxed) { 0 } else { count(&self.counts.reordered_unflagged) }
    }

    /// The entries of all messages that were loaded or sent. To be called once every client is done.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let sent = (0..self.reached()).filter_map(|number| self.sent.made(number));
        self.loaded.iter().chain(sent).map(|byte| Entry(byte.load(Relaxed)))
    }

    /// How many messages were lost at the first crash although it kept one that the same producer had sent later: holes,
    /// and not the end of what was published. None if that is not known: there was no crash, or some were lost at another
    /// one, or nobody knows when the server had ended. To be called once every client is done.
    pub(crate) fn holes(&self) -> Option<u64> {
        let before = self.before_crash.get()?;
        let (now, connections) = (self.epochs.now(), self.connections().0);
        if now == Epoch::FIRST || !now.lasts(now) || self.entries().any(Entry::was_lost_later) {
            return None;
        }
        let mut holes = holes_in(self.loaded.iter());
        for producer in 0..self.producers {
            let rounds = 0..self.counts.rounds.load(Relaxed);
            let of = |round: u64| self.sent.made(round * self.producers + producer);
            // a connection did not outlive the crash, so that all of it was sent before
            let was_before = |round: u64| {
                let id = Id { producer: u32::try_from(producer).unwrap_or(LOADED), sequence: round };
                let first = connections.range(Id { sequence: 0, ..id }..=id).next_back();
                first.is_some_and(|first| before.contains(first))
            };
            let (sent_before, sent_after): (Vec<u64>, Vec<u64>) =
                rounds.partition(|round| was_before(*round));
            let is_lost = |byte: &AtomicU8| Entry(byte.load(Relaxed)).is_lost();
            if sent_after.into_iter().filter_map(of).any(is_lost) {
                return None;
            }
            holes += holes_in(sent_before.into_iter().filter_map(of));
        }
        Some(holes)
    }

    /// The byte of a message that a producer of the trial may send, allocated if need be.
    fn made(&self, id: Id) -> Option<&AtomicU8> {
        match id.producer {
            LOADED => self.loaded.get(usize::try_from(id.sequence).ok()?),
            _ => self.sent.at(self.number(id)?),
        }
    }

    /// The byte of a message that was sent; `None` for any other id, whose message is foreign.
    fn known(&self, id: Id) -> Option<&AtomicU8> {
        let byte = match id.producer {
            LOADED => self.loaded.get(usize::try_from(id.sequence).ok()?),
            _ if self.part.has(id.producer as usize) => self.sent.made(self.number(id)?),
            _ => {
                let number = self.number(id)?;
                let byte = self.sent.at(number)?;
                self.reached.fetch_max(number + 1, Relaxed);
                return Some(byte);
            }
        };
        // the process that loaded the backlog is the one that judges the trial
        let is_elsewhere = id.producer == LOADED && !self.part.is_whole();
        byte.filter(|byte| is_elsewhere || Entry(byte.load(Relaxed)).published() != PublishState::Never)
    }

    fn number(&self, id: Id) -> Option<u64> {
        let producer = u64::from(id.producer);
        let round = id.sequence.checked_mul(self.producers)?;
        (producer < self.producers).then_some(round.checked_add(producer)?)
    }
}

/// How many of these messages were lost before one that was delivered in a later epoch of the server.
fn holes_in<'a>(messages: impl Iterator<Item = &'a AtomicU8>) -> u64 {
    let (mut holes, mut lost) = (0, 0);
    for byte in messages {
        let entry = Entry(byte.load(Relaxed));
        if entry.is_lost() {
            lost += 1;
        } else if entry.has(LATER) {
            holes += std::mem::take(&mut lost);
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Event {
        Completion,
        Delivered(Option<bool>),
        AckAnswer,
    }

    const EVENTS: [Event; 4] = [
        Event::Delivered(None),
        Event::Delivered(Some(true)),
        Event::Delivered(Some(false)),
        Event::AckAnswer,
    ];

    proptest! {
        /// A message's byte tells how its publishing ended, whether it was delivered and how often too often, in
        /// whatever order these were recorded.
        #[test]
        fn a_byte_tells_what_happened_in_whatever_order(
            mut told in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..8),
            at: prop::sample::Index,
            how in prop::sample::select(vec![PublishState::Sent, PublishState::Ok, PublishState::Failed]),
        ) {
            let ledger = Ledger::new(3, 0);
            let id = Id { producer: 1, sequence: 4 };
            ledger.delivered(id, None);
            prop_assert_eq!(ledger.totals().foreign, 1, "it was not sent yet");
            ledger.sending(id);
            told.insert(at.index(told.len() + 1), Event::Completion);
            for event in &told {
                match *event {
                    Event::Completion => ledger.published(id, how),
                    Event::Delivered(flagged) => _ = ledger.delivered(id, flagged),
                    Event::AckAnswer => ledger.acknowledged([id], AckAnswer::Answered),
                }
            }
            let count = |wanted: &[Event]| told.iter().filter(|event| wanted.contains(event)).count() as u64;
            let last = |wanted| told.iter().rposition(|event| *event == wanted);
            let (delivered, fresh, settled) = (count(&EVENTS[..3]), count(&EVENTS[2..3]), count(&EVENTS[3..]));

            let entries: Vec<_> =
                ledger.entries().filter(|entry| entry.published() != PublishState::Never).collect();
            prop_assert_eq!(entries.len(), 1);
            prop_assert_eq!((entries[0].published(), entries[0].was_delivered()), (how, delivered > 0));
            prop_assert_eq!(entries[0].is_lost(), how == PublishState::Ok && settled == 0);
            prop_assert_eq!(entries[0].was_lost_in_hand(), entries[0].is_lost() && delivered > 0);
            prop_assert_eq!(ledger.outstanding(), u64::from(entries[0].is_lost()));
            let totals = ledger.totals();
            let ended = [PublishState::Sent, PublishState::Ok, PublishState::Failed].map(|each| u64::from(each == how));
            prop_assert_eq!([totals.unknown, totals.published, totals.failed], ended);
            prop_assert_eq!(totals.delivered, delivered.min(1));
            let again = fresh.saturating_sub(1);
            prop_assert_eq!(totals.redelivered, delivered.saturating_sub(1) - again);
            let settled_again = settled.saturating_sub(1);
            let possible = again.max(settled_again)..=again + settled_again;
            prop_assert!(possible.contains(&totals.duplicated), "{:?}: {:?}", told, totals);
            // a duplicate that is counted on delivery is not counted again when it is acknowledged
            if (again, settled_again) == (1, 1) && last(EVENTS[2]) < last(EVENTS[3]) {
                prop_assert_eq!(totals.duplicated, 1, "{:?}", told);
            }
        }
    }

    /// With the store's flag that it was not delivered before, no lost consumer explains a message that comes late.
    #[test]
    fn a_flag_proves_an_order_wrong_whoever_was_lost() {
        let (ledger, id) = (Ledger::new(1, 0), Id { producer: 0, sequence: 0 });
        ledger.reordered(id, None);
        ledger.reordered(id, Some(false));
        assert_eq!(ledger.totals().reordered, 2);
        ledger.consumer_lost();
        assert_eq!(ledger.totals().reordered, 1);
        ledger.consumer_done();
        ledger.reordered(id, Some(false));
        assert_eq!(ledger.totals().reordered, 2);
    }

    /// What comes twice is the store's fault, and no loss of what it knew, if it was sent in the epoch in which it comes.
    #[test]
    fn a_crash_explains_only_what_was_sent_before_it() {
        let ledger = Ledger::new(2, 1);
        let twice = |producer, sequence| {
            let id = Id { producer, sequence };
            ledger.sending(id);
            (0..2).for_each(|_| _ = ledger.delivered(id, Some(false)));
            let late = Id { producer, sequence: 0 };
            ledger.reordered(late, Some(false));
            ledger.within_epoch()
        };
        assert_eq!(twice(LOADED, 0), [1, 1]);
        assert_eq!(twice(0, 6), [2, 2]);
        ledger.note_boundary(Boundary::Before);
        assert_eq!(twice(0, 7), [3, 3]);
        ledger.note_boundary(Boundary::During);
        assert_eq!(twice(0, 9), [3, 3], "nobody knows whether it was sent before the crash");
        ledger.note_boundary(Boundary::After);
        assert_eq!(twice(1, 8), [3, 3], "another producer may have sent it before the crash");
        assert_eq!(twice(1, 10), [4, 3], "and what comes late may have been sent before it");
        assert_eq!(twice(LOADED, 0), [4, 3]);
        assert_eq!((ledger.totals().duplicated, ledger.totals().reordered), (8, 7));
    }
}
