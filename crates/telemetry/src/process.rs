//! Memory, processor time, threads and file descriptors of the process, read from `/proc` at each scrape.
//!
//! A value that cannot be read (another operating system, a hidden `/proc`) is `NaN`.
//!
//! Benchmarks, the demo and tests read the same files with [`memory_bytes`] and [`stat_field`].
//!
//! Source: proc(5); Prometheus, "Writing client libraries", process metrics.

use std::fmt::Display;
use std::fs;
use std::sync::Arc;

use crate::metric::Metric;
use crate::metrics::process as metrics;
use crate::registry::Registry;

/// Ticks per second in `/proc/*/stat`: `USER_HZ`, 100 on every Linux that runs this code (time(7)).
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Exports this process's figures through `registry`.
pub fn register(registry: &Registry) {
    type Reading = (&'static Metric, fn() -> Option<f64>);
    let readings: [Reading; 6] = [
        (&metrics::RESIDENT_MEMORY_BYTES, resident_bytes),
        (&metrics::OPEN_FDS, open_descriptors),
        (&metrics::MAX_FDS, max_descriptors),
        (&metrics::THREADS, threads),
        (&metrics::START_TIME_SECONDS, start_seconds),
        (&metrics::CPU_SECONDS_TOTAL, cpu_seconds),
    ];
    for (metric, read) in readings {
        registry.computed(metric, &[], Arc::new(move || read().unwrap_or(f64::NAN)));
    }
}

fn resident_bytes() -> Option<f64> {
    memory_bytes("self", "VmRSS").map(|bytes| bytes as f64)
}

/// Memory of a process (a process id, or `self`): `VmRSS` is resident memory, `VmHWM` its peak.
pub fn memory_bytes(process: impl Display, field: &str) -> Option<u64> {
    // `status`, not `statm`: it counts in kilobytes, independent of the page size.
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kilobytes: u64 = field_after(&status, &format!("{field}:"))?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}

fn threads() -> Option<f64> {
    field_after(&fs::read_to_string("/proc/self/status").ok()?, "Threads:")?.parse().ok()
}

fn open_descriptors() -> Option<f64> {
    // One descriptor is that of the directory that is being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_descriptors() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = field_after(&limits, "Max open files")?.split_whitespace().next()?;
    if soft == "unlimited" { Some(f64::INFINITY) } else { soft.parse().ok() }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some((stat_field(&stat, 14)? + stat_field(&stat, 15)?) / TICKS_PER_SECOND)
}

fn start_seconds() -> Option<f64> {
    let boot: f64 = field_after(&fs::read_to_string("/proc/stat").ok()?, "btime ")?.parse().ok()?;
    Some(boot + stat_field(&fs::read_to_string("/proc/self/stat").ok()?, 22)? / TICKS_PER_SECOND)
}

/// The rest of the line that begins with `name`, trimmed.
fn field_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Field `number` of a stat line, counted from 1 as in proc(5). The second field is the program's name in parentheses,
/// which may itself contain spaces and parentheses.
pub fn stat_field(stat: &str, number: usize) -> Option<f64> {
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{
        Registry, cpu_seconds, max_descriptors, memory_bytes, open_descriptors, register, resident_bytes,
        start_seconds, stat_field, threads,
    };

    #[test]
    fn the_figures_are_those_of_a_running_test() {
        assert!((1e6..1e11).contains(&resident_bytes().unwrap()));
        assert!(memory_bytes(std::process::id(), "VmHWM").unwrap() as f64 >= 1e6);
        assert_eq!((memory_bytes("self", "Vm"), memory_bytes("self", "Name")), (None, None));
        assert!(threads().unwrap() >= 1.0);
        let open = open_descriptors().unwrap();
        assert!((3.0..=max_descriptors().unwrap()).contains(&open), "{open}");
        assert!(cpu_seconds().unwrap() >= 0.0);
        let age = crate::unix_now().as_millis() as f64 / 1e3 - start_seconds().unwrap();
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
    }

    #[test]
    fn an_opened_file_is_seen() {
        let opened: Vec<_> = (0..64).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        assert!(open_descriptors().unwrap() >= opened.len() as f64);
    }

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 111 222 13";
        assert_eq!((stat_field(stat, 14), stat_field(stat, 15)), (Some(111.0), Some(222.0)));
        assert_eq!((stat_field(stat, 99), stat_field("", 14)), (None, None));
    }

    #[test]
    fn all_are_exported() {
        let registry = Registry::new();
        register(&registry);
        let text = registry.prometheus();
        for name in ["resident_memory_bytes", "open_fds", "max_fds", "threads", "start_time_seconds"] {
            assert!(text.contains(&format!("# TYPE process_{name} gauge\nprocess_{name} ")), "{name} in {text}");
        }
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
