//! Selectors: `POST /v1/audience/explain`, and `to.selector` of events and previews.

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_types::{EventId, JournalPosition, selector_limits};

use crate::support::{Answer, Cases, Server};

/// Three devices: two in Sweden, of which one has muted `team:42`.
async fn server() -> Server {
    let server = Server::start();
    let goal = json!([{"subject": "team:42", "topics": ["goal"]}]);
    let lines: String = [
        json!({"id": "ada", "country": "SE", "user": "ada", "subscriptions": goal}),
        json!({"id": "bob", "country": "SE", "mutes": [{"scope": "team:42"}], "subscriptions": goal}),
        json!({"id": "cleo", "country": "NO"}),
    ]
    .into_iter()
    .map(|mut device| {
        for (name, value) in [("platform", "android"), ("app", "a"), ("locale", "sv")] {
            device[name] = json!(value);
        }
        format!("{device}\n")
    })
    .collect();
    let imported = server.send_with("POST", "/v1/imports", &[("x-api-key", "root")], lines).await;
    assert!(imported.body.contains(r#""created":3"#), "{imported:?}");
    server
}

async fn explain(server: &Server, selector: &str) -> Answer {
    server.post("/v1/audience/explain", json!({ "selector": selector }).to_string()).await
}

#[tokio::test]
async fn each_part_is_told_with_its_devices() {
    let server = server().await;
    let answer = explain(&server, "goal on team:42 AND NOT country=NO").await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let told = answer.json();
    assert_eq!(told["selector"], "goal on team:42 and not country = NO", "as it was understood");
    assert_eq!((&told["devices"], &told["of"]), (&json!(2), &json!(3)));
    let parts: Vec<_> =
        told["tree"]["parts"].as_array().unwrap().iter().map(|part| (&part["text"], &part["devices"])).collect();
    assert_eq!(parts, [(&json!("goal on team:42"), &json!(2)), (&json!("not"), &json!(2))]);
}

/// Each level gives a list of two kinds, so that the tree has twice as many: the deepest that there can be.
fn nested(depth: usize) -> String {
    (0..depth).fold("all".to_owned(), |inner, _| format!("({inner} and all or all)")) + " and all or all"
}

fn depth(value: &Value) -> usize {
    let inner: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(entries) => entries.values().collect(),
        _ => return 0,
    };
    1 + inner.into_iter().map(depth).max().unwrap_or_default()
}

#[tokio::test]
async fn the_deepest_selector_is_explained_in_both_formats() {
    let server = server().await;
    let deepest = nested(selector_limits::DEPTH_MAX);
    let as_json = explain(&server, &deepest).await;
    assert_eq!(as_json.status, StatusCode::OK, "{as_json:?}");
    assert_eq!(depth(&as_json.json()), 4 * selector_limits::DEPTH_MAX + 6);
    assert!(depth(&as_json.json()) <= 64, "what the most modest of common JSON readers take");

    let headers = [("x-api-key", "root"), ("content-type", "application/json"), ("accept", "application/msgpack")];
    let body = |selector: &str| json!({ "selector": selector }).to_string();
    let packed = server.send_with("POST", "/v1/audience/explain", &headers, body(&deepest)).await;
    assert_eq!(
        (packed.status, &packed.headers["content-type"]),
        (StatusCode::OK, &"application/msgpack".parse().unwrap())
    );
    assert_eq!(rmp_serde::from_slice::<Value>(&packed.bytes).unwrap(), as_json.json());

    for depth in [selector_limits::DEPTH_MAX + 1, 31, 32] {
        let refused = server.send_with("POST", "/v1/audience/explain", &headers, body(&nested(depth))).await;
        let problem: Value = rmp_serde::from_slice(&refused.bytes).unwrap();
        assert_eq!((refused.status, &problem["field"]), (StatusCode::BAD_REQUEST, &json!("selector")));
        assert_eq!((&problem["limit"], &problem["value"]), (&json!(14), &json!(15)), "{problem}");
    }
}

#[tokio::test]
async fn what_is_no_selector_is_refused_where_it_stands() {
    let server = server().await;
    let cases = Cases::default();
    let deep = "not ".repeat(1000) + "all";
    let long = format!("app = {}", "x".repeat(100_000));
    for (name, selector) in [
        ("empty", ""),
        ("broken", "country ="),
        ("unknown", "shoe = 42"),
        ("deep", &*deep),
        ("long", &*long),
        ("half", "\"a"),
    ] {
        let answer = explain(&server, selector).await;
        cases.check(
            name,
            (answer.status, answer.json()["field"].clone()),
            (StatusCode::BAD_REQUEST, json!("selector")),
        );
        let event =
            json!({"topic": "goal", "subjects": ["a:1"], "to": {"selector": selector}, "params": {"team": "A"}});
        let answer = server
            .post(
                "/v1/audience/preview",
                json!({"topic": "goal", "subjects": ["a:1"], "to": {"selector": selector}}).to_string(),
            )
            .await;
        cases.check(
            name,
            (answer.status, answer.json()["field"].clone()),
            (StatusCode::BAD_REQUEST, json!("to.selector")),
        );
        let mut event = event;
        event["id"] = json!("e");
        let answer = server.post("/v1/events", event.to_string()).await;
        cases.check(
            name,
            (answer.status, answer.json()["field"].clone()),
            (StatusCode::BAD_REQUEST, json!("to.selector")),
        );
    }
    for (body, field) in [
        (json!({}), "selector"),
        (json!({"selector": 7}), "selector"),
        (json!({"selector": "all", "limit": 1}), "limit"),
    ] {
        let answer = server.post("/v1/audience/explain", body.to_string()).await;
        cases.check(
            &body.to_string(),
            (answer.status, answer.json()["field"].clone()),
            (StatusCode::BAD_REQUEST, json!(field)),
        );
    }
    for (key, status) in [("publish", 200), ("read", 403), ("devices", 403), ("nobody's", 401)] {
        let headers = [("x-api-key", key), ("content-type", "application/json")];
        let answer = server.send_with("POST", "/v1/audience/explain", &headers, r#"{"selector": "all"}"#).await;
        cases.check(key, answer.status.as_u16(), status);
    }
    assert_eq!(server.accepted(), 0);
}

/// A preview counts whom the event is for: mutes and the filter take away, users and devices by name are told as well.
#[tokio::test]
async fn an_event_is_for_those_it_means() {
    let server = server().await;
    let cases = Cases::default();
    for (name, subject, to, filter, total) in [
        ("two", "match:1", json!({"selector": "country = SE"}), Value::Null, 2),
        ("one has muted it", "team:42", json!({"selector": "country = SE"}), Value::Null, 1),
        ("and one by name", "match:1", json!({"selector": "country = NO", "users": ["ada"]}), Value::Null, 2),
        ("once", "match:1", json!({"selector": "user = ada", "users": ["ada"], "devices": ["ada"]}), Value::Null, 1),
        ("filtered", "match:1", json!({"selector": "all"}), json!({"countries": ["NO"]}), 1),
        ("nobody", "match:1", json!({"selector": "user = eve"}), Value::Null, 0),
    ] {
        let body = json!({"topic": "goal", "subjects": [subject], "to": to, "filter": filter});
        let answer = server.post("/v1/audience/preview", body.to_string()).await;
        cases.check(name, answer.json()["total"].clone(), json!(total));
    }
    let event = |id: &str| json!({"id": id, "topic": "goal", "subjects": ["match:1"], "params": {"team": "A"}, "to": {"selector": "ALL"}});
    let accepted = server.post("/v1/events", event("e-1").to_string()).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{accepted:?}");
    let found = server.store.event_position(&EventId::new("e-1").unwrap()).unwrap();
    assert_eq!(found, Some(JournalPosition(server.position(0))));
    let capped = [("x-api-key", "capped"), ("content-type", "application/json")];
    let refused = server.send_with("POST", "/v1/events", &capped, event("e-2").to_string()).await;
    let problem = refused.json();
    cases.check(
        "capped",
        (refused.status.as_u16(), problem["limit"].clone(), problem["value"].clone()),
        (403, json!(2), json!(3)),
    );
    let expecting = {
        let mut event: Value = event("e-3");
        event["expect_audience"] = json!({"max": 2});
        server.post("/v1/events", event.to_string()).await
    };
    cases.check("expected", expecting.status.as_u16(), 409);
}
