//! `bench cluster`: what it costs that a store shares its log with other nodes.
//!
//! Two stores take turns: one that is alone and syncs each batch, and one that leads a log on NATS, with a standby that
//! follows it. Each takes events of 1 KiB: one after the other, for the latency, and from many callers at once, for the
//! rate. At the end the standby must have every event that was acknowledged.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidings_cluster::{JetStream, Log, StreamConfig};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_store::{NewEvent, Role, Store};
use tidings_telemetry::unix_now;
use tidings_types::{Event, EventId, JournalPosition, ParamValue, Subject, TopicName};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::args::BenchClusterArgs;
use crate::checksum::Digest;
use crate::folder::temporary;
use crate::report::{Finished, Goal, Report, column, millis, progress, ratios};
use crate::statistic::quantile;
use crate::store;

/// Events one after the other.
const ONE_COUNT: usize = 400;
/// Callers at once.
const CALLER_COUNT: usize = 256;
/// For how long they call.
const RATE_TIME: Duration = Duration::from_secs(3);
/// Bytes of an event's parameter.
const EVENT_BYTES: usize = 1024;
/// How long a role, or the standby, may be waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// What an event may cost more, in milliseconds, and which share of the rate must be left.
const GOAL_MORE_MS: f64 = 10.0;
const GOAL_RATE: f64 = 0.8;

/// One run of one store.
struct Sample {
    p50_ms: f64,
    p99_ms: f64,
    rate: f64,
    /// Where the journal ended before the many callers: how many they append depends on the time.
    digest: Digest,
}

pub(super) async fn run(args: &BenchClusterArgs) -> Result<Finished, CommandError> {
    let (mut alone, mut shared) = (Vec::new(), Vec::new());
    for run in 1..=args.common.runs {
        progress(format!("run {run} of {}: alone", args.common.runs));
        alone.push(measure_alone().await?);
        progress(format!("run {run} of {}: with a log on NATS", args.common.runs));
        shared.push(measure_shared(args).await?);
    }
    let mut report = Report::new("cluster");
    alone.iter().chain(&shared).try_for_each(|sample| report.answered("one after the other", sample.digest))?;
    let of = |samples: &[Sample], value: fn(&Sample) -> f64| column(samples, value);
    for (name, samples) in [("alone", &alone), ("with a log", &shared)] {
        report.measure(format!("an event, {name}: 50 %"), "ms", of(samples, |sample| sample.p50_ms));
        report.measure(format!("an event, {name}: 99 %"), "ms", of(samples, |sample| sample.p99_ms));
        report.measure(format!("events of {CALLER_COUNT} callers, {name}"), "/s", of(samples, |sample| sample.rate));
    }
    let [alone_p99, shared_p99] = [&alone, &shared].map(|samples| of(samples, |sample| sample.p99_ms));
    let more = shared_p99.iter().zip(&alone_p99).map(|(shared, alone)| shared - alone).collect();
    report.judge("99 %: more than alone", "ms", more, Goal::AtMost(GOAL_MORE_MS));
    let rates = ratios(&of(&shared, |sample| sample.rate), &of(&alone, |sample| sample.rate));
    report.judge("rate, of alone", "×", rates, Goal::AtLeast(GOAL_RATE));
    let replicas = args.replicas;
    report.note(format!(
        "Events of {EVENT_BYTES} bytes into the store itself, without HTTP. The log is on {replicas} NATS servers, and a second \
         store follows it in this process."
    ));
    report.finish()
}

async fn measure_alone() -> Result<Sample, CommandError> {
    let folder = temporary(None)?;
    let store = store::open(folder.path()).await?;
    let (sample, _) = measure(&store).await?;
    store.close().await;
    Ok(sample)
}

async fn measure_shared(args: &BenchClusterArgs) -> Result<Sample, CommandError> {
    let client = async_nats::connect(&args.nats).await.map_err(|error| failed_by("NATS does not answer", &error))?;
    let context = async_nats::jetstream::new(client);
    let stream = StreamConfig {
        name: format!("bench_{}", uuid::Uuid::new_v4().simple()),
        replica_count: args.replicas as usize,
        bytes_max: 1 << 30,
    };
    let log = async || -> Result<_, CommandError> {
        let broker = JetStream::open(context.clone(), &stream, Arc::<AtomicBool>::default()).await;
        Ok(Box::new(Log::new(broker.map_err(|error| failed_by("the stream cannot be made", &error))?)))
    };
    let (folder, other) = (temporary(None)?, temporary(None)?);
    let leader = store::join(folder.path(), log().await?).await?;
    leader.lead(true);
    let leads = timeout(PATIENCE, leader.role().wait_for(|role| *role == Role::Leading)).await.is_ok();
    if !leads {
        return Err(failed("the store does not lead in time"));
    }
    let standby = store::join(other.path(), log().await?).await?;
    let measured = measure(&leader).await;
    let followed = match &measured {
        Ok((_, end)) => follows(&standby, *end).await,
        Err(_) => Ok(()),
    };
    leader.close().await;
    standby.close().await;
    let _ = context.delete_stream(&stream.name).await; // Of a benchmark: an operator can delete it, too.
    followed?;
    Ok(measured?.0)
}

/// Waits until the standby has every event.
async fn follows(standby: &Store, end: JournalPosition) -> Result<(), CommandError> {
    let mut ends = standby.watch_journal_end();
    let has_all = timeout(PATIENCE, ends.wait_for(|reached| *reached >= end)).await;
    if has_all.is_ok_and(|reached| reached.is_ok()) {
        Ok(())
    } else {
        Err(failed("the standby does not have all events"))
    }
}

/// Also returns where the journal ends.
async fn measure(store: &Store) -> Result<(Sample, JournalPosition), CommandError> {
    let mut times = Vec::with_capacity(ONE_COUNT);
    for number in 0..ONE_COUNT {
        let began = Instant::now();
        append(store, format!("one-{number}")).await?;
        times.push(millis(began.elapsed()));
    }
    let digest = Digest::of_numbers([store.watch_journal_end().borrow().0]);
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLER_COUNT {
        let store = store.clone();
        callers.spawn(async move {
            let mut count = 0_u64;
            while began.elapsed() < RATE_TIME {
                append(&store, format!("{caller}-{count}")).await?;
                count += 1;
            }
            Ok::<_, CommandError>(count)
        });
    }
    let mut count = 0;
    while let Some(called) = callers.join_next().await {
        count += called.map_err(|error| failed_by("a caller ended", &error))??;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let end = *store.watch_journal_end().borrow();
    if end.0 != 1 + ONE_COUNT as u64 + count {
        return Err(failed(format!("the journal ends at {}, and {count} events were acknowledged", end.0)));
    }
    Ok((Sample { p50_ms: quantile(&mut times, 0.5), p99_ms: quantile(&mut times, 0.99), rate, digest }, end))
}

async fn append(store: &Store, id: String) -> Result<(), CommandError> {
    let wrong = |error: &dyn std::error::Error| failed_by("the event is refused", error);
    let id = EventId::new(&id).map_err(|error| wrong(&error))?;
    let topic = TopicName::new("goal").map_err(|error| wrong(&error))?;
    let subjects = vec![Subject::new("team:1").map_err(|error| wrong(&error))?];
    let mut event = Event::new(id, topic, subjects);
    event.params.insert("text".to_owned(), ParamValue::Text("x".repeat(EVENT_BYTES)));
    let event = NewEvent { event, channels: Vec::new(), audience_max: None };
    store.append_events(vec![event], unix_now()).await.map_err(|error| wrong(&error))?;
    Ok(())
}
