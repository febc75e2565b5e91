//! The options by which acidtest's own servers listen with TLS.

use std::path::PathBuf;

use acidtest_model::OwnCertificate;
use clap::Args;

/// The certificate of a server of acidtest's own.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListenCertificate {
    /// Listen with TLS only: the server's certificate (PEM), and any intermediate certificates
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl ListenCertificate {
    /// The files; none for a server without TLS.
    pub(crate) fn files(self) -> Option<OwnCertificate> {
        let (chain, key) = self.tls_cert.zip(self.tls_key)?;
        Some(OwnCertificate { chain, key })
    }
}
