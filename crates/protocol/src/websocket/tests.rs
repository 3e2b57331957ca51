//! Our decoder compared with tungstenite: both read the same events from the same bytes, in any pieces. Also limits,
//! the headers that we write, and the RFC's example of a handshake. [`autobahn`] has the cases of the Autobahn TestSuite.

use std::io::{self, Cursor, Read, Write};

use proptest::prelude::*;
use tungstenite::protocol::{Role, WebSocket, WebSocketConfig};
use tungstenite::{Error, Message};

use super::*;

mod autobahn;

const LIMIT: usize = 300;

/// What a stream says, without borrowing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Violation(u16),
}

#[derive(Debug, Clone)]
struct Raw {
    first: u8,
    mask: Option<[u8; 4]>,
    payload: Vec<u8>,
}

impl Raw {
    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.first];
        let mask_bit = if self.mask.is_some() { 0x80 } else { 0 };
        match self.payload.len() {
            len @ 0..=125 => out.push(mask_bit | len as u8),
            len @ 126..=0xFFFF => {
                out.push(mask_bit | 126);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                out.push(mask_bit | 127);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        let mask = self.mask.unwrap_or_default();
        out.extend_from_slice(&mask[..if self.mask.is_some() { 4 } else { 0 }]);
        out.extend(self.payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        out
    }
}

fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    Raw { first, mask: Some([0xA1, 0, 0x5F, 0xFF]), payload: payload.to_vec() }.bytes()
}

fn said(event: Event<'_>) -> Option<Said> {
    Some(match event {
        Event::Text(text) => Said::Text(text.into_owned()),
        Event::Binary(bytes) => Said::Binary(bytes.into_owned()),
        Event::Ping(bytes) => Said::Ping(bytes.into_owned()),
        Event::Pong(bytes) => Said::Pong(bytes.into_owned()),
        Event::Close { code, reason } => Said::Close(code, reason.into_owned()),
        Event::NeedMore => return None,
    })
}

fn ours<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Said> {
    heard(LIMIT, pieces)
}

fn heard<'a>(message_bytes_max: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Said> {
    let mut decoder = Decoder::new(message_bytes_max);
    let mut all = Vec::new();
    for piece in pieces {
        let mut input = piece.to_vec();
        let mut rest = &mut input[..];
        loop {
            match decoder.decode(rest) {
                Ok(decoded) => {
                    let consumed = decoded.consumed;
                    let Some(event) = said(decoded.event) else {
                        assert_eq!(consumed, rest.len(), "waiting for more keeps nothing outside");
                        break;
                    };
                    all.push(event);
                    rest = &mut rest[consumed..];
                }
                Err(code) => {
                    all.push(Said::Violation(code.code()));
                    return all;
                }
            }
        }
    }
    all
}

/// Whole messages, one in two fragments with a ping between, and control frames; at last a close frame.
fn conversation(parts: &[(u8, usize)]) -> Vec<u8> {
    let frame = |(kind, len): &(u8, usize)| match kind {
        0 => masked(0x81, &vec![b'a'; *len]),
        1 => [masked(0x01, &vec![b'b'; *len]), masked(0x89, b"between"), masked(0x80, &vec![b'c'; *len])].concat(),
        2 => masked(0x82, &vec![0xFF; *len]),
        3 => masked(0x89, &vec![7; *len % 126]),
        _ => masked(0x8A, &vec![7; *len % 126]),
    };
    parts.iter().map(frame).chain([masked(0x88, &[])]).collect::<Vec<_>>().concat()
}

proptest! {
    #[test]
    fn a_decoder_that_discards_keeps_no_message_and_hears_all_control_frames(
        parts in prop::collection::vec((0_u8..5, 0_usize..LIMIT / 2), 1..12),
        cut in any::<prop::sample::Index>(),
        piece in 1_usize..100,
    ) {
        let stream = conversation(&parts);
        let (mut decoder, mut said_all, cut) = (Decoder::new(LIMIT), Vec::new(), cut.index(stream.len()));
        for (at, part) in [(0, &stream[..cut]), (cut, &stream[cut..])] {
            if at == cut {
                decoder.discard();
            }
            for piece in part.chunks(piece) {
                let mut input = piece.to_vec();
                let mut rest = &mut input[..];
                while !rest.is_empty() {
                    let decoded = decoder.decode(rest).unwrap();
                    let consumed = decoded.consumed;
                    said_all.extend(said(decoded.event).map(|said| (at == cut, said)));
                    rest = &mut rest[consumed..];
                }
                prop_assert!(at != cut || decoder.bytes_len() == 0);
            }
        }
        let is_message = |said: &Said| matches!(said, Said::Text(_) | Said::Binary(_));
        prop_assert!(said_all.iter().all(|(is_late, said)| !is_late || !is_message(said)));
        let controls = |all: Vec<Said>| all.into_iter().filter(|said| !is_message(said)).collect::<Vec<_>>();
        prop_assert_eq!(controls(said_all.into_iter().map(|(_, said)| said).collect()), controls(ours([&stream[..]])));
    }
}

/// What tungstenite reads from the same bytes.
fn theirs(stream: &[u8]) -> Vec<Said> {
    struct Socket(Cursor<Vec<u8>>);
    impl Read for Socket {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let config = WebSocketConfig::default().max_message_size(Some(LIMIT)).max_frame_size(Some(LIMIT));
    let mut socket = WebSocket::from_raw_socket(Socket(Cursor::new(stream.to_vec())), Role::Server, Some(config));
    let mut all = Vec::new();
    loop {
        all.push(match socket.read() {
            Ok(Message::Text(text)) => Said::Text(text.to_string()),
            Ok(Message::Binary(bytes)) => Said::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Said::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Said::Pong(bytes.to_vec()),
            Ok(Message::Close(Some(frame))) => Said::Close(Some(frame.code.into()), frame.reason.to_string()),
            Ok(Message::Close(None)) => Said::Close(None, String::new()),
            Ok(Message::Frame(_)) => unreachable!("reading never yields raw frames"),
            Err(Error::Capacity(_)) => Said::Violation(1009),
            Err(Error::Utf8(_)) => Said::Violation(1007),
            Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => return all,
            Err(Error::Protocol(_)) => Said::Violation(1002),
            Err(_) => return all,
        });
        if matches!(all.last(), Some(Said::Violation(_) | Said::Close(..))) {
            return all;
        }
    }
}

#[test]
fn more_violations_have_their_codes() {
    let too_long = u64::MAX.to_be_bytes();
    for (name, stream, code) in [
        ("continuation of nothing", masked(0x80, &1000_u16.to_be_bytes()), 1002),
        ("unmasked", vec![0x81, 0x00], 1002),
        ("reserved bit 3", masked(0x91, b"a"), 1002),
        ("length of 64 bits", [&[0x81, 0xFF][..], &too_long, &[0; 4]].concat(), 1002),
        ("over the limit", masked(0x82, &[0; LIMIT + 1])[..8].to_vec(), 1009),
        ("over the limit in pieces", [masked(0x02, &[0; LIMIT]), masked(0x80, b"b")[..6].to_vec()].concat(), 1009),
        ("close reason not UTF-8", masked(0x88, &[0x03, 0xE8, 0xFF]), 1007),
    ] {
        assert_eq!(ours([&*stream]), [Said::Violation(code)], "{name}");
        assert_eq!(ours(stream.chunks(1)).last(), Some(&Said::Violation(code)), "{name}, byte by byte");
    }
}

#[test]
fn a_message_at_the_limit_passes_whole_and_in_pieces() {
    let payload = [7; LIMIT];
    assert_eq!(ours([&*masked(0x82, &payload)]), [Said::Binary(payload.to_vec())]);
    let pieces = [masked(0x02, &payload[..100]), masked(0x89, b"?"), masked(0x80, &payload[100..])].concat();
    assert_eq!(ours([&*pieces]), [Said::Ping(b"?".to_vec()), Said::Binary(payload.to_vec())]);
}

#[test]
fn a_character_may_be_cut_by_fragments() {
    let stream = [masked(0x01, &[0xC3]), masked(0x00, &[]), masked(0x80, &[0xA4])].concat();
    assert_eq!(ours([&*stream]), [Said::Text("ä".to_owned())]);
}

#[test]
fn a_whole_message_is_borrowed_from_the_input() {
    let mut input = masked(0x81, b"hello");
    let mut decoder = Decoder::new(LIMIT);
    let decoded = decoder.decode(&mut input).unwrap();
    assert!(matches!(decoded.event, Event::Text(Cow::Borrowed("hello"))));
    assert_eq!(decoded.consumed, 11);
}

#[test]
fn nothing_is_heard_after_the_end() {
    let close = masked(0x88, &[0x03, 0xE8, b'b', b'y', b'e']);
    let stream = [close, masked(0x81, b"late"), vec![0xFF; 40]].concat();
    assert_eq!(ours([&*stream]), [Said::Close(Some(1000), "bye".to_owned())]);
    assert_eq!(ours([&*masked(0x88, &[])]), [Said::Close(None, String::new())]);

    let mut decoder = Decoder::new(LIMIT);
    assert_eq!(decoder.decode(&mut [0xFF; 20]), Err(CloseCode::Protocol));
    let mut late = [0xFF; 20];
    assert_eq!(decoder.decode(&mut late), Ok(Decoded { consumed: 20, event: Event::NeedMore }));
}

#[test]
fn an_idle_decoder_is_small() {
    assert!(size_of::<Decoder>() <= 88, "{}", size_of::<Decoder>());
}

#[test]
fn frames_are_headed_by_their_length() {
    for (len, header) in [
        (0, vec![0x81, 0]),
        (125, vec![0x81, 125]),
        (126, vec![0x81, 126, 0, 126]),
        (65_535, vec![0x81, 126, 0xFF, 0xFF]),
        (65_536, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let payload = vec![b'x'; len];
        let frame = message_frame(Format::Json, &payload);
        assert_eq!((&frame[..header.len()], &frame[header.len()..]), (&*header, &*payload), "{len}");
    }
    assert_eq!(&pong_frame(&[1; 200])[..2], [0x8A, 125]);
    assert_eq!(&close_frame(3001, "shutdown")[..], b"\x88\x0A\x0B\xB9shutdown");
    // 62 two-byte characters do not fit into 123 bytes, 61 do.
    assert_eq!(close_frame(3001, &"ä".repeat(62)).len(), 2 + 2 + 122);
}

#[test]
fn the_handshake_of_the_rfc() {
    assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

/// Empty fragments take no bytes, so they have a limit of their own; control frames between them change nothing.
#[test]
fn a_message_has_a_bounded_number_of_empty_fragments() {
    let message = |count: usize| {
        let empty = [masked(OPCODE_CONTINUATION, b""), masked(0x80 | OPCODE_PING, b"")].concat();
        [masked(OPCODE_TEXT, b"a"), empty.repeat(count), masked(0x80 | OPCODE_CONTINUATION, b"")].concat()
    };
    let said = ours([&*[message(64), message(64)].concat()]);
    let texts = said.iter().filter(|said| **said == Said::Text("a".to_owned())).count();
    assert_eq!((texts, said.len()), (2, 130), "the bound is each message's");
    assert_eq!(ours([&*message(65)]).last(), Some(&Said::Violation(1008)));
    let endless = [masked(OPCODE_TEXT, b""), masked(OPCODE_CONTINUATION, b"").repeat(64)].concat();
    assert_eq!(ours([&*endless]), [Said::Violation(1008)]);
}

/// A message as fragments with control frames between them, or a lone control frame.
fn message() -> impl Strategy<Value = Vec<Raw>> {
    let text = "[a-zäß€🎉]{0,60}".prop_map(|text| (OPCODE_TEXT, text.into_bytes()));
    let binary = prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| (OPCODE_BINARY, bytes));
    let control = (prop_oneof![Just(OPCODE_PING), Just(OPCODE_PONG)], prop::collection::vec(any::<u8>(), 0..126));
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(control)), 0..4);
    (prop_oneof![text, binary], cuts, any::<[u8; 4]>()).prop_map(|((opcode, payload), mut cuts, mask)| {
        let frame = |first, payload: &[u8]| Raw { first, mask: Some(mask), payload: payload.to_vec() };
        cuts.sort_by_key(|(cut, _)| cut.index(payload.len() + 1));
        let mut frames = Vec::new();
        let mut from = 0;
        let mut opcode = opcode;
        for (cut, control) in cuts {
            let to = cut.index(payload.len() + 1);
            frames.push(frame(opcode, &payload[from..to]));
            frames.extend(control.map(|(opcode, payload)| frame(0x80 | opcode, &payload)));
            (from, opcode) = (to, OPCODE_CONTINUATION);
        }
        frames.push(frame(0x80 | opcode, &payload[from..]));
        frames
    })
}

fn any_frame() -> impl Strategy<Value = Raw> {
    (any::<u8>(), prop::option::weighted(0.9, any::<[u8; 4]>()), prop::collection::vec(any::<u8>(), 0..400))
        .prop_filter("tungstenite reports invalid closes in its own way", |(first, ..)| first & 0x0F != OPCODE_CLOSE)
        // tungstenite refuses text that is not UTF-8 at once, our decoder at the end of the message.
        .prop_map(|(first, mask, payload)| Raw {
            first,
            mask,
            payload: payload.iter().map(|byte| byte & 0x7F).collect(),
        })
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(message(), 0..6), prop::collection::vec(any_frame(), 0..3))
        .prop_map(|(messages, frames)| messages.iter().flatten().chain(&frames).flat_map(Raw::bytes).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn tungstenite_hears_the_same(stream in stream()) {
        // If a frame breaks two rules, either may be reported; the table above has the codes.
        let any_violation = |mut all: Vec<Said>| {
            if let Some(Said::Violation(code)) = all.last_mut() {
                *code = 0;
            }
            all
        };
        prop_assert_eq!(any_violation(ours([&*stream])), any_violation(theirs(&stream)));
    }

    #[test]
    fn any_chunking_says_the_same(stream in stream(), cuts in prop::collection::vec(1_usize..40, 1..50)) {
        let mut rest = &stream[..];
        let mut pieces = Vec::new();
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(ours(pieces), ours([&*stream]));
    }

    #[test]
    fn random_bytes_never_panic(stream in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
        prop_assert_eq!(ours(stream.chunks(piece)), ours([&*stream]));
    }
}
