//! The bytes between h2 and TLS, in large pieces. The [`Meter`] sees all frame headers.
//!
//! Inbound, h2 gets a frame header only when it is complete, because the meter may change it. It gets at most
//! [`TURN_BYTES`] per turn. Outbound, everything that h2 writes is collected and written at h2's flush after the last
//! turn, so that many answers share a TLS record.
//!
//! Memory: [`BUFFER_BYTES`] for each direction. A full outbound buffer makes h2 wait for the socket.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use crate::meter::{FrameHeader, HEADER_LEN, Meter};

const BUFFER_BYTES: usize = 64 * 1024;

/// How long an ended connection waits for the peer to close it too.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(1);

/// How much h2 gets in one turn: about thirty requests. With a thousand requests per turn, each request costs half as
/// much again, most of it in the allocator.
pub(crate) const TURN_BYTES: usize = 16 * 1024;

/// The client's connection preface (RFC 9113, 3.4) comes before its first frame.
const PREFACE_LEN: usize = 24;

/// What the driver of a connection shares with the [`Wire`] that h2 owns.
pub(crate) struct Link {
    pub(crate) meter: Meter,
    /// A stream limit to announce at the next flush.
    pub(crate) announce: Option<u32>,
    /// Dropping the wire resets the connection.
    pub(crate) reset: bool,
    /// How much h2 may still read in this turn.
    turn_bytes: usize,
    /// The turn has used all its bytes, and more have arrived.
    is_turn_over: bool,
}

impl Link {
    pub(crate) fn new(stream_limit: u32) -> Rc<RefCell<Self>> {
        let meter = Meter::new(stream_limit);
        let link = Self { meter, announce: None, reset: false, turn_bytes: TURN_BYTES, is_turn_over: false };
        Rc::new(RefCell::new(link))
    }

    /// Begins another turn, and says whether bytes wait for it. If so, h2 must be polled: nothing else wakes it.
    pub(crate) fn next_turn(&mut self) -> bool {
        self.turn_bytes = TURN_BYTES;
        std::mem::take(&mut self.is_turn_over)
    }
}

/// A TLS stream that shows its frames to the [`Meter`].
pub(crate) struct Wire {
    io: TlsStream<TcpStream>,
    link: Rc<RefCell<Link>>,
    inbound: Inbound,
    outbound: Outbound,
    /// Something was written to TLS and not flushed yet.
    is_unflushed: bool,
    /// Set at shutdown. Until it ends, what the peer sends is read and dropped. Closing a socket with unread bytes resets
    /// the connection, and the peer might lose what it has not read yet.
    linger: Option<Pin<Box<Sleep>>>,
}

/// Invariant: `start <= ready <= end <= bytes.len()`. From `ready` to `end` is less than one frame header.
struct Inbound {
    bytes: Box<[u8]>,
    start: usize,
    ready: usize,
    end: usize,
    /// Bytes until the next frame header.
    skip: usize,
    is_eof: bool,
}

/// Invariant: `written <= scanned`. `scanned` may be beyond the end, inside a payload that is not written yet.
#[derive(Default)]
struct Outbound {
    bytes: Vec<u8>,
    written: usize,
    scanned: usize,
}

impl Wire {
    pub(crate) fn new(io: TlsStream<TcpStream>, link: Rc<RefCell<Link>>) -> Self {
        let bytes = vec![0; BUFFER_BYTES].into();
        let inbound = Inbound { bytes, start: 0, ready: 0, end: 0, skip: PREFACE_LEN, is_eof: false };
        Self { io, link, inbound, outbound: Outbound::default(), is_unflushed: false, linger: None }
    }

    /// Hands all bytes to TLS, except an incomplete frame header or SETTINGS frame at the end.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outbound = &mut self.outbound;
        let end = outbound.scanned.min(outbound.bytes.len());
        while outbound.written < end {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &outbound.bytes[outbound.written..end]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outbound.written += written;
            self.is_unflushed = true;
        }
        outbound.bytes.drain(..end);
        outbound.scanned -= end;
        outbound.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl Inbound {
    /// Shows the complete frame headers to the meter, and makes the bytes up to them ready.
    fn scan(&mut self, meter: &mut Meter) {
        loop {
            let skipped = self.skip.min(self.end - self.ready);
            self.ready += skipped;
            self.skip -= skipped;
            let Some(header) = self.bytes[self.ready..self.end].first_chunk_mut::<HEADER_LEN>() else { return };
            if self.skip > 0 {
                return;
            }
            self.skip = meter.on_inbound(header).length;
            self.ready += HEADER_LEN;
        }
    }

    /// Makes room after `end`, and keeps the unread bytes.
    fn compact(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.ready -= self.start;
        self.start = 0;
    }
}

impl Outbound {
    fn extend(&mut self, bytes: &[u8], meter: &mut Meter) {
        self.bytes.extend_from_slice(bytes);
        while let Some(header) = self.bytes.get(self.scanned..).and_then(|rest| rest.first_chunk::<HEADER_LEN>()) {
            let frame = FrameHeader::read(header);
            let end = self.scanned + HEADER_LEN + frame.length;
            if frame.is_settings() {
                let Some(payload) = self.bytes.get_mut(self.scanned + HEADER_LEN..end) else { return };
                meter.on_outbound_settings(payload);
            } else {
                meter.on_outbound(frame);
            }
            self.scanned = end;
        }
    }

    fn is_between_frames(&self) -> bool {
        self.scanned == self.bytes.len()
    }

    /// Adds a frame that the meter has made.
    fn insert(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.scanned = self.bytes.len();
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, link, inbound, .. } = self.get_mut();
        while inbound.start == inbound.ready && !inbound.is_eof {
            inbound.compact();
            let mut free = ReadBuf::new(&mut inbound.bytes[inbound.end..]);
            ready!(Pin::new(&mut *io).poll_read(cx, &mut free))?;
            let read = free.filled().len();
            inbound.end += read;
            inbound.is_eof = read == 0;
            inbound.scan(&mut link.borrow_mut().meter);
        }
        let link = &mut *link.borrow_mut();
        let ready = inbound.ready - inbound.start;
        if ready > 0 && link.turn_bytes == 0 {
            link.is_turn_over = true;
            return Poll::Pending;
        }
        let count = buf.remaining().min(ready).min(link.turn_bytes);
        link.turn_bytes -= count;
        buf.put_slice(&inbound.bytes[inbound.start..inbound.start + count]);
        inbound.start += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.outbound.bytes.len() >= BUFFER_BYTES {
            ready!(this.poll_drain(cx))?;
        }
        this.outbound.extend(bytes, &mut this.link.borrow_mut().meter);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.link.borrow().is_turn_over && this.outbound.bytes.len() < BUFFER_BYTES {
            return Poll::Ready(Ok(())); // There is a next turn, and it flushes.
        }
        if this.outbound.is_between_frames() {
            let link = &mut *this.link.borrow_mut();
            if let Some(limit) = link.announce.take() {
                this.outbound.insert(&link.meter.announce(limit));
            }
        }
        ready!(this.poll_drain(cx))?;
        if this.is_unflushed {
            ready!(Pin::new(&mut this.io).poll_flush(cx))?;
            this.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        let Self { io, inbound, linger, .. } = this;
        if linger.is_none() {
            ready!(Pin::new(&mut *io).poll_shutdown(cx))?;
        }
        let linger = linger.get_or_insert_with(|| Box::pin(sleep(LINGER_MAX)));
        while linger.as_mut().poll(cx).is_pending() {
            let mut rest = ReadBuf::new(&mut inbound.bytes);
            if ready!(Pin::new(&mut *io).poll_read(cx, &mut rest)).is_err() || rest.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.link.borrow().reset {
            // With a linger time of zero, closing makes TCP send RST and drop unsent bytes.
            let _ = self.io.get_ref().0.set_zero_linger();
        }
    }
}
