//! What producers send: an event.

use tidings_types::{Event, event_limits as limits};

/// Bytes of what a refusal says: it may name a field and show a little of the value, and is no copy of the body.
const DETAIL_BYTES_MAX: usize = 2048;

/// An event that is taken is within its limits, and the journal's row of it reads as the same event: what was
/// acknowledged is what is done after a restart, and a repeat is known as one.
pub(crate) fn event(bytes: &[u8]) {
    let event = match tidings_api::read_event(bytes) {
        Ok(event) => event,
        Err(detail) => {
            assert!((1..=DETAIL_BYTES_MAX).contains(&detail.len()), "{} bytes: {detail}", detail.len());
            return;
        }
    };
    let row = serde_json::to_vec(&event).expect("an event is JSON");
    let read: Event = serde_json::from_slice(&row).expect("the journal reads what it has written");
    assert_eq!(read, event);
    assert_eq!(serde_json::to_vec(&read).expect("it was JSON before"), row, "a repeat has the same bytes");

    assert!((1..=limits::SUBJECT_COUNT_MAX).contains(&event.subjects.len()));
    assert!(event.channels.len() <= limits::CHANNEL_COUNT_MAX && event.params.len() <= limits::PARAM_COUNT_MAX);
    assert!(event.params.keys().all(|name| (1..=limits::PARAM_NAME_BYTES_MAX).contains(&name.len())));
    assert!(event.text.len() <= limits::TEXT_COUNT_MAX);
    let texts = event.text.values().flat_map(|text| [&text.title, &text.body]);
    assert!(texts.into_iter().all(|text| text.len() <= limits::TEXT_BYTES_MAX));
    assert!(event.data.as_ref().is_none_or(|data| data.bytes().len() <= limits::DATA_BYTES_MAX));
    assert!(event.payload.apns.as_ref().is_none_or(|patch| patch.bytes().len() <= limits::PAYLOAD_BYTES_MAX));
    assert!(event.to.as_ref().is_none_or(|to| !to.users.is_empty() || !to.devices.is_empty()), "a choice of nobody");
    assert!((limits::RECEIPT_WAIT_MIN..=limits::RECEIPT_WAIT_MAX).contains(&event.receipt_wait));
    assert!(event.ttl <= limits::TTL_MAX && event.ttl.subsec_nanos() == 0, "whole seconds: {:?}", event.ttl);
}
