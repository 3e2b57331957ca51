//! The table of all instruments, by name and labels.
//!
//! A second call with the same name and labels (in any order) returns the same instrument, so components need not pass
//! instruments around. These mistakes of the programmer panic where the instrument is asked for, which is at start-up:
//! one name with two types; a name or label that Prometheus refuses; a name that a histogram already uses for its
//! derived series. Label *values* may come from anywhere and never panic.
//!
//! Bounds: `SERIES_COUNT_MAX` (4096) series in all, of any kind. Label values are cut at `LABEL_VALUE_BYTES_MAX` (200
//! bytes). When the table is full, the caller gets an instrument that works but is not exported, and
//! `tidings_telemetry_series_refused_total` counts it. Use labels for what has few values (a reason, a provider), never
//! for users, channels or devices.
//!
//! Locks: one, around the tables. It is held while an instrument is looked up and while a scrape lists the instruments,
//! never while a value function runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::histogram::Histogram;
use crate::instrument::{Counter, Gauge, ValueFn};

/// The largest number of series in a registry, over all names.
pub const SERIES_COUNT_MAX: usize = 4096;
/// The bytes of a label value that are kept; the rest is cut off at the edge of a character.
pub const LABEL_VALUE_BYTES_MAX: usize = 200;

/// The endings of the further series of a histogram, in either export.
pub(crate) const HISTOGRAM_ENDINGS: [&str; 10] =
    ["_sum", "_count", "_max", "_clamped_total", "_clamped", "_mean", "_p50", "_p90", "_p99", "_p999"];

/// The table of all instruments: a cheap handle, clones share the table.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    families: BTreeMap<String, Family>,
    series_count: usize,
    refused: Counter,
}

/// All series of one name.
#[derive(Clone)]
pub(crate) struct Family {
    pub(crate) help: String,
    pub(crate) kind: Kind,
    pub(crate) series: BTreeMap<Labels, Instrument>,
}

/// The labels of one series, sorted by name; values cut to [`LABEL_VALUE_BYTES_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    /// As Prometheus prints them: `a="1",b="2"`; empty without labels. The sort order of labels.
    pub(crate) text: String,
    /// The names and values as they were given.
    pub(crate) pairs: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
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

    /// The counter with this name and these labels. By convention the name ends in `_total`.
    ///
    /// # Panics
    /// If the name or a label name is invalid, or the name is in use for another type (see the module).
    #[must_use]
    pub fn counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Counter {
        let fresh = Instrument::Counter(Counter::default());
        match self.lock().find_or_insert(name, help, Kind::Counter, labels, fresh) {
            Instrument::Counter(counter) => counter,
            _ => panic!("metric {name} is computed by a function, not counted"),
        }
    }

    /// The gauge with this name and these labels.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    #[must_use]
    pub fn gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Gauge {
        let fresh = Instrument::Gauge(Gauge::default());
        match self.lock().find_or_insert(name, help, Kind::Gauge, labels, fresh) {
            Instrument::Gauge(gauge) => gauge,
            _ => panic!("metric {name} is computed by a function, not set"),
        }
    }

    /// The histogram of durations with this name and these labels. It is exported in seconds, so the name ends in
    /// `_seconds`.
    ///
    /// # Panics
    /// As [`counter`](Self::counter); also if a label is called `quantile`.
    #[must_use]
    pub fn histogram(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Histogram {
        assert!(labels.iter().all(|(label, _)| *label != "quantile"), "metric {name}: the label quantile is taken");
        let fresh = Instrument::Histogram(Histogram::default());
        match self.lock().find_or_insert(name, help, Kind::Histogram, labels, fresh) {
            Instrument::Histogram(histogram) => histogram,
            _ => unreachable!("the kind was checked and histograms have no functions"),
        }
    }

    /// A gauge that `value` computes at each scrape. A second call replaces the function.
    ///
    /// `value` is called on the scraping thread and must not wait.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    pub fn gauge_fn(&self, name: &str, help: &str, labels: &[(&str, &str)], value: ValueFn) {
        self.lock().replace(name, help, Kind::Gauge, labels, Instrument::Function(value));
    }

    /// A counter that `value` reads at each scrape; otherwise like [`gauge_fn`](Self::gauge_fn).
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    pub fn counter_fn(&self, name: &str, help: &str, labels: &[(&str, &str)], value: ValueFn) {
        self.lock().replace(name, help, Kind::Counter, labels, Instrument::Function(value));
    }

    /// All families (metrics of one name) as they are now, also the registry's own. Values are read without the
    /// registry's lock.
    pub(crate) fn families(&self) -> BTreeMap<String, Family> {
        let (mut families, refused) = {
            let tables = self.lock();
            (tables.families.clone(), tables.refused.clone())
        };
        let help = "Series that are not exported because there are 4096 already.";
        let series = BTreeMap::from([(Labels::default(), Instrument::Counter(refused))]);
        families.insert(REFUSED.to_owned(), Family { help: help.to_owned(), kind: Kind::Counter, series });
        families
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Wrong use panics before anything is changed, so the tables stay consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const REFUSED: &str = "tidings_telemetry_series_refused_total";

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("series_count", &self.lock().series_count).finish_non_exhaustive()
    }
}

impl Tables {
    /// The existing instrument, else `fresh` (exported unless the registry is full).
    fn find_or_insert(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        labels: &[(&str, &str)],
        fresh: Instrument,
    ) -> Instrument {
        let labels = Labels::new(name, labels);
        self.check_name(name, kind);
        if let Some(known) = self.families.get(name).and_then(|family| family.series.get(&labels)) {
            return known.clone();
        }
        self.insert(name, help, kind, labels, fresh.clone());
        fresh
    }

    fn replace(&mut self, name: &str, help: &str, kind: Kind, labels: &[(&str, &str)], function: Instrument) {
        let labels = Labels::new(name, labels);
        self.check_name(name, kind);
        match self.families.get_mut(name).and_then(|family| family.series.get_mut(&labels)) {
            Some(known) => {
                assert!(matches!(known, Instrument::Function(_)), "metric {name} is already counted, not computed");
                *known = function;
            }
            None => self.insert(name, help, kind, labels, function),
        }
    }

    fn insert(&mut self, name: &str, help: &str, kind: Kind, labels: Labels, instrument: Instrument) {
        if self.series_count == SERIES_COUNT_MAX {
            self.refused.inc();
            return;
        }
        self.series_count += 1;
        let family = || Family { help: help.to_owned(), kind, series: BTreeMap::new() };
        self.families.entry(name.to_owned()).or_insert_with(family).series.insert(labels, instrument);
    }

    /// Panics if `name` cannot be exported as `kind` beside the existing names.
    fn check_name(&self, name: &str, kind: Kind) {
        if let Some(family) = self.families.get(name) {
            assert!(family.kind == kind, "metric {name} is a {:?}, asked for as a {kind:?}", family.kind);
            return;
        }
        assert!(is_metric_name(name), "{name:?} is not a metric name");
        assert!(name != REFUSED, "metric {name} is the registry's own");
        for ending in HISTOGRAM_ENDINGS {
            if let Some(owner) = name.strip_suffix(ending).and_then(|base| self.families.get(base)) {
                assert!(owner.kind != Kind::Histogram, "metric {name} belongs to the histogram of that name");
            }
            if kind == Kind::Histogram {
                let derived = format!("{name}{ending}");
                assert!(!self.families.contains_key(&derived), "histogram {name} needs the name {derived}, in use");
            }
        }
    }
}

impl Labels {
    fn new(metric: &str, labels: &[(&str, &str)]) -> Self {
        let mut sorted = labels.to_vec();
        sorted.sort_unstable();
        assert!(
            sorted.windows(2).all(|pair| pair[0].0 != pair[1].0),
            "metric {metric}: a label is given twice in {sorted:?}"
        );
        let mut labels = Self::default();
        for (name, value) in sorted {
            assert!(is_label_name(name), "metric {metric}: {name:?} is not a label name");
            let value = &value[..value.floor_char_boundary(LABEL_VALUE_BYTES_MAX)];
            let (text, escaped) = (&mut labels.text, escape_label_value(value));
            let comma = if text.is_empty() { "" } else { "," };
            write!(text, "{comma}{name}=\"{escaped}\"").expect("writing to a string cannot fail");
            labels.pairs.push((name.to_owned(), value.to_owned()));
        }
        labels
    }
}

fn is_metric_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || matches!(first, b'_' | b':'))
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
}

fn is_label_name(name: &str) -> bool {
    is_metric_name(name) && !name.contains(':') && !name.starts_with("__")
}

fn escape_label_value(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n"))
}

#[cfg(test)]
mod tests;
