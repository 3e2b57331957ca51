//! Starting and stopping a gateway, and giving it another credential.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use tidings_buffer::Lake;
use tidings_push::apns::Requests;
use tidings_push::{Notification, OutcomeSink};
use tidings_telemetry::{Registry, unix_now};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::info;

use crate::connect::{Access, Connector};
use crate::connection::Shared;
use crate::error::{AccessError, StartError};
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::slot::{self, keep_connected};
use crate::{Credential, GatewayConfig};

/// What the threads are asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Work,
    /// End when the lake is empty and everything is settled.
    Drain,
    /// End now.
    Abort,
}

/// A running gateway: threads that send what the lake holds. Dropping it aborts them; better is [`Gateway::drain`].
pub struct Gateway {
    lake: Arc<Lake<Notification>>,
    phase: watch::Sender<Phase>,
    /// What new connections are made with.
    access: watch::Sender<Arc<Access>>,
    workers: Vec<Worker>,
}

struct Worker {
    thread: JoinHandle<()>,
    /// How many notifications it left unsettled.
    left: oneshot::Receiver<usize>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Notifications without an outcome: those still in the lake, waiting for a repeat, or in flight. Nobody was told
    /// about them; the sender resumes them after the next start.
    pub unsettled: usize,
}

/// What one thread needs to build its half; everything here may change threads.
struct Plan {
    config: GatewayConfig,
    slot_count: usize,
    requests: Requests,
    connector: Connector,
    access: watch::Receiver<Arc<Access>>,
    lake: Arc<Lake<Notification>>,
    sink: Arc<dyn OutcomeSink>,
    metrics: Metrics,
}

impl Gateway {
    /// Starts the threads; they connect at once and take from `lake` whatever comes.
    ///
    /// # Errors
    /// When the configuration cannot work. That the provider cannot be reached is no error: it is tried again for ever.
    pub fn start(
        config: GatewayConfig,
        lake: Arc<Lake<Notification>>,
        sink: Arc<dyn OutcomeSink>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        check(&config)?;
        let access = Arc::new(Access::new(config.credential.clone(), config.ca_pem.as_deref())?);
        let authority = if config.port == 443 {
            config.server_name.clone()
        } else {
            format!("{}:{}", config.server_name, config.port)
        };
        let requests = Requests::new(&authority).map_err(|_| StartError::ServerName(config.server_name.clone()))?;
        let metrics = Metrics::new(registry);
        let (phase, _) = watch::channel(Phase::Work);
        let (access, _) = watch::channel(access);
        let mut gateway = Self { lake: Arc::clone(&lake), phase, access, workers: Vec::new() };
        for index in 0..config.thread_count {
            // The first ones take what an even division leaves over.
            let extra = usize::from(index < config.connection_count % config.thread_count);
            let plan = Plan {
                slot_count: config.connection_count / config.thread_count + extra,
                requests: requests.clone(),
                connector: Connector::new(&config)?,
                access: gateway.access.subscribe(),
                config: config.clone(),
                lake: Arc::clone(&lake),
                sink: Arc::clone(&sink),
                metrics: metrics.clone(),
            };
            let worker = spawn(index, plan, gateway.phase.subscribe()).map_err(StartError::Thread)?;
            gateway.workers.push(worker);
        }
        info!(provider = "apns", host = %config.host, count = config.connection_count, "Gateway started");
        Ok(gateway)
    }

    /// Makes all connections to come with this credential and these certificates to trust (without any, the system's).
    /// Those that are open let what they have under way be answered and end, beside the new ones. Returns whether
    /// anything is different; if not, nothing happens.
    ///
    /// # Errors
    /// When no connection could be made with them; then nothing changes.
    pub fn reload(&self, credential: Credential, ca_pem: Option<&str>) -> Result<bool, AccessError> {
        if self.access.borrow().is_same(&credential, ca_pem) {
            return Ok(false);
        }
        self.access.send_replace(Arc::new(Access::new(credential, ca_pem)?));
        Ok(true)
    }

    /// Closes the lake, sends what it holds, waits for all outcomes, and ends; at `deadline` it aborts.
    ///
    /// Until then repeats are made as usual, so a provider in trouble can take all the time there is.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the gateway.
    pub async fn drain(self, deadline: Instant) -> Drained {
        let Self { lake, phase, workers, .. } = self;
        lake.close();
        phase.send_replace(Phase::Drain);
        let mut unsettled = 0;
        for Worker { thread, mut left } in workers {
            let count = match timeout_at(deadline, &mut left).await {
                Ok(count) => count,
                Err(_) => {
                    phase.send_replace(Phase::Abort);
                    left.await
                }
            };
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
            unsettled += count.expect("a thread that ended without a panic has sent its count");
        }
        unsettled += usize::try_from(lake.counters().held).unwrap_or(usize::MAX);
        info!(provider = "apns", count = unsettled, "Gateway drained");
        Drained { unsettled }
    }
}

fn check(config: &GatewayConfig) -> Result<(), StartError> {
    let numbers = [
        ("connection_count", config.connection_count),
        ("thread_count", config.thread_count),
        ("streams_max", config.streams_max as usize),
        ("connect_timeout", config.connect_timeout.as_millis() as usize),
        ("stall_timeout", config.stall_timeout.as_millis() as usize),
        ("answer_timeout", config.answer_timeout.as_millis() as usize),
    ];
    if let Some((field, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
        return Err(StartError::Zero { field });
    }
    if config.thread_count > config.connection_count {
        return Err(StartError::Threads { connections: config.connection_count, threads: config.thread_count });
    }
    Ok(())
}

fn spawn(index: usize, plan: Plan, phase: watch::Receiver<Phase>) -> std::io::Result<Worker> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (left_tx, left) = oneshot::channel();
    let thread = std::thread::Builder::new().name(format!("gateway-{index}")).spawn(move || {
        let count = LocalSet::new().block_on(&runtime, drive(plan, phase));
        // A name being resolved would hold up a plain shutdown.
        runtime.shutdown_background();
        _ = left_tx.send(count); // Nobody listens when the gateway was dropped.
    })?;
    Ok(Worker { thread, left })
}

/// One thread's work: its connections, and the repeats that wait. Returns how many notifications it leaves unsettled.
async fn drive(plan: Plan, mut phase: watch::Receiver<Phase>) -> usize {
    let Plan { config, slot_count, requests, connector, access, lake, sink, metrics } = plan;
    let held_max = slot_count.saturating_mul(config.streams_max as usize);
    let pool = Rc::new(RefCell::new(Pool::new(slot_count, held_max, sink, metrics.clone(), unix_now())));
    let shared = Rc::new(Shared {
        requests,
        metrics,
        streams_max: config.streams_max,
        stall_timeout: config.stall_timeout,
        answer_timeout: config.answer_timeout,
    });
    let connector = Rc::new(connector);
    let mut slots = JoinSet::new();
    for slot in 0..slot_count {
        slots.spawn_local(keep_connected(slot::Plan {
            slot,
            connector: Rc::clone(&connector),
            shared: Rc::clone(&shared),
            pool: Rc::clone(&pool),
            lake: Arc::clone(&lake),
            access: access.clone(),
        }));
    }
    let changed = pool.borrow().changed();
    loop {
        let next = pool.borrow_mut().release(Instant::now());
        // While no connection is up, nobody else notices that the lake has come to its end.
        let finished = lake.is_finished() && pool.borrow().held() == 0;
        if finished {
            break;
        }
        tokio::select! {
            biased; // Stop first: a busy pool must not postpone it.
            asked = phase.changed() => {
                if asked.is_err() || *phase.borrow_and_update() == Phase::Abort {
                    break;
                }
            }
            Some(ended) = slots.join_next() => match ended {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => unreachable!("a slot never ends by itself"),
            },
            () = changed.notified() => {}
            () = async { sleep_until(next.expect("checked by the guard")).await }, if next.is_some() => {}
        }
    }
    slots.shutdown().await;
    pool.borrow().held()
}
