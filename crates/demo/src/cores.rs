//! Who uses the processor: the CPU time of this process's threads, by whom they work for, and of the whole machine.
//!
//! Read from `/proc`, in hundredths of a second per thread; where there is no `/proc`, nothing is known. The demo's own
//! drawing and handing in of events count as the server's: they take little.

use std::ops::{AddAssign, Sub};
use std::path::Path;
use std::time::Duration;

use super::clients::THREAD as CLIENTS_THREAD;

/// One tick of `/proc/<pid>/stat`: Linux shows user space 100 a second, whatever the kernel's own clock (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Used {
    pub(super) server: Duration,
    pub(super) simulators: Duration,
    pub(super) clients: Duration,
    /// All of these and all other processes.
    pub(super) machine: Duration,
}

impl Used {
    /// What the threads that live have used so far.
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

    /// A thread that has ended takes its time along, so a later reading may be the smaller one.
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

/// Cores of this machine that we may use.
pub(super) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(task: &Path) -> Option<(String, Duration)> {
    parse(&std::fs::read_to_string(task.join("stat")).ok()?)
}

/// Name and CPU time of a thread: field 2 in brackets, fields 14 and 15 of proc_pid_stat(5).
fn parse(stat: &str) -> Option<(String, Duration)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let ticks = |fields: &mut dyn Iterator<Item = &str>| fields.next()?.parse::<u32>().ok();
    let mut fields = after.split_whitespace().skip(11);
    let (user, system) = (ticks(&mut fields)?, ticks(&mut fields)?);
    Some((name.to_owned(), TICK * (user + system)))
}

fn read_machine() -> Option<Duration> {
    parse_machine(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// What all cores have done but waiting: all but fields 4 and 5 of the first eight (proc_stat(5)); the others are in these.
fn parse_machine(stat: &str) -> Option<Duration> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let mut ticks = 0;
    for (_, field) in fields.enumerate().filter(|(index, _)| !matches!(index, 3 | 4)) {
        ticks += field.parse::<u64>().ok()?;
    }
    Some(Duration::from_millis(ticks * TICK.as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_line_tells_its_name_and_time() {
        let line = "17391 (simulator-1) S 17390 17391 17390 0 -1 4194304 120 0 0 0 250 50 0 0 20 0 4 0 1000 0 0";
        assert_eq!(parse(line), Some(("simulator-1".to_owned(), Duration::from_secs(3))));
        assert_eq!(parse("1 (odd) name) S 1 1 1 0 -1 0 0 0 0 0 7 0 0").unwrap().1, Duration::from_millis(70));
        assert_eq!(parse("1 (short) S"), None);
    }

    #[test]
    fn a_machine_s_line_tells_what_its_cores_did_but_waiting() {
        let stat = "cpu  100 1 50 9000 300 2 3 4 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_machine(stat), Some(Duration::from_millis(1600)));
        assert_eq!(parse_machine("intr 1"), None);
    }

    #[test]
    fn work_is_counted_for_those_whose_thread_does_it() {
        let before = Used::now();
        let worker = std::thread::Builder::new().name("simulator-test".to_owned());
        let (done_tx, done_rx) = std::sync::mpsc::sync_channel::<()>(1);
        let worker = worker.spawn(move || while done_rx.try_recv().is_err() {}).unwrap();
        while (Used::now() - before).simulators < TICK {
            std::thread::yield_now();
        }
        done_tx.send(()).unwrap();
        worker.join().unwrap();
    }
}
