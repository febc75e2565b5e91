//! The answers that clients of the inventory had.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_workloads::inventory::{Capture, Release, Stock, Withdrawal};

/// (sku, condition, source, warehouse).
pub(crate) type Key = (u32, u8, u8, u8);
/// (sku, condition, source).
type Group = (u32, u8, u8);

/// Units of one tuple, by the operations that changed it.
#[derive(Debug, Default)]
struct Account {
    initial: i64,
    captured: i64,
    /// Units of releases that were sent, counted again for every attempt.
    sent: i64,
    released: i64,
}

/// The answers that clients had about one trial's stock.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    tuples: BTreeMap<Key, Account>,
    /// Groups that an operation without an answer may have changed; no claim is made about them.
    doubtful: BTreeSet<Group>,
    /// Captures whose withdrawals do not add up to the units asked for, and withdrawals that took more than there was.
    seen: u64,
    exact: bool,
}

fn key(withdrawal: &Withdrawal) -> Key {
    (withdrawal.sku, withdrawal.condition, withdrawal.source, withdrawal.warehouse)
}

fn group((sku, condition, source, _): Key) -> Group {
    (sku, condition, source)
}

impl Inventory {
    /// A witness of a trial over this stock. `exact`: clients run one after the other.
    pub(crate) fn new(stock: &Stock, exact: bool) -> Self {
        let account = |initial: u32| Account { initial: initial.into(), ..Account::default() };
        let tuples = stock.items.iter().map(|item| (item.key(), account(item.initial))).collect();
        Self { tuples, exact, ..Self::default() }
    }

    pub(crate) fn sent(&mut self, release: &Release) {
        if let Some(account) = self.tuples.get_mut(&key(&release.withdrawal())) {
            account.sent += i64::from(release.units);
        }
    }

    /// Notes that a release was acknowledged.
    pub(crate) fn released(&mut self, release: &Release) {
        if let Some(account) = self.tuples.get_mut(&key(&release.withdrawal())) {
            account.released += i64::from(release.units);
        }
    }

    /// Notes that a capture was acknowledged, with the withdrawals that it took.
    pub(crate) fn captured(&mut self, capture: &Capture, taken: &[Withdrawal]) {
        let mut units = 0;
        for withdrawal in taken {
            units += u64::from(withdrawal.count);
            let Some(account) = self.tuples.get_mut(&key(withdrawal)) else { continue };
            account.captured += i64::from(withdrawal.count);
            // units may be back in stock as soon as their release was sent, before its answer
            let beyond = account.captured - account.sent > account.initial;
            self.seen += u64::from(self.exact && beyond);
        }
        self.seen += u64::from(units != u64::from(capture.units));
    }

    /// Notes that an operation on this group ended without an answer.
    pub(crate) fn doubt(&mut self, sku: u32, condition: u8, source: u8) {
        self.doubtful.insert((sku, condition, source));
    }

    /// The number of violations that an audit must see, in the answers and in the stock that the store ended with.
    pub(crate) fn shown(&self, held: impl IntoIterator<Item = (Key, i64)>) -> u64 {
        let off = |(key, count): &(Key, i64)| {
            let Some(account) = self.tuples.get(key).filter(|_| !self.doubtful.contains(&group(*key))) else {
                return false;
            };
            *count < 0 || *count != account.initial - account.captured + account.released
        };
        self.seen + held.into_iter().filter(off).count() as u64
    }
}
