//! Server-sent events and HTTP streams: an HTTP request becomes a connection, whose messages are the endless body of
//! the response. Also takes the requests with which such a client sends its commands ([`Edge::emulate`]).
//!
//! The client's first commands come with its request: in the query (`cf_connect`) or in the body. Then the socket is
//! taken out of the HTTP server ([`Taker`]), and a loop writes the head and everything behind it. The body ends with
//! the connection, so it needs no framing of its own, also over HTTP/1.0 (decision 0020).
//!
//! A page of another origin must be in `client.allowed_origins`, as for a WebSocket; then its requests are answered
//! with the headers of CORS.
//!
//! | Status of a request with commands | When |
//! |---|---|
//! | 204 | its commands were handed to the loop; or there is no such session, which a stranger must not learn |
//! | 400 | the body is not what it should be |
//! | 403 | the page's origin is not admitted |
//! | 404 | the session is of another node |
//! | 405 | another method |
//! | 503 | too many commands wait for the loop |
//!
//! Requests may overtake each other on their way here. From here on their order stays.
//!
//! # Limits
//! The caller reads the bodies, at most [`Edge::body_bytes_max`] of each.
//!
//! | What | Limit | Then |
//! |---|---|---|
//! | connections, together with WebSockets | `connection_count_max` | 503 |
//! | connections of one network, together with WebSockets | `address_connection_count_max` | 429 |
//! | requests with commands that wait for a loop | 1024, and 4 MiB of commands | 503 |
//! | commands of one connection that wait while it handles others | 128 requests, and [`EMULATED_FRAME_COUNT_MAX`](tidings_protocol::EMULATED_FRAME_COUNT_MAX) × `message_bytes_max` | closed with 3013 |

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CACHE_CONTROL,
    CONNECTION, CONTENT_TYPE, ORIGIN, PRAGMA, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tidings_protocol::{EmulationRequest, SessionId};
use tidings_types::{Format, Transport, Variant};

use crate::Edge;
use crate::error::HandshakeError;
use crate::handshake::{hook_headers, query_message};
use crate::shared::{Emulation, HandedOver, Opening};
use crate::takeover::Taker;

/// How long a browser may remember that a page may send a request.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("300");
/// Nobody may keep or change what is for one client.
const NO_CACHE: HeaderValue =
    HeaderValue::from_static("private, no-cache, no-store, no-transform, must-revalidate, max-age=0");
/// nginx passes each message on at once.
const NO_BUFFER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

fn emulated(emulation: Emulation) -> Response<Bytes> {
    match emulation {
        Emulation::Taken => text(StatusCode::NO_CONTENT, ""),
        Emulation::Full => text(StatusCode::SERVICE_UNAVAILABLE, "too many commands wait: try again later"),
        Emulation::Unknown => {
            text(StatusCode::NOT_FOUND, "the session is of another node, or the server has restarted")
        }
    }
}

impl Edge {
    /// The largest body of a request to [`Edge::stream`] and [`Edge::emulate`]; a larger one is to be refused with 413.
    pub fn body_bytes_max(&self) -> usize {
        self.shared.config.message_bytes_max
    }

    /// Answers a request for a stream. If a stream begins, it takes the socket out of the HTTP server, and the answer
    /// reaches nobody. The request needs the [`Taker`] of its connection among its extensions.
    ///
    /// # Cancel safety
    /// Not cancel safe: the connection may be lost.
    pub async fn stream(&self, transport: Transport, request: Request<Bytes>) -> Response<Bytes> {
        let methods = match transport {
            Transport::Sse | Transport::UniSse => "GET, POST, OPTIONS",
            _ => "POST, OPTIONS",
        };
        let opened = match self.common(&request, methods) {
            Some(response) => return response,
            None => self.open(transport, &request).await,
        };
        let answer = match opened {
            Ok(()) => Response::new(Bytes::new()),
            Err(error) => self.refuse(error),
        };
        self.with_cors(request.headers(), answer)
    }

    async fn open(&self, transport: Transport, request: &Request<Bytes>) -> Result<(), HandshakeError> {
        let is_binary = transport == Transport::HttpStream && is_octets(request.headers());
        let variant = Variant { transport, format: if is_binary { Format::Protobuf } else { Format::Json } };
        let first = first_message(transport, request).ok_or(HandshakeError::NoConnect)?;
        let taker = request.extensions().get::<Taker>().ok_or(HandshakeError::NotStreamable)?.clone();
        let language = self.language(request.headers());
        let headers = hook_headers(&self.shared.session.hooks, request.headers());
        let entrance = self.enter(variant, request.extensions())?;
        let head = head_bytes(&self.with_cors(request.headers(), stream_head(variant)));
        let socket = taker.take().await.ok_or(HandshakeError::NotStreamable)?;
        entrance.hand_over(HandedOver::Socket(socket), Opening { head, first: Some(first), headers, language });
        Ok(())
    }

    /// Hands the commands in a request to the session that it names, on this server or another one of its cluster.
    pub async fn emulate(&self, request: &Request<Bytes>) -> Response<Bytes> {
        if let Some(response) = self.common(request, "POST, OPTIONS") {
            return response;
        }
        let format = if is_octets(request.headers()) { Format::Protobuf } else { Format::Json };
        let answer = match EmulationRequest::parse(format, request.body()) {
            Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
            Ok(emulation) => emulated(self.hand_over(emulation).await),
        };
        self.with_cors(request.headers(), answer)
    }

    async fn hand_over(&self, emulation: EmulationRequest) -> Emulation {
        if *emulation.node == *self.shared.config.node {
            return self.take_emulated(emulation);
        }
        match self.shared.others.emulate(emulation) {
            Some(taken) => taken.await,
            None => Emulation::Unknown,
        }
    }

    /// Hands commands to the session of this server that they name.
    pub fn take_emulated(&self, emulation: EmulationRequest) -> Emulation {
        match *emulation.node == *self.shared.config.node {
            false => Emulation::Unknown,
            true if self.hand_on(emulation) => Emulation::Taken,
            true => Emulation::Full,
        }
    }

    /// `false`: there is no room. Commands for a session that does not exist are dropped.
    fn hand_on(&self, emulation: EmulationRequest) -> bool {
        let Ok(session) = emulation.session.parse::<SessionId>() else { return true };
        match self.loops.get(usize::from(session.loop_index)) {
            Some(inputs) => inputs.emulated.send(session, emulation.data),
            None => true,
        }
    }

    fn refuse(&self, error: HandshakeError) -> Response<Bytes> {
        self.shared.metrics.on_refused(error);
        text(error.status(), &error.to_string())
    }

    /// The answer to a page that is not admitted, to a preflight, and to a wrong method.
    fn common(&self, request: &Request<Bytes>, methods: &'static str) -> Option<Response<Bytes>> {
        if self.check_origin(request.headers()).is_err() {
            return Some(self.refuse(HandshakeError::Origin));
        }
        let method = request.method();
        let (status, name) = match method {
            &Method::OPTIONS => (StatusCode::NO_CONTENT, ACCESS_CONTROL_ALLOW_METHODS),
            _ if methods.split(", ").any(|known| known == method.as_str()) => return None,
            _ => (StatusCode::METHOD_NOT_ALLOWED, ALLOW),
        };
        let mut response = text(status, "");
        response.headers_mut().insert(name, HeaderValue::from_static(methods));
        if method == Method::OPTIONS {
            response.headers_mut().insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
        }
        Some(self.with_cors(request.headers(), response))
    }

    /// Lets the page read the response: its origin was checked before.
    fn with_cors<B>(&self, asked: &HeaderMap, mut response: Response<B>) -> Response<B> {
        let Some(origin) = asked.get(ORIGIN) else { return response };
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        response
    }
}

fn is_octets(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(OCTETS.as_bytes()))
}

/// The client's first message: the body of a POST, or `cf_connect` of the query. A client on a unidirectional transport
/// may have nothing to say.
fn first_message(transport: Transport, request: &Request<Bytes>) -> Option<Bytes> {
    match *request.method() {
        Method::POST => Some(request.body().clone()),
        _ => query_message(request.uri()).or_else(|| transport.is_unidirectional().then(Bytes::new)),
    }
}

/// The head of the response, and what the body begins with.
fn stream_head(variant: Variant) -> Response<&'static [u8]> {
    let is_sse = matches!(variant.transport, Transport::Sse | Transport::UniSse);
    let kind = match variant.format {
        Format::Protobuf => OCTETS,
        Format::Json if is_sse => HeaderValue::from_static("text/event-stream; charset=utf-8"),
        Format::Json => HeaderValue::from_static("application/json; charset=utf-8"),
    };
    let mut response = Response::new(if is_sse { &b"\r\n"[..] } else { b"" });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, NO_CACHE);
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(NO_BUFFER.0, NO_BUFFER.1);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn head_bytes(response: &Response<&[u8]>) -> Vec<u8> {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in response.headers() {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(piece);
        }
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(response.body());
    head
}

fn text(status: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(text.as_bytes()));
    *response.status_mut() = status;
    if !text.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    response
}
