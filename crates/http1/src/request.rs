//! A request. It is checked while it is made, so every request can be written, and nothing can be injected.
//!
//! Header lines are encoded once, when they are added. Sending a request copies its head, but not the pieces of its body.
//! A clone shares both, so a request that is sent often is made only once. The client decides about framing and routing,
//! so these headers cannot be set. Text with CR, LF or NUL is never accepted into a head (RFC 9112, 11.1).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use tidings_pool::Outgoing;

/// Headers that the client sets itself or does not support: framing, routing and the connection (RFC 9110, 7.6.1;
/// RFC 9112, 6), and `Expect`, because the client does not wait for the interim answer.
const RESERVED: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Further reserved headers, which have no constants.
const RESERVED_OLD: [&str; 2] = ["keep-alive", "proxy-connection"];

/// A request to a server.
///
/// ```
/// use tidings_http1::Request;
///
/// let request = Request::post("/hook")?
///     .header("content-type", "application/json")?
///     .body("{\"type\":")
///     .body("\"event.done\"}")
///     .pipeline(true); // This POST may be pipelined.
/// assert!(Request::get("/a b").is_err());
/// # Ok::<(), tidings_http1::RequestError>(())
/// ```
#[derive(Clone)]
pub struct Request(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    method: Method,
    /// The request line and the caller's header lines.
    head: Vec<u8>,
    body: Vec<Bytes>,
    body_bytes: usize,
    pipeline: bool,
    repeat: bool,
}

/// Why a request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// CONNECT: the client has no tunnels.
    #[error("method {0} cannot be sent")]
    Method(Method),
    /// The target is not a path with its query (RFC 9112, 3.2.1), or `*` with OPTIONS.
    #[error("the target must be a path of visible ASCII characters that begins with a slash")]
    Target,
    /// The name is not a token (RFC 9110, 5.1).
    #[error("a header name is not a token")]
    HeaderName,
    /// The value has control characters, such as CR and LF (RFC 9110, 5.5).
    #[error("the value of header {0} has a control character")]
    HeaderValue(HeaderName),
    /// The client sets this header itself, or does not support it.
    #[error("header {0} is reserved for the client")]
    Reserved(HeaderName),
    /// TRACE has no body (RFC 9110, 9.3.8).
    #[error("method {0} has no body")]
    Body(Method),
}

impl Request {
    /// A request with any method except CONNECT. The target is a path and perhaps a query; for OPTIONS also `*`.
    ///
    /// # Errors
    ///
    /// [`RequestError::Method`] and [`RequestError::Target`].
    pub fn new(method: Method, target: &str) -> Result<Self, RequestError> {
        if method == Method::CONNECT {
            return Err(RequestError::Method(method));
        }
        let is_path = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let is_server = target == "*" && method == Method::OPTIONS;
        if !is_path && !is_server {
            return Err(RequestError::Target);
        }
        let mut head = Vec::with_capacity(128);
        for part in [method.as_str(), " ", target, " HTTP/1.1\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        let idempotent = method.is_idempotent(); // RFC 9110, 9.2.2. False for unknown methods.
        let parts = Parts { method, head, body: Vec::new(), body_bytes: 0, pipeline: idempotent, repeat: idempotent };
        Ok(Self(Arc::new(parts)))
    }

    /// A GET request.
    ///
    /// # Errors
    ///
    /// [`RequestError::Target`].
    pub fn get(target: &str) -> Result<Self, RequestError> {
        Self::new(Method::GET, target)
    }

    /// A HEAD request.
    ///
    /// # Errors
    ///
    /// [`RequestError::Target`].
    pub fn head(target: &str) -> Result<Self, RequestError> {
        Self::new(Method::HEAD, target)
    }

    /// A POST request.
    ///
    /// # Errors
    ///
    /// [`RequestError::Target`].
    pub fn post(target: &str) -> Result<Self, RequestError> {
        Self::new(Method::POST, target)
    }

    /// A PUT request.
    ///
    /// # Errors
    ///
    /// [`RequestError::Target`].
    pub fn put(target: &str) -> Result<Self, RequestError> {
        Self::new(Method::PUT, target)
    }

    /// A DELETE request.
    ///
    /// # Errors
    ///
    /// [`RequestError::Target`].
    pub fn delete(target: &str) -> Result<Self, RequestError> {
        Self::new(Method::DELETE, target)
    }

    /// Adds a header. Earlier headers with the same name stay. Bytes beyond ASCII are written unchanged.
    ///
    /// # Errors
    ///
    /// [`RequestError::HeaderName`], [`RequestError::HeaderValue`]; [`RequestError::Reserved`] for headers about routing,
    /// framing or the connection.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, RequestError> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| RequestError::HeaderName)?;
        if RESERVED.contains(&name) || RESERVED_OLD.contains(&name.as_str()) {
            return Err(RequestError::Reserved(name));
        }
        let value = value.as_ref();
        if HeaderValue::from_bytes(value).is_err() {
            return Err(RequestError::HeaderValue(name));
        }
        let head = &mut self.parts_mut().head;
        for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
        Ok(self)
    }

    /// Tells the server that trailers are accepted. Otherwise many servers send none (RFC 9110, 10.1.4).
    pub fn want_trailers(mut self) -> Self {
        self.parts_mut().head.extend_from_slice(b"te: trailers\r\nconnection: te\r\n");
        self
    }

    /// Adds a piece to the body. The pieces are written in order.
    pub fn body(mut self, piece: impl Into<Bytes>) -> Self {
        let piece = piece.into();
        if !piece.is_empty() {
            let parts = self.parts_mut();
            parts.body_bytes += piece.len();
            parts.body.push(piece);
        }
        self
    }

    /// Sets whether the request may be pipelined: sent on a connection together with other requests that wait for answers.
    ///
    /// By default, idempotent requests may (RFC 9112, 9.3.2; RFC 9110, 9.2.2: GET, HEAD, OPTIONS, TRACE, PUT, DELETE). This
    /// does not change [`repeat`](Self::repeat).
    pub fn pipeline(mut self, yes: bool) -> Self {
        self.parts_mut().pipeline = yes;
        self
    }

    /// Sets whether the request may be sent again if its connection was lost before the answer. The server may then handle
    /// it twice. By default, idempotent requests may.
    pub fn repeat(mut self, yes: bool) -> Self {
        self.parts_mut().repeat = yes;
        self
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.0.method
    }

    /// Whether it may be pipelined.
    pub fn may_pipeline(&self) -> bool {
        self.0.pipeline
    }

    /// Whether it may be repeated.
    pub fn may_repeat(&self) -> bool {
        self.0.repeat
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.0.body_bytes
    }

    /// Copies the parts if a clone shares them.
    fn parts_mut(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }

    pub(crate) fn check(&self) -> Result<(), RequestError> {
        let Parts { method, body_bytes, .. } = &*self.0;
        let refused = *method == Method::TRACE && *body_bytes > 0;
        if refused { Err(RequestError::Body(method.clone())) } else { Ok(()) }
    }

    /// Writes the request. `host` is the complete header line.
    pub(crate) fn write(&self, host: &[u8], out: &mut Outgoing) {
        let Parts { method, head, body, body_bytes, .. } = &*self.0;
        out.put_slice(head);
        out.put_slice(host);
        if *body_bytes > 0 || expects_body(method) {
            out.put_slice(b"content-length: ");
            out.put_slice(itoa::Buffer::new().format(*body_bytes).as_bytes());
            out.put_slice(b"\r\n");
        }
        out.put_slice(b"\r\n");
        for piece in body {
            out.put_bytes(piece.clone());
        }
    }
}

/// Shows no target, headers or body: they may be secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.0.method)
            .field("body_bytes", &self.0.body_bytes)
            .field("pipeline", &self.0.pipeline)
            .field("repeat", &self.0.repeat)
            .finish_non_exhaustive()
    }
}

/// Whether a length of 0 is written too (RFC 9110, 8.6).
fn expects_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(request: &Request) -> String {
        let mut out = Outgoing::new();
        request.write(b"host: a\r\n", &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn a_request_is_written_as_rfc_9112_has_it() {
        for (request, expected) in [
            (Request::get("/"), "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (Request::head("/a?b=%20c"), "HEAD /a?b=%20c HTTP/1.1\r\nhost: a\r\n\r\n"),
            (Request::new(Method::OPTIONS, "*"), "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n"),
            // RFC 9110, 8.6: a length of 0 is written.
            (Request::post("/"), "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
            (Request::delete("/"), "DELETE / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (
                Request::put("/").and_then(|put| put.header("X-A", "b\tc")).map(|put| put.body("hel").body("lo")),
                "PUT / HTTP/1.1\r\nx-a: b\tc\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            ),
            (
                Request::get("/").map(Request::want_trailers),
                "GET / HTTP/1.1\r\nte: trailers\r\nconnection: te\r\nhost: a\r\n\r\n",
            ),
        ] {
            assert_eq!(written(&request.unwrap()), expected);
        }
    }

    #[test]
    fn a_large_body_is_not_copied() {
        let body = Bytes::from(vec![b'x'; 100_000]);
        let before = body.as_ptr();
        let request = Request::put("/").unwrap().body(body);
        assert!(written(&request).ends_with(&"x".repeat(100_000)));
        assert_eq!(request.0.body[0].as_ptr(), before);
    }

    #[test]
    fn nothing_is_injected() {
        let get = Request::get("/").unwrap();
        for target in
            ["", "a", "*", "http://b/", "/ HTTP/1.1\r\nx: y", "/a b", "/\t", "/\n", "/\0", "/#f", "/\u{e9}", "/\x7f"]
        {
            assert_eq!(Request::get(target).err(), Some(RequestError::Target), "{target:?}");
        }
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0", "\x7f"] {
            let name = HeaderName::from_static("x-a");
            assert_eq!(get.clone().header("x-a", value).err(), Some(RequestError::HeaderValue(name)), "{value:?}");
        }
        for name in ["", "a b", "a:", "a\r\nb", "\u{e9}"] {
            assert_eq!(get.clone().header(name, "b").err(), Some(RequestError::HeaderName), "{name:?}");
        }
        for name in
            ["Host", "content-length", "TRANSFER-ENCODING", "connection", "keep-alive", "Expect", "te", "upgrade"]
        {
            assert!(matches!(get.clone().header(name, "b"), Err(RequestError::Reserved(_))), "{name}");
        }
        assert_eq!(Request::new(Method::CONNECT, "/").err(), Some(RequestError::Method(Method::CONNECT)));
        assert!(Request::new(Method::TRACE, "/").unwrap().body("x").check().is_err());
    }

    #[test]
    fn an_idempotent_request_is_pipelined_and_repeated_by_default() {
        for (method, expected) in
            [("GET", true), ("HEAD", true), ("OPTIONS", true), ("TRACE", true), ("PUT", true), ("DELETE", true)]
                .into_iter()
                .chain([("POST", false), ("PATCH", false), ("PURGE", false), ("get", false)])
        {
            let request = Request::new(Method::from_bytes(method.as_bytes()).unwrap(), "/").unwrap();
            assert_eq!((request.may_pipeline(), request.may_repeat()), (expected, expected), "{method}");
        }
        let post = Request::post("/").unwrap().pipeline(true);
        assert_eq!((post.may_pipeline(), post.may_repeat()), (true, false));
        let get = Request::get("/").unwrap().repeat(false);
        assert_eq!((get.may_pipeline(), get.may_repeat()), (true, false));
    }

    #[test]
    fn changing_a_clone_does_not_change_the_original() {
        let one = Request::get("/").unwrap();
        let other = one.clone().header("x-a", "b").unwrap().body("c").pipeline(false);
        assert_eq!(written(&one), "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!((one.may_pipeline(), other.may_pipeline(), other.body_bytes()), (true, false, 1));
    }

    #[test]
    fn secrets_are_not_shown() {
        let request = Request::post("/secret").unwrap().header("authorization", "secret").unwrap().body("secret");
        assert!(!format!("{request:?}").contains("secret"));
    }
}
