//! `bench push`: from an event at the API to the provider's answer for the last device, through the whole server.
//!
//! The server runs in this process, on one core. The provider is another process on other cores: our simulator, or
//! Pushy's benchmark server ([`provider`]). An event comes in over HTTP. Its audience is selected from the store,
//! translated, sent over TLS and HTTP/2, and counted. The rate is the audience divided by the time from the event's
//! acceptance to the last answer.
//!
//! For comparison, measured in turns against the same provider:
//!
//! - h2load, which only repeats one prepared request with as many connections and streams: the physical limit;
//! - if the provider is far away, the model ([`case`]): streams ÷ round trip, or flow window ÷ payload ÷ round trip,
//!   whichever is less;
//! - other senders, if they are installed ([`peers`]).
//!
//! Four other parts: a goal during a newsletter ([`newsletter`]), the memory of a server with a large audience
//! ([`audience`]), a goal to Android devices under Google's quota ([`fcm`]), and one to browsers ([`web_push`]).
//!
//! Every run checks the simulator's ledger and the job's report: each device accepted once, in its language, and never
//! more streams than allowed. If this fails for our server, the benchmark fails; if it fails for another sender, that
//! sender is left out of the case. Devices are registered and connections are open before the measurement, and one event
//! warms up.

mod audience;
mod case;
pub(super) mod fcm;
mod h2load;
mod java;
mod job;
mod language;
mod newsletter;
mod peers;
mod provider;
mod setup;
pub(super) mod simulator;
pub(super) mod web_push;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidings_server::command_error::CommandError;
use tidings_types::{EventPriority, Platform, TimeTo};

use self::case::{Case, FAR, NEAR};
use self::h2load::H2load;
use self::job::Door;
use self::language::LANGUAGES;
use self::peers::{Kind, Load, Peers};
use self::provider::{Provider, check_ledger, payload_bytes};
use self::setup::{Folder, start_server};
use super::process::{self, Cores, Usage};
use super::report::{Finished, Goal, Report};
use crate::args::{BenchPushArgs, BenchPushServer};
use crate::checksum::Digest;
use crate::report::{column, millis, progress, ratios};
use tidings_server::Server;

/// Our rate as a share of h2load's.
const GOAL_OF_H2LOAD: f64 = 0.7;
const GOAL_RATE: f64 = 150_000.0;
/// Our rate as a share of the model's, in the case [`FAR`].
const GOAL_OF_MODEL: f64 = 0.95;
/// Our rate as a multiple of gorush's, with a provider without a round trip.
const GOAL_OF_GORUSH: f64 = 20.0;
/// Names of the parts beside the cases.
const NEWSLETTER: &str = "newsletter";
const AUDIENCE: &str = "audience";
const FCM: &str = "fcm";
const WEB_PUSH: &str = "web-push";
/// Where `conformance/peers.sh` puts what it builds.
const PEERS_FOLDER: &str = "target/peers";

/// What is measured.
struct Plan {
    cases: Vec<Case>,
    newsletter: Option<u32>,
    audience: Option<u32>,
    fcm: bool,
    web_push: bool,
    devices: u32,
}

impl Plan {
    /// What the arguments ask for, without what `--only` leaves out.
    fn new(args: &BenchPushArgs) -> Self {
        let named = |name: &str| name.contains(&args.only);
        let simulated = args.server == BenchPushServer::Simulator;
        let mut cases = Self::all_cases(args);
        cases.retain(|case| named(&case.to_string()));
        Self {
            cases,
            newsletter: (simulated && named(NEWSLETTER)).then_some(args.newsletter),
            audience: args.audience.filter(|_| simulated && named(AUDIENCE)),
            fcm: simulated && named(FCM),
            web_push: simulated && named(WEB_PUSH),
            devices: args.devices,
        }
    }

    fn all_cases(args: &BenchPushArgs) -> Vec<Case> {
        match args.server {
            BenchPushServer::Simulator => case::of_simulator(args.full),
            BenchPushServer::Pushy => case::of_pushy(args.full),
        }
    }

    /// The names that `--only` can match.
    fn part_names(args: &BenchPushArgs) -> Vec<String> {
        let mut names: Vec<String> = Self::all_cases(args).iter().map(Case::to_string).collect();
        if args.server == BenchPushServer::Simulator {
            names.extend([
                NEWSLETTER.to_owned(),
                format!("{AUDIENCE} (with --audience N)"),
                FCM.to_owned(),
                WEB_PUSH.to_owned(),
            ]);
        }
        names
    }

    fn is_empty(&self) -> bool {
        self.cases.is_empty() && self.newsletter.is_none() && self.audience.is_none() && !self.fcm && !self.web_push
    }

    fn case_audience(&self, case: Case) -> u32 {
        case.device_count(self.devices, LANGUAGES[1].message().payload.len() as f64)
    }

    /// The sizes of all audiences.
    fn audiences(&self) -> Vec<u32> {
        let mut audiences: Vec<u32> = self.cases.iter().map(|&case| self.case_audience(case)).collect();
        audiences.extend(self.newsletter.into_iter().flat_map(|newsletter| [newsletter, newsletter::GOAL_AUDIENCE]));
        audiences.extend(self.audience.into_iter().flat_map(|audience| [audience, audience::SMALL]));
        audiences.sort_unstable();
        audiences.dedup();
        audiences
    }
}

/// The result of one event.
struct Sample {
    rate: f64,
    /// CPU time per notification: ours, the provider's.
    server_micros: f64,
    provider_micros: f64,
    /// The rate that streams and windows would allow.
    model_rate: Option<f64>,
    time_to: TimeTo,
    /// The devices that the provider accepted; only their number if it does not check.
    digest: Digest,
}

pub(super) async fn run(args: &BenchPushArgs) -> Result<Finished, CommandError> {
    // Shows the server's warnings. If a logger is already installed, it shows them.
    let _ = tidings_server::log::init(tidings_telemetry::log::Format::Text, "warn");
    let plan = Plan::new(args);
    if plan.is_empty() {
        let (only, parts) = (&args.only, Plan::part_names(args).join("; "));
        return Err(CommandError::Usage(format!("no part of this benchmark is called {only:?}; its parts: {parts}")));
    }
    let cores = Cores::choose(args.provider_cores as usize)?;
    let folder = Folder::make(args.dir.as_deref())?;
    setup::import(&folder, &plan.audiences(), Platform::Ios).await?;
    process::pin(&[cores.server])?;

    let mut report = Report::new("push");
    let peers_folder = args.peers.clone().unwrap_or_else(|| PathBuf::from(PEERS_FOLDER));
    if let Some(large) = plan.audience {
        audience::run(large, args.common.runs, &cores, &folder, &peers_folder, &mut report).await?;
    }
    run_cases(args, &plan, &cores, &folder, &peers_folder, &mut report).await?;
    if let Some(audience) = plan.newsletter {
        newsletter::run(audience, &cores, &folder, &peers_folder, &mut report).await?;
    }
    if plan.fcm {
        fcm::run(args.common.runs, &cores, args.dir.as_deref(), &mut report).await?;
    }
    if plan.web_push {
        web_push::run(args.common.runs, &cores, args.dir.as_deref(), &mut report).await?;
    }
    if cores.are_shared() {
        report.note("The machine has one core: server and provider shared it.");
    } else if cores.load.len() > 1 {
        report.note(format!("The provider had {} cores, the senders one.", cores.load.len()));
    }
    report.finish()
}

async fn run_cases(
    args: &BenchPushArgs,
    plan: &Plan,
    cores: &Cores,
    folder: &Folder,
    peers_folder: &Path,
    report: &mut Report,
) -> Result<(), CommandError> {
    if plan.cases.is_empty() {
        return Ok(());
    }
    let with_peers = plan.cases.iter().any(|case| case.with_peers);
    let mut peers = with_peers.then(|| Peers::start(peers_folder, folder)).transpose()?;
    for (index, &case) in plan.cases.iter().enumerate() {
        let mut provider = Provider::start(args.server, case, cores, &folder.path(""), peers_folder)?;
        let server = start_server(folder, &provider.greeting, case).await?;
        let h2load = H2load::is_there().then(|| H2load::prepare(&provider.greeting, folder)).transpose()?;
        let mut bench = Bench {
            case,
            index,
            count: plan.case_audience(case),
            server: &server,
            door: Door::of(&server),
            provider: &mut provider,
            h2load: h2load.as_ref(),
            peers: peers.as_mut().filter(|_| case.with_peers),
            found: Found::default(),
        };
        bench.run(args).await?;
        bench.tell(report)?;
        server.stop().await;
    }
    report.note(
        "A case is the provider's round trip and connections × streams, with its flow window unless that is 8 MiB. CPU \
         time is per notification, kernel included. The model is streams ÷ round trip, or flow window ÷ payload ÷ round \
         trip if that is less.",
    );
    if !H2load::is_there() {
        report.note("h2load was not found, so the physical limit is unknown (Debian: nghttp2-client).");
    }
    peers.iter().flat_map(Peers::notes).for_each(|note| report.note(note));
    if args.server == BenchPushServer::Pushy {
        report.note(
            "The provider was Pushy's BenchmarkApnsServer, which accepts everything: only the job's report was checked.",
        );
    }
    Ok(())
}

/// The measurement of one case.
struct Bench<'a> {
    case: Case,
    index: usize,
    count: u32,
    server: &'a Server,
    door: Door,
    provider: &'a mut Provider,
    h2load: Option<&'a H2load>,
    peers: Option<&'a mut Peers>,
    found: Found,
}

/// The results of a case.
#[derive(Default)]
struct Found {
    samples: Vec<Sample>,
    limits: Vec<f64>,
    peers: Vec<(Kind, Vec<Load>)>,
    /// Why other senders are left out.
    failures: Vec<String>,
}

impl Found {
    /// Notes the failure of another sender. That sender is left out of this case; the benchmark goes on.
    fn fail(&mut self, case: Case, kind: Kind, error: &CommandError) {
        self.failures.push(format!("{case}: {} is left out: {error}.", kind.name()));
    }
}

impl Bench<'_> {
    /// Measures all senders in turns, `runs` times. So a ratio compares measurements that are close in time.
    async fn run(&mut self, args: &BenchPushArgs) -> Result<(), CommandError> {
        if let Some(peers) = &mut self.peers {
            for (kind, peer) in peers.found() {
                progress(format!("{}: {} warms up", self.case, kind.name()));
                match peer.prepare(self.case, self.provider).await {
                    Ok(()) => self.found.peers.push((kind, Vec::new())),
                    Err(error) => self.found.fail(self.case, kind, &error),
                }
            }
        }
        // A provider in Java needs two warm-ups.
        let warm_ups = if args.server == BenchPushServer::Pushy { 2 } else { 1 };
        let runs = args.common.runs;
        for run in 0..warm_ups + runs {
            let measured = (run + 1).saturating_sub(warm_ups);
            progress(format!("{}: {} devices, run {measured} of {runs}", self.case, self.count));
            let sample = self.send(run).await?;
            if measured > 0 {
                self.found.samples.push(sample);
                self.run_others(measured).await?;
            }
        }
        Ok(())
    }

    async fn run_others(&mut self, run: u32) -> Result<(), CommandError> {
        if let Some(h2load) = self.h2load {
            let Case { connections, streams, .. } = self.case;
            self.found.limits.push(h2load.measure(self.count, connections, streams).await?);
        }
        for (kind, peer) in self.peers.iter_mut().flat_map(|peers| peers.found()) {
            let Some(place) = self.found.peers.iter().position(|(measured, _)| *measured == kind) else { continue };
            progress(format!("{}: {}, run {run}", self.case, kind.name()));
            match peer.measure(run, self.provider).await {
                Ok(load) => self.found.peers[place].1.push(load),
                Err(error) => {
                    self.found.peers.remove(place);
                    self.found.fail(self.case, kind, &error);
                }
            }
        }
        Ok(())
    }

    /// Sends one event to its whole audience.
    async fn send(&mut self, run: u32) -> Result<Sample, CommandError> {
        let (known, before) = (self.provider.mark()?, Usage::now()?);
        let id = format!("bench-{}-{run}", self.index);
        let position = self.door.post(&id, self.count, EventPriority::Normal).await?;
        let time_to = job::finished(self.server, position, self.count).await?;
        let (after, answered) = (Usage::now()?, self.provider.mark()?);
        let (mut model_rate, mut digest) = (None, Digest::new(self.count.into(), 0));
        if let (Some(before), Some(after)) = (&known.ledger, &answered.ledger) {
            digest = check_ledger(before, after, self.count.into(), true)?;
            model_rate = self.case.model_rate(payload_bytes(before, after));
        }
        let per_device = |cpu: Duration| cpu.as_secs_f64() * 1e6 / f64::from(self.count);
        Ok(Sample {
            rate: f64::from(self.count) / time_to.p100.as_secs_f64(),
            server_micros: per_device(after.cpu - before.cpu),
            provider_micros: per_device(answered.cpu - known.cpu),
            model_rate,
            time_to,
            digest,
        })
    }

    fn tell(&self, report: &mut Report) -> Result<(), CommandError> {
        let (case, Found { samples, limits, peers, failures }) = (self.case, &self.found);
        samples.iter().try_for_each(|sample| report.answered(&case.to_string(), sample.digest))?;
        let column = |field: fn(&Sample) -> f64| column(samples, field);
        let rates = column(|sample| sample.rate);
        let goal = (case.round_trip_ms == 0 && case.streams == NEAR.streams).then_some(Goal::AtLeast(GOAL_RATE));
        report.judge(format!("{case}: {} devices", self.count), "1/s", rates.clone(), goal);
        report.measure(format!("{case}: h2load"), "1/s", limits.clone());
        report.judge(format!("{case}: of h2load"), "×", ratios(&rates, limits), Goal::AtLeast(GOAL_OF_H2LOAD));
        report.measure(format!("{case}: model"), "1/s", samples.iter().filter_map(|it| it.model_rate).collect());
        let shares = samples.iter().filter_map(|sample| Some(sample.rate / sample.model_rate?)).collect();
        let goal = (case == FAR).then_some(Goal::AtLeast(GOAL_OF_MODEL));
        report.judge(format!("{case}: of the model"), "×", shares, goal);
        for (kind, loads) in peers {
            tell_peer(case, *kind, loads, &rates, report);
        }
        failures.iter().for_each(|failure| report.note(failure));
        report.measure(format!("{case}: CPU, server"), "µs", column(|sample| sample.server_micros));
        report.measure(format!("{case}: CPU, provider"), "µs", column(|sample| sample.provider_micros));
        report.measure(format!("{case}: first answer"), "ms", column(|sample| millis(sample.time_to.first)));
        report.measure(format!("{case}: 50 % answered"), "ms", column(|sample| millis(sample.time_to.p50)));
        report.measure(format!("{case}: 90 %"), "ms", column(|sample| millis(sample.time_to.p90)));
        report.measure(format!("{case}: 99 %"), "ms", column(|sample| millis(sample.time_to.p99)));
        report.measure(format!("{case}: 100 %"), "ms", column(|sample| millis(sample.time_to.p100)));
        Ok(())
    }
}

fn tell_peer(case: Case, kind: Kind, loads: &[Load], rates: &[f64], report: &mut Report) {
    let column = |field: fn(&Load) -> f64| column(loads, field);
    let name = kind.name();
    report.measure(format!("{case}: {name}"), "1/s", column(|load| load.rate));
    let goal = (kind == Kind::Gorush && case == NEAR).then_some(Goal::AtLeast(GOAL_OF_GORUSH));
    report.judge(format!("{case}: times {name}"), "×", ratios(rates, &column(|load| load.rate)), goal);
    report.measure(format!("{case}: CPU, {name}"), "µs", column(|load| load.peer_micros));
    report.measure(format!("{case}: CPU, provider with {name}"), "µs", column(|load| load.provider_micros));
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::BenchCommand;

    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: BenchCommand,
    }

    fn args(words: &str) -> BenchPushArgs {
        let line = Line::try_parse_from(format!("bench push {words}").split_whitespace()).unwrap();
        match line.command {
            BenchCommand::Push(args) => args,
            _ => panic!("it is this command"),
        }
    }

    fn plan(words: &str) -> Plan {
        Plan::new(&args(words))
    }

    #[tokio::test]
    async fn an_unknown_part_lists_the_known_ones() {
        let told = async |words| run(&args(words)).await.unwrap_err().to_string();
        let simulated = told("--only nothing").await;
        let start = "no part of this benchmark is called \"nothing\"; its parts: 0 ms, 2 × 1000; 0 ms, 2 × 100; ";
        assert!(simulated.starts_with(start), "{simulated}");
        assert!(simulated.ends_with("; newsletter; audience (with --audience N); fcm; web-push"), "{simulated}");
        assert_eq!(told("--only audience").await.replace("audience\"", "nothing\""), simulated);
        let pushy = told("--server pushy --only fcm").await;
        assert_eq!(pushy, "no part of this benchmark is called \"fcm\"; its parts: 0 ms, 2 × 1000; 0 ms, 2 × 100");
    }

    #[test]
    fn each_part_can_be_asked_for_alone() {
        let all = plan("--audience 1.3M");
        assert!(all.cases.len() > 4 && all.newsletter == Some(1_000_000) && all.audience == Some(1_300_000));
        assert_eq!(all.audiences().last(), Some(&1_300_000));
        assert!(all.fcm && !plan("--only newsletter").fcm && plan("--only fcm").cases.is_empty());
        assert!(all.web_push && !plan("--only fcm").web_push && !plan("--only web-push").is_empty());
        let newsletter = plan("--only newsletter --newsletter 20k");
        assert!(newsletter.cases.is_empty() && newsletter.audience.is_none());
        assert_eq!(newsletter.audiences(), [1000, 20_000]);
        assert_eq!(plan("--only 13").cases, [FAR]);
        assert!(plan("--only nothing").is_empty());
        assert_eq!(plan("--server pushy").newsletter, None);
        assert!(plan("").audience.is_none());
    }
}
