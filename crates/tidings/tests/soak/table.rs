//! What the soak prints: a line from time to time, and at the end what has changed from its begin to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hand::{Time, Timed};
use crate::meter::{Figures, Folder};
use crate::trend::{median, quantile};

/// What the server was at rest, in one of its lives.
#[derive(Debug, Clone)]
pub(crate) struct Rest {
    /// Since the soak began.
    pub(crate) at: Duration,
    pub(crate) life: usize,
    pub(crate) figures: Figures,
    /// Of one core.
    pub(crate) cpu_percent: f64,
    /// Channels, and other things that the server counts; by metric.
    pub(crate) counts: BTreeMap<&'static str, f64>,
}

/// Prints lines, each about the time since the one before.
#[derive(Default)]
pub(crate) struct Table {
    since: Duration,
    line_count: usize,
    scanned: BTreeMap<String, u64>,
}

const HEAD: &str =
    "    time   RssAnon   RssFile  descr threads series   publish p50/p99 ms   push p50/p99 ms    CPU at rest";
const HEAD_EVERY: usize = 20;

impl Table {
    /// `rest` is the last one.
    pub(crate) fn line(&mut self, now: Duration, figures: &Figures, times: &[Time], rest: Option<&Rest>) {
        if self.line_count.is_multiple_of(HEAD_EVERY) {
            println!("{HEAD}");
        }
        self.line_count += 1;
        let of = |what| show_times(&values(times, what, self.since..now));
        println!(
            "{:>6} s {:>6.1} MiB {:>5.1} MiB {:>6} {:>7} {:>6}   {:>18}   {:>15}   {:>9.1} %",
            now.as_secs(),
            figures.anonymous_mib,
            figures.mapped_mib,
            figures.descriptors,
            figures.threads,
            figures.series,
            of(Timed::Publication),
            of(Timed::Push),
            rest.map_or(f64::NAN, |rest| rest.cpu_percent),
        );
        let folder = |(name, Folder { files, bytes }): (&String, &Folder)| {
            format!("{name} {files} files {:.1} MiB", *bytes as f64 / f64::from(1 << 20))
        };
        println!("         {}", figures.folders.iter().map(folder).collect::<Vec<_>>().join(" | "));
        let more = |(place, rows): (&String, &u64)| {
            let before = self.scanned.get(place).copied().unwrap_or_default();
            let more = rows.checked_sub(before).unwrap_or(*rows); // The server begins anew.
            (more > 0).then(|| format!("{place} {more}"))
        };
        let scans: Vec<String> = figures.scanned.iter().filter_map(more).collect();
        if !scans.is_empty() {
            println!("         rows read by scans: {}", scans.join(", "));
        }
        (self.since, self.scanned) = (now, figures.scanned.clone());
    }
}

fn values(times: &[Time], what: Timed, span: std::ops::Range<Duration>) -> Vec<f64> {
    times.iter().filter(|time| time.what == what && span.contains(&time.at)).map(|time| time.ms).collect()
}

fn show_times(values: &[f64]) -> String {
    match quantile(values, 0.5).zip(quantile(values, 0.99)) {
        Some((half, most)) => format!("{half:.1} / {most:.1}"),
        None => "-".to_owned(),
    }
}

/// The last sixth of the soak beside its first. Nothing of it is asserted.
pub(crate) fn compare(whole: Duration, times: &[Time], rests: &[Rest]) {
    let spans = [Duration::ZERO..whole / 6, whole * 5 / 6..Duration::MAX];
    let row = |name: &str, of: &dyn Fn(&std::ops::Range<Duration>) -> Option<f64>, unit: &str| {
        let [first, last] =
            spans.each_ref().map(|span| of(span).map_or("-".to_owned(), |value| format!("{value:.1} {unit}")));
        println!("{name:<26} {first:>14} {last:>14}");
    };
    let p99 = |what| move |span: &std::ops::Range<Duration>| quantile(&values(times, what, span.clone()), 0.99);
    let at_rest = |of: fn(&Rest) -> f64| {
        move |span: &std::ops::Range<Duration>| {
            median(&rests.iter().filter(|rest| span.contains(&rest.at)).map(of).collect::<Vec<_>>())
        }
    };
    println!("\n{:<26} {:>14} {:>14}", "", "first sixth", "last sixth");
    row("durable publication, p99", &p99(Timed::Publication), "ms");
    row("event to push, p99", &p99(Timed::Push), "ms");
    row("CPU at rest", &at_rest(|rest| rest.cpu_percent), "%");
    row("RssAnon at rest", &at_rest(|rest| rest.figures.anonymous_mib), "MiB");
    row("RssFile at rest", &at_rest(|rest| rest.figures.mapped_mib), "MiB");
}
