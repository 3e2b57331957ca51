//! What a payload contains. Whatever the event and the patch say, the payload fits `docs/payload.schema.json` and the
//! provider's limit.

use std::sync::LazyLock;

use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tidings_types::{
    AppId, ChannelName, CollapseKey, Epoch, EventId, Interruption, Json, Offset, Payload, Present, StreamPosition,
    Urgency,
};

use super::*;
use crate::{Priority, PushType};

mod others;
mod schema;

const NOTHING: Present = Present {
    link: None,
    image: None,
    sound: None,
    badge: None,
    thread: None,
    category: None,
    interruption: None,
    android_channel: None,
};

fn event() -> EventId {
    EventId::new("goal-1").unwrap()
}

static COLLAPSE_ID: LazyLock<CollapseKey> = LazyLock::new(|| CollapseKey::new("match-7").unwrap());
const UNPATCHED: Payload = Payload { apns: None, fcm: None, webpush: None };

fn content<'a>(title: &'a str, event: &'a EventId, present: &'a Present) -> Content<'a> {
    Content {
        title,
        body: "1 : 0",
        present,
        thread: None,
        event,
        stream: None,
        data: None,
        patches: &UNPATCHED,
        urgency: None,
        collapse_id: &COLLAPSE_ID,
    }
}

/// The same patch for every provider.
fn patches(patch: Option<&Json>) -> Payload {
    Payload { apns: patch.cloned(), fcm: patch.cloned(), webpush: patch.cloned() }
}

fn apns(content: &Content<'_>) -> Result<ApnsBody, PayloadError> {
    let app = AppId::new("org.example.scores").unwrap();
    content.encode(Provider::Apns).map(|encoded| match encoded {
        Encoded::Apns(body) => crate::apns::addressed(body, &app),
        other => panic!("{other:?}"),
    })
}

/// The payload for a provider other than Apple, with `patch` and some data.
fn given(provider: Provider, present: &Present, patch: &str) -> Result<Value, PayloadError> {
    let patches = patches(Some(&Json::parse(patch.as_bytes()).unwrap()));
    let data = Json::of(&json!({"score": [1, 0]}));
    let event = event();
    let content = Content { patches: &patches, data: Some(&data), ..content("Goal", &event, present) };
    content.encode(provider).map(|encoded| serde_json::from_slice(encoded.bytes()).unwrap())
}

fn encoded(present: &Present, patch: &str) -> Result<(Value, PushType, Priority), PayloadError> {
    let patches = patches(Some(&Json::parse(patch.as_bytes()).unwrap()));
    let data = Json::of(&json!({"score": [1, 0]}));
    let event = event();
    let content =
        Content { patches: &patches, data: Some(&data), thread: Some("m:1"), ..content("Goal", &event, present) };
    let ApnsBody { bytes, push_type, priority } = apns(&content)?;
    Ok((serde_json::from_slice(&bytes).unwrap(), push_type, priority))
}

fn aps(present: &Present) -> Value {
    encoded(present, "{}").unwrap().0["aps"].take()
}

#[test]
fn everything_is_where_the_app_looks_for_it() {
    let event = event();
    let channel = ChannelName::new("match:7").unwrap();
    let position = StreamPosition { offset: Offset(12), epoch: Epoch::try_from("AbCdEfGh".to_owned()).unwrap() };
    let data = Json::parse(br#"{"score":[1,0]}"#).unwrap();
    let present = Present {
        link: Some("app://match/7".to_owned()),
        image: Some("https://example.org/1.jpg".to_owned()),
        badge: Some(0),
        category: Some("GOAL".to_owned()),
        interruption: Some(Interruption::TimeSensitive),
        android_channel: Some("goals".to_owned()),
        ..NOTHING
    };
    let full = Content {
        thread: Some("match:7"),
        stream: Some((&channel, position)),
        data: Some(&data),
        ..content("Goal \"!\"", &event, &present)
    };
    let ApnsBody { bytes, push_type, priority } = apns(&full).unwrap();
    assert_eq!((push_type, priority), (PushType::Alert, Priority::Immediate));
    assert_eq!(
        bytes,
        concat!(
            r#"{"aps":{"alert":{"title":"Goal \"!\"","body":"1 : 0"},"sound":"default","badge":0,"#,
            r#""thread-id":"match:7","category":"GOAL","interruption-level":"time-sensitive","mutable-content":1},"#,
            r#""tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12,"#,
            r#""link":"app://match/7","image":"https://example.org/1.jpg"},"data":{"score":[1,0]}}"#
        )
    );
    let plain = apns(&content("Goal", &event, &NOTHING)).unwrap();
    assert_eq!(
        plain.bytes,
        concat!(
            r#"{"aps":{"alert":{"title":"Goal","body":"1 : 0"},"sound":"default"},"#,
            r#""tidings":{"event":"goal-1"}}"#
        )
    );
}

#[test]
fn sound_is_the_default_none_or_of_the_app_and_a_critical_one_says_so() {
    let sound = |sound: Option<&str>, interruption| {
        aps(&Present { sound: sound.map(str::to_owned), interruption, ..NOTHING })["sound"].take()
    };
    assert_eq!(sound(None, None), json!("default"));
    assert_eq!(sound(Some("goal.caf"), Some(Interruption::Active)), json!("goal.caf"));
    assert_eq!(sound(Some("none"), None), Value::Null);
    let critical = Some(Interruption::Critical);
    assert_eq!(sound(None, critical), json!({"critical": 1, "name": "default", "volume": 1}));
    assert_eq!(sound(Some("none"), critical), Value::Null);
}

#[test]
fn an_own_thread_comes_before_the_subject() {
    assert_eq!(aps(&NOTHING)["thread-id"], "m:1");
    assert_eq!(aps(&Present { thread: Some("table".to_owned()), ..NOTHING })["thread-id"], "table");
}

#[test]
fn a_patch_goes_over_the_whole() {
    let (value, ..) = encoded(
        &NOTHING,
        r#"{"aps":{"alert":{"subtitle":"Final"},"sound":null},"data":{"score":null,"more":1},"app":{"v":2}}"#,
    )
    .unwrap();
    assert_eq!(
        value,
        json!({
            "aps": {"alert": {"title": "Goal", "body": "1 : 0", "subtitle": "Final"}, "thread-id": "m:1"},
            "tidings": {"event": "goal-1"},
            "data": {"more": 1},
            "app": {"v": 2},
        })
    );
}

#[test]
fn a_payload_without_alert_sound_and_badge_is_a_background_push() {
    let kind = |present: &Present, patch: &str| encoded(present, patch).map(|(_, kind, priority)| (kind, priority));
    let (alert, background) = ((PushType::Alert, Priority::Immediate), (PushType::Background, Priority::Considerate));
    let silent = r#"{"aps":{"alert":null,"sound":null,"content-available":1}}"#;
    assert_eq!(kind(&NOTHING, silent), Ok(background));
    assert_eq!(kind(&Present { sound: Some("none".to_owned()), ..NOTHING }, silent), Ok(background));
    assert_eq!(kind(&Present { badge: Some(0), ..NOTHING }, silent), Ok(alert), "a badge is to be seen");
    assert_eq!(kind(&NOTHING, r#"{"aps":{"alert":null,"content-available":1}}"#), Ok(alert), "a sound is to be heard");
    assert_eq!(kind(&NOTHING, r#"{"aps":{"content-available":1}}"#), Ok(alert));
    assert_eq!(kind(&NOTHING, r#"{"aps":{"alert":{"title":null,"body":null}}}"#), Ok(alert), "as is a sound alone");
    for nothing in [
        r#"{"aps":{"alert":null,"sound":null}}"#,
        r#"{"aps":{"alert":null,"sound":null,"content-available":0}}"#,
        r#"{"aps":{"alert":{"title":null,"body":null},"sound":null}}"#,
        r#"{"aps":{"alert":{"title":null,"body":null},"sound":null,"content-available":1}}"#,
        r#"{"aps":{"alert":"","sound":null}}"#,
    ] {
        assert_eq!(kind(&NOTHING, nothing), Err(PatchError::Nothing.into()));
    }
}

#[test]
fn a_patch_that_leaves_no_payload_is_refused() {
    let refusal = |patch: &str| encoded(&NOTHING, patch).unwrap_err();
    for patch in ["null", "1", "[]", "\"aps\""] {
        assert_eq!(refusal(patch), PatchError::NotAnObject.into(), "{patch}");
    }
    for patch in [r#"{"tidings":{"event":"x"}}"#, r#"{"tidings":null}"#, r#"{"\u0074idings":1}"#] {
        assert_eq!(refusal(patch), PatchError::Tidings.into(), "{patch}");
    }
    for patch in [r#"{"aps":null}"#, r#"{"aps":1}"#, r#"{"aps":[]}"#] {
        assert_eq!(refusal(patch), PatchError::NoAps.into(), "{patch}");
    }
    assert_eq!(refusal(r#"{"a":{"\udc00":1}}"#), PatchError::Unreadable.into());
}

#[test]
fn the_limit_is_exact_and_the_refusal_tells_what_is_too_large() {
    let event = event();
    let fits = |title: &str| apns(&content(title, &event, &NOTHING)).map(|body| body.bytes.len());
    let text = "x".repeat(APNS_PAYLOAD_BYTES_MAX - fits("").unwrap());
    assert_eq!(fits(&text), Ok(APNS_PAYLOAD_BYTES_MAX));
    let error = fits(&format!("{text}x")).unwrap_err();
    assert_eq!(error.to_string(), "the payload has 4097 bytes, limit 4096");
    assert_eq!(fits(&text.replacen("xxxx", "🥅", 1)), Ok(APNS_PAYLOAD_BYTES_MAX), "bytes count, not letters");
    assert!(fits(&text.replacen("xxx", "🥅", 1)).is_err());

    let long = "x".repeat(APNS_PAYLOAD_BYTES_MAX);
    let (data, patch) = (Json::of(&long), Json::of(&json!({"x": &long})));
    let link = Present { link: Some(long.clone()), ..NOTHING };
    let part = |content: Content<'_>| match apns(&content) {
        Err(PayloadError::TooLarge { part, .. }) => Some(part),
        _ => None,
    };
    let short = content("Goal", &event, &NOTHING);
    assert_eq!(part(content(&long, &event, &NOTHING)), Some(Part::Text));
    assert_eq!(part(content("Goal", &event, &link)), Some(Part::Present));
    assert_eq!(part(Content { data: Some(&data), ..short }), Some(Part::Data));
    assert_eq!(part(Content { patches: &patches(Some(&patch)), ..short }), Some(Part::Patch));
    let without_data = patches(Some(&Json::of(&json!({"data": null}))));
    assert_eq!(part(Content { data: Some(&data), patches: &without_data, ..short }), None);
}

/// A value of any shape.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), ".{0,8}".prop_map(Value::from)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A patch with what Apple understands, and with any other values beside that.
fn patch() -> impl Strategy<Value = Value> {
    let alert = prop_oneof![
        Just(Value::Null),
        ".{1,16}".prop_map(Value::from),
        ".{1,16}".prop_map(|key| json!({"title": null, "loc-key": key, "loc-args": ["1"]})),
    ];
    let members = (
        option::of(alert),
        option::of(prop_oneof![Just(Value::Null), Just(json!("goal.caf"))]),
        option::of(prop_oneof![Just(Value::Null), Just(json!(1))]),
        option::of(prop_oneof![Just(Value::Null), any::<u16>().prop_map(Value::from)]),
        option::of(value()),
    );
    let aps = members.prop_map(|(alert, sound, wakes, badge, own)| {
        let named =
            [("alert", alert), ("sound", sound), ("content-available", wakes), ("badge", badge), ("x-own", own)];
        Value::Object(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    });
    let own = prop::collection::btree_map("[a-z]{1,3}", value(), 0..3);
    (option::of(aps), option::of(value()), own).prop_map(|(aps, data, own)| {
        let mut patch: Map<String, Value> = own.into_iter().filter(|(name, _)| name != "aps").collect();
        patch.extend(aps.map(|aps| ("aps".to_owned(), aps)));
        patch.extend(data.map(|data| ("data".to_owned(), data)));
        Value::Object(patch)
    })
}

fn present() -> impl Strategy<Value = Present> {
    let text = || option::of(".{1,80}");
    let interruption = prop::sample::select(vec![
        None,
        Some(Interruption::Passive),
        Some(Interruption::Active),
        Some(Interruption::TimeSensitive),
        Some(Interruption::Critical),
    ]);
    let sound = option::of(prop_oneof![Just("none".to_owned()), ".{1,80}"]);
    (text(), text(), sound, any::<Option<u32>>(), text(), text(), interruption).prop_map(
        |(link, image, sound, badge, thread, category, interruption)| Present {
            link,
            image,
            sound,
            badge,
            thread,
            category,
            interruption,
            android_channel: None,
        },
    )
}

proptest! {
    /// Whatever the event asks for, the result is an error or a payload as `docs/payload.md` promises.
    #[test]
    fn a_payload_keeps_to_its_schema_and_limit(
        texts in (".{0,200}", ".{0,200}"),
        present in present(),
        patch in option::of(patch()),
        data in option::of(value()),
        large in option::weighted(0.2, 3500_usize..4500),
        offset in option::of(1_u64..),
    ) {
        let event = event();
        let channel = ChannelName::new("match:\"7\"").unwrap();
        let stream = offset.map(|offset| {
            (&channel, StreamPosition { offset: Offset(offset), epoch: Epoch::from_random(offset) })
        });
        let data = large.map(|bytes| json!("x".repeat(bytes))).or(data).map(|data| Json::of(&data));
        let patches = patches(patch.as_ref().map(Json::of).as_ref());
        let content = Content {
            title: &texts.0, body: &texts.1, present: &present, thread: Some("m:1"), event: &event, stream,
            data: data.as_ref(), patches: &patches, urgency: None, collapse_id: &COLLAPSE_ID,
        };
        match apns(&content) {
            Ok(ApnsBody { bytes, push_type, priority }) => {
                prop_assert!(bytes.len() <= APNS_PAYLOAD_BYTES_MAX);
                let value: Value = serde_json::from_slice(&bytes).unwrap();
                prop_assert_eq!(schema::complaints(Provider::Apns, &value), Vec::<String>::new());
                prop_assert_eq!(&value["tidings"]["event"], "goal-1");
                prop_assert_eq!(value["tidings"].get("offset").cloned(), offset.map(Value::from));
                let shown = ["alert", "sound", "badge"].iter().any(|name| value["aps"].get(name).is_some());
                prop_assert_eq!(push_type == PushType::Alert, shown);
                prop_assert_eq!(priority == Priority::Immediate, shown);
                if patch.is_none() {
                    prop_assert_eq!(&value["aps"]["alert"], &json!({"title": texts.0, "body": texts.1}));
                }
            }
            Err(PayloadError::TooLarge { bytes, limit, .. }) => prop_assert!(bytes > limit),
            Err(PayloadError::Patch(error)) => {
                prop_assert!(patch.is_some());
                prop_assert_eq!(error, PatchError::Nothing);
            }
        }
    }

    /// Whatever the patch is: no panic, and the member `tidings` is the server's own.
    #[test]
    fn no_patch_reaches_what_is_ours(patch in value()) {
        if let Ok((value, ..)) = encoded(&NOTHING, &patch.to_string()) {
            prop_assert_eq!(&value["tidings"], &json!({"event": "goal-1"}));
        }
    }
}
