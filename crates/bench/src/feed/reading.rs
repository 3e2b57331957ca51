//! How the documents of `bench feed` are read.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

use tidings_feed::{Document, Entry, Mapping, ReadError, Summary};
use tidings_server::command_error::{CommandError, failed_by};
use tidings_types::Timestamp;

use super::document::EVERY_ENTRY;

/// As the server reads a document.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// The mapping of all entries, with more text.
pub(super) fn mapping(more: &str) -> Result<Mapping, CommandError> {
    Mapping::parse(&format!("{EVERY_ENTRY}{more}")).map_err(|error| failed_by("the mapping is wrong", &error))
}

pub(super) fn read(
    source: impl BufRead,
    mapping: &Mapping,
    on_entry: impl FnMut(Entry) -> ControlFlow<()>,
) -> Result<Summary, ReadError> {
    let document = Document { feed: "bench", now: Timestamp(0), charset: None };
    tidings_feed::read(source, mapping, &document, on_entry)
}

/// A document in pieces.
pub(super) fn pieces(bytes: &[u8]) -> impl BufRead {
    BufReader::with_capacity(PIECE_BYTES, bytes)
}
