//! The other process of a benchmark: this program again, which does what it is told line by line.
//!
//! A command is one line of JSON on its standard input, an answer one on its standard output; a command has at most
//! one answer. It ends when its input does, so it never outlives us.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_server::command_error::{CommandError, failed, failed_by};

use crate::args::PeerRole;
use tidings_server::output::line;

/// A running one; dropped, it is killed.
pub(super) struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    role: PeerRole,
}

impl Peer {
    /// Starts one on a core and waits for its greeting.
    pub(super) fn start<T: DeserializeOwned>(role: PeerRole, cpu: usize) -> Result<(Self, T), CommandError> {
        let name = role.to_possible_value().expect("every role can be asked for");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "peer", name.get_name(), "--cpu", &cpu.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed_by("cannot start the other process", &error))?;
        let stdin = child.stdin.take().expect("standard input is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut peer = Self { child, stdin, stdout, role };
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

    /// Writes a command and waits for its answer.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, command: impl Serialize) -> Result<T, CommandError> {
        self.tell(&[command])?;
        self.read()
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, CommandError> {
        let mut answer = String::new();
        match self.stdout.read_line(&mut answer) {
            Ok(0) => Err(failed(format!("the other process ({:?}) ended by itself", self.role))),
            Ok(_) => serde_json::from_str(&answer).map_err(|error| self.gone(&error)),
            Err(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&self, error: &dyn std::error::Error) -> CommandError {
        failed_by(&format!("the other process ({:?}) does not answer", self.role), error)
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
