//! The lock of the shared shapes. `src/interleavings.rs` has a module of this name with loom's lock.

pub(crate) use std::sync::{Mutex, MutexGuard};
