//! Writing to the terminal: results to standard output, remarks to standard error; numbers with grouped digits.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use tracing::Level;

/// Writes a result and a line break, and flushes: the reader of a pipe waits for it.
pub fn line(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Writes a remark, in order with log lines and in their format. A closed standard error is not an error.
pub fn remark(kind: Kind, text: impl Display) {
    let level = match kind {
        Kind::Error => Level::ERROR,
        Kind::Warning => Level::WARN,
        Kind::Note => Level::INFO,
    };
    if let Some(json) = crate::log::as_json(level, &text.to_string()) {
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
    use super::grouped;

    #[test]
    fn digits_stand_in_groups_of_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }
}
