//! Subscriptions of devices to topics on subjects.
//!
//! Bound: `subscription_count_max` for each device.

use tidings_types::{Subject, TopicName};

pub(crate) mod read;
pub(crate) mod rows;
mod write;

/// Subjects, each with topics: the subscriptions of a device or a change of them.
pub type Selection = Vec<(Subject, Vec<TopicName>)>;
