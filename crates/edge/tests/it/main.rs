//! The edge over real sockets, with tungstenite as an independent client.

/// A test with clients of each format.
macro_rules! in_both {
    ($name:ident) => {
        mod $name {
            #[tokio::test]
            async fn json() {
                super::$name(tidings_types::Format::Json).await;
            }

            #[tokio::test]
            async fn protobuf() {
                super::$name(tidings_types::Format::Protobuf).await;
            }
        }
    };
}

mod changes;
mod client;
mod counts;
mod formats;
mod histories;
mod hooks;
mod limits;
mod others;
mod panics;
mod receipts;
mod restart;
mod resume;
#[path = "../../../protocol/tests/it/schema.rs"]
mod schema;
mod selection;
mod server;
mod server_side;
mod shares;
mod storm;
mod streams;
mod thinning;
mod tls;
#[path = "../../../protocol/tests/it/undelta.rs"]
mod undelta;

use std::time::Duration;

use serde_json::json;
use tidings_hub::Member;
use tidings_protocol::ClientId;
use tidings_types::Format;

use client::Client;
use server::{JSON, Options, Server};

in_both!(connect_and_subscribe_in_one_frame_then_publications_in_order);
async fn connect_and_subscribe_in_one_frame_then_publications_in_order(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::open(&server).await;
    client
        .send_text(
            r#"{"id":1,"connect":{}}
{"id":2,"subscribe":{"channel":"kept:1"}}"#,
        )
        .await;
    let connected = client.next().await;
    assert_eq!(connected["id"], 1);
    assert_eq!(connected["connect"]["pong"], true);
    let subscribed = client.next().await;
    assert_eq!(subscribed["id"], 2);
    assert_eq!(subscribed["subscribe"]["recoverable"], true);
    for value in 0..100 {
        server.publish("kept:1", json!(value));
    }
    for value in 0..100 {
        let push = client.next().await;
        assert_eq!(push, json!({"push": {"channel": "kept:1", "pub": {"data": value, "offset": value + 1}}}));
    }
}

in_both!(a_client_publishes_and_all_subscribers_see_one_order);
async fn a_client_publishes_and_all_subscribers_see_one_order(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::subscribed(&server, "room").await);
    }
    for index in 0..20 {
        let publisher = &mut clients[index % 4];
        publisher.send(json!({"id": 10 + index, "publish": {"channel": "room", "data": index}})).await;
        publisher.reply(10 + index as u64).await;
    }
    let mut orders = Vec::new();
    for client in &mut clients {
        orders.push(client.publications(20).await.iter().map(|data| data.as_i64().unwrap()).collect::<Vec<_>>());
    }
    assert_eq!(orders[0], (0..20).collect::<Vec<_>>());
    assert!(orders.iter().all(|order| *order == orders[0]));
}

in_both!(a_client_that_comes_back_gets_what_it_missed_or_is_told);
async fn a_client_that_comes_back_gets_what_it_missed_or_is_told(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::subscribed(&server, "kept:1").await;
    server.publish("kept:1", json!(1));
    let push = client.next().await;
    assert_eq!(push["push"]["pub"]["offset"], 1);
    let epoch = client.epoch.clone();
    drop(client);
    for value in 2..=5 {
        server.publish("kept:1", json!(value));
    }
    let mut client = Client::connected(&server).await;
    let resume = json!({"channel": "kept:1", "recover": true, "offset": 1, "epoch": epoch});
    client.send(json!({"id": 2, "subscribe": resume})).await;
    let reply = client.reply(2).await["subscribe"].clone();
    assert_eq!((&reply["recovered"], &reply["was_recovering"]), (&json!(true), &json!(true)));
    let offsets: Vec<_> = reply["publications"].as_array().unwrap().iter().map(|one| one["offset"].clone()).collect();
    assert_eq!(offsets, [2, 3, 4, 5]);
    server.publish("kept:1", json!(6));
    assert_eq!(client.next().await["push"]["pub"]["offset"], 6);

    let mut stranger = Client::connected(&server).await;
    let resume = json!({"channel": "kept:1", "recover": true, "offset": 1, "epoch": "otherone"});
    stranger.send(json!({"id": 2, "subscribe": resume})).await;
    let reply = stranger.reply(2).await["subscribe"].clone();
    assert_eq!(reply.get("recovered"), None, "another epoch is not recovered");
    assert_eq!((&reply["was_recovering"], &reply["offset"]), (&json!(true), &json!(6)));

    let resume = json!({"channel": "small:1", "recover": true, "offset": 1, "epoch": "", "flag": 2});
    stranger.send(json!({"id": 3, "subscribe": resume})).await;
    assert_eq!(stranger.reply(3).await["error"]["code"], 112);
}

in_both!(history_and_presence_are_answered);
async fn history_and_presence_are_answered(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::subscribed(&server, "kept:1").await;
    for value in 0..3 {
        server.publish("kept:1", json!(value));
        client.next().await;
    }
    client.send(json!({"id": 3, "history": {"channel": "kept:1", "limit": 2, "reverse": true}})).await;
    let history = client.reply(3).await["history"].clone();
    assert_eq!(history["publications"][0], json!({"data": 2, "offset": 3}));
    assert_eq!((&history["offset"], &history["epoch"]), (&json!(3), &json!(client.epoch)));
    client
        .send(
            json!({"id": 4, "history": {"channel": "kept:1", "limit": 1, "since": {"offset": 1, "epoch": "otherone"}}}),
        )
        .await;
    assert_eq!(client.reply(4).await["error"]["code"], 112);
    client.send(json!({"id": 5, "presence_stats": {"channel": "kept:1"}})).await;
    assert_eq!(client.reply(5).await["presence_stats"], json!({"num_clients": 1, "num_users": 1}));
    let mut other = Client::connected(&server).await;
    other.send(json!({"id": 2, "presence": {"channel": "kept:1"}})).await;
    assert_eq!(other.reply(2).await["presence"]["presence"].as_object().unwrap().len(), 1);
    drop(client);
    server.until("the client has left", || server.hub.presence_stats(&server::channel("kept:1")) == (0, 0)).await;
}

in_both!(an_unsubscribed_channel_gives_nothing_more);
async fn an_unsubscribed_channel_gives_nothing_more(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::subscribed(&server, "room").await;
    client.send(json!({"id": 3, "unsubscribe": {"channel": "room"}})).await;
    assert_eq!(client.reply(3).await["unsubscribe"], json!({}));
    server.publish("room", json!("unheard"));
    client.send(json!({"id": 4, "subscribe": {"channel": "other"}})).await;
    client.reply(4).await;
    server.publish("other", json!("heard"));
    assert_eq!(client.next().await["push"]["pub"]["data"], "heard");
}

in_both!(a_slow_reader_is_closed_and_costs_the_others_nothing);
/// A reader that does not read is closed with 3008 once the channel's tail has overtaken it; one that reads beside it
/// gets everything.
async fn a_slow_reader_is_closed_and_costs_the_others_nothing(format: Format) {
    check_slow_reader(Options { frame_count_max: 64, ..Options::of(format) }).await;
}

async fn check_slow_reader(options: Options) {
    let server = Server::start(options).await;
    let mut slow = Client::subscribed(&server, "room").await;
    let mut quick = Client::subscribed(&server, "room").await;
    let block = "x".repeat(60_000);
    let mut published = 0;
    let slow_total = || server.metric("tidings_edge_disconnects_total{reason=\"slow\"}");
    while slow_total() == 0.0 {
        assert!(published < 5000, "the slow reader should have been closed by now");
        server.publish("room", json!([published, block]));
        let push = quick.next().await;
        assert_eq!(push["push"]["pub"]["data"][0], published);
        published += 1;
    }
    // What the slow one was still given is a prefix without a hole.
    let (data, close) = slow.drain().await;
    assert_eq!(close, Some(3008));
    let numbers: Vec<_> = data.iter().map(|message| message["push"]["pub"]["data"][0].as_i64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as i64).collect::<Vec<_>>());
    assert!(numbers.len() < published as usize);
}

/// A channel holds what its slowest reader still wants, and nothing once that one has it or has gone.
#[tokio::test]
async fn what_every_reader_has_is_forgotten() {
    let server = Server::start(Options::default()).await;
    let slow = Client::subscribed(&server, "room").await;
    let mut quick = [Client::subscribed(&server, "room").await, Client::subscribed(&server, "room").await];
    let (loop_id, _) = server.hub.loops().next().unwrap();
    let holds_last = || {
        let member = Member::reader(loop_id, ClientId::from_random(1), JSON);
        let made = server.hub.subscribe(&server::channel("room"), &member, None).unwrap();
        let is_held = made.channel.fetch(made.next - 1, 1, &mut Vec::new()).is_ok();
        server.hub.unsubscribe(&made.channel, loop_id, ClientId::from_random(1), None, JSON);
        is_held
    };
    let block = "x".repeat(60_000);
    for value in 0..400 {
        server.publish("room", json!([value, block]));
        for client in &mut quick {
            assert_eq!(client.next().await["push"]["pub"]["data"][0], value);
        }
    }
    assert!(holds_last(), "the slow one still wants it");
    drop(slow);
    server.until("nobody wants it any more", || !holds_last()).await;
    server.publish("room", json!([400, ""]));
    for client in &mut quick {
        assert_eq!(client.next().await["push"]["pub"]["data"][0], 400);
    }
    server.until("nobody wants it any more", || !holds_last()).await;
}

in_both!(a_reader_that_pauses_catches_up_in_order);
/// A reader that pauses, but not for longer than the tail holds, gets everything.
async fn a_reader_that_pauses_catches_up_in_order(format: Format) {
    let server = Server::start(Options { frame_count_max: 1000, ..Options::of(format) }).await;
    let mut client = Client::subscribed(&server, "room").await;
    let block = "x".repeat(60_000);
    for value in 0..300 {
        server.publish("room", json!([value, block]));
    }
    for value in 0..300 {
        assert_eq!(client.next().await["push"]["pub"]["data"][0], value);
    }
    server.publish("room", json!([300, ""]));
    assert_eq!(client.next().await["push"]["pub"]["data"][0], 300);
}

in_both!(a_client_that_does_not_answer_pings_is_closed_with_3012);
async fn a_client_that_does_not_answer_pings_is_closed_with_3012(format: Format) {
    let pings = Options {
        ping_interval: Duration::from_millis(600),
        pong_timeout: Duration::from_millis(300),
        ..Options::of(format)
    };
    let server = Server::start(pings).await;
    let mut silent = Client::connected(&server).await;
    assert_eq!(silent.next().await, json!({}), "a ping");
    let (_, close) = silent.drain().await;
    assert_eq!(close, Some(3012));

    let mut lively = Client::connected(&server).await;
    for _ in 0..3 {
        assert_eq!(lively.next().await, json!({}));
        lively.send(json!({})).await;
    }
    lively.send(json!({})).await;
    assert_eq!(lively.drain().await.1, Some(3501), "a pong that nobody asked for");
}

#[tokio::test]
async fn who_never_connects_is_closed_with_3502() {
    let server = Server::start(Options { stale_timeout: Duration::from_millis(100), ..Options::default() }).await;
    let mut client = Client::open(&server).await;
    assert_eq!(client.drain().await.1, Some(3502));
}

in_both!(shutdown_writes_what_was_published_and_closes_with_3001);
async fn shutdown_writes_what_was_published_and_closes_with_3001(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::subscribed(&server, "room").await;
    server.publish("room", json!("last words"));
    let (drained, ()) = tokio::join!(client.drain(), server.shutdown());
    let (data, close) = drained;
    assert_eq!(data[0]["push"]["pub"]["data"], "last words");
    assert_eq!(close, Some(3001));
}

/// Those that are not closed yet still get what is published.
#[tokio::test]
async fn a_server_that_stops_closes_its_connections_over_a_while() {
    const CLIENT_COUNT: usize = 400;
    let (shutdown_spread, connection_count_max) = (Duration::from_secs(60), CLIENT_COUNT);
    let server = Server::start(Options { shutdown_spread, connection_count_max, ..Options::default() }).await;
    let mut drains = tokio::task::JoinSet::new();
    for _ in 0..CLIENT_COUNT {
        let mut client = Client::subscribed(&server, "room").await;
        drains.spawn(async move { client.drain().await });
    }
    let hub = server.hub.clone();
    let mut stopped = std::pin::pin!(server.shutdown());
    for number in 0.. {
        server::publish(&hub, "room", &json!(number));
        if tokio::time::timeout(Duration::from_millis(5), &mut stopped).await.is_ok() {
            break;
        }
    }
    let drained = drains.join_all().await;
    assert!(drained.iter().all(|(_, code)| *code == Some(3001)));
    let mut counts: Vec<_> = drained.iter().map(|(messages, _)| messages.len()).collect();
    counts.sort_unstable();
    counts.dedup();
    // On a busy machine few publications fit in between.
    assert!(counts.len() > 1, "they are closed at different times: {counts:?}");
}

#[tokio::test]
async fn bad_bytes_end_their_own_connection_with_the_right_code() {
    let server = Server::start(Options::default()).await;
    for (text, code) in [("", 3501), ("nonsense", 3501), (r#"{"id":1,"subscribe":{"channel":"room"}}"#, 3501)] {
        let mut client = Client::open(&server).await;
        client.send_text(text).await;
        assert_eq!(client.drain().await.1, Some(code), "{text}");
    }
    let mut client = Client::connected(&server).await;
    client.send_text(&"x".repeat(70_000)).await;
    assert_eq!(client.drain().await.1, Some(1009));
    let mut client = Client::connected(&server).await;
    client.send(json!({"id": 2, "subscribe": {"channel": "nowhere:1"}})).await;
    assert_eq!(client.reply(2).await["error"]["code"], 102);
    client.send(json!({"id": 3, "subscribe": {"channel": "x".repeat(256)}})).await;
    assert_eq!(client.reply(3).await["error"]["code"], 107);
}

#[tokio::test]
async fn one_connection_too_many_is_refused_with_503_and_room_comes_back() {
    let server = Server::start(Options { connection_count_max: 1, ..Options::default() }).await;
    let client = Client::connected(&server).await;
    assert_eq!(Client::try_open(&server).await.err(), Some(503));
    drop(client);
    server.until("the connection has gone", || server.edge().connection_count() == 0).await;
    Client::connected(&server).await;
}

in_both!(a_durable_publish_is_answered_after_the_journal_and_in_order);
async fn a_durable_publish_is_answered_after_the_journal_and_in_order(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::subscribed(&server, "durable:1").await;
    client
        .send_text(
            r#"{"id":3,"publish":{"channel":"durable:1","data":"a"}}
{"id":4,"publish":{"channel":"durable:1","data":"refuse"}}
{"id":5,"publish":{"channel":"durable:1","data":"b"}}"#,
        )
        .await;
    let mut replies = Vec::new();
    let mut data = Vec::new();
    while replies.len() < 3 || data.len() < 2 {
        let message = client.next().await;
        match message["id"].as_u64() {
            Some(id) => replies.push((id, message["error"]["code"].as_u64())),
            None => data.push(message["push"]["pub"]["data"].as_str().unwrap().to_owned()),
        }
    }
    assert_eq!(replies, [(3, None), (4, Some(111)), (5, None)]);
    assert_eq!(data, ["a", "b"]);
}

/// More connections than one step of a turn writes, in two channels, while others leave: whoever stays gets everything.
#[tokio::test]
async fn a_large_channel_is_written_in_steps_while_connections_come_and_go() {
    let server = Server::start(Options { connection_count_max: 1000, ..Options::default() }).await;
    let mut staying = Vec::new();
    let mut leaving = Vec::new();
    for index in 0..400 {
        let mut client = Client::subscribed(&server, "room").await;
        client.send(json!({"id": 3, "subscribe": {"channel": "kept:1"}})).await;
        client.reply(3).await;
        if index % 4 == 0 { leaving.push(client) } else { staying.push(client) }
    }
    for value in 0..50 {
        server.publish("room", json!(value));
        server.publish("kept:1", json!(value));
        drop(leaving.pop());
        if let Some(client) = leaving.last_mut() {
            client.send(json!({"id": 4, "unsubscribe": {"channel": "room"}})).await;
        }
    }
    for client in &mut staying {
        let (mut room, mut kept) = (Vec::new(), Vec::new());
        while room.len() < 50 || kept.len() < 50 {
            let push = client.next().await["push"].clone();
            let seen = if push["channel"] == "room" { &mut room } else { &mut kept };
            seen.push(push["pub"]["data"].as_i64().unwrap());
        }
        assert!(room.iter().copied().eq(0..50) && kept.iter().copied().eq(0..50), "{room:?} {kept:?}");
    }
}

/// Bursts of more than one turn takes, while the hub says again and again that there is something new: the channel is
/// then both left over and in the mailbox.
#[tokio::test]
async fn a_burst_over_many_turns_reaches_a_reader_that_keeps_up() {
    let server = Server::start(Options { turn_bytes_max: 4096, ..Options::default() }).await;
    let mut client = Client::subscribed(&server, "room").await;
    let hub = server.hub.clone();
    let publisher = std::thread::spawn(move || {
        let block = "x".repeat(1500);
        (0..3000).for_each(|value| server::publish(&hub, "room", &json!([value, block])));
    });
    for value in 0..3000 {
        assert_eq!(client.next().await["push"]["pub"]["data"][0], value);
    }
    publisher.join().unwrap();
}

/// Pushes wait for this, so a reader that takes nothing must not count.
#[tokio::test]
async fn loops_rest_when_they_have_written_what_the_sockets_take() {
    let server = Server::start(Options { turn_bytes_max: 4096, ..Options::default() }).await;
    let mut client = Client::subscribed(&server, "room").await;
    let stuck = Client::subscribed(&server, "room").await;
    let block = "x".repeat(16 << 10);
    for value in 0..2000 {
        server.publish("room", json!([value, block]));
        assert_eq!(client.next().await["push"]["pub"]["data"][0], value);
    }
    let rest = tokio::time::timeout(client::DEADLINE, server.hub.fan_out().rest()).await;
    assert!(rest.is_ok(), "the loops have written all");
    drop(stuck);
}

/// A peer that always has bytes for the server takes turns with the others, whether it has connected or not.
#[tokio::test]
async fn a_flood_of_frames_does_not_hold_up_the_others() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::subscribed(&server, "room").await;
    let mut quiet = Client::subscribed(&server, "room").await;
    let flood = client::flood(&server, client::Frame::Pong);
    server.until("the flood has begun", || server.metric("tidings_edge_connected_total") > 2.0).await;
    for value in 0..20 {
        server.publish("room", json!(value));
        assert_eq!(client.next().await["push"]["pub"]["data"], value);
        assert_eq!(quiet.next().await["push"]["pub"]["data"], value);
    }
    assert!(flood.stop() > 0, "the flood was one");
}

/// Pings are answered; of a peer that sends them and reads nothing the server takes no more once its answers reach the bound.
#[tokio::test]
async fn a_flood_of_pings_that_nobody_reads_the_answers_of_is_not_taken() {
    let server = Server::start(Options { control_bytes_max: 64 << 10, ..Options::default() }).await;
    let mut client = Client::subscribed(&server, "room").await;
    let sent = client::flood(&server, client::Frame::Ping).ended().await;
    assert!(sent > 64 << 10, "the flood was one");
    assert!(sent < client::FLOOD_BYTES, "the server takes whatever it is sent");
    server.publish("room", json!("undisturbed"));
    assert_eq!(client.next().await["push"]["pub"]["data"], "undisturbed");
}

in_both!(large_answers_wait_for_the_reader_and_all_come);
/// Many commands with large answers in one frame: only as many are done as the reader takes answers of, and all in the end.
async fn large_answers_wait_for_the_reader_and_all_come(format: Format) {
    let server = Server::start(Options { control_bytes_max: 64 << 10, ..Options::of(format) }).await;
    for value in 0..100 {
        server.publish("kept:1", json!([value, "x".repeat(2000)]));
    }
    let mut client = Client::connected(&server).await;
    let asks: Vec<_> =
        (2..302).map(|id| json!({"id": id, "history": {"channel": "kept:1", "limit": 100}}).to_string()).collect();
    client.send_text(&asks.join("\n")).await;
    let done = || server.metric("tidings_edge_commands_total");
    // 200 KB an answer: the sockets take some, not all.
    let (mut before, mut since) = (0.0, tokio::time::Instant::now());
    let is_stuck = || {
        if done() != before {
            (before, since) = (done(), tokio::time::Instant::now());
        }
        before > 1.0 && since.elapsed() > Duration::from_millis(300)
    };
    server.until_mut("no more commands are done", is_stuck).await;
    assert!(done() < 200.0, "{} commands were done for a reader who takes no answers", done());
    for id in 2..302 {
        let reply = client.next().await;
        assert_eq!((reply["id"].as_u64(), reply["history"]["publications"].as_array().unwrap().len()), (Some(id), 100));
    }
    client.send(json!({"id": 400, "presence_stats": {"channel": "kept:1"}})).await;
    assert_eq!(client.reply(400).await["presence_stats"]["num_clients"], 0);
}
