//! The join workload on PostgreSQL.

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place,
    join::{self, Connector, Ext, JoinAnswer, JoinStore, Operations, Scenario, TableOrder},
    records::Layout,
};
use tokio_postgres::{Client, Error};

use crate::{
    ConnectOptions, Postgres, Value,
    fault::SendState,
    protocol::{self, Statement},
    quoted, records,
    session::{PLANNED_ONCE, Session},
};

/// Quoted names of both tables.
#[derive(Clone)]
struct Tables {
    ext: String,
    usertable: String,
}

impl Tables {
    fn of(place: &Place) -> Self {
        let ext = format!("{}.{}", quoted(&place.namespace), quoted(&place.object("ext")));
        Self { ext, usertable: records::table(place) }
    }

    /// The query in one of the two orders. In both, the first column of a row is the key.
    fn query(&self, order: TableOrder) -> String {
        let Self { ext, usertable } = self;
        let from = order.joined(ext, usertable);
        format!("SELECT * FROM {from} ON usertable.key = ext.key WHERE ext.value = $1")
    }

    async fn load_ext(&self, client: &Client, rows: &[Ext]) -> Result<(), Error> {
        let table = &self.ext;
        let keys: Vec<_> = rows.iter().map(|row| row.key.as_str()).collect();
        let values: Vec<_> = rows.iter().map(|row| i16::from(row.value)).collect();
        let create =
            format!("CREATE TABLE {table} (key text COLLATE \"C\" PRIMARY KEY, value smallint NOT NULL)");
        client.batch_execute(&create).await?;
        let insert = format!("INSERT INTO {table} SELECT * FROM unnest($1::text[], $2::smallint[])");
        client.execute(&insert, &[&keys, &values]).await?;
        client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await
    }
}

impl JoinStore for Postgres {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        ext: &'a [Ext],
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the tables", async move |client| {
            let tables = Tables::of(place);
            records::load(client, &tables.usertable, layout, loaded).await?;
            tables.load_ext(client, ext).await
        }))
    }

    fn explain<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
    ) -> Task<'a, Result<String, StoreError>> {
        Box::pin(self.on_server("explaining the join", async move |client| {
            // prepared as the clients prepare it, since it is their plan that is to be shown
            let query = Tables::of(place).query(order);
            let prepare = format!("{PLANNED_ONCE}; PREPARE asked (smallint) AS {query}");
            client.batch_execute(&prepare).await?;
            let explain = format!("EXPLAIN (ANALYZE, BUFFERS) EXECUTE asked ({value})");
            let lines = client.query(&explain, &[]).await?;
            let lines: Result<Vec<&str>, _> = lines.iter().map(|line| line.try_get(0)).collect();
            Ok(lines?.join("\n"))
        }))
    }

    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("joining for the first time", async move |client| {
            client.batch_execute(PLANNED_ONCE).await?;
            let query = client.prepare(&Tables::of(place).query(order)).await?;
            begin();
            client.query(&query, &[&i16::from(value)]).await.map(|_| ())
        }))
    }

    fn client(&self, place: &Place, value: u8, scenario: Scenario) -> ClientTask {
        let (server, tables) = (self.server.clone(), Tables::of(place));
        join::task(PostgresConnector { server, tables, value: value.into() }, scenario)
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the tables", async move |client| {
            let Tables { ext, usertable } = Tables::of(place);
            client.batch_execute(&format!("DROP TABLE IF EXISTS {ext}, {usertable}")).await
        }))
    }
}

struct PostgresConnector {
    server: ConnectOptions,
    tables: Tables,
    value: i16,
}

struct Connection {
    session: Session,
    ext_first: Statement,
    usertable_first: Statement,
    value: i16,
}

impl Connector for PostgresConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let prepare = async |connection: &mut protocol::Connection| {
            let ext_first = connection.prepare(&self.tables.query(TableOrder::ExtFirst)).await?;
            Ok((ext_first, connection.prepare(&self.tables.query(TableOrder::UsertableFirst)).await?))
        };
        let (session, (ext_first, usertable_first)) = Session::open(&self.server, prepare).await?;
        Ok(Connection { session, ext_first, usertable_first, value: self.value })
    }
}

impl Operations for Connection {
    async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
        let query = match order {
            TableOrder::ExtFirst => self.ext_first,
            TableOrder::UsertableFirst => self.usertable_first,
        };
        match self.session.run(query, [Value::Number(self.value.into())], SendState::Nothing).await {
            Ok(rows) => {
                for row in rows {
                    // a value that is no text cannot be a record's key, and counts as an empty one
                    joined.row(row.get(0).unwrap_or_default());
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
