//! One event to very many devices, a newer one that takes its place, and `kill -9` at random moments meanwhile.
//!
//! A data folder is written with the devices in it, reached by APNs, FCM and Web Push (`simulators.rs`), most of them
//! proven, some not, a few without the subscription. Then one event is posted for all, and the server is killed again
//! and again, each time after the ledgers have grown by a random share, sometimes while it still starts. The providers
//! allow so few streams that a life lasts some seconds. They answer 503 with and without `Retry-After`, reset
//! connections, send GOAWAY, stall, stop and listen again, and name tokens gone. Of the kills,
//! - the first comes when another event for all has just been cancelled;
//! - one comes when a newer event with the same collapse key was posted for three in five of the devices, in half of the
//!   runs at once;
//! - the next one when all has just been paused; what is still handed out in the life after it is wrong, until it is
//!   resumed.
//!
//! At the end:
//! - each job's report has as many devices as the event was for, each with exactly one outcome; of the older and the
//!   cancelled event, what was superseded or cancelled may have been accepted before, of the newer one nothing was;
//! - of the newer one the report calls as many accepted as the ledgers have, the same by language; who has not got what
//!   it was owed is gone: given its token back, it is refused again; nobody else got anything;
//! - no device got the older one after the newer one (`order.rs`), nor the cancelled one after the kill;
//! - every repeat has the same notification id (FCM and Web Push, which know none: the same content) and collapse id;
//! - what the last checkpoint before a kill calls settled was accepted no more, and what that did not know is, at each
//!   provider, no more than what was measured in that life allows (`lag.rs`), what was in flight there, and answers
//!   that it has lost. (What waits in the lakes of the three priorities was given to no provider, and repeats nothing.)
//!   Each life that was busy for twice the lag has noted something, and there was one.
//!
//! In the environment: `CRASH_FLOOD_DEVICES` (100 000; a million is for running by hand) and `CRASH_FLOOD_KILLS`. In
//! memory here: the ledgers, the addresses, the books, and while a checkpoint is read what a server keeps of its
//! devices.

use std::collections::HashSet;
use std::ops::Add as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidings_simulator::{MessageEntry, collapse_hash};
use tidings_telemetry::unix_now;
use tidings_trial::caller::Caller;
use tidings_types::{DeviceNumber, Provider};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::books::{Books, FloodLife, Said, Totals};
use crate::checkpoint::{Checkpoint, forget_jobs};
use crate::deliveries::Wrongs;
use crate::lag::{CHECKPOINT_INTERVAL, Lag, Look, Looks, SLACK};
use crate::order::{Order, Trace};
use crate::population::{
    CALLED_OFF, COLLAPSE_KEY, EVENT_COUNT, FLOOD, NEWER, Population, TRANSLATED, collapse_id, subject_of,
};
use crate::providers::{Providers, Weather, event_of_entry, streams_for};
use crate::server::Server;
use crate::simulators::{PROVIDER_COUNT, provider_of, sum};
use crate::{API_KEY, START_STRIKE_MS_MAX, TOPICS, canary, device_id, event_id, number, slow_checkpoints};

/// Of the event that is called off so many are accepted before.
const CALL_OFF_AFTER: u64 = 20;
/// What a life of the server is to last; with more connections than the providers have at first, half of that.
const LIFE_SECONDS: u64 = 6;
/// A checkpoint is never older; a life that was busy twice as long must have one.
const LAG_MAX: Duration = CHECKPOINT_INTERVAL.saturating_add(SLACK);
/// Devices that one event can name.
const PROBE_COUNT: usize = 1000;
/// Without any acceptance for so long, and without an end, it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
const OUTAGE_MS_MAX: u64 = 300;
const SOON_MS_MAX: u64 = 300;

/// Before which kill, counted from 1, what is done.
struct Plan {
    kills: u64,
    call_off: u64,
    renew: u64,
    pause: u64,
}

impl Plan {
    fn new(kills: u64) -> Self {
        let renew = kills.div_ceil(3);
        Self { kills, call_off: 1, renew, pause: renew + 1 }
    }

    /// Whether the life before this kill may end before it has begun.
    fn may_strike(&self, kill: u64) -> bool {
        kill <= self.kills && ![self.call_off, self.renew, self.pause].contains(&kill)
    }
}

/// One kill, for the table.
struct Kill {
    after: Duration,
    first_push: Option<Duration>,
    /// By provider.
    sides: [Side; PROVIDER_COUNT],
    /// Before this life.
    noted_before: u64,
}

/// What a kill leaves at one provider.
struct Side {
    life: FloodLife,
    lag: Lag,
    in_flight_max: u64,
    repeats_max: u64,
}

impl Side {
    /// Outcomes that need not be noted.
    fn fresh_max(&self) -> u64 {
        self.lag.demanded + self.in_flight_max + self.repeats_max
    }
}

impl Kill {
    /// How long any provider was accepting.
    fn busy(&self) -> Duration {
        self.sides.iter().map(|side| side.lag.busy).max().unwrap_or_default()
    }

    /// So long that something must have been noted.
    fn is_long(&self) -> bool {
        self.busy() > 2 * LAG_MAX
    }
}

struct Flood {
    population: Population,
    rng: Xoshiro256PlusPlus,
    providers: Providers,
    server: Server,
    scratch: PathBuf,
    /// In the store, by device.
    numbers: Vec<DeviceNumber>,
    /// By event.
    books: [Books; EVENT_COUNT],
    order: Order,
    /// Beside those of the books.
    wrongs: Wrongs,
    /// The events that are.
    posted: Vec<u32>,
    /// By provider.
    looks: [Looks; PROVIDER_COUNT],
    life_began: Instant,
    is_starting: bool,
    is_paused: bool,
    noted: u64,
    long_life_count: u64,
    fault_repeats_max: u64,
    canary: Option<String>,
}

impl Flood {
    async fn start(population: Population, plan: &Plan, canary: Option<String>, folder: &Path) -> Self {
        let audience = u64::from(population.audience);
        let rate = 1.3 * audience as f64 / (LIFE_SECONDS * (plan.kills + 1)) as f64;
        let providers = Providers::start(population, streams_for(rate));
        let server = Server::prepare(folder, &providers.simulators, slow_checkpoints(canary.as_deref()));
        let (store, addresses) = (server.data_folder().join("store"), &providers.simulators.addresses);
        let numbers = population.write(&store, addresses, population.all(), false).await;
        let device_count = population.all().end;
        let books = |event| Books::new(event, device_count, |device| population.is_owed(event, device));
        Self {
            population,
            rng: Xoshiro256PlusPlus::seed_from_u64(population.seed),
            providers,
            server,
            scratch: folder.join("copy"),
            numbers,
            books: [FLOOD, NEWER, CALLED_OFF].map(books),
            order: Order::new(device_count),
            wrongs: Wrongs::default(),
            posted: Vec::new(),
            looks: Default::default(),
            life_began: Instant::now(),
            is_starting: false,
            is_paused: false,
            noted: 0,
            long_life_count: 0,
            fault_repeats_max: 0,
            canary,
        }
    }

    /// Starts the server for another life; how long it took, or `None` when it is to be killed before it is ready.
    async fn begin_life(&mut self, may_strike: bool) -> Option<Duration> {
        let weather = Weather::draw(&mut self.rng);
        self.providers.set(&weather);
        self.providers.simulators.listen();
        self.life_began = Instant::now();
        self.looks = Default::default();
        self.note(self.life_began, self.providers.simulators.accepted(), 0);
        let patience = Duration::from_millis(self.rng.random_range(1..=START_STRIKE_MS_MAX));
        let is_struck = may_strike && self.rng.random_ratio(1, 4);
        let ready =
            if is_struck { self.server.begin_to_start(patience).await } else { Some(self.server.start_again().await) };
        self.is_starting = ready.is_none();
        ready
    }

    fn has_canary(&self, name: &str) -> bool {
        self.canary.as_deref() == Some(name)
    }

    async fn post(&mut self, event: u32) {
        let mut body = event_body(event);
        let audience = self.population.audience_of(event);
        body["expect_audience"] = json!({ "min": audience, "max": audience });
        Caller::new(self.server.addr(), API_KEY).insist(Method::POST, "/v1/events", Some(&body)).await;
        self.posted.push(event);
    }

    /// Looks at the server's counter of checkpoints.
    async fn look(&mut self, caller: &mut Caller) {
        let (at, accepted) = (Instant::now(), self.providers.simulators.accepted());
        let page = caller.insist(Method::GET, "/metrics", None).await.body;
        let page = String::from_utf8_lossy(&page);
        let line = page.lines().find_map(|line| line.strip_prefix("tidings_sender_checkpoints_total "));
        let checkpoints = line.and_then(|number| number.trim().parse().ok()).expect("checkpoints are counted");
        self.note(at, accepted, checkpoints);
    }

    fn note(&mut self, at: Instant, accepted: [u64; PROVIDER_COUNT], checkpoints: u64) {
        for (looks, accepted) in self.looks.iter_mut().zip(accepted) {
            looks.note(Look { at, accepted, checkpoints });
        }
    }

    async fn reports(&self, caller: &mut Caller) -> Vec<Value> {
        let mut reports = Vec::new();
        for event in &self.posted {
            reports.push(caller.insist(Method::GET, &format!("/v1/events/{}", event_id(*event)), None).await.json());
        }
        reports
    }

    /// Waits for something, or until all events have come to their end: then their reports.
    async fn until(&mut self, is_there: impl Fn(&Self) -> bool) -> Option<Vec<Value>> {
        let mut caller = Caller::new(self.server.addr(), API_KEY);
        let mut pulse = interval(Duration::from_millis(1));
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut asked_at, mut grown) = (Instant::now(), (Instant::now(), 0));
        loop {
            pulse.tick().await;
            self.server.check_alive();
            if is_there(self) {
                return None;
            }
            if self.looks[0].is_due() {
                self.look(&mut caller).await;
            }
            let accepted = self.providers.accepted_total();
            if accepted > grown.1 {
                grown = (Instant::now(), accepted);
            }
            if asked_at.elapsed() > REPORT_INTERVAL {
                asked_at = Instant::now();
                let reports = self.reports(&mut caller).await;
                if reports.iter().all(is_over) {
                    return Some(reports);
                }
                let waited = grown.0.elapsed();
                assert!(waited < PATIENCE, "nothing accepted for {waited:?}: {reports:?}\n{}", self.server.log_end());
            }
        }
    }

    async fn until_accepted(&mut self, target: u64) -> Option<Vec<Value>> {
        self.until(|flood| flood.providers.accepted_total() >= target).await
    }

    /// Lets the server live until a random share of what is left was accepted and all is done that is planned.
    async fn live(&mut self, number: u64, plan: &Plan) {
        if number == plan.call_off {
            self.call_off().await;
        }
        let before = self.providers.accepted_total();
        let left = (u64::from(self.population.audience) * 13 / 10).saturating_sub(before);
        let mean = left / (plan.kills - number + 2);
        let growth = self.rng.random_range(mean / 2..=3 * mean / 2).max(1);
        if self.rng.random() {
            let share = self.rng.random_range(0..=growth);
            self.until_accepted(before + share).await;
            let patience = Duration::from_millis(self.rng.random_range(1..=OUTAGE_MS_MAX));
            self.providers.go_out(patience).await;
        }
        self.until_accepted(before + growth).await;
        if number == plan.renew {
            self.post(NEWER).await;
            let soon = Duration::from_millis(self.rng.random_range(0..=SOON_MS_MAX));
            let more = if self.rng.random() { mean / 2 } else { 0 };
            self.until_accepted(self.providers.accepted_total() + more).await;
            sleep(soon).await;
        }
        if number == plan.pause {
            self.is_paused = true;
            if !self.has_canary("unpause") {
                Caller::new(self.server.addr(), API_KEY).insist(Method::PUT, &brake_path(), None).await;
            }
        }
    }

    /// Posts an event, cancels it when some of it was accepted, and expects nothing more of it after the next kill.
    async fn call_off(&mut self) {
        self.post(CALLED_OFF).await;
        self.until(|flood| flood.providers.accepted_of(CALLED_OFF) >= CALL_OFF_AFTER).await;
        if !self.has_canary("uncancel") {
            let path = format!("/v1/events/{}", event_id(CALLED_OFF));
            Caller::new(self.server.addr(), API_KEY).insist(Method::DELETE, &path, None).await;
        }
    }

    /// Lets go on what was paused before this life, in which nothing may have been handed out.
    async fn resume(&mut self) {
        let (mut caller, before) = (Caller::new(self.server.addr(), API_KEY), self.books_accepted());
        let mut pulse = interval(REPORT_INTERVAL);
        let began = Instant::now();
        loop {
            pulse.tick().await;
            let reports = self.reports(&mut caller).await;
            let sent = self.providers.accepted_total() - before;
            self.wrongs.require(sent == 0, || format!("{sent} were accepted in a life that began paused"));
            if sent > 0 || reports.iter().all(|report| is_over(report) || report["state"] == "paused") {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "it is not paused: {reports:?}\n{}", self.server.log_end());
        }
        self.is_paused = false;
        if !self.has_canary("unpause") {
            caller.insist(Method::DELETE, &brake_path(), None).await;
        }
    }

    /// Kills the server and judges what it leaves.
    async fn kill(&mut self) -> Kill {
        let launched_at = unix_now().as_millis() - self.life_began.elapsed().as_millis() as u64;
        self.server.kill();
        let (after, killed_at) = (self.life_began.elapsed(), Instant::now());
        let first_push = self.providers.first_push_at();
        let first_push = first_push.map(|at| Duration::from_millis(at.saturating_sub(launched_at)));
        let accepted = self.providers.simulators.accepted();
        // Meanwhile the providers take what is still on the wire.
        let checkpoint = Checkpoint::read_copy(&self.server.data_folder(), &self.scratch);
        self.providers.simulators.stop();
        let lives = self.end_life(&checkpoint);
        checkpoint.close().await;
        let lost = self.providers.end_life();
        self.fault_repeats_max += sum(&lost, |lost| *lost);
        let side = |provider: Provider| {
            let at = provider as usize;
            let lag = self.looks[at].lag(accepted[at], killed_at);
            let in_flight_max = self.providers.in_flight_max(provider);
            Side { life: lives[at], lag, in_flight_max, repeats_max: lost[at] }
        };
        let sides = [Provider::Apns, Provider::Fcm, Provider::WebPush].map(side);
        let noted_before = std::mem::replace(&mut self.noted, sum(&lives, |life| life.noted));
        if self.posted.contains(&CALLED_OFF) {
            self.books[CALLED_OFF as usize].close();
        }
        Kill { after, first_push, sides, noted_before }
    }

    fn end_life(&mut self, checkpoint: &Checkpoint) -> [FloodLife; PROVIDER_COUNT] {
        let Self { population, providers, numbers, books, order, .. } = self;
        let counts: Vec<_> = population.all().map(|device| providers.counts(device)).collect();
        let is_noted = |event: u32, device: u32| checkpoint.is_settled(event, numbers[device as usize].0);
        let mut sums = [FloodLife::default(); PROVIDER_COUNT];
        for (books, event) in books.iter_mut().zip(0u32..) {
            let count = |device: u32| counts[device as usize][event as usize];
            let lives = books.end_life(count, |device| is_noted(event, device));
            sums.iter_mut().zip(lives).for_each(|(sum, life)| *sum = sum.add(life));
        }
        let both = population.all().filter(|device| population.is_owed(NEWER, *device));
        order.end_life(both.map(|device| Trace {
            device,
            newer_count: counts[device as usize][NEWER as usize],
            last: providers.last(device),
            is_older_noted: is_noted(FLOOD, device),
            is_newer_noted: is_noted(NEWER, device),
        }));
        sums
    }

    /// What a kill may leave behind.
    fn check_kill(&mut self, number: u64, kill: &Kill) {
        for (provider, side) in Provider::ALL.iter().zip(&kill.sides) {
            let Side { life: FloodLife { fresh, fault_repeats, .. }, lag, repeats_max, .. } = side;
            let fresh_max = side.fresh_max();
            self.wrongs.require(*fresh <= fresh_max, || {
                format!(
                    "kill {number}: {fresh} outcomes of {provider} were not noted, lag and flight explain {fresh_max}: \
                     {lag:?}"
                )
            });
            self.wrongs.require(fault_repeats <= repeats_max, || {
                format!(
                    "before kill {number}: {fault_repeats} repeats by {provider}, lost answers explain {repeats_max}"
                )
            });
        }
        self.wrongs.require(sum(&kill.sides, |side| side.life.noted) > kill.noted_before || !kill.is_long(), || {
            format!("kill {number}: nothing was noted in a life that was busy for {:?}", kill.busy())
        });
        self.long_life_count += u64::from(kill.is_long());
    }

    fn totals(&self) -> Totals {
        self.books.iter().map(|books| books.totals).fold(Totals::default(), Totals::add)
    }

    /// Up to the end of the last life.
    fn books_accepted(&self) -> u64 {
        self.totals().accepted
    }

    /// The event that a device must have got in the end.
    fn owed_last(&self, device: u32) -> u32 {
        let is_renewed = self.posted.contains(&NEWER) && self.population.is_owed(NEWER, device);
        if is_renewed { NEWER } else { FLOOD }
    }

    /// Who has not got what it must have got.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let is_missing = |device: &u32| !self.books[self.owed_last(*device) as usize].is_accepted(*device);
        (0..self.population.audience).filter(is_missing)
    }

    /// Stops the server in order and closes the books; who has no token.
    async fn close_books(&mut self) -> HashSet<u32> {
        let status = self.server.stop().await;
        assert!(status.success(), "told to stop it ended with {status}\n{}", self.server.log_end());
        self.providers.simulators.stop();
        let checkpoint = Checkpoint::read_copy(&self.server.data_folder(), &self.scratch);
        let lives = self.end_life(&checkpoint);
        let tokenless = checkpoint.tokenless_of(&self.numbers);
        checkpoint.close().await;
        let lost = self.providers.end_life();
        self.fault_repeats_max += sum(&lost, |lost| *lost);
        for ((provider, life), repeats_max) in Provider::ALL.iter().zip(lives).zip(lost) {
            let FloodLife { devices, noted, fault_repeats, .. } = life;
            self.wrongs.require(noted == devices, || {
                format!("only {noted} of {devices} outcomes of {provider} are noted at the end")
            });
            self.wrongs.require(fault_repeats <= repeats_max, || {
                format!("in the last life: {fault_repeats} repeats by {provider}, lost answers explain {repeats_max}")
            });
        }
        tokenless
    }

    /// Every entry of the ledgers is of one of the events, and only who is gone has lost the token.
    fn check_entries(&self, tokenless: &HashSet<u32>) -> Wrongs {
        let mut wrongs = Wrongs::default();
        let is_accepted = |event: u32, device: u32| self.books[event as usize].is_accepted(device);
        let mut reached = 0;
        for device in self.population.all() {
            let (entries, events) = (self.providers.simulators.entries(device), 0..EVENT_COUNT as u32);
            let got = events.filter(|event| is_accepted(*event, device)).count();
            reached += u64::from(got > 0);
            let is_right = |entry: &MessageEntry| {
                let event = event_of_entry(device, entry).filter(|event| is_accepted(*event, device));
                event.is_some_and(|event| entry.tag_hash == Some(collapse_hash(collapse_id(event).as_bytes())))
            };
            wrongs.require(entries.len() == got && entries.iter().all(is_right), || {
                format!("device {device} got {} notifications of {got} events, or wrong ones", entries.len())
            });
            let number = self.numbers[device as usize].0;
            let is_gone = tokenless.contains(&number);
            wrongs.require(got == 0 || !is_gone, || format!("device {device} got something and then lost its token"));
        }
        let tallies = self.providers.simulators.tallies();
        let devices = sum(&tallies, |tally| tally.devices);
        wrongs.require(devices == reached, || format!("the ledgers have {devices} devices, {reached} of ours"));
        let Totals { accepted, crash_repeats, fault_repeats } = self.totals();
        let is_same = sum(&tallies, |tally| tally.accepted) == accepted;
        wrongs.require(is_same && sum(&tallies, |tally| tally.repeated) == crash_repeats + fault_repeats, || {
            format!("the providers count otherwise: {tallies:?}")
        });
        let (misnamed, reversed) = (self.providers.misnamed_total(), self.providers.reversed_total());
        wrongs.require(misnamed == 0, || format!("{misnamed} acceptances with another collapse id or address"));
        wrongs.require(reversed == 0, || format!("{reversed} acceptances of the older event after the newer one"));
        let violations = sum(&tallies, |tally| tally.stream_limit_violations);
        wrongs.require(violations == 0, || "more streams than a provider allows".to_owned());
        wrongs
    }

    /// By language of the text, what the report says is what the ledgers have; for an event that nothing superseded.
    fn check_parts(&self, event: u32, report: &Value) -> Wrongs {
        let mut wrongs = Wrongs::default();
        for provider in Provider::ALL {
            for locale in TRANSLATED.map(Some).into_iter().chain([None]) {
                let is_part = |part: &&Value| {
                    part["provider"] == provider.as_str()
                        && part["locale"].as_str().filter(|it| TRANSLATED.contains(it)) == locale
                };
                let parts = report["by"].as_array().into_iter().flatten().filter(is_part);
                let said: u64 = parts.filter_map(|part| part["outcomes"]["accepted"].as_u64()).sum();
                let is_of = |device: &u32| {
                    let own = Some(Population::locale(*device)).filter(|own| TRANSLATED.contains(own));
                    provider_of(*device) == *provider
                        && own == locale
                        && self.books[event as usize].is_accepted(*device)
                };
                let got = (0..self.population.audience).filter(is_of).count() as u64;
                wrongs.require(said == got, || {
                    format!("{provider} in {locale:?}: {said} accepted, the ledger has {got}")
                });
            }
        }
        wrongs
    }

    /// Whether those that did not get what they must are really gone: they are given their tokens back and sent to once
    /// more.
    async fn check_missing(&mut self) -> Wrongs {
        let mut wrongs = Wrongs::default();
        let missing: Vec<u32> = self.missing().collect();
        let (store, addresses) = (self.server.data_folder().join("store"), &self.providers.simulators.addresses);
        self.population.write(&store, addresses, missing.iter().copied(), true).await;
        self.providers.set_calm();
        self.providers.simulators.listen();
        self.server.start_again().await;
        let mut caller = Caller::new(self.server.addr(), API_KEY);
        for (event, devices) in (EVENT_COUNT as u32..).zip(missing.chunks(PROBE_COUNT)) {
            let ids: Vec<String> = devices.iter().map(|device| device_id(*device)).collect();
            let mut body = event_body(event);
            body["to"] = json!({ "devices": ids });
            caller.insist(Method::POST, "/v1/events", Some(&body)).await;
            let began = Instant::now();
            let report = loop {
                sleep(REPORT_INTERVAL).await;
                let report = caller.insist(Method::GET, &format!("/v1/events/{}", event_id(event)), None).await.json();
                if report["state"] == "finished" {
                    break report;
                }
                assert!(began.elapsed() < PATIENCE, "the last question is not answered: {report}");
            };
            let refused = total(&report["outcomes"]["rejected"]);
            wrongs.require(refused == devices.len() as u64, || {
                let asked = devices.len();
                format!("of {asked} devices that got nothing only {refused} are gone: {}", report["outcomes"])
            });
        }
        self.server.stop().await;
        wrongs
    }

    fn print_sums(&self, reports: &[Value]) {
        for (event, report) in self.posted.iter().zip(reports) {
            let Said { audience, accepted, gone, given_up, .. } = read_report(report);
            let name = event_id(*event);
            println!("{name:<12}{audience} devices: {accepted} accepted, {gone} gone, {given_up} given up");
            println!("            {} attempts were repeated; times {}", report["retried"], report["time_to"]);
        }
        for (provider, tally) in Provider::ALL.iter().zip(self.providers.simulators.tallies()) {
            println!("{:<12}{}", provider.as_str(), tally.line);
        }
        let Totals { accepted, crash_repeats, fault_repeats } = self.totals();
        println!("ledgers     {accepted} accepted; repeats by kills: {crash_repeats}");
        println!("            repeats by lost answers: allowed {}, seen {fault_repeats}", self.fault_repeats_max);
        let revived = self.providers.revived_total();
        println!("order       {revived} of the older event after a kill with the newer one before, to come again");
        println!("lives       {} were long enough that something must be noted", self.long_life_count);
        println!("memory      {} at most in this process", memory_max());
    }

    /// Spoils the books as the canary asks: the campaign must then fail.
    fn let_canary_in(&mut self) {
        match self.canary.as_deref() {
            Some("forge") => self.books[FLOOD as usize].forge(),
            Some("drop") => self.books[FLOOD as usize].drop_one(),
            Some("repeat") => self.books[FLOOD as usize].repeat_one(),
            Some("back") => self.order.reverse_one(),
            _ => {} // The others are let in elsewhere.
        }
    }

    /// Holds what the server says in the end against everything seen.
    async fn judge(&mut self, reports: &[Value], tokenless: &HashSet<u32>) -> Wrongs {
        let mut wrongs = std::mem::take(&mut self.wrongs);
        wrongs.append(std::mem::take(&mut self.order.wrongs));
        wrongs.append(self.order.check());
        for (event, report) in self.posted.iter().zip(reports) {
            let (said, books) = (read_report(report), &mut self.books[*event as usize]);
            wrongs.append(std::mem::take(&mut books.wrongs));
            wrongs.append(books.check(&said));
            let overlap = if self.posted.contains(&NEWER) { self.population.audience_of(NEWER) } else { 0 };
            let given_up_max = [overlap, 0, said.audience][*event as usize];
            wrongs.require(said.given_up <= given_up_max, || {
                format!("event {event}: {said:?}, at most {given_up_max} may be given up: {}", report["outcomes"])
            });
            if given_up_max == 0 {
                wrongs.append(self.check_parts(*event, report));
            }
        }
        wrongs.append(self.check_entries(tokenless));
        wrongs
    }
}

/// The peak of this process's resident memory.
fn memory_max() -> String {
    let bytes = tidings_telemetry::process::memory_bytes("self", "VmHWM");
    bytes.map_or("unknown".to_owned(), |bytes| format!("{} kB", bytes >> 10))
}

/// The same for the same event, always.
fn event_body(event: u32) -> Value {
    let text = |locale: &str| json!({ "title": format!("Title {locale} {event}"), "body": format!("Body {locale}") });
    let mut body = json!({
        "id": event_id(event),
        "topic": TOPICS[0],
        "subjects": [subject_of(event)],
        "params": { "number": event },
        "text": { "und": text("und"), TRANSLATED[0]: text(TRANSLATED[0]), TRANSLATED[1]: text(TRANSLATED[1]) },
        "push": "always",
    });
    if collapse_id(event) == COLLAPSE_KEY {
        body["collapse_key"] = json!(COLLAPSE_KEY);
    }
    body
}

/// All of it has this topic.
fn brake_path() -> String {
    format!("/v1/brakes/topic:{}", TOPICS[0])
}

/// Whether every device of an event has its outcome.
fn is_over(report: &Value) -> bool {
    report["state"] == "finished" || (report["state"] == "cancelled" && !report["done_at"].is_null())
}

/// The numbers in a value, however deep.
fn total(value: &Value) -> u64 {
    match value {
        Value::Object(map) => map.values().map(total).sum(),
        other => other.as_u64().unwrap_or(0),
    }
}

fn read_report(report: &Value) -> Said {
    let outcomes = &report["outcomes"];
    let gone = total(&outcomes["rejected"]["Unregistered"])
        + total(&outcomes["rejected"]["UNREGISTERED"])
        + total(&outcomes["rejected"]["subscription_gone"])
        + total(&outcomes["suppressed"]["no_token"]);
    Said {
        audience: total(&report["audience"]),
        accepted: total(&outcomes["accepted"]),
        gone,
        given_up: total(&outcomes["superseded"]) + total(&outcomes["cancelled"]) + total(&outcomes["unknown"]),
        outcomes: total(outcomes),
    }
}

pub(crate) async fn campaign() {
    let folder = tempfile::tempdir().unwrap();
    let seed = number("CRASH_SEED", rand::random());
    let audience = u32::try_from(number("CRASH_FLOOD_DEVICES", 100_000)).expect("CRASH_FLOOD_DEVICES is below 2^32");
    let plan = Plan::new(number("CRASH_FLOOD_KILLS", 6));
    println!("CRASH_SEED={seed} CRASH_FLOOD_DEVICES={audience} CRASH_FLOOD_KILLS={}", plan.kills);
    let began = Instant::now();
    let mut flood = Flood::start(Population { audience, seed }, &plan, canary(), folder.path()).await;
    let (written, took) = (flood.numbers.len(), began.elapsed().as_secs_f64());
    println!("{written} devices written after {took:.1} s; memory {} at most", memory_max());

    flood.begin_life(false).await;
    flood.post(FLOOD).await;
    print_head();
    for number in 1..=plan.kills {
        if !flood.is_starting {
            flood.live(number, &plan).await;
        }
        let kill = flood.kill().await;
        flood.check_kill(number, &kill);
        if flood.has_canary("forget") && number == plan.kills {
            forget_jobs(&flood.server.data_folder()).await;
        }
        let ready = flood.begin_life(plan.may_strike(number + 1)).await;
        print_kill(number, &kill, &flood.totals(), ready);
        if flood.is_paused && ready.is_some() {
            flood.resume().await;
        }
    }
    let reports = flood.until_accepted(u64::MAX).await.expect("so many are never accepted");
    let rest_after = began.elapsed();
    let tokenless = flood.close_books().await;
    flood.let_canary_in();
    flood.print_sums(&reports);
    let mut wrongs = flood.judge(&reports, &tokenless).await;
    wrongs.require(plan.kills == 0 || flood.long_life_count > 0, || "no life was long: nothing was tested".to_owned());
    wrongs.append(flood.check_missing().await);
    let verdict = if wrongs.is_empty() { "every device has exactly one outcome" } else { "BROKEN" };
    let (rest_after, whole) = (rest_after.as_secs_f64(), began.elapsed().as_secs_f64());
    println!("CRASH_SEED={seed}: {verdict}; at rest after {rest_after:.1} s, {whole:.1} s in all");
    assert!(wrongs.is_empty(), "{wrongs}\nThe server's last words:\n{}", flood.server.log_end());
}

fn print_head() {
    println!("      -------------------- the life that the kill ended --------------------  --- so far ----");
    println!(
        "kill  life s  first push ms  not noted  promised  of at most  checkpoint ms  devices    noted  repeats  \
         ready again ms"
    );
}

fn print_kill(number: u64, kill: &Kill, totals: &Totals, ready: Option<Duration>) {
    let Kill { after, first_push, sides, .. } = kill;
    let millis = |time: Duration| time.as_millis().to_string();
    let first_push = first_push.map_or("none".to_owned(), millis);
    let ready = ready.map_or("killed before".to_owned(), millis);
    let of_life = |of: fn(&FloodLife) -> u64| sum(sides, |side| of(&side.life));
    let [devices, noted, fresh] =
        [of_life(|life| life.devices), of_life(|life| life.noted), of_life(|life| life.fresh)];
    let promised = sum(sides, |side| side.lag.promised + side.in_flight_max);
    let fresh_max = sum(sides, Side::fresh_max);
    let age = sides.iter().map(|side| side.lag.age.as_millis()).max().unwrap_or_default();
    let Totals { crash_repeats, .. } = totals;
    println!(
        "{number:>4}  {:>6.2}  {first_push:>13}  {fresh:>9}  {promised:>8}  {fresh_max:>10}  {age:>13}  {devices:>7}  \
         {noted:>7}  {crash_repeats:>7}  {ready:>14}",
        after.as_secs_f64()
    );
}
