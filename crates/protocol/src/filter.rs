//! A tags filter: which publications of a channel one subscriber wants, by their tags.
//!
//! A filter is a tree, as in Centrifugo. A leaf compares the tag `key` with `val` or `vals`; the other nodes are `and`,
//! `or` and `not`. The comparisons are:
//!
//! | `cmp` | Matches if the tag |
//! |---|---|
//! | `eq`, `in` | is the value, or one of the values |
//! | `neq`, `nin` | is not; also if the publication has no such tag |
//! | `ex`, `nex` | is there, is not there |
//! | `sw`, `ew`, `ct` | begins with, ends with, contains the value |
//! | `lt`, `lte`, `gt`, `gte` | is a decimal number: less than the value, at most, more than, at least the value |
//!
//! A filter is read only where the channel allows one. Bounds: [`FILTER_BYTES_MAX`] as it is sent, [`FILTER_DEPTH_MAX`]
//! levels, and [`FILTER_COUNT_MAX`] nodes and values of lists together. So a filter takes at most about 6 KiB. A
//! subscription may have two: the client's and that of its terms.
//!
//! What applying a filter costs: a leaf compares as many bytes as its value has. Besides, each tag that is compared as a number is
//! read once, however many leaves compare it, and each leaf with `ct` reads its tag.

use std::cmp::Ordering;
use std::fmt;

use serde::Deserialize;
use tidings_types::{Json, Tags};

use crate::absent::or_default;
use crate::protobuf::{ProtobufError, Values};

/// The most bytes of a filter as it is sent.
pub const FILTER_BYTES_MAX: usize = 2048;
/// The most levels of a filter.
pub const FILTER_DEPTH_MAX: usize = 8;
/// The most nodes of a filter and values of its lists, together.
pub const FILTER_COUNT_MAX: usize = 64;

/// Why a filter is refused. The text never repeats what the client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Too many bytes.
    #[error("a tags filter has at most {FILTER_BYTES_MAX} bytes")]
    TooLarge,
    /// Too many levels.
    #[error("a tags filter has at most {FILTER_DEPTH_MAX} levels")]
    TooDeep,
    /// Too many nodes and values.
    #[error("a tags filter has at most {FILTER_COUNT_MAX} nodes and values of lists")]
    TooMany,
    /// Not a tree of nodes.
    #[error("the tags filter is malformed")]
    Malformed,
    /// An unknown operation, or one with the wrong number of nodes.
    #[error("a node of the tags filter has an unknown operation, or not the nodes that its operation needs")]
    Operation,
    /// An unknown comparison, or one without what it compares.
    #[error("a leaf of the tags filter has an unknown comparison, or not the key and values that it needs")]
    Comparison,
}

impl From<ProtobufError> for FilterError {
    fn from(_: ProtobufError) -> Self {
        Self::Malformed
    }
}

/// A filter as a client sends it, not yet read.
#[derive(Clone, PartialEq, Eq)]
pub enum UnreadFilter {
    /// A JSON value.
    Json(Json),
    /// A Protobuf message.
    Protobuf(Vec<u8>),
}

/// Which publications a subscriber wants.
#[derive(PartialEq, Eq, Hash)]
pub struct TagsFilter {
    node: Node,
    /// Its leaves that read all of a tag.
    reading_count: usize,
}

#[derive(PartialEq, Eq, Hash)]
enum Node {
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    Leaf { key: Box<str>, test: Test },
}

#[derive(PartialEq, Eq, Hash)]
enum Test {
    Is(Box<str>),
    IsNot(Box<str>),
    IsIn(Box<[Box<str>]>),
    IsNotIn(Box<[Box<str>]>),
    Exists,
    ExistsNot,
    Begins(Box<str>),
    Ends(Box<str>),
    Contains(Box<str>),
    /// The tag's order to the value is one of these two; `None`: the value is no number, and nothing matches.
    Number(Ordering, Ordering, Option<Number>),
}

/// A decimal number of a filter; see [`Decimal`].
#[derive(PartialEq, Eq, Hash)]
struct Number {
    is_negative: bool,
    whole: Box<str>,
    part: Box<str>,
}

/// One node of a filter, unchecked.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UncheckedNode {
    #[serde(deserialize_with = "or_default")]
    op: String,
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    cmp: String,
    #[serde(deserialize_with = "or_default")]
    val: String,
    #[serde(deserialize_with = "or_default")]
    vals: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    nodes: Vec<UncheckedNode>,
}

impl TagsFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// If it is malformed or exceeds a bound of this module.
    pub fn read(unread: &UnreadFilter) -> Result<Self, FilterError> {
        let bytes: &[u8] = match unread {
            UnreadFilter::Json(json) => json.bytes(),
            UnreadFilter::Protobuf(message) => message,
        };
        if bytes.len() > FILTER_BYTES_MAX {
            return Err(FilterError::TooLarge);
        }
        let unchecked = match unread {
            // Serde would also read a list as a node.
            UnreadFilter::Json(_) if bytes.first() != Some(&b'{') => return Err(FilterError::Malformed),
            UnreadFilter::Json(_) => serde_json::from_slice(bytes).map_err(|_| FilterError::Malformed)?,
            UnreadFilter::Protobuf(_) => UncheckedNode::read(bytes, FILTER_DEPTH_MAX)?,
        };
        let mut left = FILTER_COUNT_MAX;
        let node = unchecked.check(FILTER_DEPTH_MAX, &mut left)?;
        Ok(Self { reading_count: node.reading_count(), node })
    }

    /// The publications that both want.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let reading_count = self.reading_count + other.reading_count;
        Self { node: Node::All([self.node, other.node].into()), reading_count }
    }

    /// Whether a publication with these tags is wanted.
    pub fn matches(&self, tags: &Tags) -> bool {
        self.node.matches(&mut Asked { tags, numbers: Vec::new() })
    }

    /// What it costs to apply it to these tags, in units of some 100 nanoseconds.
    pub fn cost(&self, tags: &Tags) -> usize {
        const UNIT_BYTES: usize = 256;
        if self.reading_count == 0 {
            return 1;
        }
        let bytes: usize = tags.iter().map(|(_, value)| value.len()).sum();
        1 + self.reading_count * bytes / UNIT_BYTES
    }
}

impl UncheckedNode {
    fn read(message: &[u8], depth_left: usize) -> Result<Self, FilterError> {
        let depth_left = depth_left.checked_sub(1).ok_or(FilterError::TooDeep)?;
        let mut node = Self::default();
        for value in Values::of(message) {
            let value = value?;
            match value.number {
                1 => node.op = value.text()?.to_owned(),
                2 => node.key = value.text()?.to_owned(),
                3 => node.cmp = value.text()?.to_owned(),
                4 => node.val = value.text()?.to_owned(),
                5 => node.vals.push(value.text()?.to_owned()),
                6 => node.nodes.push(Self::read(value.bytes()?, depth_left)?),
                _ => {}
            }
        }
        Ok(node)
    }

    /// `left`: how many more nodes and values there may be.
    fn check(self, depth_left: usize, left: &mut usize) -> Result<Node, FilterError> {
        let depth_left = depth_left.checked_sub(1).ok_or(FilterError::TooDeep)?;
        *left = left.checked_sub(1 + self.vals.len()).ok_or(FilterError::TooMany)?;
        if self.op.is_empty() {
            return self.leaf();
        }
        let nodes = self.nodes.into_iter().map(|node| node.check(depth_left, left));
        let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        match (&*self.op, nodes.len()) {
            ("and", 1..) => Ok(Node::All(nodes.into())),
            ("or", 1..) => Ok(Node::Any(nodes.into())),
            ("not", 1) => Ok(Node::Not(Box::new(nodes.remove(0)))),
            _ => Err(FilterError::Operation),
        }
    }

    fn leaf(self) -> Result<Node, FilterError> {
        use Ordering::{Equal, Greater, Less};
        let (has_key, has_value, has_list) = (!self.key.is_empty(), !self.val.is_empty(), !self.vals.is_empty());
        let value = self.val.into_boxed_str();
        let list = || self.vals.iter().map(|value| value.as_str().into()).collect();
        let test = match &*self.cmp {
            "ex" if !has_value && !has_list => Test::Exists,
            "nex" if !has_value && !has_list => Test::ExistsNot,
            "in" if has_key && !has_value && has_list => Test::IsIn(list()),
            "nin" if has_key && !has_value && has_list => Test::IsNotIn(list()),
            _ if !has_key || !has_value || has_list => return Err(FilterError::Comparison),
            "eq" => Test::Is(value),
            "neq" => Test::IsNot(value),
            "sw" => Test::Begins(value),
            "ew" => Test::Ends(value),
            "ct" => Test::Contains(value),
            "lt" => Test::Number(Less, Less, Number::read(&value)),
            "lte" => Test::Number(Less, Equal, Number::read(&value)),
            "gt" => Test::Number(Greater, Greater, Number::read(&value)),
            "gte" => Test::Number(Greater, Equal, Number::read(&value)),
            _ => return Err(FilterError::Comparison),
        };
        Ok(Node::Leaf { key: self.key.into(), test })
    }
}

/// The tags of a publication, with those that were read as numbers.
struct Asked<'a> {
    tags: &'a Tags,
    numbers: Vec<(&'a str, Option<Decimal<'a>>)>,
}

impl<'a> Asked<'a> {
    /// The tag as a number.
    fn number(&mut self, tag: &'a str) -> Option<Decimal<'a>> {
        let known = self.numbers.iter().find(|(known, _)| std::ptr::eq(*known, tag));
        known.map(|(_, number)| *number).unwrap_or_else(|| {
            let number = Decimal::read(tag);
            self.numbers.push((tag, number));
            number
        })
    }
}

impl Node {
    fn reading_count(&self) -> usize {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().map(Self::reading_count).sum(),
            Self::Not(node) => node.reading_count(),
            Self::Leaf { test, .. } => usize::from(matches!(test, Test::Contains(_) | Test::Number(..))),
        }
    }

    fn matches(&self, asked: &mut Asked<'_>) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.matches(asked)),
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(asked)),
            Self::Not(node) => !node.matches(asked),
            Self::Leaf { key, test } => test.matches(asked.tags.get(key), asked),
        }
    }
}

impl Test {
    fn matches<'a>(&self, tag: Option<&'a str>, asked: &mut Asked<'a>) -> bool {
        match self {
            Self::Is(value) => tag == Some(&**value),
            Self::IsNot(value) => tag != Some(&**value),
            // Here a missing tag counts as empty, as in Centrifugo.
            Self::IsIn(values) => values.iter().any(|value| **value == *tag.unwrap_or_default()),
            Self::IsNotIn(values) => values.iter().all(|value| **value != *tag.unwrap_or_default()),
            Self::Exists => tag.is_some(),
            Self::ExistsNot => tag.is_none(),
            Self::Begins(value) => tag.is_some_and(|tag| tag.starts_with(&**value)),
            Self::Ends(value) => tag.is_some_and(|tag| tag.ends_with(&**value)),
            Self::Contains(value) => tag.is_some_and(|tag| tag.contains(&**value)),
            Self::Number(first, second, number) => {
                let numbers = tag.and_then(|tag| asked.number(tag)).zip(number.as_ref());
                let order = numbers.map(|(tag, number)| tag.order(number.decimal()));
                order.is_some_and(|order| order == *first || order == *second)
            }
        }
    }
}

impl Number {
    fn read(text: &str) -> Option<Self> {
        let Decimal { is_negative, whole, part } = Decimal::read(text)?;
        Some(Self { is_negative, whole: whole.into(), part: part.into() })
    }

    fn decimal(&self) -> Decimal<'_> {
        Decimal { is_negative: self.is_negative, whole: &self.whole, part: &self.part }
    }
}

/// A decimal number of any length: its digits without the zeros that change nothing.
#[derive(Clone, Copy)]
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a str,
    part: &'a str,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) {
            return None;
        }
        let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
        Some(Self { is_negative: is_negative && !(whole.is_empty() && part.is_empty()), whole, part })
    }

    fn order(self, other: Decimal<'_>) -> Ordering {
        let size = self.whole.len().cmp(&other.whole.len());
        let size = size.then(self.whole.cmp(other.whole)).then(self.part.cmp(other.part));
        match (self.is_negative, other.is_negative) {
            (false, false) => size,
            (true, true) => size.reverse(),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

// A filter is text of a client, which must never appear in a log.
impl fmt::Debug for TagsFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagsFilter")
    }
}

impl fmt::Debug for UnreadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnreadFilter")
    }
}

#[cfg(test)]
mod tests;
