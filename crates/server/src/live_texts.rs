//! The texts of events for live readers, each in its language.
//!
//! A reader's language is one of a list: the languages that have catalogues, and those of `translations.live_locales`.
//! So clients cannot make the server write a text in more languages than its operator has named.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidings_hub::{LiveText, Localizer};
use tidings_sender::{CurrentTopics, TextIndex};
use tidings_telemetry::panics::lock;
use tidings_types::{Event, Language, Locale};

/// Writes the texts from the topics in force and their catalogues.
#[derive(Debug)]
pub(super) struct LiveTexts {
    topics: Arc<CurrentTopics>,
    known: Mutex<Known>,
}

/// The languages. A language keeps its number as long as the server runs, since readers have it.
#[derive(Debug)]
struct Known {
    /// In the order of their numbers. The first one is "no language": the source language, or an event's text for all others.
    locales: Vec<Locale>,
    languages: HashMap<String, Language>,
}

impl LiveTexts {
    pub(super) fn new(topics: Arc<CurrentTopics>, more: &[Locale]) -> Self {
        let none = Locale::new("und").expect("und is a language tag");
        let known = Known { locales: vec![none], languages: HashMap::new() };
        let live = Self { topics, known: Mutex::new(known) };
        live.learn(more);
        live
    }

    /// Gives numbers to the languages of the topics in force, and to `more`. Those that no number is left for get the source
    /// text.
    pub(super) fn learn(&self, more: &[Locale]) {
        let (topics, known) = (self.topics.get(), &mut *lock(&self.known));
        for locale in topics.languages().chain(more) {
            let Ok(next) = u8::try_from(known.locales.len()) else { break };
            known.languages.entry(locale.as_str().to_owned()).or_insert_with(|| {
                known.locales.push(locale.clone());
                Language(next)
            });
        }
    }
}

impl Localizer for LiveTexts {
    fn language(&self, locale: &Locale) -> Option<Language> {
        let known = lock(&self.known);
        locale.fallbacks().find_map(|tag| known.languages.get(tag).copied())
    }

    fn texts(&self, event: &Event, languages: &[Language]) -> Vec<Option<Arc<LiveText>>> {
        let (locales, none): (Vec<Locale>, Locale) = {
            let known = lock(&self.known);
            let of = |language: &Language| known.locales[usize::from(language.0)].clone();
            (languages.iter().map(of).collect(), known.locales[0].clone())
        };
        let topics = self.topics.get();
        let mut rendered: HashMap<TextIndex, Option<Arc<LiveText>>> = HashMap::new();
        let text = |index| {
            let ((title, body), locale) = topics.render(event, index).ok()?;
            Some(Arc::new(LiveText { title, body, locale: locale.filter(|locale| *locale != none) }))
        };
        let indexes = topics.text_indexes(event, &locales).into_iter();
        indexes.map(|index| rendered.entry(index).or_insert_with(|| text(index)).clone()).collect()
    }
}
