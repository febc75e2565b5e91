//! The parcels workload on Elasticsearch: a document for each scan.
//!
//! There is no counter and no transaction, but creating a document whose id is taken is refused. So the id is made of the
//! parcel and the count: who counts a parcel's documents and creates the next one has inserted a scan, unless somebody
//! else was first.

mod document;
mod load;

use std::{
    collections::HashMap,
    fmt::Write as _,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use acidtest_engine::{Attempt, ClientTask, Fault};
use acidtest_locks::{Grant, LockService};
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    LoadProgress, Medium, Place, TableSize,
    parcels::{
        self, Connector, Found, Ids, Inserted, Loading, MOST, Operations, Parcel, ParcelsStore, Requirements,
        Scan, ScanVisitor, Scenario, StoredScan,
    },
};
use hyper::Method;
use serde::Deserialize;

use self::document::{Documents, Single};
use crate::{
    Elasticsearch, delete,
    document::Text,
    fault::{Effect, Error, Step, attempt, ended, kind},
    http::{self, Connection, Content},
    load::Bulk,
    locking::{self, Locks, Patience},
    names::Table,
    pages::{read_back, refresh},
    records::RECOVERED,
    server::{ConnectOptions, on_shards, ready},
};

/// Why there is no native lock.
pub(crate) const NO_NATIVE: &str = "Elasticsearch has no step that counts and inserts: a count is taken by creating a \
                                    document (--lock soft or hard)";

/// The counts of a parcel's scans.
const COUNTS: RangeInclusive<u8> = 1..=MOST;

/// How often the scans of a batch are counted at most. Each time, another client has inserted a scan of each parcel that
/// is left; so a parcel is full before, unless somebody has left a gap between its documents.
const ROUNDS: u8 = MOST + 1;

/// Bytes of a scan's document, about.
const DOCUMENT: u64 = 120;

impl ParcelsStore for Elasticsearch {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let table = Table::of_scans(place);
            let done = load::load(&self.server, &table, self.translog, loading, loaded).await;
            done.map_err(self.server.failed("loading the scans"))?;
            locking::prepare(self.locks.as_deref(), place).await
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        parcels::task(Clients::of(self, place, *wanted), scenario)
    }

    fn ids(&self) -> Ids {
        Ids::Made
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            // a document that is written over while pages are read, by a write that nobody waits for any more, moves to
            // a later page with another scan in it; one that is there twice is the same both times
            let mut shown: HashMap<u64, StoredScan> = HashMap::new();
            // the index has one shard, so that no two documents have the same number of their last write
            let read = read_back(&mut connection, &Table::of_scans(place), DOCUMENT, "_seq_no", &mut |hit| {
                let scan = document::decode(&hit.id, hit.kept.json());
                let is_moved =
                    scan.id.and_then(|id| shown.insert(id, scan)).is_some_and(|before| before != scan);
                if !is_moved {
                    each(scan);
                }
            })
            .await;
            read.map_err(self.server.failed("reading the scans back"))
        })
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let measured = measure(&mut connection, &Table::of_scans(place)).await;
            measured.map_err(self.server.failed("measuring the scans"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let gone = delete(&mut connection, &Table::of_scans(place).index).await;
            gone.map_err(self.server.failed("removing the scans"))?;
            locking::clear(self.locks.as_deref(), place).await
        })
    }
}

/// How large an index is, once all of it is in its files.
async fn measure(connection: &mut Connection, table: &Table) -> Result<TableSize, Error> {
    #[derive(Deserialize)]
    struct Stats {
        #[serde(rename = "_all")]
        all: All,
    }
    #[derive(Deserialize)]
    struct All {
        primaries: Primaries,
    }
    #[derive(Deserialize)]
    struct Primaries {
        docs: Docs,
        store: Files,
    }
    #[derive(Deserialize)]
    struct Docs {
        count: u64,
    }
    #[derive(Deserialize)]
    struct Files {
        size_in_bytes: u64,
    }
    let index = &table.index;
    refresh(connection, table).await?;
    if !on_shards(connection, &format!("/{index}/_flush")).await? {
        return Err(Error::Nonsense(format!("{index} cannot be flushed")));
    }
    let path = format!("/{index}/_stats/docs,store?filter_path=_all.primaries");
    let Stats { all: All { primaries } } = connection.get(&path).await?.read()?;
    Ok(TableSize {
        rows: primaries.docs.count,
        data_bytes: Some(primaries.store.size_in_bytes),
        index_bytes: None,
        medium: Medium::Disk,
        source: "_stats/docs,store after _flush".to_owned(),
    })
}

/// The connector of a trial's clients, with the settings that they share.
struct Clients {
    server: ConnectOptions,
    table: Table,
    place: Place,
    lock: Lock,
    locks: Option<Arc<dyn LockService>>,
}

impl Clients {
    fn of(store: &Elasticsearch, place: &Place, wanted: Requirements) -> Self {
        Self {
            server: store.server.clone(),
            table: Table::of_scans(place),
            place: place.clone(),
            lock: wanted.lock,
            locks: store.locks.clone(),
        }
    }
}

/// One client's connection to the server, and to the lock service under the hard lock.
struct Client {
    connection: Connection,
    alias: String,
    count_path: String,
    read_path: String,
    bulk_path: String,
    path: String,
    write: Write,
    locks: Option<Locks>,
    /// The locks that an insert holds.
    held: Vec<Grant>,
    /// The places of the scans in the order in which their parcels are locked.
    order: Vec<usize>,
    round: Round,
}

/// How a document is written under the id that was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// Over whatever document is there.
    Index,
    /// Only if there is none.
    Create,
}

impl Write {
    /// Its name in a path of one document, and in the lines of a bulk request.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Index => ("_doc", "index"),
            Self::Create => ("_create", "create"),
        }
    }
}

/// How far the scans of an insert are. Its memory is reused.
#[derive(Debug, Default)]
struct Round {
    /// What each was given, in the order of the scans; none if it was refused, or is left.
    given: Vec<Option<(u64, u8)>>,
    /// The places of those that are left.
    left: Vec<usize>,
    /// How many documents the parcels of those have.
    counts: Vec<u8>,
    /// Those that are written next: the place, the id and the count.
    next: Vec<(usize, u64, u8)>,
}

impl Round {
    /// Takes the answer to the documents that were written. Those whose ids were taken are left.
    fn take(&mut self, answer: Bulk<'_>) -> Step<()> {
        let Self { given, left, next, .. } = self;
        if answer.items.len() != next.len() {
            let words = format!("{} documents were sent, {} answered", next.len(), answer.items.len());
            return Err(attempt(&Error::Nonsense(words), Effect::Change));
        }
        let mut worst = Ok(());
        for (item, &(place, id, count)) in answer.items.into_iter().zip(&*next) {
            if item.create.status < 300 {
                given[place] = Some((id, count));
                continue;
            }
            match attempt(&Error::Refused(item.create.refusal()), Effect::Change) {
                Attempt::Conflict => left.push(place),
                // what may have been done counts for more than what was not
                ended if worst.is_ok() || matches!(ended, Attempt::Unknown(_)) => worst = Err(ended),
                _ => {}
            }
        }
        worst
    }
}

impl Connector for Clients {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let locks = match self.lock {
            Lock::Hard => Some(Locks::connect(self.locks.as_deref(), &self.place).await?),
            Lock::None | Lock::Soft | Lock::Native => None,
        };
        let mut connection = self.server.connect().await.map_err(|error| error.to_string())?;
        let Table { index, alias } = &self.table;
        let recovered = ready(&mut connection, index, RECOVERED).await;
        recovered.map_err(|error| format!("the index {index} is not ready: {error}"))?;
        let several = format!("/{alias}/_mget?filter_path=docs._id,docs.found,docs.error");
        Ok(Client {
            connection,
            count_path: format!("{several}&_source=false"),
            read_path: format!("{several},docs._source"),
            bulk_path: format!(
                "/{alias}/_bulk?require_alias=true&filter_path=errors,items.*.status,items.*.error"
            ),
            alias: alias.clone(),
            path: String::new(),
            write: if self.lock == Lock::None { Write::Index } else { Write::Create },
            locks,
            held: Vec::new(),
            order: Vec::new(),
            round: Round::default(),
        })
    }
}

/// The time of this process's clock, in milliseconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Client {
    /// Counts the documents of the scans that are left, and chooses the ids of the next ones. Those of full parcels are
    /// left no more.
    async fn count(&mut self, scans: &[Scan]) -> Step<()> {
        let Self { connection, count_path, round: Round { left, counts, next, .. }, .. } = self;
        let ids = || {
            left.iter().flat_map(|&place| COUNTS.map(move |count| Ids::made(scans[place].parcel(), count)))
        };
        let body = document::ids(ids());
        let asked = connection.ask(Method::POST, count_path, Content::Json, body).await;
        let documents = asked.and_then(http::Answer::read::<Documents<'_>>).map_err(ended(Effect::None))?;
        counts.clear();
        counts.resize(left.len(), 0);
        let found = documents.found(ids(), |asked, _, _| counts[asked / usize::from(MOST)] += 1);
        found.map_err(ended(Effect::None))?;
        next.clear();
        for (&place, &count) in left.iter().zip(&*counts).filter(|(_, count)| **count < MOST) {
            next.push((place, Ids::made(scans[place].parcel(), count + 1), count + 1));
        }
        left.clear();
        Ok(())
    }

    /// Writes the documents that were chosen. Those whose ids are taken by now are left.
    async fn write(&mut self, scans: &[Scan]) -> Step<()> {
        match self.round.next[..] {
            [] => Ok(()),
            [(place, id, count)] => self.write_one(&scans[place], place, id, count).await,
            _ => self.write_all(scans).await,
        }
    }

    async fn write_one(&mut self, scan: &Scan, place: usize, id: u64, count: u8) -> Step<()> {
        let (endpoint, _) = self.write.names();
        self.path.clear();
        // writing to a string cannot fail
        let _ = write!(self.path, "/{}/{endpoint}/{id}?require_alias=true", self.alias);
        let mut body = Vec::with_capacity(160);
        document::push(&mut body, scan, count, now());
        let asked = self.connection.ask(Method::PUT, &self.path, Content::Json, body.into()).await;
        match asked.and_then(http::Answer::done) {
            Ok(()) => self.round.given[place] = Some((id, count)),
            Err(error) if error.is(kind::VERSION_CONFLICT) => self.round.left.push(place),
            Err(error) => return Err(attempt(&error, Effect::Change)),
        }
        Ok(())
    }

    async fn write_all(&mut self, scans: &[Scan]) -> Step<()> {
        let (_, action) = self.write.names();
        let date = now();
        let mut body = Vec::with_capacity(self.round.next.len() * 180);
        for &(place, id, count) in &self.round.next {
            document::push_line(&mut body, action, id, &scans[place], count, date);
        }
        let asked = self.connection.ask(Method::POST, &self.bulk_path, Content::Lines, body.into()).await;
        let answer = asked.and_then(http::Answer::read::<Bulk<'_>>).map_err(ended(Effect::Change))?;
        self.round.take(answer)
    }

    /// Counts and writes until each scan is inserted or refused. A conflict if nothing was inserted, because other
    /// clients were first.
    async fn insert_counted(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        self.round.given.clear();
        self.round.given.resize(scans.len(), None);
        self.round.left.clear();
        self.round.left.extend(0..scans.len());
        for _ in 0..ROUNDS {
            let mut done = self.count(scans).await;
            if done.is_ok() {
                done = self.write(scans).await;
            }
            let Round { given, left, .. } = &self.round;
            let is_begun = given.iter().any(Option::is_some);
            match done {
                Ok(()) if left.is_empty() => {
                    for given in given {
                        match given {
                            Some((id, count)) => inserted.took(*id, *count),
                            None => inserted.refused(),
                        }
                    }
                    return Attempt::Ok;
                }
                Ok(()) if is_begun => {}
                Ok(()) => return Attempt::Conflict,
                Err(ended) if is_begun => return ended.after_a_part(),
                Err(ended) => return ended,
            }
        }
        Attempt::Unknown(Fault::lost("some scans were inserted, and there is a gap before the others' ids"))
    }

    /// The same under a lock on each parcel, which are taken in the order of hashes.
    async fn insert_locked(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let Some(locks) = &mut self.locks else { return locking::none() };
        self.order.clear();
        self.order.extend(0..scans.len());
        self.order.sort_unstable_by_key(|&place| scans[place].hash());
        let mut patience = Patience::default();
        let mut ended = Attempt::Ok;
        for &place in &self.order {
            match locks.acquire(scans[place].hash(), &mut patience).await {
                Ok(grant) => self.held.push(grant),
                Err(without) => {
                    ended = without;
                    break;
                }
            }
        }
        if ended == Attempt::Ok {
            ended = self.insert_counted(scans, inserted).await;
        }
        let held = self.held.drain(..);
        // a write that may still be in flight keeps its locks until the leases end
        if let (false, Some(locks)) = (matches!(ended, Attempt::Unknown(_)), &mut self.locks) {
            for grant in held {
                locks.release(grant).await;
            }
        }
        ended
    }

    async fn read_by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Step<Attempt> {
        let ids = || COUNTS.map(|count| Ids::made(parcel.number, count));
        let body = document::ids(ids());
        let asked = self.connection.ask(Method::POST, &self.read_path, Content::Json, body).await;
        let documents = asked.and_then(http::Answer::read::<Documents<'_>>);
        let each = |_: usize, id: &Text<'_>, source: &str| found.take(document::decode(id, source));
        let read = documents.and_then(|documents| documents.found(ids(), each));
        read.map(|()| Attempt::Ok).map_err(ended(Effect::None))
    }

    async fn read_by_id(&mut self, id: u64, found: &mut Found) -> Step<Attempt> {
        self.path.clear();
        let _ = write!(self.path, "/{}/_doc/{id}", self.alias);
        let got = self.connection.get(&self.path).await.and_then(http::Answer::read_found::<Single<'_>>);
        let Some(single) = got.map_err(ended(Effect::None))? else { return Ok(Attempt::Refused) };
        found.take(single.scan());
        Ok(Attempt::Ok)
    }
}

impl Operations for Client {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        if self.locks.is_some() {
            self.insert_locked(scans, inserted).await
        } else {
            self.insert_counted(scans, inserted).await
        }
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        self.read_by_hash(parcel, found).await.unwrap_or_else(|ended| ended)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        self.read_by_id(id, found).await.unwrap_or_else(|ended| ended)
    }

    fn lock_wait(&mut self) -> Duration {
        self.locks.as_mut().map_or(Duration::ZERO, Locks::take_waited)
    }
}

#[cfg(test)]
mod tests;
