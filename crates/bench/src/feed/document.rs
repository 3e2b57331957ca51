//! The documents of `bench feed`: XML as providers of match data send it, made by us, and the mappings that read it.
//!
//! An entry has about 430 bytes: attributes, nested elements, texts, entities, and a name that is not ASCII. Every entry
//! is different, and [`Document::event`] says which event each must become.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Entries of a match. A real match has about 1 700.
const MATCH_ENTRIES: usize = 1500;
/// Elements around the innermost text of an entry, itself included: `feed`, `match`, `event`, `comment`.
pub(super) const COMMENT_DEPTH: usize = 4;
/// Elements of an entry: `event`, `player`, `qualifiers`, two `q`, `comment`.
const ENTRY_ELEMENTS: u64 = 6;

/// Every entry becomes an event.
pub(super) const EVERY_ENTRY: &str = r#"
kind = "xml"
entries = "/feed/match/event"
id = "{@id}"
topic = "{@type}"
subjects = ["match:{/feed/match/@id}", "team:{@team}"]
ttl = "30m"
params.home = "{/feed/match/@home}"
params.away = "{/feed/match/@away}"
params.player = "{player}"
params.minute = { from = "{@minute}", as = "integer", plus = 1 }
data.at = { from = "{@at}", as = "datetime" }
data.x = { from = "{@x}", as = "decimal" }
data.foot = "{qualifiers/q[@id='9']/@value}"
data.comment = "{comment}"
"#;

/// Two of fifty entries become events: goals and red cards. The others are skipped.
pub(super) const FEW_ENTRIES: &str = r#"
[[when]]
path = "@type"
one_of = ["goal", "red-card"]
"#;

/// The types of entries, in turns.
fn topic(number: usize) -> &'static str {
    match number % 50 {
        7 => "goal",
        31 => "red-card",
        0 | 20 | 40 => "shot",
        _ => "pass",
    }
}

/// Whether an entry becomes an event with [`FEW_ENTRIES`].
pub(super) fn is_chosen(number: usize) -> bool {
    matches!(topic(number), "goal" | "red-card")
}

/// A document, and what is known about it.
pub(super) struct Document {
    pub(super) bytes: Vec<u8>,
    pub(super) entries: usize,
    /// Elements around the innermost text.
    pub(super) depth: usize,
}

impl Document {
    /// At least so many bytes, and whole entries. The text of each entry's comment is this deep, at least
    /// [`COMMENT_DEPTH`].
    pub(super) fn new(bytes: usize, depth: usize) -> Self {
        let nested = depth - COMMENT_DEPTH;
        let (opened, closed) = ("<b>".repeat(nested), "</b>".repeat(nested));
        let mut text = String::with_capacity(bytes + 4096);
        text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed provider=\"bench\">\n");
        let mut entries = 0;
        while text.len() < bytes {
            let number = entries / MATCH_ENTRIES;
            let _ = writeln!(
                text,
                " <match id=\"{number}\" competition=\"8\" home=\"Ärla &amp; Örn {number}\" away=\"Vega\" season=\"2026\">"
            );
            for _ in 0..MATCH_ENTRIES {
                push_entry(&mut text, entries, &opened, &closed);
                entries += 1;
                if text.len() >= bytes {
                    break;
                }
            }
            text.push_str(" </match>\n");
        }
        text.push_str("</feed>\n");
        Self { bytes: text.into_bytes(), entries, depth }
    }

    /// All elements.
    pub(super) fn elements(&self) -> u64 {
        let (matches, nested) = (self.entries.div_ceil(MATCH_ENTRIES), self.depth - COMMENT_DEPTH);
        1 + matches as u64 + self.entries as u64 * (ENTRY_ELEMENTS + nested as u64)
    }

    /// The event that an entry must become, counted from 0.
    pub(super) fn event(number: usize) -> Value {
        let (which, minute, second) = (number / MATCH_ENTRIES, minute(number), number % 60);
        json!({
            "id": format!("bench:{}", id(number)),
            "topic": topic(number),
            "subjects": [format!("match:{which}"), format!("team:{}", number % 40)],
            "params": {
                "home": format!("Ärla & Örn {which}"), "away": "Vega", "player": player(number), "minute": minute + 1,
            },
            "data": {
                "at": format!("2026-11-24T20:{:02}:{second:02}.123Z", minute % 60),
                "x": x(number),
                "foot": "left foot",
                "comment": format!("{minute}:{second:02} – {} passes & moves “on”", player(number)),
            },
            "ttl": "30m",
        })
    }
}

fn id(number: usize) -> usize {
    2_487_614_262 + number
}

fn minute(number: usize) -> usize {
    number / 17 % 90
}

fn player(number: usize) -> String {
    format!("Jack O'Neill {}", number % 1000)
}

/// Never a whole number, which would be another value of JSON.
fn x(number: usize) -> f64 {
    f64::from((number % 1000) as u16) / 8.0 + 0.0625
}

fn push_entry(text: &mut String, number: usize, opened: &str, closed: &str) {
    let (id, topic, minute, second, team) = (id(number), topic(number), minute(number), number % 60, number % 40);
    let (x, player) = (x(number), player(number).replace('\'', "&apos;"));
    let _ = write!(
        text,
        "  <event id=\"{id}\" type=\"{topic}\" minute=\"{minute}\" second=\"{second}\" team=\"{team}\" period=\"1\" \
         outcome=\"1\" x=\"{x}\" y=\"48.4\" at=\"2026-11-24T20:{:02}:{second:02}.123Z\" version=\"1479513502001\">\n   \
         <player id=\"{team}{team}\" number=\"9\">{player}</player>\n   \
         <qualifiers>\n    <q id=\"56\">Center</q>\n    <q id=\"9\" value=\"left foot\"/>\n   </qualifiers>\n   \
         <comment>{opened}{minute}:{second:02} &#8211; {player} passes &amp; moves “on”{closed}</comment>\n  </event>\n",
        minute % 60
    );
}
