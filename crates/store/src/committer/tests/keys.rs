//! A publication with an idempotency key is made once, whatever the disk and other versions of the server do.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tidings_types::{Json, Offset};

use super::*;
use crate::{Once, rows};

/// When the tests begin, and for how many milliseconds a key is remembered from then on.
const T0: u64 = 1_000_000;
const WINDOW: u64 = 300_000;
/// Keys that are remembered in tests.
const KEY_COUNT_MAX: usize = 8;

fn channel(name: &str) -> DurableChannel {
    let name = ChannelName::new(name).unwrap();
    DurableChannel { name, history_size: 10, history_ttl: Duration::from_secs(60), has_texts: false }
}

async fn publish_in(store: &Store, name: &str, key: &str, at: u64) -> Result<StreamPosition, WriteError> {
    let data = Json::of(&at); // Other data each time: the key alone counts.
    let once = Once { key: Some(key), version: None };
    store.append_publication_once(channel(name), once, data, BTreeMap::new(), Timestamp(at)).await
}

/// The offset that the answer has.
async fn publish(store: &Store, key: &str, at: u64) -> u64 {
    publish_in(store, "chat:1", key, at).await.unwrap().offset.0
}

fn with_engine<T>(store: &Store, read: impl FnOnce(&Engine) -> T) -> T {
    read(store.shared().engine.read().as_ref().unwrap())
}

/// The keys of a table's rows.
fn keys_in(store: &Store, table: Table) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let visit = |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        Ok::<_, EngineError>(true)
    };
    with_engine(store, |engine| engine.scan(Place::Open, table, &Span::all(), visit)).unwrap();
    keys
}

fn row_counts(store: &Store) -> [usize; 2] {
    [Table::PublishKey, Table::PublishKeyOrder].map(|table| keys_in(store, table).len())
}

#[tokio::test]
async fn a_repetition_has_the_first_answer_and_publishes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let store = open(folder.path(), sink.clone());
    let first = publish_in(&store, "chat:1", "a", T0).await.unwrap();
    assert_eq!(publish_in(&store, "chat:1", "a", T0 + 1).await.unwrap(), first);
    assert_eq!(publish(&store, "b", T0).await, 2);
    assert_eq!(publish_in(&store, "chat:2", "a", T0).await.unwrap().offset, Offset(1), "a key counts per channel");
    // Together in one batch, or in two.
    let (third, again) = tokio::join!(publish(&store, "c", T0), publish(&store, "c", T0));
    assert_eq!((third, again), (3, 3));
    store.append_publication(channel("chat:1"), Json::of(&1), BTreeMap::new(), None, Timestamp(T0)).await.unwrap();
    assert_eq!(*sink.0.lock().unwrap(), [1, 2, 1, 3, 4]);
    assert_eq!(row_counts(&store), [4, 4], "without a key there is nothing to remember");
    store.close().await;
    let store = open(folder.path(), sink.clone());
    assert_eq!(publish_in(&store, "chat:1", "a", T0 + 2).await.unwrap(), first);
    assert_eq!(sink.0.lock().unwrap().len(), 5);
}

/// A known key needs no room.
#[tokio::test]
async fn with_no_room_for_another_channel_a_repetition_still_has_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { channel_count_max: 1, ..config(folder.path()) };
    let store = Store::open(config, Arc::new(Sink::default())).unwrap();
    assert_eq!(publish(&store, "a", T0).await, 1);
    assert!(matches!(publish_in(&store, "chat:2", "a", T0).await, Err(WriteError::Overloaded { .. })));
    assert!(
        matches!(publish_in(&store, "chat:2", "a", T0).await, Err(WriteError::Overloaded { .. })),
        "not remembered"
    );
    assert_eq!(publish(&store, "a", T0).await, 1);
}

#[tokio::test]
async fn a_publication_in_doubt_is_published_once() {
    for fault in [Fault::AfterCommit, Fault::BeforeCommit] {
        let folder = tempfile::tempdir().unwrap();
        let sink = Arc::new(Sink::default());
        let store = open(folder.path(), sink.clone());
        assert_eq!(publish(&store, "a", T0).await, 1);
        fail_next(&store, fault);
        assert_eq!(publish_in(&store, "chat:1", "b", T0).await, Err(WriteError::Unavailable));
        let mut pulse = tokio::time::interval(Duration::from_millis(2));
        let position = loop {
            pulse.tick().await;
            match publish_in(&store, "chat:1", "b", T0).await {
                Ok(position) => break position,
                Err(error) => assert_eq!(error, WriteError::Unavailable),
            }
        };
        assert_eq!(position.offset, Offset(2), "{fault:?}");
        assert_eq!(publish(&store, "c", T0).await, 3);
        assert_eq!(*sink.0.lock().unwrap(), [1, 2, 3], "{fault:?}");
    }
}

#[tokio::test]
async fn a_key_is_forgotten_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    assert_eq!((publish(&store, "a", T0).await, publish(&store, "b", T0 + 1).await), (1, 2));
    assert_eq!(publish(&store, "a", T0 + WINDOW).await, 1);
    assert_eq!(publish(&store, "a", T0 + WINDOW + 1).await, 3, "its time is over, whether the row is gone or not");
    assert_eq!((publish(&store, "a", T0 + WINDOW + 1).await, publish(&store, "b", T0).await), (3, 2));
    eventually("the first row is gone", || row_counts(&store) == [2, 2]).await;
    assert_eq!(publish(&store, "c", T0 + 3 * WINDOW).await, 4);
    eventually("all but the last are gone", || row_counts(&store) == [1, 1]).await;
    assert_eq!(publish(&store, "c", T0 + 3 * WINDOW).await, 4);
}

#[tokio::test]
async fn with_too_many_keys_the_oldest_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for number in 0..=KEY_COUNT_MAX as u64 {
        assert_eq!(publish(&store, &number.to_string(), T0).await, number + 1);
    }
    assert_eq!(row_counts(&store), [KEY_COUNT_MAX; 2]);
    assert_eq!(publish(&store, "1", T0).await, 2, "still known");
    assert_eq!(publish(&store, "0", T0).await, KEY_COUNT_MAX as u64 + 2, "new");
}

#[tokio::test]
async fn a_damaged_key_is_not_known_and_costs_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    assert_eq!(publish(&store, "a", T0).await, 1);
    damage(&store, Table::PublishKey, &keys_in(&store, Table::PublishKey)[0]);
    assert_eq!((publish(&store, "a", T0 + 1).await, publish(&store, "a", T0 + 1).await), (2, 2), "known again");
    assert_eq!((publish(&store, "b", T0 + 1).await, publish(&store, "c", T0 + 1).await), (3, 4));
    damage(&store, Table::PublishKeyOrder, &1_u64.to_be_bytes());
    with_engine(&store, |engine| {
        let mut rows = Rows::default();
        rows.delete(Table::PublishKeyOrder, 2_u64.to_be_bytes());
        engine.commit(rows, Durability::Synced).unwrap();
    });
    assert_eq!(publish(&store, "d", T0 + 2 + WINDOW).await, 5);
    eventually("damaged places are passed over", || keys_in(&store, Table::PublishKeyOrder).len() == 1).await;
    assert_eq!((publish(&store, "a", T0 + 2 + WINDOW).await, publish(&store, "b", T0 + 2 + WINDOW).await), (6, 7));
    assert_eq!(store.counts().failures, 0);
}

/// A version without idempotency keys leaves their counters out of the state that it writes.
#[tokio::test]
async fn keys_are_found_again_after_an_older_version_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    assert_eq!((publish(&store, "a", T0).await, publish(&store, "b", T0 + 1).await), (1, 2));
    with_engine(&store, |engine| {
        let state = engine.get(Table::Meta, crate::engine::STATE_KEY).unwrap().unwrap();
        let state: rows::State = rows::decode(Table::Meta, crate::engine::STATE_KEY, state.as_ref()).unwrap();
        let state = rows::State { publish_key_base: 0, publish_key_end: 0, ..state };
        let mut rows = Rows::default();
        rows.put(Table::Meta, crate::engine::STATE_KEY, rows::encode(&state));
        rows.delete(Table::PublishKeyOrder, 0_u64.to_be_bytes());
        engine.commit(rows, Durability::Synced).unwrap();
    });
    store.close().await;
    let store = open(folder.path(), Arc::default());
    assert_eq!((publish(&store, "b", T0 + 1).await, publish(&store, "c", T0 + 1).await), (2, 3));
    assert_eq!(keys_in(&store, Table::PublishKeyOrder), [1_u64, 2].map(|number| number.to_be_bytes()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Publications in order of time; 0 as a key: the store is opened again.
    #[test]
    fn keys_are_remembered_as_a_list_remembers_them(steps in prop::collection::vec((0..12_u8, 0..WINDOW / 4), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let mut store = open(folder.path(), Arc::default());
            let (mut known, mut top, mut now) = (VecDeque::<(u8, u64, u64)>::new(), 0, T0);
            for (key, later) in steps {
                now += later;
                if key == 0 {
                    store.close().await;
                    store = open(folder.path(), Arc::default());
                    continue;
                }
                known.retain(|(_, at, _)| now - at <= WINDOW);
                let expected = known.iter().find(|(of, ..)| *of == key).map(|(.., offset)| *offset);
                assert_eq!(publish(&store, &key.to_string(), now).await, expected.unwrap_or(top + 1));
                if expected.is_none() {
                    top += 1;
                    known.push_back((key, now, top));
                    known.drain(..known.len().saturating_sub(KEY_COUNT_MAX));
                }
            }
        });
    }
}
