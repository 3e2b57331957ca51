//! Whatever is done, and whatever the disk does: what is in memory is what would be read at open.

use proptest::prelude::*;
use tidings_types::{DeviceToken, UserId};

use super::super::{Derived, load};
use super::*;
use crate::{GoneToken, NewImport};

const DEVICES: [&str; 3] = ["d0", "d1", "d2"];
const USERS: [&str; 2] = ["ann", "a:b"];
const SUBJECTS: [&str; 2] = ["team:1", "user:ann"];
const TOPICS: [&str; 2] = ["goal", "card"];

#[derive(Debug, Clone)]
enum Change {
    Put(usize, Option<usize>, Option<u8>),
    Import(Vec<(usize, Option<usize>, Option<u8>, bool)>),
    Subscribe(usize, usize, usize),
    Unsubscribe(usize, usize),
    Delete(usize),
    LogOut(usize),
    Rotate(usize),
    Gone(u32, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let device = || 0..DEVICES.len();
    let user = || prop::option::weighted(0.8, 0..USERS.len());
    let token = || prop::option::of(0..2u8);
    prop_oneof![
        4 => (device(), user(), token()).prop_map(|(device, user, token)| Change::Put(device, user, token)),
        2 => prop::collection::vec((device(), user(), token(), any::<bool>()), 1..4).prop_map(Change::Import),
        3 => (device(), 0..SUBJECTS.len(), 0..TOPICS.len()).prop_map(|(d, s, t)| Change::Subscribe(d, s, t)),
        1 => (device(), 0..SUBJECTS.len()).prop_map(|(device, subject)| Change::Unsubscribe(device, subject)),
        1 => device().prop_map(Change::Delete),
        2 => device().prop_map(Change::LogOut),
        1 => device().prop_map(Change::Rotate),
        1 => (0..6u32, 0..2u8).prop_map(|(number, token)| Change::Gone(number, token)),
    ]
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
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

fn topic(index: usize) -> TopicName {
    TopicName::new(TOPICS[index]).unwrap()
}

/// Its answer is of no interest here, nor whether it was refused.
async fn apply(store: &Store, change: Change) {
    let id = |index: usize| DeviceId::new(DEVICES[index]).unwrap();
    match change {
        Change::Put(device, user, token) => drop(store.put_device(new(device, user, token), Timestamp(1)).await),
        Change::Import(devices) => {
            let import = |(device, user, token, subscribes)| {
                let subscriptions = vec![(subject(0), topic(0)); usize::from(subscribes)];
                NewImport { device: new(device, user, token), subscriptions, credential: None }
            };
            drop(store.import_devices(devices.into_iter().map(import).collect(), Timestamp(1)).await);
        }
        Change::Subscribe(device, s, t) => {
            drop(store.subscribe(&id(device), vec![(subject(s), vec![topic(t)])]).await);
        }
        Change::Unsubscribe(device, s) => drop(store.unsubscribe(&id(device), vec![(subject(s), vec![])]).await),
        Change::Delete(device) => drop(store.delete_device(&id(device)).await),
        Change::LogOut(device) => drop(store.log_out(&id(device)).await),
        Change::Rotate(device) => drop(store.rotate_credential(&id(device)).await),
        Change::Gone(number, byte) => {
            let token = DeviceToken::from([byte; 4].as_slice());
            let gone = GoneToken { number: DeviceNumber(number), token, gone_at: None };
            let _ = store.tokens_gone(vec![gone]).await;
        }
    }
}

/// All that can be asked of what is in memory.
fn facts(Derived { table, index }: &Derived) -> Vec<String> {
    let mut facts = vec![format!("{} {} {}", table.count(), index.subscription_count(), index.user_count())];
    for number in (0..64).map(DeviceNumber) {
        let token = table.recipient(number).and_then(|recipient| recipient.token.map(DeviceToken::to_hex));
        facts.push(format!("{:?} {token:?} {}", table.recipient(number), table.subscription_count(number)));
    }
    let mut ask = |frozen: tidings_audience::Frozen| {
        facts.push(format!("{:?}", frozen.iter_from(DeviceNumber(0)).collect::<Vec<_>>()));
    };
    (0..USERS.len()).for_each(|index_of| ask(index.freeze_named(&[named(index_of)], &[])));
    for t in 0..TOPICS.len() {
        (0..SUBJECTS.len()).for_each(|s| ask(index.freeze(&topic(t), &[subject(s)])));
    }
    facts
}

async fn run(changes: Vec<(Vec<Change>, Option<Fault>)>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default());
    let nobody = DeviceId::new("nobody").unwrap();
    let mut pulse = tokio::time::interval(Duration::from_millis(1));
    for (changes, fault) in changes {
        *store.shared().engine.read().unwrap().as_ref().unwrap().hooks.fault.lock().unwrap() = fault;
        for change in changes {
            apply(&store, change).await;
        }
        while store.delete_device(&nobody).await.is_err() {
            pulse.tick().await; // Until the store is open again.
        }
        let shared = store.shared();
        let (_, rebuilt) = load(shared.engine.read().unwrap().as_ref().unwrap()).unwrap();
        let (table, index) =
            (std::mem::take(&mut *shared.table.write().unwrap()), std::mem::take(&mut *shared.index.write().unwrap()));
        let held = Derived { table, index };
        assert_eq!(facts(&held), facts(&rebuilt));
        (*shared.table.write().unwrap(), *shared.index.write().unwrap()) = (held.table, held.index);
    }
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_as_the_rows_say(changes in prop::collection::vec((prop::collection::vec(change(), 1..5), fault()), 1..16)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(changes));
    }
}
