//! A foreign program of a benchmark: told what to do in lines of JSON, answering each with one.
//!
//! It runs on the core of whoever starts it, and ends when its input does. Its standard error is ours.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_server::command_error::{CommandError, failed, failed_by};

/// A running one; dropped, it is killed.
pub(super) struct Link {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Link {
    /// Starts it and waits for its greeting. Blocks.
    pub(super) fn start<T: DeserializeOwned>(
        name: &'static str,
        mut command: Command,
    ) -> Result<(Self, T), CommandError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed_by(&format!("cannot start {name}"), &error))?;
        let stdin = child.stdin.take().expect("standard input is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut link = Self { name, child, stdin, stdout };
        let greeting = link.read()?;
        Ok((link, greeting))
    }

    /// Tells it something and waits for its answer. Blocks.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, command: &impl Serialize) -> Result<T, CommandError> {
        let mut text = serde_json::to_vec(command).expect("commands are plain");
        text.push(b'\n');
        self.stdin.write_all(&text).map_err(|error| self.gone(&error))?;
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

impl Drop for Link {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to do about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_line_is_answered_and_an_end_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo '{\"hello\": 1}'; read line; echo \"$line\"; read line"]);
        let (mut link, greeting) = Link::start::<Value>("sh", command).unwrap();
        assert_eq!(greeting, json!({"hello": 1}));
        assert_eq!(link.ask::<Value>(&json!({"do": "so"})).unwrap(), json!({"do": "so"}));
        let error = link.ask::<Value>(&json!({})).unwrap_err();
        assert_eq!(error.to_string(), "sh ended by itself");
    }
}
