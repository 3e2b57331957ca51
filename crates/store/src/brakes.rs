//! What an operator holds, as durable rows that others follow.
//!
//! [`Store::brakes`](crate::Store::brakes) shows them as of their last commit, from the opening of the store on. What it
//! means that something is paused or cancelled is the sender's to know.
//!
//! Each change makes a new [`Brakes`] and leaves the old one to whoever looks at it. Both share what did not change,
//! so a change costs the same however many jobs are cancelled: see [`PositionSet`].

use std::collections::BTreeMap;
use std::sync::Arc;

use self::positions::PositionSet;
use tidings_types::{BrakeScope, Timestamp};

pub(crate) mod positions;
pub(crate) mod rows;
mod write;

/// Scopes that may be paused at once; with more, [`Store::pause`](crate::Store::pause) refuses.
pub const PAUSE_COUNT_MAX: usize = 10_000;

/// What is paused and which jobs are cancelled. A clone costs two counters.
///
/// Bound: [`PAUSE_COUNT_MAX`] scopes, and as many positions as the journal has events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brakes {
    /// What is paused, since when. Everything since 0: a pause could not be read at open, and nobody knows what it held.
    pub paused: Arc<BTreeMap<BrakeScope, Timestamp>>,
    /// Events whose jobs are cancelled. They stay until their finished job or the event itself is forgotten.
    pub cancelled: PositionSet,
}

impl Brakes {
    /// Whether this very scope is paused; what holds a notification is the caller's to ask, scope by scope.
    pub fn is_paused(&self, scope: &BrakeScope) -> bool {
        self.paused.contains_key(scope)
    }
}
