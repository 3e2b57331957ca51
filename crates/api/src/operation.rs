//! What those who operate the server ask: is it well, and what does it measure.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tidings_store::Store;
use tidings_telemetry::Registry;

use crate::auth::{ApiKeys, Scope};
use crate::guard::{Dialect, Guard, guard};
use crate::metrics::RouteMetrics;
use crate::problem::json;

/// `GET /health`, for load balancers and supervisors; asks for no key and tells nothing that needs one. 503 while the
/// store cannot work: the server then accepts nothing, though connections live on.
pub fn health_router(store: Store) -> Router {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        store: Option<String>,
    }
    let health = async move || match store.dispatched() {
        Ok(_) => json(StatusCode::OK, &Health { status: "ok", store: None }),
        Err(error) => {
            json(StatusCode::SERVICE_UNAVAILABLE, &Health { status: "unavailable", store: Some(error.to_string()) })
        }
    };
    Router::new().route("/health", get(health))
}

/// `GET /metrics` in the Prometheus text format, for keys with [`Scope::Metrics`]; also when the API is at its bounds.
pub fn metrics_router(registry: Registry, keys: ApiKeys) -> Router {
    let metrics = Arc::new(RouteMetrics::new(&registry, "GET /metrics"));
    let (scope, dialect) = (Some(Scope::Metrics), Dialect::Tidings);
    let guarded = Guard { keys, key_rate: None, gate: None, scope, dialect, places: None, metrics };
    let scrape = async move || -> Response {
        let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        ([(CONTENT_TYPE, format)], registry.prometheus()).into_response()
    };
    Router::new().route("/metrics", get(scrape).route_layer(from_fn_with_state(guarded, guard)))
}
