//! Drives the engine with clients that behave as stores do: answer, refuse, conflict, hang, die.
//!
//! Tests of schedules, rates and waits use a simulated clock, on which a slow machine changes nothing. Tests of the
//! system's clock or of threads use the system's clock, for as long as that takes.

#![allow(clippy::unwrap_used)] // a test's own set-up may panic

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use acidtest_engine::{
    Arrivals, Attempt, Client, ClientTask, Completion, Extent, Fault, Instruction, Load, Measurement, News,
    OnRefused, OperationStats, Outcome, Part, Pipeline, Report, Stop, Trial, may_block,
};
use tokio::time::Instant;

/// How a scripted store reacts to an attempt, given how many attempts came before it.
type Script = dyn Fn(u64) -> Act + Send + Sync;

enum Act {
    Answer(Attempt),
    After(Duration, Attempt),
    Never,
    /// Answers only after this time, during which there is always something to read.
    Busy(Duration),
    /// Answers after this time, which passes in a system call if it may.
    Block(Duration),
}

#[derive(Default)]
struct World {
    attempts: AtomicU64,
    connections: AtomicU64,
    refuses_connections: AtomicBool,
    /// How long the server takes to greet a client; it greets one at a time.
    greeting: Duration,
    door: tokio::sync::Mutex<()>,
    /// Attempts that have blocked their thread.
    blocked: AtomicU64,
    /// Clients whose `finish` was called.
    finished: AtomicU64,
    outcomes: Mutex<Vec<Outcome>>,
    /// Operations by client.
    turns: Mutex<BTreeMap<usize, u64>>,
}

struct Scripted {
    index: usize,
    world: Arc<World>,
    script: Arc<Script>,
    /// Whether an attempt is under way; checks that there is at most one.
    busy: RefCell<bool>,
}

impl Client for Scripted {
    type Operation = ();

    fn draw(&mut self) -> Option<()> {
        Some(())
    }

    fn kind((): &()) -> usize {
        0
    }

    fn changes(&self, (): &()) -> bool {
        true
    }

    async fn attempt(&mut self, (): &()) -> Attempt {
        assert!(!self.busy.replace(true), "one operation in flight at most");
        let act = (self.script)(self.world.attempts.fetch_add(1, SeqCst));
        let attempt = match act {
            Act::Answer(attempt) => attempt,
            Act::After(wait, attempt) => {
                tokio::time::sleep(wait).await;
                attempt
            }
            Act::Never => std::future::pending().await,
            Act::Busy(length) => {
                let begun = std::time::Instant::now();
                while begun.elapsed() < length {
                    tokio::task::coop::consume_budget().await;
                }
                Attempt::Ok
            }
            Act::Block(length) => {
                if may_block().is_some() {
                    self.world.blocked.fetch_add(1, SeqCst);
                    thread::sleep(length);
                } else {
                    tokio::time::sleep(length).await;
                }
                Attempt::Ok
            }
        };
        self.busy.replace(false);
        attempt
    }

    fn account(&mut self, (): (), outcome: Outcome) {
        *self.world.turns.lock().unwrap().entry(self.index).or_default() += 1;
        self.world.outcomes.lock().unwrap().push(outcome);
    }

    async fn connect(&mut self) -> Result<(), String> {
        if self.world.refuses_connections.load(SeqCst) {
            return Err("connection refused".to_owned());
        }
        if !self.world.greeting.is_zero() {
            let _greeted = self.world.door.lock().await;
            tokio::time::sleep(self.world.greeting).await;
        }
        self.busy.replace(false);
        self.world.connections.fetch_add(1, SeqCst);
        Ok(())
    }

    async fn finish(&mut self) {
        self.world.finished.fetch_add(1, SeqCst);
    }

    async fn check(&mut self) -> Result<(), String> {
        if self.index.is_multiple_of(2) { Ok(()) } else { Err("another session".to_owned()) }
    }
}

fn tasks(clients: usize, world: &Arc<World>, script: &Arc<Script>) -> Vec<ClientTask> {
    (0..clients)
        .map(|_| {
            let (world, script) = (Arc::clone(world), Arc::clone(script));
            let task: ClientTask = Box::new(move |driver| {
                let index = driver.index();
                Box::pin(driver.drive(Scripted { index, world, script, busy: RefCell::new(false) }))
            });
            task
        })
        .collect()
}

fn drive(
    load: Load,
    clients: usize,
    script: impl Fn(u64) -> Act + Send + Sync + 'static,
) -> (Measurement, Arc<World>) {
    driven_by(|tasks| Trial::new(load, clients).run(tasks).unwrap(), clients, script)
}

/// Drives clients by a simulated clock, as [`drive`] does by the system's.
fn simulate(
    load: Load,
    clients: usize,
    script: impl Fn(u64) -> Act + Send + Sync + 'static,
) -> (Measurement, Arc<World>) {
    driven_by(|tasks| simulated(load, tasks), clients, script)
}

fn driven_by(
    run: impl FnOnce(Vec<ClientTask>) -> Measurement,
    clients: usize,
    script: impl Fn(u64) -> Act + Send + Sync + 'static,
) -> (Measurement, Arc<World>) {
    let world = Arc::new(World::default());
    let script: Arc<Script> = Arc::new(script);
    (run(tasks(clients, &world, &script)), world)
}

/// Drives clients in parts that know of each other only what they are told, as processes do. `meanwhile` is given the
/// trial that they are parts of, and a part's messages may be kept from arriving.
fn in_parts(
    load: &Load,
    clients: usize,
    processes: usize,
    script: impl Fn(u64) -> Act + Send + Sync + 'static,
    arrives: impl Fn(usize, &Report) -> bool + Sync,
    meanwhile: impl FnOnce(&Trial) + Send,
) -> (Measurement, Arc<World>) {
    let world = Arc::new(World::default());
    let script: Arc<Script> = Arc::new(script);
    let parts = Part::deal(clients, processes, load.threads);
    let whole = Trial::of_parts(load.clone(), clients, parts[0]);
    let (news, told) = mpsc::channel();
    let measurement = thread::scope(|scope| {
        let mut engines = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let (reports, reported) = mpsc::channel();
            let engine = Trial::part(load.clone(), clients, *part, reports);
            engines.push(engine.clone());
            let hand = tasks(engine.clients().count(), &world, &script);
            scope.spawn(move || engine.run(hand).unwrap());
            let (news, arrives, beats) = (news.clone(), &arrives, engines[index].clone());
            scope.spawn(move || {
                loop {
                    let next = reported.recv_timeout(Duration::from_millis(5));
                    let report = next.unwrap_or_else(|_| beats.beat());
                    if !arrives(index, &report) {
                        let _ = news.send((index, News::Gone("was killed by signal 9".to_owned())));
                        return;
                    }
                    let is_over = matches!(report, Report::Over { .. });
                    // as it would be written and read
                    let report = serde_json::to_string(&report).unwrap();
                    let _ = news.send((index, News::Report(serde_json::from_str(&report).unwrap())));
                    if is_over {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| meanwhile(&whole));
        whole.gather(parts.len(), &told, |instruction: Instruction| {
            for engine in &engines {
                engine.follow(instruction);
            }
        })
    });
    (measurement, world)
}

/// Nothing is kept from arriving, and nobody does anything meanwhile.
fn in_peace(
    load: &Load,
    clients: usize,
    processes: usize,
    script: impl Fn(u64) -> Act + Send + Sync + 'static,
) -> (Measurement, Arc<World>) {
    in_parts(load, clients, processes, script, |_, _| true, |_| {})
}

#[test]
fn parts_measure_together_what_they_did() {
    for (clients, processes, threads) in [(1, 1, 2), (5, 2, 3), (6, 3, 1), (9, 4, 8)] {
        // long enough for each client to have a turn, also on a busy machine
        let load = Load { threads, warmup: Duration::from_millis(200), ..operations(3000) };
        let (measurement, world) = in_peace(&load, clients, processes, |_| Act::Answer(Attempt::Ok));
        let shape = format!("{clients} clients, {processes} processes, {threads} threads");
        let operation = &measurement.operations[0];
        assert_eq!(operation.count(Outcome::Ok), 3000, "{shape}");
        assert_eq!((measurement.arrived.offered, measurement.arrived.completed), (3000, 3000), "{shape}");
        assert_eq!(measurement.stopped, None, "{shape}");
        let each: u64 = measurement.series.iter().map(|second| second.counts[0].iter().sum::<u64>()).sum();
        assert_eq!(each, 3000, "{shape}");
        assert_eq!(
            world.turns.lock().unwrap().len(),
            clients,
            "each client has an index of its own, {shape}"
        );
        assert!(measurement.window > Duration::ZERO && measurement.throughput() > 0.0, "{shape}");
    }
}

/// What is found of a connection at the end is told of every client that still has one, whichever process it is in.
#[test]
fn what_became_of_connections_is_told_at_the_end() {
    let load = Load { threads: 2, ..operations(50) };
    let (measurement, _) = in_peace(&load, 5, 2, |_| Act::Answer(Attempt::Ok));
    assert_eq!(measurement.doubts, BTreeMap::from([("another session".to_owned(), 2)]));
    assert_eq!(measurement.faults, BTreeMap::new());
    let (alone, _) = simulate(for_millis(10), 1, |_| Act::Answer(Attempt::Ok));
    assert_eq!(alone.doubts, BTreeMap::new());
}

#[test]
fn a_pipelines_connection_is_looked_at_when_all_is_settled() {
    let (measurement, _) = pipe(for_millis(100), 2, shape(4, true), all_after(1));
    assert_eq!(measurement.doubts, BTreeMap::from([("another session".to_owned(), 2)]));
}

#[test]
fn parts_keep_one_schedule() {
    let load = Load { arrivals: Arrivals::Constant(500.0), threads: 3, ..for_millis(400) };
    let (measurement, _) = in_peace(&load, 7, 3, |_| Act::Answer(Attempt::Ok));
    assert_eq!(measurement.arrived.offered, 200);
    assert!(measurement.operations[0].ok().unwrap().response.is_some());
}

/// Clients that are not on the schedule go on until it is over everywhere, not only in their own process.
#[test]
fn a_schedule_is_over_when_it_is_everywhere() {
    let load = Load { scheduled: Some(1), threads: 2, ..operations(20) };
    let (measurement, world) =
        in_peace(&load, 2, 2, |_| Act::After(Duration::from_millis(5), Attempt::Refused));
    assert_eq!(measurement.arrived.completed, 20);
    assert!(world.turns.lock().unwrap()[&1] > 5, "{:?}", world.turns);
}

#[test]
fn a_part_that_is_gone_ends_the_trial() {
    let killed = |part: usize, report: &Report| part == 0 || !matches!(report, Report::Recorded(_));
    let load = Load { threads: 2, ..patient() };
    let slow = |_| Act::After(Duration::from_millis(1), Attempt::Ok);
    let (measurement, _) = in_parts(&load, 2, 2, slow, killed, |_| {});
    let Some(Stop::PartLost(how)) = measurement.stopped else { panic!("{:?}", measurement.stopped) };
    assert_eq!(how, "a client process was killed by signal 9");
}

#[test]
fn what_stops_one_part_stops_all() {
    let load = Load { threads: 2, ..patient() };
    let one_panics = |attempt| match attempt {
        200 => panic!("a client's defect"),
        _ => Act::After(Duration::from_millis(1), Attempt::Ok),
    };
    let (measurement, _) = in_peace(&load, 2, 2, one_panics);
    assert!(matches!(measurement.stopped, Some(Stop::Defect(_))), "{:?}", measurement.stopped);
    let slow = |_| Act::After(Duration::from_millis(1), Attempt::Ok);
    let (measurement, _) = in_parts(
        &load,
        2,
        2,
        slow,
        |_, _| true,
        |trial| {
            until("something is acknowledged", || trial.so_far().last_acknowledged.is_some());
            trial.stop(Stop::Interrupted);
        },
    );
    assert_eq!(measurement.stopped, Some(Stop::Interrupted));
    assert!(measurement.operations[0].count(Outcome::Ok) > 0);
}

/// Every connection is closed while an operation is on its way there: its outcome is unknown, and the client goes on.
#[test]
fn clients_that_are_disconnected_do_not_know_what_they_did_and_connect_again() {
    // with a thread for each, too, where all of them block it
    for (threads, processes) in [(2, 0), (4, 0), (2, 2), (4, 2)] {
        let load = Load { threads, ..for_millis(600) };
        let cut = |trial: &Trial| {
            until("something is acknowledged", || trial.so_far().last_acknowledged.is_some());
            trial.disconnect();
        };
        let act = |_| Act::Block(Duration::from_millis(2));
        let (measurement, world) = if processes > 0 {
            in_parts(&load, 4, processes, act, |_, _| true, cut)
        } else {
            driven_by(
                |tasks| {
                    let trial = Trial::new(load.clone(), 4);
                    thread::scope(|scope| {
                        scope.spawn(|| cut(&trial));
                        trial.run(tasks).unwrap()
                    })
                },
                4,
                act,
            )
        };
        let operation = &measurement.operations[0];
        assert_eq!(operation.count(Outcome::Unknown), 4, "one of each client");
        assert_eq!((measurement.reconnects, world.connections.load(SeqCst)), (4, 8));
        assert_eq!(measurement.faults.values().sum::<u64>(), 4);
        assert!(
            measurement.faults.keys().all(|fault| fault.contains("disconnect")),
            "{:?}",
            measurement.faults
        );
        assert!(operation.count(Outcome::Ok) > 4, "they went on");
        assert_eq!(world.blocked.load(SeqCst) > 4, threads == 4);
    }
}

/// A client may block its thread only where nobody else is kept waiting by that, nor a deadline missed.
#[test]
fn a_client_blocks_its_thread_only_where_nothing_else_is_to_be_done() {
    let act = |_| Act::Block(Duration::from_micros(100));
    let blocked = |load: Load| {
        let (measurement, world) = drive(load, 4, act);
        assert_eq!(measurement.operations[0].count(Outcome::Ok), 40);
        world.blocked.load(SeqCst)
    };
    let alone = Load { threads: 4, ..operations(40) };
    // but for one that waited so long for a core that it may no more
    assert!(blocked(alone.clone()) >= 20);
    assert_eq!(blocked(Load { threads: 3, ..alone.clone() }), 0, "two of the four have one thread");
    assert_eq!(blocked(Load { timeout: Duration::from_millis(99), ..alone.clone() }), 0);
    let (_, world) = simulate(alone, 1, act);
    assert_eq!(world.blocked.load(SeqCst), 0, "time would not pass");
}

/// A load whose clients come over this many milliseconds and do so many operations together.
fn visits(millis: u64, count: u64) -> Load {
    Load {
        ramp: Some(Duration::from_millis(millis)),
        timeout: Duration::from_millis(500),
        ..operations(count)
    }
}

/// Clients come one after the other, each does its share, and the last ones come at the end of the ramp.
#[test]
fn clients_come_and_go() {
    let (measurement, world) =
        simulate(visits(1000, 42), 10, |_| Act::After(Duration::from_millis(20), Attempt::Ok));
    let turns: Vec<u64> = world.turns.lock().unwrap().values().copied().collect();
    assert_eq!(turns, [5, 5, 4, 4, 4, 4, 4, 4, 4, 4], "42 operations of ten clients");
    assert_eq!((world.connections.load(SeqCst), world.finished.load(SeqCst)), (10, 10));
    assert_eq!((measurement.operations[0].count(Outcome::Ok), measurement.arrived.completed), (42, 42));
    assert_eq!((measurement.stopped, measurement.reconnects), (None, 0));
    // the last one comes after 900 ms, and has four operations of 20 ms each
    assert!((975..=1000).contains(&measurement.window.as_millis()), "{:?}", measurement.window);
    let first_second: u64 = measurement.series[0].counts[0].iter().sum();
    assert_eq!(first_second, 42);
}

/// Whoever finds nobody there tries again until it gives the operation up, which has then not been sent; and goes on with
/// the next. That does not end the trial, and nor does a connection that is lost.
#[test]
fn clients_that_come_and_go_outlast_a_server_that_is_away() {
    let world = Arc::new(World::default());
    world.refuses_connections.store(true, SeqCst);
    let script: Arc<Script> = Arc::new(|_| Act::Answer(Attempt::Ok));
    let measurement = simulated(visits(100, 6), tasks(2, &world, &script));
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Failed), operation.count(Outcome::Ok)), (6, 0));
    assert_eq!((world.attempts.load(SeqCst), measurement.stopped), (0, None));
    // three operations of 500 ms, of which the last 50 ms are no time for another try
    assert!((1400..=1600).contains(&measurement.window.as_millis()) || measurement.window.is_zero());
    assert!(measurement.faults["connection refused"] >= 6 * 9, "{:?}", measurement.faults);
    let lost = |attempt| match attempt {
        1 => Act::Answer(Attempt::Unknown(Fault::lost("reset"))),
        3 => Act::Never,
        _ => Act::Answer(Attempt::Ok),
    };
    let (measurement, world) = simulate(visits(0, 6), 1, lost);
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Unknown), operation.count(Outcome::Ok)), (2, 4));
    assert_eq!((measurement.reconnects, world.connections.load(SeqCst), measurement.stopped), (2, 3, None));
}

/// Clients of several processes come in one order, and have the same shares.
#[test]
fn parts_have_one_ramp() {
    let load = Load { threads: 2, ..visits(300, 20) };
    let (measurement, world) = in_peace(&load, 5, 2, |_| Act::Answer(Attempt::Ok));
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 20);
    assert!(world.turns.lock().unwrap().values().all(|turns| *turns == 4));
    assert!(measurement.window >= Duration::from_millis(240), "{:?}", measurement.window);
}

/// A trial that is stopped does not wait for clients that have not come yet.
#[test]
fn a_ramp_can_be_stopped() {
    let begun = std::time::Instant::now();
    let trial = Trial::new(visits(3_600_000, 100), 100);
    let (measurement, _) = driven_by(
        |tasks| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    until("something is acknowledged", || trial.so_far().last_acknowledged.is_some());
                    trial.stop(Stop::Interrupted);
                });
                trial.run(tasks).unwrap()
            })
        },
        100,
        |_| Act::Answer(Attempt::Ok),
    );
    assert_eq!(measurement.stopped, Some(Stop::Interrupted));
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

/// Runs clients to the end on a clock that is paused while any of them has something to do.
fn simulated(load: Load, tasks: Vec<ClientTask>) -> Measurement {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { Trial::simulated(load, tasks.len()).run_simulated(tasks).await })
}

/// Whether this many milliseconds have passed since the first call, by the caller's clock.
fn passed(since: &OnceLock<Instant>, millis: u64) -> bool {
    since.get_or_init(Instant::now).elapsed() >= Duration::from_millis(millis)
}

/// Waits until a condition holds.
#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(2), "{what}: not within {:?}", begun.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
}

fn for_millis(millis: u64) -> Load {
    Load::closed(&["op"], Extent::Time(Duration::from_millis(millis)))
}

/// A load of an hour, with a timeout that is long enough for any machine.
fn patient() -> Load {
    Load { timeout: Duration::from_mins(5), ..for_millis(3_600_000) }
}

fn operations(count: u64) -> Load {
    Load::closed(&["op"], Extent::Operations(count))
}

fn ok_after(millis: u64) -> impl Fn(u64) -> Act + Send + Sync {
    move |_| Act::After(Duration::from_millis(millis), Attempt::Ok)
}

#[test]
fn a_number_of_operations_is_done_exactly() {
    let (measurement, world) = drive(operations(1000), 7, |_| Act::Answer(Attempt::Ok));
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 1000);
    assert_eq!(world.attempts.load(SeqCst), 1000);
    assert_eq!(measurement.arrived.offered, 1000);
    assert_eq!(measurement.stopped, None);
}

/// How many operations of so many milliseconds a client that works for this share of 10 s does.
fn done_in_turns(millis: u64, duty: f64) -> u64 {
    let load = Load { duty, warmup: Duration::from_millis(300), ..for_millis(10_000) };
    let (measurement, _) = simulate(load, 3, ok_after(millis));
    measurement.operations[0].count(Outcome::Ok) / 3
}

#[test]
fn a_client_works_for_its_share_of_the_time() {
    for (millis, duty, least, most) in [
        (4, 1.0, 2_490, 2_500),
        (4, 0.5, 1_230, 1_260),
        (4, 0.1, 240, 255),
        (1, 0.9, 8_900, 9_050),
        (500, 0.25, 5, 5),
    ] {
        let done = done_in_turns(millis, duty);
        assert!((least..=most).contains(&done), "{done} of {millis} ms at {duty}");
    }
    // one that rests for longer than the measured part is over with it
    assert_eq!(done_in_turns(10, 1e-9), 1);
}

#[test]
fn a_trial_of_clients_that_rest_is_stopped_while_they_do() {
    let script: Arc<Script> = Arc::new(ok_after(5));
    let trial = Trial::new(Load { duty: 1e-6, ..patient() }, 2);
    let running = trial.clone();
    let world = Arc::default();
    let tasks = tasks(2, &world, &script);
    let begun = std::time::Instant::now();
    let running = thread::spawn(move || running.run(tasks).unwrap());
    until("both have done one", || world.attempts.load(SeqCst) == 2);
    trial.stop(Stop::Interrupted);
    assert_eq!(running.join().unwrap().operations[0].count(Outcome::Ok), 2);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn an_answer_without_an_end_is_out_of_time_too() {
    let load = Load { timeout: Duration::from_millis(100), ..operations(1) };
    let (measurement, world) = drive(load, 1, |_| Act::Busy(Duration::from_mins(5)));
    assert_eq!(*world.outcomes.lock().unwrap(), [Outcome::Unknown]);
    let longest = measurement.operations[0].latency[&Outcome::Unknown].service.max();
    assert!(Duration::from_nanos(longest) < Duration::from_mins(2), "given up after {longest} ns");
}

#[test]
fn a_warm_up_is_driven_and_leaves_nothing_in_the_measurement() {
    // the store refuses for most of the warm-up and not afterwards, so a refusal in the measurement has leaked
    let begun = OnceLock::new();
    let load = Load { warmup: Duration::from_millis(300), ..for_millis(200) };
    let (measurement, world) = simulate(load, 4, move |_| {
        let warm = !passed(&begun, 250);
        Act::After(Duration::from_millis(5), if warm { Attempt::Refused } else { Attempt::Ok })
    });
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Refused), operation.refusals), (0, 0));
    assert!(operation.count(Outcome::Ok) > 0);
    assert!(world.outcomes.lock().unwrap().contains(&Outcome::Refused), "yet all are accounted for");
}

#[test]
fn faults_of_the_warm_up_are_not_the_measurement_s() {
    let begun = OnceLock::new();
    let load = Load { warmup: Duration::from_millis(300), ..for_millis(200) };
    let (measurement, world) = simulate(load, 2, move |_| {
        let warm = !passed(&begun, 200);
        let lost = Attempt::Unknown(Fault::lost("cold"));
        Act::After(Duration::from_millis(5), if warm { lost } else { Attempt::Ok })
    });
    assert!(world.connections.load(SeqCst) > 2, "connections were lost");
    assert_eq!((measurement.reconnects, measurement.faults.len()), (0, 0));
}

#[test]
fn a_stall_to_the_end_is_a_row_of_zeros_a_second() {
    let load = Load { timeout: Duration::from_millis(2500), ..for_millis(2000) };
    let (measurement, _) = simulate(load, 1, |attempt| match attempt {
        0 => Act::Answer(Attempt::Ok),
        _ => Act::Never,
    });
    assert!(measurement.series.len() >= 2, "{:?}", measurement.series);
    assert_eq!(measurement.series[1].counts[0].iter().sum::<u64>(), 0);
}

#[test]
fn an_open_loop_s_warm_up_backlog_is_not_measured() {
    // hopeless while warming up: 1,000 a second offered to one client that needs 20 ms each
    let begun = OnceLock::new();
    let load =
        Load { warmup: Duration::from_millis(400), arrivals: Arrivals::Constant(1000.0), ..for_millis(200) };
    let (measurement, _) = simulate(load, 1, move |_| {
        if passed(&begun, 380) {
            Act::Answer(Attempt::Ok)
        } else {
            Act::After(Duration::from_millis(20), Attempt::Ok)
        }
    });
    assert_eq!(measurement.arrived.offered, 200, "only what was due in the measured part");
    let response = measurement.operations[0].ok().unwrap().response();
    assert!(response.value_at_quantile(0.5) < 200_000_000, "median {} ns", response.value_at_quantile(0.5));
}

#[test]
fn an_answer_that_never_comes_is_unknown_and_its_connection_is_retired() {
    let load = Load { timeout: Duration::from_millis(50), ..operations(20) };
    let (measurement, world) =
        drive(load, 2, |attempt| if attempt % 5 == 4 { Act::Never } else { Act::Answer(Attempt::Ok) });
    assert_eq!(measurement.operations[0].count(Outcome::Unknown), 4);
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 16);
    assert_eq!(measurement.reconnects, 4);
    assert_eq!(world.connections.load(SeqCst), 2 + 4);
    let fastest = measurement.operations[0].latency[&Outcome::Unknown].service.min();
    assert!(fastest >= 49_000_000, "given up after {fastest} ns");
    assert!(measurement.faults.keys().any(|fault| fault.contains("no answer within 50ms")));
}

#[test]
fn conflicts_are_tried_again_and_counted_and_given_up_in_the_end() {
    let load = Load { max_retries: 3, ..operations(2) };
    // the first operation meets two conflicts, the second one every time
    let (measurement, _) =
        simulate(load, 1, |attempt| Act::Answer(if attempt == 2 { Attempt::Ok } else { Attempt::Conflict }));
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Ok), operation.count(Outcome::Conflict)), (1, 1));
    assert_eq!(operation.conflicts, 2 + 4, "each attempt that lost counts");
    assert_eq!(operation.retries, 2 + 3);
}

#[test]
fn a_retried_operation_s_time_covers_all_its_attempts_and_waits() {
    let load = Load { on_refused: OnRefused::Retry(Duration::from_millis(5)), ..operations(1) };
    let (measurement, _) = simulate(load, 1, |attempt| match attempt {
        0..3 => Act::Answer(Attempt::Refused),
        _ => Act::Answer(Attempt::Ok),
    });
    let service = &measurement.operations[0].ok().unwrap().service;
    // the histogram rounds to three digits
    assert!((14_900_000..20_000_000).contains(&service.min()), "three waits of 5 ms, {} ns", service.min());
    assert_eq!(measurement.operations[0].refusals, 3);
}

/// Time spent in vain is counted for acknowledged operations, by its cause.
#[test]
fn time_in_vain_is_told_apart_from_the_rest() {
    let wait = Duration::from_millis(20);
    let load = Load { on_refused: OnRefused::Retry(wait), ..operations(1) };
    let (measurement, _) = simulate(load, 1, move |attempt| match attempt {
        0 => Act::After(wait, Attempt::Conflict),
        1 => Act::After(wait, Attempt::Refused),
        _ => Act::After(wait, Attempt::Ok),
    });
    let operation = &measurement.operations[0];
    let [conflicts, refusals] = [operation.conflict_time, operation.refusal_time].map(Duration::from_nanos);
    let service = Duration::from_nanos(operation.ok().unwrap().service.max());
    assert!(conflicts >= wait && refusals >= 2 * wait, "{conflicts:?}, {refusals:?}");
    // the histogram rounds to three digits
    assert!(
        conflicts + refusals + wait <= service.mul_f64(1.001),
        "{conflicts:?}, {refusals:?}, {service:?}"
    );

    // of an operation that was not acknowledged all the time was in vain: it is in the outcome's own histogram
    let load = Load { max_retries: 2, ..operations(1) };
    let (measurement, _) = simulate(load, 1, |_| Act::Answer(Attempt::Conflict));
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Conflict), operation.conflict_time), (1, 0));
}

#[test]
fn a_refusal_that_never_ends_is_refused_not_unknown() {
    let load = Load {
        on_refused: OnRefused::Retry(Duration::from_millis(5)),
        timeout: Duration::from_millis(60),
        ..operations(1)
    };
    let (measurement, _) = simulate(load, 1, |_| Act::Answer(Attempt::Refused));
    assert_eq!(measurement.operations[0].count(Outcome::Refused), 1);
    assert_eq!(measurement.reconnects, 0);
}

#[test]
fn at_overload_nothing_is_hidden() {
    // 400 a second offered to two clients that manage 200
    let load = Load { arrivals: Arrivals::Constant(400.0), ..for_millis(1000) };
    let (measurement, _) = simulate(load, 2, ok_after(10));
    let arrived = measurement.arrived;
    assert_eq!(arrived.offered, 400);
    assert_eq!(arrived.started + arrived.dropped, arrived.offered);
    assert_eq!(arrived.completed, arrived.started);
    assert!(arrived.dropped > 100 && arrived.late > 100, "{arrived:?}");
    let ok = measurement.operations[0].ok().unwrap();
    let (service, response) = (ok.service.value_at_quantile(0.99), ok.response().value_at_quantile(0.99));
    assert!(service < 150_000_000, "service stays what it is: {service} ns");
    assert!(response > 300_000_000, "response has the waiting in it: {response} ns");
}

/// The measured part lasts as long as was asked for, also when nothing more is due long before its end.
#[test]
fn a_low_rate_is_measured_over_the_time_that_was_asked_for() {
    for (rate, done) in [(1.0, 3), (0.5, 2)] {
        let load = Load { arrivals: Arrivals::Constant(rate), ..for_millis(3000) };
        let (alone, _) = simulate(load.clone(), 2, |_| Act::Answer(Attempt::Ok));
        let (piped, _) = pipe(load, 1, shape(1, true), all_after(1));
        for measured in [alone, piped] {
            assert_eq!(measured.window, Duration::from_secs(3), "{rate}");
            assert_eq!(measured.operations[0].count(Outcome::Ok), done, "{rate}");
            assert!((measured.throughput() - done as f64 / 3.0).abs() < 1e-9, "{rate}: {measured:?}");
        }
    }
}

/// What would have been due after the last operation that was asked for is not missing.
#[test]
fn of_a_number_of_operations_none_is_dropped() {
    let load = Load { arrivals: Arrivals::Constant(1000.0), ..operations(200) };
    let (measurement, _) = simulate(load.clone(), 500, |_| Act::Answer(Attempt::Ok));
    let (tasks, _) = pipelines(50, shape(1, true), all_after(1));
    let piped = Trial::new(load, 50).run(tasks).unwrap();
    for measured in [measurement, piped] {
        let arrived = measured.arrived;
        assert_eq!((arrived.offered, arrived.started, arrived.dropped), (200, 200, 0), "{arrived:?}");
    }
}

#[test]
fn an_open_loop_under_its_capacity_starts_on_time() {
    let load = Load { arrivals: Arrivals::Poisson(500.0), ..for_millis(1000) };
    let (measurement, _) = simulate(load, 8, |_| Act::Answer(Attempt::Ok));
    let arrived = measurement.arrived;
    assert_eq!((arrived.dropped, arrived.completed), (0, arrived.offered));
    let median = measurement.operations[0].ok().unwrap().response().value_at_quantile(0.5);
    assert!(median < 5_000_000, "{median} ns from due to answered");
}

#[test]
fn a_first_connection_that_fails_ends_the_trial() {
    let world = Arc::new(World::default());
    world.refuses_connections.store(true, SeqCst);
    let script: Arc<Script> = Arc::new(|_| Act::Answer(Attempt::Ok));
    let measurement = Trial::new(for_millis(60_000), 3).run(tasks(3, &world, &script)).unwrap();
    assert_eq!(measurement.stopped, Some(Stop::NoConnection("connection refused".to_owned())));
    assert_eq!(world.attempts.load(SeqCst), 0);
}

/// The time that a client has to connect does not have to do for all of them.
#[test]
fn clients_are_greeted_one_after_the_other() {
    let world = Arc::new(World { greeting: Duration::from_millis(20), ..World::default() });
    let script: Arc<Script> = Arc::new(|_| Act::After(Duration::from_millis(1), Attempt::Ok));
    let measurement = simulated(for_millis(100), tasks(300, &world, &script));
    assert_eq!((measurement.stopped, world.connections.load(SeqCst)), (None, 300));
    // a server that greets nobody is told of after one such time all the same
    let deaf = Arc::new(World { greeting: Duration::from_hours(1), ..World::default() });
    let measurement = simulated(for_millis(100), tasks(300, &deaf, &script));
    assert_eq!(measurement.stopped, Some(Stop::NoConnection("no connection within 5s".to_owned())));
    // one that is given more time greets them all
    let slow = Arc::new(World { greeting: Duration::from_millis(400), ..World::default() });
    let load = Load { connect_timeout: Duration::from_mins(1), ..for_millis(100) };
    let measurement = simulated(load, tasks(100, &slow, &script));
    assert_eq!((measurement.stopped, slow.connections.load(SeqCst)), (None, 100));
}

#[test]
fn a_server_that_does_not_come_back_ends_the_trial_with_what_was_measured() {
    let world = Arc::new(World::default());
    let dying = Arc::clone(&world);
    let script: Arc<Script> = Arc::new(move |attempt| {
        if attempt < 100 {
            return Act::Answer(Attempt::Ok);
        }
        dying.refuses_connections.store(true, SeqCst);
        Act::Answer(Attempt::Unknown(Fault::lost("connection reset")))
    });
    let load = Load { patience: Duration::from_millis(200), ..for_millis(60_000) };
    let measurement = simulated(load, tasks(2, &world, &script));
    assert_eq!(measurement.stopped, Some(Stop::ServerGone("connection refused".to_owned())));
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 100);
    assert_eq!(measurement.operations[0].count(Outcome::Unknown), 2);
    assert!(measurement.window < Duration::from_secs(1));
}

#[test]
fn a_failure_that_keeps_its_connection_is_no_reconnect() {
    let (measurement, world) = drive(operations(10), 1, |attempt| {
        Act::Answer(if attempt == 3 { Attempt::Failed(Fault::answered("constraint")) } else { Attempt::Ok })
    });
    assert_eq!(measurement.operations[0].count(Outcome::Failed), 1);
    assert_eq!((measurement.reconnects, world.connections.load(SeqCst)), (0, 1));
}

/// A server that answers and serves nobody is asked now and then, and not as fast as it turns clients away.
#[test]
fn a_client_that_is_turned_away_waits_longer_each_time_before_it_returns() {
    let turned_away = || Act::Answer(Attempt::Failed(Fault::turned_away("READONLY")));
    let (measurement, world) = simulate(for_millis(10_000), 1, move |_| turned_away());
    let attempts = world.attempts.load(SeqCst);
    // 1 + 2 + 4 + … + 128 ms, then one in 250 ms
    assert!((40..=50).contains(&attempts), "{attempts}");
    assert_eq!(measurement.reconnects, attempts);
    // what it serves between two refusals is no sign that it serves all: a replica reads
    let (_, world) = simulate(for_millis(10_000), 1, move |attempt| match attempt % 3 {
        2 => turned_away(),
        _ => Act::After(Duration::from_millis(1), Attempt::Ok),
    });
    assert!((3 * 35..=3 * 50).contains(&world.attempts.load(SeqCst)), "{:?}", world.attempts);
    // a server that has served for long is found again at once: 400 ms each, and no more than 2 ms to come back
    let (_, world) = simulate(for_millis(10_000), 1, move |attempt| match attempt % 2 {
        1 => turned_away(),
        _ => Act::After(Duration::from_millis(400), Attempt::Ok),
    });
    assert!(world.attempts.load(SeqCst) >= 2 * 24, "{:?}", world.attempts);
    // a connection that was simply lost is replaced at once
    let lost = || Act::After(Duration::from_millis(1), Attempt::Failed(Fault::lost("reset")));
    let (measurement, _) = simulate(for_millis(1_000), 1, move |_| lost());
    assert!(measurement.reconnects > 300, "{}", measurement.reconnects);
}

#[test]
fn a_trial_is_stopped_while_operations_hang() {
    let world = Arc::new(World::default());
    let script: Arc<Script> = Arc::new(|_| Act::Never);
    let trial = Trial::new(patient(), 4);
    let measurement = thread::scope(|scope| {
        let running = scope.spawn(|| trial.run(tasks(4, &world, &script)).unwrap());
        until("every client waits", || world.attempts.load(SeqCst) == 4);
        trial.stop(Stop::Interrupted);
        trial.give_up();
        running.join().unwrap()
    });
    assert_eq!(measurement.stopped, Some(Stop::Interrupted));
    assert_eq!(measurement.operations[0].count(Outcome::Unknown), 4);
    // they ended because the trial was stopped, and not because their time was over
    let faults: Vec<_> = measurement.faults.into_iter().collect();
    assert_eq!(faults, [("given up unanswered when the trial was stopped".to_owned(), 4)]);
}

/// An operation that is unanswered when the trial is given up stays unknown: no later message on that connection
/// may pass for an answer.
#[test]
fn a_connection_that_was_given_up_is_not_asked_to_finish() {
    let world = Arc::new(World::default());
    // one client in four never gets an answer, the others always do
    let script: Arc<Script> = Arc::new(|attempt| match attempt {
        0 => Act::Never,
        _ => Act::After(Duration::from_millis(1), Attempt::Ok),
    });
    let trial = Trial::new(patient(), 4);
    thread::scope(|scope| {
        let running = scope.spawn(|| trial.run(tasks(4, &world, &script)).unwrap());
        until("others are answered", || world.outcomes.lock().unwrap().len() >= 3);
        trial.stop(Stop::Interrupted);
        trial.give_up();
        running.join().unwrap();
    });
    let unknown = world.outcomes.lock().unwrap().iter().filter(|each| **each == Outcome::Unknown).count();
    assert!(unknown >= 1, "the one that hung");
    assert_eq!(world.finished.load(SeqCst), 4 - unknown as u64);
}

#[test]
fn a_client_that_panics_is_a_defect_and_hangs_nobody() {
    let (measurement, _) = drive(for_millis(60_000), 3, |attempt| {
        assert!(attempt < 50, "planted");
        Act::Answer(Attempt::Ok)
    });
    assert!(matches!(measurement.stopped, Some(Stop::Defect(_))), "{:?}", measurement.stopped);
}

#[test]
fn clients_that_never_wait_take_turns() {
    // many enough for each client to have its turn hundreds of times
    let load = Load { threads: 1, ..operations(100_000) };
    let (measurement, world) = drive(load, 3, |_| Act::Answer(Attempt::Ok));
    let turns = world.turns.lock().unwrap();
    let fewest = turns.values().min().copied().unwrap_or(0);
    assert_eq!(turns.len(), 3);
    assert!(fewest * 10 > measurement.arrived.completed, "{turns:?}");
}

/// How a scripted store answers the operations of a pipeline in flight on one connection, given their numbers:
/// which of them it answers now, and after what wait.
type Answers = dyn Fn(&BTreeSet<u64>) -> (Duration, Vec<Completion>) + Send + Sync;

#[derive(Default)]
struct Pipe {
    connections: AtomicU64,
    settles: AtomicU64,
    /// The highest number of operations in flight at once.
    most: AtomicU64,
    /// The outcome of each operation, by the order in which they were drawn.
    outcomes: Mutex<BTreeMap<u64, Outcome>>,
    /// How many operations were in flight when each settling began.
    flights: Mutex<Vec<usize>>,
}

#[derive(Clone, Copy)]
struct Shape {
    depth: usize,
    settles_early: bool,
    /// How many operations there are to draw.
    draws: u64,
}

struct Scripting {
    pipe: Arc<Pipe>,
    shape: Shape,
    answers: Arc<Answers>,
    drawn: u64,
    sent: u64,
    flight: BTreeSet<u64>,
}

impl Pipeline for Scripting {
    type Operation = u64;

    fn depth(&self) -> usize {
        self.shape.depth
    }

    fn settles_early(&self) -> bool {
        self.shape.settles_early
    }

    fn draw(&mut self) -> Option<u64> {
        let drawn = self.drawn;
        self.drawn += 1;
        (drawn < self.shape.draws).then_some(drawn)
    }

    fn kind(_: &u64) -> usize {
        0
    }

    async fn send(&mut self, _: &u64) -> Result<(), Fault> {
        self.flight.insert(self.sent);
        self.sent += 1;
        self.pipe.most.fetch_max(self.flight.len() as u64, SeqCst);
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        self.pipe.settles.fetch_add(1, SeqCst);
        self.pipe.flights.lock().unwrap().push(self.flight.len());
        let (wait, answered) = (self.answers)(&self.flight);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        if answered.is_empty() {
            return std::future::pending().await;
        }
        for each in answered {
            self.flight.remove(&each.number);
            ended.push(each);
        }
        Ok(())
    }

    fn account(&mut self, operation: u64, outcome: Outcome) {
        let again = self.pipe.outcomes.lock().unwrap().insert(operation, outcome);
        assert_eq!(again, None, "accounted for twice");
    }

    async fn connect(&mut self) -> Result<(), String> {
        self.pipe.connections.fetch_add(1, SeqCst);
        self.flight.clear();
        self.sent = 0;
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        assert!(self.flight.is_empty(), "{:?} are in flight", self.flight);
        Err("another session".to_owned())
    }
}

/// A pipeline that never runs out of operations.
fn shape(depth: usize, settles_early: bool) -> Shape {
    Shape { depth, settles_early, draws: u64::MAX }
}

fn pipelines(
    clients: usize,
    shape: Shape,
    answers: impl Fn(&BTreeSet<u64>) -> (Duration, Vec<Completion>) + Send + Sync + 'static,
) -> (Vec<ClientTask>, Vec<Arc<Pipe>>) {
    let answers: Arc<Answers> = Arc::new(answers);
    let pipes: Vec<Arc<Pipe>> = (0..clients).map(|_| Arc::default()).collect();
    let task = |pipe: &Arc<Pipe>| {
        let (pipe, answers) = (Arc::clone(pipe), Arc::clone(&answers));
        let client = Scripting { pipe, shape, answers, drawn: 0, sent: 0, flight: BTreeSet::new() };
        let task: ClientTask = Box::new(move |driver| Box::pin(driver.drive_pipeline(client)));
        task
    };
    (pipes.iter().map(task).collect(), pipes)
}

/// Drives pipelines by a simulated clock.
fn pipe(
    load: Load,
    clients: usize,
    shape: Shape,
    answers: impl Fn(&BTreeSet<u64>) -> (Duration, Vec<Completion>) + Send + Sync + 'static,
) -> (Measurement, Vec<Arc<Pipe>>) {
    let (tasks, pipes) = pipelines(clients, shape, answers);
    (simulated(load, tasks), pipes)
}

/// With several in flight a client stops sending, waits for all of them, and rests.
#[test]
fn a_client_with_operations_in_flight_works_for_its_share_of_the_time() {
    for (depth, settles_early) in [(1, true), (8, true), (5, false)] {
        let done = |duty| {
            let answers = move |flight: &BTreeSet<u64>| {
                let ended = flight.iter().take(if settles_early { 1 } else { 5 }).map(|number| ok(*number));
                (Duration::from_millis(50), ended.collect())
            };
            let load = Load { duty, ..for_millis(60_000) };
            let (measurement, _) = pipe(load, 2, shape(depth, settles_early), answers);
            measurement.operations[0].count(Outcome::Ok) as f64
        };
        let (least, most) = (done(f64::MIN_POSITIVE / 1e9), 2.0 * depth as f64);
        assert!(least <= most, "{least}, but one batch each, and then a rest without an end, are {most}");
        let (whole, half) = (done(1.0), done(0.5));
        assert!((0.47..0.53).contains(&(half / whole)), "{half} of {whole} with {depth} in flight");
    }
}

fn ok(number: u64) -> Completion {
    Completion { number, attempt: Attempt::Ok }
}

/// Answers all operations in flight, after this many milliseconds.
fn all_after(millis: u64) -> impl Fn(&BTreeSet<u64>) -> (Duration, Vec<Completion>) + Send + Sync {
    move |flight| (Duration::from_millis(millis), flight.iter().copied().map(ok).collect())
}

/// Answers the oldest operation in flight, after this many milliseconds.
fn first_after(millis: u64) -> impl Fn(&BTreeSet<u64>) -> (Duration, Vec<Completion>) + Send + Sync {
    move |flight| (Duration::from_millis(millis), flight.first().copied().map(ok).into_iter().collect())
}

#[test]
fn as_many_as_may_be_are_in_flight_and_no_more() {
    for settles_early in [true, false] {
        let (measurement, pipes) = pipe(operations(100), 1, shape(7, settles_early), first_after(1));
        assert_eq!(pipes[0].most.load(SeqCst), 7);
        assert_eq!(measurement.operations[0].count(Outcome::Ok), 100);
        assert_eq!((measurement.arrived.offered, measurement.arrived.completed), (100, 100));
        // each place that becomes free is taken again before anything else is waited for
        let flights = pipes[0].flights.lock().unwrap();
        assert!(flights[..94].iter().all(|count| *count == 7), "{flights:?}");
    }
}

#[test]
fn what_ends_out_of_order_has_its_own_time() {
    // the newest operation in flight is answered at once, the oldest only when no other is left
    let (measurement, pipes) = pipe(operations(5), 1, shape(5, true), |flight| {
        (Duration::from_millis(10), flight.last().copied().map(ok).into_iter().collect())
    });
    assert_eq!(pipes[0].settles.load(SeqCst), 5);
    let service = &measurement.operations[0].ok().unwrap().service;
    let times: Vec<u64> = service.iter_recorded().map(|step| step.value_iterated_to() / 100_000).collect();
    assert_eq!(times.len(), 5, "{times:?} tenths of a millisecond");
    assert!(times[0] >= 99 && times.windows(2).all(|pair| pair[1] - pair[0] >= 99), "{times:?}");
}

#[test]
fn each_operation_has_its_own_end() {
    let (measurement, pipes) = pipe(operations(6), 1, shape(6, true), |flight| {
        let attempts = [
            Attempt::Ok,
            Attempt::Refused,
            Attempt::Conflict,
            Attempt::Failed(Fault::answered("nack")),
            Attempt::Unknown(Fault::answered("who knows")),
            Attempt::Ok,
        ];
        let end = |(number, attempt)| Completion { number, attempt };
        // a number that is not in flight is ignored
        (Duration::ZERO, flight.iter().copied().zip(attempts).map(end).chain([ok(77)]).collect())
    });
    let operation = &measurement.operations[0];
    let counts: Vec<u64> = Outcome::ALL.map(|outcome| operation.count(outcome)).to_vec();
    assert_eq!(counts.iter().sum::<u64>(), 6);
    assert_eq!((operation.count(Outcome::Ok), operation.count(Outcome::Unknown)), (2, 1));
    let faults: Vec<&str> = measurement.faults.keys().map(String::as_str).collect();
    assert_eq!(faults, ["nack", "who knows"]);
    // the pipeline decides whether an unknown outcome costs the connection
    assert_eq!((measurement.reconnects, pipes[0].connections.load(SeqCst)), (0, 1));
    let outcomes = pipes[0].outcomes.lock().unwrap();
    assert_eq!((outcomes[&0], outcomes[&3], outcomes[&4]), (Outcome::Ok, Outcome::Failed, Outcome::Unknown));
}

#[test]
fn all_in_flight_is_unknown_when_no_answer_comes_and_numbers_begin_anew() {
    let load = Load { timeout: Duration::from_millis(50), ..operations(20) };
    let begun = AtomicU64::new(0);
    let (measurement, pipes) = pipe(load, 1, shape(4, true), move |flight| {
        // two are answered, then none until there is a new connection
        let answered = match begun.fetch_add(1, SeqCst) {
            0 => vec![ok(1), ok(0)],
            1 => Vec::new(),
            _ => flight.iter().copied().map(ok).collect(),
        };
        (Duration::ZERO, answered)
    });
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Unknown), operation.count(Outcome::Ok)), (4, 16));
    assert_eq!((measurement.reconnects, pipes[0].connections.load(SeqCst)), (1, 2));
    assert!(measurement.faults.keys().any(|fault| fault.contains("no answer within 50ms")));
    // the time of the first that was sent, because time passes between one and the next
    let given_up = &operation.latency[&Outcome::Unknown].service;
    assert!((50..52).contains(&(given_up.max() / 1_000_000)), "given up after {} ns", given_up.max());
    let outcomes = pipes[0].outcomes.lock().unwrap();
    let unknown: Vec<u64> = outcomes
        .iter()
        .filter(|(_, outcome)| **outcome == Outcome::Unknown)
        .map(|(drawn, _)| *drawn)
        .collect();
    assert_eq!(unknown, [2, 3, 4, 5]);
}

#[test]
fn a_batch_that_is_not_full_is_settled_when_the_phase_ends() {
    // 23 operations in batches of 5
    let (measurement, pipes) = pipe(operations(23), 1, shape(5, false), all_after(1));
    assert_eq!(*pipes[0].flights.lock().unwrap(), [5, 5, 5, 5, 3]);
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 23);
    // a batch is also sent before it is full when there is nothing more to draw
    let few = Shape { draws: 7, ..shape(5, false) };
    let (measurement, pipes) = pipe(for_millis(60_000), 1, few, all_after(1));
    assert_eq!(*pipes[0].flights.lock().unwrap(), [5, 2]);
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 7);
}

#[test]
fn a_batch_that_fills_slowly_is_not_out_of_time_when_it_is_settled() {
    // a batch takes 200 ms to fill and 20 to be settled: more than the timeout of an operation, which is 100
    let load =
        Load { arrivals: Arrivals::Constant(50.0), timeout: Duration::from_millis(100), ..for_millis(600) };
    let (measurement, _) = pipe(load, 1, shape(10, false), all_after(20));
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Ok), operation.count(Outcome::Unknown)), (30, 0));
}

#[test]
fn a_pipeline_with_room_starts_on_time_and_one_without_is_late() {
    let load = Load { arrivals: Arrivals::Constant(500.0), ..for_millis(600) };
    // 500 a second that take 10 ms each: about five are in flight
    let (measurement, pipes) = pipe(load.clone(), 1, shape(50, true), {
        let sent: Mutex<Vec<Instant>> = Mutex::default();
        move |flight| {
            let mut sent = sent.lock().unwrap();
            let last = flight.last().map_or(0, |last| usize::try_from(*last).unwrap());
            let known = sent.len().max(last + 1);
            sent.resize_with(known, Instant::now);
            let first = *flight.first().unwrap();
            let since = sent[usize::try_from(first).unwrap()].elapsed();
            (Duration::from_millis(10).saturating_sub(since), vec![ok(first)])
        }
    });
    let arrived = measurement.arrived;
    assert_eq!(arrived.offered, 300);
    assert_eq!((arrived.started, arrived.late, arrived.dropped), (300, 0, 0), "{arrived:?}");
    assert!((3..50).contains(&pipes[0].most.load(SeqCst)));
    let ok = measurement.operations[0].ok().unwrap();
    let waited = ok.response().value_at_quantile(0.5).saturating_sub(ok.service.value_at_quantile(0.5));
    assert!(waited < 5_000_000, "{waited} ns from due to sent");

    // two in flight that take 10 ms together: at most 200 a second
    let (measurement, _) = pipe(load, 1, shape(2, true), all_after(10));
    let arrived = measurement.arrived;
    assert_eq!(arrived.started + arrived.dropped, arrived.offered);
    assert!(arrived.dropped > 50 && arrived.late > 50, "{arrived:?}");
}

/// The operations that are started are the ones that are due first, whichever thread they are due on: a schedule
/// that is split over many threads has long gaps on each.
#[test]
fn a_number_of_operations_keeps_the_rate_over_many_threads() {
    let load = Load { arrivals: Arrivals::Poisson(16.0), threads: 64, ..operations(16) };
    let (alone, _) = drive(load.clone(), 64, |_| Act::Answer(Attempt::Ok));
    let (tasks, _) = pipelines(64, shape(1, true), all_after(1));
    let piped = Trial::new(load, 64).run(tasks).unwrap();
    for measured in [alone, piped] {
        assert_eq!(measured.operations[0].count(Outcome::Ok), 16);
        // each of the 64 threads has an operation due only every 4 s on average
        let lasted = measured.operations[0].lasted.as_millis();
        assert!((200..3_500).contains(&lasted), "16 at 16 a second took {lasted} ms");
        assert!(measured.window < Duration::from_secs(4), "{:?}", measured.window);
    }
}

#[test]
fn by_the_system_s_clock_a_pipeline_accounts_for_all_that_was_offered() {
    let load = Load { arrivals: Arrivals::Constant(500.0), ..for_millis(300) };
    let (tasks, pipes) = pipelines(2, shape(5, true), all_after(3));
    let measurement = Trial::new(load, 2).run(tasks).unwrap();
    let arrived = measurement.arrived;
    assert_eq!((arrived.offered, arrived.started + arrived.dropped), (150, 150), "{arrived:?}");
    assert_eq!(arrived.completed, arrived.started, "{arrived:?}");
    let accounted: usize = pipes.iter().map(|pipe| pipe.outcomes.lock().unwrap().len()).sum();
    assert_eq!(accounted as u64, arrived.started, "{arrived:?}");
}

#[test]
fn a_pipeline_s_warm_up_leaves_nothing_in_the_measurement() {
    let begun = OnceLock::new();
    let load = Load { warmup: Duration::from_millis(300), ..for_millis(200) };
    let (measurement, pipes) = pipe(load, 2, shape(10, true), move |flight| {
        let warm = !passed(&begun, 250);
        let attempt = || if warm { Attempt::Failed(Fault::answered("cold")) } else { Attempt::Ok };
        let end = |number| Completion { number, attempt: attempt() };
        (Duration::from_millis(5), flight.iter().copied().map(end).collect())
    });
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Failed), measurement.faults.len()), (0, 0));
    assert!(operation.count(Outcome::Ok) > 0);
    let accounted: Vec<Outcome> = pipes
        .iter()
        .flat_map(|pipe| pipe.outcomes.lock().unwrap().values().copied().collect::<Vec<_>>())
        .collect();
    assert!(accounted.contains(&Outcome::Failed), "yet all are accounted for");
    let ok = accounted.iter().filter(|outcome| **outcome == Outcome::Ok).count() as u64;
    assert!(operation.count(Outcome::Ok) < ok, "some of the warm-up were acknowledged too");
}

#[test]
fn pipelines_that_run_out_end_the_window_at_the_last_acknowledged_operation() {
    let few = Shape { draws: 20, ..shape(4, true) };
    let (measurement, _) = pipe(for_millis(60_000), 2, few, all_after(10));
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 40);
    let window = measurement.window.as_millis();
    assert!((50..100).contains(&window), "five times 10 ms, and some to send in, {window} ms");
    assert_eq!(measurement.stopped, None);
}

/// A client with a span: the time since a moment at its start.
struct Spanning {
    left: u64,
    took: Duration,
    begun: Instant,
}

impl Client for Spanning {
    type Operation = ();

    fn draw(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    fn kind((): &()) -> usize {
        0
    }

    fn changes(&self, (): &()) -> bool {
        true
    }

    async fn attempt(&mut self, (): &()) -> Attempt {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if self.left == 0 { Attempt::Refused } else { Attempt::Ok }
    }

    fn account(&mut self, (): (), outcome: Outcome) {
        self.took = if outcome == Outcome::Ok { self.begun.elapsed() } else { Duration::ZERO };
    }

    fn span(&mut self) -> Option<(usize, u64)> {
        (!self.took.is_zero()).then(|| (0, u64::try_from(self.took.as_nanos()).unwrap()))
    }

    async fn connect(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn spans_of_the_warm_up_are_not_the_measurement_s_and_a_refusal_s_wait_is_no_part_of_the_window() {
    let warmup = Duration::from_millis(100);
    let load = Load { warmup, spans: &["span"], ..for_millis(60_000) };
    let task: ClientTask = Box::new(|driver| {
        Box::pin(async {
            driver.drive(Spanning { left: 60, took: Duration::ZERO, begun: Instant::now() }).await;
        })
    });
    let measurement = simulated(load, vec![task]);
    let operation = &measurement.operations[0];
    assert_eq!(operation.count(Outcome::Refused), 1);
    assert_eq!(measurement.spans[0].times.len(), operation.count(Outcome::Ok));
    assert!(measurement.spans[0].times.min() >= 100_000_000, "{} ns", measurement.spans[0].times.min());
    assert!(operation.count(Outcome::Ok) < 59, "some were driven in the warm-up");
    // sixty times 5 ms, without the warm-up and the refusal
    assert!(measurement.window < Duration::from_millis(220), "{:?}", measurement.window);
}

/// A client that brings (on the schedule) or one that takes what others brought (not on the schedule).
struct Porter {
    brings: bool,
    brought: Arc<AtomicU64>,
}

impl Client for Porter {
    type Operation = usize;

    fn draw(&mut self) -> Option<usize> {
        Some(usize::from(!self.brings))
    }

    fn kind(operation: &usize) -> usize {
        *operation
    }

    /// What is taken is not kept any more, and what is brought is.
    fn changes(&self, operation: &usize) -> bool {
        *operation == 0
    }

    async fn attempt(&mut self, _: &usize) -> Attempt {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.brings {
            self.brought.fetch_add(1, SeqCst);
            return Attempt::Ok;
        }
        match self.brought.fetch_update(SeqCst, SeqCst, |there| there.checked_sub(1)) {
            Ok(_) => Attempt::Ok,
            Err(_) => Attempt::Refused,
        }
    }

    fn account(&mut self, _: usize, _: Outcome) {}

    async fn connect(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The load and the tasks of `bringing` clients that bring and `taking` clients that take.
fn porters_of(load: &Load, bringing: usize, taking: usize) -> (Load, Vec<ClientTask>) {
    let brought = Arc::new(AtomicU64::new(0));
    let task = |_| {
        let brought = Arc::clone(&brought);
        let task: ClientTask = Box::new(move |driver| {
            let brings = driver.index() < bringing;
            Box::pin(driver.drive(Porter { brings, brought }))
        });
        task
    };
    let load = Load { scheduled: Some(bringing), operations: &["bring", "take"], ..load.clone() };
    (load, (0..bringing + taking).map(task).collect())
}

fn porters(load: &Load, bringing: usize, taking: usize) -> Measurement {
    let (load, tasks) = porters_of(load, bringing, taking);
    Trial::new(load, bringing + taking).run(tasks).unwrap()
}

/// The rate is that of the clients on the schedule, whatever the number of threads that the others are on.
#[test]
fn a_rate_is_for_the_clients_on_the_schedule_alone() {
    for (threads, bringing, taking) in [(1, 1, 3), (2, 1, 5), (4, 2, 6), (3, 4, 1)] {
        // repeated until operations of both kinds have ended, which takes longer on a slow machine
        let mut offered = 50;
        let (operations, arrived) = loop {
            offered *= 2;
            let load = Load { arrivals: Arrivals::Constant(200.0), threads, ..for_millis(5 * offered) };
            let Measurement { operations, arrived, .. } = porters(&load, bringing, taking);
            if operations.iter().all(|operation| !operation.latency.is_empty()) {
                break (operations, arrived);
            }
            assert!(offered < 20_000, "{threads} threads: {arrived:?}, {operations:?}");
        };
        assert_eq!(arrived.offered, offered, "{threads} threads");
        assert_eq!(arrived.started + arrived.dropped, offered, "{threads} threads");
        let brought: u64 = Outcome::ALL.iter().map(|outcome| operations[0].count(*outcome)).sum();
        assert_eq!(brought, arrived.started, "{threads} threads");
        // operations that take are on no schedule, so they have no response times
        let due = |operation: &OperationStats| {
            operation.latency.values().map(|latency| latency.response.is_some()).collect::<BTreeSet<_>>()
        };
        assert_eq!([&operations[0], &operations[1]].map(due), [true, false].map(|is| BTreeSet::from([is])));
    }
}

/// As many are brought as asked for, and all of them are taken before the trial ends.
#[test]
fn a_number_of_operations_is_for_the_clients_on_the_schedule_alone() {
    for (bringing, taking) in [(3, 2), (1, 4)] {
        let load = Load { warmup: Duration::from_millis(20), ..operations(50) };
        let Measurement { operations, window, .. } = porters(&load, bringing, taking);
        assert_eq!(operations[0].count(Outcome::Ok), 50);
        assert!(operations[1].count(Outcome::Ok) >= 50, "those of the warm-up may be among them");
        assert!(window > Duration::ZERO);
    }
}

/// The rate of the scheduled clients is taken over the time that they took, however long the others go on.
#[test]
fn the_rate_of_a_number_of_operations_is_not_that_of_those_who_take_them() {
    let (load, tasks) = porters_of(&operations(60), 6, 1);
    let measurement = simulated(load, tasks);
    let [bring, take] = [&measurement.operations[0], &measurement.operations[1]];
    assert_eq!([bring, take].map(|each| each.count(Outcome::Ok)), [60, 60]);
    assert_eq!(take.lasted, measurement.window);
    // ten by each of six clients that bring, and sixty by the one that takes
    assert!(bring.lasted < measurement.window / 3, "{:?} of {:?}", bring.lasted, measurement.window);
    assert!(measurement.rate(bring) > measurement.rate(take) * 3.0);
}

/// On a paused clock twenty minutes pass in no time, and the same trial gives the same measurement again.
#[test]
fn a_simulated_trial_replays_exactly() {
    // some operations conflict, some are slow, and some are never answered
    let script = |attempt| match attempt % 23 {
        3 | 5 => Act::Answer(Attempt::Conflict),
        7 => Act::Never,
        rest => Act::After(Duration::from_millis(rest * 40), Attempt::Ok),
    };
    let replay = |seed| {
        let load = Load {
            warmup: Duration::from_mins(1),
            timeout: Duration::from_secs(2),
            arrivals: Arrivals::Poisson(5.0),
            seed,
            ..Load::closed(&["op"], Extent::Time(Duration::from_mins(20)))
        };
        let (measured, world) = simulate(load, 5, script);
        assert!(measured.window == Duration::from_mins(20) && measured.stopped.is_none());
        let times = measured.operations[0].ok().unwrap();
        let outcomes = world.outcomes.lock().unwrap().clone();
        (outcomes, measured.arrived, times.service.mean(), times.response().mean(), measured.reconnects)
    };
    let first = replay(1);
    assert_eq!(first, replay(1));
    assert_ne!(first.1, replay(2).1);
    assert!(first.0.len() > 4_000, "{}", first.0.len());
}

/// A client that never waits still lets simulated time pass.
#[test]
fn simulated_time_passes_although_nothing_takes_any() {
    let (measured, _) = simulate(for_millis(100), 3, |_| Act::Answer(Attempt::Ok));
    assert_eq!(measured.operations[0].count(Outcome::Ok), 300, "one a millisecond and client");
}

/// Only what changes something is something to keep.
#[test]
fn what_is_acknowledged_is_told_from_what_has_changed_something() {
    for brings in [true, false] {
        let task: ClientTask = Box::new(move |driver| {
            Box::pin(driver.drive(Porter { brings, brought: Arc::new(AtomicU64::new(100)) }))
        });
        let trial = Trial::new(Load { operations: &["bring", "take"], ..operations(20) }, 1);
        trial.clone().run(vec![task]).unwrap();
        let so_far = trial.so_far();
        assert!(so_far.last_acknowledged.is_some(), "{so_far:?}");
        assert_eq!(so_far.last_changed, so_far.last_acknowledged.filter(|_| brings));
    }
}
