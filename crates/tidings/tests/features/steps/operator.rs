//! What the operator sees of jobs, texts and settings.

use cucumber::{given, then, when};
use serde_json::{Value, json};

use super::sending::NEWSLETTER;
use crate::operator;
use crate::server::{BACKEND_KEY, HISTORY_SIZE, TOKEN_SECRET};
use crate::wait::{PATIENCE, until};
use crate::world::World;

#[when("the operator watches it until it is done")]
async fn watches(world: &mut World) {
    let addr = world.server().await.addr();
    world.seen = operator::jobs(addr, &["watch", NEWSLETTER]).await;
}

#[then(expr = "the operator has seen it come to {int} phones, step by step")]
async fn saw_it_grow(world: &mut World, count: u64) {
    let accepted = |line: &Value| line["outcomes"]["accepted"].as_u64().expect("a count");
    let counts: Vec<u64> = world.seen.iter().map(accepted).collect();
    assert!(counts.len() > 2 && counts.is_sorted() && counts[0] < count, "{counts:?}");
    let last = world.seen.last().expect("there is one");
    assert_eq!((accepted(last), last["state"].as_str()), (count, Some("finished")), "{last}");
}

#[then(expr = "the operator sees it move on the screen, up to {int} phones")]
async fn sees_it_move(world: &mut World, count: u64) {
    let addr = world.server().await.addr();
    let shown = operator::jobs_on_screen(addr, &["watch", NEWSLETTER]).await;
    let moments = shown.matches(&format!("{NEWSLETTER}  running  ")).count();
    assert!(moments > 2 && shown.contains("\u{1b}["), "{shown:?}");
    let last = shown.lines().rev().find(|line| line.contains(NEWSLETTER)).expect("it is shown");
    assert!(last.contains(&format!("finished  {count}/{count} (100%)  accepted {count}")), "{last:?}");
}

#[then("the operator can have all jobs as lines, the newest first")]
async fn has_lines(world: &mut World) {
    world.settle().await;
    let addr = world.server().await.addr();
    let lines = operator::jobs(addr, &["export"]).await;
    let told = world.told_ids();
    let is_told = |line: &&Value| told.iter().any(|id| line["id"] == *id);
    let of_told: Vec<&Value> = lines.iter().filter(is_told).collect();
    assert!(told.len() > 1, "the order of fewer jobs says nothing");
    assert!(
        of_told.iter().map(|line| line["id"].as_str()).eq(told.iter().rev().map(|id| Some(id.as_str()))),
        "{lines:?}"
    );
    for line in of_told {
        let counts = [line, &line["by"][0]].map(|it| it["outcomes"]["accepted"].as_u64());
        assert_eq!(counts, [Some(1), Some(1)], "{line}");
        assert!(line["time_to"]["p50_ms"].is_u64() && line["done_at"].is_string(), "{line}");
    }
}

/// Less what has passed since the one before.
#[then("Google's quota lets the next one through in about half a minute")]
async fn half_a_minute(world: &mut World) {
    let count = world.count.as_ref().expect("the backend has asked");
    let minutes = count.minutes("fcm").expect("the quota is known");
    assert!(minutes > 0.1 && minutes < 0.51, "{minutes} minutes");
}

#[then("nobody knows yet how long Apple needs for it")]
async fn unknown(world: &mut World) {
    assert_eq!(world.count.as_ref().expect("the backend has asked").minutes("apns"), None);
}

/// From streams and the round trip of what was pushed before.
#[then(expr = "it is known how long Apple needs for a {string} about {string}")]
async fn known(world: &mut World, topic: String, subject: String) {
    let backend = world.backend().await;
    let minutes = async || backend.count(&topic, &subject).await.minutes("apns");
    let minutes = until("it is known", PATIENCE, minutes).await;
    assert!(minutes > 0.0 && minutes < 1.0, "{minutes} minutes for one phone on this machine");
}

#[when(expr = "the operator asks how a {string} for {string} is told in {string}")]
async fn asks_for_text(world: &mut World, topic: String, team: String, locale: String) {
    let words = ["preview", &topic, "--locale", &locale, "--set", &format!("team={team}"), "--json"];
    world.said = Some(world.server().await.run(&words));
}

#[then(expr = "the operator reads {string} in {string}")]
async fn reads(world: &mut World, title: String, locale: String) {
    let (is_done, said) = world.said.as_ref().expect("the operator has asked");
    assert!(is_done, "{said}");
    let texts: Value = serde_json::from_str(said).expect("texts by language");
    assert_eq!(texts[&locale]["title"], title, "{texts}");
}

#[when(expr = "the operator misspells {string} as {string} and checks the configuration")]
async fn misspells(world: &mut World, right: String, wrong: String) {
    let server = world.server().await;
    server.edit("tidings.toml", &right, &wrong);
    world.said = Some(server.run(&["config", "check", "--config", "tidings.toml"]));
}

#[then(expr = "the operator is told the line of {string}, and that {string} was meant")]
async fn told_the_line(world: &mut World, wrong: String, right: String) {
    let (is_good, said) = world.said.clone().expect("the operator has checked it");
    let text = world.server().await.text("tidings.toml");
    let line = 1 + text.lines().position(|line| line.contains(&wrong)).expect("it is there");
    let told = said
        .lines()
        .any(|told| told.contains(&format!("tidings.toml:{line}:")) && told.contains(&wrong) && told.contains(&right));
    assert!(!is_good && told, "{said}");
}

/// With the same secret and key as all others, so that apps and backends need not be told apart.
#[given(expr = "the server was started with a configuration of Centrifugo that has {string}")]
async fn imported(world: &mut World, odd: String) {
    let room = json!({
        "name": "room", "history_size": HISTORY_SIZE, "history_ttl": "1h", "force_recovery": true,
        "allow_subscribe_for_client": true,
    });
    let mut centrifugo = json!({
        "http_server": { "address": "127.0.0.1", "port": "0" },
        "http_api": { "key": BACKEND_KEY },
        "client": { "token": { "hmac_secret_key": TOKEN_SECRET } },
        "channel": { "namespaces": [room] },
    });
    let (section, name) = odd.split_once('.').expect("a section and a name");
    centrifugo[section] = json!({ name: "redis" });
    let said = world.start_imported(&centrifugo).await;
    world.said = Some((true, said));
}

#[then(expr = "the operator was told what to do about {string}")]
async fn told_to_do(world: &mut World, odd: String) {
    let (_, said) = world.said.as_ref().expect("something was imported");
    assert!(said.lines().any(|line| line.starts_with(&format!("warning: {odd}: "))), "{said}");
}

#[then("no secret stands in the new configuration, or was told")]
async fn no_secret(world: &mut World) {
    let (_, said) = world.said.clone().expect("something was imported");
    let text = world.server().await.text("tidings.toml");
    assert!(
        [TOKEN_SECRET, BACKEND_KEY].iter().all(|secret| !said.contains(secret) && !text.contains(secret)),
        "{said}"
    );
}
