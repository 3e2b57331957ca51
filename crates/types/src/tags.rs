//! Labels of a publication. The component that accepts them bounds them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Labels of a publication, shared by its clones; without labels nothing is allocated.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tags(Option<Arc<BTreeMap<String, String>>>);

impl Tags {
    /// The label with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All labels, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|tags| tags.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl From<BTreeMap<String, String>> for Tags {
    fn from(tags: BTreeMap<String, String>) -> Self {
        Self((!tags.is_empty()).then(|| Arc::new(tags)))
    }
}

// Tags are text of the application, which must never appear in a log.
impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tags({})", self.iter().count())
    }
}
