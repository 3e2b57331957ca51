//! What a kill leaves of work that it broke off: devices, pauses, and events that are scheduled for later.

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use crate::hand::Hand;
use crate::wave::{RESIDENT, remove};

/// Removes whatever does not stay.
pub(crate) async fn clear(hand: &mut Hand) -> Result<(), String> {
    let mut left = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(hand, &format!("/v1/devices?limit=1000{after}")).await?;
        left.extend(texts(&page, "devices", "id").filter(|id| !id.starts_with(RESIDENT)));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    remove(hand, left).await?;
    for id in texts(&get(hand, "/v1/events?state=scheduled&limit=1000").await?, "events", "id") {
        // One that is due meanwhile is released, and cannot be cancelled when all have been told.
        let _ = hand.send(Method::DELETE, &format!("/v1/events/{id}"), Bytes::new()).await;
    }
    for scope in texts(&get(hand, "/v1/brakes").await?, "brakes", "scope") {
        hand.send(Method::DELETE, &format!("/v1/brakes/{scope}"), Bytes::new()).await?;
    }
    Ok(())
}

async fn get(hand: &mut Hand, path: &str) -> Result<Value, String> {
    Ok(hand.send(Method::GET, path, Bytes::new()).await?.json())
}

/// This field of each entry of a list.
fn texts(page: &Value, list: &str, field: &str) -> impl Iterator<Item = String> + use<> {
    let entries = page[list].as_array().cloned().unwrap_or_default();
    let field = field.to_owned();
    entries.into_iter().filter_map(move |entry| entry[&field].as_str().map(str::to_owned))
}
