//! Everything has a bound, and whoever meets one is told; nobody holds up the others.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    JSON, LINES,
    database::entries,
    running::{Gateway, Sink, entry, until},
};
use crate::common::http::{Http, header};

#[test]
fn a_request_that_is_too_large_too_slow_or_of_another_kind_is_told_so() {
    let gateway = Gateway::start(&["--max-body", "20KiB", "--body-timeout", "1s", "--head-timeout", "1s"]);
    let mut http = gateway.http();
    let large = entry("1", &"x".repeat(30_000));
    assert_eq!(http.post(&gateway.token, JSON, &large).unwrap().expect(413).json()["accepted"], 0);
    // without a length that is known before
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let head = |more: &str| {
        format!(
            "POST /logs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: {JSON}\r\n{more}\r\n",
            gateway.token
        )
    };
    let mut chunked = gateway.http();
    chunked.write(head("transfer-encoding: chunked\r\n").as_bytes()).unwrap();
    let _ = chunked.write(chunk(&large).as_bytes());
    chunked.answer().unwrap().expect(413);
    let mut chunked = gateway.http();
    let body = entry("2", "chunked");
    let pieces = [&body[..20], &body[20..], ""].map(chunk).concat();
    chunked.write(format!("{}{pieces}", head("transfer-encoding: chunked\r\n")).as_bytes()).unwrap();
    chunked.answer().unwrap().expect(202);

    let mut slow = gateway.http();
    slow.write(format!("{}{{", head("content-length: 100\r\n")).as_bytes()).unwrap();
    let since = Instant::now();
    slow.answer().unwrap().expect(408);
    assert!(since.elapsed().as_secs() >= 1);
    // a byte now and then does not help
    let mut dripping = gateway.http();
    until("the connection is closed", || {
        thread::sleep(Duration::from_millis(100));
        dripping.write(b"x").is_err()
    });
    assert!(dripping.is_closed());

    let post = |kind: &str, body: &str| gateway.http().post(&gateway.token, kind, body).unwrap();
    post("text/plain", "x").expect(415);
    post("application/x-www-form-urlencoded", "x").expect(415);
    post("application/json; charset=utf-8", &entry("3", "a")).expect(202);
    post(JSON, "").expect(400);
    post(LINES, "\n\n").expect(400);
    let mut zipped = gateway.http();
    zipped.write(head("content-encoding: gzip\r\ncontent-length: 1\r\n").as_bytes()).unwrap();
    zipped.write(b"x").unwrap();
    zipped.answer().unwrap().expect(415);
    let mut headers = gateway.http();
    let _ = headers.write(format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(40_000)).as_bytes());
    // the answer may be lost with what was not read
    assert!(headers.answer().is_ok_and(|answer| answer.status == 431) || headers.is_closed());
    gateway.http().get("/nothing", "").unwrap().expect(404);
    let answer = gateway.http().get("/logs", "").unwrap().expect(405);
    assert_eq!(header(&answer.head, "allow"), Some("POST"));
    let mut nonsense = gateway.http();
    nonsense.write(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").unwrap();
    let _ = nonsense.answer();
    gateway.http().get("/healthz", "").unwrap().expect(200);
}

/// Ten thousand connections that say nothing do not keep others out, take little memory, and end when their time is
/// over; beyond the limit, the one that was idle for longest is closed for another.
#[test]
fn idle_connections_hold_nobody_up() {
    const IDLE: usize = 10_000;
    raise_file_limit();
    let most = (IDLE + 10).to_string();
    let gateway = Gateway::start(&["--max-connections", &most, "--idle-timeout", "15s"]);
    let before = memory(gateway.pid());
    let mut idle: Vec<Http> = (0..IDLE).map(|_| gateway.http()).collect();
    until("all are accepted", || gateway.metric("connections") > IDLE as u64);
    let since = Instant::now();
    let mut http = gateway.http();
    for id in 0..100 {
        http.post(&gateway.token, JSON, &entry(&id.to_string(), "a")).unwrap().expect(202);
    }
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    let grown = memory(gateway.pid()) - before;
    assert!(grown < 48 << 20, "{IDLE} connections take {} MiB", grown >> 20);
    let _more: Vec<Http> = (0..9).map(|_| gateway.http()).collect();
    for _ in 0..20 {
        gateway.http().get("/healthz", "").unwrap().expect(200);
    }
    assert!(idle[0].is_closed(), "it was idle for longest");
    until("idle connections are closed", || idle.pop().is_none_or(|mut each| each.is_closed()));
    until("there is room again", || {
        Http::open(&gateway.address)
            .is_ok_and(|mut http| http.get("/healthz", "").is_ok_and(|answer| answer.status == 200))
    });
}

/// Where all connections are busy, one more is told.
#[test]
fn a_connection_too_many_is_told() {
    let gateway = Gateway::start(&["--max-connections", "3"]);
    let mut busy: Vec<Http> = (0..3).map(|_| gateway.http()).collect();
    for http in &mut busy {
        http.get("/healthz", "").unwrap().expect(200);
        http.write(b"POST /logs HTTP/1.1\r\n").unwrap();
    }
    until("the next is one too many", || {
        let mut beyond = gateway.http();
        beyond.answer().is_ok_and(|answer| {
            answer.status == 503
                && header(&answer.head, "retry-after") == Some("1")
                && answer.json()["status"] == 503
        })
    });
}

/// A connection that has been idle for a second gives its buffers back; a request at that very moment, one that comes in
/// pieces around it, and two at once are answered as any other.
#[test]
fn a_connection_is_served_whenever_its_next_request_comes() {
    const CONNECTIONS: u64 = 300;
    let gateway = Gateway::start(&[]);
    let request = |id: &str| {
        let body = entry(id, "a");
        let (token, length) = (&gateway.token, body.len());
        format!(
            "POST /logs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (gateway, request) = (&gateway, &request);
            scope.spawn(move || {
                let mut http = gateway.http();
                for round in 0..3 {
                    let ids = [0, 1].map(|part| format!("{connection}-{round}-{part}"));
                    let both = ids.map(|id| request(&id)).concat();
                    let (begin, rest) = both.split_at(20);
                    http.write(begin.as_bytes()).unwrap();
                    if connection % 2 == 0 {
                        thread::sleep(Duration::from_millis(10));
                    }
                    http.write(rest.as_bytes()).unwrap();
                    for _ in 0..2 {
                        http.answer().unwrap().expect(202);
                    }
                    thread::sleep(Duration::from_millis(930 + connection / 2));
                }
            });
        }
    });
    gateway.wait_until_stored();
    assert_eq!(gateway.metric("entries_stored_total"), CONNECTIONS * 3 * 2);
}

/// Whoever takes answers slowly still gets all of them, and is ended only when it takes none for too long.
#[test]
fn a_client_that_reads_slowly_gets_its_answers() {
    const PAGES: usize = 200;
    let gateway = Gateway::start(&["--idle-timeout", "4s"]);
    let ask = || {
        let mut http = gateway.http();
        let mut again = gateway.http();
        let length = again.get("/", "").unwrap().expect(200).body.len();
        assert!(length * PAGES > 8 << 20, "{length}: more than the network takes by itself");
        http.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(PAGES).as_bytes()).unwrap();
        http
    };
    let mut slow = ask();
    let mut never = ask();
    thread::sleep(Duration::from_millis(2500));
    for _ in 0..PAGES {
        slow.answer().unwrap().expect(200);
    }
    thread::sleep(Duration::from_secs(3));
    let answers = (0..PAGES).take_while(|_| never.answer().is_ok()).count();
    assert!(answers < PAGES, "it was waited for longer than for a connection without a request");
}

fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// The memory that a process takes, in bytes.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A queue that is full says so, drops nothing, and goes on when there is room again.
#[test]
fn a_full_queue_answers_429_and_loses_nothing() {
    let message = "x".repeat(60_000);
    for queue in ["disk", "memory"] {
        let sink = Sink::start("sqlite");
        // who holds the database's lock, keeps the collector waiting
        let words = ["--queue", queue, "--queue-size", "32MiB", "--sink", &sink.text()];
        let gateway = Gateway::start(&words);
        let holder = rusqlite::Connection::open(&sink.address().path).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut http = gateway.http();
        let mut acknowledged = 0;
        let full = loop {
            let answer =
                http.post(&gateway.token, JSON, &entry(&acknowledged.to_string(), &message)).unwrap();
            if answer.status != 202 {
                break answer;
            }
            acknowledged += 1;
            assert!(acknowledged < 1000);
        };
        assert_eq!(header(&full.head, "retry-after"), Some("1"), "{full:?}");
        assert_eq!((full.status, &full.json()["accepted"]), (429, &json!(0)), "{full:?}");
        assert!(acknowledged > 100, "{acknowledged} of 60 KB are in 32 MiB");
        if queue == "disk" {
            gateway.http().get("/readyz", "").unwrap().expect(503);
        }
        holder.execute_batch("ROLLBACK").unwrap();
        until("there is room again", || gateway.http().get("/readyz", "").unwrap().status == 200);
        until("entries are accepted again", || {
            http.post(&gateway.token, JSON, &entry("last", "a")).unwrap().status == 202
        });
        gateway.wait_until_stored();
        gateway.http().get("/readyz", "").unwrap().expect(200);
        assert_eq!(entries(&sink.address()).len(), acknowledged + 1);
        assert_eq!(gateway.stop().0, Some(0));
    }
}

/// On a disk that is full nothing is acknowledged, nothing that was is lost, and it goes on when there is room.
#[test]
fn a_full_disk_answers_503_and_loses_nothing() {
    let sink = Sink::start("sqlite");
    let folder = tempfile::TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // a small disk of its own, in a name space of its own
    let can = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none"]).arg(&disk).output();
    if !can.is_ok_and(|done| done.status.success()) {
        eprintln!("left out: this machine lets nobody mount a disk in a name space of its own");
        return;
    }
    let text = sink.text();
    let gateway = Gateway::start_on_a_disk(&disk, "100m", &["--sink", &text]);
    let mut http = gateway.http();
    http.post(&gateway.token, JSON, &entry("before", "a")).unwrap().expect(202);
    let inside = format!("/proc/{}/root{}", gateway.pid(), disk.display());
    let filler = format!("{inside}/filler");
    // as others would fill it
    let _ = fs::write(&filler, vec![1; 100 << 20]);
    // the segment that was made has its room, which others cannot take
    let message = "x".repeat(60_000);
    let mut acknowledged = 1;
    let full = loop {
        let lines: Vec<String> = (0..20).map(|at| entry(&format!("{acknowledged}-{at}"), &message)).collect();
        let answer = http.post(&gateway.token, LINES, &lines.join("\n")).unwrap();
        if answer.status != 202 {
            break answer;
        }
        acknowledged += 20;
        assert!(acknowledged < 5000);
    };
    assert!(full.status == 503 && full.body.contains("No space left"), "{full:?}");
    assert!(acknowledged > 500, "{acknowledged}");
    gateway.http().get("/readyz", "").unwrap().expect(503);
    fs::remove_file(&filler).unwrap();
    // also where nobody sends any more, because it is not ready
    until("there is room", || gateway.http().get("/readyz", "").unwrap().status == 200);
    until("entries are accepted again", || {
        http.post(&gateway.token, JSON, &entry("after", "a")).unwrap().status == 202
    });
    gateway.wait_until_stored();
    let stored = entries(&sink.address());
    assert_eq!(stored.len(), acknowledged + 1);
    assert!(stored.iter().any(|row| row.id == "after"));
    let said = gateway.stop().1;
    assert!(
        said.contains("a segment cannot be made") && said.contains("entries are accepted again"),
        "{said}"
    );
}

/// A disk on which nothing can be written, by a limit of the size of files: at the start and later, it is told, and it goes
/// on when it can be.
#[test]
fn a_gateway_on_which_nothing_can_be_written_is_not_ready_and_survives() {
    let sink = Sink::start("sqlite");
    let mut gateway = Gateway::start(&["--sink", &sink.text()]);
    gateway.stop_and_keep();
    let mut limited = Command::new("prlimit");
    // enough for users, and neither for a segment of the queue nor for the entries
    limited.arg("--fsize=524288:");
    gateway.restart_by(limited);
    let pid = gateway.pid().to_string();
    let limit_to = |bytes: &str| {
        let done = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
        assert!(done.unwrap().success());
    };
    let is_ready = || gateway.http().get("/readyz", "").unwrap();
    let refused = |id: &str| {
        let answer = gateway.http().post(&gateway.token, JSON, &entry(id, "a")).unwrap().expect(503);
        assert!(answer.body.contains("File too large"), "{answer:?}");
        assert_eq!(header(&answer.head, "retry-after"), Some("1"));
    };
    // before anybody has sent anything
    assert!(is_ready().expect(503).body.contains("File too large"));
    refused("1");
    limit_to("unlimited");
    until("there is room", || is_ready().status == 200);
    gateway.http().post(&gateway.token, JSON, &entry("2", "a")).unwrap().expect(202);
    // a byte, so that the segment which has its room cannot be written either
    limit_to("1");
    refused("3");
    is_ready().expect(503);
    limit_to("unlimited");
    until("there is room", || is_ready().status == 200);
    gateway.http().post(&gateway.token, JSON, &entry("4", "a")).unwrap().expect(202);
    gateway.wait_until_stored();
    let ids: Vec<String> = entries(&sink.address()).into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["2", "4"]);
    assert_eq!(gateway.stop().0, Some(0));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_started() {
    let cases: [(&[&str], i32, &str); 17] = [
        (&["--sink", "redis://localhost"], 2, "entries are stored in SQLite, PostgreSQL, MariaDB or MySQL"),
        (&["--sink", "nonsense"], 2, "nonsense"),
        (&["--users", "mysql://localhost/x"], 2, "users are kept in SQLite or PostgreSQL"),
        (&["--sink", "mysql://localhost:1"], 2, "names no database"),
        (&["--sink", "postgres://nobody@127.0.0.1:1/x"], 3, "PostgreSQL at postgres://nobody@127.0.0.1:1/x"),
        (&["--queue-size", "1MiB"], 2, "--queue-size 32MiB or more"),
        (&["--queue", "memory", "--queue-size", "1MiB"], 2, "--queue-size 32MiB or more"),
        (
            &["--architecture", "direct", "--batch", "10"],
            2,
            "--batch has no effect with --architecture direct",
        ),
        (&["--architecture", "direct", "--queue", "disk"], 2, "--queue has no effect"),
        (&["--architecture", "direct", "--remember", "1s"], 2, "--remember has no effect"),
        (&["--architecture", "direct", "--partial", "reject"], 2, "--partial has no effect"),
        (&["--sink-connections", "10"], 2, "--sink-connections has no effect with --architecture queued"),
        (&["--collectors", "2"], 2, "SQLite takes one transaction at a time"),
        (&["--head-timeout", "0s"], 2, "the time must be above 0"),
        (&["--max-connections", "0"], 2, "--max-connections"),
        (&["--table", "Robert'); DROP TABLE"], 2, "is not a valid name for a table"),
        (&["--sink", "sqlite:/dev/null/x"], 3, "/dev/null/x"),
    ];
    for (words, code, text) in cases {
        let (ended, said) = Gateway::refused(words);
        assert!(ended == Some(code) && said.contains(text), "{words:?}: {ended:?} {said}");
    }
    let gateway = Gateway::start(&[]);
    let (code, said) = Gateway::refused(&["--listen", &gateway.address]);
    assert!(code == Some(1) && said.contains("--listen"), "{said}");
    let (code, said) = Gateway::refused(&["--data", &gateway.folder().to_string_lossy()]);
    assert!(code.is_some_and(|code| code != 0), "{said}");
}
