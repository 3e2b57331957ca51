//! The texts in force: topics and translations that were read together. They are replaced as a whole or not at all.
//!
//! ```text
//!   start, reload ──► read ──► right? ── yes ──► in force, and kept in the data folder
//!                                 └───── no ───► those before stay (at a start: the ones that were kept)
//! ```
//!
//! A fault is an error in the log, the metric `tidings_texts_faulty`, and a line of `/health`, until texts that are right
//! are read. Without any that were kept, a start leaves out what is wrong: events of these topics are refused, and these
//! languages get the source text.
//!
//! Jobs that have begun stay with the texts that they began with.
//!
//! Bound: texts of more than [`KEPT_BYTES_MAX`] are not kept.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidings_api::{Coverage, Rfc3339, TextsView};
use tidings_config::{Config, ConfigError, Problem, topics_toml};
use tidings_sender::{CurrentTopics, Topics};
use tidings_telemetry::panics::lock;
use tidings_telemetry::{Gauge, Registry, chain, metrics, unix_now};
use tidings_types::{Locale, Timestamp, TopicName};
use tracing::{error, info, warn};

use crate::live_texts::LiveTexts;
use crate::text::{File, Limits, Source, TextError};

/// The most bytes of the file in which texts are kept.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// The file, in the data folder.
pub(crate) const KEPT_TEXTS_FILE: &str = "last-good-texts.json";
/// The ending of the file with those before, for a rollback.
const BEFORE_ENDING: &str = "before";
/// Faults that are logged and kept.
const FAULT_COUNT_MAX: usize = 20;

/// Topics without a translation that are named, of each language.
const MISSING_COUNT_MAX: usize = 50;

/// Reads the configuration again: also what is wrong with the topics that it lacks.
pub type Loader = Arc<dyn Fn() -> Result<(Config, Vec<Problem>), ConfigError> + Send + Sync>;

/// The texts in force.
pub(crate) struct Texts {
    current: Arc<CurrentTopics>,
    live: Arc<LiveTexts>,
    file: PathBuf,
    faulty: Gauge,
    limits: Limits,
    /// Held while texts are read, so that of two reloads the later one stays.
    turn: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// Those in force lack what was wrong when the server started.
    is_partial: bool,
    /// Those before, and their hash; only if they were whole.
    before: Option<(Arc<Topics>, Option<u64>)>,
    /// Of the sources of those in force; `None`: those are not what was read.
    hash: Option<u64>,
    since: Timestamp,
    /// What is wrong with the texts that were read last.
    faults: Vec<String>,
}

/// Texts as they are kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    topics: String,
    catalogues: Vec<KeptCatalogue>,
}

#[derive(Serialize, Deserialize)]
struct KeptCatalogue {
    domain: String,
    locale: Locale,
    po: String,
}

impl Kept {
    /// `None`: a file is no text, so it is no catalogue either.
    fn of(source: &Source) -> Option<Self> {
        let catalogue = |file: &File| {
            let po = String::from_utf8(file.bytes.clone()).ok()?;
            Some(KeptCatalogue { domain: file.domain.clone(), locale: file.locale.clone(), po })
        };
        let catalogues = source.files.iter().map(catalogue).collect::<Option<_>>()?;
        Some(Self { topics: topics_toml(&source.topics, source.source_locale.as_ref()), catalogues })
    }

    fn into_source(self, file: &Path) -> Option<Source> {
        let Config { topics, translations, .. } = tidings_config::parse(KEPT_TEXTS_FILE, &self.topics, []).ok()?.config;
        let files = self.catalogues.into_iter().map(|KeptCatalogue { domain, locale, po }| {
            let path = file.join(locale.as_str()).join(format!("{domain}.po"));
            File { domain, locale, path, bytes: po.into_bytes() }
        });
        Some(Source { topics, source_locale: translations.source_locale, files: files.collect() })
    }
}

impl Texts {
    /// Reads the texts. `wrong`: what is wrong with topics that the configuration therefore lacks. Returns also what
    /// [`Texts::keep`] keeps once the data folder is this server's alone; `None` if something is wrong.
    pub(crate) fn start(config: &Config, wrong: &[Problem], registry: &Registry) -> (Self, Option<Source>) {
        let (mut faults, file) = (Vec::new(), config.data_dir.join(KEPT_TEXTS_FILE));
        let limits = Limits::of(config);
        let source = Source::read(config, &mut faults);
        let mut topics = source.build(&limits, &mut faults);
        let faults = tell(wrong, &faults);
        let mut is_partial = false;
        if !faults.is_empty() {
            match last_good(&file, &limits) {
                Ok(last) => {
                    warn!(file = %file.display(), "The texts that were kept when they were last right are in force");
                    topics = last;
                }
                Err(error) => {
                    is_partial = true;
                    warn!(file = %file.display(), error = chain(&error), "No texts that were kept can be used");
                    warn!("Wrong topics and languages are left out: events are refused, or get the source text");
                }
            }
        }
        let current = Arc::new(CurrentTopics::new(Arc::new(topics)));
        let live = Arc::new(LiveTexts::new(current.clone(), &config.translations.live_locales));
        let faulty = registry.gauge(&metrics::server::TEXTS_FAULTY, &[]);
        faulty.set((!faults.is_empty()).into());
        let source = faults.is_empty().then_some(source);
        let hash = source.as_ref().map(hash_of);
        let state = Mutex::new(State { is_partial, before: None, hash, since: unix_now(), faults });
        (Self { current, live, file, faulty, limits, turn: Mutex::default(), state }, source)
    }

    /// Keeps texts that are right for a start with wrong ones.
    pub(crate) fn keep(&self, source: &Source) {
        if let Err(error) = write_kept(&self.file, source) {
            warn!(file = %self.file.display(), error = chain(&error), "Texts cannot be kept for a start with wrong ones");
        }
    }

    /// The topics in force.
    pub(crate) fn current(&self) -> Arc<CurrentTopics> {
        self.current.clone()
    }

    /// What writes the texts of live readers.
    pub(crate) fn live(&self) -> Arc<LiveTexts> {
        self.live.clone()
    }

    fn view(&self) -> TextsView {
        let (topics, state) = (self.current.get(), lock(&self.state));
        let languages: BTreeSet<Locale> = topics.languages().cloned().collect();
        let names: Vec<&TopicName> = topics.names().collect();
        let coverage = |locale: &Locale| {
            let lacks = |topic: &&&TopicName| topics.untranslated(topic).contains(locale);
            let missing: Vec<TopicName> = names.iter().filter(lacks).map(|topic| (*topic).clone()).collect();
            let translated = names.len() - missing.len();
            Coverage {
                locale: locale.clone(),
                translated,
                missing: missing.into_iter().take(MISSING_COUNT_MAX).collect(),
            }
        };
        TextsView {
            topics: names.len(),
            coverage: languages.iter().map(coverage).collect(),
            languages: languages.into_iter().collect(),
            since: Rfc3339(state.since),
            can_roll_back: state.before.is_some(),
            faults: state.faults.clone(),
        }
    }

    /// Whether the texts that were read last are wrong.
    pub(crate) fn is_faulty(&self) -> bool {
        !lock(&self.state).faults.is_empty()
    }

    /// Reads the configuration, and takes over its texts, or none of them. `None`: the configuration is wrong beyond its
    /// topics.
    pub(crate) fn reload(&self, load: &Loader) -> Option<Config> {
        let _turn = lock(&self.turn);
        match load() {
            Ok((config, wrong)) => {
                self.take_over(&config, &wrong);
                Some(config)
            }
            Err(error) => {
                error!(error = chain(&error), "Configuration is wrong, nothing is reloaded");
                self.faulty.set(1);
                lock(&self.state).faults = vec![chain(&error).to_string()];
                None
            }
        }
    }

    fn take_over(&self, config: &Config, wrong: &[Problem]) {
        let mut faults = Vec::new();
        let source = Source::read(config, &mut faults);
        let topics = source.build(&self.limits, &mut faults);
        let faults = tell(wrong, &faults);
        self.faulty.set((!faults.is_empty()).into());
        if !faults.is_empty() {
            lock(&self.state).faults = faults;
            return error!("Texts are wrong, those before stay in force");
        }
        let hash = Some(hash_of(&source));
        if hash != lock(&self.state).hash {
            self.keep_before();
        }
        self.keep(&source);
        let state = &mut *lock(&self.state);
        state.faults.clear();
        if hash == state.hash {
            self.live.learn(&config.translations.live_locales);
            return info!("Texts are the same");
        }
        let (topic_count, languages) = (topics.names().count(), topics.languages().count());
        let before = self.current.replace(Arc::new(topics));
        let hash_before = std::mem::replace(&mut state.hash, hash);
        state.before = (!std::mem::take(&mut state.is_partial)).then_some((before, hash_before));
        self.live.learn(&config.translations.live_locales);
        state.since = unix_now();
        info!(topics = topic_count, languages, "Texts replaced");
    }

    /// What is kept now is that before the next: it stays under another name. What cannot stay is gone after a rollback.
    fn keep_before(&self) {
        let before = self.file.with_extension(BEFORE_ENDING);
        let _ = fs::remove_file(&before);
        let _ = fs::hard_link(&self.file, &before);
    }

    /// Puts the texts before the last replacement in force, and keeps those; `false`: there are none. The next reload reads the
    /// files again. It waits for a reload that is under way.
    pub(crate) fn roll_back(&self) -> bool {
        let _turn = lock(&self.turn);
        let state = &mut *lock(&self.state);
        let Some((before, hash)) = state.before.take() else { return false };
        self.current.replace(before);
        (state.hash, state.since) = (hash, unix_now());
        if fs::rename(self.file.with_extension(BEFORE_ENDING), &self.file).is_err() {
            let _ = fs::remove_file(&self.file);
            warn!(file = %self.file.display(), "The texts in force are not kept for a start with wrong ones");
        }
        info!("Texts rolled back to those before the last reload");
        true
    }
}

/// Equal sources have equal hashes, in one process.
fn hash_of(source: &Source) -> u64 {
    let mut hasher = DefaultHasher::new();
    topics_toml(&source.topics, source.source_locale.as_ref()).hash(&mut hasher);
    for File { domain, locale, bytes, .. } in &source.files {
        (domain, locale.as_str(), bytes).hash(&mut hasher);
    }
    hasher.finish()
}

fn write_kept(file: &Path, source: &Source) -> io::Result<()> {
    let kept = Kept::of(source).and_then(|kept| serde_json::to_vec(&kept).ok()).unwrap_or_default();
    match kept.len() {
        0 => Err(io::Error::other("a catalogue is not UTF-8")),
        1..=KEPT_BYTES_MAX => replace_file(file, &kept),
        length => Err(io::Error::other(format!("they have {length} bytes, the limit is {KEPT_BYTES_MAX}"))),
    }
}

/// The texts as the API sees them.
pub(crate) struct TextDesk {
    pub(crate) texts: Arc<Texts>,
    pub(crate) load: Loader,
}

impl tidings_api::Texts for TextDesk {
    fn view(&self) -> TextsView {
        self.texts.view()
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = TextsView> + Send>> {
        let (texts, load) = (self.texts.clone(), self.load.clone());
        Box::pin(async move {
            let reloading = texts.clone();
            let reload = move || reloading.reload(&load).is_some();
            tokio::task::spawn_blocking(reload).await.expect("reading texts does not panic");
            texts.view()
        })
    }

    fn roll_back(&self) -> Pin<Box<dyn Future<Output = Option<TextsView>> + Send>> {
        let texts = self.texts.clone();
        Box::pin(async move {
            let rolling = texts.clone();
            let is_done = tokio::task::spawn_blocking(move || rolling.roll_back()).await.expect("it does not panic");
            is_done.then(|| texts.view())
        })
    }
}

/// Logs what is wrong. Returns the first faults.
fn tell(wrong: &[Problem], faults: &[TextError]) -> Vec<String> {
    let all = wrong.iter().map(ToString::to_string).chain(faults.iter().map(|fault| chain(fault).to_string()));
    let mut all: Vec<String> = all.collect();
    for fault in all.iter().take(FAULT_COUNT_MAX) {
        error!(fault, "A text is wrong");
    }
    if let Some(more @ 1..) = all.len().checked_sub(FAULT_COUNT_MAX) {
        error!(more, "More texts are wrong");
    }
    all.truncate(FAULT_COUNT_MAX);
    all
}

/// The texts that were kept, if they are still right.
fn last_good(file: &Path, limits: &Limits) -> io::Result<Topics> {
    let bytes = fs::read(file)?;
    let source = serde_json::from_slice::<Kept>(&bytes)?.into_source(file);
    let source = source.ok_or_else(|| io::Error::other("a topic in it is wrong"))?;
    let mut faults = Vec::new();
    let topics = source.build(limits, &mut faults);
    match faults.into_iter().next() {
        None => Ok(topics),
        Some(fault) => Err(io::Error::other(fault)),
    }
}

/// Writes the file beside and renames it, so that a crash leaves the old or the new one.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
