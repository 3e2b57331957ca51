//! Alerts for Kapacitor, for those who send metrics to InfluxDB 1.x instead of having them read by Prometheus.
//!
//! `docs/metrics.md` says how the lines of InfluxDB are called. `cargo xtask chain` runs the scripts in a real Kapacitor.

use super::alerts::ALERTS;

/// Before each script: where the metrics are.
const HEAD: &str = "// Made by `cargo xtask ops`. Do not edit it; ops/README.md says how to load it.\n\
                    dbrp \"tidings\".\"autogen\"\n";

/// The server, in a message.
const HOST: &str = "{{ index .Tags \"host\" }}";
/// The same for the dead man: while no server has told anything since Kapacitor's start, it fires for none.
const HOST_IF_KNOWN: &str =
    "{{ with index .Tags \"host\" }}{{ . }}{{ else }}A server that Kapacitor has not seen yet{{ end }}";

/// The name and the text of each script.
pub(super) fn ticks() -> [(&'static str, String); 3] {
    let oldest = line("tidings_sender_oldest_waiting_job_seconds");
    let (settled, allowed) = (line("tidings_gateway_settled_total"), line("tidings_gateway_streams_allowed"));
    let process = line("process_threads");
    [
        ("server-down", format!("{HEAD}\n{}", dead_man(process.0))),
        ("oldest-job-waits", format!("{HEAD}\n{}", oldest_job(oldest))),
        ("provider-refuses", format!("{HEAD}\n{}", refusals(settled, &allowed.1))),
    ]
}

fn dead_man(measurement: String) -> String {
    format!(
        "// A server sends a point of this measurement at every influx.interval, so silence for a minute is its end.\n\
         stream\n    |from()\n        .measurement('{measurement}')\n        .groupBy('host')\n    |deadman(0.0, 1m)\n{}",
        handled("TidingsServerDown", HOST_IF_KNOWN, &["host"])
    )
}

fn oldest_job((measurement, field): (String, String)) -> String {
    format!(
        "stream\n    |from()\n        .measurement('{measurement}')\n        .where(lambda: isPresent(\"{field}\"))\n        \
         .groupBy('host')\n    |alert()\n        .crit(lambda: \"{field}\" > 60.0)\n{}",
        handled("TidingsOldestJobWaits", HOST, &["host"])
    )
}

/// Dead tokens count too: the lines have the outcome and the reason in different points. A window moves only when a point
/// comes, so the gauge `streams_allowed`, which is in every flush, moves it while nothing is settled: otherwise the last
/// refusals would neither start the alert nor end it.
fn refusals((measurement, field): (String, String), gauge: &str) -> String {
    let sum = |of: &str| format!("points\n    |sum('{of}')\n        .as('count')\n");
    format!(
        "// A window moves only when a point comes. The gauge \"{gauge}\" comes in every flush, also when nothing is settled.\n\
         var points = stream\n    |from()\n        .measurement('{measurement}')\n        \
         .where(lambda: isPresent(\"{field}\") OR isPresent(\"{gauge}\"))\n        .groupBy('host', 'provider')\n    \
         |default()\n        .field('{field}', 0)\n        .tag('outcome', 'none')\n    \
         |eval(lambda: if(\"outcome\" == 'rejected', \"{field}\", 0))\n        .as('rejected')\n        \
         .keep('{field}', 'rejected')\n    |window()\n        .period(5m)\n        .every(1m)\n        .align()\n\n\
         var settled = {}\nvar rejected = {}\n\
         rejected\n    |join(settled)\n        .as('rejected', 'settled')\n    |alert()\n        \
         .crit(lambda: \"rejected.count\" >= 10 AND float(\"rejected.count\") > 0.05 * float(\"settled.count\"))\n{}",
        sum(&field),
        sum("rejected"),
        handled("TidingsProviderRefuses", HOST, &["host", "provider"])
    )
}

/// The end of a script: the message is the summary of the alert `name`, about `host`. The alert has one state for each value of `tags`, and
/// is told when that changes.
fn handled(name: &str, host: &str, tags: &[&str]) -> String {
    let alert = ALERTS.iter().find(|alert| alert.name == name).expect("it is in the table");
    let tagged = |name: &str| format!("{{{{ index .Tags \"{name}\" }}}}");
    let message = alert.summary.replace("{{ $labels.instance }}", host);
    let message = message.replace("{{ $labels.provider }}", &tagged("provider")).replace('\'', "\\'");
    let id: Vec<String> = [name.to_owned()].into_iter().chain(tags.iter().map(|tag| tagged(tag))).collect();
    format!(
        "        .id('{}')\n        .message('{{{{ if eq .Level \"OK\" }}}}Over: {{{{ end }}}}{message}. See {}')\n        \
         .stateChangesOnly()\n        .topic('tidings')\n",
        id.join("/"),
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
        let names =
            "tidings_sender_oldest_waiting_job_seconds tidings_gateway_settled_total tidings_gateway_streams_allowed";
        assert_eq!(unknown_metrics(names).count(), 0);
    }
}
