//! `GET /v1/export`, and what an import makes of it elsewhere.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings_types::DeviceId;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::support::{Answer, Cases, Server};

const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

fn ids(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    answer.body.lines().map(id).collect()
}

async fn import(server: &Server, lines: String) {
    let answer = server.send_with("POST", "/v1/imports", &[("x-api-key", "root")], lines).await;
    assert!(answer.body.trim_end().ends_with(r#""done":true}"#), "{answer:?}");
}

fn numbered(count: usize) -> String {
    let line = |number: usize| {
        let country = if number.is_multiple_of(2) { "SE" } else { "NO" };
        json!({"id": format!("d-{number:05}"), "platform": "ios", "token": format!("{number:08x}"), "app": "a", "locale": "sv", "country": country})
    };
    (0..count).map(|number| format!("{}\n", line(number))).collect()
}

fn large() -> Server {
    Server::with(|store, _| store.device_count_max = 10_000)
}

/// Of every kind one, with all that a device can have.
#[tokio::test]
async fn imported_elsewhere_it_makes_the_same_devices() {
    let old = Server::start();
    let put = async |id: &str, device: Value| {
        let answer = old.send("PUT", &format!("/v1/devices/{id}"), device.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json()["credential"].as_str().unwrap().to_owned()
    };
    let all = json!({
        "platform": "ios", "token": "0f8e", "app": "com.example.app", "locale": "pt-BR", "environment": "sandbox",
        "country": "BR", "time_zone": "America/Sao_Paulo", "push_permission": "granted", "user": "a/b%", "proven": true,
    });
    let secret = put("phone%2F1", all).await;
    put("android", json!({"platform": "android", "token": "dPx0:APA91b-8_x", "app": "a", "locale": "pl"})).await;
    let web_push = json!({"endpoint": "https://push.example.net/wp/gAAAA", "keys": {"p256dh": P256DH, "auth": AUTH}});
    put("browser", json!({"platform": "web", "web_push": web_push, "app": "a.example", "locale": "sr-Latn-RS"})).await;
    put("silent", json!({"platform": "web", "push_permission": "denied", "app": "a.example", "locale": "en"})).await;
    let subscriptions = json!({"subscriptions": [
        {"subject": "team:42", "topics": ["goal", "final-score"]}, {"subject": "match:7", "topics": ["goal"]},
    ]});
    old.send("PUT", "/v1/devices/phone%2F1/subscriptions", subscriptions.to_string()).await;
    for (scope, body) in [("everything", r#"{"until": "2099-12-31T23:59:59.5Z"}"#), ("team:42", "")] {
        let answer = old.send("PUT", &format!("/v1/devices/phone%2F1/mutes/{scope}"), body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
    let exported = old.send("GET", "/v1/export", "").await;
    assert_eq!(
        (&exported.headers["content-type"], &exported.headers["cache-control"]),
        (&"application/x-ndjson".parse().unwrap(), &"no-store".parse().unwrap())
    );
    assert_eq!(ids(&exported), ["android", "browser", "phone/1", "silent"]);
    assert!(!exported.body.contains(&secret), "of a credential there is the hash");
    let phone: Value = serde_json::from_str(exported.body.lines().nth(2).unwrap()).unwrap();
    assert_eq!(
        phone["mutes"],
        json!([{"scope": "everything", "until": "2099-12-31T23:59:59.500Z"}, {"scope": "team:42"}])
    );
    assert_eq!((&phone["token"], &phone["proven"]), (&json!("0f8e"), &json!(true)));
    let registered_at = old.store.device(&DeviceId::new("phone/1").unwrap()).unwrap().unwrap().token_at;
    assert_eq!(phone["token_at"], json!(tidings_api::Rfc3339(registered_at).to_string()));
    let silent: Value = serde_json::from_str(exported.body.lines().nth(3).unwrap()).unwrap();
    assert_eq!(silent.get("token_at"), None, "it has no token");

    let new = Server::start();
    import(&new, exported.body.clone()).await;
    assert_eq!(new.send("GET", "/v1/export", "").await.body, exported.body);
    let id = DeviceId::new("phone/1").unwrap();
    assert!(new.store.prove(&id, Some(&secret)).unwrap().is_some(), "its app proves itself as before");
    assert!(new.store.prove(&id, Some("another")).unwrap().is_none());
    import(&new, exported.body.clone()).await;
    assert_eq!(new.send("GET", "/v1/export", "").await.body, exported.body, "the same again changes nothing");
    let preview = |scope: &str| json!({"topic": "goal", "subjects": [scope]}).to_string();
    for (subject, total) in [("team:42", 0), ("match:7", 0)] {
        let answer = new.send("POST", "/v1/audience/preview", preview(subject)).await;
        assert_eq!(answer.json()["total"], total, "it has muted everything");
    }
}

#[tokio::test]
async fn who_was_cut_off_goes_on_behind_the_last_device() {
    let server = large();
    import(&server, numbered(1203)).await;
    let whole = server.send("GET", "/v1/export", "").await;
    assert_eq!(ids(&whole).len(), 1203);
    for cut in [0, 1, 499, 500, 501, 1000, 1202, 1203] {
        let had: String = whole.body.lines().take(cut).map(|line| format!("{line}\n")).collect();
        let after = ids(&Answer { body: had.clone(), ..clone(&whole) }).pop();
        let query = after.map(|id| format!("?after={id}")).unwrap_or_default();
        let rest = server.send("GET", &format!("/v1/export{query}"), "").await;
        assert!(had + &rest.body == whole.body, "cut behind {cut}");
    }
}

fn clone(Answer { status, headers, bytes, body }: &Answer) -> Answer {
    Answer { status: *status, headers: headers.clone(), bytes: bytes.clone(), body: body.clone() }
}

#[tokio::test]
async fn with_a_selector_those_that_it_means() {
    let server = large();
    import(&server, numbered(1203)).await;
    let of = async |selector: &str| {
        let answer = server.send("GET", &format!("/v1/export?selector={selector}"), "").await;
        let mut ids = ids(&answer);
        ids.sort_unstable();
        ids
    };
    let swedish: Vec<String> = (0..1203).step_by(2).map(|number| format!("d-{number:05}")).collect();
    assert_eq!(of("country%20=%20SE").await, swedish);
    assert_eq!(of("country%20=%20SE%20or%20country%20=%20NO").await.len(), 1203);
    assert_eq!(of("country%20=%20DK").await, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused() {
    let server = Server::start();
    let cases = Cases::default();
    for (query, field) in [
        ("?after=a%20b", "after"),
        ("?selector=", "selector"),
        ("?selector=country%20=", "selector"),
        ("?selector=country%20=%20SE&after=d", "after"),
        ("?limit=1", "limit"),
    ] {
        let answer = server.send("GET", &format!("/v1/export{query}"), "").await;
        cases.check(query, (answer.status, answer.json()["field"].clone()), (StatusCode::BAD_REQUEST, json!(field)));
    }
    for (key, status) in
        [("publish", 403), ("read", 403), ("operate", 403), ("devices", 403), ("nobody's", 401), ("root", 200)]
    {
        let answer = server.send_with("GET", "/v1/export", &[("x-api-key", key)], "").await;
        cases.check(key, answer.status.as_u16(), status);
    }
    server.store.close().await;
    assert_eq!(server.send("GET", "/v1/export", "").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

/// With names of which each character takes two in JSON, and as many of them as there may be.
#[tokio::test]
async fn the_largest_device_can_be_imported_elsewhere() {
    const COUNT: usize = 500;
    let server = || {
        Server::with(|store, api| {
            (store.subscription_count_max, store.mute_count_max) = (COUNT as u32, COUNT as u32);
            (api.subscription_count_max, api.mute_count_max, api.body_bytes_max) = (COUNT, COUNT, 1 << 20);
        })
    };
    let (old, new) = (server(), server());
    let subjects: Vec<String> = (0..COUNT).map(|number| format!("k:{number:03}{}", "\"".repeat(123))).collect();
    let topic = "t".repeat(64);
    let subscriptions: Vec<Value> =
        subjects.iter().map(|subject| json!({"subject": subject, "topics": [topic]})).collect();
    let mutes: Vec<Value> =
        subjects.iter().map(|subject| json!({"scope": subject, "until": "2099-12-31T23:59:59.123Z"})).collect();
    let device = json!({
        "id": "d", "platform": "ios", "token": "0f8e", "app": "a", "locale": "sv", "subscriptions": subscriptions,
        "mutes": mutes,
    });
    import(&old, device.to_string()).await;
    let exported = old.send("GET", "/v1/export", "").await;
    import(&new, exported.body.clone()).await;
    assert_eq!(new.send("GET", "/v1/export", "").await.body, exported.body);
}

/// A page ends early with them, also the last one.
#[tokio::test]
async fn devices_with_many_subscriptions_are_all_in_it() {
    const COUNT: usize = 40;
    const EACH: usize = 500; // Some 5 MiB together.
    let server = Server::with(|store, api| {
        (store.subscription_count_max, api.subscription_count_max) = (EACH as u32, EACH);
    });
    let topic = "t".repeat(64);
    let subject = |number| json!({"subject": format!("k:{number:0120}"), "topics": [topic]});
    let subscriptions: Vec<Value> = (0..EACH).map(subject).collect();
    let names: Vec<String> = (0..COUNT).map(|number| format!("d-{number:02}")).collect();
    for name in &names {
        let device = json!({"id": name, "platform": "ios", "token": "0f8e", "app": name, "locale": "sv", "subscriptions": subscriptions});
        import(&server, device.to_string()).await;
    }
    assert_eq!(ids(&server.send("GET", "/v1/export", "").await), names);
    assert_eq!(ids(&server.send("GET", "/v1/export?selector=platform%20=%20ios", "").await), names);
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_reads_is_given_up() {
    let server = Server::with(|store, api| (store.device_count_max, api.request_count_max) = (10_000, 4));
    import(&server, numbered(2500)).await;
    let request = Request::builder().uri("/v1/export").header("x-api-key", "root").body(Body::empty()).unwrap();
    let unread = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(server.send("GET", "/v1/export", "").await.status, StatusCode::SERVICE_UNAVAILABLE, "one of four");
    let free = async {
        while server.send("GET", "/v1/export?after=d-02499", "").await.status != StatusCode::OK {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_secs(600), free).await.expect("its place is free");
    assert!(unread.into_body().collect().await.is_err(), "what there is of it is not all");
}

/// Nobody takes it for whole, and nothing else is missing.
#[tokio::test]
async fn whoever_cannot_be_read_has_a_line_that_says_so() {
    const COUNT: usize = 6000;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::damaged(folder.path(), COUNT).await;
    let expected: Vec<String> = (0..COUNT).map(|number| format!("d-{number:05}")).collect();
    let damaged = |answer: &Answer| {
        let lines = answer.body.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["problem"]["type"] == "urn:tidings:problem:damaged").count()
    };
    let all = server.send("GET", "/v1/export", "").await;
    assert_eq!(ids(&all), expected);
    assert!((1..200).contains(&damaged(&all)), "{} lines", damaged(&all));
    let selected = server.send("GET", "/v1/export?selector=platform%20=%20ios", "").await;
    let mut found = ids(&selected);
    found.sort_unstable();
    assert_eq!((found, damaged(&selected)), (expected, damaged(&all)));
}

/// A number is given again while an export goes on: whoever has it now is not whom the selector meant.
#[tokio::test]
async fn who_came_later_is_not_in_it() {
    let server = large();
    import(&server, numbered(2500)).await;
    let path = "/v1/export?selector=country%20=%20SE";
    let request = Request::builder().uri(path).header("x-api-key", "root").body(Body::empty()).unwrap();
    let answer = server.router.clone().oneshot(request).await.unwrap();
    let event = json!({"id": "e", "topic": "goal", "subjects": ["team:1"], "params": {"team": "x"}});
    assert_eq!(server.post("/v1/events", event.to_string()).await.status, StatusCode::ACCEPTED);
    server.send("POST", "/v1/devices/d-02498/logout", "").await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("d-02496") || text.contains("d-02494"));
    assert!(!text.contains("d-02498"), "its number belongs to somebody who came later");
}
