//! Patterns of channel names: `*` is any characters, also none; `?` is one character; `[a-c]` and `[!a-c]` are one
//! character of a set, or not of it.
//!
//! Not here: alternatives in braces, and `\`; a pattern with one of these is refused. Bounds: a pattern has at most
//! [`PATTERN_BYTES_MAX`] bytes. A name takes at most its length times that of the pattern.

/// The most bytes of a pattern; a channel's name has no more.
const PATTERN_BYTES_MAX: usize = 255;

/// A pattern.
#[derive(Debug)]
pub(super) struct Glob(Vec<Part>);

#[derive(Debug)]
enum Part {
    Any,
    One { ranges: Vec<(u8, u8)>, is_negated: bool },
}

impl Part {
    fn byte(byte: u8) -> Self {
        Self::One { ranges: vec![(byte, byte)], is_negated: false }
    }

    fn fits(&self, byte: u8) -> bool {
        match self {
            Self::Any => false,
            Self::One { ranges, is_negated } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != *is_negated
            }
        }
    }
}

impl Glob {
    /// `None`: it is no pattern, or too long.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let mut rest = Some(pattern.as_bytes()).filter(|bytes| bytes.len() <= PATTERN_BYTES_MAX)?;
        let mut parts = Vec::new();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            parts.push(match byte {
                b'*' => Part::Any,
                b'?' => Part::One { ranges: Vec::new(), is_negated: true },
                b'[' => {
                    let length = rest.iter().skip(1).position(|byte| *byte == b']')? + 1; // `[]` holds nothing.
                    let (set, behind) = rest.split_at(length);
                    rest = &behind[1..];
                    let positive = set.strip_prefix(b"!").or(set.strip_prefix(b"^"));
                    Part::One { ranges: ranges(positive.unwrap_or(set))?, is_negated: positive.is_some() }
                }
                b']' | b'{' | b'}' | b'\\' => return None,
                byte => Part::byte(byte),
            });
        }
        Some(Self(parts))
    }

    /// Whether all of `name` fits.
    pub(super) fn fits(&self, name: &str) -> bool {
        let (name, parts) = (name.as_bytes(), &self.0);
        let (mut at, mut part) = (0, 0);
        // Behind the last `*`, and how much of the name it has taken: only this one needs to take more.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match parts.get(part) {
                Some(Part::Any) => {
                    part += 1;
                    star = Some((part, at));
                }
                Some(one) if one.fits(name[at]) => (at, part) = (at + 1, part + 1),
                _ => {
                    let Some((behind, taken)) = star else { return false };
                    star = Some((behind, taken + 1));
                    (at, part) = (taken + 1, behind);
                }
            }
        }
        parts[part..].iter().all(|part| matches!(part, Part::Any))
    }
}

/// The members of a set, such as `a-z0_`.
fn ranges(mut set: &[u8]) -> Option<Vec<(u8, u8)>> {
    let mut ranges = Vec::new();
    while let Some((&from, behind)) = set.split_first() {
        let (to, behind) = match behind {
            [b'-', to, behind @ ..] => (*to, behind),
            _ => (from, behind),
        };
        if to < from {
            return None;
        }
        ranges.push((from, to));
        set = behind;
    }
    Some(ranges).filter(|ranges| !ranges.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            ("**a**", "bab", true),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().fits(name), expected, "{pattern} for {name}");
        }
        for pattern in ["[", "[]", "[a", "a]", "{a,b}", r"\*", "[z-a]", "[!]", &"*".repeat(256)] {
            assert!(Glob::new(pattern).is_none(), "{pattern}");
        }
    }

    /// The plain definition: a `*` tries every length.
    fn naive(parts: &[Part], name: &[u8]) -> bool {
        match parts.split_first() {
            None => name.is_empty(),
            Some((Part::Any, rest)) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
            Some((one, rest)) => {
                name.split_first().is_some_and(|(byte, behind)| one.fits(*byte) && naive(rest, behind))
            }
        }
    }

    proptest! {
        #[test]
        fn the_last_star_is_enough(pattern in "[ab*?]{0,8}", name in "[abc]{0,10}") {
            let glob = Glob::new(&pattern).unwrap();
            prop_assert_eq!(glob.fits(&name), naive(&glob.0, name.as_bytes()));
        }
    }
}
