//! The HTTP listeners.

use crate::metric::{Group, Metric, group};

group! {
    "HTTP listeners";

    /// Connections closed as they came: their address has too many (`address`), or too few files are left (`files`).
    REFUSED_TOTAL = Metric::counter("tidings_http_refused_total").labels(&["reason"]).panel("Refused connections");

    /// Connections closed because their peer took no byte for http.stall_timeout.
    STALLED_TOTAL = Metric::counter("tidings_http_stalled_total").panel("Stalled connections");

    /// Connections closed because their TLS handshake failed or took too long.
    TLS_FAILED_TOTAL = Metric::counter("tidings_http_tls_failed_total").panel("Failed TLS handshakes");
}
