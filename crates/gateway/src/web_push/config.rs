//! What an operator can say about sending to browsers with one key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidings_push::PoolGauge;
use tidings_push::web_push::guard::EndpointRules;
use tidings_push::web_push::vapid::VapidTokens;

use super::network::Network;

/// Settings of a [`crate::WebPushGateway`]. Plain values; the defaults are the binary's.
#[derive(Clone)]
pub struct WebPushConfig {
    /// The pool's name in logs and metrics.
    pub name: String,
    /// Who we are, to begin with; see [`crate::WebPushGateway::reload`].
    pub vapid: Arc<VapidTokens>,
    /// Which endpoints are asked. Those that admit private addresses are for development.
    pub rules: EndpointRules,
    /// Certificates (PEM) to trust instead of the system's: for simulators and tests.
    pub ca_pem: Option<String>,
    /// Most origins with connections at a time.
    pub origin_count_max: usize,
    /// Most connections to one origin; over HTTP/1.1 each has one request under way.
    pub connection_count_max: usize,
    /// Most notifications held: queued, under way, waiting for a repeat. A third for each priority, at least 3.
    pub held_max: usize,
    /// Threads that encrypt and speak TLS; one does some 14 000 notifications a second.
    pub thread_count: usize,
    /// How long resolving, TCP and TLS may take together.
    pub connect_timeout: Duration,
    /// How long a request may wait for its answer, once its connection is made.
    pub answer_timeout: Duration,
    /// How long a connection is kept without use.
    pub idle_timeout: Duration,
    /// Names and sockets: [`crate::SystemNetwork`], but for tests.
    pub network: Arc<dyn Network>,
    /// Where to tell how fast it is.
    pub gauge: Arc<PoolGauge>,
}

impl WebPushConfig {
    /// The numbers that must be at least what is beside them.
    pub(super) fn minima(&self) -> [(&'static str, u128); 7] {
        [
            ("origin_count_max", self.origin_count_max as u128),
            ("connection_count_max", self.connection_count_max as u128),
            ("held_max", (self.held_max / super::origins::LEVELS) as u128),
            ("thread_count", self.thread_count as u128),
            ("connect_timeout", self.connect_timeout.as_millis()),
            ("answer_timeout", self.answer_timeout.as_millis()),
            ("idle_timeout", self.idle_timeout.as_millis()),
        ]
    }
}

// Certificates to trust are long and say nothing.
impl fmt::Debug for WebPushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebPushConfig")
            .field("name", &self.name)
            .field("vapid", &self.vapid)
            .field("rules", &self.rules)
            .field("origin_count_max", &self.origin_count_max)
            .field("connection_count_max", &self.connection_count_max)
            .field("held_max", &self.held_max)
            .field("thread_count", &self.thread_count)
            .finish_non_exhaustive()
    }
}
