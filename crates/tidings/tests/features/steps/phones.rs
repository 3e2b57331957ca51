//! What is known of phones, and what they are pushed.

use cucumber::{given, then};
use tidings_types::Timestamp;

use super::PhoneName;
use crate::phone::are_one;
use crate::world::World;

#[given(expr = "{phone} is known")]
async fn known(world: &mut World, phone: PhoneName) {
    world.register(&phone, |_| ()).await;
}

#[given(expr = "{phone} is subscribed to {string} of {string}")]
async fn subscribed(world: &mut World, phone: PhoneName, topic: String, subject: String) {
    world.subscribe(&phone, topic, subject).await;
}

#[given(expr = "{phone} in the language {string} is subscribed to {string} of {string}")]
async fn subscribed_in_language(world: &mut World, phone: PhoneName, locale: String, topic: String, subject: String) {
    world.register(&phone, |phone| phone.locale = locale).await;
    world.subscribe(&phone, topic, subject).await;
}

#[given(expr = "{phone} in the language {string} and the time zone {string} is subscribed to {string} of {string}")]
async fn subscribed_in_zone(
    world: &mut World,
    phone: PhoneName,
    locale: String,
    zone: String,
    topic: String,
    subject: String,
) {
    world.register(&phone, |phone| (phone.locale, phone.time_zone) = (locale, Some(zone))).await;
    world.subscribe(&phone, topic, subject).await;
}

#[given(expr = "{phone} in {string} is subscribed to {string} of {string}")]
async fn subscribed_in_country(world: &mut World, phone: PhoneName, country: String, topic: String, subject: String) {
    world.register(&phone, |phone| phone.country = Some(country)).await;
    world.subscribe(&phone, topic, subject).await;
}

#[given(expr = "{phone} belongs to the user {string}")]
#[given(expr = "{phone} belongs to the user {string} now")]
async fn belongs(world: &mut World, phone: PhoneName, user: String) {
    world.register(&phone, |phone| phone.user = Some(user)).await;
}

#[given(expr = "{phone} does not let its app show notifications")]
async fn denied(world: &mut World, phone: PhoneName) {
    world.register(&phone, |phone| phone.permission = Some("denied".to_owned())).await;
}

#[given(expr = "{phone} has got a new credential")]
async fn new_credential(world: &mut World, phone: PhoneName) {
    world.renew_credential(&phone).await;
}

#[then(expr = "{phone} is pushed once")]
async fn pushed_once(world: &mut World, phone: PhoneName) {
    let pushed = world.pushed(&phone).await;
    assert_eq!(pushed.len(), 1, "{phone} was pushed {pushed:?}");
}

#[then(expr = "{phone} is pushed once within {int} seconds")]
async fn pushed_once_within(world: &mut World, phone: PhoneName, seconds: u64) {
    let pushed = world.pushed(&phone).await;
    assert_eq!(pushed.len(), 1, "{phone} was pushed {} times", pushed.len());
    let took = elapsed(world.last_told().at, pushed[0].at);
    assert!(took < seconds * 1000, "it took {took} ms");
}

#[then(expr = "{phone} is not pushed")]
async fn not_pushed(world: &mut World, phone: PhoneName) {
    let is_tried = !world.told.is_empty() || world.refusal.is_some() || world.count.is_some();
    assert!(is_tried, "without an event nobody is pushed");
    let pushed = world.pushed(&phone).await;
    assert!(pushed.is_empty(), "{phone} was pushed {pushed:?}");
}

#[then(expr = "{phone} is pushed again, and shows one notification")]
async fn pushed_again_and_shows_one(world: &mut World, phone: PhoneName) {
    let (pushed, shown) = (world.pushed(&phone).await, world.shown(&phone).await);
    assert!(pushed.len() > 1, "{phone} was pushed {} times", pushed.len());
    assert_eq!(shown.len(), 1, "{phone} was pushed {} times", pushed.len());
    assert!(are_one(&pushed), "{phone} was pushed {} different notifications", pushed.len());
}

#[then(expr = "{phone} was pushed {int} time(s) and shows {int} notification(s)")]
async fn pushed_and_shows(world: &mut World, phone: PhoneName, pushed: usize, shown: usize) {
    world.settle().await;
    assert_eq!((world.push_count(&phone), world.shown_count(&phone)), (pushed, shown));
}

/// That it is of the kind for this, and not urgent, is for the provider to judge: it would have refused it.
#[then(expr = "{phone} is woken once, and shows nothing")]
async fn woken(world: &mut World, phone: PhoneName) {
    let pushed = world.pushed(&phone).await;
    assert!(matches!(&pushed[..], [one] if !one.is_noticed), "{phone} was pushed {pushed:?}");
}

#[then(expr = "{phone} shows {string}")]
async fn shows(world: &mut World, phone: PhoneName, title: String) {
    let shown = world.shown(&phone).await;
    let titles: Vec<&str> = shown.iter().map(|notification| notification.title.as_str()).collect();
    assert_eq!(titles, [title.as_str()], "what {phone} shows");
}

#[then("it was not pushed before the wait for receipts was over")]
async fn not_pushed_early(world: &mut World) {
    let told = world.last_told();
    let wait = told.receipt_wait.as_millis();
    // The sentence before has said which phone, and that it was pushed.
    let earliest = world.provider.first_delivery().expect("somebody was pushed");
    let took = elapsed(told.at, earliest);
    assert!(u128::from(took) >= wait, "it was pushed after {took} ms, the wait is {wait} ms");
}

/// Milliseconds from one moment to a later one.
fn elapsed(from: Timestamp, to: Timestamp) -> u64 {
    to.as_millis().saturating_sub(from.as_millis())
}
