//! What a metric is: its name, kind, labels, meaning, and where a dashboard shows it.
//!
//! A declaration is a constant expression, so a name that Prometheus refuses does not compile. Counters end in `_total`
//! and histograms in `_seconds`. The unit is the ending of the name.

/// The declaration of a metric. Every registered metric has one; a series adds values of the labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name at `/metrics`.
    pub name: &'static str,
    /// What the values are, and so how they are exported and shown.
    pub kind: Kind,
    /// The names of the labels, in the order in which callers give their values.
    pub labels: &'static [&'static str],
    /// What the metric says, in one plain sentence.
    pub help: &'static str,
    /// When the metric exists, as the end of the sentence "it is there when …". `None`: always.
    pub when: Option<&'static str>,
    /// Where a dashboard shows it.
    pub panel: Panel,
}

/// What the values of a metric are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows. Shown as its increase per second.
    Counter,
    /// A number that goes up and down. Shown as it is.
    Gauge,
    /// A distribution of durations. Shown as quantiles.
    Histogram(Bounds),
}

/// Which durations a histogram tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Answers of programs and disks: 100 µs to 1 minute.
    Latency,
    /// Work that may also take hours: 10 ms to 1 day.
    Long,
}

/// Where a dashboard shows a metric. The group of the metric is the row, [`Kind`] says how it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Panel {
    /// In the panel of this title.
    In(&'static str),
    /// Nowhere, for this reason.
    None(&'static str),
}

/// Metrics that belong together: a section of `docs/metrics.md`, a row of a dashboard.
#[derive(Debug)]
pub struct Group {
    /// The heading.
    pub heading: &'static str,
    /// All metrics of the group.
    pub metrics: &'static [&'static Metric],
    /// The names of their constants, in the same order.
    #[cfg(test)]
    pub(crate) constants: &'static [&'static str],
}

impl Bounds {
    /// The upper bounds of the buckets, without the last one, which has none.
    #[must_use]
    pub const fn micros(self) -> &'static [u64] {
        const MILLI: u64 = 1_000;
        const SECOND: u64 = 1_000 * MILLI;
        const MINUTE: u64 = 60 * SECOND;
        const HOUR: u64 = 60 * MINUTE;
        match self {
            Self::Latency => &[
                100,
                250,
                500,
                MILLI,
                2_500,
                5 * MILLI,
                10 * MILLI,
                25 * MILLI,
                50 * MILLI,
                100 * MILLI,
                250 * MILLI,
                500 * MILLI,
                SECOND,
                2_500 * MILLI,
                5 * SECOND,
                10 * SECOND,
                30 * SECOND,
                MINUTE,
            ],
            Self::Long => &[
                10 * MILLI,
                50 * MILLI,
                100 * MILLI,
                250 * MILLI,
                500 * MILLI,
                SECOND,
                2_500 * MILLI,
                5 * SECOND,
                10 * SECOND,
                30 * SECOND,
                MINUTE,
                2 * MINUTE,
                5 * MINUTE,
                10 * MINUTE,
                30 * MINUTE,
                HOUR,
                3 * HOUR,
                6 * HOUR,
                24 * HOUR,
            ],
        }
    }
}

impl Kind {
    /// The word for people and for the line `# TYPE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Metric {
    /// A counter. The name ends in `_total`.
    #[must_use]
    pub const fn counter(name: &'static str) -> Self {
        assert!(has_ending(name, "_total"), "the name of a counter ends in _total");
        Self::new(name, Kind::Counter)
    }

    /// A gauge. The name does not end in `_total`.
    #[must_use]
    pub const fn gauge(name: &'static str) -> Self {
        assert!(!has_ending(name, "_total"), "only the name of a counter ends in _total");
        Self::new(name, Kind::Gauge)
    }

    /// A histogram of durations. The name ends in `_seconds`.
    #[must_use]
    pub const fn histogram(name: &'static str, bounds: Bounds) -> Self {
        assert!(has_ending(name, "_seconds"), "a histogram is of durations: its name ends in _seconds");
        Self::new(name, Kind::Histogram(bounds))
    }

    const fn new(name: &'static str, kind: Kind) -> Self {
        assert!(is_name(name), "Prometheus refuses this name");
        Self { name, kind, labels: &[], help: "", when: None, panel: Panel::None("") }
    }

    /// The same metric with these labels.
    #[must_use]
    pub const fn labels(self, labels: &'static [&'static str]) -> Self {
        let mut index = 0;
        while index < labels.len() {
            let label = labels[index].as_bytes();
            assert!(is_name(labels[index]), "Prometheus refuses this name of a label");
            assert!(!(label[0] == b'_' && label.len() > 1 && label[1] == b'_'), "a label with __ is reserved");
            assert!(!is_same(label, b"le"), "le is the label of a histogram's buckets");
            index += 1;
        }
        Self { labels, ..self }
    }

    /// The same metric with this meaning.
    #[must_use]
    pub const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// The same metric, which exists only when something is the case: "it is there when `what`".
    #[must_use]
    pub const fn when(self, what: &'static str) -> Self {
        Self { when: Some(what), ..self }
    }

    /// The same metric, shown in this panel.
    #[must_use]
    pub const fn panel(self, title: &'static str) -> Self {
        Self { panel: Panel::In(title), ..self }
    }

    /// The same metric, shown in no panel for this reason.
    #[must_use]
    pub const fn no_panel(self, why: &'static str) -> Self {
        Self { panel: Panel::None(why), ..self }
    }

    /// The unit of the values; `None` for a number of things.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.family();
        ["seconds", "bytes"].into_iter().find(|unit| name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
    }

    /// The name without the ending of a counter.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.name.strip_suffix("_total").unwrap_or(self.name)
    }
}

/// Whether Prometheus takes this name of a metric or label. It would also take a colon in the name of a metric.
const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        let is_digit = bytes[index].is_ascii_digit() && index > 0;
        if !(bytes[index].is_ascii_alphabetic() || bytes[index] == b'_' || is_digit) {
            return false;
        }
        index += 1;
    }
    !bytes.is_empty()
}

const fn has_ending(text: &str, ending: &str) -> bool {
    match text.as_bytes().split_at_checked(text.len().saturating_sub(ending.len())) {
        Some((_, end)) => is_same(end, ending.as_bytes()),
        None => false,
    }
}

/// Whether two texts are equal, in a constant expression.
const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    left.len() == right.len()
}

/// Declares a constant for each metric of a group, and the group of all of them. The doc comment is the help.
macro_rules! group {
    ($heading:literal; $($(#[doc = $help:literal])+ $constant:ident = $metric:expr;)+) => {
        $($(#[doc = $help])+ pub static $constant: Metric = $metric.help(concat!($($help),+).trim_ascii());)+

        /// All of these.
        pub(super) static GROUP: Group = Group {
            heading: $heading,
            metrics: &[$(&$constant),+],
            #[cfg(test)]
            constants: &[$(stringify!($constant)),+],
        };
    };
}
pub(crate) use group;
