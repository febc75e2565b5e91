//! The parcels workload on fjall.
//!
//! A scan is a value under its id, highest byte first. The value is its count and its date, lowest byte first, and then
//! its texts. A second keyspace is the index: its keys are a scan's hash and then its id, and its values are empty.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Medium, Place, Served, TableSize,
    parcels::{
        self, Connector, Found, Index, Inserted, LoadMethod, LoadedScan, Loading, MOST, Operations, Parcel,
        ParcelsStore, Requirements, Scan, ScanVisitor, Scenario, StoredScan,
    },
};
use fjall::{Keyspace, PersistMode};

use crate::{
    Fjall,
    error::{Error, OperationResult, undone},
    files::{Files, IndexedReads, Table, Transaction, drop_keyspace, keyspace, make_keyspace},
    named,
};

/// The name of the keyspace of scans within the trial.
const SCANS: &str = "scans";

/// The name of the keyspace that is their index.
const BY_HASH: &str = "by_hash";

/// Scans that are loaded before the caller may look at the progress.
const BATCH: usize = 1_000;

/// Scans that are loaded row by row before the caller may look at the progress.
const FEW: usize = 50;

/// Scans in one ingestion. The entries of the index, which have another order, are kept and sorted until it ends.
const INGESTED: usize = 1 << 20;

/// How long a keyspace may take to be flushed.
const FLUSHED: Duration = Duration::from_mins(1);

/// Letters of `SCAN_HASH`, `SCAN_TYPE`, `MACHINE_TYPE` and `SEQUENCE_CODE`.
const WIDTHS: [usize; 4] = [11, 3, 10, 5];
const HASH: usize = WIDTHS[0];
const TEXTS: usize = WIDTHS[0] + WIDTHS[1] + WIDTHS[2] + WIDTHS[3];

/// Bytes of a count and of a date.
const NUMBERS: usize = 16;

const LOADING: &str = "loading the scans";
const MEASURING: &str = "measuring the scans";

/// A scan's value.
type Value = [u8; NUMBERS + TEXTS];

/// A scan's key in the index.
type IndexKey = [u8; HASH + 8];

fn encode(scan: &Scan, count: u8, date: u64) -> Value {
    let mut value = [0; NUMBERS + TEXTS];
    value[..8].copy_from_slice(&i64::from(count).to_le_bytes());
    value[8..NUMBERS].copy_from_slice(&date.to_le_bytes());
    let mut start = NUMBERS;
    for (text, width) in [scan.hash(), scan.kind(), scan.machine(), scan.code()].into_iter().zip(WIDTHS) {
        value[start..start + width].copy_from_slice(text.as_bytes());
        start += width;
    }
    value
}

fn index_key(scan: &Scan, id: u64) -> IndexKey {
    let mut key = [0; HASH + 8];
    key[..HASH].copy_from_slice(scan.hash().as_bytes());
    key[HASH..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The id that is a key; none if the key is no scan's.
fn id_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// The hash within a value; none if the value is too short to have one.
fn hash_of(value: &[u8]) -> Option<&[u8]> {
    value.get(NUMBERS..NUMBERS + HASH)
}

/// The scan under a key, whatever the value is.
fn decode(id: Option<u64>, value: &[u8]) -> StoredScan {
    let (count, rest) = value.split_first_chunk().map_or((None, value), |(count, rest)| (Some(*count), rest));
    let (date, rest) = rest.split_first_chunk().map_or((None, rest), |(date, rest)| (Some(*date), rest));
    let count = count.and_then(|count| u64::try_from(i64::from_le_bytes(count)).ok());
    let mut texts = [&b""[..]; 4];
    if rest.len() == TEXTS {
        let mut start = 0;
        for (text, width) in texts.iter_mut().zip(WIDTHS) {
            *text = &rest[start..start + width];
            start += width;
        }
    }
    StoredScan::new(id, count, date.is_some_and(|date| u64::from_le_bytes(date) > 0), texts)
}

/// The time of the process's clock, in microseconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Fjall {
    /// Loads scans by fjall's own way for many, which writes tables of sorted entries past the journal.
    async fn ingest(
        &self,
        scans: &Keyspace,
        by_hash: Option<&Keyspace>,
        loading: &Loading,
        loaded: &LoadProgress,
    ) -> Result<(), Error> {
        let mut batches = loading.batches(BATCH).peekable();
        let mut entries: Vec<IndexKey> = Vec::new();
        while batches.peek().is_some() {
            let mut ingestion = scans.start_ingestion()?;
            for batch in batches.by_ref().take(INGESTED / BATCH) {
                let date = now();
                for LoadedScan { scan, id, count } in &batch {
                    ingestion.write(id.to_be_bytes(), encode(scan, *count, date))?;
                    entries.extend(by_hash.map(|_| index_key(scan, *id)));
                }
                loaded.add(batch.len() as u64);
                // lets the caller look at the progress, or give up
                tokio::task::yield_now().await;
            }
            ingestion.finish()?;
            if let Some(by_hash) = by_hash {
                entries.sort_unstable();
                let mut ingestion = by_hash.start_ingestion()?;
                for entry in entries.drain(..) {
                    ingestion.write(entry, [])?;
                }
                ingestion.finish()?;
            }
        }
        Ok(())
    }

    /// Loads scans one after the other, each in a write of its own, which ends as every commit of the trial does.
    async fn load_singly(
        &self,
        scans: &Keyspace,
        by_hash: Option<&Keyspace>,
        loading: &Loading,
        loaded: &LoadProgress,
    ) -> Result<(), Error> {
        let database = self.files.database()?;
        for batch in loading.batches(FEW) {
            for LoadedScan { scan, id, count } in &batch {
                let mut write = database.batch().durability(self.files.persist);
                write.insert(scans, id.to_be_bytes(), encode(scan, *count, now()));
                if let Some(by_hash) = by_hash {
                    write.insert(by_hash, index_key(scan, *id), []);
                }
                write.commit()?;
            }
            loaded.add(batch.len() as u64);
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// How large a trial's keyspaces are on disk.
    async fn measure(&self, place: &Place) -> Result<TableSize, Error> {
        let database = self.files.database()?;
        let scans = keyspace(&database, &named(place, SCANS))?;
        flush(&scans).await?;
        let name = named(place, BY_HASH);
        let index_bytes = if database.keyspace_exists(&name) {
            let by_hash = keyspace(&database, &name)?;
            flush(&by_hash).await?;
            by_hash.disk_space()
        } else {
            0
        };
        Ok(TableSize {
            rows: scans.len()? as u64,
            data_bytes: Some(scans.disk_space()),
            index_bytes: Some(index_bytes),
            medium: Medium::Disk,
            source: "Keyspace::disk_space after a flush".to_owned(),
        })
    }

    /// The error of a step on the scans, with what acidtest was doing.
    fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(Error) -> StoreError + 'a {
        move |error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address(),
            cause: error.to_string(),
        }
    }
}

/// Writes what of a keyspace is in memory alone to its tables on disk.
async fn flush(keyspace: &Keyspace) -> Result<(), Error> {
    keyspace.rotate_memtable()?;
    let start = Instant::now();
    // fjall's own wait would never end where a flush fails
    while keyspace.sealed_memtable_count() > 0 {
        if start.elapsed() > FLUSHED {
            return Err(Error::NotFlushed(FLUSHED.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

impl ParcelsStore for Fjall {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let (scans, by_hash) = self.on_files(LOADING, |database| {
                let index = index_name(place, wanted.index);
                let by_hash = index.map(|name| make_keyspace(database, &name)).transpose()?;
                Ok((make_keyspace(database, &named(place, SCANS))?, by_hash))
            })?;
            let done = match loading.method {
                LoadMethod::Bulk => self.ingest(&scans, by_hash.as_ref(), loading, loaded).await,
                LoadMethod::Single => self.load_singly(&scans, by_hash.as_ref(), loading, loaded).await,
            };
            done.map_err(self.failed(LOADING))?;
            self.on_files(LOADING, |database| Ok(database.persist(PersistMode::SyncAll)?))
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        parcels::task(FjallConnector::of(&self.files, place, *wanted), scenario)
    }

    fn serve(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(parcels::serve(FjallConnector::of(&self.files, place, *wanted)))
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("reading the final scans", |database| {
                for scan in keyspace(database, &named(place, SCANS))?.iter() {
                    let (key, value) = scan.into_inner()?;
                    each(decode(id_of(&key), &value));
                }
                Ok(())
            })
        })
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async move { self.measure(place).await.map_err(self.failed(MEASURING)) })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.files.forget_counter(&named(place, SCANS));
            self.on_files("removing the scans", |database| {
                drop_keyspace(database, &named(place, BY_HASH))?;
                drop_keyspace(database, &named(place, SCANS))
            })
        })
    }
}

/// The name of the keyspace that is the index, if one is asked for.
fn index_name(place: &Place, index: Index) -> Option<String> {
    match index {
        Index::Hash => Some(named(place, BY_HASH)),
        Index::None => None,
    }
}

struct FjallConnector {
    files: Arc<Files>,
    name: String,
    index: Option<String>,
    lock: Lock,
}

impl FjallConnector {
    fn of(files: &Arc<Files>, place: &Place, wanted: Requirements) -> Self {
        Self {
            files: Arc::clone(files),
            name: named(place, SCANS),
            index: index_name(place, wanted.index),
            lock: wanted.lock,
        }
    }
}

struct Client {
    table: Table,
    lock: Lock,
    /// The next id, which all clients of the process share.
    next_id: Arc<AtomicU64>,
    tally: ScanCounts,
}

impl Connector for FjallConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let words = |error: Error| error.to_string();
        // every transaction is serializable, so that there is no isolation level to set
        let table = self.files.indexed(&self.name, self.index.as_deref(), self.lock).map_err(words)?;
        let next_id = self.files.counter(&self.name);
        // clients that insert meanwhile have raised the counter before, so that it is never lowered
        next_id.fetch_max(following(&table).map_err(words)?, Relaxed);
        Ok(Client { table, lock: self.lock, next_id, tally: ScanCounts::default() })
    }
}

/// The id above all that are there.
fn following(table: &Table) -> Result<u64, Error> {
    for scan in table.snapshot().all().rev() {
        // a key that is no id is no scan's
        if let Some(highest) = id_of(&scan.key()?) {
            return Ok(highest.min(i64::MAX.unsigned_abs()) + 1);
        }
    }
    Ok(1)
}

/// How many scans each parcel of an insert has, at most [`MOST`]. Its memory is reused.
#[derive(Default)]
struct ScanCounts {
    /// In the order of the scans that are inserted.
    counts: Vec<u8>,
    /// The places of these scans, in the order of their hashes.
    order: Vec<usize>,
}

impl ScanCounts {
    /// Counts the scans of each parcel by the index, or without one by all scans.
    fn count(&mut self, reads: &impl IndexedReads, scans: &[Scan]) -> Result<(), Error> {
        self.counts.clear();
        for scan in scans {
            let Some(entries) = reads.indexed(scan.hash().as_bytes()) else { return self.sift(reads, scans) };
            let mut count = 0;
            for entry in entries.take(MOST.into()) {
                entry.key()?;
                count += 1;
            }
            self.counts.push(count);
        }
        Ok(())
    }

    /// Goes through all scans once, and counts those of the parcels that are asked for.
    fn sift(&mut self, reads: &impl IndexedReads, scans: &[Scan]) -> Result<(), Error> {
        let Self { counts, order } = self;
        counts.resize(scans.len(), 0);
        order.clear();
        order.extend(0..scans.len());
        order.sort_unstable_by_key(|&place| scans[place].hash());
        for stored in reads.all() {
            let value = stored.value()?;
            let Some(hash) = hash_of(&value) else { continue };
            if let Ok(at) = order.binary_search_by(|&place| scans[place].hash().as_bytes().cmp(hash)) {
                let count = &mut counts[order[at]];
                *count = MOST.min(*count + 1);
            }
        }
        Ok(())
    }
}

impl Client {
    fn insert_all(&mut self, scans: &[Scan], inserted: &mut Inserted) -> OperationResult {
        let transaction = if self.lock == Lock::None {
            self.tally.count(&self.table.snapshot(), scans)?;
            // a transaction that has read nothing cannot be refused
            self.table.begin()?
        } else {
            let transaction = self.table.begin()?;
            self.tally.count(&transaction, scans)?;
            transaction
        };
        write(transaction, scans, &self.tally.counts, &self.next_id, inserted)
    }

    fn read_by_hash(&self, parcel: &Parcel, found: &mut Found) -> OperationResult {
        let view = self.table.snapshot();
        let hash = parcel.hash().as_bytes();
        if let Some(entries) = view.indexed(hash) {
            for entry in entries {
                let key = entry.key()?;
                let key = key.get(HASH..).unwrap_or_default();
                // an entry of the index without its scan is a scan that is not whole
                let value = view.get(key)?;
                found.take(decode(id_of(key), value.as_deref().unwrap_or_default()));
            }
        } else {
            for scan in view.all() {
                let (key, value) = scan.into_inner()?;
                if hash_of(&value) == Some(hash) {
                    found.take(decode(id_of(&key), &value));
                }
            }
        }
        Ok(Attempt::Ok)
    }

    fn read_by_id(&self, id: u64, found: &mut Found) -> OperationResult {
        let Some(value) = self.table.get(&id.to_be_bytes())? else { return Ok(Attempt::Refused) };
        found.take(decode(Some(id), &value));
        Ok(Attempt::Ok)
    }
}

/// Writes the scans of parcels that have fewer than seven, with the next counts, and commits.
fn write(
    mut transaction: Transaction<'_>,
    scans: &[Scan],
    counts: &[u8],
    next_id: &AtomicU64,
    inserted: &mut Inserted,
) -> OperationResult {
    let date = now();
    let mut is_changed = false;
    for (scan, count) in scans.iter().zip(counts) {
        if *count >= MOST {
            inserted.refused();
            continue;
        }
        let (id, count) = (next_id.fetch_add(1, Relaxed), count + 1);
        if i64::try_from(id).is_err() {
            return Err(Error::NoMoreIds);
        }
        transaction.put(&id.to_be_bytes(), &encode(scan, count, date));
        transaction.put_index(&index_key(scan, id));
        inserted.took(id, count);
        is_changed = true;
    }
    // scans are not deleted, so that a parcel that had seven has them still
    Ok(if is_changed { transaction.commit() } else { Attempt::Ok })
}

impl Operations for Client {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        self.insert_all(scans, inserted).unwrap_or_else(|error| undone(&error))
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        self.read_by_hash(parcel, found).unwrap_or_else(|error| undone(&error))
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        self.read_by_id(id, found).unwrap_or_else(|error| undone(&error))
    }
}

#[cfg(test)]
mod tests;
