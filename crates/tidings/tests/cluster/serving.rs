//! Clients of every server of a cluster, while servers are killed, stand still, or are cut off.
//!
//! Three kinds of channels: `match:1` is durable, `room:1` is in memory with a history, `live:1` is in memory without one. What a
//! durable channel has, each client of each server must get once and in order, whatever happens. A client of `room:1` may be told
//! that it missed something. A client of `live:1` may miss something, and nothing comes twice.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_simulator::{ApnsSimulator, SimulatorConfig};
use tidings_trial::caller::STANDBY;
use tidings_trial::fleet::Fleet;
use tidings_trial::judge::Got;
use tidings_trial::process::Signal;
use tidings_trial::proxy::Passing;
use tidings_trial::wait::until;
use tidings_trial::watcher::{End, Watcher};
use tokio::time::{Instant, sleep};

use crate::nodes::{MATCH, caller, ledger, plan, start, start_as, start_behind_proxies, start_with};
use crate::place;
use crate::speaker::Speaker;

/// In which clients publish: what is kept, and what is not.
const TALK: [&str; 2] = ["match:3", "live:3"];
/// Of the events that are pushed.
const GOALS: &str = "match:2";
const ROOM: &str = "room:1";
const LIVE: &str = "live:1";
/// Between two publications at a server.
const PACE: Duration = Duration::from_millis(20);
/// How often a client moves, half of it as fast as it can.
const MOVE_COUNT: usize = 100;
/// How often the lead moves.
const MOVES_OF_LEAD: usize = 6;
const APP: &str = "com.example.app";

/// What a call of the API for Centrifugo's clients answers, which must work.
async fn api(addr: SocketAddr, method: &str, body: Value) -> Value {
    let answer = caller(addr).insist(Method::POST, &format!("/api/{method}"), Some(&body)).await.json();
    assert!(answer["result"].is_object(), "{method} {body} at {addr}: {answer}");
    answer["result"].clone()
}

fn publications(answer: &Value) -> Vec<Got> {
    assert!(answer["epoch"].is_string(), "no history: {answer}");
    let list = answer["publications"].as_array().into_iter().flatten();
    list.map(Got::read).collect()
}

/// The users in a channel, as the answer names them, in order.
fn users(answer: &Value) -> Vec<String> {
    let list = answer["presence"].as_object().unwrap_or_else(|| panic!("no presence: {answer}"));
    let mut users: Vec<_> = list.values().map(|info| info["user"].as_str().expect("a user").to_owned()).collect();
    users.sort();
    users
}

/// Waits until each server knows the others.
async fn meet(addrs: &[SocketAddr]) {
    let began = Instant::now();
    for addr in addrs {
        until("the servers know each other", async || {
            let nodes = api(*addr, "info", json!({})).await["nodes"].as_array().map_or(0, Vec::len);
            (nodes == addrs.len()).then_some(())
        })
        .await;
    }
    println!("  the servers know each other {:.1} s after all are ready", began.elapsed().as_secs_f64());
}

/// A client at each server, all of the same kind: `ada-0`, `ada-1` …
async fn at_each(cluster: &Fleet, user: &str, channels: &[&'static str]) -> Vec<Watcher> {
    let mut watchers = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        watchers.push(Watcher::start(plan(&format!("{user}-{index}"), channels, node.addr)).await);
    }
    watchers
}

#[tokio::test]
async fn clients_of_every_server_see_the_same() {
    let _place = place().await;
    println!("clients of every server");
    let mut cluster = start(3).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    meet(&addrs).await;
    let readers = at_each(&cluster, "ada", &[MATCH, ROOM, LIVE]).await;
    let mut ledger = ledger(addrs.clone());
    let mut speakers = [Speaker::start(ROOM, &addrs, PACE), Speaker::start(LIVE, &addrs, PACE)];
    ledger.start();
    ledger.grow(200).await;
    for speaker in &mut speakers {
        speaker.grow(300).await;
        speaker.finish().await;
        assert!(speaker.look(|said| said.doubts.is_empty()), "{:?}", speaker.look(|said| said.doubts.clone()));
    }
    ledger.finish().await;
    let history = ledger.judge(addrs[leader]).await;
    for reader in &readers {
        reader.must_have(MATCH, &history).await;
        for (channel, speaker) in [ROOM, LIVE].into_iter().zip(&speakers) {
            let count = speaker.look(|said| said.acks.len());
            let what = format!("has all {count} of {channel}");
            reader.until(&what, |seen| seen.channels[channel].got.len() >= count).await;
            speaker.judge("a client", &reader.got(channel), true);
            assert_eq!(reader.got(channel), readers[0].got(channel), "two clients have {channel} in another order");
        }
        reader.check();
        assert_eq!(reader.ends(), []);
    }
    let room = readers[0].got(ROOM);
    same_history(&addrs, &readers, &[(MATCH, &history), (ROOM, &room)]).await;
    println!("  {} + {} + {} publications at three servers", history.len(), room.len(), readers[0].got(LIVE).len());
    same_company(&addrs, readers).await;
}

/// What is kept is the same, whoever is asked.
async fn same_history(addrs: &[SocketAddr], readers: &[Watcher], channels: &[(&str, &Vec<Got>)]) {
    for (channel, wanted) in channels {
        for addr in addrs {
            let kept = api(*addr, "history", json!({ "channel": channel, "limit": -1 })).await;
            assert_eq!(publications(&kept), **wanted, "{channel} at {addr}");
        }
        for reader in readers {
            let mut kept: Vec<Got> = Vec::new();
            loop {
                // A client gets them in parts.
                let (epoch, offset) =
                    reader.look(|seen| (seen.epoch(channel), kept.last().map_or(0, |one| one.offset)));
                let since = json!({ "epoch": epoch, "offset": offset });
                let answer =
                    reader.ask(json!({ "history": { "channel": channel, "limit": -1, "since": since } })).await;
                let part = publications(&answer["history"]);
                if part.is_empty() {
                    break;
                }
                kept.extend(part);
            }
            assert_eq!(kept.len(), wanted.len(), "{channel} of a client");
            assert_eq!(kept, **wanted, "{channel} of a client");
        }
    }
}

/// Who is there is the same, whoever is asked, and who comes and goes is told at each server.
async fn same_company(addrs: &[SocketAddr], readers: Vec<Watcher>) {
    let all: Vec<_> = (0..readers.len()).map(|index| format!("ada-{index}")).collect();
    for channel in [MATCH, ROOM] {
        for addr in addrs {
            assert_eq!(users(&api(*addr, "presence", json!({ "channel": channel })).await), all, "{channel} at {addr}");
            let stats = api(*addr, "presence_stats", json!({ "channel": channel })).await;
            assert_eq!(stats, json!({ "num_clients": 3, "num_users": 3 }), "{channel} at {addr}");
        }
        for reader in &readers {
            let answer = reader.ask(json!({ "presence": { "channel": channel } })).await;
            assert_eq!(users(&answer["presence"]), all, "{channel}");
        }
    }
    for (index, addr) in addrs.iter().enumerate() {
        let user = format!("bob-{index}");
        let visitor = Watcher::start(plan(&user, &[MATCH, ROOM], *addr)).await;
        is_told(&readers, "join", &user).await;
        drop(visitor);
        is_told(&readers, "leave", &user).await;
        for channel in [MATCH, ROOM] {
            let count = |reader: &Watcher, kind| {
                reader.look(|seen| {
                    seen.company.iter().filter(|told| (&*told.0, told.1, &*told.2) == (channel, kind, &user)).count()
                })
            };
            assert!(
                readers.iter().all(|reader| count(reader, "join") == 1 && count(reader, "leave") == 1),
                "{channel}"
            );
        }
    }
}

async fn is_told(readers: &[Watcher], kind: &'static str, user: &str) {
    for reader in readers {
        for channel in [MATCH, ROOM] {
            let told = (channel.to_owned(), kind, user.to_owned());
            reader.until(&format!("is told: {kind} of {user} in {channel}"), |seen| seen.company.contains(&told)).await;
        }
    }
}

#[tokio::test]
async fn clients_of_the_other_servers_stay_when_the_leader_is_killed() {
    let _place = place().await;
    println!("the leader is killed while clients read");
    let mut cluster = start(3).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    let others: Vec<_> = addrs.iter().copied().filter(|addr| *addr != addrs[leader]).collect();
    let (mut durable, mut positioned, mut live) = (Vec::new(), Vec::new(), Vec::new());
    for (index, addr) in others.iter().enumerate() {
        durable.push(Watcher::start(plan(&format!("ada-{index}"), &[MATCH], *addr)).await);
        positioned.push(Watcher::start(plan(&format!("bob-{index}"), &[ROOM], *addr).returning(&[])).await);
        live.push(Watcher::start(plan(&format!("cyd-{index}"), &[LIVE], *addr)).await);
    }
    let moving = Watcher::start(plan("dan", &[MATCH, ROOM], addrs[leader]).returning(&others)).await;
    let mut ledger = ledger(addrs.clone());
    let mut speakers = [Speaker::start(ROOM, &others, PACE), Speaker::start(LIVE, &others, PACE)];
    ledger.start();
    ledger.grow(100).await;
    ledger.gap();

    cluster.nodes[leader].kill();
    let killed = Instant::now();
    let second = cluster.leader_besides(Some(leader)).await;
    println!("  another leads after {:.1} s", killed.elapsed().as_secs_f64());
    ledger.grow(100).await;
    for speaker in &mut speakers {
        speaker.grow(100).await;
        speaker.finish().await;
    }
    println!("  longest time without an acknowledgement: {:.1} s", ledger.gap());
    ledger.finish().await;
    let history = ledger.judge(addrs[second]).await;
    for reader in durable.iter().chain([&moving]) {
        reader.must_have(MATCH, &history).await;
    }
    for reader in &durable {
        assert_eq!(reader.ends(), [], "a client of a durable channel is not disconnected");
    }
    assert!(moving.look(|seen| seen.channels[MATCH].recovered.iter().all(|recovered| *recovered)));
    for reader in &positioned {
        reader.until_it_has(ROOM, &speakers[0].last()).await;
        reader.check();
        speakers[0].judge("a client in memory", &reader.got(ROOM), false);
        let (ends, recovered) = reader.look(|seen| (seen.ends.clone(), seen.channels[ROOM].recovered.clone()));
        println!("  a client of {ROOM}: {ends:?}, recovered {recovered:?}");
        assert_eq!(ends.first(), Some(&End::Closed(3010)), "it begins anew");
        assert_eq!(recovered.first(), Some(&false), "it is told that it may have missed something");
    }
    for reader in &live {
        reader.until_it_has(LIVE, &speakers[1].last()).await;
        speakers[1].judge("a client without history", &reader.got(LIVE), false);
        assert_eq!(reader.ends(), [], "a client without a position stays");
    }
    cluster.nodes[leader].launch(&[]);
    cluster.nodes[leader].until_it_says(STANDBY).await;
    println!("  the one that was killed serves again after {:.1} s", killed.elapsed().as_secs_f64());
    let late = Watcher::start(plan("eve", &[MATCH, ROOM], addrs[leader])).await;
    ledger.post(10).await;
    let history = ledger.judge(addrs[second]).await;
    for reader in durable.iter().chain([&late]) {
        reader.must_have(MATCH, &history).await;
    }
}

#[tokio::test]
async fn clients_of_a_standby_that_stands_still_get_everything() {
    let _place = place().await;
    println!("a standby stands still for a moment while clients read");
    stand_still(until_answers_lack_it).await;
}

#[tokio::test]
async fn clients_of_a_standby_that_stands_still_for_long_get_everything() {
    let _place = place().await;
    println!("a standby stands still for long while clients read");
    stand_still(until_it_is_forgotten).await;
}

/// Waits until the leader says who is there without the clients of the server that stands still.
async fn until_answers_lack_it(leader: SocketAddr) {
    until("its clients are not there", async || {
        users(&api(leader, "presence", json!({ "channel": MATCH })).await).is_empty().then_some(())
    })
    .await;
}

/// Waits until the leader takes it that the server that stands still has sent its clients away (`SILENCE_MAX` of the server): then an
/// order does not need its answer. An order that needs it takes 6 s, so this takes 18 s.
async fn until_it_is_forgotten(leader: SocketAddr) {
    let mut caller = caller(leader);
    let mut is_carried_out = async || {
        let answer = caller.call(Method::POST, "/api/disconnect", Some(&json!({ "user": "nobody" }))).await;
        answer.expect("it answers").json()["result"].is_object()
    };
    assert!(!is_carried_out().await, "an order needs the answer of each server that may have clients");
    until("an order needs no answer of it", async || is_carried_out().await.then_some(())).await;
}

/// A standby stands still until it `is_missed` at the leader.
async fn stand_still(until_it_is_missed: impl AsyncFn(SocketAddr)) {
    let mut cluster = start(3).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    meet(&addrs).await;
    let behind = (leader + 1) % 3;
    let plan = |user, channels: &[&'static str]| plan(user, channels, addrs[behind]).returning(&[]);
    let durable = Watcher::start(plan("ada", &[MATCH])).await;
    let positioned = Watcher::start(plan("bob", &[ROOM])).await;
    let live = Watcher::start(plan("cyd", &[LIVE])).await;
    let upright: Vec<_> = addrs.iter().copied().filter(|addr| *addr != addrs[behind]).collect();
    let mut ledger = ledger(addrs.clone());
    let mut speakers = [Speaker::start(ROOM, &upright, PACE), Speaker::start(LIVE, &upright, PACE)];
    ledger.start();
    ledger.grow(50).await;

    cluster.nodes[behind].signal(Signal::STOP);
    let stopped = Instant::now();
    until_it_is_missed(addrs[leader]).await;
    ledger.grow(100).await;
    println!("  it stood still for {:.1} s", stopped.elapsed().as_secs_f64());
    cluster.nodes[behind].signal(Signal::CONT);
    let woken = Instant::now();
    let last = ledger.last();
    durable.until_it_has(MATCH, &last).await;
    println!("  its clients have everything {:.2} s after it woke", woken.elapsed().as_secs_f64());
    cluster.nodes[behind].until_it_says(STANDBY).await;
    ledger.grow(50).await;
    for speaker in &mut speakers {
        speaker.grow(50).await;
        speaker.finish().await;
        assert!(speaker.look(|said| said.doubts.is_empty()), "{:?}", speaker.look(|said| said.doubts.clone()));
    }
    ledger.finish().await;
    assert_eq!(cluster.settle().await, leader, "a standby does not matter");
    let history = ledger.judge(addrs[leader]).await;
    durable.must_have(MATCH, &history).await;
    positioned.until_it_has(ROOM, &speakers[0].last()).await;
    positioned.check();
    let recovered = positioned.look(|seen| seen.channels[ROOM].recovered.clone());
    speakers[0].judge("a client in memory", &positioned.got(ROOM), recovered.iter().all(|recovered| *recovered));
    live.until_it_has(LIVE, &speakers[1].last()).await;
    speakers[1].judge("a client without history", &live.got(LIVE), false);
    for (what, reader) in [(MATCH, &durable), (ROOM, &positioned), (LIVE, &live)] {
        let recovered = reader.look(|seen| seen.channels[what].recovered.clone());
        let (got, ends) = (reader.got(what).len(), reader.ends());
        println!("  a client of {what}: {got} publications, ends {ends:?}, recovered {recovered:?}");
    }
}

#[tokio::test]
async fn a_standby_that_is_cut_off_sends_its_clients_away() {
    let _place = place().await;
    println!("nothing passes between a standby and NATS until it has sent its clients away");
    let (mut cluster, proxies) = start_behind_proxies().await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    let apart = (leader + 1) % 3;
    let others: Vec<_> = addrs.iter().copied().filter(|addr| *addr != addrs[apart]).collect();
    let staying = Watcher::start(plan("ada", &[MATCH, ROOM], addrs[apart])).await;
    let moving = Watcher::start(plan("bob", &[MATCH, ROOM], addrs[apart]).returning(&others)).await;
    let mut ledger = ledger(addrs.clone());
    let mut speaker = Speaker::start(ROOM, &others, PACE);
    ledger.start();
    ledger.grow(50).await;

    proxies[apart].pass(Passing::HELD);
    let cut = Instant::now();
    staying.until("is sent away", |seen| seen.ends == [End::Closed(3001)]).await;
    println!("  its clients are sent away after {:.1} s", cut.elapsed().as_secs_f64());
    cluster.nodes[apart].until_it_answers(503, STANDBY).await;
    println!("  it is not ready after {:.1} s", cut.elapsed().as_secs_f64());
    let refused = Watcher::try_once(plan("cyd", &[MATCH], addrs[apart])).await;
    assert_eq!(refused, End::Refused(503), "it lets nobody in");
    ledger.grow(50).await;
    moving.until("is at another server", |seen| seen.lives == 2).await;
    proxies[apart].pass(Passing::OPEN);
    let healed = Instant::now();
    cluster.nodes[apart].until_it_says(STANDBY).await;
    println!("  it serves again {:.1} s after it is connected again", healed.elapsed().as_secs_f64());
    let late = Watcher::start(plan("eve", &[MATCH, ROOM], addrs[apart])).await;
    ledger.grow(50).await;
    speaker.grow(50).await;
    speaker.finish().await;
    ledger.finish().await;
    let history = ledger.judge(addrs[leader]).await;
    let last = speaker.last();
    for reader in [&moving, &late] {
        reader.must_have(MATCH, &history).await;
        reader.until_it_has(ROOM, &last).await;
        reader.check();
    }
    let (ends, recovered) = moving.look(|seen| (seen.ends.clone(), seen.channels[ROOM].recovered.clone()));
    println!("  a client that moved: {ends:?}, {ROOM} recovered {recovered:?}");
    assert_eq!(ends, [End::Closed(3001)]);
    assert!(moving.look(|seen| seen.channels[MATCH].recovered == [true]));
    assert_eq!(cluster.settle().await, leader, "a standby does not matter");
}

#[tokio::test]
async fn orders_reach_connections_of_every_server() {
    let _place = place().await;
    println!("orders to connections of other servers");
    let mut cluster = start(1).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    meet(&addrs).await;
    let (here, there) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut readers = Vec::new();
    for addr in &addrs {
        readers.push(Watcher::start(plan("ada", &[ROOM], *addr)).await);
    }
    let other = Watcher::start(plan("bob", &[ROOM], addrs[here])).await;
    for addr in &addrs {
        let live = api(*addr, "connections", json!({ "user": "ada" })).await;
        let live = live["connections"].as_object().unwrap_or_else(|| panic!("no connections: {live}"));
        assert_eq!(live.len(), readers.len(), "{live:?}");
        assert!(
            live.values().all(|one| one["user"] == "ada" && one["state"]["channels"][ROOM].is_object()),
            "{live:?}"
        );
    }
    for (round, addr) in [addrs[there], addrs[leader]].into_iter().enumerate() {
        let channel = format!("room:{}", round + 2);
        api(addr, "subscribe", json!({ "user": "ada", "channel": channel })).await;
        for reader in &readers {
            reader.until("is subscribed", |seen| seen.told.contains(&(channel.clone(), "subscribe"))).await;
        }
        api(addrs[here], "publish", json!({ "channel": channel, "data": { "id": "hello" } })).await;
        for reader in &readers {
            reader.until("has it", |seen| seen.channels.get(&channel).is_some_and(|read| read.got.len() == 1)).await;
        }
        api(addr, "unsubscribe", json!({ "user": "ada", "channel": channel })).await;
        for reader in &readers {
            reader.until("is unsubscribed", |seen| seen.told.contains(&(channel.clone(), "unsubscribe"))).await;
        }
        assert_eq!(users(&api(addr, "presence", json!({ "channel": channel })).await), [""; 0]);
    }
    let mine = api(addrs[there], "connections", json!({ "user": "ada" })).await["connections"].clone();
    assert_eq!(mine.as_object().map(serde_json::Map::len), Some(readers.len()), "{mine}");
    api(addrs[there], "disconnect", json!({ "user": "ada" })).await;
    for reader in &readers {
        reader.until("is disconnected", |seen| seen.ends == [End::Closed(3503)]).await;
    }
    for addr in &addrs {
        assert_eq!(api(*addr, "connections", json!({ "user": "ada" })).await["connections"], json!({}));
        assert_eq!(users(&api(*addr, "presence", json!({ "channel": ROOM })).await), ["bob"]);
    }
    assert_eq!(other.ends(), [], "another user stays");
    assert!(other.look(|seen| seen.told.is_empty()));
}

#[tokio::test]
async fn orders_reach_connections_of_a_server_as_soon_as_it_is_ready() {
    let _place = place().await;
    println!("orders to connections of a server that has just started");
    let mut cluster = start(1).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    let (started, other) = ((leader + 1) % 3, (leader + 2) % 3);
    for round in 0..3 {
        if round > 0 {
            cluster.nodes[started].stop_well().await;
            cluster.nodes[started].launch(&[]);
        }
        cluster.nodes[started].until_it_says(STANDBY).await;
        let reader = Watcher::start(plan("ada", &[MATCH, ROOM], addrs[started])).await;
        let live = api(addrs[other], "connections", json!({ "user": "ada" })).await;
        assert_eq!(live["connections"].as_object().map(serde_json::Map::len), Some(1), "round {round}: {live}");
        assert_eq!(users(&api(addrs[leader], "presence", json!({ "channel": ROOM })).await), ["ada"], "round {round}");
        api(addrs[other], "disconnect", json!({ "user": "ada" })).await;
        reader.until("is disconnected", |seen| seen.ends == [End::Closed(3503)]).await;
    }
}

#[tokio::test]
async fn a_client_that_moves_from_server_to_server_misses_nothing() {
    let _place = place().await;
    println!("a client moves {MOVE_COUNT} times");
    let mut cluster = start(3).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    let mut ledger = ledger(addrs.clone());
    let mut speaker = Speaker::start(ROOM, &addrs, Duration::from_millis(2));
    let durable = Watcher::start(plan("ada", &[MATCH], addrs[0])).await;
    let positioned = Watcher::start(plan("bob", &[ROOM], addrs[0])).await;
    ledger.start();
    ledger.grow(20).await;
    let began = Instant::now();
    for round in 1..=MOVE_COUNT {
        let to = addrs[round % addrs.len()];
        tokio::join!(durable.move_to(to), positioned.move_to(to));
        if round.is_multiple_of(2) {
            // Else it would not be there long enough for anything to be published.
            let (goals, words) = (durable.got(MATCH).len(), positioned.got(ROOM).len());
            durable.until("gets more", |seen| seen.channels[MATCH].got.len() > goals).await;
            positioned.until("gets more", |seen| seen.channels[ROOM].got.len() > words).await;
        }
    }
    println!("  it moved {MOVE_COUNT} times in {:.1} s", began.elapsed().as_secs_f64());
    speaker.finish().await;
    ledger.finish().await;
    let history = ledger.judge(addrs[leader]).await;
    durable.must_have(MATCH, &history).await;
    positioned.until_it_has(ROOM, &speaker.last()).await;
    positioned.check();
    let missed = |reader: &Watcher, channel: &str| {
        reader.look(|seen| seen.channels[channel].recovered.iter().filter(|recovered| !**recovered).count())
    };
    let (of_match, of_room) = (missed(&durable, MATCH), missed(&positioned, ROOM));
    let (all, room) = (history.len(), positioned.got(ROOM).len());
    println!("  of {all} in {MATCH} it missed something {of_match} times, of {room} in {ROOM} {of_room} times");
    assert_eq!((of_match, of_room), (0, 0), "it is told that it recovered everything");
    let first = positioned.got(ROOM)[0].offset;
    let wanted = publications(&api(addrs[leader], "history", json!({ "channel": ROOM, "limit": -1 })).await);
    assert!(wanted.iter().skip_while(|one| one.offset < first).eq(&positioned.got(ROOM)), "{ROOM} is not what it is");
}

#[tokio::test]
async fn the_lead_moves_through_the_cluster_and_nobody_is_refused_or_disconnected() {
    let _place = place().await;
    println!("the lead moves, by order and because servers stop");
    let (apple, _keys, mut cluster) = with_apple(3).await;
    let addrs = cluster.addrs();
    let mut leader = cluster.settle().await;
    meet(&addrs).await;
    let readers = with_devices(&addrs).await;
    let watchers = at_each(&cluster, "bob", &[MATCH, LIVE]).await;
    let talkers = at_each(&cluster, "eve", &TALK).await;
    let (mut number, mut talked) = (0, Vec::new());
    let pushes = |number: usize| apple.ledger().for_token(&token(number)).len();
    let to_connected = || (0..addrs.len()).map(pushes).sum::<usize>();
    let mut ledger = ledger(addrs.clone());
    let mut speaker = Speaker::start(LIVE, &addrs, PACE);
    ledger.start();
    ledger.grow(100).await;
    ledger.gap();
    for _ in 0..MOVES_OF_LEAD {
        let (from, to) = (leader, (leader + 1) % addrs.len());
        let goals = async {
            for _ in 0..3 {
                number += 1;
                goal(addrs[number % addrs.len()], number).await;
            }
        };
        let moved = Cell::new(false);
        let moves = async {
            cluster.move_to(to).await;
            moved.set(true);
        };
        let talk = async {
            while !moved.get() {
                for (index, talker) in talkers.iter().enumerate() {
                    let id = format!("{index}-{}", talked.len());
                    for channel in TALK {
                        let answer =
                            talker.ask(json!({ "publish": { "channel": channel, "data": { "id": id } } })).await;
                        assert!(answer["publish"].is_object(), "{channel} at server {index}: {answer}");
                    }
                    talked.push(id);
                }
                sleep(PACE).await;
            }
        };
        tokio::join!(goals, moves, talk);
        ledger.grow(30).await;
        println!("  from {from} to {to}: longest time without an acknowledgement: {:.3} s", ledger.gap());
        leader = to;
    }
    assert_eq!(ledger.refusals(), [""; 0], "nothing is refused when the lead moves");
    assert!(speaker.look(|said| said.doubts.is_empty()), "{:?}", speaker.look(|said| said.doubts.clone()));
    for reader in readers.iter().chain(&watchers).chain(&talkers) {
        assert_eq!(reader.ends(), [], "clients of all servers stay connected");
    }
    let ids = |got: Vec<Got>| got.into_iter().map(|one| one.id).collect::<Vec<_>>();
    for talker in &talkers {
        for channel in TALK {
            talker.until_it_has(channel, talked.last().expect("they have talked")).await;
            assert_eq!(ids(talker.got(channel)), talked, "{channel}: what clients publish, each once and in order");
        }
    }
    println!("  {} publications of clients in each of two channels", talked.len());
    assert_eq!(pushes(addrs.len()), number, "who is not connected is pushed, once");
    assert_eq!(to_connected(), 0, "who is connected is not pushed");

    ledger.gap();
    cluster.nodes[leader].stop_well().await;
    let second = cluster.leader_besides(Some(leader)).await;
    ledger.grow(30).await;
    println!("  a leader that ends: longest time without an acknowledgement: {:.3} s", ledger.gap());
    speaker.finish().await;
    ledger.finish().await;
    let history = ledger.judge(addrs[second]).await;
    for (index, (reader, watcher)) in readers.iter().zip(&watchers).enumerate().filter(|(index, _)| *index != leader) {
        watcher.must_have(MATCH, &history).await;
        assert_eq!((reader.ends(), watcher.ends()), (vec![], vec![]), "clients of server {index} stay connected");
        speaker.judge("a client", &watcher.got(LIVE), false);
    }
}

#[tokio::test]
async fn a_server_that_may_not_lead_serves_clients_and_never_leads() {
    let _place = place().await;
    println!("a server that may not lead");
    let mut cluster = start_as(1, "", |name| if name == "c" { "may_lead = false\n" } else { "" }).await;
    let addrs = cluster.addrs();
    let first = cluster.settle().await;
    let second = 1 - first;
    let watcher = Watcher::start(plan("ada", &[MATCH], addrs[2]).returning(&[])).await;
    let refused =
        cluster.nodes[second].run(&["cluster", "move", "--to", "c", "--config", "tidings.toml", "--json"]).await;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("c may not lead: set cluster.may_lead there"), "{told}");
    let ledger = ledger(addrs[..2].to_vec());
    ledger.post(10).await;
    cluster.nodes[first].kill();
    cluster.nodes[second].until_it_leads().await;
    ledger.post(10).await;
    cluster.nodes[second].kill();
    assert_eq!(watcher.ends(), [], "its clients stay connected");
    cluster.nodes[2].until_it_answers(503, STANDBY).await; // Nobody leads, and it does not.
    cluster.nodes[first].launch(&[]);
    cluster.nodes[first].until_it_leads().await;
    ledger.post(10).await;
    cluster.nodes[2].until_it_says(STANDBY).await;
    let history = ledger.judge(addrs[first]).await;
    watcher.must_have(MATCH, &history).await;
}

#[tokio::test]
async fn a_device_that_is_connected_to_any_server_is_not_pushed() {
    let _place = place().await;
    println!("devices that are connected to each server, and one that is not");
    let (apple, _keys, mut cluster) = with_apple(1).await;
    let addrs = cluster.addrs();
    let leader = cluster.settle().await;
    meet(&addrs).await;
    let mut readers = with_devices(&addrs).await;
    let pushes = |number: usize| apple.ledger().for_token(&token(number)).len();
    let to_connected = || (0..addrs.len()).map(pushes).sum::<usize>();
    const ROUND_COUNT: usize = 30;
    for round in 1..=ROUND_COUNT {
        // The event comes as soon as a client has connected.
        let report = goal(addrs[round % addrs.len()], round).await;
        for reader in &readers {
            reader.until_it_has(GOALS, &format!("goal-{round}")).await;
        }
        let back = round % addrs.len();
        readers[back].move_to(addrs[back]).await;
        assert_eq!(report["outcomes"]["received"], addrs.len(), "{report}");
        assert_eq!(pushes(addrs.len()), round, "who is not connected is pushed");
        assert_eq!(to_connected(), 0, "who is connected is not pushed: {report}");
    }
    // One leaves: soon it is pushed.
    let gone = (leader + 1) % addrs.len();
    drop(readers.remove(gone));
    until("it is gone", async || {
        (users(&api(addrs[leader], "presence", json!({ "channel": GOALS })).await).len() == 2).then_some(())
    })
    .await;
    let report = goal(addrs[gone], ROUND_COUNT + 1).await;
    assert_eq!(report["outcomes"]["received"], 2, "{report}");
    assert_eq!((to_connected(), pushes(addrs.len())), (1, ROUND_COUNT + 1), "who is gone is pushed: {report}");
}

/// Servers that push to a simulated Apple, on so many NATS servers. The folder has their keys.
async fn with_apple(broker_count: usize) -> (ApnsSimulator, TempDir, Fleet) {
    let config = SimulatorConfig { topics: vec![APP.to_owned()], ..SimulatorConfig::default() };
    let apple = ApnsSimulator::start(config).expect("the simulator starts");
    let keys = tempfile::tempdir().expect("there is room for a folder");
    let cluster = start_with(broker_count, &pushing(&apple, keys.path())).await;
    (apple, keys, cluster)
}

/// Registers a device for each server, on which a client connects there, and one more.
async fn with_devices(addrs: &[SocketAddr]) -> Vec<Watcher> {
    let device = |number: usize| format!("phone-{number}");
    for number in 0..=addrs.len() {
        let (at, path) = (addrs[number % addrs.len()], format!("/v1/devices/{}", device(number)));
        let body = json!({ "app": APP, "locale": "en", "platform": "ios", "token": token(number) });
        caller(at).insist(Method::PUT, &path, Some(&body)).await;
        let body = json!({ "subscriptions": [{ "subject": GOALS, "topics": ["goal"] }] });
        caller(at).insist(Method::PUT, &format!("{path}/subscriptions"), Some(&body)).await;
    }
    let mut readers = Vec::new();
    for (number, addr) in addrs.iter().enumerate() {
        let plan = plan(&format!("ada-{number}"), &[GOALS], *addr).on_device(&device(number));
        readers.push(Watcher::start(plan).await);
    }
    readers
}

/// Posts this event, and returns what became of it.
async fn goal(addr: SocketAddr, number: usize) -> Value {
    let mut caller = caller(addr);
    let event = format!("goal-{number}");
    let body = json!({ "id": event, "topic": "goal", "subjects": [GOALS], "params": { "number": number } });
    caller.insist(Method::POST, "/v1/events", Some(&body)).await;
    let (what, path) = (format!("{event} is done"), format!("/v1/events/{event}"));
    until(&what, async || {
        let report = caller.insist(Method::GET, &path, None).await.json();
        (report["state"] == "finished" || report["done_at"].is_string()).then_some(report)
    })
    .await
}

/// The address of a device at Apple.
fn token(number: usize) -> String {
    format!("{:064x}", number + 1)
}

/// The section for pushing; its files are in this folder.
fn pushing(apple: &ApnsSimulator, folder: &std::path::Path) -> String {
    let [authority, key] = [("ca.pem", apple.ca_pem()), ("key.p8", apple.key_pem())].map(|(name, text)| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).display().to_string()
    });
    let (port, key_id, team_id) = (apple.addr().port(), apple.key_id(), apple.team_id());
    format!(
        r#"
[apns.simulator]
host = "127.0.0.1"
port = {port}
key_id = "{key_id}"
team_id = "{team_id}"
key_file = '{key}'
ca_file = '{authority}'
apps = ["{APP}"]
connection_count = 1
connection_count_max = 1
stream_count_max = 100
lake_capacity = 100
"#
    )
}
