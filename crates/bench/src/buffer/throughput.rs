//! How many numbers per second go through a buffer of 1 024, between 1 to 4 producers and as many consumers.
//!
//! Three contests, each among buffers with the same promises:
//!
//! - *overwrite*: producers never wait, and a full buffer evicts the oldest number; threads that poll.
//! - *wait*: producers wait for room, consumers for numbers; tasks on the runtime's threads.
//! - *fan-out*: each consumer gets every number, or is told how many it missed; tasks too.
//!
//! Every run is checked. Each consumer sees the numbers of one producer in order. The numbers that were seen,
//! overwritten or missed add up to those produced: by count, and by sum where nothing may be lost.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::checksum::Digest;

/// Numbers that each buffer holds. A power of two, because some buffers round up to one.
pub(super) const CAPACITY: usize = 1024;
/// Numbers of one run, over all producers.
pub(super) const COUNT: u64 = 1_000_000;
/// Numbers of a batch.
pub(super) const BATCH: usize = 64;
/// The numbers of producers and consumers.
pub(super) const SIDES: [(usize, usize); 5] = [(1, 1), (2, 2), (4, 4), (4, 1), (1, 4)];

/// The bits of a number from here on are its producer.
const PRODUCER_SHIFT: u32 = 48;

/// The numbers of one producer.
pub(super) type Numbers = Range<u64>;

fn numbers_of(producer: usize, producers: usize) -> Numbers {
    let first = (producer as u64) << PRODUCER_SHIFT;
    first..first + COUNT / producers as u64
}

/// What one consumer has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    count: u64,
    sum: u64,
    missed: u64,
    disorder: bool,
    /// One past the last number seen, by producer.
    next: [u64; 4],
}

impl Seen {
    #[inline]
    pub(super) fn on(&mut self, number: u64) {
        let next = &mut self.next[(number >> PRODUCER_SHIFT) as usize & 3];
        self.disorder |= number < *next;
        *next = number + 1;
        self.count += 1;
        self.sum = self.sum.wrapping_add(number);
    }

    pub(super) fn on_missed(&mut self, count: u64) {
        self.missed += count;
    }
}

/// A buffer that evicts the oldest number when it is full. Its threads never wait.
pub(super) trait Overwrite: Send + Sync + 'static {
    fn open() -> Self;
    /// Returns how many numbers were evicted for it.
    fn push(&self, number: u64) -> u64;
    fn pull(&self) -> Option<u64>;
}

/// A buffer whose producers wait when it is full. When the last producer is dropped, consumers take the rest and end.
pub(super) trait Wait: 'static {
    type Tx: Send + Clone + 'static;
    type Rx: Send + 'static;
    fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>);
    fn produce(tx: Self::Tx, numbers: Numbers) -> impl Future<Output = ()> + Send;
    fn consume(rx: Self::Rx, seen: Seen) -> impl Future<Output = Seen> + Send;
}

/// What all consumers together must have seen.
enum Expected {
    /// Each number once.
    Once,
    /// Each number once, except for so many that were evicted.
    Overwritten(u64),
    /// Each number by each consumer, seen or missed.
    Each,
}

/// The result of a run.
pub(super) struct Rate {
    /// Millions of numbers per second.
    pub(super) produced: f64,
    /// The share of numbers that consumers did not get.
    pub(super) lost: f64,
    /// What must be equal in every run. Where numbers may be lost that is only how many there were.
    pub(super) digest: Digest,
}

fn judge(seen: &[Seen], producers: usize, expected: &Expected, seconds: f64) -> Result<Rate, CommandError> {
    let produced = COUNT / producers as u64 * producers as u64;
    let sum = |field: fn(&Seen) -> u64| seen.iter().map(field).fold(0, u64::wrapping_add);
    let (count, missed) = (sum(|seen| seen.count), sum(|seen| seen.missed));
    let all = (0..producers).flat_map(|producer| numbers_of(producer, producers)).fold(0, u64::wrapping_add);
    let right = match *expected {
        Expected::Once => count == produced && missed == 0 && sum(|seen| seen.sum) == all,
        Expected::Overwritten(overwritten) => count + overwritten == produced,
        Expected::Each => seen.iter().all(|seen| seen.count + seen.missed == produced),
    };
    if !right || seen.iter().any(|seen| seen.disorder) {
        return Err(failed(format!("{produced} numbers were produced, and the consumers saw {seen:?}")));
    }
    let owed = if matches!(expected, Expected::Each) { produced * seen.len() as u64 } else { produced };
    let digest = match expected {
        Expected::Once => Digest::new(count, sum(|seen| seen.sum)),
        Expected::Overwritten(overwritten) => Digest::new(count + overwritten, 0),
        Expected::Each => Digest::new(count + missed, 0),
    };
    Ok(Rate { produced: produced as f64 / seconds / 1e6, lost: (owed - count) as f64 / owed as f64, digest })
}

pub(super) fn overwrite<Q: Overwrite>(producers: usize, consumers: usize) -> Result<Rate, CommandError> {
    let queue = Q::open();
    let start = Barrier::new(producers + consumers + 1);
    let producing = AtomicUsize::new(producers);
    let produce = |producer| {
        start.wait();
        let overwritten: u64 = numbers_of(producer, producers).map(|number| queue.push(number)).sum();
        producing.fetch_sub(1, Ordering::Release);
        overwritten
    };
    let consume = || {
        let mut seen = Seen::default();
        start.wait();
        loop {
            let is_last = producing.load(Ordering::Acquire) == 0; // Read before the pull that finds nothing.
            match queue.pull() {
                Some(number) => seen.on(number),
                None if is_last => return seen,
                None => thread::yield_now(),
            }
        }
    };
    thread::scope(|scope| {
        let producers_running: Vec<_> = (0..producers).map(|producer| scope.spawn(move || produce(producer))).collect();
        let consumers_running: Vec<_> = (0..consumers).map(|_| scope.spawn(consume)).collect();
        let began = Instant::now(); // Before the start: on few cores this thread continues late.
        start.wait();
        let overwritten = producers_running.into_iter().map(|thread| thread.join().expect("no producer panics")).sum();
        let seen: Vec<_> =
            consumers_running.into_iter().map(|thread| thread.join().expect("no consumer panics")).collect();
        judge(&seen, producers, &Expected::Overwritten(overwritten), began.elapsed().as_secs_f64())
    })
}

/// Each number goes to one consumer, and none is lost.
pub(super) async fn wait<Q: Wait>(producers: usize, consumers: usize) -> Result<Rate, CommandError> {
    run::<Q>(producers, consumers, &Expected::Once).await
}

/// Each number goes to every consumer.
pub(super) async fn fan_out<Q: Wait>(producers: usize, consumers: usize) -> Result<Rate, CommandError> {
    run::<Q>(producers, consumers, &Expected::Each).await
}

async fn run<Q: Wait>(producers: usize, consumers: usize, expected: &Expected) -> Result<Rate, CommandError> {
    let (tx, rxs) = Q::open(consumers);
    let start = Arc::new(tokio::sync::Barrier::new(producers + consumers + 1));
    let mut tasks = JoinSet::new();
    for producer in 0..producers {
        let (tx, start) = (tx.clone(), start.clone());
        tasks.spawn(async move {
            start.wait().await;
            Q::produce(tx, numbers_of(producer, producers)).await;
            None
        });
    }
    drop(tx);
    for rx in rxs {
        let start = start.clone();
        tasks.spawn(async move {
            start.wait().await;
            Some(Q::consume(rx, Seen::default()).await)
        });
    }
    let began = Instant::now(); // Before the start: on few cores this thread continues late.
    start.wait().await;
    let mut seen = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        seen.extend(ended.map_err(|error| failed_by("a producer or consumer ended", &error))?);
    }
    judge(&seen, producers, expected, began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two consumers see of the numbers of two producers.
    fn seen() -> [Seen; 2] {
        let mut seen: [Seen; 2] = Default::default();
        for number in (0..2).flat_map(|producer| numbers_of(producer, 2)) {
            seen[(number % 3 == 0) as usize].on(number);
        }
        seen
    }

    #[test]
    fn every_number_once_is_right() {
        let once = judge(&seen(), 2, &Expected::Once, 1.0).unwrap().digest;
        assert_eq!(once, judge(&seen(), 2, &Expected::Once, 2.0).unwrap().digest);
        let mut one = Seen::default();
        numbers_of(0, 1).for_each(|number| one.on(number));
        assert_ne!(once, judge(&[one], 1, &Expected::Once, 1.0).unwrap().digest, "other numbers");
        judge(&seen(), 2, &Expected::Overwritten(0), 1.0).unwrap();
    }

    #[test]
    fn a_lost_doubled_or_late_number_is_an_error() {
        let mut lost = seen();
        lost[0].count -= 1;
        judge(&lost, 2, &Expected::Once, 1.0).err().unwrap();
        judge(&lost, 2, &Expected::Overwritten(0), 1.0).err().unwrap();
        judge(&lost, 2, &Expected::Overwritten(1), 1.0).unwrap();
        let mut other = seen();
        other[0].sum += 1;
        judge(&other, 2, &Expected::Once, 1.0).err().unwrap();
        let mut late = Seen::default();
        [7, 3].into_iter().for_each(|number| late.on(number));
        assert!(late.disorder);
    }

    #[test]
    fn each_reader_sees_every_number_or_knows_how_many_it_missed() {
        let mut reader = Seen::default();
        numbers_of(0, 1).skip(10).for_each(|number| reader.on(number));
        judge(std::slice::from_ref(&reader), 1, &Expected::Each, 1.0).err().unwrap();
        reader.on_missed(10);
        assert!(judge(&[reader], 1, &Expected::Each, 1.0).unwrap().lost > 0.0);
    }
}
