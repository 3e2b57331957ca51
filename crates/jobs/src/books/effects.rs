//! What a change of the books asks of their driver.

use roaring::RoaringBitmap;

use crate::outcome::DeviceOutcome;

/// Collected until the driver takes them. In any order; but `newer` only when this job's lock is let go.
#[derive(Debug)]
#[must_use = "lanes and newer jobs wait for these"]
pub struct Effects<N> {
    /// Devices that have their outcome, to be counted over all jobs. No outcome twice.
    pub counted: Vec<(DeviceOutcome, u64)>,
    /// So many more devices are held; less when negative.
    pub held: i64,
    /// Lanes that run and have something to do again.
    pub wake: Vec<usize>,
    /// A lane that does not run has something to do.
    pub is_lane_wanted: bool,
    /// Nobody is held any more and nobody will be.
    pub is_nobody_held: bool,
    /// All that wait for the job are to be woken.
    pub is_over: bool,
    /// Devices that are for newer jobs and not in flight any more.
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
