//! Events: at once, scheduled, cancelled, repeated; with ever new subjects, topics, texts and collapse keys. And documents of a
//! feed that changes.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use rand::RngExt as _;
use serde_json::{Value, json};
use tidings_api::Rfc3339;
use tidings_telemetry::unix_now;

use crate::hand::Hand;
use crate::provider::DataProvider;
use crate::setup::RESIDENT_COUNT;
use crate::wave::resident_id;

const PACE: Duration = Duration::from_millis(50);
const FEED_PACE: Duration = Duration::from_millis(300);
/// Entries of the feed's document.
const ENTRY_COUNT: u64 = 20;
/// One event in so many has a collapse key that others have, too.
const COLLAPSED_EVERY: u64 = 3;

pub(crate) async fn events(mut hand: Hand) -> Result<(), String> {
    while hand.turn(PACE).await {
        let number = hand.world.next();
        let event = event(&mut hand, number);
        match number % 5 {
            0 => schedule(&mut hand, event).await?,
            1 => cancel(&mut hand, event).await?,
            2 => repeat(&mut hand, event).await?,
            3 => pause(&mut hand, event).await?,
            _ => hand.ask("event at once", Method::POST, "/v1/events", Some(&event)).await.map(drop)?,
        }
    }
    Ok(())
}

/// One that nothing else looks like, with texts of its own.
fn event(hand: &mut Hand, number: u64) -> Value {
    let resident = hand.random.random_range(0..RESIDENT_COUNT);
    let key =
        if number.is_multiple_of(COLLAPSED_EVERY) { format!("score-{}", number % 7) } else { format!("key-{number}") };
    json!({
        "id": format!("event-{number}"),
        "topic": format!("topic-{number}"),
        "subjects": [format!("kept:event-{number}"), format!("team:{}", number % 1000)],
        "to": { "devices": [resident_id(resident)] },
        "text": { "und": { "title": format!("Number {number}"), "body": "It is so." }, "pl": { "title": "Raz", "body": "Tak." } },
        "collapse_key": key,
        "ttl": "30s",
        "data": { "number": number, "text": "x".repeat(hand.random.random_range(0..500)) },
    })
}

/// It goes out soon after, beside others.
async fn schedule(hand: &mut Hand, mut event: Value) -> Result<(), String> {
    let later = Duration::from_millis(hand.random.random_range(200..1500));
    event["at"] = json!(Rfc3339(unix_now().saturating_add(later)));
    hand.ask("event scheduled", Method::POST, "/v1/events", Some(&event)).await.map(drop)
}

async fn cancel(hand: &mut Hand, mut event: Value) -> Result<(), String> {
    event["at"] = json!(Rfc3339(unix_now().saturating_add(Duration::from_secs(3600))));
    hand.ask("event scheduled", Method::POST, "/v1/events", Some(&event)).await?;
    let path = format!("/v1/events/{}", event["id"].as_str().unwrap_or_default());
    hand.ask("event cancelled", Method::DELETE, &path, None).await.map(drop)
}

/// The second time it is known.
async fn repeat(hand: &mut Hand, event: Value) -> Result<(), String> {
    let first = hand.ask("event at once", Method::POST, "/v1/events", Some(&event)).await?;
    let second = hand.ask("event repeated", Method::POST, "/v1/events", Some(&event)).await?;
    let is_one = first["position"] == second["position"] && second["repeated"] == true;
    if is_one { Ok(()) } else { Err(format!("an event was {first}, and repeated {second}")) }
}

/// Its topic is paused while it is accepted.
async fn pause(hand: &mut Hand, event: Value) -> Result<(), String> {
    let path = format!("/v1/brakes/topic:{}", event["topic"].as_str().unwrap_or_default());
    hand.ask("pause", Method::PUT, &path, None).await?;
    hand.ask("event at once", Method::POST, "/v1/events", Some(&event)).await?;
    hand.ask("pause", Method::DELETE, &path, None).await.map(drop)
}

/// A document with ever new entries, which the server polls. It changes when it was read.
pub(crate) async fn feed(mut hand: Hand, provider: Arc<DataProvider>) -> Result<(), String> {
    while hand.turn(FEED_PACE).await {
        if provider.fetched() == 0 {
            continue;
        }
        let newest = hand.world.next();
        let entries = newest.saturating_sub(ENTRY_COUNT)..=newest;
        provider.put(entries.map(|entry| format!("{{\"id\": \"{entry}\"}}\n")).collect(), false);
    }
    Ok(())
}
