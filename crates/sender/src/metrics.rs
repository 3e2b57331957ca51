//! The sender's metrics: jobs, outcomes by kind, the time to select an audience, and the time from acceptance to
//! outcome.
//!
//! Counters start at zero with the process. A job that continues after a restart adds only what happens from then on.

use tidings_jobs::{DeviceOutcome, OUTCOME_COUNT};
use tidings_push::Outcome;
use tidings_telemetry::{Counter, Gauge, Histogram, Registry};
use tidings_types::{AppId, Locale, Provider};

use crate::parts::PartTotals;
use crate::routes::Route;

/// What the sender measures.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) jobs_running: Gauge,
    pub(crate) devices_held: Gauge,
    /// Also decides how often each of these jobs looks for receipts.
    pub(crate) jobs_holding: Gauge,
    pub(crate) holds_cut: Counter,
    pub(crate) jobs_put_aside: Counter,
    pub(crate) events_dispatched: Counter,
    /// When all jobs are done, this equals the sum of `outcomes`.
    pub(crate) devices_selected: Counter,
    pub(crate) attempts_repeated: Counter,
    pub(crate) outcomes: [Counter; OUTCOME_COUNT],
    /// By provider, in the order of `Outcome::NAMES`.
    provider_outcomes: Vec<[Counter; Outcome::NAMES.len()]>,
    pub(crate) parts: PartTotals,
    /// The time to select an audience.
    pub(crate) selection: Histogram,
    /// From acceptance to the provider's answer.
    pub(crate) latency: Histogram,
    pub(crate) checkpoints: Counter,
    pub(crate) checkpoint_bytes: Counter,
    pub(crate) checkpoints_failed: Counter,
    pub(crate) reads_failed: Counter,
    pub(crate) jobs_untold: Gauge,
    pub(crate) untold_forgotten: Counter,
    pub(crate) gone_tokens: Counter,
    pub(crate) gone_tokens_dropped: Counter,
    pub(crate) gone_tokens_kept: Counter,
    /// By lane. The lanes of a pool and of its quarantine share one.
    pub(crate) environment_alarms: Vec<Gauge>,
    pub(crate) proven_dropped: Counter,
    pub(crate) unexpected_audiences: Counter,
    /// Outcomes of devices that were not in flight: a bug, unless they are of an earlier run of the sender.
    pub(crate) strays: Counter,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| registry.counter(&format!("tidings_sender_{name}_total"), help, &[]);
        let outcomes: Vec<Counter> = DeviceOutcome::all()
            .map(|outcome| {
                registry.counter(
                    "tidings_sender_outcomes_total",
                    "Devices by outcome.",
                    &[("outcome", outcome.as_str()), ("reason", outcome.reason())],
                )
            })
            .collect();
        Self {
            jobs_running: registry.gauge("tidings_sender_jobs_running", "Running jobs.", &[]),
            devices_held: registry.gauge(
                "tidings_sender_devices_held",
                "Devices that are not pushed yet because they may prove that they got the event over a live connection.",
                &[],
            ),
            jobs_holding: registry.gauge("tidings_sender_jobs_holding", "Jobs that wait for receipts.", &[]),
            holds_cut: counter("holds_cut", "Jobs that stopped waiting for receipts early, to make room for others."),
            jobs_put_aside: counter(
                "jobs_put_aside",
                "Jobs suspended because they had nothing to send or a more urgent job took their slot.",
            ),
            events_dispatched: counter("events_dispatched", "Events that were given a job."),
            devices_selected: counter("devices_selected", "Devices in the audiences of events that were given a job."),
            attempts_repeated: counter(
                "attempts_repeated",
                "Attempts after the first, counted when the device has its outcome.",
            ),
            outcomes: outcomes.try_into().expect("one counter per outcome"),
            provider_outcomes: Provider::ALL.iter().map(|&provider| provider_outcomes(registry, provider)).collect(),
            parts: PartTotals::new(registry, [], []),
            selection: registry.histogram("tidings_sender_selection_seconds", "Time to select an audience.", &[]),
            latency: registry.histogram(
                "tidings_sender_latency_seconds",
                "From the event's acceptance to the provider's answer.",
                &[],
            ),
            checkpoints: counter("checkpoints", "Checkpoints written."),
            checkpoint_bytes: counter("checkpoint_bytes", "Bytes of job rows in them."),
            checkpoints_failed: counter("checkpoints_failed", "Checkpoints that the store refused; they are repeated until written."),
            reads_failed: counter("reads_failed", "Reads of the journal that failed; repeated."),
            jobs_untold: registry.gauge(
                "tidings_sender_jobs_untold",
                "Finished jobs whose webhook report is not delivered yet.",
                &[],
            ),
            untold_forgotten: counter(
                "untold_forgotten",
                "Finished jobs deleted before their webhook report was delivered, because there were more than sender.report_count_max.",
            ),
            gone_tokens: counter("gone_tokens", "Tokens reported to the store as dead."),
            gone_tokens_dropped: counter("gone_tokens_dropped", "Dead tokens not reported because too many waited."),
            gone_tokens_kept: counter(
                "gone_tokens_kept",
                "Tokens rejected as belonging to another app or environment, kept because many were rejected at once.",
            ),
            environment_alarms: Vec::new(),
            proven_dropped: counter(
                "proven_dropped",
                "First acceptances of a token that were not noted because too many waited; the next acceptance is noted instead.",
            ),
            unexpected_audiences: counter(
                "unexpected_audiences",
                "Jobs that pushed nothing because their audience did not have the expected size.",
            ),
            strays: counter("strays", "Outcomes of devices that were not in flight: a bug."),
        }
    }

    /// One alarm per lane.
    pub(crate) fn with_alarms(self, registry: &Registry, lanes: &[Route]) -> Self {
        let alarm = |lane: &Route| {
            let (provider, environment) = (lane.provider.as_str(), lane.environment.as_str());
            registry.gauge(
                "tidings_sender_environment_alarm",
                "1 while many tokens of an app are rejected as belonging to another environment: none of them is deleted.",
                &[("provider", provider), ("environment", environment), ("app", lane.app.as_str())],
            )
        };
        Self { environment_alarms: lanes.iter().map(alarm).collect(), ..self }
    }

    /// These apps and languages have their own totals from the start.
    pub(crate) fn telling_apart<'a>(
        self,
        registry: &Registry,
        apps: impl IntoIterator<Item = &'a AppId>,
        locales: impl IntoIterator<Item = &'a Locale>,
    ) -> Self {
        Self { parts: PartTotals::new(registry, apps, locales), ..self }
    }

    pub(crate) fn count(&self, outcome: DeviceOutcome, count: u64) {
        self.outcomes[outcome.index()].add(count);
    }

    /// Counts a device that a gateway has settled.
    pub(crate) fn count_provider(&self, provider: Provider, outcome: DeviceOutcome) {
        let index = Outcome::NAMES.iter().position(|name| *name == outcome.as_str());
        index.into_iter().for_each(|index| self.provider_outcomes[provider as usize][index].inc());
    }

    /// What was counted so.
    pub(crate) fn by_provider(&self) -> impl Iterator<Item = (Provider, &'static str, u64)> {
        Provider::ALL.iter().zip(&self.provider_outcomes).flat_map(|(&provider, counters)| {
            Outcome::NAMES.iter().zip(counters).map(move |(&name, counter)| (provider, name, counter.value()))
        })
    }
}

fn provider_outcomes(registry: &Registry, provider: Provider) -> [Counter; Outcome::NAMES.len()] {
    Outcome::NAMES.map(|outcome| {
        registry.counter(
            "tidings_sender_provider_outcomes_total",
            "Devices handed to a gateway, by provider and outcome.",
            &[("provider", provider.as_str()), ("outcome", outcome)],
        )
    })
}
