//! TLS by rustls: the server must prove to be the origin's host, to certificates we trust.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Whom we trust to say who a server is.
#[derive(Clone, Default)]
pub enum Roots {
    /// The system's certificates, read when the client starts.
    #[default]
    Native,
    /// These certificates and no others, in PEM.
    Pem(String),
    /// A whole configuration, for a certificate of our own, for example. ALPN is what it says.
    Config(Arc<ClientConfig>),
}

/// Why nobody can be trusted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The system has no certificates we can read.
    #[error("the system's certificates cannot be read, or there are none")]
    NoRoots,
    /// The PEM text holds none, or something else.
    #[error("no usable certificates in the PEM text")]
    Certificates,
    /// Rustls refuses its own defaults.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

impl Roots {
    /// What [`Client::start`](crate::Client::start) makes connections with: for a connector of one's own
    /// ([`Client::start_over`](crate::Client::start_over)). Reads the system's certificates, or the text.
    ///
    /// # Errors
    ///
    /// [`TlsError`].
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = match self {
            Self::Config(config) => return Ok(Arc::clone(config)),
            Self::Native => native()?,
            Self::Pem(pem) => given(pem)?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "Native",
            Self::Pem(_) => "Pem",
            Self::Config(_) => "Config",
        })
    }
}

fn native() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // A store may hold certificates nobody can read; what counts is that some are usable.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn given(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| TlsError::Certificates)?;
        roots.add(certificate).map_err(|_| TlsError::Certificates)?;
    }
    if roots.is_empty() { Err(TlsError::Certificates) } else { Ok(roots) }
}
