//! What clients say about themselves: which claims to be a device are accepted, how long an app is visible, and that
//! nothing in connect data does harm.

use proptest::prelude::*;

use super::*;

const MINUTE: Option<Duration> = Some(VISIBLE_TTL_MAX);

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn introduction(data: &str) -> Introduction {
    Introduction::read(None, Some(&json(data)))
}

#[test]
fn a_device_is_claimed_with_its_credential_only() {
    let full = introduction(r#"{"tidings": {"device": "phone-1", "credential": "s3cret", "new": []}, "app": {}}"#);
    let claim = full.device.unwrap();
    assert_eq!(claim.device(), &device("phone-1"));
    assert!(matches!(&claim, DeviceClaim::Credential { credential, .. } if credential.as_str() == "s3cret"));
    assert!(!format!("{claim:?}").contains("s3cret"), "{claim:?}");

    let longest = "x".repeat(CREDENTIAL_BYTES_MAX);
    let with = |device: &str, credential: &str| {
        let data = serde_json::json!({"tidings": {"device": device, "credential": credential, "visible": true}});
        introduction(&data.to_string())
    };
    assert!(with("phone-1", &longest).device.is_some());
    for (device, credential) in [("phone-1", &*format!("{longest}x")), ("phone-1", ""), ("", "s"), ("my phone", "s")] {
        let expected = Introduction { visible: MINUTE, ..Introduction::default() };
        assert_eq!(with(device, credential), expected, "{device:?}"); // The rest stands.
    }
    assert_eq!(introduction(r#"{"tidings":{"device":"phone-1"}}"#).device, None);
    assert_eq!(introduction(r#"{"tidings":{"device":"phone-1","credential":null}}"#).device, None);
    assert_eq!(introduction(r#"{"tidings":{"credential":"s3cret"}}"#).device, None);
}

#[test]
fn a_language_is_taken_if_it_is_a_tag() {
    let locale = |tag: &str| introduction(&format!(r#"{{"tidings":{{"locale":"{tag}","visible":true}}}}"#)).locale;
    assert_eq!(locale("pt-BR"), Locale::new("pt-BR").ok());
    assert_eq!([locale(""), locale("not a tag"), locale(&"x".repeat(300))], [None, None, None]);
    assert_eq!(introduction(r#"{"tidings":{"locale":"not a tag","visible":true}}"#).visible, MINUTE, "the rest stands");
}

#[test]
fn a_signed_device_wins_over_any_other() {
    let data = json(r#"{"tidings":{"device":"tablet","credential":"s3cret","visible":true,"ttl":9}}"#);
    let signed = || Some(device("phone-1"));
    let expected = Some(DeviceClaim::Signed(device("phone-1")));
    let found = Introduction::read(signed(), Some(&data));
    assert_eq!(
        found,
        Introduction { device: expected.clone(), visible: Some(Duration::from_secs(9)), ..Introduction::default() }
    );
    for data in [None, Some(json("[]")), Some(json(r#"{"tidings":7}"#))] {
        let found = Introduction::read(signed(), data.as_ref());
        assert_eq!(found, Introduction { device: expected.clone(), ..Introduction::default() });
    }
}

#[test]
fn an_app_is_visible_for_a_minute_at_most() {
    let seconds = |count| Some(Some(Duration::from_secs(count)));
    for (said, expected) in [
        (r#"{"visible":true}"#, seconds(60)),
        (r#"{"visible":true,"ttl":null,"new":1}"#, seconds(60)),
        (r#"{"visible":true,"ttl":1}"#, seconds(1)),
        (r#"{"visible":true,"ttl":59}"#, seconds(59)),
        (r#"{"visible":true,"ttl":61}"#, seconds(60)),
        (r#"{"visible":true,"ttl":18446744073709551615}"#, seconds(60)),
        (r#"{"visible":false,"ttl":30}"#, Some(None)),
        (r#"{"visible":false}"#, Some(None)),
        (r#"{"visible":true,"ttl":0}"#, None),
        (r#"{"visible":false,"ttl":0}"#, None),
        (r#"{"visible":true,"ttl":-1}"#, None),
        (r#"{"visible":true,"ttl":"30"}"#, None),
        (r#"{"visible":1}"#, None),
        (r#"{"visible":true,"visible":false}"#, None),
    ] {
        assert_eq!(read_visible(Some(&json(said))), expected, "{said}");
        let introduced = introduction(&format!(r#"{{"tidings":{said}}}"#));
        assert_eq!(introduced.visible, expected.flatten(), "{said}");
    }
    for data in [r#"{}"#, r#"{"ttl":30}"#, r#"{"visible":null}"#, "[true]", "true", "null"] {
        assert_eq!(read_visible(Some(&json(data))), None, "{data}");
    }
    assert_eq!(read_visible(None), None);
}

#[test]
fn what_is_malformed_is_not_said() {
    let deep = "[".repeat(30_000) + &"]".repeat(30_000);
    for data in [
        "null",
        "7",
        r#""tidings""#,
        r#"[{"device":"phone-1","credential":"s"}]"#,
        "{}",
        r#"{"tidings":null}"#,
        r#"{"tidings":["phone-1","s",true,60]}"#,
        r#"{"tidings":{"device":7,"credential":"s","visible":true}}"#,
        r#"{"tidings":{"device":"phone-1","credential":["s"],"visible":true}}"#,
        r#"{"tidings":{"device":"phone-1","device":"phone-1","credential":"s"}}"#,
        r#"{"tidings":{"device":"phone-1","credential":"\ud800"}}"#,
        r#"{"tidings":{"visible":true},"tidings":{}}"#,
        &format!(r#"{{"tidings":{deep}}}"#),
        &deep,
    ] {
        assert_eq!(introduction(data), Introduction::default(), "{:.80}", data);
    }
    let beside = introduction(&format!(r#" {{"other":{deep},"tidings": {{"new":{deep},"visible":true}}}}"#));
    assert_eq!(beside.visible, MINUTE);
}

proptest! {
    #[test]
    fn whatever_is_said_stays_within_its_bounds(
        device in prop_oneof![".{0,140}", Just("phone-1".to_owned())],
        credential in ".{0,300}",
        ttl in any::<Option<u64>>(),
        visible in any::<Option<bool>>(),
    ) {
        let said = serde_json::json!({"device": device, "credential": credential, "ttl": ttl, "visible": visible});
        let read = introduction(&serde_json::json!({"tidings": said}).to_string());
        prop_assert!(read.visible.is_none_or(|ttl| Duration::from_secs(1) <= ttl && ttl <= VISIBLE_TTL_MAX));
        prop_assert_eq!(read.visible.is_some(), visible == Some(true) && ttl != Some(0));
        let provable = DeviceId::new(&device).is_ok() && (1..=CREDENTIAL_BYTES_MAX).contains(&credential.len());
        prop_assert_eq!(read.device.is_some(), provable);
    }
}
