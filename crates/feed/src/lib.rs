//! Documents of data providers become events.
//!
//! A *feed* is a source of documents. A document has *entries*: the items of an RSS feed, the elements of an XML document
//! at a path, the objects of a JSON array, the lines of NDJSON, the values of a MessagePack sequence. A [`Mapping`], which
//! a person writes in TOML, says where the entries are and how an entry becomes an event. [`read`] goes over a document
//! once and hands out each entry in turn, with what became of it ([`Outcome`]).
//!
//! Not here: network, files, clock, runtime, and what is known from earlier documents. The caller hands in a reader and the
//! time. An event leaves as the JSON that `POST /v1/events` takes, so there is one place that checks events: the API.
//!
//! | Module | What |
//! |---|---|
//! | `source` | bytes of any supported encoding become UTF-8; counts lines |
//! | `xml` with `attributes`, `values` | the two readers: XML; and JSON, NDJSON and MessagePack |
//! | `tree` | what is kept of an entry: only the places that the mapping names |
//! | `mapping`, `path`, `plan`, `parse` | the mapping as text, its paths, and both made ready for reading |
//! | `make`, `format` | an entry becomes an event; texts become numbers, moments and plain text |
//! | `limits` | everything that bounds a document |
//!
//! Memory: one entry, and 64 KiB of the document. Mappings with an `order`, with `tables` or with `hold` keep the entries of
//! a document until its end, within [`Limits::held_bytes`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod attributes;
mod collect;
mod entry;
mod error;
mod format;
mod limits;
mod make;
mod mapping;
mod parse;
mod path;
mod place;
mod plan;
mod shipped;
mod source;
mod syndication;
mod tree;
mod values;
mod xml;

use std::io::BufRead;
use std::ops::ControlFlow;

pub use entry::{Document, Draft, Entry, Outcome};
pub use error::{MappingError, Position, Problem, ReadError};
pub use limits::Limits;
pub use mapping::{Kind, MappingText};
pub use parse::{Mapping, line_of};

use crate::collect::{Collector, Stop};
use crate::make::Maker;
use crate::source::Source;

/// How many entries a document had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// All entries.
    pub entries: u64,
    /// Bytes of the document, as they came.
    pub bytes: u64,
    /// Whether `on_entry` ended the reading before the end of the document.
    pub stopped: bool,
}

/// Reads a document once and hands each entry to `on_entry`, in the order of the document (or the mapping's `order`).
/// `on_entry` ends the reading with [`ControlFlow::Break`].
///
/// # Errors
/// When the document cannot be read, is not well-formed, or is beyond a limit. Entries before that place have been handed
/// out, unless the mapping holds them until the end.
pub fn read(
    source: impl BufRead,
    mapping: &Mapping,
    document: &Document<'_>,
    mut on_entry: impl FnMut(Entry) -> ControlFlow<()>,
) -> Result<Summary, ReadError> {
    let plan = &*mapping.0;
    let mut collector = Collector::new(plan, Maker::new(plan, document), &mut on_entry);
    let ending = if plan.kind == Kind::Msgpack {
        let source = Source::binary(source, plan.limits.document_bytes);
        values::read_msgpack(source, &mut collector)?
    } else {
        let source = Source::text(source, document.charset, plan.limits.document_bytes);
        let source = source.map_err(|problem| ReadError { at: Position { line: 1, byte: 0 }, problem })?;
        match plan.kind {
            Kind::Json => values::read_json(source, &mut collector)?,
            Kind::Ndjson => values::read_ndjson(source, &mut collector)?,
            Kind::Rss | Kind::Xml | Kind::Msgpack => xml::read(source, &mut collector)?,
        }
    };
    let ended = if ending.is_whole { collector.finish() } else { Err(Stop::Enough) };
    let is_whole = match ended {
        Ok(()) => true,
        Err(Stop::Enough) => false,
        Err(Stop::Problem(problem)) => {
            let at = Position { line: 1, byte: 0 };
            return Err(ReadError { at, problem });
        }
    };
    Ok(Summary { entries: collector.entries, bytes: ending.bytes, stopped: !is_whole })
}
