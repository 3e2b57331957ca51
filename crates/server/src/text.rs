//! Reads topics from the configuration, and translations from the folder beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidings_api::{CheckError, Configured, EventCheck};
use tidings_gettext::{Catalogue, PoError, Template, TemplateError, Translations};
use tidings_sender::{NAMES, TopicTemplates, Topics};
use tidings_types::{AppId, Environment, Event, Locale, Provider, TopicName};
use tracing::warn;

use tidings_config::{Config, Topic};

/// Texts or translations are wrong.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A template of a topic.
    #[error("topic {topic} has a wrong text")]
    Template {
        /// Which topic.
        topic: TopicName,
        /// What is wrong.
        source: TemplateError,
    },
    /// The folder or a file in it cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A catalogue is not a PO file.
    #[error("{path} is not a PO file")]
    Catalogue {
        /// Which.
        path: PathBuf,
        /// Where and what.
        source: PoError,
    },
    /// Translations that do not match the source text.
    #[error("{0}")]
    Flawed(String),
}

/// Checks events and devices for the API before it accepts them.
pub(super) struct Door {
    topics: Arc<Topics>,
    /// The apps whose devices can be pushed.
    served: BTreeSet<(Provider, Environment, AppId)>,
}

impl Door {
    pub(super) fn new(topics: Arc<Topics>, config: &Config) -> Self {
        let served = config.push_sections().flat_map(|section| {
            section.apps.iter().map(move |app| (section.provider, section.environment, app.clone()))
        });
        Self { topics, served: served.collect() }
    }
}

impl EventCheck for Door {
    fn check(&self, event: &Event) -> Result<(), CheckError> {
        self.topics.check(event).map_err(|error| CheckError::new(error.field(), &error.to_string()))
    }
}

impl Configured for Door {
    fn untranslated(&self, event: &Event) -> Vec<Locale> {
        self.topics.untranslated_of(event)
    }

    fn plain_moments(&self, event: &Event) -> Vec<String> {
        self.topics.plain_moments(event).map(str::to_owned).collect()
    }

    fn knows_topic(&self, topic: &TopicName) -> bool {
        self.topics.has(topic) || self.topics.names().next().is_none()
    }

    fn serves(&self, app: &AppId, provider: Provider, environment: Environment) -> bool {
        self.served.contains(&(provider, environment, app.clone()))
    }
}

/// Reads topics and translations.
pub fn topics(config: &Config) -> Result<Topics, TextError> {
    let mut templates = BTreeMap::new();
    for (name, topic) in &config.topics {
        let read = topic_templates(topic).map_err(|source| TextError::Template { topic: name.clone(), source })?;
        templates.insert(name.clone(), read);
    }
    let mut translations = BTreeMap::new();
    if let Some(dir) = &config.translations.dir {
        let domains = templates.values().map(|topic| topic.domain.as_str()).chain([NAMES]);
        for domain in domains.collect::<BTreeSet<_>>() {
            let all = load(dir, domain)?;
            check(domain, &all, templates.values().filter(|topic| topic.domain == domain))?;
            translations.insert(domain.to_owned(), all);
        }
    }
    let providers = [
        (Provider::Apns, config.apns.is_empty()),
        (Provider::Fcm, config.fcm.is_empty()),
        (Provider::WebPush, config.web_push.is_empty()),
    ];
    let configured = providers.into_iter().filter(|(_, is_absent)| !is_absent).map(|(provider, _)| provider);
    Ok(Topics::new(templates, translations).for_providers(configured).publishing_in(config.events.channels))
}

fn topic_templates(topic: &Topic) -> Result<TopicTemplates, TemplateError> {
    Ok(TopicTemplates { title: topic.title_template()?, body: topic.body_template()?, domain: topic.domain.clone() })
}

/// Reads `<locale>/LC_MESSAGES/<domain>.po` of every locale that has one. A folder whose name is not a locale is
/// skipped with a warning.
fn load(dir: &Path, domain: &str) -> Result<Translations, TextError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| TextError::Unreadable { path, source }
    };
    let mut catalogues = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable(dir))? {
        let folder = entry.map_err(unreadable(dir))?.path();
        let path = folder.join("LC_MESSAGES").join(format!("{domain}.po"));
        if !path.is_file() {
            continue;
        }
        let Ok(locale) = Locale::new(&folder.file_name().unwrap_or_default().to_string_lossy()) else {
            warn!(path = %folder.display(), "The name of a translation folder is not a locale");
            continue;
        };
        let bytes = std::fs::read(&path).map_err(unreadable(&path))?;
        let catalogue = Catalogue::parse(&bytes).map_err(|source| TextError::Catalogue { path, source })?;
        catalogues.push((locale, catalogue));
    }
    Ok(Translations::new(catalogues))
}

fn check<'a>(
    domain: &str,
    translations: &Translations,
    topics: impl Iterator<Item = &'a TopicTemplates>,
) -> Result<(), TextError> {
    let templates: Vec<&Template> = topics.flat_map(|topic| [&topic.title, &topic.body]).collect();
    let problems = translations.check(templates);
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    Err(TextError::Flawed(format!("{} wrong translations of domain {domain}{}", problems.len(), lines.concat())))
}
