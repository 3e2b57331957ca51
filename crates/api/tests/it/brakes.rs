//! `/v1/brakes`.

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_types::BrakeScope;

use crate::support::{Cases, Server};

impl Server {
    async fn braked(&self) -> Vec<String> {
        let list = self.send("GET", "/v1/brakes", "").await;
        assert_eq!(list.status, StatusCode::OK, "{list:?}");
        let list = list.json();
        list["brakes"].as_array().unwrap().iter().map(|brake| brake["scope"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn what_is_paused_is_held_until_it_is_resumed() {
    let server = Server::start();
    let scopes = ["everything", "app:com.example/a%b", "topic:goal", "provider:web_push"];
    let paths = ["everything", "app:com.example%2Fa%25b", "topic%3Agoal", "provider:web_push"];
    assert_eq!(server.braked().await, [""; 0]);
    for (scope, path) in scopes.iter().zip(paths) {
        let path = format!("/v1/brakes/{path}");
        let made = server.send("PUT", &path, "").await;
        assert_eq!((made.status, made.json()["scope"].as_str()), (StatusCode::CREATED, Some(*scope)), "{made:?}");
        let again = server.send("PUT", &path, "").await;
        assert_eq!((again.status, again.json()), (StatusCode::OK, made.json()), "since then, not since now");
        let shown = server.store.brakes().borrow().is_paused(&scope.parse::<BrakeScope>().unwrap());
        assert!(shown, "whoever follows the store sees it: {scope}");
    }
    assert_eq!(server.braked().await, ["everything", "app:com.example/a%b", "topic:goal", "provider:web_push"]);
    for path in paths {
        let path = format!("/v1/brakes/{path}");
        let gone = server.send("DELETE", &path, "").await;
        assert_eq!((gone.status, gone.body.as_str()), (StatusCode::NO_CONTENT, ""));
        assert_eq!(server.send("DELETE", &path, "").await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(server.braked().await, [""; 0]);
    let none = server.send("DELETE", "/v1/brakes/topic:gaol", "").await;
    assert_eq!(none.detail(), "topic:gaol is not paused");
}

#[tokio::test]
async fn what_is_no_scope_is_refused() {
    let server = Server::start();
    let cases = Cases::default();
    let rule = "scope: scope of a brake must be everything, app:<id>, topic:<name> or provider:<name>, got";
    for (path, expected) in [
        ("all", format!("{rule} \"all\"")),
        ("user:7", format!("{rule} \"user:7\"")),
        ("provider:pigeon", "scope: provider must be apns, fcm or web_push, got \"pigeon\"".to_owned()),
        ("topic:Goal", "scope: topic must be 1 to 64 characters of a-z, 0-9, _ and -, got \"Goal\"".to_owned()),
        ("%ff", "id: the path must be UTF-8 text".to_owned()),
    ] {
        for method in ["PUT", "DELETE"] {
            let answer = server.send(method, &format!("/v1/brakes/{path}"), "").await;
            cases.check(path, (answer.status.as_u16(), answer.detail()), (400, expected.clone()));
        }
    }
    assert_eq!(server.braked().await, [""; 0]);
}

/// A brake is also against those who publish: they cannot let go what an operator holds.
#[tokio::test]
async fn only_those_who_operate_hold_and_let_go() {
    let server = Server::start();
    server.send("PUT", "/v1/brakes/everything", "").await;
    let cases = Cases::default();
    for (key, method, status) in [
        ("publish", "GET", 403),
        ("publish", "PUT", 403),
        ("publish", "DELETE", 403),
        ("read", "GET", 200),
        ("read", "DELETE", 403),
        ("devices", "DELETE", 403),
        ("metrics", "DELETE", 403),
        ("operate", "PUT", 200),
        ("operate", "DELETE", 204),
    ] {
        let path = if method == "GET" { "/v1/brakes" } else { "/v1/brakes/everything" };
        let answer = server.send_with(method, path, &[("x-api-key", key)], "").await;
        cases.check(&format!("{key} {method}"), answer.status.as_u16(), status);
    }
}

#[tokio::test]
async fn brakes_speak_messagepack_too() {
    let server = Server::start();
    let packed = [("x-api-key", "root"), ("accept", "application/msgpack")];
    let made = server.send_with("PUT", "/v1/brakes/everything", &packed, "").await;
    let made: Value = rmp_serde::from_slice(&made.bytes).unwrap();
    let list = server.send_with("GET", "/v1/brakes", &packed, "").await;
    let list: Value = rmp_serde::from_slice(&list.bytes).unwrap();
    assert_eq!(list, json!({"brakes": [made]}));
}

#[tokio::test]
async fn a_store_that_cannot_write_holds_nothing_and_says_so() {
    let server = Server::start();
    server.store.close().await;
    for method in ["PUT", "DELETE"] {
        let answer = server.send(method, "/v1/brakes/everything", "").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    }
}
