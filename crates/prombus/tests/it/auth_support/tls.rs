//! Certificates that sign themselves, and lines that trust one of them.

use crate::contract_support::{Answer, Api, Call};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A line that is encrypted.
pub type Secure = StreamOwned<ClientConnection, TcpStream>;

/// A certificate for `localhost` and its key.
pub struct Identity {
    pub cert_pem: String,
    pub key_pem: String,
    der: CertificateDer<'static>,
}

impl Identity {
    pub fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        Self { cert_pem: cert.pem(), key_pem: signing_key.serialize_pem(), der: cert.der().clone() }
    }

    /// The files that a hub is started with.
    pub fn files(&self) -> [(&str, &str); 2] {
        [("hub.pem", &self.cert_pem), ("hub.key", &self.key_pem)]
    }

    /// A line to a hub that has to be this one.
    pub fn connect(&self, api: &Api) -> std::io::Result<Secure> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut line = StreamOwned::new(connection, api.connect());
        while line.conn.is_handshaking() {
            line.conn.complete_io(&mut line.sock)?;
        }
        Ok(line)
    }

    /// One call over a line of its own.
    #[track_caller]
    pub fn call(&self, api: &Api, call: &Call) -> Answer {
        let mut line = self.connect(api).unwrap();
        line.write_all(&call.and_close().bytes()).unwrap();
        line.flush().unwrap();
        let mut bytes = Vec::new();
        match line.read_to_end(&mut bytes) {
            Ok(_) => (),
            // Some ends do not say goodbye in the language of the encryption.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => (),
            Err(error) => panic!("{error}"),
        }
        Answer::parse(&bytes, call.method == "HEAD").unwrap_or_else(|| panic!("{bytes:?}"))
    }
}
