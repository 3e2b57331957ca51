//! `bench publish`: what a publication costs that comes by HTTP, in a whole server, beside Centrifugo.
//!
//! Each server is alone on one core; the load is this process, on another core. The servers take turns, each time as a new
//! process. CPU time is that of the whole process, kernel included, divided by publications.
//!
//! Beside them runs the control, a bare loop that reads and writes once per request, and so shows what the system takes.
//!
//! - **one by one**: one connection that is kept, one request at a time;
//! - **16 at a time**: as many connections, each with one request at a time;
//! - **in batches**: 100 publications in a request to `/api/batch`, one request at a time;
//! - **to 100 channels × 10**: 16 at a time, each channel with 10 readers, who check that they get everything once and in order;
//! - **to 1 channel × 1000**: one in a request, as fast as 1000 readers get them: at most 40 are on their way;
//! - **to 1 channel × 1000, in tens**: the same with 10 in a request;
//! - **to 1 channel × 1000, 50 a second**: one in a request; no core is full;
//! - **to 1 channel × 5000**: 60 a second, one in a request; fewer if the readers do not follow.

pub(super) mod bare;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use tidings_http1::{Client, Request, Response};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::args::BenchPublishArgs;
use crate::checksum::Digest;
use crate::load::{Ask, TIMEOUT, drive};
use crate::process::{self, Cores};
use crate::report::{Finished, Goal, Report, column, progress, ratios};
use crate::swarm::{Delivered, Greeting, Swarm, data, until};
use crate::whole::{Which, Whole, publish, request};

/// Connections of the cases with several.
const CONNECTION_COUNT: u32 = 16;
/// Publications in a request.
const BATCH_COUNT: u64 = 100;
/// Channels that are read, and readers of each.
const CHANNEL_COUNT: u32 = 100;
const READER_COUNT: u32 = 10;

/// Readers of one channel, and publications that are on their way to them at most.
const CROWD_COUNT: u32 = 1000;
const ON_THEIR_WAY_MAX: u64 = 40;
/// The checksum has the first publications of each channel: whatever the time, there are so many. `BATCH_COUNT` is more.
const CROWD_DIGESTED_COUNT: u64 = 10;
const READ_DIGESTED_COUNT: u64 = 1;
/// So many publications in a second leave room on the core of each server.
const CROWD_PER_SECOND: u32 = 50;
/// Readers of one channel that gets so many publications in a second.
const LARGE_CROWD_COUNT: u32 = 5000;
const LARGE_CROWD_PER_SECOND: u32 = 60;

/// Microseconds of CPU of a publication, one by one and in a batch.
const GOAL_ONE_US: f64 = 20.0;
const GOAL_BATCH_US: f64 = 5.0;
/// Deliveries per second to the readers, as a multiple of each Centrifugo's: of many channels, and of one.
const GOAL_OF_CENTRIFUGO: f64 = 2.5;
const GOAL_OF_CENTRIFUGO_CROWD: f64 = 8.0;
/// Until 99 % of the large crowd have a publication; and where no core is full, of Centrifugo's time.
const GOAL_LARGE_CROWD_P99_MS: f64 = 80.0;
const GOAL_P99_OF_CENTRIFUGO: f64 = 0.4;

/// One case of one run at one server.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// CPU of the server for a publication.
    cpu_us: f64,
    /// How much of its core it used, in percent.
    busy: f64,
    /// Publications in a second; deliveries where there are readers.
    rate: f64,
    /// The time of a request; until a reader has the publication, where there are readers.
    p50_ms: f64,
    p99_ms: f64,
    /// What the server answered, or what the readers got first.
    digest: Digest,
}

/// A case: its name and its goals.
#[derive(Default)]
struct Case {
    name: String,
    cpu_us: Option<f64>,
    p99_ms: Option<f64>,
    /// Beside Centrifugo.
    rate_of: Option<f64>,
    p99_of: Option<f64>,
}

const CASE_COUNT: usize = 8;

fn cases() -> [Case; CASE_COUNT] {
    let case = |name| Case { name, ..Case::default() };
    let crowd = format!("to 1 channel × {CROWD_COUNT}");
    [
        Case { cpu_us: Some(GOAL_ONE_US), ..case("one by one".to_owned()) },
        case(format!("{CONNECTION_COUNT} at a time")),
        Case { cpu_us: Some(GOAL_BATCH_US), ..case(format!("in batches of {BATCH_COUNT}")) },
        Case { rate_of: Some(GOAL_OF_CENTRIFUGO), ..case(format!("to {CHANNEL_COUNT} channels × {READER_COUNT}")) },
        Case { rate_of: Some(GOAL_OF_CENTRIFUGO_CROWD), ..case(crowd.clone()) },
        case(format!("{crowd}, in tens")),
        Case { p99_of: Some(GOAL_P99_OF_CENTRIFUGO), ..case(format!("{crowd}, {CROWD_PER_SECOND} a second")) },
        Case {
            p99_ms: Some(GOAL_LARGE_CROWD_P99_MS),
            ..case(format!("to 1 channel × {LARGE_CROWD_COUNT}, {LARGE_CROWD_PER_SECOND} a second"))
        },
    ]
}

pub(super) async fn run(args: &BenchPublishArgs) -> Result<Finished, CommandError> {
    process::need_files(u64::from(LARGE_CROWD_COUNT) + 1000)?;
    let cores = Cores::choose(1)?;
    process::pin(&cores.load)?;
    let mut report = Report::new("publish");
    let mut all = Which::servers(&args.peers, &mut report)?;
    all.push(Which::Bare);
    let mut samples: Vec<_> = all.iter().map(|_| [const { Vec::new() }; CASE_COUNT]).collect();
    for run in 1..=args.common.runs {
        for (which, samples) in all.iter().zip(&mut samples) {
            progress(format!("{which}, run {run}"));
            let measured = measure(which, args.seconds, &cores).await?;
            for ((samples, sample), case) in samples.iter_mut().zip(measured).zip(cases()) {
                report.answered(&case.name, sample.digest)?;
                samples.push(sample);
            }
        }
    }
    tell(&all, &samples, &mut report);
    report
        .note("CPU is that of the server's whole process, kernel included. One core for it, one for load and readers.");
    if cores.are_shared() {
        report.note("The machine has one core: server and load generator shared it.");
    }
    report.finish()
}

/// Of the bare loop only the first cases.
async fn measure(which: &Which, seconds: u32, cores: &Cores) -> Result<Vec<Sample>, CommandError> {
    let server = Whole::start(which, cores.server).await?;
    let publication = json!({"channel": "live:bench", "data": data(1)});
    let one = request("/api/publish", &publication);
    let commands: Vec<_> = (0..BATCH_COUNT).map(|_| json!({"publish": publication})).collect();
    let batch = request("/api/batch", &json!({"commands": commands}));
    let mut samples =
        vec![ask(&server, &one, 1, 1, seconds).await?, ask(&server, &one, CONNECTION_COUNT, 1, seconds).await?];
    if !matches!(which, Which::Bare) {
        samples.push(ask(&server, &batch, 1, BATCH_COUNT, seconds).await?);
        samples.push(read(&server, seconds).await?);
        let crowd = |channel, count| Crowd { channel, reader_count: CROWD_COUNT, count, per_second: None };
        samples.push(crowd("live:crowd", 1).follow(&server, seconds).await?);
        samples.push(crowd("live:tens", 10).follow(&server, seconds).await?);
        let paced = Crowd { per_second: Some(CROWD_PER_SECOND), ..crowd("live:paced", 1) };
        samples.push(paced.follow(&server, seconds).await?);
        let per_second = Some(LARGE_CROWD_PER_SECOND);
        let large = Crowd { reader_count: LARGE_CROWD_COUNT, per_second, ..crowd("live:large", 1) };
        samples.push(large.follow(&server, seconds).await?);
    }
    Ok(samples)
}

/// A request that is sent again and again.
#[derive(Clone)]
struct Repeated {
    api: Client,
    request: Request,
    publication_count: u64,
}

impl Ask for Repeated {
    async fn ask(&self) -> bool {
        let answer = self.api.send(self.request.clone(), TIMEOUT).await;
        answer.is_ok_and(|answer| is_done(&answer, self.publication_count))
    }
}

/// What is equal in the answers to a request that is sent again: how many results are in it.
fn results(body: &[u8]) -> Digest {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let mut digest = Digest::default();
    let replies = body["replies"].as_array().map_or(std::slice::from_ref(&body), Vec::as_slice);
    for reply in replies {
        let is_result = reply["error"].is_null() && (reply["result"].is_object() || reply["publish"].is_object());
        digest.add(if is_result { "result".into() } else { reply.to_string() }.as_bytes());
    }
    digest
}

/// Whether so many publications were taken.
fn is_done(answer: &Response, publication_count: u64) -> bool {
    let is_result = |reply: &Value| reply["error"].is_null();
    let Ok(body) = serde_json::from_slice::<Value>(answer.body()) else { return false };
    let replies_are_right = match body["replies"].as_array() {
        Some(replies) => replies.len() as u64 == publication_count && replies.iter().all(is_result),
        None => publication_count == 1 && is_result(&body) && body["result"].is_object(),
    };
    answer.status() == StatusCode::OK && replies_are_right
}

async fn ask(
    server: &Whole,
    request: &Request,
    connections: u32,
    publication_count: u64,
    seconds: u32,
) -> Result<Sample, CommandError> {
    let repeated = Repeated { api: server.api(connections as usize)?, request: request.clone(), publication_count };
    let first = repeated.api.send(request.clone(), TIMEOUT).await.map_err(|error| failed_by("the API", &error))?;
    let (before, began) = (server.cpu()?, Instant::now());
    let load = drive(repeated, connections, seconds).await?;
    if load.errors > 0 || load.asked == 0 {
        return Err(failed(format!("{} of {} requests were not answered as they should be", load.errors, load.asked)));
    }
    let publications = (load.asked * publication_count) as f64;
    let (cpu, elapsed) = ((server.cpu()? - before).as_secs_f64(), began.elapsed().as_secs_f64());
    Ok(Sample {
        cpu_us: cpu * 1e6 / publications,
        busy: cpu / elapsed * 100.0,
        rate: load.rate * publication_count as f64,
        p50_ms: load.latency_millis(0.5),
        p99_ms: load.latency_millis(0.99),
        digest: results(first.body()),
    })
}

/// Publishes to channels that are read, each channel by one task, for so many seconds; and until all was read.
async fn read(server: &Whole, seconds: u32) -> Result<Sample, CommandError> {
    let channel = "live:read";
    let greeting = Greeting::Spread { channel, channel_count: CHANNEL_COUNT };
    let swarm = Swarm::start(server.addr(), CHANNEL_COUNT * READER_COUNT, greeting)?;
    swarm.ready().await?;
    swarm.record_from(1);
    swarm.digest_to(READ_DIGESTED_COUNT);
    let (api, published) = (server.api(CONNECTION_COUNT as usize)?, Arc::new(AtomicU64::new(0)));
    let (before, began) = (server.cpu()?, Instant::now());
    let until = began + Duration::from_secs(seconds.into());
    let mut publishers: JoinSet<Result<(), CommandError>> = JoinSet::new();
    for first in 0..CONNECTION_COUNT {
        let (api, published) = (api.clone(), published.clone());
        publishers.spawn(async move {
            for number in 1.. {
                for index in (first..CHANNEL_COUNT).step_by(CONNECTION_COUNT as usize) {
                    let body = json!({"channel": format!("{channel}{index}"), "data": data(number)});
                    let answer = api.send(request("/api/publish", &body), TIMEOUT).await;
                    let answer = answer.map_err(|error| failed_by("cannot publish", &error))?;
                    if !is_done(&answer, 1) {
                        return Err(failed(format!("a publication was refused with {}", answer.status())));
                    }
                    published.fetch_add(1, Ordering::Relaxed);
                    if Instant::now() > until {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
    }
    while let Some(publisher) = publishers.join_next().await {
        publisher.expect("a publisher does not panic")?;
    }
    let published = published.load(Ordering::Relaxed);
    finish(swarm, server, published, READER_COUNT, (before, began)).await
}

/// The readers of one channel, and what is published to them.
struct Crowd {
    channel: &'static str,
    reader_count: u32,
    /// Publications in a request.
    count: u64,
    /// Requests in a second; `None`: as many as the readers follow.
    per_second: Option<u32>,
}

impl Crowd {
    /// Publishes for so many seconds, no faster than the readers get it; and until all was read.
    async fn follow(&self, server: &Whole, seconds: u32) -> Result<Sample, CommandError> {
        let Self { channel, reader_count, count, per_second } = *self;
        let swarm = Swarm::start(server.addr(), reader_count, Greeting::Spread { channel, channel_count: 1 })?;
        swarm.ready().await?;
        swarm.record_from(1);
        swarm.digest_to(CROWD_DIGESTED_COUNT);
        let (api, mut published) = (server.api(1)?, 0);
        let (before, began) = (server.cpu()?, Instant::now());
        let pause = per_second.map_or(Duration::ZERO, |per_second| Duration::from_secs(1) / per_second);
        while began.elapsed() < Duration::from_secs(seconds.into()) {
            sleep_until(began + pause * (published / count) as u32).await;
            publish(&api, &format!("{channel}0"), published + 1, count).await?;
            published += count;
            let enough = published.saturating_sub(ON_THEIR_WAY_MAX - count) * u64::from(reader_count);
            until("the readers follow", async || Ok(swarm.delivered_count()? >= enough)).await?;
        }
        finish(swarm, server, published, reader_count, (before, began)).await
    }
}

/// Waits until all readers have everything. `begin`: what the server had used then, and when that was.
async fn finish(
    swarm: Swarm,
    server: &Whole,
    published: u64,
    reader_count: u32,
    begin: (Duration, Instant),
) -> Result<Sample, CommandError> {
    let deliveries = published * u64::from(reader_count);
    swarm.delivered(deliveries).await?;
    let (elapsed, cpu) = (begin.1.elapsed(), server.cpu()? - begin.0);
    let Delivered { latency, digest } = swarm.stop()?;
    Ok(Sample {
        cpu_us: cpu.as_secs_f64() * 1e6 / published as f64,
        busy: cpu.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
        rate: deliveries as f64 / elapsed.as_secs_f64(),
        p50_ms: latency.quantile(0.5).as_secs_f64() * 1e3,
        p99_ms: latency.quantile(0.99).as_secs_f64() * 1e3,
        digest,
    })
}

fn tell(all: &[Which], samples: &[[Vec<Sample>; CASE_COUNT]], report: &mut Report) {
    for (index, case) in cases().into_iter().enumerate() {
        let Case { name, cpu_us, p99_ms, rate_of, p99_of } = case;
        let of_each: Vec<&[Sample]> = samples.iter().map(|samples| &samples[index][..]).collect();
        for (which, samples) in all.iter().zip(&of_each) {
            let name = format!("{name}, {which}");
            let goal = cpu_us.filter(|_| matches!(which, Which::Tidings)).map(Goal::AtMost);
            report.judge(format!("{name}: CPU"), "µs", column(samples, |sample| sample.cpu_us), goal);
            report.measure(format!("{name}: of its core"), "%", column(samples, |sample| sample.busy));
            report.measure(format!("{name}: rate"), "1/s", column(samples, |sample| sample.rate));
            report.measure(format!("{name}: p50"), "ms", column(samples, |sample| sample.p50_ms));
            let goal = p99_ms.filter(|_| matches!(which, Which::Tidings)).map(Goal::AtMost);
            report.judge(format!("{name}: p99"), "ms", column(samples, |sample| sample.p99_ms), goal);
        }
        let others = all.iter().zip(&of_each).filter(|(which, _)| matches!(which, Which::Centrifugo(_)));
        for (other, theirs) in others {
            let of = |value: fn(&Sample) -> f64| ratios(&column(of_each[0], value), &column(theirs, value));
            report.measure(format!("{name}: CPU, of {other}"), "×", of(|sample| sample.cpu_us));
            let goal = rate_of.map(Goal::AtLeast);
            report.judge(format!("{name}: rate, of {other}"), "×", of(|sample| sample.rate), goal);
            if let Some(goal) = p99_of.map(Goal::AtMost) {
                report.judge(format!("{name}: p99, of {other}"), "×", of(|sample| sample.p99_ms), Some(goal));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results_of(body: &str) -> Digest {
        results(body.as_bytes())
    }

    #[test]
    fn answers_of_the_same_kind_have_the_same_digest() {
        let one = results_of("{\"result\":{}}");
        assert_eq!(one, results_of("{\"result\":{\"offset\":7}}"));
        assert_eq!(one, results_of("{\"replies\":[{\"publish\":{}}]}"));
        let others = [
            "",
            "{}",
            "{\"error\":{\"code\":102}}",
            "{\"replies\":[]}",
            "{\"replies\":[{\"publish\":{}},{\"publish\":{}}]}",
        ];
        others.iter().for_each(|body| assert_ne!(one, results_of(body), "{body}"));
    }
}
