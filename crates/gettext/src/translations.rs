//! The translations of one domain into all languages: checking and rendering.
//!
//! Each translation is prepared when the set is made: it is split into segments, and compared with the source text of its
//! entry. [`Translations::check`] also compares it with the templates, and reports all mistakes. [`Translations::render`]
//! ignores every translation that `check` would report for the template. So a mistake costs the translation of one
//! message into one language, but never a notification.
//!
//! A plural form that only one number takes (1 in Polish, 2 in Arabic) may leave out the count: its words say the number.
//! A form that several numbers take must show the count. `msgfmt -c` is less strict there: French has one form for 0 and
//! 1.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use tidings_types::{Locale, ParamValue, TimeZone, TypedValue};

use crate::bidi;
use crate::error::{Flaw, RenderError, TemplateError};
use crate::format::{self, UNDETERMINED, conventions};
use crate::limits::{PROBLEM_COUNT_MAX, TEXT_BYTES_MAX};
use crate::plural::PluralRule;
use crate::po::{Catalogue, Entry};
use crate::template::{Key, Template, edges};
use crate::text::Text;

/// The catalogues of one domain, ready to render.
#[derive(Debug, Clone, Default)]
pub struct Translations {
    languages: BTreeMap<String, Language>,
    /// The mistakes of whole catalogues.
    problems: Vec<Problem>,
}

/// A mistake in a catalogue. Shown as `pl, line 12, "Goal for %{team}!": msgstr[0] lacks %{team}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{locale}, line {line}, {msgid:?}: {flaw}")]
pub struct Problem {
    /// The locale of the catalogue.
    pub locale: Locale,
    /// The line of the entry, or of the header for a mistake of the whole file.
    pub line: usize,
    /// The msgid of the entry; empty for the header.
    pub msgid: String,
    /// The mistake.
    pub flaw: Flaw,
}

/// For whom a text is rendered: what decides how typed values look, besides the language of the text.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// The locale of the device.
    pub locale: &'a Locale,
    /// The time zone that the device has stored.
    pub zone: Option<&'a TimeZone>,
    /// Where names are looked up, in this order.
    pub names: &'a [&'a Translations],
    /// Adds spaces behind each typed value, so that the text is at least as long as that of any reader of its language.
    pub with_room: bool,
}

impl<'a> Reader<'a> {
    /// A reader of this locale without a time zone. Names are not translated.
    pub fn new(locale: &'a Locale) -> Self {
        Self { locale, zone: None, names: &[], with_room: false }
    }

    /// Appends a value in the conventions of `locale`.
    fn put(&self, out: &mut String, value: &ParamValue, locale: &Locale, right_to_left: bool) {
        let typed = match value {
            ParamValue::Integer(number) => return bidi::fill_number(out, &number.to_string(), right_to_left),
            ParamValue::Decimal(number) => return bidi::fill_number(out, &number.to_string(), right_to_left),
            ParamValue::Text(text) => return bidi::fill_text(out, text, right_to_left),
            ParamValue::Typed(typed) => typed,
        };
        let room = match typed {
            TypedValue::Name { name, context } => {
                let translated = self.names.iter().find_map(|names| names.name(context.as_deref(), name, locale));
                bidi::fill_text(out, translated.unwrap_or(name), right_to_left);
                let all = self.names.iter().flat_map(|names| names.names(context.as_deref(), name, locale));
                if self.with_room { all.map(str::len).max().unwrap_or_default() } else { 0 }
            }
            typed => {
                bidi::fill_text(out, &format::show(typed, locale, self.zone), right_to_left);
                if locale.as_str() == UNDETERMINED { ROOM_BYTES_OF_ALL } else { ROOM_BYTES }
            }
        };
        if self.with_room {
            out.extend(std::iter::repeat_n(' ', room));
        }
    }
}

/// With [`Reader::with_room`], a number or date gets this many spaces. In no language of CLDR do regions and zones add more;
/// tests compare them.
const ROOM_BYTES: usize = 64;
/// The same for a text without language, where the device's language decides.
const ROOM_BYTES_OF_ALL: usize = 192;

/// The language of the source texts.
static SOURCE_LANGUAGE: LazyLock<Locale> = LazyLock::new(|| Locale::new("en").expect("en is a language tag"));

#[derive(Debug, Clone)]
struct Language {
    locale: Locale,
    right_to_left: bool,
    rule: PluralRule,
    messages: HashMap<Key, Message>,
}

/// One entry of a catalogue.
#[derive(Debug, Clone)]
struct Message {
    line: usize,
    msgid_plural: Option<String>,
    /// One text per plural form; empty if the entry is untranslated, fuzzy or malformed.
    forms: Vec<Text>,
    /// The mistakes that the entry alone shows, as if every form had to show every parameter.
    flaws: Vec<Flaw>,
}

impl Translations {
    /// Prepares the catalogues. If two have the same locale, the first is used and `check` reports the other.
    pub fn new(catalogues: Vec<(Locale, Catalogue)>) -> Self {
        let mut translations = Self::default();
        for (locale, catalogue) in catalogues {
            let header = catalogue.header_entry();
            let problem = |flaw| Problem { locale: locale.clone(), line: header.line, msgid: String::new(), flaw };
            if translations.languages.contains_key(locale.as_str()) {
                translations.problems.push(problem(Flaw::DuplicateLocale));
                continue;
            }
            translations.problems.extend(header_flaws(&locale, &catalogue).into_iter().map(problem));
            translations.languages.insert(locale.as_str().to_owned(), Language::new(locale, &catalogue));
        }
        translations
    }

    /// The locales that have a catalogue, in alphabetical order.
    pub fn locales(&self) -> impl Iterator<Item = &Locale> {
        self.languages.values().map(|language| &language.locale)
    }

    /// Finds the mistakes of the catalogues for these templates, ordered by locale and line, at most
    /// [`PROBLEM_COUNT_MAX`](crate::limits::PROBLEM_COUNT_MAX). Untranslated and fuzzy messages are not mistakes: they
    /// fall back. A translation without a template is compared only with its own source text.
    pub fn check<'a>(&self, templates: impl IntoIterator<Item = &'a Template>) -> Vec<Problem> {
        let mut by_key: HashMap<&Key, Vec<&Template>> = HashMap::new();
        let each = |template: &'a Template| std::iter::once(template).chain(template.values().map(|(_, each)| each));
        for template in templates.into_iter().flat_map(each) {
            let alike = by_key.entry(template.key()).or_default();
            if !alike.iter().any(|other| other.is_translated_as(template)) {
                alike.push(template);
            }
        }
        let mut problems = self.problems.clone();
        for language in self.languages.values() {
            let mut messages: Vec<_> = language.messages.iter().collect();
            messages.sort_by_key(|(_, message)| message.line);
            for (key, message) in messages {
                if problems.len() >= PROBLEM_COUNT_MAX {
                    break;
                }
                let templates = by_key.get(key).map(Vec::as_slice).unwrap_or_default();
                language.check(key, message, templates, &mut problems);
            }
        }
        problems.truncate(PROBLEM_COUNT_MAX);
        problems.sort_by(|a, b| (&a.locale, a.line).cmp(&(&b.locale, b.line)));
        problems
    }

    /// Renders the text for a locale. It takes the translation of the most specific catalogue among the locale's fallbacks
    /// that has one without mistakes, else the source text. If the template selects by a parameter, each of these is first
    /// looked for with the value of the parameter. A negative count takes the plural form of its absolute value.
    /// A filled-in text gets Unicode isolates if the translation's locale is written right to left or the text has
    /// right-to-left characters. A negative number gets them only in the first case. Typed values are shown as
    /// [`Reader::new`] says.
    ///
    /// # Errors
    /// Only when the parameters do not fit the template ([`Template::check_params`]).
    pub fn render(
        &self,
        template: &Template,
        locale: &Locale,
        params: &BTreeMap<String, ParamValue>,
    ) -> Result<String, RenderError> {
        self.render_for(template, locale, params, &Reader::new(locale))
    }

    /// As [`Translations::render`], with typed values as this reader expects them: in the language of the text, with the
    /// conventions of the reader's region and the time of the reader's zone.
    ///
    /// # Errors
    /// Only when the parameters do not fit the template ([`Template::check_params`]).
    pub fn render_for(
        &self,
        template: &Template,
        locale: &Locale,
        params: &BTreeMap<String, ParamValue>,
        reader: &Reader<'_>,
    ) -> Result<String, RenderError> {
        template.check_params(params)?;
        let n = template.counted(params)?;
        let selected = template.selected(params);
        let put = |language: &Locale, right_to_left| {
            let locale = conventions(language, reader.locale).clone();
            move |out: &mut String, value: &ParamValue| reader.put(out, value, &locale, right_to_left)
        };
        for tag in locale.fallbacks() {
            let Some(language) = self.languages.get(tag) else { continue };
            let text = selected.and_then(|selected| language.text(selected, n)).or_else(|| language.text(template, n));
            if let Some(text) = text {
                return text.fill(params, put(&language.locale, language.right_to_left));
            }
        }
        selected.unwrap_or(template).source(n).fill(params, put(&SOURCE_LANGUAGE, false))
    }

    /// The translation of a name for a locale: that of the most specific catalogue among the locale's fallbacks that has
    /// one without mistakes. The context `CONTEXT|CASE` falls back to `CONTEXT`.
    fn name(&self, context: Option<&str>, name: &str, locale: &Locale) -> Option<&str> {
        let keys = name_keys(context, name);
        locale.fallbacks().find_map(|tag| self.languages.get(tag)?.name(&keys))
    }

    /// The translations of a name that a text in this language may show.
    fn names(&self, context: Option<&str>, name: &str, text: &Locale) -> Vec<&str> {
        let keys = name_keys(context, name);
        let shown = self.languages.values().filter(|language| *conventions(text, &language.locale) == language.locale);
        shown.filter_map(|language| language.name(&keys)).collect()
    }

    /// Whether a device of this locale gets a translation, whatever the parameters: a catalogue among the locale's
    /// fallbacks has one without mistakes. A template without text needs none.
    pub fn translates(&self, template: &Template, locale: &Locale) -> bool {
        let has = |language: &Language| language.text(template, 1).is_some();
        template.key().msgid.is_empty() || locale.fallbacks().any(|tag| self.languages.get(tag).is_some_and(has))
    }

    /// The language in which a device of this locale gets all of these templates that are not empty, with these parameters;
    /// `None`: the source language, or several.
    pub fn language_of(
        &self,
        templates: &[&Template],
        locale: &Locale,
        params: &BTreeMap<String, ParamValue>,
    ) -> Option<&Locale> {
        let language = |template: &&Template| {
            let (template, selected) = (*template, template.selected(params));
            let has = |language: &Language| {
                [selected, Some(template)].into_iter().flatten().any(|template| language.text(template, 1).is_some())
            };
            let mut languages = locale.fallbacks().filter_map(|tag| self.languages.get(tag));
            languages.find(|language| has(language)).map(|language| &language.locale)
        };
        let mut languages = templates.iter().filter(|template| !template.key().msgid.is_empty()).map(language);
        let first = languages.next()??;
        languages.all(|other| other == Some(first)).then_some(first)
    }
}

/// The keys of a name: with its context, and if that is `CONTEXT|CASE`, with `CONTEXT`.
fn name_keys(context: Option<&str>, name: &str) -> Vec<Key> {
    let general = context.and_then(|context| context.rsplit_once('|')).map(|(general, _)| general);
    let contexts = std::iter::once(context).chain(general.map(Some));
    contexts.map(|context| Key { msgctxt: context.map(str::to_owned), msgid: name.to_owned() }).collect()
}

impl Language {
    fn new(locale: Locale, catalogue: &Catalogue) -> Self {
        let rule = catalogue.plural_rule().clone();
        let in_use = catalogue.entries().iter().filter(|entry| !entry.obsolete && !entry.is_header());
        let messages = in_use
            .map(|entry| {
                let key = Key { msgctxt: entry.msgctxt.clone(), msgid: entry.msgid.clone() };
                (key, Message::new(entry, &rule))
            })
            .collect();
        Self { right_to_left: bidi::is_right_to_left(locale.as_str()), locale, rule, messages }
    }

    /// Adds the mistakes of a message as the translation of these templates. They have the message's key.
    fn check(&self, key: &Key, message: &Message, templates: &[&Template], problems: &mut Vec<Problem>) {
        let problem =
            |flaw| Problem { locale: self.locale.clone(), line: message.line, msgid: key.msgid.clone(), flaw };
        for template in templates {
            problems.extend(message.flaws_for(template, &self.rule).map(problem));
        }
        if templates.is_empty() {
            let flaws = message.flaws.iter().filter(|flaw| !message.lacks_count(flaw, &self.rule));
            problems.extend(flaws.cloned().map(problem));
        }
    }

    /// The first translation of a name with one of these keys that has no mistakes.
    fn name(&self, keys: &[Key]) -> Option<&str> {
        keys.iter().find_map(|key| self.messages.get(key)?.name())
    }

    fn text(&self, template: &Template, n: u64) -> Option<&Text> {
        let message = self.messages.get(template.key())?;
        if message.forms.is_empty() || message.flaws_for(template, &self.rule).next().is_some() {
            return None;
        }
        message.forms.get(if message.msgid_plural.is_some() { self.rule.index(n) } else { 0 })
    }
}

impl Message {
    fn new(entry: &Entry, rule: &PluralRule) -> Self {
        let mut message =
            Self { line: entry.line, msgid_plural: entry.msgid_plural.clone(), forms: Vec::new(), flaws: Vec::new() };
        let (expected, found) = (rule.form_count(), entry.msgstr.len());
        if entry.msgid_plural.is_some() && found != expected {
            message.flaws.push(Flaw::FormCount { expected, found });
        }
        if entry.is_translated() {
            message.translate(entry);
        }
        message
    }

    /// The translation, if it is without mistakes and has neither placeholder nor plural.
    fn name(&self) -> Option<&str> {
        match self.forms.as_slice() {
            [text] if self.flaws.is_empty() && self.msgid_plural.is_none() => text.literal(),
            _ => None,
        }
    }

    /// Prepares the forms, or adds the mistakes that prevent it.
    fn translate(&mut self, entry: &Entry) {
        self.compare_edges(entry);
        let sources = match sources(entry) {
            Ok(sources) => sources,
            // Without the flag and without a placeholder, the entry belongs to another program, not to a template.
            Err(_) if !entry.flags.contains("ruby-format") => return,
            Err(error) => return self.flaws.push(Flaw::Source(error)),
        };
        for (form, msgstr) in entry.msgstr.iter().enumerate() {
            match Text::parse(msgstr) {
                Ok(_) if msgstr.is_empty() => self.flaws.push(Flaw::FormEmpty { form }),
                Ok(_) if msgstr.len() > TEXT_BYTES_MAX => {
                    self.flaws.push(Flaw::TooLong { form, bytes: msgstr.len() });
                }
                Ok(text) => {
                    self.compare(form, &text, &sources);
                    self.forms.push(text);
                }
                Err(problem) => self.flaws.push(Flaw::Placeholder { form, problem }),
            }
        }
    }

    fn compare_edges(&mut self, entry: &Entry) {
        let wanted = edges(&entry.msgid);
        if entry.msgid_plural.as_ref().is_some_and(|plural| edges(plural) != wanted) {
            self.flaws.push(Flaw::Source(TemplateError::Newline));
        }
        let differs = |(form, msgstr): (usize, &String)| {
            (!msgstr.is_empty() && edges(msgstr) != wanted).then_some(Flaw::Newline { form })
        };
        self.flaws.extend(entry.msgstr.iter().enumerate().filter_map(differs));
    }

    fn compare(&mut self, form: usize, text: &Text, sources: &BTreeSet<String>) {
        let found = text.placeholders();
        let missing = sources.iter().filter(|name| !found.contains(name.as_str()));
        self.flaws.extend(missing.map(|name| Flaw::MissingPlaceholder { form, name: name.clone() }));
        let unknown = found.iter().filter(|name| !sources.contains(**name));
        self.flaws.extend(unknown.map(|name| Flaw::UnknownPlaceholder { form, name: (*name).to_owned() }));
    }

    /// The mistakes of this entry as the translation of a template with the same key.
    fn flaws_for<'a>(&'a self, template: &'a Template, rule: &'a PluralRule) -> impl Iterator<Item = Flaw> + 'a {
        let excused = |flaw: &&Flaw| {
            let count = template.count();
            self.lacks_count(flaw, rule)
                && matches!(flaw, Flaw::MissingPlaceholder { name, .. } if Some(name.as_str()) == count)
        };
        let differs = (self.msgid_plural.as_deref() != template.msgid_plural()).then_some(Flaw::PluralDiffers);
        differs.into_iter().chain(self.flaws.iter().filter(move |flaw| !excused(flaw)).cloned())
    }

    /// Whether the missing placeholder may be the count, in a plural form that only one number takes.
    fn lacks_count(&self, flaw: &Flaw, rule: &PluralRule) -> bool {
        self.msgid_plural.is_some()
            && matches!(flaw, Flaw::MissingPlaceholder { form, .. } if rule.only(*form).is_some())
    }
}

/// The placeholders of an entry's source texts. The entry does not say which of them is the count. The singular may leave
/// out placeholders of the plural, but not the other way round.
fn sources(entry: &Entry) -> Result<BTreeSet<String>, TemplateError> {
    let singular = Template::new(entry.msgctxt.as_deref(), &entry.msgid, None)?;
    let mut names: BTreeSet<String> = singular.placeholders().map(str::to_owned).collect();
    if let Some(plural) = &entry.msgid_plural {
        let plural = Template::new(None, plural, None)?;
        if let Some(name) = names.iter().find(|name| !plural.placeholders().any(|other| other == *name)) {
            return Err(TemplateError::OneSided { name: name.clone(), plural: false });
        }
        names.extend(plural.placeholders().map(str::to_owned));
    }
    Ok(names)
}

/// The mistakes of one entry as the translation of `template`, or of its own source text.
pub(crate) fn entry_flaws(entry: &Entry, rule: &PluralRule, template: Option<&Template>) -> Vec<Flaw> {
    let message = Message::new(entry, rule);
    match template {
        Some(template) => message.flaws_for(template, rule).collect(),
        None => message.flaws.iter().filter(|flaw| !message.lacks_count(flaw, rule)).cloned().collect(),
    }
}

fn header_flaws(locale: &Locale, catalogue: &Catalogue) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    if let Some(stated) = catalogue.header("Language")
        && Locale::new(stated).as_ref() != Ok(locale)
    {
        flaws.push(Flaw::Language { stated: stated.chars().take(64).collect() });
    }
    let has_plural = |entry: &Entry| !entry.obsolete && entry.msgid_plural.is_some();
    if catalogue.header("Plural-Forms").is_none() && catalogue.entries().iter().any(has_plural) {
        flaws.push(Flaw::PluralFormsMissing);
    }
    flaws.extend(catalogue.plural_rule().outlier().map(|n| Flaw::PluralRange { n }));
    flaws
}
