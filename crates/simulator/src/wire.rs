//! The bytes between h2 and TLS: read and written in large pieces, seen by the [`Meter`].
//!
//! Inbound, h2 is handed a frame header only when it is complete, because the meter may change it, and at most
//! [`TURN_BYTES`] per turn. Outbound, everything h2 writes is gathered; it goes out at h2's flush of the last turn, so that
//! many answers share a TLS record.
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

/// How long a connection that has ended waits for its peer to close it too.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(1);

/// What h2 is handed in one turn: some thirty requests. With a thousand at a time each of them costs half as much again,
/// most of it in the allocator.
pub(crate) const TURN_BYTES: usize = 16 * 1024;

/// The client's connection preface (RFC 9113, 3.4) comes before its first frame.
const PREFACE_LEN: usize = 24;

/// What the driver of a connection shares with the [`Wire`] that h2 owns.
pub(crate) struct Link {
    pub(crate) meter: Meter,
    /// A stream limit to be announced at the next flush.
    pub(crate) announce: Option<u32>,
    /// The socket is to be reset when the wire is dropped.
    pub(crate) reset: bool,
    /// What h2 may still be handed in this turn.
    turn_bytes: usize,
    /// This turn's bytes are used up, and more have arrived.
    is_turn_over: bool,
}

impl Link {
    pub(crate) fn new(stream_limit: u32) -> Rc<RefCell<Self>> {
        let meter = Meter::new(stream_limit);
        let link = Self { meter, announce: None, reset: false, turn_bytes: TURN_BYTES, is_turn_over: false };
        Rc::new(RefCell::new(link))
    }

    /// Begins another turn; whether bytes wait for it. Then h2 must be polled, since nothing else will wake it.
    pub(crate) fn next_turn(&mut self) -> bool {
        self.turn_bytes = TURN_BYTES;
        std::mem::take(&mut self.is_turn_over)
    }
}

/// A TLS stream whose frames are followed.
pub(crate) struct Wire {
    io: TlsStream<TcpStream>,
    link: Rc<RefCell<Link>>,
    inbound: Inbound,
    outbound: Outbound,
    /// Something was written to TLS and not flushed yet.
    is_unflushed: bool,
    /// Nothing more is written; until then, what the peer still says is read and thrown away. A socket that is closed with
    /// bytes unread resets the connection, and so takes away what the peer has not read yet.
    linger: Option<Pin<Box<Sleep>>>,
}

/// Invariant: `start <= ready <= end <= bytes.len()`; between `ready` and `end` lies less than a frame header.
struct Inbound {
    bytes: Box<[u8]>,
    start: usize,
    ready: usize,
    end: usize,
    /// Bytes until the next frame header.
    skip: usize,
    is_eof: bool,
}

/// Invariant: `written <= scanned`; `scanned` may lie beyond the end, inside a payload that is still to come.
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

    /// Hands everything gathered to TLS.
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
    /// Looks at the frame headers that are complete, and makes everything up to them ready.
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

    /// Makes room behind `end`, keeping the piece of a header.
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

    /// Whether another frame may be put in here.
    fn is_between_frames(&self) -> bool {
        self.scanned == self.bytes.len()
    }

    /// Puts in a frame that the meter has made itself.
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
            return Poll::Ready(Ok(())); // More is to come: the next turn flushes it.
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
            // Closing with a linger time of zero makes TCP send RST and forget what was not sent.
            let _ = self.io.get_ref().0.set_zero_linger();
        }
    }
}
