//! The store's errors: one type per kind of request, so that a caller matches only the cases that can occur.
//!
//! [`WriteError`] is the part that they share. In both its cases the caller may retry later.

use std::path::PathBuf;

use tidings_types::{DeviceId, EventId};

use crate::engine::EngineError;
use crate::log::LogError;

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another handle in this one, has the store open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The store's folder.
        path: PathBuf,
    },
    /// Written by a version of Tidings that this one does not know.
    #[error("the store has format {found}, this version reads format {known}")]
    Format {
        /// The store's format.
        found: String,
        /// The format that this version writes.
        known: &'static str,
    },
    /// The folder cannot be used.
    #[error("cannot use {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It is one of several stores that share a log: alone it would write what the others never get.
    #[error("the store shares a log with other nodes, and cannot be opened without it")]
    HasLog,
    /// The log that several nodes share cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A write was not acknowledged. It may be repeated unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A bound is reached. Later there may be room.
    #[error("{what} is full: limit {limit}")]
    Overloaded {
        /// What is full.
        what: &'static str,
        /// Its limit.
        limit: u64,
    },
    /// The disk fails, the store is closing, or the request needs a damaged row. The write may be durable nevertheless.
    #[error("the store cannot write now")]
    Unavailable,
}

/// Events were not appended; nothing of the request was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The id is known with other content.
    #[error("event {index} has the id {id} of an earlier event with other content")]
    Conflict {
        /// Which of the request's events, from 0.
        index: usize,
        /// Its id.
        id: EventId,
    },
    /// The store cannot write now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A device was not put or deleted; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The caller's precondition does not hold.
    #[error("the precondition does not hold: {}", match .revision {
        Some(revision) => format!("the device has revision {revision}"),
        None => "there is no such device".to_owned(),
    })]
    PreconditionFailed {
        /// The device's revision; `None`: there is no such device.
        revision: Option<u64>,
    },
    /// The device's user would have too many devices.
    #[error("devices of one user: limit {limit}, got {count}")]
    TooManyDevices {
        /// Devices that one user may have.
        limit: u32,
        /// Devices that the user would have.
        count: u64,
    },
    /// The store cannot write now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Subscriptions or mutes were not changed, or a device was not imported; nothing of the request was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// No such device.
    #[error("no such device")]
    NotFound,
    /// The device would have too many subscriptions.
    #[error("subscriptions of one device: limit {limit}, got {count}")]
    TooMany {
        /// Subscriptions that one device may have.
        limit: u32,
        /// Subscriptions that the device would have.
        count: u64,
    },
    /// The device would have too many mutes.
    #[error("mutes of one device: limit {limit}, got {count}")]
    TooManyMutes {
        /// Mutes that one device may have.
        limit: u32,
        /// Mutes that the device would have.
        count: u64,
    },
    /// The device's user would have too many devices.
    #[error("devices of one user: limit {limit}, got {count}")]
    TooManyDevices {
        /// Devices that one user may have.
        limit: u32,
        /// Devices that the user would have.
        count: u64,
    },
    /// The store cannot write now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Devices were not imported; nothing of the chunk was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The step is not the next one of its import.
    #[error("the import has {recorded} lines done, not {lines_before}")]
    OutOfStep {
        /// Lines that are done.
        recorded: u64,
        /// Lines that are done according to the step.
        lines_before: u64,
    },
    /// A device exceeds a limit.
    #[error("cannot import device {id}")]
    Device {
        /// The place of the device in the request, because an id may occur twice.
        index: usize,
        /// The device.
        id: DeviceId,
        /// The cause.
        source: SubscribeError,
    },
    /// The store cannot write now.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store is closed, or is being opened again after an error.
    #[error("the store cannot read now")]
    Unavailable,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ReadError {
    /// Whether a stored row is damaged. Then a retry does not help. Otherwise the disk fails or the store is not open.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_damage())
    }
}
