//! Damaged rows: each costs only what needs the row.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use tidings_types::{BrakeScope, DeviceToken, Json, Mute, MuteScope, TokenRef, UserId};

use super::*;
use crate::committer::draft::Draft;
use crate::hash::hash16;
use crate::mutes::ends::MuteEnds;
use crate::rows;
use crate::{ExportPage, GoneToken, ReadError};

fn id(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn token(name: &str) -> Option<DeviceToken> {
    Some(DeviceToken::from(name.as_bytes()))
}

fn goals() -> Vec<(Subject, TopicName)> {
    vec![(Subject::new("team:1").unwrap(), TopicName::new("goal").unwrap())]
}

fn import(name: &str) -> NewImport {
    let device = NewDevice { token: token(name), ..device(name) };
    NewImport { subscriptions: goals(), proven: true, ..device.into() }
}

/// The devices that a goal is pushed to, with their tokens as text.
fn told(store: &Store) -> Vec<(String, Option<DeviceToken>)> {
    let numbers: Vec<_> = store.select(&event("e").remove(0).event).iter_from(DeviceNumber(0)).collect();
    let mut told = Vec::new();
    store.with_recipients(&numbers, |found| told.push((found.id.to_string(), found.token.map(TokenRef::to_token))));
    told
}

fn with_draft<T>(store: &Store, work: impl FnOnce(&mut Draft<'_>) -> T) -> T {
    let shared = store.shared();
    let engine = shared.engine.read();
    let engine = engine.as_ref().unwrap();
    let (state, derived) = super::super::load(engine, tempfile::tempdir().unwrap().path()).unwrap();
    *shared.blocks.lock().unwrap() = derived.blocks; // Where a draft is dropped, the store is opened again.
    work(&mut Draft::new(engine, shared, state, Timestamp(1)))
}

/// A few changes of every kind, told apart by `name`.
fn change(draft: &mut Draft<'_>, name: &str) -> Result<(), EngineError> {
    draft.import(vec![import(name)], None, Timestamp(1))?.unwrap();
    draft
        .unsubscribe(&id("kept"), goals().into_iter().map(|(subject, topic)| (subject, vec![topic])).collect())?
        .unwrap();
    draft.set_proven(DeviceNumber(0), name == "second");
    draft.pause(BrakeScope::App(AppId::new(name).unwrap()), Timestamp(1)).unwrap();
    draft.cancel(JournalPosition(1));
    draft.cancel_later(hash16(b"later"))?;
    let prepared = |new: NewEvent| crate::events::prepared::prepare(new, Timestamp(1));
    draft.append_events(event(name).into_iter().map(prepared).collect(), Timestamp(1))?.unwrap();
    draft
        .append_events(later(&format!("{name}-later"), 99).into_iter().map(prepared).collect(), Timestamp(1))?
        .unwrap();
    Ok(())
}

/// What a batch would write, and the number of its changes in memory.
fn outcome(store: &Store, work: impl FnOnce(&mut Draft<'_>)) -> (String, usize) {
    with_draft(store, |draft| {
        work(draft);
        let counts = draft.subscription_count(DeviceNumber(0));
        let proven = draft.proven.values().map(|bits| format!("{bits:?}")).collect::<Vec<_>>().concat();
        draft.rows.keep();
        (format!("{:?} {:?} {:?} {counts} {proven}", draft.rows, draft.state, draft.brakes), draft.effects.len())
    })
}

#[tokio::test]
async fn a_request_that_meets_damage_leaves_no_trace_in_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.import_devices(vec![import("kept")], None, Timestamp(1)).await.unwrap();
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    store.append_events(later("later", 50), Timestamp(1)).await.unwrap();
    let refused = |draft: &mut Draft<'_>, name: &str| {
        let done = draft.attempt(|draft| {
            change(draft, name)?;
            Err::<(), _>(EngineError::damaged(Table::Event, b"e"))
        });
        assert!(done.unwrap().is_none());
    };
    let expected = outcome(&store, |draft| draft.attempt(|draft| change(draft, "first")).map(drop).unwrap());
    let found = outcome(&store, |draft| {
        refused(draft, "second");
        draft.attempt(|draft| change(draft, "first")).map(drop).unwrap();
        refused(draft, "third");
    });
    assert_eq!(found, expected);
    let nothing = outcome(&store, |draft| refused(draft, "second"));
    assert_eq!(nothing.1, 0);
}

/// A producer repeats a request that needs a damaged row. The requests of others are not refused.
#[tokio::test]
async fn others_of_the_batch_are_not_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    damage(&store, Table::Event, &1u64.to_be_bytes());
    for round in 0..20 {
        let (first, second) = (format!("a{round}"), format!("b{round}"));
        let (damaged, first, second, device) = tokio::join!(
            store.append_events([event("new"), event("e1")].concat(), Timestamp(1)),
            store.append_events(event(&first), Timestamp(1)),
            store.append_events(event(&second), Timestamp(1)),
            store.put_device(device("phone"), PutTerms::default(), Timestamp(1)),
        );
        assert_eq!(damaged.unwrap_err(), AppendError::Write(WriteError::Unavailable));
        assert!(first.is_ok() && second.is_ok() && device.is_ok(), "round {round}");
    }
    assert!(!store.is_known(&EventId::new("new").unwrap()).unwrap(), "all or nothing");
    assert_eq!((store.counts().failures, store.counts().reopened), (20, 0));
}

#[tokio::test]
async fn a_damaged_event_is_passed_over_and_trimmed_and_so_is_all_around_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.id_window, config.id_window_count) = (Duration::ZERO, 1);
    let store = Store::open(config, Arc::new(Sink::default())).unwrap();
    for name in ["e1", "e2", "e3", "e4"] {
        store.append_events(event(name), Timestamp(1)).await.unwrap();
    }
    damage(&store, Table::Event, &2u64.to_be_bytes());
    damage(&store, Table::Channel, b"team:0"); // Trimming looks at channels as well.
    let read = |limit| -> Vec<u64> {
        store.events_from(JournalPosition(2), limit).unwrap().into_iter().map(|(position, _)| position.0).collect()
    };
    assert_eq!((read(1), read(9)), (vec![3], vec![3, 4]), "never nothing where there is something");
    store.trim(JournalPosition(5));
    store.append_events(event("e5"), Timestamp(9)).await.unwrap();
    wait_trimmed(&store, 5).await;
    assert!(!store.append_events(event("e2"), Timestamp(9)).await.unwrap()[0].repeated, "its id is free");
}

/// Waits until `position` is the first that is left.
async fn wait_trimmed(store: &Store, position: u64) {
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    let trimmed = tokio::time::timeout(Duration::from_secs(20), async {
        while store.events_from(JournalPosition(0), 1).unwrap().first().is_none_or(|(first, _)| first.0 < position) {
            pulse.tick().await;
        }
    });
    trimmed.await.expect("old events are trimmed");
}

#[tokio::test]
async fn a_device_whose_name_or_token_leads_nowhere_is_found_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Arc::default());
    store.import_devices(vec![import("phone"), import("tablet")], None, Timestamp(1)).await.unwrap();
    damage(&store, Table::DeviceId, b"phone");
    damage(&store, Table::Token, &rows::token_key(&token("tablet").unwrap()));
    for restarted in [false, true] {
        assert_eq!(store.device(&id("phone")).unwrap().unwrap().id, id("phone"), "restarted: {restarted}");
        assert_eq!(store.devices(None, 9).unwrap().len(), 1, "it is left out of the list");
        store.close().await;
        store = open(folder.path(), Arc::default());
    }
    // It takes the token of the other device, and gets its own name again.
    let moved = NewDevice { token: token("tablet"), ..device("phone") };
    let registered = store.put_device(moved, PutTerms::default(), Timestamp(2)).await.unwrap();
    assert!(!registered.created);
    let expected = [("phone", token("tablet")), ("tablet", None)];
    assert_eq!(told(&store), expected.map(|(name, token)| (name.to_owned(), token)));
    assert_eq!(store.devices(None, 9).unwrap().len(), 2);
    assert!(store.delete_device(&id("phone"), Precondition::None).await.unwrap());
    assert_eq!(store.counts().devices, 1);
}

/// A row leads to the number of another device: that device loses nothing, and nothing is proven by it.
#[tokio::test]
async fn a_row_that_leads_to_a_stranger_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let secret = store
        .put_device(NewDevice { token: token("a"), ..device("a") }, PutTerms::default(), Timestamp(1))
        .await
        .unwrap();
    let secret = secret.credential.unwrap();
    store.put_device(NewDevice { token: token("b"), ..device("b") }, PutTerms::default(), Timestamp(1)).await.unwrap();
    let mut rows = Rows::default();
    rows.put(Table::DeviceId, &b"b"[..], 0u32.to_be_bytes());
    rows.put(Table::DeviceId, &b"d"[..], 0u32.to_be_bytes());
    rows.put(Table::Token, rows::token_key(&token("c").unwrap()), 0u32.to_be_bytes());
    store.shared().engine.read().as_ref().unwrap().commit(rows, Durability::Synced).unwrap();
    assert!(matches!(store.prove(&id("d"), Some(secret.as_str())), Err(error) if error.is_damage()));
    assert!(matches!(store.device(&id("d")), Err(ReadError::Engine(_))));
    assert_eq!(store.prove(&id("b"), Some(secret.as_str())).unwrap(), None, "memory knows whose it is");
    assert_eq!(store.device(&id("b")).unwrap().unwrap().token, token("b"));
    store.put_device(NewDevice { token: token("c"), ..device("c") }, PutTerms::default(), Timestamp(1)).await.unwrap();
    assert_eq!(store.device(&id("a")).unwrap().unwrap().token, token("a"), "its token is its own");
}

/// The row that named a device leads to another device. The device is registered again, while memory still has the old
/// device under the same id.
#[tokio::test]
async fn of_two_devices_with_one_id_the_row_decides() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.import_devices(vec![import("a"), import("b")], None, Timestamp(1)).await.unwrap();
    let mut rows = Rows::default();
    rows.put(Table::DeviceId, &b"b"[..], 0u32.to_be_bytes());
    store.shared().engine.read().as_ref().unwrap().commit(rows, Durability::Synced).unwrap();
    store.close().await;
    let store = open(folder.path(), Arc::default());
    let new = NewDevice { token: token("b"), ..device("b") };
    let registered = store.put_device(new, PutTerms::default(), Timestamp(2)).await.unwrap();
    assert!(registered.created);
    let number = store.device_number(&id("b")).unwrap();
    let secret = registered.credential.unwrap();
    assert_eq!(store.prove(&id("b"), Some(secret.as_str())).unwrap(), number);
    store
        .subscribe(&id("b"), vec![(Subject::new("team:9").unwrap(), vec![TopicName::new("goal").unwrap()])])
        .await
        .unwrap();
    let mut event = event("e").remove(0).event;
    event.subjects = vec![Subject::new("team:9").unwrap()];
    assert_eq!(store.select(&event).iter_from(DeviceNumber(0)).collect::<Vec<_>>(), Vec::from_iter(number));
    // The old device is deleted, the new one stays.
    with_draft(&store, |draft| {
        let row = draft.row(DeviceNumber(1)).unwrap().unwrap();
        draft.remove_device(DeviceNumber(1), row).unwrap();
        assert_eq!(draft.find_number(&id("b")).unwrap(), number);
        assert_eq!(draft.rows.get(Table::DeviceId, b"b"), None);
    });
    assert!(store.delete_device(&id("b"), Precondition::None).await.unwrap());
    assert_eq!((store.device(&id("b")).unwrap(), store.select(&event).len()), (None, 0));
}

#[tokio::test]
async fn a_damaged_channel_goes_on_from_its_history_and_others_come_back_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Arc::default());
    for name in ["e1", "e2"] {
        store.append_events(event(name), Timestamp(1)).await.unwrap();
    }
    let other = DurableChannel {
        name: ChannelName::new("team:2").unwrap(),
        history_size: 0,
        history_ttl: Duration::from_secs(60),
        has_texts: false,
    };
    let publish = |store: Store, channel: DurableChannel| async move {
        store.append_publication(channel, Json::of(&1), Default::default(), None, Timestamp(1000)).await
    };
    publish(store.clone(), other.clone()).await.unwrap();
    publish(store.clone(), DurableChannel { name: ChannelName::new("team:3").unwrap(), ..other.clone() })
        .await
        .unwrap();
    damage(&store, Table::Channel, b"team:1");
    damage(&store, Table::Channel, b"team:2");
    let tops = |store: &Store| -> Vec<(String, u64)> {
        let channels = store.durable_channels(Timestamp(1)).unwrap();
        channels.into_iter().map(|channel| (channel.name.to_string(), channel.top.0)).collect()
    };
    // Which offsets the second channel has given out is not known. So it goes on behind all of them, at the current
    // millisecond.
    assert_eq!(tops(&store), [("team:1".to_owned(), 2), ("team:2".to_owned(), 1), ("team:3".to_owned(), 1)]);
    for expected in [1001, 1002] {
        assert_eq!(publish(store.clone(), other.clone()).await.unwrap().offset.0, expected);
    }
    assert_eq!(store.append_events(event("e3"), Timestamp(1)).await.unwrap()[0].published()[0].1.offset.0, 3);
    store.close().await;
    store = open(folder.path(), Arc::default());
    assert_eq!(tops(&store)[..2], [("team:1".to_owned(), 3), ("team:2".to_owned(), 1002)]);
}

/// Publishes with an idempotency key; the offset that the answer has.
async fn publish_once(store: &Store, name: &str) -> u64 {
    let place = ChannelName::new(&format!("told:{name}")).unwrap();
    let channel =
        DurableChannel { name: place, history_size: 2, history_ttl: Duration::from_secs(60), has_texts: false };
    let once = crate::Once { key: Some(name), version: None };
    let published = store.append_publication_once(channel, once, Json::of(&1), Default::default(), Timestamp(1)).await;
    published.unwrap().offset.0
}

/// Every kind of row, twice: the rows of `a` will be damaged, those of `b` must stay as they are.
async fn fill(store: &Store) {
    for name in ["a", "b"] {
        store
            .put_device(NewDevice { token: token(name), ..device(name) }, PutTerms::default(), Timestamp(1))
            .await
            .unwrap();
        store.import_devices(vec![import(name)], None, Timestamp(1)).await.unwrap();
        let mut new = event(name);
        new[0].channels[0].name = ChannelName::new(&format!("team:{name}")).unwrap();
        store.append_events(new, Timestamp(1)).await.unwrap();
        store.append_events(later(&format!("later-{name}"), 9), Timestamp(1)).await.unwrap();
        store.pause(BrakeScope::App(AppId::new(name).unwrap()), Timestamp(1)).await.unwrap();
        publish_once(store, name).await;
    }
    store.put_jobs(vec![(JournalPosition(1), vec![1; 9]), (JournalPosition(2), vec![2; 9])], None).await.unwrap();
}

/// The tables whose rows are damaged. Not `meta`: without it the folder is no store.
const FLIPPED: [Table; 13] = [
    Table::Event,
    Table::EventId,
    Table::Channel,
    Table::History,
    Table::Job,
    Table::Device,
    Table::DeviceId,
    Table::Token,
    Table::Later,
    Table::Brake,
    Table::Proven,
    Table::PublishKey,
    Table::PublishKeyOrder,
];

/// Flips bits of one byte of a table's first row, which is the row of `a`.
fn flip(store: &Store, table: Table, place: prop::sample::Index, mask: u8) {
    let engine = store.shared().engine.read();
    let engine = engine.as_ref().unwrap();
    let first = match table {
        Table::Token => rows::token_key(&token("a").unwrap()).to_vec(),
        Table::EventId => hash16(b"a").to_vec(),
        Table::PublishKey => hash16(b"told:a\0a").to_vec(),
        _ => Vec::new(),
    };
    let mut rows = Rows::default();
    let visit = |key: &[u8], row: &[u8]| {
        let mut row = row.to_vec();
        let index = place.index(row.len());
        row[index] ^= mask;
        rows.put(table, key, row);
        Ok::<_, EngineError>(false)
    };
    engine.scan(Place::Open, table, &Span::all().from(&first), visit).unwrap();
    engine.commit(rows, Durability::Synced).unwrap();
}

/// Everything that a store does still works for `b` and for new things.
async fn goes_on(store: &Store) {
    assert_eq!(store.device(&id("b")).unwrap().unwrap().token, token("b"));
    assert!(told(store).contains(&("b".to_owned(), token("b"))), "{:?}", told(store));
    let mut again = event("b");
    again[0].channels[0].name = ChannelName::new("team:b").unwrap();
    assert!(store.append_events(again, Timestamp(1)).await.unwrap()[0].repeated);
    assert!(!store.append_events(event("new"), Timestamp(2)).await.unwrap()[0].repeated);
    let names = |store: &Store| -> BTreeSet<String> {
        let events = store.events_from(JournalPosition(0), 100).unwrap();
        events.into_iter().map(|(_, accepted)| accepted.event.id.to_string()).collect()
    };
    assert!(names(store).is_superset(&["b", "new"].map(str::to_owned).into()), "{:?}", names(store));
    assert!(store.later_events(None, 9).unwrap().iter().any(|later| later.event.id.as_str() == "later-b"));
    while store.release_later(Timestamp(9)).await.unwrap() > 0 {}
    assert!(names(store).contains("later-b"));
    assert!(store.brakes().borrow().is_paused(&BrakeScope::App(AppId::new("b").unwrap())));
    assert!(store.jobs().unwrap().contains(&(JournalPosition(2), vec![2; 9])));
    assert!(
        store
            .put_device(NewDevice { token: token("c"), ..device("c") }, PutTerms::default(), Timestamp(3))
            .await
            .unwrap()
            .created
    );
    assert_eq!(publish_once(store, "b").await, 1);
    // What was damaged can be written again.
    publish_once(store, "a").await;
    store.put_device(NewDevice { token: token("a"), ..device("a") }, PutTerms::default(), Timestamp(3)).await.unwrap();
    store.delete_device(&id("a"), Precondition::None).await.unwrap();
    assert_eq!(store.history(&ChannelName::new("team:b").unwrap(), Timestamp(1)).unwrap().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, max_shrink_iters: 60, ..ProptestConfig::default() })]

    /// Whichever byte of whichever row is damaged: the store opens, and everything else works.
    #[test]
    fn a_flipped_byte_costs_its_own_row(
        table in prop::sample::select(&FLIPPED[..]),
        place in any::<prop::sample::Index>(),
        mask in 1..=u8::MAX,
        is_reopened in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let mut store = open(folder.path(), Arc::default());
            fill(&store).await;
            flip(&store, table, place, mask);
            if is_reopened {
                store.close().await;
                store = open(folder.path(), Arc::default());
            }
            goes_on(&store).await;
            assert_eq!(store.counts().reopened, 0, "a damaged row is no failing disk");
            store.trim(store.journal_end());
            store.close().await;
            goes_on_after_restart(&open(folder.path(), Arc::default()));
        });
    }
}

fn goes_on_after_restart(store: &Store) {
    assert_eq!(store.device(&id("b")).unwrap().unwrap().token, token("b"));
    assert!(told(store).iter().any(|(name, _)| name == "b"));
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Flips a byte of the largest file of a table at each of these places, between 0 and 1.
pub(super) fn flip_in_largest(folder: &std::path::Path, places: &[f64]) {
    let size = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len();
    let tables = files(&folder.join("data"));
    let tables = tables.into_iter().filter(|path| path.parent().is_some_and(|parent| parent.ends_with("tables")));
    let largest = tables.max_by_key(size).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    for place in places {
        let index = (bytes.len() as f64 * place) as usize;
        bytes[index] ^= 0xff;
    }
    std::fs::write(&largest, bytes).unwrap();
}

/// Closes the store and flips bytes in the rows of one table, at places between 0 and 1 of its file.
async fn close_and_flip(store: Store, folder: &std::path::Path, table: Table, places: &[f64]) {
    let before = files(&folder.join("data"));
    store.shared().engine.read().as_ref().unwrap().flush(table);
    let mut new = files(&folder.join("data"));
    new.retain(|path| path.parent().is_some_and(|parent| parent.ends_with("tables")) && !before.contains(path));
    assert_eq!(new.len(), 1, "{new:?}");
    store.close().await;
    let mut bytes = std::fs::read(&new[0]).unwrap();
    for place in places {
        let index = (bytes.len() as f64 * place) as usize;
        bytes[index] ^= 0xff;
    }
    std::fs::write(&new[0], bytes).unwrap();
}

/// A name that does not become small.
fn long_name(index: u64) -> String {
    let parts: Vec<_> = (0..3).map(|part| hash16(&(1000 * index + part).to_be_bytes())).collect();
    parts.concat().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Those whose ends were in the block, too, though not to the second.
#[tokio::test]
async fn a_block_that_cannot_be_read_holds_up_no_end_of_a_mute() {
    static NOW: AtomicU64 = AtomicU64::new(1000);
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let clock = || Timestamp(NOW.load(Ordering::Relaxed));
        let config = StoreConfig { clock, device_count_max: 400, ..config(folder.path()) };
        Store::open(config, Arc::new(Sink::default())).unwrap()
    };
    let import = |index: u64| {
        let mute = |part: u64| {
            let subject = Subject::new(&format!("team:{}", long_name(8 * index + part))).unwrap();
            // Four of ten are over, and one holds for ever.
            let until = 2000 + 10 * (index % 10) + part;
            Mute { scope: MuteScope::Subject(subject), until: (index > 0).then_some(Timestamp(until)) }
        };
        NewImport { mutes: (0..5).map(mute).collect(), ..device(&format!("phone-{index}")).into() }
    };
    let store = open();
    store.import_devices((0..300).map(import).collect(), None, Timestamp(1000)).await.unwrap();
    close_and_flip(store, folder.path(), Table::MuteEnd, &[0.2, 0.35, 0.8]).await;

    NOW.store(2040, Ordering::Relaxed);
    let store = open();
    let mutes = |index: u64| store.mutes(&id(&format!("phone-{index}"))).unwrap().unwrap().len();
    let left = |index: u64| match index % 10 {
        0..4 if index > 0 => 0,
        4 => 4, // Of these the first is over.
        _ => 5,
    };
    eventually("the end of what is over", || (0..300).all(|index| mutes(index) == left(index))).await;
    assert_eq!(store.counts().failures, 0);
    NOW.store(9000, Ordering::Relaxed);
    eventually("what came to its end later", || (1..300).all(|index| mutes(index) == 0)).await;
    assert_eq!(mutes(0), 5);
    // Who has looked at all mutes goes on with the ends behind now, where there is no block.
    let mut ends = MuteEnds::default();
    let mut look = || {
        with_draft(&store, |draft| {
            draft.now = Timestamp(9000);
            draft.end_mutes(&mut ends).unwrap()
        })
    };
    let look_count = (1..).take_while(|_| look()).take(100).count();
    assert!(look_count < 100 && ends.ended == Some(Timestamp(9000)), "{look_count} looks to {:?}", ends.ended);
}

/// Also those whose places in the order were in the block.
#[tokio::test]
async fn a_block_that_cannot_be_read_keeps_no_channel_that_is_due() {
    static NOW: AtomicU64 = AtomicU64::new(1000);
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let clock = || Timestamp(NOW.load(Ordering::Relaxed));
        let config = StoreConfig { clock, channel_count_max: 1000, ..config(folder.path()) };
        Store::open(config, Arc::new(Sink::default())).unwrap()
    };
    let store = open();
    for index in 0..300 {
        let name = ChannelName::new(&format!("chat:{}", long_name(index))).unwrap();
        // A third is due before the last ones are.
        let history_ttl = Duration::from_secs(if index % 3 == 0 { 10 } else { 1000 + index });
        let channel = DurableChannel { name, history_size: 10, history_ttl, has_texts: false };
        store.append_publication(channel, Json::of(&1), BTreeMap::new(), None, Timestamp(1000)).await.unwrap();
    }
    close_and_flip(store, folder.path(), Table::ChannelDue, &[0.2, 0.35, 0.8]).await;

    NOW.store(20_000, Ordering::Relaxed);
    let store = open();
    let kept = || {
        let (engine, mut count) = (store.shared().engine.read(), 0);
        let counted = engine.as_ref().unwrap().scan(Place::Open, Table::History, &Span::all(), |_, _| {
            count += 1;
            Ok::<_, EngineError>(true)
        });
        counted.map(|()| count).unwrap()
    };
    eventually("what is due goes", || kept() == 200).await;
    assert_eq!(store.counts().failures, 0);
}

/// The names of the devices are in memory, and sending reads other files. A backup must have every row, so it fails.
#[tokio::test]
async fn a_block_that_cannot_be_read_hides_no_devices_from_lists_and_exports() {
    const COUNT: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let config = StoreConfig { device_count_max: 400, ..config(folder.path()) };
        Store::open(config, Arc::new(Sink::default())).unwrap()
    };
    let store = open();
    let names: Vec<String> = (0..COUNT as u64).map(long_name).collect();
    store.import_devices(names.iter().map(|name| import(name)).collect(), None, Timestamp(1)).await.unwrap();
    close_and_flip(store, folder.path(), Table::DeviceId, &[0.4]).await;

    let store = open();
    let names: BTreeSet<DeviceId> = names.iter().map(|name| id(name)).collect();
    let names: Vec<DeviceId> = names.into_iter().collect();
    let paged = |limit: usize, page: &dyn Fn(Option<&DeviceId>, usize) -> Vec<DeviceId>| {
        let mut all: Vec<DeviceId> = Vec::new();
        loop {
            let found = page(all.last(), limit);
            let is_last = found.len() < limit;
            all.extend(found);
            if is_last {
                return all;
            }
        }
    };
    for limit in [7, COUNT, COUNT + 1] {
        let listed = paged(limit, &|after, limit| {
            store.devices(after, limit).unwrap().into_iter().map(|device| device.id).collect()
        });
        assert_eq!(listed, names, "{limit} at a time");
        let exported = paged(limit, &|after, limit| {
            let page = store.export(after, limit).unwrap();
            assert_eq!(page.damaged, []);
            let ids: Vec<DeviceId> = page.devices.into_iter().map(|exported| exported.device.id).collect();
            assert_eq!(page.last.as_ref(), ids.last().filter(|_| ids.len() == limit));
            ids
        });
        assert_eq!(exported, names, "{limit} at a time");
    }
    let mut backup = Vec::new();
    let error = store.backup(&mut backup).unwrap_err();
    assert!(error.to_string().contains("of table device_id is damaged"), "{error}");
    assert!(crate::backup::verify(&backup[..], |_| ()).is_err(), "nor is what there is of it taken for one");
}

/// An export names the devices that it lacks, so that nobody takes it for complete.
#[tokio::test]
async fn an_export_names_the_devices_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.import_devices(["a", "b", "c"].map(import).into(), None, Timestamp(1)).await.unwrap();
    damage(&store, Table::Device, &rows::number_key(DeviceNumber(1)));
    let (of_numbers, covered) = store.export_numbers(&[0, 1, 2, 3].map(DeviceNumber)).unwrap();
    assert_eq!(covered, 4);
    let pages = [store.export(None, 9).unwrap(), of_numbers];
    for page in pages {
        let ids: Vec<&str> = page.devices.iter().map(|exported| exported.device.id.as_str()).collect();
        assert_eq!((ids, page.damaged, page.last), (vec!["a", "c"], vec![Some(id("b"))], None));
    }
    let page = store.export(None, 2).unwrap();
    assert_eq!((page.devices.len(), page.damaged.len(), page.last), (1, 1, Some(id("b"))));
    // The export of a user names them too.
    let hers = ["a", "b", "c"]
        .map(|name| NewImport { device: NewDevice { user: UserId::new("ann").ok(), ..device(name) }, ..import(name) });
    store.import_devices(hers.into(), None, Timestamp(1)).await.unwrap();
    damage(&store, Table::Device, &rows::number_key(DeviceNumber(2)));
    let ann = UserId::new("ann").unwrap();
    let pages = [None, Some("a")].map(|after| store.export_of_user(&ann, after.map(id).as_ref(), 9).unwrap());
    let found = pages.map(|page| (page.devices.len(), page.damaged, page.last));
    assert_eq!(found, [(2, vec![Some(id("c"))], None), (1, vec![Some(id("c"))], None)]);
    // A device whose name leads nowhere is named too: the row of the name is enough for that.
    damage(&store, Table::DeviceId, b"b");
    assert_eq!(store.export(None, 9).unwrap().damaged, ["b", "c"].map(|name| Some(id(name))));
    // And a device with a damaged mute: elsewhere it would get pushes that its user has muted.
    damage(&store, Table::Mute, &rows::mute_key(DeviceNumber(0), &MuteScope::Everything));
    assert_eq!(store.export(None, 9).unwrap().damaged, ["a", "b", "c"].map(|name| Some(id(name))));
    assert!(store.mutes(&id("a")).unwrap().is_some(), "a list leaves it out");
}

#[tokio::test]
async fn a_page_of_an_export_ends_with_the_device_that_fills_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let ann = UserId::new("ann").unwrap();
    let follows = |count: usize| {
        let subject = |number| Subject::new(&format!("team:{number:0100}")).unwrap();
        (0..count).map(|number| (subject(number), TopicName::new("goal").unwrap())).collect::<Vec<_>>()
    };
    // 173 bytes each: two devices with 100 fill a page of 30 KiB.
    let devices = [("a", 100), ("b", 100), ("c", 100), ("d", 100), ("e", 1)].map(|(name, count)| NewImport {
        subscriptions: follows(count),
        device: NewDevice { user: Some(ann.clone()), ..device(name) },
        ..import(name)
    });
    store.import_devices(devices.into(), None, Timestamp(1)).await.unwrap();

    let pages = |page: &dyn Fn(Option<&DeviceId>) -> ExportPage| {
        let (mut after, mut pages) = (None, Vec::new());
        loop {
            let page = page(after.as_ref());
            pages.push(page.devices.iter().map(|it| it.device.id.as_str().to_owned()).collect::<String>());
            after = page.last;
            if after.is_none() {
                return pages;
            }
        }
    };
    assert_eq!(pages(&|after| store.export(after, 9).unwrap()), ["ab", "cd", "e"]);
    assert_eq!(pages(&|after| store.export_of_user(&ann, after, 9).unwrap()), ["ab", "cd", "e"]);
    let numbers = [0, 1, 2, 3, 4].map(DeviceNumber);
    let covered = |from: usize| store.export_numbers(&numbers[from..]).unwrap().1;
    assert_eq!([covered(0), covered(2), covered(3), covered(4)], [2, 2, 2, 1]);
}

/// `count` times 16 bytes that differ for each index, so that compression does not make them small.
fn bulk(index: u64, count: u64) -> Json {
    let data: Vec<_> = (0..count).map(|part| hash16(&(1000 * index + part).to_be_bytes())).collect();
    Json::of(&data)
}

/// The disk has changed a byte. The block around it cannot be read, and opening the store again does not help.
#[tokio::test]
async fn a_block_that_cannot_be_read_costs_its_own_events() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let mut config = config(folder.path());
        (config.id_window, config.id_window_count) = (Duration::ZERO, 1);
        Store::open(config, Arc::new(Sink::default())).unwrap()
    };
    let store = open();
    for index in 0..60_u64 {
        let mut new = event(&format!("e{index}"));
        (new[0].event.data, new[0].channels) = (Some(bulk(index, 100)), Vec::new());
        store.append_events(new, Timestamp(1)).await.unwrap();
    }
    store.shared().engine.read().as_ref().unwrap().flush(Table::Event);
    store.close().await;
    flip_in_largest(folder.path(), &[0.5]);

    let store = open();
    let read = |store: &Store| store.events_from(JournalPosition(0), 100).unwrap().len();
    let count = read(&store);
    assert!((40..60).contains(&count), "{count} of 60 events");
    let lost = (1..=60).map(JournalPosition).filter(|position| store.event(*position).is_err()).collect::<Vec<_>>();
    assert_eq!(lost.len(), 60 - count, "{lost:?}");
    for position in &lost {
        let name = format!("e{}", position.0 - 1);
        assert!(store.append_events(event(&name), Timestamp(1)).await.is_err(), "what it holds is not known");
    }
    store.append_events(event("new"), Timestamp(9)).await.unwrap();
    assert_eq!((read(&store), store.counts().reopened), (count + 1, 0), "it is no failing disk");
    store.trim(JournalPosition(61));
    wait_trimmed(&store, 61).await;
    store.close().await;
    let store = open();
    assert_eq!((read(&store), store.journal_end()), (1, JournalPosition(62)));
}

/// There are two unreadable ranges among the scheduled events. All events that can be read are released, also those
/// scheduled in between later. The store opens although an unreadable range comes first.
#[tokio::test]
async fn a_block_that_cannot_be_read_holds_up_no_event_for_later() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let (due, name) = (|index: u64| 100 + 10 * index, |index: u64| format!("e{index}"));
    for index in 0..60 {
        let mut new = later(&name(index), due(index));
        new[0].event.data = Some(bulk(index, 12)); // Several in a block.
        store.append_events(new, Timestamp(1)).await.unwrap();
    }
    store.shared().engine.read().as_ref().unwrap().flush(Table::Later);
    store.close().await;
    flip_in_largest(folder.path(), &[0.3, 0.6]);

    let store = open(folder.path(), Arc::default());
    let is_lost = |index: &u64| store.later(&EventId::new(&name(*index)).unwrap()).is_err();
    let (lost, kept): (Vec<_>, Vec<_>) = (0..60).partition(is_lost);
    let listed = |store: &Store| -> Vec<String> {
        store.later_events(None, 100).unwrap().into_iter().map(|later| later.event.id.to_string()).collect()
    };
    assert_eq!(listed(&store), kept.iter().copied().map(name).collect::<Vec<_>>());
    let gaps = lost.chunk_by(|one, next| one + 1 == *next).collect::<Vec<_>>();
    assert!(gaps.len() == 2 && gaps.iter().all(|gap| gap.len() > 1) && lost[0] > 1, "{gaps:?}");

    let (before, between) = (gaps[0][0] - 1, gaps[1][0] - 1);
    store.append_events(later("new0", due(lost[0]) + 1), Timestamp(1)).await.unwrap();
    store.append_events(later("new1", due(lost[1]) + 1), Timestamp(1)).await.unwrap();
    assert_eq!(store.release_later(Timestamp(due(before) - 1)).await, Ok(before as usize));
    assert_eq!(store.cancel_later(&EventId::new(&name(before)).unwrap()).await, Ok(true));
    assert!(store.release_later(Timestamp(due(lost[0]) + 1)).await.is_ok());
    assert!(store.release_later(Timestamp(due(between) - 1)).await.unwrap() > 0);
    assert_eq!((store.counts().failures, store.counts().reopened), (0, 0), "nothing was refused");
    store.close().await;
    let store = open(folder.path(), Arc::default());
    assert_eq!(*store.next_later().borrow(), Some(Timestamp(due(between))));
    store.release_later(Timestamp(due(60))).await.unwrap();

    let journaled = store.events_from(JournalPosition(0), 100).unwrap();
    let journaled: Vec<_> = journaled.into_iter().map(|(_, accepted)| accepted.event.id.to_string()).collect();
    let (early, late) =
        kept.into_iter().filter(|index| *index != before).partition::<Vec<_>, _>(|index| *index < before);
    let names = |indexes: Vec<u64>| indexes.into_iter().map(name).collect::<Vec<_>>();
    assert_eq!(journaled, [names(early), vec!["new0".to_owned(), "new1".to_owned()], names(late)].concat());
    assert_eq!((listed(&store), *store.next_later().borrow(), store.counts().later), (vec![], None, 0));
    let engine = store.shared().engine.read();
    assert!(
        crate::events::read::later_ids(engine.as_ref().unwrap()).unwrap().is_empty(),
        "the ids of the lost are free"
    );
}

/// Under a wrong id a retry would count as another event, and everybody would be pushed twice.
#[tokio::test]
async fn an_event_for_later_is_not_released_under_another_id() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.append_events(later("e1", 9), Timestamp(1)).await.unwrap();
    let key = rows::later_key(store.later(&EventId::new("e1").unwrap()).unwrap().unwrap().key);
    {
        let engine = store.shared().engine.read();
        let engine = engine.as_ref().unwrap();
        let mut row = engine.get(Table::Later, &key).unwrap().unwrap().as_ref().to_vec();
        row[3] ^= 1;
        let mut rows = Rows::default();
        rows.put(Table::Later, key, row);
        engine.commit(rows, Durability::Synced).unwrap();
    }
    assert_eq!(store.release_later(Timestamp(9)).await, Ok(0));
    assert!(!store.append_events(event("e1"), Timestamp(9)).await.unwrap()[0].repeated, "it can be handed in again");
}

/// A user is erased also where the user's rows can no longer be read.
#[tokio::test]
async fn a_device_with_a_damaged_row_goes_with_its_user_and_with_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let ann = UserId::new("ann").unwrap();
    let of_ann =
        |name: &str| NewImport { device: NewDevice { user: Some(ann.clone()), ..import(name).device }, ..import(name) };
    store.import_devices(vec![of_ann("a"), of_ann("b"), import("c")], None, Timestamp(1)).await.unwrap();
    for number in [1, 2] {
        damage(&store, Table::Device, &rows::number_key(DeviceNumber(number)));
    }
    assert_eq!(store.erase_user(&ann).await, Ok(2));
    assert_eq!(told(&store), [("c".to_owned(), token("c"))]);
    let gone = GoneToken { number: DeviceNumber(2), token: token("c").unwrap(), gone_at: None };
    assert_eq!(store.tokens_gone(vec![gone]).await, Ok(1));
    assert_eq!((told(&store), store.counts().devices, store.counts().subscriptions), (vec![], 0, 0));
    assert!(store.devices_of_user(&ann, None, 9).unwrap().is_empty());
    for name in ["a", "b", "c"] {
        assert_eq!(store.device_number(&id(name)).unwrap(), None);
        assert_eq!(store.device_by_token(&token(name).unwrap()).unwrap(), None);
    }
    assert_eq!(store.erase_user(&ann).await, Ok(0));
}
