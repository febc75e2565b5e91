//! Opening a connection: TLS, and who is there.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use acidtest_engine::may_block;
use acidtest_model::Secret;
use acidtest_transport::{TlsError, Transport, Wire};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::BufMut;
use mysql_common::{
    constants::{CapabilityFlags, MariadbCapabilities},
    crypto,
    io::ParseBuf,
    packets::{
        AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, PublicKeyResponse, SslRequest,
    },
    proto::MySerialize,
};

use super::{
    Connection, Error, ServerError,
    packet::{HEADER, Next, Packets, put},
    partial_answer::{Agreed, is_error},
};

/// Longest packet before the login is done: a stranger must not take memory without end.
const PACKET_MAX: usize = 1024 * 1024;

/// What is asked for of a server that can do it.
const WANTED: CapabilityFlags = CapabilityFlags::CLIENT_PROTOCOL_41
    .union(CapabilityFlags::CLIENT_SECURE_CONNECTION)
    .union(CapabilityFlags::CLIENT_LONG_PASSWORD)
    .union(CapabilityFlags::CLIENT_TRANSACTIONS)
    .union(CapabilityFlags::CLIENT_MULTI_RESULTS)
    .union(CapabilityFlags::CLIENT_PS_MULTI_RESULTS)
    .union(CapabilityFlags::CLIENT_DEPRECATE_EOF)
    .union(CapabilityFlags::CLIENT_PLUGIN_AUTH)
    .union(CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA)
    // counts the rows that a write has found, changed or not
    .union(CapabilityFlags::CLIENT_FOUND_ROWS);

/// Who logs in, and with which database.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<String>,
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The server asks for a login that cannot be done here.
    #[error("{0}")]
    Login(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
}

impl Connection {
    /// Connects, goes over to TLS if the transport's address asks for it, logs in, and has each statement be a transaction
    /// by itself as long as none is begun.
    pub(crate) async fn open(transport: &Transport, login: &Login) -> Result<Self, OpenError> {
        let stream = transport.connect_openly().await.map_err(|error| not_sent(&error))?;
        let opening =
            Opening { wire: Wire::new(stream).blocking(may_block), packets: Packets::default(), login };
        let (wire, agreed, session) = opening.log_in(transport).await?;
        let mut connection = Self::new(wire, agreed, session);
        // whatever the end of the login says of it: the server runs its init_connect after that
        connection.query("SET autocommit=1").await?;
        Ok(connection)
    }
}

/// A connection whose login is under way.
struct Opening<'a> {
    wire: Wire,
    packets: Packets,
    login: &'a Login,
}

impl<'a> Opening<'a> {
    async fn log_in(mut self, transport: &Transport) -> Result<(Wire, Agreed, u32), OpenError> {
        let greeting = self.hear().await?;
        let greeting =
            handshake(&greeting).ok_or_else(|| refused("the server's greeting is not of its protocol"))?;
        let (offered, session) = (greeting.capabilities(), greeting.connection_id());
        let is_mariadb = greeting.server_version_str().contains("MariaDB")
            && !offered.contains(CapabilityFlags::CLIENT_LONG_PASSWORD);
        let extended =
            if is_mariadb { greeting.mariadb_ext_capabilities() } else { MariadbCapabilities::empty() };
        let mut agreed = Agreed {
            capabilities: offered & WANTED,
            mariadb: extended & MariadbCapabilities::MARIADB_CLIENT_CACHE_METADATA,
        };
        // as in the answer to the greeting: with TLS, the server goes by what it is told before
        agreed.capabilities.set(CapabilityFlags::CLIENT_CONNECT_WITH_DB, self.login.database.is_some());
        if transport.check().is_some() {
            if !offered.contains(CapabilityFlags::CLIENT_SSL) {
                return Err(not_sent(&TlsError::absent().into()).into());
            }
            agreed.capabilities.insert(CapabilityFlags::CLIENT_SSL);
            let request = SslRequest::new(agreed.capabilities, LONGEST, COLLATION)
                .with_mariadb_capabilities(agreed.mariadb);
            self.say(&serialized(&request));
            self = self.secured(transport).await.map_err(|error| not_sent(&error))?;
        }
        let nonce = greeting.nonce();
        let plugin = match greeting.auth_plugin() {
            Some(AuthPlugin::CachingSha2Password) => AuthPlugin::CachingSha2Password,
            _ => AuthPlugin::MysqlNativePassword,
        };
        let proof = self.proof(&plugin, &nonce);
        let Login { user, database, .. } = self.login;
        let response = HandshakeResponse::new(
            Some(proof),
            // one that knows this collation
            (5, 5, 3),
            user.as_deref().map(str::as_bytes),
            database.as_deref().map(str::as_bytes),
            Some(plugin.borrow()),
            agreed.capabilities,
            None,
            LONGEST,
        )
        .with_mariadb_ext_capabilities(agreed.mariadb);
        // the library adds what it has to say
        agreed.capabilities = response.capabilities();
        self.say(&serialized(&response));
        // the server, too, takes a Unix socket for one along which nobody reads
        let is_secret = transport.check().is_some() || transport.address().socket.is_some();
        self.proved(plugin, nonce, is_secret).await?;
        Ok((self.wire, agreed, session))
    }

    async fn secured(mut self, transport: &Transport) -> io::Result<Self> {
        poll_fn(|context| self.wire.poll_write(context)).await?;
        Ok(Self { wire: self.wire.secure(transport).await?, ..self })
    }

    /// Answers what the server asks for until it takes requests. `is_secret`: whether nobody can read along.
    async fn proved(
        &mut self,
        mut plugin: AuthPlugin<'static>,
        mut nonce: Vec<u8>,
        is_secret: bool,
    ) -> Result<(), OpenError> {
        let mut is_switched = false;
        loop {
            let asked = self.hear().await?;
            match (asked.as_slice(), &plugin) {
                ([0x00, ..], _) => return Ok(()),
                ([0xFE, _, ..], _) if !is_switched => {
                    is_switched = true;
                    let switch: AuthSwitchRequest<'_> =
                        ParseBuf(&asked).parse(()).map_err(|_| unexpected())?;
                    plugin = match switch.auth_plugin() {
                        AuthPlugin::CachingSha2Password => AuthPlugin::CachingSha2Password,
                        AuthPlugin::MysqlNativePassword => AuthPlugin::MysqlNativePassword,
                        other => {
                            let name = String::from_utf8_lossy(other.as_bytes()).into_owned();
                            let words =
                                format!("the server asks for a login by {name}, which is not supported");
                            return Err(OpenError::Login(words));
                        }
                    };
                    nonce = switch.plugin_data().to_vec();
                    let proof = self.proof(&plugin, &nonce);
                    self.say(&proof);
                }
                // it knows the password from an earlier login
                ([0x01, 3], AuthPlugin::CachingSha2Password) => {}
                // it wants to know the password
                ([0x01, 4], AuthPlugin::CachingSha2Password) => {
                    let mut password = self.password().as_bytes().to_vec();
                    password.push(0);
                    if is_secret {
                        self.say(&password);
                        continue;
                    }
                    self.say(&[ASK_FOR_KEY]);
                    let key = self.hear().await?;
                    let key: PublicKeyResponse<'_> = ParseBuf(&key).parse(()).map_err(|_| unexpected())?;
                    let key = key.rsa_key();
                    if password.len() + PADDING > key_length(&key).unwrap_or(0) {
                        let words = "the server's key cannot be used, or is too short for the password";
                        return Err(OpenError::Login(words.to_owned()));
                    }
                    if nonce.is_empty() {
                        return Err(unexpected().into());
                    }
                    for (letter, noise) in password.iter_mut().zip(nonce.iter().cycle()) {
                        *letter ^= noise;
                    }
                    self.say(&crypto::encrypt(&password, key.as_bytes()));
                }
                _ => return Err(unexpected().into()),
            }
        }
    }

    /// What proves that the password is known; nothing without one.
    fn proof(&self, plugin: &AuthPlugin<'_>, nonce: &[u8]) -> Vec<u8> {
        plugin.gen_data(Some(self.password()), nonce).map(|proof| proof.to_vec()).unwrap_or_default()
    }

    fn password(&self) -> &'a str {
        self.login.password.as_ref().map_or("", Secret::reveal)
    }

    fn say(&mut self, payload: &[u8]) {
        self.packets.number = put(self.wire.output(), self.packets.number, |out| out.put_slice(payload));
    }

    /// The payload of the server's next packet. An error that it reports is an error here.
    async fn hear(&mut self) -> Result<Vec<u8>, Error> {
        let payload =
            poll_fn(|context| self.poll_payload(context)).await.map_err(|error| not_sent(&error))?;
        if is_error(&payload) {
            let error = ServerError::read(&payload).map_err(|_| unexpected())?;
            return Err(Error::Answered(Box::new(error)));
        }
        Ok(payload)
    }

    fn poll_payload(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        loop {
            match self.packets.next(&mut self.wire) {
                Next::Whole { length, .. } => {
                    let payload =
                        self.wire.unread().get(HEADER..HEADER + length).unwrap_or_default().to_vec();
                    self.wire.take(HEADER + length);
                    self.wire.clear_away();
                    return Poll::Ready(Ok(payload));
                }
                Next::Missing(missing) if missing > PACKET_MAX => {
                    return Poll::Ready(Err(io::Error::other("the server sent too much before the login")));
                }
                Next::Missing(missing) => ready!(self.wire.poll_exchange(context, missing))?,
            }
        }
    }
}

/// The longest packet that is sent, as a server is told; it has a limit of its own.
const LONGEST: u32 = 1 << 30;
/// The collation of texts that are sent, `utf8mb4_general_ci`: as the library has it in its answer to the greeting.
const COLLATION: u8 = 45;
/// Asks for the key by which a password is to be hidden.
const ASK_FOR_KEY: u8 = 2;
/// Bytes by which a key must be longer than what it hides (RFC 8017, 7.1.1: two hashes of 20 bytes, and two).
const PADDING: usize = 42;

fn serialized(message: &impl MySerialize) -> Vec<u8> {
    let mut payload = Vec::new();
    message.serialize(&mut payload);
    payload
}

/// Reads a greeting.
fn handshake(payload: &[u8]) -> Option<HandshakePacket<'_>> {
    // a length of the nonce above 127 would overflow in the library
    let version = payload.iter().skip(1).position(|byte| *byte == 0)?;
    let length = payload.get(1 + version + 1 + 4 + 8 + 1 + 2 + 1 + 2 + 2)?;
    if *length > 127 || payload.first() != Some(&10) {
        return None;
    }
    let greeting: HandshakePacket<'_> = ParseBuf(payload).parse(()).ok()?;
    greeting.capabilities().contains(CapabilityFlags::CLIENT_PROTOCOL_41).then_some(greeting)
}

/// The length, in bytes, of the number in an RSA public key (PEM); none where it is no such key. The library that uses the
/// key takes it for granted that it is one.
fn key_length(pem: &str) -> Option<usize> {
    let body =
        pem.trim().strip_prefix("-----BEGIN PUBLIC KEY-----")?.strip_suffix("-----END PUBLIC KEY-----")?;
    let body: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let der = STANDARD.decode(body).ok()?;
    let (key, _) = element(0x30, &der)?;
    let (_, bits) = element(0x30, key)?;
    let (bits, _) = element(0x03, bits)?;
    let (numbers, _) = element(0x30, bits.strip_prefix(&[0])?)?;
    let (modulus, exponent) = element(0x02, numbers)?;
    let (exponent, _) = element(0x02, exponent)?;
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    // shorter ones are not safe, and one that does not begin with a bit would be taken for shorter
    let fits = (128..=1024).contains(&modulus.len()) && modulus.first()? & 0x80 != 0;
    let is_small = (1..=8).contains(&exponent.len()) && exponent.iter().any(|byte| *byte != 0);
    (fits && is_small).then_some(modulus.len())
}

/// The content of a DER element with this tag, and what comes behind it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    match length {
        0..=0x7F => rest.split_at_checked(length.into()),
        0x81 | 0x82 => {
            let (length, rest) = rest.split_at_checked((length & 0x7F).into())?;
            rest.split_at_checked(length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
        }
        _ => None,
    }
}

/// Why a connection was not opened. No request of its user's was sent yet.
fn not_sent(error: &io::Error) -> Error {
    refused(&error.to_string())
}

fn refused(why: &str) -> Error {
    Error::NotSent(why.to_owned())
}

fn unexpected() -> Error {
    refused("the server's answer to the login is unexpected")
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{changes, garble};
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAxSKOcxiet8lLMn8ImyUE
bGGKob5EdRz/4wdiw12ED0GfKKTKhVnodFCfm1mdy7bKOX5QxL9skrvYodpW43eR
R5bfOzIgy1qIB8RYb6qOXRBw1oA4snBDqtUjDv/lbHLJN+IbzM4oU+e3Lt9rXyLX
VY289ewONPweXHqSCnTL91w+wkU1peIFV2QhZ+upUCdCtwOn5hnJPNgxtbklFoya
C8W3Z7Xx7He2QDJsEWAqX197efw0L6j8X8Tyd8Uwb7zUB1tfMGhHfm9EwejPAtzx
4GztQNtNMtGS2oGZLQBLV9hib4dDL92iiZeckg2LAf4GsJofLLR8mcHCRoqVbQJ1
YQIDAQAB
-----END PUBLIC KEY-----
";

    #[test]
    fn a_key_is_known_by_its_form() {
        assert_eq!(key_length(KEY), Some(256));
        for none in ["", "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----", &KEY.replace("QAB", "QAA")] {
            // an exponent of 65,536 is a key for all that is known here
            assert_eq!(key_length(none).is_some(), none.contains("QAA"), "{none}");
        }
    }

    proptest! {
        /// The library takes what it is given for a key, and must not be given anything else.
        #[test]
        fn what_passes_for_a_key_can_be_used(changes in changes(1..4), in_der in any::<bool>()) {
            let key = if in_der {
                let body: String = KEY.lines().filter(|line| !line.starts_with('-')).collect();
                let mut der = STANDARD.decode(body).unwrap();
                garble(&mut der, &changes);
                format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", STANDARD.encode(der))
            } else {
                let mut key = KEY.as_bytes().to_vec();
                garble(&mut key, &changes);
                String::from_utf8_lossy(&key).into_owned()
            };
            if let Some(length) = key_length(&key) {
                prop_assert!(crypto::encrypt(&vec![0xFF; length - PADDING], key.as_bytes()).len() <= length);
            }
        }

        #[test]
        fn a_greeting_is_read_or_refused(greeting in prop::collection::vec(any::<u8>(), 0..80), length in any::<u8>()) {
            let told = [b"\x0A5.5\0".as_slice(), &greeting].concat();
            let mut long = told.clone();
            if let Some(at) = long.get_mut(5 + 4 + 8 + 1 + 2 + 1 + 2 + 2) {
                *at = length;
            }
            for greeting in [&told, &long] {
                let _ = handshake(greeting).map(|greeting| greeting.nonce());
            }
        }
    }
}
