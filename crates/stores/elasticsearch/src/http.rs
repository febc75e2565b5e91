//! One connection to the server, polled by the task that waits for its answer.
//!
//! hyper hands out a connection in two halves, to be driven from two tasks. Here both are polled by the client's
//! own task: a request costs no hop to another task, a connection that the server has closed is known before
//! anything more is sent, and dropping a connection closes its socket at once, whatever is in flight.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use acidtest_model::NegotiatedTls;
use acidtest_transport::{Stream, TlsError, Transport};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request,
    body::Incoming,
    client::conn::http1::{self, SendRequest, handshake},
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;

use crate::fault::{Error, Refusal, beginning};

/// Bytes of the longest answer that is read: the largest page of records with room to spare.
const LONGEST: usize = 256 << 20;

/// Bytes of the answer buffer that are kept for the next answer.
const KEPT: usize = 4 << 20;

/// A login, as the value of the `Authorization` header of every request.
#[derive(Clone)]
pub(crate) struct Login(HeaderValue);

impl Login {
    /// Basic authentication (RFC 7617). `None` for a user name that holds a colon, as it cannot be sent.
    pub(crate) fn basic(user: &str, password: &str) -> Option<Self> {
        if user.contains(':') {
            return None;
        }
        Self::header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    /// An API key, in the encoded form that the server gives it out in, or as `id:key`. `None` for one that cannot be sent.
    pub(crate) fn api_key(key: &str) -> Option<Self> {
        let encoded = if key.contains(':') { STANDARD.encode(key) } else { key.to_owned() };
        Self::header(&format!("ApiKey {encoded}"))
    }

    fn header(value: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The format of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    /// One JSON value on each line.
    Lines,
}

/// One connection to the server, driven by whoever awaits an answer on it.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    wire: Wire,
    host: HeaderValue,
    login: Option<Login>,
    tls: Option<NegotiatedTls>,
    answer: Vec<u8>,
}

/// The half that reads and writes the socket.
struct Wire {
    /// `None` once it has ended.
    connection: Option<http1::Connection<TokioIo<Stream>, Full<Bytes>>>,
    /// Why the connection ended, where that is known.
    ended: Option<Ended>,
}

/// Why a connection ended: its error in words, and what that says of TLS.
#[derive(Clone)]
struct Ended {
    words: String,
    tls: Option<TlsError>,
}

/// The status and body of a response, of success or not.
pub(crate) struct Answer<'a> {
    status: u16,
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Parses the body of a successful answer; any other is the server's refusal.
    pub(crate) fn read<T: Deserialize<'a>>(self) -> Result<T, Error> {
        if !(200..300).contains(&self.status) {
            return Err(Error::Refused(Refusal::read(self.status, self.body)));
        }
        serde_json::from_slice(self.body)
            .map_err(|error| Error::Nonsense(format!("{error} in: {}", beginning(self.body))))
    }

    /// Parses the answer to a get of a document; `None` if there is no such document.
    pub(crate) fn read_found<T: Deserialize<'a>>(self) -> Result<Option<T>, Error> {
        #[derive(Deserialize)]
        struct Missing {
            found: bool,
        }
        let missing =
            self.status == 404 && serde_json::from_slice(self.body).is_ok_and(|Missing { found }| !found);
        if missing { Ok(None) } else { self.read().map(Some) }
    }

    /// Checks that the answer is a success, whatever its body says.
    pub(crate) fn done(self) -> Result<(), Error> {
        self.read::<serde::de::IgnoredAny>().map(|_| ())
    }
}

impl Connection {
    /// Connects to the server.
    pub(crate) async fn open(transport: &Transport, login: Option<Login>) -> Result<Self, Error> {
        let lost = |cause: String| Error::Lost { sent: false, cause };
        let stream = transport.connect().await.map_err(|error| match TlsError::within(&error) {
            Some(error) => Error::Tls { sent: false, error },
            None => lost(error.to_string()),
        })?;
        let tls = stream.negotiated();
        let host = HeaderValue::from_str(transport.endpoint()).map_err(|error| lost(error.to_string()))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| lost(words(&error)))?;
        let wire = Wire { connection: Some(connection), ended: None };
        Ok(Self { sender, wire, host, login, tls, answer: Vec::new() })
    }

    /// The TLS that was agreed on; none without TLS.
    pub(crate) fn tls(&self) -> Option<NegotiatedTls> {
        self.tls.clone()
    }

    /// Sends a GET without a body.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer<'_>, Error> {
        self.ask(Method::GET, path, Content::Json, Bytes::new()).await
    }

    /// Sends a request and waits for the whole answer.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        content: Content,
        body: Bytes,
    ) -> Result<Answer<'_>, Error> {
        let request = self.request(method, path, content, body)?;
        let Self { sender, wire, answer, .. } = self;
        // a connection that the server has closed before proves that nothing was sent
        poll_fn(|context| {
            wire.poll(context);
            Poll::Ready(())
        })
        .await;
        if wire.connection.is_none() {
            return Err(wire.error(false, None));
        }
        answer.clear();
        answer.shrink_to(KEPT);
        let ended = drive(exchange(sender, request, answer), wire).await;
        match ended {
            Ok(status) => Ok(Answer { status, body: &self.answer }),
            Err(Broken { sent, cause }) => {
                // hyper's half that met the end of the connection knows the reason
                Err(self.wire.error(sent, Some(cause)))
            }
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        content: Content,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.host);
        if let Some(Login(value)) = &self.login {
            request = request.header(AUTHORIZATION, value);
        }
        if !body.is_empty() {
            let kind = match content {
                Content::Json => "application/json",
                Content::Lines => "application/x-ndjson",
            };
            request = request.header(CONTENT_TYPE, kind).header(CONTENT_LENGTH, body.len());
        }
        let request = request.body(Full::new(body));
        request.map_err(|error| Error::Lost { sent: false, cause: format!("{path}: {error}") })
    }
}

impl Wire {
    fn poll(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        if let Poll::Ready(ended) = Pin::new(connection).poll(context) {
            self.ended =
                ended.err().map(|error| Ended { words: words(&error), tls: TlsError::within(&error) });
            self.connection = None;
        }
    }

    /// The error of a request that has no answer; `cause` is what the request itself met.
    fn error(&self, sent: bool, cause: Option<String>) -> Error {
        match self.ended.clone() {
            Some(Ended { tls: Some(error), .. }) => Error::Tls { sent, error },
            Some(Ended { words, .. }) => Error::Lost { sent, cause: words },
            None => Error::Lost { sent, cause: cause.unwrap_or_else(|| "connection closed".to_owned()) },
        }
    }
}

/// Waits for an exchange, and drives the connection meanwhile.
async fn drive<T>(exchange: impl Future<Output = T>, wire: &mut Wire) -> T {
    let mut exchange = pin!(exchange);
    poll_fn(|context| {
        if let done @ Poll::Ready(_) = exchange.as_mut().poll(context) {
            return done;
        }
        wire.poll(context);
        // the bytes just read may be its answer
        exchange.as_mut().poll(context)
    })
    .await
}

/// The error of an exchange that was not completed.
struct Broken {
    /// Whether any part of the request may have reached the server.
    sent: bool,
    cause: String,
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    answer: &mut Vec<u8>,
) -> Result<u16, Broken> {
    let unsent = |error: hyper::Error| Broken { sent: false, cause: words(&error) };
    sender.ready().await.map_err(unsent)?;
    let response = sender.try_send_request(request).await.map_err(|mut error| {
        // hyper hands the request back if it has not begun to send it
        let sent = error.take_message().is_none();
        Broken { sent, cause: words(error.error()) }
    })?;
    let status = response.status().as_u16();
    collect(response.into_body(), answer).await.map_err(|cause| Broken { sent: true, cause })?;
    Ok(status)
}

async fn collect(mut body: Incoming, answer: &mut Vec<u8>) -> Result<(), String> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| words(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if answer.len() + data.len() > LONGEST {
            return Err(format!("its answer is longer than {} MiB", LONGEST >> 20));
        }
        answer.extend_from_slice(data);
    }
    Ok(())
}

/// An error's message with all its causes, which hyper's own message leaves out.
fn words(error: &hyper::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(each) = cause {
        words = format!("{words}: {each}");
        cause = each.source();
    }
    words
}
