//! `tidings translations check` and `compile-check`: what is wrong, where, and what to do about it.

use serde::Serialize;
use tidings_config::Config;
use tidings_gettext::{Finding, Severity, check};
use tidings_sender::Topics;
use tidings_server::output::line;
use tidings_telemetry::chain;
use tidings_types::{Event, EventId, Locale, ParamValue, Subject};

use super::desk::{Desk, PoFile, read, severity};
use super::stats::counted;
use crate::cli::{CheckArgs, CompileCheckArgs, FindingFormat};
use crate::command::preview::fill;
use crate::command::{CommandError, load};

#[derive(Default, Serialize)]
struct Report {
    errors: usize,
    warnings: usize,
    notes: usize,
    /// Languages that are missing, and those with too few translations.
    lacking: Vec<String>,
    findings: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    severity: &'static str,
    code: &'static str,
    file: String,
    line: usize,
    column: usize,
    locale: Locale,
    references: Vec<String>,
    msgid: String,
    message: String,
    help: Option<String>,
    /// The line of the file, and the characters to point at.
    #[serde(skip)]
    marked: (String, std::ops::Range<usize>),
}

pub(super) fn run(args: &CheckArgs) -> Result<(), CommandError> {
    let desk = Desk::open(&args.file)?;
    let mut report = Report::default();
    for PoFile { domain, locale, path } in desk.files()? {
        let bytes = read(&path)?;
        for finding in check(&locale, &bytes, &desk.domains[&domain]) {
            report.add(finding, &path.display().to_string(), &bytes);
        }
    }
    if args.quiet {
        report.findings.retain(|shown| shown.severity != "note");
    }
    report.lacking = lacking(&desk, args)?;
    report.print(args.format)?;
    let mut told = report.lacking.clone();
    if report.errors > 0 {
        told.push("what is wrong is not sent; the language falls back there".to_owned());
    }
    if told.is_empty() { Ok(()) } else { Err(CommandError::Failed(told.join("; "))) }
}

/// Languages that are missing, and those with too few translations.
fn lacking(desk: &Desk, args: &CheckArgs) -> Result<Vec<String>, CommandError> {
    let mut short = Vec::new();
    let files = desk.files()?;
    for name in &args.locale {
        let locale = Locale::new(name).map_err(|error| CommandError::Usage(error.to_string()))?;
        for domain in desk.domains.keys() {
            if !files.iter().any(|file| file.locale == locale && file.domain == *domain) {
                short.push(format!("{locale} has no {domain}.po: run `tidings translations merge --locale {locale}`"));
            }
        }
    }
    let Some(least) = args.min_translated else { return Ok(short) };
    // A file that cannot be read is an error of the report.
    for it in counted(desk).unwrap_or_default() {
        if it.percent() < usize::from(least) {
            let (locale, domain, percent) = (&it.locale, &it.domain, it.percent());
            short.push(format!("{locale} has {percent} % of {domain} translated, at least {least} % are asked for"));
        }
    }
    Ok(short)
}

impl Report {
    fn add(&mut self, finding: Finding, file: &str, bytes: &[u8]) {
        let (count, word) = match severity(&finding) {
            Severity::Error => (&mut self.errors, "error"),
            Severity::Warning => (&mut self.warnings, "warning"),
            Severity::Note => (&mut self.notes, "note"),
        };
        *count += 1;
        self.findings.push(Shown {
            severity: word,
            code: finding.kind.code(),
            file: file.to_owned(),
            line: finding.line,
            column: finding.column,
            marked: marked(bytes, &finding.range),
            locale: finding.locale,
            references: finding.references,
            msgid: finding.msgid,
            message: finding.message,
            help: finding.help,
        });
    }

    fn print(&self, format: FindingFormat) -> Result<(), CommandError> {
        match format {
            FindingFormat::Json => line(serde_json::to_string_pretty(self).expect("texts and numbers"))?,
            FindingFormat::Github => {
                self.findings.iter().try_for_each(|shown| line(shown.annotation()))?;
                self.lacking.iter().try_for_each(|lacking| line(format!("::error ::{}", data(lacking))))?;
            }
            FindingFormat::Text => {
                self.findings.iter().try_for_each(|shown| line(shown.words()))?;
                line(format!("errors: {}, warnings: {}, notes: {}", self.errors, self.warnings, self.notes))?;
            }
        }
        Ok(())
    }
}

/// The line with the range, and the range in it, in characters.
fn marked(bytes: &[u8], range: &std::ops::Range<usize>) -> (String, std::ops::Range<usize>) {
    let start = bytes[..range.start].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let end = bytes[range.end..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| range.end + at);
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let before = text(&bytes[start..range.start]).chars().count();
    let width = text(&bytes[range.clone()]).chars().count().max(1);
    (text(&bytes[start..end]), before..before + width)
}

impl Shown {
    /// As a compiler tells it: the place, the line, a caret under what is meant.
    fn words(&self) -> String {
        let Self { severity, code, file, line, column, locale, message, .. } = self;
        let (text, marked) = &self.marked;
        let (number, space) = (line.to_string(), " ".repeat(line.to_string().len()));
        let under: String = text.chars().take(marked.start).map(|it| if it == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(marked.len());
        let mut told = format!(
            "{severity}[{code}] {locale}: {message}\n{space}--> {file}:{line}:{column}\n{space} |\n{number} | {text}\n\
             {space} | {under}{carets}\n"
        );
        if !self.references.is_empty() {
            told += &format!("{space} = used by {}\n", self.references.join(", "));
        }
        if let Some(help) = &self.help {
            told += &format!("{space} = {help}\n");
        }
        told
    }

    /// A workflow command of GitHub Actions, which shows it beside the line.
    fn annotation(&self) -> String {
        let Self { severity, code, file, line, column, locale, message, .. } = self;
        let level = if *severity == "note" { "notice" } else { severity };
        let help = self.help.as_ref().map_or_else(String::new, |help| format!("\n{help}"));
        let (file, title) = (property(file), property(&format!("{locale}: {code}")));
        format!("::{level} file={file},line={line},col={column},title={title}::{}", data(&format!("{message}{help}")))
    }
}

/// Escapes what would end the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// As [`data`], for a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Numbers that between them choose every plural form of every language.
const COUNTS: [i64; 10] = [0, 1, 2, 3, 5, 11, 21, 100, 101, 1_000_000];

/// Renders each topic in each language for each provider, in each plural form and for each value that it selects by, with
/// a placeholder for each parameter.
pub(super) fn compile(args: &CompileCheckArgs) -> Result<(), CommandError> {
    let config = load(&args.file)?.config;
    let (topics, faults) = tidings_server::topics_and_faults(&config);
    if !faults.is_empty() {
        let faults: Vec<String> = faults.iter().map(|fault| chain(fault).to_string()).collect();
        return Err(CommandError::Failed(faults.join("\n")));
    }
    let (mut wrong, mut count) = (0, 0);
    for topic in topics.names() {
        let (id, subject) = (EventId::new("check").expect("ASCII"), Subject::new("check:1").expect("ASCII"));
        let mut event = Event::new(id, topic.clone(), vec![subject]);
        let filled = fill(&topics, &mut event);
        let events = with_values(&config, event);
        let each = || events.iter().flat_map(|event| COUNTS.map(|count| (event, count)));
        match filled.and_then(|_| each().try_for_each(|(event, count)| with_count(&topics, event, count))) {
            Ok(()) => count += events.iter().map(|event| topics.locales(event).len()).sum::<usize>(),
            Err(error) => {
                wrong += 1;
                line(format!("{topic}: {error}"))?;
            }
        }
    }
    match wrong {
        0 => Ok(line(format!("{} topics in {count} texts: all can be sent", config.topics.len()))?),
        _ => Err(CommandError::Failed(format!("{wrong} topics cannot be sent"))),
    }
}

/// The event as it is, and with each value that its topic selects by.
fn with_values(config: &Config, event: Event) -> Vec<Event> {
    let topic = config.topics.get(&event.topic);
    let select = topic.and_then(|topic| Some((topic.select.as_ref()?, &topic.values)));
    let with = |(name, value): (&String, &String)| {
        let mut event = event.clone();
        event.params.insert(name.clone(), ParamValue::Text(value.clone()));
        event
    };
    let values = select.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    let values: Vec<Event> = values.map(with).collect();
    std::iter::once(event).chain(values).collect()
}

/// Checks the event with another number, if one of its parameters chooses the plural form.
fn with_count(topics: &Topics, event: &Event, count: i64) -> Result<(), CommandError> {
    let mut event = event.clone();
    for value in event.params.values_mut().filter(|value| matches!(value, ParamValue::Integer(_))) {
        *value = ParamValue::Integer(count);
    }
    topics.check(&event).map_err(|error| CommandError::Usage(format!("with the number {count}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{data, marked, property};

    #[test]
    fn the_caret_counts_characters_not_bytes() {
        let file = "one\nmsgstr \"Größe %{x}\"\nlast".as_bytes();
        let at = file.windows(4).position(|four| four == b"%{x}").unwrap();
        let (line, range) = marked(file, &(at..at + 4));
        assert_eq!((line.as_str(), range), ("msgstr \"Größe %{x}\"", 14..18));
        assert_eq!(marked(b"", &(0..0)), (String::new(), 0..1));
    }

    #[test]
    fn nothing_ends_an_annotation_early() {
        assert_eq!(data("50 %\nmore"), "50 %25%0Amore");
        assert_eq!(property("a:b,c"), "a%3Ab%2Cc");
    }
}
