//! What a device does not want to be pushed for a time.
//!
//! A mute takes the device out of every event that it covers, even if the event names the device. The store removes a
//! mute when its time is over.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{NameError, Subject, Timestamp};

/// The scope of a mute. As text `everything`, or the subject, which always contains a colon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MuteScope {
    /// Every event.
    Everything,
    /// Events with this subject, whatever other subjects they have.
    Subject(Subject),
}

impl MuteScope {
    /// The one subject; `None` for everything.
    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Everything => None,
            Self::Subject(subject) => Some(subject),
        }
    }
}

/// One mute of a device; a device has at most one of each scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mute {
    /// What it covers.
    pub scope: MuteScope,
    /// When it ends, within a second; `None`: it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl fmt::Display for MuteScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject().map_or("everything", Subject::as_str))
    }
}

impl FromStr for MuteScope {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "everything" { Ok(Self::Everything) } else { Subject::new(text).map(Self::Subject) }
    }
}

impl TryFrom<String> for MuteScope {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<MuteScope> for String {
    fn from(scope: MuteScope) -> Self {
        scope.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_everything_or_a_subject() {
        let scope = |text: &str| text.parse::<MuteScope>();
        assert_eq!(scope("everything").unwrap(), MuteScope::Everything);
        assert_eq!(scope("team:1").unwrap(), MuteScope::Subject(Subject::new("team:1").unwrap()));
        assert!(scope("nothing").is_err() && scope("").is_err());
        for text in ["everything", "team:1"] {
            assert_eq!(scope(text).unwrap().to_string(), text);
        }
    }
}
