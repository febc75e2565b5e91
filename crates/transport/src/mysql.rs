//! The same TLS for the driver of `MySQL` and `MariaDB`, which makes its own configuration.

use acidtest_model::CertificateCheck;
use mysql_async::{ClientIdentity, SslOpts};

use crate::Security;

/// A name that no server has, but that is in what the driver looks for. Where it is told not to check the name, 0.37.1 takes
/// an error for that of a wrong name by a word in its text; rustls 0.23 no longer writes that word, but writes the name that
/// was asked for. The driver looks at the name last.
const ANY_NAME: &str = "NotValidForName";

impl Security {
    /// The driver's options for it.
    #[must_use]
    pub fn mysql(&self) -> SslOpts {
        let check = self.check();
        let buffers = self.issuers().iter().map(|issuer| issuer.to_vec().into());
        let identity = self
            .certificate()
            .map(|own| ClientIdentity::new(own.chain.clone().into(), own.key.clone().into()));
        SslOpts::default()
            .with_root_certs(buffers.collect())
            // it refuses to have no issuers at all, also where it is not to look at them
            .with_disable_built_in_roots(check != CertificateCheck::Nothing)
            .with_danger_accept_invalid_certs(check == CertificateCheck::Nothing)
            .with_danger_skip_domain_validation(check != CertificateCheck::Name)
            .with_danger_tls_hostname_override((check == CertificateCheck::Issuer).then_some(ANY_NAME))
            .with_client_identity(identity)
    }
}
