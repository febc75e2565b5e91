//! A server behind a pooler: what shares sessions is refused, what keeps them apart is used.

use crate::common::{POSTGRES, execute, on_server};
use acidtest_engine::{Outcome, Stop};
use acidtest_model::{Address, Durability, Lock};
use acidtest_store_postgres::Postgres;
use acidtest_testbed::{
    InventoryRun, Multiplexer, NAMESPACE, PgBouncer, RewritingPool, for_operations, for_time, wait,
};
use acidtest_workloads::{Store, Verdict};
use futures_util::future::join_all;

/// What a session has that its user has not set: settings of others, and statements that others have prepared.
fn left_by_others(address: &Address) -> Vec<String> {
    let left = "SELECT name FROM pg_settings WHERE source = 'session' AND name <> ALL (
                  ARRAY['application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings'])
                UNION ALL SELECT name FROM pg_prepared_statements WHERE statement NOT LIKE '%pg_prepared_statements%'";
    on_server(address, async |client| {
        let rows = client.simple_query(left).await.unwrap();
        let rows = rows.iter().filter_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
            _ => None,
        });
        rows.collect()
    })
}

/// Has the pool hold this many sessions.
fn fill(pool: &Address, sessions: usize) {
    let begin = |_| async {
        let options =
            format!("host=127.0.0.1 port={} user=acidtest dbname={}", pool.port.unwrap(), pool.path);
        let (client, connection) = tokio_postgres::connect(&options, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN").await.unwrap();
        client
    };
    wait(async {
        let held = join_all((0..sessions).map(begin)).await;
        for client in &held {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}

/// Whichever way the pool chooses among its sessions, and however many it has. Whoever uses it next finds nothing changed.
#[test]
fn a_pool_that_shares_sessions_is_refused_and_left_as_it_was() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    for (mode, robin, sessions) in
        [("transaction", 0, 1), ("transaction", 0, 5), ("transaction", 1, 5), ("statement", 0, 1)]
    {
        let settings = [format!("pool_mode = {mode}"), format!("server_round_robin = {robin}")];
        let Some(pool) = PgBouncer::before(world.address(), &settings.each_ref().map(String::as_str)) else {
            return;
        };
        if sessions > 1 {
            fill(pool.address(), sessions);
        }
        POSTGRES.refuses(
            pool.address(),
            &["sessions", "transaction or statement mode", "PgBouncer", "own address"],
        );
        for _ in 0..sessions {
            assert_eq!(left_by_others(pool.address()), [""; 0], "{mode}, {robin}, {sessions}");
        }
    }
}

/// A pool of one session hides that it is shared from whoever looks at one connection.
#[test]
fn a_single_session_for_all_is_refused() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    // no password: a client is logged in once it has said who it is
    let shared = Multiplexer::before(world.address(), 1);
    // the first client's session is used by all; the driver's connection must not be that
    let Err(error) = wait(Postgres::open(shared.address())) else { panic!("it was opened") };
    assert!(error.to_string().contains("two that were open at once"), "{error}");
}

/// A pool that rewrites the names of statements runs a trial without an error. One that begins to share its sessions only when
/// it is busy is not noticed before, but at the end, when nothing that was found may count.
#[test]
fn a_pool_that_rewrites_statements_is_refused_or_noticed_at_the_end() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    let pool = RewritingPool::before(world.address(), 2);
    POSTGRES.refuses(pool.address(), &["sessions", "PgBouncer"]);

    pool.keep_apart(u64::MAX);
    let store = wait(Postgres::open(pool.address())).unwrap();
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let run = InventoryRun::random(Lock::Native, 1);
    run.load(&store);
    // all four clients have connected by then, and none has done all that it is to do
    pool.keep_apart(150);
    let measured = run.drive(&store, &for_operations(1000), 4);
    assert!(measured.faults.is_empty() && measured.stopped.is_none(), "{measured:?}");
    assert_eq!(run.audit(&store, false).verdict, Verdict::Holds, "it would pass for that");
    let doubted: u64 = measured.doubts.values().sum();
    assert!(doubted >= 2, "two sessions were for four clients: {:?}", measured.doubts);
}

#[test]
fn a_pool_in_session_mode_is_as_good_as_the_server() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    let Some(pool) = PgBouncer::before(world.address(), &["pool_mode = session"]) else { return };
    let store = wait(Postgres::open(pool.address())).unwrap();
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    // the second trial is given sessions that the first one has used
    for (trial, lock) in [(1, Lock::Native), (2, Lock::Hard)] {
        let run = InventoryRun::random(lock, trial);
        run.load(&store);
        let measured = run.drive(&store, &for_operations(200), 4);
        assert!(measured.faults.is_empty() && measured.doubts.is_empty(), "{measured:?}");
        assert!(measured.operations.iter().map(|operation| operation.count(Outcome::Ok)).sum::<u64>() > 0);
        assert_eq!(run.audit(&store, false).verdict, Verdict::Holds);
    }
    drop(store);
    assert_eq!(left_by_others(pool.address()), [""; 0]);
}

/// It says so without a code of its own.
#[test]
fn a_pool_that_takes_no_more_clients_has_its_remedy() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    let settings = ["pool_mode = session", "max_client_conn = 6"];
    let Some(pool) = PgBouncer::before(world.address(), &settings) else { return };
    let store = wait(Postgres::open(pool.address())).unwrap();
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let run = InventoryRun::random(Lock::Native, 1);
    run.load(&store);
    let stopped = run.drive(&store, &for_operations(200), 8).stopped;
    let Some(Stop::NoConnection(why)) = &stopped else { panic!("{stopped:?}") };
    assert!(why.contains("(max_client_conn)") && why.contains("raise PgBouncer's max_client_conn"), "{why}");
}

/// A pool that resets nothing between its clients gives them what others have set.
#[test]
fn a_session_with_settings_of_others_is_not_used() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    let settings = ["pool_mode = session", "server_reset_query ="];
    let Some(pool) = PgBouncer::before(world.address(), &settings) else { return };
    let store = wait(Postgres::open(pool.address())).unwrap();
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let run = InventoryRun::random(Lock::Native, 1);
    run.load(&store);
    // handed out next, because it was given back last
    execute(pool.address(), "SET default_transaction_isolation = 'serializable'");
    let stopped = run.drive(&store, &for_time(50), 1).stopped;
    let Some(Stop::NoConnection(why)) = &stopped else { panic!("{stopped:?}") };
    for word in
        ["default_transaction_isolation=serializable instead of read committed", "handed on", "remedy: "]
    {
        assert!(why.contains(word), "no {word:?} in: {why}");
    }
}
