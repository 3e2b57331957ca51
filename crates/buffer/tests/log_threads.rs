//! The shared log with real threads. For each reader, the values that it got, missed and skipped add up to the appended ones.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tidings_buffer::{Bounds, Lagged, LogCounters, Reader, SharedLog};

const WRITER_COUNT: u64 = 3;
const READER_COUNT: u64 = 4;
/// Values of each writer.
const VALUE_COUNT: u64 = if cfg!(miri) { 60 } else { 40_000 };

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
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Polls the future once and drops it: cancelled in the middle of waiting, or just done.
fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Pseudo-random numbers (xorshift64), so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// One value: who wrote it, and its number in the order of its writer.
#[derive(Debug, Clone, Copy)]
struct Value {
    writer: usize,
    number: u64,
}

fn write(log: &SharedLog<Arc<Value>>, writer: u64) {
    let mut random = Random(writer + 1);
    let value = |number| Arc::new(Value { writer: writer as usize, number });
    let (mut number, mut batch) = (0, Vec::new());
    while number < VALUE_COUNT {
        let count = random.below(9).min(VALUE_COUNT - number);
        if count == 1 {
            log.append(value(number)).unwrap();
        } else {
            batch.extend((number..number + count).map(value));
            let index = log.append_batch(&mut batch).unwrap();
            assert!(index + count <= WRITER_COUNT * VALUE_COUNT && batch.is_empty());
        }
        number += count;
    }
}

/// What came of one reader.
#[derive(Debug, Default)]
struct Tally {
    delivered: u64,
    missed: u64,
    skipped: u64,
}

fn read(log: Arc<SharedLog<Arc<Value>>>, seed: u64) -> Tally {
    let (mut random, mut tally, mut out) = (Random(seed + 100), Tally::default(), Vec::new());
    let mut reader = Reader::starting_at(log, 0);
    let mut next = [0; WRITER_COUNT as usize];
    loop {
        let before = reader.position();
        let limit = Bounds::count(1 + random.below(100) as usize);
        let result = match random.below(10) {
            0 => poll_once(reader.read(limit, &mut out)),
            1 => {
                thread::yield_now(); // A slow one is overtaken.
                None
            }
            2 if seed == 0 => {
                tally.skipped += reader.skip_to_end();
                None
            }
            _ => Some(block_on(reader.read(limit, &mut out))),
        };
        match result {
            None => {}
            Some(Ok(0)) => break,
            Some(Ok(count)) => {
                assert_eq!((count, reader.position()), (out.len(), before + count as u64));
                tally.delivered += count as u64;
            }
            Some(Err(Lagged { missed })) => {
                assert_eq!(reader.position(), before + missed);
                tally.missed += missed;
            }
        }
        for value in out.drain(..) {
            assert!(value.number >= next[value.writer], "a writer's values come in its order, and once");
            next[value.writer] = value.number + 1;
        }
        assert!(reader.counters().is_conserved());
    }
    let counters = reader.counters();
    assert_eq!((counters.delivered, counters.dropped), (tally.delivered, tally.missed + tally.skipped));
    assert_eq!(counters.held, 0);
    tally
}

fn run(capacity: usize) {
    let log = Arc::new(SharedLog::new(capacity));
    let writing = AtomicUsize::new(WRITER_COUNT as usize);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let readers: Vec<_> = (0..READER_COUNT)
            .map(|seed| {
                scope.spawn({
                    let log = log.clone();
                    move || read(log, seed)
                })
            })
            .collect();
        for writer in 0..WRITER_COUNT {
            let (log, writing) = (&log, &writing);
            scope.spawn(move || {
                write(log, writer);
                if writing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    log.close(); // The last one.
                }
            });
        }
        while writing.load(Ordering::Acquire) > 0 {
            let LogCounters { accepted, dropped, held, .. } = log.counters();
            assert_eq!(accepted, dropped + held, "at any moment");
            assert!(held <= capacity as u64);
            thread::yield_now();
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let total = WRITER_COUNT * VALUE_COUNT;
    for tally in &tallies {
        assert_eq!(tally.delivered + tally.missed + tally.skipped, total, "{tally:?}");
    }
    let counters = log.counters();
    assert_eq!((counters.accepted, counters.dropped + counters.held), (total, total));
    assert_eq!(counters.delivered, tallies.iter().map(|tally| tally.delivered).sum::<u64>());
    assert_eq!(counters.missed, tallies.iter().map(|tally| tally.missed).sum::<u64>());
}

#[test]
fn with_room_for_few_values_every_reader_gets_them_or_learns_what_it_missed() {
    run(7);
}

#[test]
fn with_room_for_all_values_no_reader_misses_any() {
    run((WRITER_COUNT * VALUE_COUNT) as usize);
}
