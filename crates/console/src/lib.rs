//! The console: web pages on which operators see what happens, and act.
//!
//! ```text
//!   browser ──► console ──► HTTP API (inside the process) ──► hub, store, sender
//!                  └──────► registry of metrics: samples of the last hour
//! ```
//!
//! Every page is a view of answers of the API, and the same address gives these answers as JSON (`Accept:
//! application/json`, or `?format=json`). So the console can show and do nothing that the API does not allow its caller: the
//! scopes, limits and checks are those of the caller's API key. Pages work without script. The only state is who is logged in
//! (`sessions`) and the last hour in numbers (`samples`).
//!
//! Not here: the listener, TLS, and what a key may do.
//!
//! Bounds: sessions and samples (see there); [`FORM_BYTES_MAX`] of a form; a minute for a request; requests in work are those of the API.

mod actions;
mod answers;
mod assets;
mod config;
mod html;
mod login;
mod pages;
mod ports;
mod samples;
mod sessions;
mod visit;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, Request};
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tidings_telemetry::Registry;
use tidings_telemetry::panics::{self, Work};
use tokio::time::timeout;

use self::samples::Samples;
use self::sessions::{Sessions, random};
use self::visit::{Shared, Visit};

pub use self::config::ConsoleConfig;
pub use self::ports::{Answer, AnswerFuture, Api, Caller, Role};

/// The most bytes of a form.
pub const FORM_BYTES_MAX: usize = 64 << 10;
/// How long a request may take, its form included. The API has shorter limits for what it does.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The console.
pub struct Console(Arc<Shared>);

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Console {
    /// A console over this API and the metrics of this registry.
    #[must_use]
    pub fn new(config: ConsoleConfig, api: Arc<dyn Api>, registry: Registry) -> Self {
        Self(Arc::new(Shared {
            api,
            samples: Samples::new(registry),
            sessions: Sessions::new(config.session_count_max, config.session_ttl, config.session_idle),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &random::<32>()),
            config,
        }))
    }

    /// Takes samples until it is dropped.
    pub fn sampling(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = self.0.clone();
        async move { shared.samples.run().await }
    }

    /// All pages, below `/console`.
    pub fn router(&self) -> Router {
        let pages = pages::router().merge(actions::router());
        pages
            .route("/console/login", get(login::page).post(login::log_in))
            .route("/console/logout", post(login::log_out))
            .route("/console/samples", get(samples))
            .route("/console/assets/{name}", get(asset))
            .route("/console/", get(async || answers::see("/console")))
            .route("/console/{*rest}", get(async || answers::refused(StatusCode::NOT_FOUND, "There is no such page.")))
            .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
            .layer(from_fn(guarded))
            .with_state(self.0.clone())
    }
}

/// Bounds the time of a request and what a panic costs, and adds the headers of every answer; an answer's own caching stays.
async fn guarded(request: Request, next: Next) -> Response {
    let answering = panics::catch_async(Work::Request, next.run(request));
    let mut response = match timeout(REQUEST_TIMEOUT, answering).await {
        Ok(Ok(response)) => response,
        Ok(Err(_panicked)) => {
            let told = "A bug of the server ended this request. The server's log says where.";
            answers::refused(StatusCode::INTERNAL_SERVER_ERROR, told)
        }
        Err(_) => answers::refused(StatusCode::REQUEST_TIMEOUT, "This took too long, so it was given up."),
    };
    for (name, value) in answers::headers() {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// The last hour for the charts.
async fn samples(visit: Visit) -> Response {
    answers::json(StatusCode::OK, &visit.shared.samples.chart())
}

async fn asset(Path(name): Path<String>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let Some(asset) = assets::asset(&name) else {
        return answers::refused(StatusCode::NOT_FOUND, "There is no such file.");
    };
    // Only the address with the right hash says what the file is for good.
    let is_for_good = query.as_deref() == Some(asset.tag.as_str());
    let caching = if is_for_good { "public, max-age=31536000, immutable" } else { "no-cache" };
    let head = [
        (CONTENT_TYPE, HeaderValue::from_static(asset.media)),
        (CACHE_CONTROL, HeaderValue::from_static(caching)),
        (VARY, HeaderValue::from_static("Accept-Encoding")),
    ];
    let takes_gzip = headers.get(ACCEPT_ENCODING).is_some_and(|all| all.to_str().is_ok_and(|all| all.contains("gzip")));
    if takes_gzip {
        return (head, [(CONTENT_ENCODING, HeaderValue::from_static("gzip"))], asset.packed.clone()).into_response();
    }
    (head, asset.bytes).into_response()
}
