//! What the providers of the flood do to the server, how many answers they may have lost, and in which order they have
//! accepted events for a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;
use tidings_simulator::{Faults, MessageEntry, Refusal};
use tidings_types::{DeviceId, EventId, NotificationId, Provider};
use tokio::time::sleep;

use crate::order::Place;
use crate::population::{EVENT_COUNT, FLOOD, NEWER, Population, collapse_id};
use crate::simulators::{
    Acceptance, GONE_SHARE, PROVIDER_COUNT, SHARE, STREAM_COUNT_MAX, Simulators, Streams, Tally, provider_of,
    usual_faults,
};
use crate::{device_id, event_id};

/// From the request to the answer, and up to `jitter_ms` more.
const DELAY_MS: u64 = 20;
/// Connections that a provider has at first; more come when these are not enough.
const CONNECTION_COUNT: f64 = 2.0;

/// The streams the providers allow, so few that a life lasts: so many in a second go out, with more connections twice
/// as many.
pub(crate) fn streams_for(rate: f64) -> Streams {
    let streams = rate * DELAY_MS as f64 / 1000.0 / CONNECTION_COUNT;
    let [apns, fcm, web_push] = STREAM_COUNT_MAX;
    let part = (streams / f64::from(SHARE)).ceil() as u32;
    Streams([(streams.ceil() as u32).clamp(1, apns), part.clamp(1, fcm), part.clamp(1, web_push)])
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

    /// For a provider that reaches one in `share` devices. With few devices what is rare is made less so.
    fn faults<R: Refusal>(&self, audience: u32, share: u32, stream_limit: u32) -> Faults<R> {
        let rare = (5.0 / f64::from(audience)).max(0.000_03) * f64::from(share);
        // Oftener than a connection has streams, more would be lost than got through.
        let goaway_every = u64::from((audience / 50 / share).clamp(2 * STREAM_COUNT_MAX[0], 5000));
        Faults {
            delay_ms: DELAY_MS,
            unavailable_probability: self.unavailable,
            retry_after_secs: self.retry_after_secs,
            goaway_abrupt: self.goaway_abrupt,
            ..usual_faults(stream_limit, rare, goaway_every)
        }
    }
}

/// The providers, and what they have seen beside their ledgers.
pub(crate) struct Providers {
    pub(crate) simulators: Simulators,
    witness: Arc<Witness>,
    audience: u32,
    pub(crate) streams: Streams,
    /// Answers that were lost with a connection, at most.
    unknown: [u64; PROVIDER_COUNT],
    goaways: [u64; PROVIDER_COUNT],
    resets: [u64; PROVIDER_COUNT],
    is_abrupt: bool,
}

/// What they tell as it happens.
#[derive(Default)]
struct Witness {
    /// When the first accepted something in this life; 0 before.
    first_at: AtomicU64,
    /// Acceptances that replace something else than the event does, or are of no device or event of ours.
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
    fn see(&self, Acceptance { device, event, collapse_id: found, at, .. }: Acceptance<'_>) {
        let _ = self.first_at.compare_exchange(0, at.as_millis(), Relaxed, Relaxed);
        let is_named = event.is_some_and(|event| found == Some(&*collapse_id(event)));
        self.misnamed.fetch_add(u64::from(!is_named || device.is_none()), Relaxed);
        let Some(event) = event.filter(|event| (*event as usize) < EVENT_COUNT) else { return };
        self.accepted[event as usize].fetch_add(1, Relaxed);
        let Some(last) = device.and_then(|device| self.last.get(device as usize)) else { return };
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
    pub(crate) fn start(population: Population, streams: Streams) -> Self {
        let last = population.all().map(|_| AtomicU8::default()).collect();
        let witness = Arc::new(Witness { last, ..Witness::default() });
        let seen = witness.clone();
        let simulators = Simulators::start(population.all().end, population.seed, move |accepted| seen.see(accepted));
        let (audience, none) = (population.audience, [0; PROVIDER_COUNT]);
        Self { simulators, witness, audience, streams, unknown: none, goaways: none, resets: none, is_abrupt: false }
    }

    /// When the first provider accepted something in this life, in milliseconds of Unix time.
    pub(crate) fn first_push_at(&self) -> Option<u64> {
        Some(self.witness.first_at.load(Relaxed)).filter(|at| *at > 0)
    }

    /// Acceptances that replace something else than the event does, or are of no device or event of ours.
    pub(crate) fn misnamed_total(&self) -> u64 {
        self.witness.misnamed.load(Relaxed)
    }

    /// Acceptances of the older event after the newer one for a device, in one life.
    pub(crate) fn reversed_total(&self) -> u64 {
        self.witness.reversed.load(Relaxed)
    }

    /// The same, but with a kill between the two.
    pub(crate) fn revived_total(&self) -> u64 {
        self.witness.revived.load(Relaxed)
    }

    /// Acceptances of an event.
    pub(crate) fn accepted_of(&self, event: u32) -> u64 {
        self.witness.accepted[event as usize].load(Relaxed)
    }

    /// Which of the two with one key a device was last accepted.
    pub(crate) fn last(&self, device: u32) -> Option<Place> {
        match self.witness.last[device as usize].load(Relaxed) {
            0 => None,
            LAST_OLDER => Some(Place::Older),
            _ => Some(Place::Newer),
        }
    }

    pub(crate) fn accepted_total(&self) -> u64 {
        self.simulators.accepted().iter().sum()
    }

    /// How often each of our events was accepted for a device.
    pub(crate) fn counts(&self, device: u32) -> [u32; EVENT_COUNT] {
        let mut counts = [0; EVENT_COUNT];
        for entry in self.simulators.entries(device) {
            let count = event_of_entry(device, &entry).and_then(|event| counts.get_mut(event as usize));
            count.into_iter().for_each(|count| *count += entry.count);
        }
        counts
    }

    /// The streams of all connections, and of as many again that were sent away and still finish theirs. What is in
    /// flight, and what a provider that stops may leave unanswered.
    pub(crate) fn in_flight_max(&self, provider: Provider) -> u64 {
        2 * self.streams.in_flight_max(provider)
    }

    pub(crate) fn set(&mut self, weather: &Weather) {
        let (audience, Streams([apns, fcm, web_push])) = (self.audience, self.streams);
        let apns = Faults {
            stream_limit_before_token: Some(1),
            too_many_requests_probability: 0.0005,
            ..weather.faults(audience, 1, apns)
        };
        // A `Retry-After` makes the server pause the whole push service.
        let web_push = Faults { unavailable_probability: 0.0005, ..weather.faults(audience, SHARE, web_push) };
        self.simulators.set_faults(apns, weather.faults(audience, SHARE, fcm), web_push);
        self.is_abrupt = weather.goaway_abrupt;
    }

    pub(crate) fn set_calm(&mut self) {
        fn calm<R: Refusal>() -> Faults<R> {
            Faults { gone_share: GONE_SHARE, ..Faults::default() }
        }
        self.simulators.set_faults(calm(), calm(), calm());
    }

    /// Away for a moment, with answers still owed.
    pub(crate) async fn go_out(&mut self, patience: Duration) {
        self.simulators.stop();
        for provider in Provider::ALL {
            self.unknown[*provider as usize] += self.in_flight_max(*provider);
        }
        sleep(patience).await;
        self.simulators.listen();
    }

    /// How many answers of each provider were lost in this life, at most.
    pub(crate) fn end_life(&mut self) -> [u64; PROVIDER_COUNT] {
        let mut lost = std::mem::take(&mut self.unknown);
        for (provider, Tally { resets, goaways, .. }) in self.simulators.tallies().into_iter().enumerate() {
            let reset = resets - std::mem::replace(&mut self.resets[provider], resets);
            let sent_away = goaways - std::mem::replace(&mut self.goaways[provider], goaways);
            let cut = reset + if self.is_abrupt { sent_away } else { 0 };
            lost[provider] += cut * u64::from(self.streams.0[provider]);
        }
        self.witness.end_life();
        lost
    }
}

/// Which event a line of a device's ledger is of: at APNs by its id, elsewhere by the title, which ends in the number.
pub(crate) fn event_of_entry(device: u32, entry: &MessageEntry) -> Option<u32> {
    if provider_of(device) != Provider::Apns {
        return entry.title.as_deref()?.rsplit(' ').next()?.parse().ok();
    }
    let device = DeviceId::new(&device_id(device)).expect("ours are short");
    let id = |event: u32| NotificationId::new(&EventId::new(&event_id(event)).expect("ours are short"), &device);
    (0..EVENT_COUNT as u32).find(|event| id(*event).0 == entry.id)
}
