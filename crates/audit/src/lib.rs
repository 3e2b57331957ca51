//! The audit log: who changed what, when, and whether it was allowed.
//!
//! A caller makes an [`Entry`] for each attempt to change something, and [`Audit::record`] writes it as a line of JSON
//! into a file of the folder `audit` in the data folder. [`Audit::read`] gives entries back, the newest first.
//!
//! ```text
//!  record ─► Window ─► BatchWriter ─► thread `audit` ─► Files: 00000001.ndjson, 00000002.ndjson, …
//!             │ many entries of one kind in a second become one line
//! ```
//!
//! This crate does not know which actions there are or who may read: the API does. An entry has names and numbers only.
//! Payloads, tokens and texts of people must not be put into it.
//!
//! # Bounds
//! - In a second, 10 entries of the same kind (who, action, result) are written one by one, and further ones become one
//!   line with their count (`window`). There are at most 1024 kinds in a second; entries of further kinds are lost.
//! - An entry names at most 16 things. Each text has at most 200 bytes.
//! - [`BUFFER_BYTES`] wait for the disk. While it is full, new lines are lost. So nobody can push out the lines about what
//!   was done before.
//! - The files have at most `file_bytes_max` × `file_count_max` bytes. The oldest file is removed.
//! - A read looks at no more than 8 MiB.
//!
//! # What can be lost
//! Recording never waits and never fails. Lost lines are counted, and a line in the file itself says how many
//! ([`LOST`]). An orderly stop writes all lines ([`Audit::close`]). A `kill -9` loses the lines that have not reached the
//! file yet: usually those of the last milliseconds, at most `BUFFER_BYTES` and the counts of one second. Files are not
//! synced, so if the whole machine fails, the lines of the last half minute can be missing.

mod entry;
mod files;
mod log;
mod read;
mod window;

pub use entry::{By, Entry, LOST};
pub use log::{Audit, AuditConfig, BUFFER_BYTES, memory_terms};
pub use read::{Cursor, CursorError, Page, Query};
