//! What providers answer and what producers put over our payloads.

use http::StatusCode;
use serde_json::Value;
use tidings_push::apns::{Verdict, classify};
use tidings_push::payload::{APNS_PAYLOAD_BYTES_MAX, ApnsPayload};
use tidings_types::{EventId, Json, Present, Timestamp};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// An answer of APNs: two bytes of status, then the body. Only 200 is success; no token is gone in the future.
pub(crate) fn answer(bytes: &[u8]) {
    let Some((status, body)) = bytes.split_first_chunk() else { return };
    let Ok(status) = StatusCode::from_u16(100 + u16::from_be_bytes(*status) % 900) else { return };
    let verdict = classify(status, body, NOW);
    assert_eq!(verdict == Verdict::Accepted, status == StatusCode::OK);
    if let Verdict::Rejected { gone_at, .. } = verdict {
        assert!(gone_at.is_none_or(|at| at <= NOW));
    }
}

/// A title, and after zero bytes a body, a patch and a value of the producer's: within the limit or refused, and
/// patched as RFC 7396 has it.
pub(crate) fn payload(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut parts = text.splitn(4, '\0');
    let title = parts.next().unwrap_or_default();
    let body = parts.next().unwrap_or_default();
    let [patch, data] = [parts.next(), parts.next()].map(|part| Json::parse(part.unwrap_or_default().as_bytes()).ok());
    let event = EventId::new("goal-1").expect("it is one");
    let present = Present::default();
    let plain = ApnsPayload {
        title,
        body,
        present: &present,
        thread: None,
        event: &event,
        stream: None,
        data: data.as_ref(),
        patch: None,
    };
    let encode = |payload: &ApnsPayload<'_>| {
        let encoded = payload.encode().ok()?.bytes;
        assert!(encoded.len() <= APNS_PAYLOAD_BYTES_MAX);
        Json::parse(&encoded).expect("a payload is JSON");
        Some(encoded)
    };
    let Some(unpatched) = encode(&plain) else { return };
    let Some(patch) = patch else { return };
    let Some(patched) = encode(&ApnsPayload { patch: Some(&patch), ..plain }) else { return };
    // What a tree of values cannot hold (half a surrogate pair, a number beyond all bounds) is not compared.
    let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    if let (Some(mut expected), Some(patch), Some(found)) = (value(&unpatched), value(patch.bytes()), value(&patched)) {
        merge(&mut expected, &patch);
        assert_eq!(found, expected);
    }
}

/// `MergePatch` of RFC 7396, 2, word by word.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let object = target.as_object_mut().expect("made one above");
    for (name, value) in members {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name).or_insert(Value::Null), value);
        }
    }
}
