//! The settings of a feed.

use std::path::PathBuf;
use std::time::Duration;

use crate::fetch::Fetch;
use crate::parse::Parser;
use crate::schedule::Pace;

/// The settings of a feed.
#[derive(Clone)]
pub struct FeedConfig {
    /// What its documents are.
    pub kind: &'static str,
    /// How its documents come.
    pub how: How,
    /// Reads a document.
    pub parser: Parser,
    /// A hash of everything that decides what a document says: its address, its mapping.
    pub fingerprint: u64,
    /// The largest document, inflated.
    pub document_bytes_max: u64,
    /// Entries that are known at a time.
    pub known_count_max: usize,
}

/// How documents come.
#[derive(Clone)]
pub enum How {
    /// They are fetched.
    Polled {
        /// How.
        fetch: Box<Fetch>,
        /// How often.
        pace: Pace,
        /// How long a poll may take altogether.
        timeout: Duration,
        /// Entries of the first document are known, but not sent.
        skip_backlog: bool,
    },
    /// Somebody posts them.
    Received,
    /// They are files in a folder.
    Files {
        /// The folder.
        folder: PathBuf,
        /// What the names of the files begin and end with.
        affixes: (String, String),
        /// How often the folder is looked at.
        interval: Duration,
    },
}

impl How {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Polled { .. } => "polled",
            Self::Received => "received",
            Self::Files { .. } => "files",
        }
    }

    /// Where the documents are, without secrets.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Polled { fetch, .. } => Some(fetch.address.shown()),
            Self::Received => None,
            Self::Files { folder, affixes: (begin, end), .. } => {
                Some(folder.join(format!("{begin}*{end}")).display().to_string())
            }
        }
    }

    pub(crate) fn skips_backlog(&self) -> bool {
        matches!(self, Self::Polled { skip_backlog: true, .. })
    }
}
