//! The buffers of `tidings-buffer`.

use std::sync::{Arc, Barrier};
use std::thread;

use bytes::Bytes;
use tidings_buffer::{Consumer, Counters, Full, Lagged, Log as BareLog, Reader, SharedLog};
use tidings_server::command_error::{CommandError, failed};

use super::latency::{self, InPlace, Item, OPERATION_COUNT, PULLS, PUSHES, Pulled, Run, Subject, Times};
use super::throughput::{BATCH, CAPACITY, Numbers, Overwrite, Seen, Wait};

fn reserved<T>() -> tidings_buffer::Ring<T> {
    let mut ring = tidings_buffer::Ring::new(latency::CAPACITY, Full::EvictOldest);
    ring.reserve();
    ring
}

fn numbers(Counters { accepted, delivered, dropped, held }: Counters) -> [u64; 4] {
    [accepted, delivered, dropped, held]
}

fn look<I: Item>(out: Option<I>) -> Pulled {
    out.map_or(Pulled::Nothing, |item| Pulled::Item(item.number()))
}

pub(super) struct Ring(tidings_buffer::Ring<InPlace>);

impl Ring {
    pub(super) fn open() -> Self {
        Self(reserved())
    }
}

impl Subject for Ring {
    type Item = InPlace;
    type Out = Option<InPlace>;

    fn push(&mut self, item: InPlace) {
        self.0.push(item).expect("a full ring evicts");
    }

    fn pull(&mut self) -> Self::Out {
        self.0.pop()
    }

    fn look(out: Self::Out) -> Pulled {
        look(out)
    }

    fn counted(&self) -> Option<[u64; 4]> {
        Some(numbers(self.0.counters()))
    }
}

pub(super) struct Lake<I>(tidings_buffer::Lake<I>);

impl<I: Item> Lake<I> {
    pub(super) fn open() -> Self {
        Self(reserved().into())
    }
}

impl<I: Item> Subject for Lake<I> {
    type Item = I;
    type Out = Option<I>;

    fn push(&mut self, item: I) {
        self.0.push(item).expect("a full ring evicts");
    }

    fn pull(&mut self) -> Self::Out {
        self.0.pop()
    }

    fn look(out: Self::Out) -> Pulled {
        look(out)
    }

    fn counted(&self) -> Option<[u64; 4]> {
        Some(numbers(self.0.counters()))
    }
}

/// A log with one reader that reads from the beginning.
pub(super) struct Log {
    log: Arc<SharedLog<Bytes>>,
    reader: Reader<Bytes>,
    out: Vec<Bytes>,
}

impl Log {
    pub(super) fn open() -> Self {
        let mut log = BareLog::new(latency::CAPACITY);
        log.reserve();
        let log = Arc::new(SharedLog::from_log(log));
        Self { reader: Reader::new(log.clone()), log, out: Vec::with_capacity(1) }
    }
}

impl Subject for Log {
    const IS_LOG: bool = true;
    type Item = Bytes;
    type Out = Result<Option<Bytes>, Lagged>;

    fn push(&mut self, item: Bytes) {
        self.log.append(item).expect("the log is not closed");
    }

    fn pull(&mut self) -> Self::Out {
        self.reader.try_read(1, &mut self.out)?;
        Ok(self.out.pop())
    }

    fn look(out: Self::Out) -> Pulled {
        out.map_or_else(|Lagged { missed }| Pulled::Missed(missed), look)
    }

    fn counted(&self) -> Option<[u64; 4]> {
        Some(numbers(self.reader.counters()))
    }
}

/// The cycles with pushes on one thread and pulls on another, as fast as each can.
pub(super) fn two_threads() -> Result<Run, CommandError> {
    let filled = latency::Filled::new(Lake::<InPlace>::open)?;
    let cycles = OPERATION_COUNT / (PUSHES + PULLS);
    let (lake, first) = (&filled.subject.0, filled.end());
    let start = Barrier::new(2);
    let times = thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            let mut times = Times::with_capacity(cycles * PUSHES);
            start.wait();
            for number in (first..).take(cycles * PUSHES) {
                let item = InPlace::make(number);
                times.take(|| lake.push(item).expect("a full ring evicts"));
            }
            times
        });
        let mut times = Times::with_capacity(OPERATION_COUNT);
        start.wait();
        let pulled = pull_in_order(lake, cycles * PULLS, &mut times);
        times.append(pushing.join().expect("the pushing thread does not panic"));
        pulled.map(|()| times)
    })?;
    let counters = lake.counters();
    if !counters.is_conserved() || counters.accepted != first + (cycles * PUSHES) as u64 {
        return Err(failed(format!("{counters:?} do not add up")));
    }
    Ok(filled.finish(times))
}

fn pull_in_order(lake: &tidings_buffer::Lake<InPlace>, count: usize, times: &mut Times) -> Result<(), CommandError> {
    let mut next = 0;
    for _ in 0..count {
        match look(times.take(|| lake.pop())) {
            Pulled::Item(number) if number >= next => next = number + 1,
            Pulled::Nothing => {}
            pulled => return Err(failed(format!("{pulled:?} came out when {next} or later was expected"))),
        }
    }
    Ok(())
}

/// A lake with producers that never wait.
pub(super) struct LakeOfNumbers(tidings_buffer::Lake<u64>);

fn lake_of_numbers(full: Full) -> tidings_buffer::Lake<u64> {
    let mut ring = tidings_buffer::Ring::new(CAPACITY, full);
    ring.reserve();
    ring.into()
}

impl Overwrite for LakeOfNumbers {
    fn open() -> Self {
        Self(lake_of_numbers(Full::EvictOldest))
    }

    fn push(&self, number: u64) -> u64 {
        self.0.push(number).expect("an open lake evicts") as u64
    }

    fn pull(&self) -> Option<u64> {
        self.0.pop()
    }
}

/// Closes a buffer when its last producer is dropped.
pub(super) struct CloseOnDrop<T> {
    buffer: Arc<T>,
    close: fn(&T),
}

impl<T> Drop for CloseOnDrop<T> {
    fn drop(&mut self) {
        (self.close)(&self.buffer);
    }
}

/// A lake with producers that wait; each side handles `SIZE` numbers at a time.
pub(super) struct Waiting<const SIZE: usize>;

pub(super) type Singles = Waiting<1>;
pub(super) type Batches = Waiting<BATCH>;

impl<const SIZE: usize> Wait for Waiting<SIZE> {
    type Tx = Arc<CloseOnDrop<tidings_buffer::Lake<u64>>>;
    type Rx = Consumer<u64>;

    fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>) {
        let lake = Arc::new(lake_of_numbers(Full::Reject));
        let rxs = (0..consumers).map(|_| Consumer::new(lake.clone())).collect();
        (Arc::new(CloseOnDrop { buffer: lake, close: tidings_buffer::Lake::close }), rxs)
    }

    async fn produce(tx: Self::Tx, mut numbers: Numbers) {
        let mut batch = Vec::with_capacity(SIZE);
        loop {
            batch.extend(numbers.by_ref().take(SIZE));
            if batch.is_empty() {
                return;
            }
            tx.buffer.push_batch(&mut batch).await.expect("the lake is open while it has producers");
        }
    }

    async fn consume(mut rx: Self::Rx, mut seen: Seen) -> Seen {
        let mut out = Vec::with_capacity(SIZE);
        while rx.take(SIZE, &mut out).await > 0 {
            out.drain(..).for_each(|number| seen.on(number));
        }
        seen
    }
}

/// A log: every consumer gets every number, or is told how many it missed.
pub(super) struct LogOfNumbers;

impl Wait for LogOfNumbers {
    type Tx = Arc<CloseOnDrop<SharedLog<u64>>>;
    type Rx = Reader<u64>;

    fn open(consumers: usize) -> (Self::Tx, Vec<Self::Rx>) {
        let log = Arc::new(SharedLog::new(CAPACITY));
        log.reserve();
        let rxs = (0..consumers).map(|_| Reader::new(log.clone())).collect();
        (Arc::new(CloseOnDrop { buffer: log, close: SharedLog::close }), rxs)
    }

    async fn produce(tx: Self::Tx, numbers: Numbers) {
        for number in numbers {
            tx.buffer.append(number).expect("the log is open while it has producers");
            if (number + 1).is_multiple_of(BATCH as u64) {
                tokio::task::yield_now().await; // An append never waits, and the consumers must run too.
            }
        }
    }

    async fn consume(mut rx: Self::Rx, mut seen: Seen) -> Seen {
        let mut out = Vec::with_capacity(BATCH);
        loop {
            match rx.read(BATCH, &mut out).await {
                Ok(0) => return seen,
                Ok(_) => out.drain(..).for_each(|number| seen.on(number)),
                Err(Lagged { missed }) => seen.on_missed(missed),
            }
        }
    }
}
