//! Fetching memory before it is read.

/// Bytes that the processor fetches at once.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// All of it, but for its end where that is in one line more; nothing on processors for which this is not written.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the language has no other word for it"))]
pub(crate) fn bytes(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing that the program sees, and never faults; the address is that of a byte.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
