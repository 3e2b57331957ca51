//! An event and its outcomes, as the API reports them.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::Deserialize;

/// An event and its outcomes, as the API reports them.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) id: String,
    /// Absent while it is not due.
    #[serde(default)]
    pub(super) position: Option<u64>,
    #[serde(default)]
    pub(super) priority: Option<String>,
    pub(super) state: String,
    /// Only while it is not due.
    #[serde(default)]
    pub(super) at: Option<String>,
    #[serde(default)]
    pub(super) paused_by: Option<String>,
    #[serde(default)]
    pub(super) audience: u64,
    #[serde(default)]
    pub(super) held: u64,
    #[serde(default)]
    pub(super) retried: u64,
    #[serde(default)]
    pub(super) outcomes: Outcomes,
    #[serde(default)]
    pub(super) time_to: Option<TimeTo>,
    #[serde(default)]
    pub(super) time_to_by: BTreeMap<String, TimeTo>,
    #[serde(default)]
    pub(super) receipts: Option<Receipts>,
    #[serde(default)]
    pub(super) by: Vec<Part>,
}

impl Job {
    /// Whether nothing more comes of it. A state of a later version is none of these.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state.as_str(), "finished" | "cancelled" | "forgotten")
    }
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct Outcomes {
    pub(super) accepted: u64,
    pub(super) received: u64,
    pub(super) expired: u64,
    pub(super) unknown: u64,
    pub(super) cancelled: u64,
    pub(super) superseded: u64,
    pub(super) rejected: BTreeMap<String, u64>,
    pub(super) suppressed: BTreeMap<String, u64>,
}

/// When the provider's answers had come, in milliseconds.
#[derive(Debug, Deserialize)]
pub(super) struct TimeTo {
    pub(super) p50_ms: u64,
    pub(super) p90_ms: u64,
    pub(super) p99_ms: u64,
    pub(super) p100_ms: u64,
}

impl Display for TimeTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99, p100] =
            [self.p50_ms, self.p90_ms, self.p99_ms, self.p100_ms].map(|millis| millis as f64 / 1000.0);
        write!(f, "{p50:.2} s, {p90:.2} s, {p99:.2} s, {p100:.2} s")
    }
}

/// The devices of one provider, app and language.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    pub(super) provider: String,
    pub(super) app: String,
    #[serde(default)]
    pub(super) locale: Option<String>,
    pub(super) outcomes: Outcomes,
}

#[derive(Debug, Deserialize)]
pub(super) struct Receipts {
    pub(super) written: u64,
    pub(super) received: u64,
}

impl Outcomes {
    pub(super) fn total(&self) -> u64 {
        let pushed = self.accepted + self.expired + self.unknown + self.cancelled + self.superseded + self.refused();
        pushed + self.received + self.spared()
    }

    /// Those that a provider refused.
    pub(super) fn refused(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Those that were not sent to.
    pub(super) fn spared(&self) -> u64 {
        self.suppressed.values().sum()
    }
}
