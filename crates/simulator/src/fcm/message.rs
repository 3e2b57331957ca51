//! Checks a body as FCM does: its JSON against tables of the published messages, and the rules that FCM states in words.
//!
//! The tables follow the discovery document of `fcm.googleapis.com` (v1). Both spellings of a name are accepted
//! (`collapse_key`, `collapseKey`). The simulator is stricter than FCM in two points: it refuses numbers and booleans in
//! quotes, and a field that is given in both spellings. The size of a message is that of its compact JSON, without target
//! and time to live.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// For a message to a device.
const MESSAGE_BYTES_MAX: usize = 4096;
/// For a message to a topic or a condition.
const TOPIC_MESSAGE_BYTES_MAX: usize = 2048;
/// Four weeks.
const TTL_SECONDS_MAX: f64 = 2_419_200.0;
const TOKEN_BYTES_MAX: usize = 4096;

/// A mistake in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// The path of the field, with dots, as the client has spelt it.
    pub(super) field: String,
    pub(super) description: String,
}

/// A valid request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) validate_only: bool,
    pub(super) target: Target,
    /// The notification replaces earlier ones with the same tag.
    pub(super) tag: Option<String>,
    pub(super) title: String,
    /// The message without target and time to live: a repeated message has another time to live.
    pub(super) content: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Token(String),
    /// Topic, condition or installation: accepted, but not a registration token.
    Other(String),
}

/// The type of a field's value.
enum Kind {
    Text,
    Bool,
    Integer,
    /// From 0 to 1.
    Share,
    /// Seconds with an `s`: `3.5s`.
    Duration,
    /// RFC 3339.
    Time,
    Choice(&'static [&'static str]),
    TextList,
    DurationList,
    /// Names to texts.
    TextMap,
    /// Any JSON object.
    Object,
    Message(&'static [Field]),
}

struct Field(&'static str, Kind);

const REQUEST: &[Field] = &[Field("validate_only", Kind::Bool), Field("message", Kind::Message(MESSAGE))];

const MESSAGE: &[Field] = &[
    Field("name", Kind::Text),
    Field("data", Kind::TextMap),
    Field("notification", Kind::Message(NOTIFICATION)),
    Field("android", Kind::Message(ANDROID)),
    Field("webpush", Kind::Message(WEB_PUSH)),
    Field("apns", Kind::Message(APNS)),
    Field("fcm_options", Kind::Message(LABEL)),
    Field("token", Kind::Text),
    Field("fid", Kind::Text),
    Field("topic", Kind::Text),
    Field("condition", Kind::Text),
];

const TARGETS: [&str; 4] = ["token", "fid", "topic", "condition"];

const NOTIFICATION: &[Field] = &[Field("title", Kind::Text), Field("body", Kind::Text), Field("image", Kind::Text)];

const LABEL: &[Field] = &[Field("analytics_label", Kind::Text)];

const ANDROID: &[Field] = &[
    Field("collapse_key", Kind::Text),
    Field("priority", Kind::Choice(&["NORMAL", "HIGH"])),
    Field("ttl", Kind::Duration),
    Field("restricted_package_name", Kind::Text),
    Field("data", Kind::TextMap),
    Field("notification", Kind::Message(ANDROID_NOTIFICATION)),
    Field("fcm_options", Kind::Message(LABEL)),
    Field("direct_boot_ok", Kind::Bool),
    Field("bandwidth_constrained_ok", Kind::Bool),
    Field("restricted_satellite_ok", Kind::Bool),
];

const ANDROID_NOTIFICATION: &[Field] = &[
    Field("title", Kind::Text),
    Field("body", Kind::Text),
    Field("icon", Kind::Text),
    Field("color", Kind::Text),
    Field("sound", Kind::Text),
    Field("tag", Kind::Text),
    Field("click_action", Kind::Text),
    Field("body_loc_key", Kind::Text),
    Field("body_loc_args", Kind::TextList),
    Field("title_loc_key", Kind::Text),
    Field("title_loc_args", Kind::TextList),
    Field("channel_id", Kind::Text),
    Field("ticker", Kind::Text),
    Field("sticky", Kind::Bool),
    Field("event_time", Kind::Time),
    Field("local_only", Kind::Bool),
    Field(
        "notification_priority",
        Kind::Choice(&[
            "PRIORITY_UNSPECIFIED",
            "PRIORITY_MIN",
            "PRIORITY_LOW",
            "PRIORITY_DEFAULT",
            "PRIORITY_HIGH",
            "PRIORITY_MAX",
        ]),
    ),
    Field("default_sound", Kind::Bool),
    Field("default_vibrate_timings", Kind::Bool),
    Field("default_light_settings", Kind::Bool),
    Field("vibrate_timings", Kind::DurationList),
    Field("visibility", Kind::Choice(&["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"])),
    Field("notification_count", Kind::Integer),
    Field("light_settings", Kind::Message(LIGHT)),
    Field("image", Kind::Text),
    Field("bypass_proxy_notification", Kind::Bool),
    Field("proxy", Kind::Choice(&["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"])),
];

const LIGHT: &[Field] = &[
    Field("color", Kind::Message(COLOR)),
    Field("light_on_duration", Kind::Duration),
    Field("light_off_duration", Kind::Duration),
];

const COLOR: &[Field] =
    &[Field("red", Kind::Share), Field("green", Kind::Share), Field("blue", Kind::Share), Field("alpha", Kind::Share)];

const WEB_PUSH: &[Field] = &[
    Field("headers", Kind::TextMap),
    Field("data", Kind::TextMap),
    Field("notification", Kind::Object),
    Field("fcm_options", Kind::Message(&[Field("link", Kind::Text), Field("analytics_label", Kind::Text)])),
];

const APNS: &[Field] = &[
    Field("headers", Kind::TextMap),
    Field("payload", Kind::Object),
    Field("fcm_options", Kind::Message(&[Field("analytics_label", Kind::Text), Field("image", Kind::Text)])),
    Field("live_activity_token", Kind::Text),
];

/// Reads a request.
///
/// # Errors
/// The first mistake.
pub(super) fn read(body: &[u8]) -> Result<Request, Violation> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| violation("", &format!("Invalid JSON payload received. {error}")))?;
    let request = check_message(&value, "", REQUEST)?;
    let message = request.get("message").and_then(Value::as_object);
    let message = message.ok_or_else(|| violation("message", "Message cannot be empty."))?;
    let target = read_target(message)?;
    check_rules(message)?;
    let content = content(message);
    let bytes_max = if matches!(target, Target::Token(_)) { MESSAGE_BYTES_MAX } else { TOPIC_MESSAGE_BYTES_MAX };
    if content.len() > bytes_max {
        let text = format!("Message is too big: {} bytes, at most {bytes_max}.", content.len());
        return Err(violation("message", &text));
    }
    let text = |path: &[&str]| find(message, path).and_then(Value::as_str).map(ToOwned::to_owned);
    let title = text(&["android", "notification", "title"]).or_else(|| text(&["notification", "title"]));
    Ok(Request {
        validate_only: get(request, "validate_only") == Some(&Value::Bool(true)),
        target,
        tag: text(&["android", "notification", "tag"]).or_else(|| text(&["android", "collapse_key"])),
        title: title.or_else(|| text(&["data", "tidings.title"])).unwrap_or_default(),
        content,
    })
}

fn read_target(message: &Map<String, Value>) -> Result<Target, Violation> {
    let given = || TARGETS.iter().filter_map(|name| Some((*name, get(message, name)?.as_str()?)));
    match (given().next(), given().nth(1)) {
        (Some(("token", token)), None) => Ok(Target::Token(token.to_owned())),
        (Some((_, other)), None) => Ok(Target::Other(other.to_owned())),
        (None, _) => Err(violation("message", "Recipient of the message is not set.")),
        (Some(_), Some((second, _))) => {
            let text = format!("Invalid value (oneof), oneof field 'target' is already set. Cannot set '{second}'");
            Err(violation(&format!("message.{second}"), &text))
        }
    }
}

/// Whether the text could be a registration token.
pub(super) fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":_-.".contains(&byte);
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Checks the rules that are not in the tables.
fn check_rules(message: &Map<String, Value>) -> Result<(), Violation> {
    for path in [&["data"][..], &["android", "data"], &["webpush", "data"]] {
        for key in find(message, path).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            let is_reserved =
                key == "from" || key == "message_type" || key.starts_with("google") || key.starts_with("gcm");
            if is_reserved {
                let field = format!("message.{}.{key}", path.join("."));
                return Err(violation(&field, &format!("Invalid data payload key: {key}")));
            }
        }
    }
    if let Some(ttl) = find(message, &["android", "ttl"]).and_then(Value::as_str)
        && seconds(ttl).is_none_or(|seconds| !(0.0..=TTL_SECONDS_MAX).contains(&seconds))
    {
        return Err(violation("message.android.ttl", &format!("Invalid ttl: {ttl}; 0s to 2419200s")));
    }
    Ok(())
}

/// The message without target and time to live, as compact JSON.
fn content(message: &Map<String, Value>) -> Vec<u8> {
    let mut rest = message.clone();
    TARGETS.iter().for_each(|name| drop(rest.remove(*name)));
    if let Some(android) = rest.get_mut("android").and_then(Value::as_object_mut) {
        android.remove("ttl");
    }
    serde_json::to_vec(&rest).expect("a JSON value always serializes")
}

fn check_message<'v>(value: &'v Value, path: &str, fields: &[Field]) -> Result<&'v Map<String, Value>, Violation> {
    let object = value.as_object().ok_or_else(|| wrong(path, "an object"))?;
    let mut seen = BTreeSet::new();
    for (name, value) in object {
        let known = fields.iter().find(|Field(known, _)| *known == name || camel(known) == *name);
        let Some(Field(known, kind)) = known else {
            let text =
                format!("Invalid JSON payload received. Unknown name \"{name}\" at '{path}': Cannot find field.");
            return Err(violation(path, &text));
        };
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if !seen.insert(*known) {
            return Err(violation(&path, "Invalid JSON payload received. The field is given twice."));
        }
        check_value(value, &path, kind)?;
    }
    Ok(object)
}

fn check_value(value: &Value, path: &str, kind: &Kind) -> Result<(), Violation> {
    let is_duration = |value: &Value| value.as_str().and_then(seconds).is_some();
    let (holds, what) = match kind {
        Kind::Text => (value.is_string(), "a string"),
        Kind::Bool => (value.is_boolean(), "true or false"),
        Kind::Integer => (value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()), "a 32-bit integer"),
        Kind::Share => (value.as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "a number from 0 to 1"),
        Kind::Duration => (is_duration(value), "a duration like 3.5s"),
        Kind::Time => (value.as_str().is_some_and(is_time), "a time like 2026-07-19T21:00:00Z"),
        Kind::Choice(names) => (value.as_str().is_some_and(|name| names.contains(&name)), "one of its names"),
        Kind::TextList => (value.as_array().is_some_and(|all| all.iter().all(Value::is_string)), "a list of strings"),
        Kind::DurationList => (value.as_array().is_some_and(|all| all.iter().all(is_duration)), "a list of durations"),
        Kind::TextMap => (value.as_object().is_some_and(|all| all.values().all(Value::is_string)), "a map of strings"),
        Kind::Object => (value.is_object(), "an object"),
        Kind::Message(fields) => return check_message(value, path, fields).map(drop),
    };
    if holds { Ok(()) } else { Err(wrong(path, what)) }
}

fn wrong(path: &str, what: &str) -> Violation {
    violation(path, &format!("Invalid value at '{path}': must be {what}"))
}

fn violation(field: &str, description: &str) -> Violation {
    Violation { field: field.to_owned(), description: description.to_owned() }
}

/// Finds a field in either spelling.
fn get<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    object.get(name).or_else(|| object.get(&camel(name)))
}

fn find<'v>(object: &'v Map<String, Value>, path: &[&str]) -> Option<&'v Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(object, |object, name| get(object, name)?.as_object())?;
    get(parent, last)
}

/// Turns `collapse_key` into `collapseKey`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let (head, tail) = word.split_at_checked(1).unwrap_or((word, ""));
        text + &head.to_ascii_uppercase() + tail
    })
}

/// Reads a `google.protobuf.Duration`.
fn seconds(text: &str) -> Option<f64> {
    let number = text.strip_suffix('s')?;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
    let (_, fraction) = number.split_once('.').unwrap_or((number, ""));
    if is_plain && fraction.len() <= 9 { number.parse().ok() } else { None }
}

/// Whether the text has the form of RFC 3339, with any offset.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let Some((head, tail)) = text.as_bytes().split_at_checked(FORM.len()) else { return false };
    let fits = |(form, byte): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { form == byte };
    let tail = std::str::from_utf8(tail).unwrap_or_default();
    let zone = tail.strip_prefix('.').map_or(tail, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let is_offset = |zone: &[u8]| matches!(zone, [b'+' | b'-', _, _, b':', _, _]);
    FORM.iter().zip(head).all(fits) && (zone == "Z" || is_offset(zone.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn full() -> Value {
        json!({"validate_only": false, "message": {
            "token": "abc:DEF_1-2",
            "data": {"tidings.id": "goal-1"},
            "notification": {"title": "Goal!", "body": "1 : 0", "image": "https://example.com/a.png"},
            "android": {
                "collapseKey": "match-7", "priority": "HIGH", "ttl": "3.5s", "direct_boot_ok": true,
                "notification": {
                    "tag": "match-7", "channel_id": "goals", "sound": "default", "titleLocArgs": ["a"],
                    "notification_count": 1, "event_time": "2026-07-19T21:00:00.5Z", "visibility": "PUBLIC",
                    "notification_priority": "PRIORITY_MAX", "vibrate_timings": ["0.1s", "1s"], "proxy": "ALLOW",
                    "light_settings": {"color": {"red": 1, "alpha": 0.5}, "light_on_duration": "1s"},
                },
            },
            "apns": {"headers": {"apns-priority": "10"}, "payload": {"aps": {"badge": 1}}},
            "webpush": {"headers": {"TTL": "1"}, "notification": {"any": [1]}, "fcm_options": {"link": "https://a.b"}},
            "fcm_options": {"analytics_label": "x"},
        }})
    }

    fn refused(body: &Value) -> Violation {
        read(body.to_string().as_bytes()).expect_err("it must be refused")
    }

    /// The full request with the value at a JSON pointer replaced.
    fn with(pointer: &str, value: Value) -> Value {
        let mut request = full();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        request.pointer_mut(parent).unwrap()[name] = value;
        request
    }

    #[test]
    fn a_request_with_everything_is_read() {
        let request = read(full().to_string().as_bytes()).unwrap();
        assert_eq!(request.target, Target::Token("abc:DEF_1-2".into()));
        assert_eq!((request.tag.as_deref(), &*request.title), (Some("match-7"), "Goal!"));
        assert!(!request.validate_only && !String::from_utf8(request.content).unwrap().contains("DEF_1"));
        assert!(read(with("/validateOnly", json!(true)).to_string().as_bytes()).is_err(), "given in both spellings");
        let mut only = full();
        only["validate_only"] = json!(true);
        assert!(read(only.to_string().as_bytes()).unwrap().validate_only);
    }

    #[test]
    fn a_mistake_is_named_by_its_path() {
        for (pointer, value, field) in [
            ("/validate_only", json!("true"), "validate_only"),
            ("/else", json!(1), ""),
            ("/message/else", json!(1), "message"),
            ("/message/data/tidings.id", json!(1), "message.data"),
            ("/message/data/from", json!("x"), "message.data.from"),
            ("/message/data/google.x", json!("x"), "message.data.google.x"),
            ("/message/topic", json!("news"), "message.topic"),
            ("/message/token", json!(1), "message.token"),
            ("/message/notification/sound", json!("x"), "message.notification"),
            ("/message/android/priority", json!("high"), "message.android.priority"),
            ("/message/android/ttl", json!(3), "message.android.ttl"),
            ("/message/android/ttl", json!("3"), "message.android.ttl"),
            ("/message/android/ttl", json!("2419201s"), "message.android.ttl"),
            ("/message/android/ttl", json!("-1s"), "message.android.ttl"),
            ("/message/android/collapse_key", json!("x"), "message.android.collapse_key"),
            ("/message/android/notification/titleLocArgs", json!([1]), "message.android.notification.titleLocArgs"),
            ("/message/android/notification/event_time", json!("now"), "message.android.notification.event_time"),
            ("/message/apns/headers/apns-priority", json!(10), "message.apns.headers"),
            ("/message/apns/payload", json!([]), "message.apns.payload"),
        ] {
            let request = with(pointer, value);
            let violation = refused(&request);
            // If a field is given in both spellings, the violation names the later one.
            let is_named = violation.field == field || (field.ends_with("collapse_key"));
            assert!(is_named, "{pointer}: {violation:?}");
        }
        assert_eq!(refused(&json!({})).field, "message");
        assert_eq!(refused(&json!({"message": {"data": {}}})).field, "message");
        assert_eq!(refused(&json!([])).field, "");
        assert!(read(b"{").is_err() && read(b"").is_err() && read(&[0xff]).is_err());
    }

    #[test]
    fn a_message_of_4096_bytes_is_accepted_and_4097_bytes_are_refused() {
        let sized = |bytes: usize, target: &str| {
            let overhead = json!({"data": {"x": ""}}).to_string().len();
            let mut request = json!({"message": {"data": {"x": "y".repeat(bytes - overhead)}}});
            request["message"][target] = json!("a");
            read(request.to_string().as_bytes())
        };
        assert!(sized(4096, "token").is_ok());
        assert_eq!(sized(4097, "token").unwrap_err().field, "message");
        assert!(sized(2048, "topic").is_ok());
        assert!(sized(2049, "topic").is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z0-9.s-]{0,6}".prop_map(Value::from),
        ];
        let names = prop_oneof![
            "[a-zA-Z_]{0,8}",
            prop::sample::select(
                [REQUEST, MESSAGE, ANDROID, ANDROID_NOTIFICATION, WEB_PUSH, APNS, LIGHT].concat_names()
            ),
        ];
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(names.clone(), inner, 0..6)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    trait Names {
        fn concat_names(&self) -> Vec<String>;
    }

    impl<const N: usize> Names for [&'static [Field]; N] {
        fn concat_names(&self) -> Vec<String> {
            self.iter()
                .flat_map(|fields| fields.iter())
                .flat_map(|field| [field.0.to_owned(), camel(field.0)])
                .collect()
        }
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(message in any_json(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for body in [json!({"message": message}).to_string().into_bytes(), bytes] {
                match read(&body) {
                    Ok(request) => prop_assert!(request.content.len() <= MESSAGE_BYTES_MAX),
                    Err(violation) => prop_assert!(!violation.description.is_empty()),
                }
            }
        }

        #[test]
        fn any_unknown_name_anywhere_is_refused(name in "[a-z]{3,8}x", place in 0usize..7) {
            let places = [
                "", "/message", "/message/notification", "/message/android", "/message/android/notification",
                "/message/apns", "/message/webpush",
            ];
            let request = with(&format!("{}/{name}", places[place]), json!("x"));
            prop_assert!(refused(&request).description.contains(&name));
        }
    }
}
