//! What a client of the benchmark understands: WebSocket frames from a server, and the three kinds of lines in them.
//!
//! Quick rather than complete: it knows what our server sends, and takes anything else for a mistake of the server.

use std::ops::Range;
use std::sync::LazyLock;

use tokio::time::Instant;

/// Bytes of a publication's data, the quotation marks included.
const DATA_BYTES: usize = 128;
const DIGIT_COUNT: usize = 16;
/// What comes before the digits of a publication on the wire.
const MARKER: &[u8] = br#""data":""#;

/// Microseconds since the first question.
pub(super) fn now_micros() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A publication's data: its number and the moment it was made, filled up.
pub(super) fn data(number: u64) -> String {
    let mut text = format!("{number:016x}{:016x}", now_micros());
    text.extend(std::iter::repeat_n('x', DATA_BYTES - 2 - text.len()));
    text
}

/// Number and moment of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) number: u64,
    pub(super) micros: u64,
}

impl Stamp {
    /// From data.
    pub(super) fn of_data(data: &[u8]) -> Option<Self> {
        let digits = |range: Range<usize>| u64::from_str_radix(std::str::from_utf8(data.get(range)?).ok()?, 16).ok();
        Some(Self { number: digits(0..DIGIT_COUNT)?, micros: digits(DIGIT_COUNT..2 * DIGIT_COUNT)? })
    }
}

/// A line from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Ping,
    Publication(Stamp),
    Other(&'a [u8]),
}

impl<'a> Line<'a> {
    pub(super) fn of(text: &'a [u8]) -> Self {
        if text == b"{}" {
            return Self::Ping;
        }
        let publication = || {
            text.starts_with(b"{\"push\":").then_some(())?;
            let marker = text.windows(MARKER.len()).position(|window| window == MARKER)?;
            Stamp::of_data(&text[marker + MARKER.len()..])
        };
        publication().map_or(Self::Other(text), Self::Publication)
    }
}

/// The bytes of an unfinished frame.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    unfinished: Vec<u8>,
}

impl Inbox {
    /// Takes what came and hands on each line of each whole text frame.
    ///
    /// # Errors
    /// The opcode of the first frame that is no text: our server sends none unless it closes.
    pub(super) fn take(&mut self, bytes: &[u8], mut visit: impl FnMut(Line<'_>)) -> Result<(), u8> {
        let joined;
        let mut rest = if self.unfinished.is_empty() {
            bytes
        } else {
            self.unfinished.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.unfinished);
            &joined
        };
        while let Some((opcode, payload)) = frame(rest) {
            if opcode != 1 {
                return Err(opcode);
            }
            rest[payload.clone()].split(|&byte| byte == b'\n').map(Line::of).for_each(&mut visit);
            rest = &rest[payload.end..];
        }
        self.unfinished = rest.to_vec();
        Ok(())
    }
}

/// The first frame's opcode and where its payload is; `None` when it is not all there (RFC 6455, 5.2).
fn frame(bytes: &[u8]) -> Option<(u8, Range<usize>)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let wide = |range: Range<usize>| Some(bytes.get(range)?.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)));
    let (start, length): (usize, usize) = match second & 0x7f {
        126 => (4, wide(2..4)?),
        127 => (10, wide(2..10)?),
        length => (2, usize::from(length)),
    };
    (bytes.len() >= start.checked_add(length)?).then_some((first & 0x0f, start..start + length))
}

#[cfg(test)]
mod tests {
    use tidings_protocol::websocket::{close_frame, text_frame};
    use tidings_protocol::{Publication, Tags, encode_publication_push};
    use tidings_types::{ChannelName, Json, Offset};

    use super::*;

    fn wire(numbers: Range<u64>) -> Vec<u8> {
        let channel = ChannelName::new("bench").unwrap();
        let mut wire = text_frame(b"{\"id\":1,\"connect\":{}}\n{}").to_vec();
        for number in numbers {
            let data = Json::of(&data(number));
            assert_eq!(data.bytes().len(), DATA_BYTES);
            let publication =
                Publication { offset: Offset(number), data, info: None, tags: Tags::default(), receipt: None };
            wire.extend(text_frame(&encode_publication_push(&channel, &publication)));
        }
        wire
    }

    #[test]
    fn frames_cut_anywhere_are_the_same_lines() {
        let wire = wire(1..4);
        for cut in 0..=wire.len() {
            let (mut inbox, mut others, mut numbers, mut pings) = (Inbox::default(), 0, Vec::new(), 0);
            for part in [&wire[..cut], &wire[cut..]] {
                let taken = inbox.take(part, |line| match line {
                    Line::Ping => pings += 1,
                    Line::Publication(stamp) => numbers.push(stamp.number),
                    Line::Other(text) => {
                        assert_eq!(text, b"{\"id\":1,\"connect\":{}}");
                        others += 1;
                    }
                });
                assert_eq!(taken, Ok(()));
            }
            assert_eq!((others, pings, &*numbers), (1, 1, &[1, 2, 3][..]), "cut at {cut}");
            assert!(inbox.unfinished.is_empty());
        }
    }

    #[test]
    fn a_close_frame_is_no_line() {
        assert_eq!(Inbox::default().take(&close_frame(3008, "slow"), |_| panic!("no line")), Err(8));
    }
}
