//! The physical limit: h2load (nghttp2), which repeats a prepared request as fast as HTTP/2 over TLS allows.
//!
//! It sends requests that the simulator accepts, with a payload as long as ours, to 10 000 device tokens in turn. It does
//! less than a sender must: one fixed request, no ids, no accounting.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tidings_push::apns::{ProviderKey, ProviderTokens};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_telemetry::unix_now;

use super::language::LANGUAGES;
use super::setup::{self, Folder};
use super::simulator::Greeting;

const TOKEN_COUNT: u32 = 10_000;
/// The files that h2load sends.
pub(super) struct H2load {
    uris: PathBuf,
    payload: PathBuf,
    authorization: String,
}

impl H2load {
    /// Whether h2load is installed.
    pub(super) fn is_there() -> bool {
        let found = Command::new("h2load").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    }

    /// Writes the files for one provider.
    pub(super) fn prepare(greeting: &Greeting, folder: &Folder) -> Result<Self, CommandError> {
        let key = ProviderKey::new(&greeting.key_id, &greeting.team_id, &greeting.key_pem);
        let key = key.map_err(|error| failed_by("the simulator's key", &error))?;
        let token = ProviderTokens::new(key).authorization(unix_now());
        let authorization = token.to_str().map_err(|error| failed_by("the provider token", &error))?.to_owned();
        let mut uris = String::new();
        for number in 0..TOKEN_COUNT {
            let token = setup::token(0xff, number).to_text().into_owned();
            writeln!(uris, "https://127.0.0.1:{}/3/device/{token}", greeting.port).expect("a String takes everything");
        }
        let files = Self { uris: folder.path("uris"), payload: folder.path("payload"), authorization };
        fs::write(&files.uris, uris)?;
        fs::write(&files.payload, LANGUAGES[1].message().payload)?;
        Ok(files)
    }

    /// Requests per second. Every answer must be a success.
    pub(super) async fn measure(&self, count: u32, connections: u32, streams: u32) -> Result<f64, CommandError> {
        let mut command = Command::new("h2load");
        command.args(["-t", "1", "-n", &count.to_string(), "-c", &connections.to_string(), "-m", &streams.to_string()]);
        command.arg("-i").arg(&self.uris).arg("-d").arg(&self.payload);
        // The token is valid only for this simulator, so it may be visible in the list of processes.
        command.args(["-H", &format!("authorization: {}", self.authorization)]);
        command.args(["-H", "apns-topic: com.example.bench", "-H", "apns-push-type: alert", "-H", "apns-priority: 10"]);
        command.stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.expect("waiting does not panic").map_err(|error| failed_by("cannot run h2load", &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        read(&text, count).ok_or_else(|| failed(format!("h2load did not send {count} requests:\n{text}")))
    }
}

/// The rate from h2load's output; `None` unless every answer was a success.
fn read(output: &str, count: u32) -> Option<f64> {
    let all = format!("{count} succeeded, 0 failed, 0 errored, 0 timeout");
    let succeeded = output.lines().any(|line| line.starts_with("requests:") && line.contains(&all));
    let finished = output.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let rate = finished.split(", ").find_map(|part| part.strip_suffix(" req/s"))?;
    if succeeded { rate.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_success_of_all_requests() {
        let output = "starting benchmark...\n\nfinished in 1.21s, 165289.26 req/s, 7.10MB/s\n\
            requests: 200000 total, 200000 started, 200000 done, 200000 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(read(output, 200_000), Some(165_289.26));
        assert_eq!(read(output, 200_001), None);
        assert_eq!(read(&output.replace("0 errored", "1 errored"), 200_000), None);
        assert_eq!(read("", 0), None);
    }
}
