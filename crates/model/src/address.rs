//! The address of a store: a URL whose password is never shown.

use std::{
    borrow::Cow,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use url::Url;

use crate::{
    tls::{self, Tls},
    unix_socket::{self, Named, Written},
};

/// A password: shown as `***` by every formatter, readable only on purpose.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password, which only [`reveal`](Self::reveal) shows.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }

    /// The password itself, for a driver's login and nothing else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A text that is not a usable address, with the reason and an example of a good one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad address \"{shown}\": {reason}; write it as {example}")]
pub struct AddressError {
    /// The address without its password.
    pub shown: String,
    /// Why the address cannot be used.
    pub reason: String,
    /// A well-formed address.
    pub example: &'static str,
}

/// A server's address (`postgres://user:password@host:port/database`) or that of a file or folder
/// (`sqlite:path`).
///
/// Formatting one never shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The scheme as given: `postgres`, `mysql`, `redis`, `tarantool`, `sqlite` and so on.
    pub scheme: String,
    /// The user name to log in with; `None` if the address gives none.
    pub user: Option<String>,
    /// The password to log in with; from the address or from the environment variable `ACIDTEST_PASSWORD`.
    pub password: Option<Secret>,
    /// Host name or IP address; empty for a file, `localhost` for a Unix socket.
    pub host: String,
    /// TCP port; `None` if the address gives none.
    pub port: Option<u16>,
    /// The path of the Unix socket by which it is reached instead of TCP; of PostgreSQL's the folder, in which the port names it.
    pub socket: Option<String>,
    /// Database name, database number or file path; empty if not given.
    pub path: String,
    /// What it says of TLS; none where it asks for none. The scheme is that of the same address without TLS.
    pub tls: Option<Box<Tls>>,
    /// How long opening a connection may take, with its handshake of TLS and its login. No address says it: it is the plan's.
    pub connect_timeout: Duration,
}

/// Schemes whose address is the path of a file or folder, not a host.
const FILES: [&str; 2] = ["sqlite", "fjall"];

const EXAMPLE: &str = "scheme://user:password@host:port/database, or sqlite:path";

impl Address {
    /// How long opening a connection may take where nobody says otherwise.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Whether addresses of this scheme name a Unix socket by it, as `redis+unix` does.
    #[must_use]
    pub fn is_of_sockets(scheme: &str) -> bool {
        unix_socket::is_named_by(scheme)
    }

    /// Parses an address.
    ///
    /// # Errors
    /// The text is not a URL, has no host, has an `@` behind its host, as it has where a password holds
    /// what has a meaning in an address, or has options that mean nothing, or a fragment, which would be ignored; or it asks
    /// for TLS on a Unix socket.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let bad = |reason: &str| AddressError {
            shown: without_password(text),
            reason: reason.to_owned(),
            example: EXAMPLE,
        };
        if let Some((scheme, path)) = text.split_once(':').filter(|(scheme, _)| FILES.contains(scheme)) {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(bad("no file is named"));
            }
            return Ok(Self::file(scheme, path));
        }
        if let Some(sign) = before_a_late_at(text) {
            let code = escaped(&sign.to_string());
            return Err(bad(&format!(
                "an @ follows a {sign}, which ends the host: in a user name or password, write {sign} as {code}, as in \
                 {}://ann:a{code}b@host, and % as %25; behind the host, write @ as %40",
                text.split(':').next().unwrap_or_default()
            )));
        }
        let named = Named::by(text).map_err(|(reason, example)| AddressError { example, ..bad(&reason) })?;
        let Some(Named { over_tcp, socket, example }) = named else { return Self::parse_host(text) };
        let of_socket = |reason: String| AddressError { example, ..bad(&reason) };
        let address = Self::parse_host(&over_tcp).map_err(|error| of_socket(error.reason))?;
        if address.tls.is_some() {
            return Err(of_socket(
                "TLS is for networks, and what goes through a Unix socket stays on its machine: leave the options of TLS out".to_owned(),
            ));
        }
        Ok(Self { socket: Some(socket), ..address })
    }

    /// The same of an address that names a host.
    fn parse_host(text: &str) -> Result<Self, AddressError> {
        let bad = |reason: &str| AddressError {
            shown: without_password(text),
            reason: reason.to_owned(),
            example: EXAMPLE,
        };
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(bad("it names no host"));
        };
        if url.fragment().is_some() {
            return Err(bad("a # and what follows it are not supported; in a password, write it as %23"));
        }
        // a + is a plus here: a file may have one in its name
        let options = url.query().into_iter().flat_map(|query| query.split('&')).map(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            Some((decoded(name)?, decoded(value)?))
        });
        let options: Option<Vec<_>> = options.collect();
        let options = options.ok_or_else(|| bad("an option is not UTF-8"))?;
        let tls::Read { scheme, port, tls } =
            tls::read(url.scheme(), &options).map_err(|reason| bad(&reason))?;
        let user = decoded(url.username()).ok_or_else(|| bad("the user name is not UTF-8"))?;
        let password = match url.password() {
            Some(word) => Some(Secret::new(
                decoded(word).ok_or_else(|| bad("the password is not UTF-8; write a % in it as %25"))?,
            )),
            None => None,
        };
        Ok(Self {
            scheme,
            user: (!user.is_empty()).then_some(user),
            password,
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            socket: None,
            // that of http is left out of a URL, though it was written
            port: url.port_or_known_default().or(port),
            path: decoded(url.path().trim_start_matches('/'))
                .ok_or_else(|| bad("the database name is not UTF-8"))?,
            tls: tls.map(Box::new),
            connect_timeout: Self::CONNECT_TIMEOUT,
        })
    }

    /// The address of a file or folder.
    #[must_use]
    pub fn file(scheme: &str, path: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            user: None,
            password: None,
            host: String::new(),
            port: None,
            socket: None,
            path: path.to_owned(),
            tls: None,
            connect_timeout: Self::CONNECT_TIMEOUT,
        }
    }

    /// The address of a server on this machine's loopback.
    #[must_use]
    pub fn loopback(scheme: &str, user: Option<&str>, port: u16, path: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            user: user.map(str::to_owned),
            password: None,
            host: "127.0.0.1".to_owned(),
            port: Some(port),
            socket: None,
            path: path.to_owned(),
            tls: None,
            connect_timeout: Self::CONNECT_TIMEOUT,
        }
    }

    /// Whether it names this machine: a file, a Unix socket, `localhost`, or a loopback address. Another name of this machine is not known for one.
    #[must_use]
    pub fn is_on_this_machine(&self) -> bool {
        let is_loopback = || self.host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        self.host.is_empty() || self.host.eq_ignore_ascii_case("localhost") || is_loopback()
    }

    /// The file of its Unix socket, if it names one, with `default` where no port is given.
    #[must_use]
    pub fn socket_file(&self, default: u16) -> Option<PathBuf> {
        let path = Path::new(self.socket.as_ref()?);
        let is_folder = unix_socket::is_in_folder(&self.scheme);
        let named = || path.join(format!(".s.PGSQL.{}", self.port.unwrap_or(default)));
        Some(if is_folder { named() } else { path.to_owned() })
    }

    /// What there is to check of an address at which nobody answers.
    #[must_use]
    pub fn to_check(&self) -> &'static str {
        if self.socket.is_some() {
            "the path of its Unix socket, and that this user may write to it"
        } else {
            "its host and port"
        }
    }

    /// `host:port`, as one would type it to reach the server, with `default` where no port is given.
    #[must_use]
    pub fn endpoint(&self, default: u16) -> String {
        let port = self.port.unwrap_or(default);
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.is_empty() {
            return write!(f, "{}:{}", self.scheme, self.path);
        }
        let (scheme, host, path, options) = if let Some(socket) = &self.socket {
            let Written { scheme, host, path, options } =
                unix_socket::written(&self.scheme, socket, &self.path);
            let options = options.into_iter().map(|(name, value)| (name, Cow::Borrowed(value)));
            // a path stays legible
            (scheme, host, escaped(path).replace("%2F", "/"), options.collect())
        } else {
            let tls = self.tls.as_ref().map(|tls| tls::written(&self.scheme, tls));
            let (scheme, options) = tls.unwrap_or((&self.scheme, Vec::new()));
            (scheme, self.host.as_str(), escaped(&self.path), options)
        };
        write!(f, "{scheme}://")?;
        if let Some(user) = &self.user {
            f.write_str(&escaped(user))?;
        }
        // a login without a user name, such as Redis', still shows that there is one
        if self.user.is_some() || self.password.is_some() {
            f.write_str("@")?;
        }
        if host.contains(':') {
            write!(f, "[{host}]")?;
        } else {
            f.write_str(host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if !path.is_empty() {
            write!(f, "/{path}")?;
        }
        for (place, (name, value)) in options.iter().enumerate() {
            let between = if place == 0 { '?' } else { '&' };
            // a path stays legible
            write!(f, "{between}{name}={}", escaped(value).replace("%2F", "/"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What ends the host of an address, if an `@` follows it. It may stand in a password: whoever reads the address otherwise takes
/// a part of the password for a host, a path or an option, and shows it.
fn before_a_late_at(text: &str) -> Option<char> {
    let (scheme, rest) = text.split_once("://")?;
    // addresses of HTTP have a second kind of slash
    let ends = |letter: char| "/?#".contains(letter) || (letter == '\\' && scheme.starts_with("http"));
    let end = rest.find(ends)?;
    rest[end..].contains('@').then(|| rest[end..].chars().next())?
}

/// The part of an unreadable address that can be shown. Where its password stands is not known, so only the scheme
/// and the text after the last `@` are kept.
fn without_password(text: &str) -> String {
    let scheme = text.split(':').next().unwrap_or_default();
    let rest = text.rsplit_once('@').map_or("", |(_, host)| host);
    // a password may stand among the options, where it is not taken
    let rest = rest.split('?').next().unwrap_or_default();
    format!("{scheme}:…{rest}")
}

/// The text with every character escaped that has a meaning in an address, so that it is read again unchanged.
fn escaped(text: &str) -> String {
    let plain =
        |letter: char| letter.is_ascii_alphanumeric() || "-._~".contains(letter) || !letter.is_ascii();
    text.chars()
        .map(|letter| if plain(letter) { letter.to_string() } else { format!("%{:02X}", u32::from(letter)) })
        .collect()
}

/// The text with its percent escapes decoded; `None` where the result is not UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = (first == b'%').then(|| tail.get(..2)).flatten();
        let value = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_address_is_read_whole() {
        let address = Address::parse("postgres://ann:s%40cret@db.example:6000/shop").unwrap();
        assert_eq!(address.user.as_deref(), Some("ann"));
        assert_eq!(address.password.as_ref().map(Secret::reveal), Some("s@cret"));
        assert_eq!((address.host.as_str(), address.port), ("db.example", Some(6000)));
        assert_eq!(address.path, "shop");
    }

    #[test]
    fn no_formatter_shows_the_password() {
        let address = Address::parse("mysql://ann:hunter2@host/db").unwrap();
        for shown in [format!("{address}"), format!("{address:?}"), format!("{:?}", address.password)] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        for text in ["mysql://ann:hunt@er2@/db?ssl=1", "mysql:ann:hunter2@host/db", "mysql://ann:hunter2"] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(!error.contains("er2") && !error.contains("hunt"), "{error}");
        }
    }

    #[test]
    fn what_has_a_meaning_in_an_address_is_taken_or_its_spelling_is_told() {
        let password = |text: &str| {
            let address = Address::parse(text).unwrap();
            (address.user, address.password.unwrap().reveal().to_owned())
        };
        let ann = || Some("ann".to_owned());
        assert_eq!(password("postgres://ann:s%23e%3Fc%25r%2Fet@h/db"), (ann(), "s#e?c%r/et".to_owned()));
        assert_eq!(password("postgres://ann:s%pcr@et%@h/db"), (ann(), "s%pcr@et%".to_owned()));
        assert_eq!(password("redis://:secret@h:7000/1"), (None, "secret".to_owned()));
        for (text, code) in [
            ("postgres://ann:se#cret@h/db", "write # as %23, as in postgres://ann:a%23b@host"),
            ("redis://:se#cret@h", "write # as %23"),
            ("mysql://ann:se?cret@h/db", "write ? as %3F"),
            ("mysql://ann:se@se?cret@h/db", "write ? as %3F"),
            ("amqp://ann:12/secret@h/db", "write / as %2F"),
            ("https://ann:se\\cret@h", "write \\ as %5C"),
            ("postgres://ann:se%ffcret@h/db", "write a % in it as %25"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(
                error.contains(code) && !error.contains("cret") && !error.contains("se@"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_file_is_an_address_too() {
        assert_eq!(Address::parse("sqlite:/tmp/a.db").unwrap().path, "/tmp/a.db");
        assert_eq!(Address::parse("sqlite:///tmp/a.db").unwrap().path, "/tmp/a.db");
        assert!(Address::parse("sqlite:").is_err());
        let folder = Address::parse("fjall:some/folder").unwrap();
        assert_eq!((folder.scheme.as_str(), folder.path.as_str()), ("fjall", "some/folder"));
    }

    #[test]
    fn files_and_loopback_are_on_this_machine() {
        let is_here = |text| Address::parse(text).unwrap().is_on_this_machine();
        for text in
            ["sqlite:a.db", "mysql://LocalHost", "redis://127.0.1.1:7000", "postgres://ann@[::1]:5433/db"]
        {
            assert!(is_here(text), "{text}");
        }
        for text in ["mysql://localhost.example", "redis://10.0.0.1", "postgres://[::2]/db", "nats://h"] {
            assert!(!is_here(text), "{text}");
        }
    }

    #[test]
    fn a_shown_address_reads_back() {
        for text in ["redis://127.0.0.1:7000", "postgres://ann@[::1]:5433/db", "sqlite:x.db"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "postgres://a%3Ab%40c@h/d%3Fx%23",
            "amqp://h/%2Forders",
            "mysql://h/a%2541",
            "redis://ä%25@h/b%20c,d",
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.password, None);
            assert_eq!(
                Address::parse(&address.to_string()).unwrap(),
                address,
                "{text} is shown as {address}"
            );
        }
    }

    #[test]
    fn options_are_refused_rather_than_ignored() {
        for text in [
            "postgres:///db",
            "postgres://h/db#x",
            "postgres://h/db?timeout=1",
            "tarantool://h?sslmode=require",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
