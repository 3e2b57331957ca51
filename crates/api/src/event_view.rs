//! How answers show an event's state and its places in channels.

use serde::{Serialize, Serializer};
use tidings_store::LaterEvent;
use tidings_types::{ChannelName, Epoch, EventId, Offset, StreamPosition, TopicName, words};

use crate::rfc3339::Rfc3339;

words! {
    /// The state of an event.
    pub enum EventState {
        /// It has an `at` that is still to come.
        Scheduled = "scheduled",
        /// It is accepted and durable, and its job has not begun: the server still reads events before it.
        Waiting = "waiting",
        /// Its audience is being selected, or it waits for a slot, or devices are being sent to.
        Running = "running",
        /// A pause holds it; `paused_by` names the pause.
        Paused = "paused",
        /// It was cancelled. Devices that had not been sent to by then are not pushed.
        Cancelled = "cancelled",
        /// Every device has its outcome.
        Finished = "finished",
        /// It had a job, but the numbers are no longer remembered (`sender.report_count_max`).
        Forgotten = "forgotten",
    }
}

impl Serialize for EventState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The state of an event that is not due yet.
pub(crate) const SCHEDULED: &str = EventState::Scheduled.as_str();

/// An event that is not due yet.
#[derive(Debug, Serialize)]
pub(crate) struct Scheduled<'a> {
    id: &'a EventId,
    topic: &'a TopicName,
    accepted_at: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    state: &'static str,
    at: Rfc3339,
}

impl<'a> Scheduled<'a> {
    pub(crate) fn new(LaterEvent { key, accepted_at, event, .. }: &'a LaterEvent) -> Self {
        let (accepted_at, at) = (Rfc3339(*accepted_at), Rfc3339(key.at));
        let trace_id = event.trace.as_ref().map(|trace| trace.trace.to_string());
        Self { id: &event.id, topic: &event.topic, accepted_at, trace_id, state: SCHEDULED, at }
    }
}

/// The event's place in a channel.
#[derive(Debug, Serialize)]
pub(crate) struct Place<'a> {
    channel: &'a ChannelName,
    offset: Offset,
    epoch: Epoch,
}

impl<'a> Place<'a> {
    pub(crate) fn new((channel, position): &'a (ChannelName, StreamPosition)) -> Self {
        let StreamPosition { offset, epoch } = *position;
        Self { channel, offset, epoch }
    }
}
