//! Making one connection: resolve, TCP, TLS with ALPN `h2`, HTTP/2.
//!
//! The name is resolved each time, because providers hand out different addresses. [`Addresses`] decides which is tried
//! first, and which not at all. If an address does not answer within [`ATTEMPT_DELAY`], the next one is tried beside
//! it, of the other address family if possible (RFC 8305, 4 and 5).
//!
//! What a connection is made with, the [`Access`], can be replaced at any time; the next connection has the new one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tidings_http1::{Roots, TlsClock};
use tidings_telemetry::unix_now;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::addresses::{Addresses, Entry};
use super::config::GatewayConfig;
use super::cork::{Cork, CorkHandle, cork};
use super::credential::Credential;
use crate::error::{AccessError, ConnectError, StartError};

/// How long an address is waited for before the next is tried beside it (RFC 8305, 5: "Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Answers are small but many. The window must never delay them.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Names and values of an answer's head, uncompressed; providers send under 1 KiB. What has more counts as broken off.
const ANSWER_HEAD_BYTES_MAX: u32 = 16 * 1024;

/// What connections are made with: whom we trust, and who we are.
pub(crate) struct Access {
    pub(crate) credential: Credential,
    ca_pem: Option<String>,
    tls: TlsConnector,
}

impl Access {
    /// Without `ca_pem` the system's certificates are trusted.
    pub(crate) fn new(credential: Credential, ca_pem: Option<&str>) -> Result<Self, AccessError> {
        let roots = match ca_pem {
            Some(pem) => given_roots(pem)?,
            None => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(TlsClock))
            .with_safe_default_protocol_versions()
            .map_err(AccessError::Tls)?
            .with_root_certificates(roots);
        let mut tls = match &credential {
            Credential::Token(_) | Credential::OAuth(_) => builder.with_no_client_auth(),
            Credential::Certificate(certificate) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.certified())))
            }
        };
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { credential, ca_pem: ca_pem.map(ToOwned::to_owned), tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// The same trust, for requests over HTTP/1.1.
    pub(crate) fn roots(&self) -> Roots {
        self.ca_pem.clone().map_or(Roots::Native, Roots::Pem)
    }

    /// Whether connections made with the other would be the same.
    pub(crate) fn is_same(&self, credential: &Credential, ca_pem: Option<&str>) -> bool {
        self.credential.is_same(credential) && self.ca_pem.as_deref() == ca_pem
    }
}

/// Where the provider is.
#[derive(Clone)]
pub(crate) struct Connector {
    host: String,
    port: u16,
    /// Used instead of those of `host`.
    given: Vec<SocketAddr>,
    addresses: Addresses,
    server_name: ServerName<'static>,
    timeout: Duration,
}

/// A fresh HTTP/2 connection; nothing of it has been written yet.
pub(crate) struct Link {
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) h2: h2::client::Connection<Cork<TlsStream<TcpStream>>, Bytes>,
    pub(crate) cork: CorkHandle<TlsStream<TcpStream>>,
    pub(crate) entry: Entry,
}

impl Connector {
    pub(crate) fn new(config: &GatewayConfig) -> Result<Self, StartError> {
        let server_name = ServerName::try_from(config.server_name.clone())
            .map_err(|_| StartError::ServerName(config.server_name.clone()))?;
        Ok(Self {
            host: config.host.clone(),
            port: config.port,
            given: config.addresses.clone(),
            addresses: Addresses::default(),
            server_name,
            timeout: config.connect_timeout,
        })
    }

    /// Makes a connection within the configured time.
    pub(crate) async fn connect(&self, access: &Access) -> Result<Link, ConnectError> {
        timeout(self.timeout, self.open(access)).await.unwrap_or(Err(ConnectError::TimedOut))
    }

    /// Whether every address that is known of is left alone for a while.
    pub(crate) fn is_broken(&self) -> bool {
        self.addresses.are_broken(unix_now())
    }

    async fn open(&self, access: &Access) -> Result<Link, ConnectError> {
        let addresses = match self.given.is_empty() {
            true => lookup_host((self.host.as_str(), self.port)).await.map_err(ConnectError::Resolve)?.collect(),
            false => self.given.clone(),
        };
        let order = self.addresses.in_order(addresses, rand::random(), unix_now());
        let (address, tcp) = dial(order, &self.addresses).await?;
        let entry = self.addresses.on_connected(address);
        // If dropped because of the timeout, the attempt has failed: an address that drops packets counts like one that
        // refuses.
        let mut blame = Blame(Some(&entry));
        // Batches are gathered by the cork; the kernel must not wait for more.
        tcp.set_nodelay(true).map_err(ConnectError::Tcp)?;
        let tls = access.tls.connect(self.server_name.clone(), tcp).await.map_err(ConnectError::Tls);
        let tls = tls.inspect_err(|error| blame.unless(error.certificate_alert().is_some()))?;
        if tls.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(ConnectError::NotHttp2);
        }
        let (io, cork) = cork(tls);
        let (requests, h2) = Builder::new()
            // Token authentication allows one stream until the first was accepted; also until SETTINGS came.
            .initial_max_send_streams(1)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(ANSWER_HEAD_BYTES_MAX)
            .enable_push(false)
            .handshake(io)
            .await
            .map_err(ConnectError::Http2)?;
        blame.unless(true);
        drop(blame);
        Ok(Link { requests, h2, cork, entry })
    }
}

/// Blames an address when it is dropped.
struct Blame<'a>(Option<&'a Entry>);

impl Blame<'_> {
    fn unless(&mut self, innocent: bool) {
        self.0 = self.0.filter(|_| !innocent);
    }
}

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.on_failed(rand::random(), unix_now());
        }
    }
}

/// Connects to the first address that answers. Each address has a head start before the next. Addresses that did not
/// answer in their time are noted in the book.
async fn dial(order: Vec<SocketAddr>, book: &Addresses) -> Result<(SocketAddr, TcpStream), ConnectError> {
    let is_choice = order.len() > 1;
    let mut order = order.into_iter();
    let mut attempts = JoinSet::new();
    let mut owing = Owing { addresses: Vec::new(), book };
    let mut last = ConnectError::NoAddress;
    let mut newest = None;
    loop {
        if let Some(address) = order.find(|address| !is_choice || book.admits(address, unix_now())) {
            newest = Some(address);
            owing.addresses.push(address);
            attempts.spawn(async move { (address, TcpStream::connect(address).await) });
        }
        let more = order.len() > 0;
        // After a failure the next address is tried at once. After the last address, only the open attempts are waited
        // for.
        let joined = tokio::select! {
            joined = attempts.join_next() => joined,
            () = sleep(ATTEMPT_DELAY), if more => continue,
        };
        match joined {
            Some(Ok((address, Ok(tcp)))) => {
                owing.addresses.retain(|it| *it != address && Some(*it) != newest); // That one has not had its time.
                return Ok((address, tcp));
            }
            Some(Ok((address, Err(error)))) => {
                owing.addresses.retain(|it| *it != address);
                book.on_failed(address, rand::random(), unix_now());
                last = ConnectError::Tcp(error);
            }
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()), // Nobody aborts one.
            None => return Err(last),
        }
    }
}

/// Addresses that have not answered yet. They are blamed when the search ends or times out.
struct Owing<'a> {
    addresses: Vec<SocketAddr>,
    book: &'a Addresses,
}

impl Drop for Owing<'_> {
    fn drop(&mut self) {
        for address in &self.addresses {
            self.book.on_failed(*address, rand::random(), unix_now());
        }
    }
}

fn given_roots(pem: &str) -> Result<RootCertStore, AccessError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| AccessError::Certificates)?;
        roots.add(certificate).map_err(|_| AccessError::Certificates)?;
    }
    if roots.is_empty() { Err(AccessError::Certificates) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, AccessError> {
    let mut roots = RootCertStore::empty();
    // The system's store may hold unreadable certificates. It is enough that some are usable.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(AccessError::NoRoots) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// An address whose packets are dropped: Linux ignores a SYN when the queue of connections not yet accepted is
    /// full.
    fn black_hole() -> (socket2::Socket, Vec<std::net::TcpStream>, SocketAddr) {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let filling: Vec<_> = std::iter::from_fn(|| connect().ok()).take(16).collect();
        assert!(filling.len() < 16, "the queue does not fill");
        (listener, filling, address)
    }

    #[tokio::test]
    async fn an_address_that_swallows_packets_costs_a_moment_and_not_the_connection() {
        let (_listener, _filling, hole) = black_hole();
        let live = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let order = vec![hole, live.local_addr().unwrap()];
        let book = Addresses::default();
        let dialled = timeout(20 * ATTEMPT_DELAY, dial(order.clone(), &book)).await;
        let (address, _tcp) = dialled.expect("the second is not waited for").unwrap();
        assert_eq!(address, live.local_addr().unwrap());
        (0..20).for_each(|_| drop(Owing { addresses: vec![hole], book: &book }));
        assert_eq!(book.in_order(order, 0, unix_now()), [address], "after some times it is not even tried");
    }

    #[tokio::test]
    async fn refused_everywhere_is_an_error_and_not_a_wait() {
        let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let book = Addresses::default();
        assert!(matches!(dial(vec![unused; 3], &book).await, Err(ConnectError::Tcp(_))));
        assert!(matches!(dial(Vec::new(), &book).await, Err(ConnectError::NoAddress)));
    }
}
