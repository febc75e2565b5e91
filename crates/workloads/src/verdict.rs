//! The result of an audit: a verdict, and the findings that it comes from.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use acidtest_history::Example;
use acidtest_model::EffectiveDurability;

use crate::{
    Guarantee,
    guarantee::{CONSISTENCY, DURABILITY, INTEGRITY, REPLICATION},
    inventory::IN_WORDS,
    moments::OLDEST_LOST,
    promises,
    queue::HOLES,
    transactions::LEFT_OUT,
};

/// Whether the guarantees held. Ordered by how much it speaks against a result: the worst verdict of several trials
/// is their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every invariant held, against a final state that was read back.
    Holds,
    /// The audit could not decide.
    Unknown,
    /// An invariant was broken, and the findings prove it.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::Unknown => "unknown",
            Self::Broken => "broken",
        })
    }
}

/// One kind of damage that an audit looks for, and how much of it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The finding's name; the workload's documentation says what it proves.
    pub name: String,
    /// How much damage was found, in `unit`s; 0 if there was none.
    pub count: u64,
    /// The unit of `count` (`units`, `updates`, `messages`).
    pub unit: String,
    /// The guarantee that prevents it; in a cell that does without that guarantee, the finding breaks no promise.
    pub guarantee: String,
    /// Whether the loss of acknowledged writes may look like it.
    #[serde(skip)]
    pub looks_like: LooksLike,
    /// How much of `count` was seen within one epoch of the server, so that no crash explains it.
    #[serde(skip)]
    pub within_epoch: u64,
    /// How much of `count` was seen by operations that a boundary between two epochs overlaps: where two servers led
    /// meanwhile, either may have answered.
    #[serde(skip)]
    pub between: u64,
}

/// What the loss of acknowledged writes has to do with a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LooksLike {
    /// Nothing: no loss explains it.
    #[default]
    NoLoss,
    /// A loss may look like it.
    Loss,
    /// The same, but then the finding of this name is there, too: the final state has been read back.
    LossWith(&'static str),
}

impl Finding {
    /// A finding of `count` units of damage that the guarantee prevents.
    #[must_use]
    pub fn new(name: &str, count: u64, unit: &str, guarantee: Guarantee) -> Self {
        let (name, unit) = (name.to_owned(), unit.to_owned());
        let guarantee = guarantee.name.to_owned();
        let looks_like = LooksLike::NoLoss;
        Self { name, count, unit, guarantee, looks_like, within_epoch: 0, between: 0 }
    }

    /// The same finding, of which this many were seen by operations that a boundary overlaps.
    #[must_use]
    pub fn between(self, count: u64) -> Self {
        Self { between: count, ..self }
    }

    /// The same finding, which the loss of acknowledged writes may look like: after a crash it is no proof of anything
    /// else.
    #[must_use]
    pub fn or_loss(self) -> Self {
        Self { looks_like: LooksLike::Loss, ..self }
    }

    /// Whether it is one of acknowledged writes that were lost with a server.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        [DURABILITY, REPLICATION].iter().any(|guarantee| self.guarantee == guarantee.name)
    }

    /// The same finding, of which this many were seen within one epoch of the server: no crash explains these.
    #[must_use]
    pub fn within_epoch(self, count: u64) -> Self {
        Self { within_epoch: count, ..self }
    }

    /// The same, if there is also a finding of the other name: reads that miss what the final state has were not
    /// served by a store that had lost it.
    #[must_use]
    pub fn or_loss_with(self, other: &'static str) -> Self {
        Self { looks_like: LooksLike::LossWith(other), ..self }
    }
}

impl fmt::Display for Finding {
    /// For example `oversold 12 units`, or `lost 41 updates` (of `lost_updates`), or `754 sold units are still on the shelf` (of
    /// `surplus`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, count, unit, .. } = self;
        let mut in_words = IN_WORDS.iter().chain([&DIVERGED_IN_WORDS]).chain(&READS_IN_WORDS);
        if let Some((_, one, several)) = in_words.find(|(known, ..)| known == name) {
            let words = if *count == 1 { one } else { several };
            return write!(f, "{} {words}", acidtest_model::count(*count));
        }
        let own = name.strip_suffix(unit.as_str()).and_then(|rest| rest.strip_suffix('_')).unwrap_or(name);
        let unit = match (count, unit.strip_suffix("ies"), unit.strip_suffix('s')) {
            (1, Some(stem), _) => format!("{stem}y"),
            (1, None, Some(stem)) => stem.to_owned(),
            _ => unit.clone(),
        };
        write!(f, "{} {} {unit}", own.replace('_', " "), acidtest_model::count(*count))
    }
}

/// The finding of members of a cluster that have other data than its leader, once it is whole.
pub const DIVERGED: &str = "diverged";

/// The evidence of strong reads that missed something and prove nothing, as their clients had lost connections to replicas before: one that
/// restarts shows what it had some time before, until it has caught up.
pub const READS_IN_DOUBT: &str = "reads_in_doubt";

/// The finding of versions that were read and are not there in the end.
pub(crate) const VANISHED: &str = "vanished";

/// Its words, for one member and for several.
const DIVERGED_IN_WORDS: (&str, &str, &str) =
    (DIVERGED, "member has other data than the leader", "members have other data than the leader");

/// Findings of reads at replicas, whose names alone say little.
const READS_IN_WORDS: [(&str, &str, &str); 4] = [
    ("stale_at_replica", "read at a replica was stale", "reads at replicas were stale"),
    (
        "own_writes_missed",
        "read missed a write of its own client",
        "reads missed a write of their own client",
    ),
    (
        "went_back",
        "read was older than one before it of the same client",
        "reads were older than one before them of the same client",
    ),
    (VANISHED, "record was read in a version that is gone", "records were read in versions that are gone"),
];

/// What is known of a server that was found in a life that nobody had asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The durability level of what it keeps.
    pub keeps: EffectiveDurability,
    /// Whether it is known to serve the same data as before.
    pub is_same: bool,
    /// Why it is only suspected, of a server that does not say in which of its lives it is; none where it is known.
    pub suspected: Option<&'static str>,
}

/// The result of comparing the ledger with the store's final state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// Whether the guarantees held.
    pub verdict: Verdict,
    /// Why the verdict is unknown, or which part of the audit of a broken store could not be done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Everything that was looked for, gravest first; all counts are zero if the guarantees held.
    pub findings: Vec<Finding>,
    /// Guarantees whose findings are held against no promise in this trial, whatever its cell promises: its server restarted
    /// unasked, or another one took its place.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub excused: Vec<String>,
    /// Guarantees whose findings break a promise in this trial, although its cell does without them for a fault's sake: the
    /// fault ended nothing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub promised: Vec<String>,
    /// The figures that the verdict comes from: totals of the ledger, totals of the final state, and the bounds
    /// that these had to be within.
    pub evidence: BTreeMap<String, i64>,
    /// The anomalies that were seen, those that the isolation level permits included; the gravest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub anomalies: Vec<SeenAnomaly>,
    /// What was promised of isolation, where anomalies were looked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub promised_level: Option<PromisedLevel>,
}

/// An anomaly of isolation that was seen in a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenAnomaly {
    /// The finding that counts it, where the level rules it out.
    pub finding: String,
    /// Its name in papers, such as `G2-item`.
    pub name: String,
    /// Its name in words, with that of papers where it has another one: `write skew (G2-item)`.
    pub title: String,
    /// How often it occurred.
    pub count: u64,
    /// What was counted.
    pub unit: String,
    /// Whether the search for more was cut short, so that there may be more.
    pub is_at_least: bool,
    /// The 95 % interval of how often to expect it in as many transactions (Poisson): none where all that was counted may have one
    /// cause. Where the count is a lower bound, so is the interval's lower end, and the upper one says nothing.
    pub interval: Option<[u64; 2]>,
    /// Whether the store's documentation rules it out at this level. If not, it is no failure.
    pub is_ruled_out: bool,
    /// The weakest level that forbids it by the definitions of Adya.
    pub forbidden_from: String,
    /// Whether Adya's definition of the level of this name forbids it; the store's documentation may promise less.
    pub adya_forbids: bool,
    /// The smallest occurrence that was found.
    pub example: Example,
}

/// What a store's documentation promises of the isolation level that transactions had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromisedLevel {
    /// The level, as the documentation calls it.
    pub level: String,
    /// The sentence that says what it rules out, shortened; empty if nothing is promised.
    pub said: String,
    /// Where it stands.
    pub source: String,
}

impl PromisedLevel {
    /// The level as an option names it: `repeatable-read`.
    #[must_use]
    pub fn name(&self) -> String {
        promises::level(&self.level).replace(' ', "-")
    }
}

impl Audit {
    /// The audit with these findings. Anything that was found proves the guarantees broken, whatever else could not be
    /// told. If nothing was, they hold, unless there is a `doubt`: the reason why that cannot be told.
    pub(crate) fn of(
        findings: Vec<Finding>,
        doubt: Option<String>,
        evidence: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> Self {
        let verdict = match (findings.iter().any(|finding| finding.count > 0), &doubt) {
            (true, _) => Verdict::Broken,
            (false, Some(_)) => Verdict::Unknown,
            (false, None) => Verdict::Holds,
        };
        let figure = |(name, count): (&str, u64)| (name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX));
        let evidence = evidence.into_iter().map(figure).collect();
        Self {
            verdict,
            reason: doubt,
            findings,
            excused: Vec::new(),
            promised: Vec::new(),
            evidence,
            anomalies: Vec::new(),
            promised_level: None,
        }
    }

    /// Adds that the server came up no more, because it cannot read its own data, in these words of its log: all that was
    /// acknowledged is lost, and no proof against a lock.
    pub fn unreadable(&mut self, words: &str) {
        self.verdict = Verdict::Broken;
        self.reason = Some(format!("the server does not start again: {words}"));
        self.findings.push(Finding::new("unreadable", 1, "stores", DURABILITY));
    }

    /// The audit of a trial that could not be audited.
    #[must_use]
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::of(Vec::new(), Some(reason.into()), [])
    }

    /// Whether the audit proves that a promise was broken, in a cell that does without the guarantees named in `without`. A finding
    /// proves it if the cell does not do without the guarantee that prevents it, or if this trial is held to that nevertheless.
    #[must_use]
    pub fn breaks_promise(&self, without: &[impl AsRef<str>]) -> bool {
        let is_among = |names: &[String], guarantee: &str| names.iter().any(|name| name == guarantee);
        let promised = |guarantee: &str| {
            let is_promised = !without.iter().any(|name| name.as_ref() == guarantee);
            !is_among(&self.excused, guarantee) && (is_promised || is_among(&self.promised, guarantee))
        };
        self.findings.iter().any(|finding| finding.count > 0 && promised(&finding.guarantee))
    }

    /// Withdraws what was found, because of a doubt: the trial did not run at what its cell says, so that neither the absence
    /// nor the presence of damage proves anything of that.
    pub fn withdraw(&mut self, doubt: &str) {
        let mut reason = doubt.to_owned();
        let found: Vec<String> =
            self.findings.iter().filter(|finding| finding.count > 0).map(Finding::to_string).collect();
        if !found.is_empty() {
            let found = found.join(", ");
            reason = format!("{reason}; so the findings prove nothing ({found})");
        }
        if let Some(other) = self.reason.take() {
            reason = format!("{reason}; and {other}");
        }
        self.findings.iter_mut().for_each(|finding| finding.count = 0);
        (self.verdict, self.reason) = (Verdict::Unknown, Some(reason));
    }

    /// Withdraws what was found of one guarantee, because of a doubt of what was promised of it. What breaks others stays broken.
    pub(crate) fn withdraw_of(&mut self, guarantee: Guarantee, doubt: &str) {
        let (withdrawn, others): (Vec<Finding>, Vec<Finding>) =
            self.findings.drain(..).partition(|finding| finding.guarantee == guarantee.name);
        let mut audit = Self { findings: withdrawn, reason: self.reason.take(), ..self.clone() };
        audit.withdraw(doubt);
        let is_broken = others.iter().any(|finding| finding.count > 0);
        self.reason = audit.reason;
        self.findings = audit.findings.into_iter().chain(others).collect();
        self.verdict = if is_broken { Verdict::Broken } else { Verdict::Unknown };
    }

    /// Ascribes to durability what a crash of the server may explain. What was seen within one epoch of the server
    /// stays as it is; and so does what is prevented by a guarantee that the cell does `without`: with or without a
    /// crash it was to be expected, and proves no loss.
    pub fn across_epochs(&mut self, without: &[impl AsRef<str>]) {
        let is_promised = |guarantee: &str| !without.iter().any(|name| name.as_ref() == guarantee);
        // what could not be read back may be lost
        let is_unread = self.reason.is_some();
        let found: Vec<String> = self
            .findings
            .iter()
            .filter(|finding| finding.count > 0)
            .map(|finding| finding.name.clone())
            .collect();
        let is_loss = |finding: &&mut Finding| match finding.looks_like {
            LooksLike::NoLoss => false,
            LooksLike::Loss => true,
            LooksLike::LossWith(other) => is_unread || found.iter().any(|name| name == other),
        };
        let mut lost = Vec::new();
        for finding in self.findings.iter_mut().filter(is_loss) {
            let more = finding.count.saturating_sub(finding.within_epoch);
            if finding.guarantee != DURABILITY.name && is_promised(&finding.guarantee) && more > 0 {
                finding.count -= more;
                lost.push(Finding { count: more, guarantee: DURABILITY.name.to_owned(), ..finding.clone() });
            }
        }
        self.findings.extend(lost);
    }

    /// The same where the server was found in a life that nobody had asked for. When its last one ended is not known, and so
    /// nothing is known to have been seen within one of them. Nor is it known how it ended: by a kill, in order, by a loss of
    /// power. So a loss breaks a promise only if what the server keeps survives all of that, and if it serves the same data.
    pub fn across_restart(&mut self, restart: Restart, without: &[impl AsRef<str>]) {
        for finding in &mut self.findings {
            finding.within_epoch = 0;
        }
        for told_by_crashes in [HOLES, OLDEST_LOST] {
            self.evidence.remove(told_by_crashes);
        }
        self.across_epochs(without);
        self.doubt_what_was_left_out();
        match restart {
            Restart { keeps: EffectiveDurability::Unknown | EffectiveDurability::None, .. } => {
                self.excuse(DURABILITY);
            }
            Restart { keeps: EffectiveDurability::Disk, is_same: true, .. } => {}
            Restart { keeps: EffectiveDurability::Process, is_same: true, .. } => self.doubt(
                DURABILITY,
                "the server had an unrequested restart, and it is unknown whether power was lost, which this durability \
                 level does not survive",
            ),
            Restart { suspected: Some(why), .. } => self.doubt(
                DURABILITY,
                &format!("{why}, and the server, which does not tell its lives apart, may have restarted"),
            ),
            Restart { is_same: false, .. } => self.doubt(
                DURABILITY,
                "the server had an unrequested restart, or another one took its place, which need not have everything that \
                 was acknowledged",
            ),
        }
    }

    /// The same where another server answered once the first had been ended, as was asked for: it need not have all that
    /// was acknowledged, whatever level of durability the first one had.
    pub fn across_failover(&mut self, keeps: EffectiveDurability, without: &[impl AsRef<str>]) {
        self.across_epochs(without);
        self.doubt_what_was_left_out();
        match keeps {
            EffectiveDurability::Unknown | EffectiveDurability::None => self.excuse(DURABILITY),
            EffectiveDurability::Process | EffectiveDurability::Disk => self.doubt(
                DURABILITY,
                "another server answered after the fault, or the same one after a promotion, and need not have everything \
                 that was acknowledged",
            ),
        }
    }

    /// Takes into account that two servers led at once: one that was cut off, and the one that was promoted in its place. What a client was
    /// answered meanwhile by the one need not be what another was answered by the other, and no replication level promises that. What
    /// was seen when one of them led, or is there in the end, stays as it is.
    pub fn across_split(&mut self) {
        let mut excused = 0;
        for finding in &mut self.findings {
            let between = finding.between.min(finding.count);
            finding.count -= between;
            excused += between;
        }
        for told_by_crashes in [HOLES, OLDEST_LOST] {
            self.evidence.remove(told_by_crashes);
        }
        self.count_only("answers_of_two_leaders", excused);
    }

    /// Keeps as a figure what was taken out of the findings. If nothing else was found, nothing is broken.
    fn count_only(&mut self, figure: &str, excused: u64) {
        self.evidence.insert(figure.to_owned(), i64::try_from(excused).unwrap_or(i64::MAX));
        if self.verdict == Verdict::Broken && self.findings.iter().all(|finding| finding.count == 0) {
            self.verdict = if self.reason.is_some() { Verdict::Unknown } else { Verdict::Holds };
        }
    }

    /// Ascribes to replication what a promotion may explain, after [`across_epochs`](Self::across_epochs): the member that was promoted need
    /// not have what the last leader had. What a crash may have lost as well, in a cell that does without durability, stays
    /// ascribed to that. What a replica showed that is gone with its leader breaks no promise: it need not have been acknowledged, and
    /// if it was, it is lost.
    pub fn across_promotion(&mut self, without: &[impl AsRef<str>]) {
        let (vanished, others) = self.findings.drain(..).partition(|finding| finding.name == VANISHED);
        self.findings = others;
        let vanished: Vec<Finding> = vanished;
        if let Some(most) = vanished.iter().map(|finding| finding.count).max() {
            self.count_only(VANISHED, most);
        }
        if without.iter().any(|name| name.as_ref() == DURABILITY.name) {
            return;
        }
        for finding in self.findings.iter_mut().filter(|finding| finding.guarantee == DURABILITY.name) {
            REPLICATION.name.clone_into(&mut finding.guarantee);
        }
    }

    /// Takes into account reads that missed something of which it is not known whether they were promised it. In a cell that does without
    /// that promise they prove nothing either.
    pub fn doubt_reads(&mut self, without: &[impl AsRef<str>]) {
        let in_doubt = self.evidence.get(READS_IN_DOUBT).map_or(0, |reads| reads.unsigned_abs());
        let is_promised = !without.iter().any(|name| name.as_ref() == CONSISTENCY.name);
        if in_doubt == 0 || !is_promised || self.verdict != Verdict::Holds {
            return;
        }
        let (read, whose) = if in_doubt == 1 { ("read", "its client") } else { ("reads", "their clients") };
        self.verdict = Verdict::Unknown;
        self.reason = Some(format!(
            "{} {read} at replicas missed something after {whose} had lost a connection there: a replica that restarts may show less \
             than before",
            acidtest_model::count(in_doubt)
        ));
    }

    /// Adds that so many members of a cluster were compared, and which of them have other data than the one that leads, once they had
    /// all of its log; or why that cannot be told.
    pub fn members_compared(&mut self, members: u64, diverged: &[String], doubt: Option<&str>) {
        self.evidence.insert("members_compared".to_owned(), i64::try_from(members).unwrap_or(i64::MAX));
        self.findings.push(Finding::new("diverged", diverged.len() as u64, "members", INTEGRITY));
        if !diverged.is_empty() {
            self.verdict = Verdict::Broken;
            self.reason.get_or_insert_with(|| format!("other data than the leader: {}", diverged.join(", ")));
        }
        if let Some(doubt) = doubt {
            if self.verdict == Verdict::Holds {
                self.verdict = Verdict::Unknown;
            }
            self.reason.get_or_insert_with(|| doubt.to_owned());
        }
    }

    /// Of what was acknowledged after a history had reached its limit nobody knows whether it is lost.
    fn doubt_what_was_left_out(&mut self) {
        if self.verdict == Verdict::Holds && self.evidence.get(LEFT_OUT).is_some_and(|left_out| *left_out > 0)
        {
            self.verdict = Verdict::Unknown;
            self.reason = Some(
                "the server went away, and the history had reached its limit, so that nobody knows what was lost".to_owned(),
            );
        }
    }

    /// Holds what this guarantee prevents against its promise, although the cell does without it: it does so because of what a
    /// fault may end, and none has ended that.
    pub fn hold_to(&mut self, guarantee: Guarantee) {
        self.promised.push(guarantee.name.to_owned());
    }

    /// Holds what this guarantee prevents against no promise.
    fn excuse(&mut self, guarantee: Guarantee) {
        if !self.excused.iter().any(|name| name == guarantee.name) {
            self.excused.push(guarantee.name.to_owned());
        }
    }

    /// The same where nobody knows whether the guarantee was broken, and why. If nothing was found that is held against a promise,
    /// the verdict is unknown.
    pub fn doubt(&mut self, guarantee: Guarantee, why: &str) {
        self.excuse(guarantee);
        let is_excused = |finding: &&Finding| self.excused.contains(&finding.guarantee);
        let (excused, others): (Vec<&Finding>, Vec<&Finding>) =
            self.findings.iter().filter(|finding| finding.count > 0).partition(is_excused);
        let is_in_doubt = excused.iter().any(|finding| finding.guarantee == guarantee.name);
        if !is_in_doubt || !others.is_empty() {
            return;
        }
        let found: Vec<String> = excused.into_iter().map(ToString::to_string).collect();
        self.reason = Some(format!("{}; {why}", found.join(", ")));
        self.verdict = Verdict::Unknown;
    }

    /// The count of a finding; 0 if it was not looked for.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.findings.iter().find(|finding| finding.name == name).map_or(0, |finding| finding.count)
    }
}

impl fmt::Display for Audit {
    /// For example `holds`, `broken: oversold 12 units, torn 1 operation`, or `unknown: why`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        let mut separator = ": ";
        if self.verdict == Verdict::Broken {
            for finding in self.findings.iter().filter(|finding| finding.count > 0) {
                write!(f, "{separator}{finding}")?;
                separator = ", ";
            }
        }
        if let (Verdict::Unknown, Some(reason)) = (self.verdict, &self.reason) {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarantee::{INTEGRITY, LOCK, MONOTONIC_READS, READ_YOUR_WRITES};

    #[test]
    fn a_finding_is_said_in_words() {
        let said = |name, count, unit| Finding::new(name, count, unit, INTEGRITY).to_string();
        assert_eq!(said("lost_updates", 1_041, "updates"), "lost 1,041 updates");
        assert_eq!(said("off_sequence", 3, "units"), "3 units differ from what the sequence leaves");
        assert_eq!(said("torn", 1, "records"), "torn 1 record");
        assert_eq!(said("duplicated", 1, "deliveries"), "duplicated 1 delivery");
    }

    /// What a store did at settings that its cell does not name says nothing of the cell, for or against it.
    #[test]
    fn what_is_in_doubt_as_a_whole_proves_nothing() {
        let mut broken = Audit::of(vec![Finding::new("oversold", 2, "units", LOCK)], None, [("sold", 7)]);
        assert!(broken.breaks_promise(&[] as &[&str]));
        broken.withdraw("sessions were shared");
        assert!(!broken.breaks_promise(&[] as &[&str]));
        let said = "unknown: sessions were shared; so the findings prove nothing (oversold 2 units)";
        assert_eq!((broken.to_string().as_str(), broken.evidence["sold"]), (said, 7));
        for (mut audit, said) in [
            (Audit::of(Vec::new(), None, []), "unknown: sessions were shared"),
            (Audit::unknown("nobody answered"), "unknown: sessions were shared; and nobody answered"),
        ] {
            audit.withdraw("sessions were shared");
            assert_eq!(audit.to_string(), said);
        }
    }

    /// What a leader acknowledged, the member that took over need not have: that is replication's, and what a crash may have taken as
    /// well stays durability's, where nothing is promised of that.
    #[test]
    fn a_promotion_is_no_proof_against_a_lock_or_a_disk() {
        let audit = || {
            let lock = Finding::new("oversold", 3, "units", LOCK).or_loss().within_epoch(1);
            let findings = vec![
                Finding::new("lost", 5, "records", DURABILITY),
                lock,
                Finding::new("torn", 0, "records", INTEGRITY),
            ];
            let mut audit = Audit::of(findings, None, []);
            audit.across_epochs(&[] as &[&str]);
            audit
        };
        let of = |audit: &Audit, guarantee: Guarantee| -> u64 {
            let of = audit.findings.iter().filter(|finding| finding.guarantee == guarantee.name);
            of.map(|finding| finding.count).sum()
        };
        let mut promoted = audit();
        promoted.across_promotion(&["replication"]);
        assert_eq!((of(&promoted, REPLICATION), of(&promoted, DURABILITY), of(&promoted, LOCK)), (7, 0, 1));
        assert!(promoted.breaks_promise(&["replication"]), "what was seen within one epoch is the lock's");
        assert!(promoted.breaks_promise(&["lock"]), "and the loss is replication's");
        assert!(!promoted.breaks_promise(&["lock", "replication"]));
        let mut crashed = audit();
        crashed.across_promotion(&["durability"]);
        assert_eq!((of(&crashed, REPLICATION), of(&crashed, DURABILITY)), (0, 7));
    }

    /// A leader that does not know that it was deposed answers with what it has, and has lost nothing.
    #[test]
    fn what_two_leaders_answer_is_held_against_neither() {
        let audit = |[count, within, between]: [u64; 3], lost| {
            let stale = Finding::new("stale", count, "reads", LOCK).or_loss();
            let stale = stale.within_epoch(within).between(between);
            let mut audit =
                Audit::of(vec![stale, Finding::new("lost", lost, "records", DURABILITY)], None, []);
            audit.across_split();
            audit.across_epochs(&[] as &[&str]);
            audit.across_promotion(&[] as &[&str]);
            audit
        };
        let excused = audit([9, 0, 9], 0);
        assert_eq!((excused.verdict, excused.evidence["answers_of_two_leaders"]), (Verdict::Holds, 9));
        let seen_before = audit([9, 2, 7], 0);
        assert!(seen_before.breaks_promise(&["replication"]) && seen_before.count("stale") == 2);
        // by the new leader alone, of what the old one had acknowledged
        let seen_afterwards = audit([9, 0, 8], 0);
        assert!(
            seen_afterwards.breaks_promise(&["lock"]) && !seen_afterwards.breaks_promise(&["replication"])
        );
        let lost = audit([9, 0, 9], 3);
        assert!(lost.breaks_promise(&["lock"]) && !lost.breaks_promise(&["replication"]));
    }

    #[test]
    fn a_member_with_other_data_breaks_a_store_and_one_that_is_not_seen_leaves_a_doubt() {
        let holds = || Audit::of(vec![Finding::new("lost", 0, "records", DURABILITY)], None, []);
        let mut same = holds();
        same.members_compared(3, &[], None);
        assert_eq!((same.verdict, same.evidence["members_compared"]), (Verdict::Holds, 3));
        let mut diverged = holds();
        diverged.members_compared(3, &["server-2".to_owned()], None);
        assert!(diverged.breaks_promise(&["lock", "durability", "replication"]));
        assert_eq!(diverged.count("diverged"), 1);
        let mut unseen = holds();
        unseen.members_compared(0, &[], Some("server-3 could not be compared"));
        assert_eq!(unseen.to_string(), "unknown: server-3 could not be compared");
        let mut broken = Audit::of(vec![Finding::new("oversold", 2, "units", LOCK)], None, []);
        broken.members_compared(0, &[], Some("server-3 could not be compared"));
        assert_eq!(broken.verdict, Verdict::Broken, "what was found stays found");
    }

    /// Reads that miss what is there were not served by a store that had lost it.
    #[test]
    fn a_read_that_misses_what_is_there_is_no_loss() {
        for (lost, reason, is_durability) in
            [(0, None, false), (3, None, true), (0, Some("unreadable"), true)]
        {
            let mut audit = Audit::unknown("made up");
            audit.reason = reason.map(str::to_owned);
            audit.findings = vec![
                Finding::new("lost", lost, "records", DURABILITY),
                Finding::new("missing", 9, "reads", INTEGRITY).or_loss_with("lost"),
            ];
            audit.across_epochs(&[] as &[&str]);
            let missing = audit.findings.iter().rfind(|finding| finding.name == "missing").unwrap();
            assert_eq!(missing.guarantee == DURABILITY.name, is_durability, "{lost} {reason:?}");
        }
    }

    /// After a crash, what a loss explains is durability's: but not what was seen within one epoch of the server, nor
    /// what the cell does without, nor what no loss explains.
    #[test]
    fn a_crash_is_no_proof_against_a_lock() {
        let audit = |oversold, within_epoch, torn| {
            let mut audit = Audit::unknown("made up");
            audit.verdict = Verdict::Broken;
            audit.findings = vec![
                Finding::new("oversold", oversold, "units", LOCK).or_loss().within_epoch(within_epoch),
                Finding::new("surplus", 7, "units", LOCK).or_loss(),
                Finding::new("torn", torn, "units", INTEGRITY),
                Finding::new("lost", 4, "records", DURABILITY).or_loss(),
            ];
            audit
        };
        let none: &[&str] = &[];
        let of = |audit: &Audit, guarantee: Guarantee| -> u64 {
            let found = audit.findings.iter().filter(|finding| finding.guarantee == guarantee.name);
            found.map(|finding| finding.count).sum()
        };
        let mut crossed = audit(10, 3, 1);
        crossed.across_epochs(none);
        assert_eq!(
            (of(&crossed, LOCK), of(&crossed, INTEGRITY), of(&crossed, DURABILITY)),
            (3, 1, 7 + 7 + 4)
        );
        assert!(crossed.breaks_promise(&[DURABILITY.name]), "what one epoch proves stays proved");
        let mut crossed = audit(10, 0, 0);
        crossed.across_epochs(none);
        assert!(crossed.breaks_promise(none) && !crossed.breaks_promise(&[DURABILITY.name]));
        // without a lock it was to be expected, and proves no loss
        let mut crossed = audit(10, 0, 0);
        crossed.across_epochs(&[LOCK.name]);
        assert_eq!((of(&crossed, LOCK), of(&crossed, DURABILITY)), (17, 4));
    }

    /// A loss is held against a server that restarted unasked only where its level survives whatever may have ended it.
    #[test]
    fn a_restart_that_nobody_asked_for_is_no_proof() {
        use EffectiveDurability::{Disk, None, Process, Unknown};
        let none: &[&str] = &[];
        for (keeps, is_same, verdict, breaks) in [
            (None, true, Verdict::Broken, false),
            (None, false, Verdict::Broken, false),
            (Unknown, true, Verdict::Broken, false),
            (Process, true, Verdict::Unknown, false),
            (Process, false, Verdict::Unknown, false),
            (Disk, false, Verdict::Unknown, false),
            (Disk, true, Verdict::Broken, true),
        ] {
            let mut audit = Audit::unknown("made up");
            audit.verdict = Verdict::Broken;
            audit.findings = vec![
                Finding::new("oversold", 10, "units", LOCK).or_loss().within_epoch(7),
                Finding::new("deficit", 3, "units", DURABILITY).or_loss(),
            ];
            audit.evidence.insert(OLDEST_LOST.to_owned(), 5);
            let mut torn = audit.clone();
            audit.across_restart(Restart { keeps, is_same, suspected: Option::None }, none);
            assert_eq!((audit.verdict, audit.breaks_promise(none)), (verdict, breaks), "{keeps} {is_same}");
            assert!(audit.evidence.is_empty(), "no crash is known by which a loss could be told");
            let is_told = audit.to_string().contains("3 units are gone that nobody bought");
            assert!(is_told && audit.findings.iter().all(|one| one.count == 0 || one.guarantee != LOCK.name));
            // what no loss explains stays proved
            torn.findings.push(Finding::new("torn", 1, "units", INTEGRITY));
            torn.across_restart(Restart { keeps, is_same, suspected: Option::None }, none);
            assert!(torn.verdict == Verdict::Broken && torn.breaks_promise(none), "{keeps} {is_same}");
            // and what was to be expected without a lock stays the lock's
            let mut unlocked = Audit::unknown("made up");
            unlocked.verdict = Verdict::Broken;
            unlocked.findings = vec![Finding::new("oversold", 10, "units", LOCK).or_loss().within_epoch(7)];
            unlocked.across_restart(Restart { keeps, is_same, suspected: Option::None }, &[LOCK.name]);
            assert!(unlocked.verdict == Verdict::Broken && !unlocked.breaks_promise(&[LOCK.name]));
        }
    }

    /// Where another server takes the place of one that was ended, no level of the first one's says what the other has. What
    /// was proved before stays proved.
    #[test]
    fn a_failover_that_was_asked_for_is_no_proof_against_a_level() {
        use EffectiveDurability::{Disk, None, Process, Unknown};
        let none: &[&str] = &[];
        let audit = |within_epoch| {
            let finding = Finding::new("oversold", 10, "units", LOCK).or_loss().within_epoch(within_epoch);
            Audit::of(vec![finding, Finding::new("lost", 3, "records", DURABILITY)], Option::None, [])
        };
        for (keeps, verdict) in [
            (Disk, Verdict::Unknown),
            (Process, Verdict::Unknown),
            (None, Verdict::Broken),
            (Unknown, Verdict::Broken),
        ] {
            let mut failed_over = audit(0);
            failed_over.across_failover(keeps, none);
            assert_eq!((failed_over.verdict, failed_over.breaks_promise(none)), (verdict, false), "{keeps}");
            let is_said = failed_over.to_string().contains("another server answered");
            assert_eq!(is_said, verdict == Verdict::Unknown, "{failed_over}");
            let mut proved = audit(7);
            proved.across_failover(keeps, none);
            assert!(proved.verdict == Verdict::Broken && proved.breaks_promise(none), "{keeps}");
        }
    }

    /// What a cell does without because of its fault is promised in a trial in which the fault ended nothing.
    #[test]
    fn a_fault_that_ends_nothing_excuses_nothing() {
        let lost = || Audit::of(vec![Finding::new("lost", 3, "records", DURABILITY)], None, []);
        let without = [DURABILITY.name];
        let mut held = lost();
        held.hold_to(DURABILITY);
        assert!(held.breaks_promise(&without) && !lost().breaks_promise(&without));
        // an unasked restart excuses it all the same
        let restart = Restart { keeps: EffectiveDurability::None, is_same: true, suspected: None };
        held.across_restart(restart, &without);
        assert!(!held.breaks_promise(&without));
    }

    /// Where all that was found is in doubt, for one reason or another, nothing is proved.
    #[test]
    fn two_doubts_that_leave_nothing_else_make_a_verdict_unknown() {
        let findings =
            vec![Finding::new("oversold", 2, "units", LOCK), Finding::new("lost", 3, "records", DURABILITY)];
        let mut audit = Audit::of(findings, None, []);
        audit.doubt(LOCK, "the lock service evicted 1 key");
        assert_eq!(audit.verdict, Verdict::Broken, "the loss is proved");
        audit.doubt(DURABILITY, "another server answered");
        assert!(!audit.breaks_promise(&[] as &[&str]));
        let said = "unknown: oversold 2 units, lost 3 records; another server answered";
        assert_eq!(audit.to_string(), said);
    }

    /// Of a server that does not say in which of its lives it is, nobody knows whether it restarted.
    #[test]
    fn a_restart_that_is_only_suspected_accuses_nobody() {
        let none: &[&str] = &[];
        for (keeps, verdict) in
            [(EffectiveDurability::None, Verdict::Broken), (EffectiveDurability::Disk, Verdict::Unknown)]
        {
            let mut audit = Audit::unknown("made up");
            audit.verdict = Verdict::Broken;
            audit.findings = vec![Finding::new("lost", 3, "messages", DURABILITY).or_loss()];
            audit.across_restart(
                Restart { keeps, is_same: false, suspected: Some("clients lost connections") },
                none,
            );
            assert!(audit.verdict == verdict && !audit.breaks_promise(none), "{keeps}: {audit}");
            assert_eq!(audit.to_string().contains("may have restarted"), verdict == Verdict::Unknown);
        }
    }

    #[test]
    fn data_that_its_own_server_cannot_read_is_lost() {
        let mut audit = Audit::unknown("no answer");
        audit.unreadable("XlogError: tx checksum mismatch");
        assert_eq!(audit.to_string(), "broken: unreadable 1 store");
        assert!(
            audit.reason.as_ref().is_some_and(|reason| reason.ends_with("XlogError: tx checksum mismatch"))
        );
        assert!(audit.breaks_promise(&[LOCK.name]) && !audit.breaks_promise(&[DURABILITY.name]));
    }

    /// Nobody knows whether a replica restarted to which a client has lost its connection.
    #[test]
    fn reads_in_doubt_leave_a_promise_unknown_and_prove_nothing_else() {
        let none: &[&str] = &[];
        let audit = |lost: u64| {
            let evidence = [("acknowledged_operations", 9), (READS_IN_DOUBT, 2)];
            Audit::of(vec![Finding::new("lost", lost, "records", DURABILITY)], None, evidence)
        };
        let judged = |mut audit: Audit, without: &[&str]| {
            audit.doubt_reads(without);
            audit.verdict
        };
        assert_eq!(judged(audit(0), none), Verdict::Unknown);
        assert_eq!(judged(audit(0), &[CONSISTENCY.name]), Verdict::Holds);
        assert_eq!(judged(audit(1), none), Verdict::Broken);
        assert_eq!(judged(Audit::of(Vec::new(), None, []), none), Verdict::Holds);
    }

    /// What a replica has shown and its leader lost is lost if it was acknowledged, and nothing if it was not.
    #[test]
    fn what_vanished_with_a_leader_is_counted_and_no_more() {
        let none: &[&str] = &[];
        let vanished = |more: u64| {
            let vanished = Finding::new(VANISHED, 3, "records", INTEGRITY).or_loss();
            Audit::of(vec![vanished, Finding::new("torn", more, "records", INTEGRITY)], None, [])
        };
        assert!(vanished(0).breaks_promise(none));
        let mut promoted = vanished(0);
        promoted.across_epochs(none);
        promoted.across_promotion(none);
        assert_eq!((promoted.verdict, promoted.evidence[VANISHED]), (Verdict::Holds, 3));
        let mut torn = vanished(1);
        torn.across_epochs(none);
        torn.across_promotion(none);
        assert_eq!(torn.to_string(), "broken: torn 1 record");
    }

    #[test]
    fn members_that_differ_are_said_in_words() {
        let said = |count| Finding::new(DIVERGED, count, "members", INTEGRITY).to_string();
        assert_eq!(said(1), "1 member has other data than the leader");
        assert_eq!(said(2), "2 members have other data than the leader");
    }

    #[test]
    fn what_reads_at_replicas_missed_is_said_in_words() {
        let said = |name, count, unit, guarantee| Finding::new(name, count, unit, guarantee).to_string();
        let own = said("own_writes_missed", 1, "reads", READ_YOUR_WRITES);
        assert_eq!(own, "1 read missed a write of its own client");
        let back = said("went_back", 1_200, "reads", MONOTONIC_READS);
        assert_eq!(back, "1,200 reads were older than one before them of the same client");
        let gone = said("vanished", 2, "records", INTEGRITY);
        assert_eq!(gone, "2 records were read in versions that are gone");
    }

    #[test]
    fn only_the_guarantee_that_a_cell_does_without_excuses() {
        let mut audit = Audit::unknown("made up");
        audit.findings =
            vec![Finding::new("oversold", 1, "units", LOCK), Finding::new("torn", 0, "units", INTEGRITY)];
        assert!(audit.breaks_promise(&[] as &[&str]) && !audit.breaks_promise(&[LOCK.name]));
        audit.findings[1].count = 1;
        assert!(audit.breaks_promise(&[LOCK.name]));
    }
}
