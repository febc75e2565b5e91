//! The scripts on the reference store: each planted anomaly is caught, and none is seen where a level prevents it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, time::Duration};

use acidtest_anomalies::{How, ModeResult, Outcome, Script, Survey, built_in};
use acidtest_model::{StoreError, Task};
use acidtest_store_memory::{Anomaly, Faults, Memory};
use acidtest_workloads::{
    Place, Store,
    interactive::{InteractiveSession, InteractiveStore, LockMonitor, Mode, Reply, Table},
};

fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

/// What the scripts show on a store, in each of its modes and in more of them.
fn found(store: &dyn InteractiveStore, more: Vec<Mode>, scripts: &[Script]) -> Vec<ModeResult> {
    wait(async {
        let modes = [store.modes().await.unwrap(), more].concat();
        let survey = Survey {
            store,
            product: "memory",
            modes: &modes,
            scripts,
            repeat: 2,
            namespace: "test",
            at_a_time: 8,
            is_interrupted: &|| false,
        };
        let (found, done) = survey.run(|_| true).await;
        done.unwrap();
        assert_eq!(found.len(), modes.len());
        found
    })
}

fn occurring(mode: &ModeResult) -> BTreeSet<&str> {
    let unknown: Vec<_> = mode.cells.iter().filter(|cell| cell.outcome == Outcome::Unknown).collect();
    assert!(unknown.is_empty(), "{}: {unknown:?}", mode.name);
    let occurs = mode.cells.iter().filter(|cell| cell.outcome == Outcome::Occurs);
    occurs.map(|cell| cell.anomaly.as_str()).collect()
}

/// What a correct store allows at each level: as Hermitage has it of PostgreSQL and, for the weakest level, of `MySQL`.
const ALLOWED: [(&str, &str); 4] = [
    (
        "read uncommitted",
        "G1a G1b G1c OTV PMP PMP-write P4 G-single G-single-predicate G-single-write G2-item G2 read-only dirty-read \
         non-repeatable-read phantom",
    ),
    (
        "read committed",
        "PMP P4 G-single G-single-predicate G-single-write G2-item G2 read-only non-repeatable-read phantom",
    ),
    ("repeatable read", "G2-item G2 read-only"),
    ("serializable", ""),
];

/// What else is seen where one protection is missing.
const PLANTED: [(&str, &str, &str); 8] = [
    ("planted dirty write", "read uncommitted", "G0"),
    ("planted dirty read", "read committed", "G1a G1b G1c OTV dirty-read"),
    ("planted aborted read", "read committed", "G1a"),
    ("planted intermediate read", "read committed", "G1b"),
    ("planted lost update", "repeatable read", "P4"),
    ("planted read skew", "repeatable read", "G-single non-repeatable-read"),
    ("planted write skew", "serializable", "G2-item"),
    ("planted phantom", "serializable", "PMP G2 phantom"),
];

#[test]
fn each_planted_anomaly_is_seen_and_no_other_accusation_is_made() {
    let memory = Memory::with(Faults::default());
    let found = found(memory.interactive().unwrap(), Anomaly::modes(), &built_in());
    let words = |text: &'static str| text.split_whitespace().collect::<BTreeSet<&str>>();
    let of = |name: &str| found.iter().find(|mode| mode.name == name).unwrap_or_else(|| panic!("no {name}"));
    for (level, allowed) in ALLOWED {
        assert_eq!(occurring(of(level)), words(allowed), "{level}");
    }
    for (planted, level, seen) in PLANTED {
        let mode = of(&format!("{level}, {planted}"));
        let without = occurring(of(level));
        let added: BTreeSet<&str> = occurring(mode).difference(&without).copied().collect();
        assert!(added.is_superset(&words(seen)), "{planted}: {added:?}");
    }
    assert_eq!(found.len(), ALLOWED.len() + PLANTED.len());
}

#[test]
fn what_prevented_an_anomaly_is_told_by_the_order_in_which_its_steps_stand() {
    let memory = Memory::with(Faults::default());
    let found = found(memory.interactive().unwrap(), Vec::new(), &built_in());
    let how = |level: &str, anomaly: &str| {
        let mode = found.iter().find(|mode| mode.name == level).unwrap();
        mode.cells.iter().find(|cell| cell.anomaly == anomaly).unwrap().how
    };
    assert_eq!(how("read committed", "G0"), Some(How::Blocked));
    assert_eq!(how("read committed", "G1a"), Some(How::OldVersion));
    assert_eq!(how("repeatable read", "P4"), Some(How::RefusedAtWrite));
    assert_eq!(how("serializable", "G2-item"), Some(How::RefusedAtCommit));
    assert_eq!(how("repeatable read", "G2-item"), None);
}

#[test]
fn a_deadlock_ends_in_a_refusal_and_is_no_doubt() {
    let script = Script::parse(
        "anomaly deadlock\ntable test (id int, value int)\nrow (1, 10)\nrow (2, 20)\nT1 begin\nT2 begin\n\
         T1 update test set value = 11 where id = 1\nT2 update test set value = 22 where id = 2\n\
         T1 update test set value = 12 where id = 2\nT2 update test set value = 21 where id = 1\nT1 commit\nT2 commit\n\
         occurs if final is (1, 21) (2, 12)\n",
    );
    let memory = Memory::with(Faults::default());
    let found = found(memory.interactive().unwrap(), Vec::new(), &[script.unwrap()]);
    let cell = &found[1].cells[0];
    assert_eq!((cell.outcome, cell.how), (Outcome::Prevented, Some(How::RefusedAtWrite)), "{cell:?}");
    let steps = &cell.transcript.as_ref().unwrap().steps;
    assert!(
        steps.iter().any(|step| step.came == "waits") && steps.iter().any(|step| step.waited),
        "{steps:?}"
    );
}

/// A store whose sessions, or whose lock monitor, do something else.
struct Odd {
    memory: Memory,
    does: Does,
}

#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Its lock monitor cannot tell.
    TellsNothing,
    /// A commit is never known to have been made.
    LosesCommits,
    /// Each statement takes longer than the first look.
    IsSlow,
    /// Its lock monitor cannot tell, and who waits is refused after a while.
    TimesOut,
}

impl InteractiveStore for Odd {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        Box::pin(async { Ok(vec![self.memory.modes().await?.remove(1)]) })
    }

    fn refuses(&self, mode: &Mode, statement: &str) -> Option<String> {
        self.memory.refuses(mode, statement)
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        self.memory.make_table(place, table)
    }

    fn drop_table<'a>(&'a self, place: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        self.memory.drop_table(place, name)
    }

    fn session<'a>(
        &'a self,
        place: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            let session = self.memory.session(place, mode).await?;
            Ok(Box::new(OddSession { session, does: self.does }) as Box<dyn InteractiveSession>)
        })
    }

    fn lock_monitor(&self) -> Task<'_, Result<Option<Box<dyn LockMonitor>>, StoreError>> {
        Box::pin(async {
            match self.does {
                Does::TellsNothing | Does::TimesOut => Ok(Some(Box::new(Silent) as Box<dyn LockMonitor>)),
                _ => self.memory.lock_monitor().await,
            }
        })
    }
}

/// How long a statement waits where it times out.
const TIME_OUT: Duration = Duration::from_millis(100);

struct OddSession {
    session: Box<dyn InteractiveSession>,
    does: Does,
}

impl InteractiveSession for OddSession {
    fn id(&self) -> u64 {
        self.session.id()
    }

    fn level(&self) -> &str {
        self.session.level()
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            if self.does == Does::IsSlow {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let most = if self.does == Does::TimesOut { TIME_OUT } else { Duration::MAX };
            let ran = tokio::time::timeout(most, self.session.run(statement)).await;
            let reply = ran.unwrap_or_else(|_| Reply::Refused("lock wait timeout exceeded".to_owned()));
            let is_lost = self.does == Does::LosesCommits && statement == "commit";
            if is_lost { Reply::Unknown("the connection was reset".to_owned()) } else { reply }
        })
    }
}

struct Silent;

impl LockMonitor for Silent {
    fn interval(&self) -> Duration {
        Duration::ZERO
    }

    fn waiting(&mut self) -> Task<'_, Result<BTreeSet<u64>, String>> {
        Box::pin(async { Err("it may not be asked".to_owned()) })
    }
}

fn odd(does: Does, anomaly: &str) -> (Outcome, String) {
    let store = Odd { memory: Memory::with(Faults::default()), does };
    let scripts: Vec<Script> = built_in().into_iter().filter(|script| script.name == anomaly).collect();
    let cell = found(&store, Vec::new(), &scripts).remove(0).cells.remove(0);
    (cell.outcome, cell.why.unwrap_or_default())
}

#[test]
fn doubt_accuses_nobody() {
    let (outcome, why) = odd(Does::LosesCommits, "P4");
    assert_eq!(outcome, Outcome::Unknown);
    assert!(why.contains("connection was reset"), "{why}");
    // without a word of the store, a step that takes long need not wait for others
    let (outcome, why) = odd(Does::TellsNothing, "G0");
    assert_eq!(outcome, Outcome::Unknown);
    assert!(why.contains("may not be asked"), "{why}");
    // nor is a refusal the store's answer to the other transaction, if it came after a wait that nobody could see
    let (outcome, why) = odd(Does::TimesOut, "G0");
    assert_eq!(outcome, Outcome::Unknown);
    assert!(why.contains("may not be asked"), "{why}");
    // where nothing waits, nobody has to be asked
    assert_eq!(odd(Does::TellsNothing, "G1a").0, Outcome::Prevented);
}

#[test]
fn a_slow_statement_is_not_taken_for_one_that_waits() {
    assert_eq!(odd(Does::IsSlow, "G1a").0, Outcome::Prevented);
    assert_eq!(odd(Does::IsSlow, "PMP").0, Outcome::Occurs);
}
