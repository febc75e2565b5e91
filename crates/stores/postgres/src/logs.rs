//! The logs workload: what a gateway has stored in PostgreSQL.

use std::pin::pin;

use acidtest_model::{Durability, EffectiveSettings, StoreError, Task};
use acidtest_workloads::{
    Place,
    logs::{EntryVisitor, LogsStore, Sink, StoredEntry},
};
use futures_util::TryStreamExt;
use tokio_postgres::Row;

use crate::Postgres;

/// The gateway's table, in the run's schema; names of both are plain.
fn table(place: &Place) -> String {
    format!("{}.{}", place.namespace, place.object("logs"))
}

impl LogsStore for Postgres {
    fn sink(&self, place: &Place) -> Option<Sink> {
        let users = Some(place.namespace.clone());
        Some(Sink { address: self.address.clone(), table: table(place), users })
    }

    fn settings(&self, server: &EffectiveSettings) -> EffectiveSettings {
        let is_synced = server.settings.get("fsync").is_some_and(|fsync| fsync == "on");
        let (durability, fsync) =
            if is_synced { (Durability::Disk, "on") } else { (Durability::Process, "off") };
        let because = format!("fsync={fsync}; the gateway's own connections have synchronous_commit=on");
        EffectiveSettings { durability, because, ..server.clone() }
    }

    fn entries<'a>(
        &'a self,
        place: &'a Place,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the entries", async move |client| {
            let query = format!(
                "SELECT id, (extract(epoch FROM logged_at) * 1000000)::bigint, level, application, message, attributes::text
                 FROM {}",
                table(place)
            );
            let mut rows = pin!(client.query_raw(&query, std::iter::empty::<&str>()).await?);
            while let Some(row) = rows.try_next().await? {
                visit(&entry(&row)?);
            }
            Ok(())
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the entries", async move |client| {
            let table = table(place);
            client.batch_execute(&format!("DROP TABLE IF EXISTS {table}, {table}_refused")).await
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
