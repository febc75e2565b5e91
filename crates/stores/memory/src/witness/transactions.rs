//! What clients of transactions were told of lists and sums.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_workloads::{
    Attempt,
    transactions::{Answer, Answers, Step},
};

/// A transaction as its client knows it.
#[derive(Clone, Debug)]
struct Told {
    /// What was appended, by list.
    appended: Vec<(u32, u64)>,
    /// What was read of lists before this transaction had appended to them itself.
    read: Vec<(u32, BTreeSet<u64>)>,
    began: u64,
    /// None as long as nobody answered.
    ended: Option<(u64, Attempt)>,
    is_strict: bool,
}

/// The transactions of one trial, and what was beyond doubt wrong about their answers.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    exact: bool,
    moments: u64,
    transactions: Vec<Told>,
    seen: u64,
}

/// Transactions that are compared with each other, at most.
const COMPARED: usize = 4_000;

impl Witness {
    /// `exact`: clients run one after the other.
    pub(crate) fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    /// A transaction begins. Strictly: where whatever was told before must be seen.
    pub(crate) fn begin(&mut self, steps: &[Step], is_strict: bool) -> usize {
        self.moments += 1;
        let appended = steps.iter().filter_map(|step| match step {
            Step::Append { key, value } => Some((*key, *value)),
            _ => None,
        });
        let told = Told {
            appended: appended.collect(),
            read: Vec::new(),
            began: self.moments,
            ended: None,
            is_strict,
        };
        self.transactions.push(told);
        self.transactions.len() - 1
    }

    /// A transaction was answered.
    pub(crate) fn end(
        &mut self,
        number: usize,
        (steps, answers): (&[Step], &Answers),
        attempt: &Attempt,
        total: i64,
    ) {
        self.moments += 1;
        let Some(told) = self.transactions.get_mut(number) else { return };
        told.ended = Some((self.moments, attempt.clone()));
        if *attempt == Attempt::Refused {
            self.seen += 1;
        }
        if *attempt != Attempt::Ok {
            return;
        }
        self.seen += u64::from(
            answers.steps().iter().any(|answer| matches!(answer, Answer::Total(read) if *read != total)),
        );
        let mut own = BTreeSet::new();
        for (step, answer) in steps.iter().zip(answers.steps()) {
            match (step, answer) {
                (Step::ReadList { key }, Answer::List(list)) if !own.contains(key) => {
                    told.read.push((*key, answers.values(list.clone()).iter().copied().collect()));
                }
                (Step::Append { key, .. }, _) => _ = own.insert(*key),
                _ => {}
            }
        }
    }

    /// The number of violations that an audit must see, given the lists that the store ended with. `was_killed`: what is before a
    /// kill and what is after it are not compared.
    pub(crate) fn shown<'a>(&self, lists: impl Iterator<Item = (u32, &'a [u64])>, was_killed: bool) -> u64 {
        let lists: BTreeMap<u32, &[u64]> = lists.collect();
        let places: BTreeMap<(u32, u64), usize> = lists
            .iter()
            .flat_map(|(&key, values)| {
                values.iter().enumerate().map(move |(place, &value)| ((key, value), place))
            })
            .collect();
        let mut shown = 0;
        // lost
        let acknowledged =
            self.transactions.iter().filter(|told| matches!(told.ended, Some((_, Attempt::Ok))));
        for told in acknowledged.clone() {
            shown += told.appended.iter().filter(|appended| !places.contains_key(appended)).count() as u64;
        }
        // twice, although it was acknowledged once: of what was not answered nobody knows what became of it on its way
        for told in acknowledged.clone() {
            for (key, value) in &told.appended {
                let values = lists.get(key).copied().unwrap_or_default();
                let held = values.iter().filter(|held| *held == value).count() as u64;
                shown += held.saturating_sub(1);
            }
        }
        if was_killed {
            return shown;
        }
        shown += self.seen;
        // read, although nobody appended it
        let sent: BTreeSet<(u32, u64)> =
            self.transactions.iter().flat_map(|told| told.appended.iter().copied()).collect();
        for (key, read) in acknowledged.clone().flat_map(|told| &told.read) {
            shown += read.iter().filter(|value| !sent.contains(&(*key, **value))).count() as u64;
        }
        // in a list, although the client was told that it is not
        for told in &self.transactions {
            let is_undone =
                matches!(told.ended, Some((_, Attempt::Failed(_) | Attempt::Conflict | Attempt::Refused)));
            if is_undone {
                shown += told.appended.iter().filter(|appended| places.contains_key(appended)).count() as u64;
            }
        }
        // two transactions of which each must come before the other
        let compared: Vec<&Told> = acknowledged.filter(|told| told.is_strict).take(COMPARED).collect();
        for (place, one) in compared.iter().enumerate() {
            for other in &compared[place + 1..] {
                let contradict = self.precedes(one, other, &places) && self.precedes(other, one, &places);
                shown += u64::from(contradict);
            }
        }
        shown
    }

    /// Whether one transaction must come before the other.
    fn precedes(&self, one: &Told, other: &Told, places: &BTreeMap<(u32, u64), usize>) -> bool {
        // it had ended before the other began
        let is_earlier = self.exact && one.ended.as_ref().is_some_and(|(ended, _)| *ended < other.began);
        // it read what the other had yet to append
        let read_before = || {
            one.read.iter().any(|(key, read)| {
                let unread = |(list, value): &&(u32, u64)| {
                    list == key && !read.contains(value) && places.contains_key(&(*list, *value))
                };
                other.appended.iter().any(|appended| unread(&appended))
            })
        };
        // the other read what it had appended
        let was_read = || {
            other.read.iter().any(|(key, read)| {
                one.appended.iter().any(|(list, value)| list == key && read.contains(value))
            })
        };
        // it appended before the other
        let appended_before = || {
            one.appended.iter().any(|mine| {
                other.appended.iter().any(|theirs| {
                    let place = |appended| places.get(appended);
                    mine.0 == theirs.0
                        && place(mine).zip(place(theirs)).is_some_and(|(mine, theirs)| mine < theirs)
                })
            })
        };
        is_earlier || read_before() || was_read() || appended_before()
    }
}
