//! A connection that is up: its socket, its codec, and the bytes between them.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::book::{Book, Key, Span};
use crate::connect::{Connect, Transport};
use crate::core::Core;
use crate::error::Violation;
use crate::outgoing::Outgoing;
use crate::protocol::{Codec as _, Decoded, Expect, Protocol, RequestId, SetUp, To};

/// The room for a read of a stream.
const READ_BYTES: usize = 32 << 10;
/// With less room than this, more is made.
const READ_BYTES_MIN: usize = 4 << 10;
/// The largest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;
/// The most slices of a vectored write.
const SLICE_COUNT: usize = 64;

pub(super) struct Connection<P: Protocol, T> {
    io: T,
    codec: P::Codec,
    input: BytesMut,
    pub(super) out: Outgoing,
    /// One-way requests that are not completely written: the position after the last byte, and the response.
    pub(super) one_way: VecDeque<(Key, u64, P::Response)>,
    pub(super) is_datagram: bool,
    /// A buffer for one datagram, reused.
    datagram: Vec<u8>,
    must_flush: bool,
    /// The position after the bytes of a failed write, if some of them may have been sent.
    tried: u64,
    up_at: Instant,
    /// The silence of the peer counts from here.
    pub(super) heard_at: Instant,
    /// Since `heard_at`, a request that needs an answer was encoded. It may have expired since.
    pub(super) is_owed: bool,
    pub(super) has_answered: bool,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End<E: std::error::Error + 'static> {
    #[error("drained")]
    Drained,
    #[error("closed by the peer")]
    Closed,
    #[error("the peer said that this was its last answer")]
    LastAnswer,
    #[error("broken")]
    Broken(#[source] std::io::Error),
    #[error("the peer broke the protocol")]
    Violation(#[source] Violation<E>),
    #[error("silent for too long")]
    Silent,
    #[error("{0} expired requests still have no answer")]
    Owing(usize),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum EstablishError<E: std::error::Error + 'static> {
    #[error("the network failed")]
    Io(#[from] io::Error),
    #[error("not within {0:?}")]
    Timeout(Duration),
    #[error("closed by the peer during the set-up exchange")]
    Closed,
    #[error("more than {0} bytes in the set-up exchange")]
    Oversized(usize),
    #[error("the set-up exchange failed")]
    SetUp(#[source] E),
}

/// What a codec found in the input.
pub(super) enum Found<R> {
    /// No complete answer.
    Nothing,
    /// A datagram without an answer.
    Useless,
    Answer {
        to: To,
        response: R,
        closes: bool,
    },
}

/// Connects and does the set-up exchange, within the `connect_timeout` for both.
pub(super) async fn establish<P: Protocol, C: Connect>(
    core: &Core<P>,
    connector: &C,
) -> Result<Connection<P, C::Transport>, EstablishError<P::Error>> {
    let timeout = core.config.connect_timeout;
    let attempt = async {
        let mut connection = Connection::new(connector.connect().await?, core.protocol.codec());
        connection.set_up(core.config.input_bytes_max).await?;
        Ok(connection)
    };
    tokio::time::timeout(timeout, attempt).await.unwrap_or(Err(EstablishError::Timeout(timeout)))
}

impl<P: Protocol, T: Transport> Connection<P, T> {
    fn new(io: T, codec: P::Codec) -> Self {
        let is_datagram = io.is_datagram();
        let now = Instant::now();
        Self {
            io,
            codec,
            input: BytesMut::new(),
            out: if is_datagram { Outgoing::for_datagrams() } else { Outgoing::new() },
            one_way: VecDeque::new(),
            is_datagram,
            datagram: Vec::new(),
            must_flush: false,
            tried: 0,
            up_at: now,
            heard_at: now,
            is_owed: false,
            has_answered: false,
        }
    }

    async fn set_up(&mut self, input_bytes_max: usize) -> Result<(), EstablishError<P::Error>> {
        loop {
            let progress = self.codec.set_up(&mut self.input, &mut self.out).map_err(EstablishError::SetUp)?;
            self.out.end_datagram();
            std::future::poll_fn(|cx| self.poll_write(cx)).await?;
            if progress == SetUp::Done {
                return Ok(());
            }
            if self.input.len() > input_bytes_max {
                return Err(EstablishError::Oversized(input_bytes_max));
            }
            let count = std::future::poll_fn(|cx| self.poll_read(cx)).await?;
            if count == 0 && !self.is_datagram {
                return Err(EstablishError::Closed);
            }
        }
    }

    /// Reads once into the input. Returns 0 at the end of a stream. A datagram replaces what was left of the one before.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_datagram {
            self.input.clear();
            self.input.reserve(DATAGRAM_BYTES);
        } else if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(READ_BYTES);
        }
        debug_assert!(self.input.has_remaining_mut(), "without room, a read looks like the end of the stream");
        pin!(self.io.read_buf(&mut self.input)).poll(cx)
    }

    /// Writes until nothing is left.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let count = if self.is_datagram {
                ready!(self.poll_write_datagram(cx))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICE_COUNT];
                let count = self.out.slices(&mut slices);
                let result = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count]));
                if result.is_err() && !self.io.fails_clean() {
                    let given: usize = slices[..count].iter().map(|slice| slice.len()).sum();
                    self.tried = self.out.written() + given as u64;
                }
                result?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(count);
            self.must_flush = true;
        }
        if self.must_flush {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.must_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_datagram(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let count = self.out.datagram(&mut self.datagram);
        let result = ready!(Pin::new(&mut self.io).poll_write(cx, &self.datagram));
        if result.is_err() {
            // Dropped, so that a datagram that the kernel refuses does not end one socket after the other.
            self.out.advance(count);
        }
        Poll::Ready(result.map(|_| count))
    }

    /// Encodes a request. Returns the span of its bytes, and for a one-way request its response.
    pub(super) fn encode(
        &mut self,
        request: &P::Request,
        id: RequestId,
    ) -> Result<(Span, Option<P::Response>), P::Error> {
        let (mark, start) = (self.out.mark(), self.out.appended());
        match self.codec.encode(request, id, &mut self.out) {
            Ok(expect) => {
                self.out.end_datagram();
                let response = match expect {
                    Expect::Answer => None,
                    Expect::Nothing(response) => Some(response),
                };
                Ok((Span { start, end: self.out.appended() }, response))
            }
            Err(error) => {
                self.out.take_back(mark);
                Err(error)
            }
        }
    }

    /// Decodes the next answer in the input.
    pub(super) fn decode(
        &mut self,
        oldest: Option<&P::Request>,
        limit: usize,
    ) -> Result<Found<P::Response>, End<P::Error>> {
        while !self.input.is_empty() {
            let before = self.input.len();
            let decoded = self.codec.decode(oldest, &mut self.input);
            match decoded.map_err(|error| End::Violation(Violation::Malformed(error)))? {
                Decoded::Answer { to, response, closes } => {
                    if self.is_datagram {
                        self.input.clear();
                    }
                    return Ok(Found::Answer { to, response, closes });
                }
                Decoded::Skipped if self.input.len() < before => {}
                Decoded::Skipped | Decoded::Incomplete if self.is_datagram => {
                    self.input.clear();
                    return Ok(Found::Useless);
                }
                Decoded::Skipped | Decoded::Incomplete => {
                    let bytes = self.input.len();
                    let is_oversized = bytes > limit;
                    let oversized = || End::Violation(Violation::Oversized { bytes, limit });
                    return if is_oversized { Err(oversized()) } else { Ok(Found::Nothing) };
                }
            }
        }
        Ok(Found::Nothing)
    }

    /// Returns the answer that ends with the stream, if there is one.
    pub(super) fn end_of_input(&mut self, oldest: Option<&P::Request>) -> Result<Option<P::Response>, End<P::Error>> {
        let last = self.codec.end_of_input(oldest, &mut self.input);
        last.map_err(|error| End::Violation(Violation::Malformed(error)))
    }

    /// Says goodbye and closes.
    pub(super) async fn say_goodbye(mut self) -> io::Result<()> {
        self.codec.goodbye(&mut self.out);
        self.out.end_datagram();
        std::future::poll_fn(|cx| self.poll_write(cx)).await?;
        self.io.shutdown().await
    }

    /// Whether the peer may have seen the beginning of the request with this span, and so may answer it.
    pub(super) fn has_begun(&self, span: Span) -> bool {
        span.start < self.sent() || span.end <= self.sent()
    }

    /// Whether nothing is expected from the peer: no answer, and no reading of written bytes.
    pub(super) fn is_at_rest<R, W>(&self, book: &Book<R, W>) -> bool {
        book.in_flight_count() == 0 && !self.is_owed && self.out.is_empty()
    }

    /// When the peer will have been silent for too long. `None` if nothing is expected from it.
    pub(super) fn silent_at<R, W>(&self, book: &Book<R, W>, silence_max: Duration) -> Option<Instant> {
        (!self.is_datagram && !self.is_at_rest(book)).then(|| self.heard_at + silence_max)
    }
}

impl<P: Protocol, T> Connection<P, T> {
    /// The position after all bytes that the peer may have.
    pub(super) fn sent(&self) -> u64 {
        self.out.written().max(self.tried)
    }

    /// Takes out the next one-way request whose last byte was written.
    pub(super) fn pop_one_way(&mut self) -> Option<(Key, P::Response)> {
        let is_written = self.one_way.front().is_some_and(|(_, end, _)| *end <= self.out.written());
        if !is_written {
            return None;
        }
        self.one_way.pop_front().map(|(key, _, response)| (key, response))
    }

    /// Whether the connection has brought an answer or lasted this long. Then the next one is made at once.
    pub(super) fn was_useful(&self, lasting: Duration, now: Instant) -> bool {
        self.has_answered || now.duration_since(self.up_at) >= lasting
    }
}
