//! A goal to Android devices: how close the time for all of them comes to what Google's quota allows.
//!
//! Two measurements. In *virtual time*, only the quota's pacing ([`Quota`]) sends 60 000 notifications after ten quiet
//! minutes; it is asked every 10 ms, as a gateway asks it. In *real time*, a whole server with its defaults sends them to
//! a simulated FCM in another process. That FCM has a round trip of [`ROUND_TRIP_MS`], allows 100 streams per
//! connection, and has the same quota. The first event comes right after the server's start, the others after 10 quiet
//! seconds each.
//!
//! The quota allows the number of devices divided by the quota per second. 99 % must be answered within 1.2 times that.
//! The server's preview is requested before each event, and its estimate is shown too.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_push::pacing::Quota;
use tidings_server::command_error::{CommandError, failed_by};
use tidings_simulator::{Faults, FcmConfig, FcmReason, FcmSimulator, LedgerSummary};
use tidings_types::{EventPriority, Platform, TimeTo, Timestamp};
use tokio::time::sleep;

use super::job::{self, Door};
use super::provider::check_summary;
use super::setup::{self, APP, Folder};
use crate::args::PeerRole;
use crate::peer::{self, Peer};
use crate::process::Cores;
use crate::report::{Goal, Report, column, progress};
use tidings_server::Server;

/// Audience of the goal.
const AUDIENCE: u32 = 60_000;
/// Google's default, and the server's.
const QUOTA_PER_MINUTE: u32 = 600_000;
/// About the round trip that was measured to FCM.
const ROUND_TRIP_MS: u64 = 70;
/// Quiet time before the goal: in virtual and in real time.
const QUIET_VIRTUAL: Duration = Duration::from_secs(600);
const QUIET_REAL: Duration = Duration::from_secs(10);
/// How often a gateway asks a spent quota.
const ASK: Duration = Duration::from_millis(10);
/// The time for 99 %, as a multiple of what the quota allows.
const GOAL: f64 = 1.2;

/// How to reach the simulator.
#[derive(Serialize, Deserialize)]
struct Greeting {
    port: u16,
    ca_pem: String,
    account: String,
}

/// The one command. The answer is a [`LedgerSummary`].
#[derive(Serialize, Deserialize)]
struct Ask {}

/// Simulates until standard input ends. Blocks: the simulator has a thread of its own.
pub(in super::super) fn serve() -> Result<(), CommandError> {
    let faults = Faults { round_trip_ms: ROUND_TRIP_MS, quota_count: QUOTA_PER_MINUTE.into(), ..Faults::default() };
    let simulator = FcmSimulator::start(FcmConfig { faults, ..FcmConfig::default() })
        .map_err(|error| failed_by("cannot start the simulator", &error))?;
    peer::answer(Greeting {
        port: simulator.addr().port(),
        ca_pem: simulator.ca_pem().to_owned(),
        account: simulator.service_account_json(),
    })?;
    peer::follow(|Ask {}| peer::answer(simulator.ledger().summary()))
}

/// Runs both measurements. The event after a quiet time is repeated `runs` times.
pub(super) async fn run(runs: u32, cores: &Cores, dir: Option<&Path>, report: &mut Report) -> Result<(), CommandError> {
    let [half, nearly, all] = virtual_seconds();
    let name = format!("fcm: {AUDIENCE} devices, virtual time");
    report.measure(format!("{name}: 50 % sent"), "s", vec![half]);
    report.measure(format!("{name}: 99 %"), "s", vec![nearly]);
    report.measure(format!("{name}: 100 %"), "s", vec![all]);
    report.judge(format!("{name}: 99 %, of the quota's time"), "×", vec![nearly / allowed(0.99)], Goal::AtMost(GOAL));

    let folder = Folder::make(dir)?;
    setup::import(&folder, &[AUDIENCE], Platform::Android).await?;
    let (mut peer, greeting) = Peer::start::<Greeting>(PeerRole::Fcm, &cores.load[..1])?;
    let server = start(&folder, &greeting).await?;
    let mut goals = Goals { door: Door::of(&server), server: &server, peer: &mut peer, count: 0 };
    progress("fcm: after the start");
    let first = goals.tell(report).await?;
    let mut quiet = Vec::new();
    for run in 1..=runs {
        progress(format!("fcm: after {} quiet seconds, run {run} of {runs}", QUIET_REAL.as_secs()));
        sleep(QUIET_REAL).await;
        quiet.push(goals.tell(report).await?);
    }
    server.stop().await;
    tell(&format!("fcm: {AUDIENCE} devices, after the start"), &[first], report);
    tell(&format!("fcm: {AUDIENCE} devices, after {} s", QUIET_REAL.as_secs()), &quiet, report);
    report.note(format!(
        "fcm: a round trip of {ROUND_TRIP_MS} ms, 100 streams per connection, and a quota of {QUOTA_PER_MINUTE} a minute, \
         which allows {AUDIENCE} in {} s. In virtual time only the pacing is measured, after ten quiet minutes.",
        allowed(1.0)
    ));
    Ok(())
}

/// Seconds that the quota needs for this part of the devices.
fn allowed(part: f64) -> f64 {
    part * f64::from(AUDIENCE) * 60.0 / f64::from(QUOTA_PER_MINUTE)
}

/// Seconds until the pacing alone has sent 50 %, 99 % and all, after ten quiet minutes.
fn virtual_seconds() -> [f64; 3] {
    let start = Timestamp(1_800_000_000_000);
    let mut quota = Quota::new(QUOTA_PER_MINUTE, Duration::ZERO, start);
    let began = start.saturating_add(QUIET_VIRTUAL);
    let (mut now, mut sent) = (began, 0);
    [AUDIENCE / 2, AUDIENCE / 100 * 99, AUDIENCE].map(|wanted| {
        loop {
            sent += quota.take((wanted - sent) as usize, now) as u32;
            if sent == wanted {
                return now.saturating_since(began).as_secs_f64();
            }
            now = now.saturating_add(ASK);
        }
    })
}

/// Starts a server with its defaults and this one provider.
async fn start(folder: &Folder, greeting: &Greeting) -> Result<Server, CommandError> {
    fs::write(folder.path("ca.pem"), &greeting.ca_pem)?;
    fs::write(folder.path("account.json"), &greeting.account)?;
    let text = format!(
        "{}[fcm.bench]\nhost = \"localhost\"\nport = {}\nservice_account_file = {}\nca_file = {}\n\
         apps = [\"{APP}\"]\n",
        folder.common_text(),
        greeting.port,
        folder.quoted("account.json"),
        folder.quoted("ca.pem"),
    );
    setup::start_configured(&text).await
}

struct Goals<'a> {
    door: Door,
    server: &'a Server,
    peer: &'a mut Peer,
    count: u32,
}

/// The result of one goal.
struct Sample {
    time_to: TimeTo,
    /// The preview's estimate in seconds.
    forecast: f64,
}

impl Goals<'_> {
    /// Posts an event to all devices, and checks in the ledger that each got it once.
    async fn tell(&mut self, report: &mut Report) -> Result<Sample, CommandError> {
        self.count += 1;
        let before: LedgerSummary<FcmReason> = self.peer.ask(Ask {})?;
        let forecast = self.door.forecast(AUDIENCE).await?;
        let position = self.door.post(&format!("fcm-{}", self.count), AUDIENCE, EventPriority::High).await?;
        let time_to = job::finished(self.server, position, AUDIENCE).await?;
        report.answered("fcm", check_summary(&before, &self.peer.ask(Ask {})?, AUDIENCE.into())?)?;
        Ok(Sample { time_to, forecast })
    }
}

fn tell(name: &str, samples: &[Sample], report: &mut Report) {
    let column = |field: fn(&Sample) -> f64| column(samples, field);
    let nearly = column(|sample| sample.time_to.p99.as_secs_f64());
    let ratios = nearly.iter().map(|seconds| seconds / allowed(0.99)).collect();
    report.measure(format!("{name}: 50 % answered"), "s", column(|sample| sample.time_to.p50.as_secs_f64()));
    report.measure(format!("{name}: 99 %"), "s", nearly);
    report.measure(format!("{name}: 100 %"), "s", column(|sample| sample.time_to.p100.as_secs_f64()));
    report.measure(format!("{name}: 100 %, by the preview"), "s", column(|sample| sample.forecast));
    report.judge(format!("{name}: 99 %, of the quota's time"), "×", ratios, Goal::AtMost(GOAL));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_quiet_minutes_the_pacing_is_as_fast_as_the_quota() {
        let [half, nearly, all] = virtual_seconds();
        assert!(half < nearly && nearly < all && all <= allowed(1.0), "{half} s, {nearly} s, {all} s");
    }
}
