//! Reading the log backwards, the newest entry first.
//!
//! A [`Cursor`] names an entry: the number of its file, and where its line begins. It stays right while entries are
//! written, and until its file is removed.
//!
//! A line that is not an entry is skipped and counted, such as one that a crash has cut off. The last line of a file counts
//! only when its end is written.
//!
//! Bounds: files are read in blocks of [`BLOCK_BYTES`]; a longer line is damaged. A page looks at [`SCAN_BYTES_MAX`] at
//! most. If a filter lets little through, a page may have few entries, or none, and still name a next page.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::entry::Entry;
use crate::files;

const BLOCK_BYTES: u64 = 64 << 10;
const SCAN_BYTES_MAX: u64 = 8 << 20;

/// Names an entry: `3-1234`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    file: u64,
    offset: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.file, self.offset)
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the `next` of the page before")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let parts = text.split_once('-').and_then(|(file, offset)| Some((file.parse().ok()?, offset.parse().ok()?)));
        parts.map(|(file, offset)| Self { file, offset }).ok_or(CursorError)
    }
}

/// Which entries are wanted.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Only older entries than this one.
    pub before: Option<Cursor>,
    /// How many.
    pub limit: usize,
    /// Only with this action.
    pub action: Option<String>,
    /// Only by this caller.
    pub who: Option<String>,
}

impl Query {
    fn wants(&self, entry: &Entry) -> bool {
        self.action.as_ref().is_none_or(|action| entry.action == *action)
            && self.who.as_ref().is_none_or(|who| entry.who == *who)
    }
}

/// Entries, the newest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Each with its name.
    pub entries: Vec<(Cursor, Entry)>,
    /// Where the next page begins; `None`: there is no older entry.
    pub next: Option<Cursor>,
    /// Lines that are not entries.
    pub damaged: u64,
}

pub(crate) fn page(folder: &Path, query: &Query) -> io::Result<Page> {
    let (mut page, mut scanned) = (Page::default(), 0);
    for file in files::numbers(folder)?.into_iter().rev() {
        let end = match query.before {
            Some(before) if file > before.file => continue,
            Some(before) if file == before.file => Some(before.offset),
            _ => None,
        };
        let opened = match File::open(files::path(folder, file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => break, // It and all older ones were removed meanwhile.
            opened => opened?,
        };
        let len = opened.metadata()?.len();
        let mut end = end.unwrap_or(len).min(len);
        while end > 0 {
            if page.entries.len() >= query.limit || scanned >= SCAN_BYTES_MAX {
                page.next = Some(Cursor { file, offset: end });
                return Ok(page);
            }
            let start = end.saturating_sub(BLOCK_BYTES);
            scanned += end - start;
            end = read_block(&opened, file, start..end, query, &mut page)?;
        }
    }
    Ok(page)
}

/// Reads the whole lines of a part of a file, the last one first, until the page is full. Returns where the lines that
/// were not read end.
fn read_block(opened: &File, file: u64, part: std::ops::Range<u64>, query: &Query, page: &mut Page) -> io::Result<u64> {
    let mut block = vec![0; (part.end - part.start) as usize];
    opened.read_exact_at(&mut block, part.start)?;
    let mut end = block.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    while end > 0 && page.entries.len() < query.limit {
        let start = block[..end - 1].iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
        let start = match start {
            Some(start) => start,
            None if part.start == 0 => 0,
            None => break, // It begins in the block before.
        };
        let line = &block[start..end - 1];
        match serde_json::from_slice::<Entry>(line) {
            Ok(entry) if query.wants(&entry) => {
                page.entries.push((Cursor { file, offset: part.start + start as u64 }, entry));
            }
            Ok(_) => {}
            Err(_) => page.damaged += u64::from(!line.is_empty()),
        }
        end = start;
    }
    if end as u64 == part.end - part.start && part.start > 0 {
        page.damaged += 1; // A line longer than a block.
        return Ok(part.start);
    }
    Ok(if end == 0 { part.start } else { part.start + end as u64 })
}
