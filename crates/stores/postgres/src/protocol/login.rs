//! Opening a connection: TLS, and who is there.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use acidtest_engine::may_block;
use acidtest_model::{Address, Secret, StoreError};
use acidtest_transport::{TlsError, Transport, Wire};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::{
    authentication::{
        md5_hash,
        sasl::{ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256},
    },
    message::{
        backend::{AuthenticationSaslBody, Message},
        frontend,
    },
};

use super::{Connection, Error, ServerError, connection::message_head};
use crate::{connection::APPLICATION, fault, leader::Writes};

/// Most bytes of a message before the login is done: a stranger must not take memory without end.
const MESSAGE_MAX: usize = 1024 * 1024;

/// Who logs in, and to which database.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Option<Secret>,
    /// The user's own, if none is named.
    pub(crate) database: Option<String>,
    /// Whether the login must be bound to this connection of TLS.
    pub(crate) binds: bool,
}

impl Login {
    /// As an address has it; the user is whoever runs this, if it names none.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: it names none, and the system does not tell who runs this.
    pub(crate) fn of(address: &Address) -> Result<Self, StoreError> {
        let user = address.user.clone().map_or_else(whoami::username, Ok);
        let user = user.map_err(|error| StoreError::Unreachable {
            address: address.to_string(),
            cause: format!("the address names no user, and the system does not tell who runs this: {error}"),
            remedy: fault::LOGIN.to_owned(),
        })?;
        Ok(Self {
            user,
            password: address.password.clone(),
            database: Some(address.path.clone()).filter(|path| !path.is_empty()),
            binds: address.tls.as_ref().is_some_and(|tls| tls.binds),
        })
    }
}

impl Connection {
    /// Connects, goes over to TLS if the transport's address asks for it, and logs in.
    pub(crate) async fn open(transport: &Transport, login: &Login) -> Result<Self, Error> {
        let mut opening =
            Opening { wire: connected(transport).await.map_err(|error| not_sent(&error))?, login };
        let Greeting { process, writes } = opening.log_in().await?;
        Ok(Self::new(opening.wire, process, writes))
    }
}

/// Connects, and asks for TLS, if the address does; nothing else is said before.
async fn connected(transport: &Transport) -> io::Result<Wire> {
    let mut wire = Wire::new(transport.connect_openly().await?).blocking(may_block);
    if transport.check().is_none() {
        return Ok(wire);
    }
    frontend::ssl_request(wire.output());
    poll_fn(|context| {
        while wire.unread().is_empty() {
            ready!(wire.poll_exchange(context, 1))?;
        }
        io::Result::Ok(()).into()
    })
    .await?;
    match wire.unread().first() {
        Some(b'S') => {}
        Some(b'N') => return Err(TlsError::absent().into()),
        _ => return Err(io::Error::other("the server does not answer whether it has TLS")),
    }
    wire.take(1);
    wire.secure(transport).await
}

/// What a server says of itself when it has let somebody in.
#[derive(Debug, Default)]
struct Greeting {
    process: Option<i32>,
    writes: Writes,
}

/// A connection whose login is under way.
struct Opening<'a> {
    wire: Wire,
    login: &'a Login,
}

impl<'a> Opening<'a> {
    async fn log_in(&mut self) -> Result<Greeting, Error> {
        let Login { user, database, .. } = self.login;
        let mut settings =
            vec![("client_encoding", "UTF8"), ("user", user), ("application_name", APPLICATION)];
        settings.extend(database.as_ref().map(|database| ("database", &**database)));
        self.say(|out| frontend::startup_message(settings, out))?;
        match self.hear().await? {
            Message::AuthenticationOk => {
                self.unbound()?;
                return self.settled().await;
            }
            Message::AuthenticationCleartextPassword => {
                self.unbound()?;
                let password = self.password()?;
                self.say(|out| frontend::password_message(password.reveal().as_bytes(), out))?;
            }
            Message::AuthenticationMd5Password(body) => {
                self.unbound()?;
                let hash = md5_hash(user.as_bytes(), self.password()?.reveal().as_bytes(), body.salt());
                self.say(|out| frontend::password_message(hash.as_bytes(), out))?;
            }
            Message::AuthenticationSasl(body) => self.scram(&body).await?,
            _ => return Err(unexpected()),
        }
        match self.hear().await? {
            Message::AuthenticationOk => self.settled().await,
            _ => Err(unexpected()),
        }
    }

    /// SCRAM: the password is proved and not told, and the server proves that it knows it, too (RFC 5802, RFC 7677).
    async fn scram(&mut self, offered: &AuthenticationSaslBody) -> Result<(), Error> {
        let offered: Vec<&str> = offered.mechanisms().collect().map_err(|error| not_sent(&error))?;
        let end_point = self.wire.stream().end_point();
        let (mechanism, binding) = match end_point {
            Some(end_point) if offered.contains(&SCRAM_SHA_256_PLUS) => {
                (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(end_point))
            }
            // tells a server that does offer it that somebody in between has taken its offer away
            Some(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        if !offered.contains(&mechanism) {
            return Err(Error::NotSent("the server offers no supported way to log in".to_owned()));
        }
        if mechanism != SCRAM_SHA_256_PLUS {
            self.unbound()?;
        }
        let mut scram = ScramSha256::new(self.password()?.reveal().as_bytes(), binding);
        self.say(|out| frontend::sasl_initial_response(mechanism, scram.message(), out))?;
        match self.hear().await? {
            Message::AuthenticationSaslContinue(body) => {
                scram.update(body.data()).map_err(|error| not_sent(&error))?;
            }
            _ => return Err(unexpected()),
        }
        self.say(|out| frontend::sasl_response(scram.message(), out))?;
        match self.hear().await? {
            Message::AuthenticationSaslFinal(body) => {
                scram.finish(body.data()).map_err(|error| not_sent(&error))
            }
            _ => Err(unexpected()),
        }
    }

    /// Fails where the login would have to be bound to the connection, and is not.
    fn unbound(&self) -> Result<(), Error> {
        if self.login.binds {
            return Err(Error::NotSent("server did not use channel binding".to_owned()));
        }
        Ok(())
    }

    fn password(&self) -> Result<&'a Secret, Error> {
        self.login.password.as_ref().ok_or_else(|| Error::NotSent("password missing".to_owned()))
    }

    /// Waits until the server takes requests.
    async fn settled(&mut self) -> Result<Greeting, Error> {
        let mut greeting = Greeting::default();
        loop {
            match self.hear().await? {
                // what is no text is none of these
                Message::ParameterStatus(body) => {
                    if let (Ok(name), Ok(value)) = (body.name(), body.value()) {
                        greeting.writes.note(name, value);
                    }
                }
                Message::BackendKeyData(body) => greeting.process = Some(body.process_id()),
                Message::ReadyForQuery(_) => return Ok(greeting),
                _ => return Err(unexpected()),
            }
        }
    }

    fn say(&mut self, write: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Result<(), Error> {
        // a name or a password with a zero byte, which no message can hold
        write(self.wire.output()).map_err(|error| not_sent(&error))
    }

    /// The server's next message, but notices. An error that it reports is an error here.
    async fn hear(&mut self) -> Result<Message, Error> {
        loop {
            match poll_fn(|context| self.poll_message(context)).await {
                Ok(Message::NoticeResponse(_)) => {}
                Ok(Message::ErrorResponse(body)) => {
                    let error = ServerError::read(body.fields()).map_err(|error| not_sent(&error))?;
                    return Err(Error::Answered(Box::new(error)));
                }
                Ok(message) => return Ok(message),
                Err(error) => return Err(not_sent(&error)),
            }
        }
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Message>> {
        loop {
            let unread = self.wire.unread();
            let mut missing = 1;
            if let Some((_, length)) = message_head(unread)? {
                if length > MESSAGE_MAX {
                    return Poll::Ready(Err(io::Error::other("the server sent too much before the login")));
                }
                if let Some(message) = unread.get(..length) {
                    let mut message = BytesMut::from(message);
                    self.wire.take(length);
                    self.wire.clear_away();
                    let none = || io::Error::other("the server sent an invalid message");
                    return Poll::Ready(Message::parse(&mut message)?.ok_or_else(none));
                }
                missing = length - unread.len();
            }
            ready!(self.wire.poll_exchange(context, missing))?;
        }
    }
}

/// Why a connection was not opened. No request of its user's was sent yet.
fn not_sent(error: &io::Error) -> Error {
    Error::NotSent(error.to_string())
}

fn unexpected() -> Error {
    Error::NotSent("the server's answer to the login is unexpected".to_owned())
}
