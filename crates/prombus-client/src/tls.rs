//! Which hubs are trusted: those that the system trusts, and those with a certificate that the user has added. The same for
//! HTTP and WebSocket.

use crate::ClientError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
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

/// What a failed connection comes down to where it is encryption that failed, and what to do about it.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    Some(match find(error)? {
        rustls::Error::InvalidCertificate(why) => explain_certificate(why),
        // The first thing that came is not what TLS begins with.
        rustls::Error::InvalidMessage(_) => {
            "the server there does not speak TLS: use http:// instead of https://".to_owned()
        }
        _ => return None,
    })
}

fn explain_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "its certificate is signed by an authority that is not trusted here: pass that \
             authority's certificate with --ca-cert or PROMBUS_CA_CERT, or in Rust with ClientOptions::with_extra_ca"
            .to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: renew it".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: check the clocks of both machines".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is for another name: connect to a name that it covers ({why})")
        }
        // What the verifier says beyond the usual has no name of its own here.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => "its certificate is that of an authority, which no \
             server may use: make it with -addext basicConstraints=critical,CA:FALSE, if you use openssl req -x509"
            .to_owned(),
        other => format!(
            "its certificate cannot be verified: if it is signed by an authority of your own, pass that authority's \
             certificate with --ca-cert or PROMBUS_CA_CERT, or in Rust with ClientOptions::with_extra_ca ({other})"
        ),
    }
}

/// The error of TLS behind an error: what the system's own error type wraps is not among its sources.
fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let wrapped = wrapped.map(|inner| inner as &(dyn Error + 'static));
    wrapped.or_else(|| error.source()).and_then(find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_encryption_are_found_where_they_are_wrapped_and_say_what_to_do() {
        let wrap = |error: rustls::Error| io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        let authority =
            CertificateError::Other(rustls::OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity"))));
        for (error, advice) in [
            (rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), "--ca-cert"),
            (rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), "with_extra_ca"),
            (rustls::Error::InvalidCertificate(CertificateError::Expired), "renew"),
            (rustls::Error::InvalidCertificate(CertificateError::NotValidForName), "another name"),
            (rustls::Error::InvalidCertificate(authority), "CA:FALSE"),
            (rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), "use http://"),
        ] {
            let said = explain(&wrap(error)).unwrap();
            assert!(said.contains(advice), "{said}");
        }
        assert_eq!(explain(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }

    #[test]
    fn certificates_that_are_none_are_refused() {
        for bad in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = config(Some(bad.as_bytes())).unwrap_err();
            assert!(matches!(error, ClientError::BadCertificate(_)), "{bad}: {error}");
        }
        assert!(config(None).is_ok());
    }
}
