//! The source text of one message.
//!
//! The configuration has the templates, and translators see them. The msgid and the context are the key of the translation
//! in a catalogue. A template knows which parameters an event must have.

use std::collections::{BTreeMap, BTreeSet};

use tidings_types::event_limits::PARAM_COUNT_MAX;
use tidings_types::{Number, ParamValue, TypedValue};

use crate::error::{RenderError, TemplateError};
use crate::format::check_value;
use crate::limits::TEXT_BYTES_MAX;
use crate::text::{Text, is_name};

/// The key of a message in a catalogue: the context, if any, and the source text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) msgctxt: Option<String>,
    pub(crate) msgid: String,
}

/// The source text for numbers other than one, and the parameter that chooses the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plural<'a> {
    /// The text.
    pub msgid_plural: &'a str,
    /// The name of the parameter that is counted. The texts need not show it.
    pub count: &'a str,
}

/// The source text of one message, in the source language (English), with placeholders such as `%{team}`.
///
/// Invariant: texts are within [`limits`](crate::limits) and well formed. Singular and plural have the same placeholders,
/// except that the singular may leave out the count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    key: Key,
    singular: Text,
    plural: Option<PluralText>,
    /// The parameters that an event must have: the placeholders and the count.
    required: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PluralText {
    msgid_plural: String,
    text: Text,
    count: String,
}

impl Template {
    /// Checks the texts. `msgctxt` distinguishes two messages with the same source text; other messages have none.
    ///
    /// # Errors
    /// When a text is empty or too long, has a control character (newline and tab are allowed) or a `%` without meaning,
    /// or when singular and plural do not fit together.
    pub fn new(msgctxt: Option<&str>, msgid: &str, plural: Option<Plural<'_>>) -> Result<Self, TemplateError> {
        if let Some(context) = msgctxt {
            check_characters(context)?;
        }
        let singular = source_text(msgid)?;
        let mut required: BTreeSet<_> = singular.placeholders().into_iter().map(str::to_owned).collect();
        let plural = plural
            .map(|plural| {
                let text = plural_text(msgid, &singular, plural)?;
                required.extend(text.text.placeholders().into_iter().map(str::to_owned));
                required.insert(text.count.clone());
                Ok::<_, TemplateError>(text)
            })
            .transpose()?;
        if required.len() > PARAM_COUNT_MAX {
            return Err(TemplateError::TooManyPlaceholders { count: required.len() });
        }
        let key = Key { msgctxt: msgctxt.map(str::to_owned), msgid: msgid.to_owned() };
        Ok(Self { key, singular, plural, required })
    }

    /// The context.
    pub fn msgctxt(&self) -> Option<&str> {
        self.key.msgctxt.as_deref()
    }

    /// The source text. With a plural, the text for the number one.
    pub fn msgid(&self) -> &str {
        &self.key.msgid
    }

    /// The source text for numbers other than one.
    pub fn msgid_plural(&self) -> Option<&str> {
        self.plural.as_ref().map(|plural| plural.msgid_plural.as_str())
    }

    /// The parameter that chooses the plural form.
    pub fn count(&self) -> Option<&str> {
        self.plural.as_ref().map(|plural| plural.count.as_str())
    }

    /// The parameters that an event must have, in alphabetical order: every placeholder, and the count even if no text
    /// shows it.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.required.iter().map(String::as_str)
    }

    /// The parameters that are missing.
    pub fn missing<'a>(&'a self, params: &'a BTreeMap<String, ParamValue>) -> impl Iterator<Item = &'a str> {
        self.placeholders().filter(|name| !params.contains_key(*name))
    }

    /// Checks that the parameters fit the template. Then rendering in any locale cannot fail. Further parameters are
    /// allowed.
    ///
    /// # Errors
    /// When a parameter is missing, the count is not a whole number, or a typed value names a time zone that does not
    /// exist.
    pub fn check_params(&self, params: &BTreeMap<String, ParamValue>) -> Result<(), RenderError> {
        if let Some(name) = self.missing(params).next() {
            return Err(RenderError::MissingParam { name: name.to_owned() });
        }
        for name in self.placeholders() {
            if let Some(ParamValue::Typed(value)) = params.get(name) {
                check_value(value).map_err(|problem| RenderError::Value { name: name.to_owned(), problem })?;
            }
        }
        self.counted(params).map(|_| ())
    }

    /// The number that chooses the plural form: the absolute value of the count, as in CLDR, or 1 without plural.
    pub(crate) fn counted(&self, params: &BTreeMap<String, ParamValue>) -> Result<u64, RenderError> {
        let Some(name) = self.count() else { return Ok(1) };
        match params.get(name) {
            Some(ParamValue::Integer(number)) => Ok(number.unsigned_abs()),
            Some(ParamValue::Typed(TypedValue::Number { number: Number::Integer(number), .. })) => {
                Ok(number.unsigned_abs())
            }
            Some(_) => Err(RenderError::CountNotInteger { name: name.to_owned() }),
            None => Err(RenderError::MissingParam { name: name.to_owned() }),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn source(&self, n: u64) -> &Text {
        match &self.plural {
            Some(plural) if n != 1 => &plural.text,
            _ => &self.singular,
        }
    }
}

fn plural_text(msgid: &str, singular: &Text, plural: Plural<'_>) -> Result<PluralText, TemplateError> {
    let Plural { msgid_plural, count } = plural;
    if !is_name(count) {
        return Err(TemplateError::CountName { name: count.chars().take(64).collect() });
    }
    let text = source_text(msgid_plural)?;
    let (one, other) = (singular.placeholders(), text.placeholders());
    if let Some(name) = one.difference(&other).next() {
        return Err(TemplateError::OneSided { name: (*name).to_owned(), plural: false });
    }
    if let Some(name) = other.difference(&one).find(|name| **name != count) {
        return Err(TemplateError::OneSided { name: (*name).to_owned(), plural: true });
    }
    if edges(msgid) != edges(msgid_plural) {
        return Err(TemplateError::Newline);
    }
    Ok(PluralText { msgid_plural: msgid_plural.to_owned(), text, count: count.to_owned() })
}

fn source_text(text: &str) -> Result<Text, TemplateError> {
    if text.is_empty() {
        return Err(TemplateError::Empty);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(TemplateError::TooLong { bytes: text.len() });
    }
    check_characters(text)?;
    Ok(Text::parse(text)?)
}

fn check_characters(text: &str) -> Result<(), TemplateError> {
    let control = |character: &char| character.is_control() && !matches!(character, '\n' | '\t');
    match text.chars().find(control) {
        Some(character) => Err(TemplateError::Control { character }),
        None => Ok(()),
    }
}

/// Whether a text begins and whether it ends with a newline. Source text and translation must agree in both.
pub(crate) fn edges(text: &str) -> (bool, bool) {
    (text.starts_with('\n'), text.ends_with('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plural<'a>(msgid: &str, msgid_plural: &'a str, count: &'a str) -> Result<Template, TemplateError> {
        Template::new(None, msgid, Some(Plural { msgid_plural, count }))
    }

    #[test]
    fn only_the_count_may_be_left_out_of_the_singular() {
        let template = plural("One goal for %{team}", "%{goals} goals for %{team}", "goals").unwrap();
        assert_eq!(template.placeholders().collect::<Vec<_>>(), ["goals", "team"]);
        assert_eq!(
            plural("A goal", "Goals for %{team}", "goals"),
            Err(TemplateError::OneSided { name: "team".into(), plural: true })
        );
        assert_eq!(
            plural("A goal for %{team}", "%{goals} goals", "goals"),
            Err(TemplateError::OneSided { name: "team".into(), plural: false })
        );
    }

    #[test]
    fn missing_and_wrong_parameters_are_named() {
        let template = plural("Goal for %{team}!", "Goals for %{team}!", "goals").unwrap();
        let mut params = BTreeMap::new();
        assert_eq!(template.missing(&params).collect::<Vec<_>>(), ["goals", "team"]);
        params.insert("team".to_owned(), ParamValue::Text("Vega".into()));
        let error = template.check_params(&params).unwrap_err();
        assert_eq!(error.to_string(), "the parameter \"goals\" is missing");
        for wrong in [ParamValue::Decimal(2.0), ParamValue::Text("2".into())] {
            params.insert("goals".to_owned(), wrong);
            assert_eq!(template.check_params(&params), Err(RenderError::CountNotInteger { name: "goals".into() }));
        }
        params.insert("goals".to_owned(), ParamValue::Integer(-1));
        params.insert("unused".to_owned(), ParamValue::Integer(0));
        assert_eq!(template.check_params(&params), Ok(()));
        assert_eq!(template.counted(&params), Ok(1), "minus one takes the form of one");
    }

    #[test]
    fn an_invalid_source_text_is_refused() {
        let many: String = (0..=PARAM_COUNT_MAX).map(|index| format!("%{{p{index}}}")).collect();
        let template = |text: &str| Template::new(None, text, None).unwrap_err();
        assert_eq!(template(""), TemplateError::Empty);
        assert_eq!(template(&"x".repeat(4097)), TemplateError::TooLong { bytes: 4097 });
        assert_eq!(template("a\0"), TemplateError::Control { character: '\0' });
        assert_eq!(template(&many), TemplateError::TooManyPlaceholders { count: 33 });
        assert!(matches!(template("50 % of"), TemplateError::Placeholder(_)));
        assert!(Template::new(Some("a\u{4}b"), "x", None).is_err());
        assert_eq!(plural("a\n", "b", "n"), Err(TemplateError::Newline));
        assert_eq!(plural("a", "b", "n o"), Err(TemplateError::CountName { name: "n o".into() }));
    }
}
