//! Sends spans to an OpenTelemetry collector: OTLP over HTTP, in Protobuf, over our own client.
//!
//! Once a second, and when the server stops, what has been recorded is sent in requests of [`BATCH_COUNT_MAX`] spans, one
//! after the other. Spans of a request that the collector does not take are lost and counted: a collector that is down
//! must not cost memory. The log says so once, and once when spans are taken again. Nobody waits for any of this.
//!
//! Bounds: the tracer's queue, and one request.

use std::time::Duration;

use axum::http::StatusCode;
use tidings_config::{Config, Traces, WebUrl};
use tidings_http1::{Client, ClientConfig, Limits, Request, SendError};
use tidings_telemetry::trace::{Span, Tracer, Value, dropped, otlp};
use tidings_telemetry::{Counter, Registry, chain};
use tidings_types::TraceContext;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use super::error::ServeError;
use super::outgoing;

const INTERVAL: Duration = Duration::from_secs(1);
const BATCH_COUNT_MAX: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Only the status of an answer counts.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The running exporter. A drop aborts it.
pub(super) struct Tracing {
    tracer: Tracer,
    stop: watch::Sender<Option<Instant>>,
    task: JoinSet<()>,
}

impl Tracing {
    /// Begins to connect to the collector. `None`: there is none.
    ///
    /// # Errors
    /// If the certificates to trust cannot be read, or the client refuses its settings.
    pub(super) fn start(config: &Config, node: &str, registry: &Registry) -> Result<Option<Self>, ServeError> {
        let traces = &config.traces;
        let Some(endpoint) = &traces.endpoint else { return Ok(None) };
        let roots = outgoing::roots(traces.ca_file.as_deref()).map_err(ServeError::Traces)?;
        let limits = Limits { head_bytes_max: 16 << 10, body_bytes_max: ANSWER_BYTES_MAX };
        let mut client = ClientConfig { limits, skip_large_bodies: true, roots, ..ClientConfig::new("traces", 1) };
        (client.pool.silence_max, client.pool.connect_timeout) = (TIMEOUT, TIMEOUT);
        let client = Client::start(&endpoint.origin, client).map_err(|error| ServeError::Traces(error.into()))?;
        let tracer = Tracer::new(traces.ratio.millionths, registry);
        let (stop, stopped) = watch::channel(None);
        let exporter = Exporter {
            client,
            request: request(endpoint, traces),
            resource: vec![
                ("service.name", Value::from("tidings")),
                ("service.version", Value::from(env!("CARGO_PKG_VERSION"))),
                ("service.instance.id", Value::from(node)),
            ],
            tracer: tracer.clone(),
            refused: dropped(registry, "refused"),
            is_failing: false,
        };
        let mut task = JoinSet::new();
        task.spawn(exporter.run(stopped));
        info!(collector = %endpoint.origin, "Sending traces");
        Ok(Some(Self { tracer, stop, task }))
    }

    pub(super) fn tracer(&self) -> Tracer {
        self.tracer.clone()
    }

    /// Sends what is left, until `deadline`.
    ///
    /// # Cancel safety
    /// Not cancel safe: what is left is lost.
    pub(super) async fn stop(mut self, deadline: Instant) {
        self.stop.send_replace(Some(deadline));
        let _ = timeout_at(deadline, self.task.join_next()).await; // What is late is lost.
    }
}

struct Exporter {
    client: Client,
    /// Without its body.
    request: Request,
    resource: Vec<(&'static str, Value)>,
    tracer: Tracer,
    refused: Counter,
    /// The log has said that spans are lost.
    is_failing: bool,
}

impl Exporter {
    async fn run(mut self, mut stopped: watch::Receiver<Option<Instant>>) {
        loop {
            tokio::select! {
                _ = stopped.changed() => break,
                () = sleep(INTERVAL) => self.send().await,
            }
        }
        self.send().await;
    }

    async fn send(&mut self) {
        loop {
            let spans = self.tracer.take(BATCH_COUNT_MAX);
            if spans.is_empty() {
                return;
            }
            self.send_batch(&spans).await;
        }
    }

    async fn send_batch(&mut self, spans: &[Span]) {
        let body = otlp::encode(&self.resource, spans);
        let answer = self.client.send(self.request.clone().body(body).repeat(true), TIMEOUT).await;
        let status = answer.map(|answer| answer.status());
        let is_taken = status.as_ref().is_ok_and(StatusCode::is_success);
        if !is_taken {
            self.refused.add(spans.len() as u64);
            self.client.reconnect(); // The next batch does not wait for the end of a pause.
        }
        self.log(is_taken, &status);
    }

    fn log(&mut self, is_taken: bool, status: &Result<StatusCode, SendError>) {
        match (std::mem::replace(&mut self.is_failing, !is_taken), status) {
            (true, Ok(_)) if is_taken => info!("Traces are sent again"),
            (false, Ok(status)) if !is_taken => {
                warn!(code = status.as_u16(), "The collector refuses traces, they are lost")
            }
            (false, Err(error)) => warn!(error = chain(error), "The collector does not answer, traces are lost"),
            _ => {}
        }
    }
}

fn request(endpoint: &WebUrl, traces: &Traces) -> Request {
    let fixed =
        [("content-type", "application/x-protobuf"), ("user-agent", concat!("tidings/", env!("CARGO_PKG_VERSION")))];
    let stated = traces.headers.iter().map(|header| (header.name.as_str(), header.value.as_str()));
    let request = Request::post(&endpoint.target).expect("the target was checked with the address");
    let request =
        fixed.into_iter().chain(stated).try_fold(request, |request, (name, value)| request.header(name, value));
    request.expect("headers were checked with the configuration")
}

/// Adds the headers by which the receiver knows in which trace it is called.
pub(super) fn traced(request: Request, trace: &TraceContext) -> Request {
    let request = request.header("traceparent", trace.to_string()).expect("it is plain text");
    match &trace.state {
        Some(state) => request.header("tracestate", state.as_bytes()).expect("it is plain text"),
        None => request,
    }
}
