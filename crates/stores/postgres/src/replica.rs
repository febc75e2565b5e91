//! The server as a member of a cluster: a leader, or a standby that streams its log.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use acidtest_model::{
    Address, CertificateCheck, Consistency, EffectiveReplication, Isolation, MemberId, ReplicaReads,
    Replication, StoreError, Task, Tls,
};
use acidtest_workloads::{Place, Replica, Standing};
use tokio::time::sleep;
use tokio_postgres::{Client, Error};

use crate::{DEFAULT_PORT, Postgres, quoted};

/// What a commit waits for, besides how many replicas.
const COMMIT: &str = "synchronous_commit";
/// That they have applied it, which they do once they have synced it.
const REMOTE_APPLY: &str = "remote_apply";

/// How long a server may take to read its settings again: as long as it may take to accept a connection, and then some.
const RELOADED: Duration = Duration::from_secs(10);
/// The time between two looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// The position in the log, as a number of bytes. A replica that has received nothing since it was started has what its copy came with.
const STANDING: &str = "SELECT standby, (received - '0/0'::pg_lsn)::bigint, (applied - '0/0'::pg_lsn)::bigint
    FROM pg_is_in_recovery() AS standby,
         LATERAL (SELECT CASE WHEN standby THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_flush_lsn() END AS applied) AS a,
         LATERAL (SELECT CASE WHEN standby THEN greatest(coalesce(pg_last_wal_receive_lsn(), '0/0'), applied) ELSE applied END AS received) AS r";

/// A copy that is being made receives the log by a connection of its own.
const REPLICATION: &str = "SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
    (SELECT count(*) FROM pg_stat_replication WHERE state IN ('catchup', 'streaming') AND application_name <> 'pg_basebackup')";

const TABLES: &str =
    "SELECT relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
    WHERE nspname = $1 AND relkind IN ('r', 'p') AND right(relname, length($2)) = $2";

impl Replica for Postgres {
    fn standing(&self) -> Task<'_, Result<Standing, StoreError>> {
        Box::pin(self.on_server("asking how far it has the log", async |client| {
            let row = client.query_one(STANDING, &[]).await?;
            let position = |column| Ok::<_, Error>(row.try_get::<_, i64>(column)?.unsigned_abs());
            let is_standby: bool = row.try_get(0)?;
            Ok(Standing { leads: !is_standby, received: position(1)?, applied: position(2)? })
        }))
    }

    fn promote(&self) -> Task<'_, Result<(), StoreError>> {
        Box::pin(async {
            const DOING: &str = "promoting the replica";
            let promote = "SELECT pg_promote(true, 30)";
            let promoted = self
                .on_server(DOING, async |client| client.query_one(promote, &[]).await?.try_get(0))
                .await?;
            if promoted {
                return Ok(());
            }
            Err(self.failed(DOING, "it has not become the leader within 30 s".to_owned()))
        })
    }

    fn follow<'a>(&'a self, name: MemberId, leader: &'a Address) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.set(
            "having the replica follow the leader",
            "primary_conninfo",
            conninfo(&name.to_string(), leader),
        ))
    }

    fn acknowledge<'a>(
        &'a self,
        level: Replication,
        consistency: Consistency,
        replicas: &'a [MemberId],
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            const DOING: &str = "setting what a commit waits for";
            if level == Replication::Semi {
                return Err(self.failed(DOING, NO_SEMI.to_owned()));
            }
            // sessions that are open have it from their next statement on
            if consistency == Consistency::Strong {
                self.set(DOING, COMMIT, REMOTE_APPLY.to_owned()).await?;
            } else if self.on_server(DOING, setting(COMMIT)).await? == REMOTE_APPLY {
                // then it is again as its durability has it
                self.reset(DOING, COMMIT, REMOTE_APPLY).await?;
            }
            let names = any(level.confirming(replicas.len()), replicas);
            let before = self.on_server(DOING, setting("synchronous_standby_names")).await?;
            self.set(DOING, "synchronous_standby_names", names.clone()).await?;
            if before.is_empty() && !names.is_empty() {
                // commits wait only once the checkpointer has read the settings, too: it does so before it begins what it is asked for
                self.on_server(DOING, async |client| client.batch_execute("CHECKPOINT").await).await?;
            }
            Ok(())
        })
    }

    fn replication(&self, nodes: u32) -> Task<'_, Result<EffectiveReplication, StoreError>> {
        Box::pin(async move {
            let read = async |client: &Client| {
                let row = client.query_one(REPLICATION, &[]).await?;
                let following: i64 = row.try_get(2)?;
                Ok((row.try_get(0)?, row.try_get(1)?, following))
            };
            let (names, commit, following): (String, String, _) =
                self.on_server("reading back the replication", read).await?;
            let (level, because) = level(&names, &commit, nodes);
            let following = u32::try_from(following).unwrap_or(u32::MAX);
            let consistency = consistency(level, &commit);
            Ok(EffectiveReplication { level, because, following, consistency })
        })
    }

    fn contents<'a>(&'a self, place: &'a Place) -> Task<'a, Result<BTreeMap<String, String>, StoreError>> {
        Box::pin(
            self.on_server("reading what the member has", async move |client| contents(client, place).await),
        )
    }
}

/// What a replica answers: a hot standby has no serializable transactions.
pub(crate) const READS: ReplicaReads = ReplicaReads {
    isolation: &[Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead],
    strong: Ok((Replication::All, "synchronous_commit=remote_apply")),
};

/// Why there is no level *semi*.
pub(crate) const NO_SEMI: &str = "PostgreSQL has no timeout after which it stops waiting";

impl Postgres {
    /// Sets a server's setting for good, and waits until new sessions have it.
    async fn set(&self, doing: &str, name: &'static str, value: String) -> Result<(), StoreError> {
        let alter = format!("ALTER SYSTEM SET {name} = {}", literal(&value));
        self.alter(doing, name, &alter, |now| now == value).await
    }

    /// Takes back what a setting was set to, and waits until new sessions have another value.
    async fn reset(&self, doing: &str, name: &'static str, from: &str) -> Result<(), StoreError> {
        self.alter(doing, name, &format!("ALTER SYSTEM RESET {name}"), |now| now != from).await
    }

    async fn alter(
        &self,
        doing: &str,
        name: &'static str,
        alter: &str,
        is_done: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        // neither a transaction nor a parameter may stand about it
        self.on_server(doing, async |client| client.batch_execute(alter).await).await?;
        self.on_server(doing, async |client| client.batch_execute("SELECT pg_reload_conf()").await).await?;
        let since = Instant::now();
        while !is_done(&self.on_server(doing, setting(name)).await?) {
            if since.elapsed() > RELOADED {
                let cause = format!(
                    "{name} was set, and the server still has another value: it may be set on its command line"
                );
                return Err(self.failed(doing, cause));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Reads a setting.
fn setting(name: &'static str) -> impl AsyncFnOnce(&Client) -> Result<String, Error> {
    async move |client| client.query_one("SELECT current_setting($1)", &[&name]).await?.try_get(0)
}

/// A text as a literal of SQL, whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

/// How a replica of this name reaches its leader, as libpq has it. A password is not in it: it would be in a file, and in the server's log.
fn conninfo(name: &str, leader: &Address) -> String {
    let Address { host, port, socket, user, tls, .. } = leader;
    let mut words = vec![
        ("host", socket.clone().unwrap_or_else(|| host.clone())),
        ("port", port.unwrap_or(DEFAULT_PORT).to_string()),
    ];
    words.extend(user.clone().map(|user| ("user", user)));
    words.push(("application_name", name.to_owned()));
    match tls {
        None => words.push(("sslmode", "disable".to_owned())),
        Some(tls) => words.extend(tls_words(tls)),
    }
    let word = |(name, value): (&str, String)| {
        format!("{name}='{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
    };
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

fn tls_words(tls: &Tls) -> Vec<(&'static str, String)> {
    let mode = match tls.check {
        CertificateCheck::Nothing => "require",
        CertificateCheck::Issuer => "verify-ca",
        CertificateCheck::Name => "verify-full",
    };
    let file = |path: &std::path::Path| path.display().to_string();
    let mut words = vec![("sslmode", mode.to_owned())];
    words.extend(tls.issuers.as_deref().map(|issuers| ("sslrootcert", file(issuers))));
    if let Some(own) = &tls.certificate {
        words.extend([("sslcert", file(&own.chain)), ("sslkey", file(&own.key))]);
    }
    if tls.binds {
        words.push(("channel_binding", "require".to_owned()));
    }
    words
}

/// The setting by which a commit waits for as many of these; none where it waits for none.
fn any(count: usize, replicas: &[MemberId]) -> String {
    if count == 0 {
        return String::new();
    }
    let names: Vec<String> = replicas.iter().map(|name| quoted(&name.to_string())).collect();
    format!("ANY {count} ({})", names.join(", "))
}

/// For how many replicas a commit waits by `synchronous_standby_names`; none where the setting cannot be read. `FIRST` differs from `ANY` in
/// which ones it waits for, and a list by itself means its first.
fn waited_for(names: &str) -> Option<u32> {
    let names = names.trim();
    if names.is_empty() {
        return Some(0);
    }
    let Some((head, _)) = names.split_once('(').filter(|(head, _)| !head.contains('"')) else {
        return Some(1);
    };
    let mut words = head.split_whitespace();
    let mut last = words.next_back()?;
    // the number may stand before the bracket without a method
    match words.next() {
        None => {}
        Some(method) if ["any", "first"].contains(&&*method.to_lowercase()) && words.next().is_none() => {}
        Some(_) => return None,
    }
    last = last.trim_matches('\'');
    last.parse().ok()
}

/// What settings amount to on so many nodes, and why.
fn level(names: &str, commit: &str, nodes: u32) -> (Replication, String) {
    let settings = format!("synchronous_standby_names='{names}', synchronous_commit={commit}");
    let copies = |count: u32| {
        let nodes_that_have = format!("the leader and {count} of {} replicas", nodes.saturating_sub(1));
        match commit {
            "remote_write" => {
                format!("{nodes_that_have} have a commit, these in the kernel's memory, not on disk")
            }
            REMOTE_APPLY => {
                format!("{nodes_that_have} have a commit, and show it, before it is acknowledged")
            }
            _ => format!("{nodes_that_have} have a commit"),
        }
    };
    let (level, why) = match waited_for(names) {
        _ if nodes <= 1 => (Replication::None, "one node".to_owned()),
        _ if ["off", "local"].contains(&commit) => {
            (Replication::Async, "a commit waits for no replica, whatever is named".to_owned())
        }
        None => (Replication::Async, "the setting cannot be read".to_owned()),
        Some(0) => (Replication::Async, "a commit waits for no replica".to_owned()),
        Some(count) if count >= nodes - 1 => (Replication::All, copies(nodes - 1)),
        Some(count) if (count + 1) * 2 > nodes => (Replication::Quorum, copies(count)),
        Some(count) => (Replication::Async, format!("{}: fewer than a majority", copies(count))),
    };
    (level, format!("{settings}: {why}"))
}

/// What a read at a replica is promised to see by these settings: what is acknowledged only once every replica shows it.
fn consistency(level: Replication, commit: &str) -> Consistency {
    if level == Replication::All && commit == REMOTE_APPLY {
        Consistency::Strong
    } else {
        Consistency::Eventual
    }
}

/// All tables at one moment.
async fn contents(client: &Client, place: &Place) -> Result<BTreeMap<String, String>, Error> {
    // rows are compared as texts, which these settings decide
    client
        .batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL TimeZone = 'UTC';
             SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; SET LOCAL statement_timeout = 0",
        )
        .await?;
    let suffix = place.object("");
    let mut found = BTreeMap::new();
    for row in client.query(TABLES, &[&place.namespace, &suffix]).await? {
        let name: String = row.try_get(0)?;
        let table = format!("{}.{}", quoted(&place.namespace), quoted(&name));
        // the order of the rows does not matter to a sum, and one that is there twice does
        let digest = format!(
            "SELECT count(*) || ' rows, ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM {table} AS t"
        );
        let text = client.query_one(&digest, &[]).await?.try_get(0)?;
        found.insert(name, text);
    }
    client.batch_execute("COMMIT").await?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use acidtest_model::Role;

    use super::*;

    fn replicas(numbers: std::ops::RangeInclusive<u16>) -> Vec<MemberId> {
        numbers.map(|number| MemberId::numbered(Role::Server, number)).collect()
    }

    #[test]
    fn a_level_waits_for_as_many_replicas_as_it_says() {
        for (nodes, quorum, all) in
            [(2, "ANY 1", "ANY 1"), (3, "ANY 1", "ANY 2"), (4, "ANY 2", "ANY 3"), (5, "ANY 2", "ANY 4")]
        {
            let replicas = replicas(2..=nodes);
            let count = u32::from(nodes);
            for (wanted, expected) in [(Replication::Quorum, quorum), (Replication::All, all)] {
                let names = any(wanted.confirming(replicas.len()), &replicas);
                assert!(names.starts_with(&format!("{expected} (\"server-2\"")), "{names}");
                let (level, because) = level(&names, "on", count);
                // of two nodes, a majority is both
                let wanted = if nodes == 2 { Replication::All } else { wanted };
                assert_eq!(level, wanted, "{because}");
            }
        }
        assert_eq!(any(2, &replicas(2..=3)), "ANY 2 (\"server-2\", \"server-3\")");
        assert_eq!(any(0, &[]), "");
    }

    #[test]
    fn settings_are_read_as_the_server_reads_them() {
        for (names, commit, nodes, expected) in [
            ("", "on", 3, Replication::Async),
            ("ANY 1 (\"server-2\", \"server-3\")", "on", 3, Replication::Quorum),
            ("any 1(a,b)", "remote_apply", 3, Replication::Quorum),
            ("FIRST 2 (a, b)", "on", 3, Replication::All),
            ("2 (a, b, c, d)", "on", 5, Replication::Quorum),
            ("ANY 1 (a, b, c, d)", "on", 5, Replication::Async),
            ("FIRST 1 (a, b, c)", "on", 4, Replication::Async),
            ("a, b", "on", 3, Replication::Quorum),
            ("*", "on", 3, Replication::Quorum),
            ("*", "on", 2, Replication::All),
            ("ANY 2 (*)", "on", 3, Replication::All),
            ("\"any 2 (a\"", "on", 3, Replication::Quorum),
            ("ANY 2 (a, b)", "off", 3, Replication::Async),
            ("ANY 2 (a, b)", "local", 3, Replication::Async),
            ("ANY 2 (a, b)", "on", 1, Replication::None),
        ] {
            let (level, because) = level(names, commit, nodes);
            assert_eq!(level, expected, "{because}");
            assert!(because.contains(names) && because.contains(commit), "{because}");
            // "on" waits for the disks of the same replicas, which may show the commit later
            assert_eq!(consistency(level, "on"), Consistency::Eventual);
            let is_strong = consistency(level, REMOTE_APPLY) == Consistency::Strong;
            assert_eq!(is_strong, level == Replication::All, "{because}");
        }
        let (level, because) = level("ANY 1 (a, b)", "remote_write", 3);
        assert_eq!(level, Replication::Quorum);
        assert!(because.contains("not on disk"), "{because}");
    }

    #[test]
    fn a_leader_is_named_as_libpq_reads_it() {
        let leader = Address::parse("postgres://ann:hunter2@db.example:5433/a").unwrap();
        let said = conninfo("server-2", &leader);
        assert_eq!(
            said,
            "host='db.example' port='5433' user='ann' application_name='server-2' sslmode='disable'"
        );
        let secure =
            Address::parse("postgres://o'brien@db.example/a?sslmode=verify-full&sslrootcert=/a b.pem");
        let said = conninfo("server-3", &secure.unwrap());
        assert!(said.contains(r"user='o\'brien'"), "{said}");
        assert!(said.ends_with("sslmode='verify-full' sslrootcert='/a b.pem'"), "{said}");
        assert_eq!(literal(r"it's a \"), r"E'it''s a \\'");
    }
}
