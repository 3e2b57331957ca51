//! A store with a lost or damaged file starts whole, or refuses and says why; it never serves less than was acknowledged
//! without a word.
//!
//! A real store is made and its process ends without warning. Then each of its files is removed, emptied, cut in half,
//! changed at some places, or swapped with another one of its name, and the store is opened. This happens in a process of
//! its own, because a crash of it is a failure too. Every eighth case is tried; `TIDINGS_STORE_DAMAGE=all` tries all.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidings_store::{PutTerms, Store};
use tidings_telemetry::chain;
use tidings_types::{BrakeScope, EventId, JournalPosition, Json, Timestamp};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::*;

const FOLDER: &str = "TIDINGS_STORE_DAMAGE_FOLDER";
const WHICH: &str = "TIDINGS_STORE_DAMAGE";
const DEVICE_COUNT: u8 = 30;
/// One of so many cases is tried.
const SAMPLE: usize = 8;

fn child(test: &str, folder: &Path) -> std::process::ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(FOLDER, folder);
    command.status().unwrap()
}

#[test]
fn a_store_with_a_lost_or_damaged_file_starts_whole_or_refuses() {
    let folder = tempfile::tempdir().unwrap();
    child("lost_files::writer", folder.path());
    assert!(folder.path().join("written").exists(), "the store was not written");
    assert!(child("lost_files::reader", folder.path()).success(), "see the cases above");
}

#[tokio::test]
#[ignore = "child process: makes the store, and ends without closing it"]
async fn writer() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("started by the test"));
    let (store, _) = open(&folder.join("store"));
    write(&store, 0, 6).await;
    store.close().await; // The log is long enough to be written into tables.
    let (store, _) = open(&folder.join("store"));
    write(&store, DEVICE_COUNT, 1).await;
    fs::write(folder.join("written"), "").unwrap();
    std::process::abort();
}

/// Rows of every kind.
async fn write(store: &Store, first: u8, filler_count: usize) {
    for number in first..first + DEVICE_COUNT {
        let name = format!("phone-{number}");
        store.put_device(device(&name, Some(token(number))), PutTerms::default(), T0).await.unwrap();
        let team = format!("team:{}", number % 3);
        store.subscribe(&id(&name), vec![(subject(&team), vec![topic("goal")])]).await.unwrap();
        store.mute(&id(&name), mute(&format!("subject:{team}"), None), T0).await.ok();
        store.devices_proven(vec![store.device_number(&id(&name)).unwrap().unwrap()]).await.unwrap();
    }
    let bits =
        std::iter::successors(Some(1u64), |last| Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)));
    let noise = Json::of(&bits.take(12_500).map(|bits| format!("{bits:016x}")).collect::<String>());
    for count in 0..filler_count {
        let channel = channel(&format!("filler:{first}"), 10);
        store.append_publication(channel, noise.clone(), Default::default(), None, T0).await.unwrap();
        let new = new_event(&format!("event-{first}-{count}"), 1, &[channel_of(first)]);
        store.append_events(vec![new], T0).await.unwrap();
    }
    let mut later = new_event(&format!("later-{first}"), 1, &[]);
    later.event.at = Some(Timestamp(T0.0 + 60_000));
    store.append_events(vec![later], T0).await.unwrap();
    let last = JournalPosition(store.journal_end().0 - 1);
    store.put_jobs(vec![(last, b"a job".to_vec())], Some(last)).await.unwrap();
    store.cancel(last).await.unwrap();
    store.pause(BrakeScope::Topic(topic(&format!("topic-{first}"))), T0).await.unwrap();
    store.put_device(device(&format!("last-{first}"), None), PutTerms::default(), T0).await.unwrap(); // Synced.
}

fn channel_of(first: u8) -> tidings_store::DurableChannel {
    channel(&format!("match:{first}"), 10)
}

/// What the store answers, question by question; an error is an answer too.
fn answers(store: &Store) -> Vec<Result<String, String>> {
    fn told<T: std::fmt::Debug, E: std::fmt::Display>(answer: Result<T, E>) -> Result<String, String> {
        answer.map(|answer| format!("{answer:?}")).map_err(|error| error.to_string())
    }
    let mut all = Vec::new();
    for number in 0..2 * DEVICE_COUNT {
        let name = id(&format!("phone-{number}"));
        all.push(told(store.device(&name)));
        all.push(told(store.subscriptions(&name)));
        all.push(told(store.mutes(&name)));
        all.push(told(store.device_by_token(&token(number)).map(|device| device.map(|device| device.id))));
        let found = store.device_number(&name);
        let mut sending = Vec::new();
        if let Ok(Some(number)) = found {
            store.with_recipients(&[number], |recipient| sending.push(recipient.token.is_some()));
        }
        all.push(told(found.map(|number| (number, sending))));
    }
    for team in ["team:0", "team:1", "team:2"] {
        all.push(Ok(format!("{:?}", audience(store, "goal", &[team]))));
    }
    for first in [0, DEVICE_COUNT] {
        all.push(told(store.device(&id(&format!("last-{first}")))));
        for count in 0..6 {
            all.push(told(store.event_position(&EventId::new(&format!("event-{first}-{count}")).unwrap())));
        }
    }
    all.push(told(store.events_from(JournalPosition(0), 1000)));
    all.push(told(store.later_events(None, 10)));
    all.push(told(store.jobs()));
    all.push(told(store.dispatched()));
    for first in [0, DEVICE_COUNT] {
        for name in ["filler", "match"] {
            all.push(told(store.history(&channel(&format!("{name}:{first}"), 10).name, T0)));
        }
    }
    all.push(told(store.durable_channels(T0)));
    all.push(Ok(format!("{:?} {:?}", *store.brakes().borrow(), store.journal_end())));
    all
}

/// Counts errors in the log: a damaged row that is left out is told so.
struct Errors;

static ERROR_COUNT: AtomicUsize = AtomicUsize::new(0);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, _: &Event<'_>) {
        ERROR_COUNT.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    Removed,
    Emptied,
    Halved,
    /// At this part of the file, in eighths.
    Changed(u64),
    Swapped,
}

const DAMAGES: [Damage; 7] = [
    Damage::Removed,
    Damage::Emptied,
    Damage::Halved,
    Damage::Changed(0),
    Damage::Changed(3),
    Damage::Changed(7),
    Damage::Swapped,
];

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_in(&entry.path()))
        } else {
            files.push(entry.path())
        }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for file in files_in(from) {
        let to = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    // Folders without files, which fjall makes for each table.
    for keyspace in fs::read_dir(from.join("data/keyspaces")).unwrap() {
        fs::create_dir_all(to.join("data/keyspaces").join(keyspace.unwrap().file_name()).join("tables")).unwrap();
    }
}

/// Whether there is something to damage that way.
fn damage(path: &Path, damage: Damage, others: &[PathBuf]) -> bool {
    let bytes = fs::read(path).unwrap();
    match damage {
        Damage::Removed => fs::remove_file(path).unwrap(),
        Damage::Emptied => fs::write(path, "").unwrap(),
        Damage::Halved => fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
        Damage::Changed(eighth) => {
            let at = (bytes.len() as u64 * eighth / 8) as usize;
            let Some(byte) = bytes.get(at) else { return false };
            let mut changed = bytes.clone();
            changed[at] = byte ^ 0x55;
            fs::write(path, changed).unwrap();
        }
        Damage::Swapped => {
            // Of two whole tables it shows when their rows are read, or not at all.
            let is_table = path.parent().is_some_and(|parent| parent.ends_with("tables"));
            let is_alike = |other: &&PathBuf| *other != path && other.file_name() == path.file_name() && !is_table;
            let Some(other) = others.iter().find(is_alike) else { return false };
            fs::write(path, fs::read(other).unwrap()).unwrap();
            fs::write(other, &bytes).unwrap();
        }
    }
    !matches!(damage, Damage::Emptied | Damage::Halved if bytes.is_empty())
}

#[tokio::test]
#[ignore = "child process: opens damaged copies of the store"]
async fn reader() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("started by the test"));
    tracing::subscriber::set_global_default(Errors).unwrap();
    let intact = folder.join("store");
    let files = files_in(&intact);
    assert!(files.len() > 40, "{files:?}");
    let whole = folder.join("whole");
    copy(&intact, &whole);
    let (store, _) = open(&whole);
    let expected = answers(&store);
    assert!(expected.iter().all(Result::is_ok), "{expected:?}");
    store.close().await;
    let step = if std::env::var_os(WHICH).is_some_and(|which| which == "all") { 1 } else { SAMPLE };
    let cases = files.iter().flat_map(|file| DAMAGES.map(|damage| (file, damage)));
    let (mut tried, mut refused, mut failed) = (0, 0, Vec::new());
    for (number, (file, how)) in cases.enumerate() {
        // Those that were once taken for a store that is whole, and a sample of the others.
        let name = file.strip_prefix(&intact).unwrap();
        let is_small = name.extension().is_some_and(|extension| extension == "jnl") || name.ends_with("8/current");
        if number % step != 0 && !is_small {
            continue;
        }
        let place = folder.join("case");
        copy(&intact, &place);
        let others: Vec<PathBuf> = files.iter().map(|file| place.join(file.strip_prefix(&intact).unwrap())).collect();
        if damage(&place.join(name), how, &others) {
            tried += 1;
            match look(&place, &expected).await {
                Ok(Outcome::Whole) => {}
                Ok(Outcome::Refused) => refused += 1,
                Err(why) => {
                    say(&format!("{} {how:?}: {why}", name.display())); // At once: the next case may crash.
                    failed.push(name.display().to_string());
                }
            }
        }
        fs::remove_dir_all(&place).unwrap();
    }
    say(&format!("{tried} cases, {refused} refused"));
    assert!(failed.is_empty(), "{} of {tried} cases failed: {failed:?}", failed.len());
    assert!(refused > 0 && refused < tried);
}

fn say(text: &str) {
    std::io::stdout().write_all(format!("{text}\n").as_bytes()).unwrap();
}

enum Outcome {
    Whole,
    Refused,
}

/// What becomes of a damaged store; an error says what is wrong with that.
async fn look(place: &Path, expected: &[Result<String, String>]) -> Result<Outcome, String> {
    ERROR_COUNT.store(0, Ordering::SeqCst);
    let store = match Store::open(config(place), Arc::new(Sink::default())) {
        Ok(store) => store,
        Err(error) => {
            let text = chain(&error);
            let is_told = text.contains("docs/operations.md") || text.contains("is damaged;");
            return if is_told { Ok(Outcome::Refused) } else { Err(format!("it does not say what to do: {text}")) };
        }
    };
    let found = answers(&store);
    let left_out = ERROR_COUNT.load(Ordering::SeqCst) > 0;
    let is_other =
        |(found, expected): &(&Result<String, String>, &Result<String, String>)| found.is_ok() && found != expected;
    let other = found.iter().zip(expected).find(is_other).filter(|_| !left_out);
    let other = other.map(|(found, expected)| format!("answers {found:?} instead of {expected:?}"));
    let put = store.put_device(device("new", None), PutTerms::default(), T0).await;
    store.close().await;
    if let Some(other) = other {
        return Err(other.chars().take(600).collect());
    }
    // What is acknowledged now is there the next time.
    if put.is_ok() {
        let store = Store::open(config(place), Arc::new(Sink::default()));
        let store = store.map_err(|error| format!("does not open again: {}", chain(&error)))?;
        let found = store.device(&id("new"));
        store.close().await;
        if matches!(found, Ok(None)) {
            return Err("a device that was acknowledged is gone after the next start".to_owned());
        }
    }
    Ok(Outcome::Whole)
}
