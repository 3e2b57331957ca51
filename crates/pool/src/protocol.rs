//! The traits that a user of this crate implements: a [`Protocol`], and a [`Codec`] for each connection.
//!
//! Neither sees a socket, a clock, a task or a caller. A codec only translates: it turns requests into bytes and bytes into
//! answers, and says which request an answer belongs to ([`To`]). It may remember things about its connection. The pool
//! does everything else, such as keeping deadlines.

use bytes::BytesMut;

use crate::outgoing::Outgoing;

/// A kind of service: its requests, its answers, and the rules between the two.
///
/// One value serves all connections of a pool. The state of one connection belongs to the [`Codec`]. Put secrets for the
/// set-up exchange here. The crate's documentation has a complete example.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// A request. The pool keeps it until its answer has come (with an ordered protocol, even a late answer) or the
    /// connection has ended. The codec can look at it until then, and it can go to another connection. Make it cheap to
    /// move, with bodies as [`bytes::Bytes`].
    type Request: Send + Sync + 'static;
    /// An answer.
    type Response: Send + 'static;
    /// Why a request cannot be encoded, or what is wrong with the received bytes. Cloned for every request that fails
    /// because of one malformed answer.
    type Error: std::error::Error + Clone + Send + Sync + 'static;
    /// The codec of one connection.
    type Codec: Codec<Self>;

    /// Makes the codec of a new connection.
    fn codec(&self) -> Self::Codec;

    /// How answers find their requests.
    fn matching(&self) -> Matching {
        Matching::Ordered
    }

    /// Whether other requests may be in flight on the connection together with this one. If not, the request *travels
    /// alone*: it is written when nothing is in flight, and the next request is not written before its answer.
    fn is_pipelinable(&self, request: &Self::Request) -> bool {
        let _ = request;
        true
    }

    /// Whether the request is idempotent (RFC 9110, 9.2.2): the service is in the same state if it gets it twice. If a
    /// connection is lost after requests were written, only idempotent ones go to another connection. With an ordered
    /// protocol they then travel alone.
    fn is_repeatable(&self, request: &Self::Request) -> bool {
        let _ = request;
        false
    }
}

/// How answers find their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Answers come in the order of the requests. An expired request remains as a *tombstone* until its answer has come
    /// and is discarded.
    Ordered,
    /// Answers have the [`RequestId`]. An expired request is forgotten. An answer to an id that is not in flight is
    /// discarded and counted as late.
    ById {
        /// How many different ids there are. They count from 0 to `id_count - 1` and start again, without those in flight.
        /// It is `1 << 16` for an id of 16 bits on the wire. At most this many requests are in flight on a connection. It
        /// should be many times the number in flight, or a late answer may be taken for the answer to a newer request.
        id_count: u64,
    },
}

/// The id of a request on its connection; see [`Matching::ById`]. For [`Matching::Ordered`] it counts the requests
/// written on the connection, from 0.
pub type RequestId = u64;

/// Which request an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The request that was passed to [`Codec::decode`]: the oldest one without an answer.
    Oldest,
    /// The request with this id. In an ordered protocol only the oldest request's id is correct.
    Id(RequestId),
}

/// Whether the peer answers an encoded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect<R> {
    /// The peer answers it.
    Answer,
    /// The peer does not answer it. The request ends with this response when its last byte is handed to the socket.
    Nothing(R),
}

/// What [`Codec::decode`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<R> {
    /// No complete answer. Decoding goes on when more bytes have come. The codec may have consumed and remembered some.
    Incomplete,
    /// The codec has consumed something that is not an answer: an interim response, a push, a keep-alive. Decoding goes on
    /// at once. If nothing was consumed, this is the same as [`Decoded::Incomplete`].
    Skipped,
    /// An answer.
    Answer {
        /// The request that it belongs to.
        to: To,
        /// The answer itself.
        response: R,
        /// The peer handles no further request on this connection, so it is closed. Later requests in flight are *lost*;
        /// repeatable ones go to another connection, and this does not count towards
        /// [`repeat_max`](crate::PoolConfig::repeat_max).
        closes: bool,
    },
}

impl<R> Decoded<R> {
    /// The answer to the oldest request.
    pub fn oldest(response: R) -> Self {
        Self::Answer { to: To::Oldest, response, closes: false }
    }

    /// The answer to the request with this id.
    pub fn to(id: RequestId, response: R) -> Self {
        Self::Answer { to: To::Id(id), response, closes: false }
    }
}

/// How far the set-up exchange of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetUp {
    /// Requests may be written.
    Done,
    /// More bytes from the peer are needed.
    Continue,
}

/// Encodes and decodes a [`Protocol`] on one connection.
///
/// Only one task calls it, and the calls must be short: no waiting, no long computing. A codec that panics takes its
/// connection out of the pool for good; requests on it end with [`CallError::Closed`](crate::CallError::Closed).
pub trait Codec<P: Protocol>: Send + 'static {
    /// Does the exchange before the first request (log in, choose a version), within
    /// [`connect_timeout`](crate::PoolConfig::connect_timeout).
    ///
    /// Called first with an empty `input`, then whenever bytes have come, until it returns [`SetUp::Done`]. The rest of
    /// `input` then goes to [`Codec::decode`].
    ///
    /// # Errors
    /// The peer refuses, or does not speak this protocol. The connection is closed and counts as a failed attempt.
    fn set_up(&mut self, input: &mut BytesMut, out: &mut Outgoing) -> Result<SetUp, P::Error> {
        let _ = (input, out);
        Ok(SetUp::Done)
    }

    /// Appends the bytes of `request` to `out`. On a datagram transport they are one datagram.
    ///
    /// # Errors
    /// The request cannot be encoded. It ends with [`CallError::Refused`](crate::CallError::Refused), its bytes are
    /// removed, and the connection goes on. The codec's own state must be as before the call.
    fn encode(
        &mut self,
        request: &P::Request,
        id: RequestId,
        out: &mut Outgoing,
    ) -> Result<Expect<P::Response>, P::Error>;

    /// Takes the next answer, or a part of it, from the front of `input`.
    ///
    /// For ordered protocols, `oldest` is the request that the next answer belongs to, even if its caller has gone. It is
    /// `None` when nothing is in flight; then the pool treats any answer as a violation. For protocols with ids it is
    /// always `None`.
    ///
    /// Called again after [`Decoded::Skipped`] and [`Decoded::Answer`] while `input` is not empty, and when bytes have
    /// come. On a datagram transport `input` is one datagram, and the rest of it is dropped.
    ///
    /// # Errors
    /// The bytes are malformed. The connection is closed. Every request in flight on it, repeatable or not, ends with
    /// [`CallError::Violation`](crate::CallError::Violation), because it is unknown what the peer did with it.
    fn decode(&mut self, oldest: Option<&P::Request>, input: &mut BytesMut) -> Result<Decoded<P::Response>, P::Error>;

    /// Returns the answer that ends when the peer closes its side, if there is one.
    ///
    /// Called once, after all of `input` was offered to [`Codec::decode`]. With `None`, all requests in flight are *lost*,
    /// also one with half an answer. An answer counts as one with [`closes`](Decoded::Answer::closes).
    ///
    /// # Errors
    /// As in [`Codec::decode`].
    fn end_of_input(
        &mut self,
        oldest: Option<&P::Request>,
        input: &mut BytesMut,
    ) -> Result<Option<P::Response>, P::Error> {
        let _ = (oldest, input);
        Ok(None)
    }

    /// Appends the bytes that end the connection in good order.
    fn goodbye(&mut self, out: &mut Outgoing) {
        let _ = out;
    }
}
