//! The two formats in which Prometheus reads metrics: its own text, version 0.0.4, and OpenMetrics 1.0.
//!
//! Both have the same samples. OpenMetrics also has units and the examples of histograms, and it names a counter's
//! family without `_total`. A histogram has a bucket for each bound of its metric, and one without a bound. Bounds are
//! written alike in both formats (`le="1.0"`), so that a series stays the same when the format changes.
//!
//! Sources: Prometheus documentation, "Exposition formats", text-based format; OpenMetrics 1.0.

use std::fmt::{self, Write as _};

use crate::histogram::{Example, HistogramSnapshot};
use crate::metric::Kind;
use crate::registry::{Families, Family, Instrument, Registry};

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus's own text.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Registry {
    /// All metrics in the Prometheus text format 0.0.4.
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.exposed(Exposition::Text)
    }

    /// All metrics in this format.
    #[must_use]
    pub fn exposed(&self, format: Exposition) -> String {
        let families = self.families();
        let text = String::with_capacity(64 * families.values().map(lines).sum::<usize>());
        let mut page = Page { text, format };
        page.write(&families).expect("writing to a string cannot fail");
        page.text
    }
}

/// About as many lines as the family has.
fn lines(family: &Family) -> usize {
    let of_one = match family.metric.kind {
        Kind::Histogram(bounds) => bounds.micros().len() + 3,
        Kind::Counter | Kind::Gauge => 1,
    };
    2 + family.series.len() * of_one
}

/// A page that is being written.
struct Page {
    text: String,
    format: Exposition,
}

impl Page {
    fn write(&mut self, families: &Families) -> fmt::Result {
        for family in families.values() {
            self.head(family)?;
            for (labels, instrument) in &family.series {
                let (name, labels) = (family.metric.name, labels.text.as_str());
                match instrument {
                    Instrument::Counter(counter) => self.sample(name, labels, counter.value())?,
                    Instrument::Gauge(gauge) => self.sample(name, labels, gauge.value())?,
                    Instrument::Function(value) => self.sample(name, labels, Float(value()))?,
                    Instrument::Histogram(histogram) => self.histogram(name, labels, &histogram.snapshot())?,
                }
            }
        }
        match self.format {
            Exposition::Text => Ok(()),
            Exposition::OpenMetrics => writeln!(self.text, "# EOF"),
        }
    }

    fn head(&mut self, family: &Family) -> fmt::Result {
        let metric = family.metric;
        let help = metric.help.replace('\\', r"\\").replace('\n', r"\n");
        let kind = metric.kind.as_str();
        match self.format {
            Exposition::Text => writeln!(self.text, "# HELP {0} {help}\n# TYPE {0} {kind}", metric.name),
            Exposition::OpenMetrics => {
                let (name, help) = (metric.family(), help.replace('"', "\\\""));
                writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
                metric.unit().map_or(Ok(()), |unit| writeln!(self.text, "# UNIT {name} {unit}"))
            }
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, snapshot: &HistogramSnapshot) -> fmt::Result {
        let comma = if labels.is_empty() { "" } else { "," };
        for bucket in snapshot.buckets() {
            let bound = bucket.bound.map_or(f64::INFINITY, |micros| micros as f64 / 1e6);
            write!(self.text, "{name}_bucket{{{labels}{comma}le=\"{:?}\"}} {}", Float(bound), bucket.count)?;
            if let (Exposition::OpenMetrics, Some(Example { trace, micros, at })) = (self.format, bucket.example) {
                let (value, at) = (*micros as f64 / 1e6, at.as_millis() as f64 / 1e3);
                write!(self.text, " # {{trace_id=\"{trace}\"}} {value} {at}")?;
            }
            self.text.push('\n');
        }
        self.sample(&format!("{name}_sum"), labels, Float(snapshot.sum().as_secs_f64()))?;
        self.sample(&format!("{name}_count"), labels, snapshot.count())
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl fmt::Display) -> fmt::Result {
        if labels.is_empty() {
            writeln!(self.text, "{name} {value}")
        } else {
            writeln!(self.text, "{name}{{{labels}}} {value}")
        }
    }
}

/// Prints a number as Go's `ParseFloat` reads it, also infinities. For debugging, a whole number has `.0` at its end.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            value if value == f64::INFINITY => f.write_str("+Inf"),
            value if value == f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

impl fmt::Debug for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() { write!(f, "{:?}", self.0) } else { fmt::Display::fmt(self, f) }
    }
}
