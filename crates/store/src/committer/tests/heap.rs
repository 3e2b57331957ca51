//! The device table in a running store: damaged records, garbage, and numbers that are given again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tidings_types::{Country, DeviceToken, TokenRef};

use super::*;

fn open_large(folder: &Path, sink: Arc<Sink>) -> Store {
    Store::open(StoreConfig { device_count_max: 1000, ..config(folder) }, sink).unwrap()
}

/// Waits until the committer has freed the numbers that it can free now.
async fn looks_twice(store: &Store) {
    let looks = || store.shared().counters.looks.load(Ordering::Relaxed);
    let before = looks();
    eventually("it looks twice", || looks() >= before + 2).await;
}

async fn put(store: &Store, name: &str) -> DeviceNumber {
    let token = Some(DeviceToken::from(name.as_bytes()));
    let put = store.put_device(NewDevice { token, ..device(name) }, PutTerms::default(), Timestamp(1)).await;
    store.device_number(&put.unwrap().device.id).unwrap().unwrap()
}

async fn delete(store: &Store, name: &str) {
    assert!(store.delete_device(&DeviceId::new(name).unwrap(), Precondition::None).await.unwrap());
}

fn told(store: &Store, numbers: &[DeviceNumber]) -> Vec<(String, DeviceToken)> {
    let mut told = Vec::new();
    store.with_recipients(numbers, |found| {
        told.push((found.id.to_owned(), found.token.map(TokenRef::to_token).unwrap()))
    });
    told
}

#[tokio::test]
async fn who_has_which_number_is_known_again_after_an_opening() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_large(folder.path(), Arc::default());
    let mut numbers = Vec::new();
    for index in 0..50 {
        numbers.push((format!("phone-{index}"), put(&store, &format!("phone-{index}")).await));
    }
    let hint = |store: &Store, name: &str| store.shared().table.read().number_of(&DeviceId::new(name).unwrap());
    // A full bucket may have lost the hints of a few devices.
    let known = |store: &Store| numbers.iter().filter(|(name, number)| hint(store, name) == Some(*number)).count();
    eventually("nearly all are known", || known(&store) >= 40).await;
    delete(&store, "phone-7").await;
    store.close().await;
    let store = open_large(folder.path(), Arc::default());
    assert_eq!(store.counts().rebuilt, 0);
    eventually("the rows were walked over", || known(&store) >= 40).await;
    assert_eq!(hint(&store, "phone-7"), None);
    for (name, number) in &numbers {
        let number = Some(*number).filter(|_| name != "phone-7");
        assert_eq!(store.device_number(&DeviceId::new(name).unwrap()).unwrap(), number);
    }
}

/// Changes all bytes of the heap under the maps of the store, as a failing disk may.
fn spoil_heap(folder: &Path) {
    for file in fs::read_dir(folder.join("heap")).unwrap() {
        let file = file.unwrap().path();
        let spoilt: Vec<u8> = fs::read(&file).unwrap().iter().map(|byte| byte ^ 0xff).collect();
        fs::File::options().write(true).open(file).unwrap().write_all_at(&spoilt, 0).unwrap();
    }
}

#[tokio::test]
async fn devices_whose_records_are_damaged_are_told_from_their_rows_and_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let names: Vec<String> = (0..50).map(|number| format!("phone-{number}")).collect();
    let mut numbers = Vec::new();
    for name in &names {
        numbers.push(put(&store, name).await);
    }
    let expected: Vec<_> = names.iter().map(|name| (name.clone(), DeviceToken::from(name.as_bytes()))).collect();
    assert_eq!(told(&store, &numbers), expected);
    spoil_heap(folder.path());
    assert_eq!(told(&store, &numbers), expected, "in their order, none missing");
    store.devices_proven(numbers.clone()).await.unwrap();
    assert_eq!(store.counts().proven, 50, "a lost one has a token too");
    eventually("all are written anew", || store.counts().repaired >= 50).await;
    let is_there = |number: &DeviceNumber| matches!(store.shared().table.read().recipient(*number), Ok(Some(_)));
    assert!(numbers.iter().all(is_there));
    assert_eq!((told(&store, &numbers), store.counts().devices), (expected, 50));
}

#[tokio::test]
async fn a_device_whose_record_and_row_are_damaged_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let (first, second) = (put(&store, "first").await, put(&store, "second").await);
    spoil_heap(folder.path());
    damage(&store, Table::Device, &first.0.to_be_bytes());
    assert_eq!(told(&store, &[first, second]), [("second".to_owned(), DeviceToken::from(&b"second"[..]))]);
    eventually("the one is given up", || store.counts().devices == 1).await;
    assert_ne!(put(&store, "first").await, first, "what is left of it must not be another's");
}

/// Rows that are written again leave files without living records. The current checkpoint refers to these files until
/// the next checkpoint is written.
#[tokio::test]
async fn no_file_goes_before_a_checkpoint_without_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { checkpoint_change_count: 1, ..config(folder.path()) };
    let store = Store::open(config, Arc::new(Sink::default())).unwrap();
    let import = |turn: u32| {
        let token = |index| Some(DeviceToken::fcm(&format!("{turn}-{index}-{}", "x".repeat(3000))).unwrap());
        let new = |index| NewDevice { token: token(index), ..device(&format!("phone-{index}")) };
        store.import_devices((0..30).map(|index| new(index).into()).collect(), None, Timestamp(1))
    };
    let files = || -> BTreeSet<_> {
        fs::read_dir(folder.path().join("heap")).unwrap().map(|file| file.unwrap().file_name()).collect()
    };
    import(0).await.unwrap();
    eventually("a checkpoint", || store.counts().checkpoints > 0).await;
    let (place, beside) = (folder.path().join("checkpoint"), folder.path().join("beside"));

    // A folder has the name that the next checkpoint would have.
    let none_is_written = store.shared().checkpoint.interrupt();
    let spoken_of = files();
    fs::rename(&place, &beside).unwrap();
    fs::create_dir(&place).unwrap();
    drop(none_is_written);
    for turn in 1..10 {
        import(turn).await.unwrap();
        let failed = store.counts().checkpoints_failed;
        eventually("two tries", || store.counts().checkpoints_failed >= failed + 2).await;
    }
    let kept = files();
    assert!(kept.is_superset(&spoken_of) && kept.len() > spoken_of.len(), "{spoken_of:?}, then {kept:?}");

    fs::remove_dir(&place).unwrap();
    eventually("files go with the checkpoint that comes without being asked for", || files().is_disjoint(&spoken_of))
        .await;
    assert!(place.is_file() && store.counts().failures == 0);
}

#[tokio::test]
async fn a_number_is_given_again_when_the_sender_needs_nothing_before_and_not_earlier() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let store = open_large(folder.path(), sink.clone());
    let first = put(&store, "first").await;
    let goal = (Subject::new("team:1").unwrap(), vec![TopicName::new("goal").unwrap()]);
    store.subscribe(&DeviceId::new("first").unwrap(), vec![goal]).await.unwrap();
    // Fills its block, so that a free number would be next.
    for number in 1..64 {
        assert_eq!(put(&store, &format!("other-{number}")).await.0, first.0 + number);
    }
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    let position = JournalPosition(store.journal_end().0 - 1);
    delete(&store, "first").await;
    store.trim(position); // The event itself is still needed.
    looks_twice(&store).await;
    let next = put(&store, "second").await;
    assert_ne!(next, first);
    for number in 1..64 {
        assert_ne!(put(&store, &format!("filler-{number}")).await, first);
    }
    store.trim(store.journal_end());
    let is_free = || {
        let blocks = store.shared().blocks.lock().unwrap();
        blocks.room(u32::MAX) + 63 + 64 == u64::from(u32::MAX)
    };
    eventually("the number has rested", is_free).await;
    let mut given = Vec::new();
    for number in 0..65 {
        given.push(put(&store, &format!("later-{number}")).await);
    }
    assert_eq!(given.iter().filter(|number| **number == first).count(), 1);
    let name = format!("later-{}", given.iter().position(|number| *number == first).unwrap());
    assert_eq!(told(&store, &[first])[0].0, name);
    assert_eq!(store.select(&event("e2").remove(0).event).len(), 0, "it has no subscription of its former device");
    assert_eq!(*sink.1.lock().unwrap(), [first]);
    let since = |store: &Store| {
        let mut since = None;
        store.with_recipients(&[first], |found| since = Some(found.since));
        since
    };
    assert_eq!(since(&store), Some(store.journal_end()), "it is owed nothing that its former device was");
    store.close().await;
    let store = open(folder.path(), Arc::default());
    assert_eq!((told(&store, &[first])[0].0.as_str(), since(&store)), (name.as_str(), Some(store.journal_end())));
}

#[tokio::test]
async fn what_was_deleted_before_a_start_waits_for_what_was_in_the_journal_then() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let first = put(&store, "first").await;
    for number in 1..64 {
        put(&store, &format!("other-{number}")).await;
    }
    delete(&store, "first").await;
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    store.close().await;
    let store = open(folder.path(), Arc::default());
    let room = || store.shared().blocks.lock().unwrap().room(u32::MAX);
    let before = room();
    store.trim(JournalPosition(store.journal_end().0 - 1));
    looks_twice(&store).await;
    assert_eq!(room(), before, "the event may be of when it lived");
    store.trim(store.journal_end());
    eventually("the number has rested", || room() == before + 1).await;
    assert_eq!(put(&store, "next").await, first);
}

#[tokio::test]
async fn devices_of_one_kind_have_numbers_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_large(folder.path(), Arc::default());
    let mut numbers = [Vec::new(), Vec::new()];
    for turn in 0..200 {
        let country = Some(Country::new(["SE", "BR"][turn % 2]).unwrap());
        let new = NewDevice { country, ..device(&format!("phone-{turn}")) };
        let put = store.put_device(new, PutTerms::default(), Timestamp(1)).await.unwrap();
        numbers[turn % 2].push(store.device_number(&put.device.id).unwrap().unwrap().0);
    }
    for numbers in numbers {
        let breaks = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(breaks <= 1, "{numbers:?}");
    }
}
