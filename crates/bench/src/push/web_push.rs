//! Browsers: how fast one push service gets notifications, each encrypted for its browser.
//!
//! A whole server with its defaults sends to a simulated push service in another process. That service has a round trip
//! of [`ROUND_TRIP_MS`] and speaks HTTP/2 with [`STREAM_LIMIT`] streams per connection. The server has one core for
//! selection, encryption (a P-256 key pair and key agreement per notification), TLS and accounting. The service decrypts
//! and checks every notification on its own core.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_server::command_error::{CommandError, failed_by};
use tidings_simulator::{
    Faults, LedgerSummary, PushKeys, PushSubscription, WebPushConfig, WebPushReason, WebPushSimulator,
};
use tidings_types::{DeviceToken, EventPriority, Platform, TimeTo};

use super::job::{self, Door};
use super::provider::check_summary;
use super::setup::{self, APP, Folder};
use crate::args::PeerRole;
use crate::peer::{self, Peer};
use crate::process::{Cores, Usage};
use crate::report::{Goal, Report, column, progress};
use tidings_server::Server;

const AUDIENCE: u32 = 50_000;
const ROUND_TRIP_MS: u64 = 50;
/// The limit of large services.
const STREAM_LIMIT: u32 = 100;
const GOAL_RATE: f64 = 10_000.0;

/// Address of the simulator, and the server's VAPID key.
#[derive(Serialize, Deserialize)]
struct Greeting {
    port: u16,
    ca_pem: String,
    vapid_key: String,
}

/// A command.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// Subscribe so many browsers. The answer is a list of [`PushSubscription`].
    Subscribe(u32),
    /// Answered with [`Seen`].
    Seen,
}

/// What the simulator has received and used so far.
type Seen = (LedgerSummary<WebPushReason>, Usage);

/// Simulates until standard input ends. Blocks: the simulator has a thread of its own.
pub(in super::super) fn serve() -> Result<(), CommandError> {
    let faults = Faults { round_trip_ms: ROUND_TRIP_MS, stream_limit: STREAM_LIMIT, ..Faults::default() };
    let simulator = WebPushSimulator::start(WebPushConfig { faults, ..WebPushConfig::default() })
        .map_err(|error| failed_by("cannot start the simulator", &error))?;
    let (port, ca_pem) = (simulator.addr().port(), simulator.ca_pem().to_owned());
    peer::answer(Greeting { port, ca_pem, vapid_key: simulator.vapid_key() })?;
    let sender = simulator.application_server_key();
    peer::follow(|asked| match asked {
        Ask::Subscribe(count) => {
            peer::answer((0..count).filter_map(|_| simulator.subscribe(Some(&sender))).collect::<Vec<_>>())
        }
        Ask::Seen => peer::answer((simulator.ledger().summary(), Usage::now()?)),
    })
}

/// The result of one event.
struct Sample {
    time_to: TimeTo,
    server_micros: f64,
    provider_micros: f64,
}

/// Sends to all browsers `runs` times, after one event that warms up.
pub(super) async fn run(runs: u32, cores: &Cores, dir: Option<&Path>, report: &mut Report) -> Result<(), CommandError> {
    let (mut peer, greeting) = Peer::start::<Greeting>(PeerRole::WebPush, &cores.load[..1])?;
    let folder = Folder::make(dir)?;
    let subscriptions: Vec<PushSubscription> = peer.ask(Ask::Subscribe(AUDIENCE))?;
    setup::import_as(&folder, &[AUDIENCE], |number| {
        let PushSubscription { endpoint, keys: PushKeys { p256dh, auth }, .. } = &subscriptions[number as usize];
        let token = DeviceToken::web_push(endpoint, p256dh, auth).expect("the simulator's subscriptions are valid");
        setup::device_with(Platform::Web, number, token)
    })
    .await?;
    let server = start(&folder, &greeting).await?;
    let door = Door::of(&server);
    let mut samples = Vec::new();
    for run in 0..=runs {
        progress(format!("web push: run {run} of {runs}"));
        let sample = tell(&door, &server, &mut peer, run, report).await?;
        samples.extend((run > 0).then_some(sample)); // The first warms up.
    }
    let (LedgerSummary { connections, .. }, _): Seen = peer.ask(Ask::Seen)?;
    server.stop().await;
    let name = format!("web push: {AUDIENCE} browsers of one service, {ROUND_TRIP_MS} ms away");
    let column = |field: fn(&Sample) -> f64| column(&samples, field);
    let rate = |sample: &Sample| f64::from(AUDIENCE) / sample.time_to.p100.as_secs_f64();
    report.judge(format!("{name}: rate"), "/s", column(rate), Goal::AtLeast(GOAL_RATE));
    report.measure(format!("{name}: 50 % answered"), "s", column(|sample| sample.time_to.p50.as_secs_f64()));
    report.measure(format!("{name}: CPU per notification"), "µs", column(|sample| sample.server_micros));
    report.measure(format!("{name}: the service's CPU"), "µs", column(|sample| sample.provider_micros));
    report.note(format!(
        "web push: HTTP/2 with {STREAM_LIMIT} streams per connection; {connections} connections were made in all."
    ));
    Ok(())
}

/// Sends to all browsers, and checks in the ledger that each got it once.
async fn tell(
    door: &Door,
    server: &Server,
    peer: &mut Peer,
    run: u32,
    report: &mut Report,
) -> Result<Sample, CommandError> {
    let (seen, of_provider): Seen = peer.ask(Ask::Seen)?;
    let of_server = Usage::now()?;
    let position = door.post(&format!("web-push-{run}"), AUDIENCE, EventPriority::High).await?;
    let time_to = job::finished(server, position, AUDIENCE).await?;
    let (seen_after, of_provider_after): Seen = peer.ask(Ask::Seen)?;
    let server_cpu = Usage::now()?.cpu - of_server.cpu;
    report.answered("web push", check_summary(&seen, &seen_after, AUDIENCE.into())?)?;
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / f64::from(AUDIENCE);
    Ok(Sample {
        time_to,
        server_micros: micros(server_cpu),
        provider_micros: micros(of_provider_after.cpu - of_provider.cpu),
    })
}

/// Starts a server with its defaults and this one service.
async fn start(folder: &Folder, greeting: &Greeting) -> Result<Server, CommandError> {
    fs::write(folder.path("ca.pem"), &greeting.ca_pem)?;
    fs::write(folder.path("vapid.key"), &greeting.vapid_key)?;
    let text = format!(
        "{}[web_push.bench]\nvapid_key_file = {}\ncontact = \"mailto:bench@example.com\"\nca_file = {}\n\
         allowed_hosts = [\"localhost\"]\nallowed_ports = [{}]\nallow_private = true\napps = [\"{APP}\"]\n",
        folder.common_text(),
        folder.quoted("vapid.key"),
        folder.quoted("ca.pem"),
        greeting.port,
    );
    setup::start_configured(&text).await
}
