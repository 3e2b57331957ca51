//! TLS by rustls: the server must prove to be the origin's host, to certificates we trust.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tidings_telemetry::unix_now;

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
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(TlsClock))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// The clock that certificates are held against. Rustls' own panics where the system's clock is before 1970; here it is 1970
/// then, when no certificate is valid yet.
#[derive(Debug, Clone, Copy)]
pub struct TlsClock;

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(unix_now().as_millis())))
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
