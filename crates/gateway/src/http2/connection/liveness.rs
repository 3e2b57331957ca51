//! Whether the peer of a connection is alive and gives a flow window.
//!
//! The connection is checked a few times per `stall`. A peer gets a PING if it has sent nothing for half of `stall`
//! while a stream is open, or for `ping_idle` while none is. Two PINGs are at least `ping_interval_min` apart. The peer
//! is *silent* if no PONG comes within half of `stall`. It is *shut* if it gives an idle connection no flow window for
//! `stall`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// Looks per `stall`.
const TICKS_PER_STALL: u32 = 4;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// How long a peer may give no sign of life, or an idle connection no flow window.
    pub(crate) stall: Duration,
    /// How long one request may wait for its answer.
    pub(crate) answer: Duration,
    /// How long an idle connection may be silent before a PING.
    pub(crate) ping_idle: Option<Duration>,
    /// The shortest time between two PINGs.
    pub(crate) ping_interval_min: Duration,
}

pub(super) struct Liveness {
    timeouts: Timeouts,
    pings: Option<PingPong>,
    /// A PING that is not answered yet.
    pinged_at: Option<Instant>,
    last_ping_at: Option<Instant>,
    heard_at: Instant,
    /// Since when the idle connection has had no flow window.
    shut_since: Option<Instant>,
    tick: Pin<Box<Sleep>>,
}

impl Liveness {
    pub(super) fn new(timeouts: Timeouts, pings: Option<PingPong>, now: Instant) -> Self {
        Self {
            timeouts,
            pings,
            pinged_at: None,
            last_ping_at: None,
            heard_at: now,
            shut_since: None,
            tick: Box::pin(sleep(timeouts.stall / TICKS_PER_STALL)),
        }
    }

    /// The peer gave a sign of life.
    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Takes a PONG that came; `cx` is woken by the next.
    pub(super) fn poll_pong(&mut self, cx: &mut Context<'_>, now: Instant) {
        if let (Some(pings), true) = (&mut self.pings, self.pinged_at.is_some())
            && let Poll::Ready(Ok(_)) = pings.poll_pong(cx)
        {
            self.pinged_at = None;
            self.heard_at = now;
        }
    }

    /// Whether it is time to look; `cx` is woken at the next time.
    pub(super) fn poll_tick(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if self.tick.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.tick.as_mut().reset(now + self.timeouts.stall / TICKS_PER_STALL);
        _ = self.tick.as_mut().poll(cx); // Registers the new moment, which lies ahead.
        true
    }

    /// Whether the peer is shut; `lacks_window`: nothing is open, and it takes nothing now.
    pub(super) fn is_shut(&mut self, lacks_window: bool, now: Instant) -> bool {
        if !lacks_window {
            self.shut_since = None;
            return false;
        }
        let since = *self.shut_since.get_or_insert(now);
        now.saturating_duration_since(since) >= self.timeouts.stall
    }

    /// Whether the peer is silent. Sends a PING if one is due; `is_idle`: nothing is open.
    pub(super) fn is_silent(&mut self, is_idle: bool, now: Instant) -> bool {
        let Timeouts { stall, ping_idle, ping_interval_min, .. } = self.timeouts;
        let since = |at: Instant| now.saturating_duration_since(at);
        if let Some(pinged_at) = self.pinged_at {
            return since(pinged_at) >= stall / 2;
        }
        let patience = if is_idle { ping_idle } else { Some(stall / 2) };
        if patience.is_some_and(|patience| since(self.heard_at) >= patience)
            && self.last_ping_at.is_none_or(|at| since(at) >= ping_interval_min)
            && self.pings.as_mut().is_some_and(|pings| pings.send_ping(Ping::opaque()).is_ok())
        {
            (self.pinged_at, self.last_ping_at) = (Some(now), Some(now));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_shut_only_if_it_takes_nothing_all_the_time() {
        let (stall, start) = (Duration::from_secs(8), Instant::now());
        let timeouts = Timeouts { stall, answer: stall, ping_idle: None, ping_interval_min: stall };
        let mut liveness = Liveness::new(timeouts, None, start);
        assert!(!liveness.is_shut(true, start) && !liveness.is_shut(true, start + stall / 2));
        assert!(!liveness.is_shut(false, start + stall), "a window came");
        assert!(!liveness.is_shut(true, start + stall) && liveness.is_shut(true, start + 2 * stall));
    }
}
