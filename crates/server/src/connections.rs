//! Where clients connect: the routes of each transport, and of the commands that come in requests of their own.
//!
//! Only a WebSocket is always there; settings of `[client]` with the names of the routes add the others. The edge answers.
//! Here the bodies are read, which are small.
//!
//! | What | Limit | Then |
//! |---|---|---|
//! | a body | `client.frame_bytes_max` | 413 |
//! | the time for a body | [`BODY_TIMEOUT`] | 408 |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use tidings_config::Config;
use tidings_edge::{ClientNetwork, Edge};
use tidings_types::Transport;
use tokio::time::timeout;

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn router(edge: Arc<Edge>, config: &Config) -> Router {
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
    router.layer(with_network).with_state(edge)
}

async fn upgrade(transport: Transport, State(edge): State<Arc<Edge>>, mut request: Request) -> Response {
    match edge.upgrade(transport, &mut request) {
        Ok(response) => response.map(|()| Body::empty()),
        Err(error) => (error.status(), error.to_string()).into_response(),
    }
}

async fn stream(transport: Transport, State(edge): State<Arc<Edge>>, request: Request) -> Response {
    match read(request, edge.body_bytes_max()).await {
        Ok(request) => edge.stream(transport, request).await.map(Body::from),
        Err(status) => status.into_response(),
    }
}

async fn emulate(State(edge): State<Arc<Edge>>, request: Request) -> Response {
    match read(request, edge.body_bytes_max()).await {
        Ok(request) => edge.emulate(&request).await.map(Body::from),
        Err(status) => status.into_response(),
    }
}

/// The request with its whole body.
async fn read(request: Request, bytes_max: usize) -> Result<http::Request<Bytes>, StatusCode> {
    let (head, body) = request.into_parts();
    let body = timeout(BODY_TIMEOUT, to_bytes(body, bytes_max)).await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
    // A body that broke off is answered to nobody, so the only other error is a body that is too large.
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    Ok(http::Request::from_parts(head, body))
}
