//! The certificates of private servers: made when a server is, in its folder, and gone with it.

use std::{
    fs,
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

#[cfg(feature = "tls")]
use std::{io, os::unix::fs::DirBuilderExt};

use acidtest_model::Tls;

use crate::{error::LabError, user::User};

/// The folder of a server that has them.
const FOLDER: &str = "tls";

/// The names that a private server is reached by.
#[cfg(feature = "tls")]
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// The files of a server with TLS, all of them PEM.
#[derive(Clone, Debug)]
pub(crate) struct ServerFiles {
    /// The certificate of the issuer, which clients need.
    pub(crate) issuer: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The folder that they are in, for what else a server needs for TLS.
    pub(crate) folder: PathBuf,
}

impl ServerFiles {
    /// Those in the folder of a member.
    pub(crate) fn of(member: &Path) -> Self {
        let folder = member.join(FOLDER);
        let [issuer, certificate, key] =
            ["issuer.pem", "server.pem", "server.key"].map(|name| folder.join(name));
        Self { issuer, certificate, key, folder }
    }

    /// What the address of such a server says of TLS.
    pub(crate) fn tls(&self) -> Tls {
        Tls::issued_by(&self.issuer)
    }

    /// Makes the folder, an issuer, and a certificate of its. The key may be read by `user`, if there is one.
    #[cfg(feature = "tls")]
    pub(crate) fn make(&self, user: Option<User>) -> Result<(), LabError> {
        let unmade = |error: rcgen::Error| {
            LabError::at("making certificates in", &self.folder)(io::Error::other(error))
        };
        let (issuer, server) = Issuer::new()
            .and_then(|issuer| Ok((issuer.certificate(), issuer.issue(&NAMES)?)))
            .map_err(unmade)?;
        // the servers' user must be able to pass through
        let made = fs::DirBuilder::new().mode(0o711).create(&self.folder);
        made.map_err(LabError::at("making", &self.folder))?;
        write(&self.issuer, 0o644, &issuer, user)?;
        write(&self.certificate, 0o644, &server.certificate, user)?;
        write(&self.key, 0o600, &server.key, user)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "it is used where there is TLS")]
    pub(crate) fn make(&self, _: Option<User>) -> Result<(), LabError> {
        Err(LabError::NoTls { why: "this acidtest was built without the feature tls" })
    }
}

/// Writes a file for the server to read, which may run as `user`.
pub(crate) fn write(file: &Path, mode: u32, content: &str, user: Option<User>) -> Result<(), LabError> {
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    let written = written.and_then(|mut open| {
        open.write_all(content.as_bytes())?;
        // whatever our umask
        open.set_permissions(fs::Permissions::from_mode(mode))?;
        user.map_or(Ok(()), |user| chown(file, Some(user.uid), Some(user.gid)))
    });
    written.map_err(LabError::at("writing", file))
}

/// An issuer of certificates that nobody trusts who is not told to.
#[cfg(feature = "tls")]
pub struct Issuer(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

/// A certificate that was issued, with its key, both PEM.
#[cfg(feature = "tls")]
#[derive(Clone)]
pub struct Issued {
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

#[cfg(feature = "tls")]
impl Issuer {
    /// A new one, with a key of its own.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new() -> Result<Self, rcgen::Error> {
        let mut parameters = rcgen::CertificateParams::new(Vec::new())?;
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "acidtest's own issuer");
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        parameters.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        rcgen::CertifiedIssuer::self_signed(parameters, rcgen::KeyPair::generate()?).map(Self)
    }

    /// Its own certificate (PEM), which those have to trust who are to trust what it issues.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for these host names and IP addresses; the first one is also its owner's common name.
    ///
    /// # Errors
    /// A name is none, or the system gives no random numbers.
    pub fn issue(&self, names: &[&str]) -> Result<Issued, rcgen::Error> {
        self.issue_with(names, |_| {})
    }

    /// The same, with what this changes of the certificate.
    ///
    /// # Errors
    /// As [`issue`](Self::issue).
    pub fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> Result<Issued, rcgen::Error> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let owner = names.first().cloned().unwrap_or_default();
        let mut parameters = rcgen::CertificateParams::new(names)?;
        parameters.distinguished_name.push(rcgen::DnType::CommonName, owner);
        parameters.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        let key = rcgen::KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.0)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
