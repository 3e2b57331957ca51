//! Pauses and cancelled jobs: durable rows that the sender watches.
//!
//! [`Store::brakes`](crate::Store::brakes) shows the state of the last commit, from the opening of the store on. Only the
//! sender knows what a pause or a cancelled job means.
//!
//! Each change makes a new [`Brakes`], and readers keep the old one as long as they need it. Both share all unchanged
//! parts, so the cost of a change does not depend on the number of cancelled jobs: see [`PositionSet`].

use std::collections::BTreeMap;
use std::sync::Arc;

use self::positions::PositionSet;
use tidings_types::{BrakeScope, Timestamp};

pub(crate) mod positions;
pub(crate) mod rows;
mod write;

/// Scopes that may be paused at once. At this many, [`Store::pause`](crate::Store::pause) refuses further ones.
pub const PAUSE_COUNT_MAX: usize = 10_000;

/// The paused scopes and the cancelled jobs. A clone copies two pointers.
///
/// Bound: [`PAUSE_COUNT_MAX`] scopes, and as many positions as the journal has events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brakes {
    /// The paused scopes, and since when. `Everything` since 0 means that a pause could not be read when the store was
    /// opened, so its scope is unknown.
    pub paused: Arc<BTreeMap<BrakeScope, Timestamp>>,
    /// Events whose jobs are cancelled. They stay until the row of the finished job or the event is deleted.
    pub cancelled: PositionSet,
}

impl Brakes {
    /// Whether exactly this scope is paused. A notification has several scopes; the caller asks for each.
    pub fn is_paused(&self, scope: &BrakeScope) -> bool {
        self.paused.contains_key(scope)
    }
}
