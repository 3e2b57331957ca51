//! Writing to the terminal: results to standard output, remarks to standard error; numbers with grouped digits.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal as _, Write as _};

use tracing::Level;

/// Writes a result and a line break, and flushes: the reader of a pipe waits for it.
pub fn line(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", harmless(text.to_string()))?;
    stdout.flush()
}

/// The text without characters that a terminal obeys, such as ESC, but with line breaks and tabs. They are written as JSON escapes
/// them, so JSON means the same as before.
fn harmless(text: String) -> String {
    let is_obeyed = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return text;
    }
    let mut harmless = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_obeyed(character) {
            true => _ = write!(harmless, "\\u{:04x}", u32::from(character)),
            false => harmless.push(character),
        }
    }
    harmless
}

/// Writes a remark, in order with log lines and in their format. A closed standard error is not an error.
pub fn remark(kind: Kind, text: impl Display) {
    let level = match kind {
        Kind::Error => Level::ERROR,
        Kind::Warning => Level::WARN,
        Kind::Note => Level::INFO,
    };
    let text = harmless(text.to_string());
    if let Some(json) = crate::log::as_json(level, &text) {
        return crate::log::line(&json);
    }
    let coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (word, colour) = match kind {
        Kind::Error => ("error: ", "\x1b[1;31m"),
        Kind::Warning => ("warning: ", "\x1b[1;33m"),
        Kind::Note => ("", ""),
    };
    crate::log::line(&if coloured && !colour.is_empty() {
        format!("{colour}{word}\x1b[0m{text}\n")
    } else {
        format!("{word}{text}\n")
    });
}

/// A whole number with its digits in groups of three: `1 234 567`.
pub fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or_default());
    groups.collect::<Vec<_>>().join(" ")
}

/// How serious a remark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The reason for the exit code.
    Error,
    /// Look at it.
    Warning,
    /// Good to know.
    Note,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_is_printed() {
        let text = "{\"a\":\"\u{9b}2J\u{7f}\",\n\t\"é\":\"😀\"}\u{1b}[2J\r";
        assert_eq!(harmless(text.to_owned()), "{\"a\":\"\\u009b2J\\u007f\",\n\t\"é\":\"😀\"}\\u001b[2J\\u000d");
        let json = "{\"a\":\"\u{9b}\"}";
        let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(read(&harmless(json.to_owned())), read(json));
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }
}
