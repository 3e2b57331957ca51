//! Many devices at a time: imports the whole data set; later imports and exports devices while an audience is selected,
//! and looks devices up by their tokens.

use std::time::Duration;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_store::{Exported, NewImport, Store};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, Mute, TopicName};
use tokio::time::Instant;

use super::bench::Bench;
use super::data::{self, Data};
use super::select::{Audience, Selecting};
use super::update;
use crate::checksum::Digest;
use crate::report::progress;

/// Devices of one request.
const IMPORT_COUNT: u32 = 10_000;
const EXPORT_COUNT: usize = 1_000;
/// Devices of which one request contains those that mute.
const MUTE_STEP: u32 = 100_000;
/// Devices imported, and devices exported, in a run during selection, at most.
const BESIDE_COUNT_MAX: u32 = 50_000;
/// How long a run looks tokens up.
const LOOK_UP_WINDOW: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });

/// Imports every device of a data set with its subscriptions.
pub(super) async fn import_all(data: &Data, store: &Store) -> Result<(), CommandError> {
    for start in (0..data.device_count).step_by(IMPORT_COUNT as usize) {
        if start % 500_000 == 0 {
            progress(format!("import: {start} of {} devices", data.device_count));
        }
        let end = data.device_count.min(start + IMPORT_COUNT);
        import(store, (start..end).map(|device| data.import(device)).collect()).await?;
    }
    Ok(())
}

/// Waits until the records of the devices are stored in the order in which they are read.
pub(super) async fn order(store: &Store) -> Result<(), CommandError> {
    const DEADLINE: Duration = Duration::from_secs(900);
    progress("putting records in order");
    let mut looks = tokio::time::interval(Duration::from_millis(250));
    let ordered = async {
        loop {
            looks.tick().await;
            let counts = store.counts();
            if counts.heap_scattered_bytes < counts.heap_live_bytes / 16 || counts.heap_scattered_bytes == 0 {
                return;
            }
        }
    };
    let late = |_| failed(format!("records are not in order after {} s", DEADLINE.as_secs()));
    tokio::time::timeout(DEADLINE, ordered).await.map_err(late)
}

async fn import(store: &Store, devices: Vec<NewImport>) -> Result<(), CommandError> {
    let imported = store.import_devices(devices, None, unix_now()).await;
    imported.map(|_| ()).map_err(|error| failed_by("cannot import", &error))
}

impl Bench<'_> {
    /// Imports the data set into an empty store.
    pub(super) async fn import(&mut self, store: &Store) -> Result<(), CommandError> {
        let began = Instant::now();
        import_all(self.data, store).await?;
        let rate = self.subscription_count as f64 / began.elapsed().as_secs_f64();
        self.device_count = self.data.device_count.into();
        self.report.measure("import, durable", "subscriptions/s", vec![rate]);
        let began = Instant::now();
        order(store).await?;
        self.report.measure("import: put in order", "s", vec![began.elapsed().as_secs_f64()]);
        let counts = store.counts();
        let imported = Digest::of_numbers([counts.devices, counts.subscriptions]);
        self.report.answered("devices and subscriptions imported", imported)?;
        self.check_counts(store)
    }

    /// Of a hundred devices, one mutes everything, one the most popular subject, and one the least popular.
    pub(super) async fn mute(&mut self, store: &Store) -> Result<(), CommandError> {
        progress("muting");
        let muted = |device| {
            let scope = self.data.mute(device)?;
            Some(NewImport { mutes: vec![Mute { scope, until: None }], ..self.data.import(device) })
        };
        for start in (0..self.data.device_count).step_by(MUTE_STEP as usize) {
            let end = self.data.device_count.min(start + MUTE_STEP);
            import(store, (start..end).filter_map(muted).collect()).await?;
        }
        self.check_counts(store)
    }

    /// Looks devices up by their tokens, one after the other.
    pub(super) fn look_up(&mut self, store: &Store) -> Result<(), CommandError> {
        let mut rates = Vec::new();
        for run in 1..=self.runs {
            progress(format!("looking tokens up, run {run}"));
            let (began, mut count) = (Instant::now(), 0_u64);
            while began.elapsed() < LOOK_UP_WINDOW {
                // Devices in a scattered order, none twice.
                let device = update::device(count, self.data.device_count);
                let found = store.device_by_token(&self.data.token(device));
                let found = found.map_err(|error| failed_by("cannot look a token up", &error))?;
                if found.is_none_or(|found| data::device_of(found.id.as_str()) != Some(device)) {
                    return Err(failed(format!("device {device} was not found by its token")));
                }
                count += 1;
            }
            rates.push(count as f64 / began.elapsed().as_secs_f64());
        }
        self.report.measure("token looked up, one thread", "1/s", rates);
        Ok(())
    }

    /// Imports devices and exports others while an audience is selected again and again.
    pub(super) async fn bulk(&mut self, busy: &Audience, store: &Store) -> Result<(), CommandError> {
        let count = (self.data.device_count / 10).min(BESIDE_COUNT_MAX);
        let (mut imports, mut exports, mut selecting) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=self.runs {
            progress(format!("import and export of {count} devices, run {run}"));
            let thread = Selecting::start(busy, store);
            let began = Instant::now();
            let imported = self.import_late((run - 1) * count, count, store).await?;
            imports.push(imported as f64 / began.elapsed().as_secs_f64());
            let began = Instant::now();
            let exported = export(self.data, count as usize, store)?;
            exports.push(exported as f64 / began.elapsed().as_secs_f64());
            selecting.extend(thread.stop().await?);
        }
        let meanwhile = format!("while selecting {}", busy.len);
        self.report.measure(format!("import {meanwhile}, durable"), "subscriptions/s", imports);
        self.report.measure(format!("export {meanwhile}"), "subscriptions/s", exports);
        self.report.measure("import and export: all handed out", "ms", selecting);
        self.check_counts(store)
    }

    /// Imports devices that are not in the data set and in no audience. Returns the number of their subscriptions.
    async fn import_late(&mut self, first: u32, count: u32, store: &Store) -> Result<u64, CommandError> {
        let app = AppId::new("com.example.late").expect("a legal app");
        let topic = TopicName::new("late").expect("a legal topic");
        let late = |number: u32| {
            let mut late = self.data.import(self.data.device_count + number);
            late.device.id = DeviceId::new(&format!("late-{number}")).expect("a legal id");
            late.device.app = app.clone();
            late.subscriptions.iter_mut().for_each(|(_, it)| *it = topic.clone());
            late.subscriptions.sort_unstable();
            late.subscriptions.dedup(); // Two topics of one subject became the same topic.
            late
        };
        let mut subscription_count = 0;
        for start in (first..first + count).step_by(IMPORT_COUNT as usize) {
            let devices: Vec<_> = (start..(first + count).min(start + IMPORT_COUNT)).map(late).collect();
            subscription_count += devices.iter().map(|it| it.subscriptions.len() as u64).sum::<u64>();
            import(store, devices).await?;
        }
        self.device_count += u64::from(count);
        self.subscription_count += subscription_count;
        Ok(subscription_count)
    }
}

/// Exports devices of the data set and compares them with it. Returns the number of their subscriptions.
fn export(data: &Data, count: usize, store: &Store) -> Result<u64, CommandError> {
    let mut after = DeviceId::new("phone").expect("a legal id"); // Sorts before all of them.
    let (mut exported_count, mut subscription_count) = (0, 0);
    while exported_count < count {
        let limit = EXPORT_COUNT.min(count - exported_count);
        let exported = store.export(Some(&after), limit);
        let exported = exported.map_err(|error| failed_by("cannot export devices", &error))?.devices;
        let Some(last) = exported.last() else {
            return Err(failed(format!("{exported_count} of {count} devices were exported")));
        };
        after = last.device.id.clone();
        exported_count += exported.len();
        for one in &exported {
            check_exported(data, one)?;
            subscription_count += one.subscriptions.len() as u64;
        }
    }
    Ok(subscription_count)
}

/// Checks that a device has everything it was imported with, and nothing else except what the writers added.
fn check_exported(data: &Data, exported: &Exported) -> Result<(), CommandError> {
    let id = &exported.device.id;
    let device = data::device_of(id.as_str()).filter(|&device| device < data.device_count);
    let device = device.ok_or_else(|| failed(format!("{id} was exported but never imported")))?;
    let mut left: Vec<_> = data.subscriptions(device).collect();
    for (subject, topic) in &exported.subscriptions {
        match left.iter().position(|&it| it == (subject, topic)) {
            Some(place) => {
                left.swap_remove(place);
            }
            None if update::is_of_a_change(subject) => {}
            None => return Err(failed(format!("{id} was exported with a subscription that it does not have"))),
        }
    }
    if !left.is_empty() || exported.device.token.as_ref() != Some(&data.token(device)) {
        return Err(failed(format!("{id} was exported without its token or a subscription")));
    }
    Ok(())
}
