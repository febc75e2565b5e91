//! The join workload on `MariaDB` and `MySQL`, on every engine.

use std::fmt::Write as _;

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place,
    join::{self, Connector, Ext, JoinAnswer, JoinStore, Operations, Scenario, TableOrder},
    records::Layout,
};
use mysql_async::{Conn, Error, Row, prelude::Queryable};

use crate::{
    ConnectOptions, MariaDb,
    columns::{rows, text},
    engine::Engine,
    load::{self, KEY, primary_key, usertable},
    object,
    protocol::{Connection, Statement},
    session::Session,
};

/// Rows of `ext` inserted by one statement.
const BATCH: usize = 1_000;

/// Quoted names of both tables.
struct Tables {
    ext: String,
    usertable: String,
}

impl Tables {
    fn of(place: &Place) -> Self {
        Self { ext: object(place, "ext"), usertable: usertable(place) }
    }

    /// The query in one of the two orders, selecting by `value`. In both, a row's first column is the key.
    fn query(&self, order: TableOrder, value: &str) -> String {
        let Self { ext, usertable } = self;
        let from = order.joined(ext, usertable);
        format!("SELECT ext.*, usertable.* FROM {from} ON usertable.id = ext.id WHERE ext.value = {value}")
    }
}

impl JoinStore for MariaDb {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        ext: &'a [Ext],
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the tables", async move |conn| {
            load::records(conn, place, layout, self.engine, loaded).await?;
            lay_in(conn, &Tables::of(place).ext, ext, self.engine).await
        }))
    }

    fn explain<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
    ) -> Task<'a, Result<String, StoreError>> {
        let explain = format!("EXPLAIN {}", Tables::of(place).query(order, &value.to_string()));
        Box::pin(self.on_server("explaining the join", async move |conn| {
            let rows: Vec<Row> = conn.query(explain).await?;
            Ok(rows.iter().map(explained).collect::<Vec<_>>().join("\n"))
        }))
    }

    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>> {
        let query = Tables::of(place).query(order, "?");
        Box::pin(self.on_server("joining for the first time", async move |conn| {
            let statement = conn.prep(query).await?;
            begin();
            rows(conn, &statement, (value,)).await.map(drop)
        }))
    }

    fn client(&self, place: &Place, value: u8, scenario: Scenario) -> ClientTask {
        let connector = JoinConnector { server: self.server.clone(), tables: Tables::of(place), value };
        join::task(connector, scenario)
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        let Tables { ext, usertable } = Tables::of(place);
        Box::pin(self.on_server("removing the tables", async move |conn| {
            load::drop_tables(conn, &[ext, usertable]).await
        }))
    }
}

async fn lay_in(conn: &mut Conn, table: &str, ext: &[Ext], engine: Engine) -> Result<(), Error> {
    let primary = primary_key(engine, false);
    let create = format!("CREATE TABLE {table} (id {KEY}{primary}, value TINYINT UNSIGNED NOT NULL)");
    conn.query_drop(format!("{create} ENGINE={}", engine.name())).await?;
    for batch in ext.chunks(BATCH) {
        let mut sql = format!("INSERT INTO {table} VALUES ");
        for (index, Ext { key, value }) in batch.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            // writing to a string cannot fail
            let _ = write!(sql, "{comma}('{key}', {value})");
        }
        conn.query_drop(sql).await?;
    }
    load::analyze(conn, table, engine).await
}

/// A line of a plan: `id=1, select_type=SIMPLE, table=ext, …`, without columns that are NULL; or the column's
/// text alone, on servers whose plan is a single text.
fn explained(row: &Row) -> String {
    let columns = row.columns_ref();
    if columns.len() == 1 {
        return text(row, 0).trim_end().to_owned();
    }
    let named = columns.iter().enumerate().map(|(index, column)| (column.name_str(), text(row, index)));
    let shown = named.filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}={value}"));
    load::list(shown)
}

struct JoinConnector {
    server: ConnectOptions,
    tables: Tables,
    value: u8,
}

struct JoinConnection {
    session: Session,
    ext_first: Statement,
    usertable_first: Statement,
    value: u8,
}

impl Connector for JoinConnector {
    type Connection = JoinConnection;

    async fn connect(&self) -> Result<JoinConnection, String> {
        let prepare = async |connection: &mut Connection| {
            let ext_first = connection.prepare(&self.tables.query(TableOrder::ExtFirst, "?")).await?;
            let usertable_first =
                connection.prepare(&self.tables.query(TableOrder::UsertableFirst, "?")).await?;
            Ok((ext_first, usertable_first))
        };
        let (session, (ext_first, usertable_first)) = Session::open(&self.server, prepare).await?;
        Ok(JoinConnection { session, ext_first, usertable_first, value: self.value })
    }
}

impl Operations for JoinConnection {
    async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
        let statement = match order {
            TableOrder::ExtFirst => self.ext_first,
            TableOrder::UsertableFirst => self.usertable_first,
        };
        match self.session.read(statement, [self.value.into()]).await {
            Ok(rows) => {
                for row in rows.iter() {
                    joined.row(text(&row, 0));
                }
                Attempt::Ok
            }
            Err(trouble) => trouble,
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}
