//! `bench age`: what devices that were deleted cost those that are left.
//!
//! One device in [`KEPT_ONE_IN`] is kept, the others are deleted, [`DELETED_PER_SECOND`] of them. All the time an event and a
//! durable publication are written every [`PACE`]; the time of each counts from when it was due, so that a stall shows in all
//! that waited. There are four phases: before, while devices are deleted, after it, and after a restart. The last two
//! are longer than a device number rests before it is given again. Kept devices are read in the first phase and in the
//! last: a device, its subscriptions, and a page of an export.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_store::{DurableChannel, NewDevice, NewEvent, NewImport, Precondition, Store};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, ChannelName, DeviceId, Event, EventId, Json, Locale, Platform, Subject, TopicName};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::BenchAgeArgs;
use crate::checksum::Digest;
use crate::folder::temporary;
use crate::report::{Finished, Goal, Report, column, millis, progress, ratios};
use crate::statistic::{quantile, times_per_second};
use crate::store;

const KEPT_ONE_IN: u32 = 20;
const DELETED_PER_SECOND: u32 = 3000;
const SUBSCRIPTION_COUNT: u32 = 5;
const PACE: Duration = Duration::from_millis(5);
const BEFORE: Duration = Duration::from_secs(10);
/// A deleted number rests for 60 seconds. What comes then has as long again.
const AFTER: Duration = Duration::from_secs(120);
/// Devices in one import, and of a page of an export.
const CHUNK: usize = 500;
/// The 99 % of writes, of those before.
const GOAL_P99: f64 = 2.0;
/// The time of a read beside deleted devices, of that beside living ones.
const GOAL_READ: f64 = 1.2;
const PHASES: [&str; 4] = ["before", "while devices are deleted", "after it", "after a restart"];

pub(super) async fn run(args: &BenchAgeArgs) -> Result<Finished, CommandError> {
    let (mut report, mut runs) = (Report::new("age"), Vec::new());
    for run in 1..=args.common.runs {
        progress(format!("run {run} of {}: {} devices", args.common.runs, args.devices));
        let folder = temporary(args.dir.as_deref())?;
        let aged = Aging::new(folder.path(), args.devices).await?.run().await?;
        report.answered("devices that are left, with their subscriptions", aged.left)?;
        runs.push(aged);
    }
    for (what, of) in [("event", 0), ("publication", 1)] {
        let p99 = |phase: usize| column(&runs, |aged| aged.phases[phase][of].p99);
        for (phase, name) in PHASES.iter().enumerate() {
            report.measure(format!("{what}, p99, {name}"), "ms", p99(phase));
            report.measure(
                format!("{what}, longest, {name}"),
                "ms",
                column(&runs, |aged| aged.phases[phase][of].longest),
            );
        }
        for (phase, name) in PHASES.iter().enumerate().skip(1) {
            let goal = Goal::AtMost(GOAL_P99);
            report.judge(format!("{what}, p99, {name}, of before"), "×", ratios(&p99(phase), &p99(0)), goal);
        }
    }
    for (place, what) in ["a device", "its subscriptions", "a page of an export, each device"].iter().enumerate() {
        let (before, after) = (column(&runs, |aged| aged.reads[0][place]), column(&runs, |aged| aged.reads[1][place]));
        let of = ratios(&after, &before);
        report.measure(format!("reading {what}, neighbours alive"), "µs", before);
        report.measure(format!("reading {what}, neighbours deleted"), "µs", after);
        report.judge(format!("reading {what}, of neighbours alive"), "×", of, Goal::AtMost(GOAL_READ));
    }
    report.note(format!(
        "{} devices with {SUBSCRIPTION_COUNT} subscriptions each; one in {KEPT_ONE_IN} is kept. Times of writes are those from \
         when they were due, one of each every {} ms.",
        args.devices,
        PACE.as_millis()
    ));
    report.finish()
}

/// Milliseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    p99: f64,
    longest: f64,
}

/// What one run has measured.
struct Aged {
    /// By phase: of events, and of publications.
    phases: Vec<[Times; 2]>,
    /// Microseconds, with neighbours alive and deleted: a device, its subscriptions, a page of an export.
    reads: [[f64; 3]; 2],
    left: Digest,
}

struct Aging<'a> {
    folder: &'a Path,
    store: Store,
    device_count: u32,
    writes: u64,
}

fn device_id(number: u32) -> DeviceId {
    DeviceId::new(&format!("device-{number:08}")).expect("a legal id")
}

fn is_kept(number: u32) -> bool {
    number.is_multiple_of(KEPT_ONE_IN)
}

fn import(number: u32) -> NewImport {
    let app = AppId::new("com.example.bench").expect("a legal app");
    let device = NewDevice::new(device_id(number), app, Platform::Ios, Locale::new("en").expect("a legal locale"));
    let topic = TopicName::new("goal").expect("a legal topic");
    let subject = |place| Subject::new(&format!("team:{}", (number + place) % 1000)).expect("a legal subject");
    let subscriptions = (0..SUBSCRIPTION_COUNT).map(|place| (subject(place), topic.clone())).collect();
    NewImport { subscriptions, ..device.into() }
}

impl<'a> Aging<'a> {
    /// A store with all devices, opened anew: so its rows are in files at the first reads, as they are at the last ones.
    async fn new(folder: &'a Path, device_count: u32) -> Result<Self, CommandError> {
        let store = store::open(folder).await?;
        for first in (0..device_count).step_by(CHUNK) {
            let devices = (first..device_count.min(first + CHUNK as u32)).map(import).collect();
            let imported = store.import_devices(devices, None, unix_now()).await;
            imported.map_err(|error| failed_by("an import was refused", &error))?;
        }
        store.close().await;
        let store = store::open(folder).await?;
        Ok(Self { folder, store, device_count, writes: 0 })
    }

    async fn run(mut self) -> Result<Aged, CommandError> {
        let alive = self.read()?;
        let mut phases = vec![self.write_for(PHASES[0], BEFORE).await?];
        phases.push(self.delete().await?);
        phases.push(self.write_for(PHASES[2], AFTER).await?);
        self.store.close().await;
        self.store = store::open(self.folder).await?;
        phases.push(self.write_for(PHASES[3], AFTER).await?);
        let (reads, left) = ([alive, self.read()?], self.left()?);
        self.store.close().await;
        Ok(Aged { phases, reads, left })
    }

    async fn write_for(&mut self, phase: &str, time: Duration) -> Result<[Times; 2], CommandError> {
        self.write_beside(phase, tokio::time::sleep(time)).await
    }

    async fn delete(&mut self) -> Result<[Times; 2], CommandError> {
        let (store, device_count) = (self.store.clone(), self.device_count);
        let mut deleting = JoinSet::new();
        deleting.spawn(async move {
            let mut pulse = interval(Duration::from_secs(1) / (DELETED_PER_SECOND / 30));
            pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let gone: Vec<u32> = (0..device_count).filter(|number| !is_kept(*number)).collect();
            for some in gone.chunks(30) {
                pulse.tick().await;
                let mut deletions = JoinSet::new();
                for &number in some {
                    let store = store.clone();
                    deletions.spawn(async move { store.delete_device(&device_id(number), Precondition::None).await });
                }
                if deletions.join_all().await.iter().any(|deleted| *deleted != Ok(true)) {
                    return Err(failed("a device was not deleted"));
                }
            }
            Ok(())
        });
        let mut ended = None;
        let times = self.write_beside(PHASES[1], async { ended = deleting.join_next().await }).await?;
        ended.expect("it was waited for").map_err(|error| failed_by("the deleting task ended", &error))??;
        Ok(times)
    }

    /// Writes an event and a publication at each [`PACE`] until `end`.
    async fn write_beside(&mut self, phase: &str, end: impl Future<Output = ()>) -> Result<[Times; 2], CommandError> {
        progress(phase);
        let (mut pulse, mut writes) = (interval(PACE), JoinSet::new());
        pulse.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => break,
                due = pulse.tick() => {
                    self.writes += 1;
                    writes.spawn(append(self.store.clone(), self.writes, due));
                    writes.spawn(publish(self.store.clone(), self.writes, due));
                    self.store.trim(self.store.journal_end());
                }
            }
        }
        let mut times = [Vec::new(), Vec::new()];
        for written in writes.join_all().await {
            let (of, time) = written?;
            times[of].push(millis(time));
        }
        Ok(times.map(|mut of| Times { longest: of.iter().copied().fold(0.0, f64::max), p99: quantile(&mut of, 0.99) }))
    }

    /// Microseconds of reading a kept device, its subscriptions, and of each device of an export.
    fn read(&self) -> Result<[f64; 3], CommandError> {
        let kept: Vec<DeviceId> = (0..self.device_count).filter(|number| is_kept(*number)).map(device_id).collect();
        let (mut next, mut missing) = (0, 0);
        let mut each = |read: &dyn Fn(&DeviceId) -> usize| {
            let per_second = times_per_second(|| {
                missing += usize::from(read(&kept[next % kept.len()]) == 0);
                next += 7919; // Not one beside the other.
            });
            1e6 / per_second
        };
        let device = each(&|id| usize::from(self.store.device(id).is_ok_and(|device| device.is_some())));
        let subscriptions =
            each(&|id| self.store.subscriptions(id).map_or(0, |found| found.map_or(0, |all| all.len())));
        let mut exported = 0;
        let per_second = times_per_second(|| {
            exported += self.store.export(None, CHUNK).map_or(0, |page| page.devices.len());
        });
        let page = self.store.export(None, CHUNK).map_err(|error| failed_by("cannot export", &error))?;
        if missing > 0 || exported == 0 {
            return Err(failed(format!("{missing} devices or subscriptions were not found, {exported} were exported")));
        }
        Ok([device, subscriptions, 1e6 / per_second / page.devices.len() as f64])
    }

    /// The devices that are left.
    fn left(&self) -> Result<Digest, CommandError> {
        let mut left = Digest::default();
        for number in 0..self.device_count {
            let found =
                self.store.subscriptions(&device_id(number)).map_err(|error| failed_by("cannot read", &error))?;
            if found.is_some() != is_kept(number) {
                return Err(failed(format!("device {number} is there or not, and should not be so")));
            }
            if let Some(found) = found {
                left.add(format!("{number}: {}", found.len()).as_bytes());
            }
        }
        Ok(left)
    }
}

async fn append(store: Store, number: u64, due: Instant) -> Result<(usize, Duration), CommandError> {
    let subjects = vec![Subject::new("match:1").expect("a legal subject")];
    let id = EventId::new(&format!("event-{number}")).expect("a legal id");
    let event = Event::new(id, TopicName::new("goal").expect("a legal topic"), subjects);
    let new = NewEvent { event, channels: Vec::new(), audience_max: None };
    let appended = store.append_events(vec![new], unix_now()).await;
    appended.map_err(|error| failed_by("an event was refused", &error))?;
    Ok((0, due.elapsed()))
}

async fn publish(store: Store, number: u64, due: Instant) -> Result<(usize, Duration), CommandError> {
    let channel = DurableChannel {
        name: ChannelName::new("chat:1").expect("a legal channel"),
        history_size: 100,
        history_ttl: Duration::from_secs(60),
        has_texts: false,
    };
    let published = store.append_publication(channel, Json::of(&number), BTreeMap::new(), None, unix_now()).await;
    published.map_err(|error| failed_by("a publication was refused", &error))?;
    Ok((1, due.elapsed()))
}
