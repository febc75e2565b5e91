//! The meaning of errors: for the operation that met them, and for the user.

use std::{error::Error as _, ops::Range};

use acidtest_model::{Address, with_remedy};
use acidtest_transport::{TlsError, demand};
use acidtest_workloads::{Attempt, Fault, interactive::Reply};
use mysql_async::DriverError;

use crate::{
    ConnectError,
    product::Product,
    protocol::{Error, OpenError, ServerError},
};

/// Errors that tell of other transactions in the way: deadlock (1213), lock wait timeout (1205), and a row
/// changed since the snapshot (1020).
const CONFLICTS: [u16; 3] = [1213, 1205, 1020];

/// Errors by which the server refuses a statement because of others that do not end an operation as a conflict: a table was changed
/// since the snapshot (1412), named locks that wait for each other (3058), a lock that is not waited for (3572; `MariaDB` says 1205),
/// a check of the table's (3819; `MariaDB` has a code of class 23).
const REFUSALS: [u16; 4] = [1412, 3058, 3572, 3819];

/// SQLSTATE class of constraints.
const CONSTRAINT: &str = "23";

/// SQLSTATE of a transaction that was rolled back in favour of another.
const ROLLED_BACK: &str = "40001";

/// Error 3101: a member of a replication group has rolled the transaction back during its commit, in favour of another.
const ROLLED_BACK_BY_GROUP: u16 = 3101;

/// Errors after which the connection is better given up, as they may come when a statement has committed: the server
/// goes down (1053), the connection is ended (1080, 1927), the statement is interrupted (1317, 1969; 1907 where `ProxySQL`
/// says it, 3024 by its time limit), the binary log or the commit itself fails (1026, 1180, 1598), the node has left its
/// cluster (1047), something that has no number (1105, for which Vitess has several).
const UNSETTLED: [u16; 12] = [1026, 1047, 1053, 1080, 1105, 1180, 1317, 1598, 1907, 1927, 1969, 3024];

/// Errors of a client: what a proxy answers that has lost its own connection to the server (2013, say).
const OF_CLIENTS: Range<u16> = 2000..3000;

/// SQLSTATE class of connections that fail.
const CONNECTION: &str = "08";

/// Errors before anything is written: the engine lacks the operation (1031), the table or the server is read-only
/// (1036, 1290, 1836), the table is full (1114), the record is too long (1118), the arguments of a prepared statement are wrong
/// (1210), or there is no such statement (1243), the session itself has locked out writes (1223).
const EARLY: [u16; 9] = [1031, 1036, 1114, 1118, 1210, 1223, 1243, 1290, 1836];

/// SQLSTATE classes of errors before anything is written: values, keys, rights and syntax.
const EARLY_CLASSES: [&str; 3] = ["22", "23", "42"];

/// Errors for which an engine with transactions rolls back what the statement has written: no memory is left (1037, 1038, 1041),
/// nor room for locks (1206), a column has no value or a wrong one (1364, 1366), no next id is to be had (1467), a lock that is
/// not waited for (3572), a check of the table's (3819).
const ROLLS_BACK: [u16; 9] = [1037, 1038, 1041, 1206, 1364, 1366, 1467, 3572, 3819];

/// SQLSTATE classes of such errors: too many rows, a transaction that only reads, a view's check, one that a procedure has raised.
const CLASSES_THAT_ROLL_BACK: [&str; 4] = ["21", "25", "44", "45"];

/// Error 1836: the server only reads.
const READ_ONLY: u16 = 1836;
/// Error 1290: an option of the server's forbids the statement, which may be the one by which it only reads.
const FORBIDDEN_BY_OPTION: u16 = 1290;
/// Error 1047 of class 08: a node of a Galera cluster is not up to date.
const NODE_NOT_READY: u16 = 1047;

/// Error 1062: a record with this key is there already.
pub(crate) const DUPLICATE: u16 = 1062;

/// How far an operation had got when it failed, which tells whether it may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// Nothing sent could take effect: reads, and writes in a transaction not told to commit.
    Nothing,
    /// A write that is a transaction by itself, or a call that commits, was sent.
    Write,
    /// A write was sent to an engine that cannot undo a statement that fails in the middle.
    InPlace,
    /// A COMMIT was sent.
    Commit,
}

/// How an error ends the operation that met it.
pub(crate) fn attempt(error: &Error, sent: SendState) -> Attempt {
    let words = error.to_string();
    match error {
        Error::NotSent(_) => lost(SendState::Nothing, words),
        Error::Answered(answer) if is_conflict(answer, sent) => Attempt::Conflict,
        Error::Answered(answer) if proves_no_effect(answer, sent) => Attempt::Failed(fault(answer, words)),
        Error::Answered(answer) => Attempt::Unknown(Fault { connection_lost: true, ..fault(answer, words) }),
        Error::Lost(_) => lost(sent, words),
    }
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

/// Whether the server writes nothing for now, or serves nobody. Options keep their names in every language.
fn turns_away(answer: &ServerError) -> bool {
    match answer.code {
        READ_ONLY => true,
        FORBIDDEN_BY_OPTION => {
            ["read-only", "read_only"].iter().any(|option| answer.message.contains(option))
        }
        NODE_NOT_READY => answer.state.starts_with(CONNECTION),
        _ => false,
    }
}

/// Whether the server, asked by the driver, takes no writes.
pub(crate) fn is_read_only(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(answer) if turns_away(&answer.into()))
}

/// Whether the connection is of no more use.
fn ends_connection(answer: &ServerError) -> bool {
    UNSETTLED.contains(&answer.code)
        || OF_CLIENTS.contains(&answer.code)
        || answer.state.starts_with(CONNECTION)
}

/// Whether an error proves that the operation had no effect. The error may be that of a proxy, which has passed on what it
/// answers so, and has numbers of its own: one that answers a write proves something only by a code that the server has for
/// what comes before a commit.
fn proves_no_effect(answer: &ServerError, sent: SendState) -> bool {
    match sent {
        SendState::Nothing => true,
        SendState::Write => !ends_connection(answer) && (is_early(answer) || rolls_back(answer)),
        SendState::InPlace => !ends_connection(answer) && is_early(answer),
        SendState::Commit => false,
    }
}

/// What an error means for a script whose statement met it: one that is no COMMIT is within a transaction that is rolled back next,
/// or a transaction by itself, which the server has rolled back if it says so without giving up the connection.
pub(crate) fn reply(error: &Error, is_commit: bool) -> Reply {
    let words = error.to_string();
    let sent = if is_commit { SendState::Commit } else { SendState::Nothing };
    match error {
        Error::NotSent(_) | Error::Lost(_) => Reply::Unknown(words),
        Error::Answered(answer) if is_conflict(answer, sent) || is_refusal(answer) => Reply::Refused(words),
        Error::Answered(answer) if ends_connection(answer) || is_commit && !is_early(answer) => {
            Reply::Unknown(words)
        }
        Error::Answered(_) => Reply::Failed(words),
    }
}

fn is_refusal(answer: &ServerError) -> bool {
    answer.state.starts_with(CONSTRAINT) || REFUSALS.contains(&answer.code)
}

/// Whether an error comes before an engine without a log has touched the record.
fn is_early(answer: &ServerError) -> bool {
    is_of(answer, &EARLY_CLASSES) || EARLY.contains(&answer.code)
}

fn rolls_back(answer: &ServerError) -> bool {
    is_of(answer, &CLASSES_THAT_ROLL_BACK) || ROLLS_BACK.contains(&answer.code)
}

fn is_of(answer: &ServerError, classes: &[&str]) -> bool {
    classes.iter().any(|class| answer.state.starts_with(class))
}

/// Whether the operation lost against another transaction. A COMMIT that fails has rolled back for certain only
/// where the server says so.
fn is_conflict(answer: &ServerError, sent: SendState) -> bool {
    answer.state == ROLLED_BACK
        || answer.code == ROLLED_BACK_BY_GROUP
        || (sent != SendState::Commit && CONFLICTS.contains(&answer.code))
}

/// How an operation ends whose connection is gone: its outcome is unknown if a write or commit had been sent.
pub(crate) fn lost(sent: SendState, words: String) -> Attempt {
    match sent {
        SendState::Nothing => Attempt::Failed(Fault::lost(words)),
        SendState::Write | SendState::InPlace | SendState::Commit => Attempt::Unknown(Fault::lost(words)),
    }
}

/// The innermost cause of an error of the driver's, since its own message repeats the causes of every layer; the server's
/// errors with their code.
pub(crate) fn words(error: &mysql_async::Error) -> String {
    if let mysql_async::Error::Server(answer) = error {
        return ServerError::from(answer).to_string();
    }
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(each) = cause {
        words = each.to_string();
        cause = each.source();
    }
    words
}

/// Error 3159: the server takes connections with TLS alone.
const INSECURE: u16 = 3159;

/// Why a connection could not be opened, and how the user can mend that.
pub(crate) fn unreachable(error: &ConnectError, product: Product, address: &Address) -> (String, String) {
    let tls = match error {
        ConnectError::Driver(mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer)) => {
            Some(TlsError::absent())
        }
        ConnectError::Driver(error) => acidtest_transport::explain(error, address),
        ConnectError::Client(_) => None,
    };
    let tls = tls.or_else(|| (error.code() == Some(INSECURE)).then(|| TlsError::demanded(address)));
    match tls {
        Some(TlsError { cause, remedy }) => (cause, remedy),
        None => (error.to_string(), remedy(error, product, address)),
    }
}

/// Why a client could not connect, with the remedy if the server takes no more of them.
pub(crate) fn client_words(error: &ConnectError) -> String {
    with_remedy(error, error.code().and_then(limit_reached))
}

/// The remedy where an error says that there may be no more connections.
fn limit_reached(code: u16) -> Option<&'static str> {
    Some(match code {
        // ER_CON_COUNT_ERROR, and ER_TOO_MANY_USER_CONNECTIONS of the server's max_user_connections
        1040 => "ask for fewer clients, or raise the server's max_connections",
        1203 => "ask for fewer clients, or raise the server's max_user_connections",
        // ER_USER_LIMIT_REACHED: one that was granted
        1226 => {
            "raise what the user was granted (ALTER USER ... WITH MAX_USER_CONNECTIONS 0, or another that the error names)"
        }
        _ => return None,
    })
}

fn remedy(error: &ConnectError, product: Product, address: &Address) -> String {
    let remedy = match (error.code(), error) {
        (Some(1045 | 1698), _) => {
            // so does MariaDB answer where it demands TLS of everybody
            let tls = match address.tls {
                None => format!("; if TLS is demanded, {}", demand(address)),
                Some(_) => String::new(),
            };
            return format!(
                "check user and password: {}://USER:PASSWORD@HOST:PORT, or ACIDTEST_PASSWORD{tls}",
                product.scheme()
            );
        }
        (Some(1044), _) => "let the user use the database, or name another after the address's last slash",
        (Some(1049), _) => "create the database, or name none after the address's last slash",
        (Some(1130), _) => "let the user log in from here",
        (Some(code), _) => limit_reached(code).unwrap_or("see the server's log"),
        (None, ConnectError::Client(OpenError::Login(_))) => match product {
            Product::MariaDb => "let the user log in by mysql_native_password",
            Product::MySql => {
                "check the user's name, or let the user log in by caching_sha2_password (MySQL asks a user that it does \
                 not have for any login)"
            }
        },
        (None, _) => return format!("start the server, or check {}", address.to_check()),
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, state: &str) -> Error {
        Error::Answered(Box::new(ServerError { code, message: "no".to_owned(), state: state.to_owned() }))
    }

    #[test]
    fn a_server_that_takes_no_more_clients_has_its_remedy() {
        let said = |code| client_words(&ConnectError::Client(OpenError::Other(server(code, "08004"))));
        for code in [1040, 1203, 1226] {
            assert_eq!(said(code).matches("\n  remedy: ").count(), 1, "{code}");
        }
        assert!(!said(1045).contains("remedy"));
    }

    #[test]
    fn only_what_is_proved_to_have_had_no_effect_is_a_failure() {
        let closed = Error::Lost("closed".to_owned());
        let full = server(1114, "HY000");
        let down = server(1053, "08S01");
        // so does a proxy say that its own connection to the server is gone
        let gone = server(2013, "HY000");
        let elsewhere = server(1159, "08S01");
        let interrupted = server(1907, "70100");
        let failed = |attempt| matches!(attempt, Attempt::Failed(_));
        let unknown = |attempt| matches!(attempt, Attempt::Unknown(_));
        assert!(failed(attempt(&full, SendState::Nothing)) && failed(attempt(&full, SendState::Write)));
        assert!(unknown(attempt(&full, SendState::Commit)));
        for sent in [SendState::Nothing, SendState::Write, SendState::InPlace, SendState::Commit] {
            assert!(failed(attempt(&Error::NotSent("closed".to_owned()), sent)));
        }
        for error in [closed, down, gone, elsewhere, interrupted] {
            assert!(failed(attempt(&error, SendState::Nothing)));
            assert!(
                unknown(attempt(&error, SendState::Write)) && unknown(attempt(&error, SendState::Commit))
            );
        }
    }

    /// As `ProxySQL` and `MaxScale` have them, and as nobody does.
    #[test]
    fn an_error_of_unknown_origin_proves_nothing_of_a_write() {
        for (code, state) in [
            (9001, "HY000"),
            (9006, "Y0000"),
            (1815, "HY000"),
            (1030, "HY000"),
            (60_000, ""),
            (1158, "HY000"),
        ] {
            let error = server(code, state);
            for sent in [SendState::Write, SendState::InPlace, SendState::Commit] {
                assert!(
                    matches!(attempt(&error, sent), Attempt::Unknown(fault) if fault.connection_lost),
                    "{code}"
                );
            }
            // the transaction is rolled back next
            let read = attempt(&error, SendState::Nothing);
            assert!(matches!(read, Attempt::Failed(fault) if !fault.connection_lost), "{code}");
        }
        for (code, state) in
            [(1364, "HY000"), (3819, "HY000"), (1792, "25006"), (1644, "45000"), (1836, "HY000")]
        {
            assert!(matches!(attempt(&server(code, state), SendState::Write), Attempt::Failed(_)), "{code}");
        }
    }

    #[test]
    fn a_server_that_only_reads_turns_writers_away() {
        let error = |code, state: &str, message: &str| {
            let message = message.to_owned();
            Error::Answered(Box::new(ServerError { code, message, state: state.to_owned() }))
        };
        let option =
            "The MariaDB server is running with the --read-only option so it cannot execute this statement";
        let only_reads = [error(1290, "HY000", option), error(1836, "HY000", "Running in read-only mode")];
        for error in only_reads {
            assert!(matches!(attempt(&error, SendState::Write), Attempt::Failed(fault) if fault.turned_away));
            assert!(
                matches!(attempt(&error, SendState::Commit), Attempt::Unknown(fault) if fault.turned_away)
            );
        }
        let node = error(1047, "08S01", "WSREP has not yet prepared node for application use");
        assert!(matches!(attempt(&node, SendState::Nothing), Attempt::Failed(fault) if fault.turned_away));
        assert!(matches!(attempt(&node, SendState::Write), Attempt::Unknown(fault) if fault.turned_away));
        let other = error(1290, "HY000", "running with the --secure-file-priv option");
        assert!(
            matches!(attempt(&other, SendState::Write), Attempt::Failed(fault) if !fault.connection_lost)
        );
    }

    #[test]
    fn what_an_engine_without_a_log_meets_half_way_is_in_doubt() {
        for (code, state) in [(1062, "23000"), (1142, "42000"), (1114, "HY000")] {
            assert!(
                matches!(attempt(&server(code, state), SendState::InPlace), Attempt::Failed(_)),
                "{code}"
            );
        }
        for code in [1026, 1030, 1034, 1053] {
            assert!(
                matches!(attempt(&server(code, "HY000"), SendState::InPlace), Attempt::Unknown(_)),
                "{code}"
            );
        }
        assert_eq!(attempt(&server(1205, "HY000"), SendState::InPlace), Attempt::Conflict);
    }

    #[test]
    fn a_script_is_told_what_others_cause_and_what_it_causes_itself() {
        let is = |code, state: &str, is_commit| match reply(&server(code, state), is_commit) {
            Reply::Refused(_) => "refused",
            Reply::Failed(_) => "failed",
            Reply::Unknown(_) => "unknown",
            Reply::Rows(_) | Reply::Done(_) => "done",
        };
        for (code, state) in [
            (1213, "40001"),
            (1205, "HY000"),
            (1020, "HY000"),
            (1062, "23000"),
            (1452, "23000"),
            (4025, "23000"),
            (3819, "HY000"),
            (3572, "HY000"),
        ] {
            assert_eq!(is(code, state, false), "refused", "{code}");
        }
        for (code, state) in [(1064, "42000"), (1146, "42S02"), (1193, "HY000"), (1046, "3D000")] {
            assert_eq!(is(code, state, false), "failed", "{code}");
        }
        for (code, state) in [(1317, "70100"), (1053, "08S01"), (1927, "70100"), (2013, "HY000")] {
            assert_eq!(is(code, state, false), "unknown", "{code}");
        }
        assert_eq!(is(1213, "40001", true), "refused");
        assert_eq!(is(1064, "42000", true), "failed");
        // a commit proves nothing else
        assert_eq!(is(1205, "HY000", true), "unknown");
        assert_eq!(is(1180, "HY000", true), "unknown");
        for lost in [Error::Lost("closed".to_owned()), Error::NotSent("closed".to_owned())] {
            assert!(matches!(reply(&lost, false), Reply::Unknown(_)));
        }
    }

    #[test]
    fn losing_to_another_is_a_conflict() {
        for sent in [SendState::Nothing, SendState::Write, SendState::Commit] {
            assert_eq!(attempt(&server(1213, "40001"), sent), Attempt::Conflict);
        }
        assert_eq!(attempt(&server(1205, "HY000"), SendState::Write), Attempt::Conflict);
        assert_ne!(attempt(&server(1205, "HY000"), SendState::Commit), Attempt::Conflict);
    }
}
