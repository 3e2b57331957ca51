//! The traces of events: `traceparent` at `POST /v1/events`, and `trace_id` in what is told of an event.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::Server;

const OF_REQUEST: &str = "0af7651916cd43dd8448eb211c80319c";
const OF_EVENT: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn parent(trace: &str) -> String {
    format!("00-{trace}-b7ad6b7169203331-01")
}

impl Server {
    async fn posted(&self, body: &Value, parent: &str) -> Value {
        let headers = [("x-api-key", "root"), ("content-type", "application/json"), ("traceparent", parent)];
        let answer = self.send_with("POST", "/v1/events", &headers, body.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()
    }

    async fn trace_of(&self, id: &str) -> Value {
        self.send("GET", &format!("/v1/events/{id}"), "").await.json()["trace_id"].clone()
    }
}

fn event(id: &str) -> Value {
    json!({"id": id, "topic": "goal", "subjects": ["team:42"], "params": {"team": "A"}})
}

#[tokio::test]
async fn an_event_stays_in_the_trace_of_its_first_try() {
    let server = Server::start();
    let mut own = event("own");
    own["traceparent"] = parent(OF_EVENT).into();
    let mut later = event("later");
    later["at"] =
        tidings_api::Rfc3339(tidings_telemetry::unix_now().saturating_add(std::time::Duration::from_secs(600)))
            .to_string()
            .into();
    server.posted(&json!([event("plain"), own, later]), &parent(OF_REQUEST)).await;
    assert_eq!(server.trace_of("plain").await, OF_REQUEST);
    assert_eq!(server.trace_of("own").await, OF_EVENT);
    assert_eq!(server.trace_of("later").await, OF_REQUEST);
    let again = server.posted(&event("plain"), &parent(OF_EVENT)).await;
    assert_eq!(again["repeated"], true, "the trace is not part of its content");
    assert_eq!(server.trace_of("plain").await, OF_REQUEST);
}

#[tokio::test]
async fn a_wrong_header_counts_as_absent_and_a_wrong_field_is_refused() {
    let server = Server::start();
    server.posted(&event("e-1"), "00-nonsense").await;
    assert_eq!(server.trace_of("e-1").await, Value::Null);
    let mut wrong = event("e-2");
    wrong["traceparent"] = "00-nonsense".into();
    let refused = server.send("POST", "/v1/events", wrong.to_string()).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.detail().starts_with("traceparent: must be a traceparent of W3C Trace Context"), "{refused:?}");
}
