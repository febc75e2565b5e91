//! A gateway that listens with TLS, and those who send to it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use acidtest_testbed::wanted;
use serde_json::Value;

use super::{
    JSON, LINES,
    database::count,
    running::{Gateway, Sink, entry, until},
};
use crate::common::{Bench, CommandResult, certificate::Certificate, http::Http, wait};

const OURS: &[&str] = &["localhost", "127.0.0.1"];

fn start(certificate: &Certificate, words: &[&str]) -> Gateway {
    let options = certificate.options();
    Gateway::start(&[&options.each_ref().map(String::as_str)[..], words].concat())
}

fn request(gateway: &Gateway, id: &str) -> String {
    let (token, body) = (&gateway.token, entry(id, "a"));
    let length = body.len();
    format!(
        "POST /logs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: {JSON}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// A request is answered that comes with the end of the handshake, after it, in pieces, with another one, and at the moment
/// at which an idle connection gives its buffers back.
#[test]
fn a_request_over_tls_is_answered_whenever_it_comes() {
    const CONNECTIONS: u64 = 100;
    let certificate = Certificate::of(OURS);
    let gateway = start(&certificate, &[]);
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (gateway, certificate) = (&gateway, &certificate);
            scope.spawn(move || {
                let early = request(gateway, &format!("{connection}-early"));
                // all, a part and nothing of it with the end of the handshake
                let (first, rest) = early.split_at([early.len(), 30, 0][(connection % 3) as usize]);
                let mut http = Http::open_secure(&gateway.address, certificate, first.as_bytes()).unwrap();
                http.write(rest.as_bytes()).unwrap();
                http.answer().unwrap().expect(202);
                for round in 0..2 {
                    thread::sleep(Duration::from_millis(930 + connection * 3 / 2));
                    let both = [0, 1].map(|part| request(gateway, &format!("{connection}-{round}-{part}")));
                    let both = both.concat();
                    let (begin, rest) = both.split_at(20);
                    http.write(begin.as_bytes()).unwrap();
                    http.write(rest.as_bytes()).unwrap();
                    for _ in 0..2 {
                        http.answer().unwrap().expect(202);
                    }
                }
            });
        }
    });
    let (code, said) = gateway.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("all entries that were acknowledged are stored"), "{said}");
}

/// Whoever takes answers slowly gets all of them, also where TLS has taken the end of the last one and could not send it.
#[test]
fn a_client_that_reads_slowly_gets_its_answers_over_tls() {
    let certificate = Certificate::of(OURS);
    let gateway = start(&certificate, &[]);
    // some of so many fill what the network takes by itself, and a part of what TLS takes
    let clients = (1..=90).map(|pages| {
        let mut http = Http::open_secure(&gateway.address, &certificate, b"").unwrap();
        http.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(pages).as_bytes()).unwrap();
        (pages, http)
    });
    let clients: Vec<(usize, Http)> = clients.collect();
    thread::sleep(Duration::from_millis(2500));
    let mut length = 0;
    for (pages, mut http) in clients {
        for page in 1..=pages {
            let answer = http.answer().unwrap_or_else(|error| panic!("page {page} of {pages}: {error}"));
            length = answer.expect(200).body.len();
        }
    }
    assert!(length * 90 > 3 << 20, "{length}: more than the network takes by itself");
}

/// Whoever speaks without TLS is told so; whoever does not end the handshake, or says nothing, is let go, and holds nobody
/// up; what is no TLS ends nothing but its connection.
#[test]
fn a_handshake_that_does_not_end_holds_nobody_up() {
    let certificate = Certificate::of(OURS);
    let gateway = start(&certificate, &["--head-timeout", "1s", "--idle-timeout", "3s"]);
    let answer =
        Http::open(&gateway.address).unwrap().post(&gateway.token, JSON, &entry("plain", "a")).unwrap();
    assert!(answer.expect(400).body.contains("this port is for https"));
    let hello = |length: usize| {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let whole = [&[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..], &[7; 194]].concat();
        stream.write_all(&whole[..length]).unwrap();
        stream
    };
    let begun = Instant::now();
    let mut waiting: Vec<TcpStream> = (0..50).map(|at| hello(1 + at)).collect();
    let mut silent = TcpStream::connect(&gateway.address).unwrap();
    silent.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut http = Http::open_secure(&gateway.address, &certificate, b"").unwrap();
    http.post(&gateway.token, JSON, &entry("others", "a")).unwrap().expect(202);
    for stream in &mut waiting {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it is let go without a word");
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
    assert!(begun.elapsed() > Duration::from_secs(2), "one that says nothing is idle, and not slow");
    // what is no handshake, although it begins like one
    let mut odd = hello(205);
    let _ = odd.read(&mut [0; 64]);
    // a request without its end is as slow with TLS as without
    let mut slow = Http::open_secure(&gateway.address, &certificate, b"GET / HTTP/1.1\r\nho").unwrap();
    assert!(slow.is_closed());
    let mut http = Http::open_secure(&gateway.address, &certificate, b"").unwrap();
    http.get("/metrics", "").unwrap().expect(200);
}

/// With TLS, a connection beyond the limit is not answered: that would cost a handshake. There is room when one has gone.
#[test]
fn connections_over_tls_have_their_limit() {
    let certificate = Certificate::of(OURS);
    let gateway = start(&certificate, &["--max-connections", "2"]);
    let open = || Http::open_secure(&gateway.address, &certificate, b"");
    // an idle one would make place
    let busy = || {
        let mut http = open().unwrap();
        http.get("/healthz", "").unwrap().expect(200);
        http.write(b"GET / HTTP/1.1\r\n").unwrap();
        http
    };
    let (_one, two) = (busy(), busy());
    until("one is too many", || open().is_err());
    drop(two);
    until("there is room again", || open().is_ok());
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused() {
    let certificate = Certificate::of(OURS);
    let [_, chain, _, key] = certificate.options();
    let issuer = certificate.file("issuer.pem");
    for (words, why) in [
        (&["--tls-cert", &chain][..], "--tls-key"),
        (&["--tls-key", &key], "--tls-cert"),
        (&["--tls-cert", "nowhere.pem", "--tls-key", &key], "cannot read nowhere.pem (--tls-cert)"),
        (&["--tls-cert", &key, "--tls-key", &key], "holds no readable certificates"),
        (&["--tls-cert", &chain, "--tls-key", &chain], "holds no readable private key"),
        (&["--tls-cert", &issuer, "--tls-key", &key], "does not belong to the certificate"),
    ] {
        let (code, said) = Gateway::refused(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

/// Runs the workload against a gateway at this address.
fn measure(gateway: &Gateway, sink: &Sink, url: &str, words: &[&str]) -> (CommandResult, Bench) {
    let bench = Bench::new();
    let store = sink.text();
    let load = ["--clients", "8", "--entries", "10", "--ramp", "300ms", "--namespace", "measured"];
    let mut command = bench.command(&["run", "logs", "--store", &store, "--gateway", url]);
    command.args(load).args(words).env("ACIDTEST_TOKEN", &gateway.token);
    (wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()), bench)
}

/// A run reaches a gateway that listens with TLS, and says what was agreed on; what is wrong with the certificate, or with
/// the address, is one message with its remedy, and nothing was sent.
#[test]
fn a_run_reaches_a_gateway_with_tls() {
    let (sink, certificate) = (Sink::start("sqlite"), Certificate::of(OURS));
    let gateway = start(&certificate, &["--sink", &sink.text()]);
    let (address, issuer) = (&gateway.address, certificate.file("issuer.pem"));
    let others = Certificate::of(OURS);
    let other = others.file("issuer.pem");
    let port = address.rsplit(':').next().unwrap();
    for (url, words) in [
        (format!("https://{address}?sslrootcert={other}"), ["was not issued by", "sslrootcert"]),
        (format!("https://[::1]:{port}?sslrootcert={issuer}"), ["nothing accepts connections", "--gateway"]),
        (format!("http://{address}"), ["this port is for https", "write https:// in the address"]),
        (format!("https://{address}?sslrootcert=nowhere.pem"), ["cannot read nowhere.pem", "check the path"]),
    ] {
        let (ended, bench) = measure(&gateway, &sink, &url, &[]);
        let said = ended.expect(3).stderr;
        for word in words {
            assert!(said.contains(word), "{url}: {said}");
        }
        bench.assert_clean();
    }
    assert_eq!(count(&sink.address()), 0);
    let url = format!("https://{address}?sslrootcert={issuer}");
    for words in [&[][..], &["--processes", "2"]] {
        let (ended, bench) = measure(&gateway, &sink, &url, words);
        ended.expect(0);
        let result = bench.result();
        let cell = &result["cells"][0];
        assert_eq!((&cell["tls"], &cell["effective"]["tls"]["version"]), (&"on".into(), &"TLSv1.3".into()));
        assert_eq!(cell["effective"]["tls"]["checked"], "name");
        assert_eq!(cell["trials"][0]["audit"]["evidence"]["saved"], 80, "{cell:#}");
        bench.assert_clean();
    }
    // another name, and another certificate since
    certificate.issue(&["gateway.example"]);
    let gateway = gateway.again();
    let (ended, _) = measure(&gateway, &sink, &url, &[]);
    let said = ended.expect(3).stderr;
    assert!(said.contains("is not for \"127.0.0.1\"") && said.contains("sslmode=verify-ca"), "{said}");
    let (ended, bench) = measure(&gateway, &sink, &format!("{url}&sslmode=verify-ca"), &[]);
    ended.expect(0);
    assert_eq!(bench.result()["cells"][0]["effective"]["tls"]["checked"], "issuer");
    let plain = Gateway::start(&["--sink", &sink.text()]);
    let url = format!("https://{}?sslmode=require", plain.address);
    let said = measure(&plain, &sink, &url, &[]).0.expect(3).stderr;
    assert!(said.contains("does not answer in TLS"), "{said}");
}

/// A run's own gateway, the broker and the database behind it speak TLS where it is asked for, and TLS is priced, also
/// where the database is a file.
#[test]
fn a_run_s_own_gateway_speaks_tls() {
    speaks_tls("sqlite", "off,on", &["--architecture", "direct"]);
    speaks_tls("postgres", "off,on", &["--queue", "nats", "--fault", "kill:gateway@100ms"]);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::speaks_tls;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn a_run_s_own_gateway_speaks_tls_beside_others() {
        speaks_tls("mariadb", "on", &["--queue", "rabbitmq", "--processes", "2"]);
    }
}

fn speaks_tls(store: &str, tls: &str, words: &[&str]) {
    let load = ["--clients", "6", "--entries", "10", "--ramp", "300ms"];
    if store != "sqlite" && !wanted(store) || !words.iter().all(|word| !is_broker(word) || wanted(word)) {
        return;
    }
    let bench = Bench::new();
    bench.run(&[&["run", "logs", "--store", store, "--tls", tls], &load[..], words].concat()).expect(0);
    let result = bench.result();
    for cell in result["cells"].as_array().unwrap() {
        let prices = cell["prices"].as_array().unwrap();
        let has_price = prices.iter().any(|price| price["guarantee"] == "tls");
        let (agreed, behind) =
            (&cell["effective"]["tls"]["version"], &cell["effective"]["settings"]["TLS to the database"]);
        let is_on = cell["tls"] == "on";
        assert_eq!(agreed == "TLSv1.3", is_on, "{cell:#}");
        assert_eq!(behind.is_string(), is_on && store != "sqlite", "{cell:#}");
        assert_eq!(has_price, is_on && tls != "on", "{cell:#}");
        let verdicts = cell["trials"].as_array().unwrap().iter().map(|trial| &trial["audit"]["verdict"]);
        assert!(verdicts.eq([&Value::from("holds")]), "{cell:#}");
    }
    bench.assert_clean();
}

fn is_broker(word: &str) -> bool {
    ["nats", "rabbitmq"].contains(&word)
}

/// A gateway and a collector reach a broker that speaks TLS.
#[test]
fn a_broker_s_address_may_ask_for_tls() {
    for name in ["nats", "rabbitmq"].into_iter().filter(|name| wanted(name)) {
        let Some(mut broker) = acidtest_testbed::Private::start_with_tls(name) else { continue };
        broker.open(super::broker::answers);
        let sink = Sink::start("sqlite");
        let address = broker.address().to_string();
        assert!(address.starts_with(if name == "nats" { "tls://" } else { "amqps://" }), "{address}");
        let gateway = Gateway::start(&["--queue", &address, "--sink", &sink.text()]);
        gateway.http().post(&gateway.token, LINES, &entry("1", "a")).unwrap().expect(202);
        until("it is stored", || count(&sink.address()) == 1);
    }
}
