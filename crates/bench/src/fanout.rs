//! `bench fanout`: the cost of a publication per subscriber.
//!
//! The server is the real hub and edge behind a real listener. It is alone in its process, on one core. Publisher and
//! clients are this process, on another core. Publications reach the hub over a pipe, not over the API, because only
//! the way out is measured. CPU time is that of the server's whole process, kernel included, divided by deliveries.
//!
//! Five variants take turns, so that other load on the machine meets all of them:
//!
//! - the control, a bare loop: one `write` of the same bytes per subscriber, and nothing else;
//! - our server with clients that speak JSON;
//! - our server with clients that speak Protobuf;
//! - our server with receipts: each publication asks every client, and the client answers a ping behind it;
//! - our server with a tenth of clients that read slowly and want only the newest; the others are measured.
//!
//! `--transport` adds our server with clients that speak JSON over another transport.
//!
//! Where Centrifugo is there, whole servers take turns too: `tidings serve`, and each Centrifugo. They get the publications
//! over HTTP, one request at a time, so their CPU time has the API in it, and is compared only among them.
//!
//! Every client checks that it gets every publication once and in order.
//!
//! Not measured: TLS.

pub(super) mod bare;
mod command;
mod load;
pub(super) mod server;
mod whole;

use tidings_server::command_error::CommandError;
use tidings_types::{Format, Transport, Variant};

use self::command::{LIVE_CHANNEL, PROOF_CHANNEL, THIN_CHANNEL};
use self::load::{LOADS, Load, Sample};
use super::process::{self, Cores};
use super::report::{Finished, Goal, Report};
use crate::args::{BenchFanoutArgs, BenchTransport, PeerRole};
use crate::report::{column, progress, ratios};
use crate::whole::Which;

const JSON: Variant = Variant::websocket(Format::Json);

/// CPU time per delivery, as a multiple of that of the bare loop.
const GOAL_OF_BARE: f64 = 1.2;
/// CPU time per delivery in Protobuf, as a multiple of that in JSON: no more, except for the noise of one run.
const GOAL_OF_JSON: f64 = 1.05;
/// 99 % of deliveries beside slow readers, as a multiple of those without them.
const GOAL_BESIDE_SLOW: f64 = 1.1;

pub(super) async fn run(args: &BenchFanoutArgs) -> Result<Finished, CommandError> {
    process::need_files(4000)?;
    let cores = Cores::choose(1)?;
    process::pin(&cores.load)?;
    let mut report = Report::new("fanout");
    let servers = Which::servers(&args.peers, &mut report)?;
    for load in LOADS {
        compare(load, args, &cores, &mut report).await?;
        if servers.len() > 1 {
            whole::compare(&servers, load, args, &cores, &mut report).await?;
        }
    }
    report.note("CPU is that of the server's process, kernel included.");
    if cores.are_shared() {
        report.note("The machine has one core: server and load generator shared it.");
    }
    report.finish()
}

impl From<BenchTransport> for Transport {
    fn from(transport: BenchTransport) -> Self {
        match transport {
            BenchTransport::Sse => Self::Sse,
            BenchTransport::HttpStream => Self::HttpStream,
            BenchTransport::UniSse => Self::UniSse,
            BenchTransport::UniHttpStream => Self::UniHttpStream,
        }
    }
}

/// Runs all variants under one load, in turns.
async fn compare(load: Load, args: &BenchFanoutArgs, cores: &Cores, report: &mut Report) -> Result<(), CommandError> {
    let (mut bare, mut ours, mut binary, mut proven) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut beside = Vec::new();
    let mut others: Vec<_> = args.transport.iter().copied().map(|transport| (transport, Vec::new())).collect();
    for run in 1..=args.common.runs {
        progress(format!("{load}, run {run}"));
        let measure = |role, channel, variant| load::measure(role, channel, variant, load, args.seconds, cores);
        bare.push(measure(PeerRole::Bare, LIVE_CHANNEL, JSON).await?);
        ours.push(measure(PeerRole::Fanout, LIVE_CHANNEL, JSON).await?);
        binary.push(measure(PeerRole::Fanout, LIVE_CHANNEL, Variant::websocket(Format::Protobuf)).await?);
        proven.push(measure(PeerRole::Fanout, PROOF_CHANNEL, JSON).await?);
        let slow = load.with_slow();
        beside.push(load::measure(PeerRole::Fanout, THIN_CHANNEL, JSON, slow, args.seconds, cores).await?);
        for (transport, samples) in &mut others {
            let variant = Variant { transport: (*transport).into(), format: Format::Json };
            samples.push(measure(PeerRole::Fanout, LIVE_CHANNEL, variant).await?);
        }
    }
    let alike = [&bare, &ours, &binary, &proven].into_iter().chain(others.iter().map(|(_, samples)| samples));
    alike.flatten().try_for_each(|sample| report.answered(&load.to_string(), sample.digest))?;
    let name = format!("{load}, beside slow readers");
    beside.iter().try_for_each(|sample| report.answered(&name, sample.digest))?;
    let cpu = |samples: &[Sample]| column(samples, |sample| sample.cpu_micros);
    let of = |ours: &[Sample], control: &[Sample]| ratios(&cpu(ours), &cpu(control));
    report.measure(format!("{load}: CPU per delivery"), "µs", cpu(&ours));
    report.measure(format!("{load}: bare loop"), "µs", cpu(&bare));
    report.judge(format!("{load}: of the bare loop"), "×", of(&ours, &bare), Goal::AtMost(GOAL_OF_BARE));
    report.measure(format!("{load}: in Protobuf"), "µs", cpu(&binary));
    report.judge(format!("{load}: Protobuf, of JSON"), "×", of(&binary, &ours), Goal::AtMost(GOAL_OF_JSON));
    report.measure(format!("{load}: with receipts"), "µs", cpu(&proven));
    for (transport, samples) in &others {
        report.measure(format!("{load}: over {transport}"), "µs", cpu(samples));
        report.measure(format!("{load}: {transport}, of WebSocket"), "×", of(samples, &ours));
    }
    report.measure(format!("{load}: p50"), "ms", column(&ours, |sample| sample.p50_millis));
    report.measure(format!("{load}: p50, bare loop"), "ms", column(&bare, |sample| sample.p50_millis));
    report.measure(format!("{load}: p99"), "ms", column(&ours, |sample| sample.p99_millis));
    report.measure(format!("{load}: p99, with receipts"), "ms", column(&proven, |sample| sample.p99_millis));
    report.measure(format!("{load}: p99, beside slow readers"), "ms", column(&beside, |sample| sample.p99_millis));
    let p99 = |samples: &[Sample]| column(samples, |sample| sample.p99_millis);
    let ratio = ratios(&p99(&beside), &p99(&ours));
    report.judge(format!("{load}: p99 beside slow readers, of alone"), "×", ratio, Goal::AtMost(GOAL_BESIDE_SLOW));
    report.measure(format!("{load}: p99, bare loop"), "ms", column(&bare, |sample| sample.p99_millis));
    Ok(())
}
