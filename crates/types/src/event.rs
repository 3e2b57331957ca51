//! What a producer hands in, and the identity of what a device gets of it.
//!
//! [`Event`] is also the durable form of the journal, so a change of its serde form is a change of the store's format.
//! The bounds are in [`event_limits`]; whoever reads events from outside (the API) checks them and names the field, an
//! `Event` that exists is within them. Values of parameters never show in `Debug`.
//!
//! Not here: the texts of a topic, and what `push: unless_received` and the other fields of later issues would mean.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{ChannelName, CollapseKey, DeviceId, EventId, Json, Subject, TopicName};

/// The limits an event is checked against; a refusal names the field, the limit and the value.
pub mod event_limits {
    use std::time::Duration;

    /// Subjects per event.
    pub const SUBJECT_COUNT_MAX: usize = 16;
    /// Channels an event may name.
    pub const CHANNEL_COUNT_MAX: usize = 16;
    /// Parameters per event.
    pub const PARAM_COUNT_MAX: usize = 32;
    /// Bytes of a parameter's name.
    pub const PARAM_NAME_BYTES_MAX: usize = 64;
    /// Bytes of a text parameter.
    pub const PARAM_TEXT_BYTES_MAX: usize = 512;
    /// Bytes of `data`.
    pub const DATA_BYTES_MAX: usize = 32 * 1024;
    /// Events in one request.
    pub const BATCH_COUNT_MAX: usize = 1000;
    /// The life of an event that does not state one.
    pub const TTL_DEFAULT: Duration = Duration::from_secs(4 * 3600);
    /// The longest life: what APNs keeps for a device that is off.
    pub const TTL_MAX: Duration = Duration::from_secs(28 * 24 * 3600);
}

/// What a producer hands in: something happened, about these subjects.
///
/// Invariant: within [`event_limits`]; a list has no duplicates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The producer's name for it; the same id is the same event.
    pub id: EventId,
    /// Which kind of event; names the text templates.
    pub topic: TopicName,
    /// What it is about, 1 to 16; whoever subscribed to `topic` on any of them is told.
    pub subjects: Vec<Subject>,
    /// What the templates' placeholders are filled with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ParamValue>,
    /// What connected clients are given; without it they get topic, subjects and params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// Where it is published; without any, the channel named like the first subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelName>,
    /// Who is pushed.
    pub push: PushPolicy,
    /// What it replaces on a device; without one, an earlier delivery of itself only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse_key: Option<CollapseKey>,
    /// How long after its acceptance it is still worth delivering, in whole seconds.
    #[serde(with = "seconds")]
    pub ttl: Duration,
}

/// Who is told by push notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushPolicy {
    /// Every device of the audience.
    #[default]
    Always,
    /// Nobody: connected clients only.
    Never,
}

/// What fills a placeholder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// A whole number; may choose a plural form.
    Integer(i64),
    /// A decimal number, shown as JSON spells it.
    Decimal(f64),
    /// Text as it is.
    Text(String),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Decimal(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

// User text never reaches a log (invariant 9).
impl fmt::Debug for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer(_) => "Integer",
            Self::Decimal(_) => "Decimal",
            Self::Text(_) => "Text",
        })
    }
}

/// Identity of one notification: derived from event and device, so that a repeat carries the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NotificationId(pub Uuid);

impl NotificationId {
    /// The UUIDv5 (RFC 9562, 5.5) of event id and device id, in a name space of our own.
    pub fn new(event: &EventId, device: &DeviceId) -> Self {
        const NAMESPACE: Uuid = Uuid::from_u128(0x7d1f_b1c4_52d9_4f0e_9a57_2c1c_0d6e_a2f1);
        let mut name = Vec::with_capacity(event.as_str().len() + device.as_str().len() + 1);
        name.extend_from_slice(event.as_str().as_bytes());
        name.push(b' '); // Neither id can hold a space, so no two pairs share a name.
        name.extend_from_slice(device.as_str().as_bytes());
        Self(Uuid::new_v5(&NAMESPACE, &name))
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(duration.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_keeps_its_id_over_repeats_and_no_two_share_one() {
        let id = |event: &str, device: &str| {
            NotificationId::new(&EventId::new(event).unwrap(), &DeviceId::new(device).unwrap())
        };
        assert_eq!(id("goal-1", "phone"), id("goal-1", "phone"));
        assert_ne!(id("goal-1", "phone"), id("goal-1p", "hone"));
    }
}
