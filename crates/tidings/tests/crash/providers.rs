//! The providers of the flood, what they do to the server, how many answers they may have lost, and in which order
//! they have accepted events for a device.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;
use tidings_simulator::{
    AcceptedNotification, ApnsSimulator, Faults, FcmConfig, FcmReason, FcmSimulator, LedgerSummary, MessageEntry,
    Reason, Refusal, SimulatorConfig, collapse_hash,
};
use tidings_types::{DeviceId, EventId, NotificationId};
use tokio::time::sleep;

use crate::order::Place;
use crate::population::{COLLAPSE_KEY, EVENT_COUNT, FCM_EVERY, FLOOD, NEWER, Population, collapse_id};
use crate::{APP, CONNECTION_COUNT_MAX, QUARANTINE_CONNECTION_COUNT, STREAM_COUNT_MAX, device_id, event_id, event_of};

/// The same ones always.
const GONE_SHARE: f64 = 0.005;
const FCM_CONNECTION_COUNT_MAX: u32 = 4;
const FCM_STREAM_COUNT_MAX: u32 = 100;
/// From the request to the answer, and up to so much more.
const DELAY_MS: u64 = 20;
const JITTER_MS: u64 = 3;
/// Connections that a provider has at first; more come when these are not enough.
const CONNECTION_COUNT: f64 = 2.0;

/// The streams the providers allow, so few that a life lasts: `CONNECTION_COUNT` × streams in each delay.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    apns: u32,
    fcm: u32,
}

impl Pace {
    /// So many in a second, or with more connections twice as many.
    pub(crate) fn new(rate: f64) -> Self {
        let streams = rate * DELAY_MS as f64 / 1000.0 / CONNECTION_COUNT;
        let fcm = (streams / f64::from(FCM_EVERY)).ceil() as u32;
        Self { apns: (streams.ceil() as u32).clamp(1, STREAM_COUNT_MAX), fcm: fcm.clamp(1, FCM_STREAM_COUNT_MAX) }
    }

    /// The streams of all connections, of the quarantine too, and of as many again that were sent away and still
    /// finish theirs. What is in flight, and what a provider that stops may leave unanswered.
    pub(crate) fn in_flight_max(self) -> u64 {
        let apns = (CONNECTION_COUNT_MAX + QUARANTINE_CONNECTION_COUNT) * self.apns;
        2 * u64::from(apns + FCM_CONNECTION_COUNT_MAX * self.fcm)
    }
}

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
            delay_ms: DELAY_MS,
            jitter_ms: JITTER_MS,
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
    pace: Pace,
    /// Answers that were lost with a connection, at most.
    unknown: u64,
    goaways: u64,
    resets: u64,
    is_abrupt: bool,
}

/// What APNs tells as it happens.
#[derive(Default)]
struct Witness {
    /// When it first accepted something in this life; 0 before.
    first_at: AtomicU64,
    /// Acceptances with another collapse id than the event's.
    misnamed: AtomicU64,
    /// By event.
    accepted: [AtomicU64; EVENT_COUNT],
    /// By device, which of the two with one key was accepted last; one of the codes below.
    last: Vec<AtomicU8>,
    /// Acceptances of the older one after the newer one in the same life.
    reversed: AtomicU64,
    /// Of the older one after the newer one of an earlier life.
    revived: AtomicU64,
}

const LAST_OLDER: u8 = 1;
const LAST_NEWER: u8 = 2;
const LAST_NEWER_IN_THIS_LIFE: u8 = 3;

impl Witness {
    fn see(&self, AcceptedNotification { token, collapse_id: found, payload, at, .. }: AcceptedNotification<'_>) {
        let _ = self.first_at.compare_exchange(0, at.as_millis(), Relaxed, Relaxed);
        let event = event_of(payload);
        let is_named = event.is_some_and(|event| found == Some(collapse_id(event).as_bytes()));
        self.misnamed.fetch_add(u64::from(!is_named), Relaxed);
        let Some(event) = event.filter(|event| (*event as usize) < EVENT_COUNT) else { return };
        self.accepted[event as usize].fetch_add(1, Relaxed);
        let device = token.as_bytes().first_chunk().map(|number| u32::from_be_bytes(*number) as usize);
        let Some(last) = device.and_then(|device| self.last.get(device)) else { return };
        match event {
            FLOOD => {
                let before = last.swap(LAST_OLDER, Relaxed);
                self.reversed.fetch_add(u64::from(before == LAST_NEWER_IN_THIS_LIFE), Relaxed);
                self.revived.fetch_add(u64::from(before == LAST_NEWER), Relaxed);
            }
            NEWER => last.store(LAST_NEWER_IN_THIS_LIFE, Relaxed),
            _ => {}
        }
    }

    fn end_life(&self) {
        self.first_at.store(0, Relaxed);
        for last in &self.last {
            let _ = last.compare_exchange(LAST_NEWER_IN_THIS_LIFE, LAST_NEWER, Relaxed, Relaxed);
        }
    }
}

impl Providers {
    pub(crate) fn start(population: Population, pace: Pace) -> Self {
        let last = population.all().map(|_| AtomicU8::default()).collect();
        let witness = Arc::new(Witness { last, ..Witness::default() });
        let seen = witness.clone();
        let on_accepted = move |accepted: AcceptedNotification<'_>| seen.see(accepted);
        let Population { seed, .. } = population;
        let config = SimulatorConfig { seed, topics: vec![APP.to_owned()], ..Default::default() };
        let apns = ApnsSimulator::start_observed(config, Arc::new(on_accepted)).unwrap();
        let fcm = FcmSimulator::start(FcmConfig { seed, ..Default::default() }).unwrap();
        Self { apns, fcm, witness, population, pace, unknown: 0, goaways: 0, resets: 0, is_abrupt: false }
    }

    /// When APNs first accepted something in this life, in milliseconds of Unix time.
    pub(crate) fn first_push_at(&self) -> Option<u64> {
        Some(self.witness.first_at.load(Relaxed)).filter(|at| *at > 0)
    }

    /// Acceptances with another collapse id than the event's.
    pub(crate) fn misnamed_total(&self) -> u64 {
        self.witness.misnamed.load(Relaxed)
    }

    /// Acceptances by APNs of the older event after the newer one for a device, in one life.
    pub(crate) fn reversed_total(&self) -> u64 {
        self.witness.reversed.load(Relaxed)
    }

    /// The same, but with a kill between the two.
    pub(crate) fn revived_total(&self) -> u64 {
        self.witness.revived.load(Relaxed)
    }

    /// Acceptances of an event by APNs.
    pub(crate) fn apns_accepted(&self, event: u32) -> u64 {
        self.witness.accepted[event as usize].load(Relaxed)
    }

    /// Which of the two with one key a device was last accepted.
    pub(crate) fn last(&self, device: u32) -> Option<Place> {
        let event = if Population::is_fcm(device) {
            let shown = self.fcm.ledger().shown_at(self.population.token(device).as_bytes());
            let tag = Some(collapse_hash(COLLAPSE_KEY.as_bytes()));
            shown.iter().find(|entry| entry.tag_hash == tag).and_then(|entry| event_of_entry(device, entry))
        } else {
            match self.witness.last[device as usize].load(Relaxed) {
                0 => None,
                LAST_OLDER => Some(FLOOD),
                _ => Some(NEWER),
            }
        };
        event.map(|event| if event == NEWER { Place::Newer } else { Place::Older })
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

    /// How often each of our events was accepted for a device.
    pub(crate) fn counts(&self, device: u32) -> [u32; EVENT_COUNT] {
        let mut counts = [0; EVENT_COUNT];
        for entry in self.entries(device) {
            let count = event_of_entry(device, &entry).and_then(|event| counts.get_mut(event as usize));
            count.into_iter().for_each(|count| *count += entry.count);
        }
        counts
    }

    pub(crate) fn in_flight_max(&self) -> u64 {
        self.pace.in_flight_max()
    }

    pub(crate) fn set(&mut self, weather: &Weather) {
        let audience = self.population.audience;
        let apns = Faults::<Reason> {
            stream_limit_before_token: Some(1),
            too_many_requests_probability: 0.0005,
            ..weather.faults(audience, self.pace.apns)
        };
        self.apns.set_faults(apns).unwrap();
        self.fcm.set_faults(weather.faults(audience, self.pace.fcm)).unwrap();
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
        self.unknown += self.in_flight_max();
        sleep(patience).await;
        self.listen();
    }

    /// How many answers were lost in this life, at most.
    pub(crate) fn end_life(&mut self) -> u64 {
        let (apns, fcm) = self.summaries();
        let resets = apns.resets + fcm.resets - std::mem::replace(&mut self.resets, apns.resets + fcm.resets);
        let goaways = apns.goaways + fcm.goaways - std::mem::replace(&mut self.goaways, apns.goaways + fcm.goaways);
        let cut = resets + if self.is_abrupt { goaways } else { 0 };
        self.witness.end_life();
        std::mem::take(&mut self.unknown) + cut * u64::from(self.pace.apns.max(self.pace.fcm))
    }
}

/// Which event a line of a device's ledger is of: at APNs by its id, at FCM by the title, which ends in the number.
pub(crate) fn event_of_entry(device: u32, entry: &MessageEntry) -> Option<u32> {
    if Population::is_fcm(device) {
        return entry.title.as_deref()?.rsplit(' ').next()?.parse().ok();
    }
    let device = DeviceId::new(&device_id(device)).expect("ours are short");
    let id = |event: u32| NotificationId::new(&EventId::new(&event_id(event)).expect("ours are short"), &device);
    (0..EVENT_COUNT as u32).find(|event| id(*event).0 == entry.id)
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
connection_count = {FCM_CONNECTION_COUNT_MAX}
connection_count_max = {FCM_CONNECTION_COUNT_MAX}
stream_count_max = {FCM_STREAM_COUNT_MAX}
lake_capacity = {FCM_STREAM_COUNT_MAX}
"#
    )
}
