//! The source text of one message.
//!
//! The configuration has the templates, and translators see them. The msgid and the context are the key of the translation
//! in a catalogue. A template knows which parameters an event must have.
//!
//! A template may *select* by a parameter, for example by the gender of a person or the case of a name. For each value of
//! the parameter, translators see the message once more, with the context `CONTEXT|VALUE`, and may translate it in another
//! way. The source text may have a text of its own for a value, too.

use std::collections::{BTreeMap, BTreeSet};

use tidings_types::event_limits::PARAM_COUNT_MAX;
use tidings_types::{Number, ParamValue, TypedValue};

use crate::error::{RenderError, TemplateError};
use crate::format::check_value;
use crate::limits::{TEXT_BYTES_MAX, VALUE_BYTES_MAX, VALUE_COUNT_MAX};
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

/// The source text for one value of the parameter that a template selects by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceText<'a> {
    /// The text. With a plural, the text for the number one.
    pub msgid: &'a str,
    /// The text for other numbers, if the template has a plural.
    pub msgid_plural: Option<&'a str>,
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
    select: Option<Select>,
}

/// What a template selects by. Its templates select by nothing, and need the same parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Select {
    parameter: String,
    /// By value.
    templates: BTreeMap<String, Template>,
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
        Ok(Self { key, singular, plural, required, select: None })
    }

    /// The same message with another text for each of these values of a parameter. A value without a source text of its own
    /// has that of the message.
    ///
    /// # Errors
    /// When a name or a value is not allowed, or the text of a value has other placeholders than the message.
    pub fn select<'a>(
        self,
        parameter: &str,
        values: impl IntoIterator<Item = (&'a str, Option<SourceText<'a>>)>,
    ) -> Result<Self, TemplateError> {
        if !is_name(parameter) {
            return Err(TemplateError::SelectName { name: parameter.chars().take(64).collect() });
        }
        let template = |(value, text): (&str, _)| Ok((value.to_owned(), self.for_value(value, text)?));
        let templates: BTreeMap<_, _> = values.into_iter().map(template).collect::<Result<_, TemplateError>>()?;
        if templates.len() > VALUE_COUNT_MAX {
            return Err(TemplateError::TooManyValues { count: templates.len() });
        }
        Ok(Self { select: Some(Select { parameter: parameter.to_owned(), templates }), ..self })
    }

    fn for_value(&self, value: &str, text: Option<SourceText<'_>>) -> Result<Self, TemplateError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=VALUE_BYTES_MAX).contains(&value.len()) || !value.bytes().all(plain) {
            return Err(TemplateError::ValueName { value: value.chars().take(64).collect() });
        }
        let own = SourceText { msgid: self.msgid(), msgid_plural: self.msgid_plural() };
        let SourceText { msgid, msgid_plural } = text.unwrap_or(own);
        let differs = |name: &str| TemplateError::ValueDiffers { value: value.to_owned(), name: name.to_owned() };
        if msgid_plural.is_some() != self.plural.is_some() {
            return Err(TemplateError::ValuePlural { value: value.to_owned() });
        }
        let plural = msgid_plural.zip(self.count()).map(|(msgid_plural, count)| Plural { msgid_plural, count });
        let context = format!("{}|{value}", self.msgctxt().unwrap_or_default());
        let template = Self::new(Some(&context), msgid, plural)?;
        match template.required.symmetric_difference(&self.required).next() {
            Some(name) => Err(differs(name)),
            None => Ok(template),
        }
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

    /// The parameter that the template selects by.
    pub fn selects_by(&self) -> Option<&str> {
        self.select.as_ref().map(|select| select.parameter.as_str())
    }

    /// The values that the template selects by, in alphabetical order, and the template of each.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Self)> {
        let values = self.select.iter().flat_map(|select| &select.templates);
        values.map(|(value, template)| (value.as_str(), template))
    }

    /// The template for the value of these parameters. `None`: the template selects by nothing, or the parameter is missing
    /// or has none of the values. Then the template itself is the text.
    pub(crate) fn selected(&self, params: &BTreeMap<String, ParamValue>) -> Option<&Self> {
        let Select { parameter, templates } = self.select.as_ref()?;
        match params.get(parameter)? {
            ParamValue::Text(value) => templates.get(value),
            _ => None,
        }
    }

    /// Whether a template with the same key has the same translations: the same plural, and the same count.
    pub(crate) fn is_translated_as(&self, other: &Self) -> bool {
        self.plural == other.plural
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
