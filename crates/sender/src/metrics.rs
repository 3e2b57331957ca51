//! The sender's metrics: jobs, outcomes by kind, the time to select an audience, and the time from acceptance to
//! outcome.
//!
//! Counters start at zero with the process. A job that continues after a restart adds only what happens from then on.

use tidings_jobs::{DeviceOutcome, OUTCOME_COUNT};
use tidings_push::Outcome;
use tidings_telemetry::metrics::sender as table;
use tidings_telemetry::{Counter, Gauge, Histogram, Registry};
use tidings_types::{AppId, Locale, Provider};

use crate::parts::PartTotals;
use crate::routes::Route;

/// What the sender measures.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) jobs_running: Gauge,
    pub(crate) job_bytes: Gauge,
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
    /// From acceptance until a held device answered or was let go.
    pub(crate) hold: Histogram,
    pub(crate) checkpoints: Counter,
    pub(crate) checkpoint_bytes: Counter,
    pub(crate) checkpoints_failed: Counter,
    pub(crate) reads_failed: Counter,
    pub(crate) events_lost: Counter,
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
        let counter = |metric| registry.counter(metric, &[]);
        let gauge = |metric| registry.gauge(metric, &[]);
        let outcomes: Vec<Counter> = DeviceOutcome::all()
            .map(|outcome| registry.counter(&table::OUTCOMES_TOTAL, &[outcome.as_str(), outcome.reason()]))
            .collect();
        Self {
            jobs_running: gauge(&table::JOBS_RUNNING),
            job_bytes: gauge(&table::JOB_BYTES),
            devices_held: gauge(&table::DEVICES_HELD),
            jobs_holding: gauge(&table::JOBS_HOLDING),
            holds_cut: counter(&table::HOLDS_CUT_TOTAL),
            jobs_put_aside: counter(&table::JOBS_PUT_ASIDE_TOTAL),
            events_dispatched: counter(&table::EVENTS_DISPATCHED_TOTAL),
            devices_selected: counter(&table::DEVICES_SELECTED_TOTAL),
            attempts_repeated: counter(&table::ATTEMPTS_REPEATED_TOTAL),
            outcomes: outcomes.try_into().expect("one counter per outcome"),
            provider_outcomes: Provider::ALL.iter().map(|&provider| provider_outcomes(registry, provider)).collect(),
            parts: PartTotals::new(registry, [], []),
            selection: registry.histogram(&table::SELECTION_SECONDS, &[]),
            latency: registry.histogram(&table::LATENCY_SECONDS, &[]),
            hold: registry.histogram(&table::HOLD_SECONDS, &[]),
            checkpoints: counter(&table::CHECKPOINTS_TOTAL),
            checkpoint_bytes: counter(&table::CHECKPOINT_BYTES_TOTAL),
            checkpoints_failed: counter(&table::CHECKPOINTS_FAILED_TOTAL),
            reads_failed: counter(&table::READS_FAILED_TOTAL),
            events_lost: counter(&table::EVENTS_LOST_TOTAL),
            jobs_untold: gauge(&table::JOBS_UNTOLD),
            untold_forgotten: counter(&table::UNTOLD_FORGOTTEN_TOTAL),
            gone_tokens: counter(&table::GONE_TOKENS_TOTAL),
            gone_tokens_dropped: counter(&table::GONE_TOKENS_DROPPED_TOTAL),
            gone_tokens_kept: counter(&table::GONE_TOKENS_KEPT_TOTAL),
            environment_alarms: Vec::new(),
            proven_dropped: counter(&table::PROVEN_DROPPED_TOTAL),
            unexpected_audiences: counter(&table::UNEXPECTED_AUDIENCES_TOTAL),
            strays: counter(&table::STRAYS_TOTAL),
        }
    }

    /// So many more jobs run, which may take so many bytes more.
    pub(crate) fn on_running(&self, count: i64, bytes: i64) {
        self.jobs_running.add(count);
        self.job_bytes.add(bytes);
    }

    /// One alarm per lane.
    pub(crate) fn with_alarms(self, registry: &Registry, lanes: &[Route]) -> Self {
        let alarm = |lane: &Route| {
            let labels = [lane.provider.as_str(), lane.environment.as_str(), lane.app.as_str()];
            registry.gauge(&table::ENVIRONMENT_ALARM, &labels)
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
    let labels = |outcome| [provider.as_str(), outcome];
    Outcome::NAMES.map(|outcome| registry.counter(&table::PROVIDER_OUTCOMES_TOTAL, &labels(outcome)))
}
