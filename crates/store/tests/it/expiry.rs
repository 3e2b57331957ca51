//! When a device was last seen, and what becomes of one that nobody sees any more.

use std::sync::atomic::{AtomicU64, Ordering};

use tidings_store::{NewImport, PutTerms, Store, StoreConfig};
use tidings_types::Timestamp;

use crate::support::*;

const DAY_MS: u64 = 24 * 3_600_000;

/// A moment in the middle of this day.
const fn noon(day: u64) -> Timestamp {
    Timestamp(day * DAY_MS + DAY_MS / 2)
}

fn day_seen(store: &Store, name: &str) -> u64 {
    let seen_at = store.device(&id(name)).unwrap().unwrap().seen_at;
    assert_eq!(seen_at.0 % DAY_MS, 0, "days are told, not moments");
    seen_at.0 / DAY_MS
}

#[tokio::test]
async fn a_device_is_seen_when_it_registers_and_when_it_is_touched_and_one_row_a_day_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    store.put_device(device("phone", None), PutTerms::default(), noon(100)).await.unwrap();
    assert_eq!(day_seen(&store, "phone"), 100);
    let batches = store.counts().batches;
    for day in [100, 99] {
        store.touch(&id("phone"), noon(day)).await.unwrap();
    }
    store.touch(&id("nobody"), noon(101)).await.unwrap();
    assert_eq!((day_seen(&store, "phone"), store.counts().batches), (100, batches));
    store.touch(&id("phone"), noon(101)).await.unwrap();
    store.touch(&id("phone"), Timestamp(noon(101).0 + 1)).await.unwrap();
    assert_eq!((day_seen(&store, "phone"), store.counts().batches), (101, batches + 1));
    store.close().await;
    store = open(folder.path()).0;
    assert_eq!(day_seen(&store, "phone"), 101);
    store.put_device(device("phone", None), PutTerms::default(), noon(102)).await.unwrap();
    assert_eq!(day_seen(&store, "phone"), 102);
}

#[tokio::test]
async fn an_import_says_when_a_device_was_seen_or_else_it_is_seen_when_it_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let import = async |name, seen_at, now| {
        let import = NewImport { seen_at, ..NewImport::from(device(name, None)) };
        store.import_devices(vec![import], None, now).await.unwrap();
        day_seen(&store, name)
    };
    assert_eq!(import("new", None, noon(50)).await, 50);
    assert_eq!(import("new", None, noon(60)).await, 50, "an import again is no sign of life");
    assert_eq!(import("new", Some(noon(40)), noon(60)).await, 50);
    assert_eq!(import("new", Some(noon(55)), noon(60)).await, 55);
    assert_eq!(import("old", Some(noon(20)), noon(60)).await, 20);
    assert_eq!(import("ahead", Some(noon(90)), noon(60)).await, 60, "nobody was seen tomorrow");
}

#[tokio::test]
async fn a_device_that_nobody_sees_for_too_long_is_deleted() {
    static NOW: AtomicU64 = AtomicU64::new(noon(100).0);
    let folder = tempfile::tempdir().unwrap();
    let idle_max = Some(10 * 24 * HOUR);
    let clock = || Timestamp(NOW.load(Ordering::Relaxed));
    let (store, _) = open_with(StoreConfig { idle_max, clock, ..config(folder.path()) });
    for name in ["idle", "touched"] {
        store.put_device(device(name, None), PutTerms::default(), noon(100)).await.unwrap();
    }
    store.subscribe(&id("idle"), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
    store.touch(&id("touched"), noon(105)).await.unwrap();
    let long_ago = NewImport { seen_at: Some(noon(1)), ..NewImport::from(device("long-ago", None)) };
    store.import_devices(vec![long_ago], None, noon(105)).await.unwrap();
    eventually("the end of the first", || store.counts().expired == 1).await;
    let ids = || store.devices(None, 10).unwrap().iter().map(|device| device.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(), ["idle", "touched"]);
    NOW.store(noon(112).0, Ordering::Relaxed);
    eventually("the end of the second", || store.counts().expired == 2).await;
    assert_eq!((ids(), store.counts().subscriptions), (vec!["touched".to_owned()], 0));
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_device_unseen() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    for day in [100, 60] {
        store.put_device(device("phone", None), PutTerms::default(), noon(day)).await.unwrap();
        assert_eq!(day_seen(&store, "phone"), 100);
    }
}
