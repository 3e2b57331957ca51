//! Sources that hold events as they are: each message is an event as `POST /v1/events` takes it, and needs no mapping.
//!
//! A message may leave out the event's `id`. Then the id is made from the source's name and the message's own number, so it
//! is the same whenever the message comes again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::IgnoredAny;

use crate::door::{Door, Patience, Verdict};
use crate::status::{Counts, Report, Tracker, WrongEntry};

/// The most messages that are published at a time.
pub const MESSAGE_COUNT_MAX: usize = 256;
/// The most bytes of an event.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// A message.
pub(crate) struct Message {
    /// Its number in the source, which no other message has.
    pub(crate) number: u64,
    /// The event, in JSON.
    pub(crate) json: Vec<u8>,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its event is durable.
    Sent,
    /// It will never be an event, for this reason.
    Wrong(String),
}

/// What a source of messages needs, apart from the messages.
#[derive(Clone)]
pub(crate) struct Desk {
    /// The operator's name of the source.
    pub(crate) name: String,
    pub(crate) door: Arc<dyn Door>,
    pub(crate) tracker: Arc<Tracker>,
}

impl Desk {
    /// Publishes the messages in their order, and waits while the store takes nothing. Says what became of each.
    ///
    /// # Cancel safety
    /// Dropped: the events are published or not, and may be published again.
    pub(crate) async fn publish(&self, messages: &[Message]) -> Vec<Fate> {
        let read: Vec<Result<String, String>> =
            messages.iter().map(|message| with_id(&message.json, &self.name, message.number)).collect();
        let events: Vec<String> = read.iter().flatten().cloned().collect();
        let verdicts = match events.is_empty() {
            true => Vec::new(),
            false => {
                let published = Patience::Wait.publish(&*self.door, events, &self.tracker).await;
                published.expect("who waits does not give up")
            }
        };
        let mut verdicts = verdicts.into_iter();
        let mut counts = Counts::default();
        let mut fate = |event: Result<String, String>| match event.map(|_| verdicts.next().expect("one for each event"))
        {
            Ok(Verdict::Accepted) => {
                counts.sent += 1;
                Fate::Sent
            }
            Ok(Verdict::Repeated) => {
                counts.repeated += 1;
                Fate::Sent
            }
            Ok(Verdict::Conflict) => Fate::Wrong("an event with this id and other content was accepted before".into()),
            Ok(Verdict::Refused { field, detail }) if field.is_empty() => Fate::Wrong(detail),
            Ok(Verdict::Refused { field, detail }) => Fate::Wrong(format!("{field}: {detail}")),
            Err(reason) => Fate::Wrong(reason),
        };
        let fates: Vec<Fate> = read.into_iter().map(&mut fate).collect();
        let mut report = Report { counts, ..Report::default() };
        for (message, fate) in messages.iter().zip(&fates) {
            if let Fate::Wrong(reason) = fate {
                let wrong = WrongEntry { at: format!("message {}", message.number), reason: reason.clone() };
                report.note_wrong(self.tracker.note_wrong(wrong));
            }
        }
        self.tracker.count(report.counts);
        self.tracker.count_bytes(messages.iter().map(|message| message.json.len() as u64).sum());
        self.tracker.worked(Some(report.counts));
        fates
    }
}

/// The event as an object with an id; its own one, if it has any. What else may be wrong with it, the door finds.
fn with_id(json: &[u8], source: &str, number: u64) -> Result<String, String> {
    let text = std::str::from_utf8(json).map_err(|_| "it is not UTF-8".to_owned())?;
    let fields: BTreeMap<String, IgnoredAny> =
        serde_json::from_str(text).map_err(|error| format!("it is not a JSON object: {error}"))?;
    if fields.contains_key("id") {
        return Ok(text.to_owned());
    }
    let (_, rest) = text.split_once('{').expect("it is an object");
    let comma = if fields.is_empty() { "" } else { "," };
    Ok(format!("{{\"id\":\"{source}-{number}\"{comma}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_an_id_gets_the_one_of_its_message() {
        let id = |text: &str| {
            let event = with_id(text.as_bytes(), "orders", 7)?;
            serde_json::from_str::<serde_json::Value>(&event).map(|event| event["id"].clone()).map_err(|_| event)
        };
        assert_eq!(id(r#" { "topic": "goal" } "#).unwrap(), "orders-7");
        assert_eq!(id("{}").unwrap(), "orders-7");
        assert_eq!(id(r#"{"a":{"id":"no"},"id":"own"}"#).unwrap(), "own");
        for wrong in ["", "[]", "7", "{", r#"{"a":1} {"b":2}"#] {
            assert!(id(wrong).unwrap_err().starts_with("it is not a JSON object"), "{wrong}");
        }
        assert_eq!(with_id(b"\xff", "orders", 7).unwrap_err(), "it is not UTF-8");
    }
}
