//! Checks of single transactions of the workload `transactions`, for the unit tests of adapters, which can reach their own
//! connections.

use std::{collections::BTreeSet, time::Duration};

use acidtest_engine::Attempt;
use acidtest_model::Isolation;
use acidtest_workloads::{
    LoadProgress, Place, Store,
    interactive::{InteractiveSession, LockMonitor, Reply},
    transactions::{
        Answer, Answers, Connector, Held, Layout, Operations, Requirements, State, Step, Table,
        TransactionsStore,
    },
};

use crate::NAMESPACE;

const LAYOUT: Layout = Layout { lists: 3, registers: 40, accounts: 4, balance: 100 };

/// A function that makes the adapter's connector for a trial.
pub trait Connect<C>: Fn(&Place, &Requirements) -> C {}
impl<C, F: Fn(&Place, &Requirements) -> C> Connect<C> for F {}

/// A trial that was loaded, with a connection at a level of isolation.
struct Trial<'a, S, C: Connector> {
    store: &'a S,
    place: Place,
    wanted: Requirements,
    connection: C::Connection,
}

impl<'a, S: Store, C: Connector> Trial<'a, S, C> {
    /// No two checks that run on one namespace may have the same number.
    async fn loaded(
        store: &'a S,
        number: u32,
        isolation: Option<Isolation>,
        connect: &impl Connect<C>,
    ) -> Self {
        let place = Place { namespace: NAMESPACE.to_owned(), trial: number };
        let wanted = Requirements { isolation, layout: LAYOUT };
        let loaded = LoadProgress::default();
        port(store).load(&place, &LAYOUT, &loaded).await.unwrap();
        let connection = connect(&place, &wanted).connect().await.unwrap();
        Self { store, place, wanted, connection }
    }

    async fn run(&mut self, steps: &[Step]) -> (Attempt, Answers) {
        let mut answers = Answers::default();
        let attempt = self.connection.transaction(steps, &mut answers).await;
        (attempt, answers)
    }

    async fn state(&self) -> State {
        let mut state = State::default();
        port(self.store).state(&self.place, &LAYOUT, &mut state).await.unwrap();
        state
    }

    /// Asserts that this is read back, and the rest as it was loaded.
    async fn holds(&self, lists: &[(u32, &[u64])], registers: &[(u32, u64)], accounts: &[(u32, i64)]) {
        let mut state = State::default();
        for key in 0..LAYOUT.lists {
            let list = lists.iter().find(|(of, _)| *of == key).map_or(&[][..], |(_, list)| list);
            state.list(key, list.to_vec());
        }
        for key in 0..LAYOUT.registers {
            state.register(key, registers.iter().find(|(of, _)| *of == key).map(|(_, value)| *value));
        }
        for key in 0..LAYOUT.accounts {
            let account = accounts.iter().find(|(of, _)| *of == key);
            state.account(key, account.map_or(LAYOUT.balance, |(_, balance)| *balance));
        }
        assert_eq!(self.state().await, state);
    }

    async fn end(self) {
        drop(self.connection);
        port(self.store).unload(&self.place).await.unwrap();
        let gone = port(self.store).state(&self.place, &LAYOUT, &mut State::default()).await;
        assert!(gone.is_err(), "the tables are still there");
    }

    /// Runs a transaction that comes to wait for a row which a session of the store's interactive port holds by these
    /// statements. `then` goes on in that session, and is told who waits.
    async fn held_up(
        &mut self,
        steps: &[Step],
        hold: &[String],
        then: impl AsyncFnOnce(&mut dyn InteractiveSession, BTreeSet<u64>),
    ) -> (Attempt, Answers) {
        let interactive = self.store.interactive().unwrap();
        let mode = interactive.modes().await.unwrap().remove(0);
        let mut session = interactive.session(&self.place, &mode).await.unwrap();
        let mut monitor = interactive.lock_monitor().await.unwrap().unwrap();
        for statement in hold {
            let reply = session.run(statement).await;
            assert!(matches!(reply, Reply::Done(_)), "{statement}: {reply:?}");
        }
        let ((attempt, answers), ()) = tokio::join!(self.run(steps), async {
            let waiting = until_somebody_waits(&mut *monitor).await;
            then(&mut *session, waiting).await;
        });
        session.run("rollback").await;
        (attempt, answers)
    }
}

fn port(store: &impl Store) -> &dyn TransactionsStore {
    store.transactions().unwrap()
}

async fn until_somebody_waits(monitor: &mut dyn LockMonitor) -> BTreeSet<u64> {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        // also before the first look: the server may still tell what another check has asked it
        tokio::time::sleep(monitor.interval().max(Duration::from_millis(1))).await;
        let waiting = monitor.waiting().await.unwrap();
        if !waiting.is_empty() {
            return waiting;
        }
        assert!(tokio::time::Instant::now() < deadline, "nobody waits for the row that is held");
    }
}

/// An answer with the list's own values in the place of where they stand.
fn told(answers: &Answers) -> Vec<String> {
    let told = |answer: &Answer| match answer {
        Answer::List(list) => format!("{:?}", answers.values(list.clone())),
        Answer::Register(value) => format!("{value:?}"),
        Answer::Total(total) => total.to_string(),
        Answer::Done => "done".to_owned(),
        Answer::Unreadable => "unreadable".to_owned(),
    };
    answers.steps().iter().map(told).collect()
}

const LIST: Step = Step::ReadList { key: 1 };
const REGISTER: Step = Step::ReadRegister { key: 0 };
/// The largest value that is ever written.
const LARGEST: u64 = (1 << 63) - 1;

/// At every level that the store offers: each step does what it says, and sees what the steps before it did; what follows a row that
/// is missing is not done, nor what came before it.
pub async fn does_what_it_says<S: Store, C: Connector>(
    store: &S,
    levels: &[Isolation],
    connect: impl Connect<C>,
) {
    let levels = levels.iter().copied().map(Some).chain([None]);
    for (number, level) in (0..).zip(levels) {
        let mut trial = Trial::<S, C>::loaded(store, number, level, &connect).await;
        trial.holds(&[], &[], &[]).await;
        assert_eq!(trial.run(&[]).await, (Attempt::Ok, Answers::default()), "nothing to do");
        let append = |value| Step::Append { key: 1, value };
        let write = |value| Step::WriteRegister { key: 0, value };
        let transfer = Step::Transfer { from: 2, to: 0, amount: 150 };
        let steps = [LIST, append(1), LIST, append(LARGEST), LIST, REGISTER, write(LARGEST), REGISTER];
        let (attempt, answers) =
            trial.run(&[&steps[..], &[Step::Total, transfer, Step::Total]].concat()).await;
        assert_eq!(attempt, Attempt::Ok, "{level:?}");
        let appended = format!("[1, {LARGEST}]");
        let written = format!("Some({LARGEST})");
        let expected =
            ["[]", "done", "[1]", "done", &appended, "None", "done", &written, "400", "done", "400"];
        assert_eq!(told(&answers), expected, "{level:?}");
        let lists: [(u32, &[u64]); 1] = [(1, &[1, LARGEST])];
        let (registers, accounts) = ([(0, LARGEST)], [(0, 250), (2, -50)]);
        trial.holds(&lists, &registers, &accounts).await;

        for (missing, answered) in [
            (Step::ReadList { key: LAYOUT.lists }, 1),
            (Step::ReadRegister { key: LAYOUT.registers }, 1),
            (Step::Append { key: LAYOUT.lists, value: 9 }, 1),
            (Step::WriteRegister { key: LAYOUT.registers, value: 9 }, 1),
            (Step::Transfer { from: 0, to: LAYOUT.accounts, amount: 1 }, 1),
            (Step::Transfer { from: LAYOUT.accounts, to: 0, amount: 1 }, 1),
        ] {
            let (attempt, answers) = trial.run(&[append(7), missing, write(8)]).await;
            assert_eq!(attempt, Attempt::Refused, "{level:?}: {missing:?}");
            assert_eq!(answers.steps().len(), answered, "{level:?}: {missing:?}");
        }
        trial.holds(&lists, &registers, &accounts).await;
        // the connection goes on after that
        assert_eq!(trial.run(&[LIST, REGISTER]).await.0, Attempt::Ok, "{level:?}");
        trial.end().await;
    }
}

/// What is in the store and nobody has written there is told as such: `spoil` has made a list and a register of the trial so, of number
/// 1 and 0.
pub async fn tells_what_makes_no_sense<S: Store, C: Connector>(
    store: &S,
    connect: impl Connect<C>,
    spoil: impl AsyncFn(&Place),
) {
    let mut trial = Trial::<S, C>::loaded(store, 10, None, &connect).await;
    spoil(&trial.place).await;
    let (attempt, answers) = trial.run(&[LIST, REGISTER, Step::Total]).await;
    assert_eq!(attempt, Attempt::Ok);
    assert_eq!(told(&answers), ["unreadable", "unreadable", "400"]);
    // the rows are there, and nothing more is known of them
    let mut state = State::default();
    (0..LAYOUT.lists).filter(|key| *key != 1).for_each(|key| state.list(key, Vec::new()));
    (1..LAYOUT.registers).for_each(|key| state.register(key, None));
    (0..LAYOUT.accounts).for_each(|key| state.account(key, LAYOUT.balance));
    state.row(Table::Lists, 1, &Held::Other);
    state.row(Table::Registers, 0, &Held::Other);
    assert_eq!(trial.state().await, state);
    trial.end().await;
}

/// A sum over fewer accounts than were loaded is none: a row is missing. `lose` removes the account of a number.
pub async fn misses_lost_accounts<S: Store, C: Connector>(
    store: &S,
    connect: impl Connect<C>,
    lose: impl AsyncFn(&Place, u32),
) {
    let mut trial = Trial::<S, C>::loaded(store, 11, None, &connect).await;
    for account in 0..LAYOUT.accounts {
        lose(&trial.place, account).await;
        let (attempt, answers) = trial.run(&[LIST, Step::Total, LIST]).await;
        assert_eq!((attempt, &*told(&answers)), (Attempt::Refused, &["[]".to_owned()][..]), "{account}");
    }
    trial.end().await;
}

/// A transaction has read the total, and comes to an account that another one has changed when that commits: how it ends at a level of
/// isolation.
pub async fn meets_a_later_commit<S: Store, C: Connector>(
    store: &S,
    level: Isolation,
    connect: impl Connect<C>,
    table: impl Fn(&Place, &str) -> String,
) -> (Attempt, Vec<String>) {
    let mut trial = Trial::<S, C>::loaded(store, 20 + level as u32, Some(level), &connect).await;
    let accounts = table(&trial.place, "accounts");
    let hold = ["begin".to_owned(), format!("update {accounts} set balance = balance + 1 where id = 1")];
    let steps = [Step::Total, Step::Transfer { from: 0, to: 1, amount: 10 }, Step::Total];
    let commit = async |session: &mut dyn InteractiveSession, _| {
        assert!(matches!(session.run("commit").await, Reply::Done(_)));
    };
    let (attempt, answers) = trial.held_up(&steps, &hold, commit).await;
    let moved: &[(u32, i64)] = if attempt == Attempt::Ok { &[(0, 90), (1, 111)] } else { &[(1, 101)] };
    trial.holds(&[], &[], moved).await;
    assert_eq!(trial.run(&[LIST]).await.0, Attempt::Ok, "the connection goes on");
    trial.end().await;
    (attempt, told(&answers))
}

/// A transaction that waits for another one, which waits for it, is rolled back and told as a conflict. The other one has changed much
/// more, and begins with `patience`, by which it is not the one to give way where the server lets that be set.
pub async fn is_told_of_a_deadlock<S: Store, C: Connector>(
    store: &S,
    connect: impl Connect<C>,
    table: impl Fn(&Place, &str) -> String,
    patience: &[&str],
) {
    let mut trial = Trial::<S, C>::loaded(store, 30, None, &connect).await;
    let (accounts, registers) = (table(&trial.place, "accounts"), table(&trial.place, "registers"));
    let update = |id| format!("update {accounts} set balance = balance + 1 where id = {id}");
    let mut hold: Vec<String> = patience.iter().map(|&statement| statement.to_owned()).collect();
    hold.extend(["begin".to_owned(), format!("update {registers} set value = 1"), update(1)]);
    // on a machine that stands still, both may have to be patient
    for _ in 0..10 {
        let close = async |session: &mut dyn InteractiveSession, _| {
            session.run(&update(0)).await;
            session.run("rollback").await;
        };
        let steps = [Step::Append { key: 1, value: 7 }, Step::Transfer { from: 0, to: 1, amount: 10 }];
        let (attempt, answers) = trial.held_up(&steps, &hold, close).await;
        if attempt == Attempt::Conflict {
            assert_eq!(told(&answers), ["done"]);
            assert_eq!(trial.run(&[LIST]).await.0, Attempt::Ok, "the connection goes on");
            trial.end().await;
            return;
        }
        assert_eq!(attempt, Attempt::Ok, "it was the other one that gave way");
    }
    panic!("it was always the other one that gave way");
}

/// A transaction whose connection is ended before it commits is proved to have had no effect. `kill` is the statement that ends the
/// session of this number.
pub async fn dies_before_it_commits<S: Store, C: Connector>(
    store: &S,
    connect: impl Connect<C>,
    table: impl Fn(&Place, &str) -> String,
    kill: impl Fn(u64) -> String,
) {
    let mut trial = Trial::<S, C>::loaded(store, 31, None, &connect).await;
    let accounts = table(&trial.place, "accounts");
    let hold = ["begin".to_owned(), format!("update {accounts} set balance = balance + 1 where id = 1")];
    let end = async |session: &mut dyn InteractiveSession, waiting: BTreeSet<u64>| {
        assert_eq!(waiting.len(), 1);
        for id in waiting {
            let reply = session.run(&kill(id)).await;
            assert!(matches!(reply, Reply::Done(_) | Reply::Rows(_)), "{reply:?}");
        }
    };
    let steps = [Step::Append { key: 1, value: 7 }, Step::Transfer { from: 0, to: 1, amount: 10 }];
    let (attempt, answers) = trial.held_up(&steps, &hold, end).await;
    assert!(matches!(&attempt, Attempt::Failed(fault) if fault.connection_lost), "{attempt:?}");
    assert_eq!(told(&answers), ["done"]);
    trial.connection = connect(&trial.place, &trial.wanted).connect().await.unwrap();
    trial.run(&[LIST]).await;
    trial.holds(&[], &[], &[]).await;
    trial.end().await;
}
