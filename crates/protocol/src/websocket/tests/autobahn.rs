//! The cases of the Autobahn TestSuite (25.10.1), recorded: what its client sends, and what a server must hear.
//!
//! The suite itself needs Python 2, so its bytes were copied from its sources. It expects an echo. Our server reads
//! commands, so a case says what the decoder tells the edge: the message, the ping to answer, or the code to close with.
//! Each case is cut in four ways: not at all, behind each frame, behind each byte, and at random places (fixed seeds).
//!
//! | Section | Here |
//! |---|---|
//! | 1 framing, 2 pings, 3 reserved bits, 4 opcodes, 5 fragments, 6 UTF-8, 7 closing | all cases; of 6.12, 6.20 and 6.22 some payloads of each kind |
//! | 6.4: text that is wrong early | allowed by the suite ("non-strict"): we refuse the text when its message ends |
//! | 9 limits, 10.1.1 | messages at the limit and over it; how fast many messages are is not asked |
//! | 12, 13 compression | we offer none, so its frames are case 3.4 |

use super::*;

/// The largest message of sections 1 and 9.1.1, and so our limit here.
const MESSAGE_BYTES_MAX: usize = 65_536;

const FINAL_TEXT: u8 = 0x80 | OPCODE_TEXT;
const FINAL_BINARY: u8 = 0x80 | OPCODE_BINARY;
const LAST: u8 = 0x80 | OPCODE_CONTINUATION;
const CLOSE: u8 = 0x80 | OPCODE_CLOSE;
const PING: u8 = 0x80 | OPCODE_PING;
const PONG: u8 = 0x80 | OPCODE_PONG;
const HELLO: &[u8] = b"Hello, world!";
/// "κόσμε" in Greek, as the suite has it.
const KOSME: &[u8] = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5";

/// The number, the frames (first byte, payload), and what the server hears.
type Case<'a> = (&'a str, Vec<(u8, &'a [u8])>, Vec<Said>);

fn text(payload: &[u8]) -> Said {
    Said::Text(String::from_utf8(payload.to_vec()).unwrap())
}

fn pinged(payload: &[u8]) -> Said {
    Said::Ping(payload.to_vec())
}

fn ponged(payload: &[u8]) -> Said {
    Said::Pong(payload.to_vec())
}

fn broken(code: u16) -> Vec<Said> {
    vec![Said::Violation(code)]
}

/// A xorshift generator: the same places for a seed, on every machine.
fn random_pieces(stream: &[u8], mut seed: u64) -> Vec<&[u8]> {
    let (mut pieces, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let (piece, behind) = rest.split_at(rest.len().min(1 + seed as usize % (1 + rest.len() / 3)));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

fn judge((number, frames, expected): Case<'_>) {
    let frames: Vec<_> = frames.iter().map(|(first, payload)| masked(*first, payload)).collect();
    let stream = frames.concat();
    assert_eq!(heard(MESSAGE_BYTES_MAX, [&*stream]), expected, "{number}, whole");
    assert_eq!(heard(MESSAGE_BYTES_MAX, frames.iter().map(|frame| &**frame)), expected, "{number}, by frame");
    assert_eq!(heard(MESSAGE_BYTES_MAX, stream.chunks(1)), expected, "{number}, by byte");
    for seed in 1..=8 {
        let pieces = random_pieces(&stream, 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        assert_eq!(heard(MESSAGE_BYTES_MAX, pieces), expected, "{number}, at random, seed {seed}");
    }
}

/// The frames of a message in fragments of `size` bytes.
fn fragments(opcode: u8, payload: &[u8], size: usize) -> Vec<(u8, &[u8])> {
    let mut frames: Vec<_> = payload.chunks(size).map(|piece| (OPCODE_CONTINUATION, piece)).collect();
    frames[0].0 = opcode;
    frames.last_mut().unwrap().0 |= 0x80;
    frames
}

#[test]
fn section_1_framing() {
    for len in [0, 125, 126, 127, 128, 65_535, 65_536] {
        let (stars, bytes) = (vec![b'*'; len], vec![0xFE; len]);
        judge(("1.1", vec![(FINAL_TEXT, &stars)], vec![text(&stars)]));
        judge(("1.2", vec![(FINAL_BINARY, &bytes)], vec![Said::Binary(bytes.clone())]));
    }
}

#[test]
fn section_2_pings_and_pongs() {
    let binary: &[u8] = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
    let unsolicited: &[u8] = b"unsolicited pong payload";
    for case in [
        ("2.1", vec![(PING, &b""[..])], vec![pinged(b"")]),
        ("2.2", vec![(PING, HELLO)], vec![pinged(HELLO)]),
        ("2.3", vec![(PING, binary)], vec![pinged(binary)]),
        ("2.4, 2.6", vec![(PING, &[0xFE; 125])], vec![pinged(&[0xFE; 125])]),
        ("2.5", vec![(PING, &[0xFE; 126])], broken(1002)),
        ("2.7", vec![(PONG, b"")], vec![ponged(b"")]),
        ("2.8", vec![(PONG, unsolicited)], vec![ponged(unsolicited)]),
        ("2.9", vec![(PONG, unsolicited), (PING, b"ping")], vec![ponged(unsolicited), pinged(b"ping")]),
    ] {
        judge(case);
    }
    let payloads: Vec<_> = (0..10).map(|index| format!("payload-{index}").into_bytes()).collect();
    let frames = payloads.iter().map(|payload| (PING, &**payload)).collect();
    judge(("2.10, 2.11", frames, payloads.iter().map(|payload| pinged(payload)).collect()));
}

#[test]
fn sections_3_and_4_reserved_bits_and_opcodes() {
    judge(("3.1", vec![(0x10 | FINAL_TEXT, HELLO)], broken(1002)));
    for (number, first) in [("3.5", 0x50 | FINAL_BINARY), ("3.6", 0x60 | FINAL_BINARY), ("3.7", 0x70 | CLOSE)] {
        judge((number, vec![(first, HELLO)], broken(1002)));
    }
    for opcode in [3, 4, 11, 12] {
        judge(("4.1.1, 4.1.2, 4.2.1, 4.2.2", vec![(0x80 | opcode, HELLO)], broken(1002)));
    }
    // After a message; the ping behind it is not heard.
    let reserved = [0x20 | FINAL_TEXT, 0x30 | FINAL_TEXT, 0x40 | FINAL_TEXT];
    for first in reserved.into_iter().chain([5, 6, 7, 13, 14, 15].map(|opcode| 0x80 | opcode)) {
        let frames = vec![(FINAL_TEXT, HELLO), (first, HELLO), (PING, b"")];
        judge(("3.2–3.4, 4.1.3–4.1.5, 4.2.3–4.2.5", frames, vec![text(HELLO), Said::Violation(1002)]));
    }
}

#[test]
fn section_5_fragmentation() {
    let (one, two, three): (&[u8], &[u8], &[u8]) = (b"fragment1", b"fragment2", b"fragment3");
    let (begin, middle) = (OPCODE_TEXT, OPCODE_CONTINUATION);
    let both = text(b"fragment1fragment2");
    let repeated = |first| [(first, one), (begin, two), (LAST, three)].repeat(2);
    for case in [
        ("5.1", vec![(OPCODE_PING, one), (LAST, two)], broken(1002)),
        ("5.2", vec![(OPCODE_PONG, one), (LAST, two)], broken(1002)),
        ("5.3–5.5", vec![(begin, one), (LAST, two)], vec![both.clone()]),
        ("5.6–5.8", vec![(begin, one), (PING, b"ping"), (LAST, two)], vec![pinged(b"ping"), both.clone()]),
        ("5.9–5.11", vec![(LAST, b"non-continuation payload"), (FINAL_TEXT, HELLO)], broken(1002)),
        ("5.12–5.14", vec![(middle, b"non-continuation payload"), (FINAL_TEXT, HELLO)], broken(1002)),
        (
            "5.15",
            vec![(begin, one), (LAST, two), (middle, three), (FINAL_TEXT, b"fragment4")],
            vec![both, Said::Violation(1002)],
        ),
        ("5.16", repeated(middle), broken(1002)),
        ("5.17", repeated(LAST), broken(1002)),
        ("5.18", vec![(begin, one), (FINAL_TEXT, two)], broken(1002)),
        (
            "5.19, 5.20",
            vec![
                (begin, one),
                (middle, two),
                (PING, b"1!"),
                (middle, three),
                (middle, one),
                (PING, b"2!"),
                (LAST, two),
            ],
            vec![pinged(b"1!"), pinged(b"2!"), text(b"fragment1fragment2fragment3fragment1fragment2")],
        ),
    ] {
        judge(case);
    }
}

#[test]
fn section_6_utf8_in_fragments() {
    let greeting = "Hello-µ@ßöäüàá-UTF-8!!".as_bytes();
    let (wrong, too_high) = ([KOSME, b"\xed\xa0\x80edited"].concat(), [KOSME, b"\xf4\x90\x80\x80edited"].concat());
    let (begin, middle) = (OPCODE_TEXT, OPCODE_CONTINUATION);
    for case in [
        ("6.1.1", vec![(FINAL_TEXT, &b""[..])], vec![text(b"")]),
        ("6.1.2", vec![(begin, b""), (middle, b""), (LAST, b"")], vec![text(b"")]),
        (
            "6.1.3",
            vec![(begin, b""), (middle, b"middle frame payload"), (LAST, b"")],
            vec![text(b"middle frame payload")],
        ),
        ("6.2.1", vec![(FINAL_TEXT, greeting)], vec![text(greeting)]),
        ("6.2.2", fragments(begin, greeting, "Hello-µ@ßöä".len()), vec![text(greeting)]),
        ("6.2.3", fragments(begin, greeting, 1), vec![text(greeting)]),
        ("6.2.4", fragments(begin, KOSME, 1), vec![text(KOSME)]),
        ("6.3.1", vec![(FINAL_TEXT, &wrong)], broken(1007)),
        ("6.3.2", fragments(begin, &wrong, 1), broken(1007)),
        ("6.4.1", vec![(begin, &too_high[..11]), (middle, &too_high[11..15]), (LAST, &too_high[15..])], broken(1007)),
        ("6.4.2", vec![(begin, &too_high[..12]), (middle, &too_high[12..13]), (LAST, &too_high[13..])], broken(1007)),
        ("6.4.3, 6.4.4", vec![(FINAL_TEXT, &too_high)], broken(1007)),
    ] {
        judge(case);
    }
}

/// The group, its payloads that are UTF-8, and those that are not.
type Utf8Group<'a> = (&'a str, &'a [&'a [u8]], &'a [&'a [u8]]);

const UTF8_GROUPS: [Utf8Group<'_>; 15] = [
    (
        "6.5",
        &[b"hello$world", b"hello\xC2\xA2world", b"hello\xE2\x82\xACworld", b"hello\xF0\xA4\xAD\xA2world", KOSME],
        &[],
    ),
    ("6.7", &[b"\0", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"], &[]),
    ("6.8", &[], &[b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80"]),
    ("6.9", &[b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"], &[]),
    ("6.10", &[], &[b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf"]),
    ("6.11", &[b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd", b"\xf4\x8f\xbf\xbf"], &[b"\xf4\x90\x80\x80"]),
    ("6.12", &[], &[b"\x80", b"\xbf", b"\x80\xbf", b"\x80\xbf\x80", b"\x80\xbf\x80\xbf\x80\xbf"]),
    ("6.14", &[], &INCOMPLETE),
    ("6.16", &[], &[b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]),
    (
        "6.17",
        &[],
        &[b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf", b"\xfc\x80\x80\x80\x80\xaf"],
    ),
    (
        "6.18",
        &[],
        &[b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf", b"\xfc\x83\xbf\xbf\xbf\xbf"],
    ),
    (
        "6.19",
        &[],
        &[b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80", b"\xfc\x80\x80\x80\x80\x80"],
    ),
    (
        "6.20",
        &[],
        &[
            b"\xed\xa0\x80",
            b"\xed\xad\xbf",
            b"\xed\xae\x80",
            b"\xed\xaf\xbf",
            b"\xed\xb0\x80",
            b"\xed\xbe\x80",
            b"\xed\xbf\xbf",
        ],
    ),
    (
        "6.22",
        &[b"\xef\xbf\xbe", b"\xf0\x9f\xbf\xbe", b"\xf1\x8f\xbf\xbf", b"\xf3\xbf\xbf\xbf", b"\xf4\x8f\xbf\xbe"],
        &[],
    ),
    ("6.23", &[b"\xef\xbf\xb9", b"\xef\xbf\xba", b"\xef\xbf\xbb", b"\xef\xbf\xbc", b"\xef\xbf\xbd"], &[]),
];

const INCOMPLETE: [&[u8]; 10] = [
    b"\xc0",
    b"\xe0\x80",
    b"\xf0\x80\x80",
    b"\xf8\x80\x80\x80",
    b"\xfc\x80\x80\x80\x80",
    b"\xdf",
    b"\xef\xbf",
    b"\xf7\xbf\xbf",
    b"\xfb\xbf\xbf\xbf",
    b"\xfd\xbf\xbf\xbf\xbf",
];

#[test]
fn section_6_utf8_sequences() {
    for (number, valid, invalid) in UTF8_GROUPS {
        for payload in valid {
            judge((number, vec![(FINAL_TEXT, payload)], vec![text(payload)]));
        }
        for payload in invalid {
            judge((number, vec![(FINAL_TEXT, payload)], broken(1007)));
        }
    }
    for len in 1..=KOSME.len() {
        let is_whole = [2, 5, 7, 9, 11].contains(&len);
        let expected = if is_whole { vec![text(&KOSME[..len])] } else { broken(1007) };
        judge(("6.6", vec![(FINAL_TEXT, &KOSME[..len])], expected));
    }
    let surrogates: [&[u8]; 4] = [b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf"];
    let pairs =
        surrogates.into_iter().flat_map(|high| [b"\xed\xb0\x80", b"\xed\xbf\xbf"].map(|low| [high, low].concat()));
    let lonely = [0xc0..0xdf, 0xe0..0xef, 0xf0..0xf7, 0xf8..0xfb, 0xfc..0xfd_u8];
    let lonely = lonely.map(|starts| starts.flat_map(|start| [start, b' ']).collect::<Vec<u8>>());
    for payload in pairs.chain(lonely).chain([INCOMPLETE.concat(), (0x80..0xbf).collect()]) {
        judge(("6.12.8, 6.13, 6.15, 6.21", vec![(FINAL_TEXT, &payload)], broken(1007)));
    }
}

#[test]
fn section_7_closing() {
    let normal: &[u8] = b"\x03\xe8";
    let closed = |reason: &str| Said::Close(Some(1000), reason.to_owned());
    let (longest, too_long) = ([normal, &[b'*'; 123]].concat(), [normal, &[b'*'; 124]].concat());
    let wrong = [normal, KOSME, b"\xed\xa0\x80edited"].concat();
    for case in [
        ("7.1.1", vec![(FINAL_TEXT, HELLO), (CLOSE, normal)], vec![text(HELLO), closed("")]),
        ("7.1.2", vec![(CLOSE, normal), (CLOSE, b"")], vec![closed("")]),
        ("7.1.3", vec![(CLOSE, normal), (PING, b"")], vec![closed("")]),
        ("7.1.4", vec![(CLOSE, normal), (FINAL_TEXT, HELLO)], vec![closed("")]),
        ("7.1.5", vec![(OPCODE_TEXT, HELLO), (CLOSE, normal), (LAST, HELLO)], vec![closed("")]),
        ("7.3.1", vec![(CLOSE, b"")], vec![Said::Close(None, String::new())]),
        ("7.3.2", vec![(CLOSE, b"a")], broken(1002)),
        ("7.3.3", vec![(CLOSE, normal)], vec![closed("")]),
        ("7.3.4", vec![(CLOSE, b"\x03\xe8Hello World!")], vec![closed("Hello World!")]),
        ("7.3.5", vec![(CLOSE, &longest)], vec![closed(&"*".repeat(123))]),
        ("7.3.6", vec![(CLOSE, &too_long)], broken(1002)),
        ("7.5.1", vec![(CLOSE, &wrong)], broken(1007)),
    ] {
        judge(case);
    }
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999_u16] {
        judge(("7.7", vec![(CLOSE, &code.to_be_bytes())], vec![Said::Close(Some(code), String::new())]));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535_u16] {
        judge(("7.9, 7.13", vec![(CLOSE, &code.to_be_bytes())], broken(1002)));
    }
}

/// The suite sends up to 16 MiB; over our limit the answer is 1009, whatever the size of the frames.
#[test]
fn sections_9_and_10_limits() {
    let (at_limit, over) = (vec![b'*'; MESSAGE_BYTES_MAX], vec![b'*'; 256 << 10]);
    judge(("9.1.1", vec![(FINAL_TEXT, &at_limit)], vec![text(&at_limit)]));
    judge(("9.2.1", vec![(FINAL_BINARY, &at_limit)], vec![Said::Binary(at_limit.clone())]));
    judge(("10.1.1", fragments(OPCODE_TEXT, &at_limit, 1300), vec![text(&at_limit)]));
    for size in [64, 4 << 10, 64 << 10] {
        judge(("9.3", fragments(OPCODE_TEXT, &at_limit, size), vec![text(&at_limit)]));
        judge(("9.3, 9.4", fragments(OPCODE_BINARY, &over, size), broken(1009)));
    }
    judge(("9.1.2, 7.1.6", vec![(FINAL_TEXT, &over), (FINAL_TEXT, HELLO)], broken(1009)));
}
