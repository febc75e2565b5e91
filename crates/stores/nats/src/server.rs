//! Opens connections to the server, and turns its errors into acidtest's.

use acidtest_model::{Address, Secret, StoreError, with_remedy};
use acidtest_transport::{TlsError, Transport};
use serde_json::Value;

#[cfg(feature = "tls")]
use crate::protocol::UserKey;
use crate::{
    jetstream::{AccountInfo, Api},
    protocol::{ApiError, Connection, Error, Login, looks_like_seed},
};

const ENABLE: &str =
    "start the server with JetStream: nats-server --jetstream, or jetstream {} in its configuration";

/// Address and login of the server. Connections are opened alike for clients and for requests that are not measured.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    transport: Transport,
    login: Login,
    address: String,
    /// The server's id when the store was opened. It has another once it was restarted.
    id: String,
}

impl ConnectOptions {
    /// For the server at an address.
    ///
    /// # Errors
    /// If something follows the port: there are no databases. If a certificate that it names cannot be used.
    pub fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        if !address.path.is_empty() {
            return Err(StoreError::Unreachable {
                address: address.to_string(),
                cause: "NATS has no databases".to_owned(),
                remedy: "leave out what follows the port".to_owned(),
            });
        }
        let login = match (&address.user, &address.password) {
            (Some(user), Some(password)) => Login::User(user.clone(), password.clone()),
            (Some(user), None) => Login::User(user.clone(), Secret::new("")),
            // a token or a seed is a secret, and so takes the password's place in the address
            (None, Some(secret)) => token_or_seed(secret).map_err(|cause| StoreError::Unreachable {
                address: address.to_string(),
                cause: cause.to_owned(),
                remedy: "give the seed of a user, which begins with SU, as nk -gen user makes it".to_owned(),
            })?,
            (None, None) => Login::Anonymous,
        };
        Ok(Self {
            transport: Transport::new(address, default_port)?,
            login,
            address: address.to_string(),
            id: String::new(),
        })
    }

    /// Whether the server of this connection was restarted since the store was opened.
    pub(crate) fn restarted(&self, connection: &Connection) -> bool {
        connection.info().server_id != self.id
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the login.
    pub async fn connect(&self) -> Result<Connection, Error> {
        let connected = self.transport.in_time(Connection::connect(&self.transport, &self.login)).await;
        connected.unwrap_or_else(|late| Err(Error::Lost(late.to_string())))
    }

    /// Connects for requests that are not measured.
    ///
    /// # Errors
    /// As `connect`, with the address and a remedy.
    pub async fn reach(&self) -> Result<Api<'_>, StoreError> {
        let connection = self.connect().await.map_err(|error| self.unreachable(&error))?;
        Ok(Api::new(connection, self))
    }

    /// Checks that the server can be reached and that its `JetStream` may be used, and notes the server's id.
    pub(crate) async fn check(&mut self) -> Result<(), StoreError> {
        let mut api = self.reach().await?;
        let id = api.connection().info().server_id.clone();
        if !api.connection().info().headers {
            let old = Error::Closed("it knows no headers: it is older than 2.2".to_owned());
            return Err(self.unreachable(&old));
        }
        let usable = api.ask::<AccountInfo>("INFO", &Value::Null).await;
        usable.map_err(|error| self.unreachable(&error))?;
        self.id = id;
        Ok(())
    }

    pub(crate) fn unreachable(&self, error: &Error) -> StoreError {
        StoreError::Unreachable {
            address: self.address.clone(),
            cause: match error {
                Error::NoResponders(_) => "JetStream is not enabled".to_owned(),
                _ => error.to_string(),
            },
            remedy: match error {
                Error::Tls(TlsError { remedy, .. }) => remedy.clone(),
                _ => remedy(error).to_owned(),
            },
        }
    }

    /// Makes the error of a request that failed, with what acidtest was doing.
    pub fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(Error) -> StoreError + use<'a> {
        move |error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address.clone(),
            cause: match &error {
                Error::NoResponders(_) => format!("{error}; {ENABLE}"),
                Error::Api(ApiError { err_code: ApiError::REPLICAS_NEED_A_CLUSTER, .. }) => {
                    format!("{error}; ask for one, or name a server of a cluster")
                }
                _ => error.to_string(),
            },
        }
    }
}

/// What a secret without a user is: the seed of an `NKey`, which is known by its form, or a token.
fn token_or_seed(secret: &Secret) -> Result<Login, &'static str> {
    if !looks_like_seed(secret.reveal()) {
        return Ok(Login::Token(secret.clone()));
    }
    #[cfg(feature = "tls")]
    return match UserKey::of_seed(secret.reveal()) {
        Some(_) => Ok(Login::NKey(secret.clone())),
        None => {
            Err("what stands in the password's place looks like the seed of an NKey, and is not a user's")
        }
    };
    #[cfg(not(feature = "tls"))]
    Err("this acidtest was built without the feature tls, which NKeys need")
}

/// A client's reason for having no connection, with its remedy if the server takes no more of them.
pub(crate) fn client_words(error: &Error) -> String {
    with_remedy(error, is_crowded(error).then_some(MORE_CONNECTIONS))
}

/// Whether the server, or the account, has as many connections as it may.
fn is_crowded(error: &Error) -> bool {
    let crowded = |words: &str| words.contains("maximum") && words.contains("connections exceeded");
    matches!(error, Error::Closed(words) if crowded(words))
}

/// The remedy where the server takes no more connections.
const MORE_CONNECTIONS: &str =
    "ask for fewer clients, or raise the server's max_connections, or the account's limit of them";

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::NoResponders(_) | Error::Api(ApiError { err_code: ApiError::NOT_ENABLED, .. }) => ENABLE,
        Error::Api(ApiError { err_code: ApiError::NOT_ENABLED_FOR_ACCOUNT, .. }) => {
            "enable JetStream for the account, or log in as a user of another"
        }
        Error::Closed(words) if words.contains("Authorization") || words.contains("Authentication") => {
            "check the user and the password, in the address or in ACIDTEST_PASSWORD; a token, or the seed of \
             an NKey, stands in the password's place, without a user"
        }
        Error::Closed(words) if words.contains("Permissions") => {
            "log in as a user who may publish to $JS.API.>, $JS.ACK.> and the namespace, and subscribe to _INBOX.>"
        }
        _ if is_crowded(error) => MORE_CONNECTIONS,
        Error::Protocol(_) => "name the port of a NATS server's clients",
        _ => "start the server, or check host and port",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_no_more_clients_has_its_remedy() {
        for words in ["maximum connections exceeded", "maximum account active connections exceeded"] {
            let error = Error::Closed(words.to_owned());
            assert_eq!(client_words(&error).matches("\n  remedy: ").count(), 1, "{words}");
            assert_eq!(remedy(&error), MORE_CONNECTIONS);
        }
        assert!(!client_words(&Error::Closed("Stale Connection".to_owned())).contains("remedy"));
    }

    #[test]
    fn an_address_is_used_whole_or_refused() {
        let parse = |text| ConnectOptions::new(&Address::parse(text).unwrap(), 4222);
        assert!(parse("nats://host/shop").is_err());
        let server = parse("nats://ann:hunter2@host").unwrap();
        assert_eq!(server.transport.endpoint(), "host:4222");
        let token = parse("nats://:hunter2@host").unwrap();
        assert!(matches!(&token.login, Login::Token(token) if token.reveal() == "hunter2"));
        assert_eq!(parse("nats://host").unwrap().login, Login::Anonymous);
        for server in [server, token] {
            assert!(!format!("{server:?}").contains("hunter2"));
        }
    }

    #[test]
    fn what_cannot_be_used_comes_with_what_to_do() {
        let server = ConnectOptions::new(&Address::parse("nats://host").unwrap(), 4222).unwrap();
        let told = |error| server.unreachable(&error).to_string();
        assert!(told(Error::NoResponders("$JS.API.INFO".to_owned())).contains("nats-server --jetstream"));
        assert!(told(Error::Closed("Authorization Violation".to_owned())).contains("ACIDTEST_PASSWORD"));
        assert!(told(Error::Lost("Connection refused".to_owned())).contains("start the server"));
        let replicas = ApiError { err_code: 10074, description: "replicas > 1 not supported".to_owned() };
        let said = server.failed("making the queue")(Error::Api(replicas)).to_string();
        assert!(said.contains("replicas > 1") && said.contains("a cluster"), "{said}");
    }
}
