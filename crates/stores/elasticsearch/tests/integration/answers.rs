//! Answers that no real server can be made to give, such as malformed ones: a small HTTP server answers as each
//! test defines it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use acidtest_engine::{Measurement, Outcome};
use acidtest_model::{Address, Lock, StoreError};
use acidtest_store_elasticsearch::{Elasticsearch, KIND};
use acidtest_testbed::{
    AfterRemoval, Subject, for_operations, login,
    parcels::{self, ParcelsRun},
    records::RecordsRun,
    wait,
};
use acidtest_workloads::{
    LoadProgress, Place,
    parcels::Parameters,
    records::{Layout, RecordsStore as _},
};

static ELASTICSEARCH: Subject<Elasticsearch> = Subject {
    kind: KIND,
    open: |address, durability| Box::pin(Elasticsearch::open(address, Some(durability), None)),
    gone: AfterRemoval::Error,
};

/// How the server answers a request.
#[derive(Clone)]
enum Reply {
    /// With this status and body.
    Says(u16, String),
    /// With these bytes, whatever they are; then it closes the connection.
    Bytes(&'static [u8]),
    /// It announces an answer, sends a part of it and closes the connection.
    Half,
}

fn says(status: u16, body: &str) -> Reply {
    Reply::Says(status, body.to_owned())
}

/// The usual answers of a server with one index, to requests that a test is not about.
fn usual(method: &str, path: &str) -> Reply {
    let body = match (method, path) {
        ("GET", "/") => r#"{"version":{"number":"7.17.29","lucene_version":"8.11.3"}}"#,
        ("GET", path) if path.contains("/_doc/") => {
            r#"{"found":true,"_seq_no":1,"_primary_term":1,"_source":{"version":0}}"#
        }
        ("GET", path) if path.contains("/_settings/") => {
            r#"{"acidtest--usertable_0":{"settings":{"index.translog.durability":"request"}}}"#
        }
        ("POST", path) if path.ends_with("/_refresh") || path.ends_with("/_flush") => {
            r#"{"_shards":{"total":1,"successful":1,"failed":0}}"#
        }
        ("PUT", "/acidtest--usertable_0") => r#"{"shards_acknowledged":true}"#,
        _ => "{}",
    };
    says(200, body)
}

/// Starts a server that answers every request as `reply` does; it ends with the test's process.
fn fake(reply: impl Fn(&str, &str) -> Reply + Clone + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let reply = reply.clone();
            // the client may close the connection at any time
            thread::spawn(move || serve(&stream.unwrap(), reply).unwrap_or_default());
        }
    });
    Address::loopback("elasticsearch", None, port, "")
}

fn serve(stream: &TcpStream, reply: impl Fn(&str, &str) -> Reply) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        match reply(&method, &path) {
            Reply::Says(status, body) => {
                let length = body.len();
                write!(writer, "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}")?;
            }
            Reply::Bytes(bytes) => return writer.write_all(bytes),
            Reply::Half => {
                return writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"result\":");
            }
        }
    }
}

#[test]
fn what_is_no_elasticsearch_is_told_with_a_remedy_and_without_the_password() {
    let rest = "Elasticsearch's REST interface";
    let security = r#"{"error":{"type":"security_exception","reason":"unable to authenticate user [ann]"}}"#;
    let cases = [
        (says(401, security), "ACIDTEST_PASSWORD"),
        (says(403, security), "manage and write the indices"),
        (says(503, ""), "wait until the server is up"),
        (says(200, "<html>welcome</html>"), rest),
        (says(200, "[7]"), rest),
        (says(200, ""), rest),
        (says(404, "not here"), rest),
        (Reply::Bytes(b"\x15\x03\x01\x00\x02\x02\x28"), "https://"),
        (Reply::Bytes(b"SSH-2.0-OpenSSH\r\n"), "https://"),
        (Reply::Bytes(b""), "https://"),
        (Reply::Half, "https://"),
    ];
    for (reply, remedy) in cases {
        let address = fake(move |_, _| reply.clone());
        ELASTICSEARCH.refuses(&login(&address, "ann", Some("hunter2")), &[remedy]);
    }
}

/// The license of the server here has no API keys: what is sent of them is looked at instead.
#[test]
fn an_api_key_is_sent_as_elasticsearch_wants_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = thread::spawn(move || {
        let hear = |stream: TcpStream| {
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
        };
        [(); 2].map(|()| hear(listener.accept().unwrap().0))
    });
    for key in ["id:key", "aWQ6a2V5"] {
        let mut address = Address::loopback("http", None, port, "");
        address.password = Some(acidtest_model::Secret::new(key));
        ELASTICSEARCH.refuses(&address, &[]);
    }
    for request in heard.join().unwrap() {
        assert!(request.contains("authorization: ApiKey aWQ6a2V5"), "{request}");
    }
}

#[test]
fn a_server_that_does_not_know_its_indices_yet_is_not_up() {
    // as 7.17.29 answers with `gateway.recover_after_data_nodes` set; to requests for an index it would answer
    // that there is none
    let block = r#"{"error":{"type":"cluster_block_exception",
        "reason":"blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized];"},"status":503}"#;
    let address = fake(
        move |method, path| {
            if path.contains("/_mapping") { says(503, block) } else { usual(method, path) }
        },
    );
    ELASTICSEARCH.refuses(&address, &["state not recovered", "wait until the server is up"]);
}

/// Runs updates against a server that answers requests of this method with `reply`, and others as usual.
fn driven(reply: impl Fn() -> Reply + Clone + Send + 'static, method: &'static str) -> Measurement {
    let address = fake(
        move |asked, path| {
            if asked == method && path.contains("/_doc/") { reply() } else { usual(asked, path) }
        },
    );
    let store = wait(Elasticsearch::open(&address, None, None)).unwrap();
    RecordsRun::of(Lock::Soft, 0, "update:1").drive(&store, &for_operations(3), 1)
}

#[test]
fn a_write_without_an_answer_that_makes_sense_is_unknown() {
    let replies = [
        says(200, "<html>"),
        says(200, ""),
        says(500, "{}"),
        says(504, "gone"),
        Reply::Half,
        Reply::Bytes(b""),
        Reply::Bytes(b"x"),
    ];
    for reply in replies {
        let measured = driven(move || reply.clone(), "PUT");
        let count = |outcome| measured.operations[1].count(outcome);
        assert!(count(Outcome::Unknown) > 0, "{:?}", measured.faults);
        assert_eq!(
            count(Outcome::Ok) + count(Outcome::Failed) + count(Outcome::Conflict),
            0,
            "{:?}",
            measured.faults
        );
        assert!(measured.reconnects > 0, "{:?}", measured.faults);
    }
}

#[test]
fn a_read_without_an_answer_that_makes_sense_has_failed() {
    let wrong = [
        "[]",
        r#"{"found":true}"#,
        r#"{"found":true,"_seq_no":-1,"_primary_term":1,"_source":{"version":0}}"#,
        r#"{"found":true,"_seq_no":1,"_primary_term":1,"_source":{"version":"x"}}"#,
        r#"{"found":true,"_seq_no":1,"_primary_term":1,"_source":{"version":18446744073709551615}}"#,
    ];
    let replies = wrong.map(|body| says(200, body)).into_iter();
    for reply in replies.chain([says(500, ""), Reply::Half, Reply::Bytes(b"\x00")]) {
        let measured = driven(move || reply.clone(), "GET");
        let count = |outcome| measured.operations[1].count(outcome);
        assert!(count(Outcome::Failed) > 0, "{:?}", measured.faults);
        assert_eq!(count(Outcome::Ok) + count(Outcome::Unknown), 0, "{:?}", measured.faults);
    }
}

/// A page of a search with these documents, as `(id, source)`.
fn page(documents: &[(&str, &str)]) -> String {
    let hits = documents
        .iter()
        .map(|(id, source)| format!(r#"{{"_id":"{id}","_source":{source},"sort":["{id}"]}}"#));
    let hits = hits.collect::<Vec<_>>().join(",");
    format!(r#"{{"timed_out":false,"_shards":{{"failed":0}},"hits":{{"hits":[{hits}]}}}}"#)
}

#[test]
fn what_is_kept_and_no_record_is_torn_in_the_trial_and_at_its_end() {
    let pages = Arc::new(AtomicU32::new(0));
    let address = fake(move |method, path| {
        if method == "GET" && path.contains("/_doc/") {
            says(200, r#"{"found":true,"_seq_no":1,"_primary_term":1,"_source":{"version":"x"}}"#)
        } else if path.contains("/_search") {
            let first = pages.fetch_add(1, Ordering::Relaxed) == 0;
            says(200, &page(if first { &[("theirs", "[]"), ("user0", "7")] } else { &[] }))
        } else {
            usual(method, path)
        }
    });
    let store = wait(Elasticsearch::open(&address, None, None)).unwrap();
    let case = RecordsRun::of(Lock::Soft, 0, "read:1");
    let measured = case.drive(&store, &for_operations(5), 1);
    let read = measured.operations[0].count(Outcome::Ok);
    let (audit, _) = case.judge(&store);
    // the last two are no records, and one of them has not even a record's key
    assert!(read > 0 && audit.count("torn") >= read, "{audit}: {:?}", measured.faults);
    assert_eq!((audit.count("phantom"), audit.count("missing")), (2, 0), "{audit}");
}

#[test]
fn pages_that_do_not_go_on_are_no_final_state() {
    let address = fake(|method, path| {
        if path.contains("/_search") { says(200, &page(&[("user0", "{}")])) } else { usual(method, path) }
    });
    let store = wait(Elasticsearch::open(&address, None, None)).unwrap();
    let error = RecordsRun::of(Lock::Soft, 0, "a").state(&store).unwrap_err().to_string();
    assert!(error.contains("a page that ends where the last one did"), "{error}");
}

#[test]
fn a_queue_that_is_full_has_failed_and_keeps_its_connection() {
    let full = r#"{"error":{"type":"es_rejected_execution_exception","reason":"rejected execution of a@7"}}"#;
    let measured = driven(move || says(429, full), "PUT");
    assert!(measured.operations[1].count(Outcome::Failed) > 0, "{:?}", measured.faults);
    assert_eq!(measured.reconnects, 0);
    assert!(measured.faults.keys().all(|fault| fault.starts_with("rejected: ")), "{:?}", measured.faults);
}

/// Loads ten records into a server that answers bulk requests with `reply`. Returns how many were loaded.
fn loaded(reply: impl Fn() -> Reply + Clone + Send + 'static) -> Result<u64, StoreError> {
    let address =
        fake(move |method, path| if path.contains("/_bulk") { reply() } else { usual(method, path) });
    let store = wait(Elasticsearch::open(&address, None, None)).unwrap();
    let place = Place { namespace: "acidtest".to_owned(), trial: 0 };
    let layout = Layout { records: 10, fields: 2, field_bytes: 20, scans: false };
    let loaded = LoadProgress::default();
    wait(store.load(&place, &layout, &loaded)).map(|()| loaded.rows())
}

fn items(created: usize, others: &str) -> String {
    let created = vec![r#"{"create":{"status":201}}"#; created].join(",");
    let comma = if others.is_empty() { "" } else { "," };
    format!(r#"{{"errors":{},"items":[{created}{comma}{others}]}}"#, !others.is_empty())
}

#[test]
fn what_a_bulk_leaves_out_is_sent_again_or_is_an_error() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let full =
        r#"{"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}}"#;
    let some = move || {
        // the two that were turned away are sent again alone
        let first = ASKED.fetch_add(1, Ordering::Relaxed) == 0;
        says(200, &if first { items(8, &format!("{full},{full}")) } else { items(2, "") })
    };
    assert_eq!(loaded(some).unwrap(), 10);
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);

    let said = |reply: Reply| loaded(move || reply.clone()).unwrap_err().to_string();
    let bad =
        r#"{"create":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"failed to parse"}}}"#;
    assert!(said(says(200, &items(9, bad))).contains("failed to parse (mapper_parsing_exception, HTTP 400)"));
    assert!(said(says(200, &items(9, ""))).contains("10 records were sent, 9 answered"));
    assert!(said(says(200, r#"{"errors":true,"items":[]}"#)).contains("answered"));
    assert!(said(says(200, "7")).contains("an invalid answer"));
    assert!(said(says(413, "too large")).contains("HTTP 413"));
    assert!(said(Reply::Half).contains("loading the records failed"));
}

/// The answer to a count of the first parcel, which has no scans yet.
fn no_scans() -> String {
    let docs = (1..=7).map(|id| format!(r#"{{"_id":"{id}","found":false}}"#));
    format!(r#"{{"docs":[{}]}}"#, docs.collect::<Vec<_>>().join(","))
}

/// How the insert of a parcel's first scan ends, where counts and writes are answered so.
fn inserted(counts: Reply, writes: Reply) -> Outcome {
    let address = fake(move |method, path| match method {
        "POST" if path.contains("/_mget") => counts.clone(),
        "PUT" if path.contains("/_create/1?") => writes.clone(),
        _ => usual(method, path),
    });
    let store = wait(Elasticsearch::open(&address, None, None)).unwrap();
    let parameters = Parameters { parcels: 1, scans: 0, eighths: 0.0, ..parcels::few("insert") };
    let measured = ParcelsRun::new(Lock::Soft, 0, parameters).drive(&store, &for_operations(1), 1);
    let ended = |outcome: &Outcome| measured.operations[0].count(*outcome) > 0;
    let outcomes = [Outcome::Ok, Outcome::Refused, Outcome::Conflict, Outcome::Failed, Outcome::Unknown];
    let ended: Vec<Outcome> = outcomes.into_iter().filter(ended).collect();
    let [ended] = ended[..] else { panic!("{ended:?}: {measured:?}") };
    ended
}

#[test]
fn an_insert_is_what_its_answers_prove() {
    let count = || says(200, &no_scans());
    assert_eq!(inserted(count(), says(201, "{}")), Outcome::Ok);
    for lost in [says(201, "<html>"), says(201, ""), says(500, "{}"), Reply::Half, Reply::Bytes(b"x")] {
        assert_eq!(inserted(count(), lost), Outcome::Unknown);
    }
    let full = r#"{"error":{"type":"es_rejected_execution_exception","reason":"full"}}"#;
    assert_eq!(inserted(count(), says(429, full)), Outcome::Failed);
    // a write is sent only where the count makes sense
    let others = no_scans().replace(r#""7""#, r#""8""#);
    let fewer = no_scans().replace(r#",{"_id":"7","found":false}"#, "");
    let seven = no_scans().replace("false", "true");
    for (answer, ended) in [
        ("{}", Outcome::Failed),
        (&others, Outcome::Failed),
        (&fewer, Outcome::Failed),
        (&seven, Outcome::Refused),
    ] {
        assert_eq!(inserted(says(200, answer), says(201, "{}")), ended, "{answer}");
    }
    assert_eq!(inserted(says(500, ""), says(201, "{}")), Outcome::Failed);
}
