//! The destinations of pages: a byte stream, a socket with packets, or any blocking writer.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UdpSocket, UnixDatagram};

/// Takes pages, one at a time, in order.
///
/// # What a failure means
/// An error says that the page is lost, whatever part of it was written: it is not handed in again, its messages count as
/// dropped, and before the next page the loss is announced. The driver then pauses, 10 ms at first, doubling to 1 s as
/// long as the sink fails, while producers go on under their policy.
///
/// A sink that panics is dropped and not called again; messages gather until
/// [`set_sink`](crate::BatchWriter::set_sink) brings another.
pub trait Sink: Send + 'static {
    /// Writes one page, which is never empty, and returns when another may come.
    ///
    /// # Cancel safety
    /// The future is dropped when it takes longer than the configured `write_timeout`, and when the writer's close is
    /// past its deadline. The next call must work, or fail.
    fn write_page(&mut self, page: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// The largest page this sink can take; none for any. A larger message is refused when it is written.
    fn page_bytes_max(&self) -> Option<usize> {
        None
    }

    /// Called once when the writer is closed or the sink replaced, after the last page.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Pages into a byte stream: a TCP or Unix connection, a pipe, TLS.
///
/// Flushed behind each page, shut down when closed.
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
        drop(self.0.shutdown().await); // The other end may have gone; nobody could do anything about it.
    }
}

/// Pages into a connected datagram socket: each is one packet, never split, never joined with another.
#[derive(Debug)]
pub struct DatagramSink<S> {
    socket: S,
    packet_bytes_max: usize,
}

impl<S: Datagram> DatagramSink<S> {
    /// Sends packets of at most `packet_bytes_max`: 1432 suits UDP over Ethernet, 65507 is all that UDP can carry.
    pub const fn new(socket: S, packet_bytes_max: usize) -> Self {
        Self { socket, packet_bytes_max }
    }
}

impl<S: Datagram> Sink for DatagramSink<S> {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        if page.len() > self.packet_bytes_max {
            let text = format!("a page of {} bytes, a packet has {} at most", page.len(), self.packet_bytes_max);
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let sent = self.socket.send_packet(page).await?;
        if sent < page.len() {
            return Err(io::Error::new(ErrorKind::WriteZero, "the socket has cut the packet"));
        }
        Ok(())
    }

    fn page_bytes_max(&self) -> Option<usize> {
        Some(self.packet_bytes_max)
    }
}

/// A connected socket that keeps messages apart.
pub trait Datagram: Send + Sync + 'static {
    /// Sends one packet and returns how many of its bytes went.
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

/// Pages into anything that blocks: a file, standard error, a pipe. For a writer with
/// [a thread of its own](crate::BatchWriter::start_thread); in a task it would hold up the others.
///
/// Flushed behind each page.
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

/// Any sink behind a pointer.
pub(crate) type BoxSink = Box<dyn DynSink>;

/// [`Sink`] with its futures behind pointers: one small allocation a page.
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
