//! Gathers what `h2` writes, so that a batch of requests leaves in few TLS records and one system call.
//!
//! `h2` flushes after every frame with a body, and over TLS each flush is a record and a write of its own. The cork
//! takes all of it into a buffer and flushes nothing until the driver says [`CorkHandle::poll_uncork`].
//!
//! It also keeps the order in which no more streams are open than the peer allows. Between handing requests to `h2` and
//! having their HEADERS in this buffer nothing may be read: a SETTINGS frame read in between would be acknowledged
//! before the HEADERS that were counted against the old limit. So the driver closes the read gate while it hands over,
//! opens streams only while the cork is not [blocked](CorkHandle::is_blocked), and the cork takes whole batches without
//! ever pushing back.
//!
//! Because all reads pass through it, the cork also notes why TLS ended: `h2` passes on only the text of such an error,
//! and with TLS 1.3 an alert about our certificate comes after the handshake. It also reads the frames for what `h2`
//! does not report (`frames`).
//!
//! Buffer: the driver stops handing over at [`BATCH_BYTES`]; the hard bound is [`CORK_BYTES_MAX`], reached only if a
//! peer asks for many small frames (PING, SETTINGS) without reading, and then `h2` stops reading too.

use std::cell::{RefCell, RefMut};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frames, GoAway};
use crate::error::certificate_alert;

/// The target size of a batch: four full TLS records.
pub(crate) const BATCH_BYTES: usize = 64 * 1024;
/// Not yet written bytes after which `h2` has to wait.
pub(crate) const CORK_BYTES_MAX: usize = 1024 * 1024;

struct Corked<S> {
    stream: S,
    out: Vec<u8>,
    /// How much of `out` is written already.
    written: usize,
    gate_closed: bool,
    blocked: bool,
    /// The peer's last alert about our certificate.
    refusal: Option<&'static str>,
    frames: Frames,
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    fn held(&self) -> usize {
        self.out.len() - self.written
    }

    fn take(&mut self, bytes: &[u8]) {
        // A socket that takes a little at a time never takes all, so what is written goes in between. Each byte moves at most once
        // for each byte that is written.
        if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        self.out.extend_from_slice(bytes);
        self.frames.on_written(bytes);
    }

    fn poll_uncork(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held() > 0 {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.out.clear();
        self.out.shrink_to(2 * BATCH_BYTES);
        self.written = 0;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Makes room for a write, or waits for the peer to read.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held() >= CORK_BYTES_MAX {
            self.blocked = true;
            ready!(self.poll_uncork(cx))?;
        }
        self.blocked = false;
        Poll::Ready(Ok(()))
    }
}

/// The side that `h2` owns.
pub(crate) struct Cork<S>(Rc<RefCell<Corked<S>>>);

/// The driver's side.
pub(crate) struct CorkHandle<S>(Rc<RefCell<Corked<S>>>);

/// Both sides of a cork around `stream`.
pub(crate) fn cork<S>(stream: S) -> (Cork<S>, CorkHandle<S>) {
    let out = Vec::with_capacity(BATCH_BYTES);
    let frames = Frames::new();
    let corked = Corked { stream, out, written: 0, gate_closed: false, blocked: false, refusal: None, frames };
    let shared = Rc::new(RefCell::new(corked));
    (Cork(Rc::clone(&shared)), CorkHandle(shared))
}

impl<S: AsyncWrite + Unpin> CorkHandle<S> {
    /// Bytes not yet written.
    pub(crate) fn held(&self) -> usize {
        self.0.borrow().held()
    }

    /// Whether `h2` has been told to wait and may hold frames back.
    ///
    /// Uncorking alone does not end this, because `h2` still holds the refused frames. The next write of `h2` ends it.
    /// That write is certain to come: the refusal registered the waker that `h2` was polled with, and at its next poll
    /// `h2` begins with the frames it holds.
    pub(crate) fn is_blocked(&self) -> bool {
        self.0.borrow().blocked
    }

    /// While closed, reads find nothing and register no waker: the driver polls again with the gate open.
    pub(crate) fn close_gate(&self, closed: bool) {
        self.0.borrow_mut().gate_closed = closed;
    }

    /// The alert by which the peer refused our certificate, if it did.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.0.borrow().refusal
    }

    /// How many bytes of payload the peer takes on this connection, beside what is in the cork already.
    pub(crate) fn window(&self) -> usize {
        self.0.borrow().frames.window()
    }

    /// The peer's GOAWAY, once.
    pub(crate) fn take_goaway(&self) -> Option<GoAway> {
        self.0.borrow_mut().frames.take_goaway()
    }

    /// Writes what was gathered.
    pub(crate) fn poll_uncork(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_uncork(cx)
    }
}

impl<S> Cork<S> {
    fn corked(&self) -> RefMut<'_, Corked<S>> {
        self.0.borrow_mut()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut corked = self.corked();
        if corked.gate_closed {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut corked.stream).poll_read(cx, buf));
        match &read {
            Ok(()) => corked.frames.on_read(&buf.filled()[before..]),
            Err(error) => corked.refusal = certificate_alert(error),
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut corked = self.corked();
        ready!(corked.poll_room(cx))?;
        corked.take(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut corked = self.corked();
        ready!(corked.poll_room(cx))?;
        bufs.iter().for_each(|buf| corked.take(buf));
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // The driver flushes, with `poll_uncork`.
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut corked = self.corked();
        ready!(corked.poll_uncork(cx))?;
        Pin::new(&mut corked.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, sink, split};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn write(cork: &mut Cork<DuplexStream>, bytes: &[u8]) -> bool {
        match Pin::new(cork).poll_write(&mut cx(), bytes) {
            Poll::Ready(result) => result.is_ok_and(|count| count == bytes.len()),
            Poll::Pending => false,
        }
    }

    #[tokio::test]
    async fn nothing_leaves_before_the_cork_is_drawn_and_then_all_in_order() {
        let (near, mut far) = duplex(1024);
        let (mut io, handle) = cork(near);
        assert!(write(&mut io, b"one ") && write(&mut io, b"two"));
        assert!(Pin::new(&mut io).poll_flush(&mut cx()).is_ready());
        let mut seen = [0; 7];
        assert!(Box::pin(far.read(&mut seen)).as_mut().poll(&mut cx()).is_pending());
        assert_eq!(handle.held(), 7);
        assert!(handle.poll_uncork(&mut cx()).is_ready());
        far.read_exact(&mut seen).await.unwrap();
        assert_eq!((&seen, handle.held()), (b"one two", 0));
    }

    #[test]
    fn a_peer_that_does_not_read_blocks_it_at_its_bound() {
        let (near, _far) = duplex(10);
        let (mut io, handle) = cork(near);
        let chunk = [0; BATCH_BYTES];
        for _ in 0..CORK_BYTES_MAX / BATCH_BYTES {
            assert!(write(&mut io, &chunk) && !handle.is_blocked());
        }
        assert!(!write(&mut io, &chunk));
        assert!(handle.is_blocked());
    }

    #[tokio::test]
    async fn a_peer_that_reads_slowly_lets_it_grow_no_further_than_its_bound() {
        // Else tokio would hold back a write now and then, although there is room.
        tokio::task::unconstrained(slow_peer()).await;
    }

    async fn slow_peer() {
        let (near, mut far) = duplex(1000);
        let (mut io, handle) = cork(near);
        let mut seen = Vec::new();
        let chunks = (0_u8..=255).cycle().take(4 * CORK_BYTES_MAX / 1000).map(|number| [number; 1000]);
        for chunk in chunks.clone() {
            while handle.held() > BATCH_BYTES {
                assert!(handle.poll_uncork(&mut cx()).is_pending(), "it never takes all");
                far.read_buf(&mut seen).await.unwrap();
            }
            assert!(write(&mut io, &chunk));
            assert!(io.0.borrow().out.capacity() <= 4 * BATCH_BYTES);
        }
        while poll_fn(|cx| Poll::Ready(handle.poll_uncork(cx).is_pending())).await {
            far.read_buf(&mut seen).await.unwrap();
        }
        drop((io, handle));
        far.read_to_end(&mut seen).await.unwrap();
        assert_eq!(seen, chunks.flatten().collect::<Vec<u8>>());
    }

    #[tokio::test]
    async fn a_closed_gate_lets_nothing_in() {
        let (near, mut far) = duplex(10);
        let (mut io, handle) = cork(near);
        far.write_all(b"x").await.unwrap();
        handle.close_gate(true);
        let mut seen = [0];
        assert!(Pin::new(&mut io).poll_read(&mut cx(), &mut ReadBuf::new(&mut seen)).is_pending());
        handle.close_gate(false);
        assert!(Pin::new(&mut io).poll_read(&mut cx(), &mut ReadBuf::new(&mut seen)).is_ready());
        assert_eq!(&seen, b"x");
    }

    /// A peer that asks for answers and does not read them, until it does.
    #[tokio::test]
    async fn a_block_ends_when_the_peer_reads_again() {
        const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let (near, far) = duplex(64 * 1024);
        let (io, handle) = cork(near);
        let (_requests, mut h2) = h2::client::handshake(io).await.unwrap();
        let (mut read, mut write) = split(far);
        let mut peer = JoinSet::new();
        peer.spawn(async move {
            write.write_all(&SETTINGS).await.unwrap();
            write.write_all(&PING.repeat(2 * CORK_BYTES_MAX / PING.len())).await.unwrap();
            std::future::pending::<()>().await; // It does not hang up.
        });
        let mut drive_until = async |is_blocked| {
            let turns = poll_fn(|cx| {
                assert!(
                    Pin::new(&mut h2).poll(cx).is_pending() && !matches!(handle.poll_uncork(cx), Poll::Ready(Err(_)))
                );
                if handle.is_blocked() == is_blocked { Poll::Ready(()) } else { Poll::Pending }
            });
            timeout(Duration::from_secs(20), turns).await.expect("it comes to that");
        };
        drive_until(true).await;
        peer.spawn(async move { _ = copy(&mut read, &mut sink()).await });
        drive_until(false).await;
    }
}
