//! The inventory workload on fjall.
//!
//! A tuple is a value under its key: sku, condition, source and warehouse, highest byte first, so that a
//! group lies together, by warehouse. The value is count and price, lowest byte first.

use std::sync::Arc;

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place, Served,
    inventory::{
        self, Capture, Connector, InventoryStore, Operations, Release, Scenario, Stock, StockRow, Withdrawal,
        plan_capture,
    },
};
use fjall::{Iter, PersistMode};

use crate::{
    Fjall,
    error::{Error, OperationResult, in_doubt, undone},
    files::{Files, Table, drop_keyspace, keyspace, make_keyspace},
    named,
};

/// The name of the keyspace within the trial.
const STOCK: &str = "stock";

/// The prefix that the keys of a group's tuples share.
fn group(sku: u32, condition: u8, source: u8) -> [u8; 6] {
    let mut group = [0, 0, 0, 0, condition, source];
    group[..4].copy_from_slice(&sku.to_be_bytes());
    group
}

fn key((sku, condition, source, warehouse): (u32, u8, u8, u8)) -> [u8; 7] {
    let mut key = [warehouse; 7];
    key[..6].copy_from_slice(&group(sku, condition, source));
    key
}

/// Sku, condition, source and warehouse from a key; none if the key is no tuple's.
fn tuple_of(key: &[u8]) -> Option<(u32, u8, u8, u8)> {
    let (sku, rest) = key.split_first_chunk()?;
    let [condition, source, warehouse] = rest else { return None };
    Some((u32::from_be_bytes(*sku), *condition, *source, *warehouse))
}

fn key_of(withdrawal: &Withdrawal) -> [u8; 7] {
    key((withdrawal.sku, withdrawal.condition, withdrawal.source, withdrawal.warehouse))
}

/// A tuple's value: its units and its price.
#[derive(Clone, Copy)]
struct Tuple {
    count: i64,
    price: u32,
}

impl Tuple {
    fn encode(self) -> [u8; 12] {
        let mut value = [0; 12];
        value[..8].copy_from_slice(&self.count.to_le_bytes());
        value[8..].copy_from_slice(&self.price.to_le_bytes());
        value
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (count, price) = value.split_first_chunk()?;
        let price = price.try_into().ok()?;
        Some(Self { count: i64::from_le_bytes(*count), price: u32::from_le_bytes(price) })
    }
}

impl InventoryStore for Fjall {
    fn load<'a>(&'a self, place: &'a Place, _: Lock, stock: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("loading the stock", |database| {
                let keyspace = make_keyspace(database, &named(place, STOCK))?;
                let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
                for item in &stock.items {
                    let tuple = Tuple { count: item.initial.into(), price: item.price };
                    batch.insert(&keyspace, key(item.key()), tuple.encode());
                }
                Ok(batch.commit()?)
            })
        })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        inventory::task(FjallConnector::of(self, place, lock), scenario)
    }

    fn serve(&self, place: &Place, lock: Lock) -> Option<Served> {
        Some(inventory::serve(FjallConnector::of(self, place, lock)))
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            self.on_files("reading the final stock", |database| {
                let tuples = keyspace(database, &named(place, STOCK))?.iter();
                tuples
                    .map(|tuple| {
                        let (key, value) = tuple.into_inner()?;
                        let held = tuple_of(&key).zip(Tuple::decode(&value));
                        Ok(held.map_or_else(StockRow::foreign, |(key, Tuple { count, .. })| StockRow {
                            key,
                            count,
                        }))
                    })
                    .collect()
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("removing the stock", |database| drop_keyspace(database, &named(place, STOCK)))
        })
    }
}

struct FjallConnector {
    files: Arc<Files>,
    name: String,
    lock: Lock,
}

impl FjallConnector {
    fn of(store: &Fjall, place: &Place, lock: Lock) -> Self {
        Self { files: Arc::clone(&store.files), name: named(place, STOCK), lock }
    }
}

struct Client {
    table: Table,
    lock: Lock,
    /// The tuples of the group that was read last, with their warehouses.
    seen: Vec<(u8, Tuple)>,
}

impl Connector for FjallConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let table = self.files.table(&self.name, self.lock).map_err(|error| error.to_string())?;
        Ok(Client { table, lock: self.lock, seen: Vec::new() })
    }
}

/// Reads a group's tuples into `seen`, and puts the withdrawals that are needed into `taken`. Returns false if they do not
/// suffice.
fn decide(
    tuples: Iter,
    capture: &Capture,
    seen: &mut Vec<(u8, Tuple)>,
    taken: &mut Vec<Withdrawal>,
) -> Result<bool, Error> {
    seen.clear();
    for tuple in tuples {
        let (key, value) = tuple.into_inner()?;
        let tuple = tuple_of(&key).zip(Tuple::decode(&value));
        let ((.., warehouse), tuple) = tuple.ok_or(Error::Value)?;
        seen.push((warehouse, tuple));
    }
    Ok(plan_capture(capture, seen.iter().map(|(warehouse, tuple)| (*warehouse, tuple.count)), taken))
}

/// The new value of the tuple from which a withdrawal takes units.
fn left(seen: &[(u8, Tuple)], withdrawal: &Withdrawal) -> Result<[u8; 12], Error> {
    let (_, tuple) =
        seen.iter().find(|(warehouse, _)| *warehouse == withdrawal.warehouse).ok_or(Error::Value)?;
    Ok(Tuple { count: tuple.count.saturating_sub(withdrawal.count.into()), ..*tuple }.encode())
}

impl Client {
    fn capture_unprotected(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> OperationResult {
        let group = group(capture.sku, capture.condition, capture.source);
        if !decide(self.table.snapshot().prefix(&group), capture, &mut self.seen, taken)? {
            return Ok(Attempt::Refused);
        }
        for (index, withdrawal) in taken.iter().enumerate() {
            let done = self.put_alone(withdrawal).unwrap_or_else(|error| undone(&error));
            match done {
                Attempt::Ok => {}
                // the withdrawals before have taken effect
                done if index > 0 => return Ok(done.after_a_part()),
                done => return Ok(done),
            }
        }
        Ok(Attempt::Ok)
    }

    fn put_alone(&self, withdrawal: &Withdrawal) -> OperationResult {
        let mut transaction = self.table.begin()?;
        transaction.put(&key_of(withdrawal), &left(&self.seen, withdrawal)?);
        Ok(transaction.commit())
    }

    fn capture_inside(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> OperationResult {
        let group = group(capture.sku, capture.condition, capture.source);
        let mut transaction = self.table.begin()?;
        if !decide(transaction.prefix(&group), capture, &mut self.seen, taken)? {
            return Ok(Attempt::Refused);
        }
        for withdrawal in &*taken {
            transaction.put(&key_of(withdrawal), &left(&self.seen, withdrawal)?);
        }
        Ok(transaction.commit())
    }

    fn put_back(&self, release: &Release) -> OperationResult {
        let mut done = Ok(Attempt::Failed(Fault::answered("a release found no tuple")));
        let put = self.table.fetch_update(&key_of(&release.withdrawal()), |value| {
            let value = value?;
            let more = Tuple::decode(value).and_then(|tuple| {
                Some(Tuple { count: tuple.count.checked_add(release.units.into())?, ..tuple })
            });
            // a value that is no tuple is written back unchanged: returning none would remove it
            done = more.map(|_| Attempt::Ok).ok_or(Error::Value);
            Some(more.map_or_else(|| value.clone(), |tuple| tuple.encode().as_slice().into()))
        });
        put.map_or_else(|error| Ok(in_doubt(error)), |_| done)
    }
}

impl Operations for Client {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let done = match self.lock {
            Lock::None => self.capture_unprotected(capture, taken),
            Lock::Soft | Lock::Hard | Lock::Native => self.capture_inside(capture, taken),
        };
        done.unwrap_or_else(|error| undone(&error))
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        self.put_back(release).unwrap_or_else(|error| undone(&error))
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{self as testbed, wait};
    use acidtest_workloads::inventory::Item;

    use super::*;

    fn opened(folder: &tempfile::TempDir) -> Fjall {
        Fjall { files: Arc::new(Files::at(&folder.path().join("db"), Some(Durability::None))) }
    }

    fn put(store: &Fjall, place: &Place, key: &[u8], value: &[u8]) {
        let database = store.files.database().unwrap();
        keyspace(&database, &named(place, STOCK)).unwrap().insert(key, value).unwrap();
    }

    #[test]
    fn what_is_no_tuple_is_foreign_to_the_final_stock() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let spoil = async |place: &Place, item: &Item| put(&store, place, &key(item.key()), b"garbled");
        wait(testbed::inventory::garbled(&store, spoil));
    }

    /// A release fails if the count would overflow or if the value is no tuple, and the value stays as it is.
    #[test]
    fn nothing_is_put_on_what_is_no_tuple() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let place = Place { namespace: testbed::NAMESPACE.to_owned(), trial: 1 };
        let stock = Stock { items: Vec::new(), groups: Vec::new(), group_of: Vec::new() };
        wait(store.load(&place, Lock::None, &stock)).unwrap();
        let release = Release { sku: 1, warehouse: 1, condition: 1, source: 1, units: 2 };
        let capture = Capture { sku: 1, condition: 1, source: 1, units: 2 };
        let full = Tuple { count: i64::MAX, price: 1 }.encode();
        for lock in Lock::ALL {
            let files = Arc::clone(&store.files);
            let connector = FjallConnector { files, name: named(&place, STOCK), lock };
            let mut client = wait(connector.connect()).unwrap();
            for value in [&full[..], b"garbled"] {
                put(&store, &place, &key_of(&release.withdrawal()), value);
                let released = wait(client.release(&release));
                assert!(matches!(released, Attempt::Failed(_)), "{lock}: {released:?}");
                let kept = client.table.get(&key_of(&release.withdrawal())).unwrap().unwrap();
                assert_eq!(&kept[..], value, "{lock}");
            }
            let captured = wait(client.capture(&capture, &mut Vec::new()));
            assert!(matches!(captured, Attempt::Failed(_)), "{lock}: {captured:?}");
        }
    }
}
