//! Findings in words for translators: what it is, and what to do about it.

use tidings_types::Locale;

use super::finding::FindingKind;
use crate::error::{Flaw, PoProblem};
use crate::languages::{GENERIC, plural_forms};
use crate::limits::TEXT_BYTES_MAX;
use crate::pieces::{Piece, pieces};
use crate::plural::PluralRule;
use crate::po::Entry;

const MERGE: &str = "merge the file with the POT file";

/// The message of a finding, and its help.
pub(super) fn of(kind: &FindingKind, entry: &Entry, rule: &PluralRule, locale: &Locale) -> (String, Option<String>) {
    let the = |form: usize| name(form, entry, rule);
    let help = |text: &str| Some(text.to_owned());
    match kind {
        FindingKind::File(problem) => (problem.to_string(), file_help(problem).map(str::to_owned)),
        FindingKind::Flaw(flaw) => flaw_words(flaw, entry, rule, locale),
        FindingKind::Missing => ("the message is not in the file".to_owned(), help(MERGE)),
        FindingKind::Untranslated => ("not translated yet".to_owned(), None),
        FindingKind::Fuzzy => (
            "marked as doubtful (fuzzy), so it is not sent".to_owned(),
            help("correct the translation, then remove the mark"),
        ),
        FindingKind::Outdated => (
            format!("made for an earlier source text: {:?}", entry.previous.msgid.as_deref().unwrap_or_default()),
            help("it is still sent; correct it if needed, then delete the lines that begin with #|"),
        ),
        FindingKind::Long { form, length, max } => {
            (format!("{} has {length} characters, {max} are allowed", the(*form)), None)
        }
        FindingKind::FlagLost => (
            "the mark \"#, ruby-format\" is missing, so other programs do not check the placeholders".to_owned(),
            help("merging or normalising the file adds it"),
        ),
        FindingKind::EdgeSpace { form, end } => {
            let edge = if *end { "ends" } else { "begins" };
            (format!("only one of source text and translation {edge} with a space ({})", the(*form)), None)
        }
        FindingKind::Markup { form, tag } => {
            (format!("{} does not have {tag} as often as the source text", the(*form)), None)
        }
        FindingKind::UnknownValue { value, values } => (
            format!("the message has no text for {value:?}, so this translation is not sent"),
            Some(format!("it has texts for {}; {MERGE}", values.join(", "))),
        ),
        FindingKind::Unused => ("no message has this source text any more".to_owned(), help(MERGE)),
    }
}

fn flaw_words(flaw: &Flaw, entry: &Entry, rule: &PluralRule, locale: &Locale) -> (String, Option<String>) {
    let the = |form: usize| name(form, entry, rule);
    let help = |text: &str| Some(text.to_owned());
    match flaw {
        Flaw::MissingPlaceholder { form, name } => (
            format!("{} lacks %{{{name}}}", the(*form)),
            Some(format!("copy %{{{name}}} from the source text; it may stand anywhere in the sentence")),
        ),
        Flaw::UnknownPlaceholder { name, .. } => {
            let has = placeholders(entry);
            let has = if has.is_empty() { "it has no placeholders".to_owned() } else { format!("it has {has}") };
            (format!("%{{{name}}} is not in the source text"), Some(has))
        }
        Flaw::Placeholder { .. } => (
            "this percent sign has no meaning".to_owned(),
            help("write %% for a percent sign; a placeholder is written %{name}, as in the source text"),
        ),
        Flaw::FormEmpty { form } => (format!("{} is empty, while others are translated", the(*form)), None),
        Flaw::FormCount { expected, found } => (
            format!("the message has {found} plural forms, but the language has {expected}"),
            help("the header's Plural-Forms says how many there are, and for which numbers"),
        ),
        Flaw::TooLong { form, bytes } => {
            (format!("{} has {bytes} bytes, no notification carries more than {TEXT_BYTES_MAX}", the(*form)), None)
        }
        Flaw::Newline { form } => {
            (format!("only one of source text and translation begins or ends with a line break ({})", the(*form)), None)
        }
        Flaw::PluralDiffers => ("the message has another plural text now".to_owned(), help(MERGE)),
        Flaw::Language { stated } => {
            (format!("the header says Language: {stated}, but the file is for {locale}"), None)
        }
        Flaw::PluralFormsMissing => (
            "the header lacks Plural-Forms".to_owned(),
            Some(format!("add Plural-Forms: {}", plural_forms(locale).unwrap_or(GENERIC))),
        ),
        Flaw::DuplicateLocale | Flaw::PluralRange { .. } | Flaw::Source(_) => (flaw.to_string(), None),
    }
}

/// What help there is for a file that cannot be read.
pub(super) fn file_help(problem: &PoProblem) -> Option<&'static str> {
    Some(match problem {
        PoProblem::StringUnterminated => "a text ends with a quotation mark; a quotation mark inside is written \\\"",
        PoProblem::Escape { .. } => "a backslash is written \\\\",
        PoProblem::Unexpected { .. } => "each line is a comment, a keyword with a text, or a text in quotation marks",
        PoProblem::NotUtf8 | PoProblem::Charset { .. } => "save the file as UTF-8",
        PoProblem::ByteOrderMark => "save the file as UTF-8 without byte order mark",
        PoProblem::Duplicate { .. } => "delete one of the two",
        PoProblem::HeaderMissing => "merge the file of a new language with the POT file to see a right header",
        PoProblem::MsgstrKind => "a message with msgid_plural has msgstr[0], msgstr[1] and so on",
        _ => return None,
    })
}

/// The text of the line that is wrong.
pub(super) fn found(problem: &PoProblem) -> Option<&str> {
    match problem {
        PoProblem::Unexpected { found } | PoProblem::FormIndex { found, .. } | PoProblem::Escape { found } => {
            Some(found)
        }
        PoProblem::OutOfOrder { keyword } => Some(keyword),
        _ => None,
    }
}

/// A translation as a translator knows it: with a plural, by the numbers that take the form.
fn name(form: usize, entry: &Entry, rule: &PluralRule) -> String {
    if entry.msgid_plural.is_none() {
        return "the translation".to_owned();
    }
    let mut numbers: Vec<_> = rule.numbers(form).take(4).map(|n| n.to_string()).collect();
    if numbers.len() > 3 {
        numbers[3] = "…".to_owned();
    }
    if numbers.is_empty() { format!("msgstr[{form}]") } else { format!("msgstr[{form}] (for {})", numbers.join(", ")) }
}

/// The placeholders of the source texts.
fn placeholders(entry: &Entry) -> String {
    let mut names = Vec::new();
    for piece in entry.source_texts().flat_map(pieces) {
        if let Piece::Placeholder(name) = piece
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names.join(", ")
}
