//! What the stores' own documentation promises of their isolation levels, as a table. Scripts of interleavings (`acidtest anomalies`) and
//! transactions at random (`acidtest run transactions`) are held to the same.

use serde::Deserialize;

const TABLE: &str = include_str!("../data/promises.csv");

/// The anomalies in the table that only transactions at random look for; scripts look for all others. Those that end in `-write` are
/// of transactions that had written the row themselves before they read it: `InnoDB` then shows its newest version, beside rows of the
/// snapshot.
pub const AT_RANDOM: [&str; 5] =
    ["G-nonadjacent", "OTV-write", "non-repeatable-read-write", "wrong-total", "wrong-total-write"];

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Row {
    /// The product that the documentation is of, such as `postgres`.
    pub product: String,
    /// The mode of its transactions: a level, or a level with what else is set.
    pub mode: String,
    /// What a session must read back for this row, if modes of the same level differ by that; empty if they do not.
    pub told: String,
    /// The anomalies that the mode prevents, with a space between them, or `*` for all.
    pub prevents: String,
    /// The sentence, shortened.
    pub said: String,
    /// Where it stands, with the version that it is of.
    pub source: String,
}

impl Row {
    /// Whether the mode is promised to prevent the anomaly.
    #[must_use]
    pub fn prevents(&self, anomaly: &str) -> bool {
        self.prevents == "*" || self.prevents.split(' ').any(|each| each == anomaly)
    }
}

/// All rows. The tests read each of them.
pub fn all() -> impl Iterator<Item = Row> {
    csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize().filter_map(Result::ok)
}

/// The level of a mode, which may have more behind it that is set: `repeatable read` of `repeatable read, snapshot isolation`.
#[must_use]
pub fn level(mode: &str) -> &str {
    mode.split_once(", ").map_or(mode, |(level, _)| level)
}

/// What the documentation of a product promises of one of its modes. `told` is what its sessions read back.
#[must_use]
pub fn find(product: &str, mode: &str, told: &str) -> Option<Row> {
    let level = level(mode);
    // of a level, the row that names what is read back stands before the one that does not
    all().find(|row| {
        let is_mode = row.mode == mode || row.mode == level;
        row.product == product && is_mode && told.contains(&row.told)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_row() {
        assert_eq!(all().count(), TABLE.lines().count() - 1);
        assert!(
            all().all(|row| { !row.prevents.is_empty() && !row.said.is_empty() && !row.source.is_empty() })
        );
    }
}
