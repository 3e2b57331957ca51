//! Where lines end, in bytes that come piece by piece: each byte is looked at once.
//!
//! A line ends with CR LF. A lone LF is refused (RFC 9112, 2.2 lets a recipient accept it; two that disagree about it
//! disagree about where a head ends). A lone CR is no end of a line; the grammar of what the line holds excludes it.

use memchr::memchr;

/// How far the search has come.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bytes of the input that hold no end yet.
    scanned: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineError {
    BareLineFeed,
    TooLong,
}

impl Lines {
    /// The length of the line the input begins with, CR LF included; `None` until it is there.
    pub(super) fn line(&mut self, input: &[u8], limit: usize) -> Result<Option<usize>, LineError> {
        self.find(input, limit, |_, _| true)
    }

    /// The length of the lines up to and including the first empty one; `None` until they are there.
    pub(super) fn block(&mut self, input: &[u8], limit: usize) -> Result<Option<usize>, LineError> {
        self.find(input, limit, |input, at| at == 1 || input[at - 2] == b'\n')
    }

    /// The first end of a line, at most `limit` bytes long all in all, whose line feed is one of those wanted.
    fn find(
        &mut self,
        input: &[u8],
        limit: usize,
        is_wanted: impl Fn(&[u8], usize) -> bool,
    ) -> Result<Option<usize>, LineError> {
        let window = &input[..input.len().min(limit)];
        while let Some(found) = memchr(b'\n', &window[self.scanned..]) {
            let at = self.scanned + found;
            if at == 0 || window[at - 1] != b'\r' {
                return Err(LineError::BareLineFeed);
            }
            self.scanned = at + 1;
            if is_wanted(window, at) {
                self.scanned = 0;
                return Ok(Some(at + 1));
            }
        }
        self.scanned = window.len();
        if window.len() == limit { Err(LineError::TooLong) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_looked_at_twice() {
        let mut lines = Lines::default();
        assert_eq!(lines.line(b"abc", 99), Ok(None));
        // Looked at again, the first byte would be a lone line feed.
        assert_eq!(lines.line(b"\nbc\r\n", 99), Ok(Some(5)));
        assert_eq!(lines.block(b"a\r\nb\r\n\r", 99), Ok(None));
        assert_eq!(lines.block(b"a\n\nb\n\n\r\n", 99), Ok(Some(8)));
    }
}
