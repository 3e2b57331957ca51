//! Backups of a store that is written to: whatever the moment, what is restored was once the state, as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidings_store::backup::{self, BackupError, RestoredPushes};
use tidings_store::{DurableChannel, NewDevice, NewEvent, PutTerms, Store};
use tidings_types::{BrakeScope, DeviceId, Event, EventId, JournalPosition, Json, Mute, MuteScope, Timestamp};
use tokio::task::JoinSet;

use crate::support::*;

const WRITER_COUNT: usize = 6;
const BACKUP_COUNT: usize = 4;
/// Devices of one chunk of an import.
const CHUNK: usize = 5;

/// How far a writer has come: what it has begun and what was acknowledged.
#[derive(Default)]
struct Steps {
    begun: AtomicU64,
    done: AtomicU64,
}

fn member(writer: usize, at: usize) -> String {
    format!("member-{writer}-{at}")
}

fn own_channel(writer: usize) -> DurableChannel {
    channel(&format!("w{writer}"), 3)
}

/// Step `count`: a chunk of devices that all get this user, then an event in the writer's channel, then a device of its
/// own with its subscription, one write after the other.
async fn step(store: &Store, writer: usize, count: u64) {
    let of_user =
        |name: &str| NewDevice { user: Some(user(&format!("u{count}"))), ..device(name, Some(name.as_bytes().into())) };
    let chunk = (0..CHUNK)
        .map(|at| import(of_user(&member(writer, at)), vec![(subject(&format!("team:{}", count % 7)), topic("goal"))]));
    store.import_devices(chunk.collect(), None, T0).await.unwrap();
    let pair = ["a", "b"].map(|half| new_event(&format!("{writer}-{count}-{half}"), 1, &[own_channel(writer)]));
    store.append_events(pair.to_vec(), T0).await.unwrap();
    let name = format!("own-{writer}-{}", count % 3);
    match count % 6 {
        0..3 => {
            store.put_device(of_user(&name), PutTerms::default(), T0).await.unwrap();
            store.subscribe(&id(&name), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
            let mute = Mute { scope: MuteScope::Everything, until: Some(Timestamp(u64::MAX >> 1)) };
            store.mute(&id(&name), mute, T0).await.unwrap();
        }
        _ => assert!(store.delete_device(&id(&name), Default::default()).await.unwrap()),
    }
}

/// The step whose user a device of the chunk has; `None` before the first.
fn step_of(store: &Store, name: &DeviceId) -> Option<u64> {
    let device = store.device(name).unwrap()?;
    device.user.unwrap().as_str().strip_prefix('u').unwrap().parse().ok()
}

fn appended(store: &Store, id: &str) -> bool {
    store.event_position(&EventId::new(id).unwrap()).unwrap().is_some()
}

/// What is there of a writer is all that it had done at some moment between `done` and `begun`, and no more.
fn check_writer(store: &Store, writer: usize, done: u64, begun: u64) {
    let steps: Vec<_> = (0..CHUNK).map(|at| step_of(store, &id(&member(writer, at)))).collect();
    assert!(steps.iter().all(|step| *step == steps[0]), "a chunk is there as a whole: {steps:?}");
    let last = steps[0].map_or(0, |step| step + 1); // Steps that were at least begun.
    assert!((done..=begun).contains(&last), "{writer}: {done} to {begun}, found {last}");
    for count in 0..last {
        let halves = ["a", "b"].map(|half| appended(store, &format!("{writer}-{count}-{half}")));
        assert!(halves[0] == halves[1], "events of one request are there together");
        assert!(halves[0] || count + 1 == last, "only the last step may be half done");
    }
    assert!(!appended(store, &format!("{writer}-{last}-a")), "no event is there before the chunk before it");
}

#[tokio::test]
async fn a_backup_under_writes_is_the_state_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let steps: Arc<Vec<Steps>> = Arc::new((0..WRITER_COUNT).map(|_| Steps::default()).collect());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITER_COUNT {
        let (store, steps, is_over) = (store.clone(), steps.clone(), is_over.clone());
        writers.spawn(async move {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                steps[writer].begun.store(count + 1, Ordering::SeqCst);
                step(&store, writer, count).await;
                count += 1;
                steps[writer].done.store(count, Ordering::SeqCst);
            }
        });
    }
    let mut commits = Vec::new();
    for round in 0..BACKUP_COUNT {
        let wanted = 3 * (round as u64 + 1);
        eventually("every writer is on its way", || {
            steps.iter().all(|steps| steps.done.load(Ordering::SeqCst) >= wanted)
        })
        .await;
        let done: Vec<u64> = steps.iter().map(|steps| steps.done.load(Ordering::SeqCst)).collect();
        let mut running = store.begin_backup().unwrap();
        let begun: Vec<u64> = steps.iter().map(|steps| steps.begun.load(Ordering::SeqCst)).collect();
        // The rest is read while much is written behind it.
        let mut bytes = Vec::new();
        while let Some(block) = running.next_block().unwrap() {
            bytes.extend(block);
            tokio::task::yield_now().await;
        }
        commits.push(running.summary().commit);
        drop(running);
        let report = backup::verify(&bytes[..], |_| ()).unwrap();
        assert_eq!((report.findings.count, &report.findings.kept[..]), (0, &[][..]));
        let elsewhere = tempfile::tempdir().unwrap();
        backup::restore(&bytes[..], elsewhere.path(), RestoredPushes::GoOn, |_| ()).unwrap();
        let (restored, _) = open(elsewhere.path());
        for writer in 0..WRITER_COUNT {
            check_writer(&restored, writer, done[writer], begun[writer]);
        }
        restored.close().await;
    }
    is_over.store(true, Ordering::Relaxed);
    writers.join_all().await;
    assert!(commits.is_sorted_by(|a, b| a < b), "{commits:?}");
}

/// What a store answers: devices with all that is theirs, audiences, events, channels, brakes.
fn answers(store: &Store) -> Vec<String> {
    let mut all = Vec::new();
    for exported in store.export(None, 1000).unwrap().devices {
        all.push(format!("{exported:?}"));
    }
    for name in ["team:1", "team:2"] {
        all.push(format!("{name} {:?}", audience(store, "goal", &[name])));
    }
    for id in ["e1", "e2", "later"] {
        let position = store.event_position(&EventId::new(id).unwrap()).unwrap();
        all.push(format!("{id} {:?}", position.map(|position| store.event(position).unwrap())));
    }
    all.push(format!("{:?}", store.later_events(None, 10).unwrap()));
    for restored in channels(store, T0) {
        let publications = restored.publications.iter().map(|(offset, it)| (offset.0, it.data.as_str(), &it.tags));
        all.push(format!("{} {:?} {:?}", restored.name, restored.top, publications.collect::<Vec<_>>()));
    }
    all.push(format!("{:?} {:?}", store.brakes().borrow().paused, store.journal_end()));
    all
}

#[tokio::test]
async fn a_restored_store_answers_as_the_old_one_did_and_goes_on() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = open(folder.path());
    let registered = store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    store.put_device(device("tablet", Some(token(2))), PutTerms::default(), T0).await.unwrap();
    for (name, team) in [("phone", "team:1"), ("tablet", "team:1"), ("tablet", "team:2")] {
        store.subscribe(&id(name), vec![(subject(team), vec![topic("goal")])]).await.unwrap();
    }
    store.mute(&id("tablet"), Mute { scope: MuteScope::Subject(subject("team:1")), until: None }, T0).await.unwrap();
    for name in ["e1", "e2"] {
        store.append_events(vec![new_event(name, 1, &[channel("match:1", 5)])], T0).await.unwrap();
    }
    let later = Event { at: Some(Timestamp(T0.0 + 60_000)), ..event("later", 1) };
    store.append_events(vec![NewEvent { event: later, channels: Vec::new(), audience_max: None }], T0).await.unwrap();
    let said = Json::of(&"hello");
    store.append_publication(channel("chat:1", 5), said, Default::default(), None, T0).await.unwrap();
    store.pause(BrakeScope::Everything, T0).await.unwrap();
    let expected = answers(&store);
    let mut bytes = Vec::new();
    store.backup(&mut bytes).unwrap();
    store.delete_device(&id("phone"), Default::default()).await.unwrap(); // After it: not in it.

    let place = elsewhere.path().join("store");
    backup::restore(&bytes[..], &place, RestoredPushes::GoOn, |_| ()).unwrap();
    let (restored, _) = open(&place);
    assert_eq!(answers(&restored), expected);
    assert_ne!(
        restored.channel_start().epoch,
        store.channel_start().epoch,
        "its channels may give the same offsets to other publications"
    );
    let secret = registered.credential.unwrap();
    assert!(restored.prove(&id("phone"), Some(secret.as_str())).unwrap().is_some());
    // What is repeated is known, what is new goes on behind.
    let again = restored.append_events(vec![new_event("e1", 1, &[channel("match:1", 5)])], T0).await.unwrap();
    assert!(again[0].repeated && place_of(&again[0]) == 1);
    let next = restored.append_events(vec![new_event("e3", 1, &[channel("match:1", 5)])], T0).await.unwrap();
    assert_eq!((place_of(&next[0]), next[0].published()[0].1.offset.0), (3, 3));
    let renewed = restored.put_device(device("phone", Some(token(3))), PutTerms::default(), T0).await.unwrap();
    assert!(renewed.device.revision > registered.device.revision + (1 << 31), "no revision is given twice");
    restored.close().await;
    // Again from the restored one, of a folder this time.
    let folder = backup::Backup::of_folder(&place).unwrap();
    let summary = folder.write_to(std::io::sink(), |_| ()).unwrap();
    assert_eq!(summary.epoch, restored.channel_start().epoch);
    assert!(matches!(
        backup::restore(&bytes[..], &place, RestoredPushes::GoOn, |_| ()),
        Err(BackupError::HasStore { .. })
    ));
}

fn place_of(appended: &tidings_store::Appended) -> u64 {
    crate::support::place(appended)
}

#[tokio::test]
async fn pushes_that_were_due_at_the_backup_wait_for_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(&folder.path().join("old"));
    let restored = |store: &Store, pushes, name: &str| {
        let mut bytes = Vec::new();
        store.backup(&mut bytes).unwrap();
        let place = folder.path().join(name);
        let is_paused = backup::restore(&bytes[..], &place, pushes, |_| ()).unwrap().is_paused;
        (is_paused, open(&place).0)
    };
    let paused_at = |store: &Store| store.brakes().borrow().paused.get(&BrakeScope::Everything).copied();
    let pause = RestoredPushes::Paused(T0);
    // Nothing is due: nothing is paused.
    let (is_paused, nothing) = restored(&store, pause, "nothing");
    assert_eq!((is_paused, paused_at(&nothing)), (false, None));
    // An event without a job, a job, a scheduled event.
    store.append_events(vec![new_event("e1", 1, &[])], T0).await.unwrap();
    let (is_paused, unread) = restored(&store, pause, "unread");
    assert_eq!((is_paused, paused_at(&unread)), (true, Some(T0)));
    let end = store.journal_end();
    store.put_jobs(vec![(JournalPosition(end.0 - 1), b"a job".to_vec())], Some(end)).await.unwrap();
    let (is_paused, job) = restored(&store, pause, "job");
    assert_eq!((is_paused, paused_at(&job)), (true, Some(T0)));
    store.remove_jobs(vec![JournalPosition(end.0 - 1)]).await.unwrap();
    assert!(!restored(&store, pause, "done").0, "the job is done");
    let mut later = new_event("later", 1, &[]);
    later.event.at = Some(Timestamp(T0.0 + 60_000));
    store.append_events(vec![later], T0).await.unwrap();
    let (is_paused, scheduled) = restored(&store, pause, "scheduled");
    assert_eq!((is_paused, paused_at(&scheduled)), (true, Some(T0)));
    // Only the operator ends it: by the command, or by saying so at once.
    scheduled.close().await;
    drop(scheduled);
    let (scheduled, _) = open(&folder.path().join("scheduled"));
    assert_eq!(paused_at(&scheduled), Some(T0), "after another start too");
    assert!(scheduled.resume(BrakeScope::Everything).await.unwrap());
    assert_eq!(paused_at(&scheduled), None);
    let (is_paused, resumed) = restored(&store, RestoredPushes::GoOn, "resumed");
    assert_eq!((is_paused, paused_at(&resumed)), (false, None));
}
