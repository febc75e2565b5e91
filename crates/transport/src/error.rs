//! What goes wrong with TLS, in words, with its remedy.

use std::{error::Error, io, sync::Arc};

use acidtest_model::Address;
#[cfg(feature = "tls")]
use acidtest_model::no_tls_within;

/// Why TLS did not come about, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct TlsError {
    /// What went wrong, in words.
    pub cause: String,
    /// What to do about it, in words for the user.
    pub remedy: String,
}

impl TlsError {
    pub(crate) fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause: cause.into(), remedy: remedy.into() }
    }

    /// The server lets the handshake wait.
    #[cfg(feature = "tls")]
    pub(crate) fn silent(span: std::time::Duration) -> Self {
        Self::new(
            no_tls_within(span),
            "check that the port is for TLS, and that the server is not stopped or overloaded",
        )
    }

    /// TLS was asked for of a server that says it has none.
    #[must_use]
    pub fn absent() -> Self {
        Self::new(
            "the server has no TLS, so nothing was sent to it",
            "switch TLS on in the server, or give an address that does not ask for it",
        )
    }

    /// A server demands TLS from an address that does not ask for it.
    #[must_use]
    pub fn demanded(address: &Address) -> Self {
        Self::new("the server demands TLS", demand(address))
    }
}

/// The remedy where a server demands TLS, or seems to.
#[must_use]
pub fn demand(address: &Address) -> String {
    let asked = acidtest_model::tls::asked_for(&address.scheme);
    if asked.starts_with('?') {
        format!("add {asked} to the address")
    } else {
        format!("write {asked} in the address")
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::other(error)
    }
}

impl TlsError {
    /// The one that is among an error's causes, where the connection is one of [`Transport`](crate::Transport).
    #[must_use]
    pub fn within(error: &(dyn Error + 'static)) -> Option<Self> {
        among_causes(error, |each| each.downcast_ref::<Self>().cloned())
    }
}

/// What an error says of TLS, if that has caused it, however deep among its causes. For drivers that use rustls themselves.
#[must_use]
#[cfg_attr(
    not(feature = "tls"),
    expect(unused_variables, reason = "only rustls' errors depend on the address")
)]
pub fn explain(error: &(dyn Error + 'static), address: &Address) -> Option<TlsError> {
    #[cfg(feature = "tls")]
    let foreign = among_causes(error, |each| crate::tls::explain(each, address));
    #[cfg(not(feature = "tls"))]
    let foreign = None;
    TlsError::within(error).or(foreign)
}

/// What is found first when this looks at an error and its causes, one after the other.
fn among_causes<T>(
    error: &(dyn Error + 'static),
    look: impl Fn(&(dyn Error + 'static)) -> Option<T>,
) -> Option<T> {
    let mut cause = Some(error);
    while let Some(each) = cause {
        // the error inside one of these is not among its sources
        let inside = each.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inside = inside.map(|inside| inside as &(dyn Error + 'static));
        let shared = each.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let shared = shared.map(|shared| &**shared as &(dyn Error + 'static));
        if let found @ Some(_) = look(each).or_else(|| inside.and_then(&look)) {
            return found;
        }
        cause = shared.or(inside).or_else(|| each.source());
    }
    None
}
