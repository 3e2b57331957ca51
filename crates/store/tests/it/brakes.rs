//! Pauses and cancelled jobs: seen by followers when they are acknowledged, kept, bounded, forgotten in time.

use std::pin::Pin;
use std::time::Duration;

use tidings_store::{PAUSE_COUNT_MAX, PositionSet, WriteError};
use tidings_types::{AppId, BrakeScope, JournalPosition, Timestamp};

use crate::support::*;

fn positions<const COUNT: usize>(positions: [u64; COUNT]) -> PositionSet {
    positions.into_iter().map(JournalPosition).collect()
}

#[tokio::test]
async fn what_is_paused_or_cancelled_stays_so_over_a_restart_until_it_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    let (goals, app) = (BrakeScope::Topic(topic("goal")), BrakeScope::App(AppId::new("com.example.app").unwrap()));
    store.append_events(vec![new_event("e1", 1, &[]), new_event("e2", 1, &[])], T0).await.unwrap();
    let mut follower = store.brakes();
    assert!(store.pause(goals.clone(), T0).await.unwrap());
    assert!(follower.has_changed().unwrap() && follower.borrow_and_update().is_paused(&goals));
    assert!(!store.pause(goals.clone(), Timestamp(T0.0 + 1)).await.unwrap());
    assert!(!follower.has_changed().unwrap(), "nothing changed");
    assert!(store.pause(app.clone(), T0).await.unwrap());
    assert!(store.resume(app.clone()).await.unwrap() && !store.resume(app).await.unwrap());
    for (position, expected) in [(2, true), (2, false), (0, false), (3, false)] {
        assert_eq!(store.cancel(JournalPosition(position)).await.unwrap(), expected, "{position}");
    }
    assert!(follower.has_changed().unwrap());
    for restarted in [false, true] {
        let brakes = store.brakes().borrow().clone();
        assert_eq!(*brakes.paused, [(goals.clone(), T0)].into(), "restarted: {restarted}");
        assert_eq!(brakes.cancelled, positions([2]));
        assert_eq!((store.counts().paused, store.counts().cancelled), (1, 1));
        store.close().await;
        store = open(folder.path()).0;
    }
    assert!(store.resume(goals).await.unwrap());
    assert!(store.brakes().borrow().paused.is_empty());
}

#[tokio::test]
async fn a_cancelled_job_is_forgotten_with_its_row_or_its_event() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.id_window, config.id_window_count) = (Duration::ZERO, 1);
    let (store, _) = open_with(config);
    store.append_events((1..=4).map(|n| new_event(&format!("e{n}"), n, &[])).collect(), T0).await.unwrap();
    for position in [1, 2, 3] {
        assert!(store.cancel(JournalPosition(position)).await.unwrap());
    }
    // Its job may have finished at the same moment: forgetting the job forgets that it was cancelled all the same.
    store.remove_jobs(vec![JournalPosition(2), JournalPosition(4)]).await.unwrap();
    assert_eq!(store.brakes().borrow().cancelled, positions([1, 3]));
    store.trim(JournalPosition(2));
    store.append_events(vec![new_event("e5", 5, &[])], T0.saturating_add(HOUR)).await.unwrap();
    eventually("trimming", || store.event(JournalPosition(1)).unwrap().is_none()).await;
    assert_eq!(store.brakes().borrow().cancelled, positions([3]));
    assert!(!store.cancel(JournalPosition(1)).await.unwrap(), "the event is gone");
    store.close().await;
    assert_eq!(open(folder.path()).0.brakes().borrow().cancelled, positions([3]));
}

#[tokio::test]
async fn there_is_a_bound_on_what_is_paused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let scope = |n: usize| BrakeScope::App(AppId::new(&format!("app-{n}")).unwrap());
    for chunk in (0..PAUSE_COUNT_MAX).collect::<Vec<_>>().chunks(64) {
        let pause = |&n: &usize| Box::pin(store.pause(scope(n), T0)) as Pin<Box<dyn Future<Output = _>>>;
        for paused in join_all(chunk.iter().map(pause).collect()).await {
            assert_eq!(paused, Ok(true));
        }
    }
    let full = WriteError::Overloaded { what: "the set of paused scopes", limit: PAUSE_COUNT_MAX as u64 };
    assert_eq!(store.pause(BrakeScope::Everything, T0).await, Err(full));
    assert_eq!(store.pause(scope(7), T0).await, Ok(false), "what is paused needs no room");
    assert!(store.resume(scope(7)).await.unwrap());
    assert_eq!(store.pause(BrakeScope::Everything, T0).await, Ok(true));
}
