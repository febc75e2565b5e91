//! What a history shows: in which order values came to be in each object, who read which version, and what is wrong without
//! looking at cycles.
//!
//! # Rules
//!
//! An accusation must follow from what is certain:
//!
//! - Only reads of committed transactions accuse, and only they tell the order of a list.
//! - An aborted transaction has no version. If a committed one saw its write, that is the anomaly.
//! - A transaction of unknown outcome counts as committed if a committed one saw a write of it (*recovered*). Whoever forbids
//!   what follows from that forbids the read, if it was not committed. Otherwise nothing is held against anybody because of it,
//!   neither its writes nor its reads.
//! - Values whose writer is not in the history are passed over, if transactions were left out of the history.
//! - Lists that contradict each other are compared again by the values of committed transactions alone. Only if these
//!   contradict each other, too, is it held against the store.
//! - An append that a later read of the whole list lacks is lost. It comes neither before nor after anything.
//! - Of two transactions that replaced the same version, it may not be known which came first. One of them missed the other's
//!   write, and the other wrote before it: that is a lost update, and no write skew.
//! - A disruption of the store ends an epoch. Objects begin anew in each epoch, and a transaction that spans a disruption proves
//!   nothing: what is missing afterwards may be lost, which is for an audit of durability to say.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    Anomaly, Error, Operation, Outcome, Source, Transaction,
    hash::{Map, Set},
    witness::Witness,
};

/// No transaction, no version, no position.
pub(crate) const NONE: u32 = u32::MAX;
/// The version of a register that was never written.
const INITIAL: u32 = u32::MAX - 1;
/// Most transactions: two bits of a number are for the kind of an edge.
pub(crate) const MOST: u32 = (1 << 30) - 1;
/// Most transactions that are linked to the readers of a version as those that replaced it. More than one did so only if
/// updates were lost or were not read any more; leaving some out accuses nobody.
const SUCCESSORS: usize = 4;

/// What is known of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) start: u64,
    /// `u64::MAX` if it is open.
    pub(crate) end: u64,
    pub(crate) session: u32,
    pub(crate) sequence: u32,
    /// `NONE` if it spans a disruption.
    pub(crate) epoch: u32,
    /// Its writes stand together, by their objects and then in their order.
    first_write: u32,
    writes: u32,
    pub(crate) outcome: Outcome,
    /// Its outcome is unknown, but a committed transaction saw it.
    pub(crate) recovered: bool,
}

impl Header {
    /// Whether it is a node of the graph.
    pub(crate) fn counts(&self) -> bool {
        self.recovered || self.is_sure()
    }

    /// Whether it was acknowledged, and spans no disruption.
    pub(crate) fn is_sure(&self) -> bool {
        self.outcome == Outcome::Committed && self.epoch != NONE
    }
}

#[derive(Clone, Copy, Debug)]
struct Written {
    transaction: u32,
    object: u32,
    /// Of a list: the value's place in the order. Of a register: the version that its transaction read before, or `NONE`.
    at: u32,
    /// The same transaction replaced it later.
    intermediate: bool,
}

/// A list or a register in an epoch.
#[derive(Debug)]
pub(crate) struct Object {
    place: u64,
    /// Of a list: the values of the longest read.
    pub(crate) order: Vec<u64>,
    /// For each value of the order its transaction, if it is a node.
    pub(crate) writers: Vec<u32>,
    intermediate: Vec<bool>,
    /// Who read the order.
    reader: u32,
    /// When the last of those started that read the whole order.
    read_last: u64,
    /// Reads contradict each other.
    contested: bool,
}

impl Object {
    pub(crate) fn is_list(&self) -> bool {
        self.place >> 32 & 1 == 0
    }

    pub(crate) fn key(&self) -> u64 {
        self.place & u64::from(u32::MAX)
    }
}

fn list(key: u32) -> u64 {
    key.into()
}

fn register(key: u32) -> u64 {
    u64::from(key) | 1 << 32
}

/// A version that a transaction read before writing the object itself.
#[derive(Clone, Copy, Debug)]
struct Seen {
    node: u32,
    object: u32,
    /// Of a list: how many values it held, those that the transaction itself had appended at its end not counted. Of a
    /// register: who wrote it, as the number of the write.
    version: u32,
    operation: u32,
    /// The transaction had written the object before it read it.
    after_write: bool,
}

/// A transaction that wrote an object after it had read this version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Update {
    object: u32,
    version: u32,
    node: u32,
}

/// A version of an object, as one number.
fn pair(object: u32, version: u32) -> u64 {
    u64::from(object) << 32 | u64::from(version)
}

/// What was found without a cycle.
#[derive(Debug)]
pub(crate) struct Direct {
    /// What occurred, by the unit that is counted.
    units: Set,
    size: usize,
    pub(crate) witness: Witness,
}

impl Direct {
    pub(crate) fn count(&self) -> u64 {
        self.units.len() as u64
    }
}

/// When the store may have been disrupted.
pub(crate) struct Windows(Vec<(u64, u64)>);

impl Windows {
    pub(crate) fn new(mut windows: Vec<(u64, u64)>) -> Self {
        windows.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::new();
        for (from, until) in windows {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => apart.push((from, until)),
            }
        }
        Self(apart)
    }

    fn epoch(&self, start: u64, end: u64) -> u32 {
        let before = self.0.partition_point(|window| window.1 < start);
        if self.0.get(before).is_some_and(|window| window.0 <= end) { NONE } else { number(before) }
    }
}

/// All that is kept is fewer than the transactions that were allowed times their operations; see `TooLong`.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn number(n: usize) -> u32 {
    debug_assert!(n < NONE as usize);
    n as u32
}

pub(crate) struct Observed {
    windows: Windows,
    pub(crate) left_out: u64,
    /// In the order in which they started.
    pub(crate) headers: Vec<Header>,
    /// Position in the source of each of them, and the reverse.
    pub(crate) position: Vec<u32>,
    node: Vec<u32>,
    writes: Vec<Written>,
    values: Map<u32>,
    pub(crate) objects: Vec<Object>,
    object: Map<u32>,
    seen: Vec<Seen>,
    updates: Vec<Update>,
    pub(crate) direct: BTreeMap<Anomaly, Direct>,
    /// Values that were read and whose writer is not in the history, which lacks some.
    pub(crate) unattributed: Set,
    error: Option<Error>,
}

impl Observed {
    pub(crate) fn new(source: &mut dyn Source, windows: Windows) -> Result<Self, Error> {
        let mut observed = Self {
            windows,
            left_out: 0,
            headers: Vec::new(),
            position: Vec::new(),
            node: Vec::new(),
            writes: Vec::new(),
            values: Map::default(),
            objects: Vec::new(),
            object: Map::default(),
            seen: Vec::new(),
            updates: Vec::new(),
            direct: BTreeMap::new(),
            unattributed: Set::default(),
            error: None,
        };
        source.pass(&mut |transaction| observed.note_writes(transaction))?;
        observed.left_out = source.left_out();
        if let Some(error) = observed.error {
            return Err(error);
        }
        observed.number_by_start();
        for object in 0..observed.objects.len() {
            observed.resolve(object);
        }
        let mut at = 0;
        source.pass(&mut |transaction| {
            let node = observed.node[at];
            at += 1;
            observed.note_reads(node, transaction);
        })?;
        if observed.objects.iter().any(|object| object.contested) {
            observed.settle_contested(source)?;
        }
        observed.lost_updates();
        observed.vanished();
        Ok(observed)
    }

    fn found(&mut self, anomaly: Anomaly, unit: u64, size: usize, witness: impl FnOnce() -> Witness) {
        if let Some(direct) = self.direct.get_mut(&anomaly) {
            direct.units.insert(unit);
            if size < direct.size {
                direct.size = size;
                direct.witness = witness();
            }
        } else {
            let units = std::iter::once(unit).collect();
            self.direct.insert(anomaly, Direct { units, size, witness: witness() });
        }
    }

    fn object(&mut self, place: u64, epoch: u32) -> u32 {
        let next = number(self.objects.len());
        let object = *self.object.entry(place | u64::from(epoch) << 33).or_insert(next);
        if object == next {
            self.objects.push(Object {
                place,
                order: Vec::new(),
                writers: Vec::new(),
                intermediate: Vec::new(),
                reader: NONE,
                read_last: 0,
                contested: false,
            });
        }
        object
    }

    /// First pass: who wrote what, and the longest read of each list.
    fn note_writes(&mut self, transaction: &Transaction) {
        if self.headers.len() >= MOST as usize
            || self.writes.len() + transaction.operations.len() >= INITIAL as usize
        {
            self.error.get_or_insert(Error::TooLong(MOST));
            return;
        }
        let index = number(self.headers.len());
        // an open transaction may take effect later: it is held to be of the epoch that it began in, and seen in no other
        let epoch = self.windows.epoch(transaction.start, transaction.end.unwrap_or(transaction.start));
        let first_write = number(self.writes.len());
        let operations = transaction.operations.iter().zip(0_u32..);
        let mut writes: Vec<(u32, u32, u64)> = operations
            .filter_map(|(operation, at)| {
                written(operation).map(|(place, value)| (self.object(place, epoch), at, value))
            })
            .collect();
        writes.sort_unstable();
        for (at, &(object, _, value)) in writes.iter().enumerate() {
            let intermediate = writes.get(at + 1).is_some_and(|&(next, ..)| next == object);
            let next = number(self.writes.len());
            if self.values.insert(value, next).is_some() {
                self.error.get_or_insert(Error::Repeated(value));
            }
            self.writes.push(Written { transaction: index, object, at: NONE, intermediate });
        }
        self.headers.push(Header {
            start: transaction.start,
            end: transaction.end.unwrap_or(u64::MAX),
            session: transaction.session,
            sequence: transaction.sequence,
            epoch,
            first_write,
            writes: number(self.writes.len()) - first_write,
            outcome: transaction.outcome,
            recovered: false,
        });
        if transaction.outcome != Outcome::Committed || epoch == NONE {
            return;
        }
        for operation in &transaction.operations {
            let Operation::ReadList { key, values } = operation else { continue };
            let before = without_own(values, *key, transaction);
            let object = self.object(list(*key), epoch);
            let object = &mut self.objects[object as usize];
            if before.len() > object.order.len() || object.reader == NONE {
                object.order.clear();
                object.order.extend_from_slice(before);
                object.reader = index;
                object.read_last = transaction.start;
            } else if before.len() == object.order.len() {
                object.read_last = object.read_last.max(transaction.start);
            }
        }
    }

    /// Numbers the transactions by when they started, so that nothing depends on how they are spread over files.
    fn number_by_start(&mut self) {
        let keys = self.headers.iter().zip(0..);
        let mut keys: Vec<_> =
            keys.map(|(header, at)| (header.start, header.session, header.sequence, at)).collect();
        // fast where each file is in order already, unlike an unstable sort
        #[allow(clippy::stable_sort_primitive)]
        keys.sort();
        self.position = keys.into_iter().map(|(.., at)| at).collect();
        self.node = vec![0; self.position.len()];
        for (node, &at) in self.position.iter().enumerate() {
            self.node[at as usize] = number(node);
        }
        self.headers = self.position.iter().map(|&at| self.headers[at as usize]).collect();
        for write in &mut self.writes {
            write.transaction = self.node[write.transaction as usize];
        }
        for object in &mut self.objects {
            if object.reader != NONE {
                object.reader = self.node[object.reader as usize];
            }
        }
    }

    /// Finds the writer of each value of a list's order.
    fn resolve(&mut self, object: usize) {
        let order = std::mem::take(&mut self.objects[object].order);
        let mut writers = Vec::with_capacity(order.len());
        let mut intermediate = Vec::with_capacity(order.len());
        let mut aborted: Vec<(u32, u64)> = Vec::new();
        for (at, &value) in order.iter().enumerate() {
            let write = self.attribute(object, self.objects[object].reader, value, order.len());
            let Some(write) = write else {
                writers.push(NONE);
                intermediate.push(false);
                continue;
            };
            let written = self.writes[write as usize];
            let header = self.headers[written.transaction as usize];
            let here = written.object as usize == object;
            if here && written.at != NONE {
                self.twice(object, self.objects[object].reader, value, order.len());
                writers.push(NONE);
                intermediate.push(false);
                continue;
            }
            if here {
                self.writes[write as usize].at = number(at);
            }
            match header.outcome {
                Outcome::Aborted => aborted.push((written.transaction, value)),
                Outcome::Committed => {
                    for (writer, of) in aborted.drain(..) {
                        let reader = self.objects[object].reader;
                        let (value, other) = (of, written.transaction);
                        self.found(Anomaly::DirtyUpdate, writer.into(), order.len(), || Witness::Value {
                            reader,
                            writer,
                            other,
                            object: number(object),
                            value,
                        });
                    }
                }
                Outcome::Unknown if here => self.headers[written.transaction as usize].recovered = true,
                Outcome::Unknown => {}
            }
            let counts = here && self.headers[written.transaction as usize].counts();
            writers.push(if counts { written.transaction } else { NONE });
            intermediate.push(here && written.intermediate && header.outcome == Outcome::Committed);
        }
        self.objects[object].order = order;
        self.objects[object].writers = writers;
        self.objects[object].intermediate = intermediate;
    }

    /// The write of a value that a committed transaction read, or nothing if nobody wrote it there. Notes aborted reads.
    fn attribute(&mut self, object: usize, reader: u32, value: u64, size: usize) -> Option<u32> {
        let write = self.values.get(&value).copied();
        let place = self.objects[object].place;
        let there =
            write.filter(|&write| self.objects[self.writes[write as usize].object as usize].place == place);
        let object = number(object);
        let witness = |writer| Witness::Value { reader, writer, other: NONE, object, value };
        let Some(there) = there else {
            if write.is_none() && self.left_out > 0 {
                self.unattributed.insert(value);
            } else {
                let writer = write.map_or(NONE, |write| self.writes[write as usize].transaction);
                self.found(Anomaly::GarbageRead, value, size, || witness(writer));
            }
            return None;
        };
        let writer = self.writes[there as usize].transaction;
        if self.headers[writer as usize].outcome == Outcome::Aborted && writer != reader {
            self.found(Anomaly::G1a, writer.into(), size, || witness(writer));
        }
        Some(there)
    }

    /// A committed transaction read a value twice in one list.
    fn twice(&mut self, object: usize, reader: u32, value: u64, size: usize) {
        let writer = self.values.get(&value).map_or(NONE, |&write| self.writes[write as usize].transaction);
        // what became of a write without an answer is not known
        let sure = writer != NONE && self.headers[writer as usize].outcome != Outcome::Unknown;
        if sure {
            let object = number(object);
            self.found(Anomaly::DuplicateElements, value, size, || Witness::Value {
                reader,
                writer,
                other: NONE,
                object,
                value,
            });
        }
    }

    /// Second pass: who read which version, and what a transaction alone shows.
    fn note_reads(&mut self, node: u32, transaction: &Transaction) {
        let header = self.headers[node as usize];
        if header.epoch == NONE || header.outcome == Outcome::Aborted {
            return;
        }
        let sure = header.outcome == Outcome::Committed;
        if sure && let Some(total) = transaction.total.filter(|total| total.observed != total.expected) {
            let anomaly = if total.after_write { Anomaly::WrongTotalAfterWrite } else { Anomaly::WrongTotal };
            self.found(anomaly, node.into(), 0, || Witness::Total { node });
        }
        for (at, operation) in transaction.operations.iter().enumerate() {
            match operation {
                Operation::ReadList { key, values } => {
                    let object = self.object(list(*key), header.epoch);
                    if sure {
                        self.look_at_list(node, object, transaction, at);
                    }
                    let before = without_own(values, *key, transaction);
                    let known = &self.objects[object as usize];
                    if known.order.starts_with(before) {
                        self.saw(node, object, number(before.len()), transaction, at, true);
                    } else if sure {
                        self.objects[object as usize].contested = true;
                    }
                }
                Operation::ReadRegister { key, value } => {
                    let object = self.object(register(*key), header.epoch);
                    self.look_at_register(node, object, transaction, at, *value);
                }
                Operation::Append { .. } | Operation::Write { .. } | Operation::Transfer { .. } => {}
            }
        }
    }

    /// Notes a version that was read from outside, and that the transaction replaced it, if it did. `exact` says that it read
    /// nothing beside this version.
    fn saw(
        &mut self,
        node: u32,
        object: u32,
        version: u32,
        transaction: &Transaction,
        at: usize,
        exact: bool,
    ) {
        let operations = &transaction.operations;
        let place = self.objects[object as usize].place;
        let is_write = |operation: &Operation| written(operation).is_some_and(|(to, _)| to == place);
        let after_write = operations[..at].iter().any(is_write);
        self.seen.push(Seen { node, object, version, operation: number(at), after_write });
        // an intermediate value: the last one of a list, or that of the register
        let last = if place >> 32 & 1 == 0 {
            let last = (version as usize).checked_sub(1);
            last.filter(|&last| self.objects[object as usize].intermediate[last]).map(|last| {
                let value = self.objects[object as usize].order[last];
                (value, self.values[&value])
            })
        } else {
            None
        };
        if let Some((value, write)) = last {
            self.intermediate(node, object, value, write);
        }
        if !exact || after_write {
            return;
        }
        // the last read before the first write
        let Some(write) = operations[at + 1..].iter().position(is_write) else { return };
        let again = operations[at + 1..at + 1 + write].iter().any(|operation| read(operation) == Some(place));
        if !again {
            self.updates.push(Update { object, version, node });
            if place >> 32 & 1 == 1 {
                for write in self.writes_to(object, node) {
                    self.writes[write].at = version;
                }
            }
        }
    }

    fn intermediate(&mut self, reader: u32, object: u32, value: u64, write: u32) {
        let Written { transaction: writer, intermediate, .. } = self.writes[write as usize];
        let (by, of) = (self.headers[reader as usize], self.headers[writer as usize]);
        // a disruption may have lost the rest of it
        let sure = by.is_sure() && of.is_sure() && by.epoch == of.epoch;
        if sure && intermediate && writer != reader {
            self.found(Anomaly::G1b, writer.into(), 0, || Witness::Value {
                reader,
                writer,
                other: NONE,
                object,
                value,
            });
        }
    }

    /// What a read of a list shows together with the transaction's own operations.
    fn look_at_list(&mut self, node: u32, object: u32, transaction: &Transaction, at: usize) {
        let Operation::ReadList { key, values } = &transaction.operations[at] else { return };
        let earlier = &transaction.operations[..at];
        let own = || {
            earlier.iter().filter_map(|operation| match operation {
                Operation::Append { key: to, value } if to == key => Some(*value),
                _ => None,
            })
        };
        let before = without_own(values, *key, transaction);
        let tail = &values[before.len()..];
        let witness = || Witness::Own { node, object };
        if !own().eq(tail.iter().copied()) {
            let twice = (1..tail.len()).find(|&at| tail[..at].contains(&tail[at]));
            let future = tail.iter().any(|value| !own().any(|own| own == *value));
            if let Some(at) = twice {
                self.twice(object as usize, node, tail[at], values.len());
            } else if future {
                self.found(Anomaly::FutureRead, node.into(), values.len(), witness);
            } else if own().any(|own| !values.contains(&own)) {
                self.found(Anomaly::Internal, node.into(), values.len(), witness);
            } else {
                let unit = pair(object, number(before.len()));
                self.found(Anomaly::NonRepeatableReadAfterWrite, unit, values.len(), witness);
            }
        }
        let last = earlier.iter().rev().find_map(|operation| match operation {
            Operation::ReadList { key: of, values } if of == key => {
                Some(without_own(values, *key, transaction))
            }
            _ => None,
        });
        if let Some(last) = last.filter(|last| *last != before) {
            let unit = pair(object, number(last.len()));
            let after_write = own().next().is_some();
            let anomaly =
                if after_write { Anomaly::NonRepeatableReadAfterWrite } else { Anomaly::NonRepeatableRead };
            self.found(anomaly, unit, values.len(), witness);
        }
    }

    fn look_at_register(
        &mut self,
        node: u32,
        object: u32,
        transaction: &Transaction,
        at: usize,
        value: Option<u64>,
    ) {
        let header = self.headers[node as usize];
        let sure = header.is_sure();
        let place = self.objects[object as usize].place;
        let earlier = &transaction.operations[..at];
        let own = earlier.iter().rev().find_map(|earlier| written(earlier).filter(|&(to, _)| to == place));
        let witness = || Witness::Own { node, object };
        if let Some((_, own)) = own {
            if sure && value != Some(own) {
                self.found(Anomaly::Internal, node.into(), 0, witness);
            }
            return;
        }
        let last = earlier.iter().rev().find_map(|operation| match operation {
            Operation::ReadRegister { key, value } if register(*key) == place => Some(*value),
            _ => None,
        });
        if sure && let Some(last) = last.filter(|last| *last != value) {
            let version = last.map_or(INITIAL, |last| self.values.get(&last).copied().unwrap_or(NONE));
            self.found(Anomaly::NonRepeatableRead, pair(object, version), 0, witness);
        }
        let Some(value) = value else {
            self.saw(node, object, INITIAL, transaction, at, true);
            return;
        };
        if !sure {
            // what it saw tells only if its writer is known
            let write = self.values.get(&value).copied();
            let there = write.filter(|&write| self.writes[write as usize].object == object);
            if let Some(write) = there.filter(|&write| self.writes[write as usize].transaction != node) {
                self.saw(node, object, write, transaction, at, true);
            }
            return;
        }
        let Some(write) = self.attribute(object as usize, node, value, 0) else { return };
        let written = self.writes[write as usize];
        if written.transaction == node {
            self.found(Anomaly::FutureRead, node.into(), 0, witness);
            return;
        }
        let writer = &mut self.headers[written.transaction as usize];
        if writer.outcome == Outcome::Unknown && written.object == object {
            writer.recovered = true;
        }
        if writer.outcome == Outcome::Aborted {
            let by = written.transaction;
            let replaces =
                |operation: &Operation| self::written(operation).is_some_and(|(to, _)| to == place);
            if transaction.operations[at..].iter().any(replaces) {
                self.found(Anomaly::DirtyUpdate, by.into(), 0, || Witness::Value {
                    reader: node,
                    writer: by,
                    other: node,
                    object,
                    value,
                });
            }
            return;
        }
        self.intermediate(node, object, value, write);
        self.saw(node, object, write, transaction, at, true);
    }

    /// Third and fourth pass: lists whose reads contradict each other are compared by the values of committed transactions.
    fn settle_contested(&mut self, source: &mut dyn Source) -> Result<(), Error> {
        let objects = &mut self.objects;
        self.seen.retain(|seen| !objects[seen.object as usize].contested);
        self.updates.retain(|update| !objects[update.object as usize].contested);
        for object in objects.iter_mut().filter(|object| object.contested) {
            object.order.clear();
            object.reader = NONE;
        }
        for write in &mut self.writes {
            if objects[write.object as usize].contested {
                write.at = NONE;
            }
        }
        let mut at = 0;
        source.pass(&mut |transaction| {
            let node = self.node[at];
            at += 1;
            self.each_contested(node, transaction, |observed, object, filtered, _, _| {
                let object = &mut observed.objects[object as usize];
                if filtered.len() > object.order.len() || object.reader == NONE {
                    object.order = filtered;
                    object.reader = node;
                }
            });
        })?;
        for object in 0..self.objects.len() {
            if self.objects[object].contested {
                self.resolve(object);
            }
        }
        let mut at = 0;
        source.pass(&mut |transaction| {
            let node = self.node[at];
            at += 1;
            self.each_contested(node, transaction, |observed, object, filtered, operation, exact| {
                let known = &observed.objects[object as usize];
                if known.order.starts_with(&filtered) {
                    observed.saw(node, object, number(filtered.len()), transaction, operation, exact);
                } else {
                    let (one, size) = (known.reader, filtered.len());
                    observed.found(Anomaly::IncompatibleOrder, object.into(), size, || Witness::Orders {
                        one,
                        other: node,
                        object,
                    });
                }
            });
        })?;
        self.seen.sort_unstable_by_key(|seen| (seen.node, seen.operation));
        Ok(())
    }

    /// Hands on each read of a contested list by a committed transaction, with the values of committed ones.
    fn each_contested(
        &mut self,
        node: u32,
        transaction: &Transaction,
        mut each: impl FnMut(&mut Self, u32, Vec<u64>, usize, bool),
    ) {
        let header = self.headers[node as usize];
        if !header.is_sure() {
            return;
        }
        for (at, operation) in transaction.operations.iter().enumerate() {
            let Operation::ReadList { key, values } = operation else { continue };
            let object = self.object(list(*key), header.epoch);
            if !self.objects[object as usize].contested {
                continue;
            }
            let mut filtered = Vec::with_capacity(values.len());
            let before = without_own(values, *key, transaction);
            for &value in before {
                let write = self.attribute(object as usize, node, value, values.len());
                let Some(write) = write else { continue };
                let written = self.writes[write as usize];
                let writer = self.headers[written.transaction as usize];
                if written.object != object || writer.outcome != Outcome::Committed {
                    continue;
                }
                if filtered.contains(&value) {
                    self.twice(object as usize, node, value, values.len());
                } else {
                    filtered.push(value);
                }
            }
            let exact = filtered == before;
            each(self, object, filtered, at, exact);
        }
    }

    fn lost_updates(&mut self) {
        self.updates.sort_unstable();
        let updates = std::mem::take(&mut self.updates);
        for of_version in updates.chunk_by(|a, b| (a.object, a.version) == (b.object, b.version)) {
            let mut sure = of_version.iter().filter(|update| self.headers[update.node as usize].is_sure());
            let (Some(first), Some(second)) = (sure.next(), sure.next()) else { continue };
            let Update { object, version, node: one } = *first;
            let other = second.node;
            self.found(Anomaly::LostUpdate, pair(object, version), version as usize, || Witness::Lost {
                one,
                other,
                object,
            });
        }
        self.updates = updates;
    }

    /// Finds transactions that saw one write of another, and afterwards another object without its write.
    fn vanished(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        for of_node in seen.chunk_by(|a, b| a.node == b.node) {
            let observer = of_node[0].node;
            if of_node.len() < 2 || !self.headers[observer as usize].is_sure() {
                continue;
            }
            for (at, first) in of_node.iter().enumerate() {
                let writer = self.writer_of(first);
                if writer == NONE {
                    continue;
                }
                let missed = of_node[at + 1..].iter().find(|then| self.misses(then, first.object, writer));
                if let Some(missed) = missed {
                    let anomaly = if first.after_write {
                        Anomaly::ObservedTransactionVanishesAfterWrite
                    } else {
                        Anomaly::ObservedTransactionVanishes
                    };
                    let (first, missed) = (first.object, missed.object);
                    self.found(anomaly, writer.into(), 0, || Witness::Vanishes {
                        observer,
                        writer,
                        first,
                        missed,
                    });
                }
            }
        }
        self.seen = seen;
    }

    /// Whether the version is one from before the writer's write of this object.
    fn misses(&self, seen: &Seen, other_than: u32, writer: u32) -> bool {
        let is_list = self.objects[seen.object as usize].is_list();
        seen.object != other_than
            && self.writes[self.writes_to(seen.object, writer)].iter().any(|write| {
                if is_list { write.at != NONE && write.at >= seen.version } else { write.at == seen.version }
            })
    }

    /// Where the writes of a transaction to an object stand.
    fn writes_to(&self, object: u32, node: u32) -> Range<usize> {
        let header = self.headers[node as usize];
        let first = header.first_write as usize;
        let all = &self.writes[first..first + header.writes as usize];
        let from = all.partition_point(|write| write.object < object);
        let of = all[from..].iter().take_while(|write| write.object == object).count();
        first + from..first + from + of
    }

    /// Whether the transaction replaced the version of a register itself. Whoever else did came before it or after it, which is
    /// not known: two edges of kind rw between them would be a write skew, but it is a lost update. Longer cycles by such an
    /// edge are not seen, either; every level that forbids them forbids the lost update.
    fn replaced(&self, seen: &Seen) -> bool {
        self.writes[self.writes_to(seen.object, seen.node)].iter().any(|write| write.at == seen.version)
    }

    /// The same of lists, for two transactions whose appends nobody read: both replaced the version that one of them saw.
    fn both_replaced(&self, seen: &Seen, other: u32) -> bool {
        let &Seen { object, version, .. } = seen;
        let did = |node| self.updates.binary_search(&Update { object, version, node }).is_ok();
        did(seen.node) && did(other)
    }

    /// The transaction whose write was read last, if it is another one and a node.
    fn writer_of(&self, seen: &Seen) -> u32 {
        let object = &self.objects[seen.object as usize];
        if object.is_list() {
            let before = &object.writers[..seen.version as usize];
            let last = before.iter().rev().find(|&&writer| writer != NONE && writer != seen.node);
            return last.copied().unwrap_or(NONE);
        }
        let Some(write) = self.writes.get(seen.version as usize) else { return NONE };
        let counts = self.headers[write.transaction as usize].counts();
        if write.object == seen.object && counts { write.transaction } else { NONE }
    }

    /// Of each write to a register the first update of it, or past the end if there is none.
    fn first_updates(&self) -> Vec<u32> {
        let mut first = vec![number(self.updates.len()); self.writes.len()];
        for (at, update) in self.updates.iter().enumerate().rev() {
            if !self.objects[update.object as usize].is_list()
                && let Some(first) = first.get_mut(update.version as usize)
            {
                *first = number(at);
            }
        }
        first
    }

    /// Hands on the dependencies: from, to and kind of each.
    pub(crate) fn dependencies(&self, mut each: impl FnMut(u32, u32, Dependency)) {
        let mut tails: Map<Vec<u32>> = Map::default();
        for write in &self.writes {
            let object = &self.objects[write.object as usize];
            let writer = &self.headers[write.transaction as usize];
            // appended, acknowledged, and not in the longest read: it came later, or, if that read began after its writer had
            // ended, it is lost, which is for an audit of durability to say
            let later = writer.is_sure() && object.read_last <= writer.end;
            if object.is_list() && write.at == NONE && !object.contested && later {
                let tail = tails.entry(write.object.into()).or_default();
                if tail.last() != Some(&write.transaction) {
                    tail.push(write.transaction);
                }
            }
        }
        for (at, object) in self.objects.iter().enumerate() {
            let mut writers = object.writers.iter().copied().filter(|&writer| writer != NONE);
            let Some(mut last) = writers.next() else { continue };
            for writer in writers {
                if writer != last {
                    each(last, writer, Dependency::Ww);
                }
                last = writer;
            }
            for &writer in tails.get(&(at as u64)).into_iter().flatten().filter(|&&writer| writer != last) {
                each(last, writer, Dependency::Ww);
            }
        }
        let first = self.first_updates();
        for seen in &self.seen {
            if !self.headers[seen.node as usize].counts() {
                continue;
            }
            let writer = self.writer_of(seen);
            if writer != NONE && writer != seen.node {
                each(writer, seen.node, Dependency::Wr);
            }
            let object = &self.objects[seen.object as usize];
            // whoever read an intermediate value is accused of that alone
            let next = object.is_list().then(|| {
                let after = &object.writers[seen.version as usize..];
                after.iter().copied().find(|&next| next != NONE && next != writer)
            });
            match next {
                Some(Some(next)) if next == seen.node => {}
                Some(Some(next)) => each(seen.node, next, Dependency::Rw),
                Some(None) => {
                    let tail = tails.get(&seen.object.into()).into_iter().flatten();
                    let tail = tail.filter(|&&next| next != seen.node && next != writer).take(SUCCESSORS);
                    for &next in tail.filter(|&&next| !self.both_replaced(seen, next)) {
                        each(seen.node, next, Dependency::Rw);
                    }
                }
                None if self.replaced(seen) => {}
                None => {
                    let key = (seen.object, seen.version);
                    let of = |update: &Update| (update.object, update.version);
                    let from = first.get(seen.version as usize).map(|&first| first as usize);
                    let from = match from {
                        Some(from) if self.updates.get(from).is_none_or(|update| of(update) == key) => from,
                        _ => self.updates.partition_point(|update| of(update) < key),
                    };
                    let updates = self.updates[from..].iter();
                    let same = updates.take_while(|update| (update.object, update.version) == key);
                    let replaced = same.map(|update| update.node).filter(|&next| next != seen.node);
                    for next in replaced.filter(|&next| self.headers[next as usize].counts()).take(SUCCESSORS)
                    {
                        each(seen.node, next, Dependency::Rw);
                    }
                }
            }
        }
    }
}

/// For examples.
impl Observed {
    fn list_of(&self, node: u32, key: u32) -> Option<&Object> {
        let epoch = self.headers[node as usize].epoch;
        let object = self.object.get(&(list(key) | u64::from(epoch) << 33))?;
        Some(&self.objects[*object as usize])
    }

    /// The values of a list in their order, as far as they were read in the transaction's epoch.
    pub(crate) fn order_of(&self, node: u32, key: u32) -> &[u64] {
        self.list_of(node, key).map_or(&[], |object| &object.order)
    }
}

/// How one transaction depends on another by data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependency {
    /// It replaced what the other wrote.
    Ww,
    /// It read what the other wrote.
    Wr,
    /// It replaced what the other read.
    Rw,
}

fn written(operation: &Operation) -> Option<(u64, u64)> {
    match operation {
        Operation::Append { key, value } => Some((list(*key), *value)),
        Operation::Write { key, value } => Some((register(*key), *value)),
        Operation::ReadList { .. } | Operation::ReadRegister { .. } | Operation::Transfer { .. } => None,
    }
}

fn read(operation: &Operation) -> Option<u64> {
    match operation {
        Operation::ReadList { key, .. } => Some(list(*key)),
        Operation::ReadRegister { key, .. } => Some(register(*key)),
        Operation::Append { .. } | Operation::Write { .. } | Operation::Transfer { .. } => None,
    }
}

/// What the transaction read of a list, without what it had appended itself at its end.
pub(crate) fn without_own<'a>(values: &'a [u64], key: u32, transaction: &Transaction) -> &'a [u64] {
    let own = |value: u64| {
        transaction.operations.iter().any(|operation| written(operation) == Some((list(key), value)))
    };
    let end = values.iter().rposition(|&value| !own(value)).map_or(0, |last| last + 1);
    &values[..end]
}
