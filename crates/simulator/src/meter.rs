//! Counts the open streams of a connection, and finds clients that break the stream limit.
//!
//! `h2::server` has a fixed stream limit and refuses further streams silently. APNs changes its limit at any moment, and
//! the ledger counts violations. So h2 gets a limit that no client reaches. This meter reads the frame headers in both
//! directions and counts instead. It writes the announced limit into h2's first SETTINGS. It makes further SETTINGS frames
//! itself, and hides their acknowledgements from h2.
//!
//! A stream is open from its HEADERS until both sides have ended it or one has reset it (RFC 9113, 5.1). The meter counts
//! a stream as ended when its end is written to the socket, before the client can know. So its count is never above the
//! client's, and it never reports a violation wrongly. The limit in force is the last acknowledged one. Streams that were
//! open when it was lowered are legal; new ones are not.
//!
//! No I/O here. The meter follows at most [`STREAM_COUNT_MAX`] streams, which is h2's own limit.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::STREAM_LIMIT_MAX;

/// The limit given to h2: twice the highest limit that can be announced, so no client reaches it.
pub(crate) const STREAM_COUNT_MAX: usize = 2 * STREAM_LIMIT_MAX as usize;

/// Length of a frame header (RFC 9113, 4.1).
pub(crate) const HEADER_LEN: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
/// An undefined frame type. Every receiver ignores it (RFC 9113, 4.1).
const UNKNOWN: u8 = 0xf0;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// A decoded frame header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameHeader {
    pub(crate) length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameHeader {
    pub(crate) fn read(bytes: &[u8; HEADER_LEN]) -> Self {
        let [length @ .., kind, flags, a, b, c, d] = *bytes;
        Self {
            length: u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff,
        }
    }

    /// Whether the meter must see the payload too.
    pub(crate) fn is_settings(self) -> bool {
        self.kind == SETTINGS && self.flags & ACK == 0
    }

    fn ends_stream(self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// The state of a connection's streams and limits, as its frames show it.
#[derive(Debug)]
pub(crate) struct Meter {
    streams: FxHashMap<u32, Ended>,
    stream_last: u32,
    /// Streams above the limit, not yet refused.
    above_limit: FxHashSet<u32>,
    announced: VecDeque<Announced>,
    limit_last: u32,
    limit_in_force: Option<u32>,
    pub(crate) open_max: usize,
    pub(crate) violations: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    by_client: bool,
    by_server: bool,
}

#[derive(Debug, Clone, Copy)]
struct Announced {
    limit: u32,
    by_h2: bool,
}

impl Meter {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            streams: FxHashMap::default(),
            stream_last: 0,
            above_limit: FxHashSet::default(),
            announced: VecDeque::new(),
            limit_last: limit,
            limit_in_force: None,
            open_max: 0,
            violations: 0,
        }
    }

    /// The limit announced last.
    pub(crate) fn limit(&self) -> u32 {
        self.limit_last
    }

    /// Whether an announced limit is not acknowledged yet. Until then no further limit is announced, which bounds
    /// `announced`.
    pub(crate) fn awaits_ack(&self) -> bool {
        !self.announced.is_empty()
    }

    #[cfg(test)]
    fn open(&self) -> usize {
        self.streams.len()
    }

    /// Whether the stream was opened above the limit and must be refused. Says so once per stream.
    pub(crate) fn take_above_limit(&mut self, stream: u32) -> bool {
        !self.above_limit.is_empty() && self.above_limit.remove(&stream)
    }

    /// Makes the SETTINGS frame that announces another limit.
    pub(crate) fn announce(&mut self, limit: u32) -> [u8; HEADER_LEN + 6] {
        self.limit_last = limit;
        self.announced.push_back(Announced { limit, by_h2: false });
        let mut frame = [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];
        frame[11..].copy_from_slice(&limit.to_be_bytes());
        frame
    }

    /// Reads a frame header from the client. Changes the header if h2 must not see the frame.
    pub(crate) fn on_inbound(&mut self, bytes: &mut [u8; HEADER_LEN]) -> FrameHeader {
        let frame = FrameHeader::read(bytes);
        match frame.kind {
            HEADERS if frame.stream > self.stream_last => {
                self.stream_last = frame.stream;
                self.on_opened(frame.stream);
            }
            RST_STREAM => self.on_reset(frame.stream),
            SETTINGS if frame.flags & ACK != 0 => {
                if let Some(announced) = self.announced.pop_front() {
                    self.limit_in_force = Some(announced.limit);
                    if !announced.by_h2 {
                        bytes[3] = UNKNOWN;
                    }
                }
            }
            _ => {}
        }
        if frame.ends_stream() {
            self.on_ended(frame.stream, |ended| &mut ended.by_client);
        }
        frame
    }

    /// Reads a frame header to the client.
    pub(crate) fn on_outbound(&mut self, frame: FrameHeader) {
        match frame.kind {
            RST_STREAM => self.on_reset(frame.stream),
            _ if frame.ends_stream() => self.on_ended(frame.stream, |ended| &mut ended.by_server),
            _ => {}
        }
    }

    /// Replaces the limit in h2's SETTINGS by the announced one.
    pub(crate) fn on_outbound_settings(&mut self, payload: &mut [u8]) {
        for setting in payload.chunks_exact_mut(6) {
            if u16::from_be_bytes([setting[0], setting[1]]) == MAX_CONCURRENT_STREAMS {
                setting[2..].copy_from_slice(&self.limit_last.to_be_bytes());
            }
        }
        self.announced.push_back(Announced { limit: self.limit_last, by_h2: true });
    }

    fn on_opened(&mut self, stream: u32) {
        // After a GOAWAY, h2 ignores new streams. A client that opens more and more of them must not fill the memory.
        if self.streams.len() >= STREAM_COUNT_MAX {
            return;
        }
        self.streams.insert(stream, Ended::default());
        self.open_max = self.open_max.max(self.streams.len());
        // Before its first acknowledgement a client cannot know the limit. Its stream is refused, but is no violation.
        if self.streams.len() > self.limit_in_force.unwrap_or(self.limit_last) as usize {
            self.above_limit.insert(stream);
            self.violations += u64::from(self.limit_in_force.is_some());
        }
    }

    fn on_ended(&mut self, stream: u32, side: impl Fn(&mut Ended) -> &mut bool) {
        if let Some(ended) = self.streams.get_mut(&stream) {
            *side(ended) = true;
            if ended.by_client && ended.by_server {
                self.streams.remove(&stream);
            }
        }
    }

    fn on_reset(&mut self, stream: u32) {
        self.streams.remove(&stream);
        self.above_limit.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        (bytes[3], bytes[4]) = (kind, flags);
        bytes[5..].copy_from_slice(&stream.to_be_bytes());
        bytes
    }

    fn opened(meter: &mut Meter, stream: u32) -> bool {
        meter.on_inbound(&mut frame(HEADERS, END_STREAM, stream));
        !meter.take_above_limit(stream)
    }

    fn answered(meter: &mut Meter, stream: u32) {
        meter.on_outbound(FrameHeader::read(&frame(HEADERS, END_STREAM, stream)));
    }

    fn acknowledged(meter: &mut Meter) -> u8 {
        let mut ack = frame(SETTINGS, ACK, 0);
        meter.on_inbound(&mut ack);
        ack[3]
    }

    #[test]
    fn a_lowered_limit_binds_from_its_acknowledgement_and_spares_open_streams() {
        let mut meter = Meter::new(2);
        meter.on_outbound_settings(&mut []);
        assert_eq!(acknowledged(&mut meter), SETTINGS, "h2 must see the acknowledgement of its own SETTINGS");
        assert!(opened(&mut meter, 1) && opened(&mut meter, 3));
        meter.announce(1);
        answered(&mut meter, 1);
        assert!(opened(&mut meter, 5), "the client has not acknowledged the new limit yet");
        assert_eq!(acknowledged(&mut meter), UNKNOWN, "h2 must not see the acknowledgement of the meter's SETTINGS");
        answered(&mut meter, 3);
        assert!(!opened(&mut meter, 7));
        assert_eq!((meter.violations, meter.open(), meter.open_max), (1, 2, 2));
        meter.on_outbound(FrameHeader::read(&frame(RST_STREAM, 0, 7)));
        answered(&mut meter, 5);
        assert!(opened(&mut meter, 9));
        assert_eq!((meter.violations, meter.open()), (1, 1));
    }

    #[test]
    fn before_the_first_acknowledgement_too_many_streams_are_refused_but_are_no_violation() {
        let mut meter = Meter::new(1);
        meter.on_outbound_settings(&mut []);
        assert!(opened(&mut meter, 1));
        assert!(!opened(&mut meter, 3));
        assert_eq!(meter.violations, 0);
    }

    #[test]
    fn a_stream_stays_open_until_both_sides_have_ended_it() {
        let mut meter = Meter::new(10);
        meter.on_inbound(&mut frame(HEADERS, 0, 1));
        answered(&mut meter, 1);
        assert_eq!(meter.open(), 1);
        meter.on_inbound(&mut frame(DATA, END_STREAM, 1));
        assert_eq!(meter.open(), 0);
        meter.on_inbound(&mut frame(HEADERS, END_STREAM, 1)); // Trailers do not open a stream again.
        assert_eq!((meter.open(), meter.open_max), (0, 1));
    }

    #[test]
    fn the_announced_limit_replaces_the_limit_of_h2() {
        let mut meter = Meter::new(7);
        let mut payload = [0, 4, 0, 0, 0, 9, 0, 3, 0, 0, 39, 16];
        meter.on_outbound_settings(&mut payload);
        assert_eq!(payload, [0, 4, 0, 0, 0, 9, 0, 3, 0, 0, 0, 7]);
    }
}
