//! The texts of events: each reader's language, one encoding for each text.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidings_hub::{Hub, LiveText, Localizer, Member, NewPublication, Subscribed};
use tidings_protocol::{ClientId, Publication, TEXTS_BYTES_MAX};
use tidings_stream::Frame;
use tidings_types::{Event, EventId, Language, Locale, PushForm, Text, TopicName};

use super::{JSON, NOW, SSE, channel, hub, loop_ids, publication};

/// Knows Polish and Swedish, in this order. The title is the topic, in capitals for Polish, or else the event's own.
#[derive(Debug, Default)]
struct Loud {
    calls: AtomicUsize,
}

impl Localizer for Loud {
    fn language(&self, locale: &Locale) -> Option<Language> {
        ["pl", "sv"].iter().zip(1..).find_map(|(tag, number)| (*tag == locale.as_str()).then_some(Language(number)))
    }

    fn texts(&self, event: &Event, languages: &[Language]) -> Vec<Option<Arc<LiveText>>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let text = |title: String, locale| Some(Arc::new(LiveText { title, body: "!".to_owned(), locale }));
        let own = event.text.values().next().map(|text| text.title.clone());
        let source = text(own.unwrap_or_else(|| event.topic.as_str().to_owned()), None);
        let polish = text(event.topic.as_str().to_uppercase(), Locale::new("pl").ok());
        languages.iter().map(|language| if *language == Language(1) { &polish } else { &source }.clone()).collect()
    }
}

fn event(topic: &str) -> Event {
    Event::new(EventId::new("e-1").unwrap(), TopicName::new(topic).unwrap(), Vec::new())
}

fn told(topic: &str) -> Publication {
    Publication { texts: Some(Arc::new(event(topic))), ..publication(7) }
}

fn publish(hub: &Hub, publication: Publication) {
    hub.publish(&channel("told:1"), NewPublication { publication, skip_history: false }, NOW).unwrap();
}

fn form(variant: impl Into<PushForm>, language: u8) -> PushForm {
    PushForm { language: Some(Language(language)), ..variant.into() }
}

fn join(hub: &Hub, form: PushForm, number: u64) -> Subscribed {
    let member = Member::reader(loop_ids(hub)[0], ClientId::from_random(number.into()), form);
    hub.subscribe(&channel("told:1"), &member, None).unwrap()
}

fn shown(frame: &Frame, form: PushForm) -> serde_json::Value {
    let bytes = frame.bytes(form, false);
    let start = bytes.iter().position(|byte| *byte == b'{').expect("a message");
    let message: serde_json::Value = serde_json::from_slice(&bytes[start..]).unwrap();
    message["push"]["pub"]["tags"].clone()
}

#[test]
fn each_reader_gets_the_text_in_its_language_and_equal_texts_are_encoded_once() {
    let loud = Arc::new(Loud::default());
    let hub = hub(10).with_localizer(loud.clone());
    let forms = [form(JSON, 0), form(JSON, 1), form(JSON, 2), form(SSE, 1)];
    let readers: Vec<Subscribed> = forms.iter().zip(1..).map(|(form, number)| join(&hub, *form, number)).collect();
    publish(&hub, told("goal"));
    let mut frames = Vec::new();
    readers[0].channel.fetch(readers[0].next, 10_000, &mut frames).unwrap();
    let [source, polish, swedish, polish_events] = forms.map(|form| frames[0].bytes(form, false));
    assert_eq!(shown(&frames[0], forms[0]), serde_json::json!({"title": "goal", "body": "!"}));
    assert_eq!(shown(&frames[0], forms[1]), serde_json::json!({"title": "GOAL", "body": "!", "lang": "pl"}));
    assert_eq!(source.as_ptr(), swedish.as_ptr(), "one encoding for one text");
    assert_ne!(polish.as_ptr(), polish_events.as_ptr(), "each transport has its own");
    assert_eq!(loud.calls.load(Ordering::Relaxed), 1, "all languages at once");
}

#[test]
fn with_many_languages_each_is_found() {
    let hub = hub(10).with_localizer(Arc::new(Loud::default()));
    let forms: Vec<PushForm> = (0..40).map(|language| form(JSON, language)).collect();
    let readers: Vec<Subscribed> = forms.iter().zip(1..).map(|(form, number)| join(&hub, *form, number)).collect();
    publish(&hub, told("goal"));
    let mut frames = Vec::new();
    readers[0].channel.fetch(readers[0].next, 1 << 20, &mut frames).unwrap();
    for (language, form) in forms.iter().enumerate() {
        let title = if language == 1 { "GOAL" } else { "goal" };
        assert_eq!(shown(&frames[0], *form)["title"], title, "{language}");
    }
    assert!(frames[0].bytes(form(JSON, 41), false).is_empty(), "nobody reads in it");
}

#[test]
fn who_comes_back_gets_the_texts_of_what_was_missed_in_its_language() {
    let hub = hub(10).with_localizer(Arc::new(Loud::default()));
    publish(&hub, told("goal"));
    publish(&hub, publication(8));
    let (mut kept, _) = hub.history(&channel("told:1"), Default::default()).unwrap();
    hub.add_texts(&mut kept, Language(1));
    assert_eq!(kept[0].tags.get("title"), Some("GOAL"));
    assert!(kept[1].tags.is_empty(), "it is no event's");
}

#[test]
fn a_text_that_is_too_long_is_left_out() {
    let hub = hub(10).with_localizer(Arc::new(Loud::default()));
    for (length, is_told) in [(TEXTS_BYTES_MAX - 1, true), (TEXTS_BYTES_MAX, false)] {
        let long = Text { title: "a".repeat(length), body: String::new() };
        let event = Event { text: [(Locale::new("und").unwrap(), long)].into(), ..event("goal") };
        let mut kept = [Publication { texts: Some(Arc::new(event)), ..publication(7) }];
        hub.add_texts(&mut kept, Language(0));
        assert_eq!(kept[0].tags.get("title").is_some(), is_told, "{length}");
    }
}
