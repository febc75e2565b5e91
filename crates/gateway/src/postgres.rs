//! Connections to PostgreSQL, each driven by a task of its own.

use std::{collections::HashMap, ops::Deref, sync::Arc, time::Duration};

use acidtest_model::Address;
use acidtest_transport::{TlsError, Transport};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls, Statement, config::SslMode, error::SqlState};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

const PORT: u16 = 5432;

/// How to reach the server at an address.
pub(crate) fn transport(address: &Address) -> Result<Transport, Error> {
    Transport::new(address, PORT).map_err(|error| Error::Unreached(error.to_string()))
}

/// A connection with the statements that were prepared on it.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl Session {
    /// Opens one, on which names without a schema are of this one, or of the server's search path.
    pub(crate) async fn open(
        transport: &Transport,
        schema: Option<&str>,
    ) -> Result<Self, tokio_postgres::Error> {
        let address = transport.address();
        let mut config = Config::new();
        match &address.socket {
            Some(folder) => config.host_path(folder),
            None => config.host(&address.host),
        };
        config
            .port(address.port.unwrap_or(PORT))
            .application_name("acidtest gateway")
            .ssl_mode(if transport.check().is_some() { SslMode::Require } else { SslMode::Disable })
            .connect_timeout(address.connect_timeout);
        if let Some(user) = &address.user {
            config.user(user);
        }
        if let Some(password) = &address.password {
            config.password(password.reveal());
        }
        if !address.path.is_empty() {
            config.dbname(&address.path);
        }
        if let Some(schema) = schema {
            config.options(format!("-c search_path={schema}"));
        }
        Ok(Self { client: connect(&config, transport).await?, prepared: Mutex::default() })
    }

    /// The statement, prepared once on this connection.
    pub(crate) async fn prepared(&self, text: &str) -> Result<Statement, tokio_postgres::Error> {
        let mut prepared = self.prepared.lock().await;
        if let Some(statement) = prepared.get(text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(text).await?;
        prepared.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// The connection ends with the client; why it ended is told by the next request.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS depends on it"))]
async fn connect(config: &Config, transport: &Transport) -> Result<Client, tokio_postgres::Error> {
    #[cfg(feature = "tls")]
    if let Some(security) = transport.security() {
        let tls = MakeRustlsConnect::new((**security.config()).clone());
        let (client, connection) = config.connect(tls).await?;
        tokio::spawn(connection);
        return Ok(client);
    }
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A connection for many requests at once, opened again when it is lost.
#[derive(Debug)]
pub(crate) struct Shared {
    transport: Transport,
    schema: Option<String>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Shared {
    pub(crate) fn new(address: &Address, schema: Option<&str>) -> Result<Self, Error> {
        let (transport, schema) = (transport(address)?, schema.map(str::to_owned));
        Ok(Self { transport, schema, session: Mutex::default() })
    }

    pub(crate) async fn client(&self) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let opened = Session::open(&self.transport, self.schema.as_deref()).await;
        let opened = Arc::new(opened.map_err(|error| self.failed(&error))?);
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Gives the connection up: the next request opens another. One that is being opened is given up by whoever opens it.
    pub(crate) fn forget(&self) {
        if let Ok(mut session) = self.session.try_lock() {
            *session = None;
        }
    }

    /// That the server has not answered for so long.
    pub(crate) fn silent(&self, span: Duration) -> Error {
        Error::Unreached(format!(
            "PostgreSQL at {}: no answer within {} s",
            self.transport.address(),
            span.as_secs()
        ))
    }

    pub(crate) fn failed(&self, error: &tokio_postgres::Error) -> Error {
        let address = self.transport.address();
        Error::Unreached(format!("PostgreSQL at {address}: {}", unreached(error, address)))
    }
}

/// Why the server was not reached; with a remedy where that lies in TLS.
pub(crate) fn unreached(error: &tokio_postgres::Error, address: &Address) -> String {
    match acidtest_transport::explain(error, address) {
        Some(TlsError { cause, remedy }) => format!("{cause}\n  remedy: {remedy}"),
        None => words(error),
    }
}

/// Why a statement is there that this connection has not prepared, or is gone that it has.
const HANDED_ON: &str = "sessions of the server are handed on between connections, as by a pooler in transaction mode\n  \
                         remedy: give the server's own address, or that of a pool in session mode that resets its sessions";

/// What the server says, or else what the driver does, with its cause.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return explained(said.code(), said.message());
    }
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {cause}");
    }
    text
}

/// The server's words, and more where they show that sessions are handed on.
fn explained(code: &SqlState, message: &str) -> String {
    let is_handed_on = [SqlState::DUPLICATE_PSTATEMENT, SqlState::INVALID_SQL_STATEMENT_NAME].contains(code);
    if is_handed_on { format!("{message}: {HANDED_ON}") } else { message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_of_somebody_else_names_the_pooler() {
        for code in ["42P05", "26000"] {
            let said = explained(&SqlState::from_code(code), "no");
            assert!(
                said.starts_with("no: ") && said.contains("pooler") && said.contains("remedy: "),
                "{said}"
            );
        }
        assert_eq!(explained(&SqlState::UNIQUE_VIOLATION, "no"), "no");
    }
}
