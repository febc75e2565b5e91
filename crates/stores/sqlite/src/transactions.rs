//! Transactions at random on SQLite.

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place, Served,
    transactions::{
        self, Answers, Connector, Held, Layout, Operations, Promise, Requirements, Rows, Scenario, State,
        Step, Table, TransactionsStore,
    },
};
use rusqlite::{Connection, OptionalExtension, Row, types::ValueRef};

use crate::{
    File, Sqlite, attempt, named,
    transaction::{DEFERRED, begin, end},
};

const LOADING: &str = "loading the lists, registers and accounts";

impl TransactionsStore for Sqlite {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_file(LOADING, |connection| {
                let transaction = connection.transaction()?;
                for table in Table::ALL {
                    let (column, value) = match table {
                        Table::Lists => ("list TEXT NOT NULL", "''".to_owned()),
                        Table::Registers => ("value INTEGER", "NULL".to_owned()),
                        Table::Accounts => ("balance INTEGER NOT NULL", layout.balance.to_string()),
                    };
                    let name = named(place, table.name());
                    transaction
                        .execute_batch(&format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY, {column})"))?;
                    let mut insert =
                        transaction.prepare(&format!("INSERT INTO {name} VALUES (?1, {value})"))?;
                    for id in 0..table.rows(layout) {
                        insert.execute([id])?;
                    }
                    loaded.add(table.rows(layout).into());
                }
                transaction.commit()
            })
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        transactions::task(SqliteConnector::of(self, place, wanted), scenario)
    }

    fn serve(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(transactions::serve(SqliteConnector::of(self, place, wanted)))
    }

    /// There is one level.
    fn promise<'a>(&'a self, _: &'a Requirements) -> Task<'a, Result<Promise, StoreError>> {
        Box::pin(async { Ok(Promise::documented("sqlite", "serializable", "")) })
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Layout,
        state: &'a mut State,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_file("reading the final lists, registers and accounts", |connection| {
                for table in Table::ALL {
                    let mut statement =
                        connection.prepare(&format!("SELECT * FROM {}", named(place, table.name())))?;
                    let mut rows = statement.query([])?;
                    while let Some(row) = rows.next()? {
                        match row.get_ref(0)?.as_i64().map(u32::try_from) {
                            Ok(Ok(id)) => state.row(table, id, &held(row.get_ref(1)?)),
                            _ => state.unreadable(),
                        }
                    }
                }
                Ok(())
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.drop_tables(
                "removing the lists, registers and accounts",
                place,
                &Table::ALL.map(Table::name),
            )
        })
    }
}

fn held(value: ValueRef<'_>) -> Held<'_> {
    match value {
        ValueRef::Null => Held::Number(None),
        ValueRef::Integer(number) => Held::Number(Some(number)),
        ValueRef::Text(text) => Held::Text(text),
        ValueRef::Real(_) | ValueRef::Blob(_) => Held::Other,
    }
}

/// Reads a row of a table, and writes to one, for each table.
fn sql(place: &Place, layout: &Layout) -> [[String; 2]; 3] {
    let [lists, registers, accounts] = Table::ALL.map(|table| named(place, table.name()));
    [
        [
            format!("SELECT list FROM {lists} WHERE id = ?1"),
            format!("UPDATE {lists} SET list = list || ',' || ?2 WHERE id = ?1"),
        ],
        [
            format!("SELECT value FROM {registers} WHERE id = ?1"),
            format!("UPDATE {registers} SET value = ?2 WHERE id = ?1"),
        ],
        // no row where an account is missing
        [
            format!("SELECT sum(balance) FROM {accounts} HAVING count(*) = {}", layout.accounts),
            format!("UPDATE {accounts} SET balance = balance + ?2 WHERE id = ?1"),
        ],
    ]
}

struct SqliteConnector {
    file: File,
    isolation: Option<Isolation>,
    sql: [[String; 2]; 3],
}

impl SqliteConnector {
    fn of(store: &Sqlite, place: &Place, wanted: &Requirements) -> Self {
        let Requirements { isolation, layout } = wanted;
        Self { file: store.file.clone(), isolation: *isolation, sql: sql(place, layout) }
    }
}

struct Client {
    connection: Connection,
    sql: [[String; 2]; 3],
}

impl Connector for SqliteConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.file.connect().map_err(|error| error.to_string())?;
        // there is no level to set: one below serializable takes a shared cache and this pragma
        let uncommitted: bool = connection
            .query_row("PRAGMA read_uncommitted", [], |row| row.get(0))
            .map_err(|error| error.to_string())?;
        if self.isolation == Some(Isolation::Serializable) && uncommitted {
            return Err("read_uncommitted is on: its transactions are not serializable".to_owned());
        }
        Ok(Client { connection, sql: self.sql.clone() })
    }
}

impl Client {
    /// Whether there was a row to read.
    fn query(&self, table: Table, key: Option<u32>, answers: &mut Answers) -> rusqlite::Result<bool> {
        let [read, _] = &self.sql[table as usize];
        let mut statement = self.connection.prepare_cached(read)?;
        let row = |row: &Row<'_>| {
            answers.row(table, &held(row.get_ref(0)?));
            Ok(())
        };
        Ok(statement.query_row(rusqlite::params_from_iter(key), row).optional()?.is_some())
    }

    /// Whether there was a row to write to.
    fn execute(&self, table: Table, key: u32, value: i64) -> rusqlite::Result<bool> {
        let [_, write] = &self.sql[table as usize];
        let mut statement = self.connection.prepare_cached(write)?;
        Ok(statement.execute((key, value))? > 0)
    }
}

/// How a statement ends, by whether there was a row.
fn found(is_there: rusqlite::Result<bool>) -> Result<(), Attempt> {
    match is_there {
        Ok(true) => Ok(()),
        Ok(false) => Err(Attempt::Refused),
        Err(error) => Err(attempt(&error)),
    }
}

impl Rows for Client {
    async fn read(&mut self, table: Table, key: Option<u32>, answers: &mut Answers) -> Result<(), Attempt> {
        found(self.query(table, key, answers))
    }

    async fn write(&mut self, table: Table, key: u32, value: i64) -> Result<(), Attempt> {
        found(self.execute(table, key, value))
    }
}

impl Operations for Client {
    async fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        if let Err(error) = begin(&self.connection, DEFERRED) {
            return attempt(&error);
        }
        let done = self.steps(steps, answers).await.err().unwrap_or(Attempt::Ok);
        end(&self.connection, Ok(done)).unwrap_or_else(|error| attempt(&error))
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{step_by_step, wait};

    use super::*;
    use crate::opened;

    #[test]
    fn a_transaction_does_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let connect = |place: &Place, wanted: &Requirements| SqliteConnector::of(&store, place, wanted);
        wait(step_by_step::does_what_it_says(&store, &[Isolation::Serializable], connect));
        let execute =
            |sql: String| store.on_file("spoiling", |connection| connection.execute_batch(&sql)).unwrap();
        let spoil = async |place: &Place| {
            let [lists, registers] = ["lists", "registers"].map(|object| named(place, object));
            execute(format!(
                "UPDATE {lists} SET list = '1' WHERE id = 1; UPDATE {registers} SET value = -1 WHERE id = 0"
            ));
        };
        wait(step_by_step::tells_what_makes_no_sense(&store, connect, spoil));
        let lose = async |place: &Place, id| {
            execute(format!("DELETE FROM {} WHERE id = {id}", named(place, "accounts")));
        };
        wait(step_by_step::misses_lost_accounts(&store, connect, lose));
    }
}
