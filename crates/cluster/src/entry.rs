//! An entry of the log: what a node writes under one sequence number.
//!
//! ```text
//! version (1)   kind (a byte)   term u64   writer u64   hash of the entry before u128   then by kind:
//! part     its number u16, how many there are u16, bytes
//! term     nothing
//! ```
//! All numbers are big-endian. A record that is larger than [`PART_BYTES_MAX`] is several entries.
//!
//! The hash of an entry covers the hash of the one before, so it stands for the whole log up to it. It finds logs that
//! differ; it is no protection against somebody who makes them agree.

use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a record in one entry. Brokers refuse messages over 1 MiB by default.
pub const PART_BYTES_MAX: usize = 512 << 10;
/// Parts of a record: 64 MiB. The largest batch of a store is some MiB.
pub(crate) const PART_COUNT_MAX: u16 = 128;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 1 + 8 + 8 + 16;

/// Names one life of a node: a random number that it draws when it starts. So an entry of this life is never taken for one of
/// another life or node, also if two processes were given the same configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u64);

/// What a node writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The term in which it is written.
    pub term: u64,
    /// Who writes it.
    pub writer: WriterId,
    /// The hash of the entry before; 0 for the first one.
    pub before: u128,
    /// What it writes.
    pub content: Content<'a>,
}

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// A part of a record.
    Part {
        /// From 0 on.
        part: u16,
        /// How many parts the record has.
        count: u16,
        /// The part's bytes.
        bytes: &'a [u8],
    },
    /// From here on only this writer writes.
    Term,
}

const PART: u8 = 0;
const TERM: u8 = 1;

impl<'a> Entry<'a> {
    /// The bytes of the entry.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, more) = match self.content {
            Content::Part { part, count, bytes } => (PART, Some((part, count, bytes))),
            Content::Term => (TERM, None),
        };
        let mut out = Vec::with_capacity(HEAD_BYTES + more.map_or(0, |(_, _, bytes)| 4 + bytes.len()));
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&self.term.to_be_bytes());
        out.extend_from_slice(&self.writer.0.to_be_bytes());
        out.extend_from_slice(&self.before.to_be_bytes());
        if let Some((part, count, bytes)) = more {
            out.extend_from_slice(&part.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Reads an entry; `None`: no version of this program wrote it.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let content = match head[1] {
            PART => {
                let (numbers, bytes) = rest.split_first_chunk::<4>()?;
                let [part, count] = [[numbers[0], numbers[1]], [numbers[2], numbers[3]]].map(u16::from_be_bytes);
                (part < count && count <= PART_COUNT_MAX).then_some(Content::Part { part, count, bytes })?
            }
            TERM if rest.is_empty() => Content::Term,
            _ => return None,
        };
        let before = u128::from_be_bytes(head[18..].try_into().expect("16 bytes"));
        (head[0] == VERSION).then_some(Self { term: number(2), writer: WriterId(number(10)), before, content })
    }
}

/// The hash of the log up to the entry with these bytes.
pub fn hash(entry: &[u8]) -> u128 {
    xxh3_128(entry)
}

/// The parts of a record, in order: each its number, how many there are, and its bytes. `None`: it is too large.
pub(crate) fn parts(record: &[u8]) -> Option<impl Iterator<Item = Content<'_>>> {
    let count = record.len().div_ceil(PART_BYTES_MAX).max(1);
    let count = u16::try_from(count).ok().filter(|count| *count <= PART_COUNT_MAX)?;
    let bytes = move |part: u16| {
        let begin = usize::from(part) * PART_BYTES_MAX;
        &record[begin..record.len().min(begin + PART_BYTES_MAX)]
    };
    Some((0..count).map(move |part| Content::Part { part, count, bytes: bytes(part) }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_can_be_read_is_as_we_write_it(mut bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0..3_u8) {
            if let [version, of, ..] = &mut bytes[..] {
                (*version, *of) = (VERSION, kind);
            }
            if let Some(entry) = Entry::decode(&bytes) {
                prop_assert_eq!(entry.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_record_is_split_where_it_is_too_large() {
        let sizes = |bytes: usize| -> Vec<usize> {
            let part = |content| match content {
                Content::Part { bytes, .. } => bytes.len(),
                Content::Term => unreachable!("a record has no terms"),
            };
            parts(&vec![7; bytes]).unwrap().map(part).collect()
        };
        assert_eq!((sizes(0), sizes(5)), (vec![0], vec![5]));
        assert_eq!(sizes(PART_BYTES_MAX), [PART_BYTES_MAX]);
        assert_eq!(sizes(2 * PART_BYTES_MAX + 1), [PART_BYTES_MAX, PART_BYTES_MAX, 1]);
    }
}
