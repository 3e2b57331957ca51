//! The payloads for FCM and for browsers.

use super::*;
use crate::payload::{FCM_PAYLOAD_BYTES_MAX, WEB_PUSH_PAYLOAD_BYTES_MAX};

const FULL: fn() -> Present = || Present {
    link: Some("app://match/7".to_owned()),
    image: Some("https://example.org/1.jpg".to_owned()),
    badge: Some(3),
    sound: Some("goal".to_owned()),
    category: Some("GOAL".to_owned()),
    interruption: Some(Interruption::TimeSensitive),
    android_channel: Some("goals".to_owned()),
    ..NOTHING
};

fn bytes(provider: Provider, present: &Present) -> Bytes {
    let event = event();
    let channel = ChannelName::new("match:7").unwrap();
    let position = StreamPosition { offset: Offset(12), epoch: Epoch::try_from("AbCdEfGh".to_owned()).unwrap() };
    let data = Json::parse(br#"{"score":[1,0]}"#).unwrap();
    let stream = Some((&channel, position));
    let full = Content { stream, data: Some(&data), ..content("Goal \"!\"", &event, present) };
    full.encode(provider).unwrap().bytes().clone()
}

#[test]
fn an_fcm_message_has_everything_where_the_app_looks_for_it() {
    assert_eq!(
        bytes(Provider::Fcm, &FULL()),
        concat!(
            r#"{"android":{"priority":"HIGH","notification":{"tag":"match-7","sound":"goal","channel_id":"goals","#,
            r#""image":"https://example.org/1.jpg","notification_count":3,"notification_priority":"PRIORITY_HIGH"}},"#,
            r#""data":{"tidings.event":"goal-1","tidings.channel":"match:7","tidings.epoch":"AbCdEfGh","#,
            r#""tidings.offset":"12","tidings.link":"app://match/7","tidings.image":"https://example.org/1.jpg","#,
            r#""data":"{\"score\":[1,0]}"},"notification":{"title":"Goal \"!\"","body":"1 : 0"}}"#
        )
    );
}

#[test]
fn a_browser_is_given_what_it_shows_and_where_to_resume() {
    assert_eq!(
        bytes(Provider::WebPush, &FULL()),
        concat!(
            r#"{"title":"Goal \"!\"","body":"1 : 0","tag":"match-7","image":"https://example.org/1.jpg","#,
            r#""app_badge":3,"tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12,"#,
            r#""link":"app://match/7","image":"https://example.org/1.jpg"},"data":{"score":[1,0]}}"#
        )
    );
    let silent = |present: &Present| given(Provider::WebPush, present, "{}").unwrap()["silent"].take();
    assert_eq!(silent(&NOTHING), Value::Null);
    assert_eq!(silent(&Present { sound: Some("none".to_owned()), ..NOTHING }), true);
    assert_eq!(silent(&Present { interruption: Some(Interruption::Passive), ..NOTHING }), true);
}

#[test]
fn each_provider_is_told_the_urgency_in_its_words() {
    let event = event();
    for (urgency, immediate, high) in [
        (None, Priority::Immediate, "HIGH"),
        (Some(Urgency::High), Priority::Immediate, "HIGH"),
        (Some(Urgency::Normal), Priority::Considerate, "NORMAL"),
        (Some(Urgency::Low), Priority::Considerate, "NORMAL"),
        (Some(Urgency::VeryLow), Priority::PowerFirst, "NORMAL"),
    ] {
        let content = Content { urgency, ..content("Goal", &event, &NOTHING) };
        assert_eq!(apns(&content).unwrap().priority, immediate);
        let message = content.encode(Provider::Fcm).unwrap();
        let message: Value = serde_json::from_slice(message.bytes()).unwrap();
        assert_eq!(message["android"]["priority"], high);
        let Encoded::WebPush(body) = content.encode(Provider::WebPush).unwrap() else { panic!("a browser's") };
        assert_eq!(body.urgency, urgency);
    }
}

#[test]
fn only_fcm_offers_a_dry_run() {
    let event = event();
    let dry = |provider| content("Goal", &event, &NOTHING).encode(provider).unwrap().into_dry_run();
    assert!(dry(Provider::Fcm).is_some() && dry(Provider::Apns).is_none() && dry(Provider::WebPush).is_none());
}

#[test]
fn a_message_left_without_notification_is_a_data_message_with_the_text_in_data() {
    let message = |patch: &str| given(Provider::Fcm, &FULL(), patch).unwrap();
    let data = message(r#"{"notification":null}"#);
    assert_eq!(data["android"], json!({"priority": "HIGH"}));
    assert_eq!(data.get("notification"), None);
    assert_eq!((&data["data"]["tidings.title"], &data["data"]["tidings.body"]), (&json!("Goal"), &json!("1 : 0")));
    assert_eq!(data["data"]["data"], r#"{"score":[1,0]}"#);
    let own = message(r#"{"notification":null,"android":{"notification":{"title_loc_key":"GOAL"}}}"#);
    assert_eq!(own["android"]["notification"]["title_loc_key"], "GOAL");
    assert_eq!(own["android"]["notification"]["tag"], "match-7");
    assert_eq!(own["data"].get("tidings.title"), None, "Android shows it by itself");
    let changed = message(r#"{"notification":{"body":null},"data":{"data":null,"more":"1"},"fcm_options":{"a":1}}"#);
    assert_eq!(changed["notification"], json!({"title": "Goal"}));
    let names: Vec<_> = changed["data"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["more", "tidings.event", "tidings.image", "tidings.link"]);
    assert_eq!(changed["fcm_options"], json!({"a": 1}));
}

#[test]
fn a_patch_that_fcm_would_refuse_for_every_device_is_refused() {
    let refusal = |patch: &str| given(Provider::Fcm, &NOTHING, patch).unwrap_err();
    for (patch, error) in [
        ("null", PatchError::NotAnObject),
        ("[]", PatchError::NotAnObject),
        (r#"{"token":"x"}"#, PatchError::Recipient),
        (r#"{"fid":null}"#, PatchError::Recipient),
        (r#"{"topic":"x"}"#, PatchError::Recipient),
        (r#"{"\u0063ondition":"x"}"#, PatchError::Recipient),
        (r#"{"data":{"tidings.event":"x"}}"#, PatchError::Tidings),
        (r#"{"data":{"tidings.new":"x"}}"#, PatchError::Tidings),
        (r#"{"data":{"tidings\u002eevent":null}}"#, PatchError::Tidings),
        (r#"{"data":null}"#, PatchError::DataForm),
        (r#"{"data":[]}"#, PatchError::DataForm),
        (r#"{"data":{"x":1}}"#, PatchError::DataForm),
        (r#"{"data":{"x":{}}}"#, PatchError::DataForm),
        (r#"{"data":{"from":"x"}}"#, PatchError::DataName),
        (r#"{"data":{"google.x":"x"}}"#, PatchError::DataName),
        (r#"{"data":{"gcm":"x"}}"#, PatchError::DataName),
        (r#"{"data":{"message_type":"x"}}"#, PatchError::DataName),
        (r#"{"android":null}"#, PatchError::NoAndroid),
        (r#"{"android":"HIGH"}"#, PatchError::NoAndroid),
    ] {
        assert_eq!(refusal(patch), error.into(), "{patch}");
    }
}

#[test]
fn a_patch_for_a_browser_leaves_a_title_and_what_is_ours() {
    let browser = |patch: &str| given(Provider::WebPush, &NOTHING, patch);
    let changed = browser(r#"{"title":"Match over","body":null,"actions":[{"action":"open"}],"data":{"score":null}}"#);
    assert_eq!(
        changed.unwrap(),
        json!({
            "title": "Match over", "tag": "match-7", "actions": [{"action": "open"}],
            "tidings": {"event": "goal-1"}, "data": {},
        })
    );
    assert_eq!(browser(r#"{"title":null}"#), Err(PatchError::NoTitle.into()));
    assert_eq!(browser(r#"{"tidings":{"event":"x"}}"#), Err(PatchError::Tidings.into()));
    assert_eq!(browser("1"), Err(PatchError::NotAnObject.into()));
}

#[test]
fn each_limit_is_exact_and_the_refusal_tells_what_is_too_large() {
    let event = event();
    for (provider, limit) in [(Provider::Fcm, FCM_PAYLOAD_BYTES_MAX), (Provider::WebPush, WEB_PUSH_PAYLOAD_BYTES_MAX)] {
        let fits = |title: &str| content(title, &event, &NOTHING).encode(provider).map(|it| it.bytes().len());
        let text = "x".repeat(limit - fits("").unwrap());
        assert_eq!(fits(&text), Ok(limit));
        let error = PayloadError::TooLarge { bytes: limit + 1, limit, part: Part::Text };
        assert_eq!(fits(&format!("{text}x")), Err(error));
        let long = "x".repeat(4096);
        let part = |content: Content<'_>| match content.encode(provider) {
            Err(PayloadError::TooLarge { part, .. }) => Some(part),
            _ => None,
        };
        let short = content("Goal", &event, &NOTHING);
        let (data, patch) = (Json::of(&long), Json::of(&json!({"x": &long})));
        let link = Present { link: Some(long.clone()), ..NOTHING };
        assert_eq!(part(Content { present: &link, ..short }), Some(Part::Present));
        assert_eq!(part(Content { data: Some(&data), ..short }), Some(Part::Data));
        assert_eq!(part(Content { patches: &patches(Some(&patch)), ..short }), Some(Part::Patch));
    }
    assert_eq!(WEB_PUSH_PAYLOAD_BYTES_MAX, 3993);
}

/// A patch with what FCM understands.
fn fcm_patch() -> impl Strategy<Value = Value> {
    let notification =
        || prop_oneof![Just(Value::Null), ".{0,8}".prop_map(|text| json!({"title": text})), Just(json!({}))];
    let android = (option::of(notification()), option::of(Just(json!("5s"))), option::of(Just(Value::Null)));
    let android = android.prop_map(|(notification, ttl, priority)| {
        let named = [("notification", notification), ("ttl", ttl), ("priority", priority)];
        Value::Object(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    });
    let text = prop_oneof![Just(Value::Null), ".{0,8}".prop_map(Value::from)];
    let data = prop::collection::btree_map("[a-z]{1,4}", text, 0..4);
    (option::of(android), option::of(notification()), data).prop_map(|(android, notification, data)| {
        let mut patch = Map::new();
        patch.extend(android.map(|it| ("android".to_owned(), it)));
        patch.extend(notification.map(|it| ("notification".to_owned(), it)));
        patch.insert("data".to_owned(), Value::Object(data.into_iter().collect()));
        Value::Object(patch)
    })
}

proptest! {
    /// Whatever the event asks for, the result is an error or a message as `docs/payload.md` promises. The body is that
    /// message with the token.
    #[test]
    fn a_message_keeps_to_its_schema_and_limit(
        texts in (".{0,200}", ".{0,200}"), present in present(), patch in option::of(fcm_patch()),
        large in option::weighted(0.2, 3000_usize..4500), token in "[A-Za-z0-9:_-]{1,200}", ttl in 0..=2_419_200_u64,
    ) {
        let (event, data) = (event(), large.map(|bytes| Json::of(&"x".repeat(bytes))));
        let patches = patches(patch.as_ref().map(Json::of).as_ref());
        let content = Content {
            title: &texts.0, body: &texts.1, data: data.as_ref(), patches: &patches, ..content("", &event, &present)
        };
        match content.encode(Provider::Fcm) {
            Ok(Encoded::Fcm(body)) => {
                prop_assert!(body.bytes().len() <= FCM_PAYLOAD_BYTES_MAX);
                let mut message: Value = serde_json::from_slice(body.bytes()).unwrap();
                prop_assert_eq!(schema::complaints(Provider::Fcm, &message), Vec::<String>::new());
                prop_assert_eq!(&message["data"]["tidings.event"], "goal-1");
                let sent = body.request_body(&token, ttl);
                prop_assert!(sent.len() <= body.bytes().len() + token.len() + FCM_ENVELOPE_BYTES_MAX);
                let sent: Value = serde_json::from_slice(&sent).unwrap();
                message["token"] = json!(token);
                if message["android"].get("ttl").is_none() {
                    message["android"]["ttl"] = json!(format!("{ttl}s"));
                }
                prop_assert_eq!(sent, json!({"message": message}));
            }
            Ok(other) => panic!("{other:?}"),
            Err(PayloadError::TooLarge { bytes, limit, .. }) => prop_assert!(bytes > limit),
            Err(PayloadError::Patch(error)) => prop_assert_eq!(error, PatchError::DataName),
        }
    }

    #[test]
    fn a_browsers_text_keeps_to_its_schema_and_limit(
        texts in (".{0,200}", ".{0,200}"), present in present(), large in option::weighted(0.2, 3000_usize..4500),
        patch in option::of(prop::collection::btree_map("[a-z]{1,3}", value(), 0..3)),
    ) {
        let (event, data) = (event(), large.map(|bytes| Json::of(&"x".repeat(bytes))));
        let patches = patches(patch.as_ref().map(Json::of).as_ref());
        let content = Content {
            title: &texts.0, body: &texts.1, data: data.as_ref(), patches: &patches, ..content("", &event, &present)
        };
        match content.encode(Provider::WebPush) {
            Ok(encoded) => {
                prop_assert!(encoded.bytes().len() <= WEB_PUSH_PAYLOAD_BYTES_MAX);
                let text: Value = serde_json::from_slice(encoded.bytes()).unwrap();
                if patch.as_ref().is_none_or(|patch| !patch.contains_key("tag")) {
                    prop_assert_eq!(schema::complaints(Provider::WebPush, &text), Vec::<String>::new());
                }
                prop_assert_eq!(&text["title"], &texts.0);
            }
            Err(PayloadError::TooLarge { bytes, limit, .. }) => prop_assert!(bytes > limit),
            Err(error) => panic!("{error}"),
        }
    }

    /// Whatever the patch is: no panic, and the server's own members are unchanged.
    #[test]
    fn no_patch_reaches_what_is_ours_with_any_provider(patch in value()) {
        if let Ok(text) = given(Provider::WebPush, &NOTHING, &patch.to_string()) {
            prop_assert_eq!(&text["tidings"], &json!({"event": "goal-1"}));
        }
        if let Ok(message) = given(Provider::Fcm, &NOTHING, &patch.to_string()) {
            prop_assert_eq!(&message["data"]["tidings.event"], "goal-1");
        }
    }
}

/// The blocks ```` ```json fcm ```` and ```` ```json webpush ```` of `docs/payload.md`, in order.
fn examples(kind: &str) -> Vec<Value> {
    let document = include_str!("../../../../../docs/payload.md");
    let fence = format!("\n```json {kind}\n");
    let blocks = document.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap());
    blocks.map(|text| serde_json::from_str(text).unwrap()).collect()
}

#[test]
fn the_examples_of_the_document_are_what_is_given() {
    let event = EventId::new("kick-off-7").unwrap();
    let channel = ChannelName::new("match:7").unwrap();
    let position = StreamPosition { offset: Offset(1), epoch: Epoch::try_from("PREVIEWS".to_owned()).unwrap() };
    let present = Present {
        link: Some("scores://match/7".to_owned()),
        image: Some("https://img.example.org/7.jpg".to_owned()),
        sound: Some("whistle.caf".to_owned()),
        badge: Some(1),
        thread: Some("matches".to_owned()),
        category: Some("MATCH".to_owned()),
        interruption: Some(Interruption::TimeSensitive),
        android_channel: None,
    };
    let data_message = patches(Some(&Json::of(&json!({"notification": null}))));
    let kick_off = Content {
        body: "Vega x Orion",
        stream: Some((&channel, position)),
        collapse_id: &CollapseKey::new("kick-off-7").unwrap(),
        ..content("Começou!", &event, &present)
    };
    let made = |provider, content: Content<'_>| -> Value {
        serde_json::from_slice(content.encode(provider).unwrap().bytes()).unwrap()
    };
    let as_data = Content { patches: &data_message, ..kick_off };
    assert_eq!(examples("fcm"), [made(Provider::Fcm, kick_off), made(Provider::Fcm, as_data)]);
    assert_eq!(examples("webpush"), [made(Provider::WebPush, kick_off)]);
}
