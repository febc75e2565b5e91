//! Connections to the server, and the meaning of its errors.

use std::{fmt, io, time::Duration};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, Secret, StoreError};
use acidtest_transport::{Stream, TlsError, Transport, demand};
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisFuture,
    RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cmd,
};
use tokio::{task::AbortHandle, time::timeout};

/// How long connecting and logging in may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// Opens connections to the server, in the same way for clients and for work that is not timed.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    transport: Transport,
    login: RedisConnectionInfo,
    database: u16,
    address: Address,
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: the login holds the password
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// One connection, by the driver. When it is dropped its socket closes at once, whatever is in flight.
pub(crate) struct Connection {
    connection: MultiplexedConnection,
    /// The task that reads and writes the socket.
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

impl ConnectOptions {
    pub(crate) fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        let database = match address.path.as_str() {
            "" => 0,
            number => number.parse::<u16>().map_err(|_| StoreError::Unreachable {
                address: address.to_string(),
                cause: format!("\"{number}\" is no database number"),
                remedy: "end the address with the number of a database, as in redis://host:6379/0".to_owned(),
            })?,
        };
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &address.user {
            login = login.set_username(user);
        }
        if let Some(password) = address.password.as_ref().map(Secret::reveal) {
            login = login.set_password(password);
        }
        let transport = Transport::new(address, default_port)?;
        Ok(Self { transport, login, database, address: address.clone() })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The driver's user and password.
    pub(crate) fn login(&self) -> &RedisConnectionInfo {
        &self.login
    }

    pub(crate) fn database(&self) -> u16 {
        self.database
    }

    /// Opens a connection to a server that is ready to answer. The driver neither reconnects it nor sends
    /// anything twice.
    pub(crate) async fn connect(&self) -> RedisResult<Connection> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {CONNECT:?}"));
        timeout(CONNECT, self.log_in()).await.map_err(late)?
    }

    async fn log_in(&self) -> RedisResult<Connection> {
        let stream = self.transport.connect().await?;
        let mut connection = self.drive(stream).await?;
        // a server that is still loading its data, or wants a password, accepts connections all the same
        cmd("PING").exec_async(&mut connection).await?;
        // done here, since the driver would not say why the server refuses a database
        if self.database != 0 {
            cmd("SELECT").arg(self.database).exec_async(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn drive(&self, stream: Stream) -> RedisResult<Connection> {
        // without a limit of the driver's, which is half a second: the engine times answers itself
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&self.login, stream, config).await;
        let (connection, driver) = opened?;
        Ok(Connection { connection, driver: tokio::spawn(driver).abort_handle() })
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
    pub(crate) fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(RedisError) -> StoreError + 'a {
        move |error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address(),
            cause: words(&error),
        }
    }
}

fn remedy(error: &RedisError, address: &Address) -> String {
    let remedy = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => {
            "check the user and the password, in the address or in ACIDTEST_PASSWORD"
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => {
            "log in as a user who may PING, run scripts, and read and write keys of the namespace"
        }
        (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => "wait until the server has loaded its data",
        (ErrorKind::Server(_), _) => "check the number of the database, and that the server accepts clients",
        // a port for TLS closes a connection that begins otherwise
        _ if address.tls.is_none() && error.is_connection_dropped() && !error.is_connection_refusal() => {
            return format!("check host and port; if the port is one for TLS, {}", demand(address));
        }
        _ => "start the server, or check host and port",
    };
    remedy.to_owned()
}

/// The server's own message; the first one where it refused several commands.
fn words(error: &RedisError) -> String {
    let refused = error.clone().into_server_errors();
    match refused.as_deref() {
        Some([(_, first), others @ ..]) if !others.is_empty() => {
            format!("{first} (and {} more commands were refused)", others.len())
        }
        Some([(_, only)]) => only.to_string(),
        _ => error.to_string(),
    }
}

/// The effect that a request could have had on the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// None: it reads, or takes or gives up a lock.
    Harmless,
    /// A change by a command or script, which an error reply proves not to have happened.
    Change,
}

/// How an error ends the operation that met it.
#[must_use]
pub fn attempt(error: &RedisError, request: Request) -> Attempt {
    let message = words(error);
    match (is_answer(error), request) {
        (true, _) => Attempt::Failed(Fault::answered(message)),
        (false, Request::Harmless) => Attempt::Failed(Fault::lost(message)),
        (false, Request::Change) => Attempt::Unknown(Fault::lost(message)),
    }
}

/// As [`attempt`], in a form to hand to `map_err`.
pub(crate) fn ended(request: Request) -> impl Fn(RedisError) -> Attempt {
    move |error| attempt(&error, request)
}

fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// How an error of `MULTI … EXEC` ends the operation. Redis rolls nothing back: unless it refused the whole
/// transaction, some of its commands may have been carried out.
pub(crate) fn attempt_exec(error: &RedisError) -> Attempt {
    if error.kind() == ErrorKind::Server(ServerErrorKind::ExecAbort) {
        return Attempt::Failed(Fault::answered(words(error)));
    }
    Attempt::Unknown(Fault::lost(words(error)))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused(kind: ServerErrorKind) -> RedisError {
        RedisError::from((ErrorKind::Server(kind), "refused"))
    }

    #[test]
    fn only_an_answer_proves_that_a_change_did_not_happen() {
        let lost = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let oom = RedisError::from((ErrorKind::Extension, "OOM"));
        assert!(matches!(attempt(&lost, Request::Change), Attempt::Unknown(fault) if fault.connection_lost));
        assert!(matches!(attempt(&lost, Request::Harmless), Attempt::Failed(fault) if fault.connection_lost));
        for answer in [oom, refused(ServerErrorKind::ReadOnly)] {
            let attempt = attempt(&answer, Request::Change);
            assert!(matches!(attempt, Attempt::Failed(fault) if !fault.connection_lost));
        }
        let nonsense = RedisError::from((ErrorKind::UnexpectedReturnType, "not a number"));
        assert!(matches!(attempt(&nonsense, Request::Change), Attempt::Unknown(_)));
    }

    #[test]
    fn a_transaction_that_failed_half_way_is_unknown() {
        assert!(matches!(attempt_exec(&refused(ServerErrorKind::ExecAbort)), Attempt::Failed(_)));
        assert!(matches!(attempt_exec(&refused(ServerErrorKind::ResponseError)), Attempt::Unknown(_)));
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = Address::parse("redis://ann:hunter2@127.0.0.1:1/0").unwrap();
        let server = ConnectOptions::new(&address, 6379).unwrap();
        assert!(!format!("{server:?}").contains("hunter2"));
        let address = Address::parse("redis://ann:hunter2@127.0.0.1:1/shop").unwrap();
        let error = ConnectOptions::new(&address, 6379).unwrap_err();
        assert!(!format!("{error:?}{error}").contains("hunter2"), "{error}");
        assert!(error.to_string().contains("\"shop\" is no database number"), "{error}");
    }
}
