//! Readers of a copied channel whose content is replaced: they get what came before, and start anew.

use serde_json::{Value, json};
use tidings_hub::{Applied, ChannelCopy, News};
use tidings_protocol::Publication;
use tidings_telemetry::unix_now;
use tidings_types::{Epoch, Format, Json, Offset, Tags};

use crate::client::Client;
use crate::server::{Options, Server, channel};

fn publication(offset: u64, data: Value) -> Publication {
    let (data, tags) = (Json::of(&data), Tags::default());
    Publication { offset: Offset(offset), data, info: None, tags, receipt: None, texts: None }
}

fn epoch(server: &Server, name: &str) -> Epoch {
    server.hub.history(&channel(name), Default::default()).unwrap().1.epoch
}

/// The home has published up to `top`, and keeps the last publication alone.
fn replace(server: &Server, name: &str, epoch: Epoch, top: u64) {
    let kept = vec![publication(top, json!(["kept", top]))];
    let copy = ChannelCopy { channel: channel(name), epoch, top: Offset(top), version: None, kept, at: unix_now() };
    server.hub.take_copy(copy, unix_now());
    assert_eq!(server.hub.history(&channel(name), Default::default()).unwrap().1.offset, Offset(top));
}

/// The home tells of the next publication.
fn tell(server: &Server, name: &str, offset: u64) {
    let publication = publication(offset, json!(["told", offset]));
    let epoch = Some(epoch(server, name));
    let news = News::Published { channel: channel(name), epoch, version: None, publication, at: unix_now() };
    assert_eq!(server.hub.apply(news, unix_now()), Applied::Done);
}

fn others_total(server: &Server) -> f64 {
    server.metric("tidings_edge_disconnects_total{reason=\"other\"}")
}

/// Resumes from the position that a client has.
async fn resume(server: &Server, name: &str, epoch: &str, offset: u64) -> Value {
    let mut client = Client::connected(server).await;
    client.subscribe(json!({"channel": name, "recover": true, "offset": offset, "epoch": epoch})).await
}

in_both!(a_reader_that_is_up_to_date_is_closed_with_3010_and_gets_nothing_of_the_new_content);
async fn a_reader_that_is_up_to_date_is_closed_with_3010_and_gets_nothing_of_the_new_content(format: Format) {
    for is_other_life in [false, true] {
        let server = Server::start(Options::of(format)).await;
        let mut client = Client::subscribed(&server, "kept:1").await;
        server.publish("kept:1", json!(1));
        assert_eq!(client.next().await["push"]["pub"]["offset"], 1);
        server.hub.set_home(false);
        let known = epoch(&server, "kept:1");
        replace(&server, "kept:1", if is_other_life { Epoch::from_random(9) } else { known }, 5);
        tell(&server, "kept:1", 6);
        let (messages, code) = client.drain().await;
        assert_eq!((messages, code), (vec![], Some(3010)));
        assert_eq!(others_total(&server), 1.0);
        let found = resume(&server, "kept:1", known.as_str(), 1).await;
        assert_eq!((found.get("recovered"), &found["offset"]), (None, &json!(6)), "it is told of the hole");
    }
}

in_both!(a_reader_gets_all_that_was_published_before_in_the_same_turn);
/// The frames are fetched together: two publications, the restart, one more.
async fn a_reader_gets_all_that_was_published_before_in_the_same_turn(format: Format) {
    let server = Server::start(Options { connection_count_max: 1000, ..Options::of(format) }).await;
    let mut clients = Vec::new();
    for _ in 0..150 {
        clients.push(Client::subscribed(&server, "kept:1").await); // More than one step of a turn writes to.
    }
    let known = epoch(&server, "kept:1");
    for value in 1..=2 {
        server.publish("kept:1", json!(value));
    }
    server.hub.set_home(false);
    replace(&server, "kept:1", known, 5);
    tell(&server, "kept:1", 6);
    for client in &mut clients {
        let (messages, code) = client.drain().await;
        let offsets: Vec<_> = messages.iter().map(|message| message["push"]["pub"]["offset"].as_u64()).collect();
        assert_eq!((offsets, code), (vec![Some(1), Some(2)], Some(3010)));
    }
    assert_eq!(others_total(&server), 150.0);
}

in_both!(a_slow_reader_gets_what_waits_for_it_before_it_starts_anew);
async fn a_slow_reader_gets_what_waits_for_it_before_it_starts_anew(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut slow = Client::subscribed(&server, "kept:1").await;
    let mut quick = Client::subscribed(&server, "kept:1").await;
    let (block, known) = ("x".repeat(60_000), epoch(&server, "kept:1"));
    for value in 1..=300 {
        server.publish("kept:1", json!([value, block]));
        assert_eq!(quick.next().await["push"]["pub"]["offset"], value);
    }
    server.hub.set_home(false);
    replace(&server, "kept:1", known, 400);
    tell(&server, "kept:1", 401);
    assert_eq!(quick.drain().await, (vec![], Some(3010)));
    assert_eq!(others_total(&server), 1.0, "frames wait for the slow one");
    let mut late = Client::subscribed(&server, "kept:1").await;
    tell(&server, "kept:1", 402);
    assert_eq!(late.next().await["push"]["pub"]["data"], json!(["told", 402]), "who comes later starts behind it");

    let (messages, code) = slow.drain().await;
    let offsets: Vec<_> = messages.iter().map(|message| message["push"]["pub"]["offset"].as_u64().unwrap()).collect();
    assert_eq!((offsets, code), ((1..=300).collect(), Some(3010)));
    assert_eq!(others_total(&server), 2.0);
    let found = resume(&server, "kept:1", known.as_str(), 300).await;
    assert_eq!(found.get("recovered"), None);
    tell(&server, "kept:1", 403);
    assert_eq!(late.next().await["push"]["pub"]["offset"], 403);
}

in_both!(a_connection_with_two_channels_is_closed_once_and_others_go_on);
async fn a_connection_with_two_channels_is_closed_once_and_others_go_on(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut both = Client::subscribed(&server, "kept:1").await;
    both.send(json!({"id": 3, "subscribe": {"channel": "kept:2"}})).await;
    both.reply(3).await;
    let mut one = Client::subscribed(&server, "kept:2").await;
    let mut plain = Client::subscribed(&server, "room").await;
    server.hub.set_home(false);
    let known = epoch(&server, "kept:2");
    tell(&server, "kept:2", 1);
    replace(&server, "kept:1", Epoch::from_random(9), 5);
    let (messages, code) = both.drain().await;
    assert_eq!(code, Some(3010));
    let pushes: Vec<_> = messages.iter().map(|message| &message["push"]).collect();
    assert!(pushes.len() <= 1 && pushes.iter().all(|push| push["pub"]["offset"] == 1), "{pushes:?}");
    // What it did not get of the other channel is there when it comes back.
    let found = resume(&server, "kept:2", known.as_str(), pushes.len() as u64).await;
    assert_eq!(found["recovered"], true);
    tell(&server, "kept:2", 2);
    for offset in 1..=2 {
        assert_eq!(one.next().await["push"]["pub"]["offset"], offset);
    }
    server.publish("room", json!("not kept"));
    assert_eq!(plain.next().await["push"]["pub"]["data"], "not kept");
    server.hub.take_over();
    assert_eq!(one.drain().await, (vec![], Some(3010)));
    assert_eq!(plain.flush().await, [] as [Value; 0], "it knows no position");
    assert_eq!(others_total(&server), 2.0);
}

/// The next publication after a restart is a whole one, also for clients that get differences.
#[tokio::test]
async fn the_first_publication_behind_a_restart_is_no_difference() {
    let server = Server::start(Options::default()).await;
    let name = "small-frames:1";
    let with_deltas = json!({"channel": name, "delta": "fossil"});
    let mut client = Client::connected(&server).await;
    client.subscribe(with_deltas.clone()).await;
    let text = "the same words in each publication, so that a difference is shorter ".repeat(3);
    for value in 1..=2 {
        server.publish(name, json!([text, value]));
        let push = client.next().await["push"].clone();
        assert_eq!(push["pub"]["delta"].as_bool().unwrap_or_default(), value == 2);
    }
    server.hub.set_home(false);
    server.hub.take_over();
    let mut next = Client::connected(&server).await;
    next.subscribe(with_deltas).await;
    server.publish(name, json!([text, 3]));
    assert_eq!(next.next().await["push"]["pub"].get("delta"), None);
    assert_eq!(client.drain().await, (vec![], Some(3010)));
}
