//! Small records in files, read without a copy: data that is derived from the store's rows and too large for memory.
//!
//! A [`Heap`] owns a folder of *segments*: files of up to 64 MiB. A segment is allocated as a whole before it is
//! written, so a full disk is noticed in [`Heap::reserve`], and never while a record is written or read. Records are
//! appended to the last segment and never changed. [`Heap::append`] returns a [`Place`] of 64 bits, the only thing that
//! the owner keeps in memory. [`Heap::get`] returns the record's bytes, borrowed from a read-only map of the segment.
//! Reading a record allocates nothing.
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
//! **Derived.** The heap does not know what is in a record, or which records exist. Its owner has the places, and the
//! data from which each record can be written again. [`Heap::create`] begins empty. [`Heap::open`] takes the existing
//! files: the owner names the places that it knows (from a checkpoint) by [`Heap::adopt`], and all other records are
//! garbage. Files from before are never written again.
//!
//! **Damage.** The checksum covers the record's key. So changed bytes, a place of another record, and a place in a file
//! that is missing or cut short are all [`Damaged`], never wrong bytes. The place of a *replaced* record may still
//! return the old record: its owner must forget a place when it releases it. After a power failure only data for which
//! [`Heap::unsynced`] was synced is certain.
//!
//! **Full.** [`Heap::reserve`] returns an error and changes nothing. On a file system that writes copies (btrfs, ZFS),
//! or on one that fails, writing to reserved space can still fail. Then [`Heap::flush`] reports it, and the lost
//! records are damaged.
//!
//! **Garbage and order.** Each segment counts its live bytes, and how often a record's key is lower than the one
//! before. Records are written in the order in which they arrive. They are read in the order of their keys, which is
//! several times faster if they are stored in that order. So the owner moves the records of [`Heap::untidy`] segments
//! (sparse or scattered ones) step by step, in the order of keys: append, then release. A segment without a live record
//! is [retired](Heap::retire). Its file is deleted when no reader and no checkpoint can need it; the owner knows when.
//! So the files are at most twice the live bytes, plus reserved space, plus what was moved since the last deletion.
//!
//! Not here: locks (the owner has one), threads, and the repair of damage. If the disk cannot read a mapped page, the
//! process ends (SIGBUS), as with a page of its program. The data can be written again from the rows.
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
