//! The effects of a change of the books, for their driver to perform.

use roaring::RoaringBitmap;

use crate::outcome::DeviceOutcome;

/// Collected until the driver takes them. The order does not matter, but `newer` must wait until this job's lock is
/// released.
#[derive(Debug)]
#[must_use = "lanes and newer jobs wait for these"]
pub struct Effects<N> {
    /// Devices that have their outcome, to be counted over all jobs. No outcome twice.
    pub counted: Vec<(DeviceOutcome, u64)>,
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
            counted: Vec::new(),
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
    pub(super) fn count(&mut self, outcome: DeviceOutcome, count: u64) {
        match self.counted.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, counted)) => *counted += count,
            None if count > 0 => self.counted.push((outcome, count)),
            None => {}
        }
    }
}
