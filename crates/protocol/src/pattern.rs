//! A regular expression that an operator gives, such as for the audience of tokens.
//!
//! It must match the whole text: a pattern that somebody forgot to anchor matches too little, never too much. Matching
//! takes time linear in the text (crate `regex`), so no text from outside can make it slow. Classes such as `\w` know
//! ASCII only.
//!
//! Bounds: a pattern that takes more than [`COMPILED_BYTES_MAX`] is refused.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

/// The most memory of one compiled pattern: far more than a name or an address needs.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A regular expression for a whole text.
#[derive(Clone)]
pub struct TextPattern {
    text: Box<str>,
    regex: Regex,
}

/// The text is no regular expression, or is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a regular expression, or too large")]
pub struct PatternError;

impl TextPattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// If it is not a regular expression, or takes too much memory.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        // Alone first: `a)(b` is a pattern only within our parentheses.
        let compile = |text: &str| RegexBuilder::new(text).unicode(false).size_limit(COMPILED_BYTES_MAX).build();
        compile(text).map_err(|_| PatternError)?;
        let regex = compile(&format!(r"\A(?:{text})\z")).map_err(|_| PatternError)?;
        Ok(Self { text: text.into(), regex })
    }

    /// Whether it matches the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TextPattern {}

impl fmt::Debug for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_texts_only() {
        for (pattern, text, expected) in [
            ("a|b", "a", true),
            ("a|b", "b", true),
            ("a|b", "ab", false),
            ("^chat-[0-9]+$", "chat-17", true),
            ("chat-[0-9]+", "my-chat-17", false),
            ("chat-[0-9]+", "chat-17\n", false),
            (r"\w+", "Grüße", false),
            ("(?i)CHAT", "chat", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(TextPattern::new(pattern).unwrap().matches(text), expected, "{pattern:?} and {text:?}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["(", "a)(b", "[", "(?:a{1000}){1000}"] {
            assert_eq!(TextPattern::new(text), Err(PatternError), "{text}");
        }
    }
}
