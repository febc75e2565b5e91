//! A certificate for acidtest's own servers, in files of its own, and whoever believes it.

use std::{fs, io, net::TcpStream, sync::Arc};

use acidtest_lab::Issuer;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tempfile::TempDir;

pub struct Certificate {
    folder: TempDir,
    issuer: Issuer,
}

impl Certificate {
    /// One for these names.
    pub fn of(names: &[&str]) -> Self {
        let (folder, issuer) = (TempDir::new().unwrap(), Issuer::new().unwrap());
        let new = Self { folder, issuer };
        new.issue(names);
        fs::write(new.file("issuer.pem"), new.issuer.certificate()).unwrap();
        new
    }

    /// Puts a new one in its place.
    pub fn issue(&self, names: &[&str]) {
        let issued = self.issuer.issue(names).unwrap();
        fs::write(self.file("server.pem"), issued.certificate).unwrap();
        fs::write(self.file("server.key"), issued.key).unwrap();
    }

    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The options of a server that has it.
    pub fn options(&self) -> [String; 4] {
        ["--tls-cert".to_owned(), self.file("server.pem"), "--tls-key".to_owned(), self.file("server.key")]
    }

    /// Speaks TLS with its server, as one that trusts its issuer. What is said first is sent together with the end of the
    /// handshake, as some clients do.
    pub fn secure(
        &self,
        mut stream: TcpStream,
        first: &[u8],
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.issuer.certificate().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            while session.wants_write() {
                session.write_tls(&mut stream)?;
            }
            if session.read_tls(&mut stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            session.process_new_packets().map_err(io::Error::other)?;
        }
        io::Write::write_all(&mut session.writer(), first)?;
        let mut together = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut together)?;
        }
        io::Write::write_all(&mut stream, &together)?;
        Ok(StreamOwned::new(session, stream))
    }
}
