//! Where clients connect: the routes of each transport, and of the commands that come in requests of their own.
//!
//! Only a WebSocket is always there; settings of `[client]` with the names of the routes add the others. The edge answers.
//! Here the bodies are read, which are small.
//!
//! | What | Limit | Then |
//! |---|---|---|
//! | a body | `client.frame_bytes_max` | 413 |
//! | the time for a body | [`BODY_TIMEOUT`] | 408 |
//! | bytes of all bodies that are being read, or that the edge has not taken | [`BODIES_BYTES_MAX`], of one network half of it | 503, and counted |

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use tidings_config::Config;
use tidings_edge::{ClientNetwork, Edge};
use tidings_telemetry::memory::Term;
use tidings_telemetry::panics::lock;
use tidings_telemetry::{Counter, Registry, metrics};
use tidings_types::Transport;
use tokio::time::timeout;

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of bodies of all requests that are being read, or that the edge has not taken: a thousand of 64 KiB.
const BODIES_BYTES_MAX: usize = 64 << 20;
/// A buffer that grows may have twice the room that it needs.
const GROWTH: usize = 2;

/// What bodies of requests may take.
pub(super) fn memory_terms() -> Vec<Term> {
    vec![Term::peak("bodies of clients", GROWTH, BODIES_BYTES_MAX, "fixed")]
}

/// What requests of clients need.
struct Clients {
    edge: Arc<Edge>,
    bodies: Bodies,
}

pub(super) fn router(edge: Arc<Edge>, config: &Config, registry: &Registry) -> Router {
    let (client, header) = (&config.client, config.apps.address_header.clone());
    let websocket = |transport| get(move |edge, request| upgrade(transport, edge, request));
    let mut router = Router::new().route("/connection/websocket", websocket(Transport::WebSocket));
    if client.uni_websocket {
        router = router.route("/connection/uni_websocket", websocket(Transport::UniWebSocket));
    }
    let streams = [
        (client.sse, "/connection/sse", Transport::Sse),
        (client.http_stream, "/connection/http_stream", Transport::HttpStream),
        (client.uni_sse, "/connection/uni_sse", Transport::UniSse),
        (client.uni_http_stream, "/connection/uni_http_stream", Transport::UniHttpStream),
    ];
    for (_, path, transport) in streams.into_iter().filter(|(is_on, ..)| *is_on) {
        router = router.route(path, any(move |edge, request| stream(transport, edge, request)));
    }
    if client.sse || client.http_stream {
        router = router.route("/emulation", any(emulate));
    }
    let with_network = from_fn(move |mut request: Request, next: Next| {
        if let Some(network) = tidings_api::network_of(&request, header.as_ref()) {
            request.extensions_mut().insert(ClientNetwork(network));
        }
        next.run(request)
    });
    let bodies = Bodies::new(BODIES_BYTES_MAX, registry);
    router.layer(with_network).with_state(Arc::new(Clients { edge, bodies }))
}

async fn upgrade(transport: Transport, State(clients): State<Arc<Clients>>, mut request: Request) -> Response {
    match clients.edge.upgrade(transport, &mut request) {
        Ok(response) => response.map(|()| Body::empty()),
        Err(error) => (error.status(), error.to_string()).into_response(),
    }
}

async fn stream(transport: Transport, State(clients): State<Arc<Clients>>, request: Request) -> Response {
    let Clients { edge, bodies } = &*clients;
    match bodies.read(request, edge.body_bytes_max()).await {
        Ok((request, _held)) => edge.stream(transport, request).await.map(Body::from),
        Err(status) => status.into_response(),
    }
}

async fn emulate(State(clients): State<Arc<Clients>>, request: Request) -> Response {
    let Clients { edge, bodies } = &*clients;
    match bodies.read(request, edge.body_bytes_max()).await {
        Ok((request, _held)) => edge.emulate(&request).await.map(Body::from),
        Err(status) => status.into_response(),
    }
}

/// The bytes of all bodies. Bound of the map: a network is in it while it has bodies.
#[derive(Debug)]
struct Bodies {
    held: Mutex<HeldBytes>,
    bytes_max: usize,
    refused: Counter,
}

#[derive(Debug, Default, PartialEq)]
struct HeldBytes {
    all: usize,
    of_networks: HashMap<Option<IpAddr>, usize>,
}

impl Bodies {
    fn new(bytes_max: usize, registry: &Registry) -> Self {
        let refused = registry.counter(&metrics::http::REFUSED_TOTAL, &["bodies"]);
        Self { held: Mutex::default(), bytes_max, refused }
    }

    /// The request with its whole body of at most `bytes_max`, and the room that the body takes.
    async fn read(&self, request: Request, bytes_max: usize) -> Result<(http::Request<Bytes>, Held<'_>), StatusCode> {
        let (head, body) = request.into_parts();
        let network = head.extensions.get().map(|ClientNetwork(network)| *network);
        let mut held = Held { bodies: self, network, bytes: 0 };
        let body = timeout(BODY_TIMEOUT, whole(body, bytes_max, &mut held)).await;
        let body = body.map_err(|_| StatusCode::REQUEST_TIMEOUT)??;
        Ok((http::Request::from_parts(head, body), held))
    }
}

async fn whole(body: Body, bytes_max: usize, held: &mut Held<'_>) -> Result<Bytes, StatusCode> {
    let (mut parts, mut whole) = (body.into_data_stream(), BytesMut::new());
    // Whoever breaks off reads no answer.
    while let Some(part) = parts.try_next().await.map_err(|_| StatusCode::BAD_REQUEST)? {
        if part.len() > bytes_max - whole.len() {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        held.grow(part.len())?;
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// What one body takes of them. Dropped: it is free again.
struct Held<'b> {
    bodies: &'b Bodies,
    network: Option<IpAddr>,
    bytes: usize,
}

impl Held<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), StatusCode> {
        let Bodies { held, bytes_max, refused } = self.bodies;
        let is_full = {
            let held = &mut *lock(held);
            let of_network = held.of_networks.entry(self.network).or_default();
            (held.all, *of_network) = (held.all + bytes, *of_network + bytes);
            held.all > *bytes_max || *of_network > bytes_max / 2
        };
        self.bytes += bytes;
        if is_full {
            refused.inc();
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = lock(&self.bodies.held);
        held.all -= self.bytes;
        if let Some(of_network) = held.of_networks.get_mut(&self.network) {
            *of_network -= self.bytes;
            if *of_network == 0 {
                held.of_networks.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, stream};

    use super::*;

    fn request(body: Body) -> Request {
        Request::new(body)
    }

    /// A body that never ends: these bytes, then nothing.
    fn endless(bytes: usize) -> Request {
        let begin = stream::iter([Ok::<_, std::io::Error>(vec![0; bytes])]);
        request(Body::from_stream(begin.chain(stream::pending())))
    }

    /// The same, from this network.
    fn of_network(network: u8, mut request: Request) -> Request {
        request.extensions_mut().insert(ClientNetwork([10, 0, 0, network].into()));
        request
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_do_not_end_have_one_bound_and_their_room_comes_back() {
        let registry = Registry::new();
        let bodies = Bodies::new(120, &registry);
        let refusal = async |network, bytes| {
            bodies.read(of_network(network, request(Body::from(vec![7; bytes]))), 80).await.err()
        };
        let full = Some(StatusCode::SERVICE_UNAVAILABLE);
        let mut first = Box::pin(bodies.read(of_network(1, endless(60)), 80));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!((refusal(1, 1).await, refusal(2, 60).await), (full, None), "a network has half of it");

        let mut second = Box::pin(bodies.read(of_network(2, endless(50)), 80));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!((refusal(3, 10).await, refusal(3, 11).await), (None, full));
        assert_eq!(registry.counter(&metrics::http::REFUSED_TOTAL, &["bodies"]).value(), 2);

        drop(second); // Its client has left.
        let (taken, held) = bodies.read(of_network(3, request(Body::from(vec![7; 60]))), 80).await.unwrap();
        assert_eq!(taken.into_body(), vec![7; 60]);
        assert_eq!(refusal(4, 1).await, full, "the edge has not taken it yet");
        drop(held);
        assert_eq!(first.await.err(), Some(StatusCode::REQUEST_TIMEOUT)); // The clock runs while nothing else does.
        assert_eq!(bodies.held.into_inner().unwrap(), HeldBytes::default());
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused() {
        let bodies = Bodies::new(1000, &Registry::new());
        let sizes = [(80, None), (81, Some(StatusCode::PAYLOAD_TOO_LARGE))];
        for (bytes, refusal) in sizes {
            let at_once = request(Body::from(vec![0; bytes]));
            assert_eq!(bodies.read(at_once, 80).await.err(), refusal, "{bytes} at once");
            let in_parts = Body::from_stream(stream::iter((0..bytes).map(|_| Ok::<_, std::io::Error>("x"))));
            assert_eq!(bodies.read(request(in_parts), 80).await.err(), refusal, "{bytes} in parts");
        }
    }
}
