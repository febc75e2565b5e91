//! Sessions whose transactions go statement by statement, on `InnoDB`.

use std::{collections::BTreeMap, fmt};

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{InteractiveSession, InteractiveStore, LockMonitor, Mode, Reply, Table},
};
use mysql_async::{Conn, prelude::Queryable};

use crate::{
    MariaDb,
    columns::text,
    engine::Engine,
    fault,
    load::drop_tables,
    lock_monitor::InnoDbMonitor,
    object,
    protocol::{Connection, Error, Row, Rows},
    quoted,
    session::Session,
    show, variables,
};

/// Makes the server refuse to lock a row that was changed since the transaction's snapshot; `MariaDB` has it from 10.6.18 and 10.11.8 on.
pub(crate) const SNAPSHOT_ISOLATION: &str = "innodb_snapshot_isolation";

/// The isolation level under both of its names, of which a version has one or both, and that variable.
pub(crate) const ISOLATION: [&str; 3] = ["transaction_isolation", "tx_isolation", SNAPSHOT_ISOLATION];

/// How long a session's statements wait for rows: a wait that its time ends would pass for a refusal.
const ROW_LOCK_WAIT: &str = "SET SESSION innodb_lock_wait_timeout = 60";

/// How long it is waited for transactions on a table that is made or removed. The server's own default is a year or a day.
const LOCK_WAIT_TIMEOUT: &str = "SET SESSION lock_wait_timeout = 20";

/// What comes between the statements that make a mode.
const BETWEEN: &str = "; ";

/// An isolation level, and whether snapshots are isolated, by the statements that set them.
struct Setting {
    level: Isolation,
    /// None where the variable is left alone.
    isolates_snapshots: Option<bool>,
    how: &'static str,
}

macro_rules! setting {
    ($level:ident, $sql:literal) => {
        Setting {
            level: Isolation::$level,
            isolates_snapshots: None,
            how: concat!("SET SESSION TRANSACTION ISOLATION LEVEL ", $sql),
        }
    };
    ($level:ident, $sql:literal, $on:literal, $word:literal) => {
        Setting {
            level: Isolation::$level,
            isolates_snapshots: Some($on),
            how: concat!(
                "SET SESSION TRANSACTION ISOLATION LEVEL ",
                $sql,
                "; SET SESSION innodb_snapshot_isolation = ",
                $word
            ),
        }
    };
}

/// The settings of all servers, from the weakest to the strongest.
const SETTINGS: [Setting; 8] = [
    setting!(ReadUncommitted, "READ UNCOMMITTED"),
    setting!(ReadCommitted, "READ COMMITTED"),
    setting!(RepeatableRead, "REPEATABLE READ"),
    setting!(RepeatableRead, "REPEATABLE READ", false, "OFF"),
    setting!(RepeatableRead, "REPEATABLE READ", true, "ON"),
    setting!(Serializable, "SERIALIZABLE"),
    setting!(Serializable, "SERIALIZABLE", false, "OFF"),
    setting!(Serializable, "SERIALIZABLE", true, "ON"),
];

/// What a session says of its transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) level: String,
    /// None on a server without the variable.
    isolates_snapshots: Option<bool>,
}

impl Told {
    pub(crate) fn of(variables: &BTreeMap<String, String>) -> Self {
        let level = ISOLATION.iter().find_map(|name| variables.get(*name));
        Self {
            level: level.cloned().unwrap_or_default(),
            isolates_snapshots: variables.get(SNAPSHOT_ISOLATION).map(|value| value == "ON"),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.level)?;
        self.isolates_snapshots
            .map_or(Ok(()), |is_on| write!(f, ", {SNAPSHOT_ISOLATION}={}", if is_on { "ON" } else { "OFF" }))
    }
}

impl Setting {
    /// Whether it is one of a server's whose sessions begin like this.
    ///
    /// The variable concerns transactions that have a snapshot. At the levels below, a snapshot is a statement's, and the variable is
    /// left as users have it.
    fn is_of(&self, server: &Told) -> bool {
        let has_snapshot = matches!(self.level, Isolation::RepeatableRead | Isolation::Serializable);
        self.isolates_snapshots.is_some() == (has_snapshot && server.isolates_snapshots.is_some())
    }

    /// The level alone is what those have who set nothing else.
    fn mode(&self, server: &Told) -> Mode {
        let level = self.level.words();
        let differs =
            self.isolates_snapshots.is_some() && self.isolates_snapshots != server.isolates_snapshots;
        let name = match self.isolates_snapshots {
            Some(true) if differs => format!("{level}, snapshot isolation"),
            Some(false) if differs => format!("{level}, no snapshot isolation"),
            _ => level,
        };
        let is_default = !differs && server.level == told(self.level);
        Mode { name, level: Some(self.level), how: self.how, is_default }
    }

    fn is_told(&self, told_now: &Told) -> bool {
        told_now.level == told(self.level)
            && (self.isolates_snapshots.is_none() || self.isolates_snapshots == told_now.isolates_snapshots)
    }
}

/// How variables name a level.
fn told(level: Isolation) -> String {
    level.sql().replace(' ', "-")
}

fn modes(server: &Told) -> Vec<Mode> {
    SETTINGS.iter().filter(|setting| setting.is_of(server)).map(|setting| setting.mode(server)).collect()
}

impl InteractiveStore for MariaDb {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        Box::pin(async {
            let read = async |conn: &mut Conn| variables(conn, &ISOLATION).await;
            let variables = self.on_server("reading the isolation level", read).await?;
            Ok(modes(&Told::of(&variables)))
        })
    }

    fn refuses(&self, _: &Mode, _: &str) -> Option<String> {
        None
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        Box::pin(self.on_server("making a table", async move |conn| {
            let name = object(place, &table.name);
            conn.query_drop(LOCK_WAIT_TIMEOUT).await?;
            conn.query_drop(create(&name, table)).await?;
            if let Some(insert) = insert(&name, table) {
                conn.query_drop(insert).await?;
            }
            Ok(name)
        }))
    }

    fn drop_table<'a>(&'a self, _: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing a table", async move |conn| {
            conn.query_drop(LOCK_WAIT_TIMEOUT).await?;
            drop_tables(conn, &[name.to_owned()]).await
        }))
    }

    fn session<'a>(
        &'a self,
        place: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            let opened = InnoDbSession::open(self, place, mode).await;
            let session = opened.map_err(|cause| StoreError::Server {
                doing: format!("opening a session at {}", mode.name),
                address: self.server.address().to_string(),
                cause,
            })?;
            Ok(Box::new(session) as Box<dyn InteractiveSession>)
        })
    }

    fn lock_monitor(&self) -> Task<'_, Result<Option<Box<dyn LockMonitor>>, StoreError>> {
        Box::pin(async {
            let monitor = InnoDbMonitor::new(self.connection().await?, self.product).await;
            Ok(Some(Box::new(monitor) as Box<dyn LockMonitor>))
        })
    }
}

fn create(name: &str, table: &Table) -> String {
    format!("CREATE TABLE {name} ({}) ENGINE={}", table.columns, Engine::InnoDb.name())
}

/// None for a table without rows.
fn insert(name: &str, table: &Table) -> Option<String> {
    let rows: Vec<String> = table.rows.iter().map(|row| format!("({})", row.join(", "))).collect();
    (!rows.is_empty()).then(|| format!("INSERT INTO {name} VALUES {}", rows.join(", ")))
}

/// A session of the server.
struct InnoDbSession {
    session: Session,
    id: u64,
    level: String,
}

impl InnoDbSession {
    async fn open(store: &MariaDb, place: &Place, mode: &Mode) -> Result<Self, String> {
        let prepare = async |connection: &mut Connection| {
            connection.query(&format!("USE {}", quoted(&place.namespace))).await?;
            for statement in mode.how.split(BETWEEN).chain([ROW_LOCK_WAIT]) {
                connection.query(statement).await?;
            }
            read_back(connection).await
        };
        let (session, (id, now)) = Session::open(&store.server, prepare).await?;
        let id =
            id.parse().map_err(|_| format!("the server calls the session {id:?}, which is no number"))?;
        let setting = SETTINGS.iter().find(|setting| setting.how == mode.how);
        if setting.is_none_or(|setting| !setting.is_told(&now)) {
            return Err(format!("after {} the session has {now}", mode.how));
        }
        Ok(Self { session, id, level: now.to_string() })
    }
}

/// The session's number, and what it says of its transactions.
async fn read_back(connection: &mut Connection) -> Result<(String, Told), Error> {
    let variables = connection.query(&show(&ISOLATION)).await?;
    let pair = |row: Row<'_>| (text(&row, 0).to_owned(), text(&row, 1).to_owned());
    let now = Told::of(&variables.iter().map(pair).collect());
    // ProxySQL answers the function alone by itself
    let row = connection.query("SELECT CONNECTION_ID() + 0").await?.first();
    Ok((row.map_or_else(String::new, |row| text(&row, 0).to_owned()), now))
}

impl InteractiveSession for InnoDbSession {
    fn id(&self) -> u64 {
        self.id
    }

    fn level(&self) -> &str {
        &self.level
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            let answer = self.session.connection().query(statement).await;
            answer.map_or_else(
                |error| fault::reply(&error, is_one_of(statement, &["commit"])),
                |rows| reply(&rows, statement),
            )
        })
    }
}

fn reply(rows: &Rows<'_>, statement: &str) -> Reply {
    if rows.is_table() {
        return Reply::Rows(rows.iter().map(texts).collect());
    }
    // the server also counts rows where there are none to count
    let counts = rows.count() > 0 || is_one_of(statement, &["insert", "update", "delete", "replace"]);
    Reply::Done(counts.then(|| rows.count()))
}

fn texts(row: Row<'_>) -> Vec<String> {
    let text = |value: Option<&[u8]>| {
        value.map_or_else(|| "NULL".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    row.values().map(text).collect()
}

/// Whether a statement begins with one of these words.
fn is_one_of(statement: &str, words: &[&str]) -> bool {
    let mut parts = statement.split(|letter: char| !letter.is_ascii_alphabetic());
    let first = parts.find(|part| !part.is_empty()).unwrap_or_default();
    words.iter().any(|word| word.eq_ignore_ascii_case(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(level: &str, isolates_snapshots: Option<bool>) -> Vec<String> {
        let modes = modes(&Told { level: level.to_owned(), isolates_snapshots });
        let shown = |mode: Mode| format!("{}{}", mode.name, if mode.is_default { " (default)" } else { "" });
        modes.into_iter().map(shown).collect()
    }

    #[test]
    fn a_level_s_name_means_the_server_s_own_setting_of_snapshots() {
        assert_eq!(
            shown("REPEATABLE-READ", Some(false)),
            [
                "read uncommitted",
                "read committed",
                "repeatable read (default)",
                "repeatable read, snapshot isolation",
                "serializable",
                "serializable, snapshot isolation",
            ]
        );
        assert_eq!(
            shown("REPEATABLE-READ", Some(true)),
            [
                "read uncommitted",
                "read committed",
                "repeatable read, no snapshot isolation",
                "repeatable read (default)",
                "serializable, no snapshot isolation",
                "serializable",
            ]
        );
        assert_eq!(
            shown("READ-COMMITTED", None),
            ["read uncommitted", "read committed (default)", "repeatable read", "serializable"]
        );
    }

    #[test]
    fn what_is_set_is_compared_with_what_is_told() {
        let now = |isolates_snapshots| Told { level: "REPEATABLE-READ".to_owned(), isolates_snapshots };
        let is_told = |told: &Told| {
            let hows = SETTINGS.iter().filter(|setting| setting.is_told(told)).map(|setting| setting.how);
            hows.filter_map(|how| how.split(BETWEEN).nth(1)).collect::<Vec<_>>()
        };
        assert_eq!(is_told(&now(Some(true))), ["SET SESSION innodb_snapshot_isolation = ON"]);
        assert_eq!(is_told(&now(Some(false))), ["SET SESSION innodb_snapshot_isolation = OFF"]);
        assert_eq!(is_told(&now(None)), [""; 0]);
        assert_eq!(now(Some(true)).to_string(), "REPEATABLE-READ, innodb_snapshot_isolation=ON");
        assert_eq!(now(None).to_string(), "REPEATABLE-READ");
    }

    #[test]
    fn a_table_is_made_as_it_is_given() {
        let rows = [["1", "'a, b'"], ["2", "NULL"]].map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let columns = "id int primary key, value text".to_owned();
        let table = Table { name: "test".to_owned(), columns, rows };
        let name = "`a`.`test_1`";
        assert_eq!(
            create(name, &table),
            "CREATE TABLE `a`.`test_1` (id int primary key, value text) ENGINE=InnoDB"
        );
        assert_eq!(
            insert(name, &table).as_deref(),
            Some("INSERT INTO `a`.`test_1` VALUES (1, 'a, b'), (2, NULL)")
        );
        assert_eq!(insert(name, &Table { rows: Vec::new(), ..table }), None);
    }

    #[test]
    fn a_statement_is_known_by_its_first_word() {
        assert!(is_one_of("COMMIT", &["commit"]) && is_one_of(" commit;", &["commit"]));
        assert!(!is_one_of("committed", &["commit"]) && !is_one_of("", &["commit"]));
    }
}
