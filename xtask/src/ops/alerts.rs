//! The table of alerts. Rules for Prometheus, their tests and the index of the runbooks are made from it.
//!
//! An alert is for a person. So each says for whom something is wrong, and has a runbook. A `critical` alert wakes somebody:
//! users get nothing, or soon will. A `warning` can wait for the next working day.

/// An alert, as a rule of Prometheus.
pub(super) struct Alert {
    /// `Tidings…`; the runbook has the same name.
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// True for each series that it returns.
    pub(super) expr: &'static str,
    /// How long it must be true.
    pub(super) lasts: &'static str,
    /// What is wrong, and for whom.
    pub(super) summary: &'static str,
    /// Shows that it fires, and that it stops.
    pub(super) proof: Proof,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Critical,
    Warning,
}

/// Series from which the alert must come, and go away again.
pub(super) struct Proof {
    /// Labels without `job` and `instance`, and one value a minute, in the notation of `promtool`.
    pub(super) series: &'static [(&'static str, &'static str)],
    /// Labels of the alert, besides `severity`.
    pub(super) labels: &'static [(&'static str, &'static str)],
    /// Moments in minutes: still quiet, firing, quiet again.
    pub(super) moments: [u32; 3],
}

/// The folder of the pages for people.
pub(super) const RUNBOOKS: &str = "docs/runbooks";

/// The labels of every series of one server, in the tests.
pub(super) const TARGET: [(&str, &str); 2] = [("instance", "web-1:8001"), ("job", "tidings")];

impl Severity {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

impl Alert {
    /// The page for people: `TidingsBreakerOpen` has `docs/runbooks/breaker-open.md`.
    pub(super) fn runbook(&self) -> String {
        let mut name = String::new();
        for letter in self.name.trim_start_matches("Tidings").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        format!("{RUNBOOKS}/{name}.md")
    }
}

const APNS: &[(&str, &str)] = &[("provider", "apns"), ("pool", "main")];

/// All alerts, the worst first.
pub(super) const ALERTS: [Alert; 14] = [
    Alert {
        name: "TidingsServerDown",
        severity: Severity::Critical,
        expr: r#"up{job="tidings"} == 0 or absent(up{job="tidings"})"#,
        lasts: "1m",
        summary: "{{ $labels.instance }} does not tell its metrics: probably nobody gets live events or pushes from it",
        proof: Proof { series: &[("up{}", "1x9 0x9 1x19")], labels: &[], moments: [10, 15, 25] },
    },
    Alert {
        name: "TidingsStoreFails",
        severity: Severity::Critical,
        expr: "increase(tidings_store_failures_total[5m]) > 0",
        lasts: "0m",
        summary: "{{ $labels.instance }} could not write to its disk: back ends get errors, and events are not accepted",
        proof: Proof { series: &[("tidings_store_failures_total{}", "0x9 1x39")], labels: &[], moments: [9, 12, 20] },
    },
    Alert {
        name: "TidingsOldestJobWaits",
        severity: Severity::Critical,
        // A job that waits only because of a pause is no reason to wake anybody.
        expr: "tidings_sender_oldest_waiting_job_seconds > 60 and on (job, instance) (tidings_store_brakes == 0 or tidings_sender_jobs_ready > 0)",
        lasts: "1m",
        summary: "An event waits for more than a minute on {{ $labels.instance }}: its devices are pushed late",
        proof: Proof {
            series: &[
                ("tidings_sender_oldest_waiting_job_seconds{}", "0x9 60+60x9 0x19"),
                ("tidings_store_brakes{}", "0x59"),
                ("tidings_sender_jobs_ready{}", "0x59"),
            ],
            labels: &[],
            moments: [10, 15, 25],
        },
    },
    Alert {
        name: "TidingsBreakerOpen",
        severity: Severity::Critical,
        expr: "tidings_gateway_breaker_open == 1 or tidings_gateway_failing_services > 0",
        lasts: "2m",
        summary: "{{ $labels.instance }} cannot reach {{ $labels.provider }} ({{ $labels.pool }}): its devices are not pushed until it can",
        proof: Proof {
            series: &[(r#"tidings_gateway_breaker_open{provider="apns",pool="main"}"#, "0x9 1x9 0x19")],
            labels: APNS,
            moments: [11, 15, 25],
        },
    },
    Alert {
        name: "TidingsCredentialRefused",
        severity: Severity::Critical,
        expr: "increase(tidings_gateway_credential_refused_total[10m]) > 0 or increase(tidings_gateway_vapid_refused_total[10m]) > 0",
        lasts: "1m",
        summary: "{{ $labels.provider }} refuses the credential of {{ $labels.pool }} on {{ $labels.instance }}: its devices are not pushed",
        proof: Proof {
            series: &[(r#"tidings_gateway_credential_refused_total{provider="apns",pool="main"}"#, "0x9 3+3x9 30x39")],
            labels: APNS,
            moments: [9, 15, 45],
        },
    },
    Alert {
        name: "TidingsProviderRefuses",
        severity: Severity::Critical,
        // Dead tokens are usual: the first push after a long time finds many. Fewer than ten refusals are no evidence.
        expr: r#"sum by (job, instance, provider) (rate(tidings_gateway_rejected_total{reason!~"Unregistered|ExpiredToken|UNREGISTERED|subscription_gone"}[5m])) / sum by (job, instance, provider) (rate(tidings_gateway_settled_total[5m])) > 0.05 and sum by (job, instance, provider) (increase(tidings_gateway_rejected_total[5m])) >= 10"#,
        lasts: "1m",
        summary: "{{ $labels.provider }} refuses more than 5 % of what {{ $labels.instance }} sends: these devices get nothing",
        proof: Proof {
            series: &[
                (
                    r#"tidings_gateway_rejected_total{provider="apns",pool="main",reason="BadTopic"}"#,
                    "0x9 10+10x9 100x39",
                ),
                (r#"tidings_gateway_rejected_total{provider="apns",pool="main",reason="Unregistered"}"#, "0+50x59"),
                (r#"tidings_gateway_settled_total{provider="apns",pool="main",outcome="accepted"}"#, "0+100x59"),
                (r#"tidings_gateway_settled_total{provider="apns",pool="main",outcome="rejected"}"#, "0+60x59"),
            ],
            labels: &[("provider", "apns")],
            moments: [9, 18, 30],
        },
    },
    Alert {
        name: "TidingsDiskFills",
        severity: Severity::Critical,
        expr: "tidings_disk_free_bytes / tidings_disk_size_bytes < 0.15",
        lasts: "5m",
        summary: "The disk of {{ $labels.instance }} has less than 15 % left: when it is full, events are not accepted",
        proof: Proof {
            series: &[("tidings_disk_free_bytes{}", "20x9 14x14 20x29"), ("tidings_disk_size_bytes{}", "100x59")],
            labels: &[],
            moments: [14, 20, 30],
        },
    },
    Alert {
        name: "TidingsCommitsSlow",
        severity: Severity::Critical,
        expr: r#"histogram_quantile(0.99, sum by (job, instance, le) (rate(tidings_store_commit_seconds_bucket{durability="synced"}[5m]))) > 0.1"#,
        lasts: "5m",
        summary: "The disk of {{ $labels.instance }} is slow: one commit in a hundred takes more than 100 ms, and back ends wait for it",
        proof: Proof {
            series: &[
                (
                    r#"tidings_store_commit_seconds_bucket{durability="synced",le="0.1"}"#,
                    "0+100x9 1000+50x14 1800+100x39",
                ),
                (r#"tidings_store_commit_seconds_bucket{durability="synced",le="0.25"}"#, "0+100x65"),
                (r#"tidings_store_commit_seconds_bucket{durability="synced",le="+Inf"}"#, "0+100x65"),
            ],
            labels: &[],
            moments: [9, 20, 40],
        },
    },
    Alert {
        name: "TidingsCertificateEnds",
        severity: Severity::Warning,
        expr: "tidings_gateway_credential_expiry_seconds < 7 * 86400 or tidings_http_certificate_expiry_seconds < 7 * 86400",
        lasts: "10m",
        summary: "A certificate of {{ $labels.instance }} ends within 7 days ({{ $labels.provider }} {{ $labels.pool }}; no name: that of the public listener): then its devices are not pushed, or no app connects",
        proof: Proof {
            series: &[(
                r#"tidings_gateway_credential_expiry_seconds{provider="apns",pool="main"}"#,
                "604860-60x20 31536000x29",
            )],
            labels: APNS,
            moments: [5, 15, 30],
        },
    },
    Alert {
        name: "TidingsPauseOn",
        severity: Severity::Warning,
        expr: "tidings_store_brake_seconds > 3600",
        lasts: "1m",
        summary: "Pushes are paused on {{ $labels.instance }} for more than an hour: somebody may have forgotten to resume them",
        proof: Proof {
            series: &[("tidings_store_brake_seconds{}", "0+60x90 0x29")],
            labels: &[],
            moments: [60, 70, 100],
        },
    },
    Alert {
        name: "TidingsFeedFails",
        severity: Severity::Warning,
        expr: "tidings_intake_failures >= 3",
        lasts: "5m",
        summary: "{{ $labels.instance }} cannot read the source {{ $labels.source }}: its events do not come in",
        proof: Proof {
            series: &[(r#"tidings_intake_failures{source="scores"}"#, "0x9 1+1x14 0x29")],
            labels: &[("source", "scores")],
            moments: [15, 20, 30],
        },
    },
    Alert {
        name: "TidingsNobodyLeads",
        severity: Severity::Critical,
        expr: "tidings_cluster_leads == 0 unless on (job) tidings_cluster_leads == 1",
        lasts: "1m",
        summary: "No server of the cluster leads: nobody is served and nothing is pushed",
        proof: Proof { series: &[("tidings_cluster_leads{}", "1x9 0x9 1x29")], labels: &[], moments: [10, 14, 22] },
    },
    Alert {
        name: "TidingsClusterLost",
        severity: Severity::Critical,
        expr: "tidings_cluster_lost == 1",
        lasts: "0m",
        summary: "{{ $labels.instance }} cannot follow the log of its cluster: it will not take over",
        proof: Proof { series: &[("tidings_cluster_lost{}", "0x9 1x9 0x29")], labels: &[], moments: [9, 11, 21] },
    },
    Alert {
        name: "TidingsTextsFaulty",
        severity: Severity::Warning,
        expr: "tidings_texts_faulty == 1",
        lasts: "5m",
        summary: "New topics or translations on {{ $labels.instance }} are wrong: notifications have the texts from before",
        proof: Proof { series: &[("tidings_texts_faulty{}", "0x9 1x14 0x29")], labels: &[], moments: [14, 20, 30] },
    },
];

#[cfg(test)]
mod tests {
    use super::super::unknown_metrics;
    use super::ALERTS;

    #[test]
    fn alerts_are_about_metrics_that_exist() {
        for alert in &ALERTS {
            let texts = alert.proof.series.iter().map(|(series, _)| *series).chain([alert.expr]);
            let unknown: Vec<&str> = texts.flat_map(unknown_metrics).collect();
            assert_eq!(unknown, [""; 0], "{}", alert.name);
        }
    }

    #[test]
    fn each_has_a_name_and_a_runbook_of_its_own() {
        for (index, alert) in ALERTS.iter().enumerate() {
            assert!(alert.name.starts_with("Tidings"));
            assert!(ALERTS[..index].iter().all(|other| other.runbook() != alert.runbook()), "{}", alert.name);
        }
        assert_eq!(ALERTS[3].runbook(), "docs/runbooks/breaker-open.md");
    }
}
