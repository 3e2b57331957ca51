//! Making one connection: resolve, TCP, TLS with ALPN `h2`, HTTP/2.
//!
//! The name is resolved afresh each time, since providers hand out different addresses, and a random one of the answer
//! is tried first, so that connections spread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::GatewayConfig;
use crate::cork::{Cork, CorkHandle, cork};
use crate::error::{ConnectError, StartError};

/// Addresses tried per connection.
const ADDRESS_COUNT_MAX: usize = 4;
/// Answers are small but many: the window must never be what holds them up.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How to reach the provider.
pub(crate) struct Connector {
    host: String,
    port: u16,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    timeout: Duration,
}

/// A fresh HTTP/2 connection; nothing of it has been written yet.
pub(crate) struct Link {
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) h2: h2::client::Connection<Cork<TlsStream<TcpStream>>, Bytes>,
    pub(crate) cork: CorkHandle<TlsStream<TcpStream>>,
}

impl Connector {
    pub(crate) fn new(config: &GatewayConfig) -> Result<Self, StartError> {
        let roots = match &config.ca_pem {
            Some(pem) => given_roots(pem)?,
            None => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(StartError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let server_name = ServerName::try_from(config.server_name.clone())
            .map_err(|_| StartError::ServerName(config.server_name.clone()))?;
        Ok(Self {
            host: config.host.clone(),
            port: config.port,
            server_name,
            tls: TlsConnector::from(Arc::new(tls)),
            timeout: config.connect_timeout,
        })
    }

    /// Makes a connection within the configured time.
    pub(crate) async fn connect(&self) -> Result<Link, ConnectError> {
        timeout(self.timeout, self.open()).await.unwrap_or(Err(ConnectError::TimedOut))
    }

    async fn open(&self) -> Result<Link, ConnectError> {
        let addresses = lookup_host((self.host.as_str(), self.port)).await.map_err(ConnectError::Resolve)?;
        let tcp = dial(addresses.collect()).await?;
        // Batches are gathered by the cork; the kernel must not wait for more.
        tcp.set_nodelay(true).map_err(ConnectError::Tcp)?;
        let tls = self.tls.connect(self.server_name.clone(), tcp).await.map_err(ConnectError::Tls)?;
        if tls.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(ConnectError::NotHttp2);
        }
        let (io, cork) = cork(tls);
        let (requests, h2) = Builder::new()
            // Token authentication allows one stream until the first was accepted; also until SETTINGS came.
            .initial_max_send_streams(1)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .enable_push(false)
            .handshake(io)
            .await
            .map_err(ConnectError::Http2)?;
        Ok(Link { requests, h2, cork })
    }
}

async fn dial(mut addresses: Vec<SocketAddr>) -> Result<TcpStream, ConnectError> {
    if addresses.is_empty() {
        return Err(ConnectError::NoAddress);
    }
    let first = rand::random_range(0..addresses.len());
    addresses.rotate_left(first);
    let mut last = ConnectError::NoAddress;
    for address in addresses.into_iter().take(ADDRESS_COUNT_MAX) {
        match TcpStream::connect(address).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = ConnectError::Tcp(error),
        }
    }
    Err(last)
}

fn given_roots(pem: &str) -> Result<RootCertStore, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| StartError::Certificates)?;
        roots.add(certificate).map_err(|_| StartError::Certificates)?;
    }
    if roots.is_empty() { Err(StartError::Certificates) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, StartError> {
    let mut roots = RootCertStore::empty();
    // A store may hold certificates nobody can read; what counts is that some are usable.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(StartError::NoRoots) } else { Ok(roots) }
}
