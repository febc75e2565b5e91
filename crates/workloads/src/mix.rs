//! Shares of operations, as mixes of several workloads have them.

use std::{
    fmt::{self, Display},
    marker::PhantomData,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// What the operations of a workload are, of which a mix has shares.
pub trait Kind: Copy + PartialEq + 'static {
    /// All of them, with their names.
    const ALL: [(Self, &'static str); 3];
    /// Mixes that have a name, with their parts, which need not sum to anything particular.
    const NAMED: &'static [(&'static str, [u32; 3])];
    /// Shares as somebody may write them.
    const EXAMPLE: &'static str;
}

/// The shares of the operations in a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "K: Kind")]
pub struct Mix<K> {
    name: String,
    /// In the order of [`Kind::ALL`]; they sum to 1.
    pub(crate) shares: [f64; 3],
    kind: PhantomData<K>,
}

impl<K> Default for Mix<K> {
    /// A mix without a share of anything.
    fn default() -> Self {
        Self { name: String::new(), shares: [0.0; 3], kind: PhantomData }
    }
}

impl<K: Kind> Mix<K> {
    pub(crate) fn named(word: &str) -> Option<Self> {
        let (name, parts) = K::NAMED.iter().find(|(name, _)| *name == word)?;
        let all = f64::from(parts.iter().sum::<u32>());
        let shares = parts.map(|part| f64::from(part) / all);
        Some(Self { name: (*name).to_owned(), shares, kind: PhantomData })
    }

    /// The share of operations that are of this kind, 0 to 1.
    #[must_use]
    pub fn share(&self, kind: K) -> f64 {
        let shares = K::ALL.into_iter().zip(self.shares);
        shares.filter(|((each, _), _)| *each == kind).map(|(_, share)| share).sum()
    }

    /// Whether the kind has any share.
    #[must_use]
    pub fn does(&self, kind: K) -> bool {
        self.share(kind) > 0.0
    }

    /// The kind that belongs to `draw`, a random number between 0 and 1.
    pub(crate) fn kind(&self, draw: f64) -> K {
        K::ALL[drawn(&self.shares, draw)].0
    }
}

impl<K: Kind> FromStr for Mix<K> {
    type Err = String;

    /// Parses a mix's name, or shares such as [`Kind::EXAMPLE`], which need not sum to anything particular.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(mix) = Self::named(text) {
            return Ok(mix);
        }
        let known: Vec<&str> = K::NAMED.iter().map(|(name, _)| *name).collect();
        let shares = shares(text, K::ALL.map(|(_, name)| name), &known, K::EXAMPLE)?;
        Ok(Self { name: text.to_owned(), shares, kind: PhantomData })
    }
}

impl<K: Kind> TryFrom<String> for Mix<K> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl<K> From<Mix<K>> for String {
    fn from(mix: Mix<K>) -> Self {
        mix.name
    }
}

impl<K: Kind> Display for Mix<K> {
    /// For example `mix 350+5000 (7 % insert, 47 % hash, 47 % id)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown { name: &self.name, shares: &self.shares, names: K::ALL.map(|(_, name)| name) }.fmt(f)
    }
}

/// Parses shares such as `read:95+update:5`, which need not sum to anything particular, into shares that sum to 1, in the
/// order of the operations' names. `known` are the names of mixes that were meant, perhaps.
pub(crate) fn shares<const N: usize>(
    text: &str,
    names: [&str; N],
    known: &[&str],
    example: &str,
) -> Result<[f64; N], String> {
    let unknown = || {
        format!(
            "unknown mix \"{text}\"{} (known are {}, or shares such as {example}, of {})",
            acidtest_model::hint(text, known.iter().copied()),
            known.join(", "),
            names.join(", ")
        )
    };
    let mut shares = [0.0; N];
    for part in text.split('+') {
        let (word, share) = part.split_once(':').ok_or_else(unknown)?;
        let place = names.iter().position(|name| *name == word).ok_or_else(unknown)?;
        let share: f64 =
            share.parse().ok().filter(|share| (0.0..=1e9).contains(share)).ok_or_else(unknown)?;
        shares[place] += share;
    }
    let all: f64 = shares.iter().sum();
    if all <= 0.0 {
        return Err(format!("the mix \"{text}\" does nothing: give at least one share above 0"));
    }
    Ok(shares.map(|share| share / all))
}

/// The place of the operation that belongs to `draw`, a random number between 0 and 1. Whatever rounding leaves over, one
/// without a share is never drawn.
pub(crate) fn drawn<const N: usize>(shares: &[f64; N], draw: f64) -> usize {
    let mut left = draw;
    let mut last = 0;
    for (place, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        last = place;
        left -= share;
        if left < 0.0 {
            break;
        }
    }
    last
}

/// A mix with its shares in words, for example `mix a (50 % read, 50 % update)`.
pub(crate) struct Shown<'a, const N: usize> {
    pub(crate) name: &'a str,
    pub(crate) shares: &'a [f64; N],
    pub(crate) names: [&'a str; N],
}

impl<const N: usize> Display for Shown<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.names.iter().zip(self.shares).filter(|(_, share)| **share > 0.0);
        let all: Vec<String> = all.map(|(name, share)| format!("{:.0} % {name}", share * 100.0)).collect();
        write!(f, "mix {} ({})", self.name, all.join(", "))
    }
}
