//! A large audience in a server of its own, `tidings serve` as it is: how long it takes, and what memory.
//!
//! The same server tells 100 000 devices and then the large audience, with as many devices registered: what the second
//! takes more is what memory costs per device of a job, which should be nothing. Peak memory is the kernel's (`VmHWM`,
//! set back before every event), of the whole process; what the store keeps in its caches is warm by a first event to
//! all.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_types::EventPriority;

use super::case::NEAR;
use super::cores::Sides;
use super::job::{Door, ToldTimes};
use super::provider::{Provider, check_ledger};
use super::setup::Folder;
use crate::args::BenchPushServer;
use crate::process::read_field;
use crate::report::{Goal, Report, judge_if, progress};
use crate::statistic::format_number;

/// What the large one is compared with.
pub(super) const SMALL: u32 = 100_000;
/// The audience that the goals are stated for, in seconds.
const GOAL_AUDIENCE: u32 = 1_300_000;
const GOAL_HALF: f64 = 4.5;
const GOAL_ALL: f64 = 9.0;
/// More memory than this for a larger audience would be memory that grows with it.
const GOAL_MORE_MIB: f64 = 32.0;
const LISTENING: &str = "listening on ";

/// `tidings serve` in a process of its own; dropped, it is killed.
struct Served {
    child: Child,
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
        let mut child = child.map_err(|error| failed_by("cannot start a server", &error))?;
        let stderr = child.stderr.take().expect("standard error is a pipe");
        // From here on it is stopped whatever happens.
        let mut served = Self { child, door: Door::at("http://127.0.0.1:1", String::new())? };
        let url = address(stderr)?;
        let key = fs::read_to_string(folder.path("data").join("api-key"))
            .map_err(|error| failed_by("the server made no API key", &error))?;
        served.door = Door::at(&url, key.trim().to_owned())?;
        Ok(served)
    }

    /// Sets the peak back, so that the next one is of what comes now.
    fn forget_peak(&self) -> Result<(), CommandError> {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        fs::write(path, "5").map_err(|error| failed_by("cannot set the memory's peak back", &error))
    }

    /// `VmRSS` or `VmHWM`, in MiB.
    fn memory_mib(&self, field: &str) -> Result<f64, CommandError> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kilobytes = read_field(&status, field).ok_or_else(|| failed(format!("no {field} of the server")))?;
        Ok(kilobytes as f64 / 1024.0)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to do about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where it says that it listens; what it says then is passed on.
fn address(stderr: ChildStderr) -> Result<String, CommandError> {
    let mut lines = BufReader::new(stderr);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        if let Some((_, rest)) = line.split_once(LISTENING) {
            let url = rest.split_whitespace().next().unwrap_or_default().to_owned();
            // It ends with the server.
            thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
            return Ok(url);
        }
        tidings_server::log::line(&line);
        line.clear();
    }
    Err(failed("the server ended before it listened"))
}

/// What one size of audience gave.
#[derive(Default)]
struct Column {
    times: Vec<ToldTimes>,
    peak_mib: Vec<f64>,
}

/// Measures an audience of `large` devices beside a small one.
pub(super) async fn run(
    large: u32,
    runs: u32,
    sides: &Sides,
    folder: &Folder,
    peers: &Path,
    report: &mut Report,
) -> Result<(), CommandError> {
    let mut provider = Provider::start(BenchPushServer::Simulator, NEAR, sides, &folder.path(""), peers)?;
    folder.trust(&provider.greeting)?;
    let served = Served::start(folder, &folder.config_text(&provider.greeting, NEAR))?;
    let at_rest = served.memory_mib("VmRSS")?;
    let mut columns = [(SMALL, Column::default()), (large, Column::default())];
    tell(&served, &mut provider, "audience-warm-up", large).await?;
    for run in 1..=runs {
        for (audience, column) in &mut columns {
            progress(format!("audience of {audience}, run {run} of {runs}"));
            served.forget_peak()?;
            column.times.push(tell(&served, &mut provider, &format!("audience-{audience}-{run}"), *audience).await?);
            column.peak_mib.push(served.memory_mib("VmHWM")?);
        }
    }
    let [(_, small), (_, big)] = columns;
    let name = format!("{NEAR}: {} devices", format_number(large.into()));
    let seconds = |field: fn(&ToldTimes) -> u64| big.times.iter().map(|it| field(it) as f64 / 1e3).collect::<Vec<_>>();
    let (half, all) = (seconds(|times| times.p50_ms), seconds(|times| times.p100_ms));
    let judged = large == GOAL_AUDIENCE;
    judge_if(report, judged, format!("{name}: 50 % answered"), "s", half, Goal::AtMost(GOAL_HALF));
    judge_if(report, judged, format!("{name}: 100 %"), "s", all, Goal::AtMost(GOAL_ALL));
    report.measure("server's memory: after its start", "MiB", vec![at_rest]);
    report.measure(format!("– peak, {} devices", format_number(SMALL.into())), "MiB", small.peak_mib.clone());
    report.measure(format!("– peak, {} devices", format_number(large.into())), "MiB", big.peak_mib.clone());
    let more = big.peak_mib.iter().zip(&small.peak_mib).map(|(big, small)| big - small).collect();
    report.judge("– more for the larger audience", "MiB", more, Goal::AtMost(GOAL_MORE_MIB));
    Ok(())
}

/// Tells an audience and checks what came of it.
async fn tell(served: &Served, provider: &mut Provider, id: &str, audience: u32) -> Result<ToldTimes, CommandError> {
    let before = provider.mark()?.ledger;
    let position = served.door.post(id, audience, EventPriority::Normal).await?;
    let job = served.door.finished(position, audience).await?;
    if let (Some(before), Some(after)) = (before, provider.mark()?.ledger) {
        check_ledger(&before, &after, audience.into(), true)?;
    }
    job.time_to.ok_or_else(|| failed("the job's report has no times"))
}
