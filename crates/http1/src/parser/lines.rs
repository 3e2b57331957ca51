//! Finds the ends of lines in bytes that come piece by piece. Each byte is read once.
//!
//! A line ends with CR LF. A lone LF is refused. RFC 9112, 2.2 allows a recipient to accept it, but two recipients that
//! differ about it would find different ends of a head. A lone CR does not end a line; the grammar of the line refuses it.

use memchr::memchr;

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bytes of the input that were searched without success.
    scanned: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineError {
    BareLineFeed,
    TooLong,
}

impl Lines {
    /// The length of the first line, CR LF included. `None` until it is complete.
    pub(super) fn line(&mut self, input: &[u8], limit: usize) -> Result<Option<usize>, LineError> {
        self.find(input, limit, |_, _| true)
    }

    /// The length of the lines up to and including the first empty line. `None` until they are complete.
    pub(super) fn block(&mut self, input: &[u8], limit: usize) -> Result<Option<usize>, LineError> {
        self.find(input, limit, |input, at| at == 1 || input[at - 2] == b'\n')
    }

    /// Finds the first wanted line feed within `limit` bytes.
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
    fn no_byte_is_read_twice() {
        let mut lines = Lines::default();
        assert_eq!(lines.line(b"abc", 99), Ok(None));
        // If the first byte were read again, it would be a lone line feed.
        assert_eq!(lines.line(b"\nbc\r\n", 99), Ok(Some(5)));
        assert_eq!(lines.block(b"a\r\nb\r\n\r", 99), Ok(None));
        assert_eq!(lines.block(b"a\n\nb\n\n\r\n", 99), Ok(Some(8)));
    }
}
