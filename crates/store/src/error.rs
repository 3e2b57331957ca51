//! Why the store refuses: one type per kind of request, so that a caller matches only what can happen to it.
//!
//! [`WriteError`] is the part they share, and both its cases may be tried again: later there is room, or the disk
//! works.

use std::path::PathBuf;

use tidings_types::{DeviceId, EventId};

use crate::engine::EngineError;

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another handle of this one, has it open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The store's folder.
        path: PathBuf,
    },
    /// Written by a version of Tidings that this one does not know.
    #[error("the store has format {found}, this version reads format {known}")]
    Format {
        /// What the store says.
        found: String,
        /// What this version writes.
        known: &'static str,
    },
    /// The folder cannot be used.
    #[error("cannot use {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The engine below refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A write was not done; nothing of it is acknowledged, and it may be repeated as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A bound is reached; later there may be room.
    #[error("{what} is full: limit {limit}")]
    Overloaded {
        /// What is full.
        what: &'static str,
        /// Its limit.
        limit: u64,
    },
    /// The disk refuses writes, or the store is closing. What was asked may be durable nevertheless.
    #[error("the store cannot write now")]
    Unavailable,
}

/// Events were not appended; nothing of the request was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The id is known with another content.
    #[error("event {index} has the id {id} of an earlier event with other content")]
    Conflict {
        /// Which of the request's events, from 0.
        index: usize,
        /// Its id.
        id: EventId,
    },
    /// Not now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A device was not put or deleted; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// What the caller said must be so before is not so.
    #[error("the precondition does not hold: {}", match .revision {
        Some(revision) => format!("the device has revision {revision}"),
        None => "there is no such device".to_owned(),
    })]
    PreconditionFailed {
        /// The device's revision; `None`: there is no such device.
        revision: Option<u64>,
    },
    /// Its user would have too many.
    #[error("devices of one user: limit {limit}, got {count}")]
    TooManyDevices {
        /// Devices one user may have.
        limit: u32,
        /// Devices he would have.
        count: u64,
    },
    /// Not now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Subscriptions or mutes were not changed, or a device not imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// No such device.
    #[error("no such device")]
    NotFound,
    /// The device would have too many; nothing of the request was done.
    #[error("subscriptions of one device: limit {limit}, got {count}")]
    TooMany {
        /// Subscriptions one device may have.
        limit: u32,
        /// Subscriptions it would have.
        count: u64,
    },
    /// The device would have too many mutes; nothing of the request was done.
    #[error("mutes of one device: limit {limit}, got {count}")]
    TooManyMutes {
        /// Mutes one device may have.
        limit: u32,
        /// Mutes it would have.
        count: u64,
    },
    /// The device's user would have too many devices; nothing of the request was done.
    #[error("devices of one user: limit {limit}, got {count}")]
    TooManyDevices {
        /// Devices one user may have.
        limit: u32,
        /// Devices he would have.
        count: u64,
    },
    /// Not now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Devices were not imported; nothing of the chunk was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The step is not the next one of its import: that goes on behind what is recorded.
    #[error("the import has {recorded} lines done, not {lines_before}")]
    OutOfStep {
        /// Lines that are done.
        recorded: u64,
        /// Lines that the step says are.
        lines_before: u64,
    },
    /// A device of it has too much.
    #[error("cannot import device {id}")]
    Device {
        /// Which of those handed in; an id may be there twice.
        index: usize,
        /// The device.
        id: DeviceId,
        /// Why.
        source: SubscribeError,
    },
    /// Not now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store is being opened again after an error, or closed.
    #[error("the store cannot read now")]
    Unavailable,
    /// The engine below refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ReadError {
    /// Whether a stored row is damaged: asking again finds it as it is. Otherwise the disk or the store's state is to
    /// blame.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_damage())
    }
}
