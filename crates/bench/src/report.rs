//! The result of a benchmark: one line per measure with its goal, as a table or as one JSON object, and the checksum of
//! everything that was computed.
//!
//! A benchmark fills a [`Report`] and hands back what [`Report::finish`] makes of it. That needs answers: a benchmark that
//! has noted none has no result.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tidings_server::command_error::CommandError;
use tidings_server::output::{Kind, line, remark};

use super::checksum::{Answers, Checksum, Digest};
use super::statistic::{Spread, format_number};

/// What the median of a measure should reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }

    fn show(self) -> String {
        match self {
            Self::AtMost(bound) => format!("≤ {}", format_number(bound)),
            Self::AtLeast(bound) => format!("≥ {}", format_number(bound)),
        }
    }
}

/// A value that was measured in every run.
#[derive(Debug)]
struct Measure {
    name: String,
    unit: &'static str,
    runs: Vec<f64>,
    goal: Option<Goal>,
}

/// The result of a benchmark that still runs.
#[derive(Debug)]
pub(super) struct Report {
    benchmark: &'static str,
    measures: Vec<Measure>,
    notes: Vec<String>,
    answers: Answers,
}

/// The result of a benchmark.
#[derive(Debug)]
pub(super) struct Finished {
    report: Report,
    checksum: Checksum,
}

impl Report {
    pub(super) fn new(benchmark: &'static str) -> Self {
        Self { benchmark, measures: Vec::new(), notes: Vec::new(), answers: Answers::default() }
    }

    /// Adds a measure without a goal. It is not printed if it has no runs.
    pub(super) fn measure(&mut self, name: impl Into<String>, unit: &'static str, runs: Vec<f64>) {
        self.judge(name, unit, runs, None);
    }

    /// Adds a measure with its goal, if it has one.
    pub(super) fn judge(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        runs: Vec<f64>,
        goal: impl Into<Option<Goal>>,
    ) {
        self.measures.push(Measure { name: name.into(), unit, runs, goal: goal.into() });
    }

    /// Adds what a reader must know beside the numbers.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Notes what a run of a part has computed. Every run of a part, whoever does it, must have computed the same.
    pub(super) fn answered(&mut self, part: &str, digest: Digest) -> Result<(), CommandError> {
        self.answers.note(part, digest)
    }

    /// The result, when everything is measured.
    ///
    /// # Errors
    /// If no answer was noted.
    pub(super) fn finish(self) -> Result<Finished, CommandError> {
        let checksum = self.answers.checksum()?;
        Ok(Finished { report: self, checksum })
    }

    fn rows(&self) -> impl Iterator<Item = (&Measure, Spread)> {
        self.measures.iter().filter_map(|measure| Some((measure, Spread::of(&measure.runs)?)))
    }

    fn measures_as_json(&self) -> Vec<serde_json::Value> {
        let rows = self.rows().map(|(measure, spread)| {
            let mut row = json!({
                "name": measure.name, "unit": measure.unit, "runs": measure.runs,
                "median": spread.median, "min": spread.min, "max": spread.max,
                "shown": [format_number(spread.median), spread.show(), measure.goal.map(Goal::show).unwrap_or_default()],
            });
            if let Some(goal) = measure.goal {
                row["goal"] = json!(goal);
                row["met"] = json!(goal.is_met(spread.median));
            }
            row
        });
        rows.collect()
    }
}

impl Finished {
    /// Prints the result.
    pub(super) fn print(&self, json: bool) -> Result<(), CommandError> {
        Ok(line(if json { self.to_json().to_string() } else { self.to_table() })?)
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let Report { benchmark, notes, .. } = &self.report;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        json!({
            "benchmark": benchmark, "cores": cores, "optimised": !cfg!(debug_assertions),
            "checksum": self.checksum.to_string(), "measures": self.report.measures_as_json(), "notes": notes,
        })
    }

    fn to_table(&self) -> String {
        let header = ["measure", "median", "min – max", "unit", "goal", "met"].map(str::to_owned);
        let rows = self.report.rows().map(|(measure, spread)| {
            let met = measure.goal.map_or("", |goal| if goal.is_met(spread.median) { "yes" } else { "no" });
            let goal = measure.goal.map(Goal::show).unwrap_or_default();
            [measure.name.clone(), format_number(spread.median), spread.show(), measure.unit.into(), goal, met.into()]
        });
        let rows: Vec<[String; 6]> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                1 | 2 => format!("{cell:>width$}"), // Numbers are aligned to the right.
                _ => format!("{cell:<width$}"),
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        for note in &self.report.notes {
            text.push_str(&format!("\n{note}"));
        }
        text.push_str(&format!("\nChecksum of what was computed: {}.", self.checksum));
        text.trim_end().to_owned()
    }
}

/// Tells the user what is being measured.
pub(crate) fn progress(text: impl Display) {
    remark(Kind::Note, text);
}

/// One value of each sample.
pub(crate) fn column<T>(samples: &[T], value: impl Fn(&T) -> f64) -> Vec<f64> {
    samples.iter().map(value).collect()
}

/// Run by run, the first values divided by the second ones.
pub(crate) fn ratios(values: &[f64], others: &[f64]) -> Vec<f64> {
    values.iter().zip(others).map(|(value, other)| value / other).collect()
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("sample");
        report.judge("kept", "µs", vec![3.0, 1.0, 2.0], Goal::AtMost(2.0));
        report.judge("missed", "1/s", vec![100.0, 5000.0], Goal::AtLeast(2551.0));
        report.measure("never run", "ms", Vec::new());
        report.note("A note.");
        report.answered("sample", Digest::of_numbers([7])).unwrap();
        report
    }

    fn checksum(numbers: &[u64]) -> Checksum {
        let mut report = Report::new("sample");
        report.answered("sample", Digest::of_numbers(numbers.iter().copied())).unwrap();
        report.finish().unwrap().checksum
    }

    #[test]
    fn the_table_is_aligned_and_says_which_goals_are_met() {
        let expected = "\
measure  median    min – max  unit  goal     met
kept       2.00  1.00 – 3.00  µs    ≤ 2.00   yes
missed    2 550  100 – 5 000  1/s   ≥ 2 551  no

A note.
Checksum of what was computed: ";
        let expected = format!("{expected}{}.", checksum(&[7]));
        assert_eq!(report().finish().unwrap().to_table(), expected);
    }

    #[test]
    fn the_json_has_every_run() {
        let json = report().finish().unwrap().to_json();
        assert_eq!(json["measures"].as_array().unwrap().len(), 2);
        assert_eq!(json["measures"][0]["runs"], json!([3.0, 1.0, 2.0]));
        assert_eq!(json["measures"][0]["goal"], json!({"at_most": 2.0}));
        assert_eq!((&json["measures"][0]["met"], &json["measures"][1]["met"]), (&json!(true), &json!(false)));
        assert_eq!(json["checksum"], checksum(&[7]).to_string());
        assert_ne!(json["checksum"], checksum(&[8]).to_string());
    }

    #[test]
    fn a_benchmark_without_answers_has_no_result() {
        let mut report = Report::new("sample");
        report.measure("quick", "ms", vec![0.0]);
        assert!(report.finish().is_err());
    }
}
