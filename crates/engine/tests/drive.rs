//! The engine against clients that do what stores do: answer, refuse, conflict, hang, die.

#![allow(clippy::unwrap_used)] // a test's own set-up may panic

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{
    Arrivals, Attempt, Client, ClientTask, Extent, Fault, Load, Measurement, OnRefused, Outcome, Stop, Trial,
};

/// What a scripted store does with an attempt, given how many there were before it.
type Script = dyn Fn(u64) -> Act + Send + Sync;

enum Act {
    Answer(Attempt),
    After(Duration, Attempt),
    Never,
}

#[derive(Default)]
struct World {
    attempts: AtomicU64,
    connections: AtomicU64,
    refuses_connections: AtomicBool,
    outcomes: Mutex<Vec<Outcome>>,
    /// Operations by client.
    turns: Mutex<BTreeMap<usize, u64>>,
}

struct Scripted {
    index: usize,
    world: Arc<World>,
    script: Arc<Script>,
    /// Whether an attempt is under way: at most one is.
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
        self.busy.replace(false);
        self.world.connections.fetch_add(1, SeqCst);
        Ok(())
    }
}

fn tasks(clients: usize, world: &Arc<World>, script: &Arc<Script>) -> Vec<ClientTask> {
    (0..clients)
        .map(|_| {
            let (world, script) = (Arc::clone(world), Arc::clone(script));
            let task: ClientTask = Box::new(move |seat| {
                let index = seat.index();
                Box::pin(seat.drive(Scripted { index, world, script, busy: RefCell::new(false) }))
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
    let world = Arc::new(World::default());
    let script: Arc<Script> = Arc::new(script);
    let measurement = Trial::new(load, clients).run(tasks(clients, &world, &script)).unwrap();
    (measurement, world)
}

fn for_millis(millis: u64) -> Load {
    Load::closed(&["op"], Extent::Time(Duration::from_millis(millis)))
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

#[test]
fn a_warm_up_is_driven_and_leaves_nothing_in_the_measurement() {
    // for most of the warm-up the store refuses, later it does not: a refusal in the measurement is
    // one that leaked
    let begun = Instant::now();
    let load = Load { warmup: Duration::from_millis(300), ..for_millis(200) };
    let (measurement, world) = drive(load, 4, move |_| {
        let warm = begun.elapsed() < Duration::from_millis(250);
        Act::After(Duration::from_millis(5), if warm { Attempt::Refused } else { Attempt::Ok })
    });
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Refused), operation.refusals), (0, 0));
    assert!(operation.count(Outcome::Ok) > 0);
    assert!(world.outcomes.lock().unwrap().contains(&Outcome::Refused), "yet all are accounted for");
}

#[test]
fn faults_of_the_warm_up_are_not_the_measurement_s() {
    let begun = Instant::now();
    let load = Load { warmup: Duration::from_millis(300), ..for_millis(200) };
    let (measurement, world) = drive(load, 2, move |_| {
        let warm = begun.elapsed() < Duration::from_millis(200);
        let lost = Attempt::Unknown(Fault::lost("cold"));
        Act::After(Duration::from_millis(5), if warm { lost } else { Attempt::Ok })
    });
    assert!(world.connections.load(SeqCst) > 2, "connections were lost");
    assert_eq!((measurement.reconnects, measurement.faults.len()), (0, 0));
}

#[test]
fn a_stall_to_the_end_is_a_row_of_zeros_a_second() {
    let load = Load { timeout: Duration::from_millis(2500), ..for_millis(2000) };
    let (measurement, _) = drive(load, 1, |attempt| match attempt {
        0 => Act::Answer(Attempt::Ok),
        _ => Act::Never,
    });
    assert!(measurement.series.len() >= 2, "{:?}", measurement.series);
    assert_eq!(measurement.series[1].counts[0].iter().sum::<u64>(), 0);
}

#[test]
fn an_open_loop_s_warm_up_backlog_is_not_measured() {
    // hopeless while warming up: 1,000 a second offered to one client that needs 20 ms each
    let begun = Instant::now();
    let load =
        Load { warmup: Duration::from_millis(400), arrivals: Arrivals::Constant(1000.0), ..for_millis(200) };
    let (measurement, _) = drive(load, 1, move |_| {
        if begun.elapsed() < Duration::from_millis(380) {
            Act::After(Duration::from_millis(20), Attempt::Ok)
        } else {
            Act::Answer(Attempt::Ok)
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
    // the first operation meets two conflicts, the second nothing else
    let (measurement, _) =
        drive(load, 1, |attempt| Act::Answer(if attempt == 2 { Attempt::Ok } else { Attempt::Conflict }));
    let operation = &measurement.operations[0];
    assert_eq!((operation.count(Outcome::Ok), operation.count(Outcome::Conflict)), (1, 1));
    assert_eq!(operation.conflicts, 2 + 4, "each attempt that lost counts");
    assert_eq!(operation.retries, 2 + 3);
}

#[test]
fn a_retried_operation_s_time_covers_all_its_attempts_and_waits() {
    let load = Load { on_refused: OnRefused::Retry(Duration::from_millis(5)), ..operations(1) };
    let (measurement, _) = drive(load, 1, |attempt| match attempt {
        0..3 => Act::Answer(Attempt::Refused),
        _ => Act::Answer(Attempt::Ok),
    });
    let service = &measurement.operations[0].ok().unwrap().service;
    assert!(service.min() >= 15_000_000, "three waits of 5 ms, {} ns", service.min());
    assert_eq!(measurement.operations[0].refusals, 3);
}

#[test]
fn a_refusal_that_never_ends_is_refused_not_unknown() {
    let load = Load {
        on_refused: OnRefused::Retry(Duration::from_millis(5)),
        timeout: Duration::from_millis(60),
        ..operations(1)
    };
    let (measurement, _) = drive(load, 1, |_| Act::Answer(Attempt::Refused));
    assert_eq!(measurement.operations[0].count(Outcome::Refused), 1);
    assert_eq!(measurement.reconnects, 0);
}

#[test]
fn at_overload_nothing_is_hidden() {
    // 400 a second offered to two clients that manage 200
    let load = Load { arrivals: Arrivals::Constant(400.0), ..for_millis(1000) };
    let (measurement, _) = drive(load, 2, ok_after(10));
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

#[test]
fn an_open_loop_under_its_capacity_starts_on_time() {
    let load = Load { arrivals: Arrivals::Poisson(500.0), ..for_millis(1000) };
    let (measurement, _) = drive(load, 8, |_| Act::Answer(Attempt::Ok));
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
    let measurement = Trial::new(load, 2).run(tasks(2, &world, &script)).unwrap();
    assert_eq!(measurement.stopped, Some(Stop::ServerGone("connection refused".to_owned())));
    assert_eq!(measurement.operations[0].count(Outcome::Ok), 100);
    assert_eq!(measurement.operations[0].count(Outcome::Unknown), 2);
    assert!(measurement.window < Duration::from_secs(10));
}

#[test]
fn a_failure_that_keeps_its_connection_is_no_reconnect() {
    let (measurement, world) = drive(operations(10), 1, |attempt| {
        Act::Answer(if attempt == 3 { Attempt::Failed(Fault::answered("constraint")) } else { Attempt::Ok })
    });
    assert_eq!(measurement.operations[0].count(Outcome::Failed), 1);
    assert_eq!((measurement.reconnects, world.connections.load(SeqCst)), (0, 1));
}

#[test]
fn a_trial_is_stopped_while_operations_hang() {
    let world = Arc::new(World::default());
    let script: Arc<Script> = Arc::new(|_| Act::Never);
    let trial = Trial::new(Load { timeout: Duration::from_mins(1), ..for_millis(60_000) }, 4);
    let begun = Instant::now();
    let watched = trial.clone();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        watched.stop(Stop::Interrupted);
        watched.give_up();
    });
    let measurement = trial.run(tasks(4, &world, &script)).unwrap();
    stopper.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(measurement.stopped, Some(Stop::Interrupted));
    assert_eq!(measurement.operations[0].count(Outcome::Unknown), 4);
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
    let (measurement, world) = drive(Load { threads: 1, ..for_millis(200) }, 3, |_| Act::Answer(Attempt::Ok));
    let turns = world.turns.lock().unwrap();
    let fewest = turns.values().min().copied().unwrap_or(0);
    assert_eq!(turns.len(), 3);
    assert!(fewest * 10 > measurement.arrived.completed, "{turns:?}");
}
