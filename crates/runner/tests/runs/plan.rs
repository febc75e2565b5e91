//! The plan's check, on stores whose rows of the matrix say what they lack.

use acidtest_model::{
    CellRequest, Consistency, Durability, Hosting, IdleOption, Isolation, Lock, Promotion, ReadPolicy, Reads,
    ReplicaReads, Replication, Route, Span, StoreKind, Support,
};

use crate::told::{Teller, plan};
use std::time::Duration;

use acidtest_results::Plan;
use acidtest_runner::{
    Cell, Failure, Footprint, Grid, Target,
    plan_check::{self, GivenOptions},
};
use acidtest_store_memory::KIND;

/// A store without soft locks that refuses more than one operation in a transaction, and on which retries have no
/// effect in lock mode none.
fn limited() -> StoreKind {
    fn idle(request: &CellRequest<'_>) -> &'static [IdleOption] {
        if request.lock == Lock::None {
            &[IdleOption { name: "max_retries", why: "nothing conflicts" }]
        } else {
            &[]
        }
    }
    StoreKind {
        name: "limited",
        locks: &[
            (Lock::None, Support::Yes("unprotected")),
            (Lock::Soft, Support::No("it compares nothing")),
            (Lock::Native, Support::Yes("one step")),
        ],
        refuses: |request| (request.lock == Lock::Native).then_some("its steps are taken"),
        idle,
        ..KIND
    }
}

fn checked(plan: &Plan, targets: &[Target]) -> Result<Grid, String> {
    let check = || {
        let asked = GivenOptions::of(plan);
        plan_check::check(plan, &asked)?;
        let grid = Grid::of(plan, targets)?;
        plan_check::check_effect(plan, &asked, &grid, targets)?;
        Ok(grid)
    };
    check().map_err(|failure: Failure| {
        assert!(matches!(failure, Failure::Usage(_) | Failure::Refused { .. }), "{failure:?}");
        failure.to_string()
    })
}

#[track_caller]
fn refused(plan: &Plan, targets: &[Target], words: &[&str]) {
    let Err(said) = checked(plan, targets) else { panic!("{plan:?} is accepted") };
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

#[test]
fn what_a_store_lacks_is_refused_with_its_reason_and_what_it_has() {
    let targets = [Teller::of(limited()).target()];
    let soft = Plan { locks: vec![Lock::Soft], ..plan(1) };
    refused(&soft, &targets, &["limited has no lock soft", "it compares nothing", "none, native"]);
    refused(&plan(1), &targets, &["cannot carry inventory with lock native", "its steps are taken"]);
    let one_is_left = Plan { locks: vec![Lock::None, Lock::Soft], ..plan(1) };
    refused(&one_is_left, &targets, &["--skip-unsupported"]);
    let skipped = Plan { skip_unsupported: true, ..one_is_left };
    let grid = checked(&skipped, &targets).unwrap();
    assert_eq!((grid.cells.len(), grid.left_out.len()), (1, 1));
    assert_eq!(grid.cells[0].lock, Lock::None);
    refused(&Plan { skip_unsupported: true, ..soft }, &targets, &["nothing in the plan can be run"]);
}

/// An option is refused where no cell heeds it, and accepted where one does.
#[test]
fn an_option_that_no_store_heeds_is_refused() {
    let (limited, whole) = (Teller::of(limited()).target(), Teller::new("whole").target());
    let retries = Plan { max_retries: 3, locks: vec![Lock::None], ..plan(1) };
    refused(
        &retries,
        std::slice::from_ref(&limited),
        &["--max-retries has no effect", "limited: nothing conflicts"],
    );
    assert_eq!(checked(&retries, &[limited, whole]).unwrap().cells.len(), 2);
}

fn connecting(time: Duration) -> Plan {
    Plan { connect_timeout: Span(time), ..plan(1) }
}

/// Only where there is a server is there a connection to wait for.
#[test]
fn the_time_to_connect_needs_a_server() {
    let inside = Teller::new("inside").target();
    let served = Teller::of(StoreKind { name: "served", hosting: Hosting::Program, ..KIND }).target();
    let plan = connecting(Duration::from_secs(30));
    refused(
        &plan,
        std::slice::from_ref(&inside),
        &["--connect-timeout has no effect", "no cell has a server"],
    );
    checked(&plan, &[inside, served]).unwrap();
}

/// Whether a server is the user's own decides which options mean anything.
#[test]
fn options_for_servers_of_one_s_own_need_one() {
    let store = Teller::new("served");
    let usual = Plan::of("inventory").durability;
    let keep = Plan { keep: true, ..plan(1) };
    refused(
        &keep,
        &[store.target()],
        &["--keep has no effect", "a private server is removed with everything in it"],
    );
    let there = Plan { durability: usual, ..keep };
    checked(&there, &[store.at("db.example")]).unwrap();
    // a user's own server keeps its settings: one cell, whatever durability is asked for
    let all = Plan { durability: acidtest_model::Durability::ALL.to_vec(), ..plan(1) };
    refused(&all, &[store.at("db.example")], &["--durability has no effect", "keeps its settings"]);
    refused(&all, &[store.target()], &["served has no durability", "those it has: none"]);
}

/// A fault needs a server that acidtest has started, and a moment within the measured part.
#[test]
fn faults_that_cannot_be_brought_about_are_refused_with_what_would_do() {
    let with = |faults: &str| Plan {
        faults: faults.split(',').map(|fault| fault.parse().unwrap()).collect(),
        duration: Span(Duration::from_secs(5)),
        ..plan(1)
    };
    let served = StoreKind { name: "served", schemes: &["served"], hosting: Hosting::Program, ..KIND };
    let (inside, served) = (Teller::new("inside"), Teller::of(served));
    refused(
        &with("kill@1s"),
        &[inside.target()],
        &["inside has no process of its own", "acidtest's own memory"],
    );
    refused(&with("kill@1s"), &[served.at("db.example")], &["your own", "--store served starts one"]);
    refused(&with("kill:locks@1s"), &[served.target()], &["no lock service", "lock hard"]);
    refused(
        &with("kill@5s"),
        &[served.target()],
        &["--fault kill@5s comes after the end", "5s", "--duration"],
    );
    for several in ["kill:leader@1s", "pause:minority@1s:1s", "kill:all@1s", "kill:server-2@1s"] {
        refused(&with(several), &[served.target()], &["served has one server", several, "write kill@3s"]);
    }
    checked(&with("pause@4s:1s"), &[served.target()]).unwrap();
    for lasting in ["pause@4s:1001ms", "kill@1s:1000s", "kill*2:6s"] {
        refused(&with(lasting), &[served.target()], &[lasting, "is not over by the end", "--duration"]);
    }
    refused(&with("none,kill@1s,kill@1s"), &[served.target()], &["kill@1s is given twice"]);
    let counted = Plan { ops: Some(10), ..with("kill@1s") };
    refused(&counted, &[served.target()], &["--fault has no effect", "a number of operations"]);
    let grid = checked(&with("none,kill@1s,pause*3:100ms"), &[served.target()]).unwrap();
    assert_eq!((grid.cells.len(), grid.faults.len()), (3, 3));
    // what cannot be struck is left out, and the baseline is not
    let skipped = Plan { skip_unsupported: true, ..with("none,kill@1s") };
    let grid = checked(&skipped, &[inside.target(), served.target()]).unwrap();
    assert_eq!((grid.cells.len(), grid.left_out.len()), (3, 1));
    // a lock service is there for hard locks only, and is not ours at an address
    let locked = StoreKind {
        name: "locked",
        hosting: Hosting::Program,
        lock_service: true,
        processes: acidtest_model::EACH_CONNECTS,
        locks: &[(Lock::Hard, Support::Yes("kept elsewhere")), (Lock::Native, Support::Yes("one step"))],
        ..KIND
    };
    let locked = [Teller::of(locked).target()];
    let hard = Plan { locks: vec![Lock::Hard], ..with("kill:locks@1s") };
    checked(&hard, &locked).unwrap();
    refused(&Plan { locks: vec![Lock::Native], ..hard.clone() }, &locked, &["no lock service"]);
    let own = Plan { lock_service: "redis://db.example".to_owned(), ..hard };
    refused(&own, &locked, &["the lock service is your own", "--lock-service redis starts one"]);
}

#[test]
fn values_out_of_range_are_named_with_the_range() {
    let targets = [Teller::new("any").target()];
    let plans = [
        (Plan { clients: vec![0], ..plan(1) }, "--clients must not be empty or zero"),
        (Plan { trials: 0, ..plan(1) }, "--trials must not be empty or zero"),
        (Plan { locks: vec![Lock::None, Lock::None], ..plan(1) }, "none is given twice"),
        (Plan { rates: vec![1e9], ..plan(1) }, "--rate must be between 0.001 and 10,000,000"),
        (Plan { duration: Span(Duration::MAX), ..plan(1) }, "--duration must be at most 90 days"),
        (connecting(Duration::ZERO), "--connect-timeout must be between 100ms and 1h"),
        (connecting(Duration::MAX), "--connect-timeout must be between 100ms and 1h"),
        (Plan { namespace: "Shop".to_owned(), ..plan(1) }, "lower-case letters"),
        (
            Plan { clients: (1..=200).collect(), rates: (1..=99).map(f64::from).collect(), ..plan(1) },
            "10,000",
        ),
    ];
    for (plan, words) in plans {
        refused(&plan, &targets, &[words]);
    }
}

/// What is loaded takes memory or disk where its store keeps it, once for data that trials share, and for each private store;
/// a server of the user's own is elsewhere. What the audit keeps is the same for all of them.
#[test]
fn what_a_plan_needs_follows_from_what_it_loads() {
    let server = StoreKind { name: "server", hosting: Hosting::Program, in_memory: false, ..KIND };
    let server = Teller::of(server);
    let needs = |mix: &str, targets: &[Target]| {
        let parameters = [("mix", mix.into()), ("records", 1_000.into())];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value)).into();
        let plan = Plan { parameters, durability: vec![Durability::None], ..Plan::of("records") };
        Footprint::of(&plan, &Grid::of(&plan, targets).unwrap(), targets)
    };
    let (memory, disk) = (Teller::new("memory").target(), server.target());
    // a key of 23 bytes and 10 fields of 100; 16 and 75 bytes of ledger and audit; 16 clients
    let own = 91_000 + 16 * 25 * 1_024;
    let connected = 16 * u64::from(KIND.client_kib) * 1_024;
    let elsewhere = needs("c", &[server.at("db.example")]);
    assert_eq!(elsewhere, Footprint { memory_bytes: own, disk_bytes: 0 });
    let on_disk = needs("c", &[disk]);
    assert_eq!(on_disk, Footprint { memory_bytes: own + connected, disk_bytes: 3 * 1_023_000 + 100_000 });
    let in_memory = needs("c", &[memory]);
    let memory_bytes = own + connected + 2 * 1_023_000 + 100_000;
    assert_eq!(in_memory, Footprint { memory_bytes, disk_bytes: 0 });
    let both = needs("c", &[server.target(), Teller::new("second").target()]);
    let memory_bytes = memory_bytes + connected;
    assert_eq!(both, Footprint { memory_bytes, disk_bytes: on_disk.disk_bytes });
}

/// A store whose clusters replicate in two ways.
fn replicated() -> StoreKind {
    StoreKind {
        name: "replicated",
        hosting: Hosting::Program,
        replication: &[
            (Replication::Async, Support::Yes("it waits for nobody")),
            (Replication::Semi, Support::No("it knows no timeout")),
            (Replication::Quorum, Support::Yes("it waits for a majority")),
        ],
        ..KIND
    }
}

fn clustered(nodes: &[u32], replication: &[Replication], fault: &str) -> Plan {
    Plan {
        nodes: nodes.to_vec(),
        replication: replication.to_vec(),
        faults: vec![fault.parse().unwrap()],
        durability: vec![Durability::None],
        duration: Span(Duration::from_secs(5)),
        ..plan(1)
    }
}

/// The number of nodes, the replication level, and the guarantees that it does without, of each cell.
fn cells(plan: &Plan) -> Vec<(u32, Replication, bool)> {
    let target = Teller::of(replicated()).target();
    let grid = checked(plan, std::slice::from_ref(&target)).unwrap();
    let without = |cell: &Cell| {
        let (spec, faults) = (grid.workloads[cell.workload].spec(), &grid.faults[cell.faults]);
        cell.unmade(&target, spec, faults).without.contains(&"replication".to_owned())
    };
    grid.cells.iter().map(|cell| (cell.nodes, cell.replication, without(cell))).collect()
}

#[test]
fn each_cluster_is_a_cell_and_one_node_replicates_to_nobody() {
    use Replication::{Async, None};
    assert_eq!(cells(&clustered(&[1, 3], &[Async], "none")), [(1, None, false), (3, Async, false)]);
    assert_eq!(cells(&clustered(&[1, 3], &[None, Async], "none")), [(1, None, false), (3, Async, false)]);
    // one node has no other to take over; what is lost with the leader was promised by nobody
    assert_eq!(cells(&clustered(&[1, 3], &[Async], "lose:primary@1s")), [(3, Async, true)]);
    assert_eq!(cells(&clustered(&[3], &[Async], "kill:standby2@1s")), [(3, Async, false)]);
    assert_eq!(cells(&clustered(&[3], &[Async], "cut:replica-1@1s:1s")), [(3, Async, false)]);
    let of_mixed = clustered(&[1, 3], &[Async], "lose:leader@1s");
    let grid = checked(&of_mixed, &[Teller::of(replicated()).target()]).unwrap();
    assert_eq!(grid.left_out, ["replicated: one node has no other for --fault lose:leader@1s"]);
}

#[test]
fn what_a_cluster_cannot_have_is_refused_with_what_would_do() {
    use Replication::{Async, None, Quorum, Semi};
    let targets = [Teller::of(replicated()).target()];
    let alone = [Teller::of(StoreKind { replication: &[], ..replicated() }).target()];
    let own = [Teller::of(replicated()).at("db.example")];
    let processes = Plan { processes: Some(2), ..clustered(&[3], &[Async], "none") };
    let of_own = Plan { durability: Plan::of("inventory").durability, ..clustered(&[3], &[Async], "none") };
    let promote = Plan { promote: Promotion::First, ..clustered(&[3], &[Async], "none") };
    for (plan, targets, words) in [
        (
            clustered(&[3], &[Semi], "none"),
            &targets,
            &["no replication semi: it knows no timeout", "async"][..],
        ),
        (clustered(&[3], &[None], "none"), &targets, &["--replication none is that of one node"]),
        (clustered(&[3], &[Async], "none"), &alone, &["starts one node of it only", "leave --nodes 3 out"]),
        (of_own, &own, &["--nodes has no effect", "the nodes that it has"]),
        (clustered(&[1], &[Quorum], "none"), &targets, &["--replication has no effect", "ask for --nodes 3"]),
        // it acknowledges before it has written anything
        (clustered(&[3], &[Quorum], "none"), &targets, &["waits for no replica", "--durability disk"]),
        (processes, &targets, &["leave --processes"]),
        (promote, &targets, &["--promote has no effect", "nobody is promoted"]),
        (clustered(&[3], &[Async], "lose*2"), &targets, &["can lose its leader once"]),
        (clustered(&[3], &[Async], "lose@1s+cut:server-2@2s:1s"), &targets, &["can lose its leader once"]),
        (clustered(&[3], &[Async], "kill:replica-3@1s"), &targets, &["no member is replica-3", "replica-2"]),
        (clustered(&[3], &[Async], "kill:server-4@1s"), &targets, &["no member is server-4", "server-3"]),
        (clustered(&[3], &[Async], "kill:all@1s"), &targets, &["strikes one member"]),
        (clustered(&[5], &[Async], "kill:minority@1s"), &targets, &["strikes one member"]),
        (clustered(&[1], &[Async], "lose:leader@1s"), &targets, &["has one server", "--nodes 3"]),
    ] {
        refused(&plan, targets, words);
    }
    checked(&clustered(&[3], &[Async], "kill:minority@1s"), &targets).unwrap();
}

/// Records that are read at the replicas of a store whose reads can be strong, from replication *all* on.
fn read_at(reads: &[Reads], route: &[Route], consistency: &[Consistency]) -> Plan {
    Plan {
        workload: "records".to_owned(),
        reads: reads.to_vec(),
        route: route.to_vec(),
        consistency: consistency.to_vec(),
        durability: vec![Durability::Disk],
        ..clustered(&[3], &[Replication::All], "none")
    }
}

fn with_readers() -> StoreKind {
    StoreKind {
        replication: &[
            (Replication::Async, Support::Yes("it waits for nobody")),
            (Replication::Quorum, Support::Yes("it waits for a majority")),
            (Replication::All, Support::Yes("it waits for everybody")),
        ],
        durability: &[(Durability::Disk, Support::Yes("it syncs"))],
        replica_reads: Some(&ReplicaReads {
            isolation: &[Isolation::ReadCommitted],
            strong: Ok((Replication::All, "apply=yes")),
        }),
        ..replicated()
    }
}

/// How each cell reads, and the guarantees of reads that it does without.
fn read_cells(plan: &Plan) -> Vec<(ReadPolicy, Vec<String>)> {
    let target = Teller::of(with_readers()).target();
    let grid = checked(plan, std::slice::from_ref(&target)).unwrap();
    let of_cell = |cell: &Cell| {
        let (spec, faults) = (grid.workloads[cell.workload].spec(), &grid.faults[cell.faults]);
        (cell.reads, cell.unmade(&target, spec, faults).without)
    };
    grid.cells.iter().map(of_cell).collect()
}

#[test]
fn where_the_leader_answers_there_is_neither_a_route_nor_a_consistency() {
    use Consistency::{Eventual, Strong};
    let plan =
        read_at(&[Reads::Leader, Reads::Replica], &[Route::Pinned, Route::Spread], &[Eventual, Strong]);
    let all = ["consistency", "read-your-writes", "monotonic-reads"];
    let replica = |route, consistency| ReadPolicy { from: Reads::Replica, route, consistency };
    let expected = [
        ReadPolicy::default(),
        replica(Route::Pinned, Eventual),
        replica(Route::Pinned, Strong),
        replica(Route::Spread, Eventual),
        replica(Route::Spread, Strong),
    ];
    assert_eq!(read_cells(&plan), expected.map(|reads| (reads, Vec::new())));
    // one node is read where it is written
    let alone = Plan { nodes: vec![1, 3], ..read_at(&[Reads::Any], &[Route::Pinned], &[Eventual]) };
    let reads: Vec<Reads> = read_cells(&alone).into_iter().map(|(policy, _)| policy.from).collect();
    assert_eq!(reads, [Reads::Leader, Reads::Any]);
    // a member that comes back, or takes over, may show less than before
    for fault in ["kill:replica-1@1s", "lose:leader@1s", "pause:leader@1s:1s"] {
        let plan = Plan {
            faults: vec![fault.parse().unwrap()],
            ..read_at(&[Reads::Any], &[Route::Pinned], &[Strong])
        };
        assert_eq!(read_cells(&plan)[0].1, all, "{fault}");
    }
}

#[test]
fn reads_that_no_replica_answers_are_refused_with_what_would_do() {
    use Consistency::{Eventual, Strong};
    let targets = [Teller::of(with_readers()).target()];
    let unread = [Teller::of(StoreKind { replica_reads: None, ..with_readers() }).target()];
    let replica = |consistency| read_at(&[Reads::Replica], &[Route::Pinned], &[consistency]);
    let eventual = || replica(Eventual);
    let with = |values: serde_json::Value| Plan {
        parameters: values
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        ..eventual()
    };
    for (plan, targets, words) in [
        (eventual(), &unread, &["is not read at replicas here", "leave --reads replica out"][..]),
        (
            Plan { nodes: vec![1], replication: vec![Replication::Async], ..eventual() },
            &targets,
            &["--reads has no effect"],
        ),
        (
            read_at(&[Reads::Leader], &[Route::Spread], &[Eventual]),
            &targets,
            &["--route has no effect", "--reads replica"],
        ),
        (read_at(&[Reads::Leader], &[Route::Pinned], &[Strong]), &targets, &["--consistency has no effect"]),
        (
            Plan { replication: vec![Replication::Quorum], ..replica(Strong) },
            &targets,
            &["needs --replication all", "apply=yes", "before the replica that is read has applied it"],
        ),
        (
            Plan { workload: "inventory".to_owned(), ..eventual() },
            &targets,
            &["only the workload records is read"],
        ),
        (Plan { locks: vec![Lock::None], ..eventual() }, &targets, &["without a lock", "--lock native"]),
        (with(serde_json::json!({ "mix": "update:1" })), &targets, &["no reads of its own", "--mix b"]),
        (
            with(serde_json::json!({ "mix": "a", "transaction": 4 })),
            &targets,
            &["is the leader's", "--mix c"],
        ),
        (
            with(serde_json::json!({ "isolation": "serializable" })),
            &targets,
            &["no isolation serializable", "read-committed"],
        ),
        (
            Plan { faults: vec!["lose:leader@1s+lose:replica-1@2s".parse().unwrap()], ..eventual() },
            &targets,
            &["leaves a leader alone, of 3 nodes", "--nodes 4, or --reads any"],
        ),
        (
            Plan { nodes: vec![2], faults: vec!["lose:leader@1s".parse().unwrap()], ..eventual() },
            &targets,
            &["leaves a leader alone", "--nodes 3, or --reads any"],
        ),
    ] {
        refused(&plan, targets, words);
    }
    let own = [Teller::of(with_readers()).at("db.example")];
    let of_own = Plan { durability: Plan::of("records").durability, ..eventual() };
    refused(
        &Plan { nodes: vec![1], replication: vec![Replication::Async], ..of_own },
        &own,
        &["your own server is read"],
    );
    let single = Plan { nodes: vec![1], replication: vec![Replication::Async], ..eventual() };
    refused(&single, &unread, &["starts no replicas of this store"]);
    // of two nodes, a majority is both
    let two = Plan { nodes: vec![2], replication: vec![Replication::Quorum], ..replica(Strong) };
    checked(&two, &targets).unwrap();
    checked(&with(serde_json::json!({ "mix": "c", "transaction": 4 })), &targets).unwrap();
    checked(&Plan { locks: Plan::of("records").locks, ..with(serde_json::json!({ "mix": "d" })) }, &targets)
        .unwrap();
}
