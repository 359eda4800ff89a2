//! TLS: the certificate and its key, reloaded when their files change.

use crate::auth::reload::Reloaded;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Where certificate and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate in PEM form, followed by those that it is signed with.
    pub cert: PathBuf,
    /// Its key in PEM form.
    pub key: PathBuf,
}

/// Encrypts connections.
pub(crate) struct Tls(Reloaded<Arc<ServerConfig>>);

impl Tls {
    pub fn open(files: TlsFiles) -> Result<Self, String> {
        let TlsFiles { cert, key } = files.clone();
        Reloaded::open(vec![cert, key], move |texts| config(&files, &texts[0], &texts[1])).map(Self)
    }

    /// What makes the next connection an encrypted one.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.get().as_ref().clone())
    }
}

fn config(files: &TlsFiles, cert: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let bad_cert =
        |why: String| format!("{} is not a certificate in PEM format: {why}", files.cert.display());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert)
        .collect::<Result<_, _>>()
        .map_err(|error| bad_cert(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad_cert("it contains none".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("{} is not a key in PEM format: {error}", files.key.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| {
            let (cert, key) = (files.cert.display(), files.key.display());
            match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("the key in {key} does not belong to the certificate in {cert}")
                }
                other => format!("{cert} and {key} cannot be used together: {other}"),
            }
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
