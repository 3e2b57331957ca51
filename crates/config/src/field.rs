//! How settings are declared and read. One declaration per setting yields its type, default, range, parsing, the
//! reference page and the example file.
//!
//! [`section!`] declares a table of settings as a plain struct. [`Field`] reads everything that a setting may be: a
//! single value ([`Leaf`]), an optional value, a list, another section, or sections with names that the operator gives.
//! Reading does not stop at a mistake: it notes a [`Problem`] and continues, so that all mistakes are reported at once. A
//! section exists only if all its settings were right.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use axum::http::HeaderName;
use tidings_api::Scope;
use tidings_api::SubjectPattern;
use tidings_console::Role;
use tidings_protocol::{DataFormat, DeltaType, RecoveryMode, SlowReaders, TextPattern};
use tidings_types::{AppId, DeviceId, Environment, EventChannels, Interruption, Locale, OriginPattern};

use super::tree::{
    Node, Origin, Problem, Table, VARIABLE_PREFIX, VARIABLE_SEPARATOR, Value, parse_value, variable_name,
};
use super::value::{
    AppleId, ByteSize, HostPort, Leaf, LogFormat, Missing, Moment, Percentage, Ramp, Secret, Sha256, Spelling,
    StaticHeader, Tag, WebUrl,
};

/// The declaration of one setting.
pub(crate) struct Item {
    pub(crate) name: &'static str,
    /// The comment above the field.
    pub(crate) docs: &'static [&'static str],
    /// The value if none is given.
    pub(crate) default: Option<&'static str>,
    /// A value for the example file, for a setting without default.
    pub(crate) example: Option<&'static str>,
    /// The least and the greatest value.
    pub(crate) range: Option<(&'static str, &'static str)>,
    pub(crate) shape: Shape,
}

/// The form of a setting.
pub(crate) enum Shape {
    /// One value.
    Leaf { expected: &'static str, spelling: Spelling },
    /// One value or none.
    Optional(&'static Shape),
    /// Any number, in order.
    List(&'static Shape),
    /// A table of settings.
    Section { docs: &'static [&'static str], items: &'static [Item] },
    /// Tables of settings; the operator gives each a name.
    Named(&'static Shape),
}

/// A setting and its effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The path of its table. A row of a list is `api.keys[0]`.
    pub table: String,
    /// Its name in the table.
    pub name: String,
    /// The value as TOML, secrets masked.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
}

/// The result of reading so far.
pub(crate) struct Reader {
    /// The settings at the top.
    all: &'static [Item],
    pub(crate) problems: Vec<Problem>,
    /// Every effective value, in the order of the declarations.
    pub(crate) effective: Vec<Effective>,
}

impl Reader {
    pub(super) fn new(all: &'static [Item]) -> Self {
        Self { all, problems: Vec::new(), effective: Vec::new() }
    }

    pub(super) fn problem(&mut self, origin: &Origin, message: String) {
        self.problems.push(Problem { origin: origin.clone(), message });
    }
}

/// The setting that is read.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The path of the table; empty at the top.
    pub(super) table: &'a str,
    /// The origin of the table, for a setting that is missing in it.
    pub(super) origin: &'a Origin,
    pub(super) item: &'a Item,
    /// The setting's name, or the name of a row or of a named table in it.
    pub(super) name: &'a str,
}

impl Place<'_> {
    /// The whole path of the setting.
    pub(super) fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }
}

/// A type that a setting may have.
pub(crate) trait Field: Sized {
    const SHAPE: Shape;

    /// Reads the value; `None` after a noted problem.
    fn read(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<Self>;
}

/// A table of settings, declared by [`section!`].
pub(crate) trait Section: Sized {
    const DOCS: &'static [&'static str];
    const ITEMS: &'static [Item];

    /// Reads every setting, and makes the section if all are right.
    fn read_items(table: &Table, path: &str, origin: &Origin, reader: &mut Reader) -> Option<Self>;
}

/// Declares sections: `name: Type = "default", like "example", from "low" to "high";` per setting. The comment above a
/// setting is its documentation. A setting without default is required, unless it is an `Option`, a list, a section or
/// named sections.
macro_rules! section {
    ($($(#[doc = $section_doc:literal])+ $section:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty
            $(= $default:literal)? $(, like $example:literal)? $(, from $low:literal to $high:literal)?;)+
    })+) => {$(
        $(#[doc = $section_doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $section {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl $crate::field::Section for $section {
            const DOCS: &'static [&'static str] = &[$($section_doc),+];
            const ITEMS: &'static [$crate::field::Item] = &[$($crate::field::Item {
                name: stringify!($field),
                docs: &[$($doc),+],
                default: $crate::field::section!(@maybe $($default)?),
                example: $crate::field::section!(@maybe $($example)?),
                range: $crate::field::section!(@maybe $(($low, $high))?),
                shape: <$type as $crate::field::Field>::SHAPE,
            }),+];

            fn read_items(
                table: &$crate::tree::Table,
                path: &str,
                origin: &$crate::tree::Origin,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                let mut items = Self::ITEMS.iter();
                $(let $field: Option<$type> = $crate::field::read_item(
                    items.next().expect("one declaration per field"), table, path, origin, reader,
                );)+
                Some(Self { $($field: $field?),+ }) // After every setting was read, so that all mistakes are reported.
            }
        }

        impl $crate::field::Field for $section {
            const SHAPE: $crate::field::Shape = $crate::field::Shape::Section {
                docs: <Self as $crate::field::Section>::DOCS,
                items: <Self as $crate::field::Section>::ITEMS,
            };

            fn read(
                node: Option<&$crate::tree::Node>,
                place: $crate::field::Place<'_>,
                reader: &mut $crate::field::Reader,
            ) -> Option<Self> {
                $crate::field::read_section(node, place, reader)
            }
        }
    )+};
    (@maybe) => { None };
    (@maybe $value:expr) => { Some($value) };
}
pub(crate) use section;

/// Reads one setting of a table: the given value, else the default.
pub(crate) fn read_item<T: Field>(
    item: &Item,
    table: &Table,
    path: &str,
    origin: &Origin,
    reader: &mut Reader,
) -> Option<T> {
    let place = Place { table: path, origin, item, name: item.name };
    let default = item.default.map(|text| Node { origin: Origin::Default, value: Value::Variable(text.to_owned()) });
    T::read(table.get(item.name).map(|(_, node)| node).or(default.as_ref()), place, reader)
}

/// Reads a table inside another table.
pub(crate) fn read_section<T: Section>(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<T> {
    match node {
        None => T::read_items(&Table::new(), &place.path(), place.origin, reader),
        Some(Node { origin, value: Value::Table(table) }) => read_table(table, &place.path(), origin, reader),
        Some(node) => {
            reader.problem(&node.origin, format!("`{}` must be a table, got {}", place.path(), kind(&node.value)));
            None
        }
    }
}

/// Reads a table. Every name in it that is not a setting is a problem.
pub(crate) fn read_table<T: Section>(table: &Table, path: &str, origin: &Origin, reader: &mut Reader) -> Option<T> {
    for (name, (origin, _)) in table {
        if T::ITEMS.iter().all(|item| item.name != name) {
            let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let advice = nearest(name, path, T::ITEMS, reader.all).map_or_else(String::new, |path| {
                let variable = matches!(origin, Origin::Environment(_)).then(|| format!(" ({})", variable_of(&path)));
                format!(", did you mean `{path}`{}?", variable.unwrap_or_default())
            });
            reader.problem(origin, format!("unknown setting `{place}`{advice}"));
        }
    }
    T::read_items(table, path, origin, reader)
}

/// The environment variable of a setting.
pub(crate) fn variable_of(path: &str) -> String {
    let names: Vec<String> = path.split('.').map(variable_name).collect();
    format!("{VARIABLE_PREFIX}{}", names.join(VARIABLE_SEPARATOR))
}

/// The setting that was probably meant: the most similar name in the same table, else the same name in another table.
fn nearest(name: &str, path: &str, items: &'static [Item], all: &'static [Item]) -> Option<String> {
    let similar = closest(name, items.iter().map(|item| item.name))
        .map(|name| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") });
    similar.or_else(|| elsewhere(name, "", all))
}

/// The most similar of `names`, if it is similar enough for a typing error or a related word.
pub(crate) fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .filter(|(similarity, _)| *similarity > 0.85)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, other)| other)
}

fn elsewhere(name: &str, path: &str, items: &'static [Item]) -> Option<String> {
    items.iter().find_map(|item| {
        let here = if path.is_empty() { item.name.to_owned() } else { format!("{path}.{}", item.name) };
        match &item.shape {
            _ if item.name == name => Some(here),
            Shape::Section { items, .. } => elsewhere(name, &here, items),
            _ => None,
        }
    })
}

/// The kind of a value in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Text(_) | Value::Variable(_) => "text",
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        Value::List(_) => "a list",
        Value::Table(_) => "a table",
        Value::Unsupported(kind) => kind,
    }
}

fn read_leaf<T: Leaf>(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<T> {
    let Some(node) = node else {
        reader.problem(place.origin, format!("`{}` is missing, must be {}", place.path(), T::EXPECTED));
        return None;
    };
    let text = match (&node.value, T::SPELLING) {
        (Value::Variable(text), _) | (Value::Text(text), Spelling::Text) => Some(text.as_str()),
        (Value::Integer(digits), Spelling::Integer) => Some(digits.as_str()),
        (Value::Boolean(flag), Spelling::Boolean) => Some(if *flag { "true" } else { "false" }),
        _ => None,
    };
    let within = |value: &T| place.item.range.is_none_or(|(low, high)| value.is_within(low, high));
    let Some(value) = text.and_then(T::parse).filter(within) else {
        let range = place.item.range.map(|(low, high)| format!(" from {low} to {high}")).unwrap_or_default();
        let got = match (text, T::SPELLING) {
            (None, _) => kind(&node.value).to_owned(),
            (Some(_), _) if T::SECRET => "something else".to_owned(),
            (Some(text), Spelling::Text) => format!("{:?}", text.chars().take(64).collect::<String>()),
            (Some(text), _) => text.chars().take(64).collect(),
        };
        reader.problem(&node.origin, format!("`{}` must be {}{range}, got {got}", place.path(), T::EXPECTED));
        return None;
    };
    reader.effective.push(Effective {
        table: place.table.to_owned(),
        name: place.name.to_owned(),
        value: toml_value(T::SPELLING, &value.show()),
        origin: node.origin.clone(),
    });
    Some(value)
}

/// A text, or a path with `display()`, as TOML spells it.
pub fn toml_text(text: impl Display) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// A value as TOML spells it.
pub(crate) fn toml_value(spelling: Spelling, text: &str) -> String {
    match spelling {
        Spelling::Text => toml_text(text),
        Spelling::Integer | Spelling::Boolean => text.to_owned(),
    }
}

macro_rules! leaf {
    ($($type:ty),+) => {$(
        impl Field for $type {
            const SHAPE: Shape = Shape::Leaf { expected: <$type as Leaf>::EXPECTED, spelling: <$type as Leaf>::SPELLING };

            fn read(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<Self> {
                read_leaf(node, place, reader)
            }
        }
    )+};
}

leaf!(bool, u16, u32, u64, usize, String, PathBuf, IpAddr, SocketAddr, Duration);
leaf!(
    AppId,
    AppleId,
    ByteSize,
    DeviceId,
    Environment,
    EventChannels,
    HeaderName,
    HostPort,
    Interruption,
    LogFormat,
    Missing,
    Percentage,
    Ramp,
    Role,
    Scope
);
leaf!(
    DataFormat,
    DeltaType,
    Locale,
    Moment,
    OriginPattern,
    RecoveryMode,
    Secret,
    Sha256,
    SlowReaders,
    StaticHeader,
    SubjectPattern,
    Tag
);
leaf!(TextPattern, WebUrl);

impl<T: Field> Field for Option<T> {
    const SHAPE: Shape = Shape::Optional(&T::SHAPE);

    fn read(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<Self> {
        if node.is_none() { Some(None) } else { T::read(node, place, reader).map(Some) }
    }
}

impl<T: Field> Field for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn read(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<Self> {
        let parsed = node.and_then(|node| match &node.value {
            Value::Variable(text) => parse_value(text, &node.origin),
            _ => None,
        });
        let nodes = match parsed.as_ref().or(node) {
            None => &[],
            Some(Node { value: Value::List(nodes), .. }) => nodes.as_slice(),
            Some(node) => {
                let got = kind(&node.value);
                reader.problem(&node.origin, format!("`{}` must be a list in [], got {got}", place.path()));
                return None;
            }
        };
        let mark = reader.effective.len();
        let mut read_row = |(index, node): (usize, &Node)| {
            T::read(Some(node), Place { name: &format!("{}[{index}]", place.name), ..place }, reader)
        };
        let values: Vec<Option<T>> = nodes.iter().enumerate().map(&mut read_row).collect();
        // A list of tables has an entry per row, a list of single values has one entry.
        if nodes.is_empty() || matches!(T::SHAPE, Shape::Leaf { .. }) {
            let parts: Vec<String> = reader.effective.drain(mark..).map(|part| part.value).collect();
            reader.effective.push(Effective {
                table: place.table.to_owned(),
                name: place.name.to_owned(),
                value: format!("[{}]", parts.join(", ")),
                origin: node.map_or(Origin::Default, |node| node.origin.clone()),
            });
        }
        values.into_iter().collect()
    }
}

impl<K: FromStr<Err: Display> + Ord, T: Field> Field for BTreeMap<K, T> {
    const SHAPE: Shape = Shape::Named(&T::SHAPE);

    fn read(node: Option<&Node>, place: Place<'_>, reader: &mut Reader) -> Option<Self> {
        let table = match node {
            None => return Some(Self::new()),
            Some(Node { value: Value::Table(table), .. }) => table,
            Some(node) => {
                let got = kind(&node.value);
                reader.problem(&node.origin, format!("`{}` must be tables with names, got {got}", place.path()));
                return None;
            }
        };
        let path = place.path();
        let mut read_named = |(name, (origin, node)): (&String, &(Origin, Node))| {
            let key = K::from_str(name).map_err(|error| reader.problem(origin, format!("`{path}`: {error}"))).ok();
            let place = Place { table: &path, origin, item: place.item, name: &bare_or_quoted(name) };
            let value = T::read(Some(node), place, reader);
            Some((key?, value?))
        };
        let values: Vec<Option<(K, T)>> = table.iter().map(&mut read_named).collect();
        values.into_iter().collect()
    }
}

/// A name in a TOML path.
pub(super) fn bare_or_quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { toml_value(Spelling::Text, name) }
}
