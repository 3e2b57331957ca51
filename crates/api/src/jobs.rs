//! `GET /v1/jobs` and `GET /v1/jobs/{position}`.
//!
//! The jobs come from [`Jobs`]; the API does not know the sender. A job is named by its event's position in the
//! journal. Finished jobs are remembered for a while. Lists have the newest job first and end with the oldest
//! remembered one. A caller that asks for lines (`Accept: application/x-ndjson`) gets all remembered jobs with their
//! parts, one JSON object per line.
//!
//! Bounds: lines are made for [`EXPORT_PAGE_COUNT`] jobs at a time, with the bounds of `pages`. The component that runs
//! a job bounds its parts.

use std::future::ready;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_types::JournalPosition;

use crate::auth::Caller;
use crate::format::{LINES, prefers_lines};
use crate::guard::IdPath;
use crate::job::{JobEntry, JobView, Jobs};
use crate::pages::{self, Page};
use crate::problem::{Kind, Problem, json};
use crate::query::{Params, Place};
use crate::shared::Shared;

/// Jobs that are written at once if the caller wants all as lines.
const EXPORT_PAGE_COUNT: usize = 100;

/// A page of the jobs, newest first; or, as lines, all of them.
pub(crate) async fn jobs(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Page {
        jobs: Vec<JobEntry>,
        /// The `before` of the next page; absent on the last page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<JournalPosition>,
    }
    let is_export = prefers_lines(&headers);
    let mut params = Params::read(&uri, if is_export { &["before"] } else { &["before", "limit"] })?;
    let before = params.before()?;
    if is_export {
        return export(shared, &caller, before);
    }
    let limit = params.limit()?;
    let mut jobs = shared.jobs.jobs(before, limit + 1); // One more tells whether there is a next page.
    let is_last = jobs.len() <= limit;
    jobs.truncate(limit);
    let next = jobs.last().filter(|_| !is_last).map(|job| job.position);
    let without_parts = |job| JobEntry::from(JobView { by: Vec::new(), ..job });
    Ok(json(StatusCode::OK, &Page { jobs: jobs.into_iter().map(without_parts).collect(), next }))
}

fn export(shared: Arc<Shared>, caller: &Caller, before: Option<JournalPosition>) -> Result<Response, Problem> {
    let place = shared.waiting_place(caller)?;
    let first = lines(&*shared.jobs, before);
    let pages = pages::body(place, first, move |last| ready(Ok(lines(&*shared.jobs, Some(last)))));
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(LINES))], pages).into_response())
}

fn lines(jobs: &dyn Jobs, before: Option<JournalPosition>) -> Page<JournalPosition> {
    let page = jobs.jobs(before, EXPORT_PAGE_COUNT);
    let last = page.last().map(|job| job.position);
    let mut lines = Vec::new();
    for job in page {
        serde_json::to_writer(&mut lines, &JobEntry::from(job)).expect("our own shapes have string keys");
        lines.push(b'\n');
    }
    (lines.into(), last)
}

/// One job, with its parts.
pub(crate) async fn job(
    State(shared): State<Arc<Shared>>,
    IdPath(Place(position)): IdPath<Place>,
) -> Result<Response, Problem> {
    let job = shared.jobs.job(position).ok_or_else(|| {
        Problem::new(Kind::NotFound, format!("there is no job at the position {}, or it was forgotten", position.0))
    })?;
    Ok(json(StatusCode::OK, &JobEntry::from(job)))
}
