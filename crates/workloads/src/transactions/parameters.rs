//! The workload's parameters.

use acidtest_model::{IdleOption, Isolation};
use serde::{Deserialize, Serialize};

use crate::{
    Parameter, Skew, mix,
    records::Level,
    workload::{NOTHING_WRITTEN, idle, in_range},
};

/// What transactions are about, and at which isolation level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// The shares of what operations are about.
    pub mix: Mix,
    /// How many lists, registers and accounts there are at a time.
    pub keys: u32,
    /// How operations are spread over the keys.
    pub skew: Skew,
    /// Most operations in one transaction: their number is drawn from 1 to this.
    pub operations: u32,
    /// The share of operations that write.
    pub write_share: f64,
    /// Isolation level of every transaction.
    pub isolation: Level,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            mix: Mix::named("all").unwrap_or_default(),
            keys: 10,
            skew: Skew::Uniform,
            operations: 4,
            write_share: 0.5,
            isolation: Level(None),
        }
    }
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Number of lists, all empty: keys 0 to this. No more than [`Parameters::keys`] of them are in use at a time.
    pub lists: u32,
    /// Number of registers, which hold nothing: keys 0 to this.
    pub registers: u32,
    /// Number of accounts: keys 0 to this.
    pub accounts: u32,
    /// Balance of each account.
    pub balance: i64,
}

impl Layout {
    /// How many rows that is.
    #[must_use]
    pub fn rows(&self) -> u64 {
        [self.lists, self.registers, self.accounts].into_iter().map(u64::from).sum()
    }

    /// The sum over all accounts, which no transfer changes.
    #[must_use]
    pub fn total(&self) -> i64 {
        i64::from(self.accounts) * self.balance
    }
}

/// Most values that a list takes: then another list takes its place.
pub(super) const LONGEST: usize = 64;

/// So many lists take the place of each one, after one another; then no more is appended. Together they hold a million values.
const GENERATIONS: u64 = (1 << 20) / LONGEST as u64;

/// The fewest lists that are to follow a list.
const FEWEST: u32 = 256;

const BALANCE: i64 = 100;

/// What operations are about, and the shares of each.
pub type Mix = mix::Mix<Kind>;

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a list, or reads it and appends to it.
    Lists,
    /// Reads a register, or reads it and overwrites it.
    Registers,
    /// Adds up all accounts, or moves money from one to another.
    Bank,
}

impl mix::Kind for Kind {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Lists, "lists"), (Self::Registers, "registers"), (Self::Bank, "bank")];
    const NAMED: &'static [(&'static str, [u32; 3])] =
        &[("all", [50, 30, 20]), ("lists", [1, 0, 0]), ("registers", [0, 1, 0]), ("bank", [0, 0, 1])];
    const EXAMPLE: &'static str = "lists:80+bank:20";
}

impl Parameters {
    /// What is loaded.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let of = |kind, count| if self.mix.does(kind) { count } else { 0 };
        let follow = u32::try_from(GENERATIONS / u64::from(self.keys.max(1))).unwrap_or(FEWEST).max(FEWEST);
        Layout {
            lists: of(Kind::Lists, self.keys.saturating_mul(follow)),
            registers: of(Kind::Registers, self.keys),
            accounts: of(Kind::Bank, self.keys),
            balance: BALANCE,
        }
    }

    /// Checks that the parameters describe a possible workload.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), String> {
        in_range(&[
            ((2..=1_000).contains(&self.keys), "keys", "between 2 and 1,000"),
            ((1..=64).contains(&self.operations), "operations", "between 1 and 64"),
            ((0.0..=1.0).contains(&self.write_share), "write_share", "between 0 and 1"),
        ])
    }

    /// The parameters that have no effect, given the values of the others.
    pub(super) fn idle(&self) -> Vec<IdleOption> {
        idle(&[("max_retries", self.write_share > 0.0, NOTHING_WRITTEN)])
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        let levels: Vec<_> = ["default"].into_iter().chain(Isolation::ALL.map(Isolation::name)).collect();
        vec![
            Parameter::new(
                "mix",
                String::from(defaults.mix),
                "what operations are about: all, lists, registers, bank; or shares such as lists:80+bank:20",
            ),
            Parameter::new("keys", defaults.keys, "number of lists, of registers and of accounts in use at a time"),
            Parameter::new(
                "skew",
                defaults.skew,
                "how operations are spread over the keys: uniform, or zipf:THETA",
            ),
            Parameter::new("operations", defaults.operations, "a transaction has 1 to this many operations"),
            Parameter::new("write_share", defaults.write_share, "share of the operations that write, 0 to 1"),
            Parameter::new(
                "isolation",
                String::from(defaults.isolation),
                "isolation level: default (the store's own), read-uncommitted, read-committed, repeatable-read, \
                 serializable",
            )
            .of(levels),
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
    fn only_what_the_mix_is_about_is_loaded() {
        let loaded = |mix: &str| {
            let layout = Parameters { mix: mix.parse().unwrap(), ..Parameters::default() }.layout();
            [layout.lists > 0, layout.registers > 0, layout.accounts > 0]
        };
        assert_eq!(loaded("all"), [true; 3]);
        assert_eq!(loaded("bank"), [false, false, true]);
        assert_eq!(loaded("lists:1+registers:1"), [true, true, false]);
        assert_eq!(Parameters::default().layout().total(), 1_000);
    }
}
