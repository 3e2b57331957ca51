//! The loop that owns origins and outcomes: takes from the lakes, starts attempts, handles their reports.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderValue;
use tidings_buffer::Consumer;
use tidings_http1::Origin as Name;
use tidings_push::web_push::Reason;
use tidings_push::web_push::guard::Endpoint;
use tidings_push::{Advice, Notification, Outcome, OutcomeSink, Reason as AnyReason, Verdict};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceToken, EventPriority, Timestamp};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::config::{WebPushConfig, WebPushService};
use super::exchange::{Access, Plan, Report};
use super::gate::{Health, Now};
use super::link::{Link, Path, Terms, WeakPath};
use super::network::Route;
use super::origins::{Effect, LEVELS, Limits, OriginId, Origins, Start};
use crate::attempt::{Attempt, Standings};
use crate::drain::Phase;
use crate::metrics::{Metrics, Repeat};
use crate::settle::Outcomes;

/// How often notifications that are over are settled, and idle connections closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Reports that are handled before new attempts are started.
const REPORTS_PER_TURN: usize = 64;
/// The log says at most this often that a key is refused.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A notification that was handed out by the origins.
struct Sending {
    origin: OriginId,
    level: usize,
    attempt: Attempt,
}

/// An attempt that is over.
struct Done {
    sending: Sending,
    report: Report,
    link: Option<Link>,
}

pub(super) struct Driver {
    config: Arc<WebPushConfig>,
    service: WebPushService,
    /// One per lake; none for those that are closed and empty.
    consumers: [Option<Consumer<Notification>>; LEVELS],
    /// What the lakes gave, before it is looked at; empty between turns.
    inbox: Vec<(usize, Notification)>,
    origins: Origins<Attempt, Link>,
    /// Paths to origins that have connections; each sweep forgets the others.
    paths: HashMap<Name, WeakPath>,
    /// What bounds the connections to each of them.
    terms: Terms,
    outcomes: Outcomes,
    metrics: Metrics,
    access: watch::Receiver<Arc<Access>>,
    /// What attempts are made with now.
    current: Arc<Access>,
    phase: watch::Receiver<Phase>,
    tasks: JoinSet<Done>,
    sweep_at: Instant,
    refusal_logged_at: Option<Instant>,
}

impl Now {
    fn read() -> Self {
        Self { at: Instant::now(), unix: unix_now() }
    }
}

impl Driver {
    pub(super) fn new(
        config: Arc<WebPushConfig>,
        service: WebPushService,
        sink: Arc<dyn OutcomeSink>,
        metrics: Metrics,
        access: watch::Receiver<Arc<Access>>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let limits = Limits {
            origin_count_max: service.origin_count_max,
            attempt_count_max: config.connection_count_max, // Until its first connection shows that it takes more.
            held_max: config.held_max,
            idle_timeout: config.idle_timeout,
        };
        let terms = Terms {
            connect_timeout: config.connect_timeout,
            answer_timeout: config.answer_timeout,
            connection_count_max: config.connection_count_max,
            metrics: metrics.clone(),
            connected: Arc::default(),
        };
        let current = Arc::clone(&access.borrow());
        Self {
            consumers: service.lakes.all().each_ref().map(|lake| Some(Consumer::new(Arc::clone(lake)))),
            inbox: Vec::new(),
            origins: Origins::new(limits),
            paths: HashMap::new(),
            terms,
            outcomes: Outcomes::new(sink, metrics.clone()),
            metrics,
            current,
            access,
            phase,
            tasks: JoinSet::new(),
            sweep_at: Instant::now() + SWEEP_INTERVAL,
            refusal_logged_at: None,
            config,
            service,
        }
    }

    /// Works until the lakes are closed and everything is settled, or it is aborted. Returns how many notifications it
    /// leaves unsettled.
    pub(super) async fn run(mut self) -> usize {
        loop {
            let next = self.turn(Now::read());
            if self.service.lakes.is_finished() && self.origins.held() == 0 {
                break;
            }
            let (phase, access, tasks) = (&mut self.phase, &mut self.access, &mut self.tasks);
            let (consumers, origins, inbox) = (&mut self.consumers, &self.origins, &mut self.inbox);
            let (mut done, mut is_connected) = (None, false);
            tokio::select! {
                biased; // Stop first: a busy gateway must not postpone it.
                asked = phase.changed() => {
                    if asked.is_err() || *phase.borrow_and_update() == Phase::Abort {
                        break;
                    }
                }
                Ok(()) = access.changed() => {} // The next turn takes it up.
                () = poll_fn(|cx| poll_take(cx, consumers, origins, inbox)) => {} // Bounded by what is held.
                () = self.terms.connected.notified() => is_connected = true,
                Some(joined) = tasks.join_next() => done = Some(joined),
                () = sleep_until(next) => {}
            }
            // Attempts that can end now end first. So one turn deals with the reports of many, not of one.
            yield_now().await;
            if is_connected {
                self.count_attempts();
            }
            self.accept();
            self.finish(done);
        }
        self.tasks.shutdown().await;
        self.outcomes.flush();
        self.origins.held()
    }

    /// Does what is due and starts what can be; returns when to come back.
    fn turn(&mut self, now: Now) -> Instant {
        self.renew(now);
        let due = self.origins.release(now);
        if now.at >= self.sweep_at {
            self.sweep_at = now.at + SWEEP_INTERVAL;
            self.sweep(now);
        }
        self.start(now);
        self.outcomes.flush();
        due.map_or(self.sweep_at, |due| due.min(self.sweep_at))
    }

    /// Takes the current key and trusted certificates. With other certificates, paths are made anew, and connections
    /// made with the old certificates end.
    fn renew(&mut self, now: Now) {
        let access = Arc::clone(&self.access.borrow());
        let tls = &std::mem::replace(&mut self.current, access).tls;
        if !Arc::ptr_eq(tls, &self.current.tls) {
            self.paths.clear();
            self.origins.retain_idle(now, |link| link.is_with(&self.current.tls));
        }
    }

    /// Gives notifications from the lakes to their origins.
    fn accept(&mut self) {
        let (now, mut inbox) = (Now::read(), std::mem::take(&mut self.inbox));
        let mut standings = self.outcomes.standings();
        for (level, notification) in inbox.drain(..) {
            self.admit(level, notification, &mut standings, now);
        }
        self.inbox = inbox;
    }

    /// Gives a notification to its origin if it is still to be sent and allowed; returns whether it did.
    fn admit(&mut self, level: usize, notification: Notification, standings: &mut Standings, now: Now) -> bool {
        let attempt = Attempt::new(notification, EventPriority::ALL[level], now.at);
        if let Some(outcome) = attempt.why_over(standings, now.unix) {
            self.outcomes.settle(attempt, outcome, None, now.at);
            return false;
        }
        let Some(name) = self.name(&attempt.notification) else {
            self.reject(attempt, Reason::ForbiddenEndpoint, now);
            return false;
        };
        let refused = self.origins.push(&name, level, attempt, now).err();
        let is_taken = refused.is_none();
        if let Some(attempt) = refused {
            self.reject(attempt, Reason::OriginOverloaded, now);
        }
        is_taken
    }

    /// Where a notification goes, if it may go there.
    fn name(&self, notification: &Notification) -> Option<Name> {
        let DeviceToken::WebPush(token) = &notification.token else { return None };
        let endpoint = Endpoint::parse(token.endpoint()).ok()?;
        self.service.rules.check(&endpoint).ok()?;
        endpoint.origin().parse().ok()
    }

    fn reject(&mut self, attempt: Attempt, reason: Reason, now: Now) {
        self.outcomes.settle(attempt, Outcome::Rejected(reason.into()), None, now.at);
    }

    fn start(&mut self, now: Now) {
        let mut standings = self.outcomes.standings();
        while let Some(Start { origin, level, item: attempt, connection: link }) = self.origins.next(now) {
            let over = attempt.why_over(&mut standings, now.unix);
            let sending = Sending { origin, level, attempt };
            if let Some(outcome) = over {
                self.origins.on_ended(origin, link, Effect::NONE, now);
                self.settle(sending, outcome, None, now);
                continue;
            }
            let Some(path) = self.path(origin) else {
                self.on_done(Done { sending, report: Report::Forbidden, link }, now);
                continue;
            };
            let plan = Plan { access: Arc::clone(&self.current), terms: self.terms.clone(), path, link };
            self.tasks.spawn(async move {
                let (report, link) = plan.make(&sending.attempt.notification).await;
                Done { sending, report, link }
            });
        }
    }

    /// The path to an origin; none when no certificate could be for its host.
    fn path(&mut self, origin: OriginId) -> Option<Path> {
        let name = self.origins.name(origin);
        if let Some(path) = self.paths.get(name).and_then(WeakPath::upgrade) {
            return Some(path);
        }
        let (network, tls) = (Arc::clone(&self.config.network), Arc::clone(&self.current.tls));
        let path = Path::new(Route::new(name.clone(), network, self.service.rules.clone(), tls)?);
        self.paths.insert(name.clone(), path.downgrade());
        Some(path)
    }

    /// Takes up how many attempts each origin's connections allow.
    fn count_attempts(&mut self) {
        let now = Now::read();
        for (name, path) in &self.paths {
            if let Some(path) = path.upgrade() {
                self.origins.set_attempt_count_max(name, path.attempt_count_max(self.config.connection_count_max), now);
            }
        }
    }

    /// Handles the report that came, and all others that are ready.
    fn finish(&mut self, first: Option<Result<Done, JoinError>>) {
        let mut next = first.or_else(|| self.tasks.try_join_next());
        for count in 1.. {
            match next {
                // Its pause counts from its own end, which may be later than that of the report before.
                Some(Ok(done)) => self.on_done(done, Now::read()),
                // Nobody aborts one while the driver runs.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => return,
            }
            if count == REPORTS_PER_TURN {
                return;
            }
            next = self.tasks.try_join_next();
        }
    }

    fn on_done(&mut self, Done { sending, report, link }: Done, now: Now) {
        let (health, pause) = bearing(&report);
        let link = link.filter(|link| link.is_with(&self.current.tls));
        self.metrics.pauses.add(u64::from(!pause.is_zero()));
        self.origins.on_ended(sending.origin, link, Effect { health, pause, random: rand::random() }, now);
        match report {
            Report::Answered { verdict, round_trip, authorization } => {
                self.metrics.round_trip.record(round_trip);
                self.service.gauge.on_round_trip(round_trip);
                self.on_verdict(sending, verdict, &authorization, pause, now);
            }
            Report::NotSent { .. } => self.repeat(sending, Repeat::NotProcessed, Duration::ZERO, pause, now),
            Report::Lost { has_topic: true, .. } => self.repeat(sending, Repeat::Unknown, Duration::ZERO, pause, now),
            Report::Lost { has_topic: false, .. } | Report::Unreadable => {
                self.settle(sending, Outcome::Unknown, None, now)
            }
            Report::Forbidden => {
                let outcome = Outcome::Rejected(Reason::AddressNotPublic.into());
                self.settle(sending, outcome, None, now);
            }
            Report::Unsendable(reason) => self.settle(sending, Outcome::Rejected(reason), None, now),
        }
    }

    /// `pause` is the part of the verdict's wait that the origin's gate keeps.
    fn on_verdict(&mut self, sending: Sending, verdict: Verdict, used: &HeaderValue, pause: Duration, now: Now) {
        match verdict {
            Verdict::Accepted => {
                self.origins.on_accepted(sending.origin);
                self.settle(sending, Outcome::Accepted, None, now);
            }
            Verdict::Rejected { reason, gone_at } => self.settle(sending, Outcome::Rejected(reason), gone_at, now),
            Verdict::Repeat { reason, advice: Advice::RenewCredential, not_before } => {
                let name = self.origins.name(sending.origin).to_string();
                let is_renewed = self.current.vapid.on_refused(used, &name, now.unix);
                if is_renewed {
                    return self.repeat(sending, Repeat::Answer, not_before, pause, now);
                }
                self.log_refusal(&name, reason, now);
                self.settle(sending, Outcome::Rejected(reason), None, now);
            }
            Verdict::Repeat { not_before, .. } => self.repeat(sending, Repeat::Answer, not_before, pause, now),
        }
    }

    /// Repeats a notification, if there is time for that after `floor`. The part `kept` of that wait is kept by the
    /// origin's gate, and not waited for here.
    fn repeat(&mut self, mut sending: Sending, cause: Repeat, floor: Duration, kept: Duration, now: Now) {
        sending.attempt.on_failed(cause, &self.metrics);
        let Some(wait) = sending.attempt.repeat_after(floor, now.unix) else {
            return self.settle(sending, Outcome::Expired, None, now);
        };
        let due = now.at + wait.saturating_sub(kept.min(floor));
        self.origins.put_back(sending.origin, sending.level, sending.attempt, due, now);
    }

    fn settle(&mut self, sending: Sending, outcome: Outcome, gone_at: Option<Timestamp>, now: Now) {
        self.outcomes.settle(sending.attempt, outcome, gone_at, now.at);
        self.origins.on_settled(sending.origin, sending.level, now);
    }

    fn sweep(&mut self, now: Now) {
        let mut standings = self.outcomes.standings();
        let overloaded = Outcome::Rejected(Reason::OriginOverloaded.into());
        let over = self.origins.sweep(now, overloaded, |attempt| attempt.why_over(&mut standings, now.unix));
        for (attempt, outcome) in over {
            self.outcomes.settle(attempt, outcome, None, now.at);
        }
        self.sweep_lakes(&mut standings, now);
        self.paths.retain(|_, path| path.is_alive());
        self.count_attempts();
        let streams = self.origins.attempt_count_max();
        self.service.gauge.set_streams(streams as u64);
        self.metrics.streams_allowed.set(streams as i64);
        self.metrics.failing_services.set(self.origins.failing() as i64);
    }

    /// Settles what is over at the front of lakes from which nothing is taken, because origins take nothing of what
    /// they hold. The first notification that is still to be sent moves up, while there is room. A later sweep settles
    /// what is over behind it, and if its origin takes it, others pass.
    fn sweep_lakes(&mut self, standings: &mut Standings, now: Now) {
        let lakes = self.service.lakes.clone();
        for (level, lake) in lakes.all().iter().enumerate() {
            if self.origins.demand(level) > 0 {
                continue; // It is taken from as it fills.
            }
            for _ in 0..lake.capacity() {
                let next = self.origins.has_room(level).then(|| lake.pop()).flatten();
                if next.is_none_or(|notification| self.admit(level, notification, standings, now)) {
                    break;
                }
            }
            self.outcomes.flush();
        }
    }

    /// Logs that an origin refuses our key, at a limited rate, because that may concern many notifications.
    fn log_refusal(&mut self, origin: &str, reason: AnyReason, now: Now) {
        let is_due = |at| now.at.saturating_duration_since(at) >= REFUSAL_LOG_INTERVAL;
        if self.refusal_logged_at.is_none_or(is_due) {
            self.refusal_logged_at = Some(now.at);
            let (pool, reason) = (&self.service.name, reason.as_str());
            error!(provider = "web_push", %pool, origin, reason, "Push service refuses the key");
        }
        self.metrics.vapid_refused.inc();
    }
}

/// What a report says about its origin: its health, and the pause it wants.
fn bearing(report: &Report) -> (Health, Duration) {
    match report {
        Report::Answered { verdict: Verdict::Repeat { reason, advice, not_before }, .. } => {
            let is_failing = *reason == AnyReason::WebPush(Reason::ServiceError);
            let pauses = is_failing || *advice == Advice::PauseAll;
            let health = if is_failing { Health::Failing } else { Health::Well };
            (health, if pauses { *not_before } else { Duration::ZERO })
        }
        Report::Answered { .. } | Report::Unreadable => (Health::Well, Duration::ZERO),
        Report::NotSent { cut_short: false } | Report::Lost { cut_short: false, .. } => {
            (Health::Failing, Duration::ZERO)
        }
        Report::NotSent { .. } | Report::Lost { .. } => (Health::Unknown, Duration::ZERO),
        // The next notification gets the same result at once.
        Report::Forbidden | Report::Unsendable(_) => (Health::Unknown, Duration::ZERO),
    }
}

/// Takes from each lake as much as there is room for; ready when something came or a lake has come to its end.
fn poll_take(
    cx: &mut Context<'_>,
    consumers: &mut [Option<Consumer<Notification>>; LEVELS],
    origins: &Origins<Attempt, Link>,
    inbox: &mut Vec<(usize, Notification)>,
) -> Poll<()> {
    let (mut taken, mut progress) = (Vec::new(), Poll::Pending);
    for (level, consumer) in consumers.iter_mut().enumerate() {
        let Some(open) = consumer else { continue };
        match open.poll_take(cx, origins.demand(level), &mut taken) {
            Poll::Pending => continue,
            Poll::Ready(0) => *consumer = None,
            Poll::Ready(_) => inbox.extend(taken.drain(..).map(|notification| (level, notification))),
        }
        progress = Poll::Ready(());
    }
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_is_well_unless_it_says_that_it_is_not() {
        let answered = |verdict| {
            let authorization = HeaderValue::from_static("vapid");
            bearing(&Report::Answered { verdict, round_trip: Duration::ZERO, authorization })
        };
        let repeat = |reason: Reason, advice, seconds| {
            let not_before = Duration::from_secs(seconds);
            answered(Verdict::Repeat { reason: reason.into(), advice, not_before })
        };
        let pause = Duration::from_secs(7);
        assert_eq!(answered(Verdict::Accepted), (Health::Well, Duration::ZERO));
        assert_eq!(repeat(Reason::TooManyRequests, Advice::PauseAll, 7), (Health::Well, pause));
        assert_eq!(repeat(Reason::ServiceError, Advice::Wait, 7), (Health::Failing, pause));
        assert_eq!(repeat(Reason::VapidRefused, Advice::RenewCredential, 7), (Health::Well, Duration::ZERO));
        for (cut_short, health) in [(false, Health::Failing), (true, Health::Unknown)] {
            assert_eq!(bearing(&Report::NotSent { cut_short }), (health, Duration::ZERO));
            assert_eq!(bearing(&Report::Lost { has_topic: true, cut_short }), (health, Duration::ZERO));
        }
    }
}
