//! Counts the verdicts of many cases.

use std::collections::BTreeMap;

use acidtest_engine::Outcome;
use acidtest_model::count;
use acidtest_report::{Entry, Priority, Table};
use acidtest_store_memory::Bug;
use acidtest_workloads::Verdict;

use super::{FuzzCase, drive::CaseResult};

/// Counts of verdicts, by workload and by bug.
pub(crate) struct Tally {
    /// Counts for correct stores, by workload.
    sound: BTreeMap<String, CorrectStoreTally>,
    /// Counts for planted bugs, by workload and bug.
    planted: BTreeMap<(String, Bug), BugTally>,
    /// Number of plans that were drawn and refused by their check.
    pub(crate) refused: u64,
}

/// Counts of the trials on correct stores, by verdict.
#[derive(Clone, Copy, Debug, Default)]
struct CorrectStoreTally {
    plans: u64,
    trials: u64,
    taken_over: u64,
    acknowledged: u64,
    unanswered: u64,
    kills: u64,
    /// Those kills that a replica was promoted after.
    promotions: u64,
    /// Reads that other members than the leader may have answered.
    replica_reads: u64,
    /// Those of them that missed something.
    stale: u64,
    held: u64,
    /// Trials that were broken where nothing was promised.
    excused: u64,
    unknown: u64,
}

/// Counts of the trials with a bug.
#[derive(Clone, Copy, Debug, Default)]
struct BugTally {
    plans: u64,
    struck: u64,
    /// Trials in which the bug had an effect that an audit must see.
    shown: u64,
    /// Trials among those in `shown` whose verdict was broken.
    broken: u64,
}

impl Tally {
    /// A tally with all counts at 0, for these bugs.
    pub(crate) fn new(bugs: &[(&'static str, Bug)]) -> Self {
        let planted =
            bugs.iter().map(|(workload, bug)| (((*workload).to_owned(), *bug), BugTally::default()));
        Self { sound: BTreeMap::new(), planted: planted.collect(), refused: 0 }
    }

    pub(crate) fn add(&mut self, case: &FuzzCase, done: &CaseResult) {
        let workload = case.plan.workload.clone();
        match case.store.bug {
            None => self.sound.entry(workload).or_default().add(done),
            // the end of the log that is lost at async is no bug, and is to be seen as well
            Some(bug) => {
                self.planted.entry((workload, bug)).or_default().add(done, case.store.without().is_none());
            }
        }
    }

    /// Whether the bug has had an effect that an audit must see, and was caught.
    pub(crate) fn has_shown(&self, (workload, bug): (&str, Bug)) -> bool {
        self.planted.get(&(workload.to_owned(), bug)).is_some_and(|planted| planted.broken > 0)
    }

    /// A message if too little was judged for a conclusion; none otherwise.
    pub(crate) fn too_little(&self) -> Option<String> {
        if let Some(((workload, bug), _)) = self.planted.iter().find(|(_, planted)| planted.broken == 0) {
            let meaning = bug.meaning();
            return Some(format!(
                "\"{meaning}\" did nothing in any plan of {workload} that an audit must see"
            ));
        }
        let seldom = |sound: &CorrectStoreTally| sound.held * 2 < sound.trials - sound.excused;
        let (workload, sound) = self.sound.iter().find(|(_, sound)| seldom(sound))?;
        let [held, trials] = [sound.held, sound.trials - sound.excused].map(count);
        Some(format!("of {trials} trials of {workload} on correct stores only {held} could be said to hold"))
    }

    pub(crate) fn tables(&self) -> [Table; 2] {
        let mut sound = Table::new([
            ("correct store", Priority::Needed),
            ("plans", Priority::Middle),
            ("trials", Priority::Needed),
            ("took over data", Priority::Low),
            ("acknowledged", Priority::Middle),
            ("unanswered", Priority::Middle),
            ("kills", Priority::Middle),
            ("promotions", Priority::Middle),
            ("reads at replicas", Priority::Low),
            ("stale", Priority::Low),
            ("hold", Priority::Needed),
            ("break, nothing promised", Priority::Needed),
            ("unknown", Priority::Needed),
        ]);
        for (workload, each) in &self.sound {
            let CorrectStoreTally {
                plans,
                trials,
                taken_over,
                acknowledged,
                unanswered,
                kills,
                promotions,
                replica_reads,
                stale,
                held,
                excused,
                unknown,
            } = *each;
            let share = unknown as f64 / (trials.max(1) as f64) * 100.0;
            let of_reads = [replica_reads, stale];
            let counts = [plans, trials, taken_over, acknowledged, unanswered, kills, promotions]
                .into_iter()
                .chain(of_reads)
                .chain([held, excused])
                .map(count);
            let unknown = format!("{} ({share:.0} %)", count(unknown));
            let counts = counts.chain([unknown]);
            sound.push(std::iter::once(Entry::left(workload)).chain(counts.map(Entry::right)));
        }
        let mut planted = Table::new([
            ("workload", Priority::Needed),
            ("planted bug", Priority::Needed),
            ("plans", Priority::Middle),
            ("strikes", Priority::Low),
            ("must be seen", Priority::Needed),
            ("broken", Priority::Needed),
            ("unknown", Priority::Needed),
        ]);
        for ((workload, bug), each) in &self.planted {
            let counts =
                [each.plans, each.struck, each.shown, each.broken, each.shown - each.broken].map(count);
            let names = [Entry::left(workload), Entry::left(bug.meaning())];
            planted.push(names.into_iter().chain(counts.map(Entry::right)));
        }
        [sound, planted]
    }
}

impl CorrectStoreTally {
    fn add(&mut self, done: &CaseResult) {
        self.plans += 1;
        for trial in &done.trials {
            let operations = &trial.driven.measurement.operations;
            let ended = |outcome| operations.iter().map(|each| each.count(outcome)).sum::<u64>();
            self.trials += 1;
            self.taken_over += u64::from(trial.took_over);
            self.acknowledged += ended(Outcome::Ok);
            self.unanswered += ended(Outcome::Unknown);
            self.kills += trial.driven.kills;
            self.promotions += if trial.driven.promoted { trial.driven.kills } else { 0 };
            if let Some(age) = &trial.driven.audited.staleness {
                self.replica_reads += age.reads;
                self.stale += age.stale;
            }
            match trial.driven.audited.audit.verdict {
                Verdict::Holds => self.held += 1,
                Verdict::Broken => self.excused += 1,
                Verdict::Unknown => self.unknown += 1,
            }
        }
    }
}

impl BugTally {
    fn add(&mut self, done: &CaseResult, proves: bool) {
        self.plans += 1;
        for driven in done.trials.iter().map(|trial| &trial.driven) {
            let shown = proves && driven.struck > 0 && driven.shown > 0;
            self.struck += driven.struck;
            self.shown += u64::from(shown);
            self.broken += u64::from(shown && driven.audited.audit.verdict == Verdict::Broken);
        }
    }
}
