//! What others have published of the anomalies that levels allow, and what the stores' own documentation promises.

use std::collections::BTreeMap;

use acidtest_model::Isolation;
use acidtest_workloads::promises;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Martin Kleppmann's table (<https://github.com/ept/hermitage>, as of 14 October 2024) of the products that acidtest has. What that
/// prevents only in transactions that read (`R/O`) is told apart by the write forms, which stand in the pages of the products.
const HERMITAGE: &str = include_str!("../data/hermitage.csv");

/// The SQL standard's three phenomena, as in the published study of YCSB's workloads.
const STANDARD: &str = include_str!("../data/standard.csv");

/// A published word on an anomaly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// Who says so, and of which version.
    pub source: String,
    /// What is said.
    pub says: Says,
}

/// What is said of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// The level prevents it.
    Prevented,
    /// It was seen to occur.
    Occurs,
    /// It may occur, and need not.
    Possible,
}

impl Says {
    /// It in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Prevented => "prevented",
            Self::Occurs => "occurs",
            Self::Possible => "possible",
        }
    }
}

/// A promise of a store's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Promise {
    /// What it says, in short.
    pub said: String,
    /// Where it stands.
    pub source: String,
}

/// What is published of an anomaly at a level of a product. MariaDB stands where `MySQL` does: it began as its copy.
pub(crate) fn published(product: &str, level: Option<Isolation>, anomaly: &str) -> Vec<Published> {
    let Some(level) = level.map(Isolation::words) else { return Vec::new() };
    let mut found = Vec::new();
    let of = if product == "mariadb" { "mysql" } else { product };
    for row in rows(HERMITAGE) {
        if row.get("product") != Some(of) || row.get("level") != Some(level.as_str()) {
            continue;
        }
        let says = match row.get(anomaly) {
            Some("prevented") => Says::Prevented,
            Some("occurs") => Says::Occurs,
            _ => continue,
        };
        let version = row.get("version").unwrap_or_default();
        let title = if of == "mysql" { "MySQL" } else { "PostgreSQL" };
        found.push(Published { source: format!("Hermitage, {title} {version}"), says });
    }
    for row in rows(STANDARD) {
        let says = match row.get(anomaly) {
            Some("prevented") => Says::Prevented,
            Some("possible") => Says::Possible,
            _ => continue,
        };
        if row.get("level") == Some(level.as_str()) {
            found.push(Published { source: "SQL standard".to_owned(), says });
        }
    }
    found
}

/// What the documentation of a product promises of an anomaly in one of its modes: that it does not occur. `told` is what its sessions
/// read back, by which modes of the same level differ.
pub(crate) fn promise(product: &str, mode: &str, told: &str, anomaly: &str) -> Option<Promise> {
    let row = promises::find(product, mode, told)?;
    row.prevents(anomaly).then_some(Promise { said: row.said, source: row.source })
}

/// A row of a table: the values that stand below headings, but for empty ones.
struct Row(BTreeMap<String, String>);

impl Row {
    fn get(&self, heading: &str) -> Option<&str> {
        self.0.get(heading).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// The rows of a table. The tests read each of them.
fn rows(table: &str) -> impl Iterator<Item = Row> {
    let reader = csv::Reader::from_reader(table.as_bytes());
    reader.into_deserialize().filter_map(|row| Some(Row(row.ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(product: &str, level: Isolation, anomaly: &str) -> Vec<Says> {
        published(product, Some(level), anomaly).into_iter().map(|published| published.says).collect()
    }

    #[test]
    fn the_published_tables_are_found() {
        use Isolation::{ReadCommitted, RepeatableRead, Serializable};
        use Says::{Occurs, Possible, Prevented};
        assert_eq!(says("postgres", RepeatableRead, "G2-item"), [Occurs]);
        assert_eq!(says("postgres", Serializable, "G2"), [Prevented]);
        assert_eq!(says("mysql", RepeatableRead, "PMP"), [Prevented]);
        assert_eq!(says("mysql", RepeatableRead, "PMP-write"), [Occurs]);
        assert_eq!(says("mariadb", ReadCommitted, "OTV"), [Prevented]);
        assert_eq!(says("postgres", ReadCommitted, "PMP-write"), [Occurs]);
        assert_eq!(says("postgres", ReadCommitted, "G-single-write"), []);
        assert_eq!(says("sqlite", RepeatableRead, "phantom"), [Possible]);
        assert_eq!(published("mysql", None, "G0"), []);
    }

    #[test]
    fn every_promise_is_of_an_anomaly_that_is_tested() {
        let tested: Vec<String> = crate::built_in().into_iter().map(|script| script.name).collect();
        let lines = |table: &str| table.lines().count() - 1;
        for table in [HERMITAGE, STANDARD] {
            assert_eq!(rows(table).count(), lines(table), "a row that cannot be read");
        }
        let mut promised = 0;
        let at_random = promises::AT_RANDOM.map(str::to_owned);
        for row in promises::all() {
            for anomaly in row.prevents.split(' ').filter(|anomaly| *anomaly != "*") {
                assert!(tested.iter().chain(&at_random).any(|name| name == anomaly), "{anomaly}");
                promised += 1;
            }
        }
        assert!(promised > 50);
        assert!(promise("postgres", "repeatable read", "repeatable read", "P4").is_some());
        assert!(promise("mysql", "repeatable read", "REPEATABLE-READ", "P4").is_none());
    }

    /// `MariaDB` has two modes of a level, and which one bears its plain name depends on the server's settings.
    #[test]
    fn modes_of_one_level_are_promised_what_they_read_back() {
        let at = |mode, setting| {
            let told = format!("REPEATABLE-READ, innodb_snapshot_isolation={setting}");
            promise("mariadb", mode, &told, "P4").map(|promise| promise.source)
        };
        let source = Some("MariaDB Server documentation as of 10.11, innodb_snapshot_isolation".to_owned());
        assert_eq!(at("repeatable read, snapshot isolation", "ON"), source);
        assert_eq!(at("repeatable read", "ON"), source);
        assert_eq!(at("repeatable read", "OFF"), None);
        assert_eq!(at("repeatable read, no snapshot isolation", "OFF"), None);
        assert!(promise("mariadb", "serializable, snapshot isolation", "", "G2").is_some());
        assert!(promise("sqlite", "read uncommitted, shared cache", "", "P4").is_none());
    }
}
