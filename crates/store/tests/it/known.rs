//! What was accepted is known by its id at every moment, above all while it moves from those not yet due into the
//! journal.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};

use proptest::prelude::*;
use tidings_store::{CommitSink, DurableChannel, NewEvent, Store, StoredPublication};
use tidings_types::{ChannelName, EventId, JournalPosition, StreamPosition, Timestamp};

use crate::model::copy;
use crate::support::*;

const ID_COUNT: u8 = 6;

/// Asks for all that was accepted whenever it is told of something: then it is committed, and nobody knows it yet.
#[derive(Default)]
struct Asking {
    store: OnceLock<Store>,
    accepted: Mutex<BTreeSet<u8>>,
    unknown: Mutex<BTreeSet<u8>>,
}

impl Asking {
    fn look(&self) {
        let Some(store) = self.store.get() else { return };
        let unknown = |name: &&u8| !store.is_known(&event_id(**name)).unwrap();
        let accepted = self.accepted.lock().unwrap();
        self.unknown.lock().unwrap().extend(accepted.iter().filter(unknown));
    }
}

impl CommitSink for Asking {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {
        self.look();
    }

    fn on_events(&self, _: JournalPosition) {
        self.look();
    }
}

fn event_id(name: u8) -> EventId {
    EventId::new(&format!("e{name}")).unwrap()
}

/// Each is due at its own moment; the first is due at once.
fn named(name: u8) -> NewEvent {
    let mut new = new_event(event_id(name).as_str(), 1, &[channel("match:1", 10)]);
    new.event.at = Some(Timestamp(T0.0 + 10 * u64::from(name)));
    new
}

#[derive(Debug, Clone)]
enum Step {
    /// Queued at once: these are handed in, and what is due at this moment is released.
    Together(Vec<u8>, u64),
    Cancel(u8),
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let names = || prop::collection::vec(0..ID_COUNT, 0..6);
    prop_oneof![
        8 => (names(), 0..60u64).prop_map(|(names, now)| Step::Together(names, now)),
        1 => (0..ID_COUNT).prop_map(Step::Cancel),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

fn open(path: &Path, accepted: BTreeSet<u8>) -> (Store, Arc<Asking>) {
    let sink = Arc::new(Asking { accepted: Mutex::new(accepted), ..Asking::default() });
    let store = Store::open(config(path), sink.clone()).unwrap();
    let _ = sink.store.set(store.clone());
    (store, sink)
}

async fn together(store: &Store, sink: &Asking, names: Vec<u8>, now: u64) -> BTreeMap<u8, usize> {
    let known = sink.accepted.lock().unwrap().clone();
    let release = async {
        store.release_later(Timestamp(T0.0 + now)).await.unwrap();
        None
    };
    let mut requests: Vec<Pin<Box<dyn Future<Output = _> + '_>>> = vec![Box::pin(release)];
    for &name in &names {
        let append = async move { Some((name, store.append_events(vec![named(name)], T0).await.unwrap()[0].repeated)) };
        requests.insert(requests.len() / 2, Box::pin(append));
    }
    let mut new = BTreeMap::new();
    for (name, is_repeated) in join_all(requests).await.into_iter().flatten() {
        assert!(is_repeated || !known.contains(&name), "e{name} is accepted a second time");
        *new.entry(name).or_insert(0) += usize::from(!is_repeated);
    }
    sink.accepted.lock().unwrap().extend(names);
    new
}

async fn run(steps: Vec<Step>) {
    let mut folder = tempfile::tempdir().unwrap();
    let (mut store, mut sink) = open(folder.path(), BTreeSet::new());
    let mut expected = Vec::new(); // Once for each time that it was new and not called off again.
    for step in steps {
        match step {
            Step::Together(names, now) => {
                for (name, count) in together(&store, &sink, names, now).await {
                    assert!(count <= 1, "e{name} is new once");
                    expected.extend((count == 1).then_some(name));
                }
            }
            Step::Cancel(name) => {
                sink.accepted.lock().unwrap().remove(&name);
                if store.cancel_later(&event_id(name)).await.unwrap() {
                    expected.retain(|accepted| *accepted != name);
                    assert!(!store.is_known(&event_id(name)).unwrap());
                } else if expected.contains(&name) {
                    sink.accepted.lock().unwrap().insert(name);
                }
            }
            Step::Restart | Step::Crash => {
                let accepted = sink.accepted.lock().unwrap().clone();
                let left = tempfile::tempdir().unwrap();
                if matches!(step, Step::Crash) {
                    copy(folder.path(), left.path());
                }
                store.close().await;
                drop((store, sink));
                if matches!(step, Step::Crash) {
                    folder = left;
                }
                (store, sink) = open(folder.path(), accepted);
            }
        }
        sink.look();
        assert_eq!(*sink.unknown.lock().unwrap(), BTreeSet::new(), "accepted, and not known");
    }
    while store.release_later(Timestamp(T0.0 + 1000)).await.unwrap() > 0 {}
    assert_eq!(*sink.unknown.lock().unwrap(), BTreeSet::new(), "accepted, and not known");
    let journaled = store.events_from(JournalPosition(0), 1000).unwrap();
    let mut journaled: Vec<_> = journaled.iter().map(|(_, one)| one.event.id.clone()).collect();
    let mut expected: Vec<_> = expected.into_iter().map(event_id).collect();
    journaled.sort();
    expected.sort();
    assert_eq!(journaled, expected);
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_is_accepted_is_known_and_accepted_once_whatever_happens_meanwhile(
        steps in prop::collection::vec(step(), 1..16),
    ) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(steps));
    }
}
