//! What an operator can say about one provider pool: one environment, one credential.

use std::fmt;
use std::time::Duration;

/// Settings of a [`crate::Gateway`]. Plain values; the defaults are the binary's.
#[derive(Clone)]
pub struct GatewayConfig {
    /// Where to connect: a name, resolved afresh for each connection, or an address.
    pub host: String,
    /// TCP port: APNs listens on 443 and 2197.
    pub port: u16,
    /// The name in the provider's certificate, also the requests' authority.
    pub server_name: String,
    /// Certificates (PEM) to trust instead of the system's: for simulators and tests.
    pub ca_pem: Option<String>,
    /// The signing key's name, ten characters.
    pub key_id: String,
    /// The team's name, ten characters.
    pub team_id: String,
    /// The signing key, the text of the `.p8` file.
    pub key_pem: String,
    /// Connections in all, at least one per thread.
    pub connection_count: usize,
    /// Threads that drive them; one does more than 150 000 notifications a second.
    pub thread_count: usize,
    /// Most streams per connection, whatever the provider allows.
    pub streams_max: u32,
    /// How long resolving, TCP and TLS may take together.
    pub connect_timeout: Duration,
    /// A connection from which nothing came for this long, although a PING asked for it, is closed.
    pub stall_timeout: Duration,
    /// How long one request may wait for its answer on a connection that is alive.
    pub answer_timeout: Duration,
}

// The key never reaches a log (invariant 9).
impl fmt::Debug for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("server_name", &self.server_name)
            .field("key_id", &self.key_id)
            .field("team_id", &self.team_id)
            .field("connection_count", &self.connection_count)
            .field("thread_count", &self.thread_count)
            .field("streams_max", &self.streams_max)
            .finish_non_exhaustive()
    }
}
