//! The server's sessions: whether connections have their own, and what one is at the start and at the end.
//!
//! A pooler in transaction or statement mode hands a session on to whoever comes next, with all that was set in it. Then a
//! client runs at settings of somebody else's, and others run at the client's.

use acidtest_model::StoreError;
use acidtest_transport::{Probe, Refusal, refuse_sharing};
use tokio_postgres::error::SqlState;

use crate::{
    Postgres,
    protocol::{Connection, Error},
};

/// The settings of a session that decide how statements are carried out, as far as they differ between sessions. The first is of commits
/// alone.
const SETTINGS: [&str; 9] = [
    "synchronous_commit",
    "default_transaction_isolation",
    "transaction_isolation",
    "plan_cache_mode",
    "enable_seqscan",
    "enable_sort",
    "enable_nestloop",
    "enable_mergejoin",
    "jit",
];

/// A session of the server, as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionState {
    /// The process that answers.
    process: String,
    /// The settings, as `name=value`.
    settings: String,
    /// Whether how it commits is among these. A session that only reads may see that change: a replica is set to commit as its cluster is
    /// asked to, and then promoted.
    pub(crate) commits: bool,
}

impl SessionState {
    /// Reads the state of the session that answers on a connection, on which something or nothing will be committed.
    pub(crate) async fn read(connection: &mut Connection, commits: bool) -> Result<Self, Error> {
        let names = SETTINGS.iter().skip(usize::from(!commits));
        let shown: Vec<String> =
            names.map(|name| format!("'{name}=' || current_setting('{name}', true)")).collect();
        let shown = shown.join(", ");
        let told = connection.ask(&format!("SELECT pg_backend_pid(), concat_ws(', ', {shown})")).await?;
        match <[String; 2]>::try_from(told) {
            Ok([process, settings]) => Ok(Self { process, settings, commits }),
            Err(_) => Err(Error::Lost("the server does not tell what session answers".to_owned())),
        }
    }

    /// Whether somebody has set any of these settings in the session that answers: otherwise they are those of the user, the
    /// database or the server, which may have changed since the store was opened.
    pub(crate) async fn is_set(connection: &mut Connection) -> Result<bool, Error> {
        let names = SETTINGS.map(|name| format!("'{name}'")).join(", ");
        let sql = format!("SELECT count(*) FROM pg_settings WHERE source = 'session' AND name IN ({names})");
        Ok(connection.ask(&sql).await?.first().is_some_and(|count| count != "0"))
    }

    /// The number of the process that answers; none where the server has no processes, and names something else.
    fn process(&self) -> Option<i32> {
        self.process.parse().ok().filter(|process| *process > 0)
    }

    /// What is not as it was in this state, if anything is.
    pub(crate) fn changed(&self, now: &Self) -> Option<String> {
        if let Some(differing) = differing(&self.settings, &now.settings) {
            return Some(format!("its settings are {differing}"));
        }
        (self.process != now.process).then(|| "another session of the server answers".to_owned())
    }

    /// Fails if the session, whose user has set nothing yet, has other settings than those of a fresh one.
    pub(crate) fn check_fresh(&self, usual: &str) -> Result<(), String> {
        match differing(usual, &self.settings) {
            None => Ok(()),
            Some(differing) => Err(format!(
                "a new connection was given a session whose settings are {differing}: {HANDED_ON}\n  remedy: {REMEDY}"
            )),
        }
    }
}

/// The settings that differ from what they were, with what they were.
fn differing(before: &str, now: &str) -> Option<String> {
    let each = now.split(", ").filter(|setting| !before.split(", ").any(|before| before == *setting));
    let differing: Vec<&str> = each.collect();
    let was = |setting: &str| {
        let name = setting.split_inclusive('=').next().unwrap_or_default();
        let before = before.split(", ").find_map(|before| before.strip_prefix(name));
        before.map_or_else(|| setting.to_owned(), |before| format!("{setting} instead of {before}"))
    };
    let said: Vec<String> = differing.into_iter().map(was).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// What poolers do.
const POOLER: &str = "so does a pooler in transaction or statement mode, such as PgBouncer, Odyssey, PgCat, Supavisor or \
                      RDS Proxy. What a run sets in its sessions would be set for others, and its isolation level would be theirs";

const HANDED_ON: &str = "the server's sessions are handed on, with what others have set and prepared in them, as by a pooler \
                         in transaction mode, or by one that resets nothing between clients";

const REMEDY: &str =
    "give the server's own address, or that of a pool in session mode that resets its sessions (DISCARD ALL)";

/// An error's words; with an explanation where it shows that sessions are handed on: a statement is there that was not prepared
/// on the connection, or is not there that was.
pub(crate) fn explained(error: &Error) -> String {
    let is_handed_on = error.answer().is_some_and(|answer| {
        [SqlState::DUPLICATE_PSTATEMENT, SqlState::INVALID_SQL_STATEMENT_NAME].contains(&answer.code)
    });
    if is_handed_on { format!("{error}: {HANDED_ON}\n  remedy: {REMEDY}") } else { error.to_string() }
}

impl Postgres {
    /// Makes sure that each connection has a session of its own, and returns the settings of a fresh one.
    ///
    /// A server names at the login the process that then answers. A pooler makes a name up; which kind of pooler it is shows on
    /// several connections. Where these are not all answered, as by a pool of few sessions in session mode, nothing is proved.
    pub(crate) async fn own_sessions(&self) -> Result<String, StoreError> {
        let mut first = ProbeConnection { store: self, connection: self.connection().await? };
        let state =
            SessionState::read(&mut first.connection, true).await.map_err(|error| first.failed(&error))?;
        if first.connection.process() == state.process() || state.process().is_none() {
            return Ok(state.settings);
        }
        let another = async || Ok(ProbeConnection { store: self, connection: self.connection().await? });
        let refusal = Refusal { address: self.address(), known: POOLER, remedy: REMEDY };
        refuse_sharing(first, another, refusal).await?;
        Ok(state.settings)
    }
}

/// A connection on which sharing is looked for.
struct ProbeConnection<'a> {
    store: &'a Postgres,
    connection: Connection,
}

impl ProbeConnection<'_> {
    fn failed(&self, error: &Error) -> StoreError {
        self.store.failed("looking whether connections have sessions of their own", error.to_string())
    }
}

impl Probe for ProbeConnection<'_> {
    /// The process, and when its server was started: behind one address there may be several servers.
    async fn session(&mut self) -> Result<String, StoreError> {
        let told = self.connection.ask("SELECT pg_backend_pid(), pg_postmaster_start_time()").await;
        told.map(|told| told.join(" of ")).map_err(|error| self.failed(&error))
    }

    async fn hold(&mut self) -> Result<String, StoreError> {
        self.connection.command("BEGIN").await.map_err(|error| self.failed(&error))?;
        self.session().await
    }

    async fn let_go(&mut self) -> Result<(), StoreError> {
        self.connection.command("ROLLBACK").await.map_err(|error| self.failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ServerError;

    #[test]
    fn a_statement_of_somebody_else_names_the_pooler() {
        let error = |code: &str| {
            Error::Answered(Box::new(ServerError {
                code: SqlState::from_code(code),
                message: "no".to_owned(),
                ends_connection: false,
                constraint: None,
                committed_alone: false,
            }))
        };
        for code in ["42P05", "26000"] {
            let said = explained(&error(code));
            assert!(said.contains(code) && said.contains("pooler") && said.contains("remedy: "), "{said}");
        }
        assert_eq!(explained(&error("23505")), "no (23505)");
    }

    #[test]
    fn what_has_changed_is_told() {
        let state = |process: &str, settings: &str| SessionState {
            process: process.to_owned(),
            settings: settings.to_owned(),
            commits: true,
        };
        let then = state("7", "jit=on, plan_cache_mode=auto");
        assert_eq!(then.changed(&then), None);
        let other = then.changed(&state("8", "jit=on, plan_cache_mode=auto"));
        assert_eq!(other.as_deref(), Some("another session of the server answers"));
        let set = then.changed(&state("8", "jit=off, plan_cache_mode=auto"));
        assert_eq!(set.as_deref(), Some("its settings are jit=off instead of on"));
        assert_eq!(then.check_fresh("jit=on, plan_cache_mode=auto"), Ok(()));
        let refused = then.check_fresh("jit=off, plan_cache_mode=auto").unwrap_err();
        assert!(refused.contains("jit=on instead of off") && refused.contains("session mode"), "{refused}");
    }
}
