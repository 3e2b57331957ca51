//! The sender's thread: runs the dispatcher, the checkpoints and the reports about tokens to the store, and ends them
//! in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidings_store::{GoneToken, Store};
use tidings_telemetry::chain;
use tidings_types::{DeviceNumber, JournalPosition};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::checkpoint::Checkpointer;
use crate::config::SenderConfig;
use crate::context::Context;
use crate::dispatcher::{Dispatcher, Order};
use crate::phase::Phase;
use crate::registry::{Gone, JobRegistry};
use crate::report::Drained;

/// Dead tokens reported to the store at once.
const GONE_BATCH_COUNT: usize = 256;
/// First acceptances are told to the store this often: each time it rewrites 8 KiB per 65 536 device numbers.
const PROVEN_INTERVAL: Duration = Duration::from_millis(250);
/// Pause before the store is asked again after it refused.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Extra time for the last checkpoint after the deadline of draining.
const LAST_CHECKPOINT: Duration = Duration::from_secs(1);

pub(crate) struct Worker {
    pub(crate) config: SenderConfig,
    pub(crate) context: Arc<Context>,
    pub(crate) registry: Arc<JobRegistry>,
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) done: watch::Sender<Option<Drained>>,
    pub(crate) gone: mpsc::Receiver<Gone>,
    /// The position up to which the store knows that events have a job.
    pub(crate) dispatched: JournalPosition,
}

impl Worker {
    pub(crate) async fn run(self) {
        let Self { config, context, registry, mut orders, done, gone, dispatched } = self;
        let (phase, phases) = watch::channel(Phase::Running);
        let (mut checkpoints, mut reports) = (JoinSet::new(), JoinSet::new());
        let doubted = Doubted::new(registry.clone(), config.gone_token_count_max);
        reports.spawn(report_gone(context.store.clone(), gone, doubted, phases.clone()));
        reports.spawn(report_proven(context.store.clone(), registry.clone(), phases.clone()));
        let checkpointer = Checkpointer {
            store: context.store.clone(),
            registry: registry.clone(),
            interval: config.checkpoint_interval,
            report_count_max: config.report_count_max,
            tell_finished: config.tell_finished,
            dispatched,
            losing_untold: false,
        };
        checkpoints.spawn(checkpointer.run(phases.clone()));

        let mut dispatcher = Dispatcher::new(config, context, registry.clone(), phases);
        let order = dispatcher.run(&mut orders).await;
        let Order::Drain(deadline) = order else { return }; // Dropping the sets ends all tasks at once.
        phase.send_replace(Phase::Draining);
        let landed = timeout_at(deadline, dispatcher.land());
        tokio::select! {
            _ = landed => {}
            _ = orders.wait_for(|order| *order == Order::Abort) => return,
        }
        phase.send_replace(Phase::Closing);
        let last_deadline = deadline.max(Instant::now()) + LAST_CHECKPOINT;
        let checkpointed = tokio::select! {
            last = timeout_at(last_deadline, checkpoints.join_next()) => matches!(last, Ok(Some(Ok(())))),
            _ = orders.wait_for(|order| *order == Order::Abort) => return,
        };
        let _ = timeout_at(last_deadline, reports.join_all()).await; // The provider will report the rest again.
        let running: Vec<_> = registry.table().running.values().cloned().collect();
        let devices_in_flight = running.iter().map(|job| job.in_flight()).sum();
        tracing::info!(devices_in_flight, checkpointed, "drained");
        done.send_replace(Some(Drained { devices_in_flight, checkpointed }));
    }
}

/// Tells the store which tokens were accepted for the first time, until the sender closes. If the store refuses, the
/// next acceptance is noted instead.
async fn report_proven(store: Store, registry: Arc<JobRegistry>, mut phase: watch::Receiver<Phase>) {
    loop {
        let closing = *phase.borrow_and_update() == Phase::Closing;
        let proven = registry.take_proven();
        if !proven.is_empty() {
            let told = store.devices_proven(proven.iter().map(DeviceNumber).collect()).await;
            told.unwrap_or_else(|error| tracing::debug!(error = chain(&error), "accepted tokens were not noted"));
        }
        if closing {
            return;
        }
        tokio::select! {
            () = sleep(PROVEN_INTERVAL) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => {}
        }
    }
}

/// Tells the store which tokens are dead, until the sender closes. If the store refuses, this tries again, and
/// meanwhile the queue fills and drops.
async fn report_gone(
    store: Store,
    mut gone: mpsc::Receiver<Gone>,
    mut doubted: Doubted,
    mut phase: watch::Receiver<Phase>,
) {
    let mut batch = Vec::with_capacity(GONE_BATCH_COUNT);
    loop {
        let next = doubted.next().unwrap_or_else(|| Instant::now() + PROVEN_INTERVAL);
        let count = tokio::select! {
            biased; // Waiting tokens are reported before the end.
            count = gone.recv_many(&mut batch, GONE_BATCH_COUNT) => Some(count),
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => Some(0),
            () = sleep_until(next) => None,
        };
        if count == Some(0) {
            return; // The provider will report the doubtful tokens again.
        }
        let now = Instant::now();
        let mut tokens: Vec<GoneToken> = batch.drain(..).filter_map(|gone| doubted.pass(gone, now)).collect();
        tokens.extend(doubted.ripe(now));
        if tokens.is_empty() {
            continue;
        }
        while let Err(error) = store.tokens_gone(tokens.clone()).await {
            tracing::debug!(error = chain(&error), "dead tokens were not taken, trying again");
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// Tokens that wait until it is clear whether their group raises an alarm. Queue: `count_max`. Full: dropped and
/// counted; the provider reports the token again.
struct Doubted {
    registry: Arc<JobRegistry>,
    count_max: usize,
    /// The end of the wait, the group and the token, oldest first.
    waiting: VecDeque<(Instant, usize, GoneToken)>,
}

impl Doubted {
    fn new(registry: Arc<JobRegistry>, count_max: usize) -> Self {
        Self { registry, count_max, waiting: VecDeque::new() }
    }

    /// When the first has waited long enough.
    fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|(until, ..)| *until)
    }

    /// Returns a token that is certainly gone, and keeps others.
    fn pass(&mut self, gone: Gone, now: Instant) -> Option<GoneToken> {
        let metrics = &self.registry.metrics;
        let Some(group) = gone.doubted else {
            metrics.gone_tokens.inc();
            return Some(gone.token);
        };
        if self.waiting.len() == self.count_max {
            metrics.gone_tokens_dropped.inc();
        } else {
            let until = now + self.registry.waves().window();
            self.waiting.push_back((until, group, gone.token));
        }
        None
    }

    /// At most one batch of tokens that have waited long enough and whose group has no alarm. Tokens of a group with an
    /// alarm stay with their devices.
    fn ripe(&mut self, now: Instant) -> Vec<GoneToken> {
        let mut ripe = Vec::new();
        while ripe.len() < GONE_BATCH_COUNT
            && let Some((_, group, token)) = self.waiting.pop_front_if(|(until, ..)| *until <= now)
        {
            if self.registry.waves().is_alarmed(group) {
                self.registry.metrics.gone_tokens_kept.inc();
            } else {
                self.registry.metrics.gone_tokens.inc();
                ripe.push(token);
            }
        }
        ripe
    }
}
