//! The lock of the shared shapes. `src/interleavings.rs` has a module of this name with loom's lock.

use std::hint;
pub(crate) use std::sync::{Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

/// How long a thread that finds the lock taken stays away from it: about a microsecond, tens of critical sections.
const PAUSE_SPINS: usize = 50;

/// Locks a mutex whose poison is harmless.
///
/// A thread that finds the lock taken first stays away from it for a while. Meanwhile the thread that has it can do many
/// operations with all data in its own processor's cache. Without the pause the two threads take turns, and each operation
/// moves lock and data from one processor to the other: a third to a quarter of the throughput.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => lock_contended(mutex),
    }
}

#[cold]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    (0..PAUSE_SPINS).for_each(|_| hint::spin_loop());
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
