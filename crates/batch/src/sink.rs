//! Sinks: a byte stream, a datagram socket, or any blocking writer.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UdpSocket, UnixDatagram};

/// Writes pages, one at a time, in order.
///
/// # What a failure means
/// An error means that the page is lost, even if a part of it was written. The page is not given to the sink again, its
/// messages count as dropped, and the loss is announced before the next page. Then the driver pauses: 10 ms at first,
/// doubling to 1 s while the sink fails. Producers go on under their policy.
///
/// A sink that panics is dropped and not called again. Messages gather until
/// [`set_sink`](crate::BatchWriter::set_sink) provides another sink.
pub trait Sink: Send + 'static {
    /// Writes one page, which is never empty, and returns when the next page may come.
    ///
    /// # Cancel safety
    /// The future is dropped when it takes longer than the configured `write_timeout`, and when the deadline of the
    /// writer's close has passed. The next call must work or fail.
    fn write_page(&mut self, page: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// The largest page that this sink can write; `None` for any size. Larger messages are refused.
    fn page_bytes_max(&self) -> Option<usize> {
        None
    }

    /// Called once after the last page, when the writer is closed or the sink is replaced.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Writes pages into a byte stream: a TCP or Unix connection, a pipe, TLS. Flushes after each page, and shuts the stream
/// down at the end.
#[derive(Debug)]
pub struct StreamSink<W>(W);

impl<W: AsyncWrite + Unpin + Send + 'static> StreamSink<W> {
    /// Writes into `stream`.
    pub const fn new(stream: W) -> Self {
        Self(stream)
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Sink for StreamSink<W> {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.0.write_all(page).await?;
        self.0.flush().await
    }

    async fn close(&mut self) {
        drop(self.0.shutdown().await); // Fails if the peer has gone, which does not matter.
    }
}

/// Writes pages into a connected datagram socket. Each page is one packet.
#[derive(Debug)]
pub struct DatagramSink<S> {
    socket: S,
    packet_bytes_max: usize,
}

impl<S: Datagram> DatagramSink<S> {
    /// Sends packets of at most `packet_bytes_max`: 1432 is right for UDP over Ethernet, and 65507 is UDP's limit.
    pub const fn new(socket: S, packet_bytes_max: usize) -> Self {
        Self { socket, packet_bytes_max }
    }
}

impl<S: Datagram> Sink for DatagramSink<S> {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        if page.len() > self.packet_bytes_max {
            let text = format!("a page of {} bytes exceeds the packet limit of {}", page.len(), self.packet_bytes_max);
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let sent = self.socket.send_packet(page).await?;
        if sent < page.len() {
            return Err(io::Error::new(ErrorKind::WriteZero, "the socket has truncated the packet"));
        }
        Ok(())
    }

    fn page_bytes_max(&self) -> Option<usize> {
        Some(self.packet_bytes_max)
    }
}

/// A connected datagram socket.
pub trait Datagram: Send + Sync + 'static {
    /// Sends one packet and returns how many of its bytes were sent.
    fn send_packet(&self, packet: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

impl Datagram for UdpSocket {
    async fn send_packet(&self, packet: &[u8]) -> io::Result<usize> {
        self.send(packet).await
    }
}

impl Datagram for UnixDatagram {
    async fn send_packet(&self, packet: &[u8]) -> io::Result<usize> {
        self.send(packet).await
    }
}

/// Writes pages into a blocking writer: a file, standard error, a pipe. Flushes after each page. Use it with
/// [a thread of its own](crate::BatchWriter::start_thread); in a task it would block other tasks.
#[derive(Debug)]
pub struct IoSink<W>(W);

impl<W: io::Write + Send + 'static> IoSink<W> {
    /// Writes into `output`.
    pub const fn new(output: W) -> Self {
        Self(output)
    }
}

impl<W: io::Write + Send + 'static> Sink for IoSink<W> {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.0.write_all(page)?;
        self.0.flush()
    }
}

pub(crate) type BoxSink = Box<dyn DynSink>;

/// [`Sink`] with boxed futures: one small allocation per page.
pub(crate) trait DynSink: Send {
    fn write_page<'a>(&'a mut self, page: &'a [u8]) -> BoxFuture<'a, io::Result<()>>;
    fn page_bytes_max(&self) -> Option<usize>;
    fn close(&mut self) -> BoxFuture<'_, ()>;
}

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl<S: Sink> DynSink for S {
    fn write_page<'a>(&'a mut self, page: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(Sink::write_page(self, page))
    }

    fn page_bytes_max(&self) -> Option<usize> {
        Sink::page_bytes_max(self)
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(Sink::close(self))
    }
}
