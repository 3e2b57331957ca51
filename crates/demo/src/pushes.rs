//! Counts and checks what the phones get, at the moment when the provider accepts it.
//!
//! [`Pushes::on_accepted`] runs on a simulator's thread for every acceptance. It finds the event in the payload, records
//! the time since the event was sent, and compares each payload with the first one of its platform, event and language.
//! At the end, [`Pushes::settle`] compares the ledgers of the simulators with what each phone must get. Events that do
//! not belong to the match (the user tries the demo) are only counted.
//!
//! Memory: four bytes per phone, one payload per platform, event and language, one histogram per event and per platform.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tidings_server::screen::Notice;
use tidings_simulator::MessageEntry;
use tidings_telemetry::{Histogram, HistogramSnapshot};
use tidings_types::{NotificationId, Platform};

use super::clock::Clock;
use super::population::{LOCALES, Population, device_id, is_watching, platform_of};
use super::timeline::Moment;
use super::wording;

/// The accepted notifications so far.
pub(super) struct Pushes {
    clock: Clock,
    moments: Arc<[Moment]>,
    population: Arc<Population>,
    /// Phones with lower numbers have their app open.
    client_count: u32,
    /// Notifications that phones must get, by moment.
    owed: Box<[u64]>,
    /// The moments that each phone has got, as bits.
    got: Box<[AtomicU32]>,
    /// The first payload by platform, moment and language.
    payloads: Box<[OnceLock<Box<[u8]>>]>,
    latency: Histogram,
    by_platform: [Histogram; PLATFORM_COUNT],
    by_moment: Box<[Histogram]>,
    /// Different (phone, moment) pairs.
    accepted: AtomicU64,
    /// All acceptances, also of events that do not belong to the match.
    seen: AtomicU64,
    /// Payloads that differ from the first one of their platform, event and language.
    mixed: AtomicU64,
}

const PLATFORM_COUNT: usize = Platform::ALL.len();

/// The ledgers of the simulators.
pub(super) trait Ledgers {
    /// The notifications of a phone.
    fn entries(&self, number: u32) -> Vec<MessageEntry>;
    /// The number of all notifications, also of those that a ledger had no room for.
    fn count(&self) -> u64;
}

/// The result of comparing the ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PushVerdict {
    /// Notifications that did not arrive.
    pub(super) lost: u64,
    /// Repeated acceptances of a notification.
    pub(super) duplicates: u64,
    /// Notifications that a phone should not get, or whose id is unknown.
    pub(super) strangers: u64,
    /// Payloads with a wrong text.
    pub(super) wrong_texts: u64,
    /// Notifications that were not sent, because the app on the screen had acknowledged the event.
    pub(super) saved: u64,
    /// The first mistake, in words.
    pub(super) example: Option<String>,
}

impl PushVerdict {
    /// Keeps the first example.
    fn such_as(&mut self, example: impl FnOnce() -> String) {
        self.example.get_or_insert_with(example);
    }
}

impl Pushes {
    pub(super) fn new(clock: Clock, moments: Arc<[Moment]>, population: Arc<Population>, client_count: u32) -> Self {
        Self {
            clock,
            client_count,
            owed: (0..moments.len()).map(|moment| population.audience(moment)).collect(),
            got: (0..population.count()).map(|_| AtomicU32::default()).collect(),
            payloads: (0..PLATFORM_COUNT * moments.len() * LOCALES.len()).map(|_| OnceLock::new()).collect(),
            latency: Histogram::default(),
            by_platform: Default::default(),
            by_moment: moments.iter().map(|_| Histogram::default()).collect(),
            accepted: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            mixed: AtomicU64::new(0),
            moments,
            population,
        }
    }

    /// Notes a notification that the provider has accepted. `phone` is `None` for an unknown address.
    pub(super) fn on_accepted(&self, phone: Option<u32>, payload: &[u8]) {
        let now = self.clock.micros();
        self.seen.fetch_add(1, Relaxed);
        let Some(number) = phone else { return };
        let Some((moment, sent)) = origin(payload).filter(|(moment, _)| *moment < self.moments.len()) else {
            return;
        };
        let platform = platform_of(number);
        let first = self.payload(platform, moment, self.population.locale(number));
        if **first.get_or_init(|| payload.into()) != *payload {
            self.mixed.fetch_add(1, Relaxed);
        }
        let bit = 1 << moment;
        if self.got[number as usize].fetch_or(bit, Relaxed) & bit == 0 {
            self.accepted.fetch_add(1, Relaxed);
            let micros = now.saturating_sub(sent);
            self.latency.record_micros(micros);
            self.by_platform[platform as usize].record_micros(micros);
            self.by_moment[moment].record_micros(micros);
        }
    }

    fn payload(&self, platform: Platform, moment: usize, locale: usize) -> &OnceLock<Box<[u8]>> {
        &self.payloads[(platform as usize * self.moments.len() + moment) * LOCALES.len() + locale]
    }

    /// Different notifications of the match that phones have got.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// All acceptances.
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Relaxed)
    }

    /// Notifications of the match that phones must get.
    pub(super) fn owed_total(&self) -> u64 {
        self.owed.iter().sum()
    }

    /// Notifications of the first `moment_count` moments that phones must get.
    pub(super) fn owed_through(&self, moment_count: usize) -> u64 {
        self.owed[..moment_count].iter().sum()
    }

    /// Times from posting an event to acceptance.
    pub(super) fn latency(&self) -> HistogramSnapshot {
        self.latency.snapshot()
    }

    /// The same for one platform.
    pub(super) fn latency_on(&self, platform: Platform) -> HistogramSnapshot {
        self.by_platform[platform as usize].snapshot()
    }

    /// The same for one event.
    pub(super) fn latency_of(&self, moment: usize) -> HistogramSnapshot {
        self.by_moment[moment].snapshot()
    }

    /// The text on phones of a platform and language, if one has got it.
    pub(super) fn alert(&self, platform: Platform, moment: usize, locale: usize) -> Option<Notice> {
        Notice::read(platform, self.payload(platform, moment, locale).get()?)
    }

    /// Compares the ledgers with what each phone must get, and the texts with what they should be. A phone whose app is on the
    /// screen may get no push, because its app gets every event, which is checked elsewhere. For each such push the server
    /// must have counted exactly one receipt.
    pub(super) fn settle(&self, ledgers: &impl Ledgers, received: u64) -> PushVerdict {
        let mut verdict = self.compare(ledgers);
        if verdict.saved != received {
            verdict.lost += verdict.saved.saturating_sub(received);
            verdict.strangers += received.saturating_sub(verdict.saved);
            let saved = verdict.saved;
            verdict.such_as(|| format!("{saved} notifications were not sent, the server counts {received} receipts"));
        }
        verdict
    }

    fn compare(&self, ledgers: &impl Ledgers) -> PushVerdict {
        let mut verdict = PushVerdict::default();
        self.compare_texts(&mut verdict);
        let mut known = 0; // Entries in the ledgers of our phones.
        for number in 0..self.population.count() {
            let (device, entries) = (device_id(number), ledgers.entries(number));
            known += entries.len() as u64;
            for MessageEntry { id, count, .. } in entries.iter().filter(|entry| entry.count > 1) {
                verdict.duplicates += u64::from(count - 1);
                verdict.such_as(|| format!("{device} got {id} {count} times"));
            }
            let (missing, stranger_count) = match platform_of(number) {
                Platform::Ios => self.compare_ids(number, &entries),
                Platform::Android | Platform::Web => self.compare_moments(number, &entries),
            };
            if stranger_count > 0 {
                verdict.strangers += stranger_count;
                verdict.such_as(|| format!("{device} got {stranger_count} notifications that it should not get"));
            }
            if number < self.client_count && is_watching(number) {
                verdict.saved += missing.len() as u64;
            } else if let Some(moment) = missing.first() {
                verdict.lost += missing.len() as u64;
                verdict.such_as(|| format!("{device} did not get {}", self.moments[*moment].id));
            }
        }
        let unknown = ledgers.count().saturating_sub(known);
        if unknown > 0 {
            verdict.strangers += unknown;
            verdict.such_as(|| "unknown devices got notifications".to_owned());
        }
        verdict
    }

    /// The moments that an iPhone did not get, and how many notifications it should not have got. APNs knows our ids.
    fn compare_ids(&self, number: u32, entries: &[MessageEntry]) -> (Vec<usize>, u64) {
        let (device, mut ids) = (device_id(number), entries.iter().map(|entry| entry.id).collect::<BTreeSet<_>>());
        let owed = self.owed_moments(number);
        let missing = owed.filter(|moment| !ids.remove(&NotificationId::new(&self.moments[*moment].id, &device).0));
        let missing = missing.collect();
        (missing, ids.len() as u64)
    }

    /// The same for an Android or a browser. Their providers do not know our ids and tell notifications apart by content. So
    /// the number of entries must be that of the moments seen, and these must be the right ones.
    fn compare_moments(&self, number: u32, entries: &[MessageEntry]) -> (Vec<usize>, u64) {
        let (got, owed) = (self.got[number as usize].load(Relaxed), self.population.owed(number));
        let missing = self.owed_moments(number).filter(|moment| got & (1 << moment) == 0).collect();
        let unseen = (entries.len() as u64).abs_diff(got.count_ones().into());
        (missing, unseen + u64::from((got & !owed).count_ones()))
    }

    fn owed_moments(&self, number: u32) -> impl Iterator<Item = usize> {
        let owed = self.population.owed(number);
        (0..self.moments.len()).filter(move |moment| owed & (1 << moment) != 0)
    }

    fn compare_texts(&self, verdict: &mut PushVerdict) {
        verdict.wrong_texts = self.mixed.load(Relaxed);
        if verdict.wrong_texts > 0 {
            verdict.such_as(|| "payloads of one event and language differ".to_owned());
        }
        let indices = 0..self.moments.len();
        for (platform, index) in Platform::ALL.iter().flat_map(|it| indices.clone().map(move |index| (*it, index))) {
            let moment = &self.moments[index];
            for (place, (locale, _)) in LOCALES.iter().enumerate() {
                let Some(payload) = self.payload(platform, index, place).get() else { continue };
                let alert = self.alert(platform, index, place);
                let says = alert.as_ref().map(|alert| (alert.title.as_str(), alert.body.as_str()));
                let is_right = says.is_some_and(|says| wording::expected(index, locale).is_none_or(|due| due == says))
                    && event_of(platform, payload).as_deref() == Some(moment.id.as_str());
                if !is_right {
                    verdict.wrong_texts += 1;
                    verdict.such_as(|| format!("{} says in {locale}: {says:?}", moment.id));
                }
            }
        }
    }
}

/// The event id in a payload.
fn event_of(platform: Platform, payload: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    let event = match platform {
        Platform::Android => &value["data"]["tidings.event"],
        Platform::Ios | Platform::Web => &value["tidings"]["event"],
    };
    Some(event.as_str()?.to_owned())
}

/// The event's index and its time of sending (microseconds of our clock). `data` is at the end of a payload, so the search
/// goes backwards; parsing all of the JSON would cost more than accepting the notification. In a message for Androids it
/// is JSON within a string, with a backslash before each quotation mark.
pub(super) fn origin(payload: &[u8]) -> Option<(usize, u64)> {
    let number = |plain: &[u8], in_text: &[u8]| number_after(payload, plain).or_else(|| number_after(payload, in_text));
    let moment = number(b"\"moment\":", br#"\"moment\":"#)?;
    Some((moment as usize, number(b"\"sent\":", br#"\"sent\":"#)?))
}

fn number_after(payload: &[u8], name: &[u8]) -> Option<u64> {
    let place = payload.windows(name.len()).rposition(|window| window == name)?;
    let digits = payload[place + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    let mut number: Option<u64> = None;
    for digit in digits {
        number = number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    }
    number
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::super::population::subscriptions;
    use super::super::timeline::moments;
    use super::*;

    /// No app is open.
    fn watched(phone_count: u32) -> Pushes {
        watched_with(phone_count, 0)
    }

    fn watched_with(phone_count: u32, client_count: u32) -> Pushes {
        let moments: Arc<[Moment]> = moments().into();
        let population = Arc::new(Population::draw(phone_count, &moments));
        population.subscribe(subscriptions());
        Pushes::new(Clock::start(), moments, population, client_count)
    }

    fn payload(pushes: &Pushes, platform: Platform, moment: usize, text: &str) -> Vec<u8> {
        let (event, text) = (&pushes.moments[moment], serde_json::json!({ "title": text, "body": text }));
        let data = event.to_json(moment, 1)["data"].clone();
        let payload = match platform {
            Platform::Ios => {
                serde_json::json!({ "aps": { "alert": text }, "tidings": { "event": event.id }, "data": data })
            }
            Platform::Android => serde_json::json!({
                "notification": text,
                "data": { "tidings.event": event.id, "data": data.to_string() },
            }),
            Platform::Web => serde_json::json!({
                "title": text["title"], "body": text["body"], "tidings": { "event": event.id }, "data": data,
            }),
        };
        payload.to_string().into_bytes()
    }

    fn accept(pushes: &Pushes, number: u32, moment: usize, text: &str) {
        pushes.on_accepted(Some(number), &payload(pushes, platform_of(number), moment, text));
    }

    fn first_of(platform: Platform, but: u32) -> u32 {
        (0..).find(|number| platform_of(*number) == platform && *number != but).unwrap()
    }

    #[test]
    fn an_acceptance_is_counted_once_per_phone_and_event() {
        for platform in Platform::ALL.iter().copied() {
            let number = first_of(platform, u32::MAX);
            let pushes = watched(number + 1);
            accept(&pushes, number, 0, "a");
            accept(&pushes, number, 0, "a");
            accept(&pushes, number, 5, "a");
            pushes.on_accepted(None, &payload(&pushes, platform, 0, "a")); // An unknown address.
            pushes.on_accepted(Some(number), br#"{"aps":{},"data":{"moment":22,"sent":1}}"#); // No event of the match.
            pushes.on_accepted(Some(number), br#"{"aps":{}}"#);
            assert_eq!((pushes.accepted(), pushes.seen()), (2, 6), "{platform:?}");
            assert_eq!((pushes.latency().count(), pushes.latency_on(platform).count()), (2, 2));
            assert_eq!(pushes.latency_of(0).count(), 1);
        }
    }

    #[derive(Clone, Default)]
    struct Kept {
        entries: BTreeMap<u32, Vec<MessageEntry>>,
        unknown: u64,
    }

    impl Ledgers for Kept {
        fn entries(&self, number: u32) -> Vec<MessageEntry> {
            self.entries.get(&number).cloned().unwrap_or_default()
        }

        fn count(&self) -> u64 {
            self.entries.values().map(|entries| entries.len() as u64).sum::<u64>() + self.unknown
        }
    }

    fn entry(id: Uuid) -> MessageEntry {
        MessageEntry { id, tag_hash: None, title: None, count: 1 }
    }

    /// Every phone gets exactly what it must get. Returns the ledgers.
    fn tell_all(pushes: &Pushes) -> Kept {
        let mut kept = Kept::default();
        for number in 0..pushes.population.count() {
            let entries = pushes.owed_moments(number).map(|moment| {
                accept(pushes, number, moment, "a");
                entry(NotificationId::new(&pushes.moments[moment].id, &device_id(number)).0)
            });
            kept.entries.insert(number, entries.collect());
        }
        kept
    }

    fn compare(pushes: &Pushes, kept: &Kept) -> (u64, u64, u64) {
        let PushVerdict { lost, duplicates, strangers, .. } = pushes.compare(kept);
        (lost, duplicates, strangers)
    }

    #[test]
    fn a_missing_or_additional_notification_is_found_in_the_ledgers() {
        let pushes = watched(200);
        assert_eq!(compare(&pushes, &Kept::default()), (pushes.owed_total(), 0, 0));
        let right = tell_all(&pushes);
        assert_eq!(compare(&pushes, &right), (0, 0, 0));
        for platform in Platform::ALL.iter().copied() {
            let is_told = |number: &u32| platform_of(*number) == platform && pushes.population.owed(*number) != 0;
            let told = (0..200).find(is_told).unwrap();
            let spoilt = |spoil: &dyn Fn(&mut Vec<MessageEntry>)| {
                let mut kept = right.clone();
                spoil(kept.entries.get_mut(&told).unwrap());
                compare(&pushes, &kept)
            };
            assert_eq!(spoilt(&|entries| entries[0].count = 3), (0, 2, 0), "{platform:?}");
            let (lost, _, strangers) = spoilt(&|entries| drop(entries.pop()));
            assert_eq!(lost + strangers, 1, "{platform:?}: one is missing from the ledger");
            assert_eq!(spoilt(&|entries| entries.push(entry(Uuid::nil()))), (0, 0, 1), "{platform:?}");
        }
        assert_eq!(compare(&pushes, &Kept { unknown: 1, ..right }), (0, 0, 1), "an unknown phone");
    }

    #[test]
    fn androids_and_browsers_must_get_their_own_events() {
        for platform in [Platform::Android, Platform::Web] {
            let pushes = watched(200);
            let right = tell_all(&pushes);
            let none_of = |number: u32| (0..22).find(|moment| pushes.population.owed(number) & (1 << moment) == 0);
            let number =
                (0..200).find(|number| platform_of(*number) == platform && none_of(*number).is_some()).unwrap();
            accept(&pushes, number, none_of(number).unwrap(), "a");
            let mut kept = right.clone();
            kept.entries.get_mut(&number).unwrap().push(entry(Uuid::nil()));
            assert_eq!(compare(&pushes, &kept), (0, 0, 1), "{platform:?}");
        }
    }

    #[test]
    fn only_a_phone_with_its_app_on_the_screen_may_get_no_push() {
        let untold = |number: u32| {
            let pushes = watched_with(40, 20);
            let mut kept = Kept::default();
            for other in (0..40).filter(|other| *other != number) {
                let entries = pushes.owed_moments(other).map(|moment| {
                    accept(&pushes, other, moment, "a");
                    entry(NotificationId::new(&pushes.moments[moment].id, &device_id(other)).0)
                });
                let entries = entries.collect();
                kept.entries.insert(other, entries);
            }
            (compare(&pushes, &kept), pushes.owed_moments(number).count() as u64)
        };
        let is_told = |number: &u32| watched(40).population.owed(*number) != 0;
        let watching = (0..20).filter(is_told).find(|number| is_watching(*number)).unwrap();
        assert_eq!(untold(watching).0, (0, 0, 0));
        let hidden = (0..20).filter(is_told).find(|number| !is_watching(*number)).unwrap();
        let closed = (20..40).filter(is_told).find(|number| is_watching(*number)).unwrap();
        for number in [hidden, closed] {
            let (found, owed) = untold(number);
            assert_eq!(found, (owed, 0, 0), "phone {number}");
        }
    }

    #[test]
    fn a_text_in_another_language_is_found() {
        let pushes = watched(400);
        let is_spanish = |number: &u32| pushes.population.locale(*number) == 0;
        for (index, platform) in Platform::ALL.iter().copied().enumerate() {
            let spanish: Vec<u32> = (0..400).filter(is_spanish).filter(|it| platform_of(*it) == platform).collect();
            let wrong_texts = || {
                let mut verdict = PushVerdict::default();
                pushes.compare_texts(&mut verdict);
                assert_eq!(verdict.example.is_some(), verdict.wrong_texts > 0);
                verdict.wrong_texts - 2 * index as u64
            };
            accept(&pushes, spanish[0], 0, "uno");
            accept(&pushes, spanish[1], 0, "uno");
            assert_eq!(wrong_texts(), 0);
            accept(&pushes, spanish[0], 0, "one");
            assert_eq!(wrong_texts(), 1, "it differs from the others");
            accept(&pushes, spanish[0], 3, "Se añaden 7 minutos");
            assert_eq!(wrong_texts(), 2, "it differs from the expected text");
            assert_eq!(pushes.alert(platform, 0, 0).unwrap().title, "uno");
        }
    }

    #[test]
    fn event_and_time_are_read_from_a_payload() {
        assert_eq!(origin(br#"{"data":{"moment":12,"sent":34}}"#), Some((12, 34)));
        assert_eq!(origin(br#"{"a":"\"moment\":1","data":{"moment":12,"sent":34}}"#), Some((12, 34)));
        assert_eq!(origin(br#"{"data":{"data":"{\"moment\":12,\"sent\":34}"}}"#), Some((12, 34)));
        for text in
            ["", "\"moment\":", "\"moment\":x,\"sent\":1", "\"sent\":1", "\"moment\":1,\"sent\":99999999999999999999"]
        {
            assert_eq!(origin(text.as_bytes()), None, "{text}");
        }
    }
}
