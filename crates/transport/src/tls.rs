//! TLS by rustls: its configuration, its handshake, and what its errors mean.

use std::{error::Error, fmt, fs, io, path::Path, sync::Arc};

use acidtest_model::{
    Address, CertificateCheck, NegotiatedTls, OwnCertificate, Tls,
    tls::{checked_less, file_options},
};
use ring::digest;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring as by_ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use x509_cert::{
    Certificate,
    der::{Decode, oid::db::rfc5912},
};

use crate::{Stream, TlsError, open::Open};

/// The TLS of one server's connections.
#[derive(Clone)]
pub struct Security(Arc<Shared>);

struct Shared {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    address: Address,
    check: CertificateCheck,
    issuers: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: the configuration holds the client's private key
        f.debug_struct("Security").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Security {
    pub(crate) fn new(address: &Address, tls: &Tls) -> Result<Self, TlsError> {
        let host = address.host.clone();
        let name = ServerName::try_from(host).map_err(|_| {
            TlsError::new(
                format!("no certificate can be for \"{}\"", address.host),
                "give the server's name or its IP address",
            )
        })?;
        let issuers = match &tls.issuers {
            Some(file) => certificates(file, file_options(&address.scheme)[0])?,
            None if tls.check == CertificateCheck::Nothing => Vec::new(),
            None => trusted_by_the_system(&address.scheme)?,
        };
        // some that systems trust are of forms that nothing here can read
        let issuers: Vec<_> = issuers.into_iter().filter(is_usable).collect();
        let provider = Arc::new(by_ring::default_provider());
        let verifier = verifier(tls, &issuers, &provider)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(error.to_string(), "this is a defect of acidtest"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &tls.certificate {
            None => config.with_no_client_auth(),
            Some(certificate) => {
                let [_, options @ ..] = file_options(&address.scheme);
                let (chain, key) = own(certificate, options)?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| unfit(certificate, options, &error))?
            }
        };
        let mut config = config;
        // every connection makes a handshake of its own, as with most clients: otherwise what the first one pays depends on
        // how many others come with it
        config.resumption = Resumption::disabled();
        let (config, address) = (Arc::new(config), address.clone());
        Ok(Self(Arc::new(Shared { config, name, address, check: tls.check, issuers })))
    }

    /// What is checked of the server's certificate.
    #[must_use]
    pub fn check(&self) -> CertificateCheck {
        self.0.check
    }

    /// The configuration, for a driver that uses rustls itself.
    #[must_use]
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.0.config
    }

    /// The client's own certificate.
    #[cfg(feature = "mysql")]
    pub(crate) fn certificate(&self) -> Option<&OwnCertificate> {
        self.0.address.tls.as_ref()?.certificate.as_ref()
    }

    /// The certificates (DER) whose owners may issue the server's; none if that is not checked.
    #[must_use]
    pub fn issuers(&self) -> &[CertificateDer<'static>] {
        &self.0.issuers
    }

    pub(crate) async fn handshake(&self, stream: Stream) -> io::Result<Stream> {
        let stream = stream.into_open().ok_or_else(|| io::Error::other("it has TLS already"))?;
        let connector = TlsConnector::from(Arc::clone(&self.0.config));
        let connected = connector.connect(self.0.name.clone(), stream).await;
        let stream = connected.map_err(|error| self.explained(error))?;
        Ok(Stream::secured(Secured { stream, security: self.clone() }))
    }

    /// The same error, with what it says of TLS in words.
    pub(crate) fn explained(&self, error: io::Error) -> io::Error {
        match crate::explain(&error, &self.0.address) {
            Some(known) => io::Error::new(error.kind(), known),
            None => error,
        }
    }
}

/// A connection with TLS.
pub(crate) struct Secured {
    pub(crate) stream: TlsStream<Open>,
    pub(crate) security: Security,
}

impl Secured {
    pub(crate) fn negotiated(&self) -> NegotiatedTls {
        let (_, session) = self.stream.get_ref();
        let unknown = || "unknown".to_owned();
        let version = session.protocol_version().map_or_else(unknown, |version| match version {
            rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2".to_owned(),
            rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3".to_owned(),
            other => format!("{other:?}"),
        });
        let cipher = session.negotiated_cipher_suite();
        let cipher = cipher.map_or_else(unknown, |cipher| format!("{:?}", cipher.suite()));
        // as the servers name them: TLS_AES_256_GCM_SHA384
        let cipher = cipher.strip_prefix("TLS13_").map_or(cipher.clone(), |rest| format!("TLS_{rest}"));
        NegotiatedTls { version, cipher, checked: self.security.check(), beyond: None }
    }

    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        let (_, session) = self.stream.get_ref();
        end_point(session.peer_certificates()?.first()?)
    }
}

/// The hash of a certificate by the algorithm of its signature, but SHA-256 in the place of SHA-1 and MD5 (RFC 5929, 4.1).
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = Certificate::from_der(certificate).ok()?.signature_algorithm.oid;
    let hash = match algorithm {
        rfc5912::MD_5_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_1_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_256_WITH_RSA_ENCRYPTION
        | rfc5912::ECDSA_WITH_SHA_256 => &digest::SHA256,
        rfc5912::SHA_384_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_384 => &digest::SHA384,
        rfc5912::SHA_512_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_512 => &digest::SHA512,
        // such as Ed25519, which names none
        _ => return None,
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

fn certificates(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = read(file, option)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::new(
            format!("{} ({option}) holds no readable certificates", file.display()),
            "name a PEM file, with lines BEGIN CERTIFICATE",
        )),
    }
}

fn read(file: &Path, option: &str) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|error| {
        TlsError::new(
            format!("cannot read {} ({option}): {error}", file.display()),
            "check the path, and that you may read the file",
        )
    })
}

/// Reads a certificate and its key, which were named by these options.
fn own(
    certificate: &OwnCertificate,
    [chain_option, key_option]: [&str; 2],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(&certificate.chain, chain_option)?;
    let content = read(&certificate.key, key_option)?;
    let key = PrivateKeyDer::from_pem_slice(&content).map_err(|_| {
        let is_encrypted = content.windows(9).any(|word| word == b"ENCRYPTED");
        let what = if is_encrypted { "is encrypted" } else { "holds no readable private key" };
        TlsError::new(
            format!("{} ({key_option}) {what}", certificate.key.display()),
            "name a PEM file, with a line BEGIN PRIVATE KEY; openssl pkey removes a password",
        )
    })?;
    Ok((chain, key))
}

fn unfit(certificate: &OwnCertificate, [chain, key]: [&str; 2], error: &rustls::Error) -> TlsError {
    TlsError::new(
        format!(
            "the key {} does not belong to the certificate {}, or cannot be used: {error}",
            certificate.key.display(),
            certificate.chain.display()
        ),
        format!("give a certificate with {chain} and its own key with {key}"),
    )
}

/// What a server of acidtest's own speaks TLS by, which has this certificate.
pub(crate) fn accepting(certificate: &OwnCertificate) -> Result<TlsAcceptor, TlsError> {
    let options = ["--tls-cert", "--tls-key"];
    let (chain, key) = own(certificate, options)?;
    let config = ServerConfig::builder_with_provider(Arc::new(by_ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(error.to_string(), "this is a defect of acidtest"))?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| unfit(certificate, options, &error))?;
    // others than HTTP/1.1 are not spoken, which browsers would choose
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn trusted_by_the_system(scheme: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(TlsError::new(
            format!("no certificates of trusted issuers were found on the system{why}"),
            format!(
                "install the package ca-certificates, or give the issuer's certificate with {}=FILE",
                file_options(scheme)[0]
            ),
        ));
    }
    Ok(found.certs)
}

fn is_usable(issuer: &CertificateDer<'static>) -> bool {
    RootCertStore::empty().add(issuer.clone()).is_ok()
}

fn verifier(
    tls: &Tls,
    issuers: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    if tls.check == CertificateCheck::Nothing {
        return Ok(Arc::new(Lenient { issuers: None, provider: Arc::clone(provider) }));
    }
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(issuers.iter().cloned());
    let unusable = |why: String| {
        let file =
            tls.issuers.as_deref().map_or_else(|| "the system".to_owned(), |file| file.display().to_string());
        TlsError::new(
            format!("no certificate of {file} can be that of an issuer{why}"),
            "name a PEM file with the certificate of the server's issuer (CA)",
        )
    };
    if usable == 0 {
        return Err(unusable(String::new()));
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    let verifier = verifier.map_err(|error| unusable(format!(": {error}")))?;
    if tls.check == CertificateCheck::Name {
        return Ok(verifier);
    }
    Ok(Arc::new(Lenient { issuers: Some(verifier), provider: Arc::clone(provider) }))
}

/// Looks at less than the whole certificate: at its issuer, or at nothing but that the server has its private key.
#[derive(Debug)]
struct Lenient {
    issuers: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(issuers) = &self.issuers else { return Ok(ServerCertVerified::assertion()) };
        // the name is the last thing that is looked at
        match issuers.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What an error of rustls, or of a connection under it, says of TLS.
pub(crate) fn explain(error: &(dyn Error + 'static), address: &Address) -> Option<TlsError> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(of_rustls(error, address));
    }
    // these are tokio-rustls' words for a connection that ends within the handshake
    let cut = error.downcast_ref::<io::Error>().is_some_and(|error| {
        error.kind() == io::ErrorKind::UnexpectedEof && error.to_string().contains("handshake")
    });
    cut.then(|| {
        TlsError::new(
            "the connection was cut in the middle of the handshake of TLS",
            "check that the port is for TLS, and look into the server's log",
        )
    })
}

fn of_rustls(error: &rustls::Error, address: &Address) -> TlsError {
    let [_, chain, key] = file_options(&address.scheme);
    match error {
        rustls::Error::InvalidCertificate(why) => of_certificate(why, address),
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => TlsError::new(
            "the server asks for a client certificate",
            format!("give one with {chain}=FILE, and its key with {key}=FILE"),
        ),
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(_) => TlsError::new(
            "the server and acidtest have no version or cipher of TLS in common",
            "set the server to TLS 1.2 or 1.3, with current ciphers",
        ),
        rustls::Error::AlertReceived(alert) => {
            let alert = format!("{alert:?}");
            match address.tls.as_ref().and_then(|tls| tls.certificate.as_ref()) {
                Some(own) => TlsError::new(
                    format!("the server ended the handshake (alert {alert})"),
                    format!("check that it accepts the client's certificate {}", own.chain.display()),
                ),
                None => TlsError::new(
                    format!("the server ended the handshake (alert {alert})"),
                    format!(
                        "look into its log; if it asks for a client certificate, give one with {chain}=FILE and {key}=FILE"
                    ),
                ),
            }
        }
        rustls::Error::InvalidMessage(_)
        | rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. } => TlsError::new(
            "the server does not answer in TLS",
            "check the port: if it is one without TLS, use an address that does not ask for TLS",
        ),
        other => TlsError::new(format!("TLS failed: {other}"), "look into the server's log"),
    }
}

fn of_certificate(why: &CertificateError, address: &Address) -> TlsError {
    let [issuers, ..] = file_options(&address.scheme);
    let less = |check| checked_less(&address.scheme, check);
    let nothing = less(CertificateCheck::Nothing);
    match why {
        CertificateError::ExpiredContext { time, not_after } => TlsError::new(
            format!(
                "the server's certificate has expired, {} ago",
                span(time.as_secs().saturating_sub(not_after.as_secs()))
            ),
            "renew the server's certificate, or set this machine's clock",
        ),
        CertificateError::NotValidYetContext { time, not_before } => TlsError::new(
            format!(
                "the server's certificate is not valid yet, but in {}",
                span(not_before.as_secs().saturating_sub(time.as_secs()))
            ),
            "set this machine's clock, or that of the one that issued the certificate",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => TlsError::new(
            format!("the server's certificate is not for \"{}\"{}", address.host, names(why)),
            format!(
                "use a name from the certificate in the address; or turn off the check of the name with {}",
                less(CertificateCheck::Issuer)
            ),
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            let by = address.tls.as_ref().and_then(|tls| tls.issuers.as_deref());
            let by = by.map_or_else(
                || "anybody that the system trusts".to_owned(),
                |file| file.display().to_string(),
            );
            TlsError::new(
                format!("the server's certificate was not issued by {by}"),
                format!(
                    "give its issuer's certificate with {issuers}=FILE; or turn off all checks with {nothing}"
                ),
            )
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => TlsError::new(
            "the server's certificate is for an issuer, not for a server (CA:TRUE)",
            format!("have it issue one for the server; or turn off all checks with {nothing}"),
        ),
        other => TlsError::new(
            format!("the server's certificate cannot be accepted: {other}"),
            format!("have another one issued; or turn off all checks with {nothing}"),
        ),
    }
}

/// The names that a certificate is for, in words that follow its description.
fn names(why: &CertificateError) -> String {
    let CertificateError::NotValidForNameContext { presented, .. } = why else { return String::new() };
    // as rustls writes them: DnsName("localhost"), IpAddress(127.0.0.1)
    let bare = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
        inner.trim_end_matches(')').trim_matches('"').to_owned()
    };
    let names: Vec<String> = presented.iter().map(bare).collect();
    if names.is_empty() {
        ", and has no other name".to_owned()
    } else {
        format!(", but for {}", names.join(", "))
    }
}

/// A span of time of seconds, in the largest unit of which it has two.
fn span(seconds: u64) -> String {
    let units = [("days", 86_400), ("hours", 3600), ("minutes", 60)];
    let unit = units.into_iter().find(|(_, length)| seconds >= 2 * length);
    unit.map_or_else(|| format!("{seconds} s"), |(name, length)| format!("{} {name}", seconds / length))
}
