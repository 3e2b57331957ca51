//! Refusals as problem details (RFC 9457), and errors of fields.
//!
//! Programs distinguish problems by their type, so types are stable. `docs/problems.md` lists them, and a test
//! compares.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tidings_store::{AppendError, ChangeError, ReadError, SubscribeError, WriteError};
use tidings_telemetry::chain;
use tidings_telemetry::panics::Panicked;
use tidings_types::{DeviceId, NameError};
use tracing::error;

/// The beginning of each problem's type.
pub(crate) const TYPE_PREFIX: &str = "urn:tidings:problem:";

/// The kind of refusal; it has a type URI and a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    MalformedJson,
    MalformedMessagePack,
    MalformedDocument,
    Invalid,
    Strict,
    Unauthorized,
    Forbidden,
    NotForApps,
    AudienceTooLarge,
    NotFound,
    MethodNotAllowed,
    Timeout,
    Conflict,
    OutOfStep,
    UnexpectedAudience,
    JobFinished,
    PreconditionFailed,
    TooLarge,
    UnsupportedMediaType,
    RateLimited,
    Internal,
    Damaged,
    Overloaded,
    Unavailable,
}

impl Kind {
    /// All kinds in the order of their declaration.
    pub(crate) const ALL: [Self; 24] = [
        Self::MalformedJson,
        Self::MalformedMessagePack,
        Self::MalformedDocument,
        Self::Invalid,
        Self::Strict,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotForApps,
        Self::AudienceTooLarge,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Timeout,
        Self::Conflict,
        Self::OutOfStep,
        Self::UnexpectedAudience,
        Self::JobFinished,
        Self::PreconditionFailed,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::RateLimited,
        Self::Internal,
        Self::Damaged,
        Self::Overloaded,
        Self::Unavailable,
    ];

    /// The last part of its type, its status and its title.
    pub(crate) const fn parts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::MalformedJson => ("malformed-json", StatusCode::BAD_REQUEST, "The body is not JSON"),
            Self::MalformedMessagePack => (
                "malformed-messagepack",
                StatusCode::BAD_REQUEST,
                "The body is not MessagePack that can be converted to JSON",
            ),
            Self::MalformedDocument => {
                ("malformed-document", StatusCode::BAD_REQUEST, "The document is not what its feed consists of")
            }
            Self::Invalid => ("invalid", StatusCode::BAD_REQUEST, "The request breaks a rule"),
            Self::Strict => ("strict", StatusCode::BAD_REQUEST, "The request would be accepted with a warning"),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "A valid API key or proof is needed"),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "The API key lacks a scope"),
            Self::NotForApps => ("not-for-apps", StatusCode::FORBIDDEN, "An app may not do this for itself"),
            Self::AudienceTooLarge => {
                ("audience-too-large", StatusCode::FORBIDDEN, "The audience is larger than the API key may reach")
            }
            Self::NotFound => ("not-found", StatusCode::NOT_FOUND, "The resource does not exist"),
            Self::MethodNotAllowed => {
                ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "The path does not support the method")
            }
            Self::Timeout => ("timeout", StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time"),
            Self::Conflict => ("conflict", StatusCode::CONFLICT, "The id belongs to an event with other content"),
            Self::OutOfStep => ("out-of-step", StatusCode::CONFLICT, "The import must continue at another line"),
            Self::UnexpectedAudience => {
                ("unexpected-audience", StatusCode::CONFLICT, "The audience is not as large as it was expected to be")
            }
            Self::JobFinished => {
                ("job-finished", StatusCode::CONFLICT, "Every device of the event has its outcome already")
            }
            Self::PreconditionFailed => (
                "precondition-failed",
                StatusCode::PRECONDITION_FAILED,
                "The device does not fulfil the request's condition",
            ),
            Self::TooLarge => ("too-large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Self::UnsupportedMediaType => {
                ("unsupported-media-type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is in an unknown format")
            }
            Self::RateLimited => ("rate-limited", StatusCode::TOO_MANY_REQUESTS, "Requests come too fast"),
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "A bug in the server ended the request"),
            Self::Damaged => ("damaged", StatusCode::INTERNAL_SERVER_ERROR, "A stored record is damaged"),
            Self::Overloaded => ("overloaded", StatusCode::SERVICE_UNAVAILABLE, "The server is overloaded"),
            Self::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "The store is not available"),
        }
    }

    /// After how many seconds at least the same request may succeed. A full queue is processed in less than a second. A
    /// store that cannot write is opened again with a back-off of seconds.
    pub(crate) const fn retry_after(self) -> Option<u64> {
        match self {
            Self::Overloaded | Self::RateLimited => Some(1),
            Self::Unavailable => Some(5),
            _ => None,
        }
    }
}

/// A refused request.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    field: Option<String>,
    limit: Option<u64>,
    value: Option<Value>,
    /// In seconds.
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after = kind.retry_after();
        Self { kind, detail: detail.into(), field: None, limit: None, value: None, retry_after }
    }

    /// The detail alone.
    pub(crate) fn into_detail(self) -> String {
        self.detail
    }

    /// The field, if there is one, and the detail.
    pub(crate) fn into_field_and_detail(self) -> (Option<String>, String) {
        (self.field, self.detail)
    }

    pub(crate) fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    pub(crate) fn limit(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    pub(crate) fn value(self, value: impl Into<Value>) -> Self {
        Self { value: Some(value.into()), ..self }
    }

    /// Says that the same request may succeed after so many seconds, at least one.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..self }
    }

    pub(crate) fn malformed(error: &serde_json::Error) -> Self {
        Self::new(Kind::MalformedJson, format!("not JSON: {error}")) // serde_json names line and column.
    }

    pub(crate) fn no_device(id: &DeviceId) -> Self {
        Self::new(Kind::NotFound, format!("device {id} is not registered"))
    }

    /// The problem for an error of [`tidings_store::Store`] about a device's subscriptions.
    pub(crate) fn of_subscribe(error: SubscribeError, id: &DeviceId) -> Self {
        match error {
            SubscribeError::NotFound => Self::no_device(id),
            SubscribeError::TooMany { limit, count } => {
                Self::new(Kind::Invalid, error.to_string()).field("subscriptions").limit(limit.into()).value(count)
            }
            SubscribeError::TooManyMutes { limit, count } => {
                Self::new(Kind::Invalid, error.to_string()).field("scope").limit(limit.into()).value(count)
            }
            SubscribeError::TooManyDevices { limit, count } => Self::too_many_devices(&error, limit, count),
            SubscribeError::Write(error) => error.into(),
        }
    }

    fn too_many_devices(error: &impl ToString, limit: u32, count: u64) -> Self {
        Self::new(Kind::Invalid, format!("user: {}", error.to_string())).field("user").limit(limit.into()).value(count)
    }

    /// The problem for an error of [`tidings_store::Store`] about a request's events; `path` names one of them.
    pub(crate) fn of_append(error: AppendError, path: impl Fn(usize) -> String) -> Self {
        match error {
            AppendError::Conflict { index, id } => {
                let field = format!("{}id", path(index));
                let detail = format!("{field}: {id} is the id of an earlier event with other content");
                Self::new(Kind::Conflict, detail).field(field).value(id.as_str())
            }
            AppendError::Write(error) => error.into(),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(Invalid { field, detail, limit, value }: Invalid) -> Self {
        let field = (!field.is_empty()).then_some(field);
        Self { field, limit, value, ..Self::new(Kind::Invalid, detail) }
    }
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Overloaded { limit, .. } => Self::new(Kind::Overloaded, error.to_string()).limit(limit),
            WriteError::Unavailable => Self::new(Kind::Unavailable, error.to_string()),
        }
    }
}

impl From<Panicked> for Problem {
    fn from(_: Panicked) -> Self {
        Self::new(Kind::Internal, "a bug ended the work on this request: see the server's log")
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::PreconditionFailed { .. } => Self::new(Kind::PreconditionFailed, error.to_string()),
            ChangeError::TooManyDevices { limit, count } => Self::too_many_devices(&error, limit, count),
            ChangeError::Write(error) => error.into(),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        // The store's log names the row.
        if error.is_damage() {
            error!(error = chain(&error), "A request needs a damaged row");
            return Self::new(Kind::Damaged, "a stored record that this needs is damaged; the server's log names it");
        }
        Self::new(Kind::Unavailable, "the store cannot read now")
    }
}

/// RFC 9457, section 3.
#[derive(Serialize)]
struct Body {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

impl Problem {
    fn into_body(self) -> Body {
        let Self { kind, detail, field, limit, value, retry_after: _ } = self;
        let (name, status, title) = kind.parts();
        Body { r#type: format!("{TYPE_PREFIX}{name}"), title, status: status.as_u16(), detail, field, limit, value }
    }

    /// As a part of an answer whose beginning was already sent.
    pub(crate) fn into_value(self) -> Value {
        serde_json::to_value(self.into_body()).expect("our own shapes have string keys")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (kind, retry_after) = (self.kind, self.retry_after);
        let mut response = json(kind.parts().1, &self.into_body());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if kind == Kind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("apikey")); // RFC 9110, 15.5.2 requires it.
        }
        response
    }
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("our own shapes have string keys");
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response()
}

/// A value in a body that breaks a rule. `detail` is a complete sentence: it names the field's path, the rule with its
/// limit, and the value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Invalid {
    /// The path, such as `[3].subjects[0]`; empty for the body as a whole.
    pub(crate) field: String,
    pub(crate) detail: String,
    pub(crate) limit: Option<u64>,
    pub(crate) value: Option<Value>,
}

impl Invalid {
    /// `rule` says what `field` must be.
    pub(crate) fn new(field: &str, rule: impl std::fmt::Display) -> Self {
        let detail = if field.is_empty() { rule.to_string() } else { format!("{field}: {rule}") };
        Self { field: field.to_owned(), detail, limit: None, value: None }
    }

    pub(crate) fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit as u64), ..self }
    }

    pub(crate) fn value(self, value: impl Into<Value>) -> Self {
        Self { value: Some(value.into()), ..self }
    }

    pub(crate) fn name(field: &str, error: NameError) -> Self {
        Self::new(field, &error).value(error.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each problem in the page: its type (a heading), and its status with its title (the line below).
    #[test]
    fn the_documented_problems_are_those_there_are() {
        let text = include_str!("../../../docs/problems.md");
        let mut lines = text.lines();
        let mut documented = Vec::new();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("## ") {
                let facts = lines.find(|line| !line.is_empty()).unwrap_or_default();
                documented.push((name.trim_matches('`').to_owned(), facts.to_owned()));
            }
        }
        let known = Kind::ALL.map(|kind| {
            let (name, status, title) = kind.parts();
            (format!("{TYPE_PREFIX}{name}"), format!("**{}** {title}.", status.as_u16()))
        });
        assert_eq!(documented, known);
    }
}
