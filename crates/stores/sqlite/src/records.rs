//! The records workload on SQLite.

use acidtest_model::{Isolation, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, LoadProgress, Place, Served,
    records::{
        self, Action, Answer, Connector, Fields, Layout, Lookup, Operations, RecordVisitor, RecordsStore,
        Request, Requirements, Scenario, key_name, tag_of,
    },
};
use rusqlite::{Connection, OptionalExtension, Row, Statement};

use crate::{
    File, Sqlite, attempt, named, quoted,
    transaction::{DEFERRED, IMMEDIATE, OperationResult, begin, end},
};

/// The name of the table among the trial's objects.
pub(crate) const TABLE: &str = "usertable";

/// Records loaded in one transaction.
const BATCH: u64 = 10_000;

const LOADING: &str = "loading the records";

/// A list of one item for each field, written by `one`; every item follows a comma.
fn columns(fields: u16, one: impl Fn(u16) -> String) -> String {
    (0..fields).fold(String::new(), |columns, field| columns + ", " + &one(field))
}

/// Creates the table and loads the records. The index on the key comes last, so that it is sorted once instead of
/// being written to at random.
pub(crate) async fn lay_in(
    store: &Sqlite,
    place: &Place,
    layout: &Layout,
    loaded: &LoadProgress,
) -> Result<(), StoreError> {
    let table = named(place, TABLE);
    let mut connection = store.told(LOADING, store.file.connect())?;
    let fields = columns(layout.fields, |field| format!("field{field} TEXT NOT NULL"));
    let create = format!("CREATE TABLE {table} (key TEXT NOT NULL, version INTEGER NOT NULL{fields})");
    store.told(LOADING, connection.execute_batch(&create))?;
    let insert = Statements::on(&table, layout.fields).insert_new;
    let mut first = 0;
    while first < layout.records {
        let next = layout.records.min(first + BATCH);
        store.told(LOADING, insert_batch(&mut connection, &insert, layout, first..next))?;
        loaded.add(next - first);
        first = next;
        // lets the caller report progress, or cancel
        tokio::task::yield_now().await;
    }
    let index = quoted(&format!("{}:{}:key", place.namespace, place.object(TABLE)));
    store.told(LOADING, connection.execute_batch(&format!("CREATE UNIQUE INDEX {index} ON {table} (key)")))
}

fn insert_batch(
    connection: &mut Connection,
    insert: &str,
    layout: &Layout,
    numbers: std::ops::Range<u64>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare_cached(insert)?;
        let mut fields = Fields::default();
        for number in numbers {
            layout.fill(number, &mut fields);
            bind(&mut insert, &key_name(number), 0, &fields)?;
            insert.raw_execute()?;
        }
    }
    transaction.commit()
}

impl RecordsStore for Sqlite {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(lay_in(self, place, layout, loaded))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        records::task(SqliteConnector::of(self, place, wanted), scenario)
    }

    fn serve(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(records::serve(SqliteConnector::of(self, place, wanted), wanted.layout))
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_file("reading the final records", |connection| {
                let tags = columns(layout.fields, |field| format!("substr(field{field}, 1, 16)"));
                let sql = format!("SELECT version, key{tags} FROM {}", named(place, TABLE));
                let mut statement = connection.prepare(&sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    let version = version(row);
                    let tag = version.and_then(|_| tag_of(texts(row, 2..2 + usize::from(layout.fields))));
                    let key = row.get_ref(1)?.as_bytes().unwrap_or_default();
                    each(&String::from_utf8_lossy(key), version.unwrap_or_default(), tag);
                }
                Ok(())
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { self.drop_tables("removing the records", place, &[TABLE]) })
    }
}

/// In all of them `?1` is the key, `?2` the version that was read, and `?3` the first field.
#[derive(Clone)]
struct Statements {
    read: String,
    version: String,
    scan: String,
    set: String,
    set_if_unchanged: String,
    raise: String,
    insert: String,
    /// Inserts into a table that has no index yet.
    insert_new: String,
}

impl Statements {
    fn on(table: &str, fields: u16) -> Self {
        let names = columns(fields, |field| format!("field{field}"));
        let values = columns(fields, |field| format!("?{}", field + 3));
        let set = columns(fields, |field| format!("field{field} = ?{}", field + 3));
        let insert_new = format!("INSERT INTO {table} (key, version{names}) VALUES (?1, ?2{values})");
        let set_to_read = format!("UPDATE {table} SET version = ?2 + 1{set} WHERE key = ?1");
        Self {
            read: format!("SELECT version{names} FROM {table} WHERE key = ?1"),
            version: format!("SELECT version FROM {table} WHERE key = ?1"),
            scan: format!("SELECT version{names} FROM {table} WHERE key >= ?1 ORDER BY key LIMIT ?2"),
            set_if_unchanged: format!("{set_to_read} AND version = ?2"),
            set: set_to_read,
            raise: format!("UPDATE {table} SET version = version + 1{set} WHERE key = ?1 RETURNING version"),
            insert: format!("{insert_new} ON CONFLICT (key) DO NOTHING"),
            insert_new,
        }
    }
}

struct SqliteConnector {
    file: File,
    lock: Lock,
    isolation: Option<Isolation>,
    fields: usize,
    sql: Statements,
}

impl SqliteConnector {
    fn of(store: &Sqlite, place: &Place, wanted: &Requirements) -> Self {
        let fields = wanted.layout.fields;
        Self {
            file: store.file.clone(),
            lock: wanted.lock,
            isolation: wanted.isolation,
            fields: fields.into(),
            sql: Statements::on(&named(place, TABLE), fields),
        }
    }
}

struct Client {
    connection: Connection,
    lock: Lock,
    fields: usize,
    sql: Statements,
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
        Ok(Client { connection, lock: self.lock, fields: self.fields, sql: self.sql.clone() })
    }
}

/// Binds the parameters of a write.
fn bind(statement: &mut Statement<'_>, key: &str, version: i64, fields: &Fields) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, key)?;
    statement.raw_bind_parameter(2, version)?;
    for (field, text) in fields.iter().enumerate() {
        statement.raw_bind_parameter(field + 3, text)?;
    }
    Ok(())
}

/// The version in a row's first column; `None` for a value of another type, which SQLite permits in every column.
fn version(row: &Row<'_>) -> Option<u64> {
    row.get::<_, i64>(0).ok()?.try_into().ok()
}

/// The lookup of a row by its version. A row without a version is no record, and marks the answer torn.
fn found(version: Option<u64>, answer: &mut Answer) -> Lookup {
    version.map_or_else(
        || {
            answer.torn();
            Lookup::Torn
        },
        Lookup::Record,
    )
}

/// Columns of text. One of another type counts as empty, and makes the record show as torn.
fn texts<'a>(row: &'a Row<'_>, columns: std::ops::Range<usize>) -> impl Iterator<Item = &'a [u8]> {
    columns.map(|column| row.get_ref(column).ok().and_then(|value| value.as_bytes().ok()).unwrap_or_default())
}

/// Whether any of the operations writes.
fn writes(requests: &[Request]) -> bool {
    requests.iter().any(|request| !matches!(request.action, Action::Read | Action::Scan))
}

impl Client {
    /// Runs one operation, inside a transaction or by itself.
    fn apply(&self, request: &Request, answer: &mut Answer) -> OperationResult {
        match request.action {
            Action::Read => self.read(request, answer).map(Lookup::read),
            Action::Scan => self.scan(request, answer),
            Action::Insert => self.insert(request),
            Action::Update if self.lock == Lock::Native => self.raise(request, answer),
            Action::Update => {
                let read = self.look(request, answer)?;
                self.write(request, read, answer)
            }
            Action::Modify => {
                let read = self.read(request, answer)?;
                self.write(request, read, answer)
            }
        }
    }

    /// Looks up a record's version alone.
    fn look(&self, request: &Request, answer: &mut Answer) -> rusqlite::Result<Lookup> {
        let mut statement = self.connection.prepare_cached(&self.sql.version)?;
        let found = statement.query_row([&request.key], |row| Ok(found(version(row), answer)));
        found.optional().map(|found| found.unwrap_or(Lookup::Nothing))
    }

    fn read(&self, request: &Request, answer: &mut Answer) -> rusqlite::Result<Lookup> {
        let mut statement = self.connection.prepare_cached(&self.sql.read)?;
        let found = statement.query_row([&request.key], |row| Ok(self.give(row, answer)));
        found.optional().map(|found| found.unwrap_or(Lookup::Nothing))
    }

    fn scan(&self, request: &Request, answer: &mut Answer) -> OperationResult {
        let mut statement = self.connection.prepare_cached(&self.sql.scan)?;
        let mut rows = statement.query((&request.key, request.length))?;
        while let Some(row) = rows.next()? {
            self.give(row, answer);
        }
        Ok(Attempt::Ok)
    }

    fn give(&self, row: &Row<'_>, answer: &mut Answer) -> Lookup {
        let version = version(row);
        if let Some(version) = version {
            answer.record(version, texts(row, 1..1 + self.fields));
        }
        found(version, answer)
    }

    fn insert(&self, request: &Request) -> OperationResult {
        let mut statement = self.connection.prepare_cached(&self.sql.insert)?;
        bind(&mut statement, &request.key, 0, &request.fields)?;
        Ok(if statement.raw_execute()? == 0 { Attempt::Refused } else { Attempt::Ok })
    }

    /// Writes the version above the one that was read; does not write where there was no record.
    fn write(&self, request: &Request, read: Lookup, answer: &mut Answer) -> OperationResult {
        let above = match read.above() {
            Ok(above) => above,
            Err(ended) => return Ok(ended),
        };
        let soft = self.lock == Lock::Soft;
        let sql = if soft { &self.sql.set_if_unchanged } else { &self.sql.set };
        let mut statement = self.connection.prepare_cached(sql)?;
        // the version is above 0, as it is one above another, and fits an `i64`
        bind(&mut statement, &request.key, above.cast_signed() - 1, &request.fields)?;
        match statement.raw_execute()? {
            0 if soft => Ok(Attempt::Conflict),
            0 => Ok(Attempt::Refused),
            _ => {
                answer.wrote(above);
                Ok(Attempt::Ok)
            }
        }
    }

    fn raise(&self, request: &Request, answer: &mut Answer) -> OperationResult {
        let mut statement = self.connection.prepare_cached(&self.sql.raise)?;
        bind(&mut statement, &request.key, 0, &request.fields)?;
        let mut rows = statement.raw_query();
        let Some(row) = rows.next()? else { return Ok(Attempt::Refused) };
        let written = version(row);
        // a statement has ended only when it reports that there are no more rows
        while rows.next()?.is_some() {}
        Ok(match written {
            Some(version) => {
                answer.wrote(version);
                Attempt::Ok
            }
            None => Attempt::Unknown(Fault::answered("the version that it wrote is invalid")),
        })
    }

    fn alone(&self, request: &Request, answer: &mut Answer) -> OperationResult {
        match (request.action, self.lock) {
            (Action::Update, Lock::Hard) | (Action::Modify, Lock::Hard | Lock::Native) => {
                begin(&self.connection, IMMEDIATE)?;
                let done = self.apply(request, answer);
                end(&self.connection, done)
            }
            _ => self.apply(request, answer),
        }
    }

    fn together(&self, requests: &[Request], answers: &mut [Answer]) -> OperationResult {
        let locked = matches!(self.lock, Lock::Hard | Lock::Native) && writes(requests);
        begin(&self.connection, if locked { IMMEDIATE } else { DEFERRED })?;
        let mut done = Ok(Attempt::Ok);
        for (request, answer) in requests.iter().zip(answers) {
            done = self.apply(request, answer);
            if !matches!(done, Ok(Attempt::Ok)) {
                break;
            }
        }
        end(&self.connection, done)
    }
}

impl Operations for Client {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.alone(request, answer).unwrap_or_else(|error| attempt(&error))
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        self.together(requests, answers).unwrap_or_else(|error| attempt(&error))
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{NAMESPACE, operations, wait};
    use acidtest_workloads::records::Refresh;

    use super::*;
    use crate::opened;

    fn connector(
        store: &Sqlite,
        place: &Place,
        Requirements { lock, isolation, layout, .. }: Requirements,
    ) -> SqliteConnector {
        let sql = Statements::on(&named(place, TABLE), layout.fields);
        SqliteConnector { file: store.file.clone(), lock, isolation, fields: layout.fields.into(), sql }
    }

    #[test]
    fn what_is_not_there_or_is_there_already_is_refused_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        wait(operations::singles(&store, &Lock::ALL, |place: &Place, wanted| {
            connector(&store, place, wanted)
        }));
    }

    #[test]
    fn a_transaction_sees_what_it_wrote_and_is_done_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let connect = |place: &Place, wanted| connector(&store, place, wanted);
        wait(operations::transactions(&store, &Lock::ALL, connect));
    }

    #[test]
    fn what_is_no_record_is_told_as_torn_and_not_written_over() {
        for version in ["'seven'", "-1", "1.5", "x'00'"] {
            let folder = tempfile::tempdir().unwrap();
            let store = opened(&folder);
            let connect = |place: &Place, wanted| connector(&store, place, wanted);
            let spoil = async |place: &Place, key: &str| {
                let sql = format!("UPDATE {} SET version = {version} WHERE key = ?1", named(place, TABLE));
                let spoiled = store.on_file("spoiling", |connection| connection.execute(&sql, [key]));
                assert_eq!(spoiled.unwrap(), 1);
            };
            wait(operations::garbled(&store, &Lock::ALL, connect, spoil));
        }
    }

    #[test]
    fn a_write_whose_version_cannot_be_read_is_unknown_and_one_above_the_highest_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let layout = Layout { records: 1, fields: 2, field_bytes: 20, scans: false };
        let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
        wait(store.load(&place, &layout, &LoadProgress::default())).unwrap();
        let sql = format!("UPDATE {} SET version = {}", named(&place, TABLE), i64::MAX);
        store.on_file("spoiling", |connection| connection.execute(&sql, [])).unwrap();
        let mut request = Request { action: Action::Update, key: key_name(0), ..Request::default() };
        request.fields.fill(&layout, 1);
        for lock in [Lock::None, Lock::Soft, Lock::Hard, Lock::Native] {
            let wanted = Requirements {
                lock,
                decides: true,
                isolation: None,
                transaction: 1,
                refresh: Refresh::No,
                layout,
            };
            let mut client = wait(connector(&store, &place, wanted).connect()).unwrap();
            let ended = wait(client.single(&request, &mut Answer::default()));
            let fits = match &ended {
                Attempt::Unknown(_) => lock == Lock::Native,
                Attempt::Failed(fault) => lock != Lock::Native && fault.message.contains("no version above"),
                _ => false,
            };
            assert!(fits, "{lock}: {ended:?}");
        }
    }
}
