//! Keys and scopes, methods and paths, health and metrics, bounds of all requests.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings_api::Readiness;
use tower::ServiceExt;

use crate::support::{Cases, Server, keys};

const EVENT: &str = r#"{"id":"g-1","topic":"goal","subjects":["team:42"],"params":{"team":"A"}}"#;

#[tokio::test]
async fn a_key_is_found_in_every_place_that_libraries_put_it() {
    let server = Server::start();
    let cases = Cases::default();
    for (header, value, path, status) in [
        ("x-api-key", "root", "/api/info", 200),
        ("authorization", "apikey root", "/api/info", 200),
        ("authorization", "APIKey root", "/api/info", 200),
        ("authorization", "Bearer root", "/api/info", 200),
        ("accept", "*/*", "/api/info?api_key=root", 200),
        ("x-api-key", "wrong", "/api/info?api_key=root", 200),
        ("authorization", "apikey root", "/v1/events", 202),
        ("accept", "*/*", "/v1/events?api_key=root", 401),
        ("accept", "*/*", "/api/info", 401),
        ("x-api-key", "", "/api/info", 401),
        ("x-api-key", "roo", "/api/info", 401),
        ("x-api-key", "root ", "/api/info", 401),
        ("authorization", "root", "/api/info", 401),
        ("authorization", "Basic root", "/api/info", 401),
        ("accept", "*/*", "/api/info?api_key=wrong", 401),
        ("accept", "*/*", "/api/info?api_key=%ff", 401),
    ] {
        let body = if path.starts_with("/v1") { EVENT } else { "{}" };
        let answer = server.send_with("POST", path, &[(header, value)], body).await;
        cases.check(&format!("{header}: {value}, {path}"), answer.status.as_u16(), status);
    }
}

#[tokio::test]
async fn without_a_key_ours_answers_a_problem_and_centrifugos_an_empty_body() {
    let server = Server::start();
    let own = server.send_with("POST", "/v1/events", &[], EVENT).await;
    let expected = json!({
        "type": "urn:tidings:problem:unauthorized",
        "title": "A valid API key or proof is needed",
        "status": 401,
        "detail": "send a valid key in X-API-Key or in Authorization: apikey KEY",
    });
    assert_eq!((own.status, own.json()), (StatusCode::UNAUTHORIZED, expected));
    assert_eq!(own.headers["www-authenticate"], "apikey");
    let centrifugos = server.send_with("POST", "/api/info", &[], "{}").await;
    assert_eq!((centrifugos.status, centrifugos.body.as_str()), (StatusCode::UNAUTHORIZED, ""));
}

#[tokio::test]
async fn a_key_opens_what_its_scopes_say_and_nothing_else() {
    let server = Server::start();
    let cases = Cases::default();
    let device = r#"{"platform":"ios","token":"aabb","app":"a","locale":"en"}"#;
    let table = [
        ("POST", "/v1/events", EVENT, "publish"),
        ("POST", "/api/publish", r#"{"channel":"news","data":1}"#, "publish"),
        ("POST", "/api/broadcast", r#"{"channels":["news"],"data":1}"#, "publish"),
        ("POST", "/api/history", r#"{"channel":"live:1"}"#, "read"),
        ("POST", "/api/presence", r#"{"channel":"live:1"}"#, "read"),
        ("POST", "/api/presence_stats", r#"{"channel":"live:1"}"#, "read"),
        ("POST", "/api/info", "{}", "read"),
        ("GET", "/v1/events/g-1", "", "publish"),
        ("GET", "/v1/events/g-1/receipts", "", "publish"),
        ("GET", "/v1/jobs", "", "publish"),
        ("POST", "/v1/audience/preview", r#"{"topic":"goal","subjects":["team:42"]}"#, "publish"),
        ("GET", "/v1/devices", "", "devices"),
        ("PUT", "/v1/devices/d", device, "devices"),
        ("GET", "/v1/devices/d", "", "devices"),
        ("GET", "/v1/devices/d/subscriptions", "", "devices"),
        ("PUT", "/v1/devices/d/subscriptions", r#"{"subscriptions":[]}"#, "devices"),
        ("POST", "/v1/devices/d/subscriptions", r#"{"subscriptions":[]}"#, "devices"),
        ("DELETE", "/v1/devices/d/subscriptions?subject=team:1", "", "devices"),
        ("PUT", "/v1/devices/d/mutes/everything", "", "devices"),
        ("GET", "/v1/devices/d/mutes", "", "devices"),
        ("DELETE", "/v1/devices/d/mutes/everything", "", "devices"),
        ("POST", "/v1/tokens/lookup", r#"{"platform":"ios","token":"aabb"}"#, "devices"),
        ("GET", "/v1/users/u/devices", "", "devices"),
        ("GET", "/v1/users/u/export", "", "devices"),
        ("DELETE", "/v1/users/u", "", "devices"),
        ("POST", "/v1/devices/d/credential", "", "devices"),
        ("POST", "/v1/devices/d/logout", "", "devices"),
        ("DELETE", "/v1/devices/d", "", "devices"),
        ("GET", "/metrics", "", "metrics"),
    ];
    for (method, path, body, scope) in table {
        for key in ["publish", "read", "devices", "metrics"] {
            let answer = server.send_with(method, path, &[("x-api-key", key)], body).await;
            let name = format!("{method} {path} with {key}");
            if key == scope {
                cases.check(&name, answer.status.is_success(), true);
            } else {
                cases.check(&name, answer.status, StatusCode::FORBIDDEN);
                cases.check(&name, answer.detail(), format!("the key {key} lacks the scope {scope}"));
            }
        }
    }
}

#[test]
fn keys_are_not_in_debug_output() {
    let text = format!("{:?}", keys());
    assert!(text.contains("devices") && !text.contains("sha256") && !text.contains("72,"), "{text}");
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_problems_too() {
    let server = Server::start();
    let cases = Cases::default();
    for (method, path, status, detail, allow) in [
        ("GET", "/v1/nothing", 404, "there is no route /v1/nothing", None),
        ("POST", "/v1/events/", 404, "there is no route /v1/events/", None),
        ("GET", "/v1", 404, "there is no route /v1", None),
        ("GET", "/v1/", 404, "there is no route /v1/", None),
        ("GET", "/v1/events/a/b", 404, "there is no route /v1/events/a/b", None),
        (
            "PATCH",
            "/v1/events/a",
            405,
            "the header Allow of this answer lists the methods of this path",
            Some("GET,HEAD,DELETE"),
        ),
        ("GET", "/api/", 405, "the header Allow of this answer lists the methods of this path", Some("POST")),
        ("POST", "/api/nothing", 404, "there is no route /api/nothing", None),
        (
            "PUT",
            "/v1/events",
            405,
            "the header Allow of this answer lists the methods of this path",
            Some("POST,GET,HEAD"),
        ),
        ("GET", "/api/publish", 405, "the header Allow of this answer lists the methods of this path", Some("POST")),
        (
            "PATCH",
            "/v1/devices/a",
            405,
            "the header Allow of this answer lists the methods of this path",
            Some("GET,HEAD,PUT,DELETE"),
        ),
    ] {
        let answer = server.send(method, path, "").await;
        cases.check(path, (answer.status.as_u16(), answer.detail().as_str()), (status, detail));
        cases.check(path, answer.headers.get("allow").map(|allow| allow.to_str().unwrap()), allow);
    }
}

#[tokio::test]
async fn a_store_that_refuses_writes_makes_the_server_unready_and_a_provider_that_is_down_does_not() {
    let server = Server::start();
    let ask = async |path| {
        let answer = server.send_with("GET", path, &[], "").await;
        (answer.status, answer.json())
    };
    let expected = json!({
        "status": "degraded",
        "store": {"status": "ok"},
        "listeners": [{"name": "public", "address": "127.0.0.1:8000"}],
        "providers": [
            {"provider": "apns", "name": "main", "status": "breaker_open", "since": "2023-11-14T22:13:20.000Z"},
        ],
    });
    assert_eq!(ask("/ready").await, (StatusCode::OK, expected.clone()));
    server.store.close().await;
    let unready = Value::Object(
        expected
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .map(|(name, part)| match &*name {
                "status" => (name, json!("unavailable")),
                "store" => (name, json!({"status": "refuses_writes"})),
                _ => (name, part),
            })
            .collect(),
    );
    assert_eq!(ask("/ready").await, (StatusCode::SERVICE_UNAVAILABLE, unready));
    assert_eq!(
        ask("/health").await,
        (StatusCode::OK, json!({"status": "ok", "faults": ["texts"]})),
        "the process works"
    );
}

#[tokio::test]
async fn where_not_everything_is_told_only_the_status_is() {
    let server = Server::start();
    for (is_stopping, code, status) in
        [(false, StatusCode::OK, "ready"), (true, StatusCode::SERVICE_UNAVAILABLE, "stopping")]
    {
        let readiness = move || Readiness { is_stopping, listeners: Vec::new(), providers: Vec::new() };
        let router = tidings_api::ready_router(server.store.clone(), false, readiness);
        let response = router.oneshot(Request::get("/ready").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), code);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({"status": status}));
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status_and_accepting_is_timed() {
    let server = Server::start();
    server.post("/v1/events", EVENT).await;
    server.post("/v1/events", EVENT).await;
    server.post("/v1/events", "{").await;
    server.send("GET", "/v1/devices/nobody", "").await;
    server.post("/api/publish", r#"{"channel":"nowhere:1","data":1}"#).await;
    server.post("/api/broadcast", r#"{"channels":["nowhere:1","nowhere:2"],"data":1}"#).await;
    let answer = server.send("GET", "/metrics", "").await;
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "tidings_api_requests_total{route=\"POST /v1/events\",status=\"202\"} 2",
        "tidings_api_requests_total{route=\"POST /v1/events\",status=\"400\"} 1",
        "tidings_api_requests_total{route=\"GET /v1/devices/{id}\",status=\"404\"} 1",
        "tidings_api_requests_total{route=\"POST /api/publish\",status=\"200\"} 1",
        "tidings_api_accept_seconds_count 2",
        "tidings_api_centrifugo_errors_total{code=\"102\"} 3",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line} is not in\n{}", answer.body);
    }
}

/// A request whose body never comes.
fn endless() -> Request<Body> {
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    Request::post("/v1/events").header("x-api-key", "root").body(body).unwrap()
}

#[tokio::test]
async fn a_request_over_the_bound_is_refused_and_those_without_a_key_take_no_place() {
    let server = Server::with(|_, api| api.request_count_max = 1);
    let mut waker = Context::from_waker(Waker::noop());
    {
        let mut slow = pin!(server.answer(endless()));
        assert!(matches!(slow.as_mut().poll(&mut waker), Poll::Pending));
        let answer = server.post("/v1/events", EVENT).await;
        assert_eq!(
            (answer.status, answer.headers["retry-after"].to_str().unwrap()),
            (StatusCode::SERVICE_UNAVAILABLE, "1")
        );
        assert_eq!(
            answer.detail(),
            "at most 1 requests may be in work (http.request_count_max), at most 1 of one API key"
        );
        assert_eq!(server.send("GET", "/metrics", "").await.status, StatusCode::OK, "metrics have no such bound");
    }
    let mut request = endless();
    request.headers_mut().remove("x-api-key");
    assert_eq!(server.answer(request).await.status, StatusCode::UNAUTHORIZED, "answered without reading the body");
    assert_eq!(server.post("/v1/events", EVENT).await.status, StatusCode::ACCEPTED, "the place is free again");
}

#[tokio::test]
async fn one_key_takes_no_place_that_is_kept_for_another() {
    let server = Server::with(|_, api| api.request_count_max = 28); // 14 for all, two for each of seven keys.
    let mut waker = Context::from_waker(Waker::noop());
    let mut slow: Vec<_> = (0..16).map(|_| Box::pin(server.answer(endless()))).collect();
    assert!(slow.iter_mut().all(|slow| slow.as_mut().poll(&mut waker).is_pending()));
    let refused = server.post("/v1/events", EVENT).await;
    assert_eq!(
        (refused.status, refused.detail().as_str()),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "at most 28 requests may be in work (http.request_count_max), at most 16 of one API key"
        )
    );
    let other = [("x-api-key", "publish"), ("content-type", "application/json")];
    assert_eq!(server.send_with("POST", "/v1/events", &other, EVENT).await.status, StatusCode::ACCEPTED);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let answer = Server::start().answer(endless()).await;
    let expected = "the body must arrive within 30 seconds".to_owned();
    assert_eq!((answer.status, answer.detail()), (StatusCode::REQUEST_TIMEOUT, expected));
}

#[tokio::test]
async fn it_works_over_a_real_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let router = server.router.clone();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: x\r\nX-API-Key: root\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{EVENT}",
        EVENT.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 Accepted\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\n{\"id\":\"g-1\",\"position\":"), "{answer}");
}

#[tokio::test]
async fn providers_are_told_with_their_own_pools() {
    let server = Server::start();
    let told = server.send("GET", "/v1/providers", "").await.json();
    let providers = told["providers"].as_array().unwrap();
    assert_eq!((providers.len(), &providers[0]["status"]), (1, &json!("breaker_open")));
    let pools = providers[0]["pools"].as_array().unwrap();
    let names: Vec<_> = pools.iter().map(|pool| &pool["name"]).collect();
    assert_eq!(names, ["main", "main quarantine"], "the pool of another section that begins alike is not among them");
    let main = &pools[0];
    assert_eq!(
        (&main["connections"], &main["waiting"], &main["round_trip_p50_ms"]),
        (&json!(2), &json!(7), &json!(20))
    );
    assert_eq!(
        (&main["credential_ends_in_seconds"], pools[1].get("credential_ends_in_seconds")),
        (&json!(86_400), None)
    );
    assert_eq!(main["outcomes"], json!({"accepted": 3, "rejected": 1}));
    assert_eq!(main["rejected"], json!({"BadTopic": 1}));
    assert_eq!((&pools[1]["waiting"], pools[1].get("round_trip_p50_ms")), (&json!(9), None));
}

#[tokio::test]
async fn the_system_is_told_at_one_look() {
    let server = Server::start();
    let told = server.send("GET", "/v1/system", "").await.json();
    assert_eq!((&told["version"], &told["clients"]["connections"]), (&json!("1.2.3"), &json!(5)));
    assert_eq!((&told["store"]["status"], &told["disk"]["free_bytes"]), (&json!("ok"), &json!(1 << 30)));
    assert_eq!(
        told["memory"][0],
        json!({"name": "jobs", "bytes": 1 << 20, "is_peak": true, "settings": "sender.job_count_max"})
    );
    server.store.close().await;
    assert_eq!(server.send("GET", "/v1/system", "").await.json()["store"]["status"], "refuses_writes");
}

/// A part of this process calls as the holder of a key, without the key. It may what the key may, and nothing more.
#[tokio::test]
async fn a_caller_inside_the_process_has_the_scopes_of_its_key() {
    let server = Server::start();
    let reader = keys().named("read").unwrap();
    assert_eq!(keys().named("nobody").map(|caller| caller.name().to_owned()), None);
    assert_eq!(keys().holder("root").map(|caller| caller.name().to_owned()), Some("root".to_owned()));
    assert!(keys().holder("read key").is_none() && keys().holder("").is_none(), "a name is no key");
    for (path, status) in [("/v1/brakes", 200), ("/v1/jobs", 403), ("/v1/devices", 403)] {
        let request = Request::get(path).extension(reader.clone()).body(Body::empty()).unwrap();
        assert_eq!(server.answer(request).await.status.as_u16(), status, "{path}");
    }
}
