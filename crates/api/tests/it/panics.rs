//! A bug that shows while a request is answered costs that request.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::{PANIC, Server};

const PACKED: &str = "application/msgpack";
const EVENTS: &str = "/v1/events";
const PREVIEW: &str = "/v1/audience/preview";

/// An event, or as much of it as a preview takes.
fn body(path: &str, topic: &str) -> String {
    let mut body = json!({"topic": topic, "subjects": ["team:42"]});
    if path == EVENTS {
        (body["id"], body["params"]) = (json!("e"), json!({"team": "A"}));
    }
    body.to_string()
}

/// In a handler, and on the thread that works for one.
#[tokio::test]
async fn a_panic_is_answered_with_500_and_the_next_request_as_ever() {
    // One place: a request that kept it would leave none.
    let server = Server::with(|_, config| config.request_count_max = 1);
    for path in [EVENTS, PREVIEW] {
        for _ in 0..2 {
            let answer = server.post(path, body(path, PANIC)).await;
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {answer:?}");
            assert_eq!(answer.headers["content-type"], "application/problem+json");
            let problem = answer.json();
            assert_eq!(problem["type"], "urn:tidings:problem:internal");
            assert!(!problem.to_string().contains("as asked"), "what went wrong is for the log: {problem}");
        }
        let headers = [("x-api-key", "root"), ("content-type", "application/json"), ("accept", PACKED)];
        let packed = server.send_with("POST", path, &headers, body(path, PANIC)).await;
        assert_eq!(
            (packed.status, &packed.headers["content-type"]),
            (500.try_into().unwrap(), &PACKED.parse().unwrap())
        );
        assert_eq!(rmp_serde::from_slice::<Value>(&packed.bytes).unwrap()["status"], 500);
    }
    assert_eq!(server.post(EVENTS, body(EVENTS, "goal")).await.status, StatusCode::ACCEPTED);
    assert_eq!(server.post(PREVIEW, body(PREVIEW, "goal")).await.status, StatusCode::OK);
    assert_eq!(server.accepted(), 1);
    let page = server.send("GET", "/metrics", "").await.body;
    let counted = r#"tidings_api_requests_total{route="POST /v1/events",status="500"} 3"#;
    assert!(page.contains(counted), "{page}");
}
