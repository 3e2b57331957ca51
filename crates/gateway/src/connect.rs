//! Making one connection: resolve, TCP, TLS with ALPN `h2`, HTTP/2.
//!
//! The name is resolved afresh each time, since providers hand out different addresses, and a random one of the answer
//! is tried first, so that connections spread. One that does not answer within [`ATTEMPT_DELAY`] is not waited for
//! alone: the next is tried beside it, of the other family where there is one (RFC 8305, 4 and 5).
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
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cork::{Cork, CorkHandle, cork};
use crate::error::{AccessError, ConnectError, StartError};
use crate::{Credential, GatewayConfig};

/// Addresses tried per connection.
const ADDRESS_COUNT_MAX: usize = 4;
/// How long an address is waited for before the next is tried beside it (RFC 8305, 5: "Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Answers are small but many: the window must never be what holds them up.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

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
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(AccessError::Tls)?
            .with_root_certificates(roots);
        let mut tls = match &credential {
            Credential::Token(_) => builder.with_no_client_auth(),
            Credential::Certificate(certificate) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.certified())))
            }
        };
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { credential, ca_pem: ca_pem.map(ToOwned::to_owned), tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// Whether connections made with the other would be the same.
    pub(crate) fn is_same(&self, credential: &Credential, ca_pem: Option<&str>) -> bool {
        self.credential.is_same(credential) && self.ca_pem.as_deref() == ca_pem
    }
}

/// Where the provider is.
pub(crate) struct Connector {
    host: String,
    port: u16,
    server_name: ServerName<'static>,
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
        let server_name = ServerName::try_from(config.server_name.clone())
            .map_err(|_| StartError::ServerName(config.server_name.clone()))?;
        Ok(Self { host: config.host.clone(), port: config.port, server_name, timeout: config.connect_timeout })
    }

    /// Makes a connection within the configured time.
    pub(crate) async fn connect(&self, access: &Access) -> Result<Link, ConnectError> {
        timeout(self.timeout, self.open(access)).await.unwrap_or(Err(ConnectError::TimedOut))
    }

    async fn open(&self, access: &Access) -> Result<Link, ConnectError> {
        let addresses = lookup_host((self.host.as_str(), self.port)).await.map_err(ConnectError::Resolve)?;
        let tcp = dial(in_order(addresses.collect(), rand::random())).await?;
        // Batches are gathered by the cork; the kernel must not wait for more.
        tcp.set_nodelay(true).map_err(ConnectError::Tcp)?;
        let tls = access.tls.connect(self.server_name.clone(), tcp).await.map_err(ConnectError::Tls)?;
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

/// The addresses to try: a random one first, then in turn of the other family and of its own.
fn in_order(mut addresses: Vec<SocketAddr>, random: u32) -> Vec<SocketAddr> {
    if addresses.is_empty() {
        return addresses;
    }
    let first = random as usize % addresses.len();
    addresses.rotate_left(first);
    let family = addresses[0].is_ipv4();
    let (own, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv4() == family);
    let (mut own, mut other) = (own.into_iter(), other.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [own.next(), other.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().take(ADDRESS_COUNT_MAX).collect()
}

/// The first of the addresses that answers, each having a head start before the next.
async fn dial(addresses: Vec<SocketAddr>) -> Result<TcpStream, ConnectError> {
    let mut addresses = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut last = ConnectError::NoAddress;
    loop {
        if let Some(address) = addresses.next() {
            attempts.spawn(TcpStream::connect(address));
        }
        let more = addresses.len() > 0;
        // One that failed makes place for the next at once; the last ones are only waited for.
        let joined = tokio::select! {
            joined = attempts.join_next() => joined,
            () = sleep(ATTEMPT_DELAY), if more => continue,
        };
        match joined {
            Some(Ok(Ok(tcp))) => return Ok(tcp),
            Some(Ok(Err(error))) => last = ConnectError::Tcp(error),
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()), // Nobody aborts one.
            None => return Err(last),
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
    // A store may hold certificates nobody can read; what counts is that some are usable.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(AccessError::NoRoots) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn addresses(kinds: &str) -> Vec<SocketAddr> {
        let address = |(port, kind)| match kind {
            '4' => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            _ => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port),
        };
        (1..).zip(kinds.chars()).map(address).collect()
    }

    #[test]
    fn the_other_family_is_tried_second_and_few_are_tried_at_all() {
        let order =
            |kinds, random| -> Vec<u16> { in_order(addresses(kinds), random).iter().map(SocketAddr::port).collect() };
        assert_eq!(order("66666644", 0), [1, 7, 2, 8]);
        assert_eq!(order("66666644", 7), [8, 1, 7, 2]);
        assert_eq!(order("444", 4), [2, 3, 1]);
        assert_eq!(order("", 4), [0u16; 0]);
    }

    /// An address whose packets are dropped: Linux ignores a SYN when the queue of connections not yet accepted is full.
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
        let addresses = vec![hole, live.local_addr().unwrap()];
        let tcp = timeout(20 * ATTEMPT_DELAY, dial(addresses)).await.expect("the second is not waited for").unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), live.local_addr().unwrap());
    }

    #[tokio::test]
    async fn refused_everywhere_is_an_error_and_not_a_wait() {
        let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert!(matches!(dial(vec![unused; 3]).await, Err(ConnectError::Tcp(_))));
        assert!(matches!(dial(Vec::new()).await, Err(ConnectError::NoAddress)));
    }
}
