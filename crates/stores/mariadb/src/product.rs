//! Which product a server is: many others speak the protocol of `MySQL`, and most of them also give a version of it.

use std::{collections::BTreeMap, fmt};

/// Which product a server is: the two share one protocol, and differ in their engines and guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// The server of the `MariaDB` project.
    MariaDb,
    /// Oracle's `MySQL`, and servers that are built of it, as Percona's is.
    MySql,
}

impl Product {
    /// The product of a server that reports this version.
    pub(crate) fn of(version: &str) -> Self {
        if version.contains("MariaDB") { Self::MariaDb } else { Self::MySql }
    }

    /// The scheme of addresses of this product, such as `mysql`.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        })
    }
}

/// Variables by which a server is told: its version, who built it, and those that only some others have.
pub(crate) const VARIABLES: [&str; 6] = [
    "version",
    "version_comment",
    "aurora_version",
    "memsql_version",
    "polardb_version",
    "tidb_server_memory_limit",
];

/// Products by such a variable, or by a word in their version or in what they say of their build.
const NAMED: [(&str, &str); 17] = [
    ("aurora", "Amazon Aurora"),
    ("memsql", "SingleStore"),
    ("singlestore", "SingleStore"),
    ("polardb", "PolarDB"),
    ("tidb", "TiDB"),
    ("oceanbase", "OceanBase"),
    ("vitess", "Vitess"),
    ("planetscale", "PlanetScale"),
    ("doris", "Doris"),
    ("starrocks", "StarRocks"),
    ("clickhouse", "ClickHouse"),
    ("databend", "Databend"),
    ("dolt", "Dolt"),
    ("matrixone", "MatrixOne"),
    ("greatsql", "GreatSQL"),
    ("manticore", "Manticore"),
    ("xpand", "MariaDB Xpand"),
];

/// How builds of `MySQL` begin what they say of themselves. Others build `MariaDB` in too many ways to list them, and
/// that has its name in its version.
const BUILDS: [&str; 9] = [
    "MySQL Community Server",
    "MySQL Enterprise",
    "MySQL Server",
    "MySQL Cluster",
    "Source distribution",
    "Percona Server",
    "(Ubuntu)",
    "(Debian)",
    "Homebrew",
];

/// What a server is, by name and version, that has these variables; none if it is the product that it is taken for.
pub(crate) fn other(product: Product, variables: &BTreeMap<String, String>) -> Option<String> {
    let value = |name: &str| variables.get(name).map_or("", String::as_str);
    let (version, comment) = (value("version"), value("version_comment"));
    let told = if comment.is_empty() { version.to_owned() } else { format!("{version}, {comment}") };
    let words = variables.iter().filter(|(name, _)| VARIABLES.contains(&name.as_str()));
    let words = words.flat_map(|(name, value)| [&**name, value]).collect::<Vec<_>>().join(" ").to_lowercase();
    if let Some((_, name)) = NAMED.into_iter().find(|(word, _)| words.contains(word)) {
        return Some(format!("{name} (\"{told}\")"));
    }
    let is_own = match product {
        Product::MariaDb => version.contains("-MariaDB"),
        Product::MySql => {
            version.starts_with(|first: char| first.is_ascii_digit())
                && BUILDS.iter().any(|build| comment.starts_with(build))
        }
    };
    (!is_own).then(|| format!("\"{told}\""))
}

/// Variables by which a server is told that takes writes beside others, whose transactions do not wait for its own. The second is
/// only there where the plugin is active.
pub(crate) const CLUSTER: [&str; 2] = ["wsrep_on", "group_replication_single_primary_mode"];

/// The cluster that a server with these variables is a node of, if it takes writes beside others: it has documentation of its own.
pub(crate) fn cluster(variables: &BTreeMap<String, String>) -> Option<&'static str> {
    match CLUSTER.map(|name| variables.get(name).map(String::as_str)) {
        [Some("ON"), _] => Some("a Galera cluster"),
        [_, Some("OFF")] => Some("MySQL Group Replication with several primaries"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_version_tells_whose_it_is() {
        assert_eq!(Product::of("10.11.19-MariaDB-0+deb12u1"), Product::MariaDb);
        assert_eq!(Product::of("9.7.4"), Product::MySql);
        assert_eq!(Product::of("8.0.36-28-Percona"), Product::MySql);
    }

    #[test]
    fn a_server_that_takes_writes_beside_others_is_told_by_a_variable() {
        let of = |name: &str, value: &str| cluster(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        let mode = "group_replication_single_primary_mode";
        assert_eq!(of("wsrep_on", "ON"), Some("a Galera cluster"));
        assert_eq!(of(mode, "OFF"), Some("MySQL Group Replication with several primaries"));
        for (name, value) in [("wsrep_on", "OFF"), (mode, "ON"), ("version", "OFF")] {
            assert_eq!(of(name, value), None, "{name}={value}");
        }
    }

    fn told(version: &str, comment: &str, more: &[(&str, &str)]) -> Option<String> {
        let own = [("version", version), ("version_comment", comment), ("innodb_doublewrite", "ON")];
        let all = own.iter().chain(more).map(|&(name, value)| (name.to_owned(), value.to_owned()));
        other(Product::of(version), &all.collect())
    }

    #[test]
    fn what_is_built_of_mysql_and_mariadb_is_known() {
        for (version, comment) in [
            ("8.4.6", "MySQL Community Server - GPL"),
            ("8.0.36-commercial", "MySQL Enterprise Server - Commercial"),
            ("8.0.35", "Source distribution"),
            ("8.0.43-0ubuntu0.24.04.1", "(Ubuntu)"),
            ("8.0.36-28", "Percona Server (GPL), Release 28, Revision 47601f19"),
            ("10.11.14-MariaDB-0+deb12u2", "Debian 12"),
            ("11.4.2-MariaDB-ubu2404-log", "mariadb.org binary distribution"),
            ("10.6.15-10-MariaDB-enterprise", "MariaDB Enterprise Server"),
        ] {
            assert_eq!(told(version, comment, &[]), None, "{version} {comment}");
        }
    }

    #[test]
    fn who_only_speaks_its_protocol_is_named() {
        for (version, comment, more, name) in [
            (
                "8.0.11-TiDB-v7.5.0",
                "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible",
                &[][..],
                "TiDB (\"8.0.11-TiDB-v7.5.0, TiDB Server",
            ),
            // its version can be set to any
            ("8.0.36", "TiDB Server (Apache License 2.0) Community Edition", &[], "TiDB ("),
            ("8.0.11-MariaDB", "TiDB Server (Apache License 2.0) Community Edition", &[], "TiDB ("),
            // these two differ from MySQL by a variable alone
            ("8.0.28", "Source distribution", &[("aurora_version", "3.04.0")], "Amazon Aurora ("),
            ("8.0.13", "Source distribution", &[("polardb_version", "8.0.1.1.35")], "PolarDB ("),
            ("5.7.12", "MySQL Server (GPL)", &[("aurora_version", "2.11.2")], "Amazon Aurora ("),
            (
                "5.7.32",
                "SingleStoreDB source distribution (compatible; MySQL Enterprise & MySQL Commercial)",
                &[("memsql_version", "8.1.21")],
                "SingleStore (",
            ),
            ("5.7.25-OceanBase-v4.2.1.0", "OceanBase_CE 4.2.1.0", &[], "OceanBase ("),
            ("8.0.30-Vitess", "Version: 19.0.0", &[], "Vitess ("),
            ("5.7.99", "Doris version doris-2.0.3", &[], "Doris ("),
            ("8.0.33", "StarRocks version 3.1.2", &[], "StarRocks ("),
            ("8.0.30-MatrixOne-v1.1.0", "MatrixOne", &[], "MatrixOne ("),
            ("5.0.45-Xpand-6.1.0", "", &[], "MariaDB Xpand ("),
            // nobody whom this page knows
            ("8.0.36", "Orchard build", &[], "\"8.0.36, Orchard build\""),
            ("8.0.36", "", &[], "\"8.0.36\""),
            ("", "", &[], "\"\""),
        ] {
            let told = told(version, comment, more).unwrap_or_default();
            assert!(told.starts_with(name), "{version}, {comment}: {told}");
        }
    }
}
