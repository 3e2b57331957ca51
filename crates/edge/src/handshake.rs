//! From an HTTP request to a connection (RFC 6455, 4.2), and to the format that it speaks.
//!
//! A client speaks Protobuf if it offers the subprotocol `centrifuge-protobuf`, or if the query of its address has
//! `format=protobuf` or `cf_protocol=protobuf`. All others speak JSON. Of several subprotocols that we know the client's
//! first one is taken, and the answer names it. An empty header counts as none: an SDK sends one.

use std::sync::atomic::Ordering;

use http::header::{
    CONNECTION, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use tidings_protocol::websocket;
use tidings_types::{Format, Variant};
use tokio::sync::mpsc::error::TrySendError;

use crate::Edge;
use crate::shared::Handshake;

/// Why a request does not become a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Not a WebSocket request.
    #[error(
        "this address serves WebSocket only: send the headers Upgrade: websocket, Connection: Upgrade and Sec-WebSocket-Key"
    )]
    NotWebSocket,
    /// A version other than 13.
    #[error("the header Sec-WebSocket-Version must be 13")]
    Version,
    /// The client wants Protobuf, and the server sends no pings.
    #[error("Protobuf needs pings, and this server sends none: some SDKs reconnect for ever without them")]
    NoPings,
    /// The page's origin is not admitted.
    #[error("the Origin header names a site that is not in client.allowed_origins")]
    Origin,
    /// There is no room for another connection.
    #[error("the server already has client.connection_count_max connections: try again later")]
    Full,
}

impl HandshakeError {
    /// The HTTP status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotWebSocket | Self::NoPings => StatusCode::BAD_REQUEST,
            Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Full => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Edge {
    /// Answers a WebSocket handshake; the connection goes to one of the loops.
    ///
    /// # Errors
    /// [`HandshakeError`]; then nothing has changed.
    pub fn upgrade<B>(&self, request: &mut Request<B>) -> Result<Response<()>, HandshakeError> {
        let headers = request.headers();
        check_headers(headers)?;
        let origin = headers.get(ORIGIN).map(|origin| String::from_utf8_lossy(origin.as_bytes()).into_owned());
        if origin.is_some_and(|origin| !self.admits(&origin)) {
            return Err(HandshakeError::Origin);
        }
        let key =
            headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).ok_or(HandshakeError::NotWebSocket)?;
        let accept = websocket::accept_key(key);
        let subprotocol = subprotocol(headers);
        let format = format(subprotocol, request.uri());
        let shared = &self.shared;
        if format == Format::Protobuf && shared.config.ping_interval.is_zero() {
            return Err(HandshakeError::NoPings);
        }
        if shared.connection_count.fetch_add(1, Ordering::Relaxed) >= shared.config.connection_count_max {
            shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            return Err(HandshakeError::Full);
        }
        let index = self.next_loop.fetch_add(1, Ordering::Relaxed) % self.loops.len();
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.loops[index]
            .try_send(Handshake { upgrade: hyper::upgrade::on(request), variant: Variant::websocket(format) })
        {
            shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            return Err(HandshakeError::Full);
        }
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, http::HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(UPGRADE, http::HeaderValue::from_static("websocket"));
        let accept = http::HeaderValue::from_str(&accept).expect("base64 is a legal header value");
        response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
        if let Some(subprotocol) = subprotocol {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, http::HeaderValue::from_static(subprotocol));
        }
        Ok(response)
    }

    fn admits(&self, origin: &str) -> bool {
        self.shared.config.allowed_origins.iter().any(|pattern| pattern.admits(origin))
    }
}

const JSON: &str = "centrifuge-json";
const PROTOBUF: &str = "centrifuge-protobuf";

/// The subprotocol to confirm: the first one that the client offers and we know.
fn subprotocol(headers: &HeaderMap) -> Option<&'static str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut offered = values.flat_map(|value| value.split(',')).map(str::trim);
    offered.find_map(|offered| [JSON, PROTOBUF].into_iter().find(|known| *known == offered))
}

fn format(subprotocol: Option<&str>, uri: &Uri) -> Format {
    let mut query = uri.query().unwrap_or_default().split('&');
    let asks = query.any(|pair| matches!(pair, "format=protobuf" | "cf_protocol=protobuf"));
    if asks || subprotocol == Some(PROTOBUF) { Format::Protobuf } else { Format::Json }
}

fn check_headers(headers: &HeaderMap) -> Result<(), HandshakeError> {
    let has = |name: HeaderName, token: &str| {
        let values = headers.get_all(name);
        let mut tokens = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        tokens.any(|value| value.trim().eq_ignore_ascii_case(token))
    };
    if !has(UPGRADE, "websocket") || !has(CONNECTION, "upgrade") {
        return Err(HandshakeError::NotWebSocket);
    }
    if !has(SEC_WEBSOCKET_VERSION, "13") {
        return Err(HandshakeError::Version);
    }
    Ok(())
}
