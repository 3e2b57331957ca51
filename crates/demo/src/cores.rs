//! CPU time of this process's threads, by the part that they belong to, and of the whole machine.
//!
//! Read from `/proc`, in hundredths of a second. Without `/proc` all times are zero. Drawing and posting events count as
//! the server's time; they take little.

use std::ops::{AddAssign, Sub};
use std::path::Path;
use std::time::Duration;

use tidings_telemetry::process::{TICKS_PER_SECOND, stat_field};

use super::clients::THREAD as CLIENTS_THREAD;

/// CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Used {
    pub(super) server: Duration,
    pub(super) simulators: Duration,
    pub(super) clients: Duration,
    /// The whole machine, other processes included.
    pub(super) machine: Duration,
}

impl Used {
    /// CPU time of the running threads so far.
    pub(super) fn now() -> Self {
        let mut used = Self { machine: read_machine().unwrap_or_default(), ..Self::default() };
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        for (name, time) in tasks.filter_map(|task| read(&task.path())) {
            *match name {
                name if name.starts_with("simulator-") => &mut used.simulators,
                name if name == CLIENTS_THREAD => &mut used.clients,
                _ => &mut used.server,
            } += time;
        }
        used
    }
}

impl Sub for Used {
    type Output = Self;

    /// The times of an ended thread are missing, so a later reading may be smaller.
    fn sub(self, earlier: Self) -> Self {
        Self {
            server: self.server.saturating_sub(earlier.server),
            simulators: self.simulators.saturating_sub(earlier.simulators),
            clients: self.clients.saturating_sub(earlier.clients),
            machine: self.machine.saturating_sub(earlier.machine),
        }
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, more: Self) {
        self.server += more.server;
        self.simulators += more.simulators;
        self.clients += more.clients;
        self.machine += more.machine;
    }
}

/// Number of cores that this process may use.
pub(super) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(task: &Path) -> Option<(String, Duration)> {
    parse(&std::fs::read_to_string(task.join("stat")).ok()?)
}

/// Name and CPU time of a thread: field 2 in brackets, fields 14 and 15 of proc_pid_stat(5).
fn parse(stat: &str) -> Option<(String, Duration)> {
    let (_, name) = stat[..stat.rfind(')')?].split_once('(')?;
    Some((name.to_owned(), cpu_time(stat_field(stat, 14)? + stat_field(stat, 15)?)))
}

fn cpu_time(ticks: f64) -> Duration {
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

fn read_machine() -> Option<Duration> {
    parse_machine(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// CPU time of all cores without idle time: all of the first eight fields except 4 and 5 (proc_stat(5)). The others are
/// contained in these.
fn parse_machine(stat: &str) -> Option<Duration> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let busy = fields.enumerate().filter(|(index, _)| !matches!(index, 3 | 4));
    Some(cpu_time(busy.map(|(_, field)| field.parse::<f64>().ok()).sum::<Option<f64>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_line_has_its_name_and_time() {
        let line = "17391 (simulator-1) S 17390 17391 17390 0 -1 4194304 120 0 0 0 250 50 0 0 20 0 4 0 1000 0 0";
        assert_eq!(parse(line), Some(("simulator-1".to_owned(), Duration::from_secs(3))));
        assert_eq!(parse("1 (odd) name) S 1 1 1 0 -1 0 0 0 0 0 7 0 0").unwrap().1, Duration::from_millis(70));
        assert_eq!(parse("1 (short) S"), None);
    }

    #[test]
    fn the_machine_s_line_has_its_time_without_idle_time() {
        let stat = "cpu  100 1 50 9000 300 2 3 4 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_machine(stat), Some(Duration::from_millis(1600)));
        assert_eq!(parse_machine("intr 1"), None);
    }

    #[test]
    fn work_counts_for_the_part_of_its_thread() {
        let before = Used::now();
        let worker = std::thread::Builder::new().name("simulator-test".to_owned());
        let (done_tx, done_rx) = std::sync::mpsc::sync_channel::<()>(1);
        let worker = worker.spawn(move || while done_rx.try_recv().is_err() {}).unwrap();
        let began = tokio::time::Instant::now();
        while (Used::now() - before).simulators.is_zero() && began.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        let used = Used::now() - before;
        done_tx.send(()).unwrap();
        worker.join().unwrap();
        assert!(!used.simulators.is_zero(), "the thread that works is one of the simulators: {used:?}");
        assert!(used.clients.is_zero(), "no client works: {used:?}");
    }
}
