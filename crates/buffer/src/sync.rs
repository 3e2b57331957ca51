//! The lock that the shared shapes use. `src/interleavings.rs` has a module of this name with loom's, see there.

pub(crate) use std::sync::{Mutex, MutexGuard};
