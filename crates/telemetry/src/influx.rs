//! The registry as InfluxDB lines, for an agent that receives them: what happened since the last flush.
//!
//! An [`Exporter`] remembers the value that it last wrote for each series. [`Exporter::flush`] writes lines for what
//! changed since then, and hands them to its caller one by one. It has no socket and no clock. InfluxDB, Telegraf and
//! VictoriaMetrics read the lines.
//!
//! ```text
//! tidings_edge,host=web-1 commands=12i,connections=900i,delivery_seconds_count=80i,… 1700000000000000000
//! measurement, labels and  fields, of all families of that measurement                nanoseconds
//!              other tags
//! ```
//!
//! - A counter's field is its increase, and its name loses the ending `_total`. Without an increase there is no field.
//!   So the points of a counter add up to the counter, from zero at the start of the process. What the network loses is
//!   missing in the sum.
//! - A gauge's field is its value, in each flush.
//! - A histogram has the fields `_count`, `_sum`, `_mean`, `_p50`, `_p90`, `_p99`, `_p999` and `_max` in seconds, and
//!   `_clamped`. They cover the values recorded since the last flush. Without values there are no fields.
//! - Numbers that are counted or set are integers. Computed numbers and seconds are floats. A field keeps the type of
//!   its first value, because databases refuse another type. So one computed series makes its whole family floats.
//!   `NaN` and infinite values are left out.
//!
//! Metrics whose names begin alike share a measurement. The measurement is the first word, and also the second word if
//! the first is the exporter's prefix. Series of one measurement with the same labels share a point. A point longer
//! than `line_bytes_max` is written as several lines with the same labels and time, which databases merge again.
//!
//! Tags: an empty value is left out, since the protocol has none. Characters that parsers treat differently are
//! replaced: a backslash by `/`, a control character (such as a line break) by `_`. Names of labels and metrics need no
//! escape, because a [`Metric`] admits only letters, digits and `_`. The names that InfluxDB reserves (`time`,
//! `_field`, `_measurement`) get a `_` at the end.
//!
//! Memory: at most as many series as the registry has (4096). A series takes about its name, its labels and 16 bytes; a
//! histogram also takes a second copy (230 KiB at most). A flush needs as much memory as its lines.
//!
//! Source: InfluxData, "Line protocol reference" (v1.8 and v2).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use tidings_types::Timestamp;

use crate::histogram::{Histogram, HistogramSnapshot, QUANTILES};
use crate::metric::{Kind, Metric};
use crate::registry::{Family, Instrument, Labels, Registry};

/// How lines are written.
#[derive(Debug, Clone)]
pub struct LineConfig {
    /// A first word of names that is a measurement only together with the second word: `tidings` in
    /// `tidings_api_requests_total`.
    pub prefix: &'static str,
    /// Tags of every line, by name. A metric's label of the same name replaces the tag. A name must be valid for a
    /// label.
    pub tags: BTreeMap<String, String>,
    /// The greatest length of a line, with its line break.
    pub line_bytes_max: usize,
}

/// The result of a flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Lines that were handed to the caller.
    pub line_count: u64,
    /// Fields that were left out because the field alone, with its labels, is longer than `line_bytes_max`.
    pub oversize_count: u64,
}

/// Makes lines of what a [`Registry`] measured since the last flush.
///
/// ```
/// use tidings_telemetry::influx::{Exporter, LineConfig};
/// use tidings_telemetry::{Metric, Registry, unix_now};
///
/// static VISITS: Metric = Metric::counter("tidings_shop_visits_total").labels(&["shop"]);
///
/// let registry = Registry::new();
/// let config = LineConfig { prefix: "tidings", tags: Default::default(), line_bytes_max: 1432 };
/// let mut exporter = Exporter::new(&registry, config);
/// registry.counter(&VISITS, &["north"]).add(3);
/// let mut lines = Vec::new();
/// exporter.flush(unix_now(), |line| lines.extend_from_slice(line));
/// assert!(lines.starts_with(b"tidings_shop,shop=north visits=3i "));
/// ```
#[derive(Debug)]
pub struct Exporter {
    registry: Registry,
    config: LineConfig,
    /// Bound: as many series as the registry has.
    families: BTreeMap<&'static str, Seen>,
}

/// What is remembered of a family.
#[derive(Debug)]
struct Seen {
    float: bool,
    series: BTreeMap<Labels, Last>,
}

/// The value of a series when it was last written.
#[derive(Debug)]
enum Last {
    Counted(u64),
    Computed(f64),
    Recorded(Box<HistogramSnapshot>),
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Integer(i64),
    Float(f64),
}

/// The fields of one measurement and set of labels.
type Points<'a> = BTreeMap<(&'a str, &'a Labels), Vec<(String, Number)>>;

impl Exporter {
    /// An exporter whose first flush contains everything since the start of the process.
    #[must_use]
    pub fn new(registry: &Registry, config: LineConfig) -> Self {
        Self { registry: registry.clone(), config, families: BTreeMap::new() }
    }

    /// Hands a line, with its line break, to `write` for every point; all points have the time `now`.
    pub fn flush(&mut self, now: Timestamp, mut write: impl FnMut(&[u8])) -> Flushed {
        let families = self.registry.families();
        let mut points = Points::new();
        for family in families.values() {
            self.add(family, &mut points);
        }
        let mut flushed = Flushed::default();
        let end = format!(" {}\n", u128::from(now.as_millis()) * 1_000_000);
        let mut line = Line { end, bytes_max: self.config.line_bytes_max, ..Line::default() };
        for ((measurement, labels), fields) in points {
            line.begin(measurement, labels, &self.config.tags);
            for (key, value) in fields {
                if line.push(&key, value) {
                    continue;
                }
                flushed.line_count += u64::from(line.finish(&mut write));
                flushed.oversize_count += u64::from(!line.push(&key, value));
            }
            flushed.line_count += u64::from(line.finish(&mut write));
        }
        flushed
    }

    /// Adds the fields of `family` to `points`.
    fn add<'a>(&mut self, family: &'a Family, points: &mut Points<'a>) {
        let (measurement, field) = measurement_and_field(family.metric, self.config.prefix);
        let computed = |instrument: &Instrument| matches!(instrument, Instrument::Function(_));
        let seen = self
            .families
            .entry(family.metric.name)
            .or_insert_with(|| Seen { float: family.series.values().any(computed), series: BTreeMap::new() });
        for (labels, instrument) in &family.series {
            let mut put = |ending: &str, value: Number| {
                points.entry((measurement, labels)).or_default().push((format!("{field}{ending}"), value));
            };
            if !seen.series.contains_key(labels) {
                seen.series.insert(labels.clone(), Last::before(instrument));
            }
            let last = seen.series.get_mut(labels).expect("it was inserted above");
            match (family.metric.kind, instrument) {
                (Kind::Gauge, Instrument::Gauge(gauge)) => put("", Number::of_integer(gauge.value(), seen.float)),
                (Kind::Gauge, Instrument::Function(value)) => {
                    if let Some(value) = Number::of_float(value(), seen.float) {
                        put("", value);
                    }
                }
                (_, Instrument::Histogram(histogram)) => last.recorded(histogram, put),
                (_, Instrument::Counter(counter)) => {
                    if let Some(growth) = last.counted(counter.value()) {
                        put("", Number::of_integer(growth, seen.float));
                    }
                }
                (_, Instrument::Function(value)) => {
                    if let Some(growth) = last.computed(value(), seen.float) {
                        put("", growth);
                    }
                }
                (Kind::Counter | Kind::Histogram(_), Instrument::Gauge(_)) => {
                    unreachable!("a gauge is never in a family of another kind")
                }
            }
        }
    }
}

impl Last {
    /// The value of a series before the first flush.
    fn before(instrument: &Instrument) -> Self {
        match instrument {
            Instrument::Counter(_) | Instrument::Gauge(_) => Self::Counted(0),
            Instrument::Function(_) => Self::Computed(0.0),
            Instrument::Histogram(_) => Self::Recorded(Box::default()),
        }
    }

    /// The increase of a counter. An increase that an integer field cannot hold is spread over the next flushes.
    fn counted(&mut self, now: u64) -> Option<i64> {
        let Self::Counted(last) = self else { unreachable!("a counter stays one") };
        let growth = i64::try_from(now.wrapping_sub(*last)).unwrap_or(i64::MAX); // A counter wraps.
        *last = last.wrapping_add(growth.unsigned_abs());
        (growth > 0).then_some(growth)
    }

    /// The increase of a computed counter. A value lower than the last one means that the counter has a new owner and
    /// began at zero. So the remembered value must never be greater than the true one, not even by rounding. An
    /// increase that an integer cannot hold is written in the next flushes.
    fn computed(&mut self, now: f64, float: bool) -> Option<Number> {
        let Self::Computed(last) = self else { unreachable!("a computed counter stays one") };
        let base = if now < *last { 0.0 } else { *last };
        let growth = Number::of_float(if float { now - base } else { (now - base).floor() }, float)?;
        *last = if float { now } else { now.min(base + growth.as_float()) };
        (growth.as_float() > 0.0).then_some(growth)
    }

    fn recorded(&mut self, histogram: &Histogram, mut put: impl FnMut(&str, Number)) {
        let Self::Recorded(last) = self else { unreachable!("a histogram stays one") };
        let Some(lately) = histogram.since(last) else { return };
        let count = |count: u64| Number::Integer(i64::try_from(count).unwrap_or(i64::MAX));
        put("_count", count(lately.count()));
        put("_sum", Number::Float(lately.sum().as_secs_f64()));
        put("_mean", Number::Float(lately.mean().as_secs_f64()));
        for (quantile, name) in QUANTILES {
            put(&format!("_{name}"), Number::Float(lately.quantile(quantile).as_secs_f64()));
        }
        put("_max", Number::Float(lately.max().as_secs_f64()));
        if lately.clamped() > 0 {
            put("_clamped", count(lately.clamped()));
        }
    }
}

impl Number {
    fn of_integer(value: i64, float: bool) -> Self {
        if float { Self::Float(value as f64) } else { Self::Integer(value) }
    }

    /// `None` for `NaN` and infinity: these are no number.
    fn of_float(value: f64, float: bool) -> Option<Self> {
        value.is_finite().then(|| if float { Self::Float(value) } else { Self::Integer(value.round() as i64) })
    }

    fn as_float(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}i"),
            Self::Float(value) => write!(f, "{value:?}"), // Very large and very small values get an exponent.
        }
    }
}

/// The line that is being written.
#[derive(Default)]
struct Line {
    /// Measurement and tags, then the fields so far.
    text: String,
    /// Where the fields begin.
    head_bytes: usize,
    /// Time and line break.
    end: String,
    bytes_max: usize,
}

impl Line {
    fn begin(&mut self, measurement: &str, labels: &Labels, more: &BTreeMap<String, String>) {
        self.text.clear();
        self.text.push_str(measurement);
        let mut tags: BTreeMap<&str, &str> = BTreeMap::new();
        tags.extend(more.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        tags.extend(labels.pairs.iter().map(|(name, value)| (*name, value.as_str())));
        for (name, value) in tags.into_iter().filter(|(_, value)| !value.is_empty()) {
            write!(self.text, ",{}={}", Key(name), TagValue(value)).expect("writing to a string cannot fail");
        }
        self.text.push(' ');
        self.head_bytes = self.text.len();
    }

    /// Adds a field unless the line would become too long.
    fn push(&mut self, key: &str, value: Number) -> bool {
        let before = self.text.len();
        let comma = if before == self.head_bytes { "" } else { "," };
        write!(self.text, "{comma}{}={value}", Key(key)).expect("writing to a string cannot fail");
        let fits = self.text.len() + self.end.len() <= self.bytes_max;
        if !fits {
            self.text.truncate(before);
        }
        fits
    }

    /// Hands the line on if it has a field. Fields that follow are further fields of the same point.
    fn finish(&mut self, write: &mut impl FnMut(&[u8])) -> bool {
        let has_fields = self.text.len() > self.head_bytes;
        if has_fields {
            self.text.push_str(&self.end);
            write(self.text.as_bytes());
            self.text.truncate(self.head_bytes);
        }
        has_fields
    }
}

/// The name of a tag or field.
struct Key<'a>(&'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reserved = matches!(self.0, "time" | "_field" | "_measurement");
        write!(f, "{}{}", self.0, if reserved { "_" } else { "" })
    }
}

/// The value of a tag, escaped.
struct TagValue<'a>(&'a str);

impl fmt::Display for TagValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            ',' | '=' | ' ' => write!(f, "\\{char}"),
            '\\' => f.write_char('/'),
            char if char.is_control() => f.write_char('_'),
            char => f.write_char(char),
        })
    }
}

/// `tidings_api_requests_total` becomes `requests` of `tidings_api`, and `process_threads` becomes `threads` of
/// `process`.
fn measurement_and_field(metric: &Metric, prefix: &str) -> (&'static str, &'static str) {
    let name = metric.family();
    let words_end = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).map(|rest| {
        let before = name.len() - rest.len();
        rest.find('_').map_or(name.len(), |end| before + end)
    });
    let end = words_end.or_else(|| name.find('_')).unwrap_or(name.len());
    match name[end..].strip_prefix('_') {
        Some(field) if end > 0 && !field.is_empty() => (&name[..end], field),
        _ => (name, "value"),
    }
}

#[cfg(test)]
mod tests;
