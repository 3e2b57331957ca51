//! Warnings: the request is accepted but probably wrong. The answer's `warnings` list them; with `strict=true` the
//! request is refused.
//!
//! Programs distinguish warnings by their type, so types are stable. `docs/problems.md` lists them, and a test
//! compares. An answer has at most [`COUNT_MAX`] warnings for one event or device; further ones are left out.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use serde::Serialize;
use tidings_types::{AppId, Environment, Event, Locale, Provider, TopicName};

use crate::input::shown;
use crate::problem::{Invalid, Kind as ProblemKind, Problem};
use crate::query::Params;

/// The beginning of each warning's type.
pub(crate) const TYPE_PREFIX: &str = "urn:tidings:warning:";

/// The most warnings for one event or device in an answer.
const COUNT_MAX: usize = 16;
/// The most languages that one warning names.
const LOCALE_COUNT_MAX: usize = 8;

/// The part of the configuration that events and devices should fit to. Must not wait.
pub trait Configured: Send + Sync {
    /// The languages that other topics are translated to, and this event is not.
    fn untranslated(&self, event: &Event) -> Vec<Locale>;

    /// The parameters that a text of the event shows and that are texts like `2026-11-24T20:45:00Z`.
    fn plain_moments(&self, event: &Event) -> Vec<String>;

    /// The parameter by which the event's topic selects its texts, and the values of it that the topic knows, if the event
    /// has the parameter with another value.
    fn unknown_value(&self, event: &Event) -> Option<(String, Vec<String>)>;

    /// Whether the topic is configured; true if no topic is configured, since there is nothing to compare with.
    fn knows_topic(&self, topic: &TopicName) -> bool;

    /// Whether the locale's language exists, or there are texts in it.
    fn knows_language(&self, locale: &Locale) -> bool;

    /// Whether a provider is configured to push to devices with this app.
    fn serves(&self, app: &AppId, provider: Provider, environment: Environment) -> bool;
}

/// The kind of warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Untranslated,
    NoChannel,
    UnknownTopic,
    UnservedApp,
    PlainMoment,
    UnknownValue,
    UnknownLocale,
}

impl Kind {
    /// All kinds in the order of their declaration.
    pub(crate) const ALL: [Self; 7] = [
        Self::Untranslated,
        Self::NoChannel,
        Self::UnknownTopic,
        Self::UnservedApp,
        Self::PlainMoment,
        Self::UnknownValue,
        Self::UnknownLocale,
    ];

    /// The last part of its type, and its meaning.
    pub(crate) const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Untranslated => {
                ("untranslated", "Some languages get the text of another one, or none if the topic skips them")
            }
            Self::NoChannel => ("no-channel", "The event is published live nowhere, or not for all of its subjects"),
            Self::UnknownTopic => ("unknown-topic", "No topic of that name is configured"),
            Self::UnservedApp => ("unserved-app", "Nothing is configured to push to the app"),
            Self::PlainMoment => ("plain-moment", "A moment is a text, so every language shows it as it is written"),
            Self::UnknownValue => {
                ("unknown-value", "The topic has no text for this value, so its text without a value is shown")
            }
            Self::UnknownLocale => ("unknown-locale", "The locale is of no language, so the device has none"),
        }
    }
}

/// One warning, as an answer shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Warning {
    r#type: String,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

/// The warnings of one event or device.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Warnings(Vec<Warning>);

impl Warnings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `rule` says what is wrong with the field.
    pub(crate) fn add(&mut self, kind: Kind, field: &str, rule: impl std::fmt::Display) {
        if self.0.len() < COUNT_MAX {
            let (r#type, detail) = (format!("{TYPE_PREFIX}{}", kind.parts().0), format!("{field}: {rule}"));
            self.0.push(Warning { r#type, detail, field: Some(field.to_owned()) });
        }
    }

    /// Warns if some languages get the event's text in another language, or not at all.
    pub(crate) fn note_untranslated(&mut self, configured: &dyn Configured, event: &Event, prefix: &str) {
        let locales = configured.untranslated(event);
        if locales.is_empty() {
            return;
        }
        let named: Vec<&str> = locales.iter().take(LOCALE_COUNT_MAX).map(Locale::as_str).collect();
        let more = locales.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let rule = format_args!("{} has no translation for {}{more}", event.topic, named.join(", ")).to_string();
        self.add(Kind::Untranslated, &format!("{prefix}topic"), rule);
    }

    /// Warns if a text shows a moment as programs write it.
    pub(crate) fn note_plain_moments(&mut self, configured: &dyn Configured, event: &Event, prefix: &str) {
        for name in configured.plain_moments(event) {
            let rule = "is shown as it is; as {\"datetime\": …} each language shows it in its own way";
            self.add(Kind::PlainMoment, &format!("{prefix}params.{name}"), rule);
        }
    }

    /// Warns if the topic selects its texts by a parameter, and the event has another value than those it knows.
    pub(crate) fn note_unknown_value(&mut self, configured: &dyn Configured, event: &Event, prefix: &str) {
        if let Some((name, values)) = configured.unknown_value(event) {
            let rule = format!(
                "{} has texts for the values {}, and shows the text without a value",
                event.topic,
                values.join(", ")
            );
            self.add(Kind::UnknownValue, &format!("{prefix}params.{name}"), rule);
        }
    }

    /// Refuses the request if there is a warning.
    ///
    /// # Errors
    /// The first warning, and how many more there are.
    pub(crate) fn refuse(&self) -> Result<(), Problem> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let more = match self.0.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let problem = Problem::new(ProblemKind::Strict, format!("{}{more}", first.detail));
        Err(match &first.field {
            Some(field) => problem.field(field),
            None => problem,
        })
    }
}

/// Whether a request with a warning is to be refused: `?strict=true`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strict(pub(crate) bool);

impl Strict {
    fn read(uri: &Uri) -> Result<Self, Invalid> {
        match Params::read(uri, &["strict"])?.take("strict").as_deref() {
            None | Some("false") => Ok(Self(false)),
            Some("true") => Ok(Self(true)),
            Some(other) => {
                let got = shown(other);
                Err(Invalid::new("strict", format_args!("must be true or false, got {got:?}")).value(got))
            }
        }
    }

    /// Accepts the warnings, or refuses the request.
    ///
    /// # Errors
    /// If there are warnings and the request is strict.
    pub(crate) fn admit(self, warnings: &Warnings) -> Result<(), Problem> {
        if self.0 { warnings.refuse() } else { Ok(()) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Strict {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::read(&parts.uri)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table of warnings.
    #[test]
    fn the_documented_warnings_are_those_there_are() {
        let text = include_str!("../../../docs/problems.md");
        let row = |line: &str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?.strip_prefix(TYPE_PREFIX)?.to_owned();
            Some((name, cells.next()?.to_owned()))
        };
        let documented: Vec<(String, String)> = text.lines().filter_map(row).collect();
        let known = Kind::ALL.map(|kind| {
            let (name, meaning) = kind.parts();
            (name.to_owned(), format!("{meaning}."))
        });
        assert_eq!(documented, known);
    }

    #[test]
    fn warnings_of_one_thing_are_bounded() {
        let mut warnings = Warnings::default();
        (0..100).for_each(|_| warnings.add(Kind::UnknownTopic, "subscriptions", "x"));
        assert_eq!(warnings.0.len(), COUNT_MAX);
    }
}
