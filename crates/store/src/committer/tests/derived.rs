//! Whatever callers and the disk do: memory has what a fresh open would read.

use proptest::prelude::*;
use tidings_audience::Index;
use tidings_types::{BrakeScope, DeviceToken, Filter, Mute, MuteScope, Provider, TokenRef, UserId};

use super::super::{Derived, load};
use super::*;
use crate::brakes::Brakes;
use crate::rows::{self, State};
use crate::service::Counts;
use crate::table::DeviceTable;
use crate::{GoneToken, NewImport};

const DEVICES: [&str; 3] = ["d0", "d1", "d2"];
const USERS: [&str; 2] = ["ann", "a:b"];
const SUBJECTS: [&str; 2] = ["team:1", "user:ann"];
const TOPICS: [&str; 2] = ["goal", "card"];
const SCOPES: [BrakeScope; 2] = [BrakeScope::Everything, BrakeScope::Provider(Provider::Fcm)];

/// A device, its user and token, whether it subscribes, and whether its token counts as proven.
type Imported = (usize, Option<usize>, Option<u8>, bool, bool);

#[derive(Debug, Clone)]
pub(super) enum Change {
    Put(usize, Option<usize>, Option<u8>),
    Import(Vec<Imported>),
    Subscribe(usize, usize, usize),
    Unsubscribe(usize, usize),
    Delete(usize),
    /// One of the subjects, or everything.
    Mute(usize, Option<usize>, Option<u64>),
    Unmute(usize, Option<usize>),
    Erase(usize),
    LogOut(usize),
    Rotate(usize),
    Gone(u32, u8),
    Proven(Vec<u32>),
    Pause(usize, bool),
    Cancel(u64),
    RemoveJob(u64),
    Append(u8, Option<u64>),
    Release(u64),
    CancelLater(u8),
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let device = || 0..DEVICES.len();
    let user = || prop::option::weighted(0.8, 0..USERS.len());
    let token = || prop::option::of(0..2u8);
    prop_oneof![
        4 => (device(), user(), token()).prop_map(|(device, user, token)| Change::Put(device, user, token)),
        2 => prop::collection::vec((device(), user(), token(), any::<bool>(), any::<bool>()), 1..4).prop_map(Change::Import),
        3 => (device(), 0..SUBJECTS.len(), 0..TOPICS.len()).prop_map(|(d, s, t)| Change::Subscribe(d, s, t)),
        1 => (device(), 0..SUBJECTS.len()).prop_map(|(device, subject)| Change::Unsubscribe(device, subject)),
        1 => device().prop_map(Change::Delete),
        3 => (device(), prop::option::of(0..SUBJECTS.len()), prop::option::of(2..9u64))
            .prop_map(|(device, subject, until)| Change::Mute(device, subject, until)),
        1 => (device(), prop::option::of(0..SUBJECTS.len())).prop_map(|(device, of)| Change::Unmute(device, of)),
        1 => (0..USERS.len()).prop_map(Change::Erase),
        2 => device().prop_map(Change::LogOut),
        1 => device().prop_map(Change::Rotate),
        1 => (0..6u32, 0..2u8).prop_map(|(number, token)| Change::Gone(number, token)),
        3 => prop::collection::vec(0..6u32, 0..4).prop_map(Change::Proven),
        2 => (0..SCOPES.len(), any::<bool>()).prop_map(|(scope, on)| Change::Pause(scope, on)),
        1 => (0..6u64).prop_map(Change::Cancel),
        1 => (0..6u64).prop_map(Change::RemoveJob),
        4 => (0..8u8, prop::option::of(0..6u64)).prop_map(|(name, at)| Change::Append(name, at)),
        1 => (0..6u64).prop_map(Change::Release),
        1 => (0..8u8).prop_map(Change::CancelLater),
    ]
}

pub(super) fn fault() -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![8 => Just(None), 1 => Just(Some(Fault::BeforeCommit)), 1 => Just(Some(Fault::AfterCommit))]
}

fn new(index: usize, user: Option<usize>, token: Option<u8>) -> NewDevice {
    let (user, token) = (user.map(named), token.map(|byte| DeviceToken::from([byte; 4].as_slice())));
    NewDevice { user, token, ..device(DEVICES[index]) }
}

fn named(index: usize) -> UserId {
    UserId::new(USERS[index]).unwrap()
}

fn subject(index: usize) -> Subject {
    Subject::new(SUBJECTS[index]).unwrap()
}

fn scope(of: Option<usize>) -> MuteScope {
    of.map_or(MuteScope::Everything, |index| MuteScope::Subject(subject(index)))
}

fn topic(index: usize) -> TopicName {
    TopicName::new(TOPICS[index]).unwrap()
}

/// The answer does not matter here, nor whether the request was refused.
pub(super) async fn apply(store: &Store, change: Change) {
    let id = |index: usize| DeviceId::new(DEVICES[index]).unwrap();
    match change {
        Change::Put(device, user, token) => {
            drop(store.put_device(new(device, user, token), PutTerms::default(), Timestamp(1)).await)
        }
        Change::Import(devices) => {
            let import = |(device, user, token, subscribes, proven)| {
                let subscriptions = vec![(subject(0), topic(0)); usize::from(subscribes)];
                NewImport { subscriptions, proven, ..new(device, user, token).into() }
            };
            drop(store.import_devices(devices.into_iter().map(import).collect(), None, Timestamp(1)).await);
        }
        Change::Subscribe(device, s, t) => {
            drop(store.subscribe(&id(device), vec![(subject(s), vec![topic(t)])]).await);
        }
        Change::Unsubscribe(device, s) => drop(store.unsubscribe(&id(device), vec![(subject(s), vec![])]).await),
        Change::Delete(device) => drop(store.delete_device(&id(device), Precondition::None).await),
        Change::Mute(device, of, until) => {
            let mute = Mute { scope: scope(of), until: until.map(Timestamp) };
            drop(store.mute(&id(device), mute, Timestamp(1)).await);
        }
        Change::Unmute(device, of) => drop(store.unmute(&id(device), &scope(of)).await),
        Change::Erase(user) => drop(store.erase_user(&named(user)).await),
        Change::LogOut(device) => drop(store.log_out(&id(device)).await),
        Change::Rotate(device) => drop(store.rotate_credential(&id(device)).await),
        Change::Gone(number, byte) => {
            let token = DeviceToken::from([byte; 4].as_slice());
            let gone = GoneToken { number: DeviceNumber(number), token, gone_at: None };
            let _ = store.tokens_gone(vec![gone]).await;
        }
        Change::Proven(numbers) => {
            let _ = store.devices_proven(numbers.into_iter().map(DeviceNumber).collect()).await;
        }
        Change::Pause(scope, true) => drop(store.pause(SCOPES[scope].clone(), Timestamp(7)).await),
        Change::Pause(scope, false) => drop(store.resume(SCOPES[scope].clone()).await),
        Change::Cancel(position) => drop(store.cancel(JournalPosition(position)).await),
        Change::RemoveJob(position) => drop(store.remove_jobs(vec![JournalPosition(position)]).await),
        Change::Append(name, at) => {
            let mut events = event(&format!("e{name}"));
            events[0].event.at = at.map(Timestamp);
            drop(store.append_events(events, Timestamp(1)).await);
        }
        Change::Release(now) => drop(store.release_later(Timestamp(now)).await),
        Change::CancelLater(name) => drop(store.cancel_later(&EventId::new(&format!("e{name}")).unwrap()).await),
    }
}

/// All that can be asked of what is in memory.
pub(super) fn facts(table: &DeviceTable, index: &Index, brakes: &Brakes) -> Vec<String> {
    let mut facts = vec![
        format!("{} {} {}", table.count(), index.subscription_count(), index.user_count()),
        format!("{brakes:?}"),
        format!("{}", table.proven_count()),
    ];
    // A bit that outlived its token would prove the next device's.
    let recipients = || (0..64).filter_map(|number| table.recipient(DeviceNumber(number)).unwrap());
    assert_eq!(recipients().filter(|one| one.proven && one.token.is_some()).count() as u64, table.proven_count());
    for number in (0..64).map(DeviceNumber) {
        let token = table.recipient(number).unwrap().and_then(|recipient| recipient.token.map(TokenRef::to_token));
        let token = token.map(|token| token.to_text().into_owned());
        facts.push(format!("{:?} {token:?} {}", table.recipient(number), table.subscription_count(number)));
    }
    let mut ask = |frozen: tidings_audience::Frozen| {
        facts.push(format!("{:?}", frozen.iter_from(DeviceNumber(0)).collect::<Vec<_>>()));
    };
    (0..USERS.len()).for_each(|index_of| ask(index.freeze_named(&[named(index_of)], &[], &[], &Filter::default())));
    for t in 0..TOPICS.len() {
        (0..SUBJECTS.len()).for_each(|s| ask(index.freeze(&topic(t), &[subject(s)], &Filter::default())));
    }
    facts
}

/// The count of scheduled events is right, and followers are told of each change.
fn check_later(store: &Store, state: State) {
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let engine = store.shared().engine.read();
    let engine = engine.as_ref().unwrap();
    let visit = |key: &[u8], row: &[u8]| {
        keys.push(rows::decode_later_key(key).unwrap());
        bytes += row.len() as u64;
        Ok::<_, crate::EngineError>(true)
    };
    engine.scan(Place::Open, Table::Later, &Span::all(), visit).unwrap();
    assert_eq!((state.later_count, state.later_bytes), (keys.len() as u64, bytes));
    assert_eq!(state.later_first, keys.first().copied());
    assert!(keys.iter().all(|key| key.arrival < state.later_arrival));
    assert_eq!(*store.next_later().borrow(), keys.first().map(|key| key.at));
    assert_eq!(store.counts().later, keys.len() as u64);
}

/// The device table and the row of an id name the same number.
fn check_hints(store: &Store) {
    let engine = store.shared().engine.read();
    for id in DEVICES.map(|name| DeviceId::new(name).unwrap()) {
        let key = rows::device_id_key(&id);
        let row = engine.as_ref().unwrap().get(Table::DeviceId, key).unwrap();
        let number = row.map(|row| rows::decode_number(Table::DeviceId, key, row.as_ref()).unwrap());
        let hint = store.shared().table.read().number_of(&id);
        assert!(hint.is_none() || hint == number, "{id}: {hint:?}, not {number:?}");
    }
}

/// What the current checkpoint and the changes since then give, in a folder of its own; `None`: there is no checkpoint
/// yet.
fn from_checkpoint(store: &Store) -> Option<(Derived, tempfile::TempDir)> {
    let shared = store.shared();
    let _no_other_is_written = shared.checkpoint.interrupt();
    let (folder, copy) = (&shared.config.path, tempfile::tempdir().unwrap());
    std::fs::copy(folder.join("checkpoint"), copy.path().join("checkpoint")).ok()?;
    std::fs::create_dir(copy.path().join("heap")).unwrap();
    for file in std::fs::read_dir(folder.join("heap")).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.path().join("heap").join(file.file_name())).unwrap();
    }
    let (_, loaded) = load(shared.engine.read().as_ref().unwrap(), copy.path()).unwrap();
    assert!(loaded.checkpoint.is_some(), "the checkpoint is of no use");
    Some((loaded, copy))
}

async fn run(changes: Vec<(Vec<Change>, Option<Fault>)>) {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { checkpoint_change_count: 2, ..config(folder.path()) };
    let store = Store::open(config, Arc::<Sink>::default()).unwrap();
    let nobody = DeviceId::new("nobody").unwrap();
    let mut pulse = tokio::time::interval(Duration::from_millis(1));
    for (changes, fault) in changes {
        *store.shared().engine.read().as_ref().unwrap().hooks.fault.lock().unwrap() = fault;
        for change in changes {
            apply(&store, change).await;
        }
        if let Some(engine) = store.shared().engine.read().as_ref() {
            *engine.hooks.fault.lock().unwrap() = None; // Or a write that nobody asked for meets it during the checks.
        }
        while store.delete_device(&nobody, Precondition::None).await.is_err() {
            pulse.tick().await; // Until the store is open again.
        }
        let shared = store.shared();
        let held = facts(&shared.table.read(), &shared.index.read(), &shared.brakes.borrow());
        let scratch = tempfile::tempdir().unwrap();
        let (state, rebuilt) = load(shared.engine.read().as_ref().unwrap(), scratch.path()).unwrap();
        assert_eq!(rebuilt.checkpoint, None);
        assert_eq!(held, facts(&rebuilt.table, &rebuilt.index, &rebuilt.brakes));
        check_later(&store, state);
        check_hints(&store);
        if let Some((loaded, _folder)) = from_checkpoint(&store) {
            assert_eq!(held, facts(&loaded.table, &loaded.index, &loaded.brakes));
        }
    }
    store.close().await;
}

#[tokio::test]
async fn changes_are_forgotten_when_a_checkpoint_has_them_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |store: &Store| {
        let mut numbers = Vec::new();
        let engine = store.shared().engine.read();
        let visit = |key: &[u8], _: &[u8]| {
            numbers.push(u64::from_be_bytes(key.try_into().unwrap()));
            Ok::<_, crate::EngineError>(true)
        };
        engine.as_ref().unwrap().scan(Place::Open, Table::Change, &Span::all(), visit).unwrap();
        numbers
    };
    let many = StoreConfig { checkpoint_change_count: 1000, ..config(folder.path()) };
    let store = Store::open(many, Arc::<Sink>::default()).unwrap();
    for count in 0..7 {
        store.put_device(device(&format!("d{count}")), PutTerms::default(), Timestamp(1)).await.unwrap();
        store.append_events(event(&format!("e{count}")), Timestamp(1)).await.unwrap(); // Changes nothing of it.
    }
    assert_eq!(kept(&store), [0, 1, 2, 3, 4, 5, 6]);
    store.close().await;
    drop(store);
    let few = StoreConfig { checkpoint_change_count: 3, ..config(folder.path()) };
    let store = Store::open(few, Arc::<Sink>::default()).unwrap();
    let mut pulse = tokio::time::interval(Duration::from_millis(5));
    let forgotten = tokio::time::timeout(Duration::from_secs(20), async {
        while !kept(&store).is_empty() {
            pulse.tick().await;
        }
        for count in 0..3 {
            assert_eq!(kept(&store).len(), count);
            store.log_out(&DeviceId::new("d0").unwrap()).await.unwrap();
        }
        while !kept(&store).is_empty() {
            pulse.tick().await;
            if (1..3).contains(&store.shared().checkpoint.pending()) {
                // Moved records made a checkpoint due in between, so these changes are too few for another one.
                store.log_out(&DeviceId::new("d0").unwrap()).await.unwrap();
            }
        }
    });
    let is_forgotten = forgotten.await.is_ok();
    let Counts { checkpoints, checkpoints_failed, .. } = store.counts();
    let (kept, pending) = (kept(&store), store.shared().checkpoint.pending());
    assert!(
        is_forgotten,
        "{kept:?} are kept after {checkpoints} checkpoints ({checkpoints_failed} failed), {pending} pending"
    );
    assert!(checkpoints > 0);
}

/// With all that is in it.
fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => _ = std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap(),
        }
    }
}

#[tokio::test]
async fn a_checkpoint_is_of_no_use_beside_an_older_copy_of_the_rows() {
    let (folder, older) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let open = || Store::open(config(folder.path()), Arc::<Sink>::default()).unwrap();
    let goal = || vec![(subject(0), vec![topic(0)])];
    let told = |store: &Store| {
        let told = store.shared().index.read().freeze(&topic(0), &[subject(0)], &Filter::default()).len();
        assert_eq!(u64::from(store.shared().table.read().subscription_count(DeviceNumber(0))), told);
        told
    };
    let store = open();
    store.put_device(device("d0"), PutTerms::default(), Timestamp(1)).await.unwrap();
    store.close().await;
    drop(store);
    copy_folder(&data, older.path());
    let store = open();
    let (epoch, taken) = (store.channel_start().epoch, store.shared().checkpoint.taken());
    store.subscribe(&DeviceId::new("d0").unwrap(), goal()).await.unwrap();
    assert_eq!(told(&store), 1);
    store.close().await;
    drop(store);
    // The checkpoint was begun before the subscription was made, and contains it.
    crate::checkpoint::begin_at(folder.path(), epoch, taken);
    let fuzzy = std::fs::read(folder.path().join("checkpoint")).unwrap();
    let store = open();
    assert_eq!((told(&store), store.counts().rebuilt), (1, 0));
    store.close().await;
    drop(store);
    std::fs::write(folder.path().join("checkpoint"), fuzzy).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    copy_folder(older.path(), &data);
    let store = open();
    assert_eq!((told(&store), store.counts().rebuilt), (0, 1), "nobody subscribed, as far as the rows know");
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_as_the_rows_say(changes in prop::collection::vec((prop::collection::vec(change(), 1..5), fault()), 1..16)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(changes));
    }
}
