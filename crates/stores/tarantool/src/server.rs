//! Connections to the server, and the meaning of its errors.

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, Secret, StoreError};
use acidtest_transport::Transport;

use crate::iproto::{Connection, Encoder, Error, Fate, Reader};

/// Codes of the server's errors, as in its `errcode.h`.
pub(crate) mod code {
    /// There is no memory left to store the data.
    pub(super) const MEMORY: u32 = 2;
    pub(super) const READ_ONLY: u32 = 7;
    /// The space to be created is there already.
    pub(crate) const SPACE_EXISTS: u32 = 10;
    /// The log could not be written: its last record may have been, in part or in full.
    #[cfg(test)]
    pub(super) const WAL_IO: u32 = 40;
    /// The user lacks the right to do that.
    pub(super) const ACCESS_DENIED: u32 = 42;
    pub(super) const NO_SUCH_USER: u32 = 45;
    pub(super) const PASSWORD_MISMATCH: u32 = 47;

    /// The errors of a server that writes nothing for now: it only reads (7), has yet to load its data (116) or to find the
    /// others (203), or is not their leader (226, 227, 228).
    pub(super) const TURNS_AWAY: [u32; 6] = [7, 116, 203, 226, 227, 228];

    /// The errors that come before a transaction is written to the log, so that it is rolled back: of the request and its
    /// values (1, 18 to 20, 22, 23, 26 to 29, 31, 38, 39, 69, 94, 95, 110, 196, 218), of memory and its limits (2, 135), of what is
    /// there and what is not (3, 4, 33, 35, 36), of what cannot be done (5, 154), of rights (42), and of a server that only reads
    /// or has yet to load (7, 116, 203).
    pub(super) const ROLLS_BACK: [u32; 32] = [
        1, 2, 3, 4, 5, 7, 18, 19, 20, 22, 23, 26, 27, 28, 29, 31, 33, 35, 36, 38, 39, 42, 69, 94, 95, 110,
        116, 135, 154, 196, 203, 218,
    ];
}

const GRANT: &str = "an admin can give the rights: box.schema.user.grant('USER', \
                     'read,write,execute,create,drop,alter', 'universe')";

/// Opens connections to the server, in the same way for clients and for work that is not timed.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    transport: Transport,
    login: Option<(String, Secret)>,
}

impl ConnectOptions {
    pub(crate) fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        let unusable = |cause: &str, remedy: &str| StoreError::Unreachable {
            address: address.to_string(),
            cause: cause.to_owned(),
            remedy: remedy.to_owned(),
        };
        if !address.path.is_empty() {
            return Err(unusable("Tarantool has no databases", "leave out what follows the port"));
        }
        let login = match (&address.user, &address.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (Some(user), None) if user != "guest" => Some((user.clone(), Secret::new(""))),
            (None, Some(_)) => {
                return Err(unusable(
                    "there is a password and no user",
                    "name the user, as in tarantool://user@host:3301",
                ));
            }
            _ => None,
        };
        Ok(Self { transport: Transport::new(address, default_port)?, login })
    }

    pub(crate) fn address(&self) -> String {
        self.transport.address().to_string()
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let login = self.login.as_ref().map(|(user, password)| (user.as_str(), password.reveal()));
        let connected = self.transport.in_time(Connection::connect(&self.transport, login)).await;
        connected.unwrap_or_else(|cause| Err(Error::Lost { sent: false, cause }))
    }

    /// Connects for work that is not timed.
    pub(crate) async fn reach(&self) -> Result<Connection, StoreError> {
        self.connect().await.map_err(|error| self.unreachable(&error))
    }

    pub(crate) fn unreachable(&self, error: &Error) -> StoreError {
        StoreError::Unreachable {
            address: self.address(),
            cause: error.to_string(),
            remedy: remedy(error).to_owned(),
        }
    }

    /// The error to report when the server did not do as asked.
    pub(crate) fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(Error) -> StoreError + 'a {
        move |error| {
            let cause = match error.code() {
                Some(code::READ_ONLY) => {
                    return StoreError::ReadOnly {
                        address: self.address(),
                        is: "read-only (box.info.ro), as a replica is".to_owned(),
                        remedy: "give the address of the instance that takes writes, or box.cfg{read_only = false}"
                            .to_owned(),
                    };
                }
                Some(code::ACCESS_DENIED) => format!("{error}; {GRANT}"),
                Some(code::MEMORY) => format!("{error}; box.cfg.memtx_memory limits what the server keeps"),
                _ => error.to_string(),
            };
            StoreError::Server { doing: doing.to_owned(), address: self.address(), cause }
        }
    }

    /// Runs Lua on a connection of its own and reads the values that it returns.
    pub(crate) async fn run<T>(
        &self,
        doing: &str,
        code: &str,
        arguments: impl FnOnce(&mut Encoder),
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let mut connection = self.reach().await?;
        let answer = connection.eval(code, arguments).await;
        answer.and_then(|mut values| read(&mut values)).map_err(self.failed(doing))
    }
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::Server { code: code::ACCESS_DENIED, .. } => GRANT,
        Error::Server { code: code::NO_SUCH_USER | code::PASSWORD_MISMATCH, .. } => {
            "check the user and the password, in the address or in ACIDTEST_PASSWORD"
        }
        Error::Protocol(_) => "name the port that box.cfg.listen gives, not a console's",
        _ => "start the server, or check host and port",
    }
}

/// The effect that a request could have had on the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// None: it reads, or takes or gives up a latch.
    Harmless,
    /// A change in one transaction.
    Change,
}

/// How an error ends the operation that met it.
///
/// An error that is answered to a change proves something only by a code that comes before the transaction is written. Others come
/// when it may have been, such as those of the log and of replicas, or from a server in between that has passed the change on:
/// a router in Lua answers with the code of Lua's errors, or those of its own connections.
fn attempt(error: &Error, request: Request) -> Attempt {
    let message = error.to_string();
    let has = |codes: &[u32]| error.code().is_some_and(|code| codes.contains(&code));
    let fault =
        |message| if has(&code::TURNS_AWAY) { Fault::turned_away(message) } else { Fault::answered(message) };
    match (error.fate(), request) {
        (Fate::Refused, _) if error.code() == Some(Error::TRANSACTION_CONFLICT) => Attempt::Conflict,
        (Fate::Refused, Request::Change) if !has(&code::ROLLS_BACK) => {
            Attempt::Unknown(Fault { connection_lost: true, ..fault(message) })
        }
        (Fate::Refused, _) => Attempt::Failed(fault(message)),
        (Fate::NotSent, _) | (Fate::Unknown, Request::Harmless) => Attempt::Failed(Fault::lost(message)),
        (Fate::Unknown, Request::Change) => Attempt::Unknown(Fault::lost(message)),
    }
}

/// As [`attempt`], in a form to hand to `map_err`.
pub(crate) fn ended(request: Request) -> impl Fn(Error) -> Attempt {
    move |error| attempt(&error, request)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answered(code: u32) -> Error {
        Error::Server { code, message: "no".to_owned() }
    }

    fn lost(sent: bool) -> Error {
        Error::Lost { sent, cause: io::ErrorKind::ConnectionReset.into() }
    }

    #[test]
    fn only_an_answer_or_silence_proves_that_a_change_did_not_happen() {
        let change = |error: &Error| attempt(error, Request::Change);
        assert_eq!(change(&answered(Error::TRANSACTION_CONFLICT)), Attempt::Conflict);
        for known in [Error::DUPLICATE_KEY, code::ACCESS_DENIED, 110] {
            assert!(
                matches!(change(&answered(known)), Attempt::Failed(fault) if !fault.connection_lost),
                "{known}"
            );
        }
        // of the log, of Lua and of a router's own connections, of replicas that do not answer, and of no version that is known
        for code in [code::WAL_IO, Error::LUA, 77, 78, 216, 217, 225, 9_999, 0] {
            assert!(
                matches!(change(&answered(code)), Attempt::Unknown(fault) if fault.connection_lost),
                "{code}"
            );
            assert!(
                matches!(attempt(&answered(code), Request::Harmless), Attempt::Failed(fault) if !fault.connection_lost)
            );
        }
        for code in [7, 116] {
            let ended = change(&answered(code));
            assert!(matches!(&ended, Attempt::Failed(fault) if fault.turned_away), "{ended:?}");
        }
        assert!(matches!(change(&answered(227)), Attempt::Unknown(fault) if fault.turned_away));
        assert!(matches!(change(&lost(false)), Attempt::Failed(fault) if fault.connection_lost));
        assert!(matches!(change(&lost(true)), Attempt::Unknown(fault) if fault.connection_lost));
        assert!(matches!(change(&Error::Protocol("x".to_owned())), Attempt::Unknown(_)));
        assert!(
            matches!(attempt(&lost(true), Request::Harmless), Attempt::Failed(fault) if fault.connection_lost)
        );
    }

    #[test]
    fn a_server_out_of_memory_says_what_bounds_it_and_changes_nothing() {
        let full = || answered(code::MEMORY);
        let server = ConnectOptions::new(&Address::parse("tarantool://host").unwrap(), 3301).unwrap();
        let said = server.failed("loading the records")(full()).to_string();
        assert!(said.contains("Tarantool error 2: no; box.cfg.memtx_memory"), "{said}");
        assert!(
            matches!(attempt(&full(), Request::Change), Attempt::Failed(fault) if !fault.connection_lost)
        );
    }

    #[test]
    fn an_address_is_used_whole_or_refused() {
        let parse = |text| ConnectOptions::new(&Address::parse(text).unwrap(), 3301);
        assert!(parse("tarantool://host/shop").is_err());
        assert!(parse("tarantool://:hunter2@host").is_err());
        let server = parse("tarantool://ann:hunter2@host").unwrap();
        assert_eq!(server.transport.endpoint(), "host:3301");
        assert!(!format!("{server:?}").contains("hunter2"));
        assert_eq!(parse("tarantool://guest@host").unwrap().login, None);
    }
}
