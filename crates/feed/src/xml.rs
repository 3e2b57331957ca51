//! Reads XML, with quick-xml, one event at a time.
//!
//! Only the five entities of XML and character references are resolved. A document type is refused, and with it every
//! entity of the document's own and everything external. Element names, nesting and references are checked in the whole
//! document. Attributes are taken apart only in elements that the mapping reads; elsewhere only their number, size and
//! references are checked.

use std::io::BufRead;

use memchr::{memchr, memchr_iter, memchr2, memchr3, memmem};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::QName;
use quick_xml::{Reader, XmlVersion};

use crate::attributes::Attributes;
use crate::collect::{Collector, Stop};
use crate::error::{Position, Problem, ReadError};
use crate::limits::Limits;
use crate::place::{FOREIGN, Leaf, Name, PlaceId};
use crate::source::Source;

/// `a="" `: an attribute has at least so many bytes.
const ATTRIBUTE_BYTES_MIN: usize = 5;

pub(crate) fn read<R: BufRead>(source: Source<R>, collector: &mut Collector<'_>) -> Result<Ending, ReadError> {
    let mut reader = Reader::from_reader(source);
    reader.config_mut().allow_dangling_amp = false;
    let limits = collector.plan().limits.clone();
    let bindings = collector.plan().places.namespaces.is_some().then(Bindings::default);
    let mut xml = Xml {
        collector,
        limits: &limits,
        depth: 0,
        skipped: 0,
        bindings,
        has_root: false,
        scanned: Attributes::default(),
    };
    let mut buffer = Vec::new();
    loop {
        reader.get_mut().mark("text_bytes", "a text or tag", limits.text_bytes);
        buffer.clear();
        let event = match reader.read_event_into(&mut buffer) {
            Ok(Event::Eof) => break,
            Ok(event) => event,
            Err(error) => return Err(refused(&mut reader, error)),
        };
        match xml.event(&event, reader.get_mut()) {
            Ok(()) => {}
            Err(Stop::Enough) => return Ok(Ending { bytes: reader.get_ref().raw_bytes(), is_whole: false }),
            Err(Stop::Problem(problem)) => {
                let at = begin_of(&event, reader.get_mut().position());
                return Err(ReadError { at, problem });
            }
        }
    }
    let at = reader.get_mut().position();
    let refuse = |text: &str| Err(ReadError { at, problem: Problem::Syntax(text.to_owned()) });
    match (xml.depth, xml.has_root) {
        (0, true) => Ok(Ending { bytes: reader.get_ref().raw_bytes(), is_whole: true }),
        (0, false) => refuse("the document has no element"),
        (1, _) => refuse("the document ends within an element"),
        (depth, _) => refuse(&format!("the document ends within {depth} elements")),
    }
}

/// How reading ended.
pub(crate) struct Ending {
    pub(crate) bytes: u64,
    pub(crate) is_whole: bool,
}

/// Where the event begins that ends at a position.
fn begin_of(event: &Event<'_>, end: Position) -> Position {
    let lines = memchr_iter(b'\n', event.as_bytes()).count() as u64;
    let markup = match event {
        Event::Start(_) | Event::Decl(_) | Event::GeneralRef(_) => 2,
        Event::Empty(_) | Event::End(_) => 3,
        Event::PI(_) => 4,
        Event::Comment(_) => 7,
        Event::CData(_) => 12,
        Event::DocType(_) => 11,
        Event::Text(_) | Event::Eof => 0,
    };
    Position { line: end.line - lines, byte: end.byte.saturating_sub(event.len() as u64 + markup) }
}

fn refused<R: BufRead>(reader: &mut Reader<Source<R>>, error: quick_xml::Error) -> ReadError {
    let byte = reader.error_position();
    let source = reader.get_mut();
    let end = source.position();
    if let Some(problem) = source.failure.take() {
        return ReadError { at: end, problem };
    }
    let problem = match error {
        quick_xml::Error::Io(error) => Problem::Io(std::io::Error::new(error.kind(), error.to_string())),
        quick_xml::Error::Encoding(_) => Problem::Encoding("near here are bytes that are not UTF-8".to_owned()),
        error => Problem::Syntax(error.to_string()),
    };
    ReadError { at: Position { byte: byte.min(end.byte), ..end }, problem }
}

struct Xml<'a, 'b> {
    collector: &'a mut Collector<'b>,
    limits: &'a Limits,
    depth: u64,
    /// Open elements within the innermost followed one, none of which is followed.
    skipped: u64,
    bindings: Option<Bindings>,
    has_root: bool,
    /// Used again for each tag.
    scanned: Attributes,
}

impl Xml<'_, '_> {
    #[inline]
    fn event<R: BufRead>(&mut self, event: &Event<'_>, source: &mut Source<R>) -> Result<(), Stop> {
        match event {
            Event::Start(tag) => self.begin(tag, event, source),
            Event::End(_) => self.end(),
            Event::Empty(tag) => {
                self.begin(tag, event, source)?;
                self.end()
            }
            Event::Text(text) if self.depth == 0 => outside(text),
            Event::Text(text) if self.collector.is_collecting() => Ok(self.collector.text(&text.xml10_content())?),
            Event::CData(_) if self.depth == 0 => outside("["),
            Event::CData(text) if self.collector.is_collecting() => Ok(self.collector.text(&text.xml10_content())?),
            Event::GeneralRef(_) if self.depth == 0 => outside("&"),
            Event::GeneralRef(reference) => self.reference(reference),
            Event::DocType(_) => Err(forbidden("a document type (DTD)")),
            Event::Text(_) | Event::CData(_) | Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::Eof => Ok(()),
        }
    }

    fn begin<R: BufRead>(
        &mut self,
        tag: &BytesStart<'_>,
        event: &Event<'_>,
        source: &mut Source<R>,
    ) -> Result<(), Stop> {
        if self.depth == 0 && std::mem::replace(&mut self.has_root, true) {
            return Err(Problem::Syntax("a second element follows the document's element".to_owned()).into());
        }
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(Problem::limit("depth", "the element", "is too deep", self.limits.depth).into());
        }
        self.check_tag(tag)?;
        if let Some(begun) = self.collector.entry_from() {
            let limit = self.limits.entry_bytes;
            if source.byte() - begun.byte > limit {
                return Err(Problem::limit("entry_bytes", "the entry", "has too many bytes", limit).into());
            }
        }
        if self.skipped > 0 {
            self.skipped += 1;
            return Ok(());
        }
        if let Some(bindings) = &mut self.bindings {
            bindings.declare(tag, self.depth, &self.collector.plan().places.namespaces)?;
        }
        match self.child(tag) {
            None => self.skipped = 1,
            Some(place) => {
                self.collector.open(place, || begin_of(event, source.position()))?;
                self.attributes(tag)?;
                self.collector.judge();
            }
        }
        Ok(())
    }

    /// The place of an element within the innermost followed one.
    #[inline]
    fn child(&self, tag: &BytesStart<'_>) -> Option<PlaceId> {
        if self.collector.is_judged() {
            return None;
        }
        let name = tag.name();
        let (local, prefix) = split(name.as_ref());
        let children = &self.collector.plan().places.place(self.collector.place()).children;
        let named = |known: &Name| *known.local == *local;
        match &self.bindings {
            None => children.iter().find(|(known, _)| named(known)).map(|(_, id)| *id),
            Some(bindings) => {
                let mut found = children.iter().filter(|(known, _)| named(known)).peekable();
                found.peek()?;
                let namespace = bindings.namespace(prefix);
                found.find(|(known, _)| known.namespace == namespace).map(|(_, id)| *id)
            }
        }
    }

    fn attributes(&mut self, tag: &BytesStart<'_>) -> Result<(), Stop> {
        let wanted = &self.collector.plan().places.place(self.collector.place()).attributes;
        if wanted.is_empty() {
            return Ok(());
        }
        let raw = tag.attributes_raw();
        if self.scanned.scan(raw) {
            let is_plain = is_plain(raw);
            for (key, value) in self.scanned.of(raw) {
                match wanted_leaf(&self.bindings, wanted, key) {
                    Some(leaf) if is_plain => self.collector.attribute(leaf, value),
                    Some(leaf) => {
                        normalized(self.collector, leaf, &Attribute { key: QName(key), value: value.into() })?
                    }
                    None => {}
                }
            }
            return Ok(());
        }
        for found in tag.attributes().with_checks(true) {
            let found = found.map_err(|error| Problem::Syntax(format!("in a tag: {error}")))?;
            if let Some(leaf) = wanted_leaf(&self.bindings, wanted, found.key.as_ref()) {
                normalized(self.collector, leaf, &found)?;
            }
        }
        Ok(())
    }

    /// What is checked of every tag: size, number of attributes, references.
    #[inline]
    fn check_tag(&self, tag: &BytesStart<'_>) -> Result<(), Stop> {
        let (bytes, limits) = (tag.len() as u64, self.limits);
        if bytes > limits.text_bytes {
            return Err(Problem::limit("text_bytes", "a tag", "has too many bytes", limits.text_bytes).into());
        }
        let has_sign = memchr2(b'&', b'<', tag.as_bytes()).is_some();
        if !has_sign && bytes / ATTRIBUTE_BYTES_MIN as u64 <= limits.attributes {
            return Ok(());
        }
        let mut count = 0;
        for attribute in tag.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| Problem::Syntax(format!("in a tag: {error}")))?;
            count += 1;
            if count > limits.attributes {
                let rule = "has too many attributes";
                return Err(Problem::limit("attributes", "the element", rule, limits.attributes).into());
            }
            if has_sign {
                check_references(&attribute.value)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        self.depth -= 1;
        let is_followed = self.skipped == 0;
        self.skipped = self.skipped.saturating_sub(1);
        // The first element that is skipped may have declared namespaces, too.
        if let (0, Some(bindings)) = (self.skipped, &mut self.bindings) {
            bindings.leave(self.depth);
        }
        if is_followed { self.collector.close() } else { Ok(()) }
    }

    fn reference(&mut self, name: &str) -> Result<(), Stop> {
        let (mut letters, letter) = ([0; 4], resolve(name)?);
        Ok(self.collector.text(letter.encode_utf8(&mut letters))?)
    }
}

/// Hands on an attribute whose value is resolved and normalised.
fn normalized(collector: &mut Collector<'_>, leaf: Leaf, attribute: &Attribute<'_>) -> Result<(), Stop> {
    let value = attribute.normalized_value(XmlVersion::Explicit1_0);
    let value = value.map_err(|error| Problem::Syntax(format!("in a tag: {error}")))?;
    collector.attribute(leaf, &value);
    Ok(())
}

/// Whether the values of a tag stand as they are in the document: nothing in it is to be resolved or normalised.
fn is_plain(tag: &str) -> bool {
    memchr3(b'\t', b'\n', b'\r', tag.as_bytes()).is_none() && memchr(b'&', tag.as_bytes()).is_none()
}

/// The leaf of an attribute, if it is one of the wanted.
#[inline]
fn wanted_leaf(bindings: &Option<Bindings>, wanted: &[(Name, Leaf)], key: &str) -> Option<Leaf> {
    let (local, prefix) = split(key);
    let is_it = |name: &Name| {
        *name.local == *local
            && match (bindings, prefix) {
                (None, _) => true,
                (Some(_), None) => name.namespace == 0,
                (Some(bindings), Some(_)) => name.namespace == bindings.namespace(prefix),
            }
    };
    wanted.iter().find(|(name, _)| is_it(name)).map(|(_, leaf)| *leaf)
}

fn outside(text: &str) -> Result<(), Stop> {
    if text.trim().is_empty() {
        return Ok(());
    }
    Err(Problem::Syntax("text stands outside the document's element".to_owned()).into())
}

fn forbidden(what: &str) -> Stop {
    Problem::Forbidden(format!("{what} is not accepted")).into()
}

fn check_references(value: &str) -> Result<(), Stop> {
    if value.contains('<') {
        return Err(Problem::Syntax("an attribute has a `<`".to_owned()).into());
    }
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('&') {
        let end = after.find(';').ok_or_else(|| Problem::Syntax("an attribute has a lone `&`".to_owned()))?;
        resolve(&after[..end])?;
        rest = &after[end + 1..];
    }
    Ok(())
}

/// The character of a reference: `amp`, `#38`, `#x26`.
fn resolve(name: &str) -> Result<char, Stop> {
    let number = match name.strip_prefix('#') {
        None => {
            let letter = match name {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => {
                    let shown: String = name.chars().take(32).collect();
                    return Err(forbidden(&format!("the entity `&{shown};`")));
                }
            };
            return Ok(letter);
        }
        Some(number) => number,
    };
    let number = match number.strip_prefix('x') {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16).ok(),
        None if number.bytes().all(|digit| digit.is_ascii_digit()) => number.parse().ok(),
        _ => None,
    };
    // The characters of XML 1.0, 2.2.
    let letter = number.and_then(char::from_u32);
    letter.filter(|letter| matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)).ok_or_else(|| {
        let shown: String = name.chars().take(32).collect();
        Problem::Syntax(format!("`&{shown};` is not a character of XML")).into()
    })
}

/// Local name and prefix.
#[inline]
fn split(name: &str) -> (&str, Option<&str>) {
    // Names are short: to look for the colon byte by byte is faster than to begin a search.
    match name.bytes().position(|byte| byte == b':') {
        None => (name, None),
        Some(colon) => (&name[colon + 1..], Some(&name[..colon])),
    }
}

/// The namespaces that are declared for the open elements that are followed.
#[derive(Default)]
struct Bindings {
    /// Depth, prefix (empty: the default), number of the namespace. Bounded by depth × attributes.
    bound: Vec<(u64, Box<str>, u16)>,
}

impl Bindings {
    fn declare(&mut self, tag: &BytesStart<'_>, depth: u64, known: &Option<Vec<String>>) -> Result<(), Stop> {
        if memmem::find(tag.attributes_raw().as_bytes(), b"xmlns").is_none() {
            return Ok(());
        }
        for attribute in tag.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| Problem::Syntax(format!("in a tag: {error}")))?;
            let prefix = match split(attribute.key.as_ref()) {
                ("xmlns", None) => "",
                (prefix, Some("xmlns")) => prefix,
                _ => continue,
            };
            let address = attribute.normalized_value(XmlVersion::Explicit1_0);
            let address = address.map_err(|error| Problem::Syntax(format!("in a tag: {error}")))?;
            let number = known.iter().flatten().position(|known| *known == *address);
            let number = match number {
                Some(number) => number as u16 + 1,
                None if address.is_empty() => 0,
                None => FOREIGN,
            };
            self.bound.push((depth, prefix.into(), number));
        }
        Ok(())
    }

    fn leave(&mut self, depth: u64) {
        while self.bound.last().is_some_and(|(bound, ..)| *bound > depth) {
            self.bound.pop();
        }
    }

    fn namespace(&self, prefix: Option<&str>) -> u16 {
        if prefix == Some("xml") {
            return FOREIGN - 1;
        }
        let prefix = prefix.unwrap_or("");
        let unbound = if prefix.is_empty() { 0 } else { FOREIGN };
        self.bound.iter().rev().find(|(_, bound, _)| **bound == *prefix).map_or(unbound, |(.., number)| *number)
    }
}
