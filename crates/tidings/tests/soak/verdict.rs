//! What must not grow, what must be gone at rest, and what must never be.

use std::collections::BTreeSet;

use crate::meter::{Figures, Metrics};
use crate::setup::RESIDENT_COUNT;
use crate::table::Rest;
use crate::trend::{Allowance, growth};

/// What the server says of what is there for somebody. At rest nobody is, so each has this value.
const AT_REST: [(&str, f64); 13] = [
    ("tidings_edge_connections", 0.0),
    ("tidings_edge_reply_bytes", 0.0),
    ("tidings_edge_input_bytes", 0.0),
    ("tidings_hub_subscriptions", 0.0),
    ("tidings_hooks_in_flight", 0.0),
    ("tidings_gateway_lake_notifications", 0.0),
    ("tidings_sender_jobs_running", 0.0),
    ("tidings_sender_jobs_waiting", 0.0),
    ("tidings_sender_events_behind", 0.0),
    ("tidings_store_later_events", 0.0),
    ("tidings_store_brakes", 0.0),
    ("tidings_store_subscriptions", 0.0),
    ("tidings_store_devices", RESIDENT_COUNT as f64),
];
/// Connections to the providers, listeners, and what the runtime has of its own.
const SOCKETS_MAX: usize = 48;

/// Each counts something that is a bug, or a failure of a disk.
const NEVER: [&str; 7] = [
    "tidings_panics_total",
    "tidings_sender_strays_total",
    "tidings_api_unpackable_total",
    "tidings_store_failures_total",
    "tidings_store_checkpoints_failed_total",
    "tidings_telemetry_series_refused_total",
    "tidings_audit_lost_total",
];

/// What the server counts and may not have ever more of.
pub(crate) const COUNTED: [&str; 3] =
    ["tidings_hub_channels", "tidings_store_journal_events", "tidings_sender_reports"];

/// What is left of clients, callers and devices, although all are gone.
pub(crate) fn left(metrics: &Metrics, figures: &Figures) -> Vec<String> {
    let left = AT_REST.into_iter().filter(|(name, value)| metrics.get(name) != Some(*value));
    let mut left: Vec<String> = left.map(|(name, _)| format!("{name} {:?}", metrics.get(name))).collect();
    left.extend((figures.sockets > SOCKETS_MAX).then(|| format!("{} sockets", figures.sockets)));
    left
}

/// What must never be. A metric that is not there is one that was renamed.
pub(crate) fn bugs(metrics: &Metrics) -> Vec<String> {
    let some = NEVER.into_iter().filter(|name| metrics.get(name) != Some(0.0));
    some.map(|name| format!("{name} is {:?}, not 0", metrics.get(name))).collect()
}

/// What grows. A life of the server has memory, descriptors and counts of its own; the folders are those of all lives.
pub(crate) fn growths(rests: &[Rest]) -> Vec<String> {
    const MIB: f64 = (1 << 20) as f64;
    let mut found = Vec::new();
    let mut judge = |what: &str, rests: &[&Rest], allowed: Allowance, of: &dyn Fn(&Rest) -> f64| {
        let values: Vec<f64> = rests.iter().map(|rest| of(rest)).collect();
        let grown = growth(&values, allowed);
        found.extend(grown.map(|(before, after)| format!("{what} grew from {before:.1} to {after:.1}: {values:.1?}")));
    };
    for life in rests.iter().map(|rest| rest.life).collect::<BTreeSet<_>>() {
        let own: Vec<&Rest> = rests.iter().filter(|rest| rest.life == life).collect();
        judge("anonymous memory (MiB)", &own, MEMORY, &|rest| rest.figures.anonymous_mib);
        judge("descriptors", &own, DESCRIPTORS, &|rest| rest.figures.descriptors as f64);
        judge("threads", &own, THREADS, &|rest| rest.figures.threads as f64);
        judge("series", &own, SERIES, &|rest| rest.figures.series as f64);
        for name in COUNTED {
            judge(name, &own, COUNTS, &|rest| rest.counts.get(name).copied().unwrap_or_default());
        }
    }
    let all: Vec<&Rest> = rests.iter().collect();
    for name in rests.iter().flat_map(|rest| rest.figures.folders.keys()).collect::<BTreeSet<_>>() {
        let folder = |rest: &Rest| rest.figures.folders.get(name).copied().unwrap_or_default();
        judge(&format!("files in {name}"), &all, FILES, &|rest| folder(rest).files as f64);
        judge(&format!("MiB in {name}"), &all, FOLDER_MIB, &|rest| folder(rest).bytes as f64 / MIB);
    }
    found
}

/// The store's write buffers are at some level whenever one looks: two of 32 MiB are the largest.
const MEMORY: Allowance = Allowance { share: 0.25, more: 64.0 };
/// Most are files of the store, which come and go with compactions.
const DESCRIPTORS: Allowance = Allowance { share: 0.25, more: 32.0 };
/// Those that may block stay for ten seconds.
const THREADS: Allowance = Allowance { share: 0.25, more: 16.0 };
const SERIES: Allowance = Allowance { share: 0.1, more: 32.0 };
const COUNTS: Allowance = Allowance { share: 0.25, more: 256.0 };
const FILES: Allowance = Allowance { share: 0.5, more: 32.0 };
/// A compaction may be due.
const FOLDER_MIB: Allowance = Allowance { share: 0.5, more: 128.0 };

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::{COUNTED, growths};
    use crate::meter::{Figures, Folder};
    use crate::table::Rest;

    /// A soak of an hour with restarts after the 13th and the 14th rest.
    fn hour(plant: impl Fn(u64, &mut Rest)) -> Vec<String> {
        let rest = |number: u64| {
            let life = usize::from(number >= 13) + usize::from(number >= 14);
            let folders = BTreeMap::from([("/store".to_owned(), Folder { files: 9, bytes: 50 << 20 })]);
            let figures = Figures {
                anonymous_mib: 100.0 + (number % 3) as f64 * 20.0,
                descriptors: 80 + number as usize % 7,
                threads: 12 + number as usize % 5,
                series: 400,
                folders,
                ..Figures::default()
            };
            let counts = COUNTED.map(|name| (name, 50.0)).into();
            let mut rest = Rest { at: Duration::from_secs(180 * number), life, figures, cpu_percent: 1.0, counts };
            plant(number, &mut rest);
            rest
        };
        growths(&(0..20).map(rest).collect::<Vec<_>>())
    }

    #[test]
    fn a_server_that_stays_as_it_is_passes() {
        assert_eq!(hour(|_, _| {}), Vec::<String>::new());
    }

    #[test]
    fn each_growth_is_found_in_its_own_life() {
        let check = |what: &str, plant: &dyn Fn(u64, &mut Rest)| {
            let found = hour(plant);
            assert!(!found.is_empty() && found.iter().all(|found| found.starts_with(what)), "{what}: {found:?}");
        };
        check("anonymous", &|number, rest| rest.figures.anonymous_mib += 20.0 * number as f64);
        // A leak of the first life that the restart hides from whoever compares the end with the begin.
        check("anonymous", &|number, rest| {
            rest.figures.anonymous_mib += if rest.life == 0 { 20.0 * number as f64 } else { 0.0 };
        });
        check("descriptors", &|number, rest| rest.figures.descriptors += 10 * number as usize);
        check("threads", &|number, rest| rest.figures.threads += 4 * number as usize);
        check("series", &|number, rest| rest.figures.series += 40 * number as usize);
        check("tidings_hub_channels", &|number, rest| {
            rest.counts.insert("tidings_hub_channels", 200.0 * number as f64);
        });
        check("files in /store", &|number, rest| rest.figures.folders.get_mut("/store").unwrap().files += 10 * number);
        check("MiB in /store", &|number, rest| {
            rest.figures.folders.get_mut("/store").unwrap().bytes += number << 25;
        });
    }
}
