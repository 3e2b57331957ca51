//! The result of a match: what was handed in, who got it, how long it took, and what went wrong.

use std::time::Duration;

use serde::Serialize;
use tidings_telemetry::HistogramSnapshot;

use super::clients::{Crowd, CrowdVerdict};
use super::pushes::{PushVerdict, Pushes};
use super::view::{format_duration, grouped};

/// Everything measured. The fields are those of `tidings demo --once --json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    /// Events the server accepted.
    events: usize,
    /// Publications of them that clients received, each once per client and channel.
    deliveries: u64,
    /// Notifications of them that the provider accepted, each once per phone.
    pushes_accepted: u64,
    /// Notifications that were not needed: the app on the screen had proved that it got the event.
    pushes_saved: u64,
    /// What was owed and did not come, publications and notifications.
    lost: u64,
    /// What came again.
    duplicates: u64,
    /// What was nobody's to get, came out of order, or in other words than it should.
    wrong: u64,
    /// From sending the event to its arrival at a client.
    socket_latency_ms: Quantiles,
    /// From sending the event to the provider's acceptance.
    push_latency_ms: Quantiles,
    /// The same for the event with the largest audience: when that share of it was told.
    time_to_ms: TimeTo,
    /// Phones in that audience.
    audience: u64,
    devices: u32,
    clients: u32,
    /// From the kick-off to the last arrival.
    match_s: f64,
    /// From the start of the program to the verdict.
    elapsed_s: f64,
}

/// A distribution, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct TimeTo {
    p50: f64,
    p90: f64,
    p99: f64,
    p100: f64,
}

/// How big it was and how long it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) events: usize,
    pub(super) devices: u32,
    pub(super) clients: u32,
    /// The event with the largest audience, and how large that is.
    pub(super) largest: (usize, u64),
    pub(super) match_time: Duration,
    pub(super) elapsed: Duration,
}

impl Report {
    pub(super) fn new(
        extent: Extent,
        crowd: &Crowd,
        pushes: &Pushes,
        sockets: CrowdVerdict,
        phones: &PushVerdict,
    ) -> Self {
        let (largest, audience) = extent.largest;
        Self {
            events: extent.events,
            deliveries: crowd.delivered(),
            pushes_accepted: pushes.accepted(),
            pushes_saved: phones.saved,
            lost: sockets.lost + phones.lost,
            duplicates: sockets.duplicates + phones.duplicates,
            wrong: sockets.strangers + sockets.misplaced + phones.strangers + phones.wrong_texts,
            socket_latency_ms: Quantiles::of(&crowd.latency()),
            push_latency_ms: Quantiles::of(&pushes.latency()),
            time_to_ms: TimeTo::of(&pushes.latency_of(largest)),
            audience,
            devices: extent.devices,
            clients: extent.clients,
            match_s: seconds(extent.match_time),
            elapsed_s: seconds(extent.elapsed),
        }
    }

    /// Whether everybody got exactly what was owed.
    pub(super) fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicates == 0 && self.wrong == 0
    }

    /// The verdict, for an error.
    pub(super) fn fault(&self) -> String {
        format!("{} lost, {} doubled, {} wrong", grouped(self.lost), grouped(self.duplicates), grouped(self.wrong))
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers with names")
    }

    /// For people.
    pub(super) fn to_text(&self) -> String {
        let ms = |millis: f64| format_duration(Duration::from_secs_f64(millis / 1000.0));
        let quantiles = |quantiles: Quantiles| {
            let Quantiles { p50, p99, p999, max } = quantiles;
            format!("p50 {}, p99 {}, p99.9 {}, max {}", ms(p50), ms(p99), ms(p999), ms(max))
        };
        let verdict = if self.is_clean() { "nothing lost, nothing twice".to_owned() } else { self.fault() };
        let TimeTo { p50, p90, p99, p100 } = self.time_to_ms;
        format!(
            "{} events, {} deliveries to {} clients, {} pushes to {} phones, {} saved by receipts: {verdict}.\n\
             \x20 to sockets  {}\n\
             \x20 to phones   {}\n\
             \x20 largest audience, {} phones: half in {}, 90 % in {}, 99 % in {}, all in {}\n\
             \x20 {:.1} s from kick-off to the last arrival, {:.1} s in all",
            self.events,
            grouped(self.deliveries),
            grouped(self.clients.into()),
            grouped(self.pushes_accepted),
            grouped(self.devices.into()),
            grouped(self.pushes_saved),
            quantiles(self.socket_latency_ms),
            quantiles(self.push_latency_ms),
            grouped(self.audience),
            ms(p50),
            ms(p90),
            ms(p99),
            ms(p100),
            self.match_s,
            self.elapsed_s,
        )
    }
}

impl Quantiles {
    fn of(latency: &HistogramSnapshot) -> Self {
        let at = |quantile| millis(latency.quantile(quantile));
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: millis(latency.max()) }
    }
}

impl TimeTo {
    fn of(latency: &HistogramSnapshot) -> Self {
        let at = |quantile| millis(latency.quantile(quantile));
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p100: millis(latency.max()) }
    }
}

/// Milliseconds to the microsecond, which is what is measured.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// Seconds to the millisecond.
fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use tidings_telemetry::Histogram;

    use super::*;

    fn report() -> Report {
        let latency = Histogram::default();
        (1..=1000).for_each(|micros| latency.record_micros(micros * 1000));
        let latency = latency.snapshot();
        Report {
            events: 22,
            deliveries: 24_000,
            pushes_accepted: 600_000,
            pushes_saved: 3000,
            lost: 0,
            duplicates: 0,
            wrong: 0,
            socket_latency_ms: Quantiles::of(&latency),
            push_latency_ms: Quantiles::of(&latency),
            time_to_ms: TimeTo::of(&latency),
            audience: 70_000,
            devices: 100_000,
            clients: 1000,
            match_s: seconds(Duration::from_micros(12_345_678)),
            elapsed_s: 20.0,
        }
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
        for name in ["events", "deliveries", "pushes_accepted", "pushes_saved", "lost", "duplicates", "elapsed_s"] {
            assert!(json[name].is_number(), "{name}");
        }
        for (name, parts) in [
            ("socket_latency_ms", ["p50", "p99", "p999", "max"]),
            ("push_latency_ms", ["p50", "p99", "p999", "max"]),
            ("time_to_ms", ["p50", "p90", "p99", "p100"]),
        ] {
            assert!(parts.iter().all(|part| json[name][part].is_number()), "{name}");
        }
        assert_eq!((&json["match_s"], &json["time_to_ms"]["p100"]), (&12.345.into(), &1000.0.into()));
    }

    #[test]
    fn each_fault_spoils_it() {
        assert!(report().is_clean());
        for spoilt in
            [Report { lost: 1, ..report() }, Report { duplicates: 1, ..report() }, Report { wrong: 1, ..report() }]
        {
            assert!(!spoilt.is_clean());
            assert!(spoilt.to_text().contains(&spoilt.fault()));
        }
    }
}
