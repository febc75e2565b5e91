//! The workload's parameters, with YCSB's values as defaults.

use std::{fmt, str::FromStr};

use acidtest_model::{IdleOption, Isolation};
use serde::{Deserialize, Serialize};

use super::{Action, Choice, Layout};
use crate::{
    Parameter, mix,
    workload::{NOTHING_WRITTEN, idle, in_range},
};

/// The records that are loaded, and the operations on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// The shares of the operations.
    pub mix: Mix,
    /// How operations choose their records.
    pub keys: Choice,
    /// Number of records that are loaded.
    pub records: u64,
    /// Fields per record.
    pub fields: u16,
    /// Length of a field in bytes.
    pub field_bytes: u32,
    /// Highest number of records that a scan reads: its length is drawn from 1 to this.
    pub scan_max: u32,
    /// Number of operations in one transaction.
    pub transaction: u32,
    /// Isolation level of every transaction and single statement.
    pub isolation: Level,
    /// When a written document becomes visible to searches.
    pub refresh: Refresh,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            mix: Mix::named("a").unwrap_or_default(),
            keys: Choice::Own,
            records: 10_000,
            fields: 10,
            field_bytes: 100,
            scan_max: 100,
            transaction: 1,
            isolation: Level(None),
            refresh: Refresh::No,
        }
    }
}

/// The isolation level that is asked for; `None` for the store's own default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Level(pub Option<Isolation>);

const DEFAULT_LEVEL: &str = "default";

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == DEFAULT_LEVEL {
            return Ok(Self(None));
        }
        text.parse().map(|level| Self(Some(level))).map_err(|error| format!("{error}; or {DEFAULT_LEVEL}"))
    }
}

impl From<Level> for String {
    fn from(level: Level) -> Self {
        level.0.map_or(DEFAULT_LEVEL, Isolation::name).to_owned()
    }
}

/// When a written document becomes visible to searches, on stores that separate writing from searching
/// (Elasticsearch's `refresh`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refresh {
    /// Whenever the store decides.
    #[default]
    No,
    /// Before the write is answered: the answer waits for it.
    WaitFor,
    /// At once: the write makes the store refresh.
    Yes,
}

/// The shares of the operations in a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mix {
    name: String,
    /// Shares of the actions, in the order of [`ACTIONS`]; they sum to 1.
    shares: [f64; 5],
    /// The distribution of keys, unless another one is asked for.
    keys: OwnKeys,
    /// Whether the mix makes sense only with the hard lock.
    locked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OwnKeys {
    #[default]
    Zipfian,
    Latest,
    Uniform,
}

const ACTIONS: [(Action, &str); 5] = [
    (Action::Read, "read"),
    (Action::Update, "update"),
    (Action::Insert, "insert"),
    (Action::Scan, "scan"),
    (Action::Modify, "rmw"),
];

/// A mix with a name: its shares of read, update, insert, scan and read-modify-write in percent, its distribution
/// of keys, and whether it makes sense only with the hard lock.
type Named = (&'static str, [u8; 5], OwnKeys, bool);

/// YCSB's core workloads (its files `workloads/workloada` to `workloadf`), and the locks study's
/// operations.
const NAMED: [Named; 10] = [
    ("a", [50, 50, 0, 0, 0], OwnKeys::Zipfian, false),
    ("b", [95, 5, 0, 0, 0], OwnKeys::Zipfian, false),
    ("c", [100, 0, 0, 0, 0], OwnKeys::Zipfian, false),
    ("d", [95, 0, 5, 0, 0], OwnKeys::Latest, false),
    ("e", [0, 0, 5, 95, 0], OwnKeys::Zipfian, false),
    ("f", [50, 0, 0, 0, 50], OwnKeys::Zipfian, false),
    ("read", [100, 0, 0, 0, 0], OwnKeys::Uniform, false),
    ("write", [0, 0, 100, 0, 0], OwnKeys::Uniform, false),
    ("modify", [0, 0, 0, 0, 100], OwnKeys::Uniform, false),
    ("modify-locked", [0, 0, 0, 0, 100], OwnKeys::Uniform, true),
];

impl Mix {
    fn named(word: &str) -> Option<Self> {
        let (name, percent, keys, locked) = NAMED.into_iter().find(|(name, ..)| *name == word)?;
        let shares = percent.map(|percent| f64::from(percent) / 100.0);
        Some(Self { name: name.to_owned(), shares, keys, locked })
    }

    /// The share of operations that are of this action, 0 to 1.
    #[must_use]
    pub fn share(&self, action: Action) -> f64 {
        self.shares[action as usize]
    }

    /// The action that belongs to `draw`, a random number between 0 and 1.
    pub(crate) fn action(&self, draw: f64) -> Action {
        ACTIONS[mix::drawn(&self.shares, draw)].0
    }

    /// Whether the action has any share.
    #[must_use]
    pub fn does(&self, action: Action) -> bool {
        self.share(action) > 0.0
    }

    /// Whether the mix makes sense only with the hard lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    pub(crate) fn keys(&self) -> Choice {
        match self.keys {
            OwnKeys::Zipfian => Choice::Zipfian,
            OwnKeys::Latest => Choice::Latest,
            OwnKeys::Uniform => Choice::Uniform,
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    /// Parses a mix's name, or shares such as `read:95+update:5`, which need not sum to anything particular.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(mix) = Self::named(text) {
            return Ok(mix);
        }
        let known = NAMED.map(|(name, ..)| name);
        let shares = mix::shares(text, ACTIONS.map(|(_, name)| name), &known, "read:95+update:5")?;
        Ok(Self { name: text.to_owned(), shares, keys: OwnKeys::Zipfian, locked: false })
    }
}

impl TryFrom<String> for Mix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mix> for String {
    fn from(mix: Mix) -> Self {
        mix.name
    }
}

impl fmt::Display for Mix {
    /// For example `mix a (50 % read, 50 % update)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        mix::Shown { name: &self.name, shares: &self.shares, names: ACTIONS.map(|(_, name)| name) }.fmt(f)
    }
}

impl Parameters {
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout {
            records: self.records,
            fields: self.fields,
            field_bytes: self.field_bytes,
            scans: self.mix.does(Action::Scan),
        }
    }

    /// How operations choose their records: as asked for, or else as belongs to the mix.
    #[must_use]
    pub fn choice(&self) -> Choice {
        if self.keys == Choice::Own { self.mix.keys() } else { self.keys }
    }

    /// Checks that the parameters describe a possible workload.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), String> {
        self.layout().check()?;
        in_range(&[
            ((1..=10_000).contains(&self.scan_max), "scan_max", "between 1 and 10,000"),
            ((1..=10_000).contains(&self.transaction), "transaction", "between 1 and 10,000"),
            (
                self.held() <= 1 << 30,
                "transaction",
                "of at most 1 GiB: a client holds everything that one reads and writes, fields x field_bytes per \
                 operation, and scan_max times as much for a scan",
            ),
        ])
    }

    /// The parameters that have no effect, given the values of the others.
    pub(super) fn idle(&self) -> Vec<IdleOption> {
        let chooses = self.mix.share(Action::Insert) < 1.0;
        let writes =
            [Action::Update, Action::Insert, Action::Modify].iter().any(|action| self.mix.does(*action));
        idle(&[
            ("max_retries", writes, NOTHING_WRITTEN),
            ("refresh", writes, "nothing is written that searches could find"),
            ("keys", chooses, "the mix inserts only: no record is chosen"),
            ("scan_max", self.mix.does(Action::Scan), "the mix has no scans"),
        ])
    }

    /// The most bytes of fields that one transaction can hold.
    fn held(&self) -> u64 {
        let records = if self.mix.does(Action::Scan) { self.scan_max } else { 1 };
        [self.fields.into(), self.field_bytes, records, self.transaction]
            .into_iter()
            .fold(1, |bytes: u64, times| bytes.saturating_mul(times.into()))
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        vec![
            Parameter::new(
                "mix",
                String::from(defaults.mix),
                "YCSB's a, b, c, d, e, f; the locks study's read, write, modify, modify-locked; or shares of read, \
                 update, insert, scan, rmw such as read:95+update:5",
            ),
            Parameter::new(
                "keys",
                String::from(defaults.keys),
                "which records are touched: own (the mix's own), zipfian (scrambled, 0.99), latest, uniform, \
                 hotspot or hotspot:RECORDS:OPERATIONS (shares, 0.2 and 0.8)",
            ),
            Parameter::new("records", defaults.records, "records to load"),
            Parameter::new("fields", defaults.fields, "fields of a record"),
            Parameter::new("field_bytes", defaults.field_bytes, "bytes of a field"),
            Parameter::new("scan_max", defaults.scan_max, "a scan reads 1 to this many records"),
            Parameter::new("transaction", defaults.transaction, "operations in one transaction"),
            Parameter::new(
                "isolation",
                String::from(defaults.isolation),
                "isolation level: default (the store's own), read-uncommitted, read-committed, repeatable-read, \
                 serializable",
            ).of(["default"].into_iter().chain(Isolation::ALL.map(Isolation::name)).collect::<Vec<_>>()),
            Parameter::new(
                "refresh",
                "no",
                "when a written document is visible to searches (Elasticsearch): no, wait-for, yes",
            ).of(["no", "wait-for", "yes"]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::written;

    #[test]
    fn the_defaults_are_ycsb_s() {
        let defaults = Parameters::default();
        assert_eq!(defaults.check(), Ok(()));
        assert_eq!((defaults.fields, defaults.field_bytes, defaults.scan_max), (10, 100, 100));
        assert_eq!(defaults.mix.to_string(), "mix a (50 % read, 50 % update)");
        assert_eq!(defaults.choice(), Choice::Zipfian);
    }

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
    }

    #[test]
    fn what_no_client_could_hold_is_refused() {
        let large = Parameters { fields: 100, field_bytes: 65_536, ..Parameters::default() };
        assert_eq!(large.check(), Ok(()));
        let scans = Parameters { mix: Mix::named("e").unwrap(), ..large.clone() };
        assert_eq!(scans.check(), Ok(()));
        for too_large in [
            Parameters { transaction: 200, ..large },
            Parameters { scan_max: 200, ..scans.clone() },
            Parameters { transaction: 2, ..scans },
        ] {
            let refused = too_large.check().unwrap_err();
            assert!(refused.starts_with("transaction must be of at most 1 GiB: "), "{refused}");
        }
    }

    #[test]
    fn a_mix_is_a_name_or_shares() {
        let shares = |text: &str| text.parse::<Mix>().map(|mix| mix.shares);
        assert_eq!(shares("d"), Ok([0.95, 0.0, 0.05, 0.0, 0.0]));
        assert_eq!(shares("read:3+rmw:1"), Ok([0.75, 0.0, 0.0, 0.0, 0.25]));
        assert!("modify-locked".parse::<Mix>().unwrap().is_locked());
        for (text, said) in
            [("g", "known are a, b"), ("read", ""), ("read:x", "unknown mix"), ("scan:0", "does nothing")]
        {
            match text.parse::<Mix>() {
                Ok(mix) => assert_eq!(String::from(mix), text),
                Err(error) => assert!(error.contains(said) && !said.is_empty(), "{error}"),
            }
        }
    }

    #[test]
    fn draws_fall_where_the_shares_say() {
        let mix: Mix = "read:1+insert:1+rmw:2".parse().unwrap();
        let drawn = [0.0, 0.2499, 0.25, 0.4999, 0.5, 0.999_999].map(|draw| mix.action(draw));
        assert_eq!(
            drawn,
            [Action::Read, Action::Read, Action::Insert, Action::Insert, Action::Modify, Action::Modify]
        );
        // whatever rounding leaves over, an action without a share is never drawn
        assert_eq!("c".parse::<Mix>().unwrap().action(1.0), Action::Read);
    }

    #[test]
    fn an_isolation_level_reads_back_and_an_unknown_one_says_which_exist() {
        for text in ["default", "serializable"] {
            assert_eq!(String::from(Level::try_from(text.to_owned()).unwrap()), text);
        }
        let error = Level::try_from("serialisable".to_owned()).unwrap_err();
        assert!(error.contains("did you mean \"serializable\"?") && error.contains("or default"), "{error}");
    }
}
