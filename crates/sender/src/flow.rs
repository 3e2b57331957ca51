//! Which lanes can hand something out: those that no brake holds and whose lake does not stand still.
//!
//! A lake stands still that was full at two samples, [`PERIOD`] apart or more, and of which nothing was taken in
//! between: its provider is dead, or its breaker open. One that is slow moves.

use std::sync::Arc;
use std::time::Duration;

use tidings_store::Brakes;
use tidings_types::{BrakeScope, EventPriority, TopicName};
use tokio::time::Instant;

use crate::brakes::Braking;
use crate::routes::Routes;

/// Between two samples of the lakes, at least.
const PERIOD: Duration = Duration::from_millis(100);

/// As of the last [`Flow::look`].
pub(crate) struct Flow {
    brakes: Arc<Brakes>,
    /// By lane: whether a brake on its app or provider holds it.
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

impl Flow {
    /// Everything flows.
    pub(crate) fn new(lane_count: usize) -> Self {
        let (paused, lakes) = (vec![false; lane_count], vec![Default::default(); lane_count]);
        Self { brakes: Arc::default(), paused, lakes, sampled_at: None }
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
                let is_full = counters.held >= lake.capacity() as u64;
                let is_still = is_full && sample.is_full && counters.delivered == sample.delivered;
                *sample = Sample { delivered: counters.delivered, is_full, is_still };
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
