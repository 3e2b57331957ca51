//! The state of this benchmark.

use tidings_server::command_error::{CommandError, failed};
use tidings_store::Store;

use super::data::Data;
use super::goals::Goals;
use crate::report::Report;

/// What is measured, and what the store contains now.
pub(super) struct Bench<'a> {
    pub(super) data: &'a Data,
    pub(super) goals: Goals,
    pub(super) runs: u32,
    /// Devices in the store.
    pub(super) device_count: u64,
    /// Subscriptions in the store.
    pub(super) subscription_count: u64,
    /// Updates made so far.
    pub(super) update_count: u64,
    pub(super) report: Report,
}

impl<'a> Bench<'a> {
    pub(super) fn new(data: &'a Data, goals: Goals, runs: u32) -> Self {
        let report = Report::new("audience");
        Self { data, goals, runs, device_count: 0, subscription_count: 0, update_count: 0, report }
    }

    /// Checks that the store has everything that was written.
    pub(super) fn check_counts(&self, store: &Store) -> Result<(), CommandError> {
        let counts = store.counts();
        if (counts.devices, counts.subscriptions) == (self.device_count, self.subscription_count) {
            return Ok(());
        }
        Err(failed(format!(
            "the store has {} of {} devices, {} of {} subscriptions",
            counts.devices, self.device_count, counts.subscriptions, self.subscription_count
        )))
    }
}
