//! The limits for answers, and the ways in which a server can break the protocol.

use http::StatusCode;

/// Header lines of one head, and lines of trailers.
pub const HEADER_COUNT_MAX: usize = 128;
/// Interim answers (1xx) before a final one.
pub const INTERIM_COUNT_MAX: u32 = 16;
/// Bytes of the line before a chunk: its size, extensions, CR LF.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes of all chunk extensions of one body.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 4096;

/// How much a server may send for one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the status line and headers, including the empty line. The limit holds separately for trailers, and for
    /// each interim answer.
    pub head_bytes_max: usize,
    /// Bytes of a body, without the chunk framing.
    pub body_bytes_max: usize,
}

/// How a server breaks the protocol or a limit. Its connection is then unusable, because it is unknown where the next
/// answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Bytes came while no request was waiting for an answer.
    #[error("an answer without a request")]
    Unsolicited,
    /// The answer is not HTTP/1.
    #[error("no HTTP/1.x status line")]
    NotHttp,
    /// A line feed without a carriage return before it (RFC 9112, 2.2).
    #[error("a line that does not end with CR LF")]
    BareLineFeed,
    /// The named part of the head or the trailers breaks the grammar (RFC 9112, 4 and 5).
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// More than [`Limits::head_bytes_max`].
    #[error("a head of more than {limit} bytes")]
    HeadTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// More than [`HEADER_COUNT_MAX`].
    #[error("more than {HEADER_COUNT_MAX} headers or trailers")]
    TooManyHeaders,
    /// A status below 100.
    #[error("status {0}")]
    Status(u16),
    /// A 101, which the client never requests.
    #[error("a switch of protocols that was not requested")]
    SwitchingProtocols,
    /// More than [`INTERIM_COUNT_MAX`].
    #[error("more than {INTERIM_COUNT_MAX} interim answers")]
    TooManyInterim,
    /// The headers announce a body that the status does not allow.
    #[error("a body with status {0}")]
    BodyNotAllowed(StatusCode),
    /// Not a number, or too large a number.
    #[error("a Content-Length that is not a number")]
    ContentLength,
    /// Several lengths that differ.
    #[error("several different lengths")]
    SeveralLengths,
    /// Both headers, which allows response smuggling.
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndEncoding,
    /// Anything other than `chunked`, or any value in HTTP/1.0.
    #[error("a Transfer-Encoding other than chunked")]
    TransferEncoding,
    /// More than [`Limits::body_bytes_max`], announced or sent.
    #[error("a body of more than {limit} bytes")]
    BodyTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The line before a chunk is malformed.
    #[error("a malformed chunk size")]
    ChunkSize,
    /// More than [`CHUNK_LINE_BYTES_MAX`].
    #[error("a chunk size line of more than {CHUNK_LINE_BYTES_MAX} bytes")]
    ChunkLineTooLong,
    /// More than [`CHUNK_EXTENSION_BYTES_MAX`].
    #[error("more than {CHUNK_EXTENSION_BYTES_MAX} bytes of chunk extensions")]
    ChunkExtensionsTooLong,
    /// A chunk is longer than its size.
    #[error("a chunk that is longer than its size")]
    ChunkEnd,
    /// More than [`Limits::head_bytes_max`].
    #[error("trailers of more than {limit} bytes")]
    TrailersTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The connection ended before the answer did.
    #[error("an answer that ends too early")]
    Truncated,
}
