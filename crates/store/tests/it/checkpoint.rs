//! Opening from the checkpoint: whenever it was written, however the store ended, whatever the disk did to it, audiences and
//! recipients are what the rows say.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use tidings_store::{Exported, NewDevice, NewImport, Precondition, PutTerms, Store, StoreConfig};
use tidings_types::{
    AppId, Country, Device, DeviceNumber, DeviceToken, Event, EventId, JournalPosition, Locale, ParamValue, Platform,
    Recipients, Subject, TokenRef, TopicName,
};

use crate::model::copy;
use crate::support::*;

const USERS: [&str; 3] = ["ann", "bob", "cid"];
const SUBJECTS: [&str; 4] = ["team:1", "team:2", "user:ann", "match:1"];
const TOPICS: [&str; 2] = ["goal", "card"];
const LOCALES: [&str; 3] = ["sv", "pt", "pt-BR"];
const COUNTRIES: [&str; 2] = ["SE", "BR"];
/// Names that devices have; more than one batch touches each.
const DEVICE_COUNT: u64 = 12;

/// Random numbers from a seed (G. Steele and others, "Fast splittable pseudorandom number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }

    fn device(&mut self) -> NewDevice {
        let name = format!("d{}", self.below(DEVICE_COUNT));
        let token = match self.below(4) {
            0 => None,
            1 => DeviceToken::fcm(&format!("fcm-{}", self.below(6))).ok(),
            _ => Some(token(self.below(8) as u8)),
        };
        NewDevice {
            user: (self.below(4) > 0).then(|| user(self.one_of(&USERS))),
            app: AppId::new(self.one_of(&["com.example.a", "com.example.b"])).unwrap(),
            platform: Platform::ALL[self.below(2) as usize],
            locale: Locale::new(self.one_of(&LOCALES)).unwrap(),
            country: (self.below(3) > 0).then(|| Country::new(self.one_of(&COUNTRIES)).unwrap()),
            ..device(&name, token)
        }
    }

    fn pair(&mut self) -> (Subject, TopicName) {
        (subject(self.one_of(&SUBJECTS)), topic(self.one_of(&TOPICS)))
    }
}

/// One random request; refusals are answers too.
async fn request(store: &Store, random: &mut SplitMix) {
    let name = id(&format!("d{}", random.below(DEVICE_COUNT)));
    match random.below(16) {
        0..3 => drop(store.put_device(random.device(), PutTerms::default(), T0).await),
        3..7 => {
            let (subject, topic) = random.pair();
            drop(store.subscribe(&name, vec![(subject, vec![topic])]).await);
        }
        7 => drop(store.unsubscribe(&name, vec![(random.pair().0, vec![])]).await),
        8 => drop(store.delete_device(&name, Precondition::None).await),
        9 => drop(store.log_out(&name).await),
        10 => drop(store.mute(&name, mute(random.one_of(&["everything", "team:1", "match:1"]), None), T0).await),
        11 => drop(store.unmute(&name, &random.one_of(&["everything", "team:1"]).parse().unwrap()).await),
        12 => drop(store.devices_proven((0..DEVICE_COUNT as u32).map(DeviceNumber).collect()).await),
        13 => drop(store.erase_user(&user(random.one_of(&USERS))).await),
        _ => {
            let import = |random: &mut SplitMix| NewImport {
                subscriptions: (0..random.below(4)).map(|_| random.pair()).collect(),
                proven: random.below(2) == 0,
                ..random.device().into()
            };
            let devices = (0..random.below(5)).map(|_| import(random)).collect();
            drop(store.import_devices(devices, None, T0).await);
        }
    }
}

async fn requests(store: &Store, random: &mut SplitMix, count: u64) {
    for _ in 0..count {
        request(store, random).await;
    }
}

fn small(path: &Path, checkpoint_change_count: u64) -> StoreConfig {
    StoreConfig { checkpoint_change_count, ..config(path) }
}

fn open_small(path: &Path, checkpoint_change_count: u64) -> Store {
    open_with(small(path, checkpoint_change_count)).0
}

type IsMeant<'a> = &'a dyn Fn(&Device) -> bool;

/// Asks memory, in many ways, and compares with what the rows say.
fn check(store: &Store) {
    let exported = store.export(None, usize::MAX).unwrap().devices;
    let devices: BTreeMap<DeviceNumber, Exported> = exported
        .into_iter()
        .map(|exported| (store.device_number(&exported.device.id).unwrap().expect("it is named"), exported))
        .collect();
    let subscriptions: usize = devices.values().map(|one| one.subscriptions.len()).sum();
    let proven = devices.values().filter(|one| one.proven).count();
    let counts = store.counts();
    assert_eq!(
        (counts.devices, counts.subscriptions, counts.proven),
        (devices.len() as u64, subscriptions as u64, proven as u64)
    );
    check_recipients(store, &devices);
    let told = |event: &Event| store.select(event).iter_from(DeviceNumber(0)).collect::<Vec<_>>();
    let meant = |is_meant: &dyn Fn(&Exported) -> bool, event: &Event| {
        let is_told = |one: &Exported| is_meant(one) && !is_muted(one, event);
        devices.iter().filter(|(_, one)| is_told(one)).map(|(number, _)| *number).collect::<Vec<_>>()
    };
    for (topic_name, subject_name) in TOPICS.iter().flat_map(|topic| SUBJECTS.map(|subject| (topic, subject))) {
        let event = Event::new(EventId::new("asked").unwrap(), topic(topic_name), vec![subject(subject_name)]);
        assert_eq!(told(&event), meant(&|one| is_meant(one, &event), &event), "{topic_name} of {subject_name}");
    }
    let selectors: [(&str, IsMeant<'_>); 5] = [
        ("locale = pt", &|device| device.locale.as_str().starts_with("pt")),
        ("country = SE and platform = ios", &|device| {
            device.country.as_ref().is_some_and(|it| it.as_str() == "SE") && device.platform == Platform::Ios
        }),
        ("app = com.example.a", &|device| device.app.as_str() == "com.example.a"),
        ("not country = SE", &|device| device.country.as_ref().is_none_or(|it| it.as_str() != "SE")),
        ("all", &|_| true),
    ];
    for (selector, is_meant) in selectors {
        let to = Recipients { selector: Some(selector.parse().unwrap()), ..Recipients::default() };
        let event = Event { to: Some(to), ..event("asked", 1) };
        assert_eq!(told(&event), meant(&|one| is_meant(&one.device), &event), "{selector}");
    }
    for name in USERS {
        let event =
            Event { to: Some(Recipients { users: vec![user(name)], ..Recipients::default() }), ..event("asked", 1) };
        let is_of = |one: &Exported| one.device.user.as_ref().is_some_and(|user| user.as_str() == name);
        assert_eq!(told(&event), meant(&is_of, &event), "{name}");
    }
}

fn is_meant(Exported { device, subscriptions, .. }: &Exported, event: &Event) -> bool {
    let is_subscribed =
        subscriptions.iter().any(|(subject, topic)| *topic == event.topic && event.subjects.contains(subject));
    let is_of_user = device.user.as_ref().is_some_and(|user| {
        event.subjects.iter().any(|subject| subject.as_str().strip_prefix("user:") == Some(user.as_str()))
    });
    is_subscribed || is_of_user
}

fn is_muted(Exported { mutes, .. }: &Exported, event: &Event) -> bool {
    mutes.iter().any(|mute| mute.scope.subject().is_none_or(|subject| event.subjects.contains(subject)))
}

fn check_recipients(store: &Store, devices: &BTreeMap<DeviceNumber, Exported>) {
    let end = devices.keys().last().map_or(0, |last| last.0 + 1);
    let mut seen = BTreeSet::new();
    store.with_recipients(&(0..end + 100).map(DeviceNumber).collect::<Vec<_>>(), |recipient| {
        let Exported { device, proven, .. } = &devices[&recipient.number];
        assert_eq!(
            (recipient.id, recipient.token.map(TokenRef::to_token), recipient.proven, recipient.since),
            (device.id.as_str(), device.token.clone(), *proven, device.since)
        );
        assert_eq!(
            (recipient.app, recipient.platform, recipient.environment, recipient.locale, recipient.country),
            (&device.app, device.platform, device.environment, &device.locale, device.country.as_ref())
        );
        seen.insert(recipient.number);
    });
    assert_eq!(seen, devices.keys().copied().collect());
}

/// A store that was closed orderly after some requests, and was checked.
async fn closed(path: &Path, seed: u64) {
    let store = open_small(path, u64::MAX);
    requests(&store, &mut SplitMix(seed), 120).await;
    check(&store);
    store.close().await;
}

fn checkpoint(folder: &Path) -> std::path::PathBuf {
    folder.join("checkpoint")
}

#[tokio::test]
async fn whenever_a_checkpoint_is_written_the_store_opens_from_it_as_the_rows_say() {
    for seed in 0..8 {
        let mut random = SplitMix(seed);
        let every = [1, 5, 40, u64::MAX][(seed % 4) as usize];
        let folder = tempfile::tempdir().unwrap();
        let mut store = open_small(folder.path(), every);
        for _ in 0..4 {
            requests(&store, &mut random, 40).await;
            let crashed = tempfile::tempdir().unwrap();
            copy(folder.path(), crashed.path());
            let left = open_small(crashed.path(), every);
            check(&left);
            requests(&left, &mut random, 20).await;
            check(&left);
            left.close().await;
            check(&store);
            store.close().await;
            store = open_small(folder.path(), every);
            check(&store);
            assert_eq!(store.counts().rebuilt, 0, "after an orderly close there is a checkpoint");
        }
    }
}

#[tokio::test]
async fn a_store_without_devices_has_no_checkpoint_and_needs_none() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let store = open_small(folder.path(), 1);
        store.append_events(vec![new_event("e1", 1, &[])], T0).await.unwrap();
        store.close().await;
        assert_eq!((store.counts().checkpoints, store.counts().rebuilt), (0, 0));
        assert!(!checkpoint(folder.path()).exists());
    }
}

#[tokio::test]
async fn no_damage_of_the_checkpoint_is_taken_for_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    closed(folder.path(), 42).await;
    let whole = std::fs::read(checkpoint(folder.path())).unwrap();
    let mut random = SplitMix(7);
    let mut place = || random.below(whole.len() as u64) as usize;
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), [&whole[..], b"more"].concat()];
    for bit in 0..24 {
        let mut bytes = whole.clone();
        bytes[place()] ^= 1 << (bit % 8);
        damaged.push(bytes);
        damaged.extend((bit % 3 == 0).then(|| whole[..place()].to_vec()));
    }
    for bytes in damaged {
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        std::fs::write(checkpoint(copied.path()), bytes).unwrap();
        let store = open_small(copied.path(), u64::MAX);
        assert_eq!(store.counts().rebuilt, 1);
        check(&store);
        store.close().await;
        let store = open_small(copied.path(), u64::MAX);
        assert_eq!(store.counts().rebuilt, 0, "another one was written");
        check(&store);
    }
}

#[tokio::test]
async fn a_device_whose_record_is_damaged_or_gone_is_told_as_its_row_says() {
    let folder = tempfile::tempdir().unwrap();
    closed(folder.path(), 43).await;
    let mut random = SplitMix(8);
    for round in 0..12 {
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        for file in std::fs::read_dir(copied.path().join("heap")).unwrap().map(|file| file.unwrap().path()) {
            let mut bytes = std::fs::read(&file).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
            match round {
                0 => std::fs::remove_file(&file).unwrap(),
                1..4 => std::fs::write(&file, &bytes[..random.below(used as u64) as usize]).unwrap(),
                _ => {
                    (0..8).for_each(|_| bytes[random.below(used as u64) as usize] ^= 1 << random.below(8));
                    std::fs::write(&file, bytes).unwrap();
                }
            }
        }
        let store = open_small(copied.path(), u64::MAX);
        assert_eq!(store.counts().rebuilt, 0);
        check(&store);
        requests(&store, &mut random, 20).await;
        check(&store);
        store.close().await;
        check(&open_small(copied.path(), u64::MAX));
    }
}

/// A power failure may bring a file's former content back, and people put files into folders.
#[tokio::test]
async fn an_older_checkpoint_is_used_with_all_changes_since_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = SplitMix(44);
    let store = open_small(folder.path(), u64::MAX);
    requests(&store, &mut random, 60).await;
    store.close().await;
    let older = std::fs::read(checkpoint(folder.path())).unwrap();
    // What the older one has is forgotten at once; what came later, only when there is a later one.
    let store = open_small(folder.path(), u64::MAX);
    requests(&store, &mut random, 60).await;
    store.close().await;
    std::fs::write(checkpoint(folder.path()), &older).unwrap();
    let store = open_small(folder.path(), 1);
    assert_eq!(store.counts().rebuilt, 0, "all changes since are there");
    check(&store);
    requests(&store, &mut random, 60).await;
    eventually("a checkpoint", || store.counts().checkpoints > 0).await;
    store.close().await;
    // Now changes are missing, or the heap's files are others.
    std::fs::write(checkpoint(folder.path()), &older).unwrap();
    check(&open_small(folder.path(), u64::MAX));
}

#[tokio::test]
async fn a_checkpoint_that_is_ahead_of_the_rows_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = SplitMix(45);
    closed(folder.path(), 45).await;
    let before = tempfile::tempdir().unwrap();
    copy(folder.path(), before.path());
    let store = open_small(folder.path(), u64::MAX);
    requests(&store, &mut random, 40).await;
    store.close().await;
    // The rows of before with the checkpoint and the heap of after, as an unlucky copy brings them back.
    for part in ["checkpoint", "heap"] {
        let (from, to) = (folder.path().join(part), before.path().join(part));
        if part == "heap" {
            std::fs::remove_dir_all(&to).unwrap();
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
    std::fs::create_dir(before.path().join("checkpoint.new")).unwrap(); // So that no new one takes its place.
    let store = open_small(before.path(), u64::MAX);
    assert_eq!(store.counts().rebuilt, 1);
    check(&store);
    // More and other changes: now it would seem to fit.
    requests(&store, &mut SplitMix(46), 60).await;
    let crashed = tempfile::tempdir().unwrap();
    copy(before.path(), crashed.path());
    check(&open_small(crashed.path(), u64::MAX));
}

#[tokio::test]
async fn where_no_checkpoint_can_be_written_the_store_goes_on_and_opens_from_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("checkpoint.new")).unwrap(); // No file can be made there.
    let store = open_small(folder.path(), 1);
    requests(&store, &mut SplitMix(47), 60).await;
    eventually("a try", || store.counts().checkpoints_failed > 0).await;
    check(&store);
    store.close().await;
    assert_eq!(store.counts().checkpoints, 0);
    std::fs::remove_dir(folder.path().join("checkpoint.new")).unwrap();
    std::fs::write(folder.path().join("checkpoint.new"), "half of one").unwrap();
    let store = open_small(folder.path(), u64::MAX);
    check(&store);
    assert_eq!(store.counts().rebuilt, 1);
    eventually("a checkpoint", || store.counts().checkpoints > 0).await;
}

/// An orderly close leaves nothing in the log, once it is long enough to cost time.
#[tokio::test]
async fn after_an_orderly_close_there_is_no_log_to_read_and_all_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = SplitMix(48);
    for round in 1..=2 {
        let store = open_small(folder.path(), u64::MAX);
        for number in 0..40 {
            let mut new = new_event(&format!("e{round}-{number}"), 1, &[]);
            let body = (0..3000).map(|_| format!("{:x}", random.below(u64::MAX))).collect(); // The log is compressed.
            new.event.params.insert("body".to_owned(), ParamValue::Text(body));
            store.append_events(vec![new], T0).await.unwrap();
            request(&store, &mut random).await;
        }
        store.close().await;
        let logs = std::fs::read_dir(folder.path().join("data")).unwrap().map(|file| file.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
        assert_eq!(logs.map(|path| path.metadata().unwrap().len()).collect::<Vec<_>>(), [0]);
        let store = open_small(folder.path(), u64::MAX);
        check(&store);
        let count = |store: &Store| store.events_from(JournalPosition(0), 1000).unwrap().len();
        assert_eq!(count(&store), 41 * round - 1);
        // Written into an emptied log, and left there by a crash.
        store.append_events(vec![new_event(&format!("last-{round}"), 1, &[])], T0).await.unwrap();
        requests(&store, &mut random, 5).await;
        let crashed = tempfile::tempdir().unwrap();
        copy(folder.path(), crashed.path());
        let left = open_small(crashed.path(), u64::MAX);
        assert_eq!(count(&left), 41 * round);
        check(&left);
        check(&store);
        left.close().await;
        store.close().await;
    }
}

const FOLDER: &str = "TIDINGS_STORE_CHECKPOINT_FOLDER";
const SEED: &str = "TIDINGS_STORE_CHECKPOINT_SEED";

/// Makes requests for ever, with a checkpoint after each change, and says which it was acknowledged.
#[tokio::test]
#[ignore = "child process: the process that the test below kills"]
async fn child() {
    let folder = std::env::var_os(FOLDER).expect("started by the test below");
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let store = open_small(folder.as_ref(), 1);
    let mut random = SplitMix(seed);
    for count in 0.. {
        request(&store, &mut random).await;
        let name = format!("n{seed}-{count}");
        store.put_device(device(&name, None), PutTerms::default(), T0).await.unwrap();
        store.subscribe(&id(&name), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
        std::io::stdout().write_all(format!("acknowledged {name}\n").as_bytes()).unwrap();
    }
}

/// Runs the child until it has said `count` lines, kills it, and returns the names it said.
fn run_and_kill(folder: &Path, seed: u64, count: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checkpoint::child", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary starts again");
    let mut names = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        names.extend(line.strip_prefix("acknowledged ").map(str::to_owned));
        if names.len() == count {
            child.kill().unwrap(); // SIGKILL. What it said before is still read.
        }
    }
    child.wait().unwrap();
    assert!(names.len() >= count, "the child ended by itself after {}", names.len());
    names
}

#[tokio::test]
async fn killed_at_any_moment_of_a_checkpoint_the_store_opens_with_right_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    let mut rebuilt = 0;
    for round in 0..10 {
        names.extend(run_and_kill(folder.path(), round, 3 + 5 * round as usize));
        let store = open_small(folder.path(), u64::MAX);
        check(&store);
        let told = audience(&store, "goal", &["team:1"]);
        for name in &names {
            let number = store.device_number(&id(name)).unwrap().expect("it was acknowledged");
            assert!(told.contains(&number), "{name} was acknowledged and is not told");
        }
        rebuilt += store.counts().rebuilt;
        if round % 2 == 0 {
            store.close().await; // Otherwise the next child begins with what the kill left.
        } else {
            let crashed = tempfile::tempdir().unwrap();
            copy(folder.path(), crashed.path());
            store.close().await;
            std::fs::remove_dir_all(folder.path()).unwrap();
            copy(crashed.path(), folder.path());
        }
    }
    assert!(rebuilt <= 1, "a kill costs no checkpoint; only the first may come before there is one");
}
