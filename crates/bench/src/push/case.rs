//! The cases: how the provider behaves in a measurement, and the rate that this allows at best.

use std::fmt;

/// Flow windows: HTTP/2's initial one, and one that is never the limit.
const NARROW: u32 = 64 << 10;
const WIDE: u32 = 8 << 20;
/// Seconds that an event takes with a slow provider. Then the first and the last round trip, in which not all streams
/// are used, are a few hundredths of the whole.
const SLOW_SECONDS: f64 = 5.0;
/// An upper limit for the assumed rate, in devices per second, whatever the streams allow.
const RATE_MAX: f64 = 150_000.0;

/// How the provider behaves, and the number of connections to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) round_trip_ms: u32,
    pub(super) streams: u32,
    pub(super) connections: u32,
    /// Bytes that may be in flight on one connection before the provider acknowledges them.
    pub(super) window_bytes: u32,
    /// Whether other senders are measured too.
    pub(super) with_peers: bool,
}

const fn case(round_trip_ms: u32, connections: u32, streams: u32) -> Case {
    Case { round_trip_ms, streams, connections, window_bytes: WIDE, with_peers: false }
}

/// No round trip; two connections, the server's default.
pub(super) const NEAR: Case = Case { with_peers: true, ..case(0, 2, 1000) };

/// The case for which the goal of the model is stated.
pub(super) const FAR: Case = Case { with_peers: true, ..case(100, 13, 1000) };

/// The cases without `--full`: everything that can be the limit is the limit in one of them.
const SELECTION: [Case; 6] = [
    NEAR,
    case(0, 2, 100),
    FAR,
    case(100, 10, 100),
    case(50, 10, 500),
    Case { window_bytes: NARROW, ..case(150, 10, 1000) },
];

/// Cases of Pushy's server, which has no round trip and its own windows.
const OF_PUSHY: [Case; 2] = [NEAR, Case { with_peers: true, ..case(0, 2, 100) }];

/// The cases against the simulator.
pub(super) fn of_simulator(full: bool) -> Vec<Case> {
    if full { matrix() } else { SELECTION.to_vec() }
}

/// The cases against Pushy's server.
pub(super) fn of_pushy(full: bool) -> Vec<Case> {
    let more = full.then_some(Case { with_peers: true, ..case(0, 2, 500) });
    OF_PUSHY.into_iter().chain(more).collect()
}

/// Every combination of round trip, stream limit and window. Other senders are measured if the window does not matter.
fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    for round_trip_ms in [0, 50, 100, 150] {
        for streams in [1000, 500, 100] {
            for window_bytes in [WIDE, NARROW] {
                let connections = if round_trip_ms == 0 { NEAR.connections } else { FAR.connections };
                let with_peers = window_bytes == WIDE;
                cases.push(Case { round_trip_ms, streams, connections, window_bytes, with_peers });
            }
        }
    }
    cases
}

impl Case {
    /// Notifications per second that streams and windows allow, however fast both sides are; `None` without a round trip.
    pub(super) fn model_rate(self, payload_bytes: f64) -> Option<f64> {
        let in_flight = f64::from(self.streams).min(f64::from(self.window_bytes) / payload_bytes);
        let per_second = in_flight * f64::from(self.connections) * 1e3;
        (self.round_trip_ms > 0).then(|| per_second / f64::from(self.round_trip_ms))
    }

    /// Size of the audience: `wanted`, or what a slow provider can take in [`SLOW_SECONDS`].
    pub(super) fn device_count(self, wanted: u32, payload_bytes: f64) -> u32 {
        self.model_rate(payload_bytes).map_or(wanted, |rate| (rate.min(RATE_MAX) * SLOW_SECONDS) as u32)
    }

    /// Requests that may be in flight at the same time.
    pub(super) fn stream_count(self) -> u32 {
        self.connections * self.streams
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {} × {}", self.round_trip_ms, self.connections, self.streams)?;
        if self.window_bytes == WIDE { Ok(()) } else { write!(f, ", {} KiB", self.window_bytes >> 10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_the_smaller_of_streams_and_window() {
        assert_eq!(NEAR.model_rate(200.0), None);
        assert_eq!(FAR.model_rate(200.0), Some(130_000.0));
        let narrow = Case { window_bytes: 64 << 10, ..FAR };
        assert_eq!(narrow.model_rate(65.536), Some(130_000.0));
        assert_eq!(narrow.model_rate(655.36), Some(13_000.0));
    }

    #[test]
    fn a_slow_provider_gets_an_audience_for_five_seconds() {
        assert_eq!((NEAR.device_count(1234, 200.0), FAR.device_count(1234, 200.0)), (1234, 650_000));
        assert_eq!(Case { round_trip_ms: 1, ..FAR }.device_count(1, 200.0), 750_000);
    }

    #[test]
    fn the_matrix_has_all_combinations_and_the_cases_with_goals() {
        let matrix = of_simulator(true);
        assert_eq!(matrix.len(), 4 * 3 * 2);
        assert!(matrix.contains(&NEAR) && matrix.contains(&FAR));
        let mut names: Vec<_> = matrix.iter().map(Case::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), matrix.len());
        assert!(of_pushy(true).iter().all(|case| case.round_trip_ms == 0 && case.with_peers));
    }
}
