//! The texts of events for live readers, each in its language.
//!
//! A reader's language is one of a list: the languages that have catalogues, and those of `translations.live_locales`.
//! So clients cannot make the server write a text in more languages than its operator has named.

use std::collections::HashMap;
use std::sync::Arc;

use tidings_hub::{LiveText, Localizer};
use tidings_sender::{TextIndex, Topics};
use tidings_types::{Event, Language, Locale};

/// Writes the texts from the topics and their catalogues.
#[derive(Debug)]
pub(super) struct LiveTexts {
    topics: Arc<Topics>,
    /// In the order of their numbers. The first one is "no language": the source language, or an event's text for all others.
    locales: Vec<Locale>,
    languages: HashMap<String, Language>,
}

impl LiveTexts {
    pub(super) fn new(topics: Arc<Topics>, more: &[Locale]) -> Self {
        let none = Locale::new("und").expect("und is a language tag");
        let mut locales = vec![none];
        let mut languages = HashMap::new();
        for locale in topics.languages().chain(more) {
            let Ok(next) = u8::try_from(locales.len()) else { break };
            languages.entry(locale.as_str().to_owned()).or_insert_with(|| {
                locales.push(locale.clone());
                Language(next)
            });
        }
        Self { topics, locales, languages }
    }
}

impl Localizer for LiveTexts {
    fn language(&self, locale: &Locale) -> Option<Language> {
        locale.fallbacks().find_map(|tag| self.languages.get(tag).copied())
    }

    fn texts(&self, event: &Event, languages: &[Language]) -> Vec<Option<Arc<LiveText>>> {
        let locales: Vec<Locale> =
            languages.iter().map(|language| self.locales[usize::from(language.0)].clone()).collect();
        let mut rendered: HashMap<TextIndex, Option<Arc<LiveText>>> = HashMap::new();
        let text = |index| {
            let ((title, body), locale) = self.topics.render(event, index).ok()?;
            Some(Arc::new(LiveText { title, body, locale: locale.filter(|locale| *locale != self.locales[0]) }))
        };
        let indexes = self.topics.text_indexes(event, &locales).into_iter();
        indexes.map(|index| rendered.entry(index).or_insert_with(|| text(index)).clone()).collect()
    }
}
