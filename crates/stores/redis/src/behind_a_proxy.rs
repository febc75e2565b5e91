//! A correct server behind something that passes on what it is told, and answers some of it in words of its own.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use acidtest_engine::{Measurement, Outcome};
use acidtest_model::{Address, Durability, Lock};
use acidtest_testbed::{
    InventoryRun, NAMESPACE, Private, for_operations, for_time,
    queue::{QueueRun, few},
    records::RecordsRun,
    wait,
};
use acidtest_workloads::{Audit, Finding, Store, Verdict, queue};

use crate::{
    Redis,
    made_up::{Command, proxy},
};

/// What twemproxy says of a server that takes too long.
const TIMED_OUT: &[u8] = b"-ERR Connection timed out\r\n";

/// Which commands a proxy answers with an error, of those that it has passed on.
#[derive(Clone, Copy, Debug)]
struct Errs {
    /// One command in so many.
    one_in: u64,
    /// Only these.
    to: &'static [&'static str],
}

/// A server, and the store as it is reached by the proxy.
struct Behind {
    _private: Private,
    direct: Redis,
    proxied: Redis,
    /// How many commands the proxy has answered with an error.
    erred: Arc<AtomicU64>,
}

impl Behind {
    fn start(errs: Errs) -> Option<Self> {
        let mut private = Private::start("redis", Durability::None)?;
        let direct = private.open(Redis::open);
        wait(direct.create(NAMESPACE, "run")).unwrap();
        let (erred, asked) = (Arc::<AtomicU64>::default(), AtomicU64::default());
        let counted = Arc::clone(&erred);
        let swap = move |command: &Command| {
            let is_meant = errs.to.iter().any(|name| command[0] == name.as_bytes());
            // by a hash: who waits for a lock asks in a rhythm, which would have its turn each time
            let by = BuildHasherDefault::<DefaultHasher>::default();
            let errs = is_meant && by.hash_one(asked.fetch_add(1, SeqCst)).is_multiple_of(errs.one_in);
            counted.fetch_add(u64::from(errs), SeqCst);
            errs.then_some(TIMED_OUT)
        };
        let address: Address = proxy(private.address(), swap);
        let proxied = wait(Redis::open(&address)).unwrap();
        Some(Self { _private: private, direct, proxied, erred })
    }

    /// Asserts that nobody accuses the server, although the proxy has erred.
    #[track_caller]
    fn is_not_accused(&self, what: &str, measured: &Measurement, audit: &Audit) {
        let seen = format!("{what}: {audit:?} {:?}", measured.faults);
        assert!(self.erred.load(SeqCst) > 0, "{seen}");
        assert!(audit.findings.iter().all(|Finding { count, .. }| *count == 0), "{seen}");
        assert_eq!(audit.verdict, Verdict::Holds, "{seen}");
        assert!(measured.faults.keys().any(|words| words.contains("Connection timed out")), "{seen}");
        let ended = |outcome| measured.operations.iter().map(|each| each.count(outcome)).sum::<u64>();
        assert!(ended(Outcome::Unknown) > 0 && ended(Outcome::Ok) > 0, "{seen}");
    }
}

#[test]
fn no_capture_or_release_is_called_undone_that_a_proxy_may_have_passed_on() {
    let Some(behind) = Behind::start(Errs { one_in: 50, to: &["EVALSHA", "EXEC", "HINCRBY"] }) else {
        return;
    };
    for (trial, lock) in (0..).zip([Lock::Native, Lock::Soft]) {
        let case = InventoryRun::random(lock, trial);
        case.load(&behind.direct);
        let measured = case.drive(&behind.proxied, &for_operations(4_000), 4);
        behind.is_not_accused(&format!("{lock}"), &measured, &case.audit(&behind.direct, false));
        case.unload(&behind.direct);
    }
}

/// Every step of a transaction may be answered so, and of a lock that is taken and given up.
#[test]
fn no_step_of_a_capture_proves_more_than_it_says() {
    let to = &["EVALSHA", "WATCH", "HGETALL", "MULTI", "HINCRBY", "HSET", "EXEC"];
    let Some(behind) = Behind::start(Errs { one_in: 101, to }) else { return };
    for (trial, lock) in (0..).zip([Lock::Soft, Lock::Hard]) {
        let case = InventoryRun::random(lock, trial);
        case.load(&behind.direct);
        // a lock that nobody knows of is held until its lease is over
        let measured = case.drive(&behind.proxied, &for_operations(500), 2);
        behind.is_not_accused(&format!("{lock}"), &measured, &case.audit(&behind.direct, false));
        case.unload(&behind.direct);
    }
}

#[test]
fn no_update_is_called_undone_that_a_proxy_may_have_passed_on() {
    let Some(behind) = Behind::start(Errs { one_in: 50, to: &["EVALSHA", "EXEC", "HSET"] }) else { return };
    for (trial, (lock, mix)) in (0..).zip([(Lock::Native, "a"), (Lock::Native, "d"), (Lock::Soft, "f")]) {
        let case = RecordsRun::of(lock, trial, mix);
        case.load(&behind.direct);
        let measured = case.drive(&behind.proxied, &for_operations(4_000), 4);
        let (audit, _) = case.judge(&behind.direct);
        behind.is_not_accused(&format!("{lock} {mix}"), &measured, &audit);
        case.unload(&behind.direct);
    }
}

#[test]
fn no_message_is_called_lost_or_unasked_that_a_proxy_may_have_passed_on() {
    let to = &["XADD", "XACK", "XREADGROUP", "EXEC"];
    let Some(behind) = Behind::start(Errs { one_in: 50, to }) else { return };
    let ways =
        [(queue::Ack::Confirm, queue::Consume::Ack), (queue::Ack::Transaction, queue::Consume::Transaction)];
    for (trial, (ack, consume)) in (0..).zip(ways) {
        let case = QueueRun::new(trial, queue::Parameters { ack, consume, ..few() });
        case.load(&behind.direct);
        let measured = case.drive(&behind.proxied, 500);
        behind.is_not_accused(&format!("{ack:?}"), &measured, &case.audit(&behind.direct));
        case.unload(&behind.direct);
    }
}

/// A server that has become a replica turns its clients away. They ask it now and then, until it serves again.
#[test]
fn a_server_that_is_no_primary_any_more_is_left_in_peace() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(redis.create(NAMESPACE, "run")).unwrap();
    let case = InventoryRun::random(Lock::Native, 0);
    case.load(&redis);
    let mut raw = redis::Client::open(private.address().to_string()).unwrap().get_connection().unwrap();
    let mut replicate = move |of: [&str; 2]| redis::cmd("REPLICAOF").arg(&of).exec(&mut raw).unwrap();
    replicate(["127.0.0.1", "1"]);
    let measured = case.drive(&redis, &for_time(1_000), 2);
    let refused: u64 = measured.faults.values().sum();
    assert!(measured.faults.keys().all(|words| words.contains("READONLY")), "{:?}", measured.faults);
    // each of the two waits for 1 + 2 + 4 + … + 128 ms, and then for 250 ms each time
    assert!((2..=2 * 12).contains(&refused), "{:?}", measured.faults);
    assert_eq!(measured.reconnects, refused);
    replicate(["NO", "ONE"]);
    let measured = case.drive(&redis, &for_operations(300), 2);
    assert!(measured.faults.is_empty(), "{:?}", measured.faults);
    assert_eq!(case.audit(&redis, false).verdict, Verdict::Holds);
}
