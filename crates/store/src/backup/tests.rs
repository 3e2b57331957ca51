//! Backups: all rows are of one moment, every changed byte is noticed, and contradicting rows are found.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidings_types::{
    AppId, BrakeScope, ChannelName, Device, DeviceId, DeviceNumber, DeviceToken, Event, EventId, JournalPosition, Json,
    Locale, Mute, MuteScope, Offset, Platform, StreamPosition, Subject, Timestamp, TopicName,
};

use super::format::Part;
use super::*;
use crate::engine::Fault;
use crate::{
    CommitSink, DurableChannel, ImportStep, NewDevice, NewEvent, NewImport, PutTerms, StoreConfig, StoredPublication,
};

struct Sink;

impl CommitSink for Sink {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}

    fn on_events(&self, _: JournalPosition) {}
}

const T0: Timestamp = Timestamp(1_000_000_000);
/// The end of a mute, later than any test.
const NEVER: Timestamp = Timestamp(1 << 60);

fn config(path: &Path) -> StoreConfig {
    StoreConfig { device_count_max: 1000, mute_count_max: 100, ..crate::committer::tests::config(path) }
}

fn open(path: &Path) -> Store {
    Store::open(config(path), Arc::new(Sink)).unwrap()
}

fn device(name: &str) -> NewDevice {
    let (id, app) = (DeviceId::new(name).unwrap(), AppId::new("app").unwrap());
    let new = NewDevice::new(id, app, Platform::Ios, Locale::new("sv").unwrap());
    NewDevice { token: Some(DeviceToken::from(name.as_bytes())), ..new }
}

fn subject(text: &str) -> Subject {
    Subject::new(text).unwrap()
}

fn event(id: &str, at: Option<Timestamp>) -> Vec<NewEvent> {
    let event = Event::new(EventId::new(id).unwrap(), TopicName::new("goal").unwrap(), vec![subject("team:1")]);
    let channel = |name| DurableChannel {
        name: ChannelName::new(name).unwrap(),
        history_size: 2,
        history_ttl: Duration::from_secs(3600),
        has_texts: false,
    };
    vec![NewEvent { event: Event { at, ..event }, channels: vec![channel("a"), channel("ab")], audience_max: None }]
}

async fn publish_once(store: &Store) -> Offset {
    let name = ChannelName::new("keyed").unwrap();
    let channel = DurableChannel { name, history_size: 2, history_ttl: Duration::from_secs(3600), has_texts: false };
    let once = crate::Once { key: Some("key"), version: None };
    store.append_publication_once(channel, once, Json::of(&1), BTreeMap::new(), T0).await.unwrap().offset
}

/// A store with rows in every table.
async fn fill_store(store: &Store) {
    let goal = || vec![(subject("team:1"), vec![TopicName::new("goal").unwrap()])];
    for name in ["phone", "tablet", "gone"] {
        store.put_device(device(name), PutTerms::default(), T0).await.unwrap();
        store.subscribe(&DeviceId::new(name).unwrap(), goal()).await.unwrap();
    }
    let (phone, gone) = (DeviceId::new("phone").unwrap(), DeviceId::new("gone").unwrap());
    for (scope, until) in [(MuteScope::Everything, None), (MuteScope::Subject(subject("team:1")), Some(NEVER))] {
        store.mute(&phone, Mute { scope: scope.clone(), until }, T0).await.unwrap();
        store.mute(&gone, Mute { scope, until }, T0).await.unwrap();
    }
    store.devices_proven([0, 1, 2].map(DeviceNumber).to_vec()).await.unwrap();
    assert!(store.delete_device(&gone, Default::default()).await.unwrap());
    let import = NewImport {
        subscriptions: vec![(subject("team:1"), TopicName::new("goal").unwrap())],
        proven: true,
        ..device("watch").into()
    };
    let step = ImportStep { name: "all".parse().unwrap(), lines_before: 0, lines_after: 1 };
    store.import_devices(vec![import], Some(step), T0).await.unwrap();
    let change = crate::FeedChange { seen: vec![([7; 16], 1)], ..Default::default() };
    store.put_feed("news".parse().unwrap(), change).await.unwrap();
    for count in 0..4_u64 {
        store.append_events(event(&format!("e{count}"), None), T0).await.unwrap();
        store.append_events(event(&format!("l{count}"), Some(Timestamp(T0.0 + 1 + count))), T0).await.unwrap();
    }
    assert_eq!(store.release_later(Timestamp(T0.0 + 2)).await.unwrap(), 2);
    store.cancel_later(&EventId::new("l3").unwrap()).await.unwrap();
    store.put_jobs(vec![(JournalPosition(2), vec![7; 70])], Some(JournalPosition(3))).await.unwrap();
    store.cancel(JournalPosition(2)).await.unwrap();
    store.pause(BrakeScope::Everything, T0).await.unwrap();
    publish_once(store).await;
}

/// A store with some of everything, and its backup.
async fn filled() -> (tempfile::TempDir, Store, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill_store(&store).await;
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    (folder, store, backup)
}

type AllRows = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

fn rows_of(engine: &Engine) -> AllRows {
    let mut all = AllRows::new();
    for table in KEPT {
        let visit = |key: &[u8], value: &[u8]| {
            all.insert((table.name(), key.to_vec()), value.to_vec());
            Ok::<_, EngineError>(true)
        };
        engine.scan(Place::Open, table, &Span::all(), visit).unwrap();
    }
    all
}

fn with_engine<T>(store: &Store, read: impl FnOnce(&Engine) -> T) -> T {
    read(store.shared().engine.read().as_ref().unwrap())
}

fn plant(store: &Store, table: Table, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) {
    let mut rows = Rows::default();
    match value {
        Some(value) => rows.put(table, key, value),
        None => rows.delete(table, key),
    }
    with_engine(store, |engine| engine.commit(rows, Durability::Synced).unwrap());
}

#[test]
fn a_backup_has_every_table_but_the_derived_one() {
    let mut kept: Vec<_> = KEPT.iter().chain(&[Table::Change]).collect();
    kept.sort();
    assert_eq!(kept, Table::ALL.iter().collect::<Vec<_>>());
}

/// Each batch puts its number into all tables, while another thread registers files as fast as it can: with that, fjall
/// makes batches visible that are half applied.
#[test]
fn a_cut_is_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(folder.path(), 1 << 20, Rows::default).unwrap();
    let (engine, is_over) = (&engine, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for count in 0_u64.. {
                let mut rows = Rows::default();
                for table in KEPT {
                    (0..8).for_each(|key| rows.put(table, [key], count.to_be_bytes()));
                }
                engine.commit(rows, Durability::Handed).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                KEPT.iter().for_each(|table| engine.flush(*table));
            }
        });
        let (mut seen, mut moments) = (0, 0);
        while moments < 20 || seen < 500 {
            let rows: Vec<_> = engine.cut(&KEPT).map(|row| row.unwrap().2.to_vec()).collect();
            let first = rows.first().cloned().unwrap_or_default();
            let is_one = rows.iter().all(|row| *row == first) && (rows.is_empty() || rows.len() == 8 * KEPT.len());
            is_over.store(!is_one || is_over.load(Ordering::Relaxed), Ordering::Relaxed);
            assert!(is_one, "{} rows of several moments", rows.len());
            seen += 1;
            moments = first.try_into().map_or(0, u64::from_be_bytes);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[tokio::test]
async fn a_restored_store_has_every_row_and_another_life() {
    let (_folder, store, backup) = filled().await;
    let mut expected = with_engine(&store, rows_of);
    let elsewhere = tempfile::tempdir().unwrap();
    let place = elsewhere.path().join("deep").join("store");
    let Restored { summary, is_paused } = restore(&backup[..], &place, RestoredPushes::GoOn, |_| ()).unwrap();
    assert!(!is_paused);
    assert_eq!((summary.rows(), summary.bytes), (expected.len() as u64, backup.len() as u64));
    let restored = {
        let (engine, _lock) = open_folder(&place).unwrap();
        engine
            .scan(Place::Open, Table::Change, &Span::all(), |_, _| -> Result<bool, EngineError> { panic!("derived") })
            .unwrap();
        rows_of(&engine)
    };
    let state = |rows: &AllRows| -> State { serde_json::from_slice(&rows[&("meta", STATE_KEY.to_vec())]).unwrap() };
    let (old, new) = (state(&expected), state(&restored));
    assert_eq!((summary.commit, summary.epoch), (old.commit, old.epoch));
    assert!(new.epoch != old.epoch && new.revision > old.revision + REVISION_LEAP / 2);
    let as_restored =
        State { epoch: new.epoch, revision: new.revision, change_base: old.change_end, change_bytes: 0, ..old };
    expected.insert(("meta", STATE_KEY.to_vec()), rows::encode(&as_restored));
    assert!(expected == restored);
    // The restored store opens and is sound. While it is open, its lock keeps other processes out.
    let report = verify_folder(&place, |_| ()).unwrap();
    assert_eq!(report.findings, Findings::default());
    let restored = open(&place);
    assert_eq!(restored.counts().devices, store.counts().devices);
    assert!(matches!(verify_folder(&place, |_| ()), Err(BackupError::Folder(OpenError::Locked { .. }))));
    assert!(matches!(Backup::of_folder(&place), Err(BackupError::Folder(OpenError::Locked { .. }))));
    restored.close().await;
    assert!(matches!(restore(&backup[..], &place, RestoredPushes::GoOn, |_| ()), Err(BackupError::HasStore { .. })));
    let mut again = Vec::new();
    let summary_again = Backup::of_folder(&place).unwrap().write_to(&mut again, |_| ()).unwrap();
    assert_eq!(summary_again.tables, summary.tables);
    assert_eq!(verify(&again[..], |_| ()).unwrap().summary, summary_again);
}

#[tokio::test]
async fn what_the_store_itself_wrote_is_found_sound() {
    let (_folder, store, backup) = filled().await;
    let report = verify(&backup[..], |_| ()).unwrap();
    assert_eq!(report.findings, Findings::default());
    for table in KEPT {
        let count = report.summary.tables.iter().find(|count| count.table == table.name()).unwrap();
        assert!(count.rows > 0, "{} is not tried", table.name());
    }
    drop(store);
}

/// The backup of a filled store, made once.
fn small_backup() -> &'static [u8] {
    static BACKUP: OnceLock<Vec<u8>> = OnceLock::new();
    BACKUP.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(filled()).2
    })
}

/// Whether the folder has no part of a store, finished or not.
fn is_bare(folder: &Path) -> bool {
    ["data", "data.new"].iter().all(|name| !folder.join(name).exists())
}

#[test]
fn any_changed_byte_and_any_cut_is_refused() {
    let backup = small_backup();
    let folder = tempfile::tempdir().unwrap();
    let check = |bytes: &[u8], what: &str, is_tried: bool| {
        let mut checker = Checker::default();
        assert!(checker.push(bytes).is_err() || checker.finish().is_err(), "{what} is not noticed");
        if is_tried {
            assert!(verify(bytes, |_| ()).is_err(), "{what} is not noticed by verify");
            assert!(restore(bytes, folder.path(), RestoredPushes::GoOn, |_| ()).is_err(), "{what} is restored");
            assert!(is_bare(folder.path()), "{what} leaves something behind");
        }
    };
    for at in 0..backup.len() {
        let mut changed = backup.to_vec();
        changed[at] ^= 1 << (at % 8);
        check(&changed, &format!("a changed byte {at}"), at % 2503 == 900);
        check(&backup[..at], &format!("a cut at {at}"), at % 2503 == 2000);
    }
    let more = [backup, b"x"].concat();
    check(&more, "a byte more", true);
    check(&[backup, backup].concat(), "another backup behind", true);
    assert!(matches!(verify(&b"hello, this is no backup"[..], |_| ()), Err(BackupError::NotABackup)));
    assert!(matches!(verify(&b""[..], |_| ()), Err(BackupError::NotABackup)));
    let cut = verify(&backup[..backup.len() - 1], |_| ()).unwrap_err().to_string();
    assert!(cut.starts_with(&format!("the backup is cut off after {} bytes", backup.len() - 1)), "{cut}");
}

/// The frames behind the first bytes.
fn frames(backup: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (start, mut rest) = backup.split_at(12);
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let stored = u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize;
        let (frame, behind) = rest.split_at(28 + stored);
        frames.push(frame.to_vec());
        rest = behind;
    }
    (start.to_vec(), frames)
}

#[test]
fn frames_that_are_missing_doubled_or_elsewhere_are_refused() {
    let (start, all) = frames(small_backup());
    let joined = |frames: &[Vec<u8>]| [&start[..], &frames.concat()].concat();
    assert!(joined(&all) == small_backup() && all.len() > 10);
    for at in 0..all.len() {
        let (mut missing, mut doubled, mut swapped) = (all.clone(), all.clone(), all.clone());
        missing.remove(at);
        doubled.insert(at, all[at].clone());
        swapped.swap(at, (at + 1) % all.len());
        for (frames, what) in [(missing, "missing"), (doubled, "doubled"), (swapped, "swapped")] {
            assert!(verify(&joined(&frames)[..], |_| ()).is_err(), "frame {at} {what}");
        }
    }
    // A frame of another backup: valid by itself, and in a valid place.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_, others) = frames(&runtime.block_on(filled()).2);
    let at = (0..all.len() - 1).rev().find(|at| all[*at] != others[*at]).expect("epochs and secrets differ");
    let mut mixed = all.clone();
    mixed[at] = others[at].clone();
    assert!(matches!(verify(&joined(&mixed)[..], |_| ()), Err(BackupError::Damaged { .. })));
}

#[test]
fn other_versions_are_named() {
    let backup = small_backup();
    let mut other = backup.to_vec();
    other[11] = 9;
    assert!(matches!(verify(&other[..], |_| ()), Err(BackupError::Version { found: 9, known: 1 })));
    let with_head = |from: &str, to: &str| {
        let (start, all) = frames(backup);
        let mut decoder = Decoder::default();
        decoder.push(backup);
        let Some(Part::Head(head)) = decoder.next().unwrap() else { panic!("the head comes first") };
        let text = String::from_utf8(serde_json::to_vec(&head).unwrap()).unwrap();
        assert!(text.contains(from));
        let head = format::tests_only_frame(1, 0, 0, 0, text.replace(from, to).as_bytes());
        [start, head, all[1..].concat()].concat()
    };
    let format = verify(&with_head("tidings-store-4", "tidings-store-9")[..], |_| ()).unwrap_err();
    assert!(format.to_string().starts_with("the backup is of a store with format tidings-store-9"), "{format}");
    let table = verify(&with_head("\"brake\"", "\"broke\"")[..], |_| ()).unwrap_err();
    assert!(table.to_string().starts_with("the backup has a table broke"), "{table}");
}

proptest! {
    /// Frames with valid checksums and wrong content, as a bug or an attacker may make them.
    #[test]
    fn no_bytes_make_reading_panic(
        frames in prop::collection::vec(
            (0..5_u8, 0..20_u8, 0..3_u32, prop::collection::vec(0..8_u8, 0..40), any::<bool>()), 0..6),
        chunk in 1..200_usize,
    ) {
        let (start, all) = self::frames(small_backup());
        let mut bytes = start;
        for (sequence, (kind, table, rows, plain, is_ours)) in frames.into_iter().enumerate() {
            match all.get(sequence).filter(|_| is_ours) {
                Some(frame) => bytes.extend_from_slice(frame),
                None => bytes.extend(format::tests_only_frame(kind, table, sequence as u32, rows, &plain)),
            }
        }
        let mut decoder = Decoder::default();
        let mut read = || -> Result<(), BackupError> {
            for chunk in bytes.chunks(chunk) {
                decoder.push(chunk);
                while let Some(part) = decoder.next()? {
                    if let Part::Rows(block) = part {
                        block.rows().for_each(drop);
                    }
                }
            }
            Ok(())
        };
        let refused = read().is_err() || decoder.finish().is_err();
        prop_assert!(refused, "none of them is a backup");
    }

    /// In whatever pieces the bytes arrive, the result does not change.
    #[test]
    fn a_backup_may_come_in_any_pieces(sizes in prop::collection::vec(1..900_usize, 1..20)) {
        let backup = small_backup();
        let (mut checker, mut rest) = (Checker::default(), backup);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*size).min(rest.len()));
            checker.push(piece).unwrap();
            rest = behind;
        }
        prop_assert_eq!(checker.progress().bytes, backup.len() as u64);
        prop_assert_eq!(checker.finish().unwrap(), verify(backup, |_| ()).unwrap().summary);
    }
}

/// A filled store that is restored to its first state after each check.
struct Ground {
    store: Store,
    _folder: tempfile::TempDir,
    rows: AllRows,
}

impl Ground {
    async fn new() -> Self {
        let (_folder, store, _) = filled().await;
        let rows = with_engine(&store, rows_of);
        Self { store, _folder, rows }
    }

    /// What `verify` says after the rows are planted, each as `table: what`.
    fn found(&self, planted: impl Fn(&Store)) -> Vec<String> {
        let commit = || crate::meta::read_state(self.store.shared().engine.read().as_ref().unwrap()).unwrap().commit;
        loop {
            let before = commit();
            planted(&self.store);
            let mut backup = Vec::new();
            self.store.backup(&mut backup).unwrap();
            let is_alone = commit() == before;
            self.restore();
            if is_alone {
                let Findings { kept, count } = verify(&backup[..], |_| ()).unwrap().findings;
                assert_eq!(kept.len() as u64, count);
                return kept.into_iter().map(|finding| format!("{}: {}", finding.table, finding.what)).collect();
            } // The store's maintenance met the planted rows, and changed some. It will not do so again.
        }
    }

    /// Puts all rows back.
    fn restore(&self) {
        let changed = with_engine(&self.store, rows_of);
        for table in KEPT {
            let of_table =
                |rows: &AllRows| rows.clone().into_iter().filter(|((of, _), _)| *of == table.name()).collect();
            let (before, after): (AllRows, AllRows) = (of_table(&self.rows), of_table(&changed));
            for (_, key) in before.keys().chain(after.keys()) {
                let row = before.get(&(table.name(), key.clone()));
                if row != after.get(&(table.name(), key.clone())) {
                    plant(&self.store, table, key.clone(), row.cloned());
                }
            }
        }
    }
}

/// The row of one device, as the row of another device.
fn changed_device(store: &Store, number: u32, change: impl FnOnce(&mut Device)) {
    let key = rows::number_key(DeviceNumber(number));
    let row = with_engine(store, |engine| engine.get(Table::Device, &key).unwrap().unwrap().as_ref().to_vec());
    let mut row = rows::decode_device(&key, &row).unwrap();
    change(&mut row.device);
    plant(store, Table::Device, key, Some(rows::encode_device(&row)));
}

fn changed_state(store: &Store, change: impl FnOnce(&mut State)) {
    let row = with_engine(store, |engine| engine.get(Table::Meta, STATE_KEY).unwrap().unwrap().as_ref().to_vec());
    let mut state: State = rows::decode(Table::Meta, STATE_KEY, &row).unwrap();
    change(&mut state);
    plant(store, Table::Meta, STATE_KEY, Some(rows::encode(&state)));
}

fn number(number: u32) -> [u8; 4] {
    rows::number_key(DeviceNumber(number))
}

fn position(position: u64) -> [u8; 8] {
    rows::position_key(JournalPosition(position))
}

#[tokio::test]
async fn contradictions_among_devices_are_found() {
    let ground = Ground::new().await;
    let token = |name: &str| rows::token_key(&DeviceToken::from(name.as_bytes()));
    let taken = ground.found(|store| plant(store, Table::Device, number(0), None));
    assert_eq!(
        taken,
        [
            "device_id: refers to device 0, which does not exist",
            "token: refers to device 0, which does not exist",
            "subscription: belongs to device 0, which does not exist",
            "proven: has 1 devices without a token; the first is 0",
            "mute: belongs to device 0, which does not exist",
            "mute: belongs to device 0, which does not exist",
        ]
    );
    let unnamed = ground.found(|store| plant(store, Table::DeviceId, *b"phone", None));
    assert_eq!(unnamed, ["device: is not found by its id"]);
    let astray = ground.found(|store| plant(store, Table::DeviceId, *b"phone", Some(number(1).to_vec())));
    assert_eq!(astray, ["device_id: refers to device 1, which has another id", "device: is not found by its id"]);
    let tokenless = ground.found(|store| plant(store, Table::Token, token("phone"), None));
    assert_eq!(tokenless, ["device: is not found by its token"]);
    let strange = ground.found(|store| plant(store, Table::Token, token("phone"), Some(number(1).to_vec())));
    assert_eq!(strange, ["token: refers to device 1, which has another token", "device: is not found by its token"]);
    let renewed = ground.found(|store| changed_device(store, 1, |device| device.token = None));
    assert_eq!(
        renewed,
        ["token: refers to device 1, which has another token", "proven: has 1 devices without a token; the first is 1",]
    );
    let early = ground.found(|store| changed_device(store, 1, |device| device.revision = 1 << 40));
    assert!(early.len() == 1 && early[0].starts_with("device: has a revision that was never given"), "{early:?}");
    let high = ground.found(|store| changed_state(store, |state| state.device_next = 3));
    assert_eq!(
        high,
        [
            "device: has a number that was never given: the next is 3",
            "block: does not fit: the block before it ends at 0, and all end at 3"
        ]
    );
    let block = |length, given| rows::block_row(&crate::blocks::BlockRow { group: None, length, given });
    let overlapping = ground.found(|store| plant(store, Table::Block, number(7), Some(block(1, 1))));
    assert_eq!(overlapping, ["block: does not fit: the block before it ends at 64, and all end at 64"]);
    let ungiven = ground.found(|store| plant(store, Table::Block, number(0), Some(block(64, 3))));
    assert_eq!(ungiven, ["block: has given 3 numbers, but device 3 behind them exists"]);
    for table in [
        Table::Device,
        Table::Token,
        Table::Proven,
        Table::Mute,
        Table::Block,
        Table::Import,
        Table::Feed,
        Table::FeedEntry,
    ] {
        let unread = ground.found(|store| plant(store, table, *b"\xff\xff", Some(b"?".to_vec())));
        assert_eq!(unread, [format!("{}: cannot be read", table.name())]);
    }
    let endless = ground.found(|store| {
        let mute = rows::mute_key(DeviceNumber(0), &MuteScope::Subject(subject("team:1")));
        plant(store, Table::MuteEnd, rows::mute_end_key(NEVER, &mute), None);
        plant(store, Table::MuteEnd, rows::mute_end_key(Timestamp(7), &mute), Some(Vec::new()));
    });
    assert_eq!(
        endless,
        [
            "mute_end: refers to a mute that does not exist or has another end",
            "mute: has a mute that will not end at its time"
        ]
    );
}

#[tokio::test]
async fn contradictions_among_events_and_channels_are_found() {
    let ground = Ground::new().await;
    let id = |name: &str| crate::hash::hash16(name.as_bytes());
    let gap = ground.found(|store| plant(store, Table::Event, position(2), None));
    assert!(gap.contains(&"event: 1 events before it are missing".to_owned()), "{gap:?}");
    assert!(gap.contains(&"event_id: refers to an event that does not exist or has another id".to_owned()), "{gap:?}");
    assert!(gap.contains(&"meta: counts 6 events, but there are 5".to_owned()), "{gap:?}");
    assert_eq!(gap.len(), 4, "{gap:?}");
    let unnamed = ground.found(|store| plant(store, Table::EventId, id("e0"), None));
    assert_eq!(unnamed, ["event: is not found by its id: a repeat would count as a new event"]);
    let unnamed = ground.found(|store| plant(store, Table::EventId, id("l2"), None));
    assert_eq!(unnamed, ["later: is not found by its id: a repeat would count as a new event"]);
    let stray =
        ground.found(|store| plant(store, Table::EventId, id("x"), Some([&position(1)[..], &[0; 32]].concat())));
    assert_eq!(stray, ["event_id: refers to an event that does not exist or has another id"]);
    let short = ground.found(|store| changed_state(store, |state| state.journal_end = 6));
    assert_eq!(
        short,
        [
            "event: is outside of the journal, which begins at 1 and ends before 6",
            "meta: counts 5 events, but there are 6"
        ]
    );
    let late = ground.found(|store| {
        changed_state(store, |state| (state.later_first, state.later_count, state.later_arrival) = (None, 7, 1));
    });
    assert_eq!(
        late,
        [
            "later: has an arrival that was never given",
            "meta: counts 7 scheduled events, but there are 1",
            "meta: names another event as the first scheduled one",
        ]
    );
    let never = ground.found(|store| plant(store, Table::Job, position(99), Some(vec![1])));
    assert_eq!(never, ["job: belongs to an event that was never accepted: the next is 7"]);
    let channel = ChannelName::new("a").unwrap();
    let key = rows::history_key(&channel, Offset(6));
    let missing = ground.found(|store| plant(store, Table::History, key.clone(), None));
    assert_eq!(missing, ["channel: has 1 publications, but should have those from 5 to 6"]);
    let gone = ground.found(|store| plant(store, Table::Channel, *b"a", None));
    assert_eq!(
        gone,
        [
            "history: belongs to a channel that does not exist",
            "history: belongs to a channel that does not exist",
            "meta: counts 3 channels, but there are 2"
        ]
    );
    let beyond = ground.found(|store| {
        let row = with_engine(store, |engine| engine.get(Table::History, &key).unwrap().unwrap().as_ref().to_vec());
        plant(store, Table::History, rows::history_key(&channel, Offset(9)), Some(row));
    });
    assert_eq!(beyond, ["history: is outside of its channel's history"]);
    let rest = |count| format!("meta: counts 1 idempotency keys, but there are {count}");
    let astray = ground.found(|store| plant(store, Table::PublishKeyOrder, position(0), Some(vec![7; 16])));
    assert_eq!(astray, ["publish_key: has a number that does not exist or belongs to another key"]);
    let lost = ground.found(|store| plant(store, Table::PublishKeyOrder, position(0), None));
    assert_eq!(lost, ["publish_key: has a number that does not exist or belongs to another key".to_owned(), rest(0)]);
    let more = ground.found(|store| plant(store, Table::PublishKeyOrder, position(1), Some(vec![7; 16])));
    assert_eq!(more, [rest(2)]);
    let stateless = ground.found(|store| plant(store, Table::Brake, *b"nothing", Some(Vec::new())));
    assert_eq!(stateless, ["brake: cannot be read"]);
}

#[tokio::test]
async fn findings_are_counted_and_the_first_are_kept() {
    let (_folder, store, _) = filled().await;
    let strays = [
        (Table::Subscription, [&number(99)[..], b"team:1\0goal"].concat(), "99 team:1 goal"),
        (Table::Mute, number(98).to_vec(), "98"),
        (Table::Cancelled, position(77).to_vec(), "77"),
        (Table::Event, b"x\xff".to_vec(), "x\\xff"),
    ];
    for (table, key, text) in strays {
        plant(&store, table, key.clone(), Some(vec![0; 8]));
        let mut backup = Vec::new();
        store.backup(&mut backup).unwrap();
        let first = verify(&backup[..], |_| ()).unwrap().findings.kept.swap_remove(0);
        assert_eq!((first.table, first.key.as_str()), (table.name(), text));
        plant(&store, table, key, None);
    }
    let mut rows = Rows::default();
    (0..300_u64).for_each(|at| rows.put(Table::Job, position(1000 + at), vec![1]));
    with_engine(&store, |engine| engine.commit(rows, Durability::Synced).unwrap());
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    let findings = verify(&backup[..], |_| ()).unwrap().findings;
    assert_eq!((findings.kept.len(), findings.count), (100, 300));
    assert_eq!((findings.kept[0].table, findings.kept[0].key.as_str()), ("job", "1000"));
}

#[tokio::test]
async fn rows_larger_than_a_block_and_many_blocks_come_through() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let sizes = [3 << 20, 0, 1, (1 << 20) - 12, (1 << 20) - 11, 1 << 20, 600 << 10, 600 << 10, 2 << 20];
    let mut rows = Rows::default();
    for (at, size) in sizes.into_iter().enumerate() {
        // Half of the bytes cannot be compressed.
        let mut noise = at as u64 + 1;
        let value = (0..size).map(|place| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if place % 2 == 0 { (noise >> 33) as u8 } else { 0 }
        });
        rows.put(Table::Job, position(at as u64), value.collect::<Vec<_>>());
    }
    with_engine(&store, |engine| engine.commit(rows, Durability::Synced).unwrap());
    let mut blocks = store.begin_backup().unwrap();
    let (mut backup, mut count) = (Vec::new(), 0);
    while let Some(block) = blocks.next_block().unwrap() {
        backup.extend(block);
        count += 1;
    }
    drop(blocks);
    assert_eq!(count, 1 + 1 + 8 + 1, "head, meta, foot; of the rows only the two smallest share a block");
    let elsewhere = tempfile::tempdir().unwrap();
    restore(&backup[..], elsewhere.path(), RestoredPushes::GoOn, |_| ()).unwrap();
    let jobs = |engine: &Engine| rows_of(engine).into_iter().filter(|((table, _), _)| *table == "job").collect();
    let expected: AllRows = with_engine(&store, jobs);
    let (engine, _lock) = open_folder(elsewhere.path()).unwrap();
    assert!(jobs(&engine) == expected && expected.len() == sizes.len());
}

#[tokio::test]
async fn one_backup_is_made_at_a_time_and_one_that_is_not_read_is_given_up() {
    let (_folder, store, _) = filled().await;
    let mut first = store.begin_backup().unwrap();
    assert!(first.next_block().unwrap().is_some());
    assert!(matches!(store.begin_backup(), Err(BackupError::Busy)));
    let slot = &store.shared().backup;
    slot.clear_idle();
    assert!(first.next_block().unwrap().is_some(), "it is read");
    let long_ago = Instant::now().checked_sub(IDLE_MAX + Duration::from_secs(1)).unwrap();
    slot.lock().1.as_mut().unwrap().asked_at = long_ago;
    slot.clear_idle();
    let mut second = store.begin_backup().unwrap();
    assert!(matches!(first.next_block(), Err(BackupError::GivenUp)));
    drop(first);
    assert!(second.next_block().unwrap().is_some(), "the first one's end is not that of the second");
    drop(second);
    store.backup(std::io::sink()).unwrap();
}

#[tokio::test]
async fn a_store_that_is_opened_again_or_closed_does_not_wait_for_its_backup() {
    let (folder, store, _) = filled().await;
    let mut backup = store.begin_backup().unwrap();
    assert!(backup.next_block().unwrap().is_some());
    with_engine(&store, |engine| *engine.hooks.fault.lock().unwrap() = Some(Fault::BeforeCommit));
    assert!(store.append_events(event("x", None), T0).await.is_err());
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    let again = tokio::time::timeout(Duration::from_secs(20), async {
        while store.append_events(event("x", None), T0).await.is_err() {
            pulse.tick().await;
        }
    });
    again.await.expect("the store takes events again while the backup is held");
    assert!(matches!(backup.next_block(), Err(BackupError::GivenUp)));
    let mut backup = store.begin_backup().unwrap();
    store.close().await;
    assert!(matches!(backup.next_block(), Err(BackupError::GivenUp)));
    assert!(matches!(store.begin_backup(), Err(BackupError::GivenUp)));
    open(folder.path()).close().await;
}

#[test]
fn a_folder_without_a_store_is_named_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for error in [Backup::of_folder(folder.path()).map(drop), verify_folder(folder.path(), |_| ()).map(drop)] {
        assert!(matches!(error, Err(BackupError::NoStore)));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_restore_is_cleared_away_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let beside = folder.path().join("data.new");
    fs::create_dir_all(beside.join("keyspaces")).unwrap();
    fs::write(beside.join("keyspaces").join("half"), "half").unwrap();
    restore(small_backup(), folder.path(), RestoredPushes::GoOn, |_| ()).unwrap();
    assert!(!beside.exists());
    assert_eq!(verify_folder(folder.path(), |_| ()).unwrap().findings.count, 0);
}

#[test]
fn the_reader_s_own_error_is_told() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("cable"))
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let error = restore(small_backup()[..100].chain(Broken), folder.path(), RestoredPushes::GoOn, |_| ()).unwrap_err();
    assert!(matches!(error, BackupError::Io { action: "read", .. }) && is_bare(folder.path()));
}
