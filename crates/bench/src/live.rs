//! `bench live`: how much later readers of other servers of a cluster get what is published, and what a delivery costs each server.
//!
//! The servers run already. Readers connect to each of them; one publisher calls the first one. A publication has the time in
//! it, by the clock of this process. All readers are in this process, so its own delay is in every time.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket, SocketError};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_types::Format;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::args::BenchLiveArgs;
use crate::checksum::Digest;
use crate::report::{Finished, Goal, Report, column, progress};
use crate::statistic::quantile;

/// How long the last publication may take to a reader.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much later than on the first server 99 % may arrive on the others, in milliseconds.
const GOAL_MORE_MS: f64 = 5.0;

/// One run at one server.
#[derive(Clone, Copy)]
struct Sample {
    p50_ms: f64,
    p99_ms: f64,
    /// CPU of the server's process, in microseconds.
    cpu_us: f64,
    /// What all its readers got.
    digest: Digest,
}

/// What a reader got: the time of each publication until it was read, in milliseconds; and the digest of their texts.
type Got = (Vec<f64>, Digest);

pub(super) async fn run(args: &BenchLiveArgs) -> Result<Finished, CommandError> {
    let servers = args.url.iter().map(|url| ServerUrl::parse(url).map_err(|error| failed_by("--url", &error)));
    let servers: Vec<_> = servers.collect::<Result<_, _>>()?;
    let mut runs = vec![Vec::new(); servers.len()];
    for run in 1..=args.common.runs {
        progress(format!("run {run} of {}", args.common.runs));
        for (samples, sample) in runs.iter_mut().zip(measure(args, &servers).await?) {
            samples.push(sample);
        }
    }
    let mut report = Report::new("live");
    runs.iter().flatten().try_for_each(|sample| report.answered("what the readers of a server got", sample.digest))?;
    for (index, samples) in runs.iter().enumerate() {
        let name = if index == 0 { "the server that is called".to_owned() } else { format!("server {}", index + 1) };
        report.measure(format!("{name}: 50 %"), "ms", column(samples, |sample| sample.p50_ms));
        report.measure(format!("{name}: 99 %"), "ms", column(samples, |sample| sample.p99_ms));
        report.measure(format!("{name}: CPU of a delivery"), "µs", column(samples, |sample| sample.cpu_us));
    }
    for (index, samples) in runs.iter().enumerate().skip(1) {
        let more = samples.iter().zip(&runs[0]).map(|(sample, first)| sample.p99_ms - first.p99_ms).collect();
        report.judge(format!("server {}: 99 %, more than there", index + 1), "ms", more, Goal::AtMost(GOAL_MORE_MS));
    }
    let BenchLiveArgs { readers, rate, channel, .. } = args;
    report.note(format!(
        "{readers} readers of {channel} at each server, {rate} publications/s by HTTP. Publisher and readers are one process, \
         whose delay is in each time. The CPU is that of everything that the server does meanwhile."
    ));
    report.finish()
}

async fn measure(args: &BenchLiveArgs, servers: &[ServerUrl]) -> Result<Vec<Sample>, CommandError> {
    let (began, count) = (Instant::now(), u64::from(args.rate) * u64::from(args.seconds));
    let (stop, stopped) = watch::channel(false);
    let mut readers: JoinSet<Result<(usize, Got), CommandError>> = JoinSet::new();
    for (index, server) in servers.iter().enumerate() {
        for _ in 0..args.readers {
            let reader =
                subscribe(server, &args.channel).await.map_err(|error| failed_by("cannot subscribe", &error))?;
            let mut stopped = stopped.clone();
            readers.spawn(async move {
                let read = tokio::select! {
                    read = read(reader, began, count) => read,
                    _ = stopped.wait_for(|stopped| *stopped) => return Err(failed("a reader did not get everything")),
                };
                read.map(|times| (index, times)).map_err(|error| failed_by("a reader was cut off", &error))
            });
        }
    }
    let before = cpu(servers, &args.api_key).await?;
    publish(args, &servers[0], began, count).await?;
    let mut got = vec![(Vec::new(), Digest::default()); servers.len()];
    while let Some(read) = timeout(PATIENCE, readers.join_next()).await.unwrap_or_else(|_| {
        stop.send_replace(true);
        None
    }) {
        let (index, (times, digest)) = read.expect("a reader does not panic")?;
        got[index].0.extend(times);
        got[index].1 = got[index].1.and(digest);
    }
    if !readers.is_empty() {
        return Err(failed("not every reader got everything in time"));
    }
    let after = cpu(servers, &args.api_key).await?;
    let deliveries = count as f64 * f64::from(args.readers);
    let spent = before.iter().zip(after).map(|(before, after)| (after - before) * 1e6 / deliveries);
    let sample = |((mut times, digest), cpu_us): (Got, f64)| Sample {
        p50_ms: quantile(&mut times, 0.5),
        p99_ms: quantile(&mut times, 0.99),
        cpu_us,
        digest,
    };
    Ok(got.into_iter().zip(spent).map(sample).collect())
}

async fn subscribe(server: &ServerUrl, channel: &str) -> Result<Socket, SocketError> {
    let mut socket = Socket::open(server, Format::Json).await?;
    let last = socket.say([json!({"connect": {}}), json!({"subscribe": {"channel": channel}})]).await?;
    socket.reply(last).await?;
    Ok(socket)
}

async fn read(mut socket: Socket, began: Instant, count: u64) -> Result<Got, SocketError> {
    let (mut times, mut digest) = (Vec::new(), Digest::default());
    while (times.len() as u64) < count {
        let message = socket.message().await?;
        let data = &message["push"]["pub"]["data"];
        if let Some(sent_us) = data["at"].as_f64() {
            digest.add(data["text"].as_str().unwrap_or_default().as_bytes());
            times.push(began.elapsed().as_secs_f64() * 1e3 - sent_us / 1e3);
        }
    }
    Ok((times, digest))
}

async fn publish(args: &BenchLiveArgs, server: &ServerUrl, began: Instant, count: u64) -> Result<(), CommandError> {
    let mut pulse = interval(Duration::from_secs(1) / args.rate);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut posts: JoinSet<Result<(), CommandError>> = JoinSet::new();
    let (server, api_key) = (Arc::new(server.clone()), Arc::<str>::from(args.api_key.as_str()));
    for _ in 0..count {
        pulse.tick().await;
        let data = json!({"at": began.elapsed().as_micros() as u64, "text": "x".repeat(100)});
        let body = json!({"channel": args.channel, "data": data}).to_string();
        let (server, api_key) = (server.clone(), api_key.clone());
        posts.spawn(async move {
            let answer = server.post("/api/publish", Some(&api_key), body.into()).await;
            let (status, body) = answer.map_err(|error| failed_by("cannot publish", &error))?;
            let is_done =
                status.is_success() && serde_json::from_slice::<Value>(&body).is_ok_and(|it| it["error"].is_null());
            if is_done { Ok(()) } else { Err(failed(format!("a publication was refused with {status}"))) }
        });
    }
    while let Some(posted) = posts.join_next().await {
        posted.expect("a post does not panic")?;
    }
    Ok(())
}

/// The seconds of CPU that each server has used.
async fn cpu(servers: &[ServerUrl], api_key: &str) -> Result<Vec<f64>, CommandError> {
    let mut all = Vec::new();
    for server in servers {
        let answer = server.request(Method::GET, "/metrics", Some(api_key), Default::default()).await;
        let (_, body) = answer.map_err(|error| failed_by("cannot read /metrics", &error))?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        let seconds = line.and_then(|value| value.trim().parse().ok());
        all.push(seconds.ok_or_else(|| failed("/metrics has no process_cpu_seconds_total"))?);
    }
    Ok(all)
}
