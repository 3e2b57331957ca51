//! Answers WebSocket handshakes (RFC 6455, 4.2) and chooses the format of the connection. Before any transport begins,
//! three checks are made here: the page's origin must be admitted, and the client's network and a loop must have room.
//!
//! A client speaks Protobuf if it offers the subprotocol `centrifuge-protobuf`, or if the query of its address has
//! `format=protobuf` or `cf_protocol=protobuf`. All others speak JSON. Of several subprotocols that we know the client's
//! first one is taken, and the answer names it. An empty header counts as none: an SDK sends one.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{
    ACCEPT_LANGUAGE, CONNECTION, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Extensions, HeaderMap, Request, Response, StatusCode, Uri};
use tidings_protocol::{HookHeaders, SessionHooks, SessionId, websocket};
use tidings_types::{Format, Language, Locale, Transport, Variant};
use tokio::sync::mpsc::OwnedPermit;

use crate::Edge;
use crate::error::HandshakeError;
use crate::networks::ClientNetwork;
use crate::shared::{ConnectionPermit, HandedOver, Handshake, Opening};

impl Edge {
    /// Answers a WebSocket handshake; the connection goes to one of the loops. With [`Transport::UniWebSocket`] the client
    /// speaks JSON without a subprotocol, and its request to connect may be in the query (`cf_connect`).
    ///
    /// # Errors
    /// [`HandshakeError`]; then nothing has changed.
    pub fn upgrade<B>(&self, transport: Transport, request: &mut Request<B>) -> Result<Response<()>, HandshakeError> {
        self.shake_hands(transport, request).inspect_err(|error| self.shared.metrics.on_refused(*error))
    }

    fn shake_hands<B>(&self, transport: Transport, request: &mut Request<B>) -> Result<Response<()>, HandshakeError> {
        let headers = request.headers();
        check_headers(headers)?;
        self.check_origin(headers)?;
        let key =
            headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).ok_or(HandshakeError::NotWebSocket)?;
        let accept = websocket::accept_key(key);
        let (subprotocol, format, first) = if transport.is_unidirectional() {
            (None, Format::Json, query_message(request.uri()))
        } else {
            let subprotocol = subprotocol(headers);
            (subprotocol, format(subprotocol, request.uri()), None)
        };
        let (language, hook_headers) = (self.language(headers), hook_headers(&self.shared.session.hooks, headers));
        let opening = Opening { head: Vec::new(), first, headers: hook_headers, language };
        let entrance = self.enter(Variant { transport, format }, request.extensions())?;
        entrance.hand_over(HandedOver::Upgrade(hyper::upgrade::on(request)), opening);
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

    /// Requests without an `Origin` header do not come from a page.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), HandshakeError> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = String::from_utf8_lossy(origin.as_bytes());
        let is_admitted = self.shared.config.allowed_origins.iter().any(|pattern| pattern.admits(&origin));
        if is_admitted { Ok(()) } else { Err(HandshakeError::Origin) }
    }

    /// The first language of `Accept-Language` in which there are texts (RFC 9110, 12.5.4). The weights are not read:
    /// browsers write the languages in their order.
    pub(crate) fn language(&self, headers: &HeaderMap) -> Language {
        const TAG_COUNT_MAX: usize = 8;
        let value = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let tags = value.split(',').take(TAG_COUNT_MAX).map(|tag| tag.split(';').next().unwrap_or_default().trim());
        let mut locales = tags.filter_map(|tag| Locale::new(tag).ok());
        locales.find_map(|locale| self.shared.hub.language(&locale)).unwrap_or_default()
    }

    /// Makes room for a connection on one of the loops.
    pub(crate) fn enter(&self, variant: Variant, request: &Extensions) -> Result<Entrance, HandshakeError> {
        let shared = &self.shared;
        if variant.format == Format::Protobuf && shared.config.ping_interval.is_zero() {
            return Err(HandshakeError::NoPings);
        }
        let permit = ConnectionPermit::new(shared, request.get::<ClientNetwork>().copied())?;
        let loop_index = self.next_loop.fetch_add(1, Ordering::Relaxed) % self.loops.len();
        let queue = self.loops[loop_index].handshakes.clone();
        let place = queue.try_reserve_owned().map_err(|_| HandshakeError::Full)?;
        Ok(Entrance { variant, permit, loop_index, place })
    }
}

/// Room for a connection on one of the loops. Dropped, it is free again.
pub(crate) struct Entrance {
    variant: Variant,
    permit: ConnectionPermit,
    loop_index: usize,
    place: OwnedPermit<Handshake>,
}

impl Entrance {
    pub(crate) fn hand_over(self, socket: HandedOver, opening: Opening) {
        let Self { variant, permit, loop_index, place } = self;
        let loop_index = u16::try_from(loop_index).expect("there are at most 1024 loops");
        let has_session = variant.transport != Transport::WebSocket;
        let session = has_session.then(|| SessionId { loop_index, secret: rand::random() });
        place.send(Handshake { socket, variant, session, opening, permit });
    }
}

/// The client's first message, if it is in the query.
pub(crate) fn query_message(uri: &Uri) -> Option<Bytes> {
    let mut pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let (_, message) = pairs.find(|(name, _)| name == "cf_connect")?;
    Some(message.into_owned().into())
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

/// The headers that hooks may get. A value that is not text is left out.
pub(crate) fn hook_headers(hooks: &SessionHooks, headers: &HeaderMap) -> Option<HookHeaders> {
    let values = |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let pairs = hooks.headers.iter().flat_map(|name| values(name).map(|value| (name.clone(), value.into())));
    let kept: Vec<_> = pairs.collect();
    (!kept.is_empty()).then(|| kept.into())
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
