//! What a server may send at most, and what it must not send.

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
    /// Bytes of status line and headers with their last empty line; as many again for trailers, and for each interim
    /// answer.
    pub head_bytes_max: usize,
    /// Bytes of a body, without the bytes of chunking.
    pub body_bytes_max: usize,
}

/// What a server must not send. The connection it came on is of no more use: nobody knows where the next answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Bytes while no request waits for an answer.
    #[error("an answer that no request asked for")]
    Unsolicited,
    /// Something else than HTTP/1.
    #[error("no HTTP/1.x status line")]
    NotHttp,
    /// A line feed without a carriage return before it (RFC 9112, 2.2).
    #[error("a line that does not end with CR LF")]
    BareLineFeed,
    /// What the head or the trailers do not follow the grammar in (RFC 9112, 4 and 5).
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// More than [`Limits::head_bytes_max`].
    #[error("a head of more than {limit} bytes")]
    HeadTooLarge {
        /// Bytes.
        limit: usize,
    },
    /// More than [`HEADER_COUNT_MAX`].
    #[error("more than {HEADER_COUNT_MAX} headers or trailers")]
    TooManyHeaders,
    /// A number below 100.
    #[error("status {0}")]
    Status(u16),
    /// 101, though nobody asked.
    #[error("a switch of protocols that was not asked for")]
    SwitchingProtocols,
    /// More than [`INTERIM_COUNT_MAX`].
    #[error("more than {INTERIM_COUNT_MAX} interim answers")]
    TooManyInterim,
    /// A body, or the promise of one, where the status excludes it.
    #[error("a body with status {0}")]
    BodyNotAllowed(StatusCode),
    /// Not digits, or too many of them.
    #[error("a Content-Length that is no number")]
    ContentLength,
    /// Several, and not all the same.
    #[error("several lengths")]
    SeveralLengths,
    /// Both, which is how answers are smuggled.
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndEncoding,
    /// Not `chunked` alone, or in HTTP/1.0.
    #[error("a Transfer-Encoding other than chunked")]
    TransferEncoding,
    /// More than [`Limits::body_bytes_max`], announced or sent.
    #[error("a body of more than {limit} bytes")]
    BodyTooLarge {
        /// Bytes.
        limit: usize,
    },
    /// The line before a chunk.
    #[error("a malformed chunk size")]
    ChunkSize,
    /// More than [`CHUNK_LINE_BYTES_MAX`].
    #[error("a chunk size line of more than {CHUNK_LINE_BYTES_MAX} bytes")]
    ChunkLineTooLong,
    /// More than [`CHUNK_EXTENSION_BYTES_MAX`].
    #[error("more than {CHUNK_EXTENSION_BYTES_MAX} bytes of chunk extensions")]
    ChunkExtensionsTooLong,
    /// A chunk longer than it said.
    #[error("a chunk that does not end where it should")]
    ChunkEnd,
    /// More than [`Limits::head_bytes_max`].
    #[error("trailers of more than {limit} bytes")]
    TrailersTooLarge {
        /// Bytes.
        limit: usize,
    },
    /// The connection ended before the answer did.
    #[error("an answer that ends too early")]
    Truncated,
}
