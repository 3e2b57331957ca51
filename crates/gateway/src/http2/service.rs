//! Starting and stopping a gateway, and giving it another credential.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_push::pacing::Quota;
use tidings_push::{Lakes, OutcomeSink};
use tidings_telemetry::metrics::gateway as table;
use tidings_telemetry::{Registry, unix_now};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::info;

use super::config::GatewayConfig;
use super::connect::{Access, Connector};
use super::connection::{GatewayContext, PAYLOAD_BYTES_MAX, Timeouts};
use super::credential::Credential;
use super::health::{Condition, HealthWatch};
use super::oauth::Teller;
use super::scaling::{Scaling, TICK};
use super::scheduler::Scheduler;
use super::slot::{self, keep_connected};
use super::throttle::Throttle;
use super::token_thread;
use crate::drain::{Drained, Phase, Worker};
use crate::error::{AccessError, StartError};
use crate::metrics::Metrics;

/// How often notifications that are over are settled, while they wait for a repeat or nothing can be sent.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A running gateway: threads that send the notifications of the lakes. Dropping it aborts them; prefer
/// [`Gateway::drain`].
pub struct Gateway {
    /// The names for logs.
    provider: &'static str,
    pool: String,
    lakes: Lakes,
    phase: watch::Sender<Phase>,
    /// What new connections are made with.
    access: watch::Sender<Arc<Access>>,
    health: HealthWatch,
    workers: Vec<Worker>,
}

/// What one thread needs to build its half; everything here may change threads.
struct Plan {
    index: usize,
    config: GatewayConfig,
    /// Its share of the connections: as many as there always are, and as many as there may be.
    count_min: usize,
    count_max: usize,
    connector: Connector,
    access: watch::Receiver<Arc<Access>>,
    lakes: Lakes,
    throttle: Arc<Throttle>,
    sink: Arc<dyn OutcomeSink>,
    metrics: Metrics,
    health: HealthWatch,
}

impl Gateway {
    /// Starts the threads. They connect at once and take notifications from `lakes`.
    ///
    /// # Errors
    /// If the configuration cannot work. An unreachable provider is not an error: the threads retry without end.
    pub fn start(
        config: GatewayConfig,
        lakes: Lakes,
        sink: Arc<dyn OutcomeSink>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        check(&config)?;
        let access = Arc::new(Access::new(config.credential.clone(), config.ca_pem.as_deref())?);
        let (provider, pool) = (config.dialect.provider(), config.name.clone());
        let metrics = Metrics::new(registry, provider, &pool);
        let quota = |per_minute| Arc::new(Mutex::new(Quota::new(per_minute, config.quota_ramp, unix_now())));
        let quota = config.quota_per_minute.map(quota);
        if let Some(quota) = &quota {
            config.gauge.set_quota(Arc::clone(quota));
        }
        let throttle = Arc::new(Throttle::new(quota));
        let (phase, _) = watch::channel(Phase::Work);
        let (access, _) = watch::channel(access);
        let provider = provider.as_str();
        let health = HealthWatch::new();
        let mut gateway =
            Self { provider, pool, lakes: lakes.clone(), phase, access, health: health.clone(), workers: Vec::new() };
        gateway.register(registry);
        let connector = Connector::new(&config)?;
        for index in 0..config.thread_count {
            let plan = Plan {
                index,
                count_min: share(config.connection_count_min, config.thread_count, index),
                count_max: share(config.connection_count_max, config.thread_count, index),
                connector: connector.clone(),
                access: gateway.access.subscribe(),
                config: config.clone(),
                lakes: lakes.clone(),
                throttle: Arc::clone(&throttle),
                sink: Arc::clone(&sink),
                metrics: metrics.clone(),
                health: health.clone(),
            };
            let worker = spawn(plan, gateway.phase.subscribe()).map_err(StartError::Thread)?;
            gateway.workers.push(worker);
        }
        let (count, host, pool) = (config.connection_count_min, &config.host, &gateway.pool);
        info!(provider, pool, host, count, "Gateway started");
        Ok(gateway)
    }

    /// Makes what is read at each scrape part of the metrics.
    fn register(&self, registry: &Registry) {
        let labels = [self.provider, self.pool.as_str()];
        let health = self.health.clone();
        let is_open = move || f64::from(u8::from(health.health().condition == Condition::BreakerOpen));
        registry.computed(&table::BREAKER_OPEN, &labels, Arc::new(is_open));
        let access = self.access.subscribe();
        let ends_at = move || access.borrow().credential.ends_at();
        if ends_at().is_some() {
            let left = move || ends_at().map_or(f64::INFINITY, |at| at.saturating_since(unix_now()).as_secs_f64());
            registry.computed(&table::CREDENTIAL_EXPIRY_SECONDS, &labels, Arc::new(left));
        }
    }

    /// New connections use this credential and these trusted certificates (or, without any, the system's). Open
    /// connections wait for the answers in flight and end, beside the new ones. Returns whether anything is different;
    /// if not, nothing happens.
    ///
    /// # Errors
    /// If no connection could be made with them. Then nothing changes.
    pub fn reload(&self, credential: Credential, ca_pem: Option<&str>) -> Result<bool, AccessError> {
        if self.access.borrow().is_same(&credential, ca_pem) {
            return Ok(false);
        }
        self.access.send_replace(Arc::new(Access::new(credential, ca_pem)?));
        Ok(true)
    }

    /// The state of its connection to the provider.
    pub fn health(&self) -> HealthWatch {
        self.health.clone()
    }

    /// Closes the lakes, sends what they hold, waits for all outcomes, and ends; at `deadline` it aborts.
    ///
    /// Until then repeats are made as usual, so a provider in trouble can take all the time there is.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the gateway.
    pub async fn drain(self, deadline: Instant) -> Drained {
        let Self { provider, pool, lakes, phase, workers, .. } = self;
        lakes.close();
        phase.send_replace(Phase::Drain);
        let mut unsettled = 0;
        for worker in workers {
            unsettled += worker.end(deadline, &phase).await;
        }
        unsettled += lakes.held();
        info!(provider, pool, count = unsettled, "Gateway drained");
        Drained { unsettled }
    }
}

fn check(config: &GatewayConfig) -> Result<(), StartError> {
    let numbers = [
        ("connection_count_min", config.connection_count_min),
        ("thread_count", config.thread_count),
        ("streams_max", config.streams_max as usize),
        ("connect_timeout", config.connect_timeout.as_millis() as usize),
        ("stall_timeout", config.stall_timeout.as_millis() as usize),
        ("answer_timeout", config.answer_timeout.as_millis() as usize),
    ];
    if let Some((field, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
        return Err(StartError::Zero { field });
    }
    let (min, max) = (config.connection_count_min, config.connection_count_max);
    if config.thread_count > min {
        return Err(StartError::Threads { connections: min, threads: config.thread_count });
    }
    if max < min {
        return Err(StartError::Connections { min, max });
    }
    let bytes = config.dialect.payload_bytes_max();
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(StartError::Payload { bytes });
    }
    Ok(())
}

/// How many of `count` connections are this thread's: the first ones take what an even division leaves over.
fn share(count: usize, thread_count: usize, thread_index: usize) -> usize {
    count / thread_count + usize::from(thread_index < count % thread_count)
}

fn spawn(plan: Plan, phase: watch::Receiver<Phase>) -> std::io::Result<Worker> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let name = format!("gateway-{}", plan.index);
    Worker::start(name, runtime, move |runtime| LocalSet::new().block_on(runtime, drive(plan, phase)))
}

/// One thread's work: its connections, and the repeats that wait. Returns how many notifications it leaves unsettled.
async fn drive(plan: Plan, mut phase: watch::Receiver<Phase>) -> usize {
    let (scheduler, context) = (Rc::new(RefCell::new(plan.scheduler())), Rc::new(plan.context()));
    // Lives as long as the thread works: without it every slot would be wanted.
    let (target_tx, target) = watch::channel(plan.count_min);
    let mut slots = plan.start_slots(&context, &scheduler, &target);
    let mut helpers = plan.start_helpers(&context, &scheduler);
    if let Some(scaling) = plan.scaling() {
        helpers.spawn_local(scale(scaling, target_tx, Rc::clone(&scheduler), plan.lakes.clone()));
    }
    let changed = scheduler.borrow().changed();
    loop {
        let next = scheduler.borrow_mut().release(Instant::now());
        // While no connection is up, only this notices that the lakes are closed and empty.
        let finished = plan.lakes.is_finished() && scheduler.borrow().held() == 0;
        if finished {
            break;
        }
        tokio::select! {
            biased; // Stop first: a busy scheduler must not postpone it.
            asked = phase.changed() => {
                if asked.is_err() || *phase.borrow_and_update() == Phase::Abort {
                    break;
                }
            }
            Some(ended) = slots.join_next() => match ended {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => unreachable!("a slot never ends by itself"),
            },
            Some(Err(error)) = helpers.join_next() => std::panic::resume_unwind(error.into_panic()),
            () = changed.notified() => {}
            () = async { sleep_until(next.expect("checked by the guard")).await }, if next.is_some() => {}
        }
    }
    slots.shutdown().await;
    helpers.shutdown().await;
    scheduler.borrow().held()
}

impl Plan {
    fn scheduler(&self) -> Scheduler {
        let held_max = self.count_max.saturating_mul(self.config.streams_max as usize);
        let (throttle, sink) = (Arc::clone(&self.throttle), Arc::clone(&self.sink));
        Scheduler::new(self.count_max, held_max, throttle, sink, self.metrics.clone(), unix_now())
    }

    fn context(&self) -> GatewayContext {
        let config = &self.config;
        GatewayContext {
            provider: config.dialect.provider().as_str(),
            pool: config.name.clone(),
            dialect: Arc::clone(&config.dialect),
            metrics: self.metrics.clone(),
            gauge: Arc::clone(&config.gauge),
            health: self.health.clone(),
            streams_max: config.streams_max,
            timeouts: Timeouts {
                stall: config.stall_timeout,
                answer: config.answer_timeout,
                ping_idle: config.ping_idle,
                ping_interval_min: config.ping_interval_min,
            },
        }
    }

    /// What decides how many connections there are; none if that is fixed.
    fn scaling(&self) -> Option<Scaling> {
        let floor = self.config.rate_floor.map(|floor| f64::from(floor) / self.config.thread_count as f64);
        (self.count_min < self.count_max).then(|| Scaling::new(self.count_min, self.count_max, floor))
    }

    /// The slots for connections.
    fn start_slots(
        &self,
        context: &Rc<GatewayContext>,
        scheduler: &Rc<RefCell<Scheduler>>,
        target: &watch::Receiver<usize>,
    ) -> JoinSet<()> {
        let (connector, mut slots) = (Rc::new(self.connector.clone()), JoinSet::new());
        for slot in 0..self.count_max {
            slots.spawn_local(keep_connected(slot::Plan {
                slot,
                connector: Rc::clone(&connector),
                context: Rc::clone(context),
                scheduler: Rc::clone(scheduler),
                lakes: self.lakes.clone(),
                access: self.access.clone(),
                target: target.clone(),
            }));
        }
        slots
    }

    /// Tasks beside the connections. None ends by itself.
    fn start_helpers(&self, context: &Rc<GatewayContext>, scheduler: &Rc<RefCell<Scheduler>>) -> JoinSet<()> {
        let mut helpers = JoinSet::new();
        helpers.spawn_local(sweep(Rc::clone(scheduler), self.lakes.clone()));
        helpers.spawn_local(follow_tokens(self.access.clone(), Rc::clone(scheduler)));
        if self.index == 0 {
            helpers.spawn_local(token_thread::keep_fresh(self.access.clone(), teller(context)));
        }
        helpers
    }
}

fn teller(GatewayContext { provider, pool, metrics, health, .. }: &GatewayContext) -> Teller {
    Teller { provider, pool: pool.clone(), metrics: metrics.clone(), health: health.clone() }
}

/// Lets connections that waited for an access token look again when there is one. Ends with the gateway.
async fn follow_tokens(mut access: watch::Receiver<Arc<Access>>, scheduler: Rc<RefCell<Scheduler>>) {
    loop {
        let credential = access.borrow_and_update().credential.clone();
        let mut changes = credential.oauth().map(|oauth| oauth.subscribe());
        let is_same = loop {
            scheduler.borrow_mut().wake_hungry();
            let fetched = async {
                match &mut changes {
                    Some(changes) => _ = changes.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = access.changed() => break changed.is_err(),
                () = fetched => {}
            }
        };
        if is_same {
            return std::future::pending().await; // The gateway is dropped, and with it this task.
        }
    }
}

async fn sweep(scheduler: Rc<RefCell<Scheduler>>, lakes: Lakes) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        scheduler.borrow_mut().sweep(&lakes);
        while scheduler.borrow_mut().sweep_waiting() {
            yield_now().await;
        }
    }
}

/// Keeps as many slots connected as are needed.
async fn scale(mut scaling: Scaling, target: watch::Sender<usize>, scheduler: Rc<RefCell<Scheduler>>, lakes: Lakes) {
    loop {
        sleep(TICK).await;
        let occupation = scheduler.borrow().occupation();
        let count = scaling.on_tick(&occupation, lakes.held() > 0, unix_now());
        target.send_if_modified(|target| std::mem::replace(target, count) != count);
    }
}
