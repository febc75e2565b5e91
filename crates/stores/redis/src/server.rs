//! Connections to the server, and the meaning of its errors.

use std::{fmt, io};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, StoreError, with_remedy};
use acidtest_transport::{TlsError, Transport, demand};
use redis::{Cmd, cmd};

use crate::{
    protocol::{ConnectError, Connection, Error},
    refusal,
};

/// Opens connections to the server, in the same way for clients and for work that is not timed.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    transport: Transport,
    /// The commands with which a client logs in.
    login: Vec<Cmd>,
    address: Address,
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: the login holds the password
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ConnectOptions {
    pub(crate) fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        let database = match address.path.as_str() {
            "" => 0,
            number => number.parse::<u16>().map_err(|_| StoreError::Unreachable {
                address: address.to_string(),
                cause: format!("\"{number}\" is not a database number"),
                remedy: "end the address with the number of a database, as in redis://host:6379/0".to_owned(),
            })?,
        };
        let mut login = Vec::new();
        if let Some(password) = &address.password {
            let mut auth = cmd("AUTH");
            // without a user it is the default one, also on servers before Redis 6 that know no others
            auth.arg(&address.user).arg(password.reveal());
            login.push(auth);
        }
        // a server that is still loading its data, or wants a password, accepts connections all the same
        login.push(cmd("PING"));
        if database != 0 {
            let mut select = cmd("SELECT");
            select.arg(database);
            login.push(select);
        }
        let transport = Transport::new(address, default_port)?;
        Ok(Self { transport, login, address: address.clone() })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Opens a connection to a server that is ready to answer. Nothing reconnects it, or sends anything twice.
    pub(crate) async fn connect(&self) -> Result<Connection, ConnectError> {
        self.transport.in_time(Connection::open(&self.transport, &self.login)).await?
    }

    /// Connects for a client of a trial.
    ///
    /// # Errors
    /// The reason, with its remedy if the server takes no more clients.
    pub(crate) async fn connect_client(&self) -> Result<Connection, String> {
        self.connect().await.map_err(|error| {
            let is_crowded = matches!(&error, ConnectError::Refused(answer) if answer.is_crowded());
            with_remedy(&error, is_crowded.then_some(MORE_CLIENTS))
        })
    }

    /// Connects for work that is not timed.
    pub(crate) async fn reach(&self) -> Result<Connection, StoreError> {
        self.connect().await.map_err(|error| {
            let (cause, remedy) = match acidtest_transport::explain(&error, &self.address) {
                Some(TlsError { cause, remedy }) => (cause, remedy),
                None => (error.to_string(), remedy(&error, &self.address)),
            };
            StoreError::Unreachable { address: self.address(), cause, remedy }
        })
    }

    /// The error to report when the server did not do as asked.
    pub(crate) fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(Error) -> StoreError + 'a {
        move |error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address(),
            cause: error.to_string(),
        }
    }
}

/// The remedy where the server takes no more clients.
const MORE_CLIENTS: &str = "ask for fewer clients, or raise the server's maxclients, and its limit of open files (ulimit -n) with it";

fn remedy(error: &ConnectError, address: &Address) -> String {
    const PASSWORD: &str = "check the user and the password, in the address or in ACIDTEST_PASSWORD";
    let remedy = match error {
        ConnectError::Refused(error) => match error.code() {
            // ACIDTEST_PASSWORD is only for an address with an @
            "NOAUTH" if address.user.is_none() && address.password.is_none() => {
                let (scheme, place) = match &address.socket {
                    Some(socket) => ("redis+unix", &**socket),
                    None => ("redis", "HOST"),
                };
                return format!(
                    "give the password, as {scheme}://:PASSWORD@{place}, or as {scheme}://@{place} with ACIDTEST_PASSWORD"
                );
            }
            "NOAUTH" | "WRONGPASS" => PASSWORD,
            "NOPERM" => {
                "log in as a user who may PING, run scripts, and read and write keys of the namespace"
            }
            "LOADING" => "wait until the server has loaded its data",
            "MASTERDOWN" => "it is a replica: give the address of its primary",
            _ if error.is_crowded() => MORE_CLIENTS,
            // a password, for a server that asks for none
            _ if error.to_string().contains("AUTH") => PASSWORD,
            _ => "check the number of the database, and that the server accepts clients",
        },
        // a port for TLS closes a connection that begins otherwise
        ConnectError::Io(error) if address.tls.is_none() && address.socket.is_none() && is_dropped(error) => {
            return format!("check host and port; if the port is one for TLS, {}", demand(address));
        }
        ConnectError::Io(_) => return format!("start the server, or check {}", address.to_check()),
    };
    remedy.to_owned()
}

/// Whether the server has closed a connection that it had accepted.
fn is_dropped(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// The effect that a request could have had on the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// None: it reads, or takes or gives up a lock.
    Harmless,
    /// A change by one command.
    Change,
    /// A change by a script, of whose commands some may have been carried out before one failed.
    Script,
}

/// How an error ends the operation that met it.
#[must_use]
pub(crate) fn attempt(error: &Error, request: Request) -> Attempt {
    match (error, request) {
        (Error::Answered(error), _) => refusal::ended(error, request),
        (Error::NotSent(words), _) | (Error::Lost(words), Request::Harmless) => {
            Attempt::Failed(Fault::lost(words.as_str()))
        }
        (Error::Lost(words), Request::Change | Request::Script) => {
            Attempt::Unknown(Fault::lost(words.as_str()))
        }
    }
}

/// As [`attempt`], in a form to hand to `map_err`.
pub(crate) fn ended(request: Request) -> impl Fn(Error) -> Attempt {
    move |error| attempt(&error, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ServerError;

    #[test]
    fn only_an_answer_proves_that_a_change_did_not_happen() {
        let lost = Error::Lost("gone".to_owned());
        assert!(matches!(attempt(&lost, Request::Change), Attempt::Unknown(fault) if fault.connection_lost));
        assert!(matches!(attempt(&lost, Request::Harmless), Attempt::Failed(fault) if fault.connection_lost));
        let unsent = Error::NotSent("gone".to_owned());
        assert!(matches!(attempt(&unsent, Request::Change), Attempt::Failed(fault) if fault.connection_lost));
        let refused = Error::Answered(ServerError::new(b"OOM no"));
        assert!(
            matches!(attempt(&refused, Request::Change), Attempt::Failed(fault) if !fault.connection_lost)
        );
    }

    #[test]
    fn how_a_password_is_given_is_told_of_an_address_as_it_was_written() {
        for (address, remedy) in [
            ("redis://h", "as redis://:PASSWORD@HOST, or as redis://@HOST with"),
            ("unix:///a.sock", "as redis+unix://:PASSWORD@/a.sock, or as redis+unix://@/a.sock with"),
        ] {
            let error = ConnectError::Refused(ServerError::new(b"NOAUTH Authentication required."));
            let said = super::remedy(&error, &Address::parse(address).unwrap());
            assert!(said.contains(remedy), "{address}: {said}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = Address::parse("redis://ann:hunter2@127.0.0.1:1/0").unwrap();
        let server = ConnectOptions::new(&address, 6379).unwrap();
        assert!(!format!("{server:?}").contains("hunter2"));
        let address = Address::parse("redis://ann:hunter2@127.0.0.1:1/shop").unwrap();
        let error = ConnectOptions::new(&address, 6379).unwrap_err();
        assert!(!format!("{error:?}{error}").contains("hunter2"), "{error}");
        assert!(error.to_string().contains("\"shop\" is not a database number"), "{error}");
    }
}
