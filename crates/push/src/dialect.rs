//! What differs between providers that are asked over HTTP, one notification at a time.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use tidings_types::{Provider, Timestamp};

use crate::{Notification, Reason, Verdict};

/// A provider's language: how a notification is put, and what the answer means.
pub trait Dialect: Send + Sync + 'static {
    /// Whose it is.
    fn provider(&self) -> Provider;

    /// The request that carries `notification`: its head, without a length, and its body.
    ///
    /// `authorization` is the credential's header value; none on a connection with a certificate. `random` fills a
    /// buffer with random bytes fit for keys; it is called only where the provider's encryption needs them. `now` says
    /// how long the provider may still keep it.
    ///
    /// # Errors
    /// When it can never be sent, for example because a browser's key is no key: it is rejected with this reason.
    fn request(
        &self,
        notification: &Notification,
        authorization: Option<&HeaderValue>,
        random: &mut dyn FnMut(&mut [u8]),
        now: Timestamp,
    ) -> Result<(Request<()>, Bytes), Reason>;

    /// Reads an answer. `body` is its beginning, at most [`crate::ANSWER_BYTES_MAX`] bytes; that of a 2xx need not be
    /// read at all. Anything unreadable in it counts as not said.
    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict;

    /// Whether a connection that authenticates with a token may have one stream only until its first request was
    /// accepted.
    fn proves_first(&self) -> bool;

    /// The most bytes of body that [`Dialect::request`] makes.
    fn payload_bytes_max(&self) -> usize;
}
