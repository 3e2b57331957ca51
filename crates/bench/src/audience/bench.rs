//! What this benchmark has done so far.

use tidings_server::command_error::{CommandError, failed};
use tidings_store::Store;

use super::data::Data;
use super::goals::Goals;
use crate::report::{Goal, Report};

/// What is measured, and what is in the store by now.
pub(super) struct Bench<'a> {
    pub(super) data: &'a Data,
    pub(super) goals: Goals,
    pub(super) runs: u32,
    /// In the store.
    pub(super) device_count: u64,
    pub(super) subscription_count: u64,
    /// Updates made.
    pub(super) update_count: u64,
    pub(super) report: Report,
}

impl<'a> Bench<'a> {
    pub(super) fn new(data: &'a Data, goals: Goals, runs: u32) -> Self {
        let report = Report::new("audience");
        Self { data, goals, runs, device_count: 0, subscription_count: 0, update_count: 0, report }
    }

    /// Measures, and judges where a goal is stated.
    pub(super) fn judge(&mut self, name: impl Into<String>, unit: &'static str, runs: Vec<f64>, goal: Option<Goal>) {
        match goal {
            Some(goal) => self.report.judge(name, unit, runs, goal),
            None => self.report.measure(name, unit, runs),
        }
    }

    /// Whether all that was written is there.
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
