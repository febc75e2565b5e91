//! A generated sequence of operations in which every capture succeeds if they run in order.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    Parameters, Stock,
    client::{Draw, StockOperation},
};

/// How many captures are drawn in search of one that would succeed, before a release is drawn instead.
const TRIES: usize = 64;

/// A sequence of operations to replay, in which every capture succeeds if they run one after the other, and the
/// stock that they leave.
///
/// Clients take operations in order, so at any moment a prefix of the sequence is under way. A prefix's captures
/// never need more than its releases and the initial stock provide: if refused captures are retried, a replay by
/// many clients cannot block itself.
#[derive(Debug)]
pub struct Sequence {
    operations: Vec<StockOperation>,
    /// Units that the sequence leaves on each tuple.
    last: Vec<i64>,
    next: AtomicUsize,
}

impl Sequence {
    /// Draws a sequence of `length` operations; the same seed gives the same sequence.
    #[must_use]
    pub fn draw(parameters: &Parameters, stock: &Stock, length: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let draw = Draw::new(parameters, stock, seed);
        let mut held: Vec<i64> = stock.items.iter().map(|item| item.initial.into()).collect();
        let operations = (0..length)
            .map(|_| {
                let drawn = draw_possible(&draw, stock, &held, &mut rng);
                apply(drawn, stock, &mut held);
                drawn
            })
            .collect();
        Self { operations, last: held, next: AtomicUsize::new(0) }
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Units that the sequence leaves on each tuple.
    #[must_use]
    pub fn last(&self) -> &[i64] {
        &self.last
    }

    /// Whether every operation was taken by a client.
    #[must_use]
    pub fn replayed(&self) -> bool {
        self.next.load(Relaxed) >= self.operations.len()
    }

    pub(crate) fn take(&self) -> Option<StockOperation> {
        self.operations.get(self.next.fetch_add(1, Relaxed)).copied()
    }
}

fn draw_possible(draw: &Draw, stock: &Stock, held: &[i64], rng: &mut impl Rng) -> StockOperation {
    let drawn = draw.operation(stock, rng);
    let possible = |drawn: StockOperation| match drawn {
        StockOperation::Release { .. } => true,
        StockOperation::Capture { group, units } => {
            let there: i64 = stock.groups[group as usize].items().map(|item| held[item]).sum();
            there >= units.into()
        }
    };
    if possible(drawn) {
        return drawn;
    }
    (0..TRIES)
        .map(|_| draw.capture(stock, rng))
        .find(|&drawn| possible(drawn))
        .unwrap_or_else(|| draw.release(rng))
}

/// Applies the operation as every store does: from warehouses in ascending order.
fn apply(drawn: StockOperation, stock: &Stock, held: &mut [i64]) {
    match drawn {
        StockOperation::Release { item, units } => held[item as usize] += i64::from(units),
        StockOperation::Capture { group, units } => {
            let mut wanted = i64::from(units);
            for item in stock.groups[group as usize].items() {
                let count = held[item].min(wanted);
                held[item] -= count;
                wanted -= count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_capture_succeeds_in_order(items in 1u32..60, skus in 3u32..40, seed: u64) {
            let parameters = Parameters { items, skus, ..Parameters::default() };
            let stock = Stock::draw(&parameters, seed);
            let sequence = Sequence::draw(&parameters, &stock, 2_000, seed);
            let mut held: Vec<i64> = stock.items.iter().map(|item| item.initial.into()).collect();
            let mut captures = 0;
            while let Some(drawn) = sequence.take() {
                if let StockOperation::Capture { group, units } = drawn {
                    captures += 1;
                    let there: i64 = stock.groups[group as usize].items().map(|item| held[item]).sum();
                    prop_assert!(there >= i64::from(units));
                }
                apply(drawn, &stock, &mut held);
                prop_assert!(held.iter().all(|&count| count >= 0));
            }
            prop_assert_eq!(held.as_slice(), sequence.last());
            prop_assert!(sequence.replayed());
            prop_assert!((800..1200).contains(&captures), "{} captures of 2000", captures);
        }
    }
}
