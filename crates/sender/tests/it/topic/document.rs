//! The examples of `docs/payload.md` are what the server makes.
//!
//! A block ```` ```json event locale=pl ```` is an event; the block ```` ```json payload ```` behind it is what a device
//! of that locale gets. The conformance tests hold the same blocks against the schema.

use serde_json::{Value, json};
use tidings_types::{Event, Platform};

use super::{locale, topics};

const DOCUMENT: &str = include_str!("../../../../../docs/payload.md");

/// The words after each opening fence, and what the block holds.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut pieces = DOCUMENT.split("\n```");
    pieces.next();
    let mut blocks = Vec::new();
    while let (Some(block), Some(_)) = (pieces.next(), pieces.next()) {
        blocks.push(block.split_once('\n').unwrap());
    }
    blocks
}

/// The event as the API reads it: what is left out has its default.
fn event(text: &str) -> Event {
    let mut fields: Value = serde_json::from_str(text).unwrap();
    for (name, default) in [("push", json!("always")), ("ttl", json!(3600))] {
        fields.as_object_mut().unwrap().entry(name).or_insert(default);
    }
    serde_json::from_value(fields).unwrap()
}

#[test]
fn the_examples_of_the_document_are_what_is_sent() {
    let blocks = blocks();
    let mut checked = 0;
    for (index, (words, text)) in blocks.iter().enumerate() {
        let Some(name) = words.strip_prefix("json event locale=") else { continue };
        let (event, (next, expected)) = (event(text), blocks[index + 1]);
        assert_eq!(next, "json payload", "behind the event {}", event.id);
        topics().check(&event).unwrap();
        let made: Value =
            serde_json::from_slice(&topics().preview(&event, Platform::Ios, &locale(name), None).unwrap()).unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(made, expected, "event {}: {made:#}", event.id);
        checked += 1;
    }
    let payloads = blocks.iter().filter(|(words, _)| *words == "json payload").count();
    assert_eq!((checked, payloads), (5, 5), "every payload of the document stands behind its event");
}
