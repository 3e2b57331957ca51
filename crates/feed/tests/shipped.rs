//! The mappings that come with the program, over documents in the shapes that they are for. All documents are made for
//! these tests.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use tidings_feed::{Document, Entry, Mapping, Outcome, read};
use tidings_types::Timestamp;

/// 2026-11-24T20:45:00Z.
const NOW: Timestamp = Timestamp(1_795_553_100_000);

fn entries(mapping: &str, document: &[u8]) -> Vec<Entry> {
    let mapping = Mapping::parse(Mapping::shipped(mapping).unwrap()).unwrap_or_else(|error| panic!("{error}"));
    let mut entries = Vec::new();
    let about = Document { feed: "f", now: NOW, charset: None };
    read(document, &mapping, &about, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
    entries
}

fn events(entries: &[Entry]) -> Vec<Value> {
    let drafts = entries.iter().filter_map(|entry| match &entry.outcome {
        Outcome::Event(draft) => Some(serde_json::from_str(&draft.json).unwrap()),
        _ => None,
    });
    drafts.collect()
}

fn reasons(entries: &[Entry]) -> Vec<String> {
    let reasons = entries.iter().filter_map(|entry| match &entry.outcome {
        Outcome::Event(_) => None,
        Outcome::Skipped { reason } => Some(format!("{}: {reason}", entry.position.line)),
        Outcome::Wrong { field, problem } => Some(format!("{}: wrong {field}: {problem}", entry.position.line)),
    });
    reasons.collect()
}

#[test]
fn goals_and_red_cards_are_told_from_typed_events() {
    let entries = entries("match-events-xml", include_bytes!("documents/match-events.xml"));
    let events = events(&entries);
    let params: Vec<&Value> = events.iter().map(|event| &event["params"]).collect();
    assert_eq!(events.len(), 3, "{:?}", reasons(&entries));
    assert_eq!([&events[0]["topic"], &events[1]["topic"], &events[2]["topic"]], ["period-start", "goal", "red-card"]);
    let goal = json!({"minute": 27, "player": "Bukayo Saka", "home": "Arsenal", "away": "Everton", "how": "penalty"});
    assert_eq!(*params[1], goal);
    assert_eq!(events[1]["subjects"], json!(["match:2210271", "team:3", "competition:8"]));
    assert_eq!(events[1]["id"], "f:2487614299");
    assert_eq!(events[1]["data"]["at"], "2026-11-24T20:26:56.123Z");
    assert_eq!(params[2]["player"], "Jack O'Neill");
    let reasons = reasons(&entries);
    assert!(
        reasons[0].starts_with("5: when[1]: `@type_id` is \"34\"; it must be one of \"16\", \"17\""),
        "{reasons:?}"
    );
    assert!(reasons.iter().any(|reason| reason.contains("the document has it already, as entry 2")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("when[3]: none holds")), "{reasons:?}");
}

#[test]
fn names_that_stand_behind_the_match_are_found() {
    let entries = entries("match-results-xml", include_bytes!("documents/match-results.xml"));
    let events = events(&entries);
    let told: Vec<String> = events.iter().map(|event| format!("{} {}", event["topic"], event["params"])).collect();
    assert_eq!(
        told,
        [
            r#""red-card" {"minute":12,"player":"Pepe","score":0,"side":"away","team":"Everton"}"#,
            r#""goal" {"minute":27,"player":"Saka","score":1,"side":"home","team":"Malmö FF"}"#,
        ]
    );
    assert_eq!(events[1]["id"], "f:f2210271-g3-1");
    assert_eq!(events[1]["subjects"], json!(["match:f2210271", "team:t3"]));
    assert_eq!(reasons(&entries), ["8: topic: \"Yellow\" is not in its table"]);
}

#[test]
fn events_of_a_rest_interface_are_told_in_order() {
    let entries = entries("match-events-json", include_bytes!("documents/match-events.json"));
    let events = events(&entries);
    assert_eq!(events.len(), 2, "{:?}", reasons(&entries));
    assert_eq!(events[0]["id"], "f:215662-Goal-25-42-6126");
    let goal = json!({
        "minute": 25, "added": 0, "player": "F. Andrada", "assist": "B. Saka", "team": "Arsenal", "home": "Arsenal", "away": "Everton"
    });
    assert_eq!(events[0]["params"], goal);
    assert_eq!(events[1]["params"]["added"], 2);
    assert_eq!(events[1]["topic"], "red-card");
    assert_eq!(
        reasons(&entries),
        ["7: topic: \"Card:Yellow Card\" is not in its table", "8: wrong params.player: the entry has no value for it"]
    );
}

#[test]
fn an_alert_goes_to_the_areas_it_names() {
    let entries = entries("cap", include_bytes!("documents/cap.xml"));
    let events = events(&entries);
    assert_eq!(events.len(), 1, "{:?}", reasons(&entries));
    assert_eq!(events[0]["id"], "f:warnings@weather.example,SE-2026-1124-0007");
    assert_eq!(events[0]["subjects"], json!(["area:se224", "area:12-80", "alert:severe-thunderstorm"]));
    assert_eq!(events[0]["ttl"], 75 * 60);
    assert_eq!(events[0]["params"]["text"], "Stay inside. Keep away from <windows>.");
    assert_eq!(events[0]["params"]["area"], "Malmö and Lund");
    assert_eq!([&events[0]["urgency"], &events[0]["priority"]], ["high", "high"]);
    let exercise = String::from_utf8_lossy(include_bytes!("documents/cap.xml")).replace("Actual", "Exercise");
    let skipped = self::entries("cap", exercise.as_bytes());
    assert_eq!(reasons(&skipped), ["2: when[1]: `cap:status` is \"Exercise\"; it must be \"Actual\""]);
}

#[test]
fn news_of_every_format_have_the_same_names() {
    let entries = entries("news", include_bytes!("documents/news-rss2.xml"));
    let rss = events(&entries);
    assert_eq!(rss.len(), 1);
    assert_eq!(rss[0]["id"], "f:news-1");
    assert_eq!(rss[0]["params"]["title"], "Win & party: 2–1 again");
    assert_eq!(rss[0]["params"]["summary"], "Two late goals decided the game.");
    assert_eq!(rss[0]["subjects"], json!(["news:all", "news:first-team", "news:results"]));
    assert_eq!(
        rss[0]["present"],
        json!({"link": "https://club.example/1?a=1&b=2", "image": "https://club.example/1.jpg"})
    );
    let why = reasons(&entries);
    assert!(why[0].starts_with("18: age_max: it was published at 2026-11-02T07:00:00Z"), "{why:?}");
    assert_eq!(why[1], "23: wrong params.title: the entry has no value for it");

    let atom = events(&self::entries("news", include_bytes!("documents/news-atom.xml")));
    assert_eq!(atom[0]["params"], json!({"title": "Win & party", "summary": "Two late goals."}));
    assert_eq!(atom[0]["present"]["link"], "https://club.example/1");
    assert_eq!(atom[0]["subjects"], json!(["news:all", "news:first-team"]));

    let rdf = events(&self::entries("news", include_bytes!("documents/news-rss1.xml")));
    assert_eq!(rdf[0]["id"], "f:https://club.example/1");
    assert_eq!(rdf[0]["params"]["title"], "Win");
}
