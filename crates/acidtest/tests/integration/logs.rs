//! Runs of the workload logs, with a gateway in front of real databases: what is kept, what is lost, and what a database
//! does that an audit must see. A store that is not installed fails these tests, unless `ACIDTEST_TEST_WITHOUT` names it.

#![cfg(feature = "gateway")]
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{Bench, wait, wanted};
use serde_json::Value;

fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().unwrap()
}

fn audit(cell: &Value) -> &Value {
    &cell["trials"][0]["audit"]
}

fn evidence(cell: &Value, name: &str) -> u64 {
    audit(cell)["evidence"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {cell:#}"))
}

fn finding(cell: &Value, name: &str) -> u64 {
    let findings = audit(cell)["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).unwrap()["count"].as_u64().unwrap()
}

/// Twenty clients with ten entries each, in half a second.
const FEW: [&str; 6] = ["--clients", "20", "--entries", "10", "--ramp", "500ms"];

fn run(bench: &Bench, words: &[&str]) -> (crate::common::CommandResult, Value) {
    let ended = bench.run(&[&["run", "logs"], words].concat());
    let result = bench.result();
    (ended, result)
}

/// Both architectures store what they acknowledge in every database, whether entries are sent one by one or together.
#[test]
fn what_is_acknowledged_is_stored() {
    let stores: Vec<&str> = ["sqlite", "postgres", "mariadb"]
        .into_iter()
        .filter(|store| *store == "sqlite" || wanted(store))
        .collect();
    let bench = Bench::new();
    let words =
        ["--store", &stores.join(","), "--architecture", "direct,queued", "--entries-per-request", "1,5"];
    let (ended, result) = run(&bench, &[&FEW[..], &words].concat());
    ended.expect(0);
    assert_eq!(cells(&result).len(), stores.len() * 4);
    for cell in cells(&result) {
        assert_eq!(audit(cell)["verdict"], "holds", "{cell:#}");
        for name in ["sent", "acknowledged", "saved"] {
            assert_eq!(evidence(cell, name), 200, "{name}: {cell:#}");
        }
        assert!((1..=20).contains(&evidence(cell, "most_clients")), "{cell:#}");
        assert!(evidence(cell, "saved_per_second") > 0, "{cell:#}");
        let each = if cell["parameters"]["entries_per_request"] == 5 { 40 } else { 200 };
        assert_eq!(cell["trials"][0]["operations"][0]["service"]["ok"]["count"], each, "{cell:#}");
    }
    let shown = bench.run(&["show", &bench.results()[0].display().to_string()]).expect(0).stdout;
    for words in ["20 clients, which come and go", "saved per second", "not saved", "0.00 %", "gateway"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    bench.assert_clean();
}

/// A gateway that is killed loses what waits in its memory, and nothing that waits on disk. Clients outlast it.
#[test]
fn a_killed_gateway_loses_what_waits_in_its_memory() {
    let bench = Bench::new();
    let words = ["--clients", "150", "--entries", "20", "--ramp", "1500ms", "--fault", "kill:gateway@800ms"];
    let (ended, result) = run(&bench, &[&words[..], &["--queue", "disk"]].concat());
    ended.expect(0);
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!((&audit(cell)["verdict"], finding(cell, "lost")), (&"holds".into(), 0), "{cell:#}");
    let kill = &cell["trials"][0]["injections"][0];
    assert!(kill["member"] == "gateway" && kill["answered_seconds"].is_number(), "{kill:#}");
    // it counts, also where it falls between two requests
    assert!(kill["interrupted"] != 0 && kill["crash"] == true, "{kill:#}");
    assert!(evidence(cell, "acknowledged") > 2000, "{cell:#}");
    // where nothing waits at that moment, nothing is lost
    let loses = || {
        let (ended, result) = run(&bench, &[&words[..], &["--queue", "memory"]].concat());
        ended.expect(0);
        let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
        assert_eq!(cell["without"], serde_json::json!(["durability"]), "{cell:#}");
        assert_eq!(cell["effective"]["durability"], "none", "{cell:#}");
        let lost = finding(cell, "lost");
        assert_eq!(audit(cell)["verdict"], if lost > 0 { "broken" } else { "holds" }, "{cell:#}");
        lost > 0
    };
    assert!((0..5).any(|_| loses()), "nothing was lost five times");
    bench.assert_clean();
}

/// A gateway that is stopped in order or stands still loses nothing, not even of what waits in its memory.
#[test]
fn a_gateway_that_stops_in_order_loses_nothing() {
    let bench = Bench::new();
    let words = ["--clients", "60", "--entries", "10", "--ramp", "1500ms", "--queue", "disk,memory"];
    let faults = ["--fault", "restart:gateway@400ms,pause:gateway@400ms:300ms"];
    let (ended, result) = run(&bench, &[&words[..], &faults].concat());
    ended.expect(0);
    for cell in cells(&result) {
        assert_eq!((&audit(cell)["verdict"], finding(cell, "lost")), (&"holds".into(), 0), "{cell:#}");
        assert_eq!(cell["trials"][0]["injections"][0]["member"], "gateway", "{cell:#}");
    }
    bench.assert_clean();
}

/// A database that is killed, and is away for a while, costs nothing: not what waits in the queue, and directly not what was
/// acknowledged.
#[test]
fn a_killed_database_loses_nothing() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let words =
        ["--store", "postgres", "--architecture", "direct,queued", "--fault", "kill:sink@600ms:400ms"];
    let load = ["--clients", "60", "--entries", "20", "--ramp", "1500ms"];
    let (ended, result) = run(&bench, &[&words[..], &load].concat());
    ended.expect(0);
    for cell in cells(&result) {
        assert_eq!(audit(cell)["verdict"], "holds", "{cell:#}");
        let is_direct = cell["parameters"]["architecture"] == "direct";
        let is_whole = evidence(cell, "acknowledged") == 1200;
        assert!(is_direct || is_whole, "a queue takes entries while the database is away: {cell:#}");
        assert_eq!(cell["trials"][0]["injections"][0]["member"], "server", "{cell:#}");
    }
    bench.assert_clean();
}

/// More clients than files can be open come where the limit can be raised, and are refused where it cannot.
#[test]
fn more_clients_than_files_come_where_that_is_allowed() {
    let bench = Bench::new();
    let limited = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n 500 && {script}"), env!("CARGO_BIN_EXE_acidtest")]);
        shell.args(["run", "logs", "--clients", "400", "--entries", "1", "--ramp", "500ms"]);
        shell.current_dir(bench.path("")).env("ACIDTEST_LAB", bench.path("lab")).output().unwrap()
    };
    let is_allowed = limited("ulimit -Hn 900").status.success();
    let ended = limited("exec \"$0\" \"$@\"");
    let said = String::from_utf8_lossy(&ended.stderr);
    if is_allowed {
        assert_eq!(ended.status.code(), Some(0), "{said}");
    } else {
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("a process can have 500 files open"), "{said}");
    }
}

/// Clients in several processes, one of which stands still for a while, are judged as those of one.
#[test]
fn clients_may_be_in_several_processes() {
    let bench = Bench::new();
    for words in [&["--processes", "2"][..], &["--fault", "stall@100ms:200ms"]] {
        let (ended, result) = run(&bench, &[&FEW[..], words].concat());
        ended.expect(0);
        let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
        assert_eq!(audit(cell)["verdict"], "holds", "{cell:#}");
        assert_eq!((evidence(cell, "sent"), evidence(cell, "saved")), (200, 200), "{cell:#}");
    }
    bench.assert_clean();
}

/// All clients are connected at once, where that is asked for, and send over the time of the ramp.
#[test]
fn connections_may_stay_open() {
    let bench = Bench::new();
    let words = ["--clients", "300", "--entries", "4", "--ramp", "1s", "--hold-open", "true"];
    let (ended, result) = run(&bench, &words);
    ended.expect(0);
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!((evidence(cell, "most_clients"), evidence(cell, "saved")), (300, 1200), "{cell:#}");
    let window = cell["trials"][0]["seconds"].as_f64().unwrap();
    assert!(window > 0.9, "{window}");
}

/// What a database does to entries behind a gateway's back is found, by the finding that is meant for it.
#[test]
fn a_database_that_changes_entries_is_found_out() {
    let plants = [
        ("lost", "DELETE FROM {t} WHERE id = new.id"),
        ("torn", "UPDATE {t} SET message = replace(message, 'order', 'Order') WHERE id = new.id"),
        ("torn", "UPDATE {t} SET logged_at = logged_at + 1 WHERE id = new.id"),
        (
            "duplicated",
            "INSERT INTO {t} SELECT 'another', id, received_at, logged_at, level, application, message, attributes FROM {t}
             WHERE id = new.id",
        ),
        (
            "foreign",
            "INSERT INTO {t} SELECT user_name, id || '0000000', received_at, logged_at, level, application, message, attributes
             FROM {t} WHERE id = new.id",
        ),
    ];
    for (name, does) in plants {
        let bench = Bench::new();
        let file = bench.path("theirs.db");
        let store = format!("sqlite:{}", file.display());
        let words = ["run", "logs", "--store", &store, "--clients", "40", "--entries", "10", "--ramp", "2s"];
        let running = bench.spawn(&words);
        plant(&file, &does.replace("{t}", "acidtest_logs_1"));
        wait(running).expect(4);
        let result = bench.result();
        let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
        assert_eq!(audit(cell)["verdict"], "broken", "{name}");
        let found = audit(cell)["findings"].as_array().unwrap();
        let found: Vec<&str> = found
            .iter()
            .filter(|finding| finding["count"] != 0)
            .map(|finding| finding["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, [name], "{cell:#}");
        // nothing of acidtest's is left in the user's file
        let left: i64 = rusqlite::Connection::open(&file)
            .unwrap()
            .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
            .unwrap_or(0);
        assert_eq!(left, 0, "{name}");
    }
}

/// Has every tenth entry treated so as soon as the gateway has made its table.
fn plant(file: &Path, does: &str) {
    let trigger = format!(
        "CREATE TRIGGER planted AFTER INSERT ON acidtest_logs_1 WHEN new.user_name = 'acidtest_logs_1' AND new.id LIKE '%-3'
         BEGIN {does}; END"
    );
    let begun = Instant::now();
    loop {
        let planted = rusqlite::Connection::open(file).and_then(|connection| {
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.execute_batch(&trigger)
        });
        match planted {
            Ok(()) => return,
            Err(error) => assert!(begun.elapsed() < Duration::from_mins(1), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = Bench::new();
    let cases: [(&[&str], &str); 20] = [
        (&["--fault", "kill:queue@1s"], "there is no broker"),
        (&["--fault", "kill:collector@1s"], "there is no collector of its own"),
        (&["--queue", "nats", "--fault", "kill@1s"], "write kill:collector@3s"),
        (&["--architecture", "direct", "--queue", "nats"], "there is no queue"),
        (&["--store", "redis"], "a gateway stores in SQLite, PostgreSQL, MariaDB or MySQL"),
        (&["--store", "mariadb/myisam"], "a gateway stores in InnoDB"),
        (&["--fault", "kill@1s"], "write kill:gateway@3s"),
        (&["--fault", "kill:locks@1s"], "no lock service"),
        (&["--fault", "kill:gateway@10s"], "comes after the end of the ramp, which lasts 10s"),
        (&["--fault", "pause:gateway@9s:2s"], "is not over by the end of the ramp"),
        (&["--durability", "none"], "is opened by the gateway"),
        (&["--collectors", "4"], "takes one transaction at a time: leave --collectors 4 out"),
        (&["--duration", "5s"], "--duration has no effect here"),
        (&["--ops", "5"], "until the last has left"),
        (&["--rate", "5"], "set how much is sent"),
        (&["--timeout", "5s"], "--give-up says how long"),
        (&["--architecture", "direct", "--queue", "memory"], "there is no queue"),
        (&["--sink-connections", "9"], "each collector has one"),
        (&["--entries-per-request", "7"], "a multiple of entries_per_request"),
        (&["--ramp", "soon"], "is not a length of time"),
    ];
    for (words, said) in cases {
        let ended = bench.run(&[&["run", "logs"], words].concat()).expect(2);
        assert!(ended.stderr.contains(said), "{words:?}: {}", ended.stderr);
    }
    let ended = bench.run(&["run", "inventory", "--fault", "kill:gateway@1s"]).expect(2);
    assert!(ended.stderr.contains("there is no gateway of acidtest's own"), "{}", ended.stderr);
}

#[test]
fn what_waits_in_nats_outlasts_kills() {
    what_waits_outlasts_kills("nats");
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::what_waits_outlasts_kills;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn what_waits_in_rabbitmq_outlasts_kills() {
        what_waits_outlasts_kills("rabbitmq");
    }
}

/// What waits in a broker outlasts kills of the broker, of the gateway before it and of the collector behind it, which have
/// processes of their own. A gateway and a collector that come back while the broker is away start again until it is there.
fn what_waits_outlasts_kills(queue: &str) {
    if !wanted(queue) {
        return;
    }
    let bench = Bench::new();
    let words = ["--clients", "100", "--entries", "20", "--ramp", "2s", "--queue", queue];
    let kills = "kill:collector@500ms+kill:queue@800ms:500ms+kill:gateway@900ms+kill:collector@1s";
    let (ended, result) = run(&bench, &[&words[..], &["--fault", kills]].concat());
    ended.expect(0);
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!((&audit(cell)["verdict"], finding(cell, "lost")), (&"holds".into(), 0), "{cell:#}");
    assert!(evidence(cell, "acknowledged") > 300, "{cell:#}");
    let injections = cell["trials"][0]["injections"].as_array().unwrap();
    // on a slow machine the collector is struck again before it has answered
    let is_back = |kill: &Value| kill["answered_seconds"].is_number() || kill["overtaken"] == true;
    assert!(injections.iter().all(is_back), "{injections:#?}");
    let durability = if queue == "nats" { "process" } else { "disk" };
    assert_eq!(cell["effective"]["durability"], durability, "{cell:#}");
    let used = cell["trials"][0]["resources"]["others"].as_object().unwrap();
    for role in ["queue", "gateway", "collector"] {
        assert!(used.contains_key(role), "{role}: {used:#?}");
    }
    let shown = bench.run(&["show", &bench.results()[0].display().to_string()]).expect(0).stdout;
    assert!(shown.contains("no loss seen"), "{shown}");
    bench.assert_clean();
}
