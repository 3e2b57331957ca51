//! `POST /v1/audience/preview`.

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, Environment, Locale, Platform, Subject, TopicName};

use crate::support::{Cases, Server};

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
    let device = |index: usize| NewImport {
        device: NewDevice {
            id: DeviceId::new(&format!("d-{index}")).unwrap(),
            user: None,
            app: AppId::new(&format!("app-{}", index % 250)).unwrap(),
            platform: Platform::Ios,
            environment: Environment::Production,
            token: None,
            locale: Locale::new("en").unwrap(),
            country: None,
        },
        subscriptions: vec![(subject.clone(), topic.clone())],
        credential: None,
    };
    server.store.import_devices((0..COUNT).map(device).collect(), unix_now()).await.unwrap();
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
            "field `id` is no part of this: it does not change who the event is for",
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
