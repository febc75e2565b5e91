//! A server that listens with TLS.

use std::fs;

use super::server::{Server, plan};
use crate::common::{
    Bench,
    certificate::Certificate,
    http::{Http, header},
    until,
};

/// It speaks TLS and nothing else, runs a plan, and its pages' cookie is never sent without TLS.
#[test]
fn a_server_listens_with_tls() {
    let bench = Bench::new();
    let certificate = Certificate::of(&["localhost"]);
    let token = "0123456789abcdef0123";
    fs::write(bench.path("token"), token).unwrap();
    let options = certificate.options();
    let words = [&options.each_ref().map(String::as_str)[..], &["--token-file", "token"]].concat();
    let server = Server::start(&bench, &words);
    assert!(server.get("/api/runs").expect(400).body.contains("this port is for https"));
    let secure = || Http::open_secure(&server.address, &certificate, b"").unwrap();
    let ask = |method: &str, path: &str, more: &str, body: &str| {
        let mut http = secure();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}content-length: {length}\r\n\r\n{body}"
        );
        http.write(head.as_bytes()).unwrap();
        http.answer().unwrap()
    };
    ask("GET", "/api/runs", "", "").expect(401);
    let bearer = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    let started = ask("POST", "/api/runs", &bearer, &plan(200).to_string()).expect(202).json();
    let run = started["links"]["run"].as_str().unwrap();
    until("the run is done", || ask("GET", run, &bearer, "").expect(200).json()["state"] == "done");
    // events come as they are, over a connection that stays
    let mut events = secure();
    events.write(format!("GET {run}/events HTTP/1.1\r\nhost: localhost\r\n{bearer}\r\n").as_bytes()).unwrap();
    events.answer().unwrap().expect(200);
    until("the last event comes", || events.line().unwrap().contains("done"));

    let form = format!("token={token}&next=%2Fruns");
    let of_form = |origin: &str| {
        let more = format!("origin: {origin}\r\ncontent-type: application/x-www-form-urlencoded\r\n");
        ask("POST", "/login", &more, &form)
    };
    let entered = of_form("https://localhost").expect(303);
    let cookie = header(&entered.head, "set-cookie").unwrap();
    assert!(cookie.contains("; Secure") && cookie.contains("; HttpOnly"), "{cookie}");
    // a page without TLS is one of another site
    of_form("http://localhost").expect(403);
    let (code, said) = {
        let ended = server.end("TERM");
        (ended.code, ended.stderr)
    };
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("listening on https://"), "{said}");
}
