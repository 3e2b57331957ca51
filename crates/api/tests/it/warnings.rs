//! What is accepted with a warning, and refused where the request is strict; events in the channels of all subjects.

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_types::EventChannels;

use crate::support::Server;

const TOKEN: &str = "0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e0f8e";

fn goal(id: &str, subjects: &[&str], more: Value) -> Value {
    let mut params = json!({"team": "Vega"});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": id, "topic": "goal", "subjects": subjects, "params": params})
}

fn warning(kind: &str, detail: &str, field: &str) -> Value {
    json!({"type": format!("urn:tidings:warning:{kind}"), "detail": detail, "field": field})
}

const NOWHERE: &str = "subjects: it is not published live: nowhere:1 is in a namespace that is not configured: add \
                       channel.namespaces.nowhere with durable = true";

#[tokio::test]
async fn an_event_is_accepted_with_warnings_and_strictly_refused() {
    let server = Server::start();
    let event = goal("g-1", &["nowhere:1", "team:42"], json!({"untranslated": 1})).to_string();
    let untranslated = "topic: goal has no translation for pl";
    let refused = server.post("/v1/events?strict=true", event.clone()).await;
    let (problem, detail) = (refused.json(), format!("{NOWHERE} (and 1 more)"));
    assert_eq!(
        (refused.status, &problem["type"], &problem["detail"], &problem["field"]),
        (StatusCode::BAD_REQUEST, &json!("urn:tidings:problem:strict"), &json!(detail), &json!("subjects"))
    );
    assert_eq!(server.accepted(), 0);
    let accepted = server.post("/v1/events", event.clone()).await;
    let warnings = json!([warning("no-channel", NOWHERE, "subjects"), warning("untranslated", untranslated, "topic")]);
    assert_eq!((accepted.status, &accepted.json()["warnings"]), (StatusCode::ACCEPTED, &warnings));
    let again = server.post("/v1/events?strict=true", event).await;
    assert_eq!(
        (again.status, &again.json()["repeated"]),
        (StatusCode::ACCEPTED, &json!(true)),
        "it is accepted already"
    );
}

#[tokio::test]
async fn a_text_that_shows_a_moment_as_programs_write_it_is_told() {
    let server = Server::start();
    let event = goal("g-1", &["team:42"], json!({"plain_moment": "2026-11-24T20:45:00Z"})).to_string();
    let detail = "params.plain_moment: is shown as it is; as {\"datetime\": …} each language shows it in its own way";
    let warnings = json!([warning("plain-moment", detail, "params.plain_moment")]);
    assert_eq!(server.post("/v1/events", event).await.json()["warnings"], warnings);
}

#[tokio::test]
async fn a_value_for_which_there_is_no_text_is_told() {
    let server = Server::start();
    let event = goal("g-1", &["team:42"], json!({"unknown_value": "femal"})).to_string();
    let detail = "params.unknown_value: goal has texts for the values female, male, and shows the text without a value";
    let warnings = json!([warning("unknown-value", detail, "params.unknown_value")]);
    assert_eq!(server.post("/v1/events", event).await.json()["warnings"], warnings);
}

#[tokio::test]
async fn of_a_list_each_event_has_its_own_warnings_and_one_with_none_is_strictly_accepted() {
    let server = Server::start();
    let plain = goal("g-1", &["team:42"], json!({}));
    let list = json!([plain, goal("g-2", &["nowhere:1"], json!({}))]).to_string();
    let refused = server.post("/v1/events?strict=true", list.clone()).await;
    assert_eq!(refused.json()["field"], "[1].subjects");
    let answer = server.post("/v1/events", list).await.json();
    let detail = format!("[1].{NOWHERE}");
    assert_eq!(answer[0].get("warnings"), None);
    assert_eq!(answer[1]["warnings"], json!([warning("no-channel", &detail, "[1].subjects")]));
    let strict = server.post("/v1/events?strict=true", goal("g-3", &["team:42"], json!({})).to_string()).await;
    assert_eq!((strict.status, strict.json().get("warnings")), (StatusCode::ACCEPTED, None));
    let wrong = server.post("/v1/events?strict=yes", "{}").await;
    assert_eq!(wrong.detail(), "strict: must be true or false, got \"yes\"");
    let misspelt = server.post("/v1/events?strickt=true", "{}").await;
    assert_eq!(misspelt.detail(), "unknown query parameter `strickt`, known is `strict`");
}

#[tokio::test]
async fn a_device_of_an_app_that_nobody_pushes_to_and_a_topic_that_nobody_knows_are_told() {
    let server = Server::start();
    let phone = |app: &str, more: Value| {
        let mut phone = json!({"platform": "ios", "token": TOKEN, "app": app, "locale": "sv"});
        phone.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        phone.to_string()
    };
    let put = async |path: &str, body: String| server.send("PUT", path, body).await;
    let unserved = "app: other.app is not listed in any section [apns.NAME] of environment production, so the device cannot be pushed";
    let refused = put("/v1/devices/d-1?strict=true", phone("other.app", json!({}))).await;
    assert_eq!((refused.status, refused.detail().as_str()), (StatusCode::BAD_REQUEST, unserved));
    assert_eq!(server.send("GET", "/v1/devices/d-1", "").await.status, StatusCode::NOT_FOUND);
    let accepted = put("/v1/devices/d-1", phone("other.app", json!({}))).await;
    let warnings = json!([warning("unserved-app", unserved, "app")]);
    assert_eq!((accepted.status, &accepted.json()["warnings"]), (StatusCode::CREATED, &warnings));
    let sandbox = put("/v1/devices/d-1", phone("other.on-apple", json!({"environment": "sandbox"}))).await;
    assert!(sandbox.json()["warnings"][0]["detail"].as_str().unwrap().contains("environment sandbox"));
    for (app, more) in [
        ("a", json!({})),
        ("other.on-apple", json!({})),
        ("other.app", json!({"token": null, "push_permission": "denied"})),
    ] {
        let answer = put("/v1/devices/d-1?strict=true", phone(app, more)).await;
        assert_eq!((answer.status, answer.json().get("warnings")), (StatusCode::OK, None), "{app}");
    }

    let path = "/v1/devices/d-1/subscriptions";
    let wanted = json!({"subscriptions": [{"subject": "team:42", "topics": ["goal", "misspelt"]}]}).to_string();
    let unknown = "subscriptions: topic misspelt is not in the configuration (topics): only an event with texts of its own can have it";
    for method in ["PUT", "POST"] {
        let refused = server.send(method, &format!("{path}?strict=true"), wanted.clone()).await;
        assert_eq!((refused.status, refused.detail().as_str()), (StatusCode::BAD_REQUEST, unknown), "{method}");
    }
    assert_eq!(server.send("GET", path, "").await.json(), json!({"subscriptions": []}));
    for (method, added) in [("PUT", 2), ("POST", 0)] {
        let answer = server.send(method, path, wanted.clone()).await.json();
        let warnings = json!([warning("unknown-topic", unknown, "subscriptions")]);
        assert_eq!(answer, json!({"added": added, "removed": 0, "warnings": warnings}), "{method}");
    }
}

#[tokio::test]
async fn an_event_goes_to_the_channels_of_all_of_its_subjects_where_that_is_configured() {
    for (channels, expected, warned) in [
        (EventChannels::FirstSubject, &["match:77"] as &[&str], 0),
        (EventChannels::AllSubjects, &["match:77", "team:aik"], 1),
        (EventChannels::None, &[], 0),
    ] {
        let server = Server::with(|_, api| api.event_channels = channels);
        let event = goal("g-1", &["match:77", "team:aik", "nowhere:1"], json!({}));
        let answer = server.post("/v1/events", event.to_string()).await.json();
        let places = answer["channels"].as_array().unwrap();
        let names: Vec<&str> = places.iter().map(|place| place["channel"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{channels:?}");
        assert_eq!(answer["warnings"].as_array().map_or(0, Vec::len), warned, "{channels:?}");
        for channel in ["match:77", "team:aik"] {
            assert_eq!(
                server.published(channel).len(),
                usize::from(expected.contains(&channel)),
                "{channels:?} {channel}"
            );
        }
        let mut own = event;
        (own["id"], own["channels"]) = (json!("g-2"), json!(["team:7"]));
        let answer = server.post("/v1/events", own.to_string()).await.json();
        assert_eq!(answer["channels"][0]["channel"], "team:7", "what it names goes before: {channels:?}");
        assert_eq!((answer["channels"].as_array().unwrap().len(), answer.get("warnings")), (1, None));
    }
}

#[tokio::test]
async fn a_device_is_shown_with_what_it_is_subscribed_to_and_has_muted() {
    let server = Server::start();
    let phone = json!({"platform": "ios", "token": TOKEN, "app": "a", "locale": "sv"}).to_string();
    let tag = server.send("PUT", "/v1/devices/d-1", phone).await.headers["etag"].clone();
    let subscriptions = json!([{"subject": "team:42", "topics": ["end", "goal"]}]);
    server.send("PUT", "/v1/devices/d-1/subscriptions", json!({"subscriptions": subscriptions}).to_string()).await;
    server.send("PUT", "/v1/devices/d-1/mutes/team:42", "{}").await;
    let answer = server.send("GET", "/v1/devices/d-1", "").await;
    let whole = answer.json();
    assert_eq!((&whole["id"], &whole["locale"]), (&json!("d-1"), &json!("sv")));
    assert_eq!((&whole["subscriptions"], &whole["mutes"]), (&subscriptions, &json!([{"scope": "team:42"}])));
    assert_eq!((&answer.headers["etag"], &answer.headers["cache-control"]), (&tag, &"no-store".parse().unwrap()));
}

#[tokio::test]
async fn a_locale_of_no_language_is_left_out_and_told() {
    let server = Server::start();
    let phone = |locale: &str| json!({"platform": "ios", "token": TOKEN, "app": "a", "locale": locale}).to_string();
    let detail = "locale: xq-SE is of no known language, so und is used, with the source texts";
    let refused = server.send("PUT", "/v1/devices/d-1?strict=true", phone("xq_se")).await;
    assert_eq!((refused.status, refused.detail().as_str()), (StatusCode::BAD_REQUEST, detail));
    let accepted = server.send("PUT", "/v1/devices/d-1", phone("xq_se")).await.json();
    assert_eq!(
        (&accepted["locale"], &accepted["warnings"]),
        (&json!("und"), &json!([warning("unknown-locale", detail, "locale")]))
    );
    let known = server.send("PUT", "/v1/devices/d-1", phone("sv-SE")).await.json();
    assert_eq!((&known["locale"], known.get("warnings")), (&json!("sv-SE"), None));
}
