//! The physical limit: wrk, which writes a ready-made request again and again and hardly looks at the answers.
//!
//! With a pipeline it writes so many requests at once, and the next as many when all are answered.

use std::fs;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;
use tidings_server::command_error::{CommandError, failed, failed_by};

/// wrk's own example of pipelining, with the depth as an argument.
const SCRIPT: &str = "init = function(args)
   local requests = {}
   for i = 1, tonumber(args[1]) do requests[i] = wrk.format() end
   all = table.concat(requests)
end
request = function() return all end
";
/// Of `/proc/self/stat`'s times, on every Linux we know.
const TICKS_PER_SECOND: f64 = 100.0;

/// The program and its script.
pub(super) struct Wrk {
    script: NamedTempFile,
}

/// What it did in one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Requests a second.
    pub(super) rate: f64,
    /// Processor time per request.
    pub(super) micros: f64,
}

impl Wrk {
    /// `None` when the program is not on this machine.
    pub(super) fn find() -> Result<Option<Self>, CommandError> {
        let found = Command::new("wrk").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Ok(None); // Its exit status says nothing.
        }
        let script = tempfile::Builder::new().suffix(".lua").tempfile()?;
        fs::write(script.path(), SCRIPT)?;
        Ok(Some(Self { script }))
    }

    /// One thread, so many connections with pipelines of that depth.
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
        let (rate, count) = read(&text).ok_or_else(|| failed(format!("wrk did not get its answers:\n{text}")))?;
        Ok(Sample { rate, micros: cpu * 1e6 / count })
    }
}

/// Rate and number of requests in wrk's own words; `None` unless all were answered with success.
fn read(output: &str) -> Option<(f64, f64)> {
    let failed = output.contains("Socket errors") || output.contains("Non-2xx");
    let rate = output.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?.trim().parse().ok()?;
    let count = output.lines().find_map(|line| line.split_once(" requests in "))?.0.trim().parse().ok()?;
    (!failed).then_some((rate, count))
}

/// Processor time of all children that have ended.
fn children_seconds() -> Result<f64, CommandError> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in parentheses and may hold anything.
    let fields: Vec<_> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok());
    let both = ticks(13).zip(ticks(14)); // cutime and cstime, proc(5).
    both.map(|(user, system)| (user + system) / TICKS_PER_SECOND).ok_or_else(|| failed("no times in /proc/self/stat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_only_when_all_succeeded() {
        let output = "Running 1s test @ http://127.0.0.1:80/\n  1 threads and 8 connections\n  \
            55210 requests in 1.10s, 9.42MB read\nRequests/sec:  50190.50\nTransfer/sec:      8.57MB\n";
        assert_eq!(read(output), Some((50_190.5, 55_210.0)));
        assert_eq!(read(&format!("{output}  Socket errors: connect 0, read 3, write 0, timeout 0\n")), None);
        assert_eq!(read(&format!("{output}  Non-2xx or 3xx responses: 7\n")), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn children_cost_time() {
        let before = children_seconds().unwrap();
        while children_seconds().unwrap() <= before {
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]).status().unwrap();
        }
    }
}
