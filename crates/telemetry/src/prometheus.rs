//! The Prometheus text exposition format, version 0.0.4.
//!
//! Counters and gauges are exported as they are. A histogram becomes a summary in seconds, with quantiles over
//! everything since the start (`NaN` while it is empty), and two further metrics: the maximum and the number of clamped
//! values.
//!
//! Source: Prometheus documentation, "Exposition formats", text-based format.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::histogram::{HistogramSnapshot, QUANTILES};
use crate::metric::Kind;
use crate::registry::{Families, Family, Instrument, Registry};

impl Registry {
    /// All metrics in the Prometheus text format 0.0.4 (content type `text/plain; version=0.0.4`).
    #[must_use]
    pub fn prometheus(&self) -> String {
        render(&self.families())
    }
}

fn render(families: &Families) -> String {
    let mut text = String::with_capacity(128 * families.values().map(|family| 1 + family.series.len()).sum::<usize>());
    for family in families.values() {
        let written = match family.metric.kind {
            Kind::Counter | Kind::Gauge => plain(&mut text, family),
            Kind::Histogram(_) => summary(&mut text, family),
        };
        written.expect("writing to a string cannot fail");
    }
    text
}

fn plain(text: &mut String, family: &Family) -> fmt::Result {
    let name = family.metric.name;
    head(text, name, family.metric.help, family.metric.kind.as_str())?;
    for (labels, instrument) in &family.series {
        match instrument {
            Instrument::Counter(counter) => sample(text, name, &labels.text, counter.value())?,
            Instrument::Gauge(gauge) => sample(text, name, &labels.text, gauge.value())?,
            Instrument::Function(value) => sample(text, name, &labels.text, Float(value()))?,
            Instrument::Histogram(_) => unreachable!("a histogram is never in a family of another kind"),
        }
    }
    Ok(())
}

fn summary(text: &mut String, family: &Family) -> fmt::Result {
    let name = family.metric.name;
    let snapshots: Vec<(&str, HistogramSnapshot)> = family
        .series
        .iter()
        .filter_map(|(labels, instrument)| match instrument {
            Instrument::Histogram(histogram) => Some((labels.text.as_str(), histogram.snapshot())),
            _ => None,
        })
        .collect();
    head(text, name, family.metric.help, "summary")?;
    for (labels, snapshot) in &snapshots {
        let comma = if labels.is_empty() { "" } else { "," };
        for (quantile, _) in QUANTILES {
            let value = if snapshot.count() == 0 { f64::NAN } else { snapshot.quantile(quantile).as_secs_f64() };
            sample(text, name, &format!("{labels}{comma}quantile=\"{quantile}\""), Float(value))?;
        }
        sample(text, &format!("{name}_sum"), labels, seconds(snapshot.sum()))?;
        sample(text, &format!("{name}_count"), labels, snapshot.count())?;
    }
    let name_max = format!("{name}_max");
    head(text, &name_max, "The longest duration since the start.", "gauge")?;
    for (labels, snapshot) in &snapshots {
        sample(text, &name_max, labels, seconds(snapshot.max()))?;
    }
    let name_clamped = format!("{name}_clamped_total");
    head(text, &name_clamped, "Durations longer than an hour, recorded as an hour.", "counter")?;
    for (labels, snapshot) in &snapshots {
        sample(text, &name_clamped, labels, snapshot.clamped())?;
    }
    Ok(())
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) -> fmt::Result {
    let help = help.replace('\\', r"\\").replace('\n', r"\n");
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn sample(text: &mut String, name: &str, labels: &str, value: impl fmt::Display) -> fmt::Result {
    if labels.is_empty() { writeln!(text, "{name} {value}") } else { writeln!(text, "{name}{{{labels}}} {value}") }
}

fn seconds(duration: Duration) -> Float {
    Float(duration.as_secs_f64())
}

/// Prints a number as Go's `ParseFloat` reads it, also infinities.
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
