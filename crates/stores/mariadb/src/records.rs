//! The records workload on `MariaDB` and `MySQL`, on every engine.

use acidtest_model::{Isolation, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, LoadProgress, Place,
    records::{
        self, Action, Answer, Connector, Layout, Lookup, Operations, RecordVisitor, RecordsStore, Request,
        Requirements, Scenario,
    },
};
use mysql_async::prelude::Queryable;

use crate::{
    ConnectOptions, MariaDb,
    columns::{number, text},
    engine::Engine,
    fault::{self, DUPLICATE, SendState},
    load::{self, fields, list, usertable},
    object,
    protocol::{self, Error, Row, Statement, Value},
    session::{OperationResult, Session, UnitOfWork, one},
};

impl RecordsStore for MariaDb {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the records", async move |conn| {
            load::records(conn, place, layout, self.engine, loaded).await?;
            if self.engine.is_updated() {
                conn.query_drop(procedure(place, layout, self.engine)).await?;
            }
            Ok(())
        }))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = RecordsConnector {
            server: self.server.clone(),
            engine: self.engine,
            wanted: *wanted,
            table: usertable(place),
            procedure: object(place, PROCEDURE),
        };
        records::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(load::state(self, place, layout, each))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the records", async move |conn| {
            conn.query_drop(format!("DROP PROCEDURE IF EXISTS {}", object(place, PROCEDURE))).await?;
            load::drop_tables(conn, &[usertable(place)]).await
        }))
    }
}

/// The procedure that modifies a record under the native lock.
const PROCEDURE: &str = "modify";

/// The assignments of an UPDATE: `field0 = …, field1 = …`.
fn assignments(layout: &Layout, value: impl Fn(&str) -> String) -> String {
    list(fields(layout).map(|field| format!("{field} = {}", value(&field))))
}

/// A procedure that reads and updates a record in one call, and answers the record as it was, if it is there. Its
/// parameter `alone` says that the call is a transaction by itself.
fn procedure(place: &Place, layout: &Layout, engine: Engine) -> String {
    let (name, table) = (object(place, PROCEDURE), usertable(place));
    let values = list(
        fields(layout)
            .map(|field| format!("IN new_{field} MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin")),
    );
    let body = if engine.is_transactional() { locking(&table, layout) } else { noting(&table, layout) };
    format!(
        "CREATE PROCEDURE {name} (IN wanted VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin, IN alone BOOL,
           {values})
         MODIFIES SQL DATA SQL SECURITY INVOKER
         BEGIN {body} END"
    )
}

/// The procedure's body on engines with transactions: it locks the row as it reads it.
fn locking(table: &str, layout: &Layout) -> String {
    let (columns, set) = (list(fields(layout)), assignments(layout, |field| format!("new_{field}")));
    format!(
        "DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN IF alone THEN ROLLBACK; END IF; RESIGNAL; END;
         IF alone THEN START TRANSACTION; END IF;
         SELECT version, {columns} FROM {table} WHERE id = wanted FOR UPDATE;
         UPDATE {table} SET version = version + 1, {set} WHERE id = wanted;
         IF alone THEN COMMIT; END IF;"
    )
}

/// The procedure's body on engines without locks on rows, where only a single statement is atomic: the UPDATE
/// notes the values that it overwrites in the session's variables. Each of its conditions is always true, and is
/// there only to note a value; none may be one that an optimizer knows to be true.
fn noting(table: &str, layout: &Layout) -> String {
    let set = assignments(layout, |field| format!("new_{field}"));
    let noted = fields(layout).map(|field| format!(" AND LENGTH(@was_{field} := {field}) >= 0"));
    let noted: String = noted.collect();
    let columns = list(fields(layout).map(|field| format!("@was_{field}")));
    format!(
        "UPDATE {table} SET version = version + 1, {set}
           WHERE id = wanted AND LENGTH(@was_version := version) >= 0{noted};
         IF ROW_COUNT() > 0 THEN SELECT @was_version, {columns}; END IF;"
    )
}

struct RecordsConnector {
    server: ConnectOptions,
    engine: Engine,
    wanted: Requirements,
    table: String,
    procedure: String,
}

/// The statements of a client that computes new versions. If `checked`, the UPDATE only finds the record if it still has the
/// version that was read.
struct Decided {
    version: Statement,
    whole: Statement,
    update: Statement,
    checked: bool,
}

/// The statements by which updates and modifies change a record, which depend on the lock mode and the engine.
enum LockStatements {
    /// The client reads the record and computes the new version.
    Decided(Decided),
    /// The server computes the new version, in one statement or call.
    InOne { update: Statement, modify: Statement },
    /// The engine cannot update rows.
    Never,
}

struct Statements {
    read: Statement,
    scan: Statement,
    insert: Statement,
    how: LockStatements,
}

struct Connection {
    session: Session,
    statements: Statements,
    /// The transaction or table lock around the statements of one update or modify, where the lock mode needs
    /// one.
    held: Option<UnitOfWork>,
    /// The [`SendState`] of a write by itself.
    alone: SendState,
}

impl Connector for RecordsConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let Self { table, engine, wanted, .. } = self;
        let prepare = async |connection: &mut protocol::Connection| {
            isolate(connection, wanted.isolation).await?;
            self.prepare(connection).await
        };
        let (mut session, statements) = Session::open(&self.server, prepare).await?;
        look_at_isolation(&mut session, wanted.isolation).await?;
        let held = (wanted.lock == Lock::Hard).then(|| {
            if engine.is_transactional() { UnitOfWork::Transaction } else { UnitOfWork::on_table(table) }
        });
        let alone = if engine.is_transactional() { SendState::Write } else { SendState::InPlace };
        Ok(Connection { session, statements, held, alone })
    }
}

/// Sets the isolation level of the session's transactions, if one is asked for.
pub(crate) async fn isolate(
    connection: &mut protocol::Connection,
    wanted: Option<Isolation>,
) -> Result<(), Error> {
    if let Some(level) = wanted {
        let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", level.sql());
        connection.query(&set).await?;
    }
    Ok(())
}

/// Returns an error if the server reports another isolation level of the session's transactions than was asked for.
pub(crate) async fn look_at_isolation(
    session: &mut Session,
    wanted: Option<Isolation>,
) -> Result<(), String> {
    let Some(level) = wanted else { return Ok(()) };
    // the name depends on the version; both mean the same where a server has both
    let back = "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')";
    let rows = session.connection().query(back).await.map_err(|error| error.to_string())?;
    let row = rows.first();
    let back = row.as_ref().map_or("", |row| text(row, 1));
    if back == level.sql().replace(' ', "-") {
        return Ok(());
    }
    Err(format!("the isolation level {} was requested, but the server reports \"{back}\"", level.sql()))
}

impl RecordsConnector {
    async fn prepare(&self, conn: &mut protocol::Connection) -> Result<Statements, Error> {
        let Self { table, engine, wanted, .. } = self;
        let layout = &wanted.layout;
        let select = format!("SELECT version, {} FROM {table}", list(fields(layout)));
        let places = "?, ".repeat(layout.fields.into());
        let insert = format!("INSERT INTO {table} VALUES (?, 0, {})", places.trim_end_matches(", "));
        Ok(Statements {
            read: conn.prepare(&format!("{select} WHERE id = ?")).await?,
            scan: conn.prepare(&format!("{select} WHERE id >= ? ORDER BY id LIMIT ?")).await?,
            insert: conn.prepare(&insert).await?,
            how: if engine.is_updated() { self.how(conn).await? } else { LockStatements::Never },
        })
    }

    async fn how(&self, conn: &mut protocol::Connection) -> Result<LockStatements, Error> {
        let Self { table, procedure, engine, wanted: Requirements { lock, layout, .. }, .. } = self;
        let set = assignments(layout, |_| "?".to_owned());
        if *lock == Lock::Native {
            // LAST_INSERT_ID returns the version in the same answer as the count of rows
            let update =
                format!("UPDATE {table} SET version = LAST_INSERT_ID(version + 1), {set} WHERE id = ?");
            let values = ", ?".repeat(layout.fields.into());
            let modify = format!("CALL {procedure}(?, ?{values})");
            return Ok(LockStatements::InOne {
                update: conn.prepare(&update).await?,
                modify: conn.prepare(&modify).await?,
            });
        }
        let locked = if *lock == Lock::Hard && engine.is_transactional() { " FOR UPDATE" } else { "" };
        let checked = *lock == Lock::Soft;
        let check = if checked { " AND version = ?" } else { "" };
        let found = format!("FROM {table} WHERE id = ?{locked}");
        Ok(LockStatements::Decided(Decided {
            version: conn.prepare(&format!("SELECT version {found}")).await?,
            whole: conn.prepare(&format!("SELECT version, {} {found}", list(fields(layout)))).await?,
            update: conn
                .prepare(&format!("UPDATE {table} SET version = ?, {set} WHERE id = ?{check}"))
                .await?,
            checked,
        }))
    }
}

impl Connection {
    /// Runs one operation. `sent` is the [`SendState`] of a write in it; `alone` says whether the operation is a
    /// transaction by itself.
    async fn step(
        &mut self,
        request: &Request,
        answer: &mut Answer,
        sent: SendState,
        alone: bool,
    ) -> OperationResult {
        let Self { session, statements, .. } = self;
        match (request.action, &statements.how) {
            (Action::Read, _) => {
                let found = session.read(statements.read, [request.key.as_str().into()]).await?;
                Ok(take(found.first().as_ref(), true, answer).read())
            }
            (Action::Scan, _) => {
                let values = [request.key.as_str().into(), request.length.into()];
                for row in session.read(statements.scan, values).await?.iter() {
                    take(Some(&row), true, answer);
                }
                Ok(Attempt::Ok)
            }
            (Action::Insert, _) => insert(session, statements.insert, request, sent).await,
            (Action::Update | Action::Modify, LockStatements::Decided(decided)) => {
                let written = decided.read(session, request, answer).await?;
                decided.write(session, request, written, answer, sent).await
            }
            (Action::Update, LockStatements::InOne { update, .. }) => {
                update_in_one(session, *update, request, answer, sent).await
            }
            (Action::Modify, LockStatements::InOne { modify, .. }) => {
                modify_in_one(session, *modify, request, answer, (sent, alone)).await
            }
            (Action::Update | Action::Modify, LockStatements::Never) => {
                Err(Attempt::Failed(Fault::answered("this engine changes no records")))
            }
        }
    }

    async fn all(&mut self, requests: &[Request], answers: &mut [Answer]) -> OperationResult {
        self.session.begin(&UnitOfWork::Transaction);
        for (request, answer) in requests.iter().zip(answers) {
            match self.step(request, answer, SendState::Nothing, false).await? {
                Attempt::Ok => {}
                other => return Ok(other),
            }
        }
        Ok(Attempt::Ok)
    }
}

impl Operations for Connection {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        let done = match (&self.held, &self.statements.how, request.action) {
            (Some(bracket), LockStatements::Decided(decided), Action::Update | Action::Modify) => {
                decided.held(&mut self.session, bracket, request, answer).await
            }
            _ => self.step(request, answer, self.alone, true).await,
        };
        done.unwrap_or_else(|trouble| trouble)
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let done = self.all(requests, answers).await;
        let done = self.session.end(&UnitOfWork::Transaction, done).await;
        done.unwrap_or_else(|trouble| trouble)
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

/// Takes the version of a row that was read, and its fields if the `whole` record was asked for.
fn take(row: Option<&Row<'_>>, whole: bool, answer: &mut Answer) -> Lookup {
    let Some(row) = row else { return Lookup::Nothing };
    let Ok(version) = number(row, 0) else {
        answer.torn();
        return Lookup::Torn;
    };
    if whole {
        answer.record(version, row.bytes_from(1));
    }
    Lookup::Record(version)
}

/// The values of a statement's parameters: `before`, the request's fields, `after`.
fn values<'v>(
    before: impl IntoIterator<Item = Value<'v>>,
    request: &'v Request,
    after: impl IntoIterator<Item = Value<'v>>,
) -> impl Iterator<Item = Value<'v>> {
    before.into_iter().chain(request.fields.iter().map(Value::from)).chain(after)
}

async fn insert(
    session: &mut Session,
    insert: Statement,
    request: &Request,
    sent: SendState,
) -> OperationResult {
    let values = values([request.key.as_str().into()], request, []);
    let inserted = session.send(
        |pipeline| pipeline.run(insert, values),
        |error| match error.answer() {
            Some(answer) if answer.code == DUPLICATE => Attempt::Refused,
            _ => fault::attempt(error, sent),
        },
    );
    inserted.await.map(|_| Attempt::Ok)
}

impl Decided {
    /// Reads a record's version, or for a modify the whole record. Returns the version above it.
    async fn read(
        &self,
        session: &mut Session,
        request: &Request,
        answer: &mut Answer,
    ) -> Result<u64, Attempt> {
        let is_whole = request.action == Action::Modify;
        let read = if is_whole { self.whole } else { self.version };
        let found = session.read(read, [request.key.as_str().into()]).await?;
        take(found.first().as_ref(), is_whole, answer).above()
    }

    /// The values by which a record gets this version.
    fn values<'v>(&self, request: &'v Request, written: u64) -> impl Iterator<Item = Value<'v>> + use<'v> {
        let unchanged = self.checked.then(|| (written - 1).into());
        values([written.into()], request, [request.key.as_str().into()].into_iter().chain(unchanged))
    }

    async fn write(
        &self,
        session: &mut Session,
        request: &Request,
        written: u64,
        answer: &mut Answer,
        sent: SendState,
    ) -> OperationResult {
        match session.run(self.update, self.values(request, written), sent).await?.count() {
            0 if self.checked => return Err(Attempt::Conflict),
            found => one(found)?,
        }
        answer.wrote(written);
        Ok(Attempt::Ok)
    }

    /// Locks a record as it is read, and writes it: two requests.
    async fn held(
        &self,
        session: &mut Session,
        bracket: &UnitOfWork,
        request: &Request,
        answer: &mut Answer,
    ) -> OperationResult {
        session.begin(bracket);
        let written = match self.read(session, request, answer).await {
            Ok(written) => written,
            Err(trouble) => return Err(session.give_up(bracket, trouble).await),
        };
        session.write_and_keep(bracket, self.update, self.values(request, written)).await?;
        answer.wrote(written);
        Ok(Attempt::Ok)
    }
}

async fn update_in_one(
    session: &mut Session,
    update: Statement,
    request: &Request,
    answer: &mut Answer,
    sent: SendState,
) -> OperationResult {
    let updated = session.run(update, values([], request, [request.key.as_str().into()]), sent).await?;
    match updated.count() {
        0 => return Ok(Attempt::Refused),
        found => one(found)?,
    }
    match updated.last_insert_id() {
        // the server's count is signed, so such a version is a negative number
        Some(written) if i64::try_from(written).is_err() => {
            return Err(fault::lost(sent, "the version that it wrote is invalid".to_owned()));
        }
        Some(written) => answer.wrote(written),
        None => {}
    }
    Ok(Attempt::Ok)
}

async fn modify_in_one(
    session: &mut Session,
    modify: Statement,
    request: &Request,
    answer: &mut Answer,
    (sent, alone): (SendState, bool),
) -> OperationResult {
    let before = [request.key.as_str().into(), u8::from(alone).into()];
    match session.run(modify, values(before, request, []), sent).await {
        Ok(found) => {
            let Some(row) = found.first() else { return Ok(Attempt::Refused) };
            // the call has taken effect whatever its answer holds, and an answer that cannot be read does not
            // prove which version is stored: the outcome is unknown
            let version = number(&row, 0).map_err(|words| fault::lost(SendState::Write, words))?;
            answer.record(version, row.bytes_from(1));
            answer.wrote(Lookup::Record(version).above().map_err(Attempt::after_a_part)?);
            Ok(Attempt::Ok)
        }
        // the procedure rolls back by itself, except after errors that end it at once
        Err(ended) if sent == SendState::Write => Ok(session.give_up(&UnitOfWork::Transaction, ended).await),
        Err(ended) => Err(ended),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{NAMESPACE, Private, operations, wait};
    use acidtest_workloads::Store;

    use super::*;
    use crate::Variant;

    #[test]
    fn single_requests_find_change_and_refuse_and_tell_what_is_no_record() {
        let Some(mut private) = Private::start("mariadb", Durability::None) else { return };
        for variant in [Variant::MARIADB, Variant::MARIADB_MYISAM] {
            let store = private.open(async |address| variant.open(address).await);
            wait(store.create(NAMESPACE, "run 1")).unwrap();
            let connect = |place: &Place, wanted: Requirements| RecordsConnector {
                server: store.server.clone(),
                engine: store.engine,
                wanted,
                table: usertable(place),
                procedure: object(place, PROCEDURE),
            };
            let locks: Vec<Lock> =
                Lock::ALL.into_iter().filter(|lock| variant.kind.lock(*lock).is_yes()).collect();
            wait(operations::singles(&store, &locks, connect));
            if store.engine.is_transactional() {
                wait(operations::transactions(&store, &locks, connect));
            }
            let spoil = async |place: &Place, key: &str| {
                let spoil = format!("UPDATE {} SET version = -5 WHERE id = '{key}'", usertable(place));
                store.on_server("spoiling", async |conn| conn.query_drop(spoil).await).await.unwrap();
            };
            wait(operations::garbled(&store, &locks, connect, spoil));
            wait(store.remove(NAMESPACE)).unwrap();
        }
    }
}
