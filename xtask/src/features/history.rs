//! The history of the runs: a file with one JSON object a line (NDJSON), which only grows at its end.
//!
//! ```text
//! {"at":"2026-11-27T05:30:00Z","commit":"5f62eeb1a2b3","clean":true,"seconds":21.3,
//!  "scenarios":{"push.feature: A phone is pushed":{"state":"passed","seconds":0.25}}}
//! ```
//!
//! A scenario is known by its file and its name: with another name it is another scenario. If two scenarios of a file have
//! the same name, the worse result counts. `clean` says that there were no changes beside the commit.
//!
//! Limits: the last 400 runs are kept in memory. A line of more than 4 MiB, and a line that is not such an object, is
//! damaged: it is skipped and counted. The file itself is not shortened: `tail -n 400` does that.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::results::{Run, State};

/// Runs that are kept in memory.
pub(super) const RUNS_MAX: usize = 400;
/// Bytes of a line.
const LINE_MAX: usize = 4 << 20;

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(with = "rfc3339")]
    pub(super) at: Timestamp,
    /// `None`: nobody knows.
    pub(super) commit: Option<String>,
    #[serde(rename = "clean")]
    pub(super) is_clean: bool,
    pub(super) seconds: f64,
    /// By the scenario's key.
    pub(super) scenarios: BTreeMap<String, Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) state: State,
    pub(super) seconds: f64,
}

/// The runs that are kept, the oldest first.
#[derive(Debug, Default, PartialEq)]
pub(super) struct History {
    pub(super) runs: VecDeque<Record>,
    /// Lines that were skipped.
    pub(super) damaged: usize,
}

/// What a scenario is known by.
pub(super) fn key(file: &str, name: &str) -> String {
    format!("{file}: {name}")
}

impl Record {
    pub(super) fn new(run: &Run, at: Timestamp, commit: Option<String>, is_clean: bool) -> Self {
        let mut scenarios = BTreeMap::<String, Outcome>::new();
        for feature in &run.features {
            for scenario in &feature.scenarios {
                let outcome = Outcome { state: scenario.state, seconds: scenario.seconds };
                let known = scenarios.entry(key(&feature.file, &scenario.name)).or_insert(outcome);
                if known.state == State::Passed {
                    *known = outcome;
                }
            }
        }
        Self { at, commit, is_clean, seconds: run.seconds, scenarios }
    }

    /// The commit, if the run judged exactly that.
    pub(super) fn exact_commit(&self) -> Option<&str> {
        self.commit.as_deref().filter(|_| self.is_clean)
    }

    /// For people: the time, and the commit.
    pub(super) fn told(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("an unknown commit");
        let changes = if self.is_clean || self.commit.is_none() { "" } else { " with changes" };
        format!("{}, {commit}{changes}", self.at.strftime("%Y-%m-%d %H:%M UTC"))
    }
}

impl History {
    /// Reads the lines; an empty one is nothing.
    pub(super) fn read(mut lines: impl BufRead) -> io::Result<Self> {
        let (mut history, mut line) = (Self::default(), Vec::new());
        loop {
            line.clear();
            if lines.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line)? == 0 {
                return Ok(history);
            }
            if line.len() == LINE_MAX && line.last() != Some(&b'\n') {
                lines.skip_until(b'\n')?;
                history.damaged += 1;
            } else if !line.trim_ascii().is_empty() {
                match serde_json::from_slice(&line) {
                    Ok(record) => history.push(record),
                    Err(_) => history.damaged += 1,
                }
            }
        }
    }

    /// Reads a file; one that is not there is empty.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match File::open(path) {
            Ok(file) => Self::read(BufReader::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn push(&mut self, record: Record) {
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(record);
    }
}

/// Writes a run at the end of the file, as one line. A line that was torn stays a line of its own.
pub(super) fn append(path: &Path, record: &Record) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::options().read(true).append(true).create(true).open(path)?;
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            line.insert(0, b'\n');
        }
    }
    file.write_all(&line)
}

/// A time as people and programs read it.
mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::results::tests::mixed;
    use super::*;

    /// A run at this second, in which one scenario, `"a.feature: A"`, had this result.
    pub(in super::super) fn run_of(second: i64, commit: &str, state: State) -> Record {
        Record {
            at: Timestamp::from_second(second).unwrap(),
            commit: Some(commit.to_owned()),
            is_clean: true,
            seconds: 1.0,
            scenarios: [("a.feature: A".to_owned(), Outcome { state, seconds: 0.5 })].into(),
        }
    }

    #[test]
    fn a_run_is_kept_by_file_and_name() {
        let record = Record::new(&mixed(), Timestamp::UNIX_EPOCH, Some("5f62eeb".to_owned()), true);
        let outcomes: Vec<_> = record.scenarios.iter().map(|(key, outcome)| (key.as_str(), outcome.state)).collect();
        assert_eq!(
            outcomes,
            [
                ("live.feature: A slow app", State::Pending),
                ("push.feature: A goal is quick", State::Failed),
                ("push.feature: A phone is pushed", State::Passed),
            ]
        );
        assert_eq!((record.scenarios["push.feature: A goal is quick"].seconds, record.seconds), (2.0, 12.34));
    }

    #[test]
    fn of_two_scenarios_with_one_name_the_worse_counts() {
        for states in [[State::Failed, State::Passed], [State::Passed, State::Failed]] {
            let mut run = mixed();
            for (scenario, state) in run.features[0].scenarios.iter_mut().zip(states) {
                (scenario.name, scenario.state) = ("One".to_owned(), state);
            }
            let record = Record::new(&run, Timestamp::UNIX_EPOCH, None, true);
            assert_eq!(record.scenarios["push.feature: One"].state, State::Failed);
        }
    }

    #[test]
    fn a_line_has_this_form() {
        let line = serde_json::to_string(&run_of(1_795_757_400, "5f62eeb", State::Passed)).unwrap();
        assert_eq!(
            line,
            r#"{"at":"2026-11-27T05:30:00Z","commit":"5f62eeb","clean":true,"seconds":1.0,"#.to_owned()
                + r#""scenarios":{"a.feature: A":{"state":"passed","seconds":0.5}}}"#
        );
    }

    #[test]
    fn damaged_lines_are_skipped_and_counted_and_a_torn_one_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept/history.ndjson");
        let (first, second) = (run_of(0, "a", State::Passed), run_of(60, "b", State::Failed));
        append(&path, &first).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"\nnot an object\n\xff\xfe\n{}\n", &whole[..whole.len() / 2]].concat()).unwrap();
        append(&path, &second).unwrap();
        assert_eq!(History::open(&path).unwrap(), History { runs: [first, second].into(), damaged: 4 });
    }

    #[test]
    fn a_file_that_is_not_there_is_empty() {
        assert_eq!(History::open(Path::new("no-such-folder/history.ndjson")).unwrap(), History::default());
    }

    #[test]
    fn a_line_that_is_too_long_is_damaged_and_the_next_is_read() {
        let record = run_of(0, "a", State::Passed);
        for excess in [0, 1, LINE_MAX] {
            let mut bytes = vec![b' '; LINE_MAX + excess];
            bytes.push(b'\n');
            serde_json::to_writer(&mut bytes, &record).unwrap();
            let history = History::read(&bytes[..]).unwrap();
            assert_eq!((history.runs.len(), history.damaged), (1, 1), "{excess} bytes more than a line may have");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_file_says_each_line_is_kept_or_counted(
            lines in prop::collection::vec(prop_oneof![
                Just(serde_json::to_string(&run_of(0, "a", State::Passed)).unwrap().into_bytes()),
                prop::collection::vec(any::<u8>().prop_filter("one line", |byte| *byte != b'\n'), 0..40),
            ], 0..60)
        ) {
            let history = History::read(&lines.join(&b'\n')[..]).unwrap();
            let said = lines.iter().filter(|line| !line.trim_ascii().is_empty()).count();
            prop_assert_eq!(history.runs.len() + history.damaged, said);
        }

        #[test]
        fn the_last_runs_are_kept(count in 0..3 * RUNS_MAX) {
            let mut history = History::default();
            (0..count).for_each(|second| history.push(run_of(second as i64, "a", State::Passed)));
            let seconds: Vec<i64> = history.runs.iter().map(|record| record.at.as_second()).collect();
            let expected: Vec<i64> = (count.saturating_sub(RUNS_MAX)..count).map(|second| second as i64).collect();
            prop_assert_eq!(seconds, expected);
        }
    }
}
