//! Typed values in what is sent: each device reads them in its own language, region and time zone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidings_gettext::{Catalogue, Template, Translations};
use tidings_sender::{NAMES, TopicTemplates, Topics};
use tidings_store::NewDevice;
use tidings_types::{Event, Locale, ParamValue, Platform, Present, Provider, PushPolicy, TimeZone, TopicName};

use super::{locale, own, preview, refusal};
use crate::world::{Gateway, World, addressee, config, device, goal, pool, topics};

fn typed(json: &str) -> ParamValue {
    serde_json::from_str(json).unwrap()
}

fn with(name: &str, json: &str, event: Event) -> Event {
    let mut event = event;
    event.params.insert(name.to_owned(), typed(json));
    event
}

/// A kick-off with a text in English and one in Polish.
fn kick_off() -> Event {
    let at = r#"{"datetime":"2026-11-24T20:45:00+01:00","style":"time_short","zone":"device"}"#;
    with("at", at, own(&[("und", "At %{at}"), ("pl", "O %{at}"), ("en", "From %{at}")]))
}

#[tokio::test]
async fn each_device_reads_the_time_of_its_own_zone() {
    let world = World::new();
    let cases = [
        ("pl-PL", Some("Europe/Warsaw"), "O 20:45"),
        ("pl", Some("Europe/London"), "O 19:45"),
        ("en-GB", Some("Europe/London"), "From 19:45"),
        ("en-US", Some("America/New_York"), "From 2:45\u{202f}PM"),
        ("en-US", None, "From 8:45\u{202f}PM GMT+1"),
        ("en-US", Some("Europe/Atlantis"), "From 8:45\u{202f}PM GMT+1"),
        ("en-US", Some("America/Toronto"), "From 2:45\u{202f}PM"),
        ("sv-SE", Some("Asia/Kolkata"), "At 01:15"),
        ("pl-PL", Some("Europe/Stockholm"), "O 20:45"),
    ];
    let reading = |(index, (name, zone, _)): (usize, &(&str, Option<&str>, &str))| NewDevice {
        locale: locale(name),
        time_zone: zone.map(|zone| TimeZone::new(zone).unwrap()),
        ..device(index)
    };
    world.register(cases.iter().enumerate().map(reading)).await;
    let pool = pool("p", "app", 100);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Gateway::new(&pool, &sender);
    world.accept(kick_off()).await;
    provider.take(cases.len()).await;

    let mut renderings = BTreeSet::new();
    for notification in provider.held.drain(..) {
        let (name, zone, expected) = cases[addressee(&notification)];
        let sent: serde_json::Value = serde_json::from_slice(notification.rendering.payload()).unwrap();
        assert_eq!(sent["aps"]["alert"]["title"], expected, "{name} {zone:?}");
        renderings.insert(Arc::as_ptr(&notification.rendering).addr());
    }
    assert_eq!(renderings.len(), 6, "one for each locale and offset: two devices in three places share one");
}

#[test]
fn a_zone_that_does_not_exist_is_refused_even_if_no_text_shows_it() {
    let at = r#"{"datetime":"2026-11-24T20:45:00Z","zone":"Europe/Stokholm"}"#;
    let text = "params: at: zone: the time zone Europe/Stokholm is not in the IANA database";
    assert_eq!(refusal(&with("at", at, goal("e"))), text);
    assert_eq!(refusal(&Event { push: PushPolicy::Never, ..with("at", at, goal("e")) }), text);
}

/// What the check accepts fits into a notification for each device, whatever its region and zone add.
#[test]
fn an_event_that_is_accepted_fits_everywhere() {
    let topics = topics();
    let at = r#"{"datetime":"2026-09-23T23:45:30Z","style":"datetime_full","zone":"device"}"#;
    let event = |bytes: usize| {
        let mut event = own(&[("und", "%{at}%{at}%{at}"), ("fr", "%{at}%{at}")]);
        event.text.values_mut().for_each(|text| text.body = "x".repeat(bytes));
        event.data = Some(tidings_types::Json::of(&"d".repeat(1500)));
        with("at", at, event)
    };
    let largest = (1..2048).rev().map(event).find(|event| topics.check(event).is_ok()).expect("a short one fits");
    assert!(largest.text[&locale("und")].body.len() < 2000, "the limit is reached");
    for name in ["und", "fr", "fr-CA", "my", "ml", "sw", "pl", "ta", "ar-EG", "fa"] {
        for zone in ["America/St_Johns", "Asia/Kathmandu", "Mars/Base"] {
            let shown = topics.preview(&largest, Platform::Ios, &locale(name), TimeZone::new(zone).ok().as_ref());
            assert!(shown.is_ok(), "{name} {zone}: {shown:?}");
        }
    }
}

#[test]
fn names_are_translated_in_the_topics_domain_and_else_in_that_of_names() {
    let catalogue = |name: &str, entries: &[(&str, &str)]| {
        let head = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\n".to_owned();
        let entry =
            |(msgid, msgstr): &(&str, &str)| format!("msgctxt \"team\"\nmsgid \"{msgid}\"\nmsgstr \"{msgstr}\"\n\n");
        let text = "msgid \"Goal for %{team}!\"\nmsgstr \"Gol: %{team}!\"\n\n".to_owned();
        let text = head + &text + &entries.iter().map(entry).collect::<String>();
        (locale(name), Catalogue::parse(text.as_bytes()).unwrap())
    };
    let matches = Translations::new(vec![catalogue("pl", &[("Sweden", "Szwecja")])]);
    let names = Translations::new(vec![
        catalogue("pl", &[("Sweden", "-"), ("Norway", "Norwegia")]),
        catalogue("sv", &[("Norway", "Norge")]),
    ]);
    let template = || Template::new(None, "Goal for %{team}!", None).unwrap();
    let goals = TopicTemplates {
        title: template(),
        body: template(),
        domain: "match".to_owned(),
        present: Present::default(),
        told_only_in: None,
    };
    let domains = BTreeMap::from([("match".to_owned(), matches), (NAMES.to_owned(), names)]);
    let topics = Topics::new(BTreeMap::from([(TopicName::new("goal").unwrap(), goals)]), domains);
    let topics = topics.for_providers([Provider::Apns]);
    let title = |name: &str, device: &str, event: Event| {
        let event = with("team", &format!(r#"{{"name":"{name}","context":"team"}}"#), event);
        topics.check(&event).unwrap();
        preview(&topics, &event, device)["aps"]["alert"]["title"].as_str().unwrap().to_owned()
    };
    assert_eq!(title("Sweden", "pl", goal("e")), "Gol: Szwecja!");
    assert_eq!(title("Norway", "pl-PL", goal("e")), "Gol: Norwegia!");
    assert_eq!(title("Norway", "sv", goal("e")), "Goal for Norway!", "an English sentence has English names");
    assert_eq!(title("Norway", "sv", own(&[("sv", "Mål för %{team}")])), "Mål för Norge");
    assert_eq!(title("Norway", "sv", own(&[("und", "1–0 %{team}")])), "1–0 Norge", "no language: the device's");
    assert_eq!(topics.languages().collect::<Vec<_>>(), [&locale("pl")], "nobody misses texts in a language of names");
    let locales: Vec<Locale> = topics.locales(&goal("e"));
    assert_eq!(locales, [locale("und"), locale("pl")]);
}

/// The table of `docs/values.md`.
#[test]
fn the_documented_values_are_what_devices_read() {
    let document = include_str!("../../../../../docs/values.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .skip_while(|cells: &Vec<&str>| cells[0] != "Value")
        .take_while(|cells| cells.len() == 5)
        .collect();
    assert_eq!(rows.len(), 10);
    let texts: Vec<(&str, &str)> = rows[0][1..].iter().map(|name| (*name, "%{v}")).collect();
    for row in &rows[2..] {
        let event = with("v", row[0].trim_matches('`'), own(&[&[("und", "x")], &texts[..]].concat()));
        topics().check(&event).unwrap();
        for (name, expected) in rows[0][1..].iter().zip(&row[1..]) {
            let shown = super::said(&event, name).0.replace(['\u{a0}', '\u{202f}'], " ");
            assert_eq!(shown, *expected, "{} in {name}", row[0]);
        }
    }
}

#[test]
fn a_moment_as_programs_write_it_is_noticed_where_a_text_shows_it() {
    let noticed = |event: &Event| topics().plain_moments(event).map(str::to_owned).collect::<Vec<_>>();
    let with = |name: &str, event: Event| with(name, r#""2026-11-24T20:45:00Z""#, event);
    assert_eq!(noticed(&with("team", goal("e"))), ["team"]);
    assert_eq!(noticed(&with("at", own(&[("und", "At %{at}")]))), ["at"]);
    assert_eq!(noticed(&with("at", goal("e"))), [""; 0], "no text shows it");
    assert_eq!(noticed(&Event { push: PushPolicy::Never, ..with("team", goal("e")) }), [""; 0]);
}
