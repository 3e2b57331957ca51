//! Names that people and programs give to things. Each kind is a type of its own, so that they cannot be confused.
//!
//! Every name is checked when it is made, also by serde. Then it is immutable and shared: a clone is one atomic
//! addition. All names are visible ASCII without space or zero byte. So rows may end a name with a zero byte, and
//! notification ids may join two names with a space. A [`Locale`] is also normalised. Bounds: 255 bytes for a channel,
//! 128 for most, 64 for topics and collapse keys. A [`NameError`] has the rule and at most 64 characters of the name.
//!
//! Sources: BCP 47 (without extensions, variants and private use), ISO 3166-1, the IANA time zone database's rules for
//! names.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name that breaks its rule. The text has the kind of name, the rule with its limit, and the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {rule}, got {value:?}")]
pub struct NameError {
    /// The kind of name, for example "event id".
    pub what: &'static str,
    /// The rule, with the limit.
    pub rule: &'static str,
    /// The value, cut to 64 characters.
    pub value: String,
}

fn check(what: &'static str, rule: &'static str, value: &str, valid: impl Fn(&str) -> bool) -> Result<(), NameError> {
    if valid(value) {
        return Ok(());
    }
    Err(NameError { what, rule, value: value.chars().take(64).collect() })
}

fn visible_ascii(text: &str, bytes_max: usize) -> bool {
    !text.is_empty() && text.len() <= bytes_max && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Defines a shared, immutable string with a rule: the constructor checks it, serde goes through the constructor.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the rule.
            ///
            /// # Errors
            /// When the text breaks it.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check($what, $rule, text, $valid)?;
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// A named, ordered stream of publications. The text before the first `:` (after an optional `$`) is its namespace.
    ChannelName, "channel", "must be 1 to 255 visible ASCII characters", |text| visible_ascii(text, 255)
);
impl ChannelName {
    /// The namespace in a channel's name, and the rest of it; neither has the `$` of private channels.
    pub fn split(name: &str) -> (Option<&str>, &str) {
        let name = name.strip_prefix('$').unwrap_or(name);
        match name.split_once(':') {
            Some((namespace, rest)) => (Some(namespace), rest),
            None => (None, name),
        }
    }
}

name!(
    /// What an event or a subscription is about: `kind:key`, for example `team:42`.
    Subject, "subject", "must be kind:key, 3 to 128 visible ASCII characters, kind of a-z, 0-9, _ and -", |text| {
        visible_ascii(text, 128)
            && text.split_once(':').is_some_and(|(kind, key)| {
                let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
                !kind.is_empty() && !key.is_empty() && kind.bytes().all(letters)
            })
    }
);
name!(
    /// The kind of event about a subject, for example `goal`.
    TopicName, "topic", "must be 1 to 64 characters of a-z, 0-9, _ and -", |text| {
        visible_ascii(text, 64)
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-')
    }
);
name!(
    /// The producer's name for an event; the same id is the same event.
    EventId, "event id", "must be 1 to 128 visible ASCII characters", |text| visible_ascii(text, 128)
);
name!(
    /// The application's name for a device (an installation of the app).
    DeviceId, "device id", "must be 1 to 128 visible ASCII characters", |text| visible_ascii(text, 128)
);
name!(
    /// The application's name for a person.
    UserId, "user id", "must be 1 to 128 visible ASCII characters", |text| visible_ascii(text, 128)
);
name!(
    /// The name of an import of devices, under which it can be resumed.
    ImportName, "import name", "must be 1 to 64 visible ASCII characters", |text| visible_ascii(text, 64)
);
name!(
    /// The operator's name for a feed: a source of entries that become events.
    FeedName, "feed name", "must be 1 to 40 letters, digits, `_`, `-` and `.`", |text| {
        visible_ascii(text, 40)
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    }
);
name!(
    /// The app of a device: on Apple platforms the bundle id, which is the APNs topic.
    AppId, "app", "must be 1 to 128 visible ASCII characters", |text| visible_ascii(text, 128)
);
name!(
    /// A newer notification with the same key replaces an older one on a device.
    CollapseKey, "collapse key", "must be 1 to 64 visible ASCII characters", |text| visible_ascii(text, 64)
);
name!(
    /// A country as two letters (ISO 3166-1 alpha-2), for example `SE`.
    Country, "country", "must be two letters A-Z (ISO 3166-1)", |text| {
        text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase())
    }
);
name!(
    /// A time zone by its name in the IANA database: `Europe/Stockholm`, `Etc/GMT+5`, `UTC`. Only its syntax is
    /// checked, because the list of zones changes several times a year.
    TimeZone, "time zone", "must be an IANA name such as Europe/Stockholm, 1 to 64 characters", |text| {
        let part = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphabetic())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'-'))
        };
        text.len() <= 64 && text.split('/').all(part)
    }
);

/// A language as devices and catalogues name it: `pt`, `pt-BR`, `zh-Hant-TW` (BCP 47: language, script, region). On
/// input `_` and `-` are the same; the stored form has `-` and the usual letter case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Locale(Arc<str>);

impl Locale {
    /// Checks and normalises.
    ///
    /// # Errors
    /// When the text is not `language[-Script][-REGION]`.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let error = || NameError {
            what: "locale",
            rule: "must be a BCP 47 language, optionally with script and region, such as pt or pt-BR",
            value: text.chars().take(64).collect(),
        };
        let mut parts = text.split(['-', '_']);
        let language = parts.next().unwrap_or_default();
        if !(2..=3).contains(&language.len()) || !language.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(error());
        }
        let mut normal = language.to_ascii_lowercase();
        let mut part = parts.next();
        if let Some(script) = part.filter(|part| part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_alphabetic()))
        {
            normal.push('-');
            normal.push_str(&script[..1].to_ascii_uppercase());
            normal.push_str(&script[1..].to_ascii_lowercase());
            part = parts.next();
        }
        if let Some(region) = part {
            let letters = region.len() == 2 && region.bytes().all(|byte| byte.is_ascii_alphabetic());
            let digits = region.len() == 3 && region.bytes().all(|byte| byte.is_ascii_digit());
            if !letters && !digits {
                return Err(error());
            }
            normal.push('-');
            normal.push_str(&region.to_ascii_uppercase());
        }
        if parts.next().is_some() {
            return Err(error());
        }
        Ok(Self(normal.into()))
    }

    /// The normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This locale, then ever more general ones: `zh-Hant-TW`, `zh-Hant`, `zh`.
    pub fn fallbacks(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(&*self.0), |text| text.rfind('-').map(|end| &text[..end]))
    }
}

impl TryFrom<String> for Locale {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<Locale> for String {
    fn from(locale: Locale) -> Self {
        locale.as_str().to_owned()
    }
}

impl fmt::Display for Locale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Locale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_is_kept_in_its_normal_form() {
        for (text, normal) in [("pt_br", "pt-BR"), ("EN", "en"), ("zh_hant_tw", "zh-Hant-TW"), ("es-419", "es-419")] {
            assert_eq!(Locale::new(text).unwrap().as_str(), normal);
        }
        for text in ["", "e", "english", "pt-BRA", "pt-BR-x", "12", "zh-Hant-TW-9"] {
            assert!(Locale::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fallbacks_go_from_special_to_general() {
        let locale = Locale::new("zh-Hant-TW").unwrap();
        assert_eq!(locale.fallbacks().collect::<Vec<_>>(), ["zh-Hant-TW", "zh-Hant", "zh"]);
    }

    #[test]
    fn a_time_zone_is_spelt_as_iana_spells_them() {
        for text in ["UTC", "Europe/Stockholm", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "NZ-CHAT", "EST5EDT"] {
            assert_eq!(TimeZone::new(text).unwrap().as_str(), text);
        }
        for text in ["", "/", "Europe/", "/UTC", "+02:00", "../etc/passwd", "Europe Stockholm", "Å/Ä", &"x".repeat(65)]
        {
            assert!(TimeZone::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refused_name_tells_rule_and_value() {
        let error = Subject::new("Team 42").unwrap_err();
        assert_eq!(
            error.to_string(),
            "subject must be kind:key, 3 to 128 visible ASCII characters, kind of a-z, 0-9, _ and -, got \"Team 42\""
        );
        assert!(ChannelName::new(&"x".repeat(256)).is_err());
        assert!(TopicName::new("goal").is_ok());
    }
}
