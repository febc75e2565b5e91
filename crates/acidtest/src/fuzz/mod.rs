//! Tests the auditor on random plans that pass the plan's check, driven on the reference store. A correct store may
//! delay, fail, conflict, lose connections and go away as it likes: it must never be called broken. A store with a
//! planted bug must never be said to hold once the bug has had an effect that an audit must see.
//!
//! `case.rs`: a case as a small file; `draw.rs`: draws cases at random; `drive.rs`: drives a case through all its
//! cells and trials; `judge.rs`: finds wrong verdicts; `shrink.rs`: finds a smaller case with the same failure;
//! `tally.rs`: counts the verdicts of many cases.

mod case;
mod draw;
mod drive;
mod judge;
mod shrink;
mod tally;

use std::path::Path;

use acidtest_runner::Failure;
use acidtest_store_memory::{Bug, selftest::Clock};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::output;

pub(crate) use case::FuzzCase;
#[cfg(all(test, feature = "serve"))]
pub(crate) use draw::any_plan;
use judge::Misjudgement;
pub(crate) use tally::Tally;

/// One case in this many is driven by the system's clock, on several threads; the others replay exactly.
const BY_SYSTEM: u32 = 12;

/// One case in this many has a correct store, the others have a bug each.
const CORRECT: u32 = 2;

/// Most further cases that are drawn for a bug that was not seen and caught in any case so far.
const SOUGHT: u32 = 200;

/// Number of replays of a case that may fail by chance.
const REPLAYS: u32 = 20;

/// Every workload with the bugs that can be planted in it.
fn bugs() -> Vec<(&'static str, Bug)> {
    let of =
        |workload: &'static str, bugs: &[Bug]| bugs.iter().map(|bug| (workload, *bug)).collect::<Vec<_>>();
    [
        of("inventory", &Bug::INVENTORY),
        of("inventory", &Bug::AT_A_KILL),
        of("inventory", &[Bug::SplitBrain]),
        of("records", &Bug::RECORDS),
        of("records", &Bug::AT_A_KILL),
        of("records", &Bug::IN_A_CLUSTER),
        of("records", &Bug::OF_STRONG_REPLICAS),
        of("records", &Bug::OF_REPLICAS),
        of("join", &Bug::JOIN),
        of("queue", &Bug::QUEUE),
        of("queue", &Bug::AT_A_KILL),
        of("queue", &Bug::QUEUE_AT_A_KILL),
        of("queue", &[Bug::SplitBrain]),
        of("logs", &Bug::LOGS),
        of("logs", &Bug::AT_A_KILL),
        of("logs", &[Bug::SplitBrain]),
        of("parcels", &Bug::PARCELS),
        of("parcels", &Bug::AT_A_KILL),
        of("parcels", &Bug::IN_A_CLUSTER),
        of("transactions", &Bug::TRANSACTIONS),
        of("transactions", &Bug::AT_A_KILL),
        of("transactions", &[Bug::SplitBrain]),
    ]
    .concat()
}

/// The results of many cases.
pub(crate) struct Report {
    pub(crate) tally: Tally,
    /// The first case that was judged wrongly, reduced to a small one, with the wrong verdict; none if all were
    /// judged right.
    pub(crate) failure: Option<Broken>,
}

/// A case that was judged wrongly.
pub(crate) struct Broken {
    pub(crate) case: FuzzCase,
    pub(crate) wrong: Misjudgement,
    /// How often it failed again, and in how many replays, where it does not replay exactly.
    pub(crate) again: Option<(u32, u32)>,
    /// The last events of the case, in words.
    pub(crate) history: Vec<String>,
}

/// Draws and drives this many cases, until one is judged wrongly.
///
/// # Errors
/// A defect of the generator, or an error that keeps the self-test from being run.
pub(crate) fn run(plans: u32, seed: u64, mut tell: impl FnMut(u32)) -> Result<Report, Failure> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::new(&bugs());
    let all = bugs();
    for number in 0..plans {
        let planted = (number % CORRECT != 0).then(|| all[(number / CORRECT) as usize % all.len()]);
        let clock = if rng.random_range(0..BY_SYSTEM) == 0 { Clock::System } else { Clock::Simulated };
        if let Some(broken) = one(&mut rng, planted, clock, &mut tally)? {
            return Ok(Report { tally, failure: Some(broken) });
        }
        tell(number + 1);
    }
    for planted in all {
        for _ in 0..SOUGHT {
            if tally.has_shown(planted) {
                break;
            }
            if let Some(broken) = one(&mut rng, Some(planted), Clock::Simulated, &mut tally)? {
                return Ok(Report { tally, failure: Some(broken) });
            }
        }
    }
    Ok(Report { tally, failure: None })
}

/// Draws and drives one case, and shrinks it if it was judged wrongly.
fn one(
    rng: &mut Xoshiro256PlusPlus,
    planted: Option<(&'static str, Bug)>,
    clock: Clock,
    tally: &mut Tally,
) -> Result<Option<Broken>, Failure> {
    let case = draw::case(rng, planted, clock, &mut tally.refused);
    let (done, wrong) = examine(&case)?;
    tally.add(&case, &done);
    Ok(wrong.map(|wrong| broken(case, wrong, done.history)))
}

/// Drives a case and judges its verdicts.
pub(crate) fn examine(case: &FuzzCase) -> Result<(drive::CaseResult, Option<Misjudgement>), Failure> {
    let done = drive::drive(case)?;
    let wrong = judge::judge(case, &done);
    Ok((done, wrong))
}

/// Shrinks a case that was judged wrongly; one that does not fail each time is replayed several times.
fn broken(case: FuzzCase, wrong: Misjudgement, history: Vec<String>) -> Broken {
    if case.clock == Clock::Simulated {
        let (case, wrong) = shrink::shrink(case, wrong, |case| examine(case).ok()?.1);
        let history = drive::drive(&case).map_or_else(|_| history, |done| done.history);
        return Broken { case, wrong, again: None, history };
    }
    let fails = |_: &u32| matches!(examine(&case), Ok((_, Some(_))));
    let again = (0..REPLAYS).filter(fails).count();
    let again = Some((u32::try_from(again).unwrap_or(REPLAYS), REPLAYS));
    Broken { case, wrong, again, history }
}

impl Broken {
    /// Saves the case and its history as two files side by side, and returns a text that names them.
    pub(crate) fn save(&self, folder: &Path) -> Result<String, Failure> {
        let (case, history) = (folder.join("selftest-failure.toml"), folder.join("selftest-failure.history"));
        output::keep(&case, &self.case.to_text())?;
        output::keep(&history, &(self.history.join("\n") + "\n"))?;
        let again = match self.again {
            None => "it replays exactly".to_owned(),
            Some((failed, of)) => format!("it failed in {failed} of {of} replays: threads go as they will"),
        };
        Ok(format!(
            "{wrong}\n  {again}: acidtest selftest --replay {case}\n  what happened in it: {history}",
            wrong = self.wrong,
            case = case.display(),
            history = history.display(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use acidtest_model::{Lock, ReadPolicy};
    use acidtest_results::{Plan, SecondFigures, silent_from};
    use acidtest_store_memory::Faults;
    use acidtest_workloads::{
        Finding, Verdict,
        guarantee::{ATOMICITY, LOCK},
    };

    use super::{judge::Kind, *};

    /// A correct inventory on a store with the faults that stores have.
    fn case() -> FuzzCase {
        let plan = Plan {
            stores: vec!["memory".to_owned()],
            durability: vec![acidtest_model::Durability::None],
            locks: vec![Lock::Soft, Lock::Hard],
            clients: vec![3, 8],
            trials: 2,
            warmup: "20ms".parse().unwrap(),
            duration: "200ms".parse().unwrap(),
            timeout: "30ms".parse().unwrap(),
            ..Plan::of("inventory")
        };
        let store = Faults { delays: 0.3, cuts: 0.05, unanswered: 0.05, outages: true, ..Faults::default() };
        FuzzCase {
            seed: 1,
            clock: Clock::Simulated,
            sound: 0,
            halt: None,
            reads: ReadPolicy::default(),
            store,
            plan,
        }
    }

    #[test]
    fn a_case_replays_exactly_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("case.toml");
        let case = FuzzCase { halt: Some(150), ..case() };
        std::fs::write(&file, case.to_text()).unwrap();
        let read = FuzzCase::load(&file).unwrap();
        assert_eq!(read, case);
        let histories = [&case, &read].map(|case| drive::drive(case).unwrap().history);
        assert!(histories[0].len() > 100, "{} events", histories[0].len());
        let pairs = histories[0].iter().zip(&histories[1]);
        let differing = pairs.enumerate().find(|(_, (one, other))| one != other);
        assert_eq!(differing, None);
        assert_eq!(histories[0].len(), histories[1].len());
        let other = drive::drive(&FuzzCase { seed: 2, ..case }).unwrap();
        assert_ne!(other.history, histories[0]);
    }

    #[test]
    fn a_case_that_was_judged_wrongly_is_kept_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let wrong = Misjudgement::new(Kind::FalseAlarm, "made up".to_owned());
        let history = vec!["first".to_owned(), "second".to_owned()];
        let mut broken = Broken { case: case(), wrong, again: None, history };
        let said = broken.save(folder.path()).unwrap();
        let file = folder.path().join("selftest-failure.toml");
        assert!(said.contains("a correct store was called broken: made up"), "{said}");
        assert!(said.contains(&format!("it replays exactly: acidtest selftest --replay {}", file.display())));
        assert_eq!(FuzzCase::load(&file).unwrap(), broken.case);
        let history = std::fs::read_to_string(folder.path().join("selftest-failure.history")).unwrap();
        assert_eq!(history, "first\nsecond\n");
        broken.again = Some((3, 20));
        assert!(broken.save(folder.path()).unwrap().contains("it failed in 3 of 20 replays"));
    }

    #[test]
    fn wrong_verdicts_are_told_by_their_kind() {
        let sound = case();
        let planted = FuzzCase { store: sound.store.with(Bug::DropWrite), ..sound.clone() };
        let told = |case: &FuzzCase, verdict: Verdict| {
            let mut done = drive::drive(case).unwrap();
            assert_eq!(judge::judge(case, &done), None, "it is judged as it should be");
            for trial in &mut done.trials {
                let audit = &mut trial.driven.audited.audit;
                audit.verdict = verdict;
                audit.findings = vec![Finding::new(
                    "torn",
                    u64::from(verdict == Verdict::Broken),
                    "operations",
                    ATOMICITY,
                )];
            }
            judge::judge(case, &done).map(|wrong| wrong.kind)
        };
        assert_eq!(told(&sound, Verdict::Holds), None);
        assert_eq!(told(&sound, Verdict::Broken), Some(Kind::FalseAlarm));
        assert_eq!(told(&sound, Verdict::Unknown), Some(Kind::Unexplained));
        // no plan of records uses every operation that records have
        let records =
            FuzzCase { plan: Plan { workload: "records".to_owned(), ..sound.plan.clone() }, ..sound.clone() };
        assert_eq!(told(&records, Verdict::Unknown), Some(Kind::Unexplained));
        assert_eq!(told(&planted, Verdict::Holds), Some(Kind::Missed));
        assert_eq!(told(&planted, Verdict::Broken), None);
        // what a kill explains is not the lock's, and what one life of the store proves is
        let killed = FuzzCase { store: sound.store.with(Bug::LoseLast), ..sound };
        let mut done = drive::drive(&killed).unwrap();
        assert_eq!(judge::judge(&killed, &done), None);
        let audit = &mut done.trials[0].driven.audited.audit;
        audit.verdict = Verdict::Broken;
        for (within_epoch, wrong) in [(0, None), (1, Some(Kind::Accused))] {
            let oversold = Finding::new("oversold", 1, "units", LOCK).or_loss().within_epoch(within_epoch);
            done.trials[0].driven.audited.audit.findings = vec![oversold];
            assert_eq!(judge::judge(&killed, &done).map(|wrong| wrong.kind), wrong);
        }
    }

    /// A rate so low that no operation comes for most of the time ends no measured part early, and stretches none.
    #[test]
    fn a_measured_part_of_another_length_is_told() {
        let slow = FuzzCase {
            plan: Plan { rates: vec![0.5], duration: "400ms".parse().unwrap(), ..case().plan },
            ..case()
        };
        let mut done = drive::drive(&slow).unwrap();
        let measured = &done.trials[0].driven.measurement;
        assert_eq!((measured.window, measured.stopped.is_some()), (Duration::from_millis(400), false));
        assert_ne!(judge::judge(&slow, &done).map(|wrong| wrong.kind), Some(Kind::Window));
        done.trials[0].driven.measurement.window = Duration::from_millis(399);
        assert_eq!(judge::judge(&slow, &done).map(|wrong| wrong.kind), Some(Kind::Window));
    }

    /// A store that has no room for further changes fails each of them without effect: nobody may accuse it, and a report says
    /// since when nothing succeeded.
    #[test]
    fn a_store_that_fills_up_holds_and_it_is_told_since_when() {
        let plan = Plan {
            locks: vec![Lock::Native],
            clients: vec![4],
            trials: 1,
            warmup: "0s".parse().unwrap(),
            duration: "12s".parse().unwrap(),
            ..case().plan
        };
        let store = Faults { delays: 1.0, full: Some(1_000), ..Faults::default() };
        let filled = FuzzCase { store, plan, ..case() };
        let done = drive::drive(&filled).unwrap();
        assert_eq!(judge::judge(&filled, &done), None);
        let driven = &done.trials[0].driven;
        assert_eq!(driven.audited.audit.verdict, Verdict::Holds);
        let names: Vec<&str> = driven.measurement.operations.iter().map(|each| each.name).collect();
        let series: Vec<SecondFigures> =
            driven.measurement.series.iter().map(|second| SecondFigures::of(second, &names)).collect();
        let ok: Vec<u64> = series.iter().map(|second| second.ok_of(&[])).collect();
        let full_at = ok.iter().rposition(|ok| *ok > 0).unwrap() as u64 + 1;
        assert_eq!(silent_from(&series, 12.0, &["ok"], &[]), Some(full_at), "{ok:?}");
    }

    /// The parts of a case that do not matter for its failure are removed, and the others are kept.
    #[test]
    fn a_failure_shrinks_to_what_it_takes() {
        let mut large = case();
        large.plan.parameters.insert("items".to_owned(), serde_json::json!([10, 20]));
        large.plan.parameters.insert("units_max".to_owned(), 5.into());
        let wrong = |case: &FuzzCase| {
            let enough = case.plan.locks.contains(&Lock::Soft)
                && case.plan.clients.iter().any(|clients| *clients > 2)
                && case.store.unanswered > 0.0;
            enough.then(|| Misjudgement::new(Kind::FalseAlarm, "made up".to_owned()))
        };
        let (small, _) = shrink::shrink(large.clone(), wrong(&large).unwrap(), wrong);
        let expected = FuzzCase {
            store: Faults { unanswered: 0.05, ..Faults::default() },
            plan: Plan {
                stores: large.plan.stores.clone(),
                durability: large.plan.durability.clone(),
                locks: vec![Lock::Soft],
                clients: vec![4],
                warmup: "0s".parse().unwrap(),
                duration: "1ms".parse().unwrap(),
                timeout: large.plan.timeout,
                ..Plan::of("inventory")
            },
            ..large
        };
        assert_eq!(small.plan.clients.len(), 1);
        assert!(small.plan.clients[0] > 2 && small.plan.clients[0] <= 4, "{:?}", small.plan.clients);
        let same =
            FuzzCase { plan: Plan { clients: expected.plan.clients.clone(), ..small.plan.clone() }, ..small };
        assert_eq!(same, expected);
    }

    #[test]
    fn what_has_seen_nothing_says_so() {
        assert!(Tally::new(&bugs()).too_little().is_some());
    }
}
