//! Checking a file for those who translate: what is wrong, where, and what to do about it.
//!
//! [`Translations::check`] says which translations the server will not send. This finds the same and more, for one file:
//! what is missing, doubtful, outdated, too long, or looks odd. Whatever `msgfmt -c` refuses is an error here. Each
//! [`Finding`] has the bytes to point at, and words for a translator.
//!
//! A text's length is counted by [`text_length`]: a placeholder counts as [`PLACEHOLDER_LENGTH`](crate::PLACEHOLDER_LENGTH),
//! because its value is not known. A text that is too long is sent all the same, so this is a warning.
//!
//! Bounds: [`PROBLEM_COUNT_MAX`] findings, mistakes of translations first.

mod finding;
mod texts;
mod words;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use tidings_types::Locale;

use crate::error::{PoError, PoProblem};
use crate::limits::PROBLEM_COUNT_MAX;
use crate::message::{Message, excess_start, inheriting, text_length};
use crate::po::{Catalogue, Entry, Lines, Part};
use crate::translations::Translations;

pub use finding::{Finding, FindingKind, Severity};

/// Checks a file. `messages` are the sources of its domain. Without any, the file is checked for itself: nothing is
/// missing or unused. The findings are in the order of the file.
pub fn check(locale: &Locale, file: &[u8], messages: &[Message]) -> Vec<Finding> {
    let catalogue = match Catalogue::parse(file) {
        Ok(catalogue) => catalogue,
        Err(error) => return vec![unreadable(locale, file, error)],
    };
    let Ok(text) = std::str::from_utf8(file) else { unreachable!("the parser refuses what is not UTF-8") };
    let mut sources: HashMap<_, Vec<&Message>> = HashMap::new();
    for message in messages {
        sources.entry((message.template.msgctxt(), message.template.msgid())).or_default().push(message);
    }
    let inheriting = inheriting(&catalogue, messages);
    let lines = Lines::new(text);
    let mut check = Check { locale, lines, catalogue: &catalogue, sources, inheriting, findings: Vec::new() };
    check.flaws(messages);
    for entry in catalogue.entries().iter().filter(|entry| !entry.obsolete && !entry.is_header()) {
        check.entry(entry);
    }
    check.missing(messages);
    let mut findings = check.findings;
    findings.sort_by_key(|finding| (finding.range.start, std::cmp::Reverse(finding.severity)));
    findings
}

struct Check<'a> {
    locale: &'a Locale,
    lines: Lines<'a>,
    catalogue: &'a Catalogue,
    sources: HashMap<(Option<&'a str>, &'a str), Vec<&'a Message>>,
    /// The messages that need no translation of their own.
    inheriting: HashSet<(Option<&'a str>, &'a str)>,
    findings: Vec<Finding>,
}

impl Check<'_> {
    /// The mistakes for which a translation is not sent.
    fn flaws(&mut self, messages: &[Message]) {
        let by_line: HashMap<_, _> = self.catalogue.entries().iter().map(|entry| (entry.line, entry)).collect();
        let translations = Translations::new(vec![(self.locale.clone(), self.catalogue.clone())]);
        let mut seen: HashSet<(usize, String)> = HashSet::new();
        for problem in translations.check(messages.iter().map(|message| &message.template)) {
            let Some(entry) = by_line.get(&problem.line) else { continue };
            if seen.insert((problem.line, problem.flaw.to_string())) {
                let (part, range) = texts::place(&problem.flaw, entry);
                self.add(entry, FindingKind::Flaw(problem.flaw), part, range);
            }
        }
    }

    /// What else is to be said of an entry.
    fn entry(&mut self, entry: &Entry) {
        let whole = 0..entry.msgid.len();
        if self.catalogue.is_unmarked(entry.line) {
            self.add(entry, FindingKind::FlagLost, Part::Msgid, whole.clone());
        }
        if !self.sources.is_empty() && !self.sources.contains_key(&entry.key()) {
            let kind = self.unknown_value(entry).unwrap_or(FindingKind::Unused);
            return self.add(entry, kind, Part::Msgid, whole);
        }
        if !entry.has_text() && self.inheriting.contains(&entry.key()) {
            return;
        }
        if !entry.has_text() {
            return self.add(entry, FindingKind::Untranslated, Part::Msgstr(0), 0..0);
        }
        if entry.is_fuzzy() {
            return self.add(entry, FindingKind::Fuzzy, Part::Msgid, whole);
        }
        if entry.is_outdated() {
            self.add(entry, FindingKind::Outdated, Part::Msgid, whole);
        }
        let max =
            self.sources.get(&entry.key()).and_then(|alike| alike.iter().filter_map(|source| source.length_max).min());
        for (form, text) in entry.msgstr.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            if let Some((max, at)) = max.and_then(|max| Some((max, excess_start(text, max)?))) {
                let kind = FindingKind::Long { form, length: text_length(text), max };
                self.add(entry, kind, Part::Msgstr(form), at..text.len());
            }
            for (kind, range) in texts::oddities(entry, form, text) {
                self.add(entry, kind, Part::Msgstr(form), range);
            }
        }
    }

    /// What is to be said of an entry whose context has a value that the message does not select by.
    fn unknown_value(&self, entry: &Entry) -> Option<FindingKind> {
        let (context, value) = entry.msgctxt.as_deref()?.rsplit_once('|')?;
        let key = (Some(context).filter(|context| !context.is_empty()), entry.msgid.as_str());
        let mut templates = self.sources.get(&key)?.iter().map(|message| &message.template);
        let template = templates.find(|template| template.selects_by().is_some())?;
        let values = template.values().map(|(value, _)| value.to_owned()).collect();
        Some(FindingKind::UnknownValue { value: value.to_owned(), values })
    }

    /// The messages that are not in the file. They are told at the header.
    fn missing(&mut self, messages: &[Message]) {
        let known: HashSet<_> =
            self.catalogue.entries().iter().filter(|entry| !entry.obsolete).map(Entry::key).collect();
        let mut told = HashSet::new();
        for message in messages {
            let key = (message.template.msgctxt(), message.template.msgid());
            if known.contains(&key) || !told.insert(key) {
                continue;
            }
            let stand_in = Entry {
                line: self.catalogue.header_entry().line,
                references: vec![message.reference.clone()],
                msgctxt: message.template.msgctxt().map(str::to_owned),
                msgid: message.template.msgid().to_owned(),
                ..Entry::default()
            };
            self.add(&stand_in, FindingKind::Missing, Part::Msgid, 0..0);
        }
    }

    fn add(&mut self, entry: &Entry, kind: FindingKind, part: Part, range: Range<usize>) {
        if self.findings.len() == PROBLEM_COUNT_MAX {
            return;
        }
        let range = self.lines.locate(entry.line, part, range);
        let (line, column) = self.lines.position(range.start);
        let mut references: BTreeSet<_> = entry.each_reference().map(str::to_owned).collect();
        let sources = self.sources.get(&entry.key()).into_iter().flatten();
        references.extend(sources.map(|message| message.reference.clone()));
        let (message, help) = words::of(&kind, entry, self.catalogue.plural_rule(), self.locale);
        self.findings.push(Finding {
            severity: kind.severity(),
            locale: self.locale.clone(),
            line,
            column,
            range,
            references: references.into_iter().collect(),
            msgctxt: entry.msgctxt.clone(),
            msgid: entry.msgid.clone(),
            kind,
            message,
            help,
        });
    }
}

/// The finding of a file that cannot be read.
fn unreadable(locale: &Locale, file: &[u8], error: PoError) -> Finding {
    let readable = match std::str::from_utf8(file) {
        Ok(text) => text,
        Err(bad) => std::str::from_utf8(&file[..bad.valid_up_to()]).unwrap_or_default(),
    };
    let lines = Lines::new(readable);
    let range = match &error.problem {
        PoProblem::NotUtf8 => readable.len()..readable.len() + 1,
        problem => {
            let line = lines.line(error.line);
            let found =
                words::found(problem).and_then(|found| readable[line.clone()].find(found).map(|at| (at, found.len())));
            found
                .filter(|(_, length)| *length > 0)
                .map_or(line.clone(), |(at, length)| line.start + at..line.start + at + length)
        }
    };
    let (line, column) = lines.position(range.start);
    let message = error.problem.to_string();
    Finding {
        severity: Severity::Error,
        locale: locale.clone(),
        line,
        column,
        range,
        references: Vec::new(),
        msgctxt: None,
        msgid: String::new(),
        help: words::file_help(&error.problem).map(str::to_owned),
        kind: FindingKind::File(error.problem),
        message,
    }
}
