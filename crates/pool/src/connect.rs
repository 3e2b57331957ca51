//! How connections come about: TCP, TLS, UDP and Unix sockets, or whatever implements [`Connect`].

mod udp;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use udp::{Udp, UdpTransport};

/// Makes connections to one service. The pool calls it whenever one of its connections is down, limits the time and
/// waits between attempts.
///
/// # Cancel safety
/// The future is dropped when it takes too long; it must leave nothing behind.
pub trait Connect: Send + Sync + 'static {
    /// What bytes are sent over.
    type Transport: Transport;

    /// Makes one connection.
    ///
    /// # Errors
    /// Whatever the network says.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Transport>> + Send;
}

/// What bytes are sent over.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether it carries datagrams: a write is one, and so is a read. What was written may then get lost.
    fn is_datagram(&self) -> bool {
        false
    }

    /// Whether a write that failed has sent nothing of what it was given. So it is with a socket; a layer with a buffer
    /// of its own, as TLS has, may have sent some. What was in such a write then counts as sent.
    fn fails_clean(&self) -> bool {
        false
    }
}

impl Transport for TcpStream {
    fn fails_clean(&self) -> bool {
        true
    }
}

impl Transport for UnixStream {
    fn fails_clean(&self) -> bool {
        true
    }
}

impl Transport for DuplexStream {
    fn fails_clean(&self) -> bool {
        true
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Transport for TlsStream<T> {}

/// Connections over TCP, without Nagle's delay.
#[derive(Debug, Clone)]
pub struct Tcp {
    address: String,
}

impl Tcp {
    /// To `address`, a name or IP address with a port (`"localhost:6379"`, `"[::1]:80"`). Names are resolved for each
    /// connection anew.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into() }
    }
}

impl Connect for Tcp {
    type Transport = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Connections over TLS on TCP.
#[derive(Clone)]
pub struct Tls {
    tcp: Tcp,
    server_name: ServerName<'static>,
    connector: TlsConnector,
}

impl Tls {
    /// To `address` (see [`Tcp::new`]), which must prove to be `server_name`. What proves it, versions, our own
    /// certificate and ALPN are in `config`.
    pub fn new(
        address: impl Into<String>,
        server_name: ServerName<'static>,
        config: Arc<rustls::ClientConfig>,
    ) -> Self {
        Self { tcp: Tcp::new(address), server_name, connector: TlsConnector::from(config) }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("tcp", &self.tcp).field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Connect for Tls {
    type Transport = TlsStream<TcpStream>;

    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.tcp.connect().await?;
        self.connector.connect(self.server_name.clone(), stream).await
    }
}

/// Connections to a Unix socket.
#[derive(Debug, Clone)]
pub struct Unix {
    path: PathBuf,
}

impl Unix {
    /// To the socket at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl Connect for Unix {
    type Transport = UnixStream;

    async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path).await
    }
}
