//! How much a look for idle devices may take.

use super::*;
use crate::NewImport;
use crate::committer::draft::Draft;
use crate::rows::{self, DeviceRow, State};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn imports(range: std::ops::Range<u32>) -> Vec<NewImport> {
    range.map(|number| device(&format!("d{number:05}")).into()).collect()
}

/// Looks once, writes what comes of it past the committer, and tells how many it took.
fn look(store: &Store, now: Timestamp, cursor: &mut Vec<u8>) -> u64 {
    let shared = store.shared();
    let engine = shared.engine.read().unwrap();
    let engine = engine.as_ref().unwrap();
    let mut draft = Draft::new(engine, shared, State::empty(shared.epoch), now);
    let count = draft.expire_devices(10 * DAY, cursor).unwrap();
    let rows = draft.finish().rows;
    if !rows.is_empty() {
        engine.commit(rows, Durability::Handed).unwrap();
    }
    count
}

#[tokio::test]
async fn a_look_takes_a_part_only_and_the_next_goes_on_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreConfig { device_count_max: 3000, ..config(folder.path()) }, Arc::<Sink>::default());
    let store = store.unwrap();
    let began = Timestamp::default().saturating_add(100 * DAY);
    store.import_devices(imports(0..2300), None, began).await.unwrap();
    let mut cursor = Vec::new();
    assert_eq!(look(&store, began.saturating_add(10 * DAY), &mut cursor), 0);
    assert_eq!(cursor, rows::number_key(DeviceNumber(999)));
    cursor.clear();
    let late = began.saturating_add(12 * DAY);
    let taken: Vec<u64> = (0..4).map(|_| look(&store, late, &mut cursor)).collect();
    assert_eq!(taken, [125, 125, 125, 125], "of 1000, of 1000, of 300; then from the beginning");
}

#[tokio::test]
async fn a_device_of_which_nobody_knows_when_it_was_seen_counts_as_seen_now() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.put_device(device("old"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let mut device = store.device(&DeviceId::new("old").unwrap()).unwrap().unwrap();
    (device.seen_at, device.token_at) = (Timestamp(0), Timestamp(0));
    let key = rows::number_key(DeviceNumber(0));
    let mut rows = Rows::default();
    rows.put(Table::Device, key, rows::encode_device(&DeviceRow { device, credential: None }));
    store.shared().engine.read().unwrap().as_ref().unwrap().commit(rows, Durability::Synced).unwrap();
    let now = Timestamp::default().saturating_add(100 * DAY);
    let mut cursor = Vec::new();
    assert_eq!(look(&store, now, &mut cursor), 0);
    assert_eq!(store.device(&DeviceId::new("old").unwrap()).unwrap().unwrap().seen_at, now);
    assert_eq!(look(&store, now.saturating_add(11 * DAY), &mut cursor), 0);
    assert_eq!(look(&store, now.saturating_add(12 * DAY), &mut cursor), 1);
}
