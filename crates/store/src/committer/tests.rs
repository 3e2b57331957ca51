//! Batches of which nobody knows whether they are durable, until the store is open again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_types::{
    AppId, ChannelName, DeviceId, Environment, Event, EventId, JournalPosition, Locale, Platform, PushPolicy,
    StreamPosition, Subject, Timestamp, TopicName,
};

use crate::engine::{Durability, Fault};
use crate::{
    AppendError, CommitSink, DurableChannel, NewDevice, NewEvent, QueueLimit, Store, StoreConfig, StoredPublication,
    WriteError,
};

#[derive(Default)]
struct Sink(Mutex<Vec<u64>>);

impl CommitSink for Sink {
    fn on_publication(&self, _: &ChannelName, position: StreamPosition, _: &StoredPublication, _: &DurableChannel) {
        self.0.lock().unwrap().push(position.offset.0);
    }

    fn on_events(&self, _: JournalPosition) {}
}

fn open(path: &std::path::Path, sink: Arc<Sink>) -> Store {
    let queue = QueueLimit { count: 16, bytes: 1 << 20 };
    let day = Duration::from_secs(24 * 3600);
    let config = StoreConfig {
        path: path.to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 100,
        journal_bytes_max: 1 << 20,
        id_window: day,
        id_window_count: 100,
        device_count_max: 100,
        subscription_count_max: 100,
        channel_count_max: 100,
        reopen_backoff_min: Duration::from_millis(1),
        reopen_backoff_max: Duration::from_millis(10),
        cache_bytes: 1 << 20,
    };
    Store::open(config, sink).unwrap()
}

fn event(id: &str) -> Vec<NewEvent> {
    let event = Event {
        id: EventId::new(id).unwrap(),
        topic: TopicName::new("goal").unwrap(),
        subjects: vec![Subject::new("team:1").unwrap()],
        params: Default::default(),
        data: None,
        channels: vec![],
        push: PushPolicy::Never,
        collapse_key: None,
        ttl: Duration::from_secs(60),
    };
    let name = ChannelName::new("team:1").unwrap();
    vec![NewEvent {
        event,
        channels: vec![DurableChannel { name, history_size: 10, history_ttl: Duration::from_secs(60) }],
    }]
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

async fn with_fault(fault: Fault) -> (bool, Vec<u64>, JournalPosition) {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let store = open(folder.path(), sink.clone());
    let epoch = store.append_events(event("e1"), Timestamp(1)).await.unwrap()[0].published[0].1.epoch;
    *store.shared().engine.read().unwrap().as_ref().unwrap().hooks.fault.lock().unwrap() = Some(fault);
    let refused = store.append_events(event("e2"), Timestamp(1)).await.unwrap_err();
    assert_eq!(refused, AppendError::Write(WriteError::Unavailable));
    let again = append_again(&store, "e2").await;
    assert_eq!(again.position, JournalPosition(2));
    assert_eq!((again.published[0].1.offset.0, again.published[0].1.epoch), (2, epoch));
    assert_eq!(store.append_events(event("e3"), Timestamp(2)).await.unwrap()[0].published[0].1.offset.0, 3);
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
    store.delete_device(&DeviceId::new("nobody").unwrap()).await.unwrap();
    let device = NewDevice {
        id: DeviceId::new("phone").unwrap(),
        user: None,
        app: AppId::new("app").unwrap(),
        platform: Platform::Ios,
        environment: Environment::Sandbox,
        token: None,
        locale: Locale::new("sv").unwrap(),
        country: None,
    };
    // Together in one batch, or in two: the device is synced either way.
    let (jobs, device) =
        tokio::join!(store.remove_jobs(vec![JournalPosition(1)]), store.put_device(device, Timestamp(1)));
    jobs.and(device.map(drop)).unwrap();
    let engine = store.shared().engine.read().unwrap();
    let commits = engine.as_ref().unwrap().hooks.commits.lock().unwrap();
    assert_eq!(commits[..2], [Durability::Synced, Durability::Handed]);
    assert_eq!(commits.last(), Some(&Durability::Synced));
}
