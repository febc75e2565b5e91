//! Transactions at random on fjall.
//!
//! All objects of a trial are in one keyspace: under `l` and a number a list, as text; under `r` and a number a register, eight
//! bytes or none; under `a` and a number an account, eight bytes.

use std::sync::Arc;

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place, Served,
    transactions::{
        self, Answers, Connector, Held, Layout, Operations, Promise, Requirements, Rows, Scenario, State,
        Step, Table, TransactionsStore,
    },
};
use fjall::PersistMode;

use crate::{
    Fjall,
    error::{Error, undone},
    files::{self, Files, Transaction, drop_keyspace, keyspace, make_keyspace},
    named,
};

/// The name of the keyspace within the trial.
const TABLE: &str = "transactions";

const LOADING: &str = "loading the lists, registers and accounts";

/// The letter with which the keys of a kind begin.
fn letter(table: Table) -> u8 {
    match table {
        Table::Lists => b'l',
        Table::Registers => b'r',
        Table::Accounts => b'a',
    }
}

/// The key of a number, whose highest byte comes first.
fn key(table: Table, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [letter(table), a, b, c, d]
}

/// What is under a key of this kind.
fn held(table: Table, value: &[u8]) -> Held<'_> {
    match (table, value) {
        (Table::Lists, text) => Held::Text(text),
        (_, []) => Held::Number(None),
        (_, number) => {
            number.try_into().map_or(Held::Other, |number| Held::Number(Some(i64::from_be_bytes(number))))
        }
    }
}

fn balance(value: &[u8]) -> Option<i64> {
    value.try_into().ok().map(i64::from_be_bytes)
}

impl TransactionsStore for Fjall {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files(LOADING, |database| {
                let keyspace = make_keyspace(database, &named(place, TABLE))?;
                let mut batch = database.batch().durability(None);
                let balance = layout.balance.to_be_bytes();
                for table in Table::ALL {
                    let value = if table == Table::Accounts { &balance[..] } else { &[] };
                    for number in 0..table.rows(layout) {
                        batch.insert(&keyspace, key(table, number), value);
                    }
                }
                batch.commit()?;
                loaded.add(layout.rows());
                Ok(database.persist(PersistMode::SyncAll)?)
            })
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        transactions::task(FjallConnector::of(self, place, wanted), scenario)
    }

    fn serve(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(transactions::serve(FjallConnector::of(self, place, wanted)))
    }

    /// There is one level.
    fn promise<'a>(&'a self, _: &'a Requirements) -> Task<'a, Result<Promise, StoreError>> {
        Box::pin(async { Ok(Promise::documented("fjall", "serializable", "")) })
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Layout,
        state: &'a mut State,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("reading the final lists, registers and accounts", |database| {
                for entry in keyspace(database, &named(place, TABLE))?.iter() {
                    let (key, value) = entry.into_inner()?;
                    let Some((kind, number)) = key.split_first() else { continue };
                    let table = Table::ALL.into_iter().find(|table| letter(*table) == *kind);
                    match (table, number.try_into().map(u32::from_be_bytes)) {
                        (Some(table), Ok(number)) => state.row(table, number, &held(table, &value)),
                        _ => state.unreadable(),
                    }
                }
                Ok(())
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("removing the lists, registers and accounts", |database| {
                drop_keyspace(database, &named(place, TABLE))
            })
        })
    }
}

struct FjallConnector {
    files: Arc<Files>,
    name: String,
    accounts: u32,
}

impl FjallConnector {
    fn of(store: &Fjall, place: &Place, wanted: &Requirements) -> Self {
        let files = Arc::clone(&store.files);
        Self { files, name: named(place, TABLE), accounts: wanted.layout.accounts }
    }
}

struct Client {
    table: files::Table,
    accounts: u32,
    buffer: Vec<u8>,
}

impl Connector for FjallConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        // every transaction is serializable; only the optimistic ones run side by side
        let table = self.files.table(&self.name, Lock::Soft).map_err(|error| error.to_string())?;
        Ok(Client { table, accounts: self.accounts, buffer: Vec::new() })
    }
}

/// A transaction that has not ended.
struct Open<'a> {
    transaction: Transaction<'a>,
    accounts: u32,
    buffer: &'a mut Vec<u8>,
}

impl Open<'_> {
    /// Whether there is something to read.
    fn get(&self, table: Table, number: Option<u32>, answers: &mut Answers) -> Result<bool, Error> {
        let Some(number) = number else { return self.total(answers) };
        let value = self.transaction.get(&key(table, number))?;
        if let Some(value) = &value {
            answers.row(table, &held(table, value));
        }
        Ok(value.is_some())
    }

    /// Whether all accounts are there.
    fn total(&self, answers: &mut Answers) -> Result<bool, Error> {
        let (mut total, mut found) = (Some(0_i64), 0);
        for entry in self.transaction.prefix(&[letter(Table::Accounts)]) {
            let balance = balance(&entry.value()?);
            total = total.zip(balance).and_then(|(total, balance)| total.checked_add(balance));
            found += 1;
        }
        if found != self.accounts {
            return Ok(false);
        }
        answers.row(Table::Accounts, &total.map_or(Held::Other, |total| Held::Number(Some(total))));
        Ok(true)
    }

    /// Whether there is something to write to.
    fn put(&mut self, table: Table, number: u32, value: i64) -> Result<bool, Error> {
        let key = key(table, number);
        let Some(before) = self.transaction.get(&key)? else { return Ok(false) };
        match table {
            Table::Lists => {
                self.buffer.clear();
                self.buffer.extend_from_slice(&before);
                self.buffer.push(b',');
                self.buffer.extend_from_slice(value.to_string().as_bytes());
                self.transaction.put(&key, self.buffer);
            }
            Table::Registers => self.transaction.put(&key, &value.to_be_bytes()),
            Table::Accounts => {
                let after = balance(&before).and_then(|balance| balance.checked_add(value));
                self.transaction.put(&key, &after.ok_or(Error::Value)?.to_be_bytes());
            }
        }
        Ok(true)
    }
}

/// How a step ends, by whether there was what it is about.
fn found(is_there: Result<bool, Error>) -> Result<(), Attempt> {
    match is_there {
        Ok(true) => Ok(()),
        Ok(false) => Err(Attempt::Refused),
        Err(error) => Err(undone(&error)),
    }
}

impl Rows for Open<'_> {
    async fn read(&mut self, table: Table, key: Option<u32>, answers: &mut Answers) -> Result<(), Attempt> {
        found(self.get(table, key, answers))
    }

    async fn write(&mut self, table: Table, key: u32, value: i64) -> Result<(), Attempt> {
        found(self.put(table, key, value))
    }
}

impl Operations for Client {
    async fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        let transaction = match self.table.begin() {
            Ok(transaction) => transaction,
            Err(error) => return undone(&error),
        };
        let mut open = Open { transaction, accounts: self.accounts, buffer: &mut self.buffer };
        match open.steps(steps, answers).await {
            Ok(()) => open.transaction.commit(),
            Err(trouble) => trouble,
        }
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Isolation};
    use acidtest_testbed::{step_by_step, wait};

    use super::*;

    #[test]
    fn a_transaction_does_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = Fjall { files: Arc::new(Files::at(&folder.path().join("db"), Some(Durability::None))) };
        let connect = |place: &Place, wanted: &Requirements| FjallConnector::of(&store, place, wanted);
        wait(step_by_step::does_what_it_says(&store, &[Isolation::Serializable], connect));
        let table = |place: &Place| keyspace(&store.files.database().unwrap(), &named(place, TABLE)).unwrap();
        let spoil = async |place: &Place| {
            table(place).insert(key(Table::Lists, 1), "1").unwrap();
            table(place).insert(key(Table::Registers, 0), "seven").unwrap();
        };
        wait(step_by_step::tells_what_makes_no_sense(&store, connect, spoil));
        let lose = async |place: &Place, number| table(place).remove(key(Table::Accounts, number)).unwrap();
        wait(step_by_step::misses_lost_accounts(&store, connect, lose));
    }

    #[test]
    fn accounts_are_apart_from_lists_and_registers() {
        assert!(
            key(Table::Accounts, u32::MAX) < key(Table::Lists, 0)
                && key(Table::Lists, u32::MAX) < key(Table::Registers, 0)
        );
        assert_eq!(held(Table::Registers, &[]), Held::Number(None));
        assert_eq!(held(Table::Registers, &7_u64.to_be_bytes()), Held::Number(Some(7)));
        assert_eq!(held(Table::Registers, b"seven"), Held::Other);
    }
}
