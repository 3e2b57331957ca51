//! Examples of each policy, and a model: the same operations on a ring and on a plain list of what it should hold.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// A distinguishable value and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parcel {
    id: u32,
    bytes: usize,
}

#[test]
fn each_policy_does_what_the_table_says() {
    let run = |full| {
        let mut ring = Ring::new(2, full);
        let pushed: Vec<_> = (1..=3).map(|value| ring.push(value).map_err(|rejected| rejected.value)).collect();
        let mut batch = vec![4, 5];
        let batched = ring.push_batch(&mut batch).ok();
        (pushed, batched, batch, ring.snapshot(), ring.counters(), ring.rejected())
    };
    let counters = |accepted, dropped| Counters { accepted, delivered: 0, dropped, held: 2 };
    let (handed_back, nothing) = (vec![4, 5], vec![]);
    assert_eq!(run(Full::EvictOldest), (vec![Ok(0), Ok(0), Ok(1)], Some(2), nothing, vec![4, 5], counters(5, 3), 0));
    let nothing = vec![];
    assert_eq!(run(Full::DropNewest), (vec![Ok(0), Ok(0), Ok(1)], Some(2), nothing, vec![1, 2], counters(5, 3), 0));
    assert_eq!(run(Full::Reject), (vec![Ok(0), Ok(0), Err(3)], None, handed_back, vec![1, 2], counters(2, 0), 3));
}

#[test]
fn a_value_that_never_fits_is_rejected_and_changes_nothing() {
    for full in [Full::EvictOldest, Full::DropNewest, Full::Reject] {
        let mut ring = Ring::weighed(Bounds::count(3).and_bytes(10), full, |text: &String| text.len());
        ring.push("held".into()).unwrap();
        let rejected = ring.push("far too heavy".into()).unwrap_err();
        assert_eq!(rejected.to_string(), "1 values of 13 bytes never fit into a buffer of 3 values and 10 bytes");
        assert_eq!(rejected.value, "far too heavy");
        let mut batch = vec![String::new(); 4];
        assert!(matches!(ring.push_batch(&mut batch), Err(NoRoom::TooLarge { count: 4, bytes: 0, .. })));
        assert_eq!((batch.len(), ring.snapshot(), ring.rejected()), (4, vec!["held".to_string()], 5));
    }
}

#[test]
fn a_rejection_names_the_sizes() {
    let mut ring = Ring::weighed(Bounds::count(3).and_bytes(10), Full::Reject, |text: &&str| text.len());
    ring.push("eight ..").unwrap();
    let message = "no room for 1 values of 3 bytes: 1 values of 8 bytes are held of 3 values and 10 bytes";
    assert_eq!(ring.push("bit").unwrap_err().to_string(), message);
    assert!(!format!("{:?}", ring.push("secret")).contains("secret"));
}

#[test]
fn shrinking_evicts_only_under_evict_oldest() {
    for (full, evicted, left) in [
        (Full::EvictOldest, 3, vec![4, 5]),
        (Full::DropNewest, 0, vec![1, 2, 3, 4, 5]),
        (Full::Reject, 0, vec![1, 2, 3, 4, 5]),
    ] {
        let mut ring = Ring::new(5, full);
        ring.push_batch(&mut vec![1, 2, 3, 4, 5]).unwrap();
        assert_eq!(ring.set_capacity(2), evicted);
        assert_eq!((ring.snapshot(), ring.counters().dropped), (left, evicted as u64));
        ring.pop_batch(3, &mut Vec::new());
        _ = ring.push(6);
        assert!(ring.len() <= 2, "nothing is accepted until there is room");
        assert!(ring.counters().is_conserved());
    }
}

#[test]
fn a_reserved_ring_never_moves_its_memory() {
    let mut ring = Ring::new(100, Full::EvictOldest);
    ring.reserve();
    let space = ring.values.capacity();
    for value in 0..1000 {
        ring.push(value).unwrap();
        if value % 3 == 0 {
            ring.pop();
        }
    }
    assert_eq!(ring.values.capacity(), space);
    ring.set_capacity(1000);
    assert!(ring.values.capacity() >= 1000);
    assert_eq!(ring.discard().len(), 99);
    assert!(ring.values.capacity() >= 1000, "memory comes back after what was held went elsewhere");
}

#[test]
fn memory_grows_with_the_held_values_up_to_the_bound() {
    let mut ring = Ring::new(100, Full::Reject);
    assert_eq!(ring.values.capacity(), 0);
    for held in 1..=100 {
        ring.push(held).unwrap();
        assert!(ring.values.capacity() <= 100.min(FIRST_GROWTH.max(2 * held)));
    }
    ring.pop_batch(95, &mut Vec::new());
    ring.set_capacity(10);
    assert!(ring.values.capacity() <= 10, "what is no longer allowed is given back");
}

/// With an inconsistent weigher, nothing hangs or panics, and the count stays correct.
#[test]
fn an_inconsistent_weigher_makes_only_the_bytes_wrong() {
    thread_local!(static WEIGHT: RefCell<usize> = const { RefCell::new(1) });
    let mut ring =
        Ring::weighed(Bounds::count(4).and_bytes(10), Full::EvictOldest, |_: &u32| WEIGHT.with_borrow(|it| *it));
    for (value, weight) in [1, 5, 2, 10, 3, 0, 7, 1, 10].into_iter().enumerate() {
        WEIGHT.set(weight);
        ring.push(value as u32).unwrap();
        assert!(ring.len() <= 4 && ring.counters().is_conserved());
    }
    while ring.pop().is_some() {
        WEIGHT.set(3);
    }
    assert_eq!(ring.bytes(), 0);
}

/// Tells when it is dropped.
struct Witness(Rc<RefCell<Vec<u32>>>, u32);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[test]
fn each_value_is_dropped_once() {
    let dropped: Rc<RefCell<Vec<u32>>> = Rc::default();
    let mut ring = Ring::new(2, Full::EvictOldest);
    for id in 0..4 {
        _ = ring.push(Witness(Rc::clone(&dropped), id));
    }
    assert_eq!(*dropped.borrow(), [0, 1]);
    drop(ring.pop());
    assert_eq!(ring.clear(), 1);
    assert_eq!(*dropped.borrow(), [0, 1, 2, 3]);
}

/// Its drop fails.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("armed")
    }
}

#[test]
fn a_drop_that_panics_leaves_the_ring_consistent() {
    let mut ring = Ring::weighed(Bounds::count(2).and_bytes(10), Full::Reject, |_: &Option<Bomb>| 10);
    ring.push(Some(Bomb)).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ring.clear())).is_err());
    assert_eq!((ring.len(), ring.bytes(), ring.counters().is_conserved()), (0, 0, true));
    assert!(ring.push(None).is_ok());
}

#[derive(Debug, Clone)]
enum Action {
    Push(usize),
    PushBatch(Vec<usize>),
    Pop,
    PopBatch(usize),
    SetBounds(Bounds),
    Reserve,
    Clear,
    Discard,
}

fn bounds() -> impl Strategy<Value = Bounds> {
    (1usize..12, proptest::option::of(0usize..30)).prop_map(|(count_max, bytes_max)| Bounds { count_max, bytes_max })
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let weight = 0usize..12;
    let action = prop_oneof![
        8 => weight.clone().prop_map(Action::Push),
        4 => proptest::collection::vec(weight, 0..8).prop_map(Action::PushBatch),
        4 => Just(Action::Pop),
        2 => (0usize..8).prop_map(Action::PopBatch),
        2 => bounds().prop_map(Action::SetBounds),
        1 => Just(Action::Reserve),
        1 => Just(Action::Clear),
        1 => Just(Action::Discard),
    ];
    proptest::collection::vec(action, 1..80)
}

/// What a ring should hold and have counted, in the words of the module's text.
struct Model {
    held: VecDeque<Parcel>,
    bounds: Bounds,
    full: Full,
    counters: Counters,
    rejected: u64,
    id_next: u32,
}

impl Model {
    fn bytes(&self) -> usize {
        self.held.iter().map(|parcel| parcel.bytes).sum()
    }

    fn parcels(&mut self, weights: &[usize]) -> Vec<Parcel> {
        let ids = self.id_next..;
        self.id_next += weights.len() as u32;
        ids.zip(weights).map(|(id, &bytes)| Parcel { id, bytes }).collect()
    }

    fn is_within(&self, count: usize, bytes: usize) -> bool {
        count <= self.bounds.count_max && self.bounds.bytes_max.is_none_or(|bytes_max| bytes <= bytes_max)
    }

    /// What is lost if `parcels` are pushed, oldest first; `None`: they come back.
    fn push(&mut self, parcels: &[Parcel]) -> Option<Vec<Parcel>> {
        let (count, bytes) = (parcels.len(), parcels.iter().map(|parcel| parcel.bytes).sum::<usize>());
        if count == 0 {
            return Some(Vec::new());
        }
        let fits = |model: &Self| model.is_within(model.held.len() + count, model.bytes() + bytes);
        let mut lost = Vec::new();
        if !self.is_within(count, bytes) || self.full == Full::Reject && !fits(self) {
            self.rejected += count as u64;
            return None;
        }
        self.counters.accepted += count as u64;
        if self.full == Full::DropNewest && !fits(self) {
            lost.extend(parcels);
        } else {
            while !fits(self) {
                lost.extend(self.held.pop_front());
            }
            self.held.extend(parcels);
        }
        self.counters.dropped += lost.len() as u64;
        Some(lost)
    }

    fn pop(&mut self, demand: usize) -> Vec<Parcel> {
        let taken: Vec<_> = self.held.drain(..demand.min(self.held.len())).collect();
        self.counters.delivered += taken.len() as u64;
        taken
    }

    fn set_bounds(&mut self, bounds: Bounds) -> Vec<Parcel> {
        self.bounds = bounds;
        let mut lost = Vec::new();
        while self.full == Full::EvictOldest && !self.is_within(self.held.len(), self.bytes()) {
            lost.extend(self.held.pop_front());
        }
        self.counters.dropped += lost.len() as u64;
        lost
    }

    fn clear(&mut self) -> usize {
        let count = self.held.len();
        self.held.clear();
        self.counters.dropped += count as u64;
        count
    }
}

/// Does it to both; both must agree on what comes out.
fn act(ring: &mut Ring<Parcel>, model: &mut Model, action: &Action) {
    let mut lost = Vec::new();
    match action {
        Action::Push(weight) => {
            let parcel = model.parcels(&[*weight])[0];
            let expected = model.push(&[parcel]);
            match ring.push_with(parcel, |parcel| lost.push(parcel)) {
                Ok(count) => assert_eq!((count, Some(lost)), (expected.as_ref().map_or(0, Vec::len), expected)),
                Err(rejected) => assert_eq!((rejected.value, expected), (parcel, None)),
            }
        }
        Action::PushBatch(weights) => {
            let parcels = model.parcels(weights);
            let (expected, mut batch) = (model.push(&parcels), parcels.clone());
            match ring.push_batch_with(&mut batch, |parcel| lost.push(parcel)) {
                Ok(count) => {
                    assert_eq!((count, Some(lost)), (expected.as_ref().map_or(0, Vec::len), expected));
                    assert!(batch.is_empty());
                }
                Err(_) => assert_eq!((batch, expected), (parcels, None)),
            }
        }
        Action::Pop => {
            assert_eq!(ring.front(), model.held.front());
            assert_eq!(ring.pop(), model.pop(1).first().copied());
        }
        Action::PopBatch(demand) => {
            let expected = model.pop(*demand);
            assert_eq!(ring.pop_batch(*demand, &mut lost), expected.len());
            assert_eq!(lost, expected);
        }
        Action::SetBounds(bounds) => {
            let expected = model.set_bounds(*bounds);
            assert_eq!(ring.set_bounds_with(*bounds, |parcel| lost.push(parcel)), expected.len());
            assert_eq!(lost, expected);
        }
        Action::Reserve => ring.reserve(),
        Action::Clear => assert_eq!(ring.clear(), model.clear()),
        Action::Discard => assert_eq!(ring.discard().len(), model.clear()),
    }
}

fn agree(ring: &Ring<Parcel>, model: &Model) {
    assert!(ring.iter().eq(&model.held));
    assert_eq!(ring.snapshot().len(), ring.len());
    assert_eq!((ring.bytes(), ring.bounds(), ring.rejected()), (model.bytes(), model.bounds, model.rejected));
    assert_eq!(ring.counters(), Counters { held: model.held.len() as u64, ..model.counters });
    assert!(ring.counters().is_conserved());
    if ring.full() == Full::EvictOldest {
        assert!(ring.bounds().allow(ring.len(), ring.bytes()));
    }
    let has_left = ring.len() <= ring.bounds().count_max;
    assert!(!has_left || ring.values.capacity() <= ring.bounds().count_max, "more memory than may be needed");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 1000 },
        ..Default::default()
    })]

    #[test]
    fn a_ring_equals_the_model(
        bounds in bounds(),
        full in prop_oneof![Just(Full::EvictOldest), Just(Full::DropNewest), Just(Full::Reject)],
        actions in actions(),
    ) {
        let mut ring = Ring::weighed(bounds, full, |parcel: &Parcel| parcel.bytes);
        let mut model =
            Model { held: VecDeque::new(), bounds, full, counters: Counters::default(), rejected: 0, id_next: 0 };
        for action in &actions {
            act(&mut ring, &mut model, action);
            agree(&ring, &model);
        }
    }
}
