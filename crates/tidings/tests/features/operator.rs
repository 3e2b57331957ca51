//! An operator at a terminal: the program's own commands, run against the server.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::server::BACKEND_KEY;
use crate::wait::PATIENCE;

/// Runs `tidings jobs WORDS` to its end; the JSON that it prints, an object per line.
pub(crate) async fn jobs(addr: SocketAddr, words: &[&str]) -> Vec<Value> {
    let mut command = command(addr, words);
    command.arg("--json");
    let printed = ended(words, move || {
        let output = command.output()?;
        Ok((output.status, [output.stdout, output.stderr].concat()))
    });
    printed.await.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// The same without JSON and at a terminal: all that was shown there, with what moves the cursor.
pub(crate) async fn jobs_on_screen(addr: SocketAddr, words: &[&str]) -> String {
    let mut command = command(addr, words);
    ended(words, move || {
        let (mut screen, terminal) = pty()?;
        command.env("TERM", "xterm").stdout(terminal.try_clone()?).stderr(terminal);
        let mut child = command.spawn()?;
        drop(command); // It holds the terminal, which ends with the last who has it.
        let mut shown = Vec::new();
        match screen.read_to_end(&mut shown) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {} // That is its end.
            result => drop(result?),
        }
        Ok((child.wait()?, shown))
    })
    .await
}

fn command(addr: SocketAddr, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.arg("jobs").args(words).args(["--url", &format!("http://{addr}")]);
    command.env_clear().env("TIDINGS_API_KEY", BACKEND_KEY).stdin(Stdio::null());
    command
}

/// What it wrote. It ends with the server at the latest, and so with the scenario.
async fn ended(words: &[&str], run: impl FnOnce() -> io::Result<(ExitStatus, Vec<u8>)> + Send + 'static) -> String {
    let ended = timeout(PATIENCE, spawn_blocking(run)).await;
    let output = ended.unwrap_or_else(|_| panic!("jobs {words:?} does not come to its end"));
    let (status, written) = output.expect("the thread runs").expect("the program starts");
    let written = String::from_utf8(written).expect("text");
    assert!(status.success(), "jobs {words:?}: {status}, {written}");
    written
}

/// The side of a terminal that shows, and the one that programs write to.
fn pty() -> io::Result<(File, File)> {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&screen)?;
    unlockpt(&screen)?;
    let name = ptsname(&screen, Vec::new())?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed());
    Ok((screen.into(), options.open(name.to_str().map_err(io::Error::other)?)?))
}
