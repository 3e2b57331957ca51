//! What can be wrong with a mapping or a document.

use std::fmt;

/// A place in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The line, from 1. In MessagePack, which has no lines, always 1.
    pub line: u64,
    /// Bytes before it in the document as UTF-8; in MessagePack bytes as they came.
    pub byte: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, byte {}", self.line, self.byte)
    }
}

/// A document that is refused, from this place on.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct ReadError {
    /// Where.
    pub at: Position,
    /// What.
    pub problem: Problem,
}

/// Why a document is refused.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The reader failed.
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    /// It is not well-formed.
    #[error("{0}")]
    Syntax(String),
    /// It has something that no feed needs and that is a danger: a document type, an entity of its own.
    #[error("{0}")]
    Forbidden(String),
    /// It is beyond a limit.
    #[error("{what} {rule}: the limit is {limit} (`limits.{name}`)")]
    Limit {
        /// The limit's name, as in [`Limits`](crate::Limits).
        name: &'static str,
        /// What is too much.
        what: &'static str,
        /// How.
        rule: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The mapping's paths around the entries cost too much in this document.
    #[error(
        "for its entries, the mapping looked through what is around them more than {0} times: read it into a table \
         (`tables`), or name a path that fewer elements have"
    )]
    Costly(u64),
    /// Its encoding is unknown, or its bytes are not of that encoding.
    #[error("{0}")]
    Encoding(String),
}

impl Problem {
    pub(crate) fn limit(name: &'static str, what: &'static str, rule: &'static str, limit: u64) -> Self {
        Self::Limit { name, what, rule, limit }
    }
}

/// A mapping that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{problem}", .line.map(|line| format!("line {line}: ")).unwrap_or_default(), if .field.is_empty() { String::new() } else { format!("`{}` ", .field) })]
pub struct MappingError {
    /// The line in the mapping's text, from 1, where it is known.
    pub line: Option<u64>,
    /// The field, for example `params.minute.from`; empty if the text is not TOML.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}
