//! What is kept of feeds: it survives, changes as a whole, and is bounded.

use tidings_store::{FEED_COUNT_MAX, FeedChange, FeedEntry, FeedState, FeedValidator, FileMark, KeptFeed, Store};
use tidings_types::{FeedName, Timestamp};

use crate::support::*;

fn name(text: &str) -> FeedName {
    FeedName::new(text).unwrap()
}

fn state(at: u64) -> FeedState {
    let validator = FeedValidator { source: 7, etag: Some("\"v1\"".to_owned()), last_modified: None };
    let files = [("a.xml".to_owned(), FileMark { bytes: 1, modified_nanos: 2 })].into();
    FeedState { validator, is_begun: true, files, at: Timestamp(at) }
}

async fn put(store: &Store, feed: &str, at: u64, seen: &[FeedEntry], forgotten: &[[u8; 16]]) {
    let change = FeedChange { state: state(at), seen: seen.to_vec(), forgotten: forgotten.to_vec() };
    store.put_feed(name(feed), change).await.unwrap();
}

#[tokio::test]
async fn a_feed_is_kept_with_its_entries() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    assert_eq!(store.feed(&name("news")).unwrap(), KeptFeed::default());
    put(&store, "news", 1, &[([1; 16], 1), ([2; 16], 2), ([0; 16], 3)], &[]).await;
    put(&store, "news.more", 1, &[([4; 16], 1)], &[]).await; // Its name begins alike.
    put(&store, "news", 2, &[([1; 16], 9), ([3; 16], 4)], &[[2; 16], [8; 16]]).await;
    store.close().await;
    let (store, _) = open(folder.path());
    let entries = vec![([0; 16], 3), ([1; 16], 9), ([3; 16], 4)];
    assert_eq!(store.feed(&name("news")).unwrap(), KeptFeed { state: state(2), entries });
    store.close().await;
    assert_sound(folder.path());
}

#[tokio::test]
async fn the_feed_that_changed_the_longest_time_ago_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    for index in 0..FEED_COUNT_MAX {
        put(&store, &format!("f{index}"), 10 + index as u64, &[([1; 16], 1)], &[]).await;
    }
    put(&store, "f0", 5000, &[([2; 16], 2)], &[]).await;
    put(&store, "new", 5001, &[], &[]).await;
    assert_eq!(store.feed(&name("f1")).unwrap(), KeptFeed::default());
    assert_eq!(store.feed(&name("f0")).unwrap().entries.len(), 2);
    assert_eq!(store.feed(&name("f2")).unwrap().entries.len(), 1);
    store.close().await;
}
