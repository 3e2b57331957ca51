//! The soak: everything that comes and goes does so for an hour, and the server must be afterwards as it was before.
//!
//! One server with simulated providers. In each round all of these are at work, from a seed: live clients that connect in five
//! ways, recover, and leave in four ways, in ever new channels (`soak/churn.rs`, `soak/publisher.rs`); waves of devices that are
//! imported, told of something, replaced and removed (`wave.rs`); devices that register, log in and out and get new credentials
//! (`visitors.rs`); events at once, scheduled, cancelled and repeated, and a feed that changes (`events.rs`); refusals of each kind
//! and a hook that nobody answers (`refusals.rs`); reloads, backups and exports (`operator.rs`); probes that are timed
//! (`probe.rs`). After each round all leave, and the server must come to rest. At two thirds of the time the server is stopped and
//! started, and killed (`kill -9`) in the middle of a round, and the soak goes on.
//!
//! It fails when
//! - the server ends or panics, or counts what is a bug (`verdict.rs`);
//! - something is answered otherwise than it must be, or a client has a gap of which nobody told it;
//! - the server does not come to rest within [`REST_MAX`]: a connection, subscription, device, job or socket is left;
//! - something was never tried (`deeds.rs`);
//! - in a soak of 20 minutes or more: memory, descriptors, threads, series, counts, files or bytes grow from rest to rest
//!   (`trend.rs` has the rule, `verdict.rs` what each may grow by).
//!
//! A table tells of each minute. Times and the use of the processor are in it, and never asserted.
//!
//! It takes `TIDINGS_SOAK_SECONDS`, by default an hour: `cargo xtask soak`. A minute of it (`cargo xtask soak-minute`) is part of the
//! short proof, with small waves and a line every ten seconds. `TIDINGS_BIN` names the program (default: the one built with the
//! tests): the release binary in the hour. `TIDINGS_SOAK_SEED` repeats what was drawn; it does not make the run the same, since time takes part.
//! With `TIDINGS_SOAK_CANARY` each wave leaves a device behind, and the soak must fail.

#![expect(clippy::print_stdout, reason = "a report for whoever runs the soak")]

#[path = "soak/churn.rs"]
mod churn;
#[path = "soak/deeds.rs"]
mod deeds;
#[path = "soak/events.rs"]
mod events;
#[path = "soak/hand.rs"]
mod hand;
#[path = "soak/leftovers.rs"]
mod leftovers;
#[path = "soak/meter.rs"]
mod meter;
#[path = "soak/operator.rs"]
mod operator;
#[path = "soak/plan.rs"]
mod plan;
#[path = "soak/probe.rs"]
mod probe;
#[path = "features/provider.rs"]
mod provider;
#[path = "soak/publisher.rs"]
mod publisher;
#[path = "soak/refusals.rs"]
mod refusals;
#[path = "../../protocol/tests/it/schema.rs"]
mod schema;
#[path = "soak/setup.rs"]
mod setup;
#[expect(dead_code, reason = "the crash campaign needs more of them")]
#[path = "crash/simulators.rs"]
mod simulators;
#[path = "soak/table.rs"]
mod table;
#[path = "soak/trend.rs"]
mod trend;
#[path = "soak/verdict.rs"]
mod verdict;
#[path = "soak/visitors.rs"]
mod visitors;
#[path = "soak/wave.rs"]
mod wave;
#[path = "soak/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tidings_trial::launcher::Server;
use tidings_trial::wait::{self, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use churn::{Client, Seen};
use hand::{Hand, World};
use meter::{Figures, Metrics, cpu_seconds};
use plan::Plan;
use probe::{Arrivals, probe_id, probe_number as event_number};
use provider::DataProvider;
use simulators::Simulators;
use table::{Rest, Table};

const API_KEY: &str = "soak-campaign-key-0123456789";
/// It may only read.
const READER_KEY: &str = "soak-reader-key-0123456789";
/// Its events may be for one device.
const SMALL_KEY: &str = "soak-small-key-0123456789";
const APP: &str = "com.example.app";
const CLIENTS: u64 = 100;
/// How long the server may take to come to rest.
const REST_MAX: Duration = Duration::from_secs(60);
/// Numbers of hands and clients in one round.
const NUMBERS: u64 = 1 << 16;

/// A soak that runs.
struct Soak {
    plan: Plan,
    server: Server,
    world: Arc<World>,
    simulators: Simulators,
    provider: Arc<DataProvider>,
    seen: Arc<Seen>,
    table: Table,
    rests: Vec<Rest>,
    life: usize,
    rounds: u64,
    wrongs: Vec<String>,
}

impl Soak {
    /// With all that stays.
    async fn start(plan: Plan) -> Self {
        let arrivals = Arc::<Arrivals>::default();
        let simulators = setup::providers(plan.seed, &arrivals);
        let provider = Arc::new(DataProvider::open().await);
        let mut server = setup::server(&simulators, &provider);
        server.start().await;
        let world = Arc::new(World::new(server.addr, plan, arrivals, simulators.addresses.clone()));
        let mut soak = Self {
            plan,
            server,
            world,
            simulators,
            provider,
            seen: Arc::default(),
            table: Table::default(),
            rests: Vec::new(),
            life: 0,
            rounds: 0,
            wrongs: Vec::new(),
        };
        let settled = soak.settle().await;
        soak.wrongs.extend(settled.err());
        soak
    }

    /// Registers the devices that stay, and finds one that can be reached.
    async fn settle(&mut self) -> Result<(), String> {
        let mut hand = self.hand(0, Instant::now());
        let mut all = Vec::new();
        for (id, registration) in wave::residents(&self.world) {
            hand.send(Method::PUT, &format!("/v1/devices/{id}"), registration.to_string().into()).await?;
            all.push(id);
        }
        let id = probe_id(probe::FIRST);
        let first = json!({ "id": id, "topic": "goal", "subjects": ["kept:probe"], "to": { "devices": all }, "push": "always" });
        hand.send(Method::POST, "/v1/events", first.to_string().into()).await?;
        until("one of the devices that stay is pushed", async || self.world.arrivals.reached().map(drop)).await;
        Ok(())
    }

    fn hand(&self, number: u64, until: Instant) -> Hand {
        Hand::new(&self.world, self.rounds * NUMBERS + number, until)
    }

    /// Everything that is at work in a round, except the operator.
    fn churn(&self, until: Instant) -> JoinSet<Result<(), String>> {
        let mut all = JoinSet::new();
        for number in 0..CLIENTS {
            all.spawn(Client::new(&self.world, self.rounds * NUMBERS + number, &self.seen, until).live());
        }
        let hand = |number| self.hand(number, until);
        all.spawn(publisher::batches(hand(1)));
        all.spawn(publisher::timed(hand(2)));
        all.spawn(probe::probes(hand(3)));
        all.spawn(wave::waves(hand(4)));
        all.spawn(visitors::visitors(hand(5)));
        all.spawn(events::events(hand(6)));
        all.spawn(events::feed(hand(7), self.provider.clone()));
        all.spawn(refusals::callers(hand(8)));
        all.spawn(refusals::clients(hand(9)));
        all
    }

    /// Lets everything churn for so long; then all finish what they have begun.
    async fn round(&mut self, time: Duration) {
        self.rounds += 1;
        let until = Instant::now() + time;
        let mut all = self.churn(until);
        self.attend(&mut all, until, false).await;
    }

    /// The same, but then the server is killed. What was at work never learns of it.
    async fn round_until_killed(&mut self, time: Duration) {
        self.rounds += 1;
        let until = Instant::now() + time;
        let mut all = self.churn(until + time);
        self.attend(&mut all, until, true).await;
        self.server.kill(); // Nothing else runs until the tasks are aborted.
        all.abort_all();
        while all.join_next().await.is_some() {}
        self.world.deeds.did("kill", 1);
    }

    /// Operates the server until then, prints lines, and notes what goes wrong, until all have ended; or only until then.
    async fn attend(&mut self, all: &mut JoinSet<Result<(), String>>, until: Instant, leaves_early: bool) {
        let operator = operator::operate(&self.server, self.hand(10, until));
        let mut operator = std::pin::pin!(operator);
        let (mut is_operated, mut lines) = (true, interval(self.plan.line));
        lines.tick().await;
        while is_operated || !all.is_empty() && !leaves_early {
            tokio::select! {
                ended = all.join_next(), if !all.is_empty() => {
                    let ended = ended.expect("there is one").expect("it reports what goes wrong");
                    self.wrongs.extend(ended.err().inspect(|wrong| println!("{wrong}")));
                }
                ended = &mut operator, if is_operated => {
                    is_operated = false;
                    self.wrongs.extend(ended.err().inspect(|wrong| println!("{wrong}")));
                }
                _ = lines.tick() => line(&mut self.table, &self.server, &self.world, self.rests.last()).await,
            }
        }
    }

    /// Waits until nothing is left of those that came, and looks at the server while nothing happens.
    async fn rest(&mut self) {
        let server = &self.server;
        let look = async || {
            let metrics = Metrics::of(server).await;
            let figures = Figures::of(server, &metrics);
            (verdict::left(&metrics, &figures), metrics, figures)
        };
        let rested = wait::try_until(REST_MAX, async || look().await.0.is_empty().then_some(())).await;
        let (id, before, began) = (server.process_id(), cpu_seconds(server.process_id()), Instant::now());
        sleep(self.plan.rest).await; // The processor is measured over this time.
        let cpu_percent = 100.0 * (cpu_seconds(id) - before) / began.elapsed().as_secs_f64();
        let (left, metrics, figures) = look().await;
        if rested.is_none() {
            self.wrongs.push(format!("not at rest after {REST_MAX:?}: {}", left.join(", ")));
        }
        self.wrongs.extend(verdict::bugs(&metrics));
        let sent = metrics.get("tidings_intake_entries_total{result=\"sent\",source=\"goals\"}");
        self.world.deeds.did("feed entry", sent.unwrap_or_default() as u64);
        let counts = verdict::COUNTED.map(|name| (name, metrics.get(name).unwrap_or_default())).into();
        let at = self.world.began.elapsed();
        self.rests.push(Rest { at, life: self.life, figures, cpu_percent, counts });
    }

    /// A round and a rest, and more up to this time, or until something is wrong.
    async fn go_on(&mut self, end: Duration) {
        while self.wrongs.is_empty() {
            self.round(self.plan.round).await;
            self.rest().await;
            if self.world.began.elapsed() >= end {
                break;
            }
        }
    }

    /// An orderly stop, and a start; then a round in which it is killed, and another start.
    async fn restart(&mut self) {
        self.server.stop_well().await;
        self.start_again("after an orderly stop").await;
        self.rest().await;
        self.round_until_killed(self.plan.round / 2).await;
        self.start_again("after kill -9").await;
        let mut hand = self.hand(0, Instant::now());
        let cleared = leftovers::clear(&mut hand).await;
        self.wrongs.extend(cleared.err());
        drop(hand);
        self.rest().await;
    }

    async fn start_again(&mut self, why: &str) {
        let began = Instant::now();
        self.server.start().await;
        self.life += 1;
        println!("{:>6} s started in {:.1?} {why}", self.world.began.elapsed().as_secs(), began.elapsed());
    }

    /// What is wrong at the end.
    fn judge(&mut self) {
        for (tally, name) in self.simulators.tallies().iter().zip(["APNs", "FCM", "Web Push"]) {
            let gone = ["Unregistered", "Gone"].iter().filter_map(|reason| tally.rejected.get(*reason)).sum();
            self.world.deeds.did(&format!("token gone at {name}"), gone);
            println!("{name}: {}", tally.line);
        }
        println!("\n{}{:?}", self.world.deeds, self.seen);
        let times = self.world.times.lock().expect("nobody panics with it");
        table::compare(self.world.began.elapsed(), &times, &self.rests);
        let is_well = self.server.is_alive() && !self.server.has_panicked();
        self.wrongs.extend((!is_well).then(|| "the server ended or panicked".to_owned()));
        self.wrongs.extend(self.world.deeds.missing().into_iter().map(|deed| format!("never tried: {deed}")));
        let growths = verdict::growths(&self.rests);
        growths.iter().for_each(|growth| println!("{growth}"));
        self.wrongs.extend(growths.into_iter().filter(|_| self.plan.is_judged));
    }
}

async fn line(table: &mut Table, server: &Server, world: &World, rest: Option<&Rest>) {
    let metrics = Metrics::of(server).await;
    let times = world.times.lock().expect("nobody panics with it").clone();
    table.line(world.began.elapsed(), &Figures::of(server, &metrics), &times, rest);
}

#[test]
fn nothing_is_left_of_what_comes_and_goes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wrongs = runtime.block_on(soak(Plan::read()));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

async fn soak(plan: Plan) -> Vec<String> {
    println!("TIDINGS_SOAK_SEED={}", plan.seed);
    let mut soak = Soak::start(plan).await;
    soak.rest().await;
    soak.go_on(plan.time * 2 / 3).await;
    if soak.wrongs.is_empty() {
        soak.restart().await;
    }
    soak.go_on(plan.time).await;
    soak.judge();
    if !soak.wrongs.is_empty() {
        soak.wrongs.push(soak.server.log_end());
    }
    soak.wrongs
}
