//! The other process of a benchmark: this program again, or a foreign one.
//!
//! A command is one line of JSON on its standard input. An answer is one line of JSON on its standard output. A command
//! has at most one answer. The process ends when its input ends, so it never outlives this one. It shares our standard
//! error.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_server::output::line;

use crate::args::PeerRole;
use crate::process::KillOnDrop;

/// A running process.
pub(super) struct Peer {
    name: String,
    child: KillOnDrop,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this program again, in a role and on these cores, and waits for its greeting. Blocks.
    pub(super) fn start<T: DeserializeOwned>(role: PeerRole, cores: &[usize]) -> Result<(Self, T), CommandError> {
        let name = role.to_possible_value().expect("no role is skipped");
        let cores = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "peer", name.get_name(), "--cpu", &cores]);
        Self::run(&format!("the other process ({role:?})"), command)
    }

    /// Starts a program and waits for its greeting. Blocks.
    pub(super) fn run<T: DeserializeOwned>(name: &str, mut command: Command) -> Result<(Self, T), CommandError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed_by(&format!("cannot start {name}"), &error))?;
        let stdin = child.stdin.take().expect("standard input is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut peer = Self { name: name.to_owned(), child: KillOnDrop(child), stdin, stdout };
        let greeting = peer.read()?;
        Ok((peer, greeting))
    }

    /// The number of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Writes commands that have no answer, in one write.
    pub(super) fn tell(&mut self, commands: &[impl Serialize]) -> Result<(), CommandError> {
        let mut text = Vec::new();
        for command in commands {
            serde_json::to_writer(&mut text, command).expect("a command is plain data");
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
            Ok(0) => Err(failed(format!("{} ended too early", self.name))),
            Ok(_) => serde_json::from_str(&answer).map_err(|error| self.gone(&error)),
            Err(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&self, error: &dyn std::error::Error) -> CommandError {
        failed_by(&format!("{} does not answer", self.name), error)
    }
}

/// In the other process: performs each command until the input ends. Blocks.
pub(super) fn follow<T: DeserializeOwned>(
    mut perform: impl FnMut(T) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut text = String::new();
    let mut stdin = io::stdin().lock();
    while stdin.read_line(&mut text)? > 0 {
        perform(serde_json::from_str(&text).map_err(|error| failed_by("this is no command of a benchmark", &error))?)?;
        text.clear();
    }
    Ok(())
}

/// In the other process: writes the greeting or an answer.
pub(super) fn answer(value: impl Serialize) -> Result<(), CommandError> {
    Ok(line(serde_json::to_string(&value).expect("an answer is plain data"))?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_line_is_answered_and_an_early_end_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo '{\"hello\": 1}'; read line; echo \"$line\"; read line"]);
        let (mut peer, greeting) = Peer::run::<Value>("sh", command).unwrap();
        assert_eq!(greeting, json!({"hello": 1}));
        assert_eq!(peer.ask::<Value>(&json!({"do": "so"})).unwrap(), json!({"do": "so"}));
        let error = peer.ask::<Value>(&json!({})).unwrap_err();
        assert_eq!(error.to_string(), "sh ended too early");
    }
}
