//! How versions without push by evidence spelt an event, so that what they accepted is known again.
//!
//! An id is remembered with the hash of the event's spelling. By now two more fields are always spelt, and who says nothing
//! of `push` means another policy: a producer that repeats an event across the upgrade would be told that it is another
//! one. Asked only where the hashes differ, and of use until the ids of before the upgrade are forgotten. What is spelt
//! now never has such a hash, so two events of this version are not taken for one.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidings_types::{PushPolicy, ReceiptPolicy, event_limits};

use crate::hash::{Hash32, hash32};
use crate::rows;

/// The fields there were, in their order; the texts are taken over as they are.
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

/// The hash by which such a version remembers the event that is spelt `json` now; `None` when it says what could not
/// be said then.
pub(crate) fn content(json: &[u8]) -> Option<Hash32> {
    let mut event: Former<'_> = serde_json::from_slice(json).ok()?;
    let receipt = (u128::from(event.receipt_wait), event.receipt_policy);
    if receipt != (event_limits::RECEIPT_WAIT_DEFAULT.as_millis(), ReceiptPolicy::default()) {
        return None;
    }
    if event.push == PushPolicy::UnlessReceived {
        event.push = PushPolicy::Always; // What saying nothing meant.
    }
    Some(hash32(&rows::encode(&event)))
}
