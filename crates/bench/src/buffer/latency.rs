//! How long each push and each pull takes on a full buffer.
//!
//! A run pushes 200 000 items, pulls all, and pushes as many again. Then 2 000 000 operations follow, in cycles of 15
//! pushes and 5 pulls, so that two of three pushes find the buffer full and evict the oldest item. Each operation is
//! timed by itself, with two readings of the clock. An item is made before that and checked afterwards. A model knows
//! which item must come next, so an item that is lost, doubled or out of order fails the run.

use std::hint::black_box;

use tidings_server::command_error::{CommandError, failed};
use tokio::time::Instant;

use crate::checksum::Digest;
use crate::process::Usage;

/// Items that the buffer holds.
pub(super) const CAPACITY: usize = 200_000;
/// Operations timed on the full buffer.
pub(super) const OPERATION_COUNT: usize = 2_000_000;
pub(super) const ITEM_BYTES: usize = 1024;
/// Operations of a cycle.
pub(super) const PUSHES: usize = 15;
pub(super) const PULLS: usize = 5;

/// An item: 1 KiB with its number.
pub(super) trait Item {
    fn make(number: u64) -> Self;
    fn number(&self) -> u64;
}

/// Bytes in place: a push copies them into the buffer.
pub(super) struct InPlace([u8; ITEM_BYTES]);

impl Item for InPlace {
    fn make(number: u64) -> Self {
        let mut bytes = [0x55; ITEM_BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Self(bytes)
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(*self.0.first_chunk().expect("an item begins with its number"))
    }
}

/// A handle to bytes on the heap, as in the server's queues: a push moves the handle, and an evicted item is freed.
impl Item for bytes::Bytes {
    fn make(number: u64) -> Self {
        InPlace::make(number).0.to_vec().into()
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(*self.first_chunk().expect("an item begins with its number"))
    }
}

/// The result of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulled {
    /// The item of this number.
    Item(u64),
    /// So many items were overwritten before they were read: what the reader of a log is told.
    Missed(u64),
    Nothing,
}

/// A buffer of [`CAPACITY`] items that evicts the oldest item when it is full.
pub(super) trait Subject {
    /// Whether a pull leaves the item in the buffer for other readers.
    const IS_LOG: bool = false;
    type Item: Item;
    /// What a pull returns; checked after its time was taken.
    type Out;
    fn push(&mut self, item: Self::Item);
    fn pull(&mut self) -> Self::Out;
    fn look(out: Self::Out) -> Pulled;
    /// Items accepted, delivered, dropped and held, if the buffer counts them.
    fn counted(&self) -> Option<[u64; 4]>;
}

/// The time of each operation, in nanoseconds. The memory is allocated before the first measurement.
pub(super) struct Times(Vec<u32>);

impl Times {
    pub(super) fn with_capacity(count: usize) -> Self {
        let mut nanos = vec![1; count]; // Zeros would not be backed by memory.
        nanos.clear();
        Self(nanos)
    }

    /// Takes the time of one operation.
    #[inline]
    pub(super) fn take<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let result = black_box(operation());
        let nanos = began.elapsed().as_nanos();
        self.0.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        result
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(super) fn summary(mut self) -> Summary {
        self.0.sort_unstable();
        let count = self.0.len();
        let micros = |nanos: u32| f64::from(nanos) / 1e3;
        let sum: u64 = self.0.iter().copied().map(u64::from).sum();
        // The smallest value that is at least as large as this share of all values.
        let quantile = |share: f64| {
            let rank = (count as f64 * share).ceil() as usize;
            self.0.get(rank.saturating_sub(1)).copied().map_or(0.0, micros)
        };
        let slow = self.0.len() - self.0.partition_point(|&nanos| nanos <= SLOW_NANOS);
        Summary {
            slow_per_second: slow as f64 / (sum as f64 / 1e9).max(f64::MIN_POSITIVE),
            count: count as f64,
            average: sum as f64 / 1e3 / count.max(1) as f64,
            quantiles: QUANTILES.map(|(_, share)| quantile(share)),
            longest: self.0.iter().rev().take(10).copied().map(micros).collect(),
        }
    }
}

/// The quantiles that are reported, with their names.
pub(super) const QUANTILES: [(&str, f64); 6] =
    [("50 %", 0.5), ("99 %", 0.99), ("99.9 %", 0.999), ("99.99 %", 0.9999), ("99.999 %", 0.99999), ("100 %", 1.0)];

/// No operation takes longer than this by itself; then something else had the core.
const SLOW_NANOS: u32 = 10_000;

/// The times of many operations in brief, in microseconds.
pub(super) struct Summary {
    /// Operations of more than 10 µs per second of operations. If they come from the machine, the floor has as many. The
    /// longer operations take, the more interruptions fall into them, and the higher are the quantiles.
    pub(super) slow_per_second: f64,
    pub(super) count: f64,
    pub(super) average: f64,
    /// In the order of [`QUANTILES`].
    pub(super) quantiles: [f64; QUANTILES.len()],
    /// The ten longest, longest first.
    pub(super) longest: Vec<f64>,
}

/// One run of the test.
pub(super) struct Run {
    pub(super) cycles: Summary,
    pub(super) fill: Summary,
    pub(super) drain: Summary,
    pub(super) refill: Summary,
    /// Growth of resident memory by the buffer and its items.
    pub(super) memory_bytes: u64,
    /// The items that came out in order while one thread pushed and pulled.
    pub(super) digest: Digest,
}

/// Which items are in the buffer, and which comes next.
#[derive(Default)]
struct Model {
    /// A log keeps read items until they are overwritten, and tells a reader what it missed.
    is_log: bool,
    /// The first item that was not pulled yet, and one past the newest.
    next: u64,
    end: u64,
    delivered: u64,
    digest: Digest,
}

impl Model {
    /// The oldest item that the capacity allows.
    fn oldest(&self) -> u64 {
        self.end.saturating_sub(CAPACITY as u64)
    }

    fn on_pull(&mut self, pulled: Pulled) -> Result<(), CommandError> {
        let missed = self.oldest().saturating_sub(self.next);
        self.next += missed;
        let expected = match () {
            () if self.is_log && missed > 0 => Pulled::Missed(missed),
            () if self.next == self.end => Pulled::Nothing,
            () => Pulled::Item(self.next),
        };
        if pulled != expected {
            return Err(failed(format!("{pulled:?} came out instead of {expected:?}")));
        }
        if let Pulled::Item(number) = pulled {
            self.digest.add_number(number);
            self.next += 1;
            self.delivered += 1;
        }
        Ok(())
    }

    fn counted(&self) -> [u64; 4] {
        let held = self.end - self.next.max(self.oldest());
        [self.end, self.delivered, self.end - self.delivered - held, held]
    }
}

/// A buffer that was filled, drained and filled again.
pub(super) struct Filled<S> {
    pub(super) subject: S,
    model: Model,
    phases: [Times; 3],
    memory_bytes: u64,
}

impl<S: Subject> Filled<S> {
    pub(super) fn new(open: impl FnOnce() -> S) -> Result<Self, CommandError> {
        let mut model = Model { is_log: S::IS_LOG, ..Model::default() };
        let mut phases = [(); 3].map(|()| Times::with_capacity(CAPACITY));
        let [fill, drain, refill] = &mut phases;
        let before = Usage::now()?;
        let mut subject = open();
        push(&mut subject, &mut model, CAPACITY, fill);
        pull(&mut subject, &mut model, CAPACITY, drain)?;
        push(&mut subject, &mut model, CAPACITY, refill);
        let memory_bytes = Usage::now()?.resident_bytes.saturating_sub(before.resident_bytes);
        Ok(Self { subject, model, phases, memory_bytes })
    }

    /// The number of the next item to push.
    pub(super) fn end(&self) -> u64 {
        self.model.end
    }

    pub(super) fn finish(self, cycles: Times) -> Run {
        let [fill, drain, refill] = self.phases.map(Times::summary);
        let (memory_bytes, digest) = (self.memory_bytes, self.model.digest);
        Run { cycles: cycles.summary(), fill, drain, refill, memory_bytes, digest }
    }
}

/// Runs the whole test on a buffer, or on one thread's handle of a shared buffer.
pub(super) fn measure<S: Subject>(open: impl FnOnce() -> S) -> Result<Run, CommandError> {
    let mut cycles = Times::with_capacity(OPERATION_COUNT);
    let mut filled = Filled::new(open)?;
    for _ in 0..OPERATION_COUNT / (PUSHES + PULLS) {
        push(&mut filled.subject, &mut filled.model, PUSHES, &mut cycles);
        pull(&mut filled.subject, &mut filled.model, PULLS, &mut cycles)?;
    }
    check_counters(&filled.subject, &filled.model)?;
    Ok(filled.finish(cycles))
}

fn push<S: Subject>(subject: &mut S, model: &mut Model, count: usize, times: &mut Times) {
    for _ in 0..count {
        let item = S::Item::make(model.end);
        times.take(|| subject.push(item));
        model.end += 1;
    }
}

fn pull<S: Subject>(subject: &mut S, model: &mut Model, count: usize, times: &mut Times) -> Result<(), CommandError> {
    for _ in 0..count {
        let out = times.take(|| subject.pull());
        model.on_pull(S::look(out))?;
    }
    Ok(())
}

fn check_counters<S: Subject>(subject: &S, model: &Model) -> Result<(), CommandError> {
    match subject.counted() {
        Some(counted) if counted != model.counted() => Err(failed(format!(
            "accepted, delivered, dropped and held are {counted:?} instead of {:?}",
            model.counted()
        ))),
        _ => Ok(()),
    }
}

/// The same loop without an operation: the cost of the clock and of interruptions.
pub(super) fn floor() -> Summary {
    let mut times = Times::with_capacity(OPERATION_COUNT);
    let mut number = 0;
    for _ in 0..OPERATION_COUNT / (PUSHES + PULLS) {
        for _ in 0..PUSHES {
            let item = InPlace::make(number);
            times.take(|| black_box(()));
            number += item.number() - number + 1; // Uses the item, so that it is made as in the test.
        }
        for _ in 0..PULLS {
            times.take(|| black_box(()));
        }
    }
    times.summary()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_summary_are_among_the_times() {
        let times = Times((1..=100_000).rev().map(|micros| micros * 1000).collect());
        let summary = times.summary();
        assert_eq!((summary.count, summary.average), (100_000.0, 50_000.5));
        assert_eq!(summary.quantiles, [50_000.0, 99_000.0, 99_900.0, 99_990.0, 99_999.0, 100_000.0]);
        assert_eq!(summary.slow_per_second, 99_990.0 / 5000.05);
        assert_eq!((summary.longest.len(), summary.longest[0], summary.longest[9]), (10, 100_000.0, 99_991.0));
    }

    #[test]
    fn a_queue_evicts_the_oldest_silently() {
        let mut model = Model { end: CAPACITY as u64 + 3, ..Model::default() };
        model.on_pull(Pulled::Item(3)).unwrap();
        model.on_pull(Pulled::Item(5)).unwrap_err();
        assert_eq!(model.digest, Digest::of_numbers([3]));
        assert_eq!(model.counted(), [200_003, 1, 3, 199_999]);
        model.next = model.end;
        model.on_pull(Pulled::Nothing).unwrap();
    }

    #[test]
    fn a_log_says_how_many_were_missed() {
        let mut model = Model { is_log: true, end: CAPACITY as u64 + 3, ..Model::default() };
        model.on_pull(Pulled::Missed(3)).unwrap();
        model.on_pull(Pulled::Item(3)).unwrap();
        model.on_pull(Pulled::Missed(1)).unwrap_err();
    }
}
