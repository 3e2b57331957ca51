//! `/v1/users/{user}`.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings_store::NewDevice;
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceToken, Locale, Platform, UserId};
use tokio::time::{sleep, timeout};

use crate::support::{Server, poll_and_drop};

async fn register(server: &Server, id: &str, user: &str) {
    let device =
        json!({"platform": "android", "token": format!("token-of-{id}"), "app": "a", "locale": "sv", "user": user});
    let answer = server.send("PUT", &format!("/v1/devices/{id}"), device.to_string()).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// So many devices of Ada at once.
async fn import(server: &Server, count: usize) {
    let device = |index: usize| {
        let id = DeviceId::new(&format!("ada-{index:03}")).unwrap();
        let app = AppId::new("a").unwrap();
        let new = NewDevice::new(id, app, Platform::Android, Locale::new("sv").unwrap());
        let token = DeviceToken::fcm(&format!("token-of-{index}")).unwrap();
        NewDevice { token: Some(token), user: Some(UserId::new("ada").unwrap()), ..new }.into()
    };
    server.store.import_devices((0..count).map(device).collect(), None, unix_now()).await.unwrap();
}

fn ids(page: &Value) -> Vec<&str> {
    page["devices"].as_array().unwrap().iter().map(|device| device["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_devices_of_a_user_come_page_by_page() {
    let server = Server::start();
    for (id, user) in [("c", "ada"), ("a", "ada"), ("b", "bob"), ("d", "ada"), ("e", "a/b")] {
        register(&server, id, user).await;
    }
    let first = server.send("GET", "/v1/users/ada/devices?limit=2", "").await.json();
    assert_eq!((ids(&first), &first["next"]), (vec!["a", "c"], &json!("c")));
    let second = server.send("GET", "/v1/users/ada/devices?limit=2&after=c", "").await.json();
    assert_eq!((ids(&second), second.get("next")), (vec!["d"], None));
    assert_eq!(ids(&server.send("GET", "/v1/users/a%2Fb/devices", "").await.json()), ["e"]);
    assert_eq!(server.send("GET", "/v1/users/nobody/devices", "").await.body, r#"{"devices":[]}"#);
    let wrong = server.send("GET", "/v1/users/a%20b/devices", "").await;
    assert_eq!(wrong.detail(), "user: user id must be 1 to 128 visible ASCII characters, got \"a b\"");
    // A device that changes hands is the new user's alone.
    register(&server, "c", "bob").await;
    assert_eq!(ids(&server.send("GET", "/v1/users/bob/devices", "").await.json()), ["b", "c"]);
    assert_eq!(ids(&server.send("GET", "/v1/users/ada/devices", "").await.json()), ["a", "d"]);
}

/// By whichever way they come.
#[tokio::test]
async fn a_device_too_many_of_a_user_is_refused_by_name() {
    let server = Server::with(|store, _| store.device_count_max = 2000);
    import(&server, 1000).await;
    let device = |id: &str, user: &str| {
        let (platform, token) = ("ios", "0f8e");
        json!({"id": id, "platform": platform, "token": token, "app": "a", "locale": "sv", "user": user})
    };
    let mut one_more = device("one-more", "ada");
    one_more.as_object_mut().unwrap().remove("id");
    let answer = server.send("PUT", "/v1/devices/one-more", one_more.to_string()).await;
    let problem = answer.json();
    assert_eq!(
        (answer.status, &problem["field"], &problem["limit"], &problem["value"]),
        (StatusCode::BAD_REQUEST, &json!("user"), &json!(1000), &json!(1001))
    );
    assert_eq!(answer.detail(), "user: devices of one user: limit 1000, got 1001");
    let lines = format!("{}\n{}\n{}", device("his", "bob"), device("one-more", "ada"), device("hers", "eve"));
    let path = "/v1/imports?on_error=skip";
    let answer = server.send_with("POST", path, &[("x-api-key", "root")], lines).await;
    let told: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wrong = told.iter().find(|line| line.get("problem").is_some()).unwrap();
    assert_eq!((&wrong["line"], &wrong["problem"]["field"]), (&json!(2), &json!("user")));
    assert_eq!(wrong["problem"]["detail"], "user: a user has at most 1000 devices, this one would have 1001");
    let end = told.last().unwrap();
    assert_eq!((&end["created"], &end["rejected"], &end["done"]), (&json!(2), &json!(1), &json!(true)));
}

#[tokio::test]
async fn an_export_has_everything_of_a_user_and_nothing_of_others() {
    let server = Server::start();
    // More than one page, and exactly two.
    import(&server, 100).await;
    register(&server, "bob-1", "bob").await;
    let list = json!({"subscriptions": [{"subject": "team:1", "topics": ["end", "goal"]}]});
    server.send("PUT", "/v1/devices/ada-007/subscriptions", list.to_string()).await;
    server.send("PUT", "/v1/devices/ada-007/mutes/team:2", "").await;
    let answer = server.send("GET", "/v1/users/ada/export", "").await;
    assert_eq!((answer.status, &answer.headers["cache-control"]), (StatusCode::OK, &"no-store".parse().unwrap()));
    assert_eq!(answer.headers["content-type"], "application/json");
    let export = answer.json();
    assert_eq!(export["user"], "ada");
    let expected: Vec<String> = (0..100).map(|index| format!("ada-{index:03}")).collect();
    assert_eq!(ids(&export), expected);
    let (plain, seventh) = (&export["devices"][6], &export["devices"][7]);
    assert_eq!((&plain["subscriptions"], &plain["mutes"]), (&json!([]), &json!([])));
    assert_eq!((&seventh["subscriptions"], &seventh["mutes"]), (&list["subscriptions"], &json!([{"scope": "team:2"}])));
    let shown = server.send("GET", "/v1/devices/ada-007", "").await.json();
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(&seventh[field], value, "{field}");
    }
    assert!(!answer.body.contains("token-of"), "a token is a secret");

    // It is JSON, whatever is asked for.
    let packed = [("x-api-key", "root"), ("accept", "application/msgpack")];
    let packed = server.send_with("GET", "/v1/users/bob/export", &packed, "").await;
    assert_eq!(ids(&packed.json()), ["bob-1"]);
    assert_eq!(server.send("GET", "/v1/users/nobody/export", "").await.json()["devices"], json!([]));
}

/// Whether it is read no more or its reader has gone.
#[tokio::test(start_paused = true)]
async fn an_export_that_nobody_reads_gives_its_place_back() {
    let server = Server::with(|_, config| config.request_count_max = 4); // One that waits.
    import(&server, 200).await;
    let request = || axum::http::Request::get("/v1/users/ada/export").header("x-api-key", "root");
    for is_dropped in [true, false] {
        let unread = tower::ServiceExt::oneshot(server.router.clone(), request().body(Body::empty()).unwrap());
        let mut unread = Some(unread.await.unwrap());
        let refused = server.send("GET", "/v1/users/ada/export", "").await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
        if is_dropped {
            unread = None;
        }
        let free = async {
            while server.send("GET", "/v1/users/nobody/export", "").await.status != StatusCode::OK {
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(Duration::from_secs(600), free).await.expect("its place is free");
        if let Some(unread) = unread {
            assert!(unread.into_body().collect().await.is_err(), "what there is of it is not all");
        }
    }
}

#[tokio::test]
async fn a_user_who_is_forgotten_has_nothing_left_and_no_connections() {
    let server = Server::start();
    import(&server, 51).await;
    register(&server, "bob-1", "bob").await;
    let number = |id: &str| server.store.device_number(&DeviceId::new(id).unwrap()).unwrap();
    let numbers: Vec<_> = (0..51).map(|index| (number(&format!("ada-{index:03}")).unwrap(), true)).collect();
    let erased = server.send("DELETE", "/v1/users/ada", "").await;
    assert_eq!((erased.status, erased.json()), (StatusCode::OK, json!({"devices": 51})));
    let mut revoked = server.revoked.take();
    revoked.sort();
    let mut expected = numbers;
    expected.sort();
    assert_eq!(revoked, expected);
    assert_eq!(server.send("GET", "/v1/users/ada/devices", "").await.body, r#"{"devices":[]}"#);
    assert_eq!(server.send("GET", "/v1/devices/ada-000", "").await.status, StatusCode::NOT_FOUND);
    let again = server.send("DELETE", "/v1/users/ada", "").await;
    assert_eq!((again.json(), server.revoked.take()), (json!({"devices": 0}), Vec::new()));
    assert_eq!(server.send("GET", "/v1/devices/bob-1", "").await.status, StatusCode::OK);
}

/// What is asked of the store is done although nobody waits for the answer; so is what follows from it.
#[tokio::test]
async fn a_caller_that_hangs_up_leaves_no_connection_of_a_forgotten_user() {
    let server = Server::start();
    register(&server, "ada-1", "ada").await;
    let number = server.store.device_number(&DeviceId::new("ada-1").unwrap()).unwrap().unwrap();
    // Once to ask which devices there are, and once to have them forgotten.
    poll_and_drop(2, server.send("DELETE", "/v1/users/ada", "")).await;
    assert_eq!(server.revoked.take(), [(number, true)]);
}
