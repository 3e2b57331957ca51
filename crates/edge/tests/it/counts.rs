//! The figures of receipts: one connection's coming back is not another's receipt.

use serde_json::json;

use crate::client::Client;
use crate::server::{Asks, Options, Server};

const CHANNEL: &str = "durable:1";

async fn pinged(client: &mut Client) {
    loop {
        if client.next().await == json!({}) {
            return;
        }
    }
}

#[tokio::test]
async fn who_comes_back_does_not_answer_for_who_has_not() {
    let server = Server::start(Options::default()).await;
    let mut first = Client::introduced(&server, json!({}), CHANNEL).await;
    let mut second = Client::introduced(&server, json!({}), CHANNEL).await;
    let epoch = first.epoch.clone();
    let event = server.publish_event(1, Asks::Everybody, CHANNEL, 1);
    pinged(&mut first).await;
    pinged(&mut second).await;
    first.pong().await;
    server.until("it has come", || event.summary().received == 1).await;
    for _ in 0..3 {
        first.send(json!({"id": 3, "unsubscribe": {"channel": CHANNEL}})).await;
        first.reply(3).await;
        first.subscribe(json!({"channel": CHANNEL, "recover": true, "offset": 1, "epoch": epoch})).await;
    }
    assert_eq!((event.summary().written, event.summary().received), (2, 1), "the second has said nothing");
    second.pong().await;
    server.until("it has come", || event.summary().received == 2).await;
}

#[tokio::test]
async fn a_device_that_resumes_while_its_other_connection_answers_is_not_counted_beyond_what_was_written() {
    let server = Server::start(Options::default()).await;
    let phone = json!({"data": {"tidings": {"device": "phone-1", "credential": "secret-1", "visible": true}}});
    let mut first = Client::introduced(&server, phone.clone(), CHANNEL).await;
    let event = server.publish_event(1, Asks::Visible, CHANNEL, 1);
    pinged(&mut first).await;
    let mut again = Client::open(&server).await;
    again.send(json!({"id": 1, "connect": phone})).await;
    again.reply(1).await;
    again.subscribe(json!({"channel": CHANNEL, "recover": true, "offset": 1, "epoch": first.epoch})).await;
    first.pong().await;
    first.flush().await;
    let summary = event.summary();
    assert!(summary.received <= summary.written, "{summary:?}");
}
