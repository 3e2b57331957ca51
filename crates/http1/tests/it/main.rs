//! The client with a correct server, a server over TLS and a faulty server, and the parser compared with another parser.

mod chaos;
mod differential;
mod hyper_server;
mod review;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use tidings_http1::{Client, ClientConfig, Limits, Origin};
use tidings_pool::Reconnect;
use tokio::time::{Instant, sleep};

/// A deadline for things that must happen soon.
const SOON: Duration = Duration::from_secs(20);

fn config(connection_count: usize) -> ClientConfig {
    let mut config = ClientConfig::new("test", connection_count);
    config.limits = Limits { head_bytes_max: 4096, body_bytes_max: 64 * 1024 };
    config.pool.reconnect = Reconnect { min: Duration::from_millis(1), max: Duration::from_millis(20) };
    config
}

fn client(address: SocketAddr, config: ClientConfig) -> Client {
    let origin: Origin = format!("http://{address}").parse().unwrap();
    Client::start(&origin, config).unwrap()
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}
