//! Transactions at random on PostgreSQL.

use std::{iter, pin::pin};

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place,
    transactions::{
        self, Answers, Connector, Held, Layout, Operations, Promise, Requirements, Rows, Scenario, State,
        Step, Table, TransactionsStore,
    },
};
use futures_util::TryStreamExt;

use crate::{
    ConnectOptions, KIND, Postgres, Value,
    fault::SendState,
    product,
    protocol::{self, Statement},
    quoted,
    records::{is_isolated, isolate},
    server,
    session::{Part, Session, changed_one},
    value::Columns,
};

/// The quoted names of the trial's tables.
fn names(place: &Place) -> [String; 3] {
    Table::ALL.map(|table| format!("{}.{}", quoted(&place.namespace), quoted(&place.object(table.name()))))
}

impl TransactionsStore for Postgres {
    /// A fill factor leaves half of each page free, so that an updated row stays on its page and in its place in the index: usual
    /// for a small table that is updated all the time.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the lists, registers and accounts", async move |client| {
            for (table, name) in Table::ALL.into_iter().zip(names(place)) {
                let (column, value) = match table {
                    Table::Lists => ("list bigint[] NOT NULL", "'{}'".to_owned()),
                    Table::Registers => ("value bigint", "NULL".to_owned()),
                    Table::Accounts => ("balance bigint NOT NULL", layout.balance.to_string()),
                };
                let count = table.rows(layout);
                let make = format!(
                    "BEGIN;
                     CREATE TABLE {name} (id integer PRIMARY KEY, {column}) WITH (fillfactor = 50);
                     INSERT INTO {name} SELECT id, {value} FROM generate_series(0, {count} - 1) AS ids (id);
                     COMMIT"
                );
                client.batch_execute(&make).await?;
                // so that the planner knows the table's size, and no client has to mark its rows as committed
                client.batch_execute(&format!("VACUUM (ANALYZE) {name}")).await?;
                loaded.add(count.into());
            }
            Ok(())
        }))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        transactions::task(PostgresConnector::of(self, place, wanted), scenario)
    }

    fn promise<'a>(&'a self, wanted: &'a Requirements) -> Task<'a, Result<Promise, StoreError>> {
        Box::pin(async move {
            let doing = "reading the isolation level";
            let level = match wanted.isolation {
                Some(level) => level.sql().to_lowercase(),
                None => {
                    self.on_server(doing, async |client| {
                        let sql = "SELECT current_setting('default_transaction_isolation')";
                        client.query_one(sql, &[]).await?.try_get(0)
                    })
                    .await?
                }
            };
            // another product has documentation of its own
            let other = self.other_product().await?;
            Ok(Promise::documented(other.as_deref().unwrap_or(KIND.name), &level, ""))
        })
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Layout,
        state: &'a mut State,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the final lists, registers and accounts", async move |client| {
            for (table, name) in Table::ALL.into_iter().zip(names(place)) {
                let sql = format!("SELECT * FROM {name}");
                let mut rows = pin!(client.query_raw(&sql, iter::empty::<Value<'_>>()).await?);
                while let Some(row) = rows.try_next().await? {
                    match row.read::<i32>(0).map(u32::try_from) {
                        Some(Ok(id)) => state.row(table, id, &held(table, &row, 1)),
                        _ => state.unreadable(),
                    }
                }
            }
            Ok(())
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the lists, registers and accounts", async move |client| {
            let drop = format!("DROP TABLE IF EXISTS {}", names(place).join(", "));
            client.batch_execute(&drop).await
        }))
    }
}

impl Postgres {
    /// What the server is, by name, if it is not PostgreSQL.
    async fn other_product(&self) -> Result<Option<String>, StoreError> {
        let doing = "asking what the server is";
        let version = self.on_server(doing, crate::version).await?;
        if let Some(other) = product::other(&version) {
            return Ok(Some(other));
        }
        let signs = self.on_server(doing, server).await?.signs;
        Ok(signs.first().map(|name| product::named(name, &version)))
    }
}

/// What a row of a table holds in a column.
fn held(table: Table, row: &impl Columns, column: usize) -> Held<'static> {
    let held = match table {
        Table::Lists => row.read(column).map(Held::Array),
        Table::Registers | Table::Accounts => row.read(column).map(Held::Number),
    };
    held.unwrap_or(Held::Other)
}

struct PostgresConnector {
    server: ConnectOptions,
    isolation: Option<Isolation>,
    sql: [[String; 2]; 3],
}

impl PostgresConnector {
    fn of(store: &Postgres, place: &Place, wanted: &Requirements) -> Self {
        let Requirements { isolation, layout } = wanted;
        Self { server: store.server.clone(), isolation: *isolation, sql: sql(place, layout) }
    }
}

/// Reads a row of a table, and writes to one, for each table.
fn sql(place: &Place, layout: &Layout) -> [[String; 2]; 3] {
    let [lists, registers, accounts] = names(place);
    [
        [
            format!("SELECT list FROM {lists} WHERE id = $1"),
            format!("UPDATE {lists} SET list = list || $2::bigint WHERE id = $1"),
        ],
        [
            format!("SELECT value FROM {registers} WHERE id = $1"),
            format!("UPDATE {registers} SET value = $2 WHERE id = $1"),
        ],
        // no row where an account is missing
        [
            format!("SELECT sum(balance)::bigint FROM {accounts} HAVING count(*) = {}", layout.accounts),
            format!("UPDATE {accounts} SET balance = balance + $2 WHERE id = $1"),
        ],
    ]
}

async fn prepared(
    connection: &mut protocol::Connection,
    sql: &[[String; 2]; 3],
) -> Result<[[Statement; 2]; 3], protocol::Error> {
    let mut both = async |[read, write]: &[String; 2]| {
        Ok::<_, protocol::Error>([connection.prepare(read).await?, connection.prepare(write).await?])
    };
    let [lists, registers, accounts] = sql;
    Ok([both(lists).await?, both(registers).await?, both(accounts).await?])
}

struct Client {
    session: Session,
    /// The statements that read and write rows of each table.
    statements: [[Statement; 2]; 3],
}

/// Rows are found by their keys, however few there are: reading a whole table would make serializable transactions conflict that have
/// nothing in common. The total does read one, which then counts as so expensive that the server would compile the statement each time.
const SETTINGS: &str = "SET enable_seqscan = off; SET jit = off";

impl Connector for PostgresConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let prepare = async |connection: &mut protocol::Connection| {
            connection.command(SETTINGS).await?;
            let level = isolate(connection, self.isolation).await?;
            Ok((level, prepared(connection, &self.sql).await?))
        };
        let (session, (level, statements)) = Session::open(&self.server, prepare).await?;
        is_isolated(self.isolation, &level)?;
        Ok(Client { session, statements })
    }
}

impl Client {
    async fn begin(&mut self) -> Result<(), Attempt> {
        self.session.part(Part::First, |_| Ok(())).await?.begun(false)
    }
}

impl Rows for Client {
    async fn read(&mut self, table: Table, key: Option<u32>, answers: &mut Answers) -> Result<(), Attempt> {
        let [read, _] = self.statements[table as usize];
        let key = key.map(|key| Value::Number(key.into()));
        let row = self.session.run(read, key, SendState::Nothing).await?.first().ok_or(Attempt::Refused)?;
        answers.row(table, &held(table, &row, 0));
        Ok(())
    }

    async fn write(&mut self, table: Table, key: u32, value: i64) -> Result<(), Attempt> {
        let [_, write] = self.statements[table as usize];
        let values = [key.into(), value].map(Value::Number);
        match self.session.run(write, values, SendState::Nothing).await?.count() {
            0 => Err(Attempt::Refused),
            changed => changed_one(changed),
        }
    }
}

impl Operations for Client {
    async fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        if let Err(trouble) = self.begin().await {
            return trouble;
        }
        if let Err(trouble) = self.steps(steps, answers).await {
            return self.session.roll_back(trouble).await;
        }
        self.session.commit().await.err().unwrap_or(Attempt::Ok)
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{NAMESPACE, Private, step_by_step, wait};
    use acidtest_workloads::{Store, transactions::Promise};

    use super::*;
    use crate::{
        protocol::tests::{INT8, complete, ready},
        session::tests::{failed, with_session},
    };

    fn table(place: &Place, object: &str) -> String {
        format!("{}.{}", quoted(&place.namespace), quoted(&place.object(object)))
    }

    fn promise(store: &Postgres, isolation: Option<Isolation>) -> Promise {
        let layout = Layout { lists: 0, registers: 0, accounts: 0, balance: 0 };
        wait(store.promise(&Requirements { isolation, layout })).unwrap()
    }

    #[test]
    fn a_transaction_does_what_it_says_and_tells_how_it_ends() {
        let Some(mut private) = Private::start("postgres", Durability::None) else { return };
        let store = private.open(Postgres::open);
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        let connect = |place: &Place, wanted: &Requirements| PostgresConnector::of(&store, place, wanted);
        wait(step_by_step::does_what_it_says(&store, &Isolation::ALL, connect));
        let spoil = async |place: &Place| {
            let sql = format!(
                "UPDATE {} SET list = '{{1, NULL}}' WHERE id = 1; UPDATE {} SET value = -1 WHERE id = 0",
                table(place, "lists"),
                table(place, "registers")
            );
            store.on_server("spoiling", async |client| client.batch_execute(&sql).await).await.unwrap();
        };
        wait(step_by_step::tells_what_makes_no_sense(&store, connect, spoil));
        let lose = async |place: &Place, id| {
            let sql = format!("DELETE FROM {} WHERE id = {id}", table(place, "accounts"));
            store.on_server("losing", async |client| client.batch_execute(&sql).await).await.unwrap();
        };
        wait(step_by_step::misses_lost_accounts(&store, connect, lose));
        for level in Isolation::ALL {
            let (attempt, told) = wait(step_by_step::meets_a_later_commit(&store, level, connect, table));
            if matches!(level, Isolation::RepeatableRead | Isolation::Serializable) {
                assert_eq!((attempt, &*told), (Attempt::Conflict, &["400".to_owned()][..]), "{level}");
            } else {
                assert_eq!((attempt, &*told.join(" ")), (Attempt::Ok, "400 done 401"), "{level}");
            }
        }
        // the server looks for a deadlock a second after a session has begun to wait
        let patience = ["SET deadlock_timeout = '5s'"];
        wait(step_by_step::is_told_of_a_deadlock(&store, connect, table, &patience));
        let kill = |id| format!("SELECT pg_terminate_backend({id})");
        wait(step_by_step::dies_before_it_commits(&store, connect, table, kill));

        for level in Isolation::ALL {
            let promise = promise(&store, Some(level));
            assert_eq!(promise.level, level.sql().to_lowercase());
            assert!(!promise.rules_out.is_empty() && !promise.source.is_empty(), "{promise:?}");
        }
        assert_eq!(promise(&store, None).level, "read committed");
        let default = async |client: &tokio_postgres::Client| {
            client
                .batch_execute("ALTER DATABASE postgres SET default_transaction_isolation = serializable")
                .await
        };
        wait(store.on_server("setting the default", default)).unwrap();
        assert_eq!(promise(&store, None), promise(&store, Some(Isolation::Serializable)));
        wait(store.remove(NAMESPACE)).unwrap();
    }

    /// How a transaction without a step ends whose COMMIT is answered so.
    fn committed(answer: &[Vec<u8>]) -> Attempt {
        let begun = [complete("BEGIN"), ready()].concat();
        with_session(INT8, &[&[begun], answer].concat(), async |session, statement| {
            let statements = [[statement; 2]; 3];
            Client { session, statements }.transaction(&[], &mut Answers::default()).await
        })
    }

    #[test]
    fn only_a_commit_that_was_answered_is_known() {
        let done = |tag: &str| [complete(tag), ready()].concat();
        assert_eq!(committed(&[done("COMMIT")]), Attempt::Ok);
        assert_eq!(committed(&[failed("ERROR", "40001")]), Attempt::Conflict);
        assert!(matches!(committed(&[done("ROLLBACK")]), Attempt::Failed(_)));
        for answer in [&[failed("FATAL", "57P01")][..], &[failed("ERROR", "XX000")], &[Vec::new()]] {
            assert!(matches!(committed(answer), Attempt::Unknown(_)), "{answer:?}");
        }
    }
}
