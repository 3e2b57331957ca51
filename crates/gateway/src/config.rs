//! What an operator can say about one provider pool: one environment, one credential.

use std::fmt;
use std::time::Duration;

use crate::Credential;

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
    /// Who we are, to begin with; see [`crate::Gateway::reload`].
    pub credential: Credential,
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

// Certificates to trust are long and say nothing.
impl fmt::Debug for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("server_name", &self.server_name)
            .field("credential", &self.credential)
            .field("connection_count", &self.connection_count)
            .field("thread_count", &self.thread_count)
            .field("streams_max", &self.streams_max)
            .finish_non_exhaustive()
    }
}
