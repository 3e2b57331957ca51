//! Time and memory for a large audience, in a server of its own: `tidings serve` in another process.
//!
//! The server pushes to 100 000 devices and then to the large audience. The same devices are registered in both cases, so
//! the difference is the memory per device of a job, which should be nothing. Peak memory is that of the whole process,
//! as the kernel counts it (`VmHWM`), and is reset before every event. A first event to all devices fills the store's
//! caches.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::thread;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_telemetry::process::memory_bytes;
use tidings_types::EventPriority;

use super::case::NEAR;
use super::job::{Door, ToldTimes};
use super::provider::{Provider, check_ledger};
use super::setup::Folder;
use crate::args::BenchPushServer;
use crate::process::{Cores, KillOnDrop};
use crate::report::{Goal, Report, column, progress};
use crate::statistic::format_number;

/// The audience that the large one is compared with.
pub(super) const SMALL: u32 = 100_000;
/// The audience that the goals are stated for. They are in seconds.
const GOAL_AUDIENCE: u32 = 1_300_000;
const GOAL_HALF: f64 = 4.5;
const GOAL_ALL: f64 = 9.0;
/// If a larger audience needs more additional memory than this, memory grows with the audience.
const GOAL_MORE_MIB: f64 = 32.0;
const LISTENING: &str = "listening on ";

/// A running `tidings serve`.
struct Served {
    child: KillOnDrop,
    door: Door,
}

impl Served {
    fn start(folder: &Folder, config: &str) -> Result<Self, CommandError> {
        let file = folder.path("tidings.toml");
        fs::write(&file, config)?;
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = KillOnDrop(child.map_err(|error| failed_by("cannot start a server", &error))?);
        let stderr = child.0.stderr.take().expect("standard error is a pipe");
        let url = address(stderr)?;
        let key = fs::read_to_string(folder.path("data").join("api-key"))
            .map_err(|error| failed_by("the server made no API key", &error))?;
        let door = Door::at(&url, key.trim().to_owned())?;
        Ok(Self { child, door })
    }

    /// Resets the peak of the memory.
    fn forget_peak(&self) -> Result<(), CommandError> {
        let path = format!("/proc/{}/clear_refs", self.child.0.id());
        fs::write(path, "5").map_err(|error| failed_by("cannot reset the memory's peak", &error))
    }

    /// `VmRSS` or `VmHWM`, in MiB.
    fn memory_mib(&self, field: &str) -> Result<f64, CommandError> {
        let bytes =
            memory_bytes(self.child.0.id(), field).ok_or_else(|| failed(format!("no {field} of the server")))?;
        Ok(bytes as f64 / f64::from(1 << 20))
    }
}

/// Reads the server's address from its log. Later lines go to our standard error.
fn address(stderr: ChildStderr) -> Result<String, CommandError> {
    let mut lines = BufReader::new(stderr);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        if let Some((_, rest)) = line.split_once(LISTENING) {
            let url = rest.split_whitespace().next().unwrap_or_default().to_owned();
            // The thread ends with the server.
            thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
            return Ok(url);
        }
        tidings_server::log::line(&line);
        line.clear();
    }
    Err(failed("the server ended before it listened"))
}

/// The results for one audience.
#[derive(Default)]
struct Column {
    times: Vec<ToldTimes>,
    peak_mib: Vec<f64>,
}

/// Measures an audience of `large` devices and a small one in turns.
pub(super) async fn run(
    large: u32,
    runs: u32,
    cores: &Cores,
    folder: &Folder,
    peers: &Path,
    report: &mut Report,
) -> Result<(), CommandError> {
    let mut provider = Provider::start(BenchPushServer::Simulator, NEAR, cores, &folder.path(""), peers)?;
    folder.trust(&provider.greeting)?;
    let served = Served::start(folder, &folder.config_text(&provider.greeting, NEAR))?;
    let at_rest = served.memory_mib("VmRSS")?;
    let mut columns = [(SMALL, Column::default()), (large, Column::default())];
    tell(&served, &mut provider, "audience-warm-up", large, report).await?;
    for run in 1..=runs {
        for (audience, column) in &mut columns {
            progress(format!("audience of {audience}, run {run} of {runs}"));
            served.forget_peak()?;
            let id = format!("audience-{audience}-{run}");
            column.times.push(tell(&served, &mut provider, &id, *audience, report).await?);
            column.peak_mib.push(served.memory_mib("VmHWM")?);
        }
    }
    let [(_, small), (_, big)] = columns;
    let (half, all) =
        (column(&big.times, |it| it.p50_ms as f64 / 1e3), column(&big.times, |it| it.p100_ms as f64 / 1e3));
    let name = format!("{NEAR}: {} devices", format_number(large.into()));
    let goal = |seconds| (large == GOAL_AUDIENCE).then_some(Goal::AtMost(seconds));
    report.judge(format!("{name}: 50 % answered"), "s", half, goal(GOAL_HALF));
    report.judge(format!("{name}: 100 %"), "s", all, goal(GOAL_ALL));
    report.measure("server's memory: after its start", "MiB", vec![at_rest]);
    report.measure(format!("– peak, {} devices", format_number(SMALL.into())), "MiB", small.peak_mib.clone());
    report.measure(format!("– peak, {} devices", format_number(large.into())), "MiB", big.peak_mib.clone());
    let more = big.peak_mib.iter().zip(&small.peak_mib).map(|(big, small)| big - small).collect();
    report.judge("– more for the larger audience", "MiB", more, Goal::AtMost(GOAL_MORE_MIB));
    Ok(())
}

/// Posts an event to an audience and checks its result.
async fn tell(
    served: &Served,
    provider: &mut Provider,
    id: &str,
    audience: u32,
    report: &mut Report,
) -> Result<ToldTimes, CommandError> {
    let before = provider.mark()?.ledger;
    let position = served.door.post(id, audience, EventPriority::Normal).await?;
    let times = served.door.finished(position, audience).await?;
    if let (Some(before), Some(after)) = (before, provider.mark()?.ledger) {
        let digest = check_ledger(&before, &after, audience.into(), true)?;
        report.answered(&format!("audience of {audience}"), digest)?;
    }
    Ok(times)
}
