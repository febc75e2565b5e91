//! The inventory on real servers: contended, replayed, crashed. Without Redis installed the tests are
//! skipped, and say so.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Extent, Load, Measurement, OnRefused, Stop, Trial};
use acidtest_lab::{Lab, Lifetime, Server};
use acidtest_model::{Address, Durability, Lock, Secret, StoreError};
use acidtest_store_redis::{KIND, Redis};
use acidtest_workloads::{
    Audit, Owner, Place, Store, Verdict,
    inventory::{self, InventoryStore, OPERATIONS, Parameters, Replay, Scenario, Sequence, Stock},
};
use redis::{Commands, FromRedisValue};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SEED: u64 = 7;
const CLIENTS: usize = 12;
const NAMESPACE: &str = "acidtest_t[e]st*";

/// A private server with a store opened on it. Ends, with all its files, when dropped.
struct World {
    store: Redis,
    server: Server,
    runtime: Runtime,
    _folder: TempDir,
}

/// Starts a server; none, if Redis is not installed.
fn world(durability: Durability) -> Option<World> {
    if let Err(error) = Lab::locate("redis") {
        eprintln!("skipped: {error}");
        return None;
    }
    // a server that runs as another user must be able to pass through
    let passable = fs::Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().prefix("lab-").permissions(passable).tempdir().unwrap();
    let lab = Lab::at(folder.path()).unwrap();
    let mut server = lab.start("redis", durability, Lifetime::Run, None).unwrap();
    let runtime = runtime();
    let store = opened(&runtime, &mut server);
    Some(World { store, server, runtime, _folder: folder })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Opens the store as soon as the server answers.
fn opened(runtime: &Runtime, server: &mut Server) -> Redis {
    let start = Instant::now();
    loop {
        server.check().unwrap();
        match runtime.block_on(Redis::open(server.address())) {
            Ok(store) => return store,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(30), "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Few tuples, and captures that take from several.
fn contended() -> Parameters {
    Parameters { items: 24, skus: 2, ..Parameters::default() }
}

/// One trial, prepared.
struct Case {
    stock: Arc<Stock>,
    scenario: Scenario,
    place: Place,
    lock: Lock,
}

impl Case {
    fn new(lock: Lock, sequence: Option<usize>) -> Self {
        let parameters = contended();
        let stock = Arc::new(Stock::draw(&parameters, SEED));
        let sequence = sequence.map(|length| Arc::new(Sequence::draw(&parameters, &stock, length, SEED)));
        let scenario = Scenario::new(&parameters, Arc::clone(&stock), sequence, SEED);
        Self { stock, scenario, place: Place { namespace: NAMESPACE.to_owned(), trial: 3 }, lock }
    }

    fn load(&self, world: &World) {
        world.runtime.block_on(world.store.load(&self.place, self.lock, &self.stock)).unwrap();
    }

    fn drive(&self, store: &Redis, load: Load, clients: usize) -> Measurement {
        let client = |_| store.client(&self.place, self.lock, self.scenario.clone());
        Trial::new(load, clients).run((0..clients).map(client).collect()).unwrap()
    }

    fn audit(&self, world: &World, in_order: bool) -> Audit {
        let held = world.runtime.block_on(world.store.stock(&self.place));
        let replay = self.scenario.sequence.as_deref().map(|sequence| Replay { sequence, in_order });
        inventory::audit(&self.stock, &self.scenario.ledger, held, replay)
    }
}

fn load(extent: Extent) -> Load {
    Load { patience: Duration::from_millis(1500), seed: SEED, ..Load::closed(OPERATIONS, extent) }
}

fn for_time(millis: u64) -> Load {
    load(Extent::Time(Duration::from_millis(millis)))
}

#[test]
fn only_protected_modes_hold_under_contention() {
    let Some(world) = world(Durability::Process) else { return };
    for lock in Lock::ALL {
        let case = Case::new(lock, None);
        case.load(&world);
        let measurement = case.drive(&world.store, for_time(2000), CLIENTS);
        let audit = case.audit(&world, false);
        eprintln!("{lock}: {:.0} a second, {audit}", measurement.throughput());
        assert_eq!(measurement.faults.len(), 0, "{lock}: {:?}", measurement.faults);
        assert_eq!(measurement.stopped, None, "{lock}");
        let expected = if lock.promises() { Verdict::Holds } else { Verdict::Broken };
        assert_eq!(audit.verdict, expected, "{lock}: {audit:?}");
        world.runtime.block_on(world.store.unload(&case.place)).unwrap();
        assert_eq!(world.runtime.block_on(world.store.stock(&case.place)).unwrap(), []);
    }
}

#[test]
fn a_sequence_is_replayed_to_its_own_end() {
    let Some(world) = world(Durability::None) else { return };
    for lock in Lock::ALL {
        for clients in [1, 8] {
            if clients > 1 && !lock.promises() {
                continue;
            }
            let case = Case::new(lock, Some(3000));
            case.load(&world);
            let retry = OnRefused::Retry(Duration::from_millis(1));
            let load = Load { on_refused: retry, ..load(Extent::Operations(u64::MAX)) };
            case.drive(&world.store, load, clients);
            let audit = case.audit(&world, clients == 1);
            assert_eq!(audit.verdict, Verdict::Holds, "{lock}, {clients} clients: {audit:?}");
            assert_eq!(audit.count("off_sequence"), 0);
            world.runtime.block_on(world.store.unload(&case.place)).unwrap();
        }
    }
}

#[test]
fn the_rung_is_read_back() {
    for asked in Durability::ALL {
        let Some(world) = world(asked) else { return };
        let effective = world.runtime.block_on(world.store.effective()).unwrap();
        assert_eq!(effective.durability, asked, "{effective:?}");
        assert!(effective.version.contains('.'), "{}", effective.version);
        assert!(
            ["appendonly", "appendfsync", "save"].iter().all(|name| effective.settings.contains_key(*name))
        );
        if asked == Durability::Disk {
            let () = ask(&world, &["CONFIG", "SET", "appendfsync", "everysec"]);
            let effective = world.runtime.block_on(world.store.effective()).unwrap();
            assert_eq!(effective.durability, Durability::None, "{}", effective.because);
        }
    }
}

/// Sends one command outside the store.
fn ask<T: FromRedisValue>(world: &World, command: &[&str]) -> T {
    raw(world).req(command)
}

fn raw(world: &World) -> Raw {
    Raw(redis::Client::open(world.server.address().to_string()).unwrap().get_connection().unwrap())
}

struct Raw(redis::Connection);

impl Raw {
    fn req<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).query(&mut self.0).unwrap()
    }
}

#[test]
fn a_namespace_is_ours_only_with_our_mark() {
    let Some(world) = world(Durability::None) else { return };
    let World { store, runtime, .. } = &world;
    let mut raw = raw(&world);
    // theirs: names that the namespace would match if it were read as a pattern
    let theirs = ["acidtest_test*:x", "acidtest_t[e]stx:y", "acidtest_t[e]st", "other"];
    for key in theirs {
        let () = raw.0.set(key, "theirs").unwrap();
    }
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Nobody);
    let () = raw.0.set(format!("{NAMESPACE}:theirs"), 1).unwrap();
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Stranger);
    let () = raw.0.del(format!("{NAMESPACE}:theirs")).unwrap();
    let () = raw.0.rpush(format!("{NAMESPACE}:marker"), 1).unwrap();
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Stranger);
    let () = raw.0.del(format!("{NAMESPACE}:marker")).unwrap();

    runtime.block_on(store.create(NAMESPACE, "run 1")).unwrap();
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Run("run 1".to_owned()));
    let again = runtime.block_on(store.create(NAMESPACE, "run 2")).unwrap_err();
    assert!(matches!(again, StoreError::Occupied { .. }), "{again}");
    let case = Case::new(Lock::Hard, None);
    case.load(&world);
    case.drive(store, for_time(50), 2);
    runtime.block_on(store.remove(NAMESPACE)).unwrap();
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Nobody);
    let mut left: Vec<String> = raw.0.keys("*").unwrap();
    left.sort_unstable();
    let mut theirs = theirs.map(str::to_owned);
    theirs.sort_unstable();
    assert_eq!(left, theirs);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    let Some(world) = world(Durability::None) else { return };
    let stock = Stock::draw(&Parameters { items: 20_000, skus: 5_000, ..Parameters::default() }, SEED);
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    world.runtime.block_on(world.store.load(&place, Lock::None, &stock)).unwrap();
    let mut held = world.runtime.block_on(world.store.stock(&place)).unwrap();
    held.sort_unstable_by_key(|tuple| tuple.key);
    let laid: Vec<_> = stock.items.iter().map(|item| (item.key(), i64::from(item.initial))).collect();
    assert_eq!(held.iter().map(|tuple| (tuple.key, tuple.count)).collect::<Vec<_>>(), laid);
}

fn refusal(address: &Address) -> String {
    let error = runtime().block_on(Redis::open(address)).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains(&address.to_string()) && shown.contains("remedy"), "{shown}");
    error.to_string()
}

#[test]
fn a_server_that_is_not_there_is_told_with_a_remedy() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut address = Address::loopback(KIND.name, Some("ann"), free, "");
    address.password = Some(Secret::new("hunter2"));
    let told = refusal(&address);
    assert!(told.contains("Connection refused") && told.contains("start the server"), "{told}");
}

#[test]
fn a_wrong_password_is_told_with_a_remedy() {
    let Some(world) = world(Durability::None) else { return };
    let mut address = world.server.address().clone();
    address.path = "99".to_owned();
    assert!(refusal(&address).contains("check the number of the database"));
    address.path = "1".to_owned();
    let mut raw = raw(&world);
    let () = raw.req(&["CONFIG", "SET", "requirepass", "right"]);
    assert!(refusal(&address).contains("ACIDTEST_PASSWORD"));
    address.password = Some(Secret::new("hunter2"));
    assert!(refusal(&address).contains("ACIDTEST_PASSWORD"));
    address.user = Some("ann".to_owned());
    assert!(refusal(&address).contains("ACIDTEST_PASSWORD"));
    address.user = None;
    address.password = Some(Secret::new("right"));
    let runtime = &world.runtime;
    let store = runtime.block_on(Redis::open(&address)).unwrap();
    runtime.block_on(store.create(NAMESPACE, "run")).unwrap();
    let () = raw.req(&["SELECT", "1"]);
    let count: u32 = raw.req(&["DBSIZE"]);
    assert_eq!(count, 1, "the address's path is the number of the database");
}

#[test]
fn without_the_right_to_read_settings_nothing_is_promised() {
    let Some(world) = world(Durability::Disk) else { return };
    let () = ask(&world, &["ACL", "SETUSER", "ann", "on", ">hunter2", "~*", "+@all", "-config"]);
    let mut address = world.server.address().clone();
    address.user = Some("ann".to_owned());
    address.password = Some(Secret::new("hunter2"));
    let store = world.runtime.block_on(Redis::open(&address)).unwrap();
    let effective = world.runtime.block_on(store.effective()).unwrap();
    assert_eq!(effective.durability, Durability::None);
    assert!(effective.because.contains("CONFIG GET was refused"), "{}", effective.because);
    assert!(!format!("{store:?}").contains("hunter2"));
}

#[test]
fn a_holder_that_outlives_its_lease_is_fenced_off() {
    let Some(world) = world(Durability::None) else { return };
    let mut raw = raw(&world);
    let () = raw.0.hset("group", 1, 5).unwrap();
    let acquire = include_str!("../src/inventory/acquire.lua");
    let settle = include_str!("../src/inventory/settle.lua");
    let take = ["EVAL", acquire, "3", "group", "lock", "fence"];
    let (late, counts): (String, Vec<(u8, i64)>) = raw.req(&[&take[..], &["20"]].concat());
    assert_eq!(counts, [(1, 5)]);
    let taken: Option<(i64, Vec<(u8, i64)>)> = raw.req(&[&take[..], &["20"]].concat());
    assert_eq!(taken, None, "it is held");
    thread::sleep(Duration::from_millis(40));

    let write = |raw: &mut Raw, token: &str| -> bool {
        raw.req(&["EVAL", settle, "2", "group", "lock", token, "1", "-3"])
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
    let Some(world) = world(Durability::None) else { return };
    let case = Case::new(Lock::Hard, Some(200));
    case.load(&world);
    let mut raw = raw(&world);
    for group in &case.stock.groups {
        let head = case.stock.items[group.first as usize];
        let lock = format!("{NAMESPACE}:stock_3:lock:{}:{}:{}", head.sku, head.condition, head.source);
        let () = raw.req(&["SET", &lock, "0", "PX", "400"]);
    }
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            let () = raw.req(&["SCRIPT", "FLUSH"]);
        });
        let retry = OnRefused::Retry(Duration::from_millis(1));
        let load = Load { on_refused: retry, ..load(Extent::Operations(u64::MAX)) };
        let measurement = case.drive(&world.store, load, 4);
        assert_eq!(measurement.faults.len(), 0, "{:?}", measurement.faults);
    });
    assert!(start.elapsed() >= Duration::from_millis(300));
    let audit = case.audit(&world, false);
    assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
}

/// Kills the server in the middle of a trial, perhaps starts it again at once, and audits what it
/// recovered.
fn crashed(durability: Durability, lock: Lock, back_at_once: bool) -> Option<(Measurement, Audit)> {
    let mut world = world(durability)?;
    let case = Case::new(lock, None);
    case.load(&world);
    let (store, server) = (&world.store, &mut world.server);
    let measurement = thread::scope(|scope| {
        let trial = scope.spawn(|| case.drive(store, for_time(2500), CLIENTS));
        thread::sleep(Duration::from_millis(600));
        server.kill().unwrap();
        if back_at_once {
            server.restart().unwrap();
        }
        trial.join().unwrap()
    });
    if !back_at_once {
        world.server.restart().unwrap();
        opened(&world.runtime, &mut world.server);
    }
    let audit = case.audit(&world, false);
    eprintln!("{durability}, {lock}: {audit}, {:?} {:?}", audit.evidence, measurement.faults);
    Some((measurement, audit))
}

#[test]
fn what_a_killed_server_acknowledged_is_still_there() {
    let cases = [
        (Durability::Disk, Lock::Soft, false),
        (Durability::Disk, Lock::Hard, false),
        (Durability::Disk, Lock::Native, false),
        (Durability::Disk, Lock::Native, true),
        (Durability::Disk, Lock::Hard, true),
        (Durability::Process, Lock::Soft, true),
    ];
    for (durability, lock, back_at_once) in cases {
        let Some((measurement, audit)) = crashed(durability, lock, back_at_once) else { return };
        assert_eq!(audit.verdict, Verdict::Holds, "{durability}, {lock}: {audit:?}");
        if back_at_once {
            assert_eq!(measurement.stopped, None);
            assert!(measurement.reconnects > 0);
        } else {
            assert!(matches!(measurement.stopped, Some(Stop::ServerGone(_))), "{:?}", measurement.stopped);
        }
    }
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    let Some((_, audit)) = crashed(Durability::None, Lock::Native, false) else { return };
    assert_eq!(audit.verdict, Verdict::Broken, "{audit:?}");
}
