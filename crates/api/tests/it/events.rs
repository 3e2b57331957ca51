//! `POST /v1/events`.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tidings_types::JournalPosition;

use crate::support::{BODY_BYTES_MAX, Cases, Server};

const EVENTS: &str = "/v1/events";

fn goal(id: &str) -> Value {
    json!({"id": id, "topic": "goal", "subjects": ["team:42"], "params": {"team": "Arsenal"}})
}

/// `goal` with `change` laid over it.
fn goal_with(change: Value) -> String {
    let mut event = goal("g-1");
    for (name, value) in change.as_object().unwrap() {
        event[name] = value.clone();
    }
    event.to_string()
}

fn goal_without(field: &str) -> String {
    let mut event = goal("g-1");
    event.as_object_mut().unwrap().remove(field);
    event.to_string()
}

#[tokio::test]
async fn an_event_is_answered_with_its_place_and_published_in_its_subjects_channel() {
    let server = Server::start();
    let answer = server.post(EVENTS, goal("g-1").to_string()).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let epoch = server.store.channel_start().epoch;
    let expected = json!({
        "id": "g-1", "position": server.position(0), "channels": [{"channel": "team:42", "offset": 1, "epoch": epoch}]
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(server.published("team:42"), [r#"{"topic":"goal","subjects":["team:42"],"params":{"team":"Arsenal"}}"#]);
}

#[tokio::test]
async fn an_event_goes_to_the_channels_it_names_and_no_others() {
    let server = Server::start();
    let body = goal_with(json!({"channels": ["match:1", "$team:7"], "data": {"score": [1, 0]}}));
    let answer = server.post(EVENTS, body).await;
    let channels = answer.json()["channels"].clone();
    let names: Vec<&Value> = channels.as_array().unwrap().iter().map(|place| &place["channel"]).collect();
    assert_eq!(names, ["match:1", "$team:7"], "{answer:?}");
    assert_eq!(server.published("match:1"), [r#"{"score":[1,0]}"#]);
    assert_eq!(server.published("team:42"), [""; 0]);
}

#[tokio::test]
async fn an_event_whose_subject_has_no_durable_channel_is_only_pushed() {
    let server = Server::start();
    for subject in ["live:1", "player:7"] {
        let body = goal_with(json!({"id": subject, "subjects": [subject, "team:42"]}));
        let answer = server.post(EVENTS, body).await;
        assert_eq!((answer.status, &answer.json()["channels"]), (StatusCode::ACCEPTED, &json!([])), "{subject}");
    }
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn the_same_event_again_has_the_same_answer_and_does_nothing() {
    let server = Server::start();
    let first = server.post(EVENTS, goal("g-1").to_string()).await;
    let second = server.post(EVENTS, goal("g-1").to_string()).await;
    let mut expected = first.json();
    expected["repeated"] = json!(true);
    assert_eq!((second.status, second.json()), (StatusCode::ACCEPTED, expected));
    assert_eq!((server.published("team:42").len(), server.accepted()), (1, 1));
}

#[tokio::test]
async fn an_id_with_other_content_is_a_conflict_and_nothing_of_the_request_is_done() {
    let server = Server::start();
    server.post(EVENTS, goal("g-1").to_string()).await;
    let mut other = goal("g-1");
    other["params"]["team"] = json!("Chelsea");
    let answer = server.post(EVENTS, other.to_string()).await;
    let expected = json!({
        "type": "urn:tidings:problem:conflict",
        "title": "The id belongs to an event with other content",
        "status": 409,
        "detail": "id: g-1 is the id of an earlier event with other content",
        "field": "id",
        "value": "g-1",
    });
    assert_eq!((answer.status, answer.json()), (StatusCode::CONFLICT, expected));
    let answer = server.post(EVENTS, json!([goal("g-2"), other]).to_string()).await;
    assert_eq!(answer.detail(), "[1].id: g-1 is the id of an earlier event with other content");
    assert_eq!(server.accepted(), 1, "g-2 is not accepted either");
}

#[tokio::test]
async fn a_list_is_accepted_in_order_and_answered_by_a_list() {
    let server = Server::start();
    let answer = server.post(EVENTS, json!([goal("a"), goal("b"), goal("a")]).to_string()).await;
    let answer = answer.json();
    let column = |name: &str| answer.as_array().unwrap().iter().map(|event| event[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("id"), ["a", "b", "a"]);
    assert_eq!(column("position"), [0, 1, 0].map(|index| server.position(index)));
    assert_eq!(column("repeated"), [Value::Null, Value::Null, json!(true)]);
    let one = server.post(EVENTS, json!([goal("c")]).to_string()).await;
    assert!(one.json().is_array(), "a list of one is still a list");
}

#[tokio::test]
async fn a_list_with_one_wrong_event_is_refused_as_a_whole() {
    let server = Server::start();
    let mut wrong = goal("c");
    wrong["subjects"] = json!(["team:1", "Team 2"]);
    let answer = server.post(EVENTS, json!([goal("a"), goal("b"), wrong]).to_string()).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.detail(),
        "[2].subjects[1]: subject must be kind:key, 3 to 128 visible ASCII characters, kind of a-z, 0-9, _ and -, got \"Team 2\""
    );
    assert_eq!(answer.json()["field"], "[2].subjects[1]");
    wrong = goal("c");
    wrong["urgency"] = json!({});
    let answer = server.post(EVENTS, json!([goal("a"), wrong]).to_string()).await;
    assert_eq!(answer.detail(), "[1].urgency: must be text, got an object");
    let answer =
        server.post(EVENTS, json!([goal("a"), {"id": "d", "topic": "gaol", "subjects": ["team:1"]}]).to_string()).await;
    assert_eq!(answer.detail(), "[1].topic: gaol is not configured, did you mean goal?");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_thousand_events_are_one_request_and_one_more_is_too_many() {
    let server = Server::start();
    let events = |count: usize| {
        let event =
            |number: usize| json!({"id": format!("e-{number}"), "topic": "t", "subjects": ["team:1"], "push": "never"});
        Value::from_iter((0..count).map(event)).to_string()
    };
    let answer = server.post(EVENTS, events(1001)).await;
    assert_eq!(
        (answer.status, answer.detail()),
        (StatusCode::BAD_REQUEST, "must hold 1 to 1000 events, got 1001".to_owned())
    );
    let answer = server.post(EVENTS, events(1000)).await;
    assert_eq!((answer.status, answer.json().as_array().unwrap().len()), (StatusCode::ACCEPTED, 1000));
    assert_eq!(server.accepted(), 1000);
}

/// Every way to be wrong that we thought of, with the words that a producer is told.
#[tokio::test]
async fn a_wrong_event_is_refused_with_the_fields_path_the_rule_and_the_value() {
    let server = Server::start();
    let cases = Cases::default();
    let long = |bytes: usize| "x".repeat(bytes);
    let table: Vec<(&str, String, &str)> = vec![
        ("no JSON", "{\n  \"id\": g-1}".into(), "not JSON: expected value at line 2 column 9"),
        ("broken off", "{\"id\":".into(), "not JSON: EOF while parsing a value at line 1 column 6"),
        ("nothing", "".into(), "not JSON: EOF while parsing a value at line 1 column 0"),
        ("two values", "{} {}".into(), "not JSON: trailing characters at line 1 column 4"),
        ("no object", "\"goal\"".into(), "must be an object, got text"),
        ("empty list", "[]".into(), "must hold 1 to 1000 events, got 0"),
        ("list of lists", "[[]]".into(), "[0]: must be an object, got a list"),
        ("unknown field", goal_with(json!({"topics": "goal"})), "unknown field `topics`, did you mean `topic`?"),
        ("unlike any field", goal_with(json!({"zzz": 1})), "unknown field `zzz`"),
        (
            "wrong priority",
            goal_with(json!({"priority": "urgent"})),
            "priority: must be \"normal\" or \"high\" or \"low\", got \"urgent\"",
        ),
        (
            "wrong urgency",
            goal_with(json!({"urgency": "very-low"})),
            "urgency: must be \"very_low\" or \"low\" or \"normal\" or \"high\", got \"very-low\"",
        ),
        ("time as a number", goal_with(json!({"at": 1_784_138_645})), "at: must be text, got a number"),
        (
            "time without offset",
            goal_with(json!({"at": "2026-07-15T18:04:05"})),
            "at: must be a moment from 1970 to 9999 with its offset from UTC (RFC 3339), such as \"2026-07-15T18:04:05Z\" or \"2026-07-15T20:04:05+02:00\", got \"2026-07-15T18:04:05\"",
        ),
        (
            "expectation of nothing",
            goal_with(json!({"expect_audience": {}})),
            "expect_audience: must have min or max; leave `expect_audience` out to allow any audience",
        ),
        (
            "expectation of too much",
            goal_with(json!({"expect_audience": {"max": 4_294_967_296_u64}})),
            "expect_audience.max: must be a whole number from 0 to 4294967295, got 4294967296",
        ),
        (
            "expectation of half a device",
            goal_with(json!({"expect_audience": {"min": 0.5}})),
            "expect_audience.min: must be a whole number from 0 to 4294967295, got 0.5",
        ),
        (
            "expectation of a contradiction",
            goal_with(json!({"expect_audience": {"min": 3, "max": 2}})),
            "expect_audience.min: must be at most max, which is 2, got 3",
        ),
        ("dry run as text", goal_with(json!({"dry_run": "yes"})), "dry_run: must be true or false, got text"),
        ("no id", goal_without("id"), "id: is required: with it a retry is safe, since an id is accepted only once"),
        (
            "null id",
            goal_with(json!({"id": null})),
            "id: is required: with it a retry is safe, since an id is accepted only once",
        ),
        ("no topic", goal_without("topic"), "topic: is required"),
        ("no subjects", goal_without("subjects"), "subjects: is required"),
        ("id is a number", goal_with(json!({"id": 7})), "id: must be text, got a number"),
        ("half a character", goal_with(json!({})).replace("g-1", "\\ud800"), "id: must be valid Unicode text"),
        (
            "oversized id",
            goal_with(json!({"id": long(129)})),
            "id: event id must be 1 to 128 visible ASCII characters, got \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
        ),
        (
            "wrong topic name",
            goal_with(json!({"topic": "Goal"})),
            "topic: topic must be 1 to 64 characters of a-z, 0-9, _ and -, got \"Goal\"",
        ),
        ("unknown topic", goal_with(json!({"topic": "gaol"})), "topic: gaol is not configured, did you mean goal?"),
        ("missing parameter", goal_without("params"), "params: team is missing"),
        (
            "subjects is text",
            goal_with(json!({"subjects": "team:1"})),
            "subjects: must be a list of subjects, got text",
        ),
        ("no subject", goal_with(json!({"subjects": []})), "subjects: must hold 1 to 16 subjects, got 0"),
        (
            "too many subjects",
            goal_with(json!({"subjects": (0..17).map(|n| format!("team:{n}")).collect::<Vec<_>>()})),
            "subjects: must hold 1 to 16 subjects, got 17",
        ),
        (
            "subject twice",
            goal_with(json!({"subjects": ["team:1", "team:2", "team:1"]})),
            "subjects[2]: is the same as entry 0",
        ),
        ("params is a list", goal_with(json!({"params": []})), "params: must be an object, got a list"),
        (
            "too many parameters",
            goal_with(json!({"params": (0..33).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>()})),
            "params: must hold at most 32 entries, got 33",
        ),
        (
            "parameter without name",
            goal_with(json!({"params": {"": 1}})),
            "params: a name must have 1 to 64 bytes, got 0",
        ),
        (
            "parameter with a long name",
            goal_with(json!({"params": {long(65): 1}})),
            "params: a name must have 1 to 64 bytes, got 65",
        ),
        (
            "long parameter",
            goal_with(json!({"params": {"team": long(513)}})),
            "params.team: must have at most 512 bytes, got 513",
        ),
        (
            "list as parameter",
            goal_with(json!({"params": {"team": []}})),
            "params.team: must be text, a number or an object, got a list",
        ),
        (
            "null as parameter",
            goal_with(json!({"params": {"team": null}})),
            "params.team: must be text, a number or an object, got null",
        ),
        (
            "huge whole number",
            goal_with(json!({"params": {"n": u64::MAX}})),
            "params.n: must be a whole number from -9223372036854775808 to 9223372036854775807, got 18446744073709551615",
        ),
        (
            "number beyond all",
            goal_with(json!({"params": {"n": 1}})).replace(":1}", ":1e999}"),
            "params.n: must be a number within ±1.7e308",
        ),
        ("field twice", goal_with(json!({})).replace("{\"id\"", "{\"ttl\":1,\"ttl\":1,\"id\""), "ttl: is there twice"),
        (
            "large data",
            goal_with(json!({"data": long(32 * 1024 - 1)})),
            "data: must have at most 32768 bytes, got 32769",
        ),
        ("no channel", goal_with(json!({"channels": []})), "channels: must hold 1 to 16 channels, got 0"),
        (
            "channel in an unknown namespace",
            goal_with(json!({"channels": ["team:1", "nowhere:1"]})),
            "channels[1]: nowhere:1 is in a namespace that is not configured: add channel.namespaces.nowhere with durable = true",
        ),
        (
            "channel in a memory namespace",
            goal_with(json!({"channels": ["live:1"]})),
            "channels[0]: live:1 is not durable, events need that: set channel.namespaces.live.durable = true",
        ),
        (
            "channel without namespace",
            goal_with(json!({"channels": ["news"]})),
            "channels[0]: news is not durable, events need that: set channel.without_namespace.durable = true",
        ),
        (
            "wrong push",
            goal_with(json!({"push": "maybe"})),
            "push: must be \"unless_received\" or \"always\" or \"never\", got \"maybe\"",
        ),
        ("receipt is text", goal_with(json!({"receipt": "yes"})), "receipt: must be true or false, got text"),
        (
            "wrong receipt policy",
            goal_with(json!({"receipt_policy": "seen"})),
            "receipt_policy: must be \"visible\" or \"any\", got \"seen\"",
        ),
        (
            "endless wait",
            goal_with(json!({"receipt_wait": 31})),
            "receipt_wait: must be 0.1 to 30 seconds, as a number or as text such as \"500ms\", \"2s\", got \"31\"",
        ),
        (
            "to nobody",
            goal_with(json!({"to": {"users": [], "devices": []}})),
            "to: must name at least one user or device, or have a selector; leave `to` out to push all subscribed devices",
        ),
        ("to is a list", goal_with(json!({"to": ["u-1"]})), "to: must be an object, got a list"),
        (
            "unknown recipients",
            goal_with(json!({"to": {"user": ["u"]}})),
            "to: unknown field `user`, did you mean `users`?",
        ),
        (
            "wrong user",
            goal_with(json!({"to": {"users": ["u", "a b"]}})),
            "to.users[1]: user id must be 1 to 128 visible ASCII characters, got \"a b\"",
        ),
        (
            "too many devices",
            goal_with(json!({"to": {"devices": (0..1001).map(|n| n.to_string()).collect::<Vec<_>>()}})),
            "to.devices: must hold 0 to 1000 devices, got 1001",
        ),
        (
            "filter of nothing",
            goal_with(json!({"filter": {}})),
            "filter: must have countries, locales, platforms or apps; leave `filter` out to push the whole audience",
        ),
        (
            "empty filter",
            goal_with(json!({"filter": {"countries": ["BR"], "apps": []}})),
            "filter.apps: must hold 1 to 256 apps, got 0",
        ),
        (
            "language twice in another spelling",
            goal_with(json!({"filter": {"locales": ["pt-BR", "pt_br"]}})),
            "filter.locales[1]: is the same as entry 0",
        ),
        (
            "unknown platform",
            goal_with(json!({"filter": {"platforms": ["android", "wap"]}})),
            "filter.platforms[1]: must be \"ios\" or \"android\" or \"web\", got \"wap\"",
        ),
        ("text without body", goal_with(json!({"text": {"en": {"title": "T"}}})), "text.en.body: is required"),
        (
            "empty body",
            goal_with(json!({"text": {"en": {"title": "T", "body": ""}}})),
            "text.en.body: must have 1 to 2048 bytes, got 0",
        ),
        (
            "text of no language",
            goal_with(json!({"text": {"english": {"title": "T", "body": "B"}}})),
            "text.english: locale must be a BCP 47 language, optionally with script and region, such as pt or pt-BR, got \"english\"",
        ),
        (
            "text of a language twice",
            goal_with(json!({"text": {"pt-BR": {"title": "", "body": "B"}, "pt_br": {"title": "", "body": "B"}}})),
            "text.pt_br: is pt-BR, which appears twice",
        ),
        (
            "part of a later version",
            goal_with(json!({"text": {"en": {"title": "T", "subtitle": "S", "body": "B"}}})),
            "text.en: field `subtitle` is not supported yet",
        ),
        (
            "negative badge",
            goal_with(json!({"present": {"badge": -1}})),
            "present.badge: must be a whole number from 0 to 4294967295, got -1",
        ),
        ("badge is text", goal_with(json!({"present": {"badge": "1"}})), "present.badge: must be a number, got text"),
        (
            "wrong interruption",
            goal_with(json!({"present": {"interruption": "loud"}})),
            "present.interruption: must be \"passive\" or \"active\" or \"time-sensitive\" or \"critical\", got \"loud\"",
        ),
        (
            "long link",
            goal_with(json!({"present": {"link": long(513)}})),
            "present.link: must have 1 to 512 bytes, got 513",
        ),
        (
            "payload to somebody else",
            goal_with(json!({"payload": {"fcm": {"token": "x"}}})),
            "payload.fcm.token: is reserved: a patch cannot change the recipient of a message",
        ),
        (
            "payload over our data",
            goal_with(json!({"payload": {"fcm": {"data": {"tidings.event": "x"}}}})),
            "payload.fcm.data.tidings.event: is reserved: the server puts the event's id and its channels there",
        ),
        (
            "payload with other data than text",
            goal_with(json!({"payload": {"fcm": {"data": {"n": 1}}}})),
            "payload.fcm.data.n: must be text, as all of FCM's data, got a number",
        ),
        (
            "payload of another",
            goal_with(json!({"payload": {"webpush": {"tidings": {}}}})),
            "payload.webpush.tidings: is reserved: the server puts the event's id and its channels there",
        ),
        (
            "payload of nobody",
            goal_with(json!({"payload": {"web_push": {}}})),
            "payload: unknown field `web_push`, did you mean `webpush`?",
        ),
        (
            "payload is a list",
            goal_with(json!({"payload": {"apns": []}})),
            "payload.apns: must be an object, got a list",
        ),
        (
            "payload over ours",
            goal_with(json!({"payload": {"apns": {"tidings": {}}}})),
            "payload.apns.tidings: is reserved: the server puts the event's id and its channels there",
        ),
        (
            "large payload",
            goal_with(json!({"payload": {"apns": {"a": long(4089)}}})),
            "payload.apns: must have at most 4096 bytes, got 4097",
        ),
        (
            "long collapse key",
            goal_with(json!({"collapse_key": "a b"})),
            "collapse_key: collapse key must be 1 to 64 visible ASCII characters, got \"a b\"",
        ),
        (
            "endless time to live",
            goal_with(json!({"ttl": 2_419_201})),
            "ttl: must be 1 to 2419200 seconds, as a number or as text such as \"90s\", \"15m\", \"4h\", \"2d\", got \"2419201\"",
        ),
    ];
    for (name, body, expected) in table {
        let answer = server.post(EVENTS, body).await;
        cases.check(name, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
        cases.check(name, answer.headers["content-type"].to_str().unwrap(), "application/problem+json");
        cases.check(name, answer.json()["status"].as_u64(), Some(400));
    }
    assert_eq!(server.accepted(), 0, "nothing was accepted");
}

#[tokio::test]
async fn limit_and_value_are_also_told_to_programs() {
    let server = Server::start();
    let answer = server.post(EVENTS, goal_with(json!({"params": {"team": "x".repeat(600)}}))).await;
    let expected = json!({
        "type": "urn:tidings:problem:invalid",
        "title": "The request breaks a rule",
        "status": 400,
        "detail": "params.team: must have at most 512 bytes, got 600",
        "field": "params.team",
        "limit": 512,
        "value": 600,
    });
    assert_eq!(answer.json(), expected);
    let answer = server.post(EVENTS, "{").await;
    assert_eq!(answer.json()["type"], "urn:tidings:problem:malformed-json");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_its_length_was_stated_or_not() {
    let server = Server::start();
    let body = |bytes: usize| " ".repeat(bytes - 2) + "{}";
    let length = (BODY_BYTES_MAX + 1).to_string();
    let headers = [("x-api-key", "root"), ("content-length", length.as_str())];
    let answer = server.send_with("POST", EVENTS, &headers, Body::empty()).await;
    let expected = format!("the body must have at most {BODY_BYTES_MAX} bytes, got {length}");
    assert_eq!((answer.status, answer.detail()), (StatusCode::PAYLOAD_TOO_LARGE, expected));
    assert_eq!(answer.json()["limit"], BODY_BYTES_MAX);

    let chunks = |bytes: usize| {
        let body = body(bytes).into_bytes();
        let chunks: Vec<Result<Vec<u8>, std::io::Error>> = body.chunks(1000).map(|chunk| Ok(chunk.to_vec())).collect();
        Body::from_stream(futures_util::stream::iter(chunks))
    };
    let answer = server.post(EVENTS, chunks(BODY_BYTES_MAX + 1)).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let answer = server.post(EVENTS, chunks(BODY_BYTES_MAX)).await;
    assert_eq!(
        answer.detail(),
        "id: is required: with it a retry is safe, since an id is accepted only once",
        "just fits"
    );
}

#[tokio::test]
async fn a_body_in_another_format_is_refused() {
    let server = Server::start();
    let cases = Cases::default();
    for (name, value, expected) in [
        ("content-type", "application/json; charset=utf-8", None),
        (
            "content-type",
            "text/plain",
            Some("Content-Type must be application/json or application/msgpack, got \"text/plain\""),
        ),
        ("content-encoding", "identity", None),
        ("content-encoding", "gzip", Some("Content-Encoding must be identity, got \"gzip\"")),
    ] {
        let headers = [("x-api-key", "root"), (name, value)];
        let answer = server.send_with("POST", EVENTS, &headers, goal("g-1").to_string()).await;
        let status = if expected.is_some() { 415 } else { 202 };
        cases.check(value, answer.status.as_u16(), status);
        cases.check(value, answer.detail(), expected.unwrap_or_default().to_owned());
    }
}

fn retry_after(headers: &HeaderMap) -> &str {
    headers["retry-after"].to_str().unwrap()
}

#[tokio::test]
async fn a_full_journal_or_queue_is_answered_with_when_to_come_back() {
    let server = Server::with(|store, _| store.journal_event_count_max = 1);
    assert_eq!(server.post(EVENTS, goal("a").to_string()).await.status, StatusCode::ACCEPTED);
    let answer = server.post(EVENTS, goal("b").to_string()).await;
    assert_eq!(
        (answer.status, answer.detail().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "the journal is full: limit 1")
    );
    assert_eq!(retry_after(&answer.headers), "1");
    let again = server.post(EVENTS, goal("a").to_string()).await;
    assert_eq!(again.json()["repeated"], true, "a retry of what was accepted needs no room");

    let server = Server::with(|store, _| store.event_queue.count = 0);
    let answer = server.post(EVENTS, goal("a").to_string()).await;
    assert_eq!((answer.status, retry_after(&answer.headers)), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    assert_eq!(answer.json()["type"], "urn:tidings:problem:overloaded");
}

#[tokio::test]
async fn a_store_that_cannot_write_is_answered_with_when_to_come_back() {
    let server = Server::start();
    server.store.close().await;
    let answer = server.post(EVENTS, goal("a").to_string()).await;
    assert_eq!(
        (answer.status, answer.detail().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "the store cannot write now")
    );
    assert_eq!(retry_after(&answer.headers), "5");
    assert_eq!(answer.json()["type"], "urn:tidings:problem:unavailable");
}

/// What is read without a server is what the server reads, and is refused in the same words.
#[tokio::test]
async fn an_event_is_read_the_same_without_a_server() {
    let server = Server::start();
    let event = goal_with(json!({"ttl": "15m", "data": {"a": [1, 2.5]}}));
    let read = tidings_api::read_event(event.as_bytes()).unwrap();
    let position = server.post(EVENTS, event).await.json()["position"].as_u64().unwrap();
    assert!(server.store.event(JournalPosition(position)).unwrap().unwrap().event == read, "differ");
    for refused in [goal_with(json!({"ttl": 0})), "{".to_owned(), "[{}]".to_owned(), "7".to_owned(), "{}".to_owned()] {
        let said = tidings_api::read_event(refused.as_bytes()).unwrap_err();
        assert_ne!(said, "", "{refused}: a refusal has a reason");
        assert_eq!(server.post(EVENTS, refused.clone()).await.detail(), said, "{refused}");
    }
    let list = format!("[{}]", goal("g-1"));
    assert_eq!(tidings_api::read_event(list.as_bytes()).unwrap_err(), "must be one event, an object");
}
