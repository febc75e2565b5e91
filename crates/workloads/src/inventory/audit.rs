//! Compares the ledger with the final stock.

use std::collections::BTreeMap;

use acidtest_model::StoreError;

use super::{Ledger, Sequence, Stock, StockRow};
use crate::{
    Audit, Finding,
    guarantee::{ATOMICITY, INTEGRITY, LOCK},
};

/// A sequence that was replayed, for the audit.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    pub sequence: &'a Sequence,
    /// Whether a single client replayed it, so that even the warehouses of each capture are determined.
    pub in_order: bool,
}

/// Compares the ledger of a trial with the stock that the store ended with.
///
/// Per tuple the count must lie in
/// `[initial - ok captures - unknown captures + ok releases,
///   initial - ok captures + ok releases + unknown releases]`, and so must the sum of each group,
/// where an unknown capture counts once. A refusal proves nothing either way.
#[must_use]
pub fn audit(
    stock: &Stock,
    ledger: &Ledger,
    held: Result<Vec<StockRow>, StoreError>,
    replay: Option<Replay<'_>>,
) -> Audit {
    let mut found = FindingCounts::from_ledger(stock, ledger);
    match held {
        Ok(held) => {
            let counts = found.place(stock, &held);
            found.compare(stock, ledger, &counts);
            if let Some(replay) = replay {
                found.replay(stock, ledger, &counts, replay);
            }
            if found.acknowledged == 0 {
                found.doubt = Some("no operation was acknowledged".to_owned());
            }
        }
        Err(error) => found.doubt = Some(error.to_string()),
    }
    found.into_audit()
}

#[derive(Debug, Default)]
struct FindingCounts {
    oversold: u64,
    oversold_at_first: u64,
    surplus: u64,
    deficit: u64,
    negative: u64,
    torn: u64,
    misplaced: u64,
    off_sequence: u64,
    acknowledged: u64,
    evidence: BTreeMap<String, i64>,
    doubt: Option<String>,
}

impl FindingCounts {
    /// The findings that the ledger proves without the store.
    fn from_ledger(stock: &Stock, ledger: &Ledger) -> Self {
        let mut found = Self { torn: ledger.torn(), ..Self::default() };
        let mut sums = [0_i64; 4];
        for item in 0..stock.items.len() {
            let entry = ledger.entry(item);
            found.oversold += entry.oversold.unsigned_abs();
            found.oversold_at_first += entry.oversold_at_first.unsigned_abs();
            let row = [entry.initial, entry.captured, entry.released, entry.released_unknown];
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        let [initial, captured, released, released_unknown] = sums;
        let captured_unknown: i64 = (0..stock.groups.len()).map(|group| ledger.unknown_captures(group)).sum();
        found.acknowledged = (captured + released).unsigned_abs();
        let low = initial - captured - captured_unknown + released;
        let high = initial - captured + released + released_unknown;
        found.note([
            ("initial", initial),
            ("captured", captured),
            ("captured_unknown", captured_unknown),
            ("released", released),
            ("released_unknown", released_unknown),
            ("final_at_least", low),
            ("final_at_most", high),
        ]);
        found
    }

    fn note<const N: usize>(&mut self, figures: [(&str, i64); N]) {
        self.evidence.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    }

    /// The final count of each tuple; a tuple that is missing counts as 0 and as misplaced.
    fn place(&mut self, stock: &Stock, held: &[StockRow]) -> Vec<i64> {
        let mut counts: Vec<Option<i64>> = vec![None; stock.items.len()];
        for tuple in held {
            match stock.find(tuple.key) {
                Some(item) if counts[item].is_none() => counts[item] = Some(tuple.count),
                _ => self.misplaced += 1,
            }
        }
        self.misplaced += counts.iter().filter(|count| count.is_none()).count() as u64;
        self.note([("final", held.iter().fold(0, |sum: i64, tuple| sum.saturating_add(tuple.count)))]);
        counts.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Compares tuples with their bounds, and groups with theirs, which are tighter where a capture's answer is
    /// missing. A group counts where it is further out of its bounds than its tuples are. A count is any number the
    /// store gives, so sums are made in wider integers.
    fn compare(&mut self, stock: &Stock, ledger: &Ledger, counts: &[i64]) {
        for (index, group) in stock.groups.iter().enumerate() {
            let unknown = i128::from(ledger.unknown_captures(index));
            let (mut low, mut high, mut sum) = (-unknown, 0, 0);
            let (mut over, mut under) = (0, 0);
            for item in group.items() {
                let entry = ledger.entry(item);
                let base = i128::from(entry.initial - entry.captured + entry.released);
                let released_unknown = i128::from(entry.released_unknown);
                let count = i128::from(counts[item]);
                over += (count - base - released_unknown).max(0);
                under += (base - unknown - count).max(0);
                low += base;
                high += base + released_unknown;
                sum += count;
                self.negative += u64::from(count < 0);
            }
            self.surplus = self.surplus.saturating_add(units(over.max(sum - high)));
            self.deficit = self.deficit.saturating_add(units(under.max(low - sum)));
        }
    }

    /// Compares the final stock with the sequence's own. The sum of each group is the same in whatever order
    /// operations ended; the warehouse that a capture took from is determined only if they ran in order.
    fn replay(&mut self, stock: &Stock, ledger: &Ledger, counts: &[i64], replay: Replay<'_>) {
        let last = replay.sequence.last();
        let off: i128 = if replay.in_order {
            counts.iter().zip(last).map(|(count, last)| i128::from(count.abs_diff(*last))).sum()
        } else {
            let sum = |of: &[i64], group: &super::Group| -> i128 {
                of[group.items()].iter().copied().map(i128::from).sum()
            };
            stock.groups.iter().map(|group| (sum(counts, group) - sum(last, group)).abs()).sum()
        };
        let open = ledger.unacknowledged();
        if !replay.sequence.replayed() {
            self.doubt = Some("the sequence was not replayed to its end".to_owned());
        } else if open > 0 {
            self.doubt = Some(format!("{open} operations of the sequence were not acknowledged"));
        } else {
            self.off_sequence = units(off);
        }
    }

    fn into_audit(self) -> Audit {
        let findings = vec![
            Finding::new("oversold", self.oversold, "units", LOCK)
                .or_loss()
                .within_epoch(self.oversold_at_first),
            Finding::new("surplus", self.surplus, "units", LOCK).or_loss(),
            Finding::new("deficit", self.deficit, "units", LOCK).or_loss(),
            Finding::new("negative", self.negative, "tuples", LOCK).or_loss(),
            Finding::new("torn", self.torn, "operations", ATOMICITY),
            Finding::new("misplaced", self.misplaced, "tuples", INTEGRITY).or_loss(),
            Finding::new("off_sequence", self.off_sequence, "units", LOCK).or_loss(),
        ];
        // its figures are signed: the store may hold fewer than nothing
        Audit { evidence: self.evidence, ..Audit::of(findings, self.doubt, []) }
    }
}

/// A number of units as a finding's count, cut to the largest value that fits.
fn units(found: i128) -> u64 {
    u64::try_from(found).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::{
        Verdict,
        inventory::{Parameters, Withdrawal},
    };

    /// A correct store and its ledger after some operations, some of them unanswered.
    struct World {
        stock: Stock,
        ledger: Ledger,
        held: Vec<StockRow>,
        unanswered: u32,
    }

    fn world(seed: u64, operations: u32, unanswered_share: f64) -> World {
        let parameters = Parameters { items: 12, skus: 2, ..Parameters::default() };
        let stock = Stock::draw(&parameters, seed);
        let ledger = Ledger::new(&stock);
        let mut held: Vec<StockRow> =
            stock.items.iter().map(|item| StockRow { key: item.key(), count: item.initial.into() }).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut unanswered = 0;
        for _ in 0..operations {
            let item = rng.random_range(0..stock.items.len());
            let units = rng.random_range(1..=3_u32);
            let answered = rng.random::<f64>() >= unanswered_share;
            let done = answered || rng.random();
            unanswered += u32::from(!answered);
            #[allow(clippy::cast_possible_truncation)]
            if rng.random() {
                ledger.release_invoked(item as u32, units);
                held[item].count += if done { i64::from(units) } else { 0 };
                if !answered {
                    ledger.release_unknown(item as u32, units);
                }
            } else {
                let group = stock.group_of[item];
                let withdrawals = take(&stock, &mut held, group, units, done);
                match withdrawals {
                    None => {}
                    Some(withdrawals) if answered => ledger.captured(&stock, group, units, &withdrawals),
                    Some(_) => ledger.capture_unknown(group, units),
                }
            }
        }
        World { stock, ledger, held, unanswered }
    }

    fn take(
        stock: &Stock,
        held: &mut [StockRow],
        group: u32,
        units: u32,
        done: bool,
    ) -> Option<Vec<Withdrawal>> {
        let items = stock.groups[group as usize].items();
        let mut wanted = i64::from(units);
        if items.clone().map(|item| held[item].count).sum::<i64>() < wanted {
            return None;
        }
        let mut withdrawals = Vec::new();
        for item in items {
            let count = held[item].count.min(wanted);
            if count > 0 && done {
                held[item].count -= count;
                let (sku, condition, source, warehouse) = held[item].key;
                let count = u32::try_from(count).unwrap();
                withdrawals.push(Withdrawal { sku, warehouse, condition, source, count });
            }
            wanted -= count;
        }
        Some(withdrawals)
    }

    fn verdict(world: &World) -> Audit {
        audit(&world.stock, &world.ledger, Ok(world.held.clone()), None)
    }

    proptest! {
        /// Unanswered operations, whether they took effect or not, never make a correct store look broken.
        #[test]
        fn a_correct_store_raises_no_alarm(seed: u64, share in 0.0..0.5_f64) {
            let world = world(seed, 400, share);
            let audit = verdict(&world);
            prop_assert_eq!(audit.verdict, Verdict::Holds, "{} {:?}", audit, audit.evidence);
        }

        /// With every operation answered, one unit too many or too few anywhere is found.
        #[test]
        fn one_unit_is_seen(seed: u64, item in 0usize..12, off in prop::sample::select(vec![-1_i64, 1])) {
            let mut world = world(seed, 200, 0.0);
            world.held[item].count += off;
            let audit = verdict(&world);
            prop_assert_eq!(audit.verdict, Verdict::Broken);
            let name = if off > 0 { "surplus" } else { "deficit" };
            prop_assert_eq!(audit.count(name), 1);
        }

        /// With some operations unanswered, any difference that they cannot explain is found.
        #[test]
        fn more_than_the_unanswered_is_seen(seed: u64, item in 0usize..12) {
            let mut world = world(seed, 200, 0.1);
            // an unanswered operation moves 3 units at most
            world.held[item].count += i64::from(world.unanswered) * 3 + 1;
            prop_assert_eq!(verdict(&world).verdict, Verdict::Broken);
        }
    }

    #[test]
    fn nothing_acknowledged_is_unknown_not_holds() {
        let audit = verdict(&world(1, 0, 0.0));
        assert_eq!(audit.to_string(), "unknown: no operation was acknowledged");
    }

    #[test]
    fn an_unreadable_state_is_unknown_unless_the_ledger_proves_a_break() {
        let world = world(1, 50, 0.0);
        let gone =
            || Err(StoreError::Server { doing: "reading".into(), address: "x".into(), cause: "gone".into() });
        assert_eq!(audit(&world.stock, &world.ledger, gone(), None).verdict, Verdict::Unknown);
        let tuple = world.stock.items[0];
        let withdrawal = Withdrawal {
            sku: tuple.sku,
            warehouse: tuple.warehouse,
            condition: tuple.condition,
            source: tuple.source,
            count: 1_000_000,
        };
        world.ledger.captured(&world.stock, world.stock.group_of[0], 1_000_000, &[withdrawal]);
        let proved = audit(&world.stock, &world.ledger, gone(), None);
        assert_eq!(proved.verdict, Verdict::Broken);
        assert!(proved.count("oversold") > 900_000 && proved.reason.is_some());
    }

    #[test]
    fn counts_are_compared_up_to_what_can_be() {
        for (count, name) in [(i64::MAX, "surplus"), (i64::MIN, "deficit")] {
            let mut world = world(1, 50, 0.1);
            world.held.iter_mut().for_each(|tuple| tuple.count = count);
            for replay in [None, Some(false), Some(true)] {
                let sequence = Sequence::draw(&Parameters::default(), &world.stock, 0, 1);
                let replay = replay.map(|in_order| Replay { sequence: &sequence, in_order });
                let audit = audit(&world.stock, &world.ledger, Ok(world.held.clone()), replay);
                assert_eq!(audit.count(name), u64::MAX, "{audit}");
            }
        }
    }

    #[test]
    fn what_is_no_tuple_is_misplaced() {
        let mut world = world(3, 50, 0.0);
        world.held.push(StockRow::foreign());
        assert_eq!(verdict(&world).to_string(), "broken: 1 shelf is missing, there twice, or unknown");
    }

    #[test]
    fn tuples_lost_doubled_or_foreign_are_misplaced() {
        let mut world = world(3, 50, 0.0);
        let last = world.held.pop().unwrap();
        assert!(verdict(&world).count("misplaced") >= 1, "lost {last:?}");
        world.held.push(world.held[0]);
        assert_eq!(verdict(&world).count("misplaced"), 2, "one lost, one doubled");
        world.held.push(StockRow { key: (999, 1, 1, 1), count: 0 });
        assert_eq!(verdict(&world).count("misplaced"), 3);
    }

    #[test]
    fn lines_that_do_not_add_up_are_torn() {
        let world = world(3, 50, 0.0);
        world.ledger.captured(&world.stock, 0, 2, &[]);
        assert_eq!(verdict(&world).count("torn"), 1);
    }
}
