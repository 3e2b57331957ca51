//! What moves devices from one state to another: the walk, lanes, outcomes and receipts.

use std::mem;

use roaring::RoaringBitmap;
use tidings_types::{AppId, DeviceNumber, Locale, Provider};

use super::{Answer, Books, Finding, Landing, Lane, LaneLimits, Outgoing, Step, WalkWindow, Window, in_order, set};
use crate::outcome::DeviceOutcome;
use crate::row::Progress;

impl<N: Clone> Books<N> {
    /// The next devices of the walk; `None` at its end. One window at a time.
    pub fn open_walk(&mut self, device_count: usize) -> Option<WalkWindow> {
        debug_assert!(self.walking.is_empty(), "the walk has one window at a time");
        let devices: Vec<DeviceNumber> = if self.resumed.is_empty() {
            let rest = self.next.map(|next| self.audience.iter_from(next));
            rest.into_iter().flatten().take(device_count).collect()
        } else {
            self.resumed.iter().take(device_count).map(DeviceNumber).collect()
        };
        let last = devices.last()?;
        if self.resumed.is_empty() {
            self.next = last.0.checked_add(1).map(DeviceNumber);
            self.skip_to_member();
        } else {
            self.resumed.remove_smallest(devices.len() as u64);
        }
        self.walking = in_order(&devices);
        Some(WalkWindow { devices })
    }

    /// Takes the findings about the devices of a window, in its order.
    pub fn assign(&mut self, window: WalkWindow, findings: &[Finding]) {
        let WalkWindow { devices } = window;
        assert_eq!(devices.len(), findings.len(), "each device has one finding");
        let walking = mem::take(&mut self.walking);
        let is_whole = walking.len() == devices.len() as u64;
        let found = devices.into_iter().zip(findings.iter().copied());
        for (lane, numbers) in self.by_lane(found.filter(|(device, _)| is_whole || walking.contains(device.0))) {
            let due = self.hold_back(lane, numbers);
            self.add_pending(lane, due);
        }
        self.changed();
    }

    /// The lanes that have something to do for the first time: each is to be run from now on.
    pub fn take_wanted_lanes(&mut self) -> Vec<usize> {
        let is_new = |lane: &usize| !self.lanes[*lane].pending.is_empty() && !self.started.contains(lane);
        let wanted: Vec<usize> = (0..self.lanes.len()).filter(is_new).collect();
        self.started.extend(&wanted);
        wanted
    }

    /// What `lane` does next. A lane that has to wait is woken when that may have changed.
    pub fn step(&mut self, lane: usize, limits: LaneLimits) -> Step {
        if self.is_over() {
            return Step::Over;
        }
        let most = limits.in_flight_max.saturating_sub(limits.window_device_count as u64);
        let lane = &mut self.lanes[lane];
        let is_full = !lane.pending.is_empty() && lane.handed_out_len() > most;
        lane.awaits = is_full.then_some(most);
        // A lane with nothing to hand out stays until the job is over, because a device may change to this lane.
        let must_wait = is_full || self.is_barred || lane.pending.is_subset(&self.blocked);
        if must_wait { Step::Wait } else { Step::Open }
    }

    /// The next devices of `lane`, where [`Books::step`] says so; they are handed out by [`Books::hand_out`].
    pub fn open_window(&mut self, lane: usize, limits: LaneLimits) -> Option<Window> {
        if self.step(lane, limits) != Step::Open {
            return None;
        }
        let Lane { pending, opened, .. } = &mut self.lanes[lane];
        let free = pending.iter().filter(|&number| !self.blocked.contains(number));
        let devices: Vec<DeviceNumber> = free.take(limits.window_device_count).map(DeviceNumber).collect();
        let numbers = in_order(&devices);
        *pending -= &numbers;
        *opened |= numbers;
        Some(Window { lane, devices })
    }

    /// Takes the findings about the devices of a window, in its order, before the notifications are handed to the lake.
    /// Devices of its lane are in flight from now on. `unproven` are those whose token no provider has accepted yet.
    pub fn hand_out(&mut self, window: Window, findings: &[Finding], unproven: &[DeviceNumber]) -> Outgoing {
        let Window { lane, mut devices } = window;
        assert_eq!(devices.len(), findings.len(), "each device has one finding");
        let mut numbers = in_order(&devices);
        self.lanes[lane].opened -= &numbers;
        let found = devices.iter().copied().zip(findings.iter().copied());
        let elsewhere: Vec<_> = found.filter(|(_, finding)| *finding != Finding::Lane(lane)).collect();
        if !elsewhere.is_empty() {
            let left = set(elsewhere.iter().map(|(device, _)| *device));
            numbers -= &left;
            devices.retain(|device| numbers.contains(device.0));
            let superseded = self.give_up(&left);
            let is_kept = |(device, _): &(DeviceNumber, _)| !superseded.contains(device.0);
            for (found, numbers) in self.by_lane(elsewhere.into_iter().filter(is_kept)) {
                self.add_pending(found, numbers);
            }
        }
        if !unproven.is_empty() {
            self.unproven |= &numbers & set(unproven.iter().copied());
        }
        self.effects.hand_out(lane, &numbers);
        self.lanes[lane].in_flight |= numbers;
        self.changed();
        Outgoing { lane, devices }
    }

    /// Takes devices back that were handed out and did not get into the lake.
    pub fn put_back(&mut self, outgoing: Outgoing, left: impl Iterator<Item = DeviceNumber>) {
        let Outgoing { lane, devices } = outgoing;
        let numbers = set(left) & in_order(&devices) & &self.lanes[lane].in_flight;
        self.lanes[lane].in_flight -= &numbers;
        self.unproven -= &numbers;
        self.effects.put_back |= &numbers;
        let superseded = self.give_up(&numbers);
        self.lanes[lane].pending |= numbers - superseded;
        self.changed();
    }

    /// Takes the outcome of a device in flight; `None`, and nothing is counted, when it is not in flight.
    pub fn settle(&mut self, device: DeviceNumber, answer: Answer) -> Option<Landing> {
        let Answer { outcome, cell, repeats, latency } = answer;
        let Self { started, lanes, .. } = self;
        let lane = started.iter().copied().find(|&lane| lanes[lane].in_flight.remove(device.0))?;
        if self.superseded.remove(device.0) {
            self.effects.landed.insert(device.0);
        }
        let is_proven = self.unproven.remove(device.0) && outcome == DeviceOutcome::Accepted;
        self.tally.counts.add(outcome, 1);
        self.effects.ended(outcome).insert(device.0);
        if repeats > 0 {
            self.tally.retried += repeats;
            self.effects.repeated.insert(device.0);
        }
        let provider = self.tally.count_part(cell, outcome);
        if outcome.is_answer() {
            self.tally.answered(provider, latency);
        }
        Some(Landing { lane, is_proven, provider })
    }

    /// After [`Books::settle`], once for all that were settled together.
    pub fn end_settling(&mut self) {
        self.changed();
    }

    /// Takes the devices that have received the event by now, and counts those that are held.
    pub fn receive(&mut self, received: RoaringBitmap) {
        let mut answered = RoaringBitmap::new();
        for lane in &mut self.lanes {
            let of_lane = &lane.held & &received;
            lane.held -= &of_lane;
            answered |= of_lane;
        }
        // Only the walk asks for those that are not held.
        self.received = if self.is_walked() { RoaringBitmap::new() } else { received };
        if !answered.is_empty() {
            self.effects.held -= answered.len() as i64;
            self.end(DeviceOutcome::Received, &answered);
            self.changed();
        }
    }

    /// The wait for receipts is over: held devices become pending.
    pub fn let_go(&mut self) {
        self.may_answer.clear();
        for lane in 0..self.lanes.len() {
            let held = mem::take(&mut self.lanes[lane].held);
            self.effects.held -= held.len() as i64;
            self.add_pending(lane, held);
        }
        self.effects.is_nobody_held = true;
    }

    /// Whether nothing of a lane is handed out; if not, the lane is woken then.
    pub fn has_landed(&mut self, lane: usize) -> bool {
        let lane = &mut self.lanes[lane];
        let has_landed = lane.handed_out_len() == 0;
        lane.awaits = (!has_landed).then_some(0);
        has_landed
    }

    /// Where the outcomes of one provider, app and language are counted.
    pub fn cell(&mut self, provider: Provider, app: &AppId, locale: Option<&Locale>) -> u16 {
        self.tally.cell(provider, app, locale)
    }

    /// For a checkpoint; `None` when nothing has changed since the last.
    pub fn take_progress(&mut self) -> Option<Progress> {
        mem::take(&mut self.is_dirty).then(|| self.progress())
    }

    /// The last checkpoint was not written.
    pub fn spoil_checkpoint(&mut self) {
        self.is_dirty = true;
    }
}
