//! Other senders against the same provider in the same run: Pushy's client (Java), apns2 and gorush (Go).
//!
//! Each is a program of `conformance/`, built by `conformance/peers.sh`. It is started once, so that it stays warm. It
//! sends the same notifications as our server, to the same devices with the same headers, and reports the time from the
//! first request to the last answer. It does no selection, translation or accounting. Its settings:
//!
//! | Peer | Connections | Requests at once | Warm-up |
//! |---|---|---|---|
//! | Pushy | as many as ours; one event loop, BoringSSL | twice the streams: it queues requests without a stream | two runs |
//! | apns2 | one client for each of ours | a tenth of the streams, then all: the faster one is measured | these two |
//! | gorush | one client, which opens more as it needs | the same (`ios.max_concurrent_pushes`) | these two |
//!
//! A measured run takes some seconds at the warm-up's rate. A slow peer would take minutes for as much as we send.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_simulator::SimulatorConfig;
use tidings_telemetry::unix_now;
use uuid::Uuid;

use super::case::Case;
use super::java::java;
use super::language::{EVENT, LANGUAGES, Language, Message};
use super::provider::{Mark, Provider, check, check_ledger};
use super::setup::{self, Folder};
use crate::peer::Peer;

/// Devices that other senders can send to, at most.
const DEVICE_COUNT: u32 = 200_000;
/// About how long a measured run takes.
const RUN_SECONDS: f64 = 4.0;
/// Devices of a run, at least.
const RUN_COUNT_MIN: u32 = 5_000;
const SECONDS_PER_DAY: u64 = 24 * 3600;

/// Another sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pushy,
    Apns2,
    Gorush,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Pushy, Self::Apns2, Self::Gorush];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pushy => "Pushy",
            Self::Apns2 => "apns2",
            Self::Gorush => "gorush",
        }
    }

    /// The command; `None` if the program was not built.
    fn program(self, folder: &Path) -> Option<Command> {
        match self {
            Self::Pushy => java(folder, "BenchClient"),
            Self::Apns2 | Self::Gorush => {
                let path = folder.join("go/bin").join(self.name());
                path.is_file().then(|| Command::new(path))
            }
        }
    }

    /// Requests at once in the two warm-ups.
    fn concurrency(self, case: Case) -> [u32; 2] {
        let streams = case.stream_count();
        match self {
            Self::Pushy => [2 * streams; 2],
            Self::Apns2 | Self::Gorush => [(streams / 10).max(100).min(streams), streams],
        }
    }

    /// Devices of a warm-up. A Java virtual machine compiles only code that has run for a while.
    fn warm_up_count(self) -> u32 {
        match self {
            Self::Pushy => 100_000,
            Self::Apns2 | Self::Gorush => 10_000,
        }
    }
}

/// The senders on this machine, and those that are missing.
pub(super) struct Peers {
    found: Vec<Foreign>,
    missing: Vec<Kind>,
    folder: PathBuf,
}

/// A running sender.
pub(super) struct Foreign {
    kind: Kind,
    version: String,
    process: Arc<Mutex<Peer>>,
    /// Requests at once in this case.
    concurrency: u32,
    /// Devices of a measured run.
    count: u32,
}

/// The result of one run.
pub(super) struct Load {
    pub(super) rate: f64,
    /// CPU time per notification: the peer's, the provider's.
    pub(super) peer_micros: f64,
    pub(super) provider_micros: f64,
}

#[derive(Deserialize)]
struct Hello {
    version: String,
}

#[derive(Deserialize)]
struct Opened {}

#[derive(Deserialize)]
struct Sent {
    accepted: u32,
    seconds: f64,
    cpu_seconds: f64,
    #[serde(default)]
    failure: String,
}

/// What all senders send, in the form of `conformance/go/peers/load`.
#[derive(Serialize)]
struct Work {
    topic: &'static str,
    collapse_id: &'static str,
    event: &'static str,
    expiration: u64,
    messages: Vec<Message>,
    tokens: Vec<String>,
}

impl Work {
    fn new() -> Self {
        let language = |number: u32| (number as usize % LANGUAGES.len()) as u8;
        Self {
            topic: setup::APP,
            collapse_id: EVENT,
            event: EVENT,
            expiration: unix_now().as_secs() + SECONDS_PER_DAY,
            messages: LANGUAGES.iter().map(Language::message).collect(),
            tokens: (0..DEVICE_COUNT).map(|it| setup::token(language(it), it).to_text().into_owned()).collect(),
        }
    }
}

impl Peers {
    /// Starts the senders in `peers`. Their work is written into `folder`, which will also contain the keys.
    pub(super) fn start(peers: &Path, folder: &Folder) -> Result<Self, CommandError> {
        let SimulatorConfig { key_id, team_id, .. } = SimulatorConfig::<tidings_simulator::Reason>::default();
        let work = serde_json::to_vec(&Work::new()).expect("work is plain data");
        fs::write(folder.path("work.json"), work)?;
        let mut all = Self { found: Vec::new(), missing: Vec::new(), folder: peers.to_owned() };
        for kind in Kind::ALL {
            let Some(mut command) = kind.program(peers) else {
                all.missing.push(kind);
                continue;
            };
            command.arg(folder.path("ca.pem")).arg(folder.path("key.p8"));
            command.args([&key_id, &team_id]).arg(folder.path("work.json"));
            let (process, hello): (_, Hello) = Peer::run(kind.name(), command)?;
            let process = Arc::new(Mutex::new(process));
            all.found.push(Foreign { kind, version: hello.version, process, concurrency: 0, count: 0 });
        }
        Ok(all)
    }

    pub(super) fn found(&mut self) -> impl Iterator<Item = (Kind, &mut Foreign)> {
        self.found.iter_mut().map(|peer| (peer.kind, peer))
    }

    /// Notes for the report: which senders were found, and how to get the missing ones.
    pub(super) fn notes(&self) -> Vec<String> {
        let versions: Vec<_> =
            self.found.iter().map(|it| format!("{} {}", it.kind.name(), it.version.trim_start_matches('v'))).collect();
        let mut notes = Vec::new();
        if !versions.is_empty() {
            notes.push(format!(
                "Other senders: {}. They only send, after two warm-up runs. The Go programs use a tenth of the streams or all \
                 of them, whichever was faster.",
                versions.join(", ")
            ));
        }
        notes.extend(self.missing.iter().map(|kind| {
            format!("{}: not found in {} (conformance/peers.sh builds it).", kind.name(), self.folder.display())
        }));
        notes
    }
}

impl Foreign {
    /// Connects the sender to the provider of a case, and finds its best settings.
    pub(super) async fn prepare(&mut self, case: Case, provider: &mut Provider) -> Result<(), CommandError> {
        let open = json!({"open": {"port": provider.greeting.port, "connections": case.connections}});
        let Opened {} = self.ask(open).await?;
        let mut best = 0.0;
        for (run, concurrency) in self.kind.concurrency(case).into_iter().enumerate() {
            let load = self.send(self.kind.warm_up_count(), concurrency, run as u32, provider).await?;
            if load.rate > best {
                (best, self.concurrency) = (load.rate, concurrency);
            }
        }
        self.count = ((best * RUN_SECONDS) as u32).clamp(RUN_COUNT_MIN, DEVICE_COUNT);
        Ok(())
    }

    /// One measured run, after [`Foreign::prepare`].
    pub(super) async fn measure(&mut self, run: u32, provider: &mut Provider) -> Result<Load, CommandError> {
        self.send(self.count, self.concurrency, 2 + run, provider).await
    }

    async fn send(
        &mut self,
        count: u32,
        concurrency: u32,
        run: u32,
        provider: &mut Provider,
    ) -> Result<Load, CommandError> {
        let before = provider.mark()?;
        // One id for all devices of a run: only the pair of id and device must be unique.
        let id = Uuid::from_u128(((self.kind as u128) << 64) | (u128::from(run) + 1));
        let sent: Sent = self.ask(json!({"send": {"count": count, "concurrency": concurrency, "id": id}})).await?;
        let after = provider.mark()?;
        self.check(&sent, count, &before, &after)?;
        Ok(Load {
            rate: f64::from(count) / sent.seconds,
            peer_micros: sent.cpu_seconds * 1e6 / f64::from(count),
            provider_micros: (after.cpu - before.cpu).as_secs_f64() * 1e6 / f64::from(count),
        })
    }

    fn check(&self, sent: &Sent, count: u32, before: &Mark, after: &Mark) -> Result<(), CommandError> {
        let name = self.kind.name();
        if !sent.failure.is_empty() {
            return Err(failed(format!("{name}: {}", sent.failure)));
        }
        let checked = check(&[("accepted", sent.accepted.into(), count.into())]);
        let ledgers = before.ledger.as_ref().zip(after.ledger.as_ref());
        checked
            .and_then(|()| {
                ledgers.map_or(Ok(()), |(before, after)| check_ledger(before, after, count.into(), false).map(drop))
            })
            .map_err(|error| failed_by(name, &error))
    }

    /// On a blocking thread, because our own server needs the runtime's threads.
    async fn ask<T>(&self, command: serde_json::Value) -> Result<T, CommandError>
    where
        T: for<'a> Deserialize<'a> + Send + 'static,
    {
        let process = self.process.clone();
        let asked = move || process.lock().unwrap_or_else(PoisonError::into_inner).ask(command);
        tokio::task::spawn_blocking(asked).await.expect("asking does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{FAR, NEAR};
    use super::*;

    #[test]
    fn only_pushy_has_more_requests_at_once_than_streams() {
        assert_eq!(Kind::Apns2.concurrency(NEAR), [200, 2000]);
        assert_eq!(Kind::Gorush.concurrency(FAR), [1300, 13_000]);
        assert_eq!(Kind::Gorush.concurrency(Case { streams: 20, connections: 2, ..NEAR }), [40, 40]);
        assert_eq!(Kind::Pushy.concurrency(NEAR), [4000, 4000]);
    }

    #[test]
    fn a_missing_peer_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Kind::ALL.iter().all(|kind| kind.program(folder.path()).is_none()));
        let peers = Peers { found: Vec::new(), missing: vec![Kind::Gorush], folder: "target/peers".into() };
        assert_eq!(peers.notes(), ["gorush: not found in target/peers (conformance/peers.sh builds it)."]);
    }

    #[test]
    fn every_device_has_a_message_in_its_language() {
        let work = Work::new();
        for token in work.tokens.iter().take(8) {
            let language = usize::from(token.as_bytes()[1] - b'0');
            assert_eq!(&token[..1], "0");
            assert!(work.messages[language].title.starts_with(LANGUAGES[language].title));
        }
    }
}
