//! Transactions at random, in memory.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_history::{Anomaly, Order, Shape};
use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, LoadProgress, Place,
    transactions::{
        self, Answers, Connector, Layout, Operations, Promise, Requirements, Scenario, State as Final, Step,
        TransactionsStore,
    },
};
use rand::RngExt;
use tokio::time::Instant;

use crate::{
    Bug, LATER, Memory, answered,
    crash::{Forgotten, Journal},
    faults::Plant,
    gone,
    sides::{Replicated, Side, Sides},
    witness::transactions::Witness,
    world::{Link, World, locked},
};

/// Versions of an object that are kept: a transaction whose snapshot is older than all of them conflicts.
const VERSIONS: usize = 64;

/// A value that no client writes.
const MADE_UP: u64 = u64::MAX >> 1;

/// What a transaction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    List(u32),
    Register(u32),
    Account(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    List(Vec<u64>),
    Register(Option<u64>),
    Account(i64),
}

/// A change of an object, relative to what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Append(u64),
    /// The same, but before the last value: a planted bug.
    Squeeze(u64),
    Set(u64),
    Add(i64),
}

impl Value {
    fn after(&self, effect: Effect) -> Self {
        match (self, effect) {
            (Self::List(values), Effect::Append(value)) => {
                Self::List(values.iter().copied().chain([value]).collect())
            }
            (Self::List(values), Effect::Squeeze(value)) => {
                let mut values = values.clone();
                values.insert(values.len().saturating_sub(1), value);
                Self::List(values)
            }
            (Self::Register(_), Effect::Set(value)) => Self::Register(Some(value)),
            (Self::Account(balance), Effect::Add(amount)) => Self::Account(balance + amount),
            // an effect is made for its object
            (same, _) => same.clone(),
        }
    }
}

#[derive(Clone, Debug)]
struct Version {
    /// The number of the commit that made it.
    commit: u64,
    value: Value,
}

/// The objects of one trial.
#[derive(Debug)]
pub(crate) struct Table {
    layout: Layout,
    state: Sides<State>,
    witness: Mutex<Witness>,
    /// Violations that an audit must see, counted when the final state was read.
    shown: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The number of commits so far.
    commits: u64,
    /// The versions of each object, oldest first; never empty.
    objects: BTreeMap<Object, VecDeque<Version>>,
    /// Who writes an object and has not ended, where writes wait for each other.
    locks: BTreeMap<Object, u64>,
    /// What connections have written and not committed.
    pending: BTreeMap<u64, Vec<(Object, Effect)>>,
    /// Transactions that are committed at a later time, earliest first, and whether they may then be in conflict.
    later: VecDeque<(Instant, Staged, bool)>,
    journal: Option<Journal<Vec<Change>>>,
}

/// An object that a commit has changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    object: Object,
    commit: u64,
}

/// A transaction that has not been committed.
#[derive(Clone, Debug)]
struct Staged {
    level: Isolation,
    /// The commits that it sees, where it sees a snapshot.
    snapshot: u64,
    /// What it read, with the commit that had made it.
    reads: Vec<(Object, u64)>,
    writes: Vec<(Object, Effect)>,
}

impl Replicated for State {
    type Write = Vec<Change>;

    fn journal(&mut self) -> Option<&mut Journal<Vec<Change>>> {
        self.journal.as_mut()
    }

    /// A write stays that later ones were made upon.
    fn forget(&mut self) {
        let forgotten = self.journal.as_mut().map(|journal| journal.forgotten(Vec::len));
        let mut undone = BTreeSet::new();
        for forgotten in forgotten.into_iter().flatten() {
            let whole = matches!(forgotten, Forgotten::Whole(_));
            let (Forgotten::Whole(changes) | Forgotten::Half(changes)) = forgotten;
            let parts = if whole { changes.len() } else { changes.len() / 2 };
            for Change { object, commit } in changes.into_iter().take(parts) {
                let Some(versions) = self.objects.get_mut(&object) else { continue };
                if versions.len() > 1 && versions.back().is_some_and(|last| last.commit == commit) {
                    versions.pop_back();
                    undone.insert(object);
                }
            }
        }
        // whoever has read what is undone, or the same before it, is in conflict
        self.commits += u64::from(!undone.is_empty());
        for object in undone {
            let Some(versions) = self.objects.get_mut(&object) else { continue };
            if let Some(last) = versions.back().cloned() {
                versions.push_back(Version { commit: self.commits, ..last });
            }
        }
    }

    fn promote(&mut self) {
        self.locks.clear();
        self.pending.clear();
    }
}

impl State {
    fn of(layout: &Layout) -> Self {
        let lists = (0..layout.lists).map(|key| (Object::List(key), Value::List(Vec::new())));
        let registers = (0..layout.registers).map(|key| (Object::Register(key), Value::Register(None)));
        let accounts = (0..layout.accounts).map(|key| (Object::Account(key), Value::Account(layout.balance)));
        let first = |(object, value)| (object, VecDeque::from([Version { commit: 0, value }]));
        Self { objects: lists.chain(registers).chain(accounts).map(first).collect(), ..Self::default() }
    }

    fn last(&self, object: Object) -> Option<&Version> {
        self.objects.get(&object)?.back()
    }

    /// The version that a snapshot has.
    fn at(&self, object: Object, snapshot: u64) -> Option<&Version> {
        self.objects.get(&object)?.iter().rev().find(|version| version.commit <= snapshot)
    }

    /// The version before the last one, if there is one.
    fn before_last(&self, object: Object) -> Option<&Version> {
        self.objects.get(&object)?.iter().rev().nth(1)
    }

    /// Whether it may be committed now.
    fn permits(&self, staged: &Staged) -> bool {
        let is = |object: Object, commit| self.last(object).is_some_and(|last| last.commit == commit);
        match staged.level {
            // written objects are locked
            Isolation::ReadUncommitted | Isolation::ReadCommitted => true,
            // the first one to commit wins
            Isolation::RepeatableRead => staged
                .writes
                .iter()
                .all(|(object, _)| self.last(*object).is_some_and(|last| last.commit <= staged.snapshot)),
            Isolation::Serializable => staged.reads.iter().all(|&(object, commit)| is(object, commit)),
        }
    }

    fn apply(&mut self, writes: &[(Object, Effect)], connection: u64) {
        if writes.is_empty() {
            return;
        }
        self.commits += 1;
        let commit = self.commits;
        let mut changed = BTreeSet::new();
        for (object, effect) in writes {
            let Some(versions) = self.objects.get_mut(object) else { continue };
            let Some(last) = versions.back_mut() else { continue };
            let value = last.value.after(*effect);
            if last.commit == commit {
                last.value = value;
            } else {
                versions.push_back(Version { commit, value });
                if versions.len() > VERSIONS {
                    versions.pop_front();
                }
            }
            changed.insert(*object);
        }
        if let Some(journal) = &mut self.journal {
            journal.note(connection, changed.into_iter().map(|object| Change { object, commit }).collect());
        }
    }

    /// Commits what is due by now, after a kill's damage.
    fn settle(&mut self) {
        self.forget();
        while self.later.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let Some((_, staged, is_forced)) = self.later.pop_front() else { return };
            if is_forced || self.permits(&staged) {
                self.apply(&staged.writes, 0);
            }
        }
    }
}

impl Table {
    fn settled(&self) -> Side<'_, State> {
        self.settled_at(u64::MAX)
    }

    /// The state as the leader of this number has it.
    fn settled_at(&self, leader: u64) -> Side<'_, State> {
        let mut state = self.state.at(leader);
        state.settle();
        state
    }

    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Relaxed)
    }
}

impl Memory {
    pub(crate) fn transactions_of(&self, place: &Place) -> Option<Arc<Table>> {
        locked(&self.transactions).get(&place.object("transactions")).cloned()
    }
}

/// The level that is asked for, or the default.
fn level_of(wanted: &Requirements) -> Isolation {
    wanted.isolation.unwrap_or(Isolation::Serializable)
}

/// What this store's own documentation, its GUARANTEES.md, promises.
fn promised(level: Isolation) -> Vec<Anomaly> {
    use Anomaly::{
        Cycle, DirtyUpdate, FutureRead, G1a, G1b, IncompatibleOrder, Internal, LostUpdate, NonRepeatableRead,
        NonRepeatableReadAfterWrite, ObservedTransactionVanishes, ObservedTransactionVanishesAfterWrite,
        WrongTotal, WrongTotalAfterWrite,
    };
    let mut ruled_out = vec![
        Internal,
        FutureRead,
        IncompatibleOrder,
        G1a,
        DirtyUpdate,
        G1b,
        WrongTotal,
        WrongTotalAfterWrite,
        Cycle(Shape::G0, Order::Data),
        Cycle(Shape::G1c, Order::Data),
    ];
    if level >= Isolation::RepeatableRead {
        ruled_out.extend([ObservedTransactionVanishes, ObservedTransactionVanishesAfterWrite, LostUpdate]);
        ruled_out.extend([NonRepeatableRead, NonRepeatableReadAfterWrite]);
        ruled_out.extend([Shape::GSingle, Shape::GNonadjacent].map(|shape| Cycle(shape, Order::Data)));
    }
    if level == Isolation::Serializable {
        let orders = Order::ALL.into_iter();
        let all = orders.flat_map(|order| Shape::ALL.map(|shape| Cycle(shape, order)));
        ruled_out.extend(all.filter(|cycle| !ruled_out.contains(cycle)).collect::<Vec<_>>());
    }
    ruled_out
}

impl TransactionsStore for Memory {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        let state = State { journal: Some(Journal::new(&self.world)), ..State::of(layout) };
        let table = Table {
            layout: *layout,
            state: Sides::new(&self.world, state),
            witness: Mutex::new(Witness::new(self.world.exact)),
            shown: AtomicU64::new(0),
        };
        locked(&self.transactions).insert(place.object("transactions"), Arc::new(table));
        loaded.add(layout.rows());
        Box::pin(async { Ok(()) })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let table = self.transactions_of(place);
        let world = Arc::clone(&self.world);
        transactions::task(MemoryConnector { table, level: level_of(wanted), world }, scenario)
    }

    fn promise<'a>(&'a self, wanted: &'a Requirements) -> Task<'a, Result<Promise, StoreError>> {
        let level = level_of(wanted);
        let said = match level {
            Isolation::ReadUncommitted | Isolation::ReadCommitted => {
                "each step sees what is committed, and no two transactions write the same at a time"
            }
            Isolation::RepeatableRead => {
                "snapshot isolation: of two that write the same, the first to commit wins"
            }
            Isolation::Serializable => "strict serializability: whatever was read is the same at the commit",
        };
        Box::pin(async move {
            Ok(Promise {
                level: level.name().replace('-', " "),
                rules_out: promised(level),
                said: said.to_owned(),
                source: "acidtest, GUARANTEES.md of the reference store".to_owned(),
            })
        })
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Layout,
        last: &'a mut Final,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let doing = "reading the final lists, registers and accounts";
            let table = self.transactions_of(place).ok_or_else(|| gone(doing, "they were never loaded"))?;
            let state = table.settled();
            let lists = state.objects.iter().filter_map(|(object, versions)| {
                match (object, &versions.back()?.value) {
                    (Object::List(key), Value::List(values)) => Some((*key, values.as_slice())),
                    _ => None,
                }
            });
            let shown = locked(&table.witness).shown(lists, self.world.kills() > 0);
            table.shown.store(shown, Relaxed);
            self.is_there(doing)?;
            for (object, versions) in &state.objects {
                match (object, versions.back().map(|version| &version.value)) {
                    (Object::List(key), Some(Value::List(values))) => last.list(*key, values.clone()),
                    (Object::Register(key), Some(Value::Register(value))) => last.register(*key, *value),
                    (Object::Account(key), Some(Value::Account(balance))) => last.account(*key, *balance),
                    _ => last.unreadable(),
                }
            }
            Ok(())
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.transactions).remove(&place.object("transactions"));
        Box::pin(async { Ok(()) })
    }
}

struct MemoryConnector {
    table: Option<Arc<Table>>,
    level: Isolation,
    world: Arc<World>,
}

/// A client's connection: the simulated network and the store behind it.
struct Connection {
    link: Link,
    table: Arc<Table>,
    level: Isolation,
    plant: Plant,
    number: u64,
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let table = self.table.clone().ok_or("the lists were never loaded")?;
        let plant = || Plant::new(&self.world, self.world.faults);
        let link = Link::open(plant())?;
        let number = link.number;
        Ok(Connection { link, table, level: self.level, plant: plant(), number })
    }
}

/// A transaction that has not ended: when it does, or is given up, its locks are free.
struct Open<'a> {
    table: &'a Table,
    connection: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.table.state.each(|state| {
            state.locks.retain(|_, connection| *connection != self.connection);
            state.pending.remove(&self.connection);
        });
    }
}

impl Operations for Connection {
    async fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        let table = Arc::clone(&self.table);
        let strictly = self.level == Isolation::Serializable;
        let number = locked(&table.witness).begin(steps, strictly);
        let sent = if steps.iter().any(|step| step.writes()) {
            self.link.send_change().await
        } else {
            self.link.send().await
        };
        let attempt = match sent {
            Ok(()) => {
                let attempt = self.perform(steps, answers).await;
                self.link.answer_attempt(attempt).await
            }
            Err(attempt) => attempt,
        };
        self.link.note(|| format!("{attempt:?}: {steps:?}, {answers:?}"));
        locked(&table.witness).end(number, (steps, answers), &attempt, table.layout.total());
        attempt
    }
}

impl Connection {
    async fn perform(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        let table = Arc::clone(&self.table);
        let leader = self.link.leader();
        let snapshot = table.settled_at(leader).commits;
        let mut staged = Staged { level: self.level, snapshot, reads: Vec::new(), writes: Vec::new() };
        let open = Open { table: &table, connection: self.number };
        for step in steps {
            if let Err(end) = self.step(&mut table.settled_at(leader), &mut staged, *step, answers) {
                return end;
            }
            self.plant.give_way().await;
        }
        // else its connection is lost, and nobody is told
        let done = if self.plant.world.commits_at(leader) || staged.writes.is_empty() {
            self.commit(&mut table.settled_at(leader), staged)
        } else {
            Some(Attempt::Conflict)
        };
        drop(open);
        answered(done).await
    }

    fn step(
        &mut self,
        state: &mut State,
        staged: &mut Staged,
        step: Step,
        answers: &mut Answers,
    ) -> Result<(), Attempt> {
        match step {
            Step::ReadList { key } => match self.read(state, staged, Object::List(key))? {
                Value::List(values) if self.plant.strikes(Bug::MakeUp) => {
                    answers.list(values.into_iter().chain([MADE_UP]));
                }
                Value::List(values) => answers.list(values),
                _ => answers.unreadable(),
            },
            Step::ReadRegister { key } => match self.read(state, staged, Object::Register(key))? {
                Value::Register(value) => answers.register(value),
                _ => answers.unreadable(),
            },
            Step::Total => {
                let mut total = 0;
                let missed = self.plant.strikes(Bug::SumInParts).then(|| {
                    Object::Account(self.plant.rng.random_range(0..self.table.layout.accounts.max(1)))
                });
                for key in 0..self.table.layout.accounts {
                    let account = Object::Account(key);
                    if let Value::Account(balance) = self.read(state, staged, account)?
                        && missed != Some(account)
                    {
                        total += balance;
                    }
                }
                answers.total(total);
            }
            Step::Append { key, value } => {
                self.write(state, staged, Object::List(key), Effect::Append(value))?;
                answers.done();
            }
            Step::WriteRegister { key, value } => {
                self.write(state, staged, Object::Register(key), Effect::Set(value))?;
                answers.done();
            }
            Step::Transfer { from, to, amount } => {
                self.write(state, staged, Object::Account(from), Effect::Add(-amount))?;
                self.write(state, staged, Object::Account(to), Effect::Add(amount))?;
                answers.done();
            }
        }
        Ok(())
    }

    /// What the transaction sees of an object, with its own writes.
    fn read(&mut self, state: &State, staged: &mut Staged, object: Object) -> Result<Value, Attempt> {
        if self.plant.strikes(Bug::MissRead) {
            return Err(Attempt::Refused);
        }
        let seen = match self.level {
            Isolation::RepeatableRead => state.at(object, staged.snapshot).ok_or(Attempt::Conflict)?,
            _ => state.last(object).ok_or(Attempt::Refused)?,
        };
        staged.reads.push((object, seen.commit));
        let mut value = seen.value.clone();
        if self.plant.has(Bug::StaleRead)
            && let Some(before) = state.before_last(object)
            && self.plant.strikes(Bug::StaleRead)
        {
            value = before.value.clone();
        }
        if self.plant.has(Bug::DirtyRead) {
            let others = state.pending.iter().filter(|(connection, _)| **connection != self.number);
            let of_others: Vec<Effect> = others
                .flat_map(|(_, writes)| writes.iter().filter(|(written, _)| *written == object))
                .map(|(_, effect)| *effect)
                .collect();
            if !of_others.is_empty() && self.plant.strikes(Bug::DirtyRead) {
                value = of_others.into_iter().fold(value, |value, effect| value.after(effect));
            }
        }
        let own = staged.writes.iter().filter(|(written, _)| *written == object);
        Ok(own.fold(value, |value, (_, effect)| value.after(*effect)))
    }

    fn write(
        &mut self,
        state: &mut State,
        staged: &mut Staged,
        object: Object,
        effect: Effect,
    ) -> Result<(), Attempt> {
        if state.last(object).is_none() {
            return Err(Attempt::Refused);
        }
        if self.level <= Isolation::ReadCommitted
            && *state.locks.entry(object).or_insert(self.number) != self.number
        {
            return Err(Attempt::Conflict);
        }
        staged.writes.push((object, effect));
        state.pending.entry(self.number).or_default().push((object, effect));
        Ok(())
    }

    /// Commits what is staged, with the planted faults. `None` means that the client gets no answer.
    fn commit(&mut self, state: &mut State, mut staged: Staged) -> Option<Attempt> {
        let plant = &mut self.plant;
        let later = |state: &mut State, staged: Staged, is_forced| {
            state.later.push_back((Instant::now() + LATER, staged, is_forced));
        };
        let permitted = state.permits(&staged);
        if plant.is_unanswered() {
            // as with a slow network: applied, applied later, or not applied; one that holds locks is not applied later
            match plant.rng.random_range(0..3) {
                0 if permitted => state.apply(&staged.writes, self.number),
                1 if self.level > Isolation::ReadCommitted => later(state, staged, false),
                _ => {}
            }
            return None;
        }
        if !permitted && !plant.strikes(Bug::SkipCheck) {
            return Some(Attempt::Conflict);
        }
        if staged.writes.is_empty() {
            return Some(Attempt::Ok);
        }
        if plant.strikes(Bug::LateApply) {
            later(state, staged, true);
            return Some(Attempt::Failed(Fault::answered("planted: late")));
        }
        if plant.strikes(Bug::HideCommit) {
            later(state, staged, true);
            return Some(Attempt::Ok);
        }
        if plant.strikes(Bug::DropWrite) {
            staged.writes.pop();
        }
        if plant.strikes(Bug::ApplyTwice) {
            staged.writes = staged.writes.iter().flat_map(|write| [*write; 2]).collect();
        }
        if plant.strikes(Bug::Tear) {
            staged.writes.truncate(staged.writes.len() / 2);
        }
        if plant.strikes(Bug::Squeeze) {
            for (_, effect) in &mut staged.writes {
                if let Effect::Append(value) = *effect {
                    *effect = Effect::Squeeze(value);
                }
            }
        }
        if staged.writes.len() > 1 && plant.strikes(Bug::CommitInParts) {
            let rest = staged.writes.split_off(staged.writes.len() / 2);
            let first = mem::replace(&mut staged.writes, rest);
            state.apply(&first, self.number);
            later(state, staged, true);
            return Some(Attempt::Ok);
        }
        state.apply(&staged.writes, self.number);
        Some(Attempt::Ok)
    }
}
