//! The simulator of FCM, as its clients see it.

use bytes::Bytes;
use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tidings_simulator::{Faults, FcmConfig, FcmReason, FcmSimulator, collapse_hash};
use tidings_telemetry::unix_now;

use crate::foreign::{Answer, Client};

const PROJECT: &str = "tidings-simulator";

fn start(faults: Faults<FcmReason>) -> FcmSimulator {
    FcmSimulator::start(FcmConfig { faults, ..FcmConfig::default() }).unwrap()
}

/// The body of a request for an access token. It uses nothing but the service account's file.
fn grant(simulator: &FcmSimulator, change: impl FnOnce(&mut Value)) -> String {
    let account: Value = serde_json::from_str(&simulator.service_account_json()).unwrap();
    let now = unix_now().as_secs();
    let scope = "https://www.googleapis.com/auth/firebase.messaging";
    let mut claims = json!({
        "iss": account["client_email"], "scope": scope, "aud": account["token_uri"], "iat": now, "exp": now + 3600,
    });
    change(&mut claims);
    let header =
        Header { kid: account["private_key_id"].as_str().map(ToOwned::to_owned), ..Header::new(Algorithm::RS256) };
    let key = EncodingKey::from_rsa_pem(account["private_key"].as_str().unwrap().as_bytes()).unwrap();
    let assertion = jsonwebtoken::encode(&header, &claims, &key).unwrap();
    format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}")
}

fn request(path: &str, content_type: &str, authorization: &str, body: String) -> Request<Bytes> {
    let request = Request::post(format!("https://localhost{path}")).header("content-type", content_type);
    let request = request.header("authorization", authorization);
    request.body(Bytes::from(body)).unwrap()
}

async fn ask_token(client: &mut Client, form: String) -> Answer {
    client.send(request("/token", "application/x-www-form-urlencoded", "none", form)).await.unwrap()
}

/// `Bearer` and a new access token.
pub(crate) async fn bearer(simulator: &FcmSimulator) -> String {
    let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
    let answer = ask_token(&mut client, grant(simulator, |_| ())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["token_type"], "Bearer");
    format!("Bearer {}", answer["access_token"].as_str().unwrap())
}

pub(crate) fn message(token: &str, tag: &str, title: &str) -> Value {
    json!({"message": {
        "token": token,
        "android": {"priority": "HIGH", "notification": {"tag": tag, "title": title}},
    }})
}

pub(crate) fn send_request(authorization: &str, body: &Value) -> Request<Bytes> {
    let path = format!("/v1/projects/{PROJECT}/messages:send");
    request(&path, "application/json; charset=utf-8", authorization, body.to_string())
}

async fn send(client: &mut Client, authorization: &str, body: &Value) -> Answer {
    client.send(send_request(authorization, body)).await.unwrap()
}

/// The status, and the `errorCode` of FCM's own detail.
fn refused(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    assert_eq!(body["error"]["code"], answer.status.as_u16());
    let details = body["error"]["details"].as_array().unwrap();
    let own = details.iter().find(|it| it["@type"] == "type.googleapis.com/google.firebase.fcm.v1.FcmError");
    (answer.status.as_u16(), own.map_or("", |own| own["errorCode"].as_str().unwrap()).to_owned())
}

#[tokio::test]
async fn a_device_shows_the_last_message_of_each_tag() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    for (tag, title) in [("match-7", "1 : 0"), ("match-8", "0 : 0"), ("match-7", "1 : 1"), ("match-7", "1 : 1")] {
        let answer = send(&mut client, &bearer, &message("phone:1", tag, title)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let name = answer.json()["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("projects/tidings-simulator/messages/0:"), "{name}");
    }
    let mut again = message("phone:1", "match-7", "1 : 1");
    again["message"]["android"]["ttl"] = json!("9s");
    assert_eq!(send(&mut client, &bearer, &again).await.status, 200);
    let ledger = simulator.ledger();
    let of = |entries: Vec<tidings_simulator::MessageEntry>| -> Vec<_> {
        entries.iter().map(|entry| (entry.title.as_deref().unwrap().to_owned(), entry.count)).collect()
    };
    let text = |title: &str, count| (title.to_owned(), count);
    assert_eq!(of(ledger.for_token("phone:1")), [text("1 : 0", 1), text("0 : 0", 1), text("1 : 1", 3)]);
    assert_eq!(of(ledger.shown("phone:1")), [text("0 : 0", 1), text("1 : 1", 3)]);
    assert_eq!(ledger.for_token("phone:1")[0].tag_hash, Some(collapse_hash(b"match-7")));
    let summary = ledger.summary();
    assert_eq!((summary.accepted, summary.repeated, summary.devices, summary.connections), (5, 2, 1, 2));
}

#[tokio::test]
async fn validate_only_is_answered_but_not_recorded() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let mut body = message("phone:1", "a", "b");
    body["validate_only"] = json!(true);
    let answer = send(&mut client, &bearer, &body).await;
    assert_eq!(answer.json()["name"], "projects/tidings-simulator/messages/fake_message_id");
    assert_eq!(simulator.ledger().accepted_total(), 0);
    body["message"]["else"] = json!(1);
    assert_eq!(send(&mut client, &bearer, &body).await.status, 400, "the body is still validated");
}

#[tokio::test]
async fn a_wrong_body_names_its_field_and_a_wrong_token_does_not() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let mut body = message("phone:1", "a", "b");
    body["message"]["android"]["notification"]["sounds"] = json!("x");
    let answer = send(&mut client, &bearer, &body).await;
    assert_eq!(refused(&answer), (400, "INVALID_ARGUMENT".to_owned()));
    let details = answer.json()["error"]["details"].clone();
    assert_eq!(details[1]["@type"], "type.googleapis.com/google.rpc.BadRequest");
    assert_eq!(details[1]["fieldViolations"][0]["field"], "message.android.notification");
    let answer = send(&mut client, &bearer, &message("no token", "a", "b")).await;
    assert_eq!(refused(&answer), (400, "INVALID_ARGUMENT".to_owned()));
    assert_eq!(answer.json()["error"]["details"].as_array().unwrap().len(), 1);
    assert_eq!(simulator.ledger().rejected_total(FcmReason::InvalidBody), 1);
    assert_eq!(simulator.ledger().rejected_total(FcmReason::InvalidArgument), 1);
}

#[tokio::test]
async fn only_an_issued_access_token_that_has_not_expired_is_accepted() {
    let simulator = FcmSimulator::start(FcmConfig { access_token_seconds: 1, ..FcmConfig::default() }).unwrap();
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let body = message("phone:1", "a", "b");
    for foreign in ["Bearer ya29.other", "bearer x", "key=x", ""] {
        let answer = send(&mut client, foreign, &body).await;
        assert_eq!((answer.status.as_u16(), answer.json()["error"]["status"].clone()), (401, json!("UNAUTHENTICATED")));
        assert!(answer.header("www-authenticate").is_some());
    }
    let first = bearer(&simulator).await;
    let expires_by = unix_now().as_millis() + 1000;
    // The token is accepted for one second.
    let mut seen = Vec::new();
    while unix_now().as_millis() <= expires_by {
        seen.push(send(&mut client, &first, &body).await.status.as_u16());
    }
    seen.push(send(&mut client, &first, &body).await.status.as_u16());
    assert_eq!((seen.first(), seen.last()), (Some(&200), Some(&401)));
}

#[tokio::test]
async fn a_revoked_access_token_is_refused_on_running_connections() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let body = message("phone:1", "a", "b");
    assert_eq!(send(&mut client, &bearer, &body).await.status, 200);
    simulator.revoke_access_tokens();
    assert_eq!(send(&mut client, &bearer, &body).await.status, 401);
}

#[tokio::test]
async fn the_token_endpoint_refuses_in_oauths_words() {
    let simulator = start(Faults::default());
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let late = grant(&simulator, |claims| claims["exp"] = json!(unix_now().as_secs() - 1));
    let answer = ask_token(&mut client, late).await;
    assert_eq!((answer.status.as_u16(), answer.json()["error"].clone()), (400, json!("invalid_grant")));
    let drive = grant(&simulator, |claims| claims["scope"] = json!("https://www.googleapis.com/auth/drive"));
    assert_eq!(ask_token(&mut client, drive).await.json()["error"], "invalid_scope");
    let json = request("/token", "application/json", "none", grant(&simulator, |_| ()));
    assert_eq!(client.send(json).await.unwrap().json()["error"], "invalid_request");
    assert_eq!(simulator.ledger().rejected_total(FcmReason::InvalidGrant), 3);
    let faults = Faults { token_endpoint_down: true, retry_after_secs: Some(7), ..Faults::default() };
    simulator.set_faults(faults).unwrap();
    let answer = ask_token(&mut client, grant(&simulator, |_| ())).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("7")));
}

#[tokio::test]
async fn another_project_and_another_path_are_refused() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    for (path, status) in
        [("/v1/projects/other/messages:send", 403), ("/v1/projects/x", 404), ("/fcm/send", 404), ("/batch", 404)]
    {
        let body = message("phone:1", "a", "b").to_string();
        let answer = client.send(request(path, "application/json", &bearer, body)).await.unwrap();
        assert_eq!(answer.status, status, "{path}");
    }
    let path = format!("https://localhost/v1/projects/{PROJECT}/messages:send");
    let get = Request::get(path).header("authorization", &bearer).body(Bytes::new()).unwrap();
    assert_eq!(client.send(get).await.unwrap().status, 404);
}

#[tokio::test]
async fn each_reason_is_answered_as_fcm_does() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let body = message("phone:1", "a", "b");
    for (reason, status, code) in [
        (FcmReason::Unregistered, 404, "UNREGISTERED"),
        (FcmReason::InvalidArgument, 400, "INVALID_ARGUMENT"),
        (FcmReason::SenderIdMismatch, 403, "SENDER_ID_MISMATCH"),
        (FcmReason::QuotaExceeded, 429, "QUOTA_EXCEEDED"),
        (FcmReason::Unavailable, 503, "UNAVAILABLE"),
        (FcmReason::Internal, 500, "INTERNAL"),
        (FcmReason::ThirdPartyAuthError, 401, "THIRD_PARTY_AUTH_ERROR"),
    ] {
        let rejection_reasons = vec![reason];
        let faults = Faults { rejection_probability: 1.0, rejection_reasons, ..Faults::default() };
        simulator.set_faults(Faults { retry_after_secs: Some(9), ..faults }).unwrap();
        let answer = send(&mut client, &bearer, &body).await;
        assert_eq!(refused(&answer), (status, code.to_owned()));
        let waits = matches!(status, 429 | 503);
        assert_eq!(answer.header("retry-after"), waits.then_some("9"), "{reason}");
        assert_eq!(simulator.ledger().rejected_total(reason), 1);
    }
    assert_eq!(simulator.ledger().accepted_total(), 0);
}

#[tokio::test]
async fn a_spent_quota_is_429_with_the_rest_of_its_interval() {
    let quota = |quota_interval_ms| Faults { quota_count: 3, quota_interval_ms, ..Faults::default() };
    let simulator = start(quota(3_600_000));
    let bearer = bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let body = message("phone:1", "a", "b");
    let wrong = json!({"message": {"token": "phone:1", "else": 1}});
    let statuses = [&body, &wrong, &body];
    for body in statuses {
        assert_ne!(send(&mut client, &bearer, body).await.status, 429);
    }
    let answer = send(&mut client, &bearer, &body).await;
    assert_eq!(refused(&answer), (429, "QUOTA_EXCEEDED".to_owned()));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&wait), "{wait}");
    assert_eq!(answer.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    let simulator = start(quota(1));
    let bearer = self::bearer(&simulator).await;
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    for _ in 0..10 {
        let begin = unix_now();
        assert_eq!(send(&mut client, &bearer, &body).await.status, 200);
        while unix_now() == begin {} // Then the interval of one millisecond is over.
    }
}

#[tokio::test]
async fn messages_and_control_requests_work_over_http_1() {
    let simulator = start(Faults { gone_share: 1.0, ..Faults::default() });
    let bearer = bearer(&simulator).await;
    let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
    let body = message("phone:1", "a", "b");
    assert_eq!(refused(&send(&mut client, &bearer, &body).await), (404, "UNREGISTERED".to_owned()));
    let put = Request::put("/simulator/faults").body(Bytes::from("{}")).unwrap();
    let answer = client.send(put).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.json()["stream_limit"].clone()), (200, json!(100)));
    assert_eq!(send(&mut client, &bearer, &body).await.status, 200);
    for path in ["ledger", "shown"] {
        let get = Request::get(format!("/simulator/{path}/phone:1")).body(Bytes::new()).unwrap();
        let entries = client.send(get).await.unwrap().json();
        assert_eq!((entries[0]["title"].clone(), entries[0]["count"].clone()), (json!("b"), json!(1)), "{path}");
    }
    let get = Request::get("/simulator/ledger").body(Bytes::new()).unwrap();
    assert_eq!(client.send(get).await.unwrap().json()["rejected"], json!({"UNREGISTERED": 1}));
}

#[tokio::test]
async fn a_connection_over_http_1_can_be_reset_before_or_after_recording() {
    for (before, after, recorded) in [(1.0, 0.0, 0), (0.0, 1.0, 1)] {
        let simulator = start(Faults::default());
        let bearer = bearer(&simulator).await;
        let faults = Faults { reset_before_probability: before, reset_after_probability: after, ..Faults::default() };
        simulator.set_faults(faults).unwrap();
        let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
        assert!(client.send(send_request(&bearer, &message("phone:1", "a", "b"))).await.is_none());
        assert_eq!((simulator.ledger().accepted_total(), simulator.ledger().summary().resets), (recorded, 1));
    }
}

#[tokio::test]
async fn goaway_over_http_1_is_connection_close() {
    let simulator = start(Faults::default());
    let bearer = bearer(&simulator).await;
    simulator.set_faults(Faults { goaway_every: 2, ..Faults::default() }).unwrap();
    let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
    let body = message("phone:1", "a", "b");
    assert_eq!(send(&mut client, &bearer, &body).await.header("connection"), None);
    assert_eq!(send(&mut client, &bearer, &body).await.header("connection"), Some("close"));
    assert!(client.send(send_request(&bearer, &body)).await.is_none());
    assert_eq!(simulator.ledger().accepted_total(), 2);
}

#[test]
fn a_setting_out_of_range_is_named() {
    let error = FcmSimulator::start(FcmConfig { access_token_seconds: 0, ..FcmConfig::default() }).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "access_token_seconds must be between 1 and 3600, got 0");
    let apns = tidings_simulator::ApnsSimulator::start(tidings_simulator::SimulatorConfig::default()).unwrap();
    let error = apns.set_faults(Faults { quota_count: 1, ..Faults::default() }).unwrap_err();
    assert_eq!(error.to_string(), "quota_count must be 0 at a provider without a quota, got 1");
}
