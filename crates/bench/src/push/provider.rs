//! The provider: our simulator, or Pushy's benchmark server, in a process on cores of its own.
//!
//! The simulator checks and counts every request, and can simulate a distance. Pushy's server accepts everything
//! unchecked, so only the sender's report says what arrived. Every case starts a new provider with a new certificate and
//! key: this bounds the simulator's ledger by what one case sends.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_simulator::LedgerSummary;

use super::case::Case;
use super::java::java;
use super::simulator::{self, Done, Greeting, Ledger};
use crate::args::{BenchPushServer, PeerRole};
use crate::checksum::Digest;
use crate::peer::Peer;
use crate::process::{Cores, pin_thread};

/// A running provider.
pub(super) struct Provider {
    kind: BenchPushServer,
    process: Peer,
    /// Address and credentials.
    pub(super) greeting: Greeting,
}

/// What the provider has used and, if it counts, received so far.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) cpu: Duration,
    pub(super) ledger: Option<Ledger>,
}

impl Provider {
    /// Starts a provider that behaves as in `case`. `folder` is for its files; `peers` contains Pushy's program.
    pub(super) fn start(
        kind: BenchPushServer,
        case: Case,
        cores: &Cores,
        folder: &Path,
        peers: &Path,
    ) -> Result<Self, CommandError> {
        let (mut simulator, mut greeting): (_, Greeting) = Peer::start(PeerRole::Simulator, &cores.load)?;
        let process = match kind {
            BenchPushServer::Simulator => {
                let (round_trip_ms, window_bytes) = (case.round_trip_ms.into(), case.window_bytes);
                let behave = simulator::Command::Behave { round_trip_ms, stream_limit: case.streams, window_bytes };
                let Done {} = simulator.ask(&behave)?;
                simulator
            }
            BenchPushServer::Pushy => {
                // Only the simulator's key is used. Pushy's server does not check it.
                let (process, port, ca_pem) = start_pushy(case, cores, folder, peers)?;
                (greeting.port, greeting.ca_pem) = (port, ca_pem);
                process
            }
        };
        Ok(Self { kind, process, greeting })
    }

    /// What the provider has used and received so far. Blocks for a moment.
    pub(super) fn mark(&mut self) -> Result<Mark, CommandError> {
        #[derive(Deserialize)]
        struct Used {
            cpu_seconds: f64,
        }
        match self.kind {
            BenchPushServer::Simulator => {
                let mark: simulator::Mark = self.process.ask(&simulator::Command::Mark)?;
                Ok(Mark { cpu: mark.usage.cpu, ledger: Some(mark.ledger) })
            }
            BenchPushServer::Pushy => {
                let used: Used = self.process.ask(json!({}))?;
                Ok(Mark { cpu: Duration::from_secs_f64(used.cpu_seconds), ledger: None })
            }
        }
    }
}

fn start_pushy(case: Case, cores: &Cores, folder: &Path, peers: &Path) -> Result<(Peer, u16, String), CommandError> {
    #[derive(Deserialize)]
    struct Listening {
        port: u16,
    }
    let own = folder.join("pushy-server");
    // An earlier server has ended. Java's tool would add to its files.
    let _ = std::fs::remove_dir_all(&own);
    std::fs::create_dir_all(&own)?;
    let mut command = java(peers, "BenchServer")
        .ok_or_else(|| failed(format!("no Pushy in {}: conformance/peers.sh builds it", peers.display())))?;
    command.arg(case.streams.to_string()).arg(cores.load.len().to_string()).arg(&own);
    pin_thread(&cores.load)?; // The process runs on the cores of the thread that starts it.
    let started = Peer::run("Pushy's server", command);
    pin_thread(&[cores.server])?;
    let (process, listening): (_, Listening) = started?;
    let ca_pem = std::fs::read_to_string(own.join("ca.pem"))
        .map_err(|error| failed_by("Pushy's server left no certificate", &error))?;
    Ok((process, listening.port, ca_pem))
}

/// Checks that each of `count` devices got it once, in its language, and optionally that the stream limit was kept. Returns
/// the digest of the devices.
pub(super) fn check_ledger(
    before: &Ledger,
    after: &Ledger,
    count: u64,
    within_streams: bool,
) -> Result<Digest, CommandError> {
    check_summary(&before.summary, &after.summary, count)?;
    let seen = |field: fn(&Ledger) -> u64| field(after) - field(before);
    let violations = if within_streams { seen(|ledger| ledger.summary.stream_limit_violations) } else { 0 };
    check(&[
        ("in a wrong language", seen(|ledger| ledger.mistranslated), 0),
        ("over the stream limit", violations, 0),
    ])?;
    Ok(after.digest.since(before.digest))
}

/// Checks that each of `count` devices got it once. Returns how many notifications were different, as a digest.
pub(super) fn check_summary<R>(
    before: &LedgerSummary<R>,
    after: &LedgerSummary<R>,
    count: u64,
) -> Result<Digest, CommandError> {
    let seen = |field: fn(&LedgerSummary<R>) -> u64| field(after) - field(before);
    check(&[
        ("accepted by the provider", seen(|summary| summary.accepted), count),
        ("different notifications at the provider", seen(|summary| summary.notifications), count),
        ("accepted twice", seen(|summary| summary.repeated), 0),
        ("rejected", seen(|summary| summary.rejected.values().sum()), 0),
    ])?;
    Ok(Digest::new(seen(|summary| summary.notifications), 0))
}

/// Checks that each found number is the expected one: name, found, expected.
pub(super) fn check(checks: &[(&str, u64, u64)]) -> Result<(), CommandError> {
    match checks.iter().find(|(_, found, expected)| found != expected) {
        Some((what, found, expected)) => Err(failed(format!("{found} {what} instead of {expected}"))),
        None => Ok(()),
    }
}

/// Mean bytes of the payloads between two ledgers.
pub(super) fn payload_bytes(before: &Ledger, after: &Ledger) -> f64 {
    let count = (after.summary.accepted - before.summary.accepted).max(1);
    (after.payload_bytes - before.payload_bytes) as f64 / count as f64
}

#[cfg(test)]
mod tests {
    use tidings_simulator::Reason;

    use super::*;

    fn ledger(count: u64) -> Ledger {
        let summary = LedgerSummary { accepted: count, notifications: count, ..LedgerSummary::default() };
        Ledger { summary, mistranslated: 0, payload_bytes: 100 * count, digest: Digest::of_numbers(0..count) }
    }

    #[test]
    fn every_mistake_in_the_ledger_fails_the_run() {
        let (before, right) = (ledger(5), ledger(12));
        assert_eq!(check_ledger(&before, &right, 7, true).unwrap(), Digest::of_numbers(5..12));
        assert_eq!(payload_bytes(&before, &right), 100.0);
        let wrongs: [fn(&mut Ledger); 6] = [
            |ledger| ledger.summary.accepted += 1,
            |ledger| ledger.summary.notifications -= 1,
            |ledger| ledger.summary.repeated += 1,
            |ledger| _ = ledger.summary.rejected.insert(Reason::BadDeviceToken, 1),
            |ledger| ledger.mistranslated += 1,
            |ledger| ledger.summary.stream_limit_violations += 1,
        ];
        let mut wrong = right.clone();
        for change in wrongs {
            wrong = right.clone();
            change(&mut wrong);
            assert!(check_ledger(&before, &wrong, 7, true).is_err(), "{wrong:?}");
        }
        assert!(check_ledger(&before, &wrong, 7, false).is_ok(), "the stream limit is not always checked");
        let error = check_ledger(&before, &right, 8, true).unwrap_err();
        assert_eq!(error.to_string(), "7 accepted by the provider instead of 8");
    }
}
