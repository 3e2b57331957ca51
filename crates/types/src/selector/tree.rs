//! A selector's tree, and its canonical text.

use std::fmt;

use crate::{AppId, Country, Locale, Platform, Subject, TopicName, UserId};

/// A selector's tree.
///
/// Invariant of those in a [`Selector`](crate::Selector): no list is empty; a list of names has no duplicates; `And` and `Or` have at
/// least two children, none of them of their own kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectorNode {
    /// Every device.
    All,
    /// Who subscribed to any of `topics` on any of `subjects`. All devices of a user are subscribed to each topic on
    /// `user:<id>`.
    Subscribed {
        /// `None`: to whatever topic.
        topics: Option<Vec<TopicName>>,
        /// On which subjects.
        subjects: Vec<Subject>,
    },
    /// Of any of these kinds.
    Platform(Vec<Platform>),
    /// Running any of these applications.
    App(Vec<AppId>),
    /// In any of these countries; `None`: it has not said which.
    Country(Vec<Option<Country>>),
    /// Of any of these languages; `pt` holds `pt-BR`.
    Locale(Vec<Locale>),
    /// Of any of these users; `None`: of no user.
    User(Vec<Option<UserId>>),
    /// Every device but these.
    Not(Box<SelectorNode>),
    /// The devices that are in each.
    And(Vec<SelectorNode>),
    /// The devices that are in any.
    Or(Vec<SelectorNode>),
}

impl fmt::Display for SelectorNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let anything = |_: &str| false;
        let absent = |name: &str| is_word(name, NONE);
        match self {
            Self::All => f.write_str(ALL),
            Self::Subscribed { topics, subjects } => {
                match topics {
                    None => f.write_str("*")?,
                    Some(topics) => write_list(f, topics, |f, topic| write_name(f, topic.as_str(), is_reserved))?,
                }
                write!(f, " {ON} ")?;
                write_list(f, subjects, |f, subject| write_name(f, subject.as_str(), anything))
            }
            Self::Platform(of) => write_key(f, Key::Platform, of, |f, one| f.write_str(one.as_str())),
            Self::App(of) => write_key(f, Key::App, of, |f, one| write_name(f, one.as_str(), absent)),
            Self::Locale(of) => write_key(f, Key::Locale, of, |f, one| write_name(f, one.as_str(), anything)),
            Self::Country(of) => write_key(f, Key::Country, of, |f, one| match one {
                None => f.write_str(NONE),
                Some(one) => write_name(f, one.as_str(), anything),
            }),
            Self::User(of) => write_key(f, Key::User, of, |f, one| match one {
                None => f.write_str(NONE),
                Some(one) => write_name(f, one.as_str(), absent),
            }),
            Self::Not(inner) => {
                write!(f, "{NOT} ")?;
                write_within(f, inner, matches!(**inner, Self::And(_) | Self::Or(_)))
            }
            Self::And(all) => write_joined(f, all, AND, |node| matches!(node, Self::Or(_))),
            Self::Or(any) => write_joined(f, any, OR, |_| false),
        }
    }
}

pub(super) const ALL: &str = "all";
pub(super) const AND: &str = "and";
pub(super) const IN: &str = "in";
pub(super) const NONE: &str = "none";
pub(super) const NOT: &str = "not";
pub(super) const ON: &str = "on";
pub(super) const OR: &str = "or";

/// As a topic, these stand in quotes.
const RESERVED: [&str; 7] = [ALL, AND, IN, NONE, NOT, ON, OR];

/// What of a device is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Platform,
    App,
    Country,
    Locale,
    User,
}

impl Key {
    pub(super) const ALL: [Self; 5] = [Self::Platform, Self::App, Self::Country, Self::Locale, Self::User];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::App => "app",
            Self::Country => "country",
            Self::Locale => "locale",
            Self::User => "user",
        }
    }
}

/// Whether a word is that of the language, which makes no difference between small and capital letters.
pub(super) fn is_word(text: &str, word: &str) -> bool {
    text.eq_ignore_ascii_case(word)
}

pub(super) fn is_reserved(text: &str) -> bool {
    RESERVED.iter().any(|word| is_word(text, word))
}

/// Whether a name may hold it without quotes. The other visible characters are kept for the language.
pub(super) fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.:/@+".contains(&byte)
}

fn write_key<T>(
    f: &mut fmt::Formatter<'_>,
    key: Key,
    values: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    let operator = if values.len() == 1 { "=" } else { IN };
    write!(f, "{} {operator} ", key.as_str())?;
    write_list(f, values, write)
}

fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    if let [only] = items {
        return write(f, only);
    }
    for (index, item) in items.iter().enumerate() {
        f.write_str(if index == 0 { "(" } else { ", " })?;
        write(f, item)?;
    }
    f.write_str(")")
}

fn write_name(f: &mut fmt::Formatter<'_>, name: &str, clashes: impl Fn(&str) -> bool) -> fmt::Result {
    if name.bytes().all(is_bare) && !clashes(name) {
        return f.write_str(name);
    }
    f.write_str("\"")?;
    for piece in name.split_inclusive(['"', '\\']) {
        match piece.strip_suffix(['"', '\\']) {
            Some(before) => write!(f, "{before}\\{}", &piece[before.len()..])?,
            None => f.write_str(piece)?,
        }
    }
    f.write_str("\"")
}

fn write_joined(
    f: &mut fmt::Formatter<'_>,
    nodes: &[SelectorNode],
    word: &str,
    needs_parentheses: impl Fn(&SelectorNode) -> bool,
) -> fmt::Result {
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            write!(f, " {word} ")?;
        }
        write_within(f, node, needs_parentheses(node))?;
    }
    Ok(())
}

fn write_within(f: &mut fmt::Formatter<'_>, node: &SelectorNode, parentheses: bool) -> fmt::Result {
    if parentheses { write!(f, "({node})") } else { write!(f, "{node}") }
}
