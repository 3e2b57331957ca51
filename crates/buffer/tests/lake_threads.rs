//! The lake with real threads that do everything at once. The sums of the threads equal the lake's counters at every moment,
//! and no thread is left asleep.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tidings_buffer::{Bounds, Consumer, Full, Lake, Ring};

const PRODUCER_COUNT: u64 = 3;
const CONSUMER_COUNT: u64 = 3;
/// Values of each producer.
const VALUE_COUNT: u64 = if cfg!(miri) { 60 } else { 30_000 };
/// At least this many bytes are always allowed, so that every single value fits at some time.
const BYTES_MIN: usize = 8;

/// The number of the producer is in the upper half, its values count up in the lower.
fn weigh(value: &u64) -> usize {
    (value % 5) as usize
}

/// Xorshift: fast, and the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What one thread saw.
#[derive(Default)]
struct Seen {
    accepted: u64,
    delivered: u64,
    dropped: u64,
    rejected: u64,
}

#[test]
fn the_sums_of_the_threads_equal_the_counters() {
    for full in [Full::EvictOldest, Full::DropNewest, Full::Reject] {
        let mut ring = Ring::weighed(Bounds::count(50).and_bytes(100), full, weigh);
        ring.reserve();
        let lake = Arc::new(Lake::from(ring));
        let is_over = AtomicBool::new(false);
        let seen: Vec<Seen> = thread::scope(|scope| {
            let (lake, is_over) = (&lake, &is_over);
            let producers: Vec<_> =
                (1..=PRODUCER_COUNT).map(|number| scope.spawn(move || produce(lake, number))).collect();
            let mut others: Vec<_> =
                (0..CONSUMER_COUNT).map(|seed| scope.spawn(move || consume(lake, seed + 100))).collect();
            others.push(scope.spawn(move || meddle(lake, is_over)));
            let mut seen: Vec<_> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            lake.close();
            seen.extend(others.into_iter().map(|other| other.join().unwrap()));
            seen
        });
        let sum = |field: fn(&Seen) -> u64| seen.iter().map(field).sum::<u64>();
        let counters = lake.counters();
        assert!(lake.is_finished() && counters.held == 0, "consumers have heard of the end when all was taken");
        assert_eq!(counters.accepted, sum(|seen| seen.accepted));
        assert_eq!(counters.delivered, sum(|seen| seen.delivered));
        assert_eq!(counters.dropped, sum(|seen| seen.dropped));
        assert_eq!(lake.rejected(), sum(|seen| seen.rejected));
        assert!(counters.is_conserved());
    }
}

/// Puts its values in, in all possible ways.
fn produce(lake: &Lake<u64>, number: u64) -> Seen {
    let (mut dice, mut seen, mut next) = (Dice(number), Seen::default(), 0);
    while next < VALUE_COUNT {
        let count = 1 + dice.below(6);
        let mut batch: Vec<u64> = (next..next + count).map(|value| number << 32 | value).collect();
        next += count;
        let result = match dice.below(4) {
            0 => lake.push_all(&mut batch).ok(),
            1 => lake.try_push_batch(&mut batch).ok().map(|()| 0),
            2 => {
                block_on(lake.push_batch(&mut batch)).expect("open, and every value fits at some time");
                Some(0)
            }
            _ => {
                let lost = batch.into_iter().map(|value| match lake.push(value) {
                    Ok(lost) => (1, lost as u64, 0),
                    Err(rejected) => (0, 0, u64::from(rejected.value == value)),
                });
                let (accepted, dropped, rejected) = lost.fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
                seen.accepted += accepted;
                seen.dropped += dropped;
                seen.rejected += rejected;
                continue;
            }
        };
        match result {
            Some(lost) => {
                assert!(batch.is_empty());
                seen.accepted += count;
                seen.dropped += lost as u64;
            }
            None => {
                assert_eq!(batch.len() as u64, count, "it comes back whole");
                seen.rejected += count;
            }
        }
    }
    seen
}

/// Takes values in all possible ways, and sometimes gives up while it waits.
fn consume(lake: &Arc<Lake<u64>>, seed: u64) -> Seen {
    let (mut dice, mut seen) = (Dice(seed), Seen::default());
    let mut last = [None; PRODUCER_COUNT as usize + 1];
    let mut consumer = Consumer::new(Arc::clone(lake));
    let mut out = Vec::new();
    loop {
        match dice.below(4) {
            0 => out.extend(lake.pop()),
            1 => _ = lake.try_take(dice.below(9) as usize, &mut out),
            2 => {
                let mut cx = Context::from_waker(Waker::noop());
                _ = consumer.poll_take(&mut cx, dice.below(9) as usize, &mut out);
                match dice.below(2) {
                    0 => consumer = Consumer::new(Arc::clone(lake)),
                    _ => _ = consumer.poll_take(&mut cx, 0, &mut out),
                }
            }
            _ if block_on(consumer.take(1 + dice.below(9) as usize, &mut out)) == 0 => return seen,
            _ => {}
        }
        seen.delivered += out.len() as u64;
        for value in out.drain(..) {
            let last = &mut last[(value >> 32) as usize];
            assert!(last.replace(value).is_none_or(|last| last < value), "in order, and once");
        }
    }
}

/// Changes the bounds, discards values, and reads the counters.
fn meddle(lake: &Lake<u64>, is_over: &AtomicBool) -> Seen {
    let (mut dice, mut seen) = (Dice(7), Seen::default());
    while !is_over.load(Ordering::Relaxed) {
        let dropped = match dice.below(50) {
            0 => lake.discard(),
            1..5 => {
                let bounds = Bounds::count(1 + dice.below(50) as usize);
                lake.set_bounds(bounds.and_bytes(BYTES_MIN + dice.below(100) as usize))
            }
            _ => 0,
        };
        seen.dropped += dropped as u64;
        assert!(lake.counters().is_conserved());
        thread::yield_now();
    }
    seen
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
