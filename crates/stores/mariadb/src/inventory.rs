//! The inventory workload on `MariaDB` and `MySQL`: one table, one row for each tuple, captured under each lock
//! mode.

use std::fmt::Write as _;

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place,
    inventory::{
        self, Capture, Connector, InventoryStore, Item, Reading, Scenario, SqlCapture, SqlConnection,
        SqlSession, Step, Stock, StockLevel, StockRow, Withdrawal,
    },
};
use mysql_async::{Conn, Row, prelude::Queryable};

use crate::{
    ConnectOptions, MariaDb,
    columns::{Columns, number, rows},
    fault::SendState,
    object,
    protocol::{self, Connection, Error, Statement, Value},
    session::{Session, UnitOfWork, one},
};

const TRANSACTION: UnitOfWork = UnitOfWork::Transaction;

/// Tuples inserted by one statement.
const BATCH: usize = 1_000;

impl InventoryStore for MariaDb {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        lock: Lock,
        stock: &'a Stock,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the stock", async move |conn| {
            let table = object(place, "stock");
            conn.query_drop(create(&table)).await?;
            conn.query_drop("START TRANSACTION").await?;
            for items in stock.items.chunks(BATCH) {
                conn.query_drop(insert(&table, items)).await?;
            }
            conn.query_drop("COMMIT").await?;
            conn.query_drop(format!("ANALYZE TABLE {table}")).await?;
            match lock {
                Lock::Native => conn.query_drop(procedure(&object(place, "capture"), &table)).await,
                _ => Ok(()),
            }
        }))
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        let (table, procedure) = (object(place, "stock"), object(place, "capture"));
        let connector = MariaDbConnector { server: self.server.clone(), lock, table, procedure };
        inventory::task(connector, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            let table = object(place, "stock");
            let sql = format!("SELECT sku, `condition`, source, warehouse, `count` FROM {table}");
            let read = async |conn: &mut Conn| rows(conn, sql, ()).await;
            let rows = self.on_server("reading the final stock", read).await?;
            Ok(rows.iter().map(|row| held(row).unwrap_or_else(|_| StockRow::foreign())).collect())
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the stock", async move |conn| {
            let procedure = object(place, "capture");
            conn.query_drop(format!("DROP PROCEDURE IF EXISTS {procedure}")).await?;
            conn.query_drop(format!("DROP TABLE IF EXISTS {}", object(place, "stock"))).await
        }))
    }
}

fn create(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (sku BIGINT NOT NULL, `condition` TINYINT UNSIGNED NOT NULL,
           source TINYINT UNSIGNED NOT NULL, warehouse TINYINT UNSIGNED NOT NULL, price BIGINT NOT NULL,
           `count` BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0,
           PRIMARY KEY (sku, `condition`, source, warehouse)) ENGINE=InnoDB"
    )
}

fn insert(table: &str, items: &[Item]) -> String {
    let mut sql =
        format!("INSERT INTO {table} (sku, `condition`, source, warehouse, price, `count`) VALUES ");
    for (index, item) in items.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let Item { sku, condition, source, warehouse, price, initial } = item;
        // writing to a string cannot fail
        let _ = write!(sql, "{comma}({sku}, {condition}, {source}, {warehouse}, {price}, {initial})");
    }
    sql
}

/// A procedure that locks the group, decides which withdrawals to take and takes them, all in one call. It answers one
/// result for each withdrawal taken, and none where there is too little stock; then how the call ended, which decides:
/// a withdrawal is taken only if the call ended well.
fn procedure(name: &str, table: &str) -> String {
    let group = "sku = wanted_sku AND `condition` = wanted_condition AND source = wanted_source";
    format!(
        "CREATE PROCEDURE {name} (IN wanted_sku BIGINT, IN wanted_condition SMALLINT,
           IN wanted_source SMALLINT, IN wanted BIGINT)
         MODIFIES SQL DATA SQL SECURITY INVOKER
         BEGIN
           DECLARE place INT DEFAULT -1;
           DECLARE held BIGINT;
           DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
           START TRANSACTION;
           SELECT SUM(`count`) INTO held FROM {table} WHERE {group} AND `count` > 0 FOR UPDATE;
           IF held >= wanted THEN
             WHILE wanted > 0 DO
               SELECT warehouse, LEAST(`count`, wanted) INTO place, held FROM {table}
                 WHERE {group} AND warehouse > place AND `count` > 0 ORDER BY warehouse LIMIT 1 FOR UPDATE;
               UPDATE {table} SET `count` = `count` - held WHERE {group} AND warehouse = place;
               SET wanted = wanted - held;
               SELECT place, held;
             END WHILE;
           END IF;
           COMMIT;
         END"
    )
}

fn held(row: &Row) -> Result<StockRow, String> {
    let sku: i64 = number(row, 0)?;
    let sku = u32::try_from(sku).map_err(|_| format!("a tuple of sku {sku}"))?;
    Ok(StockRow { key: (sku, small(row, 1)?, small(row, 2)?, small(row, 3)?), count: number(row, 4)? })
}

/// Reads a condition, source or warehouse: a number from 0 to 255.
fn small(row: &impl Columns, column: usize) -> Result<u8, String> {
    let value: i64 = number(row, column)?;
    u8::try_from(value).map_err(|_| format!("a tuple with {value} in column {column}"))
}

struct MariaDbConnector {
    server: ConnectOptions,
    lock: Lock,
    table: String,
    procedure: String,
}

impl Connector for MariaDbConnector {
    type Connection = SqlConnection<Session>;

    async fn connect(&self) -> Result<Self::Connection, String> {
        let prepare = async |connection: &mut Connection| self.prepare(connection).await;
        let (session, statements) = Session::open(&self.server, prepare).await?;
        Ok(SqlConnection::new(session, statements))
    }
}

impl MariaDbConnector {
    async fn prepare(&self, conn: &mut Connection) -> Result<(SqlCapture<Statement>, Statement), Error> {
        let Self { table, procedure, .. } = self;
        let group = "sku = ? AND `condition` = ? AND source = ?";
        let read =
            format!("SELECT warehouse, `count`, version FROM {table} WHERE {group} ORDER BY warehouse");
        let update = |set: &str| format!("UPDATE {table} SET {set} WHERE {group} AND warehouse = ?");
        let capture = match self.lock {
            Lock::None => SqlCapture::Unprotected {
                read: conn.prepare(&read).await?,
                set: conn.prepare(&update("`count` = ?")).await?,
            },
            Lock::Soft => SqlCapture::IfUnchanged {
                read: conn.prepare(&read).await?,
                take: {
                    let take = update("`count` = `count` - ?, version = version + 1");
                    conn.prepare(&format!("{take} AND version = ?")).await?
                },
            },
            Lock::Hard => SqlCapture::Locked {
                read: conn.prepare(&format!("{read} FOR UPDATE")).await?,
                take: conn.prepare(&update("`count` = `count` - ?")).await?,
            },
            Lock::Native => {
                SqlCapture::InOne { take: conn.prepare(&format!("CALL {procedure}(?, ?, ?, ?)")).await? }
            }
        };
        let release = match self.lock {
            Lock::Soft => update("`count` = `count` + ?, version = version + 1"),
            _ => update("`count` = `count` + ?"),
        };
        Ok((capture, conn.prepare(&release).await?))
    }
}

impl SqlSession for Session {
    type Statement = Statement;

    async fn read_group(&mut self, read: &Statement, capture: &Capture, seen: &mut Reading) -> Step {
        let Capture { sku, condition, source, .. } = *capture;
        let rows = self.read(*read, [sku.into(), condition.into(), source.into()]).await?;
        let filled = seen.fill(rows.iter().map(|row| tuple(&row)));
        filled.map_err(|words| Attempt::Failed(Fault::answered(words)))
    }

    async fn lock_group(&mut self, read: &Statement, capture: &Capture, seen: &mut Reading) -> Step {
        self.begin(&TRANSACTION);
        self.read_group(read, capture, seen).await
    }

    async fn change(&mut self, change: &Statement, withdrawal: &Withdrawal, value: i64) -> Step {
        self.write(*change, with_key(value, withdrawal), SendState::Write).await
    }

    async fn take_if_unchanged(&mut self, take: &Statement, withdrawal: &Withdrawal, seen: &Reading) -> Step {
        write_if(self, take, withdrawal, seen, SendState::Write).await
    }

    async fn take_all_if_unchanged(
        &mut self,
        take: &Statement,
        withdrawals: &[Withdrawal],
        seen: &Reading,
    ) -> Step {
        self.begin(&TRANSACTION);
        for withdrawal in withdrawals {
            write_if(self, take, withdrawal, seen, SendState::Nothing).await?;
        }
        Ok(())
    }

    async fn take_locked(&mut self, take: &Statement, withdrawals: &[Withdrawal]) -> Step {
        let units = |withdrawal: &Withdrawal| with_key(withdrawal.count.into(), withdrawal);
        if let [only] = withdrawals {
            return self.write_and_keep(&TRANSACTION, *take, units(only)).await;
        }
        for withdrawal in withdrawals {
            if let Err(ended) = self.write(*take, units(withdrawal), SendState::Nothing).await {
                return Err(self.roll_back(ended).await);
            }
        }
        self.commit().await
    }

    async fn take_in_one(
        &mut self,
        call: &Statement,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
    ) -> Step {
        let Capture { sku, condition, source, units } = *capture;
        let values = [sku.into(), condition.into(), source.into(), units.into()];
        match self.run(*call, values, SendState::Write).await {
            Ok(withdrawals) => withdrawals.iter().try_for_each(|row| {
                let read = withdrawal(capture, &row);
                taken.push(read.map_err(|words| Attempt::Unknown(Fault::lost(words)))?);
                Ok(())
            }),
            // the procedure rolls back by itself, except after errors that end it at once
            Err(ended) => Err(self.roll_back(ended).await),
        }
    }

    async fn commit(&mut self) -> Step {
        self.keep(&TRANSACTION).await
    }

    async fn roll_back(&mut self, ended: Attempt) -> Attempt {
        self.give_up(&TRANSACTION, ended).await
    }

    async fn check(&mut self) -> Result<(), String> {
        Session::check(self).await
    }
}

/// Runs a statement that takes a withdrawal's units if its tuple still has the version that was read.
async fn write_if(
    session: &mut Session,
    take: &Statement,
    withdrawal: &Withdrawal,
    seen: &Reading,
    sent: SendState,
) -> Step {
    let version = seen.of(withdrawal).version.into();
    let values = with_key(withdrawal.count.into(), withdrawal).into_iter().chain([version]);
    match session.run(*take, values, sent).await?.count() {
        0 => Err(Attempt::Conflict),
        found => one(found),
    }
}

fn tuple(row: &protocol::Row<'_>) -> Result<StockLevel, String> {
    Ok(StockLevel { warehouse: small(row, 0)?, count: number(row, 1)?, version: number(row, 2)? })
}

fn withdrawal(capture: &Capture, row: &protocol::Row<'_>) -> Result<Withdrawal, String> {
    let count: i64 = number(row, 1)?;
    let count = u32::try_from(count).map_err(|_| format!("{count} units were taken"))?;
    Ok(capture.withdrawal(small(row, 0)?, count))
}

/// A value with the key of a withdrawal's tuple, in the order of the statements' placeholders.
fn with_key(value: i64, withdrawal: &Withdrawal) -> [Value<'static>; 5] {
    let Withdrawal { sku, condition, source, warehouse, .. } = *withdrawal;
    [value.into(), sku.into(), condition.into(), source.into(), warehouse.into()]
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{self as testbed, NAMESPACE, Private, wait};
    use acidtest_workloads::Store;

    use super::*;
    use crate::Variant;

    #[test]
    fn what_is_no_tuple_is_foreign_to_the_final_stock() {
        let Some(mut private) = Private::start("mariadb", Durability::None) else { return };
        let store = private.open(async |address| Variant::MARIADB.open(address).await);
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        let spoil = async |place: &Place, item: &Item| {
            let (sku, condition, source, warehouse) = item.key();
            let spoil = format!(
                "UPDATE {} SET sku = -1 WHERE sku = {sku} AND `condition` = {condition} AND source = {source}
                 AND warehouse = {warehouse}",
                object(place, "stock")
            );
            store.on_server("spoiling", async |conn| conn.query_drop(spoil).await).await.unwrap();
        };
        wait(testbed::inventory::garbled(&store, spoil));
    }
}
