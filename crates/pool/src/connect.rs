//! Making connections: over TCP, TLS, UDP and Unix sockets, or with any other [`Connect`].

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

/// Makes connections to one service. The pool calls it when one of its connections is down. The pool limits the time and
/// pauses between attempts.
///
/// # Cancel safety
/// The future is dropped when it takes too long. It must leave nothing behind.
pub trait Connect: Send + Sync + 'static {
    /// The kind of connection.
    type Transport: Transport;

    /// Makes one connection.
    ///
    /// # Errors
    /// When the service cannot be reached.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Transport>> + Send;
}

/// A connection that carries bytes.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether each write and each read is one datagram. Datagrams may get lost.
    fn is_datagram(&self) -> bool {
        false
    }

    /// Whether a failed write has certainly sent none of its bytes. This is true for a socket. A layer with a buffer of its
    /// own, such as TLS, may have sent some. If false, the bytes of a failed write count as sent.
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

/// Connects over TCP, without Nagle's delay.
#[derive(Debug, Clone)]
pub struct Tcp {
    address: String,
}

impl Tcp {
    /// Connects to `address`, a name or IP address with a port (`"localhost:6379"`, `"[::1]:80"`). A name is resolved again
    /// for each connection.
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

/// Connects over TLS on TCP.
#[derive(Clone)]
pub struct Tls {
    tcp: Tcp,
    server_name: ServerName<'static>,
    connector: TlsConnector,
}

impl Tls {
    /// Connects to `address` (see [`Tcp::new`]). The peer's certificate must be valid for `server_name`. `config` has the
    /// trusted authorities, TLS versions, client certificate and ALPN.
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

/// Connects to a Unix socket.
#[derive(Debug, Clone)]
pub struct Unix {
    path: PathBuf,
}

impl Unix {
    /// Connects to the socket at `path`.
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
