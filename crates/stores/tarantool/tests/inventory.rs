//! The inventory on real servers: contended, replayed, crashed. Without Tarantool installed the tests are
//! skipped, and say so.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]

#[allow(dead_code, reason = "shared with the tests of IPROTO")]
mod server;

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
use acidtest_store_tarantool::{
    KIND, Tarantool,
    iproto::{Connection, Encoder},
};
use acidtest_workloads::{
    Audit, Owner, Place, Store, Verdict,
    inventory::{self, InventoryStore, OPERATIONS, Parameters, Replay, Scenario, Sequence, Stock},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SEED: u64 = 7;
const CLIENTS: usize = 12;
const NAMESPACE: &str = "acidtest_t[e]st*";

/// A private server with a store opened on it. Ends, with all its files, when dropped.
struct World {
    store: Tarantool,
    server: Server,
    runtime: Runtime,
    _folder: TempDir,
}

/// Starts a server; none, if Tarantool is not installed.
fn world(durability: Durability) -> Option<World> {
    if let Err(error) = Lab::locate("tarantool") {
        eprintln!("skipped: {error}");
        return None;
    }
    // a server that runs as another user must be able to pass through
    let passable = fs::Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().prefix("lab-").permissions(passable).tempdir().unwrap();
    let lab = Lab::at(folder.path()).unwrap();
    let mut server = lab.start("tarantool", durability, Lifetime::Run, None).unwrap();
    let runtime = runtime();
    let store = opened(&runtime, &mut server);
    Some(World { store, server, runtime, _folder: folder })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Opens the store as soon as the server answers.
fn opened(runtime: &Runtime, server: &mut Server) -> Tarantool {
    let start = Instant::now();
    loop {
        server.check().unwrap();
        match runtime.block_on(Tarantool::open(server.address())) {
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

    fn drive(&self, store: &Tarantool, load: Load, clients: usize) -> Measurement {
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
        let read = |name: &&str| effective.settings.contains_key(*name);
        assert!(["wal_mode", "memtx_memory", "readahead", "wal_max_size"].iter().all(read), "{effective:?}");
    }
}

/// Runs Lua outside the store, and returns the text that it returns.
fn ask(world: &World, code: &str) -> String {
    world.runtime.block_on(async {
        let mut connection = connect(world).await;
        let mut values = connection.eval(code, nothing).await.unwrap();
        values.tuple(1).unwrap();
        values.str().unwrap().to_owned()
    })
}

async fn connect(world: &World) -> Connection {
    Connection::connect(&world.server.address().endpoint(0), None).await.unwrap()
}

fn nothing(args: &mut Encoder) {
    args.array(0);
}

/// Every space and function that is not the server's own, sorted.
fn objects(world: &World) -> String {
    ask(
        world,
        "local names = {}
         for _, space in box.space._space:pairs() do
           if space.id > 511 then table.insert(names, space.name) end
         end
         for _, func in box.space._func:pairs() do
           if func.language == 'LUA' and func.name ~= 'box.schema.user.info' and func.name ~= 'LUA' then
             table.insert(names, func.name .. '()')
           end
         end
         table.sort(names)
         return table.concat(names, ' ')",
    )
}

#[test]
fn a_namespace_is_ours_only_with_our_mark() {
    let Some(world) = world(Durability::None) else { return };
    let World { store, runtime, .. } = &world;
    // theirs: names that the namespace would match if it were read as a pattern
    ask(
        &world,
        "box.schema.space.create('acidtest_test*:x') box.schema.space.create('acidtest_t[e]s')
         box.schema.space.create('acidtest_t[e]st*_2:marker')
         box.schema.func.create('acidtest_t[e]st*', {body = 'function() end'}) return ''",
    );
    let theirs = objects(&world);
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Nobody);
    for (make, drop) in [
        (
            "box.schema.space.create('acidtest_t[e]st*:a') return ''",
            "box.space['acidtest_t[e]st*:a']:drop() return ''",
        ),
        (
            "box.schema.func.create('acidtest_t[e]st*:a', {body = 'function() end'}) return ''",
            "box.schema.func.drop('acidtest_t[e]st*:a') return ''",
        ),
        (
            "box.schema.space.create('acidtest_t[e]st*:marker') return ''",
            "box.space['acidtest_t[e]st*:marker']:drop() return ''",
        ),
    ] {
        ask(&world, make);
        assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Stranger, "{make}");
        ask(&world, drop);
    }

    runtime.block_on(store.create(NAMESPACE, "run 1")).unwrap();
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Run("run 1".to_owned()));
    let again = runtime.block_on(store.create(NAMESPACE, "run 2")).unwrap_err();
    assert!(matches!(again, StoreError::Occupied { .. }), "{again}");
    let case = Case::new(Lock::Hard, None);
    case.load(&world);
    case.drive(store, for_time(50), 2);
    assert_ne!(objects(&world), theirs);
    runtime.block_on(store.remove(NAMESPACE)).unwrap();
    assert_eq!(runtime.block_on(store.owner(NAMESPACE)).unwrap(), Owner::Nobody);
    assert_eq!(objects(&world), theirs);
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
    let error = runtime().block_on(Tarantool::open(address)).unwrap_err();
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
    ask(&world, "box.schema.user.create('ann', {password = 'right'}) return ''");
    let mut address = world.server.address().clone();
    address.user = Some("ann".to_owned());
    assert!(refusal(&address).contains("ACIDTEST_PASSWORD"));
    address.password = Some(Secret::new("hunter2"));
    assert!(refusal(&address).contains("ACIDTEST_PASSWORD"));
    address.user = Some("nobody".to_owned());
    assert!(refusal(&address).contains("ACIDTEST_PASSWORD"));
}

#[test]
fn a_user_without_rights_is_told_which_to_ask_for() {
    let Some(server) = server::Server::start().unwrap() else { return };
    let runtime = runtime();
    let mut address = Address::parse(&format!("tarantool://{}", server.endpoint())).unwrap();
    runtime.block_on(async {
        let mut guest = Connection::connect(server.endpoint(), None).await.unwrap();
        let code = "box.schema.user.create('ann', {password = 'right'})";
        guest.eval(code, nothing).await.unwrap();
    });
    address.user = Some("ann".to_owned());
    address.password = Some(Secret::new("right"));
    assert!(refusal(&address).contains("box.schema.user.grant"));

    // may do everything but make spaces
    address.user = Some("bench".to_owned());
    address.password = Some(Secret::new("secret"));
    let store = runtime.block_on(Tarantool::open(&address)).unwrap();
    let error = runtime.block_on(store.create(NAMESPACE, "run")).unwrap_err().to_string();
    assert!(error.contains("denied") && error.contains("box.schema.user.grant"), "{error}");
}

/// One tuple (1, 1, 1, 1) with 5 units, laid in by hand.
fn one_tuple(world: &World) -> Place {
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    let mut stock = Stock::draw(&Parameters { items: 1, skus: 1, ..Parameters::default() }, SEED);
    let item = &mut stock.items[0];
    (item.sku, item.condition, item.source, item.warehouse, item.initial) = (1, 1, 1, 1, 5);
    world.runtime.block_on(world.store.load(&place, Lock::Hard, &stock)).unwrap();
    place
}

/// Takes the latch of the only tuple's group.
async fn acquire(connection: &mut Connection, lease: f64, patience: f64) -> Option<u64> {
    let arguments = |args: &mut Encoder| {
        args.array(6).str("acquire").u64(1).u64(1).u64(1).f64(lease).f64(patience);
    };
    let mut values = connection.call(PROCEDURE, arguments).await.unwrap();
    values.tuple(1).unwrap();
    (!values.take_nil()).then(|| values.u64().unwrap())
}

/// Takes three units and gives the latch up.
async fn settle(connection: &mut Connection, token: u64) -> bool {
    let arguments = |args: &mut Encoder| {
        args.array(6).str("settle").u64(1).u64(1).u64(1).u64(token).array(1).array(2).u64(1).i64(-3);
    };
    let mut values = connection.call(PROCEDURE, arguments).await.unwrap();
    values.tuple(1).unwrap();
    values.bool().unwrap()
}

/// The procedure of the namespace's first trial.
const PROCEDURE: &str = "acidtest_t[e]st*:stock_0";

#[test]
fn a_holder_that_outlives_its_lease_is_fenced_off() {
    let Some(world) = world(Durability::None) else { return };
    let place = one_tuple(&world);
    let count = || world.store.stock(&place);
    world.runtime.block_on(async {
        let mut connection = connect(&world).await;
        let late = acquire(&mut connection, 0.02, 0.0).await.unwrap();
        assert_eq!(acquire(&mut connection, 0.02, 0.0).await, None, "it is held");
        tokio::time::sleep(Duration::from_millis(40)).await;
        assert!(!settle(&mut connection, late).await, "the lease is over");
        let next = acquire(&mut connection, 10.0, 0.0).await.unwrap();
        assert!(next > late);
        assert!(!settle(&mut connection, late).await, "another holds it");
        assert_eq!(count().await.unwrap()[0].count, 5);
        assert!(settle(&mut connection, next).await);
        assert_eq!(count().await.unwrap()[0].count, 2);
        assert!(!settle(&mut connection, next).await, "it was given up");
    });
}

#[test]
fn a_latch_is_waited_for_in_the_server_and_not_given_to_the_dead() {
    let Some(world) = world(Durability::None) else { return };
    one_tuple(&world);
    world.runtime.block_on(async {
        let (mut holder, mut dead, mut next) =
            (connect(&world).await, connect(&world).await, connect(&world).await);
        let token = acquire(&mut holder, 10.0, 0.0).await.unwrap();
        let waiting = acquire(&mut dead, 10.0, 5.0);
        assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
        drop(dead);
        let settling = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(settle(&mut holder, token).await);
        };
        let start = Instant::now();
        let (got, ()) = tokio::join!(acquire(&mut next, 10.0, 5.0), settling);
        assert!(got.is_some_and(|got| got > token));
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    });
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
