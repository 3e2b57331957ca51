//! Which lanes can hand something out: lanes that are not paused and whose lake moves.
//!
//! A lake stands still if it was full at two samples at least [`PERIOD`] apart, and at most one [`STILL_PART`]th of its
//! capacity was taken in between. Then its provider is dead, or its breaker is open. Its gateway still takes a
//! notification now and then, to give it up or as a probe. A slow lake moves.

use std::sync::Arc;
use std::time::Duration;

use tidings_store::Brakes;
use tidings_types::{BrakeScope, EventPriority, TopicName};
use tokio::time::Instant;

use crate::brakes::Braking;
use crate::routes::Routes;

/// The shortest time between two samples of the lakes.
const PERIOD: Duration = Duration::from_millis(100);

/// Of a lake's capacity, what may be taken of one that stands still; of one that holds fewer than so many, nothing.
const STILL_PART: u64 = 64;

/// As of the last [`Flow::look`].
pub(crate) struct Flow {
    brakes: Arc<Brakes>,
    /// By lane: whether a brake on its app or provider pauses it.
    paused: Vec<bool>,
    /// By lane and priority.
    lakes: Vec<[Sample; EventPriority::ALL.len()]>,
    sampled_at: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Sample {
    delivered: u64,
    is_full: bool,
    is_still: bool,
}

impl Sample {
    /// The next sample after this one.
    fn then(self, delivered: u64, held: u64, capacity: u64) -> Self {
        // A notification that was taken leaves room until the next one comes.
        let taken = delivered.saturating_sub(self.delivered);
        let is_full = held.saturating_add(capacity / STILL_PART) >= capacity;
        let is_still = is_full && self.is_full && taken <= capacity / STILL_PART;
        Self { delivered, is_full, is_still }
    }
}

impl Flow {
    /// Everything flows.
    pub(crate) fn new(lane_count: usize) -> Self {
        let (paused, lakes) = (vec![false; lane_count], vec![Default::default(); lane_count]);
        Self { brakes: Arc::default(), paused, lakes, sampled_at: None }
    }

    /// No lake moves.
    #[cfg(test)]
    pub(crate) fn all_still(lane_count: usize) -> Self {
        let still = Sample { is_still: true, ..Sample::default() };
        Self { lakes: vec![[still; EventPriority::ALL.len()]; lane_count], ..Self::new(lane_count) }
    }

    pub(crate) fn look(&mut self, routes: &Routes, brakes: &Braking) {
        self.brakes = brakes.now();
        self.paused = (0..self.paused.len()).map(|lane| brakes.is_lane_paused(lane)).collect();
        if self.sampled_at.is_some_and(|at| at.elapsed() < PERIOD) {
            return;
        }
        self.sampled_at = Some(Instant::now());
        for (samples, route) in self.lakes.iter_mut().zip(routes.lanes()) {
            for (sample, priority) in samples.iter_mut().zip(EventPriority::ALL) {
                let lake = route.lake(priority);
                let counters = lake.counters();
                *sample = sample.then(counters.delivered, counters.held, lake.capacity() as u64);
            }
        }
    }

    /// Whether a lane has to keep what it has for events of a topic and priority.
    pub(crate) fn is_stuck(&self, topic: &TopicName, priority: EventPriority, lane: usize) -> bool {
        self.lakes[lane][priority as usize].is_still
            || self.paused[lane]
            || (!self.brakes.paused.is_empty()
                && (self.brakes.is_paused(&BrakeScope::Everything)
                    || self.brakes.is_paused(&BrakeScope::Topic(topic.clone()))))
    }

    /// The rows that were looked at.
    pub(crate) fn brakes(&self) -> &Brakes {
        &self.brakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lake_of_which_its_gateway_takes_one_now_and_then_stands_still_and_one_that_is_slow_moves() {
        let is_still = |capacity: u64, held: u64, taken: u64| {
            let sample = Sample::default().then(7, held, capacity).then(7 + taken, held, capacity);
            sample.is_still
        };
        assert!(is_still(16_384, 16_384, 0) && is_still(16_384, 16_383, 1) && is_still(64, 63, 1));
        assert!(!is_still(16_384, 16_384, 1000) && !is_still(16_384, 8000, 0));
        assert!(!is_still(4, 4, 1) && !is_still(4, 3, 0) && is_still(4, 4, 0));
        assert!(!Sample::default().then(0, 4, 4).is_still, "one sample says nothing");
    }
}
