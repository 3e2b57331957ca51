//! What notifications may hold in memory between the sender and the answer of a provider.

use tidings_telemetry::memory::Term;

/// A waiting notification: ids, a token of about 200 bytes (a browser's endpoint is as long), and its place in the lake.
/// Notifications share the payload.
const NOTIFICATION_BYTES: usize = 512;
/// A notification in flight: the same, an HTTP/2 stream, headers, and a payload of at most 4 KiB until it is written.
const IN_FLIGHT_BYTES: usize = 6 << 10;
/// Notifications that may wait for a retry, per notification that may be in flight.
const WAITING_FACTOR: usize = 16;
/// A connection to a browser's push service: buffers of HTTP/1.1 and TLS, and the notification in flight.
const BROWSER_BYTES: usize = 100 << 10;

/// What the gateways of a server have room for, all together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// Notifications in lakes.
    pub waiting: usize,
    /// Notifications in flight over HTTP/2.
    pub in_flight: usize,
    /// Connections to browsers' push services, quarantines included.
    pub browser_connections: usize,
}

impl Room {
    /// What fills it.
    pub fn memory_terms(self) -> Vec<Term> {
        let Self { waiting, in_flight, browser_connections } = self;
        let (repeats, streams) =
            (WAITING_FACTOR.saturating_mul(in_flight), "*.connection_count_max, *.stream_count_max");
        let browsers = "web_push.*.origin_count_max, web_push.*.connection_count_max";
        vec![
            Term::peak("lakes", waiting, NOTIFICATION_BYTES, "*.lake_capacity, a lake for each priority"),
            Term::peak("in flight", in_flight, IN_FLIGHT_BYTES, streams),
            Term::peak("repeats", repeats, NOTIFICATION_BYTES, streams),
            Term::peak("browser services", browser_connections, BROWSER_BYTES, browsers),
        ]
    }
}
