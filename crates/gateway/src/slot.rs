//! One place for a connection: makes one, lets it work until it ends, makes the next.
//!
//! A connection that could not be made, or ended without a single final answer, delays the next one (full jitter, up to 10 s);
//! a refused credential delays it up to a minute. One that was of use is replaced at once.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidings_buffer::Consumer;
use tidings_push::Notification;
use tidings_push::retry::{BACKOFF_BASE, BACKOFF_CAP, backoff};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::connect::Connector;
use crate::connection::{Connection, Shared};
use crate::pool::Pool;

/// Longest wait after a refused credential.
const CREDENTIAL_BACKOFF_CAP: Duration = Duration::from_secs(60);
/// Shortest window of that wait: an operator has to act, seconds do not matter.
const CREDENTIAL_BACKOFF_BASE: Duration = Duration::from_secs(1);
/// A connection that lived this long was of use, even if nothing was sent on it.
const USEFUL_LIFE: Duration = Duration::from_secs(30);

/// Keeps a connection in place `slot`. Never ends; it is dropped when the gateway stops.
pub(crate) async fn keep_connected(
    slot: usize,
    connector: Rc<Connector>,
    shared: Rc<Shared>,
    pool: Rc<RefCell<Pool>>,
    mut consumer: Consumer<Notification>,
) {
    let mut failures = 0u32;
    loop {
        let (mut base, mut cap) = (BACKOFF_BASE, BACKOFF_CAP);
        match connector.connect().await {
            Err(error) => {
                failures += 1;
                shared.metrics.connect_failures.inc();
                let error = chain(&error);
                warn!(provider = "apns", slot, attempt = failures, error, "Cannot connect");
            }
            Ok(link) => {
                let opened_at = Instant::now();
                shared.metrics.connections_opened.inc();
                info!(provider = "apns", slot, "Connected");
                let end = Connection::new(slot, &shared, &pool, &mut consumer, link).run().await;
                shared.metrics.connections_closed.inc();
                let useful = end.useful || opened_at.elapsed() >= USEFUL_LIFE;
                if let Some(reason) = end.credential_refused {
                    (base, cap) = (CREDENTIAL_BACKOFF_BASE, CREDENTIAL_BACKOFF_CAP);
                    failures += 1;
                    error!(provider = "apns", slot, reason = reason.as_str(), "Provider refuses the credential");
                } else {
                    failures = if useful { 0 } else { failures + 1 };
                    info!(provider = "apns", slot, elapsed = opened_at.elapsed().as_secs_f64(), "Disconnected");
                }
            }
        }
        if failures > 0 {
            sleep(backoff(base, cap, failures, rand::random())).await;
        }
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
