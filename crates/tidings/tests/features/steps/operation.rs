//! What befalls server and provider.

use cucumber::{given, then, when};
use serde_json::json;
use tidings_telemetry::unix_now;

use super::{PhoneName, PlaceName};
use crate::server::AUDITOR_KEY;
use crate::wait::{PATIENCE, until};
use crate::world::World;

#[given("the server is running")]
async fn running(world: &mut World) {
    world.server().await;
}

#[given("three servers work together")]
async fn three(world: &mut World) {
    world.start_three().await;
}

#[given(expr = "the backend uses {place}")]
#[when(expr = "the backend uses {place}")]
async fn backend_uses(world: &mut World, place: PlaceName) {
    world.backend_place = Some(place.into());
}

#[when("the server that leads dies")]
async fn leader_dies(world: &mut World) {
    world.server().await.die().await;
}

#[when("the server that leads is stopped for an upgrade")]
async fn leader_is_stopped(world: &mut World) {
    world.server().await.stop().await;
}

#[when("the server is killed and started again")]
async fn killed(world: &mut World) {
    world.server().await.kill_and_restart().await;
}

#[given("the provider takes everything but does not answer for now")]
async fn provider_silent(world: &mut World) {
    world.provider.fall_silent();
}

#[given("the provider cannot be reached for now")]
async fn provider_down(world: &mut World) {
    world.provider.go_down();
}

#[given("the provider refuses everything for now, as it is overloaded")]
async fn provider_overloaded(world: &mut World) {
    world.provider.be_overloaded();
}

#[given(expr = "the provider says that {phone} has removed the app")]
async fn provider_knows_it_gone(world: &mut World, phone: PhoneName) {
    world.phone(&phone);
    assert_eq!(world.phone_count(), 1, "it says so of all phones");
    world.provider.lose_all_apps();
}

#[when("the provider has refused it")]
async fn provider_has_refused(world: &mut World) {
    let provider = &world.provider;
    until("the provider refuses", PATIENCE, async || (provider.overload_count() > 0).then_some(())).await;
}

#[when(expr = "{phone} has got it")]
async fn phone_has_got_it(world: &mut World, phone: PhoneName) {
    world.first_push(&phone).await;
}

#[when("the time of the event is over")]
async fn event_is_over(world: &mut World) {
    let told = world.last_told();
    let over = told.at.saturating_add(told.ttl);
    until("the event's time is over", PATIENCE, async || (unix_now() > over).then_some(())).await;
}

#[when("the provider answers again")]
async fn provider_recovers(world: &mut World) {
    world.provider.recover();
}

#[when("the provider takes everything again")]
async fn provider_is_well(world: &mut World) {
    world.provider.be_well();
}

#[when(expr = "the server has noted that {phone} cannot be reached any more")]
async fn noted_that_gone(world: &mut World, phone: PhoneName) {
    let (backend, phone) = (world.backend().await, world.phone(&phone));
    until("the phone's token is forgotten", PATIENCE, async || (!backend.can_reach(phone).await).then_some(())).await;
}

#[then(expr = "the provider was asked once for {phone}")]
async fn asked_once(world: &mut World, phone: PhoneName) {
    let pushed = world.pushed(&phone).await;
    assert!(pushed.is_empty(), "it is not there, and was pushed");
    assert_eq!(world.provider.gone_count(), 1, "how often the provider had to say so");
}

#[then(expr = "the audit log says that {string} told of it, and to {int} devices")]
async fn audited(world: &mut World, who: String, count: u64) {
    let id = world.last_told().id.clone();
    let auditor = world.caller(Some(AUDITOR_KEY)).await;
    let look = async || auditor.audited("event.publish").await.into_iter().find(|entry| entry["ids"] == json!([id]));
    let entry = until("it stands in the log", PATIENCE, look).await;
    let said = (&entry["by"], &entry["who"], &entry["devices"], &entry["result"]);
    assert_eq!(said, (&json!("key"), &json!(who), &json!(count), &json!(202)), "{entry}");
}
