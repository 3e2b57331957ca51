//! What backends tell and ask, and what they are answered.

use cucumber::{then, when};

use super::PhoneName;
use crate::backend::{Progress, Refusal};
use crate::event::Event;
use crate::server::{DEVICES_KEY, HISTORY_SIZE};
use crate::world::World;

#[when(expr = "the backend tells of a {string} about {string}")]
#[when(expr = "the backend tells of another {string} about {string}")]
async fn tells(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} and {string}")]
async fn tells_about_two(world: &mut World, topic: String, one: String, other: String) {
    let event = world.event(&topic, &one).about(&[one, other]);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} to the user {string}")]
async fn tells_user(world: &mut World, topic: String, subject: String, user: String) {
    let event = world.event(&topic, &subject).for_user(&user);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} to {phone}")]
async fn tells_phone(world: &mut World, topic: String, subject: String, phone: PhoneName) {
    let event = world.event(&topic, &subject).for_phone(world.phone(&phone));
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} only in {string}")]
async fn tells_country(world: &mut World, topic: String, subject: String, country: String) {
    let event = world.event(&topic, &subject).only_in(&country);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} with push {string}")]
async fn tells_with_push(world: &mut World, topic: String, subject: String, policy: String) {
    let event = world.event(&topic, &subject).push(&policy);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} with receipt policy {string}")]
async fn tells_with_policy(world: &mut World, topic: String, subject: String, policy: String) {
    let event = world.event(&topic, &subject).receipt_policy(&policy);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} and waits {int} seconds for receipts")]
async fn tells_and_waits(world: &mut World, topic: String, subject: String, seconds: u64) {
    let event = world.event(&topic, &subject).wait_for_receipts(seconds);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} that is worth telling for {int} second(s)")]
async fn tells_for_short(world: &mut World, topic: String, subject: String, seconds: u64) {
    let event = world.event(&topic, &subject).ttl(seconds);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} and wants to know who got it")]
async fn tells_and_asks(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject).ask_everybody();
    let id = event.id();
    world.tell(event).await;
    world.receipts = Some(world.backend().await.receipts(&id).await);
}

#[when(expr = "the backend tells of a(nother) {string} about {string} with collapse key {string}")]
async fn tells_with_collapse_key(world: &mut World, topic: String, subject: String, key: String) {
    let event = world.event(&topic, &subject).collapse_key(&key);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} silently")]
async fn tells_silently(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject).silent();
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} by {string}")]
async fn tells_by_whom(world: &mut World, topic: String, subject: String, team: String) {
    let event = world.event(&topic, &subject).by(&team);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a kick-off of {string} about {string} at {string} in the zone of each phone")]
async fn tells_of_kick_off(world: &mut World, team: String, subject: String, at: String) {
    let event = world.event("kick-off", &subject).kick_off(&team, &at, "device");
    world.tell(event).await;
}

#[when(expr = "the backend tells of a kick-off of {string} about {string} at {string} in the zone {string}")]
async fn tells_of_kick_off_in_zone(world: &mut World, team: String, subject: String, at: String, zone: String) {
    let event = world.event("kick-off", &subject).kick_off(&team, &at, &zone);
    world.try_to_tell(event).await;
}

#[when(expr = "the backend tells of {int} goals in a {string} about {string}")]
async fn tells_of_goals(world: &mut World, goals: u64, topic: String, subject: String) {
    let event = world.event(&topic, &subject).goals(goals);
    world.tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} of somebody whose gender is {string}")]
async fn tells_of_somebody(world: &mut World, topic: String, subject: String, gender: String) {
    let event = world.event(&topic, &subject).gender(&gender);
    world.tell(event).await;
}

#[when(
    expr = "the backend tells of a {string} about {string} with the text {string} in {string} and {string} in all others"
)]
async fn tells_in_own_words(
    world: &mut World,
    topic: String,
    subject: String,
    text: String,
    locale: String,
    others: String,
) {
    let event = world.event(&topic, &subject).text(&text, &locale, &others);
    world.tell(event).await;
}

#[when(expr = "the backend tells of {int} events about {string}")]
async fn tells_of_many(world: &mut World, count: usize, subject: String) {
    let events: Vec<Event> = (0..count).map(|_| world.event("goal", &subject)).collect();
    world.tell_all(&events).await;
}

#[when(expr = "the backend tells of more events about {string} than are kept")]
async fn tells_of_too_many(world: &mut World, subject: String) {
    tells_of_many(world, HISTORY_SIZE + 1, subject).await;
    world.server().await.until_all_have_read().await; // Who comes back to a server that is behind misses nothing.
}

#[when(expr = "the backend tells of the event {string} about {string}")]
async fn tells_by_id(world: &mut World, id: String, subject: String) {
    world.tell(Event::new(&id, "goal", &subject)).await;
}

#[when(expr = "the backend tells of the event {string} about {string} twice")]
async fn tells_twice(world: &mut World, id: String, subject: String) {
    for _ in 0..2 {
        world.tell(Event::new(&id, "goal", &subject)).await;
    }
}

#[when(expr = "the backend tells of another event {string} about {string}")]
async fn tells_another_by_id(world: &mut World, id: String, subject: String) {
    world.try_to_tell(Event::new(&id, "goal", &subject)).await;
}

#[when(expr = "the backend tells of a {string} about {string} without saying by whom")]
async fn tells_without_params(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject).without_params();
    world.try_to_tell(event).await;
}

#[when(expr = "the backend tells of a {string} about {string} with {int} bytes of data")]
async fn tells_with_data(world: &mut World, topic: String, subject: String, count: usize) {
    let event = world.event(&topic, &subject).data_bytes(count);
    world.try_to_tell(event).await;
}

#[when(expr = "the backend tells of an event about {int} subjects")]
async fn tells_about_many(world: &mut World, count: usize) {
    let subjects: Vec<String> = (1..=count).map(|number| format!("team:{number}")).collect();
    let event = world.event("goal", &subjects[0]).about(&subjects);
    world.try_to_tell(event).await;
}

#[when(expr = "the backend tells of a list with a right event about {string} and a wrong one")]
async fn tells_of_mixed_list(world: &mut World, subject: String) {
    let right = world.event("goal", &subject);
    let wrong = world.event("goal", &subject).without_params();
    world.try_to_tell_all(&[right, wrong]).await;
}

#[when(expr = "somebody without a key tells of a {string} about {string}")]
async fn stranger_tells(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject);
    world.try_to_tell_as(None, event).await;
}

#[when(expr = "a holder of the key for devices tells of a {string} about {string}")]
async fn other_tells(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject);
    world.try_to_tell_as(Some(DEVICES_KEY), event).await;
}

#[when(expr = "the backend asks who would be told of a {string} about {string}")]
async fn counts(world: &mut World, topic: String, subject: String) {
    world.count = Some(world.backend().await.count(&topic, &subject).await);
}

#[when(expr = "the backend logs {phone} out")]
async fn logs_out(world: &mut World, phone: PhoneName) {
    world.backend().await.log_out(world.phone(&phone)).await;
}

#[then(expr = "it is {int} devices, {int} in {string} and {int} in {string}")]
async fn is_so_many(world: &mut World, total: u64, one: u64, here: String, other: u64, there: String) {
    let count = world.count.as_ref().expect("the backend has asked");
    assert_eq!((count.total, count.in_country(&here), count.in_country(&there)), (total, one, other));
}

#[then(expr = "the backend learns that {int} of {int} connections got it")]
async fn learns_receipts(world: &mut World, received: u64, written: u64) {
    let receipts = world.receipts.as_ref().expect("the backend has asked");
    assert_eq!((receipts.received, receipts.written), (received, written), "got it, were written to: {receipts:?}");
}

#[then(expr = "it is told that these were {string} and {string}")]
async fn learns_users(world: &mut World, one: String, other: String) {
    assert_eq!(world.receipts.as_ref().expect("the backend has asked").users, [one, other]);
}

#[then(expr = "the event counts {int} device(s) as having received it")]
async fn counts_receipts(world: &mut World, count: u64) {
    assert_eq!(finished(world).await, Progress::Finished { received: count, expired: 0 });
}

#[then(expr = "the event counts {int} device(s) that it came too late for")]
async fn counts_expired(world: &mut World, count: u64) {
    assert_eq!(finished(world).await, Progress::Finished { received: 0, expired: count });
}

async fn finished(world: &mut World) -> Progress {
    world.settle().await;
    let id = world.last_told().id.clone();
    world.backend().await.progress(&id).await
}

#[then("it is refused as unauthorized")]
async fn unauthorized(world: &mut World) {
    assert_eq!(refused(world).await.status, 401);
}

#[then("it is refused as forbidden")]
async fn forbidden(world: &mut World) {
    assert_eq!(refused(world).await.status, 403);
}

#[then("the second is refused as a conflict")]
async fn conflict(world: &mut World) {
    let refusal = refused(world).await;
    assert_eq!((refusal.status, refusal.field.as_deref()), (409, Some("id")), "{refusal:?}");
}

#[then("the list is refused as a whole")]
async fn list_refused(world: &mut World) {
    let refusal = refused(world).await;
    let names_the_wrong_one = refusal.field.as_deref().is_some_and(|field| field.starts_with("[1]."));
    assert!(refusal.status == 400 && names_the_wrong_one, "{refusal:?}");
}

#[then(expr = "the event is refused, naming {string}")]
async fn refused_naming(world: &mut World, field: String) {
    let refusal = refused(world).await;
    let named = refusal.field.as_deref().is_some_and(|named| named == field || named.starts_with(&format!("{field}.")));
    assert!(refusal.status == 400 && named, "{refusal:?}");
}

#[then(expr = "the event is refused, naming {string}, {int} and {int}")]
async fn refused_naming_limit(world: &mut World, field: String, limit: u64, value: u64) {
    let refusal = refused(world).await;
    let named = (refusal.field.as_deref(), refusal.limit, refusal.value);
    assert_eq!(named, (Some(field.as_str()), Some(limit), Some(value)), "{refusal:?}");
}

#[then("the event is refused, naming the bytes")]
async fn refused_naming_bytes(world: &mut World) {
    let refusal = refused(world).await;
    let detail = &refusal.detail;
    assert!(refusal.status == 400 && detail.contains("bytes") && detail.contains("4096"), "{refusal:?}");
}

#[then("the event is refused, as its audience is not the expected one")]
async fn refused_unexpected(world: &mut World) {
    is_refused(&refused(world).await, 409, "unexpected-audience");
}

#[then("the event is refused, as its audience is too large")]
async fn refused_too_large(world: &mut World) {
    is_refused(&refused(world).await, 403, "audience-too-large");
}

fn is_refused(refusal: &Refusal, status: u16, kind: &str) {
    assert!(refusal.status == status && refusal.kind.ends_with(kind), "{refusal:?}");
    assert_eq!((refusal.limit, refusal.value), (Some(10), Some(1000)), "{refusal:?}");
}

/// Why the last one was refused. Nothing of what was refused is known to the server.
async fn refused(world: &mut World) -> Refusal {
    let refusal = world.refusal.clone().expect("the server has taken it");
    world.check_refused().await;
    refusal
}
