//! Runs that are started, watched, stopped, cut off, resumed and read.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use acidtest_testbed::wanted;
use serde_json::{Value, json};

use super::server::{Server, plan};
use crate::common::{Bench, busy, signal, until};

/// The names of events, in their order, each once where several of a sort follow each other.
fn names(events: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    names.dedup();
    names
}

/// Before its trials, on a machine that other programs use.
#[test]
fn a_run_looks_at_the_machine_first() {
    let bench = Bench::new();
    let asked =
        json!({"workload": "inventory", "stores": ["sqlite"], "durability": ["none"], "duration": "5s"});
    busy(|| {
        let server = Server::start(&bench, &[]);
        let run = server.run(&asked);
        let mut events = server.watch(&run);
        while events.line().unwrap() != "event: note\n" {}
        let about = server.get(&run).expect(200).json();
        let note = about["notes"][0].as_str().unwrap().to_owned();
        assert!(note.contains("other programs use ") && note.contains("--quiet-machine"), "{note}");
        let page = server.get(&run.replace("/api", "")).expect(200).body;
        assert!(page.contains("Note: other programs use "), "{page}");
        server.delete(&run).expect(202);
        server.until_state(&run, "stopped");
        server.end("INT");
        let server = Server::start(&bench, &["--quiet-machine=refuse"]);
        let run = server.run(&asked);
        server.until_state(&run, "failed");
        let about = server.get(&run).expect(200).json();
        assert_eq!((&about["exit_status"], &about["notes"]), (&json!(8), &json!([])));
        let error = about["error"].as_str().unwrap();
        assert!(error.starts_with("not run: other programs use "), "{error}");
    });
}

#[test]
fn a_run_is_watched_to_its_end_and_has_the_result_of_the_command_line() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let asked = json!({
        "workload": "inventory", "stores": ["sqlite"], "durability": ["none"], "locks": ["none", "native"], "clients": [2],
        "duration": "2s", "warmup": "100ms", "parameters": {"items": 20}
    });
    let run = server.run(&asked);
    let events = server.events(&run);
    let told = names(&events);
    assert_eq!(told.last(), Some(&"state"));
    for name in ["begun", "doing", "trial", "second", "verdict"] {
        assert!(told.contains(&name), "{name} in {told:?}");
    }
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let verdicts = of("verdict");
    assert_eq!(verdicts.len(), 2, "{verdicts:?}");
    // each second of both trials is told once, with its counts and times
    let seconds: Vec<&Value> =
        of("second").iter().flat_map(|event| event["seconds"].as_array().unwrap()).collect();
    let of_number = |number: u64| seconds.iter().filter(|second| second["second"] == number).count();
    assert_eq!((of_number(0), of_number(1)), (2, 2), "{seconds:?}");
    assert!(
        seconds[0]["ended"]["capture"]["ok"].as_u64() > Some(0) && seconds[0]["p99_ns"].as_u64() > Some(0)
    );
    let used = of("second")[0]["used"].as_array().unwrap().clone();
    assert!(
        used.iter().any(|used| used["who"] == "clients" && used["cores"].as_f64() > Some(0.0)),
        "{used:?}"
    );

    let about = server.get(&run).expect(200).json();
    assert_eq!(
        (&about["state"], &about["verdict"], &about["exit_status"]),
        (&json!("done"), &json!("holds"), &json!(0))
    );
    let result = server.get(&format!("{run}/result")).expect(200).json();
    // a reader who comes later gets the same
    assert_eq!(names(&server.events(&run)).last(), Some(&"state"));
    // the command that is said to run the same does, in a process of its own
    let command = about["command"].as_str().unwrap().to_owned();
    let words: Vec<&str> = command.split(' ').skip(1).chain(["--out", "twin.json", "--quiet"]).collect();
    bench.run(&words).expect(0);
    let twin: Value = serde_json::from_str(&fs::read_to_string(bench.path("twin.json")).unwrap()).unwrap();
    assert_eq!(result["plan"], twin["plan"]);
    assert_eq!(shape(&result), shape(&twin));
    for index in 0..2 {
        let ok = |result: &Value| result["cells"][index]["trials"][0]["throughput"].as_f64().unwrap();
        let ratio = ok(&result) / ok(&twin);
        assert!((0.2..5.0).contains(&ratio), "{ratio} of what the command line measures");
    }
    let page = server.get(&format!("{run}/report.html")).expect(200);
    assert!(
        page.body.starts_with("<!DOCTYPE html>")
            && page.head.contains("content-security-policy: default-src 'none'")
    );
    let id = run.rsplit('/').next().unwrap();
    let compared =
        server.get(&format!("/api/compare?a={id}&a_cells=lock=native&b_cells=lock=none")).expect(200).json();
    assert_eq!(compared["pairs"].as_array().unwrap().len(), 1, "{compared}");
    let wrong =
        server.get(&format!("/api/compare?a={id}&a_cells=lokc=native&b_cells=lock=none")).expect(422).json();
    assert!(wrong["detail"].as_str().unwrap().contains("did you mean \"lock\"?"), "{wrong}");
    server.post(&format!("{run}/resume"), &json!({})).expect(409);
    assert_eq!(server.delete(&run).expect(200).json()["state"], "done", "it has ended, and stays as it is");
    assert_eq!(server.end("TERM").expect(0).stderr.lines().count(), 3);
    bench.assert_clean();
}

/// The keys of a document, with lists by their first entry, and what is neither measured nor drawn.
fn shape(value: &Value) -> Value {
    match value {
        // what it holds depends on what happened: faults, findings, seconds, who used what
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| {
                !["service", "response", "ended", "evidence", "findings", "others"].contains(&key.as_str())
            })
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(list) => list.first().map(shape).into_iter().collect(),
        Value::Number(_) => json!(0),
        Value::String(_) => json!(""),
        other => other.clone(),
    }
}

#[test]
fn runs_are_made_one_at_a_time_in_their_order_and_stopped_tidily() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    // two browsers at once
    let both: Vec<String> = thread::scope(|scope| {
        let asks = [(); 2].map(|()| scope.spawn(|| server.run(&plan(60_000))));
        asks.map(|ask| ask.join().unwrap()).into()
    });
    assert_ne!(both[0], both[1]);
    let third = server.run(&plan(300));
    let listed = server.get("/api/runs").expect(200).json();
    let order: Vec<&str> =
        listed["runs"].as_array().unwrap().iter().map(|run| run["links"]["run"].as_str().unwrap()).collect();
    assert_eq!(order[0], third, "the latest comes first");
    let (second, first) = (order[1], order[2]);
    server.until_state(first, "running");
    assert_eq!((server.state(second).as_str(), server.state(&third).as_str()), ("waiting", "waiting"));
    assert_eq!(server.get(&third).json()["before"], 2);
    let page = server.get(&format!("/api/runs?limit=1&before={}", third.rsplit('/').next().unwrap())).json();
    assert_eq!((&page["runs"][0]["links"]["run"], &page["more"]), (&json!(second), &json!(true)));
    // one that waits is not made
    assert_eq!(server.delete(second).expect(200).json()["state"], "stopped");
    // one that is made ends with what it has measured
    let mut watched = server.watch(first);
    until("seconds are told", || watched.line().unwrap().starts_with("event: second"));
    server.delete(first).expect(202);
    server.until_state(first, "stopped");
    let result = server.get(&format!("{first}/result")).expect(200).json();
    assert_eq!(result["interrupted"], true);
    assert!(result["cells"][0]["trials"][0]["throughput"].as_f64() > Some(0.0), "what was measured is kept");
    server.until_state(&third, "done");
    assert_eq!(server.get(&third).json()["verdict"], "holds");
    server.get(&format!("{second}/result")).expect(404);
    // one that was stopped goes on: here it has the same trial to make that was cut short
    assert_eq!(server.post(&format!("{second}/resume"), &json!({})).expect(202).json()["state"], "waiting");
    server.until_state(second, "running");
    server.delete(second);
    server.until_state(second, "stopped");
    server.end("INT").expect(0);
    bench.assert_clean();
}

/// Of a server that is killed nothing is left but its folder, and the next one says what became of its run.
#[test]
fn a_run_whose_server_is_killed_is_cut_off_and_goes_on() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let store = if wanted("redis") { "redis" } else { "sqlite" };
    let asked = json!({
        "workload": "inventory", "stores": [store], "durability": ["none"], "clients": [2], "trials": 3,
        "duration": "1s", "warmup": "0s"
    });
    let run = server.run(&asked);
    let waits = server.run(&plan(200));
    until("a trial is written", || server.get(&run).json()["has_result"] == true);
    until("another one is under way", || {
        let events = server.get(&run).json();
        events["state"] != "running" || !bench.leftovers().is_empty()
    });
    assert_eq!(server.state(&run), "running");
    server.end("KILL");
    // the run ends by itself, and takes its servers with it
    bench.assert_clean();
    let server = Server::start(&bench, &[]);
    let about = server.get(&run).expect(200).json();
    assert_eq!(about["state"], "cut_off");
    assert!(about["error"].as_str().unwrap().contains("the server ended during the run"), "{about}");
    let partial = server.get(&format!("{run}/result")).expect(200).json();
    let trials = |result: &Value| result["cells"][0]["trials"].as_array().unwrap().len();
    assert!((1..3).contains(&trials(&partial)), "{}", trials(&partial));
    // the one that waited is made now
    server.until_state(&waits, "done");
    server.post(&format!("{run}/resume"), &json!({})).expect(202);
    server.until_state(&run, "done");
    let whole = server.get(&format!("{run}/result")).expect(200).json();
    assert_eq!((trials(&whole), &whole["run"], &whole["interrupted"]), (3, &partial["run"], &json!(false)));
    // a result that somebody has removed is said to be gone
    let file = format!("results/{}-inventory.json", run.rsplit('/').next().unwrap());
    fs::remove_file(bench.path(&file)).unwrap();
    for path in ["result", "report.html"] {
        let gone = server.get(&format!("{run}/{path}")).expect(404).json();
        assert_eq!(gone["type"], "urn:acidtest:problem:result-gone", "{gone}");
    }
    assert_eq!(server.get(&run).expect(200).json()["has_result"], false);
    server.end("TERM").expect(0);
    bench.assert_clean();
}

/// The server ends while a run is made: that is stopped tidily, and can go on.
#[test]
fn a_server_that_ends_has_its_run_stopped() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let run = server.run(&plan(60_000));
    server.until_state(&run, "running");
    let twin = bench.run(&["serve", "--listen", "127.0.0.1:0"]).expect(1).stderr;
    assert!(twin.contains("another acidtest serves results already"), "{twin}");
    let ended = server.end("INT").expect(0);
    assert!(ended.stderr.contains("the current run is stopped"), "{}", ended.stderr);
    bench.assert_clean();
    let server = Server::start(&bench, &[]);
    assert_eq!(server.state(&run), "cut_off");
}

/// Two servers of one machine make their runs one after the other, too.
#[test]
fn two_servers_with_two_folders_do_not_make_runs_at_once() {
    let bench = Bench::new();
    let (one, other) = (Server::start(&bench, &[]), Server::start(&bench, &["--out", "elsewhere"]));
    let first = one.run(&plan(60_000));
    let mut watched = one.watch(&first);
    until("a trial begins", || watched.line().unwrap().starts_with("event: trial"));
    let (second, third) = (other.run(&plan(60_000)), other.run(&plan(200)));
    let mut watched = other.watch(&second);
    until("it waits", || {
        let line = watched.line().unwrap();
        assert!(!line.starts_with("event: trial"), "it is made at the same time");
        line.contains("waiting for the run of another server to end")
    });
    // one that waits can be stopped
    other.delete(&second).expect(202);
    other.until_state(&second, "stopped");
    other.get(&format!("{second}/result")).expect(404);
    other.until_state(&third, "running");
    assert_eq!(one.state(&first), "running");
    one.delete(&first).expect(202);
    other.until_state(&third, "done");
    assert_eq!(one.state(&first), "stopped");
    one.end("TERM").expect(0);
    other.end("TERM").expect(0);
    bench.assert_clean();
}

/// The process of a run that dies is no harm to the server, nor to the runs after it.
#[test]
fn a_run_whose_process_dies_is_cut_off() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let run = server.run(&plan(60_000));
    server.until_state(&run, "running");
    let child = || {
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        fs::read_to_string(children)
            .unwrap()
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse::<u32>().ok())
    };
    until("its process is there", || child().is_some());
    signal("KILL", child().unwrap());
    server.until_state(&run, "cut_off");
    let error = server.get(&run).json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("signal: 9"), "{error}");
    let next = server.run(&plan(200));
    server.until_state(&next, "done");
    bench.run(&["lab", "down"]).expect(0);
    server.end("TERM").expect(0);
    bench.assert_clean();
}

/// A store that cannot be reached fails its run with its message.
#[test]
fn a_run_that_cannot_be_made_says_why() {
    let bench = Bench::new();
    let server = Server::start(&bench, &["--allow-store", "redis://127.0.0.1:1"]);
    let asked = json!({"workload": "inventory", "stores": ["redis://127.0.0.1:1"], "duration": "1s"});
    let run = server.run(&asked);
    server.until_state(&run, "failed");
    let about = server.get(&run).json();
    assert_eq!(about["exit_status"], 3);
    assert!(about["error"].as_str().unwrap().contains("127.0.0.1:1"), "{about}");
    server.get(&format!("{run}/result")).expect(404);
}

/// On a full disk a run is refused, or fails with that message; what is there stays.
#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    let bench = Bench::new();
    let disk = bench.path("disk");
    fs::create_dir(&disk).unwrap();
    let can = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none"]).arg(&disk).output();
    if !can.is_ok_and(|can| can.status.success()) {
        eprintln!("no disk of its own can be had here: mounting is not allowed");
        return;
    }
    let script = format!(
        "mount -t tmpfs -o size=600k none {0} && exec {1} serve --listen 127.0.0.1:0 --out {0}/results",
        disk.display(),
        env!("CARGO_BIN_EXE_acidtest")
    );
    let mut command = bench.command(&[]);
    let mut unshared = Command::new("unshare");
    unshared
        .args(["-rm", "sh", "-c", &script])
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshared.current_dir(bench.path("."));
    command = unshared;
    let server = Server::of(command);
    let run = server.run(&plan(200));
    server.until_state(&run, "done");
    let root = format!("/proc/{}/root{}", server.pid(), disk.display());
    let fill = format!("{root}/fill");
    // as much as fits, and then what is left in small pieces
    let _ = fs::write(&fill, vec![1_u8; 600 << 10]);
    let refused = server.post("/api/runs", &plan(200)).expect(507).json();
    assert!(refused["detail"].as_str().unwrap().contains("free some space"), "{refused}");
    assert_eq!(server.get("/api/runs").json()["runs"].as_array().unwrap().len(), 1);
    server.get(&format!("{run}/result")).expect(200);
    fs::remove_file(&fill).unwrap();
    // it is taken, and then there is no room for its result
    let late = server.run(&plan(1_500));
    server.until_state(&late, "running");
    thread::sleep(Duration::from_millis(500));
    let _ = fs::write(&fill, vec![1_u8; 600 << 10]);
    server.until_state(&late, "failed");
    let error = server.get(&late).json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("No space left") && error.contains("free some space"), "{error}");
    fs::remove_file(&fill).unwrap();
    server.post(&format!("{late}/resume"), &json!({})).expect(202);
    server.until_state(&late, "done");
    server.end("TERM");
}

/// It answers with its own version, says why on its standard error, and makes no run.
#[test]
fn a_server_of_another_version_is_refused() {
    let bench = Bench::new();
    let mut runner = bench.command(&["runner"]);
    let mut runner =
        runner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(runner.stdin.take().unwrap(), r#"{{"protocol":"run","version":99}}"#).unwrap();
    let ended = runner.wait_with_output().unwrap();
    assert_eq!(ended.stdout, b"{\"protocol\":\"run\",\"version\":1}\n");
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("the server speaks version 99 of the run protocol"), "{said}");
    assert_eq!(ended.status.code(), Some(2));
}
