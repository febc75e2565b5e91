//! Who may send, and who may look.

use std::time::{Duration, Instant};

use acidtest_testbed::wanted;

use super::{
    JSON,
    running::{Gateway, Sink, entry, until, user},
};
use crate::common::http::header;

/// What is kept is for the gateway's user alone, also in a folder that others may read.
#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let gateway = Gateway::start(&[]);
    std::fs::set_permissions(gateway.folder(), PermissionsExt::from_mode(0o755)).unwrap();
    gateway.http().post(&gateway.token, JSON, &entry("1", "a")).unwrap().expect(202);
    gateway.wait_until_stored();
    let mut folders = vec![gateway.folder().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let (path, metadata) = (file.path(), file.metadata().unwrap());
            if metadata.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{}", path.display());
            }
        }
    }
    assert!(files >= 6, "users, entries with their log and its index, and of the queue: {files}");
}

/// Tokens that are not good are told in the log, without the token, and not each of them.
#[test]
fn bad_tokens_are_logged() {
    let gateway = Gateway::start(&[]);
    for _ in 0..20 {
        gateway.http().post("agw_guessed", JSON, &entry("1", "a")).unwrap().expect(401);
    }
    let (code, said) = gateway.stop();
    assert_eq!(said.matches("a request is refused: the token is unknown").count(), 1, "{said}");
    assert!(code == Some(0) && said.contains("peer=127.0.0.1:") && !said.contains("guessed"), "{said}");
}

/// A token is good until it expires or is revoked; gateways that remember it learn of that.
#[test]
fn a_token_that_is_unknown_expired_or_revoked_is_refused() {
    let mut databases = vec![None];
    let mut server = wanted("postgres").then(|| Sink::start("postgres"));
    databases.extend(server.as_ref().map(|server| Some(server.text())));
    for database in databases {
        for architecture in ["queued", "direct"] {
            let mut words = vec!["--architecture", architecture];
            if architecture == "queued" {
                words.extend(["--remember", "1h"]);
            }
            // the user that every gateway has is in the file
            words.extend(database.iter().flat_map(|address| ["--users", address]));
            let gateway = Gateway::start(&words);
            let taken = if architecture == "direct" { 201 } else { 202 };
            let of_database: Vec<&str> = database.iter().flat_map(|address| ["--users", address]).collect();
            let add = |name: &str, more: &[&str]| gateway.add_user(name, &[&of_database[..], more].concat());
            let post = |token: &str| gateway.http().post(token, JSON, &entry("1", "a")).unwrap();
            let name = format!("eve-{architecture}");
            let eve = add(&name, &[]);
            let short = add(&format!("short-{architecture}"), &["--expires", "1s"]);
            assert_eq!(post(&eve).status, taken);
            let unknown = post(&eve.replace("agw_", "agw-"));
            let answer = unknown.expect(401);
            assert!(answer.body.contains("the token is unknown"), "{answer:?}");
            assert_eq!(header(&answer.head, "www-authenticate"), Some("Bearer realm=\"acidtest gateway\""));
            until("the token has expired", || post(&short).status == 401);
            assert!(post(&short).body.contains("has expired"));
            // it is remembered for an hour, unless the gateway is told
            let revoke = ["revoke", &name];
            let (code, ..) = user(gateway.folder(), &[&revoke[..], &of_database].concat());
            assert_eq!(code, Some(0));
            until("the token is revoked", || post(&eve).status == 401);
            assert!(post(&eve).body.contains("was revoked"));
            let again = add(&name, &[]);
            until("the new token is known", || post(&again).status == taken);
            assert_eq!(post(&eve).status, 401);
            let mut http = gateway.http();
            http.write(b"POST /logs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            assert!(http.answer().unwrap().expect(401).body.contains("no token was given"));
            let (code, listed, _) = user(gateway.folder(), &[&["list"][..], &of_database].concat());
            assert!(code == Some(0) && listed.contains(&name) && listed.contains("expired"), "{listed}");
            assert!(!listed.contains("agw_"), "{listed}");
            let (code, _, said) = user(gateway.folder(), &[&["add", &name][..], &of_database].concat());
            assert!(code == Some(2) && said.contains("revoke"), "{said}");
            let (code, _, said) = user(gateway.folder(), &[&["revoke", "evie"][..], &of_database].concat());
            assert!(code == Some(2) && said.contains("there is no user evie"), "{said}");
            let (code, _, said) = user(gateway.folder(), &[&["add", "a b"][..], &of_database].concat());
            assert!(code == Some(2) && said.contains("letters, digits"), "{said}");
        }
    }
    if let Some(server) = &mut server {
        server.end();
    }
}

/// While the database of users is away, those that are remembered go on, and for no longer than they are.
#[test]
fn users_are_remembered_while_their_database_is_away_and_no_longer() {
    if !wanted("postgres") {
        return;
    }
    let mut server = Sink::start("postgres");
    let users = server.text();
    let gateway = Gateway::start(&["--users", &users, "--remember", "3s"]);
    let token = gateway.add_user("ann", &["--users", &users]);
    let other = gateway.add_user("bob", &["--users", &users]);
    let post = |token: &str| gateway.http().post(token, JSON, &entry("1", "a")).unwrap();
    let since = Instant::now();
    assert_eq!(post(&token).status, 202);
    server.server.as_mut().unwrap().kill();
    assert_eq!(post(&token).status, 202);
    let answer = post(&other).expect(503);
    assert!(answer.body.contains("users cannot be looked up"), "{answer:?}");
    assert_eq!(header(&answer.head, "retry-after"), Some("1"));
    until("ann is forgotten", || post(&token).status == 503);
    assert!(since.elapsed() >= Duration::from_secs(3));
    server.server.as_mut().unwrap().restart();
    until("ann is known again", || post(&token).status == 202);
}

/// On loopback the page is for whoever calls the machine by its own name; elsewhere for operators.
#[test]
fn the_page_and_the_metrics_are_not_for_everybody() {
    let gateway = Gateway::start(&[]);
    for path in ["/", "/metrics"] {
        gateway.http().get(path, "").unwrap().expect(200);
        gateway.http().get(path, "host: [::1]:1731\r\n").unwrap().expect(200);
        let answer = gateway.http().get(path, "host: evil.example\r\n").unwrap().expect(403);
        assert!(answer.body.contains("the host is not this machine's"), "{answer:?}");
    }
    gateway.http().get("/events", "host: evil.example\r\n").unwrap().expect(403);
    // what a proxy on this machine passes on comes from elsewhere
    for proxied in
        ["x-forwarded-for: 10.0.0.7", "forwarded: for=10.0.0.7", "via: 1.1 proxy", "x-real-ip: 10.0.0.7"]
    {
        gateway.http().get("/metrics", &format!("{proxied}\r\n")).unwrap().expect(401);
    }
    let page = gateway.http().get("/", "").unwrap();
    let policy = header(&page.head, "content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    for elsewhere in ["src=", "href=\"http", "url(http", "import("] {
        assert!(!page.body.contains(elsewhere), "{elsewhere}: nothing is loaded from anywhere else");
    }
    // a page is told of each second, for as long as it is open
    let mut events = gateway.http();
    events.get("/events", "").unwrap().expect(200);
    let mut seconds = 0;
    let since = Instant::now();
    while seconds < 5 {
        let line = events.line().unwrap();
        assert!(!line.is_empty(), "the stream has ended after {seconds} s");
        seconds += usize::from(line.starts_with("data: "));
    }
    assert!(since.elapsed() >= Duration::from_secs(2), "{:?}", since.elapsed());
    // an open page does not hold up the end
    let since = Instant::now();
    assert_eq!(gateway.stop().0, Some(0));
    assert!(since.elapsed() < Duration::from_mins(1), "{:?}", since.elapsed());

    let gateway = Gateway::start(&["--listen", "0.0.0.0:0"]);
    let operator = gateway.add_user("ops", &["--operator"]);
    let with = |token: &str| format!("authorization: Bearer {token}\r\n");
    for path in ["/", "/metrics", "/events"] {
        gateway.http().get(path, "").unwrap().expect(401);
        gateway.http().get(path, &with("agw_x")).unwrap().expect(401);
        gateway.http().get(path, &with(&gateway.token)).unwrap().expect(403);
    }
    for path in ["/", "/metrics"] {
        gateway.http().get(path, &with(&operator)).unwrap().expect(200);
    }
    // browsers send it as a password
    let basic = base64(&format!("ops:{operator}"));
    gateway.http().get("/", &format!("authorization: Basic {basic}\r\n")).unwrap().expect(200);
    for path in ["/healthz", "/readyz"] {
        gateway.http().get(path, "").unwrap().expect(200);
        let mut http = gateway.http();
        http.write(format!("HEAD {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(http.line().unwrap(), "HTTP/1.1 200 OK\r\n");
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32, place: u32| char::from(DIGITS[((bits >> (18 - 6 * place)) & 63) as usize]);
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = (0..3).fold(0, |bits, place| bits << 8 | u32::from(*three.get(place).unwrap_or(&0)));
        for place in 0..4 {
            encoded.push(if place as usize <= three.len() { digit(bits, place) } else { '=' });
        }
    }
    encoded
}
