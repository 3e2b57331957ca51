//! The committer with a failing disk and damaged rows, and what the tests of its parts share.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tidings_types::{
    AppId, ChannelName, DeviceId, DeviceNumber, Environment, Event, EventId, JournalPosition, Locale, Offset, Platform,
    Recipients, StreamPosition, Subject, Timestamp, TopicName,
};

use crate::engine::{Durability, Engine, EngineError, Fault, Place, Rows, Span, Table};
use crate::rows::Changes;
use crate::{
    AppendError, CommitSink, DurableChannel, NewDevice, NewEvent, NewImport, Precondition, PutTerms, QueueLimit, Store,
    StoreConfig, StoredPublication, WriteError,
};

mod age;
mod channels;
mod copy;
mod damage;
mod derived;
mod expire;
mod follow;
mod heap;
mod keys;
mod older;
mod sending;

#[derive(Default)]
struct Sink(Mutex<Vec<u64>>, Mutex<Vec<DeviceNumber>>, Mutex<Vec<u64>>);

impl CommitSink for Sink {
    fn on_publication(&self, _: &ChannelName, position: StreamPosition, _: &StoredPublication, _: &DurableChannel) {
        self.0.lock().unwrap().push(position.offset.0);
    }

    fn on_events(&self, _: JournalPosition) {}

    fn on_history_removed(&self, _: &ChannelName, until: Offset) {
        self.2.lock().unwrap().push(until.0);
    }

    fn on_device_removed(&self, number: DeviceNumber) {
        self.1.lock().unwrap().push(number);
    }
}

fn open(path: &std::path::Path, sink: Arc<Sink>) -> Store {
    Store::open(config(path), sink).unwrap()
}

pub(crate) fn config(path: &std::path::Path) -> StoreConfig {
    let queue = QueueLimit { count: 16, bytes: 1 << 20 };
    let day = Duration::from_secs(24 * 3600);
    StoreConfig {
        path: path.to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 100,
        journal_bytes_max: 1 << 20,
        later_count_max: 100,
        id_window: day,
        id_window_count: 100,
        device_count_max: 100,
        subscription_count_max: 100,
        channel_count_max: 100,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        reopen_backoff_min: Duration::from_millis(1),
        reopen_backoff_max: Duration::from_millis(10),
        cache_bytes: 1 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: 8,
        idle_max: None,
        clock: || Timestamp(0),
    }
}

fn event(id: &str) -> Vec<NewEvent> {
    let subjects = vec![Subject::new("team:1").unwrap()];
    let event = Event::new(EventId::new(id).unwrap(), TopicName::new("goal").unwrap(), subjects);
    let name = ChannelName::new("team:1").unwrap();
    vec![NewEvent {
        event,
        channels: vec![DurableChannel {
            name,
            history_size: 10,
            history_ttl: Duration::from_secs(60),
            has_texts: false,
        }],
        audience_max: None,
    }]
}

fn device(name: &str) -> NewDevice {
    let (id, app) = (DeviceId::new(name).unwrap(), AppId::new("app").unwrap());
    let new = NewDevice::new(id, app, Platform::Ios, Locale::new("sv").unwrap());
    NewDevice { environment: Environment::Sandbox, ..new }
}

/// Writes a damaged row past the store.
fn damage(store: &Store, table: Table, key: &[u8]) {
    let mut rows = Rows::default();
    rows.put(table, key, "not what we wrote");
    store.shared().engine.read().as_ref().unwrap().commit(rows, Durability::Synced).unwrap();
}

/// An event that is due at `due`.
fn later(id: &str, due: u64) -> Vec<NewEvent> {
    let mut events = event(id);
    events[0].event.at = Some(Timestamp(due));
    events
}

/// Makes the next commit fail.
fn fail_next(store: &Store, fault: Fault) {
    *store.shared().engine.read().as_ref().unwrap().hooks.fault.lock().unwrap() = Some(fault);
}

/// Waits until `is_so` is true.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !is_so() {
            pulse.tick().await;
        }
    });
    waited.await.expect(what);
}

/// Appends until the store takes events again; the answer of the first that was taken.
async fn append_again(store: &Store, id: &str) -> crate::Appended {
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    let taken = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            pulse.tick().await;
            if let Ok(mut appended) = store.append_events(event(id), Timestamp(2)).await {
                return appended.remove(0);
            }
        }
    });
    taken.await.expect("the store takes events again")
}

/// Appends while the committer tries a few times to open the store again, and fails.
async fn refused_tries(store: &Store) {
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    let tried = tokio::time::timeout(Duration::from_secs(20), async {
        while store.shared().counters.not_reopened.load(Ordering::Relaxed) < 3 {
            assert!(store.append_events(event("e2"), Timestamp(1)).await.is_err());
            pulse.tick().await;
        }
    });
    tried.await.expect("the committer tries to open the store");
}

async fn with_fault(fault: Fault) -> (bool, Vec<u64>, JournalPosition) {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let store = open(folder.path(), sink.clone());
    let epoch = store.append_events(event("e1"), Timestamp(1)).await.unwrap()[0].published()[0].1.epoch;
    fail_next(&store, fault);
    let refused = store.append_events(event("e2"), Timestamp(1)).await.unwrap_err();
    assert_eq!(refused, AppendError::Write(WriteError::Unavailable));
    let again = append_again(&store, "e2").await;
    assert_eq!(again.position(), Some(JournalPosition(2)));
    assert_eq!((again.published()[0].1.offset.0, again.published()[0].1.epoch), (2, epoch));
    assert_eq!(store.append_events(event("e3"), Timestamp(2)).await.unwrap()[0].published()[0].1.offset.0, 3);
    assert_eq!(store.counts().reopened, 1);
    (again.repeated, sink.0.lock().unwrap().clone(), store.journal_end())
}

#[tokio::test]
async fn a_refused_batch_that_is_durable_is_told_and_its_repetition_has_the_same_answer() {
    assert_eq!(with_fault(Fault::AfterCommit).await, (true, vec![1, 2, 3], JournalPosition(4)));
}

#[tokio::test]
async fn a_refused_batch_that_is_not_durable_never_was() {
    assert_eq!(with_fault(Fault::BeforeCommit).await, (false, vec![1, 2, 3], JournalPosition(4)));
}

#[tokio::test]
async fn what_is_acknowledged_was_synced_except_the_checkpoints_of_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    store.put_jobs(vec![(JournalPosition(1), vec![1])], None).await.unwrap();
    store.append_events(event("e1"), Timestamp(1)).await.unwrap(); // Known: there is nothing to write.
    store.delete_device(&DeviceId::new("nobody").unwrap(), Precondition::None).await.unwrap();
    let device = device("phone");
    // In one batch or in two, the device is synced.
    let (jobs, device) = tokio::join!(
        store.remove_jobs(vec![JournalPosition(1)]),
        store.put_device(device, PutTerms::default(), Timestamp(1))
    );
    jobs.unwrap();
    device.unwrap();
    let engine = store.shared().engine.read();
    let commits = engine.as_ref().unwrap().hooks.commits.lock().unwrap();
    assert_eq!(commits[..2], [Durability::Synced, Durability::Handed]);
    assert_eq!(commits.last(), Some(&Durability::Synced));
}

/// A request of a few bytes removes all subscriptions of its device.
#[tokio::test]
async fn a_batch_is_bounded_by_what_it_changes_too() {
    const DEVICE_COUNT: u32 = 100;
    const SUBSCRIPTION_COUNT: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let device_queue = QueueLimit { count: 1000, bytes: 1 << 20 };
    let store = Store::open(StoreConfig { device_queue, ..config(folder.path()) }, Arc::new(Sink::default())).unwrap();
    let subject = |index: usize| Subject::new(&format!("team:{index}")).unwrap();
    let subscriptions: Vec<_> =
        (0..SUBSCRIPTION_COUNT).map(|index| (subject(index), TopicName::new("goal").unwrap())).collect();
    let import =
        |index: u32| NewImport { subscriptions: subscriptions.clone(), ..device(&format!("phone-{index}")).into() };
    store.import_devices((0..DEVICE_COUNT).map(import).collect(), None, Timestamp(1)).await.unwrap();
    {
        let _nothing_is_written = store.shared().engine.write();
        for index in 0..DEVICE_COUNT {
            let id = DeviceId::new(&format!("phone-{index}")).unwrap();
            let deleting = std::pin::pin!(store.delete_device(&id, Precondition::None));
            assert!(deleting.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }
    eventually("all devices are gone", || store.counts().devices == 0).await;
    let mut counts = Vec::new();
    let engine = store.shared().engine.read();
    let scanned = engine.as_ref().unwrap().scan(Place::Open, Table::Change, &Span::all(), |_, row| {
        counts.push(Changes::new(row).count());
        Ok::<_, EngineError>(true)
    });
    scanned.unwrap();
    let of_device = SUBSCRIPTION_COUNT + 1;
    assert_eq!(counts.iter().sum::<usize>(), 2 * of_device * DEVICE_COUNT as usize, "{counts:?}");
    assert!(counts[1..].iter().all(|count| *count < 256 + of_device), "{counts:?}");
    assert!(counts.len() < DEVICE_COUNT as usize / 2, "many share a batch nevertheless: {counts:?}");
}

#[tokio::test]
async fn a_damaged_row_is_named_and_costs_the_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let (phone, tablet) = (DeviceId::new("phone").unwrap(), DeviceId::new("tablet").unwrap());
    for name in ["phone", "tablet"] {
        store.put_device(device(name), PutTerms::default(), Timestamp(1)).await.unwrap();
    }
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    damage(&store, Table::Device, &[0, 0, 0, 0]);
    damage(&store, Table::Event, &1u64.to_be_bytes());
    let read = store.device(&phone).unwrap_err();
    assert!(read.to_string().starts_with(r"row \x00\x00\x00\x00 of table device is damaged"), "{read}");
    // Requests that need the row are refused. The store stays open, and other requests succeed.
    assert!(store.append_events(event("e1"), Timestamp(1)).await.is_err(), "the answer is in the damaged row");
    store.append_events(event("e2"), Timestamp(1)).await.unwrap();
    assert!(store.rotate_credential(&tablet).await.unwrap().is_some());
    assert_eq!(store.devices(None, 10).unwrap().len(), 1);
    assert_eq!((store.counts().failures, store.counts().reopened), (1, 0));
    store.close().await;
    // Read from the checkpoint, all devices are there. Read from the rows, this one is missing until it registers again.
    let store = open(folder.path(), Arc::default());
    assert_eq!((store.counts().devices, store.counts().rebuilt), (2, 0));
    store.close().await;
    std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
    let store = open(folder.path(), Arc::default());
    assert_eq!((store.counts().devices, store.counts().rebuilt), (1, 1));
    assert!(store.put_device(device("phone"), PutTerms::default(), Timestamp(2)).await.unwrap().created);
    assert_eq!(store.prove(&phone, None).unwrap(), Some(DeviceNumber(2)), "a number of its own");
    // Damaged while the store is open: registered again, the device is there once.
    damage(&store, Table::Device, &[0, 0, 0, 2]);
    assert!(store.put_device(device("phone"), PutTerms::default(), Timestamp(3)).await.unwrap().created);
    let numbers = [0, 1, 2, 3].map(DeviceNumber);
    assert_eq!((store.counts().devices, store.with_recipients(&numbers, |_| ())), (2, 2));
    damage(&store, Table::Device, &[0, 0, 0, 3]);
    assert!(store.delete_device(&phone, Precondition::None).await.unwrap());
    assert_eq!((store.counts().devices, store.prove(&phone, None).unwrap()), (1, None));
}

#[tokio::test]
async fn with_many_damaged_rows_the_store_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for number in 0..17u32 {
        damage(&store, Table::Device, &number.to_be_bytes());
    }
    store.close().await;
    let error = super::load(&Engine::open_again(folder.path(), 1 << 20).unwrap(), folder.path()).err().unwrap();
    assert!(error.to_string().starts_with(r"row \x00\x00\x00\x10 of table device is damaged"), "{error}");
}

#[tokio::test]
async fn a_row_of_a_number_that_was_never_given_out_makes_no_room_for_all_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.put_device(device("phone"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let engine = store.shared().engine.read();
    let engine = engine.as_ref().unwrap();
    let mut rows = Rows::default();
    rows.put(Table::Device, 5000u32.to_be_bytes(), engine.get(Table::Device, &[0; 4]).unwrap().unwrap().as_ref());
    engine.commit(rows, Durability::Synced).unwrap();
    assert_eq!(super::load(engine, tempfile::tempdir().unwrap().path()).unwrap().1.table.count(), 1);
}

#[tokio::test]
async fn a_damaged_publication_ends_the_history_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for id in ["e1", "e2", "e3"] {
        store.append_events(event(id), Timestamp(1)).await.unwrap();
    }
    damage(&store, Table::History, b"team:1\0\0\0\0\0\0\0\0\x02");
    let kept = store.history(&ChannelName::new("team:1").unwrap(), Timestamp(1)).unwrap();
    let offsets: Vec<u64> = kept.iter().map(|(offset, _)| offset.0).collect();
    assert_eq!((store.durable_channels(Timestamp(1)).unwrap()[0].top.0, offsets), (3, vec![3]));
}

#[tokio::test]
async fn a_store_whose_data_is_gone_is_not_begun_anew_under_those_who_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    std::fs::rename(folder.path().join("data"), folder.path().join("taken")).unwrap();
    fail_next(&store, Fault::BeforeCommit);
    refused_tries(&store).await;
    assert!(!folder.path().join("data").exists(), "an empty store in place of what was acknowledged");
    std::fs::rename(folder.path().join("taken"), folder.path().join("data")).unwrap();
    assert_eq!(append_again(&store, "e2").await.position(), Some(JournalPosition(2)));
}

#[tokio::test]
async fn a_foreign_store_in_its_place_is_not_taken_for_it() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path(), Arc::default());
    open(other.path(), Arc::default()).close().await;
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    let (data, taken) = (folder.path().join("data"), folder.path().join("taken"));
    std::fs::rename(&data, &taken).unwrap();
    std::fs::rename(other.path().join("data"), &data).unwrap();
    fail_next(&store, Fault::BeforeCommit);
    refused_tries(&store).await;
    assert_eq!(store.counts().reopened, 0);
}

#[tokio::test]
async fn named_devices_are_found_in_memory_while_the_rows_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for name in ["phone", "tablet", "watch"] {
        store.put_device(device(name), PutTerms::default(), Timestamp(1)).await.unwrap();
    }
    let names = ["watch", "nothing", "phone"].map(|name| DeviceId::new(name).unwrap());
    let to = Recipients { devices: names.into(), ..Recipients::default() };
    let to_two = Event { to: Some(to), ..event("e1").remove(0).event };
    let select = || store.select(&to_two).iter_from(DeviceNumber(0)).collect::<Vec<_>>();
    assert_eq!(select(), [DeviceNumber(0), DeviceNumber(2)]);
    let engine = store.shared().engine.write().take();
    assert_eq!(select(), [DeviceNumber(0), DeviceNumber(2)]);
    *store.shared().engine.write() = engine;
}
