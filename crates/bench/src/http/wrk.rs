//! The physical limit: wrk, which repeats one prepared request and hardly looks at the answers.
//!
//! With a pipeline of depth n it writes n requests at once, and the next n when all are answered.

use std::fs;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_telemetry::process::{TICKS_PER_SECOND, stat_field};

/// wrk's own example of pipelining, with the depth as an argument.
const SCRIPT: &str = "init = function(args)
   local requests = {}
   for i = 1, tonumber(args[1]) do requests[i] = wrk.format() end
   all = table.concat(requests)
end
request = function() return all end
";

/// The script that wrk runs.
pub(super) struct Wrk {
    script: NamedTempFile,
}

/// The result of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Requests per second.
    pub(super) rate: f64,
    /// CPU time per request.
    pub(super) micros: f64,
}

impl Wrk {
    /// `None` if wrk is not installed.
    pub(super) fn find() -> Result<Option<Self>, CommandError> {
        let found = Command::new("wrk").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Ok(None); // Its exit status is no error.
        }
        let script = tempfile::Builder::new().suffix(".lua").tempfile()?;
        fs::write(script.path(), SCRIPT)?;
        Ok(Some(Self { script }))
    }

    /// Runs wrk with one thread.
    pub(super) async fn measure(
        &self,
        url: &str,
        connections: u32,
        depth: u32,
        seconds: u32,
    ) -> Result<Sample, CommandError> {
        let mut command = Command::new("wrk");
        command.args(["-t", "1", "-c", &connections.to_string(), "-d", &format!("{seconds}s"), "--timeout", "10s"]);
        if depth > 1 {
            command.arg("-s").arg(self.script.path());
        }
        command.arg(url);
        if depth > 1 {
            command.args(["--", &depth.to_string()]);
        }
        command.stdin(Stdio::null());
        let before = children_seconds()?;
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.expect("waiting does not panic").map_err(|error| failed_by("cannot run wrk", &error))?;
        let cpu = children_seconds()? - before;
        let text = String::from_utf8_lossy(&output.stdout);
        let (rate, count) = read(&text).ok_or_else(|| failed(format!("wrk did not get all answers:\n{text}")))?;
        Ok(Sample { rate, micros: cpu * 1e6 / count })
    }
}

/// Rate and number of requests from wrk's output; `None` unless every answer was a success.
fn read(output: &str) -> Option<(f64, f64)> {
    let failed = output.contains("Socket errors") || output.contains("Non-2xx");
    let rate = output.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?.trim().parse().ok()?;
    let count = output.lines().find_map(|line| line.split_once(" requests in "))?.0.trim().parse().ok()?;
    (!failed).then_some((rate, count))
}

/// CPU time of all children that have ended.
fn children_seconds() -> Result<f64, CommandError> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let both = stat_field(&text, 16).zip(stat_field(&text, 17)); // cutime and cstime, proc(5).
    both.map(|(user, system)| (user + system) / TICKS_PER_SECOND).ok_or_else(|| failed("no times in /proc/self/stat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_success_of_all_requests() {
        let output = "Running 1s test @ http://127.0.0.1:80/\n  1 threads and 8 connections\n  \
            55210 requests in 1.10s, 9.42MB read\nRequests/sec:  50190.50\nTransfer/sec:      8.57MB\n";
        assert_eq!(read(output), Some((50_190.5, 55_210.0)));
        assert_eq!(read(&format!("{output}  Socket errors: connect 0, read 3, write 0, timeout 0\n")), None);
        assert_eq!(read(&format!("{output}  Non-2xx or 3xx responses: 7\n")), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn the_time_of_children_is_counted() {
        const SHELL_COUNT_MAX: usize = 200; // Each takes some hundredths of a second.
        let before = children_seconds().unwrap();
        let is_counted = (0..SHELL_COUNT_MAX).any(|_| {
            let loops = ["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"];
            assert!(std::process::Command::new("sh").args(loops).status().unwrap().success());
            children_seconds().unwrap() > before
        });
        assert!(is_counted, "{SHELL_COUNT_MAX} shells took no time");
    }
}
