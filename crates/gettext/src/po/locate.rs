//! Finds a part of a text in its PO file again, to point at it.
//!
//! Entries do not remember their places: that would cost every reader memory for the few mistakes that are shown. So this
//! reads the lines of one entry a second time. The file has been parsed before.

use std::ops::Range;

use super::entry::FORM_KEYWORDS;
use super::parse::{escaped, split_keyword};

/// A text of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Msgid,
    MsgidPlural,
    /// A form of the translation; 0 without plural.
    Msgstr(usize),
}

/// The lines of a file.
pub(crate) struct Lines<'a> {
    file: &'a str,
    /// The first byte of each line.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(file: &'a str) -> Self {
        let starts = std::iter::once(0).chain(file.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { file, starts }
    }

    /// The line of a byte, counted from 1, and its column in characters from 1.
    pub(crate) fn position(&self, byte: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= byte);
        (line, 1 + self.file[self.starts[line - 1]..byte].chars().count())
    }

    /// The bytes of a line, counted from 1, without the spaces around. It is the last line with text before, if the line
    /// has none.
    pub(crate) fn line(&self, line: usize) -> Range<usize> {
        let text = |line: usize| self.file[self.starts[line]..].split('\n').next().unwrap_or_default();
        let line =
            (0..line.min(self.starts.len())).rev().find(|line| !text(*line).trim_ascii().is_empty()).unwrap_or(0);
        let start = self.starts[line] + text(line).len() - text(line).trim_ascii_start().len();
        start..start + text(line).trim_ascii().len()
    }

    /// The bytes in the file of a part of a text, of the entry whose msgid is in this line. `wanted` is in bytes of the
    /// text. The result does not go beyond a line; it is the quotation marks of the text if the text has no such part.
    pub(crate) fn locate(&self, line: usize, part: Part, wanted: Range<usize>) -> Range<usize> {
        let mut found: Option<Range<usize>> = None;
        let mut quotes = None;
        let mut read = 0;
        let mut inside = false;
        for start in &self.starts[line - 1..] {
            let text = self.file[*start..].split('\n').next().unwrap_or_default();
            let (keyword, strings) = split_keyword(text.trim_ascii());
            if !keyword.is_empty() {
                if inside {
                    break;
                }
                inside = part.has(keyword);
            }
            if !inside || strings.is_empty() {
                continue;
            }
            let at = start + text.trim_ascii_end().len() - strings.len();
            for (bytes, length) in characters(strings, at) {
                if length == 0 {
                    quotes.get_or_insert(bytes);
                    continue;
                }
                if read >= wanted.start && found.is_none() {
                    found = Some(bytes);
                } else if let Some(found) = &mut found
                    && read < wanted.end
                {
                    found.end = bytes.end;
                }
                read += length;
            }
            if let Some(found) = found {
                return found;
            }
        }
        found.or(quotes).unwrap_or_else(|| self.line(line))
    }
}

impl Part {
    fn has(self, keyword: &str) -> bool {
        match self {
            Self::Msgid => keyword == "msgid",
            Self::MsgidPlural => keyword == "msgid_plural",
            Self::Msgstr(0) if keyword == "msgstr" => true,
            Self::Msgstr(form) => FORM_KEYWORDS.get(form) == Some(&keyword),
        }
    }
}

/// The characters of the strings in a line: their bytes in the file, and their length in the text. A string itself comes
/// before its characters, with length 0.
fn characters(strings: &str, at: usize) -> Vec<(Range<usize>, usize)> {
    let mut characters = Vec::new();
    let mut rest = strings.chars();
    let mut string = None;
    while let Some(character) = rest.as_str().chars().next() {
        let start = at + strings.len() - rest.as_str().len();
        rest.next();
        let decoded = match (character, string) {
            ('"', None) => {
                string = Some(characters.len());
                characters.push((start..start + 1, 0));
                continue;
            }
            ('"', Some(begun)) => {
                characters[begun].0.end = start + 1;
                string = None;
                continue;
            }
            (_, None) => continue,
            ('\\', _) => escaped(&mut rest).unwrap_or('\\'),
            _ => character,
        };
        characters.push((start..at + strings.len() - rest.as_str().len(), decoded.len_utf8()));
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_text_is_found_in_the_file() {
        let file = "msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[0] \"\"\n  \"t\\\"é\\n\" \"\\101x\"\n\"end\"\nmsgstr[1] \"\"\n\n# c\n";
        let lines = Lines::new(file);
        let at = |part, wanted: Range<usize>| &file[lines.locate(1, part, wanted)];
        assert_eq!(at(Part::Msgid, 0..1), "a");
        assert_eq!(at(Part::MsgidPlural, 0..1), "b");
        assert_eq!(at(Part::Msgstr(0), 1..2), "\\\"");
        assert_eq!(at(Part::Msgstr(0), 2..5), "é\\n");
        assert_eq!(at(Part::Msgstr(0), 5..6), "\\101");
        assert_eq!(at(Part::Msgstr(0), 6..20), "x", "not beyond the line");
        assert_eq!(at(Part::Msgstr(0), 7..20), "end");
        assert_eq!(at(Part::Msgstr(1), 0..0), "\"\"");
        let place = lines.locate(1, Part::Msgstr(0), 2..4);
        assert_eq!(lines.position(place.start), (4, 7));
        assert_eq!(&file[lines.line(9)], "# c", "the last line with text");
    }
}
