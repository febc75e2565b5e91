//! The inventory on SQLite.

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place,
    inventory::{
        self, Capture, Connector, Held, InventoryStore, Line, Operations, Reading, Release, Scenario, Seen,
        Stock,
    },
};
use rusqlite::{Connection, Row, params};

use crate::{
    File, Sqlite, attempt, named,
    transaction::{Done, IMMEDIATE, begin, end},
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
        inventory::task(
            SqliteConnector { file: self.file.clone(), lock, sql: Statements::on(&table(place)) },
            scenario,
        )
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<Held>, StoreError>> {
        Box::pin(async move {
            self.on_file("reading the final stock", |connection| {
                let sql = format!("SELECT sku, condition, source, warehouse, count FROM {}", table(place));
                connection
                    .prepare(&sql)?
                    .query_map([], |row| Ok(held(row).unwrap_or_else(|_| Held::foreign())))?
                    .collect()
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { self.drop_tables("removing the stock", place, &["stock"]) })
    }
}

/// A tuple of the final stock. What is no number, or too large a one, SQLite can have in every column.
fn held(row: &Row<'_>) -> rusqlite::Result<Held> {
    let key = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(Held { key, count: row.get(4)? })
}

#[derive(Clone)]
struct Statements {
    /// The tuples of a group, ascending by warehouse.
    read: String,
    set: String,
    take: String,
    take_if_unchanged: String,
    capture: String,
    release: String,
    release_and_mark: String,
}

impl Statements {
    fn on(table: &str) -> Self {
        let group = "sku = ?1 AND condition = ?2 AND source = ?3";
        let tuple = format!("{group} AND warehouse = ?4");
        Self {
            read: format!("SELECT warehouse, count, version FROM {table} WHERE {group} ORDER BY warehouse"),
            set: format!("UPDATE {table} SET count = ?5 WHERE {tuple}"),
            take: format!("UPDATE {table} SET count = count - ?5 WHERE {tuple}"),
            take_if_unchanged: format!(
                "UPDATE {table} SET count = count - ?5, version = version + 1 WHERE {tuple} AND version = ?6"
            ),
            // RETURNING sees only the table that is updated: what was taken is kept in a column
            capture: format!(
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
            release: format!("UPDATE {table} SET count = count + ?5 WHERE {tuple}"),
            release_and_mark: format!(
                "UPDATE {table} SET count = count + ?5, version = version + 1 WHERE {tuple}"
            ),
        }
    }
}

struct SqliteConnector {
    file: File,
    lock: Lock,
    sql: Statements,
}

struct Client {
    connection: Connection,
    lock: Lock,
    sql: Statements,
    /// The group last read.
    seen: Reading,
}

impl Connector for SqliteConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.file.connect().map_err(|error| error.to_string())?;
        Ok(Client { connection, lock: self.lock, sql: self.sql.clone(), seen: Reading::default() })
    }
}

impl Client {
    fn read(&mut self, capture: &Capture) -> rusqlite::Result<()> {
        self.seen.clear();
        let mut statement = self.connection.prepare_cached(&self.sql.read)?;
        let mut rows = statement.query(params![capture.sku, capture.condition, capture.source])?;
        while let Some(row) = rows.next()? {
            self.seen.push(Seen { warehouse: row.get(0)?, count: row.get(1)?, version: row.get(2)? });
        }
        Ok(())
    }

    fn capture_unprotected(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Done {
        self.read(capture)?;
        if !self.seen.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        for (index, line) in taken.iter().enumerate() {
            let left = self.seen.left(line);
            let tuple = params![line.sku, line.condition, line.source, line.warehouse, left];
            match self.connection.prepare_cached(&self.sql.set)?.execute(tuple) {
                Ok(_) => {}
                // the lines before have taken effect
                Err(error) if index > 0 => return Ok(attempt(&error).after_a_part()),
                Err(error) => return Err(error),
            }
        }
        Ok(Attempt::Ok)
    }

    fn capture_if_unchanged(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Done {
        self.read(capture)?;
        if !self.seen.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        // one statement is atomic by itself
        if taken.len() == 1 {
            return self.take_if_unchanged(taken);
        }
        begin(&self.connection, IMMEDIATE)?;
        let done = self.take_if_unchanged(taken);
        end(&self.connection, done)
    }

    fn take_if_unchanged(&self, taken: &[Line]) -> Done {
        for line in taken {
            let tuple = params![
                line.sku,
                line.condition,
                line.source,
                line.warehouse,
                line.count,
                self.seen.of(line).version
            ];
            if self.connection.prepare_cached(&self.sql.take_if_unchanged)?.execute(tuple)? == 0 {
                return Ok(Attempt::Conflict);
            }
        }
        Ok(Attempt::Ok)
    }

    fn capture_locked(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Done {
        begin(&self.connection, IMMEDIATE)?;
        let done = self.take_inside(capture, taken);
        end(&self.connection, done)
    }

    fn take_inside(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Done {
        self.read(capture)?;
        if !self.seen.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        for line in &*taken {
            let tuple = params![line.sku, line.condition, line.source, line.warehouse, line.count];
            self.connection.prepare_cached(&self.sql.take)?.execute(tuple)?;
        }
        Ok(Attempt::Ok)
    }

    fn capture_in_one(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Done {
        taken.clear();
        let mut statement = self.connection.prepare_cached(&self.sql.capture)?;
        let mut rows =
            statement.query(params![capture.sku, capture.condition, capture.source, capture.units])?;
        let mut told = true;
        // to the end, where it commits
        while let Some(row) = rows.next()? {
            match (row.get(0), row.get(1)) {
                (Ok(warehouse), Ok(count)) => taken.push(capture.line(warehouse, count)),
                _ => told = false,
            }
        }
        Ok(match taken.is_empty() {
            _ if !told => Attempt::Unknown(Fault::answered("it does not say what was taken")),
            true => Attempt::Refused,
            false => Attempt::Ok,
        })
    }
}

impl Operations for Client {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Attempt {
        let done = match self.lock {
            Lock::None => self.capture_unprotected(capture, taken),
            Lock::Soft => self.capture_if_unchanged(capture, taken),
            Lock::Hard => self.capture_locked(capture, taken),
            Lock::Native => self.capture_in_one(capture, taken),
        };
        done.unwrap_or_else(|error| attempt(&error))
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        let sql = if self.lock == Lock::Soft { &self.sql.release_and_mark } else { &self.sql.release };
        let tuple = params![release.sku, release.condition, release.source, release.warehouse, release.units];
        let done = self.connection.prepare_cached(sql).and_then(|mut update| update.execute(tuple));
        match done {
            Ok(1) => Attempt::Ok,
            Ok(rows) => Attempt::Failed(Fault::answered(format!("a release changed {rows} rows"))),
            Err(error) => attempt(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{self as testbed, NAMESPACE, wait};
    use acidtest_workloads::inventory::Item;

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

    /// A statement that has taken something is not without effect because its answer makes no sense; what only
    /// reads such a thing has taken nothing.
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
            let sql = Statements::on(&table(&place));
            let connector = SqliteConnector { file: store.file.clone(), lock, sql };
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
