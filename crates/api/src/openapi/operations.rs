//! What each route takes and answers.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_telemetry::unix_now;

use super::schemas::{query_wait, reference};
use crate::audience::SAMPLE_RANGE;
use crate::guard::Dialect;
use crate::imports::FROM_MAX;
use crate::query::{LIMIT_DEFAULT, LIMIT_RANGE};
use crate::rfc3339::Rfc3339;
use crate::routes::Route;
use crate::why::EVENT_COUNT_DEFAULT;

const EVENTS: &str = "Events";
const DEVICES: &str = "Devices";
const USERS: &str = "Users";
const FEEDS: &str = "Feeds";
const BRAKES: &str = "Brakes";
const CENTRIFUGO: &str = "Centrifugo";
const OPERATION: &str = "Operation";

pub(super) const TAGS: [(&str, &str); 7] = [
    (EVENTS, "Publish events and read their reports."),
    (FEEDS, "Documents whose entries become events: their state, and documents that are posted."),
    (BRAKES, "Pause and resume pushes of everything, of an app, a topic or a provider."),
    (DEVICES, "Register devices, and change their subscriptions and mutes."),
    (USERS, "All devices of a user: list, export, delete."),
    (CENTRIFUGO, "Centrifugo's server API, for its client libraries. See Centrifugo's own documentation."),
    (OPERATION, "For operators."),
];

/// A list of entity tags, or `*`.
const ENTITY_TAGS: &str =
    "^[ \\t]*(\\*|[ \\t,]*(W/)?\"[!#-~\\u0080-\\u00ff]*\"([ \\t]*,[ \\t,]*(W/)?\"[!#-~\\u0080-\\u00ff]*\")*[ \\t,]*)$";

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
    /// Answers are JSON whatever is asked for.
    pub(super) is_json_only: bool,
}

#[derive(Debug)]
pub(super) struct Body {
    pub(super) schema: Value,
    /// By their names.
    pub(super) examples: Value,
    pub(super) is_required: bool,
    /// One on each line, and in no other format.
    pub(super) are_lines: bool,
    /// Of any media type.
    pub(super) is_any: bool,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) schema: Option<Value>,
    /// What each line holds, where it may be had as lines.
    pub(super) lines: Option<Value>,
    /// It is bytes and nothing else.
    pub(super) is_bytes: bool,
    /// No cache may keep it.
    pub(super) is_secret: bool,
    /// It comes with the tag of a device.
    pub(super) has_tag: bool,
    /// Operations that take the answer's `id`.
    pub(super) leads_to: &'static [&'static str],
}

impl Operation {
    fn new(id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        let (parameters, answers, refusals) = (Vec::new(), Vec::new(), Vec::new());
        Self { id, tag, summary, parameters, body: None, answers, refusals, is_json_only: false }
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
        self.page_of(from, schema, LIMIT_DEFAULT)
    }

    /// The same, of `count` entries if no number is given.
    fn page_of(self, from: &str, schema: &Value, count: usize) -> Self {
        let (min, max) = (LIMIT_RANGE.start(), LIMIT_RANGE.end());
        let limit = json!({"type": "integer", "minimum": min, "maximum": max, "default": count});
        let description = "The `next` of the page before.";
        self.parameter(json!({"name": from, "in": "query", "schema": schema, "description": description}))
            .parameter(json!({"name": "limit", "in": "query", "schema": limit}))
    }

    fn takes(mut self, schema: &str, examples: Value) -> Self {
        self.body =
            Some(Body { schema: reference(schema), examples, is_required: true, are_lines: false, is_any: false });
        self
    }

    fn answers(mut self, status: u16, description: &'static str, schema: &str) -> Self {
        self.answers.push(Answer {
            status,
            description,
            schema: Some(reference(schema)),
            lines: None,
            is_bytes: false,
            is_secret: false,
            has_tag: false,
            leads_to: &[],
        });
        self
    }

    /// The same, one on each line and in no other format.
    fn answers_lines(self, status: u16, description: &'static str, schema: &str) -> Self {
        let mut operation = self.answers_empty(status, description);
        operation.answers.last_mut().expect("just added").lines = Some(reference(schema));
        operation
    }

    /// It is done, and there is nothing to say.
    fn answers_nothing(self, description: &'static str) -> Self {
        self.answers_empty(204, description)
    }

    fn answers_empty(mut self, status: u16, description: &'static str) -> Self {
        self.answers.push(Answer {
            status,
            description,
            schema: None,
            lines: None,
            is_bytes: false,
            is_secret: false,
            has_tag: false,
            leads_to: &[],
        });
        self
    }

    /// All answers so far tell the device's tag.
    fn tagged(mut self) -> Self {
        self.answers.iter_mut().for_each(|answer| answer.has_tag = true);
        self
    }

    /// It may depend on the device's tag (RFC 9110, 13.1).
    fn conditional(self) -> Self {
        let field = |name: &str, description: &str| {
            let schema = json!({"type": "string", "pattern": ENTITY_TAGS, "examples": ["\"r7\"", "*"]});
            json!({"name": name, "in": "header", "schema": schema, "description": description})
        };
        self.parameter(field("If-Match", "Only if the device has one of these tags; `*`: any."))
            .parameter(field("If-None-Match", "Only if the device has none of these tags; `*`: is not registered."))
            .refuses(412)
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

    /// It may be refused where it would be answered with a warning.
    fn strict(self) -> Self {
        let description = "Refuse the request where it would be accepted with a warning.";
        let schema = json!({"type": "boolean", "default": false});
        self.parameter(json!({"name": "strict", "in": "query", "schema": schema, "description": description}))
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
        let mut statuses = vec![401, 403, 429, 500, 503];
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
        .or_else(|| feeds(name))
        .or_else(|| texts(name))
        .or_else(|| system(name))
        .or_else(|| brakes(name))
        .or_else(|| store(name))
        .or_else(|| audit(name))
        .or_else(|| devices(name))
        .or_else(|| subscriptions(name))
        .or_else(|| mutes(name))
        .or_else(|| users(name))
        .or_else(|| bulk(name))
}

fn events(name: &str) -> Option<Operation> {
    Some(match name {
        "POST /v1/events" => Operation::new("postEvents", EVENTS, "Publish an event, or a list of events")
            .takes("Events", event_examples())
            .strict()
            .parameter(json!({"name": "traceparent", "in": "header", "schema": {"type": "string"}, "description": "The trace of all events that name none (W3C Trace Context)."}))
            .answers(202, "Durable: the events survive a crash of the server.", "AcceptedEvents")
            .leads_to(&["getEvent", "getReceipts", "cancelEvent"])
            .refuses(409),
        "GET /v1/events" => {
            let state = json!({"name": "state", "in": "query", "required": true, "schema": {"const": "scheduled"}});
            Operation::new("getScheduledEvents", EVENTS, "Events that are not due yet, the next one first")
                .parameter(state)
                .page("after", &json!({"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$"}))
                .answers(200, "One page.", "ScheduledEvents")
        }
        "DELETE /v1/events/{id}" => {
            Operation::new("cancelEvent", EVENTS, "Cancel an event: devices that were not sent to yet are not pushed")
                .of("EventId")
                .answers_nothing(
                    "Who was not sent to yet will not be. One that was not due yet is forgotten, and its id is free: \
                     a retry of the same id schedules it anew, so stop its producer first.",
                )
                .refuses(409)
        }
        "GET /v1/events/{id}" => {
            Operation::new("getEvent", EVENTS, "The state of an event and the outcomes of its devices")
                .of("EventId")
                .answers(200, "Where it stands.", "EventReport")
        }
        "GET /v1/events/{id}/receipts" => {
            let description = "How long to wait until all who were asked have answered: at most 30 seconds.";
            Operation::new("getReceipts", EVENTS, "Which clients have proven to have an event")
                .of("EventId")
                .parameter(json!({"name": "wait", "in": "query", "schema": query_wait(), "description": description}))
                .answers(200, "The clients that have answered so far.", "Receipts")
        }
        "GET /v1/events/{id}/devices/{device}" => {
            Operation::new("whyDevice", EVENTS, "Why a device got an event, or why not")
                .of("EventId")
                .of_named("device", reference("DeviceId"))
                .answers(200, "What is known.", "Why")
        }
        "GET /v1/events/{id}/users/{user}" => Operation::new("whyUser", EVENTS, "The same for the devices of a user")
            .of("EventId")
            .of_named("user", reference("UserId"))
            .parameter(json!({
                "name": "after", "in": "query", "schema": reference("DeviceId"),
                "description": "The `next` of the page before.",
            }))
            .answers(200, "What is known of each device.", "WhyUser"),
        "GET /v1/devices/{id}/events" => Operation::new("deviceEvents", DEVICES, "The last events of a device")
            .of("DeviceId")
            .page_of("before", &json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}), EVENT_COUNT_DEFAULT)
            .answers(200, "Events in whose audience the device was, newest first.", "DeviceEvents"),
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
            Operation::new("previewAudience", EVENTS, "Count the devices of an event's audience")
                .takes("Audience", examples)
                .parameter(json!({
                    "name": "sample", "in": "query", "description": "Name so many of the devices, too.",
                    "schema": {"type": "integer", "minimum": SAMPLE_RANGE.start(), "maximum": SAMPLE_RANGE.end()},
                }))
                .answers(200, "Devices, counted.", "AudienceCounts")
        }
        "POST /v1/audience/explain" => {
            let examples = json!({
                "subscribers": {"value": {"selector": "goal on team:42 and country in (SE, NO)"}},
                "others": {"value": {"selector": "platform = ios and not locale = sv"}},
            });
            Operation::new("explainSelector", EVENTS, "Count the devices of each part of a selector")
                .takes("Selection", examples)
                .answers(200, "The selector as a tree, with devices counted.", "ExplainedSelector")
        }
        _ => return None,
    })
}

fn jobs(name: &str) -> Option<Operation> {
    let position = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    Some(match name {
        "GET /v1/jobs" => {
            let mut operation =
                Operation::new("getJobs", EVENTS, "The jobs of the latest events, newest first; as lines, all jobs")
                    .page("before", &position)
                    .answers(200, "A page of jobs; or all jobs, one per line, without `limit`.", "Jobs");
            operation.answers[0].lines = Some(reference("Job"));
            operation
        }
        "GET /v1/jobs/{position}" => {
            Operation::new("getJob", EVENTS, "The job of an event, by provider, app and language")
                .of_named("position", position)
                .answers(200, "The job.", "Job")
                .refuses(404)
        }
        _ => return None,
    })
}

fn feeds(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, FEEDS, summary);
    Some(match name {
        "GET /v1/feeds" => new("getFeeds", "The state of all feeds").answers(200, "All feeds, by name.", "Feeds"),
        "POST /v1/feeds/{name}" => {
            let mut operation = new("postDocument", "A document of a feed that is received")
                .of_named("name", reference("FeedName"))
                .takes("Document", json!({"news": {"value": "<rss version=\"2.0\"/>"}}))
                .answers(200, "What became of its entries.", "FeedReport")
                .refuses(404);
            operation.body.as_mut().expect("it takes one").is_any = true;
            operation
        }
        "POST /v1/feeds/{name}/poll" => new("pollFeed", "Read a feed now, and wait for the end for up to 30 seconds")
            .of_named("name", reference("FeedName"))
            .answers(200, "The state of the feed then.", "Feed")
            .refuses(404),
        _ => return None,
    })
}

fn audit(name: &str) -> Option<Operation> {
    (name == "GET /v1/audit").then(|| {
        let text = |name: &str, description: &str| {
            json!({"name": name, "in": "query", "schema": {"type": "string"}, "description": description})
        };
        let summary = "Who changed what, newest first";
        Operation::new("getAudit", OPERATION, summary)
            .page("before", &json!({"type": "string", "pattern": "^[0-9]{1,18}-[0-9]{1,18}$"}))
            .parameter(text("action", "Only this action, such as `event.publish`."))
            .parameter(text("who", "Only by the holder of this key, by this user of the console, or by `system`."))
            .answers(200, "A page of the audit log; with a filter it may be empty and have a `next`.", "AuditLog")
            .refuses(404)
    })
}

fn store(name: &str) -> Option<Operation> {
    (name == "GET /v1/store/backup").then(|| {
        let summary = "All data of the store at one moment; `tidings store restore` makes a store of it";
        let mut operation = Operation::new("backUp", OPERATION, summary)
            .answers_nothing("A backup. If it is cut off it is not valid: `tidings store verify` checks it.");
        let answer = operation.answers.last_mut().expect("just added");
        (answer.status, answer.is_bytes, answer.is_secret) = (200, true, true);
        operation
    })
}

fn texts(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, OPERATION, summary);
    Some(match name {
        "GET /v1/texts" => new("getTexts", "The topics and translations in force").answers(200, "The texts.", "Texts"),
        "POST /v1/texts/reload" => new(
            "reloadTexts",
            "Read topics and translations again, and take over all of them or none",
        )
        .answers(200, "The texts in force then. With `faults`, they are those before.", "Texts"),
        "POST /v1/texts/rollback" => new("rollBackTexts", "Put the texts before the last reload in force")
            .answers(200, "The texts in force then.", "Texts")
            .refuses(404),
        _ => return None,
    })
}

fn system(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, OPERATION, summary);
    Some(match name {
        "GET /v1/system" => new("getSystem", "The server at this moment: clients, store, memory, disk").answers(
            200,
            "The numbers count since the process began.",
            "System",
        ),
        "GET /v1/providers" => new("getProviders", "The push providers with their connections").answers(
            200,
            "All sections; the numbers count since the process began.",
            "Providers",
        ),
        _ => return None,
    })
}

fn brakes(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, BRAKES, summary);
    Some(match name {
        "GET /v1/brakes" => new("getBrakes", "What is held").answers(200, "All of it.", "Brakes"),
        "PUT /v1/brakes/{scope}" => new("pause", "Pause pushes: they wait until they are resumed or expire")
            .of_named("scope", reference("BrakeScope"))
            .answers(200, "It was already paused.", "Brake")
            .answers(201, "It is paused from now on.", "Brake"),
        "DELETE /v1/brakes/{scope}" => new("resume", "Resume pushes")
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
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    });
    // Every server shows a moment that it takes.
    let at = Rfc3339(unix_now().saturating_add(Duration::from_secs(30 * 86_400))).to_string();
    let connected_only = json!({"id": "score-18", "topic": "score", "subjects": ["match:7"], "push": "never"});
    json!({
        "later": {"summary": "Scheduled, at most a year ahead", "value": {
            "id": "news-9", "topic": "goal", "subjects": ["team:42"], "params": {"team": "Vega"}, "at": at,
        }},
        "goal": {"summary": "With a topic's text", "value": goal},
        "order": {"summary": "For one user, with a text of its own and everything else", "value": own_text},
        "list": {"summary": "Several events, accepted as a whole", "value": [goal, connected_only]},
    })
}

/// What takes the id of a device that is registered.
const OF_A_DEVICE: [&str; 9] = [
    "getDevice",
    "rotateCredential",
    "getSubscriptions",
    "putSubscriptions",
    "postSubscriptions",
    "deleteSubscriptions",
    "getMutes",
    "logOut",
    "deleteDevice",
];

fn devices(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, DEVICES, summary);
    Some(match name {
        "GET /v1/devices" => new("getDevices", "All devices, in the order of their ids")
            .page("after", &reference("DeviceId"))
            .answers(200, "One page.", "Devices"),
        "GET /v1/devices/{id}" => new("getDevice", "A device")
            .of("DeviceId")
            .conditional()
            .answers(200, "The device with its subscriptions and mutes, which its tag does not cover.", "DeviceWithAll")
            .answers_empty(304, "The device still has this tag.")
            .tagged(),
        "PUT /v1/devices/{id}" => {
            let mut operation = new("putDevice", "Register a device, or change it")
                .of("DeviceId")
                .takes("NewDevice", device_examples())
                .strict()
                .answers(200, "The device existed, and is changed.", "PutDevice")
                .answers_a_secret(201, "The device is new. Only this answer has its credential.", "PutDevice")
                .leads_to(&OF_A_DEVICE)
                .tagged();
            operation.refusals.clear(); // One that is not known is made.
            operation.conditional()
        }
        "DELETE /v1/devices/{id}" => {
            new("deleteDevice", "Forget a device").of("DeviceId").conditional().answers_nothing("It is forgotten.")
        }
        "POST /v1/tokens/lookup" => {
            let examples = json!({"phone": {"value": {"platform": "ios", "token": "0f8e".repeat(16)}}});
            new("lookUpToken", "Find the device that has a token")
                .takes("Lookup", examples)
                .answers(200, "The device that has it.", "Device")
                .leads_to(&OF_A_DEVICE)
                .tagged()
                .refuses(404)
        }
        "POST /v1/devices/{id}/credential" => new("rotateCredential", "Give a device a new credential")
            .of("DeviceId")
            .answers_a_secret(200, "The new credential; the old one is invalid.", "Credential"),
        "POST /v1/devices/{id}/logout" => new("logOut", "Take user, subscriptions, mutes and credential from a device")
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
            "time_zone": "Europe/Stockholm",
            "push_permission": "granted",
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
        "denied": {"value": {"platform": "web", "push_permission": "denied", "app": "example.com", "locale": "en"}},
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
            new("getSubscriptions", "The subscriptions of a device").answers(200, "All subscriptions.", "Subscriptions")
        }
        "PUT /v1/devices/{id}/subscriptions" => new("putSubscriptions", "Replace the subscriptions of a device")
            .takes("Subscriptions", examples)
            .strict()
            .answers(200, "What has changed.", "Changed"),
        "POST /v1/devices/{id}/subscriptions" => new("postSubscriptions", "Add subscriptions to a device")
            .takes("Subscriptions", examples)
            .strict()
            .answers(200, "What has changed.", "Changed"),
        "DELETE /v1/devices/{id}/subscriptions" => {
            let query = |name: &str, required, schema| json!({"name": name, "in": "query", "required": required, "schema": reference(schema)});
            new("deleteSubscriptions", "Remove a subject, or one of its topics, from a device's subscriptions")
                .parameter(query("subject", true, "Subject"))
                .parameter(query("topic", false, "TopicName"))
                .answers(200, "What has changed.", "Changed")
        }
        _ => return None,
    })
}

fn mutes(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, DEVICES, summary).of("DeviceId");
    let scope = |operation: Operation| operation.of_named("scope", reference("MuteScope"));
    Some(match name {
        "GET /v1/devices/{id}/mutes" => new("getMutes", "The mutes of a device").answers(200, "All mutes.", "Mutes"),
        "PUT /v1/devices/{id}/mutes/{scope}" => {
            let mut operation = scope(new("mute", "Mute a device for everything or for a subject"))
                .takes("Mute", json!({"forever": {"value": {}}, "night": {"value": {"for": "8h"}}}))
                .answers(200, "It was already muted; it now ends as this request says.", "MuteView")
                .answers(201, "It is muted from now on.", "MuteView");
            operation.body.as_mut().expect("it takes one").is_required = false;
            operation
        }
        "DELETE /v1/devices/{id}/mutes/{scope}" => {
            scope(new("unmute", "End a mute of a device")).answers_nothing("It is not muted any more.")
        }
        _ => return None,
    })
}

fn users(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, USERS, summary).of_named("user", reference("UserId"));
    Some(match name {
        "GET /v1/users/{user}/devices" => new("getDevicesOfUser", "The devices of a user, in the order of their ids")
            .page("after", &reference("DeviceId"))
            .answers(200, "One page.", "Devices"),
        "GET /v1/users/{user}/export" => {
            let mut operation = new("exportUser", "Export all data of a user, as one document").answers_a_secret(
                200,
                "All devices, with their subscriptions and mutes.",
                "UserExport",
            );
            operation.is_json_only = true;
            operation
        }
        "DELETE /v1/users/{user}" => new(
            "eraseUser",
            "Delete all devices of a user, with their subscriptions and mutes",
        )
        .answers(200, "The number of deleted devices.", "Erased"),
        _ => return None,
    })
}

/// Many devices at once, one a line.
fn bulk(name: &str) -> Option<Operation> {
    let new = |id, summary| Operation::new(id, DEVICES, summary);
    let query = |name: &str, schema: Value, description: &str| json!({"name": name, "in": "query", "schema": schema, "description": description});
    Some(match name {
        "POST /v1/imports" => {
            let named = "The import's name, with which it can be resumed.";
            let from = "The number of lines of the import before the body's first line.";
            let on_error = "What happens after a wrong line.";
            let mut operation =
                new("importDevices", "Register many devices, one per line, with subscriptions and mutes")
                    .parameter(query("name", reference("ImportName"), named))
                    .parameter(query(
                        "from",
                        json!({"type": "integer", "minimum": 0, "maximum": FROM_MAX, "default": 0}),
                        from,
                    ))
                    .parameter(query("on_error", json!({"enum": ["stop", "skip"], "default": "stop"}), on_error))
                    .takes("ImportedDevice", import_examples())
                    .answers_lines(200, "The progress, line by line; the last line has `done`.", "ImportTold")
                    .refuses(409);
            operation.body.as_mut().expect("it takes one").are_lines = true;
            operation
        }
        "GET /v1/imports/{name}" => new("getImport", "The progress of an import")
            .of_named("name", reference("ImportName"))
            .answers(200, "The progress.", "ImportProgress")
            .refuses(404),
        "GET /v1/export" => {
            let after = "Begin after this device.";
            let selector = "Only the devices that it selects; not together with `after`.";
            let mut operation = new("exportDevices", "Export all devices, one per line, in the form of an import")
                .parameter(query("after", reference("DeviceId"), after))
                .parameter(query("selector", reference("Selector"), selector))
                .answers_lines(200, "Devices with subscriptions and mutes.", "Exported");
            operation.answers[0].is_secret = true;
            operation
        }
        _ => return None,
    })
}

fn import_examples() -> Value {
    let phone = json!({
        "id": "phone-1",
        "platform": "ios",
        "token": "0f8e".repeat(16),
        "app": "com.example.app",
        "locale": "sv",
        "user": "u-1",
        "proven": true,
        "subscriptions": [{"subject": "team:42", "topics": ["goal"]}],
        "mutes": [{"scope": "team:7"}],
    });
    json!({"phone": {"value": phone}})
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
                "One answer per line.",
            )
        }
        _ => (json!({"type": ["object", "null"], "description": description}), "A result, or an error."),
    };
    let mut operation =
        Operation::new(id, CENTRIFUGO, "A method of Centrifugo's server API").answers(200, answer, "CentrifugoAnswer");
    operation.body =
        Some(Body { schema, examples: json!({}), is_required: name == "POST /api", are_lines: false, is_any: false });
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
                "summary": "Whether the process works; checks nothing else",
                "security": [],
                "responses": {"200": json_of("It does.", "Health")},
            }),
        ),
        (
            "GET /ready",
            json!({
                "operationId": "getReady",
                "tags": [OPERATION],
                "summary": "Whether the server is ready for requests, with the state of its parts",
                "security": [],
                "responses": {
                    "200": json_of("It is ready. `degraded`: a provider cannot be reached, and its pushes wait.", "Ready"),
                    "503": json_of("It is not ready: the server is stopping, or its store refuses writes.", "Ready"),
                },
            }),
        ),
        (
            "GET /metrics",
            json!({
                "operationId": "getMetrics",
                "tags": [OPERATION],
                "summary": "Metrics for Prometheus",
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
