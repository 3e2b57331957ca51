//! Runs a program as part of a step: its output goes into a log, the terminal shows that it is alive, and its last lines if
//! it fails.
//!
//! Limits: a command may take 45 minutes. Then the program is killed and the step fails; programs that it started may go
//! on. The last 120 lines are kept in memory, with up to 60 lines that say what failed. All lines are in
//! `target/xtask/STEP.log`. Lines wait in a queue of 1024. When it is full, the program's pipe fills and the program waits.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use jiff::civil::Date;

use crate::workshop::Workshop;

const COMMAND_TIMEOUT: Duration = Duration::from_mins(45);
/// The step that takes an hour, and some minutes for what it waits for.
const SOAK: &str = "soak";
const SOAK_TIMEOUT: Duration = Duration::from_mins(100);
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);
const TAIL_LINES_MAX: usize = 120;
const FAILURE_LINES_MAX: usize = 60;
const LINE_QUEUE_CAPACITY: usize = 1024;
const SHOWN_CHARS_MAX: usize = 300;

/// Starts a stopwatch.
#[expect(clippy::disallowed_methods, reason = "automation measures its own steps; there is no core to hand `now` to")]
pub(crate) fn stopwatch() -> Instant {
    Instant::now()
}

/// The time, in whole seconds.
#[expect(clippy::disallowed_methods, reason = "automation dates its records; there is no core to hand `now` to")]
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::try_from(std::time::SystemTime::now()).expect("the clock is set to a time of this era");
    Timestamp::from_second(now.as_second()).expect("it is one without its fraction")
}

/// The day, in UTC.
pub(crate) fn today() -> Date {
    jiff::tz::Offset::UTC.to_datetime(now()).date()
}

/// The cargo that runs this program, without its progress bar.
pub(crate) fn cargo(workshop: &Workshop, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(&workshop.root);
    command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}

/// Whether a program can be started.
pub(crate) fn is_there(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Empties a step's log.
pub(crate) fn start_log(workshop: &Workshop, name: &str) -> Result<()> {
    let folder = workshop.built("xtask");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{name}.log")), "").context("cannot write the log")
}

/// Runs `command` for `step` to its end and hands each line of its output to `on_line`.
///
/// # Errors
/// If the command cannot be started, ends with another status than 0, or takes longer than 45 minutes. Then its last lines
/// are printed, and the error names the tests that failed.
pub(crate) fn run(workshop: &Workshop, step: &str, command: Command, mut on_line: impl FnMut(&str)) -> Result<()> {
    let shown = shown(&command, &workshop.root);
    println!("    {step}: {shown}");
    let log_path = workshop.built(&format!("xtask/{step}.log"));
    fs::create_dir_all(log_path.parent().expect("it lies in a folder"))?;
    let mut log = File::options().create(true).append(true).open(&log_path).context("cannot write the log")?;
    writeln!(log, "$ {shown}")?;

    let mut tail = VecDeque::with_capacity(TAIL_LINES_MAX);
    let mut failures = Failures::default();
    let ended = follow(step, command, |line| {
        if is_for_people(line) {
            if tail.len() == TAIL_LINES_MAX {
                tail.pop_front();
            }
            tail.push_back(line.to_owned());
        }
        failures.note(line);
        on_line(line);
        writeln!(log, "{line}").context("cannot write the log")
    });
    if let Err(error) = ended {
        tail.iter().for_each(|line| println!("    | {line}"));
        println!("    all of it: {}", log_path.strip_prefix(&workshop.root).unwrap_or(&log_path).display());
        bail!("{shown}: {error:#}{}", failures.told());
    }
    Ok(())
}

/// Lines of a test runner about failed tests, which may be far from its last lines: the names of the tests, where they
/// panicked, and the next line, which says why.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    is_why_next: bool,
}

impl Failures {
    fn note(&mut self, line: &str) {
        let is_place = line.starts_with("thread '") && line.contains(" panicked at ");
        let is_of_node = line.trim_start().starts_with("✖ ");
        let is_failure = is_place || is_of_node || line.starts_with("test ") && line.ends_with("... FAILED");
        if (is_failure || self.is_why_next) && self.lines.len() < FAILURE_LINES_MAX {
            self.lines.push(line.to_owned());
        }
        self.is_why_next = is_place;
    }

    /// The lines for the end of an error.
    fn told(&self) -> String {
        self.lines.iter().map(|line| format!("\n    failed: {line}")).collect()
    }
}

/// Runs `command`. Standard output and standard error come as one sequence of lines.
fn follow(step: &str, mut command: Command, mut on_line: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot be started")?;
    drop(command); // Closes this process's end of the pipe, so that the reader sees the end when the child closes its own.
    let lines = lines_of(reader);
    let watch = stopwatch();
    let mut last = String::new();
    loop {
        match lines.recv_timeout(SIGN_OF_LIFE) {
            Ok(line) => {
                on_line(&line)?;
                if is_for_people(&line) {
                    last = line;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                println!("    {step}: … {} s: {}", watch.elapsed().as_secs(), last.trim())
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let timeout = if step == SOAK { SOAK_TIMEOUT } else { COMMAND_TIMEOUT };
        if watch.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            bail!("killed after {} s", timeout.as_secs());
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

/// Whether a line is no message of cargo for programs.
fn is_for_people(line: &str) -> bool {
    !line.starts_with("{\"reason\":")
}

fn lines_of(reader: std::io::PipeReader) -> Receiver<String> {
    let (tx, rx) = sync_channel(LINE_QUEUE_CAPACITY);
    // Not joined: a grandchild may keep the pipe open for longer than we want to wait. The thread ends with this process.
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if tx.send(text).is_err() {
                return;
            }
        }
    });
    rx
}

/// The command as typed in the repository's folder, shortened if it is long.
fn shown(command: &Command, root: &Path) -> String {
    let program = Path::new(command.get_program());
    let program = program.strip_prefix(root).unwrap_or(program);
    let program = if program.is_absolute() { Path::new(program.file_name().unwrap_or_default()) } else { program };
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let folder = command.get_current_dir().and_then(|folder| folder.strip_prefix(root).ok());
    let place = folder.filter(|folder| !folder.as_os_str().is_empty());
    let place = place.map_or(String::new(), |folder| format!("(in {}) ", folder.display()));
    let whole =
        format!("{place}{}", [program.display().to_string()].into_iter().chain(words).collect::<Vec<_>>().join(" "));
    match whole.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{FAILURE_LINES_MAX, Failures, follow};

    #[test]
    fn the_failures_of_a_long_run_are_listed_with_their_reason() {
        let mut failures = Failures::default();
        let said = ["test a ... ok", "thread 'b' (7) panicked at b.rs:1:2:", "left is not right", "stack backtrace:"];
        said.into_iter().chain(["test b ... FAILED", "error: 1 target failed"]).for_each(|line| failures.note(line));
        assert_eq!(failures.lines, [said[1], said[2], "test b ... FAILED"]);
        assert!(failures.told().ends_with("\n    failed: left is not right\n    failed: test b ... FAILED"));
        ["✔ d (3.1ms)", "  ✖ e (7.2ms)"].into_iter().for_each(|line| failures.note(line));
        assert!(failures.told().ends_with("\n    failed:   ✖ e (7.2ms)"));
        (0..1000).for_each(|_| failures.note("test c ... FAILED"));
        assert_eq!(failures.lines.len(), FAILURE_LINES_MAX);
    }

    fn lines(script: &str) -> (Vec<String>, anyhow::Result<()>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut lines = Vec::new();
        let ended = follow("step", command, |line| {
            lines.push(line.to_owned());
            Ok(())
        });
        (lines, ended)
    }

    #[test]
    fn both_outputs_come_in_order_with_an_unfinished_last_line() {
        let (lines, ended) = lines("echo one; echo two >&2; printf three");
        assert_eq!(lines, ["one", "two", "three"]);
        ended.unwrap();
    }

    #[test]
    fn another_status_than_zero_is_an_error() {
        let (lines, ended) = lines("echo said; exit 3");
        assert_eq!(lines, ["said"]);
        assert!(ended.unwrap_err().to_string().contains('3'));
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let command = Command::new("tidings-no-such-program");
        assert_eq!(follow("step", command, |_| Ok(())).unwrap_err().to_string(), "cannot be started");
    }
}
