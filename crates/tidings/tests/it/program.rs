//! The program as the tests start it: a command in a folder, or a server whose log is read.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidings_trial::ports::free_port;

/// What must have happened by then; far more than any test needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of a log that no test has read. With more, the server's log waits; nothing else of the server does.
const LINE_COUNT: usize = 10_000;

/// The program with these words, in `dir` and with an empty environment.
pub(crate) fn tidings<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>, dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.args(words).current_dir(dir).env_clear();
    command
}

/// Runs the program to its end.
pub(crate) fn run(words: &str, dir: &Path) -> Output {
    tidings(words.split_whitespace(), dir).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A folder with the configuration of a server on a port of its own.
pub(crate) fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = format!("data_dir = \"data\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n");
    fs::write(dir.path().join("tidings.toml"), config).unwrap();
    dir
}

/// A process that is killed however the test ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        const PULSE: Duration = Duration::from_millis(5);
        for _ in 0..PATIENCE.as_millis() / PULSE.as_millis() {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            thread::park_timeout(PULSE);
        }
        panic!("the process does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A server, and the lines of its log.
pub(crate) struct Server {
    pub(crate) process: Running,
    lines: Receiver<String>,
}

impl Server {
    /// Starts the server of the folder, and returns when it listens.
    pub(crate) fn start(dir: &Path) -> Self {
        let server = Self::launch(dir);
        server.says("Listening");
        server
    }

    /// Starts the server of the folder, and does not wait.
    pub(crate) fn launch(dir: &Path) -> Self {
        let mut child = tidings(["serve"], dir).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (tx, lines) = sync_channel(LINE_COUNT);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tx.send(line)));
        Self { process: Running(child), lines }
    }

    /// Waits for a line with this text.
    pub(crate) fn says(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("never {text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// All lines that nobody has read, up to the end of the log.
    pub(crate) fn rest(&self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("the log does not end: {lines:#?}"),
            }
        }
    }

    /// An orderly stop. What the server says meanwhile can still be read.
    pub(crate) fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        assert!(self.process.end().success());
    }
}
