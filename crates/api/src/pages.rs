//! Answers that are made one page at a time, when the reader has taken the pages before.
//!
//! Bounds: two pages of an answer are in memory, and the pieces of one that are being sent. An answer holds a place of
//! `Shared::waiting_place`. If a reader takes no piece of [`PIECE_BYTES`] for [`IDLE_MAX`], the place is freed and the
//! connection breaks off, so that the reader does not take the part for the whole.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tidings_telemetry::chain;
use tidings_telemetry::panics::{self, Work};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info};

/// Bytes that are handed to the connection at once: a page may be large, and its reader slow.
const PIECE_BYTES: usize = 64 << 10;

/// How long a piece waits for its reader.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(10);

/// A page, and where the next one begins, unless it is the last.
pub(crate) type Page<C> = (Bytes, Option<C>);

/// A body of `first` and the pages that `next` makes, each from the end of the page before.
pub(crate) fn body<C, N, F>(place: OwnedSemaphorePermit, first: Page<C>, next: N) -> Body
where
    C: Send + 'static,
    N: FnMut(C) -> F + Send + 'static,
    F: Future<Output = io::Result<Page<C>>> + Send + 'static,
{
    let (sender, pages) = mpsc::channel(1);
    // A task of its own, so that it ends if nobody reads. It ends with the answer at the latest.
    let mut making = JoinSet::new();
    making.spawn(panics::catch_async(Work::Request, make(place, first, next, sender)));
    Body::from_stream(stream::unfold(Some((pages, making)), async |state| {
        let (mut pages, mut making) = state?;
        if let Some(page) = pages.recv().await {
            return Some((Ok(page), Some((pages, making))));
        }
        let ended =
            making.join_next().await?.map_err(io::Error::other).and_then(|ran| ran.map_err(io::Error::other)?);
        ended.err().map(|error| (Err(error), None))
    }))
}

async fn make<C, F: Future<Output = io::Result<Page<C>>>>(
    _place: OwnedSemaphorePermit,
    (mut page, mut cursor): Page<C>,
    mut next: impl FnMut(C) -> F,
    pages: mpsc::Sender<Bytes>,
) -> io::Result<()> {
    loop {
        while !page.is_empty() {
            let piece = page.split_to(page.len().min(PIECE_BYTES));
            match timeout(IDLE_MAX, pages.send(piece)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ok(()), // The reader has disconnected.
                Err(_) => {
                    info!("An answer was cut off because its reader takes nothing");
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        let Some(at) = cursor else { return Ok(()) };
        (page, cursor) = next(at).await.inspect_err(|error| error!(error = chain(&error), "An answer broke off"))?;
    }
}
