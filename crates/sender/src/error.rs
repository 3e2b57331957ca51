//! Why the sender cannot start, and why an event cannot be rendered. After the start the sender returns no errors: it
//! retries what it cannot do now, and logs it.

use tidings_gettext::{RenderError, TemplateError, ValueProblem};
use tidings_jobs::RowError;
use tidings_push::payload::PatchError;
use tidings_store::ReadError;
use tidings_types::{AppId, Environment, JournalPosition, Locale, Provider, TopicName};

/// The sender could not start. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of its range.
    #[error("{field} must be 1 to {max}, got {value}")]
    Config {
        /// The setting.
        field: &'static str,
        /// The largest value.
        max: usize,
        /// What was given.
        value: usize,
    },
    /// A percentage above 100.
    #[error("shadow.percent must be 0 to 100, got {value}")]
    Percent {
        /// What was given.
        value: u8,
    },
    /// Two pools for the same devices: the choice would be ambiguous.
    #[error("the app {app} ({environment:?}) is in two pools: {first} and {second}")]
    PoolOverlap {
        /// The app.
        app: AppId,
        /// Its environment.
        environment: Environment,
        /// One pool's name.
        first: String,
        /// The other pool's name.
        second: String,
    },
    /// The jobs could not be read.
    #[error("cannot read the jobs")]
    Read(#[from] ReadError),
    /// A job's row cannot be read.
    #[error(transparent)]
    Row(#[from] RowError),
    /// A job that is not finished has lost its event.
    #[error("job {} is not finished, but its event is not in the journal", .0.0)]
    EventMissing(JournalPosition),
    /// No thread or runtime.
    #[error("cannot start the sender's thread")]
    Thread(#[source] std::io::Error),
}

/// An event for which no notification can be made. The text begins with the wrong field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// No such topic.
    #[error("topic: {topic} is not configured{}", hint(.nearest))]
    UnknownTopic {
        /// The event's topic.
        topic: TopicName,
        /// The configured topic with the most similar name, if any is similar.
        nearest: Option<TopicName>,
    },
    /// The event has its own texts, but not for every language, and its topic has none.
    #[error(
        "text: has no text for other languages than its own: add one as \"und\", or configure the topic {topic}{}",
        hint(.nearest)
    )]
    OthersUntold {
        /// The topic that is not configured.
        topic: TopicName,
        /// The configured topic with the most similar name, if any is similar.
        nearest: Option<TopicName>,
    },
    /// The topic is not told in this language.
    #[error("topic: {topic} is not told in languages without a whole translation (`missing = \"skip\"`)")]
    Untold {
        /// The event's topic.
        topic: TopicName,
    },
    /// A text of the event is not a valid template.
    #[error("text: the {part} for locale {locale}: {problem}")]
    OwnText {
        /// Its language.
        locale: Locale,
        /// `title` or `body`.
        part: &'static str,
        /// What is wrong.
        problem: TemplateError,
    },
    /// A parameter that the texts need is missing.
    #[error("params: {name} is missing")]
    MissingParam {
        /// Its name.
        name: String,
    },
    /// A parameter that chooses the plural form is not a whole number.
    #[error("params: {name} chooses a plural form and must be a whole number")]
    CountNotInteger {
        /// Its name.
        name: String,
    },
    /// A typed parameter cannot be shown.
    #[error("params: {name}: {problem}")]
    Value {
        /// Its name.
        name: String,
        /// Why.
        problem: ValueProblem,
    },
    /// The provider takes no notification of this size.
    #[error("{field}: the {provider} notification {} would have {bytes} bytes, limit {limit}", language(.locale))]
    TooLarge {
        /// Whose limit it is.
        provider: Provider,
        /// The field that is too large.
        field: &'static str,
        /// In which language; `None` is the source language of the topic.
        locale: Option<Locale>,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The patch for the payload is not valid, or leaves nothing to send.
    #[error("{}: {problem}", patched_field(*.provider, .problem))]
    Patch {
        /// Whose payload.
        provider: Provider,
        /// What is wrong.
        problem: PatchError,
    },
}

impl TopicError {
    /// The event's field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::UnknownTopic { .. } | Self::Untold { .. } => "topic",
            Self::OthersUntold { .. } | Self::OwnText { .. } => "text",
            Self::MissingParam { .. } | Self::CountNotInteger { .. } | Self::Value { .. } => "params",
            Self::TooLarge { field, .. } => field,
            Self::Patch { provider, problem } => patched_field(*provider, problem),
        }
    }
}

impl From<RenderError> for TopicError {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::MissingParam { name } => Self::MissingParam { name },
            RenderError::CountNotInteger { name } => Self::CountNotInteger { name },
            RenderError::Value { name, problem } => Self::Value { name, problem },
        }
    }
}

fn hint(nearest: &Option<TopicName>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(", did you mean {name}?"))
}

fn language(locale: &Option<Locale>) -> String {
    locale.as_ref().map_or_else(|| "in the source language".to_owned(), |locale| format!("for locale {locale}"))
}

fn patched_field(provider: Provider, problem: &PatchError) -> &'static str {
    match (provider, problem) {
        (Provider::Apns, PatchError::Tidings) => "payload.apns.tidings",
        _ => payload_field(provider),
    }
}

/// The event's field with the producer's patch for a provider.
pub(crate) fn payload_field(provider: Provider) -> &'static str {
    match provider {
        Provider::Apns => "payload.apns",
        Provider::Fcm => "payload.fcm",
        Provider::WebPush => "payload.webpush",
    }
}
