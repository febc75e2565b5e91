//! The clients' record of acknowledged and unanswered operations, in memory of fixed size.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicI64, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use acidtest_engine::Part;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Stock, Withdrawal};
use crate::{
    epochs::{Boundary, Epoch, Epochs},
    trial::{TrialLedger, WrittenLedger, read_ledger, written_ledger},
};

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
    /// The same before the server was ended for the first time: what is in stock after that, nobody knows.
    oversold_at_first: AtomicI64,
}

/// The ledger of one trial, shared by its clients. An operation costs one atomic addition; nothing grows
/// with the number of operations.
///
/// Captures acknowledged so far, less releases sent so far, are never more than the units really taken: if that is
/// ever more than the initial stock, units were sold that did not exist. Where several processes drive the clients,
/// each has a ledger of its own and knows nothing of the others' releases, so that only the sums of all of them at the
/// end prove this; and those before the first crash, for which all captures are noted first, and all releases after
/// that.
#[derive(Debug)]
pub struct Ledger {
    /// Whether it is the ledger of all clients.
    is_whole: bool,
    epochs: Epochs,
    before_crash: Mutex<BeforeCrash>,
    initial: Vec<i64>,
    accounts: Vec<Account>,
    /// Units of unanswered captures, by group, because the tuple that they would come from is not known.
    captured_unknown: Vec<AtomicI64>,
    torn: AtomicU64,
    /// Captures and releases with any outcome but ok.
    unacknowledged: AtomicU64,
}

/// What was taken before the server was ended for the first time.
#[derive(Debug, Default)]
enum BeforeCrash {
    /// Nothing has been noted.
    #[default]
    Nothing,
    /// By tuple: units captured; releases have not been noted yet.
    Captured(Vec<i64>),
    /// By tuple: units captured less units released, at least.
    Taken(Vec<i64>),
    /// Some process has not noted it.
    Unknown,
}

/// What a ledger holds, for the process that judges the trial.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// By tuple: units that were taken before the server was ended for the first time, at least; none if that was not
    /// noted.
    taken_before_crash: Option<Vec<i64>>,
    /// By tuple: units captured, invoked, undone and unknown.
    accounts: Vec<[i64; 4]>,
    captured_unknown: Vec<i64>,
    torn: u64,
    unacknowledged: u64,
}

/// The ledger's figures of one tuple, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) initial: i64,
    pub(crate) oversold: i64,
    /// As far as it was seen before the server was ended for the first time.
    pub(crate) oversold_at_first: i64,
    pub(crate) captured: i64,
    pub(crate) released: i64,
    pub(crate) released_unknown: i64,
}

impl Ledger {
    /// An empty ledger over the stock.
    #[must_use]
    pub fn new(stock: &Stock) -> Self {
        Self::of(Part::WHOLE, stock)
    }

    /// The same for the clients of one process.
    pub(crate) fn of(part: Part, stock: &Stock) -> Self {
        Self {
            is_whole: part.is_whole(),
            epochs: Epochs::default(),
            before_crash: Mutex::default(),
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
        if beyond > 0 && self.is_whole {
            account.oversold.fetch_max(beyond, Relaxed);
            // what was added up until now was so before that
            if self.epochs.now() == Epoch::FIRST {
                account.oversold_at_first.fetch_max(beyond, Relaxed);
            }
        }
    }

    fn before_crash(&self) -> MutexGuard<'_, BeforeCrash> {
        self.before_crash.lock().unwrap_or_else(PoisonError::into_inner)
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
        let initial = self.initial[item];
        let released_unknown = account.unknown.load(Relaxed);
        // in the order of `take`, because the ledger is also asked while clients are driven
        let without_effect = account.undone.load(SeqCst);
        let captured = account.captured.load(SeqCst);
        let invoked = account.invoked.load(SeqCst);
        let beyond = captured + without_effect - invoked - initial;
        let taken_at_first = match &*self.before_crash() {
            BeforeCrash::Taken(taken) => taken[item],
            _ => 0,
        };
        Entry {
            initial,
            oversold: account.oversold.load(Relaxed).max(beyond),
            oversold_at_first: account.oversold_at_first.load(Relaxed).max(taken_at_first - initial),
            captured,
            released: invoked - without_effect - released_unknown,
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

impl TrialLedger for Ledger {
    fn written(&self) -> Result<WrittenLedger, String> {
        let counts = |account: &Account| {
            let Account { captured, invoked, undone, unknown, .. } = account;
            [captured, invoked, undone, unknown].map(|count| count.load(Relaxed))
        };
        let taken_before_crash = match &*self.before_crash() {
            BeforeCrash::Taken(taken) => Some(taken.clone()),
            _ => None,
        };
        written_ledger(&Written {
            taken_before_crash,
            accounts: self.accounts.iter().map(counts).collect(),
            captured_unknown: self.captured_unknown.iter().map(|units| units.load(Relaxed)).collect(),
            torn: self.torn(),
            unacknowledged: self.unacknowledged(),
        })
    }

    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String> {
        let written: Written = read_ledger(written)?;
        let Written { taken_before_crash, accounts, captured_unknown, torn, unacknowledged } = &written;
        let taken = taken_before_crash.as_ref().filter(|_| knows_boundaries);
        let lengths = (accounts.len(), captured_unknown.len(), taken.map_or(accounts.len(), Vec::len));
        if lengths != (self.accounts.len(), self.captured_unknown.len(), self.accounts.len()) {
            return Err("it is of another stock".to_owned());
        }
        let mut before = self.before_crash();
        match (taken, &mut *before) {
            (Some(theirs), BeforeCrash::Nothing) => *before = BeforeCrash::Taken(theirs.clone()),
            (Some(theirs), BeforeCrash::Taken(all)) => {
                all.iter_mut().zip(theirs).for_each(|(all, theirs)| *all = all.saturating_add(*theirs));
            }
            _ => *before = BeforeCrash::Unknown,
        }
        drop(before);
        for (Account { captured, invoked, undone, unknown, .. }, theirs) in self.accounts.iter().zip(accounts)
        {
            for (mine, theirs) in [captured, invoked, undone, unknown].into_iter().zip(theirs) {
                mine.fetch_add(*theirs, SeqCst);
            }
        }
        for (mine, theirs) in self.captured_unknown.iter().zip(captured_unknown) {
            mine.fetch_add(*theirs, Relaxed);
        }
        self.torn.fetch_add(*torn, Relaxed);
        self.unacknowledged.fetch_add(*unacknowledged, Relaxed);
        Ok(())
    }

    /// Notes what happens to the server. Units that were captured by one moment, less those whose release had begun by
    /// a later one, are no more than the units that were really taken by then.
    fn note_boundary(&self, boundary: Boundary) {
        if self.epochs.now() == Epoch::FIRST {
            let mut before = self.before_crash();
            match (boundary, &mut *before) {
                (Boundary::Before, _) => {
                    let captured =
                        |account: &Account| account.undone.load(SeqCst) + account.captured.load(SeqCst);
                    *before = BeforeCrash::Captured(self.accounts.iter().map(captured).collect());
                }
                (Boundary::During, BeforeCrash::Captured(captured)) => {
                    for (units, account) in captured.iter_mut().zip(&self.accounts) {
                        *units -= account.invoked.load(SeqCst);
                    }
                    *before = BeforeCrash::Taken(std::mem::take(captured));
                }
                _ => {}
            }
        }
        self.epochs.note(boundary);
    }
}

/// The tuple that a withdrawal names, if it belongs to the group.
fn item_of(stock: &Stock, group: u32, withdrawal: &Withdrawal) -> Option<usize> {
    let key = (withdrawal.sku, withdrawal.condition, withdrawal.source, withdrawal.warehouse);
    stock.groups[group as usize].items().find(|&item| stock.items[item].key() == key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inventory::Parameters;

    proptest! {
        /// The ledgers of two processes say together what one ledger says, but for what was oversold for a while only;
        /// and none of them accuses a store of selling what another process had put back.
        #[test]
        fn ledgers_of_several_processes_say_together_what_one_says(
            events in prop::collection::vec((0..2_usize, 0..6_u32, 1..4_u32, 0..5_u8), 0..200),
        ) {
            let stock = Stock::draw(&Parameters { items: 6, skus: 2, ..Parameters::default() }, 1);
            let (one, whole) = (Ledger::new(&stock), Ledger::new(&stock));
            let apart: Vec<Ledger> = Part::deal(4, 2, 2).iter().map(|part| Ledger::of(*part, &stock)).collect();
            for (process, item, units, event) in events {
                let (group, tuple) = (stock.group_of[item as usize], stock.items[item as usize].key());
                let (sku, condition, source, warehouse) = tuple;
                for ledger in [&one, &apart[process]] {
                    match event {
                        0 => {
                            let taken = Withdrawal { sku, condition, source, warehouse, count: units };
                            ledger.captured(&stock, group, units, &[taken]);
                        }
                        1 => ledger.capture_unknown(group, units),
                        _ => ledger.release_invoked(item, units),
                    }
                    match event {
                        3 => ledger.release_unknown(item, units),
                        4 => ledger.release_without_effect(item, units),
                        _ => {}
                    }
                }
            }
            for ledger in &apart {
                for item in 0..stock.items.len() {
                    prop_assert_eq!(ledger.accounts[item].oversold.load(Relaxed), 0);
                }
                whole.merge(&ledger.written().unwrap(), true).unwrap();
            }
            for item in 0..stock.items.len() {
                let (one, whole) = (one.entry(item), whole.entry(item));
                let at_the_end = (one.captured - one.released - one.released_unknown - one.initial).max(0);
                prop_assert_eq!(whole.oversold, at_the_end);
                prop_assert!(one.oversold >= whole.oversold);
                let Entry { oversold, oversold_at_first, .. } = whole;
                prop_assert_eq!(whole, Entry { oversold, oversold_at_first, ..one });
            }
            let groups = 0..stock.groups.len();
            for group in groups {
                prop_assert_eq!(one.unknown_captures(group), whole.unknown_captures(group));
            }
            prop_assert_eq!((one.torn(), one.unacknowledged()), (whole.torn(), whole.unacknowledged()));
        }
    }

    proptest! {
        /// What several processes say was oversold before the first crash really was, whatever they do while they are told
        /// of it; if they do nothing meanwhile, it is all that is too much by then. One that was not told in time makes
        /// all of it unknown.
        #[test]
        fn what_was_oversold_before_a_crash_is_known_of_all_processes(
            events in prop::collection::vec((0..2_usize, 0..3_u32, 1..20_u32, 0..3_u8), 0..200),
            [nears, comes] in prop::array::uniform2(0..200_usize),
            knows in any::<[bool; 2]>(),
        ) {
            let stock = Stock::draw(&Parameters { items: 3, skus: 1, ..Parameters::default() }, 1);
            let (one, judge) = (Ledger::new(&stock), Ledger::new(&stock));
            let apart: Vec<Ledger> = Part::deal(4, 2, 2).iter().map(|part| Ledger::of(*part, &stock)).collect();
            let tell = |boundary| apart.iter().chain([&one]).for_each(|ledger| ledger.note_boundary(boundary));
            let comes = nears.max(comes).min(events.len());
            let (mut taken, mut most) = ([0; 3], [0; 3]);
            for (step, (process, item, units, event)) in events.into_iter().enumerate() {
                if step == nears {
                    tell(Boundary::Before);
                }
                if step == comes {
                    tell(Boundary::During);
                }
                let (group, key) = (stock.group_of[item as usize], stock.items[item as usize].key());
                let (sku, condition, source, warehouse) = key;
                for ledger in [&one, &apart[process]] {
                    if event == 0 {
                        let taken = Withdrawal { sku, condition, source, warehouse, count: units };
                        ledger.captured(&stock, group, units, &[taken]);
                    } else {
                        ledger.release_invoked(item, units);
                        if event == 2 {
                            ledger.release_without_effect(item, units);
                        }
                    }
                }
                let taken = &mut taken[item as usize];
                *taken += [i64::from(units), -i64::from(units), 0][usize::from(event)];
                if step < comes {
                    most[item as usize] = most[item as usize].max(*taken - i64::from(stock.items[item as usize].initial));
                }
            }
            // a crash after the last event
            if nears >= comes && one.epochs.now() == Epoch::FIRST {
                tell(Boundary::Before);
                tell(Boundary::During);
            }
            for (ledger, knows) in apart.iter().zip(knows) {
                judge.merge(&ledger.written().unwrap(), knows).unwrap();
            }
            for item in 0..3 {
                let (one, judged) = (one.entry(item).oversold_at_first, judge.entry(item).oversold_at_first);
                prop_assert!(one <= most[item].max(0) && judged <= one, "{} {} {:?}", judged, one, most);
                prop_assert!(knows == [true; 2] || judged == 0);
            }
        }
    }

    #[test]
    fn a_ledger_of_another_stock_is_refused() {
        let stock = |items| Stock::draw(&Parameters { items, skus: 2, ..Parameters::default() }, 1);
        let other = Ledger::new(&stock(4)).written().unwrap();
        assert!(Ledger::new(&stock(6)).merge(&other, true).is_err());
    }
}
