//! Reading answers: an incremental core over bytes as they come, without I/O or clock.
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
//! Which of the bodies follows is decided by RFC 9112, 6.3. Strictness is the rule, since a client that reads a
//! pipeline differently from the proxy before it hands answers to the wrong requests (RFC 9112, 11.1):
//!
//! - lines end with CR LF, nothing else; no folded lines, no space before a colon (2.2, 5.1, 5.2);
//! - `Content-Length` is digits, and the same wherever it is repeated; with `Transfer-Encoding` it is refused (6.3);
//! - `Transfer-Encoding` is `chunked` and nothing else, since we ask for nothing else (6.1), and is HTTP/1.1's;
//! - what has no body by its status says so: no 1xx or 204 with a length other than 0, none with an encoding (6.1, 6.2);
//! - 101 was not asked for and is refused (RFC 9110, 15.2.2).
//!
//! Each byte is looked for the end of a line once, however they come apart; and however they come apart, the same
//! bytes give the same answers or the same violation. Tests hold it to both.
//!
//! Bounds: [`Limits`] and the constants. What stays in the input is always less than a head; bodies are moved out of it as
//! they come, into memory that grows by doubling. What a length promises is not reserved before it is there.

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

/// Reserved for a body at once; from there on it grows by doubling, as its bytes come.
const BODY_RESERVE_BYTES_MAX: usize = 64 * 1024;

/// A final answer, and what becomes of the connection.
#[derive(Debug)]
pub struct Answer {
    /// What was answered.
    pub response: Response,
    /// Whether nothing more may be expected on this connection (RFC 9112, 9.3): the server said `close`, speaks
    /// HTTP/1.0, or ended the body by closing.
    pub close: bool,
}

/// What is being waited for.
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
    /// The state has changed; go on.
    Again,
    /// Nothing can be done without more input.
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
/// let answer = parser.parse(&Method::GET, &mut input)?.expect("it is all there");
/// assert_eq!(answer.response.body(), "hi");
/// assert!(!answer.close);
/// assert!(parser.parse(&Method::GET, &mut input)?.is_none(), "the second is not");
/// # Ok::<(), tidings_http1::Violation>(())
/// ```
pub struct Parser {
    limits: Limits,
    skips_large_bodies: bool,
    state: State,
    lines: Lines,
    interim_count: u32,
    extensions: Extensions,
    /// Of the answer whose body is being read.
    head: Option<(Response, bool)>,
    body: BytesMut,
}

impl Parser {
    /// One for a fresh connection.
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

    /// From now on a body over [`Limits::body_bytes_max`] is no violation: the answer is handed out without its body as
    /// soon as that is known, and with [`Answer::close`]. For who wants the status above all.
    pub fn skip_large_bodies(mut self) -> Self {
        self.skips_large_bodies = true;
        self
    }

    /// Takes an answer to a request with that method out of the input, or as much of one as is there.
    ///
    /// Interim answers are skipped. `method` must be the same until the answer is there. Whether bytes may come at all
    /// is the caller's to know.
    ///
    /// # Errors
    ///
    /// A [`Violation`]; the parser must not be used any more.
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

    /// The input has ended, in order, after everything was parsed: the answer that ends with it.
    ///
    /// # Errors
    ///
    /// [`Violation::Truncated`] when an answer ends in the middle. None has begun: also that.
    pub fn finish(&mut self) -> Result<Answer, Violation> {
        match self.state {
            State::UntilClose => Ok(self.complete(Bytes::new())),
            _ => Err(Violation::Truncated),
        }
    }

    /// Whether an answer has begun, be it with an interim one.
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
                // The usual case takes one copy and no detour.
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

    /// The length of the head, once all of it is there. What cannot become one is known by its first bytes.
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

    /// So many bytes more are no more than a body may have.
    fn within_body_limit(&self, more: u64) -> Result<usize, Violation> {
        let limit = self.limits.body_bytes_max;
        let fits = usize::try_from(more).ok().filter(|more| *more <= limit.saturating_sub(self.body.len()));
        fits.ok_or(Violation::BodyTooLarge { limit })
    }

    /// Moves up to `wanted` bytes to the body and says how many.
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

    /// The answer is whole; the next begins.
    fn complete_with(&mut self, body: Bytes, trailers: Bytes) -> Answer {
        let (response, close) = self.head.take().unwrap_or_default();
        self.state = State::Head;
        self.interim_count = 0;
        self.extensions = Extensions::default();
        Answer { response: response.with_body(body).with_trailers(trailers), close }
    }
}

/// Shows nothing of the body: it may be a secret.
impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser")
            .field("state", &self.state)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
