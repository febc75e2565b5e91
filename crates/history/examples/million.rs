//! How long a history takes to check, and how much memory: `million [TRANSACTIONS] [LEVEL] [adya]`.
//!
//! Sixteen clients on ten lists and ten registers at a time run transactions of one to four operations. After 64 appends a fresh
//! list takes a list's place. LEVEL is what the simulated store keeps: `serializable` (the default), `snapshot` or `committed`.
//! The history is written to a file for each of two threads and checked from there. With `adya`, which takes either lists or
//! registers, the lists alone are checked, by both.

use std::{env, error::Error, fs, path::PathBuf, time::Instant};

use acidtest_history::{
    Files, Finding, Limits, Operation, Outcome, Source, Transaction, Writer, check, poisson_interval,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CLIENTS: u32 = 16;
const KEYS: usize = 10;
const APPENDS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Serializable,
    Snapshot,
    Committed,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let transactions = arguments.first().map_or(Ok(1_000_000), |count| count.parse())?;
    let level = match arguments.get(1).map(String::as_str) {
        None | Some("serializable") => Level::Serializable,
        Some("snapshot") => Level::Snapshot,
        Some("committed") => Level::Committed,
        Some(other) => return Err(format!("{other} is no level").into()),
    };
    let with_adya = arguments.get(2).is_some_and(|word| word == "adya");

    let folder = env::temp_dir().join(format!("acidtest-history-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let paths = [folder.join("0"), folder.join("1")];
    let result = measure(&paths, transactions, level, with_adya);
    fs::remove_dir_all(&folder)?;
    result
}

fn measure(
    paths: &[PathBuf],
    transactions: u32,
    level: Level,
    with_adya: bool,
) -> Result<(), Box<dyn Error>> {
    let mut writers = Vec::new();
    for path in paths {
        writers.push(Writer::new(fs::File::create_new(path)?, path, Limits::default())?);
    }
    let mut store = Store::new(level, !with_adya);
    let started = Instant::now();
    for _ in 0..transactions {
        let transaction = store.next_transaction();
        writers[transaction.session as usize % 2].write(&transaction)?;
    }
    for writer in writers {
        writer.finish()?;
    }
    drop(store);
    let bytes: u64 = paths.iter().map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len())).sum();
    println!("made and written in {:.2} s, {:.1} MB", started.elapsed().as_secs_f64(), bytes as f64 / 1e6);
    reset_peak();
    println!("memory before: {} MiB", peak());

    let (started, worked) = (Instant::now(), on_cpu());
    let report = check(&mut Files::new(paths.to_vec()), &[])?;
    let (elapsed, worked) = (started.elapsed().as_secs_f64(), on_cpu() - worked);
    println!("checked in {elapsed:.2} s, {worked:.2} s of them on a CPU, peak memory {} MiB", peak());
    println!("{} committed, {} aborted, exhaustive: {}", report.committed, report.aborted, report.exhaustive);
    for finding in &report.findings {
        let Finding { anomaly, count, is_at_least, .. } = finding;
        let (low, high) = poisson_interval(*count);
        let sure = match (is_at_least, anomaly.comes_in_clusters()) {
            (true, _) => "at least".to_owned(),
            (false, true) => "not independent".to_owned(),
            (false, false) => format!("{low:.1} to {high:.1}"),
        };
        println!("{anomaly}: {count} {} ({sure})", anomaly.unit());
    }
    for finding in report.findings.iter().take(3) {
        print!("\n{}", finding.example.text());
    }
    if with_adya {
        by_adya(paths)?;
    }
    Ok(())
}

/// Seconds that this thread has run so far, however busy the machine is with others.
fn on_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ran| ran.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Peak resident memory since the last reset, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) / 1024
}

fn reset_peak() {
    // where it is not allowed, the peak includes what was before
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn by_adya(paths: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    use adya::history::{Interner, Mop, Op, OpType, ReadValue, Scalar};
    reset_peak();
    let started = Instant::now();
    let mut interner = Interner::default();
    let mut events: Vec<(u64, Op)> = Vec::new();
    Files::new(paths.to_vec()).pass(&mut |transaction| {
        let mut id = |value: u64| interner.intern(Scalar::Int(i64::try_from(value).unwrap_or(i64::MAX)));
        let value: Vec<Mop> = transaction
            .operations
            .iter()
            .filter_map(|operation| {
                Some(match operation {
                    Operation::Append { key, value } | Operation::Write { key, value } => {
                        Mop::Append { key: id((*key).into()), value: id(*value) }
                    }
                    Operation::ReadList { key, values } => Mop::Read {
                        key: id((*key).into()),
                        value: ReadValue::List(values.iter().map(|&value| id(value)).collect()),
                    },
                    Operation::ReadRegister { key, .. } => {
                        Mop::Read { key: id((*key).into()), value: ReadValue::Nil }
                    }
                    Operation::Transfer { .. } => return None,
                })
            })
            .collect();
        let kind = if transaction.outcome == Outcome::Committed { OpType::Ok } else { OpType::Fail };
        let process = Some(transaction.session.into());
        let op = |kind, value| Op { index: 0, kind, process, value, time: None };
        events.push((transaction.start, op(OpType::Invoke, value.clone())));
        events.push((transaction.end.unwrap_or(u64::MAX), op(kind, value)));
    })?;
    events.sort_by_key(|(time, _)| *time);
    let ops = events.into_iter().zip(0..).map(|((_, op), index)| Op { index, ..op }).collect();
    let history = adya::History::from_ops(ops, interner);
    println!("\nadya: read in {:.2} s", started.elapsed().as_secs_f64());
    let (started, worked) = (Instant::now(), on_cpu());
    let report = adya::check(&history, adya::Workload::ListAppend, &adya::Opts::default());
    let (elapsed, worked) = (started.elapsed().as_secs_f64(), on_cpu() - worked);
    println!("adya: checked in {elapsed:.2} s, {worked:.2} s of them on a CPU, peak memory {} MiB", peak());
    for (kind, found) in &report.anomalies {
        println!("adya: {kind}: {}", found.len());
    }
    Ok(())
}

struct Object {
    key: u32,
    /// What was committed, with the version that did it.
    versions: Vec<(u64, u64)>,
}

impl Object {
    fn fresh(key: u32) -> Self {
        Self { key, versions: Vec::new() }
    }

    fn at(&self, snapshot: u64) -> Vec<u64> {
        self.versions
            .iter()
            .take_while(|(version, _)| *version <= snapshot)
            .map(|(_, value)| *value)
            .collect()
    }

    fn changed(&self) -> u64 {
        self.versions.last().map_or(0, |(version, _)| *version)
    }
}

/// Each client has a transaction open, which began some transactions ago; one after another ends.
struct Store {
    level: Level,
    registers: bool,
    random: Xoshiro256PlusPlus,
    lists: Vec<Object>,
    register: Vec<Object>,
    version: u64,
    clock: u64,
    next_key: u32,
    next_value: u64,
    clients: Vec<(u32, u64, u64)>,
}

impl Store {
    fn new(level: Level, registers: bool) -> Self {
        Self {
            level,
            registers,
            random: Xoshiro256PlusPlus::seed_from_u64(46),
            lists: (0..10).map(Object::fresh).collect(),
            register: (0..10).map(Object::fresh).collect(),
            version: 0,
            clock: 1000,
            next_key: 10,
            next_value: 1,
            clients: vec![(0, 0, 0); CLIENTS as usize],
        }
    }

    fn next_transaction(&mut self) -> Transaction {
        let session = self.random.random_range(0..CLIENTS);
        let (sequence, start, snapshot) = self.clients[session as usize];
        let mut operations = Vec::new();
        let mut written: Vec<(bool, usize, u64)> = Vec::new();
        let mut conflict = false;
        for _ in 0..self.random.random_range(1..=4) {
            let at = self.random.random_range(0..KEYS);
            let is_list = !self.registers || self.random.random_range(0..2) == 0;
            let write = self.random.random_range(0..2) == 0;
            if written.iter().any(|&(list, other, _)| (list, other) == (is_list, at)) {
                continue;
            }
            let object = if is_list { &self.lists[at] } else { &self.register[at] };
            // read committed: somewhere between the snapshot and now
            let seen = match self.level {
                Level::Committed => self.random.random_range(snapshot..=self.version),
                Level::Serializable | Level::Snapshot => snapshot,
            };
            conflict |= match self.level {
                Level::Serializable => object.changed() > snapshot,
                Level::Snapshot => write && object.changed() > snapshot,
                Level::Committed => false,
            };
            let values = object.at(seen);
            let (key, value) = (object.key, self.next_value);
            operations.push(if is_list {
                Operation::ReadList { key, values }
            } else {
                Operation::ReadRegister { key, value: values.last().copied() }
            });
            if write {
                self.next_value += 1;
                written.push((is_list, at, value));
                operations.push(if is_list {
                    Operation::Append { key, value }
                } else {
                    Operation::Write { key, value }
                });
            }
        }
        self.clock += 1000;
        if !conflict {
            self.version += 1;
            for (is_list, at, value) in written {
                self.install(is_list, at, value);
            }
        }
        // the next transaction of this client begins at once
        self.clients[session as usize] = (sequence + 1, self.clock + 500, self.version);
        let outcome = if conflict { Outcome::Aborted } else { Outcome::Committed };
        let end = Some(self.clock + 100);
        Transaction { session, sequence, start, end, outcome, operations, total: None }
    }

    fn install(&mut self, is_list: bool, at: usize, value: u64) {
        let object = if is_list { &mut self.lists[at] } else { &mut self.register[at] };
        object.versions.push((self.version, value));
        if is_list && object.versions.len() >= APPENDS {
            *object = Object::fresh(self.next_key);
            self.next_key += 1;
        } else if !is_list && object.versions.len() > 1000 {
            object.versions.drain(..500);
        }
    }
}
