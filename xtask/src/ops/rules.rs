//! Alerting rules for Prometheus, tests of them for `promtool test rules`, and the table of alerts for people.

use std::fmt::Write as _;

use super::alerts::{ALERTS, Alert, Proof, TARGET};

const MADE: &str =
    "# Made by `cargo xtask ops` from xtask/src/ops/alerts.rs. Do not edit it; ops/README.md says how to load it.\n";

/// `ops/prometheus/alerts.yml`.
pub(super) fn rules() -> String {
    let mut text = format!("{MADE}groups:\n  - name: tidings\n    rules:\n");
    for alert in &ALERTS {
        let Alert { name, severity, expr, lasts, summary, .. } = alert;
        let (severity, page) = (severity.as_str(), alert.runbook());
        write!(
            text,
            "\n      - alert: {name}\n        expr: {expr}\n        for: {lasts}\n        labels:\n          severity: {severity}\n        \
             annotations:\n          summary: {summary}\n          runbook_url: {page}\n",
            expr = quoted(expr),
            summary = quoted(summary),
        )
        .expect("a String takes everything");
    }
    text
}

/// `ops/prometheus/alerts.test.yml`.
pub(super) fn tests() -> String {
    let mut text = format!("{MADE}rule_files: [alerts.yml]\nevaluation_interval: 1m\ntests:\n");
    for alert in &ALERTS {
        let Proof { series, moments: [before, during, after], .. } = &alert.proof;
        writeln!(text, "\n  - name: {}\n    interval: 1m\n    input_series:", alert.name).expect("as above");
        for (series, values) in *series {
            let (series, values) = (quoted(&of_target(series)), quoted(values));
            writeln!(text, "      - series: {series}\n        values: {values}").expect("as above");
        }
        text.push_str("    alert_rule_test:\n");
        for (minute, fires) in [(before, false), (during, true), (after, false)] {
            let name = alert.name;
            writeln!(text, "      - alertname: {name}\n        eval_time: {minute}m").expect("as above");
            text.push_str(&expected(alert, fires));
        }
    }
    text
}

/// Of each alert a line for `docs/runbooks/README.md`.
pub(super) fn table() -> String {
    let mut text = "| Alert | Severity | After | When |\n|---|---|---|---|\n".to_owned();
    for alert in &ALERTS {
        let Alert { name, severity, lasts, expr, .. } = alert;
        let page = alert.runbook();
        let (page, severity) = (page.rsplit('/').next().unwrap_or(&page), severity.as_str());
        let expr = expr.replace('|', "\\|");
        writeln!(text, "| [{name}]({page}) | {severity} | {lasts} | `{expr}` |").expect("as above");
    }
    text
}

fn expected(alert: &Alert, fires: bool) -> String {
    if !fires {
        return "        exp_alerts: []\n".to_owned();
    }
    let labels = alert.proof.labels.iter().chain(&TARGET);
    let mut text = "        exp_alerts:\n          - exp_labels:\n".to_owned();
    let mut summary = alert.summary.to_owned();
    for (label, value) in labels {
        writeln!(text, "              {label}: {}", quoted(value)).expect("as above");
        summary = summary.replace(&format!("{{{{ $labels.{label} }}}}"), value);
    }
    let (severity, summary, page) = (alert.severity.as_str(), quoted(&summary), alert.runbook());
    write!(
        text,
        "              severity: {severity}\n            exp_annotations:\n              summary: {summary}\n              \
         runbook_url: {page}\n"
    )
    .expect("as above");
    text
}

/// `metric{a="b"}` with the labels of the target.
fn of_target(series: &str) -> String {
    let target = TARGET.map(|(label, value)| format!("{label}=\"{value}\"")).join(",");
    let series = series.trim_end_matches('}');
    let comma = if series.ends_with('{') { "" } else { "," };
    format!("{series}{comma}{target}}}")
}

/// A scalar of YAML.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::{of_target, quoted};

    #[test]
    fn series_get_the_labels_of_the_target() {
        let target = r#"instance="web-1:8001",job="tidings"}"#;
        assert_eq!(of_target("up{}"), format!("up{{{target}"));
        assert_eq!(of_target(r#"up{a="b"}"#), format!(r#"up{{a="b",{target}"#));
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(quoted("it's {{ $labels.x }}: y"), "'it''s {{ $labels.x }}: y'");
    }
}
