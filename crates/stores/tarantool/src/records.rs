//! The records workload on Tarantool: a tuple for each record.

use acidtest_engine::{Attempt, ClientTask, Fault};
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    LoadProgress, Place,
    records::{
        self, Action, Answer, Batches, Connector, Fields, Layout, Lookup, OPERATIONS, Operations,
        RecordVisitor, RecordsStore, Request, Requirements, Scenario, key_name, tag_of,
    },
};

use crate::{
    Tarantool,
    iproto::{Connection, Encoder, Error, IteratorType, Reader},
    server::{ConnectOptions, Request as Effect, ended},
    trial::{self, LEASE, PATIENCE, Plan, Step, length, read_done, space_of},
};

/// The reason why several operations are a transaction only in a procedure.
pub(crate) const ONE_CALL: &str = "a transaction ends with its request before the streams of 2.10: \
                                   several operations go together in one stored procedure (native)";

/// Bytes of records in one request while loading and reading back, exceeded by little.
const BATCH_BYTES: u64 = 1 << 20;
/// Records in one request at most.
const BATCH: u64 = 1_000;

/// The base of the name of a trial's space and procedure.
const OBJECT: &str = "usertable";

/// Positions in a record's tuple, counted from 0: the version, and the first of the fields.
const VERSION: u64 = 1;
const FIELDS: u64 = 2;

/// Records in one request, by [`BATCH_BYTES`] and [`BATCH`].
fn batch(layout: &Layout) -> u32 {
    u32::try_from(layout.batch(BATCH_BYTES, BATCH)).unwrap_or(1)
}

impl RecordsStore for Tarantool {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let name = trial::name(place, OBJECT);
            let batches = Batches::of(layout, batch(layout).into());
            // two connections: one encodes its next batch while the server works on the other's
            let (mut one, mut two) = (self.server.reach().await?, self.server.reach().await?);
            let loading = async {
                lay_out(&mut one, &name, layout).await?;
                tokio::try_join!(
                    load_some(&mut one, &name, layout, &batches, loaded),
                    load_some(&mut two, &name, layout, &batches, loaded),
                )
            };
            loading.await.map(|_| ()).map_err(self.server.failed("loading the records"))
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = RecordsConnector {
            server: self.server.clone(),
            name: trial::name(place, OBJECT),
            wanted: *wanted,
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
            read_state(&mut connection, &trial::name(place, OBJECT), batch(layout), each)
                .await
                .map_err(self.server.failed("reading the final records"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            trial::clear_away(&self.server, "removing the records", &trial::name(place, OBJECT)).await
        })
    }
}

async fn lay_out(connection: &mut Connection, name: &str, layout: &Layout) -> Result<(), Error> {
    let fields: Vec<String> = (0..layout.fields).map(|field| format!("field{field}")).collect();
    let fields = fields.iter().map(|field| (field.as_str(), "string"));
    let format: Vec<_> = [("key", "string"), ("version", "unsigned")].into_iter().chain(fields).collect();
    let plan = Plan { procedure: include_str!("lua/records.lua"), format: &format, key: 1, second: None };
    trial::lay_out(connection, name, &plan).await
}

/// Loads batches of records until all are taken, by this connection or another.
async fn load_some(
    connection: &mut Connection,
    name: &str,
    layout: &Layout,
    batches: &Batches,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut fields = Fields::default();
    while let Some(numbers) = batches.take() {
        let count = numbers.end - numbers.start;
        let records = |args: &mut Encoder| {
            args.array(2).str("load").array(u32::try_from(count).unwrap_or(u32::MAX));
            for number in numbers.clone() {
                layout.fill(number, &mut fields);
                write_record(args, &key_name(number), 0, &fields);
            }
        };
        connection.call(name, records).await?;
        loaded.add(count);
    }
    Ok(())
}

async fn read_state(
    connection: &mut Connection,
    name: &str,
    batch: u32,
    each: &mut RecordVisitor<'_>,
) -> Result<(), Error> {
    // a server that lost its data has no space either: every record counts as missing
    let Some(space) = space_of(connection, name).await? else { return Ok(()) };
    let mut last: Option<Vec<u8>> = None;
    loop {
        let key = |args: &mut Encoder| match &last {
            Some(last) => {
                args.array(1).raw_str(last);
            }
            None => {
                args.array(0);
            }
        };
        let mut records = connection.select(space, 0, key, batch, IteratorType::Gt).await?;
        let count = records.array_len()?;
        let mut key = &[][..];
        for _ in 0..count {
            let record = records.value()?;
            key = key_of(record)?;
            let (version, tag) = match parts(record) {
                Some((version, fields)) => (version, tag_of(fields)),
                None => (0, None),
            };
            each(&String::from_utf8_lossy(key), version, tag);
        }
        if count < usize::try_from(batch).unwrap_or(usize::MAX) {
            return Ok(());
        }
        last = Some(key.to_owned());
    }
}

/// The name of an action, which is also the name of the procedure's operation.
fn name_of(action: Action) -> &'static str {
    OPERATIONS[action as usize]
}

fn write_key(args: &mut Encoder, key: &str) {
    args.array(1).str(key);
}

fn write_record(args: &mut Encoder, key: &str, version: u64, fields: &Fields) {
    args.array(u32::try_from(2 + fields.iter().len()).unwrap_or(u32::MAX)).str(key).u64(version);
    for field in fields.iter() {
        args.str(field);
    }
}

/// The key of a tuple in a space of records, which is always a text: the index on it accepts nothing else.
fn key_of(mut tuple: Reader<'_>) -> Result<&[u8], Error> {
    tuple.tuple(1)?;
    tuple.bytes()
}

/// The version and fields of a tuple; `None` if it is no record. A field that is no text counts as empty, and
/// makes the record show as torn.
fn parts(mut tuple: Reader<'_>) -> Option<(u64, impl Iterator<Item = &[u8]>)> {
    let fields = tuple.tuple(2).ok()?;
    tuple.skip().ok()?;
    let version = tuple.u64().ok()?;
    let field = move |_| tuple.value().and_then(|mut field| field.bytes()).unwrap_or_default();
    Some((version, (0..fields).map(field)))
}

/// Takes the version of a tuple that was read, and its fields if the `whole` record was asked for.
fn read_record(values: &mut Reader<'_>, whole: bool, answer: &mut Answer) -> Result<Lookup, Error> {
    let Some((version, fields)) = parts(values.value()?) else {
        answer.torn();
        return Ok(Lookup::Torn);
    };
    if whole {
        answer.record(version, fields);
    }
    Ok(Lookup::Record(version))
}

/// Takes an array of tuples that were read, and returns the last one's lookup.
fn read_records(values: &mut Reader<'_>, whole: bool, answer: &mut Answer) -> Result<Lookup, Error> {
    let mut found = Lookup::Nothing;
    for _ in 0..values.array_len()? {
        found = read_record(values, whole, answer)?;
    }
    Ok(found)
}

/// Whether the whole record is read before it is written: an update needs its version only.
fn whole(action: Action) -> bool {
    action != Action::Update
}

struct RecordsConnector {
    server: ConnectOptions,
    name: String,
    wanted: Requirements,
}

impl Connector for RecordsConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let (connection, space) = trial::connect(&self.server, &self.name).await?;
        Ok(Client { connection, lock: self.wanted.lock, name: self.name.clone(), space })
    }
}

struct Client {
    connection: Connection,
    lock: Lock,
    /// The name of the trial's space and procedure.
    name: String,
    space: u32,
}

impl Client {
    /// Reads one record by its key, `whole` or its version alone.
    async fn get(&mut self, key: &str, whole: bool, answer: &mut Answer) -> Step<Lookup> {
        let key = |args: &mut Encoder| write_key(args, key);
        let records = self.connection.select(self.space, 0, key, 1, IteratorType::Eq).await;
        let read = records.and_then(|mut records| read_records(&mut records, whole, answer));
        read.map_err(ended(Effect::Harmless))
    }

    async fn scan(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let key = |args: &mut Encoder| write_key(args, &request.key);
        let records = self.connection.select(self.space, 0, key, request.length, IteratorType::Ge).await;
        let read = records.and_then(|mut records| read_records(&mut records, true, answer));
        read.map(|_| Attempt::Ok).map_err(ended(Effect::Harmless))
    }

    async fn insert(&mut self, request: &Request) -> Step<Attempt> {
        let record = |args: &mut Encoder| write_record(args, &request.key, 0, &request.fields);
        match self.connection.insert(self.space, record).await {
            Ok(_) => Ok(Attempt::Ok),
            Err(error) if error.code() == Some(Error::DUPLICATE_KEY) => Ok(Attempt::Refused),
            Err(error) => Err(ended(Effect::Change)(error)),
        }
    }

    async fn write_unprotected(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let version = self.get(&request.key, whole(request.action), answer).await?.above()?;
        let record = |args: &mut Encoder| write_record(args, &request.key, version, &request.fields);
        self.connection.replace(self.space, record).await.map_err(ended(Effect::Change))?;
        answer.wrote(version);
        Ok(Attempt::Ok)
    }

    async fn write_if_unchanged(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let version = self.get(&request.key, whole(request.action), answer).await?.above()?;
        let values = self.connection.call(&self.name, |args| {
            args.array(2).str("replace_if_unchanged");
            write_record(args, &request.key, version, &request.fields);
        });
        let done = values.await.and_then(|mut values| read_done(&mut values));
        answer.wrote(version);
        done.map_err(ended(Effect::Change))
    }

    async fn write_latched(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let Some((token, found)) = self.acquire(request, answer).await? else {
            return Ok(Attempt::Conflict);
        };
        let version = match found.above() {
            Ok(version) => version,
            Err(ended) => return self.settle(request, token, None).await.map(|_| ended),
        };
        answer.wrote(version);
        self.settle(request, token, Some(version)).await
    }

    /// Takes the latch of a record and reads it. Returns the latch's token and the record; `None` if another
    /// client held the latch for longer than [`PATIENCE`].
    async fn acquire(&mut self, request: &Request, answer: &mut Answer) -> Step<Option<(u64, Lookup)>> {
        let whole = whole(request.action);
        let values = self.connection.call(&self.name, |args| {
            args.array(5).str("acquire").str(&request.key).bool(whole).f64(LEASE).f64(PATIENCE);
        });
        let read = |mut values: Reader<'_>| {
            let more = values.tuple(1)?;
            if values.take_nil() {
                return Ok(None);
            }
            let token = values.u64()?;
            let is_there = more > 0 && !values.take_nil();
            let found = if is_there { read_record(&mut values, whole, answer)? } else { Lookup::Nothing };
            Ok(Some((token, found)))
        };
        values.await.and_then(read).map_err(ended(Effect::Harmless))
    }

    /// Writes the record at a version, if one is given, and gives up the latch.
    async fn settle(&mut self, request: &Request, token: u64, version: Option<u64>) -> Step<Attempt> {
        let values = self.connection.call(&self.name, |args| {
            args.array(3 + u32::from(version.is_some())).str("settle").str(&request.key).u64(token);
            if let Some(version) = version {
                write_record(args, &request.key, version, &request.fields);
            }
        });
        let effect = if version.is_some() { Effect::Change } else { Effect::Harmless };
        values.await.and_then(|mut values| read_done(&mut values)).map_err(ended(effect))
    }

    async fn update_in_one(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let key = |args: &mut Encoder| write_key(args, &request.key);
        let change = |args: &mut Encoder| {
            args.array(1 + u32::try_from(request.fields.iter().len()).unwrap_or(u32::MAX));
            args.array(3).str("+").u64(VERSION).u64(1);
            for (place, field) in (FIELDS..).zip(request.fields.iter()) {
                args.array(3).str("=").u64(place).str(field);
            }
        };
        let records = self.connection.update(self.space, 0, key, change).await;
        let read = records.and_then(|mut records| read_records(&mut records, false, answer));
        match read.map_err(ended(Effect::Change))? {
            Lookup::Nothing => Ok(Attempt::Refused),
            Lookup::Record(version) => {
                answer.wrote(version);
                Ok(Attempt::Ok)
            }
            Lookup::Torn => Ok(Attempt::Unknown(Fault::answered("what it wrote is not a record"))),
        }
    }

    async fn modify_in_one(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let values = self.connection.call(&self.name, |args| {
            args.array(2).str("modify");
            write_record(args, &request.key, 0, &request.fields);
        });
        let read = |mut values: Reader<'_>| {
            values.tuple(1)?;
            if values.take_nil() { Ok(Lookup::Nothing) } else { read_record(&mut values, true, answer) }
        };
        let found = values.await.and_then(read).map_err(ended(Effect::Change))?;
        if found == Lookup::Nothing {
            return Ok(Attempt::Refused);
        }
        // the procedure has overwritten the value, whatever it was
        answer.wrote(found.above().map_err(Attempt::after_a_part)?);
        Ok(Attempt::Ok)
    }

    /// Sends all requests of a transaction in one call.
    async fn do_in_one(&mut self, requests: &[Request], answers: &mut [Answer]) -> Step<Attempt> {
        let values = self.connection.call(&self.name, |args| {
            args.array(2).str("transact").array(length(requests));
            for request in requests {
                write_request(args, request);
            }
        });
        let read = |mut values: Reader<'_>| {
            values.tuple(1)?;
            if values.take_nil() {
                return Ok(Attempt::Refused);
            }
            if values.array_len()? != answers.len() {
                return Err(Error::Protocol("not an answer for each request".to_owned()));
            }
            answers.iter_mut().try_for_each(|answer| read_answer(&mut values, answer))?;
            Ok(Attempt::Ok)
        };
        values.await.and_then(read).map_err(ended(Effect::Change))
    }
}

/// Writes one request of a transaction as the procedure takes it.
fn write_request(args: &mut Encoder, request: &Request) {
    let name = name_of(request.action);
    match request.action {
        Action::Read => {
            args.array(2).str(name).str(&request.key);
        }
        Action::Scan => {
            args.array(3).str(name).str(&request.key).u64(request.length.into());
        }
        Action::Update | Action::Insert | Action::Modify => {
            args.array(2).str(name);
            write_record(args, &request.key, 0, &request.fields);
        }
    }
}

/// Takes the answer to one request of a transaction: the version that it wrote, if any, and the records that it
/// read.
fn read_answer(values: &mut Reader<'_>, answer: &mut Answer) -> Result<(), Error> {
    values.tuple(2)?;
    if !values.take_nil() {
        answer.wrote(values.u64()?);
    }
    read_records(values, true, answer).map(drop)
}

impl Operations for Client {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        let done = match (request.action, self.lock) {
            (Action::Read, _) => self.get(&request.key, true, answer).await.map(Lookup::read),
            (Action::Insert, _) => self.insert(request).await,
            (Action::Scan, _) => self.scan(request, answer).await,
            (Action::Update | Action::Modify, Lock::None) => self.write_unprotected(request, answer).await,
            (Action::Update | Action::Modify, Lock::Soft) => self.write_if_unchanged(request, answer).await,
            (Action::Update | Action::Modify, Lock::Hard) => self.write_latched(request, answer).await,
            (Action::Update, Lock::Native) => self.update_in_one(request, answer).await,
            (Action::Modify, Lock::Native) => self.modify_in_one(request, answer).await,
        };
        done.unwrap_or_else(|ended| ended)
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let done = match self.lock {
            Lock::Native => self.do_in_one(requests, answers).await,
            // not reached: the check of the plan refuses such cells
            Lock::None | Lock::Soft | Lock::Hard => Err(Attempt::Failed(Fault::answered(ONE_CALL))),
        };
        done.unwrap_or_else(|ended| ended)
    }
}

#[cfg(test)]
mod tests;
