//! The inventory on Redis.

use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Place,
    inventory::{
        self, Capture, Connector, Held, InventoryStore, Item, Line, Operations, Release, Scenario, Stock,
        plan_capture,
    },
};
use rand::{RngExt, SeedableRng, rngs::SysRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisResult, ServerErrorKind, Value,
    aio::MultiplexedConnection, cmd, pipe,
};
use tokio::time::Instant;

use crate::{
    Redis,
    keys::{self, Scan},
    server::{Request, Server, attempt, attempt_exec},
};

/// How long a lock is kept for a holder that is not heard of any more.
const LEASE: Duration = Duration::from_secs(10);

/// How long a lock that another holds is waited for, before the wait counts as a conflict.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bounds of the wait between two looks at a lock that another holds, in microseconds. The runtime
/// rounds it up to whole milliseconds.
const POLL: std::ops::RangeInclusive<u64> = 200..=2_000;

/// Commands in one round trip while loading and reading back.
const BATCH: usize = 1_000;

/// (sku, condition, source): what a capture asks for, and what a lock is on.
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

    /// What all keys of the trial begin with.
    fn all(&self) -> String {
        format!("{}:", self.prefix)
    }

    /// What the keys of all groups' counts begin with.
    fn counts(&self) -> String {
        format!("{}:count:", self.prefix)
    }

    /// The counts of one group, by warehouse.
    fn count(&self, group: Group) -> String {
        self.of_group("count", group)
    }

    /// The prices of one group, by warehouse: beside the counts, where no capture reads them.
    fn price(&self, group: Group) -> String {
        self.of_group("price", group)
    }

    /// The lock on one group.
    fn lock(&self, group: Group) -> String {
        self.of_group("lock", group)
    }

    fn of_group(&self, what: &str, (sku, condition, source): Group) -> String {
        format!("{}:{what}:{sku}:{condition}:{source}", self.prefix)
    }

    /// The counter that tokens are drawn from.
    fn fence(&self) -> String {
        format!("{}:fence", self.prefix)
    }

    /// The group that a key of counts is of.
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
            for script in Script::of(lock) {
                let mut keep = cmd("SCRIPT");
                keep.arg("LOAD").arg(script.code);
                keep.exec_async(&mut connection).await.map_err(&failed)?;
            }
            for groups in stock.groups.chunks(BATCH / 2) {
                let mut batch = pipe();
                for group in groups {
                    lay_in(&mut batch, &keys, &stock.items[group.items()]);
                }
                batch.exec_async(&mut connection).await.map_err(&failed)?;
            }
            Ok(())
        })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        inventory::task(RedisConnector { server: self.server.clone(), lock, keys: Keys::of(place) }, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<Held>, StoreError>> {
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

/// Adds the commands that lay in one group's tuples.
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

async fn read_stock(connection: &mut MultiplexedConnection, keys: &Keys) -> RedisResult<Vec<Held>> {
    // a scan may show a key twice
    let mut found = BTreeSet::new();
    let mut scan = Scan::of(&keys.counts());
    while let Some(names) = scan.next::<String>(connection).await? {
        found.extend(names.iter().filter_map(|name| keys.group(name)));
    }
    let groups: Vec<_> = found.into_iter().collect();
    let mut held = Vec::new();
    for groups in groups.chunks(BATCH) {
        let mut batch = pipe();
        for &group in groups {
            batch.cmd("HGETALL").arg(keys.count(group));
        }
        let counts: Vec<Counts> = batch.query_async(connection).await?;
        for (&(sku, condition, source), counts) in groups.iter().zip(counts) {
            let tuple = |(warehouse, count)| Held { key: (sku, condition, source, warehouse), count };
            held.extend(counts.into_iter().map(tuple));
        }
    }
    Ok(held)
}

struct RedisConnector {
    server: Server,
    lock: Lock,
    keys: Keys,
}

impl Connector for RedisConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.server.connect().await.map_err(|error| error.to_string())?;
        Ok(Client {
            session: Session { connection },
            lock: self.lock,
            keys: self.keys.clone(),
            read: Vec::new(),
            watching: false,
            // only spreads out waits: any seed will do
            rng: Xoshiro256PlusPlus::try_from_rng(&mut SysRng)
                .unwrap_or_else(|_| Xoshiro256PlusPlus::seed_from_u64(0)),
        })
    }
}

/// A Lua script, which the server keeps and knows by its hash.
pub(crate) struct Script {
    code: &'static str,
    hash: String,
}

static CAPTURE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("inventory/capture.lua")));
static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("inventory/acquire.lua")));
static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("inventory/settle.lua")));

impl Script {
    pub(crate) fn new(code: &'static str) -> Self {
        Self { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }

    /// Those that a lock mode needs.
    fn of(lock: Lock) -> Vec<&'static Self> {
        match lock {
            Lock::None | Lock::Soft => Vec::new(),
            Lock::Hard => vec![&ACQUIRE, &SETTLE],
            Lock::Native => vec![&CAPTURE],
        }
    }
}

/// A client's connection.
pub(crate) struct Session {
    pub(crate) connection: MultiplexedConnection,
}

impl Session {
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection).await
    }

    /// Runs a script; `arguments` adds the number of keys, keys and arguments.
    pub(crate) async fn run<T: FromRedisValue>(
        &mut self,
        script: &Script,
        arguments: impl Fn(&mut Cmd),
    ) -> RedisResult<T> {
        let mut command = cmd("EVALSHA");
        command.arg(&script.hash);
        arguments(&mut command);
        let answer = self.ask(&command).await;
        match answer {
            // nothing was run: the server was restarted or its scripts flushed. EVAL makes it keep it again
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut command = cmd("EVAL");
                command.arg(script.code);
                arguments(&mut command);
                self.ask(&command).await
            }
            answer => answer,
        }
    }
}

struct Client {
    session: Session,
    lock: Lock,
    keys: Keys,
    /// The group last read, ascending by warehouse.
    read: Counts,
    /// Whether the server watches a group for us that no EXEC has settled.
    watching: bool,
    rng: Xoshiro256PlusPlus,
}

/// Either what was wanted, or how the attempt ended without it.
type Step<T> = Result<T, Attempt>;

impl Client {
    fn seen(&mut self, mut counts: Counts) {
        counts.sort_unstable();
        self.read = counts;
    }

    fn decide(&self, capture: &Capture, taken: &mut Vec<Line>) -> bool {
        plan_capture(capture, self.read.iter().copied(), taken)
    }

    async fn capture_unprotected(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Step<Attempt> {
        let key = self.keys.count((capture.sku, capture.condition, capture.source));
        let group = self.session.ask(cmd("HGETALL").arg(&key)).await;
        self.seen(group.map_err(|error| attempt(&error, Request::Harmless))?);
        if !self.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        let mut set = cmd("HSET");
        set.arg(&key);
        for line in &*taken {
            let held = self.read.iter().find(|(warehouse, _)| *warehouse == line.warehouse);
            let left = held.map_or(0, |(_, count)| *count) - i64::from(line.count);
            set.arg(line.warehouse).arg(left);
        }
        let set = self.session.ask::<Value>(&set).await;
        set.map_err(|error| attempt(&error, Request::Change))?;
        Ok(Attempt::Ok)
    }

    async fn capture_if_unchanged(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Step<Attempt> {
        let key = self.keys.count((capture.sku, capture.condition, capture.source));
        self.watch(&key).await?;
        if !self.decide(capture, taken) {
            return Ok(Attempt::Refused);
        }
        let mut change = pipe();
        change.atomic();
        for line in &*taken {
            change.cmd("HINCRBY").arg(&key).arg(line.warehouse).arg(-i64::from(line.count));
        }
        let done: RedisResult<Value> = change.query_async(&mut self.session.connection).await;
        self.watching = false;
        match done {
            Ok(Value::Nil) => Ok(Attempt::Conflict),
            Ok(_) => Ok(Attempt::Ok),
            Err(error) => Err(attempt_exec(&error)),
        }
    }

    /// Watches and reads a group. What an earlier, refused capture watched is let go of first, in the
    /// same round trip.
    async fn watch(&mut self, key: &str) -> Step<()> {
        let mut read = pipe();
        if self.watching {
            read.cmd("UNWATCH").ignore();
        }
        read.cmd("WATCH").arg(key).ignore().cmd("HGETALL").arg(key);
        let group: RedisResult<(Counts,)> = read.query_async(&mut self.session.connection).await;
        self.watching = true;
        let (group,) = group.map_err(|error| attempt(&error, Request::Harmless))?;
        self.seen(group);
        Ok(())
    }

    async fn capture_locked(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Step<Attempt> {
        let group = (capture.sku, capture.condition, capture.source);
        let lock = self.acquire(group).await?;
        if !self.decide(capture, taken) {
            return self.settle(group, lock, &[]).await.map(|_| Attempt::Refused);
        }
        let changes: Vec<_> = taken.iter().map(|line| (line.warehouse, -i64::from(line.count))).collect();
        self.settle(group, lock, &changes).await
    }

    async fn release_locked(&mut self, release: &Release) -> Step<Attempt> {
        let group = (release.sku, release.condition, release.source);
        let lock = self.acquire(group).await?;
        self.settle(group, lock, &[(release.warehouse, release.units.into())]).await
    }

    /// Takes the lock of a group and reads the group; waits while another holds it. Returns the token.
    async fn acquire(&mut self, group: Group) -> Step<i64> {
        let keys = [self.keys.count(group), self.keys.lock(group), self.keys.fence()];
        let start = Instant::now();
        loop {
            let asked = self.session.run(&ACQUIRE, |acquire| {
                acquire.arg(keys.len()).arg(&keys).arg(LEASE.as_millis());
            });
            let held: RedisResult<Option<(i64, Counts)>> = asked.await;
            if let Some((token, counts)) = held.map_err(|error| attempt(&error, Request::Harmless))? {
                self.seen(counts);
                return Ok(token);
            }
            if start.elapsed() > PATIENCE {
                return Err(Attempt::Conflict);
            }
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(POLL))).await;
        }
    }

    /// Writes the changes (warehouse, units) and gives the lock up; or, with no changes, only the
    /// latter.
    async fn settle(&mut self, group: Group, token: i64, changes: &[(u8, i64)]) -> Step<Attempt> {
        let keys = [self.keys.count(group), self.keys.lock(group)];
        let asked = self.session.run(&SETTLE, |settle| {
            settle.arg(keys.len()).arg(&keys).arg(token);
            for (warehouse, change) in changes {
                settle.arg(warehouse).arg(change);
            }
        });
        let request = if changes.is_empty() { Request::Harmless } else { Request::Change };
        let ours: bool = asked.await.map_err(|error| attempt(&error, request))?;
        Ok(if ours { Attempt::Ok } else { Attempt::Conflict })
    }

    async fn capture_in_one(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Step<Attempt> {
        let key = self.keys.count((capture.sku, capture.condition, capture.source));
        let asked = self.session.run(&CAPTURE, |script| {
            script.arg(1).arg(&key).arg(capture.units);
        });
        let lines: Vec<(u8, u32)> = asked.await.map_err(|error| attempt(&error, Request::Change))?;
        taken.clear();
        taken.extend(lines.into_iter().map(|(warehouse, count)| capture.line(warehouse, count)));
        Ok(if taken.is_empty() { Attempt::Refused } else { Attempt::Ok })
    }

    async fn release_in_one(&mut self, release: &Release) -> Step<Attempt> {
        let key = self.keys.count((release.sku, release.condition, release.source));
        let mut add = cmd("HINCRBY");
        add.arg(key).arg(release.warehouse).arg(release.units);
        let count: RedisResult<i64> = self.session.ask(&add).await;
        count.map_err(|error| attempt(&error, Request::Change))?;
        Ok(Attempt::Ok)
    }
}

impl Operations for Client {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Attempt {
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
