//! Questions about the state of a job's books. Nothing here changes them.

use roaring::RoaringBitmap;
use tidings_types::DeviceNumber;

use super::{Books, Lane, set};
use crate::outcome::DeviceOutcome;
use crate::row::Progress;
use crate::tally::Tally;
use crate::trail::Whereabouts;

impl<N> Books<N> {
    /// Where a device is.
    pub fn whereabouts(&self, device: DeviceNumber) -> Whereabouts {
        let is_behind = self.next.is_some_and(|next| device >= next) && self.audience.contains(device);
        if is_behind || self.resumed.contains(device.0) || self.walking.contains(device.0) {
            return Whereabouts::Unwalked;
        }
        let Some(lane) = self.lanes.iter().position(|lane| lane.sets().iter().any(|set| set.contains(device.0))) else {
            return Whereabouts::Nowhere;
        };
        let Lane { held, pending, .. } = &self.lanes[lane];
        if held.contains(device.0) {
            Whereabouts::Held
        } else if !pending.contains(device.0) {
            Whereabouts::InFlight(lane)
        } else if self.blocked.contains(device.0) {
            Whereabouts::Blocked
        } else {
            Whereabouts::Pending(lane)
        }
    }

    /// What is counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether every device has its outcome, or another job goes on with them.
    pub fn is_over(&self) -> bool {
        self.is_walked() && self.lanes.iter().all(|lane| lane.sets().iter().all(|set| set.is_empty()))
    }

    /// Whether another job of the same event goes on with its devices.
    pub fn is_suspended(&self) -> bool {
        self.suspended > 0
    }

    /// Whether [`Books::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Whether every device was looked at.
    pub fn is_walked(&self) -> bool {
        self.next.is_none() && self.resumed.is_empty() && self.walking.is_empty()
    }

    /// Whether the event's expiry would still end devices.
    pub fn has_unsent(&self) -> bool {
        !self.is_walked() || self.lanes.iter().any(|lane| !lane.held.is_empty() || !lane.pending.is_empty())
    }

    /// Whether a device is held or may still be.
    pub fn is_holding(&self) -> bool {
        !self.may_answer.is_empty() && (!self.is_walked() || self.held_len() > 0)
    }

    /// How many devices are held.
    pub fn held_len(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }

    /// Whether the job only waits for receipts.
    pub fn only_holds(&self) -> bool {
        let is_idle = |lane: &Lane| lane.pending.is_empty() && lane.handed_out_len() == 0;
        self.is_walked() && self.lanes.iter().all(is_idle) && self.held_len() > 0
    }

    /// Whether all that is left to do is to wait: for outcomes, or for lanes that are stuck.
    pub fn is_idle(&self, is_stuck: impl Fn(usize) -> bool) -> bool {
        let is_waiting = |lane: usize, pending: &RoaringBitmap| pending.is_subset(&self.blocked) || is_stuck(lane);
        let mut lanes = self.lanes.iter().enumerate();
        self.is_walked() && self.held_len() == 0 && lanes.all(|(lane, Lane { pending, .. })| is_waiting(lane, pending))
    }

    /// The lanes that have devices which were not handed out.
    pub fn unsent_lanes(&self) -> impl Iterator<Item = usize> {
        let has_unsent = |lane: &usize| !self.lanes[*lane].pending.is_empty() || !self.lanes[*lane].held.is_empty();
        (0..self.lanes.len()).filter(has_unsent)
    }

    /// How many devices were handed out and have no outcome.
    pub fn handed_out_len(&self) -> u64 {
        self.lanes.iter().map(Lane::handed_out_len).sum()
    }

    /// Devices that were handed out and have no outcome.
    pub fn handed_out(&self) -> RoaringBitmap {
        self.lanes.iter().fold(RoaringBitmap::new(), |all, lane| all | &lane.in_flight | &lane.opened)
    }

    /// Whether devices that are handed out belong to a newer job.
    pub fn has_superseded(&self) -> bool {
        !self.superseded.is_empty()
    }

    /// Whether the device is handed out and belongs to a newer job.
    pub fn is_superseded(&self, device: DeviceNumber) -> bool {
        self.superseded.contains(device.0)
    }

    /// Devices without an outcome.
    pub fn open_devices(&self) -> RoaringBitmap {
        let mut open = self.outstanding();
        open |= self.rest();
        open
    }

    /// How many devices were selected, as far as known: it is exact once the walk is over.
    pub fn audience_len(&self) -> u64 {
        let of_lane = |lane: &Lane| lane.sets().iter().map(|set| set.len()).sum::<u64>();
        let of_lanes = self.lanes.iter().map(of_lane).sum::<u64>();
        let known = self.tally.counts.total() + self.resumed.len() + self.walking.len() + of_lanes;
        if self.next.is_none() { known + self.suspended } else { known.max(self.audience.len()) }
    }

    /// Devices walked over or set aside, without an outcome.
    pub(super) fn outstanding(&self) -> RoaringBitmap {
        let sets = self.lanes.iter().flat_map(Lane::sets);
        sets.chain([&self.walking]).fold(self.resumed.clone(), |all, set| all | set)
    }

    /// From `next` on.
    pub(super) fn rest(&self) -> RoaringBitmap {
        self.next.map_or_else(RoaringBitmap::new, |next| set(self.audience.iter_from(next)))
    }

    /// Checks the books of a job for so many devices: for tests.
    ///
    /// # Panics
    /// When a device is in two states, there are not as many as selected, or another invariant does not hold.
    pub fn check(&self, audience: u64) {
        let mut sets = vec![&self.resumed, &self.walking];
        sets.extend(self.lanes.iter().flat_map(Lane::sets));
        assert!(self.lanes.iter().all(|lane| lane.held.is_subset(&self.may_answer)), "only who may answer is held");
        assert!(self.superseded.is_subset(&self.handed_out()), "of the superseded only those handed out are kept");
        let in_flight = self.lanes.iter().fold(RoaringBitmap::new(), |all, lane| all | &lane.in_flight);
        assert!(self.unproven.is_subset(&in_flight) && self.blocked.is_subset(&self.raced));
        let waited_for = self.waiters.iter().fold(RoaringBitmap::new(), |all, waiter| all | &waiter.numbers);
        assert!(waited_for.is_subset(&self.superseded) && self.waiters.iter().all(|it| !it.numbers.is_empty()));
        assert_eq!(waited_for.len(), self.waiters.iter().map(|it| it.numbers.len()).sum::<u64>(), "one each");
        let outstanding = self.outstanding();
        assert_eq!(outstanding.len(), sets.iter().map(|set| set.len()).sum::<u64>(), "the sets are disjoint");
        if let (Some(next), Some(last)) = (self.next, outstanding.max()) {
            assert!(last < next.0, "what is outstanding was walked");
        }
        let all = self.rest().len() + outstanding.len() + self.tally.counts.total();
        assert_eq!(all, audience, "nobody is lost or doubled");
    }

    /// How many newer jobs wait for devices of this one.
    pub fn newer_len(&self) -> usize {
        self.waiters.len()
    }

    /// For a checkpoint. In the row, devices that are handed out and superseded count as superseded already: a crash
    /// ends the attempt, and the device does not come back here, even if the newer job is over by then.
    pub(super) fn progress(&self) -> Progress {
        let mut tally = self.tally.clone();
        tally.counts.add(DeviceOutcome::Superseded, self.superseded.len());
        Progress { next: self.next, outstanding: self.outstanding() - &self.superseded, tally }
    }
}
