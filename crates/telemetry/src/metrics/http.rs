//! The HTTP listeners.

use crate::metric::{Group, Metric, group};

group! {
    "HTTP listeners";

    /// Connections closed as they came, because their address has too many (`address`) or too few files are left (`files`), and
    /// requests of clients refused with 503, because too many bodies wait (`bodies`).
    REFUSED_TOTAL = Metric::counter("tidings_http_refused_total")
        .labels(&["reason"])
        .panel("Refused connections and requests");

    /// Connections closed because their peer took no byte for http.stall_timeout.
    STALLED_TOTAL = Metric::counter("tidings_http_stalled_total").panel("Stalled connections");

    /// Seconds until the certificate of the public listener ends; 0 when it has ended.
    CERTIFICATE_EXPIRY_SECONDS = Metric::gauge("tidings_http_certificate_expiry_seconds")
        .when("http.tls has a certificate")
        .panel("Time until a certificate ends");

    /// Connections closed because their TLS handshake failed or took too long.
    TLS_FAILED_TOTAL = Metric::counter("tidings_http_tls_failed_total").panel("Failed TLS handshakes");
}
