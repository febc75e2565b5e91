//! The tuples in stock and their initial counts.

use rand::{RngExt, SeedableRng, seq::index};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Parameters;

/// One tuple, unique by (sku, warehouse, condition, source).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The kind of item sold, from 1.
    pub sku: u32,
    /// Its condition, from 1.
    pub condition: u8,
    /// The source that it comes from, from 1.
    pub source: u8,
    /// The warehouse that it is in, from 1.
    pub warehouse: u8,
    /// Price in cents.
    pub price: u32,
    /// Units in stock at the start of the trial.
    pub initial: u32,
}

impl Item {
    /// (sku, condition, source, warehouse), by which the stock is sorted.
    #[must_use]
    pub fn key(&self) -> (u32, u8, u8, u8) {
        (self.sku, self.condition, self.source, self.warehouse)
    }
}

/// The tuples that a capture of one (sku, condition, source) can take from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Index of its first tuple in [`Stock::items`].
    pub first: u32,
    /// Number of its tuples, which follow each other, ascending by warehouse.
    pub len: u32,
}

impl Group {
    /// Indices of its tuples in [`Stock::items`].
    #[must_use]
    pub fn items(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.len) as usize
    }
}

/// All tuples, sorted by key, so that the tuples of one group follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// The tuples, sorted by [`Item::key`].
    pub items: Vec<Item>,
    /// The groups, in the order of their tuples.
    pub groups: Vec<Group>,
    /// Index of the group of each tuple.
    pub group_of: Vec<u32>,
}

impl Stock {
    /// Draws the stock that the parameters describe; the same seed gives the same stock.
    ///
    /// # Panics
    /// If the parameters were not [checked](Parameters::check): more items than keys.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // a key's parts are below the parameters they come from
    pub fn draw(parameters: &Parameters, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let keys = usize::try_from(parameters.keys()).unwrap_or(usize::MAX);
        let mut items: Vec<Item> = index::sample(&mut rng, keys, parameters.items as usize)
            .into_iter()
            .map(|key| {
                let mut rest = key as u64;
                let mut part = |of: u64| {
                    let part = rest % of;
                    rest /= of;
                    part + 1
                };
                Item {
                    warehouse: part(parameters.warehouses.into()) as u8,
                    condition: part(parameters.conditions.into()) as u8,
                    source: part(parameters.sources.into()) as u8,
                    sku: part(parameters.skus.into()) as u32,
                    price: rng.random_range(parameters.price_min..=parameters.price_max),
                    initial: rng.random_range(0..=parameters.initial_max),
                }
            })
            .collect();
        items.sort_unstable_by_key(Item::key);
        Self::from_sorted(items)
    }

    #[allow(clippy::cast_possible_truncation)] // the number of items is a u32
    fn from_sorted(items: Vec<Item>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let same = index > 0 && {
                let last = &items[index - 1];
                (last.sku, last.condition, last.source) == (item.sku, item.condition, item.source)
            };
            match groups.last_mut() {
                Some(group) if same => group.len += 1,
                _ => groups.push(Group { first: index as u32, len: 1 }),
            }
            group_of.push(groups.len() as u32 - 1);
        }
        Self { items, groups, group_of }
    }

    /// The index of the tuple with this key; `None` if there is none.
    #[must_use]
    pub fn find(&self, key: (u32, u8, u8, u8)) -> Option<usize> {
        self.items.binary_search_by_key(&key, Item::key).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stock_is_distinct_in_range_and_grouped(
            items in 1u32..300, skus in 12u32..200, seed: u64
        ) {
            let parameters = Parameters { items, skus, ..Parameters::default() };
            let stock = Stock::draw(&parameters, seed);
            prop_assert_eq!(stock.items.len(), items as usize);
            prop_assert!(stock.items.windows(2).all(|pair| pair[0].key() < pair[1].key()));
            for (index, item) in stock.items.iter().enumerate() {
                prop_assert!((1..=skus).contains(&item.sku) && (1..=3).contains(&item.warehouse));
                prop_assert!((400..=1500).contains(&item.price) && item.initial <= 10);
                prop_assert_eq!(stock.find(item.key()), Some(index));
                let group = stock.groups[stock.group_of[index] as usize];
                prop_assert!(group.items().contains(&index));
                let head = &stock.items[group.first as usize];
                prop_assert_eq!(
                    (head.sku, head.condition, head.source),
                    (item.sku, item.condition, item.source)
                );
            }
            prop_assert_eq!(stock.groups.iter().map(|group| group.len).sum::<u32>(), items);
            prop_assert_eq!(Stock::draw(&parameters, seed), stock);
        }
    }
}
