//! Version and settings as the server reports them, and the durability level that they amount to.

use std::collections::BTreeMap;

use acidtest_model::{Durability, EffectiveSettings};
use redis::cmd;

use crate::protocol::{Connection, Error, pairs};

const SETTINGS: [&str; 8] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
    "io-threads",
    "databases",
];

pub(crate) async fn read(connection: &mut Connection) -> Result<EffectiveSettings, Error> {
    let info = connection.ask(cmd("INFO").arg("server")).await?.string()?;
    let (settings, forbidden) = config(connection).await?;
    let (durability, because) = match forbidden {
        None => durability(&settings),
        Some(cause) => (
            Durability::None,
            format!("the settings cannot be read, so nothing is promised: CONFIG GET was refused ({cause})"),
        ),
    };
    Ok(EffectiveSettings { version: version(&info), durability, because, settings, tls: None })
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

/// The version, such as `7.0.15`; for a descendant of Redis its name and its own version.
fn version(info: &str) -> String {
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => version.to_owned(),
        (None, None) => "unknown: INFO names none".to_owned(),
    }
}

fn durability(settings: &BTreeMap<String, String>) -> (Durability, String) {
    let of = |name: &str| settings.get(name).map_or("", String::as_str);
    let (durability, because) = match (of("appendonly"), of("appendfsync")) {
        ("yes", "always") if of("no-appendfsync-on-rewrite") == "yes" => (
            Durability::Process,
            "appendfsync is always, but no-appendfsync-on-rewrite leaves syncs out during a rewrite",
        ),
        ("yes", "always") => (Durability::Disk, "the append-only file is synced before the reply"),
        ("yes", "no") => {
            (Durability::Process, "the append-only file is written, not synced, before the reply")
        }
        ("yes", _) => (
            Durability::None,
            "appendfsync everysec postpones the write by up to 2 s while a sync is under way, and yet replies",
        ),
        _ => (Durability::None, "there is no append-only file, at best snapshots"),
    };
    let mut because = because.to_owned();
    if !matches!(of("maxmemory"), "" | "0") && of("maxmemory-policy") != "noeviction" {
        because.push_str("; maxmemory-policy lets the server evict what it has acknowledged");
    }
    (durability, because)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durability_of(settings: &[(&str, &str)]) -> (Durability, String) {
        durability(&settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn a_durability_is_never_better_than_the_settings() {
        let append = |fsync| durability_of(&[("appendonly", "yes"), ("appendfsync", fsync)]).0;
        assert_eq!(append("always"), Durability::Disk);
        assert_eq!(append("no"), Durability::Process);
        assert_eq!(append("everysec"), Durability::None);
        assert_eq!(durability_of(&[("appendonly", "no"), ("appendfsync", "always")]).0, Durability::None);
        assert_eq!(durability_of(&[]).0, Durability::None);
        let rewrite =
            [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "yes")];
        assert_eq!(durability_of(&rewrite).0, Durability::Process);
    }

    #[test]
    fn eviction_is_told() {
        let (_, because) = durability_of(&[("maxmemory", "1000000"), ("maxmemory-policy", "allkeys-lru")]);
        assert!(because.contains("evict"), "{because}");
        let (_, because) = durability_of(&[("maxmemory", "0"), ("maxmemory-policy", "allkeys-lru")]);
        assert!(!because.contains("evict"), "{because}");
    }

    #[test]
    fn a_descendant_is_named() {
        assert_eq!(version("# Server\r\nredis_version:7.0.15\r\n"), "7.0.15");
        assert_eq!(version("redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n"), "Valkey 8.1.0");
    }
}
