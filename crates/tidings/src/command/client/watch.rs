//! `tidings jobs watch`: the progress of jobs while they run.
//!
//! The command polls the server and prints what has changed since the last poll: on a terminal in one moving line per
//! job, else in a new line, with `--json` as the server's report. [`Board`] is the comparison, without clock and
//! server.
//!
//! Bounds: the newest [`JOB_COUNT_MAX`] jobs are followed. For its rate, each keeps the polls of [`RATE_WINDOW`].

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::api::{ApiClient, duration, parse, segment};
use super::report::Job;
use crate::cli::ApiServer;
use crate::command::CommandError;
use tidings_server::output::line;

/// Time between two polls.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two polls when every change prints a new line.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Jobs that are followed.
const JOB_COUNT_MAX: usize = 100;
/// The time over which a rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(3);

/// Watches the event until it is done, or without one all jobs until it is stopped.
pub(super) async fn run(id: Option<&str>, api: &ApiServer) -> Result<(), CommandError> {
    let client = ApiClient::new(api)?;
    let path = match id {
        Some(id) => format!("/v1/events/{}", segment(id)),
        None => format!("/v1/jobs?limit={JOB_COUNT_MAX}"),
    };
    let is_live = !api.json && io::stdout().is_terminal() && io::stderr().is_terminal();
    let interval = if is_live || api.json { LOOK_INTERVAL } else { LINE_INTERVAL };
    let (started, mut board, mut bars) = (Instant::now(), Board::default(), Bars::default());
    loop {
        let reports = reports(parse(&client.get(&path).await?)?);
        let rows = board.look(reports, id.is_some(), started.elapsed())?;
        for row in &rows {
            if is_live {
                bars.show(row)?;
            } else if row.is_changed {
                line(if api.json { row.report.to_string() } else { row.words() })?;
            }
        }
        if let (Some(_), Some(row)) = (id, rows.first().filter(|row| row.job.is_closed())) {
            return row.end();
        }
        sleep(interval).await;
    }
}

/// The reports of an answer, oldest first. The answer is a page of jobs, or the report of one event.
fn reports(mut answer: Value) -> Vec<Value> {
    match answer.get_mut("jobs").map(Value::take) {
        Some(Value::Array(mut jobs)) => {
            jobs.reverse();
            jobs
        }
        _ => vec![answer],
    }
}

/// The state of the jobs at the last poll, by event.
#[derive(Debug, Default)]
struct Board {
    seen: BTreeMap<String, Seen>,
    has_looked: bool,
}

#[derive(Debug, Default)]
struct Seen {
    report: Value,
    pace: Pace,
}

/// A job at one poll.
#[derive(Debug)]
struct Row {
    job: Job,
    report: Value,
    /// Devices per second; `None` while it is not known.
    rate: Option<f64>,
    is_changed: bool,
}

impl Board {
    /// Takes the server's reports, `at` after the start. Returns the jobs that are open and those that closed since the
    /// last poll. The first poll also returns closed jobs if `all`.
    fn look(&mut self, reports: Vec<Value>, all: bool, at: Duration) -> Result<Vec<Row>, CommandError> {
        let (mut rows, mut seen) = (Vec::new(), BTreeMap::new());
        for report in reports {
            let told = |error| CommandError::Failed(format!("cannot read the server's answer: {error}"));
            let job = Job::deserialize(&report).map_err(told)?;
            let last = self.seen.remove(&job.id);
            let is_changed = last.as_ref().is_none_or(|last| last.report != report);
            let mut pace = last.map(|last| last.pace).unwrap_or_default();
            pace.record(at, job.outcomes.total());
            let is_new_and_over = job.is_closed() && !self.has_looked && !all;
            seen.insert(job.id.clone(), Seen { report: report.clone(), pace: pace.clone() });
            if (is_changed || !job.is_closed()) && !is_new_and_over {
                rows.push(Row { job, report, rate: pace.rate(), is_changed });
            }
        }
        // Jobs that have left the page are forgotten here too.
        (self.seen, self.has_looked) = (seen, true);
        Ok(rows)
    }
}

/// The number of settled devices at each poll.
#[derive(Debug, Clone, Default)]
struct Pace(VecDeque<(Duration, u64)>);

impl Pace {
    fn record(&mut self, at: Duration, settled: u64) {
        self.0.push_back((at, settled));
        while self.0.get(1).is_some_and(|(second, _)| *second + RATE_WINDOW <= at) {
            self.0.pop_front();
        }
    }

    /// Devices per second over the polls that are kept.
    fn rate(&self) -> Option<f64> {
        let ((from, before), (to, now)) = (self.0.front()?, self.0.back()?);
        let seconds = to.saturating_sub(*from).as_secs_f64();
        (seconds > 0.0).then(|| now.saturating_sub(*before) as f64 / seconds)
    }
}

impl Row {
    /// Its progress in one line.
    fn words(&self) -> String {
        let Job { id, state, at, paused_by, audience, held, outcomes, .. } = &self.job;
        let settled = outcomes.total();
        let mut text = format!("{id}  {state}");
        if let Some(at) = at {
            return format!("{text} for {at}");
        }
        if let Some(scope) = paused_by {
            text += &format!(" by {scope}");
        }
        let percent = if *audience == 0 { 100 } else { settled.saturating_mul(100) / audience };
        text += &format!("  {settled}/{audience} ({percent}%)");
        if let Some(rate) = self.rate.filter(|rate| *rate > 0.0 && !self.job.is_closed()) {
            let left = Duration::from_secs_f64((audience.saturating_sub(settled) as f64 / rate).min(1e9));
            text += &format!("  {rate:.0}/s  {} left", duration(left));
        }
        for (name, count) in [
            ("accepted", outcomes.accepted),
            ("rejected", outcomes.refused()),
            ("received", outcomes.received),
            ("superseded", outcomes.superseded),
            ("expired", outcomes.expired),
            ("cancelled", outcomes.cancelled),
            ("unknown", outcomes.unknown),
            ("not sent", outcomes.spared()),
            ("held", *held),
        ] {
            if count > 0 {
                text += &format!("  {name} {count}");
            }
        }
        text
    }

    /// The command's result when it watched this job.
    fn end(&self) -> Result<(), CommandError> {
        match self.job.state.as_str() {
            "cancelled" => Err(CommandError::Failed(format!("{} was cancelled", self.job.id))),
            _ => Ok(()),
        }
    }
}

/// The lines on a terminal: lines of open jobs move, lines of closed jobs stay above.
#[derive(Default)]
struct Bars {
    all: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
}

impl Bars {
    fn show(&mut self, row: &Row) -> io::Result<()> {
        let Row { job, .. } = row;
        if job.is_closed() {
            if let Some(bar) = self.bars.remove(&job.id) {
                bar.finish_and_clear();
            }
            return self.all.suspend(|| line(row.words()));
        }
        let bar = self.bars.entry(job.id.clone()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:20.cyan} {wide_msg}").expect("the template is ours");
            self.all.add(ProgressBar::new(0).with_style(style))
        });
        bar.set_length(job.audience);
        bar.set_position(job.outcomes.total());
        bar.set_message(row.words());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(id: &str, state: &str, accepted: u64) -> Value {
        json!({"id": id, "position": 7, "state": state, "audience": 1000, "outcomes": {"accepted": accepted}})
    }

    fn told(rows: &[Row]) -> Vec<(String, bool)> {
        rows.iter().map(|row| (row.words(), row.is_changed)).collect()
    }

    #[test]
    fn what_changes_is_told_and_what_was_over_before_is_not() {
        let mut board = Board::default();
        let second = Duration::from_secs;
        let page = |jobs: &[Value]| reports(json!({"jobs": jobs, "next": 3}));
        let first = page(&[report("b", "running", 0), report("a", "finished", 1000)]);
        let rows = board.look(first, false, second(0)).unwrap();
        assert_eq!(told(&rows), [("b  running  0/1000 (0%)".to_owned(), true)]);

        let again = page(&[report("b", "running", 0), report("a", "finished", 1000)]);
        let rows = board.look(again, false, second(1)).unwrap();
        assert_eq!(told(&rows), [("b  running  0/1000 (0%)".to_owned(), false)], "nothing new, but it is still open");

        // A job that begins and ends between two looks is told once, below those before it.
        let later = page(&[report("c", "finished", 1000), report("b", "running", 500), report("a", "finished", 1000)]);
        let rows = board.look(later.clone(), false, second(2)).unwrap();
        let b = "b  running  500/1000 (50%)  250/s  2s left  accepted 500".to_owned();
        assert_eq!(told(&rows), [(b, true), ("c  finished  1000/1000 (100%)  accepted 1000".to_owned(), true)]);
        let rows = board.look(later, false, second(3)).unwrap();
        assert_eq!(rows.len(), 1, "what is over is not told again: {rows:?}");
        assert_eq!(board.seen.len(), 3);
        board.look(page(&[]), false, second(4)).unwrap();
        assert!(board.seen.is_empty(), "what left the page is not kept");
    }

    #[test]
    fn one_event_is_watched_until_it_is_closed() {
        let end = |state: &str| {
            let rows = Board::default().look(reports(report("a", state, 0)), true, Duration::ZERO).unwrap();
            let row = rows.into_iter().next().expect("the one that is asked for is told");
            row.job.is_closed().then(|| row.end().is_ok())
        };
        for state in ["scheduled", "waiting", "running", "paused", "something new"] {
            assert_eq!(end(state), None, "{state}");
        }
        assert_eq!((end("finished"), end("forgotten"), end("cancelled")), (Some(true), Some(true), Some(false)));
    }

    #[test]
    fn a_job_is_told_in_one_line() {
        let words = |report: Value| {
            let rows = Board::default().look(vec![report], true, Duration::ZERO).unwrap();
            rows[0].words()
        };
        let paused = json!({
            "id": "n-1", "position": 7, "state": "paused", "paused_by": "topic:news", "audience": 10, "held": 1,
            "outcomes": {"accepted": 2, "superseded": 1, "rejected": {"Unregistered": 1}, "suppressed": {"no_token": 2}},
        });
        let expected =
            "n-1  paused by topic:news  6/10 (60%)  accepted 2  rejected 1  superseded 1  not sent 2  held 1";
        assert_eq!(words(paused), expected);
        let later = json!({"id": "n-2", "state": "scheduled", "at": "2026-07-15T18:04:05.000Z"});
        assert_eq!(words(later), "n-2  scheduled for 2026-07-15T18:04:05.000Z");
        let nobody = json!({"id": "n-3", "position": 8, "state": "finished", "audience": 0, "outcomes": {}});
        assert_eq!(words(nobody), "n-3  finished  0/0 (100%)");
    }

    #[test]
    fn a_rate_is_that_of_the_last_looks() {
        let mut pace = Pace::default();
        for second in 0..100 {
            pace.record(Duration::from_secs(second), if second < 50 { 0 } else { (second - 49) * 10 });
            assert!(pace.0.len() <= 4, "three seconds of looks");
        }
        assert_eq!(pace.rate(), Some(10.0));
        assert_eq!(Pace::default().rate(), None);
        let mut backwards = Pace::default(); // After a crash devices are counted anew.
        backwards.record(Duration::from_secs(1), 9);
        backwards.record(Duration::from_secs(2), 3);
        assert_eq!(backwards.rate(), Some(0.0));
    }
}
