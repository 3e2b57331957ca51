//! The log's part of `src/interleavings.rs`: what writers and readers do to each other, in every interleaving with few
//! preemptions.
//!
//! A waker that nobody is to hear of is `Waker::noop`: whoever should have been woken by it instead would sleep on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use loom::thread::{self, JoinHandle};

use crate::block_on;
use crate::log::{Lagged, Reader, SharedLog};

pub(crate) const MODELS: [(&str, fn()); 10] = [
    ("log::a_reader_hears_of_every_value_and_of_the_end", a_reader_hears_of_every_value_and_of_the_end),
    ("log::a_reader_that_is_overtaken_knows_by_how_much", a_reader_that_is_overtaken_knows_by_how_much),
    ("log::two_readers_see_what_two_writers_wrote_in_one_order", two_readers_see_what_two_writers_wrote_in_one_order),
    ("log::two_idle_readers_are_both_woken", two_idle_readers_are_both_woken),
    ("log::a_batch_comes_in_one_piece", a_batch_comes_in_one_piece),
    ("log::a_reader_that_gives_up_can_wait_again", a_reader_that_gives_up_can_wait_again),
    ("log::a_reader_that_moves_is_woken_where_it_is", a_reader_that_moves_is_woken_where_it_is),
    ("log::who_takes_the_place_of_one_that_left_is_woken", who_takes_the_place_of_one_that_left_is_woken),
    ("log::a_late_reader_gets_what_is_held_and_what_comes", a_late_reader_gets_what_is_held_and_what_comes),
    ("log::less_room_loses_nothing_uncounted", less_room_loses_nothing_uncounted),
];

fn a_reader_hears_of_every_value_and_of_the_end() {
    let log = log(2);
    let reader = read_all(&log);
    log.append(1).unwrap();
    log.append(2).unwrap();
    log.close();
    assert_eq!(reader.join().unwrap(), (vec![1, 2], 0));
}

fn a_reader_that_is_overtaken_knows_by_how_much() {
    let log = log(1);
    let reader = read_all(&log);
    for value in 1..=3 {
        log.append(value).unwrap();
    }
    log.close();
    let (values, missed) = reader.join().unwrap();
    assert_eq!(values.len() as u64 + missed, 3);
    assert_eq!(values.last(), Some(&3), "the last one is held");
    assert!(values.is_sorted());
    let counters = log.counters();
    assert_eq!((counters.delivered, counters.missed), (values.len() as u64, missed));
}

fn two_readers_see_what_two_writers_wrote_in_one_order() {
    let log = log(2);
    let writers = [1, 2].map(|value| spawn(&log, move |log| log.append(value).unwrap()));
    let mine = read_some(&mut Reader::starting_at(Arc::clone(&log), 0), 2);
    let indices = writers.map(|writer| writer.join().unwrap());
    let other = read_some(&mut Reader::starting_at(log, 0), 2);
    assert_eq!(mine, other);
    assert_eq!(mine, if indices == [0, 1] { [1, 2] } else { [2, 1] });
}

fn two_idle_readers_are_both_woken() {
    let log = log(1);
    let readers = [(); 2].map(|()| {
        let mut reader = Reader::new(Arc::clone(&log));
        thread::spawn(move || read_some(&mut reader, 1))
    });
    log.append(7).unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), [7]);
    }
}

fn a_batch_comes_in_one_piece() {
    let log = log(3);
    let other = spawn(&log, |log| log.append(9).unwrap());
    let reader = spawn(&log, |log| read_some(&mut Reader::starting_at(Arc::clone(log), 0), 3));
    log.append_batch(&mut vec![1, 2]).unwrap();
    other.join().unwrap();
    let values = reader.join().unwrap();
    assert!(values == [1, 2, 9] || values == [9, 1, 2], "{values:?}");
}

fn a_reader_that_gives_up_can_wait_again() {
    let log = log(2);
    let mut reader = Reader::new(Arc::clone(&log));
    let writer = spawn(&log, |log| log.append(1).unwrap());
    let mut values = Vec::new();
    let first = {
        let mut read = reader.read(1, &mut values);
        Pin::new(&mut read).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    if !first {
        assert!(values.is_empty(), "a dropped future has read nothing");
        values = read_some(&mut reader, 1);
    }
    assert_eq!(values, [1]);
    writer.join().unwrap();
}

fn a_reader_that_moves_is_woken_where_it_is() {
    let log = log(1);
    let mut reader = Reader::new(Arc::clone(&log));
    let writer = spawn(&log, |log| log.append(1).unwrap());
    if reader.poll_read(&mut Context::from_waker(Waker::noop()), 1, &mut Vec::new()).is_pending() {
        let there = thread::spawn(move || read_some(&mut reader, 1));
        assert_eq!(there.join().unwrap(), [1]);
    }
    writer.join().unwrap();
}

fn who_takes_the_place_of_one_that_left_is_woken() {
    let log = log(1);
    let mut impatient = Reader::new(Arc::clone(&log));
    assert!(impatient.poll_read(&mut Context::from_waker(Waker::noop()), 1, &mut Vec::new()).is_pending());
    let writer = spawn(&log, |log| log.append(1).unwrap());
    drop(impatient);
    let mut patient = Reader::new(Arc::clone(&log)); // In the other's slot, perhaps while that is being woken.
    let start = patient.position();
    log.append(2).unwrap();
    let missed = read_to_end_of(&mut patient, 2);
    assert_eq!(missed.0.len() as u64 + missed.1, 2 - start);
    writer.join().unwrap();
}

fn a_late_reader_gets_what_is_held_and_what_comes() {
    let log = log(1);
    log.append(1).unwrap();
    let writer = spawn(&log, |log| {
        log.append(2).unwrap();
        log.close();
    });
    let mut reader = Reader::from_oldest(Arc::clone(&log));
    let start = reader.position();
    let (values, missed) = read_to_end_of(&mut reader, 2);
    assert_eq!(start + values.len() as u64 + missed, 2);
    assert_eq!(values.last(), Some(&2));
    writer.join().unwrap();
}

fn less_room_loses_nothing_uncounted() {
    let log = log(2);
    let writer = spawn(&log, |log| log.append_batch(&mut vec![1, 2]).unwrap());
    let reader = spawn(&log, |log| read_to_end_of(&mut Reader::starting_at(Arc::clone(log), 0), 2));
    let pushed_out = log.set_bounds(1) as u64;
    let counters = log.counters();
    assert_eq!(counters.accepted, counters.dropped + counters.held, "also while others are at it");
    assert!(counters.held <= 1 && pushed_out <= counters.dropped);
    writer.join().unwrap();
    let (values, missed) = reader.join().unwrap();
    assert_eq!(values.len() as u64 + missed, 2);
}

fn log(capacity: usize) -> Arc<SharedLog<u32>> {
    Arc::new(SharedLog::new(capacity))
}

fn spawn<R: 'static>(
    log: &Arc<SharedLog<u32>>,
    work: impl FnOnce(&Arc<SharedLog<u32>>) -> R + 'static,
) -> JoinHandle<R> {
    let log = Arc::clone(log);
    thread::spawn(move || work(&log))
}

/// Waits for exactly so many values.
fn read_some(reader: &mut Reader<u32>, count: usize) -> Vec<u32> {
    let mut values = Vec::new();
    while values.len() < count {
        assert!(block_on(reader.read(count, &mut values)).unwrap() > 0);
    }
    values
}

/// Reads until its position is `end` or the log is closed: what came, and how many were missed.
fn read_to_end_of(reader: &mut Reader<u32>, end: u64) -> (Vec<u32>, u64) {
    let (mut values, mut missed_count) = (Vec::new(), 0);
    while reader.position() < end {
        match block_on(reader.read(8, &mut values)) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Lagged { missed }) => missed_count += missed,
        }
    }
    assert!(reader.counters().is_conserved());
    (values, missed_count)
}

/// A thread with a reader that began before anything was written.
fn read_all(log: &Arc<SharedLog<u32>>) -> JoinHandle<(Vec<u32>, u64)> {
    let mut reader = Reader::new(Arc::clone(log));
    thread::spawn(move || read_to_end_of(&mut reader, u64::MAX))
}
