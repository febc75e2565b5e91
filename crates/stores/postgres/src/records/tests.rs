//! Requests on real servers: at a leader, and at its replica.

use std::time::Duration;

use acidtest_model::{Consistency, Durability, Lock, MemberId, Replication};
use acidtest_testbed::{NAMESPACE, Private, operations, until, wait};
use acidtest_workloads::{
    Attempt, Replica, Store,
    records::{Action, Answer, Fields, Operations, Refresh, Request, key_name},
};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::fault::{self, SendState};

/// Longer than any test waits for what comes.
const PATIENCE: Duration = Duration::from_mins(2);
const LAYOUT: Layout = Layout { records: 3, fields: 2, field_bytes: 20, scans: true };
const TRIAL: u32 = 1;

/// A leader, and a replica that clients know as the first of the two.
struct Cluster {
    leader: Private,
    replica: Private,
    /// Opened at each alone.
    first: Postgres,
    second: Postgres,
    /// Opened at both.
    store: Postgres,
    place: Place,
    /// Connections live as long as it does.
    runtime: Runtime,
}

impl Cluster {
    /// With records that both have; none if the store is left out of the tests.
    fn start() -> Option<Self> {
        let mut leader = Private::start("postgres", Durability::Process)?;
        let first = leader.open(Postgres::open);
        let mut replica = Private::replica_of(&leader, 2);
        let second = replica.open(Postgres::open);
        let peers = [leader.address().clone()];
        let store = wait(Postgres::open_among(replica.address(), &peers)).unwrap();
        let place = Place { namespace: NAMESPACE.to_owned(), trial: TRIAL };
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        wait(store.load(&place, &LAYOUT, &LoadProgress::default())).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let cluster = Self { leader, replica, first, second, store, place, runtime };
        cluster.caught_up();
        Some(cluster)
    }

    fn wait<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }

    fn caught_up(&self) {
        let written = wait(self.first.standing()).unwrap().received;
        until("it has applied all", PATIENCE, || wait(self.second.standing()).unwrap().applied >= written);
    }

    fn connector(&self, lock: Lock, isolation: Option<Isolation>) -> PostgresConnector {
        let wanted = Requirements {
            lock,
            decides: true,
            isolation,
            transaction: 2,
            refresh: Refresh::No,
            layout: LAYOUT,
        };
        PostgresConnector { server: self.store.server.clone(), table: table(&self.place), wanted }
    }
}

fn tell(store: &Postgres, sql: &str) {
    wait(store.on_server("testing", async |client| client.batch_execute(sql).await)).unwrap();
}

fn is_so(store: &Postgres, condition: &str) -> bool {
    let sql = format!("SELECT {condition}");
    wait(store.on_server("testing", async |client| client.query_one(&sql, &[]).await.map(|row| row.get(0))))
        .unwrap()
}

fn request(action: Action) -> Request {
    let mut fields = Fields::default();
    fields.fill(&LAYOUT, 7);
    Request { action, number: 0, key: key_name(0), length: 2, fields }
}

async fn done(connection: &mut Connection, action: Action) -> Attempt {
    connection.single(&request(action), &mut Answer::default()).await
}

/// The version of the first record.
async fn version_read(connection: &mut Connection) -> u64 {
    let mut answer = Answer::default();
    assert_eq!(connection.single(&request(Action::Read), &mut answer).await, Attempt::Ok);
    answer.read().next().unwrap().0
}

#[test]
fn single_requests_find_change_and_refuse_and_tell_what_is_no_record() {
    let Some(mut private) = Private::start("postgres", Durability::None) else { return };
    let store = private.open(Postgres::open);
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let connect = |place: &Place, wanted: Requirements| PostgresConnector {
        server: store.server.clone(),
        table: table(place),
        wanted,
    };
    wait(operations::singles(&store, &Lock::ALL, connect));
    wait(operations::transactions(&store, &Lock::ALL, connect));
    let spoil = async |place: &Place, key: &str| {
        let spoil = format!("UPDATE {} SET version = -5 WHERE key = '{key}'", table(place));
        let spoiled = store.on_server("spoiling", async |client| client.execute(&spoil, &[]).await).await;
        assert_eq!(spoiled.unwrap(), 1);
    };
    wait(operations::garbled(&store, &Lock::ALL, connect, spoil));
}

#[test]
fn a_reader_sees_what_its_server_has_applied_and_writes_nothing_there() {
    let Some(cluster) = Cluster::start() else { return };
    let Cluster { first, second, store, .. } = &cluster;
    for lock in Lock::ALL {
        let connector = cluster.connector(lock, Some(Isolation::RepeatableRead));
        assert_eq!(connector.servers(), 2);
        let none = cluster.wait(connector.reader(2)).err();
        assert_eq!(none.as_deref(), Some("there is no server 2: the store was opened with 2"));
        let mut writer = cluster.wait(connector.connect()).unwrap();
        let [mut there, mut here] = [0, 1].map(|server| cluster.wait(connector.reader(server)).unwrap());
        assert!(!there.leads && here.leads);
        // who leads is asked of nobody else
        assert_eq!(store.address(), cluster.leader.address());

        let version = cluster.wait(version_read(&mut here.connection));
        cluster.caught_up();
        assert_eq!(cluster.wait(version_read(&mut there.connection)), version);
        tell(second, "SELECT pg_wal_replay_pause()");
        until("it is paused", PATIENCE, || is_so(second, "pg_get_wal_replay_pause_state() = 'paused'"));
        assert_eq!(cluster.wait(done(&mut writer, Action::Update)), Attempt::Ok);
        assert_eq!(cluster.wait(version_read(&mut here.connection)), version + 1);
        assert_eq!(cluster.wait(version_read(&mut there.connection)), version);
        tell(second, "SELECT pg_wal_replay_resume()");
        cluster.caught_up();
        assert_eq!(cluster.wait(version_read(&mut there.connection)), version + 1);

        // scans, and several reads in a transaction
        assert_eq!(cluster.wait(done(&mut there.connection, Action::Scan)), Attempt::Ok);
        let reads = [request(Action::Scan), request(Action::Read)];
        let mut answers = vec![Answer::default(); 2];
        assert_eq!(cluster.wait(there.connection.several(&reads, &mut answers)), Attempt::Ok);
        assert_eq!(answers.iter().map(|answer| answer.read().count()).collect::<Vec<_>>(), [2, 1]);
        for mut reader in [there, here] {
            assert_eq!(cluster.wait(reader.connection.check()), Ok(()));
        }
        for action in [Action::Update, Action::Insert, Action::Modify] {
            // each is of no more use then
            let mut reader = cluster.wait(connector.reader(0)).unwrap();
            let refused = cluster.wait(done(&mut reader.connection, action));
            assert!(matches!(&refused, Attempt::Failed(fault) if fault.turned_away), "{lock}: {refused:?}");
        }
    }
    // a standby has no serializable transactions
    let serializable = cluster.connector(Lock::Native, Some(Isolation::Serializable));
    let refused = cluster.wait(serializable.reader(0)).err().unwrap();
    assert!(refused.contains("cannot use serializable mode in a hot standby"), "{refused}");
    assert!(is_so(first, "NOT pg_is_in_recovery()"));
}

#[test]
fn a_reader_goes_on_at_a_replica_that_is_promoted() {
    let Some(mut cluster) = Cluster::start() else { return };
    let connector = cluster.connector(Lock::Native, None);
    let mut reader = cluster.wait(connector.reader(0)).unwrap();
    cluster.leader.kill();
    assert!(cluster.wait(connector.reader(1)).is_err());
    // how its server commits changes under the session
    let alone: [MemberId; 0] = [];
    wait(cluster.second.acknowledge(Replication::All, Consistency::Strong, &alone)).unwrap();
    assert!(!cluster.wait(connector.reader(0)).unwrap().leads);
    wait(cluster.second.promote()).unwrap();
    assert!(cluster.wait(connector.reader(0)).unwrap().leads);
    assert_eq!(cluster.wait(version_read(&mut reader.connection)), 0);
    assert_eq!(cluster.wait(reader.connection.check()), Ok(()));
    // clients find it as ever
    let mut writer = cluster.wait(connector.connect()).unwrap();
    assert_eq!(cluster.wait(done(&mut writer, Action::Update)), Attempt::Ok);
    assert_eq!(cluster.wait(version_read(&mut reader.connection)), 1);
    cluster.leader.restart();
    // it does not know that another leads
    until("it is back", PATIENCE, || cluster.wait(connector.reader(1)).is_ok_and(|reader| reader.leads));
    assert_eq!(cluster.store.address(), cluster.replica.address());
}

/// What the log does cannot wait at a replica for those that read.
#[test]
fn a_read_that_is_in_the_way_of_the_log_is_a_conflict_or_ends_its_session() {
    let Some(cluster) = Cluster::start() else { return };
    let Cluster { first, second, .. } = &cluster;
    let table = table(&cluster.place);
    tell(second, "ALTER SYSTEM SET max_standby_streaming_delay = 0");
    tell(second, "SELECT pg_reload_conf()");
    // a read of it takes as long as it takes
    let slow = format!(
        "ALTER TABLE {table} RENAME TO stored;
         CREATE VIEW {table} AS SELECT * FROM {NAMESPACE}.stored WHERE (SELECT pg_sleep(3600)) IS NOT NULL"
    );
    tell(first, &slow);
    cluster.caught_up();
    let connector = cluster.connector(Lock::Native, None);
    let is_locked = format!("BEGIN; LOCK TABLE {NAMESPACE}.stored IN ACCESS EXCLUSIVE MODE; COMMIT");
    let mut reader = cluster.wait(connector.reader(0)).unwrap();
    let ended = std::thread::scope(|scope| {
        let reads = scope.spawn(|| cluster.wait(done(&mut reader.connection, Action::Read)));
        let sleeps = "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')";
        until("it reads", PATIENCE, || is_so(second, sleeps));
        tell(first, &is_locked);
        reads.join().unwrap()
    });
    assert_eq!(ended, Attempt::Conflict);
    // on a session that lives
    assert_eq!(cluster.wait(reader.connection.check()), Ok(()));

    let mut open = cluster.wait(second.connection()).unwrap();
    let count = format!("SELECT count(*) FROM {NAMESPACE}.stored");
    cluster.wait(open.command("BEGIN ISOLATION LEVEL REPEATABLE READ")).unwrap();
    cluster.wait(open.ask(&count)).unwrap();
    tell(first, &is_locked);
    cluster.caught_up();
    let error = cluster.wait(open.ask(&count)).unwrap_err();
    let Attempt::Failed(fault) = fault::attempt(&error, SendState::Nothing) else { panic!("{error}") };
    assert!(fault.connection_lost, "{fault:?}");
    assert!(fault.message.contains("conflict with recovery"), "{fault:?}");
}
