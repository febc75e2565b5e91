//! The workload's parameters.

use acidtest_model::IdleOption;
use serde::{Deserialize, Serialize};

use super::stream::{LoadMethod, Loading, Stream};
use crate::{
    Parameter, mix,
    workload::{NOTHING_WRITTEN, idle, in_range},
};

/// The parcels and their scans, and the operations on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// The shares of the operations.
    pub mix: Mix,
    /// Parcels that are on their way at a time.
    pub parcels: u64,
    /// Scans that are there when a trial begins.
    pub scans: u64,
    /// How these are put into the store.
    pub load: LoadMethod,
    /// The index by which a parcel's scans are found.
    pub index: Index,
    /// Scans that are inserted at once.
    pub insert_batch: u32,
    /// Share of inserts that are a parcel's eighth scan, which is to be refused.
    pub eighths: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            mix: Mix::named("9450+8000").unwrap_or_default(),
            parcels: 10_000,
            scans: 70_000,
            load: LoadMethod::Bulk,
            index: Index::Hash,
            insert_batch: 1,
            eighths: 0.001,
        }
    }
}

/// The index by which a parcel's scans are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Index {
    /// An index on `SCAN_HASH`.
    #[default]
    Hash,
    /// None, as published: every count and every read of a parcel scans the table.
    None,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Inserts scans.
    Insert,
    /// Reads all scans of a `SCAN_HASH`.
    ByHash,
    /// Reads one scan by its `SCAN_ID`.
    ById,
}

/// The shares of the operations in a workload.
pub type Mix = mix::Mix<Action>;

impl mix::Kind for Action {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Insert, "insert"), (Self::ByHash, "hash"), (Self::ById, "id")];
    /// The published mixes, named after the inserts and the reads of their row in table 3, and one for each operation alone.
    /// The study does not say by what it read there: half of these reads are by `SCAN_HASH`, half by `SCAN_ID`.
    const NAMED: &'static [(&'static str, [u32; 3])] = &[
        ("insert", [1, 0, 0]),
        ("hash", [0, 1, 0]),
        ("id", [0, 0, 1]),
        ("350+5000", [350, 2500, 2500]),
        ("1400+5250", [1400, 2625, 2625]),
        ("2100+5500", [2100, 2750, 2750]),
        ("3150+5750", [3150, 2875, 2875]),
        ("5250+6000", [5250, 3000, 3000]),
        ("6300+6500", [6300, 3250, 3250]),
        ("7350+7000", [7350, 3500, 3500]),
        ("8400+7500", [8400, 3750, 3750]),
        ("9450+8000", [9450, 4000, 4000]),
    ];
    const EXAMPLE: &'static str = "insert:7+hash:3";
}

impl Parameters {
    /// The first scans of a trial with this seed.
    #[must_use]
    pub fn loading(&self, seed: u64) -> Loading {
        Loading { stream: Stream::new(self.parcels, seed), scans: self.scans, method: self.load }
    }

    /// Checks that the parameters describe a possible workload.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let reads_only = !self.mix.does(Action::Insert);
        in_range(&[
            ((1..=10_000_000).contains(&self.parcels), "parcels", "between 1 and 10,000,000"),
            (self.scans <= 1 << 30, "scans", "at most 1,073,741,824"),
            (
                self.scans > 0 || !reads_only,
                "scans",
                "at least 1 if the mix inserts nothing, or there is nothing to read",
            ),
            ((1..=1000).contains(&self.insert_batch), "insert_batch", "between 1 and 1,000"),
            (
                u64::from(self.insert_batch) <= self.parcels,
                "insert_batch",
                "at most as many as parcels: a batch has no two scans of the same parcel",
            ),
            (
                (0.0..=0.125).contains(&self.eighths),
                "eighths",
                "between 0 and 0.125: a parcel has one eighth scan",
            ),
        ])
    }

    /// The parameters that have no effect, given the values of the others.
    pub(super) fn idle(&self) -> Vec<IdleOption> {
        let inserts = self.mix.does(Action::Insert);
        let nothing = "nothing is inserted: the mix only reads";
        idle(&[
            ("max_retries", inserts, NOTHING_WRITTEN),
            ("insert_batch", inserts, nothing),
            ("eighths", inserts, nothing),
            ("load", self.scans > 0, "nothing is loaded: scans is 0"),
        ])
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        vec![
            Parameter::new(
                "mix",
                String::from(defaults.mix),
                "insert, hash (all scans of a parcel), id (one scan); the study's 350+5000, 1400+5250, 2100+5500, \
                 3150+5750, 5250+6000, 6300+6500, 7350+7000, 8400+7500, 9450+8000 (inserts + reads); or shares such \
                 as insert:7+hash:3+id:1",
            ),
            Parameter::new("parcels", defaults.parcels, "parcels on their way at a time, each with 7 scans"),
            Parameter::new("scans", defaults.scans, "scans loaded before each trial"),
            Parameter::new(
                "load",
                "bulk",
                "how they are loaded: bulk (the store's own bulk load) or single (row by row)",
            )
            .of(["bulk", "single"]),
            Parameter::new(
                "index",
                "hash",
                "hash: an index on SCAN_HASH; none, as published: every count scans the table",
            )
            .of(["hash", "none"]),
            Parameter::new("insert_batch", defaults.insert_batch, "scans inserted at once, 1 to 1,000"),
            Parameter::new(
                "eighths",
                defaults.eighths,
                "share of inserts that are a parcel's eighth scan, which must be refused, 0 to 0.125",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::written;

    #[test]
    fn every_parameter_is_described_with_its_default() {
        let values = written(&Parameters::default());
        let described = Parameters::described();
        assert_eq!(values.len(), described.len());
        for parameter in described {
            let value = &values[parameter.name];
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert_eq!(shown, parameter.default, "{}", parameter.name);
        }
        assert_eq!(Parameters::default().check(), Ok(()));
    }

    #[test]
    fn a_mix_is_a_name_or_shares() {
        let shares = |text: &str| text.parse::<Mix>().map(|mix| mix.shares);
        assert_eq!(shares("insert:1+id:3"), Ok([0.25, 0.0, 0.75]));
        assert_eq!(shares("hash"), Ok([0.0, 1.0, 0.0]));
        let published: Mix = "350+5000".parse().unwrap();
        assert!((published.share(Action::Insert) - 350.0 / 5350.0).abs() < 1e-12);
        for (text, said) in
            [("350+500", "did you mean"), ("read", "known are insert"), ("id:0", "does nothing")]
        {
            let error = text.parse::<Mix>().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(published.kind(0.0), Action::Insert);
        assert_eq!(published.kind(0.5), Action::ByHash);
        assert_eq!(published.kind(1.0), Action::ById);
        assert_eq!("hash".parse::<Mix>().unwrap().kind(0.0), Action::ByHash);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let read = || Mix::named("hash").unwrap_or_default();
        for (wrong, said) in [
            (Parameters { parcels: 0, ..Parameters::default() }, "parcels must"),
            (Parameters { scans: 0, mix: read(), ..Parameters::default() }, "nothing to read"),
            (Parameters { insert_batch: 20, parcels: 10, ..Parameters::default() }, "as many as parcels"),
            (Parameters { eighths: 0.6, ..Parameters::default() }, "eighths must"),
        ] {
            let refused = wrong.check().unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
