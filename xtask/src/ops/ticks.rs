//! Alerts for Kapacitor, for those who send metrics to InfluxDB 1.x instead of having them read by Prometheus.
//!
//! `docs/metrics.md` says how the lines of InfluxDB are called. No test runs these scripts: Kapacitor would have to be
//! patched to be built.

use super::alerts::ALERTS;

/// Before each script: where the metrics are.
const HEAD: &str = "// Made by `cargo xtask ops`. Do not edit it; ops/README.md says how to load it.\n\
                    dbrp \"tidings\".\"autogen\"\n";

/// The name and the text of each script.
pub(super) fn ticks() -> [(&'static str, String); 3] {
    let oldest = line("tidings_sender_oldest_waiting_job_seconds");
    let (settled, process) = (line("tidings_gateway_settled_total"), line("process_threads"));
    [
        ("server-down", format!("{HEAD}\n{}", dead_man(process.0))),
        ("oldest-job-waits", format!("{HEAD}\n{}", oldest_job(oldest))),
        ("provider-refuses", format!("{HEAD}\n{}", refusals(settled))),
    ]
}

fn dead_man(measurement: String) -> String {
    format!(
        "// A server sends a point of this measurement at every influx.interval, so silence for a minute is its end.\n\
         stream\n    |from()\n        .measurement('{measurement}')\n        .groupBy('host')\n    |deadman(0.0, 1m)\n{}",
        handled("TidingsServerDown", "host", "")
    )
}

fn oldest_job((measurement, field): (String, String)) -> String {
    format!(
        "stream\n    |from()\n        .measurement('{measurement}')\n        .where(lambda: isPresent(\"{field}\"))\n        \
         .groupBy('host')\n    |alert()\n        .crit(lambda: \"{field}\" > 60.0)\n{}",
        handled("TidingsOldestJobWaits", "host", "        .stateChangesOnly()\n")
    )
}

/// Dead tokens count too: the lines have the outcome and the reason in different points.
fn refusals((measurement, field): (String, String)) -> String {
    let of = |name: &str, more: &str| {
        format!(
            "var {name} = stream\n    |from()\n        .measurement('{measurement}')\n        \
             .where(lambda: isPresent(\"{field}\"){more})\n        .groupBy('host', 'provider')\n    |window()\n        \
             .period(5m)\n        .every(1m)\n        .align()\n    |sum('{field}')\n        .as('count')\n\n"
        )
    };
    format!(
        "{}{}rejected\n    |join(settled)\n        .as('rejected', 'settled')\n    |eval(lambda: float(\"rejected.count\") / \
         float(\"settled.count\"))\n        .as('share')\n        .keep('share', 'rejected.count')\n    |alert()\n        \
         .crit(lambda: \"share\" > 0.05 AND \"rejected.count\" >= 10)\n{}",
        of("settled", ""),
        of("rejected", " AND \"outcome\" == 'rejected'"),
        handled("TidingsProviderRefuses", "provider", "        .stateChangesOnly()\n")
    )
}

/// The end of a script: the message is the summary of the alert `name`.
fn handled(name: &str, tag: &str, before: &str) -> String {
    let alert = ALERTS.iter().find(|alert| alert.name == name).expect("it is in the table");
    let tagged = |name: &str| format!("{{{{ index .Tags \"{name}\" }}}}");
    let message = alert.summary.replace("{{ $labels.instance }}", &tagged("host"));
    let message = message.replace("{{ $labels.provider }}", &tagged("provider")).replace('\'', "\\'");
    format!(
        "        .id('{name}/{}')\n        .message('{message}. See {}')\n{before}        .topic('tidings')\n",
        tagged(tag),
        alert.runbook()
    )
}

/// The measurement and the field of a metric.
fn line(metric: &str) -> (String, String) {
    let name = metric.strip_suffix("_total").unwrap_or(metric);
    let from = if name.starts_with("tidings_") { "tidings_".len() } else { 0 };
    let end = from + name[from..].find('_').expect("a name has two parts");
    (name[..end].to_owned(), name[end + 1..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::unknown_metrics;
    use super::line;

    #[test]
    fn the_lines_of_a_metric_have_its_measurement_and_its_field() {
        let told = |metric| {
            let (measurement, field) = line(metric);
            format!("{measurement} {field}")
        };
        assert_eq!(told("tidings_gateway_settled_total"), "tidings_gateway settled");
        assert_eq!(told("process_threads"), "process threads");
        let names = "tidings_sender_oldest_waiting_job_seconds tidings_gateway_settled_total";
        assert_eq!(unknown_metrics(names).count(), 0);
    }
}
