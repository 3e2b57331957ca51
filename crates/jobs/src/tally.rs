//! A job's counts: devices by outcome; devices that a gateway has settled also by provider, app and language.
//!
//! Bound: [`PART_COUNT_MAX`] parts per job, and at most texts × lanes. Beyond that, devices are in the totals only.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_types::{AppId, Locale, Provider, TimeTo};

use crate::latency::Latency;
use crate::outcome::{Counts, DeviceOutcome};

/// Parts that a job tells apart.
pub(crate) const PART_COUNT_MAX: usize = 512;

/// The cell of devices that no part counts.
const NO_PART: u16 = u16::MAX;

const _: () = assert!(PART_COUNT_MAX < NO_PART as usize);

/// The outcomes of one job's notifications for the devices of one app, in one language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPart {
    /// Their provider.
    pub provider: Provider,
    /// The devices' app.
    pub app: AppId,
    /// The language of the text; `None` is the source language of the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<Locale>,
    /// Devices by outcome. A device that was not handed out is in no part.
    pub counts: Counts,
}

/// The counts of one job.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Devices by outcome.
    pub counts: Counts,
    /// By cell.
    pub parts: Vec<JobPart>,
    /// Attempts that failed and were repeated.
    pub retried: u64,
    pub(crate) latency: Option<Box<Latency>>,
    /// The same by provider; of those that have answered.
    pub(crate) by_provider: Vec<(Provider, Latency)>,
}

impl Tally {
    /// The cell of a part, which is its index. A new part is made if there is room.
    pub fn cell(&mut self, provider: Provider, app: &AppId, locale: Option<&Locale>) -> u16 {
        let is_it = |part: &JobPart| (part.provider, &part.app, part.locale.as_ref()) == (provider, app, locale);
        if let Some(index) = self.parts.iter().position(is_it) {
            return index as u16;
        }
        if self.parts.len() >= PART_COUNT_MAX {
            return NO_PART;
        }
        let (app, locale) = (app.clone(), locale.cloned());
        self.parts.push(JobPart { provider, app, locale, counts: Counts::default() });
        (self.parts.len() - 1) as u16
    }

    /// Also counts a device in its part; returns the provider.
    pub fn count_part(&mut self, cell: u16, outcome: DeviceOutcome) -> Option<Provider> {
        let part = self.parts.get_mut(usize::from(cell))?;
        part.counts.add(outcome, 1);
        Some(part.provider)
    }

    /// A provider has answered for a device.
    pub(crate) fn answered(&mut self, provider: Option<Provider>, after: Duration) {
        self.latency.get_or_insert_default().record(after);
        let Some(provider) = provider else { return };
        let at = self.by_provider.iter().position(|(known, _)| *known == provider).unwrap_or_else(|| {
            self.by_provider.push((provider, Latency::default()));
            self.by_provider.len() - 1
        });
        self.by_provider[at].1.record(after);
    }

    /// When each provider's answers came; of those that have answered.
    pub fn time_to_by(&self) -> Vec<(Provider, TimeTo)> {
        let times = self.by_provider.iter();
        times.filter_map(|(provider, latency)| Some((*provider, latency.time_to()?))).collect()
    }

    /// `None` before the first answer.
    pub fn time_to(&self) -> Option<TimeTo> {
        self.latency.as_ref().and_then(|latency| latency.time_to())
    }

    #[cfg(test)]
    pub(crate) fn answered_after(&mut self, latency: Duration) {
        self.answered(Some(Provider::Fcm), latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_part_of_its_own_is_still_counted_by_the_caller() {
        let mut tally = Tally::default();
        let app = AppId::new("app").unwrap();
        for index in 0..PART_COUNT_MAX {
            let app = AppId::new(&format!("app-{index}")).unwrap();
            assert_eq!(usize::from(tally.cell(Provider::Fcm, &app, None)), index);
        }
        assert_eq!(tally.cell(Provider::Fcm, &AppId::new("app-7").unwrap(), None), 7);
        let none = tally.cell(Provider::Fcm, &app, None);
        assert_eq!((none, tally.count_part(none, DeviceOutcome::Accepted)), (NO_PART, None));
        assert_eq!(tally.count_part(7, DeviceOutcome::Accepted), Some(Provider::Fcm));
        assert_eq!(tally.parts[7].counts.accepted(), 1);
    }
}
