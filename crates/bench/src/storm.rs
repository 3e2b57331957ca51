//! `bench storm`: what a whole server keeps for a connection that is idle, and what it costs when all clients come back at
//! once, beside Centrifugo.
//!
//! Each server is alone on one core; the clients are this process, on another core. The servers take turns, each time as a
//! new process. In each run all clients are cut off several times, miss some publications of a channel, and come back with
//! their position. Every client checks that it then has every publication once and in order. CPU time is that of the whole
//! process, kernel included; coming back includes connecting.

use serde_json::json;
use tidings_http1::Client;
use tidings_server::command_error::{CommandError, failed};
use tidings_types::{Format, Variant};
use tokio::time::Instant;

use crate::args::BenchStormArgs;
use crate::checksum::Digest;
use crate::process::{self, Cores};
use crate::report::{Finished, Goal, Report, progress, ratios};
use crate::swarm::{CONNECTING_COUNT_MAX, Greeting, Swarm};
use crate::whole::{Which, Whole, ask, publish};

/// A channel with history, in which whoever comes back gets what was missed.
const CHANNEL: &str = "kept:bench";
/// Publications that each client misses by each cut.
const MISSED_COUNT: u64 = 20;
/// Clients before the measurement. Memory that is allocated once, or only during many handshakes, is not per connection.
const FIRST_COUNT: u32 = 2 * CONNECTING_COUNT_MAX as u32;

/// Memory per idle connection, in KiB.
const GOAL_IDLE_KIB: f64 = 6.0;
/// CPU time per client that comes back, as a multiple of Centrifugo's.
const GOAL_OF_CENTRIFUGO: f64 = 0.4;

/// What was measured at one server: the memory once in each run, the rest at each cut.
#[derive(Default)]
struct Samples {
    idle_kib: Vec<f64>,
    cpu_ms: Vec<f64>,
    back_after_s: Vec<f64>,
    resident_mib: Vec<f64>,
    /// What all clients got after each cut of the last run.
    answers: Vec<Digest>,
}

pub(super) async fn run(args: &BenchStormArgs) -> Result<Finished, CommandError> {
    process::need_files(u64::from(args.clients + FIRST_COUNT) + 1000)?;
    let cores = Cores::choose(1)?;
    process::pin(&cores.load)?;
    let mut report = Report::new("storm");
    let all = Which::servers(&args.peers, &mut report)?;
    let mut samples: Vec<Samples> = all.iter().map(|_| Samples::default()).collect();
    for run in 1..=args.common.runs {
        for (which, samples) in all.iter().zip(&mut samples) {
            progress(format!("{which}, {} clients, run {run}", args.clients));
            measure(which, args, cores.server, samples).await?;
            for (cut, digest) in (1..).zip(samples.answers.drain(..)) {
                report.answered(&format!("{} clients, cut {cut}", args.clients), digest)?;
            }
        }
    }
    tell(args, &all, samples, &mut report);
    if cores.are_shared() {
        report.note("The machine has one core: server and load generator shared it.");
    }
    report.finish()
}

async fn measure(which: &Which, args: &BenchStormArgs, core: usize, samples: &mut Samples) -> Result<(), CommandError> {
    let server = Whole::start(which, core).await?;
    let (api, clients) = (server.api(1)?, args.clients);
    let subscribe = || Greeting::Subscribe { channel: CHANNEL, variant: Variant::websocket(Format::Json) };
    connected(&api).await?;
    let files = server.file_count()?;
    let first = Swarm::start(server.addr(), FIRST_COUNT, subscribe())?;
    first.ready().await?;
    let before = server.resident_bytes()?;
    let mut swarm = Swarm::start(server.addr(), clients, subscribe())?;
    swarm.ready().await?;
    let grown = server.resident_bytes()?.saturating_sub(before);
    samples.idle_kib.push(grown as f64 / 1024.0 / f64::from(clients));
    let epoch = swarm.epoch().ok_or_else(|| failed("no client was told the epoch of a channel with history"))?;
    first.stop()?;

    for cut in 0..u64::from(args.cuts) {
        let offset = cut * MISSED_COUNT;
        let got = swarm.stop()?.digest;
        samples.answers.extend((cut > 0).then_some(got)); // Before the first cut nothing is published.
        server.rest(files).await?;
        publish(&api, CHANNEL, offset + 1, MISSED_COUNT).await?;
        let (before, began) = (server.cpu()?, Instant::now());
        let resume = Greeting::Resume { channel: CHANNEL, epoch: epoch.clone(), offset };
        swarm = Swarm::start(server.addr(), clients, resume)?;
        swarm.ready().await?;
        swarm.delivered(MISSED_COUNT * u64::from(clients)).await?;
        samples.back_after_s.push(began.elapsed().as_secs_f64());
        samples.cpu_ms.push((server.cpu()? - before).as_secs_f64() * 1e3 / f64::from(clients));
        samples.resident_mib.push(server.resident_bytes()? as f64 / f64::from(1 << 20));
    }
    samples.answers.push(swarm.stop()?.digest);
    Ok(())
}

/// Opens the connection to the API, which the server then keeps.
async fn connected(api: &Client) -> Result<(), CommandError> {
    ask(api, "/api/info", &json!({})).await.map(drop)
}

fn tell(args: &BenchStormArgs, all: &[Which], samples: Vec<Samples>, report: &mut Report) {
    let BenchStormArgs { clients, cuts, .. } = args;
    for (other, theirs) in all.iter().zip(&samples).filter(|(which, _)| matches!(which, Which::Centrifugo(_))) {
        let name = format!("{clients} come back for {MISSED_COUNT} each: CPU, of {other}");
        report.judge(name, "×", ratios(&samples[0].cpu_ms, &theirs.cpu_ms), Goal::AtMost(GOAL_OF_CENTRIFUGO));
    }
    for (which, samples) in all.iter().zip(samples) {
        let goal = matches!(which, Which::Tidings).then_some(Goal::AtMost(GOAL_IDLE_KIB));
        report.judge(format!("{clients} idle, {which}: memory per connection"), "KiB", samples.idle_kib, goal);
        let name = format!("{clients} come back for {MISSED_COUNT} each, {which}");
        report.measure(format!("{name}: CPU per client"), "ms", samples.cpu_ms);
        report.measure(format!("{name}: until all have everything"), "s", samples.back_after_s);
        report.measure(format!("{name}: memory then"), "MiB", samples.resident_mib);
    }
    report.note(format!(
        "{cuts} cuts in each run. CPU is that of the server's whole process, kernel included. Idle memory of Centrifugo has what \
         its garbage collector has not freed yet."
    ));
}
