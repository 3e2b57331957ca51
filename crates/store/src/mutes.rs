//! Mutes.

pub(crate) mod ends;
pub(crate) mod read;
pub(crate) mod rows;
pub(crate) mod write;
