//! Bare quick-xml: every event of a document is read, and the elements are counted.

use std::hint::black_box;
use std::io::BufRead;

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use tidings_server::command_error::{CommandError, failed_by};

/// What a caller needs besides elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing: attributes and texts stay as they are in the document.
    Bare,
    /// Attributes apart, and references in them and in texts resolved, as a reader of values needs them.
    Unescaped,
}

/// Reads a document to its end and counts its elements.
pub(super) fn elements(source: impl BufRead, reading: Reading) -> Result<u64, CommandError> {
    let mut reader = Reader::from_reader(source);
    let (mut buffer, mut elements) = (Vec::new(), 0);
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer).map_err(|error| refused(&error))?;
        match &event {
            Event::Eof => return Ok(elements),
            Event::Start(tag) | Event::Empty(tag) => {
                elements += 1;
                if reading == Reading::Unescaped {
                    attributes(tag)?;
                }
            }
            Event::Text(text) if reading == Reading::Unescaped => {
                black_box(text.xml10_content());
            }
            Event::GeneralRef(name) if reading == Reading::Unescaped => {
                black_box(reference(name)?);
            }
            _ => {}
        }
        black_box(&event);
    }
}

fn attributes(tag: &BytesStart<'_>) -> Result<(), CommandError> {
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| refused(&error))?;
        black_box(attribute.normalized_value(XmlVersion::Explicit1_0).map_err(|error| refused(&error))?);
    }
    Ok(())
}

/// The character of a reference; `None`: the document would have to declare it.
fn reference(name: &BytesRef<'_>) -> Result<Option<char>, CommandError> {
    let number = name.resolve_char_ref().map_err(|error| refused(&error))?;
    Ok(number.or_else(|| resolve_predefined_entity(name)?.chars().next()))
}

fn refused(error: &dyn std::error::Error) -> CommandError {
    failed_by("quick-xml refuses the document", error)
}
