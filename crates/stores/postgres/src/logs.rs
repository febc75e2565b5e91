//! The logs workload: what a gateway has stored in PostgreSQL.

use std::pin::pin;

use acidtest_model::{EffectiveSettings, StoreError, Task};
use acidtest_workloads::{
    Place,
    logs::{EntryVisitor, LogsStore, Rows, Sink, StoredEntry},
};
use futures_util::TryStreamExt;
use tokio_postgres::Row;

use crate::{Postgres, durability};

/// The table of these rows; names are plain.
fn table(rows: &Rows) -> String {
    let Rows { schema, table, .. } = rows;
    schema.as_ref().map_or_else(|| table.clone(), |schema| format!("{schema}.{table}"))
}

impl LogsStore for Postgres {
    fn sink(&self, place: &Place) -> Option<Sink> {
        let users = Some(place.namespace.clone());
        Some(Sink { address: self.server.address().clone(), table: table(&self.rows(place)), users })
    }

    fn rows(&self, place: &Place) -> Rows {
        Rows::own(Some(place.namespace.clone()), place.object("logs"))
    }

    fn settings(&self, server: &EffectiveSettings) -> EffectiveSettings {
        let value = |name: &str| server.settings.get(name).map_or("", String::as_str);
        let (durability, because) = durability(value("version"), |name| match name {
            "synchronous_commit" => "on",
            other => value(other),
        });
        let Some(level) = durability.level() else { return server.clone() };
        server.at(level, format!("{because}; the gateway's own connections have synchronous_commit=on"))
    }

    fn entries<'a>(
        &'a self,
        rows: &'a Rows,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the entries", async move |client| {
            let query = format!(
                "SELECT id, (extract(epoch FROM logged_at) * 1000000)::bigint, level, application, message, attributes::text
                 FROM {} WHERE starts_with(id, $1)",
                table(rows)
            );
            let mut rows = pin!(client.query_raw(&query, [&rows.prefix]).await?);
            while let Some(row) = rows.try_next().await? {
                visit(&entry(&row)?);
            }
            Ok(())
        }))
    }

    fn unload<'a>(&'a self, rows: &'a Rows) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the entries", async move |client| {
            let table = table(rows);
            if rows.has_no_others() {
                return client.batch_execute(&format!("DROP TABLE IF EXISTS {table}, {table}_refused")).await;
            }
            let delete = format!("DELETE FROM {table} WHERE starts_with(id, $1)");
            client.execute(&delete, &[&rows.prefix]).await.map(|_| ())
        }))
    }
}

fn entry(row: &Row) -> Result<StoredEntry<'_>, tokio_postgres::Error> {
    Ok(StoredEntry {
        id: row.try_get(0)?,
        timestamp: row.try_get(1)?,
        level: row.try_get(2)?,
        application: row.try_get(3)?,
        message: row.try_get(4)?,
        attributes: row.try_get(5)?,
    })
}
