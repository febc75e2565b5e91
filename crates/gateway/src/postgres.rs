//! Connections to PostgreSQL, each driven by a task of its own.

use std::{collections::HashMap, ops::Deref, sync::Arc, time::Duration};

use acidtest_model::Address;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls, Statement, config::SslMode};

use crate::Error;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
const PORT: u16 = 5432;

/// A connection with the statements that were prepared on it.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl Session {
    /// Opens one, on which names without a schema are of this one, or of the server's search path.
    pub(crate) async fn open(address: &Address, schema: Option<&str>) -> Result<Self, tokio_postgres::Error> {
        let mut config = Config::new();
        config
            .host(&address.host)
            .port(address.port.unwrap_or(PORT))
            .application_name("acidtest gateway")
            .ssl_mode(SslMode::Disable)
            .connect_timeout(CONNECT);
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
        let (client, connection) = config.connect(NoTls).await?;
        // it ends with the client; why it ended is told by the next request
        tokio::spawn(connection);
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
    address: Address,
    schema: Option<String>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Shared {
    pub(crate) fn new(address: &Address, schema: Option<&str>) -> Self {
        let (address, schema) = (address.clone(), schema.map(str::to_owned));
        Self { address, schema, session: Mutex::default() }
    }

    pub(crate) async fn client(&self) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let opened = Session::open(&self.address, self.schema.as_deref()).await;
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
        Error::Unreached(format!("PostgreSQL at {}: no answer within {} s", self.address, span.as_secs()))
    }

    pub(crate) fn failed(&self, error: &tokio_postgres::Error) -> Error {
        Error::Unreached(format!("PostgreSQL at {}: {}", self.address, words(error)))
    }
}

/// What the server says, or else what the driver does, with its cause.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {cause}");
    }
    text
}
