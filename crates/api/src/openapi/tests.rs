//! The document against what it describes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;
use regex::Regex;
use tidings_telemetry::Registry;
use tidings_types as types;

use super::schemas::{NAMES, TAKEN, characters_max};
use super::*;
use crate::ApiKeys;
use crate::apps::{Apps, Gate};
use crate::event_input::SCHEMA;
use crate::places::Places;
use crate::routes::{Guards, Routes};

pub(crate) fn known() -> Vec<Route> {
    let (keys, registry) = (ApiKeys::new(Vec::new()), Registry::new());
    let apps = Apps {
        verifier: None,
        subjects: Vec::new(),
        allowed_origins: Vec::new(),
        user_device_count_max: 1,
        rate: None,
        address_rate: None,
        address_header: None,
    };
    let gate = Some(Gate::new(apps, 1, &registry).into());
    let places = Places::new(1, &keys).into();
    Routes::new(&Guards { keys, key_rate: None, gate, places, registry, audit: None }).known
}

pub(super) fn made() -> Value {
    let config = ApiConfig {
        body_bytes_max: 1 << 20,
        request_count_max: 1,
        subscription_count_max: 100,
        mute_count_max: 8,
        key_rate: None,
        event_channels: tidings_types::EventChannels::FirstSubject,
    };
    serde_json::from_str(&document(&known(), &config, "1.2.3")).unwrap()
}

/// The operations that an operation's answers lead to.
fn links(operation: &Value) -> Vec<&str> {
    operation["responses"].as_object().unwrap().values().flat_map(|response| names(&response["links"])).collect()
}

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let document = made();
    let methods = |(path, methods): (&String, &Value)| {
        names(methods).into_iter().map(|method| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    let described: BTreeSet<String> = document["paths"].as_object().unwrap().iter().flat_map(methods).collect();
    let routes = known().into_iter().map(|route| route.name.to_owned());
    let expected: BTreeSet<String> = routes.chain(unguarded().into_iter().map(|(name, _)| name.to_owned())).collect();
    assert!(known().len() > 25 && described == expected, "{:#?}", described.symmetric_difference(&expected));
}

#[test]
fn a_route_says_which_scope_it_needs() {
    let document = made();
    for Route { name, scope, .. } in known() {
        let (method, path) = name.split_once(' ').unwrap();
        let security = &document["paths"][path][method.to_lowercase()]["security"];
        let roles: Vec<&str> = scope.iter().map(|scope| scope.name()).collect();
        assert_eq!(security[0], json!({"header": roles}), "{name}");
    }
}

/// That of an object which a request may hold, as the reader has it; also those that nobody listed.
#[test]
fn every_field_that_is_read_is_described_and_no_other() {
    let document = made();
    for (component, schema) in TAKEN {
        let described = names(&document["components"]["schemas"][component]["properties"]);
        assert_eq!(described, schema.fields.iter().copied().collect(), "{component}");
    }
    let sources = [
        include_str!("../devices.rs"),
        include_str!("../event_input.rs"),
        include_str!("../event_input/notification.rs"),
        include_str!("../event_input/value.rs"),
        include_str!("../mutes.rs"),
        include_str!("../selectors.rs"),
        include_str!("../imports.rs"),
    ];
    let declared: usize = sources.iter().map(|source| source.matches(": Schema =").count()).sum();
    assert_eq!(declared, TAKEN.len(), "a schema is not in TAKEN");
}

#[test]
fn every_kind_of_problem_and_every_scope_is_named() {
    let document = made();
    let types = &document["components"]["schemas"]["Problem"]["properties"]["type"]["oneOf"];
    let scheme = &document["components"]["securitySchemes"]["header"]["description"];
    for kind in Kind::ALL {
        let (name, status, _) = kind.parts();
        let urn = json!(format!("{TYPE_PREFIX}{name}"));
        assert!(types.as_array().unwrap().iter().any(|known| known["const"] == urn), "{urn}");
        let response = &document["components"]["responses"][status.as_str()];
        let of_status = &response["content"]["application/problem+json"]["schema"]["properties"]["type"]["enum"];
        assert!(of_status.as_array().unwrap().contains(&urn), "{urn}");
    }
    for scope in Scope::ALL {
        assert!(scheme.as_str().unwrap().contains(&format!("`{}`", scope.name())), "{scope:?}");
    }
}

#[test]
fn operations_have_names_of_their_own_and_references_lead_somewhere() {
    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            _ => {}
        }
    }
    let document = made();
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let ids: Vec<&str> = operations.clone().map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");

    for link in operations.flat_map(links) {
        assert!(ids.contains(&link), "{link}");
    }

    let mut found = Vec::new();
    references(&document, &mut found);
    for reference in &found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for (kind, components) in
        [("schemas", &document["components"]["schemas"]), ("responses", &document["components"]["responses"])]
    {
        for name in names(components) {
            // Unsupported methods have no operation to be a response of.
            let is_used = found.contains(&format!("#/components/{kind}/{name}").as_str()) || name == "405";
            assert!(is_used, "{kind}/{name} is used by nothing");
        }
    }
}

#[test]
fn the_examples_show_every_field_of_an_event() {
    let document = made();
    let body = &document["paths"]["/v1/events"]["post"]["requestBody"]["content"]["application/json"];
    let shown = body["examples"].as_object().unwrap().values().flat_map(|example| names(&example["value"]));
    assert_eq!(shown.collect::<BTreeSet<_>>(), SCHEMA.fields.iter().copied().collect());
}

type Accepts = fn(&str) -> bool;

/// What accepts a name, by the component that describes it.
const ACCEPT: [(&str, Accepts); 20] = [
    ("EventId", |text| types::EventId::new(text).is_ok()),
    ("DeviceId", |text| types::DeviceId::new(text).is_ok()),
    ("UserId", |text| types::UserId::new(text).is_ok()),
    ("ImportName", |text| types::ImportName::new(text).is_ok()),
    ("FeedName", |text| types::FeedName::new(text).is_ok()),
    ("AppId", |text| types::AppId::new(text).is_ok()),
    ("CollapseKey", |text| types::CollapseKey::new(text).is_ok()),
    ("TopicName", |text| types::TopicName::new(text).is_ok()),
    ("Subject", |text| types::Subject::new(text).is_ok()),
    ("ChannelName", |text| types::ChannelName::new(text).is_ok()),
    ("Country", |text| types::Country::new(text).is_ok()),
    ("Locale", |text| types::Locale::new(text).is_ok()),
    ("TimeZone", |text| types::TimeZone::new(text).is_ok()),
    ("MuteScope", |text| text.parse::<types::MuteScope>().is_ok()),
    ("ApnsToken", |text| types::DeviceToken::from_hex(text).is_ok()),
    ("FcmToken", |text| types::DeviceToken::fcm(text).is_ok()),
    ("Endpoint", |text| subscribes(text, P256DH, AUTH)),
    ("P256dh", |text| subscribes(ENDPOINT, text, AUTH)),
    ("PushSecret", |text| subscribes(ENDPOINT, P256DH, text)),
    ("BrakeScope", |text| text.parse::<types::BrakeScope>().is_ok()),
];

const ENDPOINT: &str = "https://push.example.net/wp/gAAAA";
const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// Whether a browser with such a subscription is registered.
fn subscribes(endpoint: &str, p256dh: &str, auth: &str) -> bool {
    let subscription = json!({"endpoint": endpoint, "keys": {"p256dh": p256dh, "auth": auth}});
    let device = json!({"platform": "web", "web_push": subscription, "app": "a", "locale": "en"});
    crate::devices::new_device(types::DeviceId::new("d").unwrap(), device.to_string().as_bytes()).is_ok()
}

fn described_as(component: &str, text: &str) -> bool {
    let (name, pattern, _) = NAMES.into_iter().find(|(name, ..)| *name == component).unwrap();
    let is_short = characters_max(name).is_none_or(|max| text.chars().count() <= max);
    is_short && Regex::new(pattern).unwrap().is_match(text)
}

/// A component, and a text that fits what it says.
fn fitting() -> impl Strategy<Value = (&'static str, String)> {
    select(NAMES.to_vec()).prop_flat_map(|(name, pattern, _)| {
        let plain = pattern.trim_start_matches('^').trim_end_matches('$');
        (Just(name), string_regex(plain).unwrap())
    })
}

proptest! {
    /// The rule that is written down accepts what the code accepts, and nothing else.
    #[test]
    fn the_rules_of_names_are_those_of_the_code(
        any in prop_oneof![
            ".{0,8}",
            "[a-zA-Z0-9:_-]{0,12}",
            "[!-~]{62,66}",
            "[!-~]{253,257}",
            "[a-f0-9]{398,402}",
            "https://[a-z.@:]{0,8}[0-9]{0,6}[!-~]{0,12}",
            "https://[a-z]{0,2}:[0-9]{1,6}",
            "(topic|app|provider|x):[a-z:]{0,9}",
            "(everything|[A-Z][a-z+_-]{0,5}(/[A-Za-z+0-9_-]{0,6}){0,2})",
            "[A-Za-z/]{62,66}",
            "B[A-Q][A-Za-z0-9_-]{83,86}=?",
            "[A-Za-z0-9_-]{20,23}={0,3}",
        ],
        long in prop_oneof!["[!-~]{126,130}", "a:[!-~]{125,128}"],
        (name, fitting) in fitting(),
    ) {
        for (name, accepts) in ACCEPT {
            for text in [&any, &long] {
                prop_assert_eq!(described_as(name, text), accepts(text), "{} {:?}", name, text);
            }
        }
        let (_, accepts) = ACCEPT.into_iter().find(|(known, _)| *known == name).unwrap();
        prop_assert_eq!(described_as(name, &fitting), accepts(&fitting), "{} {:?}", name, fitting);
    }
}

/// A duration with a unit is described exactly as it is read, with its range.
#[test]
fn the_rules_of_durations_are_those_of_the_code() {
    let document = made();
    let rule = |schema: &Value| {
        let patterns = schema["anyOf"].as_array().unwrap().iter().filter_map(|choice| choice["pattern"].as_str());
        Regex::new(&patterns.collect::<Vec<_>>().join("")).unwrap()
    };
    let event = &document["components"]["schemas"]["Event"]["properties"];
    let (ttl, receipt_wait) = (rule(&event["ttl"]), rule(&event["receipt_wait"]));
    let wait = rule(&document["paths"]["/v1/events/{id}/receipts"]["get"]["parameters"][1]["schema"]);
    let reads = |field: &str, text: &str| {
        let event = json!({"id": "e", "topic": "t", "subjects": ["a:1"], field: text});
        crate::read_event(event.to_string().as_bytes()).is_ok()
    };
    // Every number up to some, and around the end of each range.
    let ends = [672, 30_000, 40_320, 2_419_200].map(|end: u64| end - 2..end + 3);
    for number in (0..130).chain(ends.into_iter().flatten()).chain((3..9).map(|zeros| 10_u64.pow(zeros))) {
        for (zeros, unit) in ["ms", "s", "m", "h", "d", "", "w"].map(|unit| ("", unit)).into_iter().chain([("00", "s")])
        {
            let text = format!("{zeros}{number}{unit}");
            assert_eq!(ttl.is_match(&text), reads("ttl", &text), "ttl {text}");
            assert_eq!(receipt_wait.is_match(&text), reads("receipt_wait", &text), "receipt_wait {text}");
            let is_number = unit.is_empty(); // Which the other half describes.
            let is_read = !is_number && crate::event_input::wait_of_query(&text).is_ok();
            assert_eq!(wait.is_match(&text), is_read, "wait {text}");
        }
    }
}

#[test]
fn every_name_has_an_example_and_a_judge() {
    for (name, _, example) in NAMES {
        let accepts = ACCEPT.iter().find(|(known, _)| *known == name).expect("it is judged").1;
        assert!(accepts(example), "{name} {example}");
    }
}

#[test]
fn what_apps_may_call_says_how() {
    let document = made();
    let apps: Vec<&str> = known().iter().filter(|route| route.is_for_apps).map(|route| route.name).collect();
    assert!(apps.contains(&"PUT /v1/devices/{id}") && !apps.contains(&"GET /v1/devices"), "{apps:?}");
    for Route { name, is_for_apps, .. } in known() {
        let (method, path) = name.split_once(' ').unwrap();
        let security = document["paths"][path][method.to_lowercase()]["security"].as_array().unwrap();
        assert_eq!(security.contains(&json!({"device": []})), is_for_apps, "{name}");
        assert_eq!(security.contains(&json!({"user": []})), is_for_apps, "{name}");
    }
}
