//! The table of all instruments, by metric and labels.
//!
//! A second call with the same metric and label values returns the same instrument, so components need not pass
//! instruments around. These mistakes of the programmer panic where the instrument is asked for, which is at start-up:
//! another kind or another number of labels than the [`Metric`] declares; two declarations of one name. Label *values*
//! may come from anywhere and never panic.
//!
//! Bounds: `SERIES_COUNT_MAX` (4096) series in all, of any kind. Label values are cut at `LABEL_VALUE_BYTES_MAX` (200
//! bytes). When the table is full, the caller gets an instrument that works but is not exported, and
//! `tidings_telemetry_series_refused_total` counts it. Use labels for what has few values (a reason, a provider), never
//! for users, channels or devices.
//!
//! Locks: one around the tables, and one around those of each child; none is taken while another is held. They are held
//! while an instrument is looked up and while a scrape lists the instruments, never while a value function runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::histogram::Histogram;
use crate::instrument::{Counter, Gauge, ValueFn};
use crate::metric::{Kind, Metric};
use crate::metrics;

/// The largest number of series in a registry, over all names.
pub const SERIES_COUNT_MAX: usize = 4096;
/// The bytes of a label value that are kept; the rest is cut off at the edge of a character.
pub const LABEL_VALUE_BYTES_MAX: usize = 200;

/// The table of all instruments: a cheap handle, clones share the table.
#[derive(Clone, Default)]
pub struct Registry {
    tables: Arc<Mutex<Tables>>,
    /// Of a child: the registry that has its counters and histograms.
    parent: Option<Box<Registry>>,
}

#[derive(Default)]
struct Tables {
    families: Families,
    series_count: usize,
    refused: Counter,
    /// The gauges and computed values of its children.
    children: Vec<Weak<Mutex<Tables>>>,
}

/// All series, by the name of their metric.
pub(crate) type Families = BTreeMap<&'static str, Family>;

/// All series of one metric.
#[derive(Clone)]
pub(crate) struct Family {
    pub(crate) metric: &'static Metric,
    pub(crate) series: BTreeMap<Labels, Instrument>,
}

/// The labels of one series, sorted by name; values cut to [`LABEL_VALUE_BYTES_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    /// As Prometheus prints them: `a="1",b="2"`; empty without labels. The sort order of labels.
    pub(crate) text: String,
    /// The names and values as they were given.
    pub(crate) pairs: Vec<(&'static str, String)>,
}

#[derive(Clone)]
pub(crate) enum Instrument {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    Function(ValueFn),
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry for parts that end before the program does. Its series are among those of this one. Its gauges and computed
    /// values are gone when the last handle to it is dropped; its counters and histograms are this registry's, so what is
    /// counted never goes back. A gauge or a computed value belongs to one of the two, not to both.
    #[must_use]
    pub fn child(&self) -> Self {
        let child = Self { tables: Arc::default(), parent: Some(Box::new(self.clone())) };
        let mut tables = self.lock();
        tables.children.retain(|known| known.strong_count() > 0);
        tables.children.push(Arc::downgrade(&child.tables));
        child
    }

    /// The counter of `metric` with these values of its labels.
    ///
    /// # Panics
    /// If the metric is no counter, has another number of labels, or has the name of another one.
    #[must_use]
    pub fn counter(&self, metric: &'static Metric, labels: &[&str]) -> Counter {
        assert!(metric.kind == Kind::Counter, "{} is no counter", metric.name);
        match self.lasting().find_or_insert(metric, labels, || Instrument::Counter(Counter::default())) {
            Instrument::Counter(counter) => counter,
            _ => panic!("metric {} is computed by a function, not counted", metric.name),
        }
    }

    /// The gauge of `metric` with these values of its labels.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    #[must_use]
    pub fn gauge(&self, metric: &'static Metric, labels: &[&str]) -> Gauge {
        assert!(metric.kind == Kind::Gauge, "{} is no gauge", metric.name);
        match self.lock().find_or_insert(metric, labels, || Instrument::Gauge(Gauge::default())) {
            Instrument::Gauge(gauge) => gauge,
            _ => panic!("metric {} is computed by a function, not set", metric.name),
        }
    }

    /// The histogram of `metric` with these values of its labels.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    #[must_use]
    pub fn histogram(&self, metric: &'static Metric, labels: &[&str]) -> Histogram {
        let Kind::Histogram(bounds) = metric.kind else { panic!("{} is no histogram", metric.name) };
        match self.lasting().find_or_insert(metric, labels, || Instrument::Histogram(Histogram::new(bounds))) {
            Instrument::Histogram(histogram) => histogram,
            _ => unreachable!("the kind was checked and histograms have no functions"),
        }
    }

    /// Makes `histogram` a series of `metric`, for a component that is there before it knows the registry.
    ///
    /// # Panics
    /// As [`counter`](Self::counter), and if the histogram has other buckets than the metric declares.
    pub fn adopt(&self, metric: &'static Metric, labels: &[&str], histogram: &Histogram) {
        assert!(metric.kind == Kind::Histogram(histogram.bounds()), "{} is another kind of metric", metric.name);
        let adopted = || Instrument::Histogram(histogram.clone());
        let _known = self.lasting().find_or_insert(metric, labels, adopted);
    }

    /// Has `value` compute the metric, a gauge or a counter, at each scrape. A second call replaces the function.
    ///
    /// `value` is called on the scraping thread and must not wait.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    pub fn computed(&self, metric: &'static Metric, labels: &[&str], value: ValueFn) {
        assert!(!matches!(metric.kind, Kind::Histogram(_)), "the histogram {} is not computed", metric.name);
        self.lock().replace(metric, labels, Instrument::Function(value));
    }

    /// All families as they are now, also the registry's own. Values are read without the registry's lock.
    pub(crate) fn families(&self) -> Families {
        let (mut families, refused, children) = {
            let tables = self.lock();
            (tables.families.clone(), tables.refused.clone(), tables.living())
        };
        for child in children {
            for (name, Family { metric, series }) in lock(&child).families.clone() {
                let family = families.entry(name).or_insert_with(|| Family { metric, series: BTreeMap::new() });
                family.series.extend(series);
            }
        }
        let series = BTreeMap::from([(Labels::default(), Instrument::Counter(refused))]);
        families.insert(REFUSED.name, Family { metric: REFUSED, series });
        families
    }

    /// The series of a metric; none if nobody has asked for it.
    pub(crate) fn series(&self, metric: &Metric) -> Vec<(Labels, Instrument)> {
        let (own, children) = {
            let tables = self.lock();
            (tables.series(metric), tables.living())
        };
        children.iter().fold(own, |all, child| [all, lock(child).series(metric)].concat())
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    /// Where the counters and histograms are.
    fn lasting(&self) -> MutexGuard<'_, Tables> {
        self.parent.as_ref().map_or_else(|| self.lock(), |parent| parent.lasting())
    }
}

fn lock(tables: &Mutex<Tables>) -> MutexGuard<'_, Tables> {
    // Wrong use panics before anything is changed, so the tables stay consistent.
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}

static REFUSED: &Metric = &metrics::server::TELEMETRY_SERIES_REFUSED_TOTAL;

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("series_count", &self.lock().series_count).finish_non_exhaustive()
    }
}

impl Tables {
    fn living(&self) -> Vec<Arc<Mutex<Self>>> {
        self.children.iter().filter_map(Weak::upgrade).collect()
    }

    fn series(&self, metric: &Metric) -> Vec<(Labels, Instrument)> {
        let series = self.families.get(metric.name).into_iter().flat_map(|family| &family.series);
        series.map(|(labels, instrument)| (labels.clone(), instrument.clone())).collect()
    }

    /// The existing instrument, else a fresh one (exported unless the registry is full).
    fn find_or_insert(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        fresh: impl FnOnce() -> Instrument,
    ) -> Instrument {
        let labels = Labels::new(metric, labels);
        if let Some(known) = self.family(metric).and_then(|family| family.series.get(&labels)) {
            return known.clone();
        }
        let fresh = fresh();
        self.insert(metric, labels, fresh.clone());
        fresh
    }

    fn replace(&mut self, metric: &'static Metric, labels: &[&str], function: Instrument) {
        let labels = Labels::new(metric, labels);
        match self.family(metric).and_then(|family| family.series.get_mut(&labels)) {
            Some(known) => {
                let is_computed = matches!(known, Instrument::Function(_));
                assert!(is_computed, "metric {} is already counted, not computed", metric.name);
                *known = function;
            }
            None => self.insert(metric, labels, function),
        }
    }

    fn insert(&mut self, metric: &'static Metric, labels: Labels, instrument: Instrument) {
        if self.series_count == SERIES_COUNT_MAX {
            self.refused.inc();
            return;
        }
        self.series_count += 1;
        let family = || Family { metric, series: BTreeMap::new() };
        self.families.entry(metric.name).or_insert_with(family).series.insert(labels, instrument);
    }

    /// The series of `metric` so far. Panics if its name belongs to another metric.
    fn family(&mut self, metric: &'static Metric) -> Option<&mut Family> {
        assert!(metric.name != REFUSED.name, "metric {} is the registry's own", metric.name);
        let family = self.families.get_mut(metric.name)?;
        assert!(*family.metric == *metric, "two metrics are called {}", metric.name);
        Some(family)
    }
}

impl Labels {
    fn new(metric: &Metric, values: &[&str]) -> Self {
        assert!(values.len() == metric.labels.len(), "metric {} has the labels {:?}", metric.name, metric.labels);
        let mut sorted: Vec<_> = metric.labels.iter().copied().zip(values).collect();
        sorted.sort_unstable();
        let mut labels = Self::default();
        for (name, value) in sorted {
            let value = &value[..value.floor_char_boundary(LABEL_VALUE_BYTES_MAX)];
            let comma = if labels.text.is_empty() { "" } else { "," };
            let escaped = escape_label_value(value);
            write!(labels.text, "{comma}{name}=\"{escaped}\"").expect("writing to a string cannot fail");
            labels.pairs.push((name, value.to_owned()));
        }
        labels
    }
}

fn escape_label_value(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n"))
}

#[cfg(test)]
mod tests;
