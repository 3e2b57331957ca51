//! The same loads on whole servers, which take turns: ours, and each Centrifugo.

use tidings_server::command_error::CommandError;
use tidings_types::{Format, Variant};

use super::load::{Load, Sample, at_rate};
use crate::args::BenchFanoutArgs;
use crate::process::Cores;
use crate::report::{Report, column, progress, ratios};
use crate::swarm::{Greeting, Swarm};
use crate::whole::{Which, Whole, publish};

/// A channel without history.
const CHANNEL: &str = "live:fanout";

/// `servers`: ours first.
pub(super) async fn compare(
    servers: &[Which],
    load: Load,
    args: &BenchFanoutArgs,
    cores: &Cores,
    report: &mut Report,
) -> Result<(), CommandError> {
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for run in 1..=args.common.runs {
        for (which, samples) in servers.iter().zip(&mut samples) {
            progress(format!("{load}, {which}, run {run}"));
            let sample = measure(which, load, args.seconds, cores).await?;
            // The same publications as from hub and edge alone.
            report.answered(&load.to_string(), sample.digest)?;
            samples.push(sample);
        }
    }
    let cpu = |samples: &[Sample]| column(samples, |sample| sample.cpu_micros);
    for (which, theirs) in servers.iter().zip(&samples) {
        let name = format!("{load}, whole server, {which}");
        report.measure(format!("{name}: CPU per delivery"), "µs", cpu(theirs));
        report.measure(format!("{name}: p50"), "ms", column(theirs, |sample| sample.p50_millis));
        report.measure(format!("{name}: p99"), "ms", column(theirs, |sample| sample.p99_millis));
    }
    for (other, theirs) in servers.iter().zip(&samples).skip(1) {
        let name = format!("{load}, whole server: CPU, of {other}");
        report.measure(name, "×", ratios(&cpu(&samples[0]), &cpu(theirs)));
    }
    Ok(())
}

async fn measure(which: &Which, load: Load, seconds: u32, cores: &Cores) -> Result<Sample, CommandError> {
    let server = Whole::start(which, cores.server).await?;
    let api = server.api(1)?;
    let greeting = Greeting::Subscribe { channel: CHANNEL, variant: Variant::websocket(Format::Json) };
    let swarm = Swarm::start(server.addr(), load.subscribers, greeting)?;
    swarm.ready().await?;
    let (warmed_up, subscribers) = (u64::from(load.rate), u64::from(load.subscribers));
    let last = warmed_up + u64::from(load.rate) * u64::from(seconds);
    let publish = async |numbers: std::ops::RangeInclusive<u64>| {
        publish(&api, CHANNEL, *numbers.start(), numbers.end() + 1 - numbers.start()).await
    };
    at_rate(load, 1..=warmed_up, &publish).await?;
    swarm.delivered(warmed_up * subscribers).await?;
    swarm.record_from(warmed_up + 1);
    let before = server.cpu()?;
    at_rate(load, warmed_up + 1..=last, &publish).await?;
    swarm.delivered(last * subscribers).await?;
    let cpu = server.cpu()? - before;
    Sample::new(&swarm.stop()?, (last - warmed_up) * subscribers, cpu)
}
