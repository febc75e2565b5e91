//! The logs workload: what a gateway has stored in `MariaDB` or `MySQL`.

use acidtest_model::{Address, StoreError, Task};
use acidtest_workloads::{
    Place,
    logs::{EntryVisitor, LogsStore, Sink, StoredEntry},
};
use mysql_async::{DriverError, prelude::Queryable};

use crate::{MariaDb, load::drop_tables, object, quoted};

/// The columns of an entry, with its moment in microseconds since 1970.
type Columns = (String, i64, String, String, String, Option<String>);

impl LogsStore for MariaDb {
    fn sink(&self, place: &Place) -> Option<Sink> {
        let address =
            Address { scheme: "mysql".to_owned(), path: place.namespace.clone(), ..self.address.clone() };
        Some(Sink { address, table: place.object("logs"), users: None })
    }

    fn entries<'a>(
        &'a self,
        place: &'a Place,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the entries", async move |conn| {
            let query = format!(
                "SELECT id, timestampdiff(MICROSECOND, '1970-01-01', logged_at), level, application, message, attributes
                 FROM {}",
                object(place, "logs")
            );
            let mut rows = conn.query_iter(query).await?;
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

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        let named = |table: &str| format!("{}.{}", quoted(&place.namespace), quoted(table));
        let table = place.object("logs");
        let tables = [named(&table), named(&format!("{table}_refused"))];
        Box::pin(self.on_server("removing the entries", async move |conn| drop_tables(conn, &tables).await))
    }
}
