//! The machine: what it is, and how busy it is with other work.
//!
//! The load average of the kernel does not say whether the machine is quiet now: for minutes it has what a build just
//! before added. So the machine is watched for a few seconds instead: how much of its cores did something. Waiting for
//! disks counts, because somebody then uses the disk; so does what the host gives to other guests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// How long the machine is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// How often, until it is quiet: two minutes.
const WATCH_COUNT_MAX: u32 = 40;
/// A quiet machine uses this share of its cores at most.
const BUSY_SHARE_MAX: f64 = 0.05;
/// Processes that a refusal names.
const NAMED_COUNT_MAX: usize = 5;
/// Ticks of the kernel in a second, in all of its files that people read.
const TICKS_PER_SECOND: f64 = 100.0;

/// The machine of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) kernel: String,
    pub(super) load: Load,
}

/// What other work there was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Load {
    /// Before and after the benchmark.
    Watched { before: Glance, after: Glance },
    /// Of an old record: the load average before it.
    Average(String),
}

/// How busy the machine was at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Glance {
    /// Cores that did something, on average over three seconds.
    pub(super) busy_cores: f64,
    /// The load average of the last minute, in which the build or the benchmark may be.
    pub(super) load: String,
}

impl Machine {
    /// This machine, whose load was watched before and after.
    pub(super) fn here(load: Load) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
        let processors = read("/proc/cpuinfo")?;
        let processor = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let processor = processor.map_or("unknown", |(_, name)| name).to_owned();
        let memory = read("/proc/meminfo")?;
        let kilobytes: u64 = memory.split_whitespace().nth(1).and_then(|count| count.parse().ok()).context("memory")?;
        let output = Command::new("uname").arg("-sr").output().context("uname")?;
        ensure!(output.status.success(), "uname: {}", output.status);
        let kernel = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { processor, cores: core_count(), memory_gib: kilobytes >> 20, kernel, load })
    }

    /// In brief, for the line above a table.
    pub(super) fn told(&self) -> String {
        let Self { processor, cores, memory_gib, kernel, load } = self;
        let load = match load {
            Load::Average(average) => format!("load before {average}"),
            Load::Watched { before, after } => {
                let [before_busy, after_busy] = [before, after].map(|glance| glance.told(*cores));
                format!(
                    "busy cores before {before_busy}, after {after_busy}; load before {}, after {}",
                    before.load, after.load
                )
            }
        };
        format!("{processor}, {cores} cores, {memory_gib} GiB, {kernel}; {load}")
    }
}

impl Glance {
    /// The busy cores; marked if they are more than a record may begin with.
    fn told(&self, cores: usize) -> String {
        let busy = format!("{:.2}", self.busy_cores);
        if self.busy_cores > busy_cores_max(cores) { format!("**{busy}**") } else { busy }
    }
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn busy_cores_max(cores: usize) -> f64 {
    BUSY_SHARE_MAX * cores as f64
}

/// What the machine did while it was watched.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    cores: usize,
    busy_cores: f64,
    /// Who used how many cores, most first.
    by: Vec<(String, f64)>,
    load: String,
}

impl Watched {
    /// Watches the machine for three seconds.
    pub(super) fn now() -> Result<Self> {
        let proc = Path::new("/proc");
        let before = Times::read(proc)?;
        wait();
        Ok(Times::read(proc)?.since(&before, core_count(), load(proc)?))
    }

    pub(super) fn glance(&self) -> Glance {
        Glance { busy_cores: (self.busy_cores * 100.0).round() / 100.0, load: self.load.clone() }
    }

    fn is_quiet(&self) -> bool {
        self.busy_cores <= busy_cores_max(self.cores)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time over which the machine is watched; there is nothing to wait for"
)]
fn wait() {
    std::thread::sleep(WATCHED);
}

/// Waits until nobody else works. `watch` takes three seconds.
///
/// # Errors
/// If the machine stays too busy for two minutes. The error says who works.
pub(super) fn quiet(mut watch: impl FnMut() -> Result<Watched>) -> Result<Watched> {
    let mut watched = watch()?;
    if !watched.is_quiet() {
        println!("    waiting for a quiet machine: {}", told(&watched));
    }
    for _ in 1..WATCH_COUNT_MAX {
        if !watched.is_quiet() {
            watched = watch()?;
        }
    }
    ensure!(
        watched.is_quiet(),
        "the machine has been too busy for {} s: {}; end that work, or use --anyway, which keeps nothing",
        (WATCHED * WATCH_COUNT_MAX).as_secs(),
        told(&watched)
    );
    Ok(watched)
}

fn told(watched: &Watched) -> String {
    let Watched { cores, busy_cores, by, .. } = watched;
    let by: Vec<_> = by.iter().take(NAMED_COUNT_MAX).map(|(name, cores)| format!("{name} {cores:.2}")).collect();
    let by = if by.is_empty() { "processes that have ended".to_owned() } else { by.join(", ") };
    let most = busy_cores_max(*cores);
    format!("{busy_cores:.2} of {cores} cores work, at most {most:.2} may ({by})")
}

/// The load average of the last minute.
fn load(proc: &Path) -> Result<String> {
    let text = fs::read_to_string(proc.join("loadavg")).context("loadavg")?;
    Ok(text.split_whitespace().next().context("loadavg")?.to_owned())
}

/// What cores and processes have done so far, in ticks.
#[derive(Debug, Default)]
struct Times {
    all: u64,
    idle: u64,
    waiting: u64,
    stolen: u64,
    /// By the process's number: its name, and its time.
    processes: BTreeMap<u32, (String, u64)>,
}

impl Times {
    fn read(proc: &Path) -> Result<Self> {
        let stat = fs::read_to_string(proc.join("stat")).context("/proc/stat")?;
        let mut times = Self::of_cores(&stat).context("/proc/stat has no line `cpu`")?;
        for entry in fs::read_dir(proc)? {
            let Ok(entry) = entry else { continue };
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may have ended since.
            let stat = fs::read_to_string(entry.path().join("stat")).ok();
            times.processes.extend(stat.and_then(|stat| process(&stat)).map(|process| (id, process)));
        }
        Ok(times)
    }

    /// Of the first line: user, nice, system, idle, iowait, irq, softirq, steal (proc(5)). Guests are in user and nice.
    fn of_cores(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let [_, _, _, idle, waiting, _, _, stolen] = ticks[..] else { return None };
        Some(Self { all: ticks.iter().sum(), idle, waiting, stolen, processes: BTreeMap::new() })
    }

    fn since(&self, before: &Self, cores: usize, load: String) -> Watched {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let of_cores = |now: u64, before: u64| now.saturating_sub(before) as f64 / all * cores as f64;
        let mut by: BTreeMap<&str, f64> = BTreeMap::new();
        for (id, (name, ticks)) in &self.processes {
            let was = before.processes.get(id).filter(|(was, _)| was == name).map_or(0, |&(_, ticks)| ticks);
            *by.entry(name).or_default() += ticks.saturating_sub(was) as f64 / TICKS_PER_SECOND / WATCHED.as_secs_f64();
        }
        by.insert("(waiting for disks)", of_cores(self.waiting, before.waiting));
        by.insert("(other guests of the host)", of_cores(self.stolen, before.stolen));
        let mut by: Vec<_> = by.into_iter().map(|(name, cores)| (name.to_owned(), cores)).collect();
        by.retain(|(_, cores)| *cores >= 0.01);
        by.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        Watched { cores, busy_cores: cores as f64 - of_cores(self.idle, before.idle), by, load }
    }
}

/// Name and time of a process, from its line in `/proc/PID/stat`. The name may have spaces and brackets in it.
fn process(stat: &str) -> Option<(String, u64)> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11); // utime and stime are fields 14 and 15; the state behind the name is field 3.
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some((name.to_owned(), ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(busy_cores: f64) -> Watched {
        let by = vec![("rustc".to_owned(), busy_cores - 0.02), ("node".to_owned(), 0.02)];
        Watched { cores: 2, busy_cores, by, load: "0.50".to_owned() }
    }

    #[test]
    fn a_quiet_machine_is_found_at_once_or_after_a_while() {
        assert!(quiet(|| Ok(watched(0.1))).is_ok());
        let mut rounds = 0;
        let found = quiet(|| {
            rounds += 1;
            Ok(watched(if rounds < 7 { 1.5 } else { 0.04 }))
        });
        assert_eq!((found.unwrap().glance().busy_cores, rounds), (0.04, 7));
    }

    #[test]
    fn a_busy_machine_is_refused_with_the_names_of_those_who_work() {
        let mut rounds = 0;
        let error = quiet(|| {
            rounds += 1;
            Ok(watched(0.62))
        });
        let expected = "the machine has been too busy for 120 s: 0.62 of 2 cores work, at most 0.10 may (rustc 0.60, node 0.02); \
            end that work, or use --anyway, which keeps nothing";
        assert_eq!((error.unwrap_err().to_string().as_str(), rounds), (expected, 40));
    }

    #[test]
    fn work_is_what_is_not_idle() {
        let before = Times::of_cores("cpu  100 10 20 1000 5 0 1 2 50 0\ncpu0 1 2 3\n").unwrap();
        let mut after = Times::of_cores("cpu  250 10 50 1360 35 0 1 32 90 0\n").unwrap();
        let process = |ticks| [(7, ("a (b) c".to_owned(), ticks)), (8, ("idle".to_owned(), 4))];
        let before = Times { processes: process(100).into(), ..before };
        after.processes = process(250).into();
        let watched = after.since(&before, 2, "1.00".to_owned());
        // 600 ticks of two cores, 360 of them idle: 0.8 cores.
        assert_eq!(watched.glance(), Glance { busy_cores: 0.8, load: "1.00".to_owned() });
        let by: Vec<_> = watched.by.iter().map(|(name, cores)| format!("{name} {cores:.2}")).collect();
        assert_eq!(by, ["a (b) c 0.50", "(other guests of the host) 0.10", "(waiting for disks) 0.10"]);
        assert!(Times::of_cores("cpu 1 2 3\n").is_none());
    }

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "17 (a (b) c) S 1 17 17 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 1 0 100 1000 10";
        assert_eq!(process(stat), Some(("a (b) c".to_owned(), 175)));
        assert_eq!((process("17 (short) S 1"), process("")), (None, None));
    }

    #[test]
    fn this_machine_is_read() {
        let times = Times::read(Path::new("/proc")).unwrap();
        assert!(times.all > 0 && times.processes.contains_key(&std::process::id()));
        assert!(load(Path::new("/proc")).unwrap().parse::<f64>().is_ok());
        assert!(Machine::here(Load::Average("0.10".to_owned())).unwrap().memory_gib > 0);
    }
}
