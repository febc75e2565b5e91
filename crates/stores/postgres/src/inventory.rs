//! The inventory workload on PostgreSQL: one table, one row for each tuple, captured under each lock mode.

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place,
    inventory::{
        self, Capture, Connector, InventoryStore, Item, Reading, Scenario, SqlCapture, SqlConnection,
        SqlSession, Step, Stock, StockLevel, StockRow, Withdrawal,
    },
};
use tokio_postgres::{Client, Error, Row};

use crate::{
    ConnectOptions, Postgres, Value,
    fault::{self, SendState},
    protocol::{self, Connection, Rows, Statement},
    quoted,
    session::{Part, Session, changed_one, may_have_changed, unless_stale},
};

/// Tuples inserted by one statement.
const BATCH: usize = 10_000;

fn table(place: &Place) -> String {
    format!("{}.{}", quoted(&place.namespace), quoted(&place.object("stock")))
}

impl InventoryStore for Postgres {
    fn load<'a>(&'a self, place: &'a Place, _: Lock, stock: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the stock", async move |client| {
            let table = table(place);
            client.batch_execute(&format!("BEGIN; {}", create(&table))).await?;
            for items in stock.items.chunks(BATCH) {
                insert(client, &table, items).await?;
            }
            client.batch_execute("COMMIT").await?;
            // so that the planner knows the table's size, and no client has to mark its rows as committed
            client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await
        }))
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        let connector = PostgresConnector { server: self.server.clone(), lock, table: table(place) };
        inventory::task(connector, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            let sql = format!("SELECT sku, condition, source, warehouse, count FROM {}", table(place));
            let read = async |client: &Client| client.query(&sql, &[]).await;
            let rows = self.on_server("reading the final stock", read).await?;
            Ok(rows.iter().map(|row| held(row).unwrap_or_else(|_| StockRow::foreign())).collect())
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the stock", async move |client| {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {}", table(place))).await
        }))
    }
}

/// A fill factor leaves half of each page free, so that an updated row stays on its page and in its place in the
/// index: usual for a small table that is updated all the time.
fn create(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (sku bigint NOT NULL, condition smallint NOT NULL, source smallint NOT NULL,
           warehouse smallint NOT NULL, price bigint NOT NULL, count integer NOT NULL,
           version bigint NOT NULL DEFAULT 0,
           PRIMARY KEY (sku, condition, source, warehouse)) WITH (fillfactor = 50)"
    )
}

async fn insert(client: &Client, table: &str, items: &[Item]) -> Result<u64, Error> {
    let column = |of: fn(&Item) -> i64| items.iter().map(of).collect::<Vec<_>>();
    let (sku, condition) = (column(|item| item.sku.into()), column(|item| item.condition.into()));
    let (source, warehouse) = (column(|item| item.source.into()), column(|item| item.warehouse.into()));
    let (price, count) = (column(|item| item.price.into()), column(|item| item.initial.into()));
    let sql = format!(
        "INSERT INTO {table} (sku, condition, source, warehouse, price, count)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                              $6::bigint[])"
    );
    client.execute(&sql, &[&sku, &condition, &source, &warehouse, &price, &count]).await
}

fn held(row: &Row) -> Result<StockRow, String> {
    let read = |error: Error| fault::words(&error);
    let sku: i64 = row.try_get(0).map_err(read)?;
    let sku = u32::try_from(sku).map_err(|_| format!("a tuple of sku {sku}"))?;
    let count: i32 = row.try_get(4).map_err(read)?;
    Ok(StockRow { key: (sku, small(row, 1)?, small(row, 2)?, small(row, 3)?), count: count.into() })
}

/// Reads a condition, source or warehouse.
fn small(row: &Row, column: usize) -> Result<u8, String> {
    byte(row.try_get(column).map_err(|error| fault::words(&error))?, column)
}

/// A condition, source or warehouse: kept as a `smallint`, of which only 0 to 255 are valid.
fn byte(value: i16, column: usize) -> Result<u8, String> {
    u8::try_from(value).map_err(|_| format!("a tuple with {value} in column {column}"))
}

struct PostgresConnector {
    server: ConnectOptions,
    lock: Lock,
    table: String,
}

impl Connector for PostgresConnector {
    type Connection = SqlConnection<Session>;

    async fn connect(&self) -> Result<Self::Connection, String> {
        let prepare = async |connection: &mut Connection| prepare(connection, self.lock, &self.table).await;
        let (session, statements) = Session::open(&self.server, prepare).await?;
        Ok(SqlConnection::new(session, statements))
    }
}

async fn prepare(
    connection: &mut Connection,
    lock: Lock,
    table: &str,
) -> Result<(SqlCapture<Statement>, Statement), protocol::Error> {
    let group = "sku = $1 AND condition = $2 AND source = $3";
    let tuple = format!("{group} AND warehouse = $4");
    let read = format!("SELECT warehouse, count, version FROM {table} WHERE {group} ORDER BY warehouse");
    let update = |set: &str| format!("UPDATE {table} SET {set} WHERE {tuple}");
    let capture = match lock {
        Lock::None => SqlCapture::Unprotected {
            read: connection.prepare(&read).await?,
            set: connection.prepare(&update("count = $5::bigint")).await?,
        },
        Lock::Soft => SqlCapture::IfUnchanged {
            read: connection.prepare(&read).await?,
            take: {
                let take = update("count = count - $5::bigint, version = version + 1");
                connection.prepare(&format!("{take} AND version = $6")).await?
            },
        },
        Lock::Hard => SqlCapture::Locked {
            read: connection.prepare(&format!("{read} FOR UPDATE")).await?,
            take: connection.prepare(&update("count = count - $5::bigint")).await?,
        },
        Lock::Native => SqlCapture::InOne { take: connection.prepare(&take_in_one(table, group)).await? },
    };
    let release = match lock {
        Lock::Soft => update("count = count + $5::bigint, version = version + 1"),
        _ => update("count = count + $5::bigint"),
    };
    Ok((capture, connection.prepare(&release).await?))
}

/// A statement that locks the group, decides which withdrawals to take and takes them.
///
/// Under READ COMMITTED a row that another transaction has changed meanwhile is read again once it is locked, so
/// `held` is the group as it is now, not as it was when the statement began. The `UPDATE` then finds the same
/// rows, which nobody else can change until it is done.
fn take_in_one(table: &str, group: &str) -> String {
    format!(
        "WITH held AS MATERIALIZED (
           SELECT warehouse, count FROM {table} WHERE {group} ORDER BY warehouse FOR UPDATE),
         planned AS (
           SELECT warehouse, count, sum(count) OVER () AS total,
                  sum(count) OVER (ORDER BY warehouse) - count AS before
           FROM held WHERE count > 0)
         UPDATE {table} AS stock
         SET count = stock.count - least(planned.count, $4::bigint - planned.before)
         FROM planned
         WHERE {group} AND stock.warehouse = planned.warehouse
           AND planned.total >= $4::bigint AND planned.before < $4::bigint
         RETURNING stock.warehouse, least(planned.count, $4::bigint - planned.before)"
    )
}

impl SqlSession for Session {
    type Statement = Statement;

    async fn read_group(&mut self, read: &Statement, capture: &Capture, seen: &mut Reading) -> Step {
        fill(seen, self.run(*read, group(capture), SendState::Nothing).await?)
    }

    /// Sends BEGIN and the SELECT at once, to save a round trip.
    async fn lock_group(&mut self, read: &Statement, capture: &Capture, seen: &mut Reading) -> Step {
        let answered = self.part(Part::First, |pipeline| pipeline.run(*read, group(capture))).await?;
        answered.begun(false)?;
        let rows = answered.came().get(0).map_err(|error| fault::attempt(error, SendState::Nothing))?;
        fill(seen, rows)
    }

    async fn change(&mut self, change: &Statement, withdrawal: &Withdrawal, value: i64) -> Step {
        changed_one(self.run(*change, with(withdrawal, value), SendState::Commit).await?.count())
    }

    async fn take_if_unchanged(&mut self, take: &Statement, withdrawal: &Withdrawal, seen: &Reading) -> Step {
        unless_stale(self.run(*take, if_unchanged(withdrawal, seen), SendState::Commit).await?.count())
    }

    /// Sends BEGIN and the UPDATEs at once, to save a round trip.
    async fn take_all_if_unchanged(
        &mut self,
        take: &Statement,
        withdrawals: &[Withdrawal],
        seen: &Reading,
    ) -> Step {
        let answered = self.part(Part::First, |pipeline| {
            withdrawals.iter().try_for_each(|withdrawal| pipeline.run(*take, if_unchanged(withdrawal, seen)))
        });
        let answered = answered.await?;
        answered.begun(answered.came().iter().any(may_have_changed))?;
        answered.came().iter().try_for_each(|changed| {
            unless_stale(changed.map_err(|error| fault::attempt(error, SendState::Nothing))?.count())
        })
    }

    /// Sends the UPDATEs and COMMIT at once, to save a round trip.
    async fn take_locked(&mut self, take: &Statement, withdrawals: &[Withdrawal]) -> Step {
        let answered = self.part(Part::Last, |pipeline| {
            withdrawals
                .iter()
                .try_for_each(|withdrawal| pipeline.run(*take, with(withdrawal, withdrawal.count.into())))
        });
        let answered = answered.await?;
        for changed in answered.came().iter() {
            let rows = changed.map_err(|error| fault::attempt(error, answered.sent()))?;
            // the row was read and locked but has vanished, while COMMIT keeps the units that other UPDATEs took
            changed_one(rows.count()).map_err(Attempt::after_a_part)?;
        }
        answered.committed()
    }

    async fn take_in_one(
        &mut self,
        take: &Statement,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
    ) -> Step {
        let [sku, condition, source] = group(capture);
        let values = [sku, condition, source, Value::Number(capture.units.into())];
        for row in self.run(*take, values, SendState::Commit).await? {
            taken.push(withdrawal(capture, &row).map_err(|words| Attempt::Unknown(Fault::lost(words)))?);
        }
        Ok(())
    }

    async fn commit(&mut self) -> Step {
        Session::commit(self).await
    }

    async fn roll_back(&mut self, ended: Attempt) -> Attempt {
        Session::roll_back(self, ended).await
    }

    async fn check(&mut self) -> Result<(), String> {
        Session::check(self).await
    }
}

fn fill(seen: &mut Reading, rows: Rows<'_>) -> Step {
    let filled = seen.fill(rows.into_iter().map(|row| tuple(&row)));
    filled.map_err(|words| Attempt::Failed(Fault::answered(words)))
}

fn tuple(row: &protocol::Row<'_>) -> Result<StockLevel, String> {
    let count: i32 = row.get(1)?;
    Ok(StockLevel { warehouse: byte(row.get(0)?, 0)?, count: count.into(), version: row.get(2)? })
}

fn withdrawal(capture: &Capture, row: &protocol::Row<'_>) -> Result<Withdrawal, String> {
    let count: i64 = row.get(1)?;
    let count = u32::try_from(count).map_err(|_| format!("{count} units were taken"))?;
    Ok(capture.withdrawal(byte(row.get(0)?, 0)?, count))
}

/// What names a group.
fn group(capture: &Capture) -> [Value<'static>; 3] {
    let Capture { sku, condition, source, .. } = *capture;
    [sku.into(), condition.into(), source.into()].map(Value::Number)
}

/// What names a withdrawal's tuple, and a value.
fn with(withdrawal: &Withdrawal, value: i64) -> [Value<'static>; 5] {
    let Withdrawal { sku, condition, source, warehouse, .. } = *withdrawal;
    [sku.into(), condition.into(), source.into(), warehouse.into(), value].map(Value::Number)
}

/// What names a withdrawal's tuple, its units, and the version that the tuple must still have.
fn if_unchanged(withdrawal: &Withdrawal, seen: &Reading) -> [Value<'static>; 6] {
    let [sku, condition, source, warehouse, units] = with(withdrawal, withdrawal.count.into());
    [sku, condition, source, warehouse, units, Value::Number(seen.of(withdrawal).version)]
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{self as testbed, NAMESPACE, Private, wait};
    use acidtest_workloads::Store;

    use super::*;

    #[test]
    fn what_is_no_tuple_is_foreign_to_the_final_stock() {
        let Some(mut private) = Private::start("postgres", Durability::None) else { return };
        let store = private.open(Postgres::open);
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        let spoil = async |place: &Place, item: &Item| {
            let (sku, condition, source, warehouse) = item.key();
            let table = table(place);
            let spoil = format!(
                "UPDATE {table} SET warehouse = 300 WHERE sku = {sku} AND condition = {condition}
                 AND source = {source} AND warehouse = {warehouse}"
            );
            let spoiled = store.on_server("spoiling", async |client| client.execute(&spoil, &[]).await).await;
            assert_eq!(spoiled.unwrap(), 1);
        };
        wait(testbed::inventory::garbled(&store, spoil));
    }
}
