//! What devices are subscribed to: topics on subjects.
//!
//! Bound: `subscription_count_max` for each device.

use tidings_types::{Subject, TopicName};

pub(crate) mod read;
pub(crate) mod rows;
mod write;

/// Topics on subjects: what a device is subscribed to, or to which.
pub type Selection = Vec<(Subject, Vec<TopicName>)>;
