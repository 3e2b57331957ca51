//! What the clients of the user's back end share: trusted certificates, signatures, and log lines that do not repeat.

use std::path::Path;
use std::time::Duration;

use tidings_config::{Secret, WebhookKey, WebhookKeys, read_file};
use tidings_http1::{Request, Roots};
use tidings_types::Timestamp;
use tokio::time::Instant;

/// A failing back end is logged at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Requests to the user's back end cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// The file with the certificates to trust has gone since it was checked.
    #[error("cannot read {path}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The client refuses its settings, or the certificates.
    #[error("cannot make connections")]
    Client(#[from] tidings_http1::StartError),
}

/// The certificates to trust: those of the file, else those of the system.
pub(super) fn roots(ca_file: Option<&Path>) -> Result<Roots, OutgoingError> {
    let Some(file) = ca_file else { return Ok(Roots::Native) };
    let read = read_file(file).map(Roots::Pem);
    read.map_err(|source| OutgoingError::File { path: file.display().to_string(), source })
}

/// The secrets of a checked configuration; `None` if there are none.
pub(super) fn keys(current: Option<&Secret>, previous: Option<&Secret>) -> Option<WebhookKeys> {
    let key = |secret: &Secret| WebhookKey::parse(secret.expose()).expect("the check lets no other secret pass");
    Some(WebhookKeys { current: key(current?), previous: previous.map(key) })
}

/// Adds the headers by which the receiver knows that this body is from us, and from when.
pub(super) fn signed(request: Request, id: &str, body: &[u8], keys: &WebhookKeys, now: Timestamp) -> Request {
    let timestamp = (now.as_millis() / 1000).to_string();
    let signature = keys.signature(id, &timestamp, body);
    let headers = [("webhook-id", id), ("webhook-timestamp", &timestamp), ("webhook-signature", &signature)];
    let request = headers.into_iter().try_fold(request, |request, (name, value)| request.header(name, value));
    request.expect("these headers are plain text")
}

/// Limits the rate of a log line, and counts those held back.
#[derive(Default)]
pub(super) struct Said {
    at: Option<Instant>,
    held_back: u64,
}

impl Said {
    /// `Some` if the line is due, with the number of lines held back since the last one.
    pub(super) fn next(&mut self, now: Instant) -> Option<u64> {
        if self.at.is_some_and(|at| now < at + LOG_INTERVAL) {
            self.held_back += 1;
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}
