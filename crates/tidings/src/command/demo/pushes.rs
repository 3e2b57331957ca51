//! What the phones get, watched where the provider accepts it.
//!
//! [`Pushes::on_accepted`] runs on the simulator's thread for every acceptance: it finds the phone by its token and the
//! event by what stands in the payload, notes the time since the event was sent, and holds every payload against the first
//! one of its event and language. The verdict over who got what comes at the end, from the simulator's ledger
//! ([`Pushes::settle`]). What the match does not know (events handed in by whoever tries the demo) is only counted.
//!
//! Four bytes a phone, one payload per event and language, one histogram per event.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use tidings_simulator::{AcceptedNotification, Ledger, LedgerEntry, LedgerSummary};
use tidings_telemetry::{Histogram, HistogramSnapshot};
use tidings_types::{DeviceToken, NotificationId};

use super::clock::Clock;
use super::population::{LOCALES, Population, device_id, is_watching, number_of, token};
use super::timeline::Moment;
use super::wording;

/// What accepted notifications told so far.
pub(super) struct Pushes {
    clock: Clock,
    moments: Arc<[Moment]>,
    population: Arc<Population>,
    /// Phones of lower numbers have their app open.
    client_count: u32,
    owed_total: u64,
    /// By phone: which moments it got, as bits.
    got: Box<[AtomicU32]>,
    /// The first payload by moment and language.
    payloads: Box<[OnceLock<Box<[u8]>>]>,
    latency: Histogram,
    by_moment: Box<[Histogram]>,
    /// Different (phone, moment) pairs.
    accepted: AtomicU64,
    /// Every acceptance, also of events that are not of the match.
    seen: AtomicU64,
    /// Payloads unlike the first one of their event and language.
    mixed: AtomicU64,
}

/// What the ledger says in the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PushVerdict {
    /// Notifications owed that nobody got.
    pub(super) lost: u64,
    /// Acceptances of a notification that its phone had already got.
    pub(super) duplicates: u64,
    /// Notifications at phones that they were not owed to, or with an id that is none of ours.
    pub(super) strangers: u64,
    /// Payloads that do not say what they should.
    pub(super) wrong_texts: u64,
    /// Notifications that were not needed: the app on the screen had proved that it got the event.
    pub(super) saved: u64,
    /// The first thing that is wrong, in words.
    pub(super) example: Option<String>,
}

impl PushVerdict {
    /// Takes note of an example, if it is the first.
    fn such_as(&mut self, example: impl FnOnce() -> String) {
        self.example.get_or_insert_with(example);
    }
}

/// A notification's text.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub(super) struct Alert {
    pub(super) title: String,
    pub(super) body: String,
}

impl Pushes {
    pub(super) fn new(clock: Clock, moments: Arc<[Moment]>, population: Arc<Population>, client_count: u32) -> Self {
        Self {
            clock,
            client_count,
            owed_total: population.owed_total(),
            got: (0..population.count()).map(|_| AtomicU32::default()).collect(),
            payloads: (0..moments.len() * LOCALES.len()).map(|_| OnceLock::new()).collect(),
            latency: Histogram::default(),
            by_moment: moments.iter().map(|_| Histogram::default()).collect(),
            accepted: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            mixed: AtomicU64::new(0),
            moments,
            population,
        }
    }

    /// Takes an acceptance.
    pub(super) fn on_accepted(&self, accepted: AcceptedNotification<'_>) {
        let now = self.clock.micros();
        self.seen.fetch_add(1, Relaxed);
        let Some(number) = number_of(accepted.token, self.population.count()) else { return };
        let Some((moment, sent)) = origin(accepted.payload).filter(|(moment, _)| *moment < self.moments.len()) else {
            return;
        };
        let first = self.payload(moment, self.population.locale(number));
        if **first.get_or_init(|| accepted.payload.into()) != *accepted.payload {
            self.mixed.fetch_add(1, Relaxed);
        }
        let bit = 1 << moment;
        if self.got[number as usize].fetch_or(bit, Relaxed) & bit == 0 {
            self.accepted.fetch_add(1, Relaxed);
            let micros = now.saturating_sub(sent);
            self.latency.record_micros(micros);
            self.by_moment[moment].record_micros(micros);
        }
    }

    fn payload(&self, moment: usize, locale: usize) -> &OnceLock<Box<[u8]>> {
        &self.payloads[moment * LOCALES.len() + locale]
    }

    /// Different notifications of the match that phones have.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// All acceptances.
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Relaxed)
    }

    /// Notifications of the match that phones are to get.
    pub(super) fn owed_total(&self) -> u64 {
        self.owed_total
    }

    /// From handing in to acceptance.
    pub(super) fn latency(&self) -> HistogramSnapshot {
        self.latency.snapshot()
    }

    /// The same for one event.
    pub(super) fn latency_of(&self, moment: usize) -> HistogramSnapshot {
        self.by_moment[moment].snapshot()
    }

    /// What phones of a language read, if one has got it.
    pub(super) fn alert(&self, moment: usize, locale: usize) -> Option<Alert> {
        #[derive(Deserialize)]
        struct Payload {
            aps: Aps,
        }
        #[derive(Deserialize)]
        struct Aps {
            alert: Alert,
        }
        let payload = self.payload(moment, locale).get()?;
        serde_json::from_slice::<Payload>(payload).ok().map(|payload| payload.aps.alert)
    }

    /// Compares the ledger with what is owed, phone by phone and id by id, and the texts with what they should be. A phone
    /// whose app is on the screen may go without a push: the app gets every event, which is checked elsewhere, and the
    /// server must have counted a receipt for each, no more and no less.
    pub(super) fn settle(&self, ledger: &Ledger, received: u64) -> PushVerdict {
        let mut verdict = self.compare(|token| ledger.for_device(token), &ledger.summary());
        if verdict.saved != received {
            verdict.lost += verdict.saved.saturating_sub(received);
            verdict.strangers += received.saturating_sub(verdict.saved);
            let saved = verdict.saved;
            verdict.such_as(|| format!("{saved} notifications were not sent, the server counts {received} receipts"));
        }
        verdict
    }

    fn compare(&self, entries: impl Fn(&DeviceToken) -> Vec<LedgerEntry>, summary: &LedgerSummary) -> PushVerdict {
        let mut verdict = PushVerdict::default();
        self.compare_texts(&mut verdict);
        let mut known = 0; // Entries of the ledger that belong to one of our phones.
        for number in 0..self.population.count() {
            let (device, owed) = (device_id(number), self.population.owed(number));
            let owed = self.moments.iter().enumerate().filter(|(index, _)| owed & (1 << index) != 0);
            let mut owed: BTreeSet<_> = owed.map(|(_, moment)| NotificationId::new(&moment.id, &device).0).collect();
            for LedgerEntry { apns_id, count, .. } in entries(&token(number)) {
                known += 1;
                verdict.duplicates += u64::from(count - 1);
                if count > 1 {
                    verdict.such_as(|| format!("{device} got {apns_id} {count} times"));
                }
                if !owed.remove(&apns_id) {
                    verdict.strangers += 1;
                    verdict.such_as(|| format!("{device} got {apns_id}, which it was not owed"));
                }
            }
            if number < self.client_count && is_watching(number) {
                verdict.saved += owed.len() as u64;
            } else if let Some(id) = owed.first() {
                verdict.lost += owed.len() as u64;
                verdict.such_as(|| format!("{device} did not get {id}"));
            }
        }
        let unknown = summary.notifications.saturating_sub(known) + summary.unrecorded;
        if unknown > 0 {
            verdict.strangers += unknown;
            verdict.such_as(|| "devices got notifications that are none of the phones".to_owned());
        }
        verdict
    }

    fn compare_texts(&self, verdict: &mut PushVerdict) {
        verdict.wrong_texts = self.mixed.load(Relaxed);
        if verdict.wrong_texts > 0 {
            verdict.such_as(|| "payloads of one event and language differ".to_owned());
        }
        for (index, moment) in self.moments.iter().enumerate() {
            for (place, (locale, _)) in LOCALES.iter().enumerate() {
                let Some(payload) = self.payload(index, place).get() else { continue };
                let alert = self.alert(index, place);
                let says = alert.as_ref().map(|alert| (alert.title.as_str(), alert.body.as_str()));
                let is_right = says.is_some_and(|says| wording::expected(index, locale).is_none_or(|due| due == says))
                    && event_of(payload).as_deref() == Some(moment.id.as_str());
                if !is_right {
                    verdict.wrong_texts += 1;
                    verdict.such_as(|| format!("{} says in {locale}: {says:?}", moment.id));
                }
            }
        }
    }
}

/// The event a payload says it is about.
fn event_of(payload: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
    Some(value["tidings"]["event"].as_str()?.to_owned())
}

/// Which event of the match it is and when it was sent (microseconds of our clock). `data` is ours and stands at the
/// end, so the search goes backwards; reading all of the JSON would cost more than accepting the notification does.
pub(super) fn origin(payload: &[u8]) -> Option<(usize, u64)> {
    Some((number_after(payload, b"\"moment\":")? as usize, number_after(payload, b"\"sent\":")?))
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

    use tidings_types::Timestamp;
    use uuid::Uuid;

    use super::super::timeline::moments;
    use super::*;

    /// Nobody's app is open.
    fn watched(phone_count: u32) -> Pushes {
        watched_with(phone_count, 0)
    }

    fn watched_with(phone_count: u32, client_count: u32) -> Pushes {
        let moments: Arc<[Moment]> = moments().into();
        let population = Arc::new(Population::draw(phone_count, &moments));
        Pushes::new(Clock::start(), moments, population, client_count)
    }

    fn payload(pushes: &Pushes, moment: usize, text: &str) -> Vec<u8> {
        let event = &pushes.moments[moment];
        let alert = serde_json::json!({ "alert": { "title": text, "body": text } });
        let data = &event.to_json(moment, 1)["data"];
        serde_json::json!({ "aps": alert, "tidings": { "event": event.id }, "data": data }).to_string().into_bytes()
    }

    fn accept(pushes: &Pushes, token: &DeviceToken, payload: &[u8]) {
        let (apns_id, collapse_id, at) = (Uuid::nil(), None, Timestamp(0));
        pushes.on_accepted(AcceptedNotification { token, apns_id, collapse_id, payload, at });
    }

    #[test]
    fn an_acceptance_is_counted_once_per_phone_and_event() {
        let pushes = watched(10);
        let first = payload(&pushes, 0, "a");
        for _ in 0..2 {
            accept(&pushes, &token(3), &first);
        }
        accept(&pushes, &token(3), &payload(&pushes, 5, "a"));
        accept(&pushes, &token(10), &first); // Nobody of ours.
        accept(&pushes, &token(4), br#"{"aps":{},"data":{"moment":22,"sent":1}}"#); // No event of the match.
        accept(&pushes, &token(4), br#"{"aps":{}}"#);
        assert_eq!((pushes.accepted(), pushes.seen()), (2, 6));
        assert_eq!(pushes.latency().count(), 2);
        assert_eq!(pushes.latency_of(0).count(), 1);
    }

    type Entries = BTreeMap<DeviceToken, Vec<LedgerEntry>>;

    /// A ledger in which every phone got exactly what it was owed.
    fn right_ledger(pushes: &Pushes) -> Entries {
        let entries = |number| {
            let moments = pushes.moments.iter().enumerate();
            let owed = moments.filter(move |(index, _)| pushes.population.owed(number) & (1 << index) != 0);
            let id = |moment: &Moment| NotificationId::new(&moment.id, &device_id(number)).0;
            owed.map(|(_, moment)| LedgerEntry { apns_id: id(moment), collapse_hash: None, count: 1 }).collect()
        };
        (0..pushes.population.count()).map(|number| (token(number), entries(number))).collect()
    }

    fn compare(pushes: &Pushes, ledger: &Entries) -> (u64, u64, u64) {
        let notifications = ledger.values().map(|entries| entries.len() as u64).sum();
        let summary = LedgerSummary { notifications, ..LedgerSummary::default() };
        let verdict = pushes.compare(|token| ledger.get(token).cloned().unwrap_or_default(), &summary);
        let PushVerdict { lost, duplicates, strangers, .. } = verdict;
        assert_eq!(verdict.example.is_some(), lost + duplicates + strangers > 0);
        (lost, duplicates, strangers)
    }

    #[test]
    fn one_notification_too_few_or_too_many_is_found_in_the_ledger() {
        let pushes = watched(40);
        let right = right_ledger(&pushes);
        assert_eq!(compare(&pushes, &right), (0, 0, 0));
        assert_eq!(compare(&pushes, &BTreeMap::new()), (pushes.owed_total(), 0, 0));
        let told = (0..40).find(|number| pushes.population.owed(*number) != 0).unwrap();
        let untold = (0..40).find(|number| pushes.population.owed(*number) == 0).unwrap();
        let owed = right[&token(told)].len();
        let spoilt = |spoil: &dyn Fn(&mut Entries)| {
            let mut ledger = right.clone();
            spoil(&mut ledger);
            compare(&pushes, &ledger)
        };
        let of_told = || vec![right[&token(told)][0].clone()];
        assert_eq!(spoilt(&|ledger| ledger.get_mut(&token(told)).unwrap().truncate(owed - 1)), (1, 0, 0));
        assert_eq!(spoilt(&|ledger| ledger.get_mut(&token(told)).unwrap()[0].count = 3), (0, 2, 0));
        assert_eq!(spoilt(&|ledger| ledger.get_mut(&token(told)).unwrap()[0].apns_id = Uuid::nil()), (1, 0, 1));
        assert_eq!(spoilt(&|ledger| drop(ledger.insert(token(untold), of_told()))), (0, 0, 1));
        assert_eq!(spoilt(&|ledger| drop(ledger.insert(token(40), of_told()))), (0, 0, 1), "no phone of ours");
    }

    #[test]
    fn only_a_phone_whose_app_is_on_the_screen_may_go_without() {
        let pushes = watched_with(40, 20);
        let mut ledger = right_ledger(&pushes);
        (0..20).filter(|number| is_watching(*number)).for_each(|number| drop(ledger.remove(&token(number))));
        assert_eq!(compare(&pushes, &ledger), (0, 0, 0));
        let hidden = (0..20).find(|number| !is_watching(*number) && pushes.population.owed(*number) != 0).unwrap();
        let closed = (20..40).find(|number| is_watching(*number) && pushes.population.owed(*number) != 0).unwrap();
        for number in [hidden, closed] {
            let mut ledger = ledger.clone();
            let owed = ledger.remove(&token(number)).unwrap().len() as u64;
            assert_eq!(compare(&pushes, &ledger), (owed, 0, 0), "phone {number}");
        }
    }

    #[test]
    fn a_text_in_another_language_is_found() {
        let pushes = watched(50);
        let spanish: Vec<u32> = (0..50).filter(|number| pushes.population.locale(*number) == 0).collect();
        accept(&pushes, &token(spanish[0]), &payload(&pushes, 0, "uno"));
        accept(&pushes, &token(spanish[1]), &payload(&pushes, 0, "uno"));
        let wrong_texts = || {
            let mut verdict = PushVerdict::default();
            pushes.compare_texts(&mut verdict);
            assert_eq!(verdict.example.is_some(), verdict.wrong_texts > 0);
            verdict.wrong_texts
        };
        assert_eq!(wrong_texts(), 0);
        accept(&pushes, &token(spanish[2]), &payload(&pushes, 0, "one"));
        assert_eq!(wrong_texts(), 1, "unlike the others");
        accept(&pushes, &token(spanish[0]), &payload(&pushes, 3, "Se añaden 7 minutos"));
        assert_eq!(wrong_texts(), 2, "not what is written down");
        assert_eq!(pushes.alert(0, 0).unwrap().title, "uno");
    }

    #[test]
    fn where_a_payload_comes_from_stands_in_it() {
        assert_eq!(origin(br#"{"data":{"moment":12,"sent":34}}"#), Some((12, 34)));
        assert_eq!(origin(br#"{"a":"\"moment\":1","data":{"moment":12,"sent":34}}"#), Some((12, 34)));
        for text in
            ["", "\"moment\":", "\"moment\":x,\"sent\":1", "\"sent\":1", "\"moment\":1,\"sent\":99999999999999999999"]
        {
            assert_eq!(origin(text.as_bytes()), None, "{text}");
        }
    }
}
