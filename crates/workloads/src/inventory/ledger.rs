//! What the clients remember of what was acknowledged, in memory of fixed size.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::{Line, Stock};

/// One tuple's account, on a cache line of its own: an operation touches just one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Account {
    /// Acknowledged captures less invoked releases: never more than was really taken.
    taken: AtomicI64,
    /// How far `taken` was seen above the initial stock.
    oversold: AtomicI64,
    captured: AtomicI64,
    released: AtomicI64,
    released_unknown: AtomicI64,
}

/// The ledger of one trial, shared by its clients. An operation costs two relaxed atomic additions;
/// nothing grows with the number of operations.
#[derive(Debug)]
pub struct Ledger {
    initial: Vec<i64>,
    accounts: Vec<Account>,
    /// Units of unanswered captures, by group: from which tuple they would come is not known.
    captured_unknown: Vec<AtomicI64>,
    torn: AtomicU64,
    /// Captures and releases that ended in any way but acknowledged.
    unacknowledged: AtomicU64,
}

/// What the ledger says of one tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) initial: i64,
    pub(crate) oversold: i64,
    pub(crate) captured: i64,
    pub(crate) released: i64,
    pub(crate) released_unknown: i64,
}

impl Ledger {
    /// An empty ledger over the stock.
    #[must_use]
    pub fn new(stock: &Stock) -> Self {
        Self {
            initial: stock.items.iter().map(|item| item.initial.into()).collect(),
            accounts: stock.items.iter().map(|_| Account::default()).collect(),
            captured_unknown: stock.groups.iter().map(|_| AtomicI64::new(0)).collect(),
            torn: AtomicU64::new(0),
            unacknowledged: AtomicU64::new(0),
        }
    }

    /// An acknowledged capture of `units` of a group, with what it says it took. A capture whose
    /// lines do not add up, or name tuples that it cannot have taken from, is torn.
    pub(crate) fn captured(&self, stock: &Stock, group: u32, units: u32, lines: &[Line]) {
        let mut sum = 0_u64;
        let mut fits = true;
        for line in lines {
            sum += u64::from(line.count);
            match item_of(stock, group, line) {
                Some(item) => self.take(item, line.count.into()),
                None => fits = false,
            }
        }
        if !fits || sum != u64::from(units) {
            self.torn.fetch_add(1, Relaxed);
        }
    }

    fn take(&self, item: usize, units: i64) {
        let account = &self.accounts[item];
        account.captured.fetch_add(units, Relaxed);
        let taken = account.taken.fetch_add(units, Relaxed) + units;
        let beyond = taken - self.initial[item];
        if beyond > 0 {
            account.oversold.fetch_max(beyond, Relaxed);
        }
    }

    pub(crate) fn capture_unknown(&self, group: u32, units: u32) {
        self.captured_unknown[group as usize].fetch_add(units.into(), Relaxed);
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    pub(crate) fn capture_without_effect(&self) {
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    /// A release that is about to be sent: from now on its units may be there again.
    pub(crate) fn release_invoked(&self, item: u32, units: u32) {
        self.accounts[item as usize].taken.fetch_sub(units.into(), Relaxed);
    }

    pub(crate) fn released(&self, item: u32, units: u32) {
        self.accounts[item as usize].released.fetch_add(units.into(), Relaxed);
    }

    pub(crate) fn release_unknown(&self, item: u32, units: u32) {
        self.accounts[item as usize].released_unknown.fetch_add(units.into(), Relaxed);
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    /// A release that is proved to have had no effect: its units never came back.
    pub(crate) fn release_without_effect(&self, item: u32, units: u32) {
        self.accounts[item as usize].taken.fetch_add(units.into(), Relaxed);
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    pub(crate) fn entry(&self, item: usize) -> Entry {
        let account = &self.accounts[item];
        Entry {
            initial: self.initial[item],
            oversold: account.oversold.load(Relaxed),
            captured: account.captured.load(Relaxed),
            released: account.released.load(Relaxed),
            released_unknown: account.released_unknown.load(Relaxed),
        }
    }

    pub(crate) fn unknown_captures(&self, group: usize) -> i64 {
        self.captured_unknown[group].load(Relaxed)
    }

    pub(crate) fn torn(&self) -> u64 {
        self.torn.load(Relaxed)
    }

    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged.load(Relaxed)
    }
}

/// The tuple that a line names, if it is one of the group's.
fn item_of(stock: &Stock, group: u32, line: &Line) -> Option<usize> {
    let key = (line.sku, line.condition, line.source, line.warehouse);
    stock.groups[group as usize].items().find(|&item| stock.items[item].key() == key)
}
