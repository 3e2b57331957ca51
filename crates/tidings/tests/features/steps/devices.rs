//! What devices ask for and are spared, who may change them, and how long they are kept.

use cucumber::{given, then, when};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::PhoneName;
use crate::backend::{Backend, Refusal};
use crate::server::{BACKEND_KEY, VAULT_KEY};
use crate::wait::{PATIENCE, until};
use crate::world::World;

const CREDENTIAL: &str = "x-device-credential";
/// The import that the features speak of.
const IMPORT: &str = "/v1/imports?name=move";

async fn must(backend: &Backend, method: Method, path: &str, body: Option<&Value>) -> Value {
    let shown = format!("{method} {path}");
    backend.ask(method, path, body).await.unwrap_or_else(|refusal| panic!("{shown}: {refusal:?}"))
}

async fn mute(world: &mut World, phone: &str, scope: &str, body: Value) {
    let backend = world.backend().await;
    must(&backend, Method::PUT, &format!("/v1/devices/{}/mutes/{scope}", world.phone(phone).id), Some(&body)).await;
}

#[given(expr = "{phone} has muted everything")]
async fn muted(world: &mut World, phone: PhoneName) {
    mute(world, &phone, "everything", json!({})).await;
}

#[given(expr = "{phone} has muted {string}")]
async fn muted_subject(world: &mut World, phone: PhoneName, subject: String) {
    mute(world, &phone, &subject, json!({})).await;
}

#[given(expr = "{phone} has muted everything for {int} second(s)")]
async fn muted_for(world: &mut World, phone: PhoneName, seconds: u64) {
    mute(world, &phone, "everything", json!({ "for": seconds })).await;
}

#[when(expr = "the mute of {phone} is over")]
async fn mute_is_over(world: &mut World, phone: PhoneName) {
    let backend = world.backend().await;
    let path = format!("/v1/devices/{}/mutes", world.phone(&phone).id);
    let ended = async || must(&backend, Method::GET, &path, None).await["mutes"].as_array()?.is_empty().then_some(());
    until("the mute is over", PATIENCE, ended).await;
}

#[when(expr = "{phone} registers with the token of {phone}")]
async fn takes_token(world: &mut World, phone: PhoneName, other: PhoneName) {
    let token = world.phone(&other).token.clone();
    world.register(&phone, |phone| phone.token = token).await;
}

#[then(expr = "the server cannot reach {phone} any more")]
async fn not_reached(world: &mut World, phone: PhoneName) {
    assert!(!world.backend().await.can_reach(world.phone(&phone)).await);
}

#[then(expr = "the token of {phone} is that of {phone}")]
async fn token_of(world: &mut World, phone: PhoneName, owner: PhoneName) {
    let body = json!({ "platform": "ios", "token": world.phone(&phone).token });
    let found = must(&world.backend().await, Method::POST, "/v1/tokens/lookup", Some(&body)).await;
    assert_eq!(found["id"], world.phone(&owner).id.as_str());
}

#[when(expr = "two back ends read {phone}, and both change its language")]
async fn both_change(world: &mut World, phone: PhoneName) {
    let backend = world.backend().await;
    let path = format!("/v1/devices/{}", world.phone(&phone).id);
    let mut device = world.phone(&phone).registration();
    // A tag that every device had once: the first change makes it an old one.
    device["locale"] = json!("sv");
    let absent = backend.ask_with(Method::PUT, &path, ("if-none-match", "*"), Some(&device)).await;
    assert_eq!(absent.expect_err("it is there").status, 412);
    let tag = absent_tag(&backend, &path, &device).await;
    let first = backend.ask_with(Method::PUT, &path, ("if-match", &tag), Some(&device)).await;
    first.expect("nobody has changed it since");
    device["locale"] = json!("pl");
    world.refusal = backend.ask_with(Method::PUT, &path, ("if-match", &tag), Some(&device)).await.err();
}

/// The tag that a device has now, as the refusal of a wrong one tells it.
async fn absent_tag(backend: &Backend, path: &str, device: &Value) -> String {
    let refused = backend.ask_with(Method::PUT, path, ("if-match", "\"none\""), Some(device)).await;
    let detail = refused.expect_err("no device has it").detail;
    detail.rsplit(' ').next().expect("the tag stands last").to_owned()
}

#[then("the first change holds and the second is refused")]
async fn first_holds(world: &mut World) {
    let refusal = world.refusal.take().expect("the second is refused");
    assert_eq!((refusal.status, refusal.kind.as_str()), (412, "urn:tidings:problem:precondition-failed"));
    let devices = must(&world.backend().await, Method::GET, "/v1/devices", None).await;
    assert_eq!(devices["devices"][0]["locale"], "sv");
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

async fn try_to_subscribe(world: &mut World, app: &str, phone: &str, topic: &str, subject: &str) {
    let body = json!({ "subscriptions": [{ "subject": subject, "topics": [topic] }] });
    let path = format!("/v1/devices/{}/subscriptions", world.phone(phone).id);
    let caller = world.caller(None).await;
    let shown = (CREDENTIAL, world.phone(app).credential.as_str());
    world.refusal = caller.ask_with(Method::POST, &path, shown, Some(&body)).await.err();
}

#[when(expr = "the app of {phone} subscribes it to {string} of {string}")]
async fn app_subscribes(world: &mut World, phone: PhoneName, topic: String, subject: String) {
    try_to_subscribe(world, &phone, &phone, &topic, &subject).await;
    assert!(world.refusal.is_none(), "{:?}", world.refusal);
}

#[when(expr = "the app of {phone} tries to subscribe {phone} to {string} of {string}")]
async fn app_tries(world: &mut World, app: PhoneName, phone: PhoneName, topic: String, subject: String) {
    try_to_subscribe(world, &app, &phone, &topic, &subject).await;
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
    let caller = world.caller(None).await;
    let phone = world.phone(&phone).clone();
    let path = format!("/v1/devices/{}", phone.id);
    let mut answered = 0;
    for _ in 0..count {
        match caller.ask_with(Method::GET, &path, (CREDENTIAL, &phone.credential), None).await {
            Ok(_) => answered += 1,
            Err(refusal) => world.refusal = Some(refusal),
        }
    }
    assert!(answered >= 1, "some are answered");
}

#[then("some are refused, with the time after which to ask again")]
async fn too_fast(world: &mut World) {
    let refusal = world.refusal.take().expect("some are refused");
    assert_eq!((refusal.status, refusal.kind.as_str()), (429, "urn:tidings:problem:rate-limited"));
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

async fn done(backend: &Backend) -> u64 {
    match backend.ask(Method::GET, "/v1/imports/move", None).await {
        Ok(progress) => progress["lines"].as_u64().expect("a number"),
        Err(Refusal { status: 404, .. }) => 0,
        Err(refusal) => panic!("asking for the import is refused: {refusal:?}"),
    }
}

#[given(expr = "an import of {int} phones subscribed to {string} of {string} has come halfway")]
async fn halfway(world: &mut World, count: usize, topic: String, subject: String) {
    let all = lines(count, &topic, &subject);
    let half = &all[..all.len() / 2];
    let addr = world.server().await.addr();
    let mut socket = TcpStream::connect(addr).await.expect("the server listens");
    let head = format!(
        "POST {IMPORT} HTTP/1.1\r\nhost: a\r\nx-api-key: {BACKEND_KEY}\r\ncontent-length: {}\r\n\r\n{half}",
        all.len()
    );
    socket.write_all(head.as_bytes()).await.expect("the server reads");
    let backend = world.backend().await;
    until("a part is done", PATIENCE, async || (done(&backend).await > 0).then_some(())).await;
    assert!(done(&backend).await < count as u64 / 2 + 1);
    world.import = Some((all, Some(socket)));
}

#[given(expr = "an import of {int} phones subscribed to {string} of {string} is done")]
async fn imported(world: &mut World, count: usize, topic: String, subject: String) {
    let all = lines(count, &topic, &subject);
    let told = world.backend().await.lines(Method::POST, IMPORT, all.clone()).await;
    assert_eq!(told.last().expect("an end")["done"], true, "{told:?}");
    world.import = Some((all, None));
}

#[when("the import goes on")]
async fn goes_on(world: &mut World) {
    let backend = world.backend().await;
    let done = done(&backend).await;
    assert!(done > 0, "what was done is remembered");
    let (all, _) = world.import.as_ref().expect("there is one");
    let rest = all.lines().skip(done as usize).map(|line| format!("{line}\n")).collect();
    let told = backend.lines(Method::POST, &format!("{IMPORT}&from={done}"), rest).await;
    assert_eq!(told.last().expect("an end")["done"], true, "{told:?}");
}

#[then(expr = "exactly these {int} phones are there")]
async fn exactly_these(world: &mut World, count: usize) {
    let found = world.caller(Some(VAULT_KEY)).await.lines(Method::GET, "/v1/export", String::new()).await;
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
    let kept = must(&world.backend().await, Method::GET, &format!("/v1/users/{user}/export"), None).await;
    assert_eq!(kept["user"], user);
    world.seen = kept["devices"].as_array().expect("a list").clone();
}

#[then(expr = "that is {phone} and {phone}")]
async fn that_is(world: &mut World, one: PhoneName, other: PhoneName) {
    let found: Vec<&Value> = world.seen.iter().map(|device| &device["id"]).collect();
    assert_eq!(found, [world.phone(&one).id.as_str(), world.phone(&other).id.as_str()]);
}

#[then("that is nothing")]
async fn that_is_nothing(world: &mut World) {
    assert!(world.seen.is_empty(), "{:?}", world.seen);
}

#[when(expr = "the backend forgets the user {string}")]
async fn forgets_user(world: &mut World, user: String) {
    must(&world.backend().await, Method::DELETE, &format!("/v1/users/{user}"), None).await;
}

#[then(expr = "{phone} is still known")]
async fn still_known(world: &mut World, phone: PhoneName) {
    must(&world.backend().await, Method::GET, &format!("/v1/devices/{}", world.phone(&phone).id), None).await;
}

#[when(expr = "the backend asks what {string} means")]
async fn explains(world: &mut World, selector: String) {
    let body = json!({ "selector": selector });
    world.seen = vec![must(&world.backend().await, Method::POST, "/v1/audience/explain", Some(&body)).await];
}

#[then(expr = "it means {int} of {int} devices: {string} {int} and {string} {int}")]
async fn means(world: &mut World, count: u64, of: u64, one: String, first: u64, other: String, second: u64) {
    let told = &world.seen[0];
    assert_eq!((&told["devices"], &told["of"]), (&json!(count), &json!(of)));
    let parts = told["tree"]["parts"].as_array().expect("it has parts");
    let parts: Vec<(&Value, &Value)> = parts.iter().map(|part| (&part["text"], &part["devices"])).collect();
    assert_eq!(parts, [(&json!(one), &json!(first)), (&json!(other), &json!(second))]);
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
    let backend = world.backend().await;
    let alarm = async || {
        let metrics = backend.metrics().await;
        let mut lines = metrics.lines().filter(|line| line.starts_with("tidings_sender_environment_alarm{"));
        lines.any(|line| line.ends_with(" 1")).then_some(())
    };
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
    let told = world.backend().await.lines(Method::POST, IMPORT, device.to_string()).await;
    assert_eq!(told.last().expect("an end")["created"], 1, "{told:?}");
}

#[then("the server forgets the imported phone")]
async fn forgets(world: &mut World) {
    let backend = world.backend().await;
    let gone = async || {
        let asked = backend.ask(Method::GET, "/v1/devices/imported-00000", None).await;
        asked.is_err_and(|refusal| refusal.status == 404).then_some(())
    };
    until("it is forgotten", PATIENCE, gone).await;
}
