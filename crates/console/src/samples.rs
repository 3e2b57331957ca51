//! The last hour in numbers: a sample every two seconds, in a ring of fixed size.
//!
//! A sample reads about fifteen sums of the registry, some microseconds of work, whether somebody looks or not: so the
//! chart of the last hour is there when an operator comes.
//!
//! Bounds: [`SAMPLE_COUNT_MAX`] samples (250 KiB), and one more set of counts for each of the last
//! [`MINUTE_COUNT_MAX`] minutes, with at most [`REASON_COUNT_MAX`] reasons.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidings_telemetry::metrics::{api, edge, gateway, sender, store};
use tidings_telemetry::panics::lock;
use tidings_telemetry::{Histogram, HistogramSnapshot, Metric, Registry, unix_now};
use tidings_types::Timestamp;

/// The time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// An hour of samples.
pub(crate) const SAMPLE_COUNT_MAX: usize = 1800;
/// Samples that make one point of a chart.
const POINT_SAMPLE_COUNT: usize = 5;
/// An hour of minutes.
const MINUTE_COUNT_MAX: usize = 60;
/// Reasons of refusals that are told apart.
const REASON_COUNT_MAX: usize = 100;

/// Labels that series must have to be counted.
type Labels = &'static [(&'static str, &'static str)];

/// Numbers that only grow; shown as a rate per second.
const COUNTERS: [(&str, &Metric, Labels); 7] = [
    ("events", &sender::EVENTS_DISPATCHED_TOTAL, &[]),
    ("deliveries", &edge::DELIVERIES_TOTAL, &[]),
    ("apns", &sender::PROVIDER_OUTCOMES_TOTAL, &[("provider", "apns"), ACCEPTED]),
    ("fcm", &sender::PROVIDER_OUTCOMES_TOTAL, &[("provider", "fcm"), ACCEPTED]),
    ("web_push", &sender::PROVIDER_OUTCOMES_TOTAL, &[("provider", "web_push"), ACCEPTED]),
    ("saved", &sender::OUTCOMES_TOTAL, &[("outcome", "received")]),
    ("refused", &sender::OUTCOMES_TOTAL, &[("outcome", "rejected")]),
];
const ACCEPTED: (&str, &str) = ("outcome", "accepted");
/// Numbers that are as they are.
const GAUGES: [(&str, &Metric); 4] = [
    ("connections", &edge::CONNECTIONS),
    ("jobs", &sender::JOBS_RUNNING),
    ("lakes", &gateway::LAKE_NOTIFICATIONS),
    ("devices", &store::DEVICES),
];
/// Distributions; shown as the 99th percentile of what was recorded since the sample before, in milliseconds.
const TIMES: [(&str, &Metric); 3] =
    [("push_ms", &sender::LATENCY_SECONDS), ("live_ms", &edge::DELIVERY_SECONDS), ("accept_ms", &api::ACCEPT_SECONDS)];
const COLUMN_COUNT: usize = COUNTERS.len() + GAUGES.len() + TIMES.len();

/// A value that is not known: nothing was recorded.
const UNKNOWN: f64 = f64::NAN;

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Timestamp,
    values: [f64; COLUMN_COUNT],
}

/// The ring.
pub(crate) struct Samples {
    registry: Registry,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ring: VecDeque<Sample>,
    /// When the counters were read, and what they were.
    last: Option<(Timestamp, [f64; COUNTERS.len()])>,
    times: [BTreeMap<usize, HistogramSnapshot>; TIMES.len()],
    /// The counts at the end of each minute, the newest last.
    minutes: VecDeque<Minute>,
}

#[derive(Clone, Default)]
struct Minute {
    at: Timestamp,
    counters: [f64; COUNTERS.len()],
    reasons: BTreeMap<String, f64>,
}

impl Samples {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, state: Mutex::default() }
    }

    /// Takes a sample now and then, until it is dropped.
    pub(crate) async fn run(&self) {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            self.take(unix_now());
        }
    }

    /// Takes one sample. The registry is read before the lock is taken.
    pub(crate) fn take(&self, now: Timestamp) {
        let counters = COUNTERS.map(|(_, metric, labels)| self.registry.sum(metric, labels));
        let gauges = GAUGES.map(|(_, metric)| self.registry.sum(metric, &[]));
        let histograms = TIMES.map(|(_, metric)| self.registry.histograms(metric, &[]));
        let is_minute = lock(&self.state).minutes.back().is_none_or(|last| now.0 >= last.at.0 + 60_000);
        let minute = is_minute.then(|| Minute { at: now, counters, reasons: self.reasons() });
        let mut state = lock(&self.state);
        let rates = state.rates(now, counters);
        let mut values = [UNKNOWN; COLUMN_COUNT];
        let (rated, rest) = values.split_at_mut(COUNTERS.len());
        let (level, timed) = rest.split_at_mut(GAUGES.len());
        rated.copy_from_slice(&rates);
        level.copy_from_slice(&gauges);
        for ((value, histograms), last) in timed.iter_mut().zip(&histograms).zip(&mut state.times) {
            *value = slowest(histograms, last);
        }
        push(&mut state.ring, Sample { at: now, values }, SAMPLE_COUNT_MAX);
        if let Some(minute) = minute {
            push(&mut state.minutes, minute, MINUTE_COUNT_MAX + 1);
        }
    }

    fn reasons(&self) -> BTreeMap<String, f64> {
        let reasons = self.registry.sum_by(&sender::OUTCOMES_TOTAL, &[("outcome", "rejected")], "reason");
        reasons.into_iter().filter(|(_, count)| *count > 0.0).take(REASON_COUNT_MAX).collect()
    }

    /// What page Now shows first: the newest values, and the sums of the last hour.
    pub(crate) fn now(&self) -> Value {
        let counters = COUNTERS.map(|(_, metric, labels)| self.registry.sum(metric, labels));
        let reasons = self.reasons();
        let state = lock(&self.state);
        let mut shown = Map::new();
        for (column, name) in names().enumerate() {
            shown.insert(name.to_owned(), number(state.newest(column)));
        }
        let first = state.minutes.front().cloned().unwrap_or_default();
        let in_hour: Map<String, Value> = COUNTERS
            .iter()
            .zip(counters.iter().zip(first.counters))
            .map(|((name, ..), (now, then))| ((*name).to_owned(), number((now - then).max(0.0))))
            .collect();
        let refused: Map<String, Value> = reasons
            .into_iter()
            .map(|(reason, now)| (now - first.reasons.get(&reason).copied().unwrap_or_default(), reason))
            .filter(|(count, _)| *count > 0.0)
            .map(|(count, reason)| (reason, number(count)))
            .collect();
        shown.insert("last_hour".to_owned(), in_hour.into());
        shown.insert("refused_last_hour".to_owned(), refused.into());
        shown.into()
    }

    /// The last hour for a chart: a point for each ten seconds, a list for each name.
    pub(crate) fn chart(&self) -> Value {
        let state = lock(&self.state);
        let samples: Vec<Sample> = state.ring.iter().copied().collect();
        drop(state);
        let points: Vec<&[Sample]> = samples.chunks(POINT_SAMPLE_COUNT).collect();
        let at: Vec<u64> = points.iter().map(|point| point[point.len() - 1].at.0 / 1000).collect();
        let mut chart = Map::from_iter([("at".to_owned(), json!(at))]);
        for (column, name) in names().enumerate() {
            let is_rate = column < COUNTERS.len();
            let value = |point: &&[Sample]| number(if is_rate { mean(point, column) } else { largest(point, column) });
            chart.insert(name.to_owned(), points.iter().map(value).collect());
        }
        chart.into()
    }
}

impl State {
    fn rates(&mut self, now: Timestamp, counters: [f64; COUNTERS.len()]) -> [f64; COUNTERS.len()] {
        let (then, before) = self.last.replace((now, counters)).unwrap_or((now, counters));
        let seconds = now.0.saturating_sub(then.0) as f64 / 1000.0;
        let mut rates = counters;
        for (rate, before) in rates.iter_mut().zip(before) {
            *rate = if seconds > 0.0 { ((*rate - before) / seconds).max(0.0) } else { 0.0 };
        }
        rates
    }

    /// The newest value that is known, of the last minute.
    fn newest(&self, column: usize) -> f64 {
        let known = |sample: &Sample| Some(sample.values[column]).filter(|value| !value.is_nan());
        self.ring.iter().rev().take(30).find_map(known).unwrap_or(UNKNOWN)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    let (counters, gauges, times) = (COUNTERS.map(|it| it.0), GAUGES.map(|it| it.0), TIMES.map(|it| it.0));
    counters.into_iter().chain(gauges).chain(times)
}

fn push<T>(ring: &mut VecDeque<T>, value: T, count_max: usize) {
    if ring.len() == count_max {
        ring.pop_front();
    }
    ring.push_back(value);
}

/// The 99th percentile of the slowest of these, of what is new.
fn slowest(histograms: &[Histogram], last: &mut BTreeMap<usize, HistogramSnapshot>) -> f64 {
    let lately = histograms.iter().enumerate().filter_map(|(index, histogram)| {
        let new = histogram.since(last.entry(index).or_default())?;
        Some(new.quantile(0.99).as_secs_f64() * 1000.0)
    });
    lately.fold(UNKNOWN, f64::max)
}

fn mean(point: &[Sample], column: usize) -> f64 {
    point.iter().map(|sample| sample.values[column]).sum::<f64>() / point.len() as f64
}

fn largest(point: &[Sample], column: usize) -> f64 {
    point.iter().map(|sample| sample.values[column]).fold(UNKNOWN, f64::max)
}

/// With at most two digits behind the point; null if it is not known.
fn number(value: f64) -> Value {
    match value {
        _ if value.is_nan() => Value::Null,
        _ if value.fract() == 0.0 && value.abs() < 1e15 => json!(value as i64),
        _ => json!((value * 100.0).round() / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp(1_000_000_000 + second * 1000)
    }

    #[test]
    fn rates_levels_and_times_are_those_of_the_newest_sample() {
        let registry = Registry::new();
        let samples = Samples::new(registry.clone());
        let deliveries = registry.counter(&edge::DELIVERIES_TOTAL, &[]);
        let connections = registry.gauge(&edge::CONNECTIONS, &[]);
        let push = registry.histogram(&sender::LATENCY_SECONDS, &[]);
        samples.take(at(0));
        deliveries.add(500);
        connections.set(7);
        push.record(Duration::from_millis(250));
        samples.take(at(2));
        let now = samples.now();
        assert_eq!((&now["deliveries"], &now["connections"], &now["push_ms"]), (&json!(250), &json!(7), &json!(250)));
        assert_eq!((&now["accept_ms"], &now["last_hour"]["deliveries"]), (&Value::Null, &json!(500)));
        samples.take(at(4));
        assert_eq!(samples.now()["deliveries"], json!(0));
        assert_eq!(samples.now()["push_ms"], json!(250), "the last that is known");
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let registry = Registry::new();
        let samples = Samples::new(registry.clone());
        let refused = registry.counter(&sender::OUTCOMES_TOTAL, &["rejected", "Unregistered"]);
        refused.add(3);
        for second in (0..2 * 3600).step_by(2) {
            if second == 3600 + 1800 {
                refused.add(2);
            }
            samples.take(at(second));
        }
        let chart = samples.chart();
        assert_eq!(chart["at"].as_array().unwrap().len(), SAMPLE_COUNT_MAX / POINT_SAMPLE_COUNT);
        assert!(chart.as_object().unwrap().values().all(|list| list.as_array().unwrap().len() == 360));
        assert_eq!(samples.now()["refused_last_hour"], json!({"Unregistered": 2}));
        let state = lock(&samples.state);
        assert_eq!((state.ring.len(), state.minutes.len()), (SAMPLE_COUNT_MAX, MINUTE_COUNT_MAX + 1));
    }
}
