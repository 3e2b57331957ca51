//! Imports.

mod write;
