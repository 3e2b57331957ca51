//! A server: the real program as a child process, killed, stopped and started at will.
//!
//! It has a folder with its configuration (`tidings.toml`), what the configuration names, its data if that says so, and its log.
//! When a test fails, the last lines of the log are printed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::ports::local;
use crate::process::{Process, Signal};
use crate::wait::{PATIENCE, try_until, until_within};

const CONFIGURATION: &str = "tidings.toml";
const LOG_LINES_SHOWN: usize = 40;
/// What a server says when it has begun to take requests. In a cluster: when it leads.
const LISTENING: &str = "listening on http://";

/// The program that is tried: the one that `TIDINGS_BIN` names, by default the one that was built with the test
/// (`env!("CARGO_BIN_EXE_tidings")`).
pub fn program(built: &str) -> PathBuf {
    std::env::var_os("TIDINGS_BIN").unwrap_or_else(|| built.into()).into()
}

/// A server, running or not.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// Where it listens. Port 0 of the configuration is replaced when it says where.
    pub addr: SocketAddr,
    /// Is removed with the server, after the process.
    folder: Option<TempDir>,
}

impl Server {
    /// One in a temporary folder that was never started. `name` is for messages and, in a cluster, for the other servers.
    pub fn new(name: &str, program: impl Into<PathBuf>) -> Self {
        let folder = tempfile::tempdir().expect("the system has a folder");
        let mut server = Self::in_folder(name, program, folder.path());
        server.folder = Some(folder);
        server
    }

    /// The same in a folder that stays.
    pub fn in_folder(name: &str, program: impl Into<PathBuf>, folder: &Path) -> Self {
        let mut process = Process::new(name, program, folder);
        process.set_arguments(["serve", "--config", CONFIGURATION]);
        Self { process, addr: local(0), folder: None }
    }

    /// At this address, which the configuration names.
    #[must_use]
    pub fn at(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    /// What it reads when it is started next.
    pub fn configure(&self, text: &str) {
        self.write(CONFIGURATION, text);
    }

    /// Puts a file into its folder.
    pub fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        self.process.write(file, text).unwrap_or_else(|error| panic!("cannot write {file}: {error}"));
    }

    /// The process, for its limits and its environment.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.process.name()
    }

    /// A place in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.process.folder().join(name)
    }

    /// Starts it, and returns when it listens.
    pub async fn start(&mut self) {
        self.launch(&[]);
        self.until_it_listens(PATIENCE).await;
    }

    /// Starts it with more words on its command line, and waits for nothing.
    pub fn launch(&mut self, words: &[&str]) {
        assert!(!self.process.is_started(), "{} runs already", self.name());
        let all = ["serve", "--config", CONFIGURATION].into_iter().chain(words.iter().copied());
        self.process.set_arguments(all.map(OsString::from));
        self.process.start().unwrap_or_else(|error| panic!("{} does not start: {error}", self.name()));
    }

    /// Waits until it says where it listens.
    pub async fn until_it_listens(&mut self, patience: Duration) {
        let listens = try_until(patience, async || self.listening()).await;
        assert!(listens.is_some(), "{} does not listen within {patience:?}\n{}", self.name(), self.log_end());
    }

    /// Where it says in this life that it listens. Fails when it has ended by itself.
    pub fn listening(&mut self) -> Option<SocketAddr> {
        self.check_alive();
        let said = self.process.said();
        let (addr, _) = said.split_once(LISTENING)?.1.split_once(' ')?;
        self.addr = addr.parse().expect("it says where it listens");
        Some(self.addr)
    }

    /// `kill -9`. Fails when it has ended by itself.
    pub fn kill(&mut self) {
        assert!(self.is_running(), "{} does not run", self.name());
        self.process.kill();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap_or_else(|error| panic!("{} gets no signal: {error}", self.name()));
    }

    /// An orderly stop (SIGTERM), to its end: how it ended.
    pub async fn stop(&mut self) -> ExitStatus {
        assert!(self.is_running(), "{} does not run", self.name());
        self.signal(Signal::TERM);
        let what = format!("{} stops", self.name());
        until_within(&what, PATIENCE, async || self.process.ended()).await
    }

    /// The same. Fails if it does not end well.
    pub async fn stop_well(&mut self) {
        let status = self.stop().await;
        assert!(status.success(), "{} ended with {status}\n{}", self.name(), self.log_end());
    }

    /// Whether it was started, and not killed or stopped. Fails when it has ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.check_alive();
        self.process.is_started()
    }

    /// The same; that it has ended by itself is not noticed.
    pub fn is_started(&self) -> bool {
        self.process.is_started()
    }

    /// Whether it runs, for a campaign that reports by itself that it does not.
    pub fn is_alive(&mut self) -> bool {
        self.process.ended().is_none() && self.process.is_started()
    }

    /// Fails when it has ended by itself.
    pub fn check_alive(&mut self) {
        if let Some(status) = self.process.ended() {
            panic!("{} ended by itself: {status}\n{}", self.name(), self.log_end());
        }
    }

    /// Whether a thread of it has panicked in one of its lives.
    pub fn has_panicked(&self) -> bool {
        self.log().contains("panicked at")
    }

    /// The program with these words, in its folder and beside it.
    pub fn command(&self, words: &[&str]) -> Command {
        self.process.aside(words)
    }

    /// What it says to these words.
    pub async fn run(&self, words: &[&str]) -> Output {
        let mut command = tokio::process::Command::from(self.command(words));
        command.kill_on_drop(true).output().await.expect("the program starts")
    }

    /// The number of the process.
    pub fn process_id(&self) -> u32 {
        self.process.id().unwrap_or_else(|| panic!("{} does not run", self.name()))
    }

    /// All it has said in all its lives.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The last lines of it.
    pub fn log_end(&self) -> String {
        self.process.log_end(LOG_LINES_SHOWN)
    }
}

impl Drop for Server {
    #[expect(clippy::print_stdout, reason = "belongs to the report of a test that fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("\nThe last words of {}:\n{}", self.name(), self.log_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that behaves as a server does.
    fn impostor(script: &str) -> Server {
        use std::os::unix::fs::PermissionsExt as _;
        let server = Server::new("an impostor", "./impostor");
        server.write("impostor", format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(server.path("impostor"), std::fs::Permissions::from_mode(0o700)).unwrap();
        server
    }

    #[tokio::test]
    async fn a_server_is_killed_stopped_and_started_again() {
        let mut server =
            impostor("trap 'exit 7' TERM\necho listening on http://127.0.0.1:81 \"$@\"\nwhile :; do sleep 0.01; done");
        server.start().await;
        assert_eq!(server.addr, local(81));
        server.kill();
        assert!(!server.is_running());
        server.start().await;
        assert_eq!(server.stop().await.code(), Some(7));
        assert_eq!(server.log(), "listening on http://127.0.0.1:81 serve --config tidings.toml\n".repeat(2));
        let said = server.run(&["config", "check"]);
        let said = tokio::time::timeout(Duration::from_secs(1), said).await;
        assert!(said.is_err(), "it says something and does not end");
    }

    #[tokio::test]
    #[should_panic(expected = "ended by itself: exit status: 3\nno such key")]
    async fn what_a_server_says_is_shown_when_it_ends_by_itself() {
        impostor("echo no such key >&2; exit 3").start().await;
    }

    #[tokio::test]
    #[should_panic(expected = "does not listen within 50ms\nhello")]
    async fn a_server_that_does_not_listen_is_found_out() {
        let mut server = impostor("echo hello; exec sleep 60");
        server.launch(&[]);
        server.until_it_listens(Duration::from_millis(50)).await;
    }

    #[tokio::test]
    async fn a_panic_in_the_log_is_seen() {
        let mut server =
            impostor("echo listening on http://127.0.0.1:81 x; echo \"thread 'x' panicked at y\"; exec sleep 60");
        server.start().await;
        until_within("it panics", PATIENCE, async || server.has_panicked().then_some(())).await;
    }
}
