//! Following a connection's frames: which streams are open, and which limit the client has acknowledged.
//!
//! `h2::server` settles its stream limit at the handshake and refuses what lies above without telling. APNs changes
//! its limit at any moment, and we want to know who does not obey. So h2 is given a limit that nobody reaches, and
//! this meter, reading the frame headers on their way in and out, does the counting: it puts our limit into h2's first
//! SETTINGS, writes further SETTINGS itself, and takes their acknowledgements away from h2, which did not ask for them.
//!
//! A stream is open from its HEADERS until both sides have ended it or one has reset it (RFC 9113, 5.1). We count one
//! as ended when its end is handed to the socket, thus before the client can know: our count is never above the
//! client's, and a violation seen here is one. The limit in force is the one last acknowledged; streams that were open
//! when it was lowered are legal, new ones are not.
//!
//! No I/O here. At most [`STREAM_COUNT_MAX`] streams are followed, which is h2's own limit.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::STREAM_LIMIT_MAX;

/// The limit given to h2, which nobody reaches: twice what we can be told to announce.
pub(crate) const STREAM_COUNT_MAX: usize = 2 * STREAM_LIMIT_MAX as usize;

/// Length of a frame header (RFC 9113, 4.1).
pub(crate) const HEADER_LEN: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
/// A type nobody has defined: to be ignored by whoever receives it (RFC 9113, 4.1).
const UNKNOWN: u8 = 0xf0;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// A frame header, taken apart.
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

/// What a connection's frames have told so far.
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

    /// Whether an announced limit is not acknowledged yet; then no other is announced, which bounds their number.
    pub(crate) fn awaits_ack(&self) -> bool {
        !self.announced.is_empty()
    }

    /// Streams open now.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.streams.len()
    }

    /// Whether the stream was opened above the limit and is to be refused; says so once.
    pub(crate) fn take_above_limit(&mut self, stream: u32) -> bool {
        !self.above_limit.is_empty() && self.above_limit.remove(&stream)
    }

    /// The SETTINGS frame that announces another limit.
    pub(crate) fn announce(&mut self, limit: u32) -> [u8; HEADER_LEN + 6] {
        self.limit_last = limit;
        self.announced.push_back(Announced { limit, by_h2: false });
        let mut frame = [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];
        frame[11..].copy_from_slice(&limit.to_be_bytes());
        frame
    }

    /// A frame from the client; may change its header on the way to h2.
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

    /// A frame to the client.
    pub(crate) fn on_outbound(&mut self, frame: FrameHeader) {
        match frame.kind {
            RST_STREAM => self.on_reset(frame.stream),
            _ if frame.ends_stream() => self.on_ended(frame.stream, |ended| &mut ended.by_server),
            _ => {}
        }
    }

    /// SETTINGS of h2 on their way out: our limit takes the place of h2's.
    pub(crate) fn on_outbound_settings(&mut self, payload: &mut [u8]) {
        for setting in payload.chunks_exact_mut(6) {
            if u16::from_be_bytes([setting[0], setting[1]]) == MAX_CONCURRENT_STREAMS {
                setting[2..].copy_from_slice(&self.limit_last.to_be_bytes());
            }
        }
        self.announced.push_back(Announced { limit: self.limit_last, by_h2: true });
    }

    fn on_opened(&mut self, stream: u32) {
        // After a GOAWAY h2 passes over new streams in silence; a client that goes on must not fill our memory.
        if self.streams.len() >= STREAM_COUNT_MAX {
            return;
        }
        self.streams.insert(stream, Ended::default());
        self.open_max = self.open_max.max(self.streams.len());
        // Before the first acknowledgement a client cannot know the limit: no violation, but refused all the same.
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
        assert_eq!(acknowledged(&mut meter), SETTINGS, "h2 must see the answer to its own SETTINGS");
        assert!(opened(&mut meter, 1) && opened(&mut meter, 3));
        meter.announce(1);
        answered(&mut meter, 1);
        assert!(opened(&mut meter, 5), "the client need not know the new limit yet");
        assert_eq!(acknowledged(&mut meter), UNKNOWN, "h2 must not see the answer to ours");
        answered(&mut meter, 3);
        assert!(!opened(&mut meter, 7));
        assert_eq!((meter.violations, meter.open(), meter.open_max), (1, 2, 2));
        meter.on_outbound(FrameHeader::read(&frame(RST_STREAM, 0, 7)));
        answered(&mut meter, 5);
        assert!(opened(&mut meter, 9));
        assert_eq!((meter.violations, meter.open()), (1, 1));
    }

    #[test]
    fn before_the_first_acknowledgement_too_many_streams_are_refused_but_no_violation() {
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
    fn our_limit_is_written_over_that_of_h2() {
        let mut meter = Meter::new(7);
        let mut payload = [0, 4, 0, 0, 0, 9, 0, 3, 0, 0, 39, 16];
        meter.on_outbound_settings(&mut payload);
        assert_eq!(payload, [0, 4, 0, 0, 0, 9, 0, 3, 0, 0, 0, 7]);
    }
}
