//! The inventory workload against real servers.

use std::{
    thread,
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability, Lock, Secret};
use acidtest_store_redis::Redis;
use acidtest_testbed::{
    InventoryRun, OnSocket, World, for_time, inventory, is_whole_by_a_socket, login, to_the_end, wait,
};
use acidtest_workloads::{Owner, Store, Verdict};
use redis::{Commands, FromRedisValue};

use crate::REDIS;

const NAMESPACE: &str = "acidtest_t[e]st*";

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    REDIS.passes(&[inventory::contention]);
}

#[test]
fn a_replayed_sequence_ends_as_it_must() {
    REDIS.passes(&[inventory::replay]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    inventory::namespaces(&REDIS, &inventory::NAMES);
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&REDIS);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    REDIS.passes(&[inventory::large_stock]);
}

/// A Redis Cluster of one node. Dropping it ends it.
struct Cluster {
    child: std::process::Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // the bus of the cluster listens 10,000 above
        let is_free = |port: &u16| {
            [*port, *port + 10_000]
                .iter()
                .all(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        };
        let port = (24_100..24_900).find(is_free).unwrap();
        let child = std::process::Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--cluster-enabled",
                "yes",
                "--port",
                &port.to_string(),
            ])
            .current_dir(folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let cluster = Self { child, port, _folder: folder };
        let begun = Instant::now();
        let mut connection = loop {
            match redis::Client::open(cluster.address()).unwrap().get_connection() {
                Ok(connection) => break connection,
                Err(error) => assert!(begun.elapsed() < Duration::from_mins(1), "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16383).exec(&mut connection).unwrap();
        while !redis::cmd("CLUSTER")
            .arg("INFO")
            .query::<String>(&mut connection)
            .unwrap()
            .contains("state:ok")
        {
            assert!(begun.elapsed() < Duration::from_mins(1), "it does not serve");
            thread::sleep(Duration::from_millis(20));
        }
        cluster
    }

    fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing is begun on a cluster; what an earlier version has left there can be removed.
#[test]
fn a_cluster_is_refused_and_what_was_left_there_is_removed() {
    if !acidtest_testbed::wanted("redis") {
        return;
    }
    let cluster = Cluster::start();
    let store = wait(Redis::open(&Address::loopback("redis", None, cluster.port, ""))).unwrap();
    let refused = wait(store.effective()).unwrap_err().to_string();
    assert!(refused.contains("Redis Cluster") && refused.contains("cluster-enabled no"), "{refused}");
    let mut connection = redis::Client::open(cluster.address()).unwrap().get_connection().unwrap();
    for number in 0..50 {
        connection.set::<_, _, ()>(format!("left:{number}"), number).unwrap();
    }
    wait(store.remove("left")).unwrap();
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap(), 0);
}

#[test]
fn where_nobody_listens_is_told_with_a_remedy() {
    inventory::unreachable(&REDIS);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    inventory::kills(&REDIS);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    inventory::nothing_kept(&REDIS);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&REDIS, |world, effective| {
        for name in ["appendonly", "appendfsync", "save"] {
            assert!(effective.settings.contains_key(name), "{effective:?}");
        }
        if effective.durability == Durability::Disk {
            let () = raw(world).req(&["CONFIG", "SET", "appendfsync", "everysec"]);
            let effective = wait(world.store.effective()).unwrap();
            assert_eq!(effective.durability, Durability::None, "{}", effective.because);
        }
    });
}

/// A connection to the server that bypasses the store.
struct Raw(redis::Connection);

impl Raw {
    fn req<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).query(&mut self.0).unwrap()
    }
}

fn raw(world: &World<Redis>) -> Raw {
    Raw(redis::Client::open(world.address().to_string()).unwrap().get_connection().unwrap())
}

#[test]
fn a_namespace_is_ours_only_with_our_mark() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    let store = &world.store;
    let owner = || wait(store.owner(NAMESPACE)).unwrap();
    let mut raw = raw(&world);
    // strangers' keys: the namespace would match their names if it were read as a pattern
    let theirs = ["acidtest_test*:x", "acidtest_t[e]stx:y", "acidtest_t[e]st", "other"];
    for key in theirs {
        let () = raw.0.set(key, "theirs").unwrap();
    }
    assert_eq!(owner(), Owner::Nobody);
    let () = raw.0.set(format!("{NAMESPACE}:theirs"), 1).unwrap();
    assert_eq!(owner(), Owner::Stranger);
    let () = raw.0.del(format!("{NAMESPACE}:theirs")).unwrap();
    let () = raw.0.rpush(format!("{NAMESPACE}:marker"), 1).unwrap();
    assert_eq!(owner(), Owner::Stranger);
    let () = raw.0.del(format!("{NAMESPACE}:marker")).unwrap();

    wait(store.create(NAMESPACE, "run 1")).unwrap();
    assert_eq!(owner(), Owner::Run("run 1".to_owned()));
    let case = InventoryRun::random(Lock::Hard, 3).within(NAMESPACE);
    case.load(store);
    case.drive(store, &for_time(50), 2);
    wait(store.remove(NAMESPACE)).unwrap();
    assert_eq!(owner(), Owner::Nobody);
    let mut left: Vec<String> = raw.0.keys("*").unwrap();
    left.sort_unstable();
    let mut theirs = theirs.map(str::to_owned);
    theirs.sort_unstable();
    assert_eq!(left, theirs);
    is_told_that_it_is_a_replica(&world, &mut raw);
}

fn is_told_that_it_is_a_replica(world: &World<Redis>, raw: &mut Raw) {
    let () = raw.req(&["REPLICAOF", "127.0.0.1", "1"]);
    for refused in [world.store.create(NAMESPACE, "run"), world.store.remove("acidtest_test*")] {
        let said = wait(refused).unwrap_err().to_string();
        assert!(said.contains("takes no writes: it is a replica of 127.0.0.1:1"), "{said}");
        assert!(said.contains("remedy: give the address of its primary"), "{said}");
    }
    let () = raw.req(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    REDIS.refuses(world.address(), &["MASTERDOWN", "give the address of its primary"]);
}

#[test]
fn a_refused_login_is_told_with_a_remedy_and_without_the_password() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    let at = |path: &str| Address { path: path.to_owned(), ..world.address().clone() };
    REDIS.refuses(&at("99"), &["check the number of the database"]);
    let unasked = Address { password: Some(Secret::new("hunter2")), ..at("") };
    REDIS.refuses(&unasked, &["without any password", "ACIDTEST_PASSWORD"]);
    let mut raw = raw(&world);
    let () = raw.req(&["CONFIG", "SET", "requirepass", "right"]);
    let with = |password: &str| Address { password: Some(Secret::new(password)), ..at("1") };
    REDIS
        .refuses(&at("1"), &["NOAUTH", "redis://:PASSWORD@HOST, or as redis://@HOST with ACIDTEST_PASSWORD"]);
    for wrong in [with("hunter2"), login(&at("1"), "ann", Some("hunter2"))] {
        REDIS.refuses(&wrong, &["ACIDTEST_PASSWORD"]);
    }
    let store = wait(Redis::open(&with("right"))).unwrap();
    wait(store.create(NAMESPACE, "run")).unwrap();
    let () = raw.req(&["SELECT", "1"]);
    let count: u32 = raw.req(&["DBSIZE"]);
    assert_eq!(count, 1, "the address's path is the number of the database");
}

#[test]
fn it_is_reached_by_a_unix_socket() {
    let Some(server) = OnSocket::redis() else { return };
    is_whole_by_a_socket(&REDIS, server.address());
}

#[test]
fn without_the_right_to_read_settings_nothing_is_promised() {
    let Some(world) = REDIS.start(Durability::Disk) else { return };
    let () = raw(&world).req(&["ACL", "SETUSER", "ann", "on", ">hunter2", "~*", "+@all", "-config"]);
    let store = wait(Redis::open(&login(world.address(), "ann", Some("hunter2")))).unwrap();
    let effective = wait(store.effective()).unwrap();
    assert_eq!(effective.durability, acidtest_model::EffectiveDurability::Unknown);
    assert!(effective.because.contains("CONFIG GET was refused"), "{}", effective.because);
    assert!(!format!("{store:?}").contains("hunter2"));
}

#[test]
fn a_holder_that_outlives_its_lease_is_fenced_off() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    let mut raw = raw(&world);
    let () = raw.0.hset("group", 1, 5).unwrap();
    let acquire = include_str!("../../src/lock/acquire.lua");
    let settle = include_str!("../../src/lock/settle.lua");
    let take = ["EVAL", acquire, "3", "group", "lock", "fence"];
    let (late, counts): (String, Vec<(u8, i64)>) = raw.req(&[&take[..], &["60000"]].concat());
    assert_eq!(counts, [(1, 5)]);
    let taken: Option<(i64, Vec<(u8, i64)>)> = raw.req(&[&take[..], &["60000"]].concat());
    assert_eq!(taken, None, "it is held");
    // end the lock's lease
    let () = raw.req(&["PEXPIRE", "lock", "1"]);
    while raw.0.exists("lock").unwrap() {
        thread::sleep(Duration::from_millis(1));
    }

    let write = |raw: &mut Raw, token: &str| -> bool {
        raw.req(&["EVAL", settle, "2", "group", "lock", token, "HINCRBY", "1", "-3"])
    };
    assert!(!write(&mut raw, &late), "the lease is over");
    let (next, _): (String, Vec<(u8, i64)>) = raw.req(&[&take[..], &["10000"]].concat());
    assert!(next.parse::<i64>().unwrap() > late.parse().unwrap());
    assert!(!write(&mut raw, &late), "another holds it");
    assert_eq!(raw.0.hget::<_, _, i64>("group", 1).unwrap(), 5);
    assert!(write(&mut raw, &next));
    assert_eq!(raw.0.hget::<_, _, i64>("group", 1).unwrap(), 2);
    assert!(!write(&mut raw, &next), "it was given up");
}

#[test]
fn a_lock_left_behind_is_waited_for_and_flushed_scripts_are_loaded_again() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    let case = InventoryRun::replay(Lock::Hard, 3, 200).within(NAMESPACE);
    case.load(&world.store);
    let mut raw = raw(&world);
    let start = Instant::now();
    for group in &case.stock.groups {
        let head = case.stock.items[group.first as usize];
        let lock = format!("{NAMESPACE}:stock_3:lock:{}:{}:{}", head.sku, head.condition, head.source);
        let () = raw.req(&["SET", &lock, "0", "PX", "400"]);
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            let () = raw.req(&["SCRIPT", "FLUSH"]);
        });
        let measurement = case.drive(&world.store, &to_the_end(), 4);
        assert_eq!(measurement.faults.len(), 0, "{:?}", measurement.faults);
    });
    assert!(start.elapsed() >= Duration::from_millis(300));
    let audit = case.audit(&world.store, false);
    assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
}
