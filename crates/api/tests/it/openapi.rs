//! `/openapi.json` held against the server that it describes: its examples are accepted, its routes are there, and every
//! answer has what is described and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_api::{JobPart, JobView, Outcomes, Rfc3339};
use tidings_jobs::{DeviceOutcome, DeviceTrail, Note, Suppression, TrailStep, Way};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, BrakeScope, DeviceId, EventId, EventPriority, JobState, JournalPosition, Locale, Provider, TimeTo,
    Timestamp, TopicName,
};

use crate::support::{Answer, Server};

/// Holds answers against the document; what it has seen of each component.
struct Judge {
    document: Value,
    seen: BTreeSet<(String, String)>,
    statuses: BTreeSet<(String, u16)>,
}

impl Judge {
    async fn of(server: &Server) -> Self {
        let answer = server.send_with("GET", "/openapi.json", &[], "").await;
        assert_eq!(
            (answer.status, &answer.headers["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        Self { document: answer.json(), seen: BTreeSet::new(), statuses: BTreeSet::new() }
    }

    fn operation(&self, name: &str) -> &Value {
        let (method, path) = name.split_once(' ').unwrap();
        &self.document["paths"][path][method.to_lowercase()]
    }

    fn followed<'d>(document: &'d Value, value: &'d Value) -> (&'d Value, Option<String>) {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => {
                let found = document.pointer(reference.trim_start_matches('#')).unwrap();
                (found, reference.rsplit('/').next().map(str::to_owned))
            }
            None => (value, None),
        }
    }

    /// The answer's status and media type are described, and its body fits.
    fn judge(&mut self, name: &str, answer: &Answer) {
        let document = self.document.clone();
        let responses = self.operation(name)["responses"].clone();
        let status = answer.status.as_u16();
        let (response, _) = Self::followed(&document, &responses[status.to_string()]);
        assert!(response.is_object(), "{name} {status} is not described: {answer:?}");
        self.statuses.insert((name.to_owned(), status));
        for (header, described) in response["headers"].as_object().into_iter().flatten() {
            let is_there = answer.headers.contains_key(header.to_lowercase());
            assert!(is_there || described["required"] != true, "{name} {status} lacks {header}");
        }
        let Some(media) = answer.headers.get("content-type").map(|media| media.to_str().unwrap()) else {
            assert!(response.get("content").is_none() && answer.bytes.is_empty(), "{name} {status}: {answer:?}");
            return;
        };
        let media = media.split(';').next().unwrap();
        let schema = &response["content"][media]["schema"];
        assert!(schema.is_object(), "{name} {status} in {media} is not described");
        if media == "application/x-ndjson" {
            for line in answer.body.lines() {
                let fits = self.fits(&document, schema, &serde_json::from_str(line).unwrap(), "");
                fits.unwrap_or_else(|what| panic!("{name} {status}: {what}\n{answer:?}"));
            }
        } else if media.ends_with("json") {
            let fits = self.fits(&document, schema, &answer.json(), "");
            fits.unwrap_or_else(|what| panic!("{name} {status}: {what}\n{answer:?}"));
        }
    }

    /// As much of JSON Schema as the document uses for answers, and stricter: nothing may be there that is not described.
    fn fits(&mut self, document: &Value, schema: &Value, value: &Value, component: &str) -> Result<(), String> {
        let (schema, name) = Self::followed(document, schema);
        let component = name.as_deref().unwrap_or(component);
        let wrong = |what: &str| Err(format!("{component}: {value} is not {what}"));
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.fits(document, part, value, component)?;
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let fitting = choices.iter().filter(|choice| self.fits(document, choice, value, component).is_ok()).count();
            if fitting != 1 {
                return wrong("one of the choices");
            }
        }
        if let Some(choices) = schema["anyOf"].as_array()
            && !choices.iter().any(|choice| self.fits(document, choice, value, component).is_ok())
        {
            return wrong("any of the choices");
        }
        let is = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            kind => panic!("{kind} is not used in answers"),
        };
        let kinds = |kind: &Value| match kind {
            Value::Array(kinds) => kinds.iter().any(|kind| kind.as_str().is_some_and(is)),
            kind => kind.as_str().is_some_and(is),
        };
        if schema.get("type").is_some_and(|kind| !kinds(kind)) {
            return wrong("of the type");
        }
        if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
            return wrong("a known word");
        }
        if schema.get("const").is_some_and(|known| known != value) {
            return wrong("the constant");
        }
        for item in value.as_array().into_iter().flatten() {
            self.fits(document, &schema["items"], item, component)?;
        }
        let Some(members) = value.as_object() else { return Ok(()) };
        for required in schema["required"].as_array().into_iter().flatten() {
            if !members.contains_key(required.as_str().unwrap()) {
                return wrong(&format!("complete: {required} is missing"));
            }
        }
        for (member, value) in members {
            let described = schema["properties"].get(member);
            if described.is_some() {
                self.seen.insert((component.to_owned(), member.clone()));
            }
            match described.or_else(|| schema.get("additionalProperties")) {
                Some(schema) => self.fits(document, schema, value, component)?,
                None if schema.get("allOf").is_some() || schema.get("properties").is_none() => {}
                None => return wrong(&format!("described: nobody knows {member}")),
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn the_examples_are_accepted_in_either_format() {
    let server = Server::start();
    let mut judge = Judge::of(&server).await;
    let document = judge.document.clone();
    let mut count = 0;
    // Devices before what they are subscribed to.
    let names = [
        "PUT /v1/devices/{id}",
        "POST /v1/events",
        "POST /v1/audience/preview",
        "PUT /v1/devices/{id}/subscriptions",
        "POST /v1/devices/{id}/subscriptions",
        "PUT /v1/devices/{id}/mutes/{scope}",
        "POST /v1/tokens/lookup",
        "POST /v1/audience/explain",
        "POST /v1/imports",
    ];
    for name in names {
        let (method, path) = name.split_once(' ').unwrap();
        let content = document["paths"][path][method.to_lowercase()]["requestBody"]["content"].clone();
        for (media, described) in content.as_object().unwrap() {
            for (title, example) in described["examples"].as_object().unwrap() {
                let value = &example["value"];
                let body = if media.ends_with("json") {
                    serde_json::to_vec(value).unwrap()
                } else {
                    rmp_serde::to_vec(value).unwrap()
                };
                let headers = [("x-api-key", "root"), ("content-type", media.as_str())];
                let answer = server.send_with(method, &filled(path, "phone-1"), &headers, body).await;
                assert!(answer.status.is_success(), "{name} {title}: {answer:?}");
                judge.judge(name, &answer);
                count += 1;
            }
        }
    }
    assert!(count >= 20);
    let with_body = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1"));
    // A document of a feed is not of one form.
    let is_ours = |it: &&Value| it.get("requestBody").is_some_and(|body| body["content"].get("*/*").is_none());
    let with_body = with_body.flat_map(|(_, path)| path.as_object().unwrap().values()).filter(is_ours);
    assert_eq!(with_body.count(), names.len(), "an example is not tried");
}

#[tokio::test]
async fn every_route_that_is_described_is_there() {
    let server = Server::start();
    let mut judge = Judge::of(&server).await;
    let paths = judge.document["paths"].as_object().unwrap().clone();
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let name = format!("{} {path}", method.to_uppercase());
            let answer = server.send(&method.to_uppercase(), &filled(&path, "nobody"), "").await;
            let is_routed = answer.status != StatusCode::METHOD_NOT_ALLOWED
                && !answer.detail_or_none().starts_with("there is no route");
            assert!(is_routed, "{name}: {answer:?}");
            judge.judge(&name, &answer);
            if methods[method]["security"] != json!([]) {
                let nobody = server.send_with(&method.to_uppercase(), &filled(&path, "nobody"), &[], "").await;
                assert_eq!(nobody.status, StatusCode::UNAUTHORIZED, "{name}");
                judge.judge(&name, &nobody);
            }
        }
    }
}

/// A path of the document with something in its places.
fn filled(path: &str, id: &str) -> String {
    path.replace("{id}", id)
        .replace("{position}", "1")
        .replace("{scope}", "app:none")
        .replace("{user}", "nobody")
        .replace("{name}", "none")
}

impl Answer {
    fn detail_or_none(&self) -> String {
        serde_json::from_str::<Value>(&self.body)
            .map(|body| body["detail"].as_str().unwrap_or_default().to_owned())
            .unwrap_or_default()
    }
}

fn job(position: u64) -> JobView {
    let moment = Duration::from_millis;
    JobView {
        position: JournalPosition(position),
        event: EventId::new("g-1").unwrap(),
        topic: Some(TopicName::new("goal").unwrap()),
        priority: EventPriority::Normal,
        accepted_at: Timestamp(1_700_000_000_123),
        done_at: Some(Timestamp(1_700_000_004_567)),
        state: JobState::Paused,
        paused_by: Some(BrakeScope::Everything),
        audience: 9,
        held: 1,
        outcomes: Outcomes {
            accepted: 3,
            rejected: BTreeMap::from([("Unregistered", 1)]),
            suppressed: BTreeMap::from([("filtered", 1)]),
            ..Outcomes::default()
        },
        retried: 7,
        by: vec![JobPart {
            provider: Provider::Fcm,
            app: AppId::new("scores").unwrap(),
            locale: Some(Locale::new("pl").unwrap()),
            outcomes: Outcomes::default(),
        }],
        time_to: Some(TimeTo { first: moment(1), p50: moment(2), p90: moment(3), p99: moment(4), p100: moment(5) }),
        time_to_by: vec![(
            Provider::Fcm,
            TimeTo { first: moment(1), p50: moment(2), p90: moment(3), p99: moment(4), p100: moment(5) },
        )],
        time_to_live: None,
    }
}

/// A trail with everything that it can have.
fn whole_trail() -> DeviceTrail {
    let way = Way { provider: Provider::Apns, pool: "main".to_owned(), is_quarantine: true };
    let step = |note, way| TrailStep { note, way, from: Timestamp(5), to: Timestamp(6) };
    DeviceTrail {
        known_since: Some(Timestamp(4)),
        is_done: true,
        steps: vec![
            step(Note::HandedOut(0), Some(way)),
            step(Note::Ended(DeviceOutcome::Suppressed(Suppression::NoToken)), None),
        ],
        whereabouts: None,
        paused_by: None,
        held_until: Timestamp(0),
        locale: Some(None),
        was_connected: Some(true),
        received: Some(("c0ffee".to_owned(), Timestamp(5))),
    }
}

/// A user with more devices than one answer tells of, and an event for them.
async fn judge_why(server: &Server, judge: &mut Judge) {
    for number in 0..51 {
        let body = format!(r#"{{"platform":"ios","token":"{number:04}0f8e","app":"a","locale":"sv","user":"w"}}"#);
        let put = server.send("PUT", &format!("/v1/devices/w-{number}"), body).await;
        assert_eq!(put.status, StatusCode::CREATED);
    }
    let event = r#"{"id":"why","topic":"goal","subjects":["team:42"],"params":{"team":"A"}}"#;
    let position = server.post("/v1/events", event).await.json()["position"].as_u64().unwrap();
    let number = server.store.device_number(&DeviceId::new("w-0").unwrap()).unwrap().unwrap();
    server.jobs.trails.lock().unwrap().insert((JournalPosition(position), number), whole_trail());
    for (name, path) in [
        ("GET /v1/events/{id}/devices/{device}", "/v1/events/why/devices/w-0"),
        ("GET /v1/events/{id}/devices/{device}", "/v1/events/why/devices/nobody"),
        ("GET /v1/events/{id}/users/{user}", "/v1/events/why/users/w"),
        ("GET /v1/devices/{id}/events", "/v1/devices/w-0/events?limit=1"),
        ("GET /v1/devices/{id}/events", "/v1/devices/nobody/events"),
    ] {
        judge.judge(name, &server.send("GET", path, "").await);
    }
}

/// One server through everything that it can answer: nothing is answered that is not described, and nothing described
/// that is never answered.
#[tokio::test]
async fn answers_are_as_described() {
    const GOAL: &str = r#"{"id":"g-1","topic":"goal","subjects":["team:42"],"params":{"team":"A"},"receipt":true,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;
    const OTHER: &str = r#"{"id":"g-1","topic":"goal","subjects":["team:42"],"params":{"team":"B"}}"#;
    const DEVICE: &str = r#"{"platform":"ios","token":"0f8e0f8e0f8e0f8e","app":"a","locale":"sv","country":"SE","user":"u-1","time_zone":"UTC"}"#;
    const UNSERVED: &str = r#"{"platform":"ios","token":"0f8f","app":"other","locale":"sv"}"#;
    const NOWHERE: &str = r#"{"id":"g-3","topic":"goal","subjects":["nowhere:1"],"params":{"team":"A"}}"#;
    const MISSPELT: &str = r#"{"subscriptions":[{"subject":"team:42","topics":["misspelt"]}]}"#;
    const SUBSCRIPTIONS: &str = r#"{"subscriptions":[{"subject":"team:42","topics":["goal"]}]}"#;
    let server = Server::start();
    let mut judge = Judge::of(&server).await;
    let at = Rfc3339(unix_now().saturating_add(Duration::from_secs(3600)));
    let later = |id: &str| -> &str {
        format!(r#"{{"id":"{id}","topic":"goal","subjects":["team:42"],"params":{{"team":"A"}},"at":"{at}","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}"#).leak()
    };
    server.fill_audit().await;
    server.fill_audit().await;
    for (name, path, body) in [
        ("POST /v1/events", "/v1/events", GOAL),
        ("POST /v1/events", "/v1/events", GOAL),
        ("POST /v1/events", "/v1/events", OTHER),
        (
            "POST /v1/events",
            "/v1/events",
            r#"{"id":"g-2","topic":"goal","subjects":["team:42"],"params":{"team":"A"}}"#,
        ),
        ("POST /v1/events", "/v1/events", r#"{"id":"g-2","topic":"goal","subjects":["t:1"],"ttl":99999999}"#),
        ("POST /v1/events", "/v1/events", later("l-1")),
        ("POST /v1/events", "/v1/events", later("l-2")),
        ("GET /v1/events", "/v1/events?state=scheduled&limit=1", ""),
        ("GET /v1/events/{id}", "/v1/events/l-1", ""),
        ("DELETE /v1/events/{id}", "/v1/events/l-1", ""),
        ("PUT /v1/brakes/{scope}", "/v1/brakes/topic%3Agoal", ""),
        ("PUT /v1/brakes/{scope}", "/v1/brakes/topic%3Agoal", ""),
        ("GET /v1/brakes", "/v1/brakes", ""),
        ("GET /v1/system", "/v1/system", ""),
        ("GET /v1/providers", "/v1/providers", ""),
        ("GET /v1/texts", "/v1/texts", ""),
        ("GET /v1/audit", "/v1/audit", ""),
        ("GET /v1/audit", "/v1/audit?limit=1", ""),
        ("POST /v1/texts/rollback", "/v1/texts/rollback", ""),
        ("POST /v1/texts/reload", "/v1/texts/reload", ""),
        ("POST /v1/texts/rollback", "/v1/texts/rollback", ""),
        ("GET /v1/feeds", "/v1/feeds", ""),
        ("POST /v1/feeds/{name}", "/v1/feeds/news", "goal"),
        ("POST /v1/feeds/{name}", "/v1/feeds/news", "broken"),
        ("POST /v1/feeds/{name}", "/v1/feeds/news", "busy"),
        ("POST /v1/feeds/{name}", "/v1/feeds/other", "goal"),
        ("POST /v1/feeds/{name}/poll", "/v1/feeds/news/poll", ""),
        ("DELETE /v1/brakes/{scope}", "/v1/brakes/topic%3Agoal", ""),
        ("GET /v1/events/{id}", "/v1/events/g-1", ""),
        ("GET /v1/events/{id}/receipts", "/v1/events/g-1/receipts", ""),
        ("PUT /v1/devices/{id}", "/v1/devices/d-1", DEVICE),
        ("PUT /v1/devices/{id}", "/v1/devices/d-1", DEVICE),
        ("PUT /v1/devices/{id}", "/v1/devices/d-2", DEVICE),
        ("PUT /v1/devices/{id}", "/v1/devices/d-3", UNSERVED),
        ("POST /v1/events", "/v1/events?strict=true", NOWHERE),
        ("POST /v1/events", "/v1/events", NOWHERE),
        ("POST /v1/devices/{id}/subscriptions", "/v1/devices/d-3/subscriptions", MISSPELT),
        ("GET /v1/devices/{id}", "/v1/devices/d-2", ""),
        ("GET /v1/devices", "/v1/devices?limit=1", ""),
        ("PUT /v1/devices/{id}/subscriptions", "/v1/devices/d-2/subscriptions", SUBSCRIPTIONS),
        ("POST /v1/devices/{id}/subscriptions", "/v1/devices/d-2/subscriptions", SUBSCRIPTIONS),
        ("GET /v1/devices/{id}/subscriptions", "/v1/devices/d-2/subscriptions", ""),
        ("POST /v1/audience/preview", "/v1/audience/preview?sample=1", r#"{"topic":"goal","subjects":["team:42"]}"#),
        ("DELETE /v1/devices/{id}/subscriptions", "/v1/devices/d-2/subscriptions?subject=team:42", ""),
        ("POST /v1/tokens/lookup", "/v1/tokens/lookup", r#"{"platform":"ios","token":"0f8e0f8e0f8e0f8e"}"#),
        ("POST /v1/tokens/lookup", "/v1/tokens/lookup", r#"{"platform":"ios","token":"aa"}"#),
        ("PUT /v1/devices/{id}/subscriptions", "/v1/devices/d-2/subscriptions", SUBSCRIPTIONS),
        ("PUT /v1/devices/{id}/mutes/{scope}", "/v1/devices/d-2/mutes/everything", ""),
        ("PUT /v1/devices/{id}/mutes/{scope}", "/v1/devices/d-2/mutes/everything", r#"{"for":"1h"}"#),
        ("GET /v1/devices/{id}/mutes", "/v1/devices/d-2/mutes", ""),
        (
            "POST /v1/imports",
            "/v1/imports?name=move",
            r#"{"id":"i-1","platform":"ios","token":"aa","app":"a","locale":"sv","seen_at":"2026-01-01T00:00:00Z","credential":"x","country":"SE","time_zone":"UTC","user":"u-9","subscriptions":[{"subject":"team:42","topics":["goal"]}],"mutes":[{"scope":"everything","until":"2099-01-01T00:00:00Z"}]}"#,
        ),
        ("POST /v1/imports", "/v1/imports?name=move", "\n{}"),
        (
            "POST /v1/imports",
            "/v1/imports",
            r#"{"id":"i-2","platform":"web","app":"a","locale":"sv","web_push":{"endpoint":"https://push.example.net/wp/gAAAA","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}}"#,
        ),
        ("POST /v1/imports", "/v1/imports?name=move&from=3", ""),
        ("GET /v1/imports/{name}", "/v1/imports/move", ""),
        ("GET /v1/export", "/v1/export", ""),
        ("POST /v1/audience/explain", "/v1/audience/explain", r#"{"selector":"platform = ios and country = SE"}"#),
        ("GET /v1/users/{user}/devices", "/v1/users/u-1/devices", ""),
        ("GET /v1/users/{user}/export", "/v1/users/u-1/export", ""),
        ("DELETE /v1/devices/{id}/mutes/{scope}", "/v1/devices/d-2/mutes/everything", ""),
        ("DELETE /v1/devices/{id}/mutes/{scope}", "/v1/devices/d-2/mutes/everything", ""),
        ("DELETE /v1/users/{user}", "/v1/users/nobody", ""),
        ("POST /v1/devices/{id}/credential", "/v1/devices/d-2/credential", ""),
        ("POST /v1/devices/{id}/logout", "/v1/devices/d-2/logout", ""),
        ("DELETE /v1/devices/{id}", "/v1/devices/d-2", ""),
        ("POST /api", "/api", r#"{"method":"info"}"#),
        ("POST /api/info", "/api/info", ""),
        ("POST /api/rpc", "/api/rpc", ""),
        ("POST /api/rpc", "/api/rpc", "["),
        ("POST /api/batch", "/api/batch", r#"{"commands":[{"info":{}}]}"#),
        ("GET /metrics", "/metrics", ""),
        ("GET /openapi.json", "/openapi.json", ""),
        ("GET /health", "/health", ""),
        ("GET /ready", "/ready", ""),
        ("GET /v1/store/backup", "/v1/store/backup", ""),
    ] {
        let (method, _) = name.split_once(' ').unwrap();
        judge.judge(name, &server.send(method, path, body).await);
    }
    let tagged = async |method: &str, name: &str| {
        let headers = [("x-api-key", "root"), (name, "*")];
        server.send_with(method, "/v1/devices/d-1", &headers, if method == "PUT" { DEVICE } else { "" }).await
    };
    judge.judge("GET /v1/devices/{id}", &tagged("GET", "if-none-match").await);
    judge.judge("PUT /v1/devices/{id}", &tagged("PUT", "if-none-match").await);
    for position in [server.position(0), server.position(1)] {
        server.jobs.set(job(position));
    }
    judge.judge("GET /v1/jobs", &server.send("GET", "/v1/jobs?limit=1", "").await);
    let lines = [("x-api-key", "root"), ("accept", "application/x-ndjson")];
    let before = format!("/v1/jobs?before={}", server.position(1)); // One line is also a JSON text.
    judge.judge("GET /v1/jobs", &server.send_with("GET", &before, &lines, "").await);
    judge_why(&server, &mut judge).await;
    let job = format!("/v1/jobs/{}", server.position(0));
    judge.judge("GET /v1/jobs/{position}", &server.send("GET", &job, "").await);
    judge.judge("GET /v1/events/{id}", &server.send("GET", "/v1/events/g-1", "").await);
    server.store.close().await;
    judge.judge("GET /health", &server.send("GET", "/health", "").await);
    judge.judge("GET /ready", &server.send("GET", "/ready", "").await);
    judge.judge("PUT /v1/devices/{id}", &server.send("PUT", "/v1/devices/d-1", DEVICE).await);
    let folder = tempfile::tempdir().unwrap();
    let mut export = Server::damaged(folder.path(), 6000).await.send("GET", "/v1/export", "").await;
    export.body = export.body.lines().filter(|line| line.contains("problem")).collect::<Vec<_>>().join("\n");
    judge.judge("GET /v1/export", &export);

    let schemas = judge.document["components"]["schemas"].as_object().unwrap().clone();
    // Requests have these; what of them is read, unit tests hold against the readers.
    let taken = [
        "Event",
        "Recipients",
        "Filter",
        "Text",
        "NumberValue",
        "PercentValue",
        "MoneyValue",
        "DatetimeValue",
        "DateValue",
        "TimeValue",
        "NameValue",
        "Present",
        "Payload",
        "ExpectAudience",
        "Audience",
        "NewDevice",
        "Lookup",
        "Mute",
        "PushSubscription",
        "PushSubscriptionKeys",
        "ImportedDevice",
        "ImportedMute",
        "Selection",
    ];
    let answered = schemas.iter().filter(|(name, _)| !taken.contains(&name.as_str()));
    let described = answered.flat_map(|(name, schema)| {
        let members = schema["properties"].as_object().into_iter().flat_map(serde_json::Map::keys);
        members.map(|member| (name.clone(), member.clone())).collect::<Vec<_>>()
    });
    let unseen: Vec<_> = described.filter(|pair| !judge.seen.contains(pair)).collect();
    // In transport error mode only, which Centrifugo's tests have.
    let expected =
        [("CentrifugoError", "code"), ("CentrifugoError", "message")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(unseen, expected, "described, but never answered");
    for (name, path) in judge.document["paths"].as_object().unwrap() {
        for (method, operation) in path.as_object().unwrap() {
            let name = format!("{} {name}", method.to_uppercase());
            let successes = operation["responses"].as_object().unwrap().keys().filter(|status| status.starts_with('2'));
            let missed: Vec<_> =
                successes.filter(|status| !judge.statuses.contains(&(name.clone(), status.parse().unwrap()))).collect();
            assert!(missed.is_empty() || name.starts_with("POST /api/"), "{name}: {missed:?} was never answered");
        }
    }
}
