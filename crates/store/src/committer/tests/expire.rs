//! Which idle devices one search deletes, and how many. Before each test the clock was ahead for a moment.

use std::cell::Cell;

use super::*;
use crate::NewImport;
use crate::committer::draft::Draft;
use crate::devices::expire::IdlePass;
use crate::engine::EngineError;
use crate::rows::{self, DeviceRow, State};

const DAY: Duration = Duration::from_secs(24 * 3600);

thread_local! {
    static CLOCK: Cell<Timestamp> = const { Cell::new(Timestamp(0)) };
}

fn open_with(device_count_max: u32, path: &std::path::Path) -> Store {
    let config = StoreConfig { device_count_max, clock: || CLOCK.get(), ..config(path) };
    Store::open(config, Arc::<Sink>::default()).unwrap()
}

fn imports(range: std::ops::Range<u32>) -> Vec<NewImport> {
    range.map(|number| device(&format!("d{number:05}")).into()).collect()
}

/// Searches once, writes the result past the committer, and returns how many devices were deleted.
fn look(store: &Store, now: Timestamp, pass: &mut IdlePass) -> u64 {
    let shared = store.shared();
    let engine = shared.engine.read();
    let engine = engine.as_ref().unwrap();
    CLOCK.set(now);
    let state = State { device_next: 4000, ..State::empty(shared.epoch) };
    let mut draft = Draft::new(engine, shared, state, Timestamp(u64::MAX));
    let count = draft.expire_devices(10 * DAY, pass).unwrap();
    let rows = draft.finish().rows;
    if !rows.is_empty() {
        engine.commit(rows, Durability::Handed).unwrap();
    }
    count
}

#[tokio::test]
async fn a_look_takes_a_part_only_and_the_next_goes_on_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with(3000, folder.path());
    let began = Timestamp::default().saturating_add(100 * DAY);
    store.import_devices(imports(0..2300), None, began).await.unwrap();
    let mut pass = IdlePass::default();
    assert_eq!(look(&store, began.saturating_add(10 * DAY), &mut pass), 0);
    assert_eq!(pass.next, 250);
    let (late, mut pass) = (began.saturating_add(12 * DAY), IdlePass::default());
    let taken: Vec<u64> = (0..20).map(|_| look(&store, late, &mut pass)).collect();
    assert_eq!(taken[..9], [31; 9], "of 250 each");
    assert_eq!((taken[10..16].to_vec(), taken[16..].to_vec()), (vec![0; 6], vec![31; 4]), "again from the beginning");
}

/// Whoever has read all devices, of which none is due, does not read them again before one is.
#[tokio::test]
async fn a_pass_begins_when_a_device_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with(3000, folder.path());
    let began = Timestamp::default().saturating_add(100 * DAY);
    store.import_devices(imports(0..10), None, began).await.unwrap();
    let read = || store.shared().counters.scans.of(Place::IdleDevices).rows;
    let mut pass = IdlePass::default();
    let mut looks = |at, count| (0..count).map(|_| look(&store, at, &mut pass)).sum::<u64>();
    assert_eq!((looks(began, 100), read()), (0, 10));
    let old = NewImport { seen_at: Some(began), ..device("old").into() };
    store.import_devices(vec![old], None, began.saturating_add(5 * DAY)).await.unwrap();
    assert_eq!((looks(began.saturating_add(11 * DAY), 100), read()), (0, 10), "nobody was away for more than 11 days");
    assert_eq!((looks(began.saturating_add(12 * DAY), 16), read()), (11, 21));
}

#[tokio::test]
async fn a_device_of_which_nobody_knows_when_it_was_seen_counts_as_seen_now() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with(100, folder.path());
    store.put_device(device("old"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let mut device = store.device(&DeviceId::new("old").unwrap()).unwrap().unwrap();
    (device.seen_at, device.token_at) = (Timestamp(0), Timestamp(1)); // As of version 1.
    let key = rows::number_key(DeviceNumber(0));
    let mut rows = Rows::default();
    rows.put(Table::Device, key, rows::encode_device(&DeviceRow { device, credential: None }));
    store.shared().engine.read().as_ref().unwrap().commit(rows, Durability::Synced).unwrap();
    let now = Timestamp::default().saturating_add(100 * DAY);
    let mut pass = IdlePass::default();
    assert_eq!(look(&store, now, &mut pass), 0);
    assert_eq!(store.device(&DeviceId::new("old").unwrap()).unwrap().unwrap().seen_at, now);
    (0..20).for_each(|_| assert_eq!(look(&store, now.saturating_add(11 * DAY), &mut pass), 0));
    assert_eq!(look(&store, now.saturating_add(12 * DAY), &mut pass), 1);
}

#[tokio::test]
async fn devices_with_many_subscriptions_expire_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.subscription_count_max, config.clock) = (10_000, || CLOCK.get());
    config.import_queue = QueueLimit { count: 16, bytes: 64 << 20 };
    let store = Store::open(config, Arc::<Sink>::default()).unwrap();
    let subject = Subject::new("team:1").unwrap();
    let topics = (0..9000).map(|topic| (subject.clone(), TopicName::new(&format!("t{topic}")).unwrap()));
    let subscriptions: Vec<_> = topics.collect();
    let began = Timestamp::default().saturating_add(100 * DAY);
    for name in ["a", "b", "c"] {
        let import = NewImport { subscriptions: subscriptions.clone(), ..device(name).into() };
        store.import_devices(vec![import], None, began).await.unwrap();
    }
    assert_eq!(
        look(&store, began.saturating_add(12 * DAY), &mut IdlePass::default()),
        2,
        "more than 16 000 changes are enough"
    );
}

/// Devices behind an unreadable block expire too.
#[tokio::test]
async fn a_block_that_cannot_be_read_is_gone_around() {
    let folder = tempfile::tempdir().unwrap();
    let began = Timestamp::default().saturating_add(100 * DAY);
    let store = open_with(3000, folder.path());
    store.import_devices(imports(0..2000), None, began).await.unwrap();
    store.shared().engine.read().as_ref().unwrap().flush(Table::Device);
    store.close().await;
    super::damage::flip_in_largest(folder.path(), &[0.3]);
    let store = open_with(3000, folder.path());
    let all = |key: &[u8], _: &[u8]| Ok::<_, EngineError>(!key.is_empty());
    let engine = store.shared().engine.read();
    assert!(engine.as_ref().unwrap().scan(Place::Open, Table::Device, &Span::all(), all).is_err());
    drop(engine);
    let late = began.saturating_add(12 * DAY);
    let (mut pass, mut taken, mut highest) = (IdlePass::default(), 0, 0);
    for _ in 0..1500 {
        taken += look(&store, late, &mut pass);
        if pass.next < highest {
            break; // It begins again.
        }
        highest = pass.next;
    }
    assert!(pass.next == 0 && taken > 0, "{taken} taken, {highest:?}");
}
