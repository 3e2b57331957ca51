//! The providers of the flood, what they do to the server, and how many answers they may have lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;
use tidings_simulator::{
    AcceptedNotification, ApnsSimulator, Faults, FcmConfig, FcmReason, FcmSimulator, LedgerSummary, MessageEntry,
    Reason, Refusal, SimulatorConfig,
};
use tokio::time::sleep;

use crate::flood::FLOOD;
use crate::population::Population;
use crate::{APP, CONNECTION_COUNT_MAX, QUARANTINE_CONNECTION_COUNT, STREAM_COUNT_MAX, event_id};

/// The same ones always.
const GONE_SHARE: f64 = 0.005;
const FCM_CONNECTION_COUNT_MAX: u32 = 4;
const FCM_STREAM_COUNT_MAX: u32 = 100;
/// What a provider that stops may leave unanswered: the streams of all connections, of the quarantine too.
pub(crate) const IN_FLIGHT_MAX: u32 = (CONNECTION_COUNT_MAX + QUARANTINE_CONNECTION_COUNT) * STREAM_COUNT_MAX
    + FCM_CONNECTION_COUNT_MAX * FCM_STREAM_COUNT_MAX;

/// What the providers do during one life of the server.
pub(crate) struct Weather {
    unavailable: f64,
    retry_after_secs: Option<u64>,
    goaway_abrupt: bool,
}

impl Weather {
    pub(crate) fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        Self {
            unavailable: [0.0005, 0.01][rng.random_range(0..2)],
            retry_after_secs: [None, Some(1)][rng.random_range(0..2)],
            goaway_abrupt: rng.random_ratio(1, 4),
        }
    }

    /// In a small audience what is rare is made less so.
    fn faults<R: Refusal>(&self, audience: u32, stream_limit: u32) -> Faults<R> {
        let rare = 5.0 / f64::from(audience);
        Faults {
            jitter_ms: 3,
            stream_limit,
            die_after_accept_probability: 0.05,
            refuse_probability: 0.001,
            reset_before_probability: rare.max(0.000_03),
            reset_after_probability: rare.max(0.000_03),
            stall_probability: rare.max(0.000_02),
            stall_ms: 200,
            internal_error_probability: 0.0005,
            unavailable_probability: self.unavailable,
            retry_after_secs: self.retry_after_secs,
            gone_share: GONE_SHARE,
            // Oftener than a connection has streams, more would be lost than got through.
            goaway_every: u64::from((audience / 50).clamp(2 * STREAM_COUNT_MAX, 5000)),
            goaway_abrupt: self.goaway_abrupt,
            ..Faults::default()
        }
    }
}

/// The providers, and what they have seen beside their ledgers.
pub(crate) struct Providers {
    pub(crate) apns: ApnsSimulator,
    pub(crate) fcm: FcmSimulator,
    witness: Arc<Witness>,
    population: Population,
    /// Answers that were lost with a connection, at most.
    unknown: u64,
    goaways: u64,
    resets: u64,
    is_abrupt: bool,
}

#[derive(Default)]
struct Witness {
    /// When APNs first accepted something in this life; 0 before.
    first_at: AtomicU64,
    /// Acceptances with another collapse id than the event's.
    misnamed: AtomicU64,
}

impl Providers {
    pub(crate) fn start(population: Population) -> Self {
        let witness = Arc::new(Witness::default());
        let seen = witness.clone();
        let collapse_id = event_id(FLOOD);
        let on_accepted = move |accepted: AcceptedNotification<'_>| {
            let _ = seen.first_at.compare_exchange(0, accepted.at.as_millis(), Relaxed, Relaxed);
            seen.misnamed.fetch_add(u64::from(accepted.collapse_id != Some(collapse_id.as_bytes())), Relaxed);
        };
        let Population { seed, .. } = population;
        let config = SimulatorConfig { seed, topics: vec![APP.to_owned()], ..Default::default() };
        let apns = ApnsSimulator::start_observed(config, Arc::new(on_accepted)).unwrap();
        let fcm = FcmSimulator::start(FcmConfig { seed, ..Default::default() }).unwrap();
        Self { apns, fcm, witness, population, unknown: 0, goaways: 0, resets: 0, is_abrupt: false }
    }

    /// When APNs first accepted something in this life, in milliseconds of Unix time.
    pub(crate) fn first_push_at(&self) -> Option<u64> {
        Some(self.witness.first_at.load(Relaxed)).filter(|at| *at > 0)
    }

    /// Acceptances with another collapse id than the event's.
    pub(crate) fn misnamed_total(&self) -> u64 {
        self.witness.misnamed.load(Relaxed)
    }

    /// What both ledgers count.
    pub(crate) fn summaries(&self) -> (LedgerSummary, LedgerSummary<FcmReason>) {
        (self.apns.ledger().summary(), self.fcm.ledger().summary())
    }

    pub(crate) fn accepted_total(&self) -> u64 {
        self.apns.ledger().accepted_total() + self.fcm.ledger().accepted_total()
    }

    /// What the ledger has of a device.
    pub(crate) fn entries(&self, device: u32) -> Vec<MessageEntry> {
        let token = self.population.token(device);
        let (apns, fcm) = (self.apns.ledger(), self.fcm.ledger());
        if Population::is_fcm(device) { fcm.for_address(token.as_bytes()) } else { apns.for_address(token.as_bytes()) }
    }

    pub(crate) fn count_of(&self, device: u32) -> u32 {
        self.entries(device).iter().map(|entry| entry.count).sum()
    }

    pub(crate) fn set(&mut self, weather: &Weather) {
        let audience = self.population.audience;
        let apns = Faults::<Reason> {
            stream_limit_before_token: Some(1),
            too_many_requests_probability: 0.0005,
            ..weather.faults(audience, STREAM_COUNT_MAX)
        };
        self.apns.set_faults(apns).unwrap();
        self.fcm.set_faults(weather.faults(audience, FCM_STREAM_COUNT_MAX)).unwrap();
        self.is_abrupt = weather.goaway_abrupt;
    }

    pub(crate) fn set_calm(&mut self) {
        self.apns.set_faults(Faults { gone_share: GONE_SHARE, ..Faults::default() }).unwrap();
        self.fcm.set_faults(Faults { gone_share: GONE_SHARE, ..Faults::default() }).unwrap();
    }

    pub(crate) fn listen(&self) {
        self.apns.listen().unwrap();
        self.fcm.listen().unwrap();
    }

    pub(crate) fn stop(&self) {
        self.apns.stop();
        self.fcm.stop();
    }

    /// Away for a moment, with answers still owed.
    pub(crate) async fn go_out(&mut self, patience: Duration) {
        self.stop();
        self.unknown += u64::from(IN_FLIGHT_MAX);
        sleep(patience).await;
        self.listen();
    }

    /// How many answers were lost in this life, at most.
    pub(crate) fn end_life(&mut self) -> u64 {
        let (apns, fcm) = self.summaries();
        let resets = apns.resets + fcm.resets - std::mem::replace(&mut self.resets, apns.resets + fcm.resets);
        let goaways = apns.goaways + fcm.goaways - std::mem::replace(&mut self.goaways, apns.goaways + fcm.goaways);
        let cut = resets + if self.is_abrupt { goaways } else { 0 };
        self.witness.first_at.store(0, Relaxed);
        std::mem::take(&mut self.unknown) + cut * u64::from(STREAM_COUNT_MAX)
    }
}

/// What a ledger counts, for reading.
pub(crate) fn ledger_line<R: std::fmt::Debug>(summary: &LedgerSummary<R>) -> String {
    let LedgerSummary { accepted, rejected, resets, streams_refused, goaways, stalls, connections, .. } = summary;
    format!(
        "{accepted} accepted, refused {rejected:?}; {connections} connections, {resets} resets, {streams_refused} refused \
         streams, {goaways} goaways, {stalls} stalls"
    )
}

/// For the configuration.
pub(crate) fn fcm_section(folder: &Path, fcm: &FcmSimulator) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    let (account, ca, port) = (path("account.json"), path("google.pem"), fcm.addr().port());
    std::fs::write(&account, fcm.service_account_json()).unwrap();
    std::fs::write(&ca, fcm.ca_pem()).unwrap();
    format!(
        r#"
[fcm.simulator]
host = "localhost"
port = {port}
service_account_file = '{account}'
ca_file = '{ca}'
apps = ["{APP}"]
quota_per_minute = 10000000
connection_count_max = {FCM_CONNECTION_COUNT_MAX}
stream_count_max = {FCM_STREAM_COUNT_MAX}
lake_capacity = {FCM_STREAM_COUNT_MAX}
"#
    )
}
