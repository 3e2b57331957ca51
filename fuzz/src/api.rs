//! What producers send: an event; and what whoever moves devices sends: a line of an import.

use std::collections::BTreeSet;

use tidings_types::{Event, Recipients, event_limits as limits};

/// Bytes of what a refusal says: it may name a field and show a little of the value, and is no copy of the body.
const DETAIL_BYTES_MAX: usize = 2048;

/// What a device may be subscribed to: few, so that a short input has more.
const SUBSCRIPTION_COUNT_MAX: usize = 4;

/// A device that is taken is within its limits, and each thing of it is there once.
pub(crate) fn device(bytes: &[u8]) {
    let import = match tidings_api::read_device(bytes, SUBSCRIPTION_COUNT_MAX) {
        Ok(import) => import,
        Err(detail) => {
            assert!((1..=DETAIL_BYTES_MAX).contains(&detail.len()), "{} bytes: {detail}", detail.len());
            return;
        }
    };
    let subscriptions: BTreeSet<_> = import.subscriptions.iter().collect();
    assert!(subscriptions.len() == import.subscriptions.len() && subscriptions.len() <= SUBSCRIPTION_COUNT_MAX);
    let scopes: BTreeSet<_> = import.mutes.iter().map(|mute| &mute.scope).collect();
    assert_eq!(scopes.len(), import.mutes.len(), "a scope twice");
}

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
    let names_somebody = |to: &Recipients| !to.users.is_empty() || !to.devices.is_empty() || to.selector.is_some();
    assert!(event.to.as_ref().is_none_or(names_somebody), "a choice of nobody");
    assert!((limits::RECEIPT_WAIT_MIN..=limits::RECEIPT_WAIT_MAX).contains(&event.receipt_wait));
    assert!(event.ttl <= limits::TTL_MAX && event.ttl.subsec_nanos() == 0, "whole seconds: {:?}", event.ttl);
}
