//! What an operator can pause: the pushes of everything, of an app, of a topic, of a provider.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AppId, NameError, Provider, TopicName};

/// What a brake pauses. Its text, also its serde form: `everything`, `app:<id>`, `topic:<name>`, `provider:<name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BrakeScope {
    /// All pushes.
    Everything,
    /// The pushes to one app.
    App(AppId),
    /// The pushes of one kind of event.
    Topic(TopicName),
    /// The pushes through one provider.
    Provider(Provider),
}

impl fmt::Display for BrakeScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::App(app) => write!(f, "app:{app}"),
            Self::Topic(topic) => write!(f, "topic:{topic}"),
            Self::Provider(provider) => write!(f, "provider:{provider}"),
        }
    }
}

impl FromStr for BrakeScope {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once(':') {
            None if text == "everything" => Ok(Self::Everything),
            Some(("app", id)) => AppId::new(id).map(Self::App),
            Some(("topic", name)) => TopicName::new(name).map(Self::Topic),
            Some(("provider", name)) => name.parse().map(Self::Provider),
            _ => Err(NameError {
                what: "scope of a brake",
                rule: "must be everything, app:<id>, topic:<name> or provider:<name>",
                value: text.chars().take(64).collect(),
            }),
        }
    }
}

impl TryFrom<String> for BrakeScope {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<BrakeScope> for String {
    fn from(scope: BrakeScope) -> Self {
        scope.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_its_text() {
        for text in ["everything", "app:org.example.scores", "topic:goal", "provider:web_push"] {
            assert_eq!(text.parse::<BrakeScope>().unwrap().to_string(), text);
        }
        for text in ["", "all", "everything:", "app:", "app", "topic:a b", "provider:pigeon", "user:7"] {
            assert!(text.parse::<BrakeScope>().is_err(), "{text}");
        }
    }
}
