//! Python's readers of XML: expat and lxml, in a process of their own (`peer.py`).

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tidings_server::command_error::{CommandError, failed};

use super::document::Document;
use crate::peer::Peer;

const SCRIPT: &str = include_str!("peer.py");

/// What is installed.
#[derive(Debug, Deserialize)]
pub(super) struct Libraries {
    pub(super) python: String,
    pub(super) expat: String,
    pub(super) lxml: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    count: u64,
    first: Option<String>,
    last: Option<String>,
}

/// A running Python, which has read the document's file into memory.
pub(super) struct Python<'a> {
    peer: Peer,
    pub(super) libraries: Libraries,
    document: &'a Document,
}

impl<'a> Python<'a> {
    /// `None` if Python is not installed. `path`: where the document is.
    pub(super) fn find(document: &'a Document, path: &Path) -> Result<Option<Self>, CommandError> {
        let mut probe = Command::new("python3");
        probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).arg(path);
        let (peer, libraries) = Peer::run("Python", command)?;
        Ok(Some(Self { peer, libraries, document }))
    }

    pub(super) fn has_lxml(&self) -> bool {
        self.libraries.lxml.is_some()
    }

    /// Documents per second: all elements with expat.
    pub(super) fn expat(&mut self) -> Result<f64, CommandError> {
        let answer = self.ask("expat", self.document.elements())?;
        Ok(1.0 / answer.seconds)
    }

    /// Documents per second: a tree of each entry with lxml.
    pub(super) fn lxml(&mut self) -> Result<f64, CommandError> {
        let answer = self.ask("lxml", self.document.entries as u64)?;
        Ok(1.0 / answer.seconds)
    }

    /// Documents per second: our event of each entry, with lxml.
    pub(super) fn events(&mut self) -> Result<f64, CommandError> {
        let answer = self.ask("events", self.document.entries as u64)?;
        let is_event = |text: Option<String>, number| {
            let event = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
            event.is_some_and(|event| event == Document::event(number))
        };
        let (first, last) = (is_event(answer.first, 0), is_event(answer.last, self.document.entries - 1));
        if first && last {
            Ok(1.0 / answer.seconds)
        } else {
            Err(failed("Python has made other events of the entries"))
        }
    }

    fn ask(&mut self, what: &str, expected: u64) -> Result<Answer, CommandError> {
        let answer: Answer = self.peer.ask(json!({ "do": what }))?;
        match answer.count {
            count if count == expected => Ok(answer),
            count => Err(failed(format!("Python ({what}) has found {count}, not {expected}"))),
        }
    }
}
