//! The other process of a benchmark, which does what it is told line by line: this program again, or a foreign one.
//!
//! A command is one line of JSON on its standard input, an answer one on its standard output; a command has at most
//! one answer. It runs on the core of the thread that starts it, and ends when its input does, so it never outlives us.
//! Its standard error is ours.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_server::output::line;

use crate::args::PeerRole;

/// A running one; dropped, it is killed.
pub(super) struct Peer {
    name: String,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// This program again, in a role and on a core.
pub(super) fn command(role: PeerRole, cpu: usize) -> io::Result<Command> {
    let name = role.to_possible_value().expect("every role can be asked for");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "peer", name.get_name(), "--cpu", &cpu.to_string()]);
    Ok(command)
}

impl Peer {
    /// Starts this program again and waits for its greeting. Blocks.
    pub(super) fn start<T: DeserializeOwned>(role: PeerRole, cpu: usize) -> Result<(Self, T), CommandError> {
        Self::run(&format!("the other process ({role:?})"), command(role, cpu)?)
    }

    /// Starts a program and waits for its greeting. Blocks.
    pub(super) fn run<T: DeserializeOwned>(name: &str, mut command: Command) -> Result<(Self, T), CommandError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed_by(&format!("cannot start {name}"), &error))?;
        let stdin = child.stdin.take().expect("standard input is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut peer = Self { name: name.to_owned(), child, stdin, stdout };
        let greeting = peer.read()?;
        Ok((peer, greeting))
    }

    /// Writes commands that have no answer, at once.
    pub(super) fn tell(&mut self, commands: &[impl Serialize]) -> Result<(), CommandError> {
        let mut text = Vec::new();
        for command in commands {
            serde_json::to_writer(&mut text, command).expect("commands are plain");
            text.push(b'\n');
        }
        self.stdin.write_all(&text).map_err(|error| self.gone(&error))
    }

    /// Writes a command and waits for its answer. Blocks.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, command: impl Serialize) -> Result<T, CommandError> {
        self.tell(&[command])?;
        self.read()
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, CommandError> {
        let mut answer = String::new();
        match self.stdout.read_line(&mut answer) {
            Ok(0) => Err(failed(format!("{} ended by itself", self.name))),
            Ok(_) => serde_json::from_str(&answer).map_err(|error| self.gone(&error)),
            Err(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&self, error: &dyn std::error::Error) -> CommandError {
        failed_by(&format!("{} does not answer", self.name), error)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to do about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's side: does each command until there is none any more. Blocks.
pub(super) fn follow<T: DeserializeOwned>(
    mut perform: impl FnMut(T) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut text = String::new();
    let mut stdin = io::stdin().lock();
    while stdin.read_line(&mut text)? > 0 {
        perform(serde_json::from_str(&text).map_err(|error| failed_by("no command of a benchmark", &error))?)?;
        text.clear();
    }
    Ok(())
}

/// The peer's side: a greeting or an answer.
pub(super) fn answer(value: impl Serialize) -> Result<(), CommandError> {
    Ok(line(serde_json::to_string(&value).expect("answers are plain"))?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_line_is_answered_and_an_end_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo '{\"hello\": 1}'; read line; echo \"$line\"; read line"]);
        let (mut peer, greeting) = Peer::run::<Value>("sh", command).unwrap();
        assert_eq!(greeting, json!({"hello": 1}));
        assert_eq!(peer.ask::<Value>(&json!({"do": "so"})).unwrap(), json!({"do": "so"}));
        let error = peer.ask::<Value>(&json!({})).unwrap_err();
        assert_eq!(error.to_string(), "sh ended by itself");
    }
}
