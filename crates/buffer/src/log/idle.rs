//! Readers that wait: who they are, and which of them an append wakes.
//!
//! Each reader has a slot, in which its waker lies while it waits, and a waiting one has an entry in the line, which says
//! the index that it wants. A reader waits only when it wants the next value there will be, so the line is sorted, and an
//! append wakes a part of it from the front: no reader twice, none that is busy, none that came to wait after it.
//!
//! A reader that gives up waiting takes its waker out and leaves its entry, which then wakes nobody; it is used again
//! if the reader waits again before. Bound: one slot and one entry per reader, as many as ever were at a time.

use std::collections::VecDeque;
use std::task::Waker;

/// Wakers taken out of the line in one go.
const WAKE_COUNT_MAX: usize = 32;

/// Wakers to call once the lock is released.
pub(super) type Wakes = [Option<Waker>; WAKE_COUNT_MAX];

#[derive(Default)]
pub(super) struct Idle {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Index wanted, and slot. Invariant: sorted by index; a slot is in it at most once.
    line: VecDeque<(u64, usize)>,
}

#[derive(Default)]
struct Slot {
    waker: Option<Waker>,
    /// It has an entry in the line.
    is_in_line: bool,
}

impl Idle {
    /// A slot for a new reader.
    pub(super) fn enter(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        })
    }

    /// The reader goes away.
    #[must_use = "a waker is dropped outside of the lock"]
    pub(super) fn leave(&mut self, slot: usize) -> Option<Waker> {
        self.free.push(slot);
        self.withdraw(slot)
    }

    /// The reader waits for the value at `wants`, the end of the log; returns the waker that is replaced, if it is
    /// another task's.
    #[must_use = "a waker is dropped outside of the lock"]
    pub(super) fn wait(&mut self, slot: usize, wants: u64, waker: &Waker) -> Option<Waker> {
        let entry = &mut self.slots[slot];
        if !std::mem::replace(&mut entry.is_in_line, true) {
            self.line.push_back((wants, slot));
        }
        match &entry.waker {
            Some(own) if own.will_wake(waker) => None,
            _ => entry.waker.replace(waker.clone()),
        }
    }

    /// The reader no longer waits.
    #[must_use = "a waker is dropped outside of the lock"]
    pub(super) fn withdraw(&mut self, slot: usize) -> Option<Waker> {
        self.slots[slot].waker.take()
    }

    /// Whether somebody in line wants a value before `end`.
    #[inline]
    pub(super) fn is_owed(&self, end: u64) -> bool {
        self.line.front().is_some_and(|(wants, _)| *wants < end)
    }

    /// Takes readers that want a value before `end` out of the line, as many as `wakes` has room for.
    pub(super) fn take(&mut self, end: u64, wakes: &mut Wakes) {
        for wake in wakes {
            *wake = loop {
                let Some((_, slot)) = self.line.pop_front_if(|(wants, _)| *wants < end) else { return };
                let slot = &mut self.slots[slot];
                slot.is_in_line = false;
                if slot.waker.is_some() {
                    break slot.waker.take();
                }
            };
        }
    }

    /// How many readers there are, and how many of them wait.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let waiting = self.slots.iter().filter(|slot| slot.waker.is_some()).count();
        (self.slots.len() - self.free.len(), waiting)
    }

    /// The invariants, and that nobody sleeps who wants a value before `end`; `everybody`: that nobody sleeps at all.
    #[cfg(test)]
    pub(super) fn check(&self, end: u64, everybody: bool) -> Result<(), &'static str> {
        let entries = |slot: usize| self.line.iter().filter(|(_, other)| *other == slot).count();
        if !self.line.iter().is_sorted_by_key(|(wants, _)| *wants) {
            return Err("the line is not sorted");
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if entries(index) != usize::from(slot.is_in_line) {
                return Err("a slot and the line do not agree");
            }
            if slot.waker.is_some() && !slot.is_in_line {
                return Err("a reader sleeps that no append will wake");
            }
        }
        let asleep = self.line.iter().filter(|(_, slot)| self.slots[*slot].waker.is_some());
        if asleep.clone().any(|(wants, _)| everybody || *wants < end) {
            return Err("a reader sleeps although there is something for it");
        }
        Ok(())
    }
}
