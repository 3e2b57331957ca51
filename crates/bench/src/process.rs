//! What this process costs and where it runs.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tidings_server::command_error::{CommandError, failed};

/// What a process has used at one moment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Processor time of all its threads, in the kernel too, since it began.
    pub(super) cpu: Duration,
    /// Memory it has in RAM.
    pub(super) resident_bytes: u64,
}

impl Usage {
    /// Of this process, now.
    pub(super) fn now() -> io::Result<Self> {
        let time = clock_gettime(ClockId::ProcessCPUTime); // In nanoseconds, unlike the ticks of /proc.
        let cpu = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
        let status = fs::read_to_string("/proc/self/status")?;
        let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "no VmRSS in /proc/self/status");
        Ok(Self { cpu, resident_bytes: 1024 * read_field(&status, "VmRSS").ok_or_else(unreadable)? })
    }
}

/// The kilobytes of a line of `/proc/…/status`.
pub(super) fn read_field(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The cores that the two sides of a benchmark are held to; the same one where there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) server: usize,
    pub(super) load: usize,
}

impl Cores {
    /// The first two this process may use.
    pub(super) fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let server = cpus.next().unwrap_or(0);
        Ok(Self { server, load: cpus.next().unwrap_or(server) })
    }
}

/// Holds every thread of this process, and those they start later, to one core.
pub(super) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {cpu}")));
    }
    set.set(cpu);
    for task in fs::read_dir("/proc/self/task")? {
        let thread = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        match sched_setaffinity(thread, &set) {
            Err(error) if error != rustix::io::Errno::SRCH => return Err(error.into()), // A thread may have ended.
            _ => {}
        }
    }
    Ok(())
}

/// Makes room for so many open files, where the system lets us.
pub(super) fn need_files(count: u64) -> Result<(), CommandError> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).map_err(io::Error::from)?;
    }
    match limit.current {
        Some(current) if current < count => {
            Err(failed(format!("{count} open files are needed and {current} allowed: raise the limit (ulimit -n)")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let before = Usage::now().unwrap();
        let mut sum = 0_u64;
        while Usage::now().unwrap().cpu < before.cpu + Duration::from_millis(2) {
            sum = (0..100_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        assert!(before.resident_bytes > 1 << 20);
    }

    #[test]
    fn a_field_of_the_kernels_is_read_by_its_whole_name() {
        let status = "VmPeak:\t 9 kB\nVmHWM:\t    1234 kB\nVmRSS:\t  77 kB\n";
        assert_eq!((read_field(status, "VmHWM"), read_field(status, "VmRSS")), (Some(1234), Some(77)));
        assert_eq!((read_field(status, "Vm"), read_field("VmHWM:\tmany kB", "VmHWM")), (None, None));
    }
}
