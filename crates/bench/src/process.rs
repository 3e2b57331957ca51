//! Processes and cores: what this process uses, which cores each side of a benchmark has, and child processes.

use std::fs;
use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tidings_server::command_error::{CommandError, failed};
use tidings_server::raise_file_limit;
use tidings_telemetry::process::memory_bytes;

/// What a process has used so far.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Usage {
    /// CPU time of all its threads, kernel included, since its start.
    pub(super) cpu: Duration,
    pub(super) resident_bytes: u64,
}

impl Usage {
    /// Of this process.
    pub(super) fn now() -> io::Result<Self> {
        let time = clock_gettime(ClockId::ProcessCPUTime); // In nanoseconds; the ticks of /proc are too coarse.
        let cpu = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
        let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "no VmRSS in /proc/self/status");
        Ok(Self { cpu, resident_bytes: memory_bytes("self", "VmRSS").ok_or_else(unreadable)? })
    }
}

/// The cores of the two sides of a benchmark. On a machine with one core both sides share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cores {
    /// The core of the measured side.
    pub(super) server: usize,
    /// The cores of the other side (load generator or provider), at least one.
    pub(super) load: Vec<usize>,
}

impl Cores {
    /// The first core that this process may use for the server, the next `load_count` ones for the other side.
    pub(super) fn choose(load_count: usize) -> Result<Self, CommandError> {
        let allowed = sched_getaffinity(None).map_err(io::Error::from)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let server = cores.next().unwrap_or(0);
        let load: Vec<usize> = cores.take(load_count).collect();
        match load.len() {
            found if found == load_count => Ok(Self { server, load }),
            0 if load_count == 1 => Ok(Self { server, load: vec![server] }),
            found => {
                Err(failed(format!("--provider-cores {load_count}: only {found} cores are free beside the sender's")))
            }
        }
    }

    pub(super) fn are_shared(&self) -> bool {
        self.load.contains(&self.server)
    }
}

/// Moves every thread of this process to these cores. Threads that they start later stay there too.
pub(super) fn pin(cores: &[usize]) -> io::Result<()> {
    let set = cpu_set(cores)?;
    for task in fs::read_dir("/proc/self/task")? {
        let thread = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        match sched_setaffinity(thread, &set) {
            Err(error) if error != rustix::io::Errno::SRCH => return Err(error.into()), // A thread may have ended.
            _ => {}
        }
    }
    Ok(())
}

/// Moves the current thread to these cores. A process that it starts runs there too.
pub(super) fn pin_thread(cores: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(None, &cpu_set(cores)?)?)
}

fn cpu_set(cores: &[usize]) -> io::Result<CpuSet> {
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {core}")));
        }
        set.set(core);
    }
    Ok(set)
}

/// Makes sure that this process may open `count` files.
pub(super) fn need_files(count: u64) -> Result<(), CommandError> {
    match raise_file_limit(count) {
        allowed if allowed >= count => Ok(()),
        allowed => {
            Err(failed(format!("{count} open files are needed and {allowed} allowed: raise the limit (ulimit -n)")))
        }
    }
}

/// A child process that is killed when this is dropped.
pub(super) struct KillOnDrop(pub(super) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The process may have ended already. If it cannot be killed, nothing can be done about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = Usage::now().unwrap();
        let mut sum = 0_u64;
        while Usage::now().unwrap().cpu < before.cpu + Duration::from_millis(2) {
            sum = (0..100_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        assert!(before.resident_bytes > 1 << 20);
    }

    #[test]
    fn more_cores_than_the_machine_has_are_refused() {
        assert_eq!(Cores::choose(1).unwrap().load.len(), 1);
        assert!(Cores::choose(CpuSet::MAX_CPU).is_err());
        if let Ok(cores) = Cores::choose(2) {
            assert!(!cores.are_shared() && cores.load[0] != cores.load[1]);
        }
    }
}
