//! What each kind of churn has: a connection to the API, random numbers of its own, a pace, and what all share.
//!
//! A kind of churn is a function that does one thing in each turn until its round is over, and returns a promise that it found
//! broken. What it asks of the server must succeed; refusals are tried in `refusals.rs`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use serde_json::Value;
use tidings_trial::caller::{Answer, Caller};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::API_KEY;
use crate::deeds::Deeds;
use crate::plan::Plan;
use crate::probe::Arrivals;
use crate::simulators::Addresses;

/// A stall of the store is a finding of the table, not the end of the soak.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timed {
    /// A durable publication, to its answer.
    Publication,
    /// An event, to the push of it.
    Push,
}

/// One time that was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) what: Timed,
    /// Since the soak began.
    pub(crate) at: Duration,
    pub(crate) ms: f64,
}

/// What all share.
pub(crate) struct World {
    pub(crate) addr: SocketAddr,
    pub(crate) plan: Plan,
    pub(crate) began: Instant,
    pub(crate) deeds: Deeds,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) times: Mutex<Vec<Time>>,
    last: AtomicU64,
}

impl World {
    pub(crate) fn new(addr: SocketAddr, plan: Plan, arrivals: Arc<Arrivals>, addresses: Arc<Addresses>) -> Self {
        let (began, deeds, times, last) = (Instant::now(), Deeds::default(), Mutex::default(), AtomicU64::new(0));
        Self { addr, plan, began, deeds, arrivals, addresses, times, last }
    }

    /// A number that nothing had before, from 1 on.
    pub(crate) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn note(&self, what: Timed, time: Duration) {
        let time = Time { what, at: self.began.elapsed(), ms: time.as_secs_f64() * 1000.0 };
        self.times.lock().expect("nobody panics with it").push(time);
    }
}

/// One kind of churn in one round.
pub(crate) struct Hand {
    pub(crate) world: Arc<World>,
    pub(crate) random: Xoshiro256PlusPlus,
    until: Instant,
    caller: Caller,
    pulse: Option<Interval>,
}

impl Hand {
    /// `number` is of no other hand.
    pub(crate) fn new(world: &Arc<World>, number: u64, until: Instant) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(world.plan.seed ^ number << 32);
        Self { world: world.clone(), random, until, caller: Caller::new(world.addr, API_KEY), pulse: None }
    }

    /// Another one beside it, for work that is shared.
    pub(crate) fn helper(&self) -> Self {
        let (world, random) = (self.world.clone(), self.random.clone());
        Self { world, random, until: self.until, caller: Caller::new(self.world.addr, API_KEY), pulse: None }
    }

    /// Waits for the next turn, so long after the one before at least. False: the round is over.
    pub(crate) async fn turn(&mut self, pace: Duration) -> bool {
        let pulse = self.pulse.get_or_insert_with(|| {
            let mut pulse = interval(pace);
            pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
            pulse
        });
        pulse.tick().await;
        Instant::now() < self.until
    }

    pub(crate) fn did(&self, deed: &str) {
        self.world.deeds.did(deed, 1);
    }

    /// What must succeed, and counts as this deed then.
    pub(crate) async fn ask(
        &mut self,
        deed: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let answer = self.send(method, path, body).await?;
        self.did(deed);
        Ok(answer.value())
    }

    /// The same with a body as it is; the caller says what it was.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        let answer = self.caller.send_within(PATIENCE, method.clone(), path, body).await;
        let answer = answer.map_err(|error| format!("{method} {path}: {error}"))?;
        let text = || format!("{method} {path}: {} {}", answer.status, answer.text());
        if answer.is_success() { Ok(answer) } else { Err(text()) }
    }
}
