//! The outcomes of devices in a job, and their counts.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tidings_push::{Outcome, Reason};
use tidings_types::words;

/// The outcome of one selected device in one job: exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceOutcome {
    /// The provider took the notification.
    Accepted,
    /// The device proved in time that it got the event over a live connection, so it was not pushed.
    Received,
    /// The provider refused it for good.
    Rejected(Reason),
    /// It was not handed out, for this reason.
    Suppressed(Suppression),
    /// The event expired before a provider took it.
    Expired,
    /// The job was cancelled before a provider took it.
    Cancelled,
    /// A newer event with the same collapse key took its place before a provider took it.
    Superseded,
    /// The event expired, or the job was cancelled or superseded, after an attempt without an answer.
    Unknown,
}

words! {
    /// Why a selected device is not sent to.
    pub enum Suppression {
        /// The device has no token, or its provider said that the token is gone.
        NoToken = "no_token",
        /// The device was deleted after it was selected.
        Gone = "gone",
        /// The device was registered after the event was accepted.
        RegisteredLater = "registered_later",
        /// The device changed after it was selected, and the event's `filter` no longer admits it.
        Filtered = "filtered",
        /// No section of `[apns]`, `[fcm]` or `[web_push]` is for its app (for Apple: for its app and `environment`).
        NoPool = "no_pool",
        /// The topic or its texts were changed after the event was accepted, or the event is damaged on disk: there is nothing
        /// to say.
        NoText = "no_text",
        /// Shadow mode is on, and the device is not among those that are pushed.
        Shadow = "shadow",
        /// The event is a dry run, and the provider offers no validation.
        DryRun = "dry_run",
        /// `expect_audience` or `audience_max` does not allow an audience of this size, so nobody is pushed.
        UnexpectedAudience = "unexpected_audience",
        /// The device says `"push_permission": "denied"`: the provider would take the push, and nobody would see it.
        NoPermission = "no_permission",
        /// A bug of Tidings kept the device from being told. The log says where.
        Panicked = "panicked",
        /// The topic says `missing = "skip"`, and the device's language has no whole translation.
        Untranslated = "untranslated",
    }
}

const REASONS_FROM: usize = 6;
const SUPPRESSIONS_FROM: usize = REASONS_FROM + Reason::ALL.len();

/// How many different outcomes there are.
pub const OUTCOME_COUNT: usize = SUPPRESSIONS_FROM + Suppression::ALL.len();

impl DeviceOutcome {
    /// Every outcome there is.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Accepted, Self::Received, Self::Expired, Self::Cancelled, Self::Unknown, Self::Superseded]
            .into_iter()
            .chain(Reason::ALL.iter().copied().map(Self::Rejected))
            .chain(Suppression::ALL.iter().copied().map(Self::Suppressed))
    }

    /// What its kind means, in a sentence or two.
    pub fn about(self) -> &'static str {
        match self {
            Self::Accepted => "The provider took the notification.",
            Self::Received => "The device proved over a live connection that it has the event, so it was not pushed.",
            Self::Rejected(_) => "The provider refused the notification for good, for one of the reasons below.",
            Self::Suppressed(_) => "The device was not handed to a provider, for one of the reasons below.",
            Self::Expired => "The event's `ttl` ended before a provider took the notification.",
            Self::Cancelled => "The event was cancelled before a provider took the notification.",
            Self::Superseded => "A newer event with the same `collapse_key` took its place.",
            Self::Unknown => "It was sent, no answer came, and it could not be repeated.",
        }
    }

    /// Its kind, for metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Received => "received",
            Self::Rejected(_) => "rejected",
            Self::Suppressed(_) => "suppressed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
            Self::Unknown => "unknown",
        }
    }

    /// The reason, if the kind has several; else empty.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Rejected(reason) => reason.as_str(),
            Self::Suppressed(why) => why.as_str(),
            _ => "",
        }
    }

    /// Whether the provider has answered.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Accepted | Self::Rejected(_))
    }

    /// Its index in [`DeviceOutcome::all`].
    pub fn index(self) -> usize {
        match self {
            Self::Accepted => 0,
            Self::Received => 1,
            Self::Expired => 2,
            Self::Cancelled => 3,
            Self::Unknown => 4,
            Self::Superseded => 5,
            Self::Rejected(reason) => REASONS_FROM + reason.index(),
            Self::Suppressed(why) => SUPPRESSIONS_FROM + why as usize,
        }
    }

    /// Its name in a row: `accepted`, `rejected/Unregistered`.
    fn name(self) -> String {
        match self.reason() {
            "" => self.as_str().to_owned(),
            reason => format!("{}/{reason}", self.as_str()),
        }
    }
}

impl From<Outcome> for DeviceOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Accepted => Self::Accepted,
            Outcome::Rejected(reason) => Self::Rejected(reason),
            Outcome::Expired => Self::Expired,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Superseded => Self::Superseded,
            Outcome::Unknown => Self::Unknown,
        }
    }
}

/// The number of devices by outcome. Takes memory only for outcomes that occur. Its serde form is by name:
/// `{"accepted": 2, "rejected/Unregistered": 1}`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Counts {
    /// Index of the outcome, and how many. Invariant: in the order of indexes, none twice, no zeros.
    counts: Vec<(u16, u64)>,
}

impl Counts {
    /// Devices with this outcome.
    pub fn of(&self, outcome: DeviceOutcome) -> u64 {
        self.find(outcome.index()).map_or(0, |at| self.counts[at].1)
    }

    /// Devices the provider took a notification for.
    pub fn accepted(&self) -> u64 {
        self.of(DeviceOutcome::Accepted)
    }

    /// Devices that got it over a live connection and were spared the push.
    pub fn received(&self) -> u64 {
        self.of(DeviceOutcome::Received)
    }

    /// Devices the provider refused, for whatever reason.
    pub fn rejected(&self) -> u64 {
        self.sum(REASONS_FROM..SUPPRESSIONS_FROM)
    }

    /// Devices not sent to, for whatever reason.
    pub fn suppressed(&self) -> u64 {
        self.sum(SUPPRESSIONS_FROM..OUTCOME_COUNT)
    }

    /// Devices for which the event's time was over.
    pub fn expired(&self) -> u64 {
        self.of(DeviceOutcome::Expired)
    }

    /// All devices.
    pub fn total(&self) -> u64 {
        self.sum(0..OUTCOME_COUNT)
    }

    /// What was counted, without zeros.
    pub fn iter(&self) -> impl Iterator<Item = (DeviceOutcome, u64)> {
        let mut rest = self.counts.iter().peekable();
        DeviceOutcome::all().enumerate().filter_map(move |(index, outcome)| {
            let (_, count) = rest.next_if(|(next, _)| usize::from(*next) == index)?;
            Some((outcome, *count))
        })
    }

    /// Adds `count` devices.
    pub fn add(&mut self, outcome: DeviceOutcome, count: u64) {
        if count == 0 {
            return;
        }
        let index = outcome.index();
        match self.find(index) {
            Ok(at) => self.counts[at].1 += count,
            Err(at) => self.counts.insert(at, (index as u16, count)),
        }
    }

    /// Where an outcome is in `counts`, or would be.
    fn find(&self, index: usize) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&index, |(index, _)| usize::from(*index))
    }

    fn sum(&self, indexes: Range<usize>) -> u64 {
        self.counts.iter().filter(|(index, _)| indexes.contains(&usize::from(*index))).map(|(_, count)| count).sum()
    }
}

impl From<Counts> for BTreeMap<String, u64> {
    fn from(counts: Counts) -> Self {
        counts.iter().map(|(outcome, count)| (outcome.name(), count)).collect()
    }
}

impl TryFrom<BTreeMap<String, u64>> for Counts {
    type Error = String;

    fn try_from(named: BTreeMap<String, u64>) -> Result<Self, String> {
        let mut counts = Self::default();
        for (name, count) in named {
            let outcome = DeviceOutcome::all().find(|outcome| outcome.name() == name);
            counts.add(outcome.ok_or_else(|| format!("unknown outcome {name:?}"))?, count);
        }
        Ok(counts)
    }
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(outcome, count)| (outcome.name(), count))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_index_and_name() {
        let mut counts = Counts::default();
        for (index, outcome) in DeviceOutcome::all().enumerate() {
            assert_eq!(outcome.index(), index, "{outcome:?}");
            counts.add(outcome, index as u64 + 1);
        }
        assert_eq!(DeviceOutcome::all().count(), OUTCOME_COUNT);
        let named = BTreeMap::from(counts.clone());
        assert_eq!(named.len(), OUTCOME_COUNT, "each has a name of its own");
        assert_eq!(Counts::try_from(named), Ok(counts.clone()));
        assert!(counts.iter().eq(DeviceOutcome::all().zip(1..)), "each has an index of its own");
        let rest = counts.accepted() + counts.expired() + counts.of(DeviceOutcome::Cancelled);
        let rest = rest + counts.received() + counts.of(DeviceOutcome::Unknown) + counts.of(DeviceOutcome::Superseded);
        assert_eq!(counts.total(), rest + counts.rejected() + counts.suppressed());
        assert!(Counts::try_from(BTreeMap::from([("lost".to_owned(), 1)])).is_err());
    }
}
