//! Opening connections to the server, and reading what it reports about itself.

use std::time::Duration;

use acidtest_model::{Address, Secret, StoreError};
use acidtest_transport::Transport;
use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    fault::{Error, Refusal, remedy},
    http::{Answer, Connection, Content, Login},
};

/// How long a server that is up may take to report the cluster's state.
const STATE: Duration = Duration::from_secs(2);

/// How often to send what is not timed and the server turns away.
pub(crate) const ATTEMPTS: u32 = 20;
/// The first wait before sending it again. It doubles each time, up to [`LONGEST_WAIT`].
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait before sending it again.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Opens connections to the server, in the same way for clients and for work that is not timed.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    transport: Transport,
    login: Option<Login>,
    address: Address,
}

/// The server's answer to a request for `/`.
#[derive(Debug, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) version: Version,
    /// `You Know, for Search` of every Elasticsearch.
    #[serde(default)]
    pub(crate) tagline: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    pub(crate) number: String,
    #[serde(rename = "lucene_version")]
    pub(crate) lucene: String,
    /// The product's name, which only descendants of Elasticsearch report.
    pub(crate) distribution: Option<String>,
    #[serde(default)]
    pub(crate) build_hash: String,
    /// The edition, from 6.3 on.
    pub(crate) build_flavor: Option<String>,
}

impl ConnectOptions {
    pub(crate) fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        let unusable = |cause: &str, remedy: &str| StoreError::Unreachable {
            address: address.to_string(),
            cause: cause.to_owned(),
            remedy: remedy.to_owned(),
        };
        if !address.path.is_empty() {
            return Err(unusable("Elasticsearch has no databases", "leave out what follows the port"));
        }
        let login = match (&address.user, &address.password) {
            (Some(user), password) => {
                let login = Login::basic(user, password.as_ref().map_or("", Secret::reveal));
                Some(login.ok_or_else(|| {
                    unusable(
                        "the user's name holds a colon",
                        "basic authentication cannot send it: log in as another",
                    )
                })?)
            }
            // an API key is a secret, and so takes the password's place in the address
            (None, Some(key)) => {
                let login = Login::api_key(key.reveal());
                Some(login.ok_or_else(|| {
                    unusable(
                        "the API key holds what no header may",
                        "give it in the encoded form, or as id:key",
                    )
                })?)
            }
            (None, None) => None,
        };
        Ok(Self { transport: Transport::new(address, default_port)?, login, address: address.clone() })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        Connection::open(&self.transport, self.login.clone()).await
    }

    /// Connects for work that is not timed.
    pub(crate) async fn reach(&self) -> Result<Connection, StoreError> {
        self.connect().await.map_err(|error| self.unreachable(&error))
    }

    pub(crate) fn unreachable(&self, error: &Error) -> StoreError {
        StoreError::Unreachable {
            address: self.address.to_string(),
            cause: error.to_string(),
            remedy: remedy(error, &self.address),
        }
    }

    /// The error to report when the server did not do as asked.
    pub(crate) fn failed<'a>(&'a self, doing: &'a str) -> impl Fn(Error) -> StoreError + 'a {
        move |error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address.to_string(),
            cause: error.to_string(),
        }
    }
}

/// Sends a request with a JSON value as its body.
pub(crate) async fn send<'a>(
    connection: &'a mut Connection,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Answer<'a>, Error> {
    connection.ask(method, path, Content::Json, Bytes::from(body.to_string())).await
}

/// Sends a request without a body, by a method other than GET.
pub(crate) async fn call<'a>(
    connection: &'a mut Connection,
    method: Method,
    path: &str,
) -> Result<Answer<'a>, Error> {
    connection.ask(method, path, Content::Json, Bytes::new()).await
}

/// Sends a request that is not timed, again while the server turns it away, [`ATTEMPTS`] times in all.
pub(crate) async fn insist<T: DeserializeOwned>(
    connection: &mut Connection,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<T, Error> {
    let mut wait = FIRST_WAIT;
    for _ in 1..ATTEMPTS {
        let asked = connection.ask(method.clone(), path, Content::Json, body.clone()).await;
        match asked.and_then(Answer::read) {
            Err(Error::Refused(refusal)) if refusal.is_rejection() => {}
            done => return done,
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    connection.ask(method, path, Content::Json, body).await.and_then(Answer::read)
}

/// Fails unless the cluster has a master and knows its indices. Until then a server that is up answers that there
/// are no indices; but it refuses to show mappings, which is what this asks for.
pub(crate) async fn settled(connection: &mut Connection) -> Result<(), Error> {
    // no namespace has indices of such names
    let path = format!("/acidtest---*/_mapping?master_timeout={}ms", STATE.as_millis());
    connection.get(&path).await?.done()
}

/// Waits until an index is ready to be read and written, for `most` at most.
pub(crate) async fn ready(connection: &mut Connection, index: &str, most: Duration) -> Result<(), Error> {
    // fails at once where there is no index, as the health request would wait for it all the same
    connection.get(&format!("/{index}/_alias")).await?.done()?;
    let most = most.as_millis();
    let path =
        format!("/_cluster/health/{index}?wait_for_status=yellow&master_timeout={most}ms&timeout={most}ms");
    connection.get(&path).await?.done().map_err(|error| match error {
        Error::Refused(refusal) if refusal.status == 408 => {
            let reason = format!("its shard has not started within {most} ms");
            Error::Refused(Refusal { reason, ..refusal })
        }
        error => error,
    })
}

/// Sends a request that an index' shards carry out, and returns whether they did.
pub(crate) async fn on_shards(connection: &mut Connection, path: &str) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Done {
        #[serde(rename = "_shards")]
        shards: Shards,
    }
    #[derive(Deserialize)]
    struct Shards {
        successful: u32,
        failed: u32,
    }
    let Done { shards } = insist(connection, Method::POST, path, Bytes::new()).await?;
    Ok(shards.successful > 0 && shards.failed == 0)
}

/// Languages in which an update can be scripted; `None` where the server does not tell.
pub(crate) async fn script_languages(connection: &mut Connection) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Languages {
        language_contexts: Vec<Language>,
    }
    #[derive(Deserialize)]
    struct Language {
        language: String,
        contexts: Vec<String>,
    }
    let said: Languages = connection.get("/_script_language").await.and_then(Answer::read).ok()?;
    let updates = |each: &Language| each.contexts.iter().any(|context| context == "update");
    Some(said.language_contexts.into_iter().filter(updates).map(|each| each.language).collect())
}
