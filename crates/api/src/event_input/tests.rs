//! Event bodies: examples, limits one by one, and whatever bytes come.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tidings_types::{Interruption, Payload, Platform, Present, Text};

use super::*;

const PLAIN: &str = r#"{"id":"g-1","topic":"goal","subjects":["team:42"]"#;

fn read(rest: &str) -> Result<Event, String> {
    let read = Batch::read(format!("{PLAIN}{rest}}}").as_bytes());
    read.map(|batch| batch.events[0].clone()).map_err(|problem| format!("{problem:?}"))
}

#[test]
fn an_event_with_everything_is_read() {
    let event = read(
        r#","to":{"users":["u-1"],"devices":["d-1","d-2"]},
"filter":{"countries":["BR"],"locales":["pt","en_gb"],"platforms":["ios"],"apps":["com.example.app"]},
"params":{"n":3,"x":1.5,"who":"Å"},"text":{"pt_br":{"title":"","body":"Gol!"},"und":{"title":"T","body":"Goal"}},
"present":{"link":"app://m/2","image":"https://x/i.png","sound":"none","badge":0,"thread":"m-2","category":"goal",
"interruption":"time-sensitive","android_channel":"goals"},"payload":{"apns":{"aps": {"badge":null},"x":
1},"fcm":{"data":{"x":"1","y":null},"android":{}},"webpush":{"title":"T"}},"data":{"a": [1,
2]},"channels":["team:1","match:2"],"push":"never","receipt":true,"receipt_wait":0.25,"receipt_policy":"any",
"collapse_key":"m-2","ttl":"90s","priority":"high","urgency":"very_low","at":"2026-07-15T20:04:05.5+02:00",
"expect_audience":{"min":1.0,"max":4294967295},"dry_run":true"#,
    );
    let name = |text: &str| Some(text.to_owned());
    let locale = |text: &str| Locale::new(text).unwrap();
    let text = |title: &str, body: &str| Text { title: title.to_owned(), body: body.to_owned() };
    let expected = Event {
        to: Some(Recipients {
            users: vec![UserId::new("u-1").unwrap()],
            devices: ["d-1", "d-2"].map(|id| DeviceId::new(id).unwrap()).to_vec(),
            selector: None,
        }),
        filter: Some(Filter {
            countries: vec![Country::new("BR").unwrap()],
            locales: vec![locale("pt"), locale("en-GB")],
            platforms: vec![Platform::Ios],
            apps: vec![AppId::new("com.example.app").unwrap()],
        }),
        params: BTreeMap::from([
            ("n".to_owned(), ParamValue::Integer(3)),
            ("x".to_owned(), ParamValue::Decimal(1.5)),
            ("who".to_owned(), ParamValue::Text("Å".to_owned())),
        ]),
        text: BTreeMap::from([(locale("pt-BR"), text("", "Gol!")), (locale("und"), text("T", "Goal"))]),
        present: Present {
            link: name("app://m/2"),
            image: name("https://x/i.png"),
            sound: name("none"),
            badge: Some(0),
            thread: name("m-2"),
            category: name("goal"),
            interruption: Some(Interruption::TimeSensitive),
            android_channel: name("goals"),
        },
        payload: Payload {
            apns: Some(Json::parse(br#"{"aps": {"badge":null},"x": 1}"#).unwrap()),
            fcm: Some(Json::parse(br#"{"data":{"x":"1","y":null},"android":{}}"#).unwrap()),
            webpush: Some(Json::parse(br#"{"title":"T"}"#).unwrap()),
        },
        data: Some(Json::parse(b"{\"a\": [1, 2]}").unwrap()),
        channels: ["team:1", "match:2"].map(|name| ChannelName::new(name).unwrap()).to_vec(),
        push: PushPolicy::Never,
        receipt: true,
        receipt_wait: Duration::from_millis(250),
        receipt_policy: ReceiptPolicy::Any,
        collapse_key: Some(CollapseKey::new("m-2").unwrap()),
        ttl: Duration::from_secs(90),
        priority: EventPriority::High,
        urgency: Some(Urgency::VeryLow),
        at: Some(Timestamp(1_784_138_645_500)),
        expect_audience: Some(ExpectAudience { min: Some(1), max: Some(u32::MAX.into()) }),
        dry_run: true,
        ..plain()
    };
    assert!(event.unwrap() == expected, "differs");
}

fn plain() -> Event {
    let subject = Subject::new("team:42").unwrap();
    Event::new(EventId::new("g-1").unwrap(), TopicName::new("goal").unwrap(), vec![subject])
}

#[test]
fn what_is_left_out_or_null_has_its_default() {
    let optional = SCHEMA.fields.iter().filter(|name| !["id", "topic", "subjects"].contains(name));
    let nulls: String = optional.map(|name| format!(",\"{name}\":null")).collect();
    assert!(read("").unwrap() == plain() && read(&nulls).unwrap() == plain());
    assert_eq!(plain().push, PushPolicy::UnlessReceived);
    for empty in ["params", "text", "present", "payload"] {
        assert!(read(&format!(",\"{empty}\":{{}}")).unwrap() == plain(), "{empty}");
    }
    assert!(read(r#","to":{"users":null,"devices":["d"]},"present":{"badge":null},"payload":{"apns":null}"#).is_ok());
}

#[test]
fn a_decimal_parameter_keeps_its_last_bit() {
    let number = -6.861_850_378_053_84e299_f64; // Found by the property below when serde_json read it.
    let event = read(&format!(",\"params\":{{\"x\":{number:e}}}"));
    assert_eq!(event.unwrap().params["x"], ParamValue::Decimal(number));
}

#[test]
fn a_typed_parameter_is_read_as_the_journal_writes_it() {
    for json in [
        r#"{"number":1234567.5}"#,
        r#"{"number":9007199254740993,"digits":0}"#,
        r#"{"percent":62.5,"digits":1}"#,
        r#"{"money":-19.9,"currency":"EUR"}"#,
        r#"{"datetime":"2026-11-24T20:45:00+01:00","style":"time_short","zone":"device","default_zone":"UTC"}"#,
        r#"{"datetime":"2026-11-24T20:45:00Z","zone":"Europe/Stockholm"}"#,
        r#"{"date":"2026-11-24","style":"date_full"}"#,
        r#"{"time":"20:45:30","style":"time_medium"}"#,
        r#"{"name":"Sweden","context":"team"}"#,
    ] {
        let event = read(&format!(",\"params\":{{\"v\":{json}}}")).unwrap();
        assert_eq!(serde_json::to_string(&event.params["v"]).unwrap(), json);
    }
    let event = read(r#","params":{"v":{"date":"2026-11-24","style":null}}"#).unwrap();
    assert_eq!(serde_json::to_string(&event.params["v"]).unwrap(), r#"{"date":"2026-11-24"}"#);
}

#[test]
fn a_wrong_typed_parameter_is_refused_by_field_limit_and_value() {
    for (json, text) in [
        ("{}", "params.v: must have one of number, percent, money, datetime, date, time, name"),
        ("[1]", "params.v: must be text, a number or an object, got a list"),
        (r#"{"number":1,"percent":1}"#, "params.v: has both number and percent: a value is of one kind"),
        (r#"{"number":"1"}"#, "params.v.number: must be a number, got text"),
        (r#"{"number":1e16}"#, "params.v.number: must be within ±1000000000000000 or a whole number, got 1e16"),
        (r#"{"number":1,"digits":16}"#, "params.v.digits: must be a whole number from 0 to 15, got 16"),
        (r#"{"number":1,"digit":2}"#, "params.v: unknown field `digit`, did you mean `digits`?"),
        (r#"{"money":1}"#, "params.v.currency: is required: three letters (ISO 4217), such as EUR"),
        (
            r#"{"money":1,"currency":"eur"}"#,
            "params.v.currency: must be a currency as three letters A-Z (ISO 4217), such as EUR, got \"eur\"",
        ),
        (
            r#"{"date":"2026-02-30"}"#,
            "params.v.date: must be a day of the calendar, such as \"2026-11-24\", got \"2026-02-30\"",
        ),
        (
            r#"{"date":"2026-11-24","zone":"UTC"}"#,
            "params.v: field `zone` is not accepted here: it is the same in all zones; a moment with a zone is a `datetime`",
        ),
        (r#"{"time":"8:45"}"#, "params.v.time: must be a time of day, such as \"20:45\" or \"20:45:30\", got \"8:45\""),
        (
            r#"{"time":"20:45","style":"long"}"#,
            "params.v.style: must be \"time_short\" or \"time_medium\", got \"long\"",
        ),
        (
            r#"{"datetime":"2026-11-24T20:45:00Z","default_zone":"UTC"}"#,
            "params.v.default_zone: is only for `\"zone\": \"device\"`: it is the zone of devices that have stored none",
        ),
        (r#"{"name":""}"#, "params.v.name: must have 1 to 512 bytes, got 0"),
    ] {
        let refused = read(&format!(",\"params\":{{\"v\":{json}}}")).unwrap_err();
        assert!(refused.contains(&format!("detail: {text:?}")), "{json}: {refused}");
    }
    for json in [r#"{"datetime":"2026-11-24T20:45:00"}"#, r#"{"datetime":"2026-11-24T20:45:00Z","zone":"Not a zone"}"#]
    {
        assert!(read(&format!(",\"params\":{{\"v\":{json}}}")).is_err(), "{json}");
    }
}

#[test]
fn a_time_to_live_is_seconds_or_has_a_unit() {
    let ttl = |text: &str| read(&format!(",\"ttl\":{text}")).map(|event| event.ttl.as_secs());
    for (text, seconds) in
        [("1", 1), ("90.0", 90), ("1e3", 1000), ("\"15m\"", 900), ("\"4h\"", 14_400), ("\"28d\"", 2_419_200)]
    {
        assert_eq!(ttl(text), Ok(seconds), "{text}");
    }
    for text in [
        "0",
        "-1",
        "1.5",
        "0.9999999",
        "1e999",
        "2419201",
        "2419200.5",
        "\"29d\"",
        "\"90\"",
        "\"s\"",
        "\"\"",
        "\"1w\"",
        "[]",
        "true",
    ] {
        assert!(ttl(text).is_err(), "{text}");
    }
    assert!(ttl("\"18446744073709551615d\"").is_err(), "does not overflow");
}

#[test]
fn a_wait_for_receipts_is_seconds_with_a_fraction_or_has_a_unit() {
    let wait = |text: &str| read(&format!(",\"receipt_wait\":{text}")).map(|event| event.receipt_wait.as_millis());
    for (text, millis) in [
        ("0.1", 100),
        ("0.1004", 100),
        ("2", 2000),
        ("2.5e0", 2500),
        ("1e1", 10_000),
        ("30", 30_000),
        ("\"100ms\"", 100),
        ("\"2s\"", 2000),
        ("\"30000ms\"", 30_000),
    ] {
        assert_eq!(wait(text), Ok(millis), "{text}");
    }
    for text in [
        "0", "-1", "0.099", "30.001", "1e999", "-1e999", "100", "2000", "\"99ms\"", "\"31s\"", "\"2\"", "\"0.5s\"",
        "\"1m\"", "\"-2s\"", "\"NaN\"", "\"inf\"", "\"ms\"", "\"\"", "true", "[]", "{}",
    ] {
        assert!(wait(text).is_err(), "{text}");
    }
    assert!(wait("\"18446744073709551615s\"").is_err(), "does not overflow");
}

#[test]
fn a_wait_in_a_query_may_be_nothing_and_has_no_quotes() {
    let millis = |text: &str| wait_of_query(text).map(|wait| wait.as_millis()).ok();
    for (text, expected) in [("0", 0), ("0.5", 500), ("2s", 2000), ("50ms", 50), ("30", 30_000)] {
        assert_eq!(millis(text), Some(expected), "{text}");
    }
    for text in ["", "-1", "31s", "30.001", "inf", "NaN", "1m", "99999999999999999999s", "2 s", "\"2s\""] {
        assert_eq!(millis(text), None, "{text}");
    }
}

#[test]
fn only_what_is_one_payload_is_put_over_a_payload() {
    ["apns", "fcm", "webpush"].into_iter().for_each(check_patch);
}

fn check_patch(provider: &str) {
    let payload = |text: &str| read(&format!(",\"payload\":{{\"{provider}\":{text}}}"));
    let deep = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let large = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    assert!(payload("{}").is_ok() && payload(&deep(90)).is_ok() && payload(&large(4096)).is_ok());
    assert!(payload(r#"{"aps":{"tidings":1}}"#).is_ok(), "ours is at the top only");
    let own: &[&str] = match provider {
        "fcm" => &[
            r#"{"token":"x"}"#,
            r#"{"topic":null}"#,
            r#"{"c\u006fndition":"x"}"#,
            r#"{"name":"x"}"#,
            r#"{"data":null}"#,
            r#"{"data":[]}"#,
            r#"{"data":{"x":1}}"#,
            r#"{"data":{"tidings":"x"}}"#,
            r#"{"data":{"tidings.event":null}}"#,
        ],
        _ => &[r#"{"tidings":null}"#, r#"{"a":1,"\u0074idings":{}}"#],
    };
    for text in own {
        assert!(payload(text).is_err(), "{provider} {text}");
    }
    assert!(payload(r#"{"data":{"tidingsx":"x","y":null}}"#).is_ok());
    for text in
        ["[]", "\"x\"", "1", r#"{"a":"\ud800"}"#, r#"{"a":1e999}"#, r#"{"a":1,"a":2}"#, &deep(2000), &large(4097)]
    {
        assert!(payload(text).is_err(), "{text}");
    }
}

#[test]
fn a_name_that_is_there_twice_is_found_also_in_the_longest_list() {
    let users: Vec<String> = (0..limits::USER_COUNT_MAX).map(|number| format!("u-{number}")).collect();
    let to = |users: &[String]| read(&format!(",\"to\":{}", json!({ "users": users })));
    assert_eq!(to(&users).unwrap().to.unwrap().users.len(), users.len());
    let mut twice = users.clone();
    twice[999] = "u-500".to_owned();
    assert!(to(&twice).unwrap_err().contains("to.users[999]: is the same as entry 500"));
}

fn name() -> impl Strategy<Value = String> {
    "[!-~]{1,8}"
}

fn names<T: std::fmt::Debug + 'static>(
    of: fn(&str) -> Result<T, tidings_types::NameError>,
) -> impl Strategy<Value = Vec<T>> {
    let names = prop::collection::btree_set(name(), 1..4);
    names.prop_map(move |names| names.iter().map(|name| of(name).unwrap()).collect())
}

fn list<T: Clone + std::fmt::Debug + 'static>(
    of: fn(&str) -> Result<T, tidings_types::NameError>,
    from: &'static [&'static str],
) -> impl Strategy<Value = Vec<T>> {
    prop::sample::subsequence(from, 1..=from.len())
        .prop_map(move |names| names.into_iter().map(|name| of(name).unwrap()).collect())
}

fn recipients() -> impl Strategy<Value = Recipients> {
    prop_oneof![
        (names(UserId::new), names(DeviceId::new)).prop_map(|(users, devices)| Recipients {
            users,
            devices,
            selector: None
        }),
        names(UserId::new).prop_map(|users| Recipients { users, ..Recipients::default() }),
    ]
}

fn filter_() -> impl Strategy<Value = Filter> {
    let some = |locales| Filter { locales, ..Filter::default() };
    let locales = || list(Locale::new, &["pt", "pt-BR", "zh-Hant-TW", "und"]);
    prop_oneof![
        (list(Country::new, &["BR", "PL"]), locales(), names(AppId::new)).prop_map(|(countries, locales, apps)| {
            Filter { countries, locales, platforms: Platform::ALL.to_vec(), apps }
        }),
        locales().prop_map(some),
    ]
}

fn present_() -> impl Strategy<Value = Present> {
    let text = || option::of(".{1,20}");
    let levels =
        select(vec![Interruption::Passive, Interruption::Active, Interruption::TimeSensitive, Interruption::Critical]);
    ((text(), text(), text(), option::of(any::<u32>())), (text(), text(), option::of(levels), text())).prop_map(
        |((link, image, sound, badge), (thread, category, interruption, android_channel))| Present {
            link,
            image,
            sound,
            badge,
            thread,
            category,
            interruption,
            android_channel,
        },
    )
}

fn texts() -> impl Strategy<Value = BTreeMap<Locale, Text>> {
    let locale = select(vec!["pt", "pt-BR", "en", "und"]).prop_map(|tag| Locale::new(tag).unwrap());
    prop::collection::btree_map(locale, (".{0,20}", ".{1,20}").prop_map(|(title, body)| Text { title, body }), 0..4)
}

prop_compose! {
    fn events()(
        (n, x, word) in (any::<i64>(), -1e300_f64..1e300, ".{0,64}"),
        subjects in prop::collection::btree_set("[a-z]{1,4}:[!-~]{1,8}", 1..=16),
        (to, filter, text) in (option::of(recipients()), option::of(filter_()), texts()),
        (present, patch) in (present_(), option::of(".{0,20}")),
        (push, receipt, millis, any_device) in (
            select(vec![PushPolicy::UnlessReceived, PushPolicy::Always, PushPolicy::Never]),
            any::<bool>(),
            100_u64..=30_000,
            any::<bool>(),
        ),
        (key, ttl) in (option::of(name()), 1_u64..=2_419_200),
        (priority, urgency, at) in (
            select(EventPriority::ALL.to_vec()),
            option::of(select(Urgency::ALL.to_vec())),
            option::of(0..253_402_300_800_000_u64),
        ),
        (min, max, dry_run) in (option::of(0..10_u64), option::of(10..100_u64), any::<bool>()),
        (fcm, webpush) in (option::of(".{0,20}"), option::of(".{0,20}")),
    ) -> Event {
        Event {
            subjects: subjects.iter().map(|subject| Subject::new(subject).unwrap()).collect(),
            to,
            filter,
            params: BTreeMap::from([
                ("n".to_owned(), ParamValue::Integer(n)),
                ("x".to_owned(), ParamValue::Decimal(x)),
                ("text".to_owned(), ParamValue::Text(word)),
            ]),
            text,
            present,
            payload: Payload {
                apns: patch.map(|text| Json::of(&json!({ "aps": { "x": text } }))),
                fcm: fcm.map(|text| Json::of(&json!({ "data": { "x": text } }))),
                webpush: webpush.map(|text| Json::of(&json!({ "x": text }))),
            },
            push,
            receipt,
            receipt_wait: Duration::from_millis(millis),
            receipt_policy: if any_device { ReceiptPolicy::Any } else { ReceiptPolicy::Visible },
            collapse_key: key.map(|key| CollapseKey::new(&key).unwrap()),
            ttl: Duration::from_secs(ttl),
            priority,
            urgency,
            at: at.map(Timestamp),
            expect_audience: (min.is_some() || max.is_some()).then_some(ExpectAudience { min, max }),
            dry_run,
            ..plain()
        }
    }
}

/// An event as the journal's rows store it.
fn stored(event: &Event) -> Value {
    serde_json::to_value(event).unwrap()
}

fn read_value(body: &Value) -> Result<Event, Problem> {
    Batch::read(&serde_json::to_vec(body).unwrap()).map(|mut batch| batch.events.remove(0))
}

/// A body with lists and texts as long as `size` says: of their limits, one less, or one more.
fn sized(field: &str, size: usize) -> Value {
    let text = "x".repeat(size);
    let list = |of: &dyn Fn(usize) -> Value| (0..size).map(of).collect::<Vec<_>>();
    let mut event = json!({"id": "g-1", "topic": "goal", "subjects": ["team:42"]});
    match field {
        "subjects" => event["subjects"] = json!(list(&|n| json!(format!("t:{n}")))),
        "channels" => event["channels"] = json!(list(&|n| json!(format!("c:{n}")))),
        "users" => event["to"] = json!({"users": list(&|n| json!(n.to_string())), "devices": ["d"]}),
        "devices" => event["to"] = json!({"devices": list(&|n| json!(n.to_string())), "users": ["u"]}),
        "countries" => {
            let country = |n: usize| format!("{}{}", (b'A' + (n / 26) as u8) as char, (b'A' + (n % 26) as u8) as char);
            event["filter"] = json!({"countries": list(&|n| json!(country(n)))});
        }
        "locales" => event["filter"] = json!({"locales": list(&|n| json!(format!("en-{n:03}")))}),
        "apps" => event["filter"] = json!({"apps": list(&|n| json!(n.to_string()))}),
        "text" => {
            let texts = (0..size).map(|n| (format!("en-{n:03}"), json!({"title": "", "body": "b"})));
            event["text"] = texts.collect::<serde_json::Map<_, _>>().into();
        }
        "title" => event["text"] = json!({"en": {"title": text, "body": "b"}}),
        "body" => event["text"] = json!({"en": {"title": "", "body": text}}),
        "apns" | "fcm" | "webpush" => event["payload"] = json!({ field: {"a": &text[8..]} }),
        present => event["present"] = json!({ present: text }),
    }
    event
}

#[test]
fn each_limit_lets_in_what_has_it_and_nothing_larger_or_emptier() {
    for (field, min, max) in [
        ("subjects", 1, limits::SUBJECT_COUNT_MAX),
        ("channels", 1, limits::CHANNEL_COUNT_MAX),
        ("users", 0, limits::USER_COUNT_MAX),
        ("devices", 0, limits::DEVICE_COUNT_MAX),
        ("countries", 1, limits::FILTER_COUNT_MAX),
        ("locales", 1, limits::FILTER_COUNT_MAX),
        ("apps", 1, limits::FILTER_COUNT_MAX),
        ("text", 0, limits::TEXT_COUNT_MAX),
        ("title", 0, limits::TEXT_BYTES_MAX),
        ("body", 1, limits::TEXT_BYTES_MAX),
        ("apns", 8, limits::PAYLOAD_BYTES_MAX),
        ("fcm", 8, limits::PAYLOAD_BYTES_MAX),
        ("webpush", 8, limits::PAYLOAD_BYTES_MAX),
        ("link", 1, limits::PRESENT_BYTES_MAX),
        ("image", 1, limits::PRESENT_BYTES_MAX),
        ("sound", 1, limits::PRESENT_BYTES_MAX),
        ("thread", 1, limits::PRESENT_BYTES_MAX),
        ("category", 1, limits::PRESENT_BYTES_MAX),
        ("android_channel", 1, limits::PRESENT_BYTES_MAX),
    ] {
        assert!(read_value(&sized(field, min)).is_ok() && read_value(&sized(field, max)).is_ok(), "{field}");
        let over = read_value(&sized(field, max + 1)).expect_err(field);
        let text = format!("{over:?}");
        assert!(text.contains(&format!("limit: Some({max})")) && text.contains(field), "{field}: {text}");
        if min == 1 {
            assert!(read_value(&sized(field, 0)).is_err(), "{field}");
        }
    }
}

/// What is read is not empty and can be stored; a refusal has a reason.
fn check_read(read: Result<Vec<Event>, Problem>) -> Result<(), TestCaseError> {
    match read {
        Ok(events) => {
            prop_assert!((1..=limits::BATCH_COUNT_MAX).contains(&events.len()));
            for event in events {
                // As text, because data may be valid JSON that is no `Value`, such as half a character.
                let row = serde_json::to_vec(&event).unwrap();
                prop_assert!(serde_json::from_slice::<Event>(&row).unwrap() == event);
            }
        }
        Err(problem) => prop_assert!(!problem.into_detail().is_empty()),
    }
    Ok(())
}

proptest! {
    /// Any bytes are read or refused.
    #[test]
    fn foreign_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        check_read(Batch::read(&body).map(|batch| batch.events))?;
        check_read(audience(&body).map(|event| vec![event]))?;
    }

    /// The same with text that is almost an event.
    #[test]
    fn nearly_right_bodies_never_panic(
        pieces in prop::collection::vec(select(vec![
            "{", "}", "[", "]", ",", ":", "\"id\"", "\"topic\"", "\"subjects\"", "\"params\"", "\"ttl\"", "\"push\"",
            "\"goal\"", "\"team:1\"", "\"\\ud800\"", "null", "1", "-1", "1e999", "true", " ", "\"9d\"", "\"é\"",
        ]), 0..24),
        field in select(SCHEMA.fields.to_vec()),
    ) {
        let text = pieces.concat();
        check_read(Batch::read(text.as_bytes()).map(|batch| batch.events))?;
        check_read(Batch::read(format!("{PLAIN},\"{field}\":{text}}}").as_bytes()).map(|batch| batch.events))?;
        if let Ok(wait) = wait_of_query(&text) {
            prop_assert!(wait <= Duration::from_secs(30), "{:?}", wait);
        }
    }

    /// The rows store an event as producers write it, except wait and time. With their units added, a stored event can
    /// be sent again.
    #[test]
    fn a_stored_event_whose_wait_has_its_unit_is_read_back(event in events()) {
        let mut spelt = stored(&event);
        spelt["at"] = json!(event.at.map(Rfc3339));
        let millis = spelt["receipt_wait"].as_u64().unwrap();
        spelt["receipt_wait"] = json!(format!("{millis}ms"));
        prop_assert!(read_value(&spelt).unwrap() == event, "{spelt}");
        spelt["receipt_wait"] = json!(Duration::from_millis(millis).as_secs_f64());
        prop_assert!(read_value(&spelt).unwrap() == event, "{spelt}");
        prop_assert!(serde_json::from_value::<Event>(stored(&event)).unwrap() == event, "its own form");
    }

    /// Without its unit it is refused, never taken for seconds.
    #[test]
    fn a_stored_event_as_it_is_is_refused_by_its_wait(event in events()) {
        let event = Event { at: None, ..event };
        let refused = read_value(&stored(&event)).map(|_| ()).expect_err("milliseconds are no seconds");
        prop_assert!(format!("{refused:?}").contains("receipt_wait: must be 0.1 to 30 seconds"), "{refused:?}");
    }

    /// An audience is that of the event which has the same four fields.
    #[test]
    fn an_audience_is_asked_for_in_the_events_words(event in events()) {
        let mut spelt = stored(&event);
        spelt.as_object_mut().unwrap().retain(|name, _| AUDIENCE.fields.contains(&name.as_str()));
        let asked = audience(&serde_json::to_vec(&spelt).unwrap()).unwrap();
        prop_assert!((asked.topic, asked.subjects, asked.to, asked.filter) == (event.topic, event.subjects, event.to, event.filter));
    }
}

#[test]
fn every_field_of_an_event_is_known_where_only_its_audience_is_asked_about() {
    for name in SCHEMA.fields {
        let is_known = AUDIENCE.fields.contains(name) || AUDIENCE.refused.iter().any(|(refused, _)| refused == name);
        assert!(is_known, "{name}");
    }
}
