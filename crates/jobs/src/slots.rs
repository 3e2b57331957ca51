//! Decides which jobs hold a *slot*, and which waiting job starts next.
//!
//! A slot is for a job that has something to send. There are `job_count_max` slots. This module is the rules alone: no
//! clock, lock, task or metric. The sender's `dispatcher` tells it what happens to the jobs, asks it, and does what it says;
//! the sender's `waiting` keeps the waiting jobs.
//!
//! # Rules
//! 1. Events are read from the journal in order. An event that gets no slot by rule 3 becomes a *waiting job*: one row on disk
//!    and about 1 KiB of memory. Reading goes on, so an urgent event behind a thousand newsletters is seen at once. An event
//!    with `push: never` needs no slot.
//! 2. A running job is *idle* while it has nothing to send: it only waits for answers, or all its devices are paused, or
//!    wait at lakes that stand still, or wait for an older job with the same collapse key. A job that still walks over its
//!    audience, or holds devices back for receipts, is not idle. An idle job holds no slot. It keeps running while there
//!    are no more than `job_count_max` running jobs. When there are more, idle jobs with nothing in flight are *suspended*,
//!    the least urgent and then the youngest first: they become waiting jobs.
//! 3. When all slots are taken, an urgent job takes the slot of a less urgent one that can be suspended: of the least
//!    urgent, and then of the youngest. A job cannot be suspended while it has something in flight, walks over its audience
//!    or holds devices back for receipts. If no less urgent job can be suspended, the urgent one starts in addition.
//! 4. A free slot goes to the most urgent waiting job that can go on, then to the oldest. But of 16 slots in a row, each
//!    lower priority that waits gets one ([`Turns`]), so that no job starves.
//! 5. A waiting job that only has to end needs no slot, but memory, and goes before all others: it is cancelled, its time is
//!    over, or no device of it is left.
//! 6. While no slot is free, or no memory for a job of low priority, running jobs that only wait for receipts stop waiting 500 ms after their event's acceptance:
//!    the oldest ones, and no more of them than there are waiting jobs that can go on.
//!
//! So, within the limits below, a job waits only behind jobs that are no less urgent and have something to send, walk, or
//! hold devices back. When jobs that can send nothing, because their provider does not answer, take all memory, other jobs
//! wait for them.
//!
//! Which running jobs are idle is looked up every 100 ms while jobs wait or at least `job_count_max` run, and when a pause
//! begins or ends. A job that has started since the last look counts as one that has something to send, and does not lose
//! its slot.
//!
//! # Limits
//! | What | Limit | When it is reached |
//! |---|---|---|
//! | slots | `job_count_max` (1024), 2 × for jobs that start in addition | rules 3 and 4 |
//! | running jobs | 16 × `job_count_max` (16 384); low priority 14 ×, normal 15 × | the next job waits |
//! | bytes of running jobs ([`JobSize`](crate::JobSize)) | `job_bytes_max` (1 GiB) and one job; to begin by its own claim, low priority 14 sixteenths, normal 15 | the next job waits, and idle ones are suspended as by rule 2 |
//! | waiting jobs | 64 × `job_count_max` (65 536), 1 KiB each; the last `job_count_max` for suspended jobs | the next event stays in the journal, and no further job is suspended |
//! | sets and counts of waiting jobs | a quarter of `job_bytes_max` together | no further job is suspended |
//!
//! Running jobs that hold no slot and cannot be suspended have devices in flight. So they are no more than the devices that
//! lakes and gateways hold. Repeats to one failing provider can be that many. Beyond that quarter comes only what a newer
//! event leaves of older waiting jobs with the same collapse key.
//!
//! # After a crash
//! Every unfinished job is a waiting job, and starts again by rules 4 and 5. Its row was written in one batch with the
//! checkpoint that says its event was read.

use std::collections::BTreeSet;

use tidings_buffer::Turns;
use tidings_types::{EventPriority, JournalPosition};

/// Running jobs, in units of `job_count_max`; the last two of these
/// are for more urgent ones.
const RUNNING_PER_SLOT: usize = 16;
/// Waiting jobs, in the same units; the last of these is for suspended ones.
pub const WAITING_PER_SLOT: usize = 64;
/// The sets and counts of all waiting jobs may take this part of what the running ones may.
pub const WAITING_BYTES_PART: usize = 4;

/// A job's rank among others of its kind. A greater rank is less urgent, then younger.
type Rank = (EventPriority, JournalPosition);

/// What a waiting job that can go on will do. The smaller one goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ready {
    /// End: rule 5.
    ToEnd,
    /// Send, for which it needs a slot.
    ToSend(EventPriority),
}

/// The waiting jobs that can go on, the next one first: rules 4 and 5.
#[derive(Debug, Default)]
pub struct ReadyQueue(BTreeSet<(Ready, JournalPosition)>);

/// The answer to [`Slots::claim`].
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// The job may start.
    Granted,
    /// Suspend this less urgent job if that is possible, and claim again.
    Suspend(JournalPosition),
    /// The job waits.
    Denied,
}

/// The slots and the jobs that hold them.
pub struct Slots {
    job_count_max: usize,
    job_bytes_max: usize,
    /// Of all running jobs.
    running_bytes: usize,
    /// All running jobs, with a slot and without.
    running_count: usize,
    /// Running jobs that were idle at the last look.
    idle: BTreeSet<Rank>,
    /// Running jobs that had something to send at the last look, and were not to be suspended since.
    sending: BTreeSet<Rank>,
    /// Of the jobs that had something to send at the last look, the least urgent one's priority.
    least_urgent: Option<EventPriority>,
    /// Which priority of waiting jobs gets the next slot.
    turns: Turns<{ EventPriority::ALL.len() }>,
}

impl Slots {
    /// `job_count_max` slots, all free, and memory for the running jobs.
    pub fn new(job_count_max: usize, job_bytes_max: usize) -> Self {
        Self {
            job_count_max,
            job_bytes_max,
            running_bytes: 0,
            running_count: 0,
            idle: BTreeSet::new(),
            sending: BTreeSet::new(),
            least_urgent: None,
            turns: Turns::new(),
        }
    }

    /// A job that may take so many bytes runs from now on.
    pub fn on_started(&mut self, bytes: usize) {
        self.running_count += 1;
        self.running_bytes += bytes;
    }

    /// A job, which was started with so many bytes, has ended, or is suspended.
    pub fn on_stopped(&mut self, priority: EventPriority, position: JournalPosition, bytes: usize) {
        self.running_count -= 1;
        self.running_bytes -= bytes;
        self.idle.remove(&(priority, position));
        self.sending.remove(&(priority, position));
    }

    /// Whether it matters which running jobs are idle, when so many wait.
    pub fn are_contended(&self, waiting_count: usize) -> bool {
        waiting_count > 0 || self.running_count >= self.job_count_max || self.is_memory_short(EventPriority::Low)
    }

    /// Takes the running jobs, each with whether it is idle; no jobs if slots are not contended.
    pub fn on_look(&mut self, running: impl Iterator<Item = (EventPriority, JournalPosition, bool)>) {
        let (idle, sending): (Vec<_>, Vec<_>) = running.partition(|(.., is_idle)| *is_idle);
        let ranks = |jobs: Vec<_>| jobs.into_iter().map(|(priority, position, _)| (priority, position)).collect();
        (self.idle, self.sending) = (ranks(idle), ranks(sending));
        self.least_urgent = self.sending.last().map(|(priority, _)| *priority);
    }

    /// The idle jobs in the order in which they are to be suspended while [`Slots::are_exceeded`]: rule 2.
    pub fn idle(&self) -> Vec<JournalPosition> {
        self.idle.iter().rev().map(|(_, position)| *position).collect()
    }

    /// Whether there are more running jobs than slots, or their memory keeps some from starting of which so many wait.
    pub fn are_exceeded(&self, waiting_count: usize) -> bool {
        self.running_count > self.job_count_max || (waiting_count > 0 && self.is_memory_short(EventPriority::Low))
    }

    /// Whether there is memory for a job that only has to end.
    pub fn may_end_one(&self) -> bool {
        !self.is_memory_short(EventPriority::High)
    }

    /// Whether no job of this priority may start because of the memory of the running ones.
    fn is_memory_short(&self, priority: EventPriority) -> bool {
        let kept_for_more_urgent = self.job_bytes_max / RUNNING_PER_SLOT * priority as usize;
        self.running_bytes >= self.job_bytes_max - kept_for_more_urgent
    }

    /// Whether a job may be suspended, given how many wait and how many bytes their sets and counts take.
    pub fn may_suspend(&self, waiting_count: usize, waiting_bytes: usize) -> bool {
        waiting_bytes < self.job_bytes_max / WAITING_BYTES_PART && waiting_count < WAITING_PER_SLOT * self.job_count_max
    }

    /// How many jobs must stop waiting for receipts, given how many waiting jobs can go on: rule 6.
    pub fn holds_to_cut(&self, ready_count: usize) -> usize {
        if self.free(EventPriority::Low) > 0 { 0 } else { ready_count }
    }

    /// How many more events may become waiting jobs.
    pub fn waiting_room(&self, waiting_count: usize) -> usize {
        ((WAITING_PER_SLOT - 1) * self.job_count_max).saturating_sub(waiting_count)
    }

    /// How many jobs of a priority may start without taking another's slot.
    pub fn free(&self, priority: EventPriority) -> usize {
        if self.is_memory_short(priority) { 0 } else { self.free_of(self.job_count_max, priority) }
    }

    /// As [`Slots::free`], with the slots of those that start in addition, and whatever the memory.
    fn free_in_addition(&self, priority: EventPriority) -> usize {
        self.free_of(2 * self.job_count_max, priority)
    }

    fn free_of(&self, slot_count: usize, priority: EventPriority) -> usize {
        // `High` is 0: it may use all.
        let running_max = (RUNNING_PER_SLOT - priority as usize) * self.job_count_max;
        let taken = self.running_count - self.idle.len();
        slot_count.saturating_sub(taken).min(running_max.saturating_sub(self.running_count))
    }

    /// Asks for a slot for a job that wants to start: rules 3 and 4. Each job is to be suspended once at most between two
    /// looks.
    pub fn claim(&mut self, priority: EventPriority) -> Claim {
        if self.free(priority) > 0 {
            return Claim::Granted;
        }
        if let Some(&(_, position)) = self.sending.last().filter(|(other, _)| *other > priority) {
            self.sending.pop_last();
            return Claim::Suspend(position);
        }
        let is_more_urgent = self.least_urgent.is_some_and(|other| other > priority);
        let is_granted = is_more_urgent && !self.is_memory_short(priority) && self.free_in_addition(priority) > 0;
        if is_granted { Claim::Granted } else { Claim::Denied }
    }

    /// Which waiting job gets the slot that was granted for one of priority `first`, the most urgent that waits: rule 4.
    /// `next` says which job of a priority is next. A less urgent job may also start in addition to the others, but not as
    /// one of the last running jobs, which are for more urgent ones. It takes the memory that was granted.
    pub fn choose(
        &mut self,
        first: EventPriority,
        mut next: impl FnMut(EventPriority) -> Option<JournalPosition>,
    ) -> Option<JournalPosition> {
        let may_start = EventPriority::ALL.map(|priority| priority == first || self.free_in_addition(priority) > 0);
        let mut chosen = None;
        self.turns.next(|level| {
            chosen = if may_start[level] { next(EventPriority::ALL[level]) } else { None };
            chosen.is_some()
        });
        chosen
    }
}

impl ReadyQueue {
    /// How many jobs can go on.
    pub fn job_count(&self) -> usize {
        self.0.len()
    }

    /// Changes the state of a waiting job from `before` to `now`; `None` if it cannot go on or does not wait.
    pub fn update(&mut self, position: JournalPosition, before: Option<Ready>, now: Option<Ready>) {
        if before != now {
            before.map(|ready| self.0.remove(&(ready, position)));
            self.0.extend(now.map(|ready| (ready, position)));
        }
    }

    /// The next one, of those that are `from` or come after it.
    pub fn first(&self, from: Ready) -> Option<(Ready, JournalPosition)> {
        self.0.range((from, JournalPosition(0))..).next().copied()
    }
}

#[cfg(test)]
mod tests;
