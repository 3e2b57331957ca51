//! `bench buffer`: how long an operation on a buffer takes, on average and at worst, and the throughput between threads.
//!
//! First one operation at a time (see [`latency`]): on the ring; on lake and shared log, through the handles that
//! threads share; on two threads at once; and on buffers of other libraries. The same loop with an empty body, the
//! *floor*, takes turns with them. Then producers and consumers (see [`throughput`]).
//!
//! All buffers keep the same promises: a capacity that is never exceeded, first in first out, and counts that add up in
//! every run. The clock is read twice per operation. The floor shows what that costs; nothing is subtracted.

mod latency;
mod ours;
mod peers;
mod throughput;

use std::future::Future;
use std::pin::Pin;

use tidings_server::command_error::{CommandError, failed_by};

use self::latency::{InPlace, OPERATION_COUNT, QUANTILES, Run, Summary, measure};
use self::throughput::{COUNT, Rate, SIDES};
use super::report::{Finished, Goal, Report};
use super::statistic::format_number;
use crate::args::BenchBufferArgs;
use crate::report::progress;

const GOAL_AVERAGE_US: f64 = 0.2;
const GOAL_99_999_US: f64 = 10.0;

pub(super) async fn run(args: &BenchBufferArgs) -> Result<Finished, CommandError> {
    let owned = args.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let mut report = Report::new("buffer");
        latencies(&owned, &mut report).map(|()| report)
    });
    let mut report = measured.await.map_err(|error| failed_by("the measuring thread ended", &error))??;
    throughputs(args, &mut report).await?;
    report.finish()
}

struct Candidate {
    name: &'static str,
    /// Our buffers have goals.
    is_ours: bool,
    measure: fn() -> Result<Run, CommandError>,
    runs: Vec<Run>,
}

fn candidates() -> Vec<Candidate> {
    let candidate = |name, is_ours, measure| Candidate { name, is_ours, measure, runs: Vec::new() };
    vec![
        candidate("ring", true, || measure(ours::Ring::open)),
        candidate("lake", true, || measure(ours::Lake::<InPlace>::open)),
        candidate("lake, two threads", true, ours::two_threads),
        candidate("lake of handles", true, || measure(ours::Lake::<bytes::Bytes>::open)),
        candidate("shared log of handles", true, || measure(ours::Log::open)),
        candidate("std VecDeque", false, || measure(peers::Deque::open)),
        #[cfg(feature = "peers")]
        candidate("crossbeam ArrayQueue", false, || measure(peers::ArrayQueue::<InPlace>::open)),
    ]
}

fn latencies(args: &BenchBufferArgs, report: &mut Report) -> Result<(), CommandError> {
    let mut floors = Vec::new();
    let mut candidates = candidates();
    candidates.retain(|candidate| candidate.name.contains(&args.only));
    for run in 1..=args.common.runs {
        progress(format!("{OPERATION_COUNT} operations each, run {run}"));
        floors.push(latency::floor());
        for candidate in &mut candidates {
            candidate.runs.push((candidate.measure)()?);
        }
    }
    operations("floor", false, &floors.iter().collect::<Vec<_>>(), report);
    for Candidate { name, is_ours, runs, .. } in &candidates {
        runs.iter().try_for_each(|run| report.answered(&format!("operations: {name}"), run.digest))?;
        operations(name, *is_ours, &runs.iter().map(|run| &run.cycles).collect::<Vec<_>>(), report);
        let averages = |phase: fn(&Run) -> &Summary| runs.iter().map(|run| phase(run).average).collect::<Vec<_>>();
        report.measure(format!("{name}: filling, average"), "µs", averages(|run| &run.fill));
        report.measure(format!("{name}: draining, average"), "µs", averages(|run| &run.drain));
        report.measure(format!("{name}: filling again, average"), "µs", averages(|run| &run.refill));
        if !name.ends_with("of handles") {
            // Items behind handles are many small allocations, and the next run reuses those of the last.
            let memory = runs.iter().map(|run| run.memory_bytes as f64 / f64::from(1 << 20)).collect();
            report.measure(format!("{name}: memory when full"), "MiB", memory);
        }
    }
    Ok(())
}

/// Reports one candidate's operations on the full buffer.
fn operations(name: &str, is_ours: bool, runs: &[&Summary], report: &mut Report) {
    let mut tell = |what: &str, unit, values: Vec<f64>, goal: Option<f64>| {
        report.judge(format!("{name}: {what}"), unit, values, goal.filter(|_| is_ours).map(Goal::AtMost));
    };
    tell("operations", "", runs.iter().map(|run| run.count).collect(), None);
    tell("average", "µs", runs.iter().map(|run| run.average).collect(), Some(GOAL_AVERAGE_US));
    for (index, (quantile, _)) in QUANTILES.iter().enumerate() {
        let goal = (*quantile == "99.999 %").then_some(GOAL_99_999_US);
        tell(quantile, "µs", runs.iter().map(|run| run.quantiles[index]).collect(), goal);
    }
    tell("longer than 10 µs", "in a second of them", runs.iter().map(|run| run.slow_per_second).collect(), None);
    let mut longest: Vec<f64> = runs.iter().flat_map(|run| run.longest.iter().copied()).collect();
    longest.sort_by(|a, b| b.total_cmp(a));
    let longest: Vec<_> = longest.into_iter().take(10).map(format_number).collect();
    report.note(format!("{name}: the ten longest operations of all runs, µs: {}", longest.join(", ")));
}

type Pending = Pin<Box<dyn Future<Output = Result<Rate, CommandError>>>>;

/// A buffer between producers and consumers.
struct Contestant {
    contest: &'static str,
    name: &'static str,
    consumers_max: usize,
    measure: fn(usize, usize) -> Pending,
}

fn contestants() -> Vec<Contestant> {
    use throughput::{fan_out, overwrite, wait};
    let contestant = |contest, name, consumers_max, measure| Contestant { contest, name, consumers_max, measure };
    vec![
        contestant("overwrite", "lake", 4, |p, c| Box::pin(async move { overwrite::<ours::LakeOfNumbers>(p, c) })),
        #[cfg(feature = "peers")]
        contestant("overwrite", "crossbeam force_push", 4, |p, c| {
            Box::pin(async move { overwrite::<peers::ArrayQueue<u64>>(p, c) })
        }),
        contestant("wait", "lake, one by one", 4, |p, c| Box::pin(wait::<ours::Singles>(p, c))),
        contestant("wait", "lake, in batches", 4, |p, c| Box::pin(wait::<ours::Batches>(p, c))),
        #[cfg(feature = "peers")]
        contestant("wait", "flume", 4, |p, c| Box::pin(wait::<peers::Flume>(p, c))),
        #[cfg(feature = "peers")]
        contestant("wait", "thingbuf", 1, |p, c| Box::pin(wait::<peers::ThingBuf>(p, c))),
        contestant("wait", "tokio mpsc", 1, |p, c| Box::pin(wait::<peers::TokioMpsc>(p, c))),
        contestant("fan-out", "shared log", 4, |p, c| Box::pin(fan_out::<ours::LogOfNumbers>(p, c))),
        contestant("fan-out", "tokio broadcast", 4, |p, c| Box::pin(fan_out::<peers::TokioBroadcast>(p, c))),
    ]
}

async fn throughputs(args: &BenchBufferArgs, report: &mut Report) -> Result<(), CommandError> {
    let mut contestants = contestants();
    contestants.retain(|contestant| contestant.name.contains(&args.only));
    for (producers, consumers) in SIDES {
        progress(format!("{producers} producers, {consumers} consumers"));
        let taking_part = || contestants.iter().filter(|contestant| consumers <= contestant.consumers_max);
        let mut rates: Vec<Vec<Rate>> = taking_part().map(|_| Vec::new()).collect();
        for _ in 0..args.common.runs {
            for (contestant, rates) in taking_part().zip(&mut rates) {
                rates.push((contestant.measure)(producers, consumers).await?);
            }
        }
        for (contestant, rates) in taking_part().zip(&rates) {
            let part = format!("{producers} → {consumers}, {}", contestant.contest);
            rates.iter().try_for_each(|rate| report.answered(&part, rate.digest))?;
            let name = format!("{producers} → {consumers}, {}: {}", contestant.contest, contestant.name);
            if contestant.contest != "wait" {
                let lost = rates.iter().map(|rate| rate.lost * 100.0).collect();
                report.measure(format!("{name}, not delivered"), "%", lost);
            }
            report.measure(name, "M/s", rates.iter().map(|rate| rate.produced).collect());
        }
    }
    report.note(format!(
        "Producers → consumers: {COUNT} numbers through a buffer of {}, in batches of {}.",
        throughput::CAPACITY,
        throughput::BATCH
    ));
    #[cfg(not(feature = "peers"))]
    report.note("crossbeam, flume and thingbuf were not measured: built without --features bench-peers.");
    Ok(())
}
