//! Feeds of a provider.

use std::collections::BTreeMap;

use cucumber::{given, then, when};

use super::PhoneName;
use crate::provider::DataProvider;
use crate::wait::{PATIENCE, until};
use crate::world::World;

const MAPPING: &str = r#"
kind = "ndjson"
id = "{id}"
topic = "goal"
subjects = ["match:1"]

[params]
team = { from = "{team}", required = true }
"#;

/// A line for each goal; "nobody" has shot one that is wrong.
fn document(goals: &str) -> String {
    let line = |id: &str| match id {
        "nobody" => format!("{{\"id\": \"{id}\"}}\n"),
        id => format!("{{\"id\": \"{id}\", \"team\": \"Sweden\"}}\n"),
    };
    goals.split(' ').map(line).collect()
}

#[given("a provider whose feed is polled")]
async fn polled(world: &mut World) {
    let provider = DataProvider::open().await;
    world.write("goals.toml", MAPPING);
    world.settings += &provider.settings();
    world.data_provider = Some(provider);
}

#[given("a feed that takes documents")]
async fn received(world: &mut World) {
    world.write("goals.toml", MAPPING);
    world.settings += "[feeds.goals]\nmapping = \"goals.toml\"\nreceived = true\n";
}

#[when(expr = "the feed has the goals {string}")]
async fn has(world: &mut World, goals: String) {
    put(world, document(&goals), false).await;
}

#[when(expr = "the feed breaks off behind the goals {string}")]
async fn breaks_off(world: &mut World, goals: String) {
    put(world, document(&goals) + "{\"id\": \"half", true).await;
}

/// The document is there until it was read to its end: until it is fetched a second time.
async fn put(world: &mut World, document: String, breaks_off: bool) {
    world.server().await;
    let provider = world.data_provider.as_ref().expect("a provider was spoken of");
    provider.put(document, breaks_off);
    until("the feed is read", PATIENCE, async || (provider.fetched() > 1).then_some(())).await;
}

/// It dies while it reads, each time at another place, and the feed has more each time.
#[when(expr = "the server is killed {int} times while the feed grows to {int} goals")]
async fn killed(world: &mut World, times: usize, count: usize) {
    for life in 1..=times {
        let goals = (1..=count * life / times).rev().map(|goal| goal.to_string()).collect::<Vec<_>>();
        world.server().await;
        let provider = world.data_provider.as_ref().expect("a provider was spoken of");
        provider.put(document(&goals.join(" ")), false);
        until("the feed is asked for", PATIENCE, async || (provider.fetched() > 0).then_some(())).await;
        world.server().await.kill_and_restart().await;
    }
    let provider = world.data_provider.as_ref().expect("a provider was spoken of");
    let fetched = provider.fetched();
    until("the feed is read", PATIENCE, async || (provider.fetched() > fetched + 1).then_some(())).await;
}

#[when(expr = "the provider posts the goals {string}")]
async fn posts(world: &mut World, goals: String) {
    world.backend().await.post_document(document(&goals)).await;
}

#[then(expr = "{int} goals of the feed were sent, each once")]
async fn sent(world: &mut World, count: usize) {
    world.settle().await; // Then every event has its job.
    let mut sent = BTreeMap::<String, usize>::new();
    for id in world.backend().await.jobs_of_feed().await {
        *sent.entry(id).or_default() += 1;
    }
    assert!(sent.len() == count && sent.values().all(|times| *times == 1), "{sent:?}");
}

#[then(expr = "{phone} shows {int} goals")]
async fn shows(world: &mut World, phone: PhoneName, count: usize) {
    until("the phone shows them", PATIENCE, async || (world.shown_count(&phone) >= count).then_some(())).await;
    world.settle().await;
    assert_eq!(world.shown_count(&phone), count);
}

#[then(expr = "the operator sees {int} wrong entry of the feed")]
async fn sees_wrong(world: &mut World, count: u64) {
    assert_eq!(world.backend().await.wrong_entries().await, count);
}
