//! Connections to PostgreSQL, each driven by a task of its own.

use std::{collections::HashMap, ops::Deref, sync::Arc, time::Duration};

use acidtest_model::Address;
use acidtest_store_postgres::{ConnectError, Connector, fault};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Statement, error::SqlState};

use crate::Error;

/// Opens connections to the server at an address.
pub(crate) fn connector(address: &Address) -> Result<Connector, Error> {
    Connector::new(address, "acidtest gateway").map_err(|error| Error::Unreached(error.to_string()))
}

/// A connection with the statements that were prepared on it.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl Session {
    pub(crate) async fn open(connector: &Connector) -> Result<Self, ConnectError> {
        let (client, exchange) = connector.connect().await?;
        // the connection ends with the client; why it ended is told by the next request
        tokio::spawn(exchange);
        Ok(Self { client, prepared: Mutex::default() })
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

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A connection for many requests at once, opened again when it is lost.
#[derive(Debug)]
pub(crate) struct Shared {
    connector: Connector,
    session: Mutex<Option<Arc<Session>>>,
}

impl Shared {
    pub(crate) fn new(address: &Address, schema: Option<&str>) -> Result<Self, Error> {
        let mut connector = connector(address)?;
        if let Some(schema) = schema {
            connector = connector.within(schema);
        }
        Ok(Self { connector, session: Mutex::default() })
    }

    pub(crate) async fn client(&self) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let opened = Session::open(&self.connector).await;
        let opened =
            Arc::new(opened.map_err(|error| self.unreached(unreached(&error, self.connector.address())))?);
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
        self.unreached(format!("no answer within {} s", span.as_secs()))
    }

    pub(crate) fn failed(&self, error: &tokio_postgres::Error) -> Error {
        self.unreached(words(error))
    }

    fn unreached(&self, why: impl std::fmt::Display) -> Error {
        Error::Unreached(format!("PostgreSQL at {}: {why}", self.connector.address()))
    }
}

/// Why the server was not reached, with the remedy.
pub(crate) fn unreached(error: &ConnectError, address: &Address) -> String {
    let (cause, remedy) = fault::unreachable(error, address);
    format!("{cause}\n  remedy: {remedy}")
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
    use tokio::net::TcpListener;

    use super::*;

    async fn unreached_at(address: &Address) -> String {
        Shared::new(address, None).unwrap().client().await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_has_its_remedy() {
        let said = unreached_at(&Address::parse("postgres://nobody@127.0.0.1:1/x").unwrap()).await;
        assert!(said.starts_with("PostgreSQL at postgres://nobody@127.0.0.1:1/x: "), "{said}");
        assert!(said.contains("\n  remedy: start the server, or check its host and port"), "{said}");
    }

    /// Something in front of a server that is away may accept, and say nothing.
    #[tokio::test]
    async fn a_login_that_nobody_answers_is_given_up() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("postgres://nobody@{}/x", silent.local_addr().unwrap());
        let address = Address::parse(&address).unwrap();
        let said = unreached_at(&Address { connect_timeout: Duration::from_millis(20), ..address }).await;
        assert!(said.contains("no connection within 20ms") && said.contains("remedy: check "), "{said}");
    }

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
