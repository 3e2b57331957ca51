//! The state that the handles of a pool share with its tasks, and the choice of a connection for a request.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{PoolConfig, Strategy};
use crate::counters::Counter;
use crate::error::CallError;
use crate::lane::{Entry, Job, Lane, Offer, Phase, Reply};
use crate::protocol::Protocol;

/// Longer timeouts are cut to this (a century), so that no deadline overflows.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

pub(crate) struct Core<P: Protocol> {
    pub(crate) config: PoolConfig,
    pub(crate) protocol: P,
    pub(crate) lanes: Box<[Lane<P>]>,
    /// For [`Strategy::RoundRobin`].
    pub(crate) next: AtomicUsize,
    pub(crate) is_draining: AtomicBool,
    /// An attempt to connect has failed, and none has succeeded since.
    pub(crate) is_in_trouble: AtomicBool,
    /// Changes when a caller wants a connection now: [`Pool::reconnect`](crate::Pool::reconnect).
    pub(crate) wanted: watch::Sender<()>,
    pub(crate) backlog: Counter,
    pub(crate) unavailable: Counter,
}

/// Why no lane took a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Full,
    Down,
}

impl<P: Protocol> Core<P> {
    /// Accepts a request, and returns its lane.
    pub(crate) fn hand_in(
        &self,
        request: P::Request,
        timeout: Duration,
        reply: Reply<P>,
    ) -> Result<&Lane<P>, CallError<P::Error>> {
        if self.is_draining.load(Relaxed) {
            reply.disarm();
            return Err(CallError::Closed);
        }
        let is_alone = !self.protocol.is_pipelinable(&request);
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        let mut slot = Some(Entry { job: Job { request, deadline, is_alone, was_sent: false, repeats: 0 }, reply });
        let refusal = match self.dispatch(&mut slot, None) {
            Ok(lane) => {
                lane.counters.accepted.increment();
                return Ok(lane);
            }
            Err(refusal) => refusal,
        };
        if let Some(entry) = slot {
            entry.reply.disarm(); // The caller learns it from this function.
        }
        Err(match refusal {
            _ if self.is_draining.load(Relaxed) => CallError::Closed,
            NoRoom::Full => {
                self.backlog.increment();
                CallError::Backlog { limit: self.config.backlog_max }
            }
            NoRoom::Down => {
                self.unavailable.increment();
                CallError::Unavailable
            }
        })
    }

    /// Gives the request to a lane other than `except`: the chosen lane, or the next one that is up and has room, or else
    /// one that is connecting. A request that travels alone prefers an idle lane.
    pub(crate) fn dispatch(&self, slot: &mut Option<Entry<P>>, except: Option<usize>) -> Result<&Lane<P>, NoRoom> {
        let start = self.choose();
        let is_alone = slot.as_ref().is_some_and(|entry| entry.job.is_alone);
        let mut refusal = NoRoom::Down;
        let passes = [(Phase::Up, 1), (Phase::Up, self.config.backlog_max), (Phase::Rising, self.config.backlog_max)];
        for (phase, load_max) in passes.into_iter().skip(usize::from(!is_alone)) {
            for step in 0..self.lanes.len() {
                let index = (start + step) % self.lanes.len();
                let lane = &self.lanes[index];
                if lane.phase() != phase || except == Some(index) {
                    continue;
                }
                match lane.offer(slot, load_max) {
                    Offer::Taken => return Ok(lane),
                    Offer::Full => refusal = NoRoom::Full,
                    Offer::Down => {}
                }
            }
        }
        Err(refusal)
    }

    fn choose(&self) -> usize {
        let count = self.lanes.len();
        match self.config.strategy {
            _ if count == 1 => 0,
            Strategy::Random => rand::random::<u32>() as usize % count,
            Strategy::RoundRobin => self.next.fetch_add(1, Relaxed) % count,
            Strategy::LeastLoadedOfTwo => {
                let random = rand::random::<u64>();
                let first = (random as u32) as usize % count;
                let second = (first + 1 + (random >> 32) as usize % (count - 1)) % count;
                if self.load_of(second) < self.load_of(first) { second } else { first }
            }
        }
    }

    fn load_of(&self, index: usize) -> usize {
        let lane = &self.lanes[index];
        if lane.phase() == Phase::Up { lane.load() } else { usize::MAX }
    }
}
