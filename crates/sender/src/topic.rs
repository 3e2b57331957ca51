//! The texts of notifications: those of each topic, in every language that has a catalogue, and an event's own texts.
//!
//! [`Topics`] is used twice. When an event comes in, [`Topics::check`] renders it in every language, so that an
//! accepted event can be rendered for every device. Later a job renders each language of its audience once. An event
//! with `push: never` needs no text, and its texts are not checked.
//!
//! A device's locale decides its *text*. The first of these that exists is taken: the event's own text in the most
//! specific language among the locale's fallbacks; the event's own text for all others, `und`; the topic's text by the
//! most specific catalogue among the fallbacks; the topic's source text. So an event's own Portuguese text goes before
//! a catalogue for Brazil. Own texts are templates too, with the same placeholders, but without plural forms. Every
//! language must have a text: an event with own texts has one for `und`, or its topic is configured.
//!
//! Devices with the same text share one rendering, so a job makes at most (own texts, 64, + catalogues + 1) × apps of
//! them, whatever locales devices invent. If the event has typed values, such as a date, the device's region and time
//! zone decide, too (`places.rs`). [`Topics::check`] then leaves room for what regions and zones add.
//!
//! A topic may be told only in its source language and in those with a whole translation of it. Others get no text of it.
//!
//! How a notification is shown (`present`) is the event's; each field that it has not is the topic's.
//!
//! Names with translations of their own are looked up in the topic's domain, then in the domain [`NAMES`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidings_gettext::{Catalogue, Reader, Template, Translations, check_value};
use tidings_push::payload::{Content, Encoded, Part, PayloadError};
use tidings_telemetry::panics::lock;
use tidings_types::{
    ChannelName, CollapseKey, DateTime, Epoch, Event, EventChannels, Json, Locale, Offset, ParamValue, Platform,
    Present, Provider, PushPolicy, StreamPosition, Subject, Text, TimeZone, TopicName,
};

use crate::collapse::collapse_id;
use crate::error::{TopicError, payload_field};
use crate::places::Place;

/// The tag of an undetermined language (BCP 47). An event's own text with this tag is for all other languages.
const UNDETERMINED: &str = "und";

/// The epoch of a preview, which no channel has.
const PREVIEW_EPOCH: &str = "PREVIEWS";

/// The domain of names that several domains share.
pub const NAMES: &str = "names";

/// The texts of one topic in the source language.
#[derive(Debug, Clone)]
pub struct TopicTemplates {
    /// First line.
    pub title: Template,
    /// Text.
    pub body: Template,
    /// The gettext domain whose catalogues translate both.
    pub domain: String,
    /// How notifications are shown where their event does not say it.
    pub present: Present,
    /// The language of these texts, if only those are told whose language this is or has a whole translation.
    pub told_only_in: Option<Locale>,
}

/// The topics in force, which a reload replaces. Whoever works with topics takes them once, and stays with what it took.
#[derive(Debug)]
pub struct CurrentTopics(Mutex<Arc<Topics>>);

impl CurrentTopics {
    /// These are in force.
    pub fn new(topics: Arc<Topics>) -> Self {
        Self(Mutex::new(topics))
    }

    /// Those in force now.
    pub fn get(&self) -> Arc<Topics> {
        lock(&self.0).clone()
    }

    /// Puts others in force. Returns those that were.
    pub fn replace(&self, topics: Arc<Topics>) -> Arc<Topics> {
        std::mem::replace(&mut *lock(&self.0), topics)
    }
}

/// The texts of all topics. Immutable; a reload makes a new one.
#[derive(Debug)]
pub struct Topics {
    topics: BTreeMap<TopicName, TopicTemplates>,
    domains: BTreeMap<String, Domain>,
    /// For topics whose domain has no catalogue.
    untranslated: Domain,
    /// The providers whose size limits an event must fit.
    providers: Vec<Provider>,
    /// The channels of events that name no channel.
    channels: EventChannels,
    /// For each topic, the languages that have a catalogue but no or only a partial translation of the topic. Only
    /// topics that lack some.
    missing: BTreeMap<TopicName, Vec<Locale>>,
}

#[derive(Debug, Default)]
struct Domain {
    translations: Translations,
    locales: Vec<Locale>,
    /// The index of a language tag in `locales`.
    indexes: HashMap<String, usize>,
}

/// One of an event's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextIndex {
    /// The event's own at this index in the order of locales.
    Own(usize),
    /// The topic's, by the catalogue at this index.
    Translated(usize),
    /// The topic's in its source language.
    Source,
    /// None: the topic is not told in this language.
    Untold,
}

/// All texts of one event.
pub(crate) struct Texts<'a> {
    topics: &'a Topics,
    event: &'a Event,
    /// In the order of locales.
    own: Vec<(&'a Locale, &'a Text)>,
    /// The index in `own` of the text for all others.
    others: Option<usize>,
    topic: Option<(&'a TopicTemplates, &'a Domain)>,
    /// The event's, and the topic's where it has none.
    present: Cow<'a, Present>,
}

impl Topics {
    /// Takes the templates by topic and the translations by domain. A domain without translations stays in its source
    /// language. Events must fit the size limits of all providers: see [`Topics::for_providers`].
    pub fn new(templates: BTreeMap<TopicName, TopicTemplates>, translations: BTreeMap<String, Translations>) -> Self {
        let domains = translations.into_iter().map(|(name, translations)| (name, Domain::new(translations))).collect();
        let (providers, untranslated) = (Provider::ALL.to_vec(), Domain::default());
        let (channels, missing) = (EventChannels::default(), BTreeMap::new());
        let mut topics = Self { topics: templates, domains, untranslated, providers, channels, missing };
        let languages: BTreeSet<&Locale> = topics.languages().collect();
        let lacking = |(name, templates): (&TopicName, &TopicTemplates)| {
            let translations = &topics.domain(templates).translations;
            let is_told = |locale: &Locale| {
                [&templates.title, &templates.body].iter().all(|template| translations.translates(template, locale))
            };
            let lacking: Vec<Locale> = languages.iter().filter(|locale| !is_told(locale)).copied().cloned().collect();
            (!lacking.is_empty()).then(|| (name.clone(), lacking))
        };
        topics.missing = topics.topics.iter().filter_map(lacking).collect();
        topics
    }

    /// From now on, an event must fit the size limits of these providers only: those that have pools.
    pub fn for_providers(self, providers: impl IntoIterator<Item = Provider>) -> Self {
        Self { providers: providers.into_iter().collect(), ..self }
    }

    /// Sets the channels of events that name no channel. The size check of a notification uses the longest of them.
    pub fn publishing_in(self, channels: EventChannels) -> Self {
        Self { channels, ..self }
    }

    /// Whether the topic is configured.
    pub fn has(&self, topic: &TopicName) -> bool {
        self.topics.contains_key(topic)
    }

    /// The topics that are configured.
    pub fn names(&self) -> impl Iterator<Item = &TopicName> {
        self.topics.keys()
    }

    /// The languages that have a catalogue, but no or only a partial translation of the topic. Their devices get the
    /// text, or a part of it, in another language; or nothing, if the topic is told only where it is whole.
    pub fn untranslated(&self, topic: &TopicName) -> &[Locale] {
        self.missing.get(topic).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether there is a catalogue for the locale or for a more general one.
    pub fn has_catalogue(&self, locale: &Locale) -> bool {
        self.domains.values().any(|domain| locale.fallbacks().any(|tag| domain.indexes.contains_key(tag)))
    }

    /// As [`Topics::untranslated`], without the languages of the event's own texts.
    pub fn untranslated_of(&self, event: &Event) -> Vec<Locale> {
        if event.push == PushPolicy::Never {
            return Vec::new();
        }
        let texts = self.texts(event);
        self.untranslated(&event.topic).iter().filter(|locale| texts.own_index(locale).is_none()).cloned().collect()
    }

    /// The parameters that a text of the event shows although they are moments as programs write them: texts like
    /// `2026-11-24T20:45:00Z`.
    pub fn plain_moments<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a str> {
        let topic = self.topics.get(&event.topic).filter(|_| event.push != PushPolicy::Never);
        let placeholder = |name: &str| format!("%{{{name}}}");
        let is_shown = move |name: &str| {
            let own = event.text.values().flat_map(|text| [&text.title, &text.body]);
            topic.is_some_and(|topic| {
                [&topic.title, &topic.body].iter().any(|text| text.placeholders().any(|it| it == name))
            }) || own.into_iter().any(|text| text.contains(&placeholder(name)))
        };
        let is_moment =
            |value: &ParamValue| matches!(value, ParamValue::Text(text) if text.parse::<DateTime>().is_ok());
        let moments = event.params.iter().filter(move |(_, value)| is_moment(value));
        moments.map(|(name, _)| name.as_str()).filter(move |name| is_shown(name))
    }

    /// The parameter by which the texts of the event's topic are selected, and its values, if the event has none of these
    /// values. Then the texts without a value are shown.
    pub fn unselected<'a>(&'a self, event: &Event) -> Option<(&'a str, Vec<&'a str>)> {
        let topic = self.topics.get(&event.topic).filter(|_| event.push != PushPolicy::Never)?;
        let values: Vec<&str> = topic.title.values().map(|(value, _)| value).collect();
        let name = topic.title.selects_by()?;
        let is_known =
            matches!(event.params.get(name), Some(ParamValue::Text(text)) if values.contains(&text.as_str()));
        (!is_known).then_some((name, values))
    }

    /// Checks that the event can be rendered for every device in every language, whichever provider reaches it.
    /// Providers that its filter excludes are not checked. Time zones that it names must exist, even if no text shows them.
    ///
    /// # Errors
    /// If there is no text for some language, a parameter is missing or of the wrong type, an own text is not a valid
    /// template, the patch of a payload is wrong, or a payload would be over its provider's limit in some language.
    pub fn check(&self, event: &Event) -> Result<(), TopicError> {
        for (name, value) in &event.params {
            if let ParamValue::Typed(value) = value {
                check_value(value).map_err(|problem| TopicError::Value { name: name.clone(), problem })?;
            }
        }
        if event.push == PushPolicy::Never {
            return Ok(());
        }
        let texts = self.texts(event);
        let longest = self.longest_stream(event);
        let stream = longest.as_ref().map(|(channel, position)| (channel, *position));
        let collapse_id = collapse_id(event);
        let reached = |provider: &&Provider| is_reached(event, **provider);
        texts.indices().try_for_each(|index| {
            let text = texts.render(index, None, true)?;
            self.providers
                .iter()
                .filter(reached)
                .try_for_each(|&provider| texts.encode_text(&text, index, provider, stream, &collapse_id).map(|_| ()))
        })
    }

    /// The notification that a device of this platform, locale and time zone would get: the exact body for APNs, the message
    /// without its recipient for FCM, the plaintext for browsers. The position of the event's publication is not known
    /// yet: the preview has offset 1 of the epoch `PREVIEWS` in the first channel.
    ///
    /// # Errors
    /// As [`Topics::check`], for this platform and locale only. A body may fit here and yet be refused by the check,
    /// because the check uses the longest possible channel and offset.
    pub fn preview(
        &self,
        event: &Event,
        platform: Platform,
        locale: &Locale,
        zone: Option<&TimeZone>,
    ) -> Result<Bytes, TopicError> {
        let texts = self.texts(event);
        let channel = self.channels_of(event).next();
        let epoch = Epoch::try_from(PREVIEW_EPOCH.to_owned()).expect("eight letters");
        let position = StreamPosition { offset: Offset(1), epoch };
        let stream = channel.as_ref().map(|channel| (channel, position));
        let index = texts.index(locale);
        let place = Place { locale: locale.clone(), zone: zone.cloned() };
        let encoded = texts.encode(index, Some(&place), platform.provider(), stream, &collapse_id(event))?;
        Ok(encoded.bytes().clone())
    }

    /// For each of these locales, which of the event's texts it gets. Locales with an equal result have the same text.
    pub fn text_indexes(&self, event: &Event, locales: &[Locale]) -> Vec<TextIndex> {
        let texts = self.texts(event);
        locales.iter().map(|locale| texts.index(locale)).collect()
    }

    /// Title and body of one of the event's texts, and their language; `None`: the topic's source language, or two
    /// languages, because a translation is not whole. Typed values are in the conventions of the text's language, for
    /// readers without a time zone.
    ///
    /// # Errors
    /// If there is no such text, or a parameter is missing or of the wrong type. An event that [`Topics::check`] accepts has
    /// all its texts.
    pub fn render(&self, event: &Event, index: TextIndex) -> Result<((String, String), Option<Locale>), TopicError> {
        let texts = self.texts(event);
        Ok((texts.render(index, None, false)?, texts.language(index).cloned()))
    }

    /// One locale for each text of the event that devices may get: the locales of its own texts, those of the
    /// catalogues that apply besides, and `und` for the text of all others.
    pub fn locales(&self, event: &Event) -> Vec<Locale> {
        let texts = self.texts(event);
        texts.indices().map(|index| texts.locale(index).cloned().unwrap_or_else(undetermined)).collect()
    }

    /// The languages that have catalogues of texts; some more than once.
    pub fn languages(&self) -> impl Iterator<Item = &Locale> {
        self.domains.iter().filter(|(name, _)| *name != NAMES).flat_map(|(_, domain)| &domain.locales)
    }

    /// The texts of an event.
    pub(crate) fn texts<'a>(&'a self, event: &'a Event) -> Texts<'a> {
        let topic = self.topics.get(&event.topic).map(|templates| (templates, self.domain(templates)));
        let own: Vec<_> = event.text.iter().collect();
        let others = own.iter().position(|(locale, _)| locale.as_str() == UNDETERMINED);
        let present = match topic {
            Some((templates, _)) if !templates.present.is_empty() => Cow::Owned(event.present.or(&templates.present)),
            _ => Cow::Borrowed(&event.present),
        };
        Texts { topics: self, event, own, others, topic, present }
    }

    fn domain(&self, templates: &TopicTemplates) -> &Domain {
        self.domains.get(&templates.domain).unwrap_or(&self.untranslated)
    }

    /// The channels that the event may be published in.
    fn channels_of(&self, event: &Event) -> impl Iterator<Item = ChannelName> {
        let of_subjects = if event.channels.is_empty() { self.channels.subjects(event) } else { &[] };
        let of_subjects = of_subjects.iter().filter_map(|subject| ChannelName::new(subject.as_str()).ok());
        event.channels.iter().cloned().chain(of_subjects)
    }

    /// The longest stream position, in JSON, that the event's notification may have to contain.
    fn longest_stream(&self, event: &Event) -> Option<(ChannelName, StreamPosition)> {
        let channel = self.channels_of(event).max_by_key(|channel| Json::of(channel).bytes().len())?;
        Some((channel, StreamPosition { offset: Offset(u64::MAX), epoch: Epoch::from_random(0) }))
    }

    /// The error for an event without a text for some language.
    fn untold(&self, event: &Event) -> TopicError {
        let (topic, nearest) = (event.topic.clone(), self.nearest(&event.topic));
        match event.text.is_empty() {
            true => TopicError::UnknownTopic { topic, nearest },
            false => TopicError::OthersUntold { topic, nearest },
        }
    }

    /// The topic with the most similar name, if at most a third of its letters differ.
    fn nearest(&self, topic: &TopicName) -> Option<TopicName> {
        let distance = |name: &&TopicName| strsim::damerau_levenshtein(name.as_str(), topic.as_str());
        let name = self.topics.keys().min_by_key(distance)?;
        (distance(&name) <= name.as_str().len().div_ceil(3)).then(|| name.clone())
    }
}

impl Domain {
    fn new(translations: Translations) -> Self {
        let locales: Vec<Locale> = translations.locales().cloned().collect();
        let indexes = locales.iter().enumerate().map(|(index, locale)| (locale.as_str().to_owned(), index)).collect();
        Self { translations, locales, indexes }
    }
}

impl<'a> Texts<'a> {
    /// The text for a locale.
    pub(crate) fn index(&self, locale: &Locale) -> TextIndex {
        if let Some(index) = self.own_index(locale) {
            return TextIndex::Own(index);
        }
        let index = |(_, domain): (_, &Domain)| locale.fallbacks().find_map(|tag| domain.indexes.get(tag).copied());
        let index = self.topic.and_then(index);
        if self.is_left_out(locale, index) {
            return TextIndex::Untold;
        }
        index.map_or(TextIndex::Source, TextIndex::Translated)
    }

    /// Whether a locale gets no text of the topic: its catalogue, if any, has no whole translation, and its language is not
    /// the source language.
    fn is_left_out(&self, locale: &Locale, catalogue: Option<usize>) -> bool {
        let Some((TopicTemplates { told_only_in: Some(source), .. }, domain)) = self.topic else { return false };
        let partial = self.topics.untranslated(&self.event.topic);
        let is_whole = catalogue.is_some_and(|index| !partial.contains(&domain.locales[index]));
        let is_source = || locale.as_str() == UNDETERMINED || locale.fallbacks().last() == source.fallbacks().last();
        !is_whole && !is_source()
    }

    fn own_index(&self, locale: &Locale) -> Option<usize> {
        let index = |tag: &str| self.own.binary_search_by(|(locale, _)| locale.as_str().cmp(tag)).ok();
        locale.fallbacks().find_map(index).or(self.others)
    }

    /// Every text that some locale gets.
    fn indices(&self) -> impl Iterator<Item = TextIndex> {
        let own = (0..self.own.len()).map(TextIndex::Own);
        let source = self.others.is_none().then_some(TextIndex::Source);
        let locales = self.topic.map_or(&[][..], |(_, domain)| &domain.locales);
        let used = |(index, locale): &(usize, &Locale)| self.index(locale) == TextIndex::Translated(*index);
        let translated = locales.iter().enumerate().filter(used).map(|(index, _)| TextIndex::Translated(index));
        own.chain(source).chain(translated)
    }

    /// The language of a text; `None` is the topic's source language.
    pub(crate) fn locale(&self, index: TextIndex) -> Option<&'a Locale> {
        match index {
            TextIndex::Own(index) => Some(self.own[index].0),
            TextIndex::Translated(index) => self.topic.map(|(_, domain)| &domain.locales[index]),
            TextIndex::Source | TextIndex::Untold => None,
        }
    }

    /// The language that title and body are in; `None`: the source language, or two languages.
    fn language(&self, index: TextIndex) -> Option<&Locale> {
        let locale = self.locale(index)?;
        match (index, self.topic) {
            (TextIndex::Translated(_), Some((topic, domain))) => {
                domain.translations.language_of(&[&topic.title, &topic.body], locale, &self.event.params)
            }
            _ => Some(locale),
        }
    }

    /// Title and body for the readers of a place; `None`: everywhere.
    fn render(&self, index: TextIndex, place: Option<&Place>, with_room: bool) -> Result<(String, String), TopicError> {
        let params = &self.event.params;
        if index == TextIndex::Untold {
            return Err(TopicError::Untold { topic: self.event.topic.clone() });
        }
        let shared = self.topics.domains.get(NAMES);
        let names: Vec<&Translations> =
            self.topic.map(|(_, domain)| domain).into_iter().chain(shared).map(|domain| &domain.translations).collect();
        let language = self.locale(index).cloned().unwrap_or_else(undetermined);
        let locale = place.map_or(&language, |place| &place.locale);
        let zone = place.and_then(|place| place.zone.as_ref());
        let reader = Reader { locale, zone, names: &names, with_room };
        if let TextIndex::Own(index) = index {
            let (locale, Text { title, body }) = self.own[index];
            let fill = |text: &str, part| fill(text, part, locale, params, &reader);
            return Ok((fill(title, "title")?, fill(body, "body")?));
        }
        let (TopicTemplates { title, body, .. }, domain) = self.topic.ok_or_else(|| self.topics.untold(self.event))?;
        Ok(match self.locale(index) {
            Some(locale) => {
                let translations = &domain.translations;
                let render = |template| translations.render_for(template, locale, params, &reader);
                (render(title)?, render(body)?)
            }
            None => {
                let source = Translations::default(); // Without catalogues every locale gets the source text.
                let render = |template| source.render_for(template, &language, params, &reader);
                (render(title)?, render(body)?)
            }
        })
    }

    /// The payload for a provider and the readers of a place.
    pub(crate) fn encode(
        &self,
        index: TextIndex,
        place: Option<&Place>,
        provider: Provider,
        stream: Option<(&ChannelName, StreamPosition)>,
        collapse_id: &CollapseKey,
    ) -> Result<Encoded, TopicError> {
        self.encode_text(&self.render(index, place, false)?, index, provider, stream, collapse_id)
    }

    fn encode_text(
        &self,
        (title, body): &(String, String),
        index: TextIndex,
        provider: Provider,
        stream: Option<(&ChannelName, StreamPosition)>,
        collapse_id: &CollapseKey,
    ) -> Result<Encoded, TopicError> {
        let event = self.event;
        let content = Content {
            title,
            body,
            present: &self.present,
            thread: event.subjects.first().map(Subject::as_str),
            event: &event.id,
            stream,
            data: event.data.as_ref(),
            patches: &event.payload,
            urgency: event.urgency,
            collapse_id,
        };
        content.encode(provider).map_err(|error| match error {
            PayloadError::TooLarge { bytes, limit, part } => {
                let (field, locale) = (field(part, index, provider), self.locale(index).cloned());
                TopicError::TooLarge { provider, field, locale, bytes, limit }
            }
            PayloadError::Patch(problem) => TopicError::Patch { provider, problem },
        })
    }
}

/// The field of an event that a part of its notification comes from.
fn field(part: Part, index: TextIndex, provider: Provider) -> &'static str {
    match (part, index) {
        (Part::Text, TextIndex::Own(_)) => "text",
        (Part::Text, _) => "params", // The rest of the text comes from the configuration, not from the producer.
        (Part::Present, _) => "present",
        (Part::Data, _) => "data",
        (Part::Patch, _) => payload_field(provider),
    }
}

/// Whether the event's filter admits devices of the provider.
fn is_reached(event: &Event, provider: Provider) -> bool {
    let platforms = event.filter.iter().flat_map(|filter| &filter.platforms);
    event.filter.as_ref().is_none_or(|filter| filter.platforms.is_empty())
        || platforms.into_iter().any(|platform| platform.provider() == provider)
}

/// Fills in an event's own text with the code for translations: as the only message of a catalogue, translated by
/// itself.
fn fill(
    text: &str,
    part: &'static str,
    locale: &Locale,
    params: &BTreeMap<String, ParamValue>,
    reader: &Reader<'_>,
) -> Result<String, TopicError> {
    let wrong = |problem| TopicError::OwnText { locale: locale.clone(), part, problem };
    let template = Template::new(None, text, None).map_err(wrong)?;
    // PO and JSON escape the characters of a template in the same way.
    let quoted = Json::of(&text);
    let message = quoted.as_str();
    let po = format!(
        "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\nmsgid {message}\nmsgstr {message}\n"
    );
    let catalogue = Catalogue::parse(po.as_bytes()).map(|catalogue| (locale.clone(), catalogue));
    let translations = Translations::new(catalogue.into_iter().collect());
    Ok(translations.render_for(&template, locale, params, reader)?)
}

fn undetermined() -> Locale {
    Locale::new(UNDETERMINED).expect("und is a language tag")
}
