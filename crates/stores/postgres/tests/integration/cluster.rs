//! A leader and its standbys, on real servers.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use acidtest_engine::{Load, Measurement, Outcome};
use acidtest_model::{
    Address, Consistency, Durability, EffectiveReplication, Lock, MemberId, Replication, Role,
};
use acidtest_store_postgres::Postgres;
use acidtest_testbed::{InventoryRun, NAMESPACE, Private, for_operations, for_time, until, wait};
use acidtest_workloads::{Place, Replica, Standing, Store, Verdict};
use tokio::time::timeout;

use crate::common::{execute, on_server};

/// Longer than any test waits for what comes.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long something is watched that must not happen.
const HANGS: Duration = Duration::from_secs(3);

fn server(number: u16) -> MemberId {
    MemberId::numbered(Role::Server, number)
}

/// A leader that waits for its log, and the store on it alone; none if the store is left out of the tests.
fn leader() -> Option<(Private, Postgres)> {
    let mut leader = Private::start("postgres", Durability::Process)?;
    let store = leader.open(Postgres::open);
    Some((leader, store))
}

/// A standby of this number, and the store on it alone.
fn standby(leader: &Private, number: u16) -> (Private, Postgres) {
    let mut standby = Private::replica_of(leader, number);
    let store = standby.open(Postgres::open);
    (standby, store)
}

fn operated(store: &Postgres) -> &dyn Replica {
    store.replica().unwrap()
}

fn standing(store: &Postgres) -> Standing {
    wait(operated(store).standing()).unwrap()
}

/// Waits until the replica shows all that the leader has.
fn caught_up(leader: &Postgres, replica: &Postgres) {
    let written = standing(leader).received;
    until("the replica has what its leader has", PATIENCE, || standing(replica).applied >= written);
}

fn acknowledge(leader: &Postgres, level: Replication, replicas: &[MemberId]) {
    promise(leader, level, Consistency::Eventual, replicas);
}

fn promise(leader: &Postgres, level: Replication, consistency: Consistency, replicas: &[MemberId]) {
    wait(operated(leader).acknowledge(level, consistency, replicas)).unwrap();
}

fn replication(leader: &Postgres, nodes: u32) -> EffectiveReplication {
    wait(operated(leader).replication(nodes)).unwrap()
}

fn write(store: &Postgres, sql: &str) {
    assert!(is_written(store, sql, PATIENCE), "{sql}");
}

/// Whether a commit is acknowledged, within this time.
fn is_written(store: &Postgres, sql: &str, within: Duration) -> bool {
    let write = store.on_server("writing", async |client| client.batch_execute(sql).await);
    wait(async { timeout(within, write).await }).is_ok_and(|written| written.is_ok())
}

fn count(measured: &Measurement, outcome: Outcome) -> u64 {
    measured.operations.iter().map(|operation| operation.count(outcome)).sum()
}

/// Cancels each wait of a commit for its replicas while something is done.
fn cancelling<T: Send>(address: &Address, work: impl FnOnce() -> T + Send) -> T {
    const CANCEL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                execute(address, CANCEL);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        worked
    })
}

#[test]
fn a_commit_whose_wait_was_cancelled_is_unknown() {
    let Some((leader, store)) = leader() else { return };
    // most of the warnings would be lost
    execute(leader.address(), "ALTER SYSTEM SET client_min_messages = error");
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let runs = [(Lock::Native, 1), (Lock::Hard, 2), (Lock::Soft, 3), (Lock::None, 4)]
        .map(|(lock, trial)| InventoryRun::random(lock, trial));
    for run in &runs {
        run.load(&store);
    }
    // nobody of this name is there
    acknowledge(&store, Replication::Quorum, &[server(9)]);
    for run in &runs {
        let measured = cancelling(leader.address(), || run.drive(&store, &for_operations(20), 2));
        assert!(measured.stopped.is_none(), "{measured:?}");
        assert_eq!(count(&measured, Outcome::Ok), 0, "{:?}: {measured:?}", run.lock);
        assert!(count(&measured, Outcome::Unknown) > 0, "{:?}: {measured:?}", run.lock);
        let words = "committed on the leader alone: its wait for replicas was cancelled (01000)";
        assert!(format!("{:?}", measured.faults).contains(words), "{measured:?}");
    }
    // the driver, whose connection it costs
    execute(leader.address(), "ALTER SYSTEM RESET client_min_messages");
    execute(leader.address(), "SELECT pg_reload_conf()");
    let made = cancelling(leader.address(), || {
        wait(store.on_server("making", async |client| client.batch_execute("CREATE TABLE alone ()").await))
    });
    assert!(made.unwrap_err().to_string().contains("closed"));

    acknowledge(&store, Replication::Async, &[]);
    write(&store, "CREATE TABLE others ()");
    for run in &runs {
        let audit = run.audit(&store, false);
        assert_ne!(audit.verdict, Verdict::Broken, "{:?}", run.lock);
    }
}

#[test]
fn a_leader_waits_for_its_replicas_and_one_of_them_takes_over() {
    let Some((mut leader, first)) = leader() else { return };
    let ((two, second), (mut three, third)) = (standby(&leader, 2), standby(&leader, 3));
    let (led, followed) = (standing(&first), standing(&second));
    assert!(led.leads && led.received == led.applied && led.received > 0, "{led:?}");
    assert!(!followed.leads && followed.applied > 0 && followed.applied <= followed.received, "{followed:?}");

    // whichever is named first
    let addresses = [leader.address(), two.address(), three.address()];
    let mut clients = Vec::new();
    for at in 0..3 {
        let mut others = addresses.map(Clone::clone).to_vec();
        let address = others.remove(at);
        let store = wait(Postgres::open_among(&address, &others)).unwrap();
        assert_eq!(store.address(), leader.address());
        clients.push(store);
    }
    let store = clients.last().unwrap();
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let run = InventoryRun::random(Lock::Native, 1);
    run.load(store);
    // those of another trial, and of no trial, are not told
    let another = InventoryRun::random(Lock::Native, 11);
    another.load(store);

    let contents = |store: &Postgres, place: &Place| wait(operated(store).contents(place)).unwrap();
    for replica in [&second, &third] {
        caught_up(&first, replica);
        assert_eq!(contents(&first, &run.place), contents(replica, &run.place));
    }
    let held = contents(&first, &run.place);
    assert_eq!(held.keys().collect::<Vec<_>>(), ["stock_1"]);
    assert!(held["stock_1"].starts_with("24 rows, "), "{held:?}");

    // each level is read back as it was asked for
    let both = [server(2), server(3)];
    for (level, words) in [
        (Replication::All, "ANY 2 (\"server-2\", \"server-3\")"),
        (Replication::Quorum, "ANY 1 (\"server-2\", \"server-3\")"),
        (Replication::Async, "synchronous_standby_names=''"),
    ] {
        acknowledge(&first, level, &both);
        let read = replication(&first, 3);
        assert_eq!((read.level, read.following), (level, 2), "{}", read.because);
        assert!(read.because.contains(words), "{}", read.because);
    }
    let semi =
        wait(operated(&first).acknowledge(Replication::Semi, Consistency::Eventual, &both)).unwrap_err();
    assert!(semi.to_string().contains("no timeout"), "{semi}");

    // one of two is gone
    three.kill();
    for (level, waits) in
        [(Replication::Async, false), (Replication::Quorum, false), (Replication::All, true)]
    {
        acknowledge(&first, level, &both);
        // which no timeout ends
        let sql = format!("SET statement_timeout = '500ms'; CREATE TABLE {NAMESPACE}.{}_2 ()", level.name());
        let within = if waits { HANGS } else { PATIENCE };
        assert_eq!(is_written(store, &sql, within), !waits, "{level:?}");
    }
    // whoever waits is let go
    acknowledge(&first, Replication::Quorum, &both);
    three.restart();
    until("it follows again", PATIENCE, || replication(&first, 3).following == 2);

    leader.kill();
    let said = wait(store.owner(NAMESPACE)).unwrap_err().to_string();
    assert!(said.contains("none of 3 servers takes writes") && said.contains("it is a replica"), "{said}");
    assert!(said.contains("remedy: "), "{said}");
    // set before it leads, so that it acknowledges nothing that it alone has
    acknowledge(&second, Replication::Quorum, &[server(3)]);
    wait(operated(&second).promote()).unwrap();
    assert!(standing(&second).leads);
    assert!(!is_written(store, &format!("CREATE TABLE {NAMESPACE}.alone_2 ()"), HANGS));
    wait(operated(&third).follow(server(3), two.address())).unwrap();
    until("the other follows", PATIENCE, || replication(&second, 2).following == 1);
    for client in &clients {
        write(client, &format!("INSERT INTO {NAMESPACE}.marker SELECT * FROM {NAMESPACE}.marker"));
        assert_eq!(client.address(), two.address());
    }
    let measured = run.drive(store, &for_operations(100), 2);
    assert!(count(&measured, Outcome::Ok) > 0 && measured.faults.is_empty(), "{measured:?}");
    assert_eq!(run.audit(store, true).verdict, Verdict::Holds);
    caught_up(&second, &third);
    assert_eq!(contents(&second, &run.place), contents(&third, &run.place));

    // two that lead have what they were told
    wait(operated(&third).promote()).unwrap();
    let change =
        format!("UPDATE {NAMESPACE}.stock_1 SET version = version + 1 WHERE ctid = '(0,1)' OR sku = 1");
    write(&third, &change);
    let (here, there) = (contents(&second, &run.place), contents(&third, &run.place));
    assert_ne!(here, there);
    assert!(there["stock_1"].starts_with("24 rows, "));
}

/// As where the first replica is promoted, whatever it has: the other must be copied anew.
#[test]
fn a_replica_that_is_ahead_of_its_leader_does_not_follow() {
    let Some((mut leader, first)) = leader() else { return };
    let ((two, second), (mut three, third)) = (standby(&leader, 2), standby(&leader, 3));
    three.kill();
    write(&first, "CREATE TABLE late (a int); INSERT INTO late VALUES (1)");
    caught_up(&first, &second);
    leader.kill();
    three.restart();
    until("it lets clients read", PATIENCE, || wait(operated(&third).standing()).is_ok());
    assert!(standing(&third).received < standing(&second).received);
    wait(operated(&third).promote()).unwrap();
    wait(operated(&second).follow(server(2), three.address())).unwrap();
    thread::sleep(HANGS);
    assert_eq!(replication(&third, 2).following, 0);
    // it still has what its leader lacks
    write(&third, "CREATE TABLE other ()");
    assert!(on_server(two.address(), async |client| client.query("SELECT FROM late", &[]).await).is_ok());
}

/// The client moves on to the replica that is promoted, whether its leader is killed or only writes no more, and nothing that
/// the replica had confirmed is lost.
#[test]
fn clients_go_on_with_whoever_is_promoted() {
    for is_killed in [true, false] {
        let Some((mut leader, first)) = leader() else { return };
        let (two, second) = standby(&leader, 2);
        let store = wait(Postgres::open_among(two.address(), &[leader.address().clone()])).unwrap();
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        let run = InventoryRun::random(Lock::Hard, 1);
        run.load(&store);
        acknowledge(&first, Replication::All, &[server(2)]);
        let measured = thread::scope(|scope| {
            let promotes = scope.spawn(|| {
                thread::sleep(Duration::from_secs(1));
                if is_killed {
                    leader.kill();
                } else {
                    execute(leader.address(), "ALTER SYSTEM SET default_transaction_read_only = on");
                    execute(leader.address(), "SELECT pg_reload_conf()");
                    thread::sleep(Duration::from_millis(500));
                }
                wait(operated(&second).promote()).unwrap();
            });
            // the promotion takes as long as it takes
            let measured = run.drive(&store, &Load { patience: PATIENCE, ..for_time(8_000) }, 4);
            promotes.join().unwrap();
            measured
        });
        assert!(measured.stopped.is_none(), "{measured:?}");
        assert_eq!(store.address(), two.address());
        let ok = format!("SELECT xact_commit FROM pg_stat_database WHERE datname = '{}'", two.address().path);
        let row = on_server(two.address(), async |client| client.query_one(&ok, &[]).await).unwrap();
        assert!(row.get::<_, i64>(0) > 100, "the clients have gone on: {row:?}");
        assert_ne!(run.audit(&store, false).verdict, Verdict::Broken, "{is_killed}: {measured:?}");
    }
}

/// A table of one number.
fn make_number(leader: &Postgres) {
    write(leader, "CREATE TABLE number (n bigint); INSERT INTO number VALUES (0)");
}

const ONE_MORE: &str = "UPDATE number SET n = n + 1";

/// What a member answers, on a connection of its own.
fn number(store: &Postgres) -> i64 {
    let ask = async |client: &tokio_postgres::Client| {
        client.query_one("SELECT n FROM number", &[]).await?.try_get(0)
    };
    wait(store.on_server("reading", ask)).unwrap()
}

/// Has a replica receive the log and show nothing more of it, or go on.
fn pause(replica: &Private) {
    execute(replica.address(), "SELECT pg_wal_replay_pause()");
    let state = "SELECT pg_get_wal_replay_pause_state() = 'paused'";
    until("it shows nothing more", PATIENCE, || {
        on_server(replica.address(), async |client| client.query_one(state, &[]).await).unwrap().get(0)
    });
}

fn resume(replica: &Private) {
    execute(replica.address(), "SELECT pg_wal_replay_resume()");
}

/// Raises the number by connections of its own, and asks each replica for it as soon as that is acknowledged.
fn assert_never_stale(leader: &Private, replicas: &[&Private]) {
    const UPDATES: usize = 300;
    let ask = "SELECT n FROM number";
    let connect = async |of: &Private| {
        let Address { user, port, path, .. } = of.address();
        let (user, port) = (user.as_ref().unwrap(), port.unwrap());
        let options = format!("host=127.0.0.1 port={port} user={user} dbname={path}");
        let (client, connection) = tokio_postgres::connect(&options, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    wait(async {
        let writer = connect(leader).await;
        let mut readers = Vec::new();
        for replica in replicas {
            readers.push(connect(replica).await);
        }
        for _ in 0..UPDATES {
            let row = writer.query_one(&format!("{ONE_MORE} RETURNING n"), &[]).await.unwrap();
            let written: i64 = row.get(0);
            for reader in &readers {
                let read: i64 = reader.query_one(ask, &[]).await.unwrap().get(0);
                assert_eq!(read, written);
            }
        }
    });
}

#[test]
fn only_what_waits_until_it_is_applied_is_seen_by_every_read_after_it() {
    let Some((leader, first)) = leader() else { return };
    let ((two, second), (three, third)) = (standby(&leader, 2), standby(&leader, 3));
    let both = [server(2), server(3)];
    make_number(&first);
    for replica in [&second, &third] {
        caught_up(&first, replica);
    }
    for (level, consistency, is_strong) in [
        (Replication::All, Consistency::Strong, true),
        // the replica that is read may not be the one that has applied it
        (Replication::Quorum, Consistency::Strong, false),
        (Replication::All, Consistency::Eventual, false),
        (Replication::All, Consistency::Strong, true),
    ] {
        promise(&first, level, consistency, &both);
        let read = replication(&first, 3);
        assert_eq!(read.level, level, "{}", read.because);
        assert_eq!(read.consistency == Consistency::Strong, is_strong, "{}", read.because);
        let commit = if consistency == Consistency::Strong { "remote_apply" } else { "on" };
        assert!(read.because.contains(&format!("synchronous_commit={commit}: ")), "{}", read.because);
        let effective = wait(first.effective()).unwrap();
        assert_eq!(effective.durability, Durability::Process, "{}", effective.because);
        assert!(effective.because.contains(commit), "{}", effective.because);
    }
    assert_never_stale(&leader, &[&two, &three]);
    let held = number(&first);

    // a replica that has received it, and does not show it
    pause(&three);
    assert!(!is_written(&first, ONE_MORE, HANGS));
    assert_eq!(number(&third), held);
    // nor does the leader; the other replica already does, so that reads at several members may go back
    assert_eq!(number(&first), held);
    assert_eq!(number(&second), held + 1);
    resume(&three);
    until("all show it", PATIENCE, || [&first, &second, &third].map(number) == [held + 1; 3]);

    // without that wait it is on both disks, and one does not show it
    promise(&first, Replication::All, Consistency::Eventual, &both);
    pause(&three);
    write(&first, ONE_MORE);
    assert_eq!([&first, &third].map(number), [held + 2, held + 1]);
    resume(&three);
    until("it shows it", PATIENCE, || number(&third) == held + 2);
}

/// The level is set on the replica before it leads.
#[test]
fn a_replica_that_is_promoted_waits_until_the_others_have_applied_what_it_writes() {
    let Some((mut leader, first)) = leader() else { return };
    let ((two, second), (three, third)) = (standby(&leader, 2), standby(&leader, 3));
    promise(&first, Replication::All, Consistency::Strong, &[server(2), server(3)]);
    make_number(&first);
    assert_never_stale(&leader, &[&two, &three]);
    let held = number(&first);
    leader.kill();
    promise(&second, Replication::All, Consistency::Strong, &[server(3)]);
    assert_eq!(replication(&second, 2).consistency, Consistency::Strong);
    assert_eq!([&second, &third].map(number), [held; 2]);
    wait(operated(&second).promote()).unwrap();
    assert!(!is_written(&second, ONE_MORE, HANGS));
    wait(operated(&third).follow(server(3), two.address())).unwrap();
    until("what waited is there", PATIENCE, || [&second, &third].map(number) == [held + 1; 2]);
    assert_never_stale(&two, &[&three]);
    pause(&three);
    assert!(!is_written(&second, ONE_MORE, HANGS));
    resume(&three);
}

/// A replica that was killed lets clients read again once its data are consistent, which they are before it shows what it had shown.
#[test]
fn a_replica_that_was_killed_shows_less_than_it_had_confirmed() {
    let Some((leader, first)) = leader() else { return };
    let (mut two, second) = standby(&leader, 2);
    make_number(&first);
    caught_up(&first, &second);
    promise(&first, Replication::All, Consistency::Strong, &[server(2)]);
    // it begins again here
    write(&first, "CHECKPOINT");
    caught_up(&first, &second);
    write(&second, "CHECKPOINT");
    // what it does in less than a second otherwise: it reads this once it is started again
    execute(two.address(), "ALTER SYSTEM SET recovery_min_apply_delay = '1h'");
    for _ in 0..10 {
        write(&first, ONE_MORE);
        assert_eq!(number(&second), number(&first));
    }
    let held = number(&first);
    two.kill();
    two.restart();
    until("it lets clients read", PATIENCE, || wait(operated(&second).standing()).is_ok());
    assert!(number(&second) < held);
    // it has all of it, and follows nobody before it has applied that
    assert_eq!(replication(&first, 2).following, 0);
    execute(two.address(), "ALTER SYSTEM RESET recovery_min_apply_delay");
    execute(two.address(), "SELECT pg_reload_conf()");
    until("it follows", PATIENCE, || replication(&first, 2).following == 1);
    assert_eq!(number(&second), held);
}
