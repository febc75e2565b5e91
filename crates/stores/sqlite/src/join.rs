//! The join workload on SQLite.

use std::fmt::Write;

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place, Served,
    join::{self, Connector, Ext, JoinAnswer, JoinStore, Operations, Scenario, TableOrder},
    records::Layout,
};
use rusqlite::{Connection, params};

use crate::{
    File, Sqlite, attempt, named,
    records::{TABLE, lay_in},
};

/// The name of the small table among the trial's objects.
const EXT: &str = "ext";

/// The join as the study writes it, in one of its two orders.
fn query(place: &Place, order: TableOrder, value: u8) -> String {
    let from = order.joined(&named(place, EXT), &named(place, TABLE));
    // the first column is the key in both orders
    format!(
        "SELECT ext.key, ext.*, usertable.* FROM {from} ON usertable.key = ext.key
         WHERE ext.value = {value}"
    )
}

fn run(connection: &Connection, sql: &str, joined: &mut JoinAnswer) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // a value that is no text cannot be a record's key; a number counts as an empty one
        joined.row(&String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()));
    }
    Ok(())
}

impl JoinStore for Sqlite {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        ext: &'a [Ext],
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            lay_in(self, place, layout, loaded).await?;
            self.on_file("loading ext", |connection| {
                let table = named(place, EXT);
                let transaction = connection.transaction()?;
                // WITHOUT ROWID suits small rows, unlike those of usertable
                transaction.execute_batch(&format!(
                    "CREATE TABLE {table} (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
                ))?;
                {
                    let mut insert = transaction.prepare(&format!("INSERT INTO {table} VALUES (?1, ?2)"))?;
                    for row in ext {
                        insert.execute(params![row.key, row.value])?;
                    }
                }
                transaction.execute_batch(&format!("ANALYZE {table}; ANALYZE {}", named(place, TABLE)))?;
                transaction.commit()
            })
        })
    }

    fn explain<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
    ) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async move {
            self.on_file("explaining the join", |connection| {
                let sql = format!("EXPLAIN QUERY PLAN {}", query(place, order, value));
                let mut statement = connection.prepare(&sql)?;
                let mut rows = statement.query([])?;
                // number and depth of each step
                let mut depths = vec![(0, 0)];
                let mut plan = String::new();
                while let Some(row) = rows.next()? {
                    let (id, parent, detail): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(3)?);
                    let depth =
                        depths.iter().find(|(step, _)| *step == parent).map_or(0, |(_, depth)| *depth);
                    depths.push((id, depth + 1));
                    let line_break = if plan.is_empty() { "" } else { "\n" };
                    // writing to a string cannot fail
                    let _ = write!(plan, "{line_break}{:indent$}{detail}", "", indent = 2 * depth);
                }
                Ok(plan)
            })
        })
    }

    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_file("joining for the first time", |connection| {
                let sql = query(place, order, value);
                // prepare the statement before timing begins; the run finds it in the cache
                drop(connection.prepare_cached(&sql)?);
                begin();
                run(connection, &sql, &mut JoinAnswer::default())
            })
        })
    }

    fn client(&self, place: &Place, value: u8, scenario: Scenario) -> ClientTask {
        join::task(SqliteConnector::of(self, place, value), scenario)
    }

    fn serve(&self, place: &Place, value: u8) -> Option<Served> {
        Some(join::serve(SqliteConnector::of(self, place, value)))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { self.drop_tables("removing the tables", place, &[EXT, TABLE]) })
    }
}

struct SqliteConnector {
    file: File,
    /// The join's SQL in each order.
    sql: [String; 2],
}

impl SqliteConnector {
    fn of(store: &Sqlite, place: &Place, value: u8) -> Self {
        Self { file: store.file.clone(), sql: TableOrder::ALL.map(|order| query(place, order, value)) }
    }
}

struct Client {
    connection: Connection,
    sql: [String; 2],
}

impl Connector for SqliteConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.file.connect().map_err(|error| error.to_string())?;
        for sql in &self.sql {
            connection.prepare_cached(sql).map_err(|error| error.to_string())?;
        }
        Ok(Client { connection, sql: self.sql.clone() })
    }
}

impl Operations for Client {
    async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
        match run(&self.connection, &self.sql[order as usize], joined) {
            Ok(()) => Attempt::Ok,
            Err(error) => attempt(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{NAMESPACE, wait};

    use super::*;
    use crate::opened;

    /// A row whose key is no text counts as a row that is not expected, and is no error.
    #[test]
    fn what_is_no_key_is_a_row_like_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let layout = Layout { records: 1, fields: 1, field_bytes: 20, scans: false };
        let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
        let ext = [Ext { key: "theirs".to_owned(), value: 4 }];
        wait(store.load(&place, &layout, &ext, &LoadProgress::default())).unwrap();
        for table in [EXT, TABLE] {
            let spoil = format!("UPDATE {} SET key = CAST(x'FF' AS TEXT)", named(&place, table));
            store.on_file("spoiling", |connection| connection.execute_batch(&spoil)).unwrap();
        }
        let sql = TableOrder::ALL.map(|order| query(&place, order, 4));
        let mut client = wait(SqliteConnector { file: store.file.clone(), sql }.connect()).unwrap();
        let mut expected = JoinAnswer::default();
        expected.row("\u{FFFD}");
        for order in TableOrder::ALL {
            let mut joined = JoinAnswer::default();
            assert_eq!(wait(client.join(order, &mut joined)), Attempt::Ok);
            assert_eq!(joined, expected);
        }
    }
}
