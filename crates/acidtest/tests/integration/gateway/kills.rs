//! What a gateway has acknowledged survives its kills, and those of its database.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use acidtest_model::Address;
use acidtest_testbed::wanted;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    JSON, LINES, broker,
    database::{self, entries},
    running::{Broker, Collector, Gateway, Sink, entry, until},
};
use crate::common::http::Http;

/// What clients sent and what was acknowledged: ids.
#[derive(Default)]
struct Ledger {
    sent: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
}

fn message(id: &str) -> String {
    format!("message of {id}").repeat(3)
}

/// Sends entries over connections of its own until it is told to stop. What was not answered is, every second time,
/// sent again with the same ids, as clients do.
fn send(
    address: &str,
    token: &str,
    client: u64,
    stop: &AtomicBool,
    ledger: &Mutex<Ledger>,
    done: &AtomicU64,
) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(client);
    let mut http = None;
    let mut next = 0;
    let mut again = Vec::new();
    while !stop.load(Relaxed) {
        let ids: Vec<String> = if again.is_empty() {
            let count = if random.random_bool(0.5) { 1 } else { random.random_range(2..30) };
            next += count;
            (next - count..next).map(|id| format!("{client}-{id}")).collect()
        } else {
            std::mem::take(&mut again)
        };
        let lines: Vec<String> = ids.iter().map(|id| entry(id, &message(id))).collect();
        let connection = match &mut http {
            Some(open) => Ok(open),
            none => Http::open(address).map(|open| none.insert(open)),
        };
        if connection.is_ok() {
            ledger.lock().unwrap().sent.extend(ids.iter().cloned());
        }
        match connection.and_then(|http| http.post(token, LINES, &lines.join("\n"))) {
            Ok(answer) if answer.status == 202 => {
                done.fetch_add(ids.len() as u64, Relaxed);
                ledger.lock().unwrap().acknowledged.extend(ids);
            }
            Ok(answer) => {
                assert!([429, 503].contains(&answer.status), "{answer:?}");
                again = ids;
                thread::sleep(Duration::from_millis(5));
            }
            Err(_) => {
                http = None;
                if random.random_bool(0.5) {
                    again = ids;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Holds the ledger against what is stored: lost, twice, foreign, changed.
fn audit(ledger: &Ledger, sink: &Address) -> BTreeMap<&'static str, usize> {
    let rows = entries(sink);
    let stored: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
    BTreeMap::from([
        ("lost", ledger.acknowledged.difference(&stored).count()),
        ("twice", rows.len() - stored.len()),
        ("foreign", stored.difference(&ledger.sent).count()),
        ("changed", rows.iter().filter(|row| row.message != message(&row.id)).count()),
    ])
}

fn clean() -> BTreeMap<&'static str, usize> {
    ["lost", "twice", "foreign", "changed"].into_iter().map(|name| (name, 0)).collect()
}

/// How many kills there are, on each sink: more of them by the environment, for the table in bench/results/gateway.md.
fn kills() -> u64 {
    env::var("ACIDTEST_GATEWAY_KILLS").map_or(6, |text| text.parse().unwrap())
}

/// What is drawn differs by it.
fn seed() -> u64 {
    env::var("ACIDTEST_GATEWAY_SEED").map_or(7, |text| text.parse().unwrap())
}

/// Has the clients stop, also where the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Gateway,
    Sink,
    Queue,
    Collector,
}

/// A gateway with what stands behind it.
struct World {
    gateway: Gateway,
    sink: Sink,
    broker: Option<Broker>,
    collector: Option<Collector>,
}

impl World {
    /// With a broker, collectors are in a process of their own.
    fn start(sink: &'static str, queue: &'static str) -> Option<Self> {
        let sink = Sink::start(sink);
        if queue == "disk" {
            let gateway = Gateway::start(&["--sink", &sink.text(), "--linger", "20ms"]);
            return Some(Self { gateway, sink, broker: None, collector: None });
        }
        let broker = Broker::start(queue)?;
        let address = broker.text();
        let gateway = Gateway::start(&["--queue", &address, "--collectors", "0"]);
        let words = ["--queue", &address, "--sink", &sink.text(), "--linger", "20ms"];
        let collector = Some(Collector::start(&words));
        Some(Self { gateway, sink, broker: Some(broker), collector })
    }

    fn victims(&self) -> Vec<Victim> {
        let mut victims = vec![Victim::Gateway];
        victims.extend(self.sink.server.as_ref().map(|_| Victim::Sink));
        victims.extend(self.broker.as_ref().map(|_| Victim::Queue));
        victims.extend(self.collector.as_ref().map(|_| Victim::Collector));
        victims
    }

    /// Tells what may explain that something is missing.
    fn tell_what_is_left(&self) {
        println!("{}", self.gateway.metrics());
        if let Some(broker) = &self.broker {
            println!("{}", broker::state(broker.server.address(), "acidtest_logs"));
        }
        if let Some(collector) = &self.collector {
            println!("{}", collector.said());
        }
    }

    /// Kills one, and starts it again after a while.
    fn kill(&mut self, victim: Victim, after: Duration) {
        match victim {
            Victim::Gateway => {
                self.gateway.kill();
                thread::sleep(after);
                self.gateway.restart();
            }
            Victim::Sink => {
                let server = self.sink.server.as_mut().unwrap();
                server.kill();
                thread::sleep(after);
                server.restart();
                server.open(async |address: &Address| database::answers(address).await);
            }
            Victim::Queue => {
                let broker = self.broker.as_mut().unwrap();
                broker.server.kill();
                thread::sleep(after);
                broker.restart();
            }
            Victim::Collector => {
                let collector = self.collector.as_mut().unwrap();
                collector.kill();
                thread::sleep(after);
                collector.restart();
            }
        }
    }
}

fn survives(sink: &'static str, queue: &'static str) {
    let Some(mut world) = World::start(sink, queue) else { return };
    let (address, token) = (world.gateway.address.clone(), world.gateway.token.clone());
    let ledger = Mutex::new(Ledger::default());
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed());
    let victims = world.victims();
    let mut killed: BTreeMap<Victim, u64> = BTreeMap::new();
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        for client in 0..4 {
            let (address, token, ledger, stop, done) = (&address, &token, &ledger, &stop, &done);
            scope.spawn(move || send(address, token, client, stop, ledger, done));
        }
        let mut last = 0;
        for kill in 0..kills() {
            // something is acknowledged between two kills
            until("entries are acknowledged", || done.load(Relaxed) > last + 50);
            thread::sleep(Duration::from_millis(random.random_range(0..150)));
            last = done.load(Relaxed);
            // each of them at first, and then by lot
            let victim = usize::try_from(kill).ok().and_then(|kill| victims.get(kill));
            let victim = *victim.unwrap_or_else(|| &victims[random.random_range(0..victims.len())]);
            *killed.entry(victim).or_default() += 1;
            world.kill(victim, Duration::from_millis(random.random_range(0..300)));
        }
    });
    let ledger = ledger.into_inner().unwrap();
    assert!(!ledger.acknowledged.is_empty());
    // what is lost does not come however long it is waited for
    let end = Instant::now() + Duration::from_mins(4);
    let found = loop {
        let found = audit(&ledger, &world.sink.address());
        if found["lost"] == 0 || Instant::now() > end {
            break found;
        }
        thread::sleep(Duration::from_millis(500));
    };
    if found != clean() {
        world.tell_what_is_left();
    }
    println!(
        "{sink}, queue {queue}: killed {killed:?}; {} entries acknowledged of {} sent: {found:?}",
        ledger.acknowledged.len(),
        ledger.sent.len()
    );
    assert_eq!(found, clean(), "{sink}, queue {queue}");
    world.sink.end();
}

#[test]
fn nothing_acknowledged_is_lost_over_kills_with_sqlite() {
    survives("sqlite", "disk");
}

#[test]
fn nothing_acknowledged_is_lost_over_kills_with_postgres() {
    if wanted("postgres") {
        survives("postgres", "disk");
    }
}

#[test]
fn nothing_acknowledged_is_lost_over_kills_with_mariadb() {
    if wanted("mariadb") {
        survives("mariadb", "disk");
    }
}

#[test]
fn nothing_acknowledged_is_lost_over_kills_with_nats() {
    if wanted("postgres") {
        survives("postgres", "nats");
    }
}

/// The audit above can fail: a queue in memory loses what waits, and says so when it is stopped in order.
#[test]
fn a_queue_in_memory_loses_what_waits() {
    let sink = Sink::start("sqlite");
    let words = ["--queue", "memory", "--linger", "1h", "--drain", "1s", "--sink", &sink.text()];
    let mut gateway = Gateway::start(&words);
    let mut ledger = Ledger::default();
    let mut http = gateway.http();
    for id in 0..10 {
        let id = id.to_string();
        http.post(&gateway.token, JSON, &entry(&id, &message(&id))).unwrap().expect(202);
        ledger.sent.insert(id.clone());
        ledger.acknowledged.insert(id);
    }
    gateway.kill();
    assert_eq!(audit(&ledger, &sink.address())["lost"], 10);
    // stopped in order, it stores what waits
    gateway.restart();
    let mut http = gateway.http();
    http.post(&gateway.token, JSON, &entry("late", "a")).unwrap().expect(202);
    let (code, said) = gateway.stop();
    assert!(code == Some(0) && said.contains("all entries that were acknowledged are stored"), "{said}");
    assert_eq!(entries(&sink.address()).len(), 1);
    // unless it cannot
    let gateway = Gateway::start(&words);
    gateway.http().post(&gateway.token, JSON, &entry("lost", "a")).unwrap().expect(202);
    let holder = rusqlite::Connection::open(&sink.address().path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (code, said) = gateway.stop();
    assert!(code == Some(1) && said.contains("1 acknowledged entries are lost"), "{said}");
}

/// What waits in a queue on disk when it is stopped is stored by the next start.
#[test]
fn what_waits_on_disk_is_stored_by_the_next_start() {
    let sink = Sink::start("sqlite");
    let mut gateway = Gateway::start(&["--drain", "200ms", "--sink", &sink.text()]);
    let holder = rusqlite::Connection::open(&sink.address().path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    for id in 0..5 {
        gateway.http().post(&gateway.token, JSON, &entry(&id.to_string(), "a")).unwrap().expect(202);
    }
    let said = gateway.stop_and_keep();
    assert!(said.contains("5 entries wait in the queue for the next start"), "{said}");
    holder.execute_batch("ROLLBACK").unwrap();
    gateway.restart();
    gateway.wait_until_stored();
    assert_eq!(entries(&sink.address()).len(), 5);
}

/// While the database is away, entries are acknowledged and wait; when it is back, all are stored.
#[test]
fn the_queue_holds_while_the_database_is_away() {
    if !wanted("postgres") {
        return;
    }
    // longer by the environment
    let away = Duration::from_secs(env::var("ACIDTEST_GATEWAY_AWAY").map_or(4, |text| text.parse().unwrap()));
    let mut sink = Sink::start("postgres");
    let gateway = Gateway::start(&["--sink", &sink.text()]);
    let mut http = gateway.http();
    let mut sent = 0;
    let mut post = |http: &mut Http| {
        let lines: Vec<String> = (0..100).map(|at| entry(&format!("{sent}-{at}"), "a")).collect();
        sent += 1;
        http.post(&gateway.token, LINES, &lines.join("\n")).unwrap().expect(202);
    };
    post(&mut http);
    gateway.wait_until_stored();
    sink.server.as_mut().unwrap().kill();
    let since = Instant::now();
    while since.elapsed() < away {
        post(&mut http);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(gateway.metric("queue_entries") > 1000);
    let oldest = gateway.metrics();
    let oldest =
        oldest.lines().find_map(|line| line.strip_prefix("acidtest_gateway_queue_oldest_seconds ")).unwrap();
    assert!(oldest.parse::<f64>().unwrap() > away.as_secs_f64() * 0.8, "{oldest}");
    gateway.http().get("/readyz", "").unwrap().expect(200);
    sink.server.as_mut().unwrap().restart();
    let back = Instant::now();
    gateway.wait_until_stored();
    println!(
        "{} entries that came in {away:?} were stored {:?} after the start of the server",
        sent * 100,
        back.elapsed()
    );
    assert_eq!(entries(&sink.address()).len(), sent * 100);
    let (code, said) = gateway.stop();
    assert!(code == Some(0) && said.contains("entries are stored again"), "{said}");
    sink.end();
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{survives, wanted};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn nothing_acknowledged_is_lost_over_kills_with_rabbitmq() {
        if wanted("postgres") {
            survives("postgres", "rabbitmq");
        }
    }
}
