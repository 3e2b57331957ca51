//! The shapes of requests and answers, as JSON Schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tidings_jobs::DeviceOutcome;
use tidings_protocol::CREDENTIAL_BYTES_MAX;
use tidings_types::{Provider, Style, event_limits as limits, selector_limits};

use super::descriptions::describe;
use crate::config::ApiConfig;
use crate::devices::{
    DEVICE, ENDPOINT_BYTES_MAX, ENVIRONMENTS, LOOKUP, PLATFORMS, PUSH_PERMISSIONS, SUBSCRIPTION, SUBSCRIPTIONS,
    WEB_PUSH, WEB_PUSH_KEYS,
};
use crate::event_input::{
    AUDIENCE, AUDIENCE_COUNT_MAX, DATE, DATETIME, EXPECT_AUDIENCE, FCM_OWN_KEYS, FILTER, INTERRUPTIONS, MONEY, NAME,
    NUMBER, OWN_KEY, PAYLOAD, PERCENT, PRESENT, PRIORITIES, PUSH_POLICIES, QUERY_WAIT_MAX, RECEIPT_POLICIES, SCHEMA,
    TEXT, TIME, TO, TTL_UNITS, URGENCIES,
};
use crate::event_view::EventState;
use crate::imports::{IMPORT, IMPORT_MUTE, MUTE_COUNT_MAX};
use crate::input::Schema;
use crate::mutes::{MUTE, MUTE_MAX};
use crate::problem::{Kind, TYPE_PREFIX};
use crate::readiness::ProviderStatus;
use crate::selectors::EXPLAIN;
use crate::warnings::{Kind as Warned, TYPE_PREFIX as WARNING_PREFIX};
use crate::why::Standing;

/// What requests hold: each component with the fields that are read.
#[cfg(test)]
pub(super) const TAKEN: [(&str, &Schema); 25] = [
    ("Event", &SCHEMA),
    ("Recipients", &TO),
    ("Filter", &FILTER),
    ("Text", &TEXT),
    ("NumberValue", &NUMBER),
    ("PercentValue", &PERCENT),
    ("MoneyValue", &MONEY),
    ("DatetimeValue", &DATETIME),
    ("DateValue", &DATE),
    ("TimeValue", &TIME),
    ("NameValue", &NAME),
    ("Present", &PRESENT),
    ("Payload", &PAYLOAD),
    ("Audience", &AUDIENCE),
    ("Selection", &EXPLAIN),
    ("ExpectAudience", &EXPECT_AUDIENCE),
    ("NewDevice", &DEVICE),
    ("Lookup", &LOOKUP),
    ("Mute", &MUTE),
    ("PushSubscription", &WEB_PUSH),
    ("PushSubscriptionKeys", &WEB_PUSH_KEYS),
    ("Subscriptions", &SUBSCRIPTIONS),
    ("Subscription", &SUBSCRIPTION),
    ("ImportedDevice", &IMPORT),
    ("ImportedMute", &IMPORT_MUTE),
];

/// Names as texts: the component, its rule, an example.
pub(super) const NAMES: [(&str, &str, &str); 20] = [
    ("EventId", "^[!-~]{1,128}$", "goal-17"),
    ("DeviceId", "^[!-~]{1,128}$", "phone-1"),
    ("UserId", "^[!-~]{1,128}$", "u-1"),
    ("ImportName", "^[!-~]{1,64}$", "from-the-old-system"),
    ("FeedName", "^[A-Za-z0-9_.-]{1,40}$", "news"),
    ("AppId", "^[!-~]{1,128}$", "com.example.app"),
    ("CollapseKey", "^[!-~]{1,64}$", "match-7"),
    ("TopicName", "^[a-z0-9_-]{1,64}$", "goal"),
    ("Subject", "^[a-z0-9_-]+:[!-~]+$", "team:42"),
    ("ChannelName", "^[!-~]{1,255}$", "match:7"),
    ("Country", "^[A-Z]{2}$", "SE"),
    ("Locale", "^[A-Za-z]{2,3}([-_][A-Za-z]{4})?([-_]([A-Za-z]{2}|[0-9]{3}))?$", "pt-BR"),
    ("TimeZone", "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z][A-Za-z0-9_+-]*)*$", "Europe/Stockholm"),
    ("MuteScope", "^(everything|[a-z0-9_-]+:[!-~]+)$", "team:42"),
    ("ApnsToken", "^([0-9A-Fa-f]{2}){1,200}$", "0f8e"),
    ("FcmToken", "^[!-~]+$", "dPx0:APA91b-8_x"),
    // A port has no more than 65535 of its numbers, which a pattern says in as many pieces.
    (
        "Endpoint",
        "^https://[A-Za-z0-9.-]{1,253}(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]\
         |6553[0-5]))?([/?][A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?$",
        "https://push.example.net/wp/gAAAA",
    ),
    (
        "P256dh",
        "^B[A-P][A-Za-z0-9_-]{84}[AEIMQUYcgkosw048]=?$",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    ),
    ("PushSecret", "^[A-Za-z0-9_-]{21}[AQgw](==?)?$", "BTBZMqHH6r4Tts7J_aSIgg"),
    ("BrakeScope", "^(everything|app:[!-~]{1,128}|topic:[a-z0-9_-]{1,64}|provider:(apns|fcm|web_push))$", "topic:goal"),
];

/// The most characters of a name whose pattern does not say it.
pub(super) fn characters_max(name: &str) -> Option<usize> {
    match name {
        "Subject" | "MuteScope" => Some(128),
        "TimeZone" => Some(64),
        "FcmToken" => Some(4096),
        "Endpoint" => Some(ENDPOINT_BYTES_MAX),
        _ => None,
    }
}

pub(super) fn reference(component: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{component}")})
}

pub(super) fn schemas(config: &ApiConfig) -> Map<String, Value> {
    let names = NAMES.into_iter().map(|(name, pattern, example)| {
        let mut schema = json!({"type": "string", "pattern": pattern, "examples": [example]});
        if let Some(max) = characters_max(name) {
            schema["maxLength"] = max.into();
        }
        (name.to_owned(), schema)
    });
    let entries = |value: Value| match value {
        Value::Object(entries) => entries,
        value => unreachable!("an object: {value}"),
    };
    let mut schemas: Map<String, Value> = names
        .chain(entries(of_events()))
        .chain(entries(typed_values()))
        .chain(entries(of_devices(config)))
        .chain(entries(of_audiences()))
        .chain(entries(of_feeds_and_texts()))
        .chain(entries(of_audit()))
        .chain(entries(of_system()))
        .chain(entries(answers()))
        .chain(entries(whys()))
        .chain(entries(remarks()))
        .collect();
    describe(&mut schemas);
    schemas
}

/// What is told of who changed what.
fn of_audit() -> Value {
    json!({
        "AuditLog": given(&["next", "damaged"], json!({
            "entries": items(reference("AuditEntry")),
            "next": {"type": "string"},
            "damaged": {"type": "integer", "minimum": 0, "description": "Lines of the log that were skipped because they cannot be read."},
        })),
        "AuditEntry": given(&["address", "ids", "more_ids", "to", "devices", "count", "trace"], json!({
            "id": {"type": "string", "description": "Its place in the log."},
            "at": {"type": "string", "format": "date-time", "description": "When the attempt ended."},
            "by": {"enum": ["key", "console", "system"], "description": "What kind of name `who` is."},
            "who": {"type": "string", "description": "The name of an API key, a user of the console, or `system`."},
            "address": {"type": "string", "description": "From where."},
            "action": {"type": "string", "description": "What was tried; docs/audit.md explains each."},
            "ids": {"type": "array", "items": {"type": "string"}, "description": "What was touched: at most 16 ids of events, devices, users; scopes; channels."},
            "more_ids": {"type": "integer", "minimum": 0, "description": "How many further ids there are."},
            "to": {"type": "string", "description": "Whom an event is for, in words; of a list, its first event."},
            "devices": {"type": "integer", "minimum": 0, "description": "How many devices it is about, where that was counted."},
            "result": {"type": "integer", "minimum": 0, "description": "The HTTP status of the answer; 499: the caller left before the answer."},
            "count": {"type": "integer", "minimum": 0, "description": "How many attempts this entry stands for; absent: one."},
            "trace": {"type": "string", "description": "The trace of the request."},
        })),
    })
}

/// What is told of the server and its providers.
fn of_system() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "System": given(&["disk"], json!({
            "version": text("The version that runs."),
            "node": text("Unique, new at each start."),
            "uptime_seconds": count(),
            "listeners": items(given(&[], json!({"name": text("Its kind."), "address": text("Where it listens.")}))),
            "clients": given(&[], json!({
                "connections": count(), "users": count(), "channels": count(), "subscriptions": count(),
                "slow_closed": {"type": "integer", "minimum": 0, "description": "Connections closed because they were too slow."},
            })),
            "store": given(&[], json!({
                "status": {"enum": ["ok", "refuses_writes"]},
                "devices": count(), "proven": count(), "subscriptions": count(), "scheduled": count(), "batches": count(),
                "requests": count(), "failures": count(), "reopened": count(), "overloaded": count(), "checkpoints": count(),
                "checkpoints_failed": count(), "rebuilt": count(), "heap_bytes": count(), "heap_live_bytes": count(),
            })),
            "process": given(&[], json!({
                "resident_bytes": count(), "cpu_seconds": count(), "threads": count(), "open_files": count(),
                "open_files_max": count(),
            })),
            "memory": items(given(&[], json!({
                "name": text("What it is for."),
                "bytes": {"type": "integer", "minimum": 0, "description": "The most that the limits of the configuration allow."},
                "is_peak": {"type": "boolean", "description": "It is needed only while a buffer is full."},
                "settings": text("The settings that decide it."),
            }))),
            "disk": given(&[], json!({"free_bytes": count(), "total_bytes": count()})),
        })),
        "Providers": given(&[], json!({"providers": items(reference("ProviderState"))})),
        "ProviderState": given(&[], json!({
            "provider": states_of(Provider::ALL.iter().map(|provider| provider.as_str())),
            "name": text("The section's name in the configuration."),
            "status": {"enum": ProviderStatus::ALL},
            "since": {"type": "string", "format": "date-time", "description": "Since when it has this status."},
            "pools": items(reference("ProviderPool")),
        })),
        "ProviderPool": given(&["credential_ends_in_seconds", "round_trip_p50_ms", "round_trip_p99_ms"], json!({
            "name": text("The section's name; behind it the push service of browsers, or `quarantine`."),
            "connections": count(), "streams": count(), "streams_allowed": count(),
            "waiting": {"type": "integer", "minimum": 0, "description": "Notifications that wait for a connection."},
            "outcomes": counts(), "rejected": counts(), "repeats": count(),
            "pauses": {"type": "integer", "minimum": 0, "description": "Pauses that the provider asked for."},
            "connect_failures": count(), "goaways": count(),
            "credential_refused": {"type": "integer", "minimum": 0, "description": "Refusals of the token, key or certificate."},
            "credential_ends_in_seconds": {"type": "integer", "minimum": 0, "description": "Seconds until the certificate ends with which the provider knows us. Other credentials do not end by themselves."},
            "round_trip_p50_ms": count(), "round_trip_p99_ms": count(),
        })),
    })
}

/// What is told of feeds and of texts.
fn of_feeds_and_texts() -> Value {
    let moment = |description: &str| json!({"type": "string", "format": "date-time", "description": description});
    json!({
        "Document": {"description": "A document of the feed's kind, such as RSS, XML or JSON."},
        "Texts": given(&[], json!({
            "topics": {"type": "integer", "minimum": 0, "description": "The number of topics."},
            "languages": {"type": "array", "items": {"type": "string"}, "description": "The languages that have translations."},
            "coverage": items(reference("Coverage")),
            "since": moment("Since when they are in force."),
            "can_roll_back": {"type": "boolean", "description": "Whether there are texts to roll back to."},
            "faults": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What is wrong with the texts that were read last; empty if they are in force.",
            },
        })),
        "Coverage": given(&[], json!({
            "locale": {"type": "string", "description": "The language."},
            "translated": {"type": "integer", "minimum": 0, "description": "Topics that are whole in it."},
            "missing": {"type": "array", "items": reference("TopicName"), "description": "The first topics that are not."},
        })),
        "Feeds": given(&[], json!({"feeds": items(reference("Feed"))})),
        "Feed": given(&["place", "read_at", "worked_at", "next_at", "etag", "error"], json!({
            "name": {"type": "string", "description": "The operator's name for it."},
            "kind": {"type": "string", "description": "What its documents are."},
            "how": {"enum": ["polled", "received", "files"], "description": "How its documents come."},
            "place": {"type": "string", "description": "Where its documents come from, without a query."},
            "state": {"enum": ["new", "reading", "waiting", "failing"], "description": "Whether it works."},
            "read_at": moment("When it was last read, or when that was tried."),
            "worked_at": moment("When reading it last worked."),
            "next_at": moment("When it is read next."),
            "etag": {"type": "string", "description": "The ETag of its last document."},
            "known": {"type": "integer", "minimum": 0, "description": "Entries that are known, so that they are not sent again."},
            "failures": {"type": "integer", "minimum": 0, "description": "Failures in a row."},
            "error": {"type": "string", "description": "The last failure, or for what it waits."},
            "last": reference("FeedCounts"),
            "total": reference("FeedCounts"),
            "errors": items(reference("FeedError")),
        })),
        "FeedCounts": given(&[], json!({"sent": count(), "repeated": count(), "skipped": count(), "wrong": count()})),
        "FeedError": given(&[], json!({
            "place": {"type": "string", "description": "Where the entry is in its document."},
            "reason": {"type": "string", "description": "What is wrong with it."},
        })),
        "FeedReport": given(&[], json!({
            "entries": {"type": "integer", "minimum": 0, "description": "All entries of the document."},
            "sent": count(),
            "repeated": count(),
            "skipped": count(),
            "wrong": count(),
            "reasons": items(given(&[], json!({
                "reason": {"type": "string", "description": "Why entries were skipped."},
                "count": {"type": "integer", "minimum": 0, "description": "How many."},
            }))),
            "errors": items(reference("FeedError")),
        })),
    })
}

/// An object with the fields of `schema` and no others. Those that need not be there may also be `null`.
fn taken(schema: &Schema, required: &[&str], mut properties: Value) -> Value {
    for name in schema.fields.iter().filter(|name| !required.contains(name)) {
        if let Some(property) = properties.get_mut(name) {
            *property = nullable(property.take());
        }
    }
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

fn nullable(mut schema: Value) -> Value {
    if let Some(of) = schema.get("type").and_then(Value::as_str) {
        schema["type"] = json!([of, "null"]);
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
        return schema;
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.push(json!({"type": "null"}));
    } else if schema.get("$ref").is_some() {
        return json!({"anyOf": [schema, {"type": "null"}]});
    }
    schema // What has no type may be anything.
}

fn list(of: &str, min: usize, max: usize) -> Value {
    json!({"type": "array", "items": reference(of), "minItems": min, "maxItems": max, "uniqueItems": true})
}

fn text(bytes_min: usize, bytes_max: usize, description: &str) -> Value {
    let description = format!("{description} At most {bytes_max} bytes.");
    json!({"type": "string", "minLength": bytes_min, "maxLength": bytes_max, "description": description})
}

fn words<T>(words: &[(&str, T)]) -> Value {
    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    json!({"type": "string", "enum": words})
}

/// The same of a field that has a default: the first one.
fn words_or_first<T>(choice: &[(&str, T)]) -> Value {
    let mut schema = words(choice);
    schema["default"] = choice[0].0.into();
    schema
}

/// A whole number as text, from `min`, which is a power of ten, to `max`, as a pattern: for 1 to 28
/// `([1-9]|1[0-9]|2[0-7]|28)`.
fn whole(min: u64, max: u64) -> String {
    let (shortest, longest, digits) = (min.to_string().len(), max.to_string().len(), max.to_string());
    let any = |count: usize| if count == 0 { String::new() } else { format!("[0-9]{{{count}}}") };
    let shorter = (shortest..longest).map(|length| format!("[1-9]{}", any(length - 1)));
    // As long as the largest and below it: the same up to some digit, which is smaller.
    let smaller = digits.bytes().enumerate().filter_map(|(index, digit)| {
        let first = if index == 0 { b'1' } else { b'0' };
        let (before, last) = (&digits[..index], digit.checked_sub(1).filter(|last| *last >= first)?);
        Some(format!("{before}[{}-{}]{}", first as char, last as char, any(longest - 1 - index)))
    });
    let all: Vec<String> = shorter.chain(smaller).chain([digits.clone()]).collect();
    format!("({})", all.join("|"))
}

/// Seconds from 1 to `max`, as a number or as text with a unit: the choices.
fn whole_seconds(max: u64) -> Value {
    let text = TTL_UNITS.map(|(unit, seconds)| whole(1, max / seconds) + unit).join("|");
    json!([
        {"type": "integer", "minimum": 1, "maximum": max},
        {"type": "string", "pattern": format!("^0*({text})$")},
    ])
}

/// How long a request for receipts may wait: seconds, or text with a unit.
pub(super) fn query_wait() -> Value {
    let (seconds, millis) = (QUERY_WAIT_MAX.as_secs(), QUERY_WAIT_MAX.as_millis() as u64);
    let pattern = format!("^(0+(ms|s)|0*({}ms|{}s))$", whole(1, millis), whole(1, seconds));
    json!({"anyOf": [
        {"type": "number", "minimum": 0, "maximum": seconds},
        {"type": "string", "pattern": pattern, "examples": ["2s"]},
    ]})
}

/// At least one of these fields is there, and as a list of `min` entries or more.
fn any_of_lists(fields: &[&str], min: usize) -> Value {
    let there = |name: &&str| json!({"required": [name], "properties": {*name: {"type": "array", "minItems": min}}});
    fields.iter().map(there).collect()
}

fn of_events() -> Value {
    let count = limits::FILTER_COUNT_MAX;
    let platforms = json!({
        "type": "array",
        "items": words(&PLATFORMS),
        "minItems": 1,
        "maxItems": count,
        "uniqueItems": true,
    });
    let mut recipients = taken(
        &TO,
        &[],
        json!({
            "users": list("UserId", 0, limits::USER_COUNT_MAX),
            "devices": list("DeviceId", 0, limits::DEVICE_COUNT_MAX),
            "selector": reference("Selector"),
        }),
    );
    let mut named = any_of_lists(&["users", "devices"], 1);
    named
        .as_array_mut()
        .expect("a list")
        .push(json!({"required": ["selector"], "properties": {"selector": {"type": "string"}}}));
    recipients["anyOf"] = named;
    let mut filter = taken(
        &FILTER,
        &[],
        json!({
            "countries": list("Country", 1, count),
            "locales": list("Locale", 1, count),
            "platforms": platforms,
            "apps": list("AppId", 1, count),
        }),
    );
    filter["anyOf"] = any_of_lists(FILTER.fields, 0);
    filter["description"] =
        "The part of the audience that is pushed: the devices that fit every given list. `pt` includes `pt-BR`.".into();
    let devices = |description: &str| {
        json!({
            "type": "integer", "minimum": 0, "maximum": AUDIENCE_COUNT_MAX, "description": description,
        })
    };
    let bounds = json!({"min": devices("The least number of devices."), "max": devices("The greatest number of devices; not less than `min`.")});
    let mut expect_audience = taken(&EXPECT_AUDIENCE, &[], bounds);
    expect_audience["anyOf"] = EXPECT_AUDIENCE
        .fields
        .iter()
        .map(|name| json!({"required": [name], "properties": {*name: {"type": "integer"}}}))
        .collect();
    expect_audience["description"] =
        "How many devices the audience must have. With another number nobody is pushed: the event is refused, \
         or, when the number changes before it begins, its devices are suppressed."
            .into();
    let shown = |description| text(1, limits::PRESENT_BYTES_MAX, description);
    json!({
        "Events": {
            "oneOf": [
                reference("Event"),
                {"type": "array", "items": reference("Event"), "minItems": 1, "maxItems": limits::BATCH_COUNT_MAX},
            ],
            "description": "A list is accepted as a whole or not at all.",
        },
        "Event": event(),
        "Audience": taken(&AUDIENCE, &["topic", "subjects"], addressed()),
        "Selection": taken(&EXPLAIN, &["selector"], json!({"selector": reference("Selector")})),
        "Selector": {
            "type": "string",
            "minLength": 1,
            "maxLength": selector_limits::BYTES_MAX,
            "description": "An expression that selects devices, such as `goal on team:42 and not country = SE`; see docs/selectors.md.",
            "examples": ["goal on team:42 and not country = SE"],
        },
        "Recipients": recipients,
        "Filter": filter,
        "Text": taken(&TEXT, &["title", "body"], json!({
            "title": text(0, limits::TEXT_BYTES_MAX, "First line."),
            "body": text(1, limits::TEXT_BYTES_MAX, "Text; `%{name}` is replaced by the parameter with this name."),
        })),
        "Present": taken(&PRESENT, &[], json!({
            "link": shown("What the app opens when the notification is tapped."),
            "image": shown("The address of a picture to show."),
            "sound": shown("A sound of the app, `default`, or `none`."),
            "badge": {"type": "integer", "minimum": 0, "maximum": u32::MAX, "description": "The number on the app's icon."},
            "thread": shown("Notifications with the same thread are shown together; the default is the first subject."),
            "category": shown("The category, which decides the actions that the app offers."),
            "interruption": words(&INTERRUPTIONS),
            "android_channel": shown("The notification channel on Android."),
        })),
        "ExpectAudience": expect_audience,
        "Payload": taken(&PAYLOAD, &[], json!({
            "apns": patch("the APNs payload", json!({(OWN_KEY): false})),
            "fcm": patch("the FCM message", fcm_patch()),
            "webpush": patch("what a browser's service worker gets", json!({(OWN_KEY): false})),
        })),
    })
}

fn patch(over: &str, properties: Value) -> Value {
    let max = limits::PAYLOAD_BYTES_MAX;
    let description = format!(
        "Put over {over} as JSON Merge Patch (RFC 7396). At most {max} bytes as JSON; `{OWN_KEY}` and to whom it goes \
         are ours."
    );
    json!({"type": "object", "properties": properties, "description": description})
}

fn fcm_patch() -> Value {
    let mut properties: Map<_, _> = FCM_OWN_KEYS.iter().map(|name| ((*name).to_owned(), false.into())).collect();
    let names = format!("^(?!{OWN_KEY}(\\.|$))");
    let data = json!({
        "type": "object",
        "propertyNames": {"pattern": names},
        "additionalProperties": {"type": ["string", "null"]},
    });
    properties.insert("data".to_owned(), data);
    properties.into()
}

/// The fields that say who an event is for.
fn addressed() -> Value {
    json!({
        "topic": reference("TopicName"),
        "subjects": list("Subject", 1, limits::SUBJECT_COUNT_MAX),
        "to": reference("Recipients"),
        "filter": reference("Filter"),
    })
}

fn param_value() -> Value {
    let plain = json!({"type": ["string", "number"], "maxLength": limits::PARAM_TEXT_BYTES_MAX});
    let kinds = ["Number", "Percent", "Money", "Datetime", "Date", "Time", "Name"];
    let typed = kinds.into_iter().map(|kind| reference(&format!("{kind}Value")));
    let choices: Vec<Value> = [plain].into_iter().chain(typed).collect();
    json!({"anyOf": choices})
}

/// Values that each language shows in its own way.
fn typed_values() -> Value {
    let (max, digits_max) = (limits::PARAM_DECIMAL_MAX, limits::PARAM_DIGITS_MAX);
    let number = |description: &str| {
        let description = format!("{description} With a fraction within ±{max}, else of 64 bits.");
        json!({"type": "number", "minimum": -max, "maximum": max, "description": description})
    };
    let digits = json!({"type": "integer", "minimum": 0, "maximum": digits_max});
    let style = |styles: &[(&str, Style)], default: &str| {
        let mut schema = words(styles);
        schema["default"] = default.into();
        schema
    };
    json!({
        "NumberValue": taken(&NUMBER, &["number"], json!({
            "number": number("The number, shown with the separators of the language."), "digits": digits,
        })),
        "PercentValue": taken(&PERCENT, &["percent"], json!({
            "percent": number("The number before the sign: 63 is 63 %."), "digits": digits,
        })),
        "MoneyValue": taken(&MONEY, &["money", "currency"], json!({
            "money": number("The amount, shown with as many digits as the currency has."),
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["EUR"]},
        })),
        "DatetimeValue": taken(&DATETIME, &["datetime"], json!({
            "datetime": {
                "type": "string",
                "format": "date-time",
                "description": "A moment from 1970-01-02 to 9999-12-29 with its offset from UTC (RFC 3339).",
                "examples": ["2026-11-24T20:45:00+01:00"],
            },
            "style": style(&Style::ALL, "datetime_medium"),
            "zone": reference("TimeZone"),
            "default_zone": reference("TimeZone"),
        })),
        "DateValue": taken(&DATE, &["date"], json!({
            "date": {"type": "string", "format": "date", "description": "A day.", "examples": ["2026-11-24"]},
            "style": style(Style::OF_DATE, "date_medium"),
        })),
        "TimeValue": taken(&TIME, &["time"], json!({
            "time": {
                "type": "string",
                "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
                "description": "A time of day.",
                "examples": ["20:45"],
            },
            "style": style(Style::OF_TIME, "time_short"),
        })),
        "NameValue": taken(&NAME, &["name"], json!({
            "name": text(1, limits::PARAM_TEXT_BYTES_MAX, "A text that has a translation itself, in the source language."),
            "context": text(1, limits::PARAM_CONTEXT_BYTES_MAX, "The context (msgctxt) of its translation."),
        })),
    })
}

fn event() -> Value {
    let mut properties = addressed();
    let others = json!({
        "id": reference("EventId"),
        "params": {
            "type": "object",
            "maxProperties": limits::PARAM_COUNT_MAX,
            "propertyNames": {"minLength": 1, "maxLength": limits::PARAM_NAME_BYTES_MAX},
            "additionalProperties": param_value(),
            "description": format!(
                "The values of placeholders: texts of at most {} bytes, whole numbers of 64 bits and decimals, which are \
                 shown as they are; or objects, which each language shows in its own way (docs/values.md).",
                limits::PARAM_TEXT_BYTES_MAX
            ),
        },
        "text": {
            "type": "object",
            "maxProperties": limits::TEXT_COUNT_MAX,
            "propertyNames": reference("Locale"),
            "additionalProperties": reference("Text"),
            "description": "The event's own texts by language, instead of the topic's; `und` is for all other languages.",
        },
        "present": reference("Present"),
        "payload": reference("Payload"),
        "data": {
            "description": format!(
                "The data for connected clients; by default topic, subjects and params. At most {} bytes as JSON.",
                limits::DATA_BYTES_MAX
            ),
        },
        "channels": list("ChannelName", 1, limits::CHANNEL_COUNT_MAX),
        "push": words_or_first(&PUSH_POLICIES),
        "receipt": {"type": "boolean", "default": false, "description": "Whether to collect receipts from all clients that get it live."},
        "receipt_wait": {
            "anyOf": [
                {
                    "type": "number",
                    "minimum": limits::RECEIPT_WAIT_MIN.as_secs_f64(),
                    "maximum": limits::RECEIPT_WAIT_MAX.as_secs(),
                },
                {"type": "string", "pattern": format!(
                    "^0*({}ms|{}s)$",
                    whole(limits::RECEIPT_WAIT_MIN.as_millis() as u64, limits::RECEIPT_WAIT_MAX.as_millis() as u64),
                    whole(1, limits::RECEIPT_WAIT_MAX.as_secs())
                )},
            ],
            "default": limits::RECEIPT_WAIT_DEFAULT.as_secs(),
            "description": "Seconds, or text with a unit: how long connected devices may take to answer; half of \
                `ttl` at most, and 500 ms when jobs that wait for answers take all places.",
        },
        "receipt_policy": words_or_first(&RECEIPT_POLICIES),
        "collapse_key": reference("CollapseKey"),
        "ttl": {
            "anyOf": whole_seconds(limits::TTL_MAX.as_secs()),
            "default": limits::TTL_DEFAULT.as_secs(),
            "description": format!(
                "Seconds, or text with a unit, at most {} seconds: how long it is worth delivering, from its `at` on.",
                limits::TTL_MAX.as_secs()
            ),
        },
        "priority": words_or_first(&PRIORITIES),
        "urgency": words(&URGENCIES),
        "at": {
            "type": "string",
            "format": "date-time",
            "description": format!(
                "When it is due, with its offset from UTC: until then it is neither published nor sent. At most {} \
                 days ahead, or a minute back, which is at once.",
                limits::AHEAD_MAX.as_secs() / 86_400
            ),
        },
        "expect_audience": reference("ExpectAudience"),
        "dry_run": {
            "type": "boolean",
            "default": false,
            "description": "Do everything but the delivery. Providers that offer it validate the message.",
        },
        "traceparent": {
            "type": "string",
            "pattern": "^00-[0-9a-f]{31}[1-9a-f]-[0-9a-f]{15}[1-9a-f]-[0-9a-f]{2}$",
            "description": "Its trace (W3C Trace Context), instead of that of the request's header.",
        },
    });
    if let (Some(properties), Value::Object(others)) = (properties.as_object_mut(), others) {
        properties.extend(others);
    }
    taken(&SCHEMA, &["id", "topic", "subjects"], properties)
}

/// Each platform has its address in a field of its own, and only Apple has two environments. Who says that it is not
/// pushed may leave the address out.
fn new_device() -> Value {
    let mut device = taken(
        &DEVICE,
        &["platform", "app", "locale"],
        json!({
            "platform": words(&PLATFORMS),
            "token": {"type": "string", "description": "The device's address at APNs (as hexadecimal digits) or FCM."},
            "web_push": reference("PushSubscription"),
            "app": reference("AppId"),
            "locale": reference("Locale"),
            "environment": words_or_first(&ENVIRONMENTS),
            "country": reference("Country"),
            "time_zone": reference("TimeZone"),
            "push_permission": push_permission(),
            "user": reference("UserId"),
            "proven": {"type": "boolean", "description":
                "Whether a push to this very token has worked before, with another system. A device without that is \
                 sent to with the unproven ones until its provider accepts a push. Without a word what is known of \
                 the token stays; a token that is new here is unproven."},
        }),
    );
    let absent = json!({"type": "null"});
    let platform = |name: &str, field: &str, address: Value, other: &str, fields: Value| {
        let mut properties = json!({"platform": {"const": name}, (other): absent});
        if let (Some(properties), Value::Object(fields)) = (properties.as_object_mut(), fields) {
            properties.extend(fields);
        }
        let (mut reached, mut silent) = (properties.clone(), properties);
        reached[field] = address.clone();
        silent[field] = nullable(address);
        silent["push_permission"] = json!({"enum": ["unknown", "denied"]});
        json!([
            {"required": [field], "properties": reached},
            {"required": ["push_permission"], "properties": silent},
        ])
    };
    let production = json!({"environment": {"enum": [ENVIRONMENTS[0].0, null]}});
    let choices = [
        platform("ios", "token", reference("ApnsToken"), "web_push", json!({})),
        platform("android", "token", reference("FcmToken"), "web_push", production.clone()),
        platform("web", "web_push", reference("PushSubscription"), "token", production),
    ];
    device["anyOf"] = choices.iter().flat_map(|choice| choice.as_array().cloned().unwrap_or_default()).collect();
    device
}

/// The words of it, with what they mean here.
fn push_permission() -> Value {
    let mut schema = words_or_first(&PUSH_PERMISSIONS);
    schema["description"] =
        "Whether its user lets the app show notifications, as it last said. One that says `denied` is \
        not pushed (`suppressed`, for `no_permission`). Who says `denied` or `unknown` may leave its address out."
            .into();
    schema
}

/// A token, as the platform has it, and nothing else.
fn lookup() -> Value {
    let mut lookup = taken(
        &LOOKUP,
        &["platform"],
        json!({
            "platform": words(&PLATFORMS),
            "token": {"type": "string"},
            "web_push": reference("PushSubscription"),
        }),
    );
    let absent = json!({"type": "null"});
    let choice = |name: &str, field: &str, address: &str, other: &str| {
        json!({
            "required": [field],
            "properties": {"platform": {"const": name}, (field): reference(address), (other): absent},
        })
    };
    lookup["oneOf"] = json!([
        choice("ios", "token", "ApnsToken", "web_push"),
        choice("android", "token", "FcmToken", "web_push"),
        choice("web", "web_push", "PushSubscription", "token"),
    ]);
    lookup
}

/// When it ends, said in one way or not at all.
fn mute() -> Value {
    let mut mute = taken(
        &MUTE,
        &[],
        json!({
            "until": {"type": "string", "format": "date-time", "description": "When it ends: a moment in the future."},
            "for": {
                "anyOf": whole_seconds(MUTE_MAX.as_secs()),
                "description": "How long: seconds, or text with a unit.",
            },
        }),
    );
    mute["anyOf"] = MUTE.fields.iter().map(|name| json!({"properties": {*name: {"type": "null"}}})).collect();
    mute["description"] = "When it ends. Without `until` and `for` it does not end by itself.".into();
    mute
}

/// A line of an import or an export.
fn imported_device(subscription_count_max: usize) -> Value {
    let moment = |description: &str| json!({"type": "string", "format": "date-time", "description": description});
    let mut device = taken(
        &IMPORT,
        &["id", "platform", "app", "locale"],
        json!({
            "id": reference("DeviceId"),
            "platform": words(&PLATFORMS),
            "token": {"type": "string", "description": "For ios an `ApnsToken`, for android an `FcmToken`."},
            "web_push": reference("PushSubscription"),
            "app": reference("AppId"),
            "locale": reference("Locale"),
            "environment": words_or_first(&ENVIRONMENTS),
            "country": reference("Country"),
            "time_zone": reference("TimeZone"),
            "push_permission": words_or_first(&PUSH_PERMISSIONS),
            "user": reference("UserId"),
            "proven": {"type": "boolean", "default": false, "description": "A provider has accepted a push to this token before."},
            "subscriptions": {
                "type": "array",
                "items": reference("Subscription"),
                "maxItems": subscription_count_max,
                "description": "They are added; existing ones stay.",
            },
            "mutes": {"type": "array", "items": reference("ImportedMute"), "maxItems": MUTE_COUNT_MAX},
            "credential": text(1, CREDENTIAL_BYTES_MAX, "The secret with which its app proves the device."),
            "credential_hash": {
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$",
                "description": "The SHA-256 of the secret, base64url without padding; not together with `credential`.",
            },
            "seen_at": moment("When it last registered or called."),
            "token_at": moment(
                "When its token was registered. If a provider says that the token was gone before this time, that is ignored.",
            ),
        }),
    );
    device["description"] = "A device with its subscriptions and mutes.".into();
    device
}

fn of_devices(config: &ApiConfig) -> Value {
    let max = config.subscription_count_max;
    let mut push_subscription = taken(
        &WEB_PUSH,
        &["endpoint", "keys"],
        json!({
            "endpoint": reference("Endpoint"),
            "expirationTime": {"description": "Not looked at."},
            "keys": reference("PushSubscriptionKeys"),
        }),
    );
    push_subscription["description"] =
        "A browser's push subscription in the form of its `toJSON()` (W3C Push API).".into();
    json!({
        "NewDevice": new_device(),
        "ImportedDevice": imported_device(max),
        "Exported": {"anyOf": [reference("ImportedDevice"), reference("UnreadableDevice")]},
        "UnreadableDevice": given(&["id"], json!({"id": reference("DeviceId"), "problem": reference("Problem")})),
        "ImportedMute": taken(&IMPORT_MUTE, &["scope"], json!({
            "scope": reference("MuteScope"),
            "until": {"type": "string", "format": "date-time", "description": "When it ends."},
        })),
        "Lookup": lookup(),
        "Mute": mute(),
        "PushSubscription": push_subscription,
        "PushSubscriptionKeys": taken(&WEB_PUSH_KEYS, &["p256dh", "auth"], json!({
            "p256dh": reference("P256dh"),
            "auth": reference("PushSecret"),
        })),
        "Subscriptions": taken(&SUBSCRIPTIONS, &["subscriptions"], json!({
            "subscriptions": {
                "type": "array",
                "items": reference("Subscription"),
                "maxItems": max,
                "description": format!("At most {max} pairs of subject and topic."),
            },
        })),
        "Subscription": taken(&SUBSCRIPTION, &["subject", "topics"], json!({
            "subject": reference("Subject"),
            "topics": {"type": "array", "items": reference("TopicName"), "minItems": 1, "maxItems": max},
        })),
    })
}

/// An object that we answer with: everything is there but `optional`.
fn given(optional: &[&str], properties: Value) -> Value {
    let names = properties.as_object().into_iter().flat_map(Map::keys);
    let required: Vec<&String> = names.filter(|name| !optional.contains(&name.as_str())).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn counts() -> Value {
    json!({"type": "object", "additionalProperties": count()})
}

fn states_of<'w>(words: impl Iterator<Item = &'w str>) -> Value {
    json!({"type": "string", "enum": words.collect::<Vec<_>>()})
}

fn items(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

/// A device as it is shown, with more where it is shown with all that belongs to it.
fn device(more: Value) -> Value {
    let mut device = json!({
        "id": reference("DeviceId"),
        "platform": words(&PLATFORMS),
        "app": reference("AppId"),
        "environment": words(&ENVIRONMENTS),
        "token": {"type": "string", "description": "The end of the token; absent if the device has none, or the provider said that it is gone."},
        "push_permission": words(&PUSH_PERMISSIONS),
        "locale": reference("Locale"),
        "country": reference("Country"),
        "time_zone": reference("TimeZone"),
        "user": reference("UserId"),
        "seen_at": {"type": "string", "format": "date-time", "description": "The day on which it last registered or called."},
    });
    if let (Some(device), Value::Object(more)) = (device.as_object_mut(), more) {
        device.extend(more);
    }
    device
}

fn of_audiences() -> Value {
    let provider = || states_of(Provider::ALL.iter().map(|provider| provider.as_str()));
    json!({
        "AudienceCounts": given(&["sample"], json!({
            "total": count(), "by_platform": counts(), "by_locale": counts(), "by_country": counts(), "by_app": counts(),
            "estimate": items(reference("Estimate")),
            "sample": {"type": "array", "items": reference("DeviceId"), "description": "The first devices, if they are asked for."},
        })),
        "ExplainedSelector": given(&[], json!({
            "selector": reference("Selector"),
            "devices": count(),
            "unmuted": count(),
            "of": count(),
            "tree": reference("ExplainedPart"),
        })),
        "ExplainedPart": given(&["parts"], json!({
            "text": {"type": "string"},
            "devices": count(),
            "parts": items(reference("ExplainedPart")),
        })),
        "Estimate": given(&["minutes", "limited_by"], json!({
            "provider": provider(),
            "pool": {"type": "string"},
            "devices": count(),
            "minutes": {
                "type": "number",
                "minimum": 0,
                "description": "Minutes until the last one is answered; absent while the provider's speed is unknown.",
            },
            "limited_by": {
                "type": "string",
                "enum": ["quota", "connections"],
                "description": "What decides `minutes`: the provider's quota or a pause it asked for; or the requests that \
                    the open connections may have in flight, and the round trip.",
            },
        })),
    })
}

/// What is told beside an answer, and of the server.
fn remarks() -> Value {
    let warnings = Warned::ALL.map(|kind| {
        let (name, meaning) = kind.parts();
        json!({"const": format!("{WARNING_PREFIX}{name}"), "title": meaning})
    });
    json!({
        "Warning": given(&["field"], json!({
            "type": {"oneOf": warnings, "description": "For programs: types are stable, and new ones may be added."},
            "detail": {"type": "string", "description": "For people: the field's path and what is wrong."},
            "field": {"type": "string", "description": "The path of the field."},
        })),
        "Health": given(&["faults"], json!({
            "status": {"const": "ok"},
            "faults": {
                "type": "array",
                "items": {"enum": ["texts"]},
                "description": "What the server works without, or with an earlier version of. `texts`: the topics or translations that were read last are wrong; the log says why.",
            },
        })),
        "Ready": ready(),
    })
}

/// What `/ready` answers.
fn ready() -> Value {
    let provider = states_of(Provider::ALL.iter().map(|provider| provider.as_str()));
    let statuses: Vec<Value> = ProviderStatus::ALL.iter().map(|status| json!(status)).collect();
    given(
        &["store", "listeners", "providers"],
        json!({
            "status": {"enum": ["ready", "degraded", "unavailable", "stopping"], "description":
                "`degraded` comes with 200, `unavailable` (the store) and `stopping` come with 503."},
            "store": given(&[], json!({"status": {"enum": ["ok", "refuses_writes"]}})),
            "listeners": items(given(&[], json!({
                "name": {"enum": ["public", "internal"], "description": "The listener in the configuration."},
                "address": {"type": "string", "description": "Where it listens."},
            }))),
            "providers": items(given(&[], json!({
                "provider": provider,
                "name": {"type": "string", "description": "The section's name in the configuration."},
                "status": {"enum": statuses, "description":
                    "`breaker_open`: the last attempts to connect failed, and the next ones come rarely. \
                     `on_demand`: connections are made when there is something to send."},
                "since": {"type": "string", "format": "date-time", "description": "Since when."},
            }))),
        }),
    )
}

fn answers() -> Value {
    let position = || json!({"type": "integer", "minimum": 0, "description": "Its position in the journal."});
    let moment = || json!({"type": "string", "format": "date-time"});
    let provider = || states_of(Provider::ALL.iter().map(|provider| provider.as_str()));
    let states = |words: &[&str]| json!({"type": "string", "enum": words});
    let optional_report = [
        "trace_id",
        "position",
        "priority",
        "channels",
        "at",
        "done_at",
        "paused_by",
        "audience",
        "held",
        "retried",
        "outcomes",
        "time_to",
        "time_to_by",
        "by",
        "receipts",
    ];
    let types = Kind::ALL.map(|kind| {
        let (name, status, title) = kind.parts();
        json!({"const": format!("{TYPE_PREFIX}{name}"), "title": title, "description": format!("Status {status}.")})
    });
    json!({
        "Accepted": given(&["position", "channels", "at", "state", "repeated", "warnings"], json!({
            "id": reference("EventId"),
            "position": position(),
            "channels": items(reference("Place")),
            "at": {"type": "string", "format": "date-time", "description": "When it is due, if it is a scheduled event."},
            "state": {"const": "scheduled", "description": "It is a scheduled event, which has no position."},
            "repeated": {"const": true, "description": "It was accepted before; this is the first answer again."},
            "warnings": items(reference("Warning")),
        })),
        "AcceptedEvents": {"oneOf": [reference("Accepted"), items(reference("Accepted"))]},
        "Place": given(&[], json!({
            "channel": reference("ChannelName"),
            "offset": count(),
            "epoch": {"type": "string"},
        })),
        "ScheduledEvents": given(&["next"], json!({
            "events": items(reference("ScheduledEvent")),
            "next": {"type": "string"},
        })),
        "ScheduledEvent": given(&["trace_id"], json!({
            "id": reference("EventId"),
            "topic": reference("TopicName"),
            "accepted_at": moment(),
            "trace_id": {"type": "string"},
            "state": {"const": "scheduled"},
            "at": moment(),
        })),
        "EventReport": given(&optional_report, json!({
            "id": reference("EventId"),
            "position": position(),
            "topic": reference("TopicName"),
            "priority": words(&PRIORITIES),
            "accepted_at": moment(),
            "trace_id": {"type": "string"},
            "state": states_of(EventState::ALL.iter().map(|state| state.as_str())),
            "at": {"type": "string", "format": "date-time", "description": "When it is due, while it is scheduled."},
            "done_at": moment(),
            "paused_by": reference("BrakeScope"),
            "audience": count(),
            "held": count(),
            "retried": {"type": "integer", "minimum": 0, "description": "Attempts that failed and were repeated."},
            "outcomes": reference("Outcomes"),
            "time_to": reference("TimeTo"),
            "time_to_by": {"type": "object", "additionalProperties": reference("TimeTo")},
            "by": items(reference("JobPart")),
            "channels": items(reference("Place")),
            "receipts": given(&[], json!({"written": count(), "received": count()})),
        })),
        "Outcomes": given(&[], json!({
            "accepted": count(),
            "received": count(),
            "expired": count(),
            "unknown": count(),
            "cancelled": count(),
            "superseded": count(),
            "rejected": counts(),
            "suppressed": counts(),
        })),
        "TimeTo": given(&[], json!({
            "first_ms": count(), "p50_ms": count(), "p90_ms": count(), "p99_ms": count(), "p100_ms": count(),
        })),
        "Receipts": given(&["users", "users_complete"], json!({
            "written": count(),
            "received": count(),
            "users": items(json!({"type": "string"})),
            "users_complete": {"type": "boolean", "description": "False if more users answered than are listed."},
        })),
        "Jobs": given(&["next"], json!({"jobs": items(reference("Job")), "next": position()})),
        "Job": given(&["topic", "done_at", "paused_by", "time_to", "time_to_by", "by"], json!({
            "id": reference("EventId"),
            "position": position(),
            "topic": reference("TopicName"),
            "priority": words(&PRIORITIES),
            "accepted_at": moment(),
            "state": states(&["running", "paused", "cancelled", "finished"]),
            "done_at": moment(),
            "paused_by": reference("BrakeScope"),
            "audience": count(),
            "held": count(),
            "retried": {"type": "integer", "minimum": 0, "description": "Attempts that failed and were repeated."},
            "outcomes": reference("Outcomes"),
            "time_to": reference("TimeTo"),
            "time_to_by": {"type": "object", "additionalProperties": reference("TimeTo")},
            "by": items(reference("JobPart")),
        })),
        "JobPart": given(&["locale"], json!({
            "provider": provider(),
            "app": reference("AppId"),
            "locale": reference("Locale"),
            "outcomes": reference("Outcomes"),
        })),
        "Brakes": given(&[], json!({"brakes": items(reference("Brake"))})),
        "Brake": given(&[], json!({"scope": reference("BrakeScope"), "paused_at": moment()})),
        "Device": given(&["token", "country", "time_zone", "user", "seen_at"], device(json!({}))),
        "PutDevice": given(&["token", "country", "time_zone", "user", "seen_at", "credential", "warnings"], device(json!({
            "credential": {"type": "string", "description": "Only the answer that makes it has it."},
            "warnings": items(reference("Warning")),
        }))),
        "DeviceWithAll": given(&["token", "country", "time_zone", "user", "seen_at"], device(json!({
            "subscriptions": items(reference("Subscription")),
            "mutes": items(reference("MuteView")),
        }))),
        "UserExport": given(&[], json!({
            "user": reference("UserId"),
            "exported_at": moment(),
            "devices": items(json!({"anyOf": [reference("DeviceWithAll"), reference("UnreadableDevice")]})),
        })),
        "ImportTold": given(&["lines", "repeated", "created", "updated", "subscribed", "rejected", "done", "line", "problem"], json!({
            "lines": {"type": "integer", "minimum": 0, "description": "Lines of the import that are done."},
            "repeated": {"type": "integer", "minimum": 0, "description": "Lines of this request that were done before."},
            "created": count(),
            "updated": count(),
            "subscribed": count(),
            "rejected": {"type": "integer", "minimum": 0, "description": "Wrong lines."},
            "done": {"type": "boolean", "description": "Only on the last line: whether all lines were read."},
            "line": {"type": "integer", "minimum": 1, "description": "The line that `problem` is about."},
            "problem": reference("Problem"),
        })),
        "ImportProgress": given(&[], json!({
            "lines": count(), "created": count(), "updated": count(), "subscribed": count(), "at": moment(),
        })),
        "Erased": given(&[], json!({"devices": count()})),
        "Mutes": given(&[], json!({"mutes": items(reference("MuteView"))})),
        "MuteView": given(&["until"], json!({
            "scope": reference("MuteScope"),
            "until": {"type": "string", "format": "date-time", "description": "When it ends; absent if it does not end by itself."},
        })),
        "Devices": given(&["next"], json!({"devices": items(reference("Device")), "next": reference("DeviceId")})),
        "Credential": given(&[], json!({"credential": {"type": "string"}})),
        "Changed": given(&["warnings"], json!({
            "added": count(), "removed": count(), "warnings": items(reference("Warning")),
        })),
        "Problem": {
            "type": "object",
            "description": "A refusal (RFC 9457).",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": {"oneOf": types, "description": "For programs: types are stable, and new ones may be added."},
                "title": {"type": "string"},
                "status": {"type": "integer", "minimum": 400, "maximum": 599},
                "detail": {"type": "string", "description": "For people: the field's path, the rule with its limit, the value."},
                "field": {"type": "string", "description": "The path of the field or the parameter that is wrong."},
                "limit": count(),
                "value": {"description": "What was there."},
            },
            "examples": [{
                "type": format!("{TYPE_PREFIX}{}", Kind::Invalid.parts().0),
                "title": Kind::Invalid.parts().2,
                "status": Kind::Invalid.parts().1.as_u16(),
                "detail": "params.team: must have at most 512 bytes, got 600",
                "field": "params.team",
                "limit": 512,
                "value": 600,
            }],
        },
        "CentrifugoAnswer": {
            "type": "object",
            "description": "`result`, or `error` with a code; for `batch`, `replies`.",
            "properties": {
                "result": {"type": "object"},
                "error": given(&[], json!({"code": {"type": "integer"}, "message": {"type": "string"}})),
                "replies": items(json!({"type": "object"})),
            },
        },
        "CentrifugoError": given(&[], json!({"code": {"type": "integer"}, "message": {"type": "string"}})),
    })
}

/// Why a device got an event.
fn whys() -> Value {
    let position = || json!({"type": "integer", "minimum": 0, "description": "Its position in the journal."});
    let moment = || json!({"type": "string", "format": "date-time"});
    let provider = states_of(Provider::ALL.iter().map(|provider| provider.as_str()));
    let outcomes: BTreeSet<&str> = DeviceOutcome::all().map(DeviceOutcome::as_str).collect();
    let standings = Standing::ALL.iter().map(|standing| standing.as_str());
    let verdict = states_of(outcomes.into_iter().chain(standings));
    json!({
        "Why": given(&["user", "reason", "selected", "provider", "pool", "locale"], json!({
            "event": reference("EventId"),
            "topic": reference("TopicName"),
            "device": reference("DeviceId"),
            "user": reference("UserId"),
            "app": reference("AppId"),
            "verdict": verdict,
            "reason": {"type": "string"},
            "summary": {"type": "string"},
            "selected": {"type": "boolean"},
            "provider": provider,
            "pool": {"type": "string"},
            "locale": {"type": "string", "description": "The language of the text; `source`: that of the source texts."},
            "steps": items(reference("WhyStep")),
            "because": items(json!({"type": "string"})),
            "unknown": items(json!({"type": "string"})),
        })),
        "WhyStep": given(&["until"], json!({
            "step": {"type": "string"}, "at": moment(), "until": moment(), "text": {"type": "string"},
        })),
        "WhyUser": given(&["next"], json!({
            "event": reference("EventId"),
            "user": reference("UserId"),
            "devices": items(reference("Why")),
            "next": reference("DeviceId"),
        })),
        "DeviceEvents": given(&["next"], json!({
            "device": reference("DeviceId"),
            "events": items(reference("DeviceEvent")),
            "next": position(),
        })),
        "DeviceEvent": given(&["reason"], json!({
            "event": reference("EventId"),
            "topic": reference("TopicName"),
            "position": position(),
            "accepted_at": moment(),
            "verdict": verdict,
            "reason": {"type": "string"},
            "summary": {"type": "string"},
        })),
    })
}
