//! Judges the verdicts on a case.

use std::fmt;

use acidtest_engine::Outcome;
use acidtest_store_memory::{Bug, Faults, selftest::Clock};
use acidtest_workloads::{
    Audit, Finding, READS_IN_DOUBT, Verdict,
    guarantee::{DURABILITY, ISOLATION, LOCK},
    queue::DOUBTFUL,
};

use super::{
    FuzzCase,
    drive::{CaseResult, TrialDone},
};

/// A case with a wrong verdict, and in which way it is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misjudgement {
    pub(crate) kind: Kind,
    /// The trial that was judged wrongly, and its verdict, in words.
    text: String,
}

impl Misjudgement {
    pub(crate) fn new(kind: Kind, text: String) -> Self {
        Self { kind, text }
    }
}

/// The ways in which verdicts can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A correct store was called broken.
    FalseAlarm,
    /// A bug had an effect that an audit must see, and the store was said to hold.
    Missed,
    /// A correct lock was accused of what a kill had lost.
    Accused,
    /// What was lost with a leader of a cluster was held against the durability of its members.
    Ascribed,
    /// A store was accused of what it had lost when it restarted unasked, of which it had promised nothing.
    Restarted,
    /// A store was accused of what another one, which took its place, did not have.
    FailedOver,
    /// The verdict was unknown, and nothing in the plan explains that.
    Unexplained,
    /// A correct store gave its clients answers that contradict each other: the reference store itself has a bug.
    Witness,
    /// Reads were said to be older, or newer, than the store knows.
    Age,
    /// What was measured is not as long as was asked for.
    Window,
    /// The case did not end.
    Endless,
}

impl fmt::Display for Misjudgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::FalseAlarm => "a correct store was called broken",
            Kind::Missed => "what must be seen was not",
            Kind::Accused => "a correct lock was accused of what a kill had lost",
            Kind::Ascribed => "what was lost with a leader was held against durability",
            Kind::Restarted => "a store was accused of what it may lose in an unrequested restart",
            Kind::FailedOver => "a store was accused of what another one in its place did not have",
            Kind::Unexplained => "nothing in the plan explains why the verdict is unknown",
            Kind::Witness => "the reference store itself is wrong",
            Kind::Age => "the age of reads was told wrongly",
            Kind::Window => "the measured part is not as long as was asked for",
            Kind::Endless => "the case did not end",
        };
        write!(f, "{what}: {}", self.text)
    }
}

/// The first wrong verdict of a case, if there is one.
pub(crate) fn judge(case: &FuzzCase, done: &CaseResult) -> Option<Misjudgement> {
    if done.hung {
        return Some(Misjudgement {
            kind: Kind::Endless,
            text: "a hundred hours of its own time have passed".to_owned(),
        });
    }
    done.trials.iter().find_map(|trial| {
        let kind = wrong(case, trial)?;
        let TrialDone { name, driven, .. } = trial;
        let audit: &Audit = &driven.audited.audit;
        let (struck, shown) = (driven.struck, driven.shown);
        let age = driven.misjudged_age().unwrap_or_default();
        let text = format!(
            "{name}: {audit}\n  the bug has struck {struck} times, {shown} things are to be seen; {:?} {age}",
            audit.evidence
        );
        Some(Misjudgement::new(kind, text))
    })
}

fn wrong(case: &FuzzCase, trial: &TrialDone) -> Option<Kind> {
    let TrialDone { without, driven, struck, .. } = trial;
    let audit = &driven.audited.audit;
    let no_bug = *struck == 0;
    let loses = |bug: Bug| bug.strikes_at_a_kill() || bug == Bug::SplitBrain;
    if case.store.bug.is_some_and(loses) && accuses_lock(audit, without) {
        return Some(Kind::Accused);
    }
    let is_durability = |finding: &Finding| finding.count > 0 && finding.guarantee == DURABILITY.name;
    if driven.promoted && audit.findings.iter().any(is_durability) {
        return Some(Kind::Ascribed);
    }
    // whoever restarts unasked and keeps nothing has lost what it may lose, and another server need not have all
    let loses = [Bug::LoseLast, Bug::LoseMiddle, Bug::LoseClient];
    if case.store.bug.is_some_and(|bug| loses.contains(&bug)) && audit.breaks_promise(without) {
        match (driven.restarted, driven.failed_over) {
            (true, _) => return Some(Kind::Restarted),
            (_, true) => return Some(Kind::FailedOver),
            _ => {}
        }
    }
    if !is_as_long_as_asked(case, trial) {
        return Some(Kind::Window);
    }
    // by the system's clock nobody knows what others knew
    if case.clock == Clock::Simulated && driven.misjudged_age().is_some() {
        return Some(Kind::Age);
    }
    match audit.verdict {
        Verdict::Broken if no_bug && audit.breaks_promise(without) => Some(Kind::FalseAlarm),
        // without a promise a correct store breaks too, and the audit must see that
        Verdict::Holds if driven.shown > 0 => {
            Some(if no_bug && without.is_empty() { Kind::Witness } else { Kind::Missed })
        }
        Verdict::Unknown if !is_explained(case, trial) => Some(Kind::Unexplained),
        _ => None,
    }
}

/// Whether the measured part took the plan's duration, where it has one and nothing ended it early. By the system's clock a
/// busy machine may stretch it.
fn is_as_long_as_asked(case: &FuzzCase, trial: &TrialDone) -> bool {
    let FuzzCase { plan, clock, .. } = case;
    let has_duration = plan.ops.is_none() && plan.trace.is_none() && plan.workload != "logs";
    let measurement = &trial.driven.measurement;
    if !has_duration || *clock != Clock::Simulated || measurement.stopped.is_some() {
        return true;
    }
    measurement.window == plan.duration.0
}

/// Whether a lock that promises something, or an isolation level, is still accused once the kills are taken into account.
fn accuses_lock(audit: &Audit, without: &[&str]) -> bool {
    let mut crossed = audit.clone();
    crossed.across_epochs(without);
    let is_accused = |finding: &Finding| {
        let is_theirs = [LOCK, ISOLATION].iter().any(|guarantee| finding.guarantee == guarantee.name);
        finding.count > 0 && is_theirs && !without.contains(&finding.guarantee.as_str())
    };
    crossed.findings.iter().any(is_accused)
}

/// So few operations may all be due later, as they arrive at random.
const FEW: f64 = 5.0;

/// Whether the plan explains a verdict of unknown: nothing was acknowledged, or none was due yet at the plan's rate, or not all
/// of a sequence; or the trial was interrupted; or the store was gone when the audit asked, or another one was there, which had
/// not all; or faults left it open of all that was consumed whether the store has read an acknowledgement of it, or of reads at
/// replicas whether one of these had restarted.
fn is_explained(case: &FuzzCase, trial: &TrialDone) -> bool {
    let operations = &trial.driven.measurement.operations;
    let ended = |outcome| operations.iter().map(|each| each.count(outcome)).sum::<u64>();
    let others: u64 = Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Ok).map(ended).sum();
    // a workload need not do each of its operations; but a queue without published messages proves nothing
    let nothing = ended(Outcome::Ok) == 0
        || operations.first().is_some_and(|each| each.name == "publish" && each.count(Outcome::Ok) == 0);
    let due = |rate: &f64| rate * case.plan.duration.0.as_secs_f64();
    let none_due = nothing && others == 0 && case.plan.rates.iter().any(|rate| due(rate) < FEW);
    let cut_short = case.halt.is_some() && (nothing || case.plan.trace.is_some());
    let given_up = case.plan.trace.is_some() && others > 0;
    let evidence = |name: &str| trial.driven.audited.audit.evidence.get(name).copied().unwrap_or_default();
    let is_doubtful = [DOUBTFUL, READS_IN_DOUBT].into_iter().any(|doubt| evidence(doubt) > 0);
    let is_disturbed = disturbs(&case.store) || others > 0;
    let is_elsewhere = trial.driven.failed_over && !trial.driven.audited.audit.excused.is_empty();
    case.store.to_the_end
        || is_elsewhere
        || none_due
        || cut_short
        || given_up
        || ((nothing || is_doubtful) && is_disturbed)
}

/// Whether a store's faults may keep a client from completing any operation.
fn disturbs(faults: &Faults) -> bool {
    let Faults { unanswered, delays, conflicts, failures, swapped, cuts, full, .. } = *faults;
    let shares = [unanswered, delays, conflicts, failures, swapped, cuts];
    faults.outages || full.is_some() || shares.iter().any(|share| *share > 0.0)
}
