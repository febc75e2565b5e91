//! Made-up results for tests: nothing in them was measured.

pub mod search;

use std::{collections::BTreeMap, time::Duration};

use acidtest_engine::Histogram;
use acidtest_model::{
    Consistency, Durability, EffectiveReplication, EffectiveSettings, Lock, Reads, Replication, Route, Span,
};
use acidtest_observe::{Machine, MachineUse, MemoryKind, ProcessUse, Resources};
use acidtest_workloads::{Audit, Finding, Preparation, Spread, Staleness, Values, Verdict, guarantee::LOCK};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    ArrivalFigures, CellResult, DataFigures, FORMAT, GaugeFigures, Harness, LatencyFigures, OperationFigures,
    Plan, RunResult, SecondFigures, SpanFigures, TrialResult,
};

/// A grid to make a result of: every store with every lock mode and number of clients.
#[derive(Clone, Copy)]
pub struct Grid<'a> {
    pub stores: &'a [&'a str],
    pub locks: &'a [Lock],
    pub durability: &'a [Durability],
    pub clients: &'a [u32],
    /// Values of the parameter `transaction`.
    pub transactions: &'a [u32],
    /// Trials of each cell.
    pub trials: u32,
    /// Length of a trial, in seconds.
    pub seconds: u32,
}

impl Default for Grid<'_> {
    fn default() -> Self {
        Self {
            stores: &["sqlite"],
            locks: &[Lock::None, Lock::Native],
            durability: &[Durability::Disk],
            clients: &[8],
            transactions: &[1],
            trials: 3,
            seconds: 10,
        }
    }
}

impl Grid<'_> {
    /// A grid of 96 cells and 480 trials.
    pub const LARGE: Self = Self {
        stores: &["sqlite", "postgres"],
        locks: &Lock::ALL,
        durability: &[Durability::None, Durability::Process, Durability::Disk],
        clients: &[1, 4],
        transactions: &[1, 10],
        trials: 5,
        seconds: 1,
    };

    /// Makes the result, with prices. Cells with lock none are broken, all others hold; native is slower by a fifth,
    /// hard by half; throughput follows the scalability law with σ 0.05 and κ 0.001.
    pub fn result(&self) -> RunResult {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut cells = Vec::new();
        for store in self.stores {
            for durability in self.durability {
                for transaction in self.transactions {
                    for clients in self.clients {
                        for lock in self.locks {
                            cells.push(self.cell(
                                store,
                                *lock,
                                *durability,
                                *clients,
                                *transaction,
                                &mut random,
                            ));
                        }
                    }
                }
            }
        }
        let plan = Plan {
            stores: self.stores.iter().map(ToString::to_string).collect(),
            locks: self.locks.to_vec(),
            durability: self.durability.to_vec(),
            clients: self.clients.to_vec(),
            trials: self.trials,
            duration: Span(Duration::from_secs(u64::from(self.seconds))),
            ..Plan::of("inventory")
        };
        let mut result = RunResult {
            format: FORMAT,
            run: "20261122T000000Z-1".to_owned(),
            acidtest: "0.1.0".to_owned(),
            started: "2026-11-22T00:00:00Z".to_owned(),
            finished: "2026-11-22T00:10:00Z".to_owned(),
            interrupted: false,
            plan,
            machine: Machine {
                cpu: "Sample CPU".to_owned(),
                cores: 16,
                memory_bytes: 1 << 34,
                kernel: "6.12".to_owned(),
                filesystem: "ext4".to_owned(),
            },
            harness: Harness {
                nanoseconds_per_operation: 250.0,
                operations: 100_000,
                cores: 16,
                unit: "a capture or release".to_owned(),
                windows: None,
            },
            cells,
            left_out: Vec::new(),
        };
        result.price().unwrap();
        result
    }

    fn cell(
        &self,
        store: &str,
        lock: Lock,
        durability: Durability,
        clients: u32,
        transaction: u32,
        random: &mut Xoshiro256PlusPlus,
    ) -> CellResult {
        let n = f64::from(clients);
        let scaled = 1_000.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.001 * n * (n - 1.0));
        let cost = match lock {
            Lock::None => 1.0,
            Lock::Soft => 0.7,
            Lock::Hard => 0.5,
            Lock::Native => 0.8,
        };
        let sync = if durability == Durability::Disk { 0.25 } else { 1.0 };
        let throughput = scaled * cost * sync * f64::from(transaction).sqrt();
        CellResult {
            store: store.to_owned(),
            title: store.to_uppercase(),
            address: None,
            embedded: store == "sqlite",
            lock,
            lock_how: "statements".to_owned(),
            host_round_trip_ns: None,
            threads: Some(clients.min(16)),
            decides: true,
            without: if lock.promises() { Vec::new() } else { vec!["lock".to_owned()] },
            durability_asked: Some(durability),
            tls: acidtest_model::Encryption::Off,
            nodes: 1,
            replication: Replication::None,
            replication_read: None,
            reads: Reads::Leader,
            route: Route::Pinned,
            consistency: Consistency::Eventual,
            faults: acidtest_model::Faults::default(),
            clients,
            scheduled: None,
            rate: None,
            parameters: Values::from_iter([
                ("items".to_owned(), 1000.into()),
                ("transaction".to_owned(), transaction.into()),
            ]),
            headline: "1,000 tuples".to_owned(),
            effective: Some(EffectiveSettings {
                version: "1.0 <beta>".to_owned(),
                durability: durability.into(),
                because: "sync = on".to_owned(),
                settings: BTreeMap::from([("sync".to_owned(), "on".to_owned())]),
                tls: None,
            }),
            trials: (1..=self.trials).map(|round| self.trial(round, lock, throughput, n, random)).collect(),
            mean: None,
            steadiness: None,
            capacity: None,
            prices: Vec::new(),
            error: None,
        }
    }

    fn trial(
        &self,
        round: u32,
        lock: Lock,
        throughput: f64,
        clients: f64,
        random: &mut Xoshiro256PlusPlus,
    ) -> TrialResult {
        let mut noisy =
            |value: f64, share: f64| value * (1.0 + share * (random.random_range(0.0..2.0) - 1.0));
        let throughput = noisy(throughput, 0.03);
        let mean = clients / throughput * 1e9;
        let mut operation = |name: &str, share: f64| OperationFigures {
            name: name.to_owned(),
            ok_per_second: throughput * share,
            conflicts: 12,
            refusals: 3,
            retries: 15,
            conflict_ns: 0,
            refusal_ns: 0,
            lock_wait_ns: 0,
            service: BTreeMap::from([("ok".to_owned(), times(mean, |value| noisy(value, 0.5)))]),
            response: BTreeMap::new(),
        };
        let operations = vec![operation("capture", 0.5), operation("release", 0.5)];
        let series = (0..u64::from(self.seconds)).map(|second| SecondFigures {
            second,
            ended: BTreeMap::from([(
                "capture".to_owned(),
                BTreeMap::from([("ok".to_owned(), whole(noisy(throughput, 0.1)))]),
            )]),
            p50_ns: whole(mean),
            p99_ns: whole(noisy(mean * 3.0, 0.2)),
            max_ns: whole(noisy(mean * 9.0, 0.5)),
        });
        let process = |cpu: f64| ProcessUse {
            processes: 1,
            cpu_seconds: cpu * f64::from(self.seconds),
            cpu_mean: cpu,
            cpu_max: cpu * 1.2,
            memory_mean_bytes: 1 << 24,
            memory_max_bytes: 1 << 25,
            memory_kind: MemoryKind::Proportional,
            read_bytes: Some(0),
            written_bytes: Some(1 << 20),
        };
        let broken = lock == Lock::None;
        TrialResult {
            counted: Vec::new(),
            spans: Vec::new(),
            gauge: None,
            limits: BTreeMap::new(),
            size: None,
            staleness: None,
            round,
            session: 1,
            rate: None,
            data: DataFigures {
                rows: 1_000,
                load_seconds: (round == 1).then_some(0.25),
                left_by: (round > 1).then_some(round - 1),
            },
            took_seconds: f64::from(self.seconds),
            seconds: f64::from(self.seconds),
            served_seconds: None,
            throughput,
            operations,
            series: series.collect(),
            arrived: ArrivalFigures { offered: 100, started: 100, completed: 100, late: 0, dropped: 0 },
            reconnects: 0,
            connect_ns: None,
            faults: BTreeMap::new(),
            audit: audit(broken),
            remarks: Preparation {
                first_ns: BTreeMap::from([("capture".to_owned(), 2_500_000 + u64::from(round))]),
                plans: BTreeMap::from([(
                    "capture".to_owned(),
                    "Index Scan <on> stock\n  Cond: (id = 1)".to_owned(),
                )]),
            },
            resources: Resources {
                seconds: f64::from(self.seconds),
                samples: 40,
                client: process(0.5),
                server: Some(process(1.5)),
                others: BTreeMap::new(),
                machine: MachineUse {
                    cpu_mean: 2.0,
                    cpu_max: 2.5,
                    cores: 16,
                    steal_mean: None,
                    pressure_cpu_some: Some(1.0),
                    pressure_io_some: Some(20.0),
                    pressure_io_full: None,
                    pressure_memory_some: Some(0.0),
                    pressure_memory_full: None,
                    written_bytes: None,
                },
            },
            stopped: None,
            injections: Vec::new(),
            restarts: Vec::new(),
            server_log: Vec::new(),
        }
    }
}

/// A queue's result: three ways to publish, each with transient and persistent messages, at the given rates in
/// messages a second.
pub fn queue(rates: [(&str, bool, f64); 6]) -> RunResult {
    let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
    let model = result.cells.remove(0);
    for (ack, persistent, published) in rates {
        let mut cell = model.clone();
        cell.store = "rabbitmq".to_owned();
        cell.lock = Lock::None;
        cell.decides = false;
        cell.without = if ack == "none" { vec!["delivery".to_owned()] } else { Vec::new() };
        cell.durability_asked = None;
        cell.headline = "messages of 128 B".to_owned();
        cell.parameters =
            Values::from_iter([("ack".to_owned(), ack.into()), ("persistent".to_owned(), persistent.into())]);
        for trial in &mut cell.trials {
            let consumed = published.min(1_500.0);
            trial.counted = vec!["consume".to_owned()];
            trial.throughput = consumed;
            for (operation, (name, rate)) in
                trial.operations.iter_mut().zip([("publish", published), ("consume", consumed)])
            {
                operation.name = name.to_owned();
                operation.ok_per_second = rate;
            }
            trial.spans = vec![SpanFigures { name: "delivery".to_owned(), times: times(5e6, |value| value) }];
            trial.gauge = Some(GaugeFigures { name: "depth".to_owned(), each_second: vec![0, 70, 30] });
            trial.audit.evidence = BTreeMap::from([("redelivered".to_owned(), 2)]);
            trial.remarks = Preparation::default();
            trial.data.rows = 0;
        }
        result.cells.push(cell);
    }
    result.plan.workload = "queue".to_owned();
    result.price().unwrap();
    result
}

/// Records in clusters of three nodes: one whose leader answers reads, and three whose replicas do: eventual by either route, and
/// strong. A read in fifty is stale at those that are eventual, and none at the one that is strong.
pub fn reads_at_replicas() -> RunResult {
    let mut result = Grid { stores: &["postgres"], locks: &[Lock::Native], ..Grid::default() }.result();
    let model = result.cells.remove(0);
    let cell = |reads, route, consistency, throughput: f64| {
        let because = "synchronous_standby_names = ANY 2 (…)".to_owned();
        let read = EffectiveReplication { level: Replication::All, because, following: 2, consistency };
        let mut cell = CellResult { nodes: 3, replication: Replication::All, reads, ..model.clone() };
        (cell.route, cell.consistency, cell.replication_read) = (route, consistency, Some(read));
        cell.parameters = Values::from_iter([("mix".to_owned(), "b".into())]);
        cell.headline = "1,000 records".to_owned();
        for trial in &mut cell.trials {
            trial.throughput *= throughput;
            trial.staleness = (!reads.is_leader()).then(|| staleness(reads, consistency, trial.round));
            trial.operations[0].name = "read".to_owned();
            trial.operations[1].name = "update".to_owned();
        }
        cell
    };
    result.cells = vec![
        cell(Reads::Leader, Route::Pinned, Consistency::Eventual, 1.0),
        cell(Reads::Replica, Route::Pinned, Consistency::Eventual, 1.8),
        cell(Reads::Any, Route::Spread, Consistency::Eventual, 2.0),
        cell(Reads::Any, Route::Spread, Consistency::Strong, 1.2),
    ];
    result.plan.workload = "records".to_owned();
    result.price().unwrap();
    result
}

fn staleness(reads: Reads, consistency: Consistency, round: u32) -> Staleness {
    let round = u64::from(round);
    let at_leader = if reads == Reads::Any { 17_000 } else { 0 };
    let reads = Staleness { reads: 50_000, at_leader, ..Staleness::default() };
    if consistency == Consistency::Strong {
        return reads;
    }
    let spread = |p50: f64| Spread { p50, p99: p50 * 7.0, max: p50 * 20.0 * round as f64 };
    Staleness {
        stale: 1_000 + round,
        versions: Some(spread(1.0)),
        milliseconds: Some(spread(1.5)),
        own_writes_missed: 4 * round,
        went_back: round,
        ..reads
    }
}

/// The audit of a trial that holds, or is broken.
fn audit(broken: bool) -> Audit {
    Audit {
        verdict: if broken { Verdict::Broken } else { Verdict::Holds },
        reason: None,
        findings: vec![Finding::new("oversold", if broken { 5 } else { 0 }, "units", LOCK)],
        evidence: BTreeMap::from([("initial".to_owned(), 5_000)]),
        ..Audit::unknown("a sample")
    }
}

/// A distribution of a thousand times around a mean.
fn times(mean: f64, mut noisy: impl FnMut(f64) -> f64) -> LatencyFigures {
    let mut histogram = Histogram::new_with_bounds(1, 1 << 24, 3).unwrap();
    histogram.auto(true);
    for place in 1..=1_000_u32 {
        // a long tail: the last ones take ten times as long
        let tail = 1.0 / (1.001 - f64::from(place) / 1_000.0).powf(0.35);
        histogram.record(whole(noisy(mean * 0.7 * tail)).max(1)).unwrap();
    }
    LatencyFigures::of(&histogram)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a time or a count
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// A series with so many operations that ended so in each second.
pub fn series(counts: &[(&str, u64)]) -> Vec<SecondFigures> {
    let of = |(second, (outcome, count)): (usize, &(&str, u64))| SecondFigures {
        second: second as u64,
        ended: [("capture".to_owned(), [((*outcome).to_owned(), *count)].into())].into(),
        p50_ns: 1,
        p99_ns: 1,
        max_ns: 1,
    };
    counts.iter().enumerate().map(of).collect()
}
