//! What the backend hears of the end of events.

use cucumber::{given, then, when};

use crate::wait::{PATIENCE, until};
use crate::world::World;

#[given("the backend wants to hear when an event is done")]
async fn wants_to_hear(world: &mut World) {
    world.open_ear().await;
}

#[given("the backend cannot hear for now")]
async fn cannot_hear(world: &mut World) {
    world.ear().go_down();
}

#[when("the server has tried to reach the backend")]
async fn has_tried(world: &mut World) {
    let ear = world.ear();
    until("the backend is called", PATIENCE, async || (ear.missed() > 0).then_some(())).await;
}

#[when("the backend can hear again")]
async fn can_hear(world: &mut World) {
    world.ear().recover();
}

#[then(expr = "the backend hears that it is done, with {int} phone(s) pushed")]
async fn hears(world: &mut World, count: u64) {
    let event = world.last_told().id.clone();
    let ear = world.ear();
    let report = until("the backend hears that it is done", PATIENCE, async || ear.reports(&event).pop()).await;
    assert_eq!(report.pushed, count, "{report:?}");
}

#[then("the backend has heard of it once")]
async fn heard_once(world: &mut World) {
    let event = world.last_told().id.clone();
    let last = world.event("goal", "nobody:0").push("never");
    world.tell(last).await;
    let ear = world.ear();
    let later = world.last_told().id.clone();
    until("the backend hears of a later event", PATIENCE, async || ear.reports(&later).pop()).await;
    assert_eq!(ear.reports(&event).len(), 1);
}
