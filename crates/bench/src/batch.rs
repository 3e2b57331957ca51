//! `bench batch`: several producers write small messages to one output, with our batching writer and with others.
//!
//! Outputs: a no-op; a pipe and a terminal, both with a reader; a file. Other writers: a lock around direct writes (one
//! system call each), a lock around a `LineWriter`, and `tracing-appender`. The time runs from the first message handed
//! in until everything that will be written is written. It is divided by the messages that came out, so that dropping
//! messages does not make a writer look faster. Every byte that came out is checked: messages are whole, each producer's
//! are in order, and missing ones are counted as dropped. Our writer must also announce them in the output.
//!
//! There is a standard case, and cases that change one thing of it. `--full` measures every combination.

mod case;
mod message;
mod ours;
mod producer;
mod sink;
mod writer;

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::time::Instant;

use self::case::{Case, all_cases, cases};
use self::message::{Came, Messages};
use super::report::{Finished, Goal, Report};
use crate::args::BenchBatchArgs;
use crate::checksum::Digest;
use crate::folder::temporary;
use crate::report::{column, progress};

/// How many times faster than locked direct writes, into pipes and files.
const GOAL_LOCKED: f64 = 10.0;
/// How many times faster than `tracing-appender`, used in the faster way.
#[cfg(feature = "peers")]
const GOAL_APPENDER: f64 = 1.0;

/// Messages after which a producer yields, in cases where messages may be dropped. On few cores the producers would
/// otherwise end before the writer runs at all.
const YIELD_INTERVAL: u64 = 16;

pub(super) async fn run(args: &BenchBatchArgs) -> Result<Finished, CommandError> {
    let args = args.clone();
    let measured = tokio::task::spawn_blocking(move || measure_all(&args));
    measured.await.map_err(|error| failed_by("the measuring thread ended", &error))?
}

fn measure_all(args: &BenchBatchArgs) -> Result<Finished, CommandError> {
    let folder = temporary(args.dir.as_deref())?;
    let mut report = Report::new("batch");
    let mut cases = if args.full { all_cases() } else { cases() };
    cases.retain(|case| case.name().contains(&args.only));
    for (index, case) in cases.iter().enumerate() {
        progress(format!("{} of {}: {}", index + 1, cases.len(), case.name()));
        measure(case, folder.path(), args.common.runs, &mut report)?;
    }
    report.note(
        "Unless the name says otherwise, 4 producers write 1 000 000 messages of 25 B (100 000 to the terminal), pages \
         have 8 192 B, 40 000 messages may wait, and producers wait for room. Times are per message that came out.",
    );
    #[cfg(not(feature = "peers"))]
    report.note("tracing-appender was not measured: built without --features bench-peers.");
    report.finish()
}

/// The result of one run.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Time until everything was written, per message that came out.
    nanos: f64,
    /// Time until the last producer had handed in its last message, per message.
    handing_in_nanos: f64,
    dropped_share: f64,
    /// The messages that came out; where some may be dropped, or nothing comes out, only how many were handed in.
    digest: Digest,
}

fn measure(case: &Case, folder: &Path, runs: u32, report: &mut Report) -> Result<(), CommandError> {
    let writers: Vec<_> = writer::Kind::ALL.iter().copied().filter(|&writer| case.suits(writer.has_buffer())).collect();
    let mut outcomes: Vec<Vec<Outcome>> = writers.iter().map(|_| Vec::new()).collect();
    for _ in 0..runs {
        for (&writer, outcomes) in writers.iter().zip(&mut outcomes) {
            outcomes.push(write(case, writer, folder)?);
        }
    }
    let name = case.name();
    outcomes.iter().flatten().try_for_each(|outcome| report.answered(&name, outcome.digest))?;
    for (writer, outcomes) in writers.iter().zip(&outcomes) {
        let values = |field: fn(&Outcome) -> f64| column(outcomes, field);
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

/// How many times faster than the others our writer is, run by run.
fn compare(case: &Case, writers: &[writer::Kind], outcomes: &[Vec<Outcome>], report: &mut Report) {
    let of = |wanted| writers.iter().zip(outcomes).find(|(writer, _)| **writer == wanted).map(|(_, outcomes)| outcomes);
    let Some(ours) = of(writer::Kind::Ours) else { return };
    let times = |theirs: &[Outcome]| -> Vec<f64> {
        theirs.iter().zip(ours).map(|(theirs, ours)| theirs.nanos / ours.nanos).collect()
    };
    let name = case.name();
    let is_pipe_or_file = matches!(case.sink, sink::Kind::Pipe | sink::Kind::File);
    let mut tell = |what: &str, theirs: &[Outcome], goal: Option<f64>| {
        let goal = goal.filter(|_| is_pipe_or_file).map(Goal::AtLeast);
        report.judge(format!("{name}: ours, of {what}"), "times", times(theirs), goal);
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

/// One run: writes everything, reads it back, and checks it.
fn write(case: &Case, writer: writer::Kind, folder: &Path) -> Result<Outcome, CommandError> {
    let (output, written, input) =
        sink::open(case.sink, folder, case.bytes()).map_err(|error| failed_by("cannot open an output", &error))?;
    let opened = writer.open(case, output)?;
    let (began, handed_in) = produce(case, &*opened);
    let dropped = opened.finish(&written)?;
    let elapsed = began.elapsed();
    let came = input.finish().map_err(|error| failed_by("cannot read what came out", &error))?;
    let count = case.count - dropped;
    let mut digest = Digest::new(count + dropped, 0);
    let is_right = match came {
        None => written.bytes() >= count * case.message_bytes as u64, // Announcements are written too.
        Some(all) => {
            let announced = if writer == writer::Kind::Ours { dropped } else { 0 };
            let (came, messages) = message::check(&all, case.message_bytes)?;
            digest = if case.sheds { digest } else { messages };
            came == Came { count, announced }
        }
    };
    if !is_right || (dropped > 0 && !case.sheds) {
        return Err(failed(format!(
            "{}: {} dropped {dropped} messages and did not write all others",
            case.name(),
            writer.name()
        )));
    }
    Ok(Outcome {
        nanos: elapsed.as_secs_f64() * 1e9 / count as f64,
        handing_in_nanos: (handed_in - began).as_secs_f64() * 1e9 / case.count as f64,
        dropped_share: dropped as f64 / case.count as f64,
        digest,
    })
}

/// Runs all producers at once. Returns when the first one began and when the last one ended.
fn produce(case: &Case, writer: &dyn producer::Writer) -> (Instant, Instant) {
    let start = Barrier::new(case.producers);
    let produce = |producer| {
        let mut messages = Messages::new(producer, case.message_bytes);
        let mut write = writer.producer();
        start.wait();
        let began = Instant::now();
        for count in 1..=case.count / case.producers as u64 {
            write(messages.next());
            if case.sheds && count.is_multiple_of(YIELD_INTERVAL) {
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
    fn every_writer_writes_everything_to_every_output() {
        let folder = tempfile::tempdir().unwrap();
        for sink in sink::Kind::ALL {
            let written = |count, slots, writer| {
                write(&Case { count, slots, ..Case::standard(sink) }, writer, folder.path()).unwrap().digest
            };
            let expected = written(2000, 100, writer::Kind::Ours);
            for &writer in writer::Kind::ALL {
                for slots in [100, 40_000] {
                    let case = Case { count: 2000, slots, ..Case::standard(sink) };
                    let outcome = write(&case, writer, folder.path()).unwrap();
                    let name = format!("{}, {slots} slots: {}", case.name(), writer.name());
                    assert_eq!(outcome.digest, expected, "{name}");
                    assert_eq!(outcome.dropped_share, 0.0, "{name}");
                    assert!(outcome.nanos >= outcome.handing_in_nanos && outcome.handing_in_nanos > 0.0, "{name}");
                }
            }
            assert_ne!(written(1996, 100, writer::Kind::Ours), expected);
        }
    }

    #[test]
    fn dropped_messages_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for &writer in writer::Kind::ALL.iter().filter(|writer| writer.has_buffer()) {
            let case = Case { count: 20_000, slots: 100, sheds: true, ..Case::standard(sink::Kind::Terminal) };
            let outcome = write(&case, writer, folder.path()).unwrap();
            let dropped = outcome.dropped_share;
            assert!(dropped > 0.0 && dropped < 1.0, "{} drops {dropped} of all", writer.name());
        }
    }

    #[test]
    fn a_name_says_what_differs_from_the_standard_case() {
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
