//! What operators do: cancel an event, set and lift a pause, send a test, read texts or a feed again, put texts back.
//!
//! Each is a form that is posted here, becomes one call of the API, and leads back to its page. If more than
//! [`UNASKED_COUNT_MAX`] devices wait for what is stopped or released, the operator first types their number.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use maud::html;
use serde_json::{Value, json};

use crate::answers::{document, own_page, refused, see};
use crate::html::{Frame, action as form, page, problem};
use crate::ports::Answer;
use crate::visit::{Shared, Visit, Words, check_origin, check_token};
use crate::words::{encoded, grouped};

/// Devices that an action may touch without a confirmation.
pub(crate) const UNASKED_COUNT_MAX: u64 = 10_000;

pub(crate) fn router() -> Router<Arc<Shared>> {
    Router::new().route("/console/act/{name}", post(act))
}

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Cancel,
    Pause,
    Resume,
    Test,
    Reload,
    RollBack,
    Poll,
}

impl Action {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "cancel" => Self::Cancel,
            "pause" => Self::Pause,
            "resume" => Self::Resume,
            "test" => Self::Test,
            "reload" => Self::Reload,
            "rollback" => Self::RollBack,
            "poll" => Self::Poll,
            _ => return None,
        })
    }

    /// What the page says when it was done.
    const fn said(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Test => "sent",
            Self::Reload => "reloaded",
            Self::RollBack => "rolled-back",
            Self::Poll => "polled",
        }
    }

    /// The call of the API.
    fn call(self, words: &Words) -> (Method, String, Option<Value>) {
        let (scope, name) = (encoded(words.get("scope")), encoded(words.get("name")));
        match self {
            Self::Cancel => (Method::DELETE, format!("/v1/events/{}", encoded(words.get("id"))), None),
            Self::Pause => (Method::PUT, format!("/v1/brakes/{scope}"), None),
            Self::Resume => (Method::DELETE, format!("/v1/brakes/{scope}"), None),
            Self::Test => (Method::POST, "/v1/events".to_owned(), Some(test_event(words))),
            Self::Reload => (Method::POST, "/v1/texts/reload".to_owned(), None),
            Self::RollBack => (Method::POST, "/v1/texts/rollback".to_owned(), None),
            Self::Poll => (Method::POST, format!("/v1/feeds/{name}/poll"), None),
        }
    }

    /// What is done, as the button of a confirmation says it.
    const fn button(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel the event",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Test => "Send",
            Self::Reload => "Reload",
            Self::RollBack => "Roll back",
            Self::Poll => "Read",
        }
    }
}

/// An event for one device, which is pushed even if its app is on the screen.
fn test_event(words: &Words) -> Value {
    json!({
        "id": words.get("id"),
        "topic": "console-test",
        "subjects": ["console:test"],
        "to": {"devices": [words.get("device")]},
        "text": {"und": {"title": words.get("title"), "body": words.get("body")}},
        "push": "always",
        "ttl": "10m",
        "dry_run": words.get("dry") == "yes",
    })
}

async fn act(Path(name): Path<String>, visit: Visit, headers: HeaderMap, body: Bytes) -> Response {
    let words = Words::read(&body);
    if let Err(why) = check_origin(&headers).and_then(|()| check_token(&visit, &words)) {
        return refused(StatusCode::FORBIDDEN, why);
    }
    let Some(action) = Action::of(&name) else {
        return refused(StatusCode::NOT_FOUND, "There is no such action.");
    };
    if !visit.is_operator() {
        return refused(
            StatusCode::FORBIDDEN,
            "A viewer changes nothing. Log in with a key that has the scope operate.",
        );
    }
    let reach = reach(&visit, action, &words).await;
    if reach > UNASKED_COUNT_MAX && !is_confirmed(&words) {
        return confirmation(&visit, action, &name, &words, reach);
    }
    let (method, path, body) = action.call(&words);
    let answer = visit.call(method, &path, body).await;
    if !answer.status.is_success() {
        return not_done(&visit, &words, &answer);
    }
    see(&back(action, &words))
}

fn back(action: Action, words: &Words) -> String {
    let page = match action {
        Action::Test => {
            let (device, id) = (encoded(words.get("device")), encoded(words.get("id")));
            format!("/console/why?device={device}&event={id}")
        }
        _ => own_page(words.get("back")).to_owned(),
    };
    let mark = if page.contains('?') { '&' } else { '?' };
    format!("{page}{mark}said={}", action.said())
}

/// The devices that wait for what is stopped or released.
async fn reach(visit: &Visit, action: Action, words: &Words) -> u64 {
    match action {
        Action::Cancel => waiting(&visit.get(&format!("/v1/events/{}", encoded(words.get("id")))).await.body),
        Action::Pause | Action::Resume => {
            let scope = words.get("scope");
            let jobs = visit.get("/v1/jobs?limit=1000").await.body;
            let all = jobs["jobs"].as_array().map_or(&[][..], Vec::as_slice);
            all.iter().filter(|job| is_touched(job, scope)).map(waiting).sum()
        }
        _ => 0,
    }
}

/// Whether a pause may hold something of this job. Its apps and providers are not known here, so a pause of one may.
fn is_touched(job: &Value, scope: &str) -> bool {
    let is_open = matches!(job["state"].as_str(), Some("running" | "paused"));
    is_open && scope.strip_prefix("topic:").is_none_or(|topic| job["topic"].as_str() == Some(topic))
}

/// The devices of a job that have no outcome yet.
fn waiting(job: &Value) -> u64 {
    let outcome = |outcome: &Value| match outcome {
        Value::Object(reasons) => reasons.values().filter_map(Value::as_u64).sum(),
        count => count.as_u64().unwrap_or_default(),
    };
    let done: u64 = job["outcomes"].as_object().map_or(0, |all| all.values().map(outcome).sum());
    job["audience"].as_u64().unwrap_or_default().saturating_sub(done)
}

/// Whether the number that was shown was typed.
fn is_confirmed(words: &Words) -> bool {
    let typed: String = words.get("typed").chars().filter(char::is_ascii_digit).collect();
    !typed.is_empty() && typed == words.get("reach")
}

/// Asks for the number of devices.
fn confirmation(visit: &Visit, action: Action, name: &str, words: &Words, reach: u64) -> Response {
    let (shown, wrong) = (grouped(reach), !words.get("typed").is_empty());
    let fields = [
        ("id", words.get("id")),
        ("scope", words.get("scope")),
        ("back", words.get("back")),
        ("reach", &reach.to_string()),
    ];
    let what = [words.get("id"), words.get("scope")].into_iter().find(|it| !it.is_empty()).unwrap_or_default();
    let body = html! {
        div .note.alarm {
            p { strong { (action.button()) ": " code { (what) } } }
            p { strong { (shown) } " devices wait for it. Type this number to go on." }
        }
        (form(&visit.token, &format!("/console/act/{name}"), &fields, &html! {
            label {
                span { "Number of devices" }
                input name="typed" inputmode="numeric" autocomplete="off" required autofocus
                    aria-invalid=[wrong.then_some("true")];
            }
            @if wrong { p .note.problem role="alert" { "That is not " (shown) ". The number may have changed meanwhile." } }
            button .danger { (action.button()) }
            a href=(own_page(words.get("back"))) { "Leave it" }
        }))
    };
    framed(visit, StatusCode::CONFLICT, "Are you sure?", &body)
}

/// The API has refused it.
fn not_done(visit: &Visit, words: &Words, answer: &Answer) -> Response {
    let body = html! {
        (problem(&answer.body))
        p { a href=(own_page(words.get("back"))) { "Back" } }
    };
    framed(visit, answer.status, "Nothing was done", &body).into_response()
}

fn framed(visit: &Visit, status: StatusCode, title: &str, body: &maud::Markup) -> Response {
    let (caller, token) = (Some(&visit.caller), visit.token.as_str());
    document(status, page(&Frame { title, screen: None, caller, token, json: None, has_charts: false }, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_touches_what_is_open_and_in_its_scope() {
        let job = |state: &str| json!({"state": state, "topic": "goal", "audience": 100, "outcomes": {"accepted": 30, "rejected": {"BadTopic": 5}}});
        assert_eq!(waiting(&job("running")), 65);
        assert_eq!(waiting(&Value::Null), 0);
        let touched = [("running", "topic:goal"), ("running", "everything"), ("paused", "provider:apns")];
        assert!(touched.iter().all(|(state, scope)| is_touched(&job(state), scope)));
        let untouched = [("running", "topic:card"), ("finished", "everything"), ("cancelled", "everything")];
        assert!(!untouched.iter().any(|(state, scope)| is_touched(&job(state), scope)));
    }

    #[test]
    fn a_number_is_confirmed_however_it_is_grouped() {
        let words = |typed: &str| Words::read(format!("typed={typed}&reach=12345").as_bytes());
        assert!(["12345", "12+345", "12%E2%80%AF345"].iter().all(|typed| is_confirmed(&words(typed))));
        assert!(!["", "1234", "yes"].iter().any(|typed| is_confirmed(&words(typed))));
    }
}
