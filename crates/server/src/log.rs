//! Log lines of this process, written to standard error without blocking the tasks that log.
//!
//! Tasks log into a batching writer, and a separate thread writes pages of whole lines. When standard error does not
//! keep up (a stopped terminal, a pipe that nobody reads), the oldest waiting lines are dropped, and a line says how
//! many. At the end, and before a panic ends the process, waiting lines are written within a second. A blocked standard
//! error does not delay the end any longer, and then also the panic's message is lost.
//!
//! Remarks beside log lines, such as why a start failed, are JSON lines if log lines are.
//!
//! At most `LINE_COUNT_MAX` lines and `BYTES_MAX` of text wait. Before the first [`init`], and in commands that
//! never call it, there are only remarks, and they are written directly.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write, stderr};
use std::os::fd::AsFd as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tidings_batch::{Announce, BatchConfig, BatchWriter, Counters, FlushError, Full, IoSink, Loss, MakeBatchWriter};
use tidings_telemetry::log::{Format, InitError, lost, timestamp};
use tidings_telemetry::memory::Term;
use tidings_telemetry::metrics::server as table;
use tidings_telemetry::{Registry, chain};
use tracing::Level;

const PAGE_BYTES: usize = 16 * 1024;
const LINE_COUNT_MAX: usize = 20_000;
const BYTES_MAX: usize = 4 << 20;

/// How long waiting lines may delay the end of the process.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

static WRITER: OnceLock<BatchWriter> = OnceLock::new();

/// The format of everything on standard error: text until [`speak`] or [`init`].
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Sets the format, also for remarks and for everything before [`init`]. The first call counts.
pub fn speak(format: Format) {
    let _ = FORMAT.set(format);
}

/// Starts logging what passes `filter`.
///
/// # Errors
/// If the filter is not understood, or this process logs already. Then nothing is changed.
pub fn init(format: Format, filter: &str) -> Result<(), InitError> {
    speak(format);
    let writer = BatchWriter::new(config(format), IoSink::new(output()));
    let lines = MakeBatchWriter::new(writer.clone());
    tidings_telemetry::log::init(format, filter, stderr().is_terminal(), lines)?;
    if let Err(error) = writer.start_thread("log") {
        tracing::warn!(
            error = chain(&error),
            "Cannot start the thread that writes log lines, tasks that log wait for standard error"
        );
    }
    WRITER.get_or_init(|| writer);
    Ok(())
}

/// Writes waiting lines, for at most a second.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        let _ = writer.flush_blocking(FLUSH_PATIENCE); // Nobody could be told of the error.
    }
}

/// Writes the last words of a process that ends at once: after all waiting lines, and past the log's filter.
pub fn last_words(words: &str) {
    match WRITER.get().map(|writer| writer.flush_blocking(FLUSH_PATIENCE)) {
        // Standard error is blocked: a write would block this thread, and so the end of the process.
        Some(Err(FlushError::Deadline { .. })) => {}
        _ => drop(stderr().write_all(words.as_bytes())), // A closed standard error must not keep the process.
    }
}

/// Writes a remark, in order with the log lines.
pub fn line(text: &str) {
    let written = match WRITER.get() {
        Some(writer) => writer.write(text.as_bytes()).map_err(io::Error::other),
        None => stderr().write_all(text.as_bytes()),
    };
    drop(written); // A closed standard error must not stop the process.
}

/// The text as a JSON line if log lines are JSON, else `None`. No filter applies.
pub fn as_json(level: Level, text: &str) -> Option<String> {
    (FORMAT.get() == Some(&Format::Json)).then(|| {
        let line = serde_json::json!({
            "timestamp": timestamp(), "level": level.as_str(), "message": text, "target": "tidings",
        });
        format!("{line}\n")
    })
}

/// Makes the counts of log lines part of `/metrics`.
pub fn register(registry: &Registry) {
    let read = |value: fn(Counters) -> f64| Arc::new(move || WRITER.get().map_or(0.0, |lines| value(lines.counters())));
    registry.computed(&table::LOG_LINES_TOTAL, &[], read(|lines| lines.total as f64));
    registry.computed(&table::LOG_DROPPED_TOTAL, &[], read(|lines| lines.dropped as f64));
    registry.computed(&table::LOG_WAITING_BYTES, &[], read(|lines| lines.bytes as f64));
}

/// What lines that wait for standard error may take.
pub(super) fn memory_terms() -> Vec<Term> {
    vec![Term::peak("log lines to write", 1, config(Format::Text).memory_bytes_max(), "fixed")]
}

fn config(format: Format) -> BatchConfig {
    let announce = move |loss: Loss, text: &mut Vec<u8>| {
        if loss.is_torn {
            text.push(b'\n');
        }
        text.extend_from_slice(lost(format, loss.count).as_bytes());
    };
    BatchConfig {
        page_bytes: PAGE_BYTES,
        count_max: LINE_COUNT_MAX,
        bytes_max: BYTES_MAX,
        full: Full::EvictOldest,
        linger: Duration::ZERO,
        write_timeout: FLUSH_PATIENCE,
        announce: Some(Announce::new(announce)),
    }
}

/// Standard error without the standard library's lock: a blocked page would hold that lock, and panic messages need it.
fn output() -> Box<dyn Write + Send> {
    match stderr().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(Output(File::from(descriptor))),
        Err(_) => Box::new(stderr()),
    }
}

/// A file whose writes wait even if it is in non-blocking mode. Any process that shares standard error may set that
/// mode.
struct Output(File);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::{Output, init, last_words};
    use tidings_telemetry::log::Format;
    use tidings_telemetry::panics;

    const CHILD: &str = "TIDINGS_TEST_PANIC";
    const LINE_COUNT: usize = 5000;

    fn panicking() -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "log::tests::child", "--nocapture"]).env(CHILD, "1");
        command
    }

    /// Logs and panics; in the child only.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        init(Format::Json, "info").unwrap();
        panics::install(last_words);
        for line in 0..LINE_COUNT {
            tracing::info!(line, "Before the panic");
        }
        panic!("as asked");
    }

    #[test]
    fn a_pipe_that_is_set_not_to_block_gets_everything() {
        let (mut reader, pipe) = std::io::pipe().unwrap();
        fcntl_setfl(&pipe, OFlags::NONBLOCK).unwrap();
        let mut output = Output(File::from(OwnedFd::from(pipe)));
        let read = std::thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).unwrap();
            text
        });
        let text = vec![b'x'; 1 << 20];
        output.write_all(&text).unwrap();
        drop(output);
        assert!(read.join().unwrap() == text);
    }

    #[test]
    fn a_panic_ends_the_process_though_nobody_reads_standard_error() {
        let mut child = panicking().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let unread = child.stderr.take();
        let (tx, rx) = sync_channel(1);
        std::thread::spawn(move || tx.send(child.wait()));
        let ended = rx.recv_timeout(Duration::from_secs(20));
        drop(unread); // Else a child that hangs would stay.
        assert!(!ended.expect("it is not kept").unwrap().success());
    }

    #[test]
    fn lines_before_a_panic_are_there_and_before_its_message() {
        let output = panicking().output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let (lines, message) = text.split_once(" panicked at ").unwrap();
        let count = lines.lines().filter(|line| line.contains("Before the panic")).count();
        assert_eq!(count, LINE_COUNT, "{}", &text[text.len().saturating_sub(1000)..]);
        assert!(message.contains("log.rs:") && message.ends_with("as asked; the process ends\n"), "{message}");
        let last: serde_json::Value = serde_json::from_str(lines.lines().nth_back(1).unwrap()).unwrap();
        assert_eq!((&last["level"], &last["panic"]), (&"ERROR".into(), &"as asked".into()));
        assert_eq!(last["thread"], "log::tests::child");
    }
}
