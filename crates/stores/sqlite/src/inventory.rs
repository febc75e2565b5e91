//! The inventory workload on SQLite: one table, one row for each tuple, captured under each lock mode.

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place, Served,
    inventory::{
        self, Capture, Connector, InventoryStore, Reading, Scenario, SqlCapture, SqlConnection, SqlSession,
        Step, Stock, StockLevel, StockRow, Withdrawal,
    },
};
use rusqlite::{Connection, Params, Row, params};

use crate::{
    File, Sqlite, attempt, named,
    transaction::{IMMEDIATE, begin, commit, roll_back},
};

fn table(place: &Place) -> String {
    named(place, "stock")
}

impl InventoryStore for Sqlite {
    fn load<'a>(&'a self, place: &'a Place, _: Lock, stock: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let table = table(place);
            self.on_file("loading the stock", |connection| {
                connection.execute_batch(&format!(
                    "CREATE TABLE {table} (sku INTEGER NOT NULL, condition INTEGER NOT NULL,
                     source INTEGER NOT NULL, warehouse INTEGER NOT NULL, price INTEGER NOT NULL,
                     count INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 0,
                     taken INTEGER NOT NULL DEFAULT 0,
                     PRIMARY KEY (sku, condition, source, warehouse)) WITHOUT ROWID"
                ))?;
                let transaction = connection.transaction()?;
                {
                    let mut insert = transaction.prepare(&format!(
                        "INSERT INTO {table} (sku, condition, source, warehouse, price, count)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
                    ))?;
                    for item in &stock.items {
                        let (sku, condition, source, warehouse) = item.key();
                        insert.execute(params![
                            sku,
                            condition,
                            source,
                            warehouse,
                            item.price,
                            item.initial
                        ])?;
                    }
                }
                transaction.commit()
            })
        })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        inventory::task(SqliteConnector::of(self, place, lock), scenario)
    }

    fn serve(&self, place: &Place, lock: Lock) -> Option<Served> {
        Some(inventory::serve(SqliteConnector::of(self, place, lock)))
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            self.on_file("reading the final stock", |connection| {
                let sql = format!("SELECT sku, condition, source, warehouse, count FROM {}", table(place));
                connection
                    .prepare(&sql)?
                    .query_map([], |row| Ok(held(row).unwrap_or_else(|_| StockRow::foreign())))?
                    .collect()
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { self.drop_tables("removing the stock", place, &["stock"]) })
    }
}

/// A row of the final stock. SQLite may hold a value that is no number, or too large a number, in any column.
fn held(row: &Row<'_>) -> rusqlite::Result<StockRow> {
    let key = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(StockRow { key, count: row.get(4)? })
}

struct SqliteConnector {
    file: File,
    lock: Lock,
    table: String,
}

impl SqliteConnector {
    fn of(store: &Sqlite, place: &Place, lock: Lock) -> Self {
        Self { file: store.file.clone(), lock, table: table(place) }
    }
}

impl Connector for SqliteConnector {
    type Connection = SqlConnection<Session>;

    async fn connect(&self) -> Result<Self::Connection, String> {
        let connection = self.file.connect().map_err(|error| error.to_string())?;
        Ok(SqlConnection::new(Session { connection }, statements(self.lock, &self.table)))
    }
}

fn statements(lock: Lock, table: &str) -> (SqlCapture<String>, String) {
    let group = "sku = ?1 AND condition = ?2 AND source = ?3";
    let tuple = format!("{group} AND warehouse = ?4");
    let read = format!("SELECT warehouse, count, version FROM {table} WHERE {group} ORDER BY warehouse");
    let update = |set: &str| format!("UPDATE {table} SET {set} WHERE {tuple}");
    let capture = match lock {
        Lock::None => SqlCapture::Unprotected { read, set: update("count = ?5") },
        Lock::Soft => {
            let take = update("count = count - ?5, version = version + 1");
            SqlCapture::IfUnchanged { read, take: format!("{take} AND version = ?6") }
        }
        Lock::Hard => SqlCapture::Locked { read, take: update("count = count - ?5") },
        // RETURNING sees only the updated table, so the units taken are kept in a column of it
        Lock::Native => SqlCapture::InOne {
            take: format!(
                "WITH held AS (
                   SELECT warehouse, count, sum(count) OVER () AS total,
                          sum(count) OVER (ORDER BY warehouse) - count AS before
                   FROM {table} WHERE {group} AND count > 0)
                 UPDATE {table} AS stock
                 SET count = stock.count - min(held.count, ?4 - held.before),
                     taken = min(held.count, ?4 - held.before)
                 FROM held
                 WHERE stock.sku = ?1 AND stock.condition = ?2 AND stock.source = ?3
                   AND stock.warehouse = held.warehouse AND held.total >= ?4 AND held.before < ?4
                 RETURNING warehouse, taken"
            ),
        },
    };
    let release = match lock {
        Lock::Soft => update("count = count + ?5, version = version + 1"),
        _ => update("count = count + ?5"),
    };
    (capture, release)
}

struct Session {
    connection: Connection,
}

impl Session {
    /// Runs a statement, and returns how many rows it changed.
    fn run(&self, sql: &str, values: impl Params) -> Result<usize, Attempt> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        done.map_err(|error| attempt(&error))
    }
}

impl SqlSession for Session {
    type Statement = String;

    async fn read_group(&mut self, read: &String, capture: &Capture, seen: &mut Reading) -> Step {
        let Capture { sku, condition, source, .. } = *capture;
        let tuple = |row: &Row<'_>| {
            Ok(StockLevel { warehouse: row.get(0)?, count: row.get(1)?, version: row.get(2)? })
        };
        let read = self.connection.prepare_cached(read).and_then(|mut statement| {
            seen.fill(statement.query_map(params![sku, condition, source], tuple)?)
        });
        read.map_err(|error| attempt(&error))
    }

    async fn lock_group(&mut self, read: &String, capture: &Capture, seen: &mut Reading) -> Step {
        begin(&self.connection, IMMEDIATE).map_err(|error| attempt(&error))?;
        self.read_group(read, capture, seen).await
    }

    async fn change(&mut self, change: &String, withdrawal: &Withdrawal, value: i64) -> Step {
        let Withdrawal { sku, warehouse, condition, source, .. } = *withdrawal;
        match self.run(change, params![sku, condition, source, warehouse, value])? {
            1 => Ok(()),
            rows => Err(Attempt::Failed(Fault::answered(format!("a write changed {rows} rows")))),
        }
    }

    async fn take_if_unchanged(&mut self, take: &String, withdrawal: &Withdrawal, seen: &Reading) -> Step {
        let Withdrawal { sku, warehouse, condition, source, count } = *withdrawal;
        let version = seen.of(withdrawal).version;
        match self.run(take, params![sku, condition, source, warehouse, count, version])? {
            0 => Err(Attempt::Conflict),
            _ => Ok(()),
        }
    }

    async fn take_all_if_unchanged(
        &mut self,
        take: &String,
        withdrawals: &[Withdrawal],
        seen: &Reading,
    ) -> Step {
        begin(&self.connection, IMMEDIATE).map_err(|error| attempt(&error))?;
        for withdrawal in withdrawals {
            self.take_if_unchanged(take, withdrawal, seen).await?;
        }
        Ok(())
    }

    async fn take_locked(&mut self, take: &String, withdrawals: &[Withdrawal]) -> Step {
        for withdrawal in withdrawals {
            if let Err(ended) = self.change(take, withdrawal, withdrawal.count.into()).await {
                return Err(self.roll_back(ended).await);
            }
        }
        self.commit().await
    }

    async fn take_in_one(&mut self, take: &String, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step {
        let Capture { sku, condition, source, units } = *capture;
        let done = self.connection.prepare_cached(take).and_then(|mut statement| {
            let mut rows = statement.query(params![sku, condition, source, units])?;
            let mut told = true;
            // to the end of the rows, where the statement commits
            while let Some(row) = rows.next()? {
                match (row.get(0), row.get(1)) {
                    (Ok(warehouse), Ok(count)) => taken.push(capture.withdrawal(warehouse, count)),
                    _ => told = false,
                }
            }
            Ok(told)
        });
        if done.map_err(|error| attempt(&error))? {
            return Ok(());
        }
        Err(Attempt::Unknown(Fault::answered("it does not say what was taken")))
    }

    async fn commit(&mut self) -> Step {
        commit(&self.connection).map_err(|error| attempt(&error))
    }

    async fn roll_back(&mut self, ended: Attempt) -> Attempt {
        roll_back(&self.connection).map_or_else(|error| attempt(&error), |()| ended)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{self as testbed, NAMESPACE, wait};
    use acidtest_workloads::inventory::{Item, Operations};

    use super::*;
    use crate::opened;

    fn set(
        store: &Sqlite,
        place: &Place,
        column: &str,
        value: &str,
        (sku, condition, source, warehouse): (u32, u8, u8, u8),
    ) {
        let sql = format!(
            "UPDATE {} SET {column} = {value} WHERE sku = ?1 AND condition = ?2 AND source = ?3 AND warehouse = ?4",
            table(place)
        );
        let tuple = params![sku, condition, source, warehouse];
        let changed = store.on_file("spoiling", |connection| connection.execute(&sql, tuple));
        assert_eq!(changed.unwrap(), 1);
    }

    #[test]
    fn what_is_no_tuple_is_foreign_to_the_final_stock() {
        for (column, value) in [("count", "'many'"), ("count", "1.5"), ("warehouse", "1000"), ("sku", "-1")] {
            let folder = tempfile::tempdir().unwrap();
            let store = opened(&folder);
            let spoil = async |place: &Place, item: &Item| set(&store, place, column, value, item.key());
            wait(testbed::inventory::garbled(&store, spoil));
        }
    }

    /// A statement that has taken units may have had an effect though its answer cannot be read, so its outcome
    /// is unknown; a statement that only read such an answer has taken nothing, and has failed.
    #[test]
    fn a_capture_from_what_is_no_tuple_has_failed_or_is_unknown() {
        let item = Item { sku: 1, condition: 1, source: 1, warehouse: 1, price: 1, initial: 5 };
        let stock = Stock { items: vec![item], groups: Vec::new(), group_of: Vec::new() };
        let capture = Capture { sku: 1, condition: 1, source: 1, units: 2 };
        for lock in Lock::ALL {
            let folder = tempfile::tempdir().unwrap();
            let store = opened(&folder);
            let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
            wait(store.load(&place, lock, &stock)).unwrap();
            set(&store, &place, "warehouse", "1000", item.key());
            let connector = SqliteConnector { file: store.file.clone(), lock, table: table(&place) };
            let mut client = wait(connector.connect()).unwrap();
            let ended = wait(client.capture(&capture, &mut Vec::new()));
            let fits = match &ended {
                Attempt::Unknown(_) => lock == Lock::Native,
                Attempt::Failed(_) => lock != Lock::Native,
                _ => false,
            };
            assert!(fits, "{lock}: {ended:?}");
        }
    }
}
