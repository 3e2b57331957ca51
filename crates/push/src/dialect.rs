//! The differences between providers that are called over HTTP, one notification at a time.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use tidings_types::{Provider, Timestamp};

use crate::{Notification, Reason, Verdict};

/// A provider's protocol: how a notification is sent, and what the answer means.
pub trait Dialect: Send + Sync + 'static {
    /// The provider.
    fn provider(&self) -> Provider;

    /// The request for `notification`: its head, without a length, and its body.
    ///
    /// `authorization` is the credential's header value; `None` on a connection with a certificate. `random` fills a
    /// buffer with random bytes fit for keys; it is called only if the provider's encryption needs them. `now` decides
    /// how long the provider may keep the notification.
    ///
    /// # Errors
    /// If it can never be sent, for example because a browser's key is invalid: it is rejected with this reason.
    fn request(
        &self,
        notification: &Notification,
        authorization: Option<&HeaderValue>,
        random: &mut dyn FnMut(&mut [u8]),
        now: Timestamp,
    ) -> Result<(Request<()>, Bytes), Reason>;

    /// Reads an answer. `body` is its beginning, at most [`crate::ANSWER_BYTES_MAX`] bytes; that of a 2xx need not be
    /// read. Unreadable parts are ignored.
    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict;

    /// Whether a connection with a token may have only one stream until its first request was accepted.
    fn proves_first(&self) -> bool;

    /// The most bytes of a body made by [`Dialect::request`].
    fn payload_bytes_max(&self) -> usize;
}
