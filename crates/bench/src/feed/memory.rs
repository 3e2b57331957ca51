//! How much a process grows while a document passes: each document in a new process, read from its file.

use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidings_feed::{Mapping, Outcome};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_telemetry::process::memory_bytes;

use super::reading::{PIECE_BYTES, mapping, read};
use crate::args::PeerRole;
use crate::peer::{Peer, answer, follow};

/// Read the document of this file.
#[derive(Debug, Serialize, Deserialize)]
struct Command {
    path: PathBuf,
}

/// What became of the document.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    pub(super) events: u64,
    /// Why it was refused, with the place.
    pub(super) refused: Option<String>,
    /// The most memory beyond that before.
    pub(super) grown_bytes: u64,
}

/// In the other process.
pub(crate) fn serve() -> Result<(), CommandError> {
    answer(())?;
    let mapping = mapping("")?;
    follow(|Command { path }| answer(pass(&path, &mapping)?))
}

/// Lets a document pass in a new process on this core.
pub(super) fn grown(path: &Path, core: usize) -> Result<Passed, CommandError> {
    let (mut peer, ()) = Peer::start(PeerRole::Feed, &[core])?;
    peer.ask(Command { path: path.to_owned() })
}

/// Only growth beyond the largest size so far is seen.
pub(super) fn pass(path: &Path, mapping: &Mapping) -> Result<Passed, CommandError> {
    let resident =
        |field| memory_bytes("self", field).ok_or_else(|| failed(format!("no {field} in /proc/self/status")));
    let file = File::open(path).map_err(|error| failed_by("cannot open the document", &error))?;
    let (before, mut events) = (resident("VmRSS")?, 0);
    let outcome = read(BufReader::with_capacity(PIECE_BYTES, file), mapping, |entry| {
        events += u64::from(matches!(entry.outcome, Outcome::Event(_)));
        ControlFlow::Continue(())
    });
    let refused = outcome.err().map(|error| error.to_string());
    Ok(Passed { events, refused, grown_bytes: resident("VmHWM")?.saturating_sub(before) })
}
