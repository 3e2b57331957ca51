//! Jobs as the API shows them, and the port to the component that runs them: [`Jobs`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidings_jobs::DeviceTrail;
use tidings_types::{
    AppId, BrakeScope, DeviceNumber, Event, EventId, EventPriority, JobState, JournalPosition, Locale, Provider,
    TimeTo, Timestamp, TopicName,
};

use crate::rfc3339::Rfc3339;

/// Reports on jobs. Must not wait.
pub trait Jobs: Send + Sync {
    /// The job of the event at `position`; `None` before the job begins and after it is forgotten. A job that an
    /// earlier run of the server began and that waits to continue counts as running.
    fn job(&self, position: JournalPosition) -> Option<JobView>;

    /// The newest jobs of events before `before`, newest first.
    fn jobs(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JobView>;

    /// How long pushing `event` would take, by pool. Unlike the other methods it may work for a while if the audience
    /// is large: it is called on a thread that may block, one call at a time.
    fn estimate(&self, event: &Event) -> Vec<Estimate>;

    /// What `device` went through in the job of the event at `position`; `None` before the job begins and when that is
    /// not known any more.
    fn trail(&self, position: JournalPosition, device: DeviceNumber) -> Option<DeviceTrail>;

    /// At most `limit` events before `before` in whose job something is known of `device`, newest first. Like `estimate`
    /// it may work for a while: some 10 ms.
    fn events_of(&self, device: DeviceNumber, before: Option<JournalPosition>, limit: usize) -> DeviceEvents;
}

/// Events of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceEvents {
    /// Newest first.
    pub positions: Vec<JournalPosition>,
    /// Where to go on: there may be more before this event.
    pub next: Option<JournalPosition>,
}

/// How long pushing an event through one pool would take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// The provider that delivers.
    pub provider: Provider,
    /// The pool, as the configuration names it.
    pub pool: String,
    /// Devices of this pool.
    pub devices: u64,
    /// Minutes until the last device is answered, if nothing else is sent; `None` while the provider's speed is
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<f64>,
    /// What limits the speed: `quota` or `connections`; `None` if `minutes` is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<&'static str>,
}

/// The state of one event's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// The event's position in the journal.
    pub position: JournalPosition,
    /// The event.
    pub event: EventId,
    /// The topic of the event; `None` for a job that an older version has finished.
    pub topic: Option<TopicName>,
    /// The priority over other jobs.
    pub priority: EventPriority,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When the job was done; `None` while it runs, and for one that an older version has finished.
    pub done_at: Option<Timestamp>,
    /// The state of the job.
    pub state: JobState,
    /// The brake that holds everything that is left of the job.
    pub paused_by: Option<BrakeScope>,
    /// Devices selected.
    pub audience: u64,
    /// Devices that are not pushed yet because they may still prove that they got it.
    pub held: u64,
    /// Devices by outcome; the other devices have none yet.
    pub outcomes: Outcomes,
    /// Attempts beyond each device's first.
    pub retried: u64,
    /// The outcomes of devices that were handed to a provider, by provider, app and language.
    pub by: Vec<JobPart>,
    /// When the provider's answers came; `None` before the first.
    pub time_to: Option<TimeTo>,
    /// The same by provider; of those that have answered.
    pub time_to_by: Vec<(Provider, TimeTo)>,
    /// When devices had proven over their live connections that they have it; `None` if none has.
    pub time_to_live: Option<TimeTo>,
}

/// The outcomes of the devices of one provider, app and language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobPart {
    /// The provider that delivers.
    pub provider: Provider,
    /// The application.
    pub app: AppId,
    /// The language of the text; `None`: that of the source texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<Locale>,
    /// Devices by outcome. Devices that were not handed to a provider are in no part.
    pub outcomes: Outcomes,
}

/// Devices by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Outcomes {
    /// The provider took the notification.
    pub accepted: u64,
    /// Not pushed: the device proved that it has it.
    pub received: u64,
    /// The event's time was over before a provider took it.
    pub expired: u64,
    /// An attempt was made, and its result is not known.
    pub unknown: u64,
    /// The job was cancelled before a provider took it.
    pub cancelled: u64,
    /// A newer event with the same collapse key went out instead.
    pub superseded: u64,
    /// The provider refused the notification for good; by its reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Not sent; by the server's reason.
    pub suppressed: BTreeMap<&'static str, u64>,
}

/// The counts of a job in their JSON form.
#[derive(Debug, Serialize)]
pub(crate) struct Progress {
    #[serde(skip_serializing_if = "Option::is_none")]
    done_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_by: Option<BrakeScope>,
    audience: u64,
    held: u64,
    retried: u64,
    outcomes: Outcomes,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_to: Option<TimeToMillis>,
    /// By the name of the provider, and for `live` connections.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    time_to_by: BTreeMap<&'static str, TimeToMillis>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by: Vec<JobPart>,
}

#[derive(Debug, Serialize)]
struct TimeToMillis {
    first_ms: u64,
    p50_ms: u64,
    p90_ms: u64,
    p99_ms: u64,
    p100_ms: u64,
}

impl Progress {
    pub(crate) fn new(job: JobView) -> Self {
        let JobView { done_at, paused_by, audience, held, retried, outcomes, by, .. } = job;
        let (done_at, time_to) = (done_at.map(Rfc3339), job.time_to.map(TimeToMillis::from));
        let by_provider = job.time_to_by.into_iter().map(|(provider, time_to)| (provider.as_str(), time_to));
        let time_to_by = by_provider.chain(job.time_to_live.map(|time_to| ("live", time_to)));
        let time_to_by = time_to_by.map(|(name, time_to)| (name, time_to.into())).collect();
        Self { done_at, paused_by, audience, held, retried, outcomes, time_to, time_to_by, by }
    }
}

impl From<TimeTo> for TimeToMillis {
    fn from(TimeTo { first, p50, p90, p99, p100 }: TimeTo) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            first_ms: millis(first),
            p50_ms: millis(p50),
            p90_ms: millis(p90),
            p99_ms: millis(p99),
            p100_ms: millis(p100),
        }
    }
}

/// A job in the JSON form of `GET /v1/jobs/{position}`, also for the webhook.
#[derive(Debug, Serialize)]
pub struct JobEntry {
    id: EventId,
    position: JournalPosition,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<TopicName>,
    priority: EventPriority,
    accepted_at: Rfc3339,
    state: JobState,
    #[serde(flatten)]
    progress: Progress,
}

impl From<JobView> for JobEntry {
    fn from(job: JobView) -> Self {
        Self {
            id: job.event.clone(),
            position: job.position,
            topic: job.topic.clone(),
            priority: job.priority,
            accepted_at: Rfc3339(job.accepted_at),
            state: job.state,
            progress: Progress::new(job),
        }
    }
}
