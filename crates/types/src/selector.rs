//! Selectors: the language in which a caller names an audience, as text and as a tree.
//!
//! ```text
//! (goal, red_card) on (team:42, team:7) and country in (DE, AT) and not platform = web
//! ```
//!
//! A [`Selector`] describes devices; the audience index finds them. The language, its grammar and its limits are in
//! `docs/selectors.md`; `parse` reads it.
//!
//! [`fmt::Display`] is the canonical form, one for each tree. It is read again as the same tree, and is within the
//! limits, so serde stores a selector as this text. Bounds: [`selector_limits`]. A recursive walk over a tree needs at
//! most three levels for each of [`selector_limits::DEPTH_MAX`].

pub mod limits;
mod parse;
mod tree;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use limits as selector_limits;
pub use parse::{SelectorError, SelectorProblem};
pub use tree::SelectorNode;

/// A description of devices.
///
/// ```
/// # use tidings_types::Selector;
/// let selector: Selector = "goal on team:42 AND (country!=SE or locale in(pt))".parse().unwrap();
/// assert_eq!(selector.to_string(), "goal on team:42 and (not country = SE or locale = pt)");
///
/// let error = "goal to team:42".parse::<Selector>().unwrap_err();
/// assert_eq!(error.to_string(), "at character 6: expected `on`, found `to`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector(SelectorNode);

impl Selector {
    /// Its tree.
    pub fn root(&self) -> &SelectorNode {
        &self.0
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// # Errors
    /// If the text is not a selector or exceeds a limit: the place, what was found, and what was expected.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        parse::parse(text).map(Self)
    }
}

impl TryFrom<String> for Selector {
    type Error = SelectorError;

    fn try_from(text: String) -> Result<Self, SelectorError> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
