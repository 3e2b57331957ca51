//! The line before a chunk: `chunk-size [ chunk-ext ]` (RFC 9112, 7.1 and 7.1.1).
//!
//! Extensions are ignored. Their size is limited, because a body of one-byte chunks could have any number of them. White
//! space is allowed only before an extension's semicolon, as in the grammar.

use super::violation::{CHUNK_EXTENSION_BYTES_MAX, Violation};

/// The most digits of a size: those of the largest 64-bit number.
const SIZE_DIGIT_COUNT_MAX: usize = 16;

/// Counts the bytes of extensions in one body.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    bytes: usize,
}

impl Extensions {
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Violation> {
        self.bytes += bytes;
        if self.bytes > CHUNK_EXTENSION_BYTES_MAX { Err(Violation::ChunkExtensionsTooLong) } else { Ok(()) }
    }
}

/// Reads the size of a chunk and the bytes of its extensions. The line has no CR LF.
pub(super) fn read_size(line: &[u8]) -> Result<(u64, usize), Violation> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, extensions) = line.split_at(digits);
    if digits.is_empty() || digits.len() > SIZE_DIGIT_COUNT_MAX || !is_extension(extensions) {
        return Err(Violation::ChunkSize);
    }
    let value = |byte: u8| u64::from((byte as char).to_digit(16).unwrap_or_default());
    // 16 digits of 4 bits fit into 64 bits.
    let size = digits.iter().fold(0, |size, digit| size << 4 | value(*digit));
    Ok((size, extensions.len()))
}

/// Whether this is empty, or white space, a semicolon and text without control characters.
fn is_extension(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    bytes.is_empty() || text.starts_with(b";") && bytes.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}
