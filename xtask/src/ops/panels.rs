//! The panels of the dashboard: what each asks Prometheus. [`super::dashboard`] puts them in their places.
//!
//! A group of metrics is a row, and metrics with the same panel title share a panel. The kind of a metric says how it is
//! asked for, and the end of its name is the unit. Only the first row is written by hand.

use tidings_telemetry::{Group, Kind, Metric, Panel as Place};

/// The labels that the variables of the dashboard choose.
const CHOSEN: &str = r#"job=~"$job",instance=~"$instance""#;

pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) form: Form,
    /// A unit of Grafana.
    pub(super) unit: &'static str,
    /// What each metric says.
    pub(super) description: String,
    pub(super) queries: Vec<Query>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Stat,
    Table,
    TimeSeries,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) expr: String,
    pub(super) legend: String,
}

/// What an operator looks at first: title, unit, query, metric.
const FIRST: [(&str, &str, &str, &str); 6] = [
    ("Events", "cps", "sum(rate(METRIC{CHOSEN}[$__rate_interval]))", "tidings_sender_events_dispatched_total"),
    ("Live deliveries", "cps", "sum(rate(METRIC{CHOSEN}[$__rate_interval]))", "tidings_edge_deliveries_total"),
    (
        "Pushes",
        "cps",
        "sum by (provider) (rate(METRIC{CHOSEN,outcome=\"accepted\"}[$__rate_interval]))",
        "tidings_sender_provider_outcomes_total",
    ),
    (
        "Pushes saved by receipts",
        "cps",
        "sum(rate(METRIC{CHOSEN,outcome=\"received\"}[$__rate_interval]))",
        "tidings_sender_outcomes_total",
    ),
    (
        "Acceptance to provider's answer, 99 %",
        "s",
        "histogram_quantile(0.99, sum by (le) (rate(METRIC_bucket{CHOSEN}[$__rate_interval])))",
        "tidings_sender_latency_seconds",
    ),
    ("Oldest waiting job", "s", "max(METRIC{CHOSEN})", "tidings_sender_oldest_waiting_job_seconds"),
];

/// The first row.
pub(super) fn first() -> Vec<Panel> {
    let panel = |(title, unit, query, name): (_, _, &str, &str)| Panel {
        title,
        form: Form::Stat,
        unit,
        description: metric(name).map(about).unwrap_or_default(),
        queries: vec![Query {
            expr: query.replace("METRIC", name).replace("CHOSEN", CHOSEN),
            legend: if query.contains("by (provider)") { "{{provider}}" } else { title }.to_owned(),
        }],
    };
    FIRST.map(panel).into()
}

/// The panels of a group, in the order of its metrics.
pub(super) fn of_group(group: &Group) -> Vec<Panel> {
    let mut rows: Vec<(&str, Vec<&Metric>)> = Vec::new();
    for metric in group.metrics {
        let Place::In(title) = metric.panel else { continue };
        match rows.iter_mut().find(|(other, _)| *other == title) {
            Some((_, metrics)) => metrics.push(metric),
            None => rows.push((title, vec![metric])),
        }
    }
    rows.into_iter().map(|(title, metrics)| panel(title, &metrics)).collect()
}

fn metric(name: &str) -> Option<&'static Metric> {
    tidings_telemetry::metrics::all().find(|metric| metric.name == name)
}

fn panel(title: &'static str, metrics: &[&Metric]) -> Panel {
    let [first, others @ ..] = metrics else { unreachable!("a panel begins with a metric") };
    Panel {
        title,
        form: if is_info(first) { Form::Table } else { Form::TimeSeries },
        unit: unit(first),
        description: metrics.iter().map(|metric| about(metric)).collect::<Vec<_>>().join("\n"),
        queries: metrics.iter().flat_map(|metric| queries(metric, others.is_empty())).collect(),
    }
}

/// A line of a description. `conformance/ops` reads the last sentence: such a metric may be absent.
fn about(metric: &Metric) -> String {
    let when = metric.when.map(|when| format!(" Only if {when}.")).unwrap_or_default();
    format!("{}: {}{when}", metric.name, metric.help)
}

fn queries(metric: &Metric, is_alone: bool) -> Vec<Query> {
    let Metric { name, labels, .. } = metric;
    let values = labels.iter().map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ");
    let words = if is_alone && !labels.is_empty() { String::new() } else { words(name) };
    let legend = |before: &str| format!("{before} {words} {values}").split_whitespace().collect::<Vec<_>>().join(" ");
    let query = |expr, before| Query { expr, legend: legend(before) };
    match metric.kind {
        Kind::Counter => vec![query(format!("sum{}(rate({name}{{{CHOSEN}}}[$__rate_interval]))", by(labels)), "")],
        Kind::Gauge if is_moment(metric) => vec![query(format!("time() - {name}{{{CHOSEN}}}"), "{{instance}} since")],
        Kind::Gauge => vec![query(format!("{name}{{{CHOSEN}}}"), "{{instance}}")],
        Kind::Histogram(_) => [("0.5", "50 %"), ("0.99", "99 %")]
            .map(|(quantile, before)| {
                let by = by(&[&["le"][..], labels].concat());
                let buckets = format!("sum{by}(rate({name}_bucket{{{CHOSEN}}}[$__rate_interval]))");
                query(format!("histogram_quantile({quantile}, {buckets})"), before)
            })
            .into(),
    }
}

fn by(labels: &[&str]) -> String {
    if labels.is_empty() { String::new() } else { format!(" by ({}) ", labels.join(", ")) }
}

/// `tidings_sender_gone_tokens_total` → `gone tokens`.
fn words(name: &str) -> String {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let name = name.strip_prefix("tidings_").unwrap_or(name);
    name.split_once('_').map_or(name, |(_, rest)| rest).replace('_', " ")
}

/// Always 1; the labels are what it says.
fn is_info(metric: &Metric) -> bool {
    metric.name.ends_with("_info")
}

/// A time since the Unix epoch. Shown as the time that has passed since then.
fn is_moment(metric: &Metric) -> bool {
    metric.name.ends_with("_time_seconds")
}

fn unit(metric: &Metric) -> &'static str {
    match (metric.kind, metric.unit()) {
        (Kind::Counter, Some("bytes")) => "Bps",
        (Kind::Counter, Some("seconds")) => "percentunit", // Of one core.
        (Kind::Counter, _) => "cps",
        (_, Some("bytes")) => "bytes",
        (_, Some("seconds")) => "s",
        _ => "short",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidings_telemetry::metrics::GROUPS;
    use tidings_telemetry::{Bounds, Metric, Panel as Place};

    use super::{FIRST, Form, metric, of_group, queries, unit};

    #[test]
    fn a_panel_has_one_unit() {
        for group in GROUPS {
            for panel in of_group(group) {
                let of_panel = |metric: &&&Metric| metric.panel == Place::In(panel.title);
                let units: BTreeSet<&str> = group.metrics.iter().filter(of_panel).map(|metric| unit(metric)).collect();
                assert_eq!(units.len(), 1, "{} → {}: {units:?}", group.heading, panel.title);
                assert!(panel.form == Form::TimeSeries || panel.queries.len() == 1, "{}", panel.title);
            }
        }
    }

    #[test]
    fn the_first_row_is_about_metrics_that_exist() {
        assert!(FIRST.iter().all(|(.., name)| metric(name).is_some()));
    }

    #[test]
    fn the_kind_of_a_metric_says_how_it_is_asked_for() {
        let told = |metric: &Metric| {
            let queries = queries(metric, true).into_iter().map(|query| format!("{} → {}", query.expr, query.legend));
            queries.collect::<Vec<_>>().join("\n").replace(super::CHOSEN, "…")
        };
        let counter = Metric::counter("tidings_a_b_total");
        assert_eq!(told(&counter), "sum(rate(tidings_a_b_total{…}[$__rate_interval])) → b");
        let gauge = Metric::gauge("tidings_a_b").labels(&["x", "y"]);
        assert_eq!(told(&gauge), "tidings_a_b{…} → {{instance}} {{x}} {{y}}");
        let histogram = Metric::histogram("tidings_a_b_seconds", Bounds::Long).labels(&["x"]);
        assert_eq!(
            told(&histogram).lines().next_back().unwrap(),
            "histogram_quantile(0.99, sum by (le, x) (rate(tidings_a_b_seconds_bucket{…}[$__rate_interval]))) → 99 % {{x}}"
        );
    }
}
