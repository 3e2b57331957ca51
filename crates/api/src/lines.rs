//! Splits a stream of bytes, in any pieces, into lines: for bodies with one JSON value per line (NDJSON).
//!
//! A core without I/O: it gets the bytes that have arrived and returns whole lines. A line ends with a line feed; a
//! carriage return before it belongs to the end. The last line may have no end. Lines of white space are counted and
//! skipped.
//!
//! Bound: one line of [`line_bytes_max`] bytes and one chunk of input. A longer line is returned as too long, and its
//! rest is thrown away as it arrives.

use axum::body::Bytes;

/// The most bytes of a line without its subscriptions and mutes.
const LINE_BYTES: usize = 64 << 10;
/// The most bytes of one subscription with its subject, if every character is escaped.
const SUBSCRIPTION_BYTES: usize = 400;
/// The most bytes of a mute.
const MUTE_BYTES: usize = 320;

/// The longest line, if a device may have this many subscriptions and mutes: every exported line can be imported.
pub(crate) const fn line_bytes_max(subscription_count_max: usize, mute_count_max: usize) -> usize {
    let subscriptions = SUBSCRIPTION_BYTES.saturating_mul(subscription_count_max);
    LINE_BYTES.saturating_add(subscriptions).saturating_add(MUTE_BYTES.saturating_mul(mute_count_max))
}

/// The content of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// Its bytes without the line end.
    Text(Bytes),
    /// The line is longer than allowed.
    TooLong,
}

/// Puts lines together.
#[derive(Debug)]
pub(crate) struct LineReader {
    /// The limit of one line.
    bytes_max: usize,
    /// Input that was not read yet.
    fed: Bytes,
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    /// The current line is too long, and was returned as such.
    is_skipping: bool,
    /// Lines returned or skipped.
    count: u64,
}

impl LineReader {
    /// A reader without input; lines have at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, fed: Bytes::new(), begun: Vec::new(), is_skipping: false, count: 0 }
    }

    /// Adds input. All earlier lines must have been taken ([`LineReader::next_line`] returned `None`).
    pub(crate) fn feed(&mut self, chunk: Bytes) {
        debug_assert!(self.fed.is_empty(), "what was fed before was not looked at");
        self.fed = chunk;
    }

    /// The next whole line and its number, from 1. `None`: more input is needed.
    pub(crate) fn next_line(&mut self) -> Option<(u64, Line)> {
        while !self.fed.is_empty() {
            let Some(end) = self.fed.iter().position(|byte| *byte == b'\n') else {
                let rest = std::mem::take(&mut self.fed);
                return self.begin(&rest);
            };
            let end_of_line = self.fed.split_to(end + 1);
            let line = self.end(&end_of_line[..end]);
            if line.is_some() {
                return line;
            }
        }
        None
    }

    /// The last line of the stream, if it has no line end.
    pub(crate) fn finish(&mut self) -> Option<(u64, Line)> {
        if self.begun.is_empty() && !self.is_skipping {
            return None;
        }
        self.end(&[])
    }

    /// A part of a line without its end.
    fn begin(&mut self, part: &[u8]) -> Option<(u64, Line)> {
        if self.is_skipping {
            return None;
        }
        // One more byte for the carriage return of a line end.
        if self.begun.len() + part.len() > self.bytes_max + 1 {
            self.begun = Vec::new();
            self.is_skipping = true;
            return Some((self.count + 1, Line::TooLong));
        }
        self.begun.extend_from_slice(part);
        None
    }

    /// The last part of a line.
    fn end(&mut self, part: &[u8]) -> Option<(u64, Line)> {
        self.count += 1;
        if std::mem::take(&mut self.is_skipping) {
            return None;
        }
        let mut line = std::mem::take(&mut self.begun);
        line.extend_from_slice(part);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.len() > self.bytes_max {
            return Some((self.count, Line::TooLong));
        }
        let is_blank = line.iter().all(u8::is_ascii_whitespace);
        (!is_blank).then(|| (self.count, Line::Text(line.into())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE_BYTES_MAX: usize = line_bytes_max(0, 0);

    fn read(chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<(u64, Line)> {
        let (mut reader, mut lines) = (LineReader::new(LINE_BYTES_MAX), Vec::new());
        for chunk in chunks {
            reader.feed(chunk.into());
            lines.extend(std::iter::from_fn(|| reader.next_line()));
        }
        lines.extend(reader.finish());
        lines
    }

    /// What they are, all bytes at hand.
    fn lines(text: &[u8]) -> Vec<(u64, Line)> {
        let line = |line: &[u8]| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > LINE_BYTES_MAX { Line::TooLong } else { Line::Text(line.to_vec().into()) }
        };
        let is_blank = |line: &Line| matches!(line, Line::Text(text) if text.trim_ascii().is_empty());
        let numbered = text.split(|byte| *byte == b'\n').map(line).zip(1..).map(|(line, number)| (number, line));
        numbered.filter(|(_, line)| !is_blank(line)).collect()
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![20 => 0..30_usize, 1 => LINE_BYTES_MAX - 3..LINE_BYTES_MAX + 4];
        let end = prop_oneof![Just(&b"\n"[..]), Just(&b"\r\n"[..]), Just(&b"\r\r\n"[..]), Just(&b" \n"[..])];
        let line = (length, any::<bool>(), end)
            .prop_map(|(length, is_blank, end)| [&vec![if is_blank { b' ' } else { b'x' }; length], end].concat());
        (prop::collection::vec(line, 0..8), any::<bool>()).prop_map(|(lines, is_ended)| {
            let mut text = lines.concat();
            if !is_ended {
                text.pop();
            }
            text
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// However the bytes are cut, the lines are the same.
        #[test]
        fn lines_do_not_depend_on_how_they_come(text in text(), sizes in prop::collection::vec(1_usize..40_000, 1..20)) {
            let (mut rest, mut sizes) = (&text[..], sizes.iter().cycle());
            let chunks = std::iter::from_fn(|| {
                let (chunk, behind) = rest.split_at(rest.len().min(*sizes.next()?));
                rest = behind;
                (!chunk.is_empty()).then(|| chunk.to_vec())
            });
            prop_assert_eq!(read(chunks), lines(&text));
        }
    }

    #[test]
    fn a_long_line_costs_itself_and_no_memory() {
        let mut reader = LineReader::new(LINE_BYTES_MAX);
        let mut told = Vec::new();
        for _ in 0..100 {
            reader.feed(vec![b'x'; 40_000].into());
            told.extend(std::iter::from_fn(|| reader.next_line()));
            assert!(reader.begun.capacity() <= 2 * LINE_BYTES_MAX);
        }
        reader.feed(b"\nnext".to_vec().into());
        told.extend(std::iter::from_fn(|| reader.next_line()));
        told.extend(reader.finish());
        assert_eq!(told, [(1, Line::TooLong), (2, Line::Text(Bytes::from_static(b"next")))]);
    }
}
