//! The result of a match: deliveries, latencies, mistakes, and what limited the speed.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use tidings_server::output::grouped;
use tidings_telemetry::HistogramSnapshot;
use tidings_types::Platform;

use super::cores::{Used, core_count};
use super::pushes::PushVerdict;
use super::setup::FCM_QUOTA;
use super::view::{Paint, Scene, format_duration, format_phones};

/// From this share of the machine on, its cores are called the limit.
const FULL: f64 = 0.85;

/// The result. The fields are those of `tidings demo --once --json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    /// Events that the server accepted.
    events: usize,
    /// Publications that clients received, each once per client and channel.
    deliveries: u64,
    /// Notifications that the providers accepted, each once per phone.
    pushes_accepted: u64,
    /// Notifications that were not sent, because the app on the screen had acknowledged the event.
    pushes_saved: u64,
    /// Publications and notifications that did not arrive.
    lost: u64,
    /// Publications and notifications that arrived more than once.
    duplicates: u64,
    /// Publications and notifications that should not arrive, were out of order, or had a wrong text.
    wrong: u64,
    /// Time from sending the event to its arrival at a client.
    socket_latency_ms: Quantiles,
    /// Time from sending the event to the provider's acceptance.
    push_latency_ms: Quantiles,
    /// The same by provider.
    providers: [ByProvider; Platform::ALL.len()],
    /// The same by event.
    by_event: Vec<ByEvent>,
    /// For the event with the largest audience: the time until this share of it was reached.
    time_to_ms: TimeTo,
    /// Phones in that audience.
    audience: u64,
    devices: u32,
    clients: u32,
    cores: Cores,
    /// From the kick-off to the last delivery.
    match_s: f64,
    /// From the start of the program to the verdict.
    elapsed_s: f64,
    #[serde(skip)]
    phones: String,
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

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ByProvider {
    provider: &'static str,
    accepted: u64,
    latency_ms: Quantiles,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ByEvent {
    id: String,
    /// Phones that must get the event.
    audience: u64,
    /// Phones that got a push.
    pushed: u64,
    time_to_ms: TimeTo,
}

/// Cores in use while events were being delivered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Cores {
    machine: usize,
    server: f64,
    simulators: f64,
    clients: f64,
    /// All other programs.
    others: f64,
    /// How long events were being delivered.
    busy_s: f64,
}

/// How long events were being delivered, and the CPU time used meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Busy {
    pub(super) time: Duration,
    pub(super) used: Used,
}

/// The size of the demo, and its times.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    pub(super) devices: u32,
    pub(super) clients: u32,
    /// Phones that must get each event.
    pub(super) audiences: Vec<u64>,
    pub(super) match_time: Duration,
    pub(super) elapsed: Duration,
    pub(super) busy: Busy,
}

impl Report {
    pub(super) fn new(extent: Extent, scene: &Scene<'_>, phones: &PushVerdict) -> Self {
        let (crowd, pushes, sockets) = (scene.crowd, scene.pushes, scene.crowd.settle());
        let audiences = extent.audiences.iter().copied().enumerate();
        let (largest, audience) = audiences.clone().max_by_key(|(_, audience)| *audience).unwrap_or_default();
        let by_event = audiences.map(|(moment, audience)| {
            let latency = pushes.latency_of(moment);
            let id = scene.moments[moment].id.to_string();
            ByEvent { id, audience, pushed: latency.count(), time_to_ms: TimeTo::of(&latency) }
        });
        Self {
            events: scene.handed_in.load(Relaxed),
            deliveries: crowd.delivered(),
            pushes_accepted: pushes.accepted(),
            pushes_saved: phones.saved,
            lost: sockets.lost + phones.lost,
            duplicates: sockets.duplicates + phones.duplicates,
            wrong: sockets.strangers + sockets.misplaced + phones.strangers + phones.wrong_texts,
            socket_latency_ms: Quantiles::of(&crowd.latency()),
            push_latency_ms: Quantiles::of(&pushes.latency()),
            providers: [Platform::Ios, Platform::Android, Platform::Web].map(|platform| {
                let latency = pushes.latency_on(platform);
                let provider = platform.provider().as_str();
                ByProvider { provider, accepted: latency.count(), latency_ms: Quantiles::of(&latency) }
            }),
            by_event: by_event.collect(),
            time_to_ms: TimeTo::of(&pushes.latency_of(largest)),
            audience,
            devices: extent.devices,
            clients: extent.clients,
            cores: Cores::of(extent.busy),
            match_s: seconds(extent.match_time),
            elapsed_s: seconds(extent.elapsed),
            phones: format_phones(&scene.phones(FIRST_GOAL), Paint::default()).join("\n"),
        }
    }

    /// Whether every phone and client got exactly what it should get.
    pub(super) fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicates == 0 && self.wrong == 0
    }

    /// The mistakes, for an error.
    pub(super) fn fault(&self) -> String {
        format!("{} lost, {} doubled, {} wrong", grouped(self.lost), grouped(self.duplicates), grouped(self.wrong))
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data")
    }

    /// The result for people; `with_phones` adds what phones show.
    pub(super) fn to_text(&self, with_phones: bool, paint: Paint) -> String {
        let verdict = match self.is_clean() {
            true => paint.good("Nothing lost, nothing twice"),
            false => paint.bad(&self.fault()),
        };
        let mut text = format!(
            "{verdict}: {} events, {} deliveries to {} clients,\n\
             {} pushes to {} phones, and {} not needed: the app had the event.\n\n",
            self.events,
            grouped(self.deliveries),
            grouped(self.clients),
            grouped(self.pushes_accepted),
            grouped(self.devices),
            grouped(self.pushes_saved),
        );
        text += &(paint.dim(&format!("{:<31}{:>9}{:>10}{:>10}{:>10}", "", "", "half in", "99 % in", "all in")) + "\n");
        text += &row("to clients, by WebSocket", self.deliveries, self.socket_latency_ms);
        let names = ["to iPhones, by APNs", "to Androids, by FCM", "to browsers, by Web Push"];
        for (name, provider) in names.iter().zip(&self.providers).filter(|(_, provider)| provider.accepted > 0) {
            text += &row(name, provider.accepted, provider.latency_ms);
        }
        let TimeTo { p50, p99, p100, .. } = self.time_to_ms;
        text += &format!(
            "  largest audience, as a whole {:>9}{:>10}{:>10}{:>10}\n\n",
            grouped(self.audience),
            ms(p50),
            ms(p99),
            ms(p100),
        );
        if with_phones {
            text += &format!("{}\n\n", self.phones);
        }
        text + &self.limit()
    }

    /// CPU use, and what a reader must know beside the numbers.
    fn limit(&self) -> String {
        let Cores { machine, server, simulators, clients, others, busy_s } = self.cores;
        let total = server + simulators + clients + others;
        let what = match total {
            0.0 => {
                return format!(
                    "{:.1} s from the kick-off to the last delivery, {:.1} s in all.",
                    self.match_s, self.elapsed_s
                );
            }
            total if total >= FULL * machine as f64 => "The limit is this machine, which they all share.",
            _ => "The machine had room left.",
        };
        format!(
            "While events were being delivered ({busy_s:.1} of {:.1} s), the server used\n\
             {server:.1} of {machine} cores, simulated providers {simulators:.1}, clients {clients:.1}, other programs {others:.1}.\n\
             {what}\n\
             An event waited until all deliveries of the one before were done.\n\
             In this demo FCM's quota is {} a minute (by default 600 000).",
            self.match_s,
            grouped(FCM_QUOTA),
        )
    }
}

/// The event whose texts are shown.
const FIRST_GOAL: usize = 1;

fn row(name: &str, count: u64, Quantiles { p50, p99, max, .. }: Quantiles) -> String {
    format!("  {name:<29}{:>9}{:>10}{:>10}{:>10}\n", grouped(count), ms(p50), ms(p99), ms(max))
}

fn ms(millis: f64) -> String {
    format_duration(Duration::from_secs_f64(millis / 1000.0))
}

impl Cores {
    fn of(busy: Busy) -> Self {
        let cores = |used: Duration| {
            let cores = used.as_secs_f64() / busy.time.as_secs_f64().max(0.001);
            (cores * 100.0).round() / 100.0
        };
        let Used { server, simulators, clients, machine } = busy.used;
        Self {
            machine: core_count(),
            others: cores(machine.saturating_sub(server + simulators + clients)),
            server: cores(server),
            simulators: cores(simulators),
            clients: cores(clients),
            busy_s: seconds(busy.time),
        }
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

/// Milliseconds, to the microsecond.
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
        let busy = Busy {
            time: Duration::from_secs(10),
            used: Used {
                server: Duration::from_secs(5),
                simulators: Duration::from_secs(3),
                clients: Duration::from_secs(1),
                machine: Duration::from_secs(11),
            },
        };
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
            providers: ["apns", "fcm", "web_push"].map(|provider| ByProvider {
                provider,
                accepted: 200_000,
                latency_ms: Quantiles::of(&latency),
            }),
            by_event: vec![ByEvent {
                id: "2022-final-01-kick_off".to_owned(),
                audience: 10,
                pushed: 9,
                time_to_ms: TimeTo::of(&latency),
            }],
            time_to_ms: TimeTo::of(&latency),
            audience: 70_000,
            devices: 100_000,
            clients: 1000,
            cores: Cores { machine: 4, ..Cores::of(busy) },
            match_s: seconds(Duration::from_micros(12_345_678)),
            elapsed_s: 20.0,
            phones: String::new(),
        }
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
        for name in ["events", "deliveries", "pushes_accepted", "pushes_saved", "lost", "duplicates", "elapsed_s"] {
            assert!(json[name].is_number(), "{name}");
        }
        for (place, parts) in [
            (&json["socket_latency_ms"], ["p50", "p99", "p999", "max"]),
            (&json["push_latency_ms"], ["p50", "p99", "p999", "max"]),
            (&json["providers"][1]["latency_ms"], ["p50", "p99", "p999", "max"]),
            (&json["by_event"][0]["time_to_ms"], ["p50", "p90", "p99", "p100"]),
            (&json["time_to_ms"], ["p50", "p90", "p99", "p100"]),
        ] {
            assert!(parts.iter().all(|part| place[part].is_number()), "{place}");
        }
        assert_eq!((&json["match_s"], &json["time_to_ms"]["p100"]), (&12.345.into(), &1000.0.into()));
        let cores = &json["cores"];
        assert_eq!((&cores["server"], &cores["others"], &cores["busy_s"]), (&0.5.into(), &0.2.into(), &10.0.into()));
    }

    #[test]
    fn each_kind_of_mistake_is_reported() {
        assert!(report().is_clean());
        for spoilt in
            [Report { lost: 1, ..report() }, Report { duplicates: 1, ..report() }, Report { wrong: 1, ..report() }]
        {
            assert!(!spoilt.is_clean());
            assert!(spoilt.to_text(true, Paint::default()).contains(&spoilt.fault()));
        }
    }

    #[test]
    fn the_limit_is_named_only_if_there_is_one() {
        let full = Cores { machine: 1, ..report().cores };
        assert!(Report { cores: full, ..report() }.limit().contains("The limit is this machine"));
        assert!(report().limit().contains("had room left"));
        let unknown = Cores::of(Busy::default());
        assert!(!Report { cores: unknown, ..report() }.limit().contains("machine"));
    }
}
