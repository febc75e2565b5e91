//! The store against real servers, each test with its own. Where PostgreSQL is not installed, the
//! tests are skipped, and say so.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, sync::Arc, thread, time::Duration};

use acidtest_engine::{Extent, Load, Measurement, OnRefused, Outcome, Stop, Trial};
use acidtest_lab::{Lab, Lifetime, Server};
use acidtest_model::{Address, Durability, Lock, Secret, StoreError};
use acidtest_store_postgres::Postgres;
use acidtest_workloads::{
    Audit, Owner, Place, Store, Verdict,
    inventory::{self, InventoryStore, OPERATIONS, Parameters, Replay, Scenario, Sequence, Stock},
};
use tempfile::TempDir;

const SEED: u64 = 7;

/// A private server in a lab of the test's own.
struct Private {
    server: Server,
    _folder: TempDir,
}

impl Private {
    fn start(durability: Durability) -> Option<Self> {
        if let Err(error) = Lab::locate("postgres") {
            eprintln!("skipped: {error}");
            return None;
        }
        let passable = fs::Permissions::from_mode(0o711);
        let folder = tempfile::Builder::new().prefix("pg-").permissions(passable).tempdir().unwrap();
        let lab = Lab::at(folder.path()).unwrap();
        let server = lab.start("postgres", durability, Lifetime::Run, None).unwrap();
        Some(Self { server, _folder: folder })
    }

    /// The store, as soon as the server answers.
    fn open(&mut self) -> Postgres {
        for _ in 0..600 {
            self.server.check().unwrap();
            match wait(Postgres::open(self.server.address())) {
                Ok(store) => return store,
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
        panic!("the server does not answer: {:?}", self.server.log_tail(20));
    }
}

fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

/// Few tuples, and captures that take from several.
fn contended() -> Parameters {
    Parameters { items: 24, skus: 2, ..Parameters::default() }
}

fn place(trial: u32) -> Place {
    Place { namespace: "acidtest".to_owned(), trial }
}

/// A trial that is laid in and ready to be driven.
struct Prepared {
    stock: Arc<Stock>,
    scenario: Scenario,
    place: Place,
}

impl Prepared {
    fn lay_in(store: &Postgres, lock: Lock, trial: u32, sequence: Option<Sequence>) -> Self {
        let stock = Arc::new(Stock::draw(&contended(), SEED));
        let place = place(trial);
        wait(store.load(&place, lock, &stock)).unwrap();
        let scenario = Scenario::new(&contended(), Arc::clone(&stock), sequence.map(Arc::new), SEED);
        Self { stock, scenario, place }
    }

    fn run(&self, store: &Postgres, lock: Lock, clients: usize, load: Load) -> Measurement {
        let tasks = (0..clients).map(|_| store.client(&self.place, lock, self.scenario.clone())).collect();
        Trial::new(load, clients).run(tasks).unwrap()
    }

    fn audit(&self, store: &Postgres) -> Audit {
        let held = wait(store.stock(&self.place));
        let sequence = self.scenario.sequence.as_deref();
        let replay = sequence.map(|sequence| Replay { sequence, in_order: true });
        inventory::audit(&self.stock, &self.scenario.ledger, held, replay)
    }
}

fn for_a_time(seconds: u64) -> Load {
    let extent = Extent::Time(Duration::from_secs(seconds));
    Load { seed: SEED, patience: Duration::from_secs(1), ..Load::closed(OPERATIONS, extent) }
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    let Some(mut private) = Private::start(Durability::None) else { return };
    let store = private.open();
    wait(store.create("acidtest", "run 1")).unwrap();
    for (trial, lock) in (0..).zip(Lock::ALL) {
        let prepared = Prepared::lay_in(&store, lock, trial, None);
        let clients = if lock.promises() { 8 } else { 16 };
        let measured = prepared.run(&store, lock, clients, for_a_time(2));
        let audit = prepared.audit(&store);
        let expected = if lock.promises() { Verdict::Holds } else { Verdict::Broken };
        eprintln!("{lock}: {:.0} ops/s, {}, {:?}", measured.throughput(), audit.verdict, measured.faults);
        assert_eq!(audit.verdict, expected, "{lock}: {audit:?} {:?}", measured.faults);
        assert_eq!(measured.stopped, None);
        assert!(measured.faults.is_empty(), "{lock}: {:?}", measured.faults);
        wait(store.unload(&prepared.place)).unwrap();
        assert!(wait(store.stock(&prepared.place)).is_err());
    }
}

#[test]
fn a_sequence_replayed_in_order_ends_as_it_must() {
    let Some(mut private) = Private::start(Durability::None) else { return };
    let store = private.open();
    wait(store.create("acidtest", "run 1")).unwrap();
    for (trial, lock) in (0..).zip(Lock::ALL) {
        let stock = Stock::draw(&contended(), SEED);
        let sequence = Sequence::draw(&contended(), &stock, 1_000, SEED);
        let prepared = Prepared::lay_in(&store, lock, trial, Some(sequence));
        let load = Load {
            on_refused: OnRefused::Retry(Duration::from_millis(1)),
            ..Load::closed(OPERATIONS, Extent::Operations(1_001))
        };
        prepared.run(&store, lock, 1, load);
        let audit = prepared.audit(&store);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit:?}");
        assert_eq!(audit.count("off_sequence"), 0);
    }
}

#[test]
fn each_rung_is_read_back() {
    for asked in Durability::ALL {
        let Some(mut private) = Private::start(asked) else { return };
        let effective = wait(private.open().effective()).unwrap();
        assert_eq!(effective.durability, asked, "{effective:?}");
        assert!(effective.version.starts_with(|first: char| first.is_ascii_digit()));
        assert_eq!(effective.settings["shared_buffers"], "128MB");
        assert!(effective.because.contains("synchronous_commit="));
    }
}

#[test]
fn a_namespace_knows_who_made_it() {
    let Some(mut private) = Private::start(Durability::None) else { return };
    let store = private.open();
    let odd = "it's \"ours\"; -- é";
    for namespace in ["acidtest", odd] {
        assert_eq!(wait(store.owner(namespace)).unwrap(), Owner::Nobody);
        wait(store.create(namespace, "run '1'")).unwrap();
        assert_eq!(wait(store.owner(namespace)).unwrap(), Owner::Run("run '1'".to_owned()));
        let again = wait(store.create(namespace, "run 2")).unwrap_err();
        assert!(matches!(again, StoreError::Occupied { .. }), "{again}");
        let place = Place { namespace: namespace.to_owned(), trial: 1 };
        wait(store.load(&place, Lock::Native, &Stock::draw(&contended(), SEED))).unwrap();
        assert_eq!(wait(store.stock(&place)).unwrap().len(), 24);
        wait(store.remove(namespace)).unwrap();
        assert_eq!(wait(store.owner(namespace)).unwrap(), Owner::Nobody);
        wait(store.remove(namespace)).unwrap();
    }
    assert_eq!(wait(store.owner("pg_catalog")).unwrap(), Owner::Stranger);
    execute(private.server.address(), "CREATE SCHEMA theirs; CREATE TABLE theirs.marker (a int)");
    assert_eq!(wait(store.owner("theirs")).unwrap(), Owner::Stranger);
    assert!(wait(store.create(&"long".repeat(20), "run 1")).is_err());
}

/// Does something as the server's superuser, past the store.
fn execute(address: &Address, sql: &str) {
    wait(async {
        let (user, port) = (address.user.clone().unwrap(), address.port.unwrap());
        let options = format!("host=127.0.0.1 port={port} user={user} dbname={}", address.path);
        let (client, connection) = tokio_postgres::connect(&options, tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        client.batch_execute(sql).await.unwrap();
        drop(client);
        driver.await.unwrap().unwrap();
    });
}

#[test]
fn what_cannot_be_reached_is_explained_without_the_password() {
    let Some(mut private) = Private::start(Durability::None) else { return };
    private.open();
    let trusted = private.server.address().clone();
    let hba = private.server.folder().join("data/pg_hba.conf");
    let rules = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("host all ann 127.0.0.1/32 scram-sha-256\n{rules}")).unwrap();
    execute(&trusted, "CREATE ROLE ann LOGIN PASSWORD 'right'; SELECT pg_reload_conf()");
    thread::sleep(Duration::from_millis(300));

    let ann = |password: Option<&str>| Address {
        user: Some("ann".to_owned()),
        password: password.map(Secret::new),
        ..trusted.clone()
    };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    wait(Postgres::open(&ann(Some("right")))).unwrap();
    let cases = [
        (ann(Some("hunter2")), "password authentication failed", "check user and password"),
        (ann(None), "password missing", "check user and password"),
        (Address { path: "nowhere".to_owned(), ..trusted.clone() }, "does not exist", "create the database"),
        (Address { port: Some(port), ..ann(Some("hunter2")) }, "Connection refused", "start the server"),
    ];
    for (address, cause, remedy) in cases {
        let error = wait(Postgres::open(&address)).unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }));
        let words = error.to_string();
        let expected = [cause, remedy, "127.0.0.1", &address.port.unwrap().to_string()];
        assert!(expected.iter().all(|part| words.contains(part)), "{words}");
        assert!(!words.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{words}");
    }
    let store = wait(Postgres::open(&ann(Some("right")))).unwrap();
    assert!(!format!("{store:?}").contains("right"));
}

/// A trigger that lets nothing be taken from any warehouse but the first.
fn refusing(trial: u32) -> String {
    format!(
        "CREATE FUNCTION acidtest.no_{trial}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.warehouse > 1 AND NEW.count < OLD.count THEN RAISE EXCEPTION 'no'; END IF;
           RETURN NEW;
         END $$;
         CREATE TRIGGER no BEFORE UPDATE ON acidtest.stock_{trial}
           FOR EACH ROW EXECUTE FUNCTION acidtest.no_{trial}()"
    )
}

/// An operation that the server refuses when it has taken from one tuple already has no effect, and
/// leaves its connection usable; only without a lock mode it may have taken in part.
#[test]
fn what_fails_half_way_is_rolled_back() {
    let Some(mut private) = Private::start(Durability::None) else { return };
    let store = private.open();
    wait(store.create("acidtest", "run 1")).unwrap();
    for (trial, lock) in (0..).zip(Lock::ALL) {
        let prepared = Prepared::lay_in(&store, lock, trial, None);
        execute(private.server.address(), &refusing(trial));
        let measured = prepared.run(&store, lock, if lock.promises() { 4 } else { 1 }, for_a_time(1));
        let audit = prepared.audit(&store);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit:?}");
        let count = |outcome| measured.operations[0].count(outcome);
        assert!(count(Outcome::Failed) > 0, "{lock}: {:?}", measured.faults);
        assert_eq!(count(Outcome::Unknown) == 0, lock.promises(), "{lock}: {:?}", measured.faults);
        assert_eq!((measured.reconnects == 0, measured.stopped), (lock.promises(), None));
    }
}

/// A correct store through kills without an alarm: what was acknowledged is there after recovery.
#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(mut private) = Private::start(Durability::Disk) else { return };
    let store = private.open();
    wait(store.create("acidtest", "run 1")).unwrap();
    let modes = [Lock::Soft, Lock::Hard, Lock::Native];
    let kills = modes.into_iter().flat_map(|lock| [(lock, true), (lock, false)]);
    for (trial, (lock, comes_back)) in (0..).zip(kills) {
        let prepared = Prepared::lay_in(&store, lock, trial, None);
        let measured = thread::scope(|scope| {
            // long enough to see the server come back, short enough to give it up
            let patience = Duration::from_secs(if comes_back { 20 } else { 1 });
            let load = Load { patience, ..for_a_time(3) };
            let run = scope.spawn(|| prepared.run(&store, lock, 8, load));
            thread::sleep(Duration::from_millis(800));
            private.server.kill().unwrap();
            if comes_back {
                private.server.restart().unwrap();
            }
            run.join().unwrap()
        });
        if comes_back {
            assert!(measured.reconnects > 0, "{:?}", measured.stopped);
        } else {
            assert!(matches!(measured.stopped, Some(Stop::ServerGone(_))), "{:?}", measured.stopped);
            private.server.restart().unwrap();
        }
        private.open();
        let audit = prepared.audit(&store);
        eprintln!("{lock}: {:?} {:?} {:?}", measured.reconnects, measured.faults, audit.evidence);
        assert!(!measured.faults.is_empty());
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit:?} {:?}", measured.faults);
    }
}
