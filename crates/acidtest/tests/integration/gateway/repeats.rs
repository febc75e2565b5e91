//! What shippers send again is stored once, also where entries have no ids of their own.

use serde_json::json;

use super::{
    JSON, LINES,
    database::entries,
    running::{Gateway, Sink, entry},
};
use crate::common::http::{Answer, Http};

/// An entry without an id.
fn without_id(message: &str) -> String {
    entry("x", message).replace("\"id\":\"x\",", "")
}

/// Sends a body as shippers do: again, until it was taken, at most five times. Returns all answers.
fn ship(http: &mut Http, token: &str, body: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    while answers.len() < 5 && answers.last().is_none_or(|answer: &Answer| answer.status / 100 != 2) {
        answers.push(http.post(token, JSON, body).unwrap());
    }
    answers
}

/// The messages that are stored, in order.
fn messages(gateway: &Gateway, sink: &Sink) -> Vec<String> {
    gateway.wait_until_stored();
    let mut messages: Vec<String> = entries(&sink.address()).into_iter().map(|row| row.message).collect();
    messages.sort();
    messages
}

/// One bad entry does not make a shipper send the good ones again, and its log says what was refused.
#[test]
fn a_batch_with_a_bad_entry_is_stored_once() {
    for architecture in ["queued", "direct"] {
        let sink = Sink::start("sqlite");
        let gateway = Gateway::start(&["--architecture", architecture, "--sink", &sink.text()]);
        let bad = without_id("bad").replace("info", "loud");
        let batch = format!("[{},{bad}]", without_id("good"));
        let mut http = gateway.http();
        let answers = ship(&mut http, &gateway.token, &batch);
        let said = answers.last().unwrap().json();
        assert_eq!(
            (answers.len(), &said["rejected"], &said["refused"][0]["entry"]),
            (1, &json!(1), &json!(1))
        );
        // of these nothing is taken, however often they come
        let answers = ship(&mut http, &gateway.token, &format!("[{bad}]"));
        assert_eq!((answers.len(), answers[0].status, &answers[0].json()["accepted"]), (5, 400, &json!(0)));
        assert_eq!(messages(&gateway, &sink), ["good"], "{architecture}");
        let said = gateway.stop().1;
        assert!(said.contains("entries are refused") && said.contains("entry 1: level \\\"loud"), "{said}");
        assert_eq!(said.matches("entries are refused").count(), 1, "only now and then: {said}");
    }
}

/// Entries that are alike are told from each other, and a request that comes again is stored once, by another gateway, too.
#[test]
fn a_batch_that_is_sent_again_is_stored_once_by_its_content() {
    for architecture in ["queued", "direct"] {
        let sink = Sink::start("sqlite");
        let words = ["--ids", "content", "--architecture", architecture, "--sink", &sink.text()];
        let mut gateway = Gateway::start(&words);
        let lines = [without_id("alike"), without_id("alike"), without_id("other")].join("\n");
        let mut ids = Vec::new();
        for round in 0..4 {
            if round == 2 {
                gateway = gateway.again();
            }
            let answer = gateway.http().post(&gateway.token, LINES, &lines).unwrap();
            ids.push(answer.json()["ids"].clone());
        }
        assert!(ids[0].as_array().unwrap().len() == 3 && ids.iter().all(|these| *these == ids[0]), "{ids:?}");
        assert_eq!(messages(&gateway, &sink), ["alike", "alike", "other"], "{architecture}");
    }
}

/// A request that comes again with its key is stored once, also after a restart; and what has other content is told so.
#[test]
fn a_request_that_is_sent_again_with_its_key_is_stored_once() {
    for architecture in ["queued", "direct"] {
        let sink = Sink::start("sqlite");
        let mut gateway = Gateway::start(&["--architecture", architecture, "--sink", &sink.text()]);
        let lines = |last: &str| [without_id("alike"), without_id("alike"), entry("own", last)].join("\n");
        let post = |gateway: &Gateway, key: &str, body: &str| {
            let key = format!("Idempotency-Key: {key}\r\n");
            gateway.http().post_with(&key, &gateway.token, LINES, body).unwrap()
        };
        let mut ids = Vec::new();
        for (round, key) in ["key", "\"key\"", "key"].into_iter().enumerate() {
            if round == 2 {
                gateway = gateway.again();
            }
            let answer = post(&gateway, key, &lines("last"));
            assert_eq!(answer.status / 100, 2, "{answer:?}");
            ids.push(answer.json()["ids"].clone());
        }
        assert!(ids[0].as_array().unwrap().len() == 2 && ids.iter().all(|these| *these == ids[0]), "{ids:?}");
        let other = post(&gateway, "key", &without_id("other")).expect(422).json();
        assert!(
            other["accepted"] == 0 && other["detail"].as_str().unwrap().contains("Idempotency-Key"),
            "{other}"
        );
        post(&gateway, "key", &entry("own", "other")).expect(409);
        assert_eq!(post(&gateway, "", "{}").expect(400).json()["accepted"], 0);
        // another key is another request, and other users have keys of their own
        assert_eq!(post(&gateway, "key2", &without_id("again")).status / 100, 2);
        assert_eq!(messages(&gateway, &sink), ["again", "alike", "alike", "last"], "{architecture}");
    }
}

/// All or nothing: a batch that is mended and sent again is stored once.
#[test]
fn nothing_is_taken_of_a_batch_with_a_bad_entry_where_that_is_asked_for() {
    let sink = Sink::start("sqlite");
    let gateway = Gateway::start(&["--partial", "reject", "--sink", &sink.text()]);
    let mut http = gateway.http();
    let lines = |bad: &str| format!("{}\n{bad}\n{}", without_id("first"), without_id("last"));
    let bad = without_id("bad");
    for _ in 0..3 {
        let answer =
            http.post(&gateway.token, LINES, &lines(&bad.replace("info", "loud"))).unwrap().expect(400);
        let said = answer.json();
        assert_eq!(
            (&said["accepted"], &said["rejected"], &said["taken"]),
            (&json!(0), &json!(1), &json!(null))
        );
    }
    http.post(&gateway.token, LINES, &lines(&bad)).unwrap().expect(202);
    // nor where the only fault is an id that is known with other content
    http.post(&gateway.token, JSON, &entry("known", "known")).unwrap().expect(202);
    let answer = http.post(&gateway.token, LINES, &lines(&entry("known", "other"))).unwrap().expect(409);
    assert_eq!(answer.json()["accepted"], 0);
    assert_eq!(messages(&gateway, &sink), ["bad", "first", "known", "last"]);
}
