//! `/v1/texts`: the topics and translations in force, a reload of them, and the way back.
//!
//! A reload takes over all that it reads or nothing. What is wrong is in the answer's `faults`; then the texts before stay in
//! force. One step back is kept, until the next reload that changes something.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::problem::{Kind, Problem, json};
use crate::shared::Shared;

pub(crate) async fn view(State(shared): State<Arc<Shared>>) -> Response {
    json(StatusCode::OK, &shared.texts.view())
}

pub(crate) async fn reload(State(shared): State<Arc<Shared>>) -> Response {
    json(StatusCode::OK, &shared.texts.reload().await)
}

pub(crate) async fn roll_back(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let back = shared.texts.roll_back().await;
    let none = || Problem::new(Kind::NotFound, "there are no texts to roll back to".to_owned());
    Ok(json(StatusCode::OK, &back.ok_or_else(none)?))
}
