//! The clients' record of acknowledged and unanswered operations, in memory of fixed size.

use std::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use super::{Stock, Withdrawal};

/// One tuple's account in units, on a cache line of its own, so that an operation touches just one. Each count only
/// grows.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Account {
    /// Units of captures, counted when they are acknowledged.
    captured: AtomicI64,
    /// Units of releases, counted before they are sent.
    invoked: AtomicI64,
    /// Units of those releases that are proved to have had no effect.
    undone: AtomicI64,
    /// Units of those releases that were never answered.
    unknown: AtomicI64,
    /// The most units that were ever seen to be taken beyond the initial stock.
    oversold: AtomicI64,
}

/// The ledger of one trial, shared by its clients. An operation costs one atomic addition; nothing grows
/// with the number of operations.
///
/// Captures acknowledged so far, less releases sent so far, are never more than the units really taken: if that is
/// ever more than the initial stock, units were sold that did not exist.
#[derive(Debug)]
pub struct Ledger {
    initial: Vec<i64>,
    accounts: Vec<Account>,
    /// Units of unanswered captures, by group, because the tuple that they would come from is not known.
    captured_unknown: Vec<AtomicI64>,
    torn: AtomicU64,
    /// Captures and releases with any outcome but ok.
    unacknowledged: AtomicU64,
}

/// The ledger's figures of one tuple, in units.
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

    /// Records an acknowledged capture of `units` of a group, with the withdrawals that the store reported. A
    /// capture whose withdrawals do not add up, or name tuples that it cannot have taken from, is torn.
    pub(crate) fn captured(&self, stock: &Stock, group: u32, units: u32, withdrawals: &[Withdrawal]) {
        let mut sum = 0_u64;
        let mut fits = true;
        for withdrawal in withdrawals {
            sum += u64::from(withdrawal.count);
            match item_of(stock, group, withdrawal) {
                Some(item) => self.take(item, withdrawal.count.into()),
                None => fits = false,
            }
        }
        if !fits || sum != u64::from(units) {
            self.torn.fetch_add(1, Relaxed);
        }
    }

    fn take(&self, item: usize, units: i64) {
        let account = &self.accounts[item];
        // in this order: the counts that are added are read no later than the capture's own addition, and the one
        // that is subtracted no earlier, so that the sum is a lower bound for that moment
        let undone = account.undone.load(SeqCst);
        let captured = account.captured.fetch_add(units, SeqCst) + units;
        let invoked = account.invoked.load(SeqCst);
        let beyond = captured + undone - invoked - self.initial[item];
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

    /// Records a release that is about to be sent: from now on its units may be in stock again.
    pub(crate) fn release_invoked(&self, item: u32, units: u32) {
        self.accounts[item as usize].invoked.fetch_add(units.into(), SeqCst);
    }

    pub(crate) fn release_unknown(&self, item: u32, units: u32) {
        self.accounts[item as usize].unknown.fetch_add(units.into(), Relaxed);
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    /// Records a release that is proved to have had no effect: its units never came back.
    pub(crate) fn release_without_effect(&self, item: u32, units: u32) {
        self.accounts[item as usize].undone.fetch_add(units.into(), SeqCst);
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    /// To be called once every operation has ended: a release that is neither undone nor unknown was acknowledged.
    pub(crate) fn entry(&self, item: usize) -> Entry {
        let account = &self.accounts[item];
        let released_unknown = account.unknown.load(Relaxed);
        let without_effect = account.undone.load(Relaxed);
        Entry {
            initial: self.initial[item],
            oversold: account.oversold.load(Relaxed),
            captured: account.captured.load(Relaxed),
            released: account.invoked.load(Relaxed) - without_effect - released_unknown,
            released_unknown,
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

/// The tuple that a withdrawal names, if it belongs to the group.
fn item_of(stock: &Stock, group: u32, withdrawal: &Withdrawal) -> Option<usize> {
    let key = (withdrawal.sku, withdrawal.condition, withdrawal.source, withdrawal.warehouse);
    stock.groups[group as usize].items().find(|&item| stock.items[item].key() == key)
}
