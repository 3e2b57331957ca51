//! What goes before what, what holds it, and what became of it.

use std::time::Duration;

use cucumber::{given, then, when};
use serde_json::Value;
use tidings_simulator::{WebPushConfig, WebPushSimulator};
use tidings_telemetry::unix_now;

use super::PhoneName;
use crate::event::Event;
use crate::phone::{Crowd, Reach, Subscription};
use crate::server::SMALL_KEY;
use crate::wait::{PATIENCE, until};
use crate::world::World;

/// With 100 streams some 2000 notifications a second.
const SLOW_MS: u64 = 50;
pub(super) const NEWSLETTER: &str = "newsletter-1";
const OTHER_NEWSLETTER: &str = "newsletter-2";

#[given(expr = "{int} phones are subscribed to {string} of {string}")]
async fn crowd(world: &mut World, count: usize, topic: String, subject: String) {
    world.crowd = Some(Crowd { count, subscription: Subscription { subject, topic } });
}

#[given(expr = "a newsletter to {int} phones is on its way")]
async fn newsletter(world: &mut World, count: usize) {
    let subscription = Subscription { subject: "news:1".to_owned(), topic: "goal".to_owned() };
    world.crowd = Some(Crowd { count, subscription });
    world.provider.be_slow(SLOW_MS);
    world.tell(Event::new(NEWSLETTER, "goal", "news:1").priority("low")).await;
    let provider = &world.provider;
    until("the newsletter is on its way", PATIENCE, async || (provider.accepted_count() > 0).then_some(())).await;
}

#[given(expr = "the operator has paused {string}")]
async fn pauses(world: &mut World, scope: String) {
    world.backend().await.pause(&scope).await;
}

#[when(expr = "the operator resumes {string}")]
async fn resumes(world: &mut World, scope: String) {
    world.backend().await.resume(&scope).await;
}

#[given(expr = "the operator lets only {phone} be pushed")]
async fn shadow(world: &mut World, phone: PhoneName) {
    world.register(&phone, |_| ()).await;
    let id = &world.phone(&phone).id;
    world.settings = format!("[shadow]\nenabled = true\ndevices = [\"{id}\"]\n");
}

#[given(expr = "the operator lets {int} of a hundred phones be pushed")]
async fn shadow_percent(world: &mut World, percent: u8) {
    world.settings = format!("[shadow]\nenabled = true\npercent = {percent}\n");
}

#[given(expr = "{phone}, which its maker reaches, is subscribed to {string} of {string}")]
async fn browser(world: &mut World, phone: PhoneName, topic: String, subject: String) {
    let browsers = WebPushSimulator::start(WebPushConfig::default()).expect("the simulator starts");
    world.write("vapid.key", &browsers.vapid_key());
    world.write("browsers.pem", browsers.ca_pem());
    world.settings = format!(
        "[web_push.simulator]\nvapid_key_file = \"vapid.key\"\ncontact = \"mailto:ops@example.com\"\nca_file = \
         \"browsers.pem\"\nallowed_hosts = [\"localhost\"]\nallowed_ports = [{}]\nallow_private = true\napps = [\"{}\"]\n",
        browsers.addr().port(),
        crate::phone::APP
    );
    let subscription = browsers.subscribe(Some(&browsers.application_server_key())).expect("its own key is one");
    world.browsers = Some(browsers);
    world.server().await;
    world.register(&phone, |phone| phone.reach = Reach::Browser(subscription)).await;
    world.subscribe(&phone, topic, subject).await;
}

#[when(expr = "the backend tells of a {string} about {string} with priority {string}")]
async fn tells_with_priority(world: &mut World, topic: String, subject: String, priority: String) {
    let event = world.event(&topic, &subject).priority(&priority);
    world.tell(event).await;
}

#[when(expr = "the backend tells of the event {string} about {string} with collapse key {string}")]
async fn tells_key(world: &mut World, id: String, subject: String, key: String) {
    world.tell(Event::new(&id, "goal", &subject).collapse_key(&key)).await;
}

#[when(expr = "the backend tells of the event {string} about {string} and {string} with collapse key {string}")]
async fn tells_key_about_two(world: &mut World, id: String, one: String, other: String, key: String) {
    world.tell(Event::new(&id, "goal", &one).about(&[one.clone(), other]).collapse_key(&key)).await;
}

#[when(expr = "the backend tells of a {string} about {string} for {int} seconds from now")]
async fn tells_for_later(world: &mut World, topic: String, subject: String, seconds: u64) {
    world.server().await; // Starting it may take longer than that.
    let due = unix_now().saturating_add(Duration::from_secs(seconds));
    let event = world.event(&topic, &subject).at(due);
    world.tell(event).await;
    world.told.last_mut().expect("it was told").at = due;
}

#[when(expr = "the backend tells of a {string} about {string} and expects at most {int} to be told")]
async fn tells_and_expects(world: &mut World, topic: String, subject: String, count: u64) {
    let event = world.event(&topic, &subject).expect_at_most(count);
    world.try_to_tell(event).await;
}

#[when(expr = "a backend whose key reaches 10 devices at most tells of a {string} about {string}")]
async fn tells_with_small_key(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject);
    world.try_to_tell_as(Some(SMALL_KEY), event).await;
}

#[when(expr = "the backend tells of a {string} about {string} as a dry run")]
async fn tells_dry(world: &mut World, topic: String, subject: String) {
    let event = world.event(&topic, &subject).dry_run();
    world.tell(event).await;
}

#[when("the backend sends another newsletter to the same phones")]
async fn another_newsletter(world: &mut World) {
    world.tell(Event::new(OTHER_NEWSLETTER, "goal", "news:1").priority("low")).await;
}

#[when("the operator cancels it")]
async fn cancels(world: &mut World) {
    world.backend().await.cancel(NEWSLETTER).await;
}

#[when("the backend takes the event back")]
async fn takes_back(world: &mut World) {
    let id = world.last_told().id.clone();
    world.backend().await.cancel(&id).await;
    world.taken_back.insert(id);
}

#[then("the event is not known any more")]
async fn not_known(world: &mut World) {
    let id = world.last_told().id.clone();
    assert!(!world.backend().await.knows(&id).await);
}

#[then("the event is scheduled")]
async fn scheduled(world: &mut World) {
    let id = world.last_told().id.clone();
    assert_eq!(report(world, &id).await["state"], "scheduled");
}

#[when(expr = "the job of the event waits, paused by {string}")]
#[then(expr = "the job of the event waits, paused by {string}")]
async fn waits(world: &mut World, scope: String) {
    let id = world.last_told().id.clone();
    is_paused(world, &id, &scope).await;
}

#[then(expr = "the job of the first event waits, paused by {string}")]
async fn first_waits(world: &mut World, scope: String) {
    let id = world.told[0].id.clone();
    is_paused(world, &id, &scope).await;
}

async fn is_paused(world: &mut World, id: &str, scope: &str) {
    let backend = world.backend().await;
    let paused = async || {
        let report = backend.report(id).await?;
        (report["state"] == "paused").then(|| report["paused_by"].clone())
    };
    assert_eq!(until(&format!("event {id} is paused"), PATIENCE, paused).await, scope);
}

#[then("nobody has been pushed so far")]
async fn nobody(world: &mut World) {
    assert!(world.provider.first_delivery().is_none());
}

#[then("the job of the newsletter ends as cancelled")]
async fn ends_cancelled(world: &mut World) {
    let backend = world.backend().await;
    let ended = async || backend.report(NEWSLETTER).await.filter(|report| report["done_at"].is_string());
    let report = until("the newsletter is done", PATIENCE, ended).await;
    assert_eq!(report["state"], "cancelled");
    let outcome = |name: &str| report["outcomes"][name].as_u64().unwrap_or_default();
    assert!(outcome("cancelled") > 0, "{report}");
    assert_eq!(outcome("accepted") + outcome("cancelled") + outcome("unknown"), report["audience"].as_u64().unwrap());
}

#[then("no further phone is pushed")]
async fn no_further(world: &mut World) {
    let before = world.provider.accepted_count();
    world.settle().await;
    assert_eq!(world.provider.accepted_count(), before);
}

#[then(expr = "{phone} is pushed before the newsletter is through")]
async fn before_the_newsletter(world: &mut World, phone: PhoneName) {
    world.first_push(&phone).await;
    let report = report(world, NEWSLETTER).await;
    assert_eq!(report["state"], "running", "{report}");
}

/// Not just while the end of the first is under way: most of it is still to come.
#[then("both go out side by side")]
async fn side_by_side(world: &mut World) {
    let backend = world.backend().await;
    let accepted = async |id: &str| backend.report(id).await.and_then(|it| it["outcomes"]["accepted"].as_u64());
    let other = async || accepted(OTHER_NEWSLETTER).await.filter(|count| *count > 0);
    until("somebody has the other newsletter", PATIENCE, other).await;
    let audience = world.crowd.as_ref().expect("they were spoken of").count as u64;
    let first = accepted(NEWSLETTER).await.expect("it is on its way");
    assert!(first < audience * 3 / 4, "{first} of {audience} have the first one already");
}

#[then(expr = "{phone} is pushed once, with the event {string}")]
async fn pushed_with(world: &mut World, phone: PhoneName, event: String) {
    let pushed = world.pushed(&phone).await;
    let events: Vec<&str> = pushed.iter().map(|it| it.event.as_str()).collect();
    assert_eq!(events, [event.as_str()], "what {phone} was pushed");
}

#[then(expr = "{phone} is pushed once, and not before its time")]
async fn pushed_in_time(world: &mut World, phone: PhoneName) {
    let pushed = world.pushed(&phone).await;
    assert_eq!(pushed.len(), 1, "{phone} was pushed {pushed:?}");
    assert!(pushed[0].at >= world.last_told().at, "it came {:?}", pushed[0]);
}

#[then(expr = "the event {string} counts {int} device(s) as superseded")]
async fn counts_superseded(world: &mut World, id: String, count: u64) {
    world.settle().await;
    assert_eq!(report(world, &id).await["outcomes"]["superseded"], count);
}

#[then(expr = "the event counts {int} device(s) as suppressed for {string}")]
async fn counts_suppressed(world: &mut World, count: u64, why: String) {
    let report = finished(world).await;
    assert_eq!(report["outcomes"]["suppressed"][why.as_str()], count, "{report}");
}

#[then(expr = "the event counts {int} device(s) as accepted")]
async fn counts_accepted(world: &mut World, count: u64) {
    let report = finished(world).await;
    assert_eq!(report["outcomes"]["accepted"], count, "{report}");
}

#[then(expr = "the same phones are pushed each time, {int} to {int} of them")]
async fn the_same_each_time(world: &mut World, least: usize, most: usize) {
    world.settle().await;
    let all = world.crowd.as_ref().expect("they were spoken of").count;
    let told: Vec<_> = world.told_ids().iter().map(|id| world.provider.told_of(id)).collect();
    assert!((least..=most).contains(&told[0].len()), "{} of {all}", told[0].len());
    assert!(told.len() > 1 && told.iter().all(|phones| *phones == told[0]), "others are pushed the next time");
    for id in world.told_ids() {
        let report = report(world, &id).await;
        assert_eq!(report["outcomes"]["suppressed"]["shadow"], all - told[0].len(), "{report}");
    }
}

#[then(expr = "the event counts {int} device(s) as accepted in {string} and {int} in the language of the source")]
async fn counts_languages(world: &mut World, count: u64, locale: String, others: u64) {
    let report = finished(world).await;
    let parts = report["by"].as_array().expect("it was handed out");
    let accepted = |locale: Option<&str>| -> u64 {
        let is_it = |part: &&Value| part["locale"].as_str() == locale;
        parts.iter().filter(is_it).filter_map(|part| part["outcomes"]["accepted"].as_u64()).sum()
    };
    assert_eq!((accepted(Some(&locale)), accepted(None)), (count, others), "{report}");
    assert!(parts.iter().all(|part| part["provider"] == "apns" && part["app"] == crate::phone::APP), "{report}");
}

#[then(expr = "{phone} can read the goal, once")]
async fn browser_reads(world: &mut World, phone: PhoneName) {
    world.settle().await;
    let Reach::Browser(subscription) = &world.phone(&phone).reach else { panic!("{phone} is no browser") };
    let got = world.browsers.as_ref().expect("it was spoken of").ledger().for_address(subscription.endpoint.as_bytes());
    assert!(matches!(&got[..], [one] if one.count == 1 && one.title.as_deref() == Some("Goal for Sweden!")), "{got:?}");
}

async fn report(world: &mut World, id: &str) -> Value {
    world.backend().await.report(id).await.unwrap_or_else(|| panic!("event {id} is not known"))
}

async fn finished(world: &mut World) -> Value {
    world.settle().await;
    let id = world.last_told().id.clone();
    report(world, &id).await
}
