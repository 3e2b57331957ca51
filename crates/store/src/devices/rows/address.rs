//! The text of a token or an endpoint in a device's row. A final part of base64url letters takes six bits per letter.
//!
//! ```text
//! plain     behind its length: the text up to the last part, which has only letters of base64url and at most one colon
//! colon     varint: twice the position of the colon in the last part, from 1, or 0 for none; plus 1 if the bytes of
//!           `letters` have room for one letter more than there are
//! letters   the rest: the last part without its colon, six bits per letter, then zeros up to a whole byte
//! ```
//!
//! FCM's tokens are two texts in base64url with a colon between them, and most browsers' endpoints end in one such text. So
//! four of their letters take three bytes. Any other text can be written too: it is `plain` up to its last other character.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::packed::{Unpack, put_bytes, put_varint};

/// Six zero bits.
const ZERO: u8 = b'A';
/// Letters that fill whole bytes.
const GROUP: usize = 4;

pub(crate) fn put_address(out: &mut Vec<u8>, text: &str) {
    let (start, colon) = tail_of(text.as_bytes());
    let (plain, tail) = text.as_bytes().split_at(start);
    put_bytes(out, plain);
    let mut letters = Vec::with_capacity(tail.len() + GROUP);
    letters.extend(tail.iter().filter(|byte| **byte != b':'));
    let count = letters.len();
    let is_short = count % GROUP == GROUP - 1; // 3 letters take as many bytes as 4.
    put_varint(out, colon.map_or(0, |place| (place - start + 1) as u64) << 1 | u64::from(is_short));
    letters.resize(count.next_multiple_of(GROUP), ZERO);
    let bytes = out.len() + (6 * count).div_ceil(8);
    URL_SAFE_NO_PAD.decode_vec(&letters, out).expect("whole groups of letters");
    out.truncate(bytes);
}

/// The start of the last part, which has only letters and at most one colon, and the position of the colon.
fn tail_of(text: &[u8]) -> (usize, Option<usize>) {
    let mut colon = None;
    for (place, byte) in text.iter().enumerate().rev() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => {}
            b':' if colon.is_none() => colon = Some(place),
            _ => return (place + 1, colon),
        }
    }
    (0, colon)
}

/// Reads all remaining bytes.
pub(crate) fn take_address(row: &mut Unpack<'_>) -> Option<String> {
    let plain = row.text()?;
    let colon = row.varint()?;
    let bytes = row.take(row.0.len())?;
    let mut text = String::with_capacity(plain.len() + 1 + bytes.len().div_ceil(3) * GROUP);
    text.push_str(plain);
    URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
    let count = (8 * bytes.len() / 6).checked_sub((colon & 1) as usize)?;
    for _ in plain.len() + count..text.len() {
        (text.pop()? == char::from(ZERO)).then_some(())?;
    }
    if let Some(place) = (colon >> 1).checked_sub(1) {
        let place = usize::try_from(place).ok().filter(|place| *place <= count)?;
        text.insert(plain.len() + place, ':');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_address(&mut out, text);
        out
    }

    fn unpacked(bytes: &[u8]) -> Option<String> {
        take_address(&mut Unpack(bytes))
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[A-Za-z0-9_-]{0,40}",
            "[A-Za-z0-9_-]{0,30}:[A-Za-z0-9_-]{0,200}",
            "[:A]{0,9}",
            "https://[a-z.]{1,20}/[a-z/]{0,9}[A-Za-z0-9_:-]{0,40}",
            "[!-~]{0,60}",
            "[!-~]{0,9}[A-Za-z0-9_:-]{0,4096}",
        ]
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in text()) {
            let packed = packed(&text);
            prop_assert!(packed.len() <= text.len() + 3, "{} bytes", packed.len());
            prop_assert_eq!(unpacked(&packed), Some(text));
        }

        #[test]
        fn any_bytes_are_refused_or_read_as_a_text_that_reads_back(
            text in text(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            length in any::<prop::sample::Index>(),
        ) {
            let mut bytes = packed(&text);
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(length.index(bytes.len() + 1));
            if let Some(text) = unpacked(&bytes) {
                prop_assert_eq!(unpacked(&packed(&text)), Some(text));
            }
        }
    }

    #[test]
    fn texts_of_every_length_read_back_with_the_colon_at_every_position() {
        for length in 0..70 {
            let letters: String = (0..length).map(|place| char::from(b"z_A-0"[place % 5])).collect();
            assert_eq!(unpacked(&packed(&letters)).as_ref(), Some(&letters));
            for place in 0..=length {
                let mut text = letters.clone();
                text.insert(place, ':');
                assert!(packed(&text).len() <= 1 + 2 + (6 * length).div_ceil(8), "{text}");
                assert_eq!(unpacked(&packed(&text)), Some(text));
            }
        }
    }

    /// These bytes are on disks. A change of their meaning would be a new format.
    #[test]
    fn the_format_stays() {
        for (text, bytes) in [
            ("", &b"\0\0"[..]),
            ("fcm", b"\0\x01}\xc9\x80"),
            ("cX:APA91b_-", b"\0\x06qp\x0f\x03\xdd[\xff\xe0"),
            ("a:b:c", b"\x02a:\x04m\xc0"),
            ("https://x/fcm/send/AQ:-_", b"\x13https://x/fcm/send/\x06\x01\x0f\xbf"),
            ("a b", b"\x02a \0l"),
        ] {
            assert_eq!(packed(text).escape_ascii().to_string(), bytes.escape_ascii().to_string(), "{text}");
            assert_eq!(unpacked(bytes).as_deref(), Some(text));
        }
    }

    #[test]
    fn invalid_bytes_are_refused() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\x06https\0",
            b"\x02\xff\xff\0",
            b"\0\x01",          // A negative number of letters.
            b"\0\x04",          // A colon behind the end.
            b"\0\0\x01",        // Bits left over.
            b"\0\x01}\xc9\x81", // The same.
        ] {
            assert_eq!(unpacked(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
