//! Fetching memory into the processor's cache before it is read.

/// The size of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Fetches the bytes; the end may be left out if it is in one more cache line. Does nothing on other processors.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the language has no safe prefetch"))]
pub(crate) fn bytes(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint. It has no effect that the program sees and never faults. The address is valid.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
