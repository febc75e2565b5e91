//! Interactive transactions: optimistic write transactions on keyspaces of two whole numbers, one after the other on one thread.
//!
//! A table is a keyspace. A row is a value under its id, both of eight bytes, the id's highest byte first.

use std::collections::BTreeSet;

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{
        Condition, InteractiveSession, InteractiveStore, Mode, Reply, Select, Statement, Table, Update,
    },
};
use fjall::{
    Conflict, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx,
    PersistMode, Readable,
};

use crate::{
    Fjall,
    error::{Error, words},
    files::{drop_keyspace, make_keyspace},
};

/// The name of the keyspace of a table: no workload's has a colon at this place.
fn named(place: &Place, table: &str) -> String {
    format!("{}:table:{table}", place.namespace)
}

/// The key of a row. The sign is turned round, so that keys are in the order of ids.
fn key(id: i64) -> [u8; 8] {
    (id ^ i64::MIN).to_be_bytes()
}

fn id_of(key: &[u8]) -> Option<i64> {
    key.try_into().ok().map(|key| i64::from_be_bytes(key) ^ i64::MIN)
}

fn value_of(value: &[u8]) -> Option<i64> {
    value.try_into().ok().map(i64::from_be_bytes)
}

impl InteractiveStore for Fjall {
    /// The mode with a single writer is none of them: a second `begin` would block the thread on which all sessions run.
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        Box::pin(async {
            Ok(vec![Mode {
                name: "serializable".to_owned(),
                level: Some(Isolation::Serializable),
                how: "OptimisticTxDatabase::write_tx; reads and writes through it",
                is_default: true,
            }])
        })
    }

    fn refuses(&self, _: &Mode, statement: &str) -> Option<String> {
        Statement::parse(statement).err().map(|error| error.to_string())
    }

    /// It compares the keys that transactions read and wrote, by keyspace.
    fn is_concurrent(&self) -> bool {
        true
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async move {
            let name = place.object(&table.name);
            self.on_files("making a table", |database| {
                let rows = table.pairs().map_err(Error::NoTable)?;
                let keyspace = make_keyspace(database, &named(place, &name))?;
                let mut batch = database.batch().durability(self.files.persist);
                for (id, value) in rows {
                    batch.insert(&keyspace, key(id), value.to_be_bytes());
                }
                Ok(batch.commit()?)
            })?;
            Ok(name)
        })
    }

    fn drop_table<'a>(&'a self, place: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("removing a table", |database| drop_keyspace(database, &named(place, name)))
        })
    }

    fn session<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            let database = self.files.optimistic().map_err(|error| StoreError::Server {
                doing: "opening a session".to_owned(),
                address: self.address(),
                cause: error.to_string(),
            })?;
            Ok(Box::new(Session {
                database,
                persist: self.files.persist,
                place: place.clone(),
                transaction: None,
            }) as Box<dyn InteractiveSession>)
        })
    }
}

struct Session {
    database: OptimisticTxDatabase,
    persist: Option<PersistMode>,
    place: Place,
    transaction: Option<OptimisticWriteTx>,
}

impl InteractiveSession for Session {
    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            match Statement::parse(statement) {
                Ok(statement) => {
                    self.execute(&statement).unwrap_or_else(|error| Reply::Failed(error.to_string()))
                }
                Err(error) => Reply::Failed(error.to_string()),
            }
        })
    }
}

impl Session {
    fn execute(&mut self, statement: &Statement) -> Result<Reply, Error> {
        let held = self.transaction.take();
        match (statement, held) {
            (Statement::Begin, None) => {
                self.transaction = Some(self.begin()?);
                Ok(Reply::Done(None))
            }
            (Statement::Begin, held) => {
                self.transaction = held;
                Ok(Reply::Failed("there is a transaction already".to_owned()))
            }
            (Statement::Commit, Some(transaction)) => Ok(commit(transaction)),
            (Statement::Commit, None) => Ok(Reply::Failed("there is no transaction".to_owned())),
            (Statement::Rollback, _) => Ok(Reply::Done(None)),
            (statement, Some(mut transaction)) => {
                let reply = self.apply(&mut transaction, statement);
                // what is refused does not go on
                if !matches!(reply, Ok(Reply::Refused(_))) {
                    self.transaction = Some(transaction);
                }
                reply
            }
            (statement, None) => {
                let mut transaction = self.begin()?;
                match self.apply(&mut transaction, statement)? {
                    refused @ Reply::Refused(_) => Ok(refused),
                    done => Ok(match commit(transaction) {
                        Reply::Done(_) => done,
                        other => other,
                    }),
                }
            }
        }
    }

    fn begin(&self) -> Result<OptimisticWriteTx, Error> {
        Ok(self.database.write_tx()?.durability(self.persist))
    }

    fn keyspace(&self, table: &str) -> Result<OptimisticTxKeyspace, Error> {
        let name = named(&self.place, table);
        if !self.database.inner().keyspace_exists(&name) {
            return Err(Error::Missing(name));
        }
        Ok(self.database.keyspace(&name, KeyspaceCreateOptions::default)?)
    }

    fn apply(&self, transaction: &mut OptimisticWriteTx, statement: &Statement) -> Result<Reply, Error> {
        match statement {
            Statement::Begin | Statement::Commit | Statement::Rollback => Ok(Reply::Done(None)),
            Statement::Select(Select { table, rows }) => {
                let found = find(transaction, &self.keyspace(table)?, rows)?;
                Ok(Reply::pairs(found))
            }
            Statement::Update(update @ Update { table, rows, .. }) => {
                let keyspace = self.keyspace(table)?;
                let found = find(transaction, &keyspace, rows)?;
                for (id, value) in &found {
                    transaction.insert(&keyspace, key(*id), update.of(*value).to_be_bytes());
                }
                Ok(Reply::Done(Some(found.len() as u64)))
            }
            Statement::Insert { table, id, value } => {
                let keyspace = self.keyspace(table)?;
                if transaction.contains_key(&keyspace, key(*id))? {
                    return Ok(Reply::Refused(format!("there is a row with id {id} already")));
                }
                transaction.insert(&keyspace, key(*id), value.to_be_bytes());
                Ok(Reply::Done(Some(1)))
            }
            Statement::Delete(Select { table, rows }) => {
                let keyspace = self.keyspace(table)?;
                let found = find(transaction, &keyspace, rows)?;
                for (id, _) in &found {
                    transaction.remove(&keyspace, key(*id));
                }
                Ok(Reply::Done(Some(found.len() as u64)))
            }
        }
    }
}

/// The rows that fulfil a condition, in order of ids. fjall keeps in mind that the transaction has read them: single keys, or
/// the whole keyspace where each row is looked at.
fn find(
    transaction: &OptimisticWriteTx,
    keyspace: &OptimisticTxKeyspace,
    condition: &Condition,
) -> Result<Vec<(i64, i64)>, Error> {
    let mut found = Vec::new();
    if let Some(ids) = condition.ids() {
        for id in ids.iter().copied().collect::<BTreeSet<i64>>() {
            if let Some(value) = transaction.get(keyspace, key(id))? {
                found.push((id, value_of(&value).ok_or(Error::Value)?));
            }
        }
        return Ok(found);
    }
    for row in transaction.iter(keyspace) {
        let (key, value) = row.into_inner()?;
        let (id, value) = id_of(&key).zip(value_of(&value)).ok_or(Error::Value)?;
        if condition.holds(id, value) {
            found.push((id, value));
        }
    }
    Ok(found)
}

fn commit(transaction: OptimisticWriteTx) -> Reply {
    match transaction.commit() {
        Ok(Ok(())) => Reply::Done(None),
        Ok(Err(Conflict)) => Reply::Refused(
            "conflict: a key or range that the transaction read was written since it began".to_owned(),
        ),
        Err(error @ fjall::Error::Poisoned) => Reply::Failed(words(&error)),
        Err(error) => Reply::Unknown(words(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_ids() {
        let ids = [i64::MIN, -2, -1, 0, 1, 255, 256, i64::MAX];
        let keys = ids.map(key);
        assert!(keys.is_sorted());
        assert_eq!(keys.map(|key| id_of(&key)), ids.map(Some));
    }
}
