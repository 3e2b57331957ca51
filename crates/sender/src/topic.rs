//! What notifications say: the texts of each topic, in every language there is a catalogue for.
//!
//! [`Topics`] is asked twice. At the door [`Topics::check`] renders the event in every language, so that an event that
//! is accepted can be told to everybody; later a job renders each language once that its audience has. An event with
//! `push: never` needs no text, and nothing of it is checked.
//!
//! A device's locale is answered by its *text*: the most special catalogue among its fallbacks, else the source text.
//! Devices with the same text share one rendering, so a job makes at most (catalogues + 1) × apps of them, whatever
//! locales devices invent.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use tidings_gettext::{Template, Translations};
use tidings_push::payload::{ApnsPayload, PayloadTooLarge};
use tidings_types::{
    ChannelName, Epoch, Event, Locale, Offset, ParamValue, PushPolicy, StreamPosition, Subject, TopicName,
};

use crate::error::TopicError;

/// The texts of one topic in the source language.
#[derive(Debug, Clone)]
pub struct TopicTemplates {
    /// First line.
    pub title: Template,
    /// Text.
    pub body: Template,
    /// The gettext domain whose catalogues translate both.
    pub domain: String,
}

/// The texts of all topics. Immutable; a reload makes a new one.
#[derive(Debug)]
pub struct Topics {
    topics: BTreeMap<TopicName, TopicTemplates>,
    domains: BTreeMap<String, Domain>,
    /// For topics whose domain has no catalogue.
    untranslated: Domain,
}

#[derive(Debug, Default)]
struct Domain {
    translations: Translations,
    locales: Vec<Locale>,
    /// Where in `locales` a language tag is.
    places: HashMap<String, usize>,
}

/// Which of a topic's languages: `None` is the source, a number the place of a catalogue.
pub(crate) type TextIndex = Option<usize>;

/// The texts of one topic with their translations.
#[derive(Clone, Copy)]
pub(crate) struct Texts<'a> {
    templates: &'a TopicTemplates,
    domain: &'a Domain,
}

impl Topics {
    /// Takes the templates by topic and the translations by domain; a domain without translations stays in its source
    /// language.
    pub fn new(templates: BTreeMap<TopicName, TopicTemplates>, translations: BTreeMap<String, Translations>) -> Self {
        let domains = translations.into_iter().map(|(name, translations)| (name, Domain::new(translations))).collect();
        Self { topics: templates, domains, untranslated: Domain::default() }
    }

    /// Whether every device in every language can be told of the event.
    ///
    /// # Errors
    /// When the topic is unknown, a parameter is missing or of the wrong type, or the payload would be over the
    /// provider's limit in some language.
    pub fn check(&self, event: &Event) -> Result<(), TopicError> {
        if event.push == PushPolicy::Never {
            return Ok(());
        }
        let Some(texts) = self.texts(&event.topic) else {
            let (topic, nearest) = (event.topic.clone(), self.nearest(&event.topic));
            return Err(TopicError::UnknownTopic { topic, nearest });
        };
        let longest = longest_stream(event);
        let stream = longest.as_ref().map(|(channel, position)| (channel, *position));
        texts.indices().try_for_each(|index| texts.payload(index, event, stream).map(|_| ()))
    }

    /// Title and body for a locale.
    ///
    /// # Errors
    /// When the topic is unknown or the parameters do not fit.
    pub fn render(
        &self,
        topic: &TopicName,
        locale: &Locale,
        params: &BTreeMap<String, ParamValue>,
    ) -> Result<(String, String), TopicError> {
        let unknown = || TopicError::UnknownTopic { topic: topic.clone(), nearest: self.nearest(topic) };
        let texts = self.texts(topic).ok_or_else(unknown)?;
        texts.render(texts.index(locale), params)
    }

    pub(crate) fn texts(&self, topic: &TopicName) -> Option<Texts<'_>> {
        let templates = self.topics.get(topic)?;
        Some(Texts { templates, domain: self.domains.get(&templates.domain).unwrap_or(&self.untranslated) })
    }

    /// The topic spelt most alike, if it is alike at all: at most a third of its letters differ.
    fn nearest(&self, topic: &TopicName) -> Option<TopicName> {
        let distance = |name: &&TopicName| strsim::damerau_levenshtein(name.as_str(), topic.as_str());
        let name = self.topics.keys().min_by_key(distance)?;
        (distance(&name) <= name.as_str().len().div_ceil(3)).then(|| name.clone())
    }
}

impl Domain {
    fn new(translations: Translations) -> Self {
        let locales: Vec<Locale> = translations.locales().cloned().collect();
        let places = locales.iter().enumerate().map(|(place, locale)| (locale.as_str().to_owned(), place)).collect();
        Self { translations, locales, places }
    }
}

impl Texts<'_> {
    /// Which text a locale is answered with.
    pub(crate) fn index(&self, locale: &Locale) -> TextIndex {
        locale.fallbacks().find_map(|tag| self.domain.places.get(tag).copied())
    }

    fn indices(&self) -> impl Iterator<Item = TextIndex> {
        std::iter::once(None).chain((0..self.domain.locales.len()).map(Some))
    }

    fn locale(&self, index: TextIndex) -> Option<&Locale> {
        index.map(|place| &self.domain.locales[place])
    }

    fn render(&self, index: TextIndex, params: &BTreeMap<String, ParamValue>) -> Result<(String, String), TopicError> {
        let TopicTemplates { title, body, .. } = self.templates;
        Ok(match self.locale(index) {
            Some(locale) => {
                let translations = &self.domain.translations;
                (translations.render(title, locale, params)?, translations.render(body, locale, params)?)
            }
            None => {
                let source = Translations::default(); // Without catalogues every locale gets the source text.
                (source.render(title, &undetermined(), params)?, source.render(body, &undetermined(), params)?)
            }
        })
    }

    /// The body of the notification.
    pub(crate) fn payload(
        &self,
        index: TextIndex,
        event: &Event,
        stream: Option<(&ChannelName, StreamPosition)>,
    ) -> Result<Bytes, TopicError> {
        let (title, body) = self.render(index, &event.params)?;
        let payload = ApnsPayload {
            title: &title,
            body: &body,
            sound: Some("default"),
            thread: event.subjects.first().map(Subject::as_str),
            event: &event.id,
            stream,
            data: event.data.as_ref(),
        };
        let locale = self.locale(index).cloned();
        let named = locale.clone().unwrap_or_else(undetermined);
        payload.encode(&named).map_err(|PayloadTooLarge { bytes, limit, .. }| TopicError::TooLarge {
            locale,
            bytes,
            limit,
        })
    }
}

/// The language of texts in no stated language (BCP 47).
fn undetermined() -> Locale {
    Locale::new("und").expect("und is a language tag")
}

/// The longest place in a channel that the event's notification may have to name.
fn longest_stream(event: &Event) -> Option<(ChannelName, StreamPosition)> {
    let named = event.channels.iter().max_by_key(|channel| channel.as_str().len()).cloned();
    let first_subject = || event.subjects.first().and_then(|subject| ChannelName::new(subject.as_str()).ok());
    let position = StreamPosition { offset: Offset(u64::MAX), epoch: Epoch::from_random(0) };
    named.or_else(first_subject).map(|channel| (channel, position))
}
