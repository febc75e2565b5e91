//! The gateway, as its users start it: what it takes, what it refuses, and that it keeps what it has acknowledged.

mod away;
mod broker;
mod brokers;
mod clock;
mod database;
mod kills;
mod limits;
mod measured;
mod repeats;
mod running;
mod tls;
mod users;

use acidtest_model::Address;
use acidtest_testbed::wanted;
use serde_json::{Value, json};

use self::{
    database::{Row, entries, order, refused, status},
    running::{Gateway, Sink, entry},
};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

fn row(id: &str, message: &str, attributes: Option<&str>) -> Row {
    Row {
        user: "ann".to_owned(),
        id: id.to_owned(),
        logged: 1_795_428_900_123_456,
        level: "warn".to_owned(),
        application: "shöp".to_owned(),
        message: message.to_owned(),
        attributes: attributes.map(str::to_owned),
    }
}

fn given(id: &str, message: &str, attributes: Option<&str>) -> String {
    let attributes = attributes.map_or_else(String::new, |text| format!(",\"attributes\":{text}"));
    let message = Value::from(message);
    format!(
        r#"{{"id":"{id}","timestamp":"2026-11-23T11:15:00.123456+01:00","level":"WARN","application":"shöp","message":{message}{attributes}}}"#
    )
}

/// Entries of every kind, in each form, come out of every database as they were sent; repeats are suppressed, and
/// another content under the same id is refused, at once or when it is stored.
#[test]
fn entries_are_stored_as_they_were_sent() {
    for architecture in ["queued", "direct"] {
        for sink in Sink::each() {
            let name = sink.name;
            let gateway = Gateway::start(&["--architecture", architecture, "--sink", &sink.text()]);
            stores_what_is_sent(&gateway, &sink.address(), name, architecture);
            let repeated = usize::from(architecture == "queued");
            // what was sent long ago, only the database knows
            let gateway = gateway.again();
            let mut http = gateway.http();
            // blanks at the end count, and so does how a number is written
            let others = [
                given("plain", "plain  ", None),
                given("attributes", "a", Some(r#"{ "z" : 1.50, "n":12345678901234567890123 }"#)),
            ];
            let other = http.post(&gateway.token, LINES, &others.join("\n")).unwrap();
            let new = format!("[{},{}]", given("plain", "plain", None), given("new", "new", None));
            http.post(&gateway.token, JSON, &new).unwrap();
            if architecture == "direct" {
                other.expect(409);
            } else {
                other.expect(202);
            }
            let (code, said) = gateway.stop();
            assert_eq!(code, Some(0), "{said}");
            let rows = entries(&sink.address());
            assert_eq!(
                rows.iter().filter(|row| row.user == "ann" && ["new", "plain"].contains(&&*row.id)).count(),
                2
            );
            assert!(rows.contains(&row("plain", "plain", None)), "the first stays: {name}");
            let kept = refused(&sink.address());
            assert_eq!(kept.len(), 2 * repeated, "{name} {architecture}: {kept:?}");
            for (id, reason, entry) in &kept {
                assert_eq!(reason, "its id is stored with other content");
                if id == "attributes" {
                    assert!(entry.contains(r#"{ "z" : 1.50, "n":12345678901234567890123 }"#), "{entry}");
                    continue;
                }
                let entry: Value = serde_json::from_str(entry).unwrap();
                assert_eq!((&entry["message"], &entry["application"]), (&json!("plain  "), &json!("shöp")));
                assert_eq!(entry["timestamp"], "2026-11-23T10:15:00.123456Z");
            }
        }
    }
}

fn stores_what_is_sent(gateway: &Gateway, sink: &Address, name: &str, architecture: &str) {
    let taken = if architecture == "direct" { 201 } else { 202 };
    let mut http = gateway.http();
    let long = "ä".repeat(32 << 10);
    let cases = [
        ("plain", "plain", None),
        ("empty", "", None),
        ("quotes", "it's \"quoted\" \\ and\n\ttabbed; DROP TABLE x; -- %s", None),
        ("unicode", "\u{1f980} é \u{202e} \u{feff}", Some(r#"{"k\u00fc":"\ud83e\udd80","n":1.50}"#)),
        ("attributes", "a", Some(r#"{ "a" : 1e2, "b":true, "c":null,"d":"x"}"#)),
        ("long", long.as_str(), None),
        ("case", "lower", None),
        ("CASE", "upper", None),
    ];
    let (first, rest) = cases.split_first().unwrap();
    let answer = http.post(&gateway.token, JSON, &given(first.0, first.1, first.2)).unwrap().expect(taken);
    assert_eq!(answer.json(), json!({"accepted": 1}));
    let several: Vec<String> = rest.iter().map(|case| given(case.0, case.1, case.2)).collect();
    let answer = http.post(&gateway.token, JSON, &format!("[{}]", several.join(","))).unwrap().expect(taken);
    assert_eq!(answer.json()["accepted"], rest.len());
    // all of them once more, as lines, with two that are new and have no id
    let without = given("x", "no id", None).replace("\"id\":\"x\",", "");
    let lines = [several.join("\n"), without.clone(), without].join("\n");
    let answer = http.post(&gateway.token, LINES, &lines).unwrap().expect(taken);
    let ids: Vec<Value> = answer.json()["ids"].as_array().unwrap().clone();
    assert_eq!((ids.len(), &ids[0]["entry"]), (2, &json!(rest.len())));
    // the same id with other content
    let answer = http.post(&gateway.token, JSON, &given("case", "other", None)).unwrap().expect(409);
    assert_eq!(answer.json()["refused"][0]["field"], "id");
    assert_eq!(answer.json()["accepted"], 0);
    // one bad entry among good ones
    let bad = [
        given("good1", "g", None),
        given("bad", "b", None).replace("WARN", "loud"),
        given("good2", "g", None),
    ];
    let answer =
        http.post(&gateway.token, JSON, &format!("[{}]", bad.join(","))).unwrap().expect(taken).json();
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(2), &json!(1)));
    assert_eq!(answer["taken"], json!([[0, 0], [2, 2]]));
    assert_eq!(
        (&answer["refused"][0]["entry"], &answer["refused"][0]["field"]),
        (&json!(1), &json!("level"))
    );
    // malformed in the middle: nothing of an array is taken
    let broken = format!("[{},{{\"id\":,{}]", given("never1", "", None), given("never2", "", None));
    let answer = http.post(&gateway.token, JSON, &broken).unwrap().expect(400).json();
    assert_eq!(answer["accepted"], 0);
    assert!(answer["detail"].as_str().unwrap().contains("line 1 column"), "{answer}");
    // another user may use the same ids
    let bob = gateway.add_user("bob", &[]);
    http.post(&bob, JSON, &given("plain", "bob's", None)).unwrap().expect(taken);
    gateway.wait_until_stored();

    let mut wanted: Vec<Row> = cases.iter().map(|case| row(case.0, case.1, case.2)).collect();
    wanted.extend([row("good1", "g", None), row("good2", "g", None)]);
    wanted.extend(ids.iter().map(|made| row(made["id"].as_str().unwrap(), "no id", None)));
    wanted.push(Row { user: "bob".to_owned(), ..row("plain", "bob's", None) });
    wanted.sort();
    let stored = entries(sink);
    assert_eq!(stored, wanted, "{name} {architecture}");
    assert_eq!(refused(sink), [], "{name}");
    let metrics = gateway.metrics();
    assert!(metrics.contains(&format!("entries_stored_total {}", wanted.len())), "{metrics}");
    assert!(metrics.contains(&format!("entries_repeated_total {}", rest.len())), "{metrics}");
    assert!(metrics.contains("entries_conflicting_total 1"), "{metrics}");
}

/// MariaDB and MySQL load a batch, and where that would leave out or change a row, or the server does not take it any
/// more, insert it: each entry is stored as it was sent.
#[test]
fn a_batch_that_is_loaded_is_stored_as_it_was_sent() {
    for name in ["mariadb", "mysql"].into_iter().filter(|name| wanted(name)) {
        let mut sink = Sink::start(name);
        let address = sink.address();
        order(&address, "SET GLOBAL local_infile = 1");
        order(&address, "SET GLOBAL max_allowed_packet = 4194304");
        let gateway = Gateway::start(&["--sink", &sink.text()]);
        let message = "\u{1f980}\tt\r\n\\n \\N \\ \"'é";
        let mut all = Vec::new();
        let mut send = |numbers: std::ops::Range<u32>| {
            let attributes =
                |number: u32| number.is_multiple_of(2).then_some(r#"{ "a":	"\\\n\u0009",  "n" : null }"#);
            let entry = |number: u32| (number.to_string(), attributes(number));
            let lines: Vec<String> =
                numbers.clone().map(entry).map(|(id, a)| given(&id, message, a)).collect();
            gateway.http().post(&gateway.token, LINES, &lines.join("\n")).unwrap().expect(202);
            gateway.wait_until_stored();
            all.extend(numbers.map(entry).map(|(id, attributes)| row(&id, message, attributes)));
            all.sort();
            all.dedup();
            assert_eq!(entries(&address), all, "{name}");
        };
        send(0..40);
        assert_eq!(status(&address, "Com_load"), 1, "{name}");
        // some are there already
        send(30..60);
        assert_eq!(status(&address, "Com_load"), 2, "{name}");
        // what does not fit any more is not cut off
        order(
            &address,
            "ALTER TABLE acidtest_logs MODIFY application VARCHAR(8) CHARACTER SET utf8mb4 NOT NULL",
        );
        let lines: Vec<String> = (0..20)
            .map(|number| given(&format!("short-{number}"), "", None))
            .map(|line| if line.contains("short-7\"") { line.replace("shöp", "much too long") } else { line })
            .collect();
        gateway.http().post(&gateway.token, LINES, &lines.join("\n")).unwrap().expect(202);
        gateway.wait_until_stored();
        let kept = refused(&address);
        assert!(matches!(&kept[..], [(id, ..)] if id == "short-7"), "{name}: {kept:?}");
        order(&address, "DELETE FROM acidtest_logs WHERE id LIKE 'short%'");
        let loads = status(&address, "Com_load");
        order(&address, "SET GLOBAL local_infile = 0");
        for begin in [100, 200, 300, 400] {
            send(begin..begin + 20);
        }
        // a batch is larger than a statement may be
        for request in 0..4 {
            let large = |number: u32| given(&format!("large-{request}-{number}"), &"x".repeat(60_000), None);
            let lines: Vec<String> = (0..30).map(large).collect();
            gateway.http().post(&gateway.token, LINES, &lines.join("\n")).unwrap().expect(202);
        }
        gateway.wait_until_stored();
        assert_eq!(entries(&address).len(), all.len() + 120, "{name}");
        // each of the two collectors tries it once more
        assert!(status(&address, "Com_load") <= loads + 2, "{name}");
        assert_eq!(gateway.stop().0, Some(0));
        sink.end();
    }
}

/// An entry that the database refuses is kept with the reason, and the others of its batch are stored.
#[test]
fn an_entry_that_the_database_refuses_costs_no_other() {
    for sink in Sink::each() {
        let name = sink.name;
        let gateway = Gateway::start(&["--sink", &sink.text()]);
        let _ = gateway.stop();
        // a rule of the user's own
        match name {
            "sqlite" => order(
                &sink.address(),
                "CREATE TRIGGER rule BEFORE INSERT ON acidtest_logs WHEN new.message = 'bad'
                 BEGIN SELECT raise(ABORT, 'not this one'); END",
            ),
            // by a trigger that says so
            "mariadb" => order(
                &sink.address(),
                "CREATE TRIGGER rule BEFORE INSERT ON acidtest_logs FOR EACH ROW IF new.message = 'bad' THEN
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
            ),
            "postgres" => {
                order(
                    &sink.address(),
                    "CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF new.message = 'bad' THEN RAISE 'not this one'; END IF; RETURN new; END $$",
                );
                order(
                    &sink.address(),
                    "CREATE TRIGGER rule BEFORE INSERT ON acidtest_logs FOR EACH ROW EXECUTE FUNCTION rule()",
                );
            }
            _ => order(
                &sink.address(),
                "ALTER TABLE acidtest_logs ADD CONSTRAINT rule CHECK (message <> 'bad')",
            ),
        }
        let gateway = Gateway::start(&["--sink", &sink.text(), "--linger", "300ms"]);
        let mut http = gateway.http();
        for id in 0..20 {
            let message = if id == 7 || id == 13 { "bad" } else { "good" };
            http.post(&gateway.token, JSON, &entry(&id.to_string(), message)).unwrap().expect(202);
        }
        gateway.wait_until_stored();
        assert_eq!(entries(&sink.address()).len(), 18, "{name}");
        let mut kept: Vec<String> = refused(&sink.address()).into_iter().map(|(id, ..)| id).collect();
        kept.sort();
        assert_eq!(kept, ["13", "7"], "{name}");
        assert!(gateway.metrics().contains("entries_refused_total 2"));
        let (code, said) = gateway.stop();
        assert!(code == Some(0) && said.contains("the database refuses an entry"), "{said}");
    }
}

/// A table that is not the gateway's own is not written into.
#[test]
fn another_table_of_that_name_is_refused() {
    for sink in Sink::each() {
        let name = sink.name;
        let mut tables = vec!["(user_name VARCHAR(64))", "without its key"];
        if ["mariadb", "mysql"].contains(&name) {
            // two ids that differ would be one
            tables.push(
                "(user_name VARCHAR(64), id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, received_at \
                 DATETIME(6), logged_at DATETIME(6), level VARCHAR(8), application VARCHAR(128), message TEXT, attributes \
                 TEXT, PRIMARY KEY (user_name, id))",
            );
        }
        for table in tables {
            let columns = "(user_name VARCHAR(64), id VARCHAR(64), received_at TIMESTAMP, logged_at TIMESTAMP, \
                           level VARCHAR(8), application VARCHAR(128), message VARCHAR(1000), attributes VARCHAR(100))";
            let table = if table.starts_with('(') { table } else { columns };
            // PostgreSQL knows attributes as JSON alone
            let table = if name == "postgres" {
                table.replace("attributes VARCHAR(100)", "attributes json")
            } else {
                table.to_owned()
            };
            order(&sink.address(), &format!("CREATE TABLE acidtest_logs {table}"));
            let (code, said) = Gateway::refused(&["--sink", &sink.text()]);
            assert!(code == Some(3) && said.contains("--table"), "{name}: {said}");
            order(&sink.address(), "DROP TABLE acidtest_logs");
        }
    }
}
