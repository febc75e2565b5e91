//! The meaning of errors: for the operation that met them, and for the user.

use std::{error::Error as _, io};

use acidtest_model::{Address, with_remedy};
use acidtest_transport::{TlsError, demand};
use acidtest_workloads::{Attempt, Fault};
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::protocol::{Error, OF_THE_WAIT, ServerError};

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A client's reason.
    #[error(transparent)]
    Client(#[from] Error),
    /// The driver's reason.
    #[error("{}", words(.0))]
    Driver(#[from] tokio_postgres::Error),
    /// Nothing came about in time.
    #[error("{0}")]
    Late(io::Error),
    /// It is one of several servers, and takes no writes: what it is.
    #[error("it takes no writes: it is {0}")]
    ReadOnly(&'static str),
    /// None of several servers takes writes: the address of each, and why not.
    #[error("none of {} servers takes writes: {}", .0.len(), each(.0))]
    Nobody(Vec<(String, ConnectError)>),
}

fn each(failed: &[(String, ConnectError)]) -> String {
    let each: Vec<String> = failed.iter().map(|(server, error)| format!("{server}: {error}")).collect();
    each.join("; ")
}

impl ConnectError {
    /// The code by which a server refused; of several servers, the first.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Client(error) => error.answer().map(|answer| &answer.code),
            Self::Driver(error) => error.code(),
            Self::Nobody(failed) => failed.iter().find_map(|(_, error)| error.code()),
            Self::Late(_) | Self::ReadOnly(_) => None,
        }
    }
}

/// How far an operation had got when it failed, which tells whether it may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// Nothing sent could take effect: reads, and writes in a transaction not told to commit.
    Nothing,
    /// A write that is a transaction by itself, or a COMMIT, was sent.
    Commit,
}

/// How an error ends the operation that met it.
///
/// An error that PostgreSQL reports for a statement proves that the statement, and with it the transaction, had no effect:
/// past the moment of commit it reports none, it panics. But the error may be that of a proxy, or of another server of this
/// protocol, which has passed on or committed what it answers so. So one that answers a commit proves something only by a
/// code that PostgreSQL has for a statement, and that nothing else is known to use for anything else.
///
/// A success with the warning that the commit has not waited for its replicas is no acknowledgement: it is there, but only as long as
/// its leader is.
#[must_use]
pub fn attempt(error: &Error, sent: SendState) -> Attempt {
    let words = error.to_string();
    match error {
        Error::NotSent(_) => lost(SendState::Nothing, words),
        Error::Answered(answer) if answer.committed_alone => unknown(answer, words),
        // a standby may end a session whose transaction is in the way of the log
        Error::Answered(answer) if is_conflict(&answer.code) && !answer.ends_connection => Attempt::Conflict,
        Error::Answered(answer) if sent == SendState::Nothing || proves_no_effect(answer) => {
            Attempt::Failed(fault(answer, words))
        }
        Error::Answered(answer) => unknown(answer, words),
        Error::Lost(_) => lost(sent, words),
    }
}

/// Whether a notice warns that a commit has not waited for its replicas, as [`ServerError::committed_alone`] has it.
pub(crate) fn is_alone(notice: &DbError) -> bool {
    notice.parsed_severity() == Some(Severity::Warning) && notice.routine() == Some(OF_THE_WAIT)
}

/// How an operation ends that may have taken effect, or have lost it by now.
fn unknown(answer: &ServerError, words: String) -> Attempt {
    Attempt::Unknown(Fault { connection_lost: true, ..fault(answer, words) })
}

/// What an error means for the connection.
fn fault(answer: &ServerError, words: String) -> Fault {
    if turns_away(answer) {
        Fault::turned_away(words)
    } else if ends_connection(answer) {
        Fault::lost(words)
    } else {
        Fault::answered(words)
    }
}

/// How an operation ends whose connection is gone: its outcome is unknown if a commit had been sent.
#[must_use]
pub fn lost(sent: SendState, words: String) -> Attempt {
    match sent {
        SendState::Nothing => Attempt::Failed(Fault::lost(words)),
        SendState::Commit => Attempt::Unknown(Fault::lost(words)),
    }
}

fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::LOCK_NOT_AVAILABLE]
        .contains(code)
}

/// Whether an error says that a statement is refused because of other transactions, or by a constraint that they may have come
/// to first.
pub(crate) fn is_refusal(code: &SqlState) -> bool {
    is_conflict(code) || code.code().starts_with("23")
}

/// The classes of SQLSTATEs that are of a statement, and so come before a commit.
///
/// Among the others are those that come when a commit has been made: class XX is what `YugabyteDB` makes of a write that a node
/// did not answer in time (`FetchErrorCode` in `yb_pg_errcodes`, issue #22096), and what Pgpool-II and Supavisor say for
/// themselves; 57014 is what `CockroachDB` puts in the place of any other answer when a statement's time is over
/// (`conn_executor_exec.go`); class 58 is of the system, such as of the disk that holds the log, and what `PgCat` says.
const OF_A_STATEMENT: [&str; 13] = [
    "0A", // not supported
    "21", // too many rows or too few
    "22", // the values
    "23", // the constraints
    "25", // the transaction has failed before, or is read-only
    "26", // no such prepared statement
    "3D", // no such database
    "3F", // no such schema
    "42", // syntax, names and rights
    "44", // a view's check
    "53", // no memory or disk is left to carry it out
    "54", // it is too complex
    "P0", // raised by a function
];

/// Whether an error in the place of a commit's answer proves that there was none.
fn proves_no_effect(answer: &ServerError) -> bool {
    !ends_connection(answer) && OF_A_STATEMENT.iter().any(|class| answer.code.code().starts_with(class))
}

/// Whether the server serves nobody for now, or writes nothing: it goes down or comes up (class 57P), or is a standby (25006).
fn turns_away(answer: &ServerError) -> bool {
    answer.code == SqlState::READ_ONLY_SQL_TRANSACTION || answer.code.code().starts_with("57P")
}

/// Whether the server, or a proxy before it, says that the connection is of no more use, or that it does not know the end.
pub(crate) fn ends_connection(answer: &ServerError) -> bool {
    let code = answer.code.code();
    let unsettled = [SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN.code()].contains(&code);
    // class 08: connection exceptions; class 57P: the server goes down or comes up
    answer.ends_connection || unsettled || code.starts_with("08") || code.starts_with("57P")
}

/// The message of a driver's error with all its causes, which the driver's own message leaves out.
#[must_use]
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(each) = cause {
        words = format!("{words}: {each}");
        cause = each.source();
    }
    words
}

/// The remedy where a login fails, or lacks something.
pub(crate) const LOGIN: &str =
    "check user and password: postgres://USER:PASSWORD@HOST:PORT/DATABASE, or ACIDTEST_PASSWORD";

/// The remedy where the server, the database or the user may have no more connections (53300).
const MORE_CONNECTIONS: &str = "ask for fewer clients or connections, or raise the server's max_connections; of the user's or the \
                                database's own limit: CONNECTION LIMIT -1";

/// The remedy where it is `PgBouncer` that takes no more clients.
const MORE_CLIENTS: &str = "ask for fewer clients or connections, or raise PgBouncer's max_client_conn, and its limit of open files (ulimit -n) with it";

/// Why a client could not connect, with the remedy if the server, or `PgBouncer` in front of it, takes no more of them.
pub(crate) fn client_words(error: &ConnectError) -> String {
    with_remedy(error, limit_reached(error.code(), &error.to_string()))
}

/// The remedy where an error says that there may be no more connections. `PgBouncer` has no code for that, but names the setting.
fn limit_reached(code: Option<&SqlState>, said: &str) -> Option<&'static str> {
    if code == Some(&SqlState::TOO_MANY_CONNECTIONS) {
        return Some(MORE_CONNECTIONS);
    }
    said.contains("(max_client_conn)").then_some(MORE_CLIENTS)
}

/// Why a connection could not be opened, and how the user can mend that: cause and remedy.
#[must_use]
pub fn unreachable(error: &ConnectError, address: &Address) -> (String, String) {
    let cause = error.to_string();
    let remedy = match error {
        _ if limit_reached(None, &cause).is_some() => MORE_CLIENTS.to_owned(),
        ConnectError::Late(_) => {
            format!("check {}, and that the server is not stopped or overloaded", address.to_check())
        }
        ConnectError::Client(_) => remedy(error.code(), true, address),
        ConnectError::ReadOnly(_) => "promote it, or give the address of its leader".to_owned(),
        // a server that answers is read-only, or lets nobody in for a reason that holds for the others, too
        ConnectError::Nobody(_) => match error.code() {
            Some(code) => remedy(Some(code), true, address),
            None => "start the one that leads, or promote another".to_owned(),
        },
        ConnectError::Driver(error) => {
            let tls = match acidtest_transport::explain(error, address) {
                // these are the driver's words for a server that answers that it has no TLS
                None if words(error).contains("server does not support TLS") => Some(TlsError::absent()),
                known => known,
            };
            if let Some(TlsError { cause, remedy }) = tls {
                return (cause, remedy);
            }
            let network = error.source().is_some_and(<dyn std::error::Error>::is::<io::Error>);
            remedy(error.code(), network, address)
        }
    };
    (cause, remedy)
}

/// The remedy where the server has answered with this code; or with none, because of the `network` or of something else.
fn remedy(code: Option<&SqlState>, network: bool, address: &Address) -> String {
    let Some(code) = code else {
        return match (network, &address.password) {
            (false, None) => LOGIN.to_owned(),
            _ => format!("start the server, or check {}", address.to_check()),
        };
    };
    if *code == SqlState::INVALID_PASSWORD {
        LOGIN.to_owned()
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        // a server that lets the user in by TLS alone says "no encryption"
        match address.tls {
            Some(_) => format!("{LOGIN}; the server's pg_hba.conf must let the user in from here"),
            None => format!(
                "{LOGIN}; the server's pg_hba.conf must let the user in from here. If it does so by TLS alone, {}",
                demand(address)
            ),
        }
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        "create the database, or name another after the address's last slash".to_owned()
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        MORE_CONNECTIONS.to_owned()
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        "wait until the server is up; of a standby that lets nobody read (hot_standby=off), give the address of its primary"
            .to_owned()
    } else {
        "see the server's log".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(severity: &str, code: &str) -> Error {
        Error::Answered(Box::new(ServerError {
            code: SqlState::from_code(code),
            message: "no".to_owned(),
            constraint: None,
            ends_connection: severity != "ERROR",
            committed_alone: false,
        }))
    }

    #[test]
    fn a_server_that_takes_no_more_clients_has_its_remedy() {
        let said = |code| client_words(&server("FATAL", code).into());
        assert_eq!(said("53300").matches("remedy: ask for fewer clients").count(), 1);
        assert!(!said("28P01").contains("remedy"));
    }

    #[test]
    fn only_what_is_proved_to_have_had_no_effect_is_a_failure() {
        let ended = |severity, code, sent| match attempt(&server(severity, code), sent) {
            Attempt::Failed(fault) => ("failed", fault.connection_lost),
            Attempt::Unknown(fault) => ("unknown", fault.connection_lost),
            other => panic!("{other:?}"),
        };
        for code in ["23505", "22012", "53100", "25P02", "42501", "26000", "P0001"] {
            for sent in [SendState::Nothing, SendState::Commit] {
                assert_eq!(ended("ERROR", code, sent), ("failed", false), "{code}");
            }
        }
        for (severity, code) in
            [("FATAL", "57P01"), ("FATAL", "08P01"), ("ERROR", "08006"), ("ERROR", "40003")]
        {
            assert_eq!(ended(severity, code, SendState::Nothing), ("failed", true), "{code}");
            assert_eq!(ended(severity, code, SendState::Commit), ("unknown", true), "{code}");
        }
        // by PostgreSQL's kin and proxies, and by nobody that is known
        for code in ["XX000", "58030", "57014", "58000", "HY000", "99999", "40002", "2D000", "F0001"] {
            assert_eq!(ended("ERROR", code, SendState::Nothing), ("failed", false), "{code}");
            assert_eq!(ended("ERROR", code, SendState::Commit), ("unknown", true), "{code}");
        }
        for (severity, code) in [("ERROR", "25006"), ("FATAL", "57P03"), ("FATAL", "57P01")] {
            let Attempt::Failed(fault) = attempt(&server(severity, code), SendState::Nothing) else {
                panic!()
            };
            assert!(fault.connection_lost && fault.turned_away, "{code}");
        }
        // a standby writes nothing
        let standby = attempt(&server("ERROR", "25006"), SendState::Commit);
        assert!(matches!(standby, Attempt::Failed(fault) if fault.turned_away));
        for code in ["40001", "40P01", "55P03"] {
            assert_eq!(attempt(&server("ERROR", code), SendState::Commit), Attempt::Conflict, "{code}");
            assert_eq!(ended("FATAL", code, SendState::Nothing), ("failed", true), "{code}");
            assert_eq!(ended("FATAL", code, SendState::Commit), ("unknown", true), "{code}");
        }
    }
}
