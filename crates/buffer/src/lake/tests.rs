//! A tiny model beside the real lake, fed with the same operations in every order that proptest thinks of. Each
//! operation of the lake is one critical section, so sequences of whole operations are all the interleavings there are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

use proptest::prelude::*;

use super::*;

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
fn a_batch_is_refused_whole_and_kept_by_its_owner() {
    let lake = Lake::new(2);
    let mut batch = vec![1, 2, 3];
    let error = lake.try_push_batch(&mut batch).unwrap_err();
    assert_eq!(error.to_string(), "no room for a batch of 3: 0 of 2 values are held and 0 producers wait");
    assert_eq!(batch, [1, 2, 3]);
    lake.close();
    assert_eq!(lake.try_push_batch(&mut batch), Err(TryPushError::Closed(Closed)));
    assert_eq!(batch, [1, 2, 3]);
}

#[test]
fn a_batch_larger_than_the_lake_goes_in_as_room_comes() {
    let lake = Arc::new(Lake::new(2));
    let bell = Arc::default();
    let mut batch = vec![1, 2, 3, 4, 5];
    let mut push = lake.push_batch(&mut batch);
    assert_eq!(poll_once(&mut push, &bell), Poll::Pending);
    let mut out = Vec::new();
    assert_eq!(lake.try_take(9, &mut out), 2);
    assert_eq!(bell.rings(), 1);
    assert_eq!(poll_once(&mut push, &bell), Poll::Pending);
    drop(push);
    assert_eq!(batch, [5], "what was not handed in stays with its owner");
    assert_eq!(lake.try_take(9, &mut out), 2);
    assert_eq!(out, [1, 2, 3, 4]);
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

#[test]
fn closing_ends_everybody_but_loses_nothing() {
    let lake = Arc::new(Lake::new(1));
    let (producer_bell, consumer_bell) = (Arc::default(), Arc::default());
    let mut consumer = Consumer::new(Arc::clone(&lake));
    let mut batch = vec![1, 2];
    let mut push = lake.push_batch(&mut batch);
    assert!(poll_once(&mut push, &producer_bell).is_pending());
    lake.close();
    assert_eq!(producer_bell.rings(), 1);
    assert_eq!(poll_once(&mut push, &producer_bell), Poll::Ready(Err(Closed)));
    drop(push);
    assert_eq!(batch, [2]);
    assert_eq!(poll_take(&mut consumer, 5, &consumer_bell), (Poll::Ready(1), vec![1]));
    assert_eq!(poll_take(&mut consumer, 5, &consumer_bell), (Poll::Ready(0), vec![]));
    assert!(lake.is_finished());
}

#[test]
fn a_waiting_consumer_hears_of_the_end() {
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
fn what_is_discarded_is_counted() {
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
    Close,
    /// Those who were woken are polled until nobody is.
    Run,
}

const ACTORS: usize = 3;

fn actions() -> impl Strategy<Value = Vec<Action>> {
    use Action::*;
    let action = prop_oneof![
        8 => (0..ACTORS, 1usize..30).prop_map(|(producer, count)| Push { producer, count }),
        2 => (0..ACTORS).prop_map(|producer| GiveUp { producer }),
        2 => (1usize..6).prop_map(|count| TryPush { count }),
        8 => (0..ACTORS, 0usize..6).prop_map(|(consumer, demand)| Take { consumer, demand }),
        2 => (0..ACTORS).prop_map(|consumer| Replace { consumer }),
        1 => (1usize..6).prop_map(|demand| TryTake { demand }),
        1 => Just(Discard),
        1 => Just(Close),
        4 => Just(Run),
    ];
    proptest::collection::vec(action, 1..80)
}

type Push = Pin<Box<dyn Future<Output = Result<(), Closed>>>>;

/// The future of a producer that owns its batch, what it has not handed in yet, and its bell.
#[derive(Default)]
struct Producer {
    push: Option<Push>,
    rest: VecDeque<u32>,
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
    closed: bool,
    value_next: u32,
    producers: [Producer; ACTORS],
    takers: [Taker; ACTORS],
}

impl World {
    fn new(capacity: usize) -> Self {
        let lake = Arc::new(Lake::new(capacity));
        let taker =
            || Taker { consumer: Consumer::new(Arc::clone(&lake)), demand: None, bell: Arc::default(), rings_heard: 0 };
        let takers = [taker(), taker(), taker()];
        Self { lake, held: VecDeque::new(), closed: false, value_next: 0, producers: Default::default(), takers }
    }

    fn values(&mut self, count: usize) -> Vec<u32> {
        self.value_next += count as u32;
        (self.value_next - count as u32..self.value_next).collect()
    }

    fn poll_producer(&mut self, index: usize) {
        let accepted = self.lake.counters().accepted;
        let producer = &mut self.producers[index];
        producer.rings_heard = producer.bell.rings();
        let Some(push) = &mut producer.push else { return };
        let result = poll_once(push, &producer.bell);
        let count = (self.lake.counters().accepted - accepted) as usize;
        self.held.extend(producer.rest.drain(..count));
        if let Poll::Ready(result) = result {
            assert_eq!(result, if producer.rest.is_empty() { Ok(()) } else { Err(Closed) });
            (producer.push, producer.rest) = (None, VecDeque::new());
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
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Push { producer, count } if self.producers[producer].push.is_none() => {
                let mut batch = self.values(count);
                let lake = Arc::clone(&self.lake);
                let actor = &mut self.producers[producer];
                actor.rest = batch.iter().copied().collect();
                actor.push = Some(Box::pin(async move { lake.push_batch(&mut batch).await }));
                self.poll_producer(producer);
            }
            Action::Push { producer, .. } => self.poll_producer(producer), // A wake-up from elsewhere.
            Action::GiveUp { producer } => {
                (self.producers[producer].push, self.producers[producer].rest) = (None, VecDeque::new());
            }
            Action::TryPush { count } => {
                let mut batch = self.values(count);
                let values = batch.clone();
                if self.lake.try_push_batch(&mut batch).is_ok() {
                    self.held.extend(values);
                } else {
                    assert_eq!(batch, values);
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
            Action::Discard => assert_eq!(self.lake.discard(), std::mem::take(&mut self.held).len()),
            Action::Close => {
                self.lake.close();
                self.closed = true;
            }
            Action::Run => self.run(),
        }
        let counters = self.lake.counters();
        assert_eq!(counters.held as usize, self.held.len());
        assert_eq!(counters.accepted, counters.delivered + counters.dropped + counters.held);
        assert!(self.held.len() <= self.lake.capacity());
    }

    /// Polls those who were woken, and only those, until nobody is; consumers ask again as long as they get something.
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
        let producer_waits = self.producers.iter().any(|producer| producer.push.is_some());
        let taker_waits = self.takers.iter().any(|taker| taker.demand.is_some());
        assert!(!(producer_waits && taker_waits), "both sides wait for each other: a wake-up was lost");
        assert!(!taker_waits || self.held.is_empty(), "a consumer waits beside values");
        assert!(!(producer_waits && (self.held.is_empty() || self.closed)), "a producer waits for nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_reordered_or_forgotten(capacity in 1usize..20, actions in actions()) {
        let mut world = World::new(capacity);
        actions.into_iter().for_each(|action| world.act(action));
        world.run();
    }
}

/// The same over real threads, each parked until it is woken: a lost wake-up would hang it.
#[test]
fn threads_hand_everything_over() {
    const BATCHES: u32 = 300;
    const BATCH: u32 = 37;
    let lake = Arc::new(Lake::new(64));
    let taken: u64 = std::thread::scope(|scope| {
        let takers: Vec<_> = (1..=3)
            .map(|demand| {
                let mut consumer = Consumer::new(Arc::clone(&lake));
                scope.spawn(move || {
                    let (mut out, mut sum) = (Vec::new(), 0);
                    while block_on(consumer.take(demand * 5, &mut out)) > 0 {
                        sum += out.drain(..).map(u64::from).sum::<u64>();
                    }
                    sum
                })
            })
            .collect();
        let producers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..BATCHES {
                        block_on(lake.push_batch(&mut (0..BATCH).collect())).unwrap();
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        lake.close();
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    assert_eq!(taken, 3 * u64::from(BATCHES) * u64::from(BATCH * (BATCH - 1) / 2));
}

/// Wakes a parked thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}
