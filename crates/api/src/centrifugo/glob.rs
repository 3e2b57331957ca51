//! Patterns of channel names: `*` is any characters, also none; `?` is one character; `[a-c]` and `[!a-c]` are one
//! character of a set, or not of it.
//!
//! A pattern becomes a regular expression, so a name takes time linear in its length. Not here: alternatives in braces,
//! and `\`; a pattern with one of these is refused. Bounds: a pattern has at most [`PATTERN_BYTES_MAX`] bytes.

use tidings_protocol::TextPattern;

/// The most bytes of a pattern; a channel's name has no more.
const PATTERN_BYTES_MAX: usize = 255;

/// `None`: `pattern` is no pattern, or too long.
pub(super) fn glob(pattern: &str) -> Option<TextPattern> {
    let mut rest = Some(pattern).filter(|pattern| pattern.len() <= PATTERN_BYTES_MAX)?.chars();
    let mut expression = "(?s)".to_owned(); // `.` is any character, as the pattern's `?` is.
    while let Some(next) = rest.next() {
        match next {
            '*' => expression += ".*",
            '?' => expression.push('.'),
            '[' => {
                let end = rest.as_str().char_indices().skip(1).find(|(_, end)| *end == ']')?.0; // `[]` holds nothing.
                let (set, behind) = rest.as_str().split_at(end);
                rest = behind[1..].chars();
                let negated = set.strip_prefix(['!', '^']);
                let members = regex::escape(negated.unwrap_or(set)).replace(r"\-", "-");
                expression += &format!("[{}{members}]", if negated.is_some() { "^" } else { "" });
            }
            ']' | '{' | '}' | '\\' => return None,
            plain => expression += &regex::escape(plain.encode_utf8(&mut [0; 4])),
        }
    }
    TextPattern::new(&expression).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_names() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "match:1", true),
            ("match:*", "match:1", true),
            ("match:*", "team:1", false),
            ("*:1", "match:1", true),
            ("*:1", "match:1:2", false),
            ("m*:*1", "match:2:1", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a[b-d]", "ac", true),
            ("a[b-d]", "ae", false),
            ("a[!b-d]", "ae", true),
            ("a[!b-d]", "ac", false),
            ("a[-]", "a-", true),
            ("a[+-]", "a-", true),
            ("a[a&&b~]", "a&", true),
            ("a.c", "abc", false),
            ("(a|b)<c>", "(a|b)<c>", true),
            ("A", "a", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(glob(pattern).unwrap().matches(name), expected, "{pattern} for {name}");
        }
        for pattern in ["[", "[]", "[a", "a]", "{a,b}", r"\*", "[z-a]", "[!]", &"*".repeat(256)] {
            assert!(glob(pattern).is_none(), "{pattern}");
        }
    }
}
