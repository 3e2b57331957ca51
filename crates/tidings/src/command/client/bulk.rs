//! `tidings devices import` and `export`: any number of devices, one JSON object a line.
//!
//! Both continue after a lost connection and after an overload answer (429, 503). An import continues after the lines
//! that the server has reported as done; an import with a name asks the server for that number. An export continues
//! after the last complete device. An exported file gets its name when it is complete. Two cases cannot continue, so
//! they print what is done and end: an import from standard input, because it cannot be read again, and an export with
//! a selector, because it has no order.
//!
//! Bounds: [`PIECE_COUNT`] pieces of [`PIECE_BYTES`] of the input are in memory, and one line of the answer. The
//! command fails after [`TRY_COUNT`] tries without progress.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;
use tidings_telemetry::chain;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::api::{ApiClient, parse, segment};
use crate::cli::{ExportArgs, ImportArgs};
use crate::command::CommandError;
use tidings_client::HttpError;
use tidings_server::output::{Kind, line, remark};

const LINES: &str = "application/x-ndjson";
const PIECE_BYTES: usize = 64 << 10;
const PIECE_COUNT: usize = 4;
/// The longest line of an answer that is parsed.
const TOLD_BYTES_MAX: usize = 256 << 10;
/// How long the server may stay silent: enough for a thousand lines over a slow network into a busy store.
const PATIENCE: Duration = Duration::from_secs(300);
const TRY_COUNT: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The pause before the next try, after `tries` tries without progress.
fn pause(tries: u32) -> Duration {
    (Duration::from_millis(500) * 2_u32.pow(tries.min(8))).min(PAUSE_MAX)
}

/// A progress bar on a terminal; `what` names the unit.
fn counter(what: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{spinner:.cyan} {human_pos} {prefix}, {per_sec} {msg}");
    bar.set_style(style.expect("the template is ours"));
    bar.set_prefix(what.to_owned());
    bar
}

/// The server's counts of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Tally {
    lines: u64,
    repeated: u64,
    created: u64,
    updated: u64,
    subscribed: u64,
    rejected: u64,
}

/// One line of the answer.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(flatten)]
    tally: Tally,
    done: Option<bool>,
    line: Option<u64>,
    problem: Option<Value>,
}

/// How an attempt ended.
#[derive(Debug)]
enum Ended {
    Done,
    /// Final: another try would fail too.
    Refused(String),
    /// Another try may succeed.
    Broken(String),
}

/// The server's reports so far, over all attempts.
#[derive(Debug, Default)]
struct Story {
    /// Lines of the import that are done.
    lines: u64,
    /// Of the attempts before this one.
    before: Tally,
    /// Of this attempt.
    now: Tally,
    end: Option<Ended>,
    /// The beginning of a line of the answer.
    begun: Vec<u8>,
}

impl Story {
    fn begin(&mut self) {
        let Tally { repeated, created, updated, subscribed, rejected, .. } = std::mem::take(&mut self.now);
        self.before.repeated += repeated;
        self.before.created += created;
        self.before.updated += updated;
        self.before.subscribed += subscribed;
        self.before.rejected += rejected;
        self.end = None;
        self.begun.clear();
    }

    /// Takes a piece of the answer. Each complete line goes to `show`, with its parsed content.
    fn take(&mut self, mut piece: &[u8], mut show: impl FnMut(&str, &Told)) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&piece[..end]);
            piece = &piece[end + 1..];
            let text = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned();
            if let Ok(told) = serde_json::from_str::<Told>(&text) {
                show(&text, &told);
                self.learn(told);
            }
        }
        if self.begun.len() + piece.len() <= TOLD_BYTES_MAX {
            self.begun.extend_from_slice(piece);
        }
    }

    fn learn(&mut self, Told { tally, done, line, problem }: Told) {
        if done.is_none() && line.is_some() {
            return; // A wrong line that was skipped.
        }
        self.lines = self.lines.max(tally.lines);
        self.now = tally;
        self.end = match (done, problem) {
            (Some(true), _) => Some(Ended::Done),
            (Some(false), Some(problem)) => Some(ended(line, &problem)),
            (Some(false), None) => Some(Ended::Broken("the server stopped".to_owned())),
            (None, _) => None,
        };
    }

    fn words(&self) -> String {
        let (before, now) = (&self.before, &self.now);
        let count = |count: fn(&Tally) -> u64| count(before) + count(now);
        format!(
            "{} lines done: {} devices new, {} known, {} subscriptions new, {} lines wrong",
            self.lines,
            count(|it| it.created),
            count(|it| it.updated),
            count(|it| it.subscribed),
            count(|it| it.rejected)
        )
    }
}

fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or("the server gives no reason")
}

fn ended(line: Option<u64>, problem: &Value) -> Ended {
    let what = detail(problem).to_owned();
    match line {
        Some(line) => Ended::Refused(format!("line {line}: {what}")),
        None if problem["status"].as_u64().is_some_and(is_passing) => Ended::Broken(what),
        None => Ended::Refused(what),
    }
}

/// Whether a later try may succeed. 409: another request of this import was still running.
fn is_passing(status: u64) -> bool {
    matches!(status, 408 | 409 | 429 | 502..=504)
}

pub(super) async fn import(args: &ImportArgs) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.api)?;
    let bar = counter("lines");
    let mut story = Story { lines: done(&client, args.name.as_deref()).await?, ..Story::default() };
    if let (lines @ 1.., Some(name)) = (story.lines, &args.name) {
        remark(Kind::Note, format!("{lines} lines of the import {name} are done, continuing after them"));
    }
    let mut tries = 0;
    loop {
        let lines = story.lines;
        story.begin();
        let end = attempt(&client, args, &mut story, &bar).await?;
        let why = match end {
            Ended::Done => {
                bar.finish_and_clear();
                return if args.api.json { Ok(()) } else { Ok(line(story.words())?) };
            }
            Ended::Refused(why) => {
                bar.finish_and_clear();
                return Err(CommandError::Failed(format!("{why}; {}", story.words())));
            }
            Ended::Broken(why) => why,
        };
        tries = if story.lines > lines { 0 } else { tries + 1 };
        if is_stdin(&args.file) || tries >= TRY_COUNT {
            bar.finish_and_clear();
            let hint = if args.name.is_some() {
                "run it again to continue"
            } else {
                "with --name, another run could continue it"
            };
            return Err(CommandError::Failed(format!("{why}; {}; {hint}", story.words())));
        }
        bar.suspend(|| remark(Kind::Warning, format!("{why}; continuing after line {}", story.lines)));
        sleep(pause(tries)).await;
        // The server also counts lines whose answer was lost. If the server is still away, the next try fails with the
        // reason.
        if let Ok(known) = done(&client, args.name.as_deref()).await {
            story.lines = known.max(if args.name.is_some() { 0 } else { story.lines });
        }
    }
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// How many lines of the import are done.
async fn done(client: &ApiClient, name: Option<&str>) -> Result<u64, CommandError> {
    #[derive(Deserialize)]
    struct Progress {
        lines: u64,
    }
    let Some(name) = name else { return Ok(0) };
    let key = client.key.as_ref().map(tidings_config::Secret::expose);
    let path = format!("/v1/imports/{}", segment(name));
    let (status, answer) = client.server.request(hyper::Method::GET, &path, key, None).await?;
    let text = String::from_utf8_lossy(&answer);
    match status {
        StatusCode::NOT_FOUND => Ok(0),
        status if status.is_success() => Ok(parse::<Progress>(&text)?.lines),
        status => Err(client.refused(status, &text)),
    }
}

/// Sends the lines after those that are done.
async fn attempt(
    client: &ApiClient,
    args: &ImportArgs,
    story: &mut Story,
    bar: &ProgressBar,
) -> Result<Ended, CommandError> {
    let from = story.lines;
    let mut query = format!("from={from}&on_error={}", args.on_error);
    if let Some(name) = &args.name {
        query += &format!("&name={}", segment(name));
    }
    let lines = behind(&args.file, from)?;
    let key = client.key.as_ref().map(tidings_config::Secret::expose);
    let path = format!("/v1/imports?{query}");
    let mut shown = Ok(());
    let sent = client.server.upload(&path, key, (LINES, lines), PATIENCE, |piece| {
        story.take(piece, |text, told| {
            let is_wrong = told.done.is_none() && told.line.is_some();
            if args.api.json {
                shown = line(text);
            } else if let (true, Some(number), Some(problem)) = (is_wrong, told.line, &told.problem) {
                bar.suspend(|| remark(Kind::Warning, format!("line {number}: {}", detail(problem))));
            }
            if !is_wrong {
                bar.set_position(told.tally.lines);
            }
        });
    });
    let sent = sent.await;
    shown?;
    Ok(match sent {
        // Reports that came before the connection broke count.
        Err(error @ (HttpError::Url(_) | HttpError::Key)) => return Err(error.into()),
        Err(error) => story.end.take().unwrap_or_else(|| Ended::Broken(chain(&error))),
        Ok((status, _)) if status.is_success() => {
            story.end.take().unwrap_or_else(|| Ended::Broken("the answer broke off".to_owned()))
        }
        Ok((status, refusal)) if is_passing(status.as_u16().into()) => {
            Ended::Broken(client.refused(status, &String::from_utf8_lossy(&refusal)).to_string())
        }
        Ok((status, refusal)) => return Err(client.refused(status, &String::from_utf8_lossy(&refusal))),
    })
}

/// A request body with the file's lines after the first `from`. A separate thread reads the file and ends with the
/// body.
fn behind(file: &Path, from: u64) -> Result<impl Body<Data = Bytes, Error = io::Error> + 'static, CommandError> {
    let wrong = |source| CommandError::File { action: "read", path: file.to_owned(), source };
    let mut input: Box<dyn BufRead + Send> = if is_stdin(file) {
        Box::new(BufReader::with_capacity(PIECE_BYTES, io::stdin()))
    } else {
        Box::new(BufReader::with_capacity(PIECE_BYTES, File::open(file).map_err(wrong)?))
    };
    let found = skip_lines(&mut input, from).map_err(wrong)?;
    if found < from {
        let detail = format!("{from} lines of this import are done, but {} has {found}", file.display());
        return Err(CommandError::Usage(format!("{detail}: does this --name belong to another file?")));
    }
    let (tx, rx) = mpsc::channel(PIECE_COUNT);
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = match input.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => Ok(Bytes::copy_from_slice(&piece[..count])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = read.is_err();
            if tx.blocking_send(read.map(Frame::data)).is_err() || is_last {
                return;
            }
        }
    });
    Ok(StreamBody::new(stream::unfold(rx, async |mut rx| Some((rx.recv().await?, rx)))))
}

/// Skips `count` lines and returns how many there were. The last line may lack its line break.
fn skip_lines(input: &mut impl BufRead, count: u64) -> io::Result<u64> {
    let mut found = 0;
    let mut is_in_line = false;
    while found < count {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(found + u64::from(is_in_line));
        }
        let (used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (buffer.len(), false),
        };
        input.consume(used);
        found += u64::from(ended);
        is_in_line = !ended;
    }
    Ok(found)
}

/// Where an export goes: a file that nobody else may read, or standard output.
pub(super) struct Out {
    to: BufWriter<Box<dyn Write>>,
    /// The path while writing, and the final path.
    path: Option<(PathBuf, PathBuf)>,
}

impl Out {
    pub(super) fn new(path: &Path) -> Result<Self, CommandError> {
        if path.as_os_str() == "-" {
            return Ok(Self { to: BufWriter::new(Box::new(io::stdout())), path: None });
        }
        let wrong = |path: &Path, source| CommandError::File { action: "write", path: path.to_owned(), source };
        if fs::metadata(path).is_ok_and(|known| !known.is_file()) {
            let file = OpenOptions::new().write(true).open(path).map_err(|source| wrong(path, source))?;
            return Ok(Self { to: BufWriter::new(Box::new(file)), path: None }); // A pipe or a device.
        }
        // A new file in the same folder: an existing file stays until the export is complete, and its mode, which
        // others may read, is not inherited.
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        let file = file.map_err(|source| wrong(&part, source))?;
        Ok(Self { to: BufWriter::new(Box::new(file)), path: Some((part, path.to_owned())) })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let written = self.to.write_all(bytes);
        written.map_err(|error| self.failed(error))
    }

    /// The export is complete: gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), CommandError> {
        let written = self.to.flush().and_then(|()| match &self.path {
            Some((part, path)) => fs::rename(part, path),
            None => Ok(()),
        });
        written.map_err(|error| self.failed(error))
    }

    /// Removes an incomplete export, when a part is of no use.
    pub(super) fn discard(self) {
        if let Some((part, _)) = self.path {
            let _ = fs::remove_file(part);
        }
    }

    /// Keeps an incomplete export and returns its path.
    fn break_off(mut self) -> Result<Option<PathBuf>, CommandError> {
        let written = self.to.flush();
        written.map_err(|error| self.failed(error))?;
        Ok(self.path.map(|(part, _)| part))
    }

    fn failed(&self, source: io::Error) -> CommandError {
        match &self.path {
            Some((part, _)) => CommandError::File { action: "write", path: part.clone(), source },
            None => CommandError::Terminal(source),
        }
    }
}

/// Cuts the pieces of an answer into complete lines.
#[derive(Debug, Default)]
struct Cutter {
    /// The incomplete line, and the last complete line.
    begun: Vec<u8>,
    last: Vec<u8>,
    count: u64,
    /// Lines for devices whose record the server cannot read.
    damaged_count: u64,
}

impl Cutter {
    /// Returns the lines that this piece completes.
    fn take(&mut self, piece: &[u8]) -> Vec<u8> {
        self.begun.extend_from_slice(piece);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        let start = whole[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        self.last = whole[start..end].to_vec();
        for line in whole[..end].split(|byte| *byte == b'\n') {
            self.count += 1;
            self.damaged_count += u64::from(is_damaged(line));
        }
        whole
    }

    /// The id of the last complete device.
    fn last_id(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Device {
            id: String,
        }
        serde_json::from_slice::<Device>(&self.last).ok().map(|device| device.id)
    }
}

/// Whether the line says that a device's record cannot be read.
fn is_damaged(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Damaged {
        #[expect(dead_code, reason = "it is there or not")]
        problem: serde_json::Map<String, serde_json::Value>,
    }
    // Most lines are not parsed: inside a JSON string the quotation mark would be escaped.
    line.windows(PROBLEM.len()).any(|part| part == PROBLEM) && serde_json::from_slice::<Damaged>(line).is_ok()
}

/// The beginning of a field that only such lines have.
const PROBLEM: &[u8] = b"\"problem\":";

/// Writes all devices, or those that a selector matches.
pub(super) async fn export(args: &ExportArgs) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.api)?;
    let (mut out, bar) = (Out::new(&args.out)?, counter("devices"));
    let (mut after, mut cutter, mut tries) = (args.after.clone(), Cutter::default(), 0);
    loop {
        let query = match (&args.selector, &after) {
            (Some(selector), _) => format!("?selector={}", segment(selector)),
            (None, Some(after)) => format!("?after={}", segment(after)),
            (None, None) => String::new(),
        };
        let (count, mut written) = (cutter.count, Ok(()));
        cutter.begun.clear();
        let path = format!("/v1/export{query}");
        let taken = client.stream(&path, LINES, |piece| {
            written = out.write(&cutter.take(piece));
            bar.set_position(cutter.count);
            written.is_ok()
        });
        let taken = taken.await;
        written?;
        let error = match taken {
            Ok(()) => {
                bar.finish_and_clear();
                let written = cutter.count - cutter.damaged_count;
                if out.path.is_some() && !args.api.json {
                    remark(Kind::Note, format!("{written} devices written"));
                }
                out.finish()?;
                return match cutter.damaged_count {
                    0 => Ok(()),
                    count => Err(CommandError::Failed(format!(
                        "{count} devices are missing, because the server cannot read their records: each has a line with \
                         `problem`, and the server's log has more"
                    ))),
                };
            }
            Err(error) => error,
        };
        tries = if cutter.count > count { 0 } else { tries + 1 };
        let is_lost = matches!(&error, CommandError::Http(HttpError::Exchange { .. } | HttpError::Timeout(_)))
            || cutter.count > 0 && matches!(&error, CommandError::Http(HttpError::Connect { .. }))
            || matches!(&error, CommandError::Refused { status, .. } if is_passing((*status).into()));
        let is_at_end = args.selector.is_some() && cutter.count > 0; // It has no order, so it cannot continue.
        if !is_lost || is_at_end || tries >= TRY_COUNT {
            bar.finish_and_clear();
            let part = out.break_off()?;
            if cutter.count > 0 {
                let place = part.map_or(String::new(), |part| format!(", to {}", part.display()));
                remark(Kind::Warning, format!("not all devices are written, only {}{place}", cutter.count));
            } else if let Some(part) = part {
                let _ = fs::remove_file(part); // It is empty.
            }
            return Err(error);
        }
        after = cutter.last_id().or(after);
        bar.suspend(|| remark(Kind::Warning, format!("{}; continuing", chain(&error))));
        sleep(pause(tries)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_passed_over_wherever_they_end() {
        for (text, count, found, rest) in [
            ("a\nb\nc", 0, 0, "a\nb\nc"),
            ("a\nb\nc", 2, 2, "c"),
            ("a\nb\nc", 3, 3, ""),
            ("a\nb\nc\n", 3, 3, ""),
            ("a\nb\nc\n", 4, 3, ""),
            ("\n\n", 1, 1, "\n"),
            ("", 1, 0, ""),
        ] {
            for capacity in [1, 2, 64] {
                let mut input = BufReader::with_capacity(capacity, text.as_bytes());
                let passed = skip_lines(&mut input, count).unwrap();
                let mut left = String::new();
                input.read_to_string(&mut left).unwrap();
                assert_eq!((passed, left.as_str()), (found, rest), "{text:?} {count}");
            }
        }
    }

    #[test]
    fn of_what_was_cut_off_whole_devices_are_kept() {
        let text = b"{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"";
        for size in 1..text.len() {
            let mut cutter = Cutter::default();
            let whole: Vec<u8> = text.chunks(size).flat_map(|piece| cutter.take(piece)).collect();
            assert_eq!(whole, &text[..22], "in pieces of {size}");
            assert_eq!((cutter.last_id().as_deref(), cutter.count), (Some("b"), 2));
        }
    }

    #[test]
    fn devices_that_the_server_cannot_read_are_counted_apart() {
        let text = br#"{"id":"a","user":"\"problem\":{}"}
{"id":"b","problem":{"status":500}}
{"problem":{"status":500}}
{"id":"c"}
"#;
        for size in 1..text.len() {
            let mut cutter = Cutter::default();
            text.chunks(size).for_each(|piece| drop(cutter.take(piece)));
            assert_eq!((cutter.count, cutter.damaged_count), (4, 2), "in pieces of {size}");
        }
    }

    #[test]
    fn what_the_server_tells_is_added_up_over_attempts() {
        let mut story = Story::default();
        let mut seen = 0;
        let tally = r#"{"lines":1000,"repeated":0,"created":900,"updated":100,"subscribed":5,"rejected":1}"#;
        let wrong = r#"{"line":7,"problem":{"detail":"id: is required","status":400}}"#;
        for byte in format!("{wrong}\n{tally}\n{{\"lin").bytes() {
            story.take(&[byte], |_, _| seen += 1);
        }
        assert!(seen == 2 && story.end.is_none() && story.lines == 1000);
        story.begin();
        story.take(
            br#"{"lines":1003,"created":3,"done":false,"line":1004,"problem":{"detail":"x","status":400}}"#,
            |_, _| (),
        );
        story.take(b"\n", |_, _| ());
        assert!(matches!(&story.end, Some(Ended::Refused(why)) if why == "line 1004: x"), "{:?}", story.end);
        assert_eq!(story.words(), "1003 lines done: 903 devices new, 100 known, 5 subscriptions new, 1 lines wrong");
        story.take(b"{\"lines\":1003,\"done\":false,\"problem\":{\"status\":503,\"detail\":\"busy\"}}\n", |_, _| ());
        assert!(matches!(&story.end, Some(Ended::Broken(why)) if why == "busy"), "{:?}", story.end);
        story.take(b"{\"lines\":1003,\"done\":true}\n", |_, _| ());
        assert!(matches!(story.end, Some(Ended::Done)));
    }
}
