//! The JSON of events in versions without push by evidence, to recognise repeats of events that such a version accepted.
//!
//! An id is stored with the hash of the event's JSON. The JSON now has two more fields that are always written, and the
//! default of `push` has changed. So without this module, a producer that repeats an event after the upgrade would get a
//! conflict. It is used only if the hashes differ, and until the ids from before the upgrade are forgotten. The JSON of
//! this version never has such a hash, so two different events of this version do not count as the same.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidings_types::{PushPolicy, ReceiptPolicy, event_limits};

use crate::hash::{Hash32, hash32};
use crate::rows;

/// The fields of that version in their order. The texts of the values are kept.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Former<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    topic: &'a RawValue,
    #[serde(borrow)]
    subjects: &'a RawValue,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    channels: Option<&'a RawValue>,
    push: PushPolicy,
    #[serde(skip_serializing)]
    receipt_wait: u64,
    #[serde(skip_serializing)]
    receipt_policy: ReceiptPolicy,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    collapse_key: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl: &'a RawValue,
}

/// The hash under which such a version stored the event with this `json`; `None` if the event uses newer features.
pub(crate) fn content(json: &[u8]) -> Option<Hash32> {
    let mut event: Former<'_> = serde_json::from_slice(json).ok()?;
    let receipt = (u128::from(event.receipt_wait), event.receipt_policy);
    if receipt != (event_limits::RECEIPT_WAIT_DEFAULT.as_millis(), ReceiptPolicy::default()) {
        return None;
    }
    if event.push == PushPolicy::UnlessReceived {
        event.push = PushPolicy::Always; // The former default.
    }
    Some(hash32(&rows::encode(&event)))
}
