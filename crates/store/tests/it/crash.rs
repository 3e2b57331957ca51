//! `kill -9` in the middle of writes: everything acknowledged is there, in order, and the store goes on.
//!
//! The test starts its own binary again as the writer, reads what the writer was acknowledged, kills it, opens the folder.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use tidings_store::{NewDevice, NewEvent, PutTerms};
use tidings_types::{AppId, BrakeScope, JournalPosition, Json, Offset, Timestamp};
use tokio::task::JoinSet;

use crate::support::*;

const FOLDER: &str = "TIDINGS_STORE_CRASH_FOLDER";
const ROUND: &str = "TIDINGS_STORE_CRASH_ROUND";
const WRITER_COUNT: usize = 20;
/// Up to here events for later are moved into the journal while the writer runs; half of them stay.
const DUE: Timestamp = Timestamp(T0.0 + 5);

/// Writes for ever and says on standard output what was acknowledged.
#[tokio::test]
#[ignore = "child process: the process that the crash test kills"]
async fn writer() {
    let folder = std::env::var_os(FOLDER).expect("started by the crash test");
    let round = std::env::var(ROUND).unwrap();
    let (store, _) = open(folder.as_ref());
    let mut writers = JoinSet::new();
    writers.spawn(release(store.clone()));
    for writer in 0..WRITER_COUNT {
        let (store, round) = (store.clone(), round.clone());
        writers.spawn(async move {
            for count in 0.. {
                let name = format!("{round}-{writer}-{count}");
                let secret = write_one(&store, &name, writer, count).await;
                // One write, so that the line is there as a whole or not at all.
                std::io::stdout().write_all(format!("acknowledged {name} {secret}\n").as_bytes()).unwrap();
            }
        });
    }
    writers.join_next().await;
}

/// Moves what is due, as soon as it is there.
async fn release(store: tidings_store::Store) {
    let mut next = store.next_later();
    while next.wait_for(|next| next.is_some_and(|at| at <= DUE)).await.is_ok() {
        store.release_later(DUE).await.unwrap();
    }
}

/// What a writer writes; 3 and 7 devices, each a new one, 11 and 15 ever new secrets of one device each.
#[derive(Debug, PartialEq)]
enum Kind {
    Event,
    Later,
    Pause,
    Cancel,
    Publication,
    Device,
    Secret,
}

fn kind(writer: usize) -> Kind {
    match writer % 4 {
        _ if writer >= 16 => {
            [Kind::Later, Kind::Later, Kind::Pause, Kind::Cancel].into_iter().nth(writer - 16).unwrap()
        }
        0 | 1 => Kind::Event,
        2 => Kind::Publication,
        _ if writer < 8 => Kind::Device,
        _ => Kind::Secret,
    }
}

/// An app of this name that is paused.
fn scope(name: &str) -> BrakeScope {
    BrakeScope::App(AppId::new(name).unwrap())
}

/// The secret of the device, where one was given out; the position of the job that was cancelled.
async fn write_one(store: &tidings_store::Store, name: &str, writer: usize, count: u64) -> String {
    match kind(writer) {
        Kind::Event => {
            let [chat, own] = [channel("match:1", 1_000_000), channel(&format!("match:{writer}x"), 5)];
            store.append_events(vec![new_event(name, 1, &[chat, own])], T0).await.unwrap();
        }
        Kind::Later => {
            let mut new = new_event(name, 1, &[channel("match:1", 1_000_000), channel(&format!("match:{writer}x"), 5)]);
            new.event.at = Some(Timestamp(T0.0 + 1 + count % 10));
            assert_eq!(store.append_events(vec![new], T0).await.unwrap()[0].position(), None);
        }
        Kind::Pause => assert!(store.pause(scope(name), T0).await.unwrap()),
        Kind::Cancel => {
            let last = store.watch_journal_end().wait_for(|end| end.0 > 1).await.unwrap().0 - 1;
            store.cancel(JournalPosition(last)).await.unwrap();
            return last.to_string();
        }
        Kind::Publication => {
            store
                .append_publication(channel("chat:1", 1_000_000), Json::of(&name), BTreeMap::new(), None, T0)
                .await
                .unwrap();
        }
        Kind::Device => {
            let new = NewDevice { user: Some(user("ann")), ..device(name, Some(name.as_bytes().into())) };
            let credential = store.put_device(new, PutTerms::default(), T0).await.unwrap().credential.unwrap();
            store.subscribe(&id(name), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
            store.devices_proven(store.device_number(&id(name)).unwrap().into_iter().collect()).await.unwrap();
            return credential.as_str().to_owned();
        }
        Kind::Secret => {
            let name = id(&rotated(writer));
            store
                .put_device(
                    NewDevice { user: Some(user("bob")), ..device(name.as_str(), None) },
                    PutTerms::default(),
                    T0,
                )
                .await
                .unwrap();
            let issued =
                if count.is_multiple_of(2) { store.rotate_credential(&name).await } else { store.log_out(&name).await };
            return issued.unwrap().expect("it is registered").1.as_str().to_owned();
        }
    }
    String::new()
}

fn rotated(writer: usize) -> String {
    format!("rotated-{writer}")
}

/// What the writer said of an acknowledged write.
struct Acknowledged {
    name: String,
    writer: usize,
    secret: String,
}

fn acknowledged(line: &str) -> Option<Acknowledged> {
    let (name, secret) = line.strip_prefix("acknowledged ")?.split_once(' ')?;
    let writer = name.split('-').nth(1).unwrap().parse().unwrap();
    Some(Acknowledged { name: name.to_owned(), writer, secret: secret.to_owned() })
}

/// Runs the writer until it was acknowledged `count` times, kills it, and returns all it said.
fn write_and_kill(folder: &std::path::Path, round: usize, count: usize) -> Vec<Acknowledged> {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary starts again");
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut names = Vec::new();
    for line in lines.map_while(Result::ok) {
        names.extend(acknowledged(&line));
        if names.len() == count {
            writer.kill().unwrap(); // SIGKILL. What it said before is still read.
        }
    }
    writer.wait().unwrap();
    assert!(names.len() >= count, "the writer ended by itself after {} writes", names.len());
    names
}

#[tokio::test]
async fn everything_acknowledged_is_there_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for round in 0..4 {
        names.extend(write_and_kill(folder.path(), round, 150 + 250 * round));
        assert_sound(folder.path());
        let (store, _) = open(folder.path());
        check(&store, &names).await;
        check_later(&store, &names).await;
        check_secrets(&store, &names);
        store.close().await;
    }
}

async fn check(store: &tidings_store::Store, acknowledged: &[Acknowledged]) {
    let restored = channels(store, T0);
    let publications =
        |name: &str| &restored.iter().find(|channel| channel.name.as_str() == name).unwrap().publications;
    for channel in &restored {
        let last = channel.publications.last().map_or(Offset(0), |(offset, _)| *offset);
        assert_eq!(last, channel.top); // Of events that are not yet due there is none.
        assert!(channel.publications.windows(2).all(|pair| pair[1].0 == pair[0].0.next()), "a gap in {}", channel.name);
    }
    let events: Vec<_> = store.events_from(Default::default(), usize::MAX).unwrap();
    assert_eq!(events.len() as u64 + 1, store.journal_end().0);
    // An event is a row of the journal, a remembered id and its publications: all of them or none.
    assert_eq!(publications("match:1").len(), events.len());
    for ((_, event), (offset, publication)) in events.iter().zip(publications("match:1")) {
        assert_eq!(
            (event.published[0].1.offset, &publication.tags["event"]),
            (*offset, &event.event.id.as_str().to_owned())
        );
    }
    let goals = audience(store, "goal", &["team:1"]);
    let of_ann = named(store, &["ann"], &[]);
    for Acknowledged { name, writer, secret } in acknowledged {
        let present = match kind(*writer) {
            Kind::Event => events.iter().any(|(_, event)| event.event.id.as_str() == name),
            Kind::Later => true, // `check_later` looks.
            Kind::Pause => store.brakes().borrow().is_paused(&scope(name)),
            Kind::Cancel => store.brakes().borrow().cancelled.contains(&JournalPosition(secret.parse().unwrap())),
            Kind::Publication => publications("chat:1").iter().any(|(_, one)| one.data == Json::of(name)),
            Kind::Device => store
                .prove(&id(name), Some(secret))
                .unwrap()
                .is_some_and(|number| goals.contains(&number) && of_ann.contains(&number) && is_proven(store, name)),
            Kind::Secret => store.device_number(&id(&rotated(*writer))).unwrap().is_some(),
        };
        assert!(present, "{name} was acknowledged and is not there");
    }
    if let Some((position, last)) = events.last() {
        let channels = [channel("match:1", 1_000_000), channel("match:0x", 5)];
        let event = NewEvent { event: last.event.clone(), channels: channels.to_vec(), audience_max: None };
        let again = store.append_events(vec![event], T0).await.unwrap();
        assert_eq!((again[0].position(), again[0].repeated), (Some(*position), true));
    }
}

/// Every event for later is in the journal or waits, never both; and after the rest of what is due is moved, still so.
async fn check_later(store: &tidings_store::Store, acknowledged: &[Acknowledged]) {
    for _ in 0..2 {
        let journaled: Vec<_> = store.events_from(Default::default(), usize::MAX).unwrap();
        let waiting = store.later_events(None, usize::MAX).unwrap();
        let waiting: Vec<_> = waiting.into_iter().map(|one| (one.key.at, one.event.id)).collect();
        let mut ids: Vec<_> = journaled.into_iter().map(|(_, one)| one.event.id).collect();
        assert!(
            ids.iter()
                .chain(waiting.iter().map(|(_, id)| id))
                .all(|id| { store.event_position(id).unwrap().is_some() != store.later(id).unwrap().is_some() })
        );
        ids.extend(waiting.iter().map(|(_, id)| id.clone()));
        ids.sort();
        assert!(ids.is_sorted_by(|a, b| a < b), "an event is there twice");
        for Acknowledged { name, .. } in acknowledged.iter().filter(|one| kind(one.writer) == Kind::Later) {
            assert!(ids.iter().any(|id| id.as_str() == name), "{name} was acknowledged and is not there");
        }
        assert_eq!(*store.next_later().borrow(), waiting.first().map(|(at, _)| *at));
        while store.release_later(DUE).await.unwrap() > 0 {}
    }
    assert!(store.next_later().borrow().is_none_or(|at| at > DUE));
}

/// No secret proves a device once a later one was acknowledged. The last one does, unless the one after it became durable
/// without an acknowledgement.
fn check_secrets(store: &tidings_store::Store, acknowledged: &[Acknowledged]) {
    for writer in (0..WRITER_COUNT).filter(|&writer| kind(writer) == Kind::Secret) {
        let secrets: Vec<_> = acknowledged.iter().filter(|one| one.writer == writer).collect();
        let Some((_, older)) = secrets.split_last() else { continue };
        for one in older {
            let proven = store.prove(&id(&rotated(writer)), Some(&one.secret)).unwrap();
            assert_eq!(proven, None, "the secret of {} was replaced", one.name);
        }
    }
}
