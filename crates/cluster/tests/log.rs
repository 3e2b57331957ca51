//! [`Log`] over a broker in memory: records of any size arrive, and a log that is not the one that was followed is refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_cluster::entry::PART_BYTES_MAX;
use tidings_cluster::{Broker, Log, Reply, Unreached};
use tidings_store::{CommitLog as _, LogError, LogPosition};

/// A broker that always answers. Entries before `first` were trimmed.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Kept>>);

#[derive(Clone, Default)]
struct Kept {
    entries: Vec<Vec<u8>>,
    trimmed: usize,
}

impl Broker for Memory {
    fn put(&mut self, after: u64, entry: &[u8]) -> Reply {
        let entries = &mut self.0.lock().unwrap().entries;
        if after != entries.len() as u64 {
            return Reply::Taken;
        }
        entries.push(entry.to_vec());
        Reply::Stored
    }

    fn look(&mut self, sequence: u64, _: Duration) -> Reply {
        let kept = self.0.lock().unwrap();
        let place = sequence as usize - 1;
        Reply::Found(kept.entries.get(place).filter(|_| place >= kept.trimmed).cloned())
    }

    fn range(&mut self) -> Result<(u64, u64), Unreached> {
        let kept = self.0.lock().unwrap();
        Ok((kept.trimmed as u64 + 1, kept.entries.len() as u64))
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// A log that leads, with `count` records.
fn leading(memory: &Memory, count: usize) -> (Log<Memory>, LogPosition) {
    let mut log = Log::new(memory.clone());
    assert_eq!(log.next(Duration::ZERO).unwrap(), None);
    let mut position = log.lead().unwrap().expect("nobody else does");
    for number in 0..count {
        position = log.append(&[number as u8]).unwrap();
    }
    (log, position)
}

fn read_from(memory: &Memory, position: LogPosition) -> Result<Option<Vec<u8>>, LogError> {
    let mut log = Log::new(memory.clone());
    log.seek(position);
    Ok(log.next(Duration::ZERO)?.map(|record| record.bytes))
}

fn is_lost<T>(result: Result<T, LogError>) -> bool {
    matches!(result, Err(LogError::Lost(_)))
}

#[test]
fn records_of_any_size_arrive_and_one_that_was_given_up_does_not() {
    let memory = Memory::default();
    let (mut log, _) = leading(&memory, 0);
    let large: Vec<u8> = (0..2 * PART_BYTES_MAX + 7).map(|at| at as u8).collect();
    log.append(&large).unwrap();
    log.append(b"small").unwrap();
    let mut reader = Log::new(memory.clone());
    let mut read = || reader.next(Duration::ZERO).unwrap().map(|record| record.bytes);
    assert_eq!((read(), read(), read()), (Some(large.clone()), Some(b"small".to_vec()), None));

    // Its writer is gone after the first part of a record, and another one takes over.
    log.append(&large).unwrap();
    memory.0.lock().unwrap().entries.truncate(6);
    let mut other = Log::new(memory.clone());
    while other.next(Duration::ZERO).unwrap().is_some() {}
    assert!(other.lead().unwrap().is_some());
    other.append(b"other").unwrap();
    assert_eq!((read(), read()), (Some(b"other".to_vec()), None));
}

#[test]
fn a_log_that_has_become_shorter_is_refused_by_readers_and_by_its_leader() {
    let memory = Memory::default();
    let (mut log, position) = leading(&memory, 5);
    assert_eq!(read_from(&memory, position).unwrap(), None);
    memory.0.lock().unwrap().entries.truncate(3);
    assert!(is_lost(read_from(&memory, position)));
    assert!(is_lost(log.append(b"more")), "and it does not wait for ever");
}

#[test]
fn another_log_of_the_same_length_is_refused() {
    let (one, other) = (Memory::default(), Memory::default());
    let (_, position) = leading(&one, 5);
    leading(&other, 5);
    assert!(is_lost(read_from(&other, position)));
    let mut log = Log::new(other);
    log.seek(position);
    assert!(is_lost(log.lead()), "nor does it lead");
}

#[test]
fn what_was_trimmed_too_early_is_noticed() {
    let memory = Memory::default();
    let (mut log, position) = leading(&memory, 2);
    let last = log.append(b"third").unwrap();
    memory.0.lock().unwrap().trimmed = position.sequence as usize;
    assert_eq!(read_from(&memory, position).unwrap(), Some(b"third".to_vec()), "the next one follows on it");
    memory.0.lock().unwrap().trimmed = last.sequence as usize;
    assert!(is_lost(read_from(&memory, position)));
    assert!(is_lost(read_from(&memory, LogPosition::default())));
    assert_eq!(read_from(&memory, last).unwrap(), None);
}
