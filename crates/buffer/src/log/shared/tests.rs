//! The shared log beside a model, with readers that come, wait, give up, move and go; and what must not run under its
//! lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A task with a reader.
struct Task {
    reader: Reader<u64>,
    bell: Arc<Bell>,
    /// The task waits, and has not been woken since.
    sleeps: bool,
    /// How often the task must have been woken.
    wakes: usize,
    /// The next index to read, the first index, and how many values were delivered.
    next: u64,
    start: u64,
    delivered: u64,
}

impl Task {
    fn new(reader: Reader<u64>, start: u64) -> Self {
        Self { reader, bell: Arc::default(), sleeps: false, wakes: 0, next: start, start, delivered: 0 }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Append,
    AppendBatch(usize),
    New,
    NewFromOldest,
    NewAt(u64),
    Drop(usize),
    TryRead(usize, usize),
    PollRead(usize, usize),
    /// Polls a `Read` future and drops it.
    Abandon(usize),
    /// From now on another task polls the reader.
    Move(usize),
    Skip(usize),
    SetBounds(usize),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, count) = (|| 0usize..6, || 1usize..5);
    let step = prop_oneof![
        8 => Just(Step::Append),
        3 => (0usize..7).prop_map(Step::AppendBatch),
        2 => Just(Step::New),
        1 => Just(Step::NewFromOldest),
        1 => (0u64..20).prop_map(Step::NewAt),
        1 => who().prop_map(Step::Drop),
        4 => (who(), count()).prop_map(|(who, count)| Step::TryRead(who, count)),
        12 => (who(), count()).prop_map(|(who, count)| Step::PollRead(who, count)),
        2 => who().prop_map(Step::Abandon),
        1 => who().prop_map(Step::Move),
        1 => who().prop_map(Step::Skip),
        1 => count().prop_map(Step::SetBounds),
    ];
    let steps = prop::collection::vec(step, 0..80);
    (steps, prop::option::of(0usize..80)).prop_map(|(mut steps, close)| {
        if let Some(at) = close {
            steps.insert(at.min(steps.len()), Step::Close);
        }
        steps
    })
}

/// The log beside its model. Each value is its own index; the log holds the values from `base` on.
struct Model {
    log: Arc<SharedLog<u64>>,
    tasks: Vec<Task>,
    base: u64,
    end: u64,
    capacity: u64,
    closed: bool,
    delivered: u64,
    missed: u64,
}

impl Model {
    fn new(capacity: usize) -> Self {
        let log = Arc::new(SharedLog::new(capacity));
        let capacity = capacity as u64;
        Self { log, tasks: vec![], base: 0, end: 0, capacity, closed: false, delivered: 0, missed: 0 }
    }

    /// The log has grown or was closed: each task that waits is woken once.
    fn wake_all(&mut self) {
        for task in &mut self.tasks {
            task.wakes += usize::from(std::mem::take(&mut task.sleeps));
        }
    }

    fn grow(&mut self, count: u64) {
        if count > 0 && !self.closed {
            self.end += count;
            self.base = self.base.max(self.end.saturating_sub(self.capacity));
            self.wake_all();
        }
    }

    fn task(&mut self, who: usize) -> Option<usize> {
        (!self.tasks.is_empty()).then(|| who % self.tasks.len())
    }

    /// What a read must return. No values, while the log is open: the read waits.
    fn owed(&self, who: usize, count: usize) -> Result<Vec<u64>, Lagged> {
        let next = self.tasks[who].next;
        if next < self.base {
            return Err(Lagged { missed: self.base - next });
        }
        Ok((next..self.end).take(count).collect())
    }

    fn account(&mut self, who: usize, result: &Result<Vec<u64>, Lagged>) {
        let task = &mut self.tasks[who];
        match result {
            Ok(values) => {
                task.next += values.len() as u64;
                task.delivered += values.len() as u64;
                self.delivered += values.len() as u64;
            }
            Err(Lagged { missed }) => {
                task.next += missed;
                self.missed += missed;
            }
        }
    }

    fn read(&mut self, who: usize, count: usize, wait: bool) -> Result<(), TestCaseError> {
        let owed = self.owed(who, count);
        let is_idle = owed.as_ref().is_ok_and(Vec::is_empty) && !self.closed;
        let task = &mut self.tasks[who];
        let mut out = Vec::new();
        let result = if wait {
            let waker = Waker::from(task.bell.clone());
            task.reader.poll_read(&mut Context::from_waker(&waker), count, &mut out)
        } else {
            Poll::Ready(task.reader.try_read(count, &mut out))
        };
        prop_assert_eq!(result.is_pending(), wait && is_idle);
        if let Poll::Ready(result) = result {
            prop_assert_eq!(
                result.map(|count| (count, &out)),
                owed.as_ref().map(|owed| (owed.len(), owed)).map_err(|e| *e)
            );
        }
        prop_assert!(out.is_empty() || owed.is_ok(), "nothing is read that was not owed");
        if wait || !is_idle {
            self.tasks[who].sleeps = wait && is_idle;
        }
        self.account(who, &owed);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Append => {
                let result = self.log.append(self.end);
                prop_assert_eq!(
                    result.map_err(|rejected| rejected.value),
                    if self.closed { Err(self.end) } else { Ok(self.end) }
                );
                self.grow(1);
            }
            Step::AppendBatch(count) => {
                let values: Vec<u64> = (self.end..).take(count).collect();
                let mut batch = values.clone();
                let result = self.log.append_batch(&mut batch);
                prop_assert_eq!(result, if self.closed { Err(Closed) } else { Ok(self.end) });
                prop_assert_eq!(batch, if self.closed { values } else { vec![] });
                self.grow(count as u64);
            }
            Step::New => self.tasks.push(Task::new(Reader::new(self.log.clone()), self.end)),
            Step::NewFromOldest => self.tasks.push(Task::new(Reader::from_oldest(self.log.clone()), self.base)),
            Step::NewAt(index) => {
                self.tasks.push(Task::new(Reader::starting_at(self.log.clone(), index), index.min(self.end)));
            }
            Step::Close => {
                self.log.close();
                self.closed = true;
                self.wake_all();
            }
            Step::SetBounds(capacity) => {
                let base = self.base.max(self.end.saturating_sub(capacity as u64));
                prop_assert_eq!(self.log.set_bounds(capacity) as u64, base - self.base);
                (self.base, self.capacity) = (base, capacity as u64);
            }
            Step::Drop(who)
            | Step::TryRead(who, _)
            | Step::PollRead(who, _)
            | Step::Abandon(who)
            | Step::Move(who)
            | Step::Skip(who) => {
                if let Some(who) = self.task(who) {
                    self.step_of(who, step)?;
                }
            }
        }
        Ok(())
    }

    fn step_of(&mut self, who: usize, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::TryRead(_, count) => self.read(who, count, false)?,
            Step::PollRead(_, count) => self.read(who, count, true)?,
            Step::Drop(_) => {
                let Task { reader, bell, wakes, .. } = self.tasks.swap_remove(who);
                drop(reader);
                prop_assert_eq!(bell.count(), wakes);
                prop_assert_eq!(Arc::strong_count(&bell), 1, "its waker is gone as well");
            }
            Step::Abandon(_) => {
                let owed = self.owed(who, 3);
                let is_idle = owed.as_ref().is_ok_and(Vec::is_empty) && !self.closed;
                let (task, mut out) = (&mut self.tasks[who], Vec::new());
                let waker = Waker::from(task.bell.clone());
                let result = {
                    let mut read = task.reader.read(3, &mut out);
                    Pin::new(&mut read).poll(&mut Context::from_waker(&waker))
                };
                prop_assert_eq!(result.is_pending(), is_idle);
                task.sleeps = false; // A dropped future is not woken.
                self.account(who, &owed);
            }
            Step::Move(_) => {
                // The old bell is not rung any more once the new task has polled.
                let task = &mut self.tasks[who];
                let old = std::mem::take(&mut task.bell);
                let (sleeps, wakes) = (std::mem::take(&mut task.sleeps), std::mem::take(&mut task.wakes));
                self.read(who, 1, true)?;
                prop_assert_eq!(old.count(), wakes);
                prop_assert_eq!(Arc::strong_count(&old), 1, "slept: {}", sleeps);
            }
            Step::Skip(_) => {
                let task = &mut self.tasks[who];
                prop_assert_eq!(task.reader.skip_to_end(), self.end - task.next);
                task.next = self.end;
            }
            _ => unreachable!("no step of a reader"),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let (base, values) = self.log.snapshot();
        prop_assert_eq!((base, values), (self.base, (self.base..self.end).collect()));
        let held = self.end - self.base;
        let Self { end: accepted, base: dropped, delivered, missed, .. } = *self;
        prop_assert_eq!(self.log.counters(), LogCounters { accepted, dropped, held, delivered, missed });
        let state = self.log.lock();
        prop_assert_eq!(state.idle.check(self.end, self.closed), Ok(()));
        let asleep = self.tasks.iter().filter(|task| task.sleeps).count();
        prop_assert_eq!(state.idle.counts(), (self.tasks.len(), asleep));
        prop_assert!(state.lost.is_empty());
        drop(state);
        for task in &self.tasks {
            prop_assert_eq!(task.bell.count(), task.wakes, "only idle readers are woken, once");
            prop_assert_eq!(task.reader.position(), task.next);
            let held = self.end - task.next.max(self.base);
            let (accepted, delivered) = (self.end - task.start, task.delivered);
            let counters = Counters { accepted, delivered, dropped: accepted - delivered - held, held };
            prop_assert_eq!(task.reader.counters(), counters);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 512 }, ..Default::default() })]

    /// Every order of whole operations; under the lock there are no others.
    #[test]
    fn readers_get_everything_or_are_told_and_only_idle_ones_are_woken(steps in steps(), capacity in 1usize..5) {
        let mut model = Model::new(capacity);
        for step in steps {
            model.step(step)?;
            model.check()?;
        }
    }
}

#[test]
fn more_readers_than_are_woken_in_one_go_are_all_woken() {
    let log = Arc::new(SharedLog::new(1));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut readers: Vec<_> = (0..100).map(|_| Reader::new(log.clone())).collect();
    for reader in &mut readers {
        assert!(reader.poll_read(&mut Context::from_waker(&waker), 1, &mut Vec::new()).is_pending());
    }
    log.append(1).unwrap();
    assert_eq!(bell.count(), 100);
}

#[test]
fn one_read_copies_no_more_than_it_says_and_stays_within_its_bytes() {
    let log = Arc::new(SharedLog::weighed(1000, |value: &usize| *value));
    let mut reader = Reader::new(log.clone());
    log.append_batch(&mut vec![1; 1000]).unwrap();
    let mut out = Vec::new();
    assert_eq!(reader.try_read(1000, &mut out), Ok(Reader::<usize>::READ_COUNT_MAX));
    assert_eq!(reader.try_read(Bounds::count(10).and_bytes(7), &mut out), Ok(7));
    assert_eq!(reader.try_read(Bounds::count(10).and_bytes(0), &mut out), Ok(1), "at least one");
}

/// A value whose drop looks at the log. Under the log's lock that would wait for ever.
struct Noisy(std::sync::Weak<SharedLog<Noisy>>, Arc<AtomicUsize>);

impl Drop for Noisy {
    fn drop(&mut self) {
        if let Some(log) = self.0.upgrade() {
            self.1.fetch_add(usize::from(log.counters().held <= 3), Ordering::Relaxed);
        }
    }
}

#[test]
fn what_is_pushed_out_is_dropped_outside_of_the_lock() {
    let (log, dropped) = (Arc::new(SharedLog::new(3)), Arc::new(AtomicUsize::new(0)));
    let noisy = || Noisy(Arc::downgrade(&log), dropped.clone());
    (0..5).for_each(|_| drop(log.append(noisy())));
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    log.append_batch(&mut (0..5).map(|_| noisy()).collect()).unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 7);
    log.set_bounds(1);
    assert_eq!(dropped.load(Ordering::Relaxed), 9);
}

/// A value whose drop panics.
#[derive(Clone)]
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "armed");
    }
}

#[test]
fn a_drop_that_panics_loses_no_wake_up() {
    let log = Arc::new(SharedLog::new(1));
    log.append(Bomb(true)).unwrap();
    let (mut reader, bell) = (Reader::new(log.clone()), Arc::new(Bell::default()));
    let waker = Waker::from(bell.clone());
    assert!(reader.poll_read(&mut Context::from_waker(&waker), 1, &mut Vec::new()).is_pending());
    let attempt = std::panic::AssertUnwindSafe(|| log.append(Bomb(false)).is_ok());
    assert!(std::panic::catch_unwind(attempt).is_err());
    assert_eq!((bell.count(), reader.try_read(1, &mut Vec::new())), (1, Ok(1)));
}

#[test]
fn the_memory_of_what_was_pushed_out_does_not_stay() {
    let log = SharedLog::new(10_000);
    log.append_batch(&mut vec![0u64; 10_000]).unwrap();
    log.set_bounds(2);
    log.append_batch(&mut vec![0u64; 10_000]).unwrap();
    let state = log.lock();
    assert!(state.lost.capacity() + state.log.values.memory() <= 100, "{} are kept", state.lost.capacity());
}

/// A value whose clone panics.
#[derive(Debug)]
struct Stubborn;

impl Clone for Stubborn {
    fn clone(&self) -> Self {
        panic!("I am the only one")
    }
}

#[test]
fn a_clone_that_panics_harms_only_its_reader() {
    let log = Arc::new(SharedLog::new(3));
    let mut reader = Reader::new(log.clone());
    log.append(Stubborn).unwrap();
    let attempt = std::panic::AssertUnwindSafe(|| reader.try_read(1, &mut Vec::new()));
    assert!(std::panic::catch_unwind(attempt).is_err());
    assert_eq!(reader.position(), 0);
    assert_eq!(log.append(Stubborn).unwrap(), 1);
    assert_eq!(reader.skip_to_end(), 2);
}
