//! `GET /v1/store/backup`: all that the store holds, as of one commit, in one stream of bytes.
//!
//! Whoever has them has every device's address and can push to it, and knows the hash of every credential: the scope
//! `backup` is of its own, and no key has it unless it is named. `tidings store backup` takes them into a file and checks
//! them on the way; what ends too early is no backup, which its missing end shows.
//!
//! Bounds: one at a time, one more is refused. A block of a mebibyte is made when the reader has taken the one before, on
//! a thread that may block; a reader who takes nothing for a minute is given up by the store. As long as it is read it takes
//! a place of `Shared::waiting_place`. A reader who goes away ends it.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tidings_store::backup::{Backup, BackupError};
use tidings_telemetry::chain;
use tracing::{error, info};

use crate::auth::Caller;
use crate::problem::{Kind, Problem};
use crate::shared::{Shared, blocking};

/// What a backup is called among media types.
const BYTES: &str = "application/octet-stream";

pub(crate) async fn backup(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let place = shared.waiting_place(&caller)?;
    let store = shared.store.clone();
    let backup = blocking(move || store.begin_backup()).await?.map_err(refusal)?;
    info!(commit = backup.summary().commit, "Backup begun");
    let blocks = stream::unfold(Some((backup, place)), async |state| {
        let (backup, place) = state?;
        let next = blocking(move || next(backup)).await.map_err(|problem| io::Error::other(problem.into_detail()));
        match next.and_then(|next| next.map_err(io::Error::other)) {
            Ok((backup, Some(block))) => Some((Ok(block), Some((backup, place)))),
            Ok((backup, None)) => {
                let summary = backup.summary();
                info!(commit = summary.commit, bytes = summary.bytes, "Backup made");
                None
            }
            // The connection breaks off with it: the reader must not take what it has for all.
            Err(error) => {
                error!(error = chain(&error), "Backup broke off");
                Some((Err(error), None))
            }
        }
    });
    let headers = [(CONTENT_TYPE, BYTES), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(blocks)).into_response())
}

fn next(mut backup: Backup) -> Result<(Backup, Option<Bytes>), BackupError> {
    let block = backup.next_block()?;
    Ok((backup, block.map(Bytes::from)))
}

fn refusal(error: BackupError) -> Problem {
    match error {
        BackupError::Busy => {
            Problem::new(Kind::Overloaded, "one backup is made at a time, and one is being made").limit(1)
        }
        BackupError::Engine(error) => tidings_store::ReadError::from(error).into(),
        error => {
            error!(error = chain(&error), "No backup can be made");
            Problem::new(Kind::Unavailable, "the store cannot be backed up now")
        }
    }
}
