//! Distributions of durations: HDR histograms with three significant digits.
//!
//! A value is a whole number of microseconds from 0 to one day ([`HISTOGRAM_MAX`]). A longer value is recorded as one
//! day and counted as clamped, so a clock error cannot make the histogram grow. Quantiles are exact to 0.1 %; count,
//! sum and maximum are exact. Values are never removed. Prometheus gets the number of values in each bucket, and
//! subtracts what it got before. A value that is less than 0.1 % longer than a bound may be counted as not longer.
//!
//! A value can belong to a trace. Each bucket keeps the newest of its values that did, as an [`Example`].
//!
//! Shape: one histogram behind one lock, which is held for about 10 ns. It starts small and doubles its range, up to
//! 230 KiB, when slower values arrive. Buckets are counted at the scrape, so that recording costs the same for all
//! formats: docs/decisions/0028-buckets-are-counted-at-the-scrape.md.
//! A loop that records very often uses a [`LocalHistogram`], which takes the lock once for 256 values.
//!
//! Source: HdrHistogram (G. Tene), the `hdrhistogram` crate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_types::{Timestamp, TraceContext, TraceId};

use crate::clock::unix_now;
use crate::metric::Bounds;

/// The longest duration that is recorded as it is.
pub const HISTOGRAM_MAX: Duration = Duration::from_hours(24);
const MICROS_MAX: u64 = 86_400_000_000;
const _: () = assert!(MICROS_MAX as u128 == HISTOGRAM_MAX.as_micros());

/// The quantiles that exports contain, each with its name as a field.
pub(crate) const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999")];

/// The largest number of values that a [`LocalHistogram`] holds back: 2 KiB.
const LOCAL_VALUE_COUNT_MAX: usize = 256;

/// A distribution of durations, shared by its holders and the scrape.
#[derive(Debug, Clone, Default)]
pub struct Histogram(Arc<Mutex<Distribution>>);

#[derive(Debug, Clone)]
struct Distribution {
    bounds: Bounds,
    values: hdrhistogram::Histogram<u64>,
    /// By bucket; empty until there is one.
    examples: Vec<Option<Example>>,
    sum_micros: u64,
    max_micros: u64,
    clamped: u64,
}

/// A recorded value and the trace that it belongs to: an exemplar of OpenMetrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Example {
    pub(crate) trace: TraceId,
    pub(crate) micros: u64,
    pub(crate) at: Timestamp,
}

/// The values up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket<'a> {
    /// In microseconds; `None`: no bound.
    pub(crate) bound: Option<u64>,
    /// All values that are not longer, so also those of the buckets before.
    pub(crate) count: u64,
    /// Of this bucket alone.
    pub(crate) example: Option<&'a Example>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new(Bounds::Latency)
    }
}

impl Distribution {
    fn new(bounds: Bounds) -> Self {
        let mut values = hdrhistogram::Histogram::new(3).expect("three significant digits are supported");
        values.auto(true);
        Self { bounds, values, examples: Vec::new(), sum_micros: 0, max_micros: 0, clamped: 0 }
    }
}

impl Histogram {
    /// An empty histogram with these buckets.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Mutex::new(Distribution::new(bounds))))
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.lock().bounds
    }

    /// Records one duration, rounded down to microseconds.
    pub fn record(&self, duration: Duration) {
        self.record_n(duration, 1);
    }

    /// Records one duration given in microseconds.
    pub fn record_micros(&self, micros: u64) {
        self.lock().record(micros, 1);
    }

    /// Records `duration` `count` times: once for each member of a batch.
    pub fn record_n(&self, duration: Duration, count: u64) {
        self.record_in(duration, count, None);
    }

    /// Records `duration` `count` times. If what took so long belongs to a recorded trace, it is the example of its bucket
    /// from now on.
    pub fn record_in(&self, duration: Duration, count: u64, trace: Option<&TraceContext>) {
        let micros = micros(duration);
        let trace = trace.filter(|trace| trace.is_sampled && count > 0).map(|trace| trace.trace);
        let example = trace.map(|trace| Example { trace, micros: micros.min(MICROS_MAX), at: unix_now() });
        let mut shared = self.lock();
        shared.record(micros, count);
        if let Some(example) = example {
            shared.keep(example);
        }
    }

    /// A recorder for one hot loop that takes the lock once per 256 values.
    #[must_use]
    pub fn local(&self) -> LocalHistogram {
        LocalHistogram { shared: self.clone(), pending: Vec::with_capacity(LOCAL_VALUE_COUNT_MAX) }
    }

    /// A copy of everything recorded so far. Copies up to 230 KiB under the lock.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot(self.lock().clone())
    }

    /// The values recorded after `last` was taken; `last` becomes a snapshot of now. `None` if there were no values;
    /// then nothing is copied. The maximum is exact if it is the longest value ever recorded, else exact to 0.1 %.
    ///
    /// `last` must be an earlier snapshot of this histogram, or the empty one.
    pub fn since(&self, last: &mut HistogramSnapshot) -> Option<HistogramSnapshot> {
        let now = {
            let shared = self.lock();
            if shared.values.len() == last.count() {
                return None;
            }
            HistogramSnapshot(shared.clone())
        };
        let earlier = std::mem::replace(last, now.clone()).0;
        let mut lately = now.0;
        lately.values.subtract(&earlier.values).expect("counts only grow");
        lately.sum_micros -= earlier.sum_micros;
        lately.clamped -= earlier.clamped;
        lately.max_micros = lately.max_micros.min(lately.values.max());
        Some(HistogramSnapshot(lately))
    }

    fn lock(&self) -> MutexGuard<'_, Distribution> {
        // A panic elsewhere cannot leave these numbers half changed: they are consistent after each statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Distribution {
    fn record(&mut self, micros: u64, count: u64) {
        let kept = micros.min(MICROS_MAX);
        if micros > MICROS_MAX {
            self.clamped = self.clamped.saturating_add(count);
        }
        self.values.record_n(kept, count).expect("auto-resize covers every clamped value");
        self.sum_micros = self.sum_micros.saturating_add(kept.saturating_mul(count));
        if count > 0 {
            self.max_micros = self.max_micros.max(kept);
        }
    }

    fn keep(&mut self, example: Example) {
        let bounds = self.bounds.micros();
        self.examples.resize(bounds.len() + 1, None);
        self.examples[bucket_of(bounds, example.micros)] = Some(example);
    }
}

/// A recorder of one task or thread. It hands its values to the histogram in groups of 256, on [`flush`](Self::flush)
/// and on drop.
///
/// A scrape does not contain the values that are still held back: flush at the end of each round of a loop, or on its
/// timer.
#[derive(Debug)]
pub struct LocalHistogram {
    shared: Histogram,
    /// Invariant: never longer than `LOCAL_VALUE_COUNT_MAX`.
    pending: Vec<u64>,
}

impl LocalHistogram {
    /// Records one duration, rounded down to microseconds.
    pub fn record(&mut self, duration: Duration) {
        self.record_micros(micros(duration));
    }

    /// Records one duration given in microseconds.
    pub fn record_micros(&mut self, micros: u64) {
        self.pending.push(micros);
        if self.pending.len() == LOCAL_VALUE_COUNT_MAX {
            self.flush();
        }
    }

    /// Hands the values that are held back to the histogram.
    pub fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut shared = self.shared.lock();
        for micros in self.pending.drain(..) {
            shared.record(micros, 1);
        }
    }
}

impl Drop for LocalHistogram {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A copy of a distribution at one moment; the default is empty.
#[derive(Debug, Clone, Default)]
pub struct HistogramSnapshot(Distribution);

impl HistogramSnapshot {
    /// How many durations were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values.len()
    }

    /// How many of these durations were longer than [`HISTOGRAM_MAX`] and count as one day.
    #[must_use]
    pub fn clamped(&self) -> u64 {
        self.0.clamped
    }

    /// The smallest duration that at least the share `quantile` (0 to 1) of all values did not exceed, to 0.1 %; zero
    /// without values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        // The library names a bucket by its upper edge, which may be larger than every recorded value.
        Duration::from_micros(self.0.values.value_at_quantile(quantile).min(self.0.max_micros))
    }

    /// The longest duration.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max_micros)
    }

    /// The sum of all durations; it saturates at 2^64 µs (half a million years).
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.0.sum_micros)
    }

    /// The buckets, by their bounds; the last one has none.
    pub(crate) fn buckets(&self) -> Vec<Bucket<'_>> {
        let Distribution { bounds, values, examples, .. } = &self.0;
        let bounds = bounds.micros();
        let mut counts = vec![0; bounds.len() + 1];
        for value in values.iter_recorded() {
            counts[bucket_of(bounds, values.lowest_equivalent(value.value_iterated_to()))] += value.count_at_value();
        }
        let bounds = bounds.iter().copied().map(Some).chain([None]);
        let mut count = 0;
        let bucket = |(index, (bound, own))| {
            count += own;
            Bucket { bound, count, example: examples.get(index).and_then(Option::as_ref) }
        };
        bounds.zip(counts).enumerate().map(bucket).collect()
    }

    /// The arithmetic mean; zero when nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_micros(self.0.sum_micros.checked_div(self.count()).unwrap_or(0))
    }
}

/// The index of the first bound that is not shorter.
fn bucket_of(bounds: &[u64], micros: u64) -> usize {
    bounds.partition_point(|bound| *bound < micros)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use tidings_types::{SpanId, TraceContext, TraceId};

    use super::{Bounds, HISTOGRAM_MAX, Histogram, LOCAL_VALUE_COUNT_MAX};

    #[test]
    fn an_empty_one_answers_zero() {
        let snapshot = Histogram::default().snapshot();
        assert_eq!((snapshot.count(), snapshot.clamped()), (0, 0));
        assert_eq!(snapshot.quantile(0.99), Duration::ZERO);
        assert_eq!((snapshot.max(), snapshot.mean(), snapshot.sum()), Default::default());
    }

    #[test]
    fn durations_over_a_day_are_clamped_and_counted() {
        let histogram = Histogram::default();
        histogram.record(HISTOGRAM_MAX);
        histogram.record(HISTOGRAM_MAX + Duration::from_micros(1));
        histogram.record_n(Duration::MAX, 3);
        histogram.record_micros(u64::MAX);
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.clamped()), (6, 5));
        assert_eq!((snapshot.max(), snapshot.quantile(1.0)), (HISTOGRAM_MAX, HISTOGRAM_MAX));
        assert_eq!(snapshot.sum(), HISTOGRAM_MAX * 6);
    }

    #[test]
    fn a_bucket_has_the_newest_of_its_values_that_came_with_a_trace() {
        let histogram = Histogram::new(Bounds::Long);
        histogram.record(Duration::from_millis(20));
        assert!(histogram.snapshot().buckets().iter().all(|bucket| bucket.example.is_none()));
        let trace =
            |id: u8| TraceContext { is_sampled: id < 9, trace: TraceId([id; 16]), span: SpanId([1; 8]), state: None };
        histogram.record_in(Duration::from_millis(10), 1, Some(&trace(1)));
        histogram.record_in(Duration::from_millis(20), 1, Some(&trace(2)));
        histogram.record_in(Duration::from_millis(30), 2, Some(&trace(3)));
        histogram.record_in(Duration::from_hours(25), 1, Some(&trace(4)));
        histogram.record_in(Duration::from_millis(10), 0, Some(&trace(5)));
        histogram.record_in(Duration::from_millis(10), 1, Some(&trace(9)));
        histogram.record(Duration::from_hours(30));
        let snapshot = histogram.snapshot();
        let examples: Vec<_> = snapshot
            .buckets()
            .iter()
            .filter_map(|bucket| bucket.example.map(|it| (bucket.bound, bucket.count, it.trace.0[0], it.micros)))
            .collect();
        let day = HISTOGRAM_MAX.as_micros() as u64;
        let expected = [(Some(10_000), 2, 1, 10_000), (Some(50_000), 6, 3, 30_000), (Some(day), 8, 4, day)];
        assert_eq!(examples, expected);
        assert_eq!((snapshot.count(), snapshot.clamped()), (8, 2));
    }

    #[test]
    fn recording_zero_times_changes_nothing() {
        let histogram = Histogram::default();
        histogram.record_n(Duration::from_secs(5), 0);
        assert_eq!((histogram.snapshot().count(), histogram.snapshot().max()), (0, Duration::ZERO));
    }

    #[test]
    fn a_local_one_hands_on_when_full_on_flush_and_on_drop() {
        let histogram = Histogram::default();
        let mut local = histogram.local();
        let capacity = LOCAL_VALUE_COUNT_MAX as u64;
        (1..capacity).for_each(|micros| local.record_micros(micros));
        assert_eq!(histogram.snapshot().count(), 0);
        local.record(Duration::from_micros(capacity));
        assert_eq!(histogram.snapshot().count(), capacity);
        local.record_micros(1);
        local.flush();
        assert_eq!(histogram.snapshot().count(), capacity + 1);
        local.record_micros(1);
        drop(local);
        assert_eq!(histogram.snapshot().count(), capacity + 2);
        assert_eq!(histogram.snapshot().sum(), Duration::from_micros(capacity * (capacity + 1) / 2 + 2));
    }

    #[test]
    fn records_from_many_threads_add_up() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let mut local = histogram.local();
                let histogram = &histogram;
                scope.spawn(move || {
                    for micros in 0..5_000 {
                        local.record_micros(micros);
                        histogram.record_micros(micros * (thread + 1));
                    }
                });
            }
        });
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 4 * 5_000 * 2);
        assert_eq!(snapshot.max(), Duration::from_micros(4_999 * 4));
        assert_eq!(snapshot.sum(), Duration::from_micros((4_999 * 5_000 / 2) * (4 + 1 + 2 + 3 + 4)));
    }

    proptest! {
        /// Against the list itself: a value that is less than 0.1 % longer than a bound may be counted on either side.
        #[test]
        fn buckets_agree_with_the_values(
            micros in prop::collection::vec(prop_oneof![0..5_000_u64, 0..90_000_000_000_u64], 0..300),
            is_long in any::<bool>(),
        ) {
            let histogram = Histogram::new(if is_long { Bounds::Long } else { Bounds::Latency });
            micros.iter().for_each(|&value| histogram.record_micros(value));
            let snapshot = histogram.snapshot();
            let buckets = snapshot.buckets();
            prop_assert!(buckets.is_sorted_by_key(|bucket| bucket.count));
            for bucket in &buckets {
                let up_to = |bound: u64| micros.iter().filter(|value| **value <= bound).count() as u64;
                let bound = bucket.bound.unwrap_or(u64::MAX - u64::MAX / 500);
                let day = HISTOGRAM_MAX.as_micros() as u64;
                let most = if bound >= day { micros.len() as u64 } else { up_to(bound + bound / 1000) };
                prop_assert!((up_to(bound)..=most).contains(&bucket.count), "{bucket:?} of {micros:?}");
            }
            prop_assert_eq!(buckets.last().unwrap().count, micros.len() as u64);
        }

        /// Against the sorted list itself: the rank-th smallest value, to one part in a thousand.
        #[test]
        fn quantiles_agree_with_the_sorted_values(
            mut micros in prop::collection::vec(prop_oneof![0..5_000_u64, 0..3_600_000_000_u64], 1..300),
            quantile in 0.0..=1.0_f64,
        ) {
            let histogram = Histogram::default();
            micros.iter().for_each(|&value| histogram.record_micros(value));
            micros.sort_unstable();
            let rank = ((quantile * micros.len() as f64).ceil() as usize).clamp(1, micros.len());
            let exact = micros[rank - 1];
            let snapshot = histogram.snapshot();
            let told = snapshot.quantile(quantile).as_micros() as u64;
            prop_assert!(told.abs_diff(exact) <= exact / 1000 + 1, "told {told}, exact {exact}");
            prop_assert_eq!(snapshot.max(), Duration::from_micros(micros[micros.len() - 1]));
            prop_assert_eq!(snapshot.sum(), Duration::from_micros(micros.iter().sum()));
        }
    }
}
