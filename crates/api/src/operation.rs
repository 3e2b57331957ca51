//! Routes for operators: whether the process works, whether it is ready for requests, and its metrics.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tidings_store::Store;
use tidings_telemetry::{Exposition, Registry};

use crate::audited::Audited;
use crate::auth::{ApiKeys, Scope};
use crate::format::prefers_open_metrics;
use crate::guard::{Dialect, Guard, guard};
use crate::metrics::RouteMetrics;
use crate::problem::json;
use crate::readiness::{Readiness, ReadyListener, ReadyProvider};

/// `GET /health`, for supervisors: the process answers. It needs no key and checks nothing else, so that no supervisor
/// restarts a server because of a problem with its disk or a provider.
///
/// `faults` names what the server works without, or with an earlier version of: `texts`.
pub fn health_router(faults: impl Fn() -> Vec<&'static str> + Clone + Send + Sync + 'static) -> Router {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        faults: Vec<&'static str>,
    }
    let health = async move || json(StatusCode::OK, &Health { status: "ok", faults: faults() });
    Router::new().route("/health", get(health))
}

/// `GET /ready`, for load balancers: whether requests should be sent to this server. It is 503 while the store refuses
/// writes and while the server stops. While the server starts, nothing listens yet. A provider that is down is shown,
/// but is no reason for 503: other servers would not reach it better. The listener of the API shows the parts; with
/// `tells_parts: false` only the status is shown.
pub fn ready_router(
    store: Store,
    tells_parts: bool,
    readiness: impl Fn() -> Readiness + Send + Sync + 'static,
) -> Router {
    let readiness = Arc::new(readiness);
    let ready = async move || ready(store.is_open(), &readiness(), tells_parts);
    Router::new().route("/ready", get(ready))
}

fn ready(is_store_open: bool, readiness: &Readiness, tells_parts: bool) -> Response {
    #[derive(Serialize)]
    struct Ready<'a> {
        status: &'static str,
        #[serde(flatten)]
        parts: Option<Parts<'a>>,
    }
    #[derive(Serialize)]
    struct Parts<'a> {
        store: StorePart,
        listeners: &'a [ReadyListener],
        providers: &'a [ReadyProvider],
    }
    #[derive(Serialize)]
    struct StorePart {
        status: &'static str,
    }
    let Readiness { is_stopping, listeners, providers } = readiness;
    let (code, status) = if *is_stopping {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if !is_store_open {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    } else if providers.iter().any(|provider| !provider.status.is_well()) {
        (StatusCode::OK, "degraded")
    } else {
        (StatusCode::OK, "ready")
    };
    let store = StorePart { status: if is_store_open { "ok" } else { "refuses_writes" } };
    json(code, &Ready { status, parts: tells_parts.then_some(Parts { store, listeners, providers }) })
}

/// `GET /metrics` as OpenMetrics if the caller prefers it, else in the Prometheus text format, for keys with [`Scope::Metrics`]. It also works when the API is
/// overloaded.
pub fn metrics_router(registry: Registry, keys: ApiKeys) -> Router {
    let metrics = Arc::new(RouteMetrics::new(&registry, "GET /metrics"));
    let (scope, dialect, audited) = (Some(Scope::Metrics), Dialect::Tidings, Audited::Not("reads only"));
    let guarded =
        Guard { keys, key_rate: None, gate: None, scope, dialect, places: None, metrics, audit: None, audited };
    let scrape = async move |headers: HeaderMap| -> Response {
        let format = if prefers_open_metrics(&headers) { Exposition::OpenMetrics } else { Exposition::Text };
        let about = [(CONTENT_TYPE, format.content_type()), (VARY, "accept")];
        (about, registry.exposed(format)).into_response()
    };
    Router::new().route("/metrics", get(scrape).route_layer(from_fn_with_state(guarded, guard)))
}
