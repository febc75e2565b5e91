//! The meaning of errors: for the operation that met them, and for the user.

use std::{error::Error as _, ops::Range};

use acidtest_model::Address;
use acidtest_transport::{TlsError, demand};
use acidtest_workloads::{Attempt, Fault};
use mysql_async::DriverError;

use crate::{
    ConnectError,
    engine::Product,
    protocol::{Error, OpenError, ServerError},
};

/// Errors that tell of other transactions in the way: deadlock (1213), lock wait timeout (1205), and a row
/// changed since the snapshot (1020).
const CONFLICTS: [u16; 3] = [1213, 1205, 1020];

/// SQLSTATE of a transaction that was rolled back in favour of another.
const ROLLED_BACK: &str = "40001";

/// Errors that do not say whether the statement took effect, as they may come when it has committed: the server
/// goes down (1053), the connection is ended (1080, 1927), the statement is interrupted (1317, 1969; 1907 where `ProxySQL`
/// says it, 3024 by its time limit), the binary log or the commit itself fails (1026, 1180, 1598), the node has left its
/// cluster (1047), something that has no number (1105, for which Vitess has several).
const UNSETTLED: [u16; 12] = [1026, 1047, 1053, 1080, 1105, 1180, 1317, 1598, 1907, 1927, 1969, 3024];

/// Errors of a client: what a proxy answers that has lost its own connection to the server (2013, say).
const OF_CLIENTS: Range<u16> = 2000..3000;

/// SQLSTATE class of connections that fail.
const CONNECTION: &str = "08";

/// Errors before anything is written: the engine lacks the operation (1031), the table or the server is read-only
/// (1036, 1290), the table is full (1114), the record is too long (1118).
const EARLY: [u16; 5] = [1031, 1036, 1114, 1118, 1290];

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
        Error::Answered(answer) if is_settled(answer, sent) => Attempt::Failed(Fault::answered(words)),
        Error::Answered(_) | Error::Lost(_) => lost(sent, words),
    }
}

/// Whether an error proves that the operation had no effect.
fn is_settled(answer: &ServerError, sent: SendState) -> bool {
    let settled = !UNSETTLED.contains(&answer.code)
        && !OF_CLIENTS.contains(&answer.code)
        && !answer.state.starts_with(CONNECTION);
    match sent {
        SendState::Nothing | SendState::Write => settled,
        SendState::InPlace => settled && is_early(answer),
        SendState::Commit => false,
    }
}

/// Whether an error comes before an engine without a log has touched the record: SQLSTATE classes 22 (values), 23
/// (keys) and 42 (rights and syntax), or one of [`EARLY`].
fn is_early(answer: &ServerError) -> bool {
    ["22", "23", "42"].iter().any(|class| answer.state.starts_with(class)) || EARLY.contains(&answer.code)
}

/// Whether the operation lost against another transaction. A COMMIT that fails has rolled back for certain only
/// where the server says so.
fn is_conflict(answer: &ServerError, sent: SendState) -> bool {
    answer.state == ROLLED_BACK || (sent != SendState::Commit && CONFLICTS.contains(&answer.code))
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
        (Some(1040 | 1203), _) => "ask for fewer clients, or raise the server's max_connections",
        (Some(1130), _) => "let the user log in from here",
        (Some(_), _) => "see the server's log",
        (None, ConnectError::Client(OpenError::Login(_))) => match product {
            Product::MariaDb => "let the user log in by mysql_native_password",
            Product::MySql => {
                "check the user's name, or let the user log in by caching_sha2_password (MySQL asks a user that it does \
                 not have for any login)"
            }
        },
        (None, _) => "start the server, or check its host and port",
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
    fn losing_to_another_is_a_conflict() {
        for sent in [SendState::Nothing, SendState::Write, SendState::Commit] {
            assert_eq!(attempt(&server(1213, "40001"), sent), Attempt::Conflict);
        }
        assert_eq!(attempt(&server(1205, "HY000"), SendState::Write), Attempt::Conflict);
        assert_ne!(attempt(&server(1205, "HY000"), SendState::Commit), Attempt::Conflict);
    }
}
