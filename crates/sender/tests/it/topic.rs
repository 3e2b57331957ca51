//! What is refused at the door, what is said in which language, and that this is what is sent.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings_gettext::{Catalogue, Template, Translations};
use tidings_push::{Priority, PushType};
use tidings_sender::{TextIndex, TopicError, TopicTemplates, Topics};
use tidings_types::{
    ChannelName, Event, Filter, Interruption, Json, Locale, ParamValue, Payload, Platform, Present, Provider,
    PushPolicy, Text, TopicName,
};

use crate::world::{Gateway, World, config, device, goal, pool, topics};

mod document;
mod values;

fn locale(name: &str) -> Locale {
    Locale::new(name).unwrap()
}

fn text(title: &str) -> Text {
    Text { title: title.to_owned(), body: "-".to_owned() }
}

/// A goal with titles of its own.
fn own(titles: &[(&str, &str)]) -> Event {
    Event { text: titles.iter().map(|(name, title)| (locale(name), text(title))).collect(), ..goal("e") }
}

fn elsewhere(event: Event) -> Event {
    Event { topic: TopicName::new("weather").unwrap(), ..event }
}

fn patched(patch: &str) -> Event {
    Event { payload: Payload { apns: Some(Json::parse(patch.as_bytes()).unwrap()), ..Payload::default() }, ..goal("e") }
}

fn preview(topics: &Topics, event: &Event, name: &str) -> Value {
    serde_json::from_slice(&topics.preview(event, Platform::Ios, &locale(name), None).unwrap()).unwrap()
}

/// What a device of this locale reads.
fn said(event: &Event, name: &str) -> (String, String) {
    let alert = &preview(&topics(), event, name)["aps"]["alert"];
    (alert["title"].as_str().unwrap().to_owned(), alert["body"].as_str().unwrap().to_owned())
}

/// The refusal, which begins with the field that it blames.
fn refusal(event: &Event) -> String {
    let error = topics().check(event).unwrap_err();
    let text = error.to_string();
    text.strip_prefix(error.field()).and_then(|rest| rest.strip_prefix(": ")).expect(&text);
    text
}

#[test]
fn an_event_is_refused_by_name_when_it_cannot_be_told() {
    assert_eq!(topics().check(&goal("e")), Ok(()));
    let with = |change: &dyn Fn(&mut Event)| {
        let mut event = goal("e");
        change(&mut event);
        refusal(&event)
    };
    let unknown = |topic: &str| with(&|event| event.topic = TopicName::new(topic).unwrap());
    assert_eq!(unknown("gaol"), "topic: gaol is not configured, did you mean goal?");
    assert_eq!(unknown("weather"), "topic: weather is not configured");
    assert_eq!(with(&|event| drop(event.params.remove("team"))), "params: team is missing");
    assert_eq!(
        with(&|event| drop(event.params.insert("goals".to_owned(), ParamValue::Text("3".to_owned())))),
        "params: goals chooses a plural form and must be a whole number"
    );
}

#[test]
fn an_event_without_push_needs_no_text() {
    let event = Event { push: PushPolicy::Never, ..elsewhere(patched("1")) };
    assert_eq!(topics().check(&event), Ok(()));
}

/// The Arabic catalogue has only the title.
#[test]
fn a_text_in_two_languages_names_none() {
    let topics = topics();
    let locales = [locale("pl-PL"), locale("ar"), locale("fi")];
    let language = |index: &TextIndex| topics.render(&goal("e"), *index).unwrap().1;
    let languages: Vec<_> = topics.text_indexes(&goal("e"), &locales).iter().map(language).collect();
    assert_eq!(languages, [Some(locale("pl")), None, None]);
}

#[test]
fn the_languages_that_an_event_lacks_are_those_that_other_texts_have() {
    let template = |text: &str| Template::new(None, text, None).unwrap();
    let topic = |name: &str, title: &str, domain: &str| {
        let (title, body, domain) = (template(title), template("%{team}"), domain.to_owned());
        (
            TopicName::new(name).unwrap(),
            TopicTemplates { title, body, domain, present: Present::default(), told_only_in: None },
        )
    };
    let po = |messages: &str| {
        let head = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\n";
        let both = "msgid \"%{team}\"\nmsgstr \"%{team}\"\n\n";
        Catalogue::parse(format!("{head}{both}{messages}").as_bytes()).unwrap()
    };
    let translated = po("msgid \"Sun for %{team}\"\nmsgstr \"Sol för %{team}\"\n");
    let catalogues = vec![(locale("sv"), translated), (locale("de"), po(""))];
    let topics = Topics::new(
        BTreeMap::from([topic("sun", "Sun for %{team}", "sky"), topic("rain", "Rain", "ground")]),
        BTreeMap::from([("sky".to_owned(), Translations::new(catalogues))]),
    );
    let [sun, rain] = ["sun", "rain"].map(|name| TopicName::new(name).unwrap());
    assert_eq!(topics.untranslated(&sun), [locale("de")], "half of it is no translation");
    assert_eq!(topics.untranslated(&rain), [locale("de"), locale("sv")], "its domain has no catalogue at all");
    assert_eq!(topics.names().collect::<Vec<_>>(), [&rain, &sun]);
    let event = |own: &[(&str, &str)]| Event { topic: rain.clone(), ..self::own(own) };
    assert_eq!(topics.untranslated_of(&event(&[("sv", "Regn")])), [locale("de")]);
    assert!(topics.untranslated_of(&event(&[("und", "Rain")])).is_empty(), "it is for all others");
    assert!(topics.untranslated_of(&Event { push: PushPolicy::Never, ..event(&[]) }).is_empty());
}

#[test]
fn each_language_has_its_plural_its_fallback_and_its_isolates() {
    let said = |locale: &str, goals: i64| {
        let mut event = goal("e");
        event.params.insert("goals".to_owned(), ParamValue::Integer(goals));
        said(&event, locale)
    };
    let pair = |title: &str, body: &str| (title.to_owned(), body.to_owned());
    assert_eq!(said("pl-PL", 1), pair("Gol dla Vega!", "1 gol, Vega"));
    assert_eq!(said("pl", 3), pair("Gol dla Vega!", "3 gole, Vega"));
    assert_eq!(said("pl", 5), pair("Gol dla Vega!", "5 goli, Vega"));
    assert_eq!(said("fi", 1), pair("Goal for Vega!", "1 goal by Vega"));
    assert_eq!(said("ar-EG", 2), pair("هدف لفريق \u{2068}Vega\u{2069}!", "2 goals by Vega"));
}

#[test]
fn an_own_text_goes_before_the_topics_and_that_for_all_others_comes_last_of_them() {
    let title = |event: &Event, name: &str| said(event, name).0;
    let some = own(&[("pl-PL", "Polska"), ("zh-Hant", "進球"), ("zh", "进球")]);
    for (name, expected) in [
        ("pl-PL", "Polska"),
        ("pl", "Gol dla Vega!"),
        ("zh-Hant-TW", "進球"),
        ("zh-CN", "进球"),
        ("fi", "Goal for Vega!"),
    ] {
        assert_eq!(title(&some, name), expected, "{name}");
    }
    let all = own(&[("ar", "%{team}"), ("und", "Goal: %{team} 100%%")]);
    for (name, expected) in [
        ("ar-EG", "\u{2068}Vega\u{2069}"),
        ("pl", "Goal: Vega 100%"),
        ("fi", "Goal: Vega 100%"),
        ("und", "Goal: Vega 100%"),
    ] {
        assert_eq!(title(&all, name), expected, "{name}");
    }
    assert_eq!(title(&elsewhere(all), "fi"), "Goal: Vega 100%", "an unknown topic matters to nobody");
}

#[test]
fn an_own_text_in_the_language_goes_before_a_catalogue_for_the_country() {
    let po = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\nmsgid \"Goal\"\nmsgstr \"Gol!\"\n";
    let catalogue = (locale("pt-BR"), Catalogue::parse(po.as_bytes()).unwrap());
    let template = || Template::new(None, "Goal", None).unwrap();
    let templates = TopicTemplates {
        title: template(),
        body: template(),
        domain: "match".to_owned(),
        present: Present::default(),
        told_only_in: None,
    };
    let topics = Topics::new(
        BTreeMap::from([(TopicName::new("goal").unwrap(), templates)]),
        BTreeMap::from([("match".to_owned(), Translations::new(vec![catalogue]))]),
    );
    let title = |event: &Event, name: &str| preview(&topics, event, name)["aps"]["alert"]["title"].take();
    assert_eq!(title(&goal("e"), "pt-BR"), "Gol!");
    let event = own(&[("pt", "Golo!")]);
    assert_eq!(
        (title(&event, "pt-BR"), title(&event, "pt"), title(&event, "fi")),
        (json!("Golo!"), json!("Golo!"), json!("Goal"))
    );
    assert_eq!(topics.locales(&event), [locale("pt"), locale("und")], "the catalogue has lost its readers");
}

#[test]
fn what_an_event_does_not_say_about_its_looks_its_topic_says() {
    let template = || Template::new(None, "Goal", None).unwrap();
    let present = Present {
        sound: Some("goal.caf".to_owned()),
        category: Some("goal".to_owned()),
        interruption: Some(Interruption::TimeSensitive),
        ..Present::default()
    };
    let templates =
        TopicTemplates { title: template(), body: template(), domain: "match".to_owned(), present, told_only_in: None };
    let topics = Topics::new(BTreeMap::from([(TopicName::new("goal").unwrap(), templates)]), BTreeMap::new());
    let looks = |event: &Event| {
        let aps = preview(&topics, event, "en")["aps"].take();
        ["sound", "category", "interruption-level", "badge"].map(|name| aps[name].clone())
    };
    assert_eq!(looks(&goal("e")), [json!("goal.caf"), json!("goal"), json!("time-sensitive"), json!(null)]);
    let present = Present { sound: Some("none".to_owned()), badge: Some(3), ..Present::default() };
    let event = Event { present, ..goal("e") };
    assert_eq!(looks(&event), [json!(null), json!("goal"), json!("time-sensitive"), json!(3)]);
    let event = Event { present: event.present, ..own(&[("und", "x")]) };
    assert_eq!(looks(&event)[1], "goal", "also with texts of its own");
}

#[test]
fn a_text_is_selected_by_the_value_of_a_parameter_and_any_other_value_gets_the_text_without_one() {
    let po = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\n\
              msgid \"Sent off\"\nmsgstr \"Poza grą\"\n\nmsgctxt \"|female\"\nmsgid \"Sent off\"\nmsgstr \"Wyszła\"\n";
    let template = || Template::new(None, "Sent off", None).unwrap();
    let template = || template().select("gender", [("female", None), ("male", None)]).unwrap();
    let (domain, present) = ("match".to_owned(), Present::default());
    let templates = TopicTemplates { title: template(), body: template(), domain, present, told_only_in: None };
    let catalogue = (locale("pl"), Catalogue::parse(po.as_bytes()).unwrap());
    let topics = Topics::new(
        BTreeMap::from([(TopicName::new("goal").unwrap(), templates)]),
        BTreeMap::from([("match".to_owned(), Translations::new(vec![catalogue]))]),
    );
    let event = |gender: Option<&str>| {
        let gender = gender.map(|gender| ("gender".to_owned(), ParamValue::Text(gender.to_owned())));
        Event { params: gender.into_iter().collect(), ..goal("e") }
    };
    for (gender, expected) in
        [(Some("female"), "Wyszła"), (Some("male"), "Poza grą"), (Some("femal"), "Poza grą"), (None, "Poza grą")]
    {
        let event = event(gender);
        topics.check(&event).unwrap();
        assert_eq!(preview(&topics, &event, "pl-PL")["aps"]["alert"]["title"], expected, "{gender:?}");
        let [index] = topics.text_indexes(&event, &[locale("pl")])[..] else { panic!() };
        assert_eq!(topics.render(&event, index).unwrap().0.0, expected, "live readers get the same");
        let unselected = topics.unselected(&event);
        let is_known = matches!(gender, Some("female" | "male"));
        assert_eq!(unselected, (!is_known).then(|| ("gender", vec!["female", "male"])), "{gender:?}");
    }
}

/// Polish is whole, Finnish has the title only, German has nothing.
#[test]
fn a_topic_may_be_told_only_where_it_has_a_whole_translation() {
    let po = |messages: &str| {
        let head = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\n";
        Catalogue::parse(format!("{head}{messages}").as_bytes()).unwrap()
    };
    let (title, body) = ("msgid \"Goal\"\nmsgstr \"T\"\n\n", "msgid \"Look\"\nmsgstr \"B\"\n\n");
    let catalogues = [("pl", po(&format!("{title}{body}"))), ("fi", po(title)), ("de", po(""))];
    let catalogues = catalogues.map(|(name, catalogue)| (locale(name), catalogue));
    let templates = TopicTemplates {
        title: Template::new(None, "Goal", None).unwrap(),
        body: Template::new(None, "Look", None).unwrap(),
        domain: "match".to_owned(),
        present: Present::default(),
        told_only_in: Some(locale("en")),
    };
    let topics = Topics::new(
        BTreeMap::from([(TopicName::new("goal").unwrap(), templates)]),
        BTreeMap::from([("match".to_owned(), Translations::new(catalogues.to_vec()))]),
    );
    let event = goal("e");
    let told = |name: &str| topics.preview(&event, Platform::Ios, &locale(name), None);
    for name in ["pl", "pl-PL", "en", "en-GB", "und"] {
        assert!(told(name).is_ok(), "{name}");
    }
    for name in ["fi", "de-AT", "sv"] {
        let error = told(name).unwrap_err();
        assert_eq!(
            error.to_string(),
            "topic: goal is not told in languages without a whole translation (`missing = \"skip\"`)"
        );
        assert_eq!(error.field(), "topic");
    }
    assert_eq!(topics.check(&event), Ok(()));
    assert_eq!(topics.locales(&event), [locale("und"), locale("pl")]);
    let own = own(&[("und", "x")]);
    assert!(topics.preview(&own, Platform::Ios, &locale("sv"), None).is_ok(), "its own text is for everybody");
}

#[test]
fn own_texts_leave_nobody_out_and_are_templates() {
    let topics = topics();
    assert_eq!(topics.check(&own(&[("pl", "x")])), Ok(()));
    assert_eq!(topics.check(&elsewhere(own(&[("und", "x")]))), Ok(()));
    assert_eq!(
        refusal(&elsewhere(own(&[("pl", "x")]))),
        "text: has no text for other languages than its own: add one as \"und\", or configure the topic weather"
    );
    let misspelt = Event { topic: TopicName::new("gaol").unwrap(), ..own(&[("pl", "x")]) };
    assert!(refusal(&misspelt).ends_with("configure the topic gaol, did you mean goal?"));
    assert_eq!(preview(&topics, &misspelt, "pl")["aps"]["alert"]["title"], "x");
    assert!(matches!(
        topics.preview(&misspelt, Platform::Ios, &locale("fi"), None),
        Err(TopicError::OthersUntold { .. })
    ));

    assert_eq!(refusal(&own(&[("pl", "")])), "text: the title for locale pl: the text is empty");
    assert!(refusal(&own(&[("pl", "100 %")])).starts_with("text: the title for locale pl: the % at byte 4 starts"));
    assert_eq!(refusal(&own(&[("pl", "%{player}")])), "params: player is missing");
}

#[test]
fn a_translation_that_nobody_would_get_is_not_checked() {
    // The topic's texts need a team, the own ones do not; with one for all others the topic's are out of use.
    let without_team = |titles| Event { params: BTreeMap::new(), ..own(titles) };
    assert_eq!(refusal(&without_team(&[("pl", "x")])), "params: team is missing");
    assert_eq!(topics().check(&without_team(&[("und", "x")])), Ok(()));
    let names = |event: &Event| topics().locales(event).iter().map(Locale::to_string).collect::<Vec<_>>();
    assert_eq!(names(&goal("e")), ["und", "ar", "pl"]);
    assert_eq!(names(&own(&[("ar-EG", "x"), ("pl", "x")])), ["ar-EG", "pl", "und", "ar"]);
    assert_eq!(names(&own(&[("pl", "x"), ("und", "x")])), ["pl", "und"]);
}

/// The Arabic text has more bytes than the English one: an event may be too large for it alone.
#[test]
fn a_payload_too_large_in_one_language_only_is_found_at_the_door() {
    let with_data = |bytes: usize| {
        let event = Event { data: Some(Json::of(&"x".repeat(bytes))), ..goal("e") };
        topics().check(&event)
    };
    let limit = (0..4096).rev().find(|&bytes| with_data(bytes).is_ok()).unwrap();
    assert_eq!(
        with_data(limit + 1).unwrap_err().to_string(),
        "data: the apns notification for locale ar would have 4097 bytes, limit 4096"
    );
    let error = with_data(4000).unwrap_err().to_string();
    assert!(error.starts_with("data: the apns notification in the source language would have "), "{error}");

    // The check counts on the longest channel the event names, as JSON spells it.
    let in_channels = |names: &[&str]| {
        let channels = names.iter().map(|name| ChannelName::new(name).unwrap()).collect();
        let event = Event { data: Some(Json::of(&"x".repeat(limit))), channels, ..goal("e") };
        topics().check(&event)
    };
    assert_eq!(in_channels(&["m:1", "team:1"]), Ok(()));
    assert!(matches!(in_channels(&["m:1", "match:0123456789"]), Err(TopicError::TooLarge { .. })));
    assert!(matches!(in_channels(&["m:\"\"\"\"", "team:01"]), Err(TopicError::TooLarge { bytes: 4100, .. })));
}

#[test]
fn what_is_too_large_is_blamed() {
    let long = "x".repeat(4096);
    let too_large = |event: Event| refusal(&event).split(" would").next().unwrap().to_owned();
    assert_eq!(too_large(own(&[("pl", &long[..4090])])), "text: the apns notification for locale pl");
    let mut params = goal("e").params;
    params.insert("team".to_owned(), ParamValue::Text(long.clone()));
    assert_eq!(too_large(Event { params, ..goal("e") }), "params: the apns notification in the source language");
    let present = Present { link: Some(long.clone()), ..Present::default() };
    assert_eq!(too_large(Event { present, ..goal("e") }), "present: the apns notification in the source language");
    let patch = json!({ "x": long }).to_string();
    assert_eq!(too_large(patched(&patch)), "payload.apns: the apns notification in the source language");
    // What a patch takes away does not count.
    let event = Event { data: Some(Json::of(&long)), ..patched(r#"{"data":null}"#) };
    assert_eq!(topics().check(&event), Ok(()));
}

#[test]
fn a_patch_that_cannot_be_sent_is_refused_at_the_door() {
    assert_eq!(refusal(&patched("[]")), "payload.apns: must be an object");
    assert_eq!(
        refusal(&patched(r#"{"tidings":{"event":"other"}}"#)),
        "payload.apns.tidings: must not change tidings, by which the app resumes and recognises duplicates"
    );
    assert_eq!(refusal(&patched(r#"{"aps":null}"#)), "payload.apns: must leave aps an object");
    assert!(refusal(&patched(r#"{"aps":{"alert":null,"sound":null}}"#)).starts_with("payload.apns: leaves nothing"));
}

#[test]
fn an_event_must_fit_into_the_notification_of_every_provider_that_may_deliver_it() {
    let all = || std::sync::Arc::into_inner(topics()).unwrap().for_providers(Provider::ALL.iter().copied());
    let data = |bytes: usize| Event { data: Some(Json::of(&"x".repeat(bytes))), ..goal("e") };
    assert_eq!(all().check(&data(3600)), Ok(()));
    let (bytes, event) =
        (3600..4096).map(|bytes| (bytes, data(bytes))).find(|(_, event)| all().check(event).is_err()).unwrap();
    let error = all().check(&event).unwrap_err();
    assert!(error.to_string().starts_with("data: the "), "{error}");
    let refused_by = |platforms: &[Platform], event: &Event| {
        let filter = Some(Filter { platforms: platforms.to_vec(), ..Filter::default() });
        all().check(&Event { filter, ..event.clone() }).is_err()
    };
    let who: Vec<bool> = Platform::ALL.iter().map(|&platform| refused_by(&[platform], &event)).collect();
    assert_eq!(
        who.iter().filter(|refused| **refused).count(),
        1,
        "{bytes} bytes are too large for one of them: {who:?}"
    );
    assert!(refused_by(Platform::ALL, &event) && refused_by(&[], &event));
    assert_eq!(topics().check(&event), Ok(()), "there is only APNs");
    let patched = |apns: &str, fcm: &str, webpush: &str| {
        let patch = |text: &str| Some(Json::parse(text.as_bytes()).unwrap());
        Event { payload: Payload { apns: patch(apns), fcm: patch(fcm), webpush: patch(webpush) }, ..goal("e") }
    };
    assert_eq!(all().check(&patched("{}", "{}", "{}")), Ok(()));
    for (event, field) in [
        (patched("[]", "{}", "{}"), "payload.apns"),
        (patched("{}", "[]", "{}"), "payload.fcm"),
        (patched("{}", "{}", "[]"), "payload.webpush"),
    ] {
        let error = all().check(&event).unwrap_err();
        assert_eq!((error.field(), error.to_string()), (field, format!("{field}: must be an object")));
    }
}

#[tokio::test]
async fn what_is_sent_is_what_the_preview_shows() {
    let world = World::new();
    let names = ["pl-PL", "fi", "sv"];
    let speaking = |(index, name): (usize, &&str)| tidings_store::NewDevice { locale: locale(name), ..device(index) };
    world.register(names.iter().enumerate().map(speaking)).await;
    let pool = pool("p", "app", 100);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Gateway::new(&pool, &sender);

    let quiet = r#"{"aps":{"alert":null,"sound":null,"content-available":1}}"#;
    let quiet = Event { id: tidings_types::EventId::new("quiet").unwrap(), ..patched(quiet) };
    for (event, expected) in [
        (own(&[("sv", "Mål för %{team}!")]), (PushType::Alert, Priority::Immediate)),
        (quiet, (PushType::Background, Priority::Considerate)),
    ] {
        world.accept(event.clone()).await;
        provider.take(names.len()).await;
        for notification in provider.held.drain(..) {
            assert_eq!(notification.rendering.apns(), Some(expected));
            let index = crate::world::addressee(&notification);
            let mut sent: Value = serde_json::from_slice(notification.rendering.payload()).unwrap();
            assert_ne!(sent["tidings"]["epoch"], "PREVIEWS");
            sent["tidings"]["epoch"] = json!("PREVIEWS");
            sent["tidings"]["offset"] = json!(1);
            assert_eq!(sent, preview(&topics(), &event, names[index]), "{}", names[index]);
        }
    }
}

proptest! {
    /// Whatever stands in an own text is said as it stands, in languages of both directions; or it is refused.
    #[test]
    fn an_own_text_is_filled_like_a_translation(before in any::<String>(), after in any::<String>()) {
        let escape = |text: &str| text.replace('%', "%%");
        let event = own(&[("ar", &format!("{}%{{team}}{}", escape(&before), escape(&after))), ("und", &escape(&before))]);
        let control = |text: &str| text.contains(|letter: char| letter.is_control() && !"\n\t".contains(letter));
        match topics().check(&event) {
            Ok(()) => {
                prop_assert_eq!(said(&event, "ar").0, format!("{before}\u{2068}Vega\u{2069}{after}"));
                prop_assert_eq!(said(&event, "fi").0, before);
            }
            Err(TopicError::OwnText { .. }) => prop_assert!(before.is_empty() || control(&before) || control(&after)),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
