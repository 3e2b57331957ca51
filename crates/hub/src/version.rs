//! Versions of what publications are about.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Which of several publications about one thing is newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Grows with each change of the thing.
    #[serde(rename = "n")]
    pub number: u64,
    /// One life of the numbers; numbers of two lives are not compared.
    #[serde(rename = "e")]
    pub epoch: Arc<str>,
}

impl Version {
    /// Whether `top` is this version or a newer one, in one life of the numbers.
    pub(crate) fn is_behind(&self, top: &Self) -> bool {
        self.epoch == top.epoch && self.number <= top.number
    }
}
