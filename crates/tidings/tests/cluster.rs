//! Faults of a cluster: real servers on real NATS servers, which stand still, are killed, are cut off, or lose what they had.
//!
//! Events are posted until they are acknowledged, at whichever server is ready: a standby passes them on. After each fault, the server that leads must have
//! each acknowledged event once, in the place that the answer named, and a durable channel must have each of them once and
//! without a gap (`tidings_trial::ledger`). What was asked and answered meanwhile is given to a foreign checker of linearizability
//! (`cluster/checker.rs`): posts always, and reads where no server may answer that does not know that another one leads. Times
//! are printed, never asserted.
//!
//! Several tests run side by side. `--show-output` prints the report of each as a whole; with `--nocapture` they mix.
//!
//! What clients of each server get while that happens: `cluster/serving.rs`.
//!
//! `NATS_SERVER` names the program nats-server, `PORCUPINE` the checker, `TIDINGS_BIN` the server (default: the one built with the tests). A plain
//! `cargo test` leaves it out (`test = false` in Cargo.toml).

#![expect(clippy::print_stdout, reason = "a report for whoever runs it")]

#[path = "cluster/checker.rs"]
mod checker;
#[path = "cluster/nodes.rs"]
mod nodes;
#[path = "cluster/serving.rs"]
mod serving;
#[path = "cluster/speaker.rs"]
mod speaker;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tidings_trial::brokers::Brokers;
use tidings_trial::caller::{STANDBY, readiness};
use tidings_trial::fleet::{Fleet, section};
use tidings_trial::launcher::Server;
use tidings_trial::ledger::Ledger;
use tidings_trial::process::Signal;
use tidings_trial::proxy::{Flow, Passing};
use tidings_trial::wait::until;
use tidings_trial::watcher::Watcher;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use checker::require_linearizable;
use nodes::{JOINING, LEASE_OVER, MATCH, configure, ledger, metric, plan, prepare, start, start_behind_proxies};

/// At most so many tests run at once, each with six servers of its own. `--test-threads` may make it fewer.
static PLACES: Semaphore = Semaphore::const_new(3);

/// A place among the tests that run.
async fn place() -> SemaphorePermit<'static> {
    PLACES.acquire().await.expect("it is never closed")
}

/// What the short proof has of all this.
#[tokio::test]
async fn smoke_a_cluster_whose_leader_is_killed_loses_nothing() {
    let _place = place().await;
    println!("the leader is killed, at a glance");
    let began = Instant::now();
    let mut cluster = start(3).await;
    let (addrs, first) = (cluster.addrs(), cluster.settle().await);
    println!("  three servers on three NATS servers serve after {:.1} s", began.elapsed().as_secs_f64());
    let standbys: Vec<_> = addrs.iter().copied().filter(|addr| *addr != addrs[first]).collect();
    let mut watchers = Vec::new();
    for (index, addr) in addrs.iter().enumerate() {
        let plan = plan(&format!("ada-{index}"), &[MATCH], *addr);
        watchers.push(Watcher::start(plan.returning(&standbys)).await);
    }
    let mut ledger = ledger(standbys);
    ledger.start();
    ledger.grow(100).await;

    cluster.nodes[first].kill();
    let killed = Instant::now();
    let second = cluster.leader_besides(Some(first)).await;
    println!("  another leads after {:.1} s", killed.elapsed().as_secs_f64());
    ledger.grow(100).await;
    ledger.finish().await;
    let history = ledger.judge(addrs[second]).await;
    for (index, watcher) in watchers.iter().enumerate() {
        watcher.must_have(MATCH, &history).await;
        assert_eq!(watcher.ends().is_empty(), index != first, "only the client of the killed server had to move");
        assert!(watcher.look(|seen| seen.channels[MATCH].recovered.iter().all(|recovered| *recovered)));
    }
    println!("  done after {:.1} s", began.elapsed().as_secs_f64());
}

#[tokio::test]
async fn a_cluster_goes_on_when_its_leader_stands_still() {
    let _place = place().await;
    println!("the leader stands still");
    let mut cluster = start(3).await;
    let mut ledger = ledger(cluster.addrs());
    ledger.start();
    ledger.grow(100).await;
    let first = cluster.leader_besides(None).await;
    let visitors = ledger.visitors(cluster.nodes[first].addr, 8).await;
    ledger.gap();

    cluster.nodes[first].signal(Signal::STOP);
    let stopped = Instant::now();
    let visits = ledger.visit(visitors);
    let second = cluster.leader_besides(Some(first)).await;
    println!("  another leads after {:.1} s", stopped.elapsed().as_secs_f64());
    ledger.grow(50).await; // By the other one: the lease of the one that stands still is over.
    cluster.nodes[first].signal(Signal::CONT);
    let woken = Instant::now();
    cluster.nodes[first].until_it_says(STANDBY).await;
    println!("  it stands by {:.1} s after it woke", woken.elapsed().as_secs_f64());
    println!("  {} of 8 posts that waited for it were acknowledged", ledger.settle(visits).await);
    ledger.grow(50).await;
    println!("  longest time without an acknowledgement: {:.1} s", ledger.gap());
    ledger.finish().await;
    ledger.judge(cluster.nodes[second].addr).await;
    require_linearizable(&ledger.history());
    cluster.move_to(first).await;
    ledger.judge(cluster.nodes[first].addr).await;
}

#[tokio::test]
async fn a_broker_that_loses_entries_stops_the_cluster_until_people_decide() {
    let _place = place().await;
    println!("NATS loses entries");
    let mut cluster = start(1).await;
    let ledger = ledger(cluster.addrs());
    let older = tempfile::tempdir().unwrap();
    ledger.post(50).await;
    keep_copy(&mut cluster.nats, older.path());
    ledger.post(50).await;
    let last = cluster.settle().await;
    cluster.until_all_have_read().await;
    lose_entries(&mut cluster, older.path());

    stays_lost(&mut cluster, &ledger).await;
    begin_anew(&mut cluster, last).await;
    ledger.judge(cluster.nodes[last].addr).await;
    ledger.post(50).await;
    cluster.nodes[last].kill();
    let other = cluster.leader_besides(Some(last)).await;
    ledger.post(50).await;
    ledger.judge(cluster.nodes[other].addr).await;
}

#[tokio::test]
async fn a_broker_that_loses_entries_stops_the_cluster_also_if_a_standby_has_not_read_them() {
    let _place = place().await;
    println!("NATS loses entries that a standby has not read");
    let mut cluster = start(1).await;
    let ledger = ledger(cluster.addrs());
    let older = tempfile::tempdir().unwrap();
    ledger.post(50).await;
    cluster.until_all_have_read().await;
    let behind = (cluster.leader_besides(None).await + 1) % 3;
    cluster.nodes[behind].signal(Signal::STOP);
    keep_copy(&mut cluster.nats, older.path());
    ledger.post(50).await;
    let others = [0, 1, 2].into_iter().filter(|index| *index != behind);
    let names: Vec<_> = others.map(|index| cluster.nodes[index].name().to_owned()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    cluster.until_they_have_read(&names).await;
    lose_entries(&mut cluster, older.path());
    for node in cluster.nodes.iter_mut().filter(|node| names.contains(&node.name())) {
        node.until_it_says("lost").await;
    }
    nobody_leads(&cluster, &ledger).await;
    cluster.nodes[behind].until_it_answers(503, STANDBY).await; // It does not lead without what was acknowledged.
}

/// Copies what NATS has now.
fn keep_copy(nats: &mut Brokers, folder: &Path) {
    nats.kill(0);
    copy(&nats.data(0), folder);
    nats.restart(0);
}

/// Kills everything, and starts it again with what NATS had when the copy was made.
fn lose_entries(cluster: &mut Fleet, folder: &Path) {
    cluster.nodes.iter_mut().for_each(Server::kill);
    cluster.nats.kill(0);
    fs::remove_dir_all(cluster.nats.data(0)).unwrap();
    copy(&folder.join("data"), &cluster.nats.data(0));
    cluster.nats.restart(0);
    cluster.nodes.iter_mut().for_each(|node| node.launch(&[]));
}

/// All servers say that they are lost, and none acknowledges anything, also when a lease would have ended.
async fn stays_lost(cluster: &mut Fleet, ledger: &Ledger) {
    let began = Instant::now();
    for node in &mut cluster.nodes {
        node.until_it_says("lost").await;
        println!("  {} says lost after {:.1} s", node.name(), began.elapsed().as_secs_f64());
    }
    nobody_leads(cluster, ledger).await;
    for node in &mut cluster.nodes {
        node.until_it_says("lost").await;
    }
}

/// No server acknowledges anything, also when a lease that nobody renews is over.
async fn nobody_leads(cluster: &Fleet, ledger: &Ledger) {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < LEASE_OVER {
        let mut visitors = Vec::new();
        for node in &cluster.nodes {
            visitors.extend(ledger.visitors(node.addr, 1).await);
        }
        let refusals = ledger.visit(visitors).join_all().await; // Each server waits for a moment for one that leads.
        assert!(refusals.iter().all(|(_, told)| told.is_err()), "a post is acknowledged: {refusals:?}");
        count += refusals.len();
    }
    println!("  {count} posts were refused in {:.1} s", began.elapsed().as_secs_f64());
}

/// What docs/cluster.md says under "If the log is not whole".
async fn begin_anew(cluster: &mut Fleet, last: usize) {
    let refused = cluster.nodes[last].run(&["cluster", "forget", "--config", "tidings.toml", "--json"]).await;
    assert!(!refused.status.success(), "servers run");
    for node in &mut cluster.nodes {
        node.stop_well().await;
    }
    assert_eq!(cluster.nodes[last].ask_cluster(&["status"]).await["nodes"], json!([]));
    let data = cluster.nodes[last].path("data").display().to_string();
    let left = cluster.nodes[last].run(&["cluster", "leave", "--data", &data, "--json"]).await;
    assert!(left.status.success(), "{left:?}");
    assert_eq!(serde_json::from_slice::<Value>(&left.stdout).unwrap(), json!({"left": true}));
    assert_eq!(cluster.nodes[last].ask_cluster(&["forget"]).await, json!({"forgotten": true}));
    cluster.nodes[last].launch(&[]);
    cluster.nodes[last].until_it_leads().await;
    for node in cluster.nodes.iter_mut().enumerate().filter_map(|(index, node)| (index != last).then_some(node)) {
        // As an operator does so that it begins with a copy.
        fs::rename(node.path("data/store"), node.path("store-before")).unwrap();
        node.launch(&[]);
        node.until_it_says(STANDBY).await;
    }
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("there is a program `cp`").success());
}

#[tokio::test]
async fn a_leader_that_is_cut_off_from_its_brokers_gives_up() {
    let _place = place().await;
    println!("nothing passes between the leader and NATS until it gives up");
    cut_off(Passing::HELD).await;
}

#[tokio::test]
async fn a_leader_that_does_not_hear_its_brokers_gives_up() {
    let _place = place().await;
    println!("the leader hears nothing from NATS until it gives up");
    cut_off(Passing { there: Flow::Open, back: Flow::Held }).await;
}

async fn cut_off(passing: Passing) {
    let (mut cluster, proxies) = start_behind_proxies().await;
    let first = cluster.settle().await;
    let mut ledger = ledger(cluster.addrs());
    ledger.start();
    ledger.grow(100).await;
    let visitors = ledger.visitors(cluster.nodes[first].addr, 8).await;
    ledger.gap();

    proxies[first].pass(passing);
    let cut = Instant::now();
    let visits = ledger.visit(visitors);
    let second = cluster.leader_besides(Some(first)).await;
    println!("  another leads after {:.1} s", cut.elapsed().as_secs_f64());
    let former = cluster.nodes[first].addr;
    until("the former leader is not ready", async || {
        readiness(former).await.is_none_or(|ready| !ready.is_ready()).then_some(())
    })
    .await;
    println!("  the one that is cut off is not ready any more after {:.1} s", cut.elapsed().as_secs_f64());
    ledger.grow(50).await;
    cluster.nodes[first].until_it_answers(503, JOINING).await; // It could not renew its lease for `PATIENCE`.
    println!("  it has given up after {:.1} s", cut.elapsed().as_secs_f64());
    proxies[first].pass(Passing::OPEN);
    cluster.nodes[first].until_it_says(STANDBY).await;
    println!("  it stands by after {:.1} s", cut.elapsed().as_secs_f64());
    println!("  {} of 8 posts that waited for it were acknowledged", ledger.settle(visits).await);
    ledger.grow(50).await;
    println!("  longest time without an acknowledgement: {:.1} s", ledger.gap());
    ledger.finish().await;
    ledger.judge(cluster.nodes[second].addr).await;
    require_linearizable(&ledger.history());
    cluster.move_to(first).await;
    ledger.judge(cluster.nodes[first].addr).await;
}

#[tokio::test]
async fn a_cluster_goes_on_when_two_of_three_brokers_come_back() {
    let _place = place().await;
    println!("two of three NATS servers are away for longer than a lease");
    let mut cluster = start(3).await;
    let mut ledger = ledger(cluster.addrs());
    ledger.start();
    ledger.start_to_read();
    ledger.grow(100).await;
    ledger.gap();
    let killed = Instant::now();
    (0..2).for_each(|index| cluster.nats.kill(index));
    until_all_miss_nats(&cluster, killed).await;
    (0..2).for_each(|index| cluster.nats.restart(index));
    ledger.grow(100).await;
    println!("  100 more are acknowledged {:.1} s after the kill", killed.elapsed().as_secs_f64());
    println!("  longest time without an acknowledgement: {:.1} s", ledger.gap());
    ledger.finish().await;
    let leader = cluster.settle().await;
    ledger.judge(cluster.nodes[leader].addr).await;
    cluster.nodes[leader].kill();
    let other = cluster.leader_besides(Some(leader)).await;
    ledger.judge(cluster.nodes[other].addr).await;
    require_linearizable(&ledger.history());
}

/// Waits until each server has said that NATS does not answer it, and a lease that was not renewed since then would be over.
async fn until_all_miss_nats(cluster: &Fleet, since: Instant) {
    let mut missed = BTreeSet::new();
    until("each server misses NATS", async || {
        for node in &cluster.nodes {
            if metric(node, "tidings_cluster_heard").await == Some(0.0) {
                missed.insert(node.name());
            }
        }
        (missed.len() == cluster.nodes.len() && since.elapsed() >= LEASE_OVER).then_some(())
    })
    .await;
    println!("  each server has missed NATS, and they are back after {:.1} s", since.elapsed().as_secs_f64());
}

#[tokio::test]
async fn a_server_alone_becomes_a_cluster_with_what_it_has() {
    let _place = place().await;
    println!("a server alone becomes a cluster");
    let mut cluster = prepare(3);
    let mut ledger = ledger(cluster.addrs());
    configure(&cluster.nodes[0], "");
    cluster.nodes[0].launch(&[]);
    ledger.post(100).await;
    cluster.nodes[0].stop_well().await;
    for node in &mut cluster.nodes {
        configure(node, &section(node, &cluster.nats.ports));
        node.launch(&[]);
        if node.name() == "a" {
            node.until_it_leads().await;
        }
    }
    assert_eq!(cluster.settle().await, 0, "the one with data leads");
    ledger.start();
    ledger.start_to_read();
    ledger.grow(50).await;
    look(&cluster.nodes[2], "a").await;
    cluster.move_to(1).await;
    look(&cluster.nodes[2], "b").await;
    cluster.move_to(0).await;
    ledger.grow(50).await;
    cluster.nodes[0].kill();
    let leader = cluster.leader_besides(Some(0)).await;
    ledger.grow(50).await;
    ledger.finish().await;
    ledger.judge(cluster.nodes[leader].addr).await;
    require_linearizable(&ledger.history());
}

/// What the commands say of a cluster of three in which this one leads.
async fn look(node: &Server, leader: &str) {
    let status = node.ask_cluster(&["status"]).await;
    assert_eq!((&status["lease"]["node"], &status["lease"]["released"]), (&json!(leader), &json!(false)), "{status}");
    let role = |name| json!([name, if name == leader { "leading" } else { "standby" }]);
    let nodes = status["nodes"].as_array().expect("it names the servers");
    let roles: Vec<_> = nodes.iter().map(|node| json!([node["node"], node["role"]])).collect();
    assert_eq!(roles, ["a", "b", "c"].map(role), "{status}");
    assert!(status["copy"].is_u64(), "{status}");
    let checked = node.ask_cluster(&["check"]).await;
    let number = |name: &str| checked[name].as_u64().unwrap_or_else(|| panic!("no {name} in {checked}"));
    assert!(number("terms") > 0 && number("bytes") > 0, "{checked}");
    assert_eq!(number("first") + number("terms") + number("parts"), number("last") + 1, "{checked}");
}
