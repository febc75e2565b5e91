//! Transactions at random on `MariaDB` and `MySQL`, on `InnoDB`.

use std::fmt::Write as _;

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place,
    transactions::{
        self, Answers, Connector, Held, Layout, Operations, Promise, Requirements, Rows, Scenario, State,
        Step, Table, TransactionsStore,
    },
};
use mysql_async::{Conn, Row, prelude::Queryable};

use crate::{
    ConnectOptions, MariaDb,
    columns::{Columns, number},
    fault::{self, SendState},
    interactive::{ISOLATION, Told},
    load::{self, BATCH, drop_tables},
    object, product,
    protocol::{self, Error, Statement, Value},
    records::{isolate, look_at_isolation},
    session::{Session, UnitOfWork, one},
    variables,
};

const TRANSACTION: UnitOfWork = UnitOfWork::Transaction;

/// Makes all that a connection reads from now on one snapshot of what is committed. At the server's own level it may see what a
/// session has written that is about to be rolled back.
const SNAPSHOT: [&str; 2] =
    ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];

/// The quoted names of the trial's tables.
fn names(place: &Place) -> [String; 3] {
    Table::ALL.map(|table| object(place, table.name()))
}

impl TransactionsStore for MariaDb {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the lists, registers and accounts", async move |conn| {
            // a TEXT holds 64 KiB, and a server that is not strict cuts off what is too long
            let list = "list MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL";
            for (table, name) in Table::ALL.into_iter().zip(names(place)) {
                let (column, value) = match table {
                    Table::Lists => (list, "''".to_owned()),
                    Table::Registers => ("value BIGINT", "NULL".to_owned()),
                    Table::Accounts => ("balance BIGINT NOT NULL", layout.balance.to_string()),
                };
                let engine = self.engine.name();
                let create =
                    format!("CREATE TABLE {name} (id INT UNSIGNED PRIMARY KEY, {column}) ENGINE={engine}");
                conn.query_drop(create).await?;
                let ids: Vec<u32> = (0..table.rows(layout)).collect();
                for ids in ids.chunks(BATCH) {
                    let write = |sql: &mut String, id: &u32| {
                        // writing to a string cannot fail
                        let _ = write!(sql, "({id}, {value})");
                    };
                    load::insert(conn, (&name, ""), ids, write).await?;
                    loaded.add(ids.len() as u64);
                }
                load::analyze(conn, &name, self.engine).await?;
            }
            Ok(())
        }))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        transactions::task(MariaDbConnector::of(self, place, wanted), scenario)
    }

    fn promise<'a>(&'a self, wanted: &'a Requirements) -> Task<'a, Result<Promise, StoreError>> {
        Box::pin(async move {
            let names = [&product::VARIABLES[..], &ISOLATION, &product::CLUSTER].concat();
            let read = async |conn: &mut Conn| variables(conn, &names).await;
            let variables = self.on_server("reading the isolation level", read).await?;
            let told = Told::of(&variables);
            let level =
                wanted.isolation.map_or_else(|| told.level.replace('-', " "), |level| level.sql().to_owned());
            let level = level.to_lowercase();
            // another product, and a cluster, have documentation of their own
            let other = product::other(self.product, &variables);
            let other = other.as_deref().or_else(|| product::cluster(&variables));
            Ok(Promise::documented(other.unwrap_or(self.product.scheme()), &level, &told.to_string()))
        })
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Layout,
        state: &'a mut State,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the final lists, registers and accounts", async move |conn| {
            for begin in SNAPSHOT {
                conn.query_drop(begin).await?;
            }
            for (table, name) in Table::ALL.into_iter().zip(names(place)) {
                let mut result = conn.exec_iter(format!("SELECT * FROM {name}"), ()).await?;
                let each = |row: Row| match number(&row, 0) {
                    Ok(id) => state.row(table, id, &held(table, &row, 1)),
                    Err(_) => state.unreadable(),
                };
                result.for_each(each).await?;
                result.drop_result().await?;
            }
            Ok(())
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the lists, registers and accounts", async move |conn| {
            drop_tables(conn, &names(place)).await
        }))
    }
}

/// What a row of a table holds in a column.
fn held(table: Table, row: &impl Columns, column: usize) -> Held<'_> {
    match table {
        _ if row.is_null(column) => Held::Number(None),
        Table::Lists => Held::Text(row.bytes(column)),
        Table::Registers | Table::Accounts => {
            number(row, column).map_or(Held::Other, |number| Held::Number(Some(number)))
        }
    }
}

struct MariaDbConnector {
    server: ConnectOptions,
    isolation: Option<Isolation>,
    sql: [[String; 2]; 3],
}

impl MariaDbConnector {
    fn of(store: &MariaDb, place: &Place, wanted: &Requirements) -> Self {
        let Requirements { isolation, layout } = wanted;
        Self { server: store.server.clone(), isolation: *isolation, sql: sql(place, layout) }
    }
}

/// Reads a row of a table, and writes to one, for each table.
fn sql(place: &Place, layout: &Layout) -> [[String; 2]; 3] {
    let [lists, registers, accounts] = names(place);
    let total = format!("SELECT CAST(SUM(balance) AS SIGNED) FROM {accounts}");
    [
        [
            format!("SELECT list FROM {lists} WHERE id = ?"),
            format!("UPDATE {lists} SET list = CONCAT(list, ',', ?) WHERE id = ?"),
        ],
        [
            format!("SELECT value FROM {registers} WHERE id = ?"),
            format!("UPDATE {registers} SET value = ? WHERE id = ?"),
        ],
        // no row where an account is missing
        [
            format!("{total} HAVING COUNT(*) = {}", layout.accounts),
            format!("UPDATE {accounts} SET balance = balance + ? WHERE id = ?"),
        ],
    ]
}

async fn prepared(
    connection: &mut protocol::Connection,
    sql: &[[String; 2]; 3],
) -> Result<[[Statement; 2]; 3], Error> {
    let mut both = async |[read, write]: &[String; 2]| {
        Ok::<_, Error>([connection.prepare(read).await?, connection.prepare(write).await?])
    };
    let [lists, registers, accounts] = sql;
    Ok([both(lists).await?, both(registers).await?, both(accounts).await?])
}

struct Client {
    session: Session,
    /// The statements that read and write rows of each table.
    statements: [[Statement; 2]; 3],
}

impl Connector for MariaDbConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let prepare = async |connection: &mut protocol::Connection| {
            isolate(connection, self.isolation).await?;
            prepared(connection, &self.sql).await
        };
        let (mut session, statements) = Session::open(&self.server, prepare).await?;
        look_at_isolation(&mut session, self.isolation).await?;
        Ok(Client { session, statements })
    }
}

impl Client {
    async fn begin(&mut self) -> Result<(), Attempt> {
        let begun = self.session.connection().query("START TRANSACTION").await;
        begun.map(|_| ()).map_err(|error| fault::attempt(&error, SendState::Nothing))
    }
}

impl Rows for Client {
    async fn read(&mut self, table: Table, key: Option<u32>, answers: &mut Answers) -> Result<(), Attempt> {
        let [read, _] = self.statements[table as usize];
        let key = key.map(|key| Value::from(i64::from(key)));
        let row = self.session.read(read, key).await?.first().ok_or(Attempt::Refused)?;
        answers.row(table, &held(table, &row, 0));
        Ok(())
    }

    async fn write(&mut self, table: Table, key: u32, value: i64) -> Result<(), Attempt> {
        let [_, write] = self.statements[table as usize];
        let values = [value, key.into()].map(Value::from);
        match self.session.run(write, values, SendState::Nothing).await?.count() {
            0 => Err(Attempt::Refused),
            found => one(found),
        }
    }
}

impl Operations for Client {
    async fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        if let Err(trouble) = self.begin().await {
            return trouble;
        }
        let done = self.steps(steps, answers).await.map(|()| Attempt::Ok);
        self.session.end(&TRANSACTION, done).await.unwrap_or_else(|trouble| trouble)
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

#[cfg(test)]
mod tests {
    use acidtest_history::Anomaly;
    use acidtest_model::Durability;
    use acidtest_testbed::{NAMESPACE, Private, step_by_step, wait};
    use acidtest_workloads::Store;

    use super::*;
    use crate::{
        Variant,
        protocol::tests::{changed, failed},
        session::tests::with_own_session,
    };

    fn promise(store: &MariaDb, isolation: Option<Isolation>) -> Promise {
        let layout = Layout { lists: 0, registers: 0, accounts: 0, balance: 0 };
        wait(store.promise(&Requirements { isolation, layout })).unwrap()
    }

    fn execute(store: &MariaDb, sql: &str) {
        wait(store.on_server("executing", async |conn| conn.query_drop(sql).await)).unwrap();
    }

    fn connects(store: &MariaDb) -> impl Fn(&Place, &Requirements) -> MariaDbConnector + Copy {
        |place, wanted| MariaDbConnector::of(store, place, wanted)
    }

    fn does_what_it_says(store: &MariaDb) {
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        let connect = connects(store);
        wait(step_by_step::does_what_it_says(store, &Isolation::ALL, connect));
        let spoil = async |place: &Place| {
            let (lists, registers) = (object(place, "lists"), object(place, "registers"));
            let spoil = async |conn: &mut Conn| {
                conn.query_drop(format!("UPDATE {lists} SET list = '1' WHERE id = 1")).await?;
                conn.query_drop(format!("UPDATE {registers} SET value = -1 WHERE id = 0")).await
            };
            store.on_server("spoiling", spoil).await.unwrap();
        };
        wait(step_by_step::tells_what_makes_no_sense(store, connect, spoil));
        let lose = async |place: &Place, id| {
            let sql = format!("DELETE FROM {} WHERE id = {id}", object(place, "accounts"));
            store.on_server("losing", async |conn| conn.query_drop(sql).await).await.unwrap();
        };
        wait(step_by_step::misses_lost_accounts(store, connect, lose));
        wait(step_by_step::is_told_of_a_deadlock(store, connect, object, &[]));
        let kill = |id| format!("KILL {id}");
        wait(step_by_step::dies_before_it_commits(store, connect, object, kill));
        for level in Isolation::ALL {
            let promise = promise(store, Some(level));
            assert_eq!(promise.level, level.sql().to_lowercase());
            assert!(!promise.rules_out.is_empty() && !promise.source.is_empty(), "{promise:?}");
        }
        assert_eq!(promise(store, None).level, "repeatable read");
        reads_back_what_is_committed(store);
    }

    /// The final state has nothing that is not committed, also where the server's sessions read that.
    fn reads_back_what_is_committed(store: &MariaDb) {
        execute(store, "SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
        let place = Place { namespace: NAMESPACE.to_owned(), trial: 12 };
        let layout = Layout { lists: 0, registers: 0, accounts: 2, balance: 100 };
        wait(store.load(&place, &layout, &LoadProgress::default())).unwrap();
        let move_away = format!("UPDATE {} SET balance = 0 WHERE id = 0", object(&place, "accounts"));
        let mut state = State::default();
        let read = async |conn: &mut Conn| {
            conn.query_drop("START TRANSACTION").await?;
            conn.query_drop(move_away).await?;
            Ok(store.state(&place, &layout, &mut state).await)
        };
        wait(store.on_server("writing", read)).unwrap().unwrap();
        let mut committed = State::default();
        (0..2).for_each(|key| committed.account(key, 100));
        assert_eq!(state, committed);
        execute(store, "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    }

    /// The promise rests on the variable.
    fn notices_that_a_session_is_set(store: &MariaDb) {
        let place = Place { namespace: NAMESPACE.to_owned(), trial: 13 };
        let layout = Layout { lists: 1, registers: 1, accounts: 1, balance: 0 };
        wait(async {
            store.load(&place, &layout, &LoadProgress::default()).await.unwrap();
            let wanted = Requirements { isolation: None, layout };
            let mut client = MariaDbConnector::of(store, &place, &wanted).connect().await.unwrap();
            assert_eq!(client.check().await, Ok(()));
            let set = "SET SESSION innodb_snapshot_isolation = OFF";
            client.session.connection().query(set).await.unwrap();
            let told = client.check().await.unwrap_err();
            assert!(told.contains("innodb_snapshot_isolation OFF, and had"), "{told}");
        });
    }

    /// How a transaction ends at each level that comes to a row which was changed after its snapshot, and what it reads.
    fn meets_later_commits(store: &MariaDb) -> Vec<String> {
        let ends = |level| {
            let met = step_by_step::meets_a_later_commit(store, level, connects(store), object);
            let (attempt, told) = wait(met);
            format!("{}: {attempt:?} {}", level.sql().to_lowercase(), told.join(" "))
        };
        Isolation::ALL.map(ends).to_vec()
    }

    #[test]
    fn a_transaction_does_what_it_says_on_mariadb() {
        let Some(mut private) = Private::start("mariadb", Durability::None) else { return };
        let store = private.open(async |address| Variant::MARIADB.open(address).await);
        does_what_it_says(&store);
        // at repeatable read, the second total has the other's row as it is now, because the transaction wrote it, too
        assert_eq!(
            meets_later_commits(&store),
            [
                "read uncommitted: Ok 401 done 401",
                "read committed: Ok 400 done 401",
                "repeatable read: Ok 400 done 401",
                "serializable: Ok 401 done 401",
            ]
        );
        let lost = |store| promise(store, None).rules_out(Anomaly::LostUpdate);
        assert!(!lost(&store));
        execute(&store, "SET GLOBAL innodb_snapshot_isolation = ON");
        assert!(lost(&store));
        let ends = meets_later_commits(&store);
        assert!(ends.contains(&"repeatable read: Conflict 400".to_owned()), "{ends:?}");
        notices_that_a_session_is_set(&store);
        execute(&store, "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED");
        assert_eq!(promise(&store, None), promise(&store, Some(Isolation::ReadCommitted)));
    }

    #[test]
    fn a_transaction_does_what_it_says_on_mysql() {
        let Some(mut private) = Private::start("mysql", Durability::None) else { return };
        let store = private.open(async |address| Variant::MYSQL.open(address).await);
        does_what_it_says(&store);
        assert_eq!(
            meets_later_commits(&store),
            [
                "read uncommitted: Ok 401 done 401",
                "read committed: Ok 400 done 401",
                "repeatable read: Ok 400 done 401",
                "serializable: Ok 401 done 401",
            ]
        );
        assert!(!promise(&store, None).rules_out(Anomaly::LostUpdate));
    }

    /// How a transaction without a step ends whose COMMIT is answered so; the server closes the connection in the place of an empty
    /// answer.
    fn committed(answer: Vec<u8>) -> Attempt {
        with_own_session(&[changed(0), answer], async |session, statement| {
            let statements = [[statement; 2]; 3];
            Client { session, statements }.transaction(&[], &mut Answers::default()).await
        })
    }

    #[test]
    fn only_a_commit_that_was_answered_is_known() {
        assert_eq!(committed(changed(0)), Attempt::Ok);
        assert_eq!(committed(failed(1213, "40001")), Attempt::Conflict);
        for answer in [failed(1205, "HY000"), failed(1053, "08S01"), failed(1180, "HY000"), Vec::new()] {
            assert!(matches!(committed(answer), Attempt::Unknown(_)));
        }
    }
}
