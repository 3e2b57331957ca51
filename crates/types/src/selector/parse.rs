//! From text to tree, by recursive descent over a list of lexemes.
//!
//! A word is one of the language only where the language may stand: after `=`, in the list behind `in` and behind `on`
//! every word is a name, but for `none`. So `country = IN` and `locale = or` need no quotes. Recursion goes one level
//! deeper for `not` and for a parenthesis only, at most [`limits::DEPTH_MAX`] times. Memory: a lexeme for each byte at
//! most.

use std::ops::Range;

use super::limits;
use super::tree::{ALL, AND, IN, Key, NONE, NOT, ON, OR, SelectorNode, is_bare, is_reserved, is_word};
use crate::{AppId, Country, Locale, NameError, Platform, Subject, TopicName, UserId};

/// Characters of what was found that an error repeats.
const FOUND_CHAR_COUNT_MAX: usize = 64;

/// Why a text is no selector, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {problem}")]
pub struct SelectorError {
    /// Which character, counted from 1; one more than there are where the text ends too early.
    pub position: usize,
    /// The same as bytes of the text, to point at them; empty at the end.
    pub span: Range<usize>,
    /// What is wrong.
    pub problem: SelectorProblem,
}

/// What is wrong with a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorProblem {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Syntax {
        /// What should.
        expected: &'static str,
        /// What does, cut to 64 characters.
        found: String,
    },
    /// A name breaks its rule.
    #[error("{0}")]
    Name(NameError),
    /// A limit is passed.
    #[error("{what} must be at most {limit}, got {value}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// To how much.
        limit: usize,
        /// How much there is; of what is counted while reading, how much up to here.
        value: usize,
    },
}

type Result<T> = std::result::Result<T, SelectorError>;

pub(super) fn parse(text: &str) -> Result<SelectorNode> {
    if text.len() > limits::BYTES_MAX {
        let start = (0..=limits::BYTES_MAX).rev().find(|&start| text.is_char_boundary(start)).unwrap_or_default();
        return Err(error(text, start..text.len(), too_many("bytes", limits::BYTES_MAX, text.len())));
    }
    let mut parser = Parser { text, lexemes: lexemes(text), next: 0, depth: 0, name_count: 0, star_subject_count: 0 };
    let node = parser.any()?;
    parser.take(&Token::End, "`and`, `or` or the end")?;
    let canonical_bytes = node.to_string().len();
    if canonical_bytes > limits::BYTES_MAX {
        let problem = too_many("bytes of the canonical form", limits::BYTES_MAX, canonical_bytes);
        return Err(error(text, text.len()..text.len(), problem));
    }
    Ok(node)
}

fn too_many(what: &'static str, limit: usize, value: usize) -> SelectorProblem {
    SelectorProblem::Limit { what, limit, value }
}

fn error(text: &str, span: Range<usize>, problem: SelectorProblem) -> SelectorError {
    let position = text.get(..span.start).unwrap_or(text).chars().count() + 1;
    SelectorError { position, span, problem }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Quoted(String),
    Open,
    Close,
    Comma,
    Equal,
    NotEqual,
    Star,
    /// No part of the language.
    Other,
    /// A quoted name that is broken: what was expected in it, and found.
    Broken(&'static str, String),
    End,
}

struct Lexeme<'a> {
    token: Token<'a>,
    span: Range<usize>,
}

/// The whole text, or up to the first that is broken; the last one stands for all that would follow.
fn lexemes(text: &str) -> Vec<Lexeme<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default().trim_start_matches([' ', '\t', '\r', '\n']);
        at = text.len() - rest.len();
        let (token, bytes) = lexeme(rest);
        let is_last = matches!(token, Token::End | Token::Broken(..));
        found.push(match token {
            // The error points at the escape or the end, not at the quote.
            Token::Broken(..) => Lexeme { token, span: at + bytes..text.len().min(at + bytes + 1) },
            token => Lexeme { token, span: at..at + bytes },
        });
        if is_last {
            return found;
        }
        at += bytes;
    }
}

/// The first of `rest`, which does not begin with white space, and its bytes.
fn lexeme(rest: &str) -> (Token<'_>, usize) {
    let Some(first) = rest.chars().next() else { return (Token::End, 0) };
    match first {
        '(' => (Token::Open, 1),
        ')' => (Token::Close, 1),
        ',' => (Token::Comma, 1),
        '=' => (Token::Equal, 1),
        '*' => (Token::Star, 1),
        '!' if rest.starts_with("!=") => (Token::NotEqual, 2),
        '"' => quoted(rest),
        _ => match rest.bytes().take_while(|&byte| is_bare(byte)).count() {
            0 => (Token::Other, first.len_utf8()),
            bytes => (Token::Word(rest.get(..bytes).unwrap_or_default()), bytes),
        },
    }
}

/// A name in quotes, which `rest` begins with. Of a broken one, the bytes before what is wrong.
fn quoted(rest: &str) -> (Token<'_>, usize) {
    let mut name = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (Token::Quoted(name), at + 1),
            '\\' => match chars.next() {
                Some((_, escaped @ ('"' | '\\'))) => name.push(escaped),
                Some((_, other)) => return (Token::Broken("`\\\"` or `\\\\`", shown(&format!("\\{other}"))), at),
                None => break,
            },
            char => name.push(char),
        }
    }
    (Token::Broken("a closing `\"`", END.to_owned()), rest.len())
}

const END: &str = "the end";

/// In back quotes, cut, and without characters that a terminal would take for more than text.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(FOUND_CHAR_COUNT_MAX).collect();
    let shown: String =
        cut.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect();
    format!("`{shown}`")
}

struct Parser<'a> {
    text: &'a str,
    /// Invariant: the last is never passed.
    lexemes: Vec<Lexeme<'a>>,
    next: usize,
    depth: usize,
    name_count: usize,
    star_subject_count: usize,
}

pub(super) const TERM: &str = "a topic, `*`, platform, app, country, locale, user, `all`, `not` or `(`";

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<SelectorNode> {
        let mut nodes = Vec::new();
        loop {
            match self.every()? {
                SelectorNode::Or(more) => nodes.extend(more),
                node => nodes.push(node),
            }
            if !self.took_word(OR) {
                return Ok(joined(nodes, SelectorNode::Or));
            }
        }
    }

    fn every(&mut self) -> Result<SelectorNode> {
        let mut nodes = Vec::new();
        loop {
            match self.term()? {
                SelectorNode::And(more) => nodes.extend(more),
                node => nodes.push(node),
            }
            if !self.took_word(AND) {
                return Ok(joined(nodes, SelectorNode::And));
            }
        }
    }

    fn term(&mut self) -> Result<SelectorNode> {
        if self.took_word(NOT) {
            return self.negated(Self::term);
        }
        match self.token(0) {
            Token::Open if self.is_topic_list() => self.subscribed(),
            Token::Open => {
                self.next += 1;
                let node = self.deeper(Self::any)?;
                self.take(&Token::Close, "`and`, `or` or `)`")?;
                Ok(node)
            }
            Token::Star | Token::Quoted(_) => self.subscribed(),
            Token::Word(word) if is_word(word, ALL) => {
                self.count_name()?;
                self.next += 1;
                Ok(SelectorNode::All)
            }
            Token::Word(word) if is_reserved(word) => Err(self.unexpected(TERM)),
            Token::Word(_) if self.is_comparison() => self.comparison(),
            Token::Word(_) => self.subscribed(),
            _ => Err(self.unexpected(TERM)),
        }
    }

    /// Whether a parenthesis holds topics; else it holds a selector, which no name alone is.
    fn is_topic_list(&self) -> bool {
        let is_name = matches!(self.token(1), Token::Word(_) | Token::Quoted(_));
        let is_list = *self.token(2) == Token::Comma || *self.token(2) == Token::Close && self.is_at_word(3, ON);
        is_name && is_list
    }

    fn is_comparison(&self) -> bool {
        matches!(self.token(1), Token::Equal | Token::NotEqual) || self.is_at_word(1, IN) || self.is_at_word(1, NOT)
    }

    fn subscribed(&mut self) -> Result<SelectorNode> {
        let topics = match self.token(0) {
            Token::Star => {
                self.next += 1;
                None
            }
            _ => Some(self.one_or_list(Self::topic)?),
        };
        if !self.took_word(ON) {
            return Err(self.unexpected("`on`"));
        }
        let is_star = topics.is_none();
        let subjects = self.one_or_list(|parser| parser.subject(is_star))?;
        Ok(SelectorNode::Subscribed { topics, subjects })
    }

    fn subject(&mut self, star: bool) -> Result<Subject> {
        let before = self.next;
        let subject = self.name("a subject", Subject::new)?;
        self.star_subject_count += usize::from(star);
        if self.star_subject_count > limits::STAR_SUBJECT_COUNT_MAX {
            self.next = before; // The error points at it.
            let (limit, value) = (limits::STAR_SUBJECT_COUNT_MAX, self.star_subject_count);
            return Err(self.error(too_many("subjects of `* on`", limit, value)));
        }
        Ok(subject)
    }

    fn topic(&mut self) -> Result<TopicName> {
        match self.token(0) {
            Token::Word(word) if is_reserved(word) => Err(self.unexpected("a topic (quotes make one of this word)")),
            _ => self.name("a topic", TopicName::new),
        }
    }

    fn comparison(&mut self) -> Result<SelectorNode> {
        let key = match self.token(0) {
            Token::Word(word) => Key::ALL.into_iter().find(|key| is_word(word, key.as_str())),
            _ => None,
        };
        let Some(key) = key else { return Err(self.unexpected("platform, app, country, locale or user")) };
        self.next += 1;
        let is_negated = self.took(&Token::NotEqual);
        if is_negated || self.took(&Token::Equal) {
            let read = |parser: &mut Self| parser.values(key, false);
            return if is_negated { self.negated(read) } else { read(self) };
        }
        let is_negated = self.took_word(NOT);
        if !self.took_word(IN) {
            return Err(self.unexpected("`in`"));
        }
        let read = |parser: &mut Self| parser.values(key, true);
        if is_negated { self.negated(read) } else { read(self) }
    }

    fn values(&mut self, key: Key, list: bool) -> Result<SelectorNode> {
        Ok(match key {
            Key::Platform => SelectorNode::Platform(self.some(list, |parser| parser.value("a platform", platform))?),
            Key::App => SelectorNode::App(self.some(list, |parser| parser.value("an app", AppId::new))?),
            Key::Country => SelectorNode::Country(
                self.some(list, |parser| parser.value_or_none("a country or none", Country::new))?,
            ),
            Key::Locale => SelectorNode::Locale(self.some(list, |parser| parser.value("a locale", Locale::new))?),
            Key::User => {
                SelectorNode::User(self.some(list, |parser| parser.value_or_none("a user or none", UserId::new))?)
            }
        })
    }

    fn value_or_none<T>(
        &mut self,
        expected: &'static str,
        new: impl Fn(&str) -> std::result::Result<T, NameError>,
    ) -> Result<Option<T>> {
        if !self.is_at_word(0, NONE) {
            return self.name(expected, new).map(Some);
        }
        self.count_name()?;
        self.next += 1;
        Ok(None)
    }

    fn value<T>(
        &mut self,
        expected: &'static str,
        new: impl Fn(&str) -> std::result::Result<T, NameError>,
    ) -> Result<T> {
        if self.is_at_word(0, NONE) { Err(self.unexpected(expected)) } else { self.name(expected, new) }
    }

    /// A word or a quoted name, which must be one by its own rule.
    fn name<T>(
        &mut self,
        expected: &'static str,
        new: impl Fn(&str) -> std::result::Result<T, NameError>,
    ) -> Result<T> {
        let made = match self.token(0) {
            Token::Word(word) => new(word),
            Token::Quoted(name) => new(name),
            _ => return Err(self.unexpected(expected)),
        };
        let name = made.map_err(|error| self.error(SelectorProblem::Name(error)))?;
        self.count_name()?;
        self.next += 1;
        Ok(name)
    }

    fn count_name(&mut self) -> Result<()> {
        self.name_count += 1;
        match self.name_count > limits::NAME_COUNT_MAX {
            true => Err(self.error(too_many("names", limits::NAME_COUNT_MAX, self.name_count))),
            false => Ok(()),
        }
    }

    fn one_or_list<T: PartialEq>(&mut self, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let is_list = *self.token(0) == Token::Open;
        self.some(is_list, read)
    }

    /// One item, or a list in parentheses; what is named again is left out.
    fn some<T: PartialEq>(&mut self, list: bool, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if !list {
            return Ok(vec![read(self)?]);
        }
        self.take(&Token::Open, "`(`")?;
        let mut items = Vec::new();
        loop {
            let item = read(self)?;
            if !items.contains(&item) {
                items.push(item);
            }
            if !self.took(&Token::Comma) {
                self.take(&Token::Close, "`,` or `)`")?;
                return Ok(items);
            }
        }
    }

    fn negated(&mut self, read: impl FnOnce(&mut Self) -> Result<SelectorNode>) -> Result<SelectorNode> {
        Ok(SelectorNode::Not(Box::new(self.deeper(read)?)))
    }

    /// Behind what opened the level.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == limits::DEPTH_MAX {
            self.next = self.next.saturating_sub(1);
            return Err(self.error(too_many("depth", limits::DEPTH_MAX, self.depth + 1)));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn token(&self, ahead: usize) -> &Token<'a> {
        self.lexemes.get(self.next + ahead).map_or(&Token::End, |lexeme| &lexeme.token)
    }

    fn is_at_word(&self, ahead: usize, word: &str) -> bool {
        matches!(self.token(ahead), Token::Word(found) if is_word(found, word))
    }

    fn took_word(&mut self, word: &str) -> bool {
        let found = self.is_at_word(0, word);
        self.next += usize::from(found);
        found
    }

    fn took(&mut self, token: &Token<'_>) -> bool {
        let found = self.token(0) == token;
        self.next += usize::from(found);
        found
    }

    fn take(&mut self, token: &Token<'_>, expected: &'static str) -> Result<()> {
        if self.took(token) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn unexpected(&self, expected: &'static str) -> SelectorError {
        let (expected, found) = match self.token(0) {
            Token::Broken(expected, found) => (*expected, found.clone()),
            Token::End => (expected, END.to_owned()),
            _ => (expected, shown(self.text.get(self.span()).unwrap_or_default())),
        };
        self.error(SelectorProblem::Syntax { expected, found })
    }

    fn error(&self, problem: SelectorProblem) -> SelectorError {
        error(self.text, self.span(), problem)
    }

    fn span(&self) -> Range<usize> {
        self.lexemes.get(self.next).map_or(self.text.len()..self.text.len(), |lexeme| lexeme.span.clone())
    }
}

/// The only one itself, or all under one node.
fn joined(mut nodes: Vec<SelectorNode>, join: fn(Vec<SelectorNode>) -> SelectorNode) -> SelectorNode {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        last => {
            nodes.extend(last);
            join(nodes)
        }
    }
}

fn platform(text: &str) -> std::result::Result<Platform, NameError> {
    Platform::ALL.iter().copied().find(|platform| platform.as_str() == text).ok_or_else(|| NameError {
        what: "platform",
        rule: "must be ios, android or web",
        value: text.chars().take(FOUND_CHAR_COUNT_MAX).collect(),
    })
}
