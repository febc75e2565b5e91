//! The server's sessions: whether connections have their own, and what one is at the start and at the end.
//!
//! A proxy that multiplexes hands a session on to whoever comes next; one that splits reads from writes has several for one
//! connection.

use acidtest_model::StoreError;
use acidtest_transport::{Probe, Refusal, refuse_sharing};

use crate::{
    MariaDb,
    interactive::SNAPSHOT_ISOLATION,
    protocol::{Connection, Error, Rows},
};

/// Asks for the session that answers, its settings that decide how statements are carried out, and those that a new one is given.
/// `ProxySQL` answers the function alone by itself. Not every version of `MariaDB` has the last variable, so that it cannot be named;
/// what asks for it is a comment to `MySQL`.
fn state(level: &str) -> String {
    let snapshots = |of: &str| {
        format!(
            "(SELECT variable_value FROM information_schema.{of}_variables
              WHERE variable_name = '{SNAPSHOT_ISOLATION}')"
        )
    };
    format!(
        "SELECT CONNECTION_ID() + 0, @@{level}, @@autocommit, @@global.{level}, @@global.autocommit
         /*M! , {}, {} */",
        snapshots("session"),
        snapshots("global")
    )
}

/// The level's variable, and its name in `MariaDB` before 11.1 and `MySQL` before 5.7.20.
const LEVEL: &str = "transaction_isolation";
const LEVEL_BEFORE: &str = "tx_isolation";

/// Error 1193: there is no such variable.
const NO_VARIABLE: u16 = 1193;

/// The session that answers, among those of all servers behind the address.
const SESSION: &str = "SELECT CONNECTION_ID() + 0, @@hostname, @@port";

/// A session of the server, as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionState {
    id: String,
    settings: Settings,
    /// Those that the server gives to new sessions at this moment.
    of_new: Settings,
}

/// The settings of a session that decide how statements are carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    isolation: String,
    autocommit: String,
    /// Whether snapshots are isolated; empty on a server without the variable.
    snapshots: String,
}

impl Settings {
    fn words(&self) -> String {
        let Self { isolation, autocommit, snapshots } = self;
        let snapshots = match snapshots.as_str() {
            "" => String::new(),
            value => format!(", {SNAPSHOT_ISOLATION} {value}"),
        };
        format!("isolation level {isolation}, autocommit {autocommit}{snapshots}")
    }
}

impl SessionState {
    /// Reads the state of the session that answers on a connection.
    pub(crate) async fn read(connection: &mut Connection) -> Result<Self, Error> {
        let rows = match connection.query(&state(LEVEL)).await {
            Err(Error::Answered(answer)) if answer.code == NO_VARIABLE => {
                connection.query(&state(LEVEL_BEFORE)).await?
            }
            answered => answered?,
        };
        let [id, isolation, autocommit, new_isolation, new_autocommit, snapshots, new_snapshots] =
            told(rows)?;
        let settings = Settings { isolation, autocommit, snapshots };
        let of_new =
            Settings { isolation: new_isolation, autocommit: new_autocommit, snapshots: new_snapshots };
        Ok(Self { id, settings, of_new })
    }

    /// Whether a greeting means this session, of whose number it has room for the lower half.
    fn is_named(&self, greeting: u32) -> bool {
        self.id.parse::<u64>().is_ok_and(|id| id & u64::from(u32::MAX) == u64::from(greeting))
    }

    /// What is not as it was in this state, if anything is.
    pub(crate) fn changed(&self, now: &Self) -> Option<String> {
        if self.settings != now.settings {
            let (was, is) = (self.settings.words(), now.settings.words());
            return Some(format!("its session has {is}, and had {was}"));
        }
        (self.id != now.id).then(|| "another session of the server answers".to_owned())
    }

    /// Fails if the session, whose user has set nothing yet, has other settings than those of a fresh one: of one at the beginning,
    /// or of one now, because somebody may have changed the server's meanwhile.
    pub(crate) fn check_fresh(&self, usual: &Settings) -> Result<(), String> {
        if self.settings == *usual || self.settings == self.of_new {
            return Ok(());
        }
        Err(format!(
            "a new connection was given a session that has {}, where others have {}: the server's sessions are handed on, with \
             what others have set in them\n  remedy: {REMEDY}",
            self.settings.words(),
            usual.words()
        ))
    }
}

/// The texts of a row that is the only one.
fn told<const N: usize>(rows: Rows<'_>) -> Result<[String; N], Error> {
    let row = rows.first();
    let text = |column| row.as_ref().map_or("", |row| crate::columns::text(row, column)).to_owned();
    let texts = std::array::from_fn(text);
    if texts.iter().all(String::is_empty) {
        return Err(Error::Lost("the server does not tell what session answers".to_owned()));
    }
    Ok(texts)
}

/// What proxies do.
const PROXY: &str = "so does a proxy that multiplexes (ProxySQL, RDS Proxy) or splits reads from writes (MaxScale's \
                     readwritesplit). What a run sets in its sessions may be set for others, or elsewhere";

const REMEDY: &str = "give the server's own address, or one at which the proxy keeps one session of one server for each \
                      connection (ProxySQL: mysql-multiplexing=false and no query rules; MaxScale: readconnroute)";

impl MariaDb {
    /// Makes sure that each connection has a session of its own, and returns the settings of a fresh one.
    ///
    /// A server's greeting names the session that then answers. A proxy names its own; which kind of proxy it is shows on several
    /// connections. Where these are not all answered, nothing is proved.
    pub(crate) async fn own_sessions(&self) -> Result<Settings, StoreError> {
        let mut first = ProbeConnection { store: self, connection: self.connection().await? };
        let state = SessionState::read(&mut first.connection).await.map_err(|error| first.failed(&error))?;
        if state.is_named(first.connection.session()) {
            return Ok(state.settings);
        }
        let another = async || Ok(ProbeConnection { store: self, connection: self.connection().await? });
        let refusal = Refusal { address: self.server.address(), known: PROXY, remedy: REMEDY };
        refuse_sharing(first, another, refusal).await?;
        Ok(state.settings)
    }
}

/// A connection on which sharing is looked for.
struct ProbeConnection<'a> {
    store: &'a MariaDb,
    connection: Connection,
}

impl ProbeConnection<'_> {
    fn failed(&self, error: &Error) -> StoreError {
        StoreError::Server {
            doing: "looking whether connections have sessions of their own".to_owned(),
            address: self.store.server.address().to_string(),
            cause: error.to_string(),
        }
    }

    async fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let done = self.connection.query(sql).await.map(|_| ());
        done.map_err(|error| self.failed(&error))
    }
}

impl Probe for ProbeConnection<'_> {
    async fn session(&mut self) -> Result<String, StoreError> {
        let told = self.connection.query(SESSION).await.and_then(told::<3>);
        told.map(|told| told.join(" of ")).map_err(|error| self.failed(&error))
    }

    /// In a transaction, where a proxy that splits reads from writes takes what follows for a part of a write.
    async fn hold(&mut self) -> Result<String, StoreError> {
        self.run("START TRANSACTION").await?;
        self.session().await
    }

    async fn let_go(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told() {
        let settings = |isolation: &str| Settings {
            isolation: isolation.to_owned(),
            autocommit: "1".to_owned(),
            snapshots: "ON".to_owned(),
        };
        let state = |id: &str, isolation: &str| SessionState {
            id: id.to_owned(),
            settings: settings(isolation),
            of_new: settings("REPEATABLE-READ"),
        };
        let then = state("7", "REPEATABLE-READ");
        assert_eq!(then.changed(&then), None);
        let other = then.changed(&state("8", "REPEATABLE-READ")).unwrap();
        assert_eq!(other, "another session of the server answers");
        let set = then.changed(&state("7", "SERIALIZABLE")).unwrap();
        assert!(
            set.contains("level SERIALIZABLE") && set.contains("had isolation level REPEATABLE-READ"),
            "{set}"
        );
        assert_eq!(then.check_fresh(&then.settings), Ok(()));
        assert!(then.is_named(7) && state("4294967303", "").is_named(7) && !then.is_named(8));
        let off = Settings { snapshots: "OFF".to_owned(), ..then.settings.clone() };
        let set = then.changed(&SessionState { settings: off, ..then.clone() }).unwrap();
        assert!(set.contains("innodb_snapshot_isolation OFF, and had"), "{set}");
        let usual = &then.settings;
        assert_eq!(
            state("7", "REPEATABLE-READ").check_fresh(&settings("SERIALIZABLE")),
            Ok(()),
            "it is as it was made"
        );
        assert!(state("7", "SERIALIZABLE").check_fresh(usual).is_err(), "somebody has set it");
        // an administrator has changed what new sessions are given
        let of_new = settings("READ-COMMITTED");
        let given = SessionState { of_new, ..state("7", "READ-COMMITTED") };
        assert_eq!(given.check_fresh(usual), Ok(()));
        assert!(
            SessionState { of_new: settings("READ-COMMITTED"), ..state("7", "SERIALIZABLE") }
                .check_fresh(usual)
                .is_err()
        );
    }
}
