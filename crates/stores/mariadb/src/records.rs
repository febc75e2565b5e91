//! The records workload on `MariaDB` and `MySQL`, on every engine.

use acidtest_model::{Isolation, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, LoadProgress, Place,
    records::{
        self, Action, Answer, Connector, Layout, Lookup, Operations, RecordVisitor, RecordsStore, Request,
        Requirements, Scenario,
    },
};
use mysql_async::{Conn, Error, Params, Row, Statement, Value, prelude::Queryable};

use crate::{
    ConnectOptions, MariaDb,
    engine::Engine,
    fault::{self, DUPLICATE, SendState},
    load::{self, bytes, fields, list, usertable},
    object,
    session::{Bracket, OperationResult, Session, number, one, rows, text},
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

/// The statements by which updates and modifies change a record, which depend on the lock mode and the engine.
enum LockStatements {
    /// The client reads the record and computes the new version. With `checked`, the UPDATE only finds the record
    /// if it still has the version that was read.
    Decided { version: Statement, whole: Statement, update: Statement, checked: bool },
    /// The server computes the new version, in one statement or call.
    InOne { update: Statement, modify: Statement },
    /// The engine cannot update rows.
    Never,
}

struct Connection {
    session: Session,
    read: Statement,
    scan: Statement,
    insert: Statement,
    how: LockStatements,
    /// The transaction or table lock around the statements of one update or modify, where the lock mode needs
    /// one.
    held: Option<Bracket>,
    /// The [`SendState`] of a write by itself.
    alone: SendState,
}

impl Connector for RecordsConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let words = |error: Error| fault::words(&error);
        let mut conn = self.server.connect().await.map_err(words)?;
        if let Some(level) = self.wanted.isolation {
            isolate(&mut conn, level).await?;
        }
        self.prepare(conn).await.map_err(words)
    }
}

/// Sets the isolation level of the session's transactions, and returns an error if the server reports another.
async fn isolate(conn: &mut Conn, level: Isolation) -> Result<(), String> {
    let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", level.sql());
    conn.query_drop(set).await.map_err(|error| fault::words(&error))?;
    // the name depends on the version; both mean the same where a server has both
    let back = "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')";
    let back = rows(conn, back, ()).await.map_err(|error| fault::words(&error))?;
    let back = back.first().map(|row| text(row, 1)).unwrap_or_default();
    if back == level.sql().replace(' ', "-") {
        return Ok(());
    }
    Err(format!("the isolation level {} was asked for, and the server gives \"{back}\"", level.sql()))
}

impl RecordsConnector {
    async fn prepare(&self, mut conn: Conn) -> Result<Connection, Error> {
        let Self { table, engine, wanted, .. } = self;
        let (lock, layout) = (wanted.lock, &wanted.layout);
        let select = format!("SELECT version, {} FROM {table}", list(fields(layout)));
        let places = "?, ".repeat(layout.fields.into());
        let insert = format!("INSERT INTO {table} VALUES (?, 0, {})", places.trim_end_matches(", "));
        let read = conn.prep(format!("{select} WHERE id = ?")).await?;
        let scan = conn.prep(format!("{select} WHERE id >= ? ORDER BY id LIMIT ?")).await?;
        let insert = conn.prep(insert).await?;
        let how = if engine.is_updated() { self.how(&mut conn).await? } else { LockStatements::Never };
        let held = (lock == Lock::Hard).then(|| {
            if engine.is_transactional() { Bracket::Transaction } else { Bracket::TableLock(table.clone()) }
        });
        let alone = if engine.is_transactional() { SendState::Write } else { SendState::InPlace };
        Ok(Connection { session: Session { conn }, read, scan, insert, how, held, alone })
    }

    async fn how(&self, conn: &mut Conn) -> Result<LockStatements, Error> {
        let Self { table, procedure, engine, wanted: Requirements { lock, layout, .. }, .. } = self;
        let set = assignments(layout, |_| "?".to_owned());
        if *lock == Lock::Native {
            // LAST_INSERT_ID returns the version in the same answer as the count of rows
            let update =
                format!("UPDATE {table} SET version = LAST_INSERT_ID(version + 1), {set} WHERE id = ?");
            let values = ", ?".repeat(layout.fields.into());
            let modify = format!("CALL {procedure}(?, ?{values})");
            return Ok(LockStatements::InOne {
                update: conn.prep(update).await?,
                modify: conn.prep(modify).await?,
            });
        }
        let locked = if *lock == Lock::Hard && engine.is_transactional() { " FOR UPDATE" } else { "" };
        let checked = *lock == Lock::Soft;
        let check = if checked { " AND version = ?" } else { "" };
        let found = format!("FROM {table} WHERE id = ?{locked}");
        Ok(LockStatements::Decided {
            version: conn.prep(format!("SELECT version {found}")).await?,
            whole: conn.prep(format!("SELECT version, {} {found}", list(fields(layout)))).await?,
            update: conn.prep(format!("UPDATE {table} SET version = ?, {set} WHERE id = ?{check}")).await?,
            checked,
        })
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
        match (request.action, &self.how) {
            (Action::Read, _) => {
                let found = self.session.read(&self.read, (request.key.as_str(),)).await?;
                Ok(take(found.first(), true, answer).read())
            }
            (Action::Scan, _) => {
                let found = self.session.read(&self.scan, (request.key.as_str(), request.length)).await?;
                for row in &found {
                    take(Some(row), true, answer);
                }
                Ok(Attempt::Ok)
            }
            (Action::Insert, _) => insert(&mut self.session, &self.insert, request, sent).await,
            (
                Action::Update | Action::Modify,
                LockStatements::Decided { version, whole, update, checked },
            ) => {
                let read = if request.action == Action::Modify { whole } else { version };
                set_to_computed(&mut self.session, (read, update, *checked), request, answer, sent).await
            }
            (Action::Update, LockStatements::InOne { update, .. }) => {
                update_in_one(&mut self.session, update, request, answer, sent).await
            }
            (Action::Modify, LockStatements::InOne { modify, .. }) => {
                modify_in_one(&mut self.session, modify, request, answer, (sent, alone)).await
            }
            (Action::Update | Action::Modify, LockStatements::Never) => {
                Err(Attempt::Failed(Fault::answered("this engine changes no records")))
            }
        }
    }

    async fn all(&mut self, requests: &[Request], answers: &mut [Answer]) -> OperationResult {
        self.session.begin(&Bracket::Transaction).await?;
        for (request, answer) in requests.iter().zip(answers) {
            match self.step(request, answer, SendState::Nothing, false).await? {
                Attempt::Ok => {}
                other => return Ok(other),
            }
        }
        Ok(Attempt::Ok)
    }

    async fn held(&mut self, bracket: &Bracket, request: &Request, answer: &mut Answer) -> OperationResult {
        self.session.begin(bracket).await?;
        self.step(request, answer, bracket.writes(), false).await
    }
}

impl Operations for Connection {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        let decides = matches!(request.action, Action::Update | Action::Modify);
        let done = match self.held.clone().filter(|_| decides) {
            Some(bracket) => {
                let done = self.held(&bracket, request, answer).await;
                self.session.end(&bracket, done).await
            }
            None => self.step(request, answer, self.alone, true).await,
        };
        done.unwrap_or_else(|trouble| trouble)
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let done = self.all(requests, answers).await;
        let done = self.session.end(&Bracket::Transaction, done).await;
        done.unwrap_or_else(|trouble| trouble)
    }
}

/// Takes the version of a row that was read, and its fields if the `whole` record was asked for.
fn take(row: Option<&Row>, whole: bool, answer: &mut Answer) -> Lookup {
    let Some(row) = row else { return Lookup::Nothing };
    let Ok(version) = number(row, 0) else {
        answer.torn();
        return Lookup::Torn;
    };
    if whole {
        answer.record(version, bytes(row, 1));
    }
    Lookup::Record(version)
}

/// The parameters of a statement: `before`, the request's fields, `after`.
fn values(before: &[Value], request: &Request, after: &[Value]) -> Params {
    let fields = request.fields.iter().map(Value::from);
    Params::Positional(before.iter().cloned().chain(fields).chain(after.iter().cloned()).collect())
}

async fn insert(
    session: &mut Session,
    insert: &Statement,
    request: &Request,
    sent: SendState,
) -> OperationResult {
    let values = values(&[request.key.as_str().into()], request, &[]);
    match session.conn.exec_drop(insert, values).await {
        Ok(()) => Ok(Attempt::Ok),
        Err(Error::Server(answer)) if answer.code == DUPLICATE => Ok(Attempt::Refused),
        Err(error) => Err(fault::attempt(&error, sent)),
    }
}

/// Reads a record's version, or for a modify the whole record, and writes the version above it.
async fn set_to_computed(
    session: &mut Session,
    (read, update, checked): (&Statement, &Statement, bool),
    request: &Request,
    answer: &mut Answer,
    sent: SendState,
) -> OperationResult {
    let key: Value = request.key.as_str().into();
    let found = session.read(read, (&key,)).await?;
    let written = take(found.first(), request.action == Action::Modify, answer).above()?;
    let after = if checked { vec![key, (written - 1).into()] } else { vec![key] };
    match session.run(update, values(&[written.into()], request, &after), sent).await? {
        0 if checked => return Err(Attempt::Conflict),
        found => one(found)?,
    }
    answer.wrote(written);
    Ok(Attempt::Ok)
}

async fn update_in_one(
    session: &mut Session,
    update: &Statement,
    request: &Request,
    answer: &mut Answer,
    sent: SendState,
) -> OperationResult {
    let key = request.key.as_str().into();
    match session.run(update, values(&[], request, &[key]), sent).await? {
        0 => return Ok(Attempt::Refused),
        found => one(found)?,
    }
    match session.conn.last_insert_id() {
        // the server's count is signed, so such a version is a negative number
        Some(written) if i64::try_from(written).is_err() => {
            return Err(fault::lost(sent, "the version that it has written is none".to_owned()));
        }
        Some(written) => answer.wrote(written),
        None => {}
    }
    Ok(Attempt::Ok)
}

async fn modify_in_one(
    session: &mut Session,
    modify: &Statement,
    request: &Request,
    answer: &mut Answer,
    (sent, alone): (SendState, bool),
) -> OperationResult {
    let values = values(&[request.key.as_str().into(), alone.into()], request, &[]);
    match rows(&mut session.conn, modify, values).await {
        Ok(found) => {
            let Some(row) = found.first() else { return Ok(Attempt::Refused) };
            // the call has taken effect whatever its answer holds, and an answer that cannot be read does not
            // prove which version is stored: the outcome is unknown
            let version = number(row, 0).map_err(|words| fault::lost(SendState::Write, words))?;
            answer.record(version, bytes(row, 1));
            answer.wrote(Lookup::Record(version).above().map_err(Attempt::after_a_part)?);
            Ok(Attempt::Ok)
        }
        Err(error) => {
            let ended = fault::attempt(&error, sent);
            // the procedure rolls back by itself, except after errors that end it at once
            if sent == SendState::Write {
                Ok(session.give_up(&Bracket::Transaction, ended).await)
            } else {
                Err(ended)
            }
        }
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
