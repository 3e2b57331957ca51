//! The settings of sending to browsers with one key, and its services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidings_push::web_push::guard::EndpointRules;
use tidings_push::web_push::vapid::VapidTokens;
use tidings_push::{Lakes, PoolGauge};

use super::network::Network;

/// Settings of a [`crate::WebPushGateway`]. Plain values; the defaults are the binary's.
#[derive(Clone)]
pub struct WebPushConfig {
    /// The section's name in logs.
    pub name: String,
    /// Who we are, to begin with; see [`crate::WebPushGateway::reload`].
    pub vapid: Arc<VapidTokens>,
    /// Certificates (PEM) to trust instead of the system's: for simulators and tests.
    pub ca_pem: Option<String>,
    /// Most connections to one origin; over HTTP/1.1 each has one request under way.
    pub connection_count_max: usize,
    /// Most notifications held of each service: queued, under way, waiting for a repeat. A third for each priority, at least 3.
    pub held_max: usize,
    /// Threads that encrypt and speak TLS for all services; one does some 14 000 notifications a second.
    pub thread_count: usize,
    /// How long resolving, TCP and TLS may take together.
    pub connect_timeout: Duration,
    /// How long a request may wait for its answer, once its connection is made.
    pub answer_timeout: Duration,
    /// How long a connection is kept without use.
    pub idle_timeout: Duration,
    /// Names and sockets: [`crate::SystemNetwork`], but for tests.
    pub network: Arc<dyn Network>,
}

/// The push services of one rule about hosts, or of its quarantine, with their own settings.
#[derive(Debug, Clone)]
pub struct WebPushService {
    /// The pool's name in logs and metrics.
    pub name: String,
    /// The endpoints that are allowed. Rules that admit private addresses are for development.
    pub rules: EndpointRules,
    /// Most origins with connections at a time.
    pub origin_count_max: usize,
    /// What is sent.
    pub lakes: Lakes,
    /// Where to tell how fast it is.
    pub gauge: Arc<PoolGauge>,
}

impl WebPushConfig {
    /// The numbers that must not be 0.
    pub(super) fn minima(&self) -> [(&'static str, u128); 6] {
        [
            ("connection_count_max", self.connection_count_max as u128),
            ("held_max", (self.held_max / super::origins::LEVELS) as u128),
            ("thread_count", self.thread_count as u128),
            ("connect_timeout", self.connect_timeout.as_millis()),
            ("answer_timeout", self.answer_timeout.as_millis()),
            ("idle_timeout", self.idle_timeout.as_millis()),
        ]
    }
}

// Without the certificates to trust, which are long and not useful.
impl fmt::Debug for WebPushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebPushConfig")
            .field("name", &self.name)
            .field("vapid", &self.vapid)
            .field("connection_count_max", &self.connection_count_max)
            .field("held_max", &self.held_max)
            .field("thread_count", &self.thread_count)
            .finish_non_exhaustive()
    }
}
