//! Fair shares: what greedy clients ask for costs only themselves.

use serde_json::{Value, json};
use tidings_types::Format;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::server::{Options, Server};

const ABROAD: [u8; 4] = [127, 0, 0, 2];

async fn subscribe(client: &mut Client, channel: &str) -> Value {
    client.send(json!({"id": 2, "subscribe": {"channel": channel}})).await;
    client.reply(2).await
}

/// There is room for 100 channels.
#[tokio::test]
async fn one_network_does_not_get_all_channels() {
    let server = Server::start(Options::default()).await;
    let mut greedy = Vec::new();
    let mut refused = 0;
    for number in 0..10 {
        let mut client = Client::connected_from(&server, ABROAD).await;
        for one in 0..20 {
            refused +=
                usize::from(subscribe(&mut client, &format!("kept:{number}-{one}")).await["error"]["code"] == 111);
        }
        greedy.push(client);
    }
    assert!((100..=125).contains(&refused), "{refused} of 200 are refused");
    assert_eq!(server.metric(r#"tidings_edge_shares_total{of="channels"}"#), refused as f64);
    let mut modest = Client::connected(&server).await;
    assert!(subscribe(&mut modest, "kept:modest").await["subscribe"].is_object());
    assert_eq!(subscribe(&mut greedy[9], "kept:more").await["error"]["code"], 111);
    assert!(
        subscribe(&mut greedy[9], "kept:0-0").await["subscribe"].is_object(),
        "a channel that is there costs no room"
    );
}

in_both!(who_publishes_too_fast_waits_for_the_readers);
/// Clients publish as fast as they can to readers that read: nobody is cut off.
async fn who_publishes_too_fast_waits_for_the_readers(format: Format) {
    const COUNT: usize = 5000;
    let server = Server::start(Options { frame_count_max: 64, ..Options::of(format) }).await;
    let mut readers = Vec::new();
    for _ in 0..8 {
        readers.push(Client::subscribed(&server, "small-frames:1").await);
    }
    let mut reading = JoinSet::new();
    for mut reader in readers {
        reading.spawn(async move { reader.publications(COUNT).await.len() });
    }
    let mut publisher = Client::connected_from(&server, ABROAD).await;
    for first in (0..COUNT).step_by(500) {
        let commands: Vec<String> = (first..first + 500)
            .map(|number| {
                json!({"id": number + 1, "publish": {"channel": "small-frames:1", "data": number}}).to_string()
            })
            .collect();
        publisher.send_text(&commands.join("\n")).await;
        publisher.reply(first as u64 + 500).await;
    }
    assert_eq!(reading.join_all().await, [COUNT; 8]);
    assert_eq!(server.metric(r#"tidings_edge_disconnects_total{reason="slow"}"#), 0.0);
    assert!(server.metric(r#"tidings_edge_shares_total{of="publications"}"#) > 0.0, "the test is about waiting");
}

/// A few that read nothing do not slow down who publishes: they are cut off.
#[tokio::test]
async fn who_reads_nothing_does_not_stop_who_publishes() {
    const COUNT: u64 = 2000;
    let server = Server::start(Options { frame_count_max: 64, ..Options::default() }).await;
    let mut reader = Client::subscribed(&server, "small-frames:1").await;
    let _silent = Client::subscribed(&server, "small-frames:1").await;
    let mut reading = JoinSet::new();
    reading.spawn(async move { reader.publications(COUNT as usize).await.len() });
    let mut publisher = Client::connected_from(&server, ABROAD).await;
    let data = "x".repeat(4000); // More than the silent one's socket takes.
    for number in 1..=COUNT {
        let publish = json!({"channel": "small-frames:1", "data": data});
        publisher.send(json!({"id": number, "publish": publish})).await;
        assert!(publisher.reply(number).await["error"].is_null());
    }
    assert_eq!(reading.join_all().await, [COUNT as usize]);
    let slow = || server.metric(r#"tidings_edge_disconnects_total{reason="slow"}"#);
    server.until("the silent one is cut off", || slow() == 1.0).await;
}

/// Whoever is gone waits for nothing, and delays nobody: neither the loop nor the others that want to publish.
#[tokio::test]
async fn a_client_that_is_reset_while_it_waits_for_room_is_gone() {
    let server = Server::start(Options { frame_count_max: 64, ..Options::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(Client::subscribed(&server, "small-frames:1").await); // Two on each loop.
    }
    let data = "x".repeat(40_000); // More than the sockets of the silent ones take.
    let mut publisher = Client::connected_from(&server, ABROAD).await;
    let waits = || server.metric(r#"tidings_edge_shares_total{of="publications"}"#) > 0.0;
    // Each of them waits for 0.15 s then, so the last of them for longer than the test.
    for id in 2..1000 {
        publisher.send(json!({"id": id, "publish": {"channel": "small-frames:1", "data": data}})).await;
        if waits() {
            break;
        }
    }
    server.until("its publications wait", waits).await;
    publisher.reset();
    server.until("it is gone", || server.edge().connection_count() <= silent.len()).await;
    others_are_served(&server).await;
}

#[tokio::test]
async fn clients_that_are_reset_while_they_wait_for_their_turn_are_gone() {
    let server = Server::start(Options::default()).await;
    let commands: Vec<String> = (0..300)
        .flat_map(|id| {
            ["subscribe", "unsubscribe"].map(|command| json!({"id": id + 2, command: {"channel": "kept:1"}}))
        })
        .map(|command| command.to_string())
        .collect();
    let frame = commands.join("\n");
    let waited = || server.metric(r#"tidings_edge_shares_total{of="commands"}"#);
    for round in 0..100 {
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(Client::connected(&server).await);
        }
        for client in &mut clients {
            client.send_text(&frame).await;
            client.send_text(&frame).await;
        }
        clients.into_iter().for_each(Client::reset);
        server.until("they are gone", || server.edge().connection_count() == 0).await;
        if waited() > 20.0 {
            return others_are_served(&server).await;
        }
        assert!(round < 99, "the test is about waiting: {} did", waited());
    }
}

/// On every loop.
async fn others_are_served(server: &Server) {
    for _ in 0..4 {
        let mut client = Client::connected(server).await;
        assert!(subscribe(&mut client, "kept:other").await["subscribe"].is_object());
    }
}
