//! Audiences: `POST /v1/audience/preview`, and how large one may be and must be.

use std::task::Poll;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_api::Rfc3339;
use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, EventId, JournalPosition, Locale, Platform, Subject, TopicName};

use crate::support::{AUDIENCE_MAX, Answer, Cases, Server};

const HOUR: Duration = Duration::from_secs(3600);
const PREVIEW: &str = "/v1/audience/preview";

/// A device of a user, subscribed to goals of `team:1`.
async fn register(server: &Server, id: &str, details: Value) {
    let mut device = json!({"platform": "ios", "token": format!("{:0>8}", hex(id)), "app": "scores", "locale": "en"});
    for (name, value) in details.as_object().unwrap() {
        device[name] = value.clone();
    }
    let put = server.send("PUT", &format!("/v1/devices/{id}"), device.to_string()).await;
    assert_eq!(put.status, StatusCode::CREATED, "{put:?}");
    let goals = json!({"subscriptions": [{"subject": "team:1", "topics": ["goal"]}]});
    server.send("PUT", &format!("/v1/devices/{id}/subscriptions"), goals.to_string()).await;
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_audience_is_counted_by_platform_language_country_and_app() {
    let server = Server::start();
    register(&server, "a", json!({"locale": "pt-BR", "country": "BR", "user": "ann"})).await;
    register(&server, "b", json!({"locale": "pt", "country": "PT"})).await;
    register(&server, "c", json!({"locale": "pl", "app": "news", "user": "ann"})).await;
    register(&server, "d", json!({"locale": "pl", "country": "PL"})).await;
    server.send("DELETE", "/v1/devices/d", "").await;
    let cases = Cases::default();
    let counts = |total: u64, locales: Value, countries: Value, apps: Value| {
        let platforms = if total > 0 { json!({"ios": total}) } else { json!({}) };
        json!({
            "total": total, "by_platform": platforms, "by_locale": locales, "by_country": countries, "by_app": apps,
            "estimate": [
                {"provider": "apns", "pool": "main", "devices": 1, "minutes": 1.5, "limited_by": "quota"},
                {"provider": "fcm", "pool": "new", "devices": 1},
            ],
        })
    };
    let ask = json!({"topic": "goal", "subjects": ["team:1"]});
    for (name, change, expected) in [
        (
            "all who subscribed",
            json!({}),
            counts(
                3,
                json!({"pl": 1, "pt": 1, "pt-BR": 1}),
                json!({"BR": 1, "PT": 1, "unknown": 1}),
                json!({"scores": 2, "news": 1}),
            ),
        ),
        ("of another topic", json!({"topic": "end"}), counts(0, json!({}), json!({}), json!({}))),
        (
            "a user's devices, whatever the topic",
            json!({"topic": "end", "subjects": ["user:ann"]}),
            counts(2, json!({"pl": 1, "pt-BR": 1}), json!({"BR": 1, "unknown": 1}), json!({"news": 1, "scores": 1})),
        ),
        (
            "whoever is named",
            json!({"to": {"users": ["ann", "nobody"], "devices": ["b", "d", "a"]}, "subjects": ["team:2"]}),
            counts(
                3,
                json!({"pl": 1, "pt": 1, "pt-BR": 1}),
                json!({"BR": 1, "PT": 1, "unknown": 1}),
                json!({"scores": 2, "news": 1}),
            ),
        ),
        (
            "of a language",
            json!({"filter": {"locales": ["pt"]}}),
            counts(2, json!({"pt": 1, "pt-BR": 1}), json!({"BR": 1, "PT": 1}), json!({"scores": 2})),
        ),
        (
            "of a language in a country",
            json!({"filter": {"locales": ["pt"], "countries": ["PT", "PL"], "platforms": ["ios"], "apps": ["scores"]}}),
            counts(1, json!({"pt": 1}), json!({"PT": 1}), json!({"scores": 1})),
        ),
    ] {
        let mut body = ask.clone();
        for (field, value) in change.as_object().unwrap() {
            body[field] = value.clone();
        }
        let answer = server.post(PREVIEW, body.to_string()).await;
        cases.check(name, (answer.status, answer.json()), (StatusCode::OK, expected));
    }
    assert_eq!(server.accepted(), 0, "nothing is told");
}

#[tokio::test]
async fn a_large_audience_is_counted_to_its_end() {
    const COUNT: usize = 2500; // Several windows, the last one not full.
    let server = Server::with(|store, _| store.device_count_max = COUNT as u32);
    let (subject, topic) = (Subject::new("team:1").unwrap(), TopicName::new("goal").unwrap());
    let device = |index: usize| {
        let id = DeviceId::new(&format!("d-{index}")).unwrap();
        let app = AppId::new(&format!("app-{}", index % 250)).unwrap();
        let new = NewDevice::new(id, app, Platform::Ios, Locale::new("en").unwrap());
        NewImport { subscriptions: vec![(subject.clone(), topic.clone())], ..new.into() }
    };
    server.store.import_devices((0..COUNT).map(device).collect(), None, unix_now()).await.unwrap();
    let answer = server.post(PREVIEW, r#"{"topic":"goal","subjects":["team:1"]}"#).await.json();
    assert_eq!((&answer["total"], &answer["by_locale"]), (&json!(COUNT), &json!({"en": COUNT})));
    let apps = answer["by_app"].as_object().unwrap();
    assert_eq!((apps.len(), &apps["other"]), (201, &json!(500)), "200 of 250 apps are told");
}

#[tokio::test]
async fn what_does_not_change_the_audience_is_refused_by_name() {
    let server = Server::start();
    let cases = Cases::default();
    for (body, expected) in [
        (json!({"subjects": ["team:1"]}), "topic: is required"),
        (json!({"topic": "goal"}), "subjects: is required"),
        (
            json!({"topic": "goal", "subjects": ["team:1"], "id": "g-1"}),
            "field `id` is not accepted here: it does not change the audience",
        ),
        (
            json!({"topic": "goal", "subjects": ["team:1"], "filters": {}}),
            "unknown field `filters`, did you mean `filter`?",
        ),
        (
            json!({"topic": "goal", "subjects": ["team:1"], "filter": {"apps": []}}),
            "filter.apps: must hold 1 to 256 apps, got 0",
        ),
    ] {
        let answer = server.post(PREVIEW, body.to_string()).await;
        cases.check(expected, (answer.status.as_u16(), answer.detail()), (400, expected.to_owned()));
    }
}

/// Hands in a goal of `team:1` with `change` laid over it.
async fn tell(server: &Server, key: &str, change: Value) -> Answer {
    let mut event = json!({"id": "g-1", "topic": "goal", "subjects": ["team:1"], "params": {"team": "A"}});
    for (name, value) in change.as_object().unwrap() {
        event[name] = value.clone();
    }
    server.send_with("POST", "/v1/events", &[("x-api-key", key)], event.to_string()).await
}

async fn three_devices() -> Server {
    let server = Server::start();
    register(&server, "a", json!({"locale": "pt-BR"})).await;
    register(&server, "b", json!({"locale": "pt", "user": "ann"})).await;
    register(&server, "c", json!({"locale": "pl", "user": "ann"})).await;
    server
}

#[tokio::test]
async fn a_key_reaches_no_more_devices_than_it_may() {
    let server = three_devices().await;
    let refused = tell(&server, "capped", json!({})).await;
    let expected = json!({
        "type": "urn:tidings:problem:audience-too-large",
        "title": "The audience is larger than the API key may reach",
        "status": 403,
        "detail": format!("the API key may reach at most {AUDIENCE_MAX} devices with an event, this one has 3"),
        "limit": AUDIENCE_MAX,
        "value": 3,
    });
    assert_eq!((refused.status, refused.json()), (StatusCode::FORBIDDEN, expected));
    let cases = Cases::default();
    for (name, key, change, status) in [
        ("its filter leaves two", "capped", json!({"filter": {"locales": ["pt"]}}), 202),
        ("its filter leaves three", "capped", json!({"filter": {"locales": ["pt", "pl"]}}), 403),
        ("a user's two", "capped", json!({"to": {"users": ["ann"]}}), 202),
        ("named ones", "capped", json!({"to": {"users": ["ann"], "devices": ["a", "nobody"]}}), 403),
        ("nobody is pushed", "capped", json!({"push": "never"}), 202),
        ("later", "capped", json!({"at": Rfc3339(unix_now().saturating_add(HOUR))}), 403),
        ("without a cap", "publish", json!({}), 202),
    ] {
        let mut change = change;
        change["id"] = json!(name.replace(' ', "-"));
        cases.check(name, tell(&server, key, change).await.status.as_u16(), status);
    }
    assert_eq!(server.accepted(), 4);
}

#[tokio::test]
async fn an_audience_is_as_large_as_it_is_expected_to_be() {
    let server = three_devices().await;
    let cases = Cases::default();
    let missed = |word: &str, limit: u64, count: u64, name: &str| {
        Some(format!("expect_audience.{name}: the audience must have {word} {limit} devices, it has {count}"))
    };
    let portuguese = json!({"locales": ["pt"]});
    for (name, change, expected) in [
        ("exactly", json!({"expect_audience": {"min": 3, "max": 3}}), None),
        ("at most", json!({"expect_audience": {"max": 3}}), None),
        ("too few", json!({"expect_audience": {"min": 4}}), missed("at least", 4, 3, "min")),
        ("too many", json!({"expect_audience": {"min": 1, "max": 2}}), missed("at most", 2, 3, "max")),
        ("filtered", json!({"filter": portuguese, "expect_audience": {"min": 2, "max": 2}}), None),
        (
            "filtered too far",
            json!({"filter": portuguese, "expect_audience": {"min": 3}}),
            missed("at least", 3, 2, "min"),
        ),
        ("nobody", json!({"subjects": ["team:2"], "expect_audience": {"min": 1}}), missed("at least", 1, 0, "min")),
        ("nobody, rightly", json!({"subjects": ["team:2"], "expect_audience": {"max": 0}}), None),
    ] {
        let mut change = change;
        change["id"] = json!(name.replace([' ', ','], "-"));
        let answer = tell(&server, "root", change).await;
        let detail = (answer.status == StatusCode::CONFLICT).then(|| answer.detail());
        cases.check(name, (answer.status.is_success(), detail), (expected.is_none(), expected));
    }
    let answer = tell(&server, "root", json!({"id": "g-1", "expect_audience": {"max": 2}})).await.json();
    let programs = ["type", "field", "limit", "value"].map(|name| answer[name].clone());
    assert_eq!(
        programs,
        [json!("urn:tidings:problem:unexpected-audience"), json!("expect_audience.max"), json!(2), json!(3)]
    );
}

#[tokio::test]
async fn a_list_with_one_audience_too_large_is_refused_as_a_whole() {
    let server = three_devices().await;
    let event = |id: &str, to: &str| {
        let to = json!({"devices": [to]});
        json!({"id": id, "topic": "goal", "subjects": ["team:1"], "params": {"team": "A"}, "to": to})
    };
    let mut all = json!([event("g-1", "a"), event("g-2", "b")]);
    all[1].as_object_mut().unwrap().remove("to");
    let headers = [("x-api-key", "capped")];
    let answer = server.send_with("POST", "/v1/events", &headers, all.to_string()).await;
    assert_eq!(answer.detail(), "[1]: the API key may reach at most 2 devices with an event, this one has 3");
    all[1]["expect_audience"] = json!({"min": 9});
    let answer = server.send("POST", "/v1/events", all.to_string()).await;
    assert_eq!(answer.json()["field"], "[1].expect_audience.min", "{answer:?}");
    assert_eq!(server.accepted(), 0);
}

/// The cap goes with the event, to be looked at again when its job begins.
#[tokio::test]
async fn an_accepted_event_keeps_its_cap_and_its_answer_while_its_audience_grows() {
    let server = Server::start();
    let later = json!({"id": "g-2", "at": Rfc3339(unix_now().saturating_add(HOUR))});
    let expecting = json!({"id": "g-3", "expect_audience": {"max": 0}});
    let all = [json!({}), later, expecting];
    let mut answers = Vec::new();
    for change in &all {
        let answer = tell(&server, "capped", change.clone()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answers.push(answer.json());
    }
    let position = JournalPosition(server.position(0));
    assert_eq!(server.store.event(position).unwrap().unwrap().audience_max, Some(AUDIENCE_MAX));
    let kept = server.store.later(&EventId::new("g-2").unwrap()).unwrap().unwrap();
    assert_eq!(kept.audience_max, Some(AUDIENCE_MAX));
    for id in ["a", "b", "c"] {
        register(&server, id, json!({})).await;
    }
    for (change, answer) in all.iter().zip(answers) {
        let again = tell(&server, "capped", change.clone()).await;
        let mut expected = answer;
        expected["repeated"] = json!(true);
        assert_eq!((again.status, again.json()), (StatusCode::ACCEPTED, expected));
    }
    assert_eq!(tell(&server, "capped", json!({"id": "g-4"})).await.status, StatusCode::FORBIDDEN);
    let other = tell(&server, "publish", json!({})).await;
    assert_eq!(other.json()["repeated"], true, "whoever hands it in again: {other:?}");
}

/// Each event of a list with a filter and an expectation.
#[tokio::test]
async fn every_audience_of_a_long_list_is_counted_with_its_filter() {
    let server = three_devices().await;
    let event = |id: usize| {
        let (locale, count) = [("pt", 2), ("pl", 1)][id % 2];
        json!({
            "id": format!("g-{id}"), "topic": "goal", "subjects": ["team:1"], "params": {"team": "A"},
            "filter": {"locales": [locale]}, "expect_audience": {"min": count, "max": count},
        })
    };
    let mut all: Vec<Value> = (0..600).map(event).collect();
    all[599]["expect_audience"] = json!({"max": 0});
    let refused = server.post("/v1/events", json!(all).to_string()).await;
    let detail = "[599].expect_audience.max: the audience must have at most 0 devices, it has 1";
    assert_eq!((refused.detail().as_str(), server.accepted()), (detail, 0));
    all[599] = event(599);
    let answer = server.post("/v1/events", json!(all).to_string()).await;
    assert_eq!((answer.status, server.accepted()), (StatusCode::ACCEPTED, 600), "{answer:?}");
}

#[tokio::test]
async fn whoever_waits_too_long_for_its_turn_to_count_is_told() {
    let server = three_devices().await;
    let ask = json!({"topic": "goal", "subjects": ["team:1"]}).to_string();
    let held = server.jobs.hold_estimates().await;
    tokio::time::pause();
    let first = server.post(PREVIEW, ask.clone());
    let second = async {
        server.jobs.estimating().await;
        let mut second = std::pin::pin!(server.post(PREVIEW, ask.clone()));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(2)).await;
        let Poll::Ready(refused) = futures_util::poll!(second.as_mut()) else { panic!("it waits on") };
        let detail = "one audience is counted at a time, and its turn did not come within 10 seconds";
        assert_eq!((refused.status.as_u16(), refused.detail()), (503, detail.to_owned()));
        assert_eq!((&refused.json()["limit"], &refused.headers["retry-after"]), (&json!(10), &"1".parse().unwrap()));
        drop(held);
    };
    assert_eq!(tokio::join!(first, second).0.status, StatusCode::OK);
    tokio::time::resume();
    assert_eq!(server.post(PREVIEW, ask).await.status, StatusCode::OK, "the turn is free again");
}

#[tokio::test]
async fn selectors_are_counted_in_turn_and_not_too_many_of_them() {
    let server = Server::start();
    register(&server, "a", json!({"country": "SE"})).await;
    let event = |number: usize, min: u64| {
        json!({
            "id": format!("e-{number}"), "topic": "goal", "subjects": ["team:1"], "params": {"team": "x"},
            "to": {"selector": "country = SE"}, "expect_audience": {"min": min},
        })
    };
    let send = async |count: usize, min: u64| {
        let events: Vec<Value> = (0..count).map(|number| event(number, min)).collect();
        server.post("/v1/events", json!(events).to_string()).await
    };
    let refused = send(17, 1).await;
    let told = "[16].to.selector: must not be counted here: of events with a selector and expect_audience, or of a key \
                with audience_max, a request has at most 16";
    assert_eq!((refused.status, refused.detail().as_str()), (StatusCode::BAD_REQUEST, told));
    assert_eq!(send(1, 2).await.json()["value"], 1, "it is counted");
    assert_eq!(server.accepted(), 0);
    assert_eq!(send(16, 1).await.status, StatusCode::ACCEPTED);
    assert_eq!(send(17, 1).await.status, StatusCode::ACCEPTED, "those that are known are not counted again");

    // While another audience is counted it waits, in a place for those that wait.
    let held = server.jobs.hold_estimates().await;
    let preview = json!({"topic": "goal", "subjects": ["team:1"]}).to_string();
    let body = json!([event(99, 1)]).to_string();
    let (preview, mut counted) = (server.post(PREVIEW, preview), std::pin::pin!(server.post("/v1/events", body)));
    let mut preview = std::pin::pin!(preview);
    tokio::select! {
        _ = &mut preview => panic!("estimates are held"),
        () = server.jobs.estimating() => {}
    }
    let waits = tokio::time::timeout(Duration::from_millis(50), &mut counted).await;
    assert!(waits.is_err(), "its turn has not come");
    drop(held);
    assert_eq!(preview.await.status, StatusCode::OK);
    assert_eq!(counted.await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_preview_names_as_many_devices_as_are_asked_for() {
    let server = Server::start();
    for id in ["a", "b", "c"] {
        register(&server, id, json!({})).await;
    }
    let body = r#"{"topic":"goal","subjects":["team:1"]}"#;
    let preview = async |query: &str| server.post(&format!("{PREVIEW}{query}"), body).await;
    assert_eq!(preview("?sample=2").await.json()["sample"], json!(["a", "b"]));
    assert_eq!(preview("?sample=100").await.json()["sample"], json!(["a", "b", "c"]));
    assert_eq!(preview("").await.json().get("sample"), None);
    for wrong in ["0", "101", "-1", "all", ""] {
        let answer = preview(&format!("?sample={wrong}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
        assert!(answer.body.contains("must be a whole number from 1 to 100"), "{answer:?}");
    }
}
