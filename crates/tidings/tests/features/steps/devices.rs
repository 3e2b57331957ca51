//! What devices ask for and are spared, who may change them, and how long they are kept.

use cucumber::{given, then, when};
use serde_json::{Value, json};

use super::PhoneName;
use crate::backend::Meaning;
use crate::phone::Subscription;
use crate::server::VAULT_KEY;
use crate::wait::{PATIENCE, until};
use crate::world::World;

async fn mute(world: &mut World, phone: &str, scope: &str, seconds: Option<u64>) {
    let backend = world.backend().await;
    backend.mute(world.phone(phone), scope, seconds).await;
}

#[given(expr = "{phone} has muted everything")]
async fn muted(world: &mut World, phone: PhoneName) {
    mute(world, &phone, "everything", None).await;
}

#[given(expr = "{phone} has muted {string}")]
async fn muted_subject(world: &mut World, phone: PhoneName, subject: String) {
    mute(world, &phone, &subject, None).await;
}

#[given(expr = "{phone} has muted everything for an hour")]
async fn muted_for_an_hour(world: &mut World, phone: PhoneName) {
    mute(world, &phone, "everything", Some(3600)).await;
}

#[when(expr = "{phone} has muted everything for 1 second instead")]
async fn muted_for_a_second(world: &mut World, phone: PhoneName) {
    mute(world, &phone, "everything", Some(1)).await;
}

#[when(expr = "{phone} has muted {string} no longer")]
async fn unmuted_subject(world: &mut World, phone: PhoneName, subject: String) {
    world.backend().await.unmute(world.phone(&phone), &subject).await;
}

#[when(expr = "the mute of {phone} is over")]
async fn mute_is_over(world: &mut World, phone: PhoneName) {
    let (backend, phone) = (world.backend().await, world.phone(&phone));
    until("the mute is over", PATIENCE, async || (!backend.is_muted(phone).await).then_some(())).await;
}

#[when(expr = "{phone} registers with the token of {phone}")]
async fn takes_token(world: &mut World, phone: PhoneName, other: PhoneName) {
    assert!(world.backend().await.can_reach(world.phone(&other)).await, "{other} was never reached");
    let token = world.phone(&other).token.clone();
    world.register(&phone, |phone| phone.token = token).await;
}

#[then(expr = "the server cannot reach {phone} any more")]
async fn not_reached(world: &mut World, phone: PhoneName) {
    assert!(!world.backend().await.can_reach(world.phone(&phone)).await);
}

#[then(expr = "the token of {phone} is that of {phone}")]
async fn token_of(world: &mut World, phone: PhoneName, owner: PhoneName) {
    let found = world.backend().await.owner_of_token(world.phone(&phone)).await;
    assert_eq!(found, world.phone(&owner).id);
}

#[when(expr = "two back ends read {phone}, and both change its language")]
async fn both_change(world: &mut World, phone: PhoneName) {
    let (backend, mut phone) = (world.backend().await, world.phone(&phone).clone());
    phone.locale = "sv".to_owned();
    let absent = backend.register_new(&phone).await;
    assert_eq!(absent.expect_err("it is there").status, 412);
    let tag = backend.tag(&phone).await;
    backend.change_tagged(&phone, &tag).await.expect("nobody has changed it since");
    phone.locale = "pl".to_owned();
    world.refusal = backend.change_tagged(&phone, &tag).await.err();
}

#[then(expr = "the first change of {phone} holds and the second is refused")]
async fn first_holds(world: &mut World, phone: PhoneName) {
    let refusal = world.refusal.take().expect("the second is refused");
    assert_eq!((refusal.status, refusal.kind.as_str()), (412, "urn:tidings:problem:precondition-failed"));
    assert_eq!(world.backend().await.language(world.phone(&phone)).await, "sv");
}

#[given(expr = "apps may call for themselves and subscribe to {string}")]
async fn apps(world: &mut World, pattern: String) {
    world.settings += &format!("[apps]\nenabled = true\nsubjects = [\"{pattern}\"]\n");
}

#[given(expr = "apps may call for themselves and subscribe to {string}, {int} times at once")]
async fn slow_apps(world: &mut World, pattern: String, burst: u32) {
    apps(world, pattern).await;
    world.settings += &format!("[limits]\napp_per_second = 1\napp_burst = {burst}\n");
}

async fn try_to_subscribe(world: &mut World, app: &str, phone: &str, topic: String, subject: String) {
    let (caller, credential) = (world.app_caller().await, &world.phone(app).credential);
    let tried = caller.try_to_subscribe(credential, world.phone(phone), &Subscription { subject, topic }).await;
    world.refusal = tried.err();
}

#[when(expr = "the app of {phone} subscribes it to {string} of {string}")]
async fn app_subscribes(world: &mut World, phone: PhoneName, topic: String, subject: String) {
    try_to_subscribe(world, &phone, &phone, topic, subject).await;
    assert!(world.refusal.is_none(), "{:?}", world.refusal);
}

#[when(expr = "the app of {phone} tries to subscribe {phone} to {string} of {string}")]
async fn app_tries(world: &mut World, app: PhoneName, phone: PhoneName, topic: String, subject: String) {
    try_to_subscribe(world, &app, &phone, topic, subject).await;
}

#[then("it is refused as if there were no such phone")]
async fn refused_as_unknown(world: &mut World) {
    let refusal = world.refusal.take().expect("it is refused");
    assert_eq!(refusal.status, 404, "{refusal:?}");
}

#[then("the app is refused")]
async fn app_refused(world: &mut World) {
    let refusal = world.refusal.take().expect("it is refused");
    assert_eq!(refusal.status, 403, "{refusal:?}");
}

#[when(expr = "the app of {phone} asks {int} times without a pause")]
async fn asks_often(world: &mut World, phone: PhoneName, count: usize) {
    let (caller, phone) = (world.app_caller().await, world.phone(&phone).clone());
    let mut answered = 0;
    for _ in 0..count {
        match caller.look_at_itself(&phone).await {
            Ok(()) => answered += 1,
            Err(refusal) => world.refusal = Some(refusal),
        }
    }
    assert!(answered >= 1, "some are answered");
}

#[then("some are refused, with the time after which to ask again")]
async fn too_fast(world: &mut World) {
    let refusal = world.refusal.take().expect("some are refused");
    assert_eq!((refusal.status, refusal.kind.as_str()), (429, "urn:tidings:problem:rate-limited"));
    assert!(refusal.retry_after.is_some_and(|seconds| seconds > 0), "{refusal:?}");
}

/// The lines of an import, in the order of the ids.
fn lines(count: usize, topic: &str, subject: &str) -> String {
    let line = |number: usize| {
        json!({
            "id": format!("imported-{number:05}"), "platform": "android", "token": format!("token-{number}"),
            "app": "com.example.app", "locale": "en",
            "subscriptions": [{ "subject": subject, "topics": [topic] }],
        })
    };
    (0..count).map(|number| format!("{}\n", line(number))).collect()
}

#[given(expr = "an import of {int} phones subscribed to {string} of {string} has come halfway")]
async fn halfway(world: &mut World, count: usize, topic: String, subject: String) {
    let all = lines(count, &topic, &subject);
    let backend = world.backend().await;
    let connection = backend.import_half(&all).await;
    until("a part is done", PATIENCE, async || (backend.imported().await > 0).then_some(())).await;
    assert!(backend.imported().await < count as u64 / 2 + 1);
    world.import = Some((all, Some(connection)));
}

#[given(expr = "an import of {int} phones subscribed to {string} of {string} is done")]
async fn imported(world: &mut World, count: usize, topic: String, subject: String) {
    let all = lines(count, &topic, &subject);
    world.backend().await.import(all.clone()).await;
    world.import = Some((all, None));
}

#[when("the import goes on")]
async fn goes_on(world: &mut World) {
    let backend = world.backend().await;
    let done = backend.imported().await;
    assert!(done > 0, "what was done is remembered");
    let (all, _) = world.import.as_ref().expect("there is one");
    let rest = all.lines().skip(done as usize).map(|line| format!("{line}\n")).collect();
    backend.import_rest(done, rest).await;
}

#[then(expr = "exactly these {int} phones are there")]
async fn exactly_these(world: &mut World, count: usize) {
    let found = world.caller(Some(VAULT_KEY)).await.export().await;
    let (all, _) = world.import.as_ref().expect("there is one");
    let expected: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).expect("ours")).collect();
    assert_eq!((found.len(), expected.len()), (count, count));
    for (found, expected) in found.iter().zip(&expected) {
        for (name, value) in expected.as_object().expect("an object") {
            assert_eq!(&found[name], value, "{name} of {}", expected["id"]);
        }
    }
}

#[then(expr = "{int} phones would be told of a {string} about {string}")]
async fn would_be_told(world: &mut World, count: u64, topic: String, subject: String) {
    assert_eq!(world.backend().await.count(&topic, &subject).await.total, count);
}

#[given(expr = "the server notes all it has in memory every {int} changes")]
async fn checkpoints(world: &mut World, count: u64) {
    world.settings += &format!("[store]\ncheckpoint_change_count = {count}\n");
}

#[when("the operator makes a backup")]
async fn back_up(world: &mut World) {
    world.server().await.back_up();
}

#[when("the server loses its disk and is restored")]
async fn restore(world: &mut World) {
    world.server().await.restore().await;
}

#[when(expr = "the backend asks for all that is kept of the user {string}")]
async fn asks_for_user(world: &mut World, user: String) {
    world.kept = Some(world.backend().await.kept_of(&user).await);
}

#[then(expr = "that is {phone} and {phone}")]
async fn that_is(world: &mut World, one: PhoneName, other: PhoneName) {
    let expected = [world.phone(&one).id.clone(), world.phone(&other).id.clone()];
    assert_eq!(world.kept.take().expect("the backend has asked"), expected);
}

#[then("that is nothing")]
async fn that_is_nothing(world: &mut World) {
    assert_eq!(world.kept.take().expect("the backend has asked"), Vec::<String>::new());
}

#[when(expr = "the backend forgets the user {string}")]
async fn forgets_user(world: &mut World, user: String) {
    world.backend().await.forget_user(&user).await;
}

#[then(expr = "{phone} is still known")]
async fn still_known(world: &mut World, phone: PhoneName) {
    assert!(world.backend().await.knows_device(&world.phone(&phone).id).await, "{phone} is forgotten");
}

#[when(expr = "the backend asks what {string} means")]
async fn explains(world: &mut World, selector: String) {
    world.meaning = Some(world.backend().await.explain(&selector).await);
}

#[then(expr = "it means {int} of {int} devices: {string} {int} and {string} {int}")]
async fn means(world: &mut World, count: u64, of: u64, one: String, first: u64, other: String, second: u64) {
    let expected = Meaning { count, of, parts: vec![(one, first), (other, second)] };
    assert_eq!(world.meaning.as_ref(), Some(&expected));
}

#[when(expr = "the backend tells of a {string} about {string} to those of {string}")]
async fn tells_selected(world: &mut World, topic: String, subject: String, selector: String) {
    let event = world.event(&topic, &subject).for_selected(&selector);
    world.tell(event).await;
}

#[given(expr = "tokens that the provider does not know are doubted for {int} second(s)")]
async fn doubted(world: &mut World, seconds: u64) {
    world.settings += &format!("[sender]\ndoubt_window = \"{seconds}s\"\n");
}

#[given("the provider knows no token")]
async fn knows_none(world: &mut World) {
    world.provider.know_no_token();
}

#[then("the operator is alarmed that all is of another world")]
async fn alarmed(world: &mut World) {
    world.settle().await;
    let backend = world.leader().await; // Each server has metrics of its own.
    let alarm = async || backend.is_alarmed_of_another_world().await.then_some(());
    until("the alarm is raised", PATIENCE, alarm).await;
}

#[then(expr = "all {int} phones are pushed that")]
async fn all_pushed(world: &mut World, count: u64) {
    world.settle().await;
    let told = world.last_told().id.clone();
    assert_eq!(world.provider.told_of(&told).len() as u64, count);
}

#[given(expr = "phones that were not seen for {int} days are forgotten")]
async fn expire(world: &mut World, days: u32) {
    world.settings += &format!("[store]\ndevice_idle_max = \"{days}d\"\n");
}

#[given(expr = "a phone that was last seen in {int} is imported")]
async fn import_old(world: &mut World, year: u32) {
    let mut device: Value = serde_json::from_str(&lines(1, "goal", "team:42")).expect("one line");
    device["seen_at"] = json!(format!("{year}-01-01T00:00:00Z"));
    let told = world.backend().await.import(device.to_string()).await;
    assert_eq!(told["created"], 1, "{told}");
    world.import = Some((device.to_string(), None));
}

#[then("the server forgets the imported phone")]
async fn forgets(world: &mut World) {
    assert!(world.import.is_some(), "a phone that was never there is not forgotten");
    let backend = world.backend().await;
    let gone = async || (!backend.knows_device("imported-00000").await).then_some(());
    until("it is forgotten", PATIENCE, gone).await;
}
