//! Which product a server is: many others speak PostgreSQL's protocol, and most of them also give a version of it.

/// Products by a word that their `version()` has in it, and PostgreSQL's own has not.
const NAMED: [(&str, &str); 15] = [
    ("CockroachDB", "CockroachDB"),
    ("-YB-", "YugabyteDB"),
    ("Greenplum", "Greenplum"),
    ("Cloudberry", "Cloudberry"),
    ("Redshift", "Redshift"),
    ("EnterpriseDB", "EDB Postgres Advanced Server"),
    ("openGauss", "openGauss"),
    ("POLARDB", "PolarDB"),
    ("OrioleDB", "OrioleDB"),
    ("CrateDB", "CrateDB"),
    ("QuestDB", "QuestDB"),
    ("Materialize", "Materialize"),
    ("RisingWave", "RisingWave"),
    ("H2 Database", "H2"),
    ("Percona Server", "Percona Server for PostgreSQL"),
];

/// Products whose `version()` is PostgreSQL's own: by settings that they add to it, as SQL's LIKE takes them.
pub(crate) const SETTINGS: [(&str, &str); 5] = [
    ("neon.%", "Neon"),
    ("alloydb.%", "AlloyDB"),
    ("google\\_columnar\\_engine.%", "AlloyDB"),
    ("yb\\_%", "YugabyteDB"),
    ("orioledb.%", "OrioleDB"),
];

/// Such products by functions that they add to it.
pub(crate) const FUNCTIONS: [(&str, &str); 3] =
    [("aurora_version", "Amazon Aurora"), ("pgpro_version", "Postgres Pro"), ("polar_version", "PolarDB")];

/// Whoever builds PostgreSQL as it is, by the words with which they add themselves to its version.
const PACKAGERS: [&str; 6] =
    ["(Debian ", "(Ubuntu ", "(Raspbian ", "(Homebrew)", "(Postgres.app)", "- Percona Distribution"];

/// The longest version in an answer that is shown.
const SHOWN: usize = 120;

/// What a server is, by name, that answers `SELECT version()` like this; none if that is just what PostgreSQL answers:
/// `PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc (…) 12.2.0, 64-bit`.
pub(crate) fn other(version: &str) -> Option<String> {
    match NAMED.into_iter().find(|(word, _)| version.contains(word)) {
        Some((_, name)) => Some(named(name, version)),
        None => (!is_own(version)).then(|| format!("\"{}\"", shown(version))),
    }
}

/// The name and version of a product; the whole answer where its own version is not at the beginning.
pub(crate) fn named(name: &str, version: &str) -> String {
    if version.starts_with(name) {
        version.split(" (").next().unwrap_or(version).to_owned()
    } else {
        format!("{name} (\"{}\")", shown(version))
    }
}

fn shown(version: &str) -> String {
    version.chars().take(SHOWN).collect()
}

fn is_own(version: &str) -> bool {
    let Some((release, built)) =
        version.strip_prefix("PostgreSQL ").and_then(|rest| rest.split_once(", compiled by "))
    else {
        return false;
    };
    // on Windows, the system was not told before 17
    let release = release.split_once(" on ").map_or(release, |(release, _)| release);
    let (number, packager) = release.split_once(' ').unwrap_or((release, ""));
    let is_number = number.starts_with(|first: char| first.is_ascii_digit())
        && ["beta", "rc", "devel", "alpha"]
            .iter()
            .fold(number.to_owned(), |number, stage| number.replacen(stage, "", 1))
            .bytes()
            .all(|letter| letter.is_ascii_digit() || letter == b'.');
    is_number
        && (packager.is_empty() || PACKAGERS.iter().any(|known| packager.starts_with(known)))
        && (built.ends_with(", 64-bit") || built.ends_with(", 32-bit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: &str = "on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit";

    #[test]
    fn postgresql_says_that_it_is_postgresql() {
        for release in [
            "PostgreSQL 15.14 (Debian 15.14-0+deb12u1)",
            "PostgreSQL 14.9 (Ubuntu 14.9-0ubuntu0.22.04.1)",
            "PostgreSQL 16beta1 (Debian 16~beta1-1.pgdg120+1)",
            "PostgreSQL 18devel",
            "PostgreSQL 17.2",
            "PostgreSQL 9.6.24",
            "PostgreSQL 15.4 - Percona Distribution",
        ] {
            assert_eq!(other(&format!("{release} {BUILT}")), None, "{release}");
        }
        for version in [
            "PostgreSQL 14.9 (Homebrew) on aarch64-apple-darwin22.4.0, compiled by Apple clang version 14.0.3, 64-bit",
            "PostgreSQL 15.3, compiled by Visual C++ build 1914, 64-bit",
            "PostgreSQL 17.0 on x86_64-windows, compiled by msvc-19.41.34120, 64-bit",
        ] {
            assert_eq!(other(version), None, "{version}");
        }
    }

    #[test]
    fn who_only_speaks_its_protocol_is_named() {
        for (version, name) in [
            (
                "CockroachDB CCL v23.2.0 (x86_64-pc-linux-gnu, built 2024/01/16 19:30:18, go1.21.5)"
                    .to_owned(),
                "CockroachDB CCL v23.2.0",
            ),
            (format!("PostgreSQL 11.2-YB-2.20.0.0-b0 {BUILT}"), "YugabyteDB ("),
            (
                format!("PostgreSQL 9.4.26 (Greenplum Database 6.25.3 build commit:367edc6) {BUILT}"),
                "Greenplum (",
            ),
            (format!("PostgreSQL 14.4 (Cloudberry Database 1.0.0 build dev) {BUILT}"), "Cloudberry ("),
            (
                "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.12103"
                    .to_owned(),
                "Redshift (",
            ),
            (
                format!("PostgreSQL 17.4 (EnterpriseDB Advanced Server 17.4.0) {BUILT}"),
                "EDB Postgres Advanced Server (",
            ),
            ("(openGauss 3.1.0 build 4e931f9a) compiled at 2022-09-29".to_owned(), "openGauss ("),
            ("PostgreSQL 12.3, compiled by Visual C++ build 1914, 64-bit, QuestDB".to_owned(), "QuestDB ("),
            ("PostgreSQL 13.14.0-RisingWave-1.10.0 (abc)".to_owned(), "RisingWave ("),
            ("CrateDB 5.4.3 (built a1b2c3d/NA, Linux 6.1 amd64)".to_owned(), "CrateDB 5.4.3"),
            // nobody whom this page knows
            ("PostgreSQL 14.1".to_owned(), "\"PostgreSQL 14.1\""),
            (format!("PostgreSQL 16.1 (Orchard 3) {BUILT}"), "\"PostgreSQL 16.1 (Orchard 3)"),
            (format!("PostgreSQL 16.1+orchard {BUILT}"), "\"PostgreSQL 16.1+orchard"),
            (String::new(), "\"\""),
        ] {
            let told = other(&version).unwrap_or_default();
            assert!(told.starts_with(name), "{version}: {told}");
        }
        assert_eq!(other(&"x".repeat(5000)).map(|told| told.len()), Some(SHOWN + 2));
    }
}
