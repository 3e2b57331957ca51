//! Parses the lines of a PO file into entries, in one pass.
//!
//! A [`Draft`] is the entry that is being read. Its keywords must come in the order msgctxt, msgid, msgid_plural, msgstr;
//! the order of [`Part`] expresses this. A comment or an earlier keyword after msgstr begins the next entry. Nothing is
//! copied but what the entries keep.

use std::collections::HashMap;
use std::str::Chars;

use super::entry::{Entry, FORM_KEYWORDS, Previous};
use crate::error::{PoError, PoProblem};
use crate::limits::{ENTRY_COUNT_MAX, FILE_BYTES_MAX, PLURAL_FORM_COUNT_MAX};

/// The entries of a file, and the lines of those that have a placeholder but are not marked `ruby-format`.
pub(super) fn entries(bytes: &[u8]) -> Result<(Vec<Entry>, Vec<usize>), PoError> {
    let first = |problem| PoError { line: 1, problem };
    if bytes.len() > FILE_BYTES_MAX {
        return Err(first(PoProblem::FileTooLarge { bytes: bytes.len() }));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        PoError { line, problem: PoProblem::NotUtf8 }
    })?;
    if text.starts_with('\u{FEFF}') {
        return Err(first(PoProblem::ByteOrderMark));
    }
    let mut parser = Parser::default();
    let read = parser.read(text);
    check_duplicates(&parser.entries)?; // They come before the line that ended the reading.
    match read {
        Ok(()) => Ok((parser.entries, parser.unmarked)),
        Err(problem) => Err(PoError { line: parser.line_number, problem }),
    }
}

fn check_duplicates(entries: &[Entry]) -> Result<(), PoError> {
    let mut lines = HashMap::with_capacity(entries.len());
    for entry in entries.iter().filter(|entry| !entry.obsolete) {
        if let Some(first) = lines.insert(entry.key(), entry.line) {
            return Err(PoError { line: entry.line, problem: PoProblem::Duplicate { first } });
        }
    }
    Ok(())
}

/// The parts of a message, in their required order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Part {
    #[default]
    Comments,
    Msgctxt,
    Msgid,
    MsgidPlural,
    Msgstr,
}

#[derive(Default)]
struct Parser {
    entries: Vec<Entry>,
    unmarked: Vec<usize>,
    line_number: usize,
    draft: Draft,
}

#[derive(Default)]
struct Draft {
    entry: Entry,
    part: Part,
    previous_part: Part,
    /// The last keyword was in a `#|` line. A line with only a string continues it.
    in_previous: bool,
    /// The last keyword has a string.
    filled: bool,
    /// The last msgstr had an index.
    indexed: bool,
}

impl Parser {
    fn read(&mut self, text: &str) -> Result<(), PoProblem> {
        for line in text.split('\n') {
            self.line_number += 1;
            self.line(line.trim_ascii())?;
        }
        self.end()
    }

    fn line(&mut self, line: &str) -> Result<(), PoProblem> {
        let Some(comment) = line.strip_prefix('#') else { return self.statement(line, false) };
        if let Some(statement) = comment.strip_prefix('~') {
            return match statement.trim_ascii_start().strip_prefix('|') {
                Some(previous) => self.previous(previous.trim_ascii()),
                None => self.statement(statement.trim_ascii(), true),
            };
        }
        if let Some(previous) = comment.strip_prefix('|') {
            return self.previous(previous.trim_ascii());
        }
        self.begin_comment()?;
        if comment.ends_with('\\') {
            return Err(PoProblem::CommentContinued); // gettext joins the next line to the comment.
        }
        let entry = &mut self.draft.entry;
        let text = |kind: char| comment.strip_prefix(kind).map(|text| text.trim_ascii().to_owned());
        if let Some(flags) = comment.strip_prefix(',') {
            for flag in flags.split(',').map(str::trim_ascii).filter(|flag| !flag.is_empty()) {
                if flag.ends_with('\\') {
                    return Err(PoProblem::CommentContinued); // Flags are written sorted, so this may become the last.
                }
                entry.flags.insert(flag.to_owned());
            }
        } else if let Some(extracted) = text('.') {
            entry.extracted.push(extracted);
        } else if let Some(reference) = text(':') {
            entry.references.push(reference);
        } else {
            entry.comments.push(comment.strip_prefix(' ').unwrap_or(comment).to_owned());
        }
        Ok(())
    }

    /// A comment must be before or after a message. A comment after a message begins the next one.
    fn begin_comment(&mut self) -> Result<(), PoProblem> {
        match self.draft.part {
            Part::Comments => self.draft.check_filled(),
            Part::Msgstr => self.finish(),
            _ => Err(PoProblem::CommentInside),
        }
    }

    /// Reads a `#|` line, without the mark.
    fn previous(&mut self, text: &str) -> Result<(), PoProblem> {
        if text.starts_with('"') {
            if !self.draft.in_previous {
                return Err(unexpected(text));
            }
            return self.draft.append(text);
        }
        self.begin_comment()?;
        let draft = &mut self.draft;
        let (keyword, strings) = split_keyword(text);
        let previous = &mut draft.entry.previous;
        let (part, target) = match keyword {
            "msgctxt" => (Part::Msgctxt, &mut previous.msgctxt),
            "msgid" => (Part::Msgid, &mut previous.msgid),
            "msgid_plural" => (Part::MsgidPlural, &mut previous.msgid_plural),
            _ => return Err(unexpected(text)),
        };
        if part <= draft.previous_part {
            return Err(PoProblem::OutOfOrder { keyword: keyword.to_owned() });
        }
        *target = Some(String::new());
        draft.previous_part = part;
        draft.in_previous = true;
        draft.filled = false;
        draft.append(strings)
    }

    /// Reads a line of a message, without the `#~` of an obsolete message.
    fn statement(&mut self, text: &str, obsolete: bool) -> Result<(), PoProblem> {
        if text.is_empty() {
            return Ok(());
        }
        if text.starts_with('"') {
            if self.draft.part == Part::Comments || self.draft.in_previous {
                return Err(unexpected(text));
            }
            self.draft.check_obsolete(obsolete)?;
            return self.draft.append(text);
        }
        let (keyword, strings) = split_keyword(text);
        let part = match keyword {
            "msgctxt" => Part::Msgctxt,
            "msgid" => Part::Msgid,
            "msgid_plural" => Part::MsgidPlural,
            _ if keyword == "msgstr" || keyword.starts_with("msgstr[") => Part::Msgstr,
            _ => return Err(unexpected(text)),
        };
        if self.draft.part == Part::Msgstr && part <= Part::Msgid {
            self.finish()?;
        }
        self.draft.check_filled()?;
        if self.draft.part == Part::Comments {
            self.draft.entry.obsolete = obsolete;
            self.draft.check_previous()?;
        }
        self.draft.check_obsolete(obsolete)?;
        if part == Part::Msgid {
            self.draft.entry.line = self.line_number;
        }
        self.draft.open(part, keyword)?;
        self.draft.append(strings)
    }

    fn end(&mut self) -> Result<(), PoProblem> {
        match self.draft.part {
            Part::Comments => Ok(()), // Comments after the last message are dropped.
            Part::Msgstr => self.finish(),
            _ => Err(PoProblem::MsgstrMissing),
        }
    }

    /// Adds the complete draft to the entries.
    fn finish(&mut self) -> Result<(), PoProblem> {
        self.draft.check_filled()?;
        let mut entry = std::mem::take(&mut self.draft).entry;
        if self.entries.len() == ENTRY_COUNT_MAX {
            return Err(PoProblem::TooManyEntries);
        }
        if entry.source_texts().any(|text| text.contains("%{")) {
            entry.flags.remove("no-ruby-format");
            if entry.flags.insert("ruby-format".to_owned()) {
                self.unmarked.push(entry.line);
            }
        }
        self.entries.push(entry);
        Ok(())
    }
}

impl Draft {
    /// Begins a part of the message.
    fn open(&mut self, part: Part, keyword: &str) -> Result<(), PoProblem> {
        let entry = &mut self.entry;
        let next_form = part == Part::Msgstr && self.part == Part::Msgstr && self.indexed;
        if part <= self.part && !next_form {
            return Err(PoProblem::OutOfOrder { keyword: keyword.to_owned() });
        }
        if part > Part::Msgid && self.part < Part::Msgid {
            return Err(PoProblem::MsgidMissing);
        }
        match part {
            Part::Comments | Part::Msgid => {}
            Part::Msgctxt => entry.msgctxt = Some(String::new()),
            Part::MsgidPlural => entry.msgid_plural = Some(String::new()),
            Part::Msgstr => {
                self.indexed = keyword != "msgstr";
                if self.indexed != entry.msgid_plural.is_some() {
                    return Err(PoProblem::MsgstrKind);
                }
                let expected = entry.msgstr.len();
                if expected == PLURAL_FORM_COUNT_MAX {
                    return Err(PoProblem::TooManyForms);
                }
                if self.indexed && keyword != FORM_KEYWORDS[expected] {
                    return Err(PoProblem::FormIndex { expected, found: keyword.chars().take(32).collect() });
                }
                entry.msgstr.push(String::new());
            }
        }
        self.part = part;
        self.in_previous = false;
        self.filled = false;
        Ok(())
    }

    /// The text that the next string is appended to. `None` before any keyword.
    fn target(&mut self) -> Option<&mut String> {
        let Self { entry, part, previous_part, in_previous, .. } = self;
        let previous = &mut entry.previous;
        match (*in_previous, if *in_previous { *previous_part } else { *part }) {
            (_, Part::Comments) => None,
            (true, Part::Msgctxt) => previous.msgctxt.as_mut(),
            (true, Part::MsgidPlural) => previous.msgid_plural.as_mut(),
            (true, _) => previous.msgid.as_mut(),
            (false, Part::Msgctxt) => entry.msgctxt.as_mut(),
            (false, Part::Msgid) => Some(&mut entry.msgid),
            (false, Part::MsgidPlural) => entry.msgid_plural.as_mut(),
            (false, Part::Msgstr) => entry.msgstr.last_mut(),
        }
    }

    /// Appends the quoted strings of one line.
    fn append(&mut self, strings: &str) -> Result<(), PoProblem> {
        let mut rest = strings.trim_ascii_start();
        while !rest.is_empty() {
            let quoted = rest.strip_prefix('"').ok_or_else(|| unexpected(rest))?;
            let target = self.target().ok_or_else(|| unexpected(rest))?;
            rest = unquote(quoted, target)?.trim_ascii_start();
            self.filled = true;
        }
        Ok(())
    }

    fn check_filled(&self) -> Result<(), PoProblem> {
        let keyword_seen = self.part != Part::Comments || self.in_previous;
        if keyword_seen && !self.filled { Err(PoProblem::StringMissing) } else { Ok(()) }
    }

    /// As GNU's tools: an earlier source text has a msgid.
    fn check_previous(&self) -> Result<(), PoProblem> {
        let previous = &self.entry.previous;
        let lacks = previous.msgid.is_none() && *previous != Previous::default();
        if lacks { Err(PoProblem::MsgidMissing) } else { Ok(()) }
    }

    fn check_obsolete(&self, obsolete: bool) -> Result<(), PoProblem> {
        if self.entry.obsolete == obsolete { Ok(()) } else { Err(PoProblem::PartlyObsolete) }
    }
}

/// Splits a line after its keyword. A quotation mark may follow the keyword without a space.
pub(super) fn split_keyword(text: &str) -> (&str, &str) {
    let end = text.find(|character: char| character.is_ascii_whitespace() || character == '"').unwrap_or(text.len());
    text.split_at(end)
}

/// Appends the string that continues after its opening quotation mark. Returns what follows the closing one.
fn unquote<'a>(quoted: &'a str, out: &mut String) -> Result<&'a str, PoProblem> {
    let mut rest = quoted;
    loop {
        let end = rest.find(['"', '\\', '\0']).ok_or(PoProblem::StringUnterminated)?;
        out.push_str(&rest[..end]);
        let mut after = rest[end..].chars();
        match after.next() {
            Some('"') => return Ok(after.as_str()),
            Some('\\') => out.push(escaped(&mut after)?),
            _ => return Err(PoProblem::Nul),
        }
        rest = after.as_str();
    }
}

/// Reads an escape sequence after its backslash, as in C.
pub(super) fn escaped(rest: &mut Chars<'_>) -> Result<char, PoProblem> {
    let sequence = rest.as_str();
    Ok(match rest.next().ok_or(PoProblem::StringUnterminated)? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'a' => '\x07',
        'b' => '\x08',
        'v' => '\x0b',
        'f' => '\x0c',
        '\\' => '\\',
        '"' => '"',
        'x' => code(rest, &sequence[1..], 16, usize::MAX)?,
        '0'..='7' => {
            *rest = sequence.chars();
            code(rest, sequence, 8, 3)?
        }
        other => return Err(PoProblem::Escape { found: other.to_string() }),
    })
}

/// Reads a character by its code. A code beyond ASCII is refused: it would be a single byte, which is not valid UTF-8.
fn code<'a>(rest: &mut Chars<'a>, text: &'a str, radix: u32, digits_max: usize) -> Result<char, PoProblem> {
    let digits = text.chars().take(digits_max).take_while(|character| character.is_digit(radix)).count();
    let (digits, after) = text.split_at(digits);
    *rest = after.chars();
    match u8::from_str_radix(digits, radix) {
        Ok(0) => Err(PoProblem::Nul),
        Ok(code) if code.is_ascii() => Ok(char::from(code)),
        _ => Err(PoProblem::Escape { found: text.chars().take(4).collect() }),
    }
}

fn unexpected(text: &str) -> PoProblem {
    PoProblem::Unexpected { found: text.chars().take(32).collect() }
}
