//! MessagePack on `/v1`, written and read by somebody else's codec.

use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Answer, BODY_BYTES_MAX, Cases, Server};

const PACKED: &str = "application/msgpack";

fn pack(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

/// An answer in MessagePack.
fn unpack(answer: &Answer) -> Value {
    assert_eq!(answer.headers["content-type"], PACKED, "{answer:?}");
    assert_eq!(answer.headers["vary"], "accept", "{answer:?}");
    rmp_serde::from_slice(&answer.bytes).unwrap()
}

impl Server {
    async fn packed(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        let headers = [("x-api-key", "root"), ("content-type", PACKED), ("accept", PACKED)];
        self.send_with(method, path, &headers, body.into()).await
    }
}

fn goal() -> Value {
    json!({
        "id": "g-1",
        "topic": "goal",
        "subjects": ["team:42"],
        "params": {"team": "Å", "n": i64::MIN, "x": 0.1},
        "data": {"large": u64::MAX, "deep": [[{"a": null}], -0.0, 1e300, true], "text": "\u{0}\"\u{1f3c6}"},
        "ttl": 90,
    })
}

#[tokio::test]
async fn an_event_goes_in_is_published_as_its_json_and_asked_about() {
    let server = Server::start();
    let answer = server.packed("POST", "/v1/events", pack(&goal())).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let accepted = unpack(&answer);
    assert_eq!((&accepted["id"], &accepted["channels"][0]["offset"]), (&json!("g-1"), &json!(1)));
    assert_eq!(server.published("team:42"), [goal()["data"].to_string()]);

    // The same in JSON is the same event.
    let again = server.post("/v1/events", goal().to_string()).await;
    assert_eq!((again.status, &again.json()["repeated"]), (StatusCode::ACCEPTED, &json!(true)));
    assert_eq!(
        (again.headers["content-type"].as_bytes(), &again.headers["vary"]),
        (&b"application/json"[..], &"accept".parse().unwrap())
    );

    let report = server.packed("GET", "/v1/events/g-1", "").await;
    let as_json = server.send("GET", "/v1/events/g-1", "").await.json();
    assert_eq!(unpack(&report), as_json);
    let list = server.packed("POST", "/v1/events", pack(&json!([goal(), goal()]))).await;
    assert_eq!((list.status, unpack(&list).as_array().map(Vec::len)), (StatusCode::ACCEPTED, Some(2)));
}

#[tokio::test]
async fn devices_come_and_go_in_messagepack() {
    let server = Server::start();
    let device = json!({"platform": "ios", "token": "0f8e", "app": "a", "locale": "sv"});
    let made = server.packed("PUT", "/v1/devices/d", pack(&device)).await;
    assert_eq!((made.status, made.headers["cache-control"].as_bytes()), (StatusCode::CREATED, &b"no-store"[..]));
    assert!(unpack(&made)["credential"].is_string());
    let wanted = json!({"subscriptions": [{"subject": "team:42", "topics": ["goal"]}]});
    let changed = server.packed("PUT", "/v1/devices/d/subscriptions", pack(&wanted)).await;
    assert_eq!(unpack(&changed), json!({"added": 1, "removed": 0}));
    assert_eq!(unpack(&server.packed("GET", "/v1/devices/d/subscriptions", "").await), wanted);

    // HEAD says what GET would, without a body.
    let head = server.packed("HEAD", "/v1/devices/d", "").await;
    assert_eq!(
        (head.status, head.headers["content-type"].as_bytes(), head.bytes.len()),
        (StatusCode::OK, PACKED.as_bytes(), 0)
    );
    let gone = server.packed("DELETE", "/v1/devices/d", "").await;
    assert_eq!((gone.status, gone.bytes.len(), gone.headers.get("content-type")), (StatusCode::NO_CONTENT, 0, None));
}

#[tokio::test]
async fn every_refusal_is_a_problem_in_messagepack_too() {
    let server = Server::start();
    let cases = Cases::default();
    let deep = [vec![0x91; 200], vec![0xc0]].concat();
    let doubled = [&[0x82, 0xa2][..], b"id", &[0xa1, b'a', 0xa2], b"id", &[0xa1, b'b']].concat();
    let numbers = json!(vec![false; BODY_BYTES_MAX / 4]); // More than the limit as JSON, less as it comes.
    for (name, body, status, kind, detail) in [
        (
            "nothing",
            vec![],
            400,
            "malformed-messagepack",
            "the body is not MessagePack that can be converted to JSON: at byte 0: it ends in the middle of a value",
        ),
        (
            "JSON",
            b"{\"id\":\"a\"}".to_vec(),
            400,
            "malformed-messagepack",
            "the body is not MessagePack that can be converted to JSON: at byte 1: there are bytes behind the value",
        ),
        (
            "binary",
            vec![0x81, 0xa2, b'i', b'd', 0xc4, 1, 7],
            400,
            "malformed-messagepack",
            "the body is not MessagePack that can be converted to JSON: at byte 4: binary data, which JSON does not have",
        ),
        (
            "a promise",
            vec![0xdf, 0xff, 0xff, 0xff, 0xff],
            400,
            "malformed-messagepack",
            "the body is not MessagePack that can be converted to JSON: at byte 5: it ends in the middle of a value",
        ),
        (
            "deep",
            deep,
            400,
            "malformed-messagepack",
            "the body is not MessagePack that can be converted to JSON: at byte 101: more than 100 levels deep",
        ),
        ("twice", doubled, 400, "invalid", "id: is there twice"),
        ("unknown", pack(&json!({"idd": 1})), 400, "invalid", "unknown field `idd`, did you mean `id`?"),
        (
            "long",
            vec![0xc0; BODY_BYTES_MAX + 1],
            413,
            "too-large",
            "the body must have at most 131072 bytes, got 131073",
        ),
        ("long as JSON", pack(&numbers), 413, "too-large", "the body must have at most 131072 bytes as JSON"),
    ] {
        let length = body.len().to_string();
        let headers =
            [("x-api-key", "root"), ("content-type", PACKED), ("accept", PACKED), ("content-length", &length)];
        let answer = server.send_with("POST", "/v1/events", &headers, body).await;
        let problem = unpack(&answer);
        let found = (
            answer.status.as_u16(),
            problem["type"].as_str().unwrap_or_default(),
            problem["detail"].as_str().unwrap_or_default(),
        );
        cases.check(name, found, (status, format!("urn:tidings:problem:{kind}").as_str(), detail));
        cases.check(name, &problem["status"], &json!(status));
    }
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn what_no_handler_sees_is_answered_in_messagepack_as_well() {
    let server = Server::start();
    let cases = Cases::default();
    for (method, path, key, status) in [
        ("GET", "/v1/events/a", "wrong", 401),
        ("GET", "/v1/events/a", "devices", 403),
        ("GET", "/v1/nothing", "root", 404),
        ("GET", "/v1", "root", 404),
        ("PATCH", "/v1/devices/a", "root", 405),
        ("GET", "/v1/devices/a", "root", 404),
    ] {
        let answer = server.send_with(method, path, &[("x-api-key", key), ("accept", PACKED)], "").await;
        cases.check(path, (answer.status.as_u16(), unpack(&answer)["status"].as_u64()), (status, Some(status.into())));
    }
    // Whose manners are another's, and who asked for nothing of the kind.
    let other = server.send_with("POST", "/api/info", &[("x-api-key", "root"), ("accept", PACKED)], "{}").await;
    assert_eq!(other.headers["content-type"], "application/json");
    let plain = server.send("GET", "/v1/nothing", "").await;
    assert_eq!(
        (plain.headers["content-type"].as_bytes(), plain.json()["status"].as_u64()),
        (&b"application/problem+json"[..], Some(404))
    );
}

#[tokio::test]
async fn each_of_its_names_is_understood_and_answered_with() {
    let server = Server::start();
    for (index, name) in [PACKED, "application/x-msgpack", "application/vnd.msgpack"].into_iter().enumerate() {
        let mut event = goal();
        event["id"] = json!(format!("g-{index}"));
        let headers = [("x-api-key", "root"), ("content-type", name), ("accept", name)];
        let answer = server.send_with("POST", "/v1/events", &headers, pack(&event)).await;
        assert_eq!((answer.status, answer.headers["content-type"].as_bytes()), (StatusCode::ACCEPTED, name.as_bytes()));
    }
    // In one, out the other.
    let headers = [("x-api-key", "root"), ("content-type", PACKED)];
    assert_eq!(server.send_with("POST", "/v1/events", &headers, pack(&goal())).await.json()["id"], "g-1");
}
