//! The index alone, without a store: its memory, and its changes per second.

use tidings_audience::{Index, Traits};
use tidings_server::command_error::{CommandError, failed};
use tidings_types::DeviceNumber;
use tokio::time::Instant;

use super::super::process::Usage;
use super::super::report::Goal;
use super::bench::Bench;
use super::data::Kind;
use super::goals;
use crate::checksum::Digest;
use crate::report::progress;

/// Devices whose subscriptions are removed and inserted again in a run.
const CHANGED_DEVICE_COUNT: u32 = 100_000;

impl Bench<'_> {
    pub(super) fn measure_index(&mut self) -> Result<(), CommandError> {
        progress(format!("the index alone: subscriptions of {} devices", self.data.device_count));
        let before = Usage::now()?;
        let mut index = Index::new();
        let mut count = 0;
        for device in 0..self.data.device_count {
            let Kind { platform, locale, country } = self.data.kind(device);
            let traits = Traits { platform, app: &self.data.app, locale, country: Some(country), user: None };
            index.set_device(DeviceNumber(device), None, Some(traits));
            for (subject, topic) in self.data.subscriptions(device) {
                count += u64::from(index.insert(DeviceNumber(device), subject, topic));
            }
        }
        let after = Usage::now()?;
        if count != index.subscription_count() {
            return Err(failed(format!("the index has {} of {count} subscriptions", index.subscription_count())));
        }
        self.report.answered("subscriptions of the index", Digest::of_numbers([count]))?;
        let grown = after.resident_bytes.saturating_sub(before.resident_bytes) as f64 / count as f64;
        let goal = self.goals.main(Goal::AtMost(goals::INDEX_BYTES));
        self.report.judge("index: memory", "B per subscription", vec![grown], goal);
        let nanos = (after.cpu - before.cpu).as_secs_f64() * 1e9 / count as f64;
        self.report.measure("index: building, per subscription", "ns", vec![nanos]);
        let rates = (0..self.runs).map(|_| self.change(&mut index)).collect::<Result<_, _>>()?;
        self.report.measure("index: live updates, one thread", "1/s", rates);
        self.subscription_count = count;
        Ok(())
    }

    /// Removes the subscriptions of devices all over the index and inserts them again. Returns the changes per second.
    fn change(&self, index: &mut Index) -> Result<f64, CommandError> {
        let count = self.data.device_count;
        let step = (count / CHANGED_DEVICE_COUNT).max(1) as usize;
        let changes: Vec<_> = (0..count)
            .step_by(step)
            .flat_map(|device| self.data.subscriptions(device).map(move |(subject, topic)| (device, subject, topic)))
            .collect();
        let began = Instant::now();
        let mut done = 0;
        for &(device, subject, topic) in &changes {
            done += usize::from(index.remove(DeviceNumber(device), subject, topic));
        }
        for &(device, subject, topic) in &changes {
            done += usize::from(index.insert(DeviceNumber(device), subject, topic));
        }
        let elapsed = began.elapsed().as_secs_f64();
        if done != 2 * changes.len() {
            return Err(failed(format!("{done} of {} changes of the index were made", 2 * changes.len())));
        }
        Ok(done as f64 / elapsed)
    }
}
