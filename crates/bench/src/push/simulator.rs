//! Our simulated APNs, in a process of its own with a thread for each of its cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tidings_server::command_error::{CommandError, failed_by};
use tidings_simulator::{AcceptedNotification, ApnsSimulator, Faults, LedgerSummary, SimulatorConfig};

use super::language::language_of;
use crate::checksum::{Digest, hash};
use crate::peer;
use crate::process::Usage;

/// Devices and notifications in the ledger, at most. More would be counted, but not told apart.
const DEVICE_COUNT_MAX: usize = 20_000_000;
const NOTIFICATION_COUNT_MAX: usize = 200_000_000;

/// Address and credentials.
#[derive(Serialize, Deserialize)]
pub(super) struct Greeting {
    pub(super) port: u16,
    pub(super) ca_pem: String,
    pub(super) key_pem: String,
    pub(super) key_id: String,
    pub(super) team_id: String,
}

impl Greeting {
    pub(super) fn of(simulator: &ApnsSimulator) -> Self {
        Self {
            port: simulator.addr().port(),
            ca_pem: simulator.ca_pem().to_owned(),
            key_pem: simulator.key_pem().to_owned(),
            key_id: simulator.key_id().to_owned(),
            team_id: simulator.team_id().to_owned(),
        }
    }
}

/// The answer to a command without a result.
#[derive(Serialize, Deserialize)]
pub(super) struct Done {}

/// A command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Set the round trip, the stream limit and, on new connections, the flow window. Answered with [`Done`].
    Behave { round_trip_ms: u64, stream_limit: u32, window_bytes: u32 },
    /// Answered with [`Mark`].
    Mark,
}

/// What the simulator has received and used so far.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) usage: Usage,
    pub(super) ledger: Ledger,
}

/// What the simulator has received so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Ledger {
    pub(super) summary: LedgerSummary,
    pub(super) mistranslated: u64,
    /// Of all accepted notifications.
    pub(super) payload_bytes: u64,
    /// The devices of all accepted notifications.
    pub(super) digest: Digest,
}

#[derive(Default)]
struct Seen {
    mistranslated: AtomicU64,
    payload_bytes: AtomicU64,
    accepted: AtomicU64,
    hash_sum: AtomicU64,
}

/// Simulates until standard input ends. Blocks: the simulator has threads of its own.
pub(in super::super) fn serve(thread_count: usize) -> Result<(), CommandError> {
    let seen = Arc::new(Seen::default());
    let counted = seen.clone();
    let on_accepted = Arc::new(move |accepted: AcceptedNotification<'_>| {
        counted.payload_bytes.fetch_add(accepted.payload.len() as u64, Ordering::Relaxed);
        counted.accepted.fetch_add(1, Ordering::Relaxed);
        counted.hash_sum.fetch_add(hash(accepted.token.as_bytes()), Ordering::Relaxed);
        let expected = language_of(accepted.token).map(|language| language.title);
        if expected.is_some_and(|title| !says(accepted.payload, title)) {
            counted.mistranslated.fetch_add(1, Ordering::Relaxed);
        }
    });
    let config = SimulatorConfig {
        thread_count,
        device_count_max: DEVICE_COUNT_MAX,
        notification_count_max: NOTIFICATION_COUNT_MAX,
        ..SimulatorConfig::default()
    };
    let simulator = ApnsSimulator::start_observed(config, on_accepted);
    let simulator = simulator.map_err(|error| failed_by("cannot start the simulator", &error))?;
    peer::answer(Greeting::of(&simulator))?;
    peer::follow(|command| match command {
        Command::Behave { round_trip_ms, stream_limit, window_bytes } => {
            let faults =
                Faults { round_trip_ms, stream_limit, connection_window_bytes: window_bytes, ..Faults::default() };
            simulator.set_faults(faults).map_err(|error| failed_by("the simulator refuses", &error))?;
            peer::answer(Done {})
        }
        Command::Mark => peer::answer(mark(&simulator, &seen)?),
    })
}

fn mark(simulator: &ApnsSimulator, seen: &Seen) -> Result<Mark, CommandError> {
    let ledger = Ledger {
        summary: simulator.ledger().summary(),
        mistranslated: seen.mistranslated.load(Ordering::Relaxed),
        payload_bytes: seen.payload_bytes.load(Ordering::Relaxed),
        digest: Digest::new(seen.accepted.load(Ordering::Relaxed), seen.hash_sum.load(Ordering::Relaxed)),
    };
    Ok(Mark { usage: Usage::now()?, ledger })
}

/// Whether the title begins with this text. The title is near the payload's beginning, so this is fast.
fn says(payload: &[u8], title: &str) -> bool {
    const MARKER: &[u8] = br#""title":""#;
    let place = payload.windows(MARKER.len()).position(|window| window == MARKER);
    place.is_some_and(|place| payload[place + MARKER.len()..].starts_with(title.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::says;

    #[test]
    fn only_the_title_counts() {
        let payload = r#"{"aps":{"alert":{"title":"Tor für Sverige!","body":"Goal for nobody"}}}"#.as_bytes();
        assert!(says(payload, "Tor für "));
        assert!(!says(payload, "Goal for "));
        assert!(!says(b"{}", ""));
    }
}
