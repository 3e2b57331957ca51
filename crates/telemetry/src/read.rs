//! Reading single numbers of a registry inside the process, for a page that shows them.
//!
//! Not for decisions of a component: a component holds its own instruments. A metric that nobody has registered reads as
//! zero. Each call takes the registry's lock for as long as it copies the instruments of one name.

use std::collections::BTreeMap;

use crate::histogram::Histogram;
use crate::metric::Metric;
use crate::registry::{Instrument, Labels, Registry};

impl Registry {
    /// The sum of all series of `metric` that have all of these labels.
    #[must_use]
    pub fn sum(&self, metric: &Metric, labels: &[(&str, &str)]) -> f64 {
        self.series(metric).iter().filter(|(own, _)| has(own, labels)).map(|(_, instrument)| value(instrument)).sum()
    }

    /// The same sum for each value of the label `by`.
    #[must_use]
    pub fn sum_by(&self, metric: &Metric, labels: &[(&str, &str)], by: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (own, instrument) in self.series(metric).iter().filter(|(own, _)| has(own, labels)) {
            if let Some((_, label)) = own.pairs.iter().find(|(label, _)| *label == by) {
                *sums.entry(label.clone()).or_default() += value(instrument);
            }
        }
        sums
    }

    /// All histograms of `metric` that have all of these labels.
    #[must_use]
    pub fn histograms(&self, metric: &Metric, labels: &[(&str, &str)]) -> Vec<Histogram> {
        let histogram = |(own, instrument)| match instrument {
            Instrument::Histogram(histogram) if has(&own, labels) => Some(histogram),
            _ => None,
        };
        self.series(metric).into_iter().filter_map(histogram).collect()
    }
}

fn has(own: &Labels, wanted: &[(&str, &str)]) -> bool {
    wanted.iter().all(|(name, value)| own.pairs.iter().any(|(label, is)| label == name && is == value))
}

/// The value of a counter or gauge. A histogram counts as the number of its values.
fn value(instrument: &Instrument) -> f64 {
    match instrument {
        Instrument::Counter(counter) => counter.value() as f64,
        Instrument::Gauge(gauge) => gauge.value() as f64,
        Instrument::Function(value) => value(),
        Instrument::Histogram(histogram) => histogram.snapshot().count() as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::metrics::{edge, sender, store};

    #[test]
    fn sums_are_over_all_series_that_fit() {
        let registry = Registry::new();
        for (provider, outcome, count) in [("apns", "accepted", 3), ("apns", "rejected", 2), ("fcm", "accepted", 5)] {
            registry.counter(&sender::PROVIDER_OUTCOMES_TOTAL, &[provider, outcome]).add(count);
        }
        registry.computed(&store::DEVICES, &[], Arc::new(|| 7.5));
        assert_eq!(registry.sum(&sender::PROVIDER_OUTCOMES_TOTAL, &[]), 10.0);
        assert_eq!(registry.sum(&sender::PROVIDER_OUTCOMES_TOTAL, &[("outcome", "accepted")]), 8.0);
        assert_eq!(registry.sum(&sender::PROVIDER_OUTCOMES_TOTAL, &[("outcome", "lost")]), 0.0);
        assert_eq!(registry.sum(&store::DEVICES, &[]), 7.5);
        assert_eq!(registry.sum(&edge::CONNECTIONS, &[]), 0.0, "nobody has registered it");
        let by = registry.sum_by(&sender::PROVIDER_OUTCOMES_TOTAL, &[], "provider");
        assert_eq!(by, BTreeMap::from([("apns".to_owned(), 5.0), ("fcm".to_owned(), 5.0)]));
    }

    #[test]
    fn histograms_are_those_of_the_metric() {
        let registry = Registry::new();
        registry.histogram(&edge::DELIVERY_SECONDS, &[]).record(Duration::from_secs(1));
        let histograms = registry.histograms(&edge::DELIVERY_SECONDS, &[]);
        assert_eq!(histograms.iter().map(|it| it.snapshot().count()).collect::<Vec<_>>(), [1]);
        assert!(registry.histograms(&edge::DELIVERY_SECONDS, &[("pool", "main")]).is_empty());
    }
}
