//! The inventory on MariaDB.

use std::fmt::Write as _;

use acidtest_model::{Address, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place,
    inventory::{
        self, Capture, Connector, Held, InventoryStore, Item, Line, Operations, Reading, Release, Scenario,
        Seen, Stock,
    },
};
use mysql_async::{Conn, Error, Row, Statement, prelude::Queryable};

use crate::{
    MariaDb, connect,
    fault::{self, Sent},
    object,
    session::{Bracket, Done, Session, number, one, rows},
};

const TRANSACTION: Bracket = Bracket::Transaction;

/// Tuples laid in by one statement.
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
        let connector = MariaDbConnector { address: self.address.clone(), lock, table, procedure };
        inventory::task(connector, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<Held>, StoreError>> {
        Box::pin(async move {
            let table = object(place, "stock");
            let sql = format!("SELECT sku, `condition`, source, warehouse, `count` FROM {table}");
            let read = async |conn: &mut Conn| rows(conn, sql, ()).await;
            let rows = self.on_server("reading the final stock", read).await?;
            Ok(rows.iter().map(|row| held(row).unwrap_or_else(|_| Held::foreign())).collect())
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

/// Locks the group, decides and takes, all in one call. Answers one result for each line taken, and
/// none where there is too little; then how the call ended, which is what counts: a line is taken
/// only if the call ended well.
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

fn held(row: &Row) -> Result<Held, String> {
    let sku: i64 = number(row, 0)?;
    let sku = u32::try_from(sku).map_err(|_| format!("a tuple of sku {sku}"))?;
    Ok(Held { key: (sku, small(row, 1)?, small(row, 2)?, small(row, 3)?), count: number(row, 4)? })
}

/// A condition, source or warehouse.
fn small(row: &Row, column: usize) -> Result<u8, String> {
    let value: i64 = number(row, column)?;
    u8::try_from(value).map_err(|_| format!("a tuple with {value} in column {column}"))
}

struct MariaDbConnector {
    address: Address,
    lock: Lock,
    table: String,
    procedure: String,
}

/// The statements of a lock mode.
enum How {
    Unprotected { read: Statement, set: Statement },
    IfUnchanged { read: Statement, take: Statement },
    Locked { read: Statement, take: Statement },
    InOne { call: Statement },
}

struct Connection {
    taker: Taker,
    how: How,
    release: Statement,
}

struct Taker {
    session: Session,
    /// The group last read.
    seen: Reading,
}

impl Connector for MariaDbConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let words = |error: Error| fault::words(&error);
        let mut conn = connect(&self.address).await.map_err(words)?;
        let (how, release) = self.prepare(&mut conn).await.map_err(words)?;
        Ok(Connection { taker: Taker { session: Session { conn }, seen: Reading::default() }, how, release })
    }
}

impl MariaDbConnector {
    async fn prepare(&self, conn: &mut Conn) -> Result<(How, Statement), Error> {
        let Self { table, procedure, .. } = self;
        let group = "sku = ? AND `condition` = ? AND source = ?";
        let read =
            format!("SELECT warehouse, `count`, version FROM {table} WHERE {group} ORDER BY warehouse");
        let update = |set: &str| format!("UPDATE {table} SET {set} WHERE {group} AND warehouse = ?");
        let how = match self.lock {
            Lock::None => How::Unprotected {
                read: conn.prep(read).await?,
                set: conn.prep(update("`count` = ?")).await?,
            },
            Lock::Soft => How::IfUnchanged {
                read: conn.prep(read).await?,
                take: {
                    let take = update("`count` = `count` - ?, version = version + 1");
                    conn.prep(format!("{take} AND version = ?")).await?
                },
            },
            Lock::Hard => How::Locked {
                read: conn.prep(format!("{read} FOR UPDATE")).await?,
                take: conn.prep(update("`count` = `count` - ?")).await?,
            },
            Lock::Native => How::InOne { call: conn.prep(format!("CALL {procedure}(?, ?, ?, ?)")).await? },
        };
        let release = match self.lock {
            Lock::Soft => update("`count` = `count` + ?, version = version + 1"),
            _ => update("`count` = `count` + ?"),
        };
        Ok((how, conn.prep(release).await?))
    }
}

impl Taker {
    async fn look(&mut self, statement: &Statement, capture: &Capture) -> Result<(), Attempt> {
        let Capture { sku, condition, source, .. } = *capture;
        let read = self.session.read(statement, (sku, condition, source)).await;
        self.seen.clear();
        for row in &read? {
            self.seen.push(seen(row).map_err(|words| Attempt::Failed(Fault::answered(words)))?);
        }
        Ok(())
    }

    async fn capture_unprotected(
        &mut self,
        (read, set): (&Statement, &Statement),
        capture: &Capture,
        taken: &mut Vec<Line>,
    ) -> Done {
        self.look(read, capture).await?;
        if !self.seen.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        for (index, line) in taken.iter().enumerate() {
            let left = self.seen.left(line);
            self.session.write(set, with_key(left, line), Sent::Write).await.map_err(
                |trouble| match index {
                    0 => trouble,
                    // the lines before have taken effect
                    _ => trouble.after_a_part(),
                },
            )?;
        }
        Ok(Attempt::Ok)
    }

    async fn capture_if_unchanged(
        &mut self,
        (read, take): (&Statement, &Statement),
        capture: &Capture,
        taken: &mut Vec<Line>,
    ) -> Done {
        self.look(read, capture).await?;
        if !self.seen.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        // one statement is atomic by itself
        if let [line] = taken.as_slice() {
            return self.take_if_unchanged(take, line, Sent::Write).await.map(|()| Attempt::Ok);
        }
        let done = self.take_all_if_unchanged(take, taken).await;
        self.session.end(&TRANSACTION, done).await
    }

    async fn take_all_if_unchanged(&mut self, take: &Statement, lines: &[Line]) -> Done {
        self.session.begin(&TRANSACTION).await?;
        for line in lines {
            self.take_if_unchanged(take, line, Sent::Nothing).await?;
        }
        Ok(Attempt::Ok)
    }

    async fn take_if_unchanged(&mut self, take: &Statement, line: &Line, sent: Sent) -> Result<(), Attempt> {
        let (units, sku, condition, source, warehouse) = with_key(line.count.into(), line);
        let values = (units, sku, condition, source, warehouse, self.seen.of(line).version);
        match self.session.run(take, values, sent).await? {
            0 => Err(Attempt::Conflict),
            found => one(found),
        }
    }

    async fn capture_locked(
        &mut self,
        (read, take): (&Statement, &Statement),
        capture: &Capture,
        taken: &mut Vec<Line>,
    ) -> Done {
        let done = self.take_locked((read, take), capture, taken).await;
        self.session.end(&TRANSACTION, done).await
    }

    async fn take_locked(
        &mut self,
        (read, take): (&Statement, &Statement),
        capture: &Capture,
        taken: &mut Vec<Line>,
    ) -> Done {
        self.session.begin(&TRANSACTION).await?;
        self.look(read, capture).await?;
        if !self.seen.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        for line in &*taken {
            self.session.write(take, with_key(line.count.into(), line), Sent::Nothing).await?;
        }
        Ok(Attempt::Ok)
    }

    async fn capture_in_one(&mut self, call: &Statement, capture: &Capture, taken: &mut Vec<Line>) -> Done {
        let Capture { sku, condition, source, units } = *capture;
        taken.clear();
        match rows(&mut self.session.conn, call, (sku, condition, source, units)).await {
            Ok(lines) => {
                for row in &lines {
                    taken.push(line(capture, row).map_err(|words| Attempt::Unknown(Fault::lost(words)))?);
                }
                Ok(if taken.is_empty() { Attempt::Refused } else { Attempt::Ok })
            }
            // the procedure rolls back by itself, but for errors that end it at once
            Err(error) => Ok(self.session.give_up(&TRANSACTION, fault::attempt(&error, Sent::Write)).await),
        }
    }
}

fn seen(row: &Row) -> Result<Seen, String> {
    Ok(Seen { warehouse: small(row, 0)?, count: number(row, 1)?, version: number(row, 2)? })
}

fn line(capture: &Capture, row: &Row) -> Result<Line, String> {
    let count: i64 = number(row, 1)?;
    let count = u32::try_from(count).map_err(|_| format!("{count} units were taken"))?;
    Ok(capture.line(small(row, 0)?, count))
}

/// A value with the key of a line's tuple, in the order of the statements' placeholders.
fn with_key(value: i64, line: &Line) -> (i64, u32, u8, u8, u8) {
    (value, line.sku, line.condition, line.source, line.warehouse)
}

impl Operations for Connection {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Attempt {
        let Self { taker, how, .. } = self;
        let done = match how {
            How::Unprotected { read, set } => taker.capture_unprotected((read, set), capture, taken).await,
            How::IfUnchanged { read, take } => taker.capture_if_unchanged((read, take), capture, taken).await,
            How::Locked { read, take } => taker.capture_locked((read, take), capture, taken).await,
            How::InOne { call } => taker.capture_in_one(call, capture, taken).await,
        };
        done.unwrap_or_else(|trouble| trouble)
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        let Release { sku, warehouse, condition, source, units } = *release;
        let values = (units, sku, condition, source, warehouse);
        let done = self.taker.session.write(&self.release, values, Sent::Write).await;
        done.map_or_else(|trouble| trouble, |()| Attempt::Ok)
    }
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
