//! The metrics of the API: requests by route and status, the time until events are accepted, errors of `/api`.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::StatusCode;
use tidings_telemetry::metrics::api as table;
use tidings_telemetry::{Counter, Histogram, Registry};
use tidings_types::TraceContext;

/// The statuses that the API answers with; any other status is counted as `other`.
const STATUSES: [u16; 18] = [200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 429, 500, 503];

/// The instruments of one route. A series appears with its first request.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    registry: Registry,
    route: &'static str,
    requests: [OnceLock<Counter>; STATUSES.len() + 1],
    /// Only for the route that accepts events.
    accepted: Option<Histogram>,
}

impl RouteMetrics {
    pub(crate) fn new(registry: &Registry, route: &'static str) -> Self {
        Self { registry: registry.clone(), route, requests: Default::default(), accepted: None }
    }

    pub(crate) fn of_events(registry: &Registry, route: &'static str) -> Self {
        let accepted = registry.histogram(&table::ACCEPT_SECONDS, &[]);
        Self { accepted: Some(accepted), ..Self::new(registry, route) }
    }

    /// `trace` is the trace of an event that the request brought.
    pub(crate) fn record(&self, status: StatusCode, elapsed: Duration, trace: Option<&TraceContext>) {
        let index = STATUSES.iter().position(|known| *known == status.as_u16());
        let text = if index.is_some() { status.as_str() } else { "other" };
        let of_status = || self.registry.counter(&table::REQUESTS_TOTAL, &[self.route, text]);
        let counter = self.requests[index.unwrap_or(STATUSES.len())].get_or_init(of_status);
        counter.inc();
        if let Some(accepted) = self.accepted.as_ref().filter(|_| status == StatusCode::ACCEPTED) {
            accepted.record_in(elapsed, 1, trace);
        }
    }
}
