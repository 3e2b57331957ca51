//! A complete answer.
//!
//! Most callers look only at the status and perhaps at the body. So the header lines are kept as they came, and the map is
//! made when it is first needed. The parser has checked the lines, so the map has all of them.
//!
//! An answer owns its bytes and keeps no buffer of the connection alive.

use std::fmt;
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::EMPTY_HEADER;

use crate::HEADER_COUNT_MAX;

/// What a server answered.
#[derive(Clone, Default)]
pub struct Response {
    status: StatusCode,
    fields: Fields,
    body: Bytes,
    /// Boxed because trailers are rare, and a small `Response` is cheaper to move.
    trailers: Option<Box<Fields>>,
}

impl Response {
    pub(crate) fn new(status: StatusCode, fields: Bytes) -> Self {
        Self { status, fields: Fields::new(fields), ..Self::default() }
    }

    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn with_trailers(self, trailers: Bytes) -> Self {
        let trailers = (!trailers.is_empty()).then(|| Box::new(Fields::new(trailers)));
        Self { trailers, ..self }
    }

    /// The status: 200 to 999, never an interim one.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers. Names are case-insensitive. Headers with the same name keep their order.
    ///
    /// The map is made at the first call. It has at most [`HEADER_COUNT_MAX`] lines.
    pub fn headers(&self) -> &HeaderMap {
        self.fields.map()
    }

    /// The body, without the chunk framing; empty if there is none (HEAD, 204, 304). A content coding is not decoded.
    ///
    /// A clone copies nothing.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body by value.
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The trailers after a chunked body, or an empty map. They are never treated as headers (RFC 9110, 6.5.1): trailers
    /// about framing, routing or authentication have no effect.
    pub fn trailers(&self) -> &HeaderMap {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        self.trailers.as_ref().map_or(&NONE, |trailers| trailers.map())
    }
}

/// Shows no header values and no body: they may be secrets.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Checked header lines including the empty line (or no lines), and their map once it is needed.
#[derive(Clone, Default)]
struct Fields {
    lines: Bytes,
    map: OnceLock<Box<HeaderMap>>,
}

impl Fields {
    fn new(lines: Bytes) -> Self {
        Self { lines, map: OnceLock::new() }
    }

    fn map(&self) -> &HeaderMap {
        self.map.get_or_init(|| Box::new(read_fields(&self.lines)))
    }
}

/// Makes a map whose values share `lines`.
fn read_fields(lines: &Bytes) -> HeaderMap {
    let mut headers = [EMPTY_HEADER; HEADER_COUNT_MAX];
    let parsed = httparse::parse_headers(lines, &mut headers);
    let Ok(httparse::Status::Complete((_, headers))) = parsed else {
        debug_assert!(lines.is_empty(), "the parser has checked the lines");
        return HeaderMap::new();
    };
    let mut map = HeaderMap::with_capacity(headers.len());
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(lines.slice_ref(header.value));
        // Both libraries accept the same tokens and field content: RFC 9110, 5.1 and 5.5.
        debug_assert!(name.is_ok() && value.is_ok(), "httparse accepts a header that http refuses");
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}
