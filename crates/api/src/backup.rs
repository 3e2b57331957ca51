//! `GET /v1/store/backup`: everything in the store, as of one commit, in one stream of bytes.
//!
//! A backup has every device's address, so its holder can push to every device; it also has the hash of every
//! credential. So it needs a scope of its own, `backup`, which a key has only if the configuration names it.
//! `tidings store backup` writes the stream into a file and checks it. A stream that is cut off is not a backup: its
//! end is missing.
//!
//! Bounds: one backup at a time; a further request is refused. A block of 1 MiB is made when the reader has taken the
//! block before, on a thread that may block. The store gives up a reader that takes nothing for a minute. While it is
//! read, a backup takes a place of `Shared::waiting_place`. When the reader disconnects, the backup ends.

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

/// The media type of a backup.
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
            // The connection breaks off, so that the reader does not take the stream for a whole backup.
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
        BackupError::Busy => Problem::new(
            Kind::Overloaded,
            "another backup is being made, and only one is made at a time: try again later",
        )
        .limit(1),
        BackupError::Engine(error) => tidings_store::ReadError::from(error).into(),
        error => {
            error!(error = chain(&error), "A backup failed");
            Problem::new(Kind::Unavailable, "the store cannot be backed up now: see the server's log")
        }
    }
}
