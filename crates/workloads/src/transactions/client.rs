//! The client: draws transactions, sends them to the store, and remembers what became of each attempt.

use std::{collections::BTreeMap, sync::Arc};

use acidtest_engine::{Attempt, Client, ClientTask, Outcome};
use acidtest_history::{self as history, Total, Transaction};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    Answer, Answers, Connector, Ledger, Operations, Parameters, Step,
    ledger::now,
    parameters::{Kind, Mix},
};
use crate::keys::Ranks;

/// Names of the operations, in the order of their kinds: transactions that only read, and those that write.
pub const OPERATIONS: &[&str] = &["read", "write"];

/// Transactions that all clients of a process keep before they hand them on, at most.
const WAITING: u32 = 4_096;

/// The most that is moved from one account to another.
const AMOUNT: i64 = 5;

/// The state that all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What was acknowledged and seen.
    pub ledger: Arc<Ledger>,
    draw: Arc<Draw>,
    /// The sum over all accounts.
    total: i64,
    clients: u32,
    seed: u64,
}

impl Scenario {
    /// The scenario of so many clients, those of other processes included.
    pub(crate) fn new(parameters: &Parameters, ledger: Arc<Ledger>, clients: u32, seed: u64) -> Self {
        let total = parameters.layout().total();
        Self { ledger, draw: Arc::new(Draw::new(parameters)), total, clients: clients.max(1), seed }
    }
}

/// Draws transactions at random.
#[derive(Debug)]
struct Draw {
    mix: Mix,
    ranks: Ranks,
    keys: u32,
    operations: u32,
    write_share: f64,
}

impl Draw {
    fn new(parameters: &Parameters) -> Self {
        let Parameters { mix, keys, skew, operations, write_share, .. } = parameters;
        Self {
            mix: mix.clone(),
            ranks: Ranks::new(*skew, (*keys).into()),
            keys: *keys,
            operations: *operations,
            write_share: *write_share,
        }
    }

    #[allow(clippy::cast_possible_truncation)] // a rank is below the number of keys
    fn key(&self, rng: &mut impl Rng) -> u32 {
        self.ranks.draw(rng) as u32
    }

    /// A transaction's steps. What they write has no value yet.
    fn steps(&self, ledger: &Ledger, rng: &mut impl Rng, steps: &mut Vec<Step>) {
        for _ in 0..rng.random_range(1..=self.operations) {
            let kind = self.mix.kind(rng.random());
            let writes = rng.random::<f64>() < self.write_share;
            let place = self.key(rng);
            match kind {
                Kind::Lists => {
                    let (key, has_room) = ledger.list_at(place);
                    steps.push(Step::ReadList { key });
                    match (writes, has_room) {
                        (true, true) => steps.push(Step::Append { key, value: 0 }),
                        (true, false) => ledger.no_room(),
                        (false, _) => {}
                    }
                }
                Kind::Registers => {
                    steps.push(Step::ReadRegister { key: place });
                    if writes {
                        steps.push(Step::WriteRegister { key: place, value: 0 });
                    }
                }
                Kind::Bank if writes => {
                    let other = (place + rng.random_range(1..self.keys)) % self.keys;
                    let amount = rng.random_range(1..=AMOUNT);
                    steps.push(Step::Transfer { from: place, to: other, amount });
                }
                Kind::Bank => steps.push(Step::Total),
            }
        }
    }
}

/// Whether any of the steps writes.
fn writes(steps: &[Step]) -> bool {
    steps.iter().any(|step| step.writes())
}

/// By how much transfers change each account.
fn changes(steps: &[Step]) -> BTreeMap<u32, i64> {
    let mut changes = BTreeMap::new();
    for step in steps {
        if let Step::Transfer { from, to, amount } = *step {
            *changes.entry(from).or_default() -= amount;
            *changes.entry(to).or_default() += amount;
        }
    }
    changes
}

/// An attempt at a transaction. Its memory is reused.
#[derive(Debug, Default)]
struct Try {
    steps: Vec<Step>,
    answers: Answers,
    session: u32,
    sequence: u32,
    start: u64,
    /// When it ended, and how; none if nobody answered.
    ended: Option<(u64, history::Outcome)>,
}

impl Try {
    /// As it goes to the history. Of the writes, those that may have been sent.
    fn transaction(&self, total: i64) -> Transaction {
        use history::Operation;
        let outcome = self.ended.map_or(history::Outcome::Unknown, |(_, outcome)| outcome);
        let answers = self.answers.steps();
        let sent = match outcome {
            history::Outcome::Unknown => self.steps.len(),
            _ => answers.len() + 1,
        };
        let (mut operations, mut read_total) = (Vec::with_capacity(self.steps.len()), None);
        // a store may make the view that a transaction reads at its first read; only if that came before the money moved, a sum
        // after it is read from another state than the view's
        let (mut has_read, mut after_write) = (false, false);
        for (place, step) in self.steps.iter().enumerate().take(sent) {
            let reads = matches!(step, Step::ReadList { .. } | Step::ReadRegister { .. } | Step::Total);
            match (*step, answers.get(place)) {
                (Step::ReadList { key }, Some(Answer::List(list))) => {
                    let values = self.answers.values(list.clone()).to_vec();
                    operations.push(Operation::ReadList { key, values });
                }
                (Step::ReadRegister { key }, Some(Answer::Register(value))) => {
                    operations.push(Operation::ReadRegister { key, value: *value });
                }
                (Step::Append { key, value }, _) => operations.push(Operation::Append { key, value }),
                (Step::WriteRegister { key, value }, _) => operations.push(Operation::Write { key, value }),
                (Step::Total, Some(Answer::Total(observed))) => {
                    let read = Total { observed: *observed, expected: total, after_write };
                    // of several the gravest: one that is wrong, rather before the transaction moved money itself
                    let gravity = |read: Total| (read.observed != read.expected, !read.after_write);
                    if read_total.is_none_or(|kept| gravity(kept) < gravity(read)) {
                        read_total = Some(read);
                    }
                }
                (Step::Transfer { from, to, amount }, _) => {
                    operations.push(Operation::Transfer { from, to, amount });
                    after_write |= has_read;
                }
                // what was not answered, or makes no sense, proves nothing here
                (Step::ReadList { .. } | Step::ReadRegister { .. } | Step::Total, _) => {}
            }
            has_read |= reads;
        }
        let end = self.ended.filter(|(_, outcome)| *outcome != history::Outcome::Unknown).map(|(end, _)| end);
        Transaction {
            session: self.session,
            sequence: self.sequence,
            start: self.start,
            end,
            outcome,
            operations,
            total: read_total,
        }
    }
}

struct TransactionsClient<C: Connector> {
    scenario: Scenario,
    connector: C,
    connection: Option<C::Connection>,
    rng: Xoshiro256PlusPlus,
    index: u32,
    /// How many connections it has had, and how many attempts were made on this one.
    connections: u32,
    attempts: u32,
    /// How many values it has written.
    written: u64,
    /// The attempts at the operation in hand, and how many there were.
    tries: Vec<Try>,
    tried: usize,
    ended: Vec<Transaction>,
}

impl<C: Connector> TransactionsClient<C> {
    /// A value that nobody has written yet: the clients' values take turns.
    fn value(&mut self) -> u64 {
        let value = self.written * u64::from(self.scenario.clients) + u64::from(self.index) + 1;
        self.written += 1;
        value
    }

    /// Takes the next place for an attempt, with the steps and a value for each write.
    fn begin(&mut self, drawn: &[Step]) -> usize {
        let place = self.tried;
        if place == self.tries.len() {
            self.tries.push(Try::default());
        }
        self.tried += 1;
        let mut steps = std::mem::take(&mut self.tries[place].steps);
        steps.clear();
        for step in drawn {
            steps.push(match *step {
                Step::Append { key, .. } => Step::Append { key, value: self.value() },
                Step::WriteRegister { key, .. } => Step::WriteRegister { key, value: self.value() },
                other => other,
            });
        }
        let session =
            self.connections.saturating_sub(1).wrapping_mul(self.scenario.clients).wrapping_add(self.index);
        let each = &mut self.tries[place];
        each.answers.clear();
        (each.steps, each.session, each.sequence, each.ended) = (steps, session, self.attempts, None);
        self.attempts += 1;
        place
    }

    fn hand_on(&mut self) {
        self.scenario.ledger.note(&mut self.ended);
    }

    /// Makes transactions of the attempts at the operation in hand.
    fn close_tries(&mut self) {
        let Scenario { ledger, total, .. } = &self.scenario;
        for each in &self.tries[..self.tried] {
            let transaction = each.transaction(*total);
            ledger.count(&transaction);
            let changes = changes(&each.steps);
            match transaction.outcome {
                _ if changes.is_empty() => {}
                history::Outcome::Committed => ledger.transferred(&changes, true),
                history::Outcome::Unknown => ledger.transferred(&changes, false),
                history::Outcome::Aborted => {}
            }
            if each.answers.steps().contains(&Answer::Unreadable) {
                ledger.read_unreadable();
            }
            self.ended.push(transaction);
        }
        self.tried = 0;
    }
}

/// What is not handed on yet is, once nothing more comes; an operation that nobody accounted for may have happened.
impl<C: Connector> Drop for TransactionsClient<C> {
    fn drop(&mut self) {
        self.close_tries();
        if !self.ended.is_empty() {
            self.hand_on();
        }
    }
}

impl<C: Connector> Client for TransactionsClient<C> {
    /// The steps of a transaction. What they write has no value yet.
    type Operation = Vec<Step>;

    fn draw(&mut self) -> Option<Vec<Step>> {
        let mut drawn = Vec::with_capacity(2 * self.scenario.draw.operations as usize);
        self.scenario.draw.steps(&self.scenario.ledger, &mut self.rng, &mut drawn);
        Some(drawn)
    }

    fn kind(operation: &Vec<Step>) -> usize {
        usize::from(writes(operation))
    }

    fn changes(&self, operation: &Vec<Step>) -> bool {
        writes(operation)
    }

    async fn attempt(&mut self, operation: &Vec<Step>) -> Attempt {
        if self.connection.is_none() {
            return Attempt::Failed(crate::Fault::lost("no connection"));
        }
        let place = self.begin(operation);
        let Some(connection) = &mut self.connection else {
            return Attempt::Failed(crate::Fault::lost("no connection"));
        };
        let each = &mut self.tries[place];
        each.start = now();
        let attempt = connection.transaction(&each.steps, &mut each.answers).await;
        let outcome = match &attempt {
            Attempt::Ok => history::Outcome::Committed,
            Attempt::Unknown(_) => history::Outcome::Unknown,
            Attempt::Refused | Attempt::Conflict | Attempt::Failed(_) => history::Outcome::Aborted,
        };
        each.ended = Some((now(), outcome));
        attempt
    }

    fn account(&mut self, _: Vec<Step>, outcome: Outcome) {
        self.close_tries();
        if outcome == Outcome::Refused {
            self.scenario.ledger.row_missing();
        }
        let most = (WAITING / self.scenario.clients).clamp(1, 64);
        if self.ended.len() >= most as usize {
            self.hand_on();
        }
    }

    async fn connect(&mut self) -> Result<(), String> {
        // drop the old connection before asking for a new one
        self.connection = None;
        self.connection = Some(self.connector.connect().await?);
        self.connections += 1;
        self.attempts = 0;
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => connection.check().await,
            None => Ok(()),
        }
    }
}

/// Wraps one client for the engine. To be called by each store's crate, so that the client's loop is compiled
/// there, with static dispatch of every call in it.
pub fn task<C>(connector: C, scenario: Scenario) -> ClientTask
where
    C: Connector + Send + 'static,
{
    Box::new(move |driver| {
        let index = driver.index();
        let seed = scenario.seed ^ (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Box::pin(driver.drive(TransactionsClient {
            scenario,
            connector,
            connection: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            index: u32::try_from(index).unwrap_or(u32::MAX),
            connections: 0,
            attempts: 0,
            written: 0,
            tries: Vec::new(),
            tried: 0,
            ended: Vec::new(),
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(parameters: &Parameters, seed: u64, ledger: &Ledger) -> Vec<Vec<Step>> {
        let draw = Draw::new(parameters);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let one = |_| {
            let mut steps = Vec::new();
            draw.steps(ledger, &mut rng, &mut steps);
            steps
        };
        (0..2_000).map(one).collect()
    }

    fn ledger(parameters: &Parameters) -> Ledger {
        Ledger::new(parameters.layout(), parameters.keys, 1)
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let parameters = Parameters::default();
        let ledger = ledger(&parameters);
        assert_eq!(drawn(&parameters, 5, &ledger), drawn(&parameters, 5, &ledger));
        assert_ne!(drawn(&parameters, 5, &ledger), drawn(&parameters, 6, &ledger));
    }

    #[test]
    fn steps_keep_to_ranges_and_shares_and_write_only_what_they_have_read() {
        let parameters = Parameters { keys: 4, operations: 3, write_share: 0.25, ..Parameters::default() };
        let (mut writes, mut operations) = (0.0, 0.0);
        for steps in drawn(&parameters, 5, &ledger(&parameters)) {
            let count = |is: fn(&Step) -> bool| steps.iter().filter(|step| is(step)).count();
            let writing = count(|step| step.writes());
            let reads = count(|step| matches!(step, Step::ReadList { .. } | Step::ReadRegister { .. }));
            let of_bank = count(|step| matches!(step, Step::Total | Step::Transfer { .. }));
            assert!((1..=3).contains(&(reads + of_bank)), "{steps:?}");
            writes += writing as f64;
            operations += (reads + of_bank) as f64;
            for (place, step) in steps.iter().enumerate() {
                match *step {
                    Step::Append { key, value: 0 } => {
                        assert_eq!(steps[place - 1], Step::ReadList { key });
                    }
                    Step::WriteRegister { key, value: 0 } => {
                        assert_eq!(steps[place - 1], Step::ReadRegister { key });
                    }
                    Step::Transfer { from, to, amount } => {
                        assert!(from != to && from < 4 && to < 4 && (1..=AMOUNT).contains(&amount));
                    }
                    Step::ReadList { key } | Step::ReadRegister { key } => assert!(key < 4),
                    other => assert_eq!(other, Step::Total),
                }
            }
        }
        let share = writes / operations;
        assert!((0.22..0.28).contains(&share), "{share}");
    }

    fn attempt(steps: &[Step], answers: impl FnOnce(&mut Answers), ended: Option<history::Outcome>) -> Try {
        let mut each = Try { steps: steps.to_vec(), ended: ended.map(|how| (9, how)), ..Try::default() };
        answers(&mut each.answers);
        each
    }

    /// Of what was not answered, writes that may have been sent are in the history, and reads are not.
    #[test]
    fn what_was_not_answered_is_in_the_history_only_where_it_may_have_been_done() {
        use history::{Operation, Outcome};
        let steps = [
            Step::ReadList { key: 1 },
            Step::Append { key: 1, value: 7 },
            Step::ReadRegister { key: 2 },
            Step::WriteRegister { key: 2, value: 8 },
            Step::Transfer { from: 1, to: 2, amount: 3 },
        ];
        let read = |answers: &mut Answers| answers.list([5]);
        let operations = |ended| attempt(&steps, read, ended).transaction(0).operations;
        let read = Operation::ReadList { key: 1, values: vec![5] };
        let (append, write) = (Operation::Append { key: 1, value: 7 }, Operation::Write { key: 2, value: 8 });
        assert_eq!(operations(Some(Outcome::Aborted)), [read.clone(), append.clone()]);
        let transfer = Operation::Transfer { from: 1, to: 2, amount: 3 };
        assert_eq!(operations(None), [read.clone(), append.clone(), write.clone(), transfer.clone()]);
        assert_eq!(operations(Some(Outcome::Unknown)), [read, append, write, transfer]);
        assert_eq!(attempt(&steps, |_| (), Some(Outcome::Unknown)).transaction(0).end, None);
        assert_eq!(attempt(&steps, |_| (), Some(Outcome::Aborted)).transaction(0).end, Some(9));
    }

    #[test]
    fn of_several_sums_one_that_is_wrong_is_kept() {
        let sums = |sums: &[i64]| {
            let steps = vec![Step::Total; sums.len()];
            let each = attempt(&steps, |answers| sums.iter().for_each(|sum| answers.total(*sum)), None);
            each.transaction(100).total.map(|total| total.observed)
        };
        assert_eq!([sums(&[]), sums(&[100, 100]), sums(&[100, 97, 100])], [None, Some(100), Some(97)]);
    }

    /// After a transfer of its own, a store may show more than its snapshot.
    #[test]
    fn a_wrong_sum_counts_most_before_a_transfer() {
        let transfer = Step::Transfer { from: 0, to: 1, amount: 5 };
        let sums = |first: i64, second: i64| {
            let steps = [Step::Total, transfer, Step::Total];
            let answers = |answers: &mut Answers| {
                answers.total(first);
                answers.done();
                answers.total(second);
            };
            attempt(&steps, answers, None).transaction(100).total.unwrap()
        };
        let total = |observed, after_write| Total { observed, expected: 100, after_write };
        assert_eq!(sums(97, 96), total(97, false));
        assert_eq!(sums(100, 96), total(96, true));
        assert_eq!(sums(100, 100), total(100, false));
    }

    /// A transfer alone makes no snapshot.
    #[test]
    fn a_sum_is_after_a_write_only_if_a_read_came_before_it() {
        let transfer = Step::Transfer { from: 0, to: 1, amount: 5 };
        let after_write = |steps: &[Step]| {
            let answers = |answers: &mut Answers| {
                for step in steps {
                    match step {
                        Step::ReadList { .. } => answers.list([]),
                        Step::ReadRegister { .. } => answers.register(None),
                        Step::Total => answers.total(97),
                        _ => answers.done(),
                    }
                }
            };
            attempt(steps, answers, None).transaction(100).total.unwrap().after_write
        };
        assert!(!after_write(&[transfer, Step::Total]));
        assert!(!after_write(&[transfer, Step::ReadList { key: 1 }, Step::Total]));
        assert!(after_write(&[Step::ReadList { key: 1 }, transfer, Step::Total]));
        assert!(after_write(&[transfer, Step::ReadRegister { key: 1 }, transfer, Step::Total]));
    }
}
