//! A small model and the real lake run the same operations, in random orders. Each
//! operation of the lake is one critical section, so sequences of whole operations are all the interleavings there are.
//! (Real threads: `tests/lake_threads.rs`; that it is one critical section: `interleavings.rs`.)

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

use proptest::prelude::*;

use super::*;
use crate::NoRoom;

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn rings(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Polls once with a waker that rings `bell`.
fn poll_once<F: Future + Unpin>(future: &mut F, bell: &Arc<Bell>) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell))))
}

fn poll_take(consumer: &mut Consumer<u32>, demand: usize, bell: &Arc<Bell>) -> (Poll<usize>, Vec<u32>) {
    let mut out = Vec::new();
    let waker = Waker::from(Arc::clone(bell));
    (consumer.poll_take(&mut Context::from_waker(&waker), demand, &mut out), out)
}

#[test]
fn values_leave_in_the_order_they_came() {
    let lake = Arc::new(Lake::new(4));
    let bell = Arc::default();
    lake.try_push_batch(&mut vec![1, 2, 3]).unwrap();
    let mut consumer = Consumer::new(Arc::clone(&lake));
    assert_eq!(poll_take(&mut consumer, 2, &bell), (Poll::Ready(2), vec![1, 2]));
    assert_eq!(poll_take(&mut consumer, 2, &bell), (Poll::Ready(1), vec![3]));
    assert_eq!(poll_take(&mut consumer, 2, &bell), (Poll::Pending, vec![]));
    assert_eq!(lake.counters(), Counters { accepted: 3, delivered: 3, dropped: 0, held: 0 });
}

#[test]
fn a_refused_batch_is_unchanged() {
    let lake = Lake::new(2);
    let mut batch = vec![1, 2, 3];
    let error = lake.try_push_batch(&mut batch).unwrap_err();
    assert_eq!(error.to_string(), "3 values of 12 bytes never fit into a buffer of 2 values");
    assert_eq!(batch, [1, 2, 3]);
    batch.pop();
    lake.push(9).unwrap();
    let error = lake.try_push_batch(&mut batch).unwrap_err();
    assert_eq!(error.to_string(), "no room for 2 values of 8 bytes: 1 values of 4 bytes are held of 2 values");
    assert_eq!((&batch[..], lake.rejected()), (&[1, 2][..], 5));
    lake.close();
    assert_eq!(lake.try_push_batch(&mut batch), Err(TryPushError::Closed(Closed)));
    assert_eq!(batch, [1, 2]);
    assert_eq!(lake.push(7).map_err(|rejected| rejected.value), Err(7));
}

#[test]
fn a_batch_larger_than_the_lake_goes_in_as_room_becomes_free() {
    let lake = Arc::new(Lake::new(2));
    let bell = Arc::default();
    let mut batch = vec![1, 2, 3, 4, 5];
    let mut push = lake.push_batch(&mut batch);
    assert_eq!(poll_once(&mut push, &bell), Poll::Pending);
    let mut out = Vec::new();
    assert_eq!(lake.try_take(9, &mut out), 2);
    assert_eq!(lake.snapshot(), [3, 4], "they go in without a poll");
    assert_eq!(bell.rings(), 0, "the producer is woken when all is in");
    assert_eq!(poll_once(&mut push, &bell), Poll::Pending);
    drop(push);
    assert_eq!(batch, [5], "the remaining values come back into the batch");
    assert_eq!(lake.try_take(9, &mut out), 2);
    assert_eq!(out, [1, 2, 3, 4]);
}

#[test]
fn a_value_that_fits_never_waits_for_more_room() {
    let lake = Lake::new(1000);
    lake.try_push_batch(&mut (0..1000).collect()).unwrap();
    let (mut batches, bells): ([Vec<u32>; 3], [Arc<Bell>; 3]) =
        ([vec![1000], vec![1001, 1002], vec![1003]], Default::default());
    let mut pushes = batches.each_mut().map(|batch| lake.push_batch(batch));
    for (push, bell) in pushes.iter_mut().zip(&bells) {
        assert!(poll_once(push, bell).is_pending());
    }
    for (value, rings) in [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]].into_iter().enumerate() {
        assert_eq!(lake.pop(), Some(value as u32));
        assert_eq!(lake.counters().held, 1000, "a place is taken as soon as it is free");
        assert_eq!(bells.each_ref().map(|bell| bell.rings()), rings, "in the order of the line, and once each");
    }
    assert_eq!(lake.snapshot(), (4..1004).collect::<Vec<_>>());
    assert!(pushes.iter_mut().zip(&bells).all(|(push, bell)| poll_once(push, bell) == Poll::Ready(Ok(()))));
}

#[test]
fn a_producer_that_is_not_polled_holds_up_no_other() {
    let lake = Lake::new(1);
    lake.push(0).unwrap();
    let (mut idle_batch, mut other_batch) = (vec![1], vec![2]);
    let mut idle = lake.push_batch(&mut idle_batch);
    let mut other = lake.push_batch(&mut other_batch);
    let bell = Arc::default();
    assert!(poll_once(&mut idle, &Arc::default()).is_pending() && poll_once(&mut other, &bell).is_pending());
    assert_eq!((lake.pop(), lake.pop(), bell.rings()), (Some(0), Some(1), 1));
    assert_eq!(poll_once(&mut other, &bell), Poll::Ready(Ok(())));
    drop(idle);
    assert_eq!((idle_batch, lake.pop()), (vec![], Some(2)), "it was put in, although its future was dropped");
}

#[test]
fn the_memory_of_a_batch_comes_back() {
    let lake = Lake::new(1);
    lake.push(0).unwrap();
    let mut batch = Vec::with_capacity(64);
    batch.push(1);
    let mut push = lake.push_batch(&mut batch);
    let bell = Arc::default();
    assert!(poll_once(&mut push, &bell).is_pending());
    lake.pop();
    assert_eq!(poll_once(&mut push, &bell), Poll::Ready(Ok(())));
    drop(push);
    assert_eq!((batch.len(), batch.capacity()), (0, 64));
}

#[test]
fn one_consumer_is_woken_for_a_batch_that_one_can_use() {
    let lake = Arc::new(Lake::new(100));
    let (first_bell, second_bell) = (Arc::default(), Arc::default());
    let mut first = Consumer::new(Arc::clone(&lake));
    let mut second = Consumer::new(Arc::clone(&lake));
    assert!(poll_take(&mut first, 10, &first_bell).0.is_pending());
    assert!(poll_take(&mut second, 10, &second_bell).0.is_pending());
    lake.try_push_batch(&mut (0..10).collect()).unwrap();
    assert_eq!((first_bell.rings(), second_bell.rings()), (1, 0));
    lake.try_push_batch(&mut vec![10]).unwrap();
    assert_eq!((first_bell.rings(), second_bell.rings()), (1, 1), "the first one's demand no longer covers it");
}

#[test]
fn a_woken_consumer_that_takes_less_leaves_the_rest_to_the_next() {
    let lake = Arc::new(Lake::new(100));
    let (first_bell, second_bell) = (Arc::default(), Arc::default());
    let mut first = Consumer::new(Arc::clone(&lake));
    let mut second = Consumer::new(Arc::clone(&lake));
    assert!(poll_take(&mut first, 10, &first_bell).0.is_pending());
    assert!(poll_take(&mut second, 10, &second_bell).0.is_pending());
    lake.try_push_batch(&mut vec![1, 2]).unwrap();
    let mut out = Vec::new();
    assert_eq!(poll_once(&mut first.take(1, &mut out), &first_bell), Poll::Ready(1));
    assert_eq!((first_bell.rings(), second_bell.rings()), (1, 1));
}

#[test]
fn a_consumer_that_polls_again_keeps_its_place() {
    let lake = Arc::new(Lake::new(100));
    let (first_bell, second_bell) = (Arc::default(), Arc::default());
    let (mut first, mut second) = (Consumer::new(Arc::clone(&lake)), Consumer::new(Arc::clone(&lake)));
    let mut out = Vec::new();
    let mut taken = first.take(1, &mut out);
    assert!(poll_once(&mut taken, &first_bell).is_pending());
    assert!(poll_take(&mut second, 1, &second_bell).0.is_pending());
    assert!(poll_once(&mut taken, &first_bell).is_pending());
    lake.push(1).unwrap();
    assert_eq!((first_bell.rings(), second_bell.rings()), (1, 0));
}

#[test]
fn a_woken_consumer_that_leaves_passes_its_wake_up_on() {
    for leave in [drop as fn(Consumer<u32>), |mut consumer| _ = poll_take(&mut consumer, 0, &Arc::default())] {
        let lake = Arc::new(Lake::new(100));
        let (first_bell, second_bell) = (Arc::default(), Arc::default());
        let mut first = Consumer::new(Arc::clone(&lake));
        let mut second = Consumer::new(Arc::clone(&lake));
        assert!(poll_take(&mut first, 10, &first_bell).0.is_pending());
        assert!(poll_take(&mut second, 10, &second_bell).0.is_pending());
        lake.try_push_batch(&mut vec![1]).unwrap();
        leave(first);
        assert_eq!(second_bell.rings(), 1);
    }
}

/// The model found this bug: when the first producer left a lake with room, the next one was not woken.
#[test]
fn a_producer_that_gives_up_lets_the_next_one_in() {
    let lake = Lake::from(Ring::weighed(Bounds::count(9).and_bytes(4), Full::Reject, |it: &u32| *it as usize));
    let (first_bell, second_bell) = (Arc::default(), Arc::default());
    let (mut first_batch, mut second_batch) = (vec![3, 2], vec![1]);
    let mut first = lake.push_batch(&mut first_batch);
    assert!(poll_once(&mut first, &first_bell).is_pending());
    let mut second = lake.push_batch(&mut second_batch);
    assert!(poll_once(&mut second, &second_bell).is_pending(), "it fits, but does not overtake");
    drop(first);
    assert_eq!((first_bell.rings(), second_bell.rings()), (0, 1));
    assert_eq!((first_batch, lake.snapshot()), (vec![2], vec![3, 1]));
}

#[test]
fn more_room_wakes_the_first_in_line() {
    let lake = Lake::new(2);
    let bell = Arc::default();
    lake.push(0).unwrap();
    let mut batch = vec![1, 2, 3];
    let mut push = lake.push_batch(&mut batch);
    assert!(poll_once(&mut push, &bell).is_pending());
    assert_eq!(lake.set_capacity(4), 0);
    assert_eq!(bell.rings(), 1);
    assert_eq!(poll_once(&mut push, &bell), Poll::Ready(Ok(())));
    assert_eq!(lake.snapshot(), [0, 1, 2, 3]);
}

#[test]
fn a_value_that_can_never_fit_is_refused_at_once() {
    let lake = Lake::from(Ring::weighed(Bounds::count(9).and_bytes(4), Full::Reject, |it: &u32| *it as usize));
    let bell = Arc::default();
    let mut batch = vec![1, 5, 2];
    let error = poll_once(&mut lake.push_batch(&mut batch), &bell);
    assert!(matches!(error, Poll::Ready(Err(PushError::TooLarge(NoRoom::TooLarge { count: 1, bytes: 5, .. })))));
    assert_eq!((batch, lake.snapshot()), (vec![5, 2], vec![1]));
    let mut batch = vec![4];
    let mut push = lake.push_batch(&mut batch);
    assert!(poll_once(&mut push, &bell).is_pending());
    lake.set_bounds(Bounds::count(9).and_bytes(3));
    assert_eq!(bell.rings(), 1, "the bound has become smaller than what it waits with");
    assert!(poll_once(&mut push, &bell).is_ready());
}

#[test]
fn only_evicting_producers_overtake_waiting_ones() {
    for (full, expected) in [(Full::EvictOldest, Ok(0)), (Full::DropNewest, Ok(1)), (Full::Reject, Err(1))] {
        let bounds = Bounds::count(9).and_bytes(8);
        let lake = Lake::from(Ring::weighed(bounds, full, |it: &u32| *it as usize));
        let bell = Arc::default();
        let mut batch = vec![4, 3, 5];
        let mut push = lake.push_batch(&mut batch);
        assert!(poll_once(&mut push, &bell).is_pending());
        assert_eq!(lake.push(1).map_err(|rejected| rejected.value), expected, "{full:?}");
        assert!(lake.counters().is_conserved());
    }
}

/// A value or a waker that comes back to the lake when it is dropped, as the last handle of a task may.
struct Boomerang(Option<Arc<Lake<Boomerang>>>);

impl Drop for Boomerang {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|lake| _ = lake.counters());
    }
}

struct BoomerangWaker(#[expect(dead_code, reason = "it is there to be dropped")] Boomerang);

impl Wake for BoomerangWaker {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn nothing_foreign_is_dropped_under_the_lock() {
    let lake = Arc::new(Lake::from(Ring::new(1, Full::EvictOldest)));
    let boomerang = || Boomerang(Some(Arc::clone(&lake)));
    let mut consumer = Consumer::new(Arc::clone(&lake));
    for demand in [1, 1, 0] {
        let waker = Waker::from(Arc::new(BoomerangWaker(boomerang())));
        assert!(consumer.poll_take(&mut Context::from_waker(&waker), demand, &mut Vec::new()).is_pending());
    }
    lake.push(boomerang()).ok().unwrap();
    assert_eq!(lake.push(boomerang()).ok(), Some(1));
    assert_eq!(lake.push_all(&mut vec![boomerang()]), Ok(1));
    assert_eq!(lake.discard(), 1);
}

#[test]
fn the_last_waker_is_woken() {
    let lake = Arc::new(Lake::new(1));
    let (old_bell, new_bell, producer_bell) = (Arc::default(), Arc::default(), Arc::default());
    let mut consumer = Consumer::new(Arc::clone(&lake));
    assert!(poll_take(&mut consumer, 1, &old_bell).0.is_pending());
    assert!(poll_take(&mut consumer, 1, &new_bell).0.is_pending());
    let mut batch = vec![1, 2, 3];
    let mut push = lake.push_batch(&mut batch);
    for bell in [&old_bell, &producer_bell] {
        assert!(poll_once(&mut push, bell).is_pending());
    }
    assert_eq!((old_bell.rings(), new_bell.rings()), (0, 1));
    assert_eq!(Arc::strong_count(&old_bell), 1, "the replaced wakers are dropped");
    assert_eq!([lake.pop(), lake.pop()], [Some(1), Some(2)]);
    assert_eq!((old_bell.rings(), producer_bell.rings()), (0, 1));
}

#[test]
fn closing_ends_all_waits_and_loses_nothing() {
    let lake = Arc::new(Lake::new(1));
    let (producer_bell, consumer_bell) = (Arc::default(), Arc::default());
    let mut consumer = Consumer::new(Arc::clone(&lake));
    let mut batch = vec![1, 2];
    let mut push = lake.push_batch(&mut batch);
    assert!(poll_once(&mut push, &producer_bell).is_pending());
    lake.close();
    assert_eq!(producer_bell.rings(), 1);
    assert_eq!(poll_once(&mut push, &producer_bell), Poll::Ready(Err(Closed.into())));
    drop(push);
    assert_eq!(batch, [2]);
    assert_eq!(poll_take(&mut consumer, 5, &consumer_bell), (Poll::Ready(1), vec![1]));
    assert_eq!(poll_take(&mut consumer, 5, &consumer_bell), (Poll::Ready(0), vec![]));
    assert!(lake.is_finished());
}

#[test]
fn a_refused_batch_comes_back_also_to_a_future_that_is_dropped() {
    let lake = Lake::new(1);
    let mut batch = vec![1, 2];
    let mut push = lake.push_batch(&mut batch);
    assert!(poll_once(&mut push, &Arc::default()).is_pending());
    lake.close();
    drop(push);
    assert_eq!(batch, [2]);
}

#[test]
fn a_waiting_consumer_is_woken_by_the_close() {
    let lake = Arc::new(Lake::<u32>::new(1));
    let bells: [Arc<Bell>; 2] = Default::default();
    let mut consumers = bells.each_ref().map(|_| Consumer::new(Arc::clone(&lake)));
    for (consumer, bell) in consumers.iter_mut().zip(&bells) {
        assert!(poll_take(consumer, 1, bell).0.is_pending());
    }
    lake.close();
    assert_eq!(bells.each_ref().map(|bell| bell.rings()), [1, 1]);
}

#[test]
fn discarded_values_are_counted() {
    let lake = Lake::new(4);
    lake.try_push_batch(&mut vec![1, 2, 3]).unwrap();
    assert_eq!(lake.discard(), 3);
    assert_eq!(lake.counters(), Counters { accepted: 3, delivered: 0, dropped: 3, held: 0 });
}

#[derive(Debug, Clone)]
enum Action {
    /// A producer begins a batch of this many, unless it still has one.
    Push {
        producer: usize,
        count: usize,
    },
    /// A producer's future is dropped with what it has not handed in.
    GiveUp {
        producer: usize,
    },
    TryPush {
        count: usize,
    },
    /// Under the lake's policy, one by one or all together.
    PushNow {
        count: usize,
        together: bool,
    },
    /// A consumer asks; 0 withdraws.
    Take {
        consumer: usize,
        demand: usize,
    },
    /// A consumer is dropped and made anew.
    Replace {
        consumer: usize,
    },
    TryTake {
        demand: usize,
    },
    Discard,
    SetBounds(Bounds),
    Close,
    /// Polls the woken tasks until none is woken.
    Run,
}

const ACTORS: usize = 3;

fn bounds() -> impl Strategy<Value = Bounds> {
    (1usize..20, proptest::option::of(0usize..30)).prop_map(|(count_max, bytes_max)| Bounds { count_max, bytes_max })
}

fn policies() -> impl Strategy<Value = Full> {
    prop_oneof![Just(Full::EvictOldest), Just(Full::DropNewest), Just(Full::Reject)]
}

const WEIGHT_MAX: usize = 3;

/// The weight of a value, from 0 to [`WEIGHT_MAX`].
fn weigh(value: &u32) -> usize {
    *value as usize % (WEIGHT_MAX + 1)
}

fn weigh_all<'a>(values: impl IntoIterator<Item = &'a u32>) -> usize {
    values.into_iter().map(weigh).sum()
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    use Action::*;
    let action = prop_oneof![
        8 => (0..ACTORS, 1usize..30).prop_map(|(producer, count)| Push { producer, count }),
        2 => (0..ACTORS).prop_map(|producer| GiveUp { producer }),
        2 => (1usize..6).prop_map(|count| TryPush { count }),
        3 => (1usize..6, any::<bool>()).prop_map(|(count, together)| PushNow { count, together }),
        8 => (0..ACTORS, 0usize..6).prop_map(|(consumer, demand)| Take { consumer, demand }),
        2 => (0..ACTORS).prop_map(|consumer| Replace { consumer }),
        1 => (1usize..6).prop_map(|demand| TryTake { demand }),
        1 => Just(Discard),
        2 => bounds().prop_map(SetBounds),
        1 => Just(Close),
        4 => Just(Run),
    ];
    proptest::collection::vec(action, 1..80)
}

/// Resolves with what is left of the batch.
type Push = Pin<Box<dyn Future<Output = (Result<(), PushError>, Vec<u32>)>>>;

/// How a wait must end.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Done,
    TooLarge,
    Closed,
}

/// The future of a producer that owns its batch, what it has not handed in yet, how its wait has ended, and its bell.
#[derive(Default)]
struct Producer {
    push: Option<Push>,
    rest: VecDeque<u32>,
    end: Option<End>,
    bell: Arc<Bell>,
    rings_heard: u64,
}

struct Taker {
    consumer: Consumer<u32>,
    /// What it waits for.
    demand: Option<usize>,
    bell: Arc<Bell>,
    rings_heard: u64,
}

/// The real lake, and what it should hold.
struct World {
    lake: Arc<Lake<u32>>,
    held: VecDeque<u32>,
    full: Full,
    bounds: Bounds,
    dropped: u64,
    closed: bool,
    value_next: u32,
    producers: [Producer; ACTORS],
    /// The producers that wait, by index.
    line: VecDeque<usize>,
    takers: [Taker; ACTORS],
}

impl World {
    fn new(bounds: Bounds, full: Full) -> Self {
        let lake = Arc::new(Lake::from(Ring::weighed(bounds, full, weigh)));
        let taker =
            || Taker { consumer: Consumer::new(Arc::clone(&lake)), demand: None, bell: Arc::default(), rings_heard: 0 };
        let takers = [taker(), taker(), taker()];
        let (held, producers, line) = Default::default();
        Self { lake, held, full, bounds, dropped: 0, closed: false, value_next: 0, producers, line, takers }
    }

    fn values(&mut self, count: usize) -> Vec<u32> {
        self.value_next += count as u32;
        (self.value_next - count as u32..self.value_next).collect()
    }

    /// The rule: values go in as soon as they fit, in the order of the line.
    fn let_producers_in(&mut self) {
        while let Some(&index) = self.line.front() {
            while !self.closed
                && let Some(&next) = self.producers[index].rest.front()
                && self.has_room(&[next])
            {
                self.held.extend(self.producers[index].rest.pop_front());
            }
            let producer = &mut self.producers[index];
            producer.end = match producer.rest.front() {
                None => Some(End::Done),
                Some(_) if self.closed => Some(End::Closed),
                Some(next) if !self.bounds.allow(1, weigh(next)) => Some(End::TooLarge),
                Some(_) => return,
            };
            self.line.pop_front();
        }
    }

    fn poll_producer(&mut self, index: usize) {
        self.let_producers_in();
        let producer = &mut self.producers[index];
        producer.rings_heard = producer.bell.rings();
        let Some(push) = &mut producer.push else { return };
        let polled = poll_once(push, &producer.bell);
        let end = match &polled {
            Poll::Pending => None,
            Poll::Ready((Ok(()), _)) => Some(End::Done),
            Poll::Ready((Err(PushError::TooLarge(_)), _)) => Some(End::TooLarge),
            Poll::Ready((Err(PushError::Closed(_)), _)) => Some(End::Closed),
        };
        assert!(end == producer.end, "{polled:?}");
        if let Poll::Ready((_, rest)) = polled {
            assert_eq!(rest, producer.rest.drain(..).collect::<Vec<_>>());
            (producer.push, producer.end) = (None, None);
        }
    }

    fn poll_taker(&mut self, index: usize, demand: usize) {
        let taker = &mut self.takers[index];
        taker.rings_heard = taker.bell.rings();
        let (polled, values) = poll_take(&mut taker.consumer, demand, &taker.bell);
        taker.demand = (polled.is_pending() && demand > 0).then_some(demand);
        let expected: Vec<u32> = self.held.drain(..demand.min(self.held.len())).collect();
        assert_eq!(values, expected);
        match polled {
            Poll::Ready(0) => assert!(self.closed && self.held.is_empty()),
            Poll::Ready(count) => assert_eq!(count, expected.len()),
            Poll::Pending => assert!(expected.is_empty()),
        }
        self.let_producers_in();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Push { producer, count } if self.producers[producer].push.is_none() => {
                let mut batch = self.values(count);
                let lake = Arc::clone(&self.lake);
                let actor = &mut self.producers[producer];
                actor.rest = batch.iter().copied().collect();
                actor.push = Some(Box::pin(async move { (lake.push_batch(&mut batch).await, batch) }));
                self.line.push_back(producer);
                self.poll_producer(producer);
            }
            Action::Push { producer, .. } => self.poll_producer(producer), // A wake-up from elsewhere.
            Action::GiveUp { producer } => {
                let Producer { bell, rings_heard, .. } = std::mem::take(&mut self.producers[producer]);
                self.producers[producer] = Producer { bell, rings_heard, ..Producer::default() };
                self.line.retain(|index| *index != producer);
            }
            Action::TryPush { count } => {
                let mut batch = self.values(count);
                let values = batch.clone();
                let fits = !self.closed && self.line.is_empty() && self.has_room(&values);
                assert_eq!(self.lake.try_push_batch(&mut batch).is_ok(), fits);
                if fits {
                    self.held.extend(values);
                } else {
                    assert_eq!(batch, values);
                }
            }
            Action::PushNow { count, together: true } => {
                let mut batch = self.values(count);
                let values = batch.clone();
                let expected = self.push_now(&values);
                assert_eq!(self.lake.push_all(&mut batch).ok(), expected);
                assert_eq!(batch, if expected.is_some() { vec![] } else { values });
            }
            Action::PushNow { count, together: false } => {
                for value in self.values(count) {
                    let expected = self.push_now(&[value]).ok_or(value);
                    assert_eq!(self.lake.push(value).map_err(|rejected| rejected.value), expected);
                    self.let_producers_in(); // An evicted value may be heavier than the new one.
                }
            }
            Action::Take { consumer, demand } => self.poll_taker(consumer, demand),
            Action::Replace { consumer } => {
                self.takers[consumer].consumer = Consumer::new(Arc::clone(&self.lake));
                self.takers[consumer].demand = None;
            }
            Action::TryTake { demand } => {
                let mut out = Vec::new();
                self.lake.try_take(demand, &mut out);
                assert_eq!(out, self.held.drain(..demand.min(self.held.len())).collect::<Vec<_>>());
            }
            Action::Discard => {
                let count = std::mem::take(&mut self.held).len();
                self.dropped += count as u64;
                assert_eq!(self.lake.discard(), count);
            }
            Action::SetBounds(bounds) => {
                self.bounds = bounds;
                let evicted = if self.full == Full::EvictOldest { self.evict_for(&[]) } else { 0 };
                assert_eq!(self.lake.set_bounds(bounds), evicted);
            }
            Action::Close => {
                self.lake.close();
                self.closed = true;
            }
            Action::Run => self.run(),
        }
        self.let_producers_in();
        for producer in self.producers.iter().filter(|producer| producer.push.is_some()) {
            let rang = producer.bell.rings() > producer.rings_heard;
            assert_eq!(producer.end.is_some(), rang, "a producer is woken when its wait ends, and not before");
        }
        let counters = self.lake.counters();
        assert_eq!((counters.held as usize, counters.dropped), (self.held.len(), self.dropped));
        assert!(counters.is_conserved());
        assert_eq!(
            (self.lake.snapshot(), self.lake.bytes()),
            (self.held.iter().copied().collect(), weigh_all(&self.held))
        );
    }

    fn has_room(&self, values: &[u32]) -> bool {
        self.bounds.allow(self.held.len() + values.len(), weigh_all(&self.held) + weigh_all(values))
    }

    fn evict_for(&mut self, values: &[u32]) -> usize {
        let before = self.held.len();
        while !self.has_room(values) && self.held.pop_front().is_some() {}
        self.dropped += (before - self.held.len()) as u64;
        before - self.held.len()
    }

    /// How many values are lost for new ones under the policy, or `None` if they are rejected.
    fn push_now(&mut self, values: &[u32]) -> Option<usize> {
        let is_in_their_way = !self.line.is_empty() || !self.has_room(values);
        match self.full {
            _ if self.closed || !self.bounds.allow(values.len(), weigh_all(values)) => None,
            Full::Reject if is_in_their_way => None,
            Full::DropNewest if is_in_their_way => {
                self.dropped += values.len() as u64;
                Some(values.len())
            }
            _ => {
                let evicted = self.evict_for(values);
                self.held.extend(values);
                Some(evicted)
            }
        }
    }

    /// Polls only the woken tasks until none is woken. Consumers ask again as long as they get values.
    fn run(&mut self) {
        loop {
            let producer = self.producers.iter().position(|it| it.push.is_some() && it.bell.rings() > it.rings_heard);
            let taker = self.takers.iter().position(|it| it.demand.is_some() && it.bell.rings() > it.rings_heard);
            match (producer, taker) {
                (Some(index), _) => self.poll_producer(index),
                (_, Some(index)) => {
                    let demand = self.takers[index].demand.expect("it waits");
                    self.poll_taker(index, demand);
                    if self.takers[index].demand.is_none() && !self.lake.is_finished() {
                        self.poll_taker(index, demand);
                    }
                }
                (None, None) => break,
            }
        }
        let taker_waits = self.takers.iter().any(|taker| taker.demand.is_some());
        assert!(self.line.is_empty() || !taker_waits, "both sides wait for each other: a wake-up was lost");
        assert!(!taker_waits || self.held.is_empty(), "a consumer waits beside values");
        assert!(self.line.is_empty() || !(self.held.is_empty() || self.closed), "a producer waits for nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 1000 },
        ..Default::default()
    })]

    #[test]
    fn nothing_is_lost_doubled_reordered_or_forgotten(bounds in bounds(), full in policies(), actions in actions()) {
        let mut world = World::new(bounds, full);
        actions.into_iter().for_each(|action| world.act(action));
        world.run();
    }
}
