//! `bench feed`: a document of match data becomes events, beside bare quick-xml and Python's readers of XML.
//!
//! A document of 30 MB is read in pieces of 64 KiB, as the server reads one, on one thread. Once every entry becomes an
//! event (a mapping with 13 values), once two of fifty entries do, as with a provider that tells each pass. The readers
//! take turns: quick-xml, which our reader is built on, without and with the values resolved; expat and lxml in Python.
//!
//! Then memory, in a new process for each document: 3 MB, 30 MB, 60 MB, 30 MB of entries at the limit of depth, and a
//! document that only opens elements, which must be refused at the limit of depth.
//!
//! Every event of each document is compared with what the generator says it must be, before anything is measured. Every
//! measured pass counts.

mod document;
mod memory;
mod python;
mod quick;
mod reading;

use std::fs;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;
use tidings_feed::{Limits, Mapping, Outcome};
use tidings_server::command_error::{CommandError, failed, failed_by};

use self::document::{COMMENT_DEPTH, Document, FEW_ENTRIES, is_chosen};
use self::python::Python;
use self::quick::{Reading, elements};
use self::reading::{mapping, pieces, read};
use super::report::{Finished, Goal, Report};
use crate::args::BenchFeedArgs;
use crate::checksum::Digest;
use crate::folder::temporary;
use crate::process::Cores;
use crate::report::{column, progress, ratios};
use crate::statistic::times_per_second;

pub(crate) use self::memory::serve;

/// Our speed as a share of bare quick-xml's.
const GOAL_OF_QUICK_XML: f64 = 0.8;
/// What a document may take, however long it is: an entry of [`Limits::entry_bytes`], the events that are known by their
/// ids (65 536), and pieces.
const GOAL_GROWN_MIB: f64 = 8.0;
const DOCUMENT_BYTES: usize = 30_000_000;

pub(super) async fn run(args: &BenchFeedArgs) -> Result<Finished, CommandError> {
    let runs = args.common.runs;
    let measured = tokio::task::spawn_blocking(move || measure_all(runs));
    measured.await.map_err(|error| failed_by("the measuring thread ended", &error))?
}

fn measure_all(runs: u32) -> Result<Finished, CommandError> {
    let (folder, core) = (temporary(None)?, Cores::choose(1)?.server);
    let mut report = Report::new("feed");
    let document = Document::new(DOCUMENT_BYTES, COMMENT_DEPTH);
    let path = folder.path().join("document.xml");
    fs::write(&path, &document.bytes)?;
    let mut python = Python::find(&document, &path)?;
    Bench::new("match data", &document)?.measure(runs, python.as_mut(), &mut report)?;
    let deep = Document::new(DOCUMENT_BYTES, Limits::default().depth as usize);
    Bench::new("at the limit of depth", &deep)?.measure(runs, None, &mut report)?;
    memories(folder.path(), core, runs, &mut report)?;
    report.note(format!(
        "One thread. MB are a million bytes of XML. Documents have {DOCUMENT_BYTES} bytes: {} entries; {} at the limit of depth, \
         which is {}. Two of fifty entries are few events.",
        document.entries, deep.entries, deep.depth
    ));
    report.note(missing(python.as_ref()));
    report.finish()
}

fn missing(python: Option<&Python<'_>>) -> String {
    match python.map(|python| &python.libraries) {
        None => "Python was not found, so expat and lxml are missing (Debian: python3 and python3-lxml).".to_owned(),
        Some(libraries) => {
            let lxml = libraries.lxml.as_ref().map(|version| format!("lxml {version}"));
            let lxml =
                lxml.unwrap_or_else(|| "lxml was not found, so its rows are missing (Debian: python3-lxml)".to_owned());
            format!("Python {}, {}, {lxml}.", libraries.python, libraries.expat)
        }
    }
}

/// One document, and the mappings that read it.
struct Bench<'a> {
    name: &'static str,
    document: &'a Document,
    every: Mapping,
    few: Mapping,
    /// What [`Bench::few`] makes.
    few_events: u64,
    /// All events: of every entry, and of few.
    digests: [Digest; 2],
}

/// Megabytes per second in one run. Zero: not measured.
#[derive(Default)]
struct Rates {
    every: f64,
    few: f64,
    bare: f64,
    unescaped: f64,
    expat: f64,
    lxml: f64,
    lxml_events: f64,
}

impl<'a> Bench<'a> {
    /// Reads the document once with each mapping, and compares every event.
    fn new(name: &'static str, document: &'a Document) -> Result<Self, CommandError> {
        progress(format!("{name}: checking every event"));
        let (every, few) = (mapping("")?, mapping(FEW_ENTRIES)?);
        let (events, digest) = check(document, &every, |_| true)?;
        if events != document.entries as u64 {
            return Err(failed("an entry did not become an event"));
        }
        let (few_events, few_digest) = check(document, &few, is_chosen)?;
        Ok(Self { name, document, every, few, few_events, digests: [digest, few_digest] })
    }

    fn measure(&self, runs: u32, mut python: Option<&mut Python<'_>>, report: &mut Report) -> Result<(), CommandError> {
        let mut rates = Vec::new();
        for run in 1..=runs {
            progress(format!("{}, run {run} of {runs}", self.name));
            rates.push(self.rates(python.as_deref_mut())?);
        }
        let (name, [every, few]) = (self.name, self.digests);
        report.answered(&format!("{name}: every entry an event"), every)?;
        report.answered(&format!("{name}: few events"), few)?;
        let mut tell = |what: &str, values: Vec<f64>| {
            let measured = if values.contains(&0.0) { Vec::new() } else { values };
            report.measure(format!("{name}: {what}"), "MB/s", measured.clone());
            measured
        };
        let every = tell("every entry an event", column(&rates, |rate| rate.every));
        let few = tell("few events", column(&rates, |rate| rate.few));
        let bare = tell("bare quick-xml", column(&rates, |rate| rate.bare));
        let unescaped = tell("quick-xml, values resolved", column(&rates, |rate| rate.unescaped));
        tell("Python, expat", column(&rates, |rate| rate.expat));
        tell("Python, lxml", column(&rates, |rate| rate.lxml));
        let lxml_events = tell("Python, lxml, every entry an event", column(&rates, |rate| rate.lxml_events));
        let goal = Goal::AtLeast(GOAL_OF_QUICK_XML);
        report.judge(format!("{name}: every entry an event, of bare quick-xml"), "×", ratios(&every, &bare), goal);
        report.judge(format!("{name}: few events, of bare quick-xml"), "×", ratios(&few, &bare), goal);
        report.measure(format!("{name}: every entry an event, of values resolved"), "×", ratios(&every, &unescaped));
        report.measure(format!("{name}: few events, of values resolved"), "×", ratios(&few, &unescaped));
        report.measure(format!("{name}: every entry an event, of lxml's"), "×", ratios(&every, &lxml_events));
        Ok(())
    }

    /// All readers in turns.
    fn rates(&self, python: Option<&mut Python<'_>>) -> Result<Rates, CommandError> {
        let Self { document, every, few, few_events, .. } = self;
        let megabytes = document.bytes.len() as f64 / 1e6;
        let mut rates = Rates {
            every: megabytes * passes_per_second(document.entries as u64, || events(document, every))?,
            few: megabytes * passes_per_second(*few_events, || events(document, few))?,
            bare: megabytes
                * passes_per_second(document.elements(), || elements(pieces(&document.bytes), Reading::Bare))?,
            unescaped: megabytes
                * passes_per_second(document.elements(), || elements(pieces(&document.bytes), Reading::Unescaped))?,
            ..Rates::default()
        };
        if let Some(python) = python {
            rates.expat = megabytes * python.expat()?;
            if python.has_lxml() {
                (rates.lxml, rates.lxml_events) = (megabytes * python.lxml()?, megabytes * python.events()?);
            }
        }
        Ok(rates)
    }
}

/// Compares every event with what it must be. Returns how many there are, and their digest.
fn check(
    document: &Document,
    mapping: &Mapping,
    is_wanted: impl Fn(usize) -> bool,
) -> Result<(u64, Digest), CommandError> {
    let (mut count, mut digest, mut wrong) = (0, Digest::default(), None);
    let summary = read(pieces(&document.bytes), mapping, |entry| {
        let number = entry.number as usize - 1;
        let is_right = match &entry.outcome {
            Outcome::Event(draft) => {
                count += 1;
                digest.add(draft.json.as_bytes());
                let event = serde_json::from_str::<Value>(&draft.json);
                is_wanted(number) && event.is_ok_and(|event| event == Document::event(number))
            }
            Outcome::Skipped { .. } => !is_wanted(number),
            Outcome::Wrong { .. } => false,
        };
        if is_right {
            return ControlFlow::Continue(());
        }
        wrong = Some(format!("entry {} has become {:?}", entry.number, entry.outcome));
        ControlFlow::Break(())
    });
    let summary = summary.map_err(|error| failed_by("the document is refused", &error))?;
    match wrong {
        Some(wrong) => Err(failed(wrong)),
        None if summary.entries == document.entries as u64 => Ok((count, digest)),
        None => Err(failed(format!("{} entries of {} were read", summary.entries, document.entries))),
    }
}

/// Reads a document to its end, and counts its events.
fn events(document: &Document, mapping: &Mapping) -> Result<u64, CommandError> {
    let mut count = 0;
    let summary = read(pieces(black_box(&document.bytes)), mapping, |entry| {
        count += u64::from(matches!(black_box(&entry).outcome, Outcome::Event(_)));
        ControlFlow::Continue(())
    });
    summary.map(|_| count).map_err(|error| failed_by("the document is refused", &error))
}

/// How often a document is read in a second. Each pass must count the same.
fn passes_per_second(expected: u64, pass: impl Fn() -> Result<u64, CommandError>) -> Result<f64, CommandError> {
    let mut wrong = None;
    let rate = times_per_second(|| match pass() {
        Ok(count) if count == expected => {}
        Ok(count) => wrong = Some(failed(format!("a pass has found {count}, not {expected}"))),
        Err(error) => wrong = Some(error),
    });
    wrong.map_or(Ok(rate), Err)
}

/// Memory while documents pass: that of a document ten or twenty times as long must be about the same.
fn memories(folder: &Path, core: usize, runs: u32, report: &mut Report) -> Result<(), CommandError> {
    let limit = Limits::default().depth as usize;
    for (name, bytes, depth) in [
        ("3 MB", DOCUMENT_BYTES / 10, COMMENT_DEPTH),
        ("30 MB", DOCUMENT_BYTES, COMMENT_DEPTH),
        ("60 MB", 2 * DOCUMENT_BYTES, COMMENT_DEPTH),
        ("30 MB at the limit of depth", DOCUMENT_BYTES, limit),
    ] {
        let document = Document::new(bytes, depth);
        let path = folder.join("passing.xml");
        fs::write(&path, &document.bytes)?;
        let expected = (document.entries as u64, None);
        drop(document);
        report_growth(name, &path, core, runs, &expected, report)?;
    }
    let path = folder.join("deeper.xml");
    fs::write(&path, "<a>".repeat(DOCUMENT_BYTES / 3))?;
    report_growth("30 MB of opened elements", &path, core, runs, &(0, Some(too_deep(limit))), report)
}

/// Why `<a><a><a>…` is refused.
fn too_deep(limit: usize) -> String {
    format!("line 1, byte {}: the element is too deep: the limit is {limit} (`limits.depth`)", 3 * limit)
}

fn report_growth(
    name: &str,
    path: &Path,
    core: usize,
    runs: u32,
    expected: &(u64, Option<String>),
    report: &mut Report,
) -> Result<(), CommandError> {
    progress(format!("memory: {name}"));
    let mut grown = Vec::new();
    for _ in 0..runs {
        let passed = memory::grown(path, core)?;
        if (passed.events, &passed.refused) != (expected.0, &expected.1) {
            return Err(failed(format!("{name}: {} events, {:?}, not {expected:?}", passed.events, passed.refused)));
        }
        let refused = passed.refused.as_deref().unwrap_or_default();
        let mut digest = Digest::of_numbers([passed.events]);
        digest.add(refused.as_bytes());
        report.answered(&format!("{name} pass"), digest)?;
        grown.push(passed.grown_bytes as f64 / f64::from(1 << 20));
    }
    report.judge(format!("memory while {name} pass"), "MiB", grown, Goal::AtMost(GOAL_GROWN_MIB));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1_000_000;

    #[test]
    fn every_entry_becomes_its_event_and_all_readers_count_the_same() {
        for depth in [COMMENT_DEPTH, 100] {
            let document = Document::new(BYTES, depth);
            assert!(document.entries > 500 && document.bytes.len() >= BYTES);
            let bench = Bench::new("test", &document).unwrap();
            assert!(bench.few_events > 0 && bench.few_events < document.entries as u64 / 20);
            assert_eq!(bench.digests, Bench::new("again", &document).unwrap().digests);
            assert_ne!(bench.digests[0], bench.digests[1]);
            let other = Document::new(BYTES / 2, depth);
            assert_ne!(bench.digests, Bench::new("other", &other).unwrap().digests);
            let rates = bench.rates(None).unwrap();
            assert!([rates.every, rates.few, rates.bare, rates.unescaped].iter().all(|rate| *rate > 0.0));
            assert_eq!([rates.expat, rates.lxml, rates.lxml_events], [0.0; 3], "they are not reported");
        }
    }

    #[test]
    fn python_makes_the_same_events() {
        let (document, folder) = (Document::new(BYTES, COMMENT_DEPTH), temporary(None).unwrap());
        let path = folder.path().join("document.xml");
        fs::write(&path, &document.bytes).unwrap();
        let Some(mut python) = Python::find(&document, &path).unwrap() else { return };
        assert!(python.expat().unwrap() > 0.0);
        assert!(missing(Some(&python)).starts_with("Python 3."));
        if python.has_lxml() {
            assert!(python.lxml().unwrap() > 0.0 && python.events().unwrap() > 0.0);
        }
        assert!(missing(None).contains("python3-lxml"));
    }

    #[test]
    fn a_document_with_another_value_fails_the_run() {
        let mut document = Document::new(BYTES / 10, COMMENT_DEPTH);
        let text = String::from_utf8(document.bytes).unwrap();
        document.bytes = text.replacen("passes &amp; moves", "shoots &amp; moves", 1).into_bytes();
        let Err(error) = Bench::new("test", &document) else { panic!("the first event is another one") };
        assert!(error.to_string().contains("entry 1 has become"), "{error}");
        assert!(passes_per_second(7, || Ok(8)).is_err());
    }

    #[test]
    fn a_document_passes_and_one_level_more_is_refused_at_its_place() {
        let folder = temporary(None).unwrap();
        let path = folder.path().join("document.xml");
        let deep = Document::new(BYTES, 100);
        fs::write(&path, &deep.bytes).unwrap();
        let passed = memory::pass(&path, &mapping("").unwrap()).unwrap();
        assert_eq!((passed.events, passed.refused), (deep.entries as u64, None));

        let deeper = Document::new(BYTES, 101);
        let error = read(pieces(&deeper.bytes), &mapping("").unwrap(), |_| ControlFlow::Continue(())).unwrap_err();
        let text = std::str::from_utf8(&deeper.bytes).unwrap();
        let at = text.match_indices("<b>").nth(96).unwrap().0;
        assert_eq!((error.at.byte, error.at.line), (at as u64, 1 + text[..at].matches('\n').count() as u64));

        fs::write(&path, "<a>".repeat(BYTES)).unwrap();
        let passed = memory::pass(&path, &mapping("").unwrap()).unwrap();
        assert_eq!((passed.events, passed.refused), (0, Some(too_deep(100))));
    }
}
