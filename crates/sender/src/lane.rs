//! One job's devices on their way into one pool's lake.
//!
//! A task per job and pool. It follows [`Job::step`]: look at a piece of the audience, or read, render and hand out one
//! window, or wait. Recipients are read under the store's lock and copied; rendering and hashing happen outside of it.
//!
//! Full lake: the task waits in the lake's line, one window per job, so jobs share a pool window by window. It leaves the
//! line when the event expires or the sender drains; what did not get in is then still the job's. Closed lake: the task
//! waits for the sender's end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidings_buffer::Lake;
use tidings_hub::Receipts;
use tidings_push::payload::EncodedPayload;
use tidings_push::{Notification, Rendering, RenderingParts, Ticket};
use tidings_store::{Recipient, Store};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceNumber, DeviceToken, Environment, NotificationId, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::config::Pool;
use crate::error::StartError;
use crate::job::{Finding, Job, LaneLimits, Step};
use crate::metrics::Metrics;
use crate::outcome::Suppression;
use crate::topic::{TextIndex, Topics};

/// What the sender is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Handing out.
    Running,
    /// Waiting for what is in flight.
    Draining,
    /// Writing the last checkpoint.
    Closing,
}

/// What all lanes use.
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) topics: Arc<Topics>,
    pub(crate) routes: Routes,
    /// By lane.
    pub(crate) lakes: Vec<Arc<Lake<Notification>>>,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) limits: LaneLimits,
    pub(crate) metrics: Arc<Metrics>,
}

/// Which lane reaches an app's devices.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    apps: Vec<AppId>,
    /// Place in `apps`, and the lane by environment.
    by_app: HashMap<AppId, (usize, [Option<usize>; 2])>,
}

#[derive(Debug, Clone, Copy)]
struct Route {
    lane: usize,
    /// Place in `Routes::apps`.
    app: usize,
}

/// A device about to be handed out, copied from the store's table.
struct Picked {
    /// Its place among the findings.
    place: usize,
    id: DeviceId,
    token: DeviceToken,
    app: usize,
    text: TextIndex,
}

impl Routes {
    pub(crate) fn new(pools: &[Pool]) -> Result<Self, StartError> {
        let mut routes = Self::default();
        for (lane, pool) in pools.iter().enumerate() {
            for app in &pool.apps {
                let next = routes.apps.len();
                let (_, lanes) = routes.by_app.entry(app.clone()).or_insert_with(|| {
                    routes.apps.push(app.clone());
                    (next, [None; 2])
                });
                if let Some(first) = lanes[pool.environment as usize].replace(lane) {
                    let (first, second) = (pools[first].name.clone(), pool.name.clone());
                    return Err(StartError::PoolOverlap {
                        app: app.clone(),
                        environment: pool.environment,
                        first,
                        second,
                    });
                }
            }
        }
        Ok(routes)
    }

    fn find(&self, app: &AppId, environment: Environment) -> Option<Route> {
        let &(app, lanes) = self.by_app.get(app)?;
        Some(Route { lane: lanes[environment as usize]?, app })
    }
}

/// Hands out the devices of `lane` until the job is over or the sender drains and nothing is in flight.
pub(crate) async fn run(job: Arc<Job>, lane: usize, context: Arc<Context>, mut phase: watch::Receiver<Phase>) {
    let expiry = expiry(&job, unix_now());
    while *phase.borrow_and_update() == Phase::Running {
        // Once the expiry was waited for it has come, also by a clock that was set back meanwhile: or this would spin.
        let at_least = if Instant::now() < expiry { Timestamp::default() } else { job.expires_at };
        match job.step(lane, context.limits, &context.metrics, unix_now().max(at_least)) {
            Step::Walk(numbers) => {
                job.assign(&context.find(&job, &numbers), &context.metrics);
                tokio::task::yield_now().await; // Other jobs take their turn.
            }
            Step::Open(numbers) => {
                let (findings, batch) = context.make(&job, lane, &numbers);
                job.open(lane, &findings, &context.metrics);
                hand_out(&job, lane, &context.lakes[lane], batch, expiry, &mut phase).await;
                tokio::task::yield_now().await;
            }
            Step::Wait => tokio::select! {
                () = job.woken(lane) => {}
                _ = phase.changed() => {}
                () = sleep_until(expiry), if Instant::now() < expiry => {}
            },
            Step::Over => return,
        }
    }
    while !job.has_landed(lane) {
        job.woken(lane).await;
    }
}

/// When the event's time is over by tokio's clock: its whole life at most, also where it was accepted by a clock that was
/// ahead.
fn expiry(job: &Job, now: Timestamp) -> Instant {
    let left = job.expires_at.saturating_since(now).min(job.accepted.event.ttl);
    Instant::now() + left.saturating_add(Duration::from_millis(1)) // Past the moment, not just at it.
}

async fn hand_out(
    job: &Job,
    lane: usize,
    lake: &Lake<Notification>,
    mut batch: Vec<Notification>,
    expiry: Instant,
    phase: &mut watch::Receiver<Phase>,
) {
    let closed = tokio::select! {
        biased;
        result = lake.push_batch(&mut batch) => result.is_err(),
        _ = phase.changed() => false,
        () = sleep_until(expiry) => false,
    };
    if !batch.is_empty() {
        job.take_back(lane, batch.drain(..).map(|notification| notification.ticket.device));
    }
    if closed {
        tracing::warn!(job = job.position.0, lane, "the pool's lake is closed, its devices wait for the next start");
        let _ = phase.changed().await; // The worker owns the other end and outlives its lanes.
    }
}

impl Context {
    /// What is known of a piece of the audience.
    fn find(&self, job: &Job, numbers: &[DeviceNumber]) -> Vec<(DeviceNumber, Finding)> {
        let mut findings = Vec::with_capacity(numbers.len());
        self.each_recipient(numbers, |number, recipient| {
            let finding = match self.route(job, recipient) {
                Ok((_, _, route)) => Finding::Lane(route.lane),
                Err(why) => Finding::Suppressed(why),
            };
            findings.push((number, finding));
        });
        findings
    }

    /// The notifications for the devices that still belong to `lane`, and what is known of all of them. The record read
    /// here holds the truth: that of the walk may be old.
    fn make(
        &self,
        job: &Job,
        lane: usize,
        numbers: &[DeviceNumber],
    ) -> (Vec<(DeviceNumber, Finding)>, Vec<Notification>) {
        let texts = self.topics.texts(&job.accepted.event);
        let mut findings = Vec::with_capacity(numbers.len());
        let mut picked = Vec::with_capacity(numbers.len());
        self.each_recipient(numbers, |number, recipient| {
            let finding = match self.route(job, recipient) {
                Ok((recipient, token, Route { lane: found, app })) => {
                    if found == lane {
                        let (place, text) = (findings.len(), texts.index(recipient.locale));
                        let (id, token) = (recipient.id.clone(), token.clone());
                        picked.push(Picked { place, id, token, app, text });
                    }
                    Finding::Lane(found)
                }
                Err(why) => Finding::Suppressed(why),
            };
            findings.push((number, finding));
        });
        let mut batch = Vec::with_capacity(picked.len());
        for Picked { place, id, token, app, text } in picked {
            let (number, finding) = &mut findings[place];
            let Some(rendering) = self.rendering(job, app, text) else {
                *finding = Finding::Suppressed(Suppression::NoText);
                continue;
            };
            let ticket = Ticket { job: job.position, device: *number };
            batch.push(Notification { id: NotificationId::new(&job.accepted.event.id, &id), token, rendering, ticket });
        }
        (findings, batch)
    }

    /// How a device is reached for this job, or why it is not.
    fn route<'a>(
        &self,
        job: &Job,
        recipient: Option<Recipient<'a>>,
    ) -> Result<(Recipient<'a>, &'a DeviceToken, Route), Suppression> {
        let recipient = recipient.ok_or(Suppression::Gone)?;
        if recipient.since > job.position {
            return Err(Suppression::RegisteredLater);
        }
        let Recipient { platform, app, locale, country, .. } = recipient;
        if job.accepted.event.filter.as_ref().is_some_and(|filter| !filter.admits(platform, app, locale, country)) {
            return Err(Suppression::Filtered);
        }
        let token = recipient.token.ok_or(Suppression::NoToken)?;
        let route = self.routes.find(app, recipient.environment).ok_or(Suppression::NoPool)?;
        Ok((recipient, token, route))
    }

    /// The rendering all devices of one app and text share; made for the first of them.
    fn rendering(&self, job: &Job, app: usize, text: TextIndex) -> Option<Arc<Rendering>> {
        let mut renderings = job.renderings.lock().expect("no holder of this lock panics");
        let make = || {
            let accepted = &job.accepted;
            let stream = accepted.published.first().map(|(channel, position)| (channel, *position));
            let payload = self.topics.texts(&accepted.event).payload(text, stream).inspect_err(|error| {
                tracing::error!(job = job.position.0, %error, "an accepted event has no text any more");
            });
            let EncodedPayload { bytes, push_type, priority } = payload.ok()?;
            Some(Arc::new(Rendering::new(RenderingParts {
                app: self.routes.apps[app].clone(),
                push_type,
                priority,
                expires_at: job.expires_at,
                collapse_id: job.collapse_id.clone(),
                payload: bytes,
            })))
        };
        renderings.entry((app, text)).or_insert_with(make).clone()
    }

    /// Shows each of `numbers` in order, with its record if there is one.
    fn each_recipient(&self, numbers: &[DeviceNumber], mut visit: impl FnMut(DeviceNumber, Option<Recipient<'_>>)) {
        let mut rest = numbers.iter().copied();
        self.store.with_recipients(numbers, |recipient| {
            for number in rest.by_ref().take_while(|&number| number != recipient.number) {
                visit(number, None);
            }
            visit(recipient.number, Some(recipient));
        });
        rest.for_each(|number| visit(number, None));
    }
}
