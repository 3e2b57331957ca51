//! The source of a connection's notifications: first what is ready, then what the lakes hold, each by priority.
//!
//! A notification is *ready* if it was taken out of a lake before and may be sent at once: a released repeat, or one
//! that a connection gave back or a sweep moved up. It goes out before the lake of its priority, but not before more
//! urgent notifications.

use std::collections::VecDeque;
use std::task::Context;

use tidings_buffer::Turns;
use tidings_push::Notification;
use tidings_types::EventPriority;
use tokio::time::Instant;

use crate::attempt::Attempt;
use crate::http2::intake::{Intake, LAKE_COUNT};

pub(super) struct Supply {
    /// By priority.
    ready: [VecDeque<Attempt>; LAKE_COUNT],
    turns: Turns<LAKE_COUNT>,
    /// What the lakes gave; empty between calls.
    inbox: [Vec<Notification>; LAKE_COUNT],
    /// The lakes are closed and empty.
    is_finished: bool,
}

impl Supply {
    pub(super) fn new() -> Self {
        Self { ready: <_>::default(), turns: Turns::new(), inbox: <_>::default(), is_finished: false }
    }

    /// Whether the lakes are closed and empty.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Appends up to `demand` candidates, out of the lakes at most `room`; returns how many came out of the lakes. What
    /// is missing wakes `cx` when it comes into a lake.
    pub(super) fn draw(
        &mut self,
        cx: &mut Context<'_>,
        intake: &mut Intake,
        (demand, room): (usize, usize),
        candidates: &mut Vec<Attempt>,
        now: Instant,
    ) -> usize {
        let ready = &mut self.ready;
        let mut at_hand = |level: usize, wanted: usize| {
            let count = ready[level].len().min(wanted);
            candidates.extend(ready[level].drain(..count));
            count
        };
        self.is_finished |= intake.poll_take(cx, (demand, room), &mut self.turns, &mut at_hand, &mut self.inbox);
        let mut drawn = 0;
        for (priority, inbox) in EventPriority::ALL.into_iter().zip(&mut self.inbox) {
            drawn += inbox.len();
            candidates.extend(inbox.drain(..).map(|it| Attempt::new(it, priority, now)));
        }
        drawn
    }

    /// Makes an attempt ready, behind the others of its priority.
    pub(super) fn push(&mut self, attempt: Attempt) {
        self.ready[attempt.priority as usize].push_back(attempt);
    }

    /// Makes an attempt ready again that was taken and not made, before the others of its priority.
    pub(super) fn put_back(&mut self, attempt: Attempt) {
        self.ready[attempt.priority as usize].push_front(attempt);
    }

    /// Takes out all that is ready.
    pub(super) fn take_ready(&mut self) -> impl Iterator<Item = Attempt> + use<> {
        std::mem::take(&mut self.ready).into_iter().flatten()
    }
}
