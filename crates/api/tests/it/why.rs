//! Why a device got an event: what is told of facts, and what is not.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_jobs::{DeviceOutcome, DeviceTrail, Note, Suppression, TrailStep, Way, Whereabouts};
use tidings_telemetry::unix_now;
use tidings_types::{BrakeScope, DeviceId, DeviceNumber, JournalPosition, Locale, Provider, Timestamp};

use crate::support::Server;

const PHONE: &str =
    r#"{"platform":"ios","token":"0f8e0f8e0f8e0f8e","app":"a","locale":"sv","country":"SE","user":"u-1"}"#;

struct World {
    server: Server,
    began: Timestamp,
}

impl World {
    /// A phone that wants the goals of team 42.
    async fn new() -> Self {
        let server = Server::start();
        let world = Self { server, began: unix_now() };
        assert_eq!(world.server.send("PUT", "/v1/devices/phone", PHONE).await.status, StatusCode::CREATED);
        world.subscribe("team:42").await;
        world
    }

    async fn subscribe(&self, subject: &str) {
        let body = json!({"subscriptions": [{"subject": subject, "topics": ["goal"]}]}).to_string();
        let answer = self.server.send("PUT", "/v1/devices/phone/subscriptions", body).await;
        assert!(answer.status.is_success(), "{}", answer.detail());
    }

    fn phone(&self) -> DeviceNumber {
        self.server.store.device_number(&DeviceId::new("phone").unwrap()).unwrap().unwrap()
    }

    async fn tell(&self, id: &str, more: Value) -> JournalPosition {
        let mut event = json!({"id": id, "topic": "goal", "subjects": ["team:42"], "params": {"team": "A"}});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.server.post("/v1/events", event.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.detail());
        JournalPosition(answer.json()["position"].as_u64().unwrap())
    }

    fn at(&self, millis: u64) -> Timestamp {
        self.began.saturating_add(Duration::from_millis(millis))
    }

    fn step(&self, note: Note, millis: u64) -> TrailStep {
        let way = matches!(note, Note::HandedOut(_)).then(way);
        TrailStep { note, way, from: self.at(10_000 + millis), to: self.at(10_000 + millis) }
    }

    fn know(&self, position: JournalPosition, trail: DeviceTrail) {
        self.server.jobs.trails.lock().unwrap().insert((position, self.phone()), trail);
    }

    async fn why(&self, event: &str) -> Value {
        let answer = self.server.send("GET", &format!("/v1/events/{event}/devices/phone"), "").await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.detail());
        answer.json()
    }
}

fn way() -> Way {
    Way { provider: Provider::Apns, pool: "main".to_owned(), is_quarantine: false }
}

fn trail(steps: Vec<TrailStep>) -> DeviceTrail {
    DeviceTrail {
        known_since: None,
        is_done: true,
        steps,
        whereabouts: None,
        paused_by: None,
        held_until: Timestamp(0),
        locale: None,
        was_connected: None,
        received: None,
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn steps(why: &Value) -> Vec<&str> {
    why["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_push_is_told_step_by_step() {
    let world = World::new().await;
    let position = world.tell("goal-1", json!({"push": "always"})).await;
    let mut handed_out = world.step(Note::HandedOut(0), 5);
    handed_out.to = world.at(10_055);
    let ended = world.step(Note::Ended(DeviceOutcome::Accepted), 80);
    let repeated = world.step(Note::Repeated, 80);
    let locale = Some(Some(Locale::new("sv").unwrap()));
    world.know(position, DeviceTrail { locale, ..trail(vec![handed_out, repeated, ended]) });
    let why = world.why("goal-1").await;
    let names = ["verdict", "selected", "provider", "pool", "locale", "event", "device", "user", "app", "topic"];
    let expected = json!(["accepted", true, "apns", "main", "sv", "goal-1", "phone", "u-1", "a", "goal"]);
    assert_eq!(json!(names.map(|name| why[name].clone())), expected);
    assert_eq!(steps(&why), ["event_accepted", "published", "handed_out", "repeated", "accepted"]);
    assert!(why["steps"][2]["until"].is_string() && why["steps"][4]["until"].is_null(), "one moment is not exact");
    assert_eq!(why["steps"][2]["text"], "It was handed to the connections of the pool main (apns).");
    assert_eq!(why["summary"], "The provider took the notification.");
    assert_eq!(texts(&why["because"]), ["The device is subscribed to goal on team:42 now."]);
    assert_eq!(
        texts(&why["unknown"]),
        ["Whether the app got the event over a live connection: the event asks for no receipts."]
    );
}

#[tokio::test]
async fn each_state_has_its_verdict() {
    let world = World::new().await;
    let running = |whereabouts, way: Option<Way>| DeviceTrail {
        is_done: false,
        whereabouts: Some((whereabouts, way)),
        held_until: world.at(12_000),
        ..trail(Vec::new())
    };
    let paused =
        DeviceTrail { paused_by: Some(BrakeScope::Everything), ..running(Whereabouts::Pending(0), Some(way())) };
    let ended = |outcome| trail(vec![world.step(Note::Ended(outcome), 1)]);
    let received = (String::from("c0ffee"), world.at(10_001));
    for (index, (trail, verdict, reason, summary)) in [
        (running(Whereabouts::Unwalked, None), "waiting", "", "its turn"),
        (running(Whereabouts::Blocked, None), "waiting", "", "older notification with the same collapse key"),
        (running(Whereabouts::Held, None), "held", "", "held back until"),
        (running(Whereabouts::Pending(0), Some(way())), "pending", "", "have room"),
        (paused, "paused", "", "The brake on everything"),
        (running(Whereabouts::InFlight(0), Some(way())), "in_flight", "", "not answered yet"),
        (running(Whereabouts::Nowhere, None), "not_selected", "", "not in the audience"),
        (
            DeviceTrail { received: Some(received), was_connected: Some(true), ..ended(DeviceOutcome::Received) },
            "received",
            "",
            "proved",
        ),
        (ended(DeviceOutcome::Suppressed(Suppression::NoToken)), "suppressed", "no_token", "has no token"),
        (ended(DeviceOutcome::Superseded), "superseded", "", "newer event"),
        (ended(DeviceOutcome::Expired), "expired", "", "ttl"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("goal-{index}");
        let position = world.tell(&id, json!({})).await;
        world.know(position, trail);
        let why = world.why(&id).await;
        let reason_of = why.get("reason").and_then(Value::as_str).unwrap_or_default();
        assert_eq!((why["verdict"].as_str().unwrap(), reason_of), (verdict, reason), "{why}");
        assert!(why["summary"].as_str().unwrap().contains(summary), "{why}");
        let selected = if verdict == "not_selected" { json!(false) } else { json!(true) };
        assert_eq!(why["selected"], selected, "{why}");
    }
    let why = world.why("goal-7").await;
    assert_eq!(steps(&why), ["event_accepted", "published", "received_live", "received"]);
    assert!(why["steps"][2]["text"].as_str().unwrap().contains("c0ffee"));
}

#[tokio::test]
async fn who_was_not_selected_is_told_why_as_far_as_it_is_known() {
    let world = World::new().await;
    let of_nobody = world.tell("goal-1", json!({})).await;
    world.know(of_nobody, trail(Vec::new()));
    let why = world.why("goal-1").await;
    assert_eq!(
        texts(&why["because"]).last(),
        Some(&"The same event would select the device now: something has changed since, for example a subscription.")
    );

    world.subscribe("team:43").await;
    let why = world.why("goal-1").await;
    assert_eq!(
        texts(&why["because"]),
        [
            "The device is not subscribed to goal on team:42 now.",
            "The same event would not select the device now either."
        ]
    );

    let muted = world.tell("goal-2", json!({"subjects": ["team:43"]})).await;
    world.know(muted, trail(vec![world.step(Note::Muted, 0)]));
    world.server.send("PUT", "/v1/devices/phone/mutes/team%3A43", "").await;
    let why = world.why("goal-2").await;
    assert_eq!((&why["verdict"], &why["selected"]), (&json!("not_selected"), &json!(false)));
    assert!(why["summary"].as_str().unwrap().contains("had muted"), "{why}");
    assert!(texts(&why["because"]).contains(&"The device mutes team:43 now, until it is taken back."), "{why}");
    world.server.send("DELETE", "/v1/devices/phone/mutes/team%3A43", "").await;
    let why = world.why("goal-2").await;
    assert!(texts(&why["because"]).contains(&"The mute that left it out is over or was taken back."), "{why}");

    let filtered = world.tell("goal-3", json!({"subjects": ["team:43"], "filter": {"countries": ["NO"]}})).await;
    world.know(filtered, trail(Vec::new()));
    let why = world.why("goal-3").await;
    assert!(
        texts(&why["because"]).iter().any(|text| text.contains("filter does not admit") && text.contains("country SE")),
        "{why}"
    );

    world.tell("goal-4", json!({"subjects": ["team:43"], "push": "never"})).await;
    world.server.store.put_jobs(Vec::new(), Some(JournalPosition(1000))).await.unwrap();
    let why = world.why("goal-4").await;
    assert_eq!(why["verdict"], "not_selected");
    assert!(why["summary"].as_str().unwrap().contains("asks for no pushes"), "{why}");
}

#[tokio::test]
async fn what_is_not_known_is_said_to_be_unknown() {
    let world = World::new().await;
    world.tell("goal-1", json!({})).await;
    let why = world.why("goal-1").await;
    assert_eq!((why["verdict"].as_str(), why.get("selected")), (Some("waiting"), None), "its job has not begun: {why}");
    let resumed = world.tell("goal-2", json!({})).await;
    world.server.store.put_jobs(Vec::new(), Some(JournalPosition(1000))).await.unwrap();
    let why = world.why("goal-1").await;
    assert_eq!((why["verdict"].as_str(), why.get("selected")), (Some("not_known"), None), "{why}");
    assert!(texts(&why["unknown"])[0].contains("not over a restart"), "{why}");
    assert!(texts(&why["because"]).contains(&"The same event would select the device now."), "{why}");
    world.know(resumed, DeviceTrail { known_since: Some(world.at(500)), ..trail(Vec::new()) });
    let why = world.why("goal-2").await;
    assert_eq!((why["verdict"].as_str(), why.get("selected")), (Some("not_known"), None), "{why}");
    assert!(texts(&why["unknown"])[0].starts_with("What happened before "), "{why}");
}

/// A number is given again when its device was deleted: what the former device went through is not told of the new one.
#[tokio::test]
async fn a_device_that_came_later_is_not_told_what_another_got() {
    let world = World::new().await;
    let position = world.tell("goal-1", json!({})).await;
    world.know(position, trail(vec![world.step(Note::Ended(DeviceOutcome::Accepted), 1)]));
    assert_eq!(world.server.send("DELETE", "/v1/devices/phone", "").await.status, StatusCode::NO_CONTENT);
    let answer = world.server.send("GET", "/v1/events/goal-1/devices/phone", "").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    world.server.send("PUT", "/v1/devices/phone", PHONE).await;
    world.know(position, trail(vec![world.step(Note::Ended(DeviceOutcome::Accepted), 1)]));
    let why = world.why("goal-1").await;
    assert_eq!((&why["verdict"], &why["selected"]), (&json!("not_selected"), &json!(false)), "{why}");
    assert!(why["summary"].as_str().unwrap().contains("registered after the event"), "{why}");
    assert_eq!(steps(&why), ["event_accepted", "published"]);
    let events = world.server.send("GET", "/v1/devices/phone/events", "").await.json();
    assert_eq!(events["events"], json!([]), "{events}");
}

#[tokio::test]
async fn the_last_events_of_a_device_and_the_devices_of_a_user_are_listed() {
    let world = World::new().await;
    for index in 0..25 {
        let position = world.tell(&format!("goal-{index}"), json!({})).await;
        world.know(position, trail(vec![world.step(Note::Ended(DeviceOutcome::Accepted), 1)]));
    }
    let page = world.server.send("GET", "/v1/devices/phone/events", "").await.json();
    let ids = |page: &Value| -> Vec<String> {
        page["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((ids(&page).len(), ids(&page)[0].as_str()), (20, "goal-24"));
    assert_eq!(page["events"][0]["verdict"], "accepted");
    let next = page["next"].as_u64().unwrap();
    let rest = world.server.send("GET", &format!("/v1/devices/phone/events?before={next}&limit=1000"), "").await.json();
    assert_eq!((ids(&rest).len(), ids(&rest)[4].as_str()), (5, "goal-0"));
    assert!(rest.get("next").is_none());

    world.server.send("PUT", "/v1/devices/tablet", PHONE.replace("0f8e0f8e0f8e0f8e", "1f8e0f8e0f8e0f8e")).await;
    let of_user = world.server.send("GET", "/v1/events/goal-3/users/u-1", "").await.json();
    let verdicts: Vec<_> =
        of_user["devices"].as_array().unwrap().iter().map(|why| (&why["device"], &why["verdict"])).collect();
    assert_eq!(json!(verdicts), json!([["phone", "accepted"], ["tablet", "not_selected"]]), "{of_user}");
    assert_eq!(world.server.send("GET", "/v1/events/goal-3/users/nobody", "").await.json()["devices"], json!([]));
}
