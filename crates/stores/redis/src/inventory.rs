//! The inventory workload on Redis: a hash of counts for each group, by warehouse.

use std::{collections::BTreeSet, iter, str::FromStr, sync::LazyLock, time::Duration};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Place,
    inventory::{
        self, Capture, Connector, InventoryStore, Item, Operations, Release, Scenario, Stock, StockRow,
        Withdrawal, plan_capture,
    },
};
use redis::{Cmd, Pipeline, cmd, pipe};

use crate::{
    Redis,
    keys::{self, Scan},
    lock::{self, Locked, Locks},
    protocol::{Connection, Error, Reply, nonsense, pairs},
    server::{ConnectOptions, Request, ended},
    session::{Script, Session, Step},
};

/// Commands in one round trip while loading and reading back.
const BATCH: usize = 1_000;

/// (sku, condition, source): the unit of a capture and of a lock.
type Group = (u32, u8, u8);

/// (warehouse, count) of each tuple of a group.
type Counts = Vec<(u8, i64)>;

/// Names of a trial's keys.
#[derive(Clone)]
struct Keys {
    prefix: String,
}

impl Keys {
    fn of(place: &Place) -> Self {
        Self { prefix: format!("{}{}", keys::prefix(&place.namespace), place.object("stock")) }
    }

    /// The prefix of all keys of the trial.
    fn all(&self) -> String {
        format!("{}:", self.prefix)
    }

    /// The prefix of the keys of all groups' counts.
    fn counts(&self) -> String {
        format!("{}:count:", self.prefix)
    }

    /// The key of the counts of one group, by warehouse.
    fn count(&self, group: Group) -> String {
        self.of_group("count", group)
    }

    /// The key of the prices of one group, by warehouse: apart from the counts, so that no capture reads them.
    fn price(&self, group: Group) -> String {
        self.of_group("price", group)
    }

    /// The key of the lock on one group.
    fn lock(&self, group: Group) -> String {
        self.of_group("lock", group)
    }

    fn of_group(&self, what: &str, (sku, condition, source): Group) -> String {
        format!("{}:{what}:{sku}:{condition}:{source}", self.prefix)
    }

    /// The key of the counter that numbers the locks' tokens.
    fn fence(&self) -> String {
        format!("{}:fence", self.prefix)
    }

    /// The group to which a key of counts belongs; `None` for a key of any other form.
    fn group(&self, key: &str) -> Option<Group> {
        let mut parts = key.strip_prefix(&self.counts())?.split(':');
        let group = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(group)
    }
}

impl InventoryStore for Redis {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        lock: Lock,
        stock: &'a Stock,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let keys = Keys::of(place);
            let failed = self.server.failed("loading the stock");
            let mut connection = self.server.reach().await?;
            for script in scripts(lock) {
                script.keep(&mut connection).await.map_err(&failed)?;
            }
            for groups in stock.groups.chunks(BATCH / 2) {
                let mut batch = pipe();
                for group in groups {
                    lay_in(&mut batch, &keys, &stock.items[group.items()]);
                }
                connection.ask_all(&batch).await.map_err(&failed)?;
            }
            Ok(())
        })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        inventory::task(RedisConnector { server: self.server.clone(), lock, keys: Keys::of(place) }, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            read_stock(&mut connection, &Keys::of(place))
                .await
                .map_err(self.server.failed("reading the final stock"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            keys::remove(&mut connection, &Keys::of(place).all(), None)
                .await
                .map_err(self.server.failed("removing the stock"))
        })
    }
}

/// Adds the commands that load one group's tuples.
fn lay_in(batch: &mut Pipeline, keys: &Keys, items: &[Item]) {
    let Some(head) = items.first() else { return };
    let group = (head.sku, head.condition, head.source);
    batch.cmd("HSET").arg(keys.count(group));
    for item in items {
        batch.arg(item.warehouse).arg(item.initial);
    }
    batch.cmd("HSET").arg(keys.price(group));
    for item in items {
        batch.arg(item.warehouse).arg(item.price);
    }
}

async fn read_stock(connection: &mut Connection, keys: &Keys) -> Result<Vec<StockRow>, Error> {
    // SCAN may return a key twice
    let mut found = BTreeSet::new();
    let mut scan = Scan::of(&keys.counts());
    while let Some(names) = scan.next(connection).await? {
        found.extend(names);
    }
    let names: Vec<_> = found.into_iter().collect();
    let mut held = Vec::new();
    for names in names.chunks(BATCH) {
        let mut batch = connection.batch()?;
        for name in names {
            batch.push(cmd("HGETALL").arg(name))?;
        }
        for (name, counts) in names.iter().zip(batch.answers().await) {
            let Some(counts) = keys::held(counts)? else {
                held.push(StockRow::foreign());
                continue;
            };
            let group = str::from_utf8(name).ok().and_then(|name| keys.group(name));
            for count in pairs(counts)? {
                // a stranger may have written anything there
                let [warehouse, count] = count;
                held.push(tuple(group, warehouse.text()?, count.text()?));
            }
        }
    }
    Ok(held)
}

/// A row of the final stock, or a foreign one if the key or its value is not of the form of a tuple.
fn tuple(group: Option<Group>, warehouse: &[u8], count: &[u8]) -> StockRow {
    let held = || {
        let (sku, condition, source) = group?;
        let key = (sku, condition, source, str::from_utf8(warehouse).ok()?.parse().ok()?);
        Some(StockRow { key, count: str::from_utf8(count).ok()?.parse().ok()? })
    };
    held().unwrap_or_else(StockRow::foreign)
}

/// A group's counts, by warehouse.
fn counts(reply: Reply<'_>) -> Result<Counts, Error> {
    fn number<T: FromStr>(value: Reply<'_>) -> Result<T, Error> {
        let digits = str::from_utf8(value.text()?).ok();
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(nonsense)
    }
    pairs(reply)?.map(|[warehouse, count]| Ok((number(warehouse)?, number(count)?))).collect()
}

struct RedisConnector {
    server: ConnectOptions,
    lock: Lock,
    keys: Keys,
}

impl Connector for RedisConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.server.connect_client().await?;
        Ok(Client {
            session: Session::new(connection),
            locks: Locks::new(self.keys.fence()),
            lock: self.lock,
            keys: self.keys.clone(),
            read: Vec::new(),
        })
    }
}

static CAPTURE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("inventory/capture.lua")));

/// The scripts that captures and releases call in a lock mode.
fn scripts(lock: Lock) -> Vec<&'static Script> {
    match lock {
        Lock::None | Lock::Soft => Vec::new(),
        Lock::Hard => lock::scripts().to_vec(),
        Lock::Native => vec![&CAPTURE],
    }
}

struct Client {
    session: Session,
    locks: Locks,
    lock: Lock,
    keys: Keys,
    /// The group that was read last, ascending by warehouse.
    read: Counts,
}

impl Client {
    fn seen(&mut self, mut counts: Counts) {
        counts.sort_unstable();
        self.read = counts;
    }

    fn decide(&self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> bool {
        plan_capture(capture, self.read.iter().copied(), taken)
    }

    async fn capture_unprotected(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step<Attempt> {
        let key = self.keys.count((capture.sku, capture.condition, capture.source));
        let group = self.session.ask(cmd("HGETALL").arg(&key)).await;
        let group = group.and_then(counts).map_err(ended(Request::Harmless))?;
        self.seen(group);
        if !self.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        let mut set = cmd("HSET");
        set.arg(&key);
        for withdrawal in &*taken {
            let held = self.read.iter().find(|(warehouse, _)| *warehouse == withdrawal.warehouse);
            let left = held.map_or(0, |(_, count)| *count).saturating_sub(withdrawal.count.into());
            set.arg(withdrawal.warehouse).arg(left);
        }
        self.session.ask(&set).await.map_err(ended(Request::Change))?;
        Ok(Attempt::Ok)
    }

    async fn capture_if_unchanged(
        &mut self,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
    ) -> Step<Attempt> {
        let key = self.keys.count((capture.sku, capture.condition, capture.source));
        self.watch(&key).await?;
        if !self.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        let mut change = pipe();
        for withdrawal in &*taken {
            change.cmd("HINCRBY").arg(&key).arg(withdrawal.warehouse).arg(-i64::from(withdrawal.count));
        }
        let done = self.session.exec(&change, Request::Change).await?;
        Ok(if done.is_some() { Attempt::Ok } else { Attempt::Conflict })
    }

    /// Watches a group's key and reads the group, in one round trip.
    async fn watch(&mut self, key: &str) -> Step<()> {
        let harmless = ended(Request::Harmless);
        let mut read = self.session.watch(key).map_err(&harmless)?;
        read.push(cmd("HGETALL").arg(key)).map_err(&harmless)?;
        let group =
            read.answers().await.and_then(|mut answers| counts(answers.reply()?)).map_err(harmless)?;
        self.seen(group);
        Ok(())
    }

    async fn capture_locked(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step<Attempt> {
        let group = (capture.sku, capture.condition, capture.source);
        let (hash, lock) = (self.keys.count(group), self.keys.lock(group));
        let locked = Locked { hash: &hash, lock: &lock };
        let owner = self.acquire(locked).await?;
        if !self.decide(capture, taken) {
            return lock::give_up(&mut self.session, locked, owner).await.map(|_| Attempt::Refused);
        }
        let changes = taken.iter().map(|withdrawal| (withdrawal.warehouse, -i64::from(withdrawal.count)));
        self.change(locked, owner, changes).await
    }

    async fn release_locked(&mut self, release: &Release) -> Step<Attempt> {
        let group = (release.sku, release.condition, release.source);
        let (hash, lock) = (self.keys.count(group), self.keys.lock(group));
        let locked = Locked { hash: &hash, lock: &lock };
        let token = self.acquire(locked).await?;
        self.change(locked, token, iter::once((release.warehouse, release.units.into()))).await
    }

    /// Takes the lock of a group and reads the group. Returns the lock's token.
    async fn acquire(&mut self, locked: Locked<'_>) -> Step<i64> {
        let (token, group) = self.locks.acquire(&mut self.session, locked, &[]).await?;
        let group = counts(group).map_err(ended(Request::Harmless))?;
        self.seen(group);
        Ok(token)
    }

    /// Writes the changes (warehouse, units to add) and gives up the lock.
    async fn change(
        &mut self,
        locked: Locked<'_>,
        token: i64,
        changes: impl Iterator<Item = (u8, i64)> + Clone,
    ) -> Step<Attempt> {
        let write = |settle: &mut Cmd| {
            settle.arg("HINCRBY");
            for (warehouse, change) in changes.clone() {
                settle.arg(warehouse).arg(change);
            }
        };
        lock::write(&mut self.session, locked, token, write).await
    }

    async fn capture_in_one(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step<Attempt> {
        let key = self.keys.count((capture.sku, capture.condition, capture.source));
        let asked = self.session.run(&CAPTURE, |script| {
            script.arg(1).arg(&key).arg(capture.units);
        });
        let changed = ended(Request::Script);
        taken.clear();
        for withdrawal in asked.await.and_then(pairs).map_err(&changed)? {
            let [warehouse, count] = withdrawal;
            let warehouse = warehouse.integer().map_err(&changed)?;
            taken.push(capture.withdrawal(warehouse, count.integer().map_err(&changed)?));
        }
        Ok(if taken.is_empty() { Attempt::Refused } else { Attempt::Ok })
    }

    async fn release_in_one(&mut self, release: &Release) -> Step<Attempt> {
        let key = self.keys.count((release.sku, release.condition, release.source));
        let mut add = cmd("HINCRBY");
        add.arg(key).arg(release.warehouse).arg(release.units);
        let count = self.session.ask(&add).await.and_then(Reply::integer::<i64>);
        count.map_err(ended(Request::Change))?;
        Ok(Attempt::Ok)
    }
}

impl Operations for Client {
    fn lock_wait(&mut self) -> Duration {
        self.locks.take_waited()
    }

    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let done = match self.lock {
            Lock::None => self.capture_unprotected(capture, taken).await,
            Lock::Soft => self.capture_if_unchanged(capture, taken).await,
            Lock::Hard => self.capture_locked(capture, taken).await,
            Lock::Native => self.capture_in_one(capture, taken).await,
        };
        done.unwrap_or_else(|ended| ended)
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        let done = match self.lock {
            Lock::Hard => self.release_locked(release).await,
            Lock::None | Lock::Soft | Lock::Native => self.release_in_one(release).await,
        };
        done.unwrap_or_else(|ended| ended)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{self as testbed, Private, wait};

    use super::*;
    use crate::made_up::{self, array, bulk};

    #[test]
    fn what_is_no_tuple_is_foreign_to_the_final_stock() {
        let Some(mut private) = Private::start("redis", Durability::None) else { return };
        let redis = private.open(Redis::open);
        let spoil = async |place: &Place, item: &Item| {
            let mut connection = redis.server.reach().await.unwrap();
            let key = Keys::of(place).count((item.sku, item.condition, item.source));
            let mut spoil = cmd("HSET");
            spoil.arg(key).arg(item.warehouse).arg("many");
            assert_eq!(connection.ask(&spoil).await, Ok(Reply::Integer(0)));
        };
        wait(testbed::inventory::garbled(&redis, spoil));
    }

    #[test]
    fn counts_are_read_by_their_names_whatever_a_scan_shows() {
        let place = Place { namespace: testbed::NAMESPACE.to_owned(), trial: 1 };
        let counts = Keys::of(&place).counts();
        let key = |rest: &[u8]| [counts.as_bytes(), rest].concat();
        let ours = [key(b"7:1:2"), key(b"7:1"), key(b"\xFF"), key(b"8:1:2")];
        let theirs = [&b""[..], b"x", &counts.as_bytes()[1..], "ä".as_bytes()].map(<[u8]>::to_vec);
        let shown: Vec<Vec<u8>> = theirs.into_iter().chain(ours).collect();
        let wrong = key(b"8:1:2");
        let (address, _asked) = made_up::server(move |command| match &command[0][..] {
            b"SCAN" => array(&[bulk(b"0"), array(&shown.iter().map(|key| bulk(key)).collect::<Vec<_>>())]),
            b"HGETALL" if command[1] == wrong => b"-WRONGTYPE it is a text\r\n".to_vec(),
            b"HGETALL" => array(&[b"3", &b"5"[..], b"300", b"5", b"1", b"\xFF"].map(bulk)),
            _ => b"+OK\r\n".to_vec(),
        });
        let redis = wait(Redis::open(&address)).unwrap();
        let mut held = wait(redis.stock(&place)).unwrap();
        held.sort_unstable_by_key(|held| held.key);
        // two for each key that is no group's, two for each that is, and one for the key that holds no counts
        let mut expected = vec![StockRow::foreign(); 3 + 3 + 2 + 1];
        expected.push(StockRow { key: (7, 1, 2, 3), count: 5 });
        assert_eq!(held, expected);
    }
}
