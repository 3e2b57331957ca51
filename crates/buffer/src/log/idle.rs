//! The readers that wait, and which of them an append wakes.
//!
//! Each reader has a slot for its waker. A waiting reader has an entry in the line, with the index that it wants. A reader
//! waits only at the end of the log, so the line is sorted. An append wakes readers from the front of the line. It wakes no
//! reader twice, no busy reader, and no reader that waits for a later value.
//!
//! A reader that stops waiting removes its waker and leaves its entry, which then wakes no reader. The entry is reused if
//! the reader waits again. Bound: one slot and one entry per reader, for the most readers that ever existed at a time.

use std::collections::VecDeque;
use std::task::Waker;

/// The most wakers that are taken out of the line at once.
const WAKE_COUNT_MAX: usize = 32;

/// Wakers to call once the lock is released.
pub(super) type Wakes = [Option<Waker>; WAKE_COUNT_MAX];

#[derive(Default)]
pub(super) struct Idle {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The wanted index and the slot. Invariant: sorted by index; each slot is there at most once.
    line: VecDeque<(u64, usize)>,
}

#[derive(Default)]
struct Slot {
    waker: Option<Waker>,
    /// The slot has an entry in the line.
    is_in_line: bool,
}

impl Idle {
    /// Gives a slot to a new reader.
    pub(super) fn enter(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        })
    }

    /// Frees the slot of a reader.
    #[must_use = "a waker is dropped outside of the lock"]
    pub(super) fn leave(&mut self, slot: usize) -> Option<Waker> {
        self.free.push(slot);
        self.withdraw(slot)
    }

    /// Makes the reader wait for the value at `wants`, the end of the log. Returns the waker that it replaces, if that is
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

    /// Ends the wait of a reader.
    #[must_use = "a waker is dropped outside of the lock"]
    pub(super) fn withdraw(&mut self, slot: usize) -> Option<Waker> {
        self.slots[slot].waker.take()
    }

    /// Whether a reader in line wants a value before `end`.
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

    /// The number of readers, and of those that wait.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let waiting = self.slots.iter().filter(|slot| slot.waker.is_some()).count();
        (self.slots.len() - self.free.len(), waiting)
    }

    /// Checks the invariants, and that no reader sleeps that wants a value before `end`; with `everybody`, that no reader
    /// sleeps at all.
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
