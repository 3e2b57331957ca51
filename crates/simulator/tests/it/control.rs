//! The control requests on the same port.

use http::Method;
use serde_json::json;
use tidings_simulator::{Faults, LedgerEntry, LedgerSummary};

use crate::client::{Client, Push, Seen, start, token};

#[tokio::test]
async fn control_requests_read_the_ledger() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    client.push(Push::new(&simulator, 1, 1)).await;
    client.push(Push::new(&simulator, 1, 1).with("apns-priority", "2")).await;
    let (status, summary) = client.control(Method::GET, "/simulator/ledger", "").await;
    assert_eq!(status, 200);
    assert_eq!(summary["rejected"], json!({"BadPriority": 1}));
    let summary: LedgerSummary = serde_json::from_value(summary).unwrap();
    assert_eq!(summary, simulator.ledger().summary());
    let (_, entries) = client.control(Method::GET, &format!("/simulator/ledger/{}", token(1)), "").await;
    let entries: Vec<LedgerEntry> = serde_json::from_value(entries).unwrap();
    assert_eq!(entries, simulator.ledger().for_token(&token(1)));
    assert_eq!(client.control(Method::GET, &format!("/simulator/ledger/{}", token(2)), "").await.1, json!([]));
    assert_eq!(client.control(Method::GET, "/simulator/ledger/xyz", "").await.0, 400);
    assert_eq!(client.control(Method::GET, "/simulator/else", "").await.0, 404);
    assert_eq!(client.control(Method::DELETE, "/simulator/ledger", "").await.0, 405);
}

#[tokio::test]
async fn control_requests_set_faults_and_are_not_affected_by_them() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    let faults = r#"{"internal_error_probability": 1, "rejection_reasons": ["BadTopic"]}"#;
    let (status, now) = client.control(Method::PUT, "/simulator/faults", faults).await;
    assert_eq!((status.as_u16(), &now["internal_error_probability"]), (200, &json!(1.0)));
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::rejected(500, "InternalServerError"));
    for wrong in [r#"{"gone_share": 2}"#, r#"{"typo": 1}"#, "nonsense"] {
        let (status, answer) = client.control(Method::PUT, "/simulator/faults", wrong).await;
        assert_eq!(status, 400);
        assert!(answer["error"].is_string());
    }
    assert_eq!(client.control(Method::GET, "/simulator/faults", "").await.1, now);
}
