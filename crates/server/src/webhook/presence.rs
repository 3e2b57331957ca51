//! Tells a back end who came and went: signed batches to `webhook.presence_url`. [`Changes`] decides what is told.
//!
//! **At least once, in order.** One batch is in flight. It is tried, with the same bytes and the same `webhook-id`, until
//! the receiver has answered 2xx; it is never given up. Then the next batch is taken. A 410 ends this until SIGHUP or a
//! restart, as for reports.
//!
//! **In memory only.** What was not told when the server stops is lost, and nobody is told as gone because the server
//! stops. So the first record of each process is `started`: all that was told before is void.
//!
//! **Bounds.** A batch has at most [`BATCH_COUNT_MAX`] changes, with names of [`BATCH_BYTES_MAX`]. The changes behind it
//! wait in [`Changes`], which drops the oldest when it is full. Then a record `overflow` says how many were dropped.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidings_api::Rfc3339;
use tidings_config as config;
use tidings_http1::Client;
use tidings_hub::{Batch, Change, Changes, Key};
use tidings_telemetry::metrics::webhook as table;
use tidings_telemetry::{Counter, Gauge, Registry, chain, unix_now};
use tidings_types::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use tracing::{error, info, warn};

use super::answer::Answer;
use super::metrics::Attempts;
use super::receiver_log::ReceiverLog;
use super::report::Report;
use super::schedule::{UNSENT_PAUSE, backoff};
use super::{Order, RECONNECT_INTERVAL, attempt, client_config, keys};
use crate::outgoing::OutgoingError;

/// Changes of a batch.
const BATCH_COUNT_MAX: usize = 1000;
/// Bytes of the names in a batch.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// How often the changes are looked at: what is told is late by this at most, and nobody wakes the task.
const TICK: Duration = Duration::from_millis(100);
/// The longest pause of our own between attempts. Who is here now is of little use an hour later.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The kind of this webhook. The same address may get reports, which are of another kind.
const PRESENCE: &str = "presence";

/// The running teller. A drop aborts it.
pub(crate) struct Presence {
    url: config::WebUrl,
    orders: watch::Sender<Order>,
    task: JoinSet<()>,
}

impl Presence {
    /// Starts telling the changes. `None` without an address, or if there is nothing to tell.
    ///
    /// # Errors
    /// If the certificates to trust cannot be read, or the client refuses its settings.
    pub(crate) fn start(
        config: &config::Webhook,
        changes: Option<&Arc<Changes>>,
        registry: &Registry,
    ) -> Result<Option<Self>, OutgoingError> {
        let Some(((url, keys), changes)) = config.presence_url.clone().zip(keys(config)).zip(changes.cloned()) else {
            return Ok(None);
        };
        let client = Client::start(&url.origin, client_config(config, 1)?)?;
        let (orders, orders_rx) = watch::channel(Order { keys: Arc::new(keys), stop: None });
        let teller = Teller {
            client,
            url: Arc::new(url.clone()),
            timeout: config.timeout,
            backoff_min: config.backoff_min,
            backoff_max: config.backoff_max,
            changes,
            started_at: unix_now(),
            orders: orders_rx,
            metrics: Metrics::new(registry),
            receiver_log: ReceiverLog::new(url.origin.to_string()),
            reconnected_at: None,
        };
        let mut task = JoinSet::new();
        task.spawn(teller.run());
        info!(receiver = %url.origin, "Telling the webhook who comes and goes");
        Ok(Some(Self { url, orders, task }))
    }

    /// Signs with the secrets of this configuration from now on, and tries the waiting batch at once. Nothing else of the
    /// configuration is taken.
    pub(crate) fn reload(&self, config: &config::Webhook) {
        match config.presence_url.as_ref().zip(keys(config)) {
            Some((url, keys)) if *url == self.url => {
                self.orders.send_modify(|order| order.keys = Arc::new(keys));
            }
            _ => {
                let receiver = &self.url.origin;
                error!(%receiver, "`webhook.presence_url` has changed, the old one is used until a restart");
            }
        }
    }

    /// Begins no more attempts, and waits for the one in flight until `deadline`.
    ///
    /// # Cancel safety
    /// Not cancel safe: the attempt in flight is cut off.
    pub(crate) async fn stop(mut self, deadline: Instant) {
        self.orders.send_modify(|order| order.stop = Some(deadline));
        if let Ok(Some(Err(error))) = timeout_at(deadline, self.task.join_next()).await {
            error!(error = chain(&error), "Telling who comes and goes ended");
        }
        self.task.shutdown().await; // Cuts off an attempt that is late.
    }
}

struct Teller {
    client: Client,
    url: Arc<config::WebUrl>,
    timeout: Duration,
    backoff_min: Duration,
    /// Also the most that the receiver may ask for.
    backoff_max: Duration,
    changes: Arc<Changes>,
    started_at: Timestamp,
    orders: watch::Receiver<Order>,
    metrics: Metrics,
    receiver_log: ReceiverLog,
    /// When an early connect was last requested.
    reconnected_at: Option<Instant>,
}

/// Orders have come that end it.
struct Stopped;

impl Teller {
    async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.pause(Some(ticks.tick())).await.is_ok() {
            loop {
                let batch = self.changes.take(BATCH_COUNT_MAX, BATCH_BYTES_MAX);
                self.metrics.backlog.set(self.changes.backlog() as i64);
                if batch.is_empty() {
                    break;
                }
                if batch.lost > 0 {
                    self.metrics.lost.add(batch.lost);
                    warn!(count = batch.lost, "Changes of who is here were dropped: too many waited for the receiver");
                }
                if self.deliver(&batch).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Tries until the receiver has taken the batch.
    async fn deliver(&mut self, batch: &Batch) -> Result<(), Stopped> {
        let report = message(batch, self.started_at, unix_now(), Instant::now());
        let (mut failures, mut is_closed) = (0, false);
        loop {
            let keys = self.orders.borrow().keys.clone();
            let result = attempt(&self.client, &self.url, report.clone(), &keys, self.timeout, None).await;
            let answer = Answer::of(&result);
            self.metrics.attempts.count(answer);
            self.receiver_log.log(answer, result.as_ref().map(|&(status, _)| status), is_closed);
            is_closed = answer == Answer::Gone;
            self.metrics.closed.set(i64::from(is_closed));
            let pause = match answer {
                Answer::Taken => {
                    self.metrics.told.add(batch.changes.len() as u64);
                    return Ok(());
                }
                Answer::Gone => None,
                Answer::Unsent => {
                    self.reconnect(Instant::now());
                    Some(UNSENT_PAUSE)
                }
                Answer::Busy { retry_after } => Some(self.after(&mut failures, retry_after)),
                Answer::Failed { retry_after } => Some(self.after(&mut failures, retry_after.unwrap_or_default())),
            };
            self.metrics.backlog.set(self.changes.backlog() as i64);
            let until = pause.map(|pause| Instant::now() + pause);
            self.pause(until.map(sleep_until)).await?;
        }
    }

    /// The pause after a failure.
    fn after(&self, failures: &mut u32, retry_after: Duration) -> Duration {
        *failures = failures.saturating_add(1);
        let (min, max) = (self.backoff_min.min(BACKOFF_MAX), self.backoff_max.min(BACKOFF_MAX));
        backoff(min, max, *failures, rand::random()).max(retry_after.min(self.backoff_max))
    }

    /// Waits for this, or for ever, or until orders come.
    async fn pause(&mut self, until: Option<impl Future>) -> Result<(), Stopped> {
        let until = async {
            match until {
                Some(until) => drop(until.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ordered = self.orders.changed() => match (ordered, self.orders.borrow_and_update().stop) {
                (Ok(()), None) => Ok(()), // New secrets: it is tried at once.
                _ => Err(Stopped),
            },
            () = until => Ok(()),
        }
    }

    /// As for reports: a batch does not wait for the end of a long pause between attempts to connect.
    fn reconnect(&mut self, now: Instant) {
        if self.reconnected_at.is_none_or(|at| now >= at + RECONNECT_INTERVAL) {
            self.reconnected_at = Some(now);
            self.client.reconnect();
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    timestamp: Rfc3339,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    records: Vec<Record<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Record<'a> {
    Started { at: Rfc3339 },
    Overflow { count: u64 },
    Connected { at: Rfc3339, user: &'a str },
    Gone { at: Rfc3339, user: &'a str },
    Occupied { at: Rfc3339, channel: &'a str },
    Vacated { at: Rfc3339, channel: &'a str },
}

/// A batch as it is sent. `now` is one moment on two clocks.
fn message(batch: &Batch, started_at: Timestamp, unix_now: Timestamp, now: Instant) -> Report {
    let started = batch.is_first.then_some(Record::Started { at: Rfc3339(started_at) });
    let overflow = (batch.lost > 0).then_some(Record::Overflow { count: batch.lost });
    let changed = batch.changes.iter().map(|Change { key, is_here, since }| {
        let ago = now.saturating_duration_since(*since).as_millis() as u64;
        let at = Rfc3339(Timestamp(unix_now.as_millis().saturating_sub(ago)));
        match (key, is_here) {
            (Key::User(user), true) => Record::Connected { at, user },
            (Key::User(user), false) => Record::Gone { at, user },
            (Key::Channel(name), true) => Record::Occupied { at, channel: name.as_str() },
            (Key::Channel(name), false) => Record::Vacated { at, channel: name.as_str() },
        }
    });
    let records = started.into_iter().chain(overflow).chain(changed).collect();
    let body = Body { r#type: PRESENCE, timestamp: Rfc3339(unix_now), data: Data { records } };
    let body = serde_json::to_vec(&body).expect("records have string keys");
    Report { id: format!("msg_{}", uuid::Uuid::new_v4().simple()), body }
}

struct Metrics {
    attempts: Attempts,
    told: Counter,
    lost: Counter,
    backlog: Gauge,
    closed: Gauge,
}

impl Metrics {
    fn new(registry: &Registry) -> Self {
        let counter = |metric| registry.counter(metric, &[]);
        let gauge = |metric| registry.gauge(metric, &[]);
        Self {
            attempts: Attempts::new(registry, &table::PRESENCE_WEBHOOK_ATTEMPTS_TOTAL),
            told: counter(&table::PRESENCE_WEBHOOK_TOLD_TOTAL),
            lost: counter(&table::PRESENCE_WEBHOOK_LOST_TOTAL),
            backlog: gauge(&table::PRESENCE_WEBHOOK_BACKLOG),
            closed: gauge(&table::PRESENCE_WEBHOOK_CLOSED),
        }
    }
}

#[cfg(test)]
mod tests;
