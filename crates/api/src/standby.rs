//! What a server of a cluster answers while another one leads: it works, it is not ready, and who is.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;

use crate::problem::{Kind, Problem, json};

/// A server that does not lead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standby {
    /// What it does.
    pub status: StandbyStatus,
    /// The server that leads, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
}

/// What a server does that does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StandbyStatus {
    /// It has no store yet, or opens it.
    Joining,
    /// It follows the leader, and takes over when that is gone.
    Standby,
    /// It cannot follow the leader.
    Lost,
}

/// The server that leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leader {
    /// Its name in the cluster.
    pub node: String,
    /// Where it says that it can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// Of a server that serves nobody: `GET /ready` is 503 and says what it does and who leads. Everything else is refused with 503
/// too, in the form of the API's other refusals.
pub fn standby_router(standby: impl Fn() -> Standby + Send + Sync + 'static) -> Router {
    let standby = Arc::new(standby);
    let shown = standby.clone();
    let refuse = async move || refusal(&standby());
    standby_ready_router(move || (shown(), false)).fallback(refuse)
}

/// `GET /ready` of a server that does not lead: 200 if it serves clients, else 503.
pub fn standby_ready_router(standby: impl Fn() -> (Standby, bool) + Send + Sync + 'static) -> Router {
    let ready = async move || {
        let (standby, is_ready) = standby();
        json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &standby)
    };
    let ready = Arc::new(ready);
    Router::new().route("/ready", get(move || async move { ready().await }))
}

fn refusal(standby: &Standby) -> Response {
    let leader = match &standby.leader {
        Some(Leader { node, address: Some(address) }) => format!("{node} leads, at {address}"),
        Some(Leader { node, address: None }) => format!("{node} leads"),
        None => "no server leads now".to_owned(),
    };
    let detail = format!("this server of the cluster does not lead, so it takes no requests: {leader}");
    standby_refusal(detail)
}

/// Refuses a request that only the leader of the cluster can answer. `detail` says why it did not reach the leader.
pub fn standby_refusal(detail: impl Into<String>) -> Response {
    Problem::new(Kind::Unavailable, detail).retry_after(1).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;

    async fn asked(leader: Option<Leader>, path: &str) -> (StatusCode, Value) {
        let router = standby_router(move || Standby { status: StandbyStatus::Standby, leader: leader.clone() });
        let answer = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_standby_says_who_leads() {
        let leader = |address: Option<&str>| Leader { node: "a".to_owned(), address: address.map(str::to_owned) };
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let told = json!({"status": "standby", "leader": {"node": "a", "address": "https://a.example.com"}});
        assert_eq!(asked(Some(leader(Some("https://a.example.com"))), "/ready").await, (unavailable, told));
        assert_eq!(asked(None, "/ready").await, (unavailable, json!({"status": "standby"})));
        for (leader, said) in [
            (Some(leader(Some("https://a.example.com"))), "a leads, at https://a.example.com"),
            (Some(leader(None)), "a leads"),
            (None, "no server leads now"),
        ] {
            let (status, problem) = asked(leader, "/v1/events").await;
            assert_eq!(
                (status, &problem["type"]),
                (unavailable, &json!("urn:tidings:problem:unavailable")),
                "{problem}"
            );
            assert!(problem["detail"].as_str().unwrap().ends_with(said), "{problem}");
        }
    }
}
