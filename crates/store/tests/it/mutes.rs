//! Mutes: who does not want to be told is not told, until he wants to be again.

use std::sync::atomic::{AtomicU64, Ordering};

use tidings_store::{NewDevice, NewImport, Precondition, PutTerms, Store, StoreConfig, SubscribeError};
use tidings_types::{DeviceNumber, MuteScope, Timestamp};

use crate::support::*;

fn scope(text: &str) -> MuteScope {
    text.parse().unwrap()
}

/// Device `d0`, subscribed to the topic `goal` on two subjects, and Ann's.
async fn subscribed(store: &Store) -> DeviceNumber {
    let of_ann = NewDevice { user: Some(user("ann")), ..device("d0", Some(token(1))) };
    store.put_device(of_ann, PutTerms::default(), T0).await.unwrap();
    let on = |text| (subject(text), vec![topic("goal")]);
    store.subscribe(&id("d0"), vec![on("team:1"), on("team:2")]).await.unwrap();
    store.device_number(&id("d0")).unwrap().unwrap()
}

#[tokio::test]
async fn who_muted_a_subject_is_told_of_none_of_its_events_and_who_muted_everything_of_none() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    let d0 = id("d0");
    assert_eq!(store.mute(&d0, mute("team:1", None), T0).await, Err(SubscribeError::NotFound));
    assert_eq!(store.unmute(&d0, &scope("team:1")).await, Err(SubscribeError::NotFound));
    assert_eq!(store.mutes(&d0).unwrap(), None);
    let number = subscribed(&store).await;
    assert_eq!(store.mute(&d0, mute("team:1", None), T0).await, Ok(true));
    assert_eq!(store.mute(&d0, mute("team:1", None), T0).await, Ok(false));
    for restarted in [false, true] {
        assert_eq!(audience(&store, "goal", &["team:1"]), [], "restarted: {restarted}");
        assert_eq!(audience(&store, "goal", &["team:1", "team:2"]), [], "another subject makes it no other event");
        assert_eq!(audience(&store, "goal", &["team:2"]), [number]);
        assert_eq!(named(&store, &["ann"], &["d0"]), [], "`event` is about team:1");
        assert_eq!(store.mutes(&d0).unwrap().unwrap(), [mute("team:1", None)]);
        store.close().await;
        store = open(folder.path()).0;
    }
    assert_eq!(store.mute(&d0, mute("everything", None), T0).await, Ok(true));
    assert_eq!(audience(&store, "goal", &["team:2"]), []);
    let both = [mute("everything", None), mute("team:1", None)];
    assert_eq!(store.mutes(&d0).unwrap().unwrap(), both);
    assert_eq!(store.unmute(&d0, &scope("team:1")).await, Ok(true));
    assert_eq!(store.unmute(&d0, &scope("team:1")).await, Ok(false));
    assert_eq!(audience(&store, "goal", &["team:1"]), [], "everything is muted still");
    assert_eq!(store.unmute(&d0, &scope("everything")).await, Ok(true));
    assert_eq!(audience(&store, "goal", &["team:1"]), [number]);
    assert_eq!(store.mutes(&d0).unwrap().unwrap(), []);
}

#[tokio::test]
async fn a_mute_ends_when_its_time_is_over_though_nobody_writes() {
    static NOW: AtomicU64 = AtomicU64::new(T0.0);
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { clock: || Timestamp(NOW.load(Ordering::Relaxed)), ..config(folder.path()) };
    let until = |millis| Some(Timestamp(T0.0 + millis));
    let (mut store, _) = open_with(config.clone());
    let number = subscribed(&store).await;
    for one in [mute("team:1", until(1000)), mute("team:2", until(2000)), mute("everything", until(3000))] {
        assert_eq!(store.mute(&id("d0"), one, T0).await, Ok(true));
    }
    let is_told = |store: &Store, subject: &str| audience(store, "goal", &[subject]) == [number];
    // Said again, it is the later word that counts: longer, shorter, for ever.
    assert_eq!(store.mute(&id("d0"), mute("team:2", until(5000)), T0).await, Ok(false));
    assert_eq!(store.mute(&id("d0"), mute("everything", until(1500)), T0).await, Ok(false));
    NOW.store(T0.0 + 2500, Ordering::Relaxed);
    eventually("the end of the first", || is_told(&store, "team:1")).await;
    assert_eq!(store.mutes(&id("d0")).unwrap().unwrap(), [mute("team:2", until(5000))]);
    assert!(!is_told(&store, "team:2"), "its first end is not its end");
    store.close().await;
    NOW.store(T0.0 + 5000, Ordering::Relaxed);
    store = open_with(config).0;
    eventually("the end of one that was over while the store was closed", || is_told(&store, "team:2")).await;
    assert_eq!(store.mutes(&id("d0")).unwrap().unwrap(), []);
    assert_eq!(store.mute(&id("d0"), mute("team:1", None), T0).await, Ok(true));
    assert_eq!(store.mute(&id("d0"), mute("team:1", until(5000)), until(5000).unwrap()).await, Ok(false));
    assert_eq!(store.mutes(&id("d0")).unwrap().unwrap(), [], "one that is over ends what there is");
}

#[tokio::test]
async fn mutes_go_with_the_device_and_with_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    for leave in ["delete", "log out", "erase"] {
        let number = subscribed(&store).await;
        for one in [mute("team:1", Some(Timestamp(T0.0 + 1_000_000))), mute("everything", None)] {
            store.mute(&id("d0"), one, T0).await.unwrap();
        }
        match leave {
            "delete" => _ = store.delete_device(&id("d0"), Precondition::None).await.unwrap(),
            "log out" => _ = store.log_out(&id("d0")).await.unwrap(),
            _ => _ = store.erase_user(&user("ann")).await.unwrap(),
        }
        let again = subscribed(&store).await;
        assert_eq!(store.mutes(&id("d0")).unwrap().unwrap(), [], "{leave}");
        assert_eq!(
            audience(&store, "goal", &["team:1"]),
            [again],
            "{leave}, whatever number it has ({number:?} before)"
        );
    }
}

#[tokio::test]
async fn a_device_has_so_many_mutes_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { mute_count_max: 3, ..config(folder.path()) };
    let (store, _) = open_with(config);
    subscribed(&store).await;
    for text in ["team:1", "team:2", "team:3"] {
        store.mute(&id("d0"), mute(text, None), T0).await.unwrap();
    }
    let refused = Err(SubscribeError::TooManyMutes { limit: 3, count: 4 });
    assert_eq!(store.mute(&id("d0"), mute("everything", None), T0).await, refused);
    let later = Some(Timestamp(T0.0 + 1));
    assert_eq!(store.mute(&id("d0"), mute("team:2", later), T0).await, Ok(false), "that is no other mute");
    let four = |name| NewImport {
        mutes: ["team:1", "team:2", "team:3", "team:4"].map(|text| mute(text, None)).to_vec(),
        ..device(name, None).into()
    };
    for name in ["d0", "new"] {
        assert!(store.import_devices(vec![four(name)], None, T0).await.is_err(), "{name}");
    }
    assert_eq!(store.device(&id("new")).unwrap(), None);
    store.unmute(&id("d0"), &scope("team:1")).await.unwrap();
    assert_eq!(store.mute(&id("d0"), mute("everything", None), T0).await, Ok(true));
}

#[tokio::test]
async fn requests_of_one_batch_see_each_others_mutes() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    subscribed(&store).await;
    let (d0, team) = (id("d0"), scope("team:1"));
    let until = Some(Timestamp(T0.0 + 1000));
    let answers = tokio::join!(
        store.mute(&d0, mute("team:1", until), T0),
        store.mute(&d0, mute("team:1", None), T0),
        store.unmute(&d0, &team),
        store.unmute(&d0, &team),
        store.mute(&d0, mute("team:1", until), T0),
        store.delete_device(&d0, Precondition::None),
        store.mute(&d0, mute("team:1", None), T0),
    );
    let expected = (Ok(true), Ok(false), Ok(true), Ok(false), Ok(true), Ok(true), Err(SubscribeError::NotFound));
    assert_eq!(answers, expected);
    assert_eq!(audience(&store, "goal", &["team:1"]), []);
    let number = subscribed(&store).await;
    assert_eq!(audience(&store, "goal", &["team:1"]), [number]);
}

#[tokio::test]
async fn a_clock_that_was_ahead_for_a_moment_ends_no_later_mute() {
    static NOW: AtomicU64 = AtomicU64::new(T0.0 + 1_000_000);
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { clock: || Timestamp(NOW.load(Ordering::Relaxed)), ..config(folder.path()) };
    let (store, _) = open_with(config);
    let number = subscribed(&store).await;
    let until = |millis| Some(Timestamp(T0.0 + millis));
    // That the end of the one is behind us is known by then.
    NOW.store(T0.0, Ordering::Relaxed);
    assert_eq!(store.mute(&id("d0"), mute("team:1", until(999_000)), T0).await, Ok(true));
    NOW.store(T0.0 + 1_000_000, Ordering::Relaxed);
    eventually("the end of the first", || audience(&store, "goal", &["team:1"]) == [number]).await;
    NOW.store(T0.0, Ordering::Relaxed);
    assert_eq!(store.mute(&id("d0"), mute("team:2", until(1000)), T0).await, Ok(true), "it is not over");
    assert_eq!(audience(&store, "goal", &["team:2"]), []);
    NOW.store(T0.0 + 1000, Ordering::Relaxed);
    eventually("the end of the second", || audience(&store, "goal", &["team:2"]) == [number]).await;
}
