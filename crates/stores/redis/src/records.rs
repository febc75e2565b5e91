//! The records workload on Redis: a hash for each record, and an index of their keys where ranges are read.

mod client;

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
};

use acidtest_engine::ClientTask;
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    LoadProgress, Place,
    records::{
        self, Action, Answer, Batches, Connector, Fields, Layout, Lookup, RecordVisitor, RecordsStore,
        Requirements, Scenario, key_name, tag_of,
    },
};
use redis::{Cmd, cmd, pipe};

use crate::{
    Redis,
    keys::{self, Scan},
    lock::{self, Locks},
    protocol::{Connection, Error, Replies, Reply},
    records::client::Client,
    server::{ConnectOptions, Request as Effect, ended},
    session::{Script, Session, Step},
};

/// Bytes of records in one round trip while loading and reading back, exceeded by little.
const BATCH_BYTES: u64 = 1 << 20;
/// Records in one round trip at most.
const BATCH: u64 = 1_000;

/// The field that holds a record's version.
const VERSION: &str = "version";

/// The reason why there are no transactions under the hard lock.
pub(crate) const ONE_LOCK: &str = "a lock key is on one record: transactions go without one (none), with WATCH (soft) or in one script (native)";

static INSERT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("records/insert.lua")));
static UPDATE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("records/update.lua")));
static MODIFY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("records/modify.lua")));
static SCAN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("records/scan.lua"), "return scan(KEYS[1], unpack(ARGV))"))
});
static TRANSACT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("records/scan.lua"), include_str!("records/transact.lua")))
});

/// Names of a trial's keys, and of the fields of its records.
struct Names {
    /// The prefix of all keys of the trial.
    all: String,
    /// The prefix of the keys of records.
    record: String,
    /// The prefix of the keys of locks on records.
    lock: String,
    /// The key of the sorted set of all records' keys; `None` where no ranges are read.
    index: Option<String>,
    /// The names of the version and the fields of a record.
    columns: Vec<String>,
}

impl Names {
    fn of(place: &Place, layout: &Layout) -> Self {
        let all = all(place);
        let fields = (0..layout.fields).map(|field| format!("field{field}"));
        Self {
            record: format!("{all}record:"),
            lock: format!("{all}lock:"),
            index: layout.scans.then(|| format!("{all}index")),
            columns: [VERSION.to_owned()].into_iter().chain(fields).collect(),
            all,
        }
    }

    /// The key of the counter that numbers the locks' tokens.
    fn fence(&self) -> String {
        format!("{}fence", self.all)
    }

    /// The columns that an operation reads of its record: the version alone for one that only writes it.
    fn wanted(&self, action: Action) -> &[String] {
        let only_written = matches!(action, Action::Update | Action::Insert);
        if only_written { &self.columns[..1] } else { &self.columns }
    }

    /// Adds names and values of a record's fields to a command.
    fn add_fields(&self, command: &mut Cmd, fields: &Fields) {
        for (name, field) in self.columns[1..].iter().zip(fields.iter()) {
            command.arg(name).arg(field);
        }
    }

    /// The command that writes a record at a version.
    fn set(&self, key: &str, version: u64, request: &records::Request) -> Cmd {
        let mut set = cmd("HSET");
        set.arg(key);
        self.add_record(&mut set, version, &request.fields);
        set
    }

    /// The call of the script that reads a range of records.
    fn scan_call(&self, request: &records::Request) -> Cmd {
        let mut call = Cmd::new();
        self.add_scan(SCAN.begin(&mut call), request);
        call
    }

    /// Adds to a call of the script that reads a range of records its keys and arguments.
    fn add_scan(&self, call: &mut Cmd, request: &records::Request) {
        call.arg(1).arg(&self.index).arg(&self.record);
        call.arg(&request.key).arg(request.length).arg(&self.columns);
    }

    /// Adds names and values of a record's version and fields to a command.
    fn add_record(&self, command: &mut Cmd, version: u64, fields: &Fields) {
        command.arg(VERSION).arg(version);
        self.add_fields(command, fields);
    }
}

/// The prefix of all keys of a trial.
fn all(place: &Place) -> String {
    format!("{}{}:", keys::prefix(&place.namespace), place.object("usertable"))
}

impl RecordsStore for Redis {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let names = Names::of(place, layout);
            let batches = Batches::of(layout, layout.batch(BATCH_BYTES, BATCH));
            // two connections: one encodes its next batch while the server works on the other's
            let (mut one, mut two) = (self.server.reach().await?, self.server.reach().await?);
            let loading = async {
                for script in
                    lock::scripts().into_iter().chain([&*INSERT, &UPDATE, &MODIFY, &SCAN, &TRANSACT])
                {
                    script.keep(&mut one).await?;
                }
                tokio::try_join!(
                    load_some(&mut one, &names, layout, &batches, loaded),
                    load_some(&mut two, &names, layout, &batches, loaded),
                )
            };
            loading.await.map(|_| ()).map_err(self.server.failed("loading the records"))
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = RecordsConnector {
            server: self.server.clone(),
            wanted: *wanted,
            names: Arc::new(Names::of(place, &wanted.layout)),
        };
        records::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            read_state(&mut connection, &Names::of(place, layout), layout, each)
                .await
                .map_err(self.server.failed("reading the final records"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            keys::remove(&mut connection, &all(place), None)
                .await
                .map_err(self.server.failed("removing the records"))
        })
    }
}

/// Loads batches of records until all are taken, by this connection or another.
async fn load_some(
    connection: &mut Connection,
    names: &Names,
    layout: &Layout,
    batches: &Batches,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut fields = Fields::default();
    let mut batch_of = pipe();
    while let Some(numbers) = batches.take() {
        let count = numbers.end - numbers.start;
        batch_of.clear();
        let mut indexed = cmd("ZADD");
        indexed.arg(&names.index);
        for number in numbers {
            let key = key_name(number);
            layout.fill(number, &mut fields);
            let mut set = cmd("HSET");
            set.arg(format!("{}{key}", names.record));
            names.add_record(&mut set, 0, &fields);
            batch_of.add_command(set);
            indexed.arg(0).arg(key);
        }
        if names.index.is_some() {
            batch_of.add_command(indexed);
        }
        connection.ask_all(&batch_of).await?;
        loaded.add(count);
    }
    Ok(())
}

async fn read_state(
    connection: &mut Connection,
    names: &Names,
    layout: &Layout,
    each: &mut RecordVisitor<'_>,
) -> Result<(), Error> {
    // SCAN may return a key twice; for each record seen, only its number's hash of eight bytes is kept
    let mut shown: HashSet<u64> = HashSet::new();
    let mut is_new = |key: &str| hash_of(key).is_none_or(|hash| shown.insert(hash));
    let record = |key: &[u8]| {
        let record = key.strip_prefix(names.record.as_bytes()).unwrap_or_default();
        String::from_utf8_lossy(record).into_owned()
    };
    let mut scan = Scan::of(&names.record);
    let at_once = usize::try_from(layout.batch(BATCH_BYTES, BATCH)).unwrap_or(1);
    while let Some(mut keys) = scan.next(connection).await? {
        keys.retain(|key| is_new(&record(key)));
        for keys in keys.chunks(at_once) {
            let mut read = connection.batch()?;
            for key in keys {
                read.push(cmd("HMGET").arg(key).arg(&names.columns))?;
            }
            for (key, reply) in keys.iter().zip(read.answers().await) {
                let Some(reply) = keys::held(reply)? else {
                    each(&record(key), 0, None);
                    continue;
                };
                let Columns { version, fields, is_gone } =
                    Columns::of(reply, &names.columns).ok_or_else(no_record)?;
                // a key that has vanished is no record; one without a valid version is a record that is torn
                let version = number(version);
                let tag = version.and_then(|_| tag_of(fields.map(bytes)));
                if !is_gone {
                    each(&record(key), version.unwrap_or(0), tag);
                }
            }
        }
    }
    Ok(())
}

/// A record as `HMGET` returns it.
struct Columns<'a> {
    /// Its version, which is the first column.
    version: Reply<'a>,
    /// The other columns.
    fields: Replies<'a>,
    /// Whether there is nothing in any column.
    is_gone: bool,
}

impl<'a> Columns<'a> {
    /// `None` for an answer of another shape.
    fn of(reply: Reply<'a>, wanted: &[String]) -> Option<Self> {
        let mut fields = reply.array().ok().filter(|values| values.len() == wanted.len())?;
        let version = fields.next()?;
        let is_gone = version == Reply::Nil && fields.clone().all(|field| field == Reply::Nil);
        Some(Self { version, fields, is_gone })
    }
}

fn no_record() -> Error {
    Error::Lost("the server's answer is not a record".to_owned())
}

/// The hash in a record's key; `None` for a key that no record of acidtest's has.
fn hash_of(key: &str) -> Option<u64> {
    let digits =
        key.strip_prefix("user").filter(|digits| *digits == "0" || !digits.starts_with(['0', '+']))?;
    digits.parse().ok()
}

/// The bytes of a field; empty if the field is missing.
pub(crate) fn bytes(value: Reply<'_>) -> &[u8] {
    value.text().unwrap_or_default()
}

/// A number, only if it is spelled as acidtest writes it: `007` would parse as a number too.
pub(crate) fn number(value: Reply<'_>) -> Option<u64> {
    digits(bytes(value))
}

/// As [`number`], of a value's bytes.
pub(crate) fn digits(bytes: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(bytes).ok()?;
    let ours = digits == "0" || !digits.starts_with(['0', '+']);
    digits.parse().ok().filter(|_| ours)
}

/// Takes a record as `HMGET` returns it: its version, and its other columns if they were wanted.
fn take(reply: Reply<'_>, wanted: &[String], answer: &mut Answer) -> Step<Lookup> {
    let columns = Columns::of(reply, wanted).ok_or_else(no_record);
    let Columns { version, fields, is_gone } = columns.map_err(ended(Effect::Harmless))?;
    if is_gone {
        return Ok(Lookup::Nothing);
    }
    let Some(version) = number(version) else {
        answer.torn();
        return Ok(Lookup::Torn);
    };
    if fields.len() > 0 {
        answer.record(version, fields.map(bytes));
    }
    Ok(Lookup::Record(version))
}

/// Takes whole records; one that the index names but that no longer exists is left out.
fn take_all(mut records: Replies<'_>, columns: &[String], answer: &mut Answer) -> Step<()> {
    records.try_for_each(|record| take(record, columns, answer).map(drop))
}

struct RecordsConnector {
    server: ConnectOptions,
    wanted: Requirements,
    names: Arc<Names>,
}

impl Connector for RecordsConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.server.connect_client().await?;
        let locks = Locks::new(self.names.fence());
        Ok(Client::new(Session::new(connection), locks, self.wanted.lock, Arc::clone(&self.names)))
    }
}

#[cfg(test)]
mod tests;
