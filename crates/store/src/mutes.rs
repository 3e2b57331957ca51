//! Mutes.

pub(crate) mod rows;
pub(crate) mod write;
