//! Clusters that acidtest starts: members that are lost, cut off and killed, who takes over, and what is there afterwards. Each
//! verdict is that of real servers.

use acidtest_testbed::with_more_time;
use serde_json::Value;

use crate::{
    common::{Bench, wanted},
    faults::{cells, found, injections, trial, verdict},
};

/// A run of the inventory on three nodes of PostgreSQL.
const RUN: [&str; 11] = [
    "run",
    "inventory",
    "--store",
    "postgres",
    "--nodes",
    "3",
    "--warmup",
    "0s",
    "--timeout",
    "1s",
    "--clients=4",
];

/// What was found of anything but these guarantees.
fn found_besides(cell: &Value, guarantees: &[&str]) -> Vec<Value> {
    let findings = trial(cell)["audit"]["findings"].as_array().unwrap();
    let is_other = |finding: &&Value| {
        finding["count"] != 0 && !guarantees.contains(&finding["guarantee"].as_str().unwrap())
    };
    findings.iter().filter(is_other).cloned().collect()
}

fn compared(cell: &Value) -> u64 {
    trial(cell)["audit"]["evidence"]["members_compared"].as_u64().unwrap_or(0)
}

fn injection(cell: &Value) -> &Value {
    injections(cell).last().unwrap()
}

/// Who was promoted.
fn promoted(cell: &Value) -> &str {
    injection(cell)["promotion"]["member"].as_str().unwrap_or("nobody")
}

/// A leader that is killed for good is replaced, and clients find the new one. What a majority has confirmed is there.
#[test]
fn a_replica_takes_over_from_a_leader_that_is_lost() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let (ended, result) = with_more_time(1000, |millis| {
        let (fault, duration) = (format!("lose:primary@{millis}ms"), format!("{}ms", millis + 4000));
        let words = ["--replication", "async,quorum", "--fault", &fault, "--duration", &duration];
        let ended = bench.run(&[&RUN[..], &words].concat()).expect(0);
        let result = bench.result();
        let is_served_again = |cell: &Value| injection(cell)["next_ok_seconds"].is_number();
        let acknowledged = |cell: &Value| injection(cell)["acknowledged"] != 0;
        let all = cells(&result).iter().all(|cell| is_served_again(cell) && acknowledged(cell));
        if all { Ok((ended, result)) } else { Err(ended.stdout) }
    });
    let levels: Vec<&str> = cells(&result).iter().map(|cell| cell["replication"].as_str().unwrap()).collect();
    assert_eq!(levels, ["async", "quorum"]);
    for cell in cells(&result) {
        let is_async = cell["replication"] == "async";
        assert_eq!(cell["replication_read"]["level"], cell["replication"], "{cell:#}");
        assert_eq!(
            (cell["nodes"].as_u64(), cell["replication_read"]["following"].as_u64()),
            (Some(3), Some(2))
        );
        assert_eq!(found_besides(cell, &["replication"]), [] as [Value; 0], "{}", ended.stdout);
        assert!(is_async || verdict(cell) == "holds", "{}", ended.stdout);
        assert_eq!(cell["without"] == serde_json::json!(["replication"]), is_async);
        assert!(["server-2", "server-3"].contains(&promoted(cell)), "{cell:#}");
        assert_eq!(
            (injection(cell)["fault"].as_str(), injection(cell)["member"].as_str()),
            (Some("lose"), Some("server-1"))
        );
        assert_ne!(injection(cell)["crash"], true, "it tests replication, and no durability level");
        // those that are left have the same
        assert_eq!(compared(cell), 2, "{cell:#}");
    }
    bench.assert_clean();
}

/// A leader that is cut off goes on for its clients. Where it waits for nobody, what it acknowledges is lost with it; where it waits
/// for a majority it acknowledges nothing.
#[test]
fn a_leader_that_is_cut_off_loses_what_no_replica_has() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let words = ["--replication", "async,quorum", "--fault", "cut:leader@1s:3s", "--duration", "7s"];
    let ended = bench.run(&[&RUN[..], &words].concat()).expect(0);
    let result = bench.result();
    let [of_async, quorum] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!(verdict(of_async), "broken", "{}", ended.stdout);
    assert!(found(of_async, "replication") > 0, "{}", ended.stdout);
    assert_eq!(verdict(quorum), "holds", "{}", ended.stdout);
    for cell in [of_async, quorum] {
        assert_eq!(found_besides(cell, &["replication"]), [] as [Value; 0], "{}", ended.stdout);
        assert!(["server-2", "server-3"].contains(&promoted(cell)), "{cell:#}");
        assert!(injection(cell)["next_ok_seconds"].is_number(), "nobody was served again: {cell:#}");
        // the old leader, too, which was copied anew
        assert_eq!(compared(cell), 3, "{cell:#}");
    }
    bench.assert_clean();
}

/// A majority has what was acknowledged; the first replica need not be of it.
#[test]
fn who_is_promoted_decides_what_a_majority_is_worth() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let fault = "cut:replica-1@500ms:4s+lose:leader@2s";
    for (rule, member) in [("first", "server-2"), ("most-advanced", "server-3")] {
        let words = ["--replication", "quorum", "--promote", rule, "--fault", fault, "--duration", "7s"];
        let ended = bench.run(&[&RUN[..], &words].concat()).expect(0);
        let result = bench.result();
        let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
        let is_first = rule == "first";
        assert_eq!(verdict(cell), if is_first { "broken" } else { "holds" }, "{rule}: {}", ended.stdout);
        assert_eq!((found(cell, "replication") > 0, promoted(cell)), (is_first, member), "{rule}");
        assert_eq!(found_besides(cell, &["replication"]), [] as [Value; 0], "{rule}: {}", ended.stdout);
        assert_eq!(cell["without"] == serde_json::json!(["replication"]), is_first, "{rule}");
        assert_eq!(compared(cell), 2, "{rule}: {cell:#}");
    }
    bench.assert_clean();
}

/// What comes back by itself is waited for, and nobody is promoted.
#[test]
fn members_that_come_back_are_waited_for() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let fault =
        "kill:standby2@500ms+kill:leader@1s:300ms+pause:replica-1@2500ms:500ms+cut:replica-2@4s:500ms";
    let words = ["--replication", "quorum", "--fault", fault, "--duration", "6s"];
    let ended = bench.run(&[&RUN[..], &words].concat()).expect(0);
    let result = bench.result();
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
    let injections = injections(cell);
    let members: Vec<&str> = injections.iter().map(|each| each["member"].as_str().unwrap()).collect();
    assert_eq!(members, ["server-3", "server-1", "server-2", "server-3"]);
    assert!(injections.iter().all(|each| each["promotion"].is_null()), "{cell:#}");
    assert!(injections.iter().all(|each| each["answered_seconds"].is_number()), "{cell:#}");
    let crashes: Vec<bool> = injections.iter().map(|each| each["crash"] == true).collect();
    // a replica that is killed has acknowledged nothing
    assert!(!crashes[0] && !crashes[2] && !crashes[3], "{cell:#}");
    assert_eq!(compared(cell), 3);
    bench.assert_clean();
}

/// A promotion waits until so many replicas answer that one has all that was acknowledged; and nothing is done to a member that is
/// cut off, so that the cut has an end.
#[test]
fn faults_upon_each_other_lose_nothing_that_a_quorum_has() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let fault = "cut:replica-2@500ms:3s+pause:replica-2@1s:500ms+kill:replica-1@2s:1500ms+lose:leader@2200ms";
    let words = ["--replication", "quorum", "--fault", fault, "--duration", "7s"];
    let ended = bench.run(&[&RUN[..], &words].concat()).expect(0);
    let result = bench.result();
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
    // when the cut is over, what was on its way may reach the one that was cut off
    assert!(["server-2", "server-3"].contains(&promoted(cell)), "{cell:#}");
    assert_eq!(compared(cell), 2, "{cell:#}");
    let injections = injections(cell);
    let missed: Vec<bool> = injections.iter().map(|each| each["missed"] == true).collect();
    assert_eq!(missed, [false, true, false, false], "{cell:#}");
    bench.assert_clean();
}

/// A run of records that are read at replicas.
const READ: [&str; 13] = [
    "run",
    "records",
    "--store",
    "postgres",
    "--nodes",
    "3",
    "--mix",
    "a",
    "--records=50",
    "--warmup=0s",
    "--timeout",
    "1s",
    "--clients=4",
];

/// A figure of how old the reads of a cell were.
fn staleness(cell: &Value, name: &str) -> u64 {
    trial(cell)["staleness"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {cell:#}"))
}

/// Where commits wait until replicas have applied them, no read is old, whichever member answers.
#[test]
fn reads_at_replicas_are_as_old_as_was_promised() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let words = ["--replication", "all", "--reads", "leader,replica,any", "--consistency", "eventual,strong"];
    let ended =
        bench.run(&[&READ[..], &words, &["--route", "spread", "--duration", "2s"]].concat()).expect(0);
    let result = bench.result();
    let told: Vec<(&str, &str)> = cells(&result)
        .iter()
        .map(|cell| {
            let word = |name: &str, usual| cell[name].as_str().unwrap_or(usual);
            (word("reads", "leader"), word("consistency", "eventual"))
        })
        .collect();
    let expected = [
        ("leader", "eventual"),
        ("replica", "eventual"),
        ("replica", "strong"),
        ("any", "eventual"),
        ("any", "strong"),
    ];
    assert_eq!(told, expected);
    for (cell, (reads, consistency)) in cells(&result).iter().zip(told) {
        assert_eq!(verdict(cell), "holds", "{reads} {consistency}: {}", ended.stdout);
        assert_eq!(cell["replication_read"]["consistency"], consistency, "{cell:#}");
        if reads == "leader" {
            assert!(trial(cell)["staleness"].is_null(), "{cell:#}");
            continue;
        }
        let (all, at_leader) = (staleness(cell, "reads"), staleness(cell, "at_leader"));
        assert!(all > 100 && (at_leader > 0) == (reads == "any") && at_leader < all, "{cell:#}");
        if consistency == "strong" {
            assert_eq!((staleness(cell, "stale"), staleness(cell, "own_writes_missed")), (0, 0), "{cell:#}");
        }
    }
    bench.assert_clean();
}

/// A replica that is cut off answers with what it had, and that is counted, as no replication level forbids it.
#[test]
fn a_replica_that_is_cut_off_is_read_all_the_same() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let words = ["--reads", "replica", "--route", "pinned,spread", "--fault", "cut:replica-1@1s:2s"];
    let ended = bench.run(&[&READ[..], &words, &["--duration", "4s"]].concat()).expect(0);
    let result = bench.result();
    for cell in cells(&result) {
        assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
        assert!(staleness(cell, "stale") > 0 && staleness(cell, "own_writes_missed") > 0, "{cell:#}");
        let oldest = trial(cell)["staleness"]["milliseconds"]["max"].as_f64().unwrap();
        assert!((1000.0..4500.0).contains(&oldest), "{cell:#}");
        // who reads from one replica never goes back, unless it has lost the connection to that one
        let is_pinned = cell["route"].is_null();
        let may_go_back = !is_pinned || trial(cell)["reconnects"] != 0;
        assert!(may_go_back || staleness(cell, "went_back") == 0, "{cell:#}");
        assert!(is_pinned || staleness(cell, "went_back") > 0, "{cell:#}");
    }
    assert_eq!(cells(&result).len(), 2);
    bench.assert_clean();
}

/// Reads go on while nobody takes writes, and what was promoted is read as a replica by whoever was there before.
#[test]
fn replicas_are_read_while_a_leader_is_replaced() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let words =
        ["--replication", "quorum", "--reads", "any", "--route", "spread", "--fault", "lose:leader@1s"];
    let ended = bench.run(&[&READ[..], &words, &["--duration", "6s"]].concat()).expect(0);
    let result = bench.result();
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
    assert_eq!(found_besides(cell, &[]), [] as [Value; 0]);
    assert!(injection(cell)["next_ok_seconds"].is_number(), "nobody was served again: {cell:#}");
    assert!(staleness(cell, "reads") > 100, "{cell:#}");
    bench.assert_clean();
}
