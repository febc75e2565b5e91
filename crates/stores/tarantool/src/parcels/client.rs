//! One client's timed operations on scans.

use acidtest_engine::Attempt;
use acidtest_model::Lock;
use acidtest_workloads::parcels::{Found, Index, Inserted, MOST, Operations, Parcel, Requirements, Scan};

use super::{stored, write_scan};
use crate::{
    iproto::{Connection, Encoder, Error, IteratorType, Reader},
    server::{Request as Effect, ended},
    trial::{LEASE, PATIENCE, Step, length},
};

/// The number of the index on the hash.
const BY_HASH: u32 = 1;

pub(super) struct Client {
    connection: Connection,
    /// The name of the trial's space and procedure.
    name: String,
    space: u32,
    wanted: Requirements,
    /// The count of each scan of the current insert; none for one that is refused. Kept to reuse its memory.
    counts: Vec<Option<u8>>,
}

/// The count of a parcel's next scan; none if the parcel has its seven.
fn next_count(rows: u64) -> Option<u8> {
    u8::try_from(rows).ok().filter(|rows| *rows < MOST).map(|rows| rows + 1)
}

fn wrong_length() -> Error {
    Error::Protocol("not an answer for each scan".to_owned())
}

/// Writes the hashes of the parcels of scans.
fn write_hashes(args: &mut Encoder, scans: &[Scan]) {
    args.array(length(scans));
    for scan in scans {
        args.str(scan.hash());
    }
}

/// Writes the scans that are not refused, each with its count.
fn write_accepted(args: &mut Encoder, scans: &[Scan], counts: &[Option<u8>]) {
    let accepted = || scans.iter().zip(counts).filter_map(|(scan, count)| Some((scan, (*count)?)));
    args.array(u32::try_from(accepted().count()).unwrap_or(u32::MAX));
    for (scan, count) in accepted() {
        write_scan(args, None, scan, count);
    }
}

/// Reads how many scans each parcel has, and keeps the next counts.
fn read_counts(values: &mut Reader<'_>, scans: &[Scan], counts: &mut Vec<Option<u8>>) -> Result<(), Error> {
    counts.clear();
    if values.array_len()? != scans.len() {
        return Err(wrong_length());
    }
    for _ in scans {
        counts.push(next_count(values.u64()?));
    }
    Ok(())
}

/// Reads the ids of the scans that were not refused. A conflict if nothing was inserted.
fn read_ids(
    values: &mut Reader<'_>,
    counts: &[Option<u8>],
    inserted: &mut Inserted,
) -> Result<Attempt, Error> {
    values.tuple(1)?;
    if values.take_nil() {
        return Ok(Attempt::Conflict);
    }
    if values.array_len()? != counts.iter().flatten().count() {
        return Err(wrong_length());
    }
    for count in counts {
        match count {
            Some(count) => inserted.took(values.u64()?, *count),
            None => inserted.refused(),
        }
    }
    Ok(Attempt::Ok)
}

/// Reads the id and the count of each scan.
fn read_inserted(values: &mut Reader<'_>, scans: &[Scan], inserted: &mut Inserted) -> Result<Attempt, Error> {
    values.tuple(1)?;
    if values.array_len()? != 2 * scans.len() {
        return Err(wrong_length());
    }
    for _ in scans {
        match (values.u64()?, values.u64()?) {
            (0, 0) => inserted.refused(),
            (id, count) => {
                let count = u8::try_from(count).ok().filter(|count| (1..=MOST).contains(count) && id > 0);
                let nonsense = || Error::Protocol("an invalid id or count".to_owned());
                inserted.took(id, count.ok_or_else(nonsense)?);
            }
        }
    }
    Ok(Attempt::Ok)
}

/// Reads an array of scans.
fn read_scans(values: &mut Reader<'_>, found: &mut Found) -> Result<usize, Error> {
    let scans = values.array_len()?;
    for _ in 0..scans {
        found.take(stored(values.value()?));
    }
    Ok(scans)
}

impl Client {
    pub(super) fn new(connection: Connection, name: String, space: u32, wanted: Requirements) -> Self {
        Self { connection, name, space, wanted, counts: Vec::new() }
    }

    /// Whether all scans of the current insert are refused.
    fn is_refused(&self) -> bool {
        self.counts.iter().all(Option::is_none)
    }

    fn refuse(&self, inserted: &mut Inserted) -> Attempt {
        self.counts.iter().for_each(|_| inserted.refused());
        Attempt::Ok
    }

    /// Counts in one call, then inserts in another; under the soft lock only if the counts are still right.
    async fn insert_counted(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let values = self.connection.call(&self.name, |args| {
            write_hashes(args.array(2).str("count"), scans);
        });
        let read = |mut values: Reader<'_>| {
            values.tuple(1)?;
            read_counts(&mut values, scans, &mut self.counts)
        };
        values.await.and_then(read).map_err(ended(Effect::Harmless))?;
        if self.is_refused() {
            return Ok(self.refuse(inserted));
        }
        let operation = if self.wanted.lock == Lock::Soft { "insert_if_next" } else { "insert" };
        let values = self.connection.call(&self.name, |args| {
            write_accepted(args.array(2).str(operation), scans, &self.counts);
        });
        let done = values.await.and_then(|mut values| read_ids(&mut values, &self.counts, inserted));
        done.map_err(ended(Effect::Change))
    }

    async fn insert_latched(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let Some(token) = self.acquire(scans).await? else { return Ok(Attempt::Conflict) };
        let is_refused = self.is_refused();
        let values = self.connection.call(&self.name, |args| {
            write_hashes(args.array(4).str("settle"), scans);
            args.u64(token);
            write_accepted(args, scans, &self.counts);
        });
        if is_refused {
            // whoever holds the latches now: nothing was to be written
            values.await.map_err(ended(Effect::Harmless))?;
            return Ok(self.refuse(inserted));
        }
        let done = values.await.and_then(|mut values| read_ids(&mut values, &self.counts, inserted));
        done.map_err(ended(Effect::Change))
    }

    /// Takes the latches of all parcels and counts their scans. Returns the latches' token; `None` if other clients held
    /// them for longer than [`PATIENCE`].
    async fn acquire(&mut self, scans: &[Scan]) -> Step<Option<u64>> {
        let values = self.connection.call(&self.name, |args| {
            write_hashes(args.array(4).str("acquire"), scans);
            args.f64(LEASE).f64(PATIENCE);
        });
        let read = |mut values: Reader<'_>| {
            values.tuple(1)?;
            if values.take_nil() {
                return Ok(None);
            }
            let token = values.u64()?;
            read_counts(&mut values, scans, &mut self.counts)?;
            Ok(Some(token))
        };
        values.await.and_then(read).map_err(ended(Effect::Harmless))
    }

    async fn insert_in_one(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let values = self.connection.call(&self.name, |args| {
            args.array(3).str("insert_next").array(length(scans));
            for scan in scans {
                write_scan(args, None, scan, 0);
            }
            args.u64(MOST.into());
        });
        let done = values.await.and_then(|mut values| read_inserted(&mut values, scans, inserted));
        done.map_err(ended(Effect::Change))
    }

    async fn read_parcel(&mut self, parcel: &Parcel, found: &mut Found) -> Result<usize, Error> {
        if self.wanted.index == Index::Hash {
            let key = |args: &mut Encoder| {
                args.array(1).str(parcel.hash());
            };
            let scans = self.connection.select(self.space, BY_HASH, key, u32::MAX, IteratorType::Eq).await;
            return read_scans(&mut scans?, found);
        }
        let hash = |args: &mut Encoder| {
            args.array(2).str("by_hash").str(parcel.hash());
        };
        let mut values = self.connection.call(&self.name, hash).await?;
        values.tuple(1)?;
        read_scans(&mut values, found)
    }

    async fn read_scan(&mut self, id: u64, found: &mut Found) -> Result<usize, Error> {
        let key = |args: &mut Encoder| {
            args.array(1).u64(id);
        };
        let scans = self.connection.select(self.space, 0, key, 1, IteratorType::Eq).await;
        read_scans(&mut scans?, found)
    }
}

impl Operations for Client {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let done = match self.wanted.lock {
            Lock::None | Lock::Soft => self.insert_counted(scans, inserted).await,
            Lock::Hard => self.insert_latched(scans, inserted).await,
            Lock::Native => self.insert_in_one(scans, inserted).await,
        };
        done.unwrap_or_else(|ended| ended)
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        let read = self.read_parcel(parcel, found).await.map_err(ended(Effect::Harmless));
        read.map_or_else(|ended| ended, |_| Attempt::Ok)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        match self.read_scan(id, found).await.map_err(ended(Effect::Harmless)) {
            Ok(0) => Attempt::Refused,
            Ok(_) => Attempt::Ok,
            Err(ended) => ended,
        }
    }
}
