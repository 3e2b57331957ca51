//! TLS of the public listener: the certificate from the files that `[http.tls]` names, read again on SIGHUP.
//!
//! TLS 1.2 and 1.3 with rustls, HTTP/1.1 by ALPN. A reload makes a whole new configuration, with new keys for session
//! tickets: a client that resumes a session of before shakes hands anew and sees the new certificate. Connections that
//! are open keep what they have. A file that is wrong at the start ends the start; later the old certificate goes on.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tidings_config::{Config, Tls as TlsSection};
use tidings_gateway::Certificate;
use tidings_telemetry::memory::Term;
use tidings_telemetry::{Registry, chain, metrics, unix_now};
use tidings_types::Timestamp;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info};

use crate::providers::{CredentialError, read};

/// What is spoken inside of TLS.
const ALPN: &[u8] = b"http/1.1";

/// Connections that are still HTTP, and those of clients, have a limit each.
const KIND_COUNT: usize = 2;
/// Additional memory of an idle WebSocket over TLS: the session and its read buffer of 4 KiB (8.2 KiB, measured).
const CONNECTION_BYTES: usize = 10 << 10;
/// Records of a WebSocket over TLS: one that waits for the socket, and one that is incomplete.
const RECORD_BYTES: usize = 2 * (18 << 10);

/// What the sessions of connections, and records that are not whole or not written, may take.
pub(super) fn memory_terms(config: &Config) -> Vec<Term> {
    let connections = config.client.connection_count_max.saturating_mul(KIND_COUNT);
    let settings = "http.tls, client.connection_count_max";
    let terms = || {
        vec![
            Term::standing("TLS sessions", connections, CONNECTION_BYTES, settings),
            Term::peak("TLS records", connections, RECORD_BYTES, settings),
        ]
    };
    config.http.tls.certificate_file.as_ref().map_or_else(Vec::new, |_| terms())
}

/// What a listener shows and shakes hands with.
pub(super) struct Tls {
    current: Mutex<Current>,
}

struct Current {
    certified: Arc<CertifiedKey>,
    config: Arc<ServerConfig>,
    ends_at: Timestamp,
}

impl Tls {
    /// `None` where no certificate is configured.
    pub(super) fn start(section: &TlsSection) -> Result<Option<Arc<Self>>, CredentialError> {
        let current = current(section)?;
        Ok(current.map(|current| Arc::new(Self { current: Mutex::new(current) })))
    }

    /// Makes the time until the certificate ends part of the metrics.
    pub(super) fn register(self: &Arc<Self>, registry: &Registry) {
        let tls = Arc::clone(self);
        let left = move || tls.current.lock().ends_at.saturating_since(unix_now()).as_secs_f64();
        registry.computed(&metrics::http::CERTIFICATE_EXPIRY_SECONDS, &[], Arc::new(left));
    }

    /// For one handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.current.lock().config.clone().into()
    }

    /// Takes the certificate as its files are now; what came of it stands in the log.
    pub(super) fn reload(&self, section: &TlsSection) {
        match current(section) {
            Ok(Some(new)) if new.certified.cert == self.current.lock().certified.cert => {
                info!("TLS certificate is the same");
            }
            Ok(Some(new)) => {
                *self.current.lock() = new;
                info!("TLS certificate replaced");
            }
            Ok(None) => error!("[http.tls] has no certificate any more, the old one goes on until a restart"),
            Err(error) => error!(error = chain(&error), "TLS certificate not replaced, the old one goes on"),
        }
    }
}

fn current(section: &TlsSection) -> Result<Option<Current>, CredentialError> {
    let (Some(chain_file), Some(key_file)) = (&section.certificate_file, &section.certificate_key_file) else {
        return Ok(None);
    };
    let certificate = certificate(chain_file, key_file)?;
    let certified = certificate.certified();
    Ok(Some(Current { config: config(certified.clone()), certified, ends_at: certificate.ends_at() }))
}

fn certificate(chain_file: &Path, key_file: &Path) -> Result<Certificate, CredentialError> {
    let (chain, key) = (read(chain_file)?, read(key_file)?);
    Certificate::read(&chain, &key).map_err(|source| {
        let file = if source.is_about_key() { key_file } else { chain_file };
        CredentialError::Certificate { path: file.display().to_string(), source }
    })
}

fn config(certified: Arc<CertifiedKey>) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has suites for TLS 1.2 and 1.3");
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 1;
    // Clients that come back spare the server a signature. Without random numbers there are no tickets.
    if let Ok(ticketer) = Ticketer::new() {
        config.ticketer = ticketer;
    }
    Arc::new(config)
}
