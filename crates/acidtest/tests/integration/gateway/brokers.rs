//! Gateways and collectors that have their queue in a broker.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use acidtest_testbed::{control, wanted};
use serde_json::json;

use super::{
    JSON, LINES, broker,
    database::{count, entries, order},
    running::{Broker, Collector, Gateway, Sink, entry, until, until_within},
};
use crate::common::http::Http;

#[test]
fn a_queue_in_nats_keeps_what_is_acknowledged() {
    passes("nats");
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::passes;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn a_queue_in_rabbitmq_keeps_what_is_acknowledged() {
        passes("rabbitmq");
    }
}

/// All on one server, each in a queue of its own.
fn passes(name: &'static str) {
    if !wanted("postgres") {
        return;
    }
    let Some(mut server) = Broker::start(name) else { return };
    {
        let queue = |name| Queue { broker: &server, name };
        gateways_and_collectors_share_a_queue(&queue("shared"));
        what_a_killed_collector_held_is_stored_by_another(&queue("held"));
        a_full_queue_refuses_and_goes_on_when_there_is_room(&queue("full"));
        a_strangers_message_is_kept_aside(&queue("strangers"));
        a_queue_that_is_removed_is_made_anew(&queue("removed"));
        a_queue_with_other_settings_is_refused(&queue("other"));
    }
    if name == "rabbitmq" {
        a_broker_that_blocks_publishers_is_not_ready(&server);
    }
    a_broker_that_is_away_acknowledges_nothing(&mut server);
}

/// What a queue may hold at most. NATS grants three quarters of the free disk to all queues together, whatever they hold.
const SMALL: &str = "32MiB";

/// A queue in a broker.
struct Queue<'a> {
    broker: &'a Broker,
    name: &'static str,
}

impl Queue<'_> {
    fn gateway(&self, words: &[&str]) -> Gateway {
        let address = self.broker.text();
        let all = ["--queue", &address, "--queue-name", self.name, "--queue-size", SMALL];
        Gateway::start(&[&all, words].concat())
    }

    fn collector(&self, sink: &Sink, words: &[&str]) -> Collector {
        let (address, sink) = (self.broker.text(), sink.text());
        let all = ["--queue", &address, "--queue-name", self.name, "--sink", &sink];
        Collector::start(&[&all, words].concat())
    }

    fn waiting(&self) -> u64 {
        broker::waiting(self.broker.server.address(), self.name)
    }
}

/// Waits until so many entries are stored.
#[track_caller]
fn wait_for(sink: &Sink, wanted: usize) {
    until("all is stored", || count(&sink.address()) == wanted);
}

/// Two gateways and two collectors share a queue; entries are stored once, however they were sent, and none waits then.
fn gateways_and_collectors_share_a_queue(queue: &Queue<'_>) {
    let mut sink = Sink::start("postgres");
    let first = queue.gateway(&["--collectors", "0"]);
    let since = Instant::now();
    let gateways = [first, queue.gateway(&["--collectors", "0"])];
    // the second one cannot know that the first has waited until a new quorum queue keeps what it confirms
    let is_young = queue.broker.server.address().scheme == "amqp";
    assert!(!is_young || since.elapsed() >= Duration::from_secs(3));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let collectors = [queue.collector(&sink, &["--listen", &free]), queue.collector(&sink, &[])];
    for (number, gateway) in gateways.iter().enumerate() {
        let mut http = gateway.http();
        for id in 0..20 {
            http.post(&gateway.token, JSON, &entry(&format!("{number}-{id}"), "a")).unwrap().expect(202);
        }
        // more than a message holds; and the largest entry that there is
        let lines: Vec<String> =
            (0..1000).map(|id| entry(&format!("{number}-line-{id}"), &"b".repeat(700))).collect();
        let answer = http.post(&gateway.token, LINES, &lines.join("\n")).unwrap().expect(202);
        assert_eq!(answer.json()["accepted"], 1000);
        let largest = entry(&format!("{number}-largest"), &"c".repeat(64 << 10));
        // the second one is suppressed
        http.post(&gateway.token, JSON, &largest).unwrap().expect(202);
        http.post(&gateway.token, JSON, &largest).unwrap().expect(202);
    }
    wait_for(&sink, 2 * 1021);
    until("nothing waits", || queue.waiting() == 0);
    let mut http = Http::open(&free).unwrap();
    http.get("/readyz", "").unwrap().expect(200);
    until("its metrics say so", || {
        let metrics = http.get("/metrics", "").unwrap().expect(200).body;
        metrics.contains("acidtest_gateway_queue_messages 0\n")
    });
    let page = http.get("/", "").unwrap().expect(200).body;
    assert!(page.contains("acidtest collector") && page.contains("2 collectors, at most 1000 entries"));
    http.post("x", JSON, &entry("a", "a")).unwrap().expect(404);
    http.get("/", "x-forwarded-for: 10.0.0.1\r\n").unwrap().expect(403);
    let stopped = collectors.map(Collector::stop).into_iter().chain(gateways.map(Gateway::stop));
    for (code, said) in stopped {
        assert!(code == Some(0) && said.contains("entries that are not stored wait in the broker"), "{said}");
    }
    sink.end();
}

/// What a collector holds that cannot store it is stored by another when it is killed.
fn what_a_killed_collector_held_is_stored_by_another(queue: &Queue<'_>) {
    let sink = Sink::start("sqlite");
    let gateway = queue.gateway(&["--collectors", "0"]);
    let mut first = queue.collector(&sink, &[]);
    order(&sink.address(), "ALTER TABLE acidtest_logs RENAME TO away");
    for id in 0..10 {
        gateway.http().post(&gateway.token, JSON, &entry(&id.to_string(), "a")).unwrap().expect(202);
    }
    until("it holds them", || first.has_said("entries cannot be stored"));
    first.kill();
    order(&sink.address(), "ALTER TABLE away RENAME TO acidtest_logs");
    // NATS hands out again what was held after half a minute
    let second = queue.collector(&sink, &[]);
    wait_for(&sink, 10);
    until("nothing waits", || queue.waiting() == 0);
    drop(second);
}

/// A full queue refuses, and takes entries again when a collector has made room; nothing that it acknowledged is lost.
fn a_full_queue_refuses_and_goes_on_when_there_is_room(queue: &Queue<'_>) {
    let sink = Sink::start("sqlite");
    let gateway = queue.gateway(&["--collectors", "0"]);
    let mut http = gateway.http();
    let (mut sent, mut acknowledged) = (0, 0);
    let mut put = |http: &mut Http| {
        let message = "x".repeat(8000);
        let lines: Vec<String> = (sent..sent + 100).map(|id| entry(&id.to_string(), &message)).collect();
        let answer = http.post(&gateway.token, LINES, &lines.join("\n")).unwrap();
        sent += 100;
        acknowledged += usize::try_from(answer.json()["accepted"].as_u64().unwrap()).unwrap();
        (answer.status, acknowledged, sent)
    };
    let began = Instant::now();
    let refused = loop {
        match put(&mut http).0 {
            202 => assert!(began.elapsed() < Duration::from_mins(2), "it is never full"),
            status => break status,
        }
    };
    assert_eq!(refused, 429);
    let ready = || gateway.http().get("/readyz", "").unwrap().status;
    until("it is not ready", || ready() == 503);
    let collector = queue.collector(&sink, &[]);
    until("it is ready", || ready() == 200);
    let (status, acknowledged, sent) = put(&mut http);
    assert_eq!(status, 202);
    until("nothing waits", || queue.waiting() == 0 && count(&sink.address()) >= acknowledged);
    // nothing is stored of what a full queue has refused
    assert!(count(&sink.address()) == acknowledged && acknowledged < sent, "{acknowledged} of {sent}");
    drop(collector);
}

/// A message that no gateway has sent is kept aside, and holds nobody up.
fn a_strangers_message_is_kept_aside(queue: &Queue<'_>) {
    let sink = Sink::start("sqlite");
    let gateway = queue.gateway(&["--sink", &sink.text()]);
    let address = queue.broker.server.address();
    for stranger in [&b""[..], b"{}", b"acidlog1", b"acidlog1\0\0\0\0 no record"] {
        broker::publish(address, queue.name, stranger);
    }
    gateway.http().post(&gateway.token, JSON, &entry("1", "a")).unwrap().expect(202);
    wait_for(&sink, 1);
    until("nothing waits", || queue.waiting() == 0);
    let (code, said) = gateway.stop();
    assert_eq!(code, Some(0));
    assert_eq!(
        said.matches("is not a gateway's, or not as it was sent: it is put aside").count(),
        4,
        "{said}"
    );
    assert_eq!((queue.waiting(), broker::waiting(address, "strangers_aside")), (0, 4));
}

/// A queue that somebody has removed is made anew, and what was lost with it is said.
fn a_queue_that_is_removed_is_made_anew(queue: &Queue<'_>) {
    let sink = Sink::start("sqlite");
    let gateway = queue.gateway(&["--sink", &sink.text()]);
    broker::remove(queue.broker.server.address(), queue.name);
    let mut http = gateway.http();
    let mut sent = 0;
    until("entries are accepted", || {
        sent += 1;
        http.post(&gateway.token, JSON, &entry(&sent.to_string(), "a")).unwrap().status == 202
    });
    // one that was not acknowledged may be stored, too; it takes up to 60 s until a consumer that NATS has stuck is made anew
    until_within(Duration::from_mins(2), "it is stored", || {
        entries(&sink.address()).iter().any(|row| row.id == sent.to_string())
    });
    let (code, said) = gateway.stop();
    assert!(code == Some(0) && said.contains("is gone, with everything that waited in it"), "{said}");
}

/// A queue with other settings is not used; nor is one that nobody has made.
fn a_queue_with_other_settings_is_refused(queue: &Queue<'_>) {
    let sink = Sink::start("sqlite");
    let address = queue.broker.text();
    let (code, said) =
        Collector::refused(&["--queue", &address, "--queue-name", queue.name, "--sink", &sink.text()]);
    assert!(code == Some(3) && said.contains("first start a gateway with it"), "{said}");
    let server = queue.broker.server.address();
    let settings = [
        ("storage", json!("memory")),
        ("retention", json!("limits")),
        ("discard", json!("old")),
        ("max_age", json!(3_600_000_000_000_u64)),
        ("max_msgs_per_subject", json!(1)),
        ("no_ack", json!(true)),
        ("subjects", json!(["others"])),
    ];
    let is_nats = server.scheme == "nats";
    for setting in settings.into_iter().take(if is_nats { 7 } else { 1 }) {
        let what = setting.0;
        broker::make_another(server, queue.name, setting);
        let words = ["--queue", &address, "--queue-name", queue.name];
        let (code, said) = Gateway::refused(&[&words[..], &["--collectors", "0"]].concat());
        let remedy = "remedy: another --queue-name";
        assert!(code == Some(3) && (!is_nats || said.contains(remedy)), "{what}: {said}");
        if is_nats {
            let (code, said) = Collector::refused(&[&words[..], &["--sink", &sink.text()]].concat());
            assert!(code == Some(3) && said.contains(remedy), "{what}: {said}");
        }
        broker::remove(server, queue.name);
    }
    if is_nats {
        let words = ["--queue", &address, "--queue-name", "consumer", "--queue-size", SMALL];
        drop(Gateway::start(&[&words[..], &["--collectors", "0"]].concat()));
        broker::remove_consumer(server, "consumer");
        broker::make_another_consumer(server, "consumer");
        let words = ["--queue", &address, "--queue-name", "consumer", "--sink", &sink.text()];
        let (code, said) = Collector::refused(&words);
        assert!(code == Some(3) && said.contains("gives up a message"), "{said}");
    }
    let words = ["--queue", &address, "--queue-name", "size", "--collectors", "0"];
    drop(Gateway::start(&[&words[..], &["--queue-size", SMALL]].concat()));
    let (code, said) = Gateway::refused(&words);
    assert!(code == Some(3) && said.contains("--queue-size"), "{said}");
    for bad in ["", "a b", "a.b", "a*", "a>"] {
        let (code, said) = Gateway::refused(&["--queue", &address, "--collectors", "0", "--queue-name", bad]);
        assert!(code == Some(2) && said.contains("letters, digits"), "{bad:?}: {said}");
    }
}

/// A RabbitMQ that is short of disk takes nothing and answers nobody; the gateway says so, and goes on by itself.
fn a_broker_that_blocks_publishers_is_not_ready(broker: &Broker) {
    let sink = Sink::start("sqlite");
    let gateway = Queue { broker, name: "blocked" }.gateway(&["--sink", &sink.text()]);
    let mut http = gateway.http();
    http.post(&gateway.token, JSON, &entry("before", "a")).unwrap().expect(202);
    control(&broker.server, &["set_disk_free_limit", "1000000GB"]);
    let answer = http.post(&gateway.token, JSON, &entry("short", "a")).unwrap().expect(503);
    assert_eq!(answer.json()["accepted"], 0, "{answer:?}");
    until("it says why", || gateway.http().get("/readyz", "").unwrap().body.contains("blocks publishers"));
    // and for as long as it is so
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        gateway.http().get("/readyz", "").unwrap().expect(503);
        std::thread::sleep(Duration::from_millis(20));
    }
    control(&broker.server, &["set_disk_free_limit", "50MB"]);
    until("it is ready", || gateway.http().get("/readyz", "").unwrap().status == 200);
    http.post(&gateway.token, JSON, &entry("short", "a")).unwrap().expect(202);
    wait_for(&sink, 2);
}

/// Where the broker is away, nothing is acknowledged, and the gateway says so; it goes on by itself.
fn a_broker_that_is_away_acknowledges_nothing(broker: &mut Broker) {
    let sink = Sink::start("sqlite");
    let gateway = Queue { broker, name: "away" }.gateway(&["--sink", &sink.text()]);
    let mut http = gateway.http();
    let ready = || gateway.http().get("/readyz", "").unwrap().status;
    http.post(&gateway.token, JSON, &entry("before", "a")).unwrap().expect(202);
    wait_for(&sink, 1);
    broker.server.kill();
    let answer = http.post(&gateway.token, JSON, &entry("away", "a")).unwrap().expect(503);
    assert!(answer.body.contains("send the whole request again, as it was"), "{answer:?}");
    until("it is not ready", || ready() == 503);
    broker.restart();
    until("it is ready", || ready() == 200);
    http.post(&gateway.token, JSON, &entry("away", "a")).unwrap().expect(202);
    wait_for(&sink, 2);
    let (code, said) = gateway.stop();
    assert!(code == Some(0) && said.contains("the broker accepts entries again"), "{said}");
}

#[test]
fn what_makes_no_sense_with_a_queue_is_refused() {
    for (words, wanted, remedy) in [
        (&["--collectors", "0"][..], 2, "--collectors 1 or more"),
        (&["--queue", "memory", "--collectors", "0"], 2, "--collectors 1 or more"),
        (&["--queue-name", "a"], 2, "leave it out"),
        (&["--queue", "nats", "--collectors", "0", "--sink", "sqlite:a"], 2, "acidtest collector"),
        (&["--queue", "nats", "--collectors", "0", "--linger", "1s"], 2, "acidtest collector"),
        (&["--queue", "nats", "--linger", "11m"], 2, "--linger 10m or less"),
        (&["--linger", "25h"], 2, "at most 24h"),
        (&["--queue", "kafka"], 2, "amqp://USER@HOST"),
        (&["--queue", "nats"], 2, "--collectors 0"),
        (&["--queue", "nats://127.0.0.1:1", "--collectors", "0"], 3, "start the server"),
        (&["--queue", "amqp://127.0.0.1:1", "--collectors", "0"], 3, "start the server"),
        (&["--queue", "nats://127.0.0.1:1/shop", "--collectors", "0"], 2, "leave out what follows the port"),
    ] {
        let (code, said) = Gateway::refused(words);
        assert!(code == Some(wanted) && said.contains(remedy), "{words:?}: {code:?} {said}");
    }
    let (code, said) = Collector::refused(&["--queue", "disk", "--sink", "sqlite:a"]);
    assert!(code == Some(2) && said.contains("rabbitmq, nats"), "{said}");
    let words = ["--queue", "nats", "--sink", "sqlite:a", "--listen", "0.0.0.0:1732"];
    let (code, said) = Collector::refused(&words);
    assert!(code == Some(2) && said.contains("--listen 127.0.0.1:1732"), "{said}");
}
