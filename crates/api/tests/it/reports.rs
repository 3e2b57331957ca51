//! What became of events: `GET /v1/events/{id}`, its receipts, `GET /v1/jobs`. The hub is real; jobs and answers of
//! connections are fed by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings_api::{JobPart, JobView, Outcomes};
use tidings_hub::{Arrival, EventReceipts};
use tidings_protocol::ClientId;
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, BrakeScope, DeviceNumber, EventId, EventPriority, JobState, JournalPosition, Locale, Provider,
    ReceiptRequest, TimeTo, Timestamp, TopicName,
};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::support::{Answer, Cases, Server};

impl Server {
    /// Hands in a goal with `change` laid over it.
    async fn tell(&self, id: &str, change: Value) -> JournalPosition {
        let mut event = json!({"id": id, "topic": "goal", "subjects": ["team:42"], "params": {"team": "A"}});
        for (name, value) in change.as_object().unwrap() {
            event[name] = value.clone();
        }
        let answer = self.post("/v1/events", event.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        JournalPosition(answer.json()["position"].as_u64().unwrap())
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    fn receipts(&self, event: JournalPosition) -> Arc<EventReceipts> {
        self.hub.receipts().get(event).expect("receipts are collected")
    }

    /// The receipts of `g-1`, and how long the answer took.
    async fn wait(&self, wait: &str) -> (Value, Duration) {
        let started = Instant::now();
        let answer = self.get(&format!("/v1/events/g-1/receipts?wait={wait}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        (answer.json(), started.elapsed())
    }
}

pub(crate) fn job(position: JournalPosition, state: JobState) -> JobView {
    JobView {
        position,
        event: EventId::new(&format!("g-{}", position.0)).unwrap(),
        topic: Some(TopicName::new("goal").unwrap()),
        priority: EventPriority::High,
        accepted_at: Timestamp(1_700_000_000_123),
        done_at: (state == JobState::Finished).then_some(Timestamp(1_700_000_004_567)),
        state,
        paused_by: None,
        audience: 9,
        held: 1,
        outcomes: Outcomes {
            accepted: 3,
            received: 2,
            rejected: BTreeMap::from([("Unregistered", 1)]),
            suppressed: BTreeMap::from([("filtered", 1), ("no_token", 1)]),
            ..Outcomes::default()
        },
        retried: 4,
        by: vec![part("scores", None), part("news", Some("pl"))],
        time_to: None,
        time_to_by: Vec::new(),
        time_to_live: None,
    }
}

/// A receipt whose connection and time do not matter.
fn arrival() -> Arrival {
    Arrival { client: ClientId::from_random(1), at: Timestamp(1) }
}

fn part(app: &str, locale: Option<&str>) -> JobPart {
    JobPart {
        provider: Provider::WebPush,
        app: AppId::new(app).unwrap(),
        locale: locale.map(|locale| Locale::new(locale).unwrap()),
        outcomes: Outcomes { accepted: 3, superseded: 1, ..Outcomes::default() },
    }
}

fn parts() -> Value {
    let outcomes = json!({
        "accepted": 3, "received": 0, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 1, "rejected": {},
        "suppressed": {},
    });
    json!([
        {"provider": "web_push", "app": "scores", "outcomes": outcomes},
        {"provider": "web_push", "app": "news", "locale": "pl", "outcomes": outcomes},
    ])
}

fn outcomes() -> Value {
    json!({
        "accepted": 3, "received": 2, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 0,
        "rejected": {"Unregistered": 1},
        "suppressed": {"filtered": 1, "no_token": 1},
    })
}

#[tokio::test]
async fn an_event_is_followed_from_waiting_to_forgotten() {
    let server = Server::start();
    let position = server.tell("g-1", json!({"push": "always"})).await;
    let answer = server.get("/v1/events/g-1").await;
    let mut found = answer.json();
    let at = found.as_object_mut().unwrap().remove("accepted_at").unwrap();
    let millis = server.store.event(position).unwrap().unwrap().accepted_at.0 % 1000;
    assert!(at.as_str().unwrap().ends_with(&format!(".{millis:03}Z")), "{at}");
    let place = json!([{"channel": "team:42", "offset": 1, "epoch": server.store.channel_start().epoch}]);
    let waiting = json!({
        "id": "g-1", "position": position, "topic": "goal", "priority": "normal", "state": "waiting", "channels": place,
    });
    assert_eq!((answer.status, found), (StatusCode::OK, waiting));

    server.jobs.set(job(position, JobState::Running));
    let running = server.get("/v1/events/g-1").await.json();
    let found = ["state", "audience", "held", "outcomes", "by"].map(|name| running[name].clone());
    assert_eq!(found, [json!("running"), json!(9), json!(1), outcomes(), parts()]);
    assert!(running.get("time_to").is_none() && running["accepted_at"] == at);

    let millis = Duration::from_millis;
    let time_to =
        TimeTo { first: millis(3), p50: millis(40), p90: millis(50), p99: millis(60), p100: Duration::from_secs(2) };
    server.jobs.set(JobView { time_to: Some(time_to), ..job(position, JobState::Finished) });
    let finished = server.get("/v1/events/g-1").await.json();
    let expected = json!({"first_ms": 3, "p50_ms": 40, "p90_ms": 50, "p99_ms": 60, "p100_ms": 2000});
    assert_eq!((&finished["state"], &finished["time_to"]), (&json!("finished"), &expected));
    assert_eq!(finished["done_at"], "2023-11-14T22:13:24.567Z");

    let other = server.tell("g-2", json!({})).await;
    server.store.put_jobs(Vec::new(), Some(JournalPosition(other.0 + 1))).await.unwrap();
    let forgotten = server.get("/v1/events/g-2").await.json();
    assert_eq!(forgotten["state"], "forgotten");
    assert!(forgotten.get("audience").is_none() && forgotten.get("outcomes").is_none(), "{forgotten}");
}

#[tokio::test]
async fn an_id_in_a_path_is_percent_decoded() {
    let server = Server::start();
    for (id, path) in [
        ("a/b", "a%2Fb"),
        ("a/b?c#d%2F\"<>\\", "a%2Fb%3Fc%23d%252F%22%3C%3E%5C"),
        ("%2F", "%252F"),
        ("a+b&c=d", "a+b&c=d"),
        ("..", "%2E%2E"),
        ("receipts", "receipts"),
    ] {
        server.tell(id, json!({})).await;
        let answer = server.get(&format!("/v1/events/{path}")).await;
        assert_eq!((answer.status, &answer.json()["id"]), (StatusCode::OK, &json!(id)), "{path}");
        let receipts = server.get(&format!("/v1/events/{path}/receipts")).await;
        assert_eq!(receipts.json(), json!({"written": 0, "received": 0}), "{path}");
    }
    let cases = Cases::default();
    for (path, status, detail) in [
        ("a%20b", 400, "id: event id must be 1 to 128 visible ASCII characters, got \"a b\""),
        ("%ff", 400, "id: the path must be UTF-8 text"),
        ("a", 404, "there is no event with the id a, or it was forgotten after store.id_window"),
    ] {
        for rest in ["", "/receipts"] {
            let answer = server.get(&format!("/v1/events/{path}{rest}")).await;
            cases.check(path, (answer.status.as_u16(), answer.detail()), (status, detail.to_owned()));
        }
    }
}

#[tokio::test]
async fn what_is_known_of_receipts_is_told_and_why_nothing_is() {
    let server = Server::start();
    let position = server.tell("g-1", json!({"receipt": true, "receipt_wait": "500ms"})).await;
    let receipts = server.receipts(position);
    receipts.on_written();
    receipts.on_written();
    receipts.on_received("ann", Some(DeviceNumber(7)), false, arrival());
    let counted = json!({"written": 2, "received": 1});
    assert_eq!(server.get("/v1/events/g-1").await.json()["receipts"], counted);
    let told = json!({"written": 2, "received": 1, "users": ["ann"], "users_complete": true});
    assert_eq!(server.get("/v1/events/g-1/receipts").await.json(), told);

    // Devices were asked, not users.
    let position = server.tell("g-2", json!({})).await;
    server.receipts(position).on_written();
    assert_eq!(server.get("/v1/events/g-2/receipts").await.json(), json!({"written": 1, "received": 0}));

    server.tell("nowhere", json!({"subjects": ["live:1"], "receipt": true})).await;
    let nobody = json!({"written": 0, "received": 0, "users": [], "users_complete": true});
    assert_eq!(server.get("/v1/events/nowhere/receipts?wait=30s").await.json(), nobody, "there is nobody to wait for");
    assert_eq!(server.get("/v1/events/nowhere").await.json()["receipts"], json!({"written": 0, "received": 0}));

    server.tell("plain", json!({"push": "always"})).await;
    assert!(server.get("/v1/events/plain").await.json().get("receipts").is_none());
    server.hub.receipts().sweep(unix_now().saturating_add(Duration::from_secs(120)));
    assert!(server.get("/v1/events/g-1").await.json().get("receipts").is_none());
    let cases = Cases::default();
    for (path, status, expected) in [
        (
            "plain/receipts",
            404,
            "event plain has no receipts: they need \"receipt\": true or \"push\": \"unless_received\"",
        ),
        (
            "g-1/receipts",
            404,
            "the receipts of event g-1 are forgotten: they are kept for 60 seconds after its receipt_wait, unless there are too many, and not over a restart",
        ),
        ("g-1/receipts?wait=31s", 400, "wait: must be 0 to 30 seconds, such as 2s, 500ms or 0.5, got \"31s\""),
        ("g-1/receipts?timeout=2s", 400, "unknown query parameter `timeout`, known is `wait`"),
        ("g-1/receipts?wait=1s&wait=2s", 400, "wait: is there twice"),
    ] {
        let answer = server.get(&format!("/v1/events/{path}")).await;
        cases.check(path, (answer.status.as_u16(), answer.detail()), (status, expected.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_soon_after_all_have_answered() {
    let server = Server::start();
    server.join("team:42", "ann", 1, None);
    server.join("team:42", "bob", 2, None);
    let receipts = server.receipts(server.tell("g-1", json!({"receipt": true})).await);
    let edge = async {
        sleep(Duration::from_millis(200)).await;
        receipts.on_written();
        receipts.on_written();
        receipts.on_received("bob", None, false, arrival());
        sleep(Duration::from_millis(300)).await;
        receipts.on_received("ann", None, false, arrival());
    };
    let ((answer, took), ()) = tokio::join!(server.wait("10s"), edge);
    let expected = json!({"written": 2, "received": 2, "users": ["ann", "bob"], "users_complete": true});
    assert_eq!(answer, expected);
    assert!((500..800).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_is_over_when_its_time_is() {
    let server = Server::start();
    server.join("team:42", "ann", 1, None);
    let receipts = server.receipts(server.tell("g-1", json!({"receipt": true})).await);
    let (answer, took) = server.wait("2s").await;
    assert_eq!((&answer["written"], took.as_secs()), (&json!(0), 2), "a reader that was not written to yet");
    receipts.on_written();
    receipts.on_written();
    receipts.on_received("ann", None, false, arrival());
    let (answer, took) = server.wait("500ms").await;
    assert_eq!((&answer["received"], took.as_millis() / 10), (&json!(1), 50), "one does not answer");
    let (_, took) = server.wait("0").await;
    assert_eq!(took, Duration::ZERO, "nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_written_to_late_is_waited_for_as_well() {
    let server = Server::start();
    server.join("team:42", "ann", 1, None);
    let receipts = server.receipts(server.tell("g-1", json!({"receipt": true})).await);
    receipts.on_written();
    receipts.on_received("ann", None, false, arrival());
    let edge = async {
        sleep(Duration::from_millis(60)).await;
        receipts.on_written(); // Nobody is told of that.
        sleep(Duration::from_millis(400)).await;
        receipts.on_received("bob", None, false, arrival());
    };
    let ((answer, _), ()) = tokio::join!(server.wait("10s"), edge);
    assert_eq!((&answer["received"], &answer["users"]), (&json!(2), &json!(["ann", "bob"])));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_receipts_that_are_forgotten_is_told_so() {
    let server = Server::start();
    server.join("team:42", "ann", 1, None);
    let receipts = server.receipts(server.tell("g-1", json!({"receipt": true})).await);
    receipts.on_written();
    let (event, terms) = (receipts.event(), *receipts.terms());
    let others = async {
        sleep(Duration::from_millis(200)).await;
        for number in 1..=100 {
            server.hub.receipts().open(&ReceiptRequest { event: JournalPosition(event.0 + number), terms });
        }
    };
    let began = Instant::now();
    let (answer, ()) = tokio::join!(server.get("/v1/events/g-1/receipts?wait=10s"), others);
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.detail().starts_with("the receipts of event g-1 are forgotten"), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn with_nobody_there_nobody_is_waited_for() {
    let server = Server::start();
    server.tell("g-1", json!({"receipt": true})).await;
    let (answer, took) = server.wait("30s").await;
    assert_eq!(answer["written"], 0);
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_leave_room_for_producers() {
    let server = Server::with(|_, api| api.request_count_max = 8);
    server.join("team:42", "ann", 1, None);
    server.tell("g-1", json!({"receipt": true})).await;
    let more = async {
        sleep(Duration::from_secs(1)).await;
        let one_more = server.get("/v1/events/g-1/receipts?wait=2s").await;
        assert_eq!(one_more.status, StatusCode::SERVICE_UNAVAILABLE, "{one_more:?}");
        assert_eq!(
            one_more.detail(),
            "at most 2 requests may wait, a quarter of http.request_count_max, at most 2 of one API key"
        );
        assert_eq!(one_more.headers["retry-after"], "1");
        let preview = server.post("/v1/audience/preview", r#"{"topic":"goal","subjects":["team:1"]}"#).await;
        assert_eq!(preview.status, StatusCode::SERVICE_UNAVAILABLE, "{preview:?}");
        assert_eq!(server.get("/v1/events/g-1/receipts").await.status, StatusCode::OK, "it does not wait");
        server.tell("g-2", json!({})).await;
    };
    tokio::join!(server.wait("5s"), server.wait("5s"), more);
    assert_eq!(server.wait("1s").await.1.as_secs(), 1, "the places are free again");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_page_by_page() {
    let server = Server::start();
    assert_eq!(server.get("/v1/jobs").await.json(), json!({"jobs": []}));
    for position in 1..=5 {
        server.jobs.set(job(JournalPosition(position), JobState::Finished));
    }
    let list = server.get("/v1/jobs?limit=1").await.json();
    let entry = json!({
        "id": "g-5", "position": 5, "topic": "goal", "priority": "high", "accepted_at": "2023-11-14T22:13:20.123Z",
        "state": "finished", "done_at": "2023-11-14T22:13:24.567Z", "audience": 9, "held": 1, "retried": 4,
        "outcomes": outcomes(),
    });
    assert_eq!(list, json!({"jobs": [entry], "next": 5}));
    let (mut positions, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = server.get(&format!("/v1/jobs{query}")).await.json();
        positions.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["position"].as_u64().unwrap()));
        let Some(next) = page.get("next") else { break };
        query = format!("?limit=2&before={next}");
    }
    assert_eq!(positions, [5, 4, 3, 2, 1]);
    let cases = Cases::default();
    for (query, expected) in [
        ("limit=0", "limit: must be a whole number from 1 to 1000, got \"0\""),
        ("limit=1001", "limit: must be a whole number from 1 to 1000, got \"1001\""),
        ("limit=", "limit: must be a whole number from 1 to 1000, got \"\""),
        ("before=g-1", "before: position must be a place in the journal, a whole number, got \"g-1\""),
        ("after=1", "unknown query parameter `after`, known are `before` and `limit`"),
    ] {
        let answer = server.get(&format!("/v1/jobs?{query}")).await;
        cases.check(query, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
}

/// All of them, however many pages whoever runs them gives, each with its parts.
#[tokio::test]
async fn all_jobs_are_had_as_lines() {
    const LINES: [(&str, &str); 2] = [("x-api-key", "root"), ("accept", "application/x-ndjson")];
    let server = Server::start();
    let none = server.send_with("GET", "/v1/jobs", &LINES, "").await;
    assert_eq!((none.status, none.body.as_str()), (StatusCode::OK, ""));
    for position in 1..=250 {
        let paused = JobView {
            paused_by: Some(BrakeScope::Provider(Provider::Fcm)),
            ..job(JournalPosition(position), JobState::Paused)
        };
        server.jobs.set(paused);
    }
    let all = server.send_with("GET", "/v1/jobs", &LINES, "").await;
    assert_eq!(all.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = all.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let positions: Vec<u64> = lines.iter().map(|line| line["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (1..=250).rev().collect::<Vec<_>>());
    assert_eq!(lines[99], server.get("/v1/jobs/151").await.json(), "a line is what is told of one job");
    let shown = ["state", "paused_by", "retried", "by"].map(|name| lines[99][name].clone());
    assert_eq!(shown, [json!("paused"), json!("provider:fcm"), json!(4), parts()]);
    let some = server.send_with("GET", "/v1/jobs?before=101", &LINES, "").await;
    assert_eq!((some.body.lines().count(), all.body.ends_with(&some.body)), (100, true));
    let limited = server.send_with("GET", "/v1/jobs?limit=5", &LINES, "").await;
    assert_eq!(limited.detail(), "unknown query parameter `limit`, known is `before`");
    let json_first = [("x-api-key", "root"), ("accept", "application/json, application/x-ndjson;q=0.5")];
    assert!(server.send_with("GET", "/v1/jobs", &json_first, "").await.json()["jobs"].is_array());
}

#[tokio::test]
async fn those_who_read_lines_slowly_leave_room_for_producers() {
    let server = Server::with(|_, api| api.request_count_max = 8);
    (1..=250).for_each(|position| server.jobs.set(job(JournalPosition(position), JobState::Finished)));
    let ask = || {
        let request =
            Request::builder().uri("/v1/jobs").header("x-api-key", "root").header("accept", "application/x-ndjson");
        server.router.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    let unread = [ask().await.unwrap(), ask().await.unwrap()];
    let one_more = ask().await.unwrap();
    assert_eq!(one_more.status(), StatusCode::SERVICE_UNAVAILABLE);
    server.tell("g-1", json!({})).await;
    drop(unread);
    let free = async {
        loop {
            let answer = ask().await.unwrap();
            if answer.status() == StatusCode::OK {
                break answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let read = tokio::time::timeout(Duration::from_secs(20), free).await.expect("the places are free again");
    let read = read.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(read.iter().filter(|byte| **byte == b'\n').count(), 250);
}

#[tokio::test]
async fn a_job_is_asked_for_by_its_position() {
    let server = Server::start();
    server.jobs.set(job(JournalPosition(7), JobState::Running));
    let found = server.get("/v1/jobs/7").await.json();
    assert_eq!((&found["id"], &found["by"], found.get("paused_by")), (&json!("g-7"), &parts(), None));
    let cases = Cases::default();
    for (path, status, detail) in [
        ("8", 404, "there is no job at the position 8, or it was forgotten"),
        ("g-7", 400, "position: position must be a place in the journal, a whole number, got \"g-7\""),
        ("-1", 400, "position: position must be a place in the journal, a whole number, got \"-1\""),
    ] {
        let answer = server.get(&format!("/v1/jobs/{path}")).await;
        cases.check(path, (answer.status.as_u16(), answer.detail()), (status, detail.to_owned()));
    }
}
