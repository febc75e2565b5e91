//! The port: the operations that a store must offer to run the parcels workload.

#![warn(missing_docs)]

use std::{future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Lock, StoreError, Task};
use serde::{Deserialize, Serialize};

use super::{
    Scenario,
    parameters::Index,
    scan::{Parcel, Scan, StoredScan},
    stream::{Ids, Loading},
};
use crate::{LoadProgress, Place, Reply, Served, TableSize};

/// What the store has given each scan of an insert, in the order of the scans. Its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inserted(Vec<Option<(u64, u8)>>);

impl Inserted {
    /// Forgets the last answer.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The next scan was inserted, with this `SCAN_ID` and `SCAN_COUNT`.
    pub fn took(&mut self, id: u64, count: u8) {
        self.0.push(Some((id, count)));
    }

    /// The next scan was refused: its parcel has seven scans.
    pub fn refused(&mut self) {
        self.0.push(None);
    }

    /// `SCAN_ID` and `SCAN_COUNT` of each scan, in the order of the scans; none for one that was refused.
    #[must_use]
    pub fn each(&self) -> &[Option<(u64, u8)>] {
        &self.0
    }
}

/// The scans that a read has found. Its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found(Vec<StoredScan>);

impl Found {
    /// Forgets the last answer.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a scan that was read.
    pub fn take(&mut self, scan: StoredScan) {
        self.0.push(scan);
    }

    /// The scans that were read, in the order in which they came.
    #[must_use]
    pub fn each(&self) -> &[StoredScan] {
        &self.0
    }
}

/// The demands of a trial on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The lock mode, which protects the counting of a parcel's scans.
    pub lock: Lock,
    /// The index by which a parcel's scans are found.
    pub index: Index,
    /// Most scans of an insert.
    pub batch: u32,
}

/// One client's connection: the timed operations.
pub trait Operations {
    /// Inserts scans of different parcels, at most as many as [`Requirements::batch`]. Each gets a `SCAN_ID` and a
    /// `LOAD_DATE`, and as its `SCAN_COUNT` one more than there are scans of its parcel: the lock mode protects that
    /// nobody else inserts a scan of the parcel between counting and inserting. One whose parcel has seven scans or more
    /// is refused, and the others are inserted.
    ///
    /// [`Attempt::Ok`] if something was said of each scan in `inserted`, in their order; it is empty when this is called.
    /// With any other end, none of them was inserted; with [`Attempt::Unknown`], any of them may have been.
    fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> impl Future<Output = Attempt>;

    /// Reads all scans of a parcel, in any order. [`Attempt::Ok`] also if there are none. `found` is empty when this is
    /// called.
    fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> impl Future<Output = Attempt>;

    /// Reads the scan with this `SCAN_ID`. [`Attempt::Refused`] if there is none. `found` is empty when this is called.
    fn by_id(&mut self, id: u64, found: &mut Found) -> impl Future<Output = Attempt>;

    /// How long operations have waited for locks that other clients held, since this was last called, as far as the
    /// client knows.
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

/// An operation as data, for a store in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// [`Operations::insert`]. Each scan is its number and its parcel, which determine it.
    Insert(Vec<Scan>),
    /// [`Operations::by_hash`], by the number of the parcel.
    ByHash(u64),
    /// [`Operations::by_id`].
    ById(u64),
}

impl Operation {
    /// Does it on this connection. The reply has what was inserted and what was found.
    pub(crate) async fn perform(self, connection: &mut impl Operations) -> Reply<(Inserted, Found)> {
        let (mut inserted, mut found) = (Inserted::default(), Found::default());
        let attempt = match self {
            Self::Insert(scans) => connection.insert(&scans, &mut inserted).await,
            Self::ByHash(parcel) => connection.by_hash(&Parcel::of(parcel), &mut found).await,
            Self::ById(id) => connection.by_id(id, &mut found).await,
        };
        Reply::new(attempt, (inserted, found), connection.lock_wait())
    }
}

/// Opens connections for one client.
pub trait Connector {
    /// One client's connection, whose operations follow each other.
    type Connection: Operations;

    /// Opens a connection, and prepares its statements.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// Takes one scan of the final state.
pub type ScanVisitor<'a> = dyn FnMut(StoredScan) + 'a;

/// The untimed steps before and after a trial.
pub trait ParcelsStore: Send + Sync {
    /// Makes the table SCANS under the trial's own names, ready for the lock mode and with the index that is asked for,
    /// and loads its first scans by the method that is asked for. The store gives the ids that follow on those of the
    /// loaded scans. Counts the scans in `loaded`.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// A task for the engine that runs one client of the trial: `parcels::task(connector, scenario)`, called in the
    /// store's crate.
    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask;

    /// Serves one client of the trial in a process of the store's own, by [`serve`](super::serve); none for a store that is a server
    /// by itself.
    fn serve(&self, _place: &Place, _wanted: &Requirements) -> Option<Served> {
        None
    }

    /// What gives scans their ids.
    fn ids(&self) -> Ids {
        Ids::Counted
    }

    /// Reads back every scan, and hands each to `each` as it arrives.
    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>>;

    /// How large the table is, as the store says.
    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>>;

    /// Removes the trial's table or keys.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}
