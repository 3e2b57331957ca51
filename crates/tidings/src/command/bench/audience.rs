//! `bench audience`: how quickly an event's audience is found and handed out, and what keeping it durable costs.
//!
//! Everything is our own store as `serve` uses it, in a temporary folder: devices and subscriptions are imported,
//! audiences frozen and read window by window with their tokens, subscriptions changed by 64 writers at once, the
//! store closed and opened again. Memory per subscription is that of the index alone, built once without a store.
//!
//! The data is drawn from seeds (see [`data`]), so every audience is compared, device by device, with what a plain
//! walk over all devices says; after the changes and the opening nothing may be missing either.
//!
//! Warm only: everything selecting needs is in memory. One thread selects.

mod data;
mod select;
mod update;

use std::path::Path;

use tidings_audience::Index;
use tidings_store::{NewImport, Store};
use tidings_telemetry::unix_now;
use tidings_types::DeviceNumber;
use tokio::time::Instant;

use self::data::Data;
use self::select::Audience;
use super::process::Usage;
use super::report::{Goal, Report};
use super::{failed, failed_by, progress, store};
use crate::cli::BenchAudienceArgs;
use crate::command::CommandError;

/// Audiences looked for, with the goal for handing all of one out, in milliseconds.
const SIZES: [(u64, f64); 4] = [(10_000, 5.0), (400_000, 45.0), (1_300_000, 75.0), (4_000_000, 120.0)];
/// Until the first device of an audience is handed out, in milliseconds.
const GOAL_FIRST_MS: f64 = 1.0;
const GOAL_INDEX_BYTES: f64 = 5.0;
const GOAL_DISK_BYTES: f64 = 60.0;
const GOAL_UPDATES: f64 = 40_000.0;
const GOAL_UPDATES_SELECTING: f64 = 30_000.0;
const GOAL_UPDATE_P99_MS: f64 = 20.0;
/// Opening without a checkpoint, in seconds.
const GOAL_REBUILD_S: f64 = 15.0;
/// What the goals are stated for.
const GOAL_SUBSCRIPTIONS: u64 = 25_000_000;
/// Devices imported in one request.
const IMPORT_COUNT: u32 = 10_000;

pub(super) async fn run(args: &BenchAudienceArgs) -> Result<Report, CommandError> {
    let data = Data::new(args.subscriptions / data::SUBSCRIPTION_COUNT_MEAN);
    let mut report = Report::new("audience");
    progress(format!("the index alone: subscriptions of {} devices", data.device_count));
    let subscriptions = index_alone(&data, &mut report)?;

    let folder = folder(args.dir.as_deref())?;
    let store = store::open(folder.path()).await?;
    import(&data, &store, subscriptions, &mut report).await?;
    let audiences = select::find(&data, &store, &SIZES.map(|(size, _)| size))?;
    select(&audiences, &data, &store, args.common.runs, &mut report)?;
    let added = update(&audiences, &store, args.common.runs, &mut report).await?;
    let store = reopen(store, folder.path(), subscriptions + added, args.common.runs, &mut report).await?;
    // What was changed is about a subject of its own: the audiences are what they were.
    audiences.iter().try_for_each(|audience| audience.check(&data, &store))?;
    store.close().await;
    let size = disk_bytes(folder.path())? as f64;
    report.judge(
        "disk",
        "B per subscription",
        vec![size / (subscriptions + added) as f64],
        Goal::AtMost(GOAL_DISK_BYTES),
    );
    report.note(format!(
        "{subscriptions} subscriptions of {} devices; one thread selects, all is in memory.",
        data.device_count
    ));
    if subscriptions < GOAL_SUBSCRIPTIONS * 9 / 10 {
        report.note("Goals are stated for 25 M subscriptions; with fewer, opening and selecting are easier to reach.");
    }
    Ok(report)
}

fn folder(parent: Option<&Path>) -> Result<tempfile::TempDir, CommandError> {
    let folder = match parent {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir(),
    };
    folder.map_err(|error| failed_by("cannot make a temporary folder", &error))
}

/// Memory of the index for all subscriptions; tells how many there are.
fn index_alone(data: &Data, report: &mut Report) -> Result<u64, CommandError> {
    let before = Usage::now()?;
    let mut index = Index::new();
    let mut count = 0;
    for device in 0..data.device_count {
        for (subject, topic) in data.subscriptions(device) {
            count += u64::from(index.insert(DeviceNumber(device), subject, topic));
        }
    }
    let after = Usage::now()?;
    if count != index.subscription_count() {
        return Err(failed(format!("the index has {} of {count} subscriptions", index.subscription_count())));
    }
    let grown = after.resident_bytes.saturating_sub(before.resident_bytes) as f64;
    report.judge("index: memory", "B per subscription", vec![grown / count as f64], Goal::AtMost(GOAL_INDEX_BYTES));
    report.measure(
        "index: building, per subscription",
        "ns",
        vec![(after.cpu - before.cpu).as_secs_f64() * 1e9 / count as f64],
    );
    Ok(count)
}

/// Puts every device and its subscriptions into the store.
async fn import(data: &Data, store: &Store, subscriptions: u64, report: &mut Report) -> Result<(), CommandError> {
    let began = Instant::now();
    for start in (0..data.device_count).step_by(IMPORT_COUNT as usize) {
        if start % 500_000 == 0 {
            progress(format!("import: {start} of {} devices", data.device_count));
        }
        let end = data.device_count.min(start + IMPORT_COUNT);
        let import = |device| NewImport {
            device: data.device(device),
            subscriptions: data.owned_subscriptions(device),
            credential: None,
            proven: true,
        };
        let devices = (start..end).map(import).collect();
        store.import_devices(devices, unix_now()).await.map_err(|error| failed_by("cannot import", &error))?;
    }
    let elapsed = began.elapsed().as_secs_f64();
    let counts = store.counts();
    if (counts.devices, counts.subscriptions) != (data.device_count.into(), subscriptions) {
        return Err(failed(format!(
            "the store has {} devices, {} subscriptions",
            counts.devices, counts.subscriptions
        )));
    }
    report.measure("import, durable", "subscriptions/s", vec![subscriptions as f64 / elapsed]);
    Ok(())
}

fn select(
    audiences: &[Audience],
    data: &Data,
    store: &Store,
    runs: u32,
    report: &mut Report,
) -> Result<(), CommandError> {
    for audience in audiences {
        audience.check(data, store)?;
        let size = audience.len;
        progress(format!("selecting {size} devices, about {} subjects", audience.subject_count()));
        let timed: Vec<_> = (0..runs).map(|_| audience.hand_out(store)).collect::<Result<_, _>>()?;
        let millis = |field: fn(&select::Times) -> std::time::Duration| {
            timed.iter().map(|times| field(times).as_secs_f64() * 1e3).collect::<Vec<_>>()
        };
        let goal = SIZES.iter().find(|&&(wanted, _)| wanted == audience.wanted).map_or(f64::MAX, |&(_, goal)| goal);
        report.measure(format!("{size}: frozen"), "ms", millis(|times| times.frozen));
        report.judge(format!("{size}: first device"), "ms", millis(|times| times.first), Goal::AtMost(GOAL_FIRST_MS));
        report.judge(format!("{size}: all handed out"), "ms", millis(|times| times.all), Goal::AtMost(goal));
    }
    for (wanted, _) in SIZES {
        if audiences.iter().all(|audience| audience.wanted != wanted) {
            report.note(format!("Too few devices for an audience of {wanted}."));
        }
    }
    Ok(())
}

/// Durable updates, alone and while an audience is selected over and over; tells how many subscriptions were added.
async fn update(audiences: &[Audience], store: &Store, runs: u32, report: &mut Report) -> Result<u64, CommandError> {
    let mut added = 0;
    let busy = audiences.iter().rfind(|audience| audience.wanted <= 1_300_000);
    for selected in [None, busy] {
        let (mut rates, mut slow, mut selecting) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=runs {
            progress(format!("{} writers, run {run}", update::WRITER_COUNT));
            let done = update::measure(store, selected, added).await?;
            added += done.count;
            rates.push(done.rate);
            slow.push(done.p99_millis);
            selecting.extend(done.select_millis);
        }
        let (name, goal) = match selected {
            None => (String::new(), GOAL_UPDATES),
            Some(audience) => (format!(" while selecting {}", audience.len), GOAL_UPDATES_SELECTING),
        };
        let writers = update::WRITER_COUNT;
        report.judge(format!("{writers} writers{name}: durable updates"), "1/s", rates, Goal::AtLeast(goal));
        report.judge(format!("{writers} writers{name}: p99"), "ms", slow, Goal::AtMost(GOAL_UPDATE_P99_MS));
        report.measure(format!("{writers} writers{name}: all handed out"), "ms", selecting);
        if busy.is_none() {
            break;
        }
    }
    Ok(added)
}

/// Closes and opens the store; everything must still be there.
async fn reopen(
    mut store: Store,
    folder: &Path,
    subscriptions: u64,
    runs: u32,
    report: &mut Report,
) -> Result<Store, CommandError> {
    let mut seconds = Vec::new();
    for run in 1..=runs {
        progress(format!("opening again, run {run}"));
        let devices = store.counts().devices;
        store.close().await;
        let began = Instant::now();
        store = store::open(folder).await?;
        seconds.push(began.elapsed().as_secs_f64());
        let counts = store.counts();
        if (counts.devices, counts.subscriptions) != (devices, subscriptions) {
            return Err(failed(format!("{} of {subscriptions} subscriptions came back", counts.subscriptions)));
        }
    }
    report.judge("opening, everything rebuilt", "s", seconds, Goal::AtMost(GOAL_REBUILD_S));
    Ok(store)
}

/// What the files in a folder take, holes not counted.
fn disk_bytes(folder: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK_BYTES: u64 = 512; // The unit of st_blocks, whatever the file system's.
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { disk_bytes(&entry.path())? } else { meta.blocks() * BLOCK_BYTES };
    }
    Ok(sum)
}
