//! `GET /v1/audit`: who changed what, the newest first.
//!
//! Bounds: a page as everywhere; `tidings_audit` bounds what one request looks at. With a filter that lets little through, a
//! page may be empty and still have a `next`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tidings_audit::{Cursor, Entry, Query};
use tidings_telemetry::chain;
use tracing::error;

use crate::input::shown;
use crate::problem::{Invalid, Kind, Problem, json};
use crate::query::Params;
use crate::shared::{Shared, stopping};

#[derive(Serialize)]
struct Page {
    entries: Vec<Named>,
    /// The `before` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Cursor>,
    #[serde(skip_serializing_if = "is_zero")]
    damaged: u64,
}

#[derive(Serialize)]
struct Named {
    id: Cursor,
    #[serde(flatten)]
    entry: Entry,
}

pub(crate) async fn audit(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Problem> {
    let mut params = Params::read(&uri, &["before", "limit", "action", "who"])?;
    let before = params.take("before").map(|before| cursor(&before)).transpose()?;
    let limit = params.limit()?;
    let query = Query { before, limit, action: params.take("action"), who: params.take("who") };
    let Some(audit) = shared.audit.clone() else {
        return Err(Problem::new(Kind::NotFound, "there is no audit log: audit.enabled is false"));
    };
    let read = shared.read_page(move |_| audit.read(&query)).await.ok_or_else(stopping)?;
    let tidings_audit::Page { entries, next, damaged } = read.map_err(|error| {
        error!(error = chain(&error), "Cannot read the audit log");
        Problem::new(Kind::Unavailable, "the audit log cannot be read now: see the server's log")
    })?;
    let entries = entries.into_iter().map(|(id, entry)| Named { id, entry }).collect();
    Ok(json(StatusCode::OK, &Page { entries, next, damaged }))
}

fn cursor(text: &str) -> Result<Cursor, Invalid> {
    text.parse().map_err(|error| {
        let got = shown(text);
        Invalid::new("before", format_args!("{error}, got {got:?}")).value(got)
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
