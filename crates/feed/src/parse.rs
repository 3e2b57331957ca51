//! Text becomes a mapping; an error gets its line.

use std::sync::Arc;

use crate::error::MappingError;
use crate::limits::Limits;
use crate::mapping::{Kind, MappingText};
use crate::plan::Plan;

/// A mapping, ready to read documents; cheap to clone.
#[derive(Debug, Clone)]
pub struct Mapping(pub(crate) Arc<Plan>);

impl Mapping {
    /// Reads a mapping.
    ///
    /// # Errors
    /// When it is not TOML, has an unknown or missing field, or a path or template that cannot be used. The error names the
    /// line and the field.
    pub fn parse(text: &str) -> Result<Self, MappingError> {
        let read: MappingText = toml::from_str(text).map_err(|error| MappingError {
            line: error.span().map(|span| line_at(text, span.start)),
            field: String::new(),
            problem: error.message().to_owned(),
        })?;
        Self::new(&read).map_err(|error| MappingError { line: line_of(text, &error.field), ..error })
    }

    /// Makes a mapping ready that was read as a part of a larger text.
    ///
    /// # Errors
    /// As [`Mapping::parse`], without a line: [`line_of`] finds it.
    pub fn new(text: &MappingText) -> Result<Self, MappingError> {
        Plan::new(text).map(|plan| Self(Arc::new(plan)))
    }

    /// A mapping that comes with the program, as TOML.
    pub fn shipped(name: &str) -> Option<&'static str> {
        crate::shipped::MAPPINGS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The names of the mappings that come with the program.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        crate::shipped::MAPPINGS.iter().map(|(name, _)| *name)
    }

    /// The form of the documents.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What bounds a document.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }
}

fn line_at(text: &str, byte: usize) -> u64 {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count() as u64
}

/// The line of a field such as `params.minute.from` or `when[1].matches` in a TOML text. Where the field itself is not
/// written there, the line of what is around it.
pub fn line_of(text: &str, field: &str) -> Option<u64> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let (mut table, mut found) = (document.get_ref(), None);
    for step in field.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some((key, value)) = table.get_key_value(name) else { break };
        found = Some(key.span().start);
        let mut value = value;
        if let Some(item) = index.and_then(|index| value.get_ref().as_array()?.get(index.checked_sub(1)?)) {
            (value, found) = (item, Some(item.span().start));
        }
        let Some(inner) = value.get_ref().as_table() else { break };
        table = inner;
    }
    found.map(|byte| line_at(text, byte))
}
