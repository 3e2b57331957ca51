//! A child process with a folder, through all its lives.
//!
//! What it says in all of them goes to one file of the folder, `log`. It has no environment but what it is given: settings of
//! the user are not meant for it. It is killed when this is dropped.
//!
//! This is the part that the demo uses, too, so nothing here panics.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// A process, running or not.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    folder: PathBuf,
    environment: Vec<(String, String)>,
    open_files_max: Option<u32>,
    has_own_group: bool,
    child: Option<Child>,
    /// Where in the log this life begins.
    log_from: usize,
}

impl Process {
    /// One that was never started. `name` is for messages.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            folder: folder.into(),
            environment: Vec::new(),
            open_files_max: None,
            has_own_group: false,
            child: None,
            log_from: 0,
        }
    }

    /// Makes the folder and writes a file into it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, file: &str, text: impl AsRef<[u8]>) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join(file), text)
    }

    /// What it is started with, from its next life on.
    pub fn set_arguments(&mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) {
        self.arguments = arguments.into_iter().map(Into::into).collect();
    }

    /// A variable of its environment.
    pub fn set_variable(&mut self, name: &str, value: impl Into<String>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// How many files it may open, sockets among them.
    pub fn limit_open_files(&mut self, max: u32) {
        self.open_files_max = Some(max);
    }

    /// Ctrl-C on the terminal does not reach it.
    pub fn keep_from_terminal(&mut self) {
        self.has_own_group = true;
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it runs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins another life. One that runs is killed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(&mut self) -> io::Result<()> {
        self.kill();
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        self.log_from = log.metadata()?.len() as usize;
        self.child = Some(self.command(log)?.spawn()?);
        Ok(())
    }

    fn command(&self, log: File) -> io::Result<Command> {
        let mut command = match self.open_files_max {
            None => Command::new(&self.program),
            Some(max) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("ulimit -n {max} && exec \"$0\" \"$@\"")]).arg(&self.program);
                shell
            }
        };
        command.args(&self.arguments).current_dir(&self.folder).env_clear().envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if self.has_own_group {
            command.process_group(0);
        }
        Ok(command)
    }

    /// The same program in the same folder with the same environment, as a command that somebody gives beside it.
    pub fn aside(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.folder).env_clear().envs(self.environment.iter().cloned());
        command.stdin(Stdio::null());
        command
    }

    /// SIGKILL, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait()); // It may have ended by itself.
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let child = self.child.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Whether it was started, and not killed or seen to end.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// How it ended by itself; it counts as not started then.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status)
    }

    /// The number of the process, while it is started.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// All it has said in all its lives.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.log_bytes()).into_owned()
    }

    /// What it has said in this life.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(self.log_bytes().get(self.log_from..).unwrap_or_default()).into_owned()
    }

    /// The last lines that it has said.
    pub fn log_end(&self, line_count: usize) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(line_count)..].join("\n")
    }

    fn log_bytes(&self) -> Vec<u8> {
        fs::read(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(folder: &Path, script: &str) -> Process {
        let mut shell = Process::new("a shell", "/bin/sh", folder);
        shell.set_arguments(["-c", script]);
        shell
    }

    fn wait(process: &mut Process) -> ExitStatus {
        loop {
            if let Some(status) = process.ended() {
                return status;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_log_has_all_lives_and_tells_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(folder.path(), "echo \"said $WORD\"; exit 3");
        process.set_variable("WORD", "once");
        for _ in 0..2 {
            process.start().unwrap();
            assert_eq!(wait(&mut process).code(), Some(3));
            assert!(!process.is_started());
        }
        assert_eq!((process.said(), process.log()), ("said once\n".to_owned(), "said once\n".repeat(2)));
        assert_eq!(process.log_end(1), "said once");
    }

    #[test]
    fn it_has_no_other_environment_and_its_own_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(folder.path(), "echo \"${HOME-none} $(ulimit -n)\"");
        process.limit_open_files(123);
        process.start().unwrap();
        assert!(wait(&mut process).success());
        assert_eq!(process.said(), "none 123\n");
    }

    #[test]
    fn it_is_killed_also_when_it_stands_still() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(folder.path(), "exec sleep 60");
        process.start().unwrap();
        let id = process.id().unwrap();
        process.signal(Signal::STOP).unwrap();
        assert!(process.ended().is_none() && process.is_started());
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "it is gone");
    }
}
