//! UDP: one write is one datagram, one read is one datagram.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UdpSocket;

use super::{Connect, Transport};

/// "Connects" over UDP. Each connection is a socket with a port of its own, which accepts datagrams only from its peer.
///
/// Nothing is exchanged at the start. So a connection counts as up until the kernel reports an error. It reports a refused
/// port when the next datagram is sent.
#[derive(Debug, Clone)]
pub struct Udp {
    address: String,
}

impl Udp {
    /// Connects to `address`, a name or IP address with a port. A name is resolved again for each socket, and its first
    /// address is used.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into() }
    }
}

impl Connect for Udp {
    type Transport = UdpTransport;

    async fn connect(&self) -> io::Result<UdpTransport> {
        let peer = tokio::net::lookup_host(&self.address).await?.next();
        let peer = peer.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
        let any = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
        socket.connect(peer).await?;
        Ok(UdpTransport { socket })
    }
}

/// A UDP socket with one peer.
#[derive(Debug)]
pub struct UdpTransport {
    socket: UdpSocket,
}

impl Transport for UdpTransport {
    fn is_datagram(&self) -> bool {
        true
    }
}

impl AsyncRead for UdpTransport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_recv(cx, buffer)
    }
}

impl AsyncWrite for UdpTransport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.socket.poll_send(cx, datagram))?;
        debug_assert_eq!(sent, datagram.len(), "a datagram is sent whole");
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
