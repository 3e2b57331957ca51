//! Positions: of a publication in its channel, of an event in the journal.
//!
//! Offsets of one channel are compared only within one [`Epoch`]; a reader with another epoch gets a gap. All durable
//! channels share the epoch of the store (decision 0002). Positions are given out elsewhere: by the hub for memory
//! channels, and by the store's committer for durable channels and the journal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Position of a publication in its channel. The first one has offset 1; in a durable channel whose name may have been
/// used before it has a later one. 0 is before all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset of the publication after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One life of a channel. It is new when the history was lost, so that offsets of different lives are never compared.
/// Eight ASCII letters; on the wire a string.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Epoch([u8; 8]);

impl Epoch {
    /// An epoch from random bits of the caller (cores have no randomness of their own).
    pub fn from_random(mut bits: u64) -> Self {
        const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        Self(std::array::from_fn(|_| {
            let letter = LETTERS[(bits % 52) as usize];
            bits /= 52;
            letter
        }))
    }

    /// The letters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an epoch holds ASCII letters only")
    }
}

impl TryFrom<String> for Epoch {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match <[u8; 8]>::try_from(text.as_bytes()) {
            Ok(letters) if letters.iter().all(u8::is_ascii_alphabetic) => Ok(Self(letters)),
            _ => Err("an epoch is eight ASCII letters".to_owned()),
        }
    }
}

impl From<Epoch> for String {
    fn from(epoch: Epoch) -> Self {
        epoch.as_str().to_owned()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A position from which a reader can resume: the last publication that it has, and its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StreamPosition {
    /// The last publication the reader has.
    pub offset: Offset,
    /// The epoch of the offset.
    pub epoch: Epoch,
}

/// Position of an accepted event in the journal; increases by one per event, and also names the event's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JournalPosition(pub u64);
