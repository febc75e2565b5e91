//! Requests that nobody sends who means well: 10,000 of them, and the server still answers, says nothing that is secret,
//! and has not panicked.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

use super::server::{Server, plan};
use crate::common::Bench;

type Rng = Xoshiro256PlusPlus;

const SECRET: &str = "hush-hush-7f3a";

const METHODS: [&str; 9] = ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "get", "P\0ST", "CONNECT"];

const PATHS: [&str; 22] = [
    "/",
    "/api/runs",
    "/api/runs/ID",
    "/api/runs/ID/events",
    "/api/runs/ID/result",
    "/api/runs/ID/report.html",
    "/api/runs/ID/resume",
    "/api/compare?a=ID&b=ID",
    "/api/compare?a=ID&a_cells=lock%3Dnone",
    "/api/runs?limit=99999999999999999999",
    "/api/stores?x=1",
    "/api/workloads",
    "/api/openapi.json",
    "/metrics",
    "/test/gen-load/sqlite",
    "/test/gen-load/%00",
    "/api/runs/../../../../etc/passwd",
    "/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd/result",
    "http://evil.example/api/runs",
    "//evil.example/api/runs",
    "*",
    "/%ff%fe",
];

const HEADERS: [&str; 20] = [
    "host: localhost",
    "host: evil.example",
    "host: 127.0.0.1",
    "origin: http://evil.example",
    "origin: null",
    "origin: http://localhost",
    "content-type: application/json",
    "content-type: text/plain",
    "content-type: application/json; charset=utf-7",
    "content-length: 3",
    "content-length: -1",
    "content-length: 99999999999999999999",
    "transfer-encoding: chunked",
    "transfer-encoding: gzip, chunked",
    "authorization: Bearer x",
    "last-event-id: 18446744073709551615",
    "last-event-id: -1",
    "expect: 100-continue",
    "connection: upgrade\r\nupgrade: h2c",
    "x: \u{e9}\u{1}",
];

/// Headers that may announce more than comes.
const LONGER: [&str; 4] = ["content-length", "transfer-encoding", "expect", "connection"];

fn mutated(rng: &mut Rng, value: &Value) -> Value {
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}"),
        json!("x".repeat(5_000)),
        json!([]),
        json!({}),
        json!(["a", ["b"]]),
        json!("postgres://ann:pw@10.0.0.1/x"),
        json!("../../etc/passwd"),
        json!("$(reboot)"),
        json!("kill@1s"),
        json!(true),
        json!(0.5),
        json!("9999999999h"),
        json!([4_294_967_296_u64]),
    ];
    if rng.random_bool(0.25) {
        return odd.choose(rng).cloned().unwrap();
    }
    match value {
        Value::Object(map) => {
            let mut map = map.clone();
            let keys: Vec<String> = map.keys().cloned().collect();
            if let Some(key) = keys.choose(rng) {
                if rng.random_bool(0.2) {
                    map.remove(key);
                } else {
                    let changed = mutated(rng, &map[key]);
                    map.insert(key.clone(), changed);
                }
            }
            if rng.random_bool(0.1) {
                map.insert("__proto__".to_owned(), json!({"x": 1}));
            }
            Value::Object(map)
        }
        Value::Array(list) => list.iter().map(|each| mutated(rng, each)).collect(),
        _ => odd.choose(rng).cloned().unwrap(),
    }
}

/// A body: a plan or a trigger with something changed, or no JSON at all.
fn body(rng: &mut Rng, is_whole: bool) -> Vec<u8> {
    // whatever is taken is short, and stopped at the end
    let bodies = [
        plan(50),
        json!({"workload": "records", "stores": ["sqlite"], "duration": "50ms", "warmup": "0s", "faults": ["kill@10ms"],
               "commands": {"kill": "true"}, "parameters": {"mix": "a", "records": 10}}),
        json!({"workload": "queue", "stores": ["postgres://ann@127.0.0.1:1/shop"], "duration": "50ms"}),
        json!({"threads": 1, "load": 1, "timeInMilis": 50, "transactional": false, "durable": true, "requestType": "READ"}),
    ];
    let chosen = bodies.choose(rng).unwrap();
    let text = if is_whole { chosen.to_string() } else { mutated(rng, chosen).to_string() };
    match rng.random_range(0..10) {
        0 => (0..rng.random_range(0..500)).map(|_| rng.random()).collect(),
        1 => "[".repeat(rng.random_range(1..20_000)).into_bytes(),
        2 => text.as_bytes()[..rng.random_range(0..=text.len())].to_vec(),
        3 => format!("{text}{text}").into_bytes(),
        _ => text.into_bytes(),
    }
}

/// A request, and whether its connection is to be left open: it says itself where it ends.
fn request(rng: &mut Rng, id: &str) -> (Vec<u8>, bool) {
    if rng.random_bool(0.02) {
        return ((0..rng.random_range(1..2_000)).map(|_| rng.random()).collect(), false);
    }
    let (method, path) = (METHODS.choose(rng).unwrap(), PATHS.choose(rng).unwrap().replace("ID", id));
    // most are well enough formed to come further than the parser
    let (method, is_tidy) = if rng.random_bool(0.6) {
        (["GET", "POST", "POST", "DELETE"].choose(rng).unwrap(), true)
    } else {
        (method, false)
    };
    let posted = ["/api/runs", "/api/runs", "/test/gen-load/sqlite", "/test/gen-load/sqlite"];
    let path = if is_tidy && *method == "POST" && rng.random_bool(0.8) {
        posted.choose(rng).unwrap().to_string()
    } else {
        path
    };
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    let is_whole = path == "/api/runs" && rng.random_bool(0.2);
    let body = if *method == "POST" || rng.random_bool(0.1) { body(rng, is_whole) } else { Vec::new() };
    if is_tidy {
        text.push_str("host: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n");
        write!(text, "content-length: {}\r\n", body.len()).unwrap();
    }
    let more = if is_tidy { rng.random_range(0..2) } else { rng.random_range(0..6) };
    for _ in 0..more {
        let header = HEADERS.choose(rng).unwrap();
        if !(is_tidy && LONGER.iter().any(|name| header.starts_with(name))) {
            text.push_str(header);
            text.push_str("\r\n");
        }
    }
    if rng.random_bool(0.01) {
        write!(text, "x: {}\r\n", "y".repeat(rng.random_range(1..40_000))).unwrap();
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend(body);
    if !is_tidy && rng.random_bool(0.1) {
        let at = rng.random_range(0..bytes.len());
        bytes[at] = rng.random();
    }
    (bytes, is_tidy)
}

#[test]
fn three_thousand_hostile_requests_do_no_harm() {
    do_no_harm(3_000);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::do_no_harm;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn twenty_thousand_hostile_requests_do_no_harm() {
        do_no_harm(20_000);
    }
}

fn do_no_harm(requests: usize) {
    let bench = Bench::new();
    let address = format!("postgres://ann:{SECRET}@127.0.0.1:1/shop");
    let server = Server::start(&bench, &["--allow-store", &address]);
    let run = server.run(&plan(50));
    server.until_state(&run, "done");
    let id = run.rsplit('/').next().unwrap().to_owned();
    let mut rng = Rng::seed_from_u64(20_261_125);
    let (mut answered, mut statuses) = (0, std::collections::BTreeMap::<String, u32>::new());
    for number in 0..requests {
        let (request, is_whole) = request(&mut rng, &id);
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // the server may have refused already
        let _ = stream.write_all(&request);
        if !is_whole {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answer = Vec::new();
        let read = stream.take(64 << 10).read_to_end(&mut answer);
        if let Err(error) = &read {
            let is_silent =
                matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            assert!(!is_silent, "request {number} is not answered: {}", String::from_utf8_lossy(&request));
        }
        let text = String::from_utf8_lossy(&answer);
        assert!(!text.contains(SECRET) && !text.contains("root:x:0"), "{text}");
        if let Some(status) = text.split(' ').nth(1).filter(|_| text.starts_with("HTTP/1.1 ")) {
            answered += 1;
            *statuses.entry(status.to_owned()).or_default() += 1;
            assert!(!["500", "501"].contains(&status), "{}\n{text}", String::from_utf8_lossy(&request));
        }
        if text.starts_with("HTTP/1.1 202 ") {
            // what is taken would keep others waiting
            stop_all(&server);
        }
    }
    // they came far enough to be told what is wrong with them
    assert!(answered > requests * 9 / 10, "{answered}: {statuses:?}");
    for status in ["200", "202", "400", "403", "404", "405", "415", "422"] {
        assert!(statuses.contains_key(status), "{status} in {statuses:?}");
    }
    stop_all(&server);
    let ended = server.end("TERM").expect(0);
    assert!(!ended.stderr.contains("panicked") && !ended.stderr.contains(SECRET), "{}", ended.stderr);
    bench.assert_clean();
}

/// Stops what the requests have started.
fn stop_all(server: &Server) {
    let runs = server.get("/api/runs?limit=1000").expect(200).json();
    for run in runs["runs"].as_array().unwrap() {
        if ["waiting", "running"].contains(&run["state"].as_str().unwrap()) {
            server.delete(run["links"]["run"].as_str().unwrap());
        }
    }
}
