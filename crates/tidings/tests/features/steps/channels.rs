//! What backends do with channels and connections by Centrifugo's server API.

use std::collections::{BTreeMap, BTreeSet};

use cucumber::{then, when};

use super::Person;
use crate::wait::{PATIENCE, until};
use crate::world::World;

#[when(expr = "the backend subscribes {person} to {string}")]
async fn subscribes(world: &mut World, person: Person, channel: String) {
    world.backend().await.bring_in(&person.to_lowercase(), &channel).await;
}

#[when(expr = "the backend unsubscribes {person} from {string}")]
async fn unsubscribes(world: &mut World, person: Person, channel: String) {
    world.backend().await.take_out(&person.to_lowercase(), &channel).await;
}

#[when(expr = "the backend disconnects {person}")]
async fn disconnects(world: &mut World, person: Person) {
    world.backend().await.send_away(&person.to_lowercase()).await;
}

#[when(expr = "the backend publishes about the teams {string}, {string} and {string} in {string}")]
async fn publishes_three(world: &mut World, one: String, two: String, three: String, channel: String) {
    let backend = world.backend().await;
    for (index, team) in [one, two, three].into_iter().enumerate() {
        backend.publish(&channel, &format!("publication-{}", index + 1), Some(&team), None).await;
    }
}

#[when(expr = "the backend publishes {int} times in {string}")]
async fn publishes(world: &mut World, count: usize, channel: String) {
    let backend = world.backend().await;
    for number in 1..=count {
        backend.publish(&channel, &format!("publication-{number}"), None, None).await;
    }
}

#[when(expr = "{int} positions of {int} things are published in {string}")]
async fn positions_are_published(world: &mut World, count: usize, things: usize, channel: String) {
    let backend = world.backend().await;
    for number in 1..=count {
        let thing = (number % things).to_string();
        let name = format!("thing-{thing} at {number}");
        backend.publish_position(&channel, &thing, &name).await;
        world.positions.insert(thing, name);
    }
    world.position_count = count;
}

#[then(expr = "{person}'s app has the newest position of each thing")]
async fn has_newest(world: &mut World, person: Person) {
    let newest: BTreeSet<String> = world.positions.values().cloned().collect();
    let count = world.position_count;
    let last = newest.iter().find(|name| name.ends_with(&format!(" at {count}"))).expect("positions were published");
    let events = world.app(&person).events_until(last).await;
    assert!(events.len() < count, "a slow line carries less than everything: {} of {count}", events.len());
    let mut of_things: BTreeMap<&str, &String> = BTreeMap::new();
    for event in &events {
        let (thing, _) = event.split_once(' ').expect("the thing comes first");
        of_things.insert(thing, event);
    }
    assert_eq!(of_things.into_values().cloned().collect::<BTreeSet<_>>(), newest);
}

/// The second time with another name, to tell the two apart.
#[when(expr = "the backend publishes in {string}, and again under the same key as nobody answered")]
async fn publishes_again(world: &mut World, channel: String) {
    let backend = world.backend().await;
    backend.publish(&channel, "publication-0", None, Some("key-1")).await;
    backend.publish(&channel, "publication-0-again", None, Some("key-1")).await;
}

#[then(expr = "the backend finds {string} and {string} in {string}")]
async fn finds(world: &mut World, one: String, other: String, channel: String) {
    assert_eq!(world.backend().await.present(&channel).await, [one, other]);
}

#[then(expr = "the backend finds only {string} in {string}")]
async fn finds_one(world: &mut World, one: String, channel: String) {
    let backend = world.backend().await;
    let is_so = async || (backend.present(&channel).await == [one.as_str()]).then_some(());
    until(&format!("only {one} is in {channel}"), PATIENCE, is_so).await;
}

#[then(expr = "the last {int} of {string} are the publications {int} and {int}")]
async fn last_are(world: &mut World, count: usize, channel: String, one: usize, other: usize) {
    let expected = [one, other].map(|number| format!("publication-{number}"));
    assert_eq!(world.backend().await.last_in(&channel, count).await, expected);
}
