//! Reads answers from bytes as they come. It does no I/O and has no clock.
//!
//! ```text
//!            ┌──── 1xx ────┐
//!            ▼             │
//!         ┌──────┐ ────────┘                    ┌────────────────────────────────┐
//!  ──────►│ Head │─── Content-Length ──► Length │─── all there ─────────────────►│
//!         └──────┘─── chunked ──► ChunkSize ⇄ ChunkData, ChunkEnd ; Trailers ────►│ an answer
//!             │  └─── neither ──► UntilClose ──── end of input ──────────────────►│
//!             └────── HEAD, 204, 304, length 0 ──────────────────────────────────►│
//!                                               └────────────────────────────────┘
//! ```
//!
//! RFC 9112, 6.3 decides about the body. The parser is strict: a client that reads a pipeline differently from the proxy
//! before it gives answers to the wrong requests (RFC 9112, 11.1). The rules are:
//!
//! - Lines end with CR LF only. There are no folded lines, and no space before a colon (2.2, 5.1, 5.2).
//! - `Content-Length` has only digits. All repeated values are equal. With `Transfer-Encoding` it is refused (6.3).
//! - `Transfer-Encoding` is `chunked`, because the client requests nothing else (6.1), and only in HTTP/1.1.
//! - A status without a body has no body: 1xx and 204 have no length other than 0, and no encoding (6.1, 6.2).
//! - 101 is refused, because the client never requests it (RFC 9110, 15.2.2).
//!
//! The search for the end of a line reads each byte once. However the bytes are split, they give the same answers or the
//! same violation. Tests check both.
//!
//! Bounds: [`Limits`] and the constants. The input keeps less than a head. Bodies are moved out of it as they come, into
//! memory that grows by doubling. At most 64 KiB are reserved before the bytes are there.

mod chunk;
mod head;
mod lines;
#[cfg(test)]
mod tests;
mod violation;

use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};
use http::Method;

use self::chunk::{Extensions, read_size};
use self::head::{Body, Head};
use self::lines::{LineError, Lines};
pub use self::violation::{
    CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, HEADER_COUNT_MAX, INTERIM_COUNT_MAX, Limits, Violation,
};
use crate::Response;

/// The most that is reserved for a body in advance. Then it grows by doubling, as its bytes come.
const BODY_RESERVE_BYTES_MAX: usize = 64 * 1024;

/// A final answer, and whether the connection ends with it.
#[derive(Debug)]
pub struct Answer {
    /// The response.
    pub response: Response,
    /// Whether the connection ends with this answer (RFC 9112, 9.3): the server has sent `close`, speaks HTTP/1.0, or has
    /// ended the body by closing.
    pub close: bool,
}

/// What the parser waits for.
#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    Length { bytes: usize },
    ChunkSize,
    ChunkData { bytes: usize },
    ChunkEnd,
    Trailers,
    UntilClose,
}

enum Step {
    /// The state has changed, and the next step can follow.
    Again,
    /// More input is needed.
    Starved,
    Done(Answer),
}

/// Reads the answers of one connection, one after the other.
///
/// ```
/// use bytes::BytesMut;
/// use http::Method;
/// use tidings_http1::{Limits, Parser};
///
/// let mut parser = Parser::new(Limits { head_bytes_max: 16 * 1024, body_bytes_max: 1024 * 1024 });
/// let mut input = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 204");
/// let answer = parser.parse(&Method::GET, &mut input)?.expect("the answer is complete");
/// assert_eq!(answer.response.body(), "hi");
/// assert!(!answer.close);
/// assert!(parser.parse(&Method::GET, &mut input)?.is_none(), "the second answer is not complete");
/// # Ok::<(), tidings_http1::Violation>(())
/// ```
pub struct Parser {
    limits: Limits,
    skips_large_bodies: bool,
    state: State,
    lines: Lines,
    interim_count: u32,
    extensions: Extensions,
    /// The answer whose body is being read, and whether the connection closes after it.
    head: Option<(Response, bool)>,
    body: BytesMut,
}

impl Parser {
    /// Makes the parser of a new connection.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            skips_large_bodies: false,
            state: State::Head,
            lines: Lines::default(),
            interim_count: 0,
            extensions: Extensions::default(),
            head: None,
            body: BytesMut::new(),
        }
    }

    /// Makes a body over [`Limits::body_bytes_max`] no violation: the answer is returned without its body as soon as the
    /// size is known, with [`Answer::close`]. For callers that need only the status.
    pub fn skip_large_bodies(mut self) -> Self {
        self.skips_large_bodies = true;
        self
    }

    /// Takes an answer, or a part of it, out of the input. `method` is the method of its request.
    ///
    /// Interim answers are skipped. `method` must stay the same until the answer is complete. The caller must know whether a
    /// request is waiting for an answer.
    ///
    /// # Errors
    ///
    /// A [`Violation`]. The parser must not be used after it.
    pub fn parse(&mut self, method: &Method, input: &mut BytesMut) -> Result<Option<Answer>, Violation> {
        loop {
            match self.step(method, input) {
                Ok(Step::Again) => {}
                Ok(Step::Starved) => return Ok(None),
                Ok(Step::Done(answer)) => return Ok(Some(answer)),
                Err(Violation::BodyTooLarge { .. }) if self.skips_large_bodies => {
                    self.body.clear();
                    return Ok(Some(Answer { close: true, ..self.complete(Bytes::new()) }));
                }
                Err(violation) => return Err(violation),
            }
        }
    }

    fn step(&mut self, method: &Method, input: &mut BytesMut) -> Result<Step, Violation> {
        Ok(match self.state {
            State::Head => self.read_head(method, input)?,
            State::Length { bytes } => self.read_length(bytes, input),
            State::ChunkSize => self.read_chunk_size(input)?,
            State::ChunkData { bytes } => self.read_chunk_data(bytes, input),
            State::ChunkEnd => self.read_chunk_end(input)?,
            State::Trailers => self.read_trailers(input)?,
            State::UntilClose => self.read_until_close(input)?,
        })
    }

    /// Returns the answer that ends with the input. Call it after an orderly end, when everything is parsed.
    ///
    /// # Errors
    ///
    /// [`Violation::Truncated`] when an answer is incomplete, or none has begun.
    pub fn finish(&mut self) -> Result<Answer, Violation> {
        match self.state {
            State::UntilClose => Ok(self.complete(Bytes::new())),
            _ => Err(Violation::Truncated),
        }
    }

    /// Whether an answer has begun, even with an interim answer.
    pub fn has_begun(&self) -> bool {
        !matches!(self.state, State::Head) || self.interim_count > 0
    }

    fn read_head(&mut self, method: &Method, input: &mut BytesMut) -> Result<Step, Violation> {
        let Some(bytes) = self.head_bytes(input)? else { return Ok(Step::Starved) };
        let head = Head::read(&input[..bytes], method)?;
        if head.status.is_informational() {
            self.interim_count += 1;
            if self.interim_count > INTERIM_COUNT_MAX {
                return Err(Violation::TooManyInterim);
            }
            input.advance(bytes);
            return Ok(Step::Again);
        }
        let fields = Bytes::copy_from_slice(&input[head.fields_at..bytes]);
        input.advance(bytes);
        self.head = Some((Response::new(head.status, fields), head.close));
        match head.body {
            Body::None => return Ok(Step::Done(self.complete(Bytes::new()))),
            Body::Length(bytes) => {
                let bytes = self.within_body_limit(bytes)?;
                // Usually the whole body is there, and one copy is enough.
                if let Some(body) = input.get(..bytes) {
                    let body = Bytes::copy_from_slice(body);
                    input.advance(bytes);
                    return Ok(Step::Done(self.complete_with(body, Bytes::new())));
                }
                self.body.reserve(bytes.min(BODY_RESERVE_BYTES_MAX));
                self.state = State::Length { bytes };
            }
            Body::Chunked => self.state = State::ChunkSize,
            Body::UntilClose => self.state = State::UntilClose,
        }
        Ok(Step::Again)
    }

    /// The length of the head, once it is complete. The first bytes show whether it can be one.
    fn head_bytes(&mut self, input: &[u8]) -> Result<Option<usize>, Violation> {
        const BEGIN: &[u8] = b"HTTP/1.";
        let bytes = input.len().min(BEGIN.len());
        if input[..bytes] != BEGIN[..bytes] {
            return Err(Violation::NotHttp);
        }
        let limit = self.limits.head_bytes_max;
        self.lines.block(input, limit).map_err(|error| match error {
            LineError::BareLineFeed => Violation::BareLineFeed,
            LineError::TooLong => Violation::HeadTooLarge { limit },
        })
    }

    fn read_length(&mut self, bytes: usize, input: &mut BytesMut) -> Step {
        let wanted = bytes - self.body.len();
        self.take_body(wanted, input);
        if self.body.len() < bytes { Step::Starved } else { Step::Done(self.complete(Bytes::new())) }
    }

    fn read_chunk_size(&mut self, input: &mut BytesMut) -> Result<Step, Violation> {
        let found = self.lines.line(input, CHUNK_LINE_BYTES_MAX).map_err(|error| match error {
            LineError::BareLineFeed => Violation::ChunkSize,
            LineError::TooLong => Violation::ChunkLineTooLong,
        })?;
        let Some(bytes) = found else { return Ok(Step::Starved) };
        let (size, extension_bytes) = read_size(&input[..bytes - 2])?;
        self.extensions.count(extension_bytes)?;
        let size = self.within_body_limit(size)?;
        input.advance(bytes);
        self.state = if size == 0 { State::Trailers } else { State::ChunkData { bytes: size } };
        Ok(Step::Again)
    }

    fn read_chunk_data(&mut self, bytes: usize, input: &mut BytesMut) -> Step {
        let rest = bytes - self.take_body(bytes, input);
        self.state = if rest == 0 { State::ChunkEnd } else { State::ChunkData { bytes: rest } };
        if rest == 0 { Step::Again } else { Step::Starved }
    }

    fn read_chunk_end(&mut self, input: &mut BytesMut) -> Result<Step, Violation> {
        match **input {
            [] | [b'\r'] => Ok(Step::Starved),
            [b'\r', b'\n', ..] => {
                input.advance(2);
                self.state = State::ChunkSize;
                Ok(Step::Again)
            }
            _ => Err(Violation::ChunkEnd),
        }
    }

    fn read_trailers(&mut self, input: &mut BytesMut) -> Result<Step, Violation> {
        let limit = self.limits.head_bytes_max;
        let found = self.lines.block(input, limit).map_err(|error| match error {
            LineError::BareLineFeed => Violation::BareLineFeed,
            LineError::TooLong => Violation::TrailersTooLarge { limit },
        })?;
        let Some(bytes) = found else { return Ok(Step::Starved) };
        let trailers = match &input[..bytes] {
            b"\r\n" => Bytes::new(),
            lines => {
                head::check_trailers(lines)?;
                Bytes::copy_from_slice(lines)
            }
        };
        input.advance(bytes);
        Ok(Step::Done(self.complete(trailers)))
    }

    fn read_until_close(&mut self, input: &mut BytesMut) -> Result<Step, Violation> {
        self.within_body_limit(input.len() as u64)?;
        self.take_body(input.len(), input);
        Ok(Step::Starved)
    }

    /// Checks that the body may have this many more bytes.
    fn within_body_limit(&self, more: u64) -> Result<usize, Violation> {
        let limit = self.limits.body_bytes_max;
        let fits = usize::try_from(more).ok().filter(|more| *more <= limit.saturating_sub(self.body.len()));
        fits.ok_or(Violation::BodyTooLarge { limit })
    }

    /// Moves up to `wanted` bytes to the body, and returns how many.
    fn take_body(&mut self, wanted: usize, input: &mut BytesMut) -> usize {
        let bytes = wanted.min(input.len());
        self.body.extend_from_slice(&input[..bytes]);
        input.advance(bytes);
        bytes
    }

    fn complete(&mut self, trailers: Bytes) -> Answer {
        let body = std::mem::take(&mut self.body).freeze();
        self.complete_with(body, trailers)
    }

    /// Returns the complete answer, and prepares for the next one.
    fn complete_with(&mut self, body: Bytes, trailers: Bytes) -> Answer {
        let (response, close) = self.head.take().unwrap_or_default();
        self.state = State::Head;
        self.interim_count = 0;
        self.extensions = Extensions::default();
        Answer { response: response.with_body(body).with_trailers(trailers), close }
    }
}

/// Shows no body: it may be a secret.
impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser")
            .field("state", &self.state)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
