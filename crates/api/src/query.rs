//! Parameters of the query, as strict as bodies: each must be known and appear once.
//!
//! A route names the parameters that it knows. Any other is refused by name, so that a misspelt limit is not ignored.

use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::Query;
use axum::http::Uri;
use tidings_types::{JournalPosition, NameError};

use crate::input::shown;
use crate::problem::Invalid;

/// The range of `limit`.
pub(crate) const LIMIT_RANGE: RangeInclusive<usize> = 1..=1000;
/// The default of `limit`.
pub(crate) const LIMIT_DEFAULT: usize = 100;

/// A position in the journal, as paths and queries write it.
pub(crate) struct Place(pub(crate) JournalPosition);

impl FromStr for Place {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        text.parse().map(|position| Self(JournalPosition(position))).map_err(|_| NameError {
            what: "position",
            rule: "must be a place in the journal, a whole number",
            value: shown(text),
        })
    }
}

/// The parameters that were not taken yet.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Invalid> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let Query(pairs) = pairs.map_err(|_| Invalid::new("", "the query must be name=value pairs of UTF-8 text"))?;
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let name = shown(name);
                let names: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
                let verb = if names.len() == 1 { "is" } else { "are" };
                let rule = format!("unknown query parameter `{name}`, known {verb} {}", names.join(" and "));
                return Err(Invalid { field: name, ..Invalid::new("", rule) });
            }
            // At most one of each known name comes before, so this search is short.
            if pairs[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(Invalid::new(name, "is there twice"));
            }
        }
        Ok(Self(pairs))
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.swap_remove(index).1)
    }

    /// The `limit`: the number of entries in the answer.
    pub(crate) fn limit(&mut self) -> Result<usize, Invalid> {
        self.limit_or(LIMIT_DEFAULT)
    }

    /// The place in the journal `before` which a page begins.
    pub(crate) fn before(&mut self) -> Result<Option<JournalPosition>, Invalid> {
        let before = self.take("before").map(|before| before.parse()).transpose();
        Ok(before.map_err(|error| Invalid::name("before", error))?.map(|Place(position)| position))
    }

    /// The same, with another default.
    pub(crate) fn limit_or(&mut self, default: usize) -> Result<usize, Invalid> {
        let Some(text) = self.take("limit") else { return Ok(default) };
        text.parse().ok().filter(|limit| LIMIT_RANGE.contains(limit)).ok_or_else(|| {
            let (min, max, got) = (LIMIT_RANGE.start(), *LIMIT_RANGE.end(), shown(&text));
            Invalid::new("limit", format_args!("must be a whole number from {min} to {max}, got {got:?}"))
                .limit(max)
                .value(got)
        })
    }
}
