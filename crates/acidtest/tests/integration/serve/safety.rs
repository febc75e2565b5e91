//! Who may ask, for what, and how much.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    os::unix::fs::symlink,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::server::{Server, plan};
use crate::common::{Bench, http::header, until};

/// The status of a request with these lines in its head.
fn status(server: &Server, method: &str, path: &str, lines: &str, body: &str) -> u16 {
    let mut http = server.http();
    let length = body.len();
    http.write(
        format!("{method} {path} HTTP/1.1\r\n{lines}content-length: {length}\r\n\r\n{body}").as_bytes(),
    )
    .unwrap();
    http.answer().unwrap().status
}

#[test]
fn another_site_can_neither_start_nor_read_anything() {
    let bench = Bench::new();
    let server = Server::start(&bench, &["--allow-host", "bench.example"]);
    let body = plan(100).to_string();
    let json = "content-type: application/json\r\n";
    for (lines, get, post) in [
        ("host: localhost\r\n", 200, 415),
        ("host: evil.example\r\n", 403, 403),
        ("host: bench.example:1730\r\n", 200, 415),
        ("host: localhost\r\norigin: http://evil.example\r\n", 403, 403),
        ("host: localhost\r\norigin: null\r\n", 403, 403),
        ("host: localhost\r\norigin: http://localhost\r\n", 200, 415),
        ("host: localhost\r\nsec-fetch-site: cross-site\r\n", 200, 403),
        ("", 400, 400),
    ] {
        assert_eq!(status(&server, "GET", "/api/runs", lines, ""), get, "{lines}");
        // what a form of another site could send
        let form = format!("{lines}content-type: text/plain\r\n");
        assert_eq!(status(&server, "POST", "/api/runs", &form, &body), post, "{lines}");
    }
    let evil = format!("host: evil.example\r\n{json}");
    assert_eq!(status(&server, "POST", "/api/runs", &evil, &body), 403);
    assert_eq!(
        status(&server, "DELETE", "/api/runs/x", "host: localhost\r\norigin: http://evil.example\r\n", ""),
        403
    );
    assert_eq!(server.get("/api/runs").json()["runs"], json!([]), "nothing was started");
    // nobody is given leave, also when asked for
    let mut http = server.http();
    let asked = "OPTIONS /api/runs HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\naccess-control-request-method: POST\r\n\r\n";
    http.write(asked.as_bytes()).unwrap();
    let answer = http.answer().unwrap();
    assert!(!answer.head.contains("access-control"), "{}", answer.head);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(header(&answer.head, name), Some(value), "{}", answer.head);
    }
    let metrics = server.get("/metrics").expect(200).body;
    assert!(
        metrics.contains("acidtest_serve_refused_total 1")
            || metrics.contains("acidtest_serve_refused_total 2"),
        "{metrics}"
    );
}

#[test]
fn elsewhere_than_on_loopback_a_token_is_needed() {
    let bench = Bench::new();
    let said = bench.run(&["serve", "--listen", "0.0.0.0:0"]).expect(2).stderr;
    assert!(
        said.contains("whoever can reach 0.0.0.0 could start runs") && said.contains("--token-file"),
        "{said}"
    );
    let token = "0123456789abcdef0123";
    for (text, why) in
        [("short", "at least 16"), ("", "at least 16"), ("a token with blanks in it", "no blanks")]
    {
        fs::write(bench.path("token"), text).unwrap();
        let said = bench.run(&["serve", "--token-file", "token"]).expect(2).stderr;
        assert!(said.starts_with("error: --token-file token: ") && said.contains(why), "{said}");
    }
    bench.run(&["serve", "--token-file", "none"]).expect(2);
    fs::write(bench.path("token"), format!("{token}\n")).unwrap();
    let server = Server::start(&bench, &["--token-file", "token"]);
    let with = |given: &str| status(&server, "GET", "/api/runs", &format!("host: localhost\r\n{given}"), "");
    assert_eq!(with(&format!("authorization: Bearer {token}\r\n")), 200);
    for wrong in ["", "authorization: Bearer x\r\n", "authorization: Basic x\r\n"] {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    for path in ["/metrics", "/api/openapi.json", "/nothing", "/loginx", "/runs.json"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    // who reads pages is asked for it
    for path in ["/", "/runs", "/runs/x", "/compare?a=x", "/licences"] {
        assert!(server.get(path).expect(303).head.contains("location: /login?next=%2F"), "{path}");
    }
    let ended = server.end("TERM").expect(0);
    assert!(!ended.stderr.contains(token), "{}", ended.stderr);
}

#[test]
fn a_plan_may_name_only_what_the_server_was_told() {
    let bench = Bench::new();
    let words = [
        "--allow-store",
        "postgres://ann:hush-hush@127.0.0.1:1/shop",
        "--allow-store",
        "redis://127.0.0.1:1",
    ];
    let server = Server::start(&bench, &words);
    let refused = |changed: &Value, pointer: &str, said: &str| {
        let mut asked = json!({"workload": "inventory", "stores": ["sqlite"], "duration": "1s"});
        for (key, value) in changed.as_object().unwrap() {
            asked[key] = value.clone();
        }
        let problem = server.post("/api/runs", &asked).expect(422);
        assert!(!problem.body.contains("hush"), "{problem:?}");
        let problem = problem.json();
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"].as_str().unwrap_or(""), pointer, "{problem}");
    };
    for (store, said) in [
        ("postgres://ann@127.0.0.1:2/shop", "is not among the addresses"),
        ("postgres://bob@127.0.0.1:1/shop", "is not among the addresses"),
        ("postgres://ann@127.0.0.1:1/other", "is not among the addresses"),
        ("postgres://ann:hush-hush@127.0.0.1:1/shop", "without its password"),
        ("postgres://ann:hush@elsewhere/shop", "without its password"),
        ("sqlite:/etc/passwd", "is not among the addresses"),
        ("fjall:/tmp", "is not among the addresses"),
        ("redis://127.0.0.1:6379", "is not among the addresses"),
        ("sqlit", "did you mean \"sqlite\"?"),
    ] {
        refused(&json!({"stores": [store]}), "/stores", said);
    }
    let large =
        json!({"workload": "records", "parameters": {"records": 1_000_000_000, "field_bytes": 65_536}});
    refused(&large, "", "or acidtest run --insist to run it anyway");
    let locked = json!({"workload": "records", "stores": ["elasticsearch"], "locks": ["hard"], "lock_service": "redis://10.0.0.1"});
    refused(&locked, "/lock_service", "is not among the addresses");
    refused(
        &json!({"faults": ["kill@500ms"], "commands": {"kill": "reboot"}}),
        "/commands",
        "on the command line only",
    );
    refused(&json!({"replace": true}), "/replace", "on the command line only");
    let gateway = json!({"workload": "logs", "parameters": {"gateway": "http://10.0.0.1:80"}});
    refused(&gateway, "/parameters/gateway", "on the command line only");
    refused(&json!({"stores": ["sqlite"], "threads": 2}), "/threads", "threads has no effect here");
    refused(&json!({"workload": "inventry"}), "/workload", "unknown workload");
    refused(&json!({"trials": 0}), "/trials", "trials must not be");
    refused(&json!({"parameters": {"items": 0}}), "/parameters/items", "items = 0");
    refused(&json!({"stores": ["memory"]}), "", "memory has no durability disk");
    refused(&json!({"duration": 2}), "/duration", "duration must be a word, as in \"10s\"");
    assert_eq!(server.get("/api/runs").json()["runs"], json!([]), "nothing was run");
    // the one that it was told is used, with the password that the server has
    let run = server.run(
        &json!({"workload": "inventory", "stores": ["postgres://ann@127.0.0.1:1/shop"], "duration": "1s"}),
    );
    server.until_state(&run, "failed");
    let about = server.get(&run).expect(200);
    assert!(
        about.body.contains("postgres://ann@127.0.0.1:1/shop") && !about.body.contains("hush"),
        "{about:?}"
    );
    let kept: Vec<String> = fs::read_dir(bench.path("results/.serve"))
        .unwrap()
        .flatten()
        .map(|entry| fs::read_to_string(entry.path()).unwrap())
        .collect();
    assert!(kept.iter().any(|text| text.contains("ann@")) && !kept.iter().any(|text| text.contains("hush")));
    let ended = server.end("TERM").expect(0);
    assert!(!ended.stderr.contains("hush"), "{}", ended.stderr);
    for (address, said) in
        [("sqlite", "private stores are allowed already"), ("oracle://x", "no store has addresses")]
    {
        let refused = bench.run(&["serve", "--allow-store", address]).expect(2).stderr;
        assert!(refused.contains(said), "{refused}");
    }
}

/// No request names a file: an id is looked up among the runs, and a result is a file of the folder itself.
#[test]
fn no_request_reaches_a_file_outside_the_folder_of_results() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let run = server.run(&plan(100));
    server.until_state(&run, "done");
    fs::write(bench.path("secret.json"), "{\"secret\": 1}").unwrap();
    for id in
        ["..", "..%2Fsecret", "%2e%2e", ".serve", "..%5csecret", "%00", "a%2F..%2Fb", "secret.json", "*"]
    {
        for path in ["", "/result", "/report.html", "/events", "/resume"] {
            let answer = server.get(&format!("/api/runs/{id}{path}"));
            assert!(
                [400, 404, 405].contains(&answer.status) && !answer.body.contains("secret\""),
                "{id}{path}: {answer:?}"
            );
        }
    }
    let id = run.rsplit('/').next().unwrap();
    let file = bench.path(&format!("results/{id}-inventory.json"));
    fs::remove_file(&file).unwrap();
    symlink(bench.path("secret.json"), &file).unwrap();
    let linked = server.get(&format!("{run}/result")).expect(500);
    assert!(!linked.body.contains("secret"), "{linked:?}");
    drop(server);
    // what is kept of runs may not lead elsewhere either
    let record = bench.path(&format!("results/.serve/{id}.json"));
    let text = fs::read_to_string(&record).unwrap();
    let number = text.lines().find(|line| line.contains("\"number\"")).unwrap();
    fs::write(&record, text.replace(number, &format!("\"number\": {},", u64::MAX))).unwrap();
    let server = Server::start(&bench, &[]);
    let next = server.run(&plan(100));
    server.until_state(&next, "done");
    assert_eq!(
        server.get("/api/runs").json()["runs"][0]["links"]["run"],
        next,
        "it comes after the other one"
    );
    drop(server);
    fs::remove_file(bench.path(&format!("results/.serve/{}.json", next.rsplit('/').next().unwrap())))
        .unwrap();
    for (from, to) in [("\"inventory\"", "\"../../secret\""), (&*format!("\"{id}\""), "\"../x\"")] {
        fs::write(&record, text.replace(from, to)).unwrap();
        let server = Server::start(&bench, &[]);
        assert_eq!(server.get("/api/runs").json()["runs"], json!([]), "{to}");
    }
}

#[test]
fn bodies_readers_and_waiting_runs_are_bounded() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let long = json!({"workload": "x".repeat(300 << 10)});
    assert_eq!(server.post("/api/runs", &long).expect(413).json()["type"], "urn:acidtest:problem:too-large");
    // one that promises more than it sends, and one that sends without an end
    let mut http = server.http();
    let head = "POST /api/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    http.write(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, " ".repeat(64 << 10));
    let sent = (0..100).map_while(|_| http.write(chunk.as_bytes()).ok()).count();
    assert!(sent < 100 || http.answer().unwrap().status == 413, "{sent}");
    let first = server.run(&plan(60_000));
    let all: Vec<String> = (0..100).map(|_| server.run(&plan(60_000))).collect();
    let full = server.post("/api/runs", &plan(100)).expect(429);
    assert!(
        header(&full.head, "retry-after").is_some() && full.body.contains("100 runs are waiting already"),
        "{full:?}"
    );
    let trigger = json!({"threads": 1, "load": 1, "timeInMilis": 1, "transactional": false, "durable": false, "requestType": "READ"});
    server.post("/test/gen-load/sqlite", &trigger).expect(429);
    // readers of events: one more than there may be is told so, and may come when another has gone
    let read = || {
        let mut http = server.http();
        (http.get(&format!("{first}/events"), "").unwrap().status, http)
    };
    let mut readers: Vec<_> = (0..256).map(|_| read()).collect();
    assert!(readers.iter().all(|(status, _)| *status == 200));
    assert_eq!(read().0, 503);
    readers.truncate(200);
    crate::common::until("a reader that is gone is noticed", || read().0 == 200);
    for run in &all {
        server.delete(run).expect(200);
    }
    server.delete(&first).expect(202);
    server.until_state(&first, "stopped");
    server.end("TERM").expect(0);
}

/// A result may come from anywhere: what its plan says is not run.
#[test]
fn a_result_with_another_plan_is_not_gone_on_with() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let asked = json!({
        "workload": "inventory", "stores": ["sqlite"], "durability": ["none"], "clients": [2], "trials": 50,
        "duration": "300ms", "warmup": "0s"
    });
    let run = server.run(&asked);
    crate::common::until("a trial is written", || server.get(&run).json()["has_result"] == true);
    server.delete(&run);
    server.until_state(&run, "stopped");
    let file = bench.path(&format!("results/{}-inventory.json", run.rsplit('/').next().unwrap()));
    let text = fs::read_to_string(&file).unwrap();
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["plan"]["faults"] = json!(["kill@100ms"]);
    changed["plan"]["commands"] = json!({"kill": "touch touched"});
    fs::write(&file, changed.to_string()).unwrap();
    server.post(&format!("{run}/resume"), &json!({})).expect(202);
    server.until_state(&run, "failed");
    let error = server.get(&run).json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("of another plan") && !bench.path("touched").exists(), "{error}");
    // with its own one it goes on
    fs::write(&file, text).unwrap();
    server.post(&format!("{run}/resume"), &json!({})).expect(202);
    server.until_state(&run, "running");
    server.delete(&run);
    server.until_state(&run, "stopped");
    server.end("TERM").expect(0);
}

/// A plan means the same as on the command line, and what was asked for happens also if nobody waits for the answer.
#[test]
fn a_client_that_hangs_up_leaves_nothing_half_done() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    // from before the request is read to after it is answered
    for wait in 0..20 {
        let mut http = server.http();
        let body = plan(20).to_string();
        let head = "POST /api/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        http.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait * wait / 2));
    }
    let last = server.run(&plan(20));
    server.until_state(&last, "done");
    crate::common::until("all of them are made", || {
        let listed = server.get("/api/runs").json();
        let runs = listed["runs"].as_array().unwrap();
        runs.len() > 1 && runs.iter().all(|run| run["state"] == "done")
    });
    let search = json!({"workload": "inventory", "stores": ["sqlite"], "capacity": {"slo": ["p99<20ms"]}});
    let run = server.run(&search);
    let about = server.get(&run).json();
    assert_eq!(about["plan"]["duration"], "30s", "as acidtest capacity has it");
    assert_eq!(about["command"], "acidtest capacity inventory --slo 'p99<20ms'");
    server.delete(&run);
    server.end("TERM").expect(0);
}

/// Whoever asks for much and takes nothing of it loses the connection, and what was made for him goes with it. It takes the
/// 30 s that a client may be deaf.
#[test]
fn who_takes_nothing_loses_the_connection() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let stream = TcpStream::connect(&server.address).unwrap();
    let request = format!("GET /assets/uplot.js HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let mut asks = stream.try_clone().unwrap();
    // far more than the system keeps for a connection
    let asking = thread::spawn(move || {
        for _ in 0..2_000 {
            if asks.write_all(request.as_bytes()).is_err() {
                return;
            }
        }
    });
    let begun = Instant::now();
    // a connection that is gone cannot be written to
    until("the connection is closed", || {
        thread::sleep(Duration::from_millis(200));
        asking.is_finished() && (&stream).write_all(b"x").is_err() || begun.elapsed() > Duration::from_mins(2)
    });
    assert!((25..110).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    server.get("/api/workloads").expect(200);
}
