//! The client, the ledger and the audit together, on a model of a store whose histories are drawn at
//! random: what is right raises no alarm, and what is wrong is found with its right count.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    thread,
};

use acidtest_engine::{Attempt, Client, Outcome};
use acidtest_model::StoreError;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    Action, Answer, Choice, Connector, Fields, Final, Found, Layout, Ledger, Operations, Parameters, Request,
    Scenario, audit,
    client::{Operation, RecordsClient},
    content::key_name,
    ledger::Inserted,
};
use crate::{Audited, Left, Verdict, at_once};

const CLIENTS: usize = 4;

/// Everything that a store does.
const ALL: &str = "read:2+update:1+insert:1+scan:1+rmw:1";
/// Everything that leaves the records as many as they are.
const FIXED: &str = "read:1+update:1+rmw:1";

/// The records of a correct store: by key, each with its version and its tag.
#[derive(Clone, Debug, Default)]
struct Model {
    layout: Option<Layout>,
    rows: BTreeMap<String, (u64, u64)>,
    /// What is done later, and was never answered.
    late: Vec<Vec<Request>>,
    /// What goes wrong once, when there is occasion.
    bend: Option<Bend>,
}

/// What an answer does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bend {
    /// A version older than one that was acknowledged.
    Stale,
    /// Nothing, although it is there.
    Miss,
    /// Fields of two writers.
    Tear,
    /// The fields of another record.
    Swap,
    /// A version that another update has written.
    Overwrite,
    /// Something that is no record, not even a version.
    Garble,
}

impl Model {
    fn laid_in(layout: Layout) -> Self {
        let rows = (0..layout.records).map(|number| (key_name(number), (0, number))).collect();
        Self { layout: Some(layout), rows, ..Self::default() }
    }

    /// All of the requests, or none of them.
    fn perform(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let before = (requests.len() > 1).then(|| self.rows.clone());
        for (request, answer) in requests.iter().zip(answers) {
            if !self.step(request, answer) {
                if let Some(before) = before {
                    self.rows = before;
                }
                return Attempt::Refused;
            }
        }
        Attempt::Ok
    }

    fn step(&mut self, request: &Request, answer: &mut Answer) -> bool {
        let row = self.rows.get(&request.key).copied();
        match (request.action, row) {
            (Action::Scan, _) => {
                let rows = self.rows.range(request.key.clone()..).map(|(_, row)| *row);
                for row in rows.take(request.length as usize).collect::<Vec<_>>() {
                    self.tell(answer, row);
                }
            }
            (Action::Insert, None) => {
                self.rows.insert(request.key.clone(), (0, request.fields.tag()));
            }
            (Action::Insert, Some(_)) | (_, None) => return false,
            (Action::Read, Some(row)) => return self.read(request, row, answer),
            (action, Some((version, tag))) => {
                if action == Action::Modify {
                    self.tell(answer, (version, tag));
                }
                let told = self.occasion(Bend::Overwrite, version > 0);
                answer.wrote(if told { version } else { version + 1 });
                self.rows.insert(request.key.clone(), (version + 1, request.fields.tag()));
            }
        }
        true
    }

    fn read(&mut self, request: &Request, (version, tag): (u64, u64), answer: &mut Answer) -> bool {
        if self.occasion(Bend::Miss, true) {
            return false;
        }
        let other = || self.rows.iter().find(|(key, _)| **key != request.key).map(|(_, row)| row.1);
        if let (Some(Bend::Tear), Some(other), Some(layout)) = (self.bend, other(), self.layout) {
            self.bend = None;
            let (mut one, mut two) = (Fields::default(), Fields::default());
            one.fill(&layout, tag);
            two.fill(&layout, other);
            answer.record(version, one.iter().take(1).chain(two.iter().skip(1)).map(str::as_bytes));
        } else if let (Some(Bend::Swap), Some(other)) = (self.bend, other()) {
            self.bend = None;
            self.tell(answer, (version, other));
        } else if self.occasion(Bend::Garble, true) {
            answer.torn();
        } else if self.occasion(Bend::Stale, version > 0) {
            self.tell(answer, (version - 1, tag));
        } else {
            self.tell(answer, (version, tag));
        }
        true
    }

    fn tell(&self, answer: &mut Answer, (version, tag): (u64, u64)) {
        let mut fields = Fields::default();
        if let Some(layout) = &self.layout {
            fields.fill(layout, tag);
        }
        answer.record(version, fields.iter().map(str::as_bytes));
    }

    /// Whether it goes wrong now; it does so once.
    fn occasion(&mut self, bend: Bend, possible: bool) -> bool {
        self.bend.take_if(|next| *next == bend && possible).is_some()
    }

    fn settle(&mut self, index: usize) {
        let requests = self.late.swap_remove(index);
        self.perform(&requests, &mut vec![Answer::default(); requests.len()]);
    }
}

impl Connector for Rc<RefCell<Model>> {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self::clone(self))
    }
}

impl Operations for Rc<RefCell<Model>> {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.borrow_mut().perform(std::slice::from_ref(request), std::slice::from_mut(answer))
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        self.borrow_mut().perform(requests, answers)
    }
}

/// A record as it is read back: key, version, tag.
type Seen = (String, u64, Option<u64>);

/// Where a client is with its operation.
#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// Drawn: from now on it may take effect.
    Drawn(Operation),
    /// Its answer is there and has not been accounted for.
    Answered(Operation, Outcome),
}

/// A trial on the model.
struct World {
    model: Rc<RefCell<Model>>,
    ledger: Arc<Ledger>,
    clients: Vec<(RecordsClient<Rc<RefCell<Model>>>, Stage)>,
    rng: Xoshiro256PlusPlus,
    /// Share of operations that are not answered, and share of those that fail without effect.
    shares: (f64, f64),
    unanswered: u32,
    unanswered_writes: u32,
}

fn parameters(mix: &str, transaction: u32) -> Parameters {
    Parameters {
        mix: mix.parse().unwrap(),
        keys: Choice::Uniform,
        records: 6,
        fields: 2,
        field_bytes: 20,
        scan_max: 5,
        transaction,
        ..Parameters::default()
    }
}

impl World {
    fn new(parameters: &Parameters, seed: u64, shares: (f64, f64)) -> Self {
        Self::over(parameters, seed, shares, Model::laid_in(parameters.layout()), Left::default())
    }

    fn over(parameters: &Parameters, seed: u64, shares: (f64, f64), model: Model, left: Left) -> Self {
        let model = Rc::new(RefCell::new(model));
        let ledger = Arc::new(Ledger::new(parameters.layout(), left));
        let scenario = Scenario::new(parameters, Arc::clone(&ledger), seed);
        let client = |index| {
            let mut client = RecordsClient::new(Rc::clone(&model), scenario.clone(), index);
            at_once(client.connect()).unwrap();
            (client, Stage::Idle)
        };
        Self {
            clients: (0..CLIENTS).map(client).collect(),
            model,
            ledger,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            shares,
            unanswered: 0,
            unanswered_writes: 0,
        }
    }

    /// Takes a client one stage further. What is drawn takes effect at some moment before its answer is
    /// accounted for, what is not answered now, later or never.
    fn step(&mut self, index: usize) {
        let late = self.model.borrow().late.len();
        if late > 0 && self.rng.random_range(0..4) == 0 {
            let index = self.rng.random_range(0..late);
            self.model.borrow_mut().settle(index);
        }
        let (client, stage) = &mut self.clients[index];
        *stage = match std::mem::take(stage) {
            Stage::Idle => Stage::Drawn(client.draw().unwrap()),
            Stage::Drawn(operation) => {
                let draw: f64 = self.rng.random();
                let outcome = if draw < self.shares.0 {
                    match self.rng.random_range(0..3) {
                        0 => _ = at_once(client.attempt(&operation)),
                        1 => self.model.borrow_mut().late.push(operation.requests.clone()),
                        _ => {}
                    }
                    let writes = |request: &Request| !matches!(request.action, Action::Read | Action::Scan);
                    self.unanswered += 1;
                    self.unanswered_writes += u32::from(operation.requests.iter().any(writes));
                    Outcome::Unknown
                } else if draw < self.shares.0 + self.shares.1 {
                    if self.rng.random() { Outcome::Failed } else { Outcome::Conflict }
                } else {
                    match at_once(client.attempt(&operation)) {
                        Attempt::Ok => Outcome::Ok,
                        Attempt::Refused => Outcome::Refused,
                        other => panic!("{other:?}"),
                    }
                };
                Stage::Answered(operation, outcome)
            }
            Stage::Answered(operation, outcome) => {
                client.account(operation, outcome);
                Stage::Idle
            }
        };
    }

    /// So many steps of any of the clients, and what is in flight to its end.
    fn run(mut self, steps: u32) -> Self {
        for _ in 0..steps {
            let index = self.rng.random_range(0..CLIENTS);
            self.step(index);
        }
        for index in 0..CLIENTS {
            while !matches!(self.clients[index].1, Stage::Idle) {
                self.step(index);
            }
        }
        self
    }

    /// What is there, as it is read back.
    fn state(&self) -> Vec<Seen> {
        let rows = &self.model.borrow().rows;
        rows.iter().map(|(key, (version, tag))| (key.clone(), *version, Some(*tag))).collect()
    }

    fn audit(&self) -> Audited {
        self.judge(&self.state())
    }

    fn judge(&self, state: &[Seen]) -> Audited {
        let mut last = Final::of(&self.ledger);
        for (key, version, tag) in state {
            last.take(key, *version, *tag);
        }
        audit(&self.ledger, Ok(last))
    }

    /// Sees that the state is found to have so much of one thing wrong with it, and nothing else.
    #[track_caller]
    fn shows(&self, state: &[Seen], name: &str, count: u64) {
        let audited = self.judge(state);
        let found: Vec<(&str, u64)> =
            audited.audit.findings.iter().map(|finding| (finding.name.as_str(), finding.count)).collect();
        let wanted: Vec<(&str, u64)> =
            found.iter().map(|&(each, _)| (each, if each == name { count } else { 0 })).collect();
        assert_eq!(found, wanted);
        assert_eq!(audited.audit.verdict, Verdict::Broken);
    }
}

/// A mix, and operations in a transaction.
fn workload() -> impl Strategy<Value = (&'static str, u32)> {
    (prop::sample::select(vec![ALL, FIXED, "a", "d", "e", "f", "write", "update:1"]), 1_u32..4)
}

proptest! {
    /// Unanswered operations, done at once, later or never, failures and conflicts, in any interleaving,
    /// never make a correct store look broken.
    #[test]
    fn a_correct_store_raises_no_alarm(
        seed: u64,
        (mix, transaction) in workload(),
        unknown in 0.0..0.6_f64,
        failed in 0.0..0.3_f64,
    ) {
        let world = World::new(&parameters(mix, transaction), seed, (unknown, failed)).run(500);
        let audit = world.audit().audit;
        prop_assert_eq!(audit.verdict, Verdict::Holds, "{} {:?}", audit, audit.evidence);
    }

    /// With every operation answered, each kind of damage is found, as often as it was done.
    #[test]
    fn damage_is_found_with_its_count(
        seed: u64,
        (mix, transaction) in workload(),
        which: prop::sample::Index,
        by in 1_u64..5,
    ) {
        let world = World::new(&parameters(mix, transaction), seed, (0.0, 0.1)).run(400);
        let sound = world.state();
        prop_assert_eq!(world.audit().audit.verdict, Verdict::Holds);
        let at = which.index(sound.len());
        let damaged = |damage: &dyn Fn(&mut Seen)| {
            let mut state = sound.clone();
            damage(&mut state[at]);
            state
        };
        let version = sound[at].1;
        let down = by.min(version);
        if down > 0 {
            world.shows(&damaged(&|row| row.1 -= down), "lost_updates", down);
        }
        world.shows(&damaged(&|row| row.1 += by), "unasked", by);
        world.shows(&damaged(&|row| row.2 = None), "torn", 1);
        world.shows(&damaged(&|row| row.2 = Some(7 << 40)), "mismatched", 1);

        let mut state = sound.clone();
        state.remove(at);
        world.shows(&state, "lost", 1);
        let mut state = sound.clone();
        state.extend(std::iter::repeat_n(sound[at].clone(), usize::try_from(by).unwrap()));
        world.shows(&state, "duplicated", by);
        let mut state = sound.clone();
        state.push(("theirs".to_owned(), 0, Some(1)));
        state.push((format!("user+{}", &sound[at].0[4..]), 0, Some(1)));
        world.shows(&state, "phantom", 2);
    }

    /// An insert that is proved to have had no effect, and is there, is a phantom.
    #[test]
    fn a_failed_insert_that_is_there_is_a_phantom(seed: u64) {
        let world = World::new(&parameters("d", 1), seed, (0.0, 0.0)).run(300);
        let number = world.ledger.draw_insert();
        world.ledger.insert_ended(number, Inserted::Undone);
        let mut state = world.state();
        state.push((key_name(number), 0, Some(1)));
        world.shows(&state, "phantom", 1);
    }

    /// With some unanswered, what they cannot explain is found.
    #[test]
    fn more_than_the_unanswered_is_found(seed: u64, which: prop::sample::Index) {
        let world = World::new(&parameters(FIXED, 1), seed, (0.2, 0.0)).run(400);
        let mut state = world.state();
        let at = which.index(state.len());
        let version = state[at].1;
        state[at].1 = version + u64::from(world.unanswered_writes) + 1;
        prop_assert!(world.judge(&state).audit.count("unasked") > 0);
        state[at].1 = version.saturating_sub(u64::from(world.unanswered_writes) + 1);
        prop_assert!(version <= u64::from(world.unanswered_writes)
            || world.judge(&state).audit.count("lost_updates") > 0);
    }

    /// One wrong answer is found, and counted once.
    #[test]
    fn a_wrong_answer_is_found(
        seed: u64,
        (bend, name) in prop::sample::select(vec![
            (Bend::Miss, "missing"),
            (Bend::Tear, "torn"),
            (Bend::Swap, "mismatched"),
            (Bend::Stale, "stale"),
            (Bend::Overwrite, "overwritten"),
            (Bend::Garble, "torn"),
        ]),
    ) {
        let mut world = World::new(&parameters(FIXED, 1), seed, (0.0, 0.0)).run(200);
        world.model.borrow_mut().bend = Some(bend);
        // one after the other: each is drawn when all before it is accounted for
        while world.model.borrow().bend.is_some() {
            world = world.run(1);
        }
        let audit = world.audit().audit;
        prop_assert_eq!(audit.verdict, Verdict::Broken, "{:?}", bend);
        prop_assert_eq!(audit.count(name), 1, "{:?}: {}", bend, audit);
    }

    /// A trial leaves something only where nothing is in doubt and nothing was added, and the next one holds
    /// over it.
    #[test]
    fn what_is_left_serves_the_next_trial(
        seed: u64,
        (mix, transaction) in workload(),
        unknown in prop::sample::select(vec![0.0, 0.01, 0.3]),
    ) {
        let parameters = parameters(mix, transaction);
        let world = World::new(&parameters, seed, (unknown, 0.1)).run(400);
        let left = world.audit().left;
        let settled = world.unanswered == 0 && !parameters.mix.does(Action::Insert);
        prop_assert_eq!(left.is_some(), settled);
        if let Some(left) = left {
            let model = world.model.borrow().clone();
            let next = World::over(&parameters, !seed, (0.1, 0.1), model, left.clone()).run(400);
            let audit = next.audit().audit;
            prop_assert_eq!(audit.verdict, Verdict::Holds, "{} {:?}", audit, audit.evidence);
            // and damage is found over it too
            let mut state = next.state();
            state[0].1 += u64::from(next.unanswered_writes) * u64::from(transaction) + 1;
            prop_assert!(next.judge(&state).audit.count("unasked") > 0);
        }
    }

    /// In whatever order inserts end, none is drawn before it and all before it have.
    #[test]
    fn only_what_has_ended_is_drawn(
        order in Just((0..40_u64).collect::<Vec<_>>()).prop_shuffle(),
        how in prop::collection::vec(2_u8..5, 40),
    ) {
        let ledger = Ledger::new(parameters("d", 1).layout(), Left::default());
        let first = ledger.drawable();
        for _ in 0..40 {
            ledger.draw_insert();
        }
        let mut ended = [false; 40];
        for index in order {
            let at = usize::try_from(index).unwrap();
            let how = [Inserted::Acknowledged, Inserted::Undone, Inserted::Unknown][usize::from(how[at]) - 2];
            ledger.insert_ended(first + index, how);
            ended[at] = true;
            let edge = ended.iter().take_while(|ended| **ended).count() as u64;
            prop_assert_eq!(ledger.drawable(), first + edge);
            prop_assert_eq!(ledger.is_there(first + index), how == Inserted::Acknowledged);
        }
        prop_assert_eq!(ledger.drawable(), ledger.known());
    }

    /// An answer gives back what was put into it.
    #[test]
    fn an_answer_gives_back_what_it_took(
        records in prop::collection::vec(
            (any::<u64>(), prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..4)),
            0..5,
        ),
    ) {
        let mut answer = Answer::default();
        for _ in 0..2 {
            answer.clear();
            for (version, fields) in &records {
                answer.record(*version, fields.iter().map(Vec::as_slice));
            }
            let read: Vec<(u64, Vec<Vec<u8>>)> = answer
                .read()
                .map(|(version, fields)| (version, fields.map(<[u8]>::to_vec).collect()))
                .collect();
            prop_assert_eq!(&read, &records);
        }
    }
}

/// The edge moves on over what ends at the same time in several threads, and never further.
#[test]
fn the_edge_of_inserts_is_never_ahead_nor_left_behind() {
    let ledger = Ledger::new(parameters("write", 1).layout(), Left::default());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let number = ledger.draw_insert();
                    assert!(ledger.drawable() <= number, "{number} is drawn before it has ended");
                    ledger.was_inserted(number, 1);
                    let edge = ledger.drawable();
                    assert!(edge == 0 || ledger.is_there(edge - 1));
                }
            });
        }
    });
    assert_eq!(ledger.drawable(), ledger.known());
}

#[test]
fn nothing_acknowledged_is_unknown_not_holds() {
    let world = World::new(&parameters(ALL, 1), 1, (0.0, 1.0)).run(100);
    assert_eq!(world.audit().audit.to_string(), "unknown: no operation was acknowledged");
}

#[test]
fn an_unreadable_state_is_unknown_unless_the_ledger_proves_a_break() {
    let gone = || StoreError::Server { doing: "reading".into(), address: "x".into(), cause: "gone".into() };
    let world = World::new(&parameters(ALL, 1), 1, (0.0, 0.0)).run(100);
    let audited = audit(&world.ledger, Err(gone()));
    assert_eq!(audited.audit.verdict, Verdict::Unknown);
    assert!(audited.left.is_none());
    world.ledger.missing();
    let proved = audit(&world.ledger, Err(gone())).audit;
    assert_eq!(proved.to_string(), "broken: missing 1 reads");
    assert!(proved.reason.is_some());
}

/// A record whose insert was never answered was there if it was updated; it must not be gone.
#[test]
fn an_updated_record_was_inserted() {
    let world = World::new(&parameters("d", 1), 3, (0.0, 0.0)).run(50);
    let number = world.ledger.draw_insert();
    world.ledger.insert_ended(number, Inserted::Unknown);
    assert_eq!(world.audit().audit.evidence["indeterminate_inserts"], 1);
    world.ledger.updated(number, 1, Some(1), world.ledger.newest(number));
    world.shows(&world.state(), "lost", 1);
}

/// A store that has no records, but something in their place. Its connection can be had once.
struct Garbled(Cell<bool>);

impl Connector for Garbled {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        if self.0.replace(false) { Ok(Self(Cell::default())) } else { Err("gone".to_owned()) }
    }
}

impl Operations for Garbled {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        answer.torn();
        if request.action == Action::Read { Attempt::Ok } else { Found::Torn.above().unwrap_err() }
    }

    async fn several(&mut self, _: &[Request], _: &mut [Answer]) -> Attempt {
        unreachable!("one operation at a time")
    }
}

/// An update that cannot follow from what it found has not taken place, and what it found is torn: once, also
/// where the client's next operation finds no connection. A read of it misses nothing.
#[test]
fn what_an_operation_found_that_is_no_record_is_torn_once() {
    for (mix, ends) in [("update:1", Outcome::Failed), ("read:1", Outcome::Ok)] {
        let parameters = parameters(mix, 1);
        let world = World::new(&parameters, 1, (0.0, 0.0)).run(30);
        let scenario = Scenario::new(&parameters, Arc::clone(&world.ledger), 2);
        let mut client = RecordsClient::new(Garbled(Cell::new(true)), scenario, 0);
        at_once(client.connect()).unwrap();
        for ends in [ends, Outcome::Failed] {
            let operation = client.draw().unwrap();
            let ended = match at_once(client.attempt(&operation)) {
                Attempt::Ok => Outcome::Ok,
                Attempt::Failed(_) => Outcome::Failed,
                other => panic!("{other:?}"),
            };
            assert_eq!(ended, ends);
            client.account(operation, ended);
            assert!(at_once(client.connect()).is_err());
        }
        assert_eq!(world.audit().audit.to_string(), "broken: torn 1 records");
    }
}

/// The final state is the server's word, and versions are as high as it says.
#[test]
fn versions_are_counted_up_to_what_can_be() {
    let world = World::new(&parameters(FIXED, 1), 1, (0.0, 0.0)).run(30);
    let mut state = world.state();
    for row in &mut state {
        row.1 = u64::MAX;
    }
    world.shows(&state, "unasked", u64::MAX);
}

/// A write follows from a record alone, and from none that has the highest version that a store can keep.
#[test]
fn a_write_follows_from_a_record_alone() {
    let most = i64::MAX.unsigned_abs();
    assert_eq!(Found::Record(0).above(), Ok(1));
    assert_eq!(Found::Record(most - 1).above(), Ok(most));
    assert_eq!(Found::Nothing.above(), Err(Attempt::Refused));
    for found in [Found::Torn, Found::Record(most), Found::Record(u64::MAX)] {
        assert!(matches!(found.above(), Err(Attempt::Failed(fault)) if !fault.connection_lost), "{found:?}");
    }
}
