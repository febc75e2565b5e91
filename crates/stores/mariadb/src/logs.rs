//! The logs workload: what a gateway has stored in `MariaDB` or `MySQL`.

use acidtest_model::{Address, StoreError, Task};
use acidtest_workloads::{
    Place,
    logs::{EntryVisitor, LogsStore, Rows, Sink, StoredEntry},
};
use mysql_async::{DriverError, prelude::Queryable};

use crate::{MariaDb, load::drop_tables, quoted};

/// The columns of an entry, with its moment in microseconds since 1970.
type Columns = (String, i64, String, String, String, Option<String>);

impl MariaDb {
    /// A table of this name beside that of these rows, or that one.
    fn named(&self, rows: &Rows, suffix: &str) -> String {
        let schema = rows.schema.as_ref().unwrap_or(&self.server.address().path);
        format!("{}.{}", quoted(schema), quoted(&format!("{}{suffix}", rows.table)))
    }
}

/// The condition that a row is among these, with their prefix as its parameter twice.
const AMONG: &str = "left(id, char_length(?)) = ?";

impl LogsStore for MariaDb {
    fn sink(&self, place: &Place) -> Option<Sink> {
        let address = Address {
            scheme: "mysql".to_owned(),
            path: place.namespace.clone(),
            ..self.server.address().clone()
        };
        Some(Sink { address, table: place.object("logs"), users: None })
    }

    fn rows(&self, place: &Place) -> Rows {
        Rows::own(Some(place.namespace.clone()), place.object("logs"))
    }

    fn entries<'a>(
        &'a self,
        rows: &'a Rows,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the entries", async move |conn| {
            let query = format!(
                "SELECT id, timestampdiff(MICROSECOND, '1970-01-01', logged_at), level, application, message, attributes
                 FROM {} WHERE {AMONG}",
                self.named(rows, "")
            );
            let mut rows = conn.exec_iter(query, (&rows.prefix, &rows.prefix)).await?;
            while let Some(row) = rows.next().await? {
                let (id, timestamp, level, application, message, attributes): Columns =
                    mysql_async::from_row_opt(row).map_err(|error| DriverError::FromRow { row: error.0 })?;
                visit(&StoredEntry {
                    id: &id,
                    timestamp,
                    level: &level,
                    application: &application,
                    message: &message,
                    attributes: attributes.as_deref(),
                });
            }
            Ok(())
        }))
    }

    fn unload<'a>(&'a self, rows: &'a Rows) -> Task<'a, Result<(), StoreError>> {
        let tables = [self.named(rows, ""), self.named(rows, "_refused")];
        Box::pin(self.on_server("removing the entries", async move |conn| {
            if rows.has_no_others() {
                return drop_tables(conn, &tables).await;
            }
            // with the usual level, all rows that are looked at would be locked until the end
            conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
            let delete = format!("DELETE FROM {} WHERE {AMONG}", tables[0]);
            conn.exec_drop(delete, (&rows.prefix, &rows.prefix)).await
        }))
    }
}
