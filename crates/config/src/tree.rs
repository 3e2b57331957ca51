//! Reads the sources of settings: a TOML file, and environment variables that override it.
//!
//! Both become one tree of [`Node`]s, each with its [`Origin`], so that every later problem can name the line or the
//! variable. This module knows no settings: it does not check names or values. Values of environment variables stay text
//! ([`Value::Variable`]) until the setting's type decides how to read them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The beginning of the names of environment variables that are settings.
pub(crate) const VARIABLE_PREFIX: &str = "TIDINGS_";

/// Separates the levels of a setting's path in the name of an environment variable.
pub(crate) const VARIABLE_SEPARATOR: &str = "__";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default of the binary.
    Default,
    /// A place in the file.
    File {
        /// The name of the file, as given.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
    },
    /// An environment variable.
    Environment(Arc<str>),
}

impl Origin {
    /// The place in the file, for sorting. An origin outside the file comes first.
    pub fn line_and_column(&self) -> (usize, usize) {
        match self {
            Self::File { line, column, .. } => (*line, *column),
            Self::Default | Self::Environment(_) => (0, 0),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Environment(variable) => f.write_str(variable),
        }
    }
}

/// A mistake and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place of the mistake.
    pub origin: Origin,
    /// What is wrong, and what would be right. Never contains a secret.
    pub message: String,
}

/// Always one line: control characters of the names and values that it quotes are escaped.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        self.message.chars().try_for_each(|one| match one.is_control() {
            true => write!(f, "{}", one.escape_default()),
            false => f.write_char(one),
        })
    }
}

/// A value with its origin: for a table the place of its name, else the place of the value.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) origin: Origin,
    /// What was stated.
    pub(crate) value: Value,
}

/// A value. Neither this nor [`Node`] derives `Debug`, because a value may be a secret.
#[derive(Clone)]
pub(crate) enum Value {
    /// A TOML string.
    Text(String),
    /// A TOML integer in decimal digits.
    Integer(String),
    /// A TOML boolean.
    Boolean(bool),
    /// A TOML array.
    List(Vec<Node>),
    /// A TOML table.
    Table(Table),
    /// The text of an environment variable or of a default. The setting's type decides how to read it.
    Variable(String),
    /// The name of a kind that no setting has (float, date and time).
    Unsupported(&'static str),
}

/// Values by name. Each name has its origin.
pub(crate) type Table = BTreeMap<String, (Origin, Node)>;

/// Reads the text of a file. Whatever is not TOML becomes a problem; the tree contains the rest.
pub(crate) fn parse(file: &str, text: &str, problems: &mut Vec<Problem>) -> Table {
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = Lines::new(file, text);
    problems.extend(errors.iter().map(|error| Problem {
        origin: lines.origin(error.span().unwrap_or(0..0)),
        message: format!("not TOML: {}", error.message().replace('\n', ", ")),
    }));
    table_of(table.get_ref(), &|span| lines.origin(span))
}

/// Reads a TOML value: a list in an environment variable or in a default.
pub(crate) fn parse_value(text: &str, origin: &Origin) -> Option<Node> {
    let value = DeValue::parse(text).ok()?;
    Some(node_of(value.get_ref(), origin.clone(), &|_| origin.clone()))
}

/// Sets environment variables in the tree. A variable is ignored if its name leads through a value that is not a table:
/// then the value in the file is wrong already.
pub(crate) fn overlay(table: &mut Table, variables: impl IntoIterator<Item = (String, String)>) {
    for (variable, text) in variables {
        let Some(path) = variable.strip_prefix(VARIABLE_PREFIX) else { continue };
        // No setting is deeper. The rest of a longer path stays in the last name, which is then unknown.
        let names: Vec<&str> = path.splitn(LEVEL_COUNT_MAX, VARIABLE_SEPARATOR).collect();
        insert(table, &names, &Origin::Environment(variable.as_str().into()), text);
    }
}

const LEVEL_COUNT_MAX: usize = 8;

fn insert(table: &mut Table, names: &[&str], origin: &Origin, text: String) {
    let Some((name, rest)) = names.split_first() else { return };
    let key = key_in(table, name);
    let new = |value| (origin.clone(), Node { origin: origin.clone(), value });
    if rest.is_empty() {
        table.insert(key, new(Value::Variable(text)));
    } else if let Value::Table(child) = &mut table.entry(key).or_insert_with(|| new(Value::Table(Table::new()))).1.value
    {
        insert(child, rest, origin, text);
    }
}

/// The key of `table` that matches a name in capitals; else the name in small letters.
fn key_in(table: &Table, name: &str) -> String {
    let same = |key: &&String| variable_name(key) == name;
    table.keys().find(same).cloned().unwrap_or_else(|| name.to_ascii_lowercase())
}

/// A name of the file as it is spelt in the name of an environment variable.
pub(crate) fn variable_name(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' }).collect()
}

type Locate<'a> = &'a dyn Fn(Range<usize>) -> Origin;

fn table_of(table: &DeTable<'_>, locate: Locate<'_>) -> Table {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let origin = locate(key.span());
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let of_value = if value.get_ref().is_table() { origin.clone() } else { locate(value.span()) };
        (name.to_string(), (origin, node_of(value.get_ref(), of_value, locate)))
    };
    table.iter().map(entry).collect()
}

fn node_of(value: &DeValue<'_>, origin: Origin, locate: Locate<'_>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Unsupported("integer beyond 64 bits"), |number| Value::Integer(number.to_string())),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| node_of(item.get_ref(), locate(item.span()), locate)).collect())
        }
        DeValue::Table(table) => Value::Table(table_of(table, locate)),
        DeValue::Float(_) => Value::Unsupported("float"),
        DeValue::Datetime(_) => Value::Unsupported("date or time"),
    };
    Node { origin, value }
}

/// Converts byte positions to lines and columns.
struct Lines<'a> {
    file: Arc<str>,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(file: &str, text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { file: file.into(), text, starts }
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        let at = self.text.floor_char_boundary(span.start);
        let line = self.starts.partition_point(|start| *start <= at);
        let column = self.text[self.starts[line - 1]..at].chars().count() + 1;
        Origin::File { file: Arc::clone(&self.file), line, column }
    }
}
