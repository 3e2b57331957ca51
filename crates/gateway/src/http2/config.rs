//! The settings of one provider pool: one environment, one credential.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidings_push::{Dialect, PoolGauge};

use super::credential::Credential;

/// Settings of a [`crate::Gateway`]. Plain values; the defaults are the binary's.
#[derive(Clone)]
pub struct GatewayConfig {
    /// The pool's name in logs and metrics.
    pub name: String,
    /// The provider's language.
    pub dialect: Arc<dyn Dialect>,
    /// Where to connect: a name, resolved afresh for each connection, or an address.
    pub host: String,
    /// TCP port: APNs listens on 443 and 2197.
    pub port: u16,
    /// Where to connect instead of asking for the addresses of `host`; usually empty.
    pub addresses: Vec<SocketAddr>,
    /// The name in the provider's certificate.
    pub server_name: String,
    /// Certificates (PEM) to trust instead of the system's: for simulators and tests.
    pub ca_pem: Option<String>,
    /// Who we are, to begin with; see [`crate::Gateway::reload`].
    pub credential: Credential,
    /// Connections that are always kept, over all threads, at least one per thread.
    pub connection_count_min: usize,
    /// Most connections. More than the minimum are opened while the open ones have no room for what waits.
    pub connection_count_max: usize,
    /// Threads that drive them; one does more than 150 000 notifications a second.
    pub thread_count: usize,
    /// Most streams per connection, whatever the provider allows.
    pub streams_max: u32,
    /// Requests per minute that the provider takes from us, over all connections; `None` without such a quota.
    pub quota_per_minute: Option<u32>,
    /// After each quiet time, sending starts with a tenth of the quota and takes this long to reach all of it. Zero:
    /// starts with all.
    pub quota_ramp: Duration,
    /// Notifications per second that must go out even if the provider has lowered every limit, by opening more
    /// connections up to the maximum. This is for a pool of unproven tokens. `None`: lowered limits are no reason for
    /// another connection.
    pub rate_floor: Option<u32>,
    /// How long resolving, TCP and TLS may take together.
    pub connect_timeout: Duration,
    /// A connection that sent nothing for this long, although it got a PING, is closed.
    pub stall_timeout: Duration,
    /// How long one request may wait for its answer on a connection that is alive.
    pub answer_timeout: Duration,
    /// How long a connection without open streams may be silent before a PING; `None`: then none is sent.
    pub ping_idle: Option<Duration>,
    /// The shortest time between two PINGs: providers close connections that send many.
    pub ping_interval_min: Duration,
    /// Where to tell how fast it is.
    pub gauge: Arc<PoolGauge>,
}

// Without the certificates to trust, which are long and not useful.
impl fmt::Debug for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayConfig")
            .field("name", &self.name)
            .field("provider", &self.dialect.provider())
            .field("host", &self.host)
            .field("port", &self.port)
            .field("server_name", &self.server_name)
            .field("credential", &self.credential)
            .field("connection_count_min", &self.connection_count_min)
            .field("connection_count_max", &self.connection_count_max)
            .field("thread_count", &self.thread_count)
            .field("streams_max", &self.streams_max)
            .field("quota_per_minute", &self.quota_per_minute)
            .field("quota_ramp", &self.quota_ramp)
            .field("rate_floor", &self.rate_floor)
            .finish_non_exhaustive()
    }
}
