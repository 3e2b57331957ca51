//! `bench batch`: small messages of several producers into one output, by the batching writer and by others.
//!
//! Outputs are a no-op, a pipe and a terminal whose other side is read, and a file; others are a lock around direct
//! writes (one system call each), the same around a `LineWriter`, and `tracing-appender`. Time runs from the first
//! message handed in until everything that will be written is, and is told per message that came out: who sheds more is
//! not faster for it. What came out is looked at byte by byte: messages whole, each producer's in order, and those that
//! are missing counted as dropped and, by ours, announced.
//!
//! A standard case, and from there one thing changed at a time; `--full` measures every combination.

mod message;
mod ours;
mod sink;
mod writer;

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use tokio::time::Instant;

use self::message::{Came, Messages};
use super::report::{Goal, Report};
use super::statistic::format_number;
use super::{failed, failed_by, progress};
use crate::BenchError;
use crate::args::BenchBatchArgs;

/// Times the speed of locked direct writes, into pipes and files.
const GOAL_LOCKED: f64 = 10.0;
/// Times the speed of `tracing-appender`, the faster way to use it.
#[cfg(feature = "peers")]
const GOAL_APPENDER: f64 = 1.0;

const COUNTS: [u64; 3] = [10_000, 100_000, 1_000_000];
const MESSAGE_BYTES: [usize; 2] = [25, 100];
const PAGE_BYTES: [usize; 3] = [2048, 4096, 8192];
const SLOTS: [usize; 3] = [100, 5000, 40_000];

/// Where messages may be dropped, producers let others run after so many: on few cores they would otherwise be done
/// before anybody could take anything from them.
const BREATH: u64 = 16;

/// What is written, how, and where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    sink: sink::Kind,
    producers: usize,
    count: u64,
    message_bytes: usize,
    page_bytes: usize,
    /// Messages that may wait.
    slots: usize,
    /// Drops messages when there is no room; otherwise producers wait.
    sheds: bool,
}

impl Case {
    /// What is not said otherwise.
    const fn standard(sink: sink::Kind) -> Self {
        // A terminal is slow, and no goal is about it.
        let count = if matches!(sink, sink::Kind::Terminal) { COUNTS[1] } else { COUNTS[2] };
        Self { sink, producers: 4, count, message_bytes: 25, page_bytes: 8192, slots: 40_000, sheds: false }
    }

    fn bytes(&self) -> usize {
        self.count as usize * self.message_bytes
    }

    /// The output, and what differs from the standard.
    fn name(&self) -> String {
        let standard = Self::standard(self.sink);
        let mut name = self.sink.name().to_owned();
        let mut tell = |differs, text| {
            if differs {
                name = format!("{name}, {text}");
            }
        };
        tell(self.producers != standard.producers, format!("{} producer", self.producers));
        tell(self.count != standard.count, format!("{} messages", format_number(self.count as f64)));
        tell(self.message_bytes != standard.message_bytes, format!("{} B", self.message_bytes));
        tell(self.page_bytes != standard.page_bytes, format!("page {}", self.page_bytes));
        tell(self.slots != standard.slots, format!("buffer {}", self.slots));
        tell(self.sheds, "shedding".to_owned());
        name
    }

    /// Whether pages, slots and policy make a difference to whoever writes; locks have none of them.
    fn suits(&self, writer: writer::Kind) -> bool {
        let standard = Self::standard(self.sink);
        let Self { page_bytes, slots, sheds, .. } = standard;
        writer.has_buffer() || (page_bytes, slots, sheds) == (self.page_bytes, self.slots, self.sheds)
    }
}

/// From the standard cases, one thing at a time.
fn cases() -> Vec<Case> {
    use sink::Kind::{File, Nothing, Pipe};
    let standard = sink::Kind::ALL.map(Case::standard);
    let alone = [Pipe, File].map(|sink| Case { producers: 1, ..Case::standard(sink) });
    let sizes = [Nothing, Pipe, File].map(Case::standard).into_iter().flat_map(|case| {
        let pages = PAGE_BYTES.into_iter().filter(move |&bytes| bytes != case.page_bytes);
        pages
            .map(move |page_bytes| Case { page_bytes, ..case })
            .chain([Case { message_bytes: 100, ..case }, Case { count: COUNTS[0], ..case }])
    });
    let shedding = sink::Kind::ALL
        .into_iter()
        .flat_map(|sink| SLOTS.map(|slots| Case { slots, sheds: true, ..Case::standard(sink) }));
    standard.into_iter().chain(alone).chain(sizes).chain(shedding).collect()
}

fn all_cases() -> Vec<Case> {
    let mut cases: Vec<_> = sink::Kind::ALL.map(Case::standard).into();
    cases = cases.iter().flat_map(|&case| COUNTS.map(|count| Case { count, ..case })).collect();
    cases = cases.iter().flat_map(|&case| MESSAGE_BYTES.map(|message_bytes| Case { message_bytes, ..case })).collect();
    cases = cases.iter().flat_map(|&case| PAGE_BYTES.map(|page_bytes| Case { page_bytes, ..case })).collect();
    cases = cases.iter().flat_map(|&case| SLOTS.map(|slots| Case { slots, ..case })).collect();
    cases
        .iter()
        .flat_map(|&case| [1, 4].map(|producers| Case { producers, ..case }))
        .flat_map(|case| [false, true].map(|sheds| Case { sheds, ..case }))
        .collect()
}

pub(super) async fn run(args: &BenchBatchArgs) -> Result<Report, BenchError> {
    let args = args.clone();
    let measured = tokio::task::spawn_blocking(move || measure_all(&args));
    measured.await.map_err(|error| failed_by("the measuring thread ended", &error))?
}

fn measure_all(args: &BenchBatchArgs) -> Result<Report, BenchError> {
    let folder = folder(args.dir.as_deref())?;
    let mut report = Report::new("batch");
    let mut cases = if args.full { all_cases() } else { cases() };
    cases.retain(|case| case.name().contains(&args.only));
    for (index, case) in cases.iter().enumerate() {
        progress(format!("{} of {}: {}", index + 1, cases.len(), case.name()));
        measure(case, folder.path(), args.common.runs, &mut report)?;
    }
    report.note(
        "Unless said otherwise 4 producers write 1 000 000 messages of 25 B (100 000 to the terminal), pages are of \
         8 192 B, 40 000 messages may wait, and producers wait for room. Times are per message that came out.",
    );
    #[cfg(not(feature = "peers"))]
    report.note("Compared with tracing-appender when built with --features bench-peers.");
    Ok(report)
}

fn folder(parent: Option<&Path>) -> Result<tempfile::TempDir, BenchError> {
    let folder = parent.map_or_else(tempfile::tempdir, tempfile::tempdir_in);
    folder.map_err(|error| failed_by("cannot make a temporary folder", &error))
}

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Until everything was written, per message that came out.
    nanos: f64,
    /// Until the last producer had handed in its last, per message.
    handing_in_nanos: f64,
    dropped_share: f64,
}

fn measure(case: &Case, folder: &Path, runs: u32, report: &mut Report) -> Result<(), BenchError> {
    let writers: Vec<_> = writer::Kind::ALL.iter().copied().filter(|&writer| case.suits(writer)).collect();
    let mut outcomes: Vec<Vec<Outcome>> = writers.iter().map(|_| Vec::new()).collect();
    for _ in 0..runs {
        for (&writer, outcomes) in writers.iter().zip(&mut outcomes) {
            outcomes.push(write(case, writer, folder)?);
        }
    }
    let name = case.name();
    for (writer, outcomes) in writers.iter().zip(&outcomes) {
        let values = |field: fn(&Outcome) -> f64| outcomes.iter().map(field).collect::<Vec<_>>();
        let name = format!("{name}: {}", writer.name());
        report.measure(name.clone(), "ns", values(|outcome| outcome.nanos));
        if *writer == writer::Kind::Ours {
            report.measure(format!("{name}, handing in"), "ns", values(|outcome| outcome.handing_in_nanos));
        }
        if case.sheds {
            report.measure(format!("{name}, dropped"), "%", values(|outcome| outcome.dropped_share * 100.0));
        }
    }
    compare(case, &writers, &outcomes, report);
    Ok(())
}

/// How many times as fast as the others ours is, run by run.
fn compare(case: &Case, writers: &[writer::Kind], outcomes: &[Vec<Outcome>], report: &mut Report) {
    let of = |wanted| writers.iter().zip(outcomes).find(|(writer, _)| **writer == wanted).map(|(_, outcomes)| outcomes);
    let Some(ours) = of(writer::Kind::Ours) else { return };
    let times = |theirs: &[Outcome]| -> Vec<f64> {
        theirs.iter().zip(ours).map(|(theirs, ours)| theirs.nanos / ours.nanos).collect()
    };
    let name = case.name();
    let is_pipe_or_file = matches!(case.sink, sink::Kind::Pipe | sink::Kind::File);
    let mut tell = |what: &str, theirs: &[Outcome], goal: Option<f64>| {
        let name = format!("{name}: ours, of {what}");
        match goal.filter(|_| is_pipe_or_file) {
            Some(goal) => report.judge(name, "times", times(theirs), Goal::AtLeast(goal)),
            None => report.measure(name, "times", times(theirs)),
        }
    };
    if let Some(locked) = of(writer::Kind::Locked) {
        tell("locked direct writes", locked, (case.message_bytes == 25).then_some(GOAL_LOCKED));
    }
    #[cfg(feature = "peers")]
    if let (Some(plain), Some(pages)) = (of(writer::Kind::Appender), of(writer::Kind::AppenderPages)) {
        let best = |(a, b): (&Outcome, &Outcome)| if a.nanos < b.nanos { *a } else { *b };
        let best: Vec<_> = plain.iter().zip(pages).map(best).collect();
        tell("tracing-appender at its best", &best, Some(GOAL_APPENDER));
    }
}

/// One run: everything is written, taken out, and looked at.
fn write(case: &Case, writer: writer::Kind, folder: &Path) -> Result<Outcome, BenchError> {
    let (output, written, input) =
        sink::open(case.sink, folder, case.bytes()).map_err(|error| failed_by("cannot open an output", &error))?;
    let opened = writer.open(case, output)?;
    let (began, handed_in) = produce(case, &*opened);
    let dropped = opened.finish(&written)?;
    let elapsed = began.elapsed();
    let came = input.finish().map_err(|error| failed_by("cannot read what came out", &error))?;
    let count = case.count - dropped;
    let is_right = match came {
        None => written.bytes() >= count * case.message_bytes as u64, // Announcements are in there, too.
        Some(all) => {
            let announced = if writer == writer::Kind::Ours { dropped } else { 0 };
            message::check(&all, case.message_bytes)? == Came { count, announced }
        }
    };
    if !is_right || (dropped > 0 && !case.sheds) {
        return Err(failed(format!("{}: {} dropped {dropped}, and not the rest came", case.name(), writer.name())));
    }
    Ok(Outcome {
        nanos: elapsed.as_secs_f64() * 1e9 / count as f64,
        handing_in_nanos: (handed_in - began).as_secs_f64() * 1e9 / case.count as f64,
        dropped_share: dropped as f64 / case.count as f64,
    })
}

/// All producers at once; when the first began and the last ended.
fn produce(case: &Case, writer: &dyn writer::Writer) -> (Instant, Instant) {
    let start = Barrier::new(case.producers);
    let produce = |producer| {
        let mut messages = Messages::new(producer, case.message_bytes);
        let mut write = writer.producer();
        start.wait();
        let began = Instant::now();
        for count in 1..=case.count / case.producers as u64 {
            write(messages.next());
            if case.sheds && count.is_multiple_of(BREATH) {
                thread::yield_now();
            }
        }
        (began, Instant::now())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..case.producers).map(|producer| scope.spawn(move || produce(producer))).collect();
        let times = running.into_iter().map(|thread| thread.join().expect("no producer panics"));
        times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).expect("there is a producer")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_writes_everything_everywhere() {
        let folder = tempfile::tempdir().unwrap();
        for sink in sink::Kind::ALL {
            for &writer in writer::Kind::ALL {
                for slots in [100, 40_000] {
                    write(&Case { count: 2000, slots, ..Case::standard(sink) }, writer, folder.path()).unwrap();
                }
            }
        }
    }

    #[test]
    fn what_is_shed_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        for &writer in writer::Kind::ALL.iter().filter(|writer| writer.has_buffer()) {
            let case = Case { count: 20_000, slots: 100, sheds: true, ..Case::standard(sink::Kind::Terminal) };
            write(&case, writer, folder.path()).unwrap();
        }
    }

    #[test]
    fn names_tell_what_differs() {
        let standard = Case::standard(sink::Kind::Pipe);
        assert_eq!(standard.name(), "pipe");
        let case = Case { producers: 1, count: 10_000, slots: 100, sheds: true, ..standard };
        assert_eq!(case.name(), "pipe, 1 producer, 10 000 messages, buffer 100, shedding");
    }

    #[test]
    fn every_combination_is_measured_once() {
        let all = all_cases();
        assert_eq!(all.len(), 4 * 3 * 2 * 3 * 3 * 2 * 2);
        assert!(cases().iter().all(|case| all.contains(case)));
        assert!(cases().iter().enumerate().all(|(index, case)| !cases()[..index].contains(case)));
    }
}
