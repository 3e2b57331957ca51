//! `/v1/feeds`: the state of feeds, documents that are posted, and reading a feed at once.
//!
//! A document is read as it arrives, and each of its entries that is to be sent becomes an event. Entries that were sent
//! before are not sent again, so a document may be posted again as a whole after any failure. A document that is
//! malformed is refused with the place of the mistake; the entries before this place were sent.
//!
//! Bounds: each piece of the body must arrive within [`BODY_TIMEOUT`]; the feed bounds the bytes. A document takes a place
//! of the requests that wait, and so does a request to read a feed.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidings_types::FeedName;
use tokio::time::timeout;

use crate::auth::Caller;
use crate::feed::{FeedBody, FeedView, Feeds};
use crate::guard::{BODY_TIMEOUT, IdPath};
use crate::problem::{Kind, Problem, json};
use crate::shared::Shared;

/// How long the rest of a body is read after a refusal, so that a sender that is still sending sees the answer.
const LINGER: Duration = Duration::from_secs(5);

pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Response {
    #[derive(Serialize)]
    struct List {
        feeds: Vec<FeedView>,
    }
    json(StatusCode::OK, &List { feeds: shared.feeds.as_ref().map(|feeds| feeds.list()).unwrap_or_default() })
}

pub(crate) async fn receive(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    IdPath(name): IdPath<FeedName>,
    request: Request,
) -> Result<Response, Problem> {
    if caller.audience_max().is_some() {
        let detail = format!("the key {} has an audience_max, which a feed cannot keep", caller.name());
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    let _place = shared.waiting_place(&caller)?;
    let (parts, body) = request.into_parts();
    let mut body = FeedBody::new(body, BODY_TIMEOUT);
    match feeds(&shared, &name)?.receive(name, parts.headers, body.clone()).await {
        Ok(report) => Ok(json(StatusCode::OK, &report)),
        Err(refusal) => {
            let _ = timeout(LINGER, async { while let Some(Ok(_)) = body.next().await {} }).await; // Either way it is over.
            Err(refusal.into())
        }
    }
}

pub(crate) async fn poll(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    IdPath(name): IdPath<FeedName>,
) -> Result<Response, Problem> {
    let _place = shared.waiting_place(&caller)?;
    Ok(json(StatusCode::OK, &feeds(&shared, &name)?.poll(name).await?))
}

fn feeds<'s>(shared: &'s Shared, name: &FeedName) -> Result<&'s dyn Feeds, Problem> {
    let feeds = shared.feeds.as_deref();
    feeds.ok_or_else(|| Problem::new(Kind::NotFound, format!("no feed is called {name}: none is configured")))
}
