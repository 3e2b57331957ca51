//! Scheduled events, brakes and proven tokens with a failing disk and with rows of other versions.

use tidings_types::{BrakeScope, DeviceToken};

use super::*;
use crate::rows;

fn proven(store: &Store, numbers: &[u32]) -> Vec<u32> {
    let numbers: Vec<_> = numbers.iter().copied().map(DeviceNumber).collect();
    let mut proven = Vec::new();
    store.with_recipients(&numbers, |recipient| proven.extend(recipient.proven.then_some(recipient.number.0)));
    proven
}

async fn put_with_token(store: &Store, name: &str) {
    let token = Some(DeviceToken::from(name.as_bytes()));
    store.put_device(NewDevice { token, ..device(name) }, PutTerms::default(), Timestamp(1)).await.unwrap();
}

/// The answer of a release whose commit fails, the answer when the store is open again, and all that the sink was told.
async fn release_with_fault(fault: Fault) -> (usize, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let store = open(folder.path(), sink.clone());
    store.append_events(later("e1", 9), Timestamp(1)).await.unwrap();
    fail_next(&store, fault);
    assert_eq!(store.release_later(Timestamp(9)).await, Err(WriteError::Unavailable));
    append_again(&store, "e2").await;
    let released = store.release_later(Timestamp(9)).await.unwrap();
    assert_eq!((*store.next_later().borrow(), store.counts().later), (None, 0));
    assert_eq!(store.journal_end(), JournalPosition(3));
    let told = sink.0.lock().unwrap().clone();
    (released, told)
}

#[tokio::test]
async fn a_release_in_doubt_has_been_done_or_not_and_is_told_once() {
    assert_eq!(release_with_fault(Fault::AfterCommit).await, (0, vec![1, 2]));
    assert_eq!(release_with_fault(Fault::BeforeCommit).await, (1, vec![1, 2]));
}

#[tokio::test]
async fn after_a_pause_in_doubt_who_follows_sees_what_is_durable() {
    for (fault, is_paused) in [(Fault::AfterCommit, true), (Fault::BeforeCommit, false)] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), Arc::default());
        fail_next(&store, fault);
        let follower = store.brakes();
        assert_eq!(store.pause(BrakeScope::Everything, Timestamp(1)).await, Err(WriteError::Unavailable));
        append_again(&store, "e1").await;
        assert_eq!(follower.has_changed().unwrap(), is_paused, "{fault:?}");
        assert_eq!(store.pause(BrakeScope::Everything, Timestamp(2)).await, Ok(!is_paused));
        assert!(follower.borrow().is_paused(&BrakeScope::Everything));
    }
}

#[tokio::test]
async fn a_damaged_event_for_later_is_lost_alone_and_its_id_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for (id, due) in [("e1", 7), ("e2", 8), ("e3", 9)] {
        store.append_events(later(id, due), Timestamp(1)).await.unwrap();
    }
    let e2 = EventId::new("e2").unwrap();
    damage(&store, Table::Later, &rows::later_key(store.later(&e2).unwrap().unwrap().key));
    assert!(store.later(&e2).is_err());
    assert_eq!(store.later_events(None, 9).unwrap().len(), 2);
    assert_eq!(store.release_later(Timestamp(9)).await, Ok(2));
    assert_eq!((store.counts().later, store.counts().failures, *store.next_later().borrow()), (0, 0, None));
    assert!(!store.append_events(event("e2"), Timestamp(9)).await.unwrap()[0].repeated);
}

/// A version without scheduled events leaves their counters out of the state that it writes.
#[tokio::test]
async fn events_for_later_are_found_again_after_an_older_version_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for (id, due) in [("e1", 9), ("e2", 8)] {
        store.append_events(later(id, due), Timestamp(1)).await.unwrap();
    }
    let epoch = store.channel_start().epoch;
    store.close().await;
    {
        let engine = Engine::open_again(folder.path(), 1 << 20).unwrap();
        let state = format!(
            r#"{{"commit":9,"journal_base":1,"journal_end":1,"journal_bytes":0,"device_next":0,"channel_count":1,"epoch":"{epoch}"}}"#
        );
        let mut rows = Rows::default();
        rows.put(Table::Meta, crate::engine::STATE_KEY, state);
        engine.commit(rows, Durability::Synced).unwrap();
    }
    let store = open(folder.path(), Arc::default());
    assert_eq!((*store.next_later().borrow(), store.counts().later), (Some(Timestamp(8)), 2));
    store.append_events(later("e3", 9), Timestamp(1)).await.unwrap();
    assert_eq!(store.release_later(Timestamp(9)).await, Ok(3));
    let ids: Vec<_> =
        store.events_from(JournalPosition(0), 9).unwrap().into_iter().map(|(_, one)| one.event.id).collect();
    assert_eq!(ids, ["e2", "e1", "e3"].map(|id| EventId::new(id).unwrap()));
}

#[tokio::test]
async fn proven_tokens_are_kept_on_both_sides_of_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let first_rows = || {
        let state = r#"{"commit":0,"journal_base":1,"journal_end":1,"journal_bytes":0,"device_next":65534,"channel_count":0,"epoch":"AbCdEfGh"}"#;
        let mut rows = Rows::default();
        rows.put(Table::Meta, rows::FORMAT_KEY, rows::FORMAT);
        rows.put(Table::Meta, crate::engine::STATE_KEY, state);
        rows
    };
    drop(Engine::open(folder.path(), 1 << 20, first_rows).unwrap());
    let mut config = config(folder.path());
    config.device_count_max = 100_000;
    let mut store = Store::open(config.clone(), Arc::new(Sink::default())).unwrap();
    for name in ["a", "b", "c", "d"] {
        put_with_token(&store, name).await;
    }
    let all = [65534, 65535, 65536, 65537];
    store.devices_proven(all[1..].iter().copied().map(DeviceNumber).collect()).await.unwrap();
    store.delete_device(&DeviceId::new("c").unwrap(), Precondition::None).await.unwrap();
    for restarted in [false, true] {
        assert_eq!(proven(&store, &all), [65535, 65537], "restarted: {restarted}");
        assert_eq!(store.counts().proven, 2);
        store.close().await;
        store = Store::open(config.clone(), Arc::new(Sink::default())).unwrap();
    }
}

#[tokio::test]
async fn of_damaged_rows_of_the_proven_set_and_the_brakes_only_these_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    put_with_token(&store, "phone").await;
    store.devices_proven(vec![DeviceNumber(0)]).await.unwrap();
    store.pause(BrakeScope::Everything, Timestamp(1)).await.unwrap();
    damage(&store, Table::Proven, &[0, 0]);
    damage(&store, Table::Brake, b"nothing we know");
    damage(&store, Table::Cancelled, b"no position");
    store.close().await;
    let mut store = open(folder.path(), Arc::default());
    assert_eq!((proven(&store, &[0]), store.counts().paused, store.counts().cancelled), (vec![], 1, 0));
    for _ in 0..2 {
        store.devices_proven(vec![DeviceNumber(0)]).await.unwrap();
        store.close().await;
        store = open(folder.path(), Arc::default());
        assert_eq!(proven(&store, &[0]), [0]);
    }
}

#[tokio::test]
async fn brakes_and_releases_are_synced_and_proven_tokens_are_not_and_what_changes_nothing_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    put_with_token(&store, "phone").await;
    store.append_events(later("e1", 9), Timestamp(1)).await.unwrap();
    for _ in 0..2 {
        store.pause(BrakeScope::Everything, Timestamp(1)).await.unwrap();
        store.devices_proven(vec![DeviceNumber(0), DeviceNumber(1)]).await.unwrap();
        store.release_later(Timestamp(9)).await.unwrap();
        store.cancel(JournalPosition(1)).await.unwrap();
        store.cancel_later(&EventId::new("e1").unwrap()).await.unwrap();
    }
    let engine = store.shared().engine.read();
    let commits = engine.as_ref().unwrap().hooks.commits.lock().unwrap();
    use Durability::{Handed, Synced};
    assert_eq!(*commits, [Synced, Synced, Synced, Handed, Synced, Synced]);
}

#[tokio::test]
async fn a_damaged_channel_holds_up_no_event_that_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let store = open(folder.path(), sink.clone());
    let mut both = later("e1", 8);
    let name = ChannelName::new("team:2").unwrap();
    let second = DurableChannel { name: name.clone(), ..both[0].channels[0].clone() };
    both[0].channels.push(second);
    store.append_events(both, Timestamp(1)).await.unwrap();
    store.append_events(later("e2", 9), Timestamp(1)).await.unwrap();
    damage(&store, Table::Channel, b"team:1");
    assert_eq!(store.release_later(Timestamp(9)).await, Ok(2));
    let events = store.events_from(JournalPosition(0), 9).unwrap();
    let published: Vec<Vec<_>> =
        events.iter().map(|(_, one)| one.published.iter().map(|(name, _)| name.clone()).collect()).collect();
    // The channel has no history, so it goes on behind all offsets that it can have given out.
    let first = ChannelName::new("team:1").unwrap();
    assert_eq!(published, [vec![first.clone(), name], vec![first]]);
    assert_eq!(*sink.0.lock().unwrap(), [10, 1, 11]);
    assert_eq!((store.counts().later, store.counts().failures, *store.next_later().borrow()), (0, 0, None));
}

#[tokio::test]
async fn a_pause_that_cannot_be_read_pauses_everything_until_that_is_resumed() {
    for (key, since) in [(&b"nothing we know"[..], None), (b"topic:goal", None), (b"topic:goal", Some(Timestamp(7)))] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), Arc::default());
        let topic = BrakeScope::Topic(TopicName::new("news").unwrap());
        store.pause(topic.clone(), Timestamp(1)).await.unwrap();
        if let Some(since) = since {
            store.pause(BrakeScope::Everything, since).await.unwrap();
        }
        damage(&store, Table::Brake, key);
        for _ in 0..2 {
            store.close().await;
            store = open(folder.path(), Arc::default());
            let all = (BrakeScope::Everything, since.unwrap_or_default());
            assert_eq!(*store.brakes().borrow().paused, [all, (topic.clone(), Timestamp(1))].into());
        }
        assert_eq!(store.resume(BrakeScope::Everything).await, Ok(true));
        store.close().await;
        store = open(folder.path(), Arc::default());
        assert_eq!(*store.brakes().borrow().paused, [(topic, Timestamp(1))].into());
    }
}
