//! What the tests share: a small configuration, names, a sink that remembers.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tidings_store::{
    Appended, CommitSink, DurableChannel, GoneToken, NewDevice, NewEvent, NewImport, QueueLimit, RestoredChannel,
    Store, StoreConfig, StoredPublication, WriteError,
};
use tidings_types::{
    AppId, ChannelName, DeviceId, DeviceNumber, DeviceToken, Event, EventId, JournalPosition, Locale, Mute, Offset,
    ParamValue, Platform, PushPolicy, Recipients, StreamPosition, Subject, Timestamp, TokenRef, TopicName, UserId,
};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// A moment to begin with, far from zero.
pub(crate) const T0: Timestamp = Timestamp(1_000_000_000);

pub(crate) fn config(path: &Path) -> StoreConfig {
    let queue = QueueLimit { count: 1024, bytes: 8 << 20 };
    StoreConfig {
        path: path.to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 1_000_000,
        journal_bytes_max: 1 << 30,
        later_count_max: 1_000_000,
        id_window: 24 * HOUR,
        id_window_count: 1_000_000,
        device_count_max: 1_000_000,
        subscription_count_max: 100,
        channel_count_max: 1000,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        reopen_backoff_min: Duration::from_millis(5),
        reopen_backoff_max: Duration::from_millis(50),
        cache_bytes: 1 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: 8,
        idle_max: None,
        clock: || Timestamp(0),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Publication(ChannelName, StreamPosition, String),
    Events(JournalPosition),
    Forgotten(ChannelName, Offset),
}

/// Remembers what it was told.
#[derive(Default)]
pub(crate) struct Sink(pub(crate) Mutex<Vec<Told>>);

impl Sink {
    pub(crate) fn told(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }
}

impl CommitSink for Sink {
    fn on_publication(
        &self,
        channel: &ChannelName,
        position: StreamPosition,
        publication: &StoredPublication,
        durable: &DurableChannel,
    ) {
        assert_eq!(*channel, durable.name);
        let told = Told::Publication(channel.clone(), position, publication.data.as_str().to_owned());
        self.0.lock().unwrap().push(told);
    }

    fn on_channel_forgotten(&self, channel: &ChannelName, floor: Offset) {
        self.0.lock().unwrap().push(Told::Forgotten(channel.clone(), floor));
    }

    fn on_events(&self, end: JournalPosition) {
        self.0.lock().unwrap().push(Told::Events(end));
    }
}

pub(crate) fn open(path: &Path) -> (Store, Arc<Sink>) {
    open_with(config(path))
}

pub(crate) fn open_with(config: StoreConfig) -> (Store, Arc<Sink>) {
    let sink = Arc::new(Sink::default());
    (Store::open(config, sink.clone()).unwrap(), sink)
}

pub(crate) fn subject(text: &str) -> Subject {
    Subject::new(text).unwrap()
}

pub(crate) fn topic(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

pub(crate) fn id(text: &str) -> DeviceId {
    DeviceId::new(text).unwrap()
}

pub(crate) fn user(text: &str) -> UserId {
    UserId::new(text).unwrap()
}

pub(crate) fn token(byte: u8) -> DeviceToken {
    DeviceToken::from([byte; 32].as_slice())
}

/// Reports one token as gone; true when it was removed.
pub(crate) async fn token_gone(
    store: &Store,
    number: DeviceNumber,
    token: DeviceToken,
    gone_at: Option<Timestamp>,
) -> Result<bool, WriteError> {
    Ok(store.tokens_gone(vec![GoneToken { number, token, gone_at }]).await? == 1)
}

pub(crate) fn device(name: &str, token: Option<DeviceToken>) -> NewDevice {
    let (app, locale) = (AppId::new("com.example.app").unwrap(), Locale::new("sv-SE").unwrap());
    NewDevice { token, ..NewDevice::new(id(name), app, Platform::Ios, locale) }
}

pub(crate) fn import(device: NewDevice, subscriptions: Vec<(Subject, TopicName)>) -> NewImport {
    NewImport { subscriptions, ..device.into() }
}

pub(crate) fn event(id: &str, minute: i64) -> Event {
    Event {
        params: [("minute".to_owned(), ParamValue::Integer(minute))].into(),
        push: PushPolicy::Always,
        ttl: HOUR,
        ..Event::new(EventId::new(id).unwrap(), topic("goal"), vec![subject("team:1")])
    }
}

pub(crate) fn channel(name: &str, history_size: u32) -> DurableChannel {
    DurableChannel { name: ChannelName::new(name).unwrap(), history_size, history_ttl: HOUR, has_texts: false }
}

pub(crate) fn new_event(id: &str, minute: i64, channels: &[DurableChannel]) -> NewEvent {
    NewEvent { event: event(id, minute), channels: channels.to_vec(), audience_max: None }
}

/// The place in the journal of an event that is there.
pub(crate) fn place(appended: &Appended) -> u64 {
    appended.position().expect("it is in the journal").0
}

/// A durable channel with what it keeps.
#[derive(Debug, PartialEq)]
pub(crate) struct KeptChannel {
    pub(crate) name: ChannelName,
    pub(crate) top: Offset,
    pub(crate) publications: Vec<(Offset, StoredPublication)>,
}

pub(crate) fn channels(store: &Store, now: Timestamp) -> Vec<KeptChannel> {
    let kept = |RestoredChannel { name, top, .. }| {
        let publications = store.history(&name, now).unwrap();
        KeptChannel { name, top, publications }
    };
    store.durable_channels(now).unwrap().into_iter().map(kept).collect()
}

pub(crate) fn audience(store: &Store, topic_name: &str, subjects: &[&str]) -> Vec<DeviceNumber> {
    let subjects: Vec<Subject> = subjects.iter().map(|text| subject(text)).collect();
    let event = Event::new(EventId::new("asked").unwrap(), topic(topic_name), subjects);
    store.select(&event).iter_from(DeviceNumber(0)).collect()
}

/// Who is told of an event that names these.
pub(crate) fn named(store: &Store, users: &[&str], devices: &[&str]) -> Vec<DeviceNumber> {
    let (users, devices) =
        (users.iter().map(|name| user(name)).collect(), devices.iter().map(|name| id(name)).collect());
    let event = Event { to: Some(Recipients { users, devices, selector: None }), ..event("asked", 1) };
    store.select(&event).iter_from(DeviceNumber(0)).collect()
}

/// The token of a device as sending sees it; the outer `None` when there is no such device.
pub(crate) fn sending_token(store: &Store, name: &str) -> Option<Option<DeviceToken>> {
    let number = store.device_number(&id(name)).unwrap()?;
    let mut found = None;
    store.with_recipients(&[number], |recipient| found = Some(recipient.token.map(TokenRef::to_token)));
    found
}

/// Whether sending knows the device's token as accepted.
pub(crate) fn is_proven(store: &Store, name: &str) -> bool {
    let mut proven = false;
    if let Some(number) = store.device_number(&id(name)).unwrap() {
        store.with_recipients(&[number], |recipient| proven = recipient.proven);
    }
    proven
}

/// Polls all futures in their order until all are ready, so that their requests are queued in this order.
pub(crate) async fn join_all<'a, T>(futures: Vec<Pin<Box<dyn Future<Output = T> + 'a>>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    std::future::poll_fn(|context| {
        for (slot, output) in &mut futures {
            if let Some(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                (*slot, *output) = (None, Some(value));
            }
        }
        if futures.iter().all(|(slot, _)| slot.is_none()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

/// A mute as text has its scope: `everything`, or a subject.
pub(crate) fn mute(scope: &str, until: Option<Timestamp>) -> Mute {
    Mute { scope: scope.parse().unwrap(), until }
}

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within 20 seconds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let mut pulse = tokio::time::interval(Duration::from_millis(5));
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            pulse.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "{what} did not happen within 20 s");
}

/// All rows of the store in `folder`, which is not open, can be read and belong together.
pub(crate) fn assert_sound(folder: &Path) {
    let findings = tidings_store::backup::verify_folder(folder, |_| ()).unwrap().findings;
    assert_eq!(findings, Default::default());
}
