//! `/v1/devices/{id}/mutes`.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;
use tidings_api::Rfc3339;
use tidings_telemetry::unix_now;

use crate::support::{Cases, MUTE_COUNT_MAX, Server};

const MUTES: &str = "/v1/devices/phone-1/mutes";

async fn with_phone() -> Server {
    let server = Server::start();
    let phone = json!({"platform": "ios", "token": "aabb", "app": "a", "locale": "en"});
    server.send("PUT", "/v1/devices/phone-1", phone.to_string()).await;
    server
}

#[tokio::test]
async fn a_device_mutes_everything_or_a_subject_for_ever_or_for_a_while() {
    let server = with_phone().await;
    assert_eq!(server.send("GET", MUTES, "").await.body, r#"{"mutes":[]}"#);
    let muted = server.send("PUT", &format!("{MUTES}/team:42"), "").await;
    assert_eq!((muted.status, muted.json()), (StatusCode::CREATED, json!({"scope": "team:42"})));
    let until = Rfc3339(unix_now().saturating_add(Duration::from_secs(3600))).to_string();
    let everything = server.send("PUT", &format!("{MUTES}/everything"), json!({"until": until}).to_string()).await;
    let shown = json!({"scope": "everything", "until": until});
    assert_eq!((everything.status, everything.json()), (StatusCode::CREATED, shown.clone()));
    let listed = server.send("GET", MUTES, "").await.json();
    assert_eq!(listed, json!({"mutes": [shown, {"scope": "team:42"}]}));

    // Anew: the end is replaced.
    let before = unix_now();
    let again = server.send("PUT", &format!("{MUTES}/team%3A42"), r#"{"for":"2h"}"#).await;
    let Rfc3339(end) = again.json()["until"].as_str().unwrap().parse().unwrap();
    assert_eq!(again.status, StatusCode::OK);
    let in_two_hours = [before, unix_now()].map(|moment| moment.saturating_add(Duration::from_secs(7200)));
    assert!((in_two_hours[0]..=in_two_hours[1]).contains(&end), "{end:?}");
    let forever = server.send("PUT", &format!("{MUTES}/everything"), r#"{"until":null}"#).await;
    assert_eq!((forever.status, forever.json()), (StatusCode::OK, json!({"scope": "everything"})));

    for (status, detail) in [(204, ""), (404, "device phone-1 has not muted team:42")] {
        let ended = server.send("DELETE", &format!("{MUTES}/team:42"), "").await;
        assert_eq!(ended.status.as_u16(), status);
        assert_eq!(if status == 204 { ended.body } else { ended.detail() }, detail);
    }
    assert_eq!(server.send("GET", MUTES, "").await.json(), json!({"mutes": [{"scope": "everything"}]}));
    server.post("/v1/devices/phone-1/logout", "").await;
    assert_eq!(server.send("GET", MUTES, "").await.body, r#"{"mutes":[]}"#, "they were the former user's");
}

#[tokio::test]
async fn a_subject_in_a_path_may_hold_any_visible_character() {
    let server = with_phone().await;
    let muted = server.send("PUT", &format!("{MUTES}/match:1%2F%25a"), "{}").await;
    assert_eq!(muted.json()["scope"], "match:1/%a");
    assert_eq!(server.send("DELETE", &format!("{MUTES}/match:1%2F%25a"), "").await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_wrong_mute_is_refused_and_changes_nothing() {
    let server = with_phone().await;
    let cases = Cases::default();
    for (scope, body, expected) in [
        (
            "nothing",
            "",
            "scope: subject must be kind:key, 3 to 128 visible ASCII characters, kind of a-z, 0-9, _ and -, got \"nothing\"",
        ),
        (
            "everything",
            r#"{"until":"2020-01-01T00:00:00Z"}"#,
            "until: must be in the future, got \"2020-01-01T00:00:00Z\"",
        ),
        (
            "everything",
            r#"{"until":"tomorrow"}"#,
            "until: must be a moment from 1970 to 9999 with its offset from UTC (RFC 3339), such as \"2026-07-15T18:04:05Z\" or \"2026-07-15T20:04:05+02:00\", got \"tomorrow\"",
        ),
        ("everything", r#"{"until":7}"#, "until: must be text, got a number"),
        (
            "everything",
            r#"{"for":0}"#,
            "for: must be 1 to 31622400 seconds, as a number or as text such as \"90s\", \"15m\", \"4h\", \"2d\", got \"0\"",
        ),
        ("everything", r#"{"for":60,"until":"2099-01-01T00:00:00Z"}"#, "for: must not be given together with until"),
        ("everything", r#"{"subject":"team:1"}"#, "field `subject` is given by the path"),
        ("everything", r#"{"untill":"x"}"#, "unknown field `untill`, did you mean `until`?"),
        ("everything", "[]", "must be an object, got a list"),
    ] {
        let answer = server.send("PUT", &format!("{MUTES}/{scope}"), body).await;
        cases.check(&format!("{scope} {body}"), (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
    for number in 0..MUTE_COUNT_MAX {
        server.send("PUT", &format!("{MUTES}/team:{number}"), "").await;
    }
    let many = server.send("PUT", &format!("{MUTES}/everything"), "").await;
    let expected = (400, format!("mutes of one device: limit {MUTE_COUNT_MAX}, got {}", MUTE_COUNT_MAX + 1));
    cases.check("one too many", (many.status.as_u16(), many.detail()), expected);
    cases.check("none of them", server.send("GET", MUTES, "").await.body.contains("everything"), false);
    for method in ["PUT", "DELETE", "GET"] {
        let path = if method == "GET" { "/v1/devices/x/mutes" } else { "/v1/devices/x/mutes/everything" };
        let absent = server.send(method, path, "").await;
        cases.check(method, (absent.status.as_u16(), absent.detail()), (404, "device x is not registered".to_owned()));
    }
}
