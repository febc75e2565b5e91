//! The parcels workload on Tarantool: a tuple for each scan, a sequence for their ids, and a procedure for what counts and
//! inserts.

mod client;

use std::cell::RefCell;

use acidtest_engine::ClientTask;
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    LoadProgress, Medium, Place, TableSize,
    parcels::{
        self, Batches, Connector, Index, LoadMethod, LoadedScan, Loading, ParcelsStore, Requirements, Scan,
        ScanVisitor, Scenario, StoredScan,
    },
};

use crate::{
    Tarantool,
    iproto::{Connection, Encoder, Error, IteratorType, Reader},
    parcels::client::Client,
    server::ConnectOptions,
    trial::{self, Plan, length, space_of},
};

/// Scans in one request while loading and reading back.
const BATCH: u16 = 1_000;

/// The base of the name of a trial's space and procedure.
const OBJECT: &str = "scans";

/// Fields of a scan's tuple.
const FIELDS: usize = 7;

/// The procedure, the format of a tuple and its key: the first field. The index on the hash comes after loading.
const PLAN: Plan<'static> = Plan {
    procedure: include_str!("lua/parcels.lua"),
    format: &[
        ("id", "unsigned"),
        ("hash", "string"),
        ("type", "string"),
        ("count", "integer"),
        ("machine", "string"),
        ("code", "string"),
        ("date", "number"),
    ],
    key: 1,
    second: None,
};

impl ParcelsStore for Tarantool {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let name = trial::name(place, OBJECT);
            let (mut one, mut two) = (self.server.reach().await?, self.server.reach().await?);
            let load = async {
                trial::lay_out(&mut one, &name, &PLAN).await?;
                match loading.method {
                    LoadMethod::Single => {
                        make_ready(&mut one, &name, wanted.index, loading.scans).await?;
                        let batches = RefCell::new(loading.batches(1));
                        load_some(&mut one, &name, &batches, loaded).await
                    }
                    LoadMethod::Bulk => {
                        // two connections: one encodes its next batch while the server works on the other's
                        let batches = RefCell::new(loading.batches(BATCH.into()));
                        tokio::try_join!(
                            load_some(&mut one, &name, &batches, loaded),
                            load_some(&mut two, &name, &batches, loaded),
                        )?;
                        // an index is made faster of all tuples at once
                        make_ready(&mut one, &name, wanted.index, loading.scans).await
                    }
                }
            };
            load.await.map_err(self.server.failed("loading the scans"))
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = ParcelsConnector {
            server: self.server.clone(),
            name: trial::name(place, OBJECT),
            wanted: *wanted,
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
            read_state(&mut connection, &trial::name(place, OBJECT), each)
                .await
                .map_err(self.server.failed("reading the final scans"))
        })
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async move {
            let name = trial::name(place, OBJECT);
            let name = |args: &mut Encoder| {
                args.array(1).str(&name);
            };
            let size = |values: &mut Reader<'_>| {
                values.tuple(3)?;
                Ok(TableSize {
                    rows: values.u64()?,
                    data_bytes: Some(values.u64()?),
                    index_bytes: Some(values.u64()?),
                    medium: Medium::Memory,
                    source: "space:bsize() and index:bsize(), without the headers of tuples and what their slabs round up: \
                             the server takes about a quarter more"
                        .to_owned(),
                })
            };
            self.server
                .run("asking for the size of the scans", include_str!("lua/size.lua"), name, size)
                .await
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            trial::clear_away(&self.server, "removing the scans", &trial::name(place, OBJECT)).await
        })
    }
}

/// Adds the sequence of ids, which goes on behind the loaded ones, and the index on the hash if it is wanted.
async fn make_ready(connection: &mut Connection, name: &str, index: Index, last: u64) -> Result<(), Error> {
    let arguments = |args: &mut Encoder| {
        args.array(3).str(name).u64(last).bool(index == Index::Hash);
    };
    connection.eval(include_str!("lua/parcels_ready.lua"), arguments).await.map(drop)
}

/// Loads batches of scans until all are taken, by this connection or another.
async fn load_some(
    connection: &mut Connection,
    name: &str,
    batches: &RefCell<Batches>,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    loop {
        let Some(batch) = batches.borrow_mut().next() else { return Ok(()) };
        let scans = |args: &mut Encoder| {
            args.array(2).str("load").array(length(&batch));
            for LoadedScan { scan, id, count } in &batch {
                write_scan(args, Some(*id), scan, *count);
            }
        };
        connection.call(name, scans).await?;
        loaded.add(batch.len() as u64);
    }
}

/// Writes a scan as the procedure takes it: its tuple without the date. The sequence gives it an id where it has none.
fn write_scan(args: &mut Encoder, id: Option<u64>, scan: &Scan, count: u8) {
    args.array(6);
    match id {
        Some(id) => args.u64(id),
        None => args.nil(),
    };
    args.str(scan.hash()).str(scan.kind()).u64(count.into()).str(scan.machine()).str(scan.code());
}

async fn read_state(
    connection: &mut Connection,
    name: &str,
    each: &mut ScanVisitor<'_>,
) -> Result<(), Error> {
    // a server that lost its data has no space either: every scan counts as missing
    let Some(space) = space_of(connection, name).await? else { return Ok(()) };
    let mut last: Option<u64> = None;
    loop {
        let key = |args: &mut Encoder| match last {
            Some(last) => {
                args.array(1).u64(last);
            }
            None => {
                args.array(0);
            }
        };
        let mut scans = connection.select(space, 0, key, BATCH.into(), IteratorType::Gt).await?;
        let count = scans.array_len()?;
        let mut key = None;
        for _ in 0..count {
            let scan = scans.value()?;
            key = Some(key_of(scan)?);
            each(stored(scan));
        }
        if count < usize::from(BATCH) {
            return Ok(());
        }
        last = key;
    }
}

/// The id of a tuple in a space of scans, which is always a number: the index on it accepts nothing else.
fn key_of(mut tuple: Reader<'_>) -> Result<u64, Error> {
    tuple.tuple(1)?;
    tuple.u64()
}

/// The scan of a tuple. A field of another type than a scan's, or none, is handed on as one that makes no sense.
fn stored(mut tuple: Reader<'_>) -> StoredScan {
    let fields = tuple.array_len().unwrap_or(0);
    let mut all = [None; FIELDS];
    for field in all.iter_mut().take(fields) {
        *field = tuple.value().ok();
    }
    let [id, hash, kind, count, machine, code, date] = all;
    let is_dated = date.is_some_and(|mut date| date.f64().is_ok());
    StoredScan::new(number(id), number(count), is_dated, [hash, kind, machine, code].map(text))
}

fn number(field: Option<Reader<'_>>) -> Option<u64> {
    field?.u64().ok()
}

fn text(field: Option<Reader<'_>>) -> &[u8] {
    field.and_then(|mut field| field.bytes().ok()).unwrap_or_default()
}

struct ParcelsConnector {
    server: ConnectOptions,
    name: String,
    wanted: Requirements,
}

impl Connector for ParcelsConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let (connection, space) = trial::connect(&self.server, &self.name).await?;
        Ok(Client::new(connection, self.name.clone(), space, self.wanted))
    }
}

#[cfg(test)]
mod tests;
