//! What feeds may hold in memory.

use tidings_telemetry::memory::Term;

use crate::poll::POLL_COUNT_MAX;

/// A known entry of a feed: a key and a number in a hash table that may be half empty.
const ENTRY_BYTES: usize = 64;
/// A document that is read: pieces, buffers, what a mapping holds by default (16 MiB), and 256 events of at most 64 KiB.
const DOCUMENT_BYTES: usize = 33 << 20;

/// What feeds may take: `known`, the most entries that each of them knows; `received`, how many of them get their documents
/// by the API.
pub fn memory_terms(known: &[usize], received: usize) -> Vec<Term> {
    if known.is_empty() {
        return Vec::new();
    }
    let (entries, reads) = (known.iter().sum(), known.len().min(POLL_COUNT_MAX) + received);
    vec![
        Term::standing("known entries", entries, ENTRY_BYTES, "feeds.NAME.known_count_max"),
        Term::peak("documents", reads, DOCUMENT_BYTES, "feeds, limits of their mappings"),
    ]
}
