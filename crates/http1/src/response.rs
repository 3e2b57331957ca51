//! An answer, read whole.
//!
//! Most callers look at the status and perhaps at the body; so the header lines are kept as they came, in one piece, and
//! become a map when somebody asks for it. They have been checked before: the map holds every line.
//!
//! An answer owns its bytes and holds on to nothing of the connection's buffers.

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
    /// Rare; so an answer is short, which is moved from hand to hand.
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

    /// The headers; names are compared without regard to case, and several of one name keep their order.
    ///
    /// The map is made at the first call. At most [`HEADER_COUNT_MAX`] lines.
    pub fn headers(&self) -> &HeaderMap {
        self.fields.map()
    }

    /// The body, without chunks; empty where there is none (HEAD, 204, 304). A content coding is left as it is.
    ///
    /// Cloning it copies nothing.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body by value.
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The fields behind a chunked body, empty where there were none. They are never taken for headers
    /// (RFC 9110, 6.5.1): what one says of framing, routing or authentication means nothing.
    pub fn trailers(&self) -> &HeaderMap {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        self.trailers.as_ref().map_or(&NONE, |trailers| trailers.map())
    }
}

/// Shows no value of a header and nothing of the body: they may be secrets.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Checked header lines up to and with the empty one (or none at all), and the map of them when somebody has asked.
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

/// Values share `lines`.
fn read_fields(lines: &Bytes) -> HeaderMap {
    let mut headers = [EMPTY_HEADER; HEADER_COUNT_MAX];
    let parsed = httparse::parse_headers(lines, &mut headers);
    let Ok(httparse::Status::Complete((_, headers))) = parsed else {
        debug_assert!(lines.is_empty(), "lines are checked before they get here");
        return HeaderMap::new();
    };
    let mut map = HeaderMap::with_capacity(headers.len());
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(lines.slice_ref(header.value));
        // Both libraries know the same tokens and field content: RFC 9110, 5.1 and 5.5.
        debug_assert!(name.is_ok() && value.is_ok(), "httparse lets through what http refuses");
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}
