//! Which product a server is: many others speak the protocol of Redis, and most of them also give a version of Redis.

/// A server's product, by what it says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// Redis, or a fork of it that is known to do the same by the same settings: its version, such as `7.0.15` or
    /// `Valkey 8.0.1`.
    Redis(String),
    /// Any other: its name and version, or what shows that it is no Redis.
    Other(String),
}

/// The last major version of Valkey whose append-only file was read to be written and synced as that of Redis is
/// (`flushAppendOnlyFile` in aof.c of 8.0.1).
const VALKEY: u32 = 8;

/// What every Redis tells of itself, and other servers leave out.
const OWN: [&str; 6] =
    ["redis_git_sha1", "redis_build_id", "arch_bits", "multiplexing_api", "process_id", "run_id"];

/// Systems by the names that `uname` gives them. A service shows its own name there.
const SYSTEMS: [&str; 8] =
    ["Linux", "Darwin", "FreeBSD", "NetBSD", "OpenBSD", "DragonFly", "SunOS", "CYGWIN"];

/// Fields of INFO that name a product where its `…_version` does not.
const NAMED: [(&str, &str); 2] = [("mvcc_depth", "KeyDB"), ("rlec_version", "Redis Enterprise")];

impl Product {
    /// The product of a server that answers INFO like this.
    pub(crate) fn of(info: &str) -> Self {
        let fields = || info.lines().filter_map(|line| line.trim_end().split_once(':'));
        let field = |wanted: &str| fields().find_map(|(name, value)| (name == wanted).then_some(value));
        let redis = field("redis_version").unwrap_or("of no version");
        if let Some(version) = field("valkey_version") {
            let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
            let version = format!("Valkey {version}");
            return if major.is_some_and(|major| major <= VALKEY) {
                Self::Redis(version)
            } else {
                Self::Other(version)
            };
        }
        if let Some((name, product)) = NAMED.into_iter().find(|(name, _)| field(name).is_some()) {
            let version = if name.ends_with("_version") { field(name) } else { None };
            return Self::Other(format!("{product} {}", version.unwrap_or(redis)));
        }
        // every other product has a version of its own under its own name
        let server =
            info.split("\n# ").find(|section| section.trim_start_matches("# ").starts_with("Server"));
        let own = server.unwrap_or(info).lines().filter_map(|line| line.trim_end().split_once("_version:"));
        if let Some((product, version)) = own.into_iter().find(|(name, _)| !matches!(*name, "redis" | "gcc"))
        {
            return Self::Other(format!("{product} {version}"));
        }
        if let Some(name) = field("server_name").filter(|name| *name != "redis") {
            return Self::Other(format!("{name} {redis}"));
        }
        if let Some(system) = field("os").filter(|os| !SYSTEMS.iter().any(|system| os.starts_with(system))) {
            return Self::Other(format!("{system} {redis}"));
        }
        match (field("redis_version"), OWN.into_iter().find(|name| field(name).is_none())) {
            (Some(version), None) => Self::Redis(version.to_owned()),
            (_, lacking) => {
                let lacking = lacking.unwrap_or("redis_version");
                Self::Other(format!("a Redis {redis} whose INFO has no {lacking}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The section of INFO by which Redis 7.0 tells of itself, with other lines instead of or after its own.
    fn info(os: &str, more: &str) -> String {
        format!(
            "# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\nredis_git_dirty:0\r\n\
             redis_build_id:ae4d7c971a948f0\r\nredis_mode:standalone\r\nos:{os}\r\narch_bits:64\r\n\
             monotonic_clock:POSIX clock_gettime\r\nmultiplexing_api:epoll\r\natomicvar_api:c11-builtin\r\n\
             gcc_version:12.2.0\r\nprocess_id:1\r\nrun_id:da14c7b2\r\ntcp_port:6379\r\n\
             executable:/usr/bin/redis-server\r\nconfig_file:\r\n{more}\r\n# Clients\r\nconnected_clients:1\r\n"
        )
    }

    #[test]
    fn redis_says_that_it_is_redis() {
        for os in ["Linux 6.18.44 x86_64", "Darwin 21.6.0 arm64", "FreeBSD 14.1 amd64"] {
            assert_eq!(Product::of(&info(os, "")), Product::Redis("7.0.15".to_owned()), "{os}");
        }
        // what modules tell of themselves is in sections of their own
        let module = info("Linux 6", "") + "\r\n# search_version\r\nsearch_version:2.8.4\r\n";
        assert_eq!(Product::of(&module), Product::Redis("7.0.15".to_owned()));
    }

    #[test]
    fn a_fork_is_known_as_far_as_it_was_read() {
        let valkey = |version: &str| {
            Product::of(&info("Linux 6", &format!("server_name:valkey\r\nvalkey_version:{version}")))
        };
        assert_eq!(valkey("7.2.8"), Product::Redis("Valkey 7.2.8".to_owned()));
        assert_eq!(valkey("8.1.0"), Product::Redis("Valkey 8.1.0".to_owned()));
        assert_eq!(valkey("9.0.0"), Product::Other("Valkey 9.0.0".to_owned()));
        assert_eq!(valkey("unstable"), Product::Other("Valkey unstable".to_owned()));
    }

    #[test]
    fn who_only_speaks_its_protocol_is_named() {
        let linux = |more: &str| info("Linux 6.18.44 x86_64", more);
        for (info, named) in [
            // as Dragonfly 1.40 answers: no run_id, and a version of Redis that is not its own
            (
                "# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\nredis_mode:standalone\r\narch_bits:64\r\n\
                 os:Linux 6.8.0 x86_64\r\nthread_count:4\r\nmultiplexing_api:iouring\r\ntcp_port:6379\r\n"
                    .to_owned(),
                "dragonfly df-v1.40.1",
            ),
            // KeyDB names itself far below, in a section of its own
            (
                linux("") + "# CPU\r\nserver_threads:2\r\n# KeyDB\r\nmvcc_depth:0\r\n",
                "KeyDB 7.0.15",
            ),
            (linux("rlec_version:7.4.2-54"), "Redis Enterprise 7.4.2-54"),
            (linux("garnet_version:1.0.44"), "garnet 1.0.44"),
            (linux("kvrocks_version:2.9.0"), "kvrocks 2.9.0"),
            (linux("upstash_version:1.10.5"), "upstash 1.10.5"),
            (linux("redict_version:7.3.0"), "redict 7.3.0"),
            (linux("server_name:other"), "other 7.0.15"),
            (info("Amazon ElastiCache", ""), "Amazon ElastiCache 7.0.15"),
            ("redis_version:6.2.6\r\n".to_owned(), "a Redis 6.2.6 whose INFO has no redis_git_sha1"),
            (String::new(), "a Redis of no version whose INFO has no redis_git_sha1"),
        ] {
            assert_eq!(Product::of(&info), Product::Other(named.to_owned()));
        }
    }
}
