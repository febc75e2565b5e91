//! The port: what a store must be able to do to carry records.

use std::{future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask, Fault};
use acidtest_model::{Isolation, Lock, StoreError, Task};

use super::{Fields, Layout, Refresh, Scenario};
use crate::{LoadProgress, Place};

/// What an operation does with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Reads the record: version and all fields.
    Read,
    /// Writes all fields and raises the version by one. What the lock mode is about: without one, the
    /// version is read and the one above it is written.
    Update,
    /// Adds a record, with version 0.
    Insert,
    /// Reads up to [`Request::length`] records from the key on, in the order of keys.
    Scan,
    /// Reads the record, version and all fields, then does what an update does, as one step.
    Modify,
}

/// One operation, ready to be sent: all that is in it was made before the clock started.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it does.
    pub action: Action,
    /// The record's number.
    pub number: u64,
    /// Its key.
    pub key: String,
    /// Records of a scan.
    pub length: u32,
    /// What is written.
    pub fields: Fields,
}

/// What an operation found. Its room is used again.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    bytes: Vec<u8>,
    /// Where each field ends in `bytes`.
    ends: Vec<usize>,
    /// Of each record: its version, and where its fields end in `ends`.
    records: Vec<(u64, usize)>,
    /// Things that are there in the place of records and are none.
    torn: u64,
    written: Option<u64>,
}

impl Answer {
    /// Forgets the last answer.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.records.clear();
        self.torn = 0;
        self.written = None;
    }

    /// A record that was read, its fields in their order.
    pub fn record<'a>(&mut self, version: u64, fields: impl IntoIterator<Item = &'a [u8]>) {
        for field in fields {
            self.bytes.extend_from_slice(field);
            self.ends.push(self.bytes.len());
        }
        self.records.push((version, self.ends.len()));
    }

    /// Something that is there in the place of a record and that nobody wrote: not even its version can be read.
    /// That it is there counts however the operation ends, so it must be the store's word, and not an answer
    /// that broke on its way.
    pub fn torn(&mut self) {
        self.torn += 1;
    }

    pub(crate) fn torn_records(&self) -> u64 {
        self.torn
    }

    /// The version that an update or a modify has written, where the store says it.
    pub fn wrote(&mut self, version: u64) {
        self.written = Some(version);
    }

    /// The version that was written, where the store said it.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        self.written
    }

    /// What was read: versions, each with its fields.
    pub fn read(&self) -> impl Iterator<Item = (u64, impl Iterator<Item = &[u8]> + Clone)> {
        let mut first = 0;
        self.records.iter().map(move |&(version, end)| {
            let range = first..end;
            first = end;
            (
                version,
                range.map(|field| {
                    let start = if field == 0 { 0 } else { self.ends[field - 1] };
                    &self.bytes[start..self.ends[field]]
                }),
            )
        })
    }
}

/// What is there where a record is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing.
    Nothing,
    /// Something that is no record: see [`Answer::torn`].
    Torn,
    /// A record with this version.
    Record(u64),
}

impl Lookup {
    /// How a read ends that has found it.
    #[must_use]
    pub fn read(self) -> Attempt {
        if self == Self::Nothing { Attempt::Refused } else { Attempt::Ok }
    }

    /// The version that a write leaves which follows from it.
    ///
    /// # Errors
    /// How the write ends that cannot follow: it was not sent.
    pub fn above(self) -> Result<u64, Attempt> {
        // more than that is kept by no store that counts with a sign
        const MOST: u64 = i64::MAX.unsigned_abs();
        match self {
            Self::Nothing => Err(Attempt::Refused),
            Self::Record(version @ ..MOST) => Ok(version + 1),
            Self::Record(version) => Err(unwritten(format!("there is no version above {version}"))),
            Self::Torn => Err(unwritten("what is there is no record: it has no version".to_owned())),
        }
    }
}

fn unwritten(why: String) -> Attempt {
    Attempt::Failed(Fault::answered(why))
}

/// What a trial asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// How updates and modifies are protected.
    pub lock: Lock,
    /// The level of every transaction and single statement; the store's own default if none.
    pub isolation: Option<Isolation>,
    /// Operations in one transaction; 1 for operations by themselves.
    pub transaction: u32,
    /// When a written document must be visible to searches, on stores that separate the two.
    pub refresh: Refresh,
    /// How records look.
    pub layout: Layout,
}

/// One client's connection: the timed operations.
///
/// Both are tried again on [`Attempt::Conflict`], which must be proved to have changed nothing.
pub trait Operations {
    /// One operation by itself. [`Attempt::Refused`] if the record to be read, updated or modified is not
    /// there, or the one to be inserted is. `answer` is empty when it is called.
    fn single(&mut self, request: &Request, answer: &mut Answer) -> impl Future<Output = Attempt>;

    /// Several operations in one transaction, in their order, with an answer for each. What a single one would
    /// be refused for ends it with [`Attempt::Refused`], rolled back. Called only if [`Requirements::transaction`] is
    /// above 1, which the plan's check lets through for stores that have transactions.
    fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> impl Future<Output = Attempt> {
        let _ = (requests, answers);
        async { Attempt::Failed(crate::Fault::answered("this store has no transactions")) }
    }

    /// How long operations have waited for locks that other clients held, since it was last asked: where the lock is
    /// kept outside the store's own transactions, so that the client asks for it again and again. What waits inside
    /// the server is not seen.
    fn lock_wait(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Opens connections for one client.
pub trait Connector {
    /// What it opens.
    type Connection: Operations;

    /// Opens a connection, sets and reads back its isolation level, and prepares its statements.
    ///
    /// # Errors
    /// Why it could not, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// Takes one record of the final state: its key, its version, and the tag that all its fields agree on
/// ([`tag_of`](super::tag_of)). There is no tag where they disagree, nor where the version cannot be read: that is
/// torn, and its version, whatever is given for it, is not looked at.
pub type RecordVisitor<'a> = dyn FnMut(&str, u64, Option<u64>) + 'a;

/// The untimed edge: what is done before and after a trial.
pub trait RecordsStore: Send + Sync {
    /// Lays in the records of the layout under the trial's own names, by the store's fastest way, counting
    /// them in `loaded`; ready for every lock mode.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// One client of the trial: `records::task(connector, scenario)`, called in the store's crate.
    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask;

    /// Reads back every record that is there, as it streams in.
    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>>;

    /// Removes the trial's objects.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_answer_gives_back_what_it_took(
            records in prop::collection::vec(
                (any::<u64>(), prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..4)),
                0..5,
            ),
        ) {
            let mut answer = Answer::default();
            for _ in 0..2 {
                answer.clear();
                for (version, fields) in &records {
                    answer.record(*version, fields.iter().map(Vec::as_slice));
                }
                let read: Vec<(u64, Vec<Vec<u8>>)> = answer
                    .read()
                    .map(|(version, fields)| (version, fields.map(<[u8]>::to_vec).collect()))
                    .collect();
                prop_assert_eq!(&read, &records);
            }
        }
    }

    /// A write follows from a record alone, and from none that has the highest version that a store can keep.
    #[test]
    fn a_write_follows_from_a_record_alone() {
        let most = i64::MAX.unsigned_abs();
        assert_eq!(Lookup::Record(0).above(), Ok(1));
        assert_eq!(Lookup::Record(most - 1).above(), Ok(most));
        assert_eq!(Lookup::Nothing.above(), Err(Attempt::Refused));
        for found in [Lookup::Torn, Lookup::Record(most), Lookup::Record(u64::MAX)] {
            assert!(
                matches!(found.above(), Err(Attempt::Failed(fault)) if !fault.connection_lost),
                "{found:?}"
            );
        }
    }
}
