//! The inventory workload on Tarantool: one space, one tuple of it for each tuple of stock, and a procedure for
//! the captures that must be one transaction.

use acidtest_engine::{Attempt, ClientTask, Fault};
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Place,
    inventory::{
        self, Capture, Connector, InventoryStore, Item, Operations, Release, Scenario, Stock, StockRow,
        Withdrawal, plan_capture,
    },
};

use crate::{
    Tarantool,
    iproto::{Connection, Encoder, Error, IteratorType, Reader},
    server::{ConnectOptions, Request, ended},
    trial::{self, LEASE, PATIENCE, Plan, Step, length, part, read_done, space_of},
};

/// Tuples in one request while loading and reading back.
const BATCH: u16 = 5_000;

/// Positions of fields in a tuple, counted from 0.
const COUNT: u64 = 5;
const VERSION: u64 = 6;
/// Fields of a tuple.
const FIELDS: usize = 7;

/// The procedure, the format of a tuple and its key: the first four fields.
const PLAN: Plan<'static> = Plan {
    procedure: include_str!("lua/inventory.lua"),
    format: &[
        ("sku", "unsigned"),
        ("condition", "unsigned"),
        ("source", "unsigned"),
        ("warehouse", "unsigned"),
        ("price", "unsigned"),
        ("count", "integer"),
        ("version", "unsigned"),
    ],
    key: 4,
    second: None,
};

/// The base of the name of a trial's space and procedure.
const OBJECT: &str = "stock";

impl InventoryStore for Tarantool {
    fn load<'a>(&'a self, place: &'a Place, _: Lock, stock: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("loading the stock");
            let name = trial::name(place, OBJECT);
            let mut connection = self.server.reach().await?;
            trial::lay_out(&mut connection, &name, &PLAN).await.map_err(&failed)?;
            for items in stock.items.chunks(BATCH.into()) {
                connection.call(&name, |args| load(args, items)).await.map_err(&failed)?;
            }
            Ok(())
        })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        let connector =
            TarantoolConnector { server: self.server.clone(), lock, name: trial::name(place, OBJECT) };
        inventory::task(connector, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            read_stock(&mut connection, &trial::name(place, OBJECT))
                .await
                .map_err(self.server.failed("reading the final stock"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            trial::clear_away(&self.server, "removing the stock", &trial::name(place, OBJECT)).await
        })
    }
}

/// Writes the arguments of the call that loads some tuples.
fn load(args: &mut Encoder, items: &[Item]) {
    args.array(2).str("load").array(length(items));
    for item in items {
        let (sku, condition, source, warehouse) = item.key();
        args.array(7).u64(sku.into()).u64(condition.into()).u64(source.into()).u64(warehouse.into());
        args.u64(item.price.into()).u64(item.initial.into()).u64(0);
    }
}

async fn read_stock(connection: &mut Connection, name: &str) -> Result<Vec<StockRow>, Error> {
    let mut held: Vec<StockRow> = Vec::new();
    // a server that lost its data has no space either: every tuple counts as missing
    let Some(space) = space_of(connection, name).await? else { return Ok(held) };
    let mut last: Option<[u64; 4]> = None;
    loop {
        let key = |args: &mut Encoder| match last {
            Some(last) => {
                args.array(4);
                for part in last {
                    args.u64(part);
                }
            }
            None => {
                args.array(0);
            }
        };
        let mut tuples = connection.select(space, 0, key, BATCH.into(), IteratorType::Gt).await?;
        let count = tuples.array_len()?;
        for _ in 0..count {
            let tuple = tuples.value()?;
            last = Some(key_of(tuple)?);
            held.push(read_tuple(&mut { tuple }).map_or_else(|_| StockRow::foreign(), Tuple::held));
        }
        if count < usize::from(BATCH) {
            return Ok(held);
        }
    }
}

/// A tuple of stock as it was read, without its price.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    key: (u32, u8, u8, u8),
    count: i64,
    version: u64,
}

impl Tuple {
    fn held(self) -> StockRow {
        StockRow { key: self.key, count: self.count }
    }

    fn warehouse(&self) -> u8 {
        self.key.3
    }
}

/// The four parts of a tuple's key. They are whole numbers always, however large: the index on them accepts
/// nothing else.
fn key_of(mut tuple: Reader<'_>) -> Result<[u64; 4], Error> {
    tuple.tuple(4)?;
    Ok([tuple.u64()?, tuple.u64()?, tuple.u64()?, tuple.u64()?])
}

fn read_tuple(values: &mut Reader<'_>) -> Result<Tuple, Error> {
    let more = values.tuple(FIELDS)?;
    let key = (part(values)?, part(values)?, part(values)?, part(values)?);
    values.skip()?;
    let tuple = Tuple { key, count: values.i64()?, version: values.u64()? };
    for _ in 0..more {
        values.skip()?;
    }
    Ok(tuple)
}

fn read_tuples(values: &mut Reader<'_>, into: &mut Vec<Tuple>) -> Result<(), Error> {
    into.clear();
    for _ in 0..values.array_len()? {
        into.push(read_tuple(values)?);
    }
    Ok(())
}

struct TarantoolConnector {
    server: ConnectOptions,
    lock: Lock,
    name: String,
}

impl Connector for TarantoolConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let (connection, space) = trial::connect(&self.server, &self.name).await?;
        Ok(Client { connection, lock: self.lock, name: self.name.clone(), space, read: Vec::new() })
    }
}

struct Client {
    connection: Connection,
    lock: Lock,
    /// The name of the trial's space and procedure.
    name: String,
    space: u32,
    /// The tuples of the group that was read last, ascending by warehouse.
    read: Vec<Tuple>,
}

/// (sku, condition, source).
type Group = (u32, u8, u8);

/// A change to one tuple of a group, as the procedure takes it.
#[derive(Clone, Copy)]
struct Change {
    warehouse: u8,
    /// Units to add to the count; negative for a capture.
    units: i64,
    /// The version that the tuple must still have; only the soft lock compares it.
    version: u64,
}

/// Begins the arguments of an operation on a group; the caller writes `more` arguments after them.
fn begin<'a>(args: &'a mut Encoder, operation: &str, group: Group, more: u32) -> &'a mut Encoder {
    let (sku, condition, source) = group;
    args.array(4 + more).str(operation).u64(sku.into()).u64(condition.into()).u64(source.into())
}

fn write_changes(args: &mut Encoder, changes: &[Change]) {
    args.array(length(changes));
    for change in changes {
        args.array(3).u64(change.warehouse.into()).i64(change.units).u64(change.version);
    }
}

fn write_tuple_key(args: &mut Encoder, (sku, condition, source): Group, warehouse: u8) {
    args.array(4).u64(sku.into()).u64(condition.into()).u64(source.into()).u64(warehouse.into());
}

impl Client {
    async fn read(&mut self, (sku, condition, source): Group) -> Step<()> {
        let key = |args: &mut Encoder| {
            args.array(3).u64(sku.into()).u64(condition.into()).u64(source.into());
        };
        let limit = u32::from(u8::MAX) + 1;
        let tuples = self.connection.select(self.space, 0, key, limit, IteratorType::Eq).await;
        tuples
            .and_then(|mut tuples| read_tuples(&mut tuples, &mut self.read))
            .map_err(ended(Request::Harmless))
    }

    fn decide(&self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> bool {
        plan_capture(capture, self.read.iter().map(|tuple| (tuple.warehouse(), tuple.count)), taken)
    }

    /// The count and version that were read of the tuple from which a withdrawal takes.
    fn seen(&self, withdrawal: &Withdrawal) -> (i64, u64) {
        let tuple = self.read.iter().find(|tuple| tuple.warehouse() == withdrawal.warehouse);
        tuple.map_or((0, 0), |tuple| (tuple.count, tuple.version))
    }

    fn changes(&self, taken: &[Withdrawal]) -> Vec<Change> {
        let change = |withdrawal: &Withdrawal| Change {
            warehouse: withdrawal.warehouse,
            units: -i64::from(withdrawal.count),
            version: self.seen(withdrawal).1,
        };
        taken.iter().map(change).collect()
    }

    /// Updates one tuple, which must exist. `what` writes the array of update operations.
    async fn update(&mut self, group: Group, warehouse: u8, what: impl FnOnce(&mut Encoder)) -> Step<()> {
        let key = |args: &mut Encoder| write_tuple_key(args, group, warehouse);
        let updated = self.connection.update(self.space, 0, key, what).await;
        match updated.and_then(|mut tuples| tuples.array_len()).map_err(ended(Request::Change))? {
            0 => Err(Attempt::Failed(Fault::answered("there is no such tuple in stock"))),
            _ => Ok(()),
        }
    }

    async fn capture_unprotected(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step<Attempt> {
        let group = (capture.sku, capture.condition, capture.source);
        self.read(group).await?;
        if !self.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        for (done, withdrawal) in taken.iter().enumerate() {
            let left = self.seen(withdrawal).0.saturating_sub(withdrawal.count.into());
            let set = |args: &mut Encoder| {
                args.array(1).array(3).str("=").u64(COUNT).i64(left);
            };
            match self.update(group, withdrawal.warehouse, set).await {
                // the other warehouses' updates keep their effect, as each is a transaction by itself
                Err(trouble) if done > 0 => return Err(trouble.after_a_part()),
                done => done?,
            }
        }
        Ok(Attempt::Ok)
    }

    async fn capture_if_unchanged(
        &mut self,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
    ) -> Step<Attempt> {
        let group = (capture.sku, capture.condition, capture.source);
        self.read(group).await?;
        if !self.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        let changes = self.changes(taken);
        let values = self.connection.call(&self.name, |args| {
            write_changes(begin(args, "change_if_unchanged", group, 1), &changes);
        });
        values.await.and_then(|mut values| read_done(&mut values)).map_err(ended(Request::Change))
    }

    async fn capture_latched(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step<Attempt> {
        let group = (capture.sku, capture.condition, capture.source);
        let Some(latch) = self.acquire(group).await? else { return Ok(Attempt::Conflict) };
        if !self.decide(capture, taken) {
            return self.settle(group, latch, &[]).await.map(|_| Attempt::Refused);
        }
        self.settle(group, latch, &self.changes(taken)).await
    }

    /// Takes the latch of a group and reads the group. Returns the token of the latch; `None` if another client
    /// held the latch for longer than [`PATIENCE`].
    async fn acquire(&mut self, group: Group) -> Step<Option<u64>> {
        let values = self.connection.call(&self.name, |args| {
            begin(args, "acquire", group, 2).f64(LEASE).f64(PATIENCE);
        });
        let read = |mut values: Reader<'_>| {
            values.tuple(1)?;
            if values.take_nil() {
                return Ok(None);
            }
            let token = values.u64()?;
            read_tuples(&mut values, &mut self.read)?;
            Ok(Some(token))
        };
        values.await.and_then(read).map_err(ended(Request::Harmless))
    }

    /// Writes the changes, if there are any, and gives up the latch.
    async fn settle(&mut self, group: Group, token: u64, changes: &[Change]) -> Step<Attempt> {
        let values = self.connection.call(&self.name, |args| {
            write_changes(begin(args, "settle", group, 2).u64(token), changes);
        });
        let request = if changes.is_empty() { Request::Harmless } else { Request::Change };
        let done = values.await.and_then(|mut values| read_done(&mut values));
        done.map_err(ended(request))
    }

    async fn release_latched(&mut self, group: Group, release: &Release) -> Step<Attempt> {
        let units = Change { warehouse: release.warehouse, units: release.units.into(), version: 0 };
        let values = self.connection.call(&self.name, |args| {
            let args = begin(args, "change_latched", group, 3);
            write_changes(args, &[units]);
            args.f64(LEASE).f64(PATIENCE);
        });
        values.await.and_then(|mut values| read_done(&mut values)).map_err(ended(Request::Change))
    }

    async fn capture_in_one(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step<Attempt> {
        let group = (capture.sku, capture.condition, capture.source);
        let values = self.connection.call(&self.name, |args| {
            begin(args, "capture", group, 1).u64(capture.units.into());
        });
        taken.clear();
        let read = |mut values: Reader<'_>| {
            values.tuple(1)?;
            for _ in 0..values.array_len()? {
                values.tuple(2)?;
                taken.push(capture.withdrawal(part(&mut values)?, part(&mut values)?));
            }
            Ok(())
        };
        values.await.and_then(read).map_err(ended(Request::Change))?;
        Ok(if taken.is_empty() { Attempt::Refused } else { Attempt::Ok })
    }

    async fn release_in_one(&mut self, group: Group, release: &Release, mark: bool) -> Step<Attempt> {
        let add = |args: &mut Encoder| {
            args.array(1 + u32::from(mark)).array(3).str("+").u64(COUNT).u64(release.units.into());
            if mark {
                args.array(3).str("+").u64(VERSION).u64(1);
            }
        };
        self.update(group, release.warehouse, add).await.map(|()| Attempt::Ok)
    }
}

impl Operations for Client {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let done = match self.lock {
            Lock::None => self.capture_unprotected(capture, taken).await,
            Lock::Soft => self.capture_if_unchanged(capture, taken).await,
            Lock::Hard => self.capture_latched(capture, taken).await,
            Lock::Native => self.capture_in_one(capture, taken).await,
        };
        done.unwrap_or_else(|ended| ended)
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        let group = (release.sku, release.condition, release.source);
        let done = match self.lock {
            Lock::Hard => self.release_latched(group, release).await,
            Lock::Soft => self.release_in_one(group, release, true).await,
            Lock::None | Lock::Native => self.release_in_one(group, release, false).await,
        };
        done.unwrap_or_else(|ended| ended)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{self as testbed, Private, wait};

    use super::*;

    #[test]
    fn what_is_no_tuple_is_foreign_to_the_final_stock() {
        let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
        let tarantool = private.open(Tarantool::open);
        let spoil = async |place: &Place, item: &Item| {
            let arguments = |args: &mut Encoder| {
                args.array(2).str(&trial::name(place, OBJECT));
                let (sku, condition, source, warehouse) = item.key();
                write_tuple_key(args, (sku, condition, source), warehouse);
            };
            let code = "local name, key = ...
                        local space = box.space[name]
                        space:format({})
                        space:update(key, {{'=', 6, 'many'}})";
            tarantool.server.reach().await.unwrap().eval(code, arguments).await.unwrap();
        };
        wait(testbed::inventory::garbled(&tarantool, spoil));
    }
}
