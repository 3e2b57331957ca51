//! Reads in the frames what `h2` does not report: the connection's flow window, and the reason of a GOAWAY.
//!
//! `h2` does not show the connection's flow window, and it drops the debug data of a GOAWAY without an error. Both are
//! needed: requests beyond the window would wait inside `h2`, where no other connection could take them, and an
//! operator wants to know why APNs closes connections. So this module reads the frames of both directions: their heads,
//! and the payload of the three kinds that matter. It checks nothing; `h2` refuses malformed frames.
//!
//! Window of the connection (RFC 9113, 6.9): 65,535 to begin with, plus each WINDOW_UPDATE of stream 0, less each DATA
//! frame's payload. Cost: a few nanoseconds per frame. Memory: [`KEPT_BYTES_MAX`] per direction.

/// Length, kind, flags and stream (RFC 9113, 4.1).
const HEAD_BYTES: usize = 9;
/// What a client sends before its first frame (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
/// The window of a new connection (RFC 9113, 6.9.2).
const WINDOW_BYTES: i64 = 65_535;
/// Bytes of a payload that are kept: the numbers of a GOAWAY and the beginning of its reason.
const KEPT_BYTES_MAX: usize = 8 + 256;
/// Characters of a reason that are reported.
const REASON_CHARS_MAX: usize = 64;

const DATA: u8 = 0;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// How a peer ends a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoAway {
    /// The last stream it has processed, or may yet.
    pub(crate) last_stream: u32,
    /// RFC 9113, 7.
    pub(crate) code: u32,
    /// The debug data: its `reason` field, as APNs sends it, or its beginning. Visible ASCII.
    pub(crate) reason: String,
}

/// The frames of one connection, both directions.
pub(crate) struct Frames {
    inbound: Scanner,
    outbound: Scanner,
    window: i64,
    goaway: Option<GoAway>,
}

impl Frames {
    /// Those of a client's connection that begins.
    pub(crate) fn new() -> Self {
        Self { inbound: Scanner::new(0), outbound: Scanner::new(PREFACE_BYTES), window: WINDOW_BYTES, goaway: None }
    }

    /// These bytes came from the peer.
    pub(crate) fn on_read(&mut self, bytes: &[u8]) {
        let Self { inbound, window, goaway, .. } = self;
        inbound.feed(bytes, |frame| match frame.kind {
            WINDOW_UPDATE if frame.stream == 0 => *window += i64::from(frame.word(0).unwrap_or_default()),
            GOAWAY => *goaway = frame.goaway(),
            _ => {}
        });
    }

    /// These bytes go to the peer.
    pub(crate) fn on_written(&mut self, bytes: &[u8]) {
        let Self { outbound, window, .. } = self;
        outbound.feed(bytes, |frame| {
            if frame.kind == DATA {
                *window -= frame.length as i64;
            }
        });
    }

    /// How many bytes of payload the peer takes now, over all streams.
    pub(crate) fn window(&self) -> usize {
        usize::try_from(self.window).unwrap_or(0)
    }

    /// The peer's GOAWAY, once.
    pub(crate) fn take_goaway(&mut self) -> Option<GoAway> {
        self.goaway.take()
    }
}

/// A frame that has passed.
struct Frame<'a> {
    kind: u8,
    stream: u32,
    length: usize,
    /// The beginning of the payload, of those kinds that are kept.
    payload: &'a [u8],
}

impl Frame<'_> {
    /// 31 bits of the payload, the reserved first one left out.
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.payload.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes) & (u32::MAX >> 1))
    }

    fn goaway(&self) -> Option<GoAway> {
        let reason = String::from_utf8_lossy(self.payload.get(8..)?);
        let named = reason.split_once("\"reason\":\"").and_then(|(_, rest)| rest.split('"').next());
        let visible = |it: &char| it.is_ascii_graphic() || *it == ' ';
        let reason = named.unwrap_or(&reason).chars().filter(visible).take(REASON_CHARS_MAX).collect();
        Some(GoAway { last_stream: self.word(0)?, code: self.word(4)?, reason })
    }
}

/// Finds the frames in one direction's bytes, however they are cut.
struct Scanner {
    /// Bytes that belong to no frame.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// How much of the head is there.
    filled: usize,
    /// Bytes of the payload that are yet to pass.
    left: usize,
    kept: Vec<u8>,
}

impl Scanner {
    fn new(skip: usize) -> Self {
        Self { skip, head: [0; HEAD_BYTES], filled: 0, left: 0, kept: Vec::new() }
    }

    fn feed(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(Frame<'_>)) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = &bytes[skipped..];
        loop {
            if self.filled < HEAD_BYTES {
                let part = bytes.len().min(HEAD_BYTES - self.filled);
                self.head[self.filled..self.filled + part].copy_from_slice(&bytes[..part]);
                self.filled += part;
                bytes = &bytes[part..];
                if self.filled < HEAD_BYTES {
                    return;
                }
                self.left = self.length();
            }
            let part = bytes.len().min(self.left);
            let kind = self.head[3];
            if kind == GOAWAY || kind == WINDOW_UPDATE {
                let kept = part.min(KEPT_BYTES_MAX - self.kept.len());
                self.kept.extend_from_slice(&bytes[..kept]);
            }
            self.left -= part;
            bytes = &bytes[part..];
            if self.left > 0 {
                return;
            }
            let [.., a, b, c, d] = self.head;
            let stream = u32::from_be_bytes([a, b, c, d]) & (u32::MAX >> 1);
            on_frame(Frame { kind, stream, length: self.length(), payload: &self.kept });
            self.kept.clear();
            self.filled = 0;
        }
    }

    fn length(&self) -> usize {
        let [a, b, c, ..] = self.head;
        u32::from_be_bytes([0, a, b, c]) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
    }

    fn goaway(last_stream: u32, code: u32, text: &[u8]) -> Vec<u8> {
        frame(GOAWAY, 0, &[&last_stream.to_be_bytes(), &code.to_be_bytes(), text].concat())
    }

    fn update(stream: u32, bytes: u32) -> Vec<u8> {
        frame(WINDOW_UPDATE, stream, &bytes.to_be_bytes())
    }

    #[test]
    fn a_goodbye_tells_its_reason_and_only_what_can_be_shown() {
        let said = |bytes: &[u8]| {
            let mut frames = Frames::new();
            frames.on_read(bytes);
            frames.take_goaway().map(|it| (it.last_stream, it.code, it.reason))
        };
        let json = br#"{"reason":"Shutdown","timestamp":1}"#;
        assert_eq!(said(&goaway(7, 0, json)), Some((7, 0, "Shutdown".to_owned())));
        assert_eq!(said(&goaway(0, 11, b"too_many_pings\n\xff")), Some((0, 11, "too_many_pings".to_owned())));
        let long = said(&goaway(1, 0, &[b'x'; 5000])).unwrap();
        assert_eq!(long.2.len(), REASON_CHARS_MAX);
        assert_eq!(said(&frame(GOAWAY, 0, b"short")), None);
    }

    #[test]
    fn only_the_connections_own_window_counts() {
        let mut frames = Frames::new();
        frames
            .on_written(&[[0; PREFACE_BYTES].as_slice(), &frame(4, 0, &[0; 12]), &frame(DATA, 1, &[0; 1000])].concat());
        assert_eq!(frames.window(), 64_535);
        frames.on_read(&[update(1, 5000), update(0, 10)].concat());
        assert_eq!(frames.window(), 64_545);
        frames.on_written(&frame(DATA, 3, &[0; 64_545]));
        assert_eq!(frames.window(), 0);
        frames.on_written(&frame(DATA, 3, &[0; 5]));
        assert_eq!(frames.window(), 0, "the peer's sums, not ours");
        frames.on_read(&frame(WINDOW_UPDATE, 0, &[]));
    }

    proptest! {
        /// However the bytes are cut, the same is seen in them.
        #[test]
        fn cuts_make_no_difference(
            parts in vec((0u8..10, 0u32..3, vec(any::<u8>(), 0..40)), 0..30),
            cuts in vec(1usize..50, 1..100),
            garbage in vec(any::<u8>(), 0..20),
        ) {
            let mut bytes: Vec<u8> = parts.iter().flat_map(|(kind, stream, body)| frame(*kind, *stream, body)).collect();
            bytes.extend(garbage);
            let (mut whole, mut pieces) = (Frames::new(), Frames::new());
            whole.on_read(&bytes);
            whole.on_written(&[&[0; PREFACE_BYTES], bytes.as_slice()].concat());
            let (mut rest, mut cuts) = (bytes.as_slice(), cuts.iter().cycle());
            pieces.on_written(&[0; PREFACE_BYTES - 1]);
            pieces.on_written(&[0]);
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                pieces.on_read(piece);
                pieces.on_written(piece);
                rest = behind;
            }
            prop_assert_eq!(whole.window, pieces.window);
            prop_assert_eq!(whole.take_goaway(), pieces.take_goaway());
        }
    }
}
