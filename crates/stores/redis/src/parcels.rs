//! The parcels workload on Redis: a hash for each scan, and for each parcel a list of its scans' ids.

mod client;
mod size;

use std::{
    cell::RefCell,
    collections::HashSet,
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use acidtest_engine::ClientTask;
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    LoadProgress, Place, TableSize,
    parcels::{
        self, Batches, Connector, LoadMethod, LoadedScan, Loading, ParcelsStore, Requirements, Scan,
        ScanVisitor, Scenario, StoredScan,
    },
};
use redis::{Cmd, Pipeline, RedisWrite, ToRedisArgs, cmd, pipe};

use crate::{
    Redis,
    keys::{self, Scan as Walk},
    lock::Locks,
    parcels::client::Client,
    protocol::{Connection, Error, Reply, nonsense},
    records::{bytes, digits, number},
    server::ConnectOptions,
    session::{Script, Session},
};

/// Scans in one round trip while loading and reading back.
const BATCH: usize = 1_000;

/// The reason why there is no trial without an index.
pub(crate) const NO_SEARCH: &str =
    "without a list of each parcel's scans Redis has no query that finds them: leave out --index none";

/// The fields of a scan's hash, in the order in which they are read.
const COLUMNS: [&str; 6] = ["hash", "type", "count", "machine", "code", "date"];

macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!($file)),+)))
    };
}

static INSERT: LazyLock<Script> = script!("parcels/put.lua", "parcels/insert.lua");
static ACQUIRE: LazyLock<Script> = script!("parcels/acquire.lua");
static SETTLE: LazyLock<Script> = script!("parcels/put.lua", "parcels/settle.lua");
static LOAD: LazyLock<Script> = script!("parcels/put.lua", "parcels/load.lua");
static READ: LazyLock<Script> = script!("parcels/read.lua");

/// Names of a trial's keys.
struct Names {
    /// The prefix of all keys of the trial.
    all: String,
    /// The prefix of the keys of scans, which end in their ids.
    scan: String,
    /// The prefix of the keys of parcels' lists, which end in their hashes.
    parcel: String,
    /// The prefix of the keys of locks on parcels.
    lock: String,
    /// The key of the counter that gives the ids.
    ids: String,
}

/// A key, written out as it is sent.
#[derive(Clone, Copy)]
struct Key<'a, T>(&'a str, T);

impl<T: std::fmt::Display> ToRedisArgs for Key<'_, T> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(format_args!("{}{}", self.0, self.1));
    }
}

impl Names {
    fn of(place: &Place) -> Self {
        let all = format!("{}{}:", keys::prefix(&place.namespace), place.object("scans"));
        Self {
            scan: format!("{all}scan:"),
            parcel: format!("{all}parcel:"),
            lock: format!("{all}lock:"),
            ids: format!("{all}ids"),
            all,
        }
    }

    /// The key of the counter that numbers the locks' tokens.
    fn fence(&self) -> String {
        format!("{}fence", self.all)
    }

    fn scan(&self, id: u64) -> Key<'_, u64> {
        Key(&self.scan, id)
    }

    fn list<'a>(&'a self, hash: &'a str) -> Key<'a, &'a str> {
        Key(&self.parcel, hash)
    }

    fn lock<'a>(&'a self, hash: &'a str) -> Key<'a, &'a str> {
        Key(&self.lock, hash)
    }

    /// Adds the commands that insert a scan.
    fn put(&self, batch: &mut Pipeline, scan: &Scan, (id, count): (u64, u8), date: &str) {
        batch.cmd("HSET").arg(self.scan(id));
        batch.arg("hash").arg(scan.hash()).arg("type").arg(scan.kind()).arg("count").arg(count);
        batch.arg("machine").arg(scan.machine()).arg("code").arg(scan.code()).arg("date").arg(date);
        batch.cmd("RPUSH").arg(self.list(scan.hash())).arg(id);
    }
}

/// Adds the texts of a scan, in the order in which the scripts take them.
fn add_texts(command: &mut Cmd, scan: &Scan) {
    command.arg(scan.hash()).arg(scan.kind()).arg(scan.machine()).arg(scan.code());
}

/// Writes the server's answer to `TIME` in seconds.
///
/// # Errors
/// It is none.
fn write_date(time: Reply<'_>, date: &mut String) -> Result<(), Error> {
    let [seconds, micros] = time.exactly()?.map(number);
    let (Some(seconds), Some(micros)) = (seconds, micros) else { return Err(nonsense()) };
    date.clear();
    // writing to a text cannot fail
    let _ = write!(date, "{seconds}.{micros:06}");
    Ok(())
}

/// The scan of this id with these columns, as `HMGET` returns them; none if the server has no such key.
///
/// # Errors
/// The answer is of another shape.
fn stored(id: Option<u64>, columns: Reply<'_>) -> Result<Option<StoredScan>, Error> {
    let columns: [_; COLUMNS.len()] = columns.exactly()?;
    if columns.iter().all(|value| *value == Reply::Nil) {
        return Ok(None);
    }
    let [hash, kind, count, machine, code, date] = columns;
    let texts = [hash, kind, machine, code].map(bytes);
    Ok(Some(StoredScan::new(id, number(count), !bytes(date).is_empty(), texts)))
}

/// A scan of which nothing is known but perhaps its id.
fn torn(id: Option<u64>) -> StoredScan {
    StoredScan::new(id, None, false, [b""; 4])
}

impl ParcelsStore for Redis {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let names = Names::of(place);
            let (mut one, mut two) = (self.server.reach().await?, self.server.reach().await?);
            let load = async {
                for script in [&*INSERT, &ACQUIRE, &SETTLE, &LOAD, &READ] {
                    script.keep(&mut one).await?;
                }
                one.ask(cmd("SET").arg(&names.ids).arg(loading.scans)).await?;
                match loading.method {
                    LoadMethod::Single => load_one_by_one(one, &names, loading, loaded).await,
                    LoadMethod::Bulk => {
                        // two connections: one encodes its next batch while the server works on the other's
                        let batches = RefCell::new(loading.batches(BATCH));
                        tokio::try_join!(
                            load_some(&mut one, &names, &batches, loaded),
                            load_some(&mut two, &names, &batches, loaded),
                        )
                        .map(drop)
                    }
                }
            };
            load.await.map_err(self.server.failed("loading the scans"))
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = ParcelsConnector {
            server: self.server.clone(),
            lock: wanted.lock,
            names: Arc::new(Names::of(place)),
        };
        parcels::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            read_state(&mut connection, &Names::of(place), each)
                .await
                .map_err(self.server.failed("reading the final scans"))
        })
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            size::measure(&mut connection, &Names::of(place))
                .await
                .map_err(self.server.failed("asking for the size of the scans"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            keys::remove(&mut connection, &Names::of(place).all, None)
                .await
                .map_err(self.server.failed("removing the scans"))
        })
    }
}

/// Loads batches of scans until all are taken, by this connection or another.
async fn load_some(
    connection: &mut Connection,
    names: &Names,
    batches: &RefCell<Batches>,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut date = String::new();
    write_date(connection.ask(&cmd("TIME")).await?, &mut date)?;
    let mut commands = pipe();
    loop {
        let Some(loading) = batches.borrow_mut().next() else { return Ok(()) };
        commands.clear();
        for LoadedScan { scan, id, count } in &loading {
            names.put(&mut commands, scan, (*id, *count), &date);
        }
        // the date of the next batch, without a round trip of its own
        commands.cmd("TIME");
        let answers = connection.ask_all(&commands).await?;
        write_date(answers.behind(commands.len() - 1).reply()?, &mut date)?;
        loaded.add(loading.len() as u64);
    }
}

async fn load_one_by_one(
    connection: Connection,
    names: &Names,
    loading: &Loading,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut session = Session::new(connection);
    for LoadedScan { scan, id, count } in loading.rows() {
        let asked = session.run(&LOAD, |load| {
            load.arg(1).arg(names.list(scan.hash())).arg(&names.scan).arg(id).arg(count);
            add_texts(load, &scan);
        });
        asked.await?;
        loaded.add(1);
    }
    Ok(())
}

async fn read_state(
    connection: &mut Connection,
    names: &Names,
    each: &mut ScanVisitor<'_>,
) -> Result<(), Error> {
    // SCAN may return a key twice; of each scan seen only its id is kept
    let mut shown: HashSet<u64> = HashSet::new();
    let id_of = |key: &[u8]| key.strip_prefix(names.scan.as_bytes()).and_then(digits);
    let mut walk = Walk::of(&names.scan);
    while let Some(mut keys) = walk.next(connection).await? {
        keys.retain(|key| id_of(key).is_none_or(|id| shown.insert(id)));
        for keys in keys.chunks(BATCH) {
            let mut read = connection.batch()?;
            for key in keys {
                read.push(cmd("HMGET").arg(key).arg(&COLUMNS))?;
            }
            for (key, reply) in keys.iter().zip(read.answers().await) {
                let id = id_of(key);
                let Some(reply) = keys::held(reply)? else {
                    each(torn(id));
                    continue;
                };
                // a key that has vanished is no scan
                if let Some(stored) = stored(id, reply)? {
                    each(stored);
                }
            }
        }
    }
    Ok(())
}

struct ParcelsConnector {
    server: ConnectOptions,
    lock: Lock,
    names: Arc<Names>,
}

impl Connector for ParcelsConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.server.connect_client().await?;
        let locks = Locks::new(self.names.fence());
        Ok(Client::new(Session::new(connection), locks, self.lock, Arc::clone(&self.names)))
    }
}

#[cfg(test)]
mod tests;
