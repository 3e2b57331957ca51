//! Hands the devices of one job and one app to one lake: the pool's, or its quarantine's.
//!
//! One task per job and lane that has devices. It follows [`Job::step`]: wait for a turn at the lake, then read, render
//! and hand out one window. At a lake, lanes take turns by app, then by job, one window each. Each priority has its own
//! lake. A paused lane waits neither for a turn nor for room.
//!
//! Full lake: the lane whose turn it is waits for room with its window open. It stops waiting when it is paused, its
//! job is cancelled or expired, or the sender drains. Devices that did not get in go back to the job. Closed lake: the
//! task waits for the sender's end.

use std::pin::pin;
use std::sync::Arc;

use tidings_jobs::{Outgoing, Step, Window};
use tidings_push::Notification;
use tidings_types::BrakeScope;
use tokio::sync::watch;

use crate::brakes::Braking;
use crate::context::{Context, Prepared};
use crate::job::Job;
use crate::permits::Permit;
use crate::phase::{Expiry, Phase};

struct Lane {
    job: Arc<Job>,
    lane: usize,
    context: Arc<Context>,
    brakes: Braking,
    expiry: Expiry,
    phase: watch::Receiver<Phase>,
}

/// Hands out the devices of `lane` until the job is over, or the sender drains and nothing is in flight.
pub(crate) async fn run(
    job: Arc<Job>,
    lane: usize,
    context: Arc<Context>,
    expiry: Expiry,
    phase: watch::Receiver<Phase>,
) {
    let brakes = context.brakes.clone();
    Lane { job, lane, context, brakes, expiry, phase }.run().await;
}

impl Lane {
    async fn run(mut self) {
        while *self.phase.borrow_and_update() == Phase::Running {
            match self.step() {
                Step::Open if self.paused_by().is_none() => self.take_turn().await,
                Step::Open | Step::Wait => self.wait().await,
                Step::Over => return,
            }
        }
        while !self.job.has_landed(self.lane) {
            self.job.woken(self.lane).await;
        }
    }

    fn step(&self) -> Step {
        self.job.step(self.lane, self.context.limits, &self.context.metrics, self.expiry.now())
    }

    fn open_window(&self) -> Option<Window> {
        self.job.open_window(self.lane, self.context.limits, &self.context.metrics, self.expiry.now())
    }

    fn paused_by(&self) -> Option<BrakeScope> {
        self.brakes.of_lane(&self.job.accepted.event.topic, self.lane)
    }

    async fn wait(&mut self) {
        tokio::select! {
            () = self.job.woken(self.lane) => {}
            _ = self.phase.changed() => {}
            () = self.brakes.changed() => {}
            () = self.expiry.due(&self.job) => {}
        }
    }

    async fn take_turn(&mut self) {
        let Some(permit) = self.wait_in_line().await else { return };
        // The wait may have been long.
        if self.paused_by().is_some() {
            return;
        }
        let Some(window) = self.open_window() else { return };
        let Prepared { findings, batch, unproven, texts } = self.context.prepare(&self.job, &window);
        let outgoing = self.job.hand_out(window, &findings, &unproven, texts, &self.context.metrics);
        self.hand_out(batch, outgoing).await;
        // Lets other tasks run, but the next lane in line only after this lane is in line again. Otherwise lanes that
        // come meanwhile would be before it.
        tokio::task::yield_now().await;
        drop(permit);
    }

    /// Waits for its turn, unless the turn is no longer useful.
    async fn wait_in_line(&mut self) -> Option<Permit> {
        let context = self.context.clone();
        let route = &context.routes.lanes()[self.lane];
        let priority = self.job.accepted.event.priority;
        let mut permit = pin!(route.permits(priority).acquire(priority, route.group));
        loop {
            tokio::select! {
                biased; // What ends the waiting goes first.
                _ = self.phase.changed() => return None,
                () = self.expiry.come() => return None,
                () = self.brakes.changed() => if self.paused_by().is_some() {
                    return None;
                },
                () = self.job.woken(self.lane) => if self.job.is_over() {
                    return None;
                },
                permit = &mut permit => return Some(permit),
            }
        }
    }

    /// Whether a notification of the batch must not be sent any more.
    fn is_called_back(&self, batch: &[Notification]) -> bool {
        self.job.calls_back(batch.iter().map(|notification| notification.ticket.device))
    }

    async fn hand_out(&mut self, mut batch: Vec<Notification>, outgoing: Outgoing) {
        let context = self.context.clone();
        let lake = context.routes.lanes()[self.lane].lake(self.job.accepted.event.priority);
        let is_closed = loop {
            tokio::select! {
                biased;
                result = lake.push_batch(&mut batch) => break result.is_err(),
                _ = self.phase.changed() => break false,
                () = self.expiry.come() => break false,
                () = self.brakes.changed() => if self.paused_by().is_some() { break false },
                () = self.job.woken(self.lane) => if self.is_called_back(&batch) { break false },
            }
        };
        if !batch.is_empty() {
            let left = batch.drain(..).map(|notification| notification.ticket.device);
            self.job.put_back(outgoing, left, &context.metrics);
        }
        if is_closed {
            let job = self.job.position.0;
            tracing::warn!(job, lane = self.lane, "the pool's lake is closed, its devices wait for the next start");
            let _ = self.phase.changed().await; // The worker holds the sender and outlives its lanes.
        }
    }
}
