//! Versions of publications, and histories that are removed: over a failing disk and a restart.

use std::collections::BTreeMap;

use tidings_types::Json;

use super::*;
use crate::channels::trim::ChannelPass;
use crate::{Once, Version};

fn channel() -> DurableChannel {
    let name = ChannelName::new("chat:1").unwrap();
    DurableChannel { name, history_size: 10, history_ttl: Duration::from_secs(60), has_texts: false }
}

async fn publish(store: &Store, number: u64, epoch: &str, key: Option<&str>) -> Result<u64, WriteError> {
    let once = Once { key, version: (number > 0).then_some(Version { number, epoch }) };
    let data = Json::of(&number);
    let published = store.append_publication_once(channel(), once, data, BTreeMap::new(), Timestamp(1000)).await;
    published.map(|position| position.offset.0)
}

/// The offsets that the history has, and the top.
fn kept(store: &Store) -> (Vec<u64>, u64) {
    let kept = store.history(&channel().name, Timestamp(1000)).unwrap();
    let top = store.durable_channels(Timestamp(1000)).unwrap()[0].top;
    (kept.iter().map(|(offset, _)| offset.0).collect(), top.0)
}

#[tokio::test]
async fn a_publication_that_is_not_newer_is_swallowed() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Arc::default());
    for (number, epoch, key, expected) in [
        (5, "", None, 1),
        (5, "", None, 1),
        (4, "", None, 1),
        (6, "", None, 2),
        (0, "", None, 3), // Without a version it is always published, and changes nothing.
        (6, "", None, 3), // The answer is the position of the channel, not of that version.
        (1, "b", None, 4),
        (1, "b", Some("k"), 4),
        (2, "b", Some("k"), 4), // The key was remembered with its answer.
        (6, "", None, 5),       // Of the versions only the newest is known.
    ] {
        assert_eq!(publish(&store, number, epoch, key).await, Ok(expected), "{number} {epoch} {key:?}");
    }
    store.close().await;
    store = open(folder.path(), Arc::default());
    assert_eq!(publish(&store, 6, "", None).await, Ok(5));
    assert_eq!(publish(&store, 7, "", None).await, Ok(6));
    assert_eq!(kept(&store), (vec![1, 2, 3, 4, 5, 6], 6));
}

#[tokio::test]
async fn a_version_in_doubt_is_published_once() {
    for fault in [Fault::AfterCommit, Fault::BeforeCommit] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), Arc::default());
        assert_eq!(publish(&store, 1, "", None).await, Ok(1));
        *store.shared().engine.read().as_ref().unwrap().hooks.fault.lock().unwrap() = Some(fault);
        assert_eq!(publish(&store, 2, "", None).await, Err(WriteError::Unavailable));
        let mut pulse = tokio::time::interval(Duration::from_millis(2));
        let offset = loop {
            pulse.tick().await;
            match publish(&store, 2, "", None).await {
                Ok(offset) => break offset,
                Err(error) => assert_eq!(error, WriteError::Unavailable),
            }
        };
        assert_eq!((offset, kept(&store).1), (2, 2), "{fault:?}");
    }
}

/// More than one batch removes.
#[tokio::test]
async fn a_history_is_removed_and_the_offsets_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Arc::new(Sink::default());
    let mut store = open(folder.path(), sink.clone());
    let name = channel().name;
    store.remove_history(&name).await.unwrap();
    for number in 1..=8 {
        publish(&store, number, "", None).await.unwrap();
    }
    store.remove_history(&name).await.unwrap();
    assert_eq!(kept(&store), (vec![], 8));
    assert_eq!(*sink.2.lock().unwrap(), [3, 6, 8], "the hub is told each step");
    assert_eq!(publish(&store, 8, "", None).await, Ok(8), "the version is still known");
    assert_eq!(publish(&store, 9, "", None).await, Ok(9));
    store.close().await;
    store = open(folder.path(), sink.clone());
    assert_eq!(kept(&store), (vec![9], 9));
    store.remove_history(&name).await.unwrap();
    store.remove_history(&name).await.unwrap();
    assert_eq!((kept(&store), sink.2.lock().unwrap().len()), ((vec![], 9), 4));
}

/// What is published while a large history is removed stays.
#[tokio::test]
async fn what_is_published_meanwhile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for number in 1..=7 {
        publish(&store, number, "", None).await.unwrap();
    }
    let name = channel().name;
    let (removed, published) = tokio::join!(store.remove_history(&name), publish(&store, 8, "", None));
    assert_eq!((removed, published), (Ok(()), Ok(8)));
    assert_eq!(kept(&store), (vec![8], 8));
}

/// A large history that is over is taken away in several rounds. Meanwhile nobody gets a part of it, and the next publication
/// goes on where it was.
#[tokio::test]
async fn a_history_that_is_over_is_taken_away_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for offset in 1..=8 {
        assert_eq!(publish(&store, 0, "", None).await, Ok(offset));
    }
    let end = Timestamp(1000).saturating_add(channel().history_ttl);
    let kept_rows = || {
        let engine = store.shared().engine.read();
        let (mut count, prefix) = (0, crate::rows::history_prefix(&channel().name));
        let counted = engine.as_ref().unwrap().scan(Place::Open, Table::History, &Span::prefix(&prefix), |_, _| {
            count += 1;
            Ok(true)
        });
        counted.map(|()| count).unwrap()
    };
    assert!(store.history(&channel().name, end).unwrap().is_empty(), "it is over as a whole");
    let mut rounds = vec![kept_rows()];
    let mut pass = ChannelPass::default();
    while rounds.last() != Some(&0) {
        let store = store.clone();
        let trimmed = store.write(crate::queue::Class::Events, 0, {
            let mut pass = std::mem::take(&mut pass);
            move |draft: &mut crate::committer::draft::Draft<'_>| {
                draft.advance(end);
                let more = draft.trim_channels(&mut pass)?;
                Ok((pass, more))
            }
        });
        let more;
        (pass, more) = trimmed.await.unwrap();
        rounds.push(kept_rows());
        assert!(more || rounds.last() == Some(&0), "{rounds:?}");
        assert!(rounds.len() < 10, "{rounds:?}");
    }
    // Three at a time; a round of the store's own may have come between two of these.
    assert!(rounds.windows(2).all(|two| two[0] - two[1] <= 6) && rounds.len() > 2, "{rounds:?}");
    assert_eq!(publish(&store, 0, "", None).await, Ok(9));
}

/// Files are lost: rows that were deleted are back, and another one is missing.
#[tokio::test]
async fn a_history_begins_behind_a_row_that_is_missing_and_has_none_that_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    for offset in 1..=12 {
        assert_eq!(publish(&store, 0, "", None).await, Ok(offset)); // Ten of them are kept.
    }
    let engine = store.shared().engine.read();
    let engine = engine.as_ref().unwrap();
    let key = |offset| crate::rows::history_key(&channel().name, Offset(offset));
    let mut rows = Rows::default();
    rows.put(Table::History, key(1), engine.get(Table::History, &key(3)).unwrap().unwrap().as_ref());
    rows.put(Table::History, key(2), engine.get(Table::History, &key(3)).unwrap().unwrap().as_ref());
    engine.commit(rows, Durability::Synced).unwrap();
    let offsets = || kept(&store).0;
    assert_eq!(offsets(), (3..=12).collect::<Vec<_>>());
    let mut rows = Rows::default();
    rows.delete(Table::History, key(8));
    engine.commit(rows, Durability::Synced).unwrap();
    assert_eq!(offsets(), [9, 10, 11, 12]);
}
