//! What was acknowledged and is not in the final state.

use std::collections::{BTreeMap, HashSet};

use acidtest_history::{Error, Files, Operation, Outcome, Source, Total, Transaction};

use super::{Layout, State, ledger::Moved};

/// Of what the final state is short.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Values that were acknowledged and are in no list.
    pub(super) appends: u64,
    /// Acknowledged writes to registers that hold an older value.
    pub(super) writes: u64,
    /// Rows that were loaded.
    pub(super) rows: u64,
    /// Accounts whose balance is none that their transfers leave.
    pub(super) balances: u64,
    /// By how much the sum over all accounts is off.
    pub(super) unbalanced: u64,
}

impl Lost {
    pub(super) fn of(
        files: &mut Files,
        state: &State,
        layout: &Layout,
        moved: &[Moved],
    ) -> Result<Self, Error> {
        let State { lists, registers, .. } = state;
        let held: HashSet<(u32, u64)> =
            lists.iter().flat_map(|(&key, values)| values.iter().map(move |&value| (key, value))).collect();
        let (mut appends, mut writes) = (0, 0);
        // when the write ended that each register holds; whoever wrote after that wrote over it
        let untouched = registers.iter().filter(|(_, value)| value.is_none());
        let mut ended: BTreeMap<u32, u64> = untouched.map(|(&key, _)| (key, 0)).collect();
        committed(files, |transaction| {
            for (place, operation) in transaction.operations.iter().enumerate() {
                match *operation {
                    Operation::Append { key, value } => {
                        appends += u64::from(lists.contains_key(&key) && !held.contains(&(key, value)));
                    }
                    Operation::Write { key, value } if registers.get(&key) == Some(&Some(value)) => {
                        ended.extend(transaction.end.map(|end| (key, end)));
                        writes += written(&transaction.operations[place + 1..], key);
                    }
                    _ => {}
                }
            }
        })?;
        if layout.registers > 0 {
            committed(files, |transaction| {
                let is_later = |end: &u64| transaction.start > *end;
                writes += ended
                    .iter()
                    .filter(|(_, end)| is_later(end))
                    .map(|(key, _)| written(&transaction.operations, *key))
                    .sum::<u64>();
            })?;
        }
        let rows = layout.rows() - state.found(layout);
        let (balances, unbalanced) = accounted(state, layout, moved);
        Ok(Self { appends, writes, rows, balances, unbalanced })
    }
}

/// Hands on each committed transaction.
fn committed(files: &mut Files, mut each: impl FnMut(&Transaction)) -> Result<(), Error> {
    files.pass(&mut |transaction| {
        if transaction.outcome == Outcome::Committed {
            each(transaction);
        }
    })
}

/// How many of the operations write this register.
fn written(operations: &[Operation], register: u32) -> u64 {
    let writes =
        |operation: &&Operation| matches!(operation, Operation::Write { key, .. } if *key == register);
    operations.iter().filter(writes).count() as u64
}

/// How many balances are none that the transfers leave, and by how much the sum is off. A transfer without an answer may have been
/// done or not; either way it leaves the sum as it was.
fn accounted(state: &State, layout: &Layout, moved: &[Moved]) -> (u64, u64) {
    let accounts = &state.accounts;
    let is_off = |(key, moved): &(u32, &Moved)| {
        accounts.get(key).is_some_and(|balance| !moved.leaves(balance - layout.balance))
    };
    let off = (0..).zip(moved).filter(is_off).count() as u64;
    let sum: Option<i64> = (0..layout.accounts).map(|key| accounts.get(&key)).sum();
    (off, sum.map_or(0, |sum| sum.abs_diff(layout.total())))
}

/// Committed transactions that saw a wrong sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrongTotals {
    /// They had transferred nothing before.
    pub(super) of_readers: u64,
    /// They had.
    pub(super) after_write: u64,
}

impl WrongTotals {
    /// Those that had ended by `until`.
    pub(super) fn of(files: &mut Files, until: u64) -> Result<Self, Error> {
        let mut totals = Self::default();
        files.pass(&mut |transaction| {
            let is_early = transaction.end.is_some_and(|end| end < until);
            let is_committed = transaction.outcome == Outcome::Committed;
            let wrong = transaction.total.filter(|total| total.observed != total.expected);
            if let Some(Total { after_write, .. }) = wrong.filter(|_| is_early && is_committed) {
                *(if after_write { &mut totals.after_write } else { &mut totals.of_readers }) += 1;
            }
        })?;
        Ok(totals)
    }
}
