//! The mapping as a person writes it in TOML.
//!
//! docs/feeds.md is its reference. Here are only its fields; `plan` checks them and makes them ready.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::limits::Limits;

/// The form of a feed's documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// RSS 0.9x, 1.0 or 2.0, or Atom.
    #[serde(alias = "atom")]
    Rss,
    /// XML.
    Xml,
    /// One JSON value.
    Json,
    /// A JSON value in each line.
    Ndjson,
    /// MessagePack values, one after the other.
    Msgpack,
}

impl Kind {
    pub(crate) fn is_xml(self) -> bool {
        matches!(self, Self::Rss | Self::Xml)
    }
}

/// A mapping as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MappingText {
    /// The form of the documents.
    pub kind: Kind,
    /// What bounds a document.
    #[serde(default)]
    pub limits: Limits,
    /// Where the entries are; for RSS and Atom it is known, and in the other forms the default is the document itself.
    #[serde(default)]
    pub entries: Option<String>,
    /// Prefixes of names in paths and the namespaces that they mean; `default` is for names without prefix.
    #[serde(default)]
    pub namespaces: Option<BTreeMap<String, String>>,
    /// Keep all entries until the end of the document, so that paths that begin with `/` also find what comes after.
    #[serde(default)]
    pub hold: bool,
    /// Conditions, all of which an entry must meet.
    #[serde(default)]
    pub when: Vec<ConditionText>,
    /// The entry's id; for RSS and Atom the default is its `id`.
    #[serde(default)]
    pub id: Option<ValueText>,
    /// What tells one state of an entry from the next: a value, or `content`. Without it an entry is sent once.
    #[serde(default)]
    pub revision: Option<ValueText>,
    /// What becomes of entries without id.
    #[serde(default)]
    pub without_id: WithoutId,
    /// The topic. An entry whose value is not in its table is skipped.
    pub topic: ValueText,
    /// The subjects; those without a value are left out.
    pub subjects: Vec<ValueText>,
    /// The channels.
    #[serde(default)]
    pub channels: Vec<ValueText>,
    /// The parameters.
    #[serde(default)]
    pub params: BTreeMap<String, ValueText>,
    /// The data for connected clients: an object of these.
    #[serde(default)]
    pub data: BTreeMap<String, ValueText>,
    /// The event's own texts by language: constants, whose placeholders are parameters.
    #[serde(default)]
    pub text: BTreeMap<String, OwnText>,
    /// How the notification is shown.
    #[serde(default)]
    pub present: BTreeMap<String, ValueText>,
    /// The event's `push`.
    #[serde(default)]
    pub push: Option<ValueText>,
    /// The event's `urgency`.
    #[serde(default)]
    pub urgency: Option<ValueText>,
    /// The event's `priority`.
    #[serde(default)]
    pub priority: Option<ValueText>,
    /// The event's `collapse_key`.
    #[serde(default)]
    pub collapse_key: Option<ValueText>,
    /// The event's `ttl`, for example `2h`.
    #[serde(default)]
    pub ttl: Option<ValueText>,
    /// When the event is to be sent.
    #[serde(default)]
    pub at: Option<ValueText>,
    /// Until when the event is useful. An entry whose time is over is skipped.
    #[serde(default)]
    pub expires: Option<ValueText>,
    /// When the entry was published; for RSS and Atom the default is known.
    #[serde(default)]
    pub published: Option<ValueText>,
    /// An entry that was published earlier than this is skipped, for example `6h`.
    #[serde(default)]
    pub age_max: Option<String>,
    /// Other fields of the event, as they are.
    #[serde(default)]
    pub event: toml::Table,
    /// The order in which a document's entries are handed out.
    #[serde(default)]
    pub order: Option<OrderText>,
    /// Tables that are made of the document, to look values up.
    #[serde(default)]
    pub tables: BTreeMap<String, TableText>,
}

/// What becomes of entries without id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutId {
    /// They are wrong.
    #[default]
    Wrong,
    /// They are skipped.
    Skip,
    /// A hash of the event is their id.
    Content,
}

/// A text of the event's own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnText {
    /// First line.
    pub title: String,
    /// Text.
    pub body: String,
}

/// A condition: everything that it says about the value must hold.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConditionText {
    /// Where the value is.
    pub path: String,
    /// It is this.
    pub equals: Option<Scalar>,
    /// It is one of these.
    pub one_of: Option<Vec<Scalar>>,
    /// It is none of these; a value that does not exist is none of these.
    pub none_of: Option<Vec<Scalar>>,
    /// It exists, or does not.
    pub exists: Option<bool>,
    /// A part of it fits this regular expression.
    pub matches: Option<String>,
    /// It is a number, and greater.
    pub above: Option<f64>,
    /// It is a number, and greater or the same.
    pub at_least: Option<f64>,
    /// It is a number, and less.
    pub below: Option<f64>,
    /// It is a number, and less or the same.
    pub at_most: Option<f64>,
    /// At least one of these holds. Then there is no `path`.
    pub any: Vec<ConditionText>,
}

/// The order of entries.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderText {
    /// By what: `as` says whether it is a text, a number or a time.
    pub by: ValueText,
    /// The greatest first.
    #[serde(default)]
    pub reverse: bool,
}

/// A table made of the document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableText {
    /// Where its rows are: elements outside the entries.
    pub rows: String,
    /// The path of the key in a row.
    pub key: String,
    /// The path of the value in a row.
    pub value: String,
}

/// Text, a number or a truth value, as its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar(pub String);

/// How a value is made: a template such as `team:{home/id}`, or a table with more.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValueText(pub ValueTable);

/// A value of the mapping as a table; a template alone is its `from`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValueTable {
    /// A template.
    pub from: Option<Scalar>,
    /// A path, each of whose values makes one; in lists.
    pub each: Option<String>,
    /// A regular expression, of which the first group is taken.
    pub pick: Option<String>,
    /// A table in which the text is looked up.
    pub table: Option<Lookup>,
    /// What a text becomes that is not in the table.
    pub otherwise: Option<Scalar>,
    /// A text around it, with `{}` for it.
    pub put: Option<String>,
    /// The text if there is none.
    pub default: Option<Scalar>,
    /// An entry without it is wrong.
    pub required: bool,
    /// What it is.
    #[serde(rename = "as")]
    pub form: Option<String>,
    /// How a time is written.
    pub format: Option<String>,
    /// The time zone of a time that does not name its own.
    pub zone: Option<String>,
    /// What is added to a whole number.
    pub plus: i64,
    /// Characters that are kept.
    pub max: Option<usize>,
    /// More fields of a typed value.
    pub show: toml::Table,
}

impl ValueText {
    pub(crate) fn template(text: &str) -> Self {
        Self(ValueTable { from: Some(Scalar(text.to_owned())), ..ValueTable::default() })
    }
}

/// Where a text is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// In this table.
    Here(BTreeMap<String, String>),
    /// In the mapping's table of that name.
    Named(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl Visitor<'_> for Texts {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number, true or false")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
        }
        deserializer.deserialize_any(Texts)
    }
}

impl<'de> Deserialize<'de> for Lookup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lookups;
        impl<'de> Visitor<'de> for Lookups {
            type Value = Lookup;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or the name of one of the mapping's tables")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Lookup, E> {
                Ok(Lookup::Named(name.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Lookup, A::Error> {
                let rows = BTreeMap::<String, Scalar>::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Lookup::Here(rows.into_iter().map(|(key, value)| (key, value.0)).collect()))
            }
        }
        deserializer.deserialize_any(Lookups)
    }
}

impl<'de> Deserialize<'de> for ValueText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = ValueText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a template such as \"team:{home/id}\", or a table with `from`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ValueText, E> {
                Ok(ValueText::template(text))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<ValueText, E> {
                Ok(ValueText::template(&number.to_string()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ValueText, A::Error> {
                ValueTable::deserialize(MapAccessDeserializer::new(map)).map(ValueText)
            }
        }
        deserializer.deserialize_any(Values)
    }
}
