//! The back end that publishes: into channels that clients follow, and into a durable one whose answers are timed.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tidings_trial::raw::{HOME, backend_request, exchange, last_line};
use tokio::time::Instant;

use crate::API_KEY;
use crate::hand::{Hand, Timed, World};

/// [`BATCH`] publications so often: 250 a second.
const PACE: Duration = Duration::from_millis(40);
const BATCH: u64 = 10;
const TIMED_PACE: Duration = Duration::from_millis(50);
/// How long the names of fresh channels stay.
const TERM: Duration = Duration::from_secs(5);
/// Channels of each kind (fresh or steady, in memory or durable).
const CHANNELS: u64 = 6;
/// One publication of each batch is large and goes there, for readers that are to become too slow.
pub(crate) const FLOOD: &str = "live:flood";
const FLOOD_BYTES: usize = 48 << 10; // Also on a busy machine, more than the buffers of sockets hold in `STALL`.

/// A channel that is there all the time.
pub(crate) fn steady_channel(number: u64) -> String {
    format!("{}:steady-{}", namespace(number), number / 2 % CHANNELS)
}

/// A channel of this term.
pub(crate) fn fresh_channel(world: &World, number: u64) -> String {
    let term = world.began.elapsed().as_secs() / TERM.as_secs();
    format!("{}:fresh-{term}-{}", namespace(number), number / 2 % CHANNELS)
}

fn namespace(number: u64) -> &'static str {
    if number.is_multiple_of(2) { "live" } else { "kept" }
}

/// Publishes batches, each over a connection of its own.
pub(crate) async fn batches(mut hand: Hand) -> Result<(), String> {
    let mut batch = 0;
    while hand.turn(PACE).await {
        let commands = json!({ "commands": publications(&hand.world, batch) });
        let request = backend_request(API_KEY, "POST", "/api/batch", &commands);
        match exchange(hand.world.addr, HOME, &request).await {
            Ok((200, answer)) if !last_line(&answer).contains("\"error\"") => {}
            Ok((status, answer)) => return Err(format!("publishing is answered {status} {}", last_line(&answer))),
            Err(error) => return Err(format!("publishing is not answered: {error}")),
        }
        hand.world.deeds.did("publication", BATCH);
        batch += 1;
    }
    Ok(())
}

/// The commands of one batch.
fn publications(world: &World, batch: u64) -> Vec<Value> {
    let small = (1..BATCH).map(|index| {
        let number = batch * BATCH + index;
        let channel = if batch.is_multiple_of(2) { steady_channel(number) } else { fresh_channel(world, number) };
        let kind = if number.is_multiple_of(3) { "goal" } else { "corner" };
        let data = json!({ "match": "the same text in all of them, so that a delta is short", "number": number });
        json!({ "publish": { "channel": channel, "data": data, "tags": { "kind": kind } } })
    });
    let large = json!({ "publish": { "channel": FLOOD, "data": "x".repeat(FLOOD_BYTES) } });
    [large].into_iter().chain(small).collect()
}

/// Publishes one after the other into a durable channel, and notes how long each took.
pub(crate) async fn timed(mut hand: Hand) -> Result<(), String> {
    while hand.turn(TIMED_PACE).await {
        let number = hand.world.next();
        let publication =
            json!({ "channel": "kept:timed", "data": number, "idempotency_key": format!("timed-{number}") });
        let began = Instant::now();
        let answer = hand.ask("timed publication", Method::POST, "/api/publish", Some(&publication)).await?;
        hand.world.note(Timed::Publication, began.elapsed());
        if answer["result"]["offset"].is_null() {
            return Err(format!("a publication is answered {answer}"));
        }
    }
    Ok(())
}
