//! Opens connections to the server, and turns its errors into acidtest's.

use acidtest_model::{Address, Secret, StoreError, with_remedy};
use acidtest_transport::{TlsError, Transport, demand};

use crate::amqp::{Connection, Error, Login};

/// The user, and its password, if the address names none: RabbitMQ's own default, which it lets in from the same
/// machine only.
const GUEST: &str = "guest";

/// Address and login of the server. Connections are opened alike for clients and for requests that are not measured.
#[derive(Clone)]
pub struct ConnectOptions {
    transport: Transport,
    login: Login,
    address: Address,
}

impl ConnectOptions {
    /// For the server at an address; what follows the port is the virtual host.
    ///
    /// # Errors
    /// If a certificate that it names cannot be used.
    pub fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        let user = address.user.clone().unwrap_or_else(|| GUEST.to_owned());
        let default = if user == GUEST { GUEST } else { "" };
        let password = address.password.clone().unwrap_or_else(|| Secret::new(default));
        let vhost = if address.path.is_empty() { "/" } else { &address.path };
        Ok(Self {
            transport: Transport::new(address, default_port)?,
            // the engine has timeouts of its own
            login: Login { user, password, vhost: vhost.to_owned(), heartbeat: 0 },
            address: address.clone(),
        })
    }

    /// Has the broker take connections for lost that say nothing for this number of seconds.
    #[must_use]
    pub fn with_heartbeat(mut self, seconds: u16) -> Self {
        self.login.heartbeat = seconds;
        self
    }

    /// Connects, logs in and opens a channel.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the login or the virtual host.
    pub async fn connect(&self) -> Result<Connection, Error> {
        let opened = self.transport.in_time(Connection::open(&self.transport, &self.login)).await;
        opened.unwrap_or_else(|late| Err(Error::Network(late.to_string())))
    }

    /// Connects for a client of a trial.
    ///
    /// # Errors
    /// The reason, with its remedy if the broker takes no more connections.
    pub(crate) async fn connect_client(&self) -> Result<Connection, String> {
        let words = |error: Error| with_remedy(&error, is_crowded(&error).then_some(MORE_CONNECTIONS));
        self.connect().await.map_err(words)
    }

    /// Connects for requests that are not measured.
    ///
    /// # Errors
    /// As `connect`, with the address and a remedy.
    pub async fn reach(&self) -> Result<Connection, StoreError> {
        self.connect().await.map_err(|error| StoreError::Unreachable {
            address: self.address.to_string(),
            cause: error.to_string(),
            remedy: remedy(&error, &self.address),
        })
    }

    /// Makes the error of a request that failed, with what acidtest was doing.
    pub fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(Error) -> StoreError + use<'a> {
        move |error| self.refused(doing, error.to_string())
    }

    pub(crate) fn refused(&self, doing: &str, cause: String) -> StoreError {
        StoreError::Server { doing: doing.to_owned(), address: self.address.to_string(), cause }
    }

    pub(crate) fn occupied(&self, name: &str) -> StoreError {
        StoreError::Occupied { namespace: format!("queue \"{name}\""), address: self.address.to_string() }
    }
}

/// Whether the node, the virtual host or the user has as many connections as it may. The broker closes the connection with 530
/// (`not_allowed`), and says the same of a virtual host that is not there.
fn is_crowded(error: &Error) -> bool {
    matches!(error, Error::Closed { code: 530, text, .. } if text.contains("limit"))
}

/// The remedy where the broker takes no more connections.
const MORE_CONNECTIONS: &str = "ask for fewer clients, or raise the limit of the node (connection_max), of the virtual host \
                                (rabbitmqctl clear_vhost_limits) or of the user (clear_user_limits)";

fn remedy(error: &Error, address: &Address) -> String {
    let remedy = match (error.code(), error) {
        (_, Error::Tls(TlsError { remedy, .. })) => remedy,
        (Some(403), _) => {
            "check the user and the password, in the address or in ACIDTEST_PASSWORD; the user guest may log in from \
             the server's own machine only"
        }
        _ if is_crowded(error) => MORE_CONNECTIONS,
        (Some(530), _) => "name a virtual host that exists and that the user may use, behind the port",
        // a port for TLS answers a greeting without it by an alert, and closes
        (_, Error::Protocol(_)) if address.tls.is_none() => {
            return format!(
                "name the port of a RabbitMQ server for AMQP 0-9-1, 5672 by default; if it is one for TLS, 5671 by \
                 default, {}",
                demand(address)
            );
        }
        (_, Error::Protocol(_)) => {
            "name the port of a RabbitMQ server for AMQP 0-9-1 with TLS, 5671 by default"
        }
        _ => "start the server, or check host and port",
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_takes_no_more_connections_has_its_remedy() {
        let address = Address::parse("amqp://host").unwrap();
        let said = |text: &str| {
            remedy(&Error::Closed { what: "connection", code: 530, text: text.to_owned() }, &address)
        };
        let full =
            "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached";
        assert_eq!(said(full), MORE_CONNECTIONS);
        assert_ne!(said("NOT_ALLOWED - vhost nowhere not found"), MORE_CONNECTIONS);
    }

    #[test]
    fn an_address_is_used_whole() {
        let parse = |text| ConnectOptions::new(&Address::parse(text).unwrap(), 5672).unwrap();
        let plain = parse("amqp://localhost");
        assert_eq!((plain.transport.endpoint(), plain.login.vhost.as_str()), ("localhost:5672", "/"));
        assert_eq!((plain.login.user.as_str(), plain.login.password.reveal()), ("guest", "guest"));
        let whole = parse("amqp://me:secret@host:1234/orders");
        assert_eq!((whole.transport.endpoint(), whole.login.vhost.as_str()), ("host:1234", "orders"));
        assert_eq!((whole.login.user.as_str(), whole.login.password.reveal()), ("me", "secret"));
        assert!(!whole.address.to_string().contains("secret"));
        assert_eq!(parse("amqp://me@host").login.password.reveal(), "");
    }
}
