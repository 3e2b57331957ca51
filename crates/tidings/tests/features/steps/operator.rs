//! What the operator sees of jobs.

use cucumber::{then, when};
use serde_json::Value;

use super::sending::NEWSLETTER;
use crate::operator;
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
    assert!(minutes > 0.0 && minutes < 0.51, "{minutes} minutes");
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
