//! What providers answer, what producers put over our payloads, and where browsers say that they are to be reached.

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tidings_push::payload::{APNS_PAYLOAD_BYTES_MAX, Content, FCM_PAYLOAD_BYTES_MAX, WEB_PUSH_PAYLOAD_BYTES_MAX};
use tidings_push::web_push::guard::Endpoint;
use tidings_push::{Dialect, Verdict, apns, fcm, web_push};
use tidings_types::{CollapseKey, EventId, Json, Payload, Present, Provider, Timestamp};
use url::{Host, Url};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// An answer of a provider: two bytes of status, then the body, which is the pause it asks for as well. 200 is accepted, and
/// nothing that is no success; no token is gone in the future.
pub(crate) fn answer(bytes: &[u8]) {
    let Some((status, body)) = bytes.split_first_chunk() else { return };
    let Ok(status) = StatusCode::from_u16(100 + u16::from_be_bytes(*status) % 900) else { return };
    let mut headers = HeaderMap::new();
    if let Ok(pause) = HeaderValue::from_bytes(body) {
        headers.insert(http::header::RETRY_AFTER, pause);
    }
    let apns = apns::Apns::new("a.example").expect("a host");
    let fcm = fcm::Fcm::new("a.example", "project").expect("a host and a project");
    for dialect in [&apns as &dyn Dialect, &fcm, &web_push::WebPush] {
        let verdict = dialect.classify(status, &headers, body, NOW);
        assert!(verdict != Verdict::Accepted || status.is_success(), "{status} is {verdict:?}");
        assert!(verdict == Verdict::Accepted || status != StatusCode::OK, "{status} is {verdict:?}");
        if let Verdict::Rejected { gone_at, .. } = verdict {
            assert!(gone_at.is_none_or(|at| at <= NOW));
        }
    }
}

/// A title, and after zero bytes a body, a patch and a value of the producer's: within each provider's limit or refused, and
/// for APNs patched as RFC 7396 has it; the others check what a patch leaves, so only their limits are looked at.
pub(crate) fn payload(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut parts = text.splitn(4, '\0');
    let title = parts.next().unwrap_or_default();
    let body = parts.next().unwrap_or_default();
    let [patch, data] = [parts.next(), parts.next()].map(|part| Json::parse(part.unwrap_or_default().as_bytes()).ok());
    let event = EventId::new("goal-1").expect("it is one");
    let collapse_id = CollapseKey::new("match-7").expect("it is one");
    let present = Present::default();
    let none = Payload::default();
    let patches = Payload { apns: patch.clone(), fcm: patch.clone(), webpush: patch.clone() };
    let plain = Content {
        title,
        body,
        present: &present,
        thread: None,
        event: &event,
        stream: None,
        data: data.as_ref(),
        patches: &none,
        urgency: None,
        collapse_id: &collapse_id,
    };
    let encode = |content: &Content<'_>, provider| {
        let encoded = content.encode(provider).ok()?.bytes().clone();
        let bytes_max = match provider {
            Provider::Apns => APNS_PAYLOAD_BYTES_MAX,
            Provider::Fcm => FCM_PAYLOAD_BYTES_MAX,
            Provider::WebPush => WEB_PUSH_PAYLOAD_BYTES_MAX,
        };
        assert!(encoded.len() <= bytes_max);
        Json::parse(&encoded).expect("a payload is JSON");
        Some(encoded)
    };
    let patched = Content { patches: &patches, ..plain };
    for provider in [Provider::Fcm, Provider::WebPush] {
        _ = (encode(&plain, provider), encode(&patched, provider));
    }
    let (Some(unpatched), Some(patch)) = (encode(&plain, Provider::Apns), patch) else { return };
    let Some(patched) = encode(&patched, Provider::Apns) else { return };
    // What a tree of values cannot hold (half a surrogate pair, a number beyond all bounds) is not compared.
    let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    if let (Some(mut expected), Some(patch), Some(found)) = (value(&unpatched), value(patch.bytes()), value(&patched)) {
        merge(&mut expected, &patch);
        assert_eq!(found, expected);
    }
}

/// A browser's endpoint: what we take, a browser reads alike (WHATWG URL), and its host is a name.
pub(crate) fn endpoint(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(endpoint) = Endpoint::parse(text) else { return };
    let url = match Url::parse(text) {
        Ok(url) => url,
        // We do not decode these: a resolver takes them as they are, and finds none that is none.
        Err(_) if endpoint.host().split('.').any(|label| label.starts_with("xn--")) => return,
        Err(error) => panic!("what is taken is a URL: {error}"),
    };
    assert_eq!(url.scheme(), "https");
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none(), "{url}");
    let Some(Host::Domain(host)) = url.host() else { panic!("{:?} is no name", url.host()) };
    assert_eq!(host.strip_suffix('.').unwrap_or(host), endpoint.host());
    assert_eq!(url.port_or_known_default(), Some(endpoint.port()));
    assert_eq!(endpoint.uri().host(), Some(endpoint.host()), "the request goes where the rules looked");
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
