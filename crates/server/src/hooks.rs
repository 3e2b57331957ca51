//! Asks the user's back end: hooks, over HTTP. What is asked and what an answer means is in `tidings_protocol`.
//!
//! ```text
//! edge ── call ──► place? ──► breaker? ──► permit ──► POST ──► back end
//!                    │ none      │ open       │ none in time
//!                    ▼           ▼            ▼
//!                error 111   error 100    error 111
//! ```
//!
//! A call fails with error 100 if the answer does not come in `timeout`, is larger than `answer_bytes_max`, has a status
//! other than 200 without a meaning in `statuses`, or is not an answer. The address is the configured one, whatever
//! clients send.
//!
//! **Down.** Three calls in a row without an answer (or with 502, 503 or 504, from a proxy in front of the back end) open
//! the hook's breaker. Then calls fail at once, except one probe after each pause of 0.5 to 5 s. The first answer closes
//! the breaker.
//!
//! **Signed.** If the hook has a signing secret, each call is signed as the Standard Webhooks specification says. These
//! secrets and the static headers are replaced by [`Hooks::reload`].
//!
//! **Twice.** If a connection breaks before the answer, questions whether something is allowed are asked again on
//! another connection. An RPC and a publication are not repeated, because they may have been performed.
//!
//! **Bounds** of each hook: `in_flight_max` calls in flight, each alone on its connection; `waiting_max` calls that wait
//! for one of them to end, each as long as its `timeout` allows. Waiting calls are served in turn by network, user and connection
//! ([`Gate`]). With a further call one is refused with error 111: the last one of those who ask for most. A call whose client has
//! gone is dropped.

mod metrics;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use tidings_config::{self as config, Config, WebhookKeys};
use tidings_edge::shares::{Asker, Gate};
use tidings_edge::{COMMAND_BYTES, HookFuture};
use tidings_http1::{Client, ClientConfig, Limits, Request, Response, SendError};
use tidings_pool::Reconnect;
use tidings_protocol::{AppError, ErrorCode, HOOK_HEADER_BYTES_MAX, HookAnswer, HookCall};
use tidings_push::pacing::Breaker;
use tidings_telemetry::memory::Term;
use tidings_telemetry::panics::lock;
use tidings_telemetry::trace::{Kind, Span, Tracer};
use tidings_telemetry::{Registry, chain, unix_nanos, unix_now};
use tidings_types::TraceContext;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use self::metrics::{Metrics, Outcome};
use super::error::ServeError;
use super::outgoing::{self, OutgoingError, Said};
use super::traces::traced;

/// The largest head of an answer.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The longest pause of a breaker: so long a back end that is up again may still be taken for one that is down.
const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause before a connection is made anew.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// A call in flight, except question and body of the answer: what is read, and the answer's head.
const CALL_BYTES: usize = 64 << 10;

/// What calls that wait or are in flight, and the headers that are kept for them, may take.
pub(super) fn memory_terms(config: &Config) -> Vec<Term> {
    let question = config.client.frame_bytes_max.as_usize() + COMMAND_BYTES; // The command waits for the answer.
    let calls = |hook: &config::Hook| {
        let in_flight = CALL_BYTES + question + 2 * hook.answer_bytes_max.as_usize();
        hook.in_flight_max * in_flight + hook.waiting_max * question
    };
    let (mut terms, connections) = (Vec::new(), config.client.connection_count_max);
    if !config.hooks.is_empty() {
        let bytes = config.hooks.values().map(calls).sum();
        terms.push(Term::peak("calls of hooks", 1, bytes, "hooks.*, client.frame_bytes_max"));
    }
    if config.hooks.values().any(|hook| !hook.client_headers.is_empty()) {
        let settings = "hooks.*.client_headers, client.connection_count_max";
        terms.push(Term::peak("headers for hooks", connections, HOOK_HEADER_BYTES_MAX, settings));
    }
    terms
}

/// All hooks, in the order of their names.
pub(super) struct Hooks(Vec<Arc<Hook>>);

impl Hooks {
    /// Begins to connect to every hook.
    ///
    /// # Errors
    /// If certificates to trust cannot be read, or a client refuses its settings.
    pub(super) fn start(config: &Config, tracer: Option<&Tracer>, registry: &Registry) -> Result<Self, ServeError> {
        let start = |(name, hook): (&String, &config::Hook)| {
            let started = Hook::start(name, hook, tracer.cloned(), registry);
            started.map(Arc::new).map_err(|source| ServeError::Hook { name: name.clone(), source })
        };
        config.hooks.iter().map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Takes over the static headers and the signing secrets of this configuration. Nothing else of it is taken.
    pub(super) fn reload(&self, config: &Config) {
        for hook in &self.0 {
            match config.hooks.get(&hook.name) {
                Some(new) if new.url == hook.url => {
                    *lock(&hook.credentials) = Arc::new(Credentials::new(new));
                    info!(hook = hook.name, "Hook credentials reloaded");
                }
                _ => {
                    error!(hook = hook.name, "Hook has another address or none, the old one is used until a restart");
                }
            }
        }
    }
}

impl tidings_edge::Hooks for Hooks {
    fn call(&self, call: HookCall, asker: Asker) -> HookFuture {
        let hook = self.0[usize::from(call.hook.0)].clone();
        Box::pin(async move { hook.ask(&call, &asker).await })
    }
}

struct Hook {
    name: String,
    client: Client,
    url: config::WebUrl,
    credentials: Mutex<Arc<Credentials>>,
    timeout: Duration,
    /// In lower case.
    client_headers: Vec<String>,
    include_meta: bool,
    statuses: Vec<config::HookStatus>,
    /// For calls in flight.
    gate: Arc<Gate>,
    health: Mutex<Health>,
    metrics: Metrics,
    /// `None`: calls are in no trace.
    tracer: Option<Tracer>,
}

/// What shows the back end who asks.
struct Credentials {
    /// The request, except its body, its signature and the client's headers.
    request: Request,
    /// The names of the static headers: a client cannot set them.
    ours: Vec<String>,
    keys: Option<WebhookKeys>,
}

impl Credentials {
    fn new(config: &config::Hook) -> Self {
        Self {
            request: request(config),
            ours: config.static_headers.iter().map(|header| header.name.as_str().to_owned()).collect(),
            keys: outgoing::keys(config.signing_secret.as_ref(), config.previous_signing_secret.as_ref()),
        }
    }
}

struct Health {
    breaker: Breaker,
    /// The log has said that the hook fails, and not yet that it answers again.
    is_failing: bool,
    failed: Said,
}

impl Hook {
    fn start(
        name: &str,
        config: &config::Hook,
        tracer: Option<Tracer>,
        registry: &Registry,
    ) -> Result<Self, OutgoingError> {
        let client = Client::start(&config.url.origin, client_config(name, config)?)?;
        info!(hook = name, backend = %config.url.origin, "Asking a hook");
        let breaker = Breaker::capped(BREAKER_PAUSE_MAX);
        Ok(Self {
            name: name.to_owned(),
            client,
            url: config.url.clone(),
            credentials: Mutex::new(Arc::new(Credentials::new(config))),
            timeout: config.timeout,
            client_headers: config.client_headers.iter().map(|name| name.as_str().to_owned()).collect(),
            include_meta: config.include_meta,
            statuses: config.statuses.clone(),
            gate: Gate::new(config.in_flight_max, config.waiting_max),
            health: Mutex::new(Health { breaker, is_failing: false, failed: Said::default() }),
            metrics: Metrics::new(name, registry),
            tracer,
        })
    }

    async fn ask(&self, call: &HookCall, asker: &Asker) -> HookAnswer {
        let deadline = Instant::now() + self.timeout;
        let refuse = |outcome, code| {
            self.metrics.count(outcome);
            HookAnswer::Failed(code)
        };
        let Ok(Some(_pass)) = timeout_at(deadline, self.gate.enter(asker)).await else {
            return refuse(Outcome::Busy, ErrorCode::TooManyRequests);
        };
        if !lock(&self.health).breaker.admits(unix_now()) {
            return refuse(Outcome::Open, ErrorCode::Internal);
        }
        let mut attempt = Attempt::begin(self);
        attempt.trace = self.tracer.as_ref().and_then(|tracer| tracer.begin(None));
        let (trace, began) = (attempt.trace.clone(), unix_nanos());
        let left = deadline.saturating_duration_since(Instant::now());
        let sent = self.client.send(self.request(call, trace.as_ref()), left).await;
        let (outcome, answer) = self.judge(&sent);
        if let (Some(tracer), Some(trace)) = (&self.tracer, &trace) {
            let span = Span::within(trace, trace.span, "hook", began).with("hook", self.name.as_str());
            let span = span.with("outcome", outcome.name());
            tracer.record(Span { kind: Kind::Client, parent: None, has_failed: outcome.is_failure(), ..span });
        }
        self.log(outcome, sent.as_ref().map(Response::status));
        attempt.end(outcome);
        answer
    }

    /// A traceparent that the client may send goes before ours.
    fn request(&self, call: &HookCall, trace: Option<&TraceContext>) -> Request {
        let body = call.body(self.include_meta);
        let credentials = lock(&self.credentials).clone();
        let sent = call.headers.iter().flat_map(|headers| headers.iter());
        let wanted = sent.filter(|(name, value)| {
            let is_named = |names: &[String]| names.iter().any(|known| **known == **name);
            is_named(&self.client_headers) && !is_named(&credentials.ours) && HeaderValue::from_str(value).is_ok()
        });
        let add = |request: Request, (name, value): &(Box<str>, Box<str>)| request.header(name, value.as_bytes());
        let request = wanted.into_iter().try_fold(credentials.request.clone(), add);
        let mut request = request.expect("names and values were checked");
        if let Some(trace) = trace.filter(|_| !self.client_headers.iter().any(|name| name == "traceparent")) {
            request = traced(request, trace);
        }
        if let Some(keys) = &credentials.keys {
            let id = format!("hook_{:032x}", rand::random::<u128>());
            request = outgoing::signed(request, &id, &body, keys, unix_now());
        }
        request.body(body).repeat(call.question.may_repeat())
    }

    fn judge(&self, sent: &Result<Response, SendError>) -> (Outcome, HookAnswer) {
        let (outcome, answer) = match sent {
            Ok(response) if response.status() == StatusCode::OK => match HookAnswer::read(response.body()) {
                Some(answer) => (Outcome::of(&answer), Some(answer)),
                None => (Outcome::Invalid, None),
            },
            Ok(response) => {
                let code = response.status().as_u16();
                let meaning = self.statuses.iter().find(|status| status.status == code).map(meaning);
                let outcome = match &meaning {
                    Some(answer) => Outcome::of(answer),
                    None if matches!(code, 502..=504) => Outcome::Down,
                    None => Outcome::Status,
                };
                (outcome, meaning)
            }
            Err(SendError::Timeout { .. }) => (Outcome::Timeout, None),
            Err(_) => (Outcome::Down, None),
        };
        (outcome, answer.unwrap_or(HookAnswer::Failed(ErrorCode::Internal)))
    }

    /// Logs when the hook begins to fail and when it answers again. For a hook that fails now and then, the rate of log
    /// lines is limited.
    fn log(&self, outcome: Outcome, result: Result<StatusCode, &SendError>) {
        let health = &mut *lock(&self.health);
        let (hook, is_failing) = (&self.name, std::mem::replace(&mut health.is_failing, outcome.is_failure()));
        match (is_failing, outcome.is_failure()) {
            (true, false) => info!(hook, "Hook answers again"),
            (false, true) => {
                let Some(held_back) = health.failed.next(Instant::now()) else {
                    health.is_failing = false;
                    return;
                };
                let reason = outcome.name();
                match result {
                    Ok(code) => {
                        warn!(hook, reason, code = code.as_u16(), held_back, "Hook fails, clients get error 100")
                    }
                    Err(error) => {
                        let error = chain(error);
                        warn!(hook, reason, error, held_back, "Hook fails, clients get error 100");
                    }
                }
            }
            _ => {}
        }
    }
}

/// A call in flight. It is counted even if its client leaves and the future is dropped.
struct Attempt<'a> {
    hook: &'a Hook,
    began: Instant,
    /// Its own, if it is in one.
    trace: Option<TraceContext>,
    outcome: Outcome,
}

impl<'a> Attempt<'a> {
    fn begin(hook: &'a Hook) -> Self {
        hook.metrics.in_flight.add(1);
        Self { hook, began: Instant::now(), trace: None, outcome: Outcome::Abandoned }
    }

    fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Self { hook, began, trace, outcome } = self;
        hook.metrics.in_flight.sub(1);
        hook.metrics.seconds.record_in(began.elapsed(), 1, trace.as_ref());
        hook.metrics.count(*outcome);
        let (breaker, now) = (&mut lock(&hook.health).breaker, unix_now());
        match outcome {
            Outcome::Timeout | Outcome::Down => breaker.on_failure(rand::random(), now),
            // Nothing is known; but if it was the probe, there must be another one.
            Outcome::Abandoned if breaker.due_at(now).is_some() => breaker.on_failure(rand::random(), now),
            Outcome::Abandoned => {}
            _ => breaker.on_success(),
        }
    }
}

/// What a status other than 200 means.
fn meaning(status: &config::HookStatus) -> HookAnswer {
    let text = status.text.clone().unwrap_or_default();
    match (status.error, status.disconnect) {
        (Some(code), _) => HookAnswer::Error(AppError { code, message: text.into(), temporary: status.temporary }),
        (None, code) => HookAnswer::disconnect(code.unwrap_or_default().into(), text),
    }
}

fn request(config: &config::Hook) -> Request {
    let fixed = [("content-type", "application/json"), ("user-agent", concat!("tidings/", env!("CARGO_PKG_VERSION")))];
    let stated = config.static_headers.iter().map(|header| (header.name.as_str(), header.value.as_str()));
    let request = Request::post(&config.url.target).expect("the target was checked with the address");
    let request =
        fixed.into_iter().chain(stated).try_fold(request, |request, (name, value)| request.header(name, value));
    request.expect("headers were checked with the configuration")
}

fn client_config(name: &str, config: &config::Hook) -> Result<ClientConfig, OutgoingError> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, body_bytes_max: config.answer_bytes_max.as_usize() };
    // One spare connection, for the time while another is replaced.
    let client = ClientConfig::new(format!("hook {name}"), config.in_flight_max + 1);
    // An answer that is too large is none, but the back end is up.
    let mut client =
        ClientConfig { limits, skip_large_bodies: true, roots: outgoing::roots(config.ca_file.as_deref())?, ..client };
    let pool = &mut client.pool;
    // A call never waits behind another. A connection on which a call timed out is closed.
    (pool.backlog_max, pool.in_flight_max, pool.tombstone_max) = (1, 1, 1);
    (pool.silence_max, pool.connect_timeout) = (config.timeout, config.timeout);
    pool.reconnect = Reconnect { max: RECONNECT_MAX, ..pool.reconnect };
    Ok(client)
}

#[cfg(test)]
mod tests;
