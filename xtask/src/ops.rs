//! `cargo xtask ops`: makes the files of `ops/` and the table of runbooks from the table of metrics (`tidings-telemetry`) and
//! the table of alerts ([`alerts::ALERTS`]). The step `tidy` compares them with what is checked in, and checks that each
//! alert has a runbook.
//!
//! `conformance/ops` runs the files in a real Prometheus and Alertmanager. Nothing here needs either of them.

mod alerts;
mod dashboard;
mod panels;
mod rules;
mod ticks;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use tidings_telemetry::metrics;

use alerts::{ALERTS, Alert, RUNBOOKS};

const INDEX: &str = "docs/runbooks/README.md";
/// Lines of the index around the table of alerts.
const MARKS: (&str, &str) = ("<!-- alerts -->\n", "<!-- end -->\n");

/// Writes all files.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, text) in files(root)? {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it lies in a folder"))?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Complaints for the step `tidy`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (path, text) in files(root)? {
        if fs::read_to_string(root.join(&path)).ok().as_ref() != Some(&text) {
            complaints.push(format!("{path}: differs from the tables that it is made from: run cargo xtask ops"));
        }
    }
    let mut pages: Vec<String> = ALERTS.iter().map(Alert::runbook).collect();
    for entry in fs::read_dir(root.join(RUNBOOKS)).context(RUNBOOKS)? {
        let path = format!("{RUNBOOKS}/{}", entry?.file_name().to_string_lossy());
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        complaints.extend(unknown_metrics(&text).map(|name| format!("{path}: there is no metric {name}")));
        let page = pages.iter().position(|page| *page == path).map(|index| pages.swap_remove(index));
        if page.is_none() && path != INDEX {
            complaints.push(format!("{path}: is the runbook of no alert"));
        }
    }
    complaints.extend(pages.into_iter().map(|page| format!("{page}: is missing, and an alert names it")));
    Ok(complaints)
}

/// The path and the text of each file.
fn files(root: &Path) -> Result<Vec<(String, String)>> {
    let index = fs::read_to_string(root.join(INDEX)).context(INDEX)?;
    let around = index.split_once(MARKS.0).and_then(|(before, rest)| Some((before, rest.split_once(MARKS.1)?.1)));
    let (before, after) = around.with_context(|| format!("{INDEX} has not the marks of its table"))?;
    let index = format!("{before}{}{}{}{after}", MARKS.0, rules::table(), MARKS.1);
    let mut files = vec![
        (INDEX.to_owned(), index),
        ("ops/grafana/tidings.json".to_owned(), dashboard::dashboard()),
        ("ops/prometheus/alerts.yml".to_owned(), rules::rules()),
        ("ops/prometheus/alerts.test.yml".to_owned(), rules::tests()),
    ];
    files.extend(ticks::ticks().map(|(name, text)| (format!("ops/kapacitor/{name}.tick"), text)));
    Ok(files)
}

/// Words of `text` that look like the name of a metric at `/metrics`, and are none.
fn unknown_metrics(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tidings_") && !is_metric(word))
}

fn is_metric(name: &str) -> bool {
    metrics::all().any(|metric| match metric.kind {
        tidings_telemetry::Kind::Histogram(_) => {
            name.strip_prefix(metric.name).is_some_and(|rest| ["_bucket", "_count", "_sum"].contains(&rest))
        }
        _ => name == metric.name,
    })
}

#[cfg(test)]
mod tests {
    use super::unknown_metrics;

    #[test]
    fn unknown_metrics_are_found() {
        let text =
            "rate(tidings_store_batches_total[5m]), tidings_store_batches, tidings_store_commit_seconds_bucket{}";
        assert_eq!(unknown_metrics(text).collect::<Vec<_>>(), ["tidings_store_batches"]);
    }
}
