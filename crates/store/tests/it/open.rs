//! Opening and closing: one user at a time, a known format, a creation that was interrupted, and what waits at the
//! end.

use std::sync::Arc;

use tidings_store::{NewEvent, NewImport, OpenError, Store};
use tidings_types::{BrakeScope, Event, JournalPosition, Timestamp};

use crate::support::*;

fn open_error(path: &std::path::Path) -> OpenError {
    Store::open(config(path), Arc::new(Sink::default())).unwrap_err()
}

#[tokio::test]
async fn a_folder_has_one_user_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    assert!(matches!(open_error(folder.path()), OpenError::Locked { .. }));
    store.close().await;
    let (store, _) = open(folder.path());
    // The last handle closes the store on its own.
    drop(store);
    eventually("closing", || Store::open(config(folder.path()), Arc::new(Sink::default())).is_ok()).await;
}

#[tokio::test]
async fn an_unknown_format_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).0.close().await;
    {
        let database = fjall::Database::builder(folder.path().join("data")).open().unwrap();
        let meta = database.keyspace("meta", fjall::KeyspaceCreateOptions::default).unwrap();
        meta.insert("format", "tidings-store-99").unwrap();
    }
    let error = open_error(folder.path());
    assert_eq!(error.to_string(), "the store has format tidings-store-99, this version reads format tidings-store-4");
}

/// A folder of before there were events for later, brakes and proven tokens.
#[tokio::test]
async fn a_store_without_the_newer_tables_is_opened_and_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    {
        let database = fjall::Database::builder(folder.path().join("data")).open().unwrap();
        let older = ["event", "event_id", "channel", "history", "job", "device", "device_id", "token", "subscription"];
        for table in older {
            database.keyspace(table, fjall::KeyspaceCreateOptions::default).unwrap();
        }
        let meta = database.keyspace("meta", fjall::KeyspaceCreateOptions::default).unwrap();
        let state = r#"{"commit":9,"journal_base":1,"journal_end":4,"journal_bytes":600,"device_next":2,"channel_count":1,"epoch":"AbCdEfGh"}"#;
        meta.insert("format", "tidings-store-1").unwrap();
        meta.insert("state", state).unwrap();
        database.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let (mut store, _) = open(folder.path());
    let later =
        NewEvent { event: Event { at: Some(Timestamp(T0.0 + 1)), ..event("e1", 1) }, ..new_event("e1", 1, &[]) };
    store.append_events(vec![later], T0).await.unwrap();
    store.pause(BrakeScope::Everything, T0).await.unwrap();
    let proven = NewImport { proven: true, ..import(device("phone", Some(token(1))), vec![]) };
    store.import_devices(vec![proven], None, T0).await.unwrap();
    for _ in 0..2 {
        assert_eq!(*store.next_later().borrow(), Some(Timestamp(T0.0 + 1)));
        assert!(store.brakes().borrow().is_paused(&BrakeScope::Everything) && is_proven(&store, "phone"));
        store.close().await;
        store = open(folder.path()).0;
    }
    assert_eq!(store.release_later(Timestamp(T0.0 + 1)).await, Ok(1));
    assert_eq!(store.journal_end().0, 5);
}

#[tokio::test]
async fn a_creation_that_was_interrupted_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data.new")).unwrap();
    std::fs::write(folder.path().join("data.new/0.jnl"), "half").unwrap();
    let (store, _) = open(folder.path());
    assert!(!folder.path().join("data.new").exists(), "what was half made is gone");
    store.append_events(vec![new_event("e1", 1, &[])], T0).await.unwrap();
    store.close().await;
    let (store, _) = open(folder.path());
    assert_eq!(store.events_from(JournalPosition(0), 10).unwrap().len(), 1, "and what was made instead stays");
}

#[tokio::test]
async fn what_waits_when_the_store_closes_is_still_written() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let (appended, ()) = tokio::join!(store.append_events(vec![new_event("e1", 1, &[])], T0), store.close());
    appended.unwrap();
    assert!(store.append_events(vec![new_event("e2", 1, &[])], T0).await.is_err());
    assert!(store.device(&id("phone")).is_err(), "reading needs an open store");
}
