//! Sessions whose transactions go statement by statement, on real servers.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability, Isolation};
use acidtest_store_mariadb::{MariaDb, Variant};
use acidtest_testbed::{NAMESPACE, Private, Subject, login};
use acidtest_workloads::{
    Place, Store,
    interactive::{InteractiveSession, InteractiveStore, LockMonitor, Mode, Reply, Table},
};
use tokio::{
    task::{JoinHandle, LocalSet, spawn_local},
    time::sleep,
};

use crate::common::{
    MARIADB, MARIADB_ARCHIVE, MARIADB_ARIA, MARIADB_BLACKHOLE, MARIADB_CSV, MARIADB_MEMORY, MARIADB_MYISAM,
    MYSQL, MYSQL_MYISAM, execute,
};

type Session = Box<dyn InteractiveSession>;

/// Runs a task that may let sessions go on meanwhile.
fn wait<T>(task: impl Future<Output = T>) -> T {
    acidtest_testbed::wait(LocalSet::new().run_until(task))
}

fn place() -> Place {
    Place { namespace: NAMESPACE.to_owned(), trial: 7 }
}

fn table() -> Table {
    let row = |id: &str, value: &str| vec![id.to_owned(), value.to_owned()];
    Table {
        name: "test".to_owned(),
        columns: "id int primary key, value int".to_owned(),
        rows: vec![row("1", "10"), row("2", "20")],
    }
}

fn of(store: &MariaDb) -> &dyn InteractiveStore {
    store.interactive().unwrap()
}

fn rows(rows: &[&[&str]]) -> Reply {
    Reply::Rows(rows.iter().map(|row| row.iter().map(|value| (*value).to_owned()).collect()).collect())
}

fn done(count: u64) -> Reply {
    Reply::Done(Some(count))
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(_))
}

/// A table, and two sessions on it.
struct Scene<'a> {
    store: &'a dyn InteractiveStore,
    name: String,
    sessions: [Session; 2],
}

impl<'a> Scene<'a> {
    async fn of(store: &'a MariaDb, mode: &Mode) -> Self {
        let store = of(store);
        let name = store.make_table(&place(), &table()).await.unwrap();
        let session = async || store.session(&place(), mode).await.unwrap();
        Self { store, name, sessions: [session().await, session().await] }
    }

    fn renamed(&self, statement: &str) -> String {
        statement.replace("test", &self.name)
    }

    async fn run(&mut self, session: usize, statement: &str) -> Reply {
        let statement = self.renamed(statement);
        self.sessions[session].run(&statement).await
    }

    /// Runs statements that are done.
    async fn both(&mut self, statement: &str) {
        for session in 0..2 {
            let reply = self.run(session, statement).await;
            assert!(matches!(reply, Reply::Done(_) | Reply::Rows(_)), "{statement}: {reply:?}");
        }
    }

    /// Lets the second session run a statement meanwhile.
    fn meanwhile(mut self, statement: &str) -> (Session, JoinHandle<(Session, Reply)>, String) {
        let statement = self.renamed(statement);
        let [first, mut second] = self.sessions;
        let task = spawn_local(async move {
            let reply = second.run(&statement).await;
            (second, reply)
        });
        (first, task, std::mem::take(&mut self.name))
    }

    async fn end(self) {
        drop(self.sessions);
        self.store.drop_table(&place(), &self.name).await.unwrap();
    }
}

fn modes(store: &MariaDb) -> Vec<Mode> {
    wait(of(store).modes()).unwrap()
}

fn named(store: &MariaDb, name: &str) -> Mode {
    modes(store).into_iter().find(|mode| mode.name == name).unwrap()
}

/// Looks until a session waits.
async fn until_it_waits(monitor: &mut dyn LockMonitor, session: u64) {
    let start = Instant::now();
    while !monitor.waiting().await.unwrap().contains(&session) {
        assert!(start.elapsed() < Duration::from_secs(30), "{session} never waits");
        sleep(monitor.interval()).await;
    }
}

const CHECKS: &[fn(&Subject<MariaDb>, &MariaDb)] = &[
    |_, store| wait(a_table_comes_and_goes(store)),
    |_, store| wait(levels_are_read_back(store)),
    |_, store| wait(transactions_commit_and_roll_back(store)),
    |_, store| wait(errors_are_told_apart(store)),
    |_, store| lost_updates(store),
    |_, store| write_skew(store),
    |_, store| wait(deadlocks_are_refused(store)),
    |_, store| wait(locks_that_are_not_given_are_refused(store)),
    |_, store| wait(who_waits_is_told(store)),
    |_, store| wait(what_the_server_keeps_is_not_taken_for_news(store)),
    |_, store| wait(who_waits_for_a_definition_is_told(store)),
];

#[test]
fn mariadb_has_interactive_transactions() {
    MARIADB.passes(CHECKS);
}

#[test]
fn mysql_has_interactive_transactions() {
    MYSQL.passes(CHECKS);
}

async fn a_table_comes_and_goes(store: &MariaDb) {
    let mode = &of(store).modes().await.unwrap()[0];
    let mut session = of(store).session(&place(), mode).await.unwrap();
    let odd = Table {
        name: "te`st; drop".to_owned(),
        columns: "id int primary key, value text, amount decimal(5,2)".to_owned(),
        rows: vec![["1", "'it''s, é'", "NULL"].map(str::to_owned).to_vec()],
    };
    let name = of(store).make_table(&place(), &odd).await.unwrap();
    let read = format!("select * from {name}");
    assert_eq!(session.run(&read).await, rows(&[&["1", "it's, é", "NULL"]]));
    assert_eq!(session.run(&format!("insert into {name} values (2, '', 1.5)")).await, done(1));
    assert_eq!(session.run(&read).await, rows(&[&["1", "it's, é", "NULL"], &["2", "", "1.50"]]));
    let engine = "select engine from information_schema.tables where table_schema = database()
                  and table_name = 'te`st; drop_7'";
    assert_eq!(session.run(engine).await, rows(&[&["InnoDB"]]));
    // another of this name is not made
    of(store).make_table(&place(), &odd).await.unwrap_err();
    for _ in 0..2 {
        of(store).drop_table(&place(), &name).await.unwrap();
    }
    assert!(matches!(session.run(&read).await, Reply::Failed(_)));
    let empty = Table { rows: Vec::new(), ..table() };
    let name = of(store).make_table(&place(), &empty).await.unwrap();
    assert_eq!(session.run(&format!("select * from {name}")).await, rows(&[]));
    of(store).drop_table(&place(), &name).await.unwrap();
}

async fn levels_are_read_back(store: &MariaDb) {
    let modes = of(store).modes().await.unwrap();
    let names: BTreeSet<_> = modes.iter().map(|mode| &mode.name).collect();
    assert_eq!(names.len(), modes.len());
    assert_eq!(modes.iter().filter(|mode| mode.is_default).count(), 1);
    for mode in &modes {
        let session = of(store).session(&place(), mode).await.unwrap();
        let level = mode.level.unwrap().sql().replace(' ', "-");
        assert!(session.level().starts_with(&level), "{mode:?}: {}", session.level());
        if mode.name.contains("snapshot isolation") {
            assert!(session.level().ends_with("innodb_snapshot_isolation=ON"), "{}", session.level());
        }
    }
    let strange =
        Mode { how: "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; DO 0", ..modes[0].clone() };
    let refused = of(store).session(&place(), &strange).await.err().unwrap().to_string();
    assert!(refused.contains("the session has SERIALIZABLE"), "{refused}");
}

async fn transactions_commit_and_roll_back(store: &MariaDb) {
    for mode in of(store).modes().await.unwrap() {
        let mut scene = Scene::of(store, &mode).await;
        assert_eq!(scene.run(0, "rollback").await, Reply::Done(None), "without a transaction");
        assert_eq!(scene.run(0, "begin").await, Reply::Done(None));
        assert_eq!(scene.run(0, "update test set value = 11 where id = 1").await, done(1));
        assert_eq!(scene.run(0, "update test set value = 11 where id = 9").await, done(0));
        assert_eq!(scene.run(0, "rollback").await, Reply::Done(None));
        assert_eq!(scene.run(1, "select * from test where id = 1").await, rows(&[&["1", "10"]]), "{mode:?}");
        scene.run(0, "begin").await;
        assert_eq!(scene.run(0, "update test set value = 11 where id = 1").await, done(1));
        assert_eq!(scene.run(0, "commit").await, Reply::Done(None));
        assert_eq!(scene.run(1, "select value from test where id = 1").await, rows(&[&["11"]]), "{mode:?}");
        // a session that is dropped leaves nothing behind
        scene.run(0, "begin").await;
        scene.run(0, "delete from test").await;
        let [dropped, other] = scene.sessions;
        drop(dropped);
        let other_session = of(store).session(&place(), &mode).await.unwrap();
        scene.sessions = [other, other_session];
        assert_eq!(scene.run(0, "update test set value = 12 where id = 1").await, done(1));
        scene.end().await;
    }
}

async fn errors_are_told_apart(store: &MariaDb) {
    let mode = of(store).modes().await.unwrap().into_iter().find(|mode| mode.is_default).unwrap();
    let mut scene = Scene::of(store, &mode).await;
    for wrong in ["selec", "select * from nowhere", "update test set nothing = 1", "set @@nothing = 1"] {
        let reply = scene.run(0, wrong).await;
        assert!(matches!(reply, Reply::Failed(_)), "{wrong}: {reply:?}");
    }
    let duplicate = scene.run(0, "insert into test values (1, 1)").await;
    assert!(is_refused(&duplicate), "{duplicate:?}");
    let kill = format!("kill {}", scene.sessions[0].id());
    scene.run(1, &kill).await;
    sleep(Duration::from_millis(100)).await;
    for _ in 0..2 {
        let dead = scene.run(0, "select * from test").await;
        assert!(matches!(dead, Reply::Unknown(_)), "{dead:?}");
    }
    // one that is killed while its statement runs
    scene.sessions.swap(0, 1);
    scene.sessions[1] = of(store).session(&place(), &mode).await.unwrap();
    let kill = format!("kill {}", scene.sessions[1].id());
    let (mut first, task, name) = scene.meanwhile("select sleep(20)");
    sleep(Duration::from_millis(200)).await;
    first.run(&kill).await;
    let (_, reply) = task.await.unwrap();
    assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    of(store).drop_table(&place(), &name).await.unwrap();
}

/// Both read, and write one after the other what they have made of it.
fn lost_updates(store: &MariaDb) {
    for mode in modes(store) {
        let is_refused = wait(second_update_is_refused(store, &mode));
        let expected =
            mode.level == Some(Isolation::Serializable) || mode.name.contains(", snapshot isolation");
        assert_eq!(is_refused, expected, "{mode:?}");
    }
}

async fn second_update_is_refused(store: &MariaDb, mode: &Mode) -> bool {
    let mut monitor = of(store).lock_monitor().await.unwrap().unwrap();
    let mut scene = Scene::of(store, mode).await;
    scene.both("begin").await;
    scene.both("select * from test where id = 1").await;
    let second = scene.sessions[1].id();
    let update = "update test set value = value + 1 where id = 1";
    if mode.level == Some(Isolation::Serializable) {
        // both have a lock to read: the first waits for the second, and the second would wait for it
        scene.sessions.swap(0, 1);
        let waiter = scene.sessions[1].id();
        let (mut other, task, name) = scene.meanwhile(update);
        until_it_waits(&mut *monitor, waiter).await;
        let reply = other.run(&update.replace("test", &name)).await;
        // who is rolled back is the server's choice
        other.run(if is_refused(&reply) { "rollback" } else { "commit" }).await;
        let (mut session, its_reply) = task.await.unwrap();
        session.run(if is_refused(&its_reply) { "rollback" } else { "commit" }).await;
        of(store).drop_table(&place(), &name).await.unwrap();
        return is_refused(&reply) != is_refused(&its_reply);
    }
    assert_eq!(scene.run(0, update).await, done(1));
    let (mut first, task, name) = scene.meanwhile(update);
    until_it_waits(&mut *monitor, second).await;
    assert_eq!(first.run("commit").await, Reply::Done(None));
    let (mut waiter, reply) = task.await.unwrap();
    waiter.run(if is_refused(&reply) { "rollback" } else { "commit" }).await;
    of(store).drop_table(&place(), &name).await.unwrap();
    is_refused(&reply)
}

/// Each reads both rows, and writes another one.
fn write_skew(store: &MariaDb) {
    for mode in modes(store).into_iter().filter(|mode| mode.level != Some(Isolation::Serializable)) {
        wait(async {
            let mut scene = Scene::of(store, &mode).await;
            scene.both("begin").await;
            scene.both("select * from test where id in (1, 2)").await;
            assert_eq!(scene.run(0, "update test set value = 11 where id = 1").await, done(1));
            assert_eq!(scene.run(1, "update test set value = 21 where id = 2").await, done(1), "{mode:?}");
            scene.both("commit").await;
            assert_eq!(scene.run(0, "select * from test").await, rows(&[&["1", "11"], &["2", "21"]]));
            scene.end().await;
        });
    }
}

async fn deadlocks_are_refused(store: &MariaDb) {
    let mut monitor = of(store).lock_monitor().await.unwrap().unwrap();
    let mode = of(store).modes().await.unwrap().remove(1);
    let mut scene = Scene::of(store, &mode).await;
    scene.both("begin").await;
    scene.run(0, "update test set value = 11 where id = 1").await;
    scene.run(1, "update test set value = 21 where id = 2").await;
    let second = scene.sessions[1].id();
    let (mut first, task, name) = scene.meanwhile("update test set value = 12 where id = 1");
    until_it_waits(&mut *monitor, second).await;
    let reply = first.run(&format!("update {name} set value = 22 where id = 2")).await;
    first.run("rollback").await;
    let (_, other) = task.await.unwrap();
    assert!(is_refused(&reply) != is_refused(&other), "{reply:?} {other:?}");
    of(store).drop_table(&place(), &name).await.unwrap();
}

async fn locks_that_are_not_given_are_refused(store: &MariaDb) {
    for mode in of(store).modes().await.unwrap() {
        let mut scene = Scene::of(store, &mode).await;
        scene.both("begin").await;
        scene.run(0, "update test set value = 11 where id = 1").await;
        let reply = scene.run(1, "select * from test where id = 1 for update nowait").await;
        assert!(is_refused(&reply), "{reply:?}");
        scene.both("set session innodb_lock_wait_timeout = 1").await;
        let reply = scene.run(1, "update test set value = 12 where id = 1").await;
        assert!(is_refused(&reply), "{reply:?}");
        scene.both("rollback").await;
        assert_eq!(scene.run(1, "select * from test").await, rows(&[&["1", "10"], &["2", "20"]]));
        scene.end().await;
    }
}

async fn who_waits_is_told(store: &MariaDb) {
    let mut monitor = of(store).lock_monitor().await.unwrap().unwrap();
    let mode = of(store).modes().await.unwrap().remove(1);
    let mut scene = Scene::of(store, &mode).await;
    scene.both("begin").await;
    scene.run(0, "update test set value = 11 where id = 1").await;
    assert_eq!(monitor.waiting().await.unwrap(), BTreeSet::new());
    let second = scene.sessions[1].id();
    let (mut first, task, name) = scene.meanwhile("update test set value = 12 where id = 1");
    until_it_waits(&mut *monitor, second).await;
    sleep(monitor.interval()).await;
    assert_eq!(monitor.waiting().await.unwrap(), BTreeSet::from([second]), "and nobody else");
    first.run("commit").await;
    let (mut waiter, reply) = task.await.unwrap();
    assert_eq!(reply, done(1));
    sleep(monitor.interval()).await;
    assert_eq!(monitor.waiting().await.unwrap(), BTreeSet::new());
    waiter.run("commit").await;
    of(store).drop_table(&place(), &name).await.unwrap();
}

/// Each look that begins an interval after the one before shows what is so then; one that begins sooner shows the same again.
async fn what_the_server_keeps_is_not_taken_for_news(store: &MariaDb) {
    let kept = Duration::from_millis(100);
    let mut monitor = of(store).lock_monitor().await.unwrap().unwrap();
    let mode = of(store).modes().await.unwrap().remove(1);
    let mut same_again = 0;
    for _ in 0..8 {
        let mut scene = Scene::of(store, &mode).await;
        scene.both("begin").await;
        scene.run(0, "update test set value = 11 where id = 1").await;
        let second = scene.sessions[1].id();
        sleep(monitor.interval()).await;
        let before = Instant::now();
        assert_eq!(monitor.waiting().await.unwrap(), BTreeSet::new());
        let (mut first, task, name) = scene.meanwhile("update test set value = 12 where id = 1");
        // the server counts them anew each time
        let counted = "show global status like 'Innodb_row_lock_current_waits'";
        while first.run(counted).await != rows(&[&["Innodb_row_lock_current_waits", "1"]]) {
            sleep(Duration::from_millis(1)).await;
        }
        let soon = monitor.waiting().await.unwrap();
        if monitor.interval() >= kept && before.elapsed() < kept {
            assert_eq!(soon, BTreeSet::new());
            same_again += 1;
        }
        sleep(monitor.interval()).await;
        assert_eq!(monitor.waiting().await.unwrap(), BTreeSet::from([second]));
        first.run("rollback").await;
        let (mut waiter, _) = task.await.unwrap();
        waiter.run("rollback").await;
        of(store).drop_table(&place(), &name).await.unwrap();
    }
    eprintln!("{same_again} of 8 looks that came too soon showed the same again");
}

async fn who_waits_for_a_definition_is_told(store: &MariaDb) {
    let mut monitor = of(store).lock_monitor().await.unwrap().unwrap();
    let mode = of(store).modes().await.unwrap().remove(1);
    let mut scene = Scene::of(store, &mode).await;
    scene.run(0, "begin").await;
    scene.run(0, "select * from test").await;
    let second = scene.sessions[1].id();
    let (mut first, task, name) = scene.meanwhile("alter table test add more int");
    until_it_waits(&mut *monitor, second).await;
    first.run("commit").await;
    let (_, reply) = task.await.unwrap();
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    of(store).drop_table(&place(), &name).await.unwrap();
}

#[test]
fn a_server_s_own_defaults_are_known() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    let shown = || {
        let modes = modes(&world.store).into_iter();
        let default = modes.clone().find(|mode| mode.is_default).map(|mode| mode.name);
        (default.unwrap(), modes.map(|mode| mode.name).collect::<Vec<_>>().join("; "))
    };
    let (default, names) = shown();
    assert_eq!(default, "repeatable read");
    assert!(names.contains("repeatable read, snapshot isolation; serializable;"), "{names}");
    execute(world.address(), "SET GLOBAL innodb_snapshot_isolation = ON");
    let (default, names) = shown();
    assert_eq!(default, "repeatable read");
    assert!(names.contains("repeatable read, no snapshot isolation; repeatable read;"), "{names}");
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    for mode in modes(&world.store) {
        let session = wait(of(&world.store).session(&place(), &mode)).unwrap();
        let is_on = session.level().ends_with("=ON");
        assert_eq!(is_on, !mode.name.contains("no snapshot"), "{mode:?}: {}", session.level());
    }
    execute(world.address(), "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED");
    assert_eq!(shown().0, "read committed");
    a_user_without_the_privilege_is_told_the_remedy(world.address(), Variant::MARIADB);
}

/// At SERIALIZABLE every read locks, and so the variable concerns it too.
#[test]
fn mariadb_s_serializable_refuses_what_is_newer_than_its_snapshot_where_snapshots_are_isolated() {
    MARIADB.passes(&[|_, store| {
        for (name, is_refused) in [("serializable", false), ("serializable, snapshot isolation", true)] {
            let mode = named(store, name);
            wait(async {
                let mut scene = Scene::of(store, &mode).await;
                scene.run(0, "begin").await;
                scene.run(0, "select * from test where id = 1").await;
                assert_eq!(scene.run(1, "update test set value = 21 where id = 2").await, done(1));
                let reply = scene.run(0, "select * from test where id = 2").await;
                assert_eq!(matches!(reply, Reply::Refused(_)), is_refused, "{name}: {reply:?}");
                scene.end().await;
            });
        }
    }]);
}

fn a_user_without_the_privilege_is_told_the_remedy(root: &Address, variant: Variant) {
    execute(root, &format!("CREATE USER ann IDENTIFIED BY ''; GRANT ALL ON {NAMESPACE}.* TO ann"));
    let ann = wait(variant.open(&login(root, "ann", None))).unwrap();
    let waiting = || wait(async { of(&ann).lock_monitor().await.unwrap().unwrap().waiting().await });
    let refused = waiting().unwrap_err();
    for words in ["PROCESS", "may not see who waits for locks", "remedy: GRANT PROCESS ON *.* TO 'ann'@'%'"] {
        assert!(refused.contains(words), "{refused}");
    }
    let (_, remedy) = refused.split_once("remedy: ").unwrap();
    execute(root, remedy);
    assert_eq!(waiting(), Ok(BTreeSet::new()));
}

#[test]
fn engines_without_transactions_have_none() {
    for subject in [
        &MARIADB_MYISAM,
        &MARIADB_ARIA,
        &MARIADB_MEMORY,
        &MARIADB_CSV,
        &MARIADB_ARCHIVE,
        &MARIADB_BLACKHOLE,
        &MYSQL_MYISAM,
    ] {
        let Some(world) = subject.share() else { continue };
        assert!(world.store.interactive().is_none(), "{}", subject.kind.name);
    }
}

/// A server that was started again by hand; it ends with this.
struct Restarted(Child);

impl Drop for Restarted {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Ends a private server, and starts it with an option more.
fn restarted(private: &mut Private, option: &str) -> Restarted {
    let data = private.folder().join("data/db");
    let pid = fs::read_to_string(data.join("pid")).unwrap();
    let process = format!("/proc/{}", pid.trim());
    let line = fs::read_to_string(format!("{process}/cmdline")).unwrap();
    let folder = fs::read_link(format!("{process}/cwd")).unwrap();
    let owner = fs::metadata(&data).unwrap();
    private.kill();
    let mut words = line.trim_end_matches('\0').split('\0');
    let child = Command::new(words.next().unwrap())
        .args(words)
        .arg(option)
        .current_dir(folder)
        .uid(owner.uid())
        .gid(owner.gid())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Restarted(child.unwrap())
}

#[test]
fn mysql_s_performance_schema_is_asked_where_it_is_on() {
    let Some(mut private) = Private::start("mysql", Durability::None) else { return };
    wait(private.answer(async |address| Variant::MYSQL.open(address).await));
    let address = private.address().clone();
    let mut server = restarted(&mut private, "--performance-schema=ON");
    let start = Instant::now();
    let store = loop {
        match wait(Variant::MYSQL.open(&address)) {
            Ok(store) => break store,
            Err(error) => {
                assert_eq!(server.0.try_wait().unwrap(), None, "{error}");
                assert!(start.elapsed() < Duration::from_mins(3), "{error}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    };
    let interval = || wait(of(&store).lock_monitor()).unwrap().unwrap().interval();
    assert!(interval() < Duration::from_millis(100));
    for check in [
        |store| wait(who_waits_is_told(store)),
        |store| wait(what_the_server_keeps_is_not_taken_for_news(store)),
        |store| wait(who_waits_for_a_definition_is_told(store)),
    ] as [fn(&MariaDb); 3]
    {
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        check(&store);
        wait(store.remove(NAMESPACE)).unwrap();
    }
    a_user_without_the_privilege_is_told_the_remedy(&address, Variant::MYSQL);
}
