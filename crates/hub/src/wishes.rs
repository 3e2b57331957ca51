//! What one subscriber wants of its channel.

use std::sync::Arc;

use tidings_protocol::{TagsFilter, Thinning};
use tidings_stream::{Frame, FrameKind};
use tidings_types::Tags;

/// What one subscriber wants of its channel. The default is all publications and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Which publications it wants; `None`: all.
    pub filter: Option<Arc<TagsFilter>>,
    /// Whether it wants to know who joins and leaves.
    pub joins: bool,
    /// How much of the publications it gets.
    pub thinning: Thinning,
}

impl Wishes {
    /// Whether the frame is to be written to this subscriber.
    pub fn wants(&self, frame: &Frame) -> bool {
        match &frame.kind {
            FrameKind::Publication(tags) => self.wants_publication(tags),
            FrameKind::JoinLeave => self.joins,
            FrameKind::Restart => false,
        }
    }

    /// What it costs to find out, in units of some 100 nanoseconds.
    pub(crate) fn cost(&self, tags: &Tags) -> usize {
        self.filter.as_ref().map_or(1, |filter| filter.cost(tags))
    }

    /// Whether it wants a publication with these tags.
    pub fn wants_publication(&self, tags: &Tags) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(tags))
    }
}
