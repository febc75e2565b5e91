//! The port: the operations that a store must offer to run the records workload.

#![warn(missing_docs)]

use std::{future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask, Fault};
use acidtest_model::{Isolation, Lock, StoreError, Task};

use serde::{Deserialize, Serialize};

use super::{Fields, Layout, Refresh, Scenario, content::Content};
use crate::{LoadProgress, Place, Reply, Served};

/// The effect of an operation on its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Reads the record: its version and all fields.
    Read,
    /// Writes all fields and raises the version by one. The lock mode protects this step: with lock mode none, the
    /// version is read and the one above it is written.
    Update,
    /// Adds a record with version 0.
    Insert,
    /// Reads up to [`Request::length`] records from the key on, in ascending order of keys.
    Scan,
    /// Reads the record, version and all fields, then does what an update does, as one step.
    Modify,
}

/// One operation, ready to be sent: everything in it was prepared before the clock started.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation's effect.
    pub action: Action,
    /// The record's number, from 0.
    pub number: u64,
    /// The record's key: [`key_name`](super::key_name) of its number.
    pub key: String,
    /// Most records that a scan returns.
    pub length: u32,
    /// The fields that are written.
    pub fields: Fields,
}

/// The records that an operation found. Its memory is reused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Version of each record, and what its fields are; none if they are not those of one writer.
    records: Vec<(u64, Option<Content>)>,
    /// How many things were found in the place of records that are none.
    torn: u64,
    written: Option<u64>,
}

impl Answer {
    /// Forgets the last answer.
    pub fn clear(&mut self) {
        self.records.clear();
        self.torn = 0;
        self.written = None;
    }

    /// Adds a record that was read, with its fields in order. They are compared with what their writer wrote, letter for
    /// letter, where they are: nothing is copied.
    pub fn record<'a>(&mut self, version: u64, fields: impl IntoIterator<Item = &'a [u8]>) {
        self.records.push((version, Content::read(fields)));
    }

    /// Counts something that was found in the place of a record, whose version or fields cannot be read. It counts
    /// however the operation ends, so it must be the store's own answer, and not one that broke on its way.
    pub fn torn(&mut self) {
        self.torn += 1;
    }

    pub(crate) fn torn_records(&self) -> u64 {
        self.torn
    }

    /// Sets the version that an update or a modify wrote, where the store reports it.
    pub fn wrote(&mut self, version: u64) {
        self.written = Some(version);
    }

    /// The version that was written, if the store reported it.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        self.written
    }

    /// The records that were read: versions, each with the tag that its fields were written with; none if they are not
    /// those of one writer.
    pub fn read(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        self.records.iter().map(|(version, content)| (*version, content.map(|content| content.tag)))
    }

    /// The same, but without the tag of a record that is not one of this layout.
    pub(crate) fn read_as(&self, layout: &Layout) -> impl Iterator<Item = (u64, Option<u64>)> {
        let whole = |content: &Option<Content>| {
            content.filter(|content| content.fits(layout)).map(|content| content.tag)
        };
        self.records.iter().map(move |(version, content)| (*version, whole(content)))
    }
}

/// The thing that a store finds under a record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing, so that a read, an update or a modify is refused.
    Nothing,
    /// Something that is not a record: see [`Answer::torn`].
    Torn,
    /// A record with this version.
    Record(u64),
}

impl Lookup {
    /// The outcome of a read that found this.
    #[must_use]
    pub fn read(self) -> Attempt {
        if self == Self::Nothing { Attempt::Refused } else { Attempt::Ok }
    }

    /// The version that a write has to leave which replaces this.
    ///
    /// # Errors
    /// How the write ends if it cannot be done: it was not sent.
    pub fn above(self) -> Result<u64, Attempt> {
        // no store that keeps the version as a signed number keeps a higher one
        const MOST: u64 = i64::MAX.unsigned_abs();
        match self {
            Self::Nothing => Err(Attempt::Refused),
            Self::Record(version @ ..MOST) => Ok(version + 1),
            Self::Record(version) => Err(unwritten(format!("there is no version above {version}"))),
            Self::Torn => Err(unwritten("what is there is not a record: it has no version".to_owned())),
        }
    }
}

fn unwritten(why: String) -> Attempt {
    Attempt::Failed(Fault::answered(why))
}

/// The demands of a trial on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The lock mode, which protects updates and modifies.
    pub lock: Lock,
    /// Whether there are updates or modifies at all.
    pub decides: bool,
    /// Isolation level of every transaction and single statement; `None` for the store's own default.
    pub isolation: Option<Isolation>,
    /// Number of operations in one transaction; 1 if operations run by themselves.
    pub transaction: u32,
    /// When a written document must be visible to searches, on stores that separate writing from searching.
    pub refresh: Refresh,
    /// How many records are loaded, and their fields.
    pub layout: Layout,
}

/// One client's connection: the timed operations.
///
/// Both operations are tried again on [`Attempt::Conflict`], which must be proved to have changed nothing.
pub trait Operations {
    /// Runs one operation by itself. [`Attempt::Refused`] if the record to be read, updated or modified does not
    /// exist, or the one to be inserted does. `answer` is empty when it is called.
    fn single(&mut self, request: &Request, answer: &mut Answer) -> impl Future<Output = Attempt>;

    /// Runs several operations in one transaction, in their order, with an answer for each. If one of them would be
    /// refused by itself, the transaction is rolled back and ends with [`Attempt::Refused`]. Called only if
    /// [`Requirements::transaction`] is above 1, which the plan's check allows only for stores that have
    /// transactions.
    fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> impl Future<Output = Attempt> {
        let _ = (requests, answers);
        async { Attempt::Failed(crate::Fault::answered("this store has no transactions")) }
    }

    /// How long operations have waited for locks that other clients held, since this was last called. Only for
    /// locks that are kept outside the store's own transactions, so that the client asks for them again and again:
    /// a wait inside the server is not seen.
    fn lock_wait(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Looks whether the server still answers on the session that was opened, at the settings that were made then: not so
    /// behind a pooler that hands sessions on. Called at the end of a trial, after the last operation.
    ///
    /// # Errors
    /// What has changed, in words. A connection that does not answer proves nothing.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// An operation as data, for a store in another process: a request without its fields, which their tag determines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The same as [`Request::action`].
    pub action: Action,
    /// The same as [`Request::number`].
    pub number: u64,
    /// The same as [`Request::key`].
    pub key: String,
    /// The same as [`Request::length`].
    pub length: u32,
    /// The tag of [`Request::fields`].
    pub tag: u64,
}

impl From<&Request> for Operation {
    fn from(request: &Request) -> Self {
        let Request { action, number, key, length, fields } = request;
        Self { action: *action, number: *number, key: key.clone(), length: *length, tag: fields.tag() }
    }
}

impl Operation {
    fn request(self, layout: &Layout) -> Request {
        let Self { action, number, key, length, tag } = self;
        let mut fields = Fields::default();
        if matches!(action, Action::Update | Action::Insert | Action::Modify) {
            fields.fill(layout, tag);
        }
        Request { action, number, key, length, fields }
    }

    /// Does one operation on this connection, or several in one transaction. The reply has an answer for each.
    pub(crate) async fn perform(
        operations: Vec<Self>,
        layout: &Layout,
        connection: &mut impl Operations,
    ) -> Reply<Vec<Answer>> {
        let requests: Vec<Request> = operations.into_iter().map(|each| each.request(layout)).collect();
        let mut answers = vec![Answer::default(); requests.len()];
        let attempt = match (requests.as_slice(), answers.as_mut_slice()) {
            ([request], [answer]) => connection.single(request, answer).await,
            (requests, answers) => connection.several(requests, answers).await,
        };
        Reply::new(attempt, answers, connection.lock_wait())
    }
}

/// Opens connections for one client.
pub trait Connector {
    /// One client's connection, whose operations follow each other.
    type Connection: Operations;

    /// Opens a connection, sets and reads back its isolation level, and prepares its statements.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;

    /// How many servers of the store there are, as many as it was opened with addresses: [`reader`](Self::reader) knows them by
    /// their place among these, from 0.
    fn servers(&self) -> usize {
        1
    }

    /// Opens a connection to this server, whether it leads or follows. Only operations that change nothing are done on it.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn reader(&self, server: usize) -> impl Future<Output = Result<Reader<Self::Connection>, String>> {
        let _ = server;
        async { Err("this store has no replicas to read from".to_owned()) }
    }
}

/// A connection for operations that change nothing.
#[derive(Debug)]
pub struct Reader<C> {
    /// The connection.
    pub connection: C,
    /// Whether its server took writes when the connection was opened.
    pub leads: bool,
}

/// Takes one record of the final state: its key, its version, and the tag that all its fields agree on
/// ([`tag_of`](super::tag_of)). The tag is `None` where they disagree, or where the version cannot be read: such a
/// record is torn, and whatever version is given for it is ignored.
pub type RecordVisitor<'a> = dyn FnMut(&str, u64, Option<u64>) + 'a;

/// The untimed steps before and after a trial.
pub trait RecordsStore: Send + Sync {
    /// Loads the records of the layout under the trial's own names, by the store's fastest way, ready for every
    /// lock mode. Counts the records in `loaded`.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// A task for the engine that runs one client of the trial: `records::task(connector, scenario)`, called in the
    /// store's crate.
    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask;

    /// Serves one client of the trial in a process of the store's own, by [`serve`](super::serve); none for a store that is a server
    /// by itself.
    fn serve(&self, _place: &Place, _wanted: &Requirements) -> Option<Served> {
        None
    }

    /// Reads back every record, and hands each to `each` as it arrives.
    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>>;

    /// Removes the trial's tables or keys.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_gives_back_what_it_took() {
        let layout = Layout { records: 1, fields: 3, field_bytes: 20, scans: false };
        let mut fields = Fields::default();
        fields.fill(&layout, 0xAB);
        let mut answer = Answer::default();
        for _ in 0..2 {
            answer.clear();
            answer.record(7, fields.iter().map(str::as_bytes));
            answer.record(8, fields.iter().map(str::as_bytes).take(2));
            let backwards: Vec<_> = fields.iter().map(str::as_bytes).collect();
            answer.record(9, backwards.into_iter().rev());
            answer.record(10, []);
            assert_eq!(
                answer.read().collect::<Vec<_>>(),
                [(7, Some(0xAB)), (8, Some(0xAB)), (9, None), (10, None)]
            );
            let whole = [(7, Some(0xAB)), (8, None), (9, None), (10, None)];
            assert_eq!(answer.read_as(&layout).collect::<Vec<_>>(), whole);
        }
    }

    /// Only a record can be replaced, and none that has the highest version that a store can keep.
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
