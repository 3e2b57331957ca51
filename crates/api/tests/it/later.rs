//! Events that are due later, and events that are called off. The clock is the real one; jobs are fed by hand.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_api::Rfc3339;
use tidings_store::{DurableChannel, NewEvent};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, Event, EventId, JobState, JournalPosition, Subject, Timestamp, TopicName};

use crate::reports::job;
use crate::support::{Answer, Cases, Server};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

fn goal(id: &str, at: Timestamp) -> Value {
    json!({"id": id, "topic": "goal", "subjects": ["team:42"], "params": {"team": "A"}, "at": Rfc3339(at)})
}

fn earlier(duration: Duration) -> Timestamp {
    Timestamp(unix_now().as_millis() - duration.as_millis() as u64)
}

impl Server {
    async fn schedule(&self, event: &Value) -> Answer {
        self.post("/v1/events", event.to_string()).await
    }

    async fn state(&self, id: &str) -> String {
        let report = self.send("GET", &format!("/v1/events/{id}"), "").await;
        assert_eq!(report.status, StatusCode::OK, "{report:?}");
        report.json()["state"].as_str().unwrap().to_owned()
    }

    async fn cancel(&self, id: &str) -> u16 {
        self.send("DELETE", &format!("/v1/events/{id}"), "").await.status.as_u16()
    }
}

#[tokio::test]
async fn an_event_for_later_is_kept_until_it_is_due() {
    let server = Server::start();
    let at = Timestamp(unix_now().saturating_add(HOUR).as_secs() * 1000);
    let mut event = goal("g-1", at);
    let accepted = server.schedule(&event).await;
    let expected = json!({"id": "g-1", "at": Rfc3339(at), "state": "scheduled"});
    assert_eq!((accepted.status, accepted.json()), (StatusCode::ACCEPTED, expected.clone()));
    assert_eq!((server.accepted(), server.published("team:42").len()), (0, 0), "not yet");

    // The same moment, seen from elsewhere, is the same event.
    let there = Rfc3339(at.saturating_add(2 * HOUR)).to_string().replace(".000Z", "+02:00");
    event["at"] = json!(there);
    let again = server.schedule(&event).await;
    let mut repeated = expected.clone();
    repeated["repeated"] = json!(true);
    assert_eq!((again.status, again.json()), (StatusCode::ACCEPTED, repeated));
    event["params"]["team"] = json!("B");
    assert_eq!(server.schedule(&event).await.status, StatusCode::CONFLICT);

    let report = server.send("GET", "/v1/events/g-1", "").await.json();
    let list = server.send("GET", "/v1/events?state=scheduled", "").await.json();
    assert_eq!(list, json!({"events": [report]}));
    let shown = ["id", "topic", "state", "at"].map(|name| report[name].clone());
    assert_eq!(shown, [json!("g-1"), json!("goal"), json!("scheduled"), json!(Rfc3339(at))]);
    assert!(report["accepted_at"].is_string() && report.get("position").is_none(), "{report}");
    let receipts = server.send("GET", "/v1/events/g-1/receipts", "").await;
    let expected = format!("event g-1 is not due before {}", Rfc3339(at));
    assert_eq!((receipts.status, receipts.detail()), (StatusCode::NOT_FOUND, expected));

    assert_eq!(server.store.release_later(at).await, Ok(1));
    assert_eq!((server.accepted(), server.published("team:42").len()), (1, 1));
    let report = server.send("GET", "/v1/events/g-1", "").await.json();
    let shown = ["position", "accepted_at", "state"].map(|name| report[name].clone());
    assert_eq!(shown, [json!(server.position(0)), json!(Rfc3339(at)), json!("waiting")]);
    assert_eq!(server.send("GET", "/v1/events?state=scheduled", "").await.json(), json!({"events": []}));
}

#[tokio::test]
async fn an_event_may_be_a_minute_late_or_a_year_ahead() {
    let server = Server::start();
    let cases = Cases::default();
    let ahead = |duration| unix_now().saturating_add(duration);
    for (name, at, status, state) in [
        ("now", unix_now(), 202, Value::Null),
        ("late", earlier(MINUTE - Duration::from_secs(10)), 202, Value::Null),
        ("next year", ahead(YEAR - HOUR), 202, json!("scheduled")),
        ("too late", earlier(MINUTE + Duration::from_secs(1)), 400, Value::Null),
        ("too far", ahead(YEAR + HOUR), 400, Value::Null),
    ] {
        let answer = server.schedule(&goal(&name.replace(' ', "-"), at)).await;
        cases.check(name, (answer.status.as_u16(), answer.json()["state"].clone()), (status, state));
    }
    assert_eq!(server.accepted(), 2);
    let wrong = json!([goal("a", unix_now()), goal("b", Timestamp(0)), goal("c", ahead(2 * YEAR))]);
    let answer = server.schedule(&wrong).await.json();
    assert_eq!(answer["detail"], "[1].at: must lie at most 60 seconds back, got \"1970-01-01T00:00:00.000Z\"");
    let answer = server.schedule(&json!([wrong[2]])).await.json();
    let at = wrong[2]["at"].as_str().unwrap();
    assert_eq!(answer["detail"], format!("[0].at: must lie at most 366 days ahead, got \"{at}\""));
    let programs = ["field", "limit", "value"].map(|name| answer[name].clone());
    assert_eq!(programs, [json!("[0].at"), json!(YEAR.as_secs()), json!(at)]);
    assert_eq!(server.accepted(), 2);
}

/// A producer that got no answer tries again when the event's time is over: it is told that the event was accepted.
#[tokio::test]
async fn a_retry_after_its_time_has_the_first_answer() {
    let server = Server::start();
    let at = earlier(HOUR);
    let body = goal("g-1", at);
    let event = tidings_api::read_event(body.to_string().as_bytes()).unwrap();
    let new = NewEvent { event, channels: Vec::new(), audience_max: None };
    server.store.append_events(vec![new], earlier(2 * HOUR)).await.unwrap();
    let scheduled = server.schedule(&body).await;
    assert_eq!((scheduled.status, &scheduled.json()["state"]), (StatusCode::ACCEPTED, &json!("scheduled")));
    assert_eq!(server.store.release_later(unix_now()).await, Ok(1));
    let released = server.schedule(&body).await.json();
    assert_eq!((&released["position"], &released["repeated"]), (&json!(server.position(0)), &json!(true)));
    assert_eq!(server.schedule(&goal("g-2", at)).await.status, StatusCode::BAD_REQUEST, "a new one is too late");
}

#[tokio::test]
async fn events_for_later_are_listed_as_they_become_due_page_by_page() {
    let server = Server::start();
    let moments = [5, 2, 4, 1, 3, 2].map(|hours| unix_now().saturating_add(hours * HOUR));
    for (index, at) in moments.into_iter().enumerate() {
        assert_eq!(server.schedule(&goal(&format!("g-{index}"), at)).await.status, StatusCode::ACCEPTED);
    }
    for limit in [1, 2, 3, 5, 6, 7] {
        let (mut ids, mut query) = (Vec::new(), format!("?state=scheduled&limit={limit}"));
        loop {
            let page = server.send("GET", &format!("/v1/events{query}"), "").await.json();
            ids.extend(page["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()));
            let Some(next) = page.get("next") else { break };
            query = format!("?state=scheduled&limit={limit}&after={}", next.as_str().unwrap());
        }
        assert_eq!(ids, ["g-3", "g-1", "g-5", "g-4", "g-2", "g-0"], "limit {limit}");
    }
    let cases = Cases::default();
    for (query, expected) in [
        ("", "state: must be \"scheduled\": other events are listed at /v1/jobs"),
        ("state=running", "state: must be \"scheduled\": other events are listed at /v1/jobs"),
        ("state=scheduled&after=g-1", "after: must be the `next` of the page before, got \"g-1\""),
        ("state=scheduled&after=1", "after: must be the `next` of the page before, got \"1\""),
        ("state=scheduled&limit=0", "limit: must be a whole number from 1 to 1000, got \"0\""),
    ] {
        let answer = server.send("GET", &format!("/v1/events?{query}"), "").await;
        cases.check(query, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
}

#[tokio::test]
async fn what_is_called_off_before_it_is_due_is_forgotten() {
    let server = Server::start();
    let event = goal("g-1", unix_now().saturating_add(HOUR));
    server.schedule(&event).await;
    let gone = server.send("DELETE", "/v1/events/g-1", "").await;
    assert_eq!((gone.status, gone.body.as_str()), (StatusCode::NO_CONTENT, ""));
    let unknown = server.send("DELETE", "/v1/events/g-1", "").await;
    let expected = "there is no event with the id g-1, or it was forgotten after store.id_window".to_owned();
    assert_eq!((unknown.status, unknown.detail()), (StatusCode::NOT_FOUND, expected));
    assert_eq!(server.store.release_later(unix_now().saturating_add(2 * HOUR)).await, Ok(0));
    let again = server.schedule(&event).await.json();
    assert_eq!((&again["state"], again.get("repeated")), (&json!("scheduled"), None), "its id is free");
}

/// It is committed, but nobody was told of it yet: it waits no more, and is not in the journal either.
#[tokio::test]
async fn an_event_that_is_called_off_while_it_is_released_is_cancelled() {
    let server = Server::start();
    let at = unix_now().saturating_add(HOUR);
    server.schedule(&goal("g-1", at)).await;
    let gate = server.gate.lock().await;
    let store = server.store.clone();
    let mut release = tokio::task::JoinSet::new();
    release.spawn(async move { store.release_later(at).await });
    let id = EventId::new("g-1").unwrap();
    let committed = tokio::time::timeout(Duration::from_secs(20), async {
        while server.store.later(&id).unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    });
    committed.await.expect("the release is committed");
    assert_eq!(server.store.event_position(&id).unwrap(), None);
    let mut cancel = std::pin::pin!(server.cancel("g-1"));
    for _ in 0..100 {
        let answer = std::future::poll_fn(|context| Poll::Ready(cancel.as_mut().poll(context))).await;
        assert_eq!(answer, Poll::Pending, "nothing is known yet");
        tokio::task::yield_now().await;
    }
    drop(gate);
    assert_eq!((cancel.await, release.join_all().await), (204, vec![Ok(1)]));
    assert!(server.store.brakes().borrow().cancelled.contains(&JournalPosition(server.position(0))));
}

#[tokio::test]
async fn a_job_is_cancelled_unless_it_is_finished() {
    let server = Server::start();
    let ids = ["waits", "runs", "held", "done", "off", "old"];
    for id in ids {
        server.schedule(&goal(id, unix_now())).await;
    }
    let position =
        |id: &str| JournalPosition(server.position(ids.iter().position(|known| *known == id).unwrap() as u64));
    let set = |id: &str, state: JobState| server.jobs.set(job(position(id), state));
    set("runs", JobState::Running);
    set("held", JobState::Paused);
    set("done", JobState::Finished);
    set("off", JobState::Cancelled);
    let states = |expected: [&'static str; 6]| {
        let server = &server;
        async move {
            for (id, expected) in ids.into_iter().zip(expected) {
                assert_eq!(server.state(id).await, expected, "{id}");
            }
        }
    };
    states(["waiting", "running", "paused", "finished", "cancelled", "waiting"]).await;
    let brakes = server.store.brakes();
    for id in ["waits", "runs", "held", "off", "waits"] {
        assert_eq!(server.cancel(id).await, 204, "{id}");
        assert_eq!(
            brakes.borrow().cancelled.contains(&position(id)),
            id != "off",
            "whoever follows the store sees it: {id}"
        );
    }
    let finished = server.send("DELETE", "/v1/events/done", "").await;
    let expected = json!({
        "type": "urn:tidings:problem:job-finished",
        "title": "Every device of the event has its outcome already",
        "status": 409,
        "detail": "event done cannot be cancelled: every device of it has its outcome",
        "field": "id",
        "value": "done",
    });
    assert_eq!((finished.status, finished.json()), (StatusCode::CONFLICT, expected));
    // The sender tells of its jobs itself; before it has one, the brake says it.
    states(["cancelled", "running", "paused", "finished", "cancelled", "waiting"]).await;

    let end = JournalPosition(position("old").0 + 1);
    server.store.put_jobs(Vec::new(), Some(end)).await.unwrap();
    assert_eq!(server.state("old").await, "forgotten");
    assert_eq!((server.cancel("old").await, server.cancel("nobody").await), (409, 404));
    assert!(!brakes.borrow().cancelled.contains(&position("old")));
}

#[tokio::test]
async fn as_many_events_are_kept_as_may() {
    let server = Server::with(|store, _| store.later_count_max = 1);
    let at = unix_now().saturating_add(HOUR);
    assert_eq!(server.schedule(&goal("a", at)).await.status, StatusCode::ACCEPTED);
    let full = server.schedule(&goal("b", at)).await;
    assert_eq!(full.json()["type"], "urn:tidings:problem:overloaded", "{full:?}");
    assert_eq!(server.schedule(&goal("a", at)).await.json()["repeated"], true);
}

#[tokio::test]
async fn a_stored_moment_that_is_read_back_is_not_misread() {
    let event = Event {
        at: Some(unix_now().saturating_add(HOUR)),
        ..Event::new(
            EventId::new("g-1").unwrap(),
            TopicName::new("goal").unwrap(),
            vec![Subject::new("team:42").unwrap()],
        )
    };
    let mut spelt = serde_json::to_value(&event).unwrap();
    spelt.as_object_mut().unwrap().remove("receipt_wait");
    let refused = tidings_api::read_event(spelt.to_string().as_bytes()).unwrap_err();
    assert_eq!(refused, "at: must be text, got a number", "milliseconds are no seconds");
}

/// The gate holds the store between the commit of a release and the word of it.
async fn releasing<T>(server: &Server, id: &str, while_held: impl AsyncFnOnce() -> T) -> T {
    let gate = server.gate.lock().await;
    let store = server.store.clone();
    let mut release = tokio::task::JoinSet::new();
    release.spawn(async move { store.release_later(unix_now()).await });
    let event = EventId::new(id).unwrap();
    let committed = tokio::time::timeout(Duration::from_secs(20), async {
        while server.store.later(&event).unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    });
    committed.await.expect("the release is committed");
    let result = while_held().await;
    drop(gate);
    assert_eq!(release.join_all().await, vec![Ok(1)]);
    result
}

/// An event that was due an hour ago, accepted when that was still ahead.
async fn overdue(server: &Server, id: &str) -> Value {
    let body = goal(id, earlier(HOUR));
    let event = tidings_api::read_event(body.to_string().as_bytes()).unwrap();
    let name = ChannelName::new("team:42").unwrap();
    let channels = vec![DurableChannel { name, history_size: 10, history_ttl: HOUR, has_texts: false }];
    let new = NewEvent { event, channels, audience_max: None };
    server.store.append_events(vec![new], earlier(2 * HOUR)).await.unwrap();
    body
}

/// Polls a request a hundred times; it is not answered yet.
async fn assert_waits(mut answer: std::pin::Pin<&mut impl Future<Output = Answer>>) {
    for _ in 0..100 {
        let polled = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        assert!(polled.is_pending(), "{polled:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_retry_while_it_is_released_has_the_first_answer() {
    let server = Server::start();
    let body = overdue(&server, "g-1").await;
    let mut retry = std::pin::pin!(server.schedule(&body));
    releasing(&server, "g-1", async || assert_waits(retry.as_mut()).await).await;
    let answer = retry.await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    assert_eq!((&answer.json()["position"], &answer.json()["repeated"]), (&json!(server.position(0)), &json!(true)));
}

#[tokio::test]
async fn an_event_that_is_being_released_is_not_unknown() {
    let server = Server::start();
    overdue(&server, "g-1").await;
    let mut report = std::pin::pin!(server.send("GET", "/v1/events/g-1", ""));
    releasing(&server, "g-1", async || assert_waits(report.as_mut()).await).await;
    let report = report.await;
    assert_eq!((report.status, &report.json()["position"]), (StatusCode::OK, &json!(server.position(0))), "{report:?}");
    assert_eq!(server.send("GET", "/v1/events/g-2", "").await.status, StatusCode::NOT_FOUND);
}
