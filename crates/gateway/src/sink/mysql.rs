//! Entries in MariaDB or MySQL, in a table of InnoDB.
//!
//! A batch is stored by `LOAD DATA LOCAL`, where the server takes that (`local_infile`, by default on with MariaDB and
//! off with MySQL). It leaves out repeats and makes bad values fit, with no more than a warning: at a warning, or where
//! a row is missing, it is taken back, and the batch is stored as on other servers. There it is inserted by statements
//! of many rows, in which a row whose id is there already changes nothing; what differs is then looked for.

use std::{fmt, io::Write};

use acidtest_model::{Address, Secret};
#[cfg(feature = "tls")]
use acidtest_transport::Security;
use acidtest_transport::{TlsError, Transport};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use mysql_async::{
    Conn, DriverError as DriverFault, Error as DriverError, Opts, OptsBuilder, Params, Value,
    prelude::Queryable,
};

use super::{CONFLICT, OnConflict, Refused, SinkError, Stored, Tables};
use crate::{Error, queue::Queued};

const PORT: u16 = 3306;
/// How many rows a statement has: each has its prepared form on the server, so there are few of them.
const ROWS: [usize; 6] = [1000, 256, 64, 16, 4, 1];
/// The most bytes of the rows of a statement, where it has more than one.
const STATEMENT: usize = 1 << 20;
/// The least `max_allowed_packet` of a server, in bytes: that of a statement, or of an entry that is refused, and what is
/// beside them.
const PACKET: u64 = 4 << 20;
/// Batches of fewer rows are inserted: they cost little either way.
const LOADED: usize = 16;
/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;
/// That the server does not take `LOAD DATA LOCAL`, or no longer, in MySQL and MariaDB.
const NOT_LOADED: [u16; 3] = [1148, 3948, 4166];
/// Values of a row.
const VALUES: usize = 8;

pub(super) struct MySqlSink {
    options: Opts,
    tables: Tables,
    loads: bool,
}

#[derive(Debug)]
pub(crate) struct MySqlConnection {
    conn: Conn,
    tables: Tables,
    /// Whether the server takes `LOAD DATA LOCAL`.
    loads: bool,
}

impl fmt::Debug for MySqlSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: the driver's options hold the password
        f.debug_struct("MySqlSink").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl MySqlSink {
    pub(super) async fn open(address: &Address, tables: Tables) -> Result<(Self, String), Error> {
        let unreached = |reason: String| {
            Error::Unreached(format!("entries cannot be stored in MariaDB or MySQL at {address}: {reason}"))
        };
        if address.path.is_empty() {
            return Err(Error::Usage(format!(
                "{address} names no database\n  remedy: mysql://USER:PASSWORD@HOST/DATABASE"
            )));
        }
        let mut sink = Self { options: options(address)?, tables, loads: false };
        let conn = Conn::new(sink.options.clone()).await;
        let conn = conn.map_err(|error| match acidtest_transport::explain(&error, address) {
            Some(TlsError { cause, remedy }) => unreached(format!("{cause}\n  remedy: {remedy}")),
            None => unreached(words(&error)),
        })?;
        let mut connection = sink.over(conn);
        connection.make_tables().await.map_err(|error| unreached(words(&error)))?;
        let fault = connection.fault().await.map_err(|error| unreached(words(&error)))?;
        if let Some(fault) = fault {
            return Err(Error::Unreached(format!(
                "the table {} at {address} is not the gateway's: {fault}\n  remedy: choose another by --table",
                sink.tables.entries
            )));
        }
        let settings: Option<(String, u64, u64, bool)> = connection
            .conn
            .query_first(
                "SELECT version(), @@innodb_flush_log_at_trx_commit, @@max_allowed_packet, @@local_infile",
            )
            .await
            .map_err(|error| unreached(words(&error)))?;
        let (version, flush, packet, loads) =
            settings.ok_or_else(|| unreached("it does not say how it is set".to_owned()))?;
        if packet < PACKET {
            return Err(unreached(format!(
                "its max_allowed_packet is {packet} bytes, and a statement may have {PACKET}\n  remedy: SET GLOBAL \
                 max_allowed_packet = {PACKET}"
            )));
        }
        // what survives depends on more settings, and on whether it is InnoDB: this says no more than this one does
        let synced = match flush {
            1 | 3 => "the log is synced at each commit",
            2 => "the log is written at each commit, and synced once a second",
            _ => "the log is written once a second, and a commit does not survive a killed server",
        };
        sink.loads = loads;
        let way = if loads { "LOAD DATA LOCAL" } else { "INSERT, because local_infile is off" };
        let about =
            format!("{version}, InnoDB, innodb_flush_log_at_trx_commit {flush}: {synced}; stores by {way}");
        Ok((sink, about))
    }

    pub(super) async fn connect(&self) -> Result<MySqlConnection, SinkError> {
        let conn = Conn::new(self.options.clone()).await.map_err(|error| failed(&error))?;
        Ok(self.over(conn))
    }

    fn over(&self, conn: Conn) -> MySqlConnection {
        MySqlConnection { conn, tables: self.tables.clone(), loads: self.loads }
    }
}

fn options(address: &Address) -> Result<Opts, Error> {
    let transport = Transport::new(address, PORT).map_err(|error| Error::Unreached(error.to_string()))?;
    let options = OptsBuilder::default()
        .ip_or_hostname(&address.host)
        .socket(address.socket.as_ref())
        .tcp_port(address.port.unwrap_or(PORT))
        .user(address.user.as_ref())
        .pass(address.password.as_ref().map(Secret::reveal))
        .db_name(Some(&address.path))
        .tcp_nodelay(true)
        // otherwise the driver goes to a socket file that the server names
        .prefer_socket(false)
        // what does not fit is an error, and moments are those of UTC
        .init(vec![
            "SET autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'",
        ]);
    #[cfg(feature = "tls")]
    let options = options.ssl_opts(transport.security().map(Security::mysql));
    #[cfg(not(feature = "tls"))]
    drop(transport);
    Ok(options.into())
}

impl MySqlConnection {
    async fn make_tables(&mut self) -> Result<(), DriverError> {
        // names have no blanks at their ends, and are compared by their bytes
        let name = "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL";
        let text = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
        let Tables { entries, refused } = &self.tables;
        self.conn
            .query_drop(format!(
                "CREATE TABLE IF NOT EXISTS {entries} (
                    user_name {name}, id {name}, received_at DATETIME(6) NOT NULL, logged_at DATETIME(6) NOT NULL,
                    level VARCHAR(8) CHARACTER SET ascii NOT NULL, application VARCHAR(128) {text} NOT NULL,
                    message MEDIUMTEXT {text} NOT NULL, attributes MEDIUMTEXT {text}, PRIMARY KEY (user_name, id)
                ) ENGINE = InnoDB"
            ))
            .await?;
        self.conn
            .query_drop(format!(
                "CREATE TABLE IF NOT EXISTS {refused} (
                    user_name {name}, id {name}, content CHAR(32) CHARACTER SET ascii NOT NULL,
                    received_at DATETIME(6) NOT NULL, reason VARCHAR(4000) CHARACTER SET ascii NOT NULL,
                    entry MEDIUMTEXT CHARACTER SET ascii NOT NULL, PRIMARY KEY (user_name, id, content)
                ) ENGINE = InnoDB"
            ))
            .await
    }

    /// What makes the table of entries unfit, if something does: `(user_name, id)` is no key of it, it is not InnoDB's,
    /// or a column would change what is stored in it.
    async fn fault(&mut self) -> Result<Option<String>, DriverError> {
        let columns: Vec<String> = self
            .conn
            .exec(
                "SELECT group_concat(lower(s.column_name) ORDER BY s.seq_in_index)
                 FROM information_schema.statistics s JOIN information_schema.tables t
                    ON t.table_schema = s.table_schema AND t.table_name = s.table_name
                 WHERE s.table_schema = database() AND s.table_name = ? AND s.non_unique = 0 AND t.engine = 'InnoDB'
                 GROUP BY s.index_name",
                (&self.tables.entries,),
            )
            .await?;
        if !columns.iter().any(|columns| columns == "user_name,id") {
            return Ok(Some(
                "it has no key (user_name, id) of its own, by which repeats are known, or is not in InnoDB"
                    .to_owned(),
            ));
        }
        let changed: Option<(String, String)> = self
            .conn
            .exec_first(
                "SELECT column_name, column_type FROM information_schema.columns
                 WHERE table_schema = database() AND table_name = ?
                    AND (column_name IN ('user_name', 'id') AND collation_name NOT LIKE '%\\_bin'
                        OR column_name IN ('application', 'message', 'attributes')
                            AND coalesce(character_set_name, '') <> 'utf8mb4'
                        OR column_name IN ('received_at', 'logged_at') AND coalesce(datetime_precision, 0) < 6)
                 ORDER BY ordinal_position",
                (&self.tables.entries,),
            )
            .await?;
        Ok(changed.map(|(column, kind)| {
            format!(
                "its column {column}, {kind}, would change what is stored or take two that differ for one: names need a \
                 collation that ends in _bin, texts utf8mb4 and no JSON, and moments microseconds"
            )
        }))
    }

    pub(super) async fn store(
        &mut self,
        entries: &[Queued<'_>],
        on_conflict: OnConflict,
    ) -> Result<Stored, SinkError> {
        if self.loads && entries.len() >= LOADED {
            match self.load(entries).await {
                Ok(true) => return Ok(Stored { new: entries.len() as u64, ..Stored::default() }),
                Ok(false) => {}
                Err(DriverError::Server(said)) if NOT_LOADED.contains(&said.code) => self.loads = false,
                Err(error) => return Err(failed(&error)),
            }
        }
        let alone = entries.len() == 1;
        let stored = async {
            if !alone {
                self.conn.query_drop("BEGIN").await?;
            }
            let new = self.insert(entries).await?;
            let mut conflicts = Vec::new();
            if new < entries.len() as u64 {
                conflicts = self.conflicts(entries).await?;
                if on_conflict == OnConflict::Keep {
                    for place in &conflicts {
                        if let Some(entry) = entries.get(*place) {
                            self.refuse(&Refused::new(entry, CONFLICT)).await?;
                        }
                    }
                }
            }
            if !alone {
                self.conn.query_drop("COMMIT").await?;
            }
            let repeated = (entries.len() as u64).saturating_sub(new + conflicts.len() as u64);
            Ok(Stored { new, repeated, conflicts })
        };
        let stored: Result<Stored, DriverError> = stored.await;
        if stored.is_err() && !alone {
            // the connection may be lost, and then there is nothing to roll back
            let _ = self.conn.query_drop("ROLLBACK").await;
        }
        stored.map_err(|error| failed(&error))
    }

    /// Loads entries, all of which are new. Returns whether they were: otherwise nothing is changed.
    async fn load(&mut self, entries: &[Queued<'_>]) -> Result<bool, DriverError> {
        let rows = Bytes::from(rows(entries));
        // in pieces that every server takes
        let pieces: Vec<_> = (0..rows.len())
            .step_by(PIECE)
            .map(|begin| Ok(rows.slice(begin..rows.len().min(begin + PIECE))))
            .collect();
        self.conn.query_drop("BEGIN").await?;
        self.conn.set_infile_handler(async { Ok(stream::iter(pieces).boxed()) });
        let statement = format!(
            r"LOAD DATA LOCAL INFILE 'entries' INTO TABLE {} CHARACTER SET utf8mb4
              FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'
              (user_name, id, received_at, logged_at, level, application, message, attributes)",
            self.tables.entries
        );
        let loaded = self.conn.query_drop(statement).await;
        let are_new = loaded.is_ok()
            && self.conn.affected_rows() == entries.len() as u64
            && self.conn.get_warnings() == 0;
        self.conn.query_drop(if are_new { "COMMIT" } else { "ROLLBACK" }).await?;
        loaded.map(|()| are_new)
    }

    /// Inserts what is not there yet, and returns how many those were.
    async fn insert(&mut self, entries: &[Queued<'_>]) -> Result<u64, DriverError> {
        let (mut new, mut rest) = (0, entries);
        while let Some(rows) = ROWS.into_iter().find(|rows| *rows <= in_a_statement(rest)) {
            let (some, others) = rest.split_at(rows);
            rest = others;
            let statement = format!(
                "INSERT INTO {} (user_name, id, received_at, logged_at, level, application, message, attributes) VALUES \
                 {} ON DUPLICATE KEY UPDATE id = {0}.id",
                self.tables.entries,
                many("(?, ?, ?, ?, ?, ?, ?, ?)", rows),
            );
            let mut values = Vec::with_capacity(rows * VALUES);
            for Queued { user, received, entry } in some {
                values.extend([
                    Value::from(*user),
                    Value::from(&*entry.id),
                    moment(*received),
                    moment(entry.timestamp),
                    Value::from(entry.level.name()),
                    Value::from(&*entry.application),
                    Value::from(&*entry.message),
                    Value::from(entry.attributes),
                ]);
            }
            self.conn.exec_drop(statement, Params::Positional(values)).await?;
            new += self.conn.affected_rows();
        }
        Ok(new)
    }

    /// The places of entries whose ids are stored with other content.
    async fn conflicts(&mut self, entries: &[Queued<'_>]) -> Result<Vec<usize>, DriverError> {
        let statement = format!(
            // bytes are compared: blanks at the end of a text count, which they do not by its collation
            "SELECT count(*) FROM {} WHERE user_name = ? AND id = ? AND logged_at = ? AND level = ? \
             AND CAST(application AS BINARY) = CAST(? AS BINARY) AND CAST(message AS BINARY) = CAST(? AS BINARY) \
             AND CAST(attributes AS BINARY) <=> CAST(? AS BINARY)",
            self.tables.entries
        );
        let statement = self.conn.prep(statement).await?;
        let mut conflicts = Vec::new();
        for (place, Queued { user, entry, .. }) in entries.iter().enumerate() {
            let values = vec![
                Value::from(*user),
                Value::from(&*entry.id),
                moment(entry.timestamp),
                Value::from(entry.level.name()),
                Value::from(&*entry.application),
                Value::from(&*entry.message),
                Value::from(entry.attributes),
            ];
            let same: Option<u64> = self.conn.exec_first(&statement, Params::Positional(values)).await?;
            if same != Some(1) {
                conflicts.push(place);
            }
        }
        Ok(conflicts)
    }

    async fn refuse(&mut self, refused: &Refused) -> Result<(), DriverError> {
        let Refused { user, id, content, received, reason, entry } = refused;
        let statement = format!(
            "INSERT INTO {} (user_name, id, content, received_at, reason, entry) VALUES (?, ?, ?, ?, ?, ?)
             ON DUPLICATE KEY UPDATE id = {0}.id",
            self.tables.refused
        );
        let values = vec![
            Value::from(user),
            Value::from(id),
            Value::from(content),
            moment(*received),
            Value::from(reason),
            Value::from(entry),
        ];
        self.conn.exec_drop(statement, Params::Positional(values)).await
    }

    pub(super) async fn keep_refused(&mut self, refused: &Refused) -> Result<(), SinkError> {
        self.refuse(refused).await.map_err(|error| failed(&error))
    }
}

/// Entries as `LOAD DATA` reads them: a line each, with tabs between, and backslashes before what would be one of these.
fn rows(entries: &[Queued<'_>]) -> Vec<u8> {
    let mut rows = Vec::with_capacity(entries.iter().map(|queued| queued.entry.message.len() + 200).sum());
    for Queued { user, received, entry } in entries {
        let (received, logged) = (Written(*received), Written(entry.timestamp));
        // writing into memory cannot fail; these have none of the characters that are escaped
        let _ = write!(rows, "{user}\t{}\t{received}\t{logged}\t{}\t", entry.id, entry.level.name());
        escape(&entry.application, &mut rows);
        rows.push(b'\t');
        escape(&entry.message, &mut rows);
        rows.push(b'\t');
        match entry.attributes {
            Some(attributes) => escape(attributes, &mut rows),
            None => rows.extend(br"\N"),
        }
        rows.push(b'\n');
    }
    rows
}

fn escape(text: &str, rows: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'\t' => rows.extend(br"\t"),
            b'\n' => rows.extend(br"\n"),
            b'\\' => rows.extend(br"\\"),
            other => rows.push(other),
        }
    }
}

/// How many of these rows a statement takes: at least one, if there is one.
fn in_a_statement(rows: &[Queued<'_>]) -> usize {
    let mut bytes = 0;
    let fit = rows.iter().take_while(|Queued { entry, .. }| {
        bytes += 300 + entry.application.len() + entry.message.len() + entry.attributes.map_or(0, str::len);
        bytes <= STATEMENT
    });
    fit.count().max(rows.len().min(1))
}

/// A moment in UTC, as a DATETIME is written.
struct Written(i64);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_microsecond(self.0).unwrap_or_default();
        let moment = jiff::tz::Offset::UTC.to_datetime(moment);
        write!(
            f,
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}",
            moment.year(),
            moment.month(),
            moment.day(),
            moment.hour(),
            moment.minute(),
            moment.second(),
            self.0.rem_euclid(1_000_000)
        )
    }
}

/// The same text so many times, with commas between.
fn many(text: &str, times: usize) -> String {
    vec![text; times].join(", ")
}

/// A moment in UTC.
fn moment(micros: i64) -> Value {
    let moment =
        jiff::Timestamp::from_microsecond(micros).unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC);
    // each is in its range: the years of entries are 1970 to 9998
    let part = |value: i8| u8::try_from(value).unwrap_or(0);
    Value::Date(
        u16::try_from(moment.year()).unwrap_or(0),
        part(moment.month()),
        part(moment.day()),
        part(moment.hour()),
        part(moment.minute()),
        part(moment.second()),
        u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0),
    )
}

/// Whether the data is at fault, or the server.
fn failed(error: &DriverError) -> SinkError {
    // data that is too long, out of range, of a wrong character set, or breaks a constraint, also by a trigger that
    // says so (MySQL's server errors)
    const DATA: [u16; 11] = [1048, 1216, 1264, 1292, 1366, 1406, 1452, 1525, 1644, 3819, 4025];
    // a packet, or the time of a statement in MariaDB and MySQL
    const MUCH: [u16; 3] = [1153, 1969, 3024];
    match error {
        DriverError::Server(said) if DATA.contains(&said.code) => SinkError::Refused(words(error)),
        DriverError::Server(said) if MUCH.contains(&said.code) => SinkError::TooMuch(words(error)),
        DriverError::Driver(DriverFault::PacketTooLarge) => SinkError::TooMuch(words(error)),
        _ => SinkError::Away(words(error)),
    }
}

fn words(error: &DriverError) -> String {
    match error {
        DriverError::Server(said) => format!("{} ({})", said.message, said.code),
        // the driver says it once for each of its layers
        other => other.to_string().replace("Input/output error: ", ""),
    }
}
