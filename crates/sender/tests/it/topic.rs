//! What is refused at the door, and what is said in which language.

use tidings_sender::TopicError;
use tidings_types::{ChannelName, Json, Locale, ParamValue, PushPolicy, TopicName};

use crate::world::{goal, topics};

fn refusal(change: impl FnOnce(&mut tidings_types::Event)) -> String {
    let mut event = goal("e");
    change(&mut event);
    topics().check(&event).unwrap_err().to_string()
}

#[test]
fn an_event_is_refused_by_name_when_it_cannot_be_told() {
    assert_eq!(topics().check(&goal("e")), Ok(()));
    let unknown = |topic: &str| refusal(|event| event.topic = TopicName::new(topic).unwrap());
    assert_eq!(unknown("gaol"), "topic: gaol is not configured, did you mean goal?");
    assert_eq!(unknown("weather"), "topic: weather is not configured");
    assert_eq!(refusal(|event| drop(event.params.remove("team"))), "params: team is missing");
    assert_eq!(
        refusal(|event| drop(event.params.insert("goals".to_owned(), ParamValue::Text("3".to_owned())))),
        "params: goals chooses a plural form and must be a whole number"
    );
}

#[test]
fn an_event_without_push_needs_no_text() {
    let mut event = goal("e");
    event.topic = TopicName::new("weather").unwrap();
    event.push = PushPolicy::Never;
    assert_eq!(topics().check(&event), Ok(()));
}

/// The Arabic text has more bytes than the English one: an event may be too large for it alone.
#[test]
fn a_payload_too_large_in_one_language_only_is_found_at_the_door() {
    let with_data = |bytes: usize| {
        let mut event = goal("e");
        event.data = Some(Json::of(&"x".repeat(bytes)));
        topics().check(&event)
    };
    let limit = (0..4096).rev().find(|&bytes| with_data(bytes).is_ok()).unwrap();
    let Err(TopicError::TooLarge { locale, bytes, limit: most }) = with_data(limit + 1) else { panic!("fits") };
    assert_eq!((locale, bytes, most), (Some(Locale::new("ar").unwrap()), 4097, 4096));
    assert_eq!(
        with_data(4000).unwrap_err().to_string().split(" would").next().unwrap(),
        "the notification in the source language"
    );
    // The check counts on the longest channel the event names.
    let mut event = goal("e");
    event.data = Some(Json::of(&"x".repeat(limit)));
    event.channels = vec![ChannelName::new("m:1").unwrap(), ChannelName::new("match:0123456789").unwrap()];
    assert!(matches!(topics().check(&event), Err(TopicError::TooLarge { .. })));
}

#[test]
fn each_language_has_its_plural_its_fallback_and_its_isolates() {
    let said = |locale: &str, goals: i64| {
        let mut event = goal("e");
        event.params.insert("goals".to_owned(), ParamValue::Integer(goals));
        topics().render(&event.topic, &Locale::new(locale).unwrap(), &event.params).unwrap()
    };
    let pair = |title: &str, body: &str| (title.to_owned(), body.to_owned());
    assert_eq!(said("pl-PL", 1), pair("Gol dla Vega!", "1 gol, Vega"));
    assert_eq!(said("pl", 3), pair("Gol dla Vega!", "3 gole, Vega"));
    assert_eq!(said("pl", 5), pair("Gol dla Vega!", "5 goli, Vega"));
    assert_eq!(said("fi", 1), pair("Goal for Vega!", "1 goal by Vega"));
    assert_eq!(said("ar-EG", 2), pair("هدف لفريق \u{2068}Vega\u{2069}!", "2 goals by Vega"));
}
