//! Shares of operations, as mixes of several workloads have them.

use std::fmt::{self, Display};

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
