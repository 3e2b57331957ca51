//! What is gone costs nothing: devices, mutes and channels that were deleted are not read again, also not after a restart.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use tidings_types::{Json, Mute};
use tokio::time::Instant;

use super::*;
use crate::channels::trim::ChannelPass;
use crate::committer::draft::Draft;
use crate::engine::Scanned;
use crate::mutes::ends::MuteEnds;
use crate::rows;

fn scanned(store: &Store, place: Place) -> Scanned {
    store.shared().counters.scans.of(place)
}

/// Waits until the committer has freed the numbers that it can free now.
async fn looks_twice(store: &Store) {
    let looks = || store.shared().counters.looks.load(Ordering::Relaxed);
    let before = looks();
    eventually("it looks twice", || looks() >= before + 2).await;
}

fn free(store: &Store) -> u64 {
    store.shared().blocks.lock().unwrap().free_count()
}

/// Makes a draft past the committer, and writes its rows.
fn with_draft<T>(store: &Store, now: Timestamp, what: impl FnOnce(&mut Draft<'_>) -> T) -> T {
    let shared = store.shared();
    let engine = shared.engine.read();
    let state = crate::meta::read_state(engine.as_ref().unwrap()).unwrap();
    let mut draft = Draft::new(engine.as_ref().unwrap(), shared, state, now);
    let done = what(&mut draft);
    engine.as_ref().unwrap().commit(draft.finish().rows, Durability::Handed).unwrap();
    done
}

#[tokio::test]
async fn deleted_devices_cost_no_scan_ever_after() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Store::open(StoreConfig { device_count_max: 1000, ..config(folder.path()) }, Arc::<Sink>::default());
    let store = open().unwrap();
    let names: Vec<String> = (0..128).map(|number| format!("phone-{number}")).collect();
    let goal = (Subject::new("team:1").unwrap(), vec![TopicName::new("goal").unwrap()]);
    for name in &names {
        store.put_device(device(name), PutTerms::default(), Timestamp(1)).await.unwrap();
        store.subscribe(&DeviceId::new(name).unwrap(), vec![goal.clone()]).await.unwrap();
    }
    for name in &names {
        assert!(store.delete_device(&DeviceId::new(name).unwrap(), Precondition::None).await.unwrap());
    }
    let before = scanned(&store, Place::Device).scans;
    store.trim(store.journal_end());
    eventually("all numbers are free", || free(&store) == 128).await;
    assert_eq!(scanned(&store, Place::Device).scans, before);
    store.close().await;
    let store = open().unwrap();
    store.trim(store.journal_end());
    eventually("all numbers are free again", || free(&store) == 128).await;
    looks_twice(&store).await;
    assert_eq!(scanned(&store, Place::Device).scans, 0);
    let put = store.put_device(device("next"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let number = store.device_number(&put.device.id).unwrap();
    assert!(number.is_some_and(|number| number.0 < 128), "{number:?}");
    let Scanned { scans, rows, .. } = scanned(&store, Place::Device);
    assert_eq!((scans, rows), (2, 0), "whoever takes a number again looks for left-over subscriptions and mutes");
}

/// Damage left a row under a number that nobody has any more. Neither the index nor the device table knows it.
#[tokio::test]
async fn what_is_left_under_a_number_is_deleted_when_it_is_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for number in 0..64 {
        store.put_device(device(&format!("phone-{number}")), PutTerms::default(), Timestamp(1)).await.unwrap();
    }
    for number in [3, 5] {
        let id = DeviceId::new(&format!("phone-{number}")).unwrap();
        assert!(store.delete_device(&id, Precondition::None).await.unwrap());
    }
    let (subject, topic) = (Subject::new("team:1").unwrap(), TopicName::new("goal").unwrap());
    let mut rows = Rows::default();
    let readable = rows::subscription_key(DeviceNumber(3), &subject, &topic);
    let unreadable = [&rows::number_key(DeviceNumber(3))[..], b"\xff"].concat();
    rows.put(Table::Subscription, readable, []);
    rows.put(Table::Subscription, unreadable, []);
    rows.put(Table::Device, rows::number_key(DeviceNumber(5)), "a row that was not deleted");
    store.shared().engine.read().as_ref().unwrap().commit(rows, Durability::Synced).unwrap();
    store.trim(store.journal_end());
    eventually("both numbers are free", || free(&store) == 2).await;
    for (name, expected) in [("a", 3), ("b", 64)] {
        let put = store.put_device(device(name), PutTerms::default(), Timestamp(1)).await.unwrap();
        assert_eq!(store.device_number(&put.device.id).unwrap(), Some(DeviceNumber(expected)), "5 is not used");
    }
    let (mut left, span) = (0, Span::prefix(&rows::number_key(DeviceNumber(3))));
    let engine = store.shared().engine.read();
    let counted = engine.as_ref().unwrap().scan(Place::Open, Table::Subscription, &span, |_, _| {
        left += 1;
        Ok(true)
    });
    assert_eq!(counted.map(|()| left).unwrap(), 0);
}

#[tokio::test]
async fn the_search_for_ended_mutes_begins_behind_those_that_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    store.put_device(device("phone"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let mut ends = MuteEnds::default();
    for until in [5, 3000] {
        let mute = Mute { scope: format!("team:{until}").parse().unwrap(), until: Some(Timestamp(until)) };
        store.mute(&DeviceId::new("phone").unwrap(), mute, Timestamp(1)).await.unwrap();
    }
    store.close().await;
    // A clock of its own, so that the store itself ends none.
    let config = StoreConfig { clock: || Timestamp(CLOCK.get()), ..config(folder.path()) };
    let store = Store::open(config, Arc::<Sink>::default()).unwrap();
    CLOCK.set(1000);
    let look = |ends: &mut MuteEnds| with_draft(&store, Timestamp(u64::MAX), |draft| draft.end_mutes(ends).unwrap());
    assert!(!look(&mut ends));
    assert_eq!(ends.ended, Some(Timestamp(1000)), "and not where the last one has ended");
    looks_twice(&store).await; // The store itself has looked once.
    let read = scanned(&store, Place::MuteEnds);
    (0..10).for_each(|_| assert!(!look(&mut ends)));
    assert_eq!(scanned(&store, Place::MuteEnds).scans, read.scans, "nothing is read until the next one ends");
    let mut later = MuteEnds::default();
    CLOCK.set(2000);
    assert!(!look(&mut later));
    let more = scanned(&store, Place::MuteEnds).rows - read.rows;
    assert_eq!((later.ended, more), (Some(Timestamp(2000)), 1), "the store knows it: only the next one is read");
    CLOCK.set(500); // It was set back.
    assert!(!look(&mut later));
    assert_eq!(later.ended, Some(Timestamp(500)));
}

fn mute(device: &str, until: u64) -> (DeviceId, Mute) {
    let scope = format!("team:{until}").parse().unwrap();
    (DeviceId::new(device).unwrap(), Mute { scope, until: Some(Timestamp(until)) })
}

/// How many mutes there are.
fn mute_count(store: &Store) -> usize {
    let (engine, mut count) = (store.shared().engine.read(), 0);
    let counted = engine.as_ref().unwrap().scan(Place::Open, Table::Mute, &Span::all(), |_, _| {
        count += 1;
        Ok(true)
    });
    counted.map(|()| count).unwrap()
}

/// The store remembers over a restart up to when mutes have ended. A mute that ends before that, because the clock was set
/// back when it came, must end all the same.
#[tokio::test]
async fn a_mute_of_a_clock_that_was_set_back_ends_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { clock: || Timestamp(CLOCK.get()), ..config(folder.path()) };
    let store = Store::open(config, Arc::<Sink>::default()).unwrap();
    store.put_device(device("phone"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let put = |until| {
        with_draft(&store, Timestamp(u64::MAX), |draft| {
            let (id, mute) = mute("phone", until);
            assert!(draft.mute(&id, mute).unwrap().unwrap());
        });
    };
    let look_after_restart = || {
        store.shared().mutes_due.store(u64::MAX, Ordering::Relaxed);
        with_draft(&store, Timestamp(u64::MAX), |draft| draft.end_mutes(&mut MuteEnds::default()).unwrap())
    };
    CLOCK.set(100);
    put(500);
    CLOCK.set(2000);
    assert!(!look_after_restart());
    assert_eq!(mute_count(&store), 0);
    CLOCK.set(600); // It was set back.
    put(1000);
    CLOCK.set(3000);
    assert!(!look_after_restart());
    assert_eq!(mute_count(&store), 0);
}

/// A round without any time left, as on a disk that is slow all the time.
#[tokio::test]
async fn rounds_get_somewhere_however_little_time_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { clock: || Timestamp(CLOCK.get()), ..config(folder.path()) };
    let store = Store::open(config, Arc::<Sink>::default()).unwrap();
    for number in 0..20 {
        let (name, history_ttl) = (ChannelName::new(&format!("chat:{number}")).unwrap(), Duration::from_secs(1));
        let channel = DurableChannel { name, history_size: 10, history_ttl, has_texts: false };
        store.append_publication(channel, Json::of(&1), BTreeMap::new(), None, Timestamp(1000)).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        store.put_device(device(name), PutTerms::default(), Timestamp(1)).await.unwrap();
        for until in 2000..2007 {
            let (id, mute) = mute(name, until);
            store.mute(&id, mute, Timestamp(1000)).await.unwrap();
        }
    }
    CLOCK.set(9000);
    let (mut pass, mut ends, mut rounds) = (ChannelPass::default(), MuteEnds::default(), 0);
    let mut has_more = true;
    while has_more {
        has_more = with_draft(&store, Timestamp(9000), |draft| {
            draft.deadline = Some(Instant::now());
            draft.trim_channels(&mut pass).unwrap() | draft.end_mutes(&mut ends).unwrap()
        });
        rounds += 1;
        assert!(rounds < 10, "it ends");
    }
    assert!(rounds > 1, "nobody has time for all of it at once");
    assert_eq!(mute_count(&store), 0);
    let name = |number| ChannelName::new(&format!("chat:{number}")).unwrap();
    assert!((0..20).all(|number| store.history(&name(number), Timestamp(0)).unwrap().is_empty()));
}

/// A device with a name beyond the bound has no record, so a checkpoint knows of it only that it exists.
#[tokio::test]
async fn a_device_without_a_record_is_no_damage_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = || StoreConfig { device_count_max: 10_000, ..config(folder.path()) };
    let open = || Store::open(config(), Arc::<Sink>::default()).unwrap();
    let store = open();
    let numbers: Vec<u32> = (0..4700).collect();
    for numbers in numbers.chunks(100) {
        let of_app = |number: &u32| {
            let app = AppId::new(&format!("app-{number}")).unwrap();
            NewDevice { app, ..device(&format!("phone-{number}")) }.into()
        };
        store.import_devices(numbers.iter().map(of_app).collect(), None, Timestamp(1)).await.unwrap();
    }
    assert_eq!(store.counts().resident, 604);
    store.close().await;
    let store = open();
    let counts = store.counts();
    assert_eq!((counts.devices, counts.resident, counts.rebuilt), (4700, 604, 0));
    assert_eq!(store.shared().table.read().lost(), []);
}

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// After the first pass over all channels, a round reads those that are due, and the next one.
#[tokio::test]
async fn channels_that_are_not_due_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { channel_count_max: 1000, ..config(folder.path()) };
    let store = Store::open(config, Arc::<Sink>::default()).unwrap();
    let publish = async |name: &str, ttl: u64| {
        let channel = DurableChannel {
            name: ChannelName::new(name).unwrap(),
            history_size: 10,
            history_ttl: Duration::from_secs(ttl),
            has_texts: false,
        };
        store.append_publication(channel, Json::of(&1), BTreeMap::new(), None, Timestamp(1000)).await.unwrap();
    };
    for number in 0..150 {
        publish(&format!("chat:{number}"), 100).await;
    }
    publish("chat:soon", 50).await;
    let mut pass = ChannelPass::default();
    let mut rows_read = |seconds: u64| {
        let now = Timestamp(1000).saturating_add(Duration::from_secs(seconds));
        let before = scanned(&store, Place::Channels).rows;
        with_draft(&store, now, |draft| draft.trim_channels(&mut pass).unwrap());
        scanned(&store, Place::Channels).rows - before
    };
    assert_eq!([0, 0, 1, 49].map(&mut rows_read), [100, 51, 0, 0], "one pass over all, and then none is due");
    assert_eq!([50, 51, 99].map(&mut rows_read), [2, 0, 0], "the one that is due, and the next one");
    publish("chat:new", 99).await;
    assert_eq!([99, 99].map(&mut rows_read), [2, 0], "a new publication is due earlier");
    for _ in 0..20 {
        publish("chat:new", 1000).await; // It is due later: looked at once, and not at each publication.
    }
    assert_eq!(store.durable_channels(Timestamp(0)).unwrap().len(), 152);
}

/// Also if they were to be remembered for longer before the start, or if the clock was ahead for a while.
#[tokio::test]
async fn idle_channels_go_by_the_time_that_holds_now() {
    let folder = tempfile::tempdir().unwrap();
    let open = |channel_ttl| {
        let config = StoreConfig { clock: || Timestamp(CLOCK.get()), channel_ttl, ..config(folder.path()) };
        Store::open(config, Arc::<Sink>::default()).unwrap()
    };
    let trim = |store: &Store, pass: &mut ChannelPass, now| {
        for _ in 0..3 {
            with_draft(store, Timestamp(now), |draft| draft.trim_channels(pass).unwrap());
        }
        store.durable_channels(Timestamp(0)).unwrap().len()
    };
    let publish = async |store: &Store, name: &str| {
        let (name, history_ttl) = (ChannelName::new(name).unwrap(), Duration::from_secs(1));
        let channel = DurableChannel { name, history_size: 10, history_ttl, has_texts: false };
        store.append_publication(channel, Json::of(&1), BTreeMap::new(), None, Timestamp(1000)).await.unwrap();
    };
    let store = open(Duration::from_secs(1_000_000));
    publish(&store, "chat:1").await;
    CLOCK.set(5000);
    assert_eq!(trim(&store, &mut ChannelPass::default(), 5000), 1);
    assert_eq!(keys(store.shared().engine.read().as_ref().unwrap(), Table::History).len(), 0, "it is empty");
    store.close().await;
    let store = open(CHANNEL_TTL);
    CLOCK.set(70_000);
    assert_eq!(trim(&store, &mut ChannelPass::default(), 70_000), 0);

    publish(&store, "chat:2").await;
    CLOCK.set(30_000);
    let mut pass = ChannelPass::default();
    let ahead = 10_000_000;
    assert_eq!(trim(&store, &mut pass, ahead), 1, "not by the clock as it is now");
    CLOCK.set(70_000);
    assert_eq!(trim(&store, &mut pass, ahead), 1);
    pass.repeat(); // As it does by itself a minute later.
    assert_eq!(trim(&store, &mut pass, ahead), 0);
}

/// What happens to channels.
#[derive(Debug, Clone)]
enum Turn {
    /// The channel, and how long the publication is kept, in seconds.
    Publish(u8, u64),
    RemoveHistory(u8),
    /// Schedules an event for the channel, in so many seconds.
    Schedule(u8, u64),
    /// Cancels the last event that was scheduled.
    Cancel,
    /// So many seconds pass.
    Wait(u64),
    Restart,
    /// The files of the order are lost, and the store is opened again.
    Lose,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => (0..3_u8, 1..200_u64).prop_map(|(channel, ttl)| Turn::Publish(channel, ttl)),
        1 => (0..3_u8).prop_map(Turn::RemoveHistory),
        1 => (0..3_u8, 1..200_u64).prop_map(|(channel, seconds)| Turn::Schedule(channel, seconds)),
        1 => Just(Turn::Cancel),
        2 => (1..150_u64).prop_map(Turn::Wait),
        1 => Just(Turn::Restart),
        1 => Just(Turn::Lose),
    ]
}

const CHANNEL_TTL: Duration = Duration::from_secs(60);

static TIME: AtomicU64 = AtomicU64::new(0);

fn keys(engine: &Engine, table: Table) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let keep = |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        Ok::<_, EngineError>(true)
    };
    engine.scan(Place::Open, table, &Span::all(), keep).unwrap();
    keys
}

/// Whether each channel has the row in `channel_due` that its own row names, early enough if it is empty, no other row is there,
/// and none will be passed over.
fn is_in_order(store: &Store) -> bool {
    let engine = store.shared().engine.read();
    let engine = engine.as_ref().unwrap();
    let mut named = Vec::new();
    let look = |key: &[u8], row: &[u8]| {
        let row: rows::ChannelRow = rows::decode(Table::Channel, key, row)?;
        let idle_at = row.published_at.saturating_add(CHANNEL_TTL);
        let due_at = row.due_at.filter(|at| row.base <= row.top || *at <= idle_at);
        named.extend(due_at.map(|at| rows::channel_due_key(at, &rows::decode_channel_name(key).unwrap())));
        Ok::<_, EngineError>(true)
    };
    engine.scan(Place::Open, Table::Channel, &Span::all(), look).unwrap();
    named.sort();
    let first = crate::meta::read_state(engine).unwrap().channel_due.0.to_be_bytes();
    let channel_count = keys(engine, Table::Channel).len();
    named.len() == channel_count
        && keys(engine, Table::ChannelDue) == named
        && named.iter().all(|key| key[..8] >= first[..])
}

async fn channels_go_when_they_are_due(turns: Vec<Turn>) {
    let folder = tempfile::tempdir().unwrap();
    let clock = || Timestamp(TIME.load(Ordering::Relaxed));
    let config = || StoreConfig { clock, channel_ttl: CHANNEL_TTL, ..config(folder.path()) };
    let open = || Store::open(config(), Arc::<Sink>::default()).unwrap();
    TIME.store(1_000_000, Ordering::Relaxed);
    let (mut store, mut scheduled) = (open(), None);
    let name = |channel: u8| ChannelName::new(&format!("chat:{channel}")).unwrap();
    for (number, turn) in turns.into_iter().enumerate() {
        match turn {
            Turn::Publish(channel, ttl) => {
                let history_ttl = Duration::from_secs(ttl);
                let channel = DurableChannel { name: name(channel), history_size: 4, history_ttl, has_texts: false };
                store.append_publication(channel, Json::of(&1), BTreeMap::new(), None, clock()).await.unwrap();
            }
            Turn::RemoveHistory(channel) => store.remove_history(&name(channel)).await.unwrap(),
            Turn::Schedule(channel, seconds) => {
                let due = clock().saturating_add(Duration::from_secs(seconds)).0;
                let mut new = later(&format!("later-{number}"), due);
                new[0].channels[0].name = name(channel);
                scheduled = Some(new[0].event.id.clone());
                store.append_events(new, clock()).await.unwrap();
            }
            Turn::Cancel => {
                if let Some(id) = scheduled.take() {
                    store.cancel_later(&id).await.unwrap();
                }
            }
            Turn::Wait(seconds) => _ = TIME.fetch_add(seconds * 1000, Ordering::Relaxed),
            Turn::Restart => {
                store.close().await;
                store = open();
            }
            Turn::Lose => {
                store.close().await;
                let engine = Engine::open_again(folder.path(), 1 << 20).unwrap();
                let mut lost = Rows::default();
                let lose = |key: &[u8], _: &[u8]| {
                    lost.delete(Table::ChannelDue, key);
                    Ok::<_, EngineError>(true)
                };
                engine.scan(Place::Open, Table::ChannelDue, &Span::all(), lose).unwrap();
                engine.commit(lost, Durability::Synced).unwrap();
                drop(engine);
                store = open();
            }
        }
        eventually("each channel has its place in the order", || is_in_order(&store)).await;
    }
    TIME.fetch_add(1_000_000, Ordering::Relaxed);
    let tables = [Table::Channel, Table::History, Table::ChannelDue];
    let are_gone = || {
        let engine = store.shared().engine.read();
        tables.iter().all(|table| keys(engine.as_ref().unwrap(), *table).is_empty())
    };
    eventually("all channels go", are_gone).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_channel_has_one_place_in_the_order_and_goes_when_it_is_due(turns in prop::collection::vec(turn(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(channels_go_when_they_are_due(turns));
    }
}
