//! Connections that acidtest's own servers accept.

use std::{io, time::Duration};

use acidtest_model::OwnCertificate;
use tokio::net::TcpStream;

#[cfg(feature = "tls")]
use crate::open::Open;
use crate::{Stream, TlsError};

/// What a client is told that speaks HTTP without TLS where TLS is expected.
#[cfg(feature = "tls")]
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
    content-length: 66\r\n\r\n{\"title\":\"this port is for https, not for http://\",\"status\":400}\r\n";

/// The first byte of all that clients say who speak TLS: the type of a record of the handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: u8 = 22;

/// Makes connections of a server of HTTP ready to be read: with TLS, if the server has a certificate.
#[derive(Clone, Default)]
pub struct Acceptor {
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
}

impl Acceptor {
    /// For a server with this certificate; without one it speaks no TLS.
    ///
    /// # Errors
    /// The certificate or its key cannot be read or used, or this acidtest was built without TLS.
    pub fn new(certificate: Option<&OwnCertificate>) -> Result<Self, TlsError> {
        #[cfg(feature = "tls")]
        return Ok(Self { tls: certificate.map(crate::tls::accepting).transpose()? });
        #[cfg(not(feature = "tls"))]
        match certificate {
            None => Ok(Self {}),
            Some(_) => Err(TlsError::new(
                "this acidtest was built without TLS",
                "build it with the feature tls, or leave --tls-cert and --tls-key out",
            )),
        }
    }

    /// Whether it speaks TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// What addresses of its server begin with.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// Makes a connection ready to be read, which may take so long. A client that speaks HTTP without TLS is told so.
    ///
    /// # Errors
    /// The connection's, or that its client does not speak TLS, or not in time.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "it waits where there is TLS"))]
    pub async fn accept(&self, stream: TcpStream, within: Duration) -> io::Result<Stream> {
        // otherwise an answer may wait for the client's acknowledgement of the one before
        stream.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "its client does not end the handshake");
            return tokio::time::timeout(within, handshake(tls, stream)).await.map_err(late)?;
        }
        #[cfg(not(feature = "tls"))]
        let _ = within;
        Ok(Stream::open(stream))
    }
}

#[cfg(feature = "tls")]
async fn handshake(tls: &tokio_rustls::TlsAcceptor, stream: TcpStream) -> io::Result<Stream> {
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first != [HANDSHAKE] {
        // whoever does not read it is not waited for, and what was left unread would have it taken back
        let _ = stream.try_read(&mut [0; 8192]);
        let _ = stream.try_write(NOT_TLS);
        return Err(io::Error::other("its client does not speak TLS"));
    }
    tls.accept(Open::new(stream)).await.map(Stream::accepted)
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("scheme", &self.scheme()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn the_answer_without_tls_is_as_long_as_it_says() {
        let text = std::str::from_utf8(NOT_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{} bytes", body.len());
    }
}
