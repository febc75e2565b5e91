//! What clients of an inventory were told.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_workloads::inventory::{Capture, Release, Stock, Withdrawal};

/// (sku, condition, source, warehouse).
pub(crate) type Key = (u32, u8, u8, u8);
/// (sku, condition, source).
type Group = (u32, u8, u8);

/// One tuple, in units.
#[derive(Debug, Default)]
struct Account {
    initial: i64,
    captured: i64,
    /// Releases that were sent, each attempt by itself.
    sent: i64,
    released: i64,
}

/// What clients were told of one trial's stock.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    tuples: BTreeMap<Key, Account>,
    /// What an operation without an answer may have changed.
    doubtful: BTreeSet<Group>,
    /// Captures that did not add up, and those that took what was not there.
    seen: u64,
    exact: bool,
}

fn key(line: &Withdrawal) -> Key {
    (line.sku, line.condition, line.source, line.warehouse)
}

fn group((sku, condition, source, _): Key) -> Group {
    (sku, condition, source)
}

impl Inventory {
    /// A trial over a stock. `exact`: clients run one after the other.
    pub(crate) fn new(stock: &Stock, exact: bool) -> Self {
        let account = |initial: u32| Account { initial: initial.into(), ..Account::default() };
        let tuples = stock.items.iter().map(|item| (item.key(), account(item.initial))).collect();
        Self { tuples, exact, ..Self::default() }
    }

    /// A release is on its way.
    pub(crate) fn sent(&mut self, release: &Release) {
        if let Some(account) = self.tuples.get_mut(&key(&release.line())) {
            account.sent += i64::from(release.units);
        }
    }

    /// A release was acknowledged.
    pub(crate) fn released(&mut self, release: &Release) {
        if let Some(account) = self.tuples.get_mut(&key(&release.line())) {
            account.released += i64::from(release.units);
        }
    }

    /// A capture was acknowledged.
    pub(crate) fn captured(&mut self, capture: &Capture, taken: &[Withdrawal]) {
        let mut units = 0;
        for line in taken {
            units += u64::from(line.count);
            let Some(account) = self.tuples.get_mut(&key(line)) else { continue };
            account.captured += i64::from(line.count);
            // what was released may have come back as soon as it was sent
            let beyond = account.captured - account.sent > account.initial;
            self.seen += u64::from(self.exact && beyond);
        }
        self.seen += u64::from(units != u64::from(capture.units));
    }

    /// Nobody knows whether it was done.
    pub(crate) fn doubt(&mut self, sku: u32, condition: u8, source: u8) {
        self.doubtful.insert((sku, condition, source));
    }

    /// How much an audit must see: in the answers, and in what the store ended with.
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
