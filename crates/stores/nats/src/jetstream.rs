//! Requests to `JetStream`, in JSON on subjects under `$JS.API`.

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::StoreError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    protocol::{ApiError, Connection, Error},
    server::ConnectOptions,
};

/// How long a request that is not measured may take. A server does not answer a request that it does not understand.
const ANSWER: Duration = Duration::from_secs(10);

/// The settings of a stream that acidtest sets or shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamConfig {
    pub(crate) name: String,
    /// In the stream that marks a namespace: the run that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) subjects: Vec<String>,
    pub(crate) retention: Retention,
    pub(crate) storage: Storage,
    pub(crate) num_replicas: u32,
    /// How long the server remembers message ids to drop duplicates, in nanoseconds; 0 leaves that to the server.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) duplicate_window: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The policy by which a stream drops messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Retention {
    /// When a limit is reached.
    Limits,
    /// When all of its consumers have acknowledged it.
    Interest,
    /// When it was acknowledged.
    WorkQueue,
}

/// Where a stream keeps its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Storage {
    File,
    Memory,
}

impl Retention {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Interest => "interest",
            Self::WorkQueue => "workqueue",
        }
    }
}

impl Storage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
        }
    }
}

/// A durable consumer's settings: all clients that pull from it share its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConsumerConfig {
    durable_name: String,
    pub(crate) ack_policy: AckPolicy,
    /// How long a client may hold a message unacknowledged before it is handed out again, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) ack_wait: u64,
    /// Unacknowledged messages that all clients together may hold; -1 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_ack_pending: Option<i64>,
    /// Requests for messages that may wait at the server at the same time.
    #[serde(default)]
    max_waiting: u32,
}

impl ConsumerConfig {
    pub(crate) fn new(name: &str, ack_policy: AckPolicy, ack_wait: Duration, max_waiting: u32) -> Self {
        // without acknowledgements the server refuses a limit, and there is nothing to wait for
        let explicit = ack_policy == AckPolicy::Explicit;
        let ack_wait = u64::try_from(ack_wait.as_nanos()).unwrap_or(u64::MAX);
        Self {
            durable_name: name.to_owned(),
            ack_policy,
            ack_wait: if explicit { ack_wait } else { 0 },
            max_ack_pending: explicit.then_some(-1),
            max_waiting,
        }
    }
}

/// The policy by which clients acknowledge messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AckPolicy {
    /// No message: one that was handed out is not handed out again.
    None,
    /// Acknowledging one message acknowledges all before it.
    All,
    /// Each message by itself.
    Explicit,
}

impl AckPolicy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
            Self::Explicit => "explicit",
        }
    }
}

/// The answer to `CONSUMER.INFO` and `CONSUMER.DURABLE.CREATE`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct ConsumerInfo {
    pub(crate) config: ConsumerConfig,
    /// Messages that were not handed out yet.
    pub(crate) num_pending: u64,
    /// Messages that were handed out and not acknowledged.
    pub(crate) num_ack_pending: u64,
}

/// The answer to `STREAM.INFO` and `STREAM.CREATE`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct StreamInfo {
    pub(crate) config: StreamConfig,
    pub(crate) state: StreamState,
}

/// The contents of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct StreamState {
    /// The sequence number of the last message that was stored.
    pub(crate) last_seq: u64,
}

/// The answer to `INFO`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct AccountInfo {
    /// The account's limits by name; -1 is no limit.
    pub(crate) limits: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    total: usize,
    #[serde(default)]
    streams: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Refusal {
    error: Option<ApiError>,
}

/// A connection for requests that are not measured, one after the other.
#[derive(Debug)]
pub struct Api<'a> {
    connection: Connection,
    server: &'a ConnectOptions,
    asked: u64,
}

impl<'a> Api<'a> {
    #[must_use]
    pub fn new(connection: Connection, server: &'a ConnectOptions) -> Self {
        Self { connection, server, asked: 0 }
    }

    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Gives the connection away, for operations that are measured.
    #[must_use]
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// Sends a request and waits for its answer. The request is named without `$JS.API`; a body of null is none.
    ///
    /// # Errors
    /// If the connection is lost, the server does not answer within 10 s, or it refuses.
    pub async fn ask<T: DeserializeOwned>(&mut self, request: &str, body: &Value) -> Result<T, Error> {
        let subject = format!("$JS.API.{request}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.asked += 1;
        let token = self.asked;
        self.connection.publish(&subject, Some(token), None, body.as_bytes())?;
        let answer = async {
            loop {
                let message = self.connection.next().await?;
                if message.token() != Some(token) {
                    continue;
                }
                return match message.status() {
                    Some((503, _)) => Err(Error::NoResponders(subject.clone())),
                    _ => read(message.payload),
                };
            }
        };
        let silent = |_| Error::Lost(format!("no answer to {request} within {ANSWER:?}"));
        timeout(ANSWER, answer).await.map_err(silent)?
    }

    /// Sends a request and waits for its answer; the error says what acidtest was doing.
    ///
    /// # Errors
    /// As `ask`.
    pub async fn run<T: DeserializeOwned>(
        &mut self,
        doing: &str,
        request: &str,
        body: &Value,
    ) -> Result<T, StoreError> {
        self.ask(request, body).await.map_err(self.server.failed(doing))
    }

    /// Settings and contents of a stream.
    pub(crate) async fn stream_info(&mut self, name: &str) -> Result<StreamInfo, Error> {
        self.ask(&format!("STREAM.INFO.{name}"), &Value::Null).await
    }

    /// Settings and contents of a stream; none if there is no stream of that name.
    pub(crate) async fn stream(&mut self, doing: &str, name: &str) -> Result<Option<StreamInfo>, StoreError> {
        match self.stream_info(name).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::Api(error)) if error.err_code == ApiError::STREAM_NOT_FOUND => Ok(None),
            Err(error) => Err(self.server.failed(doing)(error)),
        }
    }

    /// Makes a stream. If there is one of that name already, the error is [`StoreError::Occupied`].
    pub(crate) async fn make(&mut self, doing: &str, config: &StreamConfig) -> Result<(), StoreError> {
        let (server, name) = (self.server, &config.name);
        let occupied = || StoreError::Occupied {
            namespace: format!("stream \"{name}\""),
            address: server.address().to_owned(),
        };
        // asked to create a stream that exists with the same settings, the server succeeds; 2.9 even answers that it
        // created it
        if self.stream(doing, name).await?.is_some() {
            return Err(occupied());
        }
        match self.ask::<StreamInfo>(&format!("STREAM.CREATE.{name}"), &json!(config)).await {
            Ok(_) => Ok(()),
            Err(Error::Api(error)) if error.err_code == ApiError::STREAM_NAME_IN_USE => Err(occupied()),
            Err(error) => Err(server.failed(doing)(error)),
        }
    }

    /// Settings and message counts of a stream's consumer.
    pub(crate) async fn consumer(&mut self, stream: &str, name: &str) -> Result<ConsumerInfo, Error> {
        self.ask(&format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null).await
    }

    /// Makes a durable consumer of a stream.
    pub(crate) async fn make_consumer(&mut self, stream: &str, config: &ConsumerConfig) -> Result<(), Error> {
        let request = format!("CONSUMER.DURABLE.CREATE.{stream}.{}", config.durable_name);
        let body = json!({ "stream_name": stream, "config": config });
        self.ask::<ConsumerInfo>(&request, &body).await.map(drop)
    }

    /// Removes a stream with all its messages, if it exists.
    pub(crate) async fn remove(&mut self, doing: &str, name: &str) -> Result<(), StoreError> {
        match self.ask::<Value>(&format!("STREAM.DELETE.{name}"), &Value::Null).await {
            Ok(_) => Ok(()),
            Err(Error::Api(error)) if error.err_code == ApiError::STREAM_NOT_FOUND => Ok(()),
            Err(error) => Err(self.server.failed(doing)(error)),
        }
    }

    /// The names of the streams that begin with the prefix.
    pub(crate) async fn names(&mut self, doing: &str, prefix: &str) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        let mut seen = 0;
        loop {
            let page: Names = self.run(doing, "STREAM.NAMES", &json!({ "offset": seen })).await?;
            let streams = page.streams.unwrap_or_default();
            seen += streams.len();
            let last = streams.is_empty() || seen >= page.total;
            found.extend(streams.into_iter().filter(|name| name.starts_with(prefix)));
            if last {
                return Ok(found);
            }
        }
    }
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    let garbled = |error: serde_json::Error| Error::Protocol(format!("an answer of JetStream: {error}"));
    if let Refusal { error: Some(error) } = serde_json::from_slice(json).map_err(garbled)? {
        return Err(Error::Api(error));
    }
    serde_json::from_slice(json).map_err(garbled)
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{changes, garble};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An answer that a fault on its way has changed is either parsed or an error, and never a panic.
        #[test]
        fn what_was_garbled_does_no_harm(
            changes in changes(1..5),
        ) {
            let answers = [
                r#"{"config":{"name":"s","subjects":["a"],"retention":"limits","storage":"file","num_replicas":1,"duplicate_window":120000000000},"state":{"last_seq":7}}"#,
                r#"{"config":{"durable_name":"c","ack_policy":"explicit","ack_wait":5000000000,"max_ack_pending":-1,"max_waiting":512},"num_pending":18446744073709551615,"num_ack_pending":0}"#,
                r#"{"total":2,"offset":0,"streams":["a","b"]}"#,
                r#"{"limits":{"max_memory":-1,"max_storage":1e300}}"#,
                r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#,
            ];
            for answer in answers {
                let mut bytes = answer.as_bytes().to_vec();
                garble(&mut bytes, &changes);
                let _ = (read::<StreamInfo>(&bytes), read::<ConsumerInfo>(&bytes));
                let _ = (read::<Names>(&bytes).map(|names| names.total), read::<AccountInfo>(&bytes));
            }
        }
    }

    #[test]
    fn a_refusal_is_told_from_an_answer() {
        let refused =
            br#"{"type":"x","error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        let error = read::<StreamInfo>(refused).unwrap_err();
        assert_eq!(error.to_string(), "stream not found (JetStream error 10059)");
        let names: Names = read(br#"{"total":1,"offset":0,"limit":1024,"streams":["a"]}"#).unwrap();
        assert_eq!((names.total, names.streams), (1, Some(vec!["a".to_owned()])));
        // if there is no stream, 2.9 answers null
        let none: Names = read(br#"{"total":0,"streams":null}"#).unwrap();
        assert_eq!(none.streams, None);
        for garbage in [&b""[..], b"[]", b"{", b"\xff"] {
            assert!(matches!(read::<StreamInfo>(garbage), Err(Error::Protocol(_))));
        }
    }
}
