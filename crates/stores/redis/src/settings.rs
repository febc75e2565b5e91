//! Version and settings as the server reports them, and the durability level that they amount to.

use std::collections::BTreeMap;

use acidtest_model::{EffectiveDurability, EffectiveSettings};
use acidtest_workloads::Evictions;
use redis::cmd;

use crate::{
    product::Product,
    protocol::{Connection, Error, pairs},
};

const SETTINGS: [&str; 9] = [
    "appendonly",
    "appendfsync",
    "aof-load-truncated",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
    "io-threads",
    "databases",
];

/// What the server says of itself, in all sections: not every product names itself in the first one.
pub(crate) async fn info(connection: &mut Connection) -> Result<String, Error> {
    connection.ask(&cmd("INFO")).await?.string()
}

/// Whether the server is a node of a Redis Cluster, if only of one node.
pub(crate) fn is_clustered(info: &str) -> bool {
    field(info, "cluster_enabled") == Some("1")
}

/// `HOST:PORT` of the server whose replica it is.
pub(crate) fn primary(info: &str) -> Option<String> {
    Some(format!("{}:{}", field(info, "master_host")?, field(info, "master_port")?))
}

pub(crate) async fn read(connection: &mut Connection, info: &str) -> Result<EffectiveSettings, Error> {
    let (settings, forbidden) = config(connection).await?;
    let (durability, because) = match forbidden {
        None => durability(&settings),
        Some(cause) => (
            EffectiveDurability::Unknown,
            format!("the settings cannot be read, so nothing is promised: CONFIG GET was refused ({cause})"),
        ),
    };
    let read = EffectiveSettings { version: String::new(), durability, because, settings, tls: None };
    Ok(match Product::of(info) {
        Product::Redis(version) => EffectiveSettings { version, ..read },
        Product::Other(server) => read.of_another(&server, "Redis"),
    })
}

/// The name that the server was given when it started, and that of the data set which it serves: a new one once it takes over
/// another server's data, or becomes a primary.
pub(crate) async fn life(connection: &mut Connection) -> Result<Option<String>, Error> {
    let info = info(connection).await?;
    let names = ["run_id", "master_replid"].map(|name| field(&info, name).unwrap_or_default());
    Ok((!names[0].is_empty()).then(|| names.join(" ").trim_end().to_owned()))
}

/// What the server has evicted, as INFO says; none if it does not say.
pub(crate) fn evictions(info: &str) -> Option<Evictions> {
    let keys = field(info, "evicted_keys")?.parse().ok()?;
    let [life, limit, policy] =
        ["run_id", "maxmemory", "maxmemory_policy"].map(|name| field(info, name).unwrap_or_default());
    let by = evicts_any(limit, policy).then(|| {
        format!("maxmemory-policy {policy}, maxmemory {limit}; remedy: the policy noeviction, or more memory")
    });
    Some(Evictions { life: life.to_owned(), keys, by })
}

/// Whether a server with this `maxmemory` and `maxmemory-policy` may evict keys that do not expire. All of acidtest's are such keys
/// but those of its locks: a lock that is gone early is noticed by its token, as one whose lease has ended.
fn evicts_any(limit: &str, policy: &str) -> bool {
    let spares_them = matches!(policy, "" | "noeviction") || policy.starts_with("volatile-");
    !matches!(limit, "" | "0") && !spares_them
}

/// A field of what INFO says.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The settings, and the reason if they could not be read: managed servers forbid CONFIG.
async fn config(connection: &mut Connection) -> Result<(BTreeMap<String, String>, Option<String>), Error> {
    let mut asked = connection.batch()?;
    for name in SETTINGS {
        asked.push(cmd("CONFIG").arg("GET").arg(name))?;
    }
    let mut settings = BTreeMap::new();
    let mut forbidden = None;
    for answer in asked.answers().await {
        match answer {
            Err(Error::Answered(error)) => forbidden = Some(error.to_string()),
            answer => {
                for [name, value] in pairs(answer?)? {
                    settings.insert(name.string()?, value.string()?);
                }
            }
        }
    }
    Ok((settings, forbidden))
}

/// The durability level that the settings amount to, and the reason in words.
fn durability(settings: &BTreeMap<String, String>) -> (EffectiveDurability, String) {
    let of = |name: &str| settings.get(name).map_or("", String::as_str);
    let (durability, because) = match (of("appendonly"), of("appendfsync")) {
        ("yes", "always") if of("no-appendfsync-on-rewrite") != "no" => (
            EffectiveDurability::Process,
            "appendfsync is always, but no-appendfsync-on-rewrite leaves syncs out during a rewrite",
        ),
        ("yes", "always") => (EffectiveDurability::Disk, "the append-only file is synced before the reply"),
        ("yes", "no") => {
            (EffectiveDurability::Process, "the append-only file is written, not synced, before the reply")
        }
        ("yes", "everysec") => (
            EffectiveDurability::None,
            "appendfsync everysec postpones the write by up to 2 s while a sync is under way, and yet replies",
        ),
        ("no", _) => (EffectiveDurability::None, "there is no append-only file, at best snapshots"),
        _ => (
            EffectiveDurability::Unknown,
            "the server does not say whether it has an append-only file, or when it is synced",
        ),
    };
    let mut because = because.to_owned();
    if durability >= EffectiveDurability::Process && of("aof-load-truncated") == "no" {
        because.push_str(
            "; with aof-load-truncated=no the server does not start again after a crash that cut its last entry in \
             two, until redis-check-aof has mended the file",
        );
    }
    if evicts_any(of("maxmemory"), of("maxmemory-policy")) {
        because.push_str(
            "; maxmemory-policy lets the server evict what it has acknowledged, and a trial in which it does so proves nothing \
             against it",
        );
    }
    (durability, because)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durability_of(settings: &[(&str, &str)]) -> (EffectiveDurability, String) {
        durability(&settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn a_durability_is_never_better_than_the_settings() {
        for (only, fsync, rewrite, expected) in [
            ("yes", "always", "no", EffectiveDurability::Disk),
            // nothing is synced while a rewrite runs
            ("yes", "always", "yes", EffectiveDurability::Process),
            ("yes", "always", "", EffectiveDurability::Process),
            ("yes", "no", "no", EffectiveDurability::Process),
            ("yes", "no", "yes", EffectiveDurability::Process),
            ("yes", "everysec", "no", EffectiveDurability::None),
            ("yes", "everysec", "yes", EffectiveDurability::None),
            ("no", "always", "no", EffectiveDurability::None),
            ("no", "", "", EffectiveDurability::None),
            ("yes", "", "no", EffectiveDurability::Unknown),
            ("", "always", "no", EffectiveDurability::Unknown),
        ] {
            let settings =
                [("appendonly", only), ("appendfsync", fsync), ("no-appendfsync-on-rewrite", rewrite)];
            assert_eq!(durability_of(&settings).0, expected, "{settings:?}");
        }
        assert_eq!(durability_of(&[]).0, EffectiveDurability::Unknown);
    }

    #[test]
    fn a_file_that_a_crash_makes_unreadable_is_told() {
        let of = |truncated| {
            let always =
                [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
            durability_of(&[&always[..], &[("aof-load-truncated", truncated)]].concat())
        };
        assert!(of("no").1.contains("redis-check-aof") && !of("yes").1.contains("redis-check-aof"));
        assert_eq!((of("no").0, of("yes").0), (EffectiveDurability::Disk, EffectiveDurability::Disk));
    }

    /// Only a policy that may take keys which do not expire matters, and only with a limit.
    #[test]
    fn eviction_is_told() {
        for (limit, policy, is_told) in [
            ("1000000", "allkeys-lru", true),
            ("1000000", "allkeys-random", true),
            // as Dragonfly calls its own
            ("1000000", "eviction", true),
            ("0", "allkeys-lru", false),
            ("1000000", "volatile-lru", false),
            ("1000000", "noeviction", false),
        ] {
            let (_, because) = durability_of(&[("maxmemory", limit), ("maxmemory-policy", policy)]);
            assert_eq!(because.contains("evict"), is_told, "{because}");
            let info = format!(
                "run_id:abc\r\nmaxmemory:{limit}\r\nmaxmemory_human:x\r\nmaxmemory_policy:{policy}\r\nevicted_keys:7\r\n"
            );
            let Evictions { life, keys, by } = evictions(&info).unwrap();
            assert_eq!((life.as_str(), keys), ("abc", 7));
            assert_eq!(
                by.is_some_and(|by| by.contains(policy) && by.contains("noeviction")),
                is_told,
                "{policy}"
            );
        }
        assert_eq!(evictions("run_id:abc\r\n"), None, "it does not count them");
    }
}
