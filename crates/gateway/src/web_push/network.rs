//! The way to an endpoint: look the name up, check every address, connect to that very address, TLS.
//!
//! An endpoint is a URL that a browser, or a client that pretends to be one, has chosen, so a request to it could be
//! "server-side request forgery". The caller has checked its host ([`EndpointRules::check`]); this module checks its
//! addresses. Only public addresses ([`EndpointRules::admits_address`]) are connected to. The name is not looked up
//! again between the check and the connection, so a changing answer ("DNS rebinding") has no effect. TLS still checks
//! the name. Redirects are never followed.
//!
//! Look-ups of one origin are made one at a time, and tasks that wait for a look-up share its answer. The system's
//! resolver uses threads, and one slow name must not take all of them.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tidings_http1::Origin;
use tidings_push::web_push::guard::EndpointRules;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Addresses tried per connection.
const ADDRESS_COUNT_MAX: usize = 4;
/// How long one of them is tried for.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// What a future of [`Network`] looks like.
pub type NetworkFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Names and sockets. The real one is [`SystemNetwork`]; tests have others, with invented addresses.
///
/// # Cancel safety
/// The caller drops the futures when they take too long.
pub trait Network: Send + Sync + 'static {
    /// The addresses of a host. A final dot says that the name is complete: no search domain is to be put behind it.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> NetworkFuture<'a, Vec<SocketAddr>>;

    /// A connection to this very address. Called only with addresses that were checked.
    fn connect(&self, address: SocketAddr) -> NetworkFuture<'_, TcpStream>;
}

/// The system's resolver, and TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNetwork;

impl Network for SystemNetwork {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> NetworkFuture<'a, Vec<SocketAddr>> {
        Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> NetworkFuture<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }
}

/// The way to one origin, for one attempt and its connection: clones share the verdict on its addresses.
#[derive(Clone)]
pub(crate) struct Route {
    shared: Arc<Shared>,
    /// Whether its last look-up, or another's that it took, found only addresses that are forbidden.
    is_forbidden: Arc<AtomicBool>,
}

/// A weak reference to a route. The routes made from it share the result of the last look-up, but each has its own
/// verdict: a look-up of another route that still runs says nothing about the one that has ended.
pub(crate) struct WeakRoute(Weak<Shared>);

impl WeakRoute {
    pub(crate) fn upgrade(&self) -> Option<Route> {
        self.0.upgrade().map(Route::over)
    }
}

struct Shared {
    origin: Origin,
    server_name: ServerName<'static>,
    network: Arc<dyn Network>,
    rules: EndpointRules,
    /// Offers HTTP/2 and HTTP/1.1.
    tls: TlsConnector,
    /// Offers HTTP/1.1 alone.
    tls_http1: TlsConnector,
    resolved: Mutex<Option<Resolved>>,
}

#[derive(Clone)]
struct Resolved {
    at: Instant,
    addresses: Vec<SocketAddr>,
}

/// Every address of the name is one that must not be connected to.
#[derive(Debug, thiserror::Error)]
#[error("the host has no public address")]
struct Forbidden;

impl Route {
    /// The way to `origin`; none when no certificate could be for its host.
    pub(crate) fn new(
        origin: Origin,
        network: Arc<dyn Network>,
        rules: EndpointRules,
        tls: Arc<ClientConfig>,
    ) -> Option<Self> {
        let server_name = ServerName::try_from(origin.host().to_owned()).ok()?;
        let mut http1 = ClientConfig::clone(&tls);
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (tls, tls_http1) = (TlsConnector::from(tls), TlsConnector::from(Arc::new(http1)));
        let resolved = Mutex::new(None);
        Some(Self::over(Arc::new(Shared { origin, server_name, network, rules, tls, tls_http1, resolved })))
    }

    fn over(shared: Arc<Shared>) -> Self {
        Self { shared, is_forbidden: Arc::default() }
    }

    pub(crate) fn downgrade(&self) -> WeakRoute {
        WeakRoute(Arc::downgrade(&self.shared))
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.shared.origin
    }

    /// Whether connections are made with this.
    pub(crate) fn is_with(&self, tls: &Arc<ClientConfig>) -> bool {
        Arc::ptr_eq(self.shared.tls.config(), tls)
    }

    /// Whether the last look-up that was made for it found addresses, and none that may be connected to.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.is_forbidden.load(Ordering::Acquire)
    }

    /// The addresses that may be connected to, by a look-up that began after this call.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let asked_at = Instant::now();
        let mut resolved = self.shared.resolved.lock().await;
        if let Some(Resolved { at, addresses }) = &*resolved
            && *at >= asked_at
        {
            self.is_forbidden.store(false, Ordering::Release);
            return Ok(addresses.clone());
        }
        let at = Instant::now();
        let found = self.look_up().await;
        // A look-up that failed says nothing of addresses, whatever an earlier one has said.
        let is_forbidden = matches!(&found, Ok((addresses, count)) if addresses.is_empty() && *count > 0);
        self.is_forbidden.store(is_forbidden, Ordering::Release);
        let (addresses, _) = found?;
        if is_forbidden {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, Forbidden));
        }
        *resolved = Some(Resolved { at, addresses: addresses.clone() });
        Ok(addresses)
    }

    /// The addresses that may be connected to, and how many there are of any kind.
    async fn look_up(&self) -> io::Result<(Vec<SocketAddr>, usize)> {
        let Shared { origin, network, rules, .. } = &*self.shared;
        // In development a name may be one of a hosts file, where none has a final dot.
        let name = if rules.admits_private() { origin.host().to_owned() } else { format!("{}.", origin.host()) };
        let all = network.resolve(&name, origin.port()).await?;
        Ok((all.iter().copied().filter(|it| rules.admits_address(it.ip())).collect(), all.len()))
    }

    /// A connection that speaks what the peer has chosen of HTTP/2 and HTTP/1.1 (ALPN).
    pub(crate) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connect_with(&self.shared.tls).await
    }

    /// A connection that speaks HTTP/1.1.
    pub(crate) async fn connect_http1(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connect_with(&self.shared.tls_http1).await
    }

    async fn connect_with(&self, tls: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.dial().await?;
        stream.set_nodelay(true)?;
        tls.connect(self.shared.server_name.clone(), stream).await
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        let mut addresses = self.addresses().await?;
        let start = rand::random::<u32>() as usize % addresses.len().max(1);
        addresses.rotate_left(start);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses.into_iter().take(ADDRESS_COUNT_MAX) {
            match timeout(ADDRESS_TIMEOUT, self.shared.network.connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("origin", &self.shared.origin).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::IpAddr;

    use super::*;

    /// Each look-up takes a while and finds one of these addresses.
    struct Script(std::sync::Mutex<VecDeque<&'static str>>);

    impl Network for Script {
        fn resolve<'a>(&'a self, _: &'a str, port: u16) -> NetworkFuture<'a, Vec<SocketAddr>> {
            let address: IpAddr = self.0.lock().unwrap().pop_front().unwrap().parse().unwrap();
            Box::pin(async move {
                tokio::task::yield_now().await;
                Ok(vec![SocketAddr::new(address, port)])
            })
        }

        fn connect(&self, _: SocketAddr) -> NetworkFuture<'_, TcpStream> {
            Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
        }
    }

    #[tokio::test]
    async fn who_takes_anothers_look_up_is_no_longer_forbidden() {
        let script = Script(std::sync::Mutex::new(["10.0.0.1", "9.9.9.9", "9.9.9.9"].into()));
        let rules = EndpointRules::new(["push.example"], []).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
        let network = Arc::new(script);
        let origin = "https://push.example".parse().unwrap();
        let route = Route::new(origin, Arc::clone(&network) as Arc<dyn Network>, rules, tls).unwrap();
        route.connect().await.unwrap_err();
        assert!(route.is_forbidden());
        // While the first looks up both others ask, so the last takes the answer of the one before it.
        let [first, second] = [0; 2].map(|_| route.downgrade().upgrade().unwrap());
        let results = tokio::join!(first.connect(), second.connect(), route.connect());
        assert!(results.0.is_err() && results.1.is_err() && results.2.is_err());
        assert!(network.0.lock().unwrap().is_empty(), "two look-ups for three");
        assert!(!route.is_forbidden(), "it was not connected to, but may be");
    }
}
