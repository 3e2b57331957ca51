//! The crash campaign: the server is killed again and again under load, and every promise is held against it.
//!
//! 20 000 devices of all providers (APNs, FCM and Web Push), 200 connected clients (the unmodified JavaScript SDK), ten
//! `kill -9` at random moments while devices register, change their subscriptions and events are posted, and while the
//! simulated providers refuse, reset and go away; and some more kills while the server is still starting. Then:
//! - every acknowledged event, publication and subscription is there, after each kill and at the end;
//! - every device got every event it was owed (the rule is in `crash/model.rs`), except where its provider refused it
//!   for good; nobody got anything else; nobody got an event under two ids (FCM and Web Push know none: with two
//!   contents);
//! - nothing was repeated whose outcome the last checkpoint before the kill knew, pair by pair of device and event;
//!   repeats within a life of the server are no more than each provider's resets explain;
//! - what a checkpoint did not know is, at each provider, no more than what came within the stated lag of that kill and
//!   what was in flight there: the streams of all connections, those of quarantines among them. What waits in the
//!   lakes (one for each of three priorities) was given to no provider, and repeats nothing;
//! - every publication with an idempotency key, asked for until it was answered, is once in each of its channels, where
//!   each answer said;
//! - what the server says of a thousand pairs of device and event (`GET /v1/events/{id}/devices/{device}`) agrees with
//!   what the providers saw, and it knows of all events of its last life;
//! - every client saw every publication of its channels once and in order, each return recovered, no epoch changed.
//!
//! A second campaign, `crash/flood.rs`, is one event to very many devices, and a newer one that takes its place.
//!
//! It is run by `cargo xtask crash`, which names the release binary in `TIDINGS_BIN` (default: the one built with the
//! tests); a plain `cargo test` leaves it out (`test = false` in Cargo.toml). The checkers have tests of their own beside
//! them, which show each of them failing.
//!
//! With `NATS_SERVER`, the path of that program, the server is a cluster of three on three NATS servers: the leader is
//! killed each time, and with every second one a NATS server. `cargo xtask cluster` runs it so.
//!
//! To vary it, in the environment: `CRASH_SEED` (printed; what the load is drawn from: it does not make the run the
//! same, since time takes part), `CRASH_KILLS`, `CRASH_DEVICES`, `CRASH_CLIENTS`. With `CRASH_CANARY` something is
//! spoilt, and both campaigns must fail: with `forge` a delivery to a browser is forged into the ledger, with `drop` one
//! is dropped from it, with `repeat` one that was noted comes again after a kill, with `lag` the server makes
//! checkpoints too seldom. With these only the flood must: `forget` loses a checkpoint, `back` reverses two events at a
//! device, `uncancel` and `unpause` leave out to cancel and to pause.

#![expect(clippy::print_stdout, reason = "a report for whoever runs the campaign")]

#[path = "crash/books.rs"]
mod books;
#[path = "crash/checkpoint.rs"]
mod checkpoint;
#[path = "crash/deliveries.rs"]
mod deliveries;
#[path = "crash/fleet.rs"]
mod fleet;
#[path = "crash/flood.rs"]
mod flood;
#[path = "crash/lag.rs"]
mod lag;
#[path = "crash/load.rs"]
mod load;
#[path = "crash/model.rs"]
mod model;
#[path = "crash/order.rs"]
mod order;
#[path = "crash/population.rs"]
mod population;
#[path = "crash/providers.rs"]
mod providers;
#[path = "crash/server.rs"]
mod server;
#[path = "crash/simulators.rs"]
mod simulators;
#[path = "crash/sockets.rs"]
mod sockets;
#[path = "crash/verdict.rs"]
mod verdict;
#[path = "crash/why.rs"]
mod why;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use tidings_simulator::{Faults, FcmReason, Reason, WebPushReason};
use tidings_telemetry::unix_now;
use tidings_types::{Provider, Timestamp};
use tokio::time::{Instant, interval};

use checkpoint::{Checkpoint, JobRow, is_settled};
use deliveries::{Counts, Deliveries, LifeEnd, Pair, Wrongs};
use lag::{CHECKPOINT_INTERVAL, SLACK};
use load::Load;
use model::{Claim, Key};
use server::Server;
use simulators::{PROVIDER_COUNT, SHARE, Simulators, Streams, Tally, provider_of, sum, usual_faults};
use sockets::Clients;
use verdict::{Excuses, Logs, Outcomes, Sums};

const API_KEY: &str = "crash-campaign-key-0123456789";
const APP: &str = "com.example.app";
const TOPICS: [&str; 3] = ["goal", "card", "final"];
/// Subjects are numbers: matches, which are channels as well, then teams, then the league, which all devices follow.
const CHANNEL_COUNT: u16 = 20;
const TEAM_COUNT: u16 = 100;
const LEAGUE: u16 = CHANNEL_COUNT + TEAM_COUNT;
const SUBJECT_COUNT: u16 = LEAGUE + 1;
const CHANNELS_PER_CLIENT: usize = 2;

/// Streams per connection that the providers of this campaign allow; what a reset can make unknown.
const STREAMS: Streams = Streams([50, 10, 10]);
/// What they refuse for good, though the device is there; by provider.
const REFUSALS: (Reason, FcmReason, WebPushReason) =
    (Reason::DeviceTokenNotForTopic, FcmReason::ThirdPartyAuthError, WebPushReason::PayloadTooLarge);
/// A life under load ends after at most so many acceptances for each device.
const LIFE_LOAD_MAX: u64 = 4;
/// Within this a server that is to be killed while it starts is killed.
const START_STRIKE_MS_MAX: u64 = 400;
/// Nothing that is waited for stands still for so long, however slow the machine.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Nor does it take longer than this altogether.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// What the environment says.
struct Options {
    seed: u64,
    kills: u64,
    devices: u32,
    clients: usize,
    canary: Option<String>,
    is_cluster: bool,
}

/// What `CRASH_CANARY` may be.
const CANARIES: [&str; 8] = ["forge", "drop", "repeat", "lag", "forget", "back", "uncancel", "unpause"];

fn canary() -> Option<String> {
    let canary = std::env::var("CRASH_CANARY").ok();
    let is_known = canary.as_deref().is_none_or(|name| CANARIES.contains(&name));
    assert!(is_known, "CRASH_CANARY is one of {CANARIES:?}, got {canary:?}");
    canary
}

/// For the configuration: what the canary `lag` does.
fn slow_checkpoints(canary: Option<&str>) -> &'static str {
    if canary == Some("lag") { "\n[sender]\ncheckpoint_interval = \"10s\"\n" } else { "" }
}

impl Options {
    fn read() -> Self {
        Self {
            seed: number("CRASH_SEED", rand::random()),
            kills: number("CRASH_KILLS", 10),
            devices: u32::try_from(number("CRASH_DEVICES", 20_000)).expect("CRASH_DEVICES is below 2^32"),
            clients: number("CRASH_CLIENTS", 200) as usize,
            canary: canary(),
            is_cluster: std::env::var_os("NATS_SERVER").is_some(),
        }
    }
}

/// A number of the environment.
fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// One campaign at a time: the lag of a checkpoint is measured.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a campaign when no other runs.
fn run_alone(campaign: impl Future<Output = ()>) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(campaign);
}

/// Publications have numbers from here on, events below.
const PUBLICATION: u32 = 1 << 31;

fn event_id(event: u32) -> String {
    match event.checked_sub(PUBLICATION) {
        Some(publication) => format!("p-{publication}"),
        None => format!("e-{event}"),
    }
}

fn event_number(id: &str) -> Option<u32> {
    match id.strip_prefix("p-") {
        Some(publication) => publication.parse::<u32>().ok()?.checked_add(PUBLICATION),
        None => id.strip_prefix("e-")?.parse().ok(),
    }
}

fn device_id(device: u32) -> String {
    format!("device-{device}")
}

fn subject(number: u16) -> String {
    match number {
        LEAGUE => "league:all".to_owned(),
        team if team >= CHANNEL_COUNT => format!("team:{}", team - CHANNEL_COUNT),
        channel => format!("match:{channel}"),
    }
}

fn key_of(subject: &str, topic: &str) -> Option<Key> {
    let number = match subject.split_once(':')? {
        ("match", number) => number.parse().ok()?,
        ("team", number) => CHANNEL_COUNT + number.parse::<u16>().ok()?,
        ("league", "all") => LEAGUE,
        _ => return None,
    };
    Some((number, TOPICS.iter().position(|known| *known == topic)? as u8))
}

/// Everything the providers do, each so seldom that the campaign comes to its end.
fn set_faults(simulators: &Simulators) {
    let Streams([apns, fcm, web_push]) = STREAMS;
    let (rare, refused) = (0.000_03, 0.0005);
    let apns = Faults {
        stream_limit_before_token: Some(1),
        unavailable_probability: 0.001,
        too_many_requests_probability: 0.0005,
        rejection_probability: refused,
        rejection_reasons: vec![REFUSALS.0],
        ..usual_faults(apns, rare, 5000)
    };
    let rare = rare * f64::from(SHARE);
    let fcm = Faults {
        internal_error_probability: 0.000_05, // Each is repeated after ten seconds.
        unavailable_probability: 0.0005,
        too_many_requests_probability: 0.000_05, // Each stops all messages for that time, and halves the rate.
        retry_after_secs: Some(1),
        rejection_probability: refused,
        rejection_reasons: vec![REFUSALS.1],
        ..usual_faults(fcm, rare, 1000)
    };
    let web_push = Faults {
        unavailable_probability: 0.000_1, // Each stops all pushes for that time.
        too_many_requests_probability: 0.0005,
        retry_after_secs: Some(1),
        rejection_probability: refused,
        rejection_reasons: vec![REFUSALS.2],
        ..usual_faults(web_push, rare, 1000)
    };
    simulators.set_faults(apns, fcm, web_push);
}

/// How far a campaign has come, as its own side counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    answers: u64,
    accepted: u64,
    subscriptions: usize,
    publications: u64,
}

/// One kill, for the table.
struct Kill {
    after: Duration,
    open_jobs: usize,
    unanswered: usize,
    /// Accepted so far, repeats by kills among them.
    accepted: u64,
    repeats: u64,
    /// By provider.
    ends: [LifeEnd; PROVIDER_COUNT],
    /// Outcomes that the checkpoint need not know; of all providers.
    fresh_max: u64,
}

struct Campaign {
    options: Options,
    began: Instant,
    rng: Xoshiro256PlusPlus,
    simulators: Simulators,
    deliveries: Arc<Mutex<Deliveries>>,
    server: Server,
    load: Load,
    clients: Clients,
    /// Numbers of devices in the store, which never change.
    numbers: HashMap<u32, u32>,
    scratch: PathBuf,
    /// When this life of the server began.
    life_began: Instant,
    /// Events that were sent before.
    life_events: usize,
    /// This life is to end before the server is ready.
    is_starting: bool,
    /// For how long at most this process was kept from looking in this life: so busy the machine is.
    gap_max: Duration,
    /// By provider.
    resets_before: [u64; PROVIDER_COUNT],
    /// Repeats by kills up to the last kill, and the most between two.
    repeats: (u64, u64),
}

impl Campaign {
    async fn start(options: Options, folder: &std::path::Path) -> Self {
        let deliveries = Arc::new(Mutex::new(Deliveries::default()));
        let ledger = deliveries.clone();
        let simulators = Simulators::start(options.devices, options.seed, move |acceptance| {
            ledger.lock().expect("the ledger is whole").accept(acceptance);
        });
        set_faults(&simulators);
        let more = slow_checkpoints(options.canary.as_deref());
        let server = match options.is_cluster {
            true => Server::start_cluster(folder, &simulators, more).await,
            false => Server::start(folder, &simulators, more).await,
        };
        let load = Load::start(server.addr(), simulators.addresses.clone(), options.seed);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(options.seed);
        let mut channels = |_| -> Vec<String> {
            let first = rng.random_range(0..CHANNEL_COUNT);
            (0..CHANNELS_PER_CLIENT as u16).map(|next| subject((first + 7 * next) % CHANNEL_COUNT)).collect()
        };
        let channels: Vec<Vec<String>> = (0..options.clients).map(&mut channels).collect();
        let clients = Clients::start(&format!("ws://{}/connection/websocket", server.addr()), &channels);
        let (began, numbers, scratch) = (Instant::now(), HashMap::new(), folder.join("copy"));
        Self {
            options,
            began,
            rng,
            simulators,
            deliveries,
            server,
            load,
            clients,
            numbers,
            scratch,
            life_began: began,
            life_events: 0,
            is_starting: false,
            gap_max: Duration::ZERO,
            resets_before: [0; PROVIDER_COUNT],
            repeats: (0, 0),
        }
    }

    /// Waits for what must come true, and fails as soon as anything is wrong or nothing moves any more.
    async fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let (began, mut moved_at, mut progress) = (Instant::now(), Instant::now(), self.progress());
        let (mut pulse, mut looked_at) = (interval(Duration::from_millis(1)), began);
        while !condition(self) {
            pulse.tick().await;
            self.gap_max = self.gap_max.max(looked_at.elapsed());
            looked_at = Instant::now();
            self.load.check();
            self.clients.check();
            self.server.check_alive();
            let latest = self.progress();
            if latest != progress {
                (progress, moved_at) = (latest, Instant::now());
            }
            if moved_at.elapsed() > STANDSTILL_MAX || began.elapsed() > WAIT_MAX {
                let (waited, still) = (began.elapsed(), moved_at.elapsed());
                panic!("not after {waited:.0?}: {what}; {progress:?} for {still:.0?}\n{}", self.server.log_end());
            }
        }
    }

    /// What moves while the server works.
    fn progress(&self) -> Progress {
        Progress {
            answers: self.load.world().answer_count(),
            accepted: self.count(|counts| counts.accepted),
            subscriptions: self.clients.subscription_count(),
            publications: self.clients.publication_count(),
        }
    }

    fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries.lock().expect("the ledger is whole")
    }

    /// Over all providers.
    fn count(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        sum(&self.deliveries().counts, of)
    }

    fn require(&self, what: &str, wrongs: &Wrongs) {
        assert!(wrongs.is_empty(), "{what}: {wrongs}\nThe server's last words:\n{}", self.server.log_end());
    }

    /// Kills the server at a random moment, under load or while it starts, and judges what it left.
    async fn kill(&mut self) -> Kill {
        let target = self.rng.random_range(1..=u64::from(self.options.devices) * LIFE_LOAD_MAX);
        self.until("there is enough load for a kill", |campaign| {
            let is_busy = campaign.load.jobs().is_some_and(|jobs| jobs.running > 0);
            campaign.is_starting || is_busy && campaign.count(|counts| counts.accepted_in_life) >= target
        })
        .await;
        self.server.kill();
        let (after, killed_at) = (self.life_began.elapsed(), unix_now());
        // Meanwhile the providers take what is still on the wire.
        let checkpoint = Checkpoint::read_copy(&self.server.data_folder(), &self.scratch);
        let wrongs = checkpoint.check(&self.load.world(), &mut self.numbers);
        self.require("after the kill", &wrongs);
        self.simulators.stop();
        let lag_max = CHECKPOINT_INTERVAL + SLACK + self.gap_max;
        let before = |age: Duration| Timestamp(killed_at.as_millis() - age.as_millis() as u64);
        let is_noted = |pair| is_settled(&checkpoint, &self.numbers, pair);
        let ends = self.deliveries().end_life(is_noted, before(lag_max), before(2 * lag_max));
        let (open_jobs, unanswered) = (checkpoint.open_job_count(), self.load.world().unanswered_count());
        checkpoint.close().await;
        let fresh_max = self.check_lag(&ends, lag_max);
        let (accepted, repeats) = (self.count(|counts| counts.accepted), self.note_repeats());
        self.simulators.listen();
        Kill { after, open_jobs, unanswered, accepted, repeats, ends, fresh_max }
    }

    /// Starts the server again; how long that took, or `None` when it is to be killed before it is ready.
    async fn start_again(&mut self, may_strike: bool) -> Option<Duration> {
        self.life_began = Instant::now();
        self.life_events = self.load.world().events.len();
        self.gap_max = Duration::ZERO;
        self.is_starting = false;
        if may_strike && !self.options.is_cluster && self.rng.random_ratio(1, 4) {
            let patience = Duration::from_millis(self.rng.random_range(1..=START_STRIKE_MS_MAX));
            let ready = self.server.begin_to_start(patience).await;
            self.is_starting = ready.is_none();
            return ready;
        }
        Some(self.server.start_again().await)
    }

    /// How many outcomes of this life the checkpoint need not have known: at each provider what was accepted within the
    /// lag, what was in flight, and answers that resets have made unknown.
    fn check_lag(&mut self, ends: &[LifeEnd; PROVIDER_COUNT], lag_max: Duration) -> u64 {
        let mut allowed = 0;
        for ((provider, end), tally) in Provider::ALL.iter().zip(ends).zip(self.simulators.tallies()) {
            let resets = tally.resets - std::mem::replace(&mut self.resets_before[*provider as usize], tally.resets);
            let unknown = resets * u64::from(STREAMS.of(*provider));
            let LifeEnd { fresh, recent, late, .. } = *end;
            let fresh_max = recent + STREAMS.in_flight_max(*provider) + unknown;
            assert!(
                late <= unknown,
                "{provider}: {late} outcomes older than twice {lag_max:?} were not noted, {end:?}"
            );
            assert!(
                fresh <= fresh_max,
                "{provider}: {fresh} outcomes were not noted; {lag_max:?}, flight and resets explain {fresh_max}"
            );
            allowed += fresh_max;
        }
        allowed
    }

    /// How many repeats kills have brought so far, noting what the last one has.
    fn note_repeats(&mut self) -> u64 {
        let (repeats, (before, most)) = (self.count(|counts| counts.crash_repeats), self.repeats);
        self.repeats = (repeats, most.max(repeats - before));
        repeats
    }

    /// Lets everything come to rest: all is posted and acknowledged, told to devices and seen by clients.
    async fn come_to_rest(&mut self) -> Logs {
        self.load.finish().await;
        let last = self.load.post_last_event().await;
        self.until("every event is worked off", |campaign| {
            // Jobs begin in the order of events: with the last one begun, no other is still to come.
            let deliveries = campaign.deliveries();
            let told = (0..campaign.options.devices).any(|device| deliveries.of((device, last)).is_some());
            drop(deliveries);
            told && campaign.load.jobs().is_some_and(|jobs| jobs.running + jobs.waiting == 0)
        })
        .await;
        let mut wrongs = Wrongs::default();
        let logs = verdict::channel_logs(&self.load.world(), &mut wrongs);
        self.require("the channels", &wrongs);
        let tops = load::tops(&logs);
        self.until("every client has everything", |campaign| campaign.clients.have_all(&tops)).await;
        logs
    }

    /// Asks the running server for everything that was acknowledged.
    async fn ask_for_everything(&mut self) -> Wrongs {
        let mut wrongs = Wrongs::default();
        for text in self.load.post_all_again().await.into_iter().chain(self.load.ask_for_all_devices().await) {
            wrongs.add(|| text);
        }
        wrongs
    }

    /// Asks the running server why devices got events or not, and compares the answers with what the providers saw.
    async fn ask_why(&mut self) -> Wrongs {
        let pairs = why::pairs(&self.load.world(), self.life_events, &mut self.rng);
        let answers = why::ask(self.server.addr(), pairs).await;
        why::check(&answers, &self.load.world(), &self.deliveries(), self.life_events)
    }

    /// Stops the server in order; what it left behind, and which devices have no token.
    async fn read_books(&mut self) -> (Outcomes, HashSet<u32>) {
        let status = self.server.stop().await;
        assert!(status.success(), "told to stop it ended with {status}\n{}", self.server.log_end());
        self.simulators.stop();
        let checkpoint = Checkpoint::read_copy(&self.server.data_folder(), &self.scratch);
        let wrongs = checkpoint.check(&self.load.world(), &mut self.numbers);
        self.require("after the end", &wrongs);
        assert_eq!(checkpoint.open_job_count(), 0, "jobs that are not finished");
        let finished = checkpoint.jobs().filter_map(|(event, job)| match job {
            JobRow::Finished { counts } => Some((event, counts.clone())),
            JobRow::Running { .. } => None,
        });
        let outcomes = finished.collect();
        let gone = (0..self.options.devices).filter(|device| checkpoint.is_tokenless(*device)).collect();
        checkpoint.close().await;
        (outcomes, gone)
    }

    /// The ledgers of the simulators and our own must say the same, and repeats within a life need a reset.
    fn check_ledgers(&self) -> Wrongs {
        let (all_counts, mut wrongs) = (self.deliveries().counts, Wrongs::default());
        for ((provider, tally), counts) in Provider::ALL.iter().zip(self.simulators.tallies()).zip(all_counts) {
            let Counts { accepted, crash_repeats, fault_repeats, .. } = counts;
            let Tally { resets, stream_limit_violations, .. } = tally;
            let is_same = tally.accepted == accepted && tally.repeated == crash_repeats + fault_repeats;
            wrongs.require(is_same, || {
                format!("{provider} counts {}, {} of them again; we {counts:?}", tally.line, tally.repeated)
            });
            let explained = resets * u64::from(STREAMS.of(*provider));
            wrongs.require(fault_repeats <= explained, || {
                format!("{provider}: {fault_repeats} repeats without a crash, {resets} resets explain {explained}")
            });
            wrongs.require(accepted > 0, || format!("{provider} accepted nothing: it was not tested"));
            wrongs.require(stream_limit_violations == 0, || format!("more streams than {provider} allows"));
        }
        wrongs
    }

    /// Holds everything seen against everything promised, and prints the sums.
    fn judge(self, logs: &Logs, (outcomes, gone): &(Outcomes, HashSet<u32>), rest_after: Duration) -> Wrongs {
        let Self { deliveries, simulators, load, clients, repeats: (_, most), options: Options { kills, .. }, .. } =
            self;
        let seen = clients.finish();
        let (publications, resumes) = (seen.publications, seen.resumes);
        let mut wrongs = seen.check(logs, kills > 0);
        let tallies = simulators.tallies();
        let refusals = [format!("{:?}", REFUSALS.0), format!("{:?}", REFUSALS.1), format!("{:?}", REFUSALS.2)];
        let refused = tallies.iter().zip(&refusals).filter_map(|(tally, refusal)| tally.rejected.get(refusal));
        let rejected = refused.sum();
        let mut deliveries = deliveries.lock().expect("the ledger is whole");
        let world = load.world();
        let (found, sums) = verdict::check(&world, &deliveries, &Excuses { outcomes, gone, rejected });
        wrongs.append(found);
        wrongs.append(std::mem::take(&mut deliveries.wrongs));

        let pushed = world.events.iter().filter(|event| event.push).count();
        let (events, rest_after) = (world.events.len(), rest_after.as_secs_f64());
        let Sums { owed, delivered, refused, gone: to_gone, allowed } = sums;
        let gone = gone.len();
        println!("events      {events} acknowledged, {pushed} of them pushed; at rest after {rest_after:.1} s");
        let (keyed, places) =
            (world.publications.len(), world.publications.iter().map(|it| it.channels.len()).sum::<usize>());
        println!("published   {keyed} with idempotency keys, {places} counted by channel; each is there once");
        wrongs.require(keyed > 0, || "nothing was published with an idempotency key: it was not tested".to_owned());
        println!(
            "deliveries  {owed} owed: {delivered} made, {refused} refused, {to_gone} to {gone} devices that are gone"
        );
        println!("            {allowed} more to devices whose subscriptions changed around the event");
        println!("clients     {publications} publications seen; {resumes} returns, all recovered");
        print_ledgers(&tallies, &deliveries, most);
        wrongs
    }

    /// Spoils the ledger as the canary asks: the campaign must then fail.
    fn let_canary_in(&self) {
        let mut deliveries = self.deliveries();
        match self.options.canary.as_deref() {
            Some("forge") => {
                let pair = self.browser_with(&deliveries, Claim::No);
                deliveries.forge(pair);
            }
            Some("drop") => {
                let pair = self.browser_with(&deliveries, Claim::Owed);
                deliveries.forget(pair);
            }
            Some("repeat") => deliveries.repeat_one(),
            _ => {} // The flood's, or let in elsewhere.
        }
    }

    /// A browser that has this claim to an event. To be owed one, it must have it.
    fn browser_with(&self, deliveries: &Deliveries, claim: Claim) -> Pair {
        let world = self.load.world();
        let browsers = (0..self.options.devices).filter(|device| provider_of(*device) == Provider::WebPush);
        let pushed: Vec<u32> =
            (0..).zip(&world.events).filter_map(|(event, state)| state.push.then_some(event)).collect();
        let mut pairs = browsers.flat_map(|device| pushed.iter().map(move |event| (device, *event)));
        let has_claim = |(device, event): Pair| world.claim(device, event) == claim;
        let is_there = |pair: Pair| deliveries.of(pair).is_some() == (claim == Claim::Owed);
        pairs.find(|pair| has_claim(*pair) && is_there(*pair)).expect("there is one")
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    run_alone(campaign());
}

#[test]
fn one_event_to_very_many_devices_reaches_each_when_the_server_is_killed() {
    run_alone(flood::campaign());
}

async fn campaign() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::read();
    let Options { seed, kills, devices, clients, .. } = options;
    println!("CRASH_SEED={seed} CRASH_KILLS={kills} CRASH_DEVICES={devices} CRASH_CLIENTS={clients}");
    let mut campaign = Campaign::start(options, folder.path()).await;
    campaign
        .until("most devices and all clients are there", |campaign| {
            campaign.load.is_prepared() && campaign.clients.subscription_count() == clients * CHANNELS_PER_CLIENT
        })
        .await;
    println!("prepared after {:.1} s", campaign.began.elapsed().as_secs_f64());
    campaign.load.start_events(seed);
    campaign.life_began = Instant::now();

    print_head();
    let (mut kills_under_load, mut number) = (0, 0);
    while kills_under_load < kills {
        kills_under_load += u64::from(!campaign.is_starting);
        let kill = campaign.kill().await;
        let ready = campaign.start_again(kills_under_load < kills).await;
        number += 1;
        print_kill(number, &kill, ready);
    }
    let logs = campaign.come_to_rest().await;
    let rest_after = campaign.began.elapsed();
    let mut wrongs = campaign.ask_for_everything().await;
    wrongs.append(campaign.ask_why().await);
    let books = campaign.read_books().await;
    campaign.load.close().await;
    campaign.let_canary_in();
    campaign.note_repeats();
    wrongs.append(campaign.check_ledgers());
    let (log_end, began) = (campaign.server.log_end(), campaign.began);
    wrongs.append(campaign.judge(&logs, &books, rest_after));
    let verdict = if wrongs.is_empty() { "every promise was kept" } else { "BROKEN" };
    println!("CRASH_SEED={seed}: {verdict}, {:.1} s", began.elapsed().as_secs_f64());
    assert!(wrongs.is_empty(), "{wrongs}\nThe server's last words:\n{log_end}");
}

/// `most` repeats came after one kill.
fn print_ledgers(tallies: &[Tally], deliveries: &Deliveries, most: u64) {
    for ((provider, tally), counts) in Provider::ALL.iter().zip(tallies).zip(deliveries.counts) {
        let Counts { crash_repeats, fault_repeats, .. } = counts;
        let by_resets = tally.resets * u64::from(STREAMS.of(*provider));
        println!("{:<12}{}", provider.as_str(), tally.line);
        println!("            repeats by kills: {crash_repeats}; by resets: allowed {by_resets}, seen {fault_repeats}");
    }
    let accepted = sum(&deliveries.counts, |counts| counts.accepted);
    let repeats = sum(&deliveries.counts, |counts| counts.crash_repeats);
    println!("ledgers     {accepted} accepted; repeats by kills: {repeats}, each of an outcome that was not noted");
    println!("            {most} at most after one kill");
}

fn print_head() {
    println!(
        "kill  life s  open jobs  unanswered  accepted  noted done  not noted  of at most  repeats so far  \
         ready again ms"
    );
}

fn print_kill(number: u64, kill: &Kill, ready: Option<Duration>) {
    let Kill { after, open_jobs, unanswered, accepted, repeats, ends, fresh_max } = kill;
    let (after, settled, fresh) = (after.as_secs_f64(), sum(ends, |end| end.settled), sum(ends, |end| end.fresh));
    let ready = ready.map_or("killed before".to_owned(), |ready| ready.as_millis().to_string());
    println!(
        "{number:>4}  {after:>6.2}  {open_jobs:>9}  {unanswered:>10}  {accepted:>8}  {settled:>10}  {fresh:>9}  \
         {fresh_max:>10}  {repeats:>14}  {ready:>14}"
    );
}
