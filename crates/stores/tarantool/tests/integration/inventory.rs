//! The inventory workload against real servers.

use std::time::Duration;

use acidtest_model::{Durability, Lock};
use acidtest_store_tarantool::{
    Tarantool,
    iproto::{Connection, Encoder},
};
use acidtest_testbed::{InventoryRun, SEED, World, for_time, inventory, login, wait};
use acidtest_transport::Transport;
use acidtest_workloads::{
    Owner, Place, Store,
    inventory::{InventoryStore, Parameters, Stock},
};

use crate::TARANTOOL;

const NAMESPACE: &str = "acidtest_t[e]st*";

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    TARANTOOL.passes(&[inventory::contention]);
}

#[test]
fn a_replayed_sequence_ends_as_it_must() {
    TARANTOOL.passes(&[inventory::replay]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    inventory::namespaces(&TARANTOOL, &inventory::NAMES);
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&TARANTOOL);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    TARANTOOL.passes(&[inventory::large_stock]);
}

#[test]
fn where_nobody_listens_is_told_with_a_remedy() {
    inventory::unreachable(&TARANTOOL);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    inventory::kills(&TARANTOOL);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    inventory::nothing_kept(&TARANTOOL);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&TARANTOOL, |_, effective| {
        for name in ["wal_mode", "memtx_memory", "readahead", "wal_max_size"] {
            assert!(effective.settings.contains_key(name), "{effective:?}");
        }
    });
}

/// Runs Lua, bypassing the store, and returns the text that it returns.
fn ask(world: &World<Tarantool>, code: &str) -> String {
    wait(async {
        let mut connection = connect(world).await;
        let mut values = connection.eval(code, nothing).await.unwrap();
        values.tuple(1).unwrap();
        values.str().unwrap().to_owned()
    })
}

async fn connect(world: &World<Tarantool>) -> Connection {
    Connection::connect(&Transport::new(world.address(), 0).unwrap(), None).await.unwrap()
}

fn nothing(args: &mut Encoder) {
    args.array(0);
}

#[test]
fn a_server_that_takes_no_writes_says_so() {
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    let read_only = |is: bool| ask(&world, &format!("box.cfg{{read_only = {is}}} return 'set'"));
    read_only(true);
    let said = wait(world.store.create(NAMESPACE, "run")).unwrap_err().to_string();
    assert!(said.contains("takes no writes: it is read-only (box.info.ro)"), "{said}");
    assert!(said.contains("remedy: give the address of the instance that takes writes"), "{said}");
    read_only(false);
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    read_only(true);
    let said = wait(world.store.remove(NAMESPACE)).unwrap_err().to_string();
    assert!(said.contains("takes no writes"), "{said}");
}

/// Names of all spaces and functions that are not the server's own, sorted.
fn objects(world: &World<Tarantool>) -> String {
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
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    let store = &world.store;
    let owner = || wait(store.owner(NAMESPACE)).unwrap();
    // strangers' objects: the namespace would match their names if it were read as a pattern
    ask(
        &world,
        "box.schema.space.create('acidtest_test*:x') box.schema.space.create('acidtest_t[e]s')
         box.schema.space.create('acidtest_t[e]st*_2:marker')
         box.schema.func.create('acidtest_t[e]st*', {body = 'function() end'}) return ''",
    );
    let theirs = objects(&world);
    assert_eq!(owner(), Owner::Nobody);
    let space = "box.schema.space.create('acidtest_t[e]st*:a')";
    let function = "box.schema.func.create('acidtest_t[e]st*:a', {body = 'function() end'})";
    let mark = "box.schema.space.create('acidtest_t[e]st*:marker')";
    let no_mark = "local space = box.schema.space.create('acidtest_t[e]st*:marker')
                   space:create_index('pk') space:insert{1}";
    let cases = [
        (space, "box.space['acidtest_t[e]st*:a']:drop()", Owner::Stranger),
        (function, "box.schema.func.drop('acidtest_t[e]st*:a')", Owner::Stranger),
        // left by a run that is killed while it makes the namespace
        (mark, "box.space['acidtest_t[e]st*:marker']:drop()", Owner::Empty),
        (no_mark, "box.space['acidtest_t[e]st*:marker']:drop()", Owner::Stranger),
    ];
    for (make, drop, expected) in cases {
        ask(&world, &format!("{make} return ''"));
        assert_eq!(owner(), expected, "{make}");
        ask(&world, &format!("{drop} return ''"));
    }

    wait(store.create(NAMESPACE, "run 1")).unwrap();
    assert_eq!(owner(), Owner::Run("run 1".to_owned()));
    let case = InventoryRun::random(Lock::Hard, 3).within(NAMESPACE);
    case.load(store);
    case.drive(store, &for_time(50), 2);
    assert_ne!(objects(&world), theirs);
    wait(store.remove(NAMESPACE)).unwrap();
    assert_eq!(owner(), Owner::Nobody);
    assert_eq!(objects(&world), theirs);
}

#[test]
fn a_refused_login_is_told_with_a_remedy_and_without_the_password() {
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    ask(&world, "box.schema.user.create('ann', {password = 'right'}) return ''");
    for (user, password) in [("ann", None), ("ann", Some("hunter2")), ("nobody", Some("hunter2"))] {
        TARANTOOL.refuses(&login(world.address(), user, password), &["ACIDTEST_PASSWORD"]);
    }
}

#[test]
fn a_user_without_rights_is_told_which_to_ask_for() {
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    ask(&world, "box.schema.user.create('ann', {password = 'hunter2'}) return ''");
    let ann = login(world.address(), "ann", Some("hunter2"));
    TARANTOOL.refuses(&ann, &["box.schema.user.grant"]);

    // a user with all rights except to create spaces
    ask(
        &world,
        "box.session.su('admin', box.schema.user.grant, 'ann', 'read,write,execute', 'universe') return ''",
    );
    let store = wait(Tarantool::open(&ann)).unwrap();
    let error = wait(store.create(NAMESPACE, "run")).unwrap_err().to_string();
    assert!(error.contains("denied") && error.contains("box.schema.user.grant"), "{error}");
}

/// A trial with one tuple (1, 1, 1, 1) of 5 units, created without the store.
fn one_tuple(world: &World<Tarantool>) -> Place {
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    let mut stock = Stock::draw(&Parameters { items: 1, skus: 1, ..Parameters::default() }, SEED);
    let item = &mut stock.items[0];
    (item.sku, item.condition, item.source, item.warehouse, item.initial) = (1, 1, 1, 1, 5);
    wait(world.store.load(&place, Lock::Hard, &stock)).unwrap();
    place
}

/// Takes the latch of the only tuple's group; lease and patience are in seconds.
async fn acquire(connection: &mut Connection, lease: f64, patience: f64) -> Option<u64> {
    let arguments = |args: &mut Encoder| {
        args.array(6).str("acquire").u64(1).u64(1).u64(1).f64(lease).f64(patience);
    };
    let mut values = connection.call(PROCEDURE, arguments).await.unwrap();
    values.tuple(1).unwrap();
    (!values.take_nil()).then(|| values.u64().unwrap())
}

/// Takes three units and gives up the latch.
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
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    let place = one_tuple(&world);
    let count = || world.store.stock(&place);
    wait(async {
        let mut connection = connect(&world).await;
        let mut late = acquire(&mut connection, 0.02, 0.0).await.unwrap();
        // until a client asks for it before the lease ends
        let mut tries = 0..1_000;
        while let Some(next) = acquire(&mut connection, 0.02, 0.0).await {
            assert!(next > late && tries.next().is_some(), "it is held");
            late = next;
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
        assert!(!settle(&mut connection, late).await, "the lease is over");
        let next = acquire(&mut connection, 600.0, 0.0).await.unwrap();
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
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    one_tuple(&world);
    wait(async {
        let (mut holder, mut dead, mut next) =
            (connect(&world).await, connect(&world).await, connect(&world).await);
        let mut session = dead.eval("return box.session.id()", nothing).await.unwrap();
        session.tuple(1).unwrap();
        let session = session.u64().unwrap();
        let token = acquire(&mut holder, 600.0, 0.0).await.unwrap();
        let waiting = acquire(&mut dead, 600.0, 600.0);
        assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
        drop(dead);
        let settling = async {
            let gone = format!("while box.session.peer({session}) do require('fiber').sleep(0.01) end");
            holder.eval(&gone, nothing).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(settle(&mut holder, token).await);
        };
        // the latch passes on well before the lease of the dead holder would end
        let (got, ()) = tokio::join!(acquire(&mut next, 600.0, 120.0), settling);
        assert!(got.is_some_and(|got| got > token));
    });
}
