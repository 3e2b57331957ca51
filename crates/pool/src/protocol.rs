//! What a user of this crate writes: a [`Protocol`], and the [`Codec`] that speaks it on one connection.
//!
//! Neither sees a socket, a clock, a task or another request's caller. A codec is a pure translator with the memory of
//! one connection: it turns requests into bytes and bytes into answers, and says which request an answer belongs to
//! ([`To`]). Everything else, and above all every deadline, is the pool's.

use bytes::BytesMut;

use crate::outgoing::Outgoing;

/// A kind of service: what is asked, what is answered, and the rules between the two.
///
/// One value serves all connections of a pool; what belongs to one connection is the [`Codec`]'s. Put secrets for the
/// set-up exchange here.
///
/// See the crate's text for a whole example.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// What is asked. The pool keeps it until it is answered or, by an ordered protocol, its late answer has come or
    /// the connection is gone, so that the codec can look at it and a lost connection's requests can go to another;
    /// make it cheap to move, with bodies as [`bytes::Bytes`].
    type Request: Send + Sync + 'static;
    /// What is answered.
    type Response: Send + 'static;
    /// Why a request cannot be encoded, or what is wrong with the bytes that came. Cloned for every request that fails
    /// by one malformed answer.
    type Error: std::error::Error + Clone + Send + Sync + 'static;
    /// The memory of one connection.
    type Codec: Codec<Self>;

    /// A codec for a new connection.
    fn codec(&self) -> Self::Codec;

    /// How answers find their requests.
    fn matching(&self) -> Matching {
        Matching::Ordered
    }

    /// Whether other requests may be in flight on the same connection together with this one. If not it is written
    /// when the connection has nothing in flight, and nothing is written behind it until it is answered; what is
    /// behind it in the connection's queue waits.
    fn is_pipelinable(&self, request: &Self::Request) -> bool {
        let _ = request;
        true
    }

    /// Whether the service is left in the same state when it gets this request twice (RFC 9110, 9.2.2 calls that
    /// idempotent). Only such requests go to another connection when theirs was lost after they were written; an
    /// ordered protocol's then travel alone, as if they were not pipelinable.
    fn is_repeatable(&self, request: &Self::Request) -> bool {
        let _ = request;
        false
    }
}

/// How answers find their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Answers come in the order of the requests. A request that has expired keeps its place, a *tombstone*, until
    /// its answer has come and was discarded.
    Ordered,
    /// Answers carry the [`RequestId`]. An expired request is forgotten, and an answer to an id that is not in flight
    /// is discarded and counted as late.
    ById {
        /// How many different ids there are: they run from 0 to `id_count - 1` and begin again, leaving out those in
        /// flight. `1 << 16` for an id of 16 bits on the wire. At most this many requests are in flight on a
        /// connection, and for late answers to be told from timely ones it should be many times that.
        id_count: u64,
    },
}

/// The name of a request on its connection; see [`Matching::ById`]. For [`Matching::Ordered`] it counts the requests
/// written on the connection, from 0.
pub type RequestId = u64;

/// Which request an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The request that was handed to [`Codec::decode`]: the oldest one without an answer.
    Oldest,
    /// The request with this id. Of an ordered protocol only the oldest one's id is right.
    Id(RequestId),
}

/// Whether a request that was encoded will be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect<R> {
    /// Yes, by the peer.
    Answer,
    /// No: this is the response, and the request ends with it when its last byte was handed to the socket.
    Nothing(R),
}

/// What [`Codec::decode`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<R> {
    /// Nothing whole. Decoding goes on when more bytes have come. The codec may have consumed some and remember them.
    Incomplete,
    /// Something that answers no request was consumed: an interim response, a push, a keep-alive. Decoding goes on at
    /// once. Without anything consumed it is the same as [`Decoded::Incomplete`].
    Skipped,
    /// An answer.
    Answer {
        /// Whose.
        to: To,
        /// The answer itself.
        response: R,
        /// The peer will do and answer nothing more on this connection. It is closed; what is in flight behind is
        /// *lost*, and if it is repeatable goes on: such an end does not count towards
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

/// One connection's side of a [`Protocol`]: bytes out, bytes in.
///
/// Called by one task only, which must not be kept: no waiting, no long computing. A codec that panics takes its
/// connection out of the pool for good; requests on it end with [`CallError::Closed`](crate::CallError::Closed).
pub trait Codec<P: Protocol>: Send + 'static {
    /// Exchanges what is needed before the first request (log in, choose a version), within
    /// [`connect_timeout`](crate::PoolConfig::connect_timeout).
    ///
    /// Called first with an empty `input`, then whenever bytes have come, until it is [`SetUp::Done`]. What is left in
    /// `input` then belongs to [`Codec::decode`].
    ///
    /// # Errors
    /// The peer refused, or does not speak this protocol. The connection is closed and counts as one that failed.
    fn set_up(&mut self, input: &mut BytesMut, out: &mut Outgoing) -> Result<SetUp, P::Error> {
        let _ = (input, out);
        Ok(SetUp::Done)
    }

    /// Appends the bytes of `request` to `out`. On a datagram transport they are one datagram.
    ///
    /// # Errors
    /// The request cannot be spoken: it ends with [`CallError::Refused`](crate::CallError::Refused), what was appended
    /// for it is taken back, and the connection goes on. The codec's own state must be as before.
    fn encode(
        &mut self,
        request: &P::Request,
        id: RequestId,
        out: &mut Outgoing,
    ) -> Result<Expect<P::Response>, P::Error>;

    /// Takes the next answer from the front of `input`, or as much of it as there is.
    ///
    /// `oldest` is, for ordered protocols, the request whose answer must come now, also when its caller has gone;
    /// `None` when nothing is in flight, so that any answer is a violation (the pool sees to that if the codec does
    /// not). For protocols with ids it is always `None`.
    ///
    /// Called again after [`Decoded::Skipped`] and [`Decoded::Answer`] while `input` is not empty, and when bytes have
    /// come. On a datagram transport `input` is one datagram; what is left of it is thrown away.
    ///
    /// # Errors
    /// The bytes are malformed. The connection is closed, and every request in flight on it, repeatable or not, ends
    /// with [`CallError::Violation`](crate::CallError::Violation): what the peer did with them cannot be known.
    fn decode(&mut self, oldest: Option<&P::Request>, input: &mut BytesMut) -> Result<Decoded<P::Response>, P::Error>;

    /// The peer has closed its side: the answer that ends with that, if there is one.
    ///
    /// Called once, after everything in `input` was offered to [`Codec::decode`]. With `None` whatever is in flight is
    /// *lost*, half an answer as well; with an answer it is as if that had said [`closes`](Decoded::Answer::closes).
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

    /// Appends what politeness asks for before an orderly close.
    fn goodbye(&mut self, out: &mut Outgoing) {
        let _ = out;
    }
}
