//! Behaviour between threads: loom tries small cases of the lake and the log in every interleaving with at most three
//! preemptions.
//!
//! This test target compiles the library's own modules a second time, with loom's lock as their `sync`. So it is an
//! ordinary part of `cargo test`, without a flag, and all other code keeps std's lock. Loom runs each model once per
//! interleaving of its locks, parks and wake-ups, and fails if all threads sleep: that is a lost wake-up. Capacities
//! are 1 or 2, because a queue that is full or empty at every step shows the most errors.
//!
//! `cargo test -p tidings-buffer --test interleavings [-- part of a name]`

#![expect(unused, unreachable_pub, reason = "a library with its tests, compiled as a program without its test harness")]
#![expect(clippy::print_stdout, reason = "a test program of its own tells how it went")]

mod bounds;
mod lake;
mod log;
#[path = "log/interleavings.rs"]
mod log_interleavings;
mod ring;

/// Loom's lock in place of std's.
mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bounds::{Bounds, Counters, Full, NoRoom, Rejected};
use lake::{Closed, Consumer, Lake, PushError};
use loom::sync::Notify;
use loom::thread;
use ring::Ring;

macro_rules! models {
    ($($model:ident),+ $(,)?) => { [$((stringify!($model), $model as fn())),+] };
}

const MODELS: [(&str, fn()); 13] = models![
    a_producer_and_a_consumer_take_turns,
    two_producers_share_one_place,
    two_consumers_share_what_comes_and_both_hear_the_end,
    a_consumer_that_gives_up_passes_its_wake_up_on,
    a_consumer_that_withdraws_passes_its_wake_up_on,
    a_producer_that_gives_up_lets_the_next_one_in,
    a_producer_that_gives_up_gets_back_what_was_not_put_in,
    a_waiting_batch_is_put_in_or_refused_by_the_close,
    a_future_that_moves_is_woken_where_it_is,
    more_room_wakes_a_producer_that_waits_for_it,
    less_room_refuses_a_value_that_can_never_fit,
    what_is_discarded_makes_room,
    a_producer_that_evicts_never_waits_and_wakes_waiting_consumers,
];

/// How often per run the model checker interrupts a thread that could go on. A switch from a thread that waits does not
/// count. Nearly all known faults need at most two interruptions (Musuvathi and Qadeer, PLDI 2007). Without a limit,
/// three threads already take hours.
const PREEMPTIONS_MAX: usize = 3;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    let mut passed = 0;
    let models = || MODELS.iter().chain(&log_interleavings::MODELS);
    for (name, model) in models().filter(|(name, _)| name.contains(&wanted)) {
        if !cfg!(miri) {
            builder.check(*model);
            passed += 1;
            println!("test {name} ... ok");
        }
    }
    println!(
        "\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; {} filtered out",
        models().count() - passed
    );
}

fn a_producer_and_a_consumer_take_turns() {
    let lake = lake(1);
    let producer = spawn(&lake, |lake| {
        block_on(lake.push_batch(&mut vec![1, 2])).unwrap();
        lake.close();
    });
    assert_eq!(take_all(&lake), [1, 2]);
    producer.join().unwrap();
    assert_eq!(lake.counters(), Counters { accepted: 2, delivered: 2, dropped: 0, held: 0 });
}

fn two_producers_share_one_place() {
    let lake = lake(1);
    let producers = [1, 2].map(|value| spawn(&lake, move |lake| block_on(lake.push_batch(&mut vec![value])).unwrap()));
    let mut values = [take_one(&lake), take_one(&lake)];
    producers.map(|producer| producer.join().unwrap());
    values.sort_unstable();
    assert_eq!(values, [1, 2]);
}

fn two_consumers_share_what_comes_and_both_hear_the_end() {
    let lake = lake(2);
    let other = spawn(&lake, |lake| take_all(lake).len());
    let producer = spawn(&lake, |lake| {
        lake.push_all(&mut vec![1, 2]).unwrap();
        lake.close();
    });
    let mine = take_all(&lake).len();
    producer.join().unwrap();
    assert_eq!(mine + other.join().unwrap(), 2);
}

fn a_consumer_that_gives_up_passes_its_wake_up_on() {
    let lake = lake(1);
    let (mut out, bell) = (Vec::new(), Waker::from(bell()));
    let mut impatient = Consumer::new(Arc::clone(&lake));
    let mut taken = impatient.take(1, &mut out);
    let polled = Pin::new(&mut taken).poll(&mut Context::from_waker(&bell));
    assert!(polled.is_pending(), "it is the first in line");
    let patient = spawn(&lake, take_one);
    let producer = spawn(&lake, |lake| lake.push(1).unwrap());
    drop(taken);
    assert_eq!(patient.join().unwrap(), 1);
    producer.join().unwrap();
}

fn a_consumer_that_withdraws_passes_its_wake_up_on() {
    let lake = lake(1);
    let bell = Waker::from(bell());
    let mut cx = Context::from_waker(&bell);
    let mut busy = Consumer::new(Arc::clone(&lake));
    assert!(busy.poll_take(&mut cx, 1, &mut Vec::new()).is_pending());
    let patient = spawn(&lake, take_one);
    let producer = spawn(&lake, |lake| lake.push(1).unwrap());
    assert!(busy.poll_take(&mut cx, 0, &mut Vec::new()).is_pending());
    assert_eq!(patient.join().unwrap(), 1);
    producer.join().unwrap();
}

fn a_producer_that_gives_up_lets_the_next_one_in() {
    let lake = lake(1);
    lake.push(0).unwrap();
    let (mut batch, bell) = (vec![1], Waker::from(bell()));
    let mut impatient = lake.push_batch(&mut batch);
    assert!(Pin::new(&mut impatient).poll(&mut Context::from_waker(&bell)).is_pending());
    let patient = spawn(&lake, |lake| block_on(lake.push_batch(&mut vec![2])).unwrap());
    let consumer = spawn(&lake, |lake| lake.pop());
    drop(impatient);
    assert_eq!(consumer.join().unwrap(), Some(0));
    if batch.is_empty() {
        assert_eq!(lake.pop(), Some(1), "it was put in before the future was dropped");
    }
    patient.join().unwrap();
    assert_eq!(lake.pop(), Some(2));
}

fn a_producer_that_gives_up_gets_back_what_was_not_put_in() {
    let lake = lake(1);
    lake.push(0).unwrap();
    let (mut batch, bell) = (vec![1, 2], Waker::from(bell()));
    let mut impatient = lake.push_batch(&mut batch);
    assert!(Pin::new(&mut impatient).poll(&mut Context::from_waker(&bell)).is_pending());
    let consumer = spawn(&lake, |lake| [lake.pop(), lake.pop()]);
    drop(impatient);
    let taken = consumer.join().unwrap().into_iter().flatten();
    assert_eq!(taken.chain(lake.pop()).chain(batch).collect::<Vec<_>>(), [0, 1, 2]);
}

fn a_waiting_batch_is_put_in_or_refused_by_the_close() {
    let lake = lake(1);
    lake.push(0).unwrap();
    let producer = spawn(&lake, |lake| {
        let mut batch = vec![1];
        (block_on(lake.push_batch(&mut batch)), batch)
    });
    let closer = spawn(&lake, |lake| lake.close());
    assert_eq!(lake.pop(), Some(0));
    closer.join().unwrap();
    match producer.join().unwrap() {
        (Ok(()), batch) => assert_eq!((batch, lake.pop()), (vec![], Some(1))),
        (Err(error), batch) => assert_eq!((error, batch, lake.pop()), (Closed.into(), vec![1], None)),
    }
}

/// As in `select!` over tasks, or a future handed from one executor to another.
fn a_future_that_moves_is_woken_where_it_is() {
    let lake = lake(1);
    let producer = spawn(&lake, |lake| lake.push(1).unwrap());
    let mut consumer = Consumer::new(Arc::clone(&lake));
    let mut out = Vec::new();
    let here = Waker::from(bell());
    if consumer.poll_take(&mut Context::from_waker(&here), 1, &mut out).is_pending() {
        let there = thread::spawn(move || {
            let mut out = Vec::new();
            block_on(consumer.take(1, &mut out))
        });
        assert_eq!(there.join().unwrap(), 1);
    }
    producer.join().unwrap();
}

fn more_room_wakes_a_producer_that_waits_for_it() {
    let lake = lake(1);
    lake.push(0).unwrap();
    let producer = spawn(&lake, |lake| block_on(lake.push_batch(&mut vec![1])).unwrap());
    lake.set_capacity(2);
    producer.join().unwrap();
    assert_eq!(lake.counters().held, 2);
}

fn less_room_refuses_a_value_that_can_never_fit() {
    let lake =
        Arc::new(Lake::from(Ring::weighed(Bounds::count(2).and_bytes(4), Full::Reject, |it: &u32| *it as usize)));
    lake.push(1).unwrap();
    let producer = spawn(&lake, |lake| block_on(lake.push_batch(&mut vec![4])));
    lake.set_bounds(Bounds::count(2).and_bytes(3));
    let refused = producer.join().unwrap();
    assert!(matches!(refused, Err(PushError::TooLarge(NoRoom::TooLarge { bytes: 4, .. }))), "{refused:?}");
}

fn what_is_discarded_makes_room() {
    let lake = lake(1);
    lake.push(0).unwrap();
    let producer = spawn(&lake, |lake| block_on(lake.push_batch(&mut vec![1])).unwrap());
    let discarded = lake.discard() as u64;
    producer.join().unwrap();
    assert_eq!(lake.counters(), Counters { accepted: 2, delivered: 0, dropped: discarded, held: 1 });
}

fn a_producer_that_evicts_never_waits_and_wakes_waiting_consumers() {
    let lake = Arc::new(Lake::from(Ring::new(1, Full::EvictOldest)));
    let consumer = spawn(&lake, take_all);
    let other = spawn(&lake, |lake| lake.push(1).unwrap());
    let lost = lake.push(2).unwrap();
    assert!(lake.counters().is_conserved(), "also while others are at it");
    let lost = lost + other.join().unwrap();
    lake.close();
    let taken = consumer.join().unwrap().len();
    assert_eq!(lake.counters(), Counters { accepted: 2, delivered: taken as u64, dropped: lost as u64, held: 0 });
}

fn lake(capacity: usize) -> Arc<Lake<u32>> {
    Arc::new(Lake::new(capacity))
}

fn spawn<R: 'static>(
    lake: &Arc<Lake<u32>>,
    work: impl FnOnce(&Arc<Lake<u32>>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let lake = Arc::clone(lake);
    thread::spawn(move || work(&lake))
}

fn take_one(lake: &Arc<Lake<u32>>) -> u32 {
    let mut out = Vec::new();
    assert_eq!(block_on(Consumer::new(Arc::clone(lake)).take(1, &mut out)), 1);
    out[0]
}

fn take_all(lake: &Arc<Lake<u32>>) -> Vec<u32> {
    let (mut consumer, mut out) = (Consumer::new(Arc::clone(lake)), Vec::new());
    while block_on(consumer.take(1, &mut out)) > 0 {}
    out
}

/// Wakes the thread that runs a future. Loom's `park` cannot be used: a late wake-up would disturb a `join`.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn bell() -> Arc<Bell> {
    Arc::new(Bell(Notify::new()))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, bell) = (pin!(future), bell());
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        bell.0.wait();
    }
}
