//! Small records in files, read without a copy: what is derived from the store's rows and too much for memory.
//!
//! A [`Heap`] owns a folder of *segments*: files of up to 64 MiB, allocated as a whole before anything is written into
//! them, so that a full disk is met in [`Heap::reserve`] and never while a record is written or read. Records are
//! appended to the last segment and never changed. [`Heap::append`] answers with a [`Place`] of 64 bits, which is all
//! that its owner keeps in memory; [`Heap::get`] turns it into the record's bytes, borrowed from a read-only map of the
//! segment. Nothing is allocated per record read.
//!
//! ```text
//! 000001.heap  ▓▓▓▓░░▓▓▓▓▓░▓▓▓   sealed            ▓ live   ░ garbage (replaced or removed)
//! 000002.heap  ░░░▓░░░░▓░░░░░░   sealed, more than half garbage: its owner moves what lives, then the file goes
//! 000003.heap  ▓▓▓▓▓▓▓·········   written at its end
//! 000004.heap  ················   reserved
//!
//! record: xxh3 of the bytes with the key as its seed, u64 little-endian; the bytes
//! ```
//!
//! **Derived.** The heap knows nothing of what is in a record, nor which records there are: its owner has the places, and
//! the truth from which to write each record anew. [`Heap::create`] begins with nothing. [`Heap::open`] takes what files
//! there are: the owner says by [`Heap::adopt`] which places it knows (from a checkpoint), and what no place speaks of is
//! garbage. Files from before are never written again.
//!
//! **Damage.** The checksum covers the record's key, so bytes that changed, a place of another record, and one in a file
//! that is missing or cut short are all [`Damaged`], never wrong bytes. What a *replaced* record was is not damage: a place
//! is to be forgotten when it is released. After a power failure only what [`Heap::unsynced`] was synced for is sure.
//!
//! **Full.** [`Heap::reserve`] says so and leaves all as it is. On a file system that writes copies (btrfs, ZFS) or fails,
//! writing what was reserved can fail nevertheless: [`Heap::flush`] tells, and what was lost is damaged.
//!
//! **Garbage and order.** Each segment counts its live bytes, and how often a record's key is below the one before.
//! Records that are read in the order of their keys are read several times faster where they lie in that order, and they
//! are written in the order in which they came. So the owner moves the records of [`Heap::untidy`] segments, which are
//! sparse or scattered, in the order of keys (append, release), bit by bit. A segment without a live record is
//! [retired](Heap::retire) and its file deleted when neither a reader nor a checkpoint can want it, which the owner knows.
//! So the files are at most twice what lives, what is reserved, and what was moved since the last deletion.
//!
//! Not here: locks (the owner has one), threads, what to do about damage. A disk that cannot read a mapped page ends the
//! process (SIGBUS), as a page of its program would; copies of the folder are the remedy, as the rows are the truth.
//!
//! **Checked** by a model under random operations, reopening, flipped bytes and cut files (`tests`), and a full tmpfs
//! (`tests/full_disk.rs`).

mod error;
mod heap;
mod place;
mod prefetch;
mod segment;
#[cfg(test)]
mod tests;

pub use error::{Damaged, NoRoom, OpenError, ReserveError};
pub use heap::{Heap, Limits, MissingSegment, NewSegment, Retired, Stored, Unsynced, Usage};
pub use place::{Place, RECORD_BYTES_MAX, stored_bytes};
