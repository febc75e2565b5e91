//! The workload's parameters, with the study's values as defaults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Parameter, Skew};

/// The size of the inventory, and how operations are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Tuples in stock.
    pub items: u32,
    /// Number of skus: each is drawn from 1 to this.
    pub skus: u32,
    /// Warehouses, numbered from 1.
    pub warehouses: u8,
    /// Conditions, numbered from 1.
    pub conditions: u8,
    /// Sources, numbered from 1.
    pub sources: u8,
    /// Lowest price, in cents.
    pub price_min: u32,
    /// Highest price, in cents.
    pub price_max: u32,
    /// Highest initial count of a tuple, in units: counts are drawn from 0 to this.
    pub initial_max: u32,
    /// Highest number of units that an operation moves: drawn from 1 to this.
    pub units_max: u32,
    /// Share of operations that are captures, 0 to 1.
    pub capture_share: f64,
    /// How operations are distributed over tuples.
    pub skew: Skew,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            items: 1000,
            skus: 1000,
            warehouses: 3,
            conditions: 3,
            sources: 3,
            price_min: 400,
            price_max: 1500,
            initial_max: 10,
            units_max: 3,
            capture_share: 0.5,
            skew: Skew::Uniform,
        }
    }
}

/// Parameters that do not describe a possible inventory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParameters {
    /// There are more tuples than possible keys.
    #[error(
        "{items} items do not fit {skus} skus x {warehouses} warehouses x {conditions} conditions x {sources} sources = \
         {keys} keys; use fewer items or more skus"
    )]
    TooManyItems {
        /// Tuples asked for.
        items: u32,
        skus: u32,
        warehouses: u8,
        conditions: u8,
        sources: u8,
        /// Number of possible keys: the product of these four.
        keys: u64,
    },
    /// A value is outside its range.
    #[error("{name} must be {must}")]
    OutOfRange {
        name: &'static str,
        /// The range, as a phrase that follows `must be`.
        must: &'static str,
    },
}

impl Parameters {
    /// Number of keys that a tuple can have: every combination of sku, warehouse, condition and source.
    #[must_use]
    pub fn keys(&self) -> u64 {
        u64::from(self.skus)
            * u64::from(self.warehouses)
            * u64::from(self.conditions)
            * u64::from(self.sources)
    }

    /// Checks that the parameters describe a possible inventory.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), InvalidParameters> {
        let ranges = [
            ((1..=10_000_000).contains(&self.items), "items", "between 1 and 10,000,000"),
            (self.units_max >= 1 && self.units_max <= 1_000_000, "units_max", "between 1 and 1,000,000"),
            (self.initial_max <= 1_000_000_000, "initial_max", "at most 1,000,000,000"),
            (self.price_min <= self.price_max, "price_min", "at most price_max"),
            (self.price_max <= 1_000_000_000, "price_max", "at most 1,000,000,000"),
            (self.skus <= 1_000_000_000, "skus", "at most 1,000,000,000"),
            ((0.0..=1.0).contains(&self.capture_share), "capture_share", "between 0 and 1"),
        ];
        if let Some((_, name, must)) = ranges.into_iter().find(|(fits, ..)| !fits) {
            return Err(InvalidParameters::OutOfRange { name, must });
        }
        let keys = self.keys();
        if u64::from(self.items) > keys {
            return Err(InvalidParameters::TooManyItems {
                items: self.items,
                skus: self.skus,
                warehouses: self.warehouses,
                conditions: self.conditions,
                sources: self.sources,
                keys,
            });
        }
        Ok(())
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        vec![
            Parameter::new(
                "items",
                defaults.items,
                "products in stock: a sku in a warehouse, condition and source; fewer means more contention",
            ),
            Parameter::new(
                "skus",
                defaults.skus,
                "skus are drawn from 1 to this; fewer means captures across more warehouses",
            ),
            Parameter::new("warehouses", defaults.warehouses, "warehouses, numbered from 1"),
            Parameter::new("conditions", defaults.conditions, "conditions, numbered from 1"),
            Parameter::new("sources", defaults.sources, "sources, numbered from 1"),
            Parameter::new("price_min", defaults.price_min, "lowest price"),
            Parameter::new("price_max", defaults.price_max, "highest price"),
            Parameter::new(
                "initial_max",
                defaults.initial_max,
                "initial counts are drawn from 0 to this, in units",
            ),
            Parameter::new("units_max", defaults.units_max, "an operation moves 1 to this many units"),
            Parameter::new(
                "capture_share",
                defaults.capture_share,
                "share of operations that are captures, 0 to 1",
            ),
            Parameter::new("skew", defaults.skew, "uniform, or zipf:THETA (0 < THETA < 1)"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_study_s() {
        let study = Parameters::default();
        assert_eq!(study.check(), Ok(()));
        assert_eq!((study.items, study.skus, study.keys()), (1000, 1000, 27_000));
        assert_eq!(
            (study.price_min, study.price_max, study.initial_max, study.units_max),
            (400, 1500, 10, 3)
        );
    }

    #[test]
    fn every_parameter_is_described() {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(Parameters::default()) else {
            panic!("parameters are an object");
        };
        let mut named: Vec<&str> = Parameters::described().iter().map(|each| each.name).collect();
        named.sort_unstable();
        let mut fields: Vec<&str> = fields.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(named, fields);
    }

    #[test]
    fn what_fits_nowhere_is_refused_by_name() {
        let crowded = Parameters { items: 28, skus: 1, ..Parameters::default() };
        assert!(crowded.check().unwrap_err().to_string().starts_with("28 items do not fit 1 skus"));
        let none = Parameters { items: 0, ..Parameters::default() };
        assert_eq!(none.check().unwrap_err().to_string(), "items must be between 1 and 10,000,000");
        let many = Parameters { items: u32::MAX, skus: 1_000_000_000, ..Parameters::default() };
        assert_eq!(many.check().unwrap_err().to_string(), "items must be between 1 and 10,000,000");
    }
}
