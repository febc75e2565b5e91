//! The lock service on real servers: the promises of a lease, and their limits.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::Drill;
use acidtest_locks::{
    Grant, LockError, LockService, Locker,
    audit::{Fencing, GuardedCounter, Stale, Watch, audit},
};
use acidtest_model::{Address, Durability, StoreError};
use acidtest_store_postgres::Postgres;
use acidtest_store_redis::Redis;
use acidtest_testbed::{Private, wait};
use acidtest_workloads::{Audit, Place, Verdict};

/// A lease that ends within no test.
const LONG: Duration = Duration::from_mins(5);
/// A lease short enough for a test to wait for its end.
const SHORT: Duration = Duration::from_millis(500);
/// Longest delay by a machine that has other things to do.
const SLACK: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(2);

/// Opens the service that its address names.
async fn open(address: &Address) -> Result<Arc<dyn LockService>, StoreError> {
    Ok(match &*address.scheme {
        "redis" => Arc::new(Redis::open(address).await?),
        _ => Arc::new(Postgres::open(address).await?),
    })
}

/// A lock service on a private server that the test started.
struct World {
    private: Private,
    service: Arc<dyn LockService>,
    place: Place,
}

impl World {
    fn start(store: &str, durability: Durability) -> Option<Self> {
        let mut private = Private::start(store, durability)?;
        let service = private.open(open);
        let place = Place { namespace: "acidtest_locks".to_owned(), trial: 1 };
        wait(async {
            service.create(&place.namespace, "run-1").await.unwrap();
            service.prepare(&place).await.unwrap();
        });
        Some(Self { private, service, place })
    }

    async fn locker(&self) -> Locker {
        self.service.connect(&self.place).await.unwrap()
    }
}

/// Runs a check on both services, one after the other.
fn on_each(durability: Durability, check: impl Fn(&mut World)) {
    for store in ["redis", "postgres"] {
        if let Some(mut world) = World::start(store, durability) {
            check(&mut world);
        }
    }
}

async fn taken(locker: &mut Locker, name: &str, lease: Duration) -> Grant {
    locker.acquire(name, lease).await.unwrap().unwrap()
}

/// Asks until nobody else holds the lock.
async fn awaited(locker: &mut Locker, name: &str, lease: Duration) -> Grant {
    loop {
        if let Some(grant) = locker.acquire(name, lease).await.unwrap() {
            return grant;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Takes the lock for a short lease, and again until the lease has not ended before the client knows of it: on a slow
/// machine that may take several attempts.
async fn in_time(locker: &mut Locker, name: &str, watch: &Watch) -> Grant {
    let begun = Instant::now();
    loop {
        let grant = awaited(locker, name, SHORT).await;
        if watch.granted(0, 1, &grant) {
            return grant;
        }
        assert!(begun.elapsed() < SLACK, "every lease ends on its way");
    }
}

#[test]
fn one_client_holds_a_lock_at_a_time() {
    on_each(Durability::None, |world| {
        let found = Drill::BRISK.run(async || world.locker().await);
        assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
        assert_eq!(found.evidence["written"], 8 * 40, "{found:?}");
    });
}

#[test]
fn no_alarm_where_holders_outlive_their_leases_and_are_fenced_off() {
    on_each(Durability::None, |world| {
        // whether the answer comes in time is chance
        let begun = Instant::now();
        loop {
            let found = Drill::SLOW.run(async || world.locker().await);
            assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
            if found.evidence["refused"] > 0 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{found:?}");
        }
    });
}

/// A holder reads, pauses past the end of its lease while another client takes its whole turn, and writes.
async fn pause_past_the_lease(world: &World, fencing: Fencing) -> (Result<(), Stale>, Audit) {
    let (watch, counter) = (Watch::new(1), GuardedCounter::new(fencing));
    let (mut paused, mut other) = (world.locker().await, world.locker().await);
    let mut first = in_time(&mut paused, "a", &watch).await;
    let read = counter.read(first.token()).unwrap();

    let second = awaited(&mut other, "a", LONG).await;
    assert!(first.left().is_zero(), "it was granted before the lease ended");
    assert!(watch.granted(0, 2, &second));
    assert!(second.token() > first.token());
    let theirs = counter.read(second.token()).unwrap();
    counter.write(second.token(), theirs + 1).unwrap();

    let late = counter.write(first.token(), read + 1);
    assert!(!paused.renew(&mut first, LONG).await.unwrap(), "a lease that ended was renewed");
    assert!(!paused.release(first).await.unwrap(), "a lease that ended was released");
    assert!(paused.acquire("a", SHORT).await.unwrap().is_none(), "the other's lock was released");
    watch.releasing(0, 2);
    assert!(other.release(second).await.unwrap());
    (late, audit(&watch, &[counter]))
}

#[test]
fn a_holder_that_outlives_its_lease_is_fenced_off() {
    on_each(Durability::None, |world| {
        let (late, found) = wait(pause_past_the_lease(world, Fencing::Full));
        assert_eq!(late, Err(Stale));
        assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
        assert_eq!((found.evidence["outlived"], found.evidence["refused"]), (1, 1), "{found:?}");
    });
}

#[test]
fn without_fencing_two_hold_the_lock_and_an_update_is_lost() {
    on_each(Durability::None, |world| {
        let (late, found) = wait(pause_past_the_lease(world, Fencing::Off));
        assert_eq!(late, Ok(()), "nothing stops the stale write");
        assert_eq!((found.verdict, found.count("lost")), (Verdict::Broken, 1), "{found:?}");
        assert_eq!((found.evidence["outlived"], found.count("overlap")), (1, 0), "{found:?}");
    });
}

/// A stale write arrives after the next holder has read, and before it has written.
async fn write_between_read_and_write(world: &World, fencing: Fencing) -> (Result<(), Stale>, Audit) {
    let (watch, counter) = (Watch::new(1), GuardedCounter::new(fencing));
    let (mut paused, mut other) = (world.locker().await, world.locker().await);
    let first = in_time(&mut paused, "b", &watch).await;
    let read = counter.read(first.token()).unwrap();
    let second = awaited(&mut other, "b", LONG).await;
    assert!(watch.granted(0, 2, &second));
    let theirs = counter.read(second.token()).unwrap();
    let late = counter.write(first.token(), read + 1);
    counter.write(second.token(), theirs + 1).unwrap();
    watch.releasing(0, 2);
    assert!(other.release(second).await.unwrap());
    (late, audit(&watch, &[counter]))
}

#[test]
fn tokens_must_be_looked_at_when_reading_too() {
    on_each(Durability::None, |world| {
        let (late, found) = wait(write_between_read_and_write(world, Fencing::WritesOnly));
        assert_eq!(late, Ok(()), "the next holder has not written yet");
        assert_eq!((found.verdict, found.count("lost")), (Verdict::Broken, 1), "{found:?}");
        let (late, found) = wait(write_between_read_and_write(world, Fencing::Full));
        assert_eq!((late, found.verdict), (Err(Stale), Verdict::Holds), "{found:?}");
    });
}

#[test]
fn a_lock_is_held_until_its_lease_ends_and_as_long_as_it_is_renewed() {
    on_each(Durability::None, |world| {
        wait(async {
            let (mut holder, mut other) = (world.locker().await, world.locker().await);
            let mut grant = taken(&mut holder, "a", LONG).await;
            let long = grant.until();
            assert!(holder.renew(&mut grant, SHORT).await.unwrap());
            assert_eq!(grant.until(), long, "a renewal takes nothing away");
            tokio::time::sleep(SHORT + SHORT / 2).await;
            assert!(other.acquire("a", SHORT).await.unwrap().is_none());
            assert!(holder.release(grant).await.unwrap());

            let lease = Duration::from_secs(2);
            let mut grant = taken(&mut holder, "a", lease).await;
            let (mut begun, first) = (Instant::now(), Instant::now());
            while begun.elapsed() < lease + SHORT {
                let renewed = holder.renew(&mut grant, lease).await.unwrap();
                let theirs = other.acquire("a", SHORT).await.unwrap();
                if grant.left().is_zero() {
                    // the machine stood still, and the renewal came too late: begins again
                    assert!(first.elapsed() < SLACK, "no renewal comes in time");
                    grant = awaited(&mut holder, "a", lease).await;
                    begun = Instant::now();
                    continue;
                }
                assert!(renewed && theirs.is_none(), "it was renewed");
                tokio::time::sleep(SHORT).await;
            }
            let next = awaited(&mut other, "a", SHORT).await;
            assert!(grant.left().is_zero(), "the lease had {:?} left", grant.left());
            assert!(grant.until().elapsed() < SLACK, "{:?} after its end", grant.until().elapsed());
            assert!(next.token() > grant.token());
        });
    });
}

#[test]
fn tokens_grow_with_every_grant_of_a_lock() {
    on_each(Durability::None, |world| {
        wait(async {
            let (mut one, mut two) = (world.locker().await, world.locker().await);
            let mut last = 0;
            for turn in 0..6 {
                let locker = if turn % 2 == 0 { &mut one } else { &mut two };
                // the lock is released, or left until its lease ends
                let lease = if turn % 3 == 0 { Duration::from_millis(20) } else { LONG };
                let grant = awaited(locker, "a", lease).await;
                assert!(grant.token() > last, "{} after {last}", grant.token());
                last = grant.token();
                if turn % 3 != 0 {
                    assert!(locker.release(grant).await.unwrap());
                }
            }
        });
    });
}

#[test]
fn locks_of_other_names_and_other_trials_are_others() {
    on_each(Durability::None, |world| {
        wait(async {
            let mut locker = world.locker().await;
            let held = taken(&mut locker, "a", LONG).await;
            for name in ["b", "", "a:b", "'; DROP TABLE a; --", "été"] {
                let grant = taken(&mut locker, name, LONG).await;
                assert!(locker.acquire(name, LONG).await.unwrap().is_none(), "{name:?} is not held");
                assert!(locker.release(grant).await.unwrap());
            }
            let later = Place { trial: 11, ..world.place.clone() };
            world.service.prepare(&later).await.unwrap();
            let mut other = world.service.connect(&later).await.unwrap();
            taken(&mut other, "a", LONG).await;
            world.service.clear(&later).await.unwrap();
            assert!(locker.release(held).await.unwrap(), "it went with another trial's");

            world.service.clear(&world.place).await.unwrap();
            world.service.prepare(&world.place).await.unwrap();
            taken(&mut world.locker().await, "a", LONG).await;
            world.service.remove(&world.place.namespace).await.unwrap();
        });
    });
}

#[test]
fn what_a_killed_server_knew_it_knows_again_on_the_durability_levels_that_say_so() {
    for durability in [Durability::Process, Durability::Disk] {
        on_each(durability, |world| {
            let (held, released) = wait(async {
                let mut locker = world.locker().await;
                let released = taken(&mut locker, "released", LONG).await;
                let token = released.token();
                assert!(locker.release(released).await.unwrap());
                (taken(&mut locker, "held", LONG).await, token)
            });
            world.private.kill();
            world.private.restart();
            world.service = world.private.open(open);
            wait(async {
                let mut locker = world.locker().await;
                assert!(locker.acquire("held", LONG).await.unwrap().is_none(), "a lease was forgotten");
                assert!(taken(&mut locker, "released", LONG).await.token() > released);
                assert!(locker.release(held).await.unwrap(), "its holder is another connection's");
                taken(&mut locker, "held", LONG).await;
            });
        });
    }
}

#[test]
fn a_server_that_forgets_grants_twice_and_under_the_same_token() {
    let Some(mut world) = World::start("redis", Durability::None) else { return };
    let watch = Watch::new(1);
    let first = wait(async { taken(&mut world.locker().await, "a", LONG).await });
    assert!(watch.granted(0, 1, &first));
    world.private.kill();
    world.private.restart();
    world.service = world.private.open(open);
    let second = wait(async { taken(&mut world.locker().await, "a", LONG).await });
    assert_eq!(second.token(), first.token());
    assert!(watch.granted(0, 2, &second));
    let found = audit(&watch, &[]);
    assert_eq!((found.count("overlap"), found.count("token")), (1, 1), "{found:?}");
}

/// A proxy between a client and its server; once told to, it swallows the server's answers and hangs up.
struct Swallower {
    address: Address,
    swallow: Arc<AtomicBool>,
}

impl Swallower {
    fn before(server: &Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallow = Arc::new(AtomicBool::new(false));
        let (told, server_at) = (Arc::clone(&swallow), server.endpoint(0));
        // the thread ends with the test's process, or with its connections
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&server_at).unwrap();
                let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut up, &mut down));
                let told = Arc::clone(&told);
                thread::spawn(move || forward(server, client, &told));
            }
        });
        Self { address: Address { port: Some(port), ..server.clone() }, swallow }
    }
}

fn forward(mut server: TcpStream, mut client: TcpStream, swallow: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = server.read(&mut bytes) {
        if swallow.load(Ordering::SeqCst) || client.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn an_answer_that_is_lost_may_leave_the_lock_taken_until_its_lease_ends() {
    on_each(Durability::None, |world| {
        let swallower = Swallower::before(world.private.address());
        wait(async {
            let service = open(&swallower.address).await.unwrap();
            let mut cut_off = service.connect(&world.place).await.unwrap();
            let mut other = world.locker().await;
            swallower.swallow.store(true, Ordering::SeqCst);
            let asked = Instant::now();
            let error = cut_off.acquire("a", SHORT).await.unwrap_err();
            assert!(matches!(&error, LockError::Unknown(fault) if fault.connection_lost), "{error:?}");
            let grant = awaited(&mut other, "a", LONG).await;
            assert!(asked.elapsed() >= SHORT, "the request did take the lock");
            // a later request on the same connection is proved not to have been sent, or is in doubt too
            assert!(cut_off.acquire("b", SHORT).await.unwrap_err().fault().connection_lost);
            assert!(other.release(grant).await.unwrap());
        });
    });
}

#[test]
fn what_the_server_refuses_has_had_no_effect() {
    let Some(world) = World::start("postgres", Durability::None) else { return };
    wait(async {
        let mut locker = world.locker().await;
        let refused = locker.acquire("no\0name", SHORT).await.unwrap_err();
        assert!(matches!(&refused, LockError::Failed(fault) if !fault.connection_lost), "{refused:?}");
        taken(&mut locker, "a", SHORT).await;
        world.service.clear(&world.place).await.unwrap();
        let refused = locker.acquire("a", SHORT).await.unwrap_err();
        assert!(matches!(refused, LockError::Failed(_)), "{refused:?}");
    });
}

#[test]
fn asking_postgres_for_a_lock_that_is_held_writes_nothing() {
    let Some(world) = World::start("postgres", Durability::None) else { return };
    let transactions = async || {
        let store = Postgres::open(world.private.address()).await.unwrap();
        let numbered = "SELECT txid_snapshot_xmax(txid_current_snapshot())";
        let row = store.on_server("counting", async |client| client.query_one(numbered, &[]).await).await;
        row.unwrap().get::<_, i64>(0)
    };
    wait(async {
        let (mut holder, mut other) = (world.locker().await, world.locker().await);
        let before = transactions().await;
        taken(&mut holder, "a", LONG).await;
        let taken = transactions().await;
        assert!(taken > before, "a grant is a write");
        for _ in 0..100 {
            assert!(other.acquire("a", LONG).await.unwrap().is_none());
        }
        let written = transactions().await - taken;
        // the server itself may write too, for its own housekeeping
        assert!(written < 50, "{written} writes");
    });
}
