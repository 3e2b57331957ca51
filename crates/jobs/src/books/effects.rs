//! The effects of a change of the books, for their driver to perform.

use roaring::RoaringBitmap;

use crate::outcome::DeviceOutcome;

/// Collected until the driver takes them. The order does not matter, but `newer` must wait until this job's lock is
/// released.
#[derive(Debug)]
#[must_use = "lanes and newer jobs wait for these"]
pub struct Effects<N> {
    /// Devices that have their outcome, to be counted over all jobs. No outcome twice.
    pub ended: Vec<(DeviceOutcome, RoaringBitmap)>,
    /// Devices that are held from now on.
    pub held_back: RoaringBitmap,
    /// Devices that are on their way into a lake, by lane. No lane twice.
    pub handed_out: Vec<(usize, RoaringBitmap)>,
    /// Devices that did not get into the lake.
    pub put_back: RoaringBitmap,
    /// Devices whose outcome took more than one attempt.
    pub repeated: RoaringBitmap,
    /// The change of the number of held devices.
    pub held: i64,
    /// Lanes that run and have something to do again.
    pub wake: Vec<usize>,
    /// A lane that does not run has something to do.
    pub is_lane_wanted: bool,
    /// No device is held any more, and none will be.
    pub is_nobody_held: bool,
    /// All that wait for the job are to be woken.
    pub is_over: bool,
    /// Devices for newer jobs that are no longer in flight.
    pub landed: RoaringBitmap,
    /// The newer jobs that wait for some of those.
    pub newer: Vec<N>,
}

impl<N> Default for Effects<N> {
    fn default() -> Self {
        Self {
            ended: Vec::new(),
            held_back: RoaringBitmap::new(),
            handed_out: Vec::new(),
            put_back: RoaringBitmap::new(),
            repeated: RoaringBitmap::new(),
            held: 0,
            wake: Vec::new(),
            is_lane_wanted: false,
            is_nobody_held: false,
            is_over: false,
            landed: RoaringBitmap::new(),
            newer: Vec::new(),
        }
    }
}

impl<N> Effects<N> {
    /// Whether something has happened to a device that a trail notes.
    pub fn are_of_devices(&self) -> bool {
        let sets = [&self.held_back, &self.put_back, &self.repeated];
        !self.ended.is_empty() || !self.handed_out.is_empty() || sets.iter().any(|set| !set.is_empty())
    }

    /// The devices that have this outcome, to which more may be added.
    pub(super) fn ended(&mut self, outcome: DeviceOutcome) -> &mut RoaringBitmap {
        of(&mut self.ended, outcome)
    }

    pub(super) fn hand_out(&mut self, lane: usize, numbers: &RoaringBitmap) {
        *of(&mut self.handed_out, lane) |= numbers;
    }
}

/// The set under `key`.
fn of<K: PartialEq>(sets: &mut Vec<(K, RoaringBitmap)>, key: K) -> &mut RoaringBitmap {
    let at = sets.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        sets.push((key, RoaringBitmap::new()));
        sets.len() - 1
    });
    &mut sets[at].1
}
