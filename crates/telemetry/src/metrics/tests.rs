//! The table keeps its rules, and the page shows it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::{GROUPS, all};
use crate::metric::{Kind, Metric, Panel};

/// Lines of `docs/metrics.md` around what is made from the table.
const MARKS: (&str, &str) = ("<!-- metrics -->\n", "<!-- end -->\n");
/// Set to write the page instead of comparing it.
const WRITE: &str = "TIDINGS_WRITE_METRICS";

/// Endings of the series of a histogram, in any export.
const HISTOGRAM_ENDINGS: [&str; 10] =
    ["_bucket", "_sum", "_count", "_created", "_max", "_clamped", "_mean", "_p50", "_p90", "_p99"];

#[test]
fn the_page_has_this_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(MARKS.0).expect("the first mark");
    let (_, after) = rest.split_once(MARKS.1).expect("the second mark");
    let made = format!("{before}{}{}{}{after}", MARKS.0, tables(), MARKS.1);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, made).unwrap();
    } else {
        assert!(page == made, "docs/metrics.md is old: run {WRITE}=1 cargo test -p tidings-telemetry the_page");
    }
}

/// A section with a table for each group.
fn tables() -> String {
    let mut text = String::new();
    for group in GROUPS {
        let head = "| Metric | Kind | Labels | Says |\n|---|---|---|---|";
        writeln!(text, "\n### {}\n\n{head}", group.heading).unwrap();
        for metric in group.metrics {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let when = metric.when.map(|when| format!(" Only if {when}.")).unwrap_or_default();
            let (name, kind, help) = (metric.name, metric.kind.as_str(), metric.help);
            writeln!(text, "| `{name}` | {kind} | {} | {help}{when} |", labels.join(", ")).unwrap();
        }
    }
    text + "\n"
}

#[test]
fn a_constant_is_called_like_its_metric() {
    let modules = [
        "sender", "gateway", "edge", "hub", "store", "api", "http", "intake", "webhook", "hooks", "influx", "audit",
        "traces", "cluster", "server", "process",
    ];
    for (group, module) in GROUPS.iter().zip(modules) {
        for (metric, constant) in group.metrics.iter().zip(group.constants) {
            let name = metric.name.strip_prefix("tidings_").unwrap_or(metric.name);
            let name = name.strip_prefix(&format!("{module}_")).unwrap_or(name);
            assert_eq!(*constant, name.to_uppercase(), "in {module}");
        }
    }
}

#[test]
fn every_metric_says_what_it_is_in_one_sentence_and_where_it_is_shown() {
    for Metric { name, help, labels, when, panel, .. } in all() {
        let is_sentence = help.ends_with('.') && !help.contains(['|', '\n']) && !help.contains(". ");
        assert!(is_sentence && help.starts_with(|first: char| !first.is_lowercase()), "{name}: {help:?}");
        assert_eq!(BTreeSet::from_iter(*labels).len(), labels.len(), "{name}: {labels:?}");
        assert!(when.is_none_or(|when| !when.is_empty() && !when.ends_with('.')), "{name}: {when:?}");
        let (Panel::In(text) | Panel::None(text)) = panel;
        assert!(!text.is_empty(), "{name} has no panel and no reason");
    }
}

/// Neither at `/metrics`, nor as OpenMetrics, nor as InfluxDB lines.
#[test]
fn no_two_series_have_one_name() {
    let mut names = BTreeSet::new();
    for metric in all() {
        assert!(names.insert(metric.family().to_owned()), "twice: {}", metric.family());
        if metric.kind == Kind::Counter {
            assert!(names.insert(metric.name.to_owned()), "twice: {}", metric.name);
        }
        if let Kind::Histogram(_) = metric.kind {
            for ending in HISTOGRAM_ENDINGS {
                assert!(names.insert(format!("{}{ending}", metric.name)), "twice: {}{ending}", metric.name);
            }
        }
    }
}

#[test]
fn bounds_of_histograms_grow() {
    for bounds in [crate::Bounds::Latency, crate::Bounds::Long] {
        let bounds = bounds.micros();
        assert!((14..=20).contains(&bounds.len()) && bounds.is_sorted_by(|low, high| low < high), "{bounds:?}");
    }
}
