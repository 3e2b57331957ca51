//! Reads topics from the configuration, and translations from the folder beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidings_api::{CheckError, Configured, EventCheck};
use tidings_gettext::limits::FILE_BYTES_MAX;
use tidings_gettext::{Catalogue, PoError, Template, TemplateError, Translations, is_language};
use tidings_intake::open_within;
use tidings_sender::{CurrentTopics, NAMES, TopicTemplates, Topics};
use tidings_types::{AppId, Environment, Event, EventChannels, Locale, Provider, TopicName};
use tracing::warn;

use tidings_config::{Config, Missing, Topic};

/// The most bytes of all catalogues together. They are all in memory while texts are read.
const CATALOGUES_BYTES_MAX: usize = 256 << 20;

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
    topics: Arc<CurrentTopics>,
    /// The apps whose devices can be pushed.
    served: BTreeSet<(Provider, Environment, AppId)>,
}

impl Door {
    pub(super) fn new(topics: Arc<CurrentTopics>, config: &Config) -> Self {
        let served = config.push_sections().flat_map(|section| {
            section.apps.iter().map(move |app| (section.provider, section.environment, app.clone()))
        });
        Self { topics, served: served.collect() }
    }
}

impl EventCheck for Door {
    fn check(&self, event: &Event) -> Result<(), CheckError> {
        self.topics.get().check(event).map_err(|error| CheckError::new(error.field(), &error.to_string()))
    }
}

impl Configured for Door {
    fn untranslated(&self, event: &Event) -> Vec<Locale> {
        self.topics.get().untranslated_of(event)
    }

    fn plain_moments(&self, event: &Event) -> Vec<String> {
        self.topics.get().plain_moments(event).map(str::to_owned).collect()
    }

    fn unknown_value(&self, event: &Event) -> Option<(String, Vec<String>)> {
        let topics = self.topics.get();
        let (name, values) = topics.unselected(event).filter(|(name, _)| event.params.contains_key(*name))?;
        Some((name.to_owned(), values.into_iter().map(str::to_owned).collect()))
    }

    fn knows_topic(&self, topic: &TopicName) -> bool {
        let topics = self.topics.get();
        topics.has(topic) || topics.names().next().is_none()
    }

    fn knows_language(&self, locale: &Locale) -> bool {
        is_language(locale) || self.topics.get().has_catalogue(locale)
    }

    fn serves(&self, app: &AppId, provider: Provider, environment: Environment) -> bool {
        self.served.contains(&(provider, environment, app.clone()))
    }
}

/// Reads topics and translations.
///
/// # Errors
/// The first thing that is wrong.
pub fn topics(config: &Config) -> Result<Topics, TextError> {
    let (topics, faults) = topics_and_faults(config);
    faults.into_iter().next().map_or(Ok(topics), Err)
}

/// Reads topics and translations. What is wrong is left out, and told beside.
pub fn topics_and_faults(config: &Config) -> (Topics, Vec<TextError>) {
    let mut faults = Vec::new();
    (Source::read(config, &mut faults).build(&Limits::of(config), &mut faults), faults)
}

/// What a notification must have room for. Pools and channels change only at a restart, so a reload of texts keeps these.
pub(super) struct Limits {
    providers: Vec<Provider>,
    channels: EventChannels,
}

impl Limits {
    pub(super) fn of(config: &Config) -> Self {
        let providers = [
            (Provider::Apns, config.apns.is_empty()),
            (Provider::Fcm, config.fcm.is_empty()),
            (Provider::WebPush, config.web_push.is_empty()),
        ];
        let configured = providers.into_iter().filter(|(_, is_absent)| !is_absent).map(|(provider, _)| provider);
        Self { providers: configured.collect(), channels: config.events.channels }
    }
}

/// Topics, and the files with their translations.
pub(super) struct Source {
    pub(super) topics: BTreeMap<TopicName, Topic>,
    /// The language in which the topics are written.
    pub(super) source_locale: Option<Locale>,
    pub(super) files: Vec<File>,
}

/// A PO file.
pub(super) struct File {
    pub(super) domain: String,
    pub(super) locale: Locale,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl Source {
    /// Reads `<locale>/LC_MESSAGES/<domain>.po` of every locale and domain that has one. What cannot be read is left out,
    /// and is among the faults. A folder whose name is not a locale is skipped with a warning. Beyond
    /// [`CATALOGUES_BYTES_MAX`] nothing more is read.
    pub(super) fn read(config: &Config, faults: &mut Vec<TextError>) -> Self {
        let source_locale = config.translations.source_locale.clone();
        let mut source = Self { topics: config.topics.clone(), source_locale, files: Vec::new() };
        let Some(dir) = &config.translations.dir else { return source };
        let domains = source.topics.values().map(|topic| topic.domain.clone()).chain([NAMES.to_owned()]);
        let domains: BTreeSet<String> = domains.collect();
        let unreadable = |path: &Path, source| TextError::Unreadable { path: path.to_owned(), source };
        let folders = std::fs::read_dir(dir).and_then(|all| all.map(|entry| Ok(entry?.path())).collect());
        let mut folders: Vec<PathBuf> = folders.unwrap_or_else(|error| {
            faults.push(unreadable(dir, error));
            Vec::new()
        });
        folders.sort();
        for folder in folders {
            let paths = domains.iter().map(|domain| (domain, folder.join("LC_MESSAGES").join(format!("{domain}.po"))));
            let mut paths = paths.map(|(domain, path)| (domain.clone(), path));
            let Ok(locale) = Locale::new(&folder.file_name().unwrap_or_default().to_string_lossy()) else {
                if paths.any(|(_, path)| path.is_file()) {
                    warn!(path = %folder.display(), "The name of a translation folder is not a locale");
                }
                continue;
            };
            for (domain, path) in paths {
                match read_catalogue(dir, &folder, &path) {
                    Ok(None) => {}
                    Ok(Some(bytes)) => source.files.push(File { domain, locale: locale.clone(), path, bytes }),
                    Err(error) => faults.push(unreadable(&path, error)),
                }
                if source.files.iter().map(|file| file.bytes.len()).sum::<usize>() > CATALOGUES_BYTES_MAX {
                    let dir = dir.display();
                    let told =
                        format!("the catalogues in {dir} have more than {CATALOGUES_BYTES_MAX} bytes, the limit");
                    faults.push(TextError::Flawed(told));
                    return source;
                }
            }
        }
        source
    }

    /// The topics, ready to be used. What is wrong is left out, and is among the faults.
    pub(super) fn build(&self, limits: &Limits, faults: &mut Vec<TextError>) -> Topics {
        let mut templates = BTreeMap::new();
        for (name, topic) in &self.topics {
            match topic_templates(topic, self.source_locale.as_ref()) {
                Ok(read) => drop(templates.insert(name.clone(), read)),
                Err(source) => faults.push(TextError::Template { topic: name.clone(), source }),
            }
        }
        let domains: BTreeSet<&String> = self.files.iter().map(|file| &file.domain).collect();
        let mut translations = BTreeMap::new();
        for domain in domains {
            let of_domain = templates.values().filter(|topic: &&TopicTemplates| topic.domain == **domain);
            let of_domain: Vec<&Template> = of_domain.flat_map(|topic| [&topic.title, &topic.body]).collect();
            translations.insert(domain.clone(), self.translations(domain, &of_domain, faults));
        }
        Topics::new(templates, translations)
            .for_providers(limits.providers.iter().copied())
            .publishing_in(limits.channels)
    }

    /// The translations of a domain, without the files that are wrong.
    fn translations(&self, domain: &str, templates: &[&Template], faults: &mut Vec<TextError>) -> Translations {
        let mut flawed: BTreeSet<Locale> = BTreeSet::new();
        let files = || self.files.iter().filter(|file| file.domain == domain);
        for file in files() {
            if let Err(source) = Catalogue::parse(&file.bytes) {
                faults.push(TextError::Catalogue { path: file.path.clone(), source });
                flawed.insert(file.locale.clone());
            }
        }
        let without = |flawed: &BTreeSet<Locale>| {
            let right = files().filter(|file| !flawed.contains(&file.locale));
            let read = right.filter_map(|file| Some((file.locale.clone(), Catalogue::parse(&file.bytes).ok()?)));
            Translations::new(read.collect::<Vec<_>>())
        };
        let all = without(&flawed);
        let problems = all.check(templates.iter().copied());
        if problems.is_empty() {
            return all;
        }
        let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
        let told = format!("{} wrong translations of domain {domain}{}", problems.len(), lines.concat());
        faults.push(TextError::Flawed(told));
        flawed.extend(problems.into_iter().map(|problem| problem.locale));
        without(&flawed)
    }
}

/// The bytes of a catalogue, or a few more than it may have; `None` if there is none. What is there but cannot be read,
/// such as a link to nothing, is an error: else a language would be lost without a word.
fn read_catalogue(dir: &Path, folder: &Path, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open_within(dir, path.strip_prefix(dir).expect("the folder is in `dir`")) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let parts = path.ancestors().take_while(|part| part.starts_with(folder));
            let is_broken = |part: &Path| part.symlink_metadata().is_ok() && part.metadata().is_err();
            return if parts.into_iter().any(is_broken) { Err(error) } else { Ok(None) };
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn topic_templates(topic: &Topic, source_locale: Option<&Locale>) -> Result<TopicTemplates, TemplateError> {
    Ok(TopicTemplates {
        title: topic.title_template()?,
        body: topic.body_template()?,
        domain: topic.domain.clone(),
        present: topic.present.to_present(),
        told_only_in: source_locale.filter(|_| topic.missing == Missing::Skip).cloned(),
    })
}
