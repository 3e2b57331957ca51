//! The socket of an HTTP connection, which a handler can take away from the HTTP server.
//!
//! hyper gives a socket away only after a 101. But an edge loop also writes endless responses, and needs the socket for
//! them without a 101. So the listener gives hyper a [`LentSocket`], and each request gets the [`Taker`] of its
//! connection. A handler that has read its request takes the socket. From then on the lent socket takes no bytes from
//! hyper, and hyper ends its connection.
//!
//! The socket changes hands when hyper flushes it. hyper flushes in each pass over a connection, after it has written
//! everything that it had to write. So an earlier response on this connection is never cut. What a client sends behind
//! such a request is lost, since no response can follow an endless one.
//!
//! # Limits
//! Nothing here grows. A handler waits only for bytes of earlier responses; a client that does not take them is closed
//! by the listener's own limit, and the handler ends with its connection.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use tidings_telemetry::panics::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A client's socket, as it was accepted.
#[derive(Debug)]
pub enum Socket {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, whose handshake is done.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A socket that an HTTP server uses until a handler takes it.
#[derive(Debug)]
pub struct LentSocket {
    /// `None`: it was taken.
    socket: Option<Socket>,
    taker: Taker,
}

/// The right to take the socket of one connection.
#[derive(Debug, Clone)]
pub struct Taker(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    Lent,
    /// A handler waits for the socket.
    Asked(Waker),
    Given(Socket),
    Taken,
}

impl LentSocket {
    /// Lends a socket; requests need a clone of [`LentSocket::taker`] among their extensions.
    pub fn new(socket: Socket) -> Self {
        Self { socket: Some(socket), taker: Taker(Arc::new(Mutex::new(State::Lent))) }
    }

    /// The right to take this socket.
    pub fn taker(&self) -> &Taker {
        &self.taker
    }

    /// The socket, if it was not taken.
    pub fn into_inner(self) -> Option<Socket> {
        self.socket
    }
}

impl Taker {
    /// Takes the socket. `None`: it was taken before.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the socket was just given, the connection ends.
    pub(crate) async fn take(&self) -> Option<Socket> {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            match std::mem::replace(&mut *state, State::Taken) {
                State::Given(socket) => Poll::Ready(Some(socket)),
                State::Taken => Poll::Ready(None),
                State::Lent | State::Asked(_) => {
                    *state = State::Asked(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether the socket was taken: its HTTP connection ends, and nothing is wrong with it.
    pub fn has_taken(&self) -> bool {
        matches!(*lock(&self.0), State::Given(_) | State::Taken)
    }
}

impl AsyncRead for LentSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Some(Socket::Plain(socket)) => Pin::new(socket).poll_read(context, buffer),
            Some(Socket::Tls(socket)) => Pin::new(socket).poll_read(context, buffer),
            // Not the end: hyper would drop the handler before it has the socket. It ends with the next write.
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for LentSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Some(Socket::Plain(socket)) => Pin::new(socket).poll_write(context, bytes),
            Some(Socket::Tls(socket)) => Pin::new(socket).poll_write(context, bytes),
            None => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Some(Socket::Plain(socket)) => Pin::new(socket).poll_write_vectored(context, slices),
            Some(Socket::Tls(socket)) => Pin::new(socket).poll_write_vectored(context, slices),
            None => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true // Both kinds are.
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Some(Socket::Plain(socket)) => ready!(Pin::new(socket).poll_flush(context))?,
            Some(Socket::Tls(socket)) => ready!(Pin::new(socket).poll_flush(context))?,
            None => return Poll::Ready(Ok(())),
        }
        let LentSocket { socket, taker } = &mut *self;
        let mut state = lock(&taker.0);
        if let State::Asked(waker) = &*state {
            waker.wake_by_ref();
            *state = State::Given(socket.take().expect("it was there just now"));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Some(Socket::Plain(socket)) => Pin::new(socket).poll_shutdown(context),
            Some(Socket::Tls(socket)) => Pin::new(socket).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }
}
