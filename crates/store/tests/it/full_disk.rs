//! A full disk: refused, nothing acknowledged lost, goes on by itself when there is room again.
//!
//! The disk is a tmpfs of 224 MiB in a mount namespace of the test's own, made with `unshare` (util-linux).

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use tidings_store::{AppendError, PutTerms, Store, WriteError};
use tidings_types::{BrakeScope, EventId, JournalPosition, Json, Timestamp, TokenRef};

use crate::support::*;

const FOLDER: &str = "TIDINGS_STORE_FULL_DISK_FOLDER";

#[test]
fn a_full_disk_refuses_loses_nothing_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
        .arg(r#"mount -t tmpfs -o size=224m tidings-test "$0"; exec "$@""#)
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::on_a_small_disk", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .status()
        .expect("this test needs `unshare` of util-linux");
    assert!(
        status.success(),
        "the test on the small disk failed, or no tmpfs could be mounted in a namespace: {status}"
    );
}

#[tokio::test]
#[ignore = "child process: started by the full disk test where the folder is a small tmpfs"]
async fn on_a_small_disk() {
    let folder = std::env::var_os(FOLDER).expect("started by the full disk test");
    let folder = Path::new(&folder);
    let (store, sink) = open(&folder.join("store"));
    let phone = store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0).await.unwrap().device;
    store.subscribe(&id("phone"), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
    store.devices_proven(vec![store.device_number(&id("phone")).unwrap().unwrap()]).await.unwrap();
    store.pause(BrakeScope::Everything, T0).await.unwrap();
    let brakes = store.brakes().borrow().clone();
    let mut acknowledged = append_until_refused(&store, "before", 20).await.0;
    for (round, room) in [0, 72 << 20].into_iter().enumerate() {
        // First no room at all: the journal of the engine cannot grow. Then enough that the store fills the disk itself and
        // the engine's flushing thread dies of it.
        let filler = folder.join("filler");
        let due = Timestamp(T0.0 + 1 + round as u64);
        let mut later = new_event(&format!("later-{round}"), 1, &[channel("match:1", 100_000)]);
        later.event.at = Some(due);
        store.append_events(vec![later], T0).await.unwrap();
        fill(&filler, room);
        let (more, refused) = append_until_refused(&store, &format!("r{round}"), usize::MAX).await;
        acknowledged.extend(more);
        assert_eq!(refused, Some(AppendError::Write(WriteError::Unavailable)));
        assert!(store.counts().failures > 0);
        assert!(!store.is_open(), "it takes no writes");
        // Reading goes on, and sending from memory.
        assert_eq!(store.device(&id("phone")).unwrap().as_ref(), Some(&phone));
        assert!(store.devices(None, 10).is_ok() && store.events_from(JournalPosition(0), 1).is_ok());
        let audience = audience(&store, "goal", &["team:1"]);
        let mut tokens = Vec::new();
        store.with_recipients(&audience, |recipient| tokens.extend(recipient.token.map(TokenRef::to_token)));
        assert_eq!(tokens, [token(1)]);
        assert!(store.append_events(vec![new_event("refused", 1, &[])], T0).await.is_err(), "still full");
        assert!(store.resume(BrakeScope::Everything).await.is_err() && store.release_later(due).await.is_err());
        fs::remove_file(&filler).unwrap();
        eventually("opening again", || store.counts().reopened > round as u64).await;
        eventually("open", || store.is_open()).await;
        check(&store, &acknowledged);
        assert_eq!(store.device(&id("phone")).unwrap().as_ref(), Some(&phone));
        assert_eq!((store.brakes().borrow().clone(), is_proven(&store, "phone")), (brakes.clone(), true));
        assert!(store.later(&EventId::new(&format!("later-{round}")).unwrap()).unwrap().is_some());
        assert_eq!((store.release_later(due).await, *store.next_later().borrow()), (Ok(1), None));
        acknowledged.push(format!("later-{round}"));
        acknowledged.extend(append_until_refused(&store, &format!("after{round}"), 20).await.0);
    }
    check(&store, &acknowledged);
    check_told(&store, &sink);
    store.close().await;
    let (store, _) = open(&folder.join("store"));
    check(&store, &acknowledged);
}

/// Appends events of 20 KB that no compression shortens, one after another; the names of those acknowledged, and why it ended.
async fn append_until_refused(store: &Store, prefix: &str, count: usize) -> (Vec<String>, Option<AppendError>) {
    let mut names = Vec::new();
    let bits =
        std::iter::successors(Some(1u64), |last| Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)));
    let noise = Json::of(&bits.take(1250).map(|bits| format!("{bits:016x}")).collect::<String>());
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        let mut new = new_event(&name, 1, &[channel("match:1", 100_000)]);
        new.event.data = Some(noise.clone());
        match store.append_events(vec![new], T0).await {
            Ok(_) => names.push(name),
            Err(error) => return (names, Some(error)),
        }
    }
    (names, None)
}

/// Takes all the room there is, except `room` bytes.
fn fill(path: &Path, room: u64) {
    let mut file = File::create(path).unwrap();
    let mut size = 1 << 20;
    while size > 0 {
        if let Err(error) = file.write(&vec![7; size]) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            size /= 2;
        }
    }
    let taken = file.metadata().unwrap().len();
    file.set_len(taken - room).unwrap();
}

fn all_events(store: &Store) -> Vec<(JournalPosition, String)> {
    let mut events = Vec::new();
    loop {
        let next = events
            .last()
            .map_or(JournalPosition(0), |(position, _): &(JournalPosition, _)| JournalPosition(position.0 + 1));
        let piece = store.events_from(next, 1000).unwrap();
        if piece.is_empty() {
            return events;
        }
        events.extend(piece.into_iter().map(|(position, event)| (position, event.event.id.as_str().to_owned())));
    }
}

fn check(store: &Store, acknowledged: &[String]) {
    let events = all_events(store);
    for name in acknowledged {
        assert!(events.iter().any(|(_, id)| id == name), "{name} was acknowledged and is not there");
    }
    // An event that was refused and is there nevertheless is there as a whole.
    let restored = channels(store, T0);
    assert_eq!(restored[0].publications.len(), events.len());
    assert_eq!(restored[0].top.0, events.len() as u64);
}

/// The sink knows every publication once and in order, also of batches that turned out durable after a refusal.
fn check_told(store: &Store, sink: &Sink) {
    let offsets: Vec<u64> = sink
        .told()
        .iter()
        .filter_map(|told| match told {
            Told::Publication(_, position, _) => Some(position.offset.0),
            Told::Events(_) | Told::Forgotten(..) => None,
        })
        .collect();
    assert_eq!(offsets, (1..=channels(store, T0)[0].top.0).collect::<Vec<_>>());
    assert_eq!(sink.told().last(), Some(&Told::Events(store.journal_end())));
}
