//! Which hubs are trusted: those that the system trusts, and those that a certificate of the user's vouches for.
//! HTTP and WebSocket go by the same.

use crate::ClientError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// What a connection goes by.
pub(crate) fn config(extra_ca: Option<&[u8]>) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    // A system without certificates, or with odd ones, is no hindrance where the user brings one.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let bad = |why: String| ClientError::BadCertificate(why);
    if let Some(pem) = extra_ca {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(bad("it holds none".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_are_none_are_refused() {
        for bad in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = config(Some(bad.as_bytes())).unwrap_err();
            assert!(matches!(error, ClientError::BadCertificate(_)), "{bad}: {error}");
        }
        assert!(config(None).is_ok());
    }
}
