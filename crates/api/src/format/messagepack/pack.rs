//! JSON text becomes MessagePack, in one pass.
//!
//! This is a reader of JSON of our own. serde_json's was the larger part of the time: it looks at each text twice, and at
//! each number with its slow method. Texts with escapes are still left to it, and the tests compare every verdict and
//! every value with it.
//!
//! Bounds: [`LEVELS_MAX`] levels. The MessagePack is at most three times as long as the JSON (`0.5` takes 9 bytes).

use rmp::encode::{
    ByteBuf, write_array_len, write_bool, write_f64, write_map_len, write_nil, write_sint, write_str, write_uint,
};

/// Levels of lists and objects; serde_json reads as many.
const LEVELS_MAX: usize = 127;
/// Entries of a list or object whose header has one byte.
const SHORT_COUNT_MAX: u32 = 15;
/// An empty list, and an empty object.
const EMPTY: [u8; 2] = [0x90, 0x80];

/// Why a text cannot be converted to MessagePack: it is not JSON, has more than 127 levels, or a text, list or object in it
/// has more bytes or entries than 32 bits can count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at} of the JSON: {what}")]
pub struct NotJson {
    at: usize,
    what: &'static str,
}

/// Converts one JSON value.
///
/// # Errors
/// See [`NotJson`].
pub fn pack(json: &[u8]) -> Result<Vec<u8>, NotJson> {
    let text =
        std::str::from_utf8(json).map_err(|error| NotJson { at: error.valid_up_to(), what: "it is not UTF-8" })?;
    let mut packer = Packer { text, json, at: 0, packed: ByteBuf::with_capacity(json.len()) };
    packer.value(0)?;
    packer.skip_space();
    if packer.at < json.len() {
        return Err(packer.wrong("there is something behind the value"));
    }
    Ok(packer.packed.into_vec())
}

/// Writing to memory has no errors, as the types show.
struct Packer<'j> {
    text: &'j str,
    /// The bytes of the text.
    json: &'j [u8],
    at: usize,
    packed: ByteBuf,
}

type Packed = Result<(), NotJson>;

impl<'j> Packer<'j> {
    fn value(&mut self, level: usize) -> Packed {
        self.skip_space();
        match self.json.get(self.at) {
            Some(b'"') => self.text(),
            Some(b'{') => self.entries(level, true),
            Some(b'[') => self.entries(level, false),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.word("null", |packed| {
                let Ok(()) = write_nil(packed);
            }),
            Some(b't') => self.word("true", |packed| {
                let Ok(()) = write_bool(packed, true);
            }),
            Some(b'f') => self.word("false", |packed| {
                let Ok(()) = write_bool(packed, false);
            }),
            _ => Err(self.wrong("no value begins here")),
        }
    }

    fn word(&mut self, word: &str, write: impl FnOnce(&mut ByteBuf)) -> Packed {
        if !self.json[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("no value begins here"));
        }
        self.at += word.len();
        write(&mut self.packed);
        Ok(())
    }

    /// A list, or an object. Its header is written when the number of entries is known.
    fn entries(&mut self, level: usize, is_map: bool) -> Packed {
        if level >= LEVELS_MAX {
            return Err(self.wrong("more than 127 levels deep"));
        }
        let (start, end) = (self.packed.as_slice().len(), if is_map { b'}' } else { b']' });
        self.packed.as_mut_vec().push(EMPTY[usize::from(is_map)]);
        self.at += 1;
        self.skip_space();
        if self.eat(end) {
            return Ok(());
        }
        let mut count: u32 = 0;
        loop {
            if is_map {
                self.skip_space();
                if self.json.get(self.at) != Some(&b'"') {
                    return Err(self.wrong("a name is missing"));
                }
                self.text()?;
                self.skip_space();
                if !self.eat(b':') {
                    return Err(self.wrong("a colon is missing"));
                }
            }
            self.value(level + 1)?;
            count = count.checked_add(1).ok_or_else(|| self.wrong("more entries than MessagePack can count"))?;
            self.skip_space();
            if self.eat(end) {
                self.write_header(start, count, is_map);
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.wrong("a comma or the end of the list or object is missing"));
            }
        }
    }

    /// Replaces the header of an empty list or object at `start`.
    fn write_header(&mut self, start: usize, count: u32, is_map: bool) {
        let mut header = ByteBuf::with_capacity(5);
        let Ok(_) = if is_map { write_map_len(&mut header, count) } else { write_array_len(&mut header, count) };
        let packed = self.packed.as_mut_vec();
        if count <= SHORT_COUNT_MAX {
            packed[start] = header.as_slice()[0];
        } else {
            packed.splice(start..=start, header.into_vec());
        }
    }

    /// A text, from its quotation mark on.
    fn text(&mut self) -> Packed {
        let start = self.at + 1;
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        let end = self.json[start..].iter().position(special).map(|length| start + length);
        let Some(end) = end.filter(|end| self.json[*end] == b'"') else { return self.escaped_text() };
        let text = self.between(start, end);
        self.at = end + 1;
        self.write_text(text)
    }

    /// The text between two bytes of ASCII, which are not within a character.
    fn between(&self, start: usize, end: usize) -> &'j str {
        self.text.get(start..end).unwrap_or_default()
    }

    fn escaped_text(&mut self) -> Packed {
        let (mut end, mut is_escaped) = (self.at + 1, false);
        while let Some(byte) = self.json.get(end).filter(|byte| is_escaped || **byte != b'"') {
            is_escaped = !is_escaped && *byte == b'\\';
            end += 1;
        }
        let text = self.json.get(self.at..=end).and_then(|text| serde_json::from_slice::<String>(text).ok());
        let text = text.ok_or_else(|| self.wrong("a wrong text begins here"))?;
        self.at = end + 1;
        self.write_text(&text)
    }

    fn write_text(&mut self, text: &str) -> Packed {
        if u32::try_from(text.len()).is_err() {
            return Err(self.wrong("more bytes than MessagePack can count"));
        }
        let Ok(()) = write_str(&mut self.packed, text);
        Ok(())
    }

    fn number(&mut self) -> Packed {
        let start = self.at;
        let is_negative = self.eat(b'-');
        let digits = self.at;
        self.skip_digits();
        let whole = &self.json[digits..self.at];
        if whole.is_empty() || whole.len() > 1 && whole[0] == b'0' {
            return Err(self.wrong("no number of JSON"));
        }
        let end_of_whole = self.at;
        if self.eat(b'.') && !self.skip_digits() {
            return Err(self.wrong("digits are missing"));
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            if !self.skip_digits() {
                return Err(self.wrong("digits are missing"));
            }
        }
        if self.at == end_of_whole && self.write_whole(is_negative, digits) {
            return Ok(());
        }
        match self.between(start, self.at).parse::<f64>() {
            Ok(number) if number.is_finite() => {
                let Ok(()) = write_f64(&mut self.packed, number);
                Ok(())
            }
            _ => Err(self.wrong("a number that is too large")),
        }
    }

    /// Writes the whole number whose digits end here, if 64 bits hold it. Negative zero is no whole number.
    fn write_whole(&mut self, is_negative: bool, digits: usize) -> bool {
        let digits = self.json[digits..self.at].iter();
        let number = digits
            .map(|digit| u64::from(digit - b'0'))
            .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(digit));
        match number {
            Some(number) if !is_negative => {
                let Ok(_) = write_uint(&mut self.packed, number);
                true
            }
            Some(number @ 1..) => match 0_i64.checked_sub_unsigned(number) {
                Some(number) => {
                    let Ok(_) = write_sint(&mut self.packed, number);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    /// Whether there was a digit.
    fn skip_digits(&mut self) -> bool {
        let count = self.json[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count > 0
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.json.get(self.at) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.json.get(self.at) == Some(&byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn wrong(&self, what: &'static str) -> NotJson {
        NotJson { at: self.at, what }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// What serde_json says of the text, and what we say of it.
    fn verdicts(json: &[u8]) -> (Option<Value>, Option<Value>) {
        let ours = pack(json).ok().map(|packed| rmp_serde::from_slice(&packed).unwrap());
        (serde_json::from_slice(json).ok(), ours)
    }

    #[test]
    fn numbers_are_read_as_serde_json_reads_them() {
        for text in [
            "0",
            "-0",
            "-1",
            "127",
            "128",
            "255",
            "256",
            "65535",
            "65536",
            "4294967296",
            "18446744073709551615",
            "18446744073709551616",
            "-128",
            "-129",
            "-9223372036854775808",
            "-9223372036854775809",
            "-0.0",
            "1.5",
            "1e5",
            "1E+5",
            "1e-5",
            "1e400",
            "1e-400",
            "00",
            "01",
            "-",
            "-a",
            ".5",
            "1.",
            "1.e5",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "1_0",
            "NaN",
            "Infinity",
            "1.7976931348623157e308",
            "123456789012345678901234567890",
            "5e-324",
        ] {
            let (theirs, ours) = verdicts(text.as_bytes());
            assert_eq!(ours, theirs, "{text}");
            let whole = |value: &Option<Value>| value.as_ref().is_some_and(|value| value.is_u64() || value.is_i64());
            assert_eq!(whole(&ours), whole(&theirs), "{text}");
        }
    }

    #[test]
    fn what_is_nearly_json_is_refused() {
        for text in [
            "",
            " ",
            "nul",
            "nulll",
            "True",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":1,}",
            "{1:2}",
            "\"a",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\t\"",
            "\"\\",
            "1 2",
            "[1]]",
            "'a'",
            "\u{feff}1",
            "[1}",
            "{\"a\":1]",
            "\u{a0}1",
        ] {
            assert_eq!(verdicts(text.as_bytes()), (None, None), "{text:?}");
        }
        assert_eq!(verdicts(b"\"\xff\""), (None, None));
        assert_eq!(pack(b"[1, x]").unwrap_err().to_string(), "at byte 4 of the JSON: no value begins here");
        for text in [" [ 1 ,\n2\t]\r", "{ \"a\" : { } , \"b\\n\\u00e9\" : [ ] }", "\"\\ud83d\\ude00\"", "\"\u{7f}\""] {
            let (theirs, ours) = verdicts(text.as_bytes());
            assert!(theirs.is_some() && theirs == ours, "{text:?}");
        }
    }

    #[test]
    fn as_many_levels_are_read_as_serde_json_reads() {
        for depth in [1, 126, 127, 128, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = open.repeat(depth) + "1" + &close.repeat(depth);
                let theirs = serde_json::from_str::<Value>(&text).is_ok();
                assert_eq!(pack(text.as_bytes()).is_ok(), theirs, "{depth} of {open}");
            }
        }
    }

    #[test]
    fn long_lists_and_objects_get_longer_headers() {
        for count in [0, 1, 15, 16, 65_535, 65_536] {
            let list = Value::from((0..count).map(|number| json!([number])).collect::<Vec<_>>());
            let map: serde_json::Map<_, _> = (0..count).map(|number| (number.to_string(), json!({}))).collect();
            let both = json!({"list": list, "map": map});
            assert_eq!(pack(both.to_string().as_bytes()).unwrap(), rmp_serde::to_vec(&both).unwrap(), "{count}");
        }
    }

    proptest! {
        /// Texts that are nearly JSON: both readers say the same of them, and read the same.
        #[test]
        fn both_readers_have_the_same_verdict(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ":", ",", " ", "\"", "\\", "\"a\"", "\"b\":", "\"\\n\"", "\\u12", "1", "-", "0", ".", "e", "2.5",
                    "null", "true", "false", "é", "\u{1}",
                ]),
                0..12,
            ),
        ) {
            let text = parts.concat();
            let (theirs, ours) = verdicts(text.as_bytes());
            prop_assert_eq!(ours, theirs, "{}", text);
        }

        #[test]
        fn any_bytes_have_the_same_verdict(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let (theirs, ours) = verdicts(&bytes);
            prop_assert_eq!(ours, theirs);
        }
    }
}
