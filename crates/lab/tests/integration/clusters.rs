//! Clusters of real servers: replicas that follow a leader, and are copied anew.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Lab, LabError, Lifetime, Links, Member, MemberSpec};
use acidtest_model::{Address, Durability, MemberId, Role};
use acidtest_testbed::wanted;

use crate::servers::{HELPER, bench, lab, lives, processes_of, ready, segment_of, shared_memory, until};

const DURABILITY: Durability = Durability::Process;

fn server(number: u16) -> MemberId {
    MemberId::numbered(Role::Server, number)
}

/// Servers of which all but the first are replicas.
fn specs(count: u16, store: &'static str, tls: bool) -> Vec<MemberSpec<'static>> {
    let spec = |number| MemberSpec {
        replicates: number > 1,
        tls,
        ..MemberSpec::server(server(number), store, DURABILITY)
    };
    (1..=count).map(spec).collect()
}

/// A cluster that follows its first server.
fn cluster(lab: &Lab, count: u16, tls: bool) -> Deployment {
    let mut cluster = lab.deploy("postgres", &specs(count, "postgres", tls), Lifetime::Run).unwrap();
    await_sql(cluster.member_mut(server(1)).unwrap());
    let leader = cluster.member(server(1)).unwrap().bound().clone();
    for number in 2..=count {
        cluster.start_replica(server(number), &leader).unwrap();
    }
    for member in 2..=count {
        await_sql(cluster.member_mut(server(member)).unwrap());
    }
    cluster
}

/// What psql says, or its error.
fn try_sql(address: &Address, statement: &str) -> Result<String, String> {
    let psql = Lab::locate("postgres").unwrap().program.canonicalize().unwrap().with_file_name("psql");
    let sslmode = if address.tls.is_some() { "require" } else { "disable" };
    let said = Command::new(psql)
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement, "-d"])
        .arg(format!(
            "host={} port={} user=acidtest dbname=postgres sslmode={sslmode} connect_timeout=5",
            address.host,
            address.port.unwrap()
        ))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
}

fn sql(member: &Member, statement: &str) -> String {
    try_sql(member.bound(), statement).unwrap_or_else(|error| panic!("{}: {error}", member.id()))
}

fn await_sql(member: &mut Member) {
    until("the server answers", || {
        member.check().unwrap();
        try_sql(member.bound(), "select 1").is_ok()
    });
}

/// The names of those that follow a server at this moment.
fn followers(leader: &Member) -> String {
    sql(
        leader,
        "select string_agg(application_name, ' ' order by application_name) from pg_stat_replication where state = 'streaming'",
    )
}

fn lead_to(cluster: &Deployment, follower: MemberId, leader: &Address) {
    let [host, port] = [leader.host.clone(), leader.port.unwrap().to_string()];
    let follower = cluster.member(follower).unwrap();
    let reached = format!("host={host} port={port} user=acidtest application_name={}", follower.id());
    sql(follower, &format!("alter system set primary_conninfo = '{reached}'"));
    sql(follower, "select pg_reload_conf()");
}

#[test]
fn replicas_follow_their_leader_and_are_copied_anew_from_another() {
    if !wanted("postgres") {
        return;
    }
    let (root, lab) = lab();
    let begun = Instant::now();
    let mut cluster = cluster(&lab, 3, false);
    eprintln!("a cluster of three is there after {:?}", begun.elapsed());
    let [one, two, three] = [1, 2, 3].map(server);
    let listed = lab.list().unwrap().remove(0).members;
    assert_eq!(listed.iter().map(|member| member.id).collect::<Vec<_>>(), [one, two, three]);
    assert!(listed.iter().all(|member| member.pid.is_some()));
    until("both follow", || followers(cluster.member(one).unwrap()) == "server-2 server-3");
    for id in [one, two, three] {
        assert_eq!(sql(cluster.member(id).unwrap(), "show cluster_name"), id.to_string());
    }
    // each of them has what was written when all must have it
    let leader = cluster.member(one).unwrap();
    sql(leader, "alter system set synchronous_standby_names = 'ANY 2 (\"server-2\", \"server-3\")'");
    sql(leader, "select pg_reload_conf()");
    until("they are waited for", || {
        sql(leader, "select count(*) from pg_stat_replication where sync_state = 'quorum'") == "2"
    });
    sql(leader, "create table t (n int); insert into t values (1)");
    for id in [two, three] {
        let replica = cluster.member(id).unwrap();
        until("it is applied", || try_sql(replica.bound(), "select n from t").is_ok_and(|said| said == "1"));
        let refused = try_sql(replica.bound(), "insert into t values (2)").unwrap_err();
        assert!(refused.contains("read-only transaction"), "{refused}");
    }

    // another one leads, and the last one follows it
    cluster.member_mut(one).unwrap().kill().unwrap();
    let leader = cluster.member(two).unwrap();
    assert_eq!(sql(leader, "select pg_promote()"), "t");
    sql(leader, "insert into t values (2)");
    let address = leader.bound().clone();
    lead_to(&cluster, three, &address);
    let begun = Instant::now();
    cluster.member_mut(one).unwrap().copy_anew(&address).unwrap();
    eprintln!("copied anew after {:?}", begun.elapsed());
    await_sql(cluster.member_mut(one).unwrap());
    let both = |cluster: &Deployment| followers(cluster.member(two).unwrap()) == "server-1 server-3";
    until("both follow the new leader", || both(&cluster));
    // one that runs, too, and one that is started again goes on to follow
    cluster.member_mut(three).unwrap().copy_anew(&address).unwrap();
    await_sql(cluster.member_mut(three).unwrap());
    cluster.member_mut(one).unwrap().restart().unwrap();
    await_sql(cluster.member_mut(one).unwrap());
    until("both follow the new leader again", || both(&cluster));
    for id in [one, three] {
        assert_eq!(sql(cluster.member(id).unwrap(), "select sum(n), pg_is_in_recovery() from t"), "3|t");
    }
    let folder = cluster.folder().to_owned();
    let segments = [one, two, three].map(|id| segment_of(cluster.member(id).unwrap().folder()).unwrap());
    cluster.stop().unwrap();
    assert_eq!(processes_of(&folder), Vec::<u32>::new());
    assert!(segments.iter().all(|segment| !shared_memory().contains(segment)));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// A leader that is cut off serves on, and what it acknowledges alone is gone when it follows another.
#[test]
fn a_leader_that_is_cut_off_follows_another_when_it_is_back() {
    if !wanted("postgres") {
        return;
    }
    let (_root, lab) = lab();
    let mut links = Links::new().unwrap();
    let mut cluster = lab.deploy("postgres", &specs(3, "postgres", false), Lifetime::Run).unwrap();
    let [one, two, three] = [1, 2, 3].map(server);
    await_sql(cluster.member_mut(one).unwrap());
    let mut link = |from, to: &Member| links.address(from, to.id(), to.bound()).unwrap();
    for id in [two, three] {
        let leader = link(id, cluster.member(one).unwrap());
        cluster.start_replica(id, &leader).unwrap();
        await_sql(cluster.member_mut(id).unwrap());
    }
    let [one_to_two, three_to_two] = [one, three].map(|from| link(from, cluster.member(two).unwrap()));
    let leader = cluster.member(one).unwrap();
    until("both follow", || followers(leader) == "server-2 server-3");
    let has = |id: MemberId, sum: &str| {
        let member = cluster.member(id).unwrap();
        until(sum, || try_sql(member.bound(), "select sum(n) from t").is_ok_and(|said| said == sum));
    };
    sql(leader, "create table t (n int); insert into t values (1)");
    has(two, "1");
    has(three, "1");
    // a replica that is cut off for a while has all in the end
    links.cut(three);
    sql(leader, "insert into t values (2)");
    has(two, "3");
    assert_eq!(sql(cluster.member(three).unwrap(), "select sum(n) from t"), "1");
    links.heal(three);
    has(three, "3");
    // so long that those who are cut off give up their connections, and try new ones
    links.cut(one);
    sql(leader, "insert into t values (4)");
    until("it has lost its replicas", || followers(leader).is_empty());
    thread::sleep(Duration::from_millis(500));
    assert_eq!(sql(cluster.member(two).unwrap(), "select pg_promote()"), "t");
    sql(cluster.member(two).unwrap(), "insert into t values (8)");
    lead_to(&cluster, three, &three_to_two);
    has(three, "11");
    assert_eq!(sql(leader, "select sum(n) from t"), "7");
    links.heal(one);
    cluster.member_mut(one).unwrap().copy_anew(&one_to_two).unwrap();
    let leader = cluster.member(two).unwrap();
    until("both follow the new leader", || followers(leader) == "server-1 server-3");
    assert_eq!(sql(cluster.member(one).unwrap(), "select sum(n) from t"), "11");
}

/// Nothing of a replica that cannot be copied is left, and no server has settings for a cluster without one.
#[test]
fn what_cannot_be_copied_is_told() {
    let (root, lab) = lab();
    if wanted("redis") {
        let error = lab.deploy("redis", &specs(2, "redis", false), Lifetime::Run).unwrap_err();
        assert_eq!(error.to_string(), "the lab cannot make replicas of a private redis server");
        let mut alone = lab.deploy("redis", &specs(1, "redis", false), Lifetime::Run).unwrap();
        let only = alone.member_mut(server(1)).unwrap();
        let error = only.copy_anew(&only.bound().clone()).unwrap_err();
        assert!(matches!(error, LabError::NoReplicas { .. }), "{error}");
        assert_eq!(only.ended(), None, "it goes on");
    }
    if wanted("postgres") {
        let mut two = lab.deploy("postgres", &specs(2, "postgres", false), Lifetime::Run).unwrap();
        let leader = two.member_mut(server(1)).unwrap();
        await_sql(leader);
        let address = leader.bound().clone();
        for id in [server(1), server(3)] {
            let error = two.start_replica(id, &address).unwrap_err();
            assert!(matches!(error, LabError::NotToCome { member } if member == id), "{error}");
        }
        two.member_mut(server(1)).unwrap().kill().unwrap();
        let error = two.start_replica(server(2), &address).unwrap_err().to_string();
        assert!(error.contains("pg_basebackup") && error.contains("Connection refused"), "{error}");
        assert_eq!(two.members().len(), 1);
        drop(two);
        let mut alone = lab.deploy("postgres", &specs(1, "postgres", false), Lifetime::Run).unwrap();
        let only = alone.member_mut(server(1)).unwrap();
        await_sql(only);
        let settings = "select string_agg(name, ' ') from pg_settings where source = 'command line' and \
                        (name like 'wal%' or name like '%wal_senders' or name = 'cluster_name')";
        assert_eq!(sql(only, settings), "");
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "a bench, started by the tests"]
fn role_cluster() {
    let Some(root) = std::env::var_os(HELPER) else { return };
    let lab = Lab::at(&PathBuf::from(root)).unwrap();
    let _cluster = cluster(&lab, 2, false);
    ready()
}

#[test]
fn a_killed_bench_leaves_no_replica_that_down_does_not_clear() {
    if !wanted("postgres") {
        return;
    }
    let (root, lab) = lab();
    let mut bench = bench(root.path(), "clusters::role_cluster");
    let members = lab.list().unwrap().remove(0).members;
    let pids: Vec<u32> = members.iter().map(|member| member.pid.unwrap()).collect();
    assert_eq!(pids.len(), 2);
    bench.kill().unwrap();
    bench.wait().unwrap();
    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0), "{:?}", cleared.leftovers);
    assert!(pids.into_iter().all(|pid| !lives(pid)));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[cfg(feature = "tls")]
#[test]
fn replicas_follow_with_tls_alone() {
    if !wanted("postgres") {
        return;
    }
    let (root, lab) = lab();
    let mut cluster = cluster(&lab, 2, true);
    let [one, two] = [1, 2].map(server);
    for leads in [one, two] {
        let leader = cluster.member(leads).unwrap();
        let encrypted = "select bool_and(ssl)::text || ' ' || count(*) from pg_stat_ssl \
                         join pg_stat_replication using (pid) where state = 'streaming'";
        until("it follows", || sql(leader, encrypted) == "true 1");
        let bare = Address { tls: None, ..leader.bound().clone() };
        let refused = try_sql(&bare, "select 1").unwrap_err();
        assert!(refused.contains("no encryption"), "{refused}");
        if leads == one {
            cluster.member_mut(one).unwrap().kill().unwrap();
            let leader = cluster.member(two).unwrap();
            sql(leader, "select pg_promote()");
            let address = leader.bound().clone();
            cluster.member_mut(one).unwrap().copy_anew(&address).unwrap();
            await_sql(cluster.member_mut(one).unwrap());
        }
    }
    drop(cluster);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
