//! Clients in processes of their own: what they did is brought together, over pipes and over a network; one that dies
//! is told from one that failed; and the faults that are brought about on clients.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::common::{Bench, signal, until, wait, wanted};
use acidtest_engine::{Extent, Load, Outcome};
use acidtest_lab::{Lab, ServerSize};
use acidtest_model::{Address, Durability, Encryption, Lock, StoreError, StoreKind, Task, Timeline};
use acidtest_runner::{
    Claim, Failure, Instance, Interrupt, OpenOptions, Opener, Silent, Spread, Target, TrialRun, Watcher,
};
use acidtest_store_sqlite::Sqlite;
use acidtest_testbed::{Relay, with_more_time};
use acidtest_workloads::{Place, Store, TrialSetup, Values, Verdict};
use serde_json::{Value, json};

struct OpensSqlite;

impl Opener for OpensSqlite {
    fn kind(&self) -> &StoreKind {
        &acidtest_store_sqlite::KIND
    }

    fn open<'a>(
        &'a self,
        address: &'a Address,
        options: OpenOptions<'a>,
    ) -> Task<'a, Result<Box<dyn Store>, StoreError>> {
        Box::pin(async move { Ok(Box::new(Sqlite::open(address, options.durability)?) as Box<dyn Store>) })
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A trial on a private SQLite file whose clients two workers drive, each started by this command: the verdict, and how
/// many operations were acknowledged.
fn trial(
    bench: &Bench,
    (workload, parameters): (&str, &Value),
    worker: &dyn Fn() -> Command,
) -> Result<(Verdict, u64), Failure> {
    runtime().block_on(async {
        let lab = Lab::at(&bench.path("lab")).unwrap();
        let target = Target { opener: &OpensSqlite, address: None };
        let claim = Claim {
            locks: None,
            namespace: "acidtest",
            run: "run 1",
            number: 1,
            replace: false,
            cluster: None,
            connect_timeout: Address::CONNECT_TIMEOUT,
            size: ServerSize::default(),
            host: None,
        };
        let interrupt = Interrupt::default();
        let mut instance =
            Instance::open(&lab, &target, Durability::Process, Encryption::Off, &claim, &interrupt)
                .await
                .unwrap();
        let parameters: Values = parameters.as_object().unwrap().clone();
        let of_kind = (acidtest_workloads::workload(workload).unwrap().with)(&parameters).unwrap();
        let clients = of_kind.spec().clients.unwrap_or(4);
        let setup = TrialSetup::new(Lock::Native, 1, clients);
        let place = Place { namespace: "acidtest".to_owned(), trial: 1 };
        let spread = Spread { processes: 2, worker };
        let trial = TrialRun::new(&*of_kind, setup, place).spread(Some(spread));
        let mut watcher = Watcher { observer: &mut Silent, interrupt: &interrupt };
        trial.load(&instance, &mut watcher).await.unwrap();
        let scheduled = of_kind.spec().scheduled.map(|clients| clients as usize);
        let load = Load {
            spans: of_kind.spec().spans,
            scheduled,
            threads: clients as usize,
            timeout: Duration::from_mins(1),
            ..Load::closed(of_kind.spec().operations, Extent::Operations(400))
        };
        let driven = trial.drive(&mut instance, load, &Timeline::default(), &mut watcher).await;
        let audited = match &driven {
            Ok(driven) => Some(trial.audit(&mut instance, driven, &mut watcher).await.audit),
            Err(_) => None,
        };
        instance.close(false).await.unwrap();
        let (driven, audit) = (driven?, audited.unwrap());
        let acknowledged = driven.measurement.operations.iter().map(|each| each.count(Outcome::Ok)).sum();
        eprintln!("{workload}: {audit} {:?}", audit.evidence);
        Ok((audit.verdict, acknowledged))
    })
}

/// Passes on bytes until there are no more, and keeps them. Also reads what nobody takes any more: a connection that is closed
/// with something unread is reset, and what it was still sending is lost.
fn pass_on(mut from: impl Read, mut to: impl Write, kept: &Mutex<Vec<u8>>) {
    let (mut bytes, mut is_taken) = ([0; 4096], true);
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        kept.lock().unwrap().extend_from_slice(&bytes[..read]);
        is_taken = is_taken && to.write_all(&bytes[..read]).and_then(|()| to.flush()).is_ok();
    }
}

/// Gives each connection a worker of its own, which runs in the folder of the file. Returns the port, and all that
/// workers are told.
fn workers_by_network(bench: &Bench) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (told, lab) = (Arc::<Mutex<Vec<u8>>>::default(), bench.path("lab"));
    let kept = Arc::clone(&told);
    // ends with the test's process
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, kept) = (stream.unwrap(), Arc::clone(&kept));
            // the file is in the only folder of the lab
            let file = find_file(&lab);
            let mut worker = Command::new(env!("CARGO_BIN_EXE_acidtest"))
                .arg("worker")
                .current_dir(file.parent().unwrap())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (input, output) = (worker.stdin.take().unwrap(), worker.stdout.take().unwrap());
            let answers = stream.try_clone().unwrap();
            thread::spawn(move || pass_on(stream, input, &kept));
            thread::spawn(move || {
                pass_on(output, &answers, &Mutex::default());
                answers.shutdown(std::net::Shutdown::Write).unwrap_or(());
                worker.wait().unwrap();
            });
        }
    });
    (port, told)
}

fn find_file(folder: &Path) -> std::path::PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("acidtest.db") {
                return path;
            }
        }
    }
    panic!("no file below {}", folder.display())
}

/// Nothing that a worker is told depends on this machine: it may be at the other end of a network.
#[test]
fn workers_are_driven_through_a_relay() {
    let bench = Bench::new();
    let (port, told) = workers_by_network(&bench);
    let relay = Relay::to(&Address::loopback("worker", None, port, ""));
    // ends with the connection, whoever else may want to say something
    let way = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{} 4<&0; cat <&4 >&3 & cat <&3; kill $!",
        relay.address().port.unwrap()
    );
    let worker = || {
        let mut bridge = Command::new("bash");
        bridge.args(["-c", &way]);
        bridge
    };
    for (workload, parameters) in [
        ("inventory", json!({ "items": 20 })),
        ("records", json!({ "mix": "d", "records": 200 })),
        ("records", json!({ "mix": "f", "records": 50 })),
        ("queue", json!({ "producers": 2, "consumers": 3 })),
        ("join", json!({ "records": 100 })),
        ("parcels", json!({ "parcels": 20, "scans": 300, "insert_batch": 3, "eighths": 0.05 })),
        ("transactions", json!({ "isolation": "serializable" })),
    ] {
        let (verdict, acknowledged) = trial(&bench, (workload, &parameters), &worker).unwrap();
        assert_eq!(verdict, Verdict::Holds, "{workload}");
        assert!((200..=800).contains(&acknowledged), "{workload}: {acknowledged} of 400 operations");
    }
    let told = String::from_utf8(told.lock().unwrap().clone()).unwrap();
    assert!(told.contains("\"Drive\""), "{told}");
    for local in [bench.path("").display().to_string(), "/tmp".to_owned(), "/proc".to_owned()] {
        assert!(!told.contains(&local), "a worker is told {local}");
    }
}

#[test]
fn a_worker_that_fails_is_told_from_one_that_dies() {
    let bench = Bench::new();
    let why = |script: &'static str| {
        let worker = || {
            let mut worker = Command::new("bash");
            worker.args(["-c", script]);
            worker
        };
        trial(&bench, ("inventory", &json!({})), &worker).unwrap_err().to_string()
    };
    let hello = r#"read line; echo '{"protocol":"worker","version":1}'"#;
    let clock = r#"; for i in 1 2 3 4 5 6 7 8 9 10; do read line; echo '{"Time":{"nanoseconds":0}}'; done; read line"#;
    let failed = format!(r#"{hello}; read line; echo '{{"Failed":"it is closed"}}'; read line"#);
    let failed: &'static str = Box::leak(failed.into_boxed_str());
    let so_far = format!("{hello}{clock}");
    let so_far: &'static str = Box::leak(so_far.into_boxed_str());
    let and = |rest: &str| -> &'static str { Box::leak(format!("{so_far}; {rest}").into_boxed_str()) };
    for (script, said) in [
        ("exit 3", "a client process ended with exit code 3"),
        ("echo it is full >&2; exit 1", "exit code 1; it said: it is full"),
        ("kill -9 $$", "a client process was killed by signal 9"),
        (
            r#"read line; echo '{"protocol":"worker","version":99}'"#,
            "a client process speaks version 99 of the worker protocol, and this acidtest version 1",
        ),
        (
            r#"read line; echo '{"Failed":"it is closed"}'"#,
            "a client process does not greet as acidtest does",
        ),
        (failed, "a client process failed: it is closed"),
        (and("kill -9 $$"), "a client process was killed by signal 9"),
        (and("exit 3"), "a client process ended with exit code 3"),
        (and(r#"echo '{"Failed":"it is closed"}'"#), "a client process failed: it is closed"),
        (and("echo nonsense"), "a client process"),
    ] {
        let failure = why(script);
        assert!(failure.contains(said), "{script}: {failure}");
    }
}

/// A worker answers what it is asked, and says what it cannot do.
#[test]
fn a_worker_says_what_it_cannot_do() {
    let bench = Bench::new();
    let talk = |lines: &[Value]| {
        let mut worker = bench.command(&["worker"]);
        let mut worker = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = worker.stdin.take().unwrap();
        for line in lines {
            writeln!(input, "{line}").unwrap();
        }
        drop(input);
        let output = BufReader::new(worker.stdout.take().unwrap());
        let answers: Vec<Value> =
            output.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        (worker.wait().unwrap().code(), answers)
    };
    let hello = |version: u32| json!({ "protocol": "worker", "version": version });
    let (code, answers) = talk(&[hello(1), json!("Time")]);
    assert_eq!((code, &answers[0]), (Some(0), &hello(1)), "nobody talks to it any more");
    assert!(answers[1]["Time"]["nanoseconds"].is_number());
    let (code, answers) = talk(&[hello(99)]);
    assert_eq!((code, &answers[..]), (Some(2), &[hello(1)][..]), "it says on its standard error why");
    let (code, _) = talk(&[hello(1), json!({ "Sing": 1 })]);
    assert_eq!(code, Some(1));
}

/// The ids of the processes that this one has started.
fn children(of: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    listed.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn workers(of: u32) -> Vec<u32> {
    let is_worker = |id: &u32| {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"worker")
    };
    children(of).into_iter().filter(is_worker).collect()
}

/// A run that goes on for as long as it is left to, with two processes of clients.
fn long_run(bench: &Bench, more: &[&str]) -> Child {
    let words = ["run", "inventory", "--store", "sqlite", "--processes", "2", "--duration", "10m"];
    bench.spawn(&[&words[..], &["--warmup", "0s", "--clients", "4"], more].concat())
}

fn both_workers(bench: &Bench, run: &Child) -> Vec<u32> {
    let mut found = Vec::new();
    until("two processes drive clients, and the data is loaded", || {
        found = workers(run.id());
        found.len() == 2 && !bench.leftovers().is_empty()
    });
    found
}

/// The trial of a client process that dies is not run, and says so; nothing is left of it.
#[test]
fn a_client_process_that_is_killed_costs_its_trial_and_no_more() {
    let bench = Bench::new();
    let run = long_run(&bench, &[]);
    let found = both_workers(&bench, &run);
    signal("KILL", found[1]);
    let ended = wait(run).expect(3);
    assert!(ended.stderr.contains("a client process was killed by signal 9"), "{}", ended.stderr);
    bench.assert_clean();
}

/// Clients go with the process that judges them, even those that are stopped by a signal at that moment.
#[test]
fn clients_go_with_the_process_that_judges_them() {
    let bench = Bench::new();
    let run = long_run(&bench, &["--fault", "stall@1ms:9m"]);
    let found = both_workers(&bench, &run);
    let state = |id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    until("one of them is stopped", || found.iter().any(|id| state(*id) == Some('T')));
    signal("KILL", run.id());
    wait(run);
    // one that has ended and was not waited for yet is nobody
    until("both have ended", || found.iter().all(|id| matches!(state(*id), None | Some('Z'))));
    assert!(bench.run(&["lab", "down", "--all"]).code.is_some());
}

/// An interrupt ends a run tidily while a process of clients is stopped by a signal.
#[test]
fn a_run_is_interrupted_during_a_stall() {
    let bench = Bench::new();
    let run = long_run(&bench, &["--fault", "stall@1ms:9m"]);
    let found = both_workers(&bench, &run);
    until("something was measured", || {
        found
            .iter()
            .any(|id| fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default().contains(") T "))
    });
    signal("INT", run.id());
    let ended = wait(run).expect(130);
    assert!(ended.stdout.contains("stall at"), "{}\n{}", ended.stdout, ended.stderr);
    bench.assert_clean();
}

fn verdicts(result: &Value) -> Vec<&str> {
    let cells = result["cells"].as_array().unwrap().iter();
    cells.map(|cell| cell["trials"][0]["audit"]["verdict"].as_str().unwrap_or("none")).collect()
}

/// A server is killed under clients in several processes, one of which stands still meanwhile: what is lost is the
/// durability's, and what is promised is kept.
#[test]
fn a_server_is_killed_under_clients_in_several_processes() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "inventory", "--store", "redis", "--durability", "none,process", "--processes", "2"];
    with_more_time(1000, |millis| {
        let faults = format!("stall@{}ms:600ms+kill@{millis}ms", millis - 200);
        let duration = format!("{}ms", millis + 2000);
        let timing = ["--fault", &faults, "--warmup", "0s", "--duration", &duration, "--clients", "8"];
        let ended = bench.run(&[&words[..], &timing].concat()).expect(0);
        let result = bench.result();
        let cells = result["cells"].as_array().unwrap();
        let counts = |cell: &Value| cell["trials"][0]["injections"][1]["interrupted"] != 0;
        if !cells.iter().all(counts) {
            return Err(ended.stdout);
        }
        for cell in cells {
            let of = |guarantee: &str| -> u64 {
                let findings = cell["trials"][0]["audit"]["findings"].as_array().unwrap();
                let of = findings.iter().filter(|finding| finding["guarantee"] == guarantee);
                of.map(|finding| finding["count"].as_u64().unwrap()).sum()
            };
            let may_lose = cell["effective"]["durability"] == "none";
            assert_eq!((of("durability") > 0, of("lock")), (may_lose, 0), "{cell:#}");
        }
        assert_eq!(verdicts(&result), ["broken", "holds"], "{}", ended.stdout);
        Ok(())
    });
    bench.assert_clean();
}

/// Faults of clients are no store's fault: what was in flight is unknown, and everything is there.
#[test]
fn clients_are_disconnected_and_stalled() {
    let stores: Vec<&str> = ["redis", "rabbitmq"].into_iter().filter(|store| wanted(store)).collect();
    if stores.is_empty() {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "queue", "--store", &stores.join(","), "--warmup", "0s", "--duration", "2500ms"];
    let ended =
        bench.run(&[&words[..], &["--fault", "disconnect@500ms+disconnect@1s,stall@500ms:1s"]].concat());
    let (ended, result) = (ended.expect(0), bench.result());
    assert_eq!(verdicts(&result), vec!["holds"; 2 * stores.len()], "{}", ended.stdout);
    for cell in result["cells"].as_array().unwrap() {
        let trial = &cell["trials"][0];
        let injected = trial["injections"].as_array().unwrap();
        if cell["faults"].as_str().unwrap().contains("disconnect") {
            assert_eq!(injected.len(), 2);
            assert!(trial["reconnects"].as_u64().unwrap() > 0, "{cell:#}");
        } else {
            let stood =
                injected[0]["back_seconds"].as_f64().unwrap() - injected[0]["at_seconds"].as_f64().unwrap();
            assert!(stood >= 1.0, "{injected:?}");
            // whoever stood still was answered late
            let longest = |operation: &Value| operation["service"]["ok"]["max_ns"].as_u64().unwrap_or(0);
            let longest = trial["operations"].as_array().unwrap().iter().map(longest).max().unwrap();
            assert!(longest >= 900_000_000, "{longest} ns");
        }
    }
    for words in ["clients ran in up to 2 processes", "stalled for", "all client connections were closed"] {
        assert!(ended.stdout.contains(words), "no {words:?} in {}", ended.stdout);
    }
    bench.assert_clean();
}

#[test]
fn what_clients_cannot_have_done_to_them_is_refused() {
    let bench = Bench::new();
    for (words, why) in [
        ("--store fjall --processes 2", "locks its folder for the one process"),
        ("--store memory --durability none --fault stall@1s:1s", "the memory of one process"),
        ("--store sqlite --fault disconnect@1s", "has no connections"),
        ("--store sqlite --processes 3 --clients 2", "a process without a client does nothing"),
        ("--store sqlite --processes 2 --trace 100", "taken in order, in one process"),
        ("--store sqlite --processes 65", "must be between 1 and 64"),
        ("--store redis --fault stall@1s", "a stall has an end"),
        ("--store redis --fault stall:locks@1s:1s", "strikes clients"),
        ("--store redis --fault disconnect@1s:1s", "connect again at once"),
        ("--store redis --fault disconnct@1s", "did you mean \"disconnect\""),
        ("--store redis://127.0.0.1 --fault kill@1s", "disconnect and stall work with any"),
    ] {
        let words: Vec<&str> = ["run", "inventory"].into_iter().chain(words.split(' ')).collect();
        let ended = bench.run(&words).expect(2);
        assert!(ended.stderr.contains(why), "{words:?}: {}", ended.stderr);
    }
}
