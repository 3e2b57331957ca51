//! What the console needs from the server: the HTTP API, called from inside the process, and who may call it.
//!
//! The console has no other way to data or to actions. So scopes, limits and checks are those of the API.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

/// What somebody may do in the console. What the API allows is decided by the scopes of the caller's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Looks, and changes nothing.
    #[default]
    Viewer,
    /// Also acts: cancels, pauses, sends a test, reloads texts.
    Operator,
}

impl Role {
    /// Its name, in the configuration, in a proxy's header and on pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }

    /// The role with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator].into_iter().find(|role| role.as_str() == name)
    }
}

/// Somebody who was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the API key whose scopes and limits hold.
    pub key: Arc<str>,
    /// Who it is: the name of the key, or the user that a proxy names.
    pub user: Arc<str>,
    /// What it may do.
    pub role: Role,
}

/// What the API answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body; null if it is empty.
    pub body: Value,
}

impl Answer {
    /// A refusal in the form of the API's problems.
    #[must_use]
    pub fn refused(status: StatusCode, kind: &str, detail: impl fmt::Display) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let kind = format!("urn:tidings:problem:{kind}");
        let body = json!({"type": kind, "title": title, "status": status.as_u16(), "detail": detail.to_string()});
        Self { status, body }
    }
}

/// See [`Api::call`].
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// The HTTP API.
pub trait Api: Send + Sync {
    /// Who holds this API key; `None`: nobody.
    fn holder(&self, key: &str) -> Option<Caller>;

    /// The caller for a user whom a trusted proxy names; `None`: no user comes through a proxy.
    fn proxied(&self, user: &str, role: Role) -> Option<Caller>;

    /// Calls a route as `caller`. `path` may have a query.
    fn call<'a>(&'a self, caller: &'a Caller, method: Method, path: &'a str, body: Option<Value>) -> AnswerFuture<'a>;
}
