//! Finds audiences of given sizes, checks them, and measures how fast they are handed out.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidings_audience::Frozen;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_store::{Recipient, Store};
use tidings_types::{DeviceNumber, Event, EventId, Filter, MuteScope, Recipients, Subject, event_limits};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::data::{self, Data, Kind};
use crate::checksum::Digest;

/// Devices read at a time, as the sender does.
const WINDOW_COUNT: usize = 1024;

/// An event and its audience.
#[derive(Clone)]
pub(super) struct Audience {
    /// The size that was wanted.
    pub(super) wanted: u64,
    /// The number of devices.
    pub(super) len: u64,
    pub(super) event: Event,
    /// The ranks of the event's subjects; `None` if the event is for all devices.
    ranks: Option<Vec<usize>>,
    /// Only devices that this filter admits.
    filter: Option<Filter>,
    /// Whether the devices of [`Data::mute`] have muted.
    is_muted: bool,
}

/// Times since the event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) frozen: Duration,
    /// Until the first device was handed out.
    pub(super) first: Duration,
    /// Until the last device was handed out.
    pub(super) all: Duration,
    /// The devices, by their tokens.
    pub(super) digest: Digest,
}

/// Finds events with audiences of these sizes, to within a tenth: by their subjects, or all devices. A size that cannot
/// be reached is left out.
pub(super) fn find(data: &Data, store: &Store, sizes: &[u64]) -> Vec<Audience> {
    let find_one = |&wanted: &u64| by_subjects(data, store, wanted).or_else(|| everyone(data, store, wanted));
    sizes.iter().filter_map(find_one).collect()
}

/// Adds subjects, the most popular first; leaves out each one that would make the audience too large.
fn by_subjects(data: &Data, store: &Store, wanted: u64) -> Option<Audience> {
    let mut event = event(data, Vec::new());
    let (mut ranks, mut len) = (Vec::new(), 0);
    for (rank, subject) in data.subjects.iter().enumerate() {
        if event.subjects.len() == event_limits::SUBJECT_COUNT_MAX || len * 20 >= wanted * 19 {
            break;
        }
        event.subjects.push(subject.clone());
        let reached = store.select(&event).len();
        if reached * 20 <= wanted * 21 {
            len = reached;
            ranks.push(rank);
        } else {
            event.subjects.pop();
        }
    }
    let found = Audience { wanted, len, event, ranks: Some(ranks), filter: None, is_muted: false };
    (len * 10 >= wanted * 9).then_some(found)
}

/// All devices of the data set, with a selector.
fn everyone(data: &Data, store: &Store, wanted: u64) -> Option<Audience> {
    let mut event = event(data, vec![data.subjects[0].clone()]);
    let selector = selector_of_everyone(data).parse().expect("a legal selector");
    event.to = Some(Recipients { selector: Some(selector), ..Recipients::default() });
    let len = store.select(&event).len();
    let found = Audience { wanted, len, event, ranks: None, filter: None, is_muted: false };
    (len * 10 >= wanted * 9 && len * 10 <= wanted * 11).then_some(found)
}

fn selector_of_everyone(data: &Data) -> String {
    format!("app = {}", data.app)
}

fn event(data: &Data, subjects: Vec<Subject>) -> Event {
    Event::new(EventId::new("bench").expect("a legal id"), data.topics[0].clone(), subjects)
}

impl Audience {
    /// Whether the event is for its subjects, not for all devices.
    #[cfg(feature = "peers")]
    pub(super) fn has_subjects(&self) -> bool {
        self.ranks.is_some()
    }

    /// The devices of this audience that a filter admits.
    pub(super) fn filtered(&self, filter: &Filter, data: &Data) -> Self {
        let mut filtered = self.narrowed(filter, data);
        filtered.event.filter = Some(filter.clone());
        filtered
    }

    /// The same devices as [`Audience::filtered`], with a selector.
    pub(super) fn selected(&self, filter: &Filter, data: &Data) -> Self {
        let meant = match &self.ranks {
            Some(_) => format!("{} on ({})", self.event.topic, list(&self.event.subjects)),
            None => selector_of_everyone(data),
        };
        let (countries, locales) = (list(&filter.countries), list(&filter.locales));
        let selector = format!("{meant} and country in ({countries}) and locale in ({locales})");
        let selector = selector.parse().expect("a legal selector");
        let mut selected = self.narrowed(filter, data);
        selected.event.to = Some(Recipients { selector: Some(selector), ..Recipients::default() });
        selected
    }

    fn narrowed(&self, filter: &Filter, data: &Data) -> Self {
        let mut narrowed = Self { filter: Some(filter.clone()), ..self.clone() };
        narrowed.len = (0..data.device_count).filter(|&device| narrowed.is_owed(data, device)).count() as u64;
        narrowed
    }

    /// This audience after the devices have muted what [`Data::mute`] says.
    pub(super) fn muted(&self, store: &Store) -> Self {
        let mut muted = Self { is_muted: true, ..self.clone() };
        muted.len = muted.freeze(store).len();
        muted
    }

    fn freeze(&self, store: &Store) -> Frozen {
        store.select(&self.event)
    }

    /// Whether a device belongs to the audience, found without the store.
    fn is_owed(&self, data: &Data, device: u32) -> bool {
        let Kind { platform, locale, country } = data.kind(device);
        let is_meant = |ranks: &Vec<usize>| data.drawn(device).any(|(rank, topic)| topic == 0 && ranks.contains(&rank));
        let covers = |scope: MuteScope| scope.subject().is_none_or(|subject| self.event.subjects.contains(subject));
        self.ranks.as_ref().is_none_or(is_meant)
            && !(self.is_muted && data.mute(device).is_some_and(covers))
            && self.filter.as_ref().is_none_or(|it| it.admits(platform, &data.app, locale, Some(country)))
    }

    /// Compares with a walk over all devices: exactly these devices, each once, with its own token.
    pub(super) fn check(&self, data: &Data, store: &Store) -> Result<Digest, CommandError> {
        let mut walk = Walk::over(data, self);
        visit(store, &self.freeze(store), |recipient| {
            let device = data::device_of(recipient.id);
            let is_addressed =
                device.is_some_and(|device| recipient.token.is_some_and(|token| token == data.token(device)));
            walk.tell(device, is_addressed, recipient.token.map_or(0, |token| stamp(token.as_bytes())));
        });
        walk.finish()
    }

    /// Selects the audience and hands out all its devices with token, language and platform.
    pub(super) fn hand_out(&self, store: &Store) -> Result<Times, CommandError> {
        let began = Instant::now();
        let frozen = self.freeze(store);
        let frozen_after = began.elapsed();
        let (mut first, mut count, mut digest) = (None, 0_u64, Digest::default());
        visit(store, &frozen, |recipient| {
            first.get_or_insert_with(|| began.elapsed());
            let token = recipient.token.map_or(&[][..], |token| token.as_bytes());
            black_box((token.last(), recipient.locale, recipient.platform));
            digest.add_number(stamp(token));
            count += 1;
        });
        let all = began.elapsed();
        if count != self.len {
            return Err(failed(format!("{count} of {} devices were handed out", self.len)));
        }
        Ok(Times { frozen: frozen_after, first: first.unwrap_or(all), all, digest })
    }
}

/// Reads window by window, as the sender does.
fn visit(store: &Store, frozen: &Frozen, mut each: impl FnMut(Recipient<'_>)) {
    let mut numbers = frozen.iter_from(DeviceNumber(0));
    let mut window = Vec::with_capacity(WINDOW_COUNT);
    loop {
        window.clear();
        window.extend(numbers.by_ref().take(WINDOW_COUNT));
        if window.is_empty() {
            return;
        }
        store.with_recipients(&window, &mut each);
    }
}

/// The beginning of a token, which is different for each device.
#[inline]
pub(super) fn stamp(token: &[u8]) -> u64 {
    token.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Names as a selector spells them.
fn list(names: &[impl ToString]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The check of an audience: which devices are still missing, and the first mistake.
pub(super) struct Walk {
    missing: Vec<bool>,
    digest: Digest,
    wrong: Option<String>,
}

impl Walk {
    pub(super) fn over(data: &Data, audience: &Audience) -> Self {
        let missing = (0..data.device_count).map(|device| audience.is_owed(data, device)).collect();
        Self { missing, digest: Digest::default(), wrong: None }
    }

    /// For an audience of these devices.
    #[cfg(all(test, feature = "peers"))]
    pub(super) fn of(devices: &[u32]) -> Self {
        let count = devices.iter().max().map_or(0, |last| last + 1);
        let missing = (0..count).map(|device| devices.contains(&device)).collect();
        Self { missing, digest: Digest::default(), wrong: None }
    }

    /// Notes a device that was handed out (`None` if it is unknown), whether all its data was right, and its token's
    /// [`stamp`].
    pub(super) fn tell(&mut self, device: Option<u32>, is_right: bool, stamp: u64) {
        self.digest.add_number(stamp);
        let is_owed = device.and_then(|device| self.missing.get_mut(device as usize)).is_some_and(std::mem::take);
        if is_owed && is_right {
            return;
        }
        self.wrong.get_or_insert_with(|| match device {
            None => "an unknown device was handed out".to_owned(),
            Some(device) if is_owed => format!("device {device} has a wrong token or language"),
            Some(device) => format!("device {device} was handed out twice, or is not in the audience"),
        });
    }

    /// The digest of all devices.
    pub(super) fn finish(self) -> Result<Digest, CommandError> {
        let missing = self.missing.into_iter().filter(|&missing| missing).count();
        match self.wrong {
            Some(wrong) => Err(failed(wrong)),
            None if missing > 0 => Err(failed(format!("{missing} devices of an audience are missing"))),
            None => Ok(self.digest),
        }
    }
}

/// A thread that hands out an audience again and again, and records the times.
pub(super) struct Selecting {
    done: Arc<AtomicBool>,
    thread: JoinSet<Result<Vec<f64>, CommandError>>,
}

impl Selecting {
    pub(super) fn start(audience: &Audience, store: &Store) -> Self {
        let (done, mut thread) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let (audience, store, is_done) = (audience.clone(), store.clone(), done.clone());
        thread.spawn_blocking(move || {
            let mut millis = Vec::new();
            while !is_done.load(Ordering::Relaxed) {
                millis.push(audience.hand_out(&store)?.all.as_secs_f64() * 1e3);
            }
            Ok(millis)
        });
        Self { done, thread }
    }

    /// Stops the thread. Returns the milliseconds of each round.
    pub(super) async fn stop(mut self) -> Result<Vec<f64>, CommandError> {
        self.done.store(true, Ordering::Relaxed);
        let ended = self.thread.join_next().await.expect("one thread was started");
        ended.map_err(|error| failed_by("the selecting thread ended", &error))?
    }
}

impl Drop for Selecting {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tidings_store::Precondition;
    use tidings_telemetry::unix_now;

    use super::*;
    use crate::store;

    #[tokio::test]
    async fn a_missing_or_additional_device_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(folder.path()).await.unwrap();
        let data = Data::new(2000);
        store.import_devices((0..2000).map(|device| data.import(device)).collect(), None, unix_now()).await.unwrap();
        let audience = find(&data, &store, &[500, 1_000_000]).pop().unwrap();
        assert_eq!(audience.wanted, 500, "a million devices cannot be reached");
        assert!(audience.len.abs_diff(500) <= 50);
        let digest = audience.check(&data, &store).unwrap();
        assert_eq!(audience.hand_out(&store).unwrap().digest, digest, "the measured run hands out the checked devices");
        let owed_devices = (0..2000).filter(|&device| audience.is_owed(&data, device));
        assert_eq!(digest, Digest::of_numbers(owed_devices.map(|device| stamp(data.token(device).as_bytes()))));

        let owed = |device: &u32| audience.is_owed(&data, *device);
        let stranger = (0..2000).find(|device| !owed(device)).unwrap();
        let selection = vec![(audience.event.subjects[0].clone(), vec![audience.event.topic.clone()])];
        store.subscribe(&data::device_id(stranger), selection.clone()).await.unwrap();
        assert!(audience.check(&data, &store).is_err(), "an additional device is noticed");
        store.unsubscribe(&data::device_id(stranger), selection).await.unwrap();
        audience.check(&data, &store).unwrap();

        store.delete_device(&data::device_id((0..2000).find(owed).unwrap()), Precondition::None).await.unwrap();
        assert!(audience.check(&data, &store).is_err(), "a missing device is noticed");
        assert!(audience.hand_out(&store).is_err());
        store.close().await;
    }
}
