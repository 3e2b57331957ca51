//! `/v1/brakes`: pausing and resuming the pushes of everything, of an app, of a topic or of a provider.
//!
//! A brake is a durable row of the store; the sender follows it. Paused pushes are kept, expire at their own time, and
//! continue where they stopped. Notifications that a provider already has are not called back. To pause twice changes
//! nothing, so a request may be repeated. To resume what is not paused is an error, because the name may be misspelt.
//!
//! Bound: [`tidings_store::PAUSE_COUNT_MAX`] brakes, so one answer has all of them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_telemetry::unix_now;
use tidings_types::{BrakeScope, Timestamp};

use crate::guard::IdPath;
use crate::problem::{Kind, Problem, json};
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;

#[derive(Debug, Serialize)]
struct Brake<'a> {
    scope: &'a BrakeScope,
    paused_at: Rfc3339,
}

impl<'a> Brake<'a> {
    fn new((scope, at): (&'a BrakeScope, &Timestamp)) -> Self {
        Self { scope, paused_at: Rfc3339(*at) }
    }
}

pub(crate) async fn brakes(State(shared): State<Arc<Shared>>) -> Response {
    #[derive(Serialize)]
    struct List<'a> {
        brakes: Vec<Brake<'a>>,
    }
    let brakes = shared.store.brakes().borrow().clone();
    json(StatusCode::OK, &List { brakes: brakes.paused.iter().map(Brake::new).collect() })
}

pub(crate) async fn pause(
    State(shared): State<Arc<Shared>>,
    IdPath(scope): IdPath<BrakeScope>,
) -> Result<Response, Problem> {
    let now = unix_now();
    let is_new = shared.store.pause(scope.clone(), now).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    // Since when it was paused already. Another caller may have resumed it in the meantime.
    let since = shared.store.brakes().borrow().paused.get(&scope).copied().unwrap_or(now);
    Ok(json(status, &Brake::new((&scope, &since))))
}

pub(crate) async fn resume(
    State(shared): State<Arc<Shared>>,
    IdPath(scope): IdPath<BrakeScope>,
) -> Result<Response, Problem> {
    if !shared.store.resume(scope.clone()).await? {
        return Err(Problem::new(Kind::NotFound, format!("{scope} is not paused")));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
