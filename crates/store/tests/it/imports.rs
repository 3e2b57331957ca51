//! Devices out of one store and into another, and imports that are continued.

use proptest::prelude::*;
use tidings_store::{
    Exported, GivenCredential, ImportError, ImportStep, Imported, NewDevice, NewImport, Store, SubscribeError,
};
use tidings_types::{
    Country, DeviceNumber, Environment, ImportName, JournalPosition, Platform, PushPermission, TimeZone, Timestamp,
    UserId,
};

use crate::support::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const SUBJECTS: [&str; 3] = ["team:1", "team:2", "match:1"];
const DAY_MS: u64 = 24 * 3_600_000;

fn one() -> impl Strategy<Value = NewImport> {
    let said = (0..NAMES.len(), prop::option::of(0..3u8), prop::option::of("[a-c]"), any::<bool>(), 0..4usize);
    let held = (
        prop::collection::btree_set(0..SUBJECTS.len(), 0..3),
        prop::collection::btree_map(0..=SUBJECTS.len(), prop::option::of(1..1000u64), 0..3),
    );
    let days = || prop::option::of(0..12u64);
    let rest = (prop::option::of("[a-c]{1,3}"), any::<bool>(), days(), any::<bool>(), days());
    (said, held, rest).prop_map(|((name, byte, of, sandbox, permission), (subjects, mutes), rest)| {
        let (secret, proven, seen, abroad, registered) = rest;
        let device = NewDevice {
            user: of.map(|of| UserId::new(&of).unwrap()),
            platform: if sandbox { Platform::Android } else { Platform::Ios },
            environment: if sandbox { Environment::Sandbox } else { Environment::Production },
            country: abroad.then(|| Country::new("BR").unwrap()),
            time_zone: abroad.then(|| TimeZone::new("America/Sao_Paulo").unwrap()),
            push_permission: PushPermission::ALL[permission],
            ..device(NAMES[name], byte.map(token))
        };
        let scope = |index: usize| SUBJECTS.get(index).map_or("everything", |text| *text);
        NewImport {
            subscriptions: subjects.into_iter().map(|index| (subject(SUBJECTS[index]), topic("goal"))).collect(),
            mutes: mutes.into_iter().map(|(at, until)| mute(scope(at), until.map(|at| Timestamp(T0.0 + at)))).collect(),
            credential: secret.map(GivenCredential::Secret),
            proven,
            seen_at: seen.map(|day| Timestamp(day * DAY_MS)),
            token_at: registered.map(|day| Timestamp(day * DAY_MS + 1)),
            ..device.into()
        }
    })
}

/// All devices, two at a time.
fn export(store: &Store) -> Vec<Exported> {
    let mut all: Vec<Exported> = Vec::new();
    loop {
        let page = store.export(all.last().map(|last| &last.device.id), 2).unwrap().devices;
        let is_last = page.len() < 2;
        all.extend(page);
        if is_last {
            return all;
        }
    }
}

/// Without what is of one store only.
fn portable(exported: &[Exported]) -> Vec<Exported> {
    let mut all = exported.to_vec();
    for Exported { device, .. } in &mut all {
        (device.revision, device.since) = (0, JournalPosition(0));
    }
    all
}

async fn moved(devices: Vec<NewImport>) {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [(first, _), (second, _)] = folders.each_ref().map(|folder| open(folder.path()));
    first.import_devices(devices, None, T0).await.unwrap();
    second.append_events(vec![new_event("e1", 1, &[])], T0).await.unwrap(); // It has a life of its own.
    let exported = export(&first);
    let import = || exported.iter().cloned().map(NewImport::from).collect();
    let done = second.import_devices(import(), None, T0).await.unwrap();
    assert_eq!((done.created, done.updated), (exported.len() as u64, 0));
    let arrived = export(&second);
    assert_eq!(portable(&arrived), portable(&exported));
    assert!(arrived.iter().all(|one| one.device.since == JournalPosition(2)), "owed what comes from now on");
    let again = second.import_devices(import(), None, Timestamp(T0.0 + 1)).await.unwrap();
    assert_eq!((again.created, again.subscribed), (0, 0));
    assert_eq!(export(&second), arrived, "the same again changes nothing, not even revisions");
    let counts = [&first, &second].map(|store| {
        let counts = store.counts();
        (counts.devices, counts.subscriptions, counts.proven)
    });
    assert_eq!(counts[0], counts[1]);
    for text in SUBJECTS {
        let ids = |store: &Store| -> Vec<_> {
            let mut ids = Vec::new();
            store.with_recipients(&audience(store, "goal", &[text]), |recipient| ids.push(recipient.id.to_string()));
            ids.sort();
            ids
        };
        assert_eq!(ids(&first), ids(&second), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_exported_arrives_elsewhere_as_it_was(devices in prop::collection::vec(one(), 0..8)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(moved(devices));
    }
}

#[tokio::test]
async fn a_secret_goes_along_as_its_hash() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [(first, _), (second, _)] = folders.each_ref().map(|folder| open(folder.path()));
    let registered = first.put_device(device("phone", None), tidings_store::PutTerms::default(), T0).await.unwrap();
    let secret = registered.credential.unwrap();
    let exported = export(&first).remove(0);
    let text = exported.credential.unwrap().to_string();
    assert_eq!((text.len(), text.parse()), (43, Ok(exported.credential.unwrap())));
    assert!(!format!("{exported:?}{:?}", NewImport::from(exported.clone())).contains(&text));
    for bad in ["", "short", &text[..42], &format!("{text}A"), &format!("{text}=")] {
        let refused = bad.parse::<tidings_store::CredentialHash>().unwrap_err().to_string();
        assert!(bad.is_empty() || !refused.contains(bad), "{refused}");
    }
    second.import_devices(vec![exported.into()], None, T0).await.unwrap();
    assert!(second.prove(&id("phone"), Some(secret.as_str())).unwrap().is_some());
    assert_eq!(second.prove(&id("phone"), Some(&text)).unwrap(), None, "the hash proves nothing");
}

/// A provider's word on a token is older or newer than its registration wherever the device has come from.
#[tokio::test]
async fn a_token_that_was_registered_behind_the_word_that_it_is_gone_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let at = |millis| Timestamp(T0.0 - 1000 + millis);
    let import = |name: &str, byte, token_at| NewImport { token_at, ..device(name, Some(token(byte))).into() };
    let imports =
        vec![import("known", 1, Some(at(5))), import("unknown", 2, None), import("ahead", 3, Some(at(1_000_000)))];
    store.import_devices(imports, None, T0).await.unwrap();
    let gone = |number, byte, millis| token_gone(&store, DeviceNumber(number), token(byte), Some(at(millis)));
    assert_eq!(gone(0, 1, 4).await, Ok(false), "it was registered since");
    assert_eq!(gone(1, 2, 4).await, Ok(true), "who does not know believes the provider");
    assert_eq!(gone(2, 3, 1000).await, Ok(true), "nobody registers a token in the future");
    // What is known of the same token is not forgotten, of another it says nothing.
    store.import_devices(vec![import("known", 1, Some(at(2)))], None, T0).await.unwrap();
    store.import_devices(vec![import("known", 1, None)], None, T0).await.unwrap();
    assert_eq!(gone(0, 1, 4).await, Ok(false));
    store.import_devices(vec![import("known", 9, Some(at(2)))], None, T0).await.unwrap();
    assert_eq!(gone(0, 9, 4).await, Ok(true));
}

fn step(name: &str, lines_before: u64, lines_after: u64) -> Option<ImportStep> {
    Some(ImportStep { name: ImportName::new(name).unwrap(), lines_before, lines_after })
}

fn lines(store: &Store, name: &str) -> Option<u64> {
    store.import_progress(&ImportName::new(name).unwrap()).unwrap().map(|progress| progress.lines)
}

#[tokio::test]
async fn a_step_is_done_once_and_the_next_goes_on_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    let devices = |range: std::ops::Range<u32>| -> Vec<NewImport> {
        let goal = || vec![(subject("team:1"), topic("goal"))];
        range.map(|number| import(device(&format!("d{number:04}"), None), goal())).collect()
    };
    assert_eq!(lines(&store, "move"), None);
    let out_of_step = |recorded, lines_before| Err(ImportError::OutOfStep { recorded, lines_before });
    assert_eq!(store.import_devices(devices(0..1), step("move", 5, 6), T0).await, out_of_step(0, 5));
    // Three chunks, the last of which does not fit: nothing is noted, and done again it is done once.
    let mut too_much = devices(0..2500);
    let many = (0..101).map(|number| (subject(&format!("team:{number}")), topic("goal"))).collect();
    too_much[2400].subscriptions = many;
    let refused = store.import_devices(too_much, step("move", 0, 2600), T0).await;
    let source = SubscribeError::TooMany { limit: 100, count: 101 };
    assert_eq!(refused, Err(ImportError::Device { index: 2400, id: id("d2400"), source }));
    assert_eq!((lines(&store, "move"), store.counts().devices), (None, 2000), "chunks before it are done");
    let done = store.import_devices(devices(0..2500), step("move", 0, 2600), T0).await.unwrap();
    assert_eq!(done, Imported { created: 500, updated: 2000, subscribed: 500 });
    store.close().await;
    store = open(folder.path()).0;
    // The answer was lost, so it is asked again: refused, with what is done.
    assert_eq!(store.import_devices(devices(0..2500), step("move", 0, 2600), T0).await, out_of_step(2600, 0));
    let later = Timestamp(T0.0 + 7);
    store.import_devices(devices(2500..2501), step("move", 2600, 2601), later).await.unwrap();
    store.import_devices(vec![], step("move", 2601, 2700), later).await.unwrap();
    let progress = store.import_progress(&ImportName::new("move").unwrap()).unwrap().unwrap();
    let all = Imported { created: 501, updated: 2000, subscribed: 501 };
    assert_eq!((progress.lines, progress.imported, progress.at), (2700, all, later));
    assert_eq!(lines(&store, "another"), None);
}

#[tokio::test]
async fn of_two_who_do_the_same_step_one_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let phone = || vec![NewImport::from(device("phone", None))];
    let (first, second) = tokio::join!(
        store.import_devices(phone(), step("move", 0, 1), T0),
        store.import_devices(phone(), step("move", 0, 1), T0)
    );
    assert_eq!(first.unwrap().created, 1);
    assert_eq!(second, Err(ImportError::OutOfStep { recorded: 1, lines_before: 0 }));
}

#[tokio::test]
async fn of_many_imports_the_one_that_rested_longest_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let mut steps: Vec<std::pin::Pin<Box<dyn Future<Output = _>>>> = Vec::new();
    for number in 0..1000 {
        let at = Timestamp(T0.0 + number);
        steps.push(Box::pin(store.import_devices(vec![], step(&format!("n{number}"), 0, 1), at)));
    }
    join_all(steps).await.into_iter().for_each(|done| assert!(done.is_ok()));
    let late = Timestamp(T0.0 + 5000);
    store.import_devices(vec![], step("n0", 1, 2), late).await.unwrap();
    store.import_devices(vec![], step("one-more", 0, 1), late).await.unwrap();
    let found = ["n0", "n1", "n2", "one-more"].map(|name| lines(&store, name));
    assert_eq!(found, [Some(2), None, Some(1), Some(1)]);
}
