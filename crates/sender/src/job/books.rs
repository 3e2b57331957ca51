//! Where each device of a job is. Plain data under the job's lock; nobody is woken here.

use std::sync::{Arc, Weak};

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_push::Settled;
use tidings_types::{BrakeScope, DeviceNumber, TopicName};

use super::{Finding, Job, set};
use crate::brakes::Braking;
use crate::metrics::Metrics;
use crate::outcome::DeviceOutcome;
use crate::parts::PartPlace;
use crate::row::Progress;
use crate::tally::Tally;

/// Invariant: a device of the audience is in exactly one of: from `next` on, `resumed`, a lane's set, the counts.
pub(super) struct Books {
    /// The first number the walk has not looked at.
    pub(super) next: Option<DeviceNumber>,
    /// What an earlier run had looked at and not finished, or what is left of an audience of which a part was taken
    /// out; walked before the rest.
    pub(super) resumed: RoaringBitmap,
    pub(super) lanes: Box<[Lane]>,
    /// Lanes that have a task, few of many.
    pub(super) manned: Vec<usize>,
    /// Devices of the audience that the walk holds back when it comes to them; empty once time is up.
    pub(super) may_answer: RoaringBitmap,
    /// Devices known to have received the event.
    pub(super) received: RoaringBitmap,
    /// In flight, and not to be attempted any more: these are for a newer job. Invariant: of those in flight.
    pub(super) superseded: RoaringBitmap,
    /// Who waits for those. Invariant: their sets are disjoint, not empty and of `superseded`. At most `job_count_max`
    /// and those that ended since the last one came.
    pub(super) waiters: Vec<Waiter>,
    /// In flight for an older job.
    pub(super) blocked: RoaringBitmap,
    /// Were so when this job began.
    pub(super) raced: RoaringBitmap,
    /// In flight, to tokens that no provider has accepted yet. Invariant: of those in flight.
    pub(super) unproven: RoaringBitmap,
    pub(super) is_cancelled: bool,
    /// Devices that another job of the same event goes on with.
    pub(super) aside: u64,
    pub(super) tally: Tally,
    /// By cell, where the parts of the tally are counted over all jobs; those of the newest may be missing.
    places: Vec<PartPlace>,
    /// Changed since the last checkpoint.
    pub(super) dirty: bool,
}

/// A newer job that has devices blocked until they have landed here. Weak: once it is over nobody is to be told, and an
/// older job that takes its time keeps no audience in memory.
pub(super) struct Waiter {
    job: Weak<Job>,
    pub(super) numbers: RoaringBitmap,
}

#[derive(Default)]
pub(super) struct Lane {
    /// May still prove that it needs no push. Invariant: empty when `may_answer` is.
    pub(super) held: RoaringBitmap,
    /// Waits to be handed out.
    pub(super) pending: RoaringBitmap,
    /// Handed to the lake.
    pub(super) in_flight: RoaringBitmap,
    /// The lane sleeps until no more than so many are in flight.
    pub(super) awaits: Option<u64>,
}

impl Books {
    pub(super) fn new(lane_count: usize, progress: Progress, frozen: &Frozen) -> Self {
        let Progress { next, outstanding: resumed, tally } = progress;
        let mut books = Self {
            next,
            resumed,
            lanes: (0..lane_count).map(|_| Lane::default()).collect(),
            manned: Vec::new(),
            may_answer: RoaringBitmap::new(),
            received: RoaringBitmap::new(),
            superseded: RoaringBitmap::new(),
            waiters: Vec::new(),
            blocked: RoaringBitmap::new(),
            raced: RoaringBitmap::new(),
            unproven: RoaringBitmap::new(),
            is_cancelled: false,
            aside: 0,
            tally,
            places: Vec::new(),
            dirty: true,
        };
        books.skip_to_member(frozen);
        books
    }

    pub(super) fn is_over(&self) -> bool {
        let idle = |lane: &Lane| lane.held.is_empty() && lane.pending.is_empty() && lane.in_flight.is_empty();
        self.is_walked() && self.lanes.iter().all(idle)
    }

    pub(super) fn is_walked(&self) -> bool {
        self.next.is_none() && self.resumed.is_empty()
    }

    /// Whether the end of the event's time would still end something.
    pub(super) fn has_unsent(&self) -> bool {
        !self.is_walked() || self.lanes.iter().any(|lane| !lane.held.is_empty() || !lane.pending.is_empty())
    }

    pub(super) fn is_holding(&self) -> bool {
        !self.may_answer.is_empty() && (!self.is_walked() || self.held() > 0)
    }

    pub(super) fn held(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }

    pub(super) fn in_flight(&self) -> RoaringBitmap {
        self.lanes.iter().fold(RoaringBitmap::new(), |all, lane| all | &lane.in_flight)
    }

    /// Devices walked over or set aside, without an outcome.
    pub(super) fn outstanding(&self) -> RoaringBitmap {
        let mut outstanding = self.resumed.clone();
        for Lane { held, pending, in_flight, .. } in &self.lanes {
            outstanding |= held;
            outstanding |= pending;
            outstanding |= in_flight;
        }
        outstanding
    }

    /// How many devices there are beside those from `next` on.
    pub(super) fn known(&self) -> u64 {
        let of_lane = |lane: &Lane| lane.held.len() + lane.pending.len() + lane.in_flight.len();
        self.tally.counts.total() + self.resumed.len() + self.lanes.iter().map(of_lane).sum::<u64>()
    }

    /// From `next` on.
    pub(super) fn rest(&self, frozen: &Frozen) -> RoaringBitmap {
        self.next.map_or_else(RoaringBitmap::new, |next| set(frozen.iter_from(next)))
    }

    /// The next devices of the walk, without moving it.
    pub(super) fn unwalked(&self, frozen: &Frozen, limit: usize) -> Vec<DeviceNumber> {
        if !self.resumed.is_empty() {
            return self.resumed.iter().take(limit).map(DeviceNumber).collect();
        }
        self.next.map_or_else(Vec::new, |next| frozen.iter_from(next).take(limit).collect())
    }

    /// Moves the walk's cursor to the next device of the audience, so that its end is noticed with the last one.
    pub(super) fn skip_to_member(&mut self, frozen: &Frozen) {
        self.next = self.next.and_then(|next| frozen.iter_from(next).next());
    }

    /// Makes the rest of the walk a set of its own, from which devices can be taken and which a checkpoint keeps:
    /// nobody comes back into it by being selected anew after a restart.
    pub(super) fn freeze_rest(&mut self, frozen: &Frozen) {
        let rest = self.rest(frozen);
        self.resumed |= rest;
        self.next = None;
    }

    /// Takes out those of `numbers` that were not handed out, which the caller counts; the walk's rest must be frozen.
    pub(super) fn take_unsent(&mut self, numbers: &RoaringBitmap, metrics: &Metrics) -> u64 {
        let take = |set: &mut RoaringBitmap| {
            let before = set.len();
            *set -= numbers;
            before - set.len()
        };
        let (mut count, mut held) = (take(&mut self.resumed), 0);
        for lane in &mut self.lanes {
            count += take(&mut lane.pending);
            held += take(&mut lane.held);
        }
        metrics.devices_held.sub(held as i64);
        count + held
    }

    /// Takes out all that were not handed out, which the caller counts.
    pub(super) fn end_unsent(&mut self, frozen: &Frozen, metrics: &Metrics) -> u64 {
        let unwalked = self.next.map_or(0, |next| frozen.iter_from(next).count() as u64);
        let pending: u64 = self.lanes.iter().map(|lane| lane.pending.len()).sum();
        let held = self.held();
        let count = unwalked + self.resumed.len() + held + pending;
        self.next = None;
        self.resumed.clear();
        self.may_answer.clear();
        for lane in &mut self.lanes {
            lane.held.clear();
            lane.pending.clear();
        }
        metrics.devices_held.sub(held as i64);
        count
    }

    /// Takes a device out of whichever lane has it in flight, and tells which.
    pub(super) fn land(&mut self, device: DeviceNumber) -> Option<usize> {
        let Self { manned, lanes, .. } = self;
        manned.iter().copied().find(|&lane| lanes[lane].in_flight.remove(device.0))
    }

    /// `newer` waits for `numbers`, which are in flight, instead of whoever did: it has taken over there too.
    pub(super) fn await_landing(&mut self, newer: &Arc<Job>, numbers: &RoaringBitmap) {
        self.superseded |= numbers;
        self.waiters.iter_mut().for_each(|waiter| waiter.numbers -= numbers);
        self.waiters.retain(|waiter| !waiter.numbers.is_empty() && waiter.job.strong_count() > 0);
        self.waiters.push(Waiter { job: Arc::downgrade(newer), numbers: numbers.clone() });
    }

    /// `numbers` are not in flight any more; gives the jobs that wait for them.
    pub(super) fn free(&mut self, numbers: &RoaringBitmap) -> Vec<Arc<Job>> {
        if numbers.is_empty() {
            return Vec::new();
        }
        self.superseded -= numbers;
        let waits = |waiter: &&mut Waiter| !waiter.numbers.is_disjoint(numbers);
        let told = self.waiters.iter_mut().filter(waits).filter_map(|waiter| {
            waiter.numbers -= numbers;
            waiter.job.upgrade()
        });
        let told = told.collect();
        self.waiters.retain(|waiter| !waiter.numbers.is_empty());
        told
    }

    /// Counts the suppressed and gives the others by lane.
    pub(super) fn place(
        &mut self,
        findings: &[(DeviceNumber, Finding)],
        metrics: &Metrics,
    ) -> Vec<(usize, RoaringBitmap)> {
        let mut lanes: Vec<(usize, RoaringBitmap)> = Vec::new();
        for &(number, finding) in findings {
            match finding {
                Finding::Suppressed(why) => self.count(DeviceOutcome::Suppressed(why), 1, metrics),
                Finding::Lane(lane) => match lanes.iter_mut().find(|(known, _)| *known == lane) {
                    Some((_, numbers)) => drop(numbers.insert(number.0)),
                    None => lanes.push((lane, RoaringBitmap::from([number.0]))),
                },
            }
        }
        lanes
    }

    /// Counts those of `numbers` that have received it, holds back those that may, and gives the others. Whom an older
    /// job may still be shown to is not spared the newer one.
    pub(super) fn hold_back(&mut self, lane: usize, mut numbers: RoaringBitmap, metrics: &Metrics) -> RoaringBitmap {
        let raced = &numbers & &self.raced;
        numbers -= &raced;
        if !self.received.is_empty() {
            let received = &numbers & &self.received;
            numbers -= &received;
            self.count(DeviceOutcome::Received, received.len(), metrics);
        }
        if !self.may_answer.is_empty() {
            let held = &numbers & &self.may_answer;
            numbers -= &held;
            metrics.devices_held.add(held.len() as i64);
            self.lanes[lane].held |= held;
        }
        numbers | raced
    }

    pub(super) fn count(&mut self, outcome: DeviceOutcome, count: u64, metrics: &Metrics) {
        self.tally.counts.add(outcome, count);
        metrics.count(outcome, count);
    }

    /// Counts a device that a gateway has settled.
    pub(super) fn count_settled(&mut self, settled: &Settled, metrics: &Metrics) {
        let Settled { ticket, outcome, repeats, .. } = settled;
        let device_outcome = DeviceOutcome::from(*outcome);
        self.count(device_outcome, 1, metrics);
        self.tally.retried += u64::from(*repeats);
        metrics.attempts_repeated.add(u64::from(*repeats));
        if let Some(provider) = self.tally.count_part(ticket.cell, device_outcome) {
            metrics.count_provider(provider, device_outcome);
            let unplaced = self.tally.parts.iter().skip(self.places.len());
            self.places.extend(unplaced.map(|part| metrics.parts.place(part)));
            if let Some(place) = self.places.get(usize::from(ticket.cell)) {
                metrics.parts.count(*place, *outcome);
            }
        }
    }

    /// The brake, if any, that keeps everything back which is left to hand out.
    pub(super) fn paused_by(&self, topic: &TopicName, brakes: &Braking) -> Option<BrakeScope> {
        let waits = |lane: &usize| !self.lanes[*lane].pending.is_empty() || !self.lanes[*lane].held.is_empty();
        let mut waiting = (0..self.lanes.len()).filter(waits).map(|lane| brakes.of_lane(topic, lane));
        match waiting.next() {
            Some(first) => first.filter(|_| waiting.all(|scope| scope.is_some())),
            None => brakes.of_topic(topic).filter(|_| !self.is_walked()),
        }
    }

    /// For a checkpoint. What is in flight and superseded is so in the row already: a crash ends the attempt, and it
    /// does not come back here, also when the newer job is over by then.
    pub(super) fn progress(&self) -> Progress {
        let mut tally = self.tally.clone();
        tally.counts.add(DeviceOutcome::Superseded, self.superseded.len());
        Progress { next: self.next, outstanding: self.outstanding() - &self.superseded, tally }
    }
}
