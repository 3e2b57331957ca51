//! One notification on its way: what happened to it so far, why it is over, and when it is repeated.
//!
//! Both transports hold a notification as an [`Attempt`] from the moment it is taken out of a lake until it is settled
//! (`settle`). An attempt is *over* when it must not be made any more: the notification has expired, its job is
//! cancelled, or a newer notification has superseded it. Each transport decides where attempts wait, and what a repeat
//! costs.

use std::sync::Arc;
use std::time::Duration;

use tidings_push::retry::repeat_at;
use tidings_push::{JobStanding, Notification, Outcome, OutcomeSink, Standing, Ticket};
use tidings_types::{EventPriority, JournalPosition, Timestamp};
use tokio::time::Instant;

use crate::metrics::{Metrics, Repeat};

/// How long a repeat that is due but not paid for waits before it asks the retry budget again.
pub(crate) const BUDGET_PAUSE: Duration = Duration::from_millis(100);

/// A notification taken out of a lake, with its history.
pub(crate) struct Attempt {
    pub(crate) notification: Notification,
    pub(crate) priority: EventPriority,
    taken_at: Instant,
    /// Attempts that failed.
    failed: u32,
    /// An earlier attempt may have been delivered.
    maybe_delivered: bool,
    /// It has been repeated at once already.
    hurried: bool,
}

impl Attempt {
    /// A notification that was just taken out of the lake of this priority.
    pub(crate) fn new(notification: Notification, priority: EventPriority, now: Instant) -> Self {
        Self { notification, priority, taken_at: now, failed: 0, maybe_delivered: false, hurried: false }
    }

    /// Why it must not be made, if so: it has expired, its job is cancelled, or a newer notification has superseded it.
    pub(crate) fn why_over(&self, standings: &mut Standings, unix: Timestamp) -> Option<Outcome> {
        if self.notification.rendering.expires_at() <= unix {
            return Some(Outcome::Expired);
        }
        match standings.standing(self.notification.ticket) {
            Standing::Go => None,
            Standing::Cancelled => Some(Outcome::Cancelled),
            Standing::Superseded => Some(Outcome::Superseded),
        }
    }

    /// Notes that it has failed and may be repeated.
    pub(crate) fn on_failed(&mut self, cause: Repeat, metrics: &Metrics) {
        metrics.on_repeat(cause);
        self.failed = self.failed.saturating_add(1);
        self.maybe_delivered |= cause == Repeat::Unknown;
    }

    /// Whether it may be repeated at once: true for the first call only.
    pub(crate) fn try_hurry(&mut self) -> bool {
        !std::mem::replace(&mut self.hurried, true)
    }

    /// How long to wait before it is repeated: after back-off, and not before `floor` is over. None when it will have
    /// expired by then.
    pub(crate) fn repeat_after(&self, floor: Duration, unix: Timestamp) -> Option<Duration> {
        let expires_at = self.notification.rendering.expires_at();
        let at = repeat_at(self.failed, floor, expires_at, rand::random(), unix)?;
        Some(at.saturating_since(unix))
    }

    /// Attempts that failed.
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }

    /// How long ago it was taken out of its lake.
    pub(crate) fn latency(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.taken_at)
    }

    /// The outcome for the sink. It differs from `outcome` if an earlier attempt may have been delivered.
    pub(crate) fn told(&self, outcome: Outcome) -> Outcome {
        if self.maybe_delivered { outcome.after_unknown() } else { outcome }
    }
}

/// Knows for one batch which notifications are still to be sent. Asks once per job if that is enough, because
/// neighbours are mostly of one job.
pub(crate) struct Standings {
    sink: Arc<dyn OutcomeSink>,
    last: Option<(JournalPosition, JobStanding)>,
}

impl Standings {
    pub(crate) fn new(sink: Arc<dyn OutcomeSink>) -> Self {
        Self { sink, last: None }
    }

    fn standing(&mut self, ticket: Ticket) -> Standing {
        let job = match self.last {
            Some((last, standing)) if last == ticket.job => standing,
            _ => self.last.insert((ticket.job, self.sink.job_standing(ticket.job))).1,
        };
        match job {
            JobStanding::Go => Standing::Go,
            JobStanding::Cancelled => Standing::Cancelled,
            JobStanding::AskEach => self.sink.standing(ticket),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use tidings_push::payload::{ApnsBody, Encoded};
    use tidings_push::{Priority, PushType, Rendering, RenderingParts, Settled};
    use tidings_telemetry::{Registry, unix_now};
    use tidings_types::{AppId, CollapseKey, DeviceId, DeviceNumber, DeviceToken, EventId, NotificationId, Provider};

    use super::*;

    /// A device for which a newer notification is there.
    pub(crate) const SUPERSEDED: u32 = 1000;
    /// A device whose job was cancelled for it.
    pub(crate) const CANCELLED: u32 = 1001;

    /// Keeps what it is told; has a word on [`SUPERSEDED`] and [`CANCELLED`].
    #[derive(Default)]
    pub(crate) struct Sink(pub(crate) Mutex<Vec<Settled>>);

    impl Sink {
        pub(crate) fn outcomes(&self) -> Vec<Outcome> {
            self.0.lock().unwrap().iter().map(|it| it.outcome).collect()
        }
    }

    impl OutcomeSink for Sink {
        fn settle(&self, settled: &mut Vec<Settled>) {
            self.0.lock().unwrap().append(settled);
        }

        fn job_standing(&self, _job: JournalPosition) -> JobStanding {
            JobStanding::AskEach
        }

        fn standing(&self, ticket: Ticket) -> Standing {
            match ticket.device.0 {
                SUPERSEDED => Standing::Superseded,
                CANCELLED => Standing::Cancelled,
                _ => Standing::Go,
            }
        }
    }

    /// A notification to this device, for ten minutes.
    pub(crate) fn notification(device: u32) -> Notification {
        expiring(device, unix_now().saturating_add(Duration::from_secs(600)))
    }

    pub(crate) fn expiring(device: u32, expires_at: Timestamp) -> Notification {
        let parts = RenderingParts {
            app: AppId::new("org.example.scores").unwrap(),
            expires_at,
            collapse_id: CollapseKey::new("match-7").unwrap(),
        };
        let body =
            ApnsBody { bytes: Bytes::from_static(b"{}"), push_type: PushType::Alert, priority: Priority::Immediate };
        Notification {
            id: NotificationId::new(&EventId::new("goal-1").unwrap(), &DeviceId::new("phone").unwrap()),
            token: DeviceToken::from_hex("01").unwrap(),
            rendering: Arc::new(Rendering::new(parts, Encoded::Apns(body))),
            ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(device), cell: 0 },
            queued_at: unix_now(),
        }
    }

    pub(crate) fn metrics() -> Metrics {
        Metrics::new(&Registry::new(), Provider::Apns, "main")
    }

    fn attempt(notification: Notification) -> Attempt {
        Attempt::new(notification, EventPriority::Normal, Instant::now())
    }

    #[test]
    fn what_is_expired_superseded_or_cancelled_is_over() {
        let now = unix_now();
        let mut standings = Standings::new(Arc::<Sink>::default());
        let mut why_over = |notification| attempt(notification).why_over(&mut standings, now);
        assert_eq!(why_over(notification(1)), None);
        assert_eq!(why_over(expiring(1, now)), Some(Outcome::Expired));
        assert_eq!(why_over(notification(SUPERSEDED)), Some(Outcome::Superseded));
        assert_eq!(why_over(notification(CANCELLED)), Some(Outcome::Cancelled));
        assert_eq!(why_over(expiring(CANCELLED, now)), Some(Outcome::Expired), "the sink need not be asked");
    }

    #[test]
    fn a_repeat_hurries_once_waits_for_its_floor_and_is_not_made_after_its_expiry() {
        let (mut attempt, now, metrics) = (attempt(notification(1)), unix_now(), metrics());
        attempt.on_failed(Repeat::NotProcessed, &metrics);
        assert!(attempt.try_hurry() && !attempt.try_hurry());
        let floor = Duration::from_secs(60);
        assert!(attempt.repeat_after(floor, now).unwrap() >= floor);
        assert_eq!(attempt.repeat_after(Duration::from_secs(601), now), None);
        assert_eq!(attempt.failed(), 1);
    }

    #[test]
    fn after_an_unknown_outcome_nothing_is_said_to_be_certain() {
        let (mut attempt, metrics) = (attempt(notification(1)), metrics());
        attempt.on_failed(Repeat::Answer, &metrics);
        assert_eq!(attempt.told(Outcome::Expired), Outcome::Expired);
        attempt.on_failed(Repeat::Unknown, &metrics);
        attempt.on_failed(Repeat::Answer, &metrics);
        assert_eq!(attempt.told(Outcome::Expired), Outcome::Unknown);
    }
}
