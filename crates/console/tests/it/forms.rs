//! What operators do, and what nobody else can make them do.

use serde_json::{Value, json};

use crate::told::{Browser, OPERATOR_KEY, VIEWER_KEY, job};

/// A call without its body.
fn plain(browser: &Browser) -> Vec<(String, String)> {
    browser.told.changes().into_iter().map(|(_, method, path, _)| (method, path)).collect()
}

async fn operator() -> (Browser, String) {
    let browser = Browser::logged_in(OPERATOR_KEY).await;
    browser.told.tell("GET /v1/jobs", json!({"jobs": []}));
    let token = browser.get("/console").await.token();
    (browser, token)
}

#[tokio::test]
async fn each_form_becomes_one_call_and_leads_back() {
    let cases = [
        ("cancel", vec![("id", "goal/1")], "DELETE", "/v1/events/goal%2F1", "/console?said=cancelled"),
        ("pause", vec![("scope", "topic:goal")], "PUT", "/v1/brakes/topic%3Agoal", "/console?said=paused"),
        ("resume", vec![("scope", "everything")], "DELETE", "/v1/brakes/everything", "/console?said=resumed"),
        ("reload", vec![("back", "/console/texts")], "POST", "/v1/texts/reload", "/console/texts?said=reloaded"),
        ("rollback", vec![("back", "/console/texts")], "POST", "/v1/texts/rollback", "/console/texts?said=rolled-back"),
        ("poll", vec![("name", "news")], "POST", "/v1/feeds/news/poll", "/console?said=polled"),
    ];
    for (name, mut form, method, path, leads_to) in cases {
        let (browser, token) = operator().await;
        browser.told.tell(&format!("{method} {path}"), Value::Null);
        form.push(("token", &token));
        let page = browser.post(&format!("/console/act/{name}"), &form).await;
        assert_eq!((page.status, page.header("location")), (303, leads_to), "{name}: {}", page.text);
        assert_eq!(plain(&browser), [(method.to_owned(), path.to_owned())], "{name}");
    }
}

#[tokio::test]
async fn a_test_goes_to_one_device_and_first_to_nobody() {
    let (browser, token) = operator().await;
    browser.told.tell("POST /v1/events", json!({"id": "console-dry-1"}));
    let form = [
        ("token", token.as_str()),
        ("device", "phone 1"),
        ("id", "console-dry-1"),
        ("title", "Test"),
        ("body", "Hej"),
        ("dry", "yes"),
    ];
    let page = browser.post("/console/act/test", &form).await;
    assert_eq!(page.header("location"), "/console/why?device=phone%201&event=console-dry-1&said=sent");
    let (_, _, _, body) = browser.told.changes().remove(0);
    assert_eq!((&body["to"], &body["dry_run"]), (&json!({"devices": ["phone 1"]}), &json!(true)));
    assert_eq!(body["text"], json!({"und": {"title": "Test", "body": "Hej"}}));
}

#[tokio::test]
async fn a_form_of_another_site_or_of_another_login_does_nothing() {
    let (browser, token) = operator().await;
    let mut other = browser.another();
    other.log_in(OPERATOR_KEY).await;
    let foreign = other.get("/console").await.token();
    assert_ne!(foreign, token);
    for wrong in ["", "guessed", &foreign, &token[..token.len() - 1]] {
        let page = browser.post("/console/act/pause", &[("scope", "everything"), ("token", wrong)]).await;
        assert_eq!(page.status, 403, "{wrong:?}");
    }
    let form = [("scope", "everything"), ("token", token.as_str())];
    for origin in ["https://evil.example", "null", "http://console.example:81"] {
        assert_eq!(browser.post_from(origin, "/console/act/pause", &form).await.status, 403, "{origin}");
    }
    assert_eq!(browser.get("/console/act/pause?scope=everything").await.status, 405, "a link does nothing");
    assert_eq!(plain(&browser), []);
}

#[tokio::test]
async fn a_viewer_changes_nothing_and_sees_no_button_for_it() {
    let browser = Browser::logged_in(VIEWER_KEY).await;
    browser.told.tell("GET /v1/events/goal-1", job("goal-1", "running", 100, 10));
    browser
        .told
        .tell("GET /v1/brakes", json!({"brakes": [{"scope": "topic:goal", "paused_at": "2026-11-27T04:00:00Z"}]}));
    browser.told.tell(
        "GET /v1/texts",
        json!({"topics": 1, "languages": [], "coverage": [], "can_roll_back": true, "faults": []}),
    );
    for path in ["/console", "/console/events/goal-1", "/console/texts", "/console/why?device=phone-1"] {
        let page = browser.get(path).await;
        assert!(!page.text.contains("/console/act/"), "{path}: {}", page.text);
    }
    let token = browser.get("/console").await.token();
    for name in ["cancel", "pause", "resume", "test", "reload", "rollback", "poll"] {
        let form = [("token", token.as_str()), ("scope", "everything"), ("id", "goal-1"), ("name", "news")];
        assert_eq!(browser.post(&format!("/console/act/{name}"), &form).await.status, 403, "{name}");
    }
    assert_eq!(plain(&browser), []);
}

#[tokio::test]
async fn more_than_ten_thousand_devices_are_confirmed_by_their_number() {
    let (browser, token) = operator().await;
    browser.told.tell("PUT /v1/brakes/topic%3Agoal", Value::Null);
    let jobs = [("a", 10_000, 0), ("b", 5_000, 3_000)].map(|(id, audience, done)| job(id, "running", audience, done));
    browser.told.tell("GET /v1/jobs", json!({"jobs": jobs}));
    let form = |more: &[(&'static str, &'static str)]| {
        let mut form = vec![("scope", "topic:goal"), ("back", "/console/events")];
        form.extend_from_slice(more);
        form
    };
    let mut first = form(&[]);
    first.push(("token", &token));
    let page = browser.post("/console/act/pause", &first).await;
    assert_eq!(page.status, 409);
    // Of each job six devices have another outcome than accepted.
    assert!(
        page.text.contains("11\u{202f}988") && page.text.contains("name=\"reach\" value=\"11988\""),
        "{}",
        page.text
    );
    assert_eq!(plain(&browser), []);
    for typed in ["", "11987", "yes"] {
        let mut form = form(&[("reach", "11988")]);
        form.extend([("token", token.as_str()), ("typed", typed)]);
        assert_eq!(browser.post("/console/act/pause", &form).await.status, 409, "{typed:?}");
    }
    assert_eq!(plain(&browser), []);
    let mut right = form(&[("reach", "11988"), ("typed", "11 988")]);
    right.push(("token", &token));
    let page = browser.post("/console/act/pause", &right).await;
    assert_eq!((page.status, page.header("location")), (303, "/console/events?said=paused"));
    assert_eq!(plain(&browser), [("PUT".to_owned(), "/v1/brakes/topic%3Agoal".to_owned())]);
}

#[tokio::test]
async fn what_the_api_refuses_is_told_and_leads_back() {
    let (browser, token) = operator().await;
    let form = [("token", token.as_str()), ("id", "goal-9"), ("back", "/console/events/goal-9")];
    let page = browser.post("/console/act/cancel", &form).await;
    assert_eq!(page.status, 404);
    assert!(page.text.contains("there is no such thing") && page.text.contains("href=\"/console/events/goal-9\""));
    assert_eq!(browser.post("/console/act/explode", &form).await.status, 404);
}
