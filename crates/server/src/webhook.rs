//! Reports to a back end when an event's job is done: a signed HTTP request to one address, as in the Standard Webhooks
//! specification (<https://www.standardwebhooks.com>, v1).
//!
//! ```text
//! sender: job rows "owed" ──take_untold──► schedule ──next──► attempt ──► receiver
//!    ▲                                        ▲                  │
//!    └───── told, given up ◄──────────────────┴──────────────────┘
//! ```
//!
//! **At least once.** Before a report is sent, the job's row says that it is owed. After the receiver has answered 2xx,
//! the sender's next checkpoint clears that mark. A `kill -9` in between repeats the report. A repeat has the same
//! bytes and the same `webhook-id`, with a new timestamp and signature. Order is not promised.
//!
//! **Until when.** `schedule` decides when a report is tried, `answer` what an answer means. The number of tries is
//! kept in memory and lost at a restart. The time to give up counts from the end of the job. A report that is given up
//! is counted and logged.
//!
//! **Bounds.** Owed reports are kept in the sender's job rows, at most `sender.report_count_max`; beyond that the
//! oldest are forgotten (`tidings_sender_untold_forgotten_total`). This module keeps a few words for each, for twice as
//! many. At most `in_flight_max` requests run at a time, each with one report and with `timeout` in all. An answer of
//! more than [`ANSWER_BYTES_MAX`] is a failure. The sender never waits for the receiver.
//!
//! `presence` is the other webhook: who came and went. It shares the secrets and what answers mean.
//!
//! **Not here**: several receivers, asymmetric signatures.

mod answer;
mod metrics;
mod presence;
mod receiver_log;
mod report;
mod schedule;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use tidings_config::{self as config, WebhookKeys};
use tidings_http1::{Client, ClientConfig, Limits, Request, SendError};
use tidings_sender::Sender;
use tidings_telemetry::memory::Term;
use tidings_telemetry::{Registry, chain, unix_nanos, unix_now};
use tidings_types::{JournalPosition, Timestamp, TraceContext};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, error, info, warn};

pub(super) use self::presence::Presence;
pub(super) use self::trace::Traces;

use self::answer::Answer;
use self::metrics::Metrics;
use self::receiver_log::ReceiverLog;
use self::report::Report;
use self::schedule::{Fate, Schedule, Terms};
use super::outgoing::{self, OutgoingError, Said};
use super::traces::traced;

/// Only the status of an answer counts. The body is read up to this size, so that the connection can be reused.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The largest head of an answer.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// While reports find no connection, a new one is requested at most this often.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// A report that the receiver has not accepted: its due time, twice for the order, and its entry in the table.
const TELLING_BYTES: usize = 160;

/// What reports that are not told yet may take.
pub(super) fn memory_terms(config: &config::Config) -> Vec<Term> {
    let count = if config.webhook.url.is_some() { 2 * config.sender.report_count_max } else { 0 };
    vec![Term::peak("webhook backlog", count, TELLING_BYTES, "webhook.url, sender.report_count_max")]
}

/// The running webhook. A drop aborts it; call [`Webhook::stop`] first.
pub(super) struct Webhook {
    url: config::WebUrl,
    orders: watch::Sender<Order>,
    task: JoinSet<()>,
}

/// Orders of its owner.
#[derive(Clone)]
struct Order {
    keys: Arc<WebhookKeys>,
    /// Begin no more attempts, and end by this time.
    stop: Option<Instant>,
}

impl Webhook {
    /// Starts sending the reports that the sender owes. `None` without an address: then no report is owed.
    ///
    /// # Errors
    /// If the certificates to trust cannot be read, or the client refuses its settings.
    pub(super) fn start(
        config: &config::Webhook,
        report_count_max: usize,
        sender: Arc<Sender>,
        traces: Traces,
        registry: &Registry,
    ) -> Result<Option<Self>, OutgoingError> {
        let Some((url, keys)) = config.url.clone().zip(keys(config)) else { return Ok(None) };
        let client = Client::start(&url.origin, client_config(config, config.in_flight_max)?)?;
        let (orders, orders_rx) = watch::channel(Order { keys: Arc::new(keys), stop: None });
        let terms = Terms {
            capacity: 2 * report_count_max, // Room for all owed reports, and for forgotten ones that are still here.
            in_flight_max: config.in_flight_max,
            backoff_min: config.backoff_min,
            backoff_max: config.backoff_max,
        };
        let worker = Worker {
            client,
            url: Arc::new(url.clone()),
            timeout: config.timeout,
            give_up_after: config.give_up_after,
            sender,
            traces,
            schedule: Schedule::new(terms),
            attempts: JoinSet::new(),
            orders: orders_rx,
            metrics: Metrics::new(registry),
            receiver_log: ReceiverLog::new(url.origin.to_string()),
            given_up: Said::default(),
            reconnected_at: None,
        };
        let mut task = JoinSet::new();
        task.spawn(worker.run());
        info!(receiver = %url.origin, "Reporting finished events to the webhook");
        Ok(Some(Self { url, orders, task }))
    }

    /// Signs with the secrets of this configuration from now on, and tries all waiting reports at once. Nothing else of
    /// the configuration is taken.
    pub(super) fn reload(&self, config: &config::Webhook) {
        match config.url.as_ref().zip(keys(config)) {
            Some((url, keys)) if *url == self.url => {
                self.orders.send_modify(|order| order.keys = Arc::new(keys));
                info!("Webhook secrets reloaded, waiting reports are tried");
            }
            _ => {
                error!(receiver = %self.url.origin, "Webhook has another address, the old one is used until a restart")
            }
        }
    }

    /// Begins no more attempts, and waits for those in flight until `deadline`. Reports that are not delivered then are
    /// sent after the next start. Call this before the sender writes its last checkpoint.
    ///
    /// # Cancel safety
    /// Not cancel safe: attempts in flight are cut off and repeated after the next start.
    pub(super) async fn stop(mut self, deadline: Instant) {
        self.orders.send_modify(|order| order.stop = Some(deadline));
        while let Some(ended) = self.task.join_next().await {
            if let Err(error) = ended {
                error!(error = chain(&error), "Webhook ended");
            }
        }
    }
}

fn keys(config: &config::Webhook) -> Option<WebhookKeys> {
    outgoing::keys(config.secret.as_ref(), config.previous_secret.as_ref())
}

fn client_config(config: &config::Webhook, in_flight_max: usize) -> Result<ClientConfig, OutgoingError> {
    let roots = outgoing::roots(config.ca_file.as_deref())?;
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, body_bytes_max: ANSWER_BYTES_MAX };
    // One spare connection, for the time while another is replaced.
    let mut client = ClientConfig { limits, roots, ..ClientConfig::new("webhook", in_flight_max + 1) };
    let pool = &mut client.pool;
    // A report never waits behind another. A connection on which a report timed out is closed.
    (pool.backlog_max, pool.in_flight_max, pool.tombstone_max) = (1, 1, 1);
    (pool.silence_max, pool.connect_timeout) = (config.timeout, config.timeout);
    Ok(client)
}

struct Worker {
    client: Client,
    url: Arc<config::WebUrl>,
    timeout: Duration,
    give_up_after: Duration,
    sender: Arc<Sender>,
    traces: Traces,
    schedule: Schedule,
    /// At most `in_flight_max`, see the schedule.
    attempts: JoinSet<Attempt>,
    orders: watch::Receiver<Order>,
    metrics: Metrics,
    receiver_log: ReceiverLog,
    given_up: Said,
    /// When an early connect was last requested.
    reconnected_at: Option<Instant>,
}

/// The result of one request.
struct Attempt {
    position: JournalPosition,
    done_at: Timestamp,
    took: Duration,
    /// Of its event.
    trace: Option<TraceContext>,
    result: Attempted,
}

/// A status and what it means, or why there is none.
type Attempted = Result<(u16, Answer), SendError>;

impl Worker {
    async fn run(mut self) {
        loop {
            let now = Instant::now();
            self.take(now);
            while let Some(position) = self.schedule.next(now) {
                self.begin(position);
            }
            self.metrics.in_flight.set(self.schedule.in_flight() as i64);
            self.metrics.closed.set(i64::from(self.schedule.is_closed()));
            let wake_at = self.schedule.wake_at();
            tokio::select! {
                biased; // Orders first, then ended attempts, which make room.
                ordered = self.orders.changed() => {
                    let stop = self.orders.borrow_and_update().stop;
                    match (ordered, stop) {
                        (Err(_), _) => return, // The handle was dropped.
                        (_, Some(deadline)) => return self.drain(deadline).await,
                        (Ok(()), None) => self.schedule.reopen(Instant::now()),
                    }
                }
                Some(ended) = self.attempts.join_next(), if !self.attempts.is_empty() => self.ended(ended),
                () = self.sender.more_untold() => {}
                () = sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {}
            }
        }
    }

    /// Takes the reports that the sender owes by now.
    fn take(&mut self, now: Instant) {
        if self.schedule.room() == 0 {
            let sender = &self.sender;
            self.schedule.retain(|position| sender.is_untold(position));
        }
        for position in self.sender.take_untold(self.schedule.room()) {
            let Some(job) = self.sender.untold(position) else { continue };
            let end = job.done_at.unwrap_or(job.accepted_at).saturating_add(self.give_up_after);
            let left = end.saturating_since(unix_now()).min(self.give_up_after); // Also if the clock was changed.
            self.schedule.add(position, now + left, now);
        }
    }

    fn begin(&mut self, position: JournalPosition) {
        let Some(job) = self.sender.untold(position) else { return self.schedule.forget(position) };
        let done_at = job.done_at.unwrap_or(job.accepted_at);
        let report = Report::new(super::report::view(job));
        let (client, url, timeout) = (self.client.clone(), self.url.clone(), self.timeout);
        let keys = self.orders.borrow().keys.clone();
        let traces = self.traces.clone();
        self.attempts.spawn(async move {
            let place = traces.place(position).await;
            let (began, began_at) = (Instant::now(), unix_nanos());
            let trace = place.as_ref().map(|place| &place.context);
            let result = attempt(&client, &url, report, &keys, timeout, trace).await;
            traces.tried(place.as_ref(), began_at, result.as_ref().ok().map(|&(status, _)| status));
            Attempt { position, done_at, took: began.elapsed(), trace: place.map(|place| place.context), result }
        });
    }

    fn ended(&mut self, ended: Result<Attempt, tokio::task::JoinError>) {
        let Attempt { position, done_at, took, trace, result } = match ended {
            Ok(attempt) => attempt,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // Aborted: only by dropping the set.
            },
        };
        let answer = Answer::of(&result);
        if answer == Answer::Unsent {
            self.reconnect(Instant::now());
        }
        self.metrics.attempts.count(answer);
        self.metrics.attempt.record_in(took, 1, trace.as_ref());
        self.receiver_log.log(answer, result.as_ref().map(|&(status, _)| status), self.schedule.is_closed());
        let fate = self.schedule.ended(position, answer, rand::random(), Instant::now());
        debug!(job = position.0, ?answer, ?fate, "Report was tried");
        match fate {
            Fate::Told => {
                self.sender.told(position);
                self.metrics.told.inc();
                self.metrics.delay.record_in(unix_now().saturating_since(done_at), 1, trace.as_ref());
            }
            Fate::GivenUp => {
                self.sender.gave_up_telling(position);
                self.metrics.given_up.inc();
                if let Some(held_back) = self.given_up.next(Instant::now()) {
                    warn!(job = position.0, held_back, "Report given up");
                }
            }
            Fate::Again(_) => {}
        }
    }

    /// While the receiver was down or there were no reports, the pauses between attempts to connect may have grown to
    /// half a minute. A report does not wait for their end.
    fn reconnect(&mut self, now: Instant) {
        if self.reconnected_at.is_none_or(|at| now >= at + RECONNECT_INTERVAL) {
            self.reconnected_at = Some(now);
            self.client.reconnect();
        }
    }

    /// Waits for the attempts in flight.
    async fn drain(mut self, deadline: Instant) {
        while let Ok(Some(ended)) = timeout_at(deadline, self.attempts.join_next()).await {
            self.ended(ended);
        }
        self.attempts.shutdown().await;
        self.client.drain(deadline.saturating_duration_since(Instant::now())).await;
    }
}

async fn attempt(
    client: &Client,
    url: &config::WebUrl,
    report: Report,
    keys: &WebhookKeys,
    timeout: Duration,
    trace: Option<&TraceContext>,
) -> Attempted {
    let request = request(url, report, keys, unix_now());
    let request = match trace {
        Some(trace) => traced(request, trace),
        None => request,
    };
    let response = client.send(request, timeout).await?;
    let status = response.status();
    Ok((status.as_u16(), Answer::new(status, response.headers(), unix_now())))
}

/// Builds the request of an attempt. It may be repeated if its connection ends before an answer, because the receiver
/// recognises its id.
fn request(url: &config::WebUrl, Report { id, body }: Report, keys: &WebhookKeys, now: Timestamp) -> Request {
    let headers =
        [("content-type", "application/json"), ("user-agent", concat!("tidings/", env!("CARGO_PKG_VERSION")))];
    let request = Request::post(&url.target).expect("the target was checked with the address");
    let request = headers.into_iter().try_fold(request, |request, (name, value)| request.header(name, value));
    let request = request.expect("these headers are plain text");
    outgoing::signed(request, &id, &body, keys, now).body(body).repeat(true)
}
