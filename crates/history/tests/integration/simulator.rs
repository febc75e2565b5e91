//! A store in memory at each level of isolation, with bugs that can be planted, and the history that its clients remember.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_history::{History, Operation, Outcome, Total, Transaction};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Reads from a snapshot; refused at commit if anything that was read has changed.
    Serializable,
    /// Reads from a snapshot; refused at commit if anything that is written has changed.
    Snapshot,
    /// Reads from a snapshot, but writes on top of what is there, as `InnoDB` does.
    WeakRepeatable,
    /// Reads what was committed last.
    ReadCommitted,
    /// Reads what was written last.
    ReadUncommitted,
}

impl Level {
    pub(crate) const ALL: [Self; 5] = [
        Self::Serializable,
        Self::Snapshot,
        Self::WeakRepeatable,
        Self::ReadCommitted,
        Self::ReadUncommitted,
    ];

    fn locks(self) -> bool {
        !matches!(self, Self::Serializable | Self::Snapshot)
    }
}

/// What goes wrong now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Commits are not refused because of what was read.
    UncheckedReads,
    /// Nor because of what was written, and appends go on top of what is there.
    UncheckedWrites,
    /// A read sees beyond the snapshot.
    TornSnapshot,
    /// A snapshot is old.
    OldSnapshot,
    /// A commit takes effect in two steps.
    TornCommit,
    /// What was aborted takes effect.
    VisibleAbort,
    /// What is committed is seen without what was written last.
    IntermediateVisible,
    /// A transaction does not see its own writes.
    OwnWritesHidden,
    /// A value is appended twice.
    AppendedTwice,
    /// A value that nobody wrote comes up.
    Garbage,
    /// Appends of concurrent transactions come in another order in each list.
    UnlockedWrites,
    /// The total is not that of the snapshot.
    WrongTotal,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) level: Level,
    pub(crate) bug: Option<Bug>,
    pub(crate) clients: usize,
    pub(crate) transactions: usize,
    pub(crate) keys: u32,
    pub(crate) lists: bool,
    pub(crate) registers: bool,
    /// Share of the transactions whose outcome stays unknown.
    pub(crate) unknown: f64,
    pub(crate) aborted: f64,
    /// All objects are read in the end, when nothing is open any more.
    pub(crate) last_reads: bool,
    pub(crate) seed: u64,
}

/// Whether a list, and its number.
type Place = (bool, u32);
type Versions = BTreeMap<Place, Vec<(u64, Vec<u64>)>>;

#[derive(Clone, Copy)]
enum Step {
    Read(Place),
    /// Reads before it writes, in a step of its own.
    Write(Place),
}

struct Open {
    transaction: Transaction,
    steps: Vec<Step>,
    at: usize,
    snapshot: u64,
    /// What it sees of objects that it wrote, and what it wrote there.
    view: BTreeMap<Place, Vec<u64>>,
    wrote: BTreeMap<Place, Vec<u64>>,
    read: BTreeSet<Place>,
    waited: usize,
    /// Sees and installs what its bug makes it.
    buggy: bool,
}

struct Simulator {
    plan: Plan,
    random: Xoshiro256PlusPlus,
    versions: Versions,
    clock: u64,
    version: u64,
    next: u64,
    /// Which transaction holds the lock of an object.
    locks: BTreeMap<Place, u64>,
    running: Vec<Option<(u64, Open)>>,
    /// Transactions without an answer, which may still take effect.
    pending: Vec<(u64, Open)>,
    sessions: Vec<(u32, u32)>,
    next_session: u32,
    next_number: u64,
    started: usize,
    done: Vec<Transaction>,
    /// What torn commits still have to install.
    late: Vec<(Place, Vec<u64>)>,
}

pub(crate) fn simulate(plan: Plan) -> History {
    let clients = u32::try_from(plan.clients).unwrap();
    let mut simulator = Simulator {
        plan,
        random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
        versions: Versions::new(),
        clock: 0,
        version: 0,
        next: 1,
        locks: BTreeMap::new(),
        running: (0..plan.clients).map(|_| None).collect(),
        pending: Vec::new(),
        sessions: (0..clients).map(|session| (session, 0)).collect(),
        next_session: clients,
        next_number: 0,
        started: 0,
        done: Vec::new(),
        late: Vec::new(),
    };
    while simulator.started < plan.transactions || simulator.running.iter().any(Option::is_some) {
        simulator.go_on();
    }
    for (place, values) in std::mem::take(&mut simulator.late) {
        simulator.install(place, &values);
    }
    if plan.last_reads {
        simulator.read_all();
    }
    History { transactions: simulator.done, left_out: 0 }
}

impl Simulator {
    fn chance(&mut self, share: f64) -> bool {
        self.random.random::<f64>() < share
    }

    fn bug(&self, bug: Bug, open: &Open) -> bool {
        open.buggy && self.plan.bug == Some(bug)
    }

    fn go_on(&mut self) {
        self.clock += 1;
        if !self.pending.is_empty() && self.chance(0.1) {
            let (number, open) = self.pending.swap_remove(0);
            if self.chance(0.5) {
                self.commit(&open);
            }
            self.locks.retain(|_, holder| *holder != number);
        }
        if !self.late.is_empty() && self.chance(0.1) {
            let (place, values) = self.late.remove(0);
            self.install(place, &values);
        }
        let client = self.random.random_range(0..self.plan.clients);
        match self.running[client].take() {
            None if self.started < self.plan.transactions => self.begin(client),
            None => {}
            Some((number, open)) => self.step(client, number, open),
        }
    }

    fn read_all(&mut self) {
        let end = self.clock * 2 + 2;
        let operations = self.versions.keys().map(|&(is_list, key)| {
            let values = self.at((is_list, key), u64::MAX);
            if is_list {
                Operation::ReadList { key, values }
            } else {
                Operation::ReadRegister { key, value: values.first().copied() }
            }
        });
        self.done.push(Transaction {
            session: self.next_session,
            sequence: 0,
            start: end,
            end: Some(end + 1),
            outcome: Outcome::Committed,
            operations: operations.collect(),
            total: None,
        });
    }

    fn place(&mut self) -> Place {
        let is_list = self.plan.lists && (!self.plan.registers || self.chance(0.5));
        (is_list, self.random.random_range(0..self.plan.keys))
    }

    fn begin(&mut self, client: usize) {
        self.started += 1;
        let mut steps = Vec::new();
        for _ in 0..self.random.random_range(1..=4) {
            let place = self.place();
            // registers are read once, as the other checker looks at the first read alone
            let first = steps.iter().all(|step| !matches!(step, Step::Read(other) if *other == place));
            let share = if !place.0 {
                1.0
            } else if first {
                0.8
            } else {
                0.3
            };
            if (first || place.0) && self.chance(share) {
                steps.push(Step::Read(place));
            }
            if self.chance(0.5) {
                steps.push(Step::Write(place));
            }
        }
        let (session, sequence) = self.sessions[client];
        self.sessions[client].1 += 1;
        let transaction = Transaction {
            session,
            sequence,
            start: self.clock * 2,
            end: None,
            outcome: Outcome::Unknown,
            operations: Vec::new(),
            total: None,
        };
        let buggy = self.plan.bug.is_some() && self.chance(0.4);
        let mut open = Open {
            transaction,
            steps,
            at: 0,
            snapshot: self.version,
            view: BTreeMap::new(),
            wrote: BTreeMap::new(),
            read: BTreeSet::new(),
            waited: 0,
            buggy,
        };
        if self.bug(Bug::OldSnapshot, &open) {
            open.snapshot = open.snapshot.saturating_sub(self.random.random_range(1..5));
            open.steps.retain(|step| matches!(step, Step::Read(_)));
        }
        if self.chance(0.1) {
            let observed = 100 - i64::from(self.bug(Bug::WrongTotal, &open));
            open.transaction.total = Some(Total { observed, expected: 100, after_write: false });
        }
        self.next_number += 1;
        self.running[client] = Some((self.next_number, open));
    }

    fn at(&self, place: Place, snapshot: u64) -> Vec<u64> {
        let versions = self.versions.get(&place).into_iter().flatten();
        versions
            .rev()
            .find(|(version, _)| *version <= snapshot)
            .map(|(_, values)| values.clone())
            .unwrap_or_default()
    }

    fn changed_since(&self, place: Place, snapshot: u64) -> bool {
        self.versions
            .get(&place)
            .and_then(|versions| versions.last())
            .is_some_and(|(version, _)| *version > snapshot)
    }

    fn look(&mut self, number: u64, open: &Open, place: Place) -> Vec<u64> {
        if let Some(view) = open.view.get(&place).filter(|_| !self.bug(Bug::OwnWritesHidden, open)) {
            return view.clone();
        }
        if self.bug(Bug::Garbage, open) && place.0 {
            let mut values = self.at(place, open.snapshot);
            values.push(u64::MAX - self.random.random_range(0..1000));
            return values;
        }
        match self.plan.level {
            Level::Serializable | Level::Snapshot | Level::WeakRepeatable => {
                let snapshot = if self.bug(Bug::TornSnapshot, open) && self.chance(0.5) {
                    u64::MAX
                } else {
                    open.snapshot
                };
                self.at(place, snapshot)
            }
            Level::ReadCommitted => self.at(place, u64::MAX),
            Level::ReadUncommitted => {
                let holder = self.locks.get(&place).copied().filter(|&holder| holder != number);
                let dirty = holder.and_then(|holder| {
                    let running = self.running.iter().flatten().chain(&self.pending);
                    running
                        .clone()
                        .find(|(other, _)| *other == holder)
                        .and_then(|(_, open)| open.view.get(&place))
                });
                dirty.cloned().unwrap_or_else(|| self.at(place, u64::MAX))
            }
        }
    }

    fn step(&mut self, client: usize, number: u64, mut open: Open) {
        if self.chance(self.plan.aborted / 4.0) {
            self.abort(number, &open);
            return;
        }
        if self.chance(self.plan.unknown / 4.0) {
            // the connection died, and the server undoes what was done, sooner or later
            self.done.push(open.transaction.clone());
            open.wrote.clear();
            open.view.clear();
            self.locks.retain(|_, holder| *holder != number);
            self.reconnect(client);
            return;
        }
        let Some(&step) = open.steps.get(open.at) else {
            self.end(client, number, open);
            return;
        };
        match step {
            Step::Read(place) => {
                let values = self.look(number, &open, place);
                if !open.view.contains_key(&place) {
                    open.read.insert(place);
                }
                let (is_list, key) = place;
                open.transaction.operations.push(if is_list {
                    Operation::ReadList { key, values }
                } else {
                    Operation::ReadRegister { key, value: values.first().copied() }
                });
            }
            Step::Write(place) => {
                if self.plan.level.locks() && self.plan.bug != Some(Bug::UnlockedWrites) {
                    match self.locks.get(&place) {
                        Some(holder) if *holder != number => {
                            open.waited += 1;
                            if open.waited > 8 {
                                self.abort(number, &open);
                            } else {
                                self.running[client] = Some((number, open));
                            }
                            return;
                        }
                        _ => {}
                    }
                    self.locks.insert(place, number);
                }
                self.write(place, &mut open);
            }
        }
        open.at += 1;
        self.running[client] = Some((number, open));
    }

    fn write(&mut self, place: Place, open: &mut Open) {
        let (is_list, key) = place;
        let value = self.next;
        self.next += 1;
        let before = open.view.get(&place).cloned();
        let snapshot = if self.plan.level.locks() { u64::MAX } else { open.snapshot };
        let mut view = before.unwrap_or_else(|| self.at(place, snapshot));
        if !is_list {
            view.clear();
        }
        view.push(value);
        open.transaction.operations.push(if is_list {
            Operation::Append { key, value }
        } else {
            Operation::Write { key, value }
        });
        if self.plan.bug == Some(Bug::UnlockedWrites) {
            self.install(place, &[value]);
        }
        open.view.insert(place, view);
        open.wrote.entry(place).or_default().push(value);
    }

    fn install(&mut self, place: Place, values: &[u64]) {
        self.version += 1;
        let mut now = if place.0 { self.at(place, u64::MAX) } else { Vec::new() };
        now.extend(if place.0 { values } else { &values[values.len() - 1..] });
        self.versions.entry(place).or_default().push((self.version, now));
    }

    /// Makes the writes visible, unless the level refuses it.
    fn commit(&mut self, open: &Open) -> bool {
        let unchecked_writes = self.bug(Bug::UncheckedWrites, open);
        let unchecked_reads = unchecked_writes || self.bug(Bug::UncheckedReads, open);
        let reads_fail = self.plan.level == Level::Serializable
            && !unchecked_reads
            && !self.bug(Bug::OldSnapshot, open)
            && !self.bug(Bug::TornSnapshot, open)
            && open.read.iter().any(|&place| self.changed_since(place, open.snapshot));
        let writes_fail = !self.plan.level.locks()
            && !unchecked_writes
            && open.wrote.keys().any(|&place| self.changed_since(place, open.snapshot));
        if reads_fail || writes_fail {
            return false;
        }
        if self.plan.bug == Some(Bug::UnlockedWrites) || open.wrote.is_empty() {
            return true;
        }
        self.version += 1;
        let version = self.version;
        for (at, (&place, values)) in open.wrote.iter().enumerate() {
            let mut now = if place.0 { self.at(place, u64::MAX) } else { Vec::new() };
            let all = if place.0 { values.as_slice() } else { &values[values.len() - 1..] };
            if self.bug(Bug::IntermediateVisible, open) && place.0 && values.len() > 1 {
                now.extend(&all[..1]);
                self.versions.entry(place).or_default().push((version, now));
                self.late.push((place, all[1..].to_vec()));
                continue;
            }
            if at > 0 && self.bug(Bug::TornCommit, open) {
                self.late.push((place, all.to_vec()));
                continue;
            }
            now.extend(all);
            if self.bug(Bug::AppendedTwice, open) && place.0 {
                now.extend(all);
            }
            self.versions.entry(place).or_default().push((version, now));
        }
        true
    }

    fn end(&mut self, client: usize, number: u64, mut open: Open) {
        if self.chance(self.plan.aborted) {
            self.abort(number, &open);
            return;
        }
        if self.chance(self.plan.unknown) {
            self.done.push(open.transaction.clone());
            self.pending.push((number, open));
            self.reconnect(client);
            return;
        }
        let committed = self.commit(&open);
        self.locks.retain(|_, holder| *holder != number);
        open.transaction.outcome = if committed { Outcome::Committed } else { Outcome::Aborted };
        open.transaction.end = Some(self.clock * 2 + 1);
        self.done.push(open.transaction);
    }

    fn abort(&mut self, number: u64, open: &Open) {
        let mut transaction = open.transaction.clone();
        transaction.outcome = Outcome::Aborted;
        transaction.end = Some(self.clock * 2 + 1);
        self.done.push(transaction);
        if self.bug(Bug::VisibleAbort, open) {
            for (&place, values) in &open.wrote {
                self.install(place, values);
            }
        }
        self.locks.retain(|_, holder| *holder != number);
    }

    fn reconnect(&mut self, client: usize) {
        self.sessions[client] = (self.next_session, 0);
        self.next_session += 1;
    }
}
