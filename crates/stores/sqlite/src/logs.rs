//! The logs workload: what a gateway has stored in the file.

use acidtest_model::{Address, Durability, EffectiveSettings, StoreError, Task};
use acidtest_workloads::{
    Place,
    logs::{EntryVisitor, LogsStore, Rows, Sink, StoredEntry},
};

use crate::{File, Sqlite};

/// The beginning of the names of the namespace's tables of entries: a gateway gives tables plain names.
fn prefix(namespace: &str) -> String {
    format!("{namespace}_logs_")
}

/// Whether a table of this name was made by the gateway of one of the namespace's trials.
pub(crate) fn is_table(namespace: &str, name: &str) -> bool {
    let trial = name.strip_prefix(&prefix(namespace));
    let number = trial.map(|trial| trial.strip_suffix("_refused").unwrap_or(trial));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The condition that a row is among these, with their prefix as its parameter.
const AMONG: &str = "substr(id, 1, length(?1)) = ?1";

impl LogsStore for Sqlite {
    fn sink(&self, place: &Place) -> Option<Sink> {
        let address = Address::file("sqlite", &self.file.path.to_string_lossy());
        Some(Sink { address, table: self.rows(place).table, users: None })
    }

    fn rows(&self, place: &Place) -> Rows {
        Rows::own(None, format!("{}{}", prefix(&place.namespace), place.trial))
    }

    fn settings(&self, server: &EffectiveSettings) -> EffectiveSettings {
        let because = "the gateway's own connections have journal_mode=WAL, synchronous=FULL".to_owned();
        server.at(Durability::Disk, because)
    }

    fn entries<'a>(
        &'a self,
        rows: &'a Rows,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            // the gateway has the file open, whose journal mode cannot be changed meanwhile
            let as_it_is = File { durability: None, ..self.file.clone() };
            let read = as_it_is.connect().and_then(|connection| {
                let query = format!(
                    "SELECT id, logged_at, level, application, message, attributes FROM {} WHERE {AMONG}",
                    rows.table
                );
                let mut query = connection.prepare(&query)?;
                let mut rows = query.query([&rows.prefix])?;
                while let Some(row) = rows.next()? {
                    let text = |column| row.get::<_, String>(column);
                    let (id, level, application, message) = (text(0)?, text(2)?, text(3)?, text(4)?);
                    let attributes: Option<String> = row.get(5)?;
                    visit(&StoredEntry {
                        id: &id,
                        timestamp: row.get(1)?,
                        level: &level,
                        application: &application,
                        message: &message,
                        attributes: attributes.as_deref(),
                    });
                }
                Ok(())
            });
            self.told("reading the entries", read)
        })
    }

    fn unload<'a>(&'a self, rows: &'a Rows) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let table = &rows.table;
            self.on_file("removing the entries", |connection| {
                if !rows.has_no_others() {
                    let delete = format!("DELETE FROM {table} WHERE {AMONG}");
                    return connection.execute(&delete, [&rows.prefix]).map(|_| ());
                }
                connection.execute_batch(&format!(
                    "DROP TABLE IF EXISTS {table}; DROP TABLE IF EXISTS {table}_refused"
                ))
            })
        })
    }
}
