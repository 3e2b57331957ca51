//! One event to very many devices, and `kill -9` at random moments while it goes out.
//!
//! A data folder is written with the devices in it, seven in eight reached by APNs and one by FCM, most of them proven,
//! some not, a few without the subscription. Then one event is posted for all, and the server is killed again and
//! again, each time after the ledgers have grown by a random share, sometimes while it still starts. Meanwhile the
//! providers answer 503 with and without `Retry-After`, reset connections, send GOAWAY, stall, stop and listen again,
//! and name tokens gone. At the end:
//! - the job's report has as many devices as the event was for, each with exactly one outcome, the same by language;
//! - those it calls accepted are as many as the ledgers have; every other one is gone: given its token back, it is
//!   refused again; nobody else got anything;
//! - every repeat has the same notification id (FCM, which knows none: the same content) and collapse id;
//! - a device was accepted again after a kill only if the last checkpoint did not know of it, and what that did not
//!   know is no more than what was accepted within the stated lag, what was in flight, and answers that the providers
//!   have lost. (What waits in the lakes of the three priorities was given to no provider, and repeats nothing.)
//!
//! In the environment: `CRASH_FLOOD_DEVICES` (100 000; a million is for running by hand) and `CRASH_FLOOD_KILLS`. In
//! memory here: the ledgers, the books, and while a checkpoint is read what a server keeps of its devices.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidings_simulator::{MessageEntry, collapse_hash};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceId, DeviceNumber, EventId, NotificationId};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::books::{Books, FloodLife, Said, Totals};
use crate::checkpoint::{Checkpoint, forget_jobs};
use crate::deliveries::Wrongs;
use crate::http::Caller;
use crate::population::{Population, TRANSLATED};
use crate::providers::{IN_FLIGHT_MAX, Providers, Weather, fcm_section, ledger_line};
use crate::server::Server;
use crate::{CHECKPOINT_LAG_MAX, LEAGUE, START_STRIKE_MS_MAX, TOPICS, device_id, event_id, number, subject};

/// The number of the event.
pub(crate) const FLOOD: u32 = 0;
/// Devices that one event can name.
const PROBE_COUNT: usize = 1000;
/// Without any acceptance for so long, and without an end, it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
const OUTAGE_MS_MAX: u64 = 300;

/// How many had been accepted when, for as long as a checkpoint may lag.
#[derive(Default)]
struct Growth(VecDeque<(Instant, u64)>);

impl Growth {
    fn note(&mut self, accepted: u64) {
        let now = Instant::now();
        self.0.push_back((now, accepted));
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= CHECKPOINT_LAG_MAX) {
            self.0.pop_front();
        }
    }

    /// Accepted since a checkpoint must have been made.
    fn within_lag(&self) -> u64 {
        let ends = self.0.front().zip(self.0.back());
        ends.map_or(0, |((_, first), (_, last))| last - first)
    }
}

/// One kill, for the table.
struct Kill {
    after: Duration,
    first_push: Option<Duration>,
    life: FloodLife,
    totals: Totals,
    fresh_max: u64,
    repeats_max: u64,
}

struct Flood {
    population: Population,
    rng: Xoshiro256PlusPlus,
    providers: Providers,
    server: Server,
    scratch: PathBuf,
    /// In the store, by device.
    numbers: Vec<DeviceNumber>,
    books: Books,
    growth: Growth,
    life_began: Instant,
    is_starting: bool,
    fault_repeats_max: u64,
}

impl Flood {
    async fn start(population: Population, folder: &Path) -> Self {
        let providers = Providers::start(population);
        let server = Server::prepare(folder, &providers.apns, &fcm_section(folder, &providers.fcm));
        let numbers = population.write(&server.data_folder().join("store"), population.all(), false).await;
        Self {
            population,
            rng: Xoshiro256PlusPlus::seed_from_u64(population.seed),
            providers,
            server,
            scratch: folder.join("copy"),
            numbers,
            books: Books::new(population.audience, population.bystander_count()),
            growth: Growth::default(),
            life_began: Instant::now(),
            is_starting: false,
            fault_repeats_max: 0,
        }
    }

    /// Starts the server for another life; how long it took, or `None` when it is to be killed before it is ready.
    async fn begin_life(&mut self, may_strike: bool) -> Option<Duration> {
        let weather = Weather::draw(&mut self.rng);
        self.providers.set(&weather);
        self.providers.listen();
        self.growth = Growth::default();
        self.growth.note(self.providers.accepted_total());
        self.life_began = Instant::now();
        let patience = Duration::from_millis(self.rng.random_range(1..=START_STRIKE_MS_MAX));
        let is_struck = may_strike && self.rng.random_ratio(1, 4);
        let ready =
            if is_struck { self.server.begin_to_start(patience).await } else { Some(self.server.start_again().await) };
        self.is_starting = ready.is_none();
        ready
    }

    /// Waits until the ledgers hold so many, or the job has come to its end: then its report.
    async fn until_accepted(&mut self, target: u64) -> Option<Value> {
        let mut caller = Caller::new(self.server.addr());
        let path = format!("/v1/events/{}", event_id(FLOOD));
        let mut pulse = interval(Duration::from_millis(1));
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut looked_at, mut grown) = (Instant::now(), (Instant::now(), 0));
        loop {
            pulse.tick().await;
            self.server.check_alive();
            let accepted = self.providers.accepted_total();
            self.growth.note(accepted);
            if accepted >= target {
                return None;
            }
            if accepted > grown.1 {
                grown = (Instant::now(), accepted);
            }
            if looked_at.elapsed() > LOOK_INTERVAL {
                looked_at = Instant::now();
                let report = caller.insist(Method::GET, &path, None).await.json();
                if report["state"] == "finished" {
                    return Some(report);
                }
                let waited = grown.0.elapsed();
                assert!(waited < PATIENCE, "nothing accepted for {waited:?}: {report}\n{}", self.server.log_end());
            }
        }
    }

    /// Kills the server after a random share of what is left was accepted, and judges what it leaves.
    async fn kill(&mut self, kills_left: u64) -> Kill {
        if !self.is_starting {
            let before = self.providers.accepted_total();
            let left = u64::from(self.population.audience).saturating_sub(before);
            let growth = self.rng.random_range(1..=(2 * left / (kills_left + 1)).max(1));
            if self.rng.random() {
                let share = self.rng.random_range(0..=growth);
                self.until_accepted(before + share).await;
                let patience = Duration::from_millis(self.rng.random_range(1..=OUTAGE_MS_MAX));
                self.providers.go_out(patience).await;
            }
            self.until_accepted(before + growth).await;
        }
        let launched_at = unix_now().as_millis() - self.life_began.elapsed().as_millis() as u64;
        self.server.kill();
        let after = self.life_began.elapsed();
        let first_push = self.providers.first_push_at();
        let first_push = first_push.map(|at| Duration::from_millis(at.saturating_sub(launched_at)));
        self.growth.note(self.providers.accepted_total());
        let within_lag = self.growth.within_lag();
        // Meanwhile the providers take what is still on the wire.
        let checkpoint = Checkpoint::read_copy(&self.server.data_folder(), &self.scratch);
        self.providers.stop();
        let life = self.end_life(&checkpoint);
        checkpoint.close().await;
        let repeats_max = self.providers.end_life();
        self.fault_repeats_max += repeats_max;
        let fresh_max = within_lag + u64::from(IN_FLIGHT_MAX) + repeats_max;
        Kill { after, first_push, life, totals: self.books.totals, fresh_max, repeats_max }
    }

    fn end_life(&mut self, checkpoint: &Checkpoint) -> FloodLife {
        let (providers, numbers) = (&self.providers, &self.numbers);
        let is_noted = |device: u32| checkpoint.is_settled(FLOOD, numbers[device as usize].0);
        self.books.end_life(|device| providers.count_of(device), is_noted)
    }

    /// What a kill may leave behind.
    fn check_kill(&mut self, number: u64, kill: &Kill) {
        let Kill { life: FloodLife { fresh, fault_repeats, .. }, fresh_max, repeats_max, .. } = kill;
        self.books.wrongs.require(fresh <= fresh_max, || {
            format!("kill {number}: {fresh} outcomes were not noted, lag and flight explain {fresh_max}")
        });
        self.books.wrongs.require(fault_repeats <= repeats_max, || {
            format!("before kill {number}: {fault_repeats} repeats, lost answers explain {repeats_max}")
        });
    }

    /// Stops the server in order and closes the books; who has no token.
    async fn close_books(&mut self) -> HashSet<u32> {
        let status = self.server.stop().await;
        assert!(status.success(), "told to stop it ended with {status}\n{}", self.server.log_end());
        self.providers.stop();
        let checkpoint = Checkpoint::read_copy(&self.server.data_folder(), &self.scratch);
        let life = self.end_life(&checkpoint);
        let tokenless = checkpoint.tokenless_of(&self.numbers);
        checkpoint.close().await;
        let repeats_max = self.providers.end_life();
        self.fault_repeats_max += repeats_max;
        let FloodLife { devices, noted, fault_repeats, .. } = life;
        self.books
            .wrongs
            .require(noted == devices, || format!("only {noted} of {devices} outcomes are noted at the end"));
        self.books.wrongs.require(fault_repeats <= repeats_max, || {
            format!("in the last life: {fault_repeats} repeats, lost answers explain {repeats_max}")
        });
        tokenless
    }

    /// Every entry of the ledgers is the event's, and only who is gone has lost the token.
    fn check_entries(&self, tokenless: &HashSet<u32>) -> Wrongs {
        let mut wrongs = Wrongs::default();
        let event = EventId::new(&event_id(FLOOD)).expect("ours are short");
        let collapse = collapse_hash(event.as_str().as_bytes());
        for device in self.population.all().filter(|device| self.books.is_accepted(*device)) {
            let entries = self.providers.entries(device);
            let expected = NotificationId::new(&event, &DeviceId::new(&device_id(device)).expect("ours are short"));
            let is_right = |entry: &MessageEntry| {
                let is_own = Population::is_fcm(device) || entry.id == expected.0;
                is_own && entry.tag_hash == Some(collapse)
            };
            wrongs.require(matches!(&*entries, [one] if is_right(one)), || {
                format!("device {device} got other than the one notification that it should: {} of them", entries.len())
            });
            let number = self.numbers[device as usize].0;
            wrongs.require(!tokenless.contains(&number), || format!("device {device} got it and then lost its token"));
        }
        let (apns, fcm) = self.providers.summaries();
        let accepted = self.population.all().filter(|device| self.books.is_accepted(*device)).count() as u64;
        wrongs.require(apns.devices + fcm.devices == accepted, || {
            format!("the ledgers have {} and {} devices, {accepted} of ours", apns.devices, fcm.devices)
        });
        let Totals { accepted, crash_repeats, fault_repeats, .. } = self.books.totals;
        wrongs.require(
            apns.accepted + fcm.accepted == accepted && apns.repeated + fcm.repeated == crash_repeats + fault_repeats,
            || format!("the providers count otherwise: {apns:?}, {fcm:?}"),
        );
        let misnamed = self.providers.misnamed_total();
        wrongs.require(misnamed == 0, || format!("{misnamed} acceptances with another collapse id"));
        wrongs.require(apns.stream_limit_violations + fcm.stream_limit_violations == 0, || {
            "more streams than a provider allows".to_owned()
        });
        wrongs
    }

    /// By language of the text, what the report says is what the ledgers have.
    fn check_parts(&self, report: &Value) -> Wrongs {
        let mut wrongs = Wrongs::default();
        for provider in ["apns", "fcm"] {
            for locale in TRANSLATED.map(Some).into_iter().chain([None]) {
                let is_part = |part: &&Value| {
                    part["provider"] == provider
                        && part["locale"].as_str().filter(|it| TRANSLATED.contains(it)) == locale
                };
                let parts = report["by"].as_array().into_iter().flatten().filter(is_part);
                let said: u64 = parts.filter_map(|part| part["outcomes"]["accepted"].as_u64()).sum();
                let is_of = |device: &u32| {
                    let own = Some(Population::locale(*device)).filter(|own| TRANSLATED.contains(own));
                    Population::is_fcm(*device) == (provider == "fcm")
                        && own == locale
                        && self.books.is_accepted(*device)
                };
                let got = (0..self.population.audience).filter(is_of).count() as u64;
                wrongs.require(said == got, || {
                    format!("{provider} in {locale:?}: {said} accepted, the ledger has {got}")
                });
            }
        }
        wrongs
    }

    /// Whether those that got nothing are really gone: they are given their tokens back and sent to once more.
    async fn check_missing(&mut self) -> Wrongs {
        let mut wrongs = Wrongs::default();
        let missing: Vec<u32> = self.books.missing().collect();
        self.population.write(&self.server.data_folder().join("store"), missing.iter().copied(), true).await;
        self.providers.set_calm();
        self.providers.listen();
        self.server.start_again().await;
        let mut caller = Caller::new(self.server.addr());
        for (event, devices) in (FLOOD + 1..).zip(missing.chunks(PROBE_COUNT)) {
            let ids: Vec<String> = devices.iter().map(|device| device_id(*device)).collect();
            let mut body = event_body(event);
            body["to"] = json!({ "devices": ids });
            caller.insist(Method::POST, "/v1/events", Some(&body)).await;
            let began = Instant::now();
            let report = loop {
                sleep(LOOK_INTERVAL).await;
                let report = caller.insist(Method::GET, &format!("/v1/events/{}", event_id(event)), None).await.json();
                if report["state"] == "finished" {
                    break report;
                }
                assert!(began.elapsed() < PATIENCE, "the last question is not answered: {report}");
            };
            let refused = sum(&report["outcomes"]["rejected"]);
            wrongs.require(refused == devices.len() as u64, || {
                let asked = devices.len();
                format!("of {asked} devices that got nothing only {refused} are gone: {}", report["outcomes"])
            });
        }
        self.server.stop().await;
        wrongs
    }

    fn print_sums(&self, said: &Said, report: &Value) {
        let Totals { accepted, crash_repeats, crash_repeats_allowed, fault_repeats, .. } = self.books.totals;
        let Said { audience, accepted: devices, gone, .. } = said;
        println!("flood       {audience} devices: {devices} accepted, {gone} gone; {}", report["outcomes"]);
        println!("            {} attempts were repeated; times {}", report["retried"], report["time_to"]);
        let (apns, fcm) = self.providers.summaries();
        println!("apns        {}", ledger_line(&apns));
        println!("fcm         {}", ledger_line(&fcm));
        println!(
            "ledgers     {accepted} accepted; repeats by kills: allowed {crash_repeats_allowed}, seen {crash_repeats}"
        );
        println!("            repeats by lost answers: allowed {}, seen {fault_repeats}", self.fault_repeats_max);
        println!("memory      {} at most in this process", memory_max());
    }
}

/// What the kernel counts.
fn memory_max() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |line| line.trim().to_owned())
}

/// The same for the same event, always.
fn event_body(event: u32) -> Value {
    let text = |locale: &str| json!({ "title": format!("Title {locale}"), "body": format!("Body {locale}") });
    json!({
        "id": event_id(event),
        "topic": TOPICS[0],
        "subjects": [subject(LEAGUE)],
        "params": { "number": event },
        "text": { "und": text("und"), TRANSLATED[0]: text(TRANSLATED[0]), TRANSLATED[1]: text(TRANSLATED[1]) },
        "push": "always",
    })
}

/// The numbers in a value, however deep.
fn sum(value: &Value) -> u64 {
    match value {
        Value::Object(map) => map.values().map(sum).sum(),
        other => other.as_u64().unwrap_or(0),
    }
}

fn read_report(report: &Value) -> Said {
    let outcomes = &report["outcomes"];
    let gone = sum(&outcomes["rejected"]["Unregistered"])
        + sum(&outcomes["rejected"]["UNREGISTERED"])
        + sum(&outcomes["suppressed"]["no_token"]);
    Said { audience: sum(&report["audience"]), accepted: sum(&outcomes["accepted"]), gone, outcomes: sum(outcomes) }
}

pub(crate) async fn campaign() {
    let folder = tempfile::tempdir().unwrap();
    let seed = number("CRASH_SEED", rand::random());
    let audience = u32::try_from(number("CRASH_FLOOD_DEVICES", 100_000)).expect("CRASH_FLOOD_DEVICES is below 2^32");
    let kills = number("CRASH_FLOOD_KILLS", 6);
    let canary = std::env::var("CRASH_CANARY").ok();
    println!("CRASH_SEED={seed} CRASH_FLOOD_DEVICES={audience} CRASH_FLOOD_KILLS={kills}");
    let began = Instant::now();
    let mut flood = Flood::start(Population { audience, seed }, folder.path()).await;
    let (written, took) = (flood.numbers.len(), began.elapsed().as_secs_f64());
    println!("{written} devices written after {took:.1} s; memory {} at most", memory_max());

    flood.begin_life(false).await;
    let mut caller = Caller::new(flood.server.addr());
    let mut body = event_body(FLOOD);
    body["expect_audience"] = json!({ "min": audience, "max": audience });
    caller.insist(Method::POST, "/v1/events", Some(&body)).await;
    print_head();
    for number in 1..=kills {
        let kill = flood.kill(kills - number).await;
        flood.check_kill(number, &kill);
        if canary.as_deref() == Some("forget") && number == kills {
            forget_jobs(&flood.server.data_folder()).await;
        }
        let ready = flood.begin_life(number < kills).await;
        print_kill(number, &kill, ready);
    }
    let report = flood.until_accepted(u64::MAX).await.expect("so many are never accepted");
    let rest_after = began.elapsed();
    let tokenless = flood.close_books().await;
    match canary.as_deref() {
        None | Some("forget") => {}
        Some("forge") => flood.books.forge(),
        Some("drop") => flood.books.drop_one(),
        Some(other) => panic!("CRASH_CANARY is forge, drop or forget, got {other:?}"),
    }
    let said = read_report(&report);
    flood.print_sums(&said, &report);
    let mut wrongs = std::mem::take(&mut flood.books.wrongs);
    wrongs.append(flood.books.check(&said));
    wrongs.append(flood.check_entries(&tokenless));
    wrongs.append(flood.check_parts(&report));
    wrongs.append(flood.check_missing().await);
    let verdict = if wrongs.is_empty() { "every device has exactly one outcome" } else { "BROKEN" };
    let (rest_after, whole) = (rest_after.as_secs_f64(), began.elapsed().as_secs_f64());
    println!("CRASH_SEED={seed}: {verdict}; at rest after {rest_after:.1} s, {whole:.1} s in all");
    assert!(wrongs.is_empty(), "{wrongs}\nThe server's last words:\n{}", flood.server.log_end());
}

fn print_head() {
    println!("      --------- the life that the kill ended ----------  ------ so far -------");
    println!(
        "kill  life s  first push ms  not noted, of at most  devices    noted  repeats allowed  seen  ready again ms"
    );
}

fn print_kill(number: u64, kill: &Kill, ready: Option<Duration>) {
    let Kill { after, first_push, life, totals, fresh_max, .. } = kill;
    let millis = |time: Duration| time.as_millis().to_string();
    let first_push = first_push.map_or("none".to_owned(), millis);
    let ready = ready.map_or("killed before".to_owned(), millis);
    let FloodLife { devices, noted, fresh, .. } = life;
    let Totals { crash_repeats_allowed, crash_repeats, .. } = totals;
    println!(
        "{number:>4}  {:>6.2}  {first_push:>13}  {fresh:>9} {fresh_max:>11}  {devices:>7}  {noted:>7}  \
         {crash_repeats_allowed:>15}  {crash_repeats:>4}  {ready:>14}",
        after.as_secs_f64()
    );
}
