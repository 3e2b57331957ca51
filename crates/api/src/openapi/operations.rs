//! What each route takes and answers.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_telemetry::unix_now;

use super::schemas::{query_wait, reference};
use crate::guard::Dialect;
use crate::query::{LIMIT_DEFAULT, LIMIT_RANGE};
use crate::rfc3339::Rfc3339;
use crate::routes::Route;

const EVENTS: &str = "Events";
const DEVICES: &str = "Devices";
const BRAKES: &str = "Brakes";
const CENTRIFUGO: &str = "Centrifugo";
const OPERATION: &str = "Operation";

pub(super) const TAGS: [(&str, &str); 5] = [
    (EVENTS, "Hand in events and ask what became of them."),
    (BRAKES, "Hold pushes of everything, of an app, a topic or a provider, and let them go on."),
    (DEVICES, "Register devices, say what they are subscribed to."),
    (CENTRIFUGO, "Centrifugo's server API, for its client libraries; its documentation is theirs."),
    (OPERATION, "For those who run the server."),
];

/// What a route takes and answers.
#[derive(Debug)]
pub(super) struct Operation {
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    pub(super) body: Option<Body>,
    pub(super) answers: Vec<Answer>,
    /// Statuses of refusals that do not follow from the rest.
    refusals: Vec<u16>,
}

#[derive(Debug)]
pub(super) struct Body {
    pub(super) schema: Value,
    /// By their names.
    pub(super) examples: Value,
    pub(super) is_required: bool,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) schema: Option<Value>,
    /// What each line holds, where it may be had as lines.
    pub(super) lines: Option<Value>,
    /// No cache may keep it.
    pub(super) is_secret: bool,
    /// Operations that take the answer's `id`.
    pub(super) leads_to: &'static [&'static str],
}

impl Operation {
    fn new(id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self { id, tag, summary, parameters: Vec::new(), body: None, answers: Vec::new(), refusals: Vec::new() }
    }

    fn parameter(mut self, parameter: Value) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// The one that the path names, which may be unknown.
    fn of(self, schema: &str) -> Self {
        self.of_named("id", reference(schema)).refuses(404)
    }

    fn of_named(self, name: &str, schema: Value) -> Self {
        self.parameter(json!({"name": name, "in": "path", "required": true, "schema": schema}))
    }

    /// A page of a list, from where `from` says.
    fn page(self, from: &str, schema: &Value) -> Self {
        let (min, max) = (LIMIT_RANGE.start(), LIMIT_RANGE.end());
        let limit = json!({"type": "integer", "minimum": min, "maximum": max, "default": LIMIT_DEFAULT});
        let description = "The `next` of the page before.";
        self.parameter(json!({"name": from, "in": "query", "schema": schema, "description": description}))
            .parameter(json!({"name": "limit", "in": "query", "schema": limit}))
    }

    fn takes(mut self, schema: &str, examples: Value) -> Self {
        self.body = Some(Body { schema: reference(schema), examples, is_required: true });
        self
    }

    fn answers(mut self, status: u16, description: &'static str, schema: &str) -> Self {
        self.answers.push(Answer {
            status,
            description,
            schema: Some(reference(schema)),
            lines: None,
            is_secret: false,
            leads_to: &[],
        });
        self
    }

    /// It is done, and there is nothing to say.
    fn answers_nothing(mut self, description: &'static str) -> Self {
        self.answers.push(Answer {
            status: 204,
            description,
            schema: None,
            lines: None,
            is_secret: false,
            leads_to: &[],
        });
        self
    }

    /// What the thing that all answers are about is good for.
    fn leads_to(mut self, operations: &'static [&'static str]) -> Self {
        self.answers.iter_mut().for_each(|answer| answer.leads_to = operations);
        self
    }

    fn answers_a_secret(self, status: u16, description: &'static str, schema: &str) -> Self {
        let mut operation = self.answers(status, description, schema);
        operation.answers.last_mut().expect("just added").is_secret = true;
        operation
    }

    fn refuses(mut self, status: u16) -> Self {
        self.refusals.push(status);
        self
    }

    /// All but what it answers.
    pub(super) fn head(&self) -> Value {
        let Self { id, tag, summary, parameters, .. } = self;
        json!({"operationId": id, "tags": [tag], "summary": summary, "parameters": parameters})
    }

    /// The statuses of all its refusals.
    pub(super) fn refusals(&self, dialect: Dialect) -> Vec<u16> {
        let mut statuses = vec![401, 403, 503];
        if dialect == Dialect::Tidings {
            statuses.push(500);
        }
        if !self.parameters.is_empty() {
            statuses.push(400);
        }
        if self.body.is_some() {
            statuses.extend([400, 408, 413]);
            if dialect == Dialect::Tidings {
                statuses.push(415);
            }
        }
        statuses.extend(&self.refusals);
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }
}

/// What a guarded route does. One that is not known here is not described; a test allows none.
pub(super) fn operation(route: Route) -> Option<Operation> {
    let Route { name, dialect, .. } = route;
    if dialect == Dialect::Centrifugo {
        return Some(centrifugo(name));
    }
    events(name)
        .or_else(|| jobs(name))
        .or_else(|| brakes(name))
        .or_else(|| devices(name))
        .or_else(|| subscriptions(name))
}

fn events(name: &str) -> Option<Operation> {
    Some(match name {
        "POST /v1/events" => Operation::new("postEvents", EVENTS, "Hand in an event, or a list of them")
            .takes("Events", event_examples())
            .answers(202, "Durable: they will be delivered, whatever happens to the server.", "AcceptedEvents")
            .leads_to(&["getEvent", "getReceipts", "cancelEvent"])
            .refuses(409),
        "GET /v1/events" => {
            let state = json!({"name": "state", "in": "query", "required": true, "schema": {"const": "scheduled"}});
            Operation::new("getScheduledEvents", EVENTS, "Events that are not due yet, the next one first")
                .parameter(state)
                .page("after", &json!({"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$"}))
                .answers(200, "A page of them.", "ScheduledEvents")
        }
        "DELETE /v1/events/{id}" => {
            Operation::new("cancelEvent", EVENTS, "Call an event off: it is sent to nobody any more")
                .of("EventId")
                .answers_nothing(
                    "Who was not sent to yet will not be. One that was not due yet is forgotten, and its id is free: \
                     a retry of the same id schedules it anew, so stop its producer first.",
                )
                .refuses(409)
        }
        "GET /v1/events/{id}" => Operation::new("getEvent", EVENTS, "What became of an event").of("EventId").answers(
            200,
            "Where it stands.",
            "EventReport",
        ),
        "GET /v1/events/{id}/receipts" => {
            let description = "How long to wait until all who were asked have answered: at most 30 seconds.";
            Operation::new("getReceipts", EVENTS, "Who has proven to have an event")
                .of("EventId")
                .parameter(json!({"name": "wait", "in": "query", "schema": query_wait(), "description": description}))
                .answers(200, "Who has answered so far.", "Receipts")
        }
        "POST /v1/audience/preview" => {
            let examples = json!({
                "some": {"value": {
                    "topic": "goal",
                    "subjects": ["team:42"],
                    "to": {"users": ["u-1", "u-2"]},
                    "filter": {"countries": ["SE"], "locales": ["sv"], "platforms": ["ios"], "apps": ["com.example.app"]},
                }},
                "all": {"value": {"topic": "goal", "subjects": ["team:42"]}},
            });
            Operation::new("previewAudience", EVENTS, "How many devices an event would be for")
                .takes("Audience", examples)
                .answers(200, "Devices, counted.", "AudienceCounts")
        }
        _ => return None,
    })
}

fn jobs(name: &str) -> Option<Operation> {
    let position = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    Some(match name {
        "GET /v1/jobs" => {
            let mut operation =
                Operation::new("getJobs", EVENTS, "What became of the latest events, newest first; as lines, of all")
                    .page("before", &position)
                    .answers(200, "A page of them; or each on a line, where there is no `limit`.", "Jobs");
            operation.answers[0].lines = Some(reference("Job"));
            operation
        }
        "GET /v1/jobs/{position}" => {
            Operation::new("getJob", EVENTS, "What became of an event, by provider, app and language")
                .of_named("position", position)
                .answers(200, "The job.", "Job")
                .refuses(404)
        }
        _ => return None,
    })
}

fn brakes(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, BRAKES, summary);
    Some(match name {
        "GET /v1/brakes" => new("getBrakes", "What is held").answers(200, "All of it.", "Brakes"),
        "PUT /v1/brakes/{scope}" => new("pause", "Hold pushes: they wait, until they expire")
            .of_named("scope", reference("BrakeScope"))
            .answers(200, "It was held before.", "Brake")
            .answers(201, "It is held from now on.", "Brake"),
        "DELETE /v1/brakes/{scope}" => new("resume", "Let pushes go on")
            .of_named("scope", reference("BrakeScope"))
            .answers_nothing("They go on.")
            .refuses(404),
        _ => return None,
    })
}

fn event_examples() -> Value {
    let goal = json!({
        "id": "goal-17",
        "topic": "goal",
        "subjects": ["match:7", "team:42"],
        "params": {"team": "Vega", "goals": 3, "minute": 90.5},
        "data": {"score": [3, 1]},
        "channels": ["match:7"],
        "collapse_key": "match-7",
        "ttl": "15m",
    });
    let own_text = json!({
        "id": "order-8",
        "topic": "goal",
        "subjects": ["order:8"],
        "to": {"users": ["u-1"], "devices": ["phone-1"]},
        "filter": {"countries": ["SE"], "locales": ["sv", "en"], "platforms": ["ios"], "apps": ["com.example.app"]},
        "params": {"number": 8, "team": "Vega"},
        "text": {
            "sv": {"title": "På väg", "body": "Beställning %{number} är på väg."},
            "und": {"title": "On its way", "body": "Order %{number} is on its way."},
        },
        "present": {
            "link": "https://example.com/orders/8",
            "image": "https://example.com/orders/8.png",
            "sound": "default",
            "badge": 1,
            "thread": "order-8",
            "category": "order",
            "interruption": "active",
            "android_channel": "orders",
        },
        "payload": {
            "apns": {"aps": {"relevance-score": 0.5}, "order": 8},
            "fcm": {"data": {"order": "8"}},
            "webpush": {"order": 8},
        },
        "push": "unless_received",
        "receipt": true,
        "receipt_wait": "2s",
        "receipt_policy": "visible",
        "ttl": 3600,
        "priority": "low",
        "urgency": "normal",
        "expect_audience": {"max": 10},
        "dry_run": true,
    });
    // Every server shows a moment that it takes.
    let at = Rfc3339(unix_now().saturating_add(Duration::from_secs(30 * 86_400))).to_string();
    let connected_only = json!({"id": "score-18", "topic": "score", "subjects": ["match:7"], "push": "never"});
    json!({
        "later": {"summary": "At a time, a year ahead at most", "value": {
            "id": "news-9", "topic": "goal", "subjects": ["team:42"], "params": {"team": "Vega"}, "at": at,
        }},
        "goal": {"summary": "With a topic's text", "value": goal},
        "order": {"summary": "For one user, with a text of its own and everything else", "value": own_text},
        "list": {"summary": "Several, accepted as a whole", "value": [goal, connected_only]},
    })
}

/// What takes the id of a device that is registered.
const OF_A_DEVICE: [&str; 8] = [
    "getDevice",
    "rotateCredential",
    "getSubscriptions",
    "putSubscriptions",
    "postSubscriptions",
    "deleteSubscriptions",
    "logOut",
    "deleteDevice",
];

fn devices(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, DEVICES, summary);
    Some(match name {
        "GET /v1/devices" => new("getDevices", "All devices, in the order of their ids")
            .page("after", &reference("DeviceId"))
            .answers(200, "A page of them.", "Devices"),
        "GET /v1/devices/{id}" => new("getDevice", "A device").of("DeviceId").answers(200, "The device.", "Device"),
        "PUT /v1/devices/{id}" => {
            let mut operation = new("putDevice", "Register a device, or say what has changed")
                .of("DeviceId")
                .takes("NewDevice", device_examples())
                .answers(200, "It was known, and is changed.", "Device")
                .answers_a_secret(201, "It is new. The answer has its credential, once.", "Device")
                .leads_to(&OF_A_DEVICE);
            operation.refusals.clear(); // One that is not known is made.
            operation
        }
        "DELETE /v1/devices/{id}" => {
            new("deleteDevice", "Forget a device").of("DeviceId").answers_nothing("It is forgotten.")
        }
        "POST /v1/devices/{id}/credential" => new("rotateCredential", "Give a device another credential")
            .of("DeviceId")
            .answers_a_secret(200, "The new one; the one before is worth nothing.", "Credential"),
        "POST /v1/devices/{id}/logout" => new("logOut", "Take user, subscriptions and credential from a device")
            .of("DeviceId")
            .answers_a_secret(200, "Its new credential.", "Credential"),
        _ => return None,
    })
}

fn device_examples() -> Value {
    let token = "0f8e".repeat(16);
    json!({
        "phone": {"value": {"platform": "ios", "token": token, "app": "com.example.app", "locale": "pt-BR"}},
        "all": {"value": {
            "platform": "ios",
            "token": token,
            "app": "com.example.app",
            "locale": "sv",
            "environment": "sandbox",
            "country": "SE",
            "user": "u-1",
            "proven": true,
        }},
        "android": {"value": {
            "platform": "android", "token": "dPx0:APA91b-8_x", "app": "com.example.app", "locale": "pl",
        }},
        "browser": {"value": {
            "platform": "web",
            "web_push": {
                "endpoint": "https://push.example.net/wp/gAAAA",
                "expirationTime": null,
                "keys": {
                    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
                    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
                },
            },
            "app": "example.com",
            "locale": "en",
        }},
    })
}

fn subscriptions(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, DEVICES, summary).of("DeviceId");
    let examples = json!({
        "some": {"value": {"subscriptions": [
            {"subject": "team:42", "topics": ["goal", "final-score"]},
            {"subject": "match:7", "topics": ["goal"]},
        ]}},
        "none": {"value": {"subscriptions": []}},
    });
    Some(match name {
        "GET /v1/devices/{id}/subscriptions" => {
            new("getSubscriptions", "What a device is subscribed to").answers(200, "All of it.", "Subscriptions")
        }
        "PUT /v1/devices/{id}/subscriptions" => new("putSubscriptions", "Subscribe a device to these and no others")
            .takes("Subscriptions", examples)
            .answers(200, "What has changed.", "Changed"),
        "POST /v1/devices/{id}/subscriptions" => new("postSubscriptions", "Subscribe a device to these as well")
            .takes("Subscriptions", examples)
            .answers(200, "What has changed.", "Changed"),
        "DELETE /v1/devices/{id}/subscriptions" => {
            let query = |name: &str, required, schema| json!({"name": name, "in": "query", "required": required, "schema": reference(schema)});
            new("deleteSubscriptions", "Take a subject from a device, or one of its topics")
                .parameter(query("subject", true, "Subject"))
                .parameter(query("topic", false, "TopicName"))
                .answers(200, "What has changed.", "Changed")
        }
        _ => return None,
    })
}

/// All of Centrifugo's have one shape; what their bodies hold is for their clients to know.
fn centrifugo(name: &'static str) -> Operation {
    let id = name.trim_start_matches("POST /");
    let description = "The method's parameters.";
    let (schema, answer) = match name {
        "POST /api" => {
            let properties = json!({"method": {"type": "string"}, "params": {"type": ["object", "null"]}});
            (
                json!({"type": ["object", "null"], "properties": properties, "description": "One command, or one after another."}),
                "An answer per line.",
            )
        }
        _ => (json!({"type": ["object", "null"], "description": description}), "A result, or an error."),
    };
    let mut operation =
        Operation::new(id, CENTRIFUGO, "A method of Centrifugo's server API").answers(200, answer, "CentrifugoAnswer");
    operation.body = Some(Body { schema, examples: json!({}), is_required: name == "POST /api" });
    operation
}

/// What needs no key or is not of the router, complete.
pub(super) fn unguarded() -> Vec<(&'static str, Value)> {
    let json_of = |description: &str, schema: &str| json!({"description": description, "content": {"application/json": {"schema": reference(schema)}}});
    let refused = |status: u16| json!({"$ref": format!("#/components/responses/{status}")});
    vec![
        (
            "GET /health",
            json!({
                "operationId": "getHealth",
                "tags": [OPERATION],
                "summary": "Whether the server can work",
                "security": [],
                "responses": {"200": json_of("It can.", "Health"), "503": json_of("It cannot: its store is broken.", "Health")},
            }),
        ),
        (
            "GET /metrics",
            json!({
                "operationId": "getMetrics",
                "tags": [OPERATION],
                "summary": "What is measured, for Prometheus",
                "security": [{"header": ["metrics"]}, {"authorization": ["metrics"]}, {"bearer": ["metrics"]}],
                "responses": {
                    "200": {"description": "The Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
                    "401": refused(401),
                    "403": refused(403),
                },
            }),
        ),
        (
            "GET /openapi.json",
            json!({
                "operationId": "getDescription",
                "tags": [OPERATION],
                "summary": "This document",
                "security": [],
                "responses": {
                    "200": {"description": "OpenAPI 3.1.", "content": {"application/json": {"schema": {"type": "object"}}}},
                },
            }),
        ),
    ]
}
